"""The function tuning minimizes: from logarithms of gains, through simulated runs, to the logarithm of the loss.

Gains as logarithms stay positive, and a loss as its logarithm has a gradient of order one whatever its unit. The
gradient comes in forward mode, all entries in one run, where there are few, else in reverse mode.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, final

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._compiler import JitByZeros, compiler_is_here
from .._formula._acceleration import AbstractFormula
from .._misc._arguments import call_user_function, number_array
from .._misc._closures import hoist_tracers
from .._misc._errors import InputError
from .._misc._types import as_jax, module_for
from .._motion._model import Model, translate_model
from .._run import _options
from .._run._contact_common import BY_STEPS
from .._run._integrate import errors_along, is_explicit
from .._run._results import RESULTS
from .._run._simulate import simulate
from .._system._problem import Problem
from .._system._stabilize import AbstractStabilizer
from .._system._system import AbstractSystem
from ._gains import GainSpace
from ._loss import Violation, ViolationLoss, fastest_rate

Problems = Problem | Sequence[Problem]
Aggregate = Literal["mean", "worst"]


@final
class Settings(eqx.Module):
    """How each run is made: arguments of `simulate`, checked. `ts` is None for every step of a fixed size; times are
    numbers where contacts are met by equal steps, whose number must be known."""

    t0: Any
    t1: Any
    dt0: Any
    ts: Array | None
    formula: AbstractFormula | None
    stabilizer: AbstractStabilizer
    solver: dfx.AbstractSolver
    controller: dfx.AbstractStepSizeController
    max_steps: int = eqx.field(static=True)
    contact: Any = eqx.field(static=True, default=None)

    @property
    def adaptive(self) -> bool:
        return not isinstance(self.controller, dfx.ConstantStepSize)

    @property
    def in_steps(self) -> bool:
        """Whether contacts are met by equal steps, of a length that is all they need to be told."""
        return self.contact in BY_STEPS and not self.adaptive


def stack_problems(problems: Sequence[Problem]) -> tuple[AbstractSystem, Array, Array]:
    """Systems and initial states of problems of one structure, their arrays with a leading axis."""
    parts = [eqx.partition((p.system, p.q0, p.v0), eqx.is_array) for p in problems]
    shapes = [[x.shape for x in jax.tree.leaves(arrays)] for arrays, _ in parts]
    for i, (_, static) in enumerate(parts):
        if shapes[i] != shapes[0] or not eqx.tree_equal(static, parts[0][1]):
            raise InputError(
                f"problem {i} has another structure than problem 0: problems that are tuned together may differ "
                "in the values of their arrays only."
            )
    arrays = jax.tree.map(lambda *x: as_jax(module_for(x).stack(x)), *(arrays for arrays, _ in parts))
    return eqx.combine(arrays, parts[0][1])


def _scalar(loss: Any) -> Array:
    loss = number_array("what the loss returns", loss)
    if loss.ndim or not jnp.issubdtype(loss.dtype, jnp.floating):
        raise InputError(
            f"the loss returned {loss.dtype} of shape {loss.shape}; it must return one real number, such as a mean."
        )
    return loss


@final
class Objective(eqx.Module):
    """log(loss) of x = log(gains); infinite where a run fails."""

    space: GainSpace  # what x stands for
    # `plant`: gains -> the problem or problems, or a pair of those and a stabilizer; or None for `problems`.
    plant: Callable[[Any], Any] | None
    problems: tuple[Problem, ...]  # of the gains themselves as stabilizer
    settings: Settings  # how each run is made
    loss: Callable[[Any], Array]  # of a run
    aggregate: Aggregate = eqx.field(static=True)  # of the losses of several problems
    budget: Float[Array, ""]  # evaluations that runs may take; infinite for no such penalty

    def _build(self, gains: Any) -> tuple[Sequence[Problem], AbstractStabilizer]:
        if self.plant is None:
            return self.problems, gains
        made = hoist_tracers(call_user_function("the function of the gains", self.plant, gains))
        stabilizer = self.settings.stabilizer
        if isinstance(made, tuple) and len(made) == 2 and isinstance(made[1], AbstractStabilizer):
            made, stabilizer = made
        return [made] if isinstance(made, Problem) else made, stabilizer

    def _of_run(
        self, system: AbstractSystem, q0: Array, v0: Array, stabilizer: AbstractStabilizer, forward: bool,
        problem: Problem | None = None,
    ) -> tuple[Array, Array]:  # fmt: skip
        """The loss of one run, and its evaluations of the acceleration (steps, where they are not known)."""
        s = self.settings
        adjoint = _options.adjoint(dfx.ForwardMode() if forward else None, (q0, v0), s.max_steps)
        if isinstance(self.loss, ViolationLoss):
            t, errors, stats, reached = errors_along(
                *self._run_of(system, q0, v0, stabilizer), s.ts, self._run_settings(adjoint), s.solver,
                reverse=not forward,
            )  # fmt: skip
            loss = self.loss(Violation(t, *errors))
        else:
            # Equal steps between contacts are the scheme's own, and differentiable in both modes.
            controller, adjoint = (None, None) if s.in_steps else (s.controller, adjoint)
            run = simulate(
                system, q0, v0, t0=s.t0, t1=s.t1, dt0=s.dt0, ts="steps" if s.ts is None else s.ts,
                formula=s.formula, stabilizer=stabilizer, solver=s.solver, stepsize_controller=controller,
                adjoint=adjoint if forward else None, contact=s.contact, max_steps=s.max_steps,
            )  # fmt: skip
            told = run.with_problem(system if problem is None else problem)
            loss, stats = _scalar(call_user_function("the loss", self.loss, told)), run.stats
            reached = run.result == RESULTS.successful
        count = _options.evaluations(s.solver, stabilizer, stats)
        count = stats["num_steps"] if count is None else count
        return jnp.where(reached & jnp.isfinite(loss), loss, jnp.inf), count

    def _run_settings(self, adjoint: dfx.AbstractAdjoint) -> dict[str, Any]:
        s = self.settings
        return {"stepsize_controller": s.controller, "adjoint": adjoint, "max_steps": s.max_steps}

    def _run_of(
        self, system: AbstractSystem, q0: Array, v0: Array, stabilizer: AbstractStabilizer
    ) -> tuple[Model, tuple[Array, Array], tuple[Array, Array, Array | None]]:
        """What is integrated, from where, and over what times."""
        s = self.settings
        model = Model(system, _options.formula(s.formula, stabilizer, q0.dtype), stabilizer)
        model, _ = translate_model(model, s.solver, s.t0, q0, v0, automatic=s.formula is None)
        return model, (q0, v0), (s.t0, s.t1, s.dt0)

    def goes_back_by_machine_code(self) -> bool:
        """Whether reverse mode is machine code, and so cheaper than forward mode for any number of gains."""
        s = self.settings
        every_step = s.ts is None and not isinstance(self.loss, ViolationLoss)
        return not s.in_steps and not every_step and is_explicit(s.solver) and compiler_is_here()

    def __call__(self, x: Float[Array, " d"], forward: bool) -> tuple[Float[Array, ""], Int[Array, ""]]:
        """log(loss), and the evaluations of all its runs."""
        gains = self.space.gains(x)
        problems, stabilizer = self._build(gains)
        if len(problems) == 1:
            p = problems[0]
            loss, evaluations = self._of_run(p.system, p.q0, p.v0, stabilizer, forward, p)
        else:
            one = eqx.filter_vmap(self._of_run, in_axes=(eqx.if_array(0), 0, 0, None, None))
            losses, counts = one(*stack_problems(problems), stabilizer, forward)
            loss, evaluations = (
                jnp.mean(losses) if self.aggregate == "mean" else jnp.max(losses),
                jnp.sum(counts),
            )
        count = evaluations.astype(loss.dtype)
        if (rate := fastest_rate((gains, stabilizer))) is not None:
            count = count * (rate / jax.lax.stop_gradient(rate)).astype(loss.dtype)
        loss = loss * (1 + (count / self.budget) ** 2)
        return jnp.log(loss), evaluations


@functools.partial(JitByZeros, kinds=(AbstractSystem,))
def losses(objective: Objective, x: Float[Array, "b d"]) -> Float[Array, " b"]:
    """log(loss) of many gains at once."""
    return jax.vmap(lambda point: objective(point, True)[0])(x)


@functools.partial(JitByZeros, kinds=(AbstractSystem,))
def loss_and_gradient(
    objective: Objective, x: Float[Array, " d"], forward: bool
) -> tuple[Array, Array, Array]:
    """log(loss), its gradient, and the evaluations of the runs."""
    if forward and not objective.goes_back_by_machine_code():
        along = lambda e: jax.jvp(lambda x: objective(x, True), (x,), (e,), has_aux=True)
        value, gradient, evaluations = jax.vmap(along, out_axes=(None, 0, None))(
            jnp.eye(x.size, dtype=x.dtype)
        )
        return value, gradient, evaluations
    (value, evaluations), gradient = jax.value_and_grad(lambda x: objective(x, False), has_aux=True)(x)
    return value, gradient, evaluations


def count_fixed_steps(t0: Array, t1: Array, dt0: Array) -> int:
    """How many steps of dt0 lead from t0 to t1, with one to spare for rounding."""
    return math.ceil(float((t1 - t0) / dt0) - 1e-6) + 1
