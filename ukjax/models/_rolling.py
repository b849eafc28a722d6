"""What rolls without slipping: a bicycle, a rattleback, and a ball on a turntable."""

import math
from typing import Any, ClassVar, final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from .._misc._types import Time, module_for
from .._system._problem import Problem
from ..mechanisms import (
    GROUND,
    AbstractJoint,
    Body,
    Drive,
    Free,
    Gravity,
    Revolute,
    Rolling,
    assemble,
    ball,
    disk,
    tree,
)
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

_BICYCLE = (
    "J. P. Meijaard, J. M. Papadopoulos, A. Ruina and A. L. Schwab, Linearized dynamics equations for the balance and "
    "steer of a bicycle: a benchmark and review, Proceedings of the Royal Society A 463, 2007, Table 1."
)
_UP, _LEFT = (0.0, 0.0, 1.0), (0.0, 1.0, 0.0)


def _inertia(xx: float, xz: float, yy: float, zz: float, like: Array) -> Array:
    return module_for(like).asarray([[xx, 0.0, xz], [0.0, yy, 0.0], [xz, 0.0, zz]], like.dtype)


def _rim(hub: Any, radius: Any) -> dict[str, Any]:
    """Points of a wheel, to draw it, and its hub, so that one sees it turn."""
    at = (2 * math.pi * k / 16 for k in range(16))
    rim = {
        f"rim {k:02}": hub + radius * stack_parameters((math.sin(x), 0.0, math.cos(x)))
        for k, x in enumerate(at)
    }
    return rim | {"hub": hub}


def bicycle(
    *,
    speed: Scalar = 5.0,
    roll_rate: Scalar = 0.0,
    wheelbase: Scalar = 1.02,
    trail: Scalar = 0.08,
    tilt: Scalar = math.pi / 10,
    rear_radius: Scalar = 0.3,
    front_radius: Scalar = 0.35,
    gravity: Scalar = 9.81,
) -> Problem:
    """A bicycle on a plane, x forward, z up: a frame with its rider, a fork and two thin wheels, upright and straight.

    Nine velocities, six rows, three freedoms: it goes on, leans and steers. Upright it is stable between 4.292 and
    6.024 m/s. Masses and inertias are the benchmark's; from these its eigenvalues follow by `analysis.linearize`.

    **Arguments:**

    - `speed`: forward at the start [m/s].
    - `roll_rate`: at which frame, fork and wheels start to lean to the right [rad/s].
    - `wheelbase`: between the points of contact [m].
    - `trail`: from the front contact to where the steer axis meets the ground [m].
    - `tilt`: of the steer axis, backwards from the vertical [rad].
    - `rear_radius`, `front_radius`: of the wheels [m].
    - `gravity`: along -z [m/s^2].

    **Returns:** the `Problem`; points: `frame`, `front`, `rear`, the centres of mass of the frame and of the wheels.

    **Raises:** `InputError`, naming the parameter that is wrong.
    """
    check_positive(wheelbase=wheelbase, rear_radius=rear_radius, front_radius=front_radius)
    check_finite(speed=speed, roll_rate=roll_rate, trail=trail, gravity=gravity, tilt=tilt)
    w, c, lean, R, r = numbers(wheelbase, trail, tilt, rear_radius, front_radius)
    xp = module_for(w, c, lean, R, r)
    o = xp.zeros_like(w)
    check(xp.cos(lean) > 0.1, "tilt must be less than a right angle by some degrees.")
    at = lambda x, z: xp.stack([x, o, z])
    rear, front = at(o, R), at(w, r)
    bodies = [
        Body("frame", 85.0, (0.3, 0.0, 0.9), _inertia(9.2, -2.4, 11.0, 2.8, w)),
        Body("rear wheel", 2.0, rear, (0.0603, 0.12, 0.0603), _rim(rear, R)),
        Body("fork", 4.0, (0.9, 0.0, 0.7), _inertia(0.05892, 0.00756, 0.06, 0.00708, w)),
        Body("front wheel", 3.0, front, (0.1405, 0.28, 0.1405), _rim(front, r)),
    ]
    joints = [
        Free("seat", GROUND, "frame", rear),
        Revolute("rear hub", "frame", "rear wheel", rear, _LEFT),
        Revolute("steer", "frame", "fork", at(w + c, o), at(-xp.sin(lean), xp.cos(lean))),
        Revolute("front hub", "fork", "front wheel", front, _LEFT),
    ]
    tyres = [
        Rolling("rear tyre", GROUND, "rear wheel", at(o, o), rear, _LEFT, _UP),
        Rolling("front tyre", GROUND, "front wheel", at(w, o), front, _LEFT, _UP),
    ]
    system = tree(bodies, joints, [Gravity(stack_parameters((0.0, 0.0, -gravity)))], loops=tyres)
    # The whole leans about the line through both points of contact, so the rear hub moves sideways.
    v0 = stack_parameters((speed, -roll_rate * R, 0.0, roll_rate, 0.0, 0.0, speed / R, 0.0, speed / r))
    points = NamedPoints(system, (("frame", "frame"), ("rear", "rear wheel"), ("front", "front wheel")))
    return Problem(system, system.q0, v0, 0.0, 5.0, points, citation=_BICYCLE, name="bicycle")


