"""What the actuators of a model work on: lengths that are linear in the coordinates, or transmissions to bodies."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from .._misc._types import as_jax
from ..mechanisms import GROUND
from ._lengths import Term
from ._mujoco import mujoco
from ._paths import Anchor
from ._reference import Reference
from ._rows import RefusedError, frame_of
from ._transmissions import AbstractTransmission, Crank, SiteAgainst, SiteTransmission


def _servo(model: Any, i: int) -> bool:
    """Whether its force depends on its length."""
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
    frame = frame_of(at, "body", int(model.jnt_bodyid[joint]))[2]
    ball = kind == kinds.mjJNT_BALL
    turning = frame @ (gear[:3] if ball else gear[3:])
    forces = turning if ball else np.concatenate([gear[:3], turning])
    return (
        [(None, v + k, float(x)) for k, x in enumerate(forces)],
        0.0,
        q if ball and _servo(model, i) else -1,
    )


def _is_carried_by(model: Any, body: int, ancestor: int) -> bool:
    """Whether a body is another, or is carried by it."""
    while body not in (0, ancestor):
        body = int(model.body_parentid[body])
    return body == ancestor


def make_site_transmission(at: Reference, i: int, gear: np.ndarray) -> AbstractTransmission:
    model = at.model
    site, other = (int(x) for x in model.actuator_trnid[i])
    carrier, point, frame = frame_of(at, "site", site)
    if other < 0:
        vectors = (as_jax(frame @ x) for x in (gear[:3], gear[3:]))
        return SiteTransmission((carrier,), as_jax(point), *vectors)
    origin_carrier, origin, axes = frame_of(at, "site", other)
    if not _is_carried_by(model, int(model.site_bodyid[site]), int(model.site_bodyid[other])):
        raise RefusedError("its reference site is on another branch, so here it exerts no force")
    if carrier == origin_carrier:
        raise RefusedError("both of its sites are on one body, so here it exerts no force")
    force, torque = (as_jax(axes @ x) for x in (gear[:3], gear[3:]))
    turns = as_jax(np.stack([axes, frame])) if np.any(gear[3:]) and _servo(model, i) else None
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
    carrier, point, frame = frame_of(at, "body", body)
    servo, zero = _servo(model, i), jnp.zeros(3)
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
        carrier, _, frame = frame_of(at, "body", body)
        origin, axes = at.carriers[model.body_parentid[body]], frame
    else:
        if not _is_carried_by(model, int(model.site_bodyid[target]), int(model.site_bodyid[other])):
            raise RefusedError("its reference site is on another branch, so here it exerts no force")
        (carrier, _, frame), (origin, _, axes) = (frame_of(at, "site", x) for x in (target, other))
    zero, turns = jnp.zeros(3), as_jax(np.stack([axes, frame]))
    return [SiteAgainst((origin, carrier), zero, zero, zero, as_jax(x), turns) for x in axes.T]


def crank(at: Reference, i: int, gear: np.ndarray) -> AbstractTransmission:
    model = at.model
    pin, slider = (frame_of(at, "site", int(x)) for x in model.actuator_trnid[i])
    names = tuple(dict.fromkeys((pin[0], slider[0])))
    rod = float(model.actuator_cranklength[i])
    first, second = (Anchor(names.index(x[0]), as_jax(x[1])) for x in (pin, slider))
    axis = as_jax(slider[2][:, 2])
    return Crank(names, first, second, axis, as_jax(rod), as_jax(float(gear[0])))
