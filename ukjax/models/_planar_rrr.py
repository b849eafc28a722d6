"""A platform on two, three or four RR modules: planar parallel mechanisms of Orsino (2017), in three levels."""

import math
from typing import final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._misc._arguments import fails
from .._misc._types import Coordinates, Forces, MassMatrix, Time, Velocities
from .._system._constraint import AbstractConstraint, Holonomic
from .._system._problem import Problem
from .._system._system import AbstractSystem
from ._parameters import Scalar, as_parameter, check, check_finite, check_positive, evaluate_start
from ._planar import PLANAR_UNITS, energy, planar_labels, weight
from ._rr_module import CITATION, RRModule, direction


def _vertex(pose: Float[Array, "3"], radius: Array, angle: float) -> Float[Array, "2"]:
    """The point at `radius` [m] from the centre (x, y) of a platform turned by phi [rad], `angle` [rad] from its axis."""
    x, y, phi = pose
    return jnp.stack([x, y]) + radius * direction(phi + angle)


@final
class PlatformPin(eqx.Module):
    """phi of the revolute joint between a module's tip and the platform's vertex (two rows [m])."""

    module: RRModule
    radius: Array
    angle: float = eqx.field(static=True)

    def __call__(self, t: Time, q: Coordinates) -> Float[Array, "2"]:
        return self.module.tip(q) - _vertex(q[-3:], self.radius, self.angle)


@final
class PlanarRRR(AbstractSystem):
    """Bodies in absolute coordinates (x, y, theta) of their centres, y up: two links a leg, then the platform.

    Links are uniform. `angles` [deg] are those of the legs' base pivots, and of their platform vertices.
    """

    base_radius: Array = eqx.field(converter=as_parameter)
    platform_radius: Array = eqx.field(converter=as_parameter)
    length: Array = eqx.field(converter=as_parameter)
    mass: Array = eqx.field(converter=as_parameter)
    platform_mass: Array = eqx.field(converter=as_parameter)
    platform_inertia: Array = eqx.field(converter=as_parameter)
    gravity: Array = eqx.field(converter=as_parameter)
    angles: tuple[float, ...] = eqx.field(static=True)

    @property
    def levels(self) -> tuple[tuple[str, ...], ...]:
        """The hierarchy of Orsino 2017, Figure 4: each module's bodies, the legs, the mechanism."""
        return tuple(
            tuple(f"{joint} {leg + 1}" for leg in range(len(self.angles)))
            for joint in ("base pin", "elbow", "platform pin")
        )

    @property
    def legs(self) -> tuple[RRModule, ...]:
        pivots = [self.base_radius * direction(self._angle(k)) for k in range(len(self.angles))]
        return tuple(RRModule(pivot, self.length, self.mass, k) for k, pivot in enumerate(pivots))

    def _angle(self, leg: int) -> Array:
        return jnp.full_like(self.base_radius, math.radians(self.angles[leg]))

    @property
    def labels(self) -> tuple[str, ...]:
        return planar_labels(
            *(f"{link} {i + 1}" for i in range(len(self.angles)) for link in ("proximal", "distal")),
            "platform",
        )

    @property
    def units(self) -> tuple[str, ...]:
        return PLANAR_UNITS * (2 * len(self.angles) + 1)

    def _masses(self) -> Float[Array, " n"]:
        links = [m for leg in self.legs for m in leg.masses()]
        return jnp.stack([*links, self.platform_mass, self.platform_mass, self.platform_inertia])

    def mass_matrix(self, t: Time, q: Coordinates) -> MassMatrix:
        return jnp.diag(self._masses()).astype(q.dtype)

    def force(self, t: Time, q: Coordinates, v: Velocities) -> Forces:
        return weight(self._masses(), self.gravity).astype(q.dtype)

    def energy(self, t: Time, q: Coordinates, v: Velocities) -> Float[Array, ""]:
        return energy(self._masses(), self.gravity, q, v)

    @property
    def constraints(self) -> tuple[AbstractConstraint, ...]:
        """Three revolute joints a leg, two rows each."""
        pins = [
            PlatformPin(leg, self.platform_radius, math.radians(self.angles[leg.leg])) for leg in self.legs
        ]
        joints = (*(leg.base_pin for leg in self.legs), *(leg.elbow_pin for leg in self.legs), *pins)
        return tuple(
            Holonomic(joint, name=name) for joint, name in zip(joints, sum(self.levels, ()), strict=True)
        )

    def points(self, t: Time, q: Coordinates) -> dict[str, Array]:
        """The platform's centre, and the elbows as points of the proximal links."""
        return {"platform": q[-3:-1], **{f"elbow{leg.leg + 1}": leg.elbow(q) for leg in self.legs}}

    def drawing(self, t: Time, q: Coordinates) -> dict[str, Array]:
        """The legs, and the platform as a closed polygon."""
        corners = self.vertices(*q[-3:])
        legs = {f"leg {leg.leg + 1}": leg.drawing(q) for leg in self.legs}
        return legs | {"platform": jnp.stack([*corners, corners[0]])}

    def vertices(self, x: Scalar, y: Scalar, phi: Scalar) -> list[Float[Array, "2"]]:
        """The platform's vertices [m] at that pose."""
        pose = jnp.stack([as_parameter(value) for value in (x, y, phi)])
        return [_vertex(pose, self.platform_radius, math.radians(angle)) for angle in self.angles]

    def state(self, x: Scalar, y: Scalar, phi: Scalar) -> tuple[Coordinates, Velocities]:
        """q at the platform's pose, every elbow bent to the same side, and v = 0."""
        tips = self.vertices(x, y, phi)
        links = [c for leg, tip in zip(self.legs, tips, strict=True) for c in leg.reaching(tip)]
        q = jnp.stack([*links, x, y, phi])
        return q, jnp.zeros_like(q)


