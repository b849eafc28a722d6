"""Accelerations of `UdwadiaKalaba` and `Schur` against textbook formulas in numpy, and their principles.

Of every model: test_every_model.py.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import oracles
import pytest
import scipy.linalg
import scipy.stats
from helpers import (
    METHODS,
    OWN_METHODS,
    RANK_DEFICIENT,
    central,
    primitives,
    random_equations,
    textbook,
)

import ukjax as uk
from ukjax._formula._acceleration import equations_of_motion, least_multipliers

FORMULAS = {"UdwadiaKalaba": uk.UdwadiaKalaba, "Schur": uk.Schur}
# m rows, n velocities, rank, consistent; few shapes, so that what is compiled is shared
CASES = {
    "independent": (4, 6, 4, True),
    "redundant": (4, 6, 2, True),
    "redundant, inconsistent": (4, 6, 2, False),
    "more rows than velocities": (6, 4, 4, True),
    "more rows than velocities, inconsistent": (6, 4, 3, False),
    "rows of zeros": (4, 6, 0, True),
    "no rows": (0, 6, 0, True),
}
TOLERANCE = {"UdwadiaKalaba": 1e-12, "Schur": 1e-11}


def _accelerate(formula, equations):
    zeros = jnp.zeros(equations.Q.size)
    return formula.acceleration(equations.system(), 0.0, zeros, zeros)


def _agrees(computed, equations, tolerance):
    M, Q, A, b, c, _ = equations
    expected = textbook(M, Q, A, b, c)
    size = {"rtol": tolerance, "atol": 10 * tolerance * (1 + np.abs(expected.a).max())}
    np.testing.assert_allclose(computed.a, expected.a, **size)
    np.testing.assert_allclose(computed.constraint_force, expected.constraint_force, **size)
    np.testing.assert_allclose(computed.multipliers, expected.multipliers, **size)
    np.testing.assert_allclose(computed.residual, A @ expected.a - b, **size)
    assert computed.rank == equations.rank == expected.rank
    free = np.linalg.solve(M, Q + c)
    gauss = (expected.a - free) @ M @ (expected.a - free)
    np.testing.assert_allclose(computed.gauss, gauss, rtol=100 * tolerance, atol=100 * tolerance)


@pytest.mark.parametrize("condition", [2.0, 8.0, 50.0, 2e3])
def test_rounding_grows_by_the_condition_of_the_rows_and_not_by_its_square(condition):
    """Of four rows on six masses, solved once or refined: beside 40 digits."""
    random = np.random.default_rng(5)
    U, V = (scipy.stats.ortho_group.rvs(n, random_state=random) for n in (4, 6))
    masses, Q = np.array([1.0, 2.0, 3.0, 1.0, 2.0, 3.0]), random.normal(size=6)
    A = U @ np.diag(np.geomspace(1.0, 1 / condition, 4)) @ V[:4]
    phi = lambda t, q: jnp.asarray(A) @ q - 0.5 * jnp.sum(q**2) * jnp.arange(4.0)
    system = uk.System(jnp.diag(jnp.asarray(masses)), lambda t, q, v: jnp.asarray(Q), [uk.Holonomic(phi)])
    v = random.normal(size=6)
    a = uk.lanes(system)(0.0, jnp.zeros((1, 6)), jnp.asarray(v)[None])[0]
    with mpmath.workdps(40):
        M, J = mpmath.diag(masses.tolist()), mpmath.matrix(A.tolist())
        b = mpmath.matrix([k * sum(mpmath.mpf(x) ** 2 for x in v) for k in range(4)])
        free = mpmath.matrix(Q.tolist())
        W = J * M**-1
        exact = M**-1 * free + W.T * mpmath.lu_solve(W * J.T, b - W * free)
        error = max(abs(x - y) for x, y in zip(exact, a.tolist(), strict=True)) / max(map(abs, exact))
    assert error < 10 * np.finfo(float).eps * condition


# What a formula makes of a method is the same for all: with the second, some will do.
WITH_SCHUR = ("Greville", "GramSchmidt", "Cholesky", "lineax.SVD")
BY_METHODS = [
    pytest.param(
        formula, method, marks=pytest.mark.slow if formula == "Schur" and method not in WITH_SCHUR else ()
    )
    for formula in FORMULAS
    for method in METHODS
]


@pytest.mark.parametrize(("formula", "method"), BY_METHODS)
def test_equals_the_textbook(formula, method):
    """a, Q_c = M a - Q, least-norm multipliers, rank, residual and Gauss's functional, by every method."""
    compute = FORMULAS[formula](METHODS[method])
    for name, case in CASES.items():
        if (method == "Cholesky" and case[0] != case[2]) or (name == "no rows" and method != "SVD"):
            continue
        for seed in range(3):
            equations = random_equations(seed, *case[:3], consistent=case[3])
            computed = _accelerate(compute, equations)
            _agrees(computed, equations, TOLERANCE[formula])
            force = equations.M @ computed.a - equations.Q
            np.testing.assert_allclose(computed.constraint_force, force, atol=1e-10)


