"""Arrays whose entries are more than one number, complex numbers and JAX's random keys, as arrays of numbers.

A jaxpr that computes with such arrays is traced once more: with two arrays of real numbers in place of a complex one, and
with its words in place of a key. What is traced so is an ordinary program, and so are its derivatives.

Formulas of complex functions are W. Kahan's where cancellation or a branch cut matters ("Branch cuts for complex
elementary functions", 1987).
"""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core
from jax.extend.random import threefry_prng_impl

from ..._misc._errors import Untranslatable
from ._jaxprs import (
    INLINED,
    SCATTERS,
    core_jaxpr,
    count_scanned,
    function_of,
    line_of,
    live_equations,
    solve_within,
    weakly_cached,
    while_of_members,
)
from ._moves import MOVES
from ._replacements import REPLACEMENTS


class Complex(NamedTuple):
    """An array of complex numbers."""

    real: Any
    imag: Any

    def map(self, fn: Callable[..., Any], *others: Any) -> "Complex":
        """A function of real arrays, of both parts."""
        of = lambda part: fn(getattr(self, part), *(getattr(x, part) for x in others))
        return Complex(of("real"), of("imag"))


class Keys(NamedTuple):
    """An array of keys, by their words along the last axis."""

    data: Any


Value = Any
"""An array, `Complex` or `Keys`."""

_THREEFRY = "key<fry>"


@functools.cache  # to ask takes long
def _is_complex(dtype: Any) -> bool:
    return jnp.issubdtype(dtype, jnp.complexfloating)


@functools.cache
def _is_key(dtype: Any) -> bool:
    return str(dtype) == _THREEFRY


def is_compound(aval: Any) -> bool:
    """Whether an entry of an array is several numbers."""
    dtype = getattr(aval, "dtype", None)
    return _is_complex(dtype) or _is_key(dtype)


def parts_of(aval: Any) -> list[jax.ShapeDtypeStruct]:
    """The arrays that stand for one."""
    if _is_complex(aval.dtype):
        return [jax.ShapeDtypeStruct(aval.shape, jnp.finfo(aval.dtype).dtype)] * 2
    if _is_key(aval.dtype):
        return [jax.ShapeDtypeStruct((*aval.shape, *threefry_prng_impl.key_shape), np.uint32)]
    return [aval]


def divide(x: Any) -> list[Any]:
    """The arrays that stand for one given, or for a value."""
    if isinstance(x, Complex | Keys):
        return list(x)
    dtype = jax.typeof(x).dtype
    if _is_complex(dtype):
        xp: Any = np if isinstance(x, np.ndarray | np.generic | complex) else jnp
        return [xp.real(x), xp.imag(x)]
    return [jax.random.key_data(x)] if _is_key(dtype) else [x]


def unite(dtypes: Sequence[Any], parts: Sequence[Any], *, as_arrays: bool = True) -> list[Any]:
    """Arrays of some types from those that stand for them; or values."""
    left, found = iter(parts), list[Any]()
    for dtype in dtypes:
        if _is_complex(dtype):
            pair = next(left), next(left)
            found.append(lax.complex(*pair) if as_arrays else Complex(*pair))
        elif _is_key(dtype):
            words = next(left)
            found.append(jax.random.wrap_key_data(words, impl="threefry2x32") if as_arrays else Keys(words))
        else:
            found.append(next(left))
    return found


@weakly_cached
def computes_compounds(jaxpr: Any) -> bool:
    """Whether operations of a jaxpr, those of its functions left aside, take or give such arrays."""
    variables = itertools.chain(
        jaxpr.constvars, jaxpr.invars, *((*e.invars, *e.outvars) for e in jaxpr.eqns), jaxpr.outvars
    )
    return any(is_compound(v.aval) for v in variables)


