"""Quotients and extremes for a GPU, as functions of LLVM, and the same for this host.

Quotients of float64 and float32 are computed without branches: from the reciprocal that the hardware gives to some 20
places by Newton's steps, to the last place but for rare cases; a divisor below the least normal number counts as zero. On
the host that reciprocal is cut off at as many places.
"""

import struct

ENTRY = "ukjax"
"""The name of what is entered: takes operands, sizes (int32) and results."""

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


def literal(x: float) -> str:
    """A number as LLVM reads it, exactly."""
    return f"0x{struct.unpack('>Q', struct.pack('>d', x))[0]:016X}"


def _quotient(dtype: str) -> str:
    """x / y."""
    number, suffix, name = {"float64": ("double", "f64", ""), "float32": ("float", "f32", "f")}[dtype]
    fma = lambda x, y, z: f"call {number} @llvm.fma.{suffix}({number} {x}, {number} {y}, {number} {z})"
    lines = [f"  %r0 = call {number} @seed{name}({number} %y)", f"  %ny = fneg {number} %y"]
    for i in range(_STEPS[dtype]):
        lines += [f"  %e{i} = {fma('%ny', f'%r{i}', literal(1.0))}"]
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
}}
declare float @llvm.{name}.f32(float, float)
define internal float @{name}f(float %x, float %y) alwaysinline {{
  %r = call float @llvm.{name}.f32(float %x, float %y)
  ret float %r
}}"""


def arithmetic(where: str) -> str:
    """The functions `quotient`, `maximum` and `minimum`, and with an f behind them those of float32."""
    extremes = [
        _EXTREMES.format(name=name, how=how) for name, how in (("maximum", "ogt"), ("minimum", "olt"))
    ]
    return "\n".join([*extremes, *(f"{_SEEDS[dtype, where]}\n{_quotient(dtype)}" for dtype in _STEPS)])
