"""How actuators on sites and spatial tendons act on bodies: a length, and the rate that their force works on."""

import abc
from collections.abc import Sequence
from typing import Any, final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._misc._lie import unit_quaternion
from .._misc._types import as_jax
from ..mechanisms import GROUND
from ..mechanisms._placement import AnyPlacement, Twist, rate_of
from ._lengths import Anchor, Path, Term
from ._reference import Reference, mujoco
from ._report import RefusedError
from ._state import rotation_vector

Ends = Sequence[AnyPlacement]


class AbstractTransmission(eqx.Module):
    """A length of bodies, and a rate. Concrete ones: `PathTransmission`, `SiteTransmission`, `SiteAgainst`, `Crank`."""

    bodies: eqx.AbstractVar[tuple[str, ...]]

    @abc.abstractmethod
    def length(self, placements: Ends) -> Float[Array, ""]:
        """l, as the actuator knows it.

        **Arguments:**

        - `placements`: of `bodies`.
        """

    @abc.abstractmethod
    def rate(self, placements: Ends, twists: Sequence[Twist]) -> Float[Array, ""]:
        """What the force works on, linear in the twists.

        **Arguments:**

        - `placements`, `twists`: of `bodies`.
        """


@final
class PathTransmission(AbstractTransmission):
    """The length of a tendon that is a path, times a gear ratio."""

    bodies: tuple[str, ...] = eqx.field(static=True)
    path: Path
    gear: Float[Array, ""]

    def length(self, placements: Ends) -> Float[Array, ""]:
        return self.gear * self.path(*placements)

    def rate(self, placements: Ends, twists: Sequence[Twist]) -> Float[Array, ""]:
        return rate_of(lambda *p: self.length(p), placements, twists)


@final
class SiteTransmission(AbstractTransmission):
    """A force and a torque at a point of a body, in axes that turn with it; its length is zero."""

    bodies: tuple[str, ...] = eqx.field(static=True)
    point: Float[Array, "3"]
    # `force`, `torque`: of a unit input, in the reference posture, in world axes (3,).
    force: Float[Array, "3"]
    torque: Float[Array, "3"]

    def length(self, placements: Ends) -> Float[Array, ""]:
        return jnp.zeros((), placements[0].p.dtype)

    def rate(self, placements: Ends, twists: Sequence[Twist]) -> Float[Array, ""]:
        (body,), (twist,) = placements, twists
        velocity = rate_of(lambda p: p.point(self.point), placements, twists)
        return jnp.dot(body.vector(self.force), velocity) + jnp.dot(body.vector(self.torque), twist.omega)


@final
class SiteAgainst(AbstractTransmission):
    """A force and a torque between points of two bodies, in axes of the first; its length is the displacement, and what
    the second has turned against the first: the vector along the axis of that turn, as long as its angle.
    """

    bodies: tuple[str, ...] = eqx.field(static=True)
    origin: Float[Array, "3"]  # of the first body, from where it is measured [m] (3,)
    point: Float[Array, "3"]  # of the second (3,)
    # `force`, `torque`: of a unit input on the second, in the reference posture, in world axes (3,).
    force: Float[Array, "3"]
    torque: Float[Array, "3"]
    # `axes`: of both, in the reference posture, as columns (2, 3, 3), if it counts turns.
    axes: Float[Array, "2 3 3"] | None = None

    def _displacement(self, *placements: AnyPlacement) -> Float[Array, ""]:
        first, second = placements
        return jnp.dot(first.vector(self.force), second.point(self.point) - first.point(self.origin))

    def length(self, placements: Ends) -> Float[Array, ""]:
        moved = self._displacement(*placements)
        if self.axes is None:
            return moved
        first, second = (p.R @ axes for p, axes in zip(placements, self.axes, strict=True))  # pyright: ignore
        turned = rotation_vector(unit_quaternion(first.T @ second))
        return moved + jnp.dot(self.axes[0].T @ self.torque, turned)

    def rate(self, placements: Ends, twists: Sequence[Twist]) -> Float[Array, ""]:
        turning = twists[1].omega - twists[0].omega
        along = rate_of(self._displacement, placements, twists)
        return along + jnp.dot(placements[0].vector(self.torque), turning)


@final
class Crank(AbstractTransmission):
    """A slider on an axis that drives a pin by a rod of given length: a.d - sqrt((a.d)^2 + r^2 - d.d)."""

    bodies: tuple[str, ...] = eqx.field(static=True)
    # `pin`, `slider`: points.
    pin: Anchor
    slider: Anchor
    axis: Float[Array, "3"]  # of the slider's body in the reference posture (3,)
    rod: Float[Array, ""]  # r [m]
    gear: Float[Array, ""]  # a ratio

    def length(self, placements: Ends) -> Float[Array, ""]:
        axis = placements[self.slider.body].vector(self.axis)
        d = self.pin(placements) - self.slider(placements)
        along = jnp.dot(axis, d)
        square = along**2 + self.rod**2 - jnp.dot(d, d)
        root = jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)
        return self.gear * (along - root)

    def rate(self, placements: Ends, twists: Sequence[Twist]) -> Float[Array, ""]:
        return rate_of(lambda *p: self.length(p), placements, twists)


# --- What the actuators of a model work on


def _is_servo(model: Any, i: int) -> bool:
    return bool(model.actuator_gainprm[i][1] or model.actuator_biasprm[i][1]) and bool(
        model.actuator_gaintype[i] or model.actuator_biastype[i]
    )


