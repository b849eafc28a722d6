"""`plan`: beside Riccati's equation, closed forms, SciPy and other coordinates, and what it refuses."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import solve_discrete_are
from scipy.optimize import minimize

import ukjax as uk
import ukjax.mechanisms as um
from ukjax._tune._freedoms import free_velocities
from ukjax._tune._plan._phases import read_instants
from ukjax._tune._plan._search import Given, first_run, linearize, start_search
from ukjax._tune._plan._stages import Penalty, Stages
from ukjax.analysis._inputs import Constant, MatrixForce

STEPS = 40
REST = lambda t, q, v: jnp.concatenate([q, v])
MASS = uk.Problem(uk.System(jnp.eye(1), jnp.zeros(1)), [1.0], [0.0], 0.0, 2.0, name="mass")
"""q'' = u."""


def effort(t, q, v, u):
    return u


def held(h):
    """What an input held over a step adds to q and v of a mass, (2, 2) and (2,)."""
    return np.array([[1.0, h], [0.0, 1.0]]), np.array([0.5 * h * h, h])


def mass_matrices(steps=STEPS, T=2.0):
    """End state = start + G u, of a mass."""
    A, B = held(T / steps)
    columns = [B]
    for _ in range(steps - 1):
        columns.append(A @ columns[-1])
    return np.stack(columns[::-1], axis=1)


def test_a_linear_plan_is_that_of_riccati():
    h, K, C = 0.05, np.array([[3.0, -1.0], [-1.0, 2.0]]), np.array([[0.3, 0.0], [0.0, 0.1]])
    system = uk.System(jnp.eye(2), lambda t, q, v: -K @ q - C @ v)
    problem = uk.Problem(system, [1.0, -0.5], [0.2, 0.4], 0.0, STEPS * h)
    F = np.block([[np.zeros((2, 2)), np.eye(2)], [-K, -C]])
    G = np.array([[0.0], [0.0], [1.0], [0.0]])
    A, B = np.eye(4) + h * F + 0.5 * h * h * F @ F, h * G + 0.5 * h * h * F @ G  # of the midpoint rule
    Q, R = np.diag([4.0, 1.0, 0.5, 0.5]), np.array([[0.2]])
    P = solve_discrete_are(A, B, h * Q, h * R)
    x = lambda q, v: jnp.concatenate([q, v])
    found = uk.plan(
        problem,
        lambda t, q, v, u: x(q, v) @ Q @ x(q, v) + u @ R @ u,
        end_cost=lambda t, q, v: x(q, v) @ P @ x(q, v),
        inputs=[[1.0], [0.0]],
        steps=STEPS,
        solver=dfx.Midpoint(),
    )
    x0 = np.array([1.0, -0.5, 0.2, 0.4])
    assert found.stopped == "converged"
    assert found.iterations <= 3
    np.testing.assert_allclose(found.cost, x0 @ P @ x0, rtol=1e-9)
    gain = -np.linalg.solve(h * R + B.T @ P @ B, B.T @ P @ A)
    np.testing.assert_allclose(found.gains, np.broadcast_to(gain, found.gains.shape), rtol=1e-6)
    np.testing.assert_allclose(found.u[0], gain @ x0, rtol=1e-6)


def test_least_effort_is_that_of_least_squares():
    found = uk.plan(MASS, effort, inputs=[[1.0]], steps=STEPS, end=REST, tolerance=1e-9)
    G = mass_matrices()
    expected = np.linalg.pinv(G) @ [-1.0, 0.0]
    np.testing.assert_allclose(found.u[:, 0], expected, atol=1e-5)
    assert found.cost == pytest.approx(6.0 / 2.0**3, rel=1e-3)  # of inputs that are not held
    assert found.violation < 1e-6
    assert found.gap == 0.0


@pytest.mark.parametrize(("mass", "unit"), [(1e7, 1.0), (1e-6, 1e-6), (1e5, 1e5)])
def test_costs_in_other_units_have_the_same_plan(mass, unit):
    """A cost of 1e15 is as good as one of 1; and what cannot be reached is still told."""
    heavy = uk.Problem(uk.System(mass * jnp.eye(1), jnp.zeros(1)), [1.0], [0.0], 0.0, 2.0)
    cost, options = lambda t, q, v, u: u / unit, {"inputs": [[1.0]], "end": REST, "steps": STEPS}
    G = mass_matrices()
    expected = -G.T @ np.linalg.solve(
        G @ G.T, np.linalg.matrix_power(held(2.0 / STEPS)[0], STEPS) @ [1.0, 0.0]
    )
    plan = uk.plan(heavy, cost, **options)
    assert plan.stopped == "converged"
    np.testing.assert_allclose(plan.u[:, 0] / mass, expected, atol=2e-5)
    most = 0.9 * mass  # from rest to rest over 1 m in 2 s takes 1 N/kg at least
    assert uk.plan(heavy, cost, **options, bounds={"u": (-most, most)}).stopped == "violated"


@pytest.mark.parametrize("second_order", [False, True])
def test_the_fastest_motion_has_one_switch(second_order):
    found = uk.plan(
        MASS,
        lambda t, q, v, u: 1.0 + 1e-5 * u[0] ** 2,
        inputs=[[1.0]],
        t1=(0.5, 5.0),
        steps=STEPS,
        end=REST,
        bounds={"u": (-1.0, 1.0)},
        second_order=second_order,
    )
    assert found.stopped == "converged"
    assert found.t[-1] == pytest.approx(2.0, abs=1e-4)  # 2 sqrt(distance / u)
    np.testing.assert_allclose(found.u[:, 0], np.repeat([-1.0, 1.0], STEPS // 2), atol=1e-4)


def test_bounds_of_states_and_inputs_are_those_of_scipy():
    steps, slow, weak = 20, 0.6, 2.0
    found = uk.plan(
        MASS, effort, inputs=[[1.0]], steps=steps, end=REST,
        bounds={"v[0]": (-slow, None), "u[0]": (-weak, weak)}, tolerance=1e-7,
    )  # fmt: skip
    G, h = mass_matrices(steps), 2.0 / steps
    expected = minimize(
        lambda u: 0.5 * h * u @ u, np.zeros(steps), jac=lambda u: h * u, method="SLSQP",
        bounds=[(-weak, weak)] * steps, options={"ftol": 1e-12, "maxiter": 500},
        constraints=[
            {"type": "eq", "fun": lambda u: G @ u + [1.0, 0.0]},
            {"type": "ineq", "fun": lambda u: slow + h * np.cumsum(u)},
        ],
    )  # fmt: skip
    assert found.stopped == "converged"
    assert found.cost == pytest.approx(expected.fun, rel=1e-5)
    np.testing.assert_allclose(found.u[:, 0], expected.x, atol=1e-3)
    assert found.v.min() >= -slow - 1e-6
    assert abs(found.u).max() <= weak


# --- Constraints: a cart and a pole whose tip is a point, against the angle of the pole

# Kelly 2017, SIAM Review 59, section 6
POLE = {"cart": 1.0, "mass": 0.3, "length": 0.5}


def square(t, q, v, u):
    return 1e-2 * u[0] ** 2


def swing_up_by_angle(**options):
    m, M, L = POLE["mass"], POLE["cart"], POLE["length"]

    def mass(t, q):
        off = m * L * jnp.cos(q[1])
        return jnp.stack([jnp.stack([M + m + 0.0 * off, off]), jnp.stack([off, m * L * L + 0.0 * off])])

    def force(t, q, v):
        return jnp.stack([m * L * v[1] ** 2 * jnp.sin(q[1]), -m * 9.81 * L * jnp.sin(q[1])])

    model = uk.Problem(uk.System(mass, force), [0.0, 0.0], [0.0, 0.0], 0.0, 2.0)
    end = lambda t, q, v: jnp.concatenate([q - jnp.array([1.0, jnp.pi]), v])
    return uk.plan(
        model, square, inputs=[[1.0], [0.0]], steps=50, end=end, bounds={"u": (-20.0, 20.0)}, **options
    )


def test_a_pole_swings_up_as_in_its_angle():
    by_rows = uk.plan(
        uk.models.light_cart_pole(angle=0.0, **POLE), square, inputs=[[1.0], [0.0], [0.0]], t1=2.0, steps=50,
        end=lambda t, q, v: jnp.concatenate([q - jnp.array([1.0, 1.0, 0.5]), v]),
        bounds={"u": (-20.0, 20.0)}, iterations=500,
    )  # fmt: skip
    by_angle = swing_up_by_angle(iterations=500)
    assert by_rows.stopped == by_angle.stopped == "converged"
    assert by_rows.cost == pytest.approx(by_angle.cost, rel=1e-4)  # steps differ by their errors
    off = np.hypot(by_rows.q[:, 1] - by_rows.q[:, 0], by_rows.q[:, 2]) - POLE["length"]
    assert abs(off).max() < 1e-12
    np.testing.assert_allclose(by_rows.q[-1], [1.0, 1.0, 0.5], atol=1e-5)
    run = uk.simulate(by_rows.problem(feedback=True), ts=[2.0])  # another solver and step
    np.testing.assert_allclose(run.q[-1], by_rows.q[-1], atol=1e-2)


def test_derivatives_are_those_of_the_whole_run():
    """Slope and second derivative of the cost along a change of all inputs, by differences of the run."""
    p = uk.models.light_cart_pole(angle=0.4, **POLE)
    end = lambda t, q, v: jnp.concatenate([q - jnp.array([1.0, 1.0, 0.5]), v])
    random, N = np.random.default_rng(0), 30
    force, none = MatrixForce(Constant(jnp.array([[1.0], [0.0], [0.0]]))), jnp.zeros(0)
    instants = read_instants(None, np.zeros((N, 0)), p.q0.dtype)
    stages = Stages(
        p.system, force, square, None, end, dfx.Midpoint(), none, none, (), None, instants, N, 3, False, True
    )
    us, T, t0 = jnp.asarray(3.0 * random.normal(size=(N, 1))), jnp.asarray(0.9), jnp.asarray(0.0)
    x0 = jnp.concatenate([p.q0, p.v0])
    first = tuple(jnp.asarray(Z) for Z in free_velocities(p.system, 0.0, p.q0, p.v0)[:2])
    penalty = Penalty(jnp.zeros((N + 1, 0)), jnp.asarray(random.normal(size=6)), jnp.asarray(10.0))
    wide = jnp.array([np.inf])

    @jax.jit
    def start(us):
        xs = first_run(stages, t0, x0, us, T)
        return start_search(
            stages, Given(t0, xs, jnp.asarray(False), us, T, first, -wide, wide, T, T, penalty)
        )

    at = start(us)
    given = Given(t0, at.xs, jnp.asarray(False), us, T, first, -wide, wide, T, T, penalty)
    model, _ = jax.jit(lambda at: linearize(stages, given, at))(at)
    d, h = jnp.asarray(random.normal(size=(N, 1))), 1e-3
    x, slope, curve = np.zeros(4), 0.0, 0.0
    for k in range(N):
        z = np.concatenate([x, d[k]])
        slope, curve, x = (
            slope + model.slope[k] @ z,
            curve + z @ (model.H[k] + model.bend[k]) @ z,
            model.J[k] @ z,
        )
    slope, curve = slope + model.end_slope @ x, curve + x @ (model.end_curve + model.end_bend) @ x
    merit = [float(start(us + e * d).merit) for e in (-h, 0.0, h)]
    assert slope == pytest.approx((merit[2] - merit[0]) / (2 * h), rel=1e-5)
    assert curve == pytest.approx((merit[2] - 2 * merit[1] + merit[0]) / h**2, rel=1e-4)


def test_a_ball_joint_turns():
    """Its quaternion has one number more than there are velocities."""
    body = um.Body("top", 1.0, (0.0, 0.0, -0.5), (0.1, 0.12, 0.05))
    system = um.tree([body], [um.Spherical("ball", "ground", "top", (0.0, 0.0, 0.0))], [um.Gravity()])
    goal = np.append(np.cos(0.5), np.sin(0.5) * np.array([0.6, 0.8, 0.0]))
    end = lambda t, q, v: jnp.concatenate([q[1:] - goal[1:], v])
    found = uk.plan(um.problem(system, t1=1.0), effort, inputs=np.eye(3), steps=20, end=end)
    assert found.stopped == "converged"
    np.testing.assert_allclose(found.q[-1], goal, atol=1e-5)
    run = uk.simulate(found.problem(), ts=[1.0])
    np.testing.assert_allclose(run.q[-1], goal, atol=1e-4)


# --- Many starts, guesses, horizons that recede


def test_many_starts_are_each_planned():
    starts = np.array([[0.5], [1.0], [2.0]])
    found = uk.plan(MASS, effort, inputs=[[1.0]], steps=10, end=REST, q0=starts)
    cost = 0.75 * starts[:, 0] ** 2 / (1.0 - 1.0 / 10**2)  # of inputs held over steps
    np.testing.assert_allclose(found.cost, cost, rtol=1e-4)
    assert found[1].q.shape == (11, 1)
    assert found[1].cost == found.cost[1]
    assert set(found.to_xarray().dims) >= {"start", "time", "input"}


def test_a_guess_of_states_is_closed():
    q = np.linspace(1.0, 0.0, STEPS + 1)[:, None] ** 2
    found = uk.plan(MASS, effort, inputs=[[1.0]], steps=STEPS, end=REST, states=(q, np.zeros_like(q)))
    assert found.gap == 0.0
    assert found.cost == pytest.approx(0.75, rel=1e-3)


def test_a_plan_goes_on_from_an_earlier_one():
    """Along an optimal plan the rest of it is optimal."""
    first = uk.plan(MASS, effort, inputs=[[1.0]], steps=STEPS, end=REST, tolerance=1e-9)
    k = 10
    later = {"q0": first.q[k], "v0": first.v[k], "t0": first.t[k], "steps": STEPS - k, "end": REST}
    cold = uk.plan(MASS, effort, inputs=[[1.0]], **later)
    warm = uk.plan(MASS, effort, inputs=[[1.0]], **later, previous=first)
    np.testing.assert_allclose(warm.u, first.u[k:], atol=1e-4)
    assert warm.iterations < cold.iterations


# --- Contacts

G = 9.81
HOPPER = uk.Problem(
    uk.System(
        jnp.diag(jnp.array([1.0, 0.1])),
        lambda t, q, v: -G * jnp.array([1.0, 0.1]),
        [uk.Unilateral(lambda t, q: q[1], name="foot")],
    ),
    [0.5, 0.0], [0.0, 0.0], 0.0, 1.0, name="hopper",
)  # fmt: skip
"""A mass of 1 kg over a foot of 0.1 kg on the ground, with a force between them."""
HOP = {
    "inputs": [[1.0], [-1.0]],
    "phases": [(20, "foot"), (10, []), (20, ["foot"])],
    "end": lambda t, q, v: jnp.concatenate([q - jnp.array([0.5, 0.0]), v]),
}


def hop_of_least_effort():
    """The inputs of least effort of `HOP`: all that is asked is linear in them."""
    steps, h = 50, 0.02
    masses = np.array([1.0, 0.1])

    def onwards(x, u, closed, lands):
        force = np.array([u, -u]) - G * masses
        a = np.array([force[0], 0.0 if closed else force[1] / 0.1])
        x = np.concatenate([x[:2] + h * x[2:] + 0.5 * h * h * a, x[2:] + h * a])
        return x * [1.0, 1.0, 1.0, 0.0] if closed or lands else x

    def missed(us):
        x = np.array([0.5, 0.0, 0.0, 0.0])
        for k, u in enumerate(us):
            x = onwards(x, u, k < 20 or k >= 30, k == 29)
            if k == 29:
                height = x[1]
                x[1] = 0.0
        return np.array([height, x[0] - 0.5, x[2]])

    base = missed(np.zeros(steps))
    J = np.stack([missed(e) - base for e in np.eye(steps)], axis=1)
    return -np.linalg.pinv(J) @ base


def test_a_hop_is_that_of_least_effort_and_events_repeat_it():
    plan = uk.plan(HOPPER, effort, **HOP, u=G, tolerance=1e-8)
    assert plan.stopped == "converged"
    expected = hop_of_least_effort()
    np.testing.assert_allclose(plan.u[:, 0], expected, atol=2e-5 * np.abs(expected).max())
    np.testing.assert_allclose(plan.q[:21, 1], 0.0, atol=1e-15)
    assert abs(plan.q[30, 1]) < 1e-7  # where it lands
    np.testing.assert_array_equal(plan.q[31:, 1], 0.0)
    assert plan.q[20:31, 1].max() > 0.05
    run = uk.simulate(plan.problem(), contact="events", ts=plan.t)
    np.testing.assert_allclose(run.q, plan.q, atol=1e-6)


def test_a_foot_is_not_pulled():
    """A force that lifts the foot is to be 5 N, and the foot weighs 0.981 N."""
    heavy = [[0.0], [1.0]]
    plan = uk.plan(HOPPER, lambda t, q, v, u: u - 5.0, inputs=heavy, phases=[(10, "foot")], t1=0.2)
    assert plan.stopped == "converged"
    np.testing.assert_allclose(plan.u, 0.981, atol=1e-4)


def test_forces_stay_within_friction():
    """A mass of 1 kg that is pushed along a box of 2 kg, which stands on the ground: as if the push were bounded."""
    mu = 0.1
    ground = uk.Unilateral(lambda t, q: q[2], friction=mu, slip=lambda t, q, v: v[1], name="ground")
    system = uk.System(jnp.diag(jnp.array([1.0, 2.0, 3.0])), jnp.array([0.0, 0.0, -3.0 * G]), [ground])
    problem = uk.Problem(system, jnp.zeros(3), jnp.zeros(3), 0.0, 1.0)
    goal = lambda t, q, v: jnp.stack([q[0] - 0.6, v[0]])
    options = {"end": goal, "steps": STEPS, "tolerance": 1e-7}
    found = uk.plan(problem, effort, inputs=[[1.0], [-1.0], [0.0]], phases=[(STEPS, "ground")], **options)
    most = mu * 3.0 * G
    alone = uk.Problem(uk.System(jnp.eye(1), jnp.zeros(1)), [0.0], [0.0], 0.0, 1.0)
    expected = uk.plan(alone, effort, inputs=[[1.0]], bounds={"u": (-most, most)}, **options)
    assert found.stopped == expected.stopped == "converged"
    assert np.sum(np.abs(expected.u) > most - 1e-6) > 5
    np.testing.assert_allclose(found.u, expected.u, atol=1e-3)
    np.testing.assert_allclose(found.q[:, 1:], 0.0, atol=1e-14)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"phases": [(10, "feet")]}, "unknown contact of a phase 'feet'. Known: foot"),
        ({"phases": [(10, "foot")], "steps": 20}, "phases take 10 steps together, and steps is 20"),
        ({"phases": [10, "foot"]}, "a phase is a pair"),
        ({"phases": "foot"}, "phases must be pairs"),
        ({"phases": []}, "phases must be pairs"),
        ({"phases": [(10, "foot")], "q0": [0.5, 0.1]}, "open at the start: foot by 0.1"),
        ({"phases": [(10, "foot")], "v0": [0.0, -1.0]}, "move at the start: foot by 1"),
        ({"q0": [0.5, -0.1]}, "penetrated at the start: foot by 0.1"),
    ],
)
def test_phases_that_cannot_be_are_refused(options, message):
    with pytest.raises(uk.InputError, match=message):
        uk.plan(HOPPER, effort, **({"inputs": [[1.0], [-1.0]]} | options))


def test_contacts_that_a_plan_does_not_know_are_refused():
    slip = lambda t, q, v: v[0]
    for contact, message in (
        (uk.Unilateral(lambda t, q: q[0], stiffness=1e3), "does not know soft contacts"),
        (uk.DryFriction(slip, 1.0, name="brake"), "does not know dry friction, and the system has brake"),
    ):
        problem = uk.Problem(uk.System(jnp.eye(1), jnp.zeros(1), [contact]), [1.0], [0.0], 0.0, 1.0)
        with pytest.raises(uk.InputError, match=message):
            uk.plan(problem, effort, inputs=[[1.0]])
    ball = uk.Unilateral(lambda t, q: q[0], restitution=0.5, name="ball")
    problem = uk.Problem(uk.System(jnp.eye(1), -jnp.ones(1), [ball]), [0.0], [0.0], 0.0, 1.0)
    with pytest.raises(uk.InputError, match="does not know rebounds, and ball has a restitution"):
        uk.plan(problem, effort, inputs=[[1.0]], phases=[(10, "ball")])
    with pytest.raises(uk.InputError, match="phases are of contacts, and the system has none"):
        uk.plan(MASS, effort, inputs=[[1.0]], phases=[(10, "foot")])


def test_contacts_that_no_phase_closes_stay_open():
    """A wall is as a bound of a coordinate."""
    wall = uk.Unilateral(lambda t, q: 0.3 - q[0], name="wall")
    system = uk.System(jnp.eye(1), jnp.zeros(1), [wall])
    goal = lambda t, q, v: jnp.stack([q[0] - 0.2, v[0] + 1.0])
    options = {"inputs": [[1.0]], "end": goal, "steps": STEPS}
    found = uk.plan(uk.Problem(system, [0.0], [0.0], 0.0, 1.0), effort, **options)
    free = uk.Problem(uk.System(jnp.eye(1), jnp.zeros(1)), [0.0], [0.0], 0.0, 1.0)
    expected = uk.plan(free, effort, bounds={"q[0]": (None, 0.3)}, **options)
    assert found.stopped == expected.stopped == "converged"
    np.testing.assert_allclose(found.q, expected.q, atol=1e-5)
    assert found.q.max() > 0.2999


def test_it_shows_itself(tmp_path):
    found = uk.plan(MASS, effort, inputs=[[1.0]], steps=10, end=REST)
    assert "converged" in repr(found)
    assert "u[0]" in repr(found)
    found.plot(tmp_path / "plan.png")
    assert (tmp_path / "plan.png").stat().st_size > 10_000
    assert found.to_xarray().u.shape == (10, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"t1": -1.0}, "t1 must be a time after t0"),
        ({"t1": (3.0, 1.0)}, "t1 must be low < high"),
        ({"steps": 0}, "steps must be an integer"),
        ({"bounds": {"speed": (0.0, 1.0)}}, "unknown input or state in bounds 'speed'"),
        ({"bounds": {"u": (1.0, -1.0)}}, "low < high"),
        ({"bounds": {"u": 3.0}}, "pair"),
        ({"bounds": {"q[0]": (2.0, 3.0)}}, "do not hold at the start"),
        ({"inputs": [[1.0, 0.0], [0.0, 1.0]]}, "inputs has shape"),
        ({"inputs": None}, "no inputs to plan"),
        ({"u": np.zeros((3, 1))}, "u has shape"),
        ({"u": np.nan}, "u must be finite"),
        ({"q0": [[1.0], [np.nan]]}, "q0 must be finite"),
        ({"end": lambda q: q}, "end must be a function of"),
        ({"end_cost": lambda t, q, v: jnp.log(q[0] - 1.0)}, "end_cost is not finite"),
        ({"end_cost": lambda t, q, v: jnp.eye(2)}, "end_cost must return a number"),
        ({"tolerance": 2.0}, "tolerance must lie between"),
        ({"previous": 3}, "previous must be something like"),
        ({"horizon": 10}, "t1= and steps="),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(options, message):
    with pytest.raises(uk.InputError, match=message.replace("(", r"\(")):
        uk.plan(MASS, effort, **({"inputs": [[1.0]], "steps": 10} | options))


def test_a_cost_and_inputs_in_units_far_apart():
    """A body of a million tons; G u = (1, 0) of least norm, per mass, by the pseudoinverse."""
    mass = 1e9
    heavy = uk.Problem(uk.System(mass * jnp.eye(1), jnp.zeros(1)), [0.0], [0.0], 0.0, 2.0)
    wanted = {"end": lambda t, q, v: jnp.concatenate([q - 1.0, v]), "inputs": [[1.0]], "steps": STEPS}
    plan = uk.plan(heavy, lambda t, q, v, u: u / mass, **wanted)
    assert plan.stopped == "converged"
    exact = np.linalg.pinv(mass_matrices()) @ [1.0, 0.0]
    np.testing.assert_allclose(plan.u[:, 0] / mass, exact, atol=1e-5)


@pytest.mark.slow
def test_a_cost_with_a_kink_is_told():
    wanted = {"end": REST, "inputs": [[1.0]], "steps": 10, "iterations": 60}
    plan = uk.plan(MASS, lambda t, q, v, u: jnp.abs(u[0]), **wanted)
    assert plan.stopped != "converged"
    assert plan.kinks == ("u[0]",)
    assert "the cost has a kink in u[0]" in repr(plan)
    smooth = uk.plan(MASS, lambda t, q, v, u: u[0] ** 4 + u[0] ** 2, **(wanted | {"iterations": 2}))
    assert smooth.stopped == "iterations"
    assert smooth.kinks == ()
