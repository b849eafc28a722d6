"""The contacts of a plan: which are closed when, the rows of these, and what must hold of gaps and forces.

A contact that is closed has rows like other constraints: its gap stays zero, and it sticks if it has friction. Where
one closes, the motion meets it without rebound: velocities move onto the rows of all contacts that are closed then, in
the mass metric, which is their plastic impact. Gaps of the others must not be negative.
"""

from typing import Any, NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..._compiler import compile_small
from ..._contact._kinds import size_of_constraint
from ..._contact._rows import Coefficients, ContactLayout, kinematics, layout_of
from ..._misc._arguments import is_list, whole_number
from ..._misc._errors import InputError, format_value, require_known
from ..._system._constraint import AbstractConstraint, DryFriction, unilateral
from ..._system._system import AbstractForwardingSystem, AbstractSystem

# A force counts in parts of what gives the contact this acceleration [m/s^2].
_LARGE = 10.0
# The largest gap and speed of a contact that is closed at the start [m], [m/s].
_CLOSED = 1e-6


class Instant(NamedTuple):
    """A state's number, and 1 or 0 of the contacts that are ever closed (k,), or of all (n,)."""

    number: Array
    closed: Array  # over the step that follows (k,)
    after: Array  # over that one or the next (k,)
    lands: Array  # from this state on (k,)
    is_open: Array  # but where closed before this state and after it (n,)
    is_given: Array  # as the first is
    is_last: Array


@final
class HeldContacts(eqx.Module):
    """The contacts that are ever closed.

    - `places`: the number of each among all contacts.
    - `normals`: its normal row among all contact velocities.
    - `tangents`: the tangential rows of those that stick.
    - `owners`: to which of `places` each of these belongs, by its place there.
    - `friction`, `unit`: of each mu, and the force that counts as one (k,).
    - `names`: of all contacts.
    """

    friction: Array
    unit: Array
    places: tuple[int, ...] = eqx.field(static=True)
    normals: tuple[int, ...] = eqx.field(static=True)
    tangents: tuple[int, ...] = eqx.field(static=True)
    owners: tuple[int, ...] = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)

    def require_closed(self, system: AbstractSystem, t: Any, q: Any, v: Any, instants: Instant) -> None:
        """Raises `InputError` where contacts of the first phase are not closed at the start, or others penetrated."""
        gaps, u = map(np.asarray, _kinematics(system, t, q, v))
        closed, rows = np.asarray(instants.closed[0]) > 0, np.array(self.tangents, int)
        speeds = np.zeros(len(self.names))
        speeds[list(self.places)] = np.where(closed, np.abs(u[list(self.normals)]), 0.0)
        owners = np.array(self.places, int)[list(self.owners)]
        np.maximum.at(speeds, owners, np.where(closed[list(self.owners)], np.abs(u[rows]), 0.0))
        first = np.zeros(len(self.names), bool)
        first[list(self.places)] = closed
        for what, size in (
            ("contacts of the first phase are open", np.where(first, gaps, 0.0)),
            ("contacts of the first phase move", speeds),
            ("contacts are penetrated", -gaps),
        ):
            if found := [f"{self.names[i]} by {size[i]:.3g}" for i in np.flatnonzero(size > _CLOSED)]:
                raise InputError(f"{what} at the start: {', '.join(found)}.")

    def excess(self, forces: Array) -> Array:
        """By how much forces on rows, normal ones first, pull each contact, and rub it more than friction can (2 k,)."""
        k, owners = len(self.places), np.array(self.owners, int)
        normal, across = forces[:k] / self.unit, forces[k:] / self.unit[owners]
        square = jnp.zeros(k, forces.dtype).at[owners].add(across**2)
        small = jnp.finfo(forces.dtype).eps  # so that its slope is finite where nothing rubs
        return jnp.concatenate([-normal, jnp.sqrt(square + small**2) - small - self.friction * normal])


@final
class _Gaps(AbstractConstraint):
    """Gaps that are zero where `closed` is 1, and their rates where `stays` is."""

    held: "HeldSystem"
    name: str = eqx.field(static=True, default="gaps")

    def position_error(self, t: Any, q: Any) -> Array:
        held = self.held
        v = jnp.zeros(jax.eval_shape(held.mass_matrix, t, q).shape[0], q.dtype)
        return held.closed * kinematics(held.system, t, q, v).gap[jnp.array(held.contacts.places)]

    def velocity_error(self, t: Any, q: Any, v: Any) -> Array:
        held = self.held
        return held.stays * kinematics(held.system, t, q, v).u[jnp.array(held.contacts.normals)]


@final
class _Slips(AbstractConstraint):
    """Slips that are zero where `stays` is 1."""

    held: "HeldSystem"
    name: str = eqx.field(static=True, default="slips")

    def velocity_error(self, t: Any, q: Any, v: Any) -> Array:
        held, contacts = self.held, self.held.contacts
        u = kinematics(held.system, t, q, v).u[jnp.array(contacts.tangents)]
        return held.stays[jnp.array(contacts.owners)] * u


@final
class HeldSystem(AbstractForwardingSystem):
    """A system some of whose contacts are closed, as rows like others.

    - `closed`, `stays`: of each of `contacts` 1 or 0 (k,): whether its gap is zero, and whether it has no velocity.
    """

    system: AbstractSystem
    contacts: HeldContacts
    closed: Array
    stays: Array

    @property
    def constraints(self) -> tuple[AbstractConstraint, ...]:
        own = self.system.bilateral_constraints
        if not self.contacts.places:
            return own
        slips = (_Slips(held=self),) if self.contacts.tangents else ()
        return (*own, _Gaps(held=self), *slips)


