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
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._formula._contact_newton import ContactData, ContactRows, rows_of
from .._misc._types import by_precision
from ._modes import Mode, gap_tolerance, of_rows, still, stopped
from ._parts import Means
from ._rows import Contact, Layout, contact_at
from ._solve import Solution, solution_of

# Contacts that part slower than this [m/s] are at rest if they are pressed: bouncing ends, within 1e-13 m in float64.
# A ball that falls as deep as rounding lets a gap be is slower, some 5e-7 and 1e-2 m/s on Earth.
REST = (1e-6, 2e-2)
# Of the scaled problem: above this it has no solution.
_UNSOLVED = (1e-7, 1e-3)
# The vanishing step of time of an impact without collision [s].
_INSTANT = (1e-7, 1e-4)


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


def _apart(G: Array, u: Array, mu: Array, c: Array) -> ContactData:
    """The problem with an inverse inertia of their own for rows that have none: with it they keep a force of zero."""
    size = jnp.trace(G) / max(u.size, 1)
    own = jnp.where(jnp.diagonal(G) == 0, jnp.where(size > 0, size, 1), 0)
    return ContactData(G + jnp.diag(own), u, mu, c)


def _struck(means: Means, t: Array, q: Array, v: Array) -> tuple[Array, ContactData]:
    """Which contacts touch (n,), and the problem of the impact."""
    contact, (friction, restitution) = contact_at(means.model, t, q, v), _laws(means)
    rows = rows_of(means.layout.contacts, v.dtype)
    near = contact.gap <= gap_tolerance(t, q, rows.normal @ contact.u)
    touching = (near | ~means.layout.has_gap).astype(v.dtype)
    rebound = (restitution @ rows.normal) * jnp.minimum(contact.u, 0)
    G, u = _only(rows, touching, contact.G, contact.u + rebound)
    return touching, _apart(G, u, friction, jnp.zeros_like(friction))


def _laws(means: Means) -> tuple[Array, Array]:
    return means.coefficients.friction, means.coefficients.restitution


def _parted(means: Means, t: Array, q: Array, v: Array, p: Array, touching: Array) -> tuple[Array, Array]:
    """Velocities after the impulses p, and which contacts do not part."""
    rows = rows_of(means.layout.contacts, v.dtype)
    contact = contact_at(means.model, t, q, v)
    parting = rows.normal @ (contact.u + contact.G @ p)
    rest = touching * (parting <= by_precision(v.dtype, *REST)).astype(v.dtype)
    return v + contact.response @ p, rest


def _accelerating(
    means: Means, t: Array, q: Array, v: Array, sudden: Array, rest: Array
) -> tuple[Array, ContactData]:
    """The slip of contacts that slide already, as unit vectors (m,), and the problem of accelerations."""
    coefficients, contact = means.coefficients, contact_at(means.model, t, q, v)
    rows, u = rows_of(means.layout.contacts, v.dtype), contact.u + contact.G @ sudden
    square = rows.tangent @ (u * u)
    slides = rest * (square > still(u.dtype) ** 2).astype(u.dtype)
    unit = of_rows(rows, slides / jnp.sqrt(jnp.where(slides > 0, square, 1))) * u
    by_normal = (rows.tangent.T * (unit * of_rows(rows, coefficients.friction))[:, None]) @ rows.normal
    dry = -unit * of_rows(rows, coefficients.limit)
    G, rate = _only(rows, rest, contact.G, contact.rate + contact.G @ dry)
    free = 1 - of_rows(rows, slides)  # rows whose force is still to be found
    G = free[:, None] * (G @ (jnp.eye(u.size, dtype=u.dtype) - by_normal)) * free[None]
    mu, c = (x * (1 - slides) for x in (coefficients.friction, coefficients.limit))
    return unit, _apart(G, rate * free, mu, c)


