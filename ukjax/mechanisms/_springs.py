"""Loads between bodies: springs, dampers and actuators."""

from collections.abc import Callable, Mapping
from typing import Any, final

import equinox as eqx
from jaxtyping import Array, Float

from .._misc._errors import InputError
from .._misc._types import Time
from ._abstract_joint import AbstractAxisJoint, require_axis_joint
from ._bodies import AbstractBody, check_array, check_name
from ._laws import check_law, value_of
from ._loads import AbstractLoad, Placements, Twists, parts_of
from ._placement import AnyPlacement, norm, rate_of


@final
class SpringDamper(AbstractLoad):
    """A linear spring and damper between points of two bodies: tension k (l - l0) + c l' along their line.

    **Arguments:**

    - `name`: what reports call it.
    - `parent`, `child`: names of the bodies.
    - `parent_point`: in the reference posture [m] (2,) or (3,).
    - `point`: of the child, likewise [m].
    - `stiffness`: k [N/m].
    - `damping`: c [N s/m].
    - `length`: l0, unstretched [m]; by default that of the reference posture.
    """

    name: str = eqx.field(static=True)
    parent: str = eqx.field(static=True)
    child: str = eqx.field(static=True)
    parent_point: Array
    point: Array
    stiffness: Float[Array, ""]
    damping: Float[Array, ""]
    length: Float[Array, ""]

    def __init__(
        self,
        name: str,
        parent: str,
        child: str,
        parent_point: Any,
        point: Any,
        stiffness: Any = 0.0,
        damping: Any = 0.0,
        length: Any = None,
    ):
        self.name = check_name("load", name)
        self.parent, self.child = check_name("body", parent), check_name("body", child)
        self.point = check_array(f"the point of spring '{name}'", point, (2,), (3,))
        self.parent_point = check_array(
            f"the parent's point of spring '{name}'", parent_point, self.point.shape
        )
        self.stiffness = check_array(f"the stiffness of spring '{name}'", stiffness, ())
        self.damping = check_array(f"the damping of spring '{name}'", damping, ())
        length = norm(self.point - self.parent_point) if length is None else length
        self.length = check_array(f"the length of spring '{name}'", length, ())

    @property
    def bodies(self) -> tuple[str, ...]:
        return (self.parent, self.child)

    def _length(self, parent: AnyPlacement, child: AnyPlacement) -> Float[Array, ""]:
        return norm(child.point(self.point) - parent.point(self.parent_point))

    def rate(self, bodies: Mapping[str, AbstractBody], placements: Placements, twists: Twists) -> Array:
        return rate_of(self._length, parts_of(self, placements), parts_of(self, twists))

    def effort(
        self, bodies: Mapping[str, AbstractBody], t: Time, placements: Placements, twists: Twists
    ) -> Array:
        stretch = self._length(*parts_of(self, placements)) - self.length
        return -self.stiffness * stretch - self.damping * self.rate(bodies, placements, twists)

    def potential(self, bodies: Mapping[str, AbstractBody], placements: Placements) -> Float[Array, ""]:
        return 0.5 * self.stiffness * (self._length(*parts_of(self, placements)) - self.length) ** 2


