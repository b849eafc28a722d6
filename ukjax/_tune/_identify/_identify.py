"""The door of an identification: what is given is checked, searched, and told."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import diffrax as dfx

from ..._formula._acceleration import AbstractFormula
from ..._misc._arguments import explain_arguments, flag, whole_number
from ..._misc._progress import show_bar
from ..._misc._types import Time
from ..._motion._project import Projection
from ..._run._contact_common import Tier
from ..._system._problem import Problem
from ..._system._stabilize import AbstractStabilizer
from ...robots import Robot
from ._fit import Loss, search
from ._prepare import prepare
from ._recording import Recording
from ._result import IdentifyResult, make_result
from ._starts import from_best_start


@explain_arguments({"x0": "parameters=, first guesses by name", "p0": "parameters=, first guesses by name",
                    "sigma": "noise=", "constraints": "bounds= or priors="})  # fmt: skip
def identify(
    model_or_problem: Problem | Robot | Callable[..., Any],
    data: Recording | Sequence[Recording],
    parameters: Mapping[str, Any],
    *,
    measure: Callable[..., Any] | None = None,
    noise: Any = None,
    offsets: bool | str | Sequence[str] = (),
    initial: str | Sequence[str] = (),
    bounds: Mapping[str, tuple[Any, Any]] = {},
    priors: Mapping[str, tuple[Any, Any]] = {},
    loss: Loss = "squares",
    shooting: float | None = None,
    dt0: Time | float | None = None,
    formula: AbstractFormula | None = None,
    stabilizer: AbstractStabilizer = Projection(),
    solver: dfx.AbstractSolver = dfx.Dopri8(),
    stepsize_controller: dfx.AbstractStepSizeController | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    contact: Tier | None = None,
    max_steps: int = 100_000,
    starts: int = 1,
    iterations: int = 100,
    progress: bool = False,
) -> IdentifyResult:
    """Parameters, initial states and sensor offsets of a mechanism from measured series, by least squares of runs.

    The sum of squares of (output - sample) / noise is made small by Levenberg and Marquardt's method, with
    derivatives of the runs in forward mode: all recordings are one batch of one compiled program. Noise that is not
    given is estimated from what the fit leaves.

    **Arguments:**

    - `model_or_problem`: a function from parameters to a `Problem`, such as a model, which takes them by keyword or
      all in one dict; a `Problem`, whose arrays are searched; or a `Robot`, by names such as `"mass.left_driver"`.
    - `data`: a `Recording`, or several, which may differ in length.
    - `parameters`: first guesses by name: numbers, arrays, or bodies (`ukjax.mechanisms.Body`, `PlanarBody`,
      `PointMass`), whose mass, centre and inertia are searched among those that a body can have. Names are those of
      `sweep`: arguments of the function, fields of the system, `q0`, `v0`, components such as `q0[2]`, labels of
      coordinates.
    - `measure`: what sensors see: a function of any of `t`, `q`, `v`, `a`, `multipliers`, `constraint_force`,
      `points` (of the problem, by name), `problem`, and of parameters, by these names. It returns an array (d,), or
      a dict of arrays by name. By default the coordinates.
    - `noise`: standard deviations of the samples: a number, one for each channel (d,), or a dict by name. Those that
      are not given are estimated.
    - `offsets`: names of outputs to which an unknown constant is added, the same in all recordings; True for all.
    - `initial`: `"q0"`, `"v0"` or both, if initial states of recordings are unknown too; searched from their `q0`
      and `v0`, or the problem's, within the constraints.
    - `bounds`: (low, high) by name of a parameter, None for none: `{"mass": (0.0, None)}`. The first guess lies
      between.
    - `priors`: (mean, standard deviation) by name of any number of the result, for what is known besides the data.
    - `loss`: of residuals in units of the noise: `"squares"`, or `"huber"` or `"cauchy"`, for which outliers count
      less.
    - `shooting`: cut runs into pieces of this length [s], whose states are searched and joined (multiple shooting), for
      long and for chaotic runs.
    - `dt0`, `formula`, `stabilizer`, `solver`, `stepsize_controller`, `rtol`, `atol`, `contact`, `max_steps`: as for
      `simulate`.
    - `starts`: how many first guesses to search from: the one given, and others by priors, or between two bounds, or
      within a factor e where there is one bound, or between zero and twice the guess. All take their first steps in one
      batch, and the search goes on from the best.
    - `iterations`: the most steps of the search.
    - `progress`: show a line with the steps and the sum of squares, where standard error is a terminal.

    **Returns:** `IdentifyResult`, with the best estimates so far also after Ctrl-C.

    **Raises:** `InputError` before the search for data that are not finite, times that do not increase, unknown
    names, bounds and noise that cannot be, shapes that do not fit, and runs that do not get to the data with the
    first guess.
    """
    whole_number("iterations", iterations, 1, 10**6)
    starts = whole_number("starts", starts, 1, 10_000)
    progress = flag("progress", progress)
    options = {
        "dt0": dt0, "formula": formula, "stabilizer": stabilizer, "solver": solver,
        "stepsize_controller": stepsize_controller, "rtol": rtol, "atol": atol, "contact": contact,
        "max_steps": max_steps,
    }  # fmt: skip
    given = (
        model_or_problem,
        data,
        parameters,
        measure,
        noise,
        offsets,
        initial,
        bounds,
        priors,
        loss,
        shooting,
    )
    with show_bar(progress, "identifying", iterations) as move:
        update = lambda steps, cost: move(steps, f"sum of squares {cost:.5g}")
        prepared = prepare(*given, options)
        fit, tried = (prepared.fit, ()) if starts == 1 else from_best_start(prepared, starts, update)
        found = search(fit, prepared.noise, prepared.size, iterations, update)
        return make_result(prepared, found, tried)
