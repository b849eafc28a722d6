"""What `simulate` makes of its options: times, steps, events; each checked before anything is computed."""

import contextlib
import math
import numbers
from collections.abc import Callable, Hashable
from typing import Any, Literal, NamedTuple, final, get_args

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
from jaxtyping import Array

from .._formula._acceleration import AbstractFormula, UdwadiaKalaba
from .._misc._arguments import (
    one_of,
    positive_time,
    real_values,
    require_between,
    require_finite,
    require_instance,
    require_solver,
    whole_number,
)
from .._misc._closures import find_instances, key_by_identity
from .._misc._errors import InputError
from .._misc._tolerances import WITHOUT_PROJECTION
from .._misc._types import arrays_of, as_jax, choose_by_precision, is_traced, module_for
from .._motion._project import Projection
from .._motion._solvers import AbstractForwardingSolver
from .._pseudoinverse import GramSchmidt
from .._system._stabilize import AbstractStabilizer
from .._system._system import AbstractSystem
from .._system._tabulated import Tabulated
from ._results import RESULTS, code, to_diffrax_result

# --- All options of a run, and when runs with equal ones are equal

OnViolation = Literal["stop", "continue"]
"""What becomes of a run where no motion keeps the constraints."""


class Options(NamedTuple):
    """The arguments of `simulate` that are neither state nor time, as they were given.

    - `with_dt0`, `every_step`: whether a first step is given, and whether every step is saved.
    - `on_violation`: what becomes of a run where no motion keeps the constraints.
    """

    formula: Any
    stabilizer: Any
    solver: Any
    stepsize_controller: Any
    rtol: Any
    atol: Any
    adjoint: Any
    event: Any
    contact: Any
    progress: Any
    dense: bool
    max_steps: Any
    with_dt0: bool
    every_step: bool
    on_violation: Any = "stop"


def is_judged(formula: Any, stabilizer: AbstractStabilizer) -> bool:
    """Whether a run is to keep its constraints: whether its states are projected, and its rows met, which those of a
    hierarchy that yields are not.
    """
    return stabilizer.projects and getattr(formula, "clearance", None) is None


def stop_code(judged: bool, on_violation: Any) -> int | None:
    """The code with which a run ends where no motion keeps the constraints; None for one that goes on."""
    one_of("on_violation", on_violation, get_args(OnViolation))
    return code(RESULTS.constraints_broken) if judged and on_violation == "stop" else None


_SMALL = 64  # numbers of an array that is compared by value


def option_key(x: Any) -> Hashable:
    """Of an option: simple values, and modules of such, as solvers and stabilizers are, are equal by value; all else is
    equal to itself alone.
    """
    if x is None or isinstance(x, bool | int | float | str):
        return type(x), x
    small = isinstance(x, Array | np.ndarray) and x.size <= _SMALL and not is_traced(x)
    if small and jax.numpy.issubdtype(x.dtype, np.number):
        return x.shape, x.dtype, np.asarray(x).tobytes()
    if isinstance(x, eqx.Module):
        leaves, tree = jax.tree.flatten(x)
        with contextlib.suppress(TypeError):  # of fields that have no hash
            return hash(tree), tree, *map(option_key, leaves)
    return key_by_identity(x)


# --- Step-size controllers around others, which tell Diffrax the tolerances of those


