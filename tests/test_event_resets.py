"""Events after which a run goes on: closed forms, SciPy, and derivatives through the time of the event."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contact_references import TIGHT, G, events_of, followed, forward, slopes

import ukjax as uk


def test_reset_is_applied_where_the_function_crosses_zero():
    """A ball whose event turns its velocity round bounces; derivatives are those of the closed form."""

    def run(p, options):
        h0, e = p
        floor = uk.Event(lambda t, q, v: q[0], "down", lambda t, q, v: (q, -e * v), name="floor")
        ball = uk.System(jnp.eye(1), jnp.array([-G]))
        found = uk.simulate(
            ball, jnp.reshape(h0, 1), jnp.zeros(1), t1=1.5, ts=[0.6, 1.1], event=floor, **options
        )
        return jnp.concatenate([found.q[:2, 0], found.v[:2, 0], found.contacts.event_time[:2]]), found

    def reference(p):
        h0, e = p
        first = np.sqrt(2 * h0 / G)
        speed, times = e * G * first, np.array([0.6, 1.1]) - first
        height, second = speed * times - G * times**2 / 2, first + 2 * speed / G
        return np.array([*height, *(speed - G * times), first, second])

    found, derivative, trajectory = forward(run, jnp.array([1.0, 0.8]))
    np.testing.assert_allclose(found, reference([1.0, 0.8]), atol=1e-9)
    np.testing.assert_allclose(derivative, slopes(reference, [1.0, 0.8]), atol=1e-7)
    assert [x.split(": ")[1] for x in trajectory.contacts.told()] == ["floor (1 of 2)", "floor (2 of 2)"]


def test_resets_of_both_directions_are_counted_together():
    """An oscillator of period 2 pi that passes its middle twice in it, once upwards."""
    swing = uk.System(jnp.eye(1), lambda t, q, v: -q)
    count = uk.Event(lambda t, q, v: q[0], reset=lambda t, q, v: (q, v), name="middle")
    told = uk.simulate(swing, [1.0], [0.0], t1=3 * np.pi, ts=2, event=count).contacts.told()
    times, words = zip(*(x.split(" s: ") for x in told), strict=True)
    np.testing.assert_allclose(np.array(times, float), np.pi * np.array([0.5, 1.5, 2.5]), atol=1e-6)
    assert words == ("middle (1 of 3)", "middle (2 of 3)", "middle (3 of 3)")


@pytest.mark.slow
def test_resets_stops_and_contacts_in_one_run():
    """A pendulum is braked at the bottom from both sides, bounces off a stop, and the run ends by a third event."""
    stop = uk.Unilateral(lambda t, q: q[0] + 0.5, restitution=0.9, name="stop")
    system = uk.System(jnp.eye(1), lambda t, q, v: -G * jnp.sin(q), [stop])
    brake = uk.Event(lambda t, q, v: q[0], reset=lambda t, q, v: (q, 0.9 * v), name="brake")
    late = uk.Event(lambda t, q, v: t - 2.9, name="late")
    run = uk.simulate(system, [1.0], [0.0], t1=4.0, ts=[2.0, 4.0], event=[brake, late], **TIGHT)
    rate = lambda t, y: [y[1], -G * np.sin(y[0])]
    side = [1.0]
    passes = lambda t, y: y[0] * side[0]
    hits = lambda t, y: y[0] + 0.5 + 1e-14
    passes.direction = hits.direction = -1

    def jump(k, t, y):
        if k == 1:
            return [-0.5, -0.9 * y[1]]
        side[0] = -side[0]
        return [-1e-15 * np.sign(-side[0]), 0.9 * y[1]]

    states, times = followed(rate, [1.0, 0.0], 2.9, [passes, hits], jump, [2.0, 2.9])
    np.testing.assert_allclose(events_of(run), times, atol=1e-8)
    np.testing.assert_allclose([run.t[0], run.t_end], [2.0, 2.9], atol=1e-10)
    found = np.stack([[run.q[0], run.v[0]], [run.q_end, run.v_end]])[..., 0]
    np.testing.assert_allclose(found, states, atol=1e-7)
    assert run.event_name == "late"


@pytest.mark.slow
def test_closed_loops_and_reverse_mode():
    """A four-bar that loses a part of its speed where its crank points up; by central differences."""

    def end(speed):
        problem = uk.models.four_bars(1)
        half = uk.Event(lambda t, q, v: v[0], reset=lambda t, q, v: (q, 0.5 * v), name="turns")
        run = uk.simulate(
            problem.system, problem.q0, speed * problem.v0, t1=1.0, ts=[1.0], event=half, **TIGHT
        )
        return run.q[0, 0], run

    (value, run), slope = jax.value_and_grad(end, has_aux=True)(1.0)
    assert np.isfinite(value)
    np.testing.assert_allclose(np.asarray(run.position_error), 0, atol=1e-12)
    h = 1e-4
    difference = (end(1 + h)[0] - end(1 - h)[0]) / (2 * h)
    np.testing.assert_allclose(slope, difference, rtol=1e-6)


class Kick(eqx.Module):
    """Both factors in one program."""

    factor: jax.Array

    def __call__(self, t, q, v):
        return self.factor * q, 0.5 * v


def test_a_reset_off_the_constraints_is_told():
    """A pendulum as a point on a circle, whose reset moves it off; the run goes on from the nearest point."""
    circle = uk.Holonomic(lambda t, q: q @ q - 1)
    pendulum = uk.System(jnp.eye(2), jnp.array([0.0, -G]), [circle])
    crosses = lambda t, q, v: q[0]
    for factor, moved in ((1.2, 0.2), (1.0, 0.0)):
        options = {
            "t1": 0.7,
            "ts": [0.7],
            "event": uk.Event(crosses, reset=Kick(jnp.asarray(factor)), name="kick"),
        }
        if moved:
            with pytest.warns(uk.StartMovedWarning, match="event kick at .* is off the constraints"):
                run = uk.simulate(pendulum, [1.0, 0.0], [0.0, 0.0], **options)
        else:
            run = uk.simulate(pendulum, [1.0, 0.0], [0.0, 0.0], **options)
        np.testing.assert_allclose(run.contacts.reset_moved[0], moved, atol=1e-7)
        np.testing.assert_allclose(jnp.sum(run.q_end**2), 1, atol=1e-9)


def test_what_is_refused():
    ball = uk.System(jnp.eye(1), jnp.array([-G]))
    run = lambda reset, **more: uk.simulate(
        ball, [1.0], [0.0], t1=1.0, event=uk.Event(lambda t, q, v: q[0], reset=reset, name="floor"), **more
    )
    with pytest.raises(uk.InputError, match=r"reset of the event floor must return the pair"):
        run(lambda t, q, v: -v)
    with pytest.raises(uk.InputError, match=r"returned shapes"):
        run(lambda t, q, v: (q, jnp.zeros(2)))
    with pytest.raises(uk.InputError, match="knows no event"):
        run(lambda t, q, v: (q, -v), contact="steps", dt0=0.01)
    with pytest.raises(uk.InputError, match="reset"):
        uk.Event(lambda t, q, v: q[0], reset=3.0)


@pytest.mark.parametrize("e", [0.5, 0.8])
def test_bounces_that_accumulate_end_the_run(e):
    """Infinitely many end at sqrt(2 h / g) (1 + e) / (1 - e); what follows is not the event's to say."""
    ball = uk.System(jnp.eye(1), jnp.array([-G]))
    floor = uk.Event(lambda t, q, v: q[0], "down", lambda t, q, v: (q, -e * v), name="floor")
    run = uk.simulate(ball, jnp.ones(1), jnp.zeros(1), t1=20.0, event=floor)
    assert run.result_name == "resets_accumulate"
    assert "ever sooner" in run.message
    np.testing.assert_allclose(run.t_end, np.sqrt(2 / G) * (1 + e) / (1 - e), atol=1e-5)
    np.testing.assert_allclose(run.q_end, 0, atol=1e-10)


