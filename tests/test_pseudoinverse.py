"""Pseudoinverses against scipy.linalg.pinv, mpmath, closed forms and Penrose's four conditions."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import mpmath
import numpy as np
import pytest
import scipy.linalg

from ukjax._misc._errors import InputError
from ukjax._pseudoinverse import (
    SVD,
    Cholesky,
    CompleteOrthogonal,
    GramSchmidt,
    Greville,
    HouseholderQR,
    Lineax,
    as_pseudoinverse,
    inverse_cholesky,
    pinv,
)

RANK_SAFE = [SVD, CompleteOrthogonal, Greville, HouseholderQR, GramSchmidt]
ALL = [*RANK_SAFE, Cholesky]
by_name = pytest.mark.parametrize


@eqx.filter_jit
def run(method, B):
    return pinv(B, method)


@eqx.filter_jit
def run_batch(method, B):
    return jax.vmap(method)(B)


def matrix(m: int, n: int, rank: int, condition: float = 10.0, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    U = np.linalg.qr(rng.normal(size=(m, m)))[0][:, :rank]
    V = np.linalg.qr(rng.normal(size=(n, n)))[0][:, :rank]
    return (U * np.geomspace(1, 1 / condition, rank)) @ V.T


def assert_penrose(B: np.ndarray, P: np.ndarray, tolerance: float) -> None:
    sizes = max(np.abs(B).max(initial=0), 1e-300), max(np.abs(P).max(initial=0), 1e-300)
    BP, PB = B @ P, P @ B
    assert np.abs(BP @ B - B).max(initial=0) <= tolerance * sizes[0]
    assert np.abs(PB @ P - P).max(initial=0) <= tolerance * sizes[1]
    assert np.abs(BP - BP.T).max(initial=0) <= tolerance
    assert np.abs(PB - PB.T).max(initial=0) <= tolerance


def assert_close(P, expected: np.ndarray, tolerance: float) -> None:
    assert np.abs(np.asarray(P) - expected).max(initial=0) <= tolerance * np.abs(expected).max(initial=0)


@by_name("shape", [(3, 5), (6, 4), (1, 4), pytest.param((12, 12), marks=pytest.mark.slow)], ids=str)
@by_name("method", RANK_SAFE, ids=lambda m: m.__name__)
def test_grid(method, shape):
    full = min(shape)
    ranks = sorted({full, max(full - 1, 0), full // 2, 0})
    cases = [(r, scale) for r in ranks for scale in (1.0, 1e-8, 1e8)]
    Bs = [scale * matrix(*shape, r, seed=r) for r, scale in cases]
    out = run_batch(method(), np.array(Bs))
    assert out.rank.dtype == jnp.int32
    for (r, _), B, P, rank in zip(cases, Bs, np.asarray(out.matrix), np.asarray(out.rank), strict=True):
        assert rank == r
        assert_penrose(B, P, 1e-12)
        assert_close(P, scipy.linalg.pinv(B, rtol=1e-4), 1e-12)


@by_name("method", RANK_SAFE, ids=lambda m: m.__name__)
def test_large(method):
    for rank in (40, 25):
        B = matrix(40, 50, rank, 100.0)
        out = run(method(), B)
        assert out.rank == rank
        assert_penrose(B, np.asarray(out.matrix), 1e-11)
        assert_close(out.matrix, scipy.linalg.pinv(B, rtol=1e-4), 1e-11)


@by_name("method", RANK_SAFE, ids=lambda m: m.__name__)
def test_conditioning(method):
    cases = [(r, 10.0**p) for r in (8, 6) for p in (2, 4, 6, 8, 10)]
    Bs = [matrix(8, 8, r, condition) for r, condition in cases]
    out = run_batch(method(rcond=1e-13), np.array(Bs))
    for (r, condition), B, P, rank in zip(
        cases, Bs, np.asarray(out.matrix), np.asarray(out.rank), strict=True
    ):
        assert rank == r
        assert_close(P, scipy.linalg.pinv(B, rtol=1e-13), 1e-14 * condition)
        assert_penrose(B, P, 1e-14 * condition)


def exact_pinv(scales: np.ndarray, F: np.ndarray, G: np.ndarray) -> np.ndarray:
    """(diag(scales) F G)^+ in 60 digits, F of full column rank and G of full row rank."""
    with mpmath.workdps(60):
        Fm, Gm = (
            mpmath.diag([mpmath.mpf(float(s)) for s in scales]) * mpmath.matrix(F),
            mpmath.matrix(G),
        )
        P = Gm.T * mpmath.inverse(Gm * Gm.T) * mpmath.inverse(Fm.T * Fm) * Fm.T
        return np.array(P.tolist(), dtype=float)


def run_eight(method, Bs) -> tuple[np.ndarray, np.ndarray]:
    """Eight matrices, padded by zeros to 8 x 8, so that these tests share one compiled function a method."""
    m, n = Bs[0].shape
    padded = np.zeros((8, 8, 8))
    padded[: len(Bs), :m, :n] = Bs
    out = run_batch(method(), padded)
    P = np.asarray(out.matrix)
    assert not P[:, n:].any()
    assert not P[:, :, m:].any()
    return P[: len(Bs), :n, :m], np.asarray(out.rank[: len(Bs)])


@by_name("method", RANK_SAFE, ids=lambda m: m.__name__)
def test_mixed_row_scales(method):
    """The answer is B's own pseudoinverse, least squares included, whatever the units of the rows."""
    rng = np.random.default_rng(1)
    cases = []
    for _ in range(8):
        F, G = rng.normal(size=(8, 5)), rng.normal(size=(5, 8))
        cases.append((10.0 ** rng.uniform(-4, 4, 8), F, G))
    Bs = [scales[:, None] * (F @ G) for scales, F, G in cases]
    for case, B, P, rank in zip(cases, Bs, *run_eight(method, Bs), strict=True):
        assert rank == 5
        expected = exact_pinv(*case)
        assert_close(P, expected, 1e-12)
        r = rng.normal(size=8) * case[0]
        np.testing.assert_allclose(P @ r, expected @ r, rtol=0, atol=1e-8 * np.abs(expected @ r).max())
        assert np.abs(B @ P @ B - B).max() <= 1e-12 * np.abs(B).max()
        assert np.abs(B @ P - (B @ P).T).max() <= 1e-7


