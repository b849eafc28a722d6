"""The motion in a mode: what a vector field, a projection and the search for events compute with."""

from collections.abc import Callable
from typing import Any, NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._formula._contact_problem import ContactData, ContactRows, ContactSolution, flatten_problem, rows_of
from .._misc._types import choose_by_precision, in_full_precision
from .._motion._model import Model
from .._motion._solvers import end_of_step
from ._history import UNSOLVED
from ._modes import (
    Approach,
    Margins,
    Mode,
    ambiguous,
    ambiguous_impact,
    approach,
    compute_stopping_impulses,
    contact_forces,
    gap_tolerance,
    margins,
    open_mode,
    slip_directions,
    spread_to_tangents,
    still,
)
from ._resets import Reset, accumulates, apply_reset, leaving, values
from ._rows import (
    Coefficients,
    ContactContext,
    ContactLayout,
    ContactState,
    Kinematics,
    PushedSystem,
    contact_at,
    evaluate_contact_part,
    evaluate_model_part,
    kinematics,
)
from ._solve import solution_of

# --- What happens at an instant where contacts close, open, stick or slip: first the impact, then the mode that follows
#
# The impact is Moreau's: with u' = u- + e min(u_n-, 0) on normal rows find impulses p and u = G p + u' such that 0 <=
# p_n perp u_n >= 0 and Coulomb's law holds of the tangential velocity after it. So each contact that is struck leaves
# by Newton's law, u_n+ = -e u_n-, unless others push it away; simultaneous impacts are one problem.
#
# By Poisson's law that problem, without the restitution, is the compression. A second one, from the velocities it
# leaves, is the expansion: 0 <= p_n - e p_c perp u_n >= 0, with friction of up to mu p_n (Glocker and Pfeiffer 1995).
#
# The mode is that of accelerations: of contacts that touch and do not part, 0 <= p_n perp du_n/dt >= 0, with friction
# against the slip where there is any and Coulomb's law of the tangential acceleration where there is none. Contacts
# that part slower than a threshold count as not parting: infinitely many bounces end there. Where accelerations have no
# solution (Painleve), the impulses of a vanishing step of time do: an impact without collision.

# Contacts that part slower than this [m/s] are at rest if they are pressed: bouncing ends, within 1e-13 m in float64.
# A ball that falls as deep as rounding lets a gap be is slower, some 5e-7 and 1e-2 m/s on Earth.
REST = (1e-6, 2e-2)
# The vanishing step of time of an impact without collision [s].
_INSTANT = (1e-7, 1e-4)
# A contact about to open or to slide is helped by as much: in m/s^2 and parts of accelerations, in parts of friction.
# More than forces on dependent rows are uncertain by.
_SPENT = (1e-6, 1e-3)


class SettledContacts(NamedTuple):
    """What an instant leaves.

    - `v`: velocities after it.
    - `mode`: the mode that follows.
    - `impulse`: on the rows (m,).
    - `residual`: of the worse of the two problems; large where there is no solution.
    - `jumped`: whether there was an impact without collision.
    - `wait`: how long bouncing would still have gone on (n,) [s], of contacts that come to rest by it.
    - `ambiguous`: 1 for contacts of which other impulses or forces obey the laws as well (n,); see `_modes`.
    """

    v: Array
    mode: Mode
    impulse: Array
    residual: Array
    jumped: Array
    wait: Array
    ambiguous: Array


def _only(rows: ContactRows, chosen: Array, G: Array, u: Array) -> tuple[Array, Array]:
    """The problem of some contacts: the others have no inverse inertia, and part."""
    mask = chosen @ rows.normal + spread_to_tangents(rows, chosen)
    parting = (1 - chosen) @ rows.normal
    return G * mask[:, None] * mask[None], u * mask + parting


def _apart(G: Array, u: Array, mu: Array, c: Array) -> Array:
    """The problem, flattened. Rows without inverse inertia get one of their own: with it they keep a force of zero."""
    size = jnp.trace(G) / max(u.size, 1)
    own = jnp.where(jnp.diagonal(G) == 0, jnp.where(size > 0, size, 1), 0)
    return flatten_problem(ContactData(G + jnp.diag(own), u, mu, c))


def _rebound(means: ContactContext, contact: ContactState) -> Array:
    """What Newton's law adds to the velocities before the impact (m,)."""
    rows, e = rows_of(means.layout.contacts, contact.u.dtype), means.coefficients.restitution
    newton = jnp.where(np.array(means.layout.poisson), 0, e) if means.layout.poisson else e
    return (newton @ rows.normal) * jnp.minimum(contact.u, 0)


