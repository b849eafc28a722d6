"""Events after which a run goes on: what users give, as crossings from above and the states that follow."""

import warnings
from collections.abc import Callable
from typing import Any, final

import equinox as eqx
import numpy as np
from jaxtyping import Array

from .._contact._resets import Reset
from .._misc._arguments import number_array
from .._misc._errors import InputError, StartMovedWarning
from .._misc._user_function import call_user_function
from ._events import (
    DIRECTIONS,
    Condition,
    Event,
    Events,
    State,
    describe_event,
    intern_event_function,
    name_of,
)


def _has_reset(x: Any) -> bool:
    return isinstance(x, Event) and x.reset is not None


def has_resets(given: Events | None) -> bool:
    """Whether a run goes on after some of its events."""
    return any(map(_has_reset, given)) if isinstance(given, list | tuple) else _has_reset(given)


def split_events(
    given: Events | None, state: tuple[Array, Array, Array]
) -> tuple[Events | None, tuple[Reset, ...]]:
    """The events that stop a run, and the crossings after which it goes on: two for an event of both directions."""
    if not has_resets(given):
        return given, ()
    several: list[Any] = list(given) if isinstance(given, list | tuple) else [given]  # pyright: ignore
    stops = [x for x in several if not _has_reset(x)]
    resets = []
    for i, x in enumerate(several):
        if _has_reset(x):
            name = x.name or name_of(x.fn, i, len(several))
            value = Condition(intern_event_function(x.fn, name, state), name, False)
            reset = _Followed(intern_event_function(x.reset, name, state), name)
            below = Reset(_Signed(value, 1.0), reset, name)
            above = Reset(_Signed(value, -1.0), reset, name)
            chosen = {None: (below, above), True: (above,), False: (below,)}
            resets += chosen[DIRECTIONS[x.direction]]
    return stops or None, tuple(resets)


_NEGLIGIBLE = (
    1e-6  # of the state: far above what integration leaves of the constraints, and what projection takes away
)


def warn_of_resets(resets: tuple[Reset, ...], events: dict[str, Array], q: Array, v: Array) -> None:
    """Warns where the state after a reset was off the constraints; for a run that has values."""
    moved = np.asarray(events["reset_moved"])
    most = _NEGLIGIBLE * (1 + max(np.max(np.abs(np.asarray(x)), initial=0) for x in (q, v)))
    off = np.flatnonzero(moved > most)
    if off.size:
        first = off[0]
        name, t = resets[int(events["reset"][first])].name, float(events["event_time"][first])
        more = f" (and {off.size - 1} more)" if off.size > 1 else ""
        warnings.warn(
            f"the state after {describe_event(name)} at {t:.6g} s{more} "
            f"is off the constraints. Projecting it changes it by up to {moved.max():.3g}. The run goes on from there; "
            "contacts.reset_moved has all. Return a state that is on the constraints.",
            StartMovedWarning,
            stacklevel=4,
        )


@final
class _Signed(eqx.Module):
    """A condition of (t, q, v), or its negative."""

    condition: Condition
    sign: float = eqx.field(static=True)

    def __call__(self, t: Array, q: Array, v: Array) -> Array:
        return self.sign * self.condition(t, (q, v), None)


@final
class _Followed(eqx.Module):
    """The state after an event, of the shape and type of states."""

    reset: Callable
    name: str = eqx.field(static=True)

    def __call__(self, t: Array, q: Array, v: Array) -> State:
        what = f"the reset of {describe_event(self.name)}"
        found = call_user_function(what, self.reset, t, q, v)
        if not (isinstance(found, tuple) and len(found) == 2):
            raise InputError(f"{what} must return the pair (q, v), got {type(found).__name__}.")
        pair = tuple(number_array(f"what {what} returns", x) for x in found)
        shapes = [x.shape for x in pair]
        if shapes != [q.shape, v.shape]:
            raise InputError(
                f"{what} returned shapes {shapes}; they must be those of q and v, {q.shape} and {v.shape}."
            )
        return pair[0].astype(q.dtype), pair[1].astype(v.dtype)
