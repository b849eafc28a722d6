"""Hierarchies (Orsino 2017): operators by their defining equations, accelerations all at once, Kalman's filter."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from filterpy.kalman import KalmanFilter
from helpers import METHODS, central

import ukjax as uk
from ukjax._formula._acceleration import Equations
from ukjax._system._rows import Rows

N = 7
# What each level adds: how many random rows, and how many combinations of all rows so far. Those of two rows a level
# share what is compiled.
SHAPES = {
    "independent": ((2, 0), (2, 0), (2, 0)),
    "dependent on levels below": ((2, 0), (1, 1), (1, 1)),
    "nothing new": ((1, 1), (0, 2), (2, 0)),
    "determined": ((4, 0), (2, 1), (1, 1)),
    "one level": ((3, 2),),
}


def _levels(shape, seed=0) -> tuple[list[np.ndarray], np.ndarray, np.random.Generator]:
    """Rows of each level, and a point that satisfies A x = b at b = A x."""
    rng = np.random.default_rng([seed, len(shape)])
    levels, rows = [], np.zeros((0, N))
    for new, combined in shape:
        fresh = rng.normal(size=(new, N)) * rng.uniform(0.1, 10, size=(new, 1))
        rows = np.concatenate([rows, fresh])
        mixed = rng.normal(size=(combined, len(rows))) @ rows
        rows = np.concatenate([rows, mixed])
        levels.append(np.concatenate([fresh, mixed]))
    return levels, rng.normal(size=N), rng


def _stacked(levels):
    return [np.concatenate(levels[: k + 1]) for k in range(len(levels))]


def _equations(levels, x, rng, M=None) -> tuple[Equations, tuple[tuple[str, ...], ...]]:
    A = np.concatenate(levels)
    root = rng.normal(size=(N, N))
    M = root @ root.T + 2 * np.eye(N) if M is None else M
    names = [[f"c{k}[{i}]" if len(r) > 1 else f"c{k}" for i in range(len(r))] for k, r in enumerate(levels)]
    flat = tuple(name for level in names for name in level)
    b, zero = A @ x, np.zeros(len(A))
    rows = Rows(A, b, zero, zero, flat, ("acceleration",) * len(A))
    forces = (rng.normal(size=N) for _ in range(2))
    return Equations(M, *forces, rows), tuple((f"c{k}",) for k in range(len(levels)))


def _all_at_once(equations, m) -> np.ndarray:
    """a = M^-1/2 (a0 + H^+ (b - H a0)), H = A M^-1/2, with the symmetric root and SciPy's pseudoinverse."""
    M, A, b = (np.asarray(x) for x in (equations.M, equations.rows.A[:m], equations.rows.b[:m]))
    root = np.linalg.inv(scipy.linalg.sqrtm(M).real)
    free = root @ np.asarray(equations.Q + equations.c)
    H = A @ root
    return root @ (free + scipy.linalg.pinv(H, rtol=1e-9) @ (b - H @ free))


def _yielding(equations, R) -> tuple[np.ndarray, np.ndarray]:
    """a and the least multipliers of A a = b - R lambda and M a = Q + c + A^T lambda, of as many rows as R has."""
    A, b, m = equations.rows.A[: R.size], equations.rows.b[: R.size], R.size
    K = np.block([[equations.M, -A.T], [A, np.diag(R)]])
    solution = scipy.linalg.lstsq(K, np.concatenate([equations.Q + equations.c, b]), cond=1e-11)[0]
    a = solution[:-m]
    force = equations.M @ a - equations.Q - equations.c
    stiff = np.vstack([A.T, np.diag(R)])  # which determines those of rows that yield
    return a, scipy.linalg.pinv(stiff, rtol=1e-9) @ np.concatenate([force, b - A @ a])


@eqx.filter_jit
def _solve_levels(formula, equations):
    return formula.solve_levels(equations)


@eqx.filter_jit
def _solve(formula, equations):
    return formula.solve(equations)


