"""The search of a plan: feasibility-driven differential dynamic programming within an augmented Lagrangian.

A pass linearizes all stages at once, sweeps back through them for the inputs of least cost (Mastalli et al. 2020, with
inputs in their bounds by projected Newton, Tassa, Mansard and Todorov 2014), and runs the motion forward under these and
their feedback. States need not follow from each other at first: a step alpha closes each gap by alpha. Bounds of states,
and what is to vanish at the end, are kept by multipliers, which are renewed when a pass promises little. A free end time
is one more number of the state, which no step changes. With `exact` the second derivatives of the motion count, too,
weighted by the costates: Newton's method in place of Gauss and Newton's.
"""

import functools
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..._compiler import JitByZeros
from ..._compiler._structured._scalarize import scalarize
from ._phases import Instant
from ._stages import DYNAMICS, Frame, Penalty, Stages

SEARCHING, CONVERGED, ITERATIONS, STUCK, VIOLATED, LOST = range(6)

_SHORTEST = 2.0**-10  # step of the line search
_DECREASE = 1e-4  # of what is promised, that a step must bring
_LEAST_DAMPING, _MOST_DAMPING = 1e-9, 1e6  # to the mean diagonal of a stage's Hessian
_HEAVIER = 10.0  # weight of what is violated, after multipliers that did not make it four times less
_MOST_WEIGHT = 1e10  # unless it still helps: a cost may be large in its own units
# It helps where violations fall, or a pass promises to remove a share of them, or a share that grows with the weight.
_FALLEN, _SHARE, _GROWN = 0.99, 0.05, 5.0


class Given(NamedTuple):
    """What one search starts from: guesses of states (steps + 1, n_q + n), inputs (steps, p), and T, the duration."""

    t0: Array  # start [s]
    xs: Array  # of which the first alone is given if `runs`: the others are those that inputs lead through
    runs: Array
    us: Array
    T: Array
    first: tuple[Array, Array]  # the bases of velocities that rows allow there
    # `low`, `high`, `shortest`, `longest`: bounds of inputs (p,) and T.
    low: Array
    high: Array
    shortest: Array
    longest: Array
    penalty: Penalty  # of an earlier plan, or with weight 0


class Model(NamedTuple):
    """All stages to first order, and the cost to second, by z = (s, T, u)."""

    J: Array  # of s and T one step later (steps, n, n + p)
    gap: Array  # by how much a step misses the next state (steps, n)
    off: Array  # the same of (q, v)
    # `slope`, `H`: of the cost (steps, n + p).
    slope: Array
    H: Array
    # `end_slope`, `end_curve`: at the end.
    end_slope: Array
    end_curve: Array
    # `bend`, `end_bend`: second derivatives that `H` and `end_curve` leave out; none unless they are asked
    # for.
    bend: Array | None
    end_bend: Array | None


class Policy(NamedTuple):
    """Changes of inputs, their feedback (steps, p, n), and by how much the motion takes longer."""

    k: Array
    K: Array
    longer: Array


class Search(NamedTuple):
    """Where a search stands."""

    xs: Array
    us: Array
    T: Array
    cost: Array  # of the user
    merit: Array  # with penalties
    penalty: Penalty
    damping: Array
    share: Array  # of the second derivatives that H leaves out
    gap_weight: Array  # of gaps in the merit
    violation: Array
    renewed: Array  # the violation when multipliers were last renewed
    share_promised: Array  # of its penalty, by the pass before that
    gap: Array
    K: Array  # by changes of (q, v)
    iterations: Array
    status: Array


# --- Costs


def _stage_cost(stages: Stages, given: Given, T: Array, k: Instant, x: Array, u: Array, held_by: Any) -> Any:
    """The user's cost of a stage as a number and residuals, and residuals of bounds, held by (multipliers, weight)."""
    h, t = T / stages.steps, stages.time(given.t0, T, k)
    number, r = stages.running(t, x, u)
    return h * number, jnp.sqrt(h) * r, stages.held(k, t, x, u, *held_by)


