"""Planar parallel mechanisms of Orsino (2017): two, three or four RR modules, and what they carry.

The RR module is a pivoted link and a second one pinned to its end (Orsino 2017, Figures 1 and 3). All of the paper's
planar mechanisms are made of it, as hierarchies of three levels: the bodies with their base pins, the modules with their
elbows, the mechanism with the joints between modules.
"""

import math
from typing import ClassVar, final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._misc._arguments import fails
from .._misc._types import Coordinates, Time, Velocities
from .._system._constraint import AbstractConstraint, Holonomic
from .._system._problem import Problem
from ._parameters import Scalar, as_parameter, check, check_finite, check_positive, evaluate_start
from ._planar_linkages import AbstractPlanarSystem, GroundPin, Pin, find_body_point

CITATION = (
    "R. M. M. Orsino, Recursive modular modelling methodology for lumped-parameter dynamic systems, "
    "Proceedings of the Royal Society A 473, 2017, Figure {figure}."
)


def unit(angle: Array) -> Float[Array, "2"]:
    """The unit vector at `angle` [rad] from +x."""
    return jnp.stack([jnp.cos(angle), jnp.sin(angle)])


@final
class RRModule(eqx.Module):
    """Two uniform links of equal length, bodies `2 leg` and `2 leg + 1` in absolute coordinates (x, y, theta).

    The proximal link turns about `pivot` [m], the distal one about the proximal one's end.
    """

    pivot: Float[Array, "2"]
    length: Array
    mass: Array
    leg: int = eqx.field(static=True)

    def masses(self) -> list[Array]:
        """The diagonal of the mass matrix, of the two links."""
        return [self.mass, self.mass, self.mass * self.length**2 / 12.0] * 2

    @property
    def base_pin(self) -> GroundPin:
        return GroundPin(-0.5 * self.length, self.pivot, 2 * self.leg)

    @property
    def elbow_pin(self) -> Pin:
        return Pin(0.5 * self.length, -0.5 * self.length, 2 * self.leg, 2 * self.leg + 1)

    def elbow(self, q: Coordinates) -> Float[Array, "2"]:
        """Where the links meet [m], as a point of the proximal one."""
        return find_body_point(q, 2 * self.leg, 0.5 * self.length)

    def tip(self, q: Coordinates) -> Float[Array, "2"]:
        """The distal link's free end [m]."""
        return find_body_point(q, 2 * self.leg + 1, 0.5 * self.length)

    def drawing(self, q: Coordinates) -> Float[Array, "3 2"]:
        """Both links as one line [m], from pivot to tip."""
        return jnp.stack([find_body_point(q, 2 * self.leg, -0.5 * self.length), self.elbow(q), self.tip(q)])

    def coordinates_of_tip(self, tip: Float[Array, "2"]) -> list[Array]:
        """The six coordinates with the tip there: the links at a + c and a - c, a the direction from the pivot.

        Those of a tip that is out of reach are NaN.
        """
        x, y = reach = tip - self.pivot
        along = jnp.arctan2(y, x)
        bend = jnp.arccos(jnp.sqrt(jnp.sum(reach**2)) / (2.0 * self.length))
        first, second = (self.length * unit(angle) for angle in (along + bend, along - bend))
        return [
            *(self.pivot + 0.5 * first),
            along + bend,
            *(self.pivot + first + 0.5 * second),
            along - bend,
        ]


# --- The five-bar linkage


