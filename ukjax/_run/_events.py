"""What stops a run before its end, or lets it go on from another state: functions of (t, q, v), where they cross zero."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal, final

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Var
from jaxtyping import Array, Float, Int

from .._misc._arguments import number_array, require_function
from .._misc._closures import hoist_tracers
from .._misc._errors import InputError
from .._misc._types import Coordinates, Time, Velocities, as_jax, is_traced, module_for
from .._misc._user_function import call_user_function
from ._event_location import Bracketing
from ._interned import intern_function

Direction = Literal["up", "down", 1, -1] | None
DIRECTIONS = {None: None, "up": True, 1: True, "down": False, -1: False}
"""As Diffrax has them."""

State = tuple[Array, Array]

_ROUNDING = 1e3
"""In units of the precision: to how much an event is zero, and the width at which it is located."""


@final
class Event(eqx.Module):
    """Stops a run where a function of the state crosses zero, or lets it go on from another state.

    **Arguments:**

    - `fn`: a real function fn(t, q, v), such as a height: smooth where it crosses zero, not a truth value.
    - `direction`: `"up"` or 1 for crossings from below only, `"down"` or -1 for those from above only; by default both.
    - `reset`: the state reset(t, q, v) -> (q, v) from which the run goes on; without it the run stops. The new state must
      obey the constraints. `Trajectory.contacts` has the times of such events. Derivatives go through time and reset.
    - `name`: what `Trajectory.event_name` and errors call it; by default the function's own name.

    **Raises:** `InputError` if `fn` or `reset` is not a function, or for another direction.
    """

    fn: Callable[[Time, Coordinates, Velocities], Float[Array, ""]]
    reset: Callable[[Time, Coordinates, Velocities], tuple[Array, Array]] | None
    direction: Direction = eqx.field(static=True)
    name: str | None = eqx.field(static=True)

    def __init__(
        self,
        fn: Callable[[Time, Coordinates, Velocities], Float[Array, ""]],
        direction: Direction = None,
        reset: Callable[[Time, Coordinates, Velocities], tuple[Array, Array]] | None = None,
        *,
        name: str | None = None,
    ):
        require_function("event", fn, "t, q, v")
        if reset is not None:
            require_function("the reset of an event", reset, "t, q, v")
        if (
            not isinstance(direction, str | int | None)
            or isinstance(direction, bool)
            or direction not in DIRECTIONS
        ):
            raise InputError(
                f"the direction of an event must be 'up' (or 1), 'down' (or -1), or None for both, got {direction!r}."
            )
        if not (name is None or isinstance(name, str)):
            raise InputError(f"the name of an event must be a string, got {name!r}.")
        self.fn, self.reset, self.direction, self.name = fn, reset, direction, name


Events = Callable | Event | dfx.Event | Sequence[Callable | Event]
"""What `simulate` takes for `event`."""


@final
class Condition(eqx.Module):
    """An event's function as Diffrax calls it.

    - `fn`: the user's.
    - `name`: what errors call it.
    - `of_diffrax`: whether `fn` is called as Diffrax calls it, or with (t, q, v).
    - `start`: the start of the run and the value that counts there, where they are known (see `departing`).
    """

    fn: Callable
    name: str = eqx.field(static=True)
    of_diffrax: bool = eqx.field(static=True)
    start: tuple[Array, Array] | None = None

    def __call__(self, t: Array, y: tuple[Array, Array], args: Any, **more: Any) -> Array:
        def value(t: Array, y: tuple[Array, Array]) -> Array:
            state = (t, y, args) if self.of_diffrax else (t, *y)
            result = call_user_function(
                describe_event(self.name), self.fn, *state, **(more if self.of_diffrax else {})
            )
            return self._checked(number_array(f"what {describe_event(self.name)} returns", result))

        self._require_change(value, t, y)
        if self.start is None:
            return value(t, y)
        t0, at_start = self.start
        return jnp.where(t == t0, at_start, value(t, y))

    def _checked(self, result: Array) -> Array:
        if result.ndim:
            raise InputError(
                f"{describe_event(self.name)} returned shape {result.shape}; it must be a scalar."
            )
        if result.dtype == bool:
            raise InputError(
                f"{describe_event(self.name)} returned a truth value: return the number that crosses zero, such as "
                "q[0] instead of q[0] < 0, with direction='down' if needed."
            )
        if not jnp.issubdtype(result.dtype, jnp.floating):
            raise InputError(f"{describe_event(self.name)} must return a real number, got {result.dtype}.")
        return result

    def _require_change(self, value: Callable, t: Array, y: tuple[Array, Array]) -> None:
        """Raises `InputError` for what jumps or stays: its derivative is known to be zero everywhere."""
        slope = lambda state, change: jax.jvp(value, state, change)[1]
        jaxpr = jax.make_jaxpr(slope)((t, y), (t, y)).jaxpr
        changed = set(jaxpr.invars[len(jaxpr.invars) // 2 :])
        varies = lambda x: isinstance(x, Var) and x in changed
        for equation in jaxpr.eqns:
            if any(map(varies, equation.invars)):
                changed.update(equation.outvars)
        if not varies(jaxpr.outvars[0]):
            raise InputError(
                f"{describe_event(self.name)} is a constant, or a step: its derivative is zero everywhere. Return the "
                "number that crosses zero itself, such as q[0] in place of jnp.sign(q[0])."
            )


def describe_event(name: str) -> str:
    """What errors call an event."""
    return "the event" if name == "event" else f"the event {name}"


def name_of(fn: Callable, i: int, count: int) -> str:
    """The name of an event's function, or its number `i` of `count`."""
    name = getattr(fn, "__name__", "<lambda>")
    return name if name != "<lambda>" else f"event {i}" if count > 1 else "event"