def _build_impact_problem(
    means: ContactContext, contact: ContactState, t: Array, q: Array
) -> tuple[Array, Array]:
    """Which contacts touch (n,), and the problem of the impact."""
    coefficients, rows = means.coefficients, rows_of(means.layout.contacts, q.dtype)
    near = contact.gap <= gap_tolerance(t, q, rows.normal @ contact.u, rows.normal @ contact.driven)
    touching = (near | ~means.layout.has_gap).astype(q.dtype)
    G, u = _only(rows, touching, contact.G, contact.u + _rebound(means, contact))
    return touching, _apart(G, u, coefficients.friction, jnp.zeros_like(coefficients.limit))


def _expanding(
    means: ContactContext, contact: ContactState, p: Array, touching: Array
) -> tuple[Array, Array]:
    """The impulses by Poisson's law that compression p has left (m,), and the problem of what else expansion needs."""
    coefficients, rows = means.coefficients, rows_of(means.layout.contacts, p.dtype)
    stored = jnp.where(np.array(means.layout.poisson), coefficients.restitution * (rows.normal @ p), 0)
    given = stored @ rows.normal
    before = contact.u + _rebound(means, contact)
    G, u = _only(rows, touching, contact.G, before + contact.G @ (p + given))
    return given, _apart(G, u, coefficients.friction, coefficients.friction * stored)


def _apply_impact(
    means: ContactContext, contact: ContactState, p: Array, touching: Array, t: Array, q: Array
) -> tuple[Array, Array]:
    """The change of velocities by the impulses p, and which contacts do not part then, or rise by less than rounding."""
    rows = rows_of(means.layout.contacts, p.dtype)
    parting, falls = rows.normal @ (contact.u + contact.G @ p), jnp.maximum(-(rows.normal @ contact.rate), 0)
    known = gap_tolerance(t, q, parting, rows.normal @ contact.driven)
    low = jnp.maximum(parting, 0) ** 2 <= 2 * falls * known
    rests = low | (parting <= choose_by_precision(p.dtype, *REST))
    return contact.response @ p, touching * rests.astype(p.dtype)


def _accelerating(
    means: ContactContext, contact: ContactState, sudden: Array, rest: Array, spent: Array
) -> tuple[Array, Array]:
    """The slip of contacts that slide already, as unit vectors (m,), and the problem of accelerations.

    At the instant a normal force or the friction left is `spent`, to stay and to go on both solve it, to rounding.
    """
    coefficients, rows = means.coefficients, rows_of(means.layout.contacts, sudden.dtype)
    opens, slips = jnp.split(choose_by_precision(rest.dtype, *_SPENT) * spent, 2)
    u = contact.u + contact.G @ sudden
    square = rows.tangent @ (u * u)
    slides = rest * (square > still(u.dtype) ** 2).astype(u.dtype)
    unit = spread_to_tangents(rows, slides / jnp.sqrt(jnp.where(slides > 0, square, 1))) * u
    by_normal = (
        rows.tangent.T * (unit * spread_to_tangents(rows, coefficients.friction))[:, None]
    ) @ rows.normal
    dry = -unit * spread_to_tangents(rows, coefficients.limit)
    lifting = ((1 + jnp.max(jnp.abs(contact.rate), initial=0)) * opens) @ rows.normal
    G, rate = _only(rows, rest, contact.G, contact.rate + lifting + contact.G @ dry)
    free = 1 - spread_to_tangents(rows, slides)  # rows whose force is still to be found
    G = free[:, None] * (G @ (jnp.eye(u.size, dtype=u.dtype) - by_normal)) * free[None]
    mu, c = (x * (1 - slides) * (1 - slips) for x in (coefficients.friction, coefficients.limit))
    return unit, _apart(G, rate * free, mu, c)


def _jumping(means: ContactContext, contact: ContactState, rest: Array) -> Array:
    """The problem of an impact without collision."""
    rows, h = rows_of(means.layout.contacts, rest.dtype), choose_by_precision(rest.dtype, *_INSTANT)
    G, u = _only(rows, rest, contact.G, contact.u + h * contact.rate)
    return _apart(G, u, means.coefficients.friction, h * means.coefficients.limit)


class _AccelerationLevel(NamedTuple):
    """Of the accelerations: the impulse before, slip as unit vectors, forces (m,), and modes (n,)."""

    sudden: Array
    unit: Array
    p: Array
    closed: Array
    sliding: Array


