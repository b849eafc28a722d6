"""Operations on arrays in memory, of more than 64 entries, and programs within programs: against plain JAX and NumPy."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from numpy.testing import assert_allclose

import ukjax as uk

WIDE = jnp.asarray(np.random.default_rng(0).normal(size=(8, 9)))


def _of_rows_and_columns(x: Any) -> Any:
    """Operands with axes of length 1, first, last and both."""

    def step(i: Any, V: Any) -> Any:
        V = V - V[i][None, :]
        V = V / (2 + jnp.tanh(V[:, :1])) - V[i][None, :] * jnp.tanh(V[:, :1])
        return jnp.where(V[3][None, :] > V[:, 2:3], V / (1 + V[5:6, 5:6] ** 2), 0.5 * V)

    return lax.fori_loop(0, 5, step, x)


def _in_three_axes(x: Any) -> Any:
    y = jnp.tile(x, (3, 1, 1)) * jnp.arange(1.0, 4.0)[:, None, None]
    step = lambda i, y: y - 0.1 * y[:, :1, :] * y[1:2, :, 4:5] + jnp.sin(y[:1, 2:3])
    return lax.fori_loop(0, 3, step, y)


def _orthonormal(x: Any) -> Any:
    """Gram-Schmidt of the rows, from the first to the last."""

    def step(i: Any, V: Any) -> Any:
        V = V / jnp.sqrt(jnp.sum(V**2, axis=1))[:, None]
        unit = V[i]
        later = (jnp.arange(V.shape[0]) > i)[:, None]
        return V - jnp.where(later, (V @ unit)[:, None] * unit[None, :], 0.0)

    return lax.fori_loop(0, x.shape[0], step, x)


BROADCAST = {
    "rows and columns": _of_rows_and_columns,
    "three axes": _in_three_axes,
    "Gram-Schmidt": _orthonormal,
}


@pytest.mark.parametrize("name", BROADCAST)
def test_axes_of_length_1_repeat(name: str) -> None:
    f = BROADCAST[name]
    assert_allclose(uk.scalarize(f)(WIDE), jax.jit(f)(WIDE), rtol=1e-12, atol=1e-13)
    d = jnp.cos(jnp.arange(72.0)).reshape(8, 9)
    along = lambda f: jax.jvp(f, (WIDE,), (d,))[1]
    assert_allclose(along(uk.scalarize(f)), along(jax.jit(f)), rtol=1e-10, atol=1e-11)


def test_rows_made_orthonormal_are_those_of_a_qr_decomposition() -> None:
    V = np.asarray(uk.scalarize(_orthonormal)(WIDE))
    Q, R = np.linalg.qr(np.asarray(WIDE).T)
    assert_allclose(V, (Q * np.sign(np.diag(R))).T, atol=1e-13)


def _powers(A: Any, x: Any) -> Any:
    return lax.fori_loop(0, 4, lambda i, x: A @ x / 10, x)


PRODUCTS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "matrix and vector": (lambda A, x: A @ x, ((7, 30), (30,))),
    "vector and matrix": (lambda x, A: x @ A, ((30,), (30, 7))),
    "matrices": (lambda A, B: A @ B, ((5, 40), (40, 6))),
    "of the transposed": (lambda A, B: A.T @ B, ((40, 5), (40, 6))),
    "both transposed": (lambda A, B: jnp.einsum("ki,jk->ij", A, B), ((40, 3), (4, 40))),
    "long results": (lambda A, B: A @ B, ((9, 12), (12, 10))),
    "in a loop": (_powers, ((9, 9), (9,))),
    "with numbers that are known": (lambda A, x: jnp.array([0.5, 0.0, -2.0]) @ A + x, ((3, 700), (700,))),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_long_arrays_are_those_of_numpy(name: str) -> None:
    f, shapes = PRODUCTS[name]
    x, y = (np.random.default_rng(len(s)).normal(size=s) for s in shapes)
    # Arrays that a loop filled lie in memory, those that come in may be operands of their own.
    filled = lambda x: lax.fori_loop(0, 3, lambda i, x: 1.0 * x, x)
    scalar = uk.scalarize(lambda x, y: f(filled(x), y))
    wanted = {
        "both transposed": lambda: (y @ x).T,
        "in a loop": lambda: np.linalg.matrix_power(x / 10, 4) @ y,
    }
    assert_allclose(scalar(x, y), wanted.get(name, lambda: f(x, y))(), rtol=1e-12, atol=1e-13)


def _inner(x: Any) -> Any:
    return lax.while_loop(lambda y: jnp.sum(y**2) < 50, lambda y: 1.5 * y + jnp.sin(y), x)


def _outer(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function that uses another in a loop, in a branch, and as a batch."""

    def outer(x: Any) -> Any:
        y = lax.fori_loop(0, 2, lambda i, y: f(y) / 10, x)
        y = lax.cond(y[0] > 0, lambda: f(y), lambda: -f(-y))
        return jnp.sum(jax.vmap(f)(jnp.stack([y, 0.5 * x])) ** 2)

    return outer


