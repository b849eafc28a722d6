"""Scalar code that projects a state onto the constraints, and the error estimate of the step that led to it.

The positions move by dq = M^-1 J^T mu, with M and J where the step ended, until phi(q + dq) = 0: chord iterations on
mu. Then the velocities move by the same equations with the rows there. For derivatives the change of (dq, mu) is that
of the solution of M dq = J^T mu, phi(q + dq) = 0, in which the matrices need not be differentiated beyond their product
with what is known (see `_solve`).

What the error estimate says along nearly dependent rows is no error, since the projection removes it. With S = A M^-1 A^T
that part is M^-1 A^T (S^+ - (S + delta^2 diag S)^-1) A e: rows count as dependent by their angle to the others, smoothly.

The same damped matrix, in which no row is left out, solves for what the rows left out lack in the end: where the others
are nearly dependent, these hold them only to rounding over the sine of their angle.
"""

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from .._types import by_precision
from ._expressions import Expression
from ._noise import without_noise
from ._scalars import Builder
from ._solve import Solver, Vector, factor, largest, minus, plus, solve, times

_ITERATIONS = 2
_REFINEMENTS = 5  # of the change, which converges as fast as the positions do, with no check of its own
# On the constraints redundant rows are dependent to rounding; but the velocities a step leaves there are corrected by
# rounding over the sine of nearly dependent ones, which is energy: with 1e-7 some 1e-8 of it a step.
_CONSISTENT_RCOND = 1e-5


def nearly_dependent(dtype: Any) -> float:
    """Sines below which rows count as nearly dependent, so that errors along them are left to the projection.

    **Arguments:**

    - `dtype`: of the state.
    """
    return by_precision(dtype, 3e-2, 0.1)


class Motion(NamedTuple):
    """The functions of a system, of expressions.

    - `positions`: q -> phi (h,), J (h, n), M (n, n).
    - `velocities`: q, v -> A (m, n), psi (m,), M (n, n), of the rows that have a velocity error.
    - `holonomic`: which of those are of positions.
    """

    positions: Callable[[Vector], tuple[np.ndarray, np.ndarray, np.ndarray]]
    velocities: Callable[[Vector, Vector], tuple[np.ndarray, np.ndarray, np.ndarray]]
    holonomic: tuple[bool, ...]


def _pushed(solver: Solver, multipliers: Vector, n: int) -> Vector:
    """M^-1 J^T mu."""
    return solver.back(solver.pushed([0.0] * n, multipliers))


def _damped(build: Builder, solver: Solver, delta: float) -> Solver:
    """The same, with S + delta^2 diag S in place of S."""
    damped, S, apply = copy.copy(solver), solver.S.copy(), build.apply
    for i in range(len(S)):
        S[i, i] = apply("mul", 1 + delta**2, S[i, i])

    def invert(pivot: Expression, *_: object) -> Expression:
        some = apply("gt", pivot, solver.noise)  # a row may be zero
        return apply("select", some, apply("div", 1.0, apply("select", some, pivot, 1.0)), 0.0)

    damped.schur = factor(build, S, invert)
    return damped


def positions(
    build: Builder, motion: Motion, q: Vector, mu: Vector, rcond: float, dtype: Any
) -> tuple[Vector, Vector, Expression, Solver]:
    """The projected positions, mu, 1 if more iterations would bring them nearer, else 0, and the damped solver.

    **Arguments:**

    - `build`: makes the expressions.
    - `motion`: of the system.
    - `q`: where the step ended (n,).
    - `mu`: to start from (h,).
    - `rcond`: the rank rule's threshold.
    - `dtype`: of the state.
    """
    eps = float(jnp.finfo(dtype).eps)
    phi, J, M = motion.positions(q)
    J = without_noise(build, J, eps)
    solver, negative = Solver(build, M, J, rcond, eps), lambda x: [build.apply("neg", y) for y in x]
    change, errors = _pushed(solver, mu, len(q)), []
    damped = _damped(build, solver, nearly_dependent(dtype))
    for left in reversed(range(_ITERATIONS)):
        phi = list(motion.positions(plus(build, q, change))[0])
        errors.append(largest(build, phi))
        more = solver.multipliers(negative(phi))
        if not left:
            more = plus(
                build, more, damped.multipliers(minus(build, negative(phi), times(build, solver.S, more)))
            )
        mu, change = plus(build, mu, more), plus(build, change, _pushed(solver, more, len(q)))
    moved = plus(build, q, change)
    apply, (before, after) = build.apply, errors[-2:]
    rounding = apply("mul", eps, apply("mul", largest(build, J.reshape(-1)), largest(build, q)))
    halved = apply("lt", after, apply("mul", 0.5, before))
    short = apply("gt", apply("mul", after, after), apply("mul", rounding, before))
    again = apply("select", apply("and", halved, short), 1.0, 0.0)

    still, held, force = solver.frozen(), build.frozen(change), times(build, J.T, build.frozen(mu))
    carried = plus(build, q, still.back(still.free(minus(build, force, times(build, M, held)))))
    here = build.frozen(moved)
    phi, J_here, _ = motion.positions(here)
    J_here = [build.frozen(row) for row in J_here]
    for _ in range(_REFINEMENTS):
        error = plus(build, phi, times(build, J_here, carried))
        carried = plus(build, carried, _pushed(still, still.multipliers(negative(error)), len(q)))
    return [apply("attached", *pair) for pair in zip(moved, carried, strict=True)], mu, again, damped


def _strong(build: Builder, solver: Solver, damped: Solver, A: np.ndarray, e: Vector) -> Vector:
    """An error less its part along nearly dependent rows."""
    along = times(build, A, e)
    weak = minus(build, solver.multipliers(along), damped.multipliers(along))
    return minus(build, e, _pushed(solver, weak, len(e)))


def projection(
    build: Builder,
    motion: Motion,
    state: tuple[Vector, Vector],
    mu: Vector,
    errors: tuple[Vector, Vector],
    rcond: float,
    dtype: Any,
) -> Vector:
    """All of the projection: q, v, mu, how close to singular, whether to iterate on, and the errors of q and v.

    **Arguments:**

    - `build`: makes the expressions.
    - `motion`: of the system.
    - `state`: where the step ended, q and v (n,) each.
    - `mu`: to start from (h,).
    - `errors`: the estimates for q and v (n,) each.
    - `rcond`: the rank rule's threshold for positions.
    - `dtype`: of the state.
    """
    (q, v), again, damped = state, 0.0, None
    if mu:
        q, mu, again, damped = positions(build, motion, q, mu, rcond, dtype)
    A, psi, M = motion.velocities(q, v)
    eps = float(jnp.finfo(dtype).eps)
    A = without_noise(build, A, eps)
    solver = Solver(build, M, A, _CONSISTENT_RCOND, eps)
    of_positions, of_all, J = solver, damped, A
    if damped is None or not all(motion.holonomic):
        of_all = _damped(build, solver, nearly_dependent(dtype))
    if not all(motion.holonomic):
        J = A[list(motion.holonomic)]
        of_positions = Solver(build, M, J, _CONSISTENT_RCOND, eps)
    change, _ = solve(solver, M, A, [0.0] * len(v), [build.apply("neg", x) for x in psi], of_all)
    v = plus(build, v, change)
    kept = (
        _strong(build, of_positions, damped or of_all, J, errors[0]) if len(J) else errors[0],
        _strong(build, solver, of_all, A, errors[1]),
    )
    rest = [*mu, solver.nearness(), again, *kept[0], *kept[1]]
    return [*q, *v, *build.frozen(rest)]