def _in_numpy(x):
    """Arithmetic of tests needs no programs."""
    return jax.tree.map(np.asarray, x)


_enforce = eqx.filter_jit(uk.enforce_levels)
_pinv = eqx.filter_jit(uk.pinv)


def _close(found, expected, tolerance=1e-12):
    np.testing.assert_allclose(
        found, expected, rtol=0, atol=tolerance * (1 + np.abs(expected).max(initial=0))
    )


# The acceleration


CASES = [
    pytest.param(shape, "GramSchmidt", marks=pytest.mark.slow if shape == "determined" else ())
    for shape in SHAPES
]
CASES += [pytest.param("nothing new", "SVD", marks=pytest.mark.slow), ("determined", "Greville")]


@pytest.mark.parametrize(("shape", "method"), CASES)
def test_every_level_is_the_acceleration_all_at_once(shape, method):
    levels, x, rng = _levels(SHAPES[shape])
    equations, names = _equations(levels, x, rng)
    found, equations = _in_numpy(
        (_solve_levels(uk.Recursive(names, pinv=METHODS[method]), equations), equations)
    )
    for result, A in zip(found, _stacked(levels), strict=True):
        a = _all_at_once(equations, len(A))
        _close(result.a, a)
        assert int(result.rank) == np.linalg.matrix_rank(A, rtol=1e-9)
        force = equations.M @ a - equations.Q
        _close(result.constraint_force, force, 1e-11)
        _close(equations.rows.A.T @ result.multipliers + equations.c, force, 1e-10)
        least = scipy.linalg.pinv(A.T, rtol=1e-9) @ np.asarray(force - equations.c)
        _close(result.multipliers[: len(A)], least, 1e-10)
        _close(result.residual, equations.rows.A @ a - equations.rows.b, 1e-11)
        da = a - np.linalg.solve(equations.M, equations.Q + equations.c)
        _close(result.gauss, da @ equations.M @ da, 1e-11)


