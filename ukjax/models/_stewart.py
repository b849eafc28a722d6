"""The Stewart platform: a plate on six legs whose lengths are given functions of time."""

import math
from typing import Any, ClassVar, final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from .._misc._types import Time
from .._system._problem import Problem
from ..mechanisms import GROUND, AbstractJoint, Body, Gravity, assemble
from ._parameters import (
    NamedPoints,
    Scalar,
    as_parameter,
    check,
    check_finite,
    check_positive,
    numbers,
    stack_parameters,
)

_CITATION = (
    "D. Stewart, A platform with six degrees of freedom, Proceedings of the Institution of Mechanical Engineers 180, "
    "1965; the legs' lengths by inverse kinematics."
)
# At the ground three pairs of points, at the plate three pairs between them [deg].
_BELOW, _ABOVE = (-10.0, 10.0, 110.0, 130.0, 230.0, 250.0), (-50.0, 50.0, 70.0, 170.0, 190.0, 290.0)


@final
class Pose(eqx.Module):
    """The plate's motion: up and down, along x, and tilting about y. `place` is its centre at rest [m] (3,)."""

    place: Array
    heave: Array = eqx.field(converter=as_parameter)
    surge: Array = eqx.field(converter=as_parameter)
    tilt: Array = eqx.field(converter=as_parameter)
    rate: Array = eqx.field(converter=as_parameter)

    def __call__(self, t: Time) -> tuple[Array, Array]:
        """The centre [m] (3,), and the angle about y [rad]."""
        s, o = jnp.sin(self.rate * t), jnp.zeros_like(self.rate)
        moved = jnp.stack([self.surge * s, o, self.heave * jnp.sin(2 * self.rate * t)])
        return self.place + moved, self.tilt * s

    def point(self, t: Time, at: Array) -> Array:
        """Where a point of the plate is, given where it is at rest."""
        centre, angle = self(t)
        x, y, z = at - self.place
        c, s = jnp.cos(angle), jnp.sin(angle)
        return centre + jnp.stack([c * x + s * z, y, c * z - s * x])


@final
class Leg(AbstractJoint):
    """A leg between a point of the ground and one of the plate, as long as the plate's motion asks for: one row [m]."""

    name: str = eqx.field(static=True)
    parent_point: Array
    point: Array
    pose: Pose
    parent: str = eqx.field(static=True, default=GROUND)
    child: str = eqx.field(static=True, default="plate")
    turns: ClassVar[bool] = False

    def length(self, t: Time) -> Array:
        """What it is to be [m]."""
        d = self.pose.point(t, self.point) - self.parent_point
        return jnp.sqrt(jnp.sum(d**2))

    def rows(self, t: Time, *placements: Any) -> Array:
        d = placements[1].point(self.point) - self.parent_point
        return (jnp.sqrt(jnp.sum(d**2)) - self.length(t))[None]


def stewart(
    *,
    base_radius: Scalar = 1.0,
    radius: Scalar = 0.6,
    height: Scalar = 1.2,
    mass: Scalar = 50.0,
    heave: Scalar = 0.15,
    surge: Scalar = 0.2,
    tilt: Scalar = 0.3,
    rate: Scalar = 2.0,
    gravity: Scalar = 9.81,
) -> Problem:
    """A round plate on six massless legs that move it along a given path, z up: six rows, no freedom left.

    The multipliers are the forces that the legs must bear, positive where they push: inverse dynamics.

    **Arguments:**

    - `base_radius`, `radius`: of the legs' ends at the ground and at the plate [m].
    - `height`: of the plate at rest [m].
    - `mass`: of the plate, a thin disc [kg].
    - `heave`, `surge`: how far it goes up and down, at twice the rate, and along x [m].
    - `tilt`: about y [rad].
    - `rate`: angular frequency of the motion [rad/s].
    - `gravity`: along -z [m/s^2].

    **Returns:** the `Problem`; points: `plate`.

    **Raises:** `InputError`, naming the parameter that is wrong.
    """
    check_positive(base_radius=base_radius, radius=radius, height=height, mass=mass)
    check_finite(heave=heave, surge=surge, tilt=tilt, rate=rate, gravity=gravity)
    R, r, h, w = numbers(base_radius, radius, height, rate)
    check(abs(heave) < height, "heave must be less than the height.")
    ring = lambda radius, degrees, z: stack_parameters(
        (radius * math.cos(math.radians(degrees)), radius * math.sin(math.radians(degrees)), z)
    )
    pose = Pose(stack_parameters((0.0 * h, 0.0 * h, h)), heave, surge, tilt, rate)
    ends = [(ring(R, below, 0.0 * R), ring(r, above, h)) for below, above in zip(_BELOW, _ABOVE, strict=True)]
    legs = [
        Leg(name=f"leg {k}", parent_point=below, point=above, pose=pose)
        for k, (below, above) in enumerate(ends, 1)
    ]
    m = numbers(mass)[0]
    across = 0.25 * m * r**2
    corners = {f"end {k}": above for k, (_, above) in enumerate(ends, 1)}
    plate = Body("plate", mass, pose.place, stack_parameters((across, across, 2.0 * across)), corners)
    system = assemble([plate], legs, [Gravity(stack_parameters((0.0, 0.0, -gravity)))])
    v0 = stack_parameters((surge * w, 0.0 * w, 2 * heave * w, 0.0 * w, tilt * w, 0.0 * w))
    points = NamedPoints(system, (("plate", "plate"),))
    return Problem(system, system.q0, v0, 0.0, 2.0 * math.pi, points, citation=_CITATION, name="stewart")
