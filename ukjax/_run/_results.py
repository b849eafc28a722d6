"""How a run ended, and its motion between saved times."""

import dataclasses
import functools
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, final

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._contact._history import AT_TIMES
from .._formula._equations import equations_at
from .._misc._errors import ConstraintWarning, InputError
from .._misc._modules import LazyModule, make_unchecked
from .._misc._types import is_traced, module_for
from .._motion._project import Projection
from .._system._problem import Problem
from .._system._rows import most_off
from .._system._stabilize import AbstractStabilizer, NoStabilizer
from .._system._system import AbstractSystem

if TYPE_CHECKING:
    from ._trajectory import Trajectory


class RESULTS(dfx.RESULTS):  # pyright: ignore[reportGeneralTypeIssues]
    """How a simulation ended: Diffrax's codes, and those below."""

    diverged = (
        "The state or the acceleration became infinite or NaN: the motion diverged, the mass matrix lost its "
        "positive definiteness, or the pseudoinverse method met rows it cannot handle."
    )
    inconsistent_start = "No initial state near the one given satisfies the constraints."
    constraints_broken = (
        "The constraints could be kept no longer: they contradict each other, no position near by satisfies "
        "them, velocities would have to jump, or bodies are too light for the precision."
    )
    masses_too_far_apart = (
        "Masses are too far apart for the formula: what it says of light bodies is rounding of heavy ones."
    )
    too_many_contacts = (
        "More contacts touch at once than there is room for. Outside of jit, vmap and grad a run is made anew with more "
        "room by itself."
    )
    resets_accumulate = (
        "The resets of an event follow one another ever sooner, as the bounces of a ball do: what comes after them is "
        "not known. Give the system a contact (Unilateral, or a mechanism's Contact), which comes to rest, or stop the "
        "run by an event before."
    )
    mass_matrix_not_symmetric = "The mass matrix is not symmetric: write both of M[i, j] and M[j, i]."
    times_not_reached = "Some of the times ts were not reached: they must increase within t0 and t1."


def result_of(number: Any) -> RESULTS:
    """The result of a number among Diffrax's codes, which come first here.

    `RESULTS.promote` gives the same, by operations that compile where the number has a value.
    """
    return jax.tree.unflatten(_STRUCTURE, [number if isinstance(number, Array) else np.asarray(number)])


def to_diffrax_result(number: int) -> dfx.RESULTS:
    """A number of ours as one of Diffrax's codes, which its loop hands on as it is."""
    return jax.tree.unflatten(jax.tree.structure(dfx.RESULTS.successful), [np.asarray(number, np.int32)])


def step_counts(steps: Any, accepted: Any) -> dict[str, Any]:
    """The statistics of the steps of a run."""
    xp = module_for(steps)
    steps, accepted = (xp.asarray(x, np.int32) for x in (steps, accepted))
    return {"num_steps": steps, "num_accepted_steps": accepted, "num_rejected_steps": steps - accepted}


def code(result: Any) -> int:
    """The number of a result that has a value: comparing results themselves would compile."""
    return int(jax.tree.leaves(result)[0])


_STRUCTURE = jax.tree.structure(RESULTS.successful)


@functools.cache
def _good() -> tuple[int, ...]:
    return code(RESULTS.successful), code(RESULTS.event_occurred)


def is_good(result: Any) -> bool:
    """Whether a result that has a value is that of a run that did as it was asked."""
    return code(result) in _good()


def judgement(
    columns: dict[str, Any],
    result: RESULTS,
    asked: int,
    judged: bool,
    lost: Any,
    unbalanced: Any,
    asymmetric: Any,
) -> RESULTS:
    """The result of a run, by its saved states and its end: `diverged` where this is not finite,
    `mass_matrix_not_symmetric` where that of one of them is not, `masses_too_far_apart` where forces are out of balance,
    `constraints_broken` where one is off the constraints, or bodies are too light for their rows and no projection mends
    that; and `times_not_reached` where one of the first times is infinite that were `asked` for, which are checked before
    a run only if they have values.
    """
    xp = module_for(columns, result)
    finite = xp.all(xp.isfinite(xp.concatenate([xp.asarray(columns[x])[-1] for x in ("q", "a")])))
    known = xp.isfinite(columns["t"])
    off = xp.any(off_by(columns) > 1 if judged else known & (xp.asarray(lost) > 0.5))
    apart, uneven = (xp.any(known & (xp.asarray(x) > 0.5)) for x in (unbalanced, asymmetric))
    if xp is np:
        if is_good(result) and (apart or off):
            result = RESULTS.masses_too_far_apart if apart else RESULTS.constraints_broken
        result = RESULTS.mass_matrix_not_symmetric if uneven else result
        return result if finite else RESULTS.diverged
    missed = (result == RESULTS.successful) & ~xp.all(known[:asked])
    result = RESULTS.where(missed, RESULTS.times_not_reached, result)
    good = (result == RESULTS.successful) | (result == RESULTS.event_occurred)
    result = RESULTS.where(good & off, RESULTS.constraints_broken, result)
    result = RESULTS.where(good & apart, RESULTS.masses_too_far_apart, result)
    result = RESULTS.where(uneven, RESULTS.mass_matrix_not_symmetric, result)
    return RESULTS.where(finite, result, RESULTS.diverged)


