"""Where a run ended. It stands beside the saved times, of which there are as many as were asked for, reached or not."""

import dataclasses
from typing import TYPE_CHECKING, Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._contact._history import AT_TIMES
from .._misc._errors import InputError
from .._misc._types import is_traced, module_for

if TYPE_CHECKING:
    from ._trajectory import Trajectory


@final
class End(eqx.Module):
    """The state in which a run ended, at t1, at an event or where it failed, and what holds there.

    - `t`, `q`, `v`, `a`, `constraint_force`, `multipliers`, `position_error`, `velocity_error`, `energy`, `rank`: as of a
      `Trajectory`, without the axis of times.
    - `contacts`: `gap`, `force`, `closed`, `sliding` and `ambiguous` as of a `ContactHistory`; None without contacts.
    - `tracking`: of a run read from a file, the arrays of `servo` by name.
    """

    t: Float[Array, ""]
    q: Float[Array, " nq"]
    v: Float[Array, " n"]
    a: Float[Array, " n"]
    constraint_force: Float[Array, " n"]
    multipliers: Float[Array, " m"]
    position_error: Float[Array, " m"]
    velocity_error: Float[Array, " m"]
    energy: Float[Array, ""] | None
    rank: Int[Array, ""]
    contacts: dict[str, Array] | None = None
    tracking: dict[str, Array] | None = None


_OF_RUN = tuple(x.name for x in dataclasses.fields(End))[:10]


def _nothing(name: str, dtype: Any) -> Any:
    """What stands at times that were not reached."""
    if name == "t":
        return np.inf
    return np.nan if dtype.kind == "f" else False if dtype.kind == "b" else -1


def fill_unreached(t: Array | np.ndarray, y: Any) -> tuple[Array, Any]:
    """Times and states, last the end, with that in place of those that were not reached: what `split` puts nothing for.

    At infinite states derivatives are NaN, also times the zero that nobody asks for.
    """
    reached = jnp.isfinite(t)
    known = lambda x: jnp.where(reached.reshape(-1, *[1] * (x.ndim - 1)), x, x[-1])
    return jax.tree.map(known, (t, y))


def split(columns: dict[str, Any], count: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arrays at the saved times, and at the end."""
    tracing, t = is_traced(columns), columns["t"]

    def saved(name: str, x: Any) -> Any:
        nothing = np.asarray(_nothing(name, x.dtype), x.dtype)
        if tracing:
            along = lambda which: which.reshape(-1, *[1] * (x.ndim - 1))
            # A time saved that is the end has its state, which differs from the interpolated one by rounding.
            of_end = jnp.where(along(t[:-1] == t[-1]), x[-1], x[:-1])
            return jnp.where(along(jnp.isfinite(t[:-1])), of_end, nothing)
        x = np.asarray(x)
        places = np.where(np.asarray(t)[:-1] == np.asarray(t)[-1], len(x) - 1, np.arange(len(x) - 1))
        return np.concatenate([x[places], np.full((count + 1 - len(x), *x.shape[1:]), nothing)])

    known = {name: x for name, x in columns.items() if x is not None}
    without = {name: None for name, x in columns.items() if x is None}
    of_times = {name: saved(name, x) for name, x in known.items()}
    of_end = {name: x[-1] if tracing else np.asarray(x[-1]) for name, x in known.items()}
    # `device_put` compiles nothing, as `jnp.asarray` does; it takes longer than all else, so the end stays with NumPy.
    return (of_times if tracing else jax.device_put(of_times)) | without, of_end | without


def end_of(columns: dict[str, Any]) -> End:
    """The end of a run."""
    of_contacts = {name: columns[name] for name in AT_TIMES if name in columns}
    return End(**{name: columns[name] for name in _OF_RUN}, contacts=of_contacts or None)


def last_of(run: "Trajectory") -> End:
    """The end of a run; of one that was put together by hand without it, its last saved time."""
    return (
        end_of({name: x if (x := getattr(run, name)) is None else x[-1] for name in _OF_RUN})
        if run.end is None
        else run.end
    )


def require_one(run: "Trajectory") -> None:
    """Raises `InputError` for the runs of a batch, of which each has figures of its own."""
    if getattr(run.t, "ndim", 1) != 1:
        raise InputError(
            f"this trajectory is a batch of {run.t.shape[:-1]} runs, as jax.vmap returns them: take one of them by "
            "jax.tree.map(lambda x: x[i], trajectory)."
        )


def append_end(run: "Trajectory", *names: str) -> list[Any]:
    """Arrays of a run with what holds at its end behind what holds at the saved times."""
    require_one(run)
    return [_append_last(getattr(run, name), getattr(last_of(run), name)) for name in names]


def _append_last(x: Any, last: Any) -> Any:
    if x is None:
        return None
    xp = module_for(x, last)
    return xp.concatenate([xp.asarray(x), xp.asarray(last)[None]])


def with_end(run: "Trajectory") -> "Trajectory":
    """The run with its end as one more saved time, the last."""
    changes: dict[str, Any] = dict(zip(_OF_RUN, append_end(run, *_OF_RUN), strict=True))
    for name in ("contacts", "tracking"):
        of, last = getattr(run, name), getattr(last_of(run), name)
        if of is not None and last is not None:
            of_end = {field: _append_last(getattr(of, field), x) for field, x in last.items()}
            changes[name] = dataclasses.replace(of, **of_end)
    return dataclasses.replace(run, **changes)


def trim_to_end(run: "Trajectory") -> "Trajectory":
    """What a run that has values reached: its saved times up to the end, and last the end, each once."""
    require_one(run)
    t = np.append(np.asarray(run.t), np.asarray(last_of(run).t))
    places = np.flatnonzero(np.isfinite(t) & np.append(t[:-1] != t[-1], True))
    whole = with_end(run)
    taken = lambda x: None if x is None else jax.device_put(np.asarray(x)[places])
    changes: dict[str, Any] = {name: taken(getattr(whole, name)) for name in _OF_RUN}
    for name in ("contacts", "tracking"):
        of, last = getattr(whole, name), getattr(last_of(run), name)
        if of is not None and last is not None:
            changes[name] = dataclasses.replace(of, **{field: taken(getattr(of, field)) for field in last})
    return dataclasses.replace(whole, **changes)
