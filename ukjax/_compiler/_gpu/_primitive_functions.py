"""exp, log, pow and others as LLVM functions of float64: arithmetic and moves of bits alone, as a GPU has no C library.

exp and log reduce their argument as fdlibm does (e_exp.c, e_log.c); pow has its logarithm as an unevaluated sum of two
numbers, so that its error stays near one unit in the last place wherever it does not overflow.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .._structured._instructions import Emitter, Number, literal

# --- Quotients and extremes for a GPU, as functions of LLVM, and the same for this host
#
# Quotients of float64 and float32 are computed without branches: from the reciprocal that the hardware gives to some 20
# places by Newton's steps, to the last place but for rare cases; a divisor below the least normal number counts as
# zero. On the host that reciprocal is cut off at as many places.

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


def _quotient(dtype: str) -> str:
    """x / y."""
    number, suffix, name = {"float64": ("double", "f64", ""), "float32": ("float", "f32", "f")}[dtype]
    fma = lambda x, y, z: f"call {number} @llvm.fma.{suffix}({number} {x}, {number} {y}, {number} {z})"
    lines = [f"  %r0 = call {number} @seed{name}({number} %y)", f"  %ny = fneg {number} %y"]
    for i in range(_STEPS[dtype]):
        lines += [f"  %e{i} = {fma('%ny', f'%r{i}', literal(1.0, 'float64'))}"]
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


# --- exp, log, pow and others

_LN2 = 6.93147180369123816490e-01, 1.90821492927058770002e-10
"""The first has 20 zeros at its end, so that its product with an exponent is exact."""
_LOG = (
    6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01, 2.222219843214978396e-01,
    1.818357216161805012e-01, 1.531383769920937332e-01, 1.479819860511658591e-01,
)  # fmt: skip
_TWO_THIRDS = 2 / 3, 3.700743415417188e-17
_LARGEST, _LEAST = 709.782712893384, -745.1332191019412  # between which exp is a positive number
_TERMS = 13  # of the series of exp: of |r| < 0.35 it then leaves out less than 2^-57


class _Exact:
    """What these functions are written for: nothing is contracted."""

    width, contracts, library = 1, False, False
    functions: dict[str, str] = {"div": "quotient"}  # noqa: RUF012


_where = Number.where


def _from_bits(emit: Emitter, bits: str) -> Number:
    return Number(emit, emit(f"bitcast i64 {bits} to double"))


def _to_bits(x: Number) -> str:
    return x.emit(f"bitcast double {x.name} to i64")


def _power_of_two(n: Number) -> Number:
    """2^n of a whole number from -1022 to 1023."""
    emit = n.emit
    whole = emit(f"add i64 {emit(f'fptosi double {n.name} to i64')}, 1023")
    return _from_bits(emit, emit(f"shl i64 {whole}, 52"))


def _clamp(x: Number, bound: float) -> Number:
    """x moved to between -bound and bound, where NaN goes too."""
    x = _where(x.is_("olt", bound), x, bound)
    return _where(x.is_("ogt", -bound), x, -bound)


def _reduce_argument(x: Number) -> tuple[Number, Number]:
    """A whole number n and the rest r of x = n ln 2 + r."""
    n = _clamp((x * (1 / math.log(2)) + 0.5).of("floor"), 1100.0)
    return n, n.of("fma", -_LN2[1], n.of("fma", -_LN2[0], x))


def _polynomial(x: Number, coefficients: Sequence[float]) -> Number:
    """By Horner's rule, of which each step is rounded once."""
    value: Any = coefficients[-1]
    for c in coefficients[-2::-1]:
        value = x.of("fma", value, c)
    return value


def _less_one(r: Number) -> Number:
    """exp r - 1 of a small number."""
    rest = _polynomial(r, [1 / math.factorial(k) for k in range(2, _TERMS + 1)])
    return (r * r).of("fma", rest, r)


def _exponential(x: Number, further: Number | None = None) -> Number:
    """exp of x, or of x and a number that is small beside it."""
    n, r = _reduce_argument(x)
    found = _less_one(r if further is None else r + further) + 1.0
    half = (n * 0.5).of("floor")
    found = found * _power_of_two(half) * _power_of_two(n - half)
    found = _where(x.is_("ule", _LARGEST), found, math.inf)
    return _where(x.is_("uge", _LEAST), found, 0.0)


def _exp(x: Number) -> Number:
    return _exponential(x)


def _exp2(x: Number) -> Number:
    n = _clamp((x + 0.5).of("floor"), 1100.0)
    half = (n * 0.5).of("floor")
    found = (_less_one((x - n) * math.log(2)) + 1.0) * _power_of_two(half) * _power_of_two(n - half)
    found = _where(x.is_("ult", 1024.0), found, math.inf)
    return _where(x.is_("uge", -1075.0), found, 0.0)


def _expm1(x: Number) -> Number:
    n, r = _reduce_argument(_clamp(x, 100.0))
    power = _power_of_two(n)
    found = power.of("fma", _less_one(r), power - 1.0)
    found = _where(x.is_("olt", 40.0), found, _exponential(x))  # NaN too
    return _where(x.is_("uge", -40.0), found, -1.0)


