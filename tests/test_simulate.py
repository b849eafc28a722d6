"""`uk.simulate` against closed forms: accuracy, solvers, times, events, failures and transformations."""

import dataclasses
import gc

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from helpers import central
from scipy.special import ellipk

import ukjax as uk
import ukjax.mechanisms as um
from ukjax._misc._garbage import with_room

# Compared at the steps, where the tolerance holds; `test_times_between_steps` looks in between.
TIGHT = {"rtol": 1e-12, "atol": 1e-12, "ts": "steps"}
W2 = oracles.GRAVITY


def _pendulum(t, angle=np.pi / 3, rate=0.0):
    """q and v of the default pendulum at times t, (len(t), 4)."""
    x, w = oracles.pendulum_elliptic(t, angle, rate, W2)
    s, c = np.sin(x), np.cos(x)
    return np.stack([s, -c, c * w, s * w], axis=-1)


def _state(run):
    assert run.ok, run.message
    return np.concatenate([run.q, run.v], axis=-1)


def _errors(run):
    return max(np.abs(run.position_error).max(initial=0), np.abs(run.velocity_error).max(initial=0))


# Closed forms, compiled as for users: accuracy is the point

as_for_users = pytest.mark.usefixtures("optimized")


@as_for_users
@pytest.mark.parametrize(("angle", "rate"), [(np.pi / 3, 0.0), (-0.4, 7.0)], ids=["swinging", "turning"])
def test_pendulum(angle, rate):
    run = uk.simulate(uk.models.pendulum(angle=angle, rate=rate), **TIGHT)
    np.testing.assert_allclose(_state(run), _pendulum(run.t, angle, rate), atol=1e-9)
    assert run.t[0] == 0.0
    assert run.t_end == 10.0
    assert _errors(run) < 1e-12
    # The rod's force along the inward normal: m (l w^2 + g cos(angle))
    x, w = oracles.pendulum_elliptic(run.t, angle, rate, W2)
    force = -(w**2 + W2 * np.cos(x))[:, None] * np.stack([np.sin(x), -np.cos(x)], axis=-1)
    np.testing.assert_allclose(run.constraint_force, force, atol=1e-7)
    assert run.energy_drift < 1e-10


@as_for_users
@pytest.mark.parametrize("name", ["knife_edge", "rolling_disk"])
def test_nonholonomic_closed_forms(name):
    run = uk.simulate(uk.models.get(name), **TIGHT)
    assert run.t_end == 10.0
    np.testing.assert_allclose(_state(run)[:, : run.q.shape[1]], getattr(oracles, name)(run.t), atol=1e-9)
    assert _errors(run) < 1e-12


@as_for_users
def test_spinning_top():
    """Quasi-velocities: nutation by the elliptic sine, and conserved momenta."""
    run = uk.simulate(uk.models.spinning_top(), t1=5.0, **TIGHT)
    assert run.ok
    q = np.asarray(run.q)
    height = 1 - 2 * (q[:, 1] ** 2 + q[:, 2] ** 2)
    np.testing.assert_allclose(height, oracles.top_nutation(run.t, np.pi / 3, 0.5, 12.0), atol=1e-9)
    np.testing.assert_allclose(np.sum(q**2, axis=1), 1.0, atol=1e-10)
    np.testing.assert_allclose(run.v[:, 2], 12.0, atol=1e-10)
    assert run.energy_drift < 1e-9


@as_for_users
def test_two_masses():
    run = uk.simulate(uk.models.two_mass_spring(x2=0.7, force=0.3), **TIGHT)
    np.testing.assert_allclose(run.q, oracles.two_mass_spring(run.t, x=(0.0, 0.7), force=0.3), atol=1e-9)


