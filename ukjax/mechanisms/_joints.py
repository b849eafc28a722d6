"""Joints: which relative motion of two bodies is left, as rows that are zero where the joint is whole.

A joint is described in the reference posture, by a world point and a world axis, and it is whole there. Its rows are
functions of the placements of its two bodies alone, so they serve bodies in absolute coordinates as well as the loops of
a tree. Each joint has as many rows as it takes freedoms, and rows are independent at the whole joint. With a
the axis, n1 and n2 perpendicular to it, all fixed in the parent, and a' etc. in the child:

    point        x' - x                            3 rows (2 in the plane)
    axis         a'.n1, a'.n2                      2 rows
    direction    vee(R^T R' - R'^T R) / 2          3 rows (1 in the plane, the angle itself)
"""

from collections.abc import Callable
from typing import Any, ClassVar, final

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._misc._arguments import fails
from .._misc._errors import InputError
from .._misc._lie import rotation_about
from .._misc._types import Time
from ._abstract_joint import (
    AbstractAxisJoint,
    AbstractPointJoint,
    AbstractSlidingJoint,
    Freedom,
    Looks,
    Stops,
    normalize_axis,
)
from ._bodies import AbstractBody, PointMass, check_array, check_positive_scalar
from ._joint_rows import (
    angle_of,
    compute_cos_sin,
    orientation,
    orientation_rows,
    same_axis,
    same_direction,
    same_point,
    sideways,
    turn_rows,
)
from ._laws import check_law, value_of
from ._placement import AnyPlacement, Twist


@final
class Revolute(AbstractPointJoint, AbstractAxisJoint):
    """A hinge: the bodies share a point, and in space an axis. 2 rows in the plane, 5 in space.

    **Arguments:**

    - `name`: what reports call it.
    - `parent`, `child`: names of the bodies.
    - `point`: of the hinge in the reference posture [m] (2,) or (3,).
    - `axis`: in space, of the hinge in the reference posture (3,).
    """

    axis: Array | None
    turns: ClassVar[bool] = True
    stops: ClassVar[Stops] = "angle"
    looks: ClassVar[Looks] = "pin"

    def __init__(self, name: str, parent: str, child: str, point: Any, axis: Any = None):
        super().__init__(name, parent, child, point)
        if self.dimension == 2 and axis is not None:
            raise InputError(f"joint '{name}' lies in the plane and takes no axis.")
        self.axis = None if self.dimension == 2 else normalize_axis(f"the axis of joint '{name}'", axis, 3)

    def freedoms(self, child: AbstractBody) -> list[Freedom]:
        return [Freedom.turn(self.point, self.axis)]

    def rows(self, t: Time, *placements: AnyPlacement) -> Array:
        point = same_point(self.point, *placements)
        return point if self.axis is None else jnp.concatenate([point, same_axis(self.axis, *placements)])

    def position(self, parent: AnyPlacement, child: AnyPlacement) -> Float[Array, ""]:
        return angle_of(self.axis, parent, child)

    def configuration_rows(self, value: Array, parent: AnyPlacement, child: AnyPlacement) -> Array:
        if self.axis is None:
            return (self.position(parent, child) - value)[None]
        c, s = compute_cos_sin(self.axis, parent, child)  # known up to full turns: the sine of the difference
        return (s * jnp.cos(value) - c * jnp.sin(value))[None]

    def angles_in(self, value: Any) -> Any:
        return value.ravel()

    def effort(self, parent: AnyPlacement, wrench: Twist) -> Float[Array, ""]:
        return wrench.omega if self.axis is None else jnp.dot(parent.vector(self.axis), wrench.omega)


@final
class Prismatic(AbstractSlidingJoint):
    """A slide: the child moves along an axis of the parent without turning. 2 rows in the plane, 5 in space.

    **Arguments:**

    - `name`: what reports call it.
    - `parent`, `child`: names of the bodies.
    - `point`: on the axis in the reference posture [m] (2,) or (3,).
    - `axis`: of sliding in the reference posture, of the same shape.
    """

    turns: ClassVar[bool] = True

    def __init__(self, name: str, parent: str, child: str, point: Any, axis: Any):
        super().__init__(name, parent, child, point, axis)

    def freedoms(self, child: AbstractBody) -> list[Freedom]:
        return [Freedom.slide(self.point, self.axis)]

    def rows(self, t: Time, *placements: AnyPlacement) -> Array:
        return jnp.concatenate([sideways(self.axis, self.point, *placements), same_direction(*placements)])


@final
class Fixed(AbstractPointJoint):
    """A weld: 3 rows in the plane, 6 in space.

    **Arguments:**

    - `name`: what reports call it.
    - `parent`, `child`: names of the bodies.
    - `point`: of the weld in the reference posture [m] (2,) or (3,); where its reaction is reported.
    """

    turns: ClassVar[bool] = True

    def __init__(self, name: str, parent: str, child: str, point: Any):
        super().__init__(name, parent, child, point)

    def freedoms(self, child: AbstractBody) -> list[Freedom]:
        return []

    def rows(self, t: Time, *placements: AnyPlacement) -> Array:
        return jnp.concatenate([same_point(self.point, *placements), same_direction(*placements)])


