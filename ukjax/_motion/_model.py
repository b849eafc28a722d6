"""What a run integrates: a system, how its acceleration is computed, and how its states are projected."""

import contextlib
import dataclasses
from typing import Any, final

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._compiler import Program, TranslationError, looks_for_nans, machine_code_is_wanted
from .._formula._acceleration import (
    AbstractFormula,
    Equations,
    UdwadiaKalaba,
    equations_of_motion,
    least_multipliers,
)
from .._formula._equations import with_dense_mass
from .._misc._types import is_traced
from .._system._rows import constraint_errors, is_off
from .._system._stabilize import AbstractStabilizer
from .._system._system import AbstractSystem
from ._acceleration_code import AccelerationProgram, Numbers, compile_acceleration, join_numbers
from ._project import Projection, iterate_projections, project, tolerance_of
from ._projection_code import ProjectedStep, ProjectionCode, projection_for
from ._solve import StepRelativeRank

# Operations of which an implicit solver takes tangents, where LLVM does not compile: XLA may need minutes for more.
_WITHIN_NEWTON = 300


def _is_worthwhile(program: Program, solver: dfx.AbstractSolver) -> bool:
    if machine_code_is_wanted():
        return True
    implicit = isinstance(getattr(solver, "solver", solver), dfx.AbstractImplicitSolver)
    return not implicit or program.size <= _WITHIN_NEWTON


@final
class Model(eqx.Module):
    """What the vector field needs: the arguments Diffrax passes through.

    - `system`: the mechanical system.
    - `formula`: how the acceleration is computed.
    - `stabilizer`: how constraint errors are kept small.
    - `code`: the acceleration as scalar code, if it is to be used in place of the formula.
    - `projection`: the projection as scalar code, if there is any.
    - `numbers`: of the parameters, for the code and for the projection; see `ready`.
    - `parts`: of a system with contacts the code of each of its `members`, and of their projections.
    - `kinds`: of a system with contacts of shapes these, where the system is without.
    - `nearness`: how close to singular the rows are where a step starts of which states are stages; see `ProjectedStep`.
    """

    system: AbstractSystem
    formula: AbstractFormula
    stabilizer: AbstractStabilizer
    code: AccelerationProgram | None = eqx.field(static=True, default=None)
    projection: ProjectionCode | None = eqx.field(static=True, default=None)
    numbers: tuple[Numbers, Float[Array, " l"] | None] | None = None
    parts: tuple[tuple[AccelerationProgram, ProjectionCode | None], ...] = eqx.field(static=True, default=())
    kinds: Any = None
    nearness: Float[Array, ""] | float = jnp.inf

    def ready(self) -> "Model":
        """The same model with the numbers at hand, for use in a loop."""
        if self.code is None or self.numbers is not None:
            return self
        code, projection = (
            x and x.numbers(self.system, self.stabilizer) for x in (self.code, self.projection)
        )
        return dataclasses.replace(self, numbers=(code, projection))

    @property
    def _has_only_parts(self) -> bool:
        """Whether there is code of parts only, which have no constraints."""
        return self.code is None and bool(self.parts)

    @property
    def is_solved(self) -> bool:
        """Whether the acceleration is scalar code, and not the equations of motion alone."""
        return self.code is not None and self.code.unsolved is None

    def equations(self, t: Array, q: Array, v: Array) -> Equations:
        """The equations of motion, by scalar code where there is any."""
        if self.code is None:
            return equations_of_motion(self.system, t, q, v, self.stabilizer)
        return with_dense_mass(self.code.equations(*_operands_in_one(self, t, q, v)))

    def acceleration(self, t: Array, q: Array, v: Array) -> Array:
        """The stabilized acceleration (n,)."""
        if self.code is None or not self.is_solved:
            return _solve(self.formula, self.equations(t, q, v))
        return self.code.stage(*_operands(self, t, q, v))

    def observed(self, t: Array, q: Array, v: Array) -> dict[str, Array]:
        """What a `Trajectory` tells of a state where the formula is scalar code; else rows and energy alone."""
        if self.code is None:
            return {}
        found = self.code.told(*_operands_in_one(self, t, q, v))
        if not self.is_solved:
            return found
        e, kept = self.equations(t, q, v), found.pop("kept") > 0.5
        multipliers = least_multipliers(e.rows.A, found["constraint_force"] - e.c, kept)
        return found | {"rank": found["rank"].astype(jnp.int32), "multipliers": multipliers}

    def _projected(
        self, t: Array, y: tuple[Array, Array]
    ) -> tuple[tuple[Array, Array], tuple[Array, Array], Array]:
        """The projected state, by how much position and velocity rows were off before the last correction, and whether
        they are still off by more than rounding: no state near this one obeys them."""
        if self.projection is not None:
            end = project_by_code(self, t, y, None)
            return (end.q, end.v), (end.violations[0], end.violations[1]), end.nearness == jnp.inf
        method = self.stabilizer.projection_method
        assert method is not None
        q, v = Projection(method)(self.system, t, *y)
        before, (phi, psi) = (constraint_errors(self.system, t, *x) for x in (y, (q, v)))
        of_q, of_v = (jnp.max(jnp.abs(x), initial=0) for x in before)
        return (q, v), (of_q, of_v), is_off(phi, q) | is_off(psi, v)

    def project(self, t: Array, y: tuple[Array, Array]) -> tuple[Array, Array]:
        """The state (q, v), projected if the stabilizer projects: where a run starts or saves, not in its loop."""
        return self.kept(t, y)[0]

    def kept(self, t: Array, y: tuple[Array, Array]) -> tuple[tuple[Array, Array], Array]:
        """As `project`, and whether constraints are still off: no state near this one obeys them."""
        if self.stabilizer.projection_method is None or self._has_only_parts:
            return y, jnp.zeros((), bool)
        projected, _, off = self._projected(t, y)
        return projected, off

    def start(self, t: Array, y: tuple[Array, Array]) -> tuple[Array, Array]:
        """The state (q, v) to start from, where it is traced: `project` for a model."""
        if self.stabilizer.projection_method is None or self._has_only_parts:
            return y

        def once(q: Array, v: Array) -> tuple[Array, ...]:
            (q, v), errors, _ = self._projected(t, (q, v))
            return q, v, *errors

        return iterate_projections(once, *y, tolerance_of(y[0].dtype))