def find_joint_terms(at: Reference, i: int, gear: np.ndarray) -> tuple[list[Term], float, int]:
    """The terms of its length, what it is in the reference posture, and where its quaternion starts, or -1."""
    model, joint = at.model, int(at.model.actuator_trnid[i][0])
    kind, kinds = int(model.jnt_type[joint]), mujoco().mjtJoint
    q, v = int(model.jnt_qposadr[joint]), int(model.jnt_dofadr[joint])
    if kind in (kinds.mjJNT_HINGE, kinds.mjJNT_SLIDE):
        return [(q, v, float(gear[0]))], float(gear[0] * model.qpos0[model.jnt_qposadr[joint]]), -1
    frame = at.frame("body", int(model.jnt_bodyid[joint]))[2]
    ball = kind == kinds.mjJNT_BALL
    turning = frame @ (gear[:3] if ball else gear[3:])
    forces = turning if ball else np.concatenate([gear[:3], turning])
    return (
        [(None, v + k, float(x)) for k, x in enumerate(forces)],
        0.0,
        q if ball and _is_servo(model, i) else -1,
    )


def _is_carried_by(model: Any, body: int, ancestor: int) -> bool:
    while body not in (0, ancestor):
        body = int(model.body_parentid[body])
    return body == ancestor


def make_site_transmission(at: Reference, i: int, gear: np.ndarray) -> AbstractTransmission:
    model = at.model
    site, other = (int(x) for x in model.actuator_trnid[i])
    carrier, point, frame = at.frame("site", site)
    if other < 0:
        vectors = (as_jax(frame @ x) for x in (gear[:3], gear[3:]))
        return SiteTransmission((carrier,), as_jax(point), *vectors)
    origin_carrier, origin, axes = at.frame("site", other)
    if not _is_carried_by(model, int(model.site_bodyid[site]), int(model.site_bodyid[other])):
        raise RefusedError("its reference site is on another branch, so here it exerts no force")
    if carrier == origin_carrier:
        raise RefusedError("both of its sites are on one body, so here it exerts no force")
    force, torque = (as_jax(axes @ x) for x in (gear[:3], gear[3:]))
    turns = as_jax(np.stack([axes, frame])) if np.any(gear[3:]) and _is_servo(model, i) else None
    return SiteAgainst((origin_carrier, carrier), as_jax(origin), as_jax(point), force, torque, turns)


def turns_in_parent(at: Reference, i: int) -> bool:
    """Whether an actuator works on a ball or a free joint, in axes of the parent."""
    kinds, model = mujoco().mjtJoint, at.model
    if model.actuator_trntype[i] != mujoco().mjtTrn.mjTRN_JOINTINPARENT:
        return False
    return int(model.jnt_type[model.actuator_trnid[i][0]]) in (kinds.mjJNT_BALL, kinds.mjJNT_FREE)


def make_parent_transmission(at: Reference, i: int, gear: np.ndarray) -> AbstractTransmission:
    """On a ball or a free joint, in axes of the parent, which are the body's own in the reference posture."""
    model, joint = at.model, int(at.model.actuator_trnid[i][0])
    body = int(model.jnt_bodyid[joint])
    carrier, point, frame = at.frame("body", body)
    servo, zero = _is_servo(model, i), jnp.zeros(3)
    if model.jnt_type[joint] == mujoco().mjtJoint.mjJNT_BALL:
        parent, turns = at.carriers[model.body_parentid[body]], as_jax(np.stack([frame, frame]))
        torque = as_jax(frame @ gear[:3])
        return SiteAgainst((parent, carrier), zero, zero, zero, torque, turns if servo else None)
    if servo:
        raise RefusedError("it is a servo of a free joint, which has no length, so here it exerts no force")
    force, torque = as_jax(gear[:3]), as_jax(gear[3:])
    return SiteAgainst((GROUND, carrier), as_jax(point), as_jax(point), force, torque)


def make_orientation(at: Reference, i: int) -> list[AbstractTransmission]:
    """The turns about three axes of a ball, in axes of the parent, or of a site, in those of another."""
    model, (target, other) = at.model, map(int, at.model.actuator_trnid[i])
    if other < 0:
        body = int(model.jnt_bodyid[target])
        carrier, _, frame = at.frame("body", body)
        origin, axes = at.carriers[model.body_parentid[body]], frame
    else:
        if not _is_carried_by(model, int(model.site_bodyid[target]), int(model.site_bodyid[other])):
            raise RefusedError("its reference site is on another branch, so here it exerts no force")
        (carrier, _, frame), (origin, _, axes) = (at.frame("site", x) for x in (target, other))
    zero, turns = jnp.zeros(3), as_jax(np.stack([axes, frame]))
    return [SiteAgainst((origin, carrier), zero, zero, zero, as_jax(x), turns) for x in axes.T]


def make_crank_transmission(at: Reference, i: int, gear: np.ndarray) -> AbstractTransmission:
    model = at.model
    pin, slider = (at.frame("site", int(x)) for x in model.actuator_trnid[i])
    names = tuple(dict.fromkeys((pin[0], slider[0])))
    rod = float(model.actuator_cranklength[i])
    first, second = (Anchor(names.index(x[0]), as_jax(x[1])) for x in (pin, slider))
    axis = as_jax(slider[2][:, 2])
    return Crank(names, first, second, axis, as_jax(rod), as_jax(float(gear[0])))
