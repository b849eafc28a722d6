"""Functions with derivative rules of their own, under transformations and pairs of these.

What a batch gives is compared with a loop over its members of plain calls, and the plain derivatives with central
differences. JAX traces a function and its rule under `vmap` by themselves, and takes the batch axes of the one for those
of the other: a rule can be right alone and its results transposed in a batch. So batches are as large as the results are
long, where that would go unseen but for the numbers, and of another size.
"""

import functools
import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import central

import ukjax as uk
import ukjax.analysis as ua
import ukjax.mechanisms as um

slow = pytest.mark.slow


class Case(NamedTuple):
    """A function of arrays, which returns a vector; two members of a batch of its arguments, between which others lie."""

    function: Callable[..., jax.Array]
    first: tuple
    last: tuple
    forward: bool = True
    reverse: bool = True

    def members(self, count: int) -> list[tuple]:
        """The arguments of members, spread between the first and the last."""
        spread = lambda s: jax.tree.map(lambda x, y: (1 - s) * x + s * y, self.first, self.last)
        return [spread(s) for s in np.linspace(0, 1, count)]


def _joined(*arrays) -> jax.Array:
    return jnp.concatenate([jnp.ravel(x) for x in arrays])


def _numbers(*arrays) -> tuple:
    return tuple(jnp.asarray(x, float) for x in arrays)


def _swings(function, **options) -> Case:
    """A pendulum by length, q, v and a time."""
    first, last = (
        _numbers(1.2, [0.36, -1.15], [0.3, 0.1], 0.05),
        _numbers(0.9, [0.8, -0.41], [-0.2, -0.4], 0.04),
    )
    return Case(function, first, last, **options)


def _step(length, q, v, dt, **options):
    return _joined(*uk.step(uk.models.pendulum(length=length), 0.0, q, v, dt, **options))


def _free_step(mass, q, v, dt):
    pull = lambda t, q, v: -jnp.sin(q) - 0.1 * v
    return _joined(*uk.step(uk.System(jnp.diag(mass), pull), 0.0, q, v, dt))


def _block(friction, push, x, speed) -> uk.Problem:
    """A block of 2 kg that slides on a plane."""
    plane = uk.Unilateral(lambda t, q: q[1], friction=friction, slip=lambda t, q, v: v[0], name="plane")
    system = uk.System(2.0 * jnp.eye(2), jnp.stack([push, jnp.full_like(push, -19.62)]), [plane])
    return uk.Problem(system, jnp.stack([x, 0.0 * x]), jnp.stack([speed, 0.0 * speed]), 0.0, 0.2)


def _slide(*block, **options):
    run = uk.simulate(_block(*block), ts=[0.1, 0.2], **options)
    return _joined(run.q[:2], run.v[:2])


def _contact_step(*block, **options):
    return _joined(*uk.step(_block(*block), None, None, None, 0.01, **options))


def _fall(height, restitution, speed, **options):
    """A ball that bounces once or twice."""
    floor = uk.Unilateral(lambda t, q: q[1], restitution=restitution, name="floor")
    ball = uk.System(jnp.eye(2), jnp.array([0.0, -9.81]), [floor])
    q0 = jnp.stack([jnp.zeros_like(height), height])
    return uk.simulate(ball, q0, speed, t1=0.8, ts=[0.8], **options).q[0]


def _run(length, q, v, dt, **options):
    problem = uk.models.pendulum(length=length)
    run = uk.simulate(
        problem, q, v, t1=0.2, ts=[0.1, 0.2], rtol=1e-8, atol=1e-8, start_tolerance=np.inf, **options
    )
    return _joined(run.q[:2], run.v[:2])


def _first_event(angle, rate, **options):
    """Where a pendulum is at the first zero of its rate."""
    still = dfx.Event(lambda t, y, args, **_: y[1][0], dfx.VeryChord(1e-10, 1e-10))
    pendulum = uk.System(jnp.eye(1), lambda t, q, v: -9.81 * jnp.sin(q))
    run = uk.simulate(pendulum, angle[None], rate[None], t1=2.0, ts=[2.0], event=still, **options)
    return run.q_end


def _reset(speed, q, v, **options):
    brake = uk.Event(lambda t, q, v: q[0], reset=lambda t, q, v: (q, speed * v), name="brake")
    system = uk.System(jnp.eye(1), lambda t, q, v: -9.81 * jnp.sin(q))
    return uk.simulate(system, q, v, t1=0.7, ts=[0.7], event=[brake], **options).q[0]


