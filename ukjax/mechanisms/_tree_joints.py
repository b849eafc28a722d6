"""What a joint of a kinematic tree is made of: elements of one twist, and balls; and a joint that ties nothing."""

from collections.abc import Callable
from typing import Any, ClassVar, Literal, NamedTuple, final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._misc._errors import InputError
from ._bodies import AbstractBody, PointMass, checked_array
from ._couplings import Screw
from ._joints import AbstractJoint, Cylindrical, Fixed, Prismatic, Revolute, Spherical, Universal, set_ends


@final
class Free(AbstractJoint):
    """No joint at all: six freedoms in space, three in the plane. It makes a free body part of a tree.

    Its coordinates in a tree are the displacement of the child's point along the parent's axes [m], then the
    orientation: an angle in the plane, a quaternion in space. A point mass has the displacement only.

    **Arguments:**

    - `name`: what reports call it.
    - `parent`, `child`: names of the bodies.
    - `point`: of the child, which is displaced and about which it turns [m] (2,) or (3,).
    """

    name: str = eqx.field(static=True)
    parent: str = eqx.field(static=True)
    child: str = eqx.field(static=True)
    point: Array
    turns: ClassVar[bool] = False

    def __init__(self, name: str, parent: str, child: str, point: Any):
        set_ends(self, name, parent, child)
        self.point = checked_array(f"the point of joint '{name}'", point, (2,), (3,))

    @property
    def holonomic(self) -> bool:
        return False


class Freedom(NamedTuple):
    """One or, for a ball, three velocities, and what they do in the reference posture.

    - `kind`: `"twist"` or `"ball"`.
    - `label`: what the coordinate is called behind the joint's name.
    - `turn`, `slide`: the direction turned about [1] and the slide [m/rad, or 1] of each velocity (k, 3).
    - `point`: of the axis, or the ball's centre [m] (3,).
    """

    kind: Literal["twist", "ball"]
    label: str
    turn: Float[Array, "k 3"]
    slide: Float[Array, "k 3"]
    point: Float[Array, "3"]

    @property
    def nq(self) -> int:
        """The number of its coordinates."""
        return 4 if self.kind == "ball" else 1

    @property
    def nv(self) -> int:
        """The number of its velocities."""
        return 3 if self.kind == "ball" else 1


def in_space(x: Array) -> Float[Array, "3"]:
    """A vector of the plane as one of space; one of space as it is."""
    return x if x.shape == (3,) else jnp.concatenate([x, jnp.zeros(1, x.dtype)])


def _turn(point: Array, axis: Array | None, label: str = "angle", slide: Array | None = None) -> Freedom:
    axis = jnp.asarray([0.0, 0.0, 1.0], point.dtype) if axis is None else axis
    slide = jnp.zeros_like(axis) if slide is None else slide
    return Freedom("twist", label, axis[None], slide[None], in_space(point))


def _slide(point: Array, axis: Array, label: str = "slide") -> Freedom:
    axis = in_space(axis)[None]
    return Freedom("twist", label, jnp.zeros_like(axis), axis, in_space(point))


def _ball(point: Array) -> Freedom:
    axes = jnp.eye(3, dtype=point.dtype)
    return Freedom("ball", "", axes, jnp.zeros_like(axes), point)


def _screw(joint: Screw) -> Freedom:
    return _turn(joint.point, joint.axis, slide=joint.pitch / (2.0 * jnp.pi) * joint.axis)


def _free(joint: Free, child: AbstractBody) -> list[Freedom]:
    axes = jnp.eye(joint.dimension, dtype=joint.point.dtype)
    slides = [_slide(joint.point, axis, label) for axis, label in zip(axes, "xyz", strict=False)]
    if isinstance(child, PointMass):
        return slides
    return [*slides, _turn(joint.point, None) if joint.dimension == 2 else _ball(joint.point)]


def _spherical(joint: Spherical, child: AbstractBody) -> list[Freedom]:
    if isinstance(child, PointMass):
        return []  # it sits in the joint
    return [_turn(joint.point, None) if joint.dimension == 2 else _ball(joint.point)]


_FREEDOMS: dict[type[AbstractJoint], Callable[[Any, AbstractBody], list[Freedom]]] = {
    Revolute: lambda joint, _: [_turn(joint.point, joint.axis)],
    Prismatic: lambda joint, _: [_slide(joint.point, joint.axis)],
    Cylindrical: lambda joint, _: [_turn(joint.point, joint.axis), _slide(joint.point, joint.axis)],
    Screw: lambda joint, _: [_screw(joint)],
    Universal: lambda joint, _: [
        _turn(joint.point, joint.axis, "angle"),
        _turn(joint.point, joint.child_axis, "child angle"),
    ],
    Spherical: _spherical,
    Fixed: lambda joint, _: [],
    Free: _free,
}


def freedoms(joint: AbstractJoint, child: AbstractBody) -> list[Freedom]:
    """What a joint leaves free, from the parent outwards.

    **Arguments:**

    - `joint`: the joint.
    - `child`: its child body.

    **Raises:** `InputError` for a joint that does not say by itself where its child is.
    """
    if type(joint) not in _FREEDOMS:
        known = ", ".join(kind.__name__ for kind in _FREEDOMS)
        raise InputError(
            f"joint '{joint.name}' ({type(joint).__name__}) cannot carry a body of a tree; put it into `loops` and "
            f"carry '{joint.child}' by one of {known}."
        )
    return _FREEDOMS[type(joint)](joint, child)