@as_for_users
@pytest.mark.slow
def test_scara_of_the_paper():
    """Gains 0.5, 200: the values of models.md at 20 s, and the constraint force at the start."""
    gains = uk.Baumgarte(np.full(4, 0.5), np.full(4, 200.0))
    run = uk.simulate(uk.models.scara(), stabilizer=gains, **TIGHT)
    assert run.ok
    end = [0.53666328855, -0.95820673947, 0.42142591849, 0.39999998686]
    np.testing.assert_allclose(run.q_end, end, atol=1e-8)
    force = [13.0174926619, 6.0793177838, 0.0701612309, 4.900125]
    np.testing.assert_allclose(run.constraint_force[0], force, atol=1e-8)


@as_for_users
@pytest.mark.slow
def test_scara_follows_its_path():
    """As many rows as joints: q(t) is algebraic."""
    run = uk.simulate(uk.models.scara(exact_start=True), **TIGHT)
    assert run.t_end == 20.0
    expected = [oracles.scara_posture(t)[:2] for t in np.asarray(run.t)]
    np.testing.assert_allclose(_state(run), [np.concatenate(x) for x in expected], atol=1e-9)


# The overconstrained parallelogram, through its flat positions

STARTS = {"rest": (np.pi / 3, 0.0), "spinning": (np.pi / 2, 1.0)}


def _parallelogram(start, tolerance, method=None):
    """The largest error of the three links' angles over 20 s, and the run."""
    options = {"formula": uk.UdwadiaKalaba(method), "stabilizer": uk.Projection(method)} if method else {}
    run = uk.simulate(
        uk.models.parallelogram(start=start), rtol=tolerance, atol=tolerance, ts="steps", **options
    )
    assert run.ok, run.message
    assert run.t_end == 20.0
    angle = oracles.parallelogram_elliptic(run.t, *STARTS[start])[0]
    return np.abs(run.q[:, [2, 5, 8]] - angle[:, None]).max(), run


@as_for_users
@pytest.mark.slow
@pytest.mark.parametrize(("tolerance", "limit"), [(1e-6, 1e-3), (1e-8, 1e-5), (1e-10, None), (1e-12, 1e-9)])
@pytest.mark.parametrize("start", STARTS)
def test_parallelogram(start, tolerance, limit):
    """The right branch at every tolerance, and DPV's accuracy in thousands, not millions, of evaluations."""
    limit = {"rest": 1e-8, "spinning": 2e-8}[start] if limit is None else limit
    error, run = _parallelogram(start, tolerance)
    assert error < limit
    assert np.abs(run.position_error).max() < 1e-13
    assert np.abs(run.velocity_error).max() < 1e-11
    assert run.stats["num_evaluations"] < (10_000 if tolerance > 1e-12 else 25_000)


@as_for_users
@pytest.mark.slow
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize(
    "method",
    [uk.SVD(), uk.CompleteOrthogonal(), uk.Greville(), uk.GramSchmidt(), uk.HouseholderQR()],
    ids=lambda m: type(m).__name__,
)
def test_parallelogram_by_every_method(start, method):
    error, run = _parallelogram(start, 1e-10, method)
    # Greville takes the rows as they come, not the most independent next, and loses a digit to that at one passage.
    limit = {"rest": 1e-8, "spinning": 2e-8}[start] * (10 if isinstance(method, uk.Greville) else 1)
    assert error < limit
    assert run.stats["num_evaluations"] < 10_000


@as_for_users
def test_parallelogram_passes_its_first_flat_position():
    """The same on the default path of a short run: the rank drops to 10 at t = 0.55, and it goes on."""
    run = uk.simulate(uk.models.parallelogram(), t1=1.0, ts="steps")
    assert run.ok
    angle = oracles.parallelogram_elliptic(run.t, *STARTS["rest"])[0]
    np.testing.assert_allclose(run.q[:, [2, 5, 8]], np.stack([angle] * 3, 1), atol=1e-6)
    assert angle.min() < -0.5


# Saved times


@pytest.fixture(scope="module")
def dense():
    return uk.simulate(uk.models.n_pendulum(2, rate=1.0), t1=1.0, ts=7, dense=True, rtol=1e-9, atol=1e-9)


