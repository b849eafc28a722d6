"""When a margin of a mode runs out within a step."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._formula._contact_problem import rows_of
from ._contact_dynamics import ContactDynamics, RanOut, State, flow
from ._modes import Approach, Margins, Mode

_WITHIN = (0.25, 0.5, 0.75)  # of a step, where margins are looked at besides its end
_NARROW = 2.0**-14  # of a step: then Newton's method starts
_MOMENT = 1e3  # roundings of the time: what happens so soon after one another does so at one instant
_MOST_PLACES = 300  # of a step, at which gaps are looked at: some 40 tell, but of what slides along without being pressed
_MOST = 100  # evaluations of a search, of which halving a whole step down to rounding takes some 60

Curve = Callable[[Array], tuple[Array, Array]]
"""The states (q, v) of a step, by the part of it that has gone."""


class Watched(NamedTuple):
    """What happens to the margins (k,) of a mode in a step.

    - `eligible`: whether they are not negative at its start. Others tell that the mode was not the one to start with, but
      for events of the user's own.
    - `happens`: whether one of these becomes negative.
    - `stale`: whether one of the others is negative at the end.
    - `lower`, `upper`: the parts of the step between which the first becomes negative, of gaps; what else may have become
      negative before did so after `last`.
    - `lift`: what is added to them. A gap that is open and negative at the start, as rounding may leave it, counts from
      there: nothing would else be seen to fall through the ground.
    """

    eligible: Array
    happens: Array
    stale: Array
    lower: Array
    upper: Array
    last: Array
    lift: Array


def watch_step(
    args: ContactDynamics, t0: Array, t1: Array, y0: State, curve: Curve, y1: State, settled: Array
) -> Watched:
    """What happens in a step from t0 to t1, which has no derivative; nor should what is given. If the state at t0 is
    `settled`, as at the start of a run and after an event, events that become negative just after it are over."""
    parts = jnp.array((0.0, *_WITHIN, 1.0), t0.dtype)
    within = jax.vmap(curve)(parts[1:-1])
    with_ends = lambda x, inner, y: jnp.concatenate([x[None], inner, y[None]])
    q, v = (with_ends(y0[i], within[i], y1[i]) for i in (0, 1))
    margins, near = jax.vmap(lambda s, q, v: args.looked_at(t0 + s * (t1 - t0), (q, v, y0[2])))(parts, q, v)
    (own, passing), n = args.apart(t0, y0), near.gap.shape[1]
    is_open = jnp.append(y0[2].closed == 0, jnp.zeros(len(own) - n, bool))
    lift = jnp.where(is_open & (margins.value[0] + margins.slack[0] < 0), -margins.value[0], 0)
    negative = margins.value + lift[None] + margins.slack < 0
    eligible = ~negative[0] & ~(passing & settled)
    happened = jnp.any(negative & eligible[None], axis=1)
    i = jnp.argmax(happened)
    lower, upper, touches = parts[i - 1], parts[i], jnp.zeros((), bool)
    if n:
        watch, slack = eligible[:n] & is_open[:n], lift[:n] + jnp.max(margins.slack[:, :n], axis=0)
        end = jnp.where(happened[i], upper, 1)
        start, end, touches = _first_touch(args, near, (watch, slack), (t0, t1 - t0), end, curve)
        lower, upper = jnp.where(touches, start, lower), jnp.where(touches, end, upper)
    stale = jnp.any(negative[-1] & negative[0] & ~own)
    last = parts[jnp.searchsorted(parts, lower, side="right") - 1]
    return Watched(eligible, happened[i] | touches, stale, lower, upper, last, lift)


def _stays_open(h: Array, start: tuple[Array, Array], end: tuple[Array, Array], bend: Array) -> Array:
    """Whether gaps cannot become negative in a time, by their values and rates at both ends and what rates fall by.

    With g'' >= -c, g - c s (h - s) / 2 is convex and no larger than g, so it lies above its tangents at both ends. Where
    values and rates contradict that, c is larger.
    """
    (g0, rate0), (g1, rate1) = start, end
    h = jnp.where(h > 0, h, 1)
    mean = (g1 - g0) / h
    c = jnp.maximum(bend, 4 * jnp.maximum(rate0 - mean, mean - rate1) / h)
    down, up = rate0 - 0.5 * c * h, rate1 + 0.5 * c * h
    dips = (down < 0) & (up > 0)
    lowest = g0 + down * (g1 - g0 - up * h) / jnp.where(dips, down - up, 1)
    return (g0 >= 0) & (g1 >= 0) & (~dips | (lowest >= 0))


class _March(NamedTuple):
    """Gaps are not negative up to the part `s` of a step, where they and their rates are `start`; `h` is tried next."""

    s: Array
    h: Array
    start: tuple[Array, Array]
    touches: Array
    tries: Array


def _first_touch(
    args: ContactDynamics,
    near: Approach,
    open_ones: tuple[Array, Array],
    step: tuple[Array, Array],
    end: Array,
    curve: Curve,
) -> tuple[Array, Array, Array]:
    """Between which parts of a step the first gap becomes negative, and whether one does before `end`.

    Where nothing is near, what is known of the places of `near` tells so. Else the step is gone through from the left, by
    parts in which nothing can touch.
    """
    (watch, slack), (t0, long) = open_ones, step
    gap, pairs = near.gap + slack[None], len(near.gap) - 1
    normal = rows_of(args.layout.contacts, gap.dtype).normal
    # Between two places a normal may turn, and more may fall than at either.
    turned = jnp.linalg.norm(near.J[1:] - near.J[:-1], axis=2)
    pull = jnp.linalg.norm(near.a, axis=1)
    bend = 2 * jnp.maximum(near.bend[1:], near.bend[:-1]) + turned * jnp.maximum(pull[1:], pull[:-1])[:, None]
    doubt = lambda *ends_and_bend: jnp.any(watch & ~_stays_open(long / pairs, *ends_and_bend))
    parts = jnp.arange(pairs).astype(t0.dtype) / pairs
    ends = (gap[:-1], near.rate[:-1]), (gap[1:], near.rate[1:])
    doubtful = jax.vmap(doubt)(*ends, bend) & (parts < end)
    first, bend = jnp.argmax(doubtful), jnp.max(bend, axis=0)

    def advanced(m: _March) -> _March:
        then = m.s + m.h
        found, u = args.kinematics(t0 + then * long, *curve(then))
        now = found + slack, normal @ u
        clear = ~jnp.any(watch & ~_stays_open(m.h * long, m.start, now, bend))
        touches = jnp.any(watch & (now[0] < 0)) & (m.h <= _NARROW)
        s, start = jax.tree.map(lambda x, y: jnp.where(clear, x, y), (then, now), (m.s, m.start))
        h = jnp.where(clear, jnp.minimum(2 * m.h, end - s), jnp.where(touches, 1, 0.5) * m.h)
        return _March(s, h, start, touches, m.tries + 1)

    no, start = jnp.zeros((), bool), (gap[first], near.rate[first])
    begun = _March(jnp.where(doubtful[first], parts[first], end), end / pairs, start, no, jnp.zeros((), int))
    m = jax.lax.while_loop(lambda m: ~m.touches & (m.s < end) & (m.tries < _MOST_PLACES), advanced, begun)
    return m.s, m.s + m.h, m.touches


def _bracket_event(
    args: ContactDynamics, found: Watched, t0: Array, t1: Array, y0: State, curve: Curve
) -> tuple[Array, Array]:
    """Nearly the part of the step at which a margin runs out, and which margin it is."""

    def at(s: Array) -> Array:
        margins = args.margins(t0 + s * (t1 - t0), (*curve(s), y0[2]))
        return margins.value + found.lift + margins.slack

    passed = lambda s: jnp.any(found.eligible & (at(s) < 0))

    def halve(ends: tuple[Array, Array]) -> tuple[Array, Array]:
        lower, upper = ends
        middle = 0.5 * (lower + upper)
        before = passed(middle)
        return jnp.where(before, lower, middle), jnp.where(before, middle, upper)

    earlier = passed(found.lower)
    ends = jnp.where(earlier, found.last, found.lower), jnp.where(earlier, found.lower, found.upper)
    lower, upper = jax.lax.while_loop(lambda ends: ends[1] - ends[0] > _NARROW, halve, ends)
    below, above = at(lower), at(upper)
    runs_out = found.eligible & (above < 0)
    part = jnp.where(runs_out, below / jnp.where(runs_out, below - above, 1), jnp.inf)
    k = jnp.argmin(part)
    return lower + jnp.clip(part[k], 0, 1) * (upper - lower), k


class Stepped(NamedTuple):
    """One step of the inner solver."""

    y: State
    error: Any
    dense: Any
    result: Any


class InnerSteps(NamedTuple):
    """Steps by the inner solver, of whatever motion, time and state.

    - `one`: a step (args, t0, t1, y0) -> Stepped.
    - `curve`: the states of one (dense, t0, t1) -> Curve.
    """

    one: Callable[[ContactDynamics, Array, Array, State], Stepped]
    curve: Callable[[Any, Array, Array], Curve]


def constant(x: Any) -> Any:
    """A pytree whose arrays have no derivative."""
    return jax.tree.map(lambda x: jax.lax.stop_gradient(x) if eqx.is_array(x) else x, x)


class _Search(NamedTuple):
    """A root within [lower, upper], after whose sign changes: Newton's method, or halving where that is no faster.

    - `last`: the length of the step before.
    - `near`: whether the margin is zero to rounding, so that one more step of Newton's method finds it.
    - `narrow`: whether there is nothing left between the ends.
    """

    t: Array
    lower: Array
    upper: Array
    last: Array
    rate: Array
    near: Array
    narrow: Array
    tries: Array


def moment(t: Array) -> Array:
    """How far apart times are that are one instant [s]."""
    return _MOMENT * jnp.finfo(t.dtype).eps * (1 + jnp.abs(t))


def time_rounding(t: Array, step: Array | float) -> Array:
    """To how much times within a step are known [s]: some roundings."""
    return 16 * jnp.finfo(t.dtype).eps * (jnp.abs(t) + step)


def _to_zero(t: Array, slack: Array, rate: Array) -> Array:
    """How near to zero a margin is zero, whose values or whose time are rounded."""
    return jnp.maximum(slack, moment(t) * jnp.abs(rate))


def _locate_event(
    args: ContactDynamics, found: Watched, t0: Array, t1: Array, y0: State, steps: InnerSteps, dense: Any
) -> tuple[Array, Array, Array, Array]:
    """When a margin runs out, which it is, the rate at which it does, and whether it jumps below zero: then the last
    time before."""

    def at(t: Array) -> tuple[Array, Array, Array]:
        def of(t: Array, y: State) -> tuple[Array, Array]:
            now = args.margins(t, y)
            return now.value[k] + found.lift[k], now.slack[k]

        y = steps.one(args, t0, t, y0).y
        return jax.jvp(of, (t, y), (jnp.ones_like(t), flow(t, y, args)), has_aux=True)

    def advanced(s: _Search) -> _Search:
        value, rate, slack = at(s.t)
        lower, upper = jnp.where(value > 0, s.t, s.lower), jnp.where(value > 0, s.upper, s.t)
        newton = s.t - value / jnp.where(rate == 0, 1, rate)
        good = (rate != 0) & (newton > lower) & (newton < upper) & (jnp.abs(newton - s.t) <= 0.5 * s.last)
        near = jnp.abs(value) <= _to_zero(s.t, slack, rate)
        done = s.near | (~near & (upper - lower <= 4 * jnp.finfo(upper.dtype).eps * (1 + jnp.abs(upper))))
        t = jnp.where(done, s.t, jnp.where(good, newton, jnp.where(near, s.t, 0.5 * (lower + upper))))
        return _Search(t, lower, upper, jnp.abs(t - s.t), rate, s.near | near, done, s.tries + 1)

    part, k = _bracket_event(args, found, t0, t1, y0, steps.curve(dense, t0, t1))
    # A quarter to both sides: a step that ends there may differ from what is interpolated.
    start, lower, upper = (
        t0 + x * (t1 - t0) for x in (part, *jnp.clip(part + jnp.array((-0.25, 0.25), part.dtype), 0, 1))
    )
    no, zero = jnp.zeros((), bool), jnp.zeros_like(start)
    begun = _Search(start, lower, upper, upper - lower, zero, no, ~found.happens, jnp.zeros((), int))
    s = jax.lax.while_loop(lambda s: ~s.narrow & (s.tries < _MOST), advanced, begun)
    # Grazed to the accuracy of the interpolation only, it did not run out.
    grazed = ~s.near & (s.upper == upper)
    t = jnp.where(s.near, s.t, jnp.where(grazed, start, s.lower))
    return t, k, s.rate, ~s.near & ~grazed


def tell_spent(t: Array, margins: Margins, mode: Mode, which: Array, rate: Array) -> RanOut:
    """Besides the margin of a mode that runs out at a rate, which others of its kind are spent, of contacts it holds."""
    held, n = jnp.concatenate([mode.closed, mode.stick]), max(mode.closed.size, 1)
    alike = (which >= 0) & (jnp.arange(held.size) // n == which // n)
    spent = alike & (margins.value <= _to_zero(t, margins.slack, rate))[: held.size]
    return RanOut(which, jnp.where(spent, held, 0))


def first_event(
    args: ContactDynamics, found: Watched, t0: Array, t1: Array, y0: State, steps: InnerSteps, whole: Stepped
) -> tuple[Array, Array, Stepped, Array, RanOut]:
    """When the first margin runs out, differentiable and not, the step that ends there, the rate at which it does, and
    what does.

    Where none does, the end and the whole step. The first time, and the state at the end of the step, have first
    derivatives; between, the step has those of one that ends at the second time.
    """
    of, *given = constant((args, found, t0, t1, y0))
    t, k, rate, jumps = constant(_locate_event(of, *given, steps=steps, dense=constant(whole.dense)))
    jumps = found.happens & jumps
    t, rate = jnp.where(found.happens, t, t1), jnp.where(found.happens, rate, 0)
    step = steps.one(args, t0, t, y0)
    # By the last step of Newton's method, less than rounding, the time depends on all that the state does.
    margins = args.margins(t, step.y)
    margins = margins._replace(value=margins.value + found.lift)
    moved = -margins.value[k] / jnp.where(rate == 0, jnp.inf, rate)
    known = (jnp.abs(moved) <= t1 - t0) & (jnp.abs(margins.value[k]) <= _to_zero(t, margins.slack[k], rate))
    moved = jnp.where(known, moved, 0)
    # As if it were none: with derivatives by it, their squares would be missed, in a slow impact more than rounding.
    dq, dv, _ = flow(*constant((t, step.y, args)))
    # What follows a jump is seen behind it.
    moved = jnp.where(jumps, moment(t) + _edge_time(args, t, step.y, dq), moved)
    y = step.y[0] + moved * dq, step.y[1] + moved * dv, step.y[2]
    ran_out = tell_spent(t, constant(margins), y0[2], jnp.where(found.happens, k, -1), rate)
    return t + moved, t, step._replace(y=y), jnp.where(jumps, -jnp.inf, rate), ran_out


def _edge_time(args: ContactDynamics, t: Array, y: State, dq: Array) -> Array:
    """Zero, with the derivative of the time at which a gap or a slip gets another curvature, as where a ball leaves a
    face for an edge.

    Gaps have continuous gradients there, so the jump of their Hessians is a multiple of n n^T, with n normal to the
    surface of (t, q) on which they jump (Hadamard). So it is n that the jump K of the rates of contact velocities is a
    multiple of, and the motion meets that surface later by -K(dt, dq) / K(1, q').
    """
    ahead, v = moment(t), constant(y[1])
    before = lambda t, q: args.kinematics(t, q, v).u
    after = lambda t, q: before(t + ahead, q + ahead * dq)
    at, along = constant((t, y[0])), (jnp.ones_like(t), dq)
    jump = lambda *x: after(*x) - before(*x)
    K, slower, faster = (jax.jvp(of, at, along)[1] for of in (jump, before, after))
    # Of forces that jump nothing is known.
    small = jnp.sqrt(jnp.finfo(v.dtype).eps) * (jnp.abs(slower) + jnp.abs(faster))
    K = constant(jnp.where(jnp.abs(K) > small, K, 0))
    square = jnp.dot(K, K)
    moved = jnp.dot(K, jump(t, y[0])) / jnp.where(square > 0, square, 1)
    return constant(moved) - moved
