"""The directions that constraints act in at one state, in the mass metric."""

from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._compiler import evaluate_by_code
from .._misc._types import Coordinates, MassMatrix, Time
from .._pseudoinverse import AbstractPseudoinverse, GramSchmidt, inverse_cholesky, pinv
from .._system._rows import Rows, position_rows_and_jacobian
from .._system._system import AbstractSystem, has_quasi_velocities


@final
class Directions(eqx.Module):
    """The directions constraints act in at one state: a change e of the state has the part G B^+ J e in them.

    - `G`: root of the inverse metric (n_q, k), or (n, n) for velocities.
    - `J`: Jacobian of the rows (m, n_q), or (m, n).
    - `inverse`: B^+ of B = J G (k, m).
    """

    G: Float[Array, "n k"]
    J: Float[Array, "m n"]
    inverse: Float[Array, "k m"]

    def correction(self, error: Float[Array, " m"]) -> Float[Array, " n"]:
        """The least change, in the mass metric, that removes an `error` of the rows."""
        return -self.G @ (self.inverse @ error)


def _metric_root(M: MassMatrix, J: Float[Array, "m n"]) -> Float[Array, "n n"]:
    """A root G of an inverse metric, G G^T = (M + c J^T J)^-1 with J scaled to the size of M, which may be singular.

    M alone gives the same projection, since J dq is what is prescribed.
    """
    if not J.shape[0]:
        return jnp.eye(
            M.shape[0], dtype=M.dtype
        )  # nothing to move onto, so any will do, also where M is singular
    size = jnp.sum(J * J)
    return inverse_cholesky(M + jnp.trace(M) / jnp.where(size == 0, 1, size) * (J.T @ J)).T


def _compute_position_terms(system: AbstractSystem, t: Time, q: Coordinates) -> tuple[Array, ...]:
    """J, M, and N where q' = N v."""
    J, M = position_rows_and_jacobian(system, t, q)[1], system.mass_matrix(t, q)
    if not has_quasi_velocities(system):
        return J, M
    return J, M, jax.jacfwd(system.kinematics, argnums=2)(t, q, jnp.zeros(M.shape[0], q.dtype))


def position_root(
    system: AbstractSystem, t: Time, q: Coordinates
) -> tuple[Float[Array, "m nq"], Float[Array, "nq k"]]:
    """The Jacobian J of the rows, and a root G of the inverse metric, N M^-1 N^T where q' = N v, and the directions N
    cannot reach; see `_metric_root`.
    """
    J, M, *rates = evaluate_by_code(_compute_position_terms, system, t, q)
    if not rates:
        return J, _metric_root(M, J)
    (N,) = rates
    beyond = jnp.eye(q.size, dtype=q.dtype) - N @ pinv(N, GramSchmidt()).matrix
    E, unit = jnp.concatenate([N, beyond], axis=1), jnp.eye(q.size, dtype=q.dtype)
    return J, E @ _metric_root(jax.scipy.linalg.block_diag(M, unit), J @ E)


def position_directions(
    system: AbstractSystem, t: Time, q: Coordinates, method: AbstractPseudoinverse
) -> Directions:
    """The directions of the holonomic rows, for changes of q."""
    J, G = position_root(system, t, q)
    return Directions(G, J, pinv(J @ G, method).matrix)


def velocity_directions(
    system: AbstractSystem, t: Time, q: Coordinates, rows: Rows, method: AbstractPseudoinverse
) -> tuple[Directions, Float[Array, " k"]]:
    """The directions of all rows with a velocity error, for changes of v; and those errors psi."""
    A, psi = rows.A[rows.of_velocities], rows.velocity_error[rows.of_velocities]
    G = _metric_root(system.mass_matrix(t, q), A)
    return Directions(G, A, pinv(A @ G, method).matrix), psi
