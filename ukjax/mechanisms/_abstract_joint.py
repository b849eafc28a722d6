"""What every joint is, what joints leave free in a kinematic tree, and the checks that all joints share."""

import abc
from typing import Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._misc._arguments import fails, require_instance
from .._misc._errors import InputError
from .._misc._types import Time, as_jax, module_for
from ._bodies import AbstractBody, check_array, check_name
from ._joint_rows import displacement, rotation_angle
from ._placement import AnyPlacement, Twist, rate_of


def lift_to_space(x: Array) -> Float[Array, "3"]:
    """A vector of the plane as one of space; one of space as it is."""
    xp = module_for(x)
    return xp.asarray(x) if x.shape == (3,) else xp.concatenate([x, xp.zeros(1, x.dtype)])


class Freedom(NamedTuple):
    """One freedom of a joint: a turn, a slide, a screw, or a ball with three velocities. Made by the methods below.

    - `kind`: `"twist"` for one coordinate, `"ball"` for a quaternion.
    - `label`: what the coordinate is called behind the joint's name, where the joint has several.
    - `angular`, `linear`: what each velocity does in the reference posture: it turns about a direction [1] and slides
      [m/rad, or 1] (k, 3).
    - `point`: of the axis, or the ball's centre [m] (3,).
    - `named`: whether the label is the whole name, without the joint's in front.
    - `slides`: whether the coordinate is a displacement and no angle.
    """

    kind: Literal["twist", "ball"]
    label: str
    angular: Float[Array, "k 3"]
    linear: Float[Array, "k 3"]
    point: Float[Array, "3"]
    named: bool = False
    slides: bool = False

    @classmethod
    def turn(
        cls, point: Array, axis: Array | None = None, label: str = "angle", advance: Array | float = 0.0
    ) -> "Freedom":
        """An angle about an axis [rad].

        **Arguments:**

        - `point`: on the axis in the reference posture [m] (2,) or (3,).
        - `axis`: of length 1 in the reference posture (3,); None in the plane.
        - `label`: what the coordinate is called.
        - `advance`: along the axis for each radian, of a screw [m/rad].
        """
        xp = module_for(axis, advance)
        along = xp.asarray([0.0, 0.0, 1.0], point.dtype) if axis is None else xp.asarray(axis)
        still = isinstance(advance, float) and advance == 0.0
        linear = xp.zeros_like(along) if still else xp.asarray(advance) * along
        return cls("twist", label, xp.expand_dims(along, 0), xp.expand_dims(linear, 0), lift_to_space(point))

    @classmethod
    def slide(cls, point: Array, axis: Array, label: str = "slide") -> "Freedom":
        """A displacement along an axis [m].

        **Arguments:**

        - `point`: on the axis in the reference posture [m] (2,) or (3,).
        - `axis`: of length 1 in the reference posture, of the same shape.
        - `label`: what the coordinate is called.
        """
        xp = module_for(axis := lift_to_space(axis))
        axis = xp.expand_dims(axis, 0)
        return cls("twist", label, xp.zeros_like(axis), axis, lift_to_space(point), slides=True)

    @classmethod
    def ball(cls, point: Array) -> "Freedom":
        """Any rotation: a quaternion of the child against the parent, with the relative angular velocity in the child's
        axes [rad/s].

        **Arguments:**

        - `point`: that stays in place, in the reference posture [m] (3,).
        """
        xp = module_for(point)
        return cls("ball", "", xp.eye(3, dtype=point.dtype), xp.zeros((3, 3), point.dtype), xp.asarray(point))

    @property
    def nq(self) -> int:
        """The number of its coordinates."""
        return 4 if self.kind == "ball" else 1

    @property
    def nv(self) -> int:
        """The number of its velocities."""
        return 3 if self.kind == "ball" else 1


Stops = Literal["", "angle", "slide"]
Looks = Literal["", "pin", "ball"]


