"""Two nonholonomic models on an incline, whose paths have a closed form: a knife edge and an upright disk."""

import math
from typing import ClassVar, final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._misc._types import Coordinates, Time, Velocities
from .._system._constraint import AbstractConstraint, Nonholonomic
from .._system._problem import Problem
from ._constant_systems import AbstractConstantSystem
from ._parameters import Scalar, as_parameter, check_finite, check_positive, stack_parameters


def _sinc(x: Array) -> Array:
    return jnp.sinc(x / jnp.pi)


def _lag(z: Array) -> Array:
    """(z - sin z) / z^2, smooth at zero."""
    small = jnp.abs(z) < 0.02
    safe = jnp.where(small, 1.0, z)
    series = z * (1.0 - z * z / 20.0 * (1.0 - z * z / 42.0)) / 6.0
    return jnp.where(small, series, (safe - jnp.sin(safe)) / safe**2)


def turning_path(t: Array, speed: Array, pull: Array, rate: Array) -> tuple[Array, Array, Array]:
    """The path u' = pull cos(psi), psi = rate t, x' = u cos(psi), y' = u sin(psi), from the origin.

    **Returns:** x, y and the distance travelled [m], in closed form, also at `rate` zero.
    """
    w = rate * t
    half = 0.5 * w
    x = speed * t * _sinc(w) + 0.5 * pull * (t * _sinc(w)) ** 2
    y = speed * t * half * _sinc(half) ** 2 + pull * t**2 * _lag(2.0 * w)
    distance = speed * t + 0.5 * pull * (t * _sinc(half)) ** 2
    return x, y, distance


_KNIFE_EDGE = (
    "Knife edge on an incline; J. I. Neimark and N. A. Fufaev, Dynamics of Nonholonomic Systems, 1972."
)


@final
class KnifeEdge(AbstractConstantSystem):
    """Coordinates (x, y, heading): x down the slope, y across [m], heading from x to y [rad]."""

    mass: Array = eqx.field(converter=as_parameter)
    inertia: Array = eqx.field(converter=as_parameter)
    slope: Array = eqx.field(converter=as_parameter)
    gravity: Array = eqx.field(converter=as_parameter)
    speed: Array = eqx.field(converter=as_parameter)
    rate: Array = eqx.field(converter=as_parameter)

    labels: ClassVar[tuple[str, ...]] = ("x", "y", "heading")
    units: ClassVar[tuple[str, ...]] = ("m", "m", "rad")

    def masses(self) -> Float[Array, "3"]:
        return jnp.stack([self.mass, self.mass, self.inertia])

    def constant_force(self) -> Float[Array, "3"]:
        o = jnp.zeros_like(self.mass)
        return jnp.stack([self.mass * self.gravity * jnp.sin(self.slope), o, o])

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
        system, q0, v0, 0.0, 10.0, system.points, system.path, citation=_KNIFE_EDGE, name="knife_edge"
    )


_ROLLING_DISK = "Vertical rolling disk; A. M. Bloch, Nonholonomic Mechanics and Control, 2nd ed. 2015."


@final
class RollingDisk(AbstractConstantSystem):
    """Coordinates (x, y, heading, roll): x down the slope, y across [m], heading from x to y [rad].

    A uniform disk kept upright: m R^2 / 2 about its axle, m R^2 / 4 about the incline's normal.
    """

    mass: Array = eqx.field(converter=as_parameter)
    radius: Array = eqx.field(converter=as_parameter)
    slope: Array = eqx.field(converter=as_parameter)
    gravity: Array = eqx.field(converter=as_parameter)
    speed: Array = eqx.field(converter=as_parameter)
    rate: Array = eqx.field(converter=as_parameter)

    labels: ClassVar[tuple[str, ...]] = ("x", "y", "heading", "roll")
    units: ClassVar[tuple[str, ...]] = ("m", "m", "rad", "rad")

    def masses(self) -> Float[Array, "4"]:
        axle = 0.5 * self.mass * self.radius**2
        return jnp.stack([self.mass, self.mass, 0.5 * axle, axle])

    def constant_force(self) -> Float[Array, "4"]:
        o = jnp.zeros_like(self.mass)
        return jnp.stack([self.mass * self.gravity * jnp.sin(self.slope), o, o, o])

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
        citation=_ROLLING_DISK,
        name="rolling_disk",
    )
