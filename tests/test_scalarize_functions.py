"""Programs of scalars of complex numbers, random keys, special functions, convolutions and windows, beside SciPy, NumPy
and JAX."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy as jsp
import numpy as np
import pytest
import scipy.linalg
import scipy.special as sp
from jax import lax
from numpy.testing import assert_allclose, assert_array_equal

import ukjax as uk

RANDOM = np.random.default_rng(0)
Z, W = (RANDOM.normal(scale=2.0, size=6) + 1j * RANDOM.normal(scale=2.0, size=6) for _ in range(2))
X = np.array([0.3, -0.7, 1.2, 0.9, -1.5, 0.4])
A = RANDOM.normal(size=(4, 4)) + 1j * RANDOM.normal(size=(4, 4))

# --- Complex numbers


@pytest.fixture
def promotes():
    """Real and complex numbers together, as users write them."""
    with jax.numpy_dtype_promotion("standard"):
        yield


OF_ONE = (
    *("exp", "log", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "arcsin", "arccos", "arctan", "arcsinh"),
    *("arccosh", "arctanh", "expm1", "log1p", "abs", "angle", "square", "reciprocal", "conj", "prod", "cumprod", "sum"),
)  # fmt: skip


def test_functions_of_complex_numbers() -> None:
    """Beside NumPy, at numbers of all sizes, on both sides of branch cuts."""
    z = np.concatenate(
        [Z, [1j, 1.0, -1.0 + 1e-9j, -1.0 - 1e-9j, 1e-9 - 1e-9j, 2 + 1e-8j, 20 + 3j, -20 + 3j, 3 - 20j]]
    )
    names = [name for name in OF_ONE if name not in ("arctan", "arctanh", "prod", "cumprod")]
    found = uk.scalarize(lambda z: {name: getattr(jnp, name)(z) for name in names})(z)
    for name in names:
        exact = {"log1p": sp.log1p, "expm1": sp.expm1}.get(name, getattr(np, name))
        assert_allclose(found[name], exact(z), rtol=1e-13, err_msg=name)
    found = uk.scalarize(lambda z: {name: getattr(jnp, name)(z) for name in OF_ONE})(Z)
    for name in OF_ONE:
        assert_allclose(found[name], getattr(np, name)(Z), rtol=1e-13, err_msg=name)


def test_two_complex_numbers_at_a_time() -> None:
    both = lambda z, w: (
        z + w,
        z - w,
        z * w,
        z / w,
        z**w,
        z**3,
        z**-2,
        z == w,
        z != w,
        jnp.where(z.real > 0, z, w),
    )
    expected = both(Z, W)[:-1]
    for found, wanted in zip(uk.scalarize(both)(Z, W), (*expected, np.where(Z.real > 0, Z, W)), strict=True):
        assert_allclose(found, wanted, rtol=1e-13)
    huge = 1e200 + 1e200j  # the square of which no float holds
    assert_allclose(uk.scalarize(lambda z: (1 / z, jnp.abs(z)))(huge), (1 / huge, abs(huge)), rtol=1e-15)


@pytest.mark.usefixtures("promotes")
def test_complex_matrices_and_moves() -> None:
    def function(a: Any, z: Any) -> Any:
        b = z[:4]
        moved = z[::-1].at[2].set(1j).at[jnp.array([0, 0])].add(z[:2])
        definite = jnp.linalg.cholesky(a @ a.conj().T + jnp.eye(4))
        return jnp.linalg.solve(a, b), jnp.linalg.inv(a), jnp.linalg.det(a), definite, a @ b, moved

    moved = Z[::-1].copy()
    moved[2] = 1j
    moved[0] += Z[0] + Z[1]
    expected = (
        *(np.linalg.solve(A, Z[:4]), np.linalg.inv(A), np.linalg.det(A)),
        *(np.linalg.cholesky(A @ A.conj().T + np.eye(4)), A @ Z[:4], moved),
    )
    for found, wanted in zip(uk.scalarize(function)(A, Z), expected, strict=True):
        assert_allclose(found, wanted, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("n", [1, 2, 5, 6, 8, 12])
def test_fourier_transforms(n: int) -> None:
    x = RANDOM.normal(size=(2, n)) + 1j * RANDOM.normal(size=(2, n))
    ways = {
        "fft": (x,),
        "ifft": (x,),
        "rfft": (x.real,),
        "irfft": (x, n),
        "fft2": (x,),
        "ifft2": (x,),
        "rfft2": (x.real,),
    }

    def function(x: Any) -> Any:
        given = {"rfft": x.real, "rfft2": x.real}
        return {name: getattr(jnp.fft, name)(given.get(name, x), *more) for name, (_, *more) in ways.items()}

    for name, found in uk.scalarize(function)(x).items():
        given, *more = ways[name]
        assert_allclose(found, getattr(np.fft, name)(given, *more), rtol=1e-12, atol=1e-13, err_msg=name)


def _iterate(z: Any, n: Any) -> Any:
    """Loops, a branch and rows of complex numbers."""
    body = lambda s: (s[0] + 1, 0.3 * s[1] * s[1] + 0.1j)
    _, y = lax.while_loop(lambda s: (s[0] < n) & (jnp.max(jnp.abs(s[1])) < 4), body, (0, z))
    y, rows = lax.scan(lambda c, x: (0.5 * c + x, c), y, jnp.stack([z, y, z]))
    return lax.cond(y.real.sum() > 0, lambda y: y * 1j, lambda y: y.conj(), y), rows


def _iterate_by_numpy(z: Any, n: int) -> Any:
    y = z
    for _ in range(n):
        if np.max(np.abs(y)) >= 4:
            break
        y = 0.3 * y * y + 0.1j
    rows = []
    for x in (z, y, z):
        rows.append(y)
        y = 0.5 * y + x
    return (y * 1j if y.real.sum() > 0 else y.conj()), np.stack(rows)


def test_loops_of_complex_numbers_alone_and_in_a_batch() -> None:
    given = np.stack([Z, W, 2 * Z]) / 3, np.array([1, 5, 9])
    batch = jax.vmap(uk.scalarize(_iterate))(*given)
    for i, (z, n) in enumerate(zip(*given, strict=True)):
        for one, member, wanted in zip(
            uk.scalarize(_iterate)(z, int(n)), batch, _iterate_by_numpy(z, n), strict=True
        ):
            assert_allclose(one, wanted, rtol=1e-12)
            assert_allclose(member[i], wanted, rtol=1e-12)


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4), (12, 10)])
def test_factors_with_pivots(shape: tuple[int, int]) -> None:
    a = np.random.default_rng(1).normal(size=shape)
    a[:, 1] = 2 * a[:, 0]  # the rank is one less
    q, r, order = uk.scalarize(lambda a: jsp.linalg.qr(a, mode="economic", pivoting=True))(a)
    _, wanted, in_order = scipy.linalg.qr(a, mode="economic", pivoting=True)
    assert_array_equal(order, in_order)
    assert_allclose(np.abs(r), np.abs(wanted), rtol=1e-12, atol=1e-13)  # what is zero has any sign
    assert_allclose(q @ r, a[:, in_order], atol=1e-13)
    assert_allclose(q.T @ q, np.eye(q.shape[1]), atol=1e-13)


@pytest.mark.usefixtures("promotes")
def test_derivatives_through_complex_numbers() -> None:
    """Beside JAX's, and differences; of a size at zero, zero."""

    def size(x: Any) -> Any:
        waves = jnp.exp(1j * x) * x[0] + jnp.fft.fft(x)
        return jnp.sum(jnp.abs(waves) ** 2) + jnp.sum(jnp.sqrt(x + 2j)).real

    x, ours = jnp.asarray(X), uk.scalarize(size)
    assert_allclose(jax.grad(ours)(x), jax.grad(size)(x), rtol=1e-12)
    assert_allclose(jax.hessian(ours)(x), jax.hessian(size)(x), rtol=1e-11, atol=1e-11)
    along, h = jnp.cos(jnp.arange(6.0)), 1e-6
    difference = (size(x + h * along) - size(x - h * along)) / (2 * h)
    assert_allclose(jax.jvp(ours, (x,), (along,))[1], difference, rtol=1e-8)
    holomorphic = uk.scalarize(lambda z: jnp.sum(jnp.exp(z) * z**2))
    assert_allclose(
        jax.grad(holomorphic, holomorphic=True)(jnp.asarray(Z)), np.exp(Z) * (Z**2 + 2 * Z), rtol=1e-12
    )
    length = uk.scalarize(lambda x: jnp.abs(lax.complex(x[0], x[1])))
    assert_allclose(jax.grad(length)(jnp.zeros(2)), 0.0)
    assert_allclose(jax.grad(length)(jnp.array([3.0, -4.0])), [0.6, -0.8], rtol=1e-15)


