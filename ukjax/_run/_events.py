"""What stops a run before its end, or lets it go on from another state: functions of (t, q, v), where they cross zero."""

import dataclasses
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, final

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
from jax.extend.core import Var
from jaxtyping import Array, Bool, Float, Int

from .._contact._hybrid import AbstractStops
from .._contact._resets import Reset
from .._contact._watch import time_rounding
from .._misc._arguments import call_user_function, number_array, require_function
from .._misc._closures import hoist_tracers
from .._misc._errors import InputError, StartMovedWarning
from .._misc._types import Coordinates, Time, Velocities, as_jax, is_traced, module_for
from ._interning import intern_function
from ._options import with_tolerances_of

# --- When an event occurred within the step that it ended: by halving that step


class _Bracket(NamedTuple):
    """The crossing lies between `lower` and the iterate, where the function has the `sign` it has after it; `known` is to
    how much rounding leaves times of the step known."""

    lower: Float[Array, ""]
    sign: Float[Array, ""]
    known: Float[Array, ""]


@final
class Bisection(optx.AbstractRootFinder):
    """Bisection on the interval Diffrax gives, whose end is returned exactly where the function is zero there.

    Newton's method may leave the step, or find a crossing the event is not about. Of Diffrax's functions, one for each
    event, all but that of the event that occurred are zero. The derivative is Optimistix's, of the implicit function.

    **Arguments:**

    - `rtol`, `atol`: Optimistix asks for them; halving goes on until rounding leaves nothing between.
    - `norm`: Optimistix asks for it; of no use to bisection.
    """

    rtol: float
    atol: float
    norm: Callable = eqx.field(static=True, default=optx.max_norm)

    def _sign(self, fn: Any, t: Array, args: Any) -> tuple[Array, Any]:
        values, aux = fn(t, args)
        return jnp.sign(sum(jax.tree.leaves(values))).astype(t.dtype), aux

    def init(
        self, fn: Any, y: Array, args: Any, options: dict[str, Any], f_struct: Any, aux_struct: Any, tags: Any
    ) -> _Bracket:
        lower = jnp.asarray(options["lower"], y.dtype)
        at_start = self._sign(fn, lower, args)[0] == 0
        # Of equal ends, the first iteration makes the start the result.
        sign = jnp.where(at_start, jnp.nan, self._sign(fn, y, args)[0])
        return _Bracket(lower, sign, 0.25 * time_rounding(y, y - lower))

    def step(
        self, fn: Any, y: Array, args: Any, options: dict[str, Any], state: _Bracket, tags: Any
    ) -> tuple[Array, _Bracket, Any]:
        found_at_start = jnp.isnan(state.sign)
        middle = 0.5 * (state.lower + y)
        sign, aux = self._sign(fn, middle, args)
        passed = sign == state.sign
        upper = jnp.where(found_at_start, state.lower, jnp.where(passed, middle, y))
        lower = jnp.where(found_at_start | passed, state.lower, middle)
        return upper, _Bracket(lower, state.sign, state.known), aux

    def terminate(
        self, fn: Any, y: Array, args: Any, options: dict[str, Any], state: _Bracket, tags: Any
    ) -> tuple[Bool[Array, ""], optx.RESULTS]:
        return y - state.lower <= state.known, optx.RESULTS.successful

    def postprocess(
        self,
        fn: Any,
        y: Array,
        aux: Any,
        args: Any,
        options: dict[str, Any],
        state: _Bracket,
        tags: Any,
        result: optx.RESULTS,
    ) -> tuple[Array, Any, dict[str, Any]]:
        return y, aux, {}


# --- Several events in one step, of which Diffrax would take the first of the list, not the first in time
#
# A step in which more than one occurs is taken again at half its size, until one is left, or until they are
# simultaneous.


def _occurs(before: Array, after: Array, direction: bool | None) -> Bool[Array, ""]:
    """Whether Diffrax sees an event in a step."""
    before, after = jnp.sign(before), jnp.sign(after)
    if direction is None:
        return before != after
    return (before <= 0) & (after > 0) if direction else (before > 0) & (after <= 0)


