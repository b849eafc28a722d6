"""Programs of scalars as kernels of a GPU: each thread computes members, one after the other."""

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from ..._misc._garbage import undisturbed
from .._gpu._call import call_kernel, ptx, writes_ptx
from .._gpu._primitive_functions import ENTRY, OPERANDS, arithmetic, primitive
from .._trigonometry import polynomial
from ._builder import Builder
from ._instructions import ArrayOperand
from ._llvm import write_function, write_scalar_function
from ._moves import fill_array
from ._nodes import Node
from ._thread import WARP, WORD, GpuThread
from ._trace import Interpreter

# --- The functions of C that programs call, for a GPU: some as arithmetic (`_primitive_functions`), the others of those
#
# These are written in JAX and become functions of LLVM as programs do.

# As fdlibm has it (s_atan.c): of four intervals the middle and its arc tangent, in two parts, and a series.
_MIDDLES = 0.5, 1.0, 1.5
_ENDS = 7 / 16, 11 / 16, 19 / 16, 39 / 16
_AT_MIDDLES = 4.63647609000806093515e-01, 7.85398163397448278999e-01, 9.82793723247329054082e-01, math.pi / 2
_BELOW = (
    2.26987774529616870924e-17,
    3.06161699786838301793e-17,
    1.39033110312309984516e-17,
    6.12323399573676603587e-17,
)
_ATAN = (
    3.33333333333329318027e-01, -1.99999999998764832476e-01, 1.42857142725034663711e-01, -1.11111104054623557880e-01,
    9.09088713343650656196e-02, -7.69187620504482999495e-02, 6.66107313738753120669e-02, -5.83357013379057348645e-02,
    4.97687799461593236017e-02, -3.65315727442169155270e-02, 1.62858201153657823623e-02,
)  # fmt: skip

# erf x = x + x P(x^2) up to 1, and erfc x = exp(-x^2) Q(t) / (1 + 2 x), t = (x - 4) / (x + 4), from 1/2 to 28, where it
# is below the least number: polynomials through the values at Chebyshev's points, of relative error 1e-17.
_ERF = (
    0.12837916709551256, -0.37612638903183543, 0.11283791670945006, -0.02686617064323777, 0.0052239776071164225,
    -0.0008548325975389692, 0.00012055294904839707, -1.492473690741966e-05, 1.6447424703317362e-06,
    -1.6208483801871705e-07, 1.3720064546777686e-08, -7.795898827002142e-10,
)  # fmt: skip
_ERFC = (
    1.2329951186255526, -0.13962111684056253, 0.015379652102619027, 0.0680970542546948, -0.10103906603625375,
    0.09373283499828751, -0.06633036581360713, 0.03716751553818893, -0.01619773403826592, 0.0050319699756138135,
    -0.0007577734486762808, -0.00019925671345040716, 0.00015062249512264785, -2.4398983809134553e-05,
    -1.12247322473501e-05, 5.7086428044048145e-06, 2.9955790685567077e-07, -8.22559563206072e-07,
    6.702452833728971e-08, 1.0568025135820959e-07, -1.2224048303152388e-08, -1.0476718674668371e-08,
)  # fmt: skip

_LARGE = 709.0  # exp of more may be infinite


def _is_negative(x: Array) -> Array:
    """Zeros have a sign too."""
    return (x < 0) | ((x == 0) & (1 / x < 0))


def _copy_sign(size: Array, like: Array) -> Array:
    return jnp.where(_is_negative(like), -size, size)