def _end_cost(stages: Stages, given: Given, T: Array, x: Array, penalty: Penalty) -> Any:
    last, weight, none = _last(stages.instants), penalty.weight, jnp.zeros_like(given.us[0])
    t = stages.time(given.t0, T, last)
    number, r = stages.at_end(t, x)
    missed = jnp.sqrt(weight) * (stages.missed(t, x) + penalty.end / weight)
    return number, r, jnp.concatenate([stages.held(last, t, x, none, penalty.bounds[-1], weight), missed])


def _last(along: Any) -> Any:
    return jax.tree.map(lambda x: x[-1], along)


def _but_last(along: Any) -> Any:
    return jax.tree.map(lambda x: x[:-1], along)


def _sum(cost: Any) -> Array:
    """(of the user, with penalties)."""
    number, r, penalties = cost
    own = number + 0.5 * jnp.dot(r, r)
    return jnp.stack([own, own + 0.5 * jnp.dot(penalties, penalties)])


# --- All stages, linearized


def _along(fn: Callable[..., Any], y: Any, columns: Any) -> tuple[Any, Any]:
    """fn(y) and its derivatives along columns, in forward mode."""
    return jax.vmap(lambda d: jax.jvp(fn, (y,), (d,)), in_axes=-1, out_axes=(None, -1))(columns)


def _quadratic(fn: Callable[..., Any], y: Array, J: Array) -> tuple[Array, Array]:
    """Slope and Hessian, along the columns of J, of a cost of y without second derivatives of residuals."""
    (_, *residuals), (slope, *Jr) = _along(fn, y, jnp.eye(y.size, dtype=y.dtype))
    r, Jr = jnp.concatenate(residuals), jnp.concatenate(Jr)
    H = jax.jacfwd(jax.jacfwd(lambda y: fn(y)[0]))(y) + Jr.T @ Jr
    return J.T @ (slope + Jr.T @ r), J.T @ H @ J


def _bent(fn: Callable[[Array], Array], H: Array) -> Array:
    """What a Hessian leaves out."""
    return jax.jacfwd(jax.jacrev(fn))(jnp.zeros(len(H), H.dtype)) - H


