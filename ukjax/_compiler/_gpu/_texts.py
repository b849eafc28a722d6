"""What one thread computes, written for a GPU and for this host: what differs is how it is entered, and one instruction.

Quotients of float64 and float32 are computed without branches: from the reciprocal that the hardware gives to some 20
places by Newton's steps, to the last place but for rare cases; a divisor below the least normal number counts as zero. On
the host that reciprocal is cut off at as many places.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from .._machine_code import Kind
from ._functions import definitions

_SEEDS = {
    ("float64", "gpu"): """declare double @llvm.nvvm.rcp.approx.ftz.d(double)
define internal double @seed(double %y) alwaysinline {
  %r = call double @llvm.nvvm.rcp.approx.ftz.d(double %y)
  ret double %r
}""",
    ("float64", "host"): """define internal double @seed(double %y) alwaysinline {
  %r = fdiv double 1.0, %y
  %b = bitcast double %r to i64
  %c = and i64 %b, -4294967296
  %s = bitcast i64 %c to double
  ret double %s
}""",
    ("float32", "gpu"): """declare float @llvm.nvvm.rcp.approx.ftz.f(float)
define internal float @seedf(float %y) alwaysinline {
  %r = call float @llvm.nvvm.rcp.approx.ftz.f(float %y)
  ret float %r
}""",
    ("float32", "host"): """define internal float @seedf(float %y) alwaysinline {
  %r = fdiv float 1.0, %y
  ret float %r
}""",
}
_STEPS = {"float64": 2, "float32": 0}


def _quotient(dtype: str) -> str:
    """x / y."""
    kind = Kind(dtype, 1)
    number, suffix, name = kind.number, f"f{8 * kind.bytes}", "f" if dtype == "float32" else ""
    fma = lambda x, y, z: f"call {number} @llvm.fma.{suffix}({number} {x}, {number} {y}, {number} {z})"
    lines = [f"  %r0 = call {number} @seed{name}({number} %y)", f"  %ny = fneg {number} %y"]
    for i in range(_STEPS[dtype]):
        lines += [f"  %e{i} = {fma('%ny', f'%r{i}', kind.literal(1.0))}"]
        lines += [f"  %r{i + 1} = {fma(f'%r{i}', f'%e{i}', f'%r{i}')}"]
    r = f"%r{_STEPS[dtype]}"
    lines += [
        f"  %q = fmul {number} %x, {r}",
        f"  %rest = {fma('%ny', '%q', '%x')}",
        f"  %found = {fma('%rest', r, '%q')}",
        f"  %usual = fcmp ord {number} %found, %found",
        f"  %plain = fmul {number} %x, %r0",  # where x or y are infinite, or y zero
        f"  %all = select i1 %usual, {number} %found, {number} %plain",
    ]
    head = f"define internal {number} @quotient{name}({number} %x, {number} %y) alwaysinline {{"
    return "\n".join([head, *lines, f"  ret {number} %all", "}"])


# PTX has the larger of two float64, but not with NaN where one of them is; of a constant one comparison does.
_EXTREMES = """define internal double @{name}(double %x, double %y) alwaysinline {{
  %c = fcmp {how} double %x, %y
  %m = select i1 %c, double %x, double %y
  %n = fcmp uno double %x, %x
  %r = select i1 %n, double %x, double %m
  ret double %r
}}"""
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


ENTRY = "ukjax"
"""The name of what is entered: takes operands, sizes and how far apart numbers are in each (int32), and results."""


def parameters(text: KernelText) -> str:
    """Those of its function `run`."""
    sizes = [f"i64 %{name}" for name in ("run", *text.sizes)]
    results = [f"ptr noalias %out{i}" for i in range(text.results)]
    operands = [f"ptr noalias readonly %in{i}, i64 %apart{i}" for i in range(text.operands)]
    return ", ".join([*sizes, *results, *operands])


def _all(text: KernelText, where: str) -> str:
    functions = _without_calls(f"{definitions(text.called)}\n{text.functions}")
    extremes = [
        _EXTREMES.format(name=name, how=how) for name, how in (("maximum", "ogt"), ("minimum", "olt"))
    ]
    kinds = [f"{_SEEDS[dtype, where]}\n{_quotient(dtype)}" for dtype in _STEPS]
    return "\n".join([functions, *extremes, *kinds])


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
