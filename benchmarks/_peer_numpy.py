"""What a user would write: absolute coordinates, A and b by hand, numpy.linalg.pinv; SciPy's RK45, or RK4 of a batch."""

from collections.abc import Callable, Iterator

import numpy as np
from _peer_cases import Batch, Case, Single, error, member_steps, steps_of
from _peer_mechanisms import GROUND, Mechanism
from _peer_scara import ScaraScript
from numpy import linalg

Array = np.ndarray
_RCOND = 1e-4
GAIN = 20.0


class Script:
    """The accelerations of a mechanism by the Udwadia-Kalaba formula, of a batch (..., 3 k) at once.

    Coordinates are x, y and angle of every body's centre of mass; every hinge and loop gives two rows, kept by
    Baumgarte's b - 2 gain psi - gain^2 phi, without which it leaves the right branch at flat positions.
    """

    def __init__(self, mechanism: Mechanism, gain: float = GAIN):
        bodies = mechanism.bodies
        self.mechanism, self.n, self.gain = mechanism, 3 * len(bodies), gain
        relative = lambda i, point: np.subtract(point, bodies[i].centre if i != GROUND else (0.0, 0.0))
        pairs = [(i, (0.0, 0.0), body.parent, body.pivot) for i, body in enumerate(bodies)]
        pairs += [tuple(loop) for loop in mechanism.loops]
        self.constant, self.anchors = np.zeros((2 * len(pairs), self.n)), np.zeros(2 * len(pairs))
        sides = []
        for j, (first, point, second, other) in enumerate(pairs):
            for sign, i, at in (
                (1.0, first, relative(first, point)),
                (-1.0, second, relative(second, other)),
            ):
                if i == GROUND:
                    self.anchors[2 * j : 2 * j + 2] = sign * at
                else:
                    self.constant[2 * j, 3 * i] = self.constant[2 * j + 1, 3 * i + 1] = sign
                    sides.append((j, i, sign * at[0], sign * at[1]))
        joint, body, self.x, self.y = (np.array(column) for column in zip(*sides, strict=True))
        self.joint, self.angle = joint.astype(int), 3 * body.astype(int) + 2
        self.gather = np.zeros((len(sides), len(pairs)))
        self.gather[np.arange(len(sides)), self.joint] = 1.0
        masses = np.array([(b.mass, b.mass, b.inertia) for b in bodies]).ravel()
        self.root = 1.0 / np.sqrt(masses)
        self.force = np.zeros(self.n)
        self.force[1::3] = -mechanism.gravity * masses[1::3]
        self.force[2] = mechanism.torque

    def start(self) -> tuple[Array, Array]:
        """q and v."""
        bodies, (angles, rates) = self.mechanism.bodies, self.mechanism.start
        states = []
        for shift in (0.0, 1e-6j):  # the rate of every entry by a complex step along the motion
            origins, turned = np.zeros((len(bodies), 2), complex), np.zeros(len(bodies), complex)
            for i, body in enumerate(bodies):
                turned[i] = (
                    angles[i] + shift * rates[i] + (turned[body.parent] if body.parent != GROUND else 0)
                )
                pivot = np.asarray(body.pivot, complex)
                if body.parent != GROUND:
                    pivot = origins[body.parent] + _turned(turned[body.parent], body.pivot)
                origins[i] = pivot
            centres = [o + _turned(a, b.centre) for o, a, b in zip(origins, turned, bodies, strict=True)]
            states.append(np.concatenate([centres, turned[:, None]], axis=1).ravel())
        return states[0].real, states[1].imag / 1e-6

    def _forces(self, q: Array) -> Array:
        spring = self.mechanism.spring
        if spring is None:
            return self.force
        i, point = spring.body, np.subtract(spring.point, self.mechanism.bodies[spring.body].centre)
        c, s = np.cos(q[..., 3 * i + 2]), np.sin(q[..., 3 * i + 2])
        x, y = c * point[0] - s * point[1], s * point[0] + c * point[1]
        dx, dy = spring.anchor[0] - q[..., 3 * i] - x, spring.anchor[1] - q[..., 3 * i + 1] - y
        tension = spring.stiffness * (1.0 - spring.rest / np.hypot(dx, dy))
        forces = np.broadcast_to(self.force, q.shape).copy()
        forces[..., 3 * i] += tension * dx
        forces[..., 3 * i + 1] += tension * dy
        forces[..., 3 * i + 2] += tension * (x * dy - y * dx)
        return forces

    def _offsets(self, q: Array) -> tuple[Array, Array]:
        """x and y of the hinged points from their bodies' centres, with the sign they have in the rows."""
        c, s = np.cos(q[..., self.angle]), np.sin(q[..., self.angle])
        return c * self.x - s * self.y, s * self.x + c * self.y

    def _rows(self, x: Array, y: Array) -> Array:
        """Two rows a hinge (..., m) from what each of its sides adds."""
        pairs = np.stack([x @ self.gather, y @ self.gather], axis=-1)
        return pairs.reshape(*pairs.shape[:-2], -1)

    def gaps(self, q: Array, t: float = 0.0) -> Array:
        """phi of all hinges and loops (..., m) [m]."""
        return np.matvec(self.constant, q) + self._rows(*self._offsets(q)) + self.anchors

    def accelerations(self, t: float, q: Array, v: Array) -> Array:
        """a (..., n) of M a = Q + A^T lambda, A a = b, with M diagonal.

        **Arguments:**

        - `t`: time [s], which nothing depends on.
        - `q`, `v`: (..., n).
        """
        x, y = self._offsets(q)
        A = np.broadcast_to(self.constant, (*q.shape[:-1], *self.constant.shape)).copy()
        A[..., 2 * self.joint, self.angle], A[..., 2 * self.joint + 1, self.angle] = -y, x
        spin = v[..., self.angle] ** 2
        drawn_back = 2 * self.gain * np.matvec(A, v) + self.gain**2 * self.gaps(q)
        B, free = A * self.root, self._forces(q) * self.root
        residual = self._rows(spin * x, spin * y) - drawn_back - np.matvec(B, free)
        return self.root * (free + np.matvec(linalg.pinv(B, rcond=_RCOND), residual))


