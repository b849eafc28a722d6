"""Time stepping with contacts at velocity level: Moreau's scheme (Moreau 1988; Jean 1999), with positions projected.

A step of length h takes the state (q, v) to

    q' = q + h/2 N v,    M (v+ - v) = h Q + A^T lambda + J^T p    at q',    q+ = q + h/2 N (v + v+),

where impulses p obey Signorini's condition and Coulomb's law after the step:

    0 <= p_n  perp  u_n+ + b >= 0,    |p_t| <= mu p_n + h c,    u_t+ != 0  =>  p_t = -(mu p_n + h c) u_t+ / |u_t+|.

A contact that bounces obeys Newton's law, b = e u_n-. It takes part if it touches as the step begins, or if the motion
without impulses would close its gap by the middle. For others b = max(g, 0) / h with the gap g in the middle: the next
middle, a step later, is at g + h u_n+, and that is not to be negative. So these take part before they touch, all whose
bodies are no farther apart than the ways of both until then. Otherwise a body that rolls on another, whose gap opens by
h^2 v^2 / 2R in a step as bodies are curved, would lose its contact for one step, and a stack above it as well.

A contact of stiffness k and damping d is a spring and damper at the end of the step, p = -h (k g+ + d u_n+) >= 0. With
its gap g in the middle, which its velocity takes to g+ = g + h u_n+ / 2, and no restitution, this is

    0 <= p_n  perp  u_n+ + c p_n + b >= 0,    c = 1 / (h (h k / 2 + d)),    b = k g / (h k / 2 + d).

Bilateral rows are held by W = M^-1 - M^-1 A^T (A M^-1 A^T)^+ A M^-1 in place of M^-1. Then positions are pushed out of
rigid contacts (`_penetration`), and positions and velocities projected onto the bilateral rows.

Springs and dampers of single coordinates, of stiffness k and damping c, are linearized about the middle of the step:
they add h c / 2 + h^2 k / 4 to the diagonal of M there, and stay stable however stiff they are.

What closes slower than three times the change of speed that forces make within a step does not bounce: so bouncing
ends in contact.

Steps do not end at impacts, so any number of contacts and infinitely many impacts cost no more than others, and the
motion is of first order in h. Forces alone are of second order.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._compiler._structured._scalarize import LeftToXLA, explain_fallback, scalarize
from .._formula._contact_list import entry, item, loop, put
from .._misc._blank import blank
from .._misc._derivatives import forward_only
from .._misc._errors import InputError, Untranslatable
from .._misc._types import choose_by_precision
from .._motion._model import Model
from ._bilateral import BilateralMotion
from ._history import ContactHistory
from ._kinds import kinds_of
from ._moreau import ContactStep
from ._rows import Coefficients, ContactLayout, in_pieces
from ._run_steps import StepsRun, run_steps
from ._step_derivatives import SmoothStep

# Of the scaled problem: a residual above it means that impulses do not obey the laws.
_UNSOLVED = (1e-8, 1e-3)
_FORWARD = (
    "reverse-mode differentiation (jax.grad, jax.jacrev) cannot go through contact steps without scalar code, as {}: "
    "take jax.jvp or jax.jacfwd, or write what has none otherwise."
)


class TimeSteppingRun(NamedTuple):
    """A motion by time stepping, at its k saved times.

    - `t`, `q`, `v`: saved times (k,), infinite where they were not reached, and states (k, n_q), (k, n), there the last.
    - `t_end`: where it stopped, infinite if it did not.
    - `push`: the generalized force of the contacts there (k, n).
    - `contacts`: what became of the contacts, without their gaps, which `gaps_along` computes.
    - `residual`: the largest of all steps, as in `solve_contacts`.
    - `solver_steps`: of the complementarity problems, all together.
    - `impacts`: how many steps had impacts.
    - `unsolved`: in how many steps the residual stayed large; there impulses do not obey the laws.
    - `diverged`: whether a state was not finite; the run stops at the last one that was.
    - `full`: whether more contacts touched at once than there is room for; likewise.
    - `steps`, `rejected`, `passed`: how many were taken, parts of steps included, were taken again in parts, and were so
      long that bodies may have passed through each other.
    - `left`: why they are left to XLA, if they are.
    """

    t: Float[Array, " k"]
    t_end: Float[Array, ""]
    q: Float[Array, "k nq"]
    v: Float[Array, "k n"]
    push: Float[Array, "k n"]
    contacts: ContactHistory
    residual: Float[Array, ""]
    solver_steps: Int[Array, ""]
    impacts: Int[Array, ""]
    unsolved: Int[Array, ""]
    diverged: Bool[Array, ""]
    full: Bool[Array, ""]
    steps: Int[Array, ""]
    rejected: Int[Array, ""]
    passed: Int[Array, ""]
    left: LeftToXLA = LeftToXLA()


def steps_within(t0: float, t1: float, h: float) -> int:
    """The number of equal steps from t0 to t1 that are at most h long.

    **Raises:** `InputError` for a step that is not positive.
    """
    if not h > 0:
        raise InputError(f"the time step must be positive, got {h}.")
    return max(1, math.ceil((t1 - t0) / h * (1 - 1e-12)))


def contact_step(model: Model, layout: ContactLayout, t: Array, q: Array, v: Array) -> ContactStep:
    """A step over a list of contacts."""
    system: Any = model.system
    kinds = kinds_of(system.system, model.kinds, t, q, v)
    motion = BilateralMotion(model, (q.size, v.size))
    return ContactStep(kinds, layout, v.size, motion.step_freely, motion.arrive, motion.kinematics)


def _smooth_step(smooth: bool, model: Model, layout: ContactLayout, *state: Array) -> SmoothStep:
    """A step that has derivatives if it is `smooth`."""
    step = contact_step(model, layout, *state)
    if not smooth:
        return SmoothStep(step, None)
    arrays, rest = eqx.partition(model, eqx.is_array)
    still = eqx.combine(jax.lax.stop_gradient(arrays), rest)
    return SmoothStep(step, contact_step(still, layout, *jax.lax.stop_gradient(state)))


def _run_with_derivatives(
    given: Any, by_list: Callable[..., Any], finish: Callable[..., Any]
) -> tuple[Any, LeftToXLA]:
    """What `finish` makes of a function of pytrees, as a program of scalars. Its derivatives are those of another one, in
    which steps are smooth: what takes steps alone need not be larger for it."""
    arrays, rest = eqx.partition(given, eqx.is_array)
    flat, tree = jax.tree.flatten(arrays)
    whole, left = lambda flat: eqx.combine(jax.tree.unflatten(tree, flat), rest), LeftToXLA()
    plain, smooth = (
        scalarize(functools.partial(lambda it, *flat: by_list(it, *whole(flat)), it)) for it in (False, True)
    )

    def run_by(fn: Any, *flat: Array) -> Any:
        nonlocal left
        try:
            found = fn(*flat)
        except Untranslatable as error:
            left = explain_fallback(error)
            found = forward_only(fn.__wrapped__(*flat), _FORWARD.format(left.reason))
        return finish(found, fn is smooth, *whole(flat))

    @jax.custom_jvp
    def run(*flat: Array) -> Any:
        return run_by(plain, *flat)

    @run.defjvp
    def _(primals: tuple, tangents: tuple) -> Any:
        return run(*primals), jax.jvp(functools.partial(run_by, smooth), primals, tangents)[1]

    return run(*flat), left


def one_step(
    model: Model,
    layout: ContactLayout,
    coefficients: Coefficients,
    t: Array,
    y: tuple[Array, Array],
    h: Array,
) -> tuple[Array, Array]:
    """The state (q, v) after one step; NaN where it is not finite, or more contacts touch than there is room for."""

    def by_list(
        smooth: bool, model: Model, coefficients: Coefficients, t: Array, y: Any, h: Array
    ) -> tuple[Array, Array]:
        step = _smooth_step(smooth, model, layout, t, *y)
        given = t, h, step.before(t, *y), coefficients
        into = step.step.no_contacts(y[0].dtype)
        after = step.differentiate(*given, *step.solve(*given, jnp.asarray(False), into))
        finite = (
            jnp.all(jnp.isfinite(after.q)) & jnp.all(jnp.isfinite(after.v)) & jnp.isfinite(after.residual)
        )
        return jnp.where(finite, after.q, jnp.nan), jnp.where(finite, after.v, jnp.nan)

    given = in_pieces(model), coefficients, t, y, h
    return _run_with_derivatives(given, by_list, lambda end, *_: end)[0]


def run_time_stepping(
    model: Model,
    layout: ContactLayout,
    coefficients: Coefficients,
    y0: tuple[Float[Array, " nq"], Float[Array, " n"]],
    span: tuple[Array, Array],
    steps: int | Int[Array, ""],
    ts: Float[Array, " k"],
    *,
    most_impacts: int = 100,
    stops: bool = True,
    splits: bool = False,
) -> TimeSteppingRun:
    """The motion by equal time steps, as the module's docstring says; for use inside `jit`, `vmap` and `grad`.

    If it `splits` steps, those that take thin bodies through each other are taken in parts. Then derivatives are those of
    other steps.

    Saved states between steps are interpolated linearly, and projected onto the bilateral rows; forces there are impulses
    over h. An impact is a contact that closes faster than forces move it within one step; its time is that step's middle.

    Derivatives are those of the steps, by the implicit function theorem at each solution. They are not those of the
    motion, however small h is, where there are impacts: the time of an impact does not move with the state, but stays in
    its step. Of a ball that falls from h0 and bounces, d z/d h0 is +1, or 0 where its place was pushed out of the floor,
    instead of -0.208.

    With restitution in the normal direction and none in the tangential one, Moreau's law can create energy in an impact
    with friction.
    """
    dtype = y0[0].dtype
    unsolved = choose_by_precision(dtype, *_UNSOLVED)

    def by_list(
        smooth: bool,
        model: Model,
        coefficients: Coefficients,
        y0: Any,
        t0: Array,
        t1: Array,
        count: Array,
        ts: Array,
    ) -> tuple[TimeSteppingRun, Array]:
        h = (t1 - t0) / count.astype(dtype)
        step, grid = _smooth_step(smooth, model, layout, t0, *y0), (t0, h, count)
        found = run_steps(
            step, coefficients, y0, grid, ts, most_impacts, unsolved, stops=stops, splits=splits
        )
        t, there, t_end = _clip_saved_times(ts, h, found.off | ~found.finite, found.until)
        return _assemble_run(layout, found, (t, t_end), y0, most_impacts), there

    def finish(found: tuple[TimeSteppingRun, Array], smooth: bool, model: Model, *_: Any) -> TimeSteppingRun:
        told, there = found
        if not model.system.constraints:
            return told
        # By the code that the start is projected by, which is large: once is enough for it to be in a program. In reverse
        # mode JAX 0.10 refuses this map: "Expected cotangent type".
        each = (lambda f, x: jax.vmap(f)(x)) if smooth else jax.lax.map
        q, v = each(lambda x: model.project(*x), (there, (told.q, told.v)))
        return told._replace(q=q, v=v)

    t0, t1 = (jnp.asarray(x, dtype) for x in span)
    given = in_pieces(model), coefficients, y0, t0, t1, jnp.asarray(steps), ts
    found, left = _run_with_derivatives(given, by_list, finish)
    return found._replace(left=left)


def gaps_along(
    model: Model,
    layout: ContactLayout,
    states: tuple[Float[Array, " k"], Float[Array, "k nq"], Float[Array, "k n"]],
    count: int | Int[Array, ""],
) -> Float[Array, "k n"]:
    """The gaps of all contacts at the first states (t, q, v) of some, also of bodies far apart, at which steps do not
    look. Each is begun from what was found at the one before."""
    n = len(layout.contacts)

    def by_list(_: bool, model: Model, count: Array, t: Array, q: Array, v: Array) -> Array:
        state = lambda i: (item(t, i), item(q, i))
        first = state(jnp.asarray(0))
        step = contact_step(model, layout, *first, item(v, jnp.asarray(0)))

        def look(i: Array, so_far: tuple[Array, list[Any]]) -> tuple[Array, list[Any]]:
            gaps, found = step.gaps_at(*state(i), so_far[1])
            return loop(n, lambda j, x: put(x, i * n + j, entry(gaps, j)), so_far[0]), found

        return loop(count, look, (blank(t.size * n, q.dtype), step.nothing_found(*first)))[0]

    given = in_pieces(model), jnp.asarray(count), *states
    return _run_with_derivatives(given, by_list, lambda gaps, *_: gaps)[0].reshape(-1, n)


def _clip_saved_times(ts: Array, h: Array, stopped: Array, until: Array) -> tuple[Array, Array, Array]:
    """Saved times, infinite after the end of a run that stopped; the same, at the end instead; and that end."""
    t_end = jnp.where(stopped, until, jnp.inf)
    there = jnp.minimum(ts, t_end)
    return jnp.where(ts <= t_end + 1e-9 * h, there, jnp.inf), there, t_end


def _assemble_run(
    layout: ContactLayout,
    found: StepsRun,
    t: tuple[Array, Array],
    y0: tuple[Array, Array],
    most: int,
) -> TimeSteppingRun:
    """What a run over a list of contacts has found."""
    ts, t_end = t
    k, n, m, saved, impacts = ts.size, len(layout.contacts), len(layout.owner), found.saved, found.impacts
    rows = lambda x, count: jnp.reshape(x[: k * count], (k, count))
    of_impacts = lambda x, count: jnp.reshape(x[: most * count], (most, count))
    time = impacts.time
    history = _history_of(
        layout,
        most,
        gap=None,
        force=rows(saved.force, m),
        closed=rows(saved.closed, n) > 0,
        sliding=rows(saved.sliding, n) > 0,
        ambiguous=rows(saved.ambiguous, n) > 0,
        event_time=time,
        impulse=of_impacts(impacts.impulse, m),
        event_closed=of_impacts(impacts.closed, n) > 0,
        event_sliding=of_impacts(impacts.sliding, n) > 0,
        residual=impacts.residual,
        num_events=found.num_impacts,
    )
    q, v, push = (rows(x, y.size) for x, y in ((saved.q, y0[0]), (saved.v, y0[1]), (saved.push, y0[1])))
    counts = found.solver_steps, found.num_impacts, found.unsolved, found.steps, found.rejected, found.passed
    solver_steps, count, unsolved, steps, rejected, passed = (x.astype(jnp.int32) for x in counts)
    ended = ~found.finite & ~found.full, found.full, steps, rejected, passed
    return TimeSteppingRun(
        ts, t_end, q, v, push, history, found.residual, solver_steps, count, unsolved, *ended
    )


def _history_of(layout: ContactLayout, most: int, **found: Any) -> ContactHistory:
    """What became of the contacts, with what time steps do not know."""
    time, none = found["event_time"], jnp.zeros(len(layout.contacts), bool)
    return ContactHistory(
        names=layout.names,
        contacts=layout.contacts,
        angles=layout.angles,
        turning=layout.turning,
        closed_before=none,
        sliding_before=none,
        speed=jnp.full(most, jnp.nan, time.dtype),
        sudden=jnp.zeros(most, bool),
        event_ambiguous=jnp.zeros((most, len(layout.contacts)), bool),
        reset=jnp.full(most, -1),
        reset_names=(),
        reset_moved=jnp.zeros(most, time.dtype),
        **found,
    )
