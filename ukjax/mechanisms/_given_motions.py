"""Joints with a motion or a place given by a function: paths, guides and drives."""

from collections.abc import Callable
from typing import Any, ClassVar, final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from .._misc._errors import InputError
from .._misc._types import Time
from ._abstract_joint import AbstractAxisJoint, AbstractJoint, require_axis_joint, set_ends
from ._bodies import checked_array, checked_name
from ._joint_rows import turned
from ._joints import Revolute
from ._placement import AnyPlacement


@final
class PathMotion(AbstractJoint):
    """A point of the child moves along a given path of the parent: x' - path(t). 3 rows, in the plane 2.

    **Arguments:**

    - `name`: what reports call it.
    - `parent`, `child`: names of the bodies.
    - `point`: of the child in the reference posture [m] (2,) or (3,).
    - `path`: path(t) [m], in the world where the parent is the ground, else in the parent's reference posture.
    """

    name: str = eqx.field(static=True)
    parent: str = eqx.field(static=True)
    child: str = eqx.field(static=True)
    point: Array
    path: Callable[[Time], Array]
    turns: ClassVar[bool] = False

    def __init__(self, name: str, parent: str, child: str, point: Any, path: Callable[[Time], Array]):
        set_ends(self, name, parent, child)
        self.point = checked_array(f"the point of joint '{name}'", point, (2,), (3,))
        if not callable(path):
            raise InputError(f"the path of joint '{name}' must be a function of time, got {path!r}.")
        self.path = path

    def rows(self, t: Time, *placements: AnyPlacement) -> Array:
        parent, child = placements
        return child.point(self.point) - parent.point(self.path(t))


@final
class Guide(AbstractJoint):
    """A point of the child stays on a curve or a surface of the parent, f(x) = 0: as many rows as f has.

    **Arguments:**

    - `name`: what reports call it.
    - `parent`, `child`: names of the bodies.
    - `point`: of the child in the reference posture [m] (2,) or (3,).
    - `surface`: f(x) of a place x [m], in the world where the parent is the ground, else in the parent's reference
      posture; zero on the guide, with a gradient there.
    """

    name: str = eqx.field(static=True)
    parent: str = eqx.field(static=True)
    child: str = eqx.field(static=True)
    point: Array
    surface: Callable[[Array], Array]
    turns: ClassVar[bool] = False

    def __init__(self, name: str, parent: str, child: str, point: Any, surface: Callable[[Array], Array]):
        set_ends(self, name, parent, child)
        self.point = checked_array(f"the point of joint '{name}'", point, (2,), (3,))
        if not callable(surface):
            raise InputError(f"the surface of joint '{name}' must be a function of a place, got {surface!r}.")
        self.surface = surface

    def rows(self, t: Time, *placements: AnyPlacement) -> Array:
        parent, child = placements
        x = parent.centre + parent.back(child.point(self.point) - parent.p)
        return jnp.atleast_1d(self.surface(x))


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
        self.name = checked_name("joint", name)
        require_axis_joint(f"the joint of drive '{name}'", joint)
        if not callable(motion):
            raise InputError(f"the motion of drive '{name}' must be a function of time, got {motion!r}.")
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
        joint, motion = self.joint, jnp.asarray(self.motion(t))
        if isinstance(joint, Revolute) and joint.axis is not None:
            c, s = turned(joint.axis, *placements)
            return (s * jnp.cos(motion) - c * jnp.sin(motion))[None]
        return (joint.position(*placements) - motion)[None]  # pyright: ignore[reportAttributeAccessIssue]
