"""Calls of `simulate` from Python: what compiles again and what does not, and that what is shared is right."""

import contextlib
import weakref
from collections.abc import Iterator

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import monitoring

import ukjax as uk
from ukjax import mechanisms as um
from ukjax._run import _run_plan
from ukjax._run._results import RESULTS, code, result_of

_BACKEND = "/jax/core/compile/backend_compile_duration"


@contextlib.contextmanager
def compilations() -> Iterator[list[str]]:
    """The list of what XLA compiles within."""
    found: list[str] = []

    def listen(event: str, duration: float, **more: object) -> None:
        if event == _BACKEND:
            found.append(str(more.get("fun_name", "")))

    monitoring.register_event_duration_secs_listener(listen)
    try:
        yield found
    finally:
        monitoring.unregister_event_duration_listener(listen)


def oscillator(stiffness: float) -> uk.System:
    """A mass of 1 kg on a spring [N/m], its functions made anew at each call."""
    return uk.System(jnp.eye(1), lambda t, q, v: -stiffness * q)


def end(system: uk.AbstractSystem, **options) -> float:
    run = uk.simulate(system, jnp.ones(1), jnp.zeros(1), t1=1.0, **options)
    return float(run.q_end[0])


def test_the_listener_sees_compilations() -> None:
    with compilations() as found:
        jax.jit(lambda x: x * 3.25 + 1)(jnp.ones(7))
    assert found


def test_fields_that_were_one_change_without_compilation() -> None:
    run = lambda length: uk.simulate(uk.models.pendulum(length=length, angle=0.1), t1=0.5)
    run(1.0)
    with compilations() as found:
        run(1.3)
    assert found == []


@pytest.mark.parametrize("model", [pytest.param("scara", marks=pytest.mark.slow), "parallelogram"])
def test_a_first_run_asks_nothing_of_xla(model) -> None:
    """Machine code is made by LLVM, and a program of XLA would cost each process more than a short run."""
    problem = uk.models.get(model)
    jax.clear_caches()
    with compilations() as found:
        uk.simulate(problem, t1=0.0125)
        uk.simulate(problem, t1=0.0125, dt0=0.0025, stepsize_controller=dfx.ConstantStepSize())
    assert found == []


def test_results_are_those_of_diffrax() -> None:
    for name, result in dfx.RESULTS._name_to_item.items():
        ours = result_of(np.int32(code(result)))
        assert code(ours) == code(RESULTS.promote(result)), name
        assert RESULTS[ours] == dfx.RESULTS[result]


def test_functions_of_the_same_code_share_what_is_compiled() -> None:
    end(oscillator(4.0))
    with compilations() as found:
        assert end(oscillator(4.0)) == pytest.approx(np.cos(2.0), abs=1e-8)
    assert found == []


def test_gradients_outside_jit_share_what_is_compiled() -> None:
    def of(length: jax.Array) -> jax.Array:
        rod = uk.Holonomic(lambda t, q: q @ q - length**2)
        pendulum = uk.System(mass_matrix=jnp.eye(2), force=jnp.array([0.0, -9.81]), constraints=[rod])
        q0 = jnp.stack([jnp.zeros_like(length), -length])
        return uk.simulate(pendulum, q0, jnp.array([1.0, 0.0]), t1=1.0).q[-1, 0]

    jax.grad(of)(jnp.asarray(1.0))
    with compilations() as found:
        slope = jax.grad(of)(jnp.asarray(1.2))
    assert not found
    above, below = (float(of(jnp.asarray(1.2 + h))) for h in (1e-4, -1e-4))
    assert jnp.isclose(slope, (above - below) / 2e-4, rtol=1e-6)


def test_functions_that_differ_in_a_number_do_not() -> None:
    end(oscillator(4.0))
    assert end(oscillator(9.0)) == pytest.approx(np.cos(3.0), abs=1e-8)