def _project(length, q, v, t):
    return _joined(*uk.project(uk.models.pendulum(length=length), t, 1.1 * q, v + 0.1))


def _contacts(root, u, mu):
    contacts = uk.solve_contacts(root @ root.T, u, mu)
    return _joined(contacts.impulses, contacts.velocities)


def _impact(root, u, mu, e):
    return uk.poisson_impact(root @ root.T, u, mu, e).velocities


def _acceleration(length, q, v, t, formula):
    found = formula.acceleration(uk.models.pendulum(length=length).system, t, q, v)
    return _joined(found.a, found.constraint_force)


def _lanes(length, q, v, t):
    return uk.lanes(uk.models.pendulum(length=length))(t, q[None], v[None])[0]


def _servo(length, q, v, t):
    task = (uk.Holonomic(lambda t, q: q[:1] - 0.1 * t, name="task"),)
    system = uk.models.pendulum(length=length).system
    found = uk.servo_control(
        system, jnp.array([[1.0], [0.2]]), task, t, q, v, stabilizer=uk.Baumgarte(4.0, 9.0)
    )
    return found.u


def _equilibrium(length, q, v, t):
    found = ua.equilibrium(uk.models.pendulum(length=length), t, q)
    return found.q


def _modes(stiffness, q, v):
    system = uk.System(jnp.diag(jnp.array([1.0, 2.0, 3.0])), lambda t, q, v: -stiffness @ q - 0.1 * v)
    return jnp.abs(ua.modes(ua.linearize(system, 0.0, q, v)).eigenvalues.imag)


def _inverse_dynamics(length, q, v, t):
    system = uk.models.pendulum(length=length).system
    a = uk.UdwadiaKalaba().acceleration(system, t, q, v).a
    along = jnp.array(
        [-q[1], q[0]]
    )  # the circle, so that the rod lets it; by itself it would need no efforts
    return ua.inverse_dynamics(system, a + 0.7 * along, t, q, v, inputs=jnp.eye(2)).efforts


def _tree(mass, q, v):
    """The acceleration of a four-bar linkage in the coordinates of its joints, with a loop."""
    bars = [um.rod("crank", (0, 0), (0, 1), mass), um.rod("coupler", (0, 1), (2, 1), 1.0)]
    rocker = um.rod("rocker", (2, 0), (2, 1), 1.0)
    joints = [
        um.Revolute("A", um.GROUND, "crank", (0, 0)),
        um.Revolute("B", "crank", "coupler", (0, 1)),
        um.Revolute("C", um.GROUND, "rocker", (2, 0)),
    ]
    loop = um.Revolute("D", "coupler", "rocker", (2, 1))
    linkage = um.tree([*bars, rocker], joints, [um.Gravity()], loops=[loop])
    return uk.UdwadiaKalaba().acceleration(linkage, 0.0, q, v).a


def _environment_step(length, q, v, action):
    def reward(t, q, v, u):
        return q[1] - 0.01 * u @ u

    start = lambda key: (q, v)
    push = jnp.array([[1.0], [0.0]])
    environment = uk.Environment(
        uk.models.pendulum(length=length), push, reward, dt=0.05, horizon=9, sample=start
    )
    state, _, reward, _ = environment.step(environment.reset(jax.random.key(0)), action[None])
    return _joined(state.q, state.v, reward)


_ROOT = np.array([[1.0, 0.1, 0.0, 0.2], [0.2, 0.9, 0.1, 0.0], [0.3, 0.0, 1.1, 0.1], [0.0, 0.2, 0.1, 0.8]])
_BLOCK = _numbers(0.3, 9.0, 0.0, 1.0), _numbers(0.5, 3.0, 0.4, 1.5)
_PENDULUM = _numbers(0.5, 1.0), _numbers(1.5, 2.0)
_BRAKE = _numbers(0.9, [0.5], [0.0]), _numbers(0.6, [0.8], [-0.3])
_BALL = _numbers(1.0, 0.8, [1.0, 0.0]), _numbers(0.7, 0.6, [0.5, -1.0])
_STIFF = np.array([[9.0, -1.0, 0.0], [-1.0, 8.0, -2.0], [0.0, -2.0, 20.0]])