@final
class _EventSeparator(dfx.AbstractStepSizeController):
    """A controller that takes a step with several events again, at half its size."""

    controller: dfx.AbstractStepSizeController  # for all other steps
    stops: "Stops"  # the events

    def wrap(self, direction: Any) -> "_EventSeparator":
        return _EventSeparator(self.controller.wrap(direction), self.stops)

    def init(
        self, terms: Any, t0: Any, t1: Any, y0: Any, dt0: Any, args: Any, func: Any, error_order: Any
    ) -> tuple[Any, Any]:
        first, state = self.controller.init(terms, t0, t1, y0, dt0, args, func, error_order)
        # Steps so short are not halved.
        return first, (state, jax.lax.stop_gradient(time_rounding(jnp.maximum(jnp.abs(t0), jnp.abs(t1)), 0)))

    def adapt_step_size(
        self,
        t0: Any,
        t1: Any,
        y0: Any,
        y1_candidate: Any,
        args: Any,
        y_error: Any,
        error_order: Any,
        controller_state: Any,
    ) -> Any:
        occurred = [
            _occurs(condition(t0, y0, args), condition(t1, y1_candidate, args), direction)
            for condition, direction in zip(self.stops.conditions, self.stops.directions, strict=True)
        ]
        state, shortest = controller_state
        several = (jnp.sum(jnp.stack(occurred)) > 1) & (t1 - t0 > shortest)
        usual = self.controller.adapt_step_size(t0, t1, y0, y1_candidate, args, y_error, error_order, state)
        again = (False, t0, t0 + 0.5 * (t1 - t0), False, state, dfx.RESULTS.successful)
        *chosen, state = jax.tree.map(lambda x, y: jnp.where(several, x, y), again[:-1], usual[:-1])
        return *chosen, (state, shortest), dfx.RESULTS.where(several, again[-1], usual[-1])


def separate_events(
    controller: dfx.AbstractStepSizeController, event: dfx.Event | None
) -> dfx.AbstractStepSizeController:
    """The controller, so that no step ends with more than one event."""
    if event is None or not isinstance(event.root_finder, Bisection):  # Diffrax's own events are as it says
        return controller
    stops = Stops.of(event)
    return controller if stops.count < 2 else with_tolerances_of(_EventSeparator(controller, stops))


# --- Events that end a run


Direction = Literal["up", "down", 1, -1] | None
DIRECTIONS = {None: None, "up": True, 1: True, "down": False, -1: False}
"""As Diffrax has them."""

State = tuple[Array, Array]

_ROUNDING = 1e3
"""In units of the precision: to how much an event is zero."""


@final
class Event(eqx.Module):
    """Stops a run where a function of the state crosses zero, or lets it go on from another state.

    **Arguments:**

    - `fn`: a real function fn(t, q, v), such as a height: smooth where it crosses zero, not a truth value.
    - `direction`: `"up"` or 1 for crossings from below only, `"down"` or -1 for those from above only; by default both.
    - `reset`: the state reset(t, q, v) -> (q, v) from which the run goes on; without it the run stops: before a reset
      or an impact at the same instant, unless it is their jump that takes `fn` past zero. The new state must obey the
      constraints. `Trajectory.contacts` has the times of such events. Derivatives go through time and reset.
      Where resets follow one another ever sooner, the run ends with `resets_accumulate`.
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
    """An event's function as Diffrax calls it."""

    fn: Callable  # the user's
    name: str = eqx.field(static=True)  # what errors call it
    of_diffrax: bool = eqx.field(static=True)  # whether `fn` is called as Diffrax calls it, or with (t, q, v)
    # `start`: the start of the run and the value that counts there, where they are known (see `leave_zeros`).
    start: tuple[Array, Array] | None = None

    def __call__(self, t: Array, y: tuple[Array, Array], args: Any, **more: Any) -> Array:
        def value(t: Array, y: tuple[Array, Array]) -> Array:
            state = (t, y, args) if self.of_diffrax else (t, *y)
            result = call_user_function(
                describe_event(self.name), self.fn, *state, **(more if self.of_diffrax else {})
            )
            return self._check_value(number_array(f"what {describe_event(self.name)} returns", result))

        self._require_change(value, t, y)
        found = value(t, y)
        if self.start is not None:
            t0, at_start = self.start
            found = jnp.where(t == t0, at_start, found)
        # Diffrax, which alone gives `more`, puts 0.0 in the place of events that did not occur: a value has its type.
        return found.astype(float) if more else found

    def _check_value(self, result: Array) -> Array:
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
    width = float(jnp.finfo(state[1].dtype).eps)
    directions = [DIRECTIONS[x.direction] for x in events]
    return dfx.Event(conditions, Bisection(width, width), directions)