@final
class TorsionalSpring(AbstractLoad):
    """A spring and damper on the position s of a joint: effort -k (s - s0) - c s'; an angle, or a slide.

    In space the angle of a hinge is known between -pi and pi.

    **Arguments:**

    - `name`: what reports call it.
    - `joint`: a `Revolute`, `Prismatic`, `Cylindrical` or `Screw` joint, or the name of one in the mechanism.
    - `stiffness`: k [N m/rad], or [N/m].
    - `damping`: c [N m s/rad], or [N s/m].
    - `rest`: s0, from the reference posture [rad], or [m].
    """

    name: str = eqx.field(static=True)
    joint: AbstractAxisJoint | str
    stiffness: Float[Array, ""]
    damping: Float[Array, ""]
    rest: Float[Array, ""]

    def __init__(
        self,
        name: str,
        joint: AbstractAxisJoint | str,
        stiffness: Any = 0.0,
        damping: Any = 0.0,
        rest: Any = 0.0,
    ):
        self.name = check_name("load", name)
        require_axis_joint(f"the joint of spring '{name}'", joint)
        self.joint = joint
        self.stiffness = check_array(f"the stiffness of spring '{name}'", stiffness, ())
        self.damping = check_array(f"the damping of spring '{name}'", damping, ())
        self.rest = check_array(f"the rest of spring '{name}'", rest, ())

    @property
    def bodies(self) -> tuple[str, ...]:
        return joint_of(self).bodies

    def rate(self, bodies: Mapping[str, AbstractBody], placements: Placements, twists: Twists) -> Array:
        return rate_of(joint_of(self).position, parts_of(self, placements), parts_of(self, twists))

    def effort(
        self, bodies: Mapping[str, AbstractBody], t: Time, placements: Placements, twists: Twists
    ) -> Array:
        turn = joint_of(self).position(*parts_of(self, placements)) - self.rest
        return -self.stiffness * turn - self.damping * self.rate(bodies, placements, twists)

    def potential(self, bodies: Mapping[str, AbstractBody], placements: Placements) -> Float[Array, ""]:
        turn = joint_of(self).position(*parts_of(self, placements)) - self.rest
        return 0.5 * self.stiffness * turn**2


def joint_of(load: Any) -> AbstractAxisJoint:
    """The joint a load or a drive works on."""
    if isinstance(load.joint, str):
        raise InputError(
            f"'{load.name}' refers to joint '{load.joint}' by name: assemble it into a mechanism first."
        )
    return load.joint


@final
class Actuator(AbstractLoad):
    """A motor on a joint: a torque about the axis of a hinge, a force along a slide. Also an input for servo control.

    **Arguments:**

    - `name`: what reports call it.
    - `joint`: a `Revolute`, `Prismatic`, `Cylindrical` or `Screw` joint, or the name of one in the mechanism.
    - `drive`: the effort, constant or a function of (t, s, s') with the joint's position and its rate [N m], [N]; zero
      where only servo control is to command it (`input_matrix`).
    """

    name: str = eqx.field(static=True)
    joint: AbstractAxisJoint | str
    drive: Array | Callable[[Time, Array, Array], Array]

    def __init__(self, name: str, joint: AbstractAxisJoint | str, drive: Any = 0.0):
        self.name = check_name("load", name)
        require_axis_joint(f"the joint of actuator '{name}'", joint)
        self.joint = joint
        self.drive = check_law(f"the drive of actuator '{name}'", drive, "t, s, rate", ())

    @property
    def bodies(self) -> tuple[str, ...]:
        return joint_of(self).bodies

    def rate(self, bodies: Mapping[str, AbstractBody], placements: Placements, twists: Twists) -> Array:
        return rate_of(joint_of(self).position, parts_of(self, placements), parts_of(self, twists))

    def effort(
        self, bodies: Mapping[str, AbstractBody], t: Time, placements: Placements, twists: Twists
    ) -> Array:
        position = joint_of(self).position(*parts_of(self, placements))
        rate = self.rate(bodies, placements, twists)
        return value_of(f"the drive of actuator '{self.name}'", self.drive, (), t, position, rate)


@final
class Commanded(eqx.Module):
    """The drive of an actuator that exerts an input on top of its own."""

    own: Array | Callable[[Time, Array, Array], Array]
    u: Float[Array, ""]

    def __call__(self, t: Time, position: Array, rate: Array) -> Array:
        return (
            value_of("the drive of an actuator", self.own, (), t, position, rate).astype(self.u.dtype)
            + self.u
        )


def command_actuators(system: Any, actuators: Mapping[str, Float[Array, ""]]) -> Any:
    """A mechanism whose actuators exert inputs."""
    loads = tuple(
        eqx.tree_at(lambda x: x.drive, load, Commanded(load.drive, actuators[load.name]))
        if load.name in actuators
        else load
        for load in system.mechanism.loads
    )
    return eqx.tree_at(lambda x: x.mechanism.loads, system, loads) if actuators else system
