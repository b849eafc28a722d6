"""What stops a run: crossings against closed forms and SciPy's events, which event it was, and what is refused."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
import pytest
import scipy.integrate
import scipy.special

import ukjax as uk

TIGHT = {"rtol": 1e-10, "atol": 1e-10, "ts": 5}
RATE = 2.0  # of x'' = -RATE^2 x, whose motion from x = 1 is cos(RATE t)
SPRING = uk.System(jnp.eye(1), lambda t, q, v: -(RATE**2) * q)
X0, V0 = jnp.ones(1), jnp.zeros(1)


def _x(t, q, v):
    return q[0]


def _far(t, q, v):
    return q[0] - 2.0


def _run(event, t1=10.0, **options):
    return uk.simulate(SPRING, X0, V0, t1=t1, event=event, **(TIGHT | options))


def _scipy(events, t1=10.0):
    """The first time, and the index, of terminal events (function, direction) by SciPy."""
    functions = []
    for fn, direction in events:
        event = lambda t, y, fn=fn: float(fn(t, y[:1], y[1:]))
        event.terminal, event.direction = True, direction
        functions.append(event)
    field = lambda t, y: [y[1], -(RATE**2) * y[0]]
    solution = scipy.integrate.solve_ivp(
        field, (0, t1), [1.0, 0.0], method="DOP853", rtol=1e-11, atol=1e-11, events=functions, max_step=0.05
    )
    which = [i for i, t in enumerate(solution.t_events) if t.size]
    return solution.t[-1], which[0] if which else -1


CASES = {
    "down": [(_x, -1)],
    "up": [(_x, 1)],
    "both": [(_x, 0)],
    "the later one first": [(lambda t, q, v: q[0] - 0.1, 0), (lambda t, q, v: q[0] - 0.3, 0)],
    "in three directions": [
        (lambda t, q, v: q[0] + 0.9, 1),
        (lambda t, q, v: v[0] + 1.5, 1),
        (lambda t, q, v: t - 1.2, 0),
    ],
    "a crossing between two that do not count": [
        (lambda t, q, v: q[0] - 0.5, 1),
        (lambda t, q, v: v[0] - 1.0, -1),
    ],
    "never": [(lambda t, q, v: q[0] - 2.0, 0)],
}


FIXED = {"solver": dfx.Tsit5(), "dt0": 0.01, "stepsize_controller": dfx.ConstantStepSize()}
# Short steps, which hold one event each, ask for no more than one case of each end. `test_closed_form_in_jit` goes down.
QUICK = "in three directions", "never"


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *(pytest.param(x, {}, id=x, marks=[pytest.mark.slow] * (x == "down")) for x in CASES),
        *(
            pytest.param(x, FIXED, id=f"{x}, fixed", marks=[pytest.mark.slow] * (x not in QUICK))
            for x in CASES
        ),
    ],
)
def test_as_scipy(name, options):
    """The default solver's steps of some 0.3 s hold several events each."""
    events = CASES[name]
    run = _run([uk.Event(fn, d or None, name=f"no. {i}") for i, (fn, d) in enumerate(events)], **options)
    t, index = _scipy(events)
    np.testing.assert_allclose(run.t_end, t, atol=1e-8)
    assert run.event == index
    assert run.event_name == (None if index < 0 else f"no. {index}")
    assert run.result_name == ("successful" if index < 0 else "event_occurred")
    assert run.summary()["event"] == run.event_name


HEIGHTS = jnp.asarray([0.2, 0.6, 0.9])
FALLEN = np.arccos(HEIGHTS) / RATE < 0.5


def _stopped(h, **options):
    """x = cos(w t) falls through h at acos(h) / w, if not after 0.5 s."""
    events = [lambda t, q, v: t - 0.5, uk.Event(lambda t, q, v: q[0] - h, "down")]
    run = _run(events, **options)
    return run.t_end, (run.event, run.start_moved)


def test_closed_form_in_jit():
    """When, and by which event, in a batch."""
    t, (event, moved) = jax.jit(jax.vmap(_stopped))(HEIGHTS)
    np.testing.assert_allclose(t, np.where(FALLEN, np.arccos(HEIGHTS) / RATE, 0.5), atol=1e-9)
    np.testing.assert_array_equal(event, FALLEN.astype(int))
    np.testing.assert_array_equal(moved, np.zeros((3, 2)))