@by_name("method", RANK_SAFE, ids=lambda m: m.__name__)
def test_repeated_row_of_other_scale(method):
    """Rows a and s a: (a; s a)^+ = a^T (1, s) / ((1 + s^2) a a^T); a small row must not magnify rounding."""
    a = np.array([3.0, -4.0, 12.0])
    scales = np.array([1e-6, 1e-4, 1.0, 1e4, 1e6])
    Ps, ranks = run_eight(method, [np.stack([a, s * a]) for s in scales])
    assert (ranks == 1).all()
    for s, P in zip(scales, Ps, strict=True):
        expected = np.outer(a, [1, s]) / ((1 + s**2) * (a @ a))
        np.testing.assert_allclose(P, expected, rtol=0, atol=1e-14 * np.abs(expected).max())


@by_name("method", RANK_SAFE, ids=lambda m: m.__name__)
def test_rows_of_rounding_noise_count_as_zero(method):
    B = np.array([[1.0, 0.0, 2.0], [1e-15, -1e-15, 0.0], [0.0, 3.0, 1.0]])
    clean = B * np.array([1.0, 0.0, 1.0])[:, None]
    (P,), (rank,) = run_eight(method, [B])
    assert rank == 2
    assert_close(P, np.linalg.pinv(clean), 1e-14)


@by_name("method", RANK_SAFE, ids=lambda m: m.__name__)
def test_rank_follows_rcond_not_drift(method):
    """A redundant row that has drifted by 1e-6 stays redundant, in whatever units it is written."""
    B = matrix(5, 6, 4)
    B = np.concatenate([B, B[:1] + 1e-6 * np.random.default_rng(3).normal(size=(1, 6))])
    units = np.array([1.0, 1e-5, 1e5])
    Bs = [B * np.array([1, 1, 1, 1, 1, u])[:, None] for u in units]
    Ps, ranks = run_eight(method, Bs)
    assert (ranks == 4).all()
    assert np.abs(Ps).max() < 100


@by_name("method", ALL, ids=lambda m: m.__name__)
def test_special_matrices(method):
    """No rows, no columns, identity and permutation (all singular values equal), and NaN in, NaN out."""
    for shape in ((0, 4), (3, 0), (0, 0)):
        out = run(method(), np.zeros(shape))
        assert out.matrix.shape == shape[::-1]
        assert out.rank == 0
    spoilt, infinite = np.eye(5), np.eye(5)
    spoilt[1, 2], infinite[0, 0] = np.nan, np.inf
    Bs = np.stack([np.eye(5), np.eye(5)[[2, 0, 3, 4, 1]], spoilt, infinite, *8 * [np.eye(5)]])
    out = run_batch(method(), np.array(Bs))
    P, rank = np.asarray(out.matrix), np.asarray(out.rank)
    np.testing.assert_allclose(P[:2], Bs[:2].transpose(0, 2, 1), atol=1e-15)
    assert np.isnan(P[2:4]).all()
    assert rank[:4].tolist() == [5, 5, -1, -1]