def test_rules_for_derivatives_of_complex_functions_are_used() -> None:
    """A rule that its author gave, here twice the derivative; of determinants JAX has one."""

    @jax.custom_jvp
    def doubled(z: Any, k: Any) -> Any:
        return z * z * k

    @doubled.defjvp
    def _(given: Any, changes: Any) -> Any:
        (z, k), (dz, _) = given, changes
        return z * z * k, 4.0 * z * dz * k

    size = lambda x: doubled(lax.complex(x, 2.0 * x), 3).real  # -9 x^2
    assert_allclose(uk.scalarize(size)(1.5), -9 * 1.5**2, rtol=1e-15)
    assert_allclose(jax.grad(uk.scalarize(size))(1.5), -36 * 1.5, rtol=1e-15)
    whole = lambda x: jnp.linalg.det(x * jnp.asarray(A)).real
    assert_allclose(jax.grad(uk.scalarize(whole))(1.0 + 0j), 4 * np.linalg.det(A), rtol=1e-12)

    @jax.custom_vjp
    def one(z: Any) -> Any:
        return z

    one.defvjp(lambda z: (z, None), lambda _, g: (g,))
    with pytest.raises(uk.Untranslatable, match="'custom_vjp_call' of complex numbers"):
        uk.scalarize(lambda x: one(lax.complex(x, x)).real)(1.0)