def _atan(x: Array) -> Array:
    a = abs(x)
    above, below, part, rest = -1.0, a, _AT_MIDDLES[3], _BELOW[3]
    for middle, end, at, small in reversed(list(zip(_MIDDLES, _ENDS[1:], _AT_MIDDLES, _BELOW, strict=False))):
        near = a < end
        above, below = jnp.where(near, a - middle, above), jnp.where(near, 1 + middle * a, below)
        part, rest = jnp.where(near, at, part), jnp.where(near, small, rest)
    near = a < _ENDS[0]
    above, below = jnp.where(near, a, above), jnp.where(near, 1.0, below)
    part, rest = jnp.where(near, 0.0, part), jnp.where(near, 0.0, rest)
    r = above / below
    z = r * r
    return _copy_sign(part - ((r * z * polynomial(z, _ATAN) - rest) - r), x)


def _atan2(y: Array, x: Array) -> Array:
    a, b = abs(y), abs(x)
    ratio = jnp.where(a == b, jnp.where(a == 0, 0.0, 1.0), a / b)
    angle = lax.atan(ratio)
    angle = jnp.where(_is_negative(x), math.pi - (angle - 2 * _BELOW[3]), angle)
    return _copy_sign(jnp.where(jnp.isnan(x) | jnp.isnan(y), jnp.nan, angle), y)


def _tanh(x: Array) -> Array:
    a = abs(x)
    e = lax.expm1(jnp.where(a < 1, -2 * a, 2 * a))
    return _copy_sign(jnp.where(a < 1, -e / (e + 2), 1 - 2 / (e + 2)), x)


def _sinh(x: Array) -> Array:
    a = abs(x)
    e, root = lax.expm1(a), lax.exp(0.5 * a)
    return _copy_sign(jnp.where(a < _LARGE, 0.5 * (e + e / (e + 1)), 0.5 * root * root), x)


def _cosh(x: Array) -> Array:
    e, root = lax.exp(abs(x)), lax.exp(0.5 * abs(x))
    return jnp.where(abs(x) < _LARGE, 0.5 * e + 0.5 / e, 0.5 * root * root)


def _log1p(x: Array) -> Array:
    one = 1 + x
    rest = jnp.where((one > 0) & (one < jnp.inf), (x - (one - 1)) / one, 0.0)
    return jnp.where(x == 0, x, lax.log(one) + rest)


def _asinh(x: Array) -> Array:
    a = abs(x)
    usual = lax.log1p(a + a * a / (1 + lax.sqrt(a * a + 1)))
    return _copy_sign(jnp.where(a < 2.0**28, usual, lax.log(a) + math.log(2)), x)


def _acosh(x: Array) -> Array:
    above = x - 1
    usual = lax.log1p(above + lax.sqrt(2 * above + above * above))
    return jnp.where(x < 2.0**28, usual, lax.log(x) + math.log(2))


def _atanh(x: Array) -> Array:
    a = abs(x)
    return _copy_sign(0.5 * lax.log1p(2 * a / (1 - a)), x)


def _cbrt(x: Array) -> Array:
    a = abs(x)
    y = lax.pow(a, jnp.asarray(1 / 3, a.dtype))
    y = y - (y * y * y - a) / (3 * y * y)  # a step of Newton's: a third is not exact
    return jnp.where((x == 0) | (a == jnp.inf), x, _copy_sign(y, x))


def _far_erfc(x: Array) -> Array:
    """erfc from 1/2 on."""
    x = jnp.minimum(jnp.maximum(x, 0.5), 28.0)
    high = x.astype(jnp.float32).astype(x.dtype)  # whose square is exact
    exponential = lax.exp(-high * high) * lax.exp(-(x - high) * (x + high))
    return exponential * polynomial((x - 4) / (x + 4), _ERFC) / (1 + 2 * x)


def _near_erf(x: Array) -> Array:
    """erf up to 1."""
    return x + x * polynomial(x * x, _ERF)


def _erf(x: Array) -> Array:
    return jnp.where(abs(x) < 1, _near_erf(x), _copy_sign(1 - _far_erfc(abs(x)), x))


def _erfc(x: Array) -> Array:
    far = _far_erfc(abs(x))
    return jnp.where(abs(x) < 0.5, 1 - _near_erf(x), jnp.where(x < 0, 2 - far, far))