@weakly_cached
def in_parts(jaxpr: Any) -> Any:
    """A jaxpr that takes and gives what stands for such arrays, its constants before its inputs."""
    avals = [v.aval for v in (*jaxpr.constvars, *jaxpr.invars)]

    def run(*parts: Any) -> list[Any]:
        found = _evaluate(jaxpr, unite([x.dtype for x in avals], parts, as_arrays=False))
        return [part for x in found for part in divide(x)]

    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        return jax.make_jaxpr(run)(*(part for aval in avals for part in parts_of(aval)))


def close_in_parts(closed: Any) -> Any:
    """A closed jaxpr that takes and gives what stands for such arrays; the same if it has none."""
    if not computes_compounds(closed.jaxpr):
        return closed
    function = core.jaxpr_as_fun(in_parts(closed.jaxpr))
    consts = [part for x in closed.consts for part in divide(x)]
    inputs = [part for aval in closed.in_avals for part in parts_of(aval)]
    return jax.make_jaxpr(lambda *given: function(*consts, *given))(*inputs)


def _literal(x: Any) -> Value:
    return Complex(*divide(np.asarray(x.val))) if is_compound(x.aval) else x.val


def _evaluate(jaxpr: Any, inputs: Sequence[Value]) -> list[Value]:
    """The outputs of a jaxpr, given its constants and its inputs."""
    values = dict(zip((*jaxpr.constvars, *jaxpr.invars), inputs, strict=True))

    def read(x: Any) -> Value:
        return _literal(x) if isinstance(x, core.Literal) else values[x]

    for e in live_equations(jaxpr, jaxpr.outvars):
        given = [read(x) for x in e.invars]
        try:
            if any(is_compound(v.aval) for v in (*e.invars, *e.outvars)):
                found = _apply(e, given, jaxpr.debug_info)
            else:
                found = function_of(e, jaxpr.debug_info)(*_known_once(e, given)[1])
        except Untranslatable as error:
            error.at = error.at or line_of(e)
            raise
        values.update(zip(e.outvars, found, strict=True))
    return [read(x) for x in jaxpr.outvars]


def _evaluate_closed(closed: Any, inputs: Sequence[Value]) -> list[Value]:
    consts = getattr(closed, "consts", ())
    parts = [part for x in consts for part in divide(x)]
    known = unite([jax.typeof(x).dtype for x in consts], parts, as_arrays=False)
    return _evaluate(core_jaxpr(closed), [*known, *inputs])