@final
class Distance(AbstractPointJoint):
    """A massless rod between a point of the parent and one of the child: 1 row, (d.d / l - l) / 2.

    Where the length is a function of time it is a hydraulic cylinder or a winch, that pushes as hard as it must.

    **Arguments:**

    - `name`: what reports call it.
    - `parent`, `child`: names of the bodies.
    - `parent_point`: in the reference posture [m] (2,) or (3,).
    - `point`: of the child, likewise [m].
    - `length`: [m], constant or a function of time, positive; by default that of the reference posture.
    """

    parent_point: Array
    length: Array | Callable[[Time], Array]
    turns: ClassVar[bool] = False

    def __init__(self, name: str, parent: str, child: str, parent_point: Any, point: Any, length: Any = None):
        super().__init__(name, parent, child, point)
        self.parent_point = check_array(
            f"the parent's point of joint '{name}'", parent_point, self.point.shape
        )
        if length is None and fails(lambda a, b: np.any(a != b), point, parent_point):
            raise InputError(
                f"the points of joint '{name}' coincide: that is a Revolute or a Spherical joint."
            )
        d = self.point - self.parent_point
        length = jnp.sqrt(jnp.dot(d, d)) if length is None else length
        what = f"the length of joint '{name}'"
        self.length = (
            check_law(what, length, "t") if callable(length) else check_positive_scalar(what, length)
        )

    def rows(self, t: Time, *placements: AnyPlacement) -> Array:
        parent, child = placements
        d = child.point(self.point) - parent.point(self.parent_point)
        length = value_of(f"the length of joint '{self.name}'", self.length, (), t)
        return (0.5 * (jnp.dot(d, d) / length - length))[None]


@final
class Spherical(AbstractPointJoint):
    """A ball joint in space, or a hook that holds a point mass: the bodies share a point. 3 rows, in the plane 2.

    **Arguments:**

    - `name`: what reports call it.
    - `parent`, `child`: names of the bodies.
    - `point`: of the joint in the reference posture [m] (3,) or (2,).
    """

    turns: ClassVar[bool] = False
    stops: ClassVar[Stops] = "angle"
    looks: ClassVar[Looks] = "ball"

    def __init__(self, name: str, parent: str, child: str, point: Any):
        super().__init__(name, parent, child, point)

    def freedoms(self, child: AbstractBody) -> list[Freedom]:
        if isinstance(child, PointMass):
            return []  # it sits in the joint
        return [Freedom.turn(self.point) if self.dimension == 2 else Freedom.ball(self.point)]

    def rows(self, t: Time, *placements: AnyPlacement) -> Array:
        return same_point(self.point, *placements)

    def configuration(self, parent: AnyPlacement, child: AnyPlacement, oriented: bool) -> Array:
        return orientation(parent, child) if oriented else super().configuration(parent, child, oriented)

    def configuration_rows(self, value: Array, parent: AnyPlacement, child: AnyPlacement) -> Array:
        return orientation_rows(value, parent, child)

    def angles_in(self, value: Any) -> Any:
        return value.ravel() if self.dimension == 2 else value.ravel()[:0]


@final
class Connect(AbstractPointJoint):
    """A ball joint that may be open in the reference posture: a point of the child meets one of the parent. 3 rows.

    **Arguments:**

    - `name`: what reports call it.
    - `parent`, `child`: names of the bodies.
    - `parent_point`: of the parent, in the reference posture [m] (3,).
    - `point`: of the child, likewise [m].
    """

    parent_point: Array
    turns: ClassVar[bool] = False
    in_space: ClassVar[bool] = True

    def __init__(self, name: str, parent: str, child: str, parent_point: Any, point: Any):
        super().__init__(name, parent, child, point)
        self.parent_point = check_array(f"the parent's point of joint '{name}'", parent_point, (3,))

    def rows(self, t: Time, *placements: AnyPlacement) -> Float[Array, "3"]:
        parent, child = placements
        return child.point(self.point) - parent.point(self.parent_point)