class AbstractControllerAround(dfx.AbstractAdaptiveStepSizeController):
    """A controller around an adaptive one, of whose tolerances implicit solvers ask."""

    controller: eqx.AbstractVar[Any]

    @property
    def rtol(self) -> Any:
        return self.controller.rtol

    @property
    def atol(self) -> Any:
        return self.controller.atol

    @property
    def norm(self) -> Callable[[Any], Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.controller.norm


@final
class _WithTolerances(AbstractControllerAround):
    around: Any

    def __init__(self, around: Any):
        self.around = around

    @property
    def controller(self) -> Any:
        return self.around.controller

    def wrap(self, direction: Any) -> "_WithTolerances":
        return _WithTolerances(self.around.wrap(direction))

    def init(self, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        return self.around.init(*args, **kwargs)

    def adapt_step_size(self, *args: Any, **kwargs: Any) -> Any:
        return self.around.adapt_step_size(*args, **kwargs)


def with_tolerances_of(around: Any) -> dfx.AbstractStepSizeController:
    """A controller around another one, its `controller`, adaptive where that is."""
    adaptive = isinstance(around.controller, dfx.AbstractAdaptiveStepSizeController)
    return _WithTolerances(around) if adaptive else around


# --- Runs that end where no step is short enough

_SHORTEST = 10  # units of rounding of the time, as in SciPy's solve_ivp
_FIRST = 1e-3  # of the run, where the field is NaN at what its first step is guessed from


@final
class GuardedController(AbstractControllerAround):
    """An adaptive controller that ends a run whose steps become too short to advance time: as `diverged` where states
    are infinite or NaN after any step. Others would go on to the largest number of steps.
    """

    controller: Any

    def __init__(self, controller: Any):
        self.controller = controller

    def wrap(self, direction: Any) -> "GuardedController":
        return GuardedController(self.controller.wrap(direction))

    def init(
        self, terms: Any, t0: Any, t1: Any, y0: Any, dt0: Any, args: Any, func: Any, error_order: Any
    ) -> Any:
        first, state = self.controller.init(terms, t0, t1, y0, dt0, args, func, error_order)
        return jnp.where(jnp.isfinite(first), first, t0 + _FIRST * (t1 - t0)), state

    def adapt_step_size(
        self, t0: Any, t1: Any, y0: Any, y1_candidate: Any, args: Any, y_error: Any, error_order: Any,
        controller_state: Any,
    ) -> Any:  # fmt: skip
        accepted, start, end, jumped, state, result = self.controller.adapt_step_size(
            t0, t1, y0, y1_candidate, args, y_error, error_order, controller_state
        )
        finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(e)) for e in jax.tree.leaves(y_error)]))
        stuck = ~accepted & ~(end - start > _SHORTEST * jnp.spacing(jnp.abs(start)))
        result = dfx.RESULTS.where(stuck, dfx.RESULTS.dt_min_reached, result)
        diverged = ~finite & ~dfx.is_okay(result)
        result = dfx.RESULTS.where(diverged, to_diffrax_result(code(RESULTS.diverged)), result)
        return accepted, start, end, jumped, state, result


# --- Steps that end where a zero-order hold jumps: across a jump no method has its order, and a controller rejects step
# after step to find it.

# Diffrax moves a step that would end within 100 units of rounding of t1 to t1. If there is a jump, all but these are
# integrated before it.
_AT_END = 128
_SLIVER = 1e-3  # of a step: one that would end as near before a jump ends there


