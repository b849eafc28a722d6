"""Operators onto kernels, level by level, of models that differ in the rows enforced (Orsino 2017, section 3).

Level r stacks its own rows A~_r under those of the levels below, A_r = [A_(r-1); A~_r]. What is needed of A_r,
the projector onto its kernel, a {1,4}-inverse, a basis of the kernel or an orthonormal basis of its rows, follows
from that of A_(r-1) and from B = A~_r S: the new rows, restricted to what the levels below leave free.

Rows that depend on levels below leave rounding noise, or drift, in B. What counts as noise is decided against
the rows A~_r themselves, of unit norm, and not against B: it is set to zero before B is inverted.
"""

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
from jaxtyping import Array, Float, Int

from ..._misc._arguments import all_of, number_array, whole_number
from ..._misc._errors import InputError, format_value
from ..._misc._types import is_traced
from ..._pseudoinverse import AbstractPseudoinverse, GramSchmidt, as_pseudoinverse
from ..._pseudoinverse import pinv as pseudoinverse
from ..._pseudoinverse._base import unit_rows
from ..._pseudoinverse._kernels import above_rounding, dot, gram_schmidt


class RestrictedRows(NamedTuple):
    """Rows restricted to what levels below leave free."""

    B: Float[Array, "m k"]  # A S, noise removed (m, k)
    inverse: Float[Array, "k m"]  # B^+ (k, m)
    rank: Int[Array, ""]  # of B


@eqx.filter_jit
def _new_directions(rows: Float[Array, "m k"], rcond: float) -> Float[Array, "j k"]:
    """min(m, k) orthonormal directions that `rows` span, zero rows beyond their number; `rcond` is absolute.

    Gram-Schmidt compares residuals with its first pivot: here one more row, of norm 2 in a dimension of its own.
    """
    m, k = rows.shape
    more = jnp.zeros((m + 1, k + 1), rows.dtype).at[:m, :k].set(rows).at[m, k].set(2)
    return gram_schmidt(more, rcond / 2).Q[1:, :k]


@eqx.filter_jit
def restrict(
    A: Float[Array, "m n"], S: Float[Array, "n k"], method: AbstractPseudoinverse, *, projector: bool = True
) -> RestrictedRows:
    """B = A S and B^+, at the rank that rows of A of unit norm have beyond those below."""
    B = dot(dot(A, S), S) if projector else dot(A, S)
    if 0 in B.shape:
        return RestrictedRows(B, B.T, jnp.zeros((), jnp.int32))
    rcond = above_rounding(method.threshold(A.dtype), A)
    _, scales, nonzero, size = jax.lax.stop_gradient(unit_rows(A))
    scales = (scales * size)[:, None]
    rows = jax.lax.stop_gradient(B) / scales
    Q = _new_directions(rows, rcond)
    noise = (jnp.sqrt(jnp.sum(rows * rows, axis=1)) <= rcond) | ~nonzero
    cleaned = B + (scales * dot(dot(rows, Q.T), Q) - jax.lax.stop_gradient(B))
    B = jnp.where(noise[:, None], 0, cleaned)
    inverse = pseudoinverse(B, method)
    return RestrictedRows(B, inverse.matrix, inverse.rank)


def project_further(P: Float[Array, "n n"], restricted: RestrictedRows) -> Float[Array, "n n"]:
    """(I - G A~) P = P - G B, kept symmetric (Orsino 2017, eqs. (3.10) and (4.15))."""
    removed = dot(restricted.inverse, restricted.B)
    return P - (removed + removed.T) / 2


@eqx.filter_jit
def _kernel_basis(restricted: RestrictedRows, dimension: int) -> Float[Array, "k d"]:
    """Orthonormal columns spanning ker B: Gram-Schmidt on its projector I - B^+ B."""
    projector = jnp.eye(restricted.B.shape[1], dtype=restricted.B.dtype) - dot(
        restricted.inverse, restricted.B
    )
    return gram_schmidt(projector, 0.0).Q[:dimension].T