class AbstractJoint(eqx.Module):
    """A joint between a parent and a child body, either of which may be the ground.

    Concrete ones: `Revolute`, `Prismatic`, `Fixed`, `Distance`, `Spherical`, `Connect`, `Universal`, `Cylindrical`,
    `Screw`, `Gear`, `Rolling`, `PathMotion`, `Guide`, `Drive`, `Free`. One of your own has the fields below, `rows` for
    absolute coordinates and for loops, and `freedoms` if it is to carry a body of a tree.
    """

    name: eqx.AbstractVar[str]
    parent: eqx.AbstractVar[str]
    child: eqx.AbstractVar[str]
    point: eqx.AbstractVar[Array]
    turns: eqx.AbstractClassVar[bool]  # whether its rows concern orientations, which point masses have not
    stops: ClassVar[Stops] = ""  # what limits and dry friction are on, if there is such
    looks: ClassVar[Looks] = ""  # what it is shown as

    @property
    def bodies(self) -> tuple[str, ...]:
        """The names of the bodies whose placements it takes, parent and child first."""
        return (self.parent, self.child)

    @property
    def dimension(self) -> int:
        """2 in the plane, 3 in space."""
        return self.point.shape[0]

    @property
    def holonomic(self) -> bool:
        """Whether it has `rows` on positions."""
        return True

    @property
    def nonholonomic(self) -> bool:
        """Whether it has rows on velocities, `slip`."""
        return False

    @property
    def slip_name(self) -> str:
        """What the rows on velocities are called: as the joint, unless rows on positions are."""
        return f"{self.name}, no slip" if self.holonomic else self.name

    def freedoms(self, child: AbstractBody) -> list[Freedom]:
        """What the joint leaves free, from the parent outwards, so that it can carry a body of a tree: the child is first
        moved by the last of them. A joint has as many as `rows` leave.

        **Arguments:**

        - `child`: the child body.

        **Raises:** `InputError`, unless overridden, since rows alone do not say where the child is.
        """
        raise InputError(
            f"joint '{self.name}' ({type(self).__name__}) cannot carry a body of a tree; put it into `loops` and carry "
            f"'{self.child}' by a joint that has `freedoms`, such as Revolute, Prismatic, Spherical, Fixed or Free."
        )

    def rows(self, t: Time, *placements: AnyPlacement) -> Array | None:
        """phi (k,) of the placements of `bodies`; None for a joint on velocities alone.

        **Arguments:**

        - `placements`: of `bodies`.
        """
        return None

    def slip(self, t: Time, placements: tuple[AnyPlacement, ...], twists: tuple[Twist, ...]) -> Array | None:
        """Rows on velocities (k,), linear in the twists, where the joint is nonholonomic; None where it is not.

        **Arguments:**

        - `placements`: of `bodies`.
        - `twists`: of `bodies`.
        """
        return None

    def velocity_rows(
        self, t: Time, placements: tuple[AnyPlacement, ...], twists: tuple[Twist, ...]
    ) -> Array:
        """All rows at the level of velocities (k,), linear in the twists: the rate of `rows`, then `slip`.

        **Arguments:**

        - `placements`: of `bodies`.
        - `twists`: of `bodies`.
        """
        parts = []
        if self.holonomic:
            parts.append(rate_of(lambda *p: self.rows(t, *p), placements, twists))  # pyright: ignore[reportArgumentType]
        if self.nonholonomic:
            parts.append(self.slip(t, placements, twists))
        return jnp.concatenate(parts) if parts else jnp.zeros(0, t.dtype)

    def row_count(self, t: Time, placements: tuple[AnyPlacement, ...], twists: tuple[Twist, ...]) -> int:
        """How many `velocity_rows` there are; differentiates nothing.

        **Arguments:** as `velocity_rows`.
        """
        own = jax.eval_shape(lambda: self.rows(t, *placements)).size if self.holonomic else 0
        slip = jax.eval_shape(lambda: self.slip(t, placements, twists)).size if self.nonholonomic else 0
        return own + slip

    def stop_position(self, parent: AnyPlacement, child: AnyPlacement) -> Float[Array, ""]:
        """Where it is between its stops: the whole angle by which the child is turned against the parent [rad].

        **Arguments:**

        - `parent`, `child`: placements.
        """
        return rotation_angle(parent, child)

    def configuration(self, parent: AnyPlacement, child: AnyPlacement, oriented: bool) -> Array:
        """Where it is, counted from the reference posture, as `problem(..., at=...)` takes it.

        **Arguments:**

        - `parent`, `child`: placements.
        - `oriented`: whether the child has an orientation, unlike a point mass.

        **Raises:** `InputError`, unless overridden along with `configuration_rows`.
        """
        raise InputError(
            f"joint '{self.name}' ({type(self).__name__}) has no position to start at; give that of a Revolute, "
            "Prismatic, Cylindrical, Screw, Universal, Spherical or Free joint, of a body or of a point."
        )

    def configuration_rows(self, value: Array, parent: AnyPlacement, child: AnyPlacement) -> Array:
        """Rows that are zero where the `configuration` is a value.

        **Arguments:**

        - `value`: as `configuration` returns it.
        - `parent`, `child`: placements.
        """
        raise NotImplementedError

    def angles_in(self, value: Any) -> Any:
        """The entries of a configuration that are angles (k,); none by default.

        **Arguments:**

        - `value`: as `configuration` returns it.
        """
        return value.ravel()[:0]