def linearize(stages: Stages, given: Given, at: Search) -> tuple[Model, Frame]:
    xs, us, T, penalty = at.xs, at.us, at.T, at.penalty
    steps, free, dtype = stages.steps, stages.free_time, xs.dtype
    instants = stages.instants
    frames = stages.frames(stages.time(given.t0, T, instants), xs, given.first)
    n, width, p = frames.Zq.shape[2] + frames.Zv.shape[2], xs.shape[1], us.shape[1]
    size = n + free + p

    def flat(k: Instant, x: Array, u: Array, frame: Frame, z: Array) -> Array:
        """T, (q, v) and u of z."""
        T1 = T + z[n] if free else T
        x = stages.state(frame, stages.time(given.t0, T1, k), x, z[:n])
        return jnp.concatenate([T1[None], x, u + z[n + free :]])

    def parts(y: Array) -> tuple[Array, Array, Array]:
        return y[0], y[1 : 1 + width], y[1 + width :]

    def moved(k: Instant, y: Array) -> Array:
        T, x, u = parts(y)
        return stages.onwards(k, stages.time(given.t0, T, k), x, u, T / steps)

    def cost(k: Instant, y: Array, multipliers: Array) -> Any:
        return _stage_cost(stages, given, *parts(y)[:1], k, *parts(y)[1:], (multipliers, penalty.weight))

    def end_cost(y: Array) -> Any:
        return _end_cost(stages, given, y[0], parts(y)[1], penalty)

    def one(k: Instant, x: Array, u: Array, frame: Frame, after: Any, multipliers: Array) -> Any:
        x_next, frame_next = after
        eye = jnp.eye(size, dtype=dtype)
        y, Jy = _along(functools.partial(flat, k, x, u, frame), jnp.zeros(size, dtype), eye)
        new, J = _along(functools.partial(moved, k), y, Jy)
        J = jax.vmap(functools.partial(stages.numbers, frame_next), in_axes=1, out_axes=1)(J)
        J = jnp.concatenate([J, eye[n : n + free]])
        slope, H = _quadratic(lambda y: cost(k, y, multipliers), y, Jy)
        off = new - x_next
        return J, stages.numbers(frame_next, off), off, slope, H

    def bend(
        k: Instant, x: Array, u: Array, frame: Frame, after: Any, multipliers: Array, costate: Array, H: Array
    ) -> Array:
        def promised(z: Array) -> Array:
            y = flat(k, x, u, frame, z)
            s = stages.numbers(after[1], moved(k, y) - after[0])
            return jnp.dot(costate[:n], s) + _sum(cost(k, y, multipliers))[1]

        return _bent(promised, H)

    before, after = (jax.tree.map(operator.itemgetter(i), (xs, frames)) for i in (slice(-1), slice(1, None)))
    each = _but_last(instants), before[0], us, before[1], after, penalty.bounds[:-1]
    J, gap, off, slope, H = jax.vmap(scalarize(one, fallback="xla"))(*each)
    last = functools.partial(flat, _last(instants), xs[-1], us[0], _last(frames))
    y, Jy = _along(last, jnp.zeros(size, dtype), jnp.eye(size, dtype=dtype)[:, : n + free])
    end_slope, end_curve = _quadratic(end_cost, y, Jy)
    if not stages.exact:
        return Model(J, gap, off, slope, H, end_slope, end_curve, None, None), frames

    def adjoint(costate: Array, stage: Any) -> tuple[Array, Array]:
        J, slope = stage
        return (slope + J.T @ costate)[: n + free], costate

    _, costates = jax.lax.scan(adjoint, end_slope, (J, slope), reverse=True)
    more = jax.vmap(scalarize(bend, fallback="xla"))(*each, costates, H)
    at_end = lambda z: _sum(end_cost(last(jnp.append(z, jnp.zeros(p, dtype)))))[1]
    return Model(J, gap, off, slope, H, end_slope, end_curve, more, _bent(at_end, end_curve)), frames


# --- The sweep back


def _least_in_box(H: Array, g: Array, low: Array, high: Array) -> tuple[Array, Array, Array]:
    """The x of least g.x + x.H x / 2 in a box by projected Newton, which are free there, and the root of their H."""
    size = g.size
    eye = jnp.eye(size, dtype=g.dtype)

    def free_at(x: Array) -> Array:
        slope = g + H @ x
        return ~(((x <= low) & (slope > 0)) | ((x >= high) & (slope < 0)))

    def root_of(free: Array) -> Array:
        return jnp.linalg.cholesky(jnp.where(free[:, None] & free[None, :], H, eye))

    def value(x: Array) -> Array:
        return jnp.dot(g, x) + 0.5 * jnp.dot(x, H @ x)

    def goes_on(state: Any) -> Array:
        return state[2] & (state[1] < 4 * size + 4)

    def newton(state: Any) -> Any:
        x, count, _ = state
        free = free_at(x)
        slope = jnp.where(free, g + H @ x, 0.0)
        step = -jax.scipy.linalg.cho_solve((root_of(free), True), slope)
        promised, here = jnp.dot(slope, step), value(x)

        def too_long(state: Any) -> Array:
            alpha, _ = state
            new = jnp.clip(x + alpha * step, low, high)
            return (value(new) > here + 0.1 * jnp.dot(slope, new - x)) & (alpha > 1e-6)

        alpha, _ = jax.lax.while_loop(too_long, lambda s: (0.5 * s[0], 0), (jnp.ones_like(here), 0))
        new = jnp.clip(x + alpha * step, low, high)
        moved = jnp.max(jnp.abs(new - x)) > 1e-12 * (1.0 + jnp.max(jnp.abs(new)))
        return new, count + 1, moved & (promised < 0)

    x, _, _ = jax.lax.while_loop(goes_on, newton, (jnp.clip(0.0 * g, low, high), 0, jnp.asarray(True)))
    free = free_at(x)
    return x, free, root_of(free)


