"""Outputs of a linear model: positions of frames, or any function of the state."""

from collections.abc import Callable, Iterable
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._misc._arguments import call_user_function, number_array, require_function
from .._misc._errors import InputError
from .._misc._types import Coordinates, Time, Velocities
from .._system._labels import make_indexed_names
from .._system._system import AbstractSystem
from ._jacobian import frame_names, frame_of, owner_of
from ._states import MechanismSystem, bodies_at, require_mechanism, select_names

Outputs = Iterable[str] | Callable[[Time, Coordinates, Velocities, Velocities], Array] | None
"""Names of frames, whose positions are the outputs; or a function of (t, q, v, v') that returns a vector; or none."""


@final
class FramePositions(eqx.Module):
    """The positions of frames, one after the other, as a function of (t, q, v, v')."""

    system: MechanismSystem  # the mechanism
    names: tuple[str, ...] = eqx.field(static=True)  # of the frames

    @property
    def labels(self) -> tuple[str, ...]:
        """A name for each entry."""
        axes = "xyz"[: self.system.mechanism.dimension]
        return tuple(f"{name} {x}" for name in self.names for x in axes)

    def __call__(self, t: Time, q: Coordinates, v: Velocities, a: Velocities) -> Array:
        owners = [owner_of(self.system, name) for name in self.names]
        placements, _ = bodies_at(self.system, q, dict.fromkeys(body for body, _ in owners))
        return jnp.concatenate([frame_of(placements[body], X).position for body, X in owners])


@final
class No(eqx.Module):
    """No outputs."""

    def __call__(self, t: Time, q: Coordinates, v: Velocities, a: Velocities) -> Array:
        return jnp.zeros(0, q.dtype)


def outputs_of(
    system: AbstractSystem, outputs: Outputs, t: Time, q: Coordinates, v: Velocities
) -> tuple[Callable[..., Array], tuple[str, ...]]:
    """The outputs as a function of (t, q, v, v'), and their names."""
    if outputs is None:
        return No(), ()
    if not callable(outputs):
        mechanism = require_mechanism(system)
        points = [key for body in mechanism.bodies for key in body.points]
        known = [*frame_names(mechanism), *points]
        positions = FramePositions(mechanism, select_names("body or point", outputs, known))
        return positions, positions.labels
    require_function("outputs", outputs, "t, q, v, a")
    shape = jax.eval_shape(
        lambda: number_array("outputs", call_user_function("outputs", outputs, t, q, v, v))
    ).shape
    if len(shape) != 1:
        raise InputError(f"outputs must return a vector, got shape {shape}.")
    return outputs, make_indexed_names("y", shape[0])