def intern_event_function(fn: Callable, name: str, state: tuple[Array, Array, Array]) -> Callable:
    """The function of an event, one object for all that compute the same."""
    fn = hoist_tracers(fn)
    return fn if is_traced(fn) else call_user_function(describe_event(name), intern_function, fn, *state)


def leave_zeros(
    event: dfx.Event | None,
    kinematics: Callable[..., Array],
    t: Array,
    y: State,
    field: Callable[[Array, State], State],
) -> dfx.Event | None:
    """Events that do not occur at the start of a run where they are zero there.

    Such an event gets the sign it has just after the start: that of its first derivative along the motion, of the second
    where the first is zero, or of the third. So it occurs when it crosses zero next. SciPy's `solve_ivp` would stop at
    the start, and so do Diffrax's own events, which are left as they are.

    - `field`: the rate of the state (q', v').
    """
    if event is None or not isinstance(event.root_finder, Bisection):
        return event
    rate = field(t, y)
    bend = _bend(kinematics, t, y, rate)
    # Its sign counts, and only where lower derivatives are zero: a difference is enough.
    h = jnp.cbrt(jnp.finfo(t.dtype).eps).astype(t.dtype)
    later = t + h, jax.tree.map(lambda x, of: x + h * of, y, rate)
    rate_later = field(*later)
    jerk = ((_bend(kinematics, *later, rate_later) - bend) / h, (rate_later[1] - rate[1]) / h)
    conditions = [
        dataclasses.replace(x, start=(t, _value_at_start(x, t, y, rate, bend, jerk=jerk)))
        for x in event.cond_fn
    ]
    return dataclasses.replace(event, cond_fn=conditions)


def _bend(kinematics: Callable[..., Array], t: Array, y: State, rate: State) -> Array:
    """q''."""
    return jax.jvp(kinematics, (t, *y), (jnp.ones_like(t), *rate))[1]


def _value_at_start(
    condition: Condition,
    t: Array,
    y: State,
    rate: State,
    bend: Array,
    late: Array | float = 0.0,
    jerk: State | None = None,
) -> Array:
    """The value of an event; where it is zero to rounding, or within a time `late`, a number of the sign just after.
    `bend` is q'', `jerk` are q''' and v'', without which there is no third derivative."""
    (q, v), (u, a) = y, rate
    eps, (turn, swing) = jnp.finfo(q.dtype).eps, jerk or (0.0, 0.0)
    along = lambda s: condition(
        t + s, (q + s * (u + s / 2 * (bend + s / 3 * turn)), v + s * (a + s / 2 * swing)), None
    )
    slope = lambda s: jax.jvp(along, (s,), (jnp.ones_like(s),))
    curve = lambda s: jax.jvp(slope, (s,), (jnp.ones_like(s),))
    here = jnp.zeros_like(t)
    third = 0.0 if jerk is None else jax.jvp(curve, (here,), (jnp.ones_like(t),))[1][1][1]
    (value, first), (_, second) = curve(here)
    # What the function is made of, were it linear: zero to rounding is measured by it.
    by_t, by_y = jax.jacfwd(lambda t, y: condition(t, y, None), argnums=(0, 1))(t, y)
    parts = zip((t, q, v), (by_t, *by_y), strict=True)
    size = sum(jnp.linalg.norm(jnp.atleast_1d(x)) * jnp.linalg.norm(jnp.atleast_1d(d)) for x, d in parts)
    # A derivative that is only rounding must not decide against the next one.
    after = first + jnp.sqrt(eps) * second + eps * third
    zero = _ROUNDING * eps * size + late * jnp.abs(first)
    return jax.lax.stop_gradient(jnp.where(jnp.abs(value) <= zero, after, value))


