"""The nearest consistent state: positions, then velocities, in the mass metric.

Positions move along constraint forces, q* = q + G B^T mu with B = phi_q G taken at q, and mu such that
phi(t, q*) = 0. G is the root of the inverse mass matrix, G G^T = N M^-1 N^T where q' = N v, extended by the
directions N cannot reach (the length of a quaternion), so that a constraint on those is held as well.
Velocities move by dv = -W^T B^+ psi with B = A W^T and W^T W = M^-1.

The derivative is that of the implicit function: from d phi(t, q*) = 0 with P = B^+ and B* = phi_q(q*) G,

    dq* = dq1 - G (B* P B)^+ dphi,    d mu = -P^T (B* P B)^+ dphi,

where dq1 and dphi are the changes of q + G B^T mu and of phi there with mu held fixed.
"""

from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
from jaxtyping import Array, Float

from ._constraint import Rows, constraint_rows, position_rows
from ._errors import InputError
from ._problem import Problem, resolve_state
from ._pseudoinverse import (
    AbstractPseudoinverse,
    CompleteOrthogonal,
    as_pseudoinverse,
    inverse_cholesky,
    pinv,
)
from ._stabilize import AbstractStabilizer
from ._system import AbstractSystem, has_quasi_velocities
from ._types import Coordinates, Time, Velocities


def _correction_basis(system: AbstractSystem, t: Time, q: Coordinates) -> Float[Array, "nq k"]:
    """G of the module's docstring."""
    W = inverse_cholesky(system.mass_matrix(t, q))
    if not has_quasi_velocities(system):
        return W.T
    N = jax.jacfwd(system.kinematics, argnums=2)(t, q, jnp.zeros(W.shape[0], q.dtype))
    beyond = jnp.eye(q.size, dtype=q.dtype) - N @ pinv(N, CompleteOrthogonal()).matrix
    return jnp.concatenate([N @ W.T, beyond], axis=1)


def _linearized(system: AbstractSystem, t: Time, q: Coordinates) -> tuple[Array, Array]:
    """G and B = phi_q G at q."""
    G = _correction_basis(system, t, q)
    return G, jax.jacfwd(position_rows, argnums=2)(system, t, q) @ G


def _moved(system: AbstractSystem, t: Time, q: Coordinates, mu: Array) -> tuple[Array, Array]:
    """q + G B^T mu, and phi there."""
    G, B = _linearized(system, t, q)
    moved = q + G @ (B.T @ mu)
    return moved, position_rows(system, t, moved)


@eqx.filter_custom_jvp
def _project_positions(
    system: AbstractSystem, t: Time, q: Coordinates, method: AbstractPseudoinverse
) -> tuple[Coordinates, Array]:
    """q* and mu, by chord iterations on mu that go on for as long as each halves the error."""
    G, B = _linearized(system, t, q)
    P = pinv(B, method).matrix

    def halved(state: tuple) -> Array:
        i, _, _, phi, before = state
        return (jnp.max(jnp.abs(phi)) < 0.5 * before) & (i < 50)

    def correct(state: tuple) -> tuple:
        i, q, mu, phi, _ = state
        step = P @ phi
        q = q - G @ step
        return i + 1, q, mu - P.T @ step, position_rows(system, t, q), jnp.max(jnp.abs(phi))

    phi = position_rows(system, t, q)
    start = (0, q, jnp.zeros_like(phi), phi, jnp.full((), jnp.inf, q.dtype))
    return jax.lax.while_loop(halved, correct, start)[1:3]


