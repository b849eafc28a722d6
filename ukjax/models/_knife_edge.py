"""A knife edge on an incline: the simplest nonholonomic constraint."""

import math
from typing import final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._misc._types import Coordinates, Forces, MassMatrix, Time, Velocities
from .._system._constraint import AbstractConstraint, Nonholonomic
from .._system._problem import Problem
from .._system._system import AbstractSystem
from ._incline import turning_path
from ._parameters import Scalar, as_parameter, check_finite, check_positive, stack_parameters

_CITATION = (
    "Knife edge on an incline; J. I. Neimark and N. A. Fufaev, Dynamics of Nonholonomic Systems, 1972."
)


@final
class KnifeEdge(AbstractSystem):
    """Coordinates (x, y, heading): x down the slope, y across [m], heading from x to y [rad]."""

    mass: Array = eqx.field(converter=as_parameter)
    inertia: Array = eqx.field(converter=as_parameter)
    slope: Array = eqx.field(converter=as_parameter)
    gravity: Array = eqx.field(converter=as_parameter)
    speed: Array = eqx.field(converter=as_parameter)
    rate: Array = eqx.field(converter=as_parameter)

    @property
    def labels(self) -> tuple[str, ...]:
        return ("x", "y", "heading")

    @property
    def units(self) -> tuple[str, ...]:
        return ("m", "m", "rad")

    def mass_matrix(self, t: Time, q: Coordinates) -> MassMatrix:
        return jnp.diag(jnp.stack([self.mass, self.mass, self.inertia])).astype(q.dtype)

    def force(self, t: Time, q: Coordinates, v: Velocities) -> Forces:
        o = jnp.zeros_like(self.mass)
        return jnp.stack([self.mass * self.gravity * jnp.sin(self.slope), o, o]).astype(q.dtype)

    def energy(self, t: Time, q: Coordinates, v: Velocities) -> Float[Array, ""]:
        kinetic = 0.5 * self.mass * (v[0] ** 2 + v[1] ** 2) + 0.5 * self.inertia * v[2] ** 2
        return kinetic - self.mass * self.gravity * jnp.sin(self.slope) * q[0]

    def sideslip(self, t: Time, q: Coordinates, v: Velocities) -> Float[Array, ""]:
        """The velocity across the edge [m/s]."""
        return v[1] * jnp.cos(q[2]) - v[0] * jnp.sin(q[2])

    @property
    def constraints(self) -> tuple[AbstractConstraint, ...]:
        return (Nonholonomic(self.sideslip, name="edge"),)

    def path(self, t: Time) -> Coordinates:
        """q(t) in closed form: u' = g sin(slope) cos(heading), with a constant turning rate."""
        t = jnp.asarray(t)
        x, y, _ = turning_path(t, self.speed, self.gravity * jnp.sin(self.slope), self.rate)
        return jnp.stack([x, y, self.rate * t])

    def points(self, t: Time, q: Coordinates) -> dict[str, Array]:
        """In axes of the incline: down the slope, across, normal to it."""
        return {"contact": jnp.stack([q[0], q[1], jnp.zeros_like(q[0])])}


def knife_edge(
    *,
    mass: Scalar = 1.0,
    inertia: Scalar = 0.1,
    slope: Scalar = math.pi / 6.0,
    gravity: Scalar = 9.81,
    speed: Scalar = 0.4,
    rate: Scalar = 1.5,
) -> Problem:
    """A knife edge (or skate) on an incline, turning as it slides: it wanders off sideways.

    **Arguments:**

    - `mass`: [kg].
    - `inertia`: about the contact point, which is the centre of mass [kg m^2].
    - `slope`: of the incline [rad].
    - `gravity`: vertical [m/s^2].
    - `speed`: at the start, along the edge [m/s].
    - `rate`: turning rate [rad/s].

    **Returns:** the `Problem`, with a closed-form `reference`; points: `contact`.

    **Raises:** `InputError`, naming the parameter that is wrong.
    """
    check_positive(mass=mass, inertia=inertia)
    check_finite(slope=slope, gravity=gravity, speed=speed, rate=rate)
    system = KnifeEdge(mass, inertia, slope, gravity, speed, rate)
    q0, v0 = np.zeros(3), stack_parameters((speed, 0.0, rate))
    return Problem(
        system, q0, v0, 0.0, 10.0, system.points, system.path, citation=_CITATION, name="knife_edge"
    )
