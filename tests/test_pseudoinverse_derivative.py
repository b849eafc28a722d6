"""The derivative rule, against central differences of scipy.linalg.pinv in directions that keep the rank."""

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import pytest
import scipy.linalg

from ukjax._pseudoinverse import (
    SVD,
    Cholesky,
    CompleteOrthogonal,
    GramSchmidt,
    Greville,
    HouseholderQR,
    Lineax,
    inverse_cholesky,
)

METHODS = [
    SVD,
    CompleteOrthogonal,
    Greville,
    HouseholderQR,
    GramSchmidt,
    lambda: Lineax(lx.SVD(rcond=1e-4)),
]
SHAPES = [(4, 6, 4), (6, 4, 4), (5, 5, 3)]  # full row rank, full column rank, deficient
SHARED_RULE = [
    GramSchmidt,
    lambda: Lineax(lx.SVD(rcond=1e-4)),
]  # what the rule itself decides: two will do
by_rule = pytest.mark.parametrize("method", SHARED_RULE, ids=("GramSchmidt", "Lineax"))
by_method = pytest.mark.parametrize("method", METHODS, ids=lambda m: m.__name__.replace("<lambda>", "Lineax"))


def factors(m: int, n: int, rank: int):
    rng = np.random.default_rng(10 * m + n)
    F, dF = rng.normal(size=(2, m, rank))
    G, dG = rng.normal(size=(2, rank, n))
    consistent = F @ rng.normal(size=rank)
    return (F, G), (dF, dG), (consistent, rng.normal(size=m)), rng.normal(size=n)


@eqx.filter_jit
def first_order(method, FG, dFG, r, w):
    def solve(F, G):
        return method(F @ G).matrix @ r

    x, dx = jax.jvp(solve, FG, dFG)
    _, pull = jax.vjp(solve, *FG)
    return x, dx, pull(w)


def scipy_solve(F, G, r):
    return scipy.linalg.pinv(F @ G, rtol=1e-6) @ r


def moved(x, dx, h):
    return tuple(a + h * b for a, b in zip(x, dx, strict=True))


def check_first_order(method, shape):
    FG, dFG, rights, w = factors(*shape)
    h = 1e-5
    for r in rights:
        x, dx, cotangent = first_order(method, FG, dFG, r, w)
        np.testing.assert_allclose(x, scipy_solve(*FG, r), atol=1e-11 * np.abs(x).max())
        difference = scipy_solve(*moved(FG, dFG, h), r) - scipy_solve(*moved(FG, dFG, -h), r)
        expected = difference / (2 * h)
        np.testing.assert_allclose(dx, expected, rtol=0, atol=1e-7 * np.abs(expected).max())
        forward = w @ dx
        reverse = sum(np.sum(a * b) for a, b in zip(cotangent, dFG, strict=True))
        assert abs(forward - reverse) <= 1e-10 * abs(forward)


# Two methods are asked for every shape, the others for the hardest.
named = lambda x: str(x) if isinstance(x, tuple) else x.__name__.replace("<lambda>", "Lineax")
FIRST = [(method, shape) for method in METHODS for shape in SHAPES]
ASKED = [(m, s) for m, s in FIRST if m in (SVD, GramSchmidt) or s == SHAPES[2]]
FIRST = [pytest.param(*x, marks=() if x in ASKED else pytest.mark.slow) for x in FIRST]


@pytest.mark.parametrize(("method", "shape"), FIRST, ids=named)
def test_first_derivative(method, shape):
    check_first_order(method(), shape)


def test_first_derivative_cholesky():
    check_first_order(Cholesky(), SHAPES[0])


