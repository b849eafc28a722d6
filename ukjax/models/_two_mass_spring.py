"""Two masses and a spring on a line (Liu 2015, section IV), without its servo constraint."""

from typing import ClassVar, final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._misc._types import Coordinates, Forces, MassMatrix, Time, Velocities
from .._system._constraint import AbstractConstraint
from .._system._problem import Problem
from .._system._system import AbstractSystem
from ._parameters import Scalar, as_parameter, check_finite, check_positive, stack_parameters

_CITATION = (
    "X. Liu, S. Zhen, K. Huang, H. Zhao, Y.-H. Chen and K. Shao, A systematic approach for "
    "designing analytical dynamics and servo control of constrained mechanical systems, "
    "IEEE/CAA Journal of Automatica Sinica 2(4), 2015, section IV."
)


@final
class TwoMassSpring(AbstractSystem):
    """Positions x1, x2 [m] on a line, a spring between them and a constant force on the first."""

    m1: Array = eqx.field(converter=as_parameter)
    m2: Array = eqx.field(converter=as_parameter)
    k: Array = eqx.field(converter=as_parameter)
    l: Array = eqx.field(converter=as_parameter)  # noqa: E741 (the paper's name)
    push: Array = eqx.field(converter=as_parameter)

    labels: ClassVar[tuple[str, ...]] = ("x1", "x2")
    units: ClassVar[tuple[str, ...]] = ("m", "m")

    def mass_matrix(self, t: Time, q: Coordinates) -> MassMatrix:
        return jnp.diag(jnp.stack([self.m1, self.m2])).astype(q.dtype)

    def force(self, t: Time, q: Coordinates, v: Velocities) -> Forces:
        """The spring's force (eq. (40)) and the push."""
        pull = self.k * (q[1] - q[0] - self.l)
        return jnp.stack([pull + self.push, -pull])

    def energy(self, t: Time, q: Coordinates, v: Velocities) -> Float[Array, ""]:
        kinetic = 0.5 * (self.m1 * v[0] ** 2 + self.m2 * v[1] ** 2)
        return kinetic + 0.5 * self.k * (q[1] - q[0] - self.l) ** 2 - self.push * q[0]

    @property
    def constraints(self) -> tuple[AbstractConstraint, ...]:
        return ()

    def points(self, t: Time, q: Coordinates) -> dict[str, Array]:
        o = jnp.zeros_like(q[0])
        return {"mass1": jnp.stack([q[0], o]), "mass2": jnp.stack([q[1], o])}

    def drawing(self, t: Time, q: Coordinates) -> dict[str, Array]:
        return {"spring": jnp.stack(list(self.points(t, q).values()))}


def two_mass_spring(
    *,
    m1: Scalar = 1.0,
    m2: Scalar = 2.0,
    k: Scalar = 3.0,
    l: Scalar = 0.5,  # noqa: E741
    force: Scalar = 0.0,
    x1: Scalar = 0.0,
    x2: Scalar = 1.0,
) -> Problem:
    """Two masses and a spring, passive (Liu 2015, section IV).

    The servo row x2 - x1 = 2 l is not among its constraints; it is left to servo control.

    **Arguments:**

    - `m1`, `m2`: masses [kg].
    - `k`: stiffness of the spring [N/m].
    - `l`: its length at rest [m].
    - `force`: constant force on the first mass [N].
    - `x1`, `x2`: positions at the start, at rest [m]; x2 - x1 = 2 l meets the servo row.

    **Returns:** the `Problem`; points: `mass1`, `mass2`.

    **Raises:** `InputError`, naming the parameter that is wrong.
    """
    check_positive(m1=m1, m2=m2, k=k, l=l)
    check_finite(force=force, x1=x1, x2=x2)
    system = TwoMassSpring(m1, m2, k, l, force)
    q0, v0 = stack_parameters((x1, x2)), np.zeros(2)
    return Problem(system, q0, v0, 0.0, 10.0, system.points, citation=_CITATION, name="two_mass_spring")