def test_an_event_at_the_end_of_a_step_occurs():
    """A step ends where a table jumps, and the event's function is zero there to rounding: v = t, then -t."""
    pushes = uk.Tabulated([0.0, 0.3, 0.6], [1.0, 2.0, 0.0], kind="hold")
    cart = uk.System(jnp.eye(1), lambda t, q, v: jnp.reshape(pushes(t), 1))
    turn = uk.Event(lambda t, q, v: 0.3 - t, "down", lambda t, q, v: (q, -v), name="turn")
    run = uk.simulate(cart, jnp.zeros(1), jnp.zeros(1), t1=1.0, event=turn)
    np.testing.assert_allclose(run.v_end, -0.3 + 2 * 0.3, atol=1e-9)


def _ball(e, contact):
    """A ball that falls on a floor: a contact, or an event of its own."""
    if contact:
        return uk.System(jnp.eye(1), jnp.array([-G]), [uk.Unilateral(lambda t, q: q[0], restitution=e)]), []
    floor = uk.Event(lambda t, q, v: q[0], "down", lambda t, q, v: (q, -e * v), name="floor")
    return uk.System(jnp.eye(1), jnp.array([-G])), [floor]


# What stops the run; whether that is before the impact; and when, and how fast the ball is then, by h, e = 1, 0.5.
_HIT, _SPEED = np.sqrt(2 / G), np.sqrt(2 * G)
_LOW = 1e-3  # a height that is passed twice in one step [m]
STOPS = {
    "floor": (lambda t, q, v: q[0], "down", True, _HIT, -_SPEED),
    "shortly before": (lambda t, q, v: t - _HIT + 1e-3, None, True, _HIT - 1e-3, -_SPEED + 1e-3 * G),
    "shortly after": (lambda t, q, v: t - _HIT - 1e-3, None, False, _HIT + 1e-3, _SPEED / 2 - 1e-3 * G),
    "turn": (lambda t, q, v: v[0], "up", False, _HIT, _SPEED / 2),
    "low": (
        lambda t, q, v: q[0] - _LOW,
        "down",
        True,
        np.sqrt(2 * (1 - _LOW) / G),
        -np.sqrt(2 * G * (1 - _LOW)),
    ),
    "low again": (
        *(lambda t, q, v: q[0] - _LOW, "up", False),
        _HIT + (_SPEED / 2 - np.sqrt(_SPEED**2 / 4 - 2 * G * _LOW)) / G,
        np.sqrt(_SPEED**2 / 4 - 2 * G * _LOW),
    ),
}