@pytest.mark.slow
def test_derivative_in_jit():
    """dt/dh = -1 / (w sqrt(1 - h^2)); of one run, `test_starts_at_zero`."""
    of = lambda h: _stopped(h, adjoint=dfx.RecursiveCheckpointAdjoint())
    (t, (event, _)), slope = jax.jit(jax.vmap(jax.value_and_grad(of, has_aux=True)))(HEIGHTS)
    np.testing.assert_allclose(t, np.where(FALLEN, np.arccos(HEIGHTS) / RATE, 0.5), atol=1e-9)
    np.testing.assert_allclose(slope, np.where(FALLEN, -1 / (RATE * np.sqrt(1 - HEIGHTS**2)), 0.0), atol=1e-6)
    np.testing.assert_array_equal(event, FALLEN.astype(int))


@pytest.mark.parametrize("mode", [jax.grad, jax.jacfwd])
def test_the_derivative_of_the_first_of_several_events(mode):
    """An oscillator a cos t is at 0.3 before it is at -0.3: dt/da = 0.3 / (a^2 sin t)."""
    events = [lambda t, q, v: q[0] + 0.3, lambda t, q, v: q[0] - 0.3]
    system = uk.System(jnp.eye(1), lambda t, q, v: -q)
    options = {"event": events, "ts": 2, "rtol": 1e-11, "atol": 1e-11}
    time = lambda a: uk.simulate(system, a[None], jnp.zeros(1), t1=9.0, **options).t_end
    np.testing.assert_allclose(mode(time)(jnp.asarray(2.0)), 0.15 / np.sqrt(4 - 0.09), rtol=1e-7)


def test_simultaneous_events_are_the_first_of_the_list():
    run = _run([_x, lambda t, q, v: 2 * q[0]])
    np.testing.assert_allclose(run.t_end, np.pi / 2 / RATE, atol=1e-9)
    assert run.event_name == "_x"


@pytest.mark.parametrize("direction", [None, "up", "down"])
@pytest.mark.parametrize("speed", [1.0, pytest.param(-1.0, marks=pytest.mark.slow)])
def test_a_start_on_the_crossing_does_not_stop_there(speed, direction):
    """x = +-sin(w (t - 1)) / w crosses zero again after half a period, in the direction it started in after a whole."""
    t = 1.0 + np.pi / RATE * (2 if direction == ("up" if speed > 0 else "down") else 1)
    event = [uk.Event(_x, direction, name="zero"), _far]
    start = jnp.zeros(1), jnp.asarray([speed])
    run = uk.simulate(SPRING, *start, t0=1.0, t1=5.0, event=event, **TIGHT)
    np.testing.assert_allclose(run.t_end, t, atol=1e-8)
    assert run.event_name == "zero"


def test_starts_at_zero():
    """At rest the second derivative tells; a parabola, which one long step follows, comes down after 2 v / g."""
    fallen = _run(lambda t, q, v: q[0] - 1.0, t1=4.0)
    np.testing.assert_allclose(fallen.t_end, 4.0)  # it comes back to 1 at pi and turns there: no crossing
    turned = _run(lambda t, q, v: v[0])
    np.testing.assert_allclose(turned.t_end, np.pi / RATE, atol=1e-8)
    ball = uk.System(jnp.eye(1), jnp.asarray([-10.0]))
    up = lambda speed: uk.simulate(ball, X0, speed * X0, t1=3.0, event=lambda t, q, v: q[0] - 1.0, ts=2)
    np.testing.assert_allclose(up(10.0).t_end, 2.0, atol=1e-9)
    time, slope = jax.jit(jax.value_and_grad(lambda speed: up(speed).t_end))(10.0)
    np.testing.assert_allclose((time, slope), (2.0, 0.2), atol=1e-8)