X = jnp.array([0.7, 0.2, -0.4])
BATCH = jnp.stack([X, 0.5 * X, 2 * X])


@functools.cache
def _plain() -> list[Any]:
    """Value, gradient, second derivatives, and values of a batch."""
    f = _outer(_inner)
    slope = jax.jacfwd(f)
    return [*jax.jit(lambda x: (f(x), slope(x), jax.jacfwd(slope)(x)))(X), jnp.stack([f(x) for x in BATCH])]


@pytest.mark.parametrize("where", [pytest.param("inside", marks=pytest.mark.slow), "both", "thrice"])
def test_programs_within_programs_are_plain_jax(where: str) -> None:
    nested = _outer(uk.scalarize(_inner))
    scalar = {
        "inside": nested,
        "both": uk.scalarize(nested),
        "thrice": uk.scalarize(lambda x: uk.scalarize(nested)(2 * x / 2)),
    }[where]
    value, slope, bend, of_batch = _plain()
    assert_allclose(scalar(X), value, rtol=1e-12)
    assert_allclose(jax.grad(scalar)(X), slope, rtol=1e-10)
    assert_allclose(jax.hessian(scalar)(X), bend, rtol=1e-8, atol=1e-8)
    assert_allclose(jax.vmap(scalar)(BATCH), of_batch, rtol=1e-12)


CUBE = jnp.asarray(np.random.default_rng(1).normal(size=(23, 7, 3)))
MOVES: dict[str, Callable[[Any], Any]] = {
    "transposed": lambda x: x.transpose(2, 0, 1),
    "turned round and thinned out": lambda x: x[::-2, 1:6:2, ::-1] + 0,
    "repeated": lambda x: jnp.broadcast_to(x[..., None], (*x.shape, 4)),
    "repeated by where": lambda x: jnp.where((x[:, 0] > 0)[:, None], x[:, 1], 3.0),
    "in another shape": lambda x: x.reshape(7, -1).T,
    "joined": lambda x: jnp.concatenate([x, x[:, ::-1]], axis=1),
    "of one place": lambda x: jnp.moveaxis(x, -1, 0)[1],
}


@pytest.mark.parametrize("name", MOVES)
def test_entries_are_moved_by_loops(name: str) -> None:
    """Along each axis at even distances: a loop, and no operation for each entry."""
    f = MOVES[name]
    g = uk.scalarize(f)
    np.testing.assert_array_equal(g(CUBE), f(CUBE))
    assert len(g.as_text(CUBE).splitlines()) < 200
    slope = lambda f: jax.grad(lambda x: jnp.sum(jnp.sin(f(x))))(CUBE)
    assert_allclose(slope(g), slope(f), atol=1e-13)
    both = jnp.stack([CUBE, 2 * CUBE, -CUBE])
    np.testing.assert_array_equal(jax.vmap(g)(both), jax.vmap(f)(both))


def test_what_nobody_asks_for_is_left_out() -> None:
    """Of values, of their changes, and of cotangents; and a cotangent that is zero is none."""

    @uk.scalarize
    def f(x: Any, y: Any) -> Any:
        return jnp.sum(jnp.sin(x) * y), jnp.tanh(x), 0 * y + jnp.floor(x)

    x, y = jnp.linspace(0.1, 1.0, 4), jnp.arange(4.0)
    np.testing.assert_allclose(jax.grad(lambda x: f(x, y)[1].sum())(x), 1 - jnp.tanh(x) ** 2, rtol=1e-14)
    np.testing.assert_allclose(jax.grad(lambda y: f(x, y)[0])(y), jnp.sin(x), rtol=1e-14)
    np.testing.assert_array_equal(jax.grad(lambda x: f(x, y)[2].sum())(x), jnp.zeros(4))
    lowered = jax.jit(lambda x: f(x, y)[1]).lower(x).as_text()
    (call,) = [line for line in lowered.splitlines() if "custom_call" in line]
    assert "-> tensor<4x1xf64>" in call, call


