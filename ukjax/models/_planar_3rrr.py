"""The planar 3RRR parallel mechanism of Orsino (2017), a hierarchy of three levels."""

import math
from typing import ClassVar, final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._constraint import AbstractConstraint, Holonomic
from .._problem import Problem
from .._system import AbstractSystem
from .._types import Coordinates, Forces, MassMatrix, Time, Velocities
from ._parameters import Scalar, as_parameter, check, check_finite, check_positive
from ._planar import GroundPin, on_body

_CITATION = (
    "R. M. M. Orsino, Recursive modular modelling methodology for lumped-parameter dynamic systems, "
    "Proceedings of the Royal Society A 473, 2017, Figure 2."
)
_LEGS = range(3)
_PLATFORM = 6


def _direction(angle: Array) -> Float[Array, "2"]:
    return jnp.stack([jnp.cos(angle), jnp.sin(angle)])


@final
class LinkPin(eqx.Module):
    """phi of the revolute joint between a link's end and a platform's point (two rows [m]).

    The point lies at `radius` [m] from the platform's centre, `angle` [rad] from its axis.
    """

    end: Array
    radius: Array
    angle: Array
    link: int = eqx.field(static=True)

    def __call__(self, t: Time, q: Coordinates) -> Float[Array, "2"]:
        x, y, phi = q[3 * _PLATFORM : 3 * _PLATFORM + 3]
        vertex = jnp.stack([x, y]) + self.radius * _direction(phi + self.angle)
        return on_body(q, self.link, self.end) - vertex


@final
class Elbow(eqx.Module):
    """phi of the revolute joint between the ends of a leg's two links (two rows [m])."""

    proximal_end: Array
    distal_end: Array
    leg: int = eqx.field(static=True)

    def __call__(self, t: Time, q: Coordinates) -> Float[Array, "2"]:
        return on_body(q, 2 * self.leg, self.proximal_end) - on_body(q, 2 * self.leg + 1, self.distal_end)


@final
class Planar3RRR(AbstractSystem):
    """Seven bodies in absolute coordinates (x, y, theta) of their centres, y up.

    Proximal and distal link of legs 1, 2, 3, then the platform. Links are uniform. Its `levels` are the
    hierarchy of Orsino 2017, Figure 4: the modules (each leg's pivoted bar, its free bar, the platform), the
    legs, the mechanism.
    """

    levels: ClassVar[tuple[tuple[str, ...], ...]] = tuple(
        tuple(f"{joint} {leg + 1}" for leg in _LEGS) for joint in ("base pin", "elbow", "platform pin")
    )

    base_radius: Array = eqx.field(converter=as_parameter)
    platform_radius: Array = eqx.field(converter=as_parameter)
    length: Array = eqx.field(converter=as_parameter)
    mass: Array = eqx.field(converter=as_parameter)
    platform_mass: Array = eqx.field(converter=as_parameter)
    platform_inertia: Array = eqx.field(converter=as_parameter)
    gravity: Array = eqx.field(converter=as_parameter)

    def _masses(self) -> Float[Array, "21"]:
        link = [self.mass, self.mass, self.mass * self.length**2 / 12.0]
        return jnp.stack([*(link * 6), self.platform_mass, self.platform_mass, self.platform_inertia])

    def _angle(self, leg: int) -> Array:
        """Of a leg's base pivot, and of its platform vertex from the platform's axis: 90, 210, 330 deg."""
        return jnp.full_like(self.base_radius, math.radians(90.0 + 120.0 * leg))

    def mass_matrix(self, t: Time, q: Coordinates) -> MassMatrix:
        return jnp.diag(self._masses()).astype(q.dtype)

    def force(self, t: Time, q: Coordinates, v: Velocities) -> Forces:
        o, weight = jnp.zeros_like(self.mass), -self.mass * self.gravity
        link = [o, weight, o]
        return jnp.stack([*(link * 6), o, -self.platform_mass * self.gravity, o]).astype(q.dtype)

    def energy(self, t: Time, q: Coordinates, v: Velocities) -> Float[Array, ""]:
        moment = self.mass * jnp.sum(q[1:18:3]) + self.platform_mass * q[19]
        return 0.5 * jnp.dot(self._masses() * v, v) + self.gravity * moment

    @property
    def constraints(self) -> tuple[AbstractConstraint, ...]:
        """Nine revolute joints, two rows each."""
        half = 0.5 * self.length
        base = [GroundPin(-half, self.base_radius * _direction(self._angle(k)), 2 * k) for k in _LEGS]
        elbows = [Elbow(half, -half, k) for k in _LEGS]
        platform = [LinkPin(half, self.platform_radius, self._angle(k), 2 * k + 1) for k in _LEGS]
        joints = zip((*base, *elbows, *platform), sum(self.levels, ()), strict=True)
        return tuple(Holonomic(joint, name=name) for joint, name in joints)

    def points(self, t: Time, q: Coordinates) -> dict[str, Array]:
        """The platform's centre, and the elbows as points of the proximal links."""
        elbows = {f"elbow{k + 1}": on_body(q, 2 * k, 0.5 * self.length) for k in _LEGS}
        return {"platform": q[3 * _PLATFORM : 3 * _PLATFORM + 2], **elbows}

    def reaches(self, x: Scalar, y: Scalar, phi: Scalar) -> Float[Array, "3 2"]:
        """From each base pivot to its platform vertex [m], the platform at (x, y) [m] turned by phi [rad]."""
        centre = jnp.stack([as_parameter(x), as_parameter(y)])
        return jnp.stack(
            [
                centre
                + self.platform_radius * _direction(phi + self._angle(k))
                - self.base_radius * _direction(self._angle(k))
                for k in _LEGS
            ]
        )

    def state(self, x: Scalar, y: Scalar, phi: Scalar) -> tuple[Coordinates, Velocities]:
        """q at the platform's pose, every elbow bent to the same side, and v = 0."""
        q = []
        for k, reach in enumerate(self.reaches(x, y, phi)):
            along = jnp.arctan2(reach[1], reach[0])
            bend = jnp.arccos(jnp.sqrt(jnp.sum(reach**2)) / (2.0 * self.length))
            pivot = self.base_radius * _direction(self._angle(k))
            first, second = (self.length * _direction(a) for a in (along + bend, along - bend))
            q += [*(pivot + 0.5 * first), along + bend, *(pivot + first + 0.5 * second), along - bend]
        q = jnp.asarray([*q, x, y, phi])
        return q, jnp.zeros_like(q)


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
    check_positive(base_radius=base_radius, platform_radius=platform_radius, length=length, mass=mass)
    check_positive(platform_mass=platform_mass, platform_inertia=platform_inertia)
    check_finite(gravity=gravity, x=x, y=y, phi=phi)
    system = Planar3RRR(base_radius, platform_radius, length, mass, platform_mass, platform_inertia, gravity)
    reach = jnp.max(jnp.sum(system.reaches(x, y, phi) ** 2, axis=1))
    check(reach <= (2.0 * system.length) ** 2, "x, y and phi must be within reach: no leg is that long.")
    q0, v0 = system.state(x, y, phi)
    return Problem(system, q0, v0, 0.0, 1.0, system.points, citation=_CITATION, name="planar_3rrr")
