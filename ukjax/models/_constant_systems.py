"""Systems whose mass matrix is diagonal and constant, under a constant force."""

import abc

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._misc._types import Coordinates, Forces, MassMatrix, Time, Velocities
from .._system._system import AbstractSystem


class AbstractConstantSystem(AbstractSystem):
    """M = diag(masses) and a force Q, both constant: its energy is v.M v / 2 - Q.q."""

    @abc.abstractmethod
    def masses(self) -> Float[Array, " n"]:
        """The diagonal of the mass matrix."""

    @abc.abstractmethod
    def constant_force(self) -> Float[Array, " n"]:
        """The force, such as weights."""

    def mass_matrix(self, t: Time, q: Coordinates) -> MassMatrix:
        return jnp.diag(self.masses()).astype(q.dtype)

    def force(self, t: Time, q: Coordinates, v: Velocities) -> Forces:
        return self.constant_force().astype(q.dtype)

    def energy(self, t: Time, q: Coordinates, v: Velocities) -> Float[Array, ""]:
        masses, force = self.masses().astype(q.dtype), self.constant_force().astype(q.dtype)
        return 0.5 * jnp.dot(masses * v, v) - jnp.dot(force, q)
