"""The bicycle of the benchmark: a rider who does nothing, and two wheels that roll without slipping."""

import math
from typing import Any

from jaxtyping import Array

from .._misc._types import module_for
from .._system._problem import Problem
from ..mechanisms import GROUND, Body, Free, Gravity, Revolute, Rolling, tree
from ._named_points import NamedPoints
from ._parameters import Scalar, check, check_finite, check_positive, numbers, stack_parameters

_CITATION = (
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
    return Problem(system, system.q0, v0, 0.0, 5.0, points, citation=_CITATION, name="bicycle")