# --- What is given


def read_phases(
    system: AbstractSystem, t: Any, q: Any, v: Any, phases: Any, steps: int | None
) -> tuple[HeldContacts | None, np.ndarray]:
    """The contacts, None where there are none, and which are closed over each step (steps, n).

    **Raises:** `InputError` for contacts that are soft or dry friction, for such that are closed and bounce, for unknown
    names, and for steps that differ.
    """
    if phases is not None and (not is_list(phases) or not len(phases := list(phases))):
        raise InputError(
            f"phases must be pairs of steps and closed contacts, such as [(30, ['foot']), (20, [])], got "
            f"{format_value(phases)}."
        )
    if not unilateral(system.constraints):
        if phases is not None:
            raise InputError("phases are of contacts, and the system has none.")
        return None, np.zeros((100 if steps is None else steps, 0))
    if rubs := [c.name for c in unilateral(system.constraints) if isinstance(c, DryFriction)]:
        raise InputError(
            f"plan does not know dry friction, and the system has {', '.join(rubs)}: leave it out, or give a damping."
        )
    start = t, q, v
    layout, coefficients = layout_of(system, *start)
    if layout.soft:
        raise InputError("plan does not know soft contacts: give rigid ones, without stiffness.")
    closed = _read_closed(
        phases, _names(system, layout, start), len(layout.names), 100 if steps is None else steps
    )
    if phases is not None and steps is not None and len(closed) != steps:
        raise InputError(f"phases take {len(closed)} steps together, and steps is {steps}.")
    return _make_contacts(system, start, layout, coefficients, closed), closed


def _names(system: AbstractSystem, layout: ContactLayout, start: tuple[Any, Any, Any]) -> dict[str, set[int]]:
    """The contacts that each name stands for: of one, of several that are numbered, and of a constraint."""
    found: dict[str, set[int]] = {}
    for i, name in enumerate(layout.names):
        found.setdefault(name, set()).add(i)
        found.setdefault(name.partition("[")[0], set()).add(i)
    first = 0
    for c in unilateral(system.constraints):
        count = size_of_constraint(c, *start)[0]
        found.setdefault(c.name, set()).update(range(first, first + count))
        first += count
    return found


def _read_closed(phases: Any, names: dict[str, set[int]], count: int, steps: int) -> np.ndarray:
    """Which contacts are closed over each step (steps, n)."""
    if phases is None:
        return np.zeros((steps, count))
    parts = []
    for phase in phases:
        if not isinstance(phase, tuple | list) or len(phase) != 2:
            raise InputError(f"a phase is a pair (steps, closed contacts), got {format_value(phase)}.")
        chosen = [phase[1]] if isinstance(phase[1], str) else phase[1]
        if not is_list(chosen):
            raise InputError(f"the closed contacts of a phase are names, got {format_value(chosen)}.")
        chosen = list(chosen)
        require_known("contact of a phase", names, *chosen)
        part = np.zeros((whole_number("the steps of a phase", phase[0]), count))
        part[:, sorted(set().union(*(names[x] for x in chosen)))] = 1.0
        parts.append(part)
    return np.concatenate(parts)


def _make_contacts(
    system: AbstractSystem, start: Any, layout: ContactLayout, coefficients: Coefficients, closed: np.ndarray
) -> HeldContacts:
    t, q, v = start
    places = [int(i) for i in np.flatnonzero(closed.any(axis=0))]
    friction = np.asarray(coefficients.friction)[places]
    rows = [np.flatnonzero(layout.owner == i) for i in places]
    if bounces := [layout.names[i] for i in places if coefficients.restitution[i] > 0]:
        raise InputError(f"plan does not know rebounds, and {', '.join(bounces)} has a restitution: give 0.")
    tangents = [(int(row), k) for k, x in enumerate(rows) if friction[k] > 0 for row in x[1:]]
    normals = [int(x[0]) for x in rows]
    J = np.asarray(_velocity_rows(system, t, q, v))[normals]
    M, size = np.asarray(system.mass_matrix(t, q)), np.sum(J * J, axis=1)
    unit = _LARGE * np.einsum("ki,ij,kj->k", J, M, J) / np.where(size > 0, size, 1) ** 2
    return HeldContacts(
        jnp.asarray(friction, q.dtype), jnp.asarray(np.where(unit > 0, unit, 1.0), q.dtype), tuple(places),
        tuple(normals), tuple(row for row, _ in tangents), tuple(k for _, k in tangents), layout.names,
    )  # fmt: skip


@compile_small
def _velocity_rows(system: AbstractSystem, t: Array, q: Array, v: Array) -> Array:
    return jax.jacfwd(lambda v: kinematics(system, t, q, v).u)(v)


@compile_small
def _kinematics(system: AbstractSystem, t: Array, q: Array, v: Array) -> tuple[Array, Array]:
    return tuple(kinematics(system, t, q, v))  # pyright: ignore[reportReturnType]


def read_instants(contacts: HeldContacts | None, closed: np.ndarray, dtype: Any) -> Instant:
    """Of all states, along the first axis, given which contacts are closed over each step (steps, n)."""
    closed = np.concatenate([closed, closed[-1:]])
    before, later = (np.concatenate(x) for x in ((closed[:1], closed[:-1]), (closed[1:], closed[-1:])))
    held = list(contacts.places) if contacts is not None else []
    number = np.arange(len(closed))
    found = (
        number, closed[:, held], np.maximum(closed, later)[:, held], (closed * (1 - before))[:, held],
        1 - closed * before, number == 0, number == number[-1],
    )  # fmt: skip
    return Instant(*(jnp.asarray(np.asarray(x, float), dtype) for x in found))
