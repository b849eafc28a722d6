"""The rattleback: half an ellipsoid that turns one way, rattles, and turns back."""

import math
from typing import Any, ClassVar, final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from .._misc._types import Time, module_for
from .._system._problem import Problem
from ..mechanisms import GROUND, AbstractJoint, Body, Gravity, assemble
from ._named_points import NamedPoints
from ._parameters import Scalar, check_finite, check_positive, numbers, stack_parameters

_CITATION = (
    "T. R. Kane and D. A. Levinson, Realistic mathematical modeling of the rattleback, International Journal of "
    "Non-Linear Mechanics 17, 1982."
)


@final
class EllipsoidOnPlane(AbstractJoint):
    """An ellipsoid that rolls without slipping on the plane z = 0 of the ground.

    With n the plane's normal in axes of the body and E^2 the diagonal of the squared semi-axes, it touches at
    r = -E^2 n / sqrt(n . E^2 n) from its middle: one row of height, sqrt(n . E^2 n), and two of slip.
    """

    semi_axes: Array  # along the body's axes in the reference posture [m] (3,)
    point: Array  # the ellipsoid's middle in the reference posture [m] (3,)
    name: str = eqx.field(static=True, default="contact")
    parent: str = eqx.field(static=True, default=GROUND)
    child: str = eqx.field(static=True, default="stone")
    turns: ClassVar[bool] = True

    @property
    def nonholonomic(self) -> bool:
        return True

    def _touching(self, child: Any) -> tuple[Array, Array]:
        """The height of the middle above the plane, and the point of contact."""
        n = child.back(jnp.asarray([0.0, 0.0, 1.0], self.point.dtype))
        reach = jnp.sqrt(jnp.sum((self.semi_axes * n) ** 2))
        return reach, child.point(self.point) - child.vector(self.semi_axes**2 * n) / reach

    def rows(self, t: Time, *placements: Any) -> Array:
        reach, _ = self._touching(placements[1])
        return (placements[1].point(self.point)[2] - reach)[None]

    def slip(self, t: Time, placements: tuple[Any, ...], twists: tuple[Any, ...]) -> Array:
        contact = self._touching(placements[1])[1]
        return (jnp.cross(twists[1].omega, contact - placements[1].p) + twists[1].velocity)[:2]


def rattleback(
    *,
    a: Scalar = 0.2,
    b: Scalar = 0.03,
    c: Scalar = 0.02,
    depth: Scalar = 0.01,
    mass: Scalar = 1.0,
    inertia_x: Scalar = 2e-4,
    inertia_y: Scalar = 1.6e-3,
    inertia_z: Scalar = 1.7e-3,
    inertia_xy: Scalar = -2e-5,
    spin: Scalar = -5.0,
    tip: Scalar = 0.2,
    gravity: Scalar = 9.81,
) -> Problem:
    """An ellipsoid whose axes of inertia are turned against its own, rolling on a plane, z up.

    Six velocities and three rows. Spun the wrong way it starts to rattle, stops and turns back.

    **Arguments:**

    - `a`, `b`, `c`: semi-axes along x, y and z [m].
    - `depth`: of the centre of mass below the ellipsoid's middle [m].
    - `mass`: [kg].
    - `inertia_x`, `inertia_y`, `inertia_z`: moments about the centre of mass [kg m^2].
    - `inertia_xy`: the entry xy of the tensor of inertia, which turns its axes [kg m^2].
    - `spin`: about z at the start [rad/s].
    - `tip`: rate about x at the start, the disturbance [rad/s].
    - `gravity`: along -z [m/s^2].

    **Returns:** the `Problem`; points: `stone`, the centre of mass.

    **Raises:** `InputError`, naming the parameter that is wrong.
    """
    check_positive(a=a, b=b, c=c, mass=mass, inertia_x=inertia_x, inertia_y=inertia_y, inertia_z=inertia_z)
    check_finite(depth=depth, inertia_xy=inertia_xy, spin=spin, tip=tip, gravity=gravity)
    c_, h, x, y, z, xy, w, u = numbers(c, depth, inertia_x, inertia_y, inertia_z, inertia_xy, spin, tip)
    xp = module_for(c_, h, x, y, z, xy, w, u)
    o = xp.zeros_like(c_)
    inertia = xp.stack([xp.stack([x, xy, o]), xp.stack([xy, y, o]), xp.stack([o, o, z])])
    edge = (2 * math.pi * k / 24 for k in range(24))  # of the half ellipsoid: where it is drawn
    rim = {
        f"edge {k:02}": stack_parameters((a * math.cos(x), b * math.sin(x), c_)) for k, x in enumerate(edge)
    }
    stone = Body("stone", mass, xp.stack([o, o, c_ - h]), inertia, rim)
    contact = EllipsoidOnPlane(semi_axes=stack_parameters((a, b, c)), point=stack_parameters((o, o, c_)))
    system = assemble([stone], [contact], [Gravity(stack_parameters((0.0, 0.0, -gravity)))])
    v0 = stack_parameters((o, -u * (c_ - h), o, u, o, w))
    points = NamedPoints(system, (("stone", "stone"),))
    return Problem(system, system.q0, v0, 0.0, 12.0, points, citation=_CITATION, name="rattleback")
