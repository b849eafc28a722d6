"""The formulas that turn M, Q and the rows A a = b into an acceleration: rows in, acceleration out.

With any square root of the inverse mass matrix, here W = L^-1 of M = L L^T, so that M^-1 = W^T W, let
B = A W^T and x = L^T a. Gauss's principle asks for the x nearest to the unconstrained x0 = W Q among those
with B x = b:

    x = x0 + B^+ (b - B x0),    a = W^T x                                  (DPV 2008, eq. (31))

The constraint force is A^T lambda with lambda = (B^+)^T (x - x0), of least norm. A non-ideal constraint
force c (Liu 2015, eqs. (12)-(13)) enters like an impressed one, Q + c, and what the rows take back of it,
M^1/2 B^+ B M^-1/2 c, is part of A^T lambda.
"""

import abc
import dataclasses
from typing import Any, ClassVar, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._compiler import compile_small
from .._misc._arguments import require_instance
from .._misc._derivatives import freeze, with_tangent_of
from .._misc._errors import InputError
from .._misc._tolerances import OF_PROJECTED_MASS
from .._misc._types import (
    Coordinates,
    Forces,
    Time,
    Velocities,
    as_jax,
    choose_by_precision,
    in_full_precision,
    is_traced,
    module_for,
)
from .._pseudoinverse import (
    AbstractPseudoinverse,
    Cholesky,
    GramSchmidt,
    NormalEquations,
    as_pseudoinverse,
    inverse_cholesky,
    inverse_cholesky_factor,
    pinv,
    rank_on_host,
    unit_rows_on_host,
)
from .._system._constraint import require_bilateral
from .._system._problem import resolve_state
from .._system._stabilize import AbstractStabilizer, NoStabilizer
from .._system._system import AbstractSystem
from ._equations import Equations as Equations
from ._equations import asymmetry, describe_asymmetry
from ._equations import equations_at as equations_at
from ._equations import equations_of_motion as equations_of_motion
from ._equations import require_shapes as require_shapes

# Of the masses on the diagonal of M: what is nearer together loses no equation.
_FAR_APART = 1e3
# What forces may be out of balance by beside their size, in float64 and float32.
_BALANCED = (1e-6, 1e-2)


@final
class Acceleration(eqx.Module):
    """What a formula returns.

    - `a`: generalized acceleration v' (n,).
    - `constraint_force`: Q_c = M a - Q (n,), the non-ideal part included.
    - `multipliers`: lambda of least norm, one a row (m,): Q_c = A^T lambda + c.
    - `rank`: the rank the rows were given.
    - `residual`: A a - b, row by row (m,); zero for consistent rows.
    - `gauss`: Gauss's functional (a - a0)^T M (a - a0) against the unconstrained a0 = M^-1 (Q + c).
    - `unique`: whether the equations leave no other acceleration: [M; A] has rank n. Always so for M > 0.
    """

    a: Velocities
    constraint_force: Forces
    multipliers: Float[Array, " m"]
    rank: Int[Array, ""]
    residual: Float[Array, " m"]
    gauss: Float[Array, ""]
    unique: Bool[Array, ""]


@in_full_precision
def least_multipliers(A: Float[Array, "m n"], force: Forces, kept: Bool[Array, " m"]) -> Float[Array, " m"]:
    """lambda of least norm with A^T lambda = force, where the rows that are not kept depend on those that are.

    Let A = Z K with the rows K that are kept, Z^T = [1, X] and X = (K K^T)^-1 K D^T for the other rows D. With mu such
    that K^T mu = force, lambda = Z (Z^T Z)^-1 mu. Rows are scaled to length 1, and mu is refined once.
    """
    if not len(A):
        return jnp.zeros(0, A.dtype)
    size, unit = jnp.sqrt(jnp.sum(A * A, 1)), jnp.eye(len(A), dtype=A.dtype)
    size = jnp.where(size > 0, size, 1)
    rows, of_kept = A / size[:, None], kept.astype(A.dtype)
    products = rows @ rows.T
    W, _ = inverse_cholesky_factor(jnp.where(kept[:, None] & kept[None], products, unit))
    solve = lambda y: W.T @ (W @ (of_kept[:, None] * y))
    mu = jnp.zeros((len(A), 1), A.dtype)
    for _ in range(2):
        mu = mu + solve(rows @ (force[:, None] - rows.T @ mu))
    X = solve(products * (1 - of_kept)[None]) * size[None] / size[:, None]
    V, _ = inverse_cholesky_factor(unit + X @ X.T)
    least = V.T @ (V @ (mu[:, 0] / size))
    return least + X.T @ least