def _turned(angle: complex, point: tuple[float, float]) -> Array:
    c, s = np.cos(angle), np.sin(angle)
    return np.array([c * point[0] - s * point[1], s * point[0] + c * point[1]])


def script_of(case: Case, moving: bool = False) -> Script | ScaraScript:
    """The script of a case, of a linkage with its links turning if it is `moving`."""
    mechanism = case.moving()[0] if moving else case.mechanism
    return ScaraScript(case.problem, GAIN) if mechanism is None else Script(mechanism)


def scipy_run(script: Script | ScaraScript, t1: float, tolerance: float) -> Callable[[], Array]:
    """A run by RK45, as a function of nothing that returns q at the end."""
    from scipy.integrate import solve_ivp

    n, start = script.n, np.concatenate(script.start())
    rates = lambda t, y: np.concatenate([y[n:], script.accelerations(t, y[:n], y[n:])])
    run = lambda: solve_ivp(rates, (0.0, t1), start, rtol=tolerance, atol=tolerance)
    return lambda: run().y[:n, -1]


def rk4(script: Script | ScaraScript, q: Array, v: Array, h: float, steps: int) -> Array:
    """q after steps of RK4, of one state or a batch (..., n)."""
    f = script.accelerations
    for t in h * np.arange(steps):
        a1 = f(t, q, v)
        v2 = v + 0.5 * h * a1
        a2 = f(t + 0.5 * h, q + 0.5 * h * v, v2)
        v3 = v + 0.5 * h * a2
        a3 = f(t + 0.5 * h, q + 0.5 * h * v2, v3)
        v4 = v + h * a3
        a4 = f(t + h, q + h * v3, v4)
        q = q + h / 6.0 * (v + 2.0 * (v2 + v3) + v4)
        v = v + h / 6.0 * (a1 + 2.0 * (a2 + a3) + a4)
    return q


def drift(script: Script | ScaraScript, q: Array, t: float) -> float:
    """The widest gap of a hinge or loop, or from the path, of one state [m]."""
    return float(np.max(np.abs(script.gaps(q, t))))


def scipy_singles(case: Case, quick: bool) -> Iterator[Single]:
    """The script by SciPy."""
    script = script_of(case)
    if script.n > 100:  # minutes a run
        return
    for tolerance in (1e-6,) if quick or script.n > 30 else (1e-4, 1e-6, 1e-8):
        make = lambda tolerance=tolerance: scipy_run(script, case.t1, tolerance)
        gap = lambda q: drift(script, q, case.t1)
        yield Single("SciPy, numpy pinv", f"RK45 tolerance {tolerance:g}", make, error(case, 2), gap)


def numpy_singles(case: Case, quick: bool) -> Iterator[Single]:
    """The script by RK4; it is batches that it is for."""
    mechanism = case.mechanism
    if mechanism is not None and (mechanism.spring is not None or len(mechanism.bodies) > 5):
        return
    script = script_of(case)
    for h, steps in steps_of(case, (0.01,)):
        make = lambda h=h, steps=steps: lambda: rk4(script, *script.start(), h, steps)
        gap = lambda q: drift(script, q, case.t1)
        yield Single("NumPy, pinv", f"RK4 h = {h:.3g}", make, error(case, 2), gap)


def numpy_batches(case: Case, size: int) -> Iterator[Batch]:
    """The script by RK4 over a whole batch."""
    script = script_of(case, moving=True)
    q, v = script.start()
    starts = np.tile(q, (size, 1)), case.speeds(size)[:, None] * v
    ((h, _),), steps = steps_of(case, (0.01,)), member_steps(size, 1e4, 200)
    yield Batch("NumPy, pinv", f"RK4 h = {h:.3g}", h, steps, lambda: lambda: rk4(script, *starts, h, steps))