@pytest.mark.parametrize("reduce", [jnp.sum, jnp.max, jnp.prod, jnp.mean])
@pytest.mark.parametrize("shape", [(300, 3), (3, 300), (100, 2, 2)])
def test_long_axes_are_reduced(reduce: Any, shape: tuple[int, ...]) -> None:
    x = jnp.asarray(1 + 0.01 * np.random.default_rng(0).normal(size=shape))
    for axis in range(len(shape)):
        function = lambda x, axis=axis: reduce(x, axis)
        assert_allclose(uk.scalarize(function)(x), function(x), rtol=1e-12)
        total = lambda x, axis=axis: jnp.sum(reduce(x, axis) ** 2)
        assert_allclose(jax.grad(uk.scalarize(total))(x), jax.grad(total)(x), rtol=1e-9)


@pytest.mark.parametrize("count", [70, 300])
def test_products_with_long_sums_of_long_arrays(count: int) -> None:
    rng = np.random.default_rng(0)
    x, y = (jnp.asarray(rng.normal(size=shape)) for shape in ((30, count), (count, 30)))
    product = uk.scalarize(lambda x, y: x @ y)
    assert_allclose(product(x, y), np.asarray(x) @ np.asarray(y), atol=1e-12)
    slope = jax.grad(lambda x: jnp.sum(product(x, y) ** 2))(x)
    assert_allclose(slope, 2 * np.asarray(x @ y) @ np.asarray(y).T, atol=1e-10)


def test_rules_of_arrays_that_are_long_together() -> None:
    """A derivative of one's own, of 1,200 numbers by as many."""

    @jax.custom_jvp
    def tripled(x: Any) -> Any:
        return 3.0 * x

    tripled.defjvp(lambda primals, tangents: (tripled(*primals), 5.0 * tangents[0]))  # a mark: not 3
    x = jnp.linspace(0.0, 1.0, 1200)
    f = uk.scalarize(lambda x: jnp.sum(tripled(x) ** 2))
    assert_allclose(jax.grad(f)(x), 2 * 3.0 * x * 5.0, rtol=1e-14)


def test_what_repeats_along_an_axis_is_written_once() -> None:
    """Code of a product with the same matrix for each member does not grow with their number."""

    def multiply(a: Any, x: Any) -> Any:
        top = jnp.concatenate(
            [a, jnp.zeros((4, 2), a.dtype)], axis=1
        )  # by what follows the repeats are no longer told
        whole = jnp.concatenate(
            [jnp.broadcast_to(top, (len(x), 4, 6)), jnp.broadcast_to(-top, (len(x), 4, 6))], 1
        )
        return jnp.einsum("kij,kj->ki", whole, x)

    rng, lengths = np.random.default_rng(0), []
    for count in (60, 120):
        a, x = rng.normal(size=(4, 4)), rng.normal(size=(count, 6))
        of_numpy = np.einsum("ij,kj->ki", np.vstack([a, -a]), x[:, :4])
        assert_allclose(uk.scalarize(multiply)(a, x), of_numpy, rtol=1e-13, atol=1e-13)
        lengths.append(len(uk.scalarize(multiply).as_text(a, x)))
    assert lengths[1] < 1.1 * lengths[0]


def test_zeros_of_both_signs_are_not_taken_for_each_other() -> None:
    signs = np.where(np.arange(80) % 2 == 0, 0.0, -0.0)
    for entries in (signs, signs * np.ones((3, 1))):
        sign_of = uk.scalarize(lambda i, x=entries: jnp.sign(1 / jnp.asarray(x).reshape(-1)[i]))
        assert [float(sign_of(i)) for i in range(4)] == [1.0, -1.0, 1.0, -1.0]


def test_members_that_are_all_alike_are_as_one() -> None:
    inner = uk.scalarize(lambda a, b: jnp.sin(a @ b) @ a + jnp.exp(-a) * b)
    a, b = np.random.default_rng(0).normal(size=(2, 4, 4))
    many = lambda a, b: jax.vmap(inner)(jnp.broadcast_to(a, (90, 4, 4)), jnp.broadcast_to(b, (90, 4, 4)))
    of_numpy = np.sin(a @ b) @ a + np.exp(-a) * b
    assert_allclose(uk.scalarize(many)(a, b), np.broadcast_to(of_numpy, (90, 4, 4)), rtol=1e-12)
    change = jax.grad(lambda a: uk.scalarize(many)(a, b).sum())(a)
    difference = lambda d: (inner(a + d, b).sum() - inner(a - d, b).sum()) / 2e-6 * 90
    d = np.zeros((4, 4))
    d[1, 2] = 1e-6
    assert_allclose(change[1, 2], difference(d), rtol=1e-6)
