"""The benchmark mechanisms as plain data, for programs that are not ukjax: hinged planar bodies in a tree, and loops.

Geometry as in `ukjax.models`, whose citations define it; everything else here is NumPy of its own.
"""

from typing import NamedTuple

import numpy as np

from ukjax import models

Array = np.ndarray
GROUND = -1


class Body(NamedTuple):
    """A rigid body, hinged to its parent.

    - `parent`: its index, or `GROUND`.
    - `pivot`: of the hinge, in the parent's frame [m]. The body's own frame has its origin there.
    - `centre`: of mass, in its own frame [m].
    - `mass`, `inertia`: [kg], about the centre [kg m^2].
    - `angle`, `rate`: at the start, against the parent [rad], [rad/s].
    """

    parent: int
    pivot: tuple[float, float]
    centre: tuple[float, float]
    mass: float
    inertia: float
    angle: float
    rate: float = 0.0


class Loop(NamedTuple):
    """Points [m] of two bodies, or of one and `GROUND`, that coincide."""

    body: int
    point: tuple[float, float]
    other: int
    other_point: tuple[float, float]


class Spring(NamedTuple):
    """From a fixed place to a point of a body hinged to the ground [m], [N/m], [m]."""

    anchor: tuple[float, float]
    body: int
    point: tuple[float, float]
    stiffness: float
    rest: float


class Mechanism(NamedTuple):
    """Bodies depth first, loops, gravity along -y [m/s^2], a constant torque on body 0 [N m] and a spring."""

    bodies: tuple[Body, ...]
    loops: tuple[Loop, ...]
    gravity: float = 9.81
    torque: float = 0.0
    spring: Spring | None = None

    @property
    def start(self) -> tuple[Array, Array]:
        """The hinges' angles and rates."""
        return np.array([b.angle for b in self.bodies]), np.array([b.rate for b in self.bodies])

    def poses(self, angles: Array) -> tuple[Array, Array]:
        """Origin (k, 2) and angle (k,) of every body, from the hinges' angles."""
        origins, turned = np.zeros((len(self.bodies), 2)), np.zeros(len(self.bodies))
        for i, (body, angle) in enumerate(zip(self.bodies, angles, strict=True)):
            grounded = body.parent == GROUND
            turned[i] = angle + (0.0 if grounded else turned[body.parent])
            origins[i] = body.pivot if grounded else place(origins, turned, body.parent, body.pivot)
        return origins, turned

    def drift(self, angles: Array) -> float:
        """The widest gap of a loop [m]."""
        poses = self.poses(angles)
        gaps = [place(*poses, x.body, x.point) - place(*poses, x.other, x.other_point) for x in self.loops]
        return float(np.max(np.abs(gaps), initial=0.0))


def place(origins: Array, turned: Array, body: int, point: tuple[float, float]) -> Array:
    """Where a point of a body is (2,)."""
    if body == GROUND:
        return np.array(point)
    c, s = np.cos(turned[body]), np.sin(turned[body])
    return origins[body] + np.array([c * point[0] - s * point[1], s * point[0] + c * point[1]])


def rods(mechanism: str, n: int = 1) -> Mechanism:
    """`"four_bars"`, n in a row, or the `"parallelogram"`: links along their own x axis, and couplers."""
    if mechanism == "four_bars":
        bodies, loops = [], []
        for i in range(n + 1):
            bodies.append(Body(GROUND, (float(i), 0.0), (0.5, 0.0), 1.0, 1.0 / 12.0, np.pi / 2, -1.0))
            if i < n:
                bodies.append(Body(2 * i, (1.0, 0.0), (0.5, 0.0), 1.0, 1.0 / 12.0, -np.pi / 2, 1.0))
                loops.append(Loop(2 * i + 1, (1.0, 0.0), 2 * i + 2, (1.0, 0.0)))
        return Mechanism(tuple(bodies), tuple(loops))
    link = lambda x: Body(GROUND, (x, 0.0), (0.5, 0.0), 1.0, 0.1, np.pi / 3)
    coupler = Body(0, (1.0, 0.0), (1.0, 0.0), 2.0, 0.2, -np.pi / 3)
    loops = tuple(Loop(1, (x, 0.0), i, (1.0, 0.0)) for i, x in ((2, 1.0), (3, 2.0)))
    return Mechanism((link(0.0), coupler, link(1.0), link(2.0)), loops)


SQUEEZER_ANGLES = (0, 1, 2, 4, 3, 6, 5)
"""Where beta, Theta, gamma, Phi, delta, Omega, epsilon are among the hinges' angles, and the other way round."""


def squeezer() -> Mechanism:
    """Andrews' squeezer, K1, K2, K3, K5, K4, K7, K6: its hinges' angles are the seven of the IVP Test Set."""
    problem = models.andrews()
    x = problem.system.dimensions  # pyright: ignore[reportAttributeAccessIssue]
    at = {name: tuple(float(y) for y in getattr(x, name)) for name in "ABC"}
    length = {name: float(getattr(x, name)) for name in vars(x) if np.ndim(getattr(x, name)) == 0}
    d, da, e, ea, rr, ra, ss, sa, sb = (
        length[k] for k in ("d", "da", "e", "ea", "rr", "ra", "ss", "sa", "sb")
    )
    sc, sd, ta, tb, u, ua, ub, zf, zt, fa = (
        length[k] for k in ("sc", "sd", "ta", "tb", "u", "ua", "ub", "zf", "zt", "fa")
    )
    shapes = (  # parent, pivot, centre, number
        (GROUND, (0.0, 0.0), (ra, 0.0), 1),
        (0, (rr, 0.0), (-da, 0.0), 2),
        (GROUND, at["B"], (sb, -sa), 3),
        (GROUND, at["A"], (ta, tb), 5),
        (3, (zt, 0.0), (0.0, ea - e), 4),
        (GROUND, at["A"], (-ub, -ua), 7),
        (5, (0.0, -u), (zf - fa, 0.0), 6),
    )
    m, inertia = np.asarray(x.m), np.asarray(x.inertia)
    angles = np.asarray(problem.q0)[list(SQUEEZER_ANGLES)]
    bodies = tuple(
        Body(*shape[:3], float(m[shape[3] - 1]), float(inertia[shape[3] - 1]), float(angle))
        for shape, angle in zip(shapes, angles, strict=True)
    )
    ends = ((2, (0.0, -ss)), (4, (0.0, -e)), (6, (zf, 0.0)))
    loops = tuple(Loop(1, (-d, 0.0), *end) for end in ends)
    spring = Spring(at["C"], 2, (sd, -sc), 4530.0, 0.07785)
    return Mechanism(bodies, loops, 0.0, 0.033, spring)