def test_functions_that_differ_in_an_array_do_not() -> None:
    table = np.full(3, 4.0)
    made = lambda: uk.System(jnp.eye(1), lambda t, q, v: -jnp.mean(jnp.asarray(table)) * q)
    assert end(made()) == pytest.approx(np.cos(2.0), abs=1e-8)
    table[:] = 9.0
    assert end(made()) == pytest.approx(np.cos(3.0), abs=1e-8)


def test_events_of_the_same_code_share_what_is_compiled() -> None:
    crossing = lambda at: end(oscillator(4.0), event=lambda t, q, v: q[0] - at)
    crossing(0.5)
    with compilations() as found:
        crossing(0.5)
    assert found == []
    assert crossing(0.25) == pytest.approx(0.25, abs=1e-7)


def fallen(height, mu=0.1, contact="steps"):
    """How far a ball gets that is thrown forward from a height, and slides when it has landed without bouncing."""
    floor = uk.Unilateral(lambda t, q: q[1], friction=mu, slip=lambda t, q, v: v[0], name="floor")
    thrown = uk.System(jnp.eye(2), lambda t, q, v: jnp.array([0.0, -10.0]), [floor])
    options = {"contact": contact, "dt0": 0.05}
    return uk.simulate(thrown, jnp.stack([0 * height, height]), jnp.array([3.0, 0.0]), t1=0.1, **options).q[
        -1, 0
    ]


def test_contacts_of_the_same_code_share_what_is_compiled() -> None:
    fallen(1.0)
    with compilations() as found:
        assert fallen(2.0) == pytest.approx(0.3, abs=1e-12)
    assert found == []


@pytest.mark.slow
@pytest.mark.xfail(
    strict=True, reason="a gradient of steps has XLA compile the two calls of its programs anew"
)
def test_gradients_through_contacts_of_the_same_code_share_what_is_compiled() -> None:
    by_friction = jax.grad(lambda mu: fallen(jnp.zeros(()), mu, "differentiated steps"))
    by_friction(0.1)
    with compilations() as found:
        assert by_friction(0.2) == pytest.approx(-10.0 * 0.1**2 / 2, abs=1e-12)  # of v t - mu g t^2 / 2
    assert found == []


def turned(speed: float) -> float:
    """The angle of a rod driven with a speed [rad/s], after 0.1 s."""
    rod, hinge = um.rod("rod", (0, 0), (1, 0), 1.0), um.Revolute("hinge", "ground", "rod", (0, 0))
    system = um.assemble([rod], [hinge, um.Drive("drive", "hinge", lambda t: speed * t)])
    return float(uk.simulate(um.problem(system), t1=0.1).q[-1, 2])


def test_drives_of_the_same_code_share_what_is_compiled() -> None:
    turned(3.0)
    with compilations() as found:
        assert turned(3.0) == pytest.approx(0.3, abs=1e-12)
    assert not any("integrate" in name for name in found)
    assert turned(2.0) == pytest.approx(0.2, abs=1e-12)


def test_numbers_of_saved_times_share_the_run() -> None:
    system = oscillator(4.0)
    end(system, ts=100)
    with compilations() as found:
        run = uk.simulate(system, jnp.ones(1), jnp.zeros(1), t1=1.0, ts=90)
    assert not found
    np.testing.assert_allclose(run.t, np.linspace(0, 1, 90), atol=1e-15)
    np.testing.assert_allclose(run.q[:, 0], np.cos(2 * run.t), atol=1e-6)  # interpolated between steps


def test_other_times_of_equal_steps_share_the_run() -> None:
    """By time stepping, as long as the number of steps has the same next power of two."""
    stop = uk.Unilateral(lambda t, q: q[0], name="stop")
    falling = uk.System(jnp.eye(1), jnp.array([-9.81]), [stop])
    run = lambda t0, t1, dt0: uk.simulate(
        falling, [1.0], [0.0], t0=t0, t1=t1, ts=[t1], contact="steps", dt0=dt0
    )
    run(0.0, 0.1, 1e-3)
    with compilations() as found:
        end = run(0.05, 0.15, 9e-4)
    assert not found
    np.testing.assert_allclose(end.q[-1, 0], 1 - 9.81 * 0.1**2 / 2, rtol=1e-12)  # exact before the impact


