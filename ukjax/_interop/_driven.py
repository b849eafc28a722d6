"""A mechanical system under an action: a force from outside that is a function of the state."""

from collections.abc import Callable
from typing import final

import equinox as eqx
from jaxtyping import Array, Float

from .._misc._arguments import number_array
from .._misc._called import called
from .._misc._errors import InputError
from .._misc._types import Coordinates, Forces, Time, Velocities
from .._system._system import AbstractForwardingSystem, AbstractSystem


@final
class Driven(AbstractForwardingSystem):
    """A system whose force gains that of an action; all else is the system's own.

    **Arguments:**

    - `system`: the system alone.
    - `apply`: the generalized force of an action, a function of (t, q, v, action).
    - `action`: the action.
    """

    system: AbstractSystem
    apply: Callable[[Time, Coordinates, Velocities, Array], Forces]
    action: Array

    def force(self, t: Time, q: Coordinates, v: Velocities) -> Forces:
        own = self.system.force(t, q, v)
        gained = number_array("what apply returns", called("apply", self.apply, t, q, v, self.action))
        if gained.shape != own.shape:
            raise InputError(f"apply must return a force of shape {own.shape}, got {gained.shape}.")
        return own + gained


@final
class InputForce(eqx.Module):
    """The generalized force B u of an action u.

    **Arguments:**

    - `B`: input matrix (n, p).
    """

    B: Float[Array, "n p"]

    def __call__(self, t: Time, q: Coordinates, v: Velocities, u: Array) -> Forces:
        if u.shape != self.B.shape[1:]:
            raise InputError(f"an action for an input matrix {self.B.shape} has shape {u.shape}.")
        return self.B @ u