@final
class AtKnots(dfx.AbstractStepSizeController):
    """A controller whose steps end just before times of jumps (k,), and start there.

    Diffrax's `ClipStepSizeController` does so for adaptive steps only, and has no scalar code.
    """

    controller: dfx.AbstractStepSizeController
    knots: Array

    def wrap(self, direction: Any) -> "AtKnots":
        return AtKnots(self.controller.wrap(direction), self.knots * direction)

    def init(
        self, terms: Any, t0: Any, t1: Any, y0: Any, dt0: Any, args: Any, func: Any, error_order: Any
    ) -> Any:
        t_next, kept = self.controller.init(terms, t0, t1, y0, dt0, args, func, error_order)
        last = t1 - _AT_END * (jnp.nextafter(jnp.abs(t1), jnp.full_like(t1, jnp.inf)) - jnp.abs(t1))
        return self._clipped(t0, t_next, last), (kept, last)

    def adapt_step_size(
        self, t0: Any, t1: Any, y0: Any, y1_candidate: Any, args: Any, y_error: Any, error_order: Any,
        controller_state: Any,
    ) -> Any:  # fmt: skip
        kept, last = controller_state
        accepted, t, t_next, jumped, kept, result = self.controller.adapt_step_size(
            t0, t1, y0, y1_candidate, args, y_error, error_order, kept
        )
        after = jnp.nextafter(t, jnp.full_like(t, jnp.inf))
        jumps = jnp.any(self.knots == after)
        t, t_next = jnp.where(jumps, after, t), jnp.where(jumps, t_next + (after - t), t_next)
        return accepted, t, self._clipped(t, t_next, last), jumped | jumps, (kept, last), result

    def _clipped(self, t: Any, t_next: Any, last: Any) -> Array:
        knot = jnp.min(jnp.where(self.knots > t, self.knots, jnp.inf))
        before = jnp.nextafter(knot, jnp.full_like(knot, -jnp.inf))
        before = jnp.where((knot > last) & (t < last), jnp.minimum(before, last), before)
        return jnp.where(t_next > before - _SLIVER * (before - t), before, t_next)


def controller_of_steps(
    controller: dfx.AbstractStepSizeController, system: AbstractSystem, dtype: Any
) -> dfx.AbstractStepSizeController:
    """The controller, made to end runs whose steps become too short, and steps at the knots of the tables of a system
    that hold their values."""
    if isinstance(controller, dfx.AbstractAdaptiveStepSizeController):
        controller = GuardedController(controller)
    tables = find_instances(system, Tabulated)
    knots = [x.times.astype(dtype) for x in tables if x.holds]
    return with_tolerances_of(AtKnots(controller, jnp.concatenate(knots))) if knots else controller


# --- The options of `simulate`


REVERSE_ONLY = (dfx.RecursiveCheckpointAdjoint, dfx.BacksolveAdjoint)
"""Adjoints that forward-mode differentiation cannot go through."""

_CHECKPOINTS = 2**21  # bytes
_RESOLVED = 1e3  # so that the times to save at, by default 201, differ


def require_method(formula: Any, stabilizer: Any, solver: Any) -> None:
    """Raises `InputError` unless these are what they should be; the formula may be left out."""
    if formula is not None:
        require_instance("formula", formula, AbstractFormula, "UdwadiaKalaba()")
    require_instance("stabilizer", stabilizer, AbstractStabilizer, "Projection()")
    require_solver(solver)


def formula(
    given: AbstractFormula | None, stabilizer: AbstractStabilizer, dtype: jnp.dtype
) -> AbstractFormula:
    """How accelerations are computed: by default `UdwadiaKalaba()`, with a wider rank rule where no step is projected."""
    if given is not None:
        return given
    rcond = None if stabilizer.projects else WITHOUT_PROJECTION
    return UdwadiaKalaba(GramSchmidt(choose_by_precision(dtype, rcond, None)))


def stages(solver: dfx.AbstractSolver) -> int | None:
    """Evaluations of the vector field in a step of an explicit Runge-Kutta solver; None for others."""
    while isinstance(solver, AbstractForwardingSolver):
        solver = solver.solver
    kind = type(solver)  # Diffrax's wrappers, such as HalfSolver, are instances of what they wrap
    if issubclass(kind, dfx.AbstractERK) and isinstance(kind.tableau, dfx.ButcherTableau):
        return kind.tableau.num_stages
    return 1 if issubclass(kind, dfx.Euler) else None


def evaluations(solver: dfx.AbstractSolver, stabilizer: AbstractStabilizer, stats: dict[str, Any]) -> Any:
    """Evaluations of the acceleration by the steps of a run; None where `stages` does not tell.

    Where the first stage of a step is the last of the one before, a step that is rejected counts as if it had evaluated
    its first stage, which only the very first step does: the number is then an upper bound.
    """
    number, steps, rejected = stages(solver), stats["num_steps"], stats["num_rejected_steps"]
    if number is None:
        return None
    # A solver that wraps another one has no tableau: it moves the state, as a projection does, and no stage is kept.
    kept = getattr(getattr(type(solver), "tableau", None), "fsal", False) and not isinstance(
        stabilizer, Projection
    )
    return (number - 1) * steps + rejected + 1 if kept else number * steps


