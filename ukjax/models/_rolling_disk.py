"""An upright disk that rolls without slipping on an incline."""

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

_CITATION = "Vertical rolling disk; A. M. Bloch, Nonholonomic Mechanics and Control, 2nd ed. 2015."


@final
class RollingDisk(AbstractSystem):
    """Coordinates (x, y, heading, roll): x down the slope, y across [m], heading from x to y [rad].

    A uniform disk kept upright: m R^2 / 2 about its axle, m R^2 / 4 about the incline's normal.
    """

    mass: Array = eqx.field(converter=as_parameter)
    radius: Array = eqx.field(converter=as_parameter)
    slope: Array = eqx.field(converter=as_parameter)
    gravity: Array = eqx.field(converter=as_parameter)
    speed: Array = eqx.field(converter=as_parameter)
    rate: Array = eqx.field(converter=as_parameter)

    @property
    def labels(self) -> tuple[str, ...]:
        return ("x", "y", "heading", "roll")

    @property
    def units(self) -> tuple[str, ...]:
        return ("m", "m", "rad", "rad")

    def _masses(self) -> Float[Array, "4"]:
        axle = 0.5 * self.mass * self.radius**2
        return jnp.stack([self.mass, self.mass, 0.5 * axle, axle])

    def mass_matrix(self, t: Time, q: Coordinates) -> MassMatrix:
        return jnp.diag(self._masses()).astype(q.dtype)

    def force(self, t: Time, q: Coordinates, v: Velocities) -> Forces:
        o = jnp.zeros_like(self.mass)
        return jnp.stack([self.mass * self.gravity * jnp.sin(self.slope), o, o, o]).astype(q.dtype)

    def energy(self, t: Time, q: Coordinates, v: Velocities) -> Float[Array, ""]:
        drop = jnp.sin(self.slope) * q[0]
        return 0.5 * jnp.dot(self._masses() * v, v) - self.mass * self.gravity * drop

    def slip_along(self, t: Time, q: Coordinates, v: Velocities) -> Float[Array, ""]:
        """The contact point's velocity along the heading less that of rolling [m/s]."""
        return v[0] * jnp.cos(q[2]) + v[1] * jnp.sin(q[2]) - self.radius * v[3]

    def slip_across(self, t: Time, q: Coordinates, v: Velocities) -> Float[Array, ""]:
        """The contact point's velocity along the axle [m/s]."""
        return v[1] * jnp.cos(q[2]) - v[0] * jnp.sin(q[2])

    @property
    def constraints(self) -> tuple[AbstractConstraint, ...]:
        return (
            Nonholonomic(self.slip_along, name="no slip along"),
            Nonholonomic(self.slip_across, name="no slip across"),
        )

    def path(self, t: Time) -> Coordinates:
        """q(t) in closed form: u' = 2/3 g sin(slope) cos(heading), with a constant turning rate."""
        t = jnp.asarray(t)
        pull = self.gravity * jnp.sin(self.slope) / 1.5
        x, y, distance = turning_path(t, self.speed, pull, self.rate)
        return jnp.stack([x, y, self.rate * t, distance / self.radius])

    def points(self, t: Time, q: Coordinates) -> dict[str, Array]:
        """In axes of the incline: down the slope, across, normal to it."""
        contact = jnp.stack([q[0], q[1], jnp.zeros_like(q[0])])
        return {"contact": contact, "centre": contact.at[2].set(self.radius)}

    def drawing(self, t: Time, q: Coordinates) -> dict[str, Array]:
        """The rim, with the spoke that shows the roll."""
        angles = jnp.linspace(0.0, 2.0 * math.pi, 33, dtype=q.dtype) + q[3]
        along, up = self.radius * jnp.sin(angles), self.radius * jnp.cos(angles)
        centre = self.points(t, q)["centre"][None]
        rim = centre + jnp.stack([along * jnp.cos(q[2]), along * jnp.sin(q[2]), up], axis=1)
        return {"disk": jnp.concatenate([centre, rim])}


def rolling_disk(
    *,
    mass: Scalar = 1.0,
    radius: Scalar = 0.5,
    slope: Scalar = math.pi / 6.0,
    gravity: Scalar = 9.81,
    speed: Scalar = 0.4,
    rate: Scalar = 1.5,
) -> Problem:
    """An upright uniform disk rolling on an incline, heading down the slope and turning.

    **Arguments:**

    - `mass`, `radius`: of the disk [kg], [m].
    - `slope`: of the incline [rad].
    - `gravity`: vertical [m/s^2].
    - `speed`: at the start, along the heading [m/s].
    - `rate`: turning rate [rad/s].

    **Returns:** the `Problem`, with a closed-form `reference`; points: `contact`, `centre`.

    **Raises:** `InputError`, naming the parameter that is wrong.
    """
    check_positive(mass=mass, radius=radius)
    check_finite(slope=slope, gravity=gravity, speed=speed, rate=rate)
    system = RollingDisk(mass, radius, slope, gravity, speed, rate)
    q0, v0 = np.zeros(4), stack_parameters((speed, 0.0, rate, speed / radius))
    return Problem(
        system,
        q0,
        v0,
        0.0,
        10.0,
        system.points,
        system.path,
        citation=_CITATION,
        name="rolling_disk",
    )
