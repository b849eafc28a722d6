"""A mechanical system under an action: a force from outside that is a function of the state."""

from collections.abc import Callable
from typing import final

from jaxtyping import Array

from .._misc._arguments import call_user_function, number_array
from .._misc._errors import InputError
from .._misc._types import Coordinates, Forces, Time, Velocities
from ._system import AbstractForwardingSystem, AbstractSystem


@final
class DrivenSystem(AbstractForwardingSystem):
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
        gained = number_array(
            "what apply returns", call_user_function("apply", self.apply, t, q, v, self.action)
        )
        if gained.shape != own.shape:
            raise InputError(f"apply must return a force of shape {own.shape}, got {gained.shape}.")
        return own + gained
