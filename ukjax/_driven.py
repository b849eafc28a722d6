"""A mechanical system under an action: a force from outside that is a function of the state."""

from collections.abc import Callable
from typing import final

import equinox as eqx
from jaxtyping import Array, Float

from ._constraint import AbstractConstraint
from ._errors import InputError
from ._system import AbstractSystem
from ._types import Coordinates, Forces, MassMatrix, Time, Velocities


@final
class Driven(AbstractSystem):
    """A system whose force gains that of an action; all else is the system's own.

    **Arguments:**

    - `system`: the system alone.
    - `apply`: the generalized force of an action, a function of (t, q, v, action).
    - `action`: the action.
    """

    system: AbstractSystem
    apply: Callable[[Time, Coordinates, Velocities, Array], Forces]
    action: Array

    @property
    def constraints(self) -> tuple[AbstractConstraint, ...]:
        return self.system.constraints

    @property
    def kinematics_of(self) -> AbstractSystem:
        """Whose kinematics these are, for `has_quasi_velocities`."""
        return self.system

    def mass_matrix(self, t: Time, q: Coordinates) -> MassMatrix:
        return self.system.mass_matrix(t, q)

    def force(self, t: Time, q: Coordinates, v: Velocities) -> Forces:
        own, gained = self.system.force(t, q, v), self.apply(t, q, v, self.action)
        if gained.shape != own.shape:
            raise InputError(f"apply must return a force of shape {own.shape}, got {gained.shape}.")
        return own + gained

    def kinematics(self, t: Time, q: Coordinates, v: Velocities) -> Coordinates:
        return self.system.kinematics(t, q, v)

    def nonideal_force(self, t: Time, q: Coordinates, v: Velocities) -> Forces | None:
        return self.system.nonideal_force(t, q, v)


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
