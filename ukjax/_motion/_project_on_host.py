"""The projection of `_project` for a state that has values, by NumPy: nothing is compiled."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._compiler import AtStates
from .._formula._equations import inertia
from .._misc._errors import InputError
from .._pseudoinverse import solve_on_host, unit_rows_on_host
from .._system._rows import Rows, constraint_rows, position_rows_and_jacobian
from .._system._system import AbstractSystem, has_quasi_velocities
from .._system._tree_inertia import TreeInertia


def compute_position_terms(system: AbstractSystem, t: Array, q: Array) -> tuple[Any, ...]:
    """phi, phi_q, M, and N where q' = N v."""
    phi, J = position_rows_and_jacobian(system, t, q)
    v = jnp.zeros(jax.eval_shape(system.mass_matrix, t, q).shape[0], q.dtype)
    M = inertia(system, t, q, v.size)
    if not has_quasi_velocities(system):
        return phi, J, M
    return phi, J, M, jax.jacfwd(system.kinematics, argnums=2)(t, q, v)


def _compute_velocity_terms(system: AbstractSystem, t: Array, q: Array, v: Array) -> tuple[Any, Rows]:
    """M, and all rows but for b, which takes second derivatives."""
    rows = constraint_rows(system, t, q, v)
    return inertia(system, t, q, v.size), dataclasses.replace(rows, b=jnp.zeros_like(rows.b))


def entries(M: Any) -> np.ndarray:
    return np.asarray(M.dense() if isinstance(M, TreeInertia) else M)


def _metric_root(M: np.ndarray, J: np.ndarray) -> np.ndarray:
    """As of `_directions`: a root of (M + c J^T J)^-1."""
    if not len(J):
        return np.eye(len(M), dtype=M.dtype)
    size = np.sum(J * J)
    root = np.linalg.cholesky(M + np.trace(M) / (size if size else 1) * (J.T @ J))
    return np.linalg.inv(root).T


MOST_PASSES = 50  # of a start that is far off
MOST_PAIRS = 16  # of iterations, in one projection; as many as `MOST_CALLS` of its scalar code


def largest(x: Any) -> Any:
    """The largest absolute value."""
    return abs(x).max(initial=0)


def goes_on(before: Any, after: Any, size: Any) -> Any:
    """Whether two more iterations bring positions nearer, given by how much rows were off before each of two.

    That is where the first halved it and the second leaves more than rounding, which is in proportion to `size`, the
    largest entry of the Jacobian times the largest coordinate.
    """
    return (after < 0.5 * before) & (after * after > jnp.finfo(size.dtype).eps * size * before)


def positions_on_host(
    at: Callable[[np.ndarray], tuple[Any, ...]], q: Any, rcond: float
) -> tuple[np.ndarray, float]:
    """The projected coordinates, by the iterations of `_project`, and what rows were off before the last of these.

    **Raises:** as `project_on_host`.
    """
    q = np.asarray(q)
    phi, J, M, *rates = at(q)
    size = largest(J) * largest(q)
    if not phi.size:
        return q, 0.0
    M, E, unit = entries(M), np.eye(q.size, dtype=q.dtype), np.eye(q.size, dtype=q.dtype)
    if rates:  # and the directions that velocities do not reach
        N = rates[0]
        E = np.concatenate([N, unit - N @ np.linalg.pinv(N)], axis=1).astype(q.dtype)
        M = np.block([[M, np.zeros(N.T.shape, q.dtype)], [np.zeros(N.shape, q.dtype), unit]])
    G = E @ _metric_root(M, J @ E)
    unit, norms = unit_rows_on_host(J @ G)
    inverse, after = np.linalg.pinv(unit, rcond=rcond), 0.0
    for _ in range(MOST_PAIRS):
        before, q = largest(phi), q - G @ (inverse @ (phi / norms))
        phi = at(q)[0]
        after, q = largest(phi), q - G @ (inverse @ (phi / norms))
        phi = at(q)[0]
        if not goes_on(before, after, size):
            break
    return q, after


def project_on_host(
    system: AbstractSystem, t: Any, q: Any, v: Any, rcond: float, tolerance: float
) -> tuple[np.ndarray, np.ndarray, Rows]:
    """The state that projections lead to, as `iterate_projections`, and the rows there.

    **Raises:** `InputError` where no projection is defined.
    """
    t, q, v = map(np.asarray, (t, q, v))
    here, at = AtStates(compute_position_terms, system).one, AtStates(_compute_velocity_terms, system).one
    passes = 0
    while True:
        try:
            q, of_q = positions_on_host(lambda q: here(t, q), q, rcond)
            projected, of_v, rows = _velocities(lambda v, q=q: at(t, q, v), v, rcond)
        except np.linalg.LinAlgError as error:
            M, rows = at(t, q, v)
            raise InputError(_why_not(M, rows, t, q)) from error
        v = projected if of_q <= tolerance else v
        passes += 1
        if (of_q <= tolerance and of_v <= tolerance) or passes == MOST_PASSES:
            return q, projected, rows


def _velocities(
    at: Callable[[np.ndarray], tuple[Any, Any]], v: np.ndarray, rcond: float
) -> tuple[np.ndarray, float, Rows]:
    """The projected velocities, what rows were off before, and the rows there."""
    M, rows = at(v)
    A, psi = rows.A[rows.of_velocities], rows.velocity_error[rows.of_velocities]
    if not psi.size:
        return v, 0.0, rows
    G = _metric_root(entries(M), A)
    v = v - G @ solve_on_host(A @ G, psi, rcond)
    return v, largest(psi), at(v)[1]


def _why_not(M: Any, rows: Rows, t: np.ndarray, q: np.ndarray) -> str:
    """Why there is no projection."""
    values = rows.A, rows.position_error[:, None], rows.velocity_error[:, None]
    unknown = ~np.all(np.isfinite(np.concatenate(values, axis=1)), axis=1)
    if unknown.any():
        names = ", ".join(name for name, lacks in zip(rows.names, unknown, strict=True) if lacks)
        return f"the constraints {names} are not finite at t = {t}, q = {q}."
    if not np.all(np.isfinite(entries(M))):
        return f"the mass matrix is not finite at t = {t}, q = {q}."
    return (
        f"no nearest state on the constraints is defined at t = {t}, q = {q}: M + A^T A of mass matrix and constraint "
        "Jacobian is not positive definite."
    )