@pytest.mark.usefixtures("promotes")
def test_a_linkage_by_complex_numbers() -> None:
    """A loop of four bars, written as engineers do, moves as one of real numbers, and has scalar code."""
    bars = 0.3, 0.86, 0.61

    def of_complex(t: Any, q: Any) -> Any:
        a, b, c = (r * jnp.exp(1j * q[i]) for i, r in enumerate(bars))
        gap = a + b - c - 0.7
        return jnp.stack([gap.real, gap.imag])

    def of_real(t: Any, q: Any) -> Any:
        (a, b, c), (d, e, f) = ([r * fn(q[i]) for i, r in enumerate(bars)] for fn in (jnp.cos, jnp.sin))
        return jnp.stack([a + b - c - 0.7, d + e - f])

    q = np.array([1.5, 0.35, 1.2])
    systems = [
        uk.System(jnp.diag(jnp.array([0.1, 0.3, 0.2])), jnp.array([0.0, -1.0, -0.5]), [uk.Holonomic(fn)])
        for fn in (of_complex, of_real)
    ]
    start = uk.project(systems[1], 0.0, q, jnp.array([5.0, 0.0, 0.0]))
    runs = [uk.simulate(system, *start, t1=0.5, ts=2) for system in systems]
    assert runs[0].computed_by.startswith("scalar code of")
    assert_allclose(runs[0].q_end, runs[1].q_end, rtol=1e-9)


@pytest.mark.usefixtures("promotes")
def test_a_complex_parameter_of_a_system_is_differentiated() -> None:
    """Of x'' = -|k|^2 x, which starts at 1, at rest."""

    def end(k: Any) -> Any:
        spring = jax.tree_util.Partial(lambda k, t, q, v: -jnp.abs(k * q) * jnp.abs(k) * jnp.sign(q), k)
        return uk.simulate(uk.System(jnp.eye(1), spring), [1.0], [0.0], t1=0.5, ts=2, adjoint=None).q_end[0]

    k = jnp.asarray(0.8 - 0.6j)
    assert_allclose(end(2 * k), np.cos(1.0), rtol=1e-8)
    found = jax.jvp(end, (2 * k,), (k,))[1]  # the size changes by 1 for each
    assert_allclose(found, -0.5 * np.sin(1.0), rtol=1e-6)


