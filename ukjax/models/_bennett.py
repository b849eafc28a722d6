"""Bennett's linkage: four hinges whose axes do not meet, and which turn nonetheless."""

import math
from typing import Any

from jaxtyping import Array

from .._misc._types import module_for
from .._system._problem import Problem
from ..mechanisms import GROUND, Gravity, Revolute, rod, tree
from ._named_points import NamedPoints
from ._parameters import Scalar, check, check_finite, check_positive, numbers, stack_parameters

_CITATION = "G. T. Bennett, A new mechanism, Engineering 76, 1903, pp. 777-778."


def _chain(lengths: tuple, twists: tuple, turns: tuple, xp: Any) -> tuple[list[Array], list[Array]]:
    """Where the hinges are, and their axes: each turns about its axis z, then a link goes on along x and twists z.

    The first hinge is in the origin with its axis along z; the ground's link lies along x on its other side.
    """
    o, one = xp.zeros_like(lengths[0]), xp.ones_like(lengths[0])
    place, x, z = xp.stack([o, o, o]), xp.stack([one, o, o]), xp.stack([o, o, one])
    places, axes = [place], [z]
    for length, twist, turn in zip(lengths, twists, turns, strict=True):
        x = xp.cos(turn) * x + xp.sin(turn) * xp.cross(z, x)
        z = xp.cos(twist) * z + xp.sin(twist) * xp.cross(x, z)
        place = place + length * x
        places.append(place)
        axes.append(z)
    return places, axes


def bennett(
    *,
    a: Scalar = 1.0,
    b: Scalar = 1.5,
    alpha: Scalar = math.pi / 6,
    angle: Scalar = 1.0,
    mass: Scalar = 1.0,
    radius: Scalar = 0.02,
    rate: Scalar = 1.0,
    gravity: Scalar = 9.81,
) -> Problem:
    """Three rods, the ground and four hinges in space: -2 freedoms by count, one in truth.

    Opposite links are equal, and sin(alpha) / a = sin(beta) / b for their twists, the angles between the axes at their
    ends. Three angles as coordinates, 5 rows of rank 2; tan(theta / 2) tan(phi / 2) is constant for the angles of two
    hinges beside each other.

    **Arguments:**

    - `a`, `b`: lengths of the ground and of the links beside it [m].
    - `alpha`: twist of the ground [rad]; that of its neighbours is asin(b sin(alpha) / a).
    - `angle`: of the first hinge at the start, zero where the linkage is stretched out [rad].
    - `mass`: of each rod, uniform [kg].
    - `radius`: of each rod, for its inertia [m].
    - `rate`: of the first hinge at the start [rad/s].
    - `gravity`: along -z, the direction of the first hinge's axis [m/s^2].

    **Returns:** the `Problem`; points: `P2`, `P3`, the hinges that move.

    **Raises:** `InputError`, naming the parameter that is wrong.
    """
    check_positive(a=a, b=b, mass=mass, radius=radius)
    check_finite(alpha=alpha, angle=angle, rate=rate, gravity=gravity)
    a, b, twist, theta, w = numbers(a, b, alpha, angle, rate)
    xp = module_for(a, b, twist, theta, w)
    sine = b * xp.sin(twist) / a
    check(abs(sine) < 1, "b sin(alpha) / a, the sine of the other twist, must be less than 1.")
    other = xp.arcsin(sine)
    # tan(theta / 2) tan(phi / 2) = S / D, where the second hinge is at -phi
    S, D, tangent = xp.sin(0.5 * (other + twist)), xp.sin(0.5 * (other - twist)), xp.tan(0.5 * theta)
    phi = 2 * xp.arctan2(S, D * tangent)
    turning = S * D * (1 + tangent**2) * w / (S**2 + (D * tangent) ** 2)  # of the second hinge, -phi'
    places, axes = _chain((b, a, b), (other, twist, other), (theta, -phi, -theta), xp)
    names = ["rod 1", "rod 2", "rod 3"]
    rods = [rod(name, places[i], places[i + 1], mass, radius) for i, name in enumerate(names)]
    chain = [GROUND, *names, GROUND]
    hinges = [Revolute(f"hinge {i + 1}", chain[i], chain[i + 1], places[i], axes[i]) for i in range(4)]
    system = tree(rods, hinges[:3], [Gravity(stack_parameters((0.0, 0.0, -gravity)))], loops=hinges[3:])
    points = NamedPoints(system, (("P2", "rod 1.end"), ("P3", "rod 2.end")))
    v0 = stack_parameters((w, turning, -w))
    return Problem(system, system.q0, v0, 0.0, 10.0, points, citation=_CITATION, name="bennett")
