"""What happens at an instant where contacts close, open, stick or slip: first the impact, then the mode that follows.

The impact is Moreau's: with u' = u- + e min(u_n-, 0) on normal rows find impulses p and u = G p + u' such that
0 <= p_n perp u_n >= 0 and Coulomb's law holds of the tangential velocity after it. So each contact that is struck leaves
by Newton's law, u_n+ = -e u_n-, unless others push it away; simultaneous impacts are one problem.

The mode is that of accelerations: of contacts that touch and do not part, 0 <= p_n perp du_n/dt >= 0, with friction
against the slip where there is any and Coulomb's law of the tangential acceleration where there is none. Contacts that
part slower than a threshold count as not parting: infinitely many bounces end there. Where accelerations have no
solution (Painleve), the impulses of a vanishing step of time do: an impact without collision.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._formula._contact_newton import ContactData, ContactRows, modes, newton_solution, rows_of
from .._misc._types import by_precision
from ._modes import Mode, gap_tolerance, held_rows, inverse, of_rows, still
from ._rows import Coefficients, Contact, Layout

# Contacts that part slower than this [m/s] are at rest if they are pressed: bouncing ends, within 1e-13 m in float64.
# A ball that falls as deep as rounding lets a gap be is slower, some 5e-7 and 1e-2 m/s on Earth.
REST = (1e-6, 2e-2)
# Of the scaled problem: above this it has no solution.
_UNSOLVED = (1e-7, 1e-3)
# The vanishing step of time of an impact without collision [s].
_INSTANT = (1e-7, 1e-4)


class Solved(NamedTuple):
    """Of one complementarity problem: impulses or forces (m,), its residual, and which contacts are closed and slide."""

    p: Array
    residual: Array
    closed: Array
    sliding: Array


def complementary(G: Array, u: Array, mu: Array, c: Array, layout: Layout) -> Solved:
    """The solution of u = G p + u' under Signorini's and Coulomb's laws, scaled to numbers near one."""
    fixed = jax.lax.stop_gradient
    scale = fixed(jnp.trace(G) / max(u.size, 1))
    scale = jnp.where(scale > 0, scale, 1)
    speed = fixed(jnp.max(jnp.abs(u), initial=0))
    speed = jnp.where(speed > 0, speed, 1)
    # Rows that take no part have no inverse inertia; with some they keep their force of zero.
    idle = jnp.diag((jnp.diagonal(G) == 0).astype(u.dtype))
    data = ContactData(G / scale + idle, u / speed, mu, c * scale / speed)
    tolerance = float(by_precision(u.dtype, 1e-12, 1e-5))
    p, residual, _ = newton_solution(data, layout.contacts, tolerance)
    closed, sliding = modes(data, layout.contacts, p)
    return Solved(p * speed / scale, residual, closed, sliding)


class Settled(NamedTuple):
    """What an instant leaves.

    - `v`: velocities after it.
    - `mode`: the mode that follows.
    - `impulse`: on the rows (m,).
    - `residual`: of the worse of the two problems; large where there is no solution.
    - `jumped`: whether there was an impact without collision.
    - `wait`: how long bouncing would still have gone on (n,) [s], of contacts that come to rest by it.
    """

    v: Array
    mode: Mode
    impulse: Array
    residual: Array
    jumped: Array
    wait: Array


def _only(rows: ContactRows, chosen: Array, G: Array, u: Array) -> tuple[Array, Array]:
    """The problem of some contacts: the others have no inverse inertia, and part."""
    mask = chosen @ rows.normal + of_rows(rows, chosen)
    parting = (1 - chosen) @ rows.normal
    return G * mask[:, None] * mask[None], u * mask + parting


def _impact(layout: Layout, coefficients: Coefficients, contact: Contact, touching: Array) -> Solved:
    rows = rows_of(layout.contacts, contact.u.dtype)
    rebound = (coefficients.restitution @ rows.normal) * jnp.minimum(contact.u, 0)
    G, u = _only(rows, touching, contact.G, contact.u + rebound)
    return complementary(G, u, coefficients.friction, jnp.zeros_like(coefficients.limit), layout)


def _accelerations(
    layout: Layout, coefficients: Coefficients, contact: Contact, u: Array, candidates: Array
) -> tuple[Solved, Array]:
    """The problem of accelerations, and the slip of contacts that slide already, as unit vectors (m,)."""
    rows = rows_of(layout.contacts, u.dtype)
    square = rows.tangent @ (u * u)
    slides = candidates * (square > still(u.dtype) ** 2).astype(u.dtype)
    unit = of_rows(rows, slides / jnp.sqrt(jnp.where(slides > 0, square, 1))) * u
    by_normal = (rows.tangent.T * (unit * of_rows(rows, coefficients.friction))[:, None]) @ rows.normal
    dry = -unit * of_rows(rows, coefficients.limit)
    G, rate = _only(rows, candidates, contact.G, contact.rate + contact.G @ dry)
    free = 1 - of_rows(rows, slides)  # rows whose force is still to be found
    G = free[:, None] * (G @ (jnp.eye(u.size, dtype=u.dtype) - by_normal)) * free[None]
    mu, c = (x * (1 - slides) for x in (coefficients.friction, coefficients.limit))
    found = complementary(G, rate * free, mu, c, layout)
    return found, unit


