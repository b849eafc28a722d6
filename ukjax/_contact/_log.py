"""What happened in a run with contacts, event by event."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ._contact_dynamics import State
from ._modes import Mode
from ._settle import SettledContacts

LOGGED = 512
"""Events that are kept; later ones are only counted."""


class Happened(NamedTuple):
    """What happened at one instant, or (l, ...) at several.

    - `t`: when; of a contact that comes to rest by bouncing, when infinitely many bounces would have ended.
    - `impulse`: on the rows (m,).
    - `closed`, `stick`, `direction`: the mode that followed.
    - `speed`: the rate at which a margin ran out: near zero the event is grazing, and has no derivative.
    - `jumped`: 1 where there was an impact without collision.
    - `residual`: of the problem that was solved.
    - `reset`: which of the user's own events it was, -1 for none.
    - `moved`: how far the state after it was off the constraints.
    - `ambiguous`: 1 for contacts of which other impulses or forces obey the laws as well (n,).
    """

    t: Array
    impulse: Array
    closed: Array
    stick: Array
    direction: Array
    speed: Array
    jumped: Array
    residual: Array
    reset: Array
    moved: Array
    ambiguous: Array


class Log(NamedTuple):
    """Events in their order, as one array: a loop that carries it carries one thing.

    - `rows`: what a `Happened` holds, one after the other (l, k); infinite times of those that did not occur.
    - `number`: how many there were.
    """

    rows: Array
    number: Array


def empty_log(y: State) -> Log:
    """The log of a run without events, for states like `y`."""
    n, m, dtype = y[2].closed.size, y[2].direction.size, y[1].dtype
    rows = jnp.zeros((LOGGED, 6 + 3 * n + 2 * m), dtype)
    return Log(rows.at[:, 0].set(jnp.inf), jnp.zeros((), jnp.int32))


def events_of(log: Log, mode: Mode) -> Happened:
    """The events of a log, of a system with modes like `mode`."""
    n, m = mode.closed.size, mode.direction.size
    wide = {"impulse": m, "closed": n, "stick": n, "direction": m, "ambiguous": n}
    sizes = [wide.get(name, 1) for name in Happened._fields]
    parts = zip(Happened._fields, jnp.split(log.rows, np.cumsum(sizes)[:-1], axis=1), strict=True)
    return Happened(*(x if name in wide else x[:, 0] for name, x in parts))


def _row(t: Array, found: SettledContacts, speed: Array, reset: tuple[Array, Array]) -> Array:
    # of none the derivative of the largest is 0 / 0
    later = t + jnp.max(found.wait) if found.wait.size else t
    told = Happened(
        later,
        found.impulse,
        *found.mode,
        speed,
        found.jumped.astype(t.dtype),
        found.residual,
        reset[0].astype(t.dtype),
        reset[1],
        found.ambiguous,
    )
    return jnp.concatenate([jnp.atleast_1d(x) for x in told])


def append_event(log: Log, t: Array, found: SettledContacts, speed: Array, reset: tuple[Array, Array]) -> Log:
    """The log with one more event."""
    # Beyond the last place nothing is written.
    return Log(log.rows.at[log.number].set(_row(t, found, speed, reset), mode="drop"), log.number + 1)


def prepend_event(log: Log, t: Array, found: SettledContacts, told: Array) -> Log:
    """The log with what happened at the start before all else, if it is to be `told`."""
    first = _row(t, found, jnp.zeros_like(t), (jnp.asarray(-1), jnp.zeros_like(t)))
    shifted = jnp.concatenate([first[None], log.rows[:-1]])
    return Log(jnp.where(told, shifted, log.rows), log.number + told.astype(log.number.dtype))
