"""A pole on a cart of next to no mass: a mass matrix that is nearly singular."""

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
from ._pendulum import stretch


@final
class LightCartPole(AbstractSystem):
    """A cart at x on a level rail, and a point at (px, py), y up, at the other end of a massless pole."""

    cart: Array = eqx.field(converter=as_parameter)
    mass: Array = eqx.field(converter=as_parameter)
    length: Array = eqx.field(converter=as_parameter)
    gravity: Array = eqx.field(converter=as_parameter)

    @property
    def labels(self) -> tuple[str, ...]:
        return ("x", "px", "py")

    @property
    def units(self) -> tuple[str, ...]:
        return ("m",) * 3

    def mass_matrix(self, t: Time, q: Coordinates) -> MassMatrix:
        return jnp.diag(jnp.stack([self.cart, self.mass, self.mass])).astype(q.dtype)

    def force(self, t: Time, q: Coordinates, v: Velocities) -> Forces:
        o = jnp.zeros_like(self.mass)
        return jnp.stack([o, o, -self.mass * self.gravity]).astype(q.dtype)

    def energy(self, t: Time, q: Coordinates, v: Velocities) -> Float[Array, ""]:
        kinetic = 0.5 * (self.cart * v[0] ** 2 + self.mass * jnp.dot(v[1:], v[1:]))
        return kinetic + self.mass * self.gravity * q[2]

    def pole(self, t: Time, q: Coordinates) -> Float[Array, ""]:
        return stretch(jnp.stack([q[1] - q[0], q[2]]), self.length)

    @property
    def constraints(self) -> tuple[AbstractConstraint, ...]:
        return (Holonomic(self.pole, name="pole"),)

    def points(self, t: Time, q: Coordinates) -> dict[str, Array]:
        return {"cart": jnp.stack([q[0], jnp.zeros_like(q[0])]), "mass": q[1:]}

    def drawing(self, t: Time, q: Coordinates) -> dict[str, Array]:
        return {"pole": jnp.stack(list(self.points(t, q).values()))}


def _start(system: LightCartPole, angle: Array, rate: Array) -> tuple[Coordinates, Velocities]:
    s, c = system.length * jnp.sin(angle), system.length * jnp.cos(angle)
    slide = -system.mass / (system.cart + system.mass)
    return jnp.stack([jnp.zeros_like(s), s, -c]), rate * jnp.stack([slide * c, (1.0 + slide) * c, s])


def light_cart_pole(
    *,
    cart: Scalar = 1e-6,
    mass: Scalar = 1.0,
    length: Scalar = 1.0,
    gravity: Scalar = 9.81,
    angle: Scalar = math.pi / 3.0,
    rate: Scalar = 0.0,
) -> Problem:
    """A pole on a very light cart: one row on three coordinates, masses a million times apart.

    The cart moves so easily that the point falls nearly straight down, until the pole hangs and throws the cart
    to the other side within milliseconds, at up to 3.1 km/s. `simulate` takes short steps there; steps of fixed length,
    as of `step`, must be below 2 microseconds, and end in NaN above.

    **Arguments:**

    - `cart`: mass of the cart [kg].
    - `mass`: of the point at the end of the pole [kg].
    - `length`: of the pole [m].
    - `gravity`: along -y [m/s^2].
    - `angle`: of the pole from the downward vertical at the start, towards +x [rad].
    - `rate`: angular velocity of the pole at the start, the centre of mass not moving along x [rad/s].

    **Returns:** the `Problem`; points: `cart`, `mass`.

    **Raises:** `InputError`, naming the parameter that is wrong.
    """
    check_positive(cart=cart, mass=mass, length=length)
    check_finite(gravity=gravity, angle=angle, rate=rate)
    system = LightCartPole(cart, mass, length, gravity)
    q0, v0 = evaluate_start(_start, system, angle, rate)
    return Problem(
        system,
        q0,
        v0,
        0.0,
        1.0,
        system.points,
        citation="F. E. Udwadia and P. Phohomsiri, Explicit equations of motion for constrained mechanical systems with "
        "singular mass matrices, Proceedings of the Royal Society A 462, 2006.",
        name="light_cart_pole",
    )