def test_what_complex_numbers_lack_is_named() -> None:
    with pytest.raises(uk.Untranslatable, match="'eigh' of complex numbers has no scalar code"):
        uk.scalarize(jnp.linalg.eigh)(A)
    with pytest.raises(uk.Untranslatable, match="'eig' has no scalar code"):
        uk.scalarize(jnp.linalg.eigvals)(A.real)
    with pytest.raises(uk.Untranslatable, match="type key<rbg>"):
        uk.scalarize(lambda: jax.random.normal(jax.random.key(0, impl="rbg")))()


# --- Random keys


def _draw(key: Any, x: Any) -> Any:
    walk, seen = lax.scan(lambda c, k: (c + jax.random.normal(k, c.shape), c), x, jax.random.split(key, 5))
    key, sub = jax.random.split(key)
    return {
        "walk": walk,
        "seen": seen,
        "key": key,
        "folded": jax.random.fold_in(key, 7),
        "chosen": lax.cond(walk[0] > 0, lambda: key, lambda: sub),
        "uniform": jax.random.uniform(sub),
        "whole": jax.random.randint(sub, (3,), 0, 10),
        "order": jax.random.permutation(sub, 5),
        "category": jax.random.categorical(sub, jnp.log(jnp.arange(1.0, 4.0))),
        "exponential": jax.random.exponential(sub),
        "truth": jax.random.bernoulli(sub),
        "bits": jax.random.bits(sub, (3,), jnp.uint8),
        "of_a_seed": jax.random.normal(jax.random.key(3), (2,)),
        "of_words": jax.random.normal(jax.random.PRNGKey(3), (2,)),
    }


def _require_same_draws(found: Any, expected: Any) -> None:
    for name, wanted in expected.items():
        if jnp.issubdtype(wanted.dtype, jax.dtypes.prng_key):
            assert_array_equal(*map(jax.random.key_data, (found[name], wanted)), err_msg=name)
        else:
            assert_allclose(found[name], wanted, rtol=1e-13, atol=1e-14, err_msg=name)


def test_random_keys_draw_what_jax_draws() -> None:
    x, keys = jnp.zeros(2), jax.random.split(jax.random.key(0), 3)
    drawn = uk.scalarize(_draw)
    _require_same_draws(drawn(keys[0], x), _draw(keys[0], x))
    _require_same_draws(jax.vmap(drawn, (0, None))(keys, x), jax.vmap(_draw, (0, None))(keys, x))


# --- Special functions

_POSITIVE = np.concatenate([np.geomspace(1e-3, 1e3, 60), [1.0, 2.0, 1.46, 0.5, 12.0]])
_SHAPES, _PLACES = (
    x.ravel() for x in np.meshgrid([0.05, 0.5, 1.0, 3.3, 20.0, 150.0], [0.1, 0.7, 1.0, 1.3, 4.0])
)
SPECIAL: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...], float]] = {
    "lgamma": (lax.lgamma, sp.gammaln, (np.concatenate([_POSITIVE, [-0.3, -1.7, -15.2]]),), 1e-13),
    "digamma": (lax.digamma, sp.digamma, (np.concatenate([_POSITIVE, [-0.3, -1.7, -15.2]]),), 1e-13),
    "polygamma": (lambda x: jnp.stack([jsp.special.polygamma(k, x) for k in range(4)]),
                  lambda x: np.stack([sp.polygamma(k, x) for k in range(4)]), (_POSITIVE,), 1e-12),
    "zeta": (lambda s, q: lax.zeta(s + 1, q), lambda s, q: sp.zeta(s + 1, q), (_SHAPES, _PLACES), 1e-13),
    "igamma": (lax.igamma, sp.gammainc, (_SHAPES, _SHAPES * _PLACES), 1e-12),
    "igammac": (lax.igammac, sp.gammaincc, (_SHAPES, _SHAPES * _PLACES), 1e-10),
    "betainc": (lambda a, x: lax.betainc(a, 2.5 + 0 * a, x / 5), lambda a, x: sp.betainc(a, 2.5, x / 5),
                (_SHAPES, _PLACES), 1e-11),
    "i0e": (lax.bessel_i0e, sp.i0e, (np.concatenate([_POSITIVE, -_POSITIVE]),), 1e-14),
    "i1e": (lax.bessel_i1e, sp.i1e, (np.concatenate([_POSITIVE, -_POSITIVE]),), 1e-14),
    "erf_inv": (lax.erf_inv, sp.erfinv, (np.concatenate([np.linspace(-0.999, 0.999, 40), [1e-12, 1 - 1e-15]]),),
                1e-14),
}  # fmt: skip


