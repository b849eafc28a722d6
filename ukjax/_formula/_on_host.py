"""The Udwadia-Kalaba equation by NumPy, at states that have values: nothing is compiled."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._compiler import compile_small
from .._misc._errors import InputError
from .._misc._tolerances import CLEARLY as CLEARLY
from .._misc._types import as_jax, is_traced
from .._pseudoinverse import GramSchmidt, unit_rows_on_host
from .._system._stabilize import AbstractStabilizer, NoStabilizer
from .._system._system import AbstractSystem
from ._acceleration import (
    AbstractFormula,
    Acceleration,
    UdwadiaKalaba,
    misses_rows,
    require_balance,
    require_rows_kept,
    why_not_finite,
)
from ._equations import Equations, describe_asymmetry, equations_at


class HostSolution(NamedTuple):
    """Of k states: what `Acceleration` calls so, with the states along the first axes."""

    a: np.ndarray
    constraint_force: np.ndarray
    multipliers: np.ndarray


def _times(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Products of matrices and vectors."""
    return (X @ y[..., None])[..., 0]


def cholesky(M: np.ndarray) -> np.ndarray:
    """L of M = L L^T, by the rule of `inverse_cholesky`: a pivot that may be rounding is none."""
    L = np.linalg.cholesky(M)
    if np.any(np.diag(L) ** 2 <= len(M) * np.finfo(M.dtype).eps * np.diag(M)):
        raise np.linalg.LinAlgError("a pivot of the mass matrix may be rounding")
    return L


def clearly_independent(equations: Equations, rcond: float) -> bool:
    """Whether any formula and method would find the rows of A independent, M being positive definite."""
    A, M = np.asarray(equations.rows.A), np.asarray(equations.M)
    if len(A) > A.shape[1]:
        return False
    unit = unit_rows_on_host(A @ np.linalg.inv(cholesky(M)).T)[0]
    return bool(np.linalg.svd(unit, compute_uv=False).min(initial=1) > CLEARLY * rcond)


def acceleration_if_clear(equations: Equations, rcond: float) -> np.ndarray | None:
    """The acceleration (n,) by any method that takes dependent rows, if rows agree; None where the rank by that threshold
    is not clear.
    """
    M, Q, c, A, b = (
        np.asarray(x) for x in (equations.M, equations.Q, equations.c, equations.rows.A, equations.rows.b)
    )
    W = np.linalg.inv(cholesky(M))
    B, x0 = A @ W.T, W @ (Q + c)
    unit, norms = unit_rows_on_host(B)
    U, sizes, V = np.linalg.svd(unit, full_matrices=False)
    if np.any((CLEARLY * sizes > rcond) & (sizes <= CLEARLY * rcond)):
        return None
    inverse = np.divide(1, sizes, out=np.zeros_like(sizes), where=sizes > rcond)
    return W.T @ (x0 + V.T @ (inverse * (U.T @ ((b - B @ x0) / norms))))


def accelerations(equations: Equations, kept: np.ndarray) -> HostSolution:
    """What `UdwadiaKalaba` says where it is known which rows are independent.

    Of B = A M^-1/2 counts what lies in the span of those rows: B Q Q^T, Q an orthonormal basis of it. So B^+ = Q (B Q)^+,
    and B Q has full rank.
    """
    M, Q, c, A, b = (
        np.asarray(x) for x in (equations.M, equations.Q, equations.c, equations.rows.A, equations.rows.b)
    )
    W = np.linalg.inv(np.linalg.cholesky(M))
    B, x0 = A @ np.swapaxes(W, 1, 2), _times(W, Q + c)
    dx, multipliers = np.zeros_like(x0), np.zeros_like(b)
    for rows in {x.tobytes(): x for x in kept}.values():
        at = np.flatnonzero(np.all(kept == rows, axis=1))
        here = B[at]
        basis = np.linalg.qr(np.swapaxes(here[:, rows], 1, 2))[0]
        U, R = np.linalg.qr(here @ basis)
        lacking = b[at] - _times(here, x0[at])
        y = np.linalg.solve(R, np.swapaxes(U, 1, 2) @ lacking[..., None])
        dx[at] = (basis @ y)[..., 0]
        multipliers[at] = (U @ np.linalg.solve(np.swapaxes(R, 1, 2), y))[..., 0]
    force = _times(np.swapaxes(A, 1, 2), multipliers) + c
    return HostSolution(_times(np.swapaxes(W, 1, 2), x0 + dx), force, multipliers)


def _independent(formula: AbstractFormula, equations: Equations) -> Acceleration | None:
    """What the default formula says, by NumPy; None where M is not positive definite or rows may be dependent."""
    if not (isinstance(formula, UdwadiaKalaba) and isinstance(formula.pinv, GramSchmidt)):
        return None
    A, b, M, Q = (np.asarray(x) for x in (equations.rows.A, equations.rows.b, equations.M, equations.Q))
    m = len(A)
    try:
        if not clearly_independent(equations, formula.pinv.threshold(A.dtype)):
            return None
        found = accelerations(jax.tree.map(lambda x: np.asarray(x)[None], equations), np.ones((1, m), bool))
    except np.linalg.LinAlgError:
        return None
    a, force, multipliers = (x[0] for x in found)
    gained = a - np.linalg.solve(M, Q + np.asarray(equations.c))
    told = np.int32(m), A @ a - b, gained @ M @ gained, np.True_
    return Acceleration(*map(jnp.asarray, (a, force, multipliers, *told)))


@compile_small
def _solve(formula: AbstractFormula, equations: Equations) -> Acceleration:
    return formula.solve(equations)


def solve_equations(formula: AbstractFormula, equations: Equations) -> Acceleration:
    """What a formula says of equations that have values; the formula alone is compiled."""
    return _solve(formula, jax.tree.map(as_jax, equations))


def acceleration_at(
    formula: AbstractFormula,
    system: AbstractSystem,
    t: Any,
    q: Any,
    v: Any,
    stabilizer: AbstractStabilizer = NoStabilizer(),
) -> Acceleration:
    """What `formula.acceleration` returns; at a known state XLA compiles the linear algebra at most, and that only
    where rows may depend on each other, or for other formulas than the default."""
    if is_traced((formula, system, t, q, v)):
        return formula.acceleration(system, t, q, v, stabilizer=stabilizer)
    equations = equations_at(system, stabilizer, t, q, v)
    if said := describe_asymmetry(np.asarray(equations.M)):
        raise InputError(said)
    found = _independent(formula, equations) or solve_equations(formula, equations)
    if not np.all(np.isfinite(found.a)):
        raise InputError(why_not_finite(formula, equations, t, q, v))
    if misses_rows(found):
        require_rows_kept(formula, equations, found)
    if not formula.needs_definite_mass:
        require_balance(formula, equations, found)
    return found
