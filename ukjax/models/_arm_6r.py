"""A robot arm of six hinges whose tool follows a path in position and orientation: six rows on six joints."""

from typing import ClassVar, final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._misc._lie import rotation_about
from .._misc._types import Time
from .._system._problem import Problem
from ..mechanisms import GROUND, AbstractJoint, Gravity, Placement, Revolute, problem, rod, tree
from ..mechanisms._joint_rows import same_direction, same_point
from ..mechanisms._placement import AnyPlacement
from ._parameters import Scalar, as_parameter, check_finite, check_positive, numbers, stack_parameters

_CITATION = (
    "The layout of the PUMA 560 (three hinges, then a wrist whose axes meet) as in R. M. Murray, Z. Li and S. S. Sastry, "
    "A mathematical introduction to robotic manipulation, 1994, chapter 2; lengths, masses and path are our own."
)


@final
class ToolPath(AbstractJoint):
    """The tool is welded to a frame that moves: p = p_d(t), 3 rows [m], and R = R_d(t), 3 rows, with s = frequency t in

    p_d = point + radius (cos(s) - 1, sin(s), sin^2(s)),    R_d = Rz(turn sin(s)) Rx(tilt sin(s)).
    """

    name: str = eqx.field(static=True)
    parent: str = eqx.field(static=True)
    child: str = eqx.field(static=True)
    point: Float[Array, "3"]
    radius: Array
    frequency: Array
    tilt: Array
    turn: Array
    turns: ClassVar[bool] = True

    def position(self, t: Time) -> Float[Array, "3"]:
        """p_d(t) [m]."""
        s = self.frequency * t
        return self.point + self.radius * jnp.stack([jnp.cos(s) - 1.0, jnp.sin(s), jnp.sin(s) ** 2])

    def rotation(self, t: Time) -> Float[Array, "3 3"]:
        """R_d(t)."""
        x, _, z = jnp.eye(3, dtype=self.point.dtype)
        swing = jnp.sin(self.frequency * t)
        return rotation_about(z, self.turn * swing) @ rotation_about(x, self.tilt * swing)

    def rows(self, t: Time, *placements: AnyPlacement) -> Array:
        wanted, tool = Placement(self.rotation(t), self.position(t), self.point), placements[1]
        return jnp.concatenate([same_point(self.point, wanted, tool), same_direction(wanted, tool)])


def arm_6r(
    *,
    height: Scalar = 0.66,
    shoulder: Scalar = 0.15,
    upper: Scalar = 0.43,
    fore: Scalar = 0.43,
    tool: Scalar = 0.16,
    m1: Scalar = 13.0,
    m2: Scalar = 17.0,
    m3: Scalar = 5.0,
    m4: Scalar = 1.2,
    m5: Scalar = 0.6,
    m6: Scalar = 1.0,
    gravity: Scalar = 9.81,
    radius: Scalar = 0.12,
    frequency: Scalar = 3.0,
    tilt: Scalar = 0.4,
    turn: Scalar = 0.8,
) -> Problem:
    """A six-axis arm, z up, built from blocks: a tree by product of exponentials whose tool follows a closed path.

    In its reference posture, q = 0, the upper arm stands, the forearm lies along x, and the tool hangs down. The hinges
    turn about z, y, y; then x, y, z through the wrist's centre. The constraint force is the torque of the six motors.
    n = m = 6, so q(t) is algebraic: inverse kinematics.

    **Arguments:**

    - `height`: of the shoulder [m].
    - `shoulder`: how far the upper arm lies beside the first axis [m].
    - `upper`, `fore`: lengths of the upper arm and, to the wrist, of the forearm [m].
    - `tool`: from the wrist to the tool's tip [m].
    - `m1` to `m6`: `m1`, `m2`, `m3`, `m4`, `m5`, `m6`, masses of the links, cylinders along the arm [kg].
    - `gravity`: along -z [m/s^2].
    - `radius`: of the path [m].
    - `frequency`: of the path [rad/s].
    - `tilt`, `turn`: amplitudes of the tool's rotation about x and the vertical [rad].

    **Returns:** the `Problem`; points: centres of the links by name, and their ends, as `tool.end`.

    **Raises:** `InputError`, naming the parameter that is wrong.
    """
    check_positive(height=height, shoulder=shoulder, upper=upper, fore=fore, tool=tool)
    check_positive(m1=m1, m2=m2, m3=m3, m4=m4, m5=m5, m6=m6)
    check_finite(gravity=gravity, radius=radius, frequency=frequency, tilt=tilt, turn=turn)
    h, s, u, f, d = numbers(height, shoulder, upper, fore, tool)
    at = lambda *place: stack_parameters(place)
    foot, at_shoulder, at_elbow = at(0.0, 0.0, 0.0), at(0.0, s, h), at(0.0, s, h + u)
    middle, at_wrist = at(0.7 * f, s, h + u), at(f, s, h + u)
    flange, tip = at(f, s, h + u - 0.4 * d), at(f, s, h + u - d)
    links = [
        rod("turret", foot, at(0.0, 0.0, h), m1, radius=0.09),
        rod("upper arm", at_shoulder, at_elbow, m2, radius=0.07),
        rod("forearm", at_elbow, middle, m3, radius=0.05),
        rod("wrist", middle, at_wrist, m4, radius=0.04),
        rod("hand", at_wrist, flange, m5, radius=0.03),
        rod("tool", flange, tip, m6, radius=0.03),
    ]
    x, y, z = np.eye(3)
    hinges = [
        Revolute("waist", GROUND, "turret", foot, z),
        Revolute("shoulder", "turret", "upper arm", at_shoulder, y),
        Revolute("elbow", "upper arm", "forearm", at_elbow, y),
        Revolute("roll", "forearm", "wrist", middle, x),
        Revolute("pitch", "wrist", "hand", at_wrist, y),
        Revolute("spin", "hand", "tool", flange, z),
    ]
    motion = [as_parameter(value) for value in (radius, frequency, tilt, turn)]
    path = ToolPath("tool path", GROUND, "tool", tip, *motion)
    system = tree(links, hinges, [Gravity(stack_parameters((0.0, 0.0, -gravity)))], loops=[path])
    # At the start the wrist's centre moves along y, and the tool turns about x and z.
    across, tilting, turning = (radius - tilt * tool) * frequency, tilt * frequency, turn * frequency
    waist = across / fore
    lift = waist * shoulder / upper
    v0 = stack_parameters((waist, lift, -lift, tilting, 0.0, turning - waist))
    return problem(system, v0=v0, t1=5.0, name="arm_6r", citation=_CITATION)
