"""The modes of contacts: which are closed, which of those stick, and in which direction others slide.

In a mode the motion is smooth. Closed contacts hold their normal rows, sticking ones their tangential rows too, and on a
sliding one friction is in proportion to its normal force: with the forces p on the rows held, and S p + s on all rows,

    R (u' + G (S p + s)) = 0,    u' = du/dt of the bilateral motion,

where R leaves the rows held, and S puts -mu p_n along the slip of each sliding contact. Dependent rows, of a table on
four legs, leave many p, of which the least is taken; the motion is the same for all. A mode holds as long as its margins
are positive: gaps of open contacts, normal forces of closed ones, friction left to sticking ones, and slip of sliding
ones.
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._formula._contact_problem import ContactData, ContactRows, ContactSolution, rows_of
from .._misc._types import choose_by_precision
from ._rows import (
    Coefficients,
    ContactContext,
    ContactLayout,
    ContactState,
    evaluate_array_part,
    evaluate_contact_part,
    solve_least,
)

# Slower than this [m/s] a contact sticks if it can: less than tolerances, far above rounding.
_STILL = (1e-9, 1e-4)
_SHORT = (3e-5, 3e-4)  # in no shorter time slip that starts turns into its direction [s]
_GUIDED = (
    30  # times e: faster slip is left as it is, for the guide's part of it goes with the cube of e / |s|
)
_STEADY = 1e-3  # of the force's push: slip that shrinks no faster is not about to stop


class Mode(NamedTuple):
    """How each of n contacts stands, and of each of m rows the direction of slip; numbers, so that they are states.

    - `closed`: 1 where it bears; of dry friction always (n,).
    - `stick`: 1 where it bears and does not slide (n,).
    - `direction`: on tangential rows of sliding contacts the unit vector of slip, else 0 (m,).
    """

    closed: Float[Array, " n"]
    stick: Float[Array, " n"]
    direction: Float[Array, " m"]


def open_mode(layout: ContactLayout, dtype: jnp.dtype) -> Mode:
    """The mode in which nothing bears."""
    n, m = len(layout.contacts), len(layout.owner)
    return Mode(*(jnp.zeros(k, dtype) for k in (n, n, m)))


def still(dtype: jnp.dtype) -> float:
    """The slip below which a contact may stick [m/s]."""
    return choose_by_precision(dtype, *_STILL)


def spread_to_tangents(rows: ContactRows, of_contacts: Array) -> Array:
    """A number of each contact on its tangential rows."""
    return of_contacts @ rows.tangent


def slip_directions(rows: ContactRows, mode: Mode, u: Array) -> Array:
    """Unit vectors of slip on tangential rows of sliding contacts (m,), which do not turn past the end of slip."""
    along = rows.tangent @ (u * mode.direction)
    square = rows.tangent @ (u * u)
    fast = square > still(u.dtype) ** 2
    length = jnp.sqrt(jnp.where(fast, square, 1))
    unit = spread_to_tangents(rows, jnp.where(along < 0, -1, 1) / length) * u
    sliding = spread_to_tangents(rows, mode.closed * (1 - mode.stick))
    return sliding * jnp.where(spread_to_tangents(rows, fast.astype(u.dtype)) > 0, unit, mode.direction)


def build_force_map(
    rows: ContactRows, mode: Mode, u: Array, coefficients: Coefficients
) -> tuple[Array, Array]:
    """S (m, m) and s (m,) of the module's docstring, without the rows of open contacts."""
    held = mode.closed @ rows.normal + spread_to_tangents(rows, mode.stick)
    unit = slip_directions(rows, mode, u)
    by_normal = (
        rows.tangent.T * (unit * spread_to_tangents(rows, coefficients.friction))[:, None]
    ) @ rows.normal
    return jnp.diag(held) - by_normal * held[None], -unit * spread_to_tangents(rows, coefficients.limit)


def held_rows(layout: ContactLayout, mode: Mode) -> Float[Array, " m"]:
    """Ones on the rows held."""
    rows = rows_of(layout.contacts, mode.closed.dtype)
    return mode.closed @ rows.normal + spread_to_tangents(rows, mode.stick)


def contact_forces(means: ContactContext, contact: ContactState, mode: Mode) -> Float[Array, " m"]:
    """The forces on all rows in a mode."""
    return _forces_along(means, contact, mode, _guide_slip(means, contact, mode))


