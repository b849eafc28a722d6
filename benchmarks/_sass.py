"""What NVIDIA's assembler makes of PTX: registers, spills, and instructions of the loops, by its own disassembler."""

import collections
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

PIPES = {
    "DFMA": "fp64", "DMUL": "fp64", "DADD": "fp64", "DSETP": "fp64", "FFMA": "fp32", "FMUL": "fp32", "FADD": "fp32",
    "LDL": "local", "STL": "local", "LDG": "global", "STG": "global",
}  # fmt: skip


class Machine(NamedTuple):
    """Registers of a thread, bytes of its stack, of spills written and read; and instructions by loop."""

    registers: int
    stack: int
    spills: tuple[int, int]
    loops: "Loop"


class Loop(NamedTuple):
    """Instructions by kind, those of inner loops not counted, and the inner loops in order."""

    own: collections.Counter
    inner: list["Loop"]


def tool(name: str) -> str:
    """A program of CUDA's, from the packages nvidia-cuda-nvcc-cu12 and nvidia-cuda-nvdisasm, or in the path."""
    for folder in map(Path, sys.path):
        for found in folder.glob(f"nvidia/*/bin/{name}"):
            return str(found)
    found = shutil.which(name)
    if found is None:
        raise SystemExit(f"{name} is missing: pip install nvidia-cuda-nvcc-cu12 nvidia-cuda-nvdisasm")
    return found


def assembled(ptx: str, card: str) -> Machine:
    """The machine code of a kernel."""
    with tempfile.TemporaryDirectory() as folder:
        source, binary = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(ptx)
        command = [tool("ptxas"), "-v", f"-arch={card}", str(source), "-o", str(binary)]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stderr
        text = subprocess.run(
            [tool("nvdisasm"), "-c", str(binary)], capture_output=True, text=True, check=True
        ).stdout
    (registers,) = re.findall(r"Used (\d+) registers", told)
    frames = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", told)
    stacks, stores, loads = zip(*(tuple(map(int, x)) for x in frames), strict=True)  # of each function
    return Machine(int(registers), max(stacks), (sum(stores), sum(loads)), _loops(*_instructions(text)))


def _instructions(
    text: str,
) -> tuple[list[collections.Counter], dict[str, int], list[tuple[int, int]]]:
    """Those of the kernel, a call with all of what it calls; its labels; and its jumps back."""
    section = re.search(r"\.section\s+\.text\.ukjax\S*,(.*?)(?=\n\s*\.section\s|\Z)", text, re.S)
    assert section
    kernel, *functions = re.split(r"\n\s*(?=\$ukjax\$\S+:\n)", section[1])
    texts, called = dict(x.split(":", 1) for x in functions), dict[str, collections.Counter]()

    def count(name: str) -> None:
        if name not in called:
            inside = set(re.findall(r"CALL\S* .*`\((\S+)\)", texts[name])) & set(texts)
            for x in inside:  # none calls itself
                count(x)
            called[name] = sum(_function(texts[name], called)[0], collections.Counter())

    for name in texts:
        count(name)
    return _function(kernel, called)


def _function(
    text: str, called: dict[str, collections.Counter]
) -> tuple[list[collections.Counter], dict[str, int], list[tuple[int, int]]]:
    found, labels, jumps = [], {}, []
    for line in text.splitlines():
        if label := re.match(r"\s*(\.L_x_\d+):", line):
            labels[label[1]] = len(found)
        elif one := re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P[T\d]+\s+)?([A-Z][A-Z0-9_]*)(.*)", line):
            target = re.search(r"`\((\S+)\)", one[2])
            if one[1] == "BRA" and target and target[1] in labels:
                jumps.append((labels[target[1]], len(found)))
            inside = called.get(target[1]) if one[1] == "CALL" and target else None
            found.append(collections.Counter([one[1]]) + (inside or collections.Counter()))
    return found, labels, jumps


def _loops(found: list[collections.Counter], labels: dict[str, int], jumps: list[tuple[int, int]]) -> Loop:
    """Loops within loops. Jumps back to one place are one loop."""
    ends: dict[int, int] = {}
    for start, end in jumps:
        ends[start] = max(end, ends.get(start, 0))

    def loop(first: int, last: int) -> Loop:
        inner, place, own = [], first, collections.Counter()
        for start, end in sorted(ends.items(), key=lambda x: (x[0], -x[1])):
            if start < place or end > last or (start, end) == (first, last):
                continue
            own += sum(found[place:start], collections.Counter())
            inner.append(loop(start, end))
            place = end + 1
        return Loop(own + sum(found[place : last + 1], collections.Counter()), inner)

    return loop(0, len(found) - 1)