def test_projection_holds_the_rows_at_every_time(dense):
    """At saved times between steps, and wherever the dense run is evaluated."""
    assert dense.ok
    assert dense.t.shape == (7,)
    np.testing.assert_allclose(dense.t, np.linspace(0, 1, 7), atol=1e-15)
    assert _errors(dense) < 1e-12
    system = uk.models.n_pendulum(2).system
    evaluate = jax.jit(jax.vmap(dense.evaluate))
    q, v = evaluate(jnp.linspace(0.0, 1.0, 101))
    rows = jax.jit(jax.vmap(lambda q, v: uk.constraint_rows(system, 0.0, q, v)))(q, v)
    assert np.abs(rows.position_error).max() < 1e-12
    assert np.abs(rows.velocity_error).max() < 1e-11
    times = np.linspace(0.0, 1.0, 101)
    x, _ = oracles.integrate(oracles.n_pendulum_acceleration, [np.pi / 2] * 2, [1.0, 1.0], times)
    expected = np.array([oracles.n_pendulum_state(a, np.zeros(2))[0] for a in x])
    np.testing.assert_allclose(q, expected, atol=1e-6)
    for i, t in enumerate(dense.t):
        for computed, saved in zip(dense.evaluate(t), (dense.q[i], dense.v[i]), strict=True):
            np.testing.assert_allclose(computed, saved, atol=1e-12)


def test_the_end_of_a_compiled_run_is_on_the_constraints():
    """And so are its derivatives: rods of length 1 stay so. It is that of a run whose saved states are projected."""
    problem = uk.models.n_pendulum(2, rate=1.0)
    end = lambda v: uk.simulate(problem.system, problem.q0, v, t1=1.0, ts=2).q_end
    rods = lambda v: jnp.stack([jnp.sum(q**2) for q in (end(v)[:2], end(v)[2:] - end(v)[:2])])
    lengths, slopes = jax.jit(rods)(problem.v0), jax.jit(jax.jacrev(rods))(problem.v0)
    np.testing.assert_allclose(lengths, 1.0, atol=1e-13)
    np.testing.assert_allclose(slopes, 0.0, atol=1e-12)
    np.testing.assert_allclose(jax.jit(end)(problem.v0), uk.simulate(problem, t1=1.0, ts=2).q[-1], atol=1e-13)


def test_times_between_steps():
    """At the times asked for, whatever the steps; the end stands apart."""
    problem = uk.models.pendulum()
    ts = np.array([0.0, 0.013, 0.5, 0.77, 1.9])
    run = uk.simulate(problem, t1=2.0, ts=ts)
    np.testing.assert_array_equal(run.t, ts)
    assert run.t_end == 2.0
    np.testing.assert_allclose(
        np.concatenate([run.q_end, run.v_end]), _pendulum(run.t_end[None])[0], atol=1e-6
    )
    np.testing.assert_allclose(_state(run), _pendulum(run.t), atol=1e-6)
    assert _errors(run) < 1e-12
    until = uk.simulate(problem, t1=2.0, ts=np.append(ts[1:], 2.0))
    np.testing.assert_array_equal(until.t, [*ts[1:], 2.0])
    np.testing.assert_allclose(until.q_end, run.q_end, atol=1e-14)
    steps = uk.simulate(problem, t1=2.0, ts="steps")
    assert len(steps) == steps.stats["num_accepted_steps"] + 1
    np.testing.assert_allclose(steps.q_end, run.q_end, atol=1e-14)
    assert len(uk.simulate(problem, t1=2.0)) == 201


