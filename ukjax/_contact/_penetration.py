"""Positions pushed out of contacts: the least change in the mass metric after which no gap is negative.

    q* = q + N W J_n^T pi,    0 <= pi  perp  g(t, q*) >= 0

Bilateral rows are projected on within, so that both hold at the end. It moves what penetrates, and nothing else.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ._solve import solution_of
from .._formula._contact_newton import ContactData
from .._misc._types import by_precision
from .._pseudoinverse import GramSchmidt, pinv

# What gaps may lack: some rounding errors of positions of up to 100 m.
_PENETRATION = (1e-11, 1e-4)
# Each reduces the penetration by about h times the turning of normals; far out of the question more do not help.
_TRIES = 10


class _Search(NamedTuple):
    """The impulses pi so far, the gaps there, and how often they were sought."""

    pi: Array
    gap: Array
    tries: Array


def pushed_out(
    moved: Callable[[Float[Array, " k"]], Float[Array, " k"]],
    G: Float[Array, "k k"],
    zero: Float[Array, " k"],
) -> Float[Array, " k"]:
    """pi of the module's docstring; its derivatives are those of the root, with the set of closed contacts kept.

    **Arguments:**

    - `moved`: the gaps as a function of pi.
    - `G`: about their derivative, J_n W J_n^T.
    - `zero`: zeros (k,).
    """
    layout, none, least = (
        ((True, 0),) * zero.size,
        jnp.zeros_like(zero),
        -by_precision(zero.dtype, *_PENETRATION),
    )
    size = jnp.trace(G) / max(zero.size, 1)
    rate = 1 / jnp.where(size > 0, size, 1)

    def solve(_: Callable[[Array], Array], pi: Array) -> Array:
        def goes_on(x: _Search) -> Array:
            return (
                (jnp.min(x.gap, initial=0) < least)
                | (jnp.max(jnp.where(x.pi > 0, x.gap, 0), initial=0) > -least)
            ) & (x.tries < _TRIES)

        def better(x: _Search) -> _Search:
            pi = solution_of(ContactData(G, x.gap - G @ x.pi, none, none), layout)[0]
            return _Search(pi, moved(pi), x.tries + 1)

        return jax.lax.while_loop(goes_on, better, _Search(pi, moved(pi), jnp.zeros((), jnp.int32))).pi

    def tangent_solve(linear: Callable[[Array], Array], y: Array) -> Array:
        return pinv(jax.jacfwd(linear)(none), GramSchmidt()).matrix @ y

    def violation(pi: Array) -> Array:
        return jnp.where(pi > 0, rate * moved(pi), pi)

    return jax.lax.custom_root(violation, zero, solve, tangent_solve)
