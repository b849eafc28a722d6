"""Contacts of which other forces obey the laws as well, and would move the system otherwise.

There are two kinds. Of dependent contacts that slide in different directions, such as the legs of a table that slides and
spins, forces S n with K n = 0 (`_modes`) may be added: normal ones carry nothing, but friction goes with them. The same
where all stick, or slide in one direction, moves nothing, and does not count. And a sliding contact that is pressed the
harder the faster it is let go, K_ii = G_nn - mu s G_nt < 0, may be open as well as closed where nothing else presses it
(Painleve).

What the run goes on with: of dependent contacts the least normal forces, as of legs that are equally stiff, or by time
stepping those nearest to the step before; of a contact that may open, that it opens, unless it slides already.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._formula._contact_newton import ContactData, ContactRows, ContactSolution, rows_of
from .._misc._types import choose_by_precision
from .._motion._model import Model
from ._contact_kinematics import passing
from ._modes import Mode, build_force_map, gap_tolerance, held_rows, spread_to_tangents, still
from ._parts import ContactContext, evaluate_contact_part, evaluate_model_part, evaluate_part_on_arrays
from ._rows import Coefficients, ContactLayout, ContactState, with_push

# What counts beside the largest: rounding of a solution by a pull of 1e-9 is far below, what moves a table far above.
COUNTS = (1e-5, 1e-2)


def _generic(m: int, dtype: jnp.dtype) -> Array:
    """Numbers of size 1 between which there is no relation that contacts could have."""
    return 1 + 0.5 * jnp.cos(jnp.arange(m, dtype=dtype) ** 2)


def _exchangeable(means: ContactContext, contact: ContactState, mode: Mode) -> Float[Array, " n"]:
    """1 for dependent contacts among which forces may be exchanged, so that the motion changes."""
    rows, dtype = rows_of(means.layout.contacts, contact.u.dtype), contact.u.dtype
    counts, held = choose_by_precision(dtype, *COUNTS), held_rows(means.layout, mode)
    S, _ = build_force_map(rows, mode, contact.u, means.coefficients)
    K, some = held[:, None] * (contact.G @ S), held * _generic(held.size, dtype)
    none = some - means.solve(K, K @ some)
    size, moved = (jnp.max(jnp.abs(x), initial=0) for x in (none, contact.G @ (S @ none)))
    moves = (size > counts) & (moved > counts * size * jnp.max(jnp.diagonal(contact.G), initial=0))
    share = (rows.normal + rows.tangent) @ jnp.abs(none)
    return jnp.where(moves & (share > counts * size), 1, 0).astype(dtype)


def _bistable(
    means: ContactContext, contact: ContactState, mode: Mode, p: Array, touching: Array
) -> Float[Array, " n"]:
    """1 for sliding contacts that may be open as well as closed."""
    rows, dtype = rows_of(means.layout.contacts, contact.u.dtype), contact.u.dtype
    square = rows.tangent @ (contact.u * contact.u)
    slides = (touching > 0) & (square > still(dtype) ** 2) & means.layout.has_gap
    rubs = jnp.where(slides, means.coefficients.friction / jnp.sqrt(jnp.where(slides, square, 1)), 0)
    own = rows.normal - rubs[:, None] * rows.tangent * contact.u[None]
    response = jnp.sum(rows.normal * (own @ contact.G), axis=1)
    leaving = (1 - mode.closed) * (rows.normal @ (contact.rate + contact.G @ p))
    free = leaving - response * (rows.normal @ p)  # how it would leave without its own force
    counts, size = choose_by_precision(dtype, *COUNTS), jnp.max(jnp.abs(contact.rate), initial=0)
    softer = response < -counts * jnp.diagonal(rows.normal @ contact.G @ rows.normal.T)
    return jnp.where(slides & softer & (free > counts * size), 1, 0).astype(dtype)


def ambiguous(
    means: ContactContext, contact: ContactState, mode: Mode, p: Array, touching: Array
) -> Float[Array, " n"]:
    """1 for contacts of which other forces obey the laws as well, and would move the system otherwise."""
    if not means.layout.contacts:  # a run with resets alone
        return jnp.zeros(0, p.dtype)
    contact, mode, p, touching = jax.lax.stop_gradient((contact, mode, p, touching))
    return jnp.maximum(_exchangeable(means, contact, mode), _bistable(means, contact, mode, p, touching))


def ambiguous_impact(
    means: ContactContext, contact: ContactState, p: Array, closed: Array, sliding: Array
) -> Float[Array, " n"]:
    """The same of the impulses of an impact, among dependent contacts."""
    if not means.layout.contacts:
        return jnp.zeros(0, p.dtype)
    contact, p = jax.lax.stop_gradient((contact, p))
    rows, dtype = rows_of(means.layout.contacts, p.dtype), p.dtype
    u = contact.u + contact.G @ p
    size = jnp.max(jnp.diagonal(contact.G), initial=0) * (rows.normal @ p)
    struck = (size > choose_by_precision(dtype, *COUNTS) * (1 + jnp.max(jnp.abs(u), initial=0))).astype(dtype)
    mode = _mode_of(rows, means.coefficients, u, closed * struck, sliding)
    return _exchangeable(means, contact._replace(u=u), mode)


def ambiguous_impulses(layout: tuple, data: ContactData, found: ContactSolution) -> Float[Array, " n"]:
    """The same of a problem at one instant."""
    rows, zero, (G, u, mu, c) = rows_of(layout, data.u.dtype), jnp.zeros_like(data.u), data
    closed, sliding = (x.astype(u.dtype) for x in (found.closed, found.sliding))
    coefficients = Coefficients(jnp.zeros_like(mu), mu, c)
    contact = ContactState(rows.normal @ u, u, zero, zero, zero, G, zero, zero, zero)
    mode = _mode_of(rows, coefficients, u, closed, sliding)
    return evaluate_contact_part(
        ambiguous, ContactLayout((), layout, ()), coefficients, contact, mode, found.p, closed * sliding
    )


def _mode_of(rows: ContactRows, coefficients: Coefficients, u: Array, closed: Array, sliding: Array) -> Mode:
    rough = ((coefficients.friction > 0) | (coefficients.limit > 0)).astype(u.dtype)
    square = rows.tangent @ (u * u)
    length = jnp.sqrt(jnp.where(square > 0, square, 1))
    return Mode(
        closed, closed * (1 - sliding) * rough, spread_to_tangents(rows, closed * sliding / length) * u
    )


def ambiguous_state(
    model: Model,
    layout: ContactLayout,
    coefficients: Coefficients,
    state: tuple[Array, Array, Array],
    found: tuple,
) -> Float[Array, " n"]:
    """The same of a state by time stepping."""
    t, q, v = state
    rows, (p, closed, sliding) = rows_of(layout.contacts, q.dtype), found
    equations = with_push(model, jnp.zeros_like(v)).equations(t, q, v)
    accelerated = lambda Q: model.formula.solve(dataclasses.replace(equations, Q=Q)).a
    a, change = jax.linearize(accelerated, equations.Q)
    gap, u, rate, J = evaluate_model_part(passing, model, t, q, v, a)
    response = jax.vmap(change)(J).T
    contact = ContactState(gap, u, J, response, response, J @ response, v, a, rate)
    mode = _mode_of(rows, coefficients, u, closed, sliding)
    parting = rows.normal @ u
    touches = (gap <= gap_tolerance(t, q, parting)) & (parting <= still(q.dtype))
    touching = jnp.where(closed > 0, sliding, touches.astype(q.dtype))
    return evaluate_part_on_arrays(ambiguous, layout, coefficients, contact, mode, p, touching)
