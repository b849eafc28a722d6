"""Actuators of a file: forces on joints, tendons and sites that follow inputs, and activations, which are states."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._compiler import find_dependence
from .._misc._arguments import real_array
from .._misc._errors import InputError, format_value
from .._misc._types import Coordinates, Forces, Time, Velocities, as_jax
from ..mechanisms import AbstractTreeLoad, Touched, TreeMotion, TreeSystem
from ._controllers import ActuatorState
from ._laws import Laws, clip_some
from ._lengths import Lengths
from ._passive import GravityCompensation
from ._transmissions import AbstractTransmission

Control = Array | Callable[..., Array]
"""Inputs: an array (nu,), or a function of (t) or (t, q, v) that returns one."""


@final
class ActuatorInputs(eqx.Module):
    """The inputs of all actuators."""

    law: Control  # constant, or a function
    takes: int = eqx.field(static=True)  # how many arguments the function takes
    names: tuple[str, ...] = eqx.field(static=True)  # of the actuators

    def with_values(self, ctrl: Any) -> "ActuatorInputs":
        """With other inputs."""
        return self if ctrl is None else ActuatorInputs(_check_input("ctrl", ctrl, self.law), 0, self.names)

    def __call__(self, t: Time, *state: Array) -> Float[Array, " nu"]:
        if not callable(self.law):
            return self.law
        return jnp.asarray(self.law(t, *state[: self.takes - 1]))


@final
class TotalLimits(eqx.Module):
    """Ranges of what all actuators together come to, on joints and on tendons."""

    joint_ranges: Float[Array, "j 2"]
    tendon_ranges: Float[Array, "t 2"]
    # `joints`: of each joint that has one, its velocity's number; with `joint_ranges` (j, 2).
    joints: tuple[int, ...] = eqx.field(static=True)
    # `compensated`: whether the compensation of gravity counts among what acts there.
    compensated: tuple[bool, ...] = eqx.field(static=True)
    # `tendons`: which actuators pull on each tendon that has one; with `tendon_ranges` (t, 2).
    tendons: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    def on_tendons(self, force: Float[Array, " k"]) -> Float[Array, " k"]:
        """The forces of actuators, made smaller by one share where those on a tendon exceed its range."""
        for own, (low, high) in zip(self.tendons, self.tendon_ranges, strict=True):
            at = np.array(own)
            total = jnp.sum(force[at])
            within = jnp.clip(total, low, high)
            share = jnp.where(within == total, 1.0, within / jnp.where(total == 0, 1.0, total))
            force = force.at[at].multiply(share)
        return force


@final
class Actuators(AbstractTreeLoad):
    """The actuators of a file.

    `effort` has their forces, and behind them what the limits of the joints take away from what they come to there;
    `rate` the rates of their lengths, and of those joints.

    - `lengths`: of those on joints and on fixed tendons, which come first.
    - `transmissions`: of those on sites and on spatial tendons.
    - `laws`: of all.
    - `inputs`: theirs; `input_range` (nu, 2), and `clamped`, whether an input is clipped to it; `delays` of those that
      are functions of time alone [s], of which nothing comes before t = 0.
    - `start`: the activations to start with (na,).
    - `limits`: of total forces.
    - `compensation`: of gravity, which may count among what is limited.
    - `gear`: the ratio that is in the lengths (k,); `geared` says which have one, unlike those on balls and free joints.
    - `which`: the numbers of the actuators.
    - `states`: names of the activations.
    """

    name: str = eqx.field(static=True)
    lengths: Lengths
    transmissions: tuple[AbstractTransmission, ...]
    laws: Laws
    inputs: ActuatorInputs
    input_range: Float[Array, "nu 2"]
    start: Float[Array, " na"]
    limits: TotalLimits
    compensation: GravityCompensation | None
    gear: Float[Array, " k"]
    clamped: tuple[bool, ...] = eqx.field(static=True)
    delays: tuple[float, ...] = eqx.field(static=True)
    geared: tuple[int, ...] = eqx.field(static=True)
    which: tuple[int, ...] = eqx.field(static=True)
    activations: tuple[str, ...] = eqx.field(static=True)

    @property
    def states(self) -> tuple[str, ...]:
        return self.activations

    def touches(self, q: Coordinates, v: Velocities) -> Touched | None:
        seen = find_dependence(self.inputs, jnp.zeros((), q.dtype), q, v)
        if seen is None:
            return None
        bodies = [name for x in self.transmissions for name in x.bodies]
        bodies += [] if self.compensation is None else self.compensation.bodies
        return Touched(seen[1], {*seen[2], *self.lengths.touched, *self.limits.joints}, bodies)

    def _inputs(self, t: Time, q: Coordinates, v: Velocities) -> Float[Array, " nu"]:
        u = self.inputs(t, q, v).astype(q.dtype)
        for delay in {*self.delays} - {0.0} if self.inputs.takes == 1 else ():
            late = jnp.where(t >= delay, self.inputs(t - delay).astype(q.dtype), 0.0)
            u = jnp.where(np.array(self.delays) == delay, late, u)
        return clip_some(u, self.input_range, self.clamped)

    def lengths_of(self, motion: TreeMotion) -> Float[Array, " k"]:
        of = lambda x: x.length([motion.placements[name] for name in x.bodies])
        return jnp.concatenate([self.lengths(motion.q), *(of(x)[None] for x in self.transmissions)])

    def _rates(self, motion: TreeMotion) -> Float[Array, " k"]:
        ends = lambda by_name, x: [by_name[name] for name in x.bodies]
        of = lambda x: x.rate(ends(motion.placements, x), ends(motion.twists, x))
        return jnp.concatenate([self.lengths.rate(motion.v), *(of(x)[None] for x in self.transmissions)])

    def rate(self, motion: TreeMotion) -> Float[Array, " k+j"]:
        return jnp.concatenate([self._rates(motion), motion.v[np.array(self.limits.joints, int)]])

    def _state(self, motion: TreeMotion) -> ActuatorState:
        u = self._inputs(motion.t, motion.q, motion.v)
        return ActuatorState(u, motion.z, self.lengths_of(motion), self._rates(motion))

    def effort(self, motion: TreeMotion) -> Float[Array, " k+j"]:
        force = self._forces(self._state(motion))
        return jnp.concatenate([force, self._limit_excess(motion, force)])

    def state_rate(self, motion: TreeMotion) -> Float[Array, " na"]:
        return self.laws.state_rate(self._state(motion))

    def coordinate_force(self, t: Time, q: Coordinates, v: Velocities, z: Array) -> Forces:
        # Of the others only how activations follow inputs: their lengths are not known here.
        still = jnp.zeros(len(self.transmissions), q.dtype)
        length, rate = (jnp.concatenate([x, still]) for x in (self.lengths(q), self.lengths.rate(v)))
        state = ActuatorState(self._inputs(t, q, v), z, length, rate)
        Q = jax.vjp(self.lengths.rate, v)[1](self._forces(state)[: len(self.lengths)])[0]
        return Q if not z.size else jnp.concatenate([Q[: -z.size], self.laws.state_rate(state)])

    def _forces(self, state: ActuatorState) -> Float[Array, " k"]:
        within = self.laws.clip(self.limits.on_tendons(self.laws.force(state)))
        return within + self.laws.free_force(state) if self.laws.controllers else within

    def _limit_excess(self, motion: TreeMotion, force: Float[Array, " k"]) -> Float[Array, " j"]:
        joints = np.array(self.limits.joints, int)
        if not joints.size:
            return jnp.zeros(0, force.dtype)
        if self.transmissions:
            total = motion.generalized(self._rates, force)[joints]
        else:
            total = jax.vjp(self.lengths.rate, motion.v)[1](force)[0][joints]
        if any(self.limits.compensated):
            weights: Any = self.compensation
            of = lambda motion: weights.rate({}, motion.placements, motion.twists)
            carried = motion.generalized(of, weights.forces)[joints]
            total = total + jnp.where(np.array(self.limits.compensated), carried, 0.0)
        return clip_some(total, self.limits.joint_ranges, [True] * len(joints)) - total


def with_inputs(system: TreeSystem, inputs: ActuatorInputs) -> TreeSystem:
    """A robot's tree with other inputs of its actuators."""
    given = lambda x: eqx.tree_at(lambda x: x.inputs, x, inputs) if isinstance(x, Actuators) else x
    return dataclasses.replace(system, on_tree=tuple(map(given, system.on_tree)))


