"""The mathematical pendulum in Cartesian coordinates, where its rod is a constraint."""

import math
from typing import final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._misc._types import Coordinates, Forces, MassMatrix, Time, Velocities
from .._system._constraint import AbstractConstraint, Holonomic
from .._system._problem import Problem
from .._system._system import AbstractSystem
from ._parameters import Scalar, as_parameter, check_finite, check_positive, evaluate_start


def stretch(r: Array, length: Array) -> Float[Array, ""]:
    """(r.r / length - length) / 2: by how much a rod r is too long [m], to first order."""
    return 0.5 * (jnp.dot(r, r) / length - length)


@final
class Pendulum(AbstractSystem):
    """A point mass at (x, y) or (x, y, z), the last one up, on a massless rod from the origin."""

    mass: Array = eqx.field(converter=as_parameter)
    length: Array = eqx.field(converter=as_parameter)
    gravity: Array = eqx.field(converter=as_parameter)
    labels: tuple[str, ...] = eqx.field(static=True, default=("x", "y"))

    @property
    def units(self) -> tuple[str, ...]:
        return ("m",) * len(self.labels)

    def mass_matrix(self, t: Time, q: Coordinates) -> MassMatrix:
        return self.mass * jnp.eye(q.size, dtype=q.dtype)

    def force(self, t: Time, q: Coordinates, v: Velocities) -> Forces:
        weight = jnp.zeros_like(q[-1]) - self.mass * self.gravity
        return jnp.concatenate([jnp.zeros_like(q[:-1]), weight[None]])

    def energy(self, t: Time, q: Coordinates, v: Velocities) -> Float[Array, ""]:
        return self.mass * (0.5 * jnp.dot(v, v) + self.gravity * q[-1])

    def rod(self, t: Time, q: Coordinates) -> Float[Array, ""]:
        return stretch(q, self.length)

    @property
    def constraints(self) -> tuple[AbstractConstraint, ...]:
        return (Holonomic(self.rod, name="rod"),)

    def points(self, t: Time, q: Coordinates) -> dict[str, Array]:
        return {"mass": q}

    def drawing(self, t: Time, q: Coordinates) -> dict[str, Array]:
        return {"rod": jnp.stack([jnp.zeros_like(q), q])}


def _start(system: Pendulum, angle: Array, rate: Array) -> tuple[Coordinates, Velocities]:
    s, c = system.length * jnp.sin(angle), system.length * jnp.cos(angle)
    return jnp.stack([s, -c]), jnp.stack([c * rate, s * rate])


def pendulum(
    *,
    mass: Scalar = 1.0,
    length: Scalar = 1.0,
    gravity: Scalar = 9.81,
    angle: Scalar = math.pi / 3.0,
    rate: Scalar = 0.0,
) -> Problem:
    """A mathematical pendulum in Cartesian coordinates (x, y), y up: one row on two coordinates.

    **Arguments:**

    - `mass`: of the point [kg].
    - `length`: of the rod [m].
    - `gravity`: along -y [m/s^2].
    - `angle`: from the downward vertical at the start, towards +x [rad].
    - `rate`: angular velocity at the start [rad/s].

    **Returns:** the `Problem`; points: `mass`.

    **Raises:** `InputError`, naming the parameter that is wrong.
    """
    check_positive(mass=mass, length=length)
    check_finite(gravity=gravity, angle=angle, rate=rate)
    system = Pendulum(mass, length, gravity)
    q0, v0 = evaluate_start(_start, system, angle, rate)
    citation = "E. T. Whittaker, Analytical Dynamics of Particles and Rigid Bodies, 1937, ch. IV."
    return Problem(system, q0, v0, 0.0, 10.0, system.points, citation=citation, name="pendulum")
