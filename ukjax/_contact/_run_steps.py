"""A run by equal time steps with contacts in a list: steps, saved states and impacts, in one loop."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from .._formula._contact_list import entry, fill_entries, loop, put
from .._misc._blank import blank
from ._rows import Coefficients
from ._step_derivatives import SmoothStep
from ._step_states import StepContacts, StepRecord, StepState


class Saved(NamedTuple):
    """What is told of k saved states, row after row: states, between steps in proportion, and of contacts what a step
    knows, with forces in the axes of slip."""

    q: Array
    v: Array
    push: Array
    force: Array
    closed: Array
    sliding: Array
    ambiguous: Array


class Impacts(NamedTuple):
    """The first steps with impacts: when, impulses, modes after them, and the residual."""

    time: Array
    impulse: Array
    closed: Array
    sliding: Array
    residual: Array


class StepsRun(NamedTuple):
    """What a run leaves.

    - `saved`, `impacts`: see there.
    - `residual`, `solver_steps`, `unsolved`: the largest residual, Newton steps, and steps with large residuals.
    - `num_impacts`: how many steps had impacts.
    - `finite`, `off`: whether all states were, and whether the last one is off the bilateral rows, where it stopped.
    - `steps`, `rejected`: how many it took, parts of steps included, and how many were taken again as they were too long.
    - `passed`: how many steps were too long, and were not taken again.
    - `until`: the time that it reached.
    - `full`: whether it ended where more contacts touch at once than there is room for.
    """

    saved: Saved
    impacts: Impacts
    residual: Array
    solver_steps: Array
    unsolved: Array
    num_impacts: Array
    finite: Array
    off: Array
    steps: Array
    rejected: Array
    passed: Array
    until: Array
    full: Array


def _write(x: Array, row: Array, values: Array, count: int, times: Array) -> Array:
    """x with a row from the first entries of some values; nothing for zero `times`."""
    return loop(times * count, lambda i, x: put(x, row * count + i, entry(values, i)), x)


def _scatter(x: Array, row: Array, contacts: StepContacts, values: Array, count: int) -> Array:
    """x with entries of a row from values of contacts in a list."""
    place = lambda j, x: put(x, row * count + entry(contacts.contact, j), entry(values, j))
    return loop(contacts.number, place, x)


# Of a step, the least part: a body that moves a thousand times its thickness in a step is as fast as anything.
_LEAST_PART = 1e-3
_ENOUGH = 0.999  # of a part: one that is too long by less is not taken again, which might go on without end


class _Loop(NamedTuple):
    """What the loop over steps carries: which step it is in, how much of that is done, the last state, how many states
    are saved, and the run so far."""

    i: Array
    done: Array
    last: StepState
    saved: Array
    run: StepsRun


class _Attempt(NamedTuple):
    """A step, or a part of it: whether it is to be taken again, which part, whether it is looked at in any case, how many
    were too long, whether this one was, the state after it, and what its derivatives need."""

    again: Array
    part: Array
    looks: Array
    rejected: Array
    passes: Array
    after: StepState
    record: StepRecord | None


def run_steps(
    step: SmoothStep,
    coefficients: Coefficients,
    y0: tuple[Array, Array],
    grid: tuple[Array, Array, Array],
    ts: Array,
    most: int,
    unsolved: float,
    *,
    stops: bool,
    splits: bool,
) -> StepsRun:
    """A run. A step in which thin bodies would pass through each other, or at whose end they penetrate, is split into
    parts, if it `splits` steps."""
    (q, v), (t0, h, steps), dtype = y0, grid, y0[0].dtype
    n, m, k = len(step.step.layout.contacts), step.step.rows, ts.size
    new = lambda *sizes: [blank(rows * max(count, 1), dtype) for rows, count in sizes]
    saved = Saved(*new((k, q.size), (k, v.size), (k, v.size), (k, m), (k, n), (k, n), (k, n)))
    times, *others = new((most, 1), (most, m), (most, n), (most, n), (most, 1))
    impacts = Impacts(fill_entries(times, 0, jnp.inf, most), *(fill_entries(x, 0, 0, x.size) for x in others))
    zero, none = jnp.zeros((), dtype), jnp.asarray(0)
    yes = jnp.asarray(True)
    counts = none, none, yes, ~yes, none, none, none, t0, ~yes
    begun = step.before(t0, q, v)
    start = _Loop(none, zero, begun, none, StepsRun(saved, impacts, zero, zero, *counts))

    def is_within(j: Array, i: Array, upto: Array) -> Array:
        """Whether saved time j is in step i up to a share of it, or before."""
        place = (entry(ts, jnp.minimum(j, k - 1)) - t0) / h
        number = jnp.clip(jnp.ceil(place - 1e-9) - 1, 0, (steps - 1).astype(dtype))
        before = (place - i.astype(dtype) <= upto + 1e-9) | (upto >= 1)
        return (j < k) & ((number < i.astype(dtype)) | ((number == i.astype(dtype)) & before))

    def taken(so_far: _Loop) -> _Loop:
        i, done, last, run = so_far.i, so_far.done, so_far.last, so_far.run
        t = t0 + h * (i.astype(dtype) + done)
        going = run.finite & ~run.off

        def attempt(c: _Attempt) -> _Attempt:
            looks = c.looks | is_within(so_far.saved, i, done + c.part)
            from_last = last._replace(kept=c.after.kept)
            after, record = step.solve(t, h * c.part, from_last, coefficients, looks, c.after.contacts)
            share = step.share_without_passing(t, h * c.part, last, after)
            passes = share < _ENOUGH
            share = jnp.where(after.deep & stops, jnp.minimum(share, 0.5), share)
            shorter = (passes | (after.deep & stops)) & (c.part > _LEAST_PART) & splits
            # The last step of a run is looked at, which is known after it: it is taken once more.
            ends = (after.off | after.deep) & ~looks & stops
            part = jnp.where(shorter, jnp.maximum(share * c.part, _LEAST_PART), c.part)
            rejected = c.rejected + shorter.astype(i.dtype)
            looks = c.looks | (ends & ~shorter)
            return _Attempt(shorter | ends, part, looks, rejected, passes, after, record)

        record = None if step.held is None else step.step.no_record(last)
        before = last._replace(contacts=step.step.no_contacts(dtype))
        begun = _Attempt(going, 1 - done, ~yes, none, ~yes, before, record)
        tried = lax.while_loop(lambda c: c.again, attempt, begun)
        after, part = tried.after, tried.part
        solved = after.contacts
        after = step.differentiate(t, h * part, last, coefficients, after, tried.record)
        upto = done + part
        finite = run.finite & jnp.all(jnp.isfinite(after.q)) & jnp.all(jnp.isfinite(after.v))
        finite &= jnp.isfinite(after.residual)
        full = run.full | (run.finite & (after.residual == jnp.inf))
        stays = ~(going & finite)
        kept = loop(stays.astype(i.dtype), lambda _, x: last._replace(kept=[]), after._replace(kept=[]))
        impacts, going = run.impacts, (going & finite).astype(i.dtype)
        told = (kept.hit & (run.num_impacts < most)).astype(i.dtype) * going
        place = jnp.minimum(run.num_impacts, most - 1)
        list_of = kept.contacts
        impulse = lambda at, a: entry(list_of.p, at) * entry(coefficients.scale, a)
        is_struck = lambda j: entry(list_of.struck, j) > 0
        strike = lambda j, at, a, x: put(x, place * m + a, jnp.where(is_struck(j), impulse(at, a), 0))
        written = list_of._replace(number=told * list_of.number)
        mode = lambda x, y: _scatter(x, place, written, y, n)
        impacts = Impacts(
            _write(impacts.time, place, jnp.reshape(t + 0.5 * h * part, (1,)), 1, told),
            step.step.over_rows(written, strike, impacts.impulse),
            mode(impacts.closed, list_of.closed),
            mode(impacts.sliding, list_of.sliding),
            _write(impacts.residual, place, jnp.reshape(kept.residual, (1,)), 1, told),
        )
        run = run._replace(
            impacts=impacts,
            residual=jnp.maximum(run.residual, kept.residual),
            solver_steps=run.solver_steps + going.astype(dtype) * kept.solver_steps,
            unsolved=run.unsolved + going * (kept.residual > unsolved).astype(i.dtype),
            num_impacts=run.num_impacts + going * kept.hit.astype(i.dtype),
            finite=finite,
            off=(kept.off | kept.deep) & stops,
            steps=run.steps + going,
            rejected=run.rejected + tried.rejected,
            passed=run.passed + going * tried.passes.astype(i.dtype),
            until=jnp.where(going > 0, t0 + h * (i.astype(dtype) + upto), run.until),
            full=full,
        )

        def save(c: tuple[Array, Saved]) -> tuple[Array, Saved]:
            j, saved = c
            there = jnp.where(run.off | ~run.finite, jnp.minimum(entry(ts, j), run.until), entry(ts, j))
            s = ((there - t0) / h - i.astype(dtype) - done) / part
            q, v = ((1 - s) * x + s * y for x, y in ((last.q, kept.q), (last.v, kept.v)))
            one, own = jnp.asarray(1), kept.contacts
            clear = lambda x, size: fill_entries(x, j * size, 0, size)
            force = step.step.over_rows(
                own,
                lambda _, at, a, x: put(x, j * m + a, impulse(at, a) / (h * part)),
                clear(saved.force, m),
            )
            closed, sliding, ambiguous = (
                _scatter(clear(x, n), j, own, y, n)
                for x, y in (
                    (saved.closed, own.closed),
                    (saved.sliding, own.sliding),
                    (saved.ambiguous, own.ambiguous),
                )
            )
            values = (saved.q, q, q.size), (saved.v, v, v.size), (saved.push, kept.push, v.size)
            rows = [_write(x, j, y, size, one) for x, y, size in values]
            rows += [force, closed, sliding, ambiguous]
            return j + 1, Saved(*rows)

        is_saved = lambda c: is_within(c[0], i, upto)
        number, saved = lax.while_loop(is_saved, save, (so_far.saved, run.saved))
        # What is left of a step may be rounding.
        whole = upto > 1 - 1e-3 * _LEAST_PART
        i, done = i + whole.astype(i.dtype), jnp.where(whole, 0, upto)
        # Without derivatives, and in the place of the former ones.
        guess = kept.contacts if step.held is None else solved
        guess = loop(going, lambda _, x: x.replace_by(guess), last.contacts)
        last = kept._replace(contacts=guess, kept=after.kept)
        return _Loop(i, done, last, number, run._replace(saved=saved))

    return lax.while_loop(lambda c: c.i < steps, taken, start).run
