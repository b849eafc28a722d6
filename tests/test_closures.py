"""Functions that take a parameter from around them are differentiated, batched, swept and tuned as fields are."""

import dataclasses
import functools
import types

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.core import Tracer

import ukjax as uk
from ukjax._misc._closures import HiddenValueError, hoist_tracers

G, MASS = 9.81, 2.0
GRAVITY = jnp.array([0.0, -G])


def _of_rod(rod, length):
    system = uk.System(MASS * jnp.eye(2), MASS * GRAVITY, [uk.Holonomic(rod, name="rod")])
    return uk.Problem(system, jnp.stack([length, 0 * length]), jnp.zeros(2), 0.0, 0.3)


def _cell(length):
    return _of_rod(lambda t, q: jnp.hypot(q[0], q[1]) - length, length)


def _nested(length):
    radius = lambda q: jnp.hypot(q[0], q[1])
    excess = lambda q: radius(q) - length
    return _of_rod(lambda t, q: excess(q), length)


def _default(length):
    return _of_rod(lambda t, q, length=length: jnp.hypot(q[0], q[1]) - length, length)


def _partial(length):
    rod = lambda given, t, q: jnp.hypot(q[0], q[1]) - given["length"]
    return _of_rod(functools.partial(rod, {"length": length}), length)


def _partial_of_a_closure(length):
    rod = lambda scale, t, q: jnp.hypot(q[0], q[1]) - scale * length
    return _of_rod(jax.tree_util.Partial(rod, jnp.asarray(1.0)), length)


def _jitted(length):
    return _of_rod(jax.jit(lambda t, q: jnp.hypot(q[0], q[1]) - length), length)


def _record(length):
    given = types.SimpleNamespace(length=length)
    return _of_rod(lambda t, q: jnp.hypot(q[0], q[1]) - given.length, length)


@dataclasses.dataclass
class Rod:
    """A user's object that is no pytree."""

    length: jax.Array

    def excess(self, t, q):
        return jnp.hypot(q[0], q[1]) - self.length


def _method(length):
    return _of_rod(Rod(length).excess, length)


def _class(length):
    class Own(uk.AbstractSystem):
        mass: jax.Array

        @property
        def constraints(self):
            return (uk.Holonomic(self.rod, name="rod"),)

        def rod(self, t, q):
            return jnp.hypot(q[0], q[1]) - length

        def mass_matrix(self, t, q):
            return self.mass * jnp.eye(2)

        def force(self, t, q, v):
            return self.mass * GRAVITY

    return uk.Problem(Own(jnp.asarray(MASS)), jnp.stack([length, 0 * length]), jnp.zeros(2), 0.0, 0.3)


CLOSURES = (_cell, _nested, _default, _partial, _partial_of_a_closure, _jitted, _record, _method, _class)


@pytest.mark.parametrize("build", CLOSURES)
def test_slope_of_the_acceleration(build):
    """At rest the acceleration along the rod is -beta (|q| - length): psi' + alpha psi + beta phi = 0."""
    q, v = 1.3 * jnp.array([jnp.cos(0.3), jnp.sin(0.3)]), jnp.zeros(2)
    alpha, beta = 2.0, 3.0
    stabilizer = uk.Baumgarte(alpha, beta)
    radial = lambda length: q @ uk.lanes(build(length).system, stabilizer=stabilizer).one(0.0, q, v) / 1.3
    np.testing.assert_allclose(jax.grad(radial)(1.3), beta, rtol=1e-10)
    lengths = np.array([1.3, 1.7])

    @jax.jit
    def compiled(length, lengths):
        return jax.grad(radial)(length), jax.jacfwd(radial)(length), jax.vmap(radial)(lengths)

    *slopes, each = compiled(1.3, lengths)
    np.testing.assert_allclose(slopes, beta, rtol=1e-10)
    np.testing.assert_allclose(each, beta * (lengths - 1.3), rtol=1e-10, atol=1e-12)


def _spring(g):
    system = uk.System(jnp.eye(1), lambda t, q, v: -g["k"] * q - g["c"] * v)
    return uk.Problem(system, jnp.array([1.0]), jnp.array([0.0]), 0.0, 0.5)