@_project_positions.def_jvp
def _project_positions_jvp(primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
    system, t, q, method = primals
    projected, mu = _project_positions(system, t, q, method)
    _, (d_moved, d_phi) = eqx.filter_jvp(
        lambda system, t, q: _moved(system, t, q, mu), primals[:3], tangents[:3]
    )
    G, B = _linearized(system, t, q)
    P = pinv(B, method).matrix
    B_end = jax.jacfwd(position_rows, argnums=2)(system, t, projected) @ G
    step = pinv((B_end @ P) @ B, method).matrix @ d_phi
    return (projected, mu), (d_moved - G @ step, -P.T @ step)


def _project_velocities(
    system: AbstractSystem, t: Time, q: Coordinates, v: Velocities, method: AbstractPseudoinverse
) -> Velocities:
    """One Gauss-Newton step towards psi(t, q, v) = 0; exact where psi is linear in v."""
    rows = constraint_rows(system, t, q, v)
    known = [i for i, kind in enumerate(rows.kinds) if kind != "acceleration"]
    if not known:
        return v
    W = inverse_cholesky(system.mass_matrix(t, q))
    A, psi = (x[jnp.array(known)] for x in (rows.A, rows.velocity_error))
    return v - W.T @ (pinv(A @ W.T, method).matrix @ psi)


@final
class Projection(AbstractStabilizer):
    """Projects positions, then velocities, onto the constraints after every step, in the mass metric.

    Drift is removed to rounding instead of damped, and there are no gains to choose. The initial state is
    projected too. Derivatives follow the implicit rule (module docstring), at constant rank.

    **Arguments:**

    - `pinv`: a pseudoinverse method that handles dependent rows, or a lineax solver.
    """

    pinv: AbstractPseudoinverse

    def __init__(self, pinv: AbstractPseudoinverse | lx.AbstractLinearSolver = CompleteOrthogonal()):
        self.pinv = as_pseudoinverse(pinv)

    def right_hand_side(self, rows: Rows) -> Float[Array, " m"]:
        return rows.b

    def __call__(
        self, system: AbstractSystem, t: Time, q: Coordinates, v: Velocities
    ) -> tuple[Coordinates, Velocities]:
        """The projected state; for use inside `jit`.

        **Arguments:** as `project`.

        **Returns:** (q, v), consistent if q was near enough for the iterations to converge.
        """
        if jax.eval_shape(lambda t, q: position_rows(system, t, q), t, q).size:
            q = _project_positions(system, t, q, self.pinv)[0]
        return q, _project_velocities(system, t, q, v, self.pinv)


@eqx.filter_jit
def _project_once(projection: Projection, system: AbstractSystem, t: Array, q: Array, v: Array) -> tuple:
    q, v = projection(system, t, q, v)
    rows = constraint_rows(system, t, q, v)
    scale = jnp.max(jnp.abs(rows.position_error), initial=0) + jnp.max(
        jnp.abs(rows.velocity_error), initial=0
    )
    return q, v, rows, scale


def project(
    system: AbstractSystem | Problem,
    t: Time | float | None = None,
    q: Coordinates | None = None,
    v: Velocities | None = None,
    *,
    pinv: AbstractPseudoinverse | lx.AbstractLinearSolver = CompleteOrthogonal(),
    tolerance: float | None = None,
) -> tuple[Coordinates, Velocities]:
    """The nearest state on the constraints, positions first, then velocities, in the mass metric.

    Repeats the projection of `Projection` from where it stopped, so it converges from far away where the
    constraints allow it.

    **Arguments:**

    - `system`: the mechanical system, or a `Problem`, which brings what is not given.
    - `t`: time [s].
    - `q`: generalized coordinates (n_q,).
    - `v`: generalized velocities (n,).
    - `pinv`: a pseudoinverse method that handles dependent rows.
    - `tolerance`: the largest position and velocity error to accept; by default 1e4 times the precision.

    **Returns:** (q, v).

    **Raises:** `InputError`, naming the rows still violated, if no consistent state is found.
    """
    system, t, q, v = resolve_state(system, t, q, v)
    projection = Projection(pinv)
    q, v, rows, error = _project_once(projection, system, t, q, v)
    if isinstance(error, jax.core.Tracer):
        return q, v
    tolerance = 1e4 * float(jnp.finfo(q.dtype).eps) if tolerance is None else tolerance
    for _ in range(50):
        if error <= tolerance:
            return q, v
        q, v, rows, error = _project_once(projection, system, t, q, v)
    worst = jnp.maximum(jnp.abs(rows.position_error), jnp.abs(rows.velocity_error))
    violated = [f"{name} ({e:.1e})" for name, e in zip(rows.names, worst, strict=True) if not e <= tolerance]
    raise InputError(f"no consistent state was found near q = {q}: still violated are {', '.join(violated)}.")
