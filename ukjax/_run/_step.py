"""One step of the motion without a run around it, for loops of one's own: control, learning, games."""

from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._compiler import evaluate_by_code
from .._contact._rows import contact_model, layout_of, require_newton
from .._contact._stepping import one_step
from .._formula._acceleration import AbstractFormula
from .._formula._equations import asymmetry
from .._misc._arguments import positive_time
from .._misc._closures import combine_static, partition_static
from .._misc._types import Coordinates, Numbers, Time, Velocities, choose_by_precision, is_traced
from .._motion._model import Model, translate_model
from .._motion._project import Projection
from .._motion._solvers import with_projection, with_scan
from .._system._constraint import unilateral
from .._system._problem import Problem, resolve_state
from .._system._rows import position_rows
from .._system._stabilize import AbstractStabilizer
from .._system._system import AbstractSystem
from . import _options
from ._integrate import State, explicit_step, is_explicit, run_as_program, vector_field
from ._interning import intern_system

# Of positions, to the size of the coordinates; what a projection that converges leaves is smaller by far.
_CONSISTENT = (1e-6, 1e-3)


def step(
    system: AbstractSystem | Problem,
    t: Time | float | None,
    q: Numbers | None,
    v: Numbers | None,
    dt: Time | float,
    *,
    formula: AbstractFormula | None = None,
    stabilizer: AbstractStabilizer = Projection(),
    solver: dfx.AbstractSolver = dfx.Tsit5(),
) -> tuple[Coordinates, Velocities]:
    """The state after one step of a solver. Nothing is kept between calls, and no costly checks are made.

    Use it inside `jax.jit`, `jax.vmap` or `jax.lax.scan`; outside, each call takes some milliseconds more. It can be
    differentiated in both modes. The start should be consistent (`uk.project`); with `Projection` the end is. Where no
    such end is found, as of a step far too long, the acceleration is not finite, or a dt that `jit` traces is negative, q
    and v are NaN.

    Where the system has unilateral constraints, it is a step of Moreau's scheme, as of `simulate(contact="steps")`: of
    first order, whatever the solver. Its derivative is that of the step, as with `contact="differentiated
    steps"`: past an impact it is not that of the motion.

    **Arguments:**

    - `system`: the mechanical system, or a `Problem`, which brings the t, q and v that are None.
    - `t`: time [s].
    - `q`: generalized coordinates (n_q,).
    - `v`: generalized velocities (n,).
    - `dt`: the step [s].
    - `formula`: how the acceleration is computed; by default as `simulate` does.
    - `stabilizer`: how constraint errors are kept small.
    - `solver`: any Diffrax solver of one step for ordinary differential equations; an implicit one solves its equations
      to the default tolerance of `simulate` unless told otherwise.

    **Returns:** (q, v) at t + dt.

    **Raises:** `InputError` for wrong shapes, non-finite states, and a step that is not positive.
    """
    system, t, q, v = resolve_state(system, t, q, v)
    dt = positive_time("dt", dt).astype(q.dtype)
    if is_traced(dt):  # where it cannot be refused
        dt = jnp.where(dt < 0, jnp.nan, dt)
    automatic = formula is None
    _options.require_method(formula, stabilizer, solver)
    formula = _options.formula(formula, stabilizer, q.dtype)
    if unilateral(system.constraints):
        return _with_contacts(system, formula, stabilizer, solver, (t, q, v), dt, automatic)
    model = Model(system, formula, stabilizer)
    model = translate_model(model, solver, t, q, v, automatic=automatic)[0]
    solver = _options.with_tolerances(solver, q.dtype)
    return _check_end(model, t + dt, *_take_step(model, solver, t, q, v, dt))


