"""What a run starts from: projected if the run projects, and checked, with errors that name what is wrong."""

from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from .._formula._acceleration import (
    Acceleration,
    Equations,
    equations_of_motion,
    require_shapes,
    why_not_finite,
)
from .._misc._errors import InputError
from .._motion._model import Model
from .._motion._project import project
from .._motion._states import States, equations, observed, projected
from .._pseudoinverse import DEFAULT_RCOND, solved_on_host
from ._doctor import inconsistent_rows

State = tuple[Array, Array]


@eqx.filter_jit
def _equations(model: Model, t: Array, q: Array, v: Array) -> Equations:
    require_shapes(model.system, t, q, v)  # here, where it is traced once, and before anything else
    return equations_of_motion(model.system, t, q, v, model.stabilizer)


@eqx.filter_jit
def _projected(model: Model, t: Array, q: Array, v: Array) -> tuple[State, Equations, Acceleration]:
    """The state the run starts from, and what holds there."""
    require_shapes(model.system, t, q, v)
    q, v = model.project(t, (q, v))
    equations = equations_of_motion(model.system, t, q, v, model.stabilizer)
    return (q, v), equations, model.formula.solve(equations)


def _is_precise(model: Model, position_error: Array, velocity_error: Array) -> bool:
    """Whether the state is on the constraints, if it is to be."""
    errors = np.abs(np.concatenate([position_error, velocity_error], axis=None))
    precise = errors.max(initial=0) < 1e4 * np.finfo(errors.dtype).eps
    return bool(precise) or model.stabilizer.projection_method is None


def _require_symmetric(M: Any) -> None:
    M = np.asarray(M)
    gap = np.abs(M - M.T)
    if gap.size and gap.max() > 1e3 * np.finfo(M.dtype).eps * np.abs(M).max():
        i, j = np.unravel_index(gap.argmax(), gap.shape)
        raise InputError(
            f"the mass matrix is not symmetric: M[{i}, {j}] = {M[i, j]}, M[{j}, {i}] = {M[j, i]}."
        )


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
    return not inconsistent_rows(equations, solved_on_host(A, b, DEFAULT_RCOND))


def _together(t: Array, *states: State) -> States:
    return States(np.full(len(states), t), *(np.array(x) for x in zip(*states, strict=True)))


def equations_at(model: Model, t: Array, *states: State) -> list[Equations]:
    """The equations of motion at states with values, by scalar code where there is any.

    **Arguments:**

    - `model`: what is to run.
    - `t`: time [s].
    - `states`: (q, v) each.
    """
    if model.code is None:
        return [_equations(model, t, *state) for state in states]
    leaves, tree = jax.tree.flatten(equations(model, _together(t, *states)))
    return [jax.tree.unflatten(tree, [x[i] for x in leaves]) for i in range(len(states))]


def _first_fit(
    model: Model, t: Array, automatic: bool, *states: State
) -> tuple[State, list[Equations] | None] | None:
    """The first of some states in which a run can start, as far as can be told without compiling a formula.

    And the equations of motion at all of them, if they were needed.
    """
    rows, at = None if model.code is None else observed(model, _together(t, *states)), None
    for i, state in enumerate(states):
        regular = False
        if rows is not None and model.code is not None:
            if not _is_precise(model, rows["position_error"][i], rows["velocity_error"][i]):
                continue
            regular = bool(rows["regular"][i])
            if not automatic:  # of a formula they are regular wherever it is finite
                at = at or equations_at(model, t, *states)
                regular = regular and not inconsistent_rows(at[i], rows["a"][i])
            if regular and model.code.symmetric:
                return state, at
        at = at or equations_at(model, t, *states)
        _require_symmetric(at[i].M)
        precise = _is_precise(model, at[i].rows.position_error, at[i].rows.velocity_error)
        if regular or (precise and _has_acceleration(at[i])):
            return state, at
    return None


def checked_start(
    model: Model, t: Array, q: Array, v: Array, automatic: bool
) -> tuple[State, list[Equations] | None]:
    """The state to start from; and the equations of motion at the state given and there, if both are known now.

    **Arguments:**

    - `model`: what is to run.
    - `t`, `q`, `v`: the state given.
    - `automatic`: whether the formula is the default one, and the model has scalar code if there is any.

    **Raises:** `InputError`, by constraint name, where a run could not start.
    """
    states: list[Any] = [(q, v)] if automatic or model.code is not None else []
    if model.projection is not None:
        found = projected(model, _together(t, (q, v)))
        states.append((found.q[0], found.v[0]))
    if states and (fit := _first_fit(model, t, automatic, *states)) is not None:
        return fit if len(states) == 2 else (fit[0], None)
    y, equations, acceleration = _projected(model, t, q, v)
    _require_symmetric(equations.M)
    rows = equations.rows
    if not np.all(np.isfinite(acceleration.a)) or not _is_precise(
        model, rows.position_error, rows.velocity_error
    ):
        model.formula.acceleration(model.system, t, q, v, stabilizer=model.stabilizer)  # raises what is wrong
        if (method := model.stabilizer.projection_method) is not None:
            y = project(model.system, t, q, v, pinv=method)
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
    return y, None
