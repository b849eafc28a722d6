"""Positions pushed out of contacts: the least change in the mass metric after which no gap is negative.

    q* = q + N d,    d = W J_n^T pi,    0 <= pi  perp  g(t, q*) >= 0

with W of the step and the rows J_n of normal velocities at q*, of rigid contacts. It is solved by Newton's method: with g
linearized about where positions are, each step is a problem of contacts without friction, of those that penetrate or are
pushed. Where g is that of positions projected onto the bilateral rows, both hold. What penetrates moves, and nothing
else.
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
# Two or three are enough as a rule; where nothing is apart near by, more do not help.
TRIES = 10.0


class Apart(NamedTuple):
    """Contacts at positions that impulses have moved.

    - `gap`: gaps, on normal rows (m,); zero on others.
    - `J`: the normal rows (m n_v,), likewise.
    - `pushed`: 1 for contacts that are pushed, or still penetrate (n,); for none once all are apart.
    - `going`: 1 as long as they are not.
    """

    gap: Array
    J: Array
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
        of = lambda v: kinematics(model.system.system, t, q, v)  # pyright: ignore[reportAttributeAccessIssue]
        is_normal = jnp.asarray(self.layout.is_normal, q.dtype)
        gap, J = (
            jnp.where(self.layout.is_rigid, of(v).gap, 0),
            jax.jacfwd(lambda v: of(v).u)(v) * is_normal[:, None],
        )
        pushes = rows.normal @ pi > 0
        off = jnp.where(pushes, jnp.abs(gap), jnp.maximum(-gap, 0))
        going = (jnp.max(off, initial=0) > least).astype(q.dtype)
        moves = (pushes | (gap < 0)) & self.layout.is_rigid
        return Apart(gap @ rows.normal, J.reshape(-1), moves.astype(q.dtype) * going, going)


class _Push(NamedTuple):
    """Impulses pi (m,) of positions, d (v,), what is there, and how often they were sought."""

    pi: Array
    d: Array
    at: Apart
    tries: Array


def solve_push_out(
    apart: Callable[[Float[Array, " v"], Float[Array, " m"]], Apart],
    layout: ContactLayout,
    W: Float[Array, " v*v"],
    v: int,
) -> Float[Array, " v"]:
    """d of the module's docstring; its derivatives are those of the root, with the set of closed contacts kept."""
    none, zero = jnp.zeros(v, W.dtype), jnp.zeros(len(layout.owner), W.dtype)
    # Not `custom_root`, which differentiates what it is given whether or not a derivative is asked for.
    pure, given = jax.closure_convert(apart, none, zero)
    return _root(W, given, pure, layout, v)[0]


@functools.partial(jax.custom_jvp, nondiff_argnums=(2, 3, 4))
def _root(
    W: Array, given: Any, apart: Callable[..., Apart], layout: ContactLayout, v: int
) -> tuple[Array, Array]:
    """d and pi."""
    dtype = W.dtype
    none, zero = jnp.zeros(v, dtype), jnp.zeros(len(layout.owner), dtype)
    smooth = jnp.zeros(len(layout.contacts), dtype)

    def nearer(push: _Push) -> _Push:
        problem = -push.d, push.at.gap, (smooth, smooth, zero), push.at.pushed, push.pi
        (pi, *_), d = solve_impulses(layout.contacts, ImpulseRows(push.at.J, W), *problem)
        return _Push(pi, d, apart(d, pi, *given), push.tries + 1)

    goes = lambda push: (push.at.going > 0) & (push.tries < TRIES)
    end = jax.lax.while_loop(goes, nearer, _Push(zero, none, apart(none, zero, *given), jnp.zeros((), dtype)))
    return end.d, end.pi


@_root.defjvp
def _(apart: Callable[..., Apart], layout: ContactLayout, v: int, primals: tuple, tangents: tuple) -> tuple:
    d, pi = _root(*primals, apart, layout, v)
    normals = jnp.asarray(layout.normals)

    def violation(z: Array, W: Array, given: Any) -> Array:
        d, pushes = z[:v], z[v:]
        at = apart(d, jnp.zeros_like(pi).at[normals].set(pushes), *given)
        along = W.reshape(v, v) @ (pushes @ at.J.reshape(-1, v)[normals])
        return jnp.concatenate([d - along, jnp.where(pushes > 0, at.gap[normals], pushes)])

    z = jnp.concatenate([d, pi[normals]])
    slope = jax.jacfwd(violation)(z, *primals)
    off = jax.jvp(lambda W, given: violation(z, W, given), primals, tangents)[1]
    dz = -pinv(slope, GramSchmidt()).matrix @ off
    return (d, pi), (dz[:v], jnp.zeros_like(pi).at[normals].set(dz[v:]))
