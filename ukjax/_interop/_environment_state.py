"""What goes from step to step of an `Environment`: the state of an episode, and the force of an action."""

from typing import Any, final

import equinox as eqx
from jaxtyping import Array, Float

from .._misc._arguments import require_instance
from .._misc._errors import InputError
from .._misc._types import Coordinates, Forces, Time, Velocities


@final
class EnvironmentState(eqx.Module):
    """What an `Environment` hands from step to step.

    - `t`: time [s].
    - `q`: generalized coordinates (n_q,).
    - `v`: generalized velocities (n,).
    - `steps`: steps since the start of the episode.
    - `key`: random key for the next episode.
    """

    t: Time
    q: Coordinates
    v: Velocities
    steps: Array
    key: Array


def require_state(state: Any) -> None:
    """Raises `InputError` for what is none."""
    require_instance("state", state, EnvironmentState, "what `reset` and `step` return")


@final
class InputForce(eqx.Module):
    """The generalized force B u of an action u."""

    B: Float[Array, "n p"]

    def __call__(self, t: Time, q: Coordinates, v: Velocities, u: Array) -> Forces:
        if u.shape != self.B.shape[1:]:
            raise InputError(f"an action for an input matrix {self.B.shape} has shape {u.shape}.")
        return self.B @ u
