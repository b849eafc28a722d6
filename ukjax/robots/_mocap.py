"""Mocap bodies of a file that move as a function of time says: bodies on free joints, held to their motions."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._misc._arguments import call_user_function, real_array, require_function
from .._misc._errors import InputError, require_known
from .._misc._lie import exp_quaternion, quaternion_product, rotation_matrix, unit_quaternion
from .._misc._types import Coordinates, Time, Velocities
from .._system._drive import AbstractDrive
from .._system._system import AbstractSystem
from ..mechanisms import GROUND, AbstractJoint, Placement, TreeSystem
from ..mechanisms._placement import AnyPlacement, rate_of
from ._actuators import ActuatorInputs, with_inputs
from ._equalities import Weld
from ._reference import Reference
from ._report import Feature, FeatureParts

Motion = Array | Callable[[Time], Array]
"""Where a body is [m] (3,), or that and its quaternion, scalar first (7,): constant, or a function of time."""


@final
class GivenPose(AbstractJoint):
    """A body is where a motion says. 6 rows, as of a `Weld`."""

    name: str = eqx.field(static=True)
    child: str = eqx.field(static=True)
    motion: Motion  # as `Motion`; without a quaternion the body keeps the axes of the file
    weld: Weld  # of the body's frame to one that moves
    turns: ClassVar[bool] = True

    @property
    def parent(self) -> str:
        return GROUND

    @property
    def point(self) -> Array:
        return self.weld.point

    def _pose(self, t: Time) -> tuple[Float[Array, "3"], Float[Array, "3 3"]]:
        what = f"the motion of mocap body '{self.child}'"
        pose = call_user_function(what, self.motion, t) if callable(self.motion) else self.motion
        pose = real_array(f"what {what} returns", pose)
        if pose.shape not in ((3,), (7,)):
            raise InputError(f"{what} has shape {pose.shape}; it must be (3,), or (7,) with a quaternion.")
        pose = pose.astype(self.weld.frame.dtype)
        return pose[:3], self.weld.frame if pose.size == 3 else rotation_matrix(pose[3:])

    def rows(self, t: Time, *placements: AnyPlacement) -> Float[Array, "6"]:
        x, R = self._pose(t)
        return self.weld.rows(t, Placement(R, x, jnp.zeros_like(x)), placements[1])


@final
class VelocityRamp(eqx.Module):
    """A pose whose velocity changes evenly from that at the start to a given one: a motion of a mocap body."""

    t: Time  # where it starts
    dt: Array  # how long it takes
    start: Float[Array, "7"]  # place and quaternion
    first: Float[Array, "6"]  # velocity and angular velocity at the start
    last: Float[Array, "6"]  # likewise at the end

    def __call__(self, t: Time) -> Float[Array, "7"]:
        s = t - self.t
        moved = s * (self.first + (0.5 / self.dt) * s * (self.last - self.first))
        turned = quaternion_product(exp_quaternion(moved[3:]), self.start[3:])
        return jnp.concatenate([self.start[:3] + moved[:3], turned])


@final
class MocapDrive(AbstractDrive):
    """The motion of mocap bodies, and inputs of actuators, as actions of an `Environment`; `robot.mocap_drive(...)`.

    An action has for each body its velocity [m/s] and angular velocity [rad/s], in world axes, at the end of the step;
    they change evenly. Behind these it has the inputs of the actuators.
    """

    bodies: tuple[str, ...] = eqx.field(static=True)
    inputs: ActuatorInputs

    @property
    def size(self) -> int:
        return 6 * len(self.bodies) + len(self.inputs.names)

    def drive(
        self, system: AbstractSystem, t: Time, q: Coordinates, v: Velocities, action: Array, dt: Array
    ) -> AbstractSystem:
        if action.shape != (self.size,):
            raise InputError(
                f"an action for mocap bodies {self.bodies} has shape {action.shape}, not ({self.size},)."
            )
        own = {x.child: x.weld for x in getattr(system, "joints", ()) if isinstance(x, GivenPose)}
        require_known("mocap body with a motion:", own, *self.bodies)
        assert isinstance(system, TreeSystem)
        placed, moved = system.places.place_and_move(self.bodies, q, v)
        ramps, given = {}, action.astype(q.dtype)
        for k, name in enumerate(self.bodies):
            p: Any = placed[name]
            weld = own[name]
            start = jnp.concatenate([p.point(weld.point), unit_quaternion(p.R @ weld.frame)])
            velocity = rate_of(lambda p, x=weld.point: p.point(x), [p], [moved[name]])
            first = jnp.concatenate([velocity, moved[name].omega])
            ramps[name] = VelocityRamp(t, dt, start, first, given[6 * k : 6 * k + 6])
        tree = with_motions(system, ramps)
        return with_inputs(tree, self.inputs.with_values(given[6 * len(self.bodies) :]))


def check_motions(given: Any) -> dict[str, Motion]:
    """The motions of mocap bodies, by name."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InputError(f"mocap must map names of bodies to motions, got {given!r}.")
    for name, motion in given.items():
        if callable(motion):
            require_function(f"the motion of mocap body '{name}'", motion, "t")
    motions: Any = {
        name: x if callable(x) else real_array(f"the pose of '{name}'", x) for name, x in given.items()
    }
    return motions