class AbstractFormula(eqx.Module):
    """A formula for the acceleration. Concrete ones: `UdwadiaKalaba` and `Schur`; where the mass matrix may be
    singular `RangeForm`, `StackedForm`, `NullSpace` and `KKT`."""

    needs_definite_mass: eqx.AbstractClassVar[bool]

    @property
    def inverted_by(self) -> AbstractPseudoinverse | None:
        """How B^+ of the module's docstring is computed, by which scalar code then computes it too; None for formulas
        that have no such matrix."""
        return None

    @abc.abstractmethod
    def solve(self, equations: Equations) -> Acceleration:
        """The acceleration from M, Q, c, A, b: pure linear algebra, to be jitted, vmapped, differentiated."""

    def acceleration(
        self,
        system: AbstractSystem,
        t: Time | float,
        q: Coordinates,
        v: Velocities,
        *,
        stabilizer: AbstractStabilizer = NoStabilizer(),
    ) -> Acceleration:
        """The acceleration of a system at one state, jit-compiled.

        **Arguments:**

        - `system`: the mechanical system.
        - `t`: time [s].
        - `q`: generalized coordinates (n_q,).
        - `v`: generalized velocities (n,).
        - `stabilizer`: gives the b to enforce; by default the constraints' own.

        **Returns:** `Acceleration`. Under `jit` a mass matrix that is not positive definite, or dependent rows
        under `Cholesky`, give NaN; where bodies are too light for the formula, `residual` is not zero.

        **Raises:** `InputError` for wrong shapes, and outside `jit` also for non-finite states, for what gives NaN
        under it, for bodies too light for the formula, and for masses too far apart for it.
        """
        require_instance("stabilizer", stabilizer, AbstractStabilizer, "NoStabilizer()")
        system, t, q, v = resolve_state(system, t, q, v)
        require_bilateral(f"the formula {type(self).__name__}", system.constraints)
        result = _accelerate(self, system, t, q, v, stabilizer)
        if is_traced(result.a):
            return result
        if not np.all(np.isfinite(result.a)):
            raise InputError(why_not_finite(self, equations_at(system, stabilizer, t, q, v), t, q, v))
        if misses_rows(result):
            require_rows_kept(self, equations_at(system, stabilizer, t, q, v), result)
        if not self.needs_definite_mass:
            require_balance(self, equations_at(system, stabilizer, t, q, v), result)
        return result


@compile_small
def _accelerate(
    formula: AbstractFormula,
    system: AbstractSystem,
    t: Array,
    q: Array,
    v: Array,
    stabilizer: AbstractStabilizer,
) -> Acceleration:
    equations = equations_of_motion(system, t, q, v, stabilizer)
    # Formulas read one triangle, and would not tell.
    symmetric = jnp.where(asymmetry(equations.M) > 0, jnp.nan, equations.M)
    return formula.solve(dataclasses.replace(equations, M=symmetric))


_factor = jax.jit(inverse_cholesky)


_LOOK_FOR = "look for a division by zero, or a root or logarithm of a negative number"
OR_RANGE_FORM = ", or formula=ukjax.RangeForm(), which needs none"


def why_not_finite(
    formula: AbstractFormula, equations: Equations, t: Time, q: Coordinates, v: Velocities
) -> str:
    """One sentence on why the acceleration at this state is not finite."""

    def bad(x: Array) -> bool:
        return not np.all(np.isfinite(x))

    if bad(t) or bad(q) or bad(v):
        return f"the state is not finite: t = {t}, q = {q}, v = {v}."
    if said := describe_asymmetry(np.asarray(equations.M)):
        return said
    rows = equations.rows
    for what, array in (
        ("mass matrix", equations.M),
        ("force", equations.Q),
        ("non-ideal force", equations.c),
    ):
        if bad(array):
            jams = ", or friction that depends on the multipliers jams" if what == "non-ideal force" else ""
            return f"the {what} is not finite at t = {t}, q = {q}, v = {v}{jams}: {_LOOK_FOR}."
    wrong = [name for name, A, b in zip(rows.names, rows.A, rows.b, strict=True) if bad(A) or bad(b)]
    if wrong:
        return (
            f"the constraint rows {', '.join(wrong)} are not finite at t = {t}, q = {q}, v = {v}: {_LOOK_FOR}, or for a "
            "root, norm or arccos that has no derivative there. Write |d|^2 - l^2 in place of |d| - l."
        )
    if formula.needs_definite_mass and bad(_factor(jnp.asarray(equations.M))):
        return (
            f"the mass matrix is not positive definite at t = {t}, q = {q}, which {type(formula).__name__} "
            f"needs (eigenvalues {jnp.linalg.eigvalsh(equations.M)}): give every coordinate a mass{OR_RANGE_FORM}."
        )
    stacked = np.concatenate([equations.M, rows.A])
    if not formula.needs_definite_mass and np.linalg.matrix_rank(stacked) < v.size:
        return (
            f"the acceleration is not unique at t = {t}: [M; A] has rank {np.linalg.matrix_rank(stacked)} of "
            f"{v.size}, so neither inertia nor rows determine some motion; RangeForm gives the least one."
        )
    rank, m = int(formula.solve(jax.tree.map(as_jax, equations)).rank), len(rows.names)
    return (
        f"the pseudoinverse failed on the {m} rows {', '.join(rows.names)}"
        + (f", of which only {rank} are independent" if 0 <= rank < m else "")
        + f" at t = {t}; use a method that handles dependent rows, such as CompleteOrthogonal or SVD."
    )