_POSITIVE = ("base_radius", "platform_radius", "length", "mass", "platform_mass", "platform_inertia")


def _problem(name: str, figure: int, angles: tuple[float, ...], *parameters: Scalar) -> Problem:
    *positive, gravity, x, y, phi = parameters
    sizes = dict(zip(_POSITIVE, positive, strict=True))
    check_positive(**sizes)
    check_finite(gravity=gravity, x=x, y=y, phi=phi)
    system = PlanarRRR(**sizes, gravity=gravity, angles=angles)  # pyright: ignore[reportArgumentType]
    q0, v0 = evaluate_start(PlanarRRR.state, system, x, y, phi)
    check(not fails(np.isfinite, q0), "x, y and phi must be within reach: no leg is that long.")
    citation = CITATION.format(figure=figure)
    return Problem(system, q0, v0, 0.0, 1.0, system.points, citation=citation, name=name)


def planar_3rrr(
    *,
    base_radius: Scalar = 1.0,
    platform_radius: Scalar = 0.3,
    length: Scalar = 0.8,
    mass: Scalar = 1.0,
    platform_mass: Scalar = 2.0,
    platform_inertia: Scalar = 0.05,
    gravity: Scalar = 9.81,
    x: Scalar = 0.05,
    y: Scalar = 0.1,
    phi: Scalar = 0.1,
) -> Problem:
    """A platform on three legs, passive: 21 coordinates, 18 rows, 3 degrees of freedom (Orsino 2017, Fig. 2).

    Its system's `levels` are the paper's hierarchy, for `Recursive`.

    **Arguments:**

    - `base_radius`: of the circle of the base pivots, at 90, 210 and 330 deg [m].
    - `platform_radius`: of the platform's vertices, at the same angles [m].
    - `length`: of each link [m].
    - `mass`: of each link, uniform [kg].
    - `platform_mass`: mass of the platform [kg].
    - `platform_inertia`: of the platform about its centre [kg m^2].
    - `gravity`: along -y [m/s^2].
    - `x`: of the platform's centre at the start, at rest [m].
    - `y`: likewise [m].
    - `phi`: angle of the platform at the start [rad].

    **Returns:** the `Problem`; points: `platform`, `elbow1`, `elbow2`, `elbow3`.

    **Raises:** `InputError`, naming the parameter that is wrong.
    """
    return _problem(
        "planar_3rrr", 2, (90.0, 210.0, 330.0),
        base_radius, platform_radius, length, mass, platform_mass, platform_inertia, gravity, x, y, phi,
    )  # fmt: skip


def planar_2rrr(
    *,
    base_radius: Scalar = 1.0,
    platform_radius: Scalar = 0.3,
    length: Scalar = 0.8,
    mass: Scalar = 1.0,
    platform_mass: Scalar = 2.0,
    platform_inertia: Scalar = 0.05,
    gravity: Scalar = 9.81,
    x: Scalar = 0.05,
    y: Scalar = 0.1,
    phi: Scalar = 0.1,
) -> Problem:
    """A platform that hangs on two legs: 15 coordinates, 12 rows, 3 degrees of freedom (Orsino 2017, Fig. 1).

    Built as `planar_3rrr`, of the same parts, with two legs.

    **Arguments:**

    - `base_radius`: of the circle of the base pivots, at 30 and 150 deg [m].
    - `platform_radius`: of the platform's vertices, at the same angles [m].
    - `length`, `mass`, `platform_mass`, `platform_inertia`, `gravity`, `x`, `y`, `phi`: the same as those of
      `planar_3rrr`.

    **Returns:** the `Problem`; points: `platform`, `elbow1`, `elbow2`.

    **Raises:** `InputError`, naming the parameter that is wrong.
    """
    return _problem(
        "planar_2rrr", 1, (30.0, 150.0),
        base_radius, platform_radius, length, mass, platform_mass, platform_inertia, gravity, x, y, phi,
    )  # fmt: skip


def planar_4rrr(
    *,
    base_radius: Scalar = 1.0,
    platform_radius: Scalar = 0.3,
    length: Scalar = 0.8,
    mass: Scalar = 1.0,
    platform_mass: Scalar = 2.0,
    platform_inertia: Scalar = 0.05,
    gravity: Scalar = 9.81,
    x: Scalar = 0.05,
    y: Scalar = 0.1,
    phi: Scalar = 0.1,
) -> Problem:
    """A platform on four legs: 27 coordinates, 24 rows, 3 degrees of freedom (Orsino 2017, Fig. 1).

    Built as `planar_3rrr`, of the same parts, with four legs: one more than the platform has freedoms, so that
    drives at all four base pins would be redundant.

    **Arguments:**

    - `base_radius`: of the circle of the base pivots, at 45, 135, 225 and 315 deg [m].
    - `platform_radius`: of the platform's vertices, at the same angles [m].
    - `length`, `mass`, `platform_mass`, `platform_inertia`, `gravity`, `x`, `y`, `phi`: the same as those of
      `planar_3rrr`.

    **Returns:** the `Problem`; points: `platform`, `elbow1`, `elbow2`, `elbow3`, `elbow4`.

    **Raises:** `InputError`, naming the parameter that is wrong.
    """
    return _problem(
        "planar_4rrr", 1, (45.0, 135.0, 225.0, 315.0),
        base_radius, platform_radius, length, mass, platform_mass, platform_inertia, gravity, x, y, phi,
    )  # fmt: skip