CASES = {
    "step": _swings(_step),
    "step by Heun": _swings(functools.partial(_step, solver=dfx.Heun())),
    "step by Bosh3": _swings(functools.partial(_step, solver=dfx.Bosh3())),
    "step by Dopri8": _swings(functools.partial(_step, solver=dfx.Dopri8())),
    "step with gains": _swings(functools.partial(_step, stabilizer=uk.Baumgarte(9.0, 30.0))),
    "step by another formula": _swings(functools.partial(_step, formula=uk.UdwadiaKalaba(uk.SVD()))),
    "step without constraints": Case(
        _free_step,
        _numbers([1.0, 2.0, 3.0], [0.1, 0.2, 0.3], [0.0, 1.0, 0.5], 0.1),
        _numbers([2.0, 2.5, 1.0], [0.4, -0.2, 0.9], [0.3, 0.0, -0.5], 0.2),
    ),
    "run": _swings(_run),
    "run with gains": _swings(functools.partial(_run, stabilizer=uk.Baumgarte(9.0, 30.0))),
    "run by another formula": _swings(functools.partial(_run, formula=uk.UdwadiaKalaba(uk.SVD()))),
    "run, backwards only": _swings(
        functools.partial(_run, adjoint=dfx.RecursiveCheckpointAdjoint()), forward=False
    ),
    "run, forwards only": _swings(functools.partial(_run, adjoint=dfx.ForwardMode()), reverse=False),
    "run, either way": _swings(functools.partial(_run, adjoint=dfx.DirectAdjoint(), max_steps=32)),
    "run to an event": Case(_first_event, *_PENDULUM, forward=False),
    "run to an event, forwards": Case(
        functools.partial(_first_event, adjoint=dfx.ForwardMode()), *_PENDULUM, reverse=False
    ),
    "run with a reset": Case(_reset, *_BRAKE, forward=False),
    "run with a reset, forwards": Case(
        functools.partial(_reset, adjoint=dfx.ForwardMode()), *_BRAKE, reverse=False
    ),
    "step with a contact": Case(_contact_step, *_BLOCK),
    "contact events": Case(_slide, *_BLOCK, forward=False),
    "contact events, forwards": Case(
        functools.partial(_slide, adjoint=dfx.ForwardMode()), *_BLOCK, reverse=False
    ),
    "contact steps": Case(functools.partial(_slide, contact="differentiated steps", dt0=0.02), *_BLOCK),
    "impacts": Case(_fall, *_BALL, forward=False),
    "impacts, forwards": Case(functools.partial(_fall, adjoint=dfx.ForwardMode()), *_BALL, reverse=False),
    "project": _swings(_project),
    "solve_contacts": Case(
        _contacts,
        _numbers(_ROOT, [-1.0, 0.2, -0.6, 0.9], [0.3, 0.2]),
        _numbers(0.9 * _ROOT, [-0.8, 0.1, -1.0, 0.9], [0.2, 0.3]),
    ),
    "poisson_impact": Case(
        _impact,
        _numbers(_ROOT[:2, :2], [-1.0, 0.5], 0.3, 0.5),
        _numbers(_ROOT[:2, :2] + 0.1, [-0.7, 0.9], 0.2, 0.8),
    ),
    "acceleration": _swings(functools.partial(_acceleration, formula=uk.UdwadiaKalaba())),
    "acceleration by SVD": _swings(functools.partial(_acceleration, formula=uk.UdwadiaKalaba(uk.SVD()))),
    "acceleration by Schur": _swings(functools.partial(_acceleration, formula=uk.Schur())),
    "acceleration, recursive": _swings(functools.partial(_acceleration, formula=uk.Recursive())),
    "lanes": _swings(_lanes),
    "servo_control": _swings(_servo),
    "equilibrium": _swings(_equilibrium),
    "modes": Case(
        _modes,
        _numbers(_STIFF, [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]),
        _numbers(1.2 * _STIFF, [0.1, 0.0, 0.0], [0.0, 0.0, 0.0]),
    ),
    "inverse_dynamics": _swings(_inverse_dynamics),
    "tree": Case(
        _tree,
        _numbers(1.0, [0.1, -0.2, 0.1], [0.5, 0.1, 0.2]),
        _numbers(2.0, [0.3, -0.4, 0.2], [-0.5, 0.3, 0.2]),
    ),
    "Environment.step": _swings(_environment_step),
}