@pytest.mark.parametrize("formula", FORMULAS)
def test_nonideal_force_equals_the_textbook(formula):
    """Liu 2015, eqs. (12)-(13): Q_c gains M^1/2 (I - B^+ B) M^-1/2 c, whose virtual work is that of c."""
    for case in CASES.values():
        equations = random_equations(7, *case[:3], consistent=case[3], ideal=False)
        computed = _accelerate(FORMULAS[formula](), equations)
        _agrees(computed, equations, TOLERANCE[formula])
        virtual = equations.kernel.T
        np.testing.assert_allclose(
            virtual @ np.asarray(computed.constraint_force), virtual @ equations.c, atol=1e-11
        )


@pytest.mark.parametrize("method", METHODS)
def test_rows_scaled_by_their_units(method):
    """Consistent rows in mm, m and km mean the same motion at the same rank."""
    rank = 4 if method == "Cholesky" else 3
    equations = random_equations(3, 4, 6, rank)
    scale = np.array([1e-3, 1.0, 1e3, 1e3])
    scaled = equations._replace(A=scale[:, None] * equations.A, b=scale * equations.b)
    first, second = (_accelerate(uk.UdwadiaKalaba(METHODS[method]), e) for e in (equations, scaled))
    np.testing.assert_allclose(second.a, first.a, atol=1e-8)
    np.testing.assert_allclose(second.constraint_force, first.constraint_force, atol=1e-8)
    assert second.rank == first.rank == rank


@pytest.mark.parametrize("formula", FORMULAS)
def test_kkt(formula):
    """[M, -A^T; A, 0] (a, lambda) = (Q, b) by a direct solve, where its solution is unique."""
    M, Q, A, b, _, _ = equations = random_equations(5, 4, 6, 4)
    matrix = np.block([[M, -A.T], [A, np.zeros((4, 4))]])
    solution = np.linalg.solve(matrix, np.concatenate([Q, b]))
    computed = _accelerate(FORMULAS[formula](), equations)
    np.testing.assert_allclose(computed.a, solution[:6], atol=1e-11)
    np.testing.assert_allclose(computed.multipliers, solution[6:], atol=1e-11)


@pytest.mark.parametrize("formula", FORMULAS)
@pytest.mark.parametrize("case", [name for name, c in CASES.items() if c[3] and c[1] > c[2]])
def test_gauss_and_dalembert(formula, case):
    """No feasible acceleration comes nearer to the free one; the constraint force does no virtual work."""
    equations = random_equations(11, *CASES[case][:3])
    M, Q, A, b = equations[:4]
    computed = _accelerate(FORMULAS[formula](), equations)
    a, free = np.asarray(computed.a), np.linalg.solve(M, Q)
    np.testing.assert_allclose(A @ a, b, atol=1e-11)
    np.testing.assert_allclose(equations.kernel.T @ np.asarray(computed.constraint_force), 0.0, atol=1e-11)
    rng = np.random.default_rng(0)
    for size in (1e-3, 1.0, 1e3):
        for _ in range(20):
            other = a + equations.kernel @ rng.normal(size=equations.kernel.shape[1]) * size
            gap = (other - free) @ M @ (other - free) - computed.gauss
            step = (other - a) @ M @ (other - a)
            assert gap > 0
            np.testing.assert_allclose(gap, step, rtol=1e-6)  # Pythagoras in the mass metric


