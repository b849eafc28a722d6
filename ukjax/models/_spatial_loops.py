"""Closed chains in space: Bennett's and Bricard's linkages, which by count cannot move and do, and a slider-crank."""

import math
from typing import Any

import numpy as np
from jaxtyping import Array

from .._misc._types import as_jax, module_for
from .._system._problem import Problem
from ..mechanisms import GROUND, Body, Gravity, Prismatic, Revolute, Spherical, Universal, assemble, rod, tree
from ._parameters import (
    NamedPoints,
    Scalar,
    check,
    check_choice,
    check_finite,
    check_not_negative,
    check_positive,
    numbers,
    stack_parameters,
)

_BENNETT = "G. T. Bennett, A new mechanism, Engineering 76, 1903, pp. 777-778."


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
    return Problem(system, system.q0, v0, 0.0, 10.0, points, citation=_BENNETT, name="bennett")


_BRICARD = (
    "R. Bricard, Lecons de cinematique, 1927; M. Gonzalez, D. Dopico, U. Lugris and J. Cuadrado, A benchmarking "
    "system for MBS simulation software, Multibody System Dynamics 16, 2006 (IFToMM library: Bricard's mechanism)."
)
_CORNERS = ((0, 0, 0), (1, 0, 0), (1, -1, 0), (1, -1, 1), (0, -1, 1), (0, 0, 1))
_AXES = ((0, 1, 0), (0, 0, 1), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 0, 0))


def bricard(
    *,
    coordinates: str = "joints",
    length: Scalar = 1.0,
    mass: Scalar = 1.0,
    radius: Scalar = 0.0,
    gravity: Scalar = 9.81,
) -> Problem:
    """Five rods along edges of a cube, the ground and six hinges: no degree of freedom by count, one in truth.

    Its rows are one short of full rank throughout: 5 rows of rank 4 on the angles of five hinges, or 30 rows of rank 29
    in absolute coordinates.

    **Arguments:**

    - `coordinates`: `"joints"`, the angles of the first five hinges, with the sixth as a loop; or `"absolute"`, where
      rods without a radius have a singular mass matrix: simulate with `RangeForm`.
    - `length`: of each rod [m].
    - `mass`: of each rod, uniform [kg].
    - `radius`: of each rod, for its inertia; slender at zero [m].
    - `gravity`: along -y [m/s^2].

    **Returns:** the `Problem`, at rest; points: the hinges that move, `P2` to `P5`; P3 starts at (1, -1, 0) length.

    **Raises:** `InputError`, naming the parameter that is wrong.
    """
    check_choice(("joints", "absolute"), coordinates=coordinates)
    check_positive(length=length, mass=mass)
    check_not_negative(radius=radius)
    check_finite(gravity=gravity)
    edge = numbers(length)[0]
    corners = edge * np.asarray(_CORNERS, edge.dtype)
    names = [f"rod {i}" for i in range(1, 6)]
    rods = [rod(name, corners[i], corners[i + 1], mass, radius) for i, name in enumerate(names)]
    chain = [GROUND, *names, GROUND]
    hinges = [
        Revolute(f"hinge {i + 1}", chain[i], chain[i + 1], corner, _AXES[i])
        for i, corner in enumerate(corners)
    ]
    loads = [Gravity(stack_parameters((0.0, -gravity, 0.0)))]
    in_joints = coordinates == "joints"
    system = tree(rods, hinges[:5], loads, loops=hinges[5:]) if in_joints else assemble(rods, hinges, loads)
    q0, v0 = system.q0, np.zeros(len(system.velocity_labels), edge.dtype)
    points = NamedPoints(system, tuple((f"P{i + 1}", f"rod {i}.end") for i in range(1, 5)))
    return Problem(system, q0, v0, 0.0, 12.0, points, citation=_BRICARD, name="bricard")


_SLIDER_CRANK = (
    "E. J. Haug, Computer-Aided Kinematics and Dynamics of Mechanical Systems, 1989, section 12.3; IFToMM library of "
    "computational benchmark problems: spatial rigid slider-crank mechanism."
)
_ALONG = (1.0, 0.0, 0.0)


def spatial_slider_crank(
    *,
    crank: Scalar = 0.08,
    rod: Scalar = 0.3,
    beside: Scalar = 0.1,
    above: Scalar = 0.12,
    rate: Scalar = 6.0,
    gravity: Scalar = 9.81,
) -> Problem:
    """A crank that turns about the x axis, a rod, and a slider along the x axis, z up: one degree of freedom.

    The crank's pin is a ball joint, which closes the loop, the slider's a universal joint with its first axis along z.
    Masses are 0.12, 0.5 and 2 kg; moments of inertia 1e-4, 1e-4, 1e-5 of the crank, 4e-3 across the rod and 4e-4 along
    it, and 1e-4 of the slider [kg m^2].

    **Arguments:**

    - `crank`, `rod`: their lengths [m].
    - `beside`, `above`: where the crank turns, along y and z [m].
    - `rate`: of the crank at the start, where it points upwards [rad/s].
    - `gravity`: along -z [m/s^2].

    **Returns:** the `Problem`; points: `slider`, `crank`.

    **Raises:** `InputError`, naming the parameter that is wrong; also where the rod is too short.
    """
    check_positive(crank=crank, rod=rod)
    check_finite(beside=beside, above=above, rate=rate, gravity=gravity)
    a, length, y, z, w = numbers(crank, rod, beside, above, rate)
    xp = module_for(a, length, y, z, w)
    o = xp.zeros_like(a)
    reach = length**2 - y**2 - (z + a) ** 2
    check(reach > 0, "rod must reach from the crank's pin to the x axis.")
    x = xp.sqrt(reach)
    pivot, pin, slider = xp.stack([o, y, z]), xp.stack([o, y, z + a]), xp.stack([x, o, o])
    d = (slider - pin) / length
    # About its length a tenth of what it is across.
    inertia = 4e-3 * xp.eye(3, dtype=d.dtype) - 3.6e-3 * xp.outer(d, d)
    across = xp.stack([-d[1], d[0], o])  # square to the rod and to z
    bodies = [
        Body("crank", 0.12, pivot, (1e-4, 1e-4, 1e-5), {"pin": pin}),
        Body("slider", 2.0, slider, (1e-4, 1e-4, 1e-4)),
        Body("rod", 0.5, 0.5 * (pin + slider), inertia, {"start": pin, "end": slider}, shape="rod"),
    ]
    joints = [
        Revolute("crank pivot", GROUND, "crank", pivot, _ALONG),
        Prismatic("guide", GROUND, "slider", slider, _ALONG),
        Universal("slider pin", "slider", "rod", slider, (0.0, 0.0, 1.0), across),
    ]
    ball = Spherical("crank pin", "crank", "rod", pin)
    # The pin moves along -y at first, and the slider along x at y / x of that; the rod turns with both.
    slide = w * a * y / x
    turning = xp.cross(d, xp.stack([slide, w * a, o])) / length
    about = xp.linalg.solve(xp.stack([xp.stack([o, o, o + 1]), across, d], axis=1), turning)
    system = tree(bodies, joints, [Gravity(stack_parameters((0.0, 0.0, -gravity)))], loops=[ball])
    v0 = xp.stack([w, slide, about[0], about[1]])
    points = NamedPoints(system, (("slider", "slider"), ("crank", "crank.pin")))
    return Problem(
        system, system.q0, as_jax(v0), 0.0, 5.0, points, citation=_SLIDER_CRANK, name="spatial_slider_crank"
    )
