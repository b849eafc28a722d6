"""The projection of `_project` for a state that has values, by NumPy: nothing is compiled."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._compiler import AtStates
from .._formula._equations import inertia
from .._pseudoinverse import solved_on_host, unit_rows_on_host
from .._system._rows import Rows, constraint_rows, position_rows_and_jacobian
from .._system._system import AbstractSystem, has_quasi_velocities
from .._system._tree_inertia import TreeInertia


def at_position(system: AbstractSystem, t: Array, q: Array) -> tuple[Any, ...]:
    """phi, phi_q, M, and N where q' = N v."""
    phi, J = position_rows_and_jacobian(system, t, q)
    v = jnp.zeros(jax.eval_shape(system.mass_matrix, t, q).shape[0], q.dtype)
    M = inertia(system, t, q, v.size)
    if not has_quasi_velocities(system):
        return phi, J, M
    return phi, J, M, jax.jacfwd(system.kinematics, argnums=2)(t, q, v)


def _at_velocity(system: AbstractSystem, t: Array, q: Array, v: Array) -> tuple[Any, Rows]:
    """M, and all rows."""
    return inertia(system, t, q, v.size), constraint_rows(system, t, q, v)


def entries(M: Any) -> np.ndarray:
    return np.asarray(M.dense() if isinstance(M, TreeInertia) else M)


def _metric_root(M: np.ndarray, J: np.ndarray) -> np.ndarray:
    """As of `_directions`: a root of (M + c J^T J)^-1."""
    if not len(J):
        return np.eye(len(M), dtype=M.dtype)
    size = np.sum(J * J)
    root = np.linalg.cholesky(M + np.trace(M) / (size if size else 1) * (J.T @ J))
    return np.linalg.inv(root).T


def positions_on_host(at: Callable[[np.ndarray], tuple[Any, ...]], q: Any, rcond: float) -> np.ndarray:
    """The projected coordinates: by chord iterations, for as long as each halves the error.

    **Raises:** as `projected_on_host`.
    """
    q = np.asarray(q)
    phi, J, M, *rates = at(q)
    if not phi.size:
        return q
    M, E, unit = entries(M), np.eye(q.size, dtype=q.dtype), np.eye(q.size, dtype=q.dtype)
    if rates:  # and the directions that velocities do not reach
        N = rates[0]
        E = np.concatenate([N, unit - N @ np.linalg.pinv(N)], axis=1).astype(q.dtype)
        M = np.block([[M, np.zeros(N.T.shape, q.dtype)], [np.zeros(N.shape, q.dtype), unit]])
    G = E @ _metric_root(M, J @ E)
    unit, norms = unit_rows_on_host(J @ G)
    inverse, before = np.linalg.pinv(unit, rcond=rcond), np.inf
    for _ in range(50):
        error = np.max(np.abs(phi))
        if not error < 0.5 * before:
            break
        before, q = error, q - G @ (inverse @ (phi / norms))
        phi = at(q)[0]
    return q


def projected_on_host(
    system: AbstractSystem, t: Any, q: Any, v: Any, rcond: float
) -> tuple[np.ndarray, np.ndarray, Rows]:
    """The projected state, and the rows there.

    **Raises:** `numpy.linalg.LinAlgError` where matrices are not finite.
    """
    t, q, v = map(np.asarray, (t, q, v))
    here, at = AtStates(at_position, system).one, AtStates(_at_velocity, system).one
    q = positions_on_host(lambda q: here(t, q), q, rcond)
    M, rows = at(t, q, v)
    A, psi = rows.A[rows.of_velocities], rows.velocity_error[rows.of_velocities]
    if psi.size:
        G = _metric_root(entries(M), A)
        v = v - G @ solved_on_host(A @ G, psi, rcond)
        rows = at(t, q, v)[1]
    return q, v, rows
