"""Joints that couple motions: screws, gears and wheels."""

from typing import Any, ClassVar, final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._misc._arguments import fails
from .._misc._errors import InputError
from .._misc._types import Time
from ._abstract_joint import (
    AbstractJoint,
    AbstractPointJoint,
    AbstractSlidingJoint,
    Freedom,
    normalize_axis,
    set_ends,
)
from ._bodies import GROUND, AbstractBody, check_array, check_name
from ._joint_rows import across, angle_of, compute_cos_sin, same_axis, sideways
from ._placement import AnyPlacement, Twist


@final
class Screw(AbstractSlidingJoint):
    """A screw: a sleeve whose slide s and angle are tied, s = pitch angle / (2 pi). 5 rows; `position` is the slide.

    The last row is h sin(s / h - angle) with h = pitch / (2 pi), which is smooth over any number of turns.

    **Arguments:**

    - `name`: what reports call it.
    - `parent`, `child`: names of the bodies.
    - `point`: on the axis in the reference posture [m] (3,).
    - `axis`: in the reference posture (3,).
    - `pitch`: advance along the axis for a full turn about it [m]; negative for a left-handed screw.
    """

    pitch: Float[Array, ""]
    turns: ClassVar[bool] = True
    in_space: ClassVar[bool] = True

    def __init__(self, name: str, parent: str, child: str, point: Any, axis: Any, pitch: Any):
        super().__init__(name, parent, child, point, axis)
        self.pitch = check_array(f"the pitch of joint '{name}'", pitch, ())
        if fails(lambda x: x != 0, pitch):
            raise InputError(f"the pitch of joint '{name}' must not be 0: that is a Revolute joint.")

    def freedoms(self, child: AbstractBody) -> list[Freedom]:
        return [Freedom.turn(self.point, self.axis, advance=self.pitch / (2.0 * jnp.pi))]

    def rows(self, t: Time, *placements: AnyPlacement) -> Array:
        c, s = compute_cos_sin(self.axis, *placements)
        h = self.pitch / (2.0 * jnp.pi)
        x = self.position(*placements) / h
        advance = h * (jnp.sin(x) * c - jnp.cos(x) * s)
        aligned = (sideways(self.axis, self.point, *placements), same_axis(self.axis, *placements))
        return jnp.concatenate([*aligned, advance[None]])


@final
class Gear(AbstractJoint):
    """Gears: the child turns `ratio` times as fast as the parent, both against the carrier. 1 row.

    In the plane the row is on angles. In space angles are known up to full turns only, so the row is on rates, and the
    angles keep their ratio to the accuracy of the run. The bearings are joints of their own.

    **Arguments:**

    - `name`: what reports call it.
    - `parent`, `child`: names of the two gears.
    - `ratio`: of their rates; negative for external toothing.
    - `carrier`: name of the body that carries both bearings.
    - `axis`: in space, of the parent gear in the reference posture, fixed in the carrier (3,).
    - `child_axis`: of the child gear likewise; by default the same.
    """

    name: str = eqx.field(static=True)
    parent: str = eqx.field(static=True)
    child: str = eqx.field(static=True)
    carrier: str = eqx.field(static=True)
    ratio: Float[Array, ""]
    axis: Array | None
    child_axis: Array | None
    turns: ClassVar[bool] = True

    def __init__(
        self,
        name: str,
        parent: str,
        child: str,
        ratio: Any,
        carrier: str = GROUND,
        axis: Any = None,
        child_axis: Any = None,
    ):
        set_ends(self, name, parent, child)
        self.carrier = check_name("body", carrier)
        self.ratio = check_array(f"the ratio of gear '{name}'", ratio, ())
        if carrier in (parent, child):
            raise InputError(f"gear '{name}' must be carried by a third body, not by '{carrier}' itself.")
        self.axis = None if axis is None else normalize_axis(f"the axis of gear '{name}'", axis, 3)
        what = f"the child's axis of gear '{name}'"
        self.child_axis = self.axis if child_axis is None else normalize_axis(what, child_axis, 3)

    @property
    def point(self) -> None:
        """None: gears act at no point known here."""
        return None

    @property
    def bodies(self) -> tuple[str, ...]:
        return (self.parent, self.child, self.carrier)

    @property
    def dimension(self) -> int:
        return 2 if self.axis is None else 3

    @property
    def holonomic(self) -> bool:
        return self.axis is None

    @property
    def nonholonomic(self) -> bool:
        return self.axis is not None

    def rows(self, t: Time, *placements: AnyPlacement) -> Array | None:
        if self.axis is not None:
            return None
        parent, child, carrier = placements
        return (angle_of(None, carrier, child) - self.ratio * angle_of(None, carrier, parent))[None]

    def slip(self, t: Time, placements: tuple[AnyPlacement, ...], twists: tuple[Twist, ...]) -> Array | None:
        if self.axis is None or self.child_axis is None:
            return None
        parent, child, carrier = twists
        rates = (
            jnp.dot(placements[2].vector(axis), twist.omega - carrier.omega)
            for axis, twist in ((self.child_axis, child), (self.axis, parent))
        )
        return (next(rates) - self.ratio * next(rates))[None]