@final
class Universal(AbstractPointJoint):
    """Hooke's joint: a shared point, and an axis of the parent at a constant angle to one of the child. 4 rows.

    **Arguments:**

    - `name`: what reports call it.
    - `parent`, `child`: names of the bodies.
    - `point`: where the axes meet in the reference posture [m] (3,).
    - `axis`: fixed in the parent, in the reference posture (3,).
    - `child_axis`: fixed in the child, in the reference posture (3,), usually perpendicular.
    """

    axis: Array
    child_axis: Array
    turns: ClassVar[bool] = True
    in_space: ClassVar[bool] = True
    looks: ClassVar[Looks] = "ball"

    def __init__(self, name: str, parent: str, child: str, point: Any, axis: Any, child_axis: Any):
        super().__init__(name, parent, child, point)
        self.axis = normalize_axis(f"the axis of joint '{name}'", axis, 3)
        self.child_axis = normalize_axis(f"the child's axis of joint '{name}'", child_axis, 3)
        if fails(lambda a, b: np.abs(a @ b) <= 0.999, self.axis, self.child_axis):
            raise InputError(f"the two axes of joint '{name}' are parallel; give perpendicular ones.")

    def freedoms(self, child: AbstractBody) -> list[Freedom]:
        return [
            Freedom.turn(self.point, self.axis),
            Freedom.turn(self.point, self.child_axis, "child angle"),
        ]

    def rows(self, t: Time, *placements: AnyPlacement) -> Array:
        parent, child = placements
        cosine = jnp.dot(parent.vector(self.axis), child.vector(self.child_axis))
        angle = cosine - jnp.dot(self.axis, self.child_axis)
        return jnp.concatenate([same_point(self.point, parent, child), angle[None]])

    def configuration(self, parent: AnyPlacement, child: AnyPlacement, oriented: bool) -> Float[Array, "2"]:
        # The angles about both axes of the cross.
        R = parent.R.T @ child.R  # pyright: ignore[reportAttributeAccessIssue]
        first, second = self.axis, self.child_axis
        across = lambda axis, a, b: jnp.dot(jnp.cross(axis, a), jnp.cross(axis, b))
        angle = lambda axis, a, b: jnp.arctan2(jnp.dot(axis, jnp.cross(a, b)), across(axis, a, b))
        return jnp.stack([angle(first, second, R @ second), angle(second, R.T @ first, first)])

    def configuration_rows(self, value: Array, parent: AnyPlacement, child: AnyPlacement) -> Array:
        R = rotation_about(self.axis, value[0]) @ rotation_about(self.child_axis, value[1])
        return turn_rows(R, parent, child)

    def angles_in(self, value: Any) -> Any:
        return value.ravel()


@final
class Cylindrical(AbstractSlidingJoint):
    """A sleeve: the child turns about an axis of the parent and slides along it. 4 rows; `position` is the slide.

    **Arguments:**

    - `name`: what reports call it.
    - `parent`, `child`: names of the bodies.
    - `point`: on the axis in the reference posture [m] (3,).
    - `axis`: in the reference posture (3,).
    """

    turns: ClassVar[bool] = True
    in_space: ClassVar[bool] = True
    looks: ClassVar[Looks] = "pin"

    def __init__(self, name: str, parent: str, child: str, point: Any, axis: Any):
        super().__init__(name, parent, child, point, axis)

    def freedoms(self, child: AbstractBody) -> list[Freedom]:
        return [Freedom.turn(self.point, self.axis), Freedom.slide(self.point, self.axis)]

    def rows(self, t: Time, *placements: AnyPlacement) -> Array:
        return jnp.concatenate(
            [sideways(self.axis, self.point, *placements), same_axis(self.axis, *placements)]
        )


@final
class Free(AbstractPointJoint):
    """No joint at all: six freedoms in space, three in the plane. It makes a free body part of a tree.

    Its coordinates in a tree are the displacement of the child's point along the parent's axes [m], then the
    orientation: an angle in the plane, a quaternion in space. A point mass has the displacement only.

    **Arguments:**

    - `name`: what reports call it.
    - `parent`, `child`: names of the bodies.
    - `point`: of the child, which is displaced and about which it turns [m] (2,) or (3,).
    """

    turns: ClassVar[bool] = False

    @property
    def holonomic(self) -> bool:
        return False

    def __init__(self, name: str, parent: str, child: str, point: Any):
        super().__init__(name, parent, child, point)

    def freedoms(self, child: AbstractBody) -> list[Freedom]:
        axes: Any = np.eye(self.dimension, dtype=self.point.dtype)
        slides = [Freedom.slide(self.point, axis, label) for axis, label in zip(axes, "xyz", strict=False)]
        if isinstance(child, PointMass):
            return slides
        return [*slides, Freedom.turn(self.point) if self.dimension == 2 else Freedom.ball(self.point)]

    def configuration(self, parent: AnyPlacement, child: AnyPlacement, oriented: bool) -> Array:
        displacement = parent.back(same_point(self.point, parent, child))
        return jnp.append(displacement, orientation(parent, child)) if oriented else displacement

    def configuration_rows(self, value: Array, parent: AnyPlacement, child: AnyPlacement) -> Array:
        d = self.dimension
        rows = parent.back(same_point(self.point, parent, child)) - value[:d]
        if value.size == d:
            return rows
        return jnp.concatenate([rows, orientation_rows(value[d:], parent, child)])

    def angles_in(self, value: Any) -> Any:
        return value[2:] if self.dimension == 2 else value[:0]
