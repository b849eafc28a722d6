"""What a run starts from: projected if the run projects, and checked, with errors that name what is wrong."""

import equinox as eqx
import numpy as np
from jaxtyping import Array

from ._acceleration import Acceleration, Equations, equations_of_motion, require_shapes, why_not_finite
from ._doctor import inconsistent_rows, unit_rows
from ._errors import InputError
from ._project import Projection, project
from ._projected_solver import Model
from ._pseudoinverse import DEFAULT_RCOND

State = tuple[Array, Array]


@eqx.filter_jit
def _equations(model: Model, t: Array, q: Array, v: Array) -> Equations:
    require_shapes(model.system, t, q, v)  # here, where it is traced once, and before anything else
    return equations_of_motion(model.system, t, q, v, model.stabilizer)


@eqx.filter_jit
def _projected(model: Model, t: Array, q: Array, v: Array) -> tuple[State, Equations, Acceleration]:
    """The state the run starts from, and what holds there."""
    q, v = model.project(t, (q, v))
    equations = equations_of_motion(model.system, t, q, v, model.stabilizer)
    return (q, v), equations, model.formula.solve(equations)


def _is_precise(model: Model, equations: Equations) -> bool:
    """Whether the state is on the constraints, if it is to be."""
    rows = equations.rows
    errors = np.concatenate([np.abs(rows.position_error), np.abs(rows.velocity_error)])
    precise = errors.max(initial=0) < 1e4 * np.finfo(rows.b.dtype).eps
    return bool(precise) or not isinstance(model.stabilizer, Projection)


def _has_acceleration(equations: Equations) -> bool:
    """Whether M is positive definite and A a = b consistent: by NumPy, since compiling a formula takes seconds."""
    rows = equations.rows
    M, A, b, *others = (np.asarray(x) for x in (equations.M, rows.A, rows.b, equations.Q, equations.c))
    if not all(np.all(np.isfinite(x)) for x in (M, A, b, *others)):
        return False
    try:
        np.linalg.cholesky(M)
    except np.linalg.LinAlgError:
        return False
    unit, norms = unit_rows(A)
    return not inconsistent_rows(equations, np.linalg.pinv(unit, rcond=DEFAULT_RCOND) @ (b / norms))


def checked_start(model: Model, t: Array, q: Array, v: Array, automatic: bool) -> State:
    """The state to start from.

    **Arguments:**

    - `model`: what is to run.
    - `t`, `q`, `v`: the state given.
    - `automatic`: whether the formula is the default one.

    **Raises:** `InputError`, by constraint name, where a run could not start.
    """
    equations = _equations(model, t, q, v)
    if automatic and _is_precise(model, equations) and _has_acceleration(equations):
        return q, v
    y, equations, acceleration = _projected(model, t, q, v)
    if not np.all(np.isfinite(acceleration.a)) or not _is_precise(model, equations):
        model.formula.acceleration(model.system, t, q, v, stabilizer=model.stabilizer)  # raises what is wrong
        if isinstance(model.stabilizer, Projection):
            y = project(model.system, t, q, v, pinv=model.stabilizer.pinv)
        y, equations, acceleration = _projected(model, t, *y)
    if not np.all(np.isfinite(acceleration.a)):
        raise InputError(why_not_finite(model.formula, model.system, t, *y, model.stabilizer))
    yields = getattr(model.formula, "clearance", None) is not None  # rows that are not met by intent
    inconsistent = inconsistent_rows(equations, acceleration.a)
    if inconsistent and not yields:
        raise InputError(
            f"the constraints {', '.join(inconsistent)} are inconsistent: no acceleration satisfies all rows "
            f"at t = {t}. `ukjax.check` tells more."
        )
    return y
