"""What happened in a run with contacts, event by event."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ._settle import SettledContacts
from ._touching import State

LOGGED = 512
"""Events that are kept; later ones are only counted."""


class Log(NamedTuple):
    """Events in their order (l,), those that did not occur at infinite times.

    - `t`: times; of a contact that comes to rest by bouncing, when infinitely many bounces would have ended.
    - `impulse`: on the rows (l, m).
    - `closed`, `stick`, `direction`: the modes that followed.
    - `speed`: the rate at which a margin ran out: near zero the event is grazing, and has no derivative.
    - `jumped`: 1 where there was an impact without collision.
    - `residual`: of the problem that was solved.
    - `reset`: which of the user's own events it was, -1 for none.
    - `moved`: how far the state after it was off the constraints.
    - `ambiguous`: 1 for contacts of which other impulses or forces obey the laws as well (l, n).
    - `number`: how many there were.
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
    number: Array


def empty_log(y: State) -> Log:
    """The log of a run without events, for states like `y`."""
    mode, dtype = y[2], y[1].dtype
    n, m = mode.closed.size, mode.direction.size
    zeros = lambda *shape: jnp.zeros((LOGGED, *shape), dtype)
    never = jnp.full(LOGGED, jnp.inf, dtype)
    return Log(
        never,
        zeros(m),
        zeros(n),
        zeros(n),
        zeros(m),
        zeros(),
        zeros(),
        zeros(),
        zeros(),
        zeros(),
        zeros(n),
        jnp.zeros((), jnp.int32),
    )


def logged(log: Log, t: Array, found: SettledContacts, speed: Array, reset: tuple[Array, Array]) -> Log:
    """The log with one more event.

    **Arguments:**

    - `log`: so far.
    - `t`: when.
    - `found`: what happened.
    - `speed`: the rate at which a margin ran out.
    - `reset`: which of the user's own events it was, -1 for none; and how far the state after it was off.
    """
    # of none the derivative of the largest is 0 / 0
    later = t + jnp.max(found.wait) if found.wait.size else t
    new = (
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
    # Beyond the last place nothing is written.
    kept = [x.at[log.number].set(value, mode="drop") for x, value in zip(log[:-1], new, strict=True)]
    return Log(*kept, number=log.number + 1)


def preceded(log: Log, t: Array, found: SettledContacts, told: Array) -> Log:
    """The log with what happened at the start before all else, if it is to be `told`.

    **Arguments:**

    - `log`: of the run.
    - `t`: its start.
    - `found`: what happened there.
    - `told`: whether the velocities changed, or there is a doubt.
    """
    first = logged(
        jax.tree.map(jnp.zeros_like, log), t, found, jnp.zeros_like(t), (jnp.asarray(-1), jnp.zeros_like(t))
    )
    shifted = [jnp.concatenate([x[:1], y[:-1]]) for x, y in zip(first[:-1], log[:-1], strict=True)]
    kept = [jnp.where(told, x, y) for x, y in zip(shifted, log[:-1], strict=True)]
    return Log(*kept, number=log.number + told.astype(log.number.dtype))
