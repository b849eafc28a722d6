"""Bricard's linkage: six hinges that by count cannot move, and do."""

import numpy as np

from .._system._problem import Problem
from ..mechanisms import GROUND, Gravity, Revolute, assemble, rod, tree
from ._named_points import NamedPoints
from ._parameters import (
    Scalar,
    check_choice,
    check_finite,
    check_not_negative,
    check_positive,
    numbers,
    stack_parameters,
)

_CITATION = (
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
    return Problem(system, q0, v0, 0.0, 12.0, points, citation=_CITATION, name="bricard")