def _check_levels(levels: Sequence[Float[Array, "m n"]]) -> list[Array]:
    if isinstance(levels, str) or not (isinstance(levels, Sequence) or getattr(levels, "ndim", 0)):
        raise InputError(f"levels must be a list of matrices, one a level, got {format_value(levels)}.")
    rows = [number_array("each level", A) for A in levels]
    if not rows:
        raise InputError("levels is empty; give one matrix of rows a level, the lowest level first.")
    n = rows[0].shape[-1] if rows[0].ndim else 0
    for A in rows:
        if A.ndim != 2 or A.shape[1] != n or not jnp.issubdtype(A.dtype, jnp.floating):
            raise InputError(
                f"each level must be a real floating-point matrix of rows (m, {n}); "
                f"got shape {A.shape} and dtype {A.dtype}."
            )
    return rows


def orthogonal_projectors(
    levels: Sequence[Float[Array, "m n"]],
    pinv: AbstractPseudoinverse | lx.AbstractLinearSolver = GramSchmidt(),
) -> tuple[Float[Array, "n n"], ...]:
    """The orthogonal projectors onto ker A_r, level by level (Orsino 2017, corollary 3.3).

        S_r = (I - G A~) S_(r-1),    G = (A~ S_(r-1))^+,    S_0 = I

    **Arguments:**

    - `levels`: the rows A~_r each level adds, (m_r, n), the lowest first.
    - `pinv`: a pseudoinverse method that handles dependent rows, or a lineax solver.

    **Returns:** S_1, S_2, ..., each (n, n).

    **Raises:** `InputError` for levels that are not matrices of as many columns.
    """
    rows, method = _check_levels(levels), as_pseudoinverse(pinv)
    S, result = jnp.eye(rows[0].shape[1], dtype=rows[0].dtype), []
    for A in rows:
        S = project_further(S, restrict(A, S, method))
        result.append(S)
    return tuple(result)


def oblique_projectors(
    levels: Sequence[Float[Array, "m n"]],
    root: Float[Array, "n n"],
    pinv: AbstractPseudoinverse | lx.AbstractLinearSolver = GramSchmidt(),
) -> tuple[Float[Array, "n n"], ...]:
    """Projectors onto ker A_r by {1}-inverses, level by level (Orsino 2017, proposition 3.1 (ii)).

        Y_r = I - A_r^g A_r = T S_r T^-1,    A_r^g = T (A_r T)^+,    S_r the orthogonal projector onto ker (A_r T)

    T = I gives the orthogonal projectors, T with T T^T = M^-1 those orthogonal in the metric of M, for which M Y_r is
    symmetric. Every projector onto the kernel is one of these, for some T.

    **Arguments:**

    - `levels`: as `orthogonal_projectors`.
    - `root`: T, regular (n, n).
    - `pinv`: as `orthogonal_projectors`.

    **Returns:** Y_1, Y_2, ..., each (n, n).

    **Raises:** `InputError` as `orthogonal_projectors`, and for a `root` of another shape.
    """
    rows, T = _check_levels(levels), number_array("root", root)
    n = rows[0].shape[1]
    if T.shape != (n, n):
        raise InputError(
            f"root has shape {T.shape}; it must be ({n}, {n}), one row for each column of the levels."
        )
    if not is_traced(T) and np.linalg.matrix_rank(T) < n:
        raise InputError(
            "root is singular; it must be a regular matrix, such as an inverse Cholesky factor of M."
        )
    found = orthogonal_projectors([dot(A, T) for A in rows], pinv)
    return tuple(jnp.linalg.solve(T.T, dot(T, S).T).T for S in found)


def one_four_inverses(
    levels: Sequence[Float[Array, "m n"]],
    pinv: AbstractPseudoinverse | lx.AbstractLinearSolver = GramSchmidt(),
) -> tuple[Float[Array, "n m_r"], ...]:
    """{1,4}-inverses of A_1, A_2, ..., level by level (Orsino 2017, corollary 3.4).

        A_r^g = [(I - G A~) A_(r-1)^g,  G],    G = (A~ S_(r-1))^+

    A_r A_r^g A_r = A_r, and A_r^g A_r is symmetric: A_r^g b solves A_r x = b with least norm where it has a
    solution. It is the Moore-Penrose inverse where no row depends on the levels below.

    **Arguments:** as `orthogonal_projectors`: `levels`, `pinv`.

    **Returns:** A_1^g, A_2^g, ..., of shapes (n, m_1), (n, m_1 + m_2), ...

    **Raises:** as `orthogonal_projectors`.
    """
    rows, method = _check_levels(levels), as_pseudoinverse(pinv)
    n, dtype = rows[0].shape[1], rows[0].dtype
    S, inverse, result = jnp.eye(n, dtype=dtype), jnp.zeros((n, 0), dtype), []
    for A in rows:
        restricted = restrict(A, S, method)
        G = restricted.inverse
        inverse = jnp.concatenate([inverse - dot(G, dot(A, inverse)), G], axis=1)
        S = project_further(S, restricted)
        result.append(inverse)
    return tuple(result)


