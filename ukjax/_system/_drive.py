"""A mechanical system under an action: a force from outside that is a function of the state, or what else it does."""

import abc
from collections.abc import Callable
from typing import Any, final

import equinox as eqx
from jaxtyping import Array

from .._misc._arguments import call_user_function, number_array
from .._misc._errors import InputError
from .._misc._types import Coordinates, Forces, Time, Velocities
from ._system import AbstractForwardingSystem, AbstractSystem


class AbstractDrive(eqx.Module):
    """What an action does to a system during a step, beside a force. Concrete one: `robots.MocapDrive`."""

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """How many numbers an action has."""

    @abc.abstractmethod
    def drive(
        self, system: AbstractSystem, t: Time, q: Coordinates, v: Velocities, action: Array, dt: Array
    ) -> AbstractSystem:
        """The system of a step.

        **Arguments:**

        - `system`: without an action.
        - `t`, `q`, `v`: where the step starts.
        - `action`: held over the step.
        - `dt`: the step [s].
        """


@final
class DrivenSystem(AbstractForwardingSystem):
    """A system whose force gains that of an action; all else is the system's own."""

    system: AbstractSystem
    # The generalized force of an action, a function of (t, q, v, action).
    apply: Callable[[Time, Coordinates, Velocities, Array], Forces]
    action: Array

    def force(self, t: Time, q: Coordinates, v: Velocities) -> Forces:
        return self.system.force(t, q, v) + self._gain(t, q, v)

    def _gain(self, t: Time, q: Coordinates, v: Velocities) -> Forces:
        """The force of the action."""
        gained = number_array(
            "what apply returns", call_user_function("apply", self.apply, t, q, v, self.action)
        )
        if gained.shape != v.shape:
            raise InputError(f"apply must return a force of shape {v.shape}, got {gained.shape}.")
        return gained

    def members(self) -> tuple[Any, ...]:
        return self.system.members()

    @property
    def force_beside_members(self) -> Callable[[Time, Coordinates, Velocities], Forces]:
        own = self.system.force_beside_members
        return self._gain if own is None else lambda *state: own(*state) + self._gain(*state)
