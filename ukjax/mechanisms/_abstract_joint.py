"""What every joint is, and the checks that all of them share."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._misc._arguments import fails, require_instance
from .._misc._errors import InputError
from .._misc._types import Time, as_jax, module_for
from ._bodies import AbstractBody, check_array, check_name
from ._freedoms import Freedom
from ._placement import AnyPlacement, Twist, rate_of


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


class AbstractAxisJoint(AbstractJoint):
    """A joint along or about one axis, whose `position` can be driven or measured: `Revolute`, `Prismatic`,
    `Cylindrical`, `Screw`."""

    axis: eqx.AbstractVar[Array]

    @abc.abstractmethod
    def position(self, parent: AnyPlacement, child: AnyPlacement) -> Float[Array, ""]:
        """The angle [rad] or the displacement [m] of the child from the reference posture, against the parent.

        **Arguments:**

        - `parent`, `child`: placements.
        """


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
