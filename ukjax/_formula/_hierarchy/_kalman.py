"""Rows enforced level by level on an estimate: Kalman's measurement updates (Orsino 2017, section 4).

    K = P H^T (H P H^T + R)^+,    x <- x + K (b - H x),    P <- (I - K H) P          (eqs. (4.14)-(4.18))

from P = I. At R = 0, P is the orthogonal projector onto the kernel of all rows so far, and K = (H P)^+. A
clearance R > 0 is brought to that form by one more coordinate a row, e, in H x + R^1/2 e = b: the recursion in
(x, e) is exact, its P stays a projector to rounding, and the block of P that belongs to x is the covariance of
Joseph's form (4.18).
"""

from collections.abc import Sequence
from typing import NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
from jaxtyping import Array, Float, Int

from ..._misc._arguments import all_of, fails, is_list, real_array, require_finite, require_not_negative
from ..._misc._errors import InputError, format_value
from ..._pseudoinverse import AbstractPseudoinverse, GramSchmidt, as_pseudoinverse
from ..._pseudoinverse._kernels import dot
from ._hierarchy import project_further, restrict

_ROUNDING = 100.0  # of a matrix of covariances, in units of its entries' rounding


@final
class Enforced(eqx.Module):
    """What holds after a level of `enforce_levels`.

    - `x`: the estimate, in Gauss's principle the scaled acceleration (n,).
    - `P`: its covariance (n, n); the orthogonal projector onto the kernel of the rows where there is no clearance.
    - `rank`: of the rows so far, each with its clearance.
    """

    x: Float[Array, " n"]
    P: Float[Array, "n n"]
    rank: Int[Array, ""]


class ModuleBlock(NamedTuple):
    """A part of H x = b over variables of its own: their numbers, and the numbers of its rows in each level."""

    variables: tuple[int, ...]
    levels: tuple[tuple[int, ...], ...]


def recursion(
    H: Float[Array, "m n"],
    b: Float[Array, " m"],
    x: Float[Array, " n"],
    levels: Sequence[Sequence[int]],
    method: AbstractPseudoinverse,
    blocks: Sequence[ModuleBlock] = (),
) -> list[Enforced]:
    """The exact recursion (4.14)-(4.15), over the rows of each level; the lowest levels block by block, if given."""
    last = Enforced(x, jnp.eye(x.size, dtype=x.dtype), jnp.zeros((), jnp.int32))
    result = _recurse_by_blocks(H, b, last, blocks, method) if blocks else []
    for level in levels[len(result) :]:
        index = np.asarray(level, int)
        x, P, rank = (result[-1].x, result[-1].P, result[-1].rank) if result else (last.x, last.P, last.rank)
        H_level, b_level = H[index], b[index]
        restricted = restrict(H_level, P, method)
        x = x + dot(restricted.inverse, b_level - dot(H_level, x))
        result.append(Enforced(x, project_further(P, restricted), rank + restricted.rank))
    return result


def _recurse_by_blocks(
    H: Float[Array, "m n"],
    b: Float[Array, " m"],
    start: Enforced,
    blocks: Sequence[ModuleBlock],
    method: AbstractPseudoinverse,
) -> list[Enforced]:
    """The recursion over the levels of the blocks, those of one size as one batch; P stays block diagonal."""
    batches: dict[tuple[int, ...], list[ModuleBlock]] = {}
    for block in blocks:
        batches.setdefault((len(block.variables), *map(len, block.levels)), []).append(block)
    beyond = np.ones(H.shape, bool)
    for block in blocks:
        beyond[np.ix_(sum(block.levels, ()), block.variables)] = False
    rows = np.asarray([i for block in blocks for level in block.levels for i in level], int)
    fault = jnp.any(jnp.where(beyond[rows], H[rows], 0) != 0)
    result = [eqx.tree_at(lambda e: e.x, start, jnp.where(fault, jnp.nan, start.x))] * len(blocks[0].levels)
    for (_, *sizes), batch in batches.items():
        columns = np.asarray([block.variables for block in batch], int)
        index = np.asarray([sum(block.levels, ()) for block in batch], int)
        ends = np.cumsum(sizes)
        levels = [range(end - size, end) for end, size in zip(ends, sizes, strict=True)]
        alone = jax.vmap(lambda H, b, x, levels=levels: recursion(H, b, x, levels, method))
        parts = alone(H[index[:, :, None], columns[:, None, :]], b[index], start.x[columns])
        result = [
            Enforced(
                whole.x.at[columns].set(jnp.where(fault, jnp.nan, part.x)),
                whole.P.at[columns[:, :, None], columns[:, None, :]].set(part.P),
                whole.rank + jnp.sum(part.rank, dtype=jnp.int32),
            )
            for whole, part in zip(result, parts, strict=True)
        ]
    return result


def with_clearance(H: Float[Array, "m n"], root: Float[Array, "m m"] | None, soft: Sequence[int]) -> Array:
    """[H, R^1/2]: one more coordinate for each row that has a clearance."""
    if root is None:
        return H
    return jnp.concatenate([H, root[:, np.asarray(soft, int)]], axis=1)