@final
class Stops(AbstractStops):
    """The functions of an event that stops a run with contacts or resets."""

    conditions: tuple[Any, ...]  # one a function
    directions: tuple[bool | None, ...] = eqx.field(static=True)  # of the crossings that count

    @classmethod
    def of(cls, event: dfx.Event | None) -> "Stops":
        """Those of an event, which may be none."""
        if event is None:
            return cls((), ())
        conditions = tuple(jax.tree.leaves(event.cond_fn, is_leaf=callable))
        directions: Any = jax.tree.leaves(event.direction, is_leaf=lambda x: x is None)
        # One direction may be that of all.
        return cls(
            conditions, tuple(directions * (1 if len(directions) == len(conditions) else len(conditions)))
        )

    @property
    def count(self) -> int:
        return len(self.conditions)

    def crossed(self, kinematics: Any, states: Any, rates: Any) -> tuple[Array, Array, Array, Array]:
        (t0, y0), *middle, (t1, y1) = states
        late = time_rounding(t1, t1 - t0)

        def one(condition: Any, direction: bool | None) -> tuple[Array, Array, Array, Array]:
            start, end = condition(t0, y0[:2], None), condition(t1, y1[:2], None)
            before, after = (
                _value_at_start(condition, t, y[:2], rate, _bend(kinematics, t, y[:2], rate), late)
                for (t, y), rate in zip(middle, rates, strict=True)
            )
            early = _occurs(start, before, direction)
            jump = ~early & _occurs(start, after, direction)
            seen = early | jump | _occurs(start, end, direction)
            sign = jnp.where(early, _side(before, direction), 0), jnp.where(jump, _side(after, direction), 0)
            return *sign, seen, ~seen & _occurs(after, end, direction)

        found = zip(*map(one, self.conditions, self.directions), strict=True)
        before, by_jump, seen, missed = map(jnp.stack, found)
        return before, by_jump, jnp.any(seen), jnp.any(missed)


def _side(value: Array, direction: bool | None) -> Array:
    """The sign of what has crossed zero."""
    return jnp.sign(value) if direction is None else jnp.full_like(value, 1 if direction else -1)


def event_names(event: dfx.Event | None) -> tuple[str, ...]:
    """The names of the events, in the order of their indices."""
    return tuple(x.name for x in Stops.of(event).conditions)


def which(event_mask: Any) -> Int[Array, ""]:
    """The index of the event that ended a run, -1 where none did."""
    mask = jax.tree.leaves(event_mask)
    if not mask:
        return np.asarray(-1)  # pyright: ignore[reportReturnType]
    xp = module_for(mask)
    mask = xp.stack(mask)
    return as_jax(xp.where(xp.any(mask), xp.argmax(mask), -1))


# --- Events after which a run goes on: what users give, as crossings from above and the states that follow


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
            reset = _CheckedReset(intern_event_function(x.reset, name, state), name)
            below = Reset(_SignedCondition(value, 1.0), reset, name)
            above = Reset(_SignedCondition(value, -1.0), reset, name)
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
            stacklevel=5,
        )


@final
class _SignedCondition(eqx.Module):
    """A condition of (t, q, v), or its negative."""

    condition: Condition
    sign: float = eqx.field(static=True)

    def __call__(self, t: Array, q: Array, v: Array) -> Array:
        return self.sign * self.condition(t, (q, v), None)


@final
class _CheckedReset(eqx.Module):
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
