"""What an FMU computes of contacts, limits and dry friction: by the programs that follow a run from event to event.

The mode (which contacts bear, which stick, and the directions of slip) is one array beside the state. Where a margin of
the mode runs out, it is settled anew, with the impacts of that instant.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._contact._contact_dynamics import ContactDynamics
from .._contact._contact_dynamics import State as ContactState
from .._contact._hybrid import begin_steps, step_within_mode
from .._contact._modes import Margins, Mode, held_rows
from .._contact._rows import ContactLayout, contact_model, layout_of, require_rigid
from .._contact._watch import tell_spent
from .._motion._project import Projection
from .._run import _options
from .._run._contact_run import require_followed
from .._run._interning import intern_system
from .._system._problem import Problem
from .._system._stabilize import AbstractStabilizer
from ._c_functions import ModelState, Values, observe

# --- What there is


class ContactNames(NamedTuple):
    """Names of what an FMU has of contacts."""

    # `contacts`, `rows`: of contacts, and of rows: gap velocities and slips.
    contacts: tuple[str, ...]
    rows: tuple[str, ...]
    gapped: tuple[str, ...]  # of contacts that have gaps
    margins: tuple[str, ...]  # of event indicators
    # `gap_units`, `force_units`: of what is gapped and of rows; empty for forces of dry friction, which may
    # be torques.
    gap_units: tuple[str, ...]
    force_units: tuple[str, ...]

    @property
    def mode_size(self) -> int:
        """Entries of a mode."""
        return 2 * len(self.contacts) + len(self.rows)


def _find_watched(layout: ContactLayout) -> np.ndarray:
    """Which of the margins can run out: normal ones of what has a gap, friction and slip of what slides."""
    return np.flatnonzero(np.concatenate([layout.has_gap, layout.has_slip, layout.has_slip]))


def contact_names(problem: Problem) -> ContactNames:
    """What an FMU of a problem has of contacts."""
    require_followed(problem.system)
    layout, _ = layout_of(problem.system, jnp.asarray(problem.t0), problem.q0, problem.v0)
    require_rigid(layout)
    rows, of_gaps, of_forces = [], [], []
    for name, (gapped, tangents), turns in zip(layout.names, layout.contacts, layout.angles, strict=True):
        slips = [f"{name} slip"] if tangents == 1 else [f"{name} slip {i}" for i in range(tangents)]
        rows += [f"{name} normal"] * gapped + slips
        of_gaps += ["rad" if turns else "m"] * gapped
        of_forces += [("N m" if turns else "N") if gapped else ""] * (gapped + tangents)
    kinds = [f"{name} {kind}" for kind in ("normal", "friction", "slip") for name in layout.names]
    gapped = [name for name, has in zip(layout.names, layout.has_gap, strict=True) if has]
    margins = tuple(kinds[i] for i in _find_watched(layout))
    return ContactNames(layout.names, tuple(rows), tuple(gapped), margins, tuple(of_gaps), tuple(of_forces))


# --- What is computed


def _dynamics(given: ModelState, u: Array | None, stabilizer: AbstractStabilizer) -> ContactDynamics:
    state = given.t, given.q, given.v
    system = intern_system(given.how.driven(given.system, u), *state)
    layout, coefficients = layout_of(system, *state)
    formula = _options.formula(None, stabilizer, given.q.dtype)
    model, _ = contact_model(system, formula, stabilizer, given.how.solver, state, automatic=True)
    return ContactDynamics(model, coefficients, layout)


def _state(given: ModelState, mode: Array, of: ContactDynamics) -> ContactState:
    n = len(of.layout.contacts)
    return given.q, given.v, Mode(mode[:n], mode[n : 2 * n], mode[2 * n :])


def _join(y: ContactState) -> Values:
    return {"state": jnp.concatenate([y[0], y[1], *y[2]])}


def _left(margins: Margins) -> Array:
    """Event indicators: zero where a margin is, within rounding, and no longer than it is taken for zero."""
    return margins.value + 0.5 * margins.slack


def evaluate(given: ModelState, mode: Array, u: Array | None = None) -> Values:
    """q', v', the multipliers and forces of constraints, the energy, gaps and forces of contacts, by how much constraints
    and closed contacts are off, and the margins of the mode."""
    of = _dynamics(given, u, given.stabilizer)
    y, state = _state(given, mode, of), (given.t, given.q, given.v)
    contact, p = of.forces(given.t, y)
    push, margins = contact.J.T @ p, of.margins(given.t, y)
    observed = observe(given.without_contacts(), push + given.input_force(u))
    energy, errors = given.system.energy(*state), [observed["position_error"], observed["velocity_error"]]
    errors += [contact.gap * y[2].closed, contact.u * held_rows(of.layout, y[2])]
    parts = [
        *of.rates(given.t, y),
        observed["multipliers"],
        observed["constraint_force"] + push,
        *([] if energy is None else [energy[None]]),
        *(x for _, x in given.own_outputs()),
        contact.gap[of.layout.has_gap],
        p * of.coefficients.scale,
        jnp.max(jnp.abs(jnp.concatenate(errors)))[None],
        _left(margins)[_find_watched(of.layout)],
    ]
    return {"y": jnp.concatenate(parts)}


def hold(given: ModelState, mode: Array) -> Values:
    """The nearest state on the constraints and on the contacts that bear."""
    of = _dynamics(given, None, Projection())
    return _join(of.held(given.t, _state(given, mode, of))[0])


def settle(given: ModelState, before: Array, u: Array | None = None) -> Values:
    """The state and the mode after what happens at this instant: impacts, and contacts that open, stick or slip."""
    of, t = _dynamics(given, u, Projection()), given.t
    q, v, mode = y = _state(given, before, of)

    def values(t: Array, q: Array, v: Array) -> tuple[Array, Margins]:
        found = of.margins(t, (q, v, mode))
        return found.value, found

    _, rate, margins = jax.jvp(values, (t, q, v), (jnp.ones_like(t), *of.rates(t, y)), has_aux=True)
    left = _left(margins)
    k = jnp.argmin(left)
    spent = tell_spent(t, margins, mode, jnp.where(left[k] <= 0, k, -1), rate[k])
    # What slid to an end is found just after it, where it would slide back.
    ended = jnp.where(left[2 * mode.closed.size :] <= 0, mode.closed, 0)
    q, v, _ = of.held(t, (q, v, mode._replace(stick=jnp.maximum(mode.stick, ended))))[0]
    q, after, _ = of.settled(t, (q, v, mode), spent)
    return _join(of.held(t, (q, after.v, after.mode))[0])


def step(given: ModelState, dt: Array, mode: Array, u: Array | None = None) -> Values:
    """The state after one step within the mode, and the mode with its directions of slip brought up to date."""
    of, end = _dynamics(given, u, Projection()), given.t + dt
    y = _state(given, mode, of)
    solver = given.how.solver
    inner = begin_steps(solver, of, given.t, end, y)
    return _join(of.held(end, step_within_mode(solver, inner, of, given.t, end, y).y)[0])