@final
class FiveBar(AbstractPlanarSystem):
    """Four uniform links in absolute coordinates (x, y, theta), y up: proximal and distal, left, then right.

    The ground, the fifth bar, is as long as `base`; its middle is the origin.
    """

    levels: ClassVar[tuple[tuple[str, ...], ...]] = (
        ("base pin 1", "base pin 2"),
        ("elbow 1", "elbow 2"),
        ("tip pin",),
    )

    base: Array = eqx.field(converter=as_parameter)
    length: Array = eqx.field(converter=as_parameter)
    mass: Array = eqx.field(converter=as_parameter)
    gravity: Array = eqx.field(converter=as_parameter)

    @property
    def legs(self) -> tuple[RRModule, ...]:
        pivots = [jnp.stack([half, jnp.zeros_like(half)]) for half in (-0.5 * self.base, 0.5 * self.base)]
        return tuple(RRModule(pivot, self.length, self.mass, k) for k, pivot in enumerate(pivots))

    @property
    def body_names(self) -> tuple[str, ...]:
        return tuple(f"{link} {i}" for i in (1, 2) for link in ("proximal", "distal"))

    def masses(self) -> Float[Array, "12"]:
        return jnp.stack([m for leg in self.legs for m in leg.masses()])

    @property
    def constraints(self) -> tuple[AbstractConstraint, ...]:
        """Five revolute joints, two rows each."""
        left, right = self.legs
        tip_pin = Pin(0.5 * self.length, 0.5 * self.length, 1, 3)
        joints = (left.base_pin, right.base_pin, left.elbow_pin, right.elbow_pin, tip_pin)
        return tuple(
            Holonomic(joint, name=name) for joint, name in zip(joints, sum(self.levels, ()), strict=True)
        )

    def points(self, t: Time, q: Coordinates) -> dict[str, Array]:
        """Where the tips meet, and the elbows as points of the proximal links."""
        left, right = self.legs
        return {"tip": left.tip(q), "elbow1": left.elbow(q), "elbow2": right.elbow(q)}

    def drawing(self, t: Time, q: Coordinates) -> dict[str, Array]:
        """The legs."""
        return {f"leg {leg.leg + 1}": leg.drawing(q) for leg in self.legs}

    def state(self, x: Scalar, y: Scalar) -> tuple[Coordinates, Velocities]:
        """q with the tip at (x, y) [m], both elbows bent to the same side, and v = 0."""
        tip = jnp.stack([as_parameter(x), as_parameter(y)])
        q = jnp.stack([coordinate for leg in self.legs for coordinate in leg.coordinates_of_tip(tip)])
        return q, jnp.zeros_like(q)


def five_bar(
    *,
    base: Scalar = 1.0,
    length: Scalar = 0.8,
    mass: Scalar = 1.0,
    gravity: Scalar = 9.81,
    x: Scalar = 0.05,
    y: Scalar = -0.9,
) -> Problem:
    """A five-bar linkage, passive: 12 coordinates, 10 rows, 2 degrees of freedom (Orsino 2017, Fig. 1).

    Built of the legs of `planar_3rrr`. Its system's `levels` are the hierarchy, for `Recursive`.

    **Arguments:**

    - `base`: distance of the two base pivots, at (-base/2, 0) and (base/2, 0) [m].
    - `length`: of each link [m].
    - `mass`: of each link, uniform [kg].
    - `gravity`: along -y [m/s^2].
    - `x`: of the tip at the start, at rest [m].
    - `y`: likewise [m].

    **Returns:** the `Problem`; points: `tip`, `elbow1`, `elbow2`.

    **Raises:** `InputError`, naming the parameter that is wrong.
    """
    check_positive(base=base, length=length, mass=mass)
    check_finite(gravity=gravity, x=x, y=y)
    system = FiveBar(base, length, mass, gravity)
    q0, v0 = evaluate_start(FiveBar.state, system, x, y)
    check(not fails(np.isfinite, q0), "x and y must be within reach: no leg is that long.")
    return Problem(
        system, q0, v0, 0.0, 1.0, system.points, citation=CITATION.format(figure=1), name="five_bar"
    )


# --- Platforms


def _vertex(pose: Float[Array, "3"], radius: Array, angle: float) -> Float[Array, "2"]:
    """The point at `radius` [m] from the centre (x, y) of a platform turned by phi [rad], `angle` [rad] from its axis."""
    x, y, phi = pose
    return jnp.stack([x, y]) + radius * unit(phi + angle)


@final
class PlatformPin(eqx.Module):
    """phi of the revolute joint between a module's tip and the platform's vertex (two rows [m])."""

    module: RRModule
    radius: Array
    angle: float = eqx.field(static=True)

    def __call__(self, t: Time, q: Coordinates) -> Float[Array, "2"]:
        return self.module.tip(q) - _vertex(q[-3:], self.radius, self.angle)


@final
class PlanarRRR(AbstractPlanarSystem):
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
        pivots = [self.base_radius * unit(self._angle(k)) for k in range(len(self.angles))]
        return tuple(RRModule(pivot, self.length, self.mass, k) for k, pivot in enumerate(pivots))

    def _angle(self, leg: int) -> Array:
        return jnp.full_like(self.base_radius, math.radians(self.angles[leg]))

    @property
    def body_names(self) -> tuple[str, ...]:
        return (
            *(f"{link} {i + 1}" for i in range(len(self.angles)) for link in ("proximal", "distal")),
            "platform",
        )

    def masses(self) -> Float[Array, " n"]:
        links = [m for leg in self.legs for m in leg.masses()]
        return jnp.stack([*links, self.platform_mass, self.platform_mass, self.platform_inertia])

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
        links = [c for leg, tip in zip(self.legs, tips, strict=True) for c in leg.coordinates_of_tip(tip)]
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