def _tolerance(dtype: jnp.dtype) -> float:
    return choose_by_precision(dtype, 1e-8, 1e-5)


def controller(
    given: dfx.AbstractStepSizeController | None,
    solver: dfx.AbstractSolver,
    with_dt0: bool,
    tolerances: tuple[float | None, float | None],
    dtype: jnp.dtype,
) -> dfx.AbstractStepSizeController:
    """The step-size controller: adaptive where the solver estimates its error, else fixed steps."""
    if given is not None:
        require_instance(
            "stepsize_controller", given, dfx.AbstractStepSizeController, "diffrax.PIDController(rtol, atol)"
        )
    default = _tolerance(dtype)
    rtol, atol = (default if x is None else x for x in tolerances)
    for name, x in (("rtol", rtol), ("atol", atol)):
        require_between(name, x, 0, 1)
    if given is None and isinstance(solver, dfx.AbstractAdaptiveSolver):
        rtol, atol = (real_values(name, x).astype(dtype) for name, x in (("rtol", rtol), ("atol", atol)))
        return dfx.PIDController(rtol=rtol, atol=atol)
    given = dfx.ConstantStepSize() if given is None else given
    if isinstance(given, dfx.ConstantStepSize) and not with_dt0:
        raise InputError(f"{type(solver).__name__} at a fixed step needs dt0, the step size [s].")
    return given


def with_tolerances(
    solver: dfx.AbstractSolver, dtype: jnp.dtype, controller: dfx.AbstractStepSizeController | None = None
) -> dfx.AbstractSolver:
    """A solver whose root finder has the default tolerances where it would take them from a controller that has none."""
    finder = getattr(solver, "root_finder", None)
    if finder is None or hasattr(controller, "rtol"):
        return solver
    tolerance = _tolerance(dtype)
    for name, default in {"rtol": tolerance, "atol": tolerance, "norm": optx.max_norm}.items():
        old = getattr(finder, name, None)
        if not (old is None or isinstance(old, float | jax.Array) or callable(old)):
            at = lambda solver, name=name: getattr(solver.root_finder, name)
            solver = eqx.tree_at(at, solver, default, is_leaf=lambda x, old=old: x is old)
    return solver


def first_step(dt0: Any, dtype: jnp.dtype) -> Array | None:
    """dt0 as an array, or None to let the controller choose."""
    return None if dt0 is None else positive_time("dt0", dt0).astype(dtype)


def progress_meter(progress: bool | dfx.AbstractProgressMeter) -> dfx.AbstractProgressMeter:
    """Diffrax's text meter for True, none for False."""
    require_instance("progress", progress, (bool, dfx.AbstractProgressMeter), "True")
    if isinstance(progress, bool):
        return dfx.TextProgressMeter() if progress else dfx.NoProgressMeter()
    return progress


