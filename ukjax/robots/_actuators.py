"""Actuators of a file: forces on joints, tendons and sites that follow inputs u.

Each exerts f = (g0 + g1 l + g2 l') u + b0 + b1 l + b2 l' along its length l, with u and f clipped to their ranges. u
is an input or an activation, l the length of a joint or a tendon times a gear ratio.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._misc._arguments import real_array
from .._misc._errors import InputError, format_value
from .._misc._types import Coordinates, Time, Velocities, as_jax
from ..mechanisms._bodies import AbstractBody
from ..mechanisms._loads import AbstractCoordinateLoad, AbstractLoad, Placements, Twists, parts_of
from ..mechanisms._tree import TreeSystem
from ._lengths import Lengths
from ._transmissions import AbstractTransmission


@final
class Forces(eqx.Module):
    """What k actuators exert.

    - `gain`: g (k, 3).
    - `bias`: b (k, 3).
    - `input_range`, `range`: of u and f (k, 2), infinite where there is none.
    - `inputs`: which input each follows.
    - `states`: the activation of each; -1 for none.
    - `integrates`: whether that is an integral of the input, and not the input filtered.
    - `clamped`, `limited`: whether u and f have a range.
    """

    gain: Float[Array, "k 3"]
    bias: Float[Array, "k 3"]
    input_range: Float[Array, "k 2"]
    range: Float[Array, "k 2"]
    inputs: tuple[int, ...] = eqx.field(static=True)
    states: tuple[int, ...] = eqx.field(static=True)
    integrates: tuple[bool, ...] = eqx.field(static=True)
    clamped: tuple[bool, ...] = eqx.field(static=True)
    limited: tuple[bool, ...] = eqx.field(static=True)

    def __call__(
        self,
        inputs: "ActuatorInputs",
        u: Float[Array, " nu"],
        length: Float[Array, " k"],
        rate: Float[Array, " k"],
    ) -> Float[Array, " k"]:
        """f (k,)."""
        dtype = length.dtype
        gain, bias = self.gain.astype(dtype), self.bias.astype(dtype)
        u = _clip_to_ranges(u.astype(dtype)[np.array(self.inputs, int)], self.input_range, self.clamped)
        own = np.where(np.array(self.integrates) | inputs.held, np.array(self.states, int), -1)
        if np.any(own >= 0):
            u = jnp.where(own >= 0, inputs.activations.astype(dtype)[np.maximum(own, 0)], u)
        force = (gain[:, 0] + gain[:, 1] * length + gain[:, 2] * rate) * u
        force = force + bias[:, 0] + bias[:, 1] * length + bias[:, 2] * rate
        return _clip_to_ranges(force, self.range, self.limited)


def _clip_to_ranges(
    x: Float[Array, " k"], ranges: Float[Array, "k 2"], which: Sequence[bool]
) -> Float[Array, " k"]:
    if not any(which):
        return x
    ranges = ranges.astype(x.dtype)
    inside = jnp.minimum(jnp.maximum(x, ranges[:, 0]), ranges[:, 1])
    return inside if all(which) else jnp.where(np.array(which), inside, x)


Control = Array | Callable[..., Array]
"""Inputs: an array (nu,), or a function of (t) or (t, q, v) that returns one."""


@final
class ActuatorInputs(eqx.Module):
    """The inputs of all actuators.

    - `law`: constant, or a function.
    - `activations`: of those that have a state, constant (na,).
    - `takes`: how many arguments the function takes.
    - `held`: whether actuators with a filter follow their activation too; else they follow the input at once.
    - `names`: of the actuators.
    """

    law: Control
    activations: Float[Array, " na"]
    takes: int = eqx.field(static=True)
    held: bool = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)

    def replaced(self, ctrl: Any, act: Any) -> "ActuatorInputs":
        """With other inputs or activations, that all actuators which have one follow.

        **Raises:** `InputError` for other shapes.
        """
        law = self.law if ctrl is None else _check_input("ctrl", ctrl, self.law)
        activations = self.activations if act is None else _check_input("act", act, self.activations)
        return ActuatorInputs(law, activations, self.takes if ctrl is None else 0, True, self.names)

    def __call__(self, t: Time, *state: Array) -> Float[Array, " nu"]:
        if not callable(self.law):
            return self.law
        return jnp.asarray(self.law(t, *state[: self.takes - 1]))


@final
class Actuators(AbstractCoordinateLoad):
    """The actuators on joints and on fixed tendons.

    `effort` has their forces, and behind them what the limits of the joints take away from what they come to there;
    `rate` the rates of their lengths, and of those joints.

    - `lengths`: theirs.
    - `limits`: of each joint that has one, its velocity's number; with `joint_ranges` (j, 2).
    - `gear`: the ratio that is in the lengths (k,); `geared` says which have one, unlike those on balls and free joints.
    - `which`: the numbers of the actuators.
    """

    name: str = eqx.field(static=True)
    lengths: Lengths
    forces: Forces
    inputs: ActuatorInputs
    joint_ranges: Float[Array, "j 2"]
    limits: tuple[int, ...] = eqx.field(static=True)
    gear: Float[Array, " k"]
    geared: tuple[int, ...] = eqx.field(static=True)
    which: tuple[int, ...] = eqx.field(static=True)

    def rate(self, q: Coordinates, v: Velocities) -> Float[Array, " k+j"]:
        return jnp.concatenate([self.lengths.rate(v), v[np.array(self.limits, int)]])

    def effort(self, t: Time, q: Coordinates, v: Velocities) -> Float[Array, " k+j"]:
        u = self.inputs(t, q, v)
        force = self.forces(self.inputs, u, self.lengths(q), self.lengths.rate(v))
        return jnp.concatenate([force, self._beyond(force)])

    def _beyond(self, force: Float[Array, " k"]) -> Float[Array, " j"]:
        """What the limits of joints take away."""
        if not self.limits:
            return jnp.zeros(0, force.dtype)
        coefficients = self.lengths.coefficients.astype(force.dtype)
        at = np.array(self.lengths.velocities, int).reshape(coefficients.shape)
        total = jnp.stack(
            [jnp.sum(jnp.where(at == j, coefficients, 0) * force[:, None]) for j in self.limits]
        )
        return _clip_to_ranges(total, self.joint_ranges, [True] * len(self.limits)) - total


@final
class BodyActuator(AbstractLoad):
    """An actuator on sites or on a spatial tendon."""

    name: str = eqx.field(static=True)
    transmission: AbstractTransmission
    forces: Forces
    inputs: ActuatorInputs
    number: int = eqx.field(static=True)

    @property
    def bodies(self) -> tuple[str, ...]:
        return self.transmission.bodies

    def rate(self, bodies: Mapping[str, AbstractBody], placements: Placements, twists: Twists) -> Array:
        return self.transmission.rate(parts_of(self, placements), parts_of(self, twists))

    def effort(
        self, bodies: Mapping[str, AbstractBody], t: Time, placements: Placements, twists: Twists
    ) -> Array:
        length = self.transmission.length(parts_of(self, placements))
        rate = self.rate(bodies, placements, twists)
        return self.forces(self.inputs, self.inputs(t), length[None], rate[None])[0]


def with_inputs(system: TreeSystem, inputs: ActuatorInputs) -> TreeSystem:
    """A robot's tree with other inputs of its actuators.

    **Raises:** `InputError` for inputs that look at the state, where an actuator on sites or a spatial tendon has them.
    """
    blind = [load.name for load in system.mechanism.loads if isinstance(load, BodyActuator)]
    if inputs.takes > 1 and blind:
        raise InputError(
            f"ctrl must not look at q and v, since {blind[0]} works on a site or a spatial tendon; give an array or a "
            "function of t."
        )
    given = lambda load: (
        eqx.tree_at(lambda x: x.inputs, load, inputs) if isinstance(load, Actuators | BodyActuator) else load
    )
    system = eqx.tree_at(lambda x: x.on_coordinates, system, tuple(map(given, system.on_coordinates)))
    return eqx.tree_at(lambda x: x.mechanism.loads, system, tuple(map(given, system.mechanism.loads)))


def _check_input(name: str, value: Any, like: Any) -> Array:
    array = real_array(name, value)
    if not callable(like) and array.shape != jnp.shape(like):
        raise InputError(f"{name} has shape {array.shape}; this robot needs {jnp.shape(like)}.")
    return array


@final
class ControlMatrix(eqx.Module):
    """What a small change of each input adds to the generalized force at rest, near the inputs there are.

    - `system`: a robot's tree.
    - `inputs`: of its actuators.
    """

    system: TreeSystem
    inputs: ActuatorInputs

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the actuators."""
        return self.inputs.names

    def __call__(self, t: Time, q: Coordinates) -> Float[Array, "n nu"]:
        v, own = jnp.zeros(self.system.order.layout.nv, q.dtype), self.inputs
        force = lambda u: with_inputs(
            self.system, ActuatorInputs(u, own.activations, 0, own.held, own.names)
        ).force(t, q, v)
        return jax.jacfwd(force)(own(t, q, v).astype(q.dtype))