LONG = [
    x for x in CASES if "event" in x or "reset" in x or "impacts" in x
]  # compiled for half a minute and more


class Found(NamedTuple):
    """Of a batch: values, their changes, and cotangents of the arguments; None for what was not asked."""

    value: jax.Array
    change: jax.Array | None = None
    pulled: tuple | None = None


def _stacked(members, axis: int = 0):
    return jax.tree.map(lambda *x: jnp.stack(x, axis if jnp.ndim(x[0]) else 0), *members)


def _directions(like, seed: int = 0):
    """Normal numbers, of the shape of some arrays."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: jnp.asarray(rng.normal(size=np.shape(x))), like)


def _forth(function, x, dx) -> Found:
    return Found(*jax.jvp(function, x, dx))


def _back(function, x, w) -> Found:
    value, pull = jax.vjp(function, *x)
    return Found(value, pulled=pull(w))


@functools.cache
def _plain(name: str) -> tuple[Callable, Callable]:
    """Changes and cotangents of one member, as programs."""
    function = CASES[name].function
    return tuple(jax.jit(functools.partial(way, function)) for way in (_forth, _back))


@functools.cache
def _one_by_one(name: str, count: int) -> tuple[tuple, tuple, jax.Array, Found]:
    """A batch, its change, cotangents of its values, and what a loop over its members finds."""
    case, (forth, back) = CASES[name], _plain(name)
    members = case.members(count)
    values = [case.function(*x) for x in members]
    x = _stacked(members)
    dx, w = _directions(x), _directions(jnp.stack(values), 1)
    of = lambda tree, i: jax.tree.map(lambda y: y[i], tree)
    each = range(count)
    change = jnp.stack([forth(of(x, i), of(dx, i)).change for i in each]) if case.forward else None
    pulled = _stacked([back(of(x, i), w[i]).pulled for i in each]) if case.reverse else None
    return x, dx, w, Found(jnp.stack(values), change, pulled)


def _same(found: Found, right: Found) -> None:
    for one, other in zip(found, right, strict=True):
        if one is not None:
            close = lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-7, atol=1e-7)
            jax.tree.map(close, one, other)


def _mapped(function, **axes):
    return jax.vmap(function, **axes)


def _scanned(function):
    return lambda *x: jax.lax.scan(lambda _, x: (None, function(*x)), None, x)[1]


def _in_cond(function):
    here = lambda *x: jax.lax.cond(x[0].sum() > -1e9, function, lambda *x: 0.0 * function(*x), *x)
    return jax.vmap(here)


def _remembered(function):
    return jax.vmap(jax.checkpoint(function))


def _shared_out(function):
    mesh = jax.make_mesh((1,), ("device",), axis_types=(jax.sharding.AxisType.Auto,))
    over = jax.sharding.PartitionSpec("device")
    return jax.shard_map(jax.vmap(function), mesh=mesh, in_specs=over, out_specs=over, check_vma=False)


AROUND = {
    "vmap": _mapped,
    "jit of vmap": lambda function: jax.jit(jax.vmap(function)),
    "vmap of jit": lambda function: jax.vmap(jax.jit(function)),
    "scan": _scanned,
    "cond": _in_cond,
    "checkpoint": _remembered,
    "shard_map": _shared_out,
}


def _cases(*ordinary: str, long: bool = True) -> list:
    """All cases, slow but for some."""
    names = [name for name in CASES if long or name not in LONG]
    return [pytest.param(name, marks=[] if name in ordinary else slow) for name in names]


@pytest.mark.parametrize("name", _cases())
def test_plain_derivatives_are_slopes(name):
    case, (forth, back) = CASES[name], _plain(name)
    x = case.members(2)[1]
    dx = _directions(x)
    moved = lambda s: case.function(*jax.tree.map(lambda x, dx: x + s * dx, x, dx))
    slope, scale = central(moved, 1e-4), 1e-4 if "reset" in name or "event" in name else 1e-7
    bound = scale * np.max(np.abs(slope))
    if case.forward:
        np.testing.assert_allclose(forth(x, dx).change, slope, rtol=0, atol=bound)
    if case.reverse:
        w = _directions(jnp.asarray(slope), 1)
        along = sum(jax.tree.leaves(jax.tree.map(jnp.vdot, back(x, w).pulled, dx)))
        np.testing.assert_allclose(along, w @ slope, rtol=0, atol=10 * bound)


@pytest.mark.parametrize("count", [2, pytest.param(3, marks=slow)])
@pytest.mark.parametrize("name", _cases("solve_contacts"))
def test_derivatives_of_a_batch(name, count):
    """With as many members as positions, where transposed results would fit, and with another number."""
    case, (x, dx, w, right) = CASES[name], _one_by_one(name, count)
    batch = jax.vmap(case.function)
    _same(Found(batch(*x)), right)
    if case.forward:
        _same(_forth(batch, x, dx), right)
    if case.reverse:
        _same(_back(batch, x, w), right)


@slow
@pytest.mark.parametrize("name", _cases(long=False))
@pytest.mark.parametrize("around", AROUND)
def test_derivatives_within_and_around(name, around):
    """A batch under other transformations; in `jit`, as programs differ from calls."""
    if (name, around) == ("run, backwards only", "shard_map"):
        pytest.xfail("Equinox's loop with checkpoints raises within shard_map")
    case, (x, dx, w, right) = CASES[name], _one_by_one(name, 2)
    batch = AROUND[around](case.function)
    _same(Found(jax.jit(batch)(*x)), right)
    if case.forward:
        _same(jax.jit(functools.partial(_forth, batch))(x, dx), right)
    if case.reverse:
        _same(jax.jit(functools.partial(_back, batch))(x, w), right)


@slow
@pytest.mark.parametrize("name", _cases(long=False))
def test_batches_of_derivatives(name):
    case, (x, dx, w, right) = CASES[name], _one_by_one(name, 2)
    if case.forward:
        _same(jax.vmap(functools.partial(_forth, case.function))(x, dx), right)
    if case.reverse:
        _same(jax.vmap(functools.partial(_back, case.function))(x, w), right)


@slow
@pytest.mark.parametrize("name", _cases(long=False))
@pytest.mark.parametrize("first", [True, False])
def test_batches_over_some_arguments(name, first):
    """Over the first argument alone, and over all but the first. A shared argument is given the sum of cotangents."""
    case, (forth, back) = CASES[name], _plain(name)
    x, dx, w, _ = _one_by_one(name, 3)
    shared = lambda i: (i == 0) != first
    axes = tuple(None if shared(i) else 0 for i in range(len(x)))
    some = lambda tree: tuple(jax.tree.map(lambda y: y[0], y) if shared(i) else y for i, y in enumerate(tree))
    of = lambda tree, k: tuple(
        y if shared(i) else jax.tree.map(lambda z: z[k], y) for i, y in enumerate(tree)
    )
    (x, dx), batch = map(some, (x, dx)), jax.vmap(case.function, axes)
    each = [of(x, k) for k in range(3)]
    right = Found(jnp.stack([case.function(*one) for one in each]))
    if case.forward:
        change = jnp.stack([forth(one, of(dx, k)).change for k, one in enumerate(each)])
        _same(_forth(batch, x, dx), right._replace(change=change))
    if case.reverse:
        pulled = _stacked([back(one, w[k]).pulled for k, one in enumerate(each)])
        pulled = tuple(jnp.sum(y, 0) if shared(i) else y for i, y in enumerate(pulled))
        _same(_back(batch, x, w), right._replace(pulled=pulled))


@slow
@pytest.mark.parametrize("name", _cases(long=False))
def test_batches_along_other_axes(name):
    """Members along the second axes of vectors, and of what is returned."""
    case, (x, dx, w, right) = CASES[name], _one_by_one(name, 2)
    turn = lambda tree: jax.tree.map(lambda y: jnp.moveaxis(y, 0, min(1, y.ndim - 1)), tree)
    back = lambda tree: jax.tree.map(lambda y: jnp.moveaxis(y, min(1, y.ndim - 1), 0), tree)
    axes = tuple(min(1, y.ndim - 1) for y in x)
    batch = jax.vmap(case.function, axes, out_axes=1)
    if case.forward:
        _same(Found(*back(tuple(_forth(batch, turn(x), turn(dx))[:2]))), right)
    if case.reverse:
        found = _back(batch, turn(x), w.T)
        _same(Found(found.value.T, pulled=back(found.pulled)), right)


@slow
@pytest.mark.parametrize("name", _cases(long=False))
def test_batches_of_batches(name):
    """Two by three members, the inner ones along the second axes of vectors."""
    case, (x, dx, w, right) = CASES[name], _one_by_one(name, 6)
    folded = lambda tree: jax.tree.map(lambda y: y.reshape(2, 3, *y.shape[1:]), tree)
    flat = lambda tree: jax.tree.map(lambda y: y.reshape(6, *y.shape[2:]), tree)
    batch = jax.vmap(jax.vmap(case.function))
    if case.forward:
        found = _forth(batch, folded(x), folded(dx))
        _same(Found(flat(found.value), flat(found.change)), right)
    if case.reverse:
        found = _back(batch, folded(x), folded(w))
        _same(Found(flat(found.value), pulled=flat(found.pulled)), right)


@slow
@pytest.mark.parametrize("name", _cases(long=False))
def test_gradients_of_sums_and_sums_of_gradients(name):
    case, (x, _, w, right) = CASES[name], _one_by_one(name, 2)
    if not case.reverse:
        pytest.skip("forward mode only")
    one = lambda x, w: w @ case.function(*x)
    _same(Found(right.value, pulled=jax.grad(lambda x: jnp.sum(jax.vmap(one)(x, w)))(x)), right)
    _same(Found(right.value, pulled=jax.vmap(jax.grad(one))(x, w)), right)


@slow
@pytest.mark.parametrize("name", _cases(long=False))
def test_while_loops_forwards(name):
    """A loop as long as it takes has forward mode only."""
    case, (x, dx, _, right) = CASES[name], _one_by_one(name, 2)

    def looped(*x):
        def body(state):
            return state[0] + 1, jax.vmap(case.function)(*x)

        return jax.lax.while_loop(lambda state: state[0] < 1, body, (0, jnp.zeros_like(right.value)))[1]

    _same(Found(looped(*x)), right)
    if case.forward:
        _same(_forth(looped, x, dx), right)


def test_gradient_of_a_batch_of_steps():
    """Two pendulums, as many as coordinates: x' = a sin after a step by the plain calls, and its slope."""
    angles, length = jnp.array([0.3, 1.1]), jnp.asarray(1.2)
    q = length * jnp.stack([jnp.sin(angles), -jnp.cos(angles)], 1)
    x = lambda length, q, v: uk.step(uk.models.pendulum(length=length), 0.0, q, v, 0.05)[0][0]
    total = lambda length: jnp.sum(jax.vmap(functools.partial(x, length))(q, jnp.zeros((2, 2))))
    value, slope = jax.value_and_grad(total)(length)
    alone = lambda length: sum(float(x(length, one, jnp.zeros(2))) for one in q)
    np.testing.assert_allclose(value, alone(length), rtol=1e-14)
    np.testing.assert_allclose(slope, central(lambda s: alone(length + s)), rtol=1e-9)
    np.testing.assert_allclose((value, slope), (1.4156, 1.1797), atol=5e-5)


