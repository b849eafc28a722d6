"""Passive forces of a robot's joints: springs, dampers, armature, and the compensation of weights."""

from typing import Any, final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._misc._lie import quaternion_product
from .._misc._types import Coordinates, Time, Velocities, as_jax
from ..mechanisms import GROUND, AbstractCoordinateLoad, AbstractLoad
from ..mechanisms._loads import Bodies, Placements, Twists
from ..mechanisms._placement import norm, rate_of
from ._bodies import joints_by_kind
from ._reference import Reference, mujoco
from ._report import Feature, FeatureParts
from ._state import Conversion, conjugate, conversion, rotation_vector, state_of


@final
class JointSprings(AbstractCoordinateLoad):
    """Springs on hinges and slides: effort -(k0 + k1 x + k2 x^2) x, with x = q - rest."""

    stiffness: Float[Array, "k 3"]  # k0, k1, k2 of each joint (k, 3)
    rest: Float[Array, " k"]  # where it is slack [rad], [m] (k,)
    # `places`: of their coordinates and of their velocities.
    places: tuple[tuple[int, ...], tuple[int, ...]] = eqx.field(static=True)
    name: str = eqx.field(static=True, default="joint springs")

    def rate(self, q: Coordinates, v: Velocities) -> Float[Array, " k"]:
        return v[np.array(self.places[1])]

    def _stretch(self, q: Coordinates) -> Float[Array, " k"]:
        return q[np.array(self.places[0])] - self.rest

    def effort(self, t: Time, q: Coordinates, v: Velocities) -> Float[Array, " k"]:
        return -_polynomial(self.stiffness, self._stretch(q)) * self._stretch(q)

    def potential(self, q: Coordinates) -> Float[Array, ""]:
        return jnp.sum(_energy(self.stiffness, self._stretch(q)))


@final
class BallSpring(AbstractCoordinateLoad):
    """A spring on a ball, or on the displacement or the rotation of a free joint: effort -(k0 + k1 |x| + k2 |x|^2) x.

    Of a rotation x is the vector along its axis as long as its angle, in body axes.
    """

    name: str = eqx.field(static=True)
    stiffness: Float[Array, "3"]  # k0, k1, k2 (3,)
    rest: Array  # the displacement [m] (3,) or the quaternion of the tree (4,) at which it is slack
    places: tuple[int, int] = eqx.field(static=True)  # where its coordinates and its velocities start

    def rate(self, q: Coordinates, v: Velocities) -> Float[Array, "3"]:
        return v[self.places[1] : self.places[1] + 3]

    def _stretch(self, q: Coordinates) -> Float[Array, "3"]:
        now = q[self.places[0] : self.places[0] + self.rest.size]
        if self.rest.size == 3:
            return now - self.rest
        return rotation_vector(quaternion_product(conjugate(self.rest), now))

    def effort(self, t: Time, q: Coordinates, v: Velocities) -> Float[Array, "3"]:
        x = self._stretch(q)
        return -_polynomial(self.stiffness, norm(x)) * x

    def potential(self, q: Coordinates) -> Float[Array, ""]:
        return _energy(self.stiffness, norm(self._stretch(q)))


@final
class JointDamping(AbstractCoordinateLoad):
    """Damping of joints: effort -(c0 + c1 |v| + c2 v^2) v, each component for itself."""

    damping: Float[Array, "k 3"]  # c0, c1, c2 of each velocity (k, 3)
    places: tuple[int, ...] = eqx.field(static=True)  # of the velocities
    conversion: Conversion | None  # where components are those of MuJoCo: its axes turn with the body
    name: str = eqx.field(static=True, default="joint damping")

    def rate(self, q: Coordinates, v: Velocities) -> Float[Array, " k"]:
        return (v if self.conversion is None else self.conversion.rates(v))[np.array(self.places)]

    def effort(self, t: Time, q: Coordinates, v: Velocities) -> Float[Array, " k"]:
        rate = self.rate(q, v)
        return -_polynomial(self.damping, jnp.abs(rate)) * rate