def control_matrix(system: TreeSystem) -> ControlMatrix | None:
    """B_u of a robot's actuators; None where there are none."""
    loads = (*system.on_coordinates, *system.mechanism.loads)
    found = [load.inputs for load in loads if isinstance(load, Actuators | BodyActuator)]
    return ControlMatrix(system, found[0]) if found else None


def inputs_of(
    ctrl: Any, ctrl0: np.ndarray, act0: np.ndarray | Array, names: tuple[str, ...]
) -> ActuatorInputs:
    """The inputs of all actuators.

    **Raises:** `InputError` for another shape, and a function of other arguments.
    """
    states = as_jax(act0)
    if callable(ctrl):
        return ActuatorInputs(ctrl, states, _arguments(ctrl), False, names)  # pyright: ignore[reportArgumentType]
    law = as_jax(ctrl0) if ctrl is None else _check_input("ctrl", ctrl, ctrl0)
    return ActuatorInputs(law, states, 0, False, names)


def _arguments(ctrl: Callable[..., Any]) -> int:
    for count in (1, 3):
        try:
            inspect.signature(ctrl).bind(*range(count))
        except (TypeError, ValueError):  # the latter of classes of Python, which do not say what they take
            continue
        return count
    raise InputError(f"ctrl must be a function of (t) or (t, q, v), got {format_value(ctrl)}.")
