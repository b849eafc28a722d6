"""Watt's flyball governor with stiff springs and dampers in place of its lower rods."""

import math

from jaxtyping import Array

from .._misc._types import as_jax, module_for
from .._system._problem import Problem
from ..mechanisms import (
    GROUND,
    AbstractBody,
    AbstractJoint,
    AbstractLoad,
    Body,
    Gravity,
    Prismatic,
    Revolute,
    SpringDamper,
    assemble,
    box,
    tree,
)
from ._parameters import (
    NamedPoints,
    Scalar,
    check_choice,
    check_finite,
    check_positive,
    numbers,
    stack_parameters,
)

_CITATION = (
    "M. Gonzalez, D. Dopico, U. Lugris and J. Cuadrado, A benchmarking system for MBS simulation software, "
    "Multibody System Dynamics 16, 2006; IFToMM library of computational benchmark problems: stiff flyball governor."
)
_UP = (0.0, 0.0, 1.0)


def _rod_with_ball(
    name: str, hinge: Array, along: Array, length: Array, width: Array, masses: tuple[Array, Array]
) -> Body:
    """A square rod from the hinge along a unit vector, with a point mass at its end: one body."""
    m, ball = masses
    centre = (0.5 * m + ball) / (m + ball) * length
    across = (
        m * (length**2 + width**2) / 12.0 + m * (0.5 * length - centre) ** 2 + ball * (length - centre) ** 2
    )
    xp = module_for(along)
    axial = xp.outer(along, along)
    inertia = m * width**2 / 6.0 * axial + across * (xp.eye(3, dtype=axial.dtype) - axial)
    points = {"hinge": hinge, "end": hinge + length * along}
    return Body(name, m + ball, hinge + centre * along, inertia, points)


def _parts(
    length: Array,
    width: Array,
    size: Array,
    density: Array,
    ball: Array,
    angle: Array,
    height: Array,
    spring: tuple,
) -> tuple[list[AbstractBody], list[AbstractJoint], list[AbstractLoad]]:
    """Bodies, joints and springs at the start."""
    xp = module_for(length, width, size, density, ball, angle, height)
    o, mass = xp.zeros_like(length), density * length * width**2
    at = lambda x, z: xp.stack([x, o, z])
    cube = xp.stack([size, size, size])
    bodies: list[AbstractBody] = [
        box("shaft", at(o, 0.5 * length), xp.stack([width, width, length]), mass),
        box("slider", at(o, height), cube, density * size**3),
    ]
    joints: list[AbstractJoint] = [
        Revolute("spin", GROUND, "shaft", at(o, o), _UP),
        Prismatic("slide", "shaft", "slider", at(o, height), _UP),
    ]
    springs: list[AbstractLoad] = []
    for i, side in ((1, 1.0), (2, -1.0)):
        hinge, along = at(0.5 * side * size, length), at(side * xp.cos(angle), -xp.sin(angle))
        bodies.append(_rod_with_ball(f"rod {i}", hinge, along, length, width, (mass, ball)))
        joints.append(Revolute(f"hinge {i}", "shaft", f"rod {i}", hinge, (0.0, 1.0, 0.0)))
        ends = at(0.5 * side * size, height), hinge + 0.5 * length * along
        springs.append(SpringDamper(f"spring {i}", "slider", f"rod {i}", *ends, *spring))
    return bodies, joints, springs


def _turning(bodies: list[AbstractBody], rate: Scalar) -> Array:
    """Velocities of all bodies as one that turns about the z axis."""
    omega = numbers(rate)[0]
    xp = module_for(omega, [body.centre for body in bodies])
    o = xp.zeros_like(omega)
    places = [xp.asarray(body.centre) for body in bodies]
    return as_jax(xp.concatenate([xp.stack([-omega * p[1], omega * p[0], o, o, o, omega]) for p in places]))


def flyball_governor(
    *,
    coordinates: str = "joints",
    length: Scalar = 1.0,
    width: Scalar = 0.01,
    size: Scalar = 0.1,
    density: Scalar = 3000.0,
    ball: Scalar = 5.0,
    stiffness: Scalar = 8e5,
    damping: Scalar = 4e4,
    rest: Scalar = 0.5,
    gravity: Scalar = 9.81,
    angle: Scalar = math.pi / 6.0,
    slider: Scalar = 0.5,
    rate: Scalar = 2.0 * math.pi,
) -> Problem:
    """A spinning shaft, z up, two rods with balls hinged at its top, and a slider held by stiff spring-dampers.

    They join the slider to the middles of the rods and settle about ten thousand times faster than the slider moves:
    use an implicit solver. Four degrees of freedom.

    **Arguments:**

    - `coordinates`: `"joints"`: spin, slide and two angles, no rows; or `"absolute"`, 28 coordinates, 24 velocities
      and 20 rows.
    - `length`: of the shaft and of each rod [m].
    - `width`: of their square sections [m].
    - `size`: edge of the slider, a cube; the rods are hinged half of it beside the axis [m].
    - `density`: of shaft, rods and slider [kg/m^3].
    - `ball`: point mass at the end of each rod [kg].
    - `stiffness`, `damping`, `rest`: of the springs [N/m], [N s/m], and their unstretched length [m].
    - `gravity`: along -z [m/s^2].
    - `angle`: of the rods below the horizontal at the start [rad].
    - `slider`: height of the slider at the start [m].
    - `rate`: angular velocity at the start [rad/s].

    **Returns:** the `Problem`; points: `slider`, `ball1`, `ball2`.

    **Raises:** `InputError`, naming the parameter that is wrong.
    """
    check_choice(("joints", "absolute"), coordinates=coordinates)
    check_positive(length=length, width=width, size=size, density=density, ball=ball)
    check_finite(stiffness=stiffness, damping=damping, rest=rest, gravity=gravity)
    check_finite(angle=angle, slider=slider, rate=rate)
    given = numbers(length, width, size, density, ball, angle, slider)
    bodies, joints, springs = _parts(*given, spring=(stiffness, damping, rest))
    down = stack_parameters((0.0, 0.0, -gravity))
    system = (assemble if coordinates == "absolute" else tree)(bodies, joints, [Gravity(down), *springs])
    v0 = _turning(bodies, rate) if coordinates == "absolute" else stack_parameters((rate, 0.0, 0.0, 0.0))
    points = NamedPoints(system, (("slider", "slider"), ("ball1", "rod 1.end"), ("ball2", "rod 2.end")))
    return Problem(system, system.q0, v0, 0.0, 10.0, points, citation=_CITATION, name="flyball_governor")
