"""Joints with a motion or a place given by a function: paths, guides and drives."""

from collections.abc import Callable
from typing import Any, ClassVar, final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from .._misc._arguments import call_user_function, number_array, require_function
from .._misc._types import Time
from ._abstract_joint import AbstractAxisJoint, AbstractJoint, AbstractPointJoint, require_axis_joint
from ._bodies import check_name
from ._laws import value_of
from ._placement import AnyPlacement


@final
class PathMotion(AbstractPointJoint):
    """A point of the child moves along a given path of the parent: x' - path(t). 3 rows, in the plane 2.

    **Arguments:**

    - `name`: what reports call it.
    - `parent`, `child`: names of the bodies.
    - `point`: of the child in the reference posture [m] (2,) or (3,).
    - `path`: path(t) [m], in the world where the parent is the ground, else in the parent's reference posture.
    """

    path: Callable[[Time], Array]
    turns: ClassVar[bool] = False

    def __init__(self, name: str, parent: str, child: str, point: Any, path: Callable[[Time], Array]):
        super().__init__(name, parent, child, point)
        require_function(f"the path of joint '{name}'", path, "t")
        self.path = path

    def rows(self, t: Time, *placements: AnyPlacement) -> Array:
        parent, child = placements
        path = value_of(f"the path of joint '{self.name}'", self.path, self.point.shape, t)
        return child.point(self.point) - parent.point(path)


@final
class Guide(AbstractPointJoint):
    """A point of the child stays on a curve or a surface of the parent, f(x) = 0: as many rows as f has.

    **Arguments:**

    - `name`: what reports call it.
    - `parent`, `child`: names of the bodies.
    - `point`: of the child in the reference posture [m] (2,) or (3,).
    - `surface`: f(x) of a place x [m], in the world where the parent is the ground, else in the parent's reference
      posture; zero on the guide, with a gradient there.
    """

    surface: Callable[[Array], Array]
    turns: ClassVar[bool] = False

    def __init__(self, name: str, parent: str, child: str, point: Any, surface: Callable[[Array], Array]):
        super().__init__(name, parent, child, point)
        require_function(f"the surface of joint '{name}'", surface, "x")
        self.surface = surface

    def rows(self, t: Time, *placements: AnyPlacement) -> Array:
        parent, child = placements
        x = parent.centre + parent.back(child.point(self.point) - parent.p)
        what = f"the surface of joint '{self.name}'"
        return jnp.atleast_1d(number_array(f"what {what} returns", call_user_function(what, self.surface, x)))


@final
class Drive(AbstractJoint):
    """The position of a joint follows a given function of time: 1 row beside the joint's own.

    The row is the difference, or for the angle of a hinge in space, known up to full turns, its sine.

    **Arguments:**

    - `name`: what reports call it.
    - `joint`: a `Revolute`, `Prismatic`, `Cylindrical` or `Screw` joint, or the name of one.
    - `motion`: its angle [rad] or slide [m] from the reference posture, a function of time.
    """

    name: str = eqx.field(static=True)
    joint: AbstractAxisJoint | str
    motion: Callable[[Time], Array]
    turns: ClassVar[bool] = True

    def __init__(self, name: str, joint: AbstractAxisJoint | str, motion: Callable[[Time], Array]):
        self.name = check_name("joint", name)
        require_axis_joint(f"the joint of drive '{name}'", joint)
        require_function(f"the motion of drive '{name}'", motion, "t")
        self.joint, self.motion = joint, motion

    @property
    def parent(self) -> str:
        return self.joint.parent  # pyright: ignore[reportAttributeAccessIssue]

    @property
    def child(self) -> str:
        return self.joint.child  # pyright: ignore[reportAttributeAccessIssue]

    @property
    def point(self) -> Array:
        return self.joint.point  # pyright: ignore[reportAttributeAccessIssue]

    def rows(self, t: Time, *placements: AnyPlacement) -> Array:
        motion = value_of(f"the motion of drive '{self.name}'", self.motion, (), t)
        joint: Any = self.joint
        return joint.configuration_rows(motion, *placements)  # pyright: ignore[reportArgumentType]
