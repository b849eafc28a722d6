"""What a run starts from: projected if the run projects, and checked, with errors that name what is wrong."""

import math
import numbers
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._formula._acceleration import (
    AbstractFormula,
    Acceleration,
    Equations,
    equations_of_motion,
    require_balance,
    require_rows_kept,
    require_shapes,
    why_not_finite,
)
from .._formula._equations import describe_asymmetry, require_energy
from .._formula._on_host import acceleration_if_clear, cholesky, clearly_independent, solve_equations
from .._misc._errors import InputError, StartMovedWarning, format_value
from .._misc._types import is_traced
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
from .._system._system import has_quasi_velocities
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
    return bool(precise) or not model.stabilizer.projects


def _require_symmetric(M: Any) -> None:
    if said := describe_asymmetry(np.asarray(M)):
        raise InputError(said)


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


def _stack_states(t: Array, *states: State) -> States:
    return States(np.full(len(states), t), *(np.array(x) for x in zip(*states, strict=True)))


def equations_at(model: Model, t: Array, *states: State) -> list[Equations]:
    """The equations of motion at states with values, by scalar code where there is any."""
    if model.code is None:
        return [_equations(model, t, *state) for state in states]
    leaves, tree = jax.tree.flatten(equations(model, _stack_states(t, *states)))
    return [jax.tree.unflatten(tree, [x[i] for x in leaves]) for i in range(len(states))]


def _fits(model: Model, t: Array, state: State, automatic: bool, *, symmetric: bool) -> bool:
    """Whether a run can start there, as far as can be told without compiling a formula."""
    rows = observe_states(model, _stack_states(t, state)) if model.is_solved else None
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
                _require_symmetric(mass_matrices(model, _stack_states(t, state))[0])
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
        found = project_states(model, _stack_states(t, state))
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
    """The state to start from."""
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


# --- By how much a start was moved onto the constraints: told, warned of, and refused beyond a bound
#
# A start is moved by a large part where a unit was mistaken, such as degrees for radians. Parts do not depend on units:
# coordinates and velocities are compared in the norm of the mass matrix's diagonal, and constraint rows by their
# directions, since an angle that is wrong by a radian is little beside an angle of 60.

# Rough guesses of a posture are some tenths off, mistaken units more. A pendulum of 1 m may start at up to 2 m.
_REFUSED = 0.5
_WARNED = 0.05  # angles given to a degree, as the posture of models.scara, turn rows by less
_NEGLIGIBLE = 1e-6  # far below `_WARNED`, and told without the equations of motion
_VANISHED = 1e-2  # a row that shrinks to less has no direction worth comparing


def check_start_tolerance(given: Any) -> float | None:
    """The argument `start_tolerance` as a number, or None."""
    if given is None:
        return None
    is_number = isinstance(given, numbers.Real) or (isinstance(given, Array | np.ndarray) and given.ndim == 0)
    value: Any = given  # one of Python's may be larger than a float can be
    if isinstance(given, bool) or is_traced(given) or not is_number or not _is_nonnegative(value):
        raise InputError(
            f"start_tolerance must be a number of at least 0, or None, got {format_value(given)}."
        )
    return float(min(given, sys.float_info.max)) if isinstance(given, int) else float(given)


def _is_nonnegative(value: Any) -> bool:
    try:
        return bool(value >= 0)
    except TypeError:  # arrays of anything
        return False


def start_moved(given: State, start: State) -> Float[Array, "2"]:
    """The largest change of a coordinate, and of a velocity."""
    if is_traced(given, start):
        return jnp.stack([jnp.max(jnp.abs(b - a), initial=0) for a, b in zip(given, start, strict=True)])
    # NumPy compiles nothing.
    pairs = [(np.asarray(a), np.asarray(b)) for a, b in zip(given, start, strict=True)]
    moved = [0.0 if a is b else np.abs(b - a).max(initial=0) for a, b in pairs]
    return np.array(moved, pairs[0][0].dtype)  # pyright: ignore[reportReturnType]


def _is_negligible(given: np.ndarray, start: np.ndarray) -> bool:
    if start is given:
        return True
    limit = 1e4 * np.finfo(given.dtype).eps + _NEGLIGIBLE * np.max(np.abs(given), initial=0)
    return bool(np.all(np.abs(start - given) <= limit))