def actuators_of(system: TreeSystem) -> Actuators | None:
    """The actuators of a robot's tree; None where there are none."""
    return next((load for load in system.on_tree if isinstance(load, Actuators)), None)


def _check_input(name: str, value: Any, like: Any) -> Array:
    array = real_array(name, value)
    if not callable(like) and array.shape != jnp.shape(like):
        raise InputError(f"{name} has shape {array.shape}; this robot needs {jnp.shape(like)}.")
    return array


@final
class ControlMatrix(eqx.Module):
    """What a small change of each input adds to the generalized force at rest, near the inputs there are."""

    system: TreeSystem  # a robot's tree
    actuators: Actuators  # its actuators

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the actuators."""
        return self.actuators.inputs.names

    def force(self, t: Time, q: Coordinates, v: Velocities, u: Array) -> Forces:
        """What small changes u of the inputs add to the generalized force."""
        own = self.actuators.inputs
        changed = ActuatorInputs(own(t, q, v).astype(q.dtype) + u, 0, own.names)
        return with_inputs(self.system, changed).force(t, q, v) - self.system.force(t, q, v)

    def __call__(self, t: Time, q: Coordinates) -> Float[Array, "n nu"]:
        z = self.actuators.start.astype(q.dtype)
        v = jnp.concatenate([jnp.zeros(len(self.system.velocity_labels) - z.size, q.dtype), z])
        return jax.jacfwd(lambda u: self.force(t, q, v, u))(jnp.zeros(len(self.labels), q.dtype))


def control_matrix(system: TreeSystem) -> ControlMatrix | None:
    """B_u of a robot's actuators; None where there are none."""
    actuators = actuators_of(system)
    return None if actuators is None else ControlMatrix(system, actuators)


def inputs_of(ctrl: Any, ctrl0: np.ndarray | Array, names: tuple[str, ...]) -> ActuatorInputs:
    """The inputs of all actuators."""
    if callable(ctrl):
        return ActuatorInputs(ctrl, _count_arguments(ctrl), names)  # pyright: ignore[reportArgumentType]
    return ActuatorInputs(as_jax(ctrl0) if ctrl is None else _check_input("ctrl", ctrl, ctrl0), 0, names)


def _count_arguments(ctrl: Callable[..., Any]) -> int:
    for count in (1, 3):
        try:
            inspect.signature(ctrl).bind(*range(count))
        except (TypeError, ValueError):  # the latter of classes of Python, which do not say what they take
            continue
        return count
    raise InputError(f"ctrl must be a function of (t) or (t, q, v), got {format_value(ctrl)}.")
