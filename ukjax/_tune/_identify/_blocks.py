"""Derivatives of residuals by blocks, and least squares with them.

A sample depends on the parameters and on the initial state of its own run, and only the two runs that meet at a joint
know each other. So there is one block for each run, and no matrix of all samples by all numbers: initial states are
eliminated one after the other by Householder's QR, and what is left of each is a triangle over the parameters. The work
grows linearly with the number of runs, and no product J^T J squares the condition.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
from jaxtyping import Array
from scipy import sparse

from ..._misc._types import arrays_of, module_for


@final
class Layout(eqx.Module):
    """Which unknown is where: z holds p parameters, and after them what initial states of b runs are changed by."""

    # `index`: where the f numbers of each run are in z (b, f); the length of z for those that there are not.
    index: Any
    ends: Any  # runs that the next one goes on from (j,)
    prior_runs: Any  # the run of each prior (n,); b for those of parameters
    priors_of: Any  # the priors of each run, and last those of parameters (b + 1, c); n for none
    count: int = eqx.field(static=True)  # p
    samples: int = eqx.field(static=True)  # of a run, all channels

    def split(self, z: Array) -> tuple[Array, Array]:
        """The parameters, and the numbers of each run (b, f)."""
        z, index = arrays_of(z, self.index)
        return z[: self.count], module_for(z, index).append(z, 0.0)[index]

    def join(self, theta: Array, s: Array, size: int) -> Array:
        """What `split` takes apart."""
        z = jnp.zeros(size + 1, theta.dtype).at[self.index].set(s)[:size]
        return z.at[: self.count].set(theta)


class Blocks(NamedTuple):
    """Derivatives, of which the last axis is that of a run's own numbers and of the parameters, f + p.

    - `samples` (b, m, f + p).
    - `jumps` (j, 2 f, 2 f + p): by the numbers of the run that ends, of the one that begins, and by the parameters.
    - `priors` (n, f + p).
    """

    samples: Any
    jumps: Any
    priors: Any


def block_product(blocks: Blocks, layout: Layout, dz: Array) -> Array:
    """Changes of residuals: of samples, jumps and priors."""
    theta, s = layout.split(dz)
    with_theta = lambda s: jnp.concatenate([s, jnp.broadcast_to(theta, (len(s), theta.size))], axis=1)
    none = jnp.zeros((1, s.shape[1]), s.dtype)
    across = jnp.concatenate([s[layout.ends], with_theta(s[layout.ends + 1])], axis=1)
    return jnp.concatenate([
        jnp.einsum("bmq,bq->bm", blocks.samples, with_theta(s)).ravel(),
        jnp.einsum("jmq,jq->jm", blocks.jumps, across).ravel(),
        jnp.einsum("nq,nq->n", blocks.priors, with_theta(jnp.concatenate([s, none])[layout.prior_runs])),
    ])  # fmt: skip


def find_blocks(product: Callable[[Array], Array], layout: Layout, size: int) -> Blocks:
    """The blocks of a linear map of z: of all runs at once, and of neighbours one after the other."""
    (b, f), p, j = layout.index.shape, layout.count, layout.ends.size
    odd = jnp.arange(b)[:, None] % 2 == 1
    masks = [~odd, odd] if j else [jnp.ones((b, 1), bool)]
    of_runs = [jnp.where(mask, jnp.eye(f)[i : i + 1], 0.0) for mask in masks for i in range(f)]
    seeds = [layout.join(jnp.zeros(p), s, size) for s in of_runs]
    seeds += list(jnp.eye(size)[:p])
    found = jax.vmap(product, out_axes=-1)(jnp.stack(seeds)) if seeds else jnp.zeros((0, 0))
    cut = b * layout.samples, b * layout.samples + j * 2 * f
    samples, jumps, priors = jnp.split(found, cut)
    if not j:
        return Blocks(samples.reshape(b, -1, f + p), jnp.zeros((0, 2 * f, 2 * f + p)), priors)
    jumps = jumps.reshape(j, 2 * f, 2 * f + p)
    # The run that ends is even or odd, and that which begins the other.
    turned = jnp.concatenate([jumps[..., f : 2 * f], jumps[..., :f], jumps[..., 2 * f :]], axis=-1)
    jumps = jnp.where((layout.ends % 2 == 1)[:, None, None], turned, jumps)
    own = lambda x: jnp.concatenate([x[..., :f] + x[..., f : 2 * f], x[..., 2 * f :]], axis=-1)
    return Blocks(own(samples.reshape(b, layout.samples, 2 * f + p)), jumps, own(priors))


def sum_squares(blocks: Blocks, layout: Layout, size: int) -> Array:
    """Of the derivatives of samples and priors by each of z."""
    b, f = layout.index.shape
    by_run = jnp.sum(blocks.samples**2, axis=1)
    by_run = (
        jnp.concatenate([by_run, jnp.zeros((1, by_run.shape[1]))]).at[layout.prior_runs].add(blocks.priors**2)
    )
    return layout.join(jnp.sum(by_run[:, f:], axis=0), by_run[:b, :f], size)


class _Elimination(NamedTuple):
    """R of the numbers of each run (b, f, f), by those of the next one (b, f, f), by parameters and the right-hand side
    (b, f, p + 1), and R of the parameters (p + 1, p + 1)."""

    own: Array
    next: Array
    rest: Array
    last: Array


def _triangle(rows: Array) -> Array:
    """R of QR, square also where there are fewer rows than columns."""
    *batch, m, n = rows.shape
    rows = jnp.concatenate([rows, jnp.zeros((*batch, max(n - m, 0), n), rows.dtype)], axis=-2)
    return jnp.linalg.qr(rows, mode="r")


def _eliminate(blocks: Blocks, layout: Layout, diagonal: Array, r: Array, r_diagonal: Array) -> _Elimination:
    """R of [J; diag(diagonal)] with the right-hand side as last column."""
    (b, f), p, j = layout.index.shape, layout.count, layout.ends.size
    of_samples, of_jumps, of_priors = jnp.split(r, (b * layout.samples, len(r) - len(blocks.priors)))
    with_r = lambda x, r: jnp.concatenate([x, r.reshape(*x.shape[:-1], 1)], axis=-1)
    none = lambda x: jnp.concatenate([x, jnp.zeros((1, *x.shape[1:]), x.dtype)])
    priors = none(with_r(blocks.priors, of_priors))[layout.priors_of]
    own = jax.vmap(jnp.diag)(jnp.append(diagonal, 1.0)[layout.index])
    own = jnp.concatenate([own, jnp.zeros((b, f, p), own.dtype)], axis=-1)
    own = with_r(own, jnp.append(r_diagonal, 0.0)[layout.index])
    rows = jnp.concatenate([with_r(blocks.samples, of_samples), priors[:-1], own], axis=1)
    place = jnp.full(b, j).at[layout.ends].set(jnp.arange(j))
    jumps = none(with_r(blocks.jumps, of_jumps))[place]

    def one(carry: Array, given: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array, Array]]:
        here = jnp.concatenate([carry, given[0]])
        here = jnp.concatenate([here[:, :f], jnp.zeros((len(here), f), here.dtype), here[:, f:]], axis=1)
        R = _triangle(jnp.concatenate([here, given[1]]))
        return R[f:, f:], (R[:f, :f], R[:f, f : 2 * f], R[:f, 2 * f :])

    start = jnp.zeros((f + p + 1, f + p + 1), r.dtype)
    left, of_runs = jax.lax.scan(one, start, (_triangle(rows), jumps))
    parameters = with_r(jnp.diag(diagonal[:p]), r_diagonal[:p])
    return _Elimination(*of_runs, _triangle(jnp.concatenate([left[:, f:], priors[-1, :, f:], parameters])))


def solve_blocks(
    blocks: Blocks, layout: Layout, diagonal: Array, r: Array, r_diagonal: Array
) -> tuple[Array, Array]:
    """The z that makes |J z - r|^2 + |diagonal z - r_diagonal|^2 least, and by how much it is less than at 0."""
    p, solve = layout.count, jax.scipy.linalg.solve_triangular
    found = _eliminate(blocks, layout, diagonal, r, r_diagonal)
    theta = solve(found.last[:p, :p], found.last[:p, p]) if p else jnp.zeros(0, r.dtype)

    def one(after: Array, R: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        s = solve(R[0], R[2][:, -1] - R[1] @ after - R[2][:, :-1] @ theta) if after.size else after
        return s, s

    _, s = jax.lax.scan(one, jnp.zeros(layout.index.shape[1], r.dtype), found[:3], reverse=True)
    fall = jnp.sum(found.rest[..., -1] ** 2) + jnp.sum(found.last[:p, p] ** 2)
    return layout.join(theta, s, diagonal.size), fall


@final
class BlockQR(lx.AbstractLinearSolver):
    """Least squares of Levenberg and Marquardt's steps: after samples, jumps and priors, and as damping, the operator has
    multiples of z."""

    layout: Layout

    def init(self, operator: Any, options: dict[str, Any]) -> Any:
        size = operator.in_size()
        flat = lambda z: jnp.concatenate([x.ravel() for x in jax.tree.leaves(operator.mv(z))])
        weights = flat(jnp.ones(size))[-2 * size :].reshape(2, size)
        return find_blocks(lambda z: flat(z)[: -2 * size], self.layout, size), weights

    def compute(self, state: Any, vector: Any, options: dict[str, Any]) -> Any:
        blocks, weights = state
        r = jnp.concatenate([x.ravel() for x in jax.tree.leaves(vector)])
        diagonal = jnp.linalg.norm(weights, axis=0)
        r_diagonal = jnp.sum(weights * r[-weights.size :].reshape(weights.shape), axis=0) / diagonal
        z, _ = solve_blocks(blocks, self.layout, diagonal, r[: -weights.size], r_diagonal)
        return z, lx.RESULTS.successful, {}

    def transpose(self, state: Any, options: dict[str, Any]) -> Any:
        raise NotImplementedError

    conj = transpose

    def assume_full_rank(self) -> bool:
        return True


# --- As sparse matrices of NumPy, for what is told of the estimates


def as_sparse(blocks: np.ndarray, index: np.ndarray, count: int, size: int) -> sparse.csr_array:
    """Rows of blocks (b, m, f + p) as rows over z (b m, size), where the numbers of each are at `index` (b, f)."""
    b, m, _ = blocks.shape
    columns = np.concatenate([index, np.broadcast_to(np.arange(count), (b, count))], axis=1)
    columns = np.broadcast_to(columns[:, None], blocks.shape)
    rows = np.broadcast_to(np.arange(b * m).reshape(b, m, 1), blocks.shape)
    real = columns < size
    return sparse.csr_array((blocks[real], (rows[real], columns[real])), shape=(b * m, size))


def sparse_parts(blocks: Blocks, layout: Layout, size: int) -> tuple[Any, Any, Any]:
    """Samples, jumps and priors, each as a matrix over z."""
    index, p, f = np.asarray(layout.index), layout.count, layout.index.shape[1]
    ends = np.asarray(layout.ends)
    nowhere = np.vstack([index, np.full((1, f), size)])[np.asarray(layout.prior_runs)]
    return (
        as_sparse(np.asarray(blocks.samples), index, p, size),
        as_sparse(np.asarray(blocks.jumps), np.hstack([index[ends], index[ends + 1]]), p, size),
        as_sparse(np.asarray(blocks.priors)[:, None], nowhere, p, size),
    )