def _compute_other_leg(x: Array) -> Array:
    return lax.sqrt((1 - x) * (1 + x))


_COMPOSED: dict[str, Callable[..., Array]] = {
    "atan": _atan, "atan2": _atan2, "tanh": _tanh, "sinh": _sinh, "cosh": _cosh, "log1p": _log1p, "asinh": _asinh,
    "acosh": _acosh, "atanh": _atanh, "cbrt": _cbrt, "tan": lambda x: lax.sin(x) / lax.cos(x),
    "asin": lambda x: lax.atan2(x, _compute_other_leg(x)), "acos": lambda x: lax.atan2(_compute_other_leg(x), x),
    "erf": _erf, "erfc": _erfc,
}  # fmt: skip


def is_known(name: str) -> bool:
    """Whether a function of C can be computed on a GPU."""
    return name in _COMPOSED or name in OPERANDS or (name[-1] == "f" and is_known(name[:-1]))


@functools.cache
def _write_definition(name: str) -> tuple[str, frozenset[str]]:
    """The text of a function, and those that it calls."""
    count = 2 if name == "atan2" else 1
    build = Builder()
    params = [build.parameter(build.top, "float64") for _ in range(count)]
    with jax.enable_x64(True):
        closed = jax.make_jaxpr(_COMPOSED[name])(*[jax.ShapeDtypeStruct((), jnp.float64)] * count)
        inputs = [fill_array((), [x]) for x in params]
        (output,) = Interpreter(build).run(closed.jaxpr, closed.consts, inputs)
    return write_scalar_function(name, params, output.item(), GpuThread())  # pyright: ignore[reportAttributeAccessIssue]


def definitions(names: Iterable[str]) -> str:
    """The functions of C of these names, and those that they need."""
    texts, waiting = dict[str, str](), list(names)
    while waiting:
        name = waiting.pop()
        if name in texts:
            continue
        if name in OPERANDS:
            texts[name] = primitive(name)
        elif name in _COMPOSED:
            texts[name], needed = _write_definition(name)
            waiting += needed
        else:
            texts[name] = _write_float32_wrapper(name)
            waiting.append(name[:-1])
    return "\n".join(texts.values())


def _write_float32_wrapper(name: str) -> str:
    """A function of float32, by that of float64."""
    count = 2 if name[:-1] in ("atan2", "pow", "fmod") else 1
    wide = [f"  %w{i} = fpext float %x{i} to double" for i in range(count)]
    given = ", ".join(f"double %w{i}" for i in range(count))
    body = [*wide, f"  %y = call double @{name[:-1]}({given})", "  %r = fptrunc double %y to float"]
    lines, taken = "\n".join(body), ", ".join(f"float %x{i}" for i in range(count))
    return f"define internal float @{name}({taken}) {{\n{lines}\n  ret float %r\n}}"


# --- Kernels


# With 255 registers a thread, as many as the largest card holds at a time. Where each has memory, more would wait for it.
_MOST_THREADS = 1 << 15
_GROWING_BYTES = (
    1 << 32
)  # for what grows, of all threads; a card on which float64 is worth while has several times that
_MOST_WORDS = 1 << 23  # of it for one thread
# Bytes of a thread's stack. A card keeps it for all threads that it can hold, an H100 some 9 GB; what is larger is in
# XLA's memory, for the threads that there are.
_MOST_STACK = 1 << 15


