"""The force of an action by an input matrix."""

from typing import final

import equinox as eqx
from jaxtyping import Array, Float

from .._misc._errors import InputError
from .._misc._types import Coordinates, Forces, Time, Velocities


@final
class InputForce(eqx.Module):
    """The generalized force B u of an action u."""

    B: Float[Array, "n p"]

    def __call__(self, t: Time, q: Coordinates, v: Velocities, u: Array) -> Forces:
        if u.shape != self.B.shape[1:]:
            raise InputError(f"an action for an input matrix {self.B.shape} has shape {u.shape}.")
        return self.B @ u