@by_rule
def test_second_derivative(method):
    (F, G), dFG, (_, r), w = factors(5, 4, 3)
    slope = jax.grad(lambda FG: w @ (method()(FG[0] @ FG[1]).matrix @ r))
    h = 1e-5
    first = eqx.filter_jit(slope)
    second = eqx.filter_jit(lambda FG, dFG: jax.jvp(slope, (FG,), (dFG,))[1])((F, G), dFG)
    ahead, behind = first(moved((F, G), dFG, h)), first(moved((F, G), dFG, -h))
    for exact, a, b in zip(second, ahead, behind, strict=True):
        expected = (a - b) / (2 * h)
        np.testing.assert_allclose(exact, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


@by_rule
def test_batched_derivative(method):
    """vmap of grad is the stack of grads."""
    rng = np.random.default_rng(4)
    B = rng.normal(size=(3, 4, 2)) @ rng.normal(size=(3, 2, 4))
    grad = jax.grad(lambda B: jnp.sum(jnp.sin(method()(B).matrix)))
    alone = jax.jit(grad)
    stacked = np.stack([alone(b) for b in B])
    np.testing.assert_allclose(jax.jit(jax.vmap(grad))(B), stacked, rtol=0, atol=1e-9)


@by_method
def test_repeated_singular_values(method):
    """At an orthogonal matrix, d(B^-1) = -B^-1 dB B^-1: finite, where differentiating an SVD gives NaN."""
    rng = np.random.default_rng(6)
    rotation = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    dB = rng.normal(size=(4, 4))
    jvp = eqx.filter_jit(lambda B: jax.jvp(lambda B: method()(B).matrix, (B,), (jnp.array(dB),))[1])
    for B in (np.eye(4), rotation):
        np.testing.assert_allclose(jvp(jnp.array(B)), -B.T @ dB @ B.T, atol=1e-13)


def test_no_rows():
    inverse = lambda B: GramSchmidt()(B).matrix
    assert jax.jacobian(inverse)(jnp.zeros((0, 4))).shape == (4, 0, 0, 4)
    solved = jax.jit(jax.vmap(lambda x: inverse(jnp.zeros((0, 4)) * x) @ jnp.zeros(0)))
    _, change = jax.jvp(solved, (jnp.ones(3),), (jnp.ones(3),))
    np.testing.assert_array_equal(change, np.zeros((3, 4)))


def test_rank_and_nothing_else_is_constant():
    change = lambda *x: eqx.filter_jvp(GramSchmidt().__call__, *x)
    out, tangent = eqx.filter_jit(change)((np.eye(3),), (np.ones((3, 3)),))
    assert out.rank == 3
    assert tangent.rank is None
    np.testing.assert_allclose(tangent.matrix, -np.ones((3, 3)), atol=1e-14)


@pytest.mark.parametrize("n", [1, 3, 20])
def test_inverse_cholesky_derivative(n):
    rng = np.random.default_rng(n)
    A, dM = rng.normal(size=(2, n, n))
    M = A @ A.T + np.eye(n)
    dM = dM + dM.T

    def oracle(M):
        return np.linalg.inv(np.linalg.cholesky(M))

    h = 1e-6
    grad = jax.grad(lambda M: jnp.sum(inverse_cholesky(M) ** 2))

    @jax.jit
    def derivatives(M, dM):
        return jax.jvp(inverse_cholesky, (M,), (dM,)), jax.jvp(grad, (M,), (dM,))

    (W, dW), (cotangent, second) = jax.device_get(derivatives(M, dM))
    expected = (oracle(M + h * dM) - oracle(M - h * dM)) / (2 * h)
    np.testing.assert_allclose(dW, expected, rtol=0, atol=1e-7 * np.abs(expected).max())
    np.testing.assert_allclose(cotangent, cotangent.T, atol=1e-12 * np.abs(cotangent).max())
    assert float(np.sum(cotangent * dM)) == pytest.approx(float(2 * np.sum(W * dW)), rel=1e-10)
    ahead, behind = (derivatives(M + s * dM, dM)[1][0] for s in (h, -h))
    expected = (ahead - behind) / (2 * h)
    np.testing.assert_allclose(second, expected, rtol=0, atol=1e-6 * np.abs(expected).max())
