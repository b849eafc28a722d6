"""The motion in a mode: what a vector field, a projection and the search for events compute with."""

from collections.abc import Callable
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._formula._contact_newton import rows_of
from .._misc._precision import in_full_precision
from .._motion._model import Model
from ._modes import Margins, Mode, contact_forces, margins, slip_directions, still, stopped
from ._parts import Means, computed
from ._rows import Coefficients, Contact, Layout, contact_at
from ._settle import Settled, settled

State = tuple[Array, Array, Mode]


def _contact(means: Means, t: Array, q: Array, v: Array) -> Contact:
    return contact_at(means.model, t, q, v)


def _margins(means: Means, t: Array, q: Array, v: Array, *mode: Array) -> Margins:
    return margins(means, t, q, _contact(means, t, q, v), Mode(*mode))


def _forces(means: Means, t: Array, q: Array, v: Array, *mode: Array) -> tuple[Contact, Array]:
    contact = _contact(means, t, q, v)
    return contact, contact_forces(means, contact, Mode(*mode))


def _rates(means: Means, t: Array, q: Array, v: Array, *mode: Array) -> tuple[Array, Array]:
    """(q', v') in a mode."""
    contact, p = _forces(means, t, q, v, *mode)
    return means.model.system.kinematics(t, q, v), contact.a + contact.response @ p


def _closed(means: Means, t: Array, q: Array, v: Array, *mode: Array) -> Array:
    """Coordinates with the gaps of closed contacts closed, but for the square of what they were."""
    contact, system, now = _contact(means, t, q, v), means.model.system, Mode(*mode)
    gap = (contact.gap * now.closed) @ rows_of(means.layout.contacts, v.dtype).normal
    gaps_only = now._replace(stick=jnp.zeros_like(now.stick))
    dv = contact.response @ stopped(means, contact, gaps_only, gap)
    return q + system.kinematics(t, q, dv) - system.kinematics(t, q, jnp.zeros_like(dv))


def _kept(means: Means, t: Array, q: Array, v: Array, *mode: Array) -> tuple[Array, Array]:
    """Velocities on the rows that the mode holds, and the direction of slip brought up to date."""
    contact, now, rows = _contact(means, t, q, v), Mode(*mode), rows_of(means.layout.contacts, v.dtype)
    v = v + contact.response @ stopped(means, contact, now, contact.u)
    unit = slip_directions(rows, now, contact.u)
    forward = (rows.tangent @ (unit * contact.u)) > still(v.dtype)
    return v, jnp.where((forward.astype(v.dtype) @ rows.tangent) > 0, unit, now.direction)


@final
class Touching(eqx.Module):
    """What the flow and the solver compute with.

    - `model`: of the `Pushed` system.
    - `coefficients`: of the contacts.
    - `layout`: of their rows.
    """

    model: Model
    coefficients: Coefficients
    layout: Layout = eqx.field(static=True)

    def _computed(self, part: Callable[..., Any], t: Array, q: Array, v: Array, *mode: Array) -> Any:
        return computed(part, self.model, self.coefficients, self.layout, t, q, v, *mode)

    def at(self, t: Array, q: Array, v: Array) -> Contact:
        """The contacts at a state."""
        return self._computed(_contact, t, q, v)

    def margins(self, t: Array, y: State) -> Margins:
        """The margins of the mode of a state."""
        q, v, mode = y
        return self._computed(_margins, t, q, v, *mode)

    def rates(self, t: Array, y: State) -> tuple[Array, Array]:
        """(q', v') in the mode of a state."""
        q, v, mode = y
        return self._computed(_rates, t, q, v, *mode)

    def settled(self, t: Array, y: State) -> Settled:
        """What happens at an instant."""
        q, v, _ = y
        return settled(self._computed, self.layout, t, q, v)

    def forces(self, t: Array, y: State) -> tuple[Contact, Array]:
        """The contacts, and the forces on their rows."""
        q, v, mode = y
        return self._computed(_forces, t, q, v, *mode)

    @in_full_precision
    def held(self, t: Array, y: State) -> State:
        """The state on the bilateral rows and on those its mode holds; the direction of slip brought up to date."""
        q, v, mode = y
        q, v = self.model.project(t, (q, v))
        for _ in range(2):  # what one leaves is of the order of its square
            q = self._computed(_closed, t, q, v, *mode)
        q, v = self.model.project(t, (q, v))
        v, direction = self._computed(_kept, t, q, v, *mode)
        return q, v, mode._replace(direction=jax.lax.stop_gradient(direction))

    def begun(self, t: Array, q: Array, v: Array) -> tuple[State, Settled]:
        """The state to start from, and what happens there: contacts that touch are struck, and the mode is found."""
        n, m = len(self.layout.contacts), len(self.layout.owner)
        zero = Mode(*(jnp.zeros(k, v.dtype) for k in (n, n, m)))
        found = self.settled(t, (q, v, zero))
        return self.held(t, (q, found.v, found.mode)), found

    def sliding(self, closed: Array, stick: Array) -> Array:
        """Which contacts slide (..., n), of what a mode says of them."""
        return (closed > 0) & (stick == 0) & jnp.broadcast_to(self.layout.has_slip, closed.shape)


@in_full_precision
def flow(t: Array, y: State, args: Touching) -> State:
    """(q', v', 0) of the state (q, v, mode), for Diffrax."""
    return *args.rates(t, y), jax.tree.map(jnp.zeros_like, y[2])