def _mode(layout: Layout, found: Solved, coefficients: Coefficients, candidates: Array, unit: Array) -> Mode:
    rows = rows_of(layout.contacts, found.p.dtype)
    slides = rows.tangent @ (unit * unit) > 0
    bears = (candidates > 0) & (found.closed | ~layout.has_gap)
    rough = (coefficients.friction > 0) | (coefficients.limit > 0)
    stick = bears & ~slides & ~found.sliding & rough
    square = rows.tangent @ (found.p * found.p)
    against = -of_rows(rows, 1 / jnp.sqrt(jnp.where(square > 0, square, 1))) * found.p
    starts = of_rows(rows, (bears & ~slides & ~stick).astype(unit.dtype)) * against
    direction = of_rows(rows, bears.astype(unit.dtype)) * unit + starts
    as_numbers = lambda x: x.astype(unit.dtype)
    return jax.lax.stop_gradient(Mode(as_numbers(bears), as_numbers(stick), direction))


def settled(
    layout: Layout,
    coefficients: Coefficients,
    t: Array,
    q: Array,
    v: Array,
    at: Callable[[Array], Contact],
) -> Settled:
    """What happens at one instant.

    **Arguments:**

    - `layout`, `coefficients`: of the contacts.
    - `t`, `q`, `v`: the state before.
    - `at`: the contacts at q and other velocities.
    """
    rows, dtype, before = rows_of(layout.contacts, v.dtype), v.dtype, at(v)
    near = before.gap <= gap_tolerance(t, q, rows.normal @ before.u)
    touching = (near | ~layout.has_gap).astype(dtype)
    impact = _impact(layout, coefficients, before, touching)
    contact = at(v + before.response @ impact.p)
    rest = touching * (rows.normal @ contact.u <= by_precision(dtype, *REST)).astype(dtype)
    sudden, found, unit, unsolved = _followed(layout, coefficients, contact, rest)
    u = contact.u + contact.G @ sudden
    mode = _mode(layout, found, coefficients, rest, unit)
    held = held_rows(layout, mode)
    stop = inverse(held[:, None] * contact.G * held[None]) @ (-held * u)
    residual = jnp.maximum(impact.residual, found.residual)
    wait = _wait(layout, coefficients, contact, mode, found.p, u)
    v = v + before.response @ impact.p + contact.response @ (sudden + stop)
    return Settled(v, mode, impact.p + sudden + stop, residual, unsolved, wait)


def _followed(
    layout: Layout, coefficients: Coefficients, contact: Contact, rest: Array
) -> tuple[Array, Solved, Array, Array]:
    """An impulse without collision, zero but where accelerations have no solution; the accelerations' problem, the slip
    after it, and whether there was such an impulse."""
    u, h = contact.u, by_precision(contact.u.dtype, *_INSTANT)
    found, unit = _accelerations(layout, coefficients, contact, u, rest)
    unsolved = found.residual > by_precision(u.dtype, *_UNSOLVED)

    def jump() -> tuple[Array, Solved, Array]:
        rows = rows_of(layout.contacts, u.dtype)
        G, after = _only(rows, rest, contact.G, u + h * contact.rate)
        p = complementary(G, after, coefficients.friction, h * coefficients.limit, layout).p
        return p, *_accelerations(layout, coefficients, contact, u + contact.G @ p, rest)

    p, found, unit = jax.lax.cond(unsolved, jump, lambda: (jnp.zeros_like(u), found, unit))
    return p, found, unit, unsolved


def _wait(
    layout: Layout, coefficients: Coefficients, contact: Contact, mode: Mode, p: Array, u: Array
) -> Array:
    """How long a contact that comes to rest would go on bouncing: 2 u_n / (b (1 - e)), -b its acceleration when open."""
    rows, e = rows_of(layout.contacts, u.dtype), coefficients.restitution
    open_ = rows.normal @ (contact.rate + contact.G @ p) - rows.normal @ (jnp.diagonal(contact.G) * p)
    parting = jnp.maximum(rows.normal @ u, 0)
    bounces = (mode.closed > 0) & (parting > 0) & (e > 0) & (e < 1) & (open_ < 0)
    return jnp.where(bounces, 2 * parting / jnp.where(bounces, -open_ * (1 - e), 1), 0)
