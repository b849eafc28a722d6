"""Pendulums in Cartesian coordinates, where rods are constraints: in the plane, in space, chains, and on a cart."""

import math
from typing import ClassVar, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._misc._types import Coordinates, Time, Velocities
from .._system._constraint import AbstractConstraint, Holonomic
from .._system._problem import Problem
from ._constant_systems import AbstractConstantSystem
from ._parameters import Scalar, as_parameter, check_count, check_finite, check_positive, evaluate_start


def stretch(r: Array, length: Array) -> Float[Array, ""]:
    """(r.r / length - length) / 2: by how much a rod r is too long [m], to first order."""
    return 0.5 * (jnp.dot(r, r) / length - length)


@final
class Pendulum(AbstractConstantSystem):
    """A point mass at (x, y) or (x, y, z), the last one up, on a massless rod from the origin."""

    mass: Array = eqx.field(converter=as_parameter)
    length: Array = eqx.field(converter=as_parameter)
    gravity: Array = eqx.field(converter=as_parameter)
    labels: tuple[str, ...] = eqx.field(static=True, default=("x", "y"))

    @property
    def units(self) -> tuple[str, ...]:
        return ("m",) * len(self.labels)

    def masses(self) -> Float[Array, " n"]:
        return jnp.stack([self.mass] * len(self.labels))

    def constant_force(self) -> Float[Array, " n"]:
        level = [jnp.zeros_like(self.mass)] * (len(self.labels) - 1)
        return jnp.stack([*level, -self.mass * self.gravity])

    def rod(self, t: Time, q: Coordinates) -> Float[Array, ""]:
        return stretch(q, self.length)

    @property
    def constraints(self) -> tuple[AbstractConstraint, ...]:
        return (Holonomic(self.rod, name="rod"),)

    def points(self, t: Time, q: Coordinates) -> dict[str, Array]:
        return {"mass": q}

    def drawing(self, t: Time, q: Coordinates) -> dict[str, Array]:
        return {"rod": jnp.stack([jnp.zeros_like(q), q])}


def _start_in_plane(system: Pendulum, angle: Array, rate: Array) -> tuple[Coordinates, Velocities]:
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
    q0, v0 = evaluate_start(_start_in_plane, system, angle, rate)
    citation = "E. T. Whittaker, Analytical Dynamics of Particles and Rigid Bodies, 1937, ch. IV."
    return Problem(system, q0, v0, 0.0, 10.0, system.points, citation=citation, name="pendulum")


def _start_in_space(system: Pendulum, angle: Array, speed: Array) -> tuple[Coordinates, Velocities]:
    s, c, o = system.length * jnp.sin(angle), system.length * jnp.cos(angle), jnp.zeros_like(angle)
    return jnp.stack([s, o, -c]), jnp.stack([o, speed, o])


def spherical_pendulum(
    *,
    mass: Scalar = 1.0,
    length: Scalar = 1.0,
    gravity: Scalar = 9.81,
    angle: Scalar = math.asin(0.6),
    speed: Scalar = 1.5,
) -> Problem:
    """A point mass on a sphere in Cartesian coordinates (x, y, z), z up: one row.

    **Arguments:**

    - `mass`: of the point [kg].
    - `length`: of the rod [m].
    - `gravity`: along -z [m/s^2].
    - `angle`: from the downward vertical at the start, towards +x [rad]; by default the mass starts
      at (0.6, 0, -0.8) m.
    - `speed`: at the start, horizontal along +y [m/s].

    **Returns:** the `Problem`; points: `mass`.

    **Raises:** `InputError`, naming the parameter that is wrong.
    """
    check_positive(mass=mass, length=length)
    check_finite(gravity=gravity, angle=angle, speed=speed)
    system = Pendulum(mass, length, gravity, ("x", "y", "z"))
    q0, v0 = evaluate_start(_start_in_space, system, angle, speed)
    citation = "E. T. Whittaker, Analytical Dynamics of Particles and Rigid Bodies, 1937, ch. IV."
    return Problem(system, q0, v0, 0.0, 10.0, system.points, citation=citation, name="spherical_pendulum")


_N_PENDULUM = (
    "F. E. Udwadia and P. B. Koganti, Dynamics and control of a multi-body planar pendulum, "
    "Nonlinear Dynamics 81, 2015."
)


@final
class NPendulum(AbstractConstantSystem):
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

    def masses(self) -> Float[Array, " n"]:
        return jnp.full_like(self.mass, self.mass, shape=2 * self.n)

    def constant_force(self) -> Float[Array, " n"]:
        return jnp.tile(jnp.stack([jnp.zeros_like(self.mass), -self.mass * self.gravity]), self.n)

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


def _start_of_chain(system: NPendulum, angle: Array, rate: Array) -> tuple[Coordinates, Velocities]:
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
    q0, v0 = evaluate_start(_start_of_chain, system, angle, rate)
    return Problem(system, q0, v0, 0.0, 5.0, system.points, citation=_N_PENDULUM, name="n_pendulum")


@final
class LightCartPole(AbstractConstantSystem):
    """A cart at x on a level rail, and a point at (px, py), y up, at the other end of a massless pole."""

    cart: Array = eqx.field(converter=as_parameter)
    mass: Array = eqx.field(converter=as_parameter)
    length: Array = eqx.field(converter=as_parameter)
    gravity: Array = eqx.field(converter=as_parameter)

    labels: ClassVar[tuple[str, ...]] = ("x", "px", "py")
    units: ClassVar[tuple[str, ...]] = ("m",) * 3

    def masses(self) -> Float[Array, "3"]:
        return jnp.stack([self.cart, self.mass, self.mass])

    def constant_force(self) -> Float[Array, "3"]:
        o = jnp.zeros_like(self.mass)
        return jnp.stack([o, o, -self.mass * self.gravity])

    def pole(self, t: Time, q: Coordinates) -> Float[Array, ""]:
        return stretch(jnp.stack([q[1] - q[0], q[2]]), self.length)

    @property
    def constraints(self) -> tuple[AbstractConstraint, ...]:
        return (Holonomic(self.pole, name="pole"),)

    def points(self, t: Time, q: Coordinates) -> dict[str, Array]:
        return {"cart": jnp.stack([q[0], jnp.zeros_like(q[0])]), "mass": q[1:]}

    def drawing(self, t: Time, q: Coordinates) -> dict[str, Array]:
        return {"pole": jnp.stack(list(self.points(t, q).values()))}


def _start_of_cart(system: LightCartPole, angle: Array, rate: Array) -> tuple[Coordinates, Velocities]:
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
    q0, v0 = evaluate_start(_start_of_cart, system, angle, rate)
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