def misses_rows(found: Acceleration) -> bool:
    """Whether rows are left out that the others do not meet."""
    residual = np.abs(found.residual)
    rounding = np.sqrt(np.finfo(residual.dtype).eps) * (1 + np.abs(found.a).max(initial=0))
    return int(found.rank) < min(residual.size, found.a.size) and residual.max(initial=0) > rounding


def require_rows_kept(formula: AbstractFormula, equations: Equations, found: Acceleration) -> None:
    """Refuses rows that are independent in A, but not in the metric of M^-1, in which a formula may decide."""
    A, rank = np.asarray(equations.rows.A), int(found.rank)
    if not formula.needs_definite_mass:
        return
    method = formula.inverted_by or GramSchmidt()
    if (of_rows := rank_on_host(A, method.threshold(A.dtype))) > rank:
        raise InputError(
            f"bodies are too light for {type(formula).__name__}: the rows have rank {of_rows}, but only {rank} in the "
            "metric of M^-1 by which it decides. simulate's default and NullSpace decide by the rows alone."
        )


def _out_of_balance(equations: Equations, found: Acceleration) -> tuple[Any, Any]:
    """M a - Q - c = A^T lambda, the left side and A^T: of each equation beside the terms in it."""
    M, A, Q, c, a, multipliers = (
        *(equations.M, equations.rows.A, equations.Q, equations.c),
        *(found.a, found.multipliers),
    )
    xp = module_for(M, a)
    inertia = xp.abs(M).sum(axis=1)
    # Beside what accelerations there are: where all terms of an equation vanish, rounding is not to be told from them.
    own = xp.where(inertia > 0, (xp.abs(Q) + xp.abs(c)) / xp.where(inertia > 0, inertia, 1), 0)
    most = xp.maximum(xp.max(xp.abs(a), initial=0), xp.max(own, initial=0))
    held = xp.abs(A.T) @ xp.abs(multipliers)
    held = xp.where(inertia > 0, held, xp.abs(A).sum(axis=0) * xp.max(xp.abs(multipliers), initial=0))
    # Equations of light bodies count as much as those of heavy ones.
    size = inertia * most + xp.abs(Q) + xp.abs(c) + held
    size = xp.where(size > 0, size, 1)
    return (M @ a - Q - c) / size, A.T / size[:, None]


def _are_far_apart(formula: AbstractFormula, M: Any) -> Any:
    """Whether masses are far enough apart for a formula to lose the equations of the light ones."""
    xp, masses = module_for(M), M.diagonal()
    most, least = xp.max(masses, initial=0), xp.min(xp.where(masses > 0, masses, xp.inf), initial=xp.inf)
    return (not formula.needs_definite_mass) & (most > _FAR_APART * least)


def require_balance(formula: AbstractFormula, equations: Equations, found: Acceleration) -> None:
    """Refuses masses that are so far apart that what a formula says of light bodies is rounding of heavy ones."""
    equations, found = jax.tree.map(np.asarray, (equations, found))
    M, A = equations.M, equations.rows.A
    if not _are_far_apart(formula, M):
        return
    whole = np.concatenate([unit_rows_on_host(row[None])[0] for row in [*M, *A]])
    if not np.all(np.isfinite(whole)) or rank_on_host(whole, OF_PROJECTED_MASS) < M.shape[0]:
        return  # the acceleration is not unique, and a force may have nothing that balances it
    force, rows = _out_of_balance(equations, found)
    off = np.abs(force - rows @ np.linalg.lstsq(rows, force, rcond=None)[0]).max(initial=0)
    if not off < choose_by_precision(M.dtype, *_BALANCED):
        raise InputError(
            f"masses are too far apart for {type(formula).__name__}: the forces on some bodies are out of balance by "
            f"{off:.1e} of their size. simulate's default and UdwadiaKalaba take heavy bodies beside light ones; where "
            "some have no mass at all, KKT goes farthest."
        )


