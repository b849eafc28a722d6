"""What a run integrates: a system, how its acceleration is computed, and how its states are projected."""

import dataclasses
from typing import Any, final

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._compiler import (
    Code,
    Program,
    Projected,
    ProjectionCode,
    code_for,
    machine_code_is_wanted,
    projection_for,
)
from .._compiler._whole_loops import are_loops_whole
from .._formula._acceleration import AbstractFormula, equations_of_motion
from .._misc._errors import InputError
from .._system._stabilize import AbstractStabilizer
from .._system._system import AbstractSystem
from ._project import Projection

# Operations to compile, of more than which arrays are worth their longer runs, where LLVM does not compile by itself.
_WORTHWHILE = 10_000
# The same for derivatives of acceleration and projection where loops are not compiled whole, which take far more to
# compile; and where those operations are few beside all, as in large systems, of which those by arrays take longer.
_DERIVED, _DERIVED_OF_MANY = (5_000, 7_500), 8_000
# The same for an implicit solver, which takes tangents of it: XLA may need minutes for more.
_WITHIN_NEWTON = 300
_PROJECTIONS = 3  # of a start: each begins with the rows where the one before ended, as Newton's method does


def _is_native(program: Program) -> bool:
    return program.can_be_native and machine_code_is_wanted()


def _is_derivable(program: Program, limit: int) -> bool:
    limit = _DERIVED_OF_MANY if 2 * program.compiled < program.size else limit
    return are_loops_whole() or _is_native(program) or program.compiled <= limit


def _is_worthwhile(program: Program, solver: dfx.AbstractSolver, limit: int | None) -> bool:
    if _is_native(program):
        return True
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
    - `numbers`: of the parameters, for the code and for the projection; see `ready`.
    """

    system: AbstractSystem
    formula: AbstractFormula
    stabilizer: AbstractStabilizer
    code: Code | None = eqx.field(static=True, default=None)
    projection: ProjectionCode | None = eqx.field(static=True, default=None)
    numbers: tuple[Float[Array, " k"], Float[Array, " l"] | None] | None = None

    def ready(self) -> "Model":
        """The same model with the numbers at hand, for use in a loop."""
        if self.code is None or self.numbers is not None:
            return self
        code, projection = (
            x and x.numbers(self.system, self.stabilizer) for x in (self.code, self.projection)
        )
        return dataclasses.replace(self, numbers=(code, projection))

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

    def observed(self, t: Array, q: Array, v: Array) -> dict[str, Array]:
        """By scalar code, what a `Trajectory` tells of a state but its multipliers; nothing where there is none.

        **Arguments:** as `acceleration`.
        """
        if self.code is None or not _is_derivable(self.code.observed.program, _DERIVED[0]):
            return {}
        found = self.code.observed(*_operands(self, t, q, v))
        found["rank"] = found["rank"].astype(jnp.int32)
        return {name: found[name] for name in found if name not in ("multipliers", "regular")}

    def project(self, t: Array, y: tuple[Array, Array]) -> tuple[Array, Array]:
        """The state (q, v), projected if the stabilizer projects: where a run starts or saves, not in its loop.

        **Arguments:**

        - `t`: time [s].
        - `y`: the state (q, v).
        """
        if not isinstance(self.stabilizer, Projection):
            return y
        if self.projection is not None:
            end = projected_by_code(self, t, y, None, once=True)
            return end.q, end.v
        return self.stabilizer(self.system, t, *y)

    def start(self, t: Array, y: tuple[Array, Array]) -> tuple[Array, Array]:
        """The state (q, v) to start from, where it cannot be looked at: projected several times, for it may be far off.

        **Arguments:** as `project`.
        """
        if not isinstance(self.stabilizer, Projection):
            return y
        q, v = y  # which stays as it is until the positions have settled
        q = jax.lax.scan(lambda q, _: (self.project(t, (q, v))[0], None), q, length=_PROJECTIONS)[0]
        return self.project(t, (q, v))


def _operands(model: Model, t: Array, q: Array, v: Array) -> tuple[Array, ...]:
    """Those of the acceleration's code."""
    numbers = model.ready().numbers
    assert model.code is not None
    assert numbers is not None
    return (numbers[0], t, q, v, *model.code.applied(model.system, t, q, v))