def _finish_instant(
    means: ContactContext, contact: ContactState, before: Array, rest: Array, found: _AccelerationLevel
) -> tuple[Array, Mode, Array, Array]:
    """The change of velocities, mode and impulses (m,) in the end, and how long bouncing would have gone on (n,), of
    contacts that had the velocities `before`."""
    u = contact.u + contact.G @ found.sudden
    mode = _mode(means, rest, found)
    impulse = found.sudden + compute_stopping_impulses(means, contact, mode, u)
    wait = _wait(means, contact, mode, (before, u))
    return contact.response @ impulse, mode, impulse, wait


def _mode(means: ContactContext, rest: Array, found: _AccelerationLevel) -> Mode:
    (_, unit, p, *modes), layout, coefficients = found, means.layout, means.coefficients
    (closed, sliding), rows = (x > 0 for x in modes), rows_of(layout.contacts, p.dtype)
    slides = rows.tangent @ (unit * unit) > 0
    bears = (rest > 0) & (closed | ~layout.has_gap)
    rough = (coefficients.friction > 0) | (coefficients.limit > 0)
    stick = bears & ~slides & ~sliding & rough
    square = rows.tangent @ (p * p)
    against = -spread_to_tangents(rows, 1 / jnp.sqrt(jnp.where(square > 0, square, 1))) * p
    starts = spread_to_tangents(rows, (bears & ~slides & ~stick).astype(p.dtype)) * against
    direction = spread_to_tangents(rows, bears.astype(p.dtype)) * unit + starts
    return jax.lax.stop_gradient(Mode(bears.astype(p.dtype), stick.astype(p.dtype), direction))


def _wait(means: ContactContext, contact: ContactState, mode: Mode, u: tuple[Array, Array]) -> Array:
    """How long contacts that come to rest would go on bouncing or rocking, by their velocities before and after: if all
    that follow are alike, each r times as fast as the one before, 2 u_n / (b (1 - r)), -b their acceleration in the air.

    All of them are in the air, and the others bear and rub as they then do. By r they part slower than they were struck,
    or, where others were, as the corner of a block that rocks, than the fastest of these.
    """
    rows, slow = rows_of(means.layout.contacts, u[1].dtype), still(u[1].dtype)
    struck, parting = mode.closed * -(rows.normal @ u[0]), rows.normal @ u[1]
    own = jnp.where(struck > slow, struck, jnp.max(struck, initial=0))
    ratio = parting / jnp.where(own > slow, own, 1)
    alike = (own > slow) & (ratio < 1 - jnp.sqrt(jnp.finfo(ratio.dtype).eps))
    bounces = mode.closed * ((parting > slow) & alike).astype(parting.dtype)
    others = mode._replace(closed=mode.closed - bounces, stick=mode.stick * (1 - bounces))
    in_air = rows.normal @ (
        contact.rate + contact.G @ contact_forces(means, contact._replace(u=u[1]), others)
    )
    falls = (bounces > 0) & (in_air < 0)
    return jnp.where(falls, 2 * parting / jnp.where(falls, -in_air * (1 - ratio), 1), 0)


def _ambiguous(
    means: ContactContext,
    contact: ContactState,
    before: ContactState,
    impact: ContactSolution,
    mode: Mode,
    sudden: Array,
    rest: Array,
) -> Array:
    """Of which contacts the impact, or what follows it, could have been another (n,)."""
    of_impact = ambiguous_impact(means, before, impact.p, impact.closed, impact.sliding)
    contact = contact._replace(u=contact.u + contact.G @ sudden)
    forces = contact_forces(means, contact, mode)
    return jnp.maximum(of_impact, ambiguous(means, contact, mode, forces, rest))


def settle_contacts(
    at: Callable[[Array], ContactState],
    layout: ContactLayout,
    coefficients: Coefficients,
    state: tuple[Array, Array, Array],
    spent: Array,
) -> SettledContacts:
    """What happens at one instant."""
    t, q, v = state
    solve = lambda problem: solution_of(problem, layout.contacts)
    of = lambda part, contact, *more: evaluate_contact_part(part, layout, coefficients, contact, *more)
    before = at(v)
    touching, problem = of(_build_impact_problem, before, t, q)
    impact = solve(problem)
    struck, unstruck = impact.p, impact.residual
    if layout.poisson:
        given, problem = of(_expanding, before, struck, touching)
        expansion = solve(problem)
        struck, unstruck = struck + given + expansion.p, jnp.maximum(unstruck, expansion.residual)
    change, rest = of(_apply_impact, before, struck, touching, t, q)
    contact = at(v + change)

    def accelerating(sudden: Array) -> tuple[_AccelerationLevel, Array]:
        unit, problem = of(_accelerating, contact, sudden, rest, spent)
        p, residual, _, *modes = solve(problem)
        return _AccelerationLevel(sudden, unit, p, *(x.astype(p.dtype) for x in modes)), residual

    at_once = accelerating(jnp.zeros_like(struck))
    unsolved = at_once[1] > choose_by_precision(v.dtype, *UNSOLVED)
    jump = lambda: accelerating(solve(of(_jumping, contact, rest)).p)
    found, residual = jax.lax.cond(unsolved, jump, lambda: at_once)
    more, mode, impulse, wait = of(_finish_instant, contact, before.u, rest, found)
    residual = jnp.maximum(unstruck, residual)
    numbers = impact._replace(closed=impact.closed.astype(v.dtype), sliding=impact.sliding.astype(v.dtype))
    several = of(_ambiguous, contact, before, numbers, mode, found.sudden, rest)
    return SettledContacts(v + change + more, mode, struck + impulse, residual, unsolved, wait, several)


