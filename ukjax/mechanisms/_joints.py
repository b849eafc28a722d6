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

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._misc._arguments import fails
from .._misc._errors import InputError
from .._misc._types import Time
from ._abstract_joint import AbstractAxisJoint, AbstractJoint, normalize_axis, set_ends
from ._bodies import AbstractBody, PointMass, check_array, check_positive_scalar
from ._freedoms import Freedom
from ._joint_rows import angle_of, displacement, same_axis, same_direction, same_point, sideways
from ._laws import check_law, value_of
from ._placement import AnyPlacement


@final
class Revolute(AbstractAxisJoint):
    """A hinge: the bodies share a point, and in space an axis. 2 rows in the plane, 5 in space.

    **Arguments:**

    - `name`: what reports call it.
    - `parent`, `child`: names of the bodies.
    - `point`: of the hinge in the reference posture [m] (2,) or (3,).
    - `axis`: in space, of the hinge in the reference posture (3,).
    """

    name: str = eqx.field(static=True)
    parent: str = eqx.field(static=True)
    child: str = eqx.field(static=True)
    point: Array
    axis: Array | None
    turns: ClassVar[bool] = True

    def __init__(self, name: str, parent: str, child: str, point: Any, axis: Any = None):
        set_ends(self, name, parent, child)
        self.point = check_array(f"the point of joint '{name}'", point, (2,), (3,))
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


@final
class Prismatic(AbstractAxisJoint):
    """A slide: the child moves along an axis of the parent without turning. 2 rows in the plane, 5 in space.

    **Arguments:**

    - `name`: what reports call it.
    - `parent`, `child`: names of the bodies.
    - `point`: on the axis in the reference posture [m] (2,) or (3,).
    - `axis`: of sliding in the reference posture, of the same shape.
    """

    name: str = eqx.field(static=True)
    parent: str = eqx.field(static=True)
    child: str = eqx.field(static=True)
    point: Array
    axis: Array
    turns: ClassVar[bool] = True

    def __init__(self, name: str, parent: str, child: str, point: Any, axis: Any):
        set_ends(self, name, parent, child)
        self.point = check_array(f"the point of joint '{name}'", point, (2,), (3,))
        self.axis = normalize_axis(f"the axis of joint '{name}'", axis, self.dimension)

    def freedoms(self, child: AbstractBody) -> list[Freedom]:
        return [Freedom.slide(self.point, self.axis)]

    def rows(self, t: Time, *placements: AnyPlacement) -> Array:
        return jnp.concatenate([sideways(self.axis, self.point, *placements), same_direction(*placements)])

    def position(self, parent: AnyPlacement, child: AnyPlacement) -> Float[Array, ""]:
        return displacement(self.axis, self.point, parent, child)


@final
class Fixed(AbstractJoint):
    """A weld: 3 rows in the plane, 6 in space.

    **Arguments:**

    - `name`: what reports call it.
    - `parent`, `child`: names of the bodies.
    - `point`: of the weld in the reference posture [m] (2,) or (3,); where its reaction is reported.
    """

    name: str = eqx.field(static=True)
    parent: str = eqx.field(static=True)
    child: str = eqx.field(static=True)
    point: Array
    turns: ClassVar[bool] = True

    def __init__(self, name: str, parent: str, child: str, point: Any):
        set_ends(self, name, parent, child)
        self.point = check_array(f"the point of joint '{name}'", point, (2,), (3,))

    def freedoms(self, child: AbstractBody) -> list[Freedom]:
        return []

    def rows(self, t: Time, *placements: AnyPlacement) -> Array:
        return jnp.concatenate([same_point(self.point, *placements), same_direction(*placements)])


