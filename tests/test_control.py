"""`uk.servo_control` and the closed loop, against closed forms and plain linear algebra in numpy."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from helpers import Given, Rows, central, primitives, random_equations, state

import ukjax as uk

TIGHT = {"rtol": 1e-11, "atol": 1e-12, "throw": True}
GAINS = uk.Baumgarte.squared(5.0, 5.0)


def _servo_rows(rng, s, n, rank):
    return rng.normal(size=(s, rank)) @ rng.normal(size=(rank, n))


def _given(A, b):
    return uk.AccelerationConstraint(Rows(jnp.asarray(A), jnp.asarray(b)), name="task")


def _effect(equations, B_u):
    """a = a0 + S u under the passive rows, by the KKT matrix of plain numpy."""
    M, Q, A, b, c, _ = equations
    n, m = Q.size, b.size
    kkt = np.block([[M, -A.T], [A, np.zeros((m, m))]])
    right = np.column_stack([np.concatenate([Q + c, b]), np.vstack([B_u, np.zeros((m, B_u.shape[1]))])])
    solved = scipy.linalg.lstsq(kkt, right, cond=1e-9)[0][:n]
    return solved[:, 0], solved[:, 1:]


def _fixed_point(equations, B_u, A_s, b_s):
    """Liu's u and Q_c, each by the other, as one linear system (steps 1 to 5 of section II)."""
    M, Q, A, b, _, _ = equations
    n, p = B_u.shape
    values, V = scipy.linalg.eigh(M)
    root, inverse_root = (V @ np.diag(values**power) @ V.T for power in (0.5, -0.5))
    B_plus = scipy.linalg.pinv(A @ inverse_root, rtol=1e-9)
    G_plus = scipy.linalg.pinv(A_s @ np.linalg.solve(M, B_u), rtol=1e-9)
    u_of_force = G_plus @ A_s @ np.linalg.inv(M)
    force_of_u = root @ B_plus @ A @ np.linalg.solve(M, B_u)
    system = np.block([[np.eye(p), u_of_force], [force_of_u, np.eye(n)]])
    free = np.linalg.solve(M, Q)
    right = np.concatenate([G_plus @ (b_s - A_s @ free), root @ B_plus @ (b - A @ free)])
    return np.split(np.linalg.solve(system, right), [p])


# Against numpy

CASES = {
    "fully actuated": (0, 0, 5, 5, 5, 5),
    "under-actuated": (0, 0, 6, 2, 2, 2),
    "redundant": (0, 0, 4, 6, 3, 3),
    "passive rows": (3, 3, 6, 5, 3, 3),
    "dependent passive rows": (3, 2, 6, 5, 3, 3),
    "dependent servo rows": (3, 2, 6, 5, 3, 2),
    "too many servo rows": (1, 1, 5, 2, 3, 3),
}  # passive rows, their rank, n, inputs, servo rows, their rank


