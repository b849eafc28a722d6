"""Reverse mode through the steps a run took: the discrete adjoint of a one-step method, with checkpoints.

A step is y_(i+1) = F(t_i, t_(i+1), y_i, p). Its adjoint, from the end to the start, is

    lambda_i = (dF/dy)^T lambda_(i+1) + what is saved at t_i,     the gradient by p the sum of (dF/dp)^T lambda_(i+1).

The run keeps the times of its steps and every k-th state, k being about the root of the largest number of steps;
states between are computed once more, k at a time. A run thus costs one more run and one adjoint step per step, and
one number per step and twice the root of their number states of memory. The sizes of steps count as given.
"""

from typing import Any, final

import diffrax as dfx
import equinox as eqx
from jaxtyping import Array

from .._projected_solver import stopped
from ._backward import Backward
from ._fixed_steps import FixedSteps
from ._record import Arguments, Outcome, Record, interval
from ._stages import Stages, backwards, staged


@final
class DiscreteAdjoint(dfx.AbstractAdjoint):
    """Reverse mode by the adjoint of each step taken, from the last to the first (Hairer, Norsett and Wanner, Solving
    Ordinary Differential Equations I, II.6; Sanz-Serna 2016, doi:10.1137/151002769).

    Derivatives are exact for the steps as they were taken: their sizes count as given. Memory: one number per step
    and about twice `sqrt(max_steps)` states. Runs with events, `dense` or a progress meter go by
    `diffrax.RecursiveCheckpointAdjoint`.
    """

    def loop(self, **settings: Any) -> Any:
        """Diffrax's way, for runs this is not for.

        **Arguments:**

        - `settings`: as Diffrax gives them.
        """
        return dfx.RecursiveCheckpointAdjoint().loop(**settings)


def goes_back_by_steps(settings: dict[str, Any], dense: bool) -> bool:
    """Whether `integrate` is for runs with these settings of `diffrax.diffeqsolve`.

    **Arguments:**

    - `settings`: of the run.
    - `dense`: whether the motion between saved times is kept.
    """
    plain = settings["event"] is None and isinstance(settings["progress_meter"], dfx.NoProgressMeter)
    return plain and not dense and isinstance(settings["adjoint"], DiscreteAdjoint)


def _run(
    x: Arguments, dt0: Array | None, terms: Any, solver: Any, settings: dict[str, Any], record: bool
) -> tuple[Outcome, Record | None]:
    """A run, with a record of its steps if there is to be one."""
    subs = [dfx.SubSaveAt(t0=x.ts is None, ts=x.ts, steps=x.ts is None), dfx.SubSaveAt(t1=True)]
    if record:
        subs.append(dfx.SubSaveAt(t0=True, steps=True, fn=lambda t, y, args: t))
        subs.append(dfx.SubSaveAt(t0=True, steps=interval(settings["max_steps"])))
    solution = dfx.diffeqsolve(
        terms, solver, x.t0, x.t1, dt0, x.y0, x.parameters, saveat=dfx.SaveAt(subs=subs), throw=False,
        **(settings | {"adjoint": dfx.ForwardMode()}),
    )  # fmt: skip
    ts: Any = solution.ts
    ys: Any = solution.ys
    outcome = Outcome((ts[0], ys[0]), (ts[1], ys[1]), solution.stats, solution.result)
    if not record:
        return outcome, None
    return outcome, Record(ys[2], ys[3], solution.stats["num_accepted_steps"])


def _recorded(
    x: Arguments, dt0: Array | None, terms: Any, solver: Any, settings: dict[str, Any]
) -> tuple[Outcome, Record]:
    """A run and the record of its steps. Those of a given size need no look back, and what Diffrax does to save at
    each takes longer than most, so an explicit method at fixed steps is run here."""
    stages = staged(solver)
    explicit = isinstance(getattr(stages, "solver", None), Stages) or isinstance(stages, Stages)
    if dt0 is not None and explicit and type(settings["stepsize_controller"]) is dfx.ConstantStepSize:
        return FixedSteps(x, terms, stages, settings["max_steps"], dt0).run()
    outcome, record = _run(x, dt0, terms, solver, settings, True)
    assert record is not None
    return outcome, record


def integrate(
    x: Arguments, dt0: Array | None, terms: Any, solver: dfx.AbstractSolver, settings: dict[str, Any]
) -> Outcome:
    """A run.

    **Arguments:**

    - `x`: what it may be differentiated by.
    - `dt0`: the first step [s].
    - `terms`, `solver`, `settings`: of `diffrax.diffeqsolve`.
    """
    return _integrated(x, *stopped((dt0, terms, solver, settings)))


@eqx.filter_custom_vjp
def _integrated(x: Arguments, *args: Any) -> Outcome:
    return _run(x, *args, False)[0]


@_integrated.def_fwd
def _(perturbed: Any, x: Arguments, *args: Any) -> tuple[Outcome, Any]:
    return _recorded(x, *args)


@_integrated.def_bwd
def _(record: Record, cotangents: Outcome, perturbed: Any, x: Arguments, *args: Any) -> Arguments:
    _, terms, solver, settings = args
    most = settings["max_steps"]
    return Backward(x, perturbed, record, cotangents, terms, backwards(solver), most).gradient()
