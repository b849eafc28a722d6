"""What one thread computes, for a GPU and for this host: what differs is how it is entered, and one instruction."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from .._structured._functions import definitions
from ._arithmetic import ENTRY, arithmetic

_NUMBER = r"(%[\w.]+|0x[0-9A-F]+)"


def _without_calls(text: str) -> str:
    """With what takes a GPU a subroutine, or LLVM a dozen instructions, as functions of our own."""
    name = {"double": "quotient", "float": "quotientf"}
    text = re.sub(
        rf"fdiv (?:contract )?(double|float) {_NUMBER}, {_NUMBER}",
        lambda x: f"call {x[1]} @{name[x[1]]}({x[1]} {x[2]}, {x[1]} {x[3]})",
        text,
    )
    return re.sub(r"@llvm\.(maximum|minimum)\.f64\(", r"@\1(", text)


class KernelText(NamedTuple):
    """What one thread computes.

    - `functions`: LLVM's text. Its function `run` takes the number of the run or member, the sizes, pointers to results,
      and the operands, each with how far apart the numbers of a run are in it: 1 where all runs have the same.
    - `called`: the functions of C that they call.
    - `sizes`: the names of the sizes, of which the first says how many runs there are.
    - `operands`, `results`: how many arrays, which have the runs last.
    """

    functions: str
    called: Iterable[str]
    sizes: tuple[str, ...]
    operands: int
    results: int


def parameters(text: KernelText) -> str:
    """Those of its function `run`."""
    sizes = [f"i64 %{name}" for name in ("run", *text.sizes)]
    results = [f"ptr noalias %out{i}" for i in range(text.results)]
    operands = [f"ptr noalias readonly %in{i}, i64 %apart{i}" for i in range(text.operands)]
    return ", ".join([*sizes, *results, *operands])


def _all(text: KernelText, where: str) -> str:
    return "\n".join([definitions(text.called), _without_calls(text.functions), arithmetic(where)])


def _entry(text: KernelText) -> tuple[str, str]:
    """Its parameters and the instructions that read sizes."""
    taken = [f"ptr noalias readonly %in{i}" for i in range(text.operands)]
    taken += ["ptr noalias readonly %sizes", *(f"ptr noalias %out{i}" for i in range(text.results))]
    names = [*text.sizes, *(f"apart{i}" for i in range(text.operands))]
    read = "\n".join(
        f"""  %{name}.place = getelementptr i32, ptr %sizes, i64 {i}
  %{name}.short = load i32, ptr %{name}.place
  %{name} = zext i32 %{name}.short to i64"""
        for i, name in enumerate(names)
    )
    return ", ".join(taken), read


def gpu_text(text: KernelText) -> str:
    """A kernel, whose threads are counted through all blocks."""
    taken, read = _entry(text)
    return f"""declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
{_all(text, "gpu")}
define ptx_kernel void @{ENTRY}({taken}) {{
{read}
  %thread = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %block = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %threads = call i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
  %first = mul i32 %block, %threads
  %own = add i32 %first, %thread
  %run = zext i32 %own to i64
  %exists = icmp ult i64 %run, %{text.sizes[0]}
  br i1 %exists, label %begin, label %end
begin:
  call void @run({parameters(text)})
  br label %end
end:
  ret void
}}"""


def host_text(text: KernelText) -> str:
    """A function of the same parameters that makes one run after the other."""
    taken, read = _entry(text)
    return f"""{_all(text, "host")}
define void @{ENTRY}({taken}) {{
{read}
  br label %next
next:
  %run = phi i64 [0, %0], [%after, %next]
  call void @run({parameters(text)})
  %after = add i64 %run, 1
  %more = icmp ult i64 %after, %{text.sizes[0]}
  br i1 %more, label %next, label %end
end:
  ret void
}}"""
