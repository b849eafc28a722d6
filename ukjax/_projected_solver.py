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
"""

import dataclasses
from typing import Any, final

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ._acceleration import AbstractFormula, equations_of_motion
from ._constraint import constraint_rows
from ._lanes import Code, Program, Projected, ProjectionCode, code_for, projection_for
from ._project import Directions, Projection, position_directions, velocity_directions
from ._stabilize import AbstractStabilizer
from ._system import AbstractSystem, has_quasi_velocities
from ._wrapped_solver import AbstractForwardingSolver

# On the constraints redundant rows are dependent to rounding, so the threshold for the end of a step can be
# far below the drift of the stages, which `Projection.pinv` must exceed.
_CONSISTENT_RCOND = 1e-9
_NEARLY_DEPENDENT = 3e-2
_CLOSER_TO_SINGULAR = 30.0
_REFUSED = 1e8
# Operations to compile, of more than which arrays are worth their longer runs.
_WORTHWHILE = 10_000
# The same for derivatives, which take far more to compile, of acceleration and projection; and where those operations
# are few beside all, as in large systems, of which derivatives by arrays take longer.
_DERIVED, _DERIVED_OF_MANY = (5_000, 7_500), 8_000
# The same for an implicit solver, which takes tangents of it: XLA may need minutes for more.
_WITHIN_NEWTON = 300


def _is_derivable(program: Program, limit: int) -> bool:
    return program.compiled <= (_DERIVED_OF_MANY if 2 * program.compiled < program.size else limit)


def _is_worthwhile(program: Program, solver: dfx.AbstractSolver, limit: int | None) -> bool:
    if isinstance(getattr(solver, "solver", solver), dfx.AbstractImplicitSolver):
        return program.compiled <= _WITHIN_NEWTON
    return program.compiled <= _WORTHWHILE and (limit is None or _is_derivable(program, limit))


@final
class Model(eqx.Module):
    """What the vector field needs: the arguments Diffrax passes through.

    - `system`: the mechanical system.
    - `formula`: how the acceleration is computed.
    - `stabilizer`: how constraint errors are kept small.
    - `code`: the acceleration as scalar code, if it is to be used in place of the formula.
    - `projection`: the projection as scalar code, if there is any.
    - `numbers`: of the parameters, for the code; see `ready`.
    """

    system: AbstractSystem
    formula: AbstractFormula
    stabilizer: AbstractStabilizer
    code: Code | None = eqx.field(static=True, default=None)
    projection: ProjectionCode | None = eqx.field(static=True, default=None)
    numbers: Float[Array, " k"] | None = None

    def ready(self) -> "Model":
        """The same model with the numbers at hand, for use in a loop."""
        if self.code is None or self.numbers is not None:
            return self
        return dataclasses.replace(self, numbers=self.code.numbers(self.system, self.stabilizer))

    def acceleration(self, t: Array, q: Array, v: Array) -> Array:
        """The stabilized acceleration (n,).

        **Arguments:**

        - `t`: time [s].
        - `q`: generalized coordinates (n_q,).
        - `v`: generalized velocities (n,).
        """
        if self.code is None:
            return self.formula.solve(equations_of_motion(self.system, t, q, v, self.stabilizer)).a
        return (_by_code if _is_derivable(self.code.program, _DERIVED[0]) else _by_long_code)(self, t, q, v)

    def project(self, t: Array, y: tuple[Array, Array], *, once: bool = True) -> tuple[Array, Array]:
        """The state (q, v), projected if the stabilizer projects.

        **Arguments:**

        - `t`: time [s].
        - `y`: the state (q, v).
        - `once`: whether that is not in a loop.
        """
        if not isinstance(self.stabilizer, Projection):
            return y
        if self.projection is not None:
            end = _projected(self, t, y, None, once=once)
            return end.q, end.v
        return self.stabilizer(self.system, t, *y)


def _by_code(model: Model, t: Array, q: Array, v: Array) -> Array:
    assert model.code is not None
    return model.code(model.ready().numbers, t, q, v)


@eqx.filter_custom_jvp
def _by_long_code(model: Model, t: Array, q: Array, v: Array) -> Array:
    """By scalar code, its derivative by arrays, which take less to compile."""
    return _by_code(model, t, q, v)


@_by_long_code.def_jvp
def _(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    by_arrays = lambda model, *state: dataclasses.replace(model, code=None).acceleration(*state)
    return _by_long_code(*primals), eqx.filter_jvp(by_arrays, primals, tangents)[1]


def _projected(
    model: Model, t: Array, y: tuple[Array, Array], error: tuple[Array, Array] | None, once: bool = False
) -> Projected:
    assert model.projection is not None
    short = _is_derivable(model.projection.whole, _DERIVED[1])
    return (_projected_by_code if short else _projected_by_long_code)(model, t, y, error, once=once)


def _projected_by_code(
    model: Model, t: Array, y: tuple[Array, Array], error: tuple[Array, Array] | None, *, once: bool
) -> Projected:
    assert model.projection is not None
    return model.projection(model.ready().numbers, t, *y, error, once)


@eqx.filter_custom_jvp
def _projected_by_long_code(
    model: Model, t: Array, y: tuple[Array, Array], error: tuple[Array, Array] | None, *, once: bool
) -> Projected:
    """As `_by_long_code`."""
    return _projected_by_code(model, t, y, error, once=once)


@_projected_by_long_code.def_jvp
def _(primals: tuple, tangents: tuple, *, once: bool) -> tuple[Projected, Projected]:
    found = _projected_by_long_code(*primals, once=once)
    by_arrays = lambda model, t, y: dataclasses.replace(model, projection=None).project(t, y)
    q, v = eqx.filter_jvp(by_arrays, primals[:3], tangents[:3])[1]
    return found, Projected(q, v, None if found.errors is None else (None, None), None)


def coded(
    model: Model, solver: dfx.AbstractSolver, t: Array, q: Array, v: Array, *, differentiated: bool = False
) -> tuple[Model, str]:
    """The model with its acceleration as scalar code where that can be, and what became of it in words.

    **Arguments:**

    - `model`: what to compute.
    - `solver`: that is to integrate it.
    - `t`, `q`, `v`: of these only shapes and types matter.
    - `differentiated`: whether derivatives of it are sure to be taken.
    """
    limits = _DERIVED if differentiated else (None, None)
    try:
        code = code_for(model.system, model.formula, model.stabilizer, t, q, v)
    except Exception as reason:
        # Whatever user code does that scalar code cannot: the formula can, or says why not.
        return model, f"arrays, as there is no scalar code: {str(reason).partition(chr(10))[0]}"
    size = code.program.size
    if not _is_worthwhile(code.program, solver, limits[0]):
        return model, f"arrays, as scalar code would take {size} operations"
    model, said = dataclasses.replace(model, code=code), f"scalar code of {size} operations"
    if not isinstance(model.stabilizer, Projection):
        return model, said
    try:
        rcond = model.stabilizer.pinv.rcond
        projection = projection_for(model.system, model.stabilizer, rcond, t, q, v)
    except Exception as reason:  # as above
        return model, f"{said}, projected on arrays: {str(reason).partition(chr(10))[0]}"
    if not _is_worthwhile(projection.whole, solver, limits[1]):
        return model, f"{said}, projected on arrays"
    return dataclasses.replace(model, projection=projection), f"{said}, projected by {projection.whole.size}"


def _without_weak_part(e: Array, every: Directions, strong: Directions) -> Array:
    """An error less its part along nearly dependent rows: those in `every` that `strong` leaves out."""
    along = every.J @ e
    return e + every.correction(along) - strong.correction(along)


def _end_of_step(
    model: Model, t: Array, y: tuple[Array, Array], error: tuple[Array, Array] | None
) -> tuple[tuple[Array, Array], tuple[Array, Array] | None, Float[Array, ""]]:
    """The projected state, the error the controller is to see, and how close to singular the rows are."""
    system, projection = model.system, model.stabilizer
    assert isinstance(projection, Projection)
    if model.projection is not None:
        end = _projected(model, t, y, error)
        return (end.q, end.v), end.errors, end.nearness
    q, v = projection.positions(system, t, y[0]), y[1]
    rows = constraint_rows(system, t, q, v)
    every, strong = (
        dataclasses.replace(projection.pinv, rcond=rcond) for rcond in (_CONSISTENT_RCOND, _NEARLY_DEPENDENT)
    )
    directions, psi = velocity_directions(system, t, q, rows, every)
    v = v + directions.correction(psi)
    if error is not None:
        pair = directions, velocity_directions(system, t, q, rows, strong)[0]
        if has_quasi_velocities(system) or "nonholonomic" in rows.kinds:
            of_q = tuple(position_directions(system, t, q, method) for method in (every, strong))
        else:
            of_q = pair
        error = _without_weak_part(error[0], *of_q), _without_weak_part(error[1], *pair)
    return (q, v), error, jnp.max(jnp.abs(directions.inverse), initial=0)


@final
class ProjectedSolver(AbstractForwardingSolver):
    """Wraps a Diffrax solver for the state (q, v), with a `Model` for arguments.

    **Arguments:**

    - `solver`: the solver whose steps are projected.
    """

    solver: dfx.AbstractSolver

    def init(self, terms: Any, t0: Any, t1: Any, y0: Any, args: Model) -> Any:
        # No step is refused for where the run starts.
        return self.solver.init(terms, t0, t1, y0, args), jnp.full((), jnp.inf, y0[0].dtype)

    def step(
        self, terms: Any, t0: Any, t1: Any, y0: Any, args: Model, solver_state: Any, made_jump: Any
    ) -> Any:
        inner, singular_before = solver_state
        # The state was moved after the last step: a stage kept from it (first same as last) is stale.
        y1, error, dense_info, inner, result = self.solver.step(
            terms, t0, t1, y0, args, inner, made_jump=jnp.array(True)
        )
        y1, error, singular = _end_of_step(args, t1, y1, error)
        refused = singular > _CLOSER_TO_SINGULAR * singular_before
        if error is not None:
            error = jax.tree.map(lambda e: jnp.where(refused, _REFUSED * e, e), error)
        if "y1" in dense_info:
            dense_info = dense_info | {"y1": y1}
        return y1, error, dense_info, (inner, singular), result