@pytest.mark.parametrize("name", SPECIAL)
def test_special_functions(name: str) -> None:
    function, expected, given, rtol = SPECIAL[name]
    wanted = expected(*given)
    # Beside a zero of a function, and where a part of one is next to nothing, rounding is that of what it is made of.
    assert_allclose(uk.scalarize(function)(*given), wanted, rtol=rtol, atol=1e-13)


@pytest.mark.parametrize("name", ["lgamma", "digamma", "igamma", "betainc", "i0e", "i1e", "erf_inv", "zeta"])
def test_derivatives_of_special_functions(name: str) -> None:
    """By all operands, also by those of which JAX has none, beside differences of SciPy's functions."""
    function, expected, _, _ = SPECIAL[name]
    given = {"betainc": (1.7, 2.2), "igamma": (1.7, 2.2), "zeta": (1.7, 2.2)}.get(name, (0.6,))
    found = jax.grad(lambda x: uk.scalarize(function)(*x))(tuple(map(jnp.asarray, given)))
    h = 1e-5
    for i, slope in enumerate(found):
        near = [expected(*(x + s * h * (k == i) for k, x in enumerate(given))) for s in (-2, -1, 1, 2)]
        assert_allclose(slope, np.dot(near, [1, -8, 8, -1]) / (12 * h), rtol=1e-8)


def test_incomplete_functions_of_large_numbers() -> None:
    """Iterations as long as it takes: a thousand times the square root of the argument."""
    a, part = np.repeat([1e4, 1e6], 3), np.tile([0.999, 1.0, 1.001], 2)
    assert_allclose(uk.scalarize(lax.igamma)(a, a * part), sp.gammainc(a, a * part), atol=2e-9)
    assert_allclose(uk.scalarize(lax.igammac)(a, a * part), sp.gammaincc(a, a * part), atol=2e-9)
    assert_allclose(uk.scalarize(lax.betainc)(a, a, part / 2), sp.betainc(a, a, part / 2), atol=2e-9)


def test_ends_of_special_functions() -> None:
    """Poles, limits, and numbers beyond the domain, as SciPy has them."""
    ends = {
        "lgamma": ([0.0, -1.0, np.inf, np.nan, 1e-300, 1e306],),
        "igamma": ([1.0, 1.0, 0.0, -1.0], [0.0, np.inf, 1.0, 1.0]),
        "erf_inv": ([1.0, -1.0, 1.1, np.nan, 0.0],),
        "i0e": ([0.0, np.inf, -np.inf, np.nan],),
    }
    for name, arrays in ends.items():
        function, expected, _, _ = SPECIAL[name]
        given = list(map(np.asarray, arrays))
        with np.errstate(all="ignore"):
            assert_allclose(uk.scalarize(function)(*given), expected(*given), rtol=1e-14, err_msg=name)


# --- Extremes of equal entries

EXTREMES: dict[str, Callable[..., Any]] = {
    "max": jnp.max,
    "min": jnp.min,
    "squared": lambda x: jnp.max(x * x) ** 2,
    "along": lambda x: jnp.max(jnp.stack([x, 1.0 * x, x[::-1]]), axis=1),
    "some": lambda x: jnp.max(x, where=jnp.array([True, True, False, True]), initial=2.0),
    "norm": lambda x: jnp.linalg.norm(x, ord=jnp.inf),
    "long": lambda x: jnp.max(jnp.outer(x, jnp.ones(800)), axis=1),
    "in_a_loop": lambda x: lax.fori_loop(0, 50, lambda i, y: 0.5 * (jnp.max(y) + y), x),
    "so_far": lax.cummax,
    "so_far_backwards": lambda x: lax.cummin(x, reverse=True),
    "windows": lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (3,), (1,), "SAME"),
    "windows_min": lambda x: lax.reduce_window(x, jnp.inf, lax.min, (3,), (1,), "SAME"),
    "segments": lambda x: jax.ops.segment_max(x, jnp.array([0, 0, 0, 1]), 2),
    "at": lambda x: jnp.array([2.0, 1.0]).at[jnp.array([0, 0, 1, 1])].min(x),
    "sorted": jnp.sort,
    "median": jnp.median,
    "largest": lambda x: lax.top_k(x, 2)[0],
    "picked": lambda x: x[jnp.argmax(x)],
}