@pytest.mark.usefixtures(
    "optimized"
)  # without, XLA of JAX 0.12 gives another number for the rank of the last one
def test_cholesky():
    """Agrees with scipy on independent rows and says so, by NaN, on dependent ones."""
    Bs = [scale * matrix(4, 6, 4, condition) for scale in (1e-8, 1.0, 1e8) for condition in (1, 10, 1e3)]
    out = run_batch(Cholesky(), np.array(Bs))
    assert (out.rank == 4).all()
    for B, P in zip(Bs, out.matrix, strict=True):
        assert_close(P, scipy.linalg.pinv(B), 1e-9)
    for deficient in (matrix(4, 6, 3), np.zeros((4, 6)), matrix(4, 6, 4, 1e6)):
        out = run(Cholesky(), deficient)
        assert np.isnan(out.matrix).all()
        assert out.rank < 4
    out = run(Cholesky(), matrix(6, 4, 4))
    assert np.isnan(out.matrix).all()
    assert out.rank == 4


@by_name("method", ALL, ids=lambda m: m.__name__)
def test_float32(method):
    rank = 6 if method is Cholesky else 5
    B = matrix(6, 8, rank).astype(np.float32)
    out = run(method(), B)
    assert out.matrix.dtype == jnp.float32
    assert out.rank == rank
    assert_close(out.matrix, scipy.linalg.pinv(B.astype(float), rtol=1e-4), 2e-5)


@pytest.mark.usefixtures("optimized")
@by_name(
    "method",
    [
        *(
            pytest.param(m, marks=pytest.mark.slow)
            for m in (SVD, CompleteOrthogonal, HouseholderQR, Greville)
        ),
        *(GramSchmidt, Cholesky),
    ],
    ids=lambda m: m.__name__,
)
def test_big_batch_returns(method):
    """Batched LAPACK hangs on two cores from a few thousand matrices on; ours must not."""
    rng = np.random.default_rng(2)
    inner = 12 if method is Cholesky else 11
    B = rng.normal(size=(8192, 12, inner)) @ rng.normal(size=(8192, inner, 12))
    out = run_batch(method(rcond=1e-6), B)
    P, rank = np.asarray(out.matrix), np.asarray(out.rank)
    residual = np.abs(B @ P @ B - B).max(axis=(1, 2))
    good = rank == inner
    assert good.mean() > 0.999
    assert residual[good].max() < 1e-6


def primitives(jaxpr) -> set[str]:
    found = set()
    for eqn in jaxpr.eqns:
        found.add(eqn.primitive.name)
        for value in jax.tree.leaves(eqn.params, is_leaf=lambda x: hasattr(x, "eqns")):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                found |= primitives(inner)
    return found


def traced(fn, *args) -> set[str]:
    return primitives(jax.make_jaxpr(fn)(*args).jaxpr)


def transforms(method, B):
    """Both derivatives, and with each the value."""

    def value(B):
        return method(B).matrix

    yield traced(lambda B: jax.jvp(value, (B,), (B,)), B)
    yield traced(lambda B: jax.vjp(value, B)[1](B.T), B)


LAPACK = {
    "svd",
    "qr",
    "geqrf",
    "geqp3",
    "householder_product",
    "eigh",
    "eig",
    "lu",
    "lu_pivots_to_permutation",
}
LAPACK |= {
    "cholesky",
    "triangular_solve",
    "custom_linear_solve",
    "tridiagonal_solve",
    "schur",
    "ormqr",
}
CALLBACKS = {"pure_callback", "io_callback", "debug_callback"}


@by_name(
    "method",
    [*ALL, functools.partial(Lineax, lx.SVD())],
    ids=lambda m: getattr(m, "__name__", "Lineax"),
)
def test_no_callback_and_no_lapack_when_small(method):
    B = matrix(7, 32, 7)
    for names in transforms(method(), B):
        assert "mul" in names
        assert not names & CALLBACKS
        if not isinstance(method(), Lineax):
            assert not names & LAPACK


_inverse_cholesky = jax.jit(inverse_cholesky)


@by_name("n", [1, 3, 12, 17, 70])
def test_inverse_cholesky(n):
    rng = np.random.default_rng(n)
    A = rng.normal(size=(n, n))
    M = A @ A.T + 0.1 * np.eye(n)
    W = _inverse_cholesky(M)
    expected = np.linalg.inv(np.linalg.cholesky(M))
    np.testing.assert_allclose(W, expected, rtol=0, atol=1e-10 * np.abs(expected).max())
    assert not np.triu(W, 1).any()