@pytest.mark.parametrize("case", CASES)
def test_elimination_is_least_squares_of_least_norm(case):
    m, rank, n, p, s, servo_rank = CASES[case]
    equations = random_equations(7, m, n, rank, ideal=False)
    rng = np.random.default_rng([m, n, p, s])
    B_u, A_s = rng.normal(size=(n, p)), _servo_rows(rng, s, n, servo_rank)
    b_s = A_s @ rng.normal(size=n)
    a0, S = _effect(equations, B_u)
    u = scipy.linalg.lstsq(A_s @ S, b_s - A_s @ a0, cond=1e-9)[0]
    residual = A_s @ (a0 + S @ u) - b_s
    found = uk.servo_control(equations.system(), B_u, _given(A_s, b_s), 0.0, np.zeros(n), np.zeros(n))
    np.testing.assert_allclose(found.u, u, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(found.a, a0 + S @ u, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(found.residual, residual, atol=1e-10)
    assert int(found.rank) == np.linalg.matrix_rank(A_s @ S, rtol=1e-9)
    assert found.controllable
    assert found.realizable == (np.abs(residual).max() < 1e-9) == (case != "too many servo rows")
    force = equations.M @ (a0 + S @ u) - equations.Q - B_u @ u
    np.testing.assert_allclose(found.constraint_force, force, atol=1e-9)
    np.testing.assert_allclose(found.input_force, B_u @ u, atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_paper_formula_is_the_fixed_point(seed):
    equations = random_equations(seed, 3, 6, 2)
    rng = np.random.default_rng(seed)
    B_u, A_s, b_s = rng.normal(size=(6, 5)), rng.normal(size=(3, 6)), rng.normal(size=3)
    u, force = _fixed_point(equations, B_u, A_s, b_s)
    arguments = (equations.system(), B_u, _given(A_s, b_s), 0.0, np.zeros(6), np.zeros(6))
    paper, least = (uk.servo_control(*arguments, formula=x) for x in ("paper", "eliminate"))
    np.testing.assert_allclose(paper.u, u, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(paper.constraint_force, force, rtol=1e-8, atol=1e-9)
    assert paper.realizable
    assert jnp.linalg.norm(least.u) < jnp.linalg.norm(paper.u) - 1e-3
    np.testing.assert_allclose(A_s @ paper.a, b_s, atol=1e-9)
    np.testing.assert_allclose(equations.A @ paper.a, equations.b, atol=1e-9)


@pytest.mark.parametrize("kind", ["vector", "matrix"])
def test_weighted_least_norm(kind):
    equations = random_equations(3, 2, 5, 2)
    rng = np.random.default_rng(5)
    B_u, A_s, b_s = rng.normal(size=(5, 5)), rng.normal(size=(2, 5)), rng.normal(size=2)
    X = rng.normal(size=(5, 5))
    R = np.diag(rng.uniform(0.5, 3.0, 5)) if kind == "vector" else X @ X.T + np.eye(5)
    s = rng.normal(size=5)
    a0, S = _effect(equations, B_u)
    G, right = A_s @ S, b_s - A_s @ a0
    # min (u - s)^T R (u - s) under G u = right, by its own KKT matrix.
    kkt = np.block([[R, G.T], [G, np.zeros((2, 2))]])
    u = np.linalg.solve(kkt, np.concatenate([R @ s, right]))[:5]
    weight = np.diag(R) if kind == "vector" else R
    found = uk.servo_control(
        equations.system(),
        B_u,
        _given(A_s, b_s),
        0.0,
        np.zeros(5),
        np.zeros(5),
        free=Given(jnp.asarray(s)),
        weight=weight,
    )
    np.testing.assert_allclose(found.u, u, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("formula", ["eliminate", pytest.param("paper", marks=pytest.mark.slow)])
def test_free_vector_changes_the_inputs_but_not_the_motion(formula):
    equations = random_equations(4, 2, 5, 2)
    rng = np.random.default_rng(6)
    B_u, A_s, b_s = rng.normal(size=(5, 6)), rng.normal(size=(2, 5)), rng.normal(size=2)
    arguments = (equations.system(), B_u, _given(A_s, b_s), 0.0, np.zeros(5), np.zeros(5))
    without, given = (
        uk.servo_control(*arguments, formula=formula, free=s) for s in (None, rng.normal(size=6))
    )
    assert jnp.linalg.norm(without.u - given.u) > 0.1
    np.testing.assert_allclose(A_s @ given.a, b_s, atol=1e-10)
    a0, S = _effect(equations, B_u)
    np.testing.assert_allclose(A_s @ S @ (given.u - without.u), 0.0, atol=1e-10)
    np.testing.assert_allclose(a0 + S @ given.u, given.a, atol=1e-10)


# Two masses and a spring (Liu 2015, section IV)

APART = uk.Holonomic(lambda t, q: q[1] - q[0] - 1.0, name="apart")
PUSH = jnp.array([[1.0], [0.0]])


@pytest.mark.parametrize("x2", [1.0, 0.9])
def test_two_mass_spring(x2):
    closed = uk.with_servo(uk.models.two_mass_spring(x2=x2), PUSH, (APART,), stabilizer=GAINS)
    run = uk.simulate(closed, t1=2.0, stabilizer=uk.NoStabilizer(), **TIGHT, ts=41)
    u = np.asarray(jax.vmap(closed.system.control)(run.t, run.q, run.v))[:, 0]
    t, (x_1, x_2) = np.asarray(run.t), np.asarray(run.q).T
    error, decay = (x2 - 1.0) * (1 + 5 * t) * np.exp(-5 * t), (x2 - 1.0) * np.exp(-5 * t)
    np.testing.assert_allclose(x_2 - x_1 - 1.0, error, atol=1e-9)
    force = -(1 + 1 / 2) * 3.0 * (0.5 + error) - 25 * decay * (5 * t - 1)
    np.testing.assert_allclose(u, force, atol=1e-7)
    if x2 == 1.0:
        np.testing.assert_allclose(u, -2.25, atol=1e-9)
        np.testing.assert_allclose(x_2, 1.0 - 0.375 * t**2, atol=1e-9)


# What cannot be realized


def _cart_pole():
    """Cart [kg] and pole (a point on a massless rod, 1 m), pushed at the cart only."""
    lagrangian = lambda t, q, v: (
        0.5 * v[0] ** 2
        + 0.25 * (v[0] ** 2 + 2 * v[0] * v[1] * jnp.cos(q[1]) + v[1] ** 2)
        - 4.905 * jnp.cos(q[1])
    )
    return uk.lagrangian_system(lagrangian)


CART = uk.Holonomic(lambda t, q: q[0] - jnp.sin(t), name="cart")
POLE = uk.Holonomic(lambda t, q: q[1] - 0.2, name="pole")


@pytest.mark.parametrize("task", [(CART,), (POLE,), (CART, POLE)], ids=["cart", "pole", "both"])
def test_cart_pole(task):
    """M = [[1.5, c/2], [c/2, 1/2]] with c = cos(0.2), Q = (0, 4.905 sin(0.2)); one input, at the cart."""
    q = np.array([0.1, 0.2])
    found = uk.servo_control(_cart_pole(), PUSH, task, 0.5, q, np.zeros(2))
    M = np.array([[1.5, 0.5 * np.cos(0.2)], [0.5 * np.cos(0.2), 0.5]])
    rows = [("cart", [1.0, 0.0], -np.sin(0.5)), ("pole", [0.0, 1.0], 0.0)]
    names, A, b = zip(*(row for row in rows if row[0] in [c.name for c in task]), strict=True)
    a0, S = np.linalg.solve(M, [0.0, 4.905 * np.sin(0.2)]), np.linalg.solve(M, [1.0, 0.0])
    G, gap = (np.array(A) @ S)[:, None], np.array(b) - np.array(A) @ a0
    u = np.linalg.lstsq(G, gap, rcond=None)[0]
    np.testing.assert_allclose(found.u, u, rtol=1e-12)
    np.testing.assert_allclose(found.residual, G @ u - gap, atol=1e-12)
    assert found.names == names
    assert found.realizable == (len(task) == 1)
    assert ("Not realizable" in str(found)) == (len(task) == 2)


def test_rows_out_of_reach_are_named():
    """Three free masses, the first two pushed: what is asked of the third cannot be had, nor is it free."""
    system = uk.System(jnp.diag(jnp.array([1.0, 2.0, 4.0])), jnp.zeros(3))
    task = [
        uk.Holonomic(lambda t, q: q[0] - t**2, name="first"),
        uk.Holonomic(lambda t, q: q[2] - 3 * t**2, name="third"),
    ]
    arguments = system, np.eye(3)[:, :2], task, 0.0, np.zeros(3), np.zeros(3)
    found = uk.servo_control(*arguments)
    np.testing.assert_allclose(found.u, [2.0, 0.0])
    np.testing.assert_allclose(found.residual, [0.0, -6.0])
    assert found.realizable_rows.tolist() == [True, False]
    assert str(found).endswith("Not realizable: third misses its acceleration by -6.000e+00.")
    with pytest.raises(
        uk.InputError, match=r"(?s)cannot realize .* third misses its acceleration by -6.000e\+00"
    ):
        uk.servo_control(*arguments, throw=True)
    with pytest.raises(eqx.EquinoxRuntimeError, match="first, third"):
        eqx.filter_jit(lambda q: uk.servo_control(*arguments[:4], q, q, throw=True).u)(jnp.zeros(3))
    alone = uk.servo_control(system, np.eye(3)[:, :2], task[1], 0.0, np.zeros(3), np.zeros(3))
    assert not alone.controllable
    assert alone.rank == 0
    assert "No input acts on any servo row." in str(alone)


@pytest.mark.parametrize("formula", ["eliminate", "paper"])
def test_inputs_that_passive_rows_take_up_ask_for_nothing(formula):
    """One coordinate is fixed, but for some drift: servo rows on it ask for no huge inputs."""
    fixed = uk.Holonomic(lambda t, q: q[0] + 1e-9 * q[1], name="fixed")
    system = uk.System(jnp.eye(2) + 0.3, jnp.array([1.0, 2.0]), (fixed,))
    both = [
        uk.Holonomic(lambda t, q: q[0], name="again"),
        uk.Holonomic(lambda t, q: q[0] - t**2, name="moved"),
    ]
    found = uk.servo_control(system, jnp.eye(2), both, 0.0, np.zeros(2), np.zeros(2), formula=formula)
    assert jnp.abs(found.u).max() < 1e-6
    assert found.realizable_rows.tolist() == [True, False]
    assert abs(found.residual[1] + 2.0) < 1e-6


# SCARA

LOOP = uk.Holonomic(
    lambda t, q: jnp.stack(
        [
            -0.2 * jnp.sin(q[0]) - 0.25 * jnp.sin(q[0] + q[1]) - 0.06 * jnp.sin(t),
            0.2 * jnp.cos(q[0]) + 0.25 * jnp.cos(q[0] + q[1]) - 0.35 - 0.03 * jnp.sin(2 * t),
            q[0] + q[1] + q[2],
            q[3] - 0.1 * (1 - jnp.cos(t)),
        ]
    ),
    name="figure of eight",
)


def _free_scara():
    arm = uk.models.scara().system
    return arm, uk.System(arm.mass_matrix, arm.force, energy=arm.energy)


def test_torques_of_a_fully_actuated_arm_are_its_constraint_forces():
    """Xu-Liu's rows as servo rows: u is their constraint force, as published in shared/models.md at t = 0."""
    problem = uk.models.scara()
    arm, free = _free_scara()
    gains = uk.Baumgarte(0.5, 200.0)
    found = uk.servo_control(free, np.eye(4), arm.constraints, 0.0, problem.q0, problem.v0, stabilizer=gains)
    np.testing.assert_allclose(found.u, [13.0174926619, 6.0793177838, 0.0701612309, 4.900125], rtol=1e-9)
    np.testing.assert_allclose(found.constraint_force, 0.0, atol=1e-12)


@pytest.mark.slow
def test_arm_follows_a_path_by_its_torques():
    """A figure of eight, from a start up to 0.02 off it: the errors decay as the gains say."""
    free = _free_scara()[1]
    q = uk.project(
        uk.System(np.eye(4), np.zeros(4), (LOOP,)), 0.0, np.array([0.7, -1.3, 0.6, 0.0]), np.zeros(4)
    )[0]
    closed = uk.with_servo(free, jnp.eye(4), LOOP, stabilizer=GAINS)
    run = uk.simulate(
        closed,
        q + jnp.array([0.01, -0.01, 0.0, 0.02]),
        np.zeros(4),
        t1=4.0,
        ts=9,
        stabilizer=uk.NoStabilizer(),
        **TIGHT,
    )
    assert run.ok
    report = jax.vmap(closed.report)(run.t, run.q, run.v)
    assert report.realizable.all()
    psi, phi = np.array([-0.06, -0.06, 0.0, 0.0]), np.asarray(LOOP.fn(0.0, run.q[0]))
    t = np.asarray(run.t)[:, None]
    expected = (phi + (psi + 5 * phi) * t) * np.exp(-5 * t)
    errors = np.asarray(jax.vmap(LOOP.fn)(run.t, run.q))
    np.testing.assert_allclose(errors, expected, atol=1e-8)
    assert np.abs(errors[-1]).max() < 1e-8


# The closed loop keeps what is the system's own; transformations


def test_closed_loop_is_the_system_with_more_force():
    problem = uk.models.scara()
    system = uk.System(
        jnp.eye(2),
        jnp.array([0.0, -1.0]),
        (uk.Nonholonomic(lambda t, q, v: v[0] - v[1], name="skate"),),
        energy=lambda t, q, v: 0.5 * v @ v + q[1],
        nonideal_force=Given(jnp.array([0.3, 0.0])),
        kinematics=lambda t, q, v: jnp.concatenate([v, v[:1] * q[0]]),
    )
    task = uk.Nonholonomic(lambda t, q, v: v[1] - jnp.sin(t) * q[2], name="speed")
    closed = uk.with_servo(system, PUSH, task)
    t, q, v = 0.3, np.array([0.1, 0.2, 0.3]), np.array([0.4, 0.4])
    assert closed.constraints == system.constraints

    @jax.jit
    def told(*state):
        parts = [[getattr(s, name)(*state) for s in (closed, system)] for name in (*same, "force")]
        report, a = closed.report(*state), uk.UdwadiaKalaba().acceleration(closed, *state).a
        return parts, closed.control(*state), a, report.a

    same = ("kinematics", "energy", "nonideal_force")
    (*parts, forces), u, *accelerations = told(t, q, v)
    for one, other in parts:
        np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(forces[0] - forces[1], [u[0], 0.0])
    # speed: a[1] = cos(t) q3 + sin(t) q3', q3' = v1 q1; the skate makes a[0] the same
    expected = np.cos(0.3) * 0.3 + np.sin(0.3) * 0.4 * 0.1
    np.testing.assert_allclose(accelerations, np.full((2, 2), expected), rtol=1e-12)
    held = uk.with_servo(problem, jnp.eye(4), LOOP)
    assert held.reference is None
    assert held.name == "scara"


def _robots_u(mass, t, q, v, **options):
    robots = uk.models.coordinated_robots(mass=mass).system
    return uk.servo_control(robots, robots.input_matrix, robots.servo_constraints, t, q, v, **options).u


STATE = ([1.2, -0.7, 0.1, 0.8, -1.3], [0.4, -0.3, 0.2, 0.1, 0.5])


@pytest.mark.parametrize("formula", ["eliminate", pytest.param("paper", marks=pytest.mark.slow)])
def test_derivatives(formula):
    t, q, v = state(0.4, *STATE)
    direction = jnp.array([0.3, -0.2, 0.5, 0.1, -0.4])
    along = lambda s: _robots_u(1.0 + s, t + s, q + s * direction, v - s * direction, formula=formula)

    @jax.jit
    def derivatives(s):
        u, pull = jax.vjp(along, s)
        return u, jax.jvp(along, (s,), (1.0,))[1], pull(2 * u)[0]

    u, forward, gradient = derivatives(0.0)
    expected = central(lambda s: derivatives(s)[0])
    np.testing.assert_allclose(forward, expected, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(gradient, 2 * u @ expected, rtol=1e-7)


def test_batches_and_no_lapack():
    t, q, v = state(0.4, *STATE)
    weight = jnp.array([1.0, 2.0, 3.0, 1.0, 2.0, 3.0])
    u = lambda t, q, v: _robots_u(1.0, t, q, v, weight=weight)
    shifts = np.array([0.0, 0.1, -0.2])
    batch = jax.jit(jax.vmap(lambda s: u(t + s, q + s, v - s)))(shifts)
    single = [u(*(np.asarray(x) + s * sign for x, sign in ((t, 1), (q, 1), (v, -1)))) for s in shifts]
    np.testing.assert_allclose(batch, single, rtol=1e-12, atol=1e-12)
    used = primitives(jax.make_jaxpr(u)(t, q, v))
    lapack = ("svd", "qr", "geqrf", "householder_product", "eigh", "cholesky", "lu", "triangular_solve")
    assert not used & {*lapack, "custom_linear_solve", "pure_callback", "io_callback"}


# Bad input

TWO = (jnp.zeros(2), jnp.zeros(2))
PAIR = uk.System(jnp.eye(2), jnp.zeros(2))


@pytest.mark.parametrize(
    ("matrix", "task", "options", "message"),
    [
        (jnp.eye(3), APART, {}, r"input matrix has shape \(3, 3\); .* \(2, p\)"),
        (jnp.ones(2), APART, {}, r"input matrix has shape \(2,\)"),
        (jnp.ones((2, 0)), APART, {}, r"input matrix has shape \(2, 0\)"),
        (PUSH, (), {}, "there is none"),
        (PUSH, (lambda t, q: q[0],), {}, "got <function"),
        (PUSH, uk.Holonomic(lambda t, q: q[:0], name="none"), {}, "no rows"),
        (PUSH, APART, {"free": jnp.ones(2)}, r"free vector s has shape \(2,\)"),
        (PUSH, APART, {"weight": jnp.ones(2)}, "weight is for 2 inputs"),
        (PUSH, APART, {"weight": jnp.array([-1.0])}, "weight must be positive"),
        (PUSH, APART, {"weight": jnp.ones((1, 2))}, r"weight has shape \(1, 2\)"),
        (PUSH, APART, {"formula": "papers"}, "'eliminate' or 'paper'"),
        (PUSH, APART, {"stabilizer": uk.Projection()}, "use Baumgarte"),
        (PUSH, APART, {"stabilizer": uk.Baumgarte(jnp.ones(3), 1.0)}, "1 rows apart"),
        (PUSH * jnp.nan, APART, {}, "input matrix is not finite"),
        (
            PUSH,
            uk.Holonomic(lambda t, q: jnp.sqrt(q[0] - 1.0), name="root"),
            {},
            "servo row root is not finite",
        ),
        (PUSH, [APART, APART], {"pinv": uk.Cholesky()}, "failed on the servo rows apart, apart 2"),
    ],
)
def test_bad_input(matrix, task, options, message):
    with pytest.raises(uk.InputError, match=message):
        uk.servo_control(PAIR, matrix, task, 0.0, *TWO, **options)


def test_runs_under_servo_control_are_scalar_code():
    """Two inputs for two rows, along a motion in closed form: q = sin t - 0.1 e^-10t (1 + 10 t)."""
    follow = uk.Holonomic(lambda t, q: q - jnp.sin(t), name="follow")
    closed = uk.with_servo(
        uk.Problem(PAIR, -0.1 * jnp.ones(2), jnp.ones(2), 0.0, 1.0),
        jnp.eye(2),
        follow,
        stabilizer=uk.Baumgarte(20.0, 100.0),
    )
    run = uk.simulate(closed, ts=11)
    assert run.computed_by.startswith("scalar code")
    exact = np.sin(run.t) - 0.1 * np.exp(-10 * run.t) * (1 + 10 * run.t)
    np.testing.assert_allclose(run.q, np.stack([exact, exact], axis=1), atol=1e-7)


def test_singular_mass_is_refused():
    with pytest.raises(uk.InputError, match=r"not positive definite .* needs M > 0"):
        uk.servo_control(uk.System(jnp.diag(jnp.array([1.0, 0.0])), jnp.zeros(2)), PUSH, APART, 0.0, *TWO)