@slow
@pytest.mark.parametrize("count", [2, 4])
def test_gradient_of_the_documented_returns(count):
    """docs/embedding.md's own, by differences of returns of single keys."""
    push = jnp.array([[1.0], [0.0]])
    upright = lambda t, q, v, u: q[1] - 0.01 * u @ u

    def anywhere(key):
        angle = jax.random.uniform(key, (), float, -3.0, 3.0)
        return jnp.stack([jnp.sin(angle), -jnp.cos(angle)]), jnp.zeros(2)

    environment = uk.Environment(uk.models.pendulum(), push, upright, dt=0.05, horizon=50, sample=anywhere)

    def one(gain, key):
        def body(state, _):
            action = gain * (state.q[0] * state.v[1] - state.q[1] * state.v[0])[None]
            state, _, reward, _ = environment.step(state, action, auto_reset=True)
            return state, reward

        return jnp.sum(jax.lax.scan(body, environment.reset(key), length=20)[1])

    keys, alone = jax.random.split(jax.random.key(0), count), jax.jit(one)
    value, slope = jax.jit(jax.value_and_grad(lambda gain: jnp.sum(jax.vmap(one, (None, 0))(gain, keys))))(
        0.5
    )
    returns = lambda gain: sum(float(alone(gain, key)) for key in keys)
    np.testing.assert_allclose(value, returns(0.5), rtol=1e-12)
    np.testing.assert_allclose(slope, central(lambda s: returns(0.5 + s)), rtol=1e-7)