_RATTLEBACK = (
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
    return Problem(system, system.q0, v0, 0.0, 12.0, points, citation=_RATTLEBACK, name="rattleback")


_TURNTABLE = (
    "J. A. Burns, Ball rolling on a turntable: analog for charged particle dynamics, American Journal of Physics 49, "
    "1981, pp. 56-58."
)


@final
class Turning(eqx.Module):
    """An angle [rad] that grows at a constant rate [rad/s]."""

    rate: Array = eqx.field(converter=as_parameter)

    def __call__(self, t: Time) -> Array:
        return self.rate * t


def turntable_ball(
    *,
    rate: Scalar = 3.0,
    place: Scalar = 0.3,
    speed: Scalar = 0.2,
    radius: Scalar = 0.05,
    mass: Scalar = 1.0,
    gravity: Scalar = 9.81,
) -> Problem:
    """A uniform ball on a driven turntable, z up: 14 coordinates of two bodies, one row that touches and two that roll.

    Its centre moves by v' = 2/7 Omega x v: round a circle, at 2/7 of the table's rate.

    **Arguments:**

    - `rate`: of the turntable [rad/s], not zero.
    - `place`: of the ball at the start, along x [m].
    - `speed`: of the ball at the start against the ground, along y [m/s].
    - `radius`, `mass`: of the ball [m], [kg].
    - `gravity`: along -z [m/s^2].

    **Returns:** the `Problem`; points: `ball`.

    **Raises:** `InputError`, naming the parameter that is wrong.
    """
    check_positive(radius=radius, mass=mass)
    check_finite(rate=rate, place=place, speed=speed, gravity=gravity)
    w, x, u, r = numbers(rate, place, speed, radius)
    xp = module_for(w, x, u, r)
    o = xp.zeros_like(w)
    at = lambda z: xp.stack([x, o, z])
    bodies = [disk("table", xp.stack([o, o, o]), 1.0, 5.0), ball("ball", at(r), r, mass)]
    spindle = Revolute("spindle", GROUND, "table", xp.stack([o, o, o]), (0.0, 0.0, 1.0))
    joints = [
        spindle,
        Drive("motor", spindle, Turning(rate)),
        Rolling("rolling", "table", "ball", at(o), at(r)),
    ]
    system = assemble(bodies, joints, [Gravity(stack_parameters((0.0, 0.0, -gravity)))])
    # Where it touches the table it moves as that does, (0, w x); its centre at (0, u).
    v0 = stack_parameters((o, o, o, o, o, w, o, u, o, (w * x - u) / r, o, o))
    points = NamedPoints(system, (("ball", "ball"),))
    return Problem(system, system.q0, v0, 0.0, 10.0, points, citation=_TURNTABLE, name="turntable_ball")