def _forces_along(means: ContactContext, contact: ContactState, mode: Mode, u: Array) -> Array:
    """The same, of friction against contact velocities u."""
    numbers = contact.G, contact.rate, u, *mode, means.coefficients.friction, means.coefficients.limit
    return evaluate_array_part(_ForcesAlong(means.layout), *numbers)


@dataclasses.dataclass(frozen=True)
class _ForcesAlong:
    """As written out once, and called where it is needed."""

    layout: ContactLayout

    def __call__(self, G: Array, rate: Array, u: Array, *more: Array) -> Array:
        *of_mode, friction, limit = more
        none, mode = jnp.zeros_like(friction), Mode(*of_mode)
        coefficients = Coefficients(none, friction, limit, jnp.ones_like(u), none, none)
        S, s = build_force_map(rows_of(self.layout.contacts, u.dtype), mode, u, coefficients)
        held = held_rows(self.layout, mode)
        return S @ solve_least(held[:, None] * (G @ S), -held * (rate + G @ s)) + s


def _guide_slip(means: ContactContext, contact: ContactState, mode: Mode) -> Float[Array, " m"]:
    """Contact velocities, of which slip s that starts is turned towards the force f that would hold it: they are along
    |s|^3 s + e^4 f / |f|.

    It turns there by itself, at the rate mu p_n / |s|: sooner than tolerances see slip at all, so that steps would leave
    its direction to chance, and the derivative of that without bound. With e a short time of its acceleration by f the
    rate has a bound, and what is missed, since slip lags behind the force as it turns, is far below tolerances.
    """
    if all(tangents < 2 for _, tangents in means.layout.contacts):  # there is nowhere to turn
        return contact.u
    rows, dtype = rows_of(means.layout.contacts, contact.u.dtype), contact.u.dtype
    spread, safe = functools.partial(spread_to_tangents, rows), lambda x: jnp.where(x > 0, x, 1)
    short, coefficients = choose_by_precision(dtype, *_SHORT), means.coefficients

    def length(x: Array) -> Array:
        square = rows.tangent @ (x * x)
        return jnp.where(square > 0, jnp.sqrt(safe(square)), 0)

    slip = length(contact.u)
    slow = slip < _GUIDED * short * jnp.max(jnp.abs(contact.rate), initial=0)
    rubs = (mode.closed > mode.stick) & ((coefficients.friction > 0) | (coefficients.limit > 0))
    slow = (slow & rubs).astype(dtype)

    def guide() -> Array:
        grows = contact.rate + contact.G @ _forces_along(means, contact, mode, contact.u)
        f = _forces_along(means, contact, mode._replace(stick=mode.stick + slow), contact.u)
        hold, pushed = length(f), length(contact.G @ (spread(slow) * f))
        starts = (slow > 0) & (rows.tangent @ (grows * mode.direction) > -_STEADY * pushed)
        e = jnp.where(starts, short * pushed, 0)
        share = e / safe(slip + e)
        return spread((1 - share) ** 3) * contact.u - spread(share**3 * e / safe(hold)) * f

    return jax.lax.cond(jnp.any(slow > 0), guide, lambda: contact.u)


def _against(
    means: ContactContext, contact: ContactState, mode: Mode, S: Array, rate: Array
) -> Float[Array, " m"]:
    """The forces on all rows that take rates away on the rows held."""
    held = held_rows(means.layout, mode)
    return S @ means.solve(held[:, None] * (contact.G @ S), -held * rate)


def _estimate_rounding_force(means: ContactContext, contact: ContactState, mode: Mode) -> Float[Array, ""]:
    """The largest force that rounding of the accelerations makes: on dependent rows not a small one.

    Pressed by nothing, as the fingers of an open gripper at their stops, these would open and close without end.
    """
    eps, rows = jnp.finfo(contact.u.dtype).eps, rows_of(means.layout.contacts, contact.u.dtype)
    S, _ = build_force_map(rows, mode, contact.u, means.coefficients)
    signs = np.cos(np.arange(contact.u.size) ** 2).astype(contact.u.dtype)  # along no dependency
    rate = eps * jnp.max(jnp.abs(contact.a), initial=0) * signs
    return jnp.max(jnp.abs(_against(means, contact, mode, S, rate)), initial=0)


def compute_stopping_impulses(
    means: ContactContext, contact: ContactState, mode: Mode, u: Array
) -> Float[Array, " m"]:
    """The impulses on the rows held that take their velocities away."""
    held = held_rows(means.layout, mode)
    return means.solve(held[:, None] * contact.G * held[None], -held * u)


class Margins(NamedTuple):
    """What must stay positive for a mode to hold (3 n,), and by how much rounding may take it below zero."""

    value: Array
    slack: Array