@final
class GravityCompensation(AbstractLoad):
    """Constant forces that carry a share of the weight of bodies, at their centres."""

    carriers: tuple[str, ...] = eqx.field(static=True)  # the bodies of the tree they act on
    centres: Float[Array, "k 3"]  # in the reference posture [m] (k, 3)
    forces: Float[Array, "k 3"]  # in world axes [N] (k, 3)
    name: str = eqx.field(static=True, default="gravity compensation")

    @property
    def bodies(self) -> tuple[str, ...]:
        return self.carriers

    def rate(self, bodies: Bodies, placements: Placements, twists: Twists) -> Array:
        own = zip(self.carriers, self.centres, strict=True)
        return jnp.stack([rate_of(lambda p, x=x: p.point(x), [placements[b]], [twists[b]]) for b, x in own])

    def effort(self, bodies: Bodies, t: Time, placements: Placements, twists: Twists) -> Array:
        return self.forces

    def potential(self, bodies: Bodies, placements: Placements) -> Float[Array, ""]:
        points = [placements[b].point(x) for b, x in zip(self.carriers, self.centres, strict=True)]
        return -jnp.sum(self.forces * jnp.stack(points))


def _polynomial(of: Float[Array, "*k 3"], x: Float[Array, "*k"]) -> Float[Array, "*k"]:
    """of0 + of1 x + of2 x^2."""
    return of[..., 0] + (of[..., 1] + of[..., 2] * x) * x


def _energy(of: Float[Array, "*k 3"], x: Float[Array, "*k"]) -> Float[Array, "*k"]:
    """The integral of (of0 + of1 x + of2 x^2) x from 0."""
    return (of[..., 0] / 2.0 + (of[..., 1] / 3.0 + of[..., 2] / 4.0 * x) * x) * x**2


def _coefficients(model: Any, kind: str, linear: str) -> np.ndarray:
    """A linear coefficient and, where MuJoCo has them, those of higher order (k, 3)."""
    first = getattr(model, f"{kind}_{linear}")
    more = getattr(model, f"{kind}_{linear}poly", np.zeros((len(first), 2)))
    return np.concatenate([first[:, None], more], axis=1)


def from_actuators(at: Reference, kind: str, of_actuators: np.ndarray) -> np.ndarray:
    """What actuators add to each joint (`"jnt"`) or tendon (`"tendon"`) that they drive, by the square of their gear."""
    model, trn = at.model, mujoco().mjtTrn
    drivers = getattr(
        model, f"{kind}_actuatorid", np.full(model.njnt if kind == "jnt" else model.ntendon, -1)
    )
    ways = (trn.mjTRN_TENDON,) if kind == "tendon" else (trn.mjTRN_JOINT, trn.mjTRN_JOINTINPARENT)
    added = np.zeros((len(drivers), *of_actuators.shape[1:]))
    for target, driver in enumerate(drivers):  # -2 for several
        every = np.flatnonzero(np.isin(model.actuator_trntype, ways) & (model.actuator_trnid[:, 0] == target))
        for i in [driver] if driver >= 0 else every if driver < -1 else ():
            added[target] += model.actuator_gear[model.actuator_outadr[i], 0] ** 2 * of_actuators[i]
    return added


def armature(at: Reference) -> tuple[np.ndarray | None, list[Feature]]:
    """What velocities move besides the bodies (nv,), and the report on it."""
    values = np.array(at.model.dof_armature)
    if hasattr(at.model, "actuator_armature"):
        values += from_actuators(at, "jnt", at.model.actuator_armature)[at.model.dof_jntid]
    return (values if values.any() else None), [Feature("armature", _joints_with(at, values))]


def _joints_with(at: Reference, values: np.ndarray) -> tuple[str, ...]:
    has = np.abs(values).reshape(len(values), -1).any(axis=1)
    return tuple(at.names.joints[i] for i in dict.fromkeys(at.model.dof_jntid[has].tolist()))