def _floor(size: Array, damping: Array) -> Array:
    """What is added to a curvature of some size: in its own units, as costs and inputs may be in any."""
    return (damping + 1e-14) * jnp.where(size > 0, size, 1.0)


def sweep_back(
    free_time: bool,
    boxed: bool,
    model: Model,
    us: Array,
    low: Array,
    high: Array,
    of_T: tuple[Array, Array],
    damping: Array,
    share: Array,
) -> tuple[Policy, Array, Array]:
    """The policy, and the slope and the curvature of the merit along what it changes."""
    n, p = model.J.shape[1], us.shape[1]
    if model.bend is not None and model.end_bend is not None:
        model = model._replace(
            H=model.H + share * model.bend, end_curve=model.end_curve + share * model.end_bend
        )

    def stage(value: tuple[Array, Array], at: Any) -> Any:
        Vx, Vxx = value
        J, gap, slope, H, u = at
        Vx = Vx + Vxx[:, : gap.size] @ gap
        Q, Qz = H + J.T @ (Vxx @ J), slope + J.T @ Vx
        Quu, Qux, Qu = Q[n:, n:], Q[n:, :n], Qz[n:]
        size = jnp.trace(jnp.abs(Quu)) / p
        damped = Quu + _floor(size, damping) * jnp.eye(p, dtype=u.dtype)
        if boxed:
            k, free, root = _least_in_box(damped, Qu, low - u, high - u)
            K = -jax.scipy.linalg.cho_solve((root, True), jnp.where(free[:, None], Qux, 0.0))
        else:
            root = jnp.linalg.cholesky(damped)
            k, K = (-jax.scipy.linalg.cho_solve((root, True), x) for x in (Qu, Qux))
        Vx = Qz[:n] + K.T @ (Quu @ k + Qu) + Qux.T @ k
        Vxx = Q[:n, :n] + K.T @ Quu @ K + K.T @ Qux + Qux.T @ K
        return (Vx, 0.5 * (Vxx + Vxx.T)), (k, K)

    stages = (model.J, model.gap, model.slope, model.H, us)
    (Vx, Vxx), (k, K) = jax.lax.scan(stage, (model.end_slope, model.end_curve), stages, reverse=True)
    dT = jnp.zeros((), us.dtype)
    if free_time:
        curvature = jnp.abs(Vxx[-1, -1])
        curvature = curvature + _floor(curvature, damping)
        dT = jnp.clip(-Vx[-1] / curvature, *of_T)

    def onwards(state: tuple[Array, Array, Array], at: Any) -> Any:
        x, g, c = state
        J, gap, slope, H, k, K = at
        z = jnp.concatenate([x, k + K @ x])
        x = J @ z + (jnp.append(gap, 0.0) if free_time else gap)
        return (x, g + jnp.dot(slope, z), c + jnp.dot(z, H @ z)), None

    zero = jnp.zeros((), us.dtype)
    start = jnp.zeros(n, us.dtype).at[-1].set(dT) if free_time else jnp.zeros(n, us.dtype)
    stages = (model.J, model.gap, model.slope, model.H, k, K)
    (x, g, c), _ = jax.lax.scan(onwards, (start, zero, zero), stages)
    g, c = g + jnp.dot(model.end_slope, x), c + jnp.dot(x, model.end_curve @ x)
    return Policy(k, K, dT), g, c


# --- The run forward