# --- The dynamics with contacts


State = tuple[Array, Array, Mode]


class RanOut(NamedTuple):
    """Of the margins of a mode:

    - `which`: the one that ran out, -1 for none.
    - `spent`: 1 for normal forces (n,), or for what is left of friction (n,), that ran out with it, to rounding.
    """

    which: Array
    spent: Array


def _rates(means: ContactContext, contact: ContactState, mode: Mode) -> tuple[Array, Array]:
    return contact.q_rate, contact.a + contact.response @ contact_forces(means, contact, mode)


def _observe_margins(
    means: ContactContext, contact: ContactState, mode: Mode, t: Array, q: Array
) -> tuple[Margins, Approach]:
    p = contact_forces(means, contact, mode)
    return margins(means, contact, mode, p, t, q), approach(means, contact, p)


def _margins(means: ContactContext, contact: ContactState, mode: Mode, t: Array, q: Array) -> Margins:
    return margins(means, contact, mode, contact_forces(means, contact, mode), t, q)


def _kinematics(model: Model, t: Array, q: Array, v: Array) -> Kinematics:
    assert isinstance(model.system, PushedSystem)
    return kinematics(model.system.system, t, q, v)


def _closer(means: ContactContext, contact: ContactState, mode: Mode) -> Array:
    """What closes the gaps of closed contacts, but for the square of what they were."""
    gap = (contact.gap * mode.closed) @ rows_of(means.layout.contacts, contact.gap.dtype).normal
    gaps_only = mode._replace(stick=jnp.zeros_like(mode.stick))
    return contact.moved @ compute_stopping_impulses(means, contact, gaps_only, gap)


def _correct_velocities(means: ContactContext, contact: ContactState, mode: Mode) -> tuple[Array, Array]:
    """The change of velocities to those on the rows held, and the direction of slip brought up to date."""
    rows, dtype = rows_of(means.layout.contacts, contact.u.dtype), contact.u.dtype
    unit = slip_directions(rows, mode, contact.u)
    forward = ((rows.tangent @ (unit * contact.u)) > still(dtype)).astype(dtype)
    direction = jnp.where(spread_to_tangents(rows, forward) > 0, unit, mode.direction)
    return contact.response @ compute_stopping_impulses(means, contact, mode, contact.u), direction