def damping(at: Reference) -> FeatureParts:
    """Damping of joints, that of the actuators on them included."""
    values = _coefficients(at.model, "dof", "damping")
    if hasattr(at.model, "actuator_damping"):
        of_joints = from_actuators(at, "jnt", _coefficients(at.model, "actuator", "damping"))
        values = values + of_joints[at.model.dof_jntid]
    if at.is_disabled("DAMPER") or at.is_disabled("PASSIVE") or not values.any():
        return FeatureParts()
    places = tuple(np.flatnonzero(values.any(axis=1)).tolist())
    turning = joints_by_kind(at)["ball"] + joints_by_kind(at)["free"]
    of_balls = [i for i in places if at.model.dof_jntid[i] in turning]
    turned = conversion(at) if values[of_balls, 1:].any() else None
    load = JointDamping(damping=as_jax(values[list(places)]), places=places, conversion=turned)
    return FeatureParts((load,), features=(Feature("joint damping", _joints_with(at, values)),))


def springs(at: Reference) -> FeatureParts:
    """Springs of joints."""
    values, model = _coefficients(at.model, "jnt", "stiffness"), at.model
    if at.is_disabled("SPRING") or at.is_disabled("PASSIVE") or not values.any():
        return FeatureParts()
    stiff, of_kind = np.flatnonzero(values.any(axis=1)).tolist(), joints_by_kind(at)
    starts = lambda i: (int(model.jnt_qposadr[i]), int(model.jnt_dofadr[i]))
    scalars = [i for i in stiff if i in of_kind["slide"] or i in of_kind["hinge"]]
    places = tuple(zip(*map(starts, scalars), strict=True))
    rest, _ = state_of(conversion(at), model.qpos_spring, np.zeros(model.nv))
    loads = list[AbstractCoordinateLoad]()
    if scalars:
        loads.append(JointSprings(as_jax(values[scalars]), as_jax(rest[list(places[0])]), places))  # pyright: ignore
    for i in stiff:
        name, (q, v) = at.names.joints[i], starts(i)
        if i in of_kind["free"]:
            loads.append(BallSpring(f"{name} spring", as_jax(values[i]), as_jax(rest[q : q + 3]), (q, v)))
            q, v, name = q + 3, v + 3, f"{name} rotation"
        if i not in scalars:
            loads.append(BallSpring(f"{name} spring", as_jax(values[i]), as_jax(rest[q : q + 4]), (q, v)))
    features = [Feature("joint spring", tuple(at.names.joints[i] for i in stiff))]
    yields = getattr(model, "jnt_springyield", np.zeros(model.njnt))
    plastic = tuple(at.names.joints[i] for i in stiff if yields[i] > 0)
    features.append(Feature("yield of a spring", plastic, "approximated", "the spring stays elastic"))
    return FeatureParts(tuple(loads), features=tuple(features))


def is_passive_off(at: Reference) -> bool:
    """Whether the file turns all passive forces off: with springs and dampers MuJoCo 4 leaves out the others, too."""
    both = hasattr(at.model, "nactuator") and at.is_disabled("SPRING") and at.is_disabled("DAMPER")
    return at.is_disabled("PASSIVE") or both


def compensation(at: Reference) -> FeatureParts:
    """Gravity compensation of bodies."""
    model = at.model
    has = [i for i in np.flatnonzero(model.body_gravcomp).tolist() if at.carriers[i] != GROUND]
    if not has or at.is_disabled("GRAVITY") or is_passive_off(at) or not model.opt.gravity.any():
        return FeatureParts()
    shares = (model.body_gravcomp * model.body_mass)[has]
    load = GravityCompensation(
        carriers=tuple(at.carriers[i] for i in has),
        centres=as_jax(np.array(at.data.xipos[has])),
        forces=as_jax(-shares[:, None] * model.opt.gravity),
    )
    return FeatureParts(
        (load,), features=(Feature("gravity compensation", tuple(at.names.bodies[i] for i in has)),)
    )