def test_a_start_that_changes_is_looked_at_again() -> None:
    """Also where the user changes an array in place; and what is refused, or warned of, is so each time."""
    system, q0, v0 = oscillator(4.0), np.ones(1), np.zeros(1)
    for start in (1.0, 2.0, 1.0):
        q0[:] = start
        np.testing.assert_allclose(uk.simulate(system, q0, v0, t1=1.0).q[-1], start * np.cos(2.0), rtol=1e-7)
    pendulum = uk.models.pendulum().system
    for _ in range(2):
        assert uk.simulate(pendulum, [0.0, -1.0], [0.5, 0.0], t1=0.1).ok
        with pytest.raises(uk.InputError, match="rod"):
            uk.simulate(pendulum, [0.0, -3.0], [0.5, 0.0], t1=0.1)
        with pytest.warns(uk.StartMovedWarning, match="rod") as told:
            run = uk.simulate(pendulum, [0.0, -1.2], [0.5, 0.0], t1=0.1)
        assert told[0].filename == __file__
        np.testing.assert_allclose(run.q[0], [0.0, -1.0], atol=1e-12)


def test_later_calls_compile_nothing_and_give_arrays_of_jax() -> None:
    problem = uk.models.parallelogram()
    uk.simulate(problem, t1=0.1)
    with compilations() as found:
        run = uk.simulate(problem, t1=0.1)
    assert not found
    assert all(isinstance(x, jax.Array) for x in (run.t, run.q, run.multipliers, run.rank, run.energy))


def height(t: jax.Array, q: jax.Array) -> jax.Array:
    height.calls += 1
    return q[0]


height.calls = 0


@pytest.mark.parametrize(
    ("options", "error"),
    [
        pytest.param({}, 1e-8, id="events", marks=pytest.mark.slow),
        pytest.param({"contact": "steps", "dt0": 0.01}, 0.02, id="steps"),
    ],
)
def test_later_calls_with_contacts_call_no_function_of_the_user(options, error) -> None:
    """By steps it falls by g dt0 t / 2 too far."""
    ball = uk.System(jnp.eye(1), lambda t, q, v: jnp.array([-9.81]), [uk.Unilateral(height)])
    run = lambda speed: uk.simulate(ball, jnp.array([1.0]), jnp.array([speed]), t1=0.4, **options)
    run(0.0)
    before = height.calls
    np.testing.assert_allclose(run(0.5).q[-1, 0], 1 + 0.5 * 0.4 - 9.81 * 0.08, atol=error)
    assert height.calls == before > 0


@pytest.mark.parametrize("model", [uk.models.parallelogram, uk.models.slider_crank])
def test_multipliers_of_dependent_rows_are_those_of_least_norm(model) -> None:
    """Of A^T lambda = force, by NumPy's least squares, whose solutions are of least norm."""
    problem = model()
    run = uk.simulate(problem, t1=0.5, ts=6)
    for t, q, v, force, found in zip(run.t, run.q, run.v, run.constraint_force, run.multipliers, strict=True):
        A = np.asarray(uk.constraint_rows(problem.system, t, q, v).A)
        expected = np.linalg.lstsq(A.T, np.asarray(force), rcond=1e-6)[0]
        np.testing.assert_allclose(found, expected, atol=1e-7 * max(1.0, np.abs(expected).max()))


def test_times_before_the_end_are_saved_and_the_end_has_fields_of_its_own() -> None:
    run = uk.simulate(oscillator(4.0), jnp.ones(1), jnp.zeros(1), t1=1.0, ts=jnp.array([0.25, 0.5, 0.75]))
    np.testing.assert_allclose(run.t, [0.25, 0.5, 0.75], atol=1e-15)
    assert run.t_end == 1.0
    np.testing.assert_allclose(run.q_end, np.cos(2.0), atol=1e-7)