@pytest.mark.parametrize("name", EXTREMES)
def test_equal_entries_share_a_derivative_as_in_jax(name: str) -> None:
    """Three equal entries have a third each of that of their maximum; if this is NaN, so is that of all."""

    def total(fn: Callable[..., Any], x: Any) -> Any:
        y = fn(x).reshape(-1)
        return y @ jnp.arange(1.0, y.size + 1) ** 2

    ties = jnp.array([[2.0, 2.0, 2.0, 1.0], [1.0, 1.0, 1.0, 1.0], [1.0, 2.0, 2.0, 1.0]])
    if not name.startswith("windows"):  # of which JAX chooses an entry beside NaN
        ties = jnp.concatenate([ties, jnp.array([[1.0, jnp.nan, 2.0, 1.0], [jnp.nan] * 4])])
    for way in (jax.grad, jax.jacfwd, jax.hessian)[: 3 if name == "squared" else 2]:
        of = lambda fn, way=way: jax.vmap(way(functools.partial(total, fn)))(ties)
        assert_allclose(of(uk.scalarize(EXTREMES[name])), of(EXTREMES[name]), rtol=1e-13, atol=1e-13)


# --- Convolutions, windows, and bits

IMAGES, KERNELS = RANDOM.normal(size=(4, 4, 5, 6)), RANDOM.normal(size=(4, 2, 2, 3))
WINDOWS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "convolve": (lambda x: jnp.convolve(x, jnp.array([1.0, 2.0, 3.0])), (X,)),
    "correlate": (lambda x: jnp.correlate(x, x[:2], mode="same"), (X,)),
    "groups": (
        lambda x, k: lax.conv_general_dilated(
            x, k, (2, 1), ((1, 0), (2, -1)), (1, 2), (2, 1), feature_group_count=2
        ),
        (IMAGES, KERNELS),
    ),
    "batches": (
        lambda x, k: lax.conv_general_dilated(
            x, k, (1, 1), "VALID", dimension_numbers=("NCHW", "OIHW", "NHWC"), batch_group_count=2
        ),
        (IMAGES[:, :2], KERNELS),
    ),
    "largest": (lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (3,), (2,), "SAME"), (X,)),
    "smallest": (lambda x: lax.reduce_window(x, jnp.inf, lax.min, (2,), (1,), "VALID", (2,), (2,)), (X,)),
    "means": (lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 2, 2), (1, 2, 2), "VALID"), (IMAGES[0],)),
    "reduced": (lambda x: lax.reduce(x, 0.5, lambda a, b: a * 0.9 + b, (1,)), (IMAGES[0, 0],)),
    "log_sums": (lambda x: lax.cumlogsumexp(x, reverse=True), (X,)),
    "top": (lambda x: lax.top_k(x, 3), (IMAGES[0, 0],)),
    "top_again": (lambda x: lax.top_k(x, 3)[1], (np.array([2, 5, 5, 1, 5]),)),
    "bits": (lambda x: (lax.population_count(x), lax.clz(x)), (np.array([0, 1, 7, 2**63, 2**64 - 1], np.uint64),)),
    "signed": (lambda x: (lax.population_count(x), lax.clz(x)), (np.array([0, 1, -1, 127, -128], np.int8),)),
}  # fmt: skip


@pytest.mark.parametrize("name", WINDOWS)
def test_convolutions_and_windows(name: str) -> None:
    function, given = WINDOWS[name]
    expected = jax.tree.leaves(function(*given))
    for found, wanted in zip(jax.tree.leaves(uk.scalarize(function)(*given)), expected, strict=True):
        assert found.dtype == wanted.dtype
        assert_allclose(found, wanted, rtol=1e-13, atol=1e-13)


def test_a_convolution_has_derivatives() -> None:
    function, (x, kernel) = WINDOWS["groups"]
    total = lambda fn: jax.grad(lambda k: jnp.sum(fn(jnp.asarray(x), k) ** 2))(jnp.asarray(kernel))
    assert_allclose(total(uk.scalarize(function)), total(function), rtol=1e-12, atol=1e-12)
