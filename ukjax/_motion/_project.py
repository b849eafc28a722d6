"""The nearest consistent state: positions, then velocities, in the mass metric.

Positions move along constraint forces, q* = q + G B^T mu with B = phi_q G taken at q, and mu such that
phi(t, q*) = 0. G is the root of the inverse mass matrix, G G^T = N M^-1 N^T where q' = N v, extended by the
directions N cannot reach (the length of a quaternion), so that a constraint on those is held as well.
Velocities move by dv = -W^T B^+ psi with B = A W^T and W^T W = M^-1.

mu is found by chord iterations, two at a time, for as long as the first of two halves the error and the second leaves
more than rounding. A start may be far off: it is projected again from where that ended, with J and M there, until it is
consistent (`iterate_projections`). Arrays, NumPy and scalar code (`_projection_code`) iterate
alike, so that a start is the same within and outside `jit`.

The derivative is that of the implicit function: from d phi(t, q*) = 0 with P = B^+ and B* = phi_q(q*) G,

    dq* = dq1 - G (B* P B)^+ dphi,    d mu = -P^T (B* P B)^+ dphi,

where dq1 and dphi are the changes of q + G B^T mu and of phi there with mu held fixed.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
from jaxtyping import Array, Float

from .._compiler import AtStates, compile_small, evaluate_by_code
from .._formula._acceleration import require_shapes
from .._formula._equations import equations_at, inertia
from .._misc._arguments import require_between
from .._misc._errors import InputError
from .._misc._types import Coordinates, MassMatrix, Numbers, Time, Velocities, in_full_precision, is_traced
from .._pseudoinverse import (
    SVD,
    AbstractPseudoinverse,
    GramSchmidt,
    as_pseudoinverse,
    inverse_cholesky,
    pinv,
    solve_on_host,
    unit_rows_on_host,
)
from .._system._problem import Problem, resolve_state
from .._system._rows import (
    Rows,
    constraint_errors,
    constraint_rows,
    position_rows,
    position_rows_and_jacobian,
)
from .._system._stabilize import AbstractStabilizer, NoStabilizer
from .._system._system import AbstractSystem, TreeInertia, has_quasi_velocities
from ._projection_code import OF_ROWS

# --- The directions that constraints act in at one state, in the mass metric


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


def _dense(M: Any) -> MassMatrix:
    return M.dense() if isinstance(M, TreeInertia) else M


def _metric_root(M: Any, J: Any, xp: Any) -> Any:
    """A root G of an inverse metric (n, n), G G^T = (M + c J^T J)^-1, where M may be singular, by NumPy or JAX's.

    M alone gives the same projection, since J dq is what is prescribed.
    """
    M = _dense(M)
    if not len(J):
        return xp.eye(len(M), dtype=M.dtype)  # nothing to move onto, so any will do, also where M is singular
    size = xp.sum(J * J)
    shares = xp.trace(M) / xp.where(size == 0, 1, size) * (J.T @ J)
    if xp is np:  # a larger c: starts are far off, and where they end depends on it
        return np.linalg.inv(np.linalg.cholesky(M + shares)).T.copy()
    return inverse_cholesky(M + OF_ROWS * shares).T


def position_root(xp: Any, J: Any, M: Any, N: Any = None) -> Any:
    """A root G of the inverse metric of q (n_q, n_q), where q' = N v; see `_metric_root`.

    The metric is (N^+)^T M N^+ + I - N N^+: M along what N reaches, and 1 across it.
    """
    if N is not None:
        back = np.linalg.pinv(N) if xp is np else pinv(N, GramSchmidt()).matrix
        M = back.T @ _dense(M) @ back + xp.eye(len(N), dtype=N.dtype) - N @ back
    return _metric_root(M, J, xp)


def compute_position_terms(system: AbstractSystem, t: Array, q: Array) -> tuple[Any, ...]:
    """phi, phi_q, M, and N where q' = N v."""
    phi, J = position_rows_and_jacobian(system, t, q)
    v = jnp.zeros(jax.eval_shape(system.mass_matrix, t, q).shape[0], q.dtype)
    M = inertia(system, t, q, v.size)
    if not has_quasi_velocities(system):
        return phi, J, M
    return phi, J, M, jax.jacfwd(system.kinematics, argnums=2)(t, q, v)


def position_directions(
    system: AbstractSystem, t: Time, q: Coordinates, method: AbstractPseudoinverse
) -> Directions:
    """The directions of the holonomic rows, for changes of q."""
    _, J, *others = evaluate_by_code(compute_position_terms, system, t, q)
    G = position_root(jnp, J, *others)
    return Directions(G, J, pinv(J @ G, method).matrix)