def _split_exponent(x: Number) -> tuple[Number, Number]:
    """An exponent k and m from sqrt(1/2) to sqrt(2), of a positive number x = 2^k m."""
    emit = x.emit
    tiny = x.is_("olt", 2.2250738585072014e-308)
    bits = _to_bits(_where(tiny, x * 2.0**54, x))
    middle = int(np.float64(math.sqrt(0.5)).view(np.int64))
    k = emit(f"ashr i64 {emit(f'sub i64 {bits}, {middle}')}, 52")
    m = _from_bits(emit, emit(f"sub i64 {bits}, {emit(f'shl i64 {k}, 52')}"))
    exponent = Number(emit, emit(f"sitofp i64 {k} to double"))
    return _where(tiny, exponent - 54.0, exponent), m


def _log(x: Number) -> Number:
    k, m = _split_exponent(x)
    f = m - 1.0
    s = f / (f + 2.0)
    z, half = s * s, f * f * 0.5
    sum_ = s * (half + z * _polynomial(z, _LOG)) + k * _LN2[1]
    found = k * _LN2[0] - ((half - sum_) - f)
    found = _where(x.is_("one", math.inf), found, x)
    found = _where(x.is_("one", 0.0), found, -math.inf)
    return _where(x.is_("oge", 0.0), found, math.nan)


def _sum(x: Number, y: Number) -> tuple[Number, Number]:
    """x + y and its rounding error."""
    total = x + y
    of_y = total - x
    return total, (x - (total - of_y)) + (y - of_y)


def _long_log(x: Number) -> tuple[Number, Number]:
    """log x of a positive number, as a sum of two."""
    k, m = _split_exponent(x)
    f, below = m - 1.0, m + 1.0
    s = f / below
    rest = ((-s).of("fma", below, f) - s * (m - (below - 1.0))) / below
    z = s * s
    z_rest = s.of("fma", s, -z) + s * rest * 2.0
    cube = z * s
    cube_rest = z.of("fma", s, -cube) + z_rest * s + z * rest
    third = cube * _TWO_THIRDS[0]
    third_rest = cube.of("fma", _TWO_THIRDS[0], -third) + cube_rest * _TWO_THIRDS[0] + cube * _TWO_THIRDS[1]
    higher = cube * z * _polynomial(z, [2 / (2 * j + 1) for j in range(2, 14)])
    first, error = _sum(k * _LN2[0], s * 2.0)
    second, error2 = _sum(first, third)
    low = error + error2 + (k * _LN2[1] + (rest * 2.0 + third_rest + higher))
    high = second + low
    return high, low - (high - second)


def _pow(x: Number, y: Number) -> Number:
    emit, size = x.emit, abs(x)
    both = lambda a, b: emit(f"and i1 {a}, {b}")
    either = lambda a, b: emit(f"or i1 {a}, {b}")
    negated = lambda a: emit(f"xor i1 {a}, true")
    high, low = _long_log(size)
    none, endless = size.is_("oeq", 0.0), size.is_("oeq", math.inf)
    high = _where(none, size * 0.0 - math.inf, high)
    high = _where(endless, size, high)
    product = y * high
    rest = y.of("fma", high, -product) + y * low
    usual = abs(product) < 1e4
    found = _exponential(product, _where(usual, rest, 0.0))
    whole = y.of("floor").is_("oeq", y)
    half = y * 0.5
    odd = both(whole, half.of("floor").is_("one", half))
    found = _where(odd, found.of("copysign", x), found)
    refused = both(both(x.is_("olt", 0.0), negated(whole)), x.is_("ogt", -math.inf))
    refused = either(refused, x.is_("uno", y))
    found = _where(negated(refused), found, math.nan)
    one = either(x.is_("oeq", 1.0), y.is_("oeq", 0.0))
    one = either(one, both(size.is_("oeq", 1.0), abs(y).is_("oeq", math.inf)))
    return _where(negated(one), found, 1.0)


def _fmod(x: Number, y: Number) -> Number:
    """The remainder, exact while x / y is below 2^52."""
    a, b = abs(x), abs(y)
    rest = (-(a / b).of("floor")).of("fma", b, a)
    rest = _where(rest.is_("olt", 0.0), rest + b, rest)
    rest = _where(rest.is_("oge", b), rest - b, rest)
    rest = _where(a.is_("olt", b), a, rest)  # also where y is infinite
    return rest.of("copysign", x)


_WRITTEN: dict[str, Callable[..., Number]] = {
    "exp": _exp, "exp2": _exp2, "expm1": _expm1, "log": _log, "pow": _pow, "fmod": _fmod,
}  # fmt: skip
OPERANDS = {name: 2 if name in ("pow", "fmod") else 1 for name in _WRITTEN}
"""The functions, and how many operands each takes."""


def primitive(name: str) -> str:
    """The text of a function of float64."""
    emit = Emitter(_Exact(), {}, set())
    given = ("%x", "%y")[: OPERANDS[name]]
    value = _WRITTEN[name](*(Number(emit, x) for x in given))
    params, lines = ", ".join(f"double {x}" for x in given), "\n".join(emit.lines)
    return f"define internal double @{name}({params}) {{\n{lines}\n  ret double {value.name}\n}}"