def as_diffrax(given: Events | None, state: tuple[Array, Array, Array]) -> dfx.Event | None:
    """A Diffrax event that locates where functions of (t, q, v) cross zero.

    **Raises:** `InputError` for anything else.
    """
    if given is None:
        return None
    if isinstance(given, dfx.Event):
        places, structure = jax.tree_util.tree_flatten_with_path(given.cond_fn, is_leaf=callable)
        names = [jax.tree_util.keystr(path, simple=True) or name_of(fn, 0, 1) for path, fn in places]
        conditions = [Condition(fn, name, True) for name, (_, fn) in zip(names, places, strict=True)]
        return dfx.Event(jax.tree.unflatten(structure, conditions), given.root_finder, given.direction)
    several: list[Any] = list(given) if isinstance(given, list | tuple) else [given]
    if not several:
        raise InputError("event is an empty list; give None, a function, or a list of at least one.")
    for x in several:
        if isinstance(x, dfx.Event):
            raise InputError("a diffrax.Event stands alone: give a list of functions and of ukjax.Event.")
        if not isinstance(x, Event):
            require_function("event, if it is no ukjax.Event and no diffrax.Event,", x, "t, q, v")
    events = [x if isinstance(x, Event) else Event(x) for x in several]
    names = [x.name or name_of(x.fn, i, len(events)) for i, x in enumerate(events)]
    functions = [intern_event_function(x.fn, name, state) for x, name in zip(events, names, strict=True)]
    conditions = [Condition(fn, name, False) for fn, name in zip(functions, names, strict=True)]
    width = _ROUNDING * float(jnp.finfo(state[1].dtype).eps)
    directions = [DIRECTIONS[x.direction] for x in events]
    return dfx.Event(conditions, Bracketing(width, width), directions)


def intern_event_function(fn: Callable, name: str, state: tuple[Array, Array, Array]) -> Callable:
    """The function of an event, one object for all that compute the same."""
    fn = hoist_tracers(fn)
    return fn if is_traced(fn) else call_user_function(describe_event(name), intern_function, fn, *state)


def departing(
    event: dfx.Event | None, kinematics: Callable[..., Array], t: Array, y: State, rate: State
) -> dfx.Event | None:
    """Events that do not occur at the start of a run where they are zero there.

    Such an event gets the sign it has just after the start: that of its first derivative along the motion, or of the
    second where the first is zero. So it occurs when it crosses zero next. SciPy's `solve_ivp` would stop at the start,
    and so do Diffrax's own events, which are left as they are.
    """
    if event is None or not isinstance(event.root_finder, Bracketing):
        return event
    _, bend = jax.jvp(kinematics, (t, *y), (jnp.ones_like(t), *rate))
    conditions = [
        dataclasses.replace(x, start=(t, _value_at_start(x, t, y, rate, bend))) for x in event.cond_fn
    ]
    return dataclasses.replace(event, cond_fn=conditions)


def _value_at_start(condition: Condition, t: Array, y: State, rate: State, bend: Array) -> Array:
    """The value of an event; where it is zero to rounding, a number of the sign just after. `bend` is q''."""
    (q, v), (u, a) = y, rate
    eps = jnp.finfo(q.dtype).eps
    along = lambda s: condition(t + s, (q + s * u + s * s / 2 * bend, v + s * a), None)
    slope = lambda s: jax.jvp(along, (s,), (jnp.ones_like(s),))
    (value, first), (_, second) = jax.jvp(slope, (jnp.zeros_like(t),), (jnp.ones_like(t),))
    # What the function is made of, were it linear: zero to rounding is measured by it.
    by_t, by_y = jax.jacfwd(lambda t, y: condition(t, y, None), argnums=(0, 1))(t, y)
    parts = zip((t, q, v), (by_t, *by_y), strict=True)
    size = sum(jnp.linalg.norm(jnp.atleast_1d(x)) * jnp.linalg.norm(jnp.atleast_1d(d)) for x, d in parts)
    # A first derivative that is only rounding must not decide against the second.
    after = first + jnp.sqrt(eps) * second
    return jax.lax.stop_gradient(jnp.where(jnp.abs(value) <= _ROUNDING * eps * size, after, value))


def event_names(event: dfx.Event | None) -> tuple[str, ...]:
    """The names of the events, in the order of their indices."""
    return () if event is None else tuple(x.name for x in jax.tree.leaves(event.cond_fn, is_leaf=callable))


def which(event_mask: Any) -> Int[Array, ""]:
    """The index of the event that ended a run, -1 where none did."""
    mask = jax.tree.leaves(event_mask)
    if not mask:
        return np.asarray(-1)  # pyright: ignore[reportReturnType]
    xp = module_for(mask)
    mask = xp.stack(mask)
    return as_jax(xp.where(xp.any(mask), xp.argmax(mask), -1))