def _damped(k, c):
    """q(0.5) of q'' + c q' + k q = 0 from q = 1 at rest."""
    w = np.sqrt(k - c**2 / 4)
    return np.exp(-c / 4) * (np.cos(w / 2) + c / (2 * w) * np.sin(w / 2))


def test_slope_of_a_run():
    slope = (_damped(20.0 + 1e-5, 2.0) - _damped(20.0 - 1e-5, 2.0)) / 2e-5
    end = lambda k, **options: uk.simulate(_spring({"k": k, "c": 2.0}), ts=2, **options).q_end[0]
    np.testing.assert_allclose(jax.grad(end)(20.0), slope, rtol=1e-5)
    along = jax.jvp(lambda k: end(k, adjoint=dfx.ForwardMode()), (20.0,), (1.0,))
    np.testing.assert_allclose(along, (_damped(20.0, 2.0), slope), rtol=1e-5)
    each = jax.vmap(end)(jnp.array([20.0, 30.0]))
    np.testing.assert_allclose(each, _damped(np.array([20.0, 30.0]), 2.0), rtol=1e-5)


def test_a_sweep_of_a_closure():
    run = lambda k: _spring({"k": k, "c": 2.0})
    found = uk.sweep(run, {"k": [20.0, 30.0]}, outputs={"end": lambda run: run.q_end[0]}, gradients=["end"])
    np.testing.assert_allclose(found.end, _damped(np.array([20.0, 30.0]), 2.0), rtol=1e-6)
    slope = (_damped(20.0 + 1e-5, 2.0) - _damped(20.0 - 1e-5, 2.0)) / 2e-5
    np.testing.assert_allclose(found.d_end_d_k[0], slope, rtol=1e-5)


def test_tuning_a_closure():
    """Of an oscillator that is to be at -0.1 after 0.5 s, where the closed form must agree."""
    loss = lambda run: 1e-6 + (run.q_end[0] + 0.1) ** 2
    start = {"k": 20.0, "c": 2.0}
    options = {"optimizer": optax.adam(0.1), "starts": 0, "iterations": 10}
    found = uk.tune(_spring, start, loss, **options)
    assert repr(found.gains) == f"{{'c': {found.values[0]}, 'k': {found.values[1]}}}"  # plain numbers
    best = _damped(**found.gains)
    assert abs(best + 0.1) < 0.1 * abs(_damped(20.0, 2.0) + 0.1)


def test_the_acceleration_and_one_step():
    q, v = jnp.array([1.0]), jnp.array([0.5])
    make = lambda k: uk.System(jnp.eye(1), lambda t, q, v: -k * q)
    by_formula = lambda k: uk.UdwadiaKalaba().acceleration(make(k), 0.0, q, v).a[0]
    np.testing.assert_allclose(jax.grad(by_formula)(3.0), -1.0, rtol=1e-12)
    stepped = lambda k: uk.step(make(k), 0.0, q, v, 0.1)[0][0]
    w = lambda k: np.cos(0.1 * np.sqrt(k)) + 0.5 * np.sin(0.1 * np.sqrt(k)) / np.sqrt(k)
    np.testing.assert_allclose(jax.grad(stepped)(3.0), (w(3 + 1e-4) - w(3 - 1e-4)) / 2e-4, rtol=1e-5)


def test_an_event_of_a_closure():
    """A body that falls by h from rest does so in sqrt(2 h / g)."""
    ball = uk.System(jnp.eye(1), jnp.array([-G]))
    options = {"t1": 5.0, "ts": 2, "adjoint": dfx.ForwardMode()}
    fall = lambda h: uk.simulate(ball, [0.0], [0.0], event=lambda t, q, v: q[0] + h, **options).t_end
    found = jax.jit(lambda h: jax.jvp(fall, (h,), (jnp.ones(()),)))(2.0)
    np.testing.assert_allclose(found, (np.sqrt(2 * 2.0 / G), np.sqrt(0.5 / (G * 2.0))), rtol=1e-5)