def _by_code(model: Model, t: Array, q: Array, v: Array) -> Array:
    assert model.code is not None
    return model.code(*_operands(model, t, q, v))


@eqx.filter_custom_jvp
def _by_long_code(model: Model, t: Array, q: Array, v: Array) -> Array:
    """By scalar code, its derivative by arrays, which take less to compile."""
    return _by_code(model, t, q, v)


@_by_long_code.def_jvp
def _(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    by_arrays = lambda model, *state: dataclasses.replace(model, code=None).acceleration(*state)
    return _by_long_code(*primals), eqx.filter_jvp(by_arrays, primals, tangents)[1]


def _by_short_projection(
    model: Model, t: Array, y: tuple[Array, Array], error: tuple[Array, Array] | None, *, once: bool
) -> Projected:
    numbers = model.ready().numbers
    assert model.projection is not None
    assert numbers is not None
    assert numbers[1] is not None
    return model.projection(numbers[1], t, *y, error, once)


@eqx.filter_custom_jvp
def _by_long_projection(
    model: Model, t: Array, y: tuple[Array, Array], error: tuple[Array, Array] | None, *, once: bool
) -> Projected:
    """As `_by_long_code`."""
    return _by_short_projection(model, t, y, error, once=once)


@_by_long_projection.def_jvp
def _(primals: tuple, tangents: tuple, *, once: bool) -> tuple[Projected, Projected]:
    found = _by_long_projection(*primals, once=once)
    by_arrays = lambda model, t, y: dataclasses.replace(model, projection=None).project(t, y)
    q, v = eqx.filter_jvp(by_arrays, primals[:3], tangents[:3])[1]
    none: Any = None if found.errors is None else (None, None)
    return found, Projected(q, v, none, None)


def projected_by_code(
    model: Model, t: Array, y: tuple[Array, Array], error: tuple[Array, Array] | None, *, once: bool = False
) -> Projected:
    """The projected state and its error estimates, by scalar code.

    **Arguments:**

    - `model`: with a projection as scalar code.
    - `t`: time [s].
    - `y`: the state (q, v).
    - `error`: its error estimates, if there are any.
    - `once`: whether this is not in a loop.
    """
    assert model.projection is not None
    short = _is_derivable(model.projection.whole, _DERIVED[1])
    return (_by_short_projection if short else _by_long_projection)(model, t, y, error, once=once)


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
    except InputError:  # which says whose function is wrong, as the formula would
        raise
    except Exception as reason:
        # Whatever user code does that scalar code cannot: the formula can, or says why not.
        return model, f"arrays, as there is no scalar code: {str(reason).partition(chr(10))[0]}"
    size = code.program.size
    if not _is_worthwhile(code.program, solver, limits[0]):
        return model, f"arrays, as scalar code would take {size} operations"
    apart = " and the force on arrays" if code.apart else ""
    model, said = dataclasses.replace(model, code=code), f"scalar code of {size} operations{apart}"
    if not isinstance(model.stabilizer, Projection):
        return model, said
    try:
        rcond = model.stabilizer.pinv.threshold(q.dtype)
        projection = projection_for(model.system, model.stabilizer, rcond, t, q, v)
    except Exception as reason:  # as above
        return model, f"{said}, projected on arrays: {str(reason).partition(chr(10))[0]}"
    if not _is_worthwhile(projection.whole, solver, limits[1]):
        return model, f"{said}, projected on arrays"
    return dataclasses.replace(model, projection=projection), f"{said}, projected by {projection.whole.size}"