def null_space_bases(
    levels: Sequence[Float[Array, "m n"]],
    pinv: AbstractPseudoinverse | lx.AbstractLinearSolver = GramSchmidt(),
    ranks: Sequence[int] | None = None,
) -> tuple[Float[Array, "n k_r"], ...]:
    """Orthonormal bases of ker A_r, level by level (Orsino 2017, theorem 3.2).

        S_r = S_(r-1) C,    the columns of C a basis of ker (A~ S_(r-1)),    S_0 = I

    Every level works in what the levels below left free, so the matrices shrink from level to level.

    **Arguments:**

    - `levels`: as `orthogonal_projectors`.
    - `pinv`: as `orthogonal_projectors`.
    - `ranks`: how many independent rows each level adds. By default it is found; under `jit`, where shapes must
      be known beforehand, it has to be given.

    **Returns:** S_1, S_2, ..., of shapes (n, n - rank A_r).

    **Raises:** `InputError` as `orthogonal_projectors`, and under `jit` without `ranks`.
    """
    rows, method = _check_levels(levels), as_pseudoinverse(pinv)
    if ranks is not None:
        ranks = [whole_number("each of the ranks", x, 0) for x in all_of("ranks", ranks, object, "2")]
        if len(ranks) != len(rows):
            raise InputError(f"ranks has {len(ranks)} entries; there are {len(rows)} levels.")
    S, result = jnp.eye(rows[0].shape[1], dtype=rows[0].dtype), []
    for level, A in enumerate(rows):
        restricted = restrict(A, S, method, projector=False)
        if ranks is None and is_traced(restricted.rank):
            raise InputError(
                "under jit the shapes of the bases must be known: give `ranks`, the number of independent rows "
                "each level adds."
            )
        rank = int(np.asarray(restricted.rank)) if ranks is None else ranks[level]
        S = dot(S, _kernel_basis(restricted, S.shape[1] - rank))
        result.append(S)
    return tuple(result)


def orthonormal_rows(
    levels: Sequence[Float[Array, "m n"]],
    rcond: float | None = None,
) -> tuple[Float[Array, "k_r n"], ...]:
    """Orthonormal bases of the rows of A_1, A_2, ..., level by level (Orsino 2017, proposition 3.1 (iv)).

    The rows of each level are orthonormalized against those of the levels below, which stay as they are, and
    among themselves. A^_r^T A^_r is the orthogonal projector onto the span of all rows up to level r.

    **Arguments:**

    - `levels`: as `orthogonal_projectors`.
    - `rcond`: a row is dependent when what it adds, relative to unit norm, is at most this; by default
      1e-4, in float32 0.03.

    **Returns:** A^_1, A^_2, ..., each the one before with min(m_r, n) rows more; rows that would be dependent
    are zero, so that shapes do not depend on values.

    **Raises:** as `orthogonal_projectors`.
    """
    rows = _check_levels(levels)
    n, dtype = rows[0].shape[1], rows[0].dtype
    Q, result = jnp.zeros((0, n), dtype), []
    for A in rows:
        if A.size:
            unit = unit_rows(A)[0]
            for _ in range(2):
                unit = unit - dot(dot(unit, Q.T), Q)
            new = _new_directions(unit, above_rounding(GramSchmidt(rcond).threshold(dtype), A))
            # Once more against the rows below: a small residual carries its rounding errors enlarged.
            new = new - dot(dot(new, Q.T), Q)
            norms = jnp.sqrt(jnp.sum(new * new, axis=1))[:, None]
            Q = jnp.concatenate([Q, jnp.where(norms > 0, new / jnp.where(norms > 0, norms, 1), 0)])
        result.append(Q)
    return tuple(result)
