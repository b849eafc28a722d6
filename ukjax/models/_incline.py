"""What the two nonholonomic models on an incline share: the closed-form path of a turning body."""

import jax.numpy as jnp
from jaxtyping import Array


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