@pytest.mark.parametrize("contact", [True, False])
@pytest.mark.parametrize("stop", STOPS)
def test_a_run_is_stopped_around_the_instant_of_a_jump(stop, contact):
    """Closed forms of the time, the speed, and whether the bounce has been."""
    fn, direction, before, t, v = STOPS[stop]
    system, events = _ball(0.5, contact)
    end = uk.Event(fn, direction, name="end")
    run = uk.simulate(system, jnp.ones(1), jnp.zeros(1), t1=2.0, event=[end, *events])
    assert run.event_name == "end"
    np.testing.assert_allclose([run.t_end, run.v_end[0]], [t, v], rtol=1e-9)
    assert len(run.contacts.told()) == int(run.contacts.num_events) == (0 if before else 1)


@pytest.mark.parametrize("contact", [True, False])
@pytest.mark.parametrize("stop", ["floor", "turn"])
def test_the_time_of_a_stop_at_a_jump_has_the_derivative_of_the_jump(stop, contact):
    """t = sqrt(2 h / g), v = -sqrt(2 g h) before and e times it after."""
    fn, direction, before, *_ = STOPS[stop]

    def end(h):
        system, events = _ball(0.5, contact)
        stops = [uk.Event(fn, direction), *events]
        run = uk.simulate(system, jnp.reshape(h, 1), jnp.zeros(1), t1=2.0, event=stops)
        return jnp.stack([run.t_end, run.v_end[0]])

    expected = [1 / _SPEED, np.sqrt(G / 2) * (-1 if before else 0.5)]
    np.testing.assert_allclose(jax.jacrev(end)(1.0), expected, rtol=1e-8)
    np.testing.assert_allclose(jax.jvp(end, (1.0,), (1.0,))[1], expected, rtol=1e-8)
