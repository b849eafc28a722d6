"""Systems whose mass matrix is diagonal and constant, under a constant force."""

import abc

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._misc._types import Coordinates, Forces, MassMatrix, Time, Velocities
from .._system._system import AbstractSystem


class AbstractConstantSystem(AbstractSystem):
    """M = diag(masses) and Q = loads, both constant: its energy is v.M v / 2 - Q.q."""

    @abc.abstractmethod
    def masses(self) -> Float[Array, " n"]:
        """The diagonal of the mass matrix."""

    @abc.abstractmethod
    def loads(self) -> Float[Array, " n"]:
        """The force, such as weights."""

    def mass_matrix(self, t: Time, q: Coordinates) -> MassMatrix:
        return jnp.diag(self.masses()).astype(q.dtype)

    def force(self, t: Time, q: Coordinates, v: Velocities) -> Forces:
        return self.loads().astype(q.dtype)

    def energy(self, t: Time, q: Coordinates, v: Velocities) -> Float[Array, ""]:
        masses, loads = self.masses().astype(q.dtype), self.loads().astype(q.dtype)
        return 0.5 * jnp.dot(masses * v, v) - jnp.dot(loads, q)