@slow
def test_batches_in_pytorch():
    torch = pytest.importorskip("torch")
    x, _, w, right = _one_by_one("step", 2)
    tensors = [torch.tensor(np.asarray(y), requires_grad=True) for y in x]
    uk.to_torch(jax.vmap(CASES["step"].function))(*tensors).backward(torch.tensor(np.asarray(w)))
    for found, pulled in zip(tensors, right.pulled, strict=True):
        np.testing.assert_allclose(found.grad.numpy(), pulled, rtol=1e-9, atol=1e-9)


def _end(x, **options):
    """Of a pendulum by its length and gravity."""
    problem = uk.models.pendulum(length=x[0], gravity=x[1])
    return uk.simulate(problem, t1=0.2, ts=[0.2], **options).q[0] @ jnp.array([1.0, 2.0])


SECOND = {
    "forward over reverse": jax.hessian,
    "reverse over reverse": lambda function: jax.jacrev(jax.jacrev(function)),
    "reverse over forward": lambda function: jax.jacrev(jax.jacfwd(function)),
}
RUNS = {
    "Projection": {},
    "Baumgarte": {"stabilizer": uk.Baumgarte(5.0, 20.0)},
}
_LENGTH_AND_GRAVITY = jnp.array([1.0, 9.81])


@pytest.mark.parametrize(
    "way", [x if x == "reverse over reverse" else pytest.param(x, marks=slow) for x in SECOND]
)
def test_second_derivatives_end_in_a_sentence(way):
    """Those that there are not, before anything is compiled."""
    end = functools.partial(_end, adjoint=dfx.RecursiveCheckpointAdjoint())
    with pytest.raises(uk.InputError, match=r"ForwardMode|second derivatives"):
        jax.eval_shape(SECOND[way](end), _LENGTH_AND_GRAVITY)


