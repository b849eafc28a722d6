"""Problem 7: a four-bar linkage whose rocker strikes a stop, against one equation in the crank's angle, by quadrature."""

from typing import NamedTuple

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.optimize
from contact_references import TIGHT, within

import ukjax as uk
import ukjax.mechanisms as um

# Crank, coupler, rocker and frame [m], masses [kg], gravity, the stop, restitution, angle and rate of the crank.
VALUES = np.array([0.3, 0.9, 0.6, 1.0, 0.4, 1.0, 0.7, 9.81, 2.0, 0.5, 0.6, 10.0])
END = 0.32


def closed(xp, p, th1):
    """The crank's tip and the pin of coupler and rocker, above the line from the tip to the rocker's pivot."""
    a, b, c, d = p[:4]
    tip = xp.stack([a * xp.cos(th1), a * xp.sin(th1)])
    pivot = xp.stack([d, 0.0 * d])
    off = pivot - tip
    length = xp.sqrt(xp.sum(off**2))
    along = (b**2 - c**2 + length**2) / (2 * length)
    across = xp.sqrt(b**2 - along**2)
    e = off / length
    return tip, tip + along * e + across * xp.stack([-e[1], e[0]])


class Reference(NamedTuple):
    """Time of impact, the crank's angle there, rates before and after (crank, rocker), the moment impulse, joint impulses
    (4, 2), and angle, rate, rocker's angle at the end."""

    time: float
    angle: float
    rates: np.ndarray
    moment: float
    joints: np.ndarray
    end: np.ndarray


def angle3(p, th1):
    """The rocker's angle."""
    pin = closed(np, p, th1)[1]
    return np.arctan2(pin[1], pin[0] - p[3])


def velocities(p, th1):
    """By the crank's rate: centres' velocities and angular velocities of crank, coupler, rocker (3, 3)."""
    tip, pin = closed(np, p, th1)
    turned = lambda x: np.array([-x[1], x[0]])
    # tip' + w2 x (pin - tip) = w3 x (pin - pivot)
    pivot = np.array([p[3], 0.0])
    A = np.stack([turned(pin - tip), -turned(pin - pivot)], axis=1)
    w2, w3 = np.linalg.solve(A, -turned(tip))
    v = [0.5 * turned(tip), turned(tip) + 0.5 * w2 * turned(pin - tip), 0.5 * w3 * turned(pin - pivot)]
    return np.array([[*v[0], 1.0], [*v[1], w2], [*v[2], w3]])


def masses(p):
    """Of the three bodies, for x, y and the angle (3, 3)."""
    m, lengths = p[4:7], p[:3]
    return np.stack([m, m, m * lengths**2 / 12], axis=1)


def reference(p) -> Reference:
    """By energy: the rate of the crank is a function of its angle."""
    inertia = lambda x: np.sum(masses(p) * velocities(p, x) ** 2)

    def height(x):
        tip, pin = closed(np, p, x)
        return p[7] * (p[4] * tip[1] / 2 + p[5] * (tip[1] + pin[1]) / 2 + p[6] * pin[1] / 2)

    def rate(x, energy):
        return np.sqrt(2 * (energy - height(x)) / inertia(x))

    start, w0 = p[10:]
    energy = 0.5 * inertia(start) * w0**2 + height(start)
    exact = {"epsabs": 1e-13, "epsrel": 1e-13, "limit": 200}
    struck = scipy.optimize.brentq(lambda x: angle3(p, x) - p[8], *_around(p, start), xtol=1e-14, rtol=1e-14)
    time = scipy.integrate.quad(lambda x: 1 / rate(x, energy), start, struck, **exact)[0]
    before = rate(struck, energy)
    after, unit = -p[9] * before, velocities(p, struck)
    moment = inertia(struck) * (after - before) / unit[2, 2]
    energy = 0.5 * inertia(struck) * after**2 + height(struck)
    back = lambda x: scipy.integrate.quad(lambda x: 1 / rate(x, energy), x, struck, **exact)[0]
    far = struck + 1.1 * after * (END - time)  # it turns back farther away
    end = scipy.optimize.brentq(lambda x: back(x) - (END - time), far, struck, xtol=1e-14, rtol=1e-14)
    rates = np.array([before, before * unit[2, 2], after, after * unit[2, 2]])
    joints = _joint_impulses(p, struck, masses(p) * unit * (after - before), moment)
    return Reference(time, struck, rates, moment, joints, np.array([end, -rate(end, energy), angle3(p, end)]))


def _around(p, start):
    """Angles of the crank between which the rocker first reaches the stop."""
    x = start
    while angle3(p, x) < p[8]:
        x += 0.05
    return x - 0.05, x


def _joint_impulses(p, th1, momenta, moment):
    """On the crank at O1 and at the tip, on the coupler at the pin, on the rocker at O2, from the jumps of momentum."""
    tip, pin = closed(np, p, th1)
    pivot = np.array([p[3], 0.0])
    centres = tip / 2, (tip + pin) / 2, (pin + pivot) / 2
    A, b = np.zeros((9, 8)), momenta.reshape(-1).copy()
    b[8] -= moment
    acts = (
        (0, 0, np.zeros(2), 1),
        (1, 0, tip, 1),
        (1, 1, tip, -1),
        (2, 1, pin, 1),
        (2, 2, pin, -1),
        (3, 2, pivot, 1),
    )
    for joint, body, x, sign in acts:
        arm = x - centres[body]
        A[3 * body : 3 * body + 3, 2 * joint : 2 * joint + 2] = sign * np.array(
            [[1, 0], [0, 1], [-arm[1], arm[0]]]
        )
    found = np.linalg.lstsq(A, b, rcond=None)[0]
    assert np.abs(A @ found - b).max() < 1e-12
    return found.reshape(4, 2)