@final
class Rolling(AbstractPointJoint):
    """A disc or a ball that rolls without slipping on a line or a plane of the parent.

    In the plane a disc on a line: 2 rows, contact n.d - r and travel t.d + r angle, where d goes from the point of the
    parent that is touched at first to the centre, n is the line's normal and t = (n_y, -n_x). In space a ball (no
    `axis`), or a thin disc with an axle a, on a plane with normal n: 1 row that it touches, and 2 rows
    on velocities, that its lowest material point is at rest against the plane.

    **Arguments:**

    - `name`: what reports call it.
    - `parent`, `child`: names of the body with the plane, and of the one that rolls.
    - `point`: that is touched in the reference posture [m] (2,) or (3,).
    - `centre`: of the disc or ball in the reference posture, of the same shape; it lies above `point`, and with it
      gives radius and normal of a ball and of everything in the plane.
    - `axis`: in space, the axle of a disc in the reference posture, fixed in the child (3,); None for a ball.
    - `normal`: in space, of the plane, for a disc that leans; by default from `point` to `centre`.
    """

    centre: Array
    axis: Array | None
    normal: Array
    turns: ClassVar[bool] = True

    def __init__(
        self,
        name: str,
        parent: str,
        child: str,
        point: Any,
        centre: Any,
        axis: Any = None,
        normal: Any = None,
    ):
        super().__init__(name, parent, child, point)
        self.centre = check_array(f"the centre of joint '{name}'", centre, self.point.shape)
        if self.dimension == 2 and (axis is not None or normal is not None):
            raise InputError(f"joint '{name}' lies in the plane and takes neither axis nor normal.")
        upwards = self.centre - self.point if normal is None else normal
        self.normal = normalize_axis(f"the normal of joint '{name}'", upwards, self.dimension)
        self.axis = None if axis is None else normalize_axis(f"the axis of joint '{name}'", axis, 3)
        upright = lambda a, n: np.abs(a @ n) <= 0.999
        if self.axis is not None and fails(upright, self.axis, self.normal):
            raise InputError(f"the disc of joint '{name}' lies flat: its axis must not be along the normal.")

    @property
    def nonholonomic(self) -> bool:
        return self.dimension == 3

    @property
    def radius(self) -> Float[Array, ""]:
        """From the centre to the point of contact [m]."""
        d = self.centre - self.point
        return jnp.sqrt(jnp.dot(d, d))

    def _above(self, parent: AnyPlacement, child: AnyPlacement) -> Array:
        """From the point touched at first to the centre, in axes of the parent."""
        return parent.back(child.point(self.centre) - parent.point(self.point))

    def _lowest(self, parent: AnyPlacement, child: AnyPlacement) -> Array:
        """From the centre to the point of contact, in world axes."""
        up = parent.vector(self.normal)
        if self.axis is not None:
            axle = child.vector(self.axis)
            up = up - jnp.dot(up, axle) * axle
            up = up / jnp.sqrt(jnp.dot(up, up))
        return -self.radius * up

    def rows(self, t: Time, *placements: AnyPlacement) -> Array:
        parent, child = placements
        d, n = self._above(parent, child), self.normal
        if self.dimension == 2:
            along = jnp.stack([n[1], -n[0]])
            travel = jnp.dot(along, d) - jnp.dot(along, self.centre - self.point)
            return jnp.stack(
                [jnp.dot(n, d) - self.radius, travel + self.radius * angle_of(None, parent, child)]
            )
        lowest = jnp.dot(parent.vector(n), self._lowest(parent, child))
        return (jnp.dot(n, d) + lowest)[None]

    def slip(self, t: Time, placements: tuple[AnyPlacement, ...], twists: tuple[Twist, ...]) -> Array | None:
        if self.dimension == 2:
            return None
        parent, child = placements
        contact = child.point(self.centre) + self._lowest(parent, child)
        slip = jnp.cross(twists[1].omega, contact - child.p) + twists[1].velocity
        slip = slip - jnp.cross(twists[0].omega, contact - parent.p) - twists[0].velocity
        return jnp.stack([jnp.dot(parent.vector(n), slip) for n in across(self.normal)])