def _weights(model: Model, t: Array, start: State, M: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The roots of the effective masses of the coordinates (n_q,) and of the velocities (n,)."""
    of_v = np.sqrt(np.abs(np.diag(M)))
    of_v = np.where(of_v > 0, of_v, of_v.max(initial=0) or 1)
    if not has_quasi_velocities(model.system):
        return of_v, of_v
    q, v = map(jnp.asarray, start)
    N = np.asarray(jax.jacfwd(model.system.kinematics, argnums=2)(t, q, v))
    inverse = np.linalg.norm(N / of_v, axis=1)
    return 1 / np.where(inverse > 0, inverse, 1), of_v


def _part(given: np.ndarray, start: np.ndarray, weights: np.ndarray) -> float:
    """The change of a state relative to its size, between 0 and 2."""
    squares = [float(np.sum((weights * x) ** 2)) for x in (given, start, start - given)]
    return math.sqrt(squares[2] / max(squares[:2])) if max(squares[:2]) else 0.0


def _turn(given: Equations, start: Equations, weights: np.ndarray) -> float:
    """The most a position row's direction changes [rad, where it is small]."""
    known = given.rows.of_positions & given.rows.of_accelerations
    rows = [np.asarray(x.rows.A)[known] / weights for x in (given, start)]
    norms = [np.linalg.norm(x, axis=1) for x in rows]
    kept = np.minimum(*norms) > _VANISHED * np.maximum(*norms)
    before, after = (x[kept] / norm[kept, None] for x, norm in zip(rows, norms, strict=True))
    return float(np.max(np.linalg.norm(after - before, axis=1), initial=0))


def _describe_violations(given: Equations, weights: np.ndarray) -> str:
    """The rows that are off the most, compared by how far away they are satisfied, with their errors."""
    norms = np.linalg.norm(np.asarray(given.rows.A) / weights, axis=1)
    phi, psi = (np.abs(np.asarray(x)) for x in (given.rows.position_error, given.rows.velocity_error))
    errors, what = (phi, "by") if np.any(phi > 1e-9) else (psi, "in its rate by")
    distance = errors / np.where(norms > 0, norms, 1)
    worst = [i for i in np.argsort(-distance) if distance[i] > 0.1 * distance.max(initial=0)]
    named = [f"{given.rows.names[i]} {what} {errors[i]:.3g}" for i in worst[:5]]
    return ", ".join(named) + (f" and {len(worst) - 5} more rows" if len(worst) > 5 else "")


def _percent(part: float) -> str:
    """To two digits, without an exponent."""
    return f"{float(f'{100 * part:.2g}'):g}"


def require_near(
    model: Model, t: Array, given: State, start: State, tolerance: float | None, *, stacklevel: int = 3
) -> bool:
    """Raises `InputError`, naming rows, where a start was moved too far, and warns where it was moved visibly.

    **Returns:** whether there was nothing to warn of.
    """
    q, v = zip(*((np.asarray(a), np.asarray(b)) for a, b in (given, start)), strict=True)
    if not model.stabilizer.projects or (_is_negligible(*q) and _is_negligible(*v)):
        return True
    here, there = equations_at(model, t, given, start)
    of_q, of_v = _weights(model, t, start, np.asarray(there.M))
    with np.errstate(over="ignore", invalid="ignore"):
        parts = max(_part(q[0], q[1], of_q), _turn(here, there, of_v)), _part(v[0], v[1], of_v)
    unless_at_rest = _REFUSED if np.any(v[0]) else math.inf
    bounds = (_REFUSED, unless_at_rest) if tolerance is None else (tolerance, tolerance)
    refused = any(not part <= bound for part, bound in zip(parts, bounds, strict=True))
    if not refused and (tolerance is not None or max(parts) <= _WARNED):
        return True
    moved = start_moved(given, start)
    text = (
        f"the initial state is off the constraints ({_describe_violations(here, of_v)}). Projecting it changes q by "
        f"up to {moved[0]:.3g} ({_percent(parts[0])} % of it) and v by up to {moved[1]:.3g} ({_percent(parts[1])} %)"
    )
    if refused:
        raise InputError(
            f"{text}, more than start_tolerance = {min(bounds):g} allows. Are angles in radians, and lengths and speeds "
            "in the model's units? Give a start nearer to the constraints, or a larger start_tolerance."
        )
    warnings.warn(
        f"{text}. The run starts there; start_tolerance says how much is meant.",
        StartMovedWarning,
        stacklevel=stacklevel,
    )
    return False
