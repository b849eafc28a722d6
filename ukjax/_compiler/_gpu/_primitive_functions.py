"""exp, log, pow and others as LLVM functions of float64: arithmetic and moves of bits alone, as a GPU has no C library.

exp and log reduce their argument as fdlibm does (e_exp.c, e_log.c); pow has its logarithm as an unevaluated sum of two
numbers, so that its error stays near one unit in the last place wherever it does not overflow.
"""

import math
import struct
from collections.abc import Callable, Sequence
from typing import final

import numpy as np

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


@final
class _Writer:
    """The instructions of one function, in order."""

    def __init__(self) -> None:
        self.lines = list[str]()

    def __call__(self, instruction: str) -> str:
        self.lines.append(f"  %v{len(self.lines)} = {instruction}")
        return f"%v{len(self.lines) - 1}"

    def apply(self, operation: str, kind: str, x: str, y: str | int) -> str:
        return self(f"{operation} {kind} {x}, {y}")


@final
class _Number:
    """A number while a function is written; an operation on it writes an instruction. Nothing is contracted."""

    def __init__(self, w: _Writer, name: str):
        self.w, self.name = w, name

    def _of(self, x: "_Number | float") -> str:
        return x.name if isinstance(x, _Number) else literal(x)

    def _apply(self, operation: str, x: "_Number | float", y: "_Number | float") -> "_Number":
        return _Number(self.w, self.w.apply(operation, "double", self._of(x), self._of(y)))

    def __add__(self, y: "_Number | float") -> "_Number":
        return self._apply("fadd", self, y)

    def __sub__(self, y: "_Number | float") -> "_Number":
        return self._apply("fsub", self, y)

    def __rsub__(self, y: float) -> "_Number":
        return self._apply("fsub", y, self)

    def __mul__(self, y: "_Number | float") -> "_Number":
        return self._apply("fmul", self, y)

    def __truediv__(self, y: "_Number | float") -> "_Number":
        return _Number(
            self.w, self.w(f"call double @quotient(double {self._of(self)}, double {self._of(y)})")
        )

    def __neg__(self) -> "_Number":
        return _Number(self.w, self.w(f"fneg double {self.name}"))

    def is_(self, how: str, y: "_Number | float") -> str:
        """A comparison: olt, oeq and so on."""
        return self.w.apply(f"fcmp {how}", "double", self.name, self._of(y))

    def where(self, which: str, otherwise: "_Number | float") -> "_Number":
        """This number where a truth holds."""
        given = f"double {self.name}, double {self._of(otherwise)}"
        return _Number(self.w, self.w(f"select i1 {which}, {given}"))

    def times_plus(self, y: "_Number | float", z: "_Number | float") -> "_Number":
        """x y + z, rounded once."""
        return self._intrinsic("fma", self, y, z)

    def of(self, name: str) -> "_Number":
        """fabs, floor and so on."""
        return self._intrinsic(name, self)

    def _intrinsic(self, name: str, *given: "_Number | float") -> "_Number":
        listed = ", ".join(f"double {self._of(x)}" for x in given)
        return _Number(self.w, self.w(f"call double @llvm.{name}.f64({listed})"))

    def bits(self) -> str:
        """As an integer."""
        return self.w(f"bitcast double {self.name} to i64")


def _from_bits(w: _Writer, bits: str) -> _Number:
    return _Number(w, w(f"bitcast i64 {bits} to double"))


def _polynomial(x: _Number, coefficients: Sequence[float]) -> _Number:
    value: _Number | float = coefficients[-1]
    for c in coefficients[-2::-1]:
        value = x.times_plus(value, c)
    assert isinstance(value, _Number)
    return value


def _power_of_two(n: _Number) -> _Number:
    """2^n of a whole number from -1022 to 1023."""
    w = n.w
    whole = w.apply("add", "i64", w(f"fptosi double {n.name} to i64"), 1023)
    return _from_bits(w, w.apply("shl", "i64", whole, 52))


def _clamp(x: _Number, bound: float) -> _Number:
    """x moved to between -bound and bound, where NaN goes too."""
    x = x.where(x.is_("olt", bound), bound)
    return x.where(x.is_("ogt", -bound), -bound)


def _reduce_argument(x: _Number) -> tuple[_Number, _Number]:
    """A whole number n and the rest r of x = n ln 2 + r."""
    n = _clamp((x * (1 / math.log(2)) + 0.5).of("floor"), 1100.0)
    return n, n.times_plus(-_LN2[1], n.times_plus(-_LN2[0], x))


def _less_one(r: _Number) -> _Number:
    """exp r - 1 of a small number."""
    rest = _polynomial(r, [1 / math.factorial(k) for k in range(2, _TERMS + 1)])
    return (r * r).times_plus(rest, r)


def _exponential(x: _Number, further: _Number | None = None) -> _Number:
    """exp of x, or of x and a number that is small beside it."""
    n, r = _reduce_argument(x)
    found = _less_one(r if further is None else r + further) + 1.0
    half = (n * 0.5).of("floor")
    found = found * _power_of_two(half) * _power_of_two(n - half)
    found = found.where(x.is_("ule", _LARGEST), math.inf)
    return found.where(x.is_("uge", _LEAST), 0.0)


def _exp(x: _Number) -> _Number:
    return _exponential(x)


def _exp2(x: _Number) -> _Number:
    n = _clamp((x + 0.5).of("floor"), 1100.0)
    half = (n * 0.5).of("floor")
    found = (_less_one((x - n) * math.log(2)) + 1.0) * _power_of_two(half) * _power_of_two(n - half)
    found = found.where(x.is_("ult", 1024.0), math.inf)
    return found.where(x.is_("uge", -1075.0), 0.0)