def test_inverse_cholesky_refuses():
    singular = np.outer([1.0, 2, 3], [1.0, 2, 3])
    indefinite = np.diag([1.0, -1, 2])
    for M in (singular, indefinite, np.zeros((3, 3)), np.full((3, 3), np.nan), -np.eye(20)):
        assert np.isnan(_inverse_cholesky(M)).all()
    scales = np.diag([1e-9, 1.0, 1e9])
    M = scales @ (np.eye(3) + 0.5) @ scales
    expected = np.tril(np.linalg.inv(np.linalg.cholesky(M)))
    np.testing.assert_allclose(_inverse_cholesky(M), expected, rtol=1e-12, atol=0)


def test_lineax_plugins():
    cases = [
        (lx.SVD(rcond=1e-4), (5, 7, 4)),
        (lx.AutoLinearSolver(well_posed=False), (5, 7, 5)),
        (lx.QR(), (7, 5, 5)),
        (lx.Normal(lx.CG(rtol=1e-12, atol=1e-12)), (7, 5, 5)),
    ]
    for solver, shape in cases:
        B = matrix(*shape)
        out = run(as_pseudoinverse(solver), B)
        assert out.rank == shape[2]
        assert_close(out.matrix, scipy.linalg.pinv(B, rtol=1e-4), 1e-8)
    refused = run(Lineax(lx.QR()), matrix(5, 5, 3))
    assert np.isnan(refused.matrix).all()
    assert refused.rank == -1


def test_lineax_scaled_inconsistent():
    rng = np.random.default_rng(5)
    case = 10.0 ** rng.uniform(-2, 2, 6), rng.normal(size=(6, 3)), rng.normal(size=(3, 5))
    out = run(Lineax(lx.SVD(rcond=1e-4)), case[0][:, None] * (case[1] @ case[2]))
    assert_close(out.matrix, exact_pinv(*case), 1e-10)


def test_arguments():
    for bad in (0.0, -1e-3, 1.0, np.nan, "small"):
        with pytest.raises(InputError, match="rcond"):
            GramSchmidt(rcond=bad)
    assert (SVD().threshold(jnp.float64), SVD().threshold(jnp.float32)) == (1e-4, 0.03)
    assert SVD(rcond=1e-3).squared(jnp.float32) == SVD(rcond=1e-6)
    assert hash(SVD()) == hash(SVD())
    for bad in (
        jnp.zeros(3),
        jnp.zeros((2, 3, 4)),
        jnp.zeros((2, 2), int),
        jnp.zeros((2, 2), bool),
    ):
        with pytest.raises(InputError, match="matrix"):
            pinv(bad, SVD())
    assert as_pseudoinverse(SVD()) == SVD()
    with pytest.raises(InputError, match="GramSchmidt"):
        as_pseudoinverse("svd")


@by_name(
    "method",
    [x if x is GramSchmidt else pytest.param(x, marks=pytest.mark.slow) for x in RANK_SAFE],
    ids=lambda m: m.__name__,
)
def test_complex_matrices(method):
    """Against NumPy: of full rank, of rank two, Hermitian and none; and Penrose's conditions with conjugates."""
    rng = np.random.default_rng(0)
    drawn = lambda *shape: rng.normal(size=shape) + 1j * rng.normal(size=shape)
    full, low = drawn(3, 4), drawn(4, 2) @ drawn(2, 3)
    for B in (full, low, low @ low.conj().T, drawn(0, 2)):
        P, rank = (np.asarray(x) for x in dataclasses.astuple(run(method(), B)))
        np.testing.assert_allclose(P, np.linalg.pinv(B, rcond=1e-4), atol=1e-11)
        assert rank == (np.linalg.matrix_rank(B, tol=1e-4) if B.size else 0)
        for X in (B @ P, P @ B):
            np.testing.assert_allclose(X, np.conj(X.T), atol=1e-11)


def test_derivatives_of_complex_inverses():
    """By the entries of B, which are complex, at constant rank: central differences."""
    rng = np.random.default_rng(1)
    B, dB = (rng.normal(size=(2, 3)) + 1j * rng.normal(size=(2, 3)) for _ in range(2))
    of = lambda s: pinv(jnp.asarray(B) + s * jnp.asarray(dB), GramSchmidt()).matrix
    h = 1e-5
    expected = (np.linalg.pinv(B + h * dB) - np.linalg.pinv(B - h * dB)) / (2 * h)
    np.testing.assert_allclose(jax.jvp(of, (0.0 + 0.0j,), (1.0 + 0.0j,))[1], expected, atol=1e-8)
