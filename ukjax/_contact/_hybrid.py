"""Any Diffrax solver for a motion with contacts: smooth within a mode, and settled anew where a margin runs out.

The state is (q, v, mode). A step is tried in the mode it starts in. Where a margin of the mode becomes negative, the
first such time t* is found on the step's interpolation, then by Newton's method on steps that end there; what happens at
t* is settled, and a second step goes on to the end. So all times between are states of steps of the solver's own order,
and Diffrax sees an ordinary step. A step with a second event is refused, and tried again shorter.

The solver sees (q, v) as one vector, and the mode as an argument, so that it computes nothing for what stays.

Functions that stop the run are looked at just before and just after t*, since Diffrax sees the ends of steps only: one
that crosses zero before t*, or where the state jumps, stays crossed for the rest of the step. So the run stops there. One
that is zero at t* stops the run before what happens there.

t* is found without being differentiated, and corrected by one step of Newton's method that is: so it has the derivative
of the implicit function, and the state after it that of the saltation matrix (Aizerman and Gantmakher 1958).
"""

import abc
import functools
from typing import Any, NamedTuple, final

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._misc._types import in_full_precision
from .._motion._solvers import AbstractForwardingSolver, Stop, inflate_error_if, judge_constraints
from ._contact_dynamics import ContactDynamics, SettledContacts, State
from ._modes import Mode
from ._watch import (
    Curve,
    InnerSteps,
    Stepped,
    Watched,
    constant,
    first_event,
    moment,
    time_rounding,
    watch_step,
)

# --- What happened in a run with contacts, event by event

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
    - `at`: when the step was divided: `t` without the bounces left out.
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
    at: Array


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
    rows = jnp.zeros((LOGGED, 7 + 3 * n + 2 * m), dtype)
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
        t,
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


def drop_after(log: Log, end: Array, stopped: Array) -> Log:
    """The log of a run that was stopped at its end, without what happens there or, in the last step, later."""
    found = jax.lax.stop_gradient(log.rows[:, -1])
    later = stopped & jnp.isfinite(log.rows[:, 0]) & (end <= found)
    rows = log.rows.at[:, 0].set(jnp.where(later, jnp.inf, log.rows[:, 0]))
    return Log(rows, log.number - jnp.sum(later, dtype=log.number.dtype))


# --- Functions that stop the run, around an instant within a step


class Crossed(NamedTuple):
    """Of each of k functions that stop the run, the sign it has crossed to within a step; 0 where it has not.

    - `before`: at the instant that divides the step, or before it (k,).
    - `by_jump`: by what happens there (k,).
    - `ends`: whether one is seen to have crossed, so that the run ends within the step.
    - `since`: the time since that instant [s], of which the time of the crossing has its derivative.
    """

    before: Array
    by_jump: Array
    ends: Array
    since: Array

    def values(self, own: Array) -> Array:
        """What Diffrax sees of functions with values of their own (k,)."""
        sign = self.before + self.by_jump
        crossed = sign * (1 + self.since - jax.lax.stop_gradient(self.since))
        return jnp.where(sign != 0, crossed.astype(own.dtype), own)


def uncrossed(count: int, t: Array) -> tuple[Crossed, ...]:
    """The last part of a state of a run that functions stop; of one without, nothing."""
    none = jnp.zeros(count, t.dtype)
    return (Crossed(none, none, jnp.zeros_like(t), jnp.zeros_like(t)),) if count else ()


class AbstractStops(eqx.Module):
    """Functions that stop a run, of which there are `count`."""

    @property
    @abc.abstractmethod
    def count(self) -> int:
        """How many."""

    @abc.abstractmethod
    def crossed(
        self, kinematics: Any, states: tuple[tuple[Array, State], ...], rates: tuple[tuple[Array, Array], ...]
    ) -> tuple[Array, Array, Array, Array]:
        """The first three parts of `Crossed`, and whether one crossed zero after the instant that Diffrax does not see:
        of a step's start, just before the instant, just after it, and its end; rates are of the two in the middle."""


# --- The solver

_REFUSED = 1e8  # times the state: the error of a step that is to be refused


def _split(x: Array, count: int) -> tuple[Array, Array]:
    return x[:count], x[count:]


def _pack_state(y: State) -> Array:
    return jnp.concatenate(y[:2])


def _compute_mode_rate(t: Array, x: Array, args: tuple[ContactDynamics, Mode, Array]) -> Array:
    """The rate of (q, v) as one vector, of which q are the first, as many as a third argument has entries."""
    of, mode, q = args
    return jnp.concatenate(of.rates(t, (*_split(x, q.size), mode)))


_TERM = dfx.ODETerm(_compute_mode_rate)  # pyright: ignore[reportArgumentType]


