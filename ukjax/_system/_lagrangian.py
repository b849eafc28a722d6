"""Systems by their Lagrangian."""

import abc
from collections.abc import Callable, Sequence
from typing import ClassVar, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._misc._arguments import call_user_function, number_array, require_function
from .._misc._errors import InputError
from .._misc._types import Coordinates, Forces, MassMatrix, Time, Velocities
from ._constraint import AbstractConstraint, AbstractUnilateral, as_constraints
from ._system import AbstractSystem


class LagrangianSystem(AbstractSystem):
    """A system to subclass, given by its Lagrangian; mass matrix and force follow by differentiation.

        M = L_vv,    Q = L_q - L_vq v - L_vt + F          (Xu-Liu 2017, eqs. (20)-(31))

    It is abstract: subclass it with `lagrangian` and `constraints`, and `generalized_force` where there is one; or call
    `lagrangian_system` with functions. Velocities are q' here, not quasi-velocities.
    """

    @abc.abstractmethod
    def lagrangian(self, t: Time, q: Coordinates, v: Velocities) -> Float[Array, ""]:
        """The Lagrangian L = T - V [J]."""

    def generalized_force(self, t: Time, q: Coordinates, v: Velocities) -> Forces:
        """The generalized forces F that have no potential (n,); by default zero."""
        return jnp.zeros_like(v)

    def _scalar(self, t: Time, q: Coordinates, v: Velocities) -> Float[Array, ""]:
        """L(t, q, v), which must be a real number."""
        value = number_array("the lagrangian", call_user_function("the lagrangian", self.lagrangian, t, q, v))
        if value.shape or not jnp.issubdtype(value.dtype, jnp.floating):
            what = f"{value.dtype} of shape {value.shape}"
            raise InputError(f"the lagrangian is {what}; it must be a real scalar.")
        return value

    def mass_matrix(self, t: Time, q: Coordinates) -> MassMatrix:
        return jax.jacfwd(jax.grad(self._scalar, argnums=2), argnums=2)(t, q, jnp.zeros_like(q))

    def force(self, t: Time, q: Coordinates, v: Velocities) -> Forces:
        t = jnp.asarray(t, q.dtype)
        momentum = jax.grad(self._scalar, argnums=2)
        convective = jax.jvp(lambda t, q: momentum(t, q, v), (t, q), (jnp.ones_like(t), v))[1]
        own = number_array(
            "generalized_force", call_user_function("generalized_force", self.generalized_force, t, q, v)
        )
        return jax.grad(self._scalar, argnums=1)(t, q, v) - convective + own

    def energy(self, t: Time, q: Coordinates, v: Velocities) -> Float[Array, ""] | None:
        """Jacobi's energy v . L_v - L [J]; the total energy where coordinates do not depend on time."""
        return jnp.dot(v, jax.grad(self._scalar, argnums=2)(t, q, v)) - self._scalar(t, q, v)


@final
class _LagrangianFunctions(LagrangianSystem):
    lagrangian_fn: Callable[[Time, Coordinates, Velocities], Array]
    force_fn: Callable[[Time, Coordinates, Velocities], Array] | None
    constraints: tuple[AbstractConstraint, ...]
    labels: tuple[str, ...] = eqx.field(static=True, default=())
    title: ClassVar[str] = "LagrangianSystem"

    def lagrangian(self, t: Time, q: Coordinates, v: Velocities) -> Float[Array, ""]:
        return self.lagrangian_fn(t, q, v)

    def generalized_force(self, t: Time, q: Coordinates, v: Velocities) -> Forces:
        return jnp.zeros_like(v) if self.force_fn is None else self.force_fn(t, q, v)


def lagrangian_system(
    lagrangian: Callable[[Time, Coordinates, Velocities], Array],
    constraints: Sequence[AbstractConstraint | AbstractUnilateral] = (),
    *,
    generalized_force: Callable[[Time, Coordinates, Velocities], Array] | None = None,
    labels: tuple[str, ...] | list[str] = (),
) -> LagrangianSystem:
    """A `LagrangianSystem` from functions, without writing a class.

    **Arguments:**

    - `lagrangian`: L(t, q, v) [J].
    - `constraints`: any of `Holonomic`, `Nonholonomic`, `AccelerationConstraint`, `Unilateral`, `DryFriction`.
    - `generalized_force`: F(t, q, v) (n,), the forces that have no potential; by default none.
    - `labels`: names of the coordinates; by default `q[0]`, ...

    **Returns:** the system.
    """
    require_function("lagrangian", lagrangian, "t, q, v")
    if generalized_force is not None:
        require_function("generalized_force", generalized_force, "t, q, v")
    return _LagrangianFunctions(lagrangian, generalized_force, as_constraints(constraints), tuple(labels))