@pytest.mark.parametrize("contact", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("direction", "t"), [(None, 2.0), ("up", 3.0), ("down", 2.0)])
def test_a_start_where_two_derivatives_are_zero(direction, t, contact):
    """x = t^3 / 6 - t^4 / 12 comes back to zero at 2."""
    floor = [uk.Unilateral(lambda t, q: q[0] + 9.0)] if contact else []
    system = uk.System(jnp.eye(1), lambda t, q, v: jnp.stack([t * (1 - t)]), floor)
    run = uk.simulate(system, [0.0], [0.0], t1=3.0, ts=2, event=uk.Event(_x, direction))
    np.testing.assert_allclose(run.t_end, t, rtol=1e-9)


def test_a_projected_start_is_zero_to_rounding():
    """The start is moved along the rod by rounding alone; hanging, q[0] is 1e-17, and the swing comes back later."""
    hanging = jnp.asarray([1e-17, -1.0]), jnp.asarray([0.01, 0.0])
    run = uk.simulate(uk.models.pendulum(), *hanging, t1=3.0, event=_x, **TIGHT)
    np.testing.assert_allclose(run.t_end, np.pi / np.sqrt(9.81), atol=1e-5)  # of small swings


def test_a_steep_root_is_found():
    """Newton's method takes many steps at a triple root."""
    run = _run(lambda t, q, v: q[0] ** 3)
    np.testing.assert_allclose(run.t_end, np.pi / 2 / RATE, atol=1e-9)


def test_the_pendulum_of_the_documentation():
    """A truth value stopped at the end of a step, 0.6254 s; at 0.53822 s it hangs down."""
    from scipy.special import ellipk

    pendulum = uk.models.pendulum()
    with pytest.raises(uk.InputError, match=r"q\[0\] instead of q\[0\] < 0"):
        uk.simulate(pendulum, event=lambda t, q, v: q[0] < 0)
    quarter = ellipk(np.sin(np.pi / 6) ** 2) / np.sqrt(9.81)
    run = uk.simulate(pendulum, event=uk.Event(_x, "down", name="down"), **TIGHT)
    np.testing.assert_allclose(run.t_end, quarter, atol=1e-8)


def test_of_diffrax():
    far, turning = lambda t, y, args, **_: y[0][0] - 2.0, lambda t, y, args, **_: y[1][0]
    event = dfx.Event({"a": far, "b": turning}, optx.Newton(1e-12, 1e-12), {"a": None, "b": True})
    run = _run(event)
    np.testing.assert_allclose(run.t_end, np.pi / RATE, atol=1e-8)
    assert run.event_name == "b"