# Transformations, on the parallelogram: 12 rows of rank 11

THETA, RATE = 0.7, 1.3
PARALLELOGRAM = uk.models.parallelogram().system


def _a(formula, system, q, v):
    return formula.acceleration(system, jnp.zeros(()), q, v).a


def _states(thetas):
    return tuple(
        jnp.asarray(np.array(x))
        for x in zip(*(oracles.parallelogram_state(x, RATE) for x in thetas), strict=True)
    )


@pytest.mark.parametrize(
    "method",
    [
        pytest.param(x, marks=() if x in ("GramSchmidt", "lineax.SVD") else pytest.mark.slow)
        for x in RANK_DEFICIENT
    ],
)
def test_jit_and_vmap(method):
    """Batches of redundant rows, against the closed form of the one degree of freedom."""
    q, v, a = _states(np.linspace(-1.2, 4.0, 7) + 0.1)
    batched = jax.jit(jax.vmap(lambda q, v: _a(uk.UdwadiaKalaba(METHODS[method]), PARALLELOGRAM, q, v)))
    np.testing.assert_allclose(batched(q, v), a, atol=1e-9)


@pytest.mark.parametrize(
    ("formula", "method"),
    [
        pytest.param("Schur", "CompleteOrthogonal", marks=pytest.mark.slow),
        pytest.param("UdwadiaKalaba", "SVD", marks=pytest.mark.slow),
        ("UdwadiaKalaba", "GramSchmidt"),
    ],
)
def test_derivative_along_the_motion(formula, method):
    """jvp and vjp of a by (q, v), in the direction of theta, against differences of the closed form.

    Every method has the same derivative rule; of each on its own: test_pseudoinverse_derivative.py.
    """
    compute = FORMULAS[formula](METHODS[method])
    q, v, _ = (jnp.asarray(x) for x in oracles.parallelogram_state(THETA, RATE))
    dq, dv, da = (
        jnp.asarray(central(lambda s, i=i: oracles.parallelogram_state(THETA + s, RATE)[i])) for i in range(3)
    )
    weights = jnp.asarray(np.random.default_rng(0).normal(size=12))

    @jax.jit
    def both(q, v):
        forward = jax.jvp(lambda q, v: _a(compute, PARALLELOGRAM, q, v), (q, v), (dq, dv))[1]
        back = jax.vjp(lambda q, v: _a(compute, PARALLELOGRAM, q, v), q, v)[1](weights)
        return forward, back

    forward, (back_q, back_v) = both(q, v)
    np.testing.assert_allclose(forward, da, atol=1e-8)
    np.testing.assert_allclose(back_q @ dq + back_v @ dv, weights @ da, atol=1e-8)


@pytest.mark.parametrize("formula", ["UdwadiaKalaba", pytest.param("Schur", marks=pytest.mark.slow)])
def test_derivative_by_parameters(formula):
    """By the masses, inertias and gravity, in both modes, against central differences."""
    q, v, _ = (jnp.asarray(x) for x in oracles.parallelogram_state(THETA, RATE))
    names = ("mass", "inertia", "coupler_mass", "coupler_inertia", "gravity")
    values = jnp.asarray([1.0, 0.1, 2.0, 0.2, 9.81])

    def a(values):
        system = eqx.tree_at(lambda s: [getattr(s, x) for x in names], PARALLELOGRAM, list(values))
        return _a(FORMULAS[formula](), system, q, v)

    both = jax.jit(lambda values: (a(values), jax.jacfwd(a)(values), jax.jacrev(a)(values)))
    _, forward, backward = both(values)
    for i, step in enumerate(np.eye(5)):
        expected = central(lambda s, step=step: both(values + s * step)[0])
        np.testing.assert_allclose(forward[:, i], expected, atol=1e-8)
        np.testing.assert_allclose(backward[:, i], expected, atol=1e-8)