@eqx.filter_jit
def _check_end(model: Model, t: Array, q: Array, v: Array) -> tuple[Array, Array]:
    """The end of a step; NaN unless it is finite, the mass matrix is symmetric there and, where steps are projected, it
    is on the constraints."""
    good = jnp.all(jnp.isfinite(q)) & jnp.all(jnp.isfinite(v)) & _has_symmetric_mass(model, t, q)
    if model.stabilizer.projects and model.system.constraints:
        fixed = jax.tree.map(
            lambda x: jax.lax.stop_gradient(x) if eqx.is_array(x) else x, (model.system, t, q)
        )
        error, size = (
            jnp.max(jnp.abs(x), initial=0) for x in (evaluate_by_code(position_rows, *fixed), fixed[2])
        )
        good &= error <= choose_by_precision(q.dtype, *_CONSISTENT) * jnp.maximum(1, size)
    return jnp.where(good, q, jnp.nan), jnp.where(good, v, jnp.nan)


def _asymmetry(system: AbstractSystem, t: Array, q: Array) -> Array:
    return asymmetry(jnp.asarray(system.mass_matrix(t, q)))


def _has_symmetric_mass(model: Model, t: Array, q: Array) -> Array:
    codes = [code for code, _ in model.parts] if model.code is None else [model.code]
    if codes and all(code.symmetric for code in codes):
        return jnp.asarray(True)  # whatever the numbers
    given = model.system, t, q
    system, t, q = jax.tree.map(lambda x: jax.lax.stop_gradient(x) if eqx.is_array(x) else x, given)
    return ~(evaluate_by_code(_asymmetry, system, t, q) > 0)


def _with_contacts(
    system: AbstractSystem, formula: Any, stabilizer: Any, solver: Any, start: Any, dt: Array, automatic: bool
) -> tuple[Array, Array]:
    """A step of Moreau's scheme."""
    system = intern_system(system, *start)
    layout, coefficients = layout_of(system, *start)
    require_newton(layout)
    model, _ = contact_model(
        system, formula, stabilizer, solver, start, automatic=automatic, implicit=True, whole=False
    )
    t, *y = start
    q, v = eqx.filter_jit(one_step)(model, layout, coefficients, t, tuple(y), dt)
    good = eqx.filter_jit(_has_symmetric_mass)(model, t + dt, q)
    return jnp.where(good, q, jnp.nan), jnp.where(good, v, jnp.nan)


@eqx.filter_jit
def _take_step(model: Model, solver: dfx.AbstractSolver, t: Array, q: Array, v: Array, dt: Array) -> State:
    static, arrays = partition_static((model, solver))

    def run(
        adjoint: dfx.AbstractAdjoint | None, arrays: Any, t: Array, q: Array, v: Array, dt: Array
    ) -> State:
        model, solver = combine_static(static, arrays)
        if adjoint is None and is_explicit(solver):
            return explicit_step(model, solver, t, (q, v), dt)
        return _step_by_diffrax(adjoint, model, solver, t, q, v, dt)

    return run_as_program(run, None, dfx.DirectAdjoint(), arrays, t, q, v, dt)[0]


class _LongAs(dfx.ODETerm):
    """The term of a step whose length is known better than by the difference of its ends."""

    start: Array
    end: Array
    dt: Array

    def contr(self, t0: Any, t1: Any, **kwargs: Any) -> Any:
        return jnp.where((t0 == self.start) & (t1 == self.end), self.dt, t1 - t0)


def _step_by_diffrax(
    adjoint: dfx.AbstractAdjoint | None, model: Model, solver: Any, t: Array, q: Array, v: Array, dt: Array
) -> State:
    solver = with_scan(solver, dfx.ForwardMode() if adjoint is None else adjoint)
    solver = with_projection(solver) if model.stabilizer.projects else solver
    end, y = t + dt, (q, v)
    terms = _LongAs(vector_field, t, end, dt)  # pyright: ignore[reportArgumentType]
    begun = solver.init(terms, t, end, y, model)
    return solver.step(terms, t, end, y, model, begun, made_jump=True)[0]