def _known_once(e: Any, inputs: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The operands of an equation that are no numbers, each once, and what they are."""
    given = {v: x for v, x in zip(e.invars, inputs, strict=True) if not isinstance(v, core.Literal)}
    return list(given), list(given.values())


def _call_with_rule(e: Any, inputs: list[Value], debug_info: Any) -> list[Value]:
    """The outputs of a function whose author gave its derivative (jax.custom_jvp), which stays that."""
    (variables, values), whole = _known_once(e, inputs), function_of(e, debug_info)
    dtypes, called = [v.aval.dtype for v in variables], e.params["call_jaxpr"]
    flat = lambda values: [part for x in values for part in divide(x)]

    @jax.custom_jvp
    def call(*parts: Any) -> list[Any]:
        known = dict(zip(variables, unite(dtypes, parts, as_arrays=False), strict=True))
        given = [_literal(v) if isinstance(v, core.Literal) else known[v] for v in e.invars]
        return flat(_evaluate_closed(called, given))

    @call.defjvp
    def _(parts: Any, changes: Any) -> Any:
        return jax.jvp(lambda *parts: flat(whole(*unite(dtypes, parts))), parts, changes)

    return unite([v.aval.dtype for v in e.outvars], call(*flat(values)), as_arrays=False)


def _apply(e: Any, inputs: list[Value], debug_info: Any) -> list[Value]:
    """The outputs of an equation with such arrays."""
    name, p = e.primitive.name, e.params
    if name in INLINED:
        return _evaluate_closed(p.get("jaxpr") or p.get("call_jaxpr"), inputs)
    if name == "custom_jvp_call":
        return _call_with_rule(e, inputs, debug_info)
    if name == "custom_linear_solve":
        return _evaluate_closed(*solve_within(e, inputs))
    if name in _CONTROL:
        return _CONTROL[name](e, inputs)
    keys = any(_is_key(v.aval.dtype) for v in (*e.invars, *e.outvars))
    rules = _OF_KEYS if keys else _OF_COMPLEX
    if name in rules:
        return [rules[name](e, *inputs)]
    if name in SCATTERS:
        return [_scatter(e, *inputs)]
    if name in MOVES or name in _MOVED:
        return _move(e, inputs)
    if not keys and name in _FACTORED:
        avals = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in e.invars]
        return _evaluate_closed(jax.make_jaxpr(functools.partial(REPLACEMENTS[name], **p))(*avals), inputs)
    given = any(isinstance(x, Complex | Keys) for x in inputs)
    of = f" of {'random keys' if keys else 'complex numbers'}" if given else ""
    raise Untranslatable(f"'{name}'{of} has no scalar code")


# --- Loops, branches, and what moves entries


def _while(e: Any, inputs: list[Value]) -> list[Value]:
    p = e.params
    if p["cond_jaxpr"].out_avals[0].shape:  # of a `vmap`
        return _evaluate_closed(while_of_members(e), inputs)
    nc, nb = p["cond_nconsts"], p["body_nconsts"]
    of_condition, of_body, first = inputs[:nc], inputs[nc : nc + nb], inputs[nc + nb :]
    goes_on = lambda x: _evaluate_closed(p["cond_jaxpr"], [*of_condition, *x])[0]
    advance = lambda x: _evaluate_closed(p["body_jaxpr"], [*of_body, *x])
    return lax.while_loop(goes_on, advance, jax.tree.map(jnp.asarray, first))


def _scan(e: Any, inputs: list[Value]) -> list[Value]:
    p, (fixed, kept) = e.params, count_scanned(e)
    consts, carry, columns = inputs[:fixed], inputs[fixed : fixed + kept], inputs[fixed + kept :]

    def advance(carry: list[Value], rows: list[Value]) -> tuple[list[Value], list[Value]]:
        found = _evaluate_closed(p["jaxpr"], [*consts, *carry, *rows])
        return found[:kept], found[kept:]

    carry = jax.tree.map(jnp.asarray, carry)
    carry, columns = lax.scan(advance, carry, columns, length=p["length"], reverse=p["reverse"])
    return [*carry, *columns]


def _cond(e: Any, inputs: list[Value]) -> list[Value]:
    branches = [lambda *x, of=branch: _evaluate_closed(of, x) for branch in e.params["branches"]]
    return lax.switch(inputs[0], branches, *jax.tree.map(jnp.asarray, inputs[1:]))


_CONTROL = {"while": _while, "scan": _scan, "cond": _cond}


def _move(e: Any, inputs: list[Value]) -> list[Value]:
    """What an operation that moves entries, or adds them, gives: part by part, or word by word."""

    def bind(*x: Any) -> list[Any]:
        found = e.primitive.bind(*x, **e.params)
        return list(found) if e.primitive.multiple_results else [found]

    if any(isinstance(x, Keys) for x in inputs):
        axes = [-1 if isinstance(x, Keys) else None for x in inputs]
        given = [x.data if isinstance(x, Keys) else x for x in inputs]
        return list(map(Keys, jax.vmap(bind, axes, -1, axis_size=threefry_prng_impl.key_shape[0])(*given)))
    real, imag = (
        bind(*(getattr(x, part) if isinstance(x, Complex) else x for x in inputs))
        for part in ("real", "imag")
    )
    return [Complex(*pair) for pair in zip(real, imag, strict=True)]


_MOVED = frozenset(
    (
        *("add", "sub", "neg", "add_any", "reduce_sum", "cumsum", "select_n", "pad", "gather"),
        *("dynamic_slice", "dynamic_update_slice", "stop_gradient", "optimization_barrier", "sharding_constraint"),
        *("pvary", "device_put"),
    )
)  # fmt: skip

_SCATTER = {
    "scatter": lax.scatter,
    "scatter-add": lax.scatter_add,
    "scatter_add": lax.scatter_add,
    "scatter-sub": lax.scatter_sub,
}


def _scatter(e: Any, x: Complex, places: Any, updates: Complex) -> Complex:
    if e.primitive.name not in _SCATTER or not isinstance(x, Complex):
        raise Untranslatable(f"'{e.primitive.name}' of complex numbers or random keys has no scalar code")
    p = e.params
    options = {name: p[name] for name in ("indices_are_sorted", "unique_indices", "mode")}
    scatter = lambda x, y: _SCATTER[e.primitive.name](x, places, y, p["dimension_numbers"], **options)
    return x.map(scatter, updates)


# --- Random keys


def _map(fn: Callable[..., Any], ndim: int, *arrays: Any) -> Any:
    """A function over all leading axes but the last `ndim` of its first argument."""
    for _ in range(jnp.ndim(arrays[0]) - ndim):
        fn = jax.vmap(fn)
    return fn(*arrays)


def _fold_in(e: Any, keys: Keys, data: Any) -> Keys:
    shape = e.outvars[0].aval.shape
    words = jnp.broadcast_to(keys.data, (*shape, *threefry_prng_impl.key_shape))
    return Keys(_map(threefry_prng_impl.fold_in, 1, words, jnp.broadcast_to(data, shape)))


_OF_KEYS: dict[str, Callable[..., Any]] = {
    "random_seed": lambda e, seeds: Keys(_map(threefry_prng_impl.seed, 0, seeds)),
    "random_wrap": lambda e, data: Keys(data),
    "random_unwrap": lambda e, keys: keys.data,
    "random_clone": lambda e, keys: keys,
    "random_fold_in": _fold_in,
    "random_split": lambda e, keys: Keys(
        _map(lambda key: threefry_prng_impl.split(key, e.params["shape"]), 1, keys.data)
    ),
    "random_bits": lambda e, keys: _map(
        lambda key: threefry_prng_impl.random_bits(key, e.params["bit_width"], e.params["shape"]),
        1,
        keys.data,
    ),
}


# --- Complex numbers


def _multiply(x: Complex, y: Complex, product: Callable[[Any, Any], Any] = jnp.multiply) -> Complex:
    real = product(x.real, y.real) - product(x.imag, y.imag)
    return Complex(real, product(x.real, y.imag) + product(x.imag, y.real))


def _scale(x: Complex, factor: Any) -> Complex:
    return x.map(lambda part: part * factor)


def _conjugate(x: Complex) -> Complex:
    return Complex(x.real, -x.imag)


def _times_i(x: Complex) -> Complex:
    return Complex(-x.imag, x.real)


def _add_number(x: Complex, y: float) -> Complex:
    return Complex(x.real + y, x.imag)


def _divide(x: Complex, y: Complex) -> Complex:
    """By R. L. Smith, "Algorithm 116: complex division", 1962: no square overflows."""
    swaps = jnp.abs(y.real) < jnp.abs(y.imag)
    large, small = jnp.where(swaps, y.imag, y.real), jnp.where(swaps, y.real, y.imag)
    first, second = jnp.where(swaps, x.imag, x.real), jnp.where(swaps, x.real, x.imag)
    ratio = small / large
    divisor = large + small * ratio
    imag = (second - first * ratio) / divisor
    return Complex((first + second * ratio) / divisor, jnp.where(swaps, -imag, imag))


def _absolute(x: Complex) -> Any:
    """Without a square that overflows; its derivative at zero is zero, as JAX has it."""
    large, small = (f(jnp.abs(x.real), jnp.abs(x.imag)) for f in (jnp.maximum, jnp.minimum))
    none = (large == 0) | jnp.isinf(large)
    ratio = small / jnp.where(none, 1, large)
    return jnp.where(none, lax.stop_gradient(large), large * jnp.sqrt(1 + ratio * ratio))


def _angle(x: Complex) -> Any:
    return jnp.arctan2(x.imag, x.real)


def _exp(x: Complex) -> Complex:
    size = jnp.exp(x.real)
    return Complex(size * jnp.cos(x.imag), size * jnp.sin(x.imag))


def _log(x: Complex) -> Complex:
    """Near the unit circle by what the square is off 1."""
    large, small = (f(jnp.abs(x.real), jnp.abs(x.imag)) for f in (jnp.maximum, jnp.minimum))
    near = (large > 0.5) & (large < 2)
    off = jnp.where(near, (large - 1) * (large + 1) + small * small, 0)
    far = jnp.where(near, 1, _absolute(x))
    return Complex(jnp.where(near, 0.5 * jnp.log1p(off), jnp.log(far)), _angle(x))


def _log1p(x: Complex) -> Complex:
    near = (jnp.abs(x.real) < 0.5) & (jnp.abs(x.imag) < 0.5)
    off = jnp.where(near, x.real * (2 + x.real) + x.imag * x.imag, 0)
    beside = _add_number(x, 1.0)
    return Complex(jnp.where(near, 0.5 * jnp.log1p(off), _log(beside).real), _angle(beside))


def _expm1(x: Complex) -> Complex:
    half = jnp.sin(0.5 * x.imag)
    return Complex(jnp.expm1(x.real) * jnp.cos(x.imag) - 2 * half * half, jnp.exp(x.real) * jnp.sin(x.imag))


def _sqrt(x: Complex) -> Complex:
    none = (x.real == 0) & (x.imag == 0)
    root = jnp.sqrt(0.5 * (jnp.abs(x.real) + jnp.where(none, 1, _absolute(x))))
    other = jnp.where(none, 0, 0.5 * jnp.abs(x.imag) / root)
    root = jnp.where(none, 0, root)
    real, imag = jnp.where(x.real >= 0, root, other), jnp.where(x.real >= 0, other, root)
    return Complex(real, jnp.where(jnp.signbit(x.imag), -imag, imag))


def _power(x: Complex, y: Complex) -> Complex:
    none = (x.real == 0) & (x.imag == 0)
    base = Complex(jnp.where(none, 1, x.real), x.imag)
    found = _exp(_multiply(y, _log(base)))
    one = (y.real == 0) & (y.imag == 0)
    at_zero = jnp.where(one, jnp.ones_like(x.real), 0)
    return Complex(jnp.where(none, at_zero, found.real), jnp.where(none, 0, found.imag))


def _whole_power(e: Any, x: Complex) -> Complex:
    exponent, found = abs(e.params["y"]), None
    while exponent:
        if exponent % 2:
            found = x if found is None else _multiply(found, x)
        exponent //= 2
        x = _multiply(x, x) if exponent else x
    one = Complex(jnp.ones_like(x.real), jnp.zeros_like(x.real))
    return one if found is None else _divide(one, found) if e.params["y"] < 0 else found


def _sinh(x: Complex) -> Complex:
    return Complex(jnp.sinh(x.real) * jnp.cos(x.imag), jnp.cosh(x.real) * jnp.sin(x.imag))


def _cosh(x: Complex) -> Complex:
    return Complex(jnp.cosh(x.real) * jnp.cos(x.imag), jnp.sinh(x.real) * jnp.sin(x.imag))


def _tanh(x: Complex) -> Complex:
    """By exponentials of the negative size, which do not overflow."""
    less = -jnp.expm1(-2 * jnp.abs(x.real))
    small, cosine, sine = 1 - less, jnp.cos(x.imag), jnp.sin(x.imag)
    divisor = less * less + 4 * small * cosine * cosine  # (cosh 2x + cos 2y) 2 e^(-2 |x|)
    real = jnp.tanh(x.real) * (1 + small) ** 2 / divisor
    return Complex(real, 4 * small * sine * cosine / divisor)


def _along_i(fn: Callable[[Complex], Complex], x: Complex) -> Complex:
    """f(i x) / i, as the circular functions of the hyperbolic ones and the other way round."""
    found = fn(_times_i(x))
    return Complex(found.imag, -found.real)


def _roots_about_one(x: Complex) -> tuple[Complex, Complex]:
    """The roots of 1 - x and 1 + x."""
    return _sqrt(Complex(1 - x.real, -x.imag)), _sqrt(_add_number(x, 1.0))


def _asin(x: Complex) -> Complex:
    less, more = _roots_about_one(x)
    return Complex(
        jnp.arctan2(x.real, _multiply(less, more).real), jnp.arcsinh(_multiply(_conjugate(less), more).imag)
    )


def _acos(x: Complex) -> Complex:
    less, more = _roots_about_one(x)
    imag = jnp.arcsinh(_multiply(_conjugate(more), less).imag)
    return Complex(2 * jnp.arctan2(less.real, more.real), imag)


def _acosh(x: Complex) -> Complex:
    less, more = _sqrt(_add_number(x, -1.0)), _sqrt(_add_number(x, 1.0))
    return Complex(jnp.arcsinh(_multiply(_conjugate(less), more).real), 2 * jnp.arctan2(less.imag, more.real))


def _atanh(x: Complex) -> Complex:
    beside, square = 1 - x.real, x.imag * x.imag
    imag = jnp.arctan2(2 * x.imag, beside * (1 + x.real) - square)
    return Complex(0.25 * jnp.log1p(4 * x.real / (beside * beside + square)), 0.5 * imag)


def _sign(x: Complex) -> Complex:
    none = (x.real == 0) & (x.imag == 0)
    size = jnp.where(none, 1, _absolute(x))
    return x.map(lambda part: part / size)


def _fold(e: Any, x: Complex) -> Complex:
    """The product along axes."""
    axes = e.params["axes"]
    flat = x.map(lambda y: jnp.moveaxis(y, axes, range(-len(axes), 0)).reshape(*e.outvars[0].aval.shape, -1))
    one = Complex(jnp.ones(e.outvars[0].aval.shape, flat.real.dtype), jnp.zeros((), flat.real.dtype))
    rows = [flat.map(lambda y, i=i: y[..., i]) for i in range(flat.real.shape[-1])]
    return functools.reduce(_multiply, rows) if rows else one


def _accumulate(e: Any, x: Complex) -> Complex:
    """The products so far."""
    return lax.associative_scan(_multiply, x, reverse=e.params["reverse"], axis=e.params["axis"])


def _dot(e: Any, x: Complex, y: Complex) -> Complex:
    numbers, precision = e.params["dimension_numbers"], e.params["precision"]
    return _multiply(x, y, lambda a, b: lax.dot_general(a, b, numbers, precision))


def _convert(e: Any, x: Value) -> Value:
    to = e.params["new_dtype"]
    if not _is_complex(to):
        return x.real.astype(to)
    part = jnp.finfo(to).dtype
    if isinstance(x, Complex):
        return x.map(lambda y: y.astype(part))
    x = jnp.asarray(x, part)
    return Complex(x, jnp.zeros_like(x))


def _fft(e: Any, x: Value) -> Value:
    """Fourier transforms along the last axes, by sums over halves as long as lengths are even."""
    kind, lengths = int(e.params["fft_type"]), e.params["fft_lengths"]
    axes = range(-len(lengths), 0)
    if kind == _RFFT:
        x = Complex(x, jnp.zeros_like(x))
    if kind == _IRFFT:  # what is not given is conjugate to what is
        n = lengths[-1]
        for axis in axes[:-1]:
            x = _transform(x, axis, 1.0)
        given = x.map(lambda y: y[..., : n // 2 + 1])
        rest = given.map(lambda y: y[..., 1 : (n + 1) // 2][..., ::-1])
        x = Complex(*(jnp.concatenate(y, -1) for y in zip(given, _conjugate(rest), strict=True)))
        return _transform(x, -1, 1.0).real / math.prod(lengths)
    for axis in axes:
        x = _transform(x, axis, 1.0 if kind == _IFFT else -1.0)
    if kind == _RFFT:
        return x.map(lambda y: y[..., : lengths[-1] // 2 + 1])
    return _scale(x, 1 / math.prod(lengths)) if kind == _IFFT else x


_IFFT, _RFFT, _IRFFT = 1, 2, 3  # of `jax.lax.FftType`


def _transform(x: Complex, axis: int, sign: float) -> Complex:
    """The sums of x_j e^(sign 2 pi i j k / n) along an axis."""
    x = x.map(lambda y: jnp.moveaxis(y, axis, 0))
    return _sum_waves(x, sign).map(lambda y: jnp.moveaxis(y, 0, axis))


def _sum_waves(x: Complex, sign: float) -> Complex:
    n, dtype = len(x.real), x.real.dtype
    if n % 2 or n < 4:
        turns = np.outer(np.arange(n), np.arange(n)) % n * (2 * np.pi / n)
        waves = Complex(np.cos(turns).astype(dtype), sign * np.sin(turns).astype(dtype))
        return _multiply(waves, x, lambda a, b: jnp.tensordot(a, b, 1))
    even, odd = (_sum_waves(x.map(lambda y, k=k: y[k::2]), sign) for k in (0, 1))
    turns = (np.arange(n // 2) * (2 * np.pi / n)).reshape(-1, *[1] * (x.real.ndim - 1))
    odd = _multiply(Complex(np.cos(turns).astype(dtype), sign * np.sin(turns).astype(dtype)), odd)
    both = even.map(jnp.add, odd), even.map(jnp.subtract, odd)
    return both[0].map(lambda *y: jnp.concatenate(y), both[1])


def _of_entries(fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda e, *x: fn(*x)


_ONE = Complex(1.0, 0.0)
_FACTORED = frozenset(("lu", "cholesky", "triangular_solve"))
"""Linear algebra that is written for complex matrices too."""

_OF_COMPLEX: dict[str, Callable[..., Any]] = {
    name: _of_entries(fn)
    for name, fn in {
        "complex": Complex,
        "real": lambda x: x.real,
        "imag": lambda x: x.imag,
        "conj": lambda x: _conjugate(x) if isinstance(x, Complex) else Complex(x, jnp.zeros_like(x)),
        "abs": _absolute,
        "eq": lambda x, y: (x.real == y.real) & (x.imag == y.imag),
        "ne": lambda x, y: (x.real != y.real) | (x.imag != y.imag),
        "mul": _multiply,
        "div": _divide,
        "square": lambda x: _multiply(x, x),
        "sign": _sign,
        "exp": _exp,
        "exp2": lambda x: _exp(_scale(x, math.log(2.0))),
        "expm1": _expm1,
        "log": _log,
        "log1p": _log1p,
        "sqrt": _sqrt,
        "rsqrt": lambda x: _divide(_ONE, _sqrt(x)),
        "pow": lambda x, y: _power(x, y if isinstance(y, Complex) else Complex(y, jnp.zeros_like(x.real))),
        "logistic": lambda x: _divide(_ONE, _add_number(_exp(_scale(x, -1.0)), 1.0)),
        "sinh": _sinh,
        "cosh": _cosh,
        "tanh": _tanh,
        "asinh": lambda x: _along_i(_asin, x),
        "acosh": _acosh,
        "atanh": _atanh,
        "sin": lambda x: _along_i(_sinh, x),
        "cos": lambda x: _cosh(_times_i(x)),
        "tan": lambda x: _along_i(_tanh, x),
        "asin": _asin,
        "acos": _acos,
        "atan": lambda x: _along_i(_atanh, x),
    }.items()
} | {
    "convert_element_type": _convert,
    "integer_pow": _whole_power,
    "reduce_prod": _fold,
    "cumprod": _accumulate,
    "dot_general": _dot,
    "fft": _fft,
}
