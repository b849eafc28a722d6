"""The motion in a mode: what a vector field, a projection and the search for events compute with."""

from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._formula._contact_newton import rows_of
from .._misc._precision import in_full_precision
from .._motion._model import Model
from ._modes import Margins, Mode, contact_forces, held_rows, inverse, margins, slip_directions, still
from ._rows import Coefficients, Contact, Layout, contact_at
from ._settle import Settled, settled

State = tuple[Array, Array, Mode]


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

    def at(self, t: Array, q: Array, v: Array) -> Contact:
        """The contacts at a state."""
        return contact_at(self.model, t, q, v)

    def margins(self, t: Array, y: State) -> Margins:
        """The margins of the mode of a state."""
        q, v, mode = y
        return margins(self.layout, self.coefficients, t, q, self.at(t, q, v), mode)

    def settled(self, t: Array, y: State) -> Settled:
        """What happens at an instant."""
        q, v, _ = y
        return settled(self.layout, self.coefficients, t, q, v, lambda v: self.at(t, q, v))

    def forces(self, t: Array, y: State) -> tuple[Contact, Array]:
        """The contacts, and the forces on their rows."""
        q, v, mode = y
        contact = self.at(t, q, v)
        return contact, contact_forces(self.layout, self.coefficients, contact, mode)

    @in_full_precision
    def held(self, t: Array, y: State) -> State:
        """The state on the bilateral rows and on those its mode holds; the direction of slip brought up to date."""
        q, v, mode = y
        layout = self.layout
        rows = rows_of(layout.contacts, v.dtype)
        q, v = self.model.project(t, (q, v))
        q = self._on_gaps(t, q, v, mode)
        q, v = self.model.project(t, (q, v))
        contact, on = self.at(t, q, v), held_rows(layout, mode)
        v = v + contact.response @ (inverse(on[:, None] * contact.G * on[None]) @ (-on * contact.u))
        unit = slip_directions(rows, mode, contact.u)
        forward = (rows.tangent @ (unit * contact.u)) > still(v.dtype)
        direction = jnp.where((forward.astype(v.dtype) @ rows.tangent) > 0, unit, mode.direction)
        return q, v, mode._replace(direction=jax.lax.stop_gradient(direction))

    def _on_gaps(self, t: Array, q: Array, v: Array, mode: Mode) -> Array:
        """Coordinates with the gaps of closed contacts closed."""
        rows, system = rows_of(self.layout.contacts, v.dtype), self.model.system
        of_gaps = mode.closed @ rows.normal

        def closer(q: Array, _: None) -> tuple[Array, None]:
            contact = self.at(t, q, v)
            K = of_gaps[:, None] * contact.G * of_gaps[None]
            dv = contact.response @ (inverse(K) @ (-(contact.gap * mode.closed) @ rows.normal))
            return q + system.kinematics(t, q, dv) - system.kinematics(t, q, jnp.zeros_like(dv)), None

        return jax.lax.scan(closer, q, length=2)[0]  # what one leaves is of the order of its square

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
    q, v, mode = y
    contact, p = args.forces(t, y)
    a = contact.a + contact.response @ p
    return args.model.system.kinematics(t, q, v), a, jax.tree.map(jnp.zeros_like, mode)
