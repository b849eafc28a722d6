"""What a run starts from: projected if the run projects, and checked, with errors that name what is wrong."""

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from .._formula._acceleration import (
    AbstractFormula,
    Acceleration,
    Equations,
    equations_of_motion,
    require_balance,
    require_rows_kept,
    require_shapes,
    solve_equations,
    why_not_finite,
)
from .._formula._equations import require_energy
from .._formula._on_host import acceleration_if_clear, cholesky, clearly_independent
from .._misc._errors import InputError
from .._motion._model import Model
from .._motion._project import project
from .._motion._states import States, equations, mass_matrices, observe_states, project_states
from .._pseudoinverse import (
    DEFAULT_RCOND,
    SVD,
    CompleteOrthogonal,
    GramSchmidt,
    Greville,
    HouseholderQR,
    solve_on_host,
)
from ._doctor import inconsistent_rows

State = tuple[Array, Array]

# Methods that give the least-norm solution of rows that agree, dependent or not.
_TELL_ROWS_APART = (SVD, CompleteOrthogonal, GramSchmidt, Greville, HouseholderQR)


@eqx.filter_jit
def _equations(model: Model, t: Array, q: Array, v: Array) -> Equations:
    require_shapes(model.system, t, q, v)  # here, where it is traced once, and before anything else
    return equations_of_motion(model.system, t, q, v, model.stabilizer)


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


def _has_acceleration(equations: Equations, formula: AbstractFormula | None) -> bool:
    """Whether M is positive definite and A a = b consistent: by NumPy, since compiling a formula takes seconds."""
    rows = equations.rows
    M, A, b, *others = (np.asarray(x) for x in (equations.M, rows.A, rows.b, equations.Q, equations.c))
    if not all(np.all(np.isfinite(x)) for x in (M, A, b, *others)):
        return False
    try:
        cholesky(M)
    except np.linalg.LinAlgError:
        return False
    if formula is not None:
        method = formula.inverted_by
        if not isinstance(method, _TELL_ROWS_APART):
            return clearly_independent(equations, (method or GramSchmidt()).threshold(A.dtype))
        a = acceleration_if_clear(equations, method.threshold(A.dtype))
        return a is not None and not inconsistent_rows(equations, a)
    return not inconsistent_rows(equations, solve_on_host(A, b, DEFAULT_RCOND))


def _together(t: Array, *states: State) -> States:
    return States(np.full(len(states), t), *(np.array(x) for x in zip(*states, strict=True)))


def equations_at(model: Model, t: Array, *states: State) -> list[Equations]:
    """The equations of motion at states with values, by scalar code where there is any."""
    if model.code is None:
        return [_equations(model, t, *state) for state in states]
    leaves, tree = jax.tree.flatten(equations(model, _together(t, *states)))
    return [jax.tree.unflatten(tree, [x[i] for x in leaves]) for i in range(len(states))]


def _fits(model: Model, t: Array, state: State, automatic: bool, *, symmetric: bool) -> bool:
    """Whether a run can start there, as far as can be told without compiling a formula."""
    rows = observe_states(model, _together(t, state)) if model.is_solved else None
    symmetric = symmetric or (model.code is not None and model.code.symmetric)
    if rows is not None:
        if not _is_precise(model, rows["position_error"], rows["velocity_error"]):
            return False
        regular = bool(rows["regular"][0])
        if not automatic:  # of a formula they are regular wherever it is finite
            (here,) = equations_at(model, t, state)
            _require_symmetric(here.M)
            return regular and not inconsistent_rows(here, rows["a"][0])
        if regular:
            if not symmetric:
                _require_symmetric(mass_matrices(model, _together(t, state))[0])
            return True
    (here,) = equations_at(model, t, state)
    _require_symmetric(here.M)
    if not _is_precise(model, here.rows.position_error, here.rows.velocity_error):
        return False
    method = model.stabilizer.projection_method
    # A method that needs independent rows says where they depend on others.
    if method is None or automatic or not method.independent_rows:
        fits = True
    else:
        fits = clearly_independent(here, method.threshold(here.rows.A.dtype))
    return fits and _has_acceleration(here, None if automatic else model.formula)


def _candidates(model: Model, t: Array, state: State) -> Iterator[State]:
    """The state given, and the one near it on the constraints, which is found only where it is asked for."""
    yield state
    if model.projection is not None:
        found = project_states(model, _together(t, state))
        yield found.q[0], found.v[0]  # pyright: ignore[reportReturnType]


def _solve_at(model: Model, t: Array, y: State) -> tuple[Equations, Acceleration]:
    """What holds at a state, by the formula."""
    (here,) = equations_at(model, t, y)
    _require_symmetric(here.M)
    acceleration = solve_equations(model.formula, here)
    if not np.all(np.isfinite(acceleration.a)):
        raise InputError(why_not_finite(model.formula, here, t, *y))
    return here, acceleration


def find_start(
    model: Model, t: Array, q: Array, v: Array, automatic: bool, *, symmetric: bool = False
) -> State:
    """The state to start from.

    **Raises:** `InputError`, by constraint name, where a run could not start.
    """
    if not automatic:  # of others it is checked where scalar code is made
        require_energy(model.system, t, q, v)
    if not model.formula.needs_definite_mass:
        require_balance(model.formula, *_solve_at(model, t, (q, v)))
    for state in _candidates(model, t, (q, v)):
        if _fits(model, t, state, automatic, symmetric=symmetric):
            return state
    y: State = q, v
    equations, acceleration = _solve_at(model, t, y)
    method, rows = model.stabilizer.projection_method, equations.rows
    precise = _is_precise(model, rows.position_error, rows.velocity_error)
    if method and (method.independent_rows or not precise):  # which says where rows depend on others
        y = project(model.system, t, q, v, pinv=method)
        equations, acceleration = _solve_at(model, t, y)
    yields = getattr(model.formula, "clearance", None) is not None  # rows that are not met by intent
    inconsistent = inconsistent_rows(equations, acceleration.a)
    if inconsistent and not yields:
        require_rows_kept(model.formula, equations, acceleration)
        raise InputError(
            f"the constraints {', '.join(inconsistent)} are inconsistent: no acceleration satisfies all rows "
            f"at t = {t}. `ukjax.check` tells more."
        )
    return y
