"""Single precision: with x64 off, as JAX starts, everything is computed and returned in float32."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from benchmark_oracles import four_bars_top

import ukjax as uk
import ukjax.mechanisms as um

FLOATS = ("t", "q", "v", "a", "constraint_force", "multipliers", "position_error", "velocity_error", "energy")


@pytest.fixture(autouse=True)
def _single():
    with jax.enable_x64(False):
        yield


def _is_single(run):
    for name in FLOATS:
        value = getattr(run, name)
        assert value is None or value.dtype == jnp.float32, (name, value.dtype)
    assert run.rank.dtype == jnp.int32


# One each with redundant rows, nonholonomic rows, quasi-velocities, a singular mass matrix, and no geometry at all.
QUICK = ("four_bars", "knife_edge", "rolling_disk", "spinning_top", "rlc_network")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n not in QUICK)) for n in uk.models.MODELS]
)
def test_models(name):
    """No promotion to float64 and none refused; the rows are held; the motion is that of double precision."""
    problem = uk.models.get(name)
    assert problem.q0.dtype == jnp.float32
    run = uk.simulate(problem, t1=0.1, ts=3)
    assert run.ok, run.message
    _is_single(run)
    assert run.t_end == np.float32(0.1)
    scale = 1 + float(np.abs(run.v).max(initial=0))
    assert np.abs(run.position_error).max(initial=0) < 1e-5
    assert np.abs(run.velocity_error).max(initial=0) < 1e-5 * scale
    with jax.enable_x64(True):
        double = uk.simulate(uk.models.get(name), t1=0.1, ts=3)
    assert double.q.dtype == jnp.float64
    # Andrews' crank turns by 99 rad, and tolerances are relative.
    np.testing.assert_allclose(run.q_end, double.q_end, rtol=1e-5, atol=2e-4)
    np.testing.assert_array_equal(run.rank, double.rank)


def test_a_single_precision_state_stays_so_with_x64_on():
    with jax.enable_x64(True):
        problem = uk.models.pendulum()
        q0, v0 = problem.q0.astype(jnp.float32), problem.v0.astype(jnp.float32)
        run = uk.simulate(problem, q0, v0, t1=0.1, ts=3)
        assert run.ok, run.message
        _is_single(run)


@pytest.mark.parametrize("traced", [False, True])
def test_a_step_is_as_its_state_with_x64_on(traced):
    """Whatever the type of dt, also where it is traced."""
    with jax.enable_x64(True):
        problem, dt = uk.models.pendulum(), np.float64(0.1)
        step = lambda q, v, dt: jnp.concatenate(uk.step(problem, 0.0, q, v, dt))
        state = problem.q0.astype(jnp.float32), problem.v0.astype(jnp.float32)
        single = jax.jit(step)(*state, dt) if traced else step(*state, dt)
        assert single.dtype == jnp.float32
        np.testing.assert_allclose(single, step(problem.q0, problem.v0, dt), atol=1e-6)


def test_an_environment_is_as_its_states_with_x64_on():
    with jax.enable_x64(True):
        problem = uk.models.pendulum()
        sample = lambda key: (problem.q0.astype(jnp.float32), problem.v0.astype(jnp.float32))
        push = lambda t, q, v, u: u * v
        reward = lambda t, q, v, u: q[1]
        made = uk.Environment(problem, push, reward, dt=np.float64(0.1), horizon=2, sample=sample)
        state = made.step(made.reset(jax.random.key(0)), jnp.zeros((), jnp.float32))[0]
        assert {state.t.dtype, state.q.dtype, state.v.dtype} == {jnp.dtype(jnp.float32)}
        assert state.t == np.float32(0.1)


@pytest.mark.parametrize(
    "stabilizer", [uk.NoStabilizer(), uk.Baumgarte(10, 100), uk.Baumgarte.squared(5.0, 5.0)]
)
def test_stabilizers(stabilizer):
    run = uk.simulate(uk.models.pendulum(), t1=0.1, ts=3, stabilizer=stabilizer)
    assert run.ok, run.message
    _is_single(run)


FALLEN = np.sqrt(2 / 9.81)  # the time to fall by 1 m [s]


@pytest.mark.parametrize(
    ("floor", "event", "end", "height"),
    [
        ([], lambda t, q, v: q[0] - 0.5, FALLEN / np.sqrt(2), 0.5),
        ([], [lambda t, q, v: q[0] + 9.0, lambda t, q, v: q[0] - 0.5], FALLEN / np.sqrt(2), 0.5),
        ([], uk.Event(lambda t, q, v: q[0], "down", lambda t, q, v: (q, -v / 2)), 1.5 * FALLEN, 0.25),
        ([uk.Unilateral(lambda t, q: q[0], restitution=0.5)], None, 1.5 * FALLEN, 0.25),
        ([uk.Unilateral(lambda t, q: q[0], restitution=0.5)], lambda t, q, v: v[0] - 1.0, FALLEN, 0.0),
    ],
    ids=["event", "events", "reset", "contact", "event and contact"],
)
def test_events_and_contacts_in_single_precision_with_x64_on(floor, event, end, height):
    """A ball falls by 1 m, and bounces with half its speed. It ended in a TypeError of Diffrax's loops."""
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):  # Diffrax mixes types in events
        ball = uk.System(jnp.eye(1, dtype="float32"), jnp.array([-9.81], "float32"), floor)
        run = uk.simulate(ball, jnp.ones(1, "float32"), jnp.zeros(1, "float32"), t1=1.5 * FALLEN, event=event)
        _is_single(run)
    np.testing.assert_allclose([run.t_end, run.q_end[0]], [end, height], atol=1e-5)