def off_by(columns: dict[str, Any]) -> Array:
    """How far each row is off, (k, m): in position or in velocity, beside what counts as kept."""
    t = columns["t"]
    xp = module_for(columns)
    reached = xp.isfinite(t)[:, None]
    found: Any = 0.0
    for errors, state in (("position_error", "q"), ("velocity_error", "v")):
        errors, state = (xp.abs(xp.where(reached, columns[x], 0)) for x in (errors, state))
        found = xp.maximum(found, errors / (most_off(errors.dtype) * (1 + xp.max(state, initial=0))))
    return found


@final
class Dense(eqx.Module):
    """A trajectory between its saved times: Diffrax's interpolation, projected where the run projects."""

    interpolation: dfx.DenseInterpolation
    system: AbstractSystem
    stabilizer: AbstractStabilizer

    @eqx.filter_jit
    def __call__(self, t: Array) -> tuple[Array, Array]:
        # Diffrax multiplies times by a direction, an integer, which no program of scalars returns as weakly typed.
        with jax.numpy_dtype_promotion("standard"):
            q, v = self.interpolation.evaluate(t)
        if (method := self.stabilizer.projection_method) is not None:
            q, v = Projection(method)(self.system, t, q, v)
        return q, v


# --- Where a run ended. It stands beside the saved times, of which there are as many as were asked for, reached or not


@final
class End(LazyModule):
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
    The times are along the last axes, as programs of scalars have members.

    At infinite states derivatives are NaN, also times the zero that nobody asks for.
    """
    reached = jnp.isfinite(t)
    known = lambda x: jnp.where(reached.reshape(-1, *[1] * (x.ndim - 1)), x, x[-1])
    return jax.tree.map(lambda x: jnp.moveaxis(known(x), 0, -1), (t, y))


def split(columns: dict[str, Any], count: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arrays at the saved times, and at the end."""
    tracing, t = is_traced(columns), columns["t"]
    t = t if tracing else np.asarray(t)
    places = None if tracing else np.where(t[:-1] == t[-1], len(t) - 1, np.arange(len(t) - 1))
    missing = count + 1 - len(t)

    def saved(name: str, x: Any) -> Any:
        nothing = np.asarray(_nothing(name, x.dtype), x.dtype)
        if tracing:
            along = lambda which: which.reshape(-1, *[1] * (x.ndim - 1))
            # A time saved that is the end has its state, which differs from the interpolated one by rounding.
            of_end = jnp.where(along(t[:-1] == t[-1]), x[-1], x[:-1])
            return jnp.where(along(jnp.isfinite(t[:-1])), of_end, nothing)
        taken = np.asarray(x)[places]
        return np.concatenate([taken, np.full((missing, *x.shape[1:]), nothing)]) if missing else taken

    known = {name: x for name, x in columns.items() if x is not None}
    without = {name: None for name, x in columns.items() if x is None}
    of_times = {name: saved(name, x) for name, x in known.items()}
    of_end = {name: x[-1] if tracing else np.asarray(x[-1]) for name, x in known.items()}
    return of_times | without, of_end | without


def end_of(columns: dict[str, Any]) -> End:
    """The end of a run."""
    of_contacts = {name: columns[name] for name in AT_TIMES if name in columns}
    return make_unchecked(End, **{name: columns[name] for name in _OF_RUN}, contacts=of_contacts or None)


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


def require_values(run: "Trajectory") -> None:
    """Raises `InputError` for the runs of a batch, and for a run that JAX traces, which has no values to look at."""
    require_one(run)
    if is_traced(run.t, run.result):
        raise InputError(
            "this trajectory has no values yet: JAX traces it, within jit, vmap or grad. Return it and look at it "
            "outside; inside, compare run.result with ukjax.RESULTS.successful by jnp.where."
        )


def get_problem(trajectory: "Trajectory") -> Problem:
    """What was simulated."""
    if trajectory.problem is None:
        raise InputError(
            "this trajectory does not know its problem, since it was made within jit or read from a file: use "
            "trajectory.with_problem(problem)."
        )
    return trajectory.problem


def append_end(run: "Trajectory", *names: str) -> list[Any]:
    """Arrays of a run with what holds at its end behind what holds at the saved times."""
    require_one(run)
    each = [(getattr(run, name), getattr(last_of(run), name)) for name in names]
    return [None if x is None else _append_last(x, last) for x, last in each]


def _append_last(x: Any, last: Any) -> Any:
    xp = module_for(x, last)
    return xp.concatenate([xp.asarray(x), xp.asarray(last)[None]])