@final
class _Pieces(dfx.AbstractLocalInterpolation):
    """Two interpolations, the second from `until` on, with the modes of their states."""

    t0: Array
    t1: Array
    until: Array
    first: Any
    second: Any
    modes: tuple[Mode, Mode]
    crossed: Crossed | None
    count: int = eqx.field(static=True)

    def evaluate(self, t0: Any, t1: Any = None, left: bool = True) -> Any:
        if t1 is not None:
            return jax.tree.map(jnp.subtract, self.evaluate(t1), self.evaluate(t0))
        # The state at an event is the one before it, also where the time differs by rounding; but a run that is stopped
        # by what happens there ends just after it.
        ends = jnp.zeros((), bool) if self.crossed is None else self.crossed.ends > 0
        before = t0 <= self.until + jnp.where(ends, 0, moment(self.until))
        first = t0 + jax.lax.stop_gradient(jnp.minimum(t0, self.until) - t0)
        pieces = zip((self.first, self.second), (first, t0), self.modes, strict=True)
        pair = [(*_split(of.evaluate(t), self.count), mode) for of, t, mode in pieces]
        y = jax.tree.map(lambda x, y: jnp.where(before, x, y), *pair)
        if self.crossed is None:
            return y
        # Somewhat sooner: a time found by halving is then still before.
        reached = t0 > self.until - time_rounding(self.until, self.t1 - self.t0)
        of, by_jump, ends, since = self.crossed
        of, by_jump = jnp.where(reached, of, 0), jnp.where(before, 0, by_jump)
        return *y, Crossed(of, by_jump, ends, t0 - self.t1 + since)


class _Pieced(NamedTuple):
    """Makes the interpolation of a step in two pieces, each by the solver's own.

    - `of_piece`: the solver's.
    - `coordinates`: how many.
    """

    of_piece: Any
    coordinates: int

    def __call__(
        self,
        *,
        t0: Array,
        t1: Array,
        first: Any,
        second: Any,
        until: Array,
        since: Array,
        modes: tuple[Mode, Mode],
        crossed: Crossed | None,
    ) -> _Pieces:
        # A piece without length is never asked, but must be finite.
        long = lambda start, end: jnp.where(end == start, start + 1, end)
        pieces = (
            self.of_piece(t0=t0, t1=long(t0, until), **first),
            self.of_piece(t0=since, t1=long(since, t1), **second),
        )
        return _Pieces(t0, t1, until, *pieces, modes, crossed, self.coordinates)


def begin_steps(solver: dfx.AbstractSolver, args: ContactDynamics, t0: Any, t1: Any, y0: State) -> Any:
    """What the solver keeps for `step_within_mode`."""
    return solver.init(_TERM, t0, t1, _pack_state(y0), (args, y0[2], y0[0]))


@eqx.filter_jit
def step_within_mode(
    solver: dfx.AbstractSolver, inner: Any, args: ContactDynamics, t0: Array, t1: Array, y0: State
) -> Stepped:
    """A step within a mode, of which there are several in one of `HybridSolver`; JAX traces it once."""
    count = y0[0].size
    # The state is moved after each step: a stage kept from it (first same as last) is stale.
    given = _pack_state(y0), (args, y0[2], y0[0]), inner, np.array(True)
    x, error, dense, _, result = solver.step(_TERM, t0, t1, *given)
    return Stepped((*_split(x, count), y0[2]), error, dense, result)