class Spring(eqx.Module):
    stiffness: np.ndarray
    more: dict


class OnSpring(uk.AbstractSystem):
    spring: Spring

    @property
    def constraints(self):
        return ()

    def mass_matrix(self, t, q):
        return jnp.eye(1)

    def force(self, t, q, v):
        return -(self.spring.stiffness + self.spring.more["stiffness"]) * q


def test_arrays_and_dictionaries_changed_in_place_are_seen() -> None:
    system = OnSpring(Spring(np.full(1, 4.0), {"stiffness": jnp.zeros(1)}))
    assert end(system) == pytest.approx(np.cos(2.0), abs=1e-8)
    system.spring.stiffness[0] = 9.0
    assert end(system) == pytest.approx(np.cos(3.0), abs=1e-8)
    system.spring.more["stiffness"] = jnp.full(1, 7.0)
    assert end(system) == pytest.approx(np.cos(4.0), abs=1e-8)


def test_a_call_by_itself_tells_what_one_in_jit_tells() -> None:
    problem = uk.models.four_bars(1)
    alone = uk.simulate(problem, t1=0.5, ts=20)
    within = jax.jit(lambda q, v: uk.simulate(problem.system, q, v, t1=0.5, ts=20))(problem.q0, problem.v0)
    for name in ("q", "v", "a", "constraint_force", "multipliers", "energy", "rank"):
        np.testing.assert_allclose(getattr(alone, name), getattr(within, name), rtol=1e-9, atol=1e-9)


def test_compiled_runs_equal_simulated_ones() -> None:
    problem = uk.models.pendulum()
    run = uk.compiled(problem, t1=1.0, outputs=lambda trajectory: trajectory.q[-1])
    np.testing.assert_allclose(run(), uk.simulate(problem, t1=1.0).q[-1], atol=1e-12)
    longer = uk.models.pendulum(length=2.0)
    other = run(longer.q0, longer.v0, system=longer.system)
    np.testing.assert_allclose(other, uk.simulate(longer, t1=1.0).q[-1], atol=1e-12)
    slower = 0.9 * problem.v0
    with compilations() as found:
        run(v0=slower)
    assert found == []


def test_compiled_runs_refuse_what_they_were_not_made_for() -> None:
    with pytest.raises(uk.InputError, match="unknown option 'tmax'"):
        uk.compiled(uk.models.pendulum(), tmax=1.0)
    run = uk.compiled(uk.models.pendulum(), t1=1.0)
    for system in (uk.models.knife_edge().system, "a", 3):
        with pytest.raises(uk.InputError, match="one like that"):
            run(system=system)
    for state, words in (
        ({"v0": "a"}, "v0 must be"),
        ({"v0": [1.0, 2.0, 3.0]}, r"v0 has shape \(3,\); the run was made for \(2,\)"),
        ({"q0": jnp.zeros((4, 2))}, r"q0 has shape \(4, 2\).*jax.vmap"),
        ({"q0": [np.nan, 0.0]}, "q0 must be finite"),
        ({"q0": [1j, 0.0]}, "q0 must be real"),
    ):
        with pytest.raises(uk.InputError, match=words):
            run(**state)
    with pytest.raises(uk.InputError, match=r"v0 has shape \(1, 2\)"):
        jax.jit(run)(v0=jnp.zeros((1, 2)))


def test_compiled_runs_in_vmap_and_of_whole_numbers() -> None:
    """From rest at 0 the mass falls along a rod of 1 m as elsewhere in a batch."""
    run = uk.compiled(uk.models.pendulum(), t1=0.1, outputs=lambda trajectory: trajectory.q[-1])
    each = jax.vmap(lambda v: run([0, -1], v))(jnp.asarray([[0.0, 0.0], [1.0, 0.0]]))
    np.testing.assert_allclose(each[0], [0.0, -1.0], atol=1e-12)
    np.testing.assert_allclose(each[1], run([0, -1], np.array([1, 0])), atol=1e-12)


