"""The spherical pendulum in Cartesian coordinates."""

import math

import jax.numpy as jnp
from jaxtyping import Array

from .._misc._types import Coordinates, Velocities
from .._system._problem import Problem
from ._parameters import Scalar, check_finite, check_positive, evaluate_start
from ._pendulum import Pendulum


def _start(system: Pendulum, angle: Array, speed: Array) -> tuple[Coordinates, Velocities]:
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
    q0, v0 = evaluate_start(_start, system, angle, speed)
    citation = "E. T. Whittaker, Analytical Dynamics of Particles and Rigid Bodies, 1937, ch. IV."
    return Problem(system, q0, v0, 0.0, 10.0, system.points, citation=citation, name="spherical_pendulum")
