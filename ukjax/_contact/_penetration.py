"""Positions pushed out of contacts: the least change in the mass metric after which no gap is negative.

    q* = q + N d,    d = W J_n^T pi,    0 <= pi  perp  g(t, q*) >= 0

It is solved by Newton's method: with the inverse inertia of the step in place of the derivative of g, each step is a
problem of contacts without friction, of those that penetrate or are pushed. Where g is that of positions projected onto
the bilateral rows, both hold. What penetrates moves, and nothing else.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._formula._contact_newton import rows_of
from .._misc._types import choose_by_precision
from .._motion._model import Model
from .._pseudoinverse import GramSchmidt, pinv
from ._rows import ContactLayout, kinematics
from ._solve import ImpulseRows, solve_impulses

# What gaps may lack: some rounding errors of positions of up to 100 m.
PENETRATION = (5e-11, 1e-4)
# Each reduces the penetration by about h times the turning of normals; far out of the question more do not help.
TRIES = 10.0


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

    layout: ContactLayout

    def __call__(self, model: Model, q: Array, v: Array, t: Array, pi: Array) -> Apart:
        """**Arguments:** the state, of which velocities do not matter, and impulses of positions (m,)."""
        rows, least = rows_of(self.layout.contacts, q.dtype), choose_by_precision(q.dtype, *PENETRATION)
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


def solve_push_out(
    apart: Callable[[Float[Array, " v"], Float[Array, " m"]], Apart],
    layout: ContactLayout,
    rows: ImpulseRows,
    v: int,
) -> Float[Array, " v"]:
    """d of the module's docstring; its derivatives are those of the root, with the set of closed contacts kept."""
    none, zero = jnp.zeros(v, rows.W.dtype), jnp.zeros(len(layout.owner), rows.W.dtype)
    # Not `custom_root`, which differentiates what it is given whether or not a derivative is asked for.
    pure, given = jax.closure_convert(apart, none, zero)
    return _root(rows, given, pure, layout, v)[0]


def _compute_displacement(rows: ImpulseRows, pi: Array, v: int) -> Array:
    return rows.W.reshape(v, v) @ (pi @ rows.J.reshape(pi.size, v))


@functools.partial(jax.custom_jvp, nondiff_argnums=(2, 3, 4))
def _root(
    rows: ImpulseRows, given: Any, apart: Callable[..., Apart], layout: ContactLayout, v: int
) -> tuple[Array, Array]:
    """d and pi."""
    dtype = rows.W.dtype
    none, zero = jnp.zeros(v, dtype), jnp.zeros(len(layout.owner), dtype)
    smooth = jnp.zeros(len(layout.contacts), dtype)

    def nearer(push: _Push) -> _Push:
        problem = -push.d, push.at.gap, (smooth, smooth), push.at.pushed, push.pi
        (pi, *_), d = solve_impulses(layout.contacts, rows, *problem)
        return _Push(pi, d, apart(d, pi, *given), push.tries + 1)

    goes = lambda push: (push.at.going > 0) & (push.tries < TRIES)
    end = jax.lax.while_loop(goes, nearer, _Push(zero, none, apart(none, zero, *given), jnp.zeros((), dtype)))
    return end.d, end.pi


@_root.defjvp
def _(apart: Callable[..., Apart], layout: ContactLayout, v: int, primals: tuple, tangents: tuple) -> tuple:
    d, pi = _root(*primals, apart, layout, v)

    def violation(pi: Array, rows: ImpulseRows, given: Any) -> Array:
        return jnp.where(pi > 0, apart(_compute_displacement(rows, pi, v), pi, *given).gap, pi)

    slope = jax.jacfwd(violation)(pi, *primals)
    off = jax.jvp(lambda rows, given: violation(pi, rows, given), primals, tangents)[1]
    dpi = -pinv(slope, GramSchmidt()).matrix @ off
    dd = jax.jvp(lambda rows, pi: _compute_displacement(rows, pi, v), (primals[0], pi), (tangents[0], dpi))[1]
    return (d, pi), (dd, dpi)