@final
class ContactDynamics(eqx.Module):
    """What the flow and the solver compute with.

    - `model`: of the `PushedSystem`.
    - `coefficients`: of the contacts.
    - `layout`: of their rows.
    - `resets`: events of the user's own after which the motion goes on.
    """

    model: Model
    coefficients: Coefficients
    layout: ContactLayout = eqx.field(static=True)
    resets: tuple[Reset, ...] = ()

    def _of(self, part: Callable[..., Any], contact: ContactState, *more: Any) -> Any:
        return evaluate_contact_part(part, self.layout, self.coefficients, contact, *more)

    def at(self, t: Array, q: Array, v: Array) -> ContactState:
        """The contacts at a state."""
        return evaluate_model_part(contact_at, self.model, t, q, v)

    def margins(self, t: Array, y: State) -> Margins:
        """The margins of the mode of a state."""
        q, v, mode = y
        return self._with_own(self._of(_margins, self.at(t, q, v), mode, t, q), t, y)

    def _with_own(self, of_mode: Margins, t: Array, y: State) -> Margins:
        return Margins(*map(jnp.append, of_mode, values(self.resets, t, *y[:2])))

    def looked_at(self, t: Array, y: State) -> tuple[Margins, Approach]:
        """The margins of the mode of a state, and how open contacts near each other."""
        q, v, mode = y
        of_mode, near = self._of(_observe_margins, self.at(t, q, v), mode, t, q)
        return self._with_own(of_mode, t, y), near

    def kinematics(self, t: Array, q: Array, v: Array) -> Kinematics:
        """Gaps and contact velocities."""
        return evaluate_model_part(_kinematics, self.model, t, q, v)

    def apart(self, t: Array, y: State) -> tuple[Array, Array]:
        """Of the margins, which are events of the user's own, and which of these become negative just after `t`."""
        count, (q, v, _) = 3 * len(self.layout.contacts), y
        passing = leaving(self.resets, (t, q, v), self.rates(t, y)) if self.resets else jnp.zeros(0, q.dtype)
        own = jnp.arange(count + len(self.resets)) >= count
        return own, jnp.concatenate([jnp.zeros(count, bool), passing > 0])

    def rates(self, t: Array, y: State) -> tuple[Array, Array]:
        """(q', v') in the mode of a state."""
        q, v, mode = y
        return self._of(_rates, self.at(t, q, v), mode)

    def settled(self, t: Array, y: State, ran_out: RanOut) -> tuple[Array, SettledContacts, Array]:
        """Coordinates after an instant, what happens there, and by how much a state after a reset was off the rows."""
        q, v, _ = y
        moved = jnp.zeros_like(t)
        if self.resets:
            given = apply_reset(self.resets, self.reset_of(ran_out.which), t, q, v)
            q, v = self.model.project(t, given)
            off = jnp.max(jnp.abs(jnp.concatenate([q - given[0], v - given[1]])))
            moved = jax.lax.stop_gradient(jnp.where(self.reset_of(ran_out.which) >= 0, off, 0))
        at = lambda v: self.at(t, q, v)
        return q, settle_contacts(at, self.layout, self.coefficients, (t, q, v), ran_out.spent), moved

    def reset_of(self, which: Array) -> Array:
        """Which of the user's own events a margin is, -1 for none."""
        return jnp.maximum(which - 3 * len(self.layout.contacts), -1)

    def accumulates(self, t: Array, y: State, which: Array) -> Array:
        """Whether one of the user's own events, from the state after it, occurs again sooner than can be told."""
        if not self.resets:
            return jnp.zeros((), bool)
        state = t, *y[:2]
        return accumulates(self.resets, which, self.model.system.kinematics, state, self.rates(t, y))

    def forces(self, t: Array, y: State) -> tuple[ContactState, Array]:
        """The contacts, and the forces on their rows."""
        q, v, mode = y
        contact = self.at(t, q, v)
        return contact, self._of(contact_forces, contact, mode)

    def ambiguous(self, contact: ContactState, mode: Mode, p: Array) -> Array:
        """Of which contacts other forces obey the laws as well (n,), of what `forces` returns."""
        return self._of(ambiguous, contact, mode, p, mode.closed)

    @in_full_precision
    def held(self, t: Array, y: State) -> tuple[State, Array]:
        """The state on the bilateral rows and on those its mode holds, the direction of slip brought up to date; and
        how close to singular the bilateral rows are, infinite where no state near this one obeys them."""
        q, v, mode = y
        q, v = self.model.project(t, (q, v))
        for _ in range(2):  # what one leaves is of the order of its square
            q = q + self._of(_closer, self.at(t, q, v), mode)
        near = jnp.zeros((), q.dtype)
        if self.model.stabilizer.projection_method is not None:
            (q, v), _, near = end_of_step(self.model, t, (q, v), None)
        change, direction = self._of(_correct_velocities, self.at(t, q, v), mode)
        return (q, v + change, mode._replace(direction=jax.lax.stop_gradient(direction))), near

    def begun(self, t: Array, q: Array, v: Array) -> tuple[State, SettledContacts]:
        """The state to start from, and what happens there: contacts that touch are struck, and the mode is found."""
        nothing = RanOut(jnp.asarray(-1), jnp.zeros(2 * len(self.layout.contacts), v.dtype))
        found = self.settled(t, (q, v, open_mode(self.layout, v.dtype)), nothing)[1]
        return self.held(t, (q, found.v, found.mode))[0], found

    def sliding(self, closed: Array, stick: Array) -> Array:
        """Which contacts slide (..., n), of what a mode says of them."""
        return (closed > 0) & (stick == 0) & jnp.broadcast_to(self.layout.has_slip, closed.shape)


@in_full_precision
def flow(t: Array, y: State, args: ContactDynamics) -> State:
    """(q', v', 0) of the state (q, v, mode), behind which more may stand that has no rate, for Diffrax."""
    return *args.rates(t, y[:3]), *jax.tree.map(jnp.zeros_like, y[2:])