def test_solvers_made_anew_share_what_is_compiled() -> None:
    end(oscillator(4.0), solver=dfx.Tsit5())
    with compilations() as found:
        end(oscillator(4.0), solver=dfx.Tsit5())
    assert found == []


def test_options_made_anew_are_those_of_the_call() -> None:
    """Options are known again by what they hold: equal ones are prepared once, others are not mixed up with them."""
    system = uk.models.pendulum().system
    given = {"t1": 0.3, "ts": 3, "start_tolerance": np.inf}
    fall = lambda **options: np.asarray(uk.simulate(system, [0.9, 0.1], [0.0, 0.0], **given, **options).q)
    stable = lambda gain: fall(stabilizer=uk.Baumgarte(gain, gain**2))
    first = {gain: stable(gain) for gain in (1.0, 30.0)}
    before = len(_run_plan._plans)
    for gain in (30.0, 1.0, 30.0):
        np.testing.assert_array_equal(stable(gain), first[gain])
    assert len(_run_plan._plans) == before
    apart = np.abs(np.linalg.norm(first[30.0][-1]) - 1), np.abs(np.linalg.norm(first[1.0][-1]) - 1)
    assert apart[0] < 0.1 * apart[1]  # phi decays as exp(-30 t), or hardly
    gains = np.array([1.0])
    made = uk.Baumgarte(gains, gains**2)
    slack = fall(stabilizer=made)
    np.testing.assert_array_equal(slack, first[1.0])
    options = {"solver": dfx.Tsit5(), "stepsize_controller": dfx.PIDController(1e-3, 1e-3)}
    finer = options | {"stepsize_controller": dfx.PIDController(1e-9, 1e-9)}
    assert not np.array_equal(fall(**options), fall(**finer))


def test_functions_written_in_a_loop_are_those_of_each_pass() -> None:
    """Their cells change with the loop, also those of the functions compiled before."""
    for stiffness in (2.0, 3.0, 2.0):
        system = uk.System(jnp.eye(1), lambda t, q, v: -stiffness * q)  # noqa: B023
        assert end(system) == pytest.approx(np.cos(np.sqrt(stiffness)), abs=1e-8)
    for height in (0.5, 0.25):
        stopped = end(oscillator(4.0), event=lambda t, q, v: q[0] - height)  # noqa: B023
        assert stopped == pytest.approx(height, abs=1e-7)


def test_derivatives_outside_of_jit() -> None:
    """d cos(sqrt(k)) / dk at k = 4, of a field and of what a function closes over."""
    slope = jax.grad(lambda k: uk.simulate(oscillator(k), jnp.ones(1), jnp.zeros(1), t1=1.0).q[-1, 0])(4.0)
    np.testing.assert_allclose(slope, -np.sin(2.0) / 4, atol=1e-7)


def test_mechanisms_without_rows_start() -> None:
    """A free body falls; what computes its rows computes nothing, and writes nothing."""
    body = um.box("plate", (0.0, 0.0, 0.0), (1.0, 1.0, 0.1), mass=1.0)
    system = um.tree([body], [um.Free("float", "ground", "plate", (0.0, 0.0, 0.0))], [um.Gravity()])
    run = uk.simulate(um.problem(system, t1=0.2))
    np.testing.assert_allclose(run.q[-1, 2], -0.5 * 9.81 * 0.2**2, atol=1e-9)


class Looking(dfx.AbstractStepSizeController):
    """Steps of half the size where the model has a stabilizer: a controller that looks at its arguments."""

    def wrap(self, direction):
        return self

    def init(self, terms, t0, t1, y0, dt0, args, func, error_order):
        return t0 + dt0 / (1 if args.stabilizer is None else 2), (dt0, 0)

    def adapt_step_size(self, t0, t1, y0, y1_candidate, args, y_error, error_order, controller_state):
        dt0, count = controller_state
        return True, t1, t1 + dt0 / 2, False, (dt0, count), dfx.RESULTS.successful