def run_forward(
    stages: Stages, given: Given, at: Search, frames: Frame, off: Array, policy: Policy, alpha: Array
) -> tuple[Array, Array, Array, Array]:
    """States, inputs, T, and both costs of a step of the search."""
    T = at.T + alpha * policy.longer
    h = T / stages.steps
    apart = jnp.any(off != 0.0) & (alpha < 1.0)

    def one(state: tuple[Array, Array], stage: Any) -> Any:
        x, cost = state
        k, x0, u0, frame, after_frame, off, dk, K, multipliers = stage
        s = stages.numbers(frame, x - x0)
        s = jnp.append(s, T - at.T) if stages.free_time else s
        u = jnp.clip(u0 + alpha * dk + K @ s, given.low, given.high)
        t = stages.time(given.t0, T, k)
        cost = cost + _sum(_stage_cost(stages, given, T, k, x, u, (multipliers, at.penalty.weight)))
        after = stages.onwards(k, t, x, u, h)
        kept = lambda y: stages.brought_back(after_frame, t + h, y + (alpha - 1.0) * off, 4)
        return (jax.lax.cond(apart, kept, lambda y: y, after), cost), (x, u)

    first, later = (jax.tree.map(operator.itemgetter(i), frames) for i in (slice(-1), slice(1, None)))
    index, bounds = _but_last(stages.instants), at.penalty.bounds[:-1]
    each = (index, at.xs[:-1], at.us, first, later, off, policy.k, policy.K, bounds)
    (x, cost), (xs, us) = jax.lax.scan(one, (at.xs[0], jnp.zeros(2, at.xs.dtype)), each)
    cost = cost + _sum(_end_cost(stages, given, T, x, at.penalty))
    return jnp.concatenate([xs, x[None]]), us, T, cost


def first_run(stages: Stages, t0: Array, x: Array, us: Array, T: Array) -> Array:
    """The states that inputs lead through."""
    h = T / stages.steps

    def one(x: Array, at: Any) -> tuple[Array, Array]:
        k, u = at
        x = stages.onwards(k, stages.time(t0, T, k), x, u, h)
        return x, x

    _, xs = jax.lax.scan(one, x, (_but_last(stages.instants), us))
    return jnp.concatenate([x[None], xs])


# --- The search


def _costs(stages: Stages, given: Given, xs: Array, us: Array, T: Array, penalty: Penalty) -> Array:
    of = lambda k, x, u, m: _sum(_stage_cost(stages, given, T, k, x, u, (m, penalty.weight)))
    each = jax.vmap(scalarize(of, fallback="xla"))(
        _but_last(stages.instants), xs[:-1], us, penalty.bounds[:-1]
    )
    return jnp.sum(each, axis=0) + _sum(_end_cost(stages, given, T, xs[-1], penalty))


def _off(stages: Stages, given: Given, xs: Array, us: Array, T: Array) -> tuple[Array, Array]:
    """How far states are beyond bounds (steps + 1, b), and what does not vanish at the end."""
    us, t = jnp.concatenate([us, jnp.zeros_like(us[:1])]), stages.time(given.t0, T, stages.instants)
    return jax.vmap(scalarize(stages.beyond, fallback="xla"))(stages.instants, t, xs, us), stages.missed(
        t[-1], xs[-1]
    )


def _violation(beyond: Array, missed: Array) -> Array:
    return jnp.maximum(jnp.max(beyond, initial=0.0), jnp.max(jnp.abs(missed), initial=0.0))


def start_search(stages: Stages, given: Given) -> Search:
    follow = lambda xs: first_run(stages, given.t0, xs[0], given.us, given.T)
    xs = jax.lax.cond(given.runs, follow, lambda xs: xs, given.xs)
    beyond, missed = _off(stages, given, xs, given.us, given.T)
    unit = given.penalty._replace(weight=jnp.ones_like(given.T))
    own = _costs(stages, given, xs, given.us, given.T, unit)[0]
    # Birgin and Martinez 2014, section 12.4.
    size = 0.5 * (jnp.sum(jnp.maximum(beyond, 0.0) ** 2) + jnp.sum(missed**2))
    weight = jnp.clip(10.0 * jnp.maximum(1.0, jnp.abs(own)) / jnp.maximum(1.0, size), 1e-3, 1e3)
    weight = jnp.where(given.penalty.weight > 0, given.penalty.weight, weight)
    penalty = given.penalty._replace(weight=weight)
    costs = _costs(stages, given, xs, given.us, given.T, penalty)
    violation, zero = _violation(beyond, missed), jnp.zeros_like(given.T)
    shape = stages.steps, given.us.shape[1], xs.shape[1]
    status = jnp.where(jnp.all(jnp.isfinite(xs)), SEARCHING, LOST)
    return Search(
        xs,
        given.us,
        given.T,
        costs[0],
        costs[1],
        penalty,
        zero,
        jnp.ones_like(zero),
        zero,
        violation,
        violation,
        zero,
        zero,
        jnp.zeros(shape, given.xs.dtype),
        jnp.zeros((), jnp.int32),
        status.astype(jnp.int32),
    )


