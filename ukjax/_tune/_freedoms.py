"""Which numbers of a state there are, and along which the constraints leave it free."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._compiler import compile_small
from .._system._rows import constraint_rows
from .._system._system import AbstractSystem, has_quasi_velocities, names_of


@compile_small
def evaluate_rows(system: AbstractSystem, t: Array, q: Array, v: Array) -> tuple[Any, Array]:
    """The rows of the constraints, and N of q' = N v."""
    N = jax.jacfwd(system.kinematics, argnums=2)(t, q, v) if has_quasi_velocities(system) else jnp.eye(q.size)
    return constraint_rows(system, t, q, v), N


_DEPENDENT = 1e-8
"""Singular values below this share of the largest are those of dependent rows."""


def _kernel(A: np.ndarray) -> np.ndarray:
    """An orthonormal basis of the velocities that rows allow."""
    _, s, Vt = np.linalg.svd(A, full_matrices=True)
    return Vt[int(np.sum(s > _DEPENDENT * s.max(initial=0))) :].T


def free_velocities(system: AbstractSystem, t: Any, q: Any, v: Any) -> tuple[np.ndarray, np.ndarray, Any]:
    """Bases of the velocities that rows of positions, and that all rows allow, as columns; and N of q' = N v."""
    rows, N = evaluate_rows(system, jnp.asarray(t), jnp.asarray(q), jnp.asarray(v))
    A = np.asarray(rows.A)
    return _kernel(A[rows.of_positions]), _kernel(A[rows.of_velocities]), N


def tangent_space(system: AbstractSystem, t: Any, q: Any, v: Any) -> tuple[np.ndarray, np.ndarray]:
    """What coordinates and what velocities may change by, as columns."""
    of_q, of_v, N = free_velocities(system, t, q, v)
    return np.asarray(N) @ of_q, of_v


def state_names(
    system: AbstractSystem, q: Array, v: Array, of_q: str, of_v: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What coordinates and velocities are called, as by sweeps: by label, velocities with a dash, or by number."""
    names = names_of(system, q, v)
    plain = lambda label, kind, dash, i: f"{kind}[{i}]" if "[" in label else f"{label}{dash}"
    coordinates = tuple(plain(x, of_q, "", i) for i, x in enumerate(names.coordinates))
    return coordinates, tuple(plain(x, of_v, "'", i) for i, x in enumerate(names.velocities))