def test_a_controller_that_looks_at_the_model():
    """Machine code knows of no model; such a run is Diffrax's, as before."""
    found = uk.simulate(uk.models.pendulum(), t1=0.5, dt0=0.02, stepsize_controller=Looking(), ts=2)
    expected = uk.simulate(uk.models.pendulum(), t1=0.5, ts=2, rtol=1e-10, atol=1e-10)
    assert int(found.stats["num_steps"]) == 50
    np.testing.assert_allclose(found.q[-1], expected.q[-1], atol=1e-9)


def test_models_are_let_go_of() -> None:
    """Systems and what was compiled for them live as long as caches hold them, and no longer."""
    kept = []

    def run(k: int) -> uk.Trajectory:
        force = lambda t, q, v: -k * jnp.sin(q)
        system = uk.System(jnp.eye(2), force, (uk.Holonomic(lambda t, q: q[0] + k * q[1], name="row"),))
        kept.extend(map(weakref.ref, (force, system)))
        return uk.simulate(system, jnp.zeros(2), jnp.zeros(2), t1=0.01, ts=2)

    ends = [run(k).q[-1] for k in (1, 2)]
    assert any(x() is not None for x in kept)
    uk.clear_caches()
    assert all(x() is None for x in kept)
    np.testing.assert_array_equal(run(1).q[-1], ends[0])  # compiled anew


def four_bar_in_joint_coordinates() -> uk.Problem:
    """A linkage whose tree is closed by a loop."""
    A, B, C, D = (0.0, 0.0), (0.0, 0.3), (0.8, 0.6), (0.7, 0.0)
    bodies = [
        um.rod("crank", A, B, mass=0.5),
        um.rod("coupler", B, C, mass=1.0),
        um.rod("rocker", C, D, mass=0.8),
    ]
    joints = [
        um.Revolute("A", "ground", "crank", A),
        um.Revolute("B", "crank", "coupler", B),
        um.Revolute("C", "coupler", "rocker", C),
    ]
    loop = um.Revolute("D", "rocker", "ground", D)
    return um.problem(um.tree(bodies, joints, [um.Gravity()], loops=[loop]))


@pytest.mark.parametrize(
    "function",
    [
        lambda system, q: system.mass_matrix(0.0, q),
        lambda system, q: system.energy(0.0, q, jnp.ones(3)),
        lambda system, q: system.force(0.0, q, jnp.ones(3)),
        lambda system, q: uk.constraint_rows(system, 0.0, q, jnp.ones(3)).position_error,
        pytest.param(lambda system, q: uk.project(system, 0.0, q, jnp.ones(3))[0], marks=pytest.mark.slow),
    ],
    ids=["mass matrix", "energy", "force", "rows", "projection"],
)
def test_transformed_outside_of_jit_they_are_one_program(function) -> None:
    """Not one program for each operation: hundreds, which take XLA 7 to 30 s."""
    problem = four_bar_in_joint_coordinates()
    of = lambda q: function(problem.system, q)
    states = jnp.stack([problem.q0 + 1e-3 * jnp.arange(3.0), problem.q0 - 2e-3])
    alone = np.stack([of(q) for q in states])
    away = lambda h: np.stack([of(states[0] + h * d) for d in np.eye(3)], -1)
    jax.vmap(jnp.sin)(states), jax.jacfwd(jnp.sin)(states[0])
    with compilations() as found:
        together, slope = jax.vmap(of)(states), jax.jacfwd(of)(states[0])
    assert len(found) < 20
    np.testing.assert_allclose(together, alone, atol=1e-12)
    np.testing.assert_allclose(slope, (away(1e-5) - away(-1e-5)) / 2e-5, atol=1e-6)