@final
class Distance(AbstractJoint):
    """A massless rod between a point of the parent and one of the child: 1 row, (d.d / l - l) / 2.

    Where the length is a function of time it is a hydraulic cylinder or a winch, that pushes as hard as it must.

    **Arguments:**

    - `name`: what reports call it.
    - `parent`, `child`: names of the bodies.
    - `parent_point`: in the reference posture [m] (2,) or (3,).
    - `point`: of the child, likewise [m].
    - `length`: [m], constant or a function of time, positive; by default that of the reference posture.
    """

    name: str = eqx.field(static=True)
    parent: str = eqx.field(static=True)
    child: str = eqx.field(static=True)
    parent_point: Array
    point: Array
    length: Array | Callable[[Time], Array]
    turns: ClassVar[bool] = False

    def __init__(self, name: str, parent: str, child: str, parent_point: Any, point: Any, length: Any = None):
        set_ends(self, name, parent, child)
        self.point = check_array(f"the point of joint '{name}'", point, (2,), (3,))
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
class Spherical(AbstractJoint):
    """A ball joint in space, or a hook that holds a point mass: the bodies share a point. 3 rows, in the plane 2.

    **Arguments:**

    - `name`: what reports call it.
    - `parent`, `child`: names of the bodies.
    - `point`: of the joint in the reference posture [m] (3,) or (2,).
    """

    name: str = eqx.field(static=True)
    parent: str = eqx.field(static=True)
    child: str = eqx.field(static=True)
    point: Array
    turns: ClassVar[bool] = False

    def __init__(self, name: str, parent: str, child: str, point: Any):
        set_ends(self, name, parent, child)
        self.point = check_array(f"the point of joint '{name}'", point, (2,), (3,))

    def freedoms(self, child: AbstractBody) -> list[Freedom]:
        if isinstance(child, PointMass):
            return []  # it sits in the joint
        return [Freedom.turn(self.point) if self.dimension == 2 else Freedom.ball(self.point)]

    def rows(self, t: Time, *placements: AnyPlacement) -> Array:
        return same_point(self.point, *placements)


@final
class Connect(AbstractJoint):
    """A ball joint that may be open in the reference posture: a point of the child meets one of the parent. 3 rows.

    **Arguments:**

    - `name`: what reports call it.
    - `parent`, `child`: names of the bodies.
    - `parent_point`: of the parent, in the reference posture [m] (3,).
    - `point`: of the child, likewise [m].
    """

    name: str = eqx.field(static=True)
    parent: str = eqx.field(static=True)
    child: str = eqx.field(static=True)
    parent_point: Array
    point: Array
    turns: ClassVar[bool] = False

    def __init__(self, name: str, parent: str, child: str, parent_point: Any, point: Any):
        set_ends(self, name, parent, child)
        self.parent_point = check_array(f"the parent's point of '{name}'", parent_point, (3,))
        self.point = check_array(f"the point of '{name}'", point, (3,))

    def rows(self, t: Time, *placements: AnyPlacement) -> Float[Array, "3"]:
        parent, child = placements
        return child.point(self.point) - parent.point(self.parent_point)


@final
class Universal(AbstractJoint):
    """Hooke's joint: a shared point, and an axis of the parent at a constant angle to one of the child. 4 rows.

    **Arguments:**

    - `name`: what reports call it.
    - `parent`, `child`: names of the bodies.
    - `point`: where the axes meet in the reference posture [m] (3,).
    - `axis`: fixed in the parent, in the reference posture (3,).
    - `child_axis`: fixed in the child, in the reference posture (3,), usually perpendicular.
    """

    name: str = eqx.field(static=True)
    parent: str = eqx.field(static=True)
    child: str = eqx.field(static=True)
    point: Array
    axis: Array
    child_axis: Array
    turns: ClassVar[bool] = True

    def __init__(self, name: str, parent: str, child: str, point: Any, axis: Any, child_axis: Any):
        set_ends(self, name, parent, child)
        self.point = check_array(f"the point of joint '{name}'", point, (3,))
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


@final
class Cylindrical(AbstractAxisJoint):
    """A sleeve: the child turns about an axis of the parent and slides along it. 4 rows; `position` is the slide.

    **Arguments:**

    - `name`: what reports call it.
    - `parent`, `child`: names of the bodies.
    - `point`: on the axis in the reference posture [m] (3,).
    - `axis`: in the reference posture (3,).
    """

    name: str = eqx.field(static=True)
    parent: str = eqx.field(static=True)
    child: str = eqx.field(static=True)
    point: Array
    axis: Array
    turns: ClassVar[bool] = True

    def __init__(self, name: str, parent: str, child: str, point: Any, axis: Any):
        set_ends(self, name, parent, child)
        self.point = check_array(f"the point of joint '{name}'", point, (3,))
        self.axis = normalize_axis(f"the axis of joint '{name}'", axis, 3)

    def freedoms(self, child: AbstractBody) -> list[Freedom]:
        return [Freedom.turn(self.point, self.axis), Freedom.slide(self.point, self.axis)]

    def rows(self, t: Time, *placements: AnyPlacement) -> Array:
        return jnp.concatenate(
            [sideways(self.axis, self.point, *placements), same_axis(self.axis, *placements)]
        )

    def position(self, parent: AnyPlacement, child: AnyPlacement) -> Float[Array, ""]:
        return displacement(self.axis, self.point, parent, child)