def _map_times(run: "Trajectory", fn: Callable[[Any, Any], Any]) -> "Trajectory":
    """The run with a function of each array along its times, and of what holds at the end, in place of the array."""
    last = last_of(run)
    given = {name: (getattr(run, name), getattr(last, name)) for name in _OF_RUN}
    changes: dict[str, Any] = {name: fn(*x) for name, x in given.items() if x[0] is not None}
    for name in ("contacts", "tracking"):
        of, ends = getattr(run, name), getattr(last, name)
        if of is not None and ends is not None:
            changes[name] = dataclasses.replace(of, **{k: fn(getattr(of, k), x) for k, x in ends.items()})
    return dataclasses.replace(run, **changes)


def with_end(run: "Trajectory") -> "Trajectory":
    """The run with its end as one more saved time, the last."""
    require_one(run)
    return _map_times(run, _append_last)


def trim_to_end(run: "Trajectory") -> "Trajectory":
    """What a run that has values reached: its saved times up to the end, and last the end, each once."""
    require_one(run)
    t = np.append(np.asarray(run.t), np.asarray(last_of(run).t))
    places = np.flatnonzero(np.isfinite(t) & np.append(t[:-1] != t[-1], True))
    return _map_times(run, lambda x, last: jax.device_put(np.asarray(_append_last(x, last))[places]))


# --- Whether a run that projects its states has kept its constraints: rows that contradict each other no motion keeps

_INVOLVED = 1e-2  # of the row that takes part most
_DEPENDENT = (
    1e-2  # singular values of rows of unit norm below this, or twice the least, are of rows that contradict
)


def _measure_involvement(run: "Trajectory", at: dict[str, np.ndarray], off: np.ndarray) -> np.ndarray:
    """How far each row takes part in what cannot be met: the part of what is off, if anything is, along z with A^T z = 0.

    Of rows that contradict each other a projection may leave all that is missing to one of them. Where the system is not
    known, only that one is.
    """
    if run.problem is None or not all(np.all(np.isfinite(at[name])) for name in "tqv"):
        return off
    state = (jnp.asarray(at[name]) for name in "tqv")
    A = np.asarray(equations_at(run.problem.system, NoStabilizer(), *state).rows.A, float)
    if A.shape[0] != off.size or not np.all(np.isfinite(A)):
        return off
    norms = np.linalg.norm(A, axis=1, keepdims=True)
    U, s, _ = np.linalg.svd(A / np.where(norms > 0, norms, 1))
    s = np.append(s, np.zeros(len(A) - s.size))
    dependent = _DEPENDENT * s.max(initial=0)
    if not np.any(off):  # velocities would have to jump
        return np.linalg.norm(U[:, s <= dependent], axis=1)
    U = U[:, s <= max(dependent, 2 * s.min(initial=np.inf))]
    return np.maximum(np.abs(U @ (U.T @ off)), off * (norms[:, 0] == 0))


def first_broken(run: "Trajectory") -> tuple[float, tuple[str, ...]]:
    """When constraints were first off among the saved times and the end, and the names of the rows that were then."""
    names = ["t", "q", "v", "position_error", "velocity_error"]
    columns = dict(zip(names, append_end(run, *names), strict=True))
    off = np.asarray(off_by(columns))
    worst = np.max(off, axis=1, initial=0)
    # Where the run stopped, they are off by just as much as counts.
    first = int(np.argmax(worst > 1)) if np.any(worst > 1) else len(worst) - 1
    part = _measure_involvement(run, {name: np.asarray(x)[first] for name, x in columns.items()}, off[first])
    involved = np.flatnonzero((part > 0) & (part >= _INVOLVED * part.max(initial=0)))
    return float(columns["t"][first]), tuple(run.row_names[i] for i in involved)


def join_names(names: tuple[str, ...]) -> str:
    """The first of some names."""
    more = f" and {len(names) - 6} more" if len(names) > 6 else ""
    return f"{', '.join(names[:6])}{more}"


def warn_of_rows(run: "Trajectory") -> None:
    """Warns of constraints that a run with values did not keep."""
    if code(run.result) != code(RESULTS.constraints_broken):
        return
    when, names = first_broken(run)
    if not names:
        why = "the slope of a constraint jumps there, or rows that were redundant stop the motion"
        said = f"velocities would have to jump at {when:.6g} s: {why}. The run stopped there."
        if run.contacts is not None:
            said = f"bodies penetrate from {when:.6g} s on, and no state near by has them apart, or {said}"
        warnings.warn(said, ConstraintWarning, stacklevel=4)
        return
    warnings.warn(
        f"constraints are not kept from {when:.6g} s on: {join_names(names)}. The run ended at {float(run.t_end):.6g} s, "
        f"with errors up to {float(run.max_position_error):.3g} of positions and {float(run.max_velocity_error):.3g} of "
        "velocities. No motion keeps rows that contradict each other, and none that say of velocities what only "
        "positions decide.",
        ConstraintWarning,
        stacklevel=4,
    )