REFUSED = {
    "a truth value": (lambda t, q, v: q[0] < 0, ("truth value", "q[0] < 0")),
    "one in a list": ([_x, uk.Event(lambda t, q, v: q[0] < 0, name="low")], ("low", "truth value")),
    "one of Diffrax": (dfx.Event(lambda t, y, args, **_: y[0][0] < 0), ("truth value",)),
    "complex": (lambda t, q, v: jax.lax.complex(q[0], v[0]), ("real", "complex")),
    "an integer": (lambda t, q, v: q[0].astype(int), ("real", "int")),
    "a constant": (lambda t, q, v: 1.0, ("constant",)),
    "a constant of no number": (lambda t, q, v: jnp.asarray(2.0) * 3.0, ("constant",)),
    "a sign": (lambda t, q, v: jnp.sign(q[0]), ("step", "jnp.sign")),
    "a step": (lambda t, q, v: jnp.where(q[0] > 0, 1.0, -1.0), ("step",)),
    "a vector": (lambda t, q, v: q, ("(1,)", "scalar")),
    "nothing": (lambda t, q, v: None, ("event", "None")),
    "an empty list": ([], ("empty",)),
    "Diffrax's in a list": ([dfx.Event(lambda t, y, args, **_: y[0][0])], ("alone",)),
    "no function": ([_x, 3], ("event", "(t, q, v)", "3")),
    "text": ("q[0]", ("event", "'q[0]'")),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    event, words = REFUSED[name]
    with pytest.raises(uk.InputError) as error:
        _run(event)
    for word in words:
        assert word in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("arguments", [(_x, "left"), (_x, 2), (_x, True), (0.5,), (lambda q: q[0],)])
def test_events_refused(arguments):
    with pytest.raises(uk.InputError, match="event"):
        uk.Event(*arguments)


def test_the_same_function_compiles_once():
    """An event's function is compared, not what wraps it at each call."""
    from ukjax._run._integrate import integrate_run

    _run(_x)
    size = integrate_run._cache_size()  # pyright: ignore[reportFunctionMemberAccess]
    _run(_x)
    assert integrate_run._cache_size() == size  # pyright: ignore[reportFunctionMemberAccess]


def test_saved_and_read(tmp_path):
    run = _run(uk.Event(_x, name="rest"))
    read = uk.Trajectory.load(run.save(tmp_path / "run.npz"))
    assert read.event_name == "rest"
    assert read.summary() == run.summary()


@pytest.mark.slow
@pytest.mark.parametrize("mode", [jax.jacrev, jax.jacfwd])
def test_a_pendulums_time_to_its_lowest_point_goes_with_the_root_of_its_length(mode):
    """T = sqrt(L) f(angle), so dT/dL = T / (2 L); T from rest at 1 rad by the elliptic integral."""

    def reached(L):
        q0 = L * jnp.stack([jnp.sin(1.0), -jnp.cos(1.0)])
        lowest = lambda t, q, v: q[0]
        pendulum = uk.models.pendulum(length=L)
        return uk.simulate(
            pendulum, q0, jnp.zeros(2), t1=2.0, event=lowest, rtol=1e-10, atol=1e-10, ts=2
        ).t_end

    L = 1.2
    T = np.sqrt(L / 9.81) * scipy.special.ellipk(np.sin(0.5) ** 2)
    slope, time = mode(lambda L: (reached(L),) * 2, has_aux=True)(L)
    np.testing.assert_allclose(time, T, rtol=1e-8)
    np.testing.assert_allclose(slope, T / (2 * L), rtol=1e-7)


@pytest.mark.slow
def test_what_has_no_scalar_code_is_told():
    """An event by eigenvalues, which have none: at cos(2 t) = 0.5."""
    run = _run(lambda t, q, v: jnp.linalg.eigvals(jnp.eye(2) * q[0])[0].real - 0.5)
    np.testing.assert_allclose(run.t_end, np.arccos(0.5) / RATE, atol=1e-8)
    assert run.computed_by.endswith("steps by XLA, as 'eig' has no scalar code")
    assert "XLA" not in _run(_x).computed_by


@pytest.mark.parametrize(("t0", "unit"), [(0.0, 1.0), (1.7e9, 1.0), (0.0, 1e-9)])
def test_the_time_of_an_event_is_known_to_rounding(t0, unit):
    """A ball falls past two heights 0.1 mm apart: at times of the clock of Unix, and of nanoseconds."""
    g = 9.81 / unit**2
    ball = uk.System(jnp.eye(1), jnp.array([-g]))
    low, lower = (
        uk.Event(lambda t, q, v, h=h: q[0] - h, "down", name=name)
        for h, name in ((1e-4, "low"), (0.0, "lower"))
    )
    run = uk.simulate(ball, [1.0], [0.0], t0=t0, t1=t0 + unit, event=[lower, low])
    assert run.event_name == "low"
    hit, known = np.sqrt(2 * (1 - 1e-4) / g), 4 * np.spacing(t0 + unit)
    np.testing.assert_allclose(float(run.t_end) - t0, hit, rtol=1e-9, atol=known)
    np.testing.assert_allclose(run.q_end, 1e-4, atol=1e-12 + g * hit * known)
    alone = uk.simulate(ball, [1.0], [0.0], t0=t0, t1=t0 + unit, event=lower)
    np.testing.assert_allclose(alone.q_end, 0, atol=1e-12 + g * hit * known)


def test_events_late_in_single_precision():
    """An oscillator's first zero, 10,000 s after the clock was started: float32 has steps of 1 ms there."""
    with jax.enable_x64(False):
        swing = uk.System(jnp.eye(1), lambda t, q, v: -4.0 * q)
        run = uk.simulate(swing, [1.0], [0.0], t0=1e4, t1=1e4 + 2, event=lambda t, q, v: q[0])
        np.testing.assert_allclose(run.t_end, 1e4 + np.pi / 4, atol=4e-3)
        np.testing.assert_allclose(run.q_end, 0, atol=8e-3)