# Concrete joints repeat the constructors below: type checkers would take that of a dataclass for one that is inherited.


class AbstractPointJoint(AbstractJoint):
    """A joint at a point, with the fields that all such joints have."""

    name: str = eqx.field(static=True)
    parent: str = eqx.field(static=True)
    child: str = eqx.field(static=True)
    point: Array
    in_space: ClassVar[bool] = False  # whether there are none in the plane

    def __init__(self, name: str, parent: str, child: str, point: Any):
        set_ends(self, name, parent, child)
        shapes = ((3,),) if self.in_space else ((2,), (3,))
        self.point = check_array(f"the point of joint '{name}'", point, *shapes)


class AbstractAxisJoint(AbstractJoint):
    """A joint along or about one axis, whose `position` can be driven or measured: `Revolute`, `Prismatic`,
    `Cylindrical`, `Screw`."""

    axis: eqx.AbstractVar[Array]
    stops: ClassVar[Stops] = "slide"

    @abc.abstractmethod
    def position(self, parent: AnyPlacement, child: AnyPlacement) -> Float[Array, ""]:
        """The angle [rad] or the displacement [m] of the child from the reference posture, against the parent.

        **Arguments:**

        - `parent`, `child`: placements.
        """

    def stop_position(self, parent: AnyPlacement, child: AnyPlacement) -> Float[Array, ""]:
        return self.position(parent, child)

    def configuration(self, parent: AnyPlacement, child: AnyPlacement, oriented: bool) -> Array:
        return self.position(parent, child)

    def configuration_rows(self, value: Array, parent: AnyPlacement, child: AnyPlacement) -> Array:
        return (self.position(parent, child) - value)[None]

    def effort(self, parent: AnyPlacement, wrench: Twist) -> Float[Array, ""]:
        """What a wrench on the child does along the position: the force along the axis [N], of a hinge the torque [N m].

        **Arguments:**

        - `parent`: its placement.
        - `wrench`: a force in place of the velocity, and a torque in place of the angular velocity.
        """
        return jnp.dot(parent.vector(self.axis), wrench.velocity)


class AbstractSlidingJoint(AbstractPointJoint, AbstractAxisJoint):
    """A joint along an axis through a point, whose position is how far the child has slid."""

    axis: Array

    def __init__(self, name: str, parent: str, child: str, point: Any, axis: Any):
        super().__init__(name, parent, child, point)
        self.axis = normalize_axis(f"the axis of joint '{name}'", axis, self.dimension)

    def position(self, parent: AnyPlacement, child: AnyPlacement) -> Float[Array, ""]:
        return displacement(self.axis, self.point, parent, child)


def set_ends(joint: Any, name: str, parent: str, child: str) -> None:
    """Gives a joint under construction its name and those of its bodies."""
    joint.name = check_name("joint", name)
    joint.parent, joint.child = check_name("body", parent), check_name("body", child)
    if parent == child:
        raise InputError(f"joint '{name}' joins '{parent}' to itself; its two bodies must differ.")


def normalize_axis(what: str, axis: Any, dimension: int) -> Array:
    """A unit vector along a given one."""
    if axis is None:
        raise InputError(f"{what} is missing: give a vector of {dimension} entries.")
    array = check_array(what, axis, (dimension,))
    if fails(lambda x: x @ x > 0, axis):
        raise InputError(f"{what} must not be the zero vector.")
    xp = module_for(array)
    array = xp.asarray(array)
    return as_jax(array / xp.sqrt(xp.dot(array, array)))


def require_axis_joint(what: str, joint: Any) -> None:
    """Raises `InputError` unless something is a joint with a position, or may be the name of one."""
    require_instance(
        what, joint, (AbstractAxisJoint, str), "Revolute(...), Prismatic(...) or the name of one"
    )
