"""The nearest consistent state: positions, then velocities, in the mass metric.

Positions move along constraint forces, q* = q + G B^T mu with B = phi_q G taken at q, and mu such that
phi(t, q*) = 0. G is the root of the inverse mass matrix, G G^T = N M^-1 N^T where q' = N v, extended by the
directions N cannot reach (the length of a quaternion), so that a constraint on those is held as well.
Velocities move by dv = -W^T B^+ psi with B = A W^T and W^T W = M^-1.

mu is found by chord iterations, two at a time, for as long as the first of two halves the error and the second leaves
more than rounding. A start may be far off: it is projected again from where that ended, with J and M there, until it is
consistent (`iterate_projections`). Arrays, NumPy (`_project_on_host`) and scalar code (`_compiler/_projection`) iterate
alike, so that a start is the same within and outside `jit`.

The derivative is that of the implicit function: from d phi(t, q*) = 0 with P = B^+ and B* = phi_q(q*) G,

    dq* = dq1 - G (B* P B)^+ dphi,    d mu = -P^T (B* P B)^+ dphi,

where dq1 and dphi are the changes of q + G B^T mu and of phi there with mu held fixed.
"""

from collections.abc import Callable
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
from jaxtyping import Array

from .._compiler import AtStates, equations_at, evaluate_by_code
from .._formula._acceleration import require_shapes
from .._misc._arguments import require_between
from .._misc._errors import InputError
from .._misc._precision import in_full_precision
from .._misc._types import Coordinates, Numbers, Time, Velocities, is_traced
from .._pseudoinverse import (
    SVD,
    AbstractPseudoinverse,
    GramSchmidt,
    as_pseudoinverse,
    pinv,
)
from .._system._problem import Problem, resolve_state
from .._system._rows import Rows, constraint_rows, position_rows, position_rows_and_jacobian
from .._system._stabilize import AbstractStabilizer, NoStabilizer
from .._system._system import AbstractSystem
from ._directions import position_directions, position_root, velocity_directions
from ._project_on_host import (
    MOST_PAIRS,
    MOST_PASSES,
    compute_position_terms,
    goes_on,
    largest,
    positions_on_host,
    project_on_host,
)


def _move_by_multipliers(system: AbstractSystem, t: Time, q: Coordinates, mu: Array) -> tuple[Array, Array]:
    """q + G B^T mu, and phi there."""
    J, G = position_root(system, t, q)
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


@eqx.filter_jit
def _project_traced(
    projection: Projection, system: AbstractSystem, t: Array, q: Array, v: Array, tolerance: float
) -> tuple[Array, Array, Rows]:
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
    if not traced and isinstance(projection.pinv, _OF_NUMPY):
        equations_at(system, NoStabilizer(), t, q, v)  # which looks at all shapes, the first time
    else:
        require_shapes(system, t, q, v)
    if traced:
        return _project_traced(projection, system, t, q, v, tolerance)[:2]
    return project_known(projection, system, t, q, v, float(tolerance))


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
        *found, rows = project_on_host(system, t, q, v, rcond, tolerance)
    else:
        *found, rows = _project_traced(projection, system, t, q, v, tolerance)
    if (
        largest(rows.position_error) <= tolerance and largest(rows.velocity_error) <= tolerance
    ):  # a NaN is not
        return tuple(jax.device_put(found))
    violated = [
        f"{name} ({e:.1e}{words})"
        for words, errors in (("", rows.position_error), (" of velocities", rows.velocity_error))
        for name, e in zip(rows.names, np.abs(errors), strict=True)
        if not e <= tolerance
    ]
    raise InputError(f"no consistent state was found near q = {q}: still violated are {', '.join(violated)}.")