def is_unbalanced(formula: AbstractFormula, equations: Equations, found: Acceleration) -> Array:
    """1 where `require_balance` would refuse, in compiled code."""
    equations, found = jax.lax.stop_gradient((equations, found))
    M, A, dtype = equations.M, equations.rows.A, equations.M.dtype
    method = dataclasses.replace(GramSchmidt(), rcond=OF_PROJECTED_MASS)
    norms = lambda B: jnp.sqrt(jnp.sum(B * B, axis=1))

    def looked_at() -> Array:
        sizes = jnp.max(jnp.abs(M), axis=1, initial=0)
        whole = jnp.concatenate([M / jnp.where(sizes > 0, sizes, 1)[:, None], A])
        size = norms(whole)
        unique = pinv(whole / jnp.where(size > 0, size, 1)[:, None], method).rank == M.shape[0]
        force, rows = _out_of_balance(equations, found)
        rows = rows / jnp.maximum(jnp.max(norms(rows.T), initial=0), jnp.finfo(dtype).tiny)
        off = jnp.max(jnp.abs(force - rows @ (pinv(rows.T, method).matrix.T @ force)), initial=0)
        return (unique & ~(off < choose_by_precision(dtype, *_BALANCED))).astype(dtype)

    return jax.lax.cond(_are_far_apart(formula, M), looked_at, lambda: jnp.zeros((), dtype))


@in_full_precision
def _gauss(equations: Equations, method: AbstractPseudoinverse) -> Acceleration:
    """Gauss's principle in the coordinates x = L^T a of the module's docstring."""
    M, Q, A, b = equations.M, equations.Q + equations.c, equations.rows.A, equations.rows.b
    W = inverse_cholesky(M)
    B = A @ W.T
    inverse = pinv(B, method)
    P, x0 = inverse.matrix, W @ Q
    dx = P @ (b - B @ x0)
    a, multipliers = W.T @ (x0 + dx), P.T @ dx
    held = map(freeze, (W, B, P, a, multipliers, A @ a - b))
    a = with_tangent_of(a, _change(M, Q, A, b, *held))
    return Acceleration(
        a=a,
        constraint_force=A.T @ multipliers + equations.c,
        multipliers=multipliers,
        rank=inverse.rank,
        residual=A @ a - b,
        gauss=dx @ dx,
        unique=jnp.array(True),
    )


def _change(
    M: Array,
    Q: Array,
    A: Array,
    b: Array,
    W: Array,
    B: Array,
    P: Array,
    a: Array,
    multipliers: Array,
    error: Array,
) -> Array:
    """What has the derivative of a, of which the method need not be differentiated.

    With lambda and the error s = A a - b held, the change of a is that of the solution of M a = Q + A^T lambda, A a = b
    for what these lack, and where rows contradict each other, s not being zero, less W^T B^+ (B^+)^T W A^T s: the change
    of B turns the range in which s is least.
    """
    free = W @ (Q + A.T @ multipliers - M @ a)
    change = free + P @ (b - A @ a - B @ free)
    return W.T @ (change - P @ (P.T @ (W @ (A.T @ error))))


@final
class UdwadiaKalaba(AbstractFormula):
    """a = M^-1 Q + M^-1/2 B^+ (b - A M^-1 Q), B = A M^-1/2; needs M > 0.

    DPV 2008, eq. (31); Xu-Liu 2017, eq. (9); Liu 2015, eq. (15). For inconsistent rows it is the least-squares
    answer B^+ defines.

    **Arguments:**

    - `pinv`: a pseudoinverse method, or any lineax solver.
    """

    pinv: AbstractPseudoinverse = eqx.field(converter=as_pseudoinverse, default_factory=GramSchmidt)
    needs_definite_mass: ClassVar[bool] = True

    @property
    def inverted_by(self) -> AbstractPseudoinverse:
        return self.pinv

    def solve(self, equations: Equations) -> Acceleration:
        return _gauss(equations, self.inverted_by)


@final
class Schur(AbstractFormula):
    """a = (I - H A) M^-1 Q + H b, H = M^-1 A^T S^+, S = A M^-1 A^T; needs M > 0 (DPV 2008, eq. (35)).

    S^+ comes by the given method from S with rows and columns scaled, its `rcond` squared, since the singular
    values of S = B B^T are the squares of those of B; so B should not be worse conditioned than about 1e7.

    **Arguments:**

    - `pinv`: a pseudoinverse method, applied to S.
    """

    pinv: AbstractPseudoinverse = eqx.field(converter=as_pseudoinverse, default_factory=GramSchmidt)
    needs_definite_mass: ClassVar[bool] = True

    @property
    def inverted_by(self) -> AbstractPseudoinverse:
        # Cholesky is the normal equations already, and gives up on dependent rows in either form.
        return self.pinv if isinstance(self.pinv, Cholesky) else NormalEquations(self.pinv)

    def solve(self, equations: Equations) -> Acceleration:
        return _gauss(equations, self.inverted_by)