def _in_full(stages: Stages, K: Array, frames: Frame) -> Array:
    """The feedback by changes of (q, v) (steps, p, n_q + n)."""
    unit = jnp.eye(frames.N.shape[1] + frames.Zv.shape[1], dtype=K.dtype)

    def one(K: Array, frame: Frame) -> Array:
        s = jax.vmap(functools.partial(stages.numbers, frame), out_axes=1)(unit)
        return K[:, : len(s)] @ s

    return jax.vmap(one)(K, _but_last(frames))


def _more_convex(damping: Array, share: Array) -> tuple[Array, Array]:
    """After a pass that failed: less of the second derivatives that may be negative, and without them more damping."""
    none = share < 0.1
    return jnp.where(none, jnp.maximum(10.0 * damping, 1e-6), damping), jnp.where(none, 0.0, 0.5 * share)


def one_pass(stages: Stages, given: Given, boxed: bool, tolerances: Any, at: Search) -> Search:
    tolerance, close = tolerances
    model, frames = linearize(stages, given, at)
    gap = jnp.max(jnp.abs(model.gap), initial=0.0)
    off = jnp.where(gap > close * 1e-3, model.off, 0.0)
    model = model._replace(gap=jnp.where(gap > close * 1e-3, model.gap, 0.0))
    of_T = (given.shortest - at.T, given.longest - at.T)
    n, p = model.J.shape[1], at.us.shape[1]

    def attempt(state: Any) -> Any:
        damping, share, *_ = state
        policy, g, c = sweep_back(
            stages.free_time, boxed, model, at.us, given.low, given.high, of_T, damping, share
        )
        sound = jnp.isfinite(g) & jnp.isfinite(c)
        more, less = _more_convex(damping, share)
        return jnp.where(sound, damping, more), jnp.where(sound, share, less), policy, g, c, sound

    def fails(state: Any) -> Array:
        return ~state[-1] & (state[0] < _MOST_DAMPING)

    zero = jnp.zeros_like(at.T)
    none = Policy(jnp.zeros_like(at.us), jnp.zeros((stages.steps, p, n), at.us.dtype), zero)
    start = at.damping, at.share, none, zero, zero, jnp.asarray(False)
    damping, share, policy, g, c, sound = jax.lax.while_loop(fails, attempt, start)
    at = at._replace(damping=damping, share=share)
    total = jnp.sum(jnp.abs(model.gap))
    needed = jnp.where(total > 0, 2.0 * jnp.maximum(g + 0.5 * jnp.maximum(c, 0.0), 0.0) / total, 0.0)
    gap_weight = jnp.maximum(at.gap_weight, needed)
    promised = g - gap_weight * total
    merit = at.merit + gap_weight * total
    penalized = stages.is_bounded or stages.end is not None
    enough = tolerance * (1.0 + jnp.abs(at.merit))
    if penalized:
        # Inexactly as long as weights are to grow; above the most, so far that it shows whether they still help.
        left = jnp.where(at.penalty.weight > _MOST_WEIGHT, 0.4 * _SHARE, 0.25)
        enough = jnp.maximum(enough, left * at.penalty.weight * at.violation**2)
    settled = sound & (jnp.abs(g) * (1.0 + damping) <= enough) & (gap <= close)
    at = at._replace(
        gap_weight=gap_weight, gap=gap, K=_in_full(stages, policy.K, frames), iterations=at.iterations + 1
    )

    def renew(at: Search) -> Search:
        beyond, missed = _off(stages, given, at.xs, at.us, at.T)
        violation = _violation(beyond, missed)
        bounds, end, weight = at.penalty
        bounds = jnp.maximum(0.0, bounds + weight * beyond)
        end = end + weight * missed
        falls = violation <= 0.25 * at.renewed
        promised = jnp.abs(g) / (weight * violation**2)
        helps = (promised > jnp.minimum(_SHARE, _GROWN * at.share_promised)) | (
            violation < _FALLEN * at.renewed
        )
        weight = jnp.where(falls, weight, _HEAVIER * weight)
        status = jnp.where(violation <= close, CONVERGED, SEARCHING)
        status = jnp.where((status == SEARCHING) & (weight > _MOST_WEIGHT) & ~helps, VIOLATED, status)
        done = status != SEARCHING
        penalty = Penalty(bounds, end, weight)
        merit = jnp.where(done, at.merit, _costs(stages, given, at.xs, at.us, at.T, penalty)[1])
        penalty = jax.tree.map(lambda old, new: jnp.where(done, old, new), at.penalty, penalty)
        return at._replace(
            merit=merit,
            penalty=penalty,
            renewed=violation,
            share_promised=promised,
            violation=violation,
            status=status.astype(jnp.int32),
        )

    def search(at: Search) -> Search:
        def good(alpha: Array, cost: Array) -> Array:
            slack = 1e-12 * (1.0 + jnp.abs(merit))
            new = cost[1] + gap_weight * (1.0 - alpha) * total
            return new <= merit + _DECREASE * alpha * promised + slack  # not of NaN

        def goes_on(state: Any) -> Array:
            alpha, (_, _, _, cost) = state
            return ~good(alpha, cost) & (alpha > _SHORTEST)

        def shorter(state: Any) -> Any:
            alpha = 0.5 * state[0]
            return alpha, run_forward(stages, given, at, frames, off, policy, alpha)

        none = at.xs, at.us, at.T, jnp.full(2, jnp.inf, at.T.dtype)
        alpha, (xs, us, T, cost) = jax.lax.while_loop(goes_on, shorter, (2.0 * jnp.ones_like(at.T), none))
        accepted = good(alpha, cost) & sound
        less = jnp.where(at.damping < 10 * _LEAST_DAMPING, 0.0, 0.1 * at.damping)
        more, flatter = _more_convex(at.damping, at.share)
        damping = jnp.where(accepted & (alpha > 0.2), less, jnp.where(accepted, at.damping, more))
        more_share = jnp.minimum(1.0, jnp.maximum(2.0 * at.share, 0.125))
        share = jnp.where(accepted & (alpha > 0.2), more_share, jnp.where(accepted, at.share, flatter))
        violation = _violation(*_off(stages, given, xs, us, T))
        new = at._replace(xs=xs, us=us, T=T, cost=cost[0], merit=cost[1], violation=violation)
        new = jax.tree.map(lambda x, y: jnp.where(accepted, x, y), new, at)
        status = jnp.where(damping > _MOST_DAMPING, STUCK, SEARCHING).astype(jnp.int32)
        return new._replace(damping=damping, share=share, status=status)

    return jax.lax.cond(settled, renew, search, at)


@functools.partial(JitByZeros, kinds=DYNAMICS)
def solve(stages: Stages, given: Given, boxed: bool, tolerances: Any, most: Array) -> Search:
    """The whole search, as one program."""

    def search(given: Given, tolerances: Any, most: Array) -> Search:
        goes_on = lambda at: (at.status == SEARCHING) & (at.iterations < most)
        one = functools.partial(one_pass, stages, given, boxed, tolerances)
        at = jax.lax.while_loop(goes_on, one, start_search(stages, given))
        return at._replace(status=jnp.where(at.status == SEARCHING, ITERATIONS, at.status))

    return scalarize(search, fallback="xla")(given, tolerances, most)