def velocity_directions(
    system: AbstractSystem, t: Time, q: Coordinates, rows: Rows, method: AbstractPseudoinverse
) -> tuple[Directions, Float[Array, " k"]]:
    """The directions of all rows with a velocity error, for changes of v; and those errors psi."""
    A, psi = rows.A[rows.of_velocities], rows.velocity_error[rows.of_velocities]
    G = _metric_root(system.mass_matrix(t, q), A, jnp)
    return Directions(G, A, pinv(A @ G, method).matrix), psi


# --- The same for a state that has values, by NumPy: nothing is compiled


def _compute_velocity_terms(system: AbstractSystem, t: Array, q: Array, v: Array) -> tuple[Any, Rows]:
    """M, and all rows but for b, which takes second derivatives."""
    rows = constraint_rows(system, t, q, v)
    return inertia(system, t, q, v.size), dataclasses.replace(rows, b=jnp.zeros_like(rows.b))


def entries(M: Any) -> np.ndarray:
    return np.asarray(_dense(M))


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
    """The projected coordinates, by the iterations above, and what rows were off before the last of these.

    **Raises:** as `project_on_host`.
    """
    q = np.asarray(q)
    phi, *terms = at(q)
    size = largest(terms[0]) * largest(q)
    if not phi.size:
        return q, 0.0
    G = position_root(np, *terms)
    unit, norms = unit_rows_on_host(terms[0] @ G)
    inverse, after = np.linalg.pinv(unit, rcond=rcond), 0.0
    for _ in range(MOST_PAIRS):
        before, q = largest(phi), q - G @ (inverse @ (phi / norms))
        phi = at(q)[0]
        after, q = largest(phi), q - G @ (inverse @ (phi / norms))
        phi = at(q)[0]
        if not goes_on(before, after, size):
            break
    return q, after


Off = tuple[Any, Any, Callable[[], Rows]]
"""By how much rows are off, phi and psi, and what gives all of the rows."""


def project_on_host(
    system: AbstractSystem, t: Any, q: Any, v: Any, rcond: float, tolerance: float
) -> tuple[np.ndarray, np.ndarray, Off]:
    """The state that projections lead to, as `iterate_projections`, and by how much rows are off there.

    **Raises:** `InputError` where no projection is defined.
    """
    t, q, v = map(np.asarray, (t, q, v))
    here, errors, at = (
        AtStates(of, system).one
        for of in (compute_position_terms, constraint_errors, _compute_velocity_terms)
    )
    passes = 0
    while True:
        try:
            q, of_q = positions_on_host(lambda q: here(t, q), q, rcond)
            of_v = functools.partial(errors, t, q), functools.partial(at, t, q)
            projected, off_before, off = _velocities(*of_v, v, rcond)
        except np.linalg.LinAlgError as error:
            M, rows = at(t, q, v)
            raise InputError(_why_not(M, rows, t, q)) from error
        v = projected if of_q <= tolerance else v
        passes += 1
        if (of_q <= tolerance and off_before <= tolerance) or passes == MOST_PASSES:
            return q, projected, off


def _velocities(
    errors: Callable[[np.ndarray], tuple[Any, Any]],
    at: Callable[[np.ndarray], tuple[Any, Rows]],
    v: np.ndarray,
    rcond: float,
) -> tuple[np.ndarray, float, Off]:
    """The projected velocities, what rows were off before, and by how much they are off then."""
    # Most starts are at rest, where rows that do not move have no error: to trace A takes several times as long.
    if not v.any() and not (off := errors(v))[1].any():
        return v, 0.0, (*off, lambda: at(v)[1])
    M, rows = at(v)
    A, psi = rows.A[rows.of_velocities], rows.velocity_error[rows.of_velocities]
    if psi.size:
        G = _metric_root(M, A, np)
        v = v - G @ solve_on_host(A @ G, psi, rcond)  # pyright: ignore[reportArgumentType]
        rows = at(v)[1]
    return v, largest(psi), (rows.position_error, rows.velocity_error, lambda: rows)


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


# --- The projection, and its derivative


def _move_by_multipliers(system: AbstractSystem, t: Time, q: Coordinates, mu: Array) -> tuple[Array, Array]:
    """q + G B^T mu, and phi there."""
    _, J, *others = evaluate_by_code(compute_position_terms, system, t, q)
    G = position_root(jnp, J, *others)
    moved = q + G @ ((J @ G).T @ mu)
    return moved, evaluate_by_code(position_rows, system, t, moved)


