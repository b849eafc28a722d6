"""A ball that rolls on a turntable, and goes round in circles at two sevenths of its rate."""

from typing import final

import equinox as eqx
from jaxtyping import Array

from .._misc._types import Time, module_for
from .._system._problem import Problem
from ..mechanisms import GROUND, Drive, Gravity, Revolute, Rolling, assemble, ball, disk
from ._named_points import NamedPoints
from ._parameters import Scalar, as_parameter, check_finite, check_positive, numbers, stack_parameters

_CITATION = (
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
    return Problem(system, system.q0, v0, 0.0, 10.0, points, citation=_CITATION, name="turntable_ball")