def set_mocap_free(spec: Any, names: tuple[str, ...]) -> None:
    """Gives mocap bodies free joints, in the keyframes too."""
    if not names:
        return
    known = [body.name for body in spec.bodies if body.mocap]
    before = spec.copy().compile()
    for name in names:
        require_known("mocap body:", known, name)
        body = spec.body(name)
        body.mocap, body.gravcomp = False, 1.0
        body.add_freejoint(name=f"{name} mocap")
        if not body.explicitinertial:  # any will do: its motion is given
            body.explicitinertial, body.mass, body.inertia = True, 1.0, np.full(3, 0.01)
    _complete_keyframes(spec, before, names)


def _complete_keyframes(spec: Any, before: Any, names: tuple[str, ...]) -> None:
    """The coordinates and velocities of the new joints in each keyframe."""
    if not spec.keys:
        return
    for key in spec.keys:
        key.qpos, key.qvel, key.mpos, key.mquat = [], [], [], []
    after, body = spec.copy().compile(), before.body
    mine = {after.joint(f"{name} mocap").id: int(body(name).mocapid[0]) for name in names}
    own_q, own_v = np.zeros(after.nq, bool), np.zeros(after.nv, bool)  # all others keep their order
    for j in mine:
        own_q[after.jnt_qposadr[j] :][:7], own_v[after.jnt_dofadr[j] :][:6] = True, True
    left = np.setdiff1d(np.arange(before.nmocap), list(mine.values()))
    for i, key in enumerate(spec.keys):
        qpos, qvel = np.zeros(after.nq), np.zeros(after.nv)
        qpos[~own_q], qvel[~own_v] = before.key_qpos[i], before.key_qvel[i]
        poses = before.key_mpos[i].reshape(-1, 3), before.key_mquat[i].reshape(-1, 4)
        for j, k in mine.items():
            qpos[after.jnt_qposadr[j] :][:7] = np.concatenate([x[k] for x in poses])
        key.qpos, key.qvel = qpos, qvel
        key.mpos, key.mquat = (x[left].ravel() for x in poses)


def mocap(at: Reference, motions: Mapping[str, Motion]) -> FeatureParts:
    """The motions of mocap bodies as loops of the tree."""
    poses = []
    for name, motion in motions.items():
        i = at.names.bodies.index(name)
        carrier, point, axes = at.frame("body", i)
        zero, unit = np.zeros(3), np.eye(3)
        weld = Weld(f"motion of {name}", GROUND, carrier, zero, point, unit, axes)
        fields: Any = {"name": weld.name, "child": carrier, "motion": motion, "weld": weld}
        poses.append(GivenPose(**fields))
    return FeatureParts(
        loops=tuple(poses), features=(Feature("mocap body", tuple(motions), why="moves as given"),)
    )


def with_motions(tree: TreeSystem, motions: Mapping[str, Motion]) -> TreeSystem:
    """A robot's tree with other motions of mocap bodies."""
    places = {x.child: i for i, x in enumerate(tree.joints) if isinstance(x, GivenPose)}
    require_known("mocap body with a motion:", places, *motions)
    at = lambda x: [x.mechanism.joints[places[name]].motion for name in motions]
    return eqx.tree_at(at, tree, list(motions.values()))