def test_equal_closures_share_what_is_compiled():
    of = lambda length: hoist_tracers(_nested(length)).system

    def structures(length):
        found.append(jax.tree.structure(of(length)))
        return length

    found = []
    jax.vmap(structures)(jnp.ones(2))
    jax.vmap(structures)(jnp.ones(3))
    assert found[0] == found[1]
    assert hash(found[0]) == hash(found[1])


def test_functions_without_traced_values_stay_as_they_are():
    system = _cell(jnp.asarray(1.0)).system
    assert hoist_tracers(system).constraints[0].fn is system.constraints[0].fn


HELD = {}


def test_a_value_that_cannot_be_found_is_refused():
    def height(length):
        HELD["length"] = length
        try:
            rod = lambda t, q: jnp.hypot(q[0], q[1]) - HELD["length"]
            return uk.simulate(_of_rod(rod, jnp.asarray(1.0))).q_end[1]
        finally:
            HELD.clear()

    with pytest.raises(HiddenValueError, match="make it a field of the system"):
        jax.grad(height)(1.0)


def test_values_kept_from_an_earlier_run_are_told():
    """A list around a force or an event; one that is made anew for each run is not refused."""
    log = []

    def force(t, q, v):
        log.append(q)
        return -q

    def event(t, q, v):
        log.append(q)
        return q[0] - 0.5

    def run(force, event=None):
        return uk.simulate(uk.System(jnp.eye(1), force), [1.0], [0.0], t1=0.1, ts=2, event=event)

    run(force)
    with pytest.raises(
        uk.InputError, match=r"^force keeps values of an earlier run.*jax.debug.print"
    ) as refused:
        run(force)
    assert "\n" not in str(refused.value)
    log.clear()
    np.testing.assert_allclose(run(force).q_end, np.cos(0.1), rtol=1e-7)
    log.clear()
    run(lambda t, q, v: -q, event)
    with pytest.raises(uk.InputError, match=r"^event keeps values of an earlier run"):
        run(lambda t, q, v: -q, event)


def test_no_tracer_is_left_in_what_is_hashed():
    def check(length):
        leaves = jax.tree.leaves(hoist_tracers(_cell(length)))
        assert any(isinstance(x, Tracer) for x in leaves)
        assert "Tracer" not in str(jax.tree.structure(hoist_tracers(_cell(length))))
        return length

    jax.eval_shape(check, 1.0)


AROUND = {"stiffness": 1.0}


class _Spring:
    """A force that is an object."""

    def __call__(self, t, q, v):
        return -AROUND["stiffness"] * q


class _SpringSystem(uk.AbstractSystem):
    constraints: tuple = ()

    def mass_matrix(self, t, q):
        return jnp.eye(1)

    def force(self, t, q, v):
        return -AROUND["stiffness"] * q


_SPRING = _Spring()
SPRINGS = {
    "function": lambda: uk.System(jnp.eye(1), _SPRING.__call__),
    "object": lambda: uk.System(jnp.eye(1), _SPRING),
    "class": _SpringSystem,
}


@pytest.mark.parametrize("kind", SPRINGS)
def test_what_has_changed_around_a_function_counts_in_a_new_system(kind, monkeypatch):
    """A spring of stiffness k on a mass of 1 kg moves as cos(sqrt(k) t)."""
    for stiffness in (1.0, 4.0):
        monkeypatch.setitem(AROUND, "stiffness", stiffness)
        run = uk.simulate(SPRINGS[kind](), [1.0], [0.0], t1=1.0, ts=2)
        np.testing.assert_allclose(run.q_end, np.cos(np.sqrt(stiffness)), rtol=1e-7)


def test_what_has_changed_around_an_event_counts(monkeypatch):
    class Level:
        def __call__(self, t, q, v):
            return q[0] - AROUND["stiffness"]

    level = Level()
    for height in (0.5, 0.0):
        monkeypatch.setitem(AROUND, "stiffness", height)
        spring = uk.System(jnp.eye(1), lambda t, q, v: -q)
        run = uk.simulate(spring, [1.0], [0.0], t1=2.0, ts=2, event=level)
        np.testing.assert_allclose(run.t_end, np.arccos(height), rtol=1e-7)