@eqx.filter_jit
@in_full_precision
def _step(
    solver: dfx.AbstractSolver,
    t0: Any,
    t1: Any,
    y0: Any,
    args: ContactDynamics,
    solver_state: Any,
    stop: Stop | None,
    accumulation: Stop,
    stops: AbstractStops,
) -> Any:
    """A step of `HybridSolver`: Diffrax asks for it four times in a run, and JAX keeps what it traced."""
    (inner, log, begins, longest), count = solver_state, y0[0].size
    y0, of_stops = y0[:3], y0[3:]

    one = functools.partial(step_within_mode, solver, inner)

    def curve(dense: Any, t0: Array, t1: Array) -> Curve:
        of = solver.interpolation_cls(t0=t0, t1=jnp.where(t1 == t0, t0 + 1, t1), **dense)
        return lambda s: _split(of.evaluate(t0 + s * (t1 - t0)), count)

    def seen(settled: Array, *step: Any) -> Watched:
        of, t0, t1, y0, stepped = constant((args, *step))
        return watch_step(of, t0, t1, y0, curve(stepped.dense, t0, t1), stepped.y, settled)

    whole = one(args, t0, t1, y0)
    found = seen(begins, t0, t1, y0, whole)
    no = jnp.zeros((), bool)

    def around(t: Array, before: State, start: State, after: State) -> tuple[tuple[Crossed, ...], Array]:
        if not stops.count:
            return (), no
        of, *given = constant((args, t, before, start, after))
        t, before, start, after = given
        states = (constant(t0), constant(y0)), (t, before), (t, start), (constant(t1), after)
        rates = of.rates(t, before), of.rates(t, start)
        early, by_jump, ends, missed = stops.crossed(of.model.system.kinematics, states, rates)
        # An end shortly after the instant shows Diffrax what it does not see.
        crossed = Crossed(early, by_jump, ends.astype(t.dtype), jnp.zeros_like(t))
        return (crossed,), missed & (t1 - t0 > 2 * time_rounding(t1, 0))

    def split() -> tuple[Stepped, Array, Any, Log, Array, tuple[Crossed, ...]]:
        t, fixed, before, speed, ran_out = first_event(args, found, t0, t1, y0, InnerSteps(one, curve), whole)
        q, what, moved = args.settled(t, before.y, ran_out)
        start = q, what.v, what.mode
        after = one(args, t, t1, start)
        reset = args.reset_of(ran_out.which)
        ends = args.accumulates(*constant((t, start, reset)))
        again = seen(~no, t, t1, start, after).happens & ~ends
        now = append_event(log, t, what, speed, (reset, moved))
        crossed, missed = around(t, before.y, start, after.y)
        crossed = tuple(x._replace(since=t1 - t) for x in crossed)
        return _join_steps(before, after, again | missed), fixed, t, now, ends, crossed

    def undivided() -> tuple[Stepped, Array, Any, Log, Array, tuple[Crossed, ...]]:
        crossed = uncrossed(stops.count, t1)
        return whole._replace(dense=(whole.dense, whole.dense)), t1, t0, log, no, crossed

    step, until, since, log, ends, crossed = jax.lax.cond(found.happens | found.stale, split, undivided)
    first, second = step.dense
    modes = y0[2], step.y[2]
    dense = {"first": first, "second": second, "until": until, "since": since, "modes": modes}
    dense["crossed"] = crossed[0] if stops.count else None
    pair, result = _split(step.error, count), step.result
    y1, near = args.held(t1, step.y)
    if stop is not None:  # Diffrax heeds a result where the step is accepted
        of_step = t1 - t0, stop.shortest, longest
        pair, broken = judge_constraints(pair, near, step.y[1], y1[1], *of_step)
        result = dfx.RESULTS.where(broken, stop.result, result)
    pair = inflate_error_if(ends, pair, t1 - t0 <= accumulation.shortest)
    result = dfx.RESULTS.where(ends, accumulation.result, result)
    error = *pair, *jax.tree.map(jnp.zeros_like, (y0[2], *of_stops))
    return (*y1, *crossed), error, dense, (inner, log, no, jnp.maximum(longest, t1 - t0)), result


@final
class HybridSolver(AbstractForwardingSolver):
    """Wraps a Diffrax solver for the state (q, v, mode), behind which stands `uncrossed` for a run that functions stop,
    with a `ContactDynamics` for arguments.

    **Arguments:**

    - `solver`: a solver that estimates its error.
    - `count`: of coordinates q.
    - `stop`: how the run ends where no motion keeps the bilateral constraints; None for one that goes on.
    - `accumulation`: how it ends where resets follow one another ever sooner.
    - `stops`: the functions that stop it.
    """

    solver: dfx.AbstractSolver
    count: int = eqx.field(static=True)
    stop: Stop | None
    accumulation: Stop
    stops: AbstractStops

    @property
    def interpolation_cls(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _Pieced(self.solver.interpolation_cls, self.count)

    def init(self, terms: Any, t0: Any, t1: Any, y0: Any, args: ContactDynamics) -> Any:
        inner = begin_steps(self.solver, args, t0, t1, y0[:3])
        return inner, empty_log(y0), jnp.ones((), bool), jnp.zeros_like(t0)

    def step(
        self, terms: Any, t0: Any, t1: Any, y0: Any, args: ContactDynamics, solver_state: Any, made_jump: Any
    ) -> Any:
        how = self.stop, self.accumulation, self.stops
        return _step(self.solver, t0, t1, y0, args, solver_state, *how)


def _join_steps(before: Stepped, after: Stepped, refused: Array) -> Stepped:
    """Two steps as one, whose error is so large that the controller refuses it where it should."""
    error = jnp.abs(before.error) + jnp.abs(after.error)
    error = jnp.where(refused, _REFUSED * (1 + jnp.abs(_pack_state(after.y))), error)
    result = dfx.RESULTS.where(before.result == dfx.RESULTS.successful, after.result, before.result)
    return Stepped(after.y, error, (before.dense, after.dense), result)