def test_start_time_and_rheonomic_rows():
    """A bead on a wire that turns at 2 rad/s, from t0 = 0.5: r'' = 4 r, r = cosh."""
    row = uk.Holonomic(lambda t, q: q[1] * jnp.cos(2 * t) - q[0] * jnp.sin(2 * t), name="wire")
    system = uk.System(jnp.eye(2), jnp.zeros(2), [row])
    u, n = np.array([np.cos(1.0), np.sin(1.0)]), np.array([-np.sin(1.0), np.cos(1.0)])
    run = uk.simulate(system, u, 2 * n, t0=0.5, t1=2.0, **TIGHT)
    t = np.asarray(run.t)
    assert t[0] == 0.5
    radius = np.cosh(2 * (t - 0.5))
    np.testing.assert_allclose(
        run.q, radius[:, None] * np.stack([np.cos(2 * t), np.sin(2 * t)], 1), rtol=1e-9, atol=1e-9
    )


# Solvers


@pytest.mark.parametrize(
    ("solver", "tolerance", "limit"),
    [
        (dfx.Tsit5(), 1e-9, 1e-6),
        (dfx.Dopri5(), 1e-9, 1e-6),
        (dfx.Heun(), 1e-6, 1e-3),
        (dfx.Bosh3(), 1e-7, 1e-4),
        pytest.param(dfx.Kvaerno5(), 1e-8, 1e-5, marks=pytest.mark.slow),
    ],
    ids=lambda x: type(x).__name__ if isinstance(x, dfx.AbstractSolver) else "",
)
def test_solvers(solver, tolerance, limit):
    run = uk.simulate(uk.models.pendulum(), t1=2.0, solver=solver, rtol=tolerance, atol=tolerance, ts="steps")
    np.testing.assert_allclose(_state(run), _pendulum(run.t), atol=limit)
    assert np.abs(_state(run) - _pendulum(run.t)).max() > 1e-14  # it is that solver, not a better one
    assert _errors(run) < 1e-12


@pytest.mark.parametrize(
    ("solver", "order", "dt0"),
    [(dfx.Euler(), 1, 2e-3), (dfx.Midpoint(), 2, 0.01), (dfx.Tsit5(), 5, 1 / 80)],
    ids=["Euler", "Midpoint", "Tsit5"],
)
def test_order_of_convergence_at_fixed_steps(solver, order, dt0):
    """Halving the step divides the error by 2^order, projection after each step included."""

    def error(dt0):
        run = uk.simulate(
            uk.models.pendulum(), t1=1.0, dt0=dt0, solver=solver,
            stepsize_controller=dfx.ConstantStepSize(), ts=2,
        )  # fmt: skip
        assert run.stats["num_steps"] == round(1 / dt0)
        return np.abs(_state(run)[-1] - _pendulum(1.0)).max()

    rate = np.log2(error(dt0) / error(dt0 / 2))
    assert abs(rate - order) < 0.35


def test_an_implicit_solver_takes_fixed_steps():
    """Its root finder would take tolerances from an adaptive controller. Halving the step divides the error by 8."""
    system = uk.System(jnp.eye(1), lambda t, q, v: -q)

    def error(dt0):
        options = {"solver": dfx.Kvaerno3(), "stepsize_controller": dfx.ConstantStepSize()}
        return abs(
            float(uk.simulate(system, [1.0], [0.0], t1=3.0, dt0=dt0, **options).q_end[0]) - np.cos(3.0)
        )

    assert abs(np.log2(error(0.1) / error(0.05)) - 3) < 0.3


def test_evaluations_are_counted():
    run = uk.simulate(uk.models.pendulum(), t1=0.1, dt0=0.01, ts=2, solver=dfx.Euler())
    assert run.stats["num_evaluations"] == run.stats["num_steps"] == 10


def _counted(solver, stabilizer, **options):
    """Evaluations of the force by the steps alone, and the run."""
    count = []
    system = uk.System(jnp.eye(1), lambda t, q, v: jax.debug.callback(lambda: count.append(1)) or -q)
    run = uk.simulate(
        system, [1.0], [0.0], t1=1.0, ts=2, formula=uk.UdwadiaKalaba(), solver=solver, stabilizer=stabilizer, **options
    )  # fmt: skip
    jax.effects_barrier()
    others = 1 + 1  # the start is checked, and the saved states are observed, all by one call
    return len(count) - others, run