@slow
@pytest.mark.parametrize("way", SECOND)
def test_second_derivatives_through_events_end_in_a_sentence(way):
    with pytest.raises(uk.InputError, match="second derivatives cannot go through an event"):
        jax.eval_shape(SECOND[way](lambda angle: _first_event(angle, jnp.asarray(1.0))[0]), jnp.asarray(0.5))


@pytest.mark.parametrize(
    ("run", "way"),
    [
        pytest.param(*x, marks=[] if x == ("Projection", "forward over reverse") else slow)
        for x in itertools.product(RUNS, (*SECOND, "forward over forward"))
    ],
)
def test_second_derivatives_are_slopes_of_gradients(run, way):
    """Against differences of gradients."""
    end = functools.partial(_end, **RUNS[run])
    slope = jax.jit(jax.grad(end))
    at = lambda k, s: slope(_LENGTH_AND_GRAVITY.at[k].add(s))
    right = np.stack([central(functools.partial(at, k), 1e-3) for k in range(2)])
    second = (SECOND | {"forward over forward": lambda fn: jax.jacfwd(jax.jacfwd(fn))})[way]
    np.testing.assert_allclose(jax.jit(second(end))(_LENGTH_AND_GRAVITY), right, atol=1e-5)


# Where the package gives a function a derivative rule by JAX's decorator, and a case above that goes through it.
RULES = {
    "_contact/_solve.py": "solve_contacts",
    "_contact/_stepping.py": "step with a contact",
    "_misc/_derivatives.py": "run to an event",
    "_motion/_project.py": "project",
    "_pseudoinverse/_base.py": "acceleration by SVD",
    "_pseudoinverse/_kernels.py": "acceleration",
    "analysis/_modes.py": "modes",
    "analysis/_settle.py": "equilibrium",
    "mechanisms/_tree_place.py": "tree",
}


# Rules within what cannot be transformed any way: their tests stand with that.
RULES_ELSEWHERE = {
    "_compiler/_structured/_compound.py": "test_scalarize_functions.py",
    "_tune/_identify/_runs.py": "test_identify.py",
    "_interop/_c_functions.py": "test_to_c.py",
}


def test_each_rule_has_a_case():
    folder = Path(uk.__file__).parent
    has_rule = lambda path: re.search(r"custom_jvp\b[\n,]", path.read_text())
    assert {f"{path.relative_to(folder)}" for path in folder.rglob("*.py") if has_rule(path)} == {
        *RULES,
        *RULES_ELSEWHERE,
    }
    assert {*RULES.values()} <= {*CASES}
