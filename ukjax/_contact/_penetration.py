"""Positions pushed out of contacts: the least change in the mass metric after which no gap is negative.

    q* = q + N W J_n^T pi,    0 <= pi  perp  g(t, q*) >= 0

It is solved by Newton's method on pi = max(0, pi - r g), with the inverse inertia of the step in place of the derivative
of g. Where g is that of positions projected onto the bilateral rows, both hold. What penetrates moves, and nothing else.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._formula._contact_newton import eliminated
from .._misc._types import by_precision
from .._pseudoinverse import GramSchmidt, pinv

# What gaps may lack: some rounding errors of positions of up to 100 m.
_PENETRATION = (1e-11, 1e-4)
# Each reduces the penetration by about h times the turning of normals; far out of the question more do not help.
_TRIES = 10.0
_DEPENDENT = 1e-6  # on the diagonal, beside its mean: dependent contacts share their impulses


class Push(NamedTuple):
    """Impulses pi (k,) of positions, the gaps there (k,), and how often they were sought."""

    pi: Array
    gap: Array
    tries: Array


def penetrates(push: Push) -> Array:
    """Whether pi is still to be sought."""
    least = by_precision(push.pi.dtype, *_PENETRATION)
    off = jnp.where(push.pi > 0, jnp.abs(push.gap), jnp.maximum(-push.gap, 0))
    return (jnp.max(off, initial=0) > least) & (push.tries < _TRIES)


def pushed(G: Float[Array, "k k"], pi: Float[Array, " k"], gap: Float[Array, " k"]) -> Float[Array, " k"]:
    """The next pi.

    **Arguments:**

    - `G`: as for `pushed_out`.
    - `pi`, `gap`: where the search is.
    """
    k, size = pi.size, jnp.trace(G) / max(pi.size, 1)
    size = jnp.where(size > 0, size, 1)
    G = G / size
    g = gap / size
    bears = pi - g > 0
    on = jnp.diag(bears.astype(G.dtype))
    A = jnp.eye(k, dtype=G.dtype) - on + on @ (G + _DEPENDENT * jnp.eye(k, dtype=G.dtype))
    return pi - eliminated(A, jnp.where(bears, g, pi))


def pushed_out(
    gaps: Callable[[Float[Array, " k"]], Float[Array, " k"]],
    nearer: Callable[[Float[Array, " k"], Float[Array, " k"]], tuple[Array, Array]],
    G: Float[Array, "k k"],
) -> Float[Array, " k"]:
    """pi of the module's docstring; its derivatives are those of the root, with the set of closed contacts kept.

    **Arguments:**

    - `gaps`: as a function of pi.
    - `nearer`: the next pi, by `pushed`, and the gaps there, of a pi and its gaps.
    - `G`: about their derivative, J_n W J_n^T.
    """
    zero = jnp.zeros(G.shape[0], G.dtype)
    size = jnp.trace(G) / max(zero.size, 1)
    rate = 1 / jnp.where(size > 0, size, 1)

    def solve(_: Callable[[Array], Array], pi: Array) -> Array:
        again = lambda push: Push(*nearer(push.pi, push.gap), push.tries + 1)
        return jax.lax.while_loop(penetrates, again, Push(pi, gaps(pi), jnp.zeros((), pi.dtype))).pi

    def violation(pi: Array) -> Array:
        return jnp.where(pi > 0, rate * gaps(pi), pi)

    def tangent_solve(linear: Callable[[Array], Array], y: Array) -> Array:
        return pinv(jax.jacfwd(linear)(zero), GramSchmidt()).matrix @ y

    return jax.lax.custom_root(violation, zero, solve, tangent_solve)
