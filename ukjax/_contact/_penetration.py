"""Positions pushed out of contacts: the least change in the mass metric after which no gap is negative.

    q* = q + N d,    d = W J_n^T pi,    0 <= pi  perp  g(t, q*) >= 0

It is solved by Newton's method: with the inverse inertia of the step in place of the derivative of g, each step is a
problem of contacts without friction, of those that penetrate or are pushed. Where g is that of positions projected onto
the bilateral rows, both hold. What penetrates moves, and nothing else.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._formula._contact_problem import rows_of
from .._misc._types import by_precision
from .._motion._model import Model
from .._pseudoinverse import GramSchmidt, pinv
from ._impulses import Rows, struck
from ._rows import Layout, kinematics

# What gaps may lack: some rounding errors of positions of up to 100 m.
_PENETRATION = (5e-11, 1e-4)
# Each reduces the penetration by about h times the turning of normals; far out of the question more do not help.
_TRIES = 10.0


class Apart(NamedTuple):
    """Contacts at positions that impulses have moved.

    - `gap`: gaps, on normal rows (m,); zero on others.
    - `pushed`: 1 for contacts that are pushed, or still penetrate (n,); for none once all are apart.
    - `going`: 1 as long as they are not.
    """

    gap: Array
    pushed: Array
    going: Array


@dataclasses.dataclass(frozen=True)
class Gaps:
    """The part of the search that looks at gaps.

    - `layout`: of the contacts.
    """

    layout: Layout

    def __call__(self, model: Model, q: Array, v: Array, t: Array, pi: Array) -> Apart:
        """**Arguments:** the state, of which velocities do not matter, and impulses of positions (m,)."""
        rows, least = rows_of(self.layout.contacts, q.dtype), by_precision(q.dtype, *_PENETRATION)
        gap = kinematics(model.system.system, t, q, v).gap  # pyright: ignore[reportAttributeAccessIssue]
        pushes = rows.normal @ pi > 0
        off = jnp.where(pushes, jnp.abs(gap), jnp.maximum(-gap, 0))
        going = (jnp.max(off, initial=0) > least).astype(q.dtype)
        moves = (pushes | (gap < 0)) & self.layout.has_gap
        return Apart(gap @ rows.normal, moves.astype(q.dtype) * going, going)


class _Push(NamedTuple):
    """Impulses pi (m,) of positions, d (v,), what is there, and how often they were sought."""

    pi: Array
    d: Array
    at: Apart
    tries: Array


def pushed_out(
    apart: Callable[[Float[Array, " v"], Float[Array, " m"]], Apart], layout: Layout, rows: Rows, v: int
) -> Float[Array, " v"]:
    """d of the module's docstring; its derivatives are those of the root, with the set of closed contacts kept.

    **Arguments:**

    - `apart`: what `Gaps` finds, as a function of d and pi.
    - `layout`, `rows`: of the contacts.
    - `v`: how many velocities there are.
    """
    m, dtype = len(layout.owner), rows.W.dtype
    zero, none = jnp.zeros(m, dtype), jnp.zeros(v, dtype)
    frictionless = (jnp.zeros(len(layout.contacts), dtype),) * 2
    moved = lambda pi: rows.W.reshape(v, v) @ (pi @ rows.J.reshape(m, v))

    def nearer(push: _Push) -> _Push:
        given = -push.d, push.at.gap, frictionless, push.at.pushed, push.pi
        (pi, *_), d = struck(layout.contacts, rows, *given)
        return _Push(pi, d, apart(d, pi), push.tries + 1)

    def solve(_: Callable[[Array], Array], pi: Array) -> tuple[Array, Array]:
        goes = lambda push: (push.at.going > 0) & (push.tries < _TRIES)
        start = _Push(pi, none, apart(none, pi), jnp.zeros((), dtype))
        end = jax.lax.while_loop(goes, nearer, start)
        return end.pi, end.d

    def violation(pi: Array) -> Array:
        return jnp.where(pi > 0, apart(moved(pi), pi).gap, pi)

    def tangent_solve(linear: Callable[[Array], Array], y: Array) -> Array:
        return pinv(jax.jacfwd(linear)(zero), GramSchmidt()).matrix @ y

    pi, d = jax.lax.custom_root(violation, zero, solve, tangent_solve, has_aux=True)
    return _as_found(d, moved(pi))


@jax.custom_jvp
def _as_found(value: Array, again: Array) -> Array:
    """A value that was found, with the derivative of how it is computed again: nothing else needs the latter."""
    return value


@_as_found.defjvp
def _(primals: tuple, tangents: tuple) -> tuple:
    return primals[0], tangents[1]
