"""One step of the motion without a run around it, for loops of one's own: control, learning, games."""

from typing import Any, final

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._compiler import by_code
from .._contact._rows import contact_model, layout_of, require_newton
from .._contact._stepping import one_step
from .._formula._acceleration import AbstractFormula
from .._misc._arguments import positive_time, require_instance, require_solver
from .._misc._by_platform import by_platform
from .._misc._keyed import joined, parted
from .._misc._types import Coordinates, Numbers, Time, Velocities, by_precision
from .._motion._energy_projection import projected
from .._motion._model import Model, coded
from .._motion._project import Projection
from .._system._constraint import unilateral
from .._system._problem import Problem, resolve_state
from .._system._rows import position_rows
from .._system._stabilize import AbstractStabilizer
from .._system._system import AbstractSystem
from . import _options
from ._batch import whole_run
from ._integrate import vector_field
from ._integrated import by_one_program
from ._interned import interned

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
    such end is found, as of a step far too long, or the acceleration is not finite, q and v are NaN.

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
    automatic = formula is None
    require_instance("stabilizer", stabilizer, AbstractStabilizer, "Projection()")
    formula = _options.formula(formula, stabilizer, q.dtype)
    require_solver(solver)
    if unilateral(system.constraints):
        return _with_contacts(system, formula, stabilizer, solver, (t, q, v), dt, automatic)
    model = Model(system, formula, stabilizer)
    model = coded(model, solver, t, q, v, automatic=automatic)[0]
    solver = _options.with_tolerances(solver, q.dtype)
    return _reached(model, t + dt, *_stepped(model, solver, t, q, v, dt))


@eqx.filter_jit
def _reached(model: Model, t: Array, q: Array, v: Array) -> tuple[Array, Array]:
    """The end of a step; NaN unless it is finite and, where steps are projected, on the constraints."""
    good = jnp.all(jnp.isfinite(q)) & jnp.all(jnp.isfinite(v))
    if model.stabilizer.projection_method is not None and model.system.constraints:
        fixed = jax.tree.map(
            lambda x: jax.lax.stop_gradient(x) if eqx.is_array(x) else x, (model.system, t, q)
        )
        error, size = (jnp.max(jnp.abs(x), initial=0) for x in (by_code(position_rows, *fixed), fixed[2]))
        good &= error <= by_precision(q.dtype, *_CONSISTENT) * jnp.maximum(1, size)
    return jnp.where(good, q, jnp.nan), jnp.where(good, v, jnp.nan)


def _with_contacts(
    system: AbstractSystem, formula: Any, stabilizer: Any, solver: Any, start: Any, dt: Array, automatic: bool
) -> tuple[Array, Array]:
    """A step of Moreau's scheme."""
    system = interned(system, *start)
    layout, coefficients = layout_of(system, *start)
    require_newton(layout)
    model, _ = contact_model(system, formula, stabilizer, solver, start, automatic=automatic, implicit=True)
    t, *y = start
    return eqx.filter_jit(one_step)(model, layout, coefficients, t, tuple(y), dt)


@final
class _OneStep(dfx.AbstractStepSizeController):
    """Has the first step be the whole run."""

    def wrap(self, direction: Any) -> "_OneStep":
        return self

    def init(
        self, terms: Any, t0: Any, t1: Any, y0: Any, dt0: Any, args: Any, func: Any, error_order: Any
    ) -> Any:
        return t0 + dt0, ()

    def adapt_step_size(
        self, t0: Any, t1: Any, y0: Any, y1_candidate: Any, args: Any, y_error: Any, error_order: Any,
        controller_state: Any,
    ) -> Any:  # fmt: skip
        return True, t1, t1, False, (), dfx.RESULTS.successful


_ONE_STEP = _OneStep()


@eqx.filter_jit
def _stepped(model: Model, solver: dfx.AbstractSolver, *state: Array) -> tuple[Array, Array]:
    whole = whole_run(model, solver, _ONE_STEP, (state[1], state[2]), True, 1)
    static, arrays = parted((model, solver))
    fn = lambda adjoint, arrays, *state: _by_diffrax(adjoint, *joined(static, arrays), *state)
    by_program = lambda *given: by_one_program(fn, None, dfx.DirectAdjoint(), *given)[0]
    if whole is None:
        return by_program(arrays, *state)

    def native(arrays: Any, t: Array, q: Array, v: Array, dt: Array) -> tuple[Array, Array]:
        model, _ = joined(static, arrays)
        numbers, none = whole.numbers(model, _ONE_STEP, at_once=False), jnp.zeros(0, q.dtype)
        ends = whole(numbers, (q, v), (t, t + dt, dt), none)
        ended = ends.result == 0
        return jnp.where(ended, ends.q[-1], jnp.nan), jnp.where(ended, ends.v[-1], jnp.nan)

    @eqx.filter_custom_jvp
    def run(*given: Any) -> tuple[Array, Array]:
        return by_platform(native, by_program, *given, on_gpu=whole.runs_on_gpu)

    @run.def_jvp
    def _(primals: Any, tangents: Any) -> Any:
        # The value is the function's own: see `tests/test_rules.py` for what `vmap` makes of another one.
        return run(*primals), eqx.filter_jvp(by_program, primals, tangents)[1]

    return run(arrays, *state)


def _by_diffrax(
    adjoint: dfx.AbstractAdjoint, model: Model, solver: Any, t: Array, q: Array, v: Array, dt: Array
) -> tuple[Array, Array]:
    if getattr(solver, "scan_kind", "") is None:  # what Diffrax's loop would choose for such an adjoint
        kind = "lax" if isinstance(adjoint, dfx.ForwardMode) else "bounded"
        solver = eqx.tree_at(lambda s: s.scan_kind, solver, kind, is_leaf=lambda x: x is None)
    terms = dfx.ODETerm(vector_field)  # pyright: ignore[reportArgumentType]
    solver = projected(solver) if model.stabilizer.projection_method is not None else solver
    end, y = t + dt, (q, v)
    begun = solver.init(terms, t, end, y, model)
    return solver.step(terms, t, end, y, model, begun, made_jump=True)[0]