def test_derivative_of_inconsistent_rows():
    """Of a = M^-1 Q + ... by A and b at constant rank 2, where no a satisfies the rows."""
    equations = random_equations(2, 4, 6, 2, consistent=False)
    rng = np.random.default_rng(1)
    K, L = (x - x.T for x in (rng.normal(size=(4, 4)), rng.normal(size=(6, 6))))
    dA, db = K @ equations.A + equations.A @ L, rng.normal(size=4)  # to first order a rotation: rank stays

    def along(s):
        A = scipy.linalg.expm(s * K) @ equations.A @ scipy.linalg.expm(s * L)
        return textbook(equations.M, equations.Q, A, equations.b + s * db).a

    def a(A, b):
        system = equations._replace(A=A, b=b).system()
        return uk.UdwadiaKalaba().acceleration(system, 0.0, jnp.zeros(6), jnp.zeros(6)).a

    primals = jnp.asarray(equations.A), jnp.asarray(equations.b)
    tangent = jax.jit(lambda *x: jax.jvp(a, *x)[1])(primals, (dA, db))
    np.testing.assert_allclose(tangent, central(along), atol=1e-8)


FORBIDDEN = ("callback", "svd", "qr", "eigh", "cholesky", "lu", "triangular_solve", "householder", "geqrf")


@pytest.mark.parametrize("formula", FORMULAS)
@pytest.mark.parametrize("method", OWN_METHODS)
def test_no_callback_and_no_lapack(formula, method):
    """Nothing in a small acceleration or its derivatives leaves XLA or runs LAPACK, which batches badly."""
    compute = FORMULAS[formula](METHODS[method])
    equations = random_equations(0, 12, 12, 11)

    def a(A, b):
        system, zeros = equations._replace(A=A, b=b).system(), jnp.zeros(equations.Q.size)
        return compute.solve(equations_of_motion(system, 0.0, zeros, zeros, uk.NoStabilizer())).a

    def derivatives(A, b):  # and with each the value
        return jax.jvp(a, (A, b), (A, b)), jax.vjp(a, A, b)[1](b)

    found = primitives(jax.make_jaxpr(derivatives)(jnp.asarray(equations.A), jnp.asarray(equations.b)))
    assert "dot_general" in found  # the walk looked inside
    assert not [p for p in found if any(p == x or x + "_" in p or "_" + x in p for x in FORBIDDEN)], found


def test_multipliers_of_least_norm_with_redundant_rows():
    """As NumPy's pinv has them, of rows of very different sizes; the derivative by differences of those."""
    rng = np.random.default_rng(3)
    sizes, kept = np.array([1.0, 30.0, 0.1, 2.0])[:, None], jnp.array([True, False, True, False])
    X, dX = np.eye(4)[:, [0, 2]], np.zeros((4, 2))
    X[[1, 3]], dX[[1, 3]] = rng.normal(size=(2, 2, 2))
    K, dK, mu = *rng.normal(size=(2, 2, 6)), rng.normal(size=2)
    rows = lambda s: sizes * ((X + s * dX) @ (K + s * dK))
    force = lambda s: (K + s * dK).T @ mu
    expected = lambda s: np.linalg.pinv(rows(s).T, rcond=1e-9) @ force(s)
    found = lambda s: least_multipliers(rows(s), force(s), kept)
    np.testing.assert_allclose(found(jnp.asarray(0.0)), expected(0.0), rtol=1e-11)
    slope = (expected(1e-5) - expected(-1e-5)) / 2e-5
    np.testing.assert_allclose(jax.jit(jax.jacfwd(found))(0.0), slope, rtol=1e-6, atol=1e-8)