def test_gains_made_in_double_precision():
    with jax.enable_x64(True):
        stabilizer = uk.Baumgarte(np.ones(1), 100.0)
    _is_single(uk.simulate(uk.models.pendulum(), t1=0.1, ts=3, stabilizer=stabilizer))


def test_events_dense_and_steps():
    run = uk.simulate(uk.models.pendulum(), t1=2.0, event=lambda t, q, v: q[0], dense=True, ts="steps")
    assert run.result_name == "event_occurred"
    _is_single(run)
    assert all(x.dtype == jnp.float32 for x in run.evaluate(0.1))
    np.testing.assert_allclose(run.t_end, 0.5384, atol=1e-3)  # K(sin 30 deg) / sqrt(9.81)


def test_derivatives():
    """Reverse mode through a run, against the double-precision closed form's slope by gravity."""

    def end(gravity):
        problem = uk.models.pendulum(gravity=gravity)
        return uk.simulate(problem.system, problem.q0, problem.v0, t1=0.2, ts=2, max_steps=64).q_end[0]

    gradient = jax.jit(jax.grad(end))(jnp.asarray(9.81))
    assert gradient.dtype == jnp.float32
    with jax.enable_x64(True):
        h = 1e-4
        slope = (end(9.81 + h) - end(9.81 - h)) / (2 * h)
    np.testing.assert_allclose(gradient, slope, rtol=1e-3)


def test_project_and_check():
    problem = uk.models.slider_crank()
    q, v = uk.project(problem.system, 0.0, problem.q0 + 0.02, problem.v0)
    assert q.dtype == v.dtype == jnp.float32
    rows = uk.constraint_rows(problem.system, 0.0, q, v)
    assert np.abs(rows.position_error).max() < 1e-5
    report = uk.check(uk.models.parallelogram())
    assert (report.rank, report.mass_rank) == (11, 12)
    assert report.ok, str(report)
    assert not report.inconsistent


