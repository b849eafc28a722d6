"""A robot: its problem and mechanism, its report, and conversions to MuJoCo's states."""

import dataclasses
from collections.abc import Mapping
from typing import final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._compiler import compile_small, evaluate_at_state
from .._formula._acceleration import UdwadiaKalaba
from .._formula._on_host import acceleration_at
from .._misc._arguments import real_array, real_values
from .._misc._closures import equal_to_itself
from .._misc._display import html_of
from .._misc._errors import InputError, require_known
from .._misc._types import Coordinates, Forces, Numbers, Time, Velocities, as_jax, is_traced
from .._motion._model import nearest_start
from .._system._constraint import bilateral
from .._system._problem import Problem
from ..mechanisms import GROUND, TreeSystem
from ..mechanisms._postures import with_unit_quaternions
from ._actuators import ActuatorInputs, Control, inputs_of, with_inputs
from ._clear import without_contacts
from ._mocap import GivenPose, MocapDrive, Motion, check_motions, with_motions
from ._parameters import Axes, parameters, with_parameters
from ._reference import Names
from ._report import RobotReport
from ._sensor_kinds import SensorTable
from ._sensors import Sensors
from ._state import Conversion


@final
@equal_to_itself
class Frames(eqx.Module):
    """The places of a robot's bodies and sites, as functions of its coordinates."""

    mechanism: TreeSystem
    carriers: dict[str, str] = eqx.field(static=True)  # what carries each, by name
    places: dict[str, Array]  # in the reference posture [m] (3,), by name
    # `turns`: the axes that the file gives the tree's bodies, as columns in the reference posture (3, 3), by name.
    turns: dict[str, Array]

    def axes(self, starts: dict[str, Array], actuators: tuple[str, ...]) -> Axes:
        """The frames of the tree's bodies and the ground in the reference posture, and what else has the file's names."""
        ground = jnp.zeros(3, self.mechanism.q0.dtype), jnp.eye(3, dtype=self.mechanism.q0.dtype)
        own = {name: self.places[name] for name in self.turns}
        return Axes(own | {GROUND: ground[0]}, self.turns | {GROUND: ground[1]}, starts, actuators)

    def __call__(self, t: Time | float, q: Coordinates) -> dict[str, Float[Array, "3"]]:
        """The world places of all bodies' origins and all sites [m], by their names in the file."""
        q = real_array("q", q)
        t = real_array("t", t).astype(q.dtype)
        if is_traced((self, t, q)):
            return _compute_places(self, t, q)
        places = evaluate_at_state(_places, self, t, q)
        return {name: as_jax(places[name]) for name in self.places}


def _places(frames: Frames, t: Time, q: Coordinates) -> dict[str, Float[Array, "3"]]:
    placements = frames.mechanism.placements(t, q)
    places = frames.places.items()
    return {name: placements[frames.carriers[name]].point(x.astype(q.dtype)) for name, x in places}


_compute_places = compile_small(_places)