FIXED = {"dt0": 0.02, "stepsize_controller": dfx.ConstantStepSize()}


OFTEN = (dfx.Heun(), uk.Projection()), (dfx.Tsit5(), uk.NoStabilizer())


@pytest.mark.parametrize(
    ("solver", "stabilizer"),
    [  # with and without a last stage that is the next first; each kind once more in the slow suite
        pytest.param(*pair, id=f"{pair[0]}-{how}", marks=[pytest.mark.slow] * (pair not in OFTEN))
        for how, stabilizer in (("free", uk.NoStabilizer()), ("projected", uk.Projection()))
        for pair in ((x, stabilizer) for x in (dfx.Heun(), dfx.Tsit5(), dfx.Euler(), dfx.Bosh3()))
    ],
)
def test_evaluations_of_fixed_steps(solver, stabilizer):
    counted, run = _counted(solver, stabilizer, **FIXED)
    assert run.stats["num_steps"] == 50
    assert run.stats["num_evaluations"] == counted


def test_evaluations_of_wrapped_solvers():
    """Diffrax's `HalfSolver` makes three steps of one, and is not counted."""
    counted, run = _counted(dfx.HalfSolver(dfx.Euler()), uk.NoStabilizer(), **FIXED)
    assert counted == 3 * run.stats["num_steps"]
    assert "num_evaluations" not in run.stats
    assert run.summary()["evaluations"] is None


def test_evaluations_of_steps_that_are_rejected():
    counted, run = _counted(dfx.Tsit5(), uk.NoStabilizer(), dt0=1.0, rtol=1e-9, atol=1e-9)
    rejected = run.stats["num_rejected_steps"]
    assert rejected > 0
    assert run.stats["num_evaluations"] - rejected <= counted <= run.stats["num_evaluations"]


# Events


def test_event_stops_at_the_crossing():
    """From rest at 60 deg the pendulum first hangs down after a quarter of its period, K(k) / w."""
    quarter = ellipk(np.sin(np.pi / 6) ** 2) / np.sqrt(W2)
    options = {"t1": 3.0, "rtol": 1e-11, "atol": 1e-11}
    run = uk.simulate(uk.models.pendulum(), event=lambda t, q, v: q[0], **options)
    assert run.result_name == "event_occurred"
    assert run.ok
    assert run.message == ""
    np.testing.assert_allclose(run.t_end, quarter, atol=1e-8)
    np.testing.assert_allclose(run.q_end, [0.0, -1.0], atol=1e-7)
    before = np.asarray(run.t) < quarter
    assert len(run) == 201
    assert np.all(np.isfinite(run.q[before]))
    assert np.all(np.isinf(run.t[~before]))
    assert np.all(np.isnan(run.q[~before]))


def test_diffrax_events():
    """Without a root finder, which is Diffrax's default, a run stops at the end of the step."""
    event = dfx.Event(lambda t, y, args, **_: y[0][0])
    run = uk.simulate(uk.models.pendulum(), t1=3.0, event=event, ts="steps")
    assert run.result_name == "event_occurred"
    assert run.q_end[0] < 0 < run.q[run.t < run.t_end][-1, 0]


# Failures


def test_max_steps_keeps_what_there_is():
    problem = uk.models.pendulum()
    run = uk.simulate(problem, max_steps=5, ts=101)
    assert not run.ok
    assert run.result_name == "max_steps_reached"
    assert run.stats["num_steps"] == 5
    assert 0 < run.t_end < 10
    reached = np.isfinite(run.t)
    assert 2 < reached.sum() < len(run) == 101
    states = np.concatenate([run.q, run.v], 1)[reached]
    np.testing.assert_allclose(states, _pendulum(run.t[reached]), atol=1e-5)
    assert "maximum number of solver steps" in run.message
    assert f"stopped at t = {float(run.t_end):.6g} s of 10 s" in run.message
    with pytest.raises(uk.SimulationError) as error:
        uk.simulate(problem, max_steps=5, ts=101, throw=True)
    assert str(error.value) == run.message


