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

from ..._misc._arguments import all_of, is_list, real_array, require_not_negative
from ..._misc._errors import InputError, shown
from ..._pseudoinverse import AbstractPseudoinverse, GramSchmidt, as_pseudoinverse
from ..._pseudoinverse._kernels import dot
from ._hierarchy import project_further, restrict


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
    result = _by_blocks(H, b, last, blocks, method) if blocks else []
    for level in levels[len(result) :]:
        index = np.asarray(level, int)
        x, P, rank = (result[-1].x, result[-1].P, result[-1].rank) if result else (last.x, last.P, last.rank)
        H_level, b_level = H[index], b[index]
        restricted = restrict(H_level, P, method)
        x = x + dot(restricted.inverse, b_level - dot(H_level, x))
        result.append(Enforced(x, project_further(P, restricted), rank + restricted.rank))
    return result


def _by_blocks(
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


def with_clearance(H: Float[Array, "m n"], root: Float[Array, " m"] | None, soft: Sequence[int]) -> Array:
    """[H, R^1/2]: one more coordinate for each row that has a clearance."""
    if root is None:
        return H
    return jnp.concatenate([H, jnp.diag(root)[:, np.asarray(soft, int)]], axis=1)


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
    - `clearances`: R of each level, the variances of its rows: None (exact), a scalar or (m_r,); by default all
      exact.
    - `pinv`: a pseudoinverse method that handles dependent rows, or a lineax solver.

    **Returns:** an `Enforced` for each level.

    **Raises:** `InputError` for wrong shapes, and for variances that are negative or not finite.
    """
    x0 = real_array("x0", x0)
    levels = all_of("levels", levels, (tuple, list), "(H, b)")
    if not all(len(pair) == 2 for pair in levels):
        raise InputError("each of the levels must be a pair (H, b).")
    pairs = [(real_array("H", H), real_array("b", b)) for H, b in levels]
    if clearances is not None and not is_list(clearances):
        raise InputError(f"clearances must be a list, one for each level, got {shown(clearances)}.")
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
        spread = [
            jnp.zeros(len(rows), b.dtype) if R is None else variances(R, len(rows), f"level {k + 1}", b.dtype)
            for k, (rows, R) in enumerate(zip(index, clearances, strict=True))
        ]
        root = clearance_root(jnp.concatenate(spread))
    z0 = jnp.concatenate([x0, jnp.zeros(len(soft), x0.dtype)])
    n = x0.size
    by_level = recursion(with_clearance(H, root, soft), b, z0, index, as_pseudoinverse(pinv))
    return tuple(Enforced(e.x[:n], e.P[:n, :n], e.rank) for e in by_level)


def as_variances(value: Array | float, of: str) -> Array:
    """`value` as an array, checked but for its shape."""
    array = real_array(f"the clearance of {of}", value)
    require_not_negative(f"the clearance of {of}", value)
    return array


def variances(value: Array | float, m: int, of: str, dtype: jnp.dtype) -> Float[Array, " m"]:
    """`value` spread over m rows, checked."""
    array = as_variances(value, of).astype(dtype)
    if array.shape not in ((), (m,)):
        raise InputError(
            f"the clearance of {of} has shape {array.shape}; give a scalar or one value for each of its {m} rows."
        )
    return jnp.broadcast_to(array, (m,))


def clearance_root(R: Array) -> Array:
    """R^1/2, with derivative zero, not infinity, where R = 0."""
    return jnp.where(R > 0, jnp.sqrt(jnp.where(R > 0, R, 1)), 0)
