"""What contacts do while a system moves, without the inertia they feel."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._misc._types import in_full_precision
from .._motion._model import Model
from ._rows import PushedSystem, kinematics


class ContactKinematics(NamedTuple):
    """What contacts do while the system moves: gaps (n,), contact velocities and their rates (m,), and rows (m, n_v)."""

    gap: Array
    u: Array
    rate: Array
    J: Array


@in_full_precision
def passing(model: Model, t: Array, q: Array, v: Array, a: Array) -> ContactKinematics:
    """The contacts of a motion at one state."""
    assert isinstance(model.system, PushedSystem)
    system = model.system.system
    of = lambda t, q, v: kinematics(system, t, q, v)
    (gap, u), (_, rate) = jax.jvp(of, (t, q, v), (jnp.ones_like(t), system.kinematics(t, q, v), a))
    return ContactKinematics(gap, u, rate, jax.jacfwd(lambda v: of(t, q, v).u)(v))