@pytest.mark.parametrize(
    ("system", "words"),
    [
        (
            uk.System(jnp.eye(2), lambda t, q, v: jnp.where(t < 0.5, -q, jnp.nan)),
            "force is not finite",
        ),
        (
            uk.System(lambda t, q: jnp.diag(jnp.stack([0.5 - t, jnp.ones_like(t)])), jnp.zeros(2)),
            "mass matrix is not positive definite",
        ),
        (
            uk.System(
                jnp.eye(2),
                jnp.zeros(2),
                [uk.Nonholonomic(lambda t, q, v: v[0] - 0.2 * jnp.sqrt(0.5 - t), name="slot")],
            ),
            "slot",
        ),
        (uk.System(jnp.eye(2), lambda t, q, v: 100 * (1 + q * q) * (1 + v * v)), ""),
    ],
    ids=["force", "mass", "row", "blow-up"],
)
def test_divergence_is_a_result_with_a_reason(system, words):
    """Whatever becomes NaN or infinite on the way: a result code, the reason, finite states until then."""
    v0 = jnp.array([0.2 * np.sqrt(0.5), 0.0])
    run = uk.simulate(system, [0.1, 0.2], v0, t1=1.0, max_steps=400, ts="steps")
    assert not run.ok
    within = jax.jit(lambda v: uk.simulate(system, [0.1, 0.2], v, t1=1.0).result)(v0)
    assert within == run.result
    assert np.all(np.isfinite(run.q[:-1]))
    assert "It stopped at t = " in run.message
    assert words in run.message
    if words:
        assert run.result_name == "diverged"
        np.testing.assert_allclose(run.t_end, 0.5, atol=0.1)


def _closing(t, q, v):
    """Two rows that become parallel at t = 0.55 and stay so."""
    return jnp.stack(
        [jnp.asarray([1.0, 0.0]), jnp.stack([jnp.ones_like(t), jnp.maximum(0.55 - t, 0)])]
    ), 0 * q


def test_cholesky_that_meets_dependent_rows_says_so():
    """Where it happened and why, at fixed steps, which run on into NaN."""
    system = uk.System(jnp.eye(2), jnp.zeros(2), [uk.AccelerationConstraint(_closing, name="closing")])
    run = uk.simulate(
        system, np.zeros(2), np.ones(2), formula=uk.UdwadiaKalaba(uk.Cholesky()), t1=1.0, dt0=0.1,
        solver=dfx.Euler(), ts="steps",
    )  # fmt: skip
    assert run.result_name == "diverged"
    assert "closing[0], closing[1], of which only 1 are independent" in run.message
    assert "CompleteOrthogonal or SVD" in run.message


# Transformations

_SYSTEM = uk.models.pendulum().system


def _end(gravity, angle, *, adjoint=None, t1=0.5):
    system = uk.models.pendulum(gravity=gravity).system
    q0 = jnp.stack([jnp.sin(angle), -jnp.cos(angle)])
    options = {} if adjoint is None else {"adjoint": adjoint}
    run = uk.simulate(system, q0, jnp.zeros(2), t1=t1, ts=2, rtol=1e-10, atol=1e-10, max_steps=256, **options)
    return jnp.concatenate([run.q_end, run.v_end])


def _exact(gravity, angle):
    x, w = oracles.pendulum_elliptic(0.5, angle, 0.0, gravity)
    return np.array([np.sin(x), -np.cos(x), np.cos(x) * w, np.sin(x) * w])