def parts(p, d3=False):
    """Bodies and joints, in the posture of the start."""
    tip, pin = closed(jnp, p, p[10])
    pivot, origin = jnp.stack([p[3], 0.0 * p[3]]), jnp.zeros(2)
    deep = (lambda x: jnp.append(x, 0.0)) if d3 else (lambda x: x)
    ends = ((origin, tip), (tip, pin), (pivot, pin))
    bodies = [
        um.rod(name, deep(x), deep(y), p[4 + i])
        for i, (name, (x, y)) in enumerate(zip(("crank", "coupler", "rocker"), ends, strict=True))
    ]
    hinge = lambda name, parent, child, x: um.Revolute(
        name, parent, child, deep(x), *([(0, 0, 1)] if d3 else [])
    )
    joints = [
        hinge("O1", "ground", "crank", origin),
        hinge("A", "crank", "coupler", tip),
        hinge("O2", "ground", "rocker", pivot),
        hinge("B", "coupler", "rocker", pin),
    ]
    start = jnp.arctan2(pin[1], pin[0] - p[3])
    return bodies, joints, um.Limit("O2", upper=p[8] - start, restitution=p[9])


def linkage(p, kind):
    """The problem, as a tree whose loop is closed once or twice, in space, or in absolute coordinates."""
    bodies, joints, stop = parts(p, kind == "in space")
    gravity = um.Gravity((0.0, -9.81, 0.0) if kind == "in space" else jnp.stack([0.0 * p[7], -p[7]]))
    if kind == "absolute":
        system = um.assemble(bodies, joints, [gravity], contacts=[stop])
    else:
        again = [um.Revolute("B again", "coupler", "rocker", joints[3].point)] if kind == "twice" else []
        system = um.tree(bodies, joints[:3], [gravity], loops=[joints[3], *again], contacts=[stop])
    return um.problem(system, rates={"O1": p[11]}, t1=END)


def joint_impulses(system, before, after, stop):
    """As `Reference.joints`, from the jump of velocities in absolute coordinates and the impulse of the stop."""
    (t, q, v), (_, _, u) = before, after
    rows, jump = np.asarray(uk.constraint_rows(system, t, q, v).A), system.mass_matrix(t, q) @ (u - v)
    on_second = np.linalg.lstsq(rows.T, jump + stop * np.eye(9)[8])[0].reshape(4, 2)  # of O1, A, O2, B
    return on_second[[0, 1, 3, 2]] * np.array([1, -1, -1, 1])[:, None]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tree", "twice", "in space", "absolute"])
def test_stop_on_the_rocker(kind: str) -> None:
    wanted, p = reference(VALUES), jnp.asarray(VALUES)
    around = [wanted.time - 2e-11, wanted.time + 2e-11]  # in which rates change by 3e-10
    problem = linkage(p, kind)
    found = uk.simulate(problem, ts=[*around, END], **TIGHT)
    assert found.contacts.names == ("O2.upper",)
    within(1e-9, found.contacts.event_time[0], wanted.time)
    within(1e-8, found.contacts.impulse[0, 0], -wanted.moment)
    crank, rocker = (2, 8) if kind == "absolute" else (0, 2)
    angle = (0.0, 0.0) if kind == "absolute" else (VALUES[10], angle3(VALUES, VALUES[10]))
    end = found.q[2, crank] + angle[0], found.v[2, crank], found.q[2, rocker] + angle[1]
    within(1e-8, end, wanted.end)
    within(1e-8, found.q[:2, crank] + angle[0], wanted.angle)
    within(1e-8, found.v[:2, jnp.array([crank, rocker])].ravel(), wanted.rates)
    assert np.abs(found.position_error).max() < 1e-12
    assert int(found.rank[0]) == {"tree": 2, "twice": 2, "in space": 2, "absolute": 8}[kind]
    if kind == "absolute":
        states = ((found.t[i], found.q[i], found.v[i]) for i in (0, 1))
        within(1e-8, joint_impulses(problem.system, *states, found.contacts.impulse[0, 0]), wanted.joints)


def told(run):
    return jnp.stack(
        [run.contacts.event_time[0], run.q[0, 0], run.v[0, 0], run.q[0, 2], run.contacts.impulse[0, 0]]
    )


def exact(p):
    x, start = reference(p), p[10]
    return np.array([x.time, x.end[0] - start, x.end[1], x.end[2] - angle3(p, start), -x.moment])


@pytest.mark.slow
def test_derivatives_of_the_stop() -> None:
    """By all values along two directions, in both modes, against differences of the reference."""
    rng, p, h = np.random.default_rng(0), jnp.asarray(VALUES), 1e-4
    of = lambda p: told(uk.simulate(linkage(p, "tree"), ts=[END], adjoint=dfx.ForwardMode(), **TIGHT))
    forward = jax.jit(lambda p, d: jax.jvp(of, (p,), (d,))[1])
    weights = rng.normal(size=5)
    gradient = jax.grad(lambda p: told(uk.simulate(linkage(p, "tree"), ts=[END], **TIGHT)) @ weights)(p)
    for _ in range(2):
        d = rng.normal(size=12) * VALUES
        at = {k: exact(VALUES + k * h * d) for k in (-2, -1, 1, 2)}
        wanted = (8 * (at[1] - at[-1]) - (at[2] - at[-2])) / (12 * h)
        within(1e-6, forward(p, jnp.asarray(d)), wanted)
        within(1e-6, gradient @ d, wanted @ weights)