def _expm1(x: _Number) -> _Number:
    n, r = _reduce_argument(_clamp(x, 100.0))
    power = _power_of_two(n)
    found = power.times_plus(_less_one(r), power - 1.0)
    found = found.where(x.is_("olt", 40.0), _exponential(x))  # NaN too
    return found.where(x.is_("uge", -40.0), -1.0)


def _split_exponent(x: _Number) -> tuple[_Number, _Number]:
    """An exponent k and m from sqrt(1/2) to sqrt(2), of a positive number x = 2^k m."""
    w = x.w
    tiny = x.is_("olt", 2.2250738585072014e-308)
    bits = (x * 2.0**54).where(tiny, x).bits()
    middle = int(np.float64(math.sqrt(0.5)).view(np.int64))
    k = w.apply("ashr", "i64", w.apply("sub", "i64", bits, middle), 52)
    m = _from_bits(w, w.apply("sub", "i64", bits, w.apply("shl", "i64", k, 52)))
    exponent = _Number(w, w(f"sitofp i64 {k} to double"))
    return (exponent - 54.0).where(tiny, exponent), m


def _log(x: _Number) -> _Number:
    k, m = _split_exponent(x)
    f = m - 1.0
    s = f / (f + 2.0)
    z, half = s * s, f * f * 0.5
    sum_ = s * (half + z * _polynomial(z, _LOG)) + k * _LN2[1]
    found = k * _LN2[0] - ((half - sum_) - f)
    found = found.where(x.is_("one", math.inf), x)
    found = found.where(x.is_("one", 0.0), -math.inf)
    return found.where(x.is_("oge", 0.0), math.nan)


def _sum(x: _Number, y: _Number) -> tuple[_Number, _Number]:
    """x + y and its rounding error."""
    total = x + y
    of_y = total - x
    return total, (x - (total - of_y)) + (y - of_y)


def _long_log(x: _Number) -> tuple[_Number, _Number]:
    """log x of a positive number, as a sum of two."""
    k, m = _split_exponent(x)
    f, below = m - 1.0, m + 1.0
    s = f / below
    rest = ((-s).times_plus(below, f) - s * (m - (below - 1.0))) / below
    z = s * s
    z_rest = s.times_plus(s, -z) + s * rest * 2.0
    cube = z * s
    cube_rest = z.times_plus(s, -cube) + z_rest * s + z * rest
    third = cube * _TWO_THIRDS[0]
    third_rest = cube.times_plus(_TWO_THIRDS[0], -third) + cube_rest * _TWO_THIRDS[0] + cube * _TWO_THIRDS[1]
    higher = cube * z * _polynomial(z, [2 / (2 * j + 1) for j in range(2, 14)])
    first, error = _sum(k * _LN2[0], s * 2.0)
    second, error2 = _sum(first, third)
    low = error + error2 + (k * _LN2[1] + (rest * 2.0 + third_rest + higher))
    high = second + low
    return high, low - (high - second)


def _pow(x: _Number, y: _Number) -> _Number:
    w, size = x.w, x.of("fabs")
    both = lambda a, b: w.apply("and", "i1", a, b)
    either = lambda a, b: w.apply("or", "i1", a, b)
    high, low = _long_log(size)
    none, endless = size.is_("oeq", 0.0), size.is_("oeq", math.inf)
    high = (size * 0.0 - math.inf).where(none, high)
    high = size.where(endless, high)
    product = y * high
    rest = y.times_plus(high, -product) + y * low
    usual = product.of("fabs").is_("olt", 1e4)
    found = _exponential(product, rest.where(usual, 0.0))
    whole = y.of("floor").is_("oeq", y)
    half = y * 0.5
    odd = both(whole, half.of("floor").is_("one", half))
    copied = _Number(w, w(f"call double @llvm.copysign.f64(double {found.name}, double {x.name})"))
    found = copied.where(odd, found)
    refused = both(both(x.is_("olt", 0.0), w.apply("xor", "i1", whole, "true")), x.is_("ogt", -math.inf))
    refused = either(refused, w.apply("fcmp uno", "double", x.name, y.name))
    found = found.where(w.apply("xor", "i1", refused, "true"), math.nan)
    one = either(x.is_("oeq", 1.0), y.is_("oeq", 0.0))
    one = either(one, both(size.is_("oeq", 1.0), y.of("fabs").is_("oeq", math.inf)))
    return found.where(w.apply("xor", "i1", one, "true"), 1.0)


def _fmod(x: _Number, y: _Number) -> _Number:
    """The remainder, exact while x / y is below 2^52."""
    a, b = x.of("fabs"), y.of("fabs")
    rest = (-(a / b).of("floor")).times_plus(b, a)
    rest = (rest + b).where(rest.is_("olt", 0.0), rest)
    rest = (rest - b).where(rest.is_("oge", b), rest)
    rest = a.where(a.is_("olt", b), rest)  # also where y is infinite
    w = x.w
    return _Number(w, w(f"call double @llvm.copysign.f64(double {rest.name}, double {x.name})"))


_WRITTEN: dict[str, Callable[..., _Number]] = {
    "exp": _exp, "exp2": _exp2, "expm1": _expm1, "log": _log, "pow": _pow, "fmod": _fmod,
}  # fmt: skip
OPERANDS = {name: 2 if name in ("pow", "fmod") else 1 for name in _WRITTEN}
"""The functions, and how many operands each takes."""


def primitive(name: str) -> str:
    """The text of a function of float64."""
    w = _Writer()
    given = ("%x", "%y")[: OPERANDS[name]]
    value = _WRITTEN[name](*(_Number(w, x) for x in given))
    params, lines = ", ".join(f"double {x}" for x in given), "\n".join(w.lines)
    return f"define internal double @{name}({params}) {{\n{lines}\n  ret double {value.name}\n}}"