@eqx.filter_custom_jvp
def _project_positions(
    system: AbstractSystem, t: Time, q: Coordinates, method: AbstractPseudoinverse
) -> tuple[Coordinates, Array]:
    """q* and mu, by chord iterations on mu, two at a time."""
    directions = position_directions(system, t, q, method)
    size = jnp.max(jnp.abs(directions.J)) * jnp.max(jnp.abs(q))

    def iterate(q: Array, mu: Array) -> tuple[Array, Array, Array]:
        phi = evaluate_by_code(position_rows, system, t, q)
        mu = mu - directions.inverse.T @ (directions.inverse @ phi)
        return q + directions.correction(phi), mu, jnp.max(jnp.abs(phi))

    def iterate_twice(state: tuple) -> tuple:
        pairs, q, mu, _ = state
        q, mu, before = iterate(q, mu)
        q, mu, after = iterate(q, mu)
        return pairs + 1, q, mu, goes_on(before, after, size)

    start = (0, q, jnp.zeros(len(directions.J), q.dtype), jnp.ones((), bool))
    return jax.lax.while_loop(lambda x: x[3] & (x[0] < MOST_PAIRS), iterate_twice, start)[1:3]


@_project_positions.def_jvp
@in_full_precision
def _project_positions_jvp(primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
    system, t, q, method = primals
    projected, mu = _project_positions(system, t, q, method)
    moved, changes = eqx.filter_jvp(
        lambda system, t, q: _move_by_multipliers(system, t, q, mu), primals[:3], tangents[:3]
    )
    # None stands for a change that is zero, such as that of phi with gravity.
    d_moved, d_phi = (jnp.zeros_like(x) if d is None else d for x, d in zip(moved, changes, strict=True))
    directions = position_directions(system, t, q, method)
    G, P = directions.G, directions.inverse
    B = directions.J @ G
    B_end = evaluate_by_code(position_rows_and_jacobian, system, t, projected)[1] @ G
    step = pinv((B_end @ P) @ B, method).matrix @ d_phi
    return (projected, mu), (d_moved - G @ step, -P.T @ step)


@final
class Projection(AbstractStabilizer):
    """Projects positions, then velocities, onto the constraints after every step, in the mass metric.

    Drift is removed to rounding instead of damped, and there are no gains to choose. The initial state is
    projected too. Derivatives follow the implicit rule (module docstring), at constant rank.

    **Arguments:**

    - `pinv`: a pseudoinverse method that handles dependent rows, or a lineax solver.
    """

    pinv: AbstractPseudoinverse

    def __init__(self, pinv: AbstractPseudoinverse | lx.AbstractLinearSolver = GramSchmidt()):
        self.pinv = as_pseudoinverse(pinv)

    @property
    def projection_method(self) -> AbstractPseudoinverse:
        return self.pinv

    @in_full_precision
    def __call__(
        self, system: AbstractSystem, t: Time, q: Coordinates, v: Velocities
    ) -> tuple[Coordinates, Velocities]:
        """The projected state; for use inside `jit`.

        **Arguments:** as `project`.

        **Returns:** (q, v), consistent if q was near enough for the iterations to converge.
        """
        q = self.positions(system, t, q)
        directions, psi = velocity_directions(system, t, q, constraint_rows(system, t, q, v), self.pinv)
        return q, v + directions.correction(psi)

    @in_full_precision
    def positions(self, system: AbstractSystem, t: Time, q: Coordinates) -> Coordinates:
        """The projected positions, inside `jit` or at a state that has values.

        **Arguments:** as `project`.

        **Returns:** q, consistent if it was near enough for the iterations to converge; an array of NumPy where it was
        computed at once.
        """
        if isinstance(self.pinv, _OF_NUMPY) and not is_traced((system, t, q)):
            here = AtStates(compute_position_terms, system).one
            return positions_on_host(lambda q: here(t, q), q, self.pinv.threshold(q.dtype))[0]  # pyright: ignore[reportReturnType]
        if not jax.eval_shape(lambda t, q: position_rows(system, t, q), t, q).size:
            return q
        return _project_positions(system, t, q, self.pinv)[0]


_OF_NUMPY = GramSchmidt | SVD


def iterate_projections(
    once: Callable[..., tuple[Any, ...]], q: Array, v: Array, tolerance: float
) -> tuple[Array, Array]:
    """The state that projections lead to, each with the rows where the one before ended, as Newton's method has them.

    **Arguments:**

    - `once`: q, v -> the projected q and v, and by how much position and velocity rows were off, at most, before the last
      correction.
    - `q`, `v`: the state to begin with.
    - `tolerance`: they end where both are off by no more, or are not finite.
    """

    def again(state: tuple) -> tuple:
        _, q, _, v = state
        q, projected, of_q, of_v = once(q, v)
        # Velocity rows need not be linear; but a velocity projected at positions still off is no start.
        return (
            (of_q > tolerance) | (of_v > tolerance),
            q,
            projected,
            jnp.where(of_q > tolerance, v, projected),
        )

    step = lambda state, _: (jax.lax.cond(state[0], again, lambda state: state, state), None)
    return jax.lax.scan(step, (jnp.ones((), bool), q, v, v), length=MOST_PASSES)[0][1:3]


@compile_small
def _project_traced(
    projection: Projection, system: AbstractSystem, t: Array, q: Array, v: Array, tolerance: float
) -> tuple[Array, Array, Rows]:
    require_shapes(system, t, q, v)
    # The rows of a system with numbers of float64 are so too, also at a state of float32.
    dtype, rows_dtype = q.dtype, eqx.filter_eval_shape(position_rows, system, t, q).dtype

    def once(q: Array, v: Array) -> tuple[Array, ...]:
        given = constraint_rows(system, t, q, v)
        projected = projection(system, *(x.astype(rows_dtype) for x in (t, q, v)))
        q, v = (x.astype(dtype) for x in projected)
        return q, v, largest(given.position_error), largest(given.velocity_error)

    q, v = iterate_projections(once, q, v, tolerance)
    return q, v, constraint_rows(system, t, q, v)


def project(
    system: AbstractSystem | Problem,
    t: Time | float | None = None,
    q: Numbers | None = None,
    v: Numbers | None = None,
    *,
    pinv: AbstractPseudoinverse | lx.AbstractLinearSolver = GramSchmidt(),
    tolerance: float | None = None,
) -> tuple[Coordinates, Velocities]:
    """The nearest state on the constraints, positions first, then velocities, in the mass metric.

    Where one projection does not converge, it is repeated from where it stopped, so that states far away are
    brought back too.

    **Arguments:**

    - `system`: the mechanical system, or a `Problem`, which brings what is not given.
    - `t`: time [s].
    - `q`: generalized coordinates (n_q,).
    - `v`: generalized velocities (n,).
    - `pinv`: a pseudoinverse method that handles dependent rows, or a lineax solver. A state that has values is projected
      by NumPy's singular values, at the `rcond` of `GramSchmidt` and `SVD`; any other method is compiled.
    - `tolerance`: the largest position and velocity error to accept; by default 1e4 times the precision.

    **Returns:** (q, v).

    **Raises:** `InputError`, naming the rows still violated, if no consistent state is found.
    """
    system, t, q, v = resolve_state(system, t, q, v)
    tolerance = tolerance_of(q.dtype) if tolerance is None else tolerance
    require_between("tolerance", tolerance, 0, np.inf)
    projection, traced = Projection(pinv), is_traced((system, t, q, v))
    if traced:
        return _project_traced(projection, system, t, q, v, tolerance)[:2]
    if isinstance(projection.pinv, _OF_NUMPY):
        equations_at(system, NoStabilizer(), t, q, v)  # which looks at all shapes, the first time
    return project_known(projection, system, t, q, v, float(tolerance))


_ROUNDING = 32


def tolerance_of(dtype: Any) -> float:
    """The largest error of a consistent state, by default."""
    return 1e4 * float(jnp.finfo(dtype).eps)


def project_known(
    projection: Projection, system: AbstractSystem, t: Array, q: Array, v: Array, tolerance: float
) -> tuple[Coordinates, Velocities]:
    """As `project`, of a state that has values and a system that returns arrays of the right shapes; by NumPy where the
    method is no other than NumPy's."""
    if isinstance(projection.pinv, _OF_NUMPY):
        rcond = projection.pinv.threshold(q.dtype)
        *found, (*off, rows_there) = project_on_host(system, t, q, v, rcond, tolerance)
    else:
        *found, rows = _project_traced(projection, system, t, q, v, tolerance)
        off, rows_there = (rows.position_error, rows.velocity_error), lambda: rows
    if all(largest(x) <= tolerance for x in off):  # a NaN is not
        violated = []
    else:
        rows = rows_there()
        # A row of large coordinates is no nearer to zero than rounding has it.
        rounding = _ROUNDING * np.finfo(q.dtype).eps * np.sum(np.abs(rows.A), axis=1)
        violated = [
            f"{name} ({e:.1e}{words})"
            for words, errors, y in zip(("", " of velocities"), off, found, strict=True)
            for name, e, least in zip(rows.names, np.abs(errors), rounding * largest(y), strict=True)
            if not e <= max(tolerance, least)
        ]
    if not violated:
        with jax.ensure_compile_time_eval():  # so that they have values within `jit` too
            return tuple(jax.device_put(found))
    raise InputError(f"no consistent state was found near q = {q}: still violated are {', '.join(violated)}.")