@pytest.mark.slow
@pytest.mark.parametrize("speed", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("formula", [None, uk.UdwadiaKalaba()], ids=["code", "arrays"])
def test_flat_positions_are_passed(count, speed, formula):
    """Some ten of them, with the default settings."""
    problem = uk.models.four_bars(count, speed=speed)
    run = uk.simulate(problem, ts=2, formula=formula, max_steps=1_000)
    assert run.ok, run.message
    tip = four_bars_top(np.array([problem.t1]), count, speed=speed)[1][0]
    np.testing.assert_allclose(2 * run.q_end[:2], tip, rtol=0, atol=0.05)  # another branch is a metre away


class _Pushed(uk.AbstractSystem):
    """A unit mass under a force that whole numbers and a random key give."""

    count: jax.Array
    key: jax.Array
    constraints: tuple = ()

    def mass_matrix(self, t, q):
        return jnp.eye(2, dtype=q.dtype)

    def force(self, t, q, v):
        drawn = jax.random.uniform(jax.random.fold_in(self.key, self.count), (), q.dtype)
        return jnp.stack([drawn, (self.count % 7).astype(q.dtype)])


def test_traced_whole_numbers_and_keys_keep_all_bits():
    """A float32 has 24 bits of 32, a float64 53 of 64."""
    zero, key = jnp.zeros(2), jax.random.key(123456789)
    end = jax.jit(jax.vmap(lambda n, k: uk.simulate(_Pushed(n, k), zero, zero, t1=1.0).v_end, (0, None)))
    for kind, numbers in ((jnp.int32, (2**24 + 1, 2**31 - 1, -(2**31), -1)), (jnp.uint32, (2**32 - 1,))):
        drawn = [jax.random.uniform(jax.random.fold_in(key, kind(n))) for n in numbers]
        expected = np.stack([drawn, [n % 7 for n in numbers]], axis=1)
        np.testing.assert_allclose(end(jnp.array(numbers, kind), key), expected, rtol=1e-6, atol=1e-6)
    with jax.enable_x64(True):
        numbers, key = (2**53 + 1, -(2**60) - 3), jax.random.key(0)
        zero = jnp.zeros(2)
        found = end(jnp.array(numbers, jnp.int64), key)[:, 1]
        np.testing.assert_allclose(found, [n % 7 for n in numbers], rtol=1e-12)


@pytest.mark.parametrize("solver", [dfx.Tsit5(), dfx.Kvaerno3()])
@pytest.mark.parametrize("t", [0.0, 1e3, 1e5, 1e7])
def test_a_step_is_as_long_as_asked_at_any_time(t, solver):
    """The float32 after 1e5 is 1e5 + 0.0078."""
    pulled = uk.System(jnp.eye(1), jnp.array([2.0]))
    q, v = uk.step(pulled, t, jnp.zeros(1), jnp.ones(1), 0.01, solver=solver)
    np.testing.assert_allclose(q, [0.01 + 0.01**2], rtol=1e-6)
    np.testing.assert_allclose(v, [1.02], rtol=1e-6)


def _crank_and_rocker():
    A, B, C, D = (0.0, 0.0), (0.0, 0.3), (0.8, 0.6), (0.7, 0.0)
    bodies = [um.rod("crank", A, B, 0.5), um.rod("coupler", B, C, 1.0), um.rod("rocker", C, D, 0.8)]
    joints = [
        um.Revolute("A", "ground", "crank", A),
        um.Revolute("B", "crank", "coupler", B),
        um.Revolute("C", "coupler", "rocker", C),
        um.Revolute("D", "rocker", "ground", D),
    ]
    return um.problem(um.assemble(bodies, joints, [um.Gravity()]), rates={"A": 10.0})


def _turned(run):
    return [run.q_end[2], run.q_end[5], run.q_end[8]]


def test_when_a_run_starts_does_not_matter():
    """Its steps were too short for the time at 1000 s to tell from those at which constraints break."""
    with jax.enable_x64(True):
        exact = _turned(uk.simulate(_crank_and_rocker(), t1=2.0, ts=2))
    for t0 in (0.0, 1000.0, 4000.0):
        run = uk.simulate(_crank_and_rocker(), t0=t0, t1=t0 + 2.0, ts=2)
        assert run.ok, run.message
        np.testing.assert_allclose(_turned(run), exact, atol=3e-3)


@pytest.mark.slow
def test_steps_at_the_end_of_a_late_run_may_be_refused():
    """Within 100 units of rounding of the end, 0.05 s here, a refused step was followed by a longer one, for ever."""
    run = uk.simulate(_crank_and_rocker(), t0=4980.0, t1=5000.0, ts=2)
    assert run.ok, run.message
