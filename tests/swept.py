"""What tests of clusters sweep. A worker imports this file and no other of the tests, which takes a fifth of its time."""

import jax
import jax.numpy as jnp
import numpy as np

PARAMS = {"start": np.linspace(0.1, 0.9, 12), "rate": np.linspace(3.6, 4.0, 11)}


def chaotic(start, rate):
    """Every rounding error shows."""
    x = jax.lax.fori_loop(0, 10_000, lambda i, x: rate * x * (1 - x), start)
    return {"end": x, "many": jnp.linspace(x, 1 - x, 5)}


def linear(x):
    return {"double": 2 * x}
