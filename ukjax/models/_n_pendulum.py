"""A chain of n mathematical pendulums in Cartesian coordinates."""

import math
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._misc._types import Coordinates, Forces, MassMatrix, Time, Velocities
from .._system._constraint import AbstractConstraint, Holonomic
from .._system._problem import Problem
from .._system._system import AbstractSystem
from ._parameters import Scalar, as_parameter, check_count, check_finite, check_positive, evaluate_start
from ._pendulum import stretch

_CITATION = (
    "F. E. Udwadia and P. B. Koganti, Dynamics and control of a multi-body planar pendulum, "
    "Nonlinear Dynamics 81, 2015."
)


@final
class NPendulum(AbstractSystem):
    """Points (x1, y1, ..., xn, yn), y up, chained from the origin by massless rods."""

    mass: Array = eqx.field(converter=as_parameter)
    length: Array = eqx.field(converter=as_parameter)
    gravity: Array = eqx.field(converter=as_parameter)
    n: int = eqx.field(static=True)

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(f"{x}{i}" for i in range(1, self.n + 1) for x in "xy")

    @property
    def units(self) -> tuple[str, ...]:
        return ("m",) * (2 * self.n)

    def mass_matrix(self, t: Time, q: Coordinates) -> MassMatrix:
        return self.mass * jnp.eye(2 * self.n, dtype=q.dtype)

    def force(self, t: Time, q: Coordinates, v: Velocities) -> Forces:
        weight = jnp.stack([jnp.zeros_like(self.mass), -self.mass * self.gravity])
        return jnp.tile(weight, self.n).astype(q.dtype)

    def energy(self, t: Time, q: Coordinates, v: Velocities) -> Float[Array, ""]:
        return self.mass * (0.5 * jnp.dot(v, v) + self.gravity * jnp.sum(q[1::2]))

    def rods(self, t: Time, q: Coordinates) -> Float[Array, " n"]:
        """By how much each rod is too long [m], as array operations, so that only their size depends on n."""
        ends = q.reshape(-1, 2)
        starts = jnp.concatenate([jnp.zeros_like(ends[:1]), ends[:-1]])
        return jax.vmap(stretch, in_axes=(0, None))(ends - starts, self.length)

    @property
    def constraints(self) -> tuple[AbstractConstraint, ...]:
        return (Holonomic(self.rods, name="rods"),)

    def points(self, t: Time, q: Coordinates) -> dict[str, Array]:
        return {f"mass{i + 1}": q[2 * i : 2 * i + 2] for i in range(self.n)}

    def drawing(self, t: Time, q: Coordinates) -> dict[str, Array]:
        return {"chain": jnp.concatenate([jnp.zeros_like(q[:2]), q]).reshape(-1, 2)}


def _start(system: NPendulum, angle: Array, rate: Array) -> tuple[Coordinates, Velocities]:
    s, c = system.length * jnp.sin(angle), system.length * jnp.cos(angle)
    steps = jnp.arange(1, system.n + 1, dtype=s.dtype)
    q, v = (jnp.outer(steps, jnp.stack(x)).ravel() for x in ((s, -c), (c * rate, s * rate)))
    return q, v


def n_pendulum(
    n: int = 3,
    *,
    mass: Scalar = 1.0,
    length: Scalar = 1.0,
    gravity: Scalar = 9.81,
    angle: Scalar = math.pi / 2.0,
    rate: Scalar = 0.0,
) -> Problem:
    """A chain of n equal point masses on massless rods: n rows on 2 n Cartesian coordinates.

    **Arguments:**

    - `n`: number of masses.
    - `mass`: of each point [kg].
    - `length`: of each rod [m].
    - `gravity`: along -y [m/s^2].
    - `angle`: of every rod from the downward vertical at the start, towards +x [rad].
    - `rate`: angular velocity of every rod at the start [rad/s].

    **Returns:** the `Problem`; points: `mass1` to `massn`.

    **Raises:** `InputError`, naming the parameter that is wrong.
    """
    check_count(n=n)
    check_positive(mass=mass, length=length)
    check_finite(gravity=gravity, angle=angle, rate=rate)
    system = NPendulum(mass, length, gravity, int(n))
    q0, v0 = evaluate_start(_start, system, angle, rate)
    return Problem(system, q0, v0, 0.0, 5.0, system.points, citation=_CITATION, name="n_pendulum")
