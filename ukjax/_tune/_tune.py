"""`tune`: gains that keep constraint errors small, found by Optax through simulated runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from .._formula._acceleration import AbstractFormula
from .._misc._arguments import flag, require_between, whole_number
from .._misc._errors import InputError
from .._misc._files import as_path
from .._misc._progress import show_bar
from .._misc._types import Numbers, Time
from .._motion._project import Projection
from .._run import _options
from .._run._contact_common import Tier
from .._system._stabilize import AbstractStabilizer
from .._system._system import AbstractSystem
from ._checkpoint import load, save
from ._gains import Convention, as_given
from ._loss import ViolationLoss
from ._objective import Aggregate, Objective, Problems
from ._prepare import prepare
from ._result import History, TuneResult
from ._search import Point, Search, Stepper, evaluate, run


def _describe(search: Search, names: tuple[str, ...]) -> str:
    """The least loss and, where they are few, its gains."""
    best = search.best
    gains = zip(names, np.exp(best.x), strict=True) if len(names) <= 4 else ()
    return f"loss {np.exp(best.value):.4g} " + " ".join(f"{name} {x:.4g}" for name, x in gains)


def _with_budget(objective: Objective) -> tuple[Objective, Point]:
    """The objective with its budget, which by default is what the run with the gains given takes, and that run."""
    given = evaluate(objective, np.asarray(objective.space.start))
    if not isinstance(objective.loss, ViolationLoss):
        return objective, given
    budget = objective.loss.budget
    counted = _options.stages(objective.settings.solver) is not None
    if budget is None and counted and objective.settings.adaptive and given.finite:
        budget = given.evaluations
    if not budget:
        return objective, given
    objective = eqx.tree_at(lambda o: o.budget, objective, jnp.asarray(budget, given.x.dtype))
    return objective, evaluate(objective, given.x)


def _first(given: Point, stepper: Stepper) -> Search:
    """Where the search starts: the gains given, or better ones of a scan."""
    if given.value == -np.inf or np.isnan(given.value):
        raise InputError("the loss must be positive; at the given gains it is zero, negative or NaN.")
    search = stepper.anywhere(given)
    if not search.points[-1].finite:
        raise InputError(
            "the loss is not finite at the given gains, nor at any others that were tried: give a smaller step dt0, "
            "more max_steps, or other gains; `ukjax.simulate` with the given gains shows what goes wrong."
        )
    return search


def tune(
    system: AbstractSystem | Problems | Callable[[Any], Any],
    gains: Any,
    loss: Callable[[Any], Array] = ViolationLoss(),
    optimizer: optax.GradientTransformation | None = None,
    *,
    q0: Numbers | None = None,
    v0: Numbers | None = None,
    t0: Time | float | None = None,
    t1: Time | float | None = None,
    dt0: Time | float | None = None,
    ts: Numbers | None = None,
    formula: AbstractFormula | None = None,
    stabilizer: AbstractStabilizer = Projection(),
    solver: dfx.AbstractSolver = dfx.Tsit5(),
    stepsize_controller: dfx.AbstractStepSizeController | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    contact: Tier | None = None,
    max_steps: int = 100_000,
    aggregate: Aggregate = "mean",
    convention: Convention = "plain",
    per_row: bool = False,
    starts: int = 32,
    iterations: int = 40,
    tolerance: float = 1e-3,
    patience: int = 4,
    progress: bool = False,
    checkpoint: str | Path | None = None,
) -> TuneResult:
    """Finds gains with a small loss of simulated runs: a coarse scan, then Optax on log(loss) over log(gains).

    The default loss is the mean square of the position errors. With explicit solvers at fixed steps, stability bounds
    the gains. With adaptive steps larger gains only cost evaluations, so evaluations are penalized (`ViolationLoss`). A
    run that fails has infinite loss, and steps towards it are shortened, so gains stay positive and finite.

    **Arguments:**

    - `system`: what the gains stabilize: a system with its q0 and v0, a `Problem`, or a list of problems of one
      structure, over which the loss is averaged. Or a function from gains to a `Problem`, a list, or a pair of that
      and a stabilizer, for gains of anything else, such as of a servo.
    - `gains`: `Baumgarte(alpha, beta)`, scalar or per row; for a function of the gains any pytree of positive numbers.
    - `loss`: `ViolationLoss(...)`, or a function from a `Trajectory` to a positive scalar: compare `run.q` with data at
      `ts`; where the run ended is in `run.q_end` and `run.v_end`.
    - `optimizer`: any Optax optimizer; by default `optax.lbfgs(1.0, linesearch=None)`.
    - `q0`: initial coordinates (n_q,), or several (b, n_q), to tune for all of them.
    - `v0`: initial velocities (n,), or several (b, n).
    - `t0`: start [s]; by default the problem's, or 0.
    - `t1`: end [s].
    - `dt0`: the first step [s], as for `simulate`; for fixed steps give `diffrax.ConstantStepSize()`. Where that is left
      out beside `dt0` all steps are of that length, with a `FutureWarning`.
    - `ts`: the times that count [s], or their number; by default every step of a fixed size, else 201.
    - `formula`, `solver`, `stepsize_controller`, `rtol`, `atol`, `contact`, `max_steps`: as for `simulate`.
    - `stabilizer`: of the runs, where `system` is a function that returns none.
    - `aggregate`: `"mean"` or `"worst"` loss of several problems.
    - `convention`: how alpha and beta are searched and reported: `"plain"`, or `"squared"` as `Baumgarte.squared`.
    - `per_row`: give every row gains of its own.
    - `starts`: how many gains between 0.1 and 10,000 to try first, in one batch; eight times as many are tried around the
      best ones where the optimizer is stuck. 0 for none.
    - `iterations`: the most steps of the optimizer. Gains per row are searched twice with this many steps: first with
      one value for all rows, then one for each.
    - `tolerance`: a smaller relative improvement than this does not count.
    - `patience`: the search ends after this many iterations without improvement.
    - `progress`: show a bar with the loss and the gains, where standard error is a terminal.
    - `checkpoint`: an .npz file, written after each iteration; if it exists, the search continues from there, to
      the same result.

    **Returns:** `TuneResult`, with the best gains found, also after Ctrl-C.

    **Raises:** `InputError` for gains that are not positive, no constraints, a window outside the run, an optimizer
    that is none, a checkpoint of another problem, and where no start has a finite positive loss.
    """
    optimizer = optax.lbfgs(1.0, linesearch=None) if optimizer is None else optimizer
    if not isinstance(optimizer, optax.GradientTransformation):
        raise InputError(f"optimizer must be one of Optax's, such as optax.adam(0.1), got {optimizer!r}.")
    for name, count, least in (
        ("starts", starts, 0),
        ("iterations", iterations, 0),
        ("patience", patience, 1),
    ):
        whole_number(name, count, least, 10**6)
    per_row, progress = flag("per_row", per_row), flag("progress", progress)
    require_between("tolerance", tolerance, 0, 1)
    options = {"q0": q0, "v0": v0, "t0": t0, "t1": t1, "dt0": dt0, "ts": ts, "formula": formula}
    options |= {"stabilizer": stabilizer, "solver": solver, "stepsize_controller": stepsize_controller}
    options |= {
        "rtol": rtol,
        "atol": atol,
        "contact": contact,
        "max_steps": max_steps,
        "aggregate": aggregate,
    }
    objective, problems = prepare(system, gains, loss, convention, per_row, options)
    path = None if checkpoint is None else as_path("checkpoint", checkpoint)
    if path is not None and path.suffix != ".npz":
        raise InputError(f"a checkpoint is an .npz file; got '{path}'.")
    with show_bar(progress, "tuning", iterations) as move:
        objective, given = _with_budget(objective)
        stepper = Stepper(objective, optimizer, starts)
        mark = "" if path is None else stepper.fingerprint()
        resumed = path is not None and path.exists()
        search = load(path, stepper, mark) if path is not None and resumed else _first(given, stepper)

        def after(search: Search) -> None:
            move(len(search.points) - 1, _describe(search, objective.space.names))
            if path is not None:
                save(path, search, mark)

        after(search)
        search, stopped = run(stepper, search, (iterations, tolerance, patience), after)
    return _result(objective, search, stopped, problems[0].name, gains)


def _result(objective: Objective, search: Search, stopped: str, name: str, given: Any) -> TuneResult:
    best, points = search.best, search.points
    history = History(
        loss=np.exp([point.value for point in points]),
        gains=np.exp([point.x for point in points]),
        gradient_norm=np.array([np.linalg.norm(point.gradient) for point in points]),
        evaluations=np.array([point.evaluations for point in points]),
    )
    space = objective.space
    tuned, values = as_given(given, space.gains(best.x)), np.exp(best.x)
    return TuneResult(
        tuned, float(np.exp(best.value)), space.names, values, history, stopped, name, objective
    )