def test_jit_and_vmap():
    angles, gravities = np.array([0.3, 1.0, 2.5]), np.array([9.81, 1.6, 25.0])
    ends = jax.jit(jax.vmap(_end))(jnp.asarray(gravities), jnp.asarray(angles))
    expected = [_exact(*x) for x in zip(gravities, angles, strict=True)]
    np.testing.assert_allclose(ends, expected, atol=1e-8)


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_gradients(mode):
    """Of the final state by gravity and starting angle, against central differences of the closed form."""
    if mode == "reverse":
        jacobian = jax.jit(jax.jacrev(_end, argnums=(0, 1)))
    else:
        end = lambda *x: _end(*x, adjoint=dfx.ForwardMode())
        jacobian = jax.jit(jax.jacfwd(end, argnums=(0, 1)))
    by_gravity, by_angle = jacobian(jnp.asarray(9.81), jnp.asarray(1.0))
    np.testing.assert_allclose(by_gravity, central(lambda s: _exact(9.81 + s, 1.0)), atol=1e-7)
    np.testing.assert_allclose(by_angle, central(lambda s: _exact(9.81, 1.0 + s)), atol=1e-7)


def test_under_jit_failures_are_values():
    """No exception under jit: a result code, and infinite times for what was not reached."""

    @jax.jit
    def run(max_time):
        return uk.simulate(_SYSTEM, jnp.asarray([1.0, 0.0]), jnp.zeros(2), t1=max_time, ts=5, max_steps=4)

    trajectory = run(jnp.asarray(100.0))
    assert trajectory.result_name == "max_steps_reached"
    assert trajectory.t.shape == (5,)
    assert np.isinf(trajectory.t[-2])
    assert np.isfinite(trajectory.t_end)
    assert run(jnp.asarray(0.01)).ok


def test_progress(capsys):
    run = uk.simulate(uk.models.pendulum(), t1=0.5, progress=True)
    jax.effects_barrier()
    assert run.ok
    out = capsys.readouterr()
    assert "100.00%" in out.out + out.err


def test_a_second_run_traces_nothing_again():
    traced = []

    def mass_matrix(t, q):
        traced.append("mass_matrix")  # not t: what JAX traces must not leave a function
        return jnp.eye(2)

    row = uk.Holonomic(lambda t, q: q @ q - 1.0, name="rod")
    system = uk.System(mass_matrix, lambda t, q, v: jnp.array([0.0, -9.81]), [row])
    first = uk.simulate(system, [1.0, 0.0], [0.0, 0.0], t1=0.1, ts=3)
    count = len(traced)
    second = uk.simulate(system, [0.0, -1.0], [0.5, 0.0], t1=0.1, ts=3)
    assert count > 0
    assert len(traced) == count
    assert first.row_names == second.row_names == ("rod",)


def test_a_number_of_times_from_numpy():
    assert uk.simulate(uk.models.pendulum(), t1=0.1, ts=np.int64(11)).t.shape == (11,)


def test_a_start_from_far_away_within_jit_is_the_one_without():
    """One projection does not reach it: the next begins with the rows where the first ended."""
    problem = uk.models.pendulum()
    for scale in (0.6, 2.5):
        alone = uk.simulate(problem, scale * problem.q0, t1=0.1, ts=2, start_tolerance=jnp.inf).q_end
        within = jax.jit(lambda q0: uk.simulate(problem, q0, t1=0.1, ts=2).q_end)(scale * problem.q0)
        np.testing.assert_allclose(within, alone, atol=1e-9)


def test_calls_with_room_take_no_memory_of_the_system():
    """At whatever depth: at some a frame is the first in a new piece of memory, which Python gives back after it."""
    resource = pytest.importorskip("resource")
    faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt

    def called(x):
        return x

    def go_deeper(depth):
        if depth:
            return go_deeper(depth - 1)
        before = faults()
        for i in range(2_000):
            called(i)
        return faults() - before

    assert max(map(with_room(go_deeper), range(200))) < 1_000