def adjoint(given: dfx.AbstractAdjoint | None, y0: Any, max_steps: int) -> dfx.AbstractAdjoint:
    """How derivatives are taken: by default in reverse mode, with a checkpoint for every step as far as two megabytes go.

    A gradient then costs 0.65 to 0.85 of what it does with Diffrax's number, about the root of twice the steps
    (benchmarks/reverse_mode.py). Steps beyond are computed once more."""
    if given is not None:
        require_instance("adjoint", given, dfx.AbstractAdjoint, "diffrax.ForwardMode()")
        return given
    # The state, its derivative, and what the controller knows.
    checkpoint = 2 * sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(y0)) + 64
    affordable = min(max_steps, _CHECKPOINTS // checkpoint)
    usual = math.ceil(math.sqrt(2 * max_steps))
    return dfx.RecursiveCheckpointAdjoint(affordable if affordable > usual else None)


def _require_span(t0: Array, t1: Array) -> None:
    """Raises `InputError` unless a span is many times the rounding of its ends, and no square of a step vanishes."""
    start, end, precision = float(t0), float(t1), np.finfo(t0.dtype)
    for name, x in (("t0", start), ("t1", end)):
        if not math.isfinite(x):
            raise InputError(f"{name} must be finite, got {x}.")
    if not start < end:
        raise InputError(f"t1 = {t1} must be later than t0 = {t0}.")
    if not end - start > max(
        _RESOLVED * precision.eps * max(abs(start), abs(end)), math.sqrt(precision.tiny)
    ):
        raise InputError(
            f"t1 = {t1} is too near to t0 = {t0}: {t0.dtype} has no steps so short. Give a longer span, or another unit "
            "of time."
        )


def times(t0: Array, t1: Array, ts: Any) -> Array | None:
    """The times to save at; None for every step."""
    if t1.ndim:
        raise InputError(f"t1 has shape {t1.shape}; it must be a scalar.")
    if not is_traced(t0, t1):
        _require_span(t0, t1)
    if isinstance(ts, str):
        if ts != "steps":
            raise InputError(f"ts must be times, a number of times, or 'steps', got {ts!r}.")
        return None
    if ts is None or isinstance(ts, numbers.Integral):
        count = whole_number("the number of times ts", 201 if ts is None else ts, 2, 10**8)  # some gigabytes
        # Not t0 + (t1 - t0) s, whose last time may miss t1 by rounding.
        s = np.linspace(0, 1, count, dtype=t0.dtype)
        t0, t1 = arrays_of(t0, t1)
        return as_jax(t0 * (1 - s) + t1 * s)
    ts = real_values("ts", ts).astype(t0.dtype)
    if ts.ndim != 1 or ts.size == 0:
        raise InputError(
            f"ts has shape {ts.shape}; it must be a vector of times, such as jnp.linspace(t0, t1, 101), how many, such "
            "as 101, or 'steps'. Their number must be known: within jit no traced one."
        )
    require_finite("ts", ts)
    xp = module_for(ts, t0, t1)
    # Times counted up, as by np.arange, may be past an end by their rounding.
    rounding = 2 * np.finfo(ts.dtype).eps * len(ts) * xp.maximum(xp.abs(t0), xp.abs(t1))
    within = xp.clip(ts, xp.minimum(t0, t1), xp.maximum(t0, t1))
    ts = xp.where(xp.abs(ts - within) <= rounding, within, ts)
    way = xp.copysign(xp.ones_like(t0), t1 - t0)  # backwards within `jit`
    good = (way * ts >= way * t0) & (way * ts <= way * t1)
    later = way * xp.diff(ts)
    good &= xp.append(True, later > 0 if xp is np else later >= 0)
    if xp is np and not np.all(good):
        raise InputError(
            f"ts must increase within t0 = {t0} and t1 = {t1}: ts[{(i := int(np.argmin(good)))}] is {ts[i]}."
        )
    return xp.where(good, ts, np.nan)


def require_fitting(
    adjoint: dfx.AbstractAdjoint, every_step: bool, event: Any, dense: bool, projected: bool
) -> None:
    """Raises `InputError` where `BacksolveAdjoint` is asked for what needs the steps of the run."""
    if not isinstance(adjoint, dfx.BacksolveAdjoint):
        return
    asked = {
        "a projection after each step (use Baumgarte)": projected,
        'ts="steps"': every_step,
        "an event": event is not None,
        "dense": dense,
    }
    if wrong := [name for name, given in asked.items() if given]:
        raise InputError(
            f"BacksolveAdjoint solves an equation of its own backwards, without the steps of the run, so it does not "
            f"work with {' and '.join(wrong)}. RecursiveCheckpointAdjoint, the default, does."
        )