def nearest_start(system: AbstractSystem, t: Array, q: Array, v: Array) -> tuple[Array, Array]:
    """A state near the constraints brought onto them, as `project` does; traced states as the start of a run is, by
    scalar code: XLA takes minutes to compile `project` for a robot with many loops.
    """
    if not is_traced((system, t, q, v)):
        return project(system, t, q, v)
    return _with_projection(system, t, q, v).start(t, (q, v))


def project_once(system: AbstractSystem, t: Array, q: Array, v: Array) -> tuple[Array, Array]:
    """`Projection()` of a state near the constraints, by scalar code."""
    return _with_projection(system, t, q, v).project(t, (q, v))


def _with_projection(system: AbstractSystem, t: Array, q: Array, v: Array) -> Model:
    model = Model(system, UdwadiaKalaba(), method := Projection())
    with contextlib.suppress(TranslationError):
        code = projection_for(system, method, method.pinv.threshold(q.dtype), t, q, v)
        if machine_code_is_wanted():
            return dataclasses.replace(model, projection=code, numbers=(q[:0], code.numbers(system, method)))
    return model


def multipliers(system: AbstractSystem, t: Array, q: Array, v: Array) -> Array:
    """lambda of least norm, one a row (m,), by scalar code where there is any."""
    model = Model(system, UdwadiaKalaba(), Projection())
    model, _ = translate_model(model, dfx.Tsit5(), t, q, v, automatic=True)
    if model.is_solved:
        return model.observed(t, q, v)["multipliers"]
    return model.formula.solve(model.equations(t, q, v)).multipliers


@eqx.filter_jit
def _solve(formula: AbstractFormula, equations: Equations) -> Array:
    """The acceleration; by itself, so that a program has it once for all stages of a step."""
    return formula.solve(equations).a


def _operands(model: Model, t: Array, q: Array, v: Array) -> tuple[Any, ...]:
    """Those of the acceleration's code, with the numbers in one piece or three."""
    numbers = model.ready().numbers
    assert model.code is not None
    assert numbers is not None
    near = jax.lax.stop_gradient(jnp.asarray(model.nearness, q.dtype))
    return (numbers[0], t, q, v, *model.code.applied(model.system, t, q, v), near)


def _operands_in_one(model: Model, *state: Array) -> tuple[Array, ...]:
    numbers, *others = _operands(model, *state)
    return join_numbers(numbers), *others


def project_by_code(
    model: Model, t: Array, y: tuple[Array, Array], error: tuple[Array, Array] | None
) -> ProjectedStep:
    """The projected state and its error estimates, by scalar code."""
    numbers = model.ready().numbers
    assert model.projection is not None
    assert numbers is not None
    assert numbers[1] is not None
    return model.projection(numbers[1], t, *y, error)


def translate_model(
    model: Model,
    solver: dfx.AbstractSolver,
    t: Array,
    q: Array,
    v: Array,
    *,
    automatic: bool,
) -> tuple[Model, str]:
    """The model with its acceleration as scalar code where that can be, and what became of it in words."""
    if looks_for_nans():
        return model, "arrays, so that jax_debug_nans sees all operations"
    projection = model.stabilizer.projection_method
    if projection and projection.independent_rows and not automatic:
        return model, f"arrays, so that {type(projection).__name__} says where rows depend on others"
    method = model.formula.inverted_by
    how = model.formula
    if automatic and method:
        rcond = method.threshold(q.dtype)
        how = StepRelativeRank(rcond) if projection else rcond
    try:
        code = compile_acceleration(model.system, how, model.stabilizer, t, q, v)
    except TranslationError as reason:
        return model, f"arrays, as there is no scalar code: {str(reason).partition(chr(10))[0]}"
    program = code.equations.program if code.unsolved else code.program
    if not _is_worthwhile(program, solver):
        return model, f"arrays, as scalar code would take {program.size} operations"
    said = f"scalar code of {program.size} operations"
    if code.unsolved:
        kind = type(method or model.formula).__name__
        said = f"scalar code with loops by {kind}; equations of motion by {said}"
    model, said = dataclasses.replace(model, code=code), said + " and the force on arrays" * code.apart
    method = model.stabilizer.projection_method
    if method is None:
        return model, said
    try:
        rcond = method.threshold(q.dtype)
        singular = not model.formula.needs_definite_mass
        projection = projection_for(model.system, model.stabilizer, rcond, t, q, v, singular=singular)
    except TranslationError as reason:
        return model, f"{said}, projected on arrays: {str(reason).partition(chr(10))[0]}"
    if not _is_worthwhile(projection.whole, solver):
        return model, f"{said}, projected on arrays"
    return dataclasses.replace(model, projection=projection), f"{said}, projected by {projection.whole.size}"
