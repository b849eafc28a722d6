"""The state of an episode of an `Environment`."""

from typing import Any, final

import equinox as eqx
from jaxtyping import Array

from .._misc._arguments import require_instance
from .._misc._types import Coordinates, Time, Velocities


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
