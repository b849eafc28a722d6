"""Any Diffrax solver, with its state projected onto the constraints after each step.

Two things make this right at every tolerance, also where the linkage passes a singular position.

Of the error estimate, the part along nearly dependent rows is left out: the projection removes it, so it is no
error. Near a singular position the accelerations of the inner stages, which lie off the constraints by a little,
are wrong in just those directions, by that little over the smallest singular value. Counted as an error it makes
the controller shrink the step until it is trapped there. (Along well-conditioned rows the estimate stays whole:
it guards the convergence of the projection, and the states between steps.)

A step that ends where the rows are much closer to singular than where it began is refused. It would be
consistent, but the next acceleration would amplify rounding. A refused step is retried shorter, ends before the
singular position, and the next one passes it.

A step from whose end no projection reaches the constraints is refused too, until it is too short to be the reason: then
no motion keeps them any longer, and the run ends there.
"""

import dataclasses
import functools
from typing import Any, NamedTuple, final

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._misc._precision import in_full_precision
from .._misc._tolerances import CLOSER_TO_SINGULAR, ON_CONSTRAINTS, nearly_dependent
from .._misc._types import T
from .._system._rows import constraint_rows, is_off
from .._system._system import has_quasi_velocities
from ._directions import Directions, position_directions, velocity_directions
from ._model import Model, project_by_code
from ._project import Projection
from ._wrapped_solver import AbstractForwardingSolver

_REFUSED = 1e8
# In units of rounding of the time: a step this short changes nothing. More than `Guarded` of sweeps gives up at, by more
# than a controller shrinks a step at once.
_SHORTEST = 1e3


def _without_weak_part(e: Array, every: Directions, strong: Directions) -> Array:
    """An error less its part along nearly dependent rows: those in `every` that `strong` leaves out."""
    along = every.J @ e
    return e + every.correction(along) - strong.correction(along)


@in_full_precision
def end_of_step(
    model: Model, t: Array, y: tuple[Array, Array], error: tuple[Array, Array] | None
) -> tuple[tuple[Array, Array], tuple[Array, Array] | None, Any]:
    """The projected state, the error the controller is to see, and how close to singular the rows are, as `Projected`."""
    system, method = model.system, model.stabilizer.projection_method
    assert method is not None
    if model.projection is not None:
        end = project_by_code(model, t, y, error)
        return (end.q, end.v), end.errors, end.nearness
    q, v = Projection(method).positions(system, t, y[0]), y[1]
    rows = constraint_rows(system, t, q, v)
    every, strong = (
        dataclasses.replace(method, rcond=rcond) for rcond in (ON_CONSTRAINTS, nearly_dependent(q.dtype))
    )
    directions, psi = velocity_directions(system, t, q, rows, every)
    change = directions.correction(psi)
    v, psi = v + change, psi + directions.J @ change
    off = is_off(rows.position_error, q) | is_off(psi, v)
    if error is not None:
        pair = directions, velocity_directions(system, t, q, rows, strong)[0]
        if has_quasi_velocities(system) or np.any(rows.of_velocities & ~rows.of_positions):
            of_q = tuple(position_directions(system, t, q, method) for method in (every, strong))
        else:
            of_q = pair
        error = _without_weak_part(error[0], *of_q), _without_weak_part(error[1], *pair)
    near = jnp.max(jnp.abs(directions.inverse), initial=0)
    return (q, v), error, jnp.where(off, jnp.inf, near)


def shortest_step(*times: Array) -> Array:
    """The length of a step that is too short to change anything at these times [s]."""
    return _SHORTEST * jnp.finfo(times[0].dtype).eps * functools.reduce(jnp.maximum, map(jnp.abs, times))


def inflate_error(error: T, after: Array, before: Array, short: Any) -> T:
    """The error estimate of a step; that of a step to refuse is made so large that the controller does."""
    off, after = after == jnp.inf, jnp.abs(after)
    singular = ~off & (after > CLOSER_TO_SINGULAR * jnp.abs(before))
    error = jax.tree.map(lambda e: jnp.where(singular, _REFUSED * e, e), error)
    return error if short is None else inflate_error_if_off(error, off, short)


def inflate_error_if_off(error: T, off: Array, short: Any) -> T:
    """The error estimate of a step; of one that ends off the constraints so large that the controller refuses it, until
    it is too short for that to be the reason.
    """
    of_step = jnp.where(short, 0.0, jnp.inf)
    return jax.tree.map(lambda e: jnp.where(off, of_step.astype(e.dtype), e), error)


@eqx.filter_jit
def _step(
    solver: dfx.AbstractSolver,
    terms: Any,
    t0: Any,
    t1: Any,
    y0: Any,
    args: Model,
    solver_state: Any,
    stop: "Stop | None",
) -> Any:
    """A step as `ProjectedSolver.step`: Diffrax asks for it four times in a run, and JAX keeps what it traced."""
    inner, singular_before = solver_state
    here = args if args.projection is None else dataclasses.replace(args, nearness=singular_before)
    # The state was moved after the last step: a stage kept from it (first same as last) is stale.
    y1, error, dense_info, inner, result = solver.step(
        terms, t0, t1, y0, here, inner, made_jump=np.array(True)
    )
    y1, error, singular = end_of_step(args, t1, y1, error)
    if error is not None:
        error = inflate_error(error, singular, singular_before, stop and t1 - t0 <= stop.shortest)
    if stop is not None:  # Diffrax heeds it where the step is accepted
        result = dfx.RESULTS.where(singular == jnp.inf, stop.result, result)
    if "y1" in dense_info:
        dense_info = dense_info | {"y1": y1}
    return y1, error, dense_info, (inner, singular), result


class Stop(NamedTuple):
    """How a run ends where no motion keeps the constraints.

    - `shortest`: the step that is too short to be the reason [s].
    - `result`: the code to end with, as one of Diffrax's.
    """

    shortest: Array
    result: Any


@final
class ProjectedSolver(AbstractForwardingSolver):
    """Wraps a Diffrax solver for the state (q, v), with a `Model` for arguments.

    **Arguments:**

    - `solver`: the solver whose steps are projected.
    - `stop`: how the run ends where no motion keeps the constraints; None for one that goes on.
    """

    solver: dfx.AbstractSolver
    stop: Stop | None = None

    def init(self, terms: Any, t0: Any, t1: Any, y0: Any, args: Model) -> Any:
        near = jnp.full((), jnp.inf, y0[0].dtype)  # no step is refused for where the run starts
        if args.projection is not None:
            # With any error estimate, so that it is the program that steps take, and not one more.
            near = project_by_code(args, jnp.asarray(t0, near.dtype), y0, y0).nearness
        return self.solver.init(terms, t0, t1, y0, args), near

    def step(
        self, terms: Any, t0: Any, t1: Any, y0: Any, args: Model, solver_state: Any, made_jump: Any
    ) -> Any:
        return _step(self.solver, terms, t0, t1, y0, args, solver_state, self.stop)