def _jumping(means: Means, t: Array, q: Array, v: Array, rest: Array) -> ContactData:
    """The problem of an impact without collision."""
    contact, h = contact_at(means.model, t, q, v), by_precision(v.dtype, *_INSTANT)
    rows = rows_of(means.layout.contacts, v.dtype)
    G, u = _only(rows, rest, contact.G, contact.u + h * contact.rate)
    return _apart(G, u, means.coefficients.friction, h * means.coefficients.limit)


def _left(
    means: Means,
    t: Array,
    q: Array,
    v: Array,
    sudden: Array,
    rest: Array,
    unit: Array,
    p: Array,
    closed: Array,
    sliding: Array,
) -> tuple[Array, Mode, Array, Array]:
    """Velocities, mode and impulses (m,) in the end, and how long bouncing would have gone on (n,)."""
    contact = contact_at(means.model, t, q, v)
    u = contact.u + contact.G @ sudden
    mode = _mode(means, rest, unit, p, closed > 0, sliding > 0)
    impulse = sudden + stopped(means, contact, mode, u)
    return v + contact.response @ impulse, mode, impulse, _wait(means, contact, mode, p, u)


def _mode(means: Means, rest: Array, unit: Array, p: Array, closed: Array, sliding: Array) -> Mode:
    layout, coefficients = means.layout, means.coefficients
    rows = rows_of(layout.contacts, p.dtype)
    slides = rows.tangent @ (unit * unit) > 0
    bears = (rest > 0) & (closed | ~layout.has_gap)
    rough = (coefficients.friction > 0) | (coefficients.limit > 0)
    stick = bears & ~slides & ~sliding & rough
    square = rows.tangent @ (p * p)
    against = -of_rows(rows, 1 / jnp.sqrt(jnp.where(square > 0, square, 1))) * p
    starts = of_rows(rows, (bears & ~slides & ~stick).astype(p.dtype)) * against
    direction = of_rows(rows, bears.astype(p.dtype)) * unit + starts
    return jax.lax.stop_gradient(Mode(bears.astype(p.dtype), stick.astype(p.dtype), direction))


def _wait(means: Means, contact: Contact, mode: Mode, p: Array, u: Array) -> Array:
    """How long a contact that comes to rest would go on bouncing: 2 u_n / (b (1 - e)), -b its acceleration when open."""
    rows, e = rows_of(means.layout.contacts, u.dtype), means.coefficients.restitution
    open_ = rows.normal @ (contact.rate + contact.G @ p) - rows.normal @ (jnp.diagonal(contact.G) * p)
    parting = jnp.maximum(rows.normal @ u, 0)
    bounces = (mode.closed > 0) & (parting > 0) & (e > 0) & (e < 1) & (open_ < 0)
    return jnp.where(bounces, 2 * parting / jnp.where(bounces, -open_ * (1 - e), 1), 0)


def settled(computed: Callable[..., Any], layout: Layout, t: Array, q: Array, v: Array) -> Settled:
    """What happens at one instant.

    **Arguments:**

    - `computed`: what a part and its arrays give.
    - `layout`: of the contacts.
    - `t`, `q`, `v`: the state before.
    """
    solve = lambda data: solution_of(data, layout.contacts)
    touching, problem = computed(_struck, t, q, v)
    impact = solve(problem)
    v, rest = computed(_parted, t, q, v, impact.p, touching)

    def accelerating(sudden: Array) -> tuple[Array, Array, Solution]:
        unit, problem = computed(_accelerating, t, q, v, sudden, rest)
        return sudden, unit, solve(problem)

    at_once = accelerating(jnp.zeros_like(impact.p))
    unsolved = at_once[2].residual > by_precision(v.dtype, *_UNSOLVED)
    jump = lambda: accelerating(solve(computed(_jumping, t, q, v, rest)).p)
    sudden, unit, found = jax.lax.cond(unsolved, jump, lambda: at_once)
    modes = (x.astype(v.dtype) for x in (found.closed, found.sliding))
    v, mode, impulse, wait = computed(_left, t, q, v, sudden, rest, unit, found.p, *modes)
    residual = jnp.maximum(impact.residual, found.residual)
    return Settled(v, mode, impact.p + impulse, residual, unsolved, wait)
