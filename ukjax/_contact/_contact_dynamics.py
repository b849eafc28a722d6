"""The motion in a mode: what a vector field, a projection and the search for events compute with."""

from collections.abc import Callable
from typing import Any, NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._formula._contact_newton import rows_of
from .._misc._types import in_full_precision
from .._motion._model import Model
from .._motion._solvers import end_of_step
from ._modes import (
    Approach,
    Margins,
    Mode,
    approach,
    compute_stopping_impulses,
    contact_forces,
    margins,
    open_mode,
    slip_directions,
    spread_to_tangents,
    still,
)
from ._parts import ContactContext, evaluate_contact_part, evaluate_model_part
from ._resets import Reset, apply_reset, leaving, values
from ._rows import Coefficients, ContactLayout, ContactState, Kinematics, PushedSystem, contact_at, kinematics
from ._settle import SettledContacts, settle_contacts
from ._uniqueness import ambiguous

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
    return margins(means, contact, mode, t, q), approach(means, contact, mode)


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
        return self._with_own(self._of(margins, self.at(t, q, v), mode, t, q), t, y)

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
        """Of the margins, which are events of the user's own, and which of these are about to become negative."""
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
        whether the bilateral rows are still off: no state near this one obeys them."""
        q, v, mode = y
        q, v = self.model.project(t, (q, v))
        for _ in range(2):  # what one leaves is of the order of its square
            q = q + self._of(_closer, self.at(t, q, v), mode)
        off = jnp.zeros((), bool)
        if self.model.stabilizer.projection_method is not None:
            (q, v), _, near = end_of_step(self.model, t, (q, v), None)
            off = near == jnp.inf
        change, direction = self._of(_correct_velocities, self.at(t, q, v), mode)
        return (q, v + change, mode._replace(direction=jax.lax.stop_gradient(direction))), off

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
    """(q', v', 0) of the state (q, v, mode), for Diffrax."""
    return *args.rates(t, y), jax.tree.map(jnp.zeros_like, y[2])