@final
class Kernel:
    """A program for a GPU. See `write_function` for what it is made of."""

    @undisturbed
    def __init__(
        self,
        outputs: Sequence[Any],
        operands: Sequence[ArrayOperand],
        results: Sequence[ArrayOperand],
        params: Sequence[Node],
    ):
        self._operands, self._results = operands, results
        for apart in (1, WARP):
            self._thread = GpuThread(apart)
            self._compute, self._called = write_function(outputs, operands, results, params, self._thread)
            if self._thread.stack <= _MOST_STACK:
                break

    @functools.cached_property
    def exists(self) -> bool:
        """Whether LLVM can write it: of functions that are known here."""
        return writes_ptx() and all(map(is_known, self._called))

    @functools.cached_property
    def ptx(self) -> str:
        """The kernel in PTX."""
        return ptx(self._text("gpu"))

    @property
    def host_text(self) -> str:
        """The same for this host: a function of the same parameters that runs one thread after the other."""
        return self._text("host")

    def _text(self, where: str) -> str:
        inputs = [f"%in{i}" for i in range(len(self._operands))]
        outputs = [f"%out{i}" for i in range(len(self._results))]
        written = [*outputs, *(["%memory"] if self._has_memory else [])]
        taken = ", ".join(
            [
                *(f"ptr noalias readonly {x}" for x in (*inputs, "%sizes")),
                *(f"ptr noalias {x}" for x in written),
            ]
        )
        sizes = "\n".join(
            f"""  %{name}.place = getelementptr i32, ptr %sizes, i64 {i}
  %{name}.short = load i32, ptr %{name}.place
  %{name} = zext i32 %{name}.short to i64"""
            for i, name in enumerate(("count", "threads", "words"))
        )
        memory = "%memory" if self._has_memory else "null"
        given = [f"i64 %thread, i64 %threads, i64 %words, ptr {memory}, i64 %count"]
        given += [f"ptr {x}" for x in (*outputs, *inputs)]
        frame = (_GPU if where == "gpu" else _HOST).format(
            entry=ENTRY, taken=taken, sizes=sizes, compute=f"call void @compute({', '.join(given)})"
        )
        compute = self._compute.replace("define void @compute(", "define internal void @compute(")
        return "\n".join([compute, definitions(self._called), arithmetic(where), frame])

    @property
    def _has_memory(self) -> bool:
        return self._thread.grows or self._thread.bytes > 0

    def sizes(self, members: int) -> tuple[int, int, int]:
        """For so many members, that number, how many threads, and how many words each has for growing arrays."""
        threads = min(members, _MOST_THREADS) if self._has_memory else members
        words = min(_GROWING_BYTES // WORD // threads, _MOST_WORDS) if self._thread.grows else 0
        return members, threads, words

    def shapes(self, members: int) -> list[Any]:
        """Of its results for so many members, and of the memory of all threads."""
        _, threads, words = self.sizes(members)
        shapes = [jax.ShapeDtypeStruct((x.size, members), np.dtype(x.type)) for x in self._results]
        room = -(-threads // WARP) * WARP * self._thread.bytes + threads * words * WORD
        return [*shapes, *([jax.ShapeDtypeStruct((room,), np.uint8)] if self._has_memory else [])]

    def __call__(self, operands: Sequence[Array], members: int) -> list[Array]:
        """Its results, each (entries, members), of operands (entries, members), or (entries,) of those that all share."""
        sizes = self.sizes(members)
        given = [*operands, jnp.asarray(np.array(sizes, np.int32))]
        return call_kernel(self.ptx, given, self.shapes(members), sizes[1])[: len(self._results)]


_GPU = """declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
define ptx_kernel void @{entry}({taken}) {{
{sizes}
  %own = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %block = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %all = call i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
  %before = mul i32 %block, %all
  %short = add i32 %before, %own
  %thread = zext i32 %short to i64
  %exists = icmp ult i64 %thread, %threads
  br i1 %exists, label %begin, label %end
begin:
  {compute} alwaysinline
  br label %end
end:
  ret void
}}"""
_HOST = """define void @{entry}({taken}) {{
{sizes}
  br label %next
next:
  %thread = phi i64 [0, %0], [%after, %next]
  {compute} alwaysinline
  %after = add i64 %thread, 1
  %more = icmp ult i64 %after, %threads
  br i1 %more, label %next, label %end
end:
  ret void
}}"""