def enforce_levels(
    x0: Float[Array, " n"],
    levels: Sequence[tuple[Float[Array, "m n"], Float[Array, " m"]]],
    clearances: Sequence[Array | float | None] | None = None,
    pinv: AbstractPseudoinverse | lx.AbstractLinearSolver = GramSchmidt(),
) -> tuple[Enforced, ...]:
    """Enforces H x = b level by level on the estimate x0 of covariance I: Kalman's measurement updates.

    Orsino 2017, eqs. (4.14)-(4.18). Without clearance x is at every level the point nearest to x0 that satisfies
    the rows so far.

    **Arguments:**

    - `x0`: the estimate without any rows (n,).
    - `levels`: the pairs (H, b) of shapes (m_r, n) and (m_r,), the lowest level first.
    - `clearances`: R of each level: None (exact), the variances of its rows, a scalar or (m_r,), or their covariance
      (m_r, m_r); by default all exact.
    - `pinv`: a pseudoinverse method that handles dependent rows, or a lineax solver.

    **Returns:** an `Enforced` for each level.

    **Raises:** `InputError` for wrong shapes, and for an R that is not finite, symmetric and positive semidefinite.
    """
    x0 = real_array("x0", x0)
    levels = all_of("levels", levels, (tuple, list), "(H, b)")
    if not all(len(pair) == 2 for pair in levels):
        raise InputError("each of the levels must be a pair (H, b).")
    pairs = [(real_array("H", H), real_array("b", b)) for H, b in levels]
    if clearances is not None and not is_list(clearances):
        raise InputError(f"clearances must be a list, one for each level, got {format_value(clearances)}.")
    clearances = None if clearances is None else list(clearances)
    for H, b in pairs:
        if x0.ndim != 1 or H.ndim != 2 or H.shape[1] != x0.size or b.shape != H.shape[:1]:
            raise InputError(
                f"each level must be a pair (H, b) of shapes (m, {x0.size}) and (m,); "
                f"got {H.shape} and {b.shape}."
            )
    if clearances is not None and len(clearances) != len(pairs):
        raise InputError(f"clearances has {len(clearances)} entries; there are {len(pairs)} levels.")
    if not pairs:
        return ()
    ends = np.cumsum([b.size for _, b in pairs])
    index = [range(end - b.size, end) for end, (_, b) in zip(ends, pairs, strict=True)]
    H, b = (jnp.concatenate(column) for column in zip(*pairs, strict=True))
    root, soft = None, []
    if clearances is not None and any(R is not None for R in clearances):
        soft = [i for rows, R in zip(index, clearances, strict=True) if R is not None for i in rows]
        root = jnp.zeros((b.size, b.size), b.dtype)
        for k, (rows, R) in enumerate(zip(index, clearances, strict=True)):
            if R is not None:
                root = with_block(root, rows, clearance_root(R, len(rows), f"level {k + 1}", b.dtype))
    z0 = jnp.concatenate([x0, jnp.zeros(len(soft), x0.dtype)])
    n = x0.size
    by_level = recursion(with_clearance(H, root, soft), b, z0, index, as_pseudoinverse(pinv))
    return tuple(Enforced(e.x[:n], e.P[:n, :n], e.rank) for e in by_level)


def as_clearance(value: Array | float, of: str) -> Array:
    """`value` as an array, checked but for its shape: variances, or a covariance."""
    name = f"the clearance of {of}"
    array = real_array(name, value)
    if array.ndim < 2:
        require_not_negative(name, value)
        return array
    require_finite(name, array)
    if array.ndim > 2 or array.shape[0] != array.shape[1] or fails(_is_covariance, array):
        raise InputError(
            f"{name} must be a symmetric, positive semidefinite matrix, got {format_value(value)}."
        )
    return array


def _is_covariance(R: np.ndarray) -> bool:
    size = _ROUNDING * np.finfo(R.dtype).eps * np.max(np.abs(R), initial=0)
    return bool(np.all(np.abs(R - R.T) <= size) and np.all(np.linalg.eigvalsh(R) >= -size))


def clearance_root(value: Array | float, m: int, of: str, dtype: jnp.dtype) -> Float[Array, "m m"]:
    """S with S S^T = R, of the clearance of m rows; checked."""
    array = as_clearance(value, of).astype(dtype)
    if array.shape == (m, m):
        return _covariance_root(array)
    if array.shape not in ((), (m,)):
        raise InputError(
            f"the clearance of {of} has shape {array.shape}; give a scalar, one value for each of its {m} rows, or their "
            f"covariance ({m}, {m})."
        )
    return jnp.diag(_root(jnp.broadcast_to(array, (m,)), jnp.zeros(m, dtype)))


def _root(x: Array, least: Array) -> Array:
    """Of what is above its least, with derivative zero, not infinity, where it is not."""
    return jnp.where(x > least, jnp.sqrt(jnp.where(x > least, x, 1)), 0)


def _covariance_root(R: Float[Array, "m m"]) -> Float[Array, "m m"]:
    """By Cholesky's method, in which a pivot that is rounding has no column: what R is only semidefinite for."""
    least, columns = _ROUNDING * jnp.finfo(R.dtype).eps * jnp.diagonal(R), []
    for j in range(len(R)):
        pivot = _root(R[j, j], least[j])
        columns.append(jnp.where(pivot > 0, R[:, j] / jnp.where(pivot > 0, pivot, 1), 0))
        R = R - columns[-1][:, None] * columns[-1][None, :]
    return jnp.stack(columns, axis=1)


def with_block(root: Float[Array, "m m"], rows: Sequence[int], block: Float[Array, "k k"]) -> Array:
    """The matrix with a block on its diagonal, of these rows."""
    return root.at[np.ix_(np.asarray(rows, int), np.asarray(rows, int))].set(block)