def test_the_last_level_is_the_formula_and_levels_default_to_constraints():
    levels, x, rng = _levels(SHAPES["dependent on levels below"])
    equations, names = _equations(levels, x, rng)
    expected = _solve_levels(uk.Recursive(names), equations)[-1]
    for formula in (uk.Recursive(names), uk.Recursive()):
        found = _solve(formula, equations)
        assert eqx.tree_equal(found, expected, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize(
    "order",
    [
        (("c1", "c2"), ("c0",)),
        *(
            pytest.param(x, marks=pytest.mark.slow)
            for x in ((("c2",), ("c0",), ("c1",)), (("c2", "c0", "c1"),))
        ),
    ],
)
def test_the_order_of_levels_does_not_matter_for_consistent_rows(order):
    levels, x, rng = _levels(SHAPES["dependent on levels below"])
    equations, _ = _equations(levels, x, rng)
    _close(_solve(uk.Recursive(order), equations).a, _all_at_once(equations, None))


@pytest.mark.parametrize("drift", [1e-12, 1e-8, 1e-6])
def test_a_row_that_depends_on_levels_below_but_for_drift_is_not_inverted(drift):
    levels, x, rng = _levels(((2, 0), (0, 2), (2, 0)))
    exact, names = _equations(levels, x, rng)
    drifted = eqx.tree_at(lambda e: e.rows.A, exact, exact.rows.A + drift * rng.normal(size=(6, N)))
    found = _solve_levels(uk.Recursive(names), drifted)
    assert [int(r.rank) for r in found] == [2, 2, 4]
    _close(found[-1].a, _solve(uk.Recursive(names), exact).a, 1e3 * drift)
    # With its redundant rows the drifted model is as near to that without them as the drift is small.
    _close(found[1].a, found[0].a, 1e-14)


@pytest.mark.parametrize("size", [1e-3, 1e-5])
def test_the_rank_is_decided_against_rows_of_unit_norm(size):
    """Two rows that add `size` and nearly the same: all at once, and level by level, the rank is the same."""
    rng = np.random.default_rng(0)
    e = np.linalg.qr(rng.normal(size=(N, N)))[0]
    first, second = e[:1], np.stack([e[0] + size * e[1], e[0] + size * e[1] + 1e-2 * size * e[2]])
    H, b = np.concatenate([first, second]), np.zeros(3)
    rank = int(_pinv(H, uk.GramSchmidt()).rank)
    found = _enforce(np.ones(N), [(H[:1], b[:1]), (H[1:], b[1:])])
    assert int(found[-1].rank) == rank
    assert rank == (2 if size > 1e-4 else 1)


def test_lower_levels_are_kept_where_rows_contradict_each_other():
    levels, x, rng = _levels(((2, 0), (2, 1)))
    equations, names = _equations(levels, x, rng, M=np.eye(N))
    b = equations.rows.b + np.eye(5)[-1]
    equations = eqx.tree_at(lambda e: e.rows.b, equations, b)
    found = _solve(uk.Recursive(names), equations)
    _close(found.residual[:2], np.zeros(2), 1e-12)
    # Among those x = x1 + Z y that keep the first level: least squares of the rest, least change.
    A, free = np.asarray(equations.rows.A), np.asarray(equations.Q + equations.c)
    Z = scipy.linalg.null_space(A[:2])
    x1 = free + np.linalg.pinv(A[:2]) @ (np.asarray(b)[:2] - A[:2] @ free)
    y = np.linalg.pinv(A[2:] @ Z, rcond=1e-9) @ (np.asarray(b)[2:] - A[2:] @ x1)
    _close(found.a, x1 + Z @ y, 1e-11)


def test_without_rows_it_is_the_free_acceleration():
    system = uk.System(2 * jnp.eye(3), jnp.arange(3.0))
    for levels in (None, ()):
        found = uk.Recursive(levels).acceleration(system, 0.0, jnp.zeros(3), jnp.zeros(3))
        np.testing.assert_allclose(found.a, np.arange(3.0) / 2)
        assert int(found.rank) == 0
        assert found.multipliers.shape == (0,)


# Modules


def _modular(seed, variables=((0, 2, 4), (1, 3, 5))):
    """Rows of two modules on two levels, then one level that couples them; M couples only within."""
    rng = np.random.default_rng(seed)
    constraints = []
    for rows in (1, 2):
        for own in variables:
            A = np.zeros((rows, N))
            A[:, own] = rng.normal(size=(rows, len(own)))
            constraints.append(A)
    constraints[3][1] = 2 * constraints[3][0] - constraints[1][0]  # depends on the level below
    M = np.diag(rng.uniform(1.0, 2.0, size=N))
    for own in variables:
        root = rng.normal(size=(len(own), len(own)))
        M[np.ix_(own, own)] += root @ root.T
    constraints.append(rng.normal(size=(2, N)))
    equations, _ = _equations(constraints, rng.normal(size=N), rng, M)
    levels = (("c0", "c1"), ("c2", "c3"), ("c4",))
    return equations, levels, [(variables[0], ("c0", "c2")), (variables[1], ("c1", "c3"))]


@pytest.mark.parametrize(
    "variables", [((0, 2, 4), (1, 3, 5)), pytest.param(((0, 2), (1, 3, 5, 6)), marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    "clearance", [None, *(pytest.param(x, marks=pytest.mark.slow) for x in (0.2, {"c1": 0.3, "c2": 0.1}))]
)
def test_modules_change_nothing(variables, clearance):
    """Identical ones, computed as a batch, and others; also where only some of the rows have a clearance."""
    equations, levels, modules = _modular(0, variables)
    found = _in_numpy(_solve_levels(uk.Recursive(levels, clearance, modules=modules), equations))
    equations = _in_numpy(equations)
    each = (
        clearance
        if isinstance(clearance, dict)
        else dict.fromkeys(("c0", "c1", "c2", "c3", "c4"), clearance or 0.0)
    )
    R = np.array([each.get(x.split("[")[0], 0.0) for x in equations.rows.names])
    for level, m in zip(found, (2, 6, 8), strict=True):
        a, multipliers = _yielding(equations, R[:m])
        _close(level.a, a)
        _close(level.constraint_force, equations.M @ a - equations.Q, 1e-11)
        _close(level.multipliers[:m], multipliers, 1e-10)
        rows = np.hstack([equations.rows.A[:m], np.diag(R[:m])])
        assert int(level.rank) == np.linalg.matrix_rank(rows, rtol=1e-9)


def test_rows_beyond_their_module_give_nan():
    equations, levels, modules = _modular(0)
    beyond = eqx.tree_at(lambda e: e.rows.A, equations, equations.rows.A + 0.1 * np.eye(8, N, 6))
    assert np.isnan(_solve_levels(uk.Recursive(levels, modules=modules), beyond)[-1].a).all()


LEGS = tuple(
    uk.hierarchy.Module(tuple(range(6 * k, 6 * k + 6)), (f"base pin {k + 1}", f"elbow {k + 1}"))
    for k in range(3)
)


def test_modules_are_found():
    """Of planar_3rrr the legs, which the level of elbows leaves apart."""
    problem = uk.models.planar_3rrr()
    assert uk.find_modules(problem, problem.system.levels) == LEGS


@pytest.mark.slow
def test_modules_of_a_mechanism_change_nothing():
    problem = uk.models.planar_3rrr()
    state = (problem.system, 0.0, problem.q0, problem.v0)
    a = uk.Recursive(problem.system.levels, modules=LEGS).acceleration(*state).a
    np.testing.assert_allclose(a, uk.UdwadiaKalaba().acceleration(*state).a, rtol=0, atol=1e-12)


def test_modules_that_are_refused():
    problem = uk.models.pendulum()
    (name,) = (c.name for c in problem.system.constraints)
    assert uk.find_modules(problem, ((name,),)) == ()
    for modules, message in (
        ([3], "a module is"),
        ([((0,), (name,)), ((0,), ())], "the velocity 0 twice"),
        ([((0,), (name,)), ((1,), (name,))], f"the constraint '{name}' twice"),
        ([((0, 1), ("pin",))], "modules name 'pin'"),
        ([((0, 2), (name,))], "there are 2"),
    ):
        with pytest.raises(uk.InputError, match=message):
            uk.Recursive(modules=modules).acceleration(problem.system, 0.0, problem.q0, problem.v0)


# Kalman's filter


def _filter(x, P, H, b, R):
    kalman = KalmanFilter(dim_x=x.size, dim_z=b.size)
    kalman.x, kalman.P = x[:, None], P
    kalman.update(b[:, None], R=np.diag(R) if R.ndim == 1 else R, H=H)
    return kalman.x[:, 0], kalman.P


@pytest.mark.parametrize("R", [1.0, 1e-3])
@pytest.mark.parametrize(
    "shape", [pytest.param("independent", marks=pytest.mark.slow), "dependent on levels below", "determined"]
)
def test_clearances_are_the_measurement_noise_of_a_kalman_filter(shape, R):
    levels, x, rng = _levels(SHAPES[shape])
    pairs = [(A, A @ x + rng.normal(size=len(A))) for A in levels]
    noise = [R * rng.uniform(0.5, 2.0, size=len(A)) for A in levels]
    state = (rng.normal(size=N), np.eye(N))
    found = _enforce(state[0], pairs, noise)
    for result, (A, b), r in zip(found, pairs, noise, strict=True):
        state = _filter(*state, A, b, r)
        _close(result.x, state[0], 1e-9)
        _close(result.P, state[1], 1e-10)
        _close(result.P, result.P.T, 1e-15)
        assert np.linalg.eigvalsh(result.P).min() > -1e-14


@pytest.mark.parametrize("missing", [0, 1])
def test_correlated_clearances_are_those_of_a_kalman_filter(missing):
    """A covariance of full rank, and one that lacks a direction."""
    levels, x, rng = _levels(SHAPES["independent"])
    pairs = [(A, A @ x + rng.normal(size=len(A))) for A in levels]
    factors = [rng.normal(size=(len(A), len(A) - missing)) for A in levels]
    noise, state = [S @ S.T for S in factors], (rng.normal(size=N), np.eye(N))
    found = _enforce(state[0], pairs, noise)
    for result, (A, b), R in zip(found, pairs, noise, strict=True):
        state = _filter(*state, A, b, R)
        _close(result.x, state[0], 1e-9)
        _close(result.P, state[1], 1e-10)


@pytest.mark.slow
def test_correlated_clearances_of_a_system():
    """A a = b - R lambda by LAPACK, R with entries between levels too; and by name those of a constraint's rows."""
    levels, x, rng = _levels(SHAPES["independent"])
    equations, names = _equations(levels, x, rng)
    A, m = np.asarray(equations.rows.A), len(equations.rows.A)
    S = rng.normal(size=(m, m))
    R = S @ S.T
    right = np.concatenate([equations.Q + equations.c, equations.rows.b])
    by_lapack = lambda R: np.linalg.solve(np.block([[np.asarray(equations.M), -A.T], [A, R]]), right)
    found = _solve(uk.Recursive(names, jnp.asarray(R)), equations)
    _close(found.a, by_lapack(R)[:N], 1e-10)
    _close(found.multipliers, by_lapack(R)[N:], 1e-10)
    rows, alone = range(len(levels[0]), len(levels[0]) + len(levels[1])), np.zeros((m, m))
    alone[np.ix_(rows, rows)] = R[np.ix_(rows, rows)]
    found = _solve(uk.Recursive(names, {"c1": jnp.asarray(R[np.ix_(rows, rows)])}), equations)
    _close(found.a, by_lapack(alone)[:N], 1e-10)


@pytest.mark.parametrize("R", [[[1.0, 2.0], [2.0, 1.0]], [[1.0, 0.5], [0.0, 1.0]], [[1.0, 0.0]]])
def test_clearances_that_are_no_covariance(R):
    with pytest.raises(uk.InputError, match="symmetric, positive semidefinite"):
        uk.Recursive(None, jnp.asarray(R))


def test_noiseless_measurements_and_exact_rows_are_the_same():
    levels, x, rng = _levels(SHAPES["independent"])
    state = (rng.normal(size=N), np.eye(N))
    pairs = [(A, A @ x) for A in levels]
    found = _enforce(state[0], pairs)
    also = _enforce(state[0], pairs, [0.0] * len(pairs))
    for result, zero, (A, b) in zip(found, also, pairs, strict=True):
        state = _filter(*state, A, b, np.zeros(len(A)))
        for one in (result, zero):
            _close(one.x, state[0], 1e-11)
            _close(one.P, state[1], 1e-11)


def test_exact_and_yielding_levels_mix_in_any_order():
    levels, x, rng = _levels(SHAPES["independent"])
    pairs = [(A, A @ x + rng.normal(size=len(A))) for A in levels]
    state = (rng.normal(size=N), np.eye(N))
    found = _enforce(state[0], pairs, [None, 0.3, None])
    for result, (A, b), r in zip(found, pairs, (0.0, 0.3, 0.0), strict=True):
        state = _filter(*state, A, b, np.full(len(A), r))
        _close(result.x, state[0], 1e-11)
        _close(result.P, state[1], 1e-11)


@pytest.mark.parametrize(
    "shape", [pytest.param("dependent on levels below", marks=pytest.mark.slow), "nothing new"]
)
def test_vanishing_clearance_is_exact_enforcement(shape):
    levels, x, rng = _levels(SHAPES[shape])
    equations, names = _equations(levels, x, rng)
    expected = _all_at_once(equations, None)
    errors = [
        np.abs(_solve(uk.Recursive(names, jnp.asarray(R)), equations).a - expected).max()
        for R in (1e-4, 1e-6, 1e-12, 0.0)
    ]
    assert errors[1] < 0.02 * errors[0]
    assert errors[2] < 1e-7
    assert errors[3] < 1e-11


@pytest.mark.slow
def test_a_clearance_is_an_acceleration_error_per_force():
    """A a = b - R lambda and M a = Q + c + A^T lambda, solved at once by LAPACK; redundant rows included."""
    levels, x, rng = _levels(SHAPES["dependent on levels below"])
    equations, names = _equations(levels, x, rng)
    A, m = np.asarray(equations.rows.A), len(equations.rows.A)
    R = rng.uniform(0.1, 1.0, size=m)
    K = np.block([[np.asarray(equations.M), -A.T], [A, np.diag(R)]])
    right = np.concatenate([equations.Q + equations.c, equations.rows.b])
    solution = np.linalg.solve(K, right)
    found = _solve(uk.Recursive(names, jnp.asarray(R)), equations)
    _close(found.a, solution[:N])
    _close(found.multipliers, solution[N:], 1e-11)
    _close(found.residual, -R * solution[N:], 1e-11)
    by_name = {
        f"c{k}": R[i : i + len(rows)] for k, (i, rows) in enumerate(zip((0, 2, 4), levels, strict=True))
    }
    _close(_solve(uk.Recursive(names, by_name), equations).a, solution[:N])
    some = _solve(uk.Recursive(names, {"c1": 0.5}), equations)
    _close(some.residual[:2], np.zeros(2), 1e-11)
    _close(some.residual[2:4], -0.5 * some.multipliers[2:4], 1e-11)


# Operators


@jax.jit
def _operators(levels):
    return tuple(f(levels) for f in (uk.orthogonal_projectors, uk.one_four_inverses, uk.orthonormal_rows))


_null_space_bases = eqx.filter_jit(uk.null_space_bases)


@pytest.mark.parametrize(
    "shape",
    [pytest.param(s, marks=pytest.mark.slow if s in ("independent", "determined") else ()) for s in SHAPES],
)
def test_projectors_inverses_and_bases_satisfy_their_equations(shape):
    levels = _levels(SHAPES[shape])[0]
    ranks = [np.linalg.matrix_rank(A, rtol=1e-9).item() for A in _stacked(levels)]
    bases = _null_space_bases(levels, ranks=tuple(np.diff(ranks, prepend=0).tolist()))
    found = _in_numpy((*_operators(levels), bases))
    for A, S, inverse, rows, basis in zip(_stacked(levels), *found, strict=True):
        rank = np.linalg.matrix_rank(A, rtol=1e-9)
        _close(S, np.eye(N) - scipy.linalg.pinv(A, rtol=1e-9) @ A)
        _close(S, S.T, 1e-15)
        _close(S @ S, S)
        _close(A @ S, np.zeros_like(A), 1e-11)
        assert inverse.shape == A.T.shape
        _close(A @ inverse @ A, A, 1e-10)
        _close(inverse @ A, (inverse @ A).T, 1e-11)
        if rank == len(A):
            _close(inverse, np.linalg.pinv(A), 1e-11)
        assert basis.shape == (N, N - rank)
        _close(basis.T @ basis, np.eye(N - rank))
        _close(basis @ basis.T, S)
        norms = np.linalg.norm(rows, axis=1)
        assert np.sum(norms > 0) == rank
        _close(rows @ rows.T, np.diag((norms > 0).astype(float)))
        _close(np.eye(N) - rows.T @ rows, S)


def test_orthonormal_rows_of_levels_below_stay():
    levels = _levels(SHAPES["dependent on levels below"])[0]
    low, middle, high = _in_numpy(_operators(levels)[2])
    np.testing.assert_array_equal(middle[: len(low)], low)
    np.testing.assert_array_equal(high[: len(middle)], middle)


def test_null_space_bases_under_jit_need_ranks():
    levels = _levels(SHAPES["one level"])[0]
    with pytest.raises(uk.InputError, match="give `ranks`"):
        jax.jit(uk.null_space_bases)(levels)
    found = _null_space_bases(levels, ranks=(3,))
    for S, expected in zip(found, uk.null_space_bases(levels), strict=True):
        np.testing.assert_allclose(S, expected, atol=1e-13)


@pytest.mark.parametrize("method", ["SVD", "CompleteOrthogonal", "lineax.SVD"])
def test_operators_by_every_method(method):
    levels = _levels(SHAPES["independent"])[0]
    S = uk.orthogonal_projectors(levels, METHODS[method])[-1]
    _close(S, np.eye(N) - np.linalg.pinv(np.concatenate(levels)) @ np.concatenate(levels), 1e-11)


def test_projectors_are_differentiable_at_constant_rank():
    levels, _, rng = _levels(SHAPES["dependent on levels below"])
    turn = rng.normal(size=(N, N))

    def turned(s):
        R = jnp.eye(N) + s * turn
        S = uk.orthogonal_projectors([jnp.asarray(A) @ R for A in levels])[-1]
        return jnp.sum(S * jnp.asarray(turn))

    @jax.jit
    def both(s):
        return *jax.value_and_grad(turned)(s), jax.jvp(turned, (s,), (1.0,))[1]

    expected = central(lambda s: both(s)[0])
    np.testing.assert_allclose(both(0.0)[1:], [expected, expected], rtol=1e-8)


# Transformations, and what is refused


def _problem_at(seed):
    problem = uk.models.slider_crank()
    formula = uk.Recursive((("ground pin", "crank pin"), ("wrist pin, second bearing", "wrist pin"),
                            ("slider guide height", "slider guide angle")))  # fmt: skip
    angles = jnp.asarray(np.random.default_rng(seed).uniform(0.2, 1.2, size=4))
    return problem.system, formula, angles


@pytest.mark.slow
@pytest.mark.parametrize("clearance", [None, 0.05])
def test_jit_vmap_and_grad(clearance):
    system, formula, angles = _problem_at(0)
    formula = uk.Recursive(formula.levels, clearance)

    def acceleration(angle):
        q, v = system.state(angle, 2.0)
        return formula.acceleration(system, 0.0, q, v).a

    alone = jnp.stack([acceleration(angle) for angle in angles])
    np.testing.assert_allclose(jax.vmap(acceleration)(angles), alone, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(jax.jit(acceleration)(angles[0]), alone[0], rtol=1e-11, atol=1e-11)
    expected = central(lambda s: acceleration(angles[0] + s))
    np.testing.assert_allclose(jax.jacfwd(acceleration)(angles[0]), expected, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(jax.jacrev(acceleration)(angles[0]), expected, rtol=1e-7, atol=1e-7)


def test_derivative_by_the_clearance():
    levels, x, rng = _levels(SHAPES["dependent on levels below"])
    equations, names = _equations(levels, x, rng)
    norm = lambda R: jnp.sum(_solve(uk.Recursive(names, jnp.asarray(R)), equations).a ** 2)
    both = jax.jit(jax.value_and_grad(norm))
    np.testing.assert_allclose(both(0.3)[1], central(lambda s: both(0.3 + s)[0]), rtol=1e-8)


def test_recursive_levels_of_a_problem():
    problem = uk.models.parallelogram(start="spinning")
    names = [c.name for c in problem.system.constraints]
    formula = uk.Recursive((names[:3], names[3:]))
    found = uk.recursive_levels(problem, formula=formula)
    assert [int(r.rank) for r in found] == [6, 11]
    whole = uk.UdwadiaKalaba().acceleration(problem.system, 0.0, problem.q0, problem.v0)
    np.testing.assert_allclose(found[-1].a, whole.a, atol=1e-12)
    system = uk.at_level(problem.system, formula.levels, 1)
    part = uk.UdwadiaKalaba().acceleration(system, 0.0, problem.q0, problem.v0)
    np.testing.assert_allclose(found[0].a, part.a, atol=1e-12)
    assert [c.name for c in system.constraints] == names[:3]
    with pytest.raises(uk.InputError, match="formula must be a Recursive"):
        uk.recursive_levels(problem, formula=uk.UdwadiaKalaba())  # pyright: ignore


def test_what_is_refused():
    problem = uk.models.pendulum()
    (name,) = (c.name for c in problem.system.constraints)

    def accelerate(*args):
        uk.Recursive(*args).acceleration(problem.system, 0.0, problem.q0, problem.v0)

    accelerate(((name,),))
    accelerate((name,), {name: 0.1})
    with pytest.raises(uk.InputError, match="names 'pin', which is no constraint"):
        accelerate((("pin",),))
    with pytest.raises(uk.InputError, match=f"leaves out the constraint '{name}'"):
        accelerate(((),))
    with pytest.raises(uk.InputError, match=f"'{name}' twice"):
        accelerate(((name,), (name,)))
    with pytest.raises(uk.InputError, match="not 3"):
        accelerate(((3,),))
    with pytest.raises(uk.InputError, match="negative"):
        accelerate(None, -1.0)
    with pytest.raises(uk.InputError, match="clearance names 'bar'"):
        accelerate(None, {"bar": 1.0})
    with pytest.raises(uk.InputError, match="shape"):
        accelerate(None, jnp.ones(3))
    with pytest.raises(uk.InputError, match="levels names 'pin'"):
        uk.at_level(problem.system, (("pin",),), 1)
    with pytest.raises(uk.InputError, match="between 0 and 1"):
        uk.at_level(problem.system, ((name,),), 2)
    for levels in ([], [np.ones(3)], [np.ones((1, 3)), np.ones((1, 2))]):
        with pytest.raises(uk.InputError, match="level"):
            uk.orthogonal_projectors(levels)
    with pytest.raises(uk.InputError, match="ranks has 2 entries"):
        uk.null_space_bases([np.ones((1, 3))], ranks=(1, 1))
    with pytest.raises(uk.InputError, match="pair"):
        uk.enforce_levels(jnp.ones(3), [(jnp.ones((1, 3)), jnp.ones(2))])
    with pytest.raises(uk.InputError, match="clearances has 2 entries"):
        uk.enforce_levels(jnp.ones(3), [(jnp.ones((1, 3)), jnp.ones(1))], [None, None])


def test_constraints_whose_names_end_in_brackets():
    names = ("x[0]", "x[1]")
    rows = [uk.Nonholonomic(lambda t, q, v, i=i: v[i], name=name) for i, name in enumerate(names)]
    system = uk.System(jnp.eye(3), jnp.ones(3), rows)
    found = uk.Recursive(((names[1],), (names[0],))).acceleration(system, 0.0, jnp.zeros(3), jnp.zeros(3))
    np.testing.assert_allclose(found.a, [0, 0, 1])


@pytest.mark.parametrize("shape", ["independent", "dependent on levels below", "nothing new"])
def test_oblique_projectors(shape):
    """Onto the kernel, along what T says: I - A^g A with A A^g A = A, and symmetric in the metric of M."""
    levels, _, rng = _levels(SHAPES[shape])
    T = rng.normal(size=(N, N)) + 4 * np.eye(N)
    M = np.linalg.inv(T @ T.T)
    for A, Y in zip(_stacked(levels), _in_numpy(uk.oblique_projectors(levels, T)), strict=True):
        inverse = T @ np.linalg.pinv(A @ T, rcond=1e-9)
        np.testing.assert_allclose(A @ inverse @ A, A, atol=1e-9)
        np.testing.assert_allclose(Y, np.eye(N) - inverse @ A, atol=1e-9)
        np.testing.assert_allclose(Y @ Y, Y, atol=1e-9)
        np.testing.assert_allclose(M @ Y, (M @ Y).T, atol=1e-9)


def test_oblique_projectors_refuse_a_root():
    A = jnp.ones((1, 3))
    with pytest.raises(uk.InputError, match="root has shape"):
        uk.oblique_projectors([A], jnp.eye(2))
    with pytest.raises(uk.InputError, match="root is singular"):
        uk.oblique_projectors([A], jnp.ones((3, 3)))