def test_searches_for_cycles_are_rare_while_a_run_is_traced():
    usual, seen = gc.get_threshold(), []

    def force(t, q, v):
        seen.append(gc.get_threshold()[0])
        return -q

    gc.set_threshold(700, 10, 10)
    try:
        uk.simulate(uk.System(jnp.eye(1), force), jnp.ones(1), jnp.zeros(1), t1=0.1, ts=2)
        assert min(seen) > 700
        assert gc.get_threshold() == (700, 10, 10)
    finally:
        gc.set_threshold(*usual)


def test_arrays_of_a_run_are_those_of_jax():
    run = uk.simulate(uk.models.pendulum(), t1=0.1, ts=2)
    for name in ("t", "q", "v", "a", "constraint_force", "multipliers", "energy", "rank", "q_end"):
        assert isinstance(getattr(run, name), jax.Array), name
    assert run.q is run.q


@pytest.mark.parametrize("types", [("float32", "float64"), ("float64", "float32")])
def test_a_run_is_in_the_precision_of_its_start(types: tuple[str, str]) -> None:
    problem = uk.models.four_bars(1)
    model, start = (
        jax.tree.map(lambda x, t=t: x.astype(t) if eqx.is_inexact_array(x) else x, problem) for t in types
    )
    run = uk.simulate(dataclasses.replace(model, q0=start.q0, v0=start.v0), t1=1.0)
    assert run.q.dtype == types[1]
    np.testing.assert_allclose(run.q[-1], uk.simulate(problem, t1=1.0).q[-1], atol=1e-4)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"solver": dfx.Kvaerno3()},
        pytest.param({"event": lambda t, q, v: q[0] + 5.0}, marks=pytest.mark.slow),
        pytest.param({"dense": True}, marks=pytest.mark.slow),
        pytest.param({"adjoint": dfx.RecursiveCheckpointAdjoint()}, marks=pytest.mark.slow),
    ],
    ids=["explicit", "implicit", "event", "dense", "adjoint"],
)
def test_a_traced_span_of_nan_is_no_success(options):
    fall = uk.System(jnp.eye(1), jnp.array([-9.81]))
    run = jax.jit(lambda t0, t1: uk.simulate(fall, [0.0], [0.0], t0=t0, t1=t1, ts=2, **options))
    assert run(0.0, 0.1).ok
    assert not run(0.0, jnp.nan).ok
    assert not run(jnp.nan, 0.1).ok


@pytest.mark.parametrize("contact", [None, pytest.param("events", marks=pytest.mark.slow), "steps"])
def test_traced_times_that_are_not_reached_are_told(contact):
    """Times that are traced cannot be checked before the run."""
    if contact:
        ball = um.Sphere("ball", (0.0, 1.0), 0.1)
        bodies, floor = [um.disk("ball", (0.0, 1.0), 0.1, mass=1.0)], um.HalfSpace("ground", (0.0, 0.0))
        contacts = [um.Contact(ball, floor, restitution=0.5)]
        system = um.assemble(bodies, loads=[um.Gravity()], contacts=contacts)
        options = {"contact": contact, **({"dt0": 1e-2} if contact == "steps" else {})}
        problem = um.problem(system, t1=0.6)
    else:
        problem, options = uk.models.pendulum(), {}
    codes = [uk.RESULTS.successful, uk.RESULTS.times_not_reached]

    @jax.jit
    def result_of(ts):
        result = uk.simulate(problem, t1=0.6, ts=ts, **options).result
        return jnp.stack([result == x for x in codes])

    for ts, expected in (([0.0, 0.3, 0.6], 0), ([0.0, 0.4, 0.3], 1), ([0.0, 0.3, 0.7], 1)):
        assert np.flatnonzero(result_of(jnp.array(ts))).tolist() == [expected], ts
    every = jax.jit(lambda v: uk.simulate(problem, v0=v, t1=0.6, **options).result == codes[0])
    assert bool(every(jnp.asarray(problem.v0)))
