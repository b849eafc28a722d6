"""Positions pushed out of contacts: the least change in the mass metric after which no gap is negative.

    q* = q + N d,    d = W J_n^T pi,    0 <= pi  perp  g(t, q*) >= 0

It is solved by Newton's method: with the inverse inertia of the step in place of the derivative of g, each step is a
problem of contacts without friction, of those that penetrate or are pushed. Where g is that of positions projected onto
the bilateral rows, both hold. What penetrates moves, and nothing else.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._misc._types import by_precision
from .._pseudoinverse import GramSchmidt, pinv
from ._impulses import Rows, struck
from ._rows import Layout

# What gaps may lack: some rounding errors of positions of up to 100 m.
_PENETRATION = (1e-11, 1e-4)
# Each reduces the penetration by about h times the turning of normals; far out of the question more do not help.
_TRIES = 10.0


class _Push(NamedTuple):
    """Impulses pi (n,) of positions, d (v,), the gaps there (n,), and how often they were sought."""

    pi: Array
    d: Array
    gap: Array
    tries: Array


def _penetrates(push: _Push) -> Array:
    """Whether pi is still to be sought."""
    least = by_precision(push.pi.dtype, *_PENETRATION)
    off = jnp.where(push.pi > 0, jnp.abs(push.gap), jnp.maximum(-push.gap, 0))
    return (jnp.max(off, initial=0) > least) & (push.tries < _TRIES)


def pushed_out(
    gaps: Callable[[Float[Array, " v"]], Float[Array, " n"]], layout: Layout, rows: Rows, v: int
) -> Float[Array, " v"]:
    """d of the module's docstring; its derivatives are those of the root, with the set of closed contacts kept.

    **Arguments:**

    - `gaps`: of contacts, as a function of d; zero of dry friction.
    - `layout`, `rows`: of the contacts.
    - `v`: how many velocities there are.
    """
    n, m, dtype = len(layout.contacts), len(layout.owner), rows.W.dtype
    zero, owners, has_gap = jnp.zeros(n, dtype), layout.owner[layout.normals], jnp.asarray(layout.has_gap)
    J, W = rows.J.reshape(m, v)[layout.normals], rows.W.reshape(v, v)
    moved = lambda pi: W @ (pi[owners] @ J)
    on_rows = lambda x: jnp.zeros(m, dtype).at[layout.normals].set(x[owners])

    def nearer(push: _Push) -> _Push:
        active = (has_gap & ((push.gap < 0) | (push.pi > 0))).astype(dtype)
        found = struck(
            layout.contacts, rows, -push.d, on_rows(push.gap), (zero, zero), active, on_rows(push.pi)
        )
        pi = zero.at[owners].set(jnp.maximum(found.found.p[layout.normals], 0))
        return _Push(pi, found.change, gaps(found.change), push.tries + 1)

    def solve(_: Callable[[Array], Array], pi: Array) -> Array:
        none = jnp.zeros(v, dtype)
        return jax.lax.while_loop(_penetrates, nearer, _Push(pi, none, gaps(none), jnp.zeros((), dtype))).pi

    def violation(pi: Array) -> Array:
        return jnp.where(pi > 0, gaps(moved(pi)), pi)

    def tangent_solve(linear: Callable[[Array], Array], y: Array) -> Array:
        return pinv(jax.jacfwd(linear)(zero), GramSchmidt()).matrix @ y

    return moved(jax.lax.custom_root(violation, zero, solve, tangent_solve))