def margins(
    means: ContactContext, contact: ContactState, mode: Mode, p: Array, t: Array, q: Array
) -> Margins:
    """The margins of a mode with the forces p: gaps or normal forces (n,), friction left (n,), slip (n,)."""
    layout, coefficients = means.layout, means.coefficients
    rows, dtype = rows_of(layout.contacts, contact.u.dtype), contact.u.dtype
    eps, one = jnp.finfo(dtype).eps, jnp.ones_like(contact.gap)
    has_gap, has_slip = layout.has_gap, layout.has_slip
    largest = jnp.max(jnp.abs(jax.lax.stop_gradient(p)), initial=0)
    normal = rows.normal @ p
    closed, stick = mode.closed > 0, mode.stick > 0
    bound = coefficients.friction * normal + coefficients.limit
    rubs = has_slip & closed & ((coefficients.friction > 0) | (coefficients.limit > 0))
    square = rows.tangent @ (p * p)
    friction = bound - jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1)), 0)
    slip = rows.tangent @ (contact.u * mode.direction)
    gap_slack = gap_tolerance(t, q, rows.normal @ contact.u, rows.normal @ contact.driven)
    # Forces are solved for, and some are small beside others.
    unsure = 1e5 * eps * largest + jax.lax.stop_gradient(_estimate_rounding_force(means, contact, mode))
    force_slack = unsure * one
    value = (
        jnp.where(closed, jnp.where(has_gap, normal, one), contact.gap),
        jnp.where(rubs & stick, friction, one),
        jnp.where(rubs & ~stick, slip, one),
    )
    slack = (jnp.where(closed, force_slack, gap_slack), force_slack, still(dtype) * one)
    return Margins(jnp.concatenate(value), jnp.concatenate(slack))


class Approach(NamedTuple):
    """How n contacts near each other, of which those count that are open.

    - `gap`, `rate`: gaps and their rates (n,).
    - `J`: the rows of these rates (n, n_v).
    - `a`: the acceleration (n_v,).
    - `bend`: how fast rates fall by the acceleration and by the bend of gaps, each by itself (n,).
    """

    gap: Array
    rate: Array
    J: Array
    a: Array
    bend: Array


def approach(means: ContactContext, contact: ContactState, p: Array) -> Approach:
    """How contacts near each other under the forces p."""
    normal = rows_of(means.layout.contacts, contact.u.dtype).normal
    a = contact.a + contact.response @ p
    J, by_bend = normal @ contact.J, normal @ (contact.rate - contact.J @ contact.a)
    bend = jnp.maximum(-(J @ a), 0) + jnp.maximum(-by_bend, 0)
    return Approach(contact.gap, normal @ contact.u, J, a, bend)


def gap_tolerance(
    t: Array, q: Array, rate: Float[Array, " n"], driven: Float[Array, " n"]
) -> Float[Array, " n"]:
    """To how much gaps are zero: some roundings of what they are made of, and of the time times their `rate` [m].

    What time makes of it, `driven`, counts by itself: on a floor that moves a body has no rate, but both are rounded.
    """
    t, q, rate, driven = jax.lax.stop_gradient((t, q, rate, driven))
    made_of = 1 + jnp.max(jnp.abs(q), initial=0)
    moved = (jnp.abs(rate) + jnp.abs(driven)) * (1 + jnp.abs(t))
    return jnp.finfo(q.dtype).eps * (30 * made_of + 8 * moved)


# --- Contacts of which other forces obey the laws as well, and would move the system otherwise
#
# There are two kinds. Of dependent contacts that slide in different directions, such as the legs of a table that slides
# and spins, forces S n with K n = 0 may be added: normal ones carry nothing, but friction goes with them.
# The same where all stick, or slide in one direction, moves nothing, and does not count. And a sliding contact that is
# pressed the harder the faster it is let go, K_ii = G_nn - mu s G_nt < 0, may be open as well as closed where nothing
# else presses it (Painleve).
#
# What the run goes on with: of dependent contacts the least normal forces, as of legs that are equally stiff, or by
# time stepping those nearest to the step before; of a contact that may open, that it opens, unless it slides already.

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
    none = jnp.zeros_like(mu)
    closed, sliding = (x.astype(u.dtype) for x in (found.closed, found.sliding))
    coefficients = Coefficients(none, mu, c, jnp.ones_like(u), none, none)
    contact = ContactState(rows.normal @ u, u, zero, zero, zero, zero, G, zero, zero, zero)
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