@final
class Robot(eqx.Module):
    """A robot from a file; made by `load`.

    - `problem`: the `Problem`, at the keyframe or the reference posture, with its loops closed.
    - `mechanism`: its system, a tree of `ukjax.mechanisms`: `mechanism.labels` are the file's joint names.
    - `report`: what became of each feature of the file.
    - `names`: of bodies, joints, sites, tendons, actuators, equalities, keyframes and sensors, by MuJoCo's numbers.
    - `points`: points(t, q), the places of all bodies and sites [m].
    - `sensors`: sensors(t, q, v), what the sensors of the file read.
    """

    problem: Problem
    report: RobotReport = eqx.field(static=True)
    names: Names = eqx.field(static=True)
    conversion: Conversion
    inputs: ActuatorInputs
    table: SensorTable

    def __repr__(self) -> str:
        """One line: what it is, and how large."""
        tree = self.mechanism
        return (
            f"Robot '{self.problem.name}': {len(tree.bodies)} bodies, {self._sizes[1]} velocities, "
            f"{len(tree.constraints)} constraints, {len(self.inputs.names)} inputs"
        )

    def _repr_html_(self) -> str:
        return html_of(self)

    @property
    def mechanism(self) -> TreeSystem:
        """The robot's system."""
        assert isinstance(self.problem.system, TreeSystem)
        return self.problem.system

    @property
    def points(self) -> Frames:
        """Places by name."""
        assert isinstance(self.problem.points, Frames)
        return self.problem.points

    @property
    def sensors(self) -> Sensors:
        """What the sensors of the file read."""
        return Sensors(self.mechanism, self.conversion, self.table, tuple(range(len(self.table.sensors))))

    def _checked(self, name: str, value: Numbers, size: int) -> Array:
        array = real_values(name, value)
        if array.shape != (size,):
            raise InputError(f"{name} has shape {array.shape}; this robot needs ({size},).")
        return jnp.asarray(array)

    @property
    def _sizes(self) -> tuple[int, int, int]:
        tree = self.mechanism
        states = len(tree.state_labels)
        return len(tree.labels), len(tree.velocity_labels) - states, states

    def state_from_mujoco(
        self, qpos: Numbers, qvel: Numbers, act: Numbers | None = None
    ) -> tuple[Coordinates, Velocities]:
        """q and v of a state of MuJoCo; activations are the end of v.

        **Arguments:**

        - `qpos`: MuJoCo's coordinates (nq,) [rad], [m] and quaternions.
        - `qvel`: its velocities (nv,).
        - `act`: its activations (na,); by default those the robot starts with.

        **Raises:** `InputError` for wrong shapes.
        """
        n_q, n, n_z = self._sizes
        qpos, qvel = self._checked("qpos", qpos, n_q), self._checked("qvel", qvel, n)
        # Without an actuator that is used there are no activations, whatever the file has.
        z = self._checked("act", act, n_z) if act is not None and n_z else self.problem.v0[n:]
        v = jnp.concatenate([self.conversion.velocities(qvel), z.astype(qvel.dtype)])
        return self.conversion.coordinates(qpos), v

    def state_to_mujoco(self, q: Numbers, v: Numbers) -> tuple[Array, Array]:
        """qpos and qvel of a state of ours; act is v[nv:] as it stands.

        **Arguments:**

        - `q`: coordinates of the tree (nq,).
        - `v`: its velocities, activations included (nv + na,).

        **Raises:** `InputError` for wrong shapes.
        """
        n_q, n, n_z = self._sizes
        q, v = self._checked("q", q, n_q), self._checked("v", v, n + n_z)
        return self.conversion.positions(q), self.conversion.rates(v[:n])

    def with_inputs(self, ctrl: Control | Numbers) -> "Robot":
        """The same robot with other inputs of its actuators; nothing is read again.

        **Arguments:**

        - `ctrl`: as for `load`; an array may be one that JAX traces.

        **Raises:** `InputError` as `load` does.
        """
        inputs = inputs_of(ctrl, np.zeros(len(self.inputs.names)), self.inputs.names)
        problem = dataclasses.replace(self.problem, system=with_inputs(self.mechanism, inputs))
        return dataclasses.replace(self, problem=problem, inputs=inputs)

    def with_mocap(self, motions: Mapping[str, Motion]) -> "Robot":
        """The same robot with other motions of mocap bodies; nothing is read again. The start is brought onto them.

        **Arguments:**

        - `motions`: by names of bodies that `load` was given motions of; as for `load`.

        **Raises:** `InputError` for other names, and as `load` does.
        """
        tree = with_motions(self.mechanism, check_motions(motions))
        q0, v0 = nearest_start(
            without_contacts(tree), jnp.asarray(self.problem.t0), self.problem.q0, self.problem.v0
        )
        points = dataclasses.replace(self.points, mechanism=tree)
        q0 = with_unit_quaternions(tree, q0)
        problem = dataclasses.replace(self.problem, system=tree, q0=q0, v0=v0, points=points)
        return dataclasses.replace(self, problem=problem)

    def mocap_drive(self, *names: str) -> MocapDrive:
        """Actions of an `Environment` that move mocap bodies: its `apply`.

        **Arguments:**

        - `names`: of bodies that `load` was given motions of, which say where they start; by default all of them.

        **Returns:** the drive. An action has for each body its velocity [m/s] and its angular velocity [rad/s] at the end
        of the step (6,), in world axes, which it comes to evenly, and behind these the inputs of the actuators (nu,).

        **Raises:** `InputError` for other names.
        """
        known = [x.child for x in self.mechanism.joints if isinstance(x, GivenPose)]
        require_known("mocap body with a motion:", known, *names)
        return MocapDrive(names or tuple(known), self.inputs)

    @property
    def parameters(self) -> dict[str, dict[str, Array]]:
        """The numbers that `with_parameters` changes, as they are: by kind, then by the file's names."""
        return parameters(self.mechanism, self._axes)

    @property
    def _axes(self) -> Axes:
        starts = dict(zip(self.mechanism.labels, self.conversion.qpos0, strict=True))
        return self.points.axes(starts, self.names.actuators)

    def with_parameters(self, **changes: Mapping[str, Numbers]) -> "Robot":
        """The same robot with other numbers, which JAX may trace; nothing is read again.

        What is on a body keeps its place there: another `position` of a body moves it with all it carries. The start is
        brought onto loops that this opens. A body is one of the tree, with all that is fixed to it.

        **Arguments:** of these kinds, each a mapping of names to values:

        - `mass`: of bodies [kg].
        - `centre`: of mass, in the body's axes in the file [m] (3,).
        - `inertia`: about the centre of mass, in those axes [kg m^2] (3, 3).
        - `position`: of a body's frame in that of the body that carries it by joints, the `pos` of an MJCF [m] (3,); a
          link's length.
        - `anchor`: of a connect, where it is on its first and on its second body, in their axes [m] (2, 3).
        - `damping`: linear, of joints [N m s/rad] or [N s/m].
        - `stiffness`: linear, of hinges and slides that have a spring [N m/rad] or [N/m].
        - `armature`: of joints [kg m^2] or [kg].
        - `friction`: mu of contacts, by their names, such as `foot-floor`.
        - `restitution`: e of contacts, and of the stops of joints and tendons by theirs.
        - `frictionloss`: of joints and tendons that have dry friction [N m] or [N].
        - `limit`: the range of joints and tendons that have stops [rad] or [m] (2,).
        - `gain`, `bias`: of actuators: g and b of (g0 + g1 l + g2 l') u + b0 + b1 l + b2 l' (3,).
        - `gear`: of actuators on hinges, slides, tendons and cranks.

        Contacts, stops and dry friction are those that the robot was loaded with by `contact`.

        **Raises:** `InputError` for unknown kinds and names, for wrong shapes, and where loops do not close.
        """
        tree, opened = with_parameters(self.mechanism, self._axes, changes)
        q0, v0 = self.problem.q0, self.problem.v0
        if opened and bilateral(tree.constraints):
            q0, v0 = nearest_start(without_contacts(tree), jnp.asarray(self.problem.t0, q0.dtype), q0, v0)
            q0 = with_unit_quaternions(tree, q0)
        points = dataclasses.replace(self.points, mechanism=tree)
        problem = dataclasses.replace(self.problem, system=tree, q0=q0, v0=v0, points=points)
        return dataclasses.replace(self, problem=problem)

    def apply(self, t: Time, q: Coordinates, v: Velocities, ctrl: Array) -> Forces:
        """What inputs add to the generalized force, beside those the robot has: the `apply` of an `Environment`.

        **Arguments:**

        - `t`: time [s].
        - `q`, `v`: a state of the tree.
        - `ctrl`: of the actuators (nu,).

        **Returns:** a force (nv,) [N m], [N].

        **Raises:** `InputError` for a wrong shape.
        """
        driven = self.with_inputs(ctrl).mechanism
        return driven.force(t, q, v) - self.mechanism.force(t, q, v)

    def acceleration(
        self, qpos: Numbers, qvel: Numbers, ctrl: Numbers | None = None, act: Numbers | None = None
    ) -> Array:
        """qacc of a state, in MuJoCo's order and conventions: smooth forces and exact equalities only.

        **Arguments:**

        - `qpos`, `qvel`: the state, as for `state_from_mujoco`.
        - `ctrl`: of the actuators (nu,); by default as the robot was loaded.
        - `act`: activations of the actuators that have one (na,); by default those the robot starts with.

        **Returns:** qacc (nv,).

        **Raises:** `InputError` for wrong shapes.
        """
        return self._rates(qpos, qvel, ctrl, act)[0]

    def activation_rate(
        self, qpos: Numbers, qvel: Numbers, ctrl: Numbers | None = None, act: Numbers | None = None
    ) -> Array:
        """act_dot of a state (na,): how activations change. At an end of its range an activation stays.

        **Arguments:** as for `acceleration`.

        **Raises:** `InputError` for wrong shapes.
        """
        return self._rates(qpos, qvel, ctrl, act)[1]

    def _rates(
        self, qpos: Numbers, qvel: Numbers, ctrl: Numbers | None, act: Numbers | None
    ) -> tuple[Array, Array]:
        q, v = self.state_from_mujoco(qpos, qvel, act)
        system = without_contacts(with_inputs(self.mechanism, self.inputs.with_values(ctrl)))
        motion, n = acceleration_at(UdwadiaKalaba(), system, jnp.zeros((), q.dtype), q, v), self._sizes[1]
        return self.conversion.rates(motion.a[:n]), motion.a[n:]
