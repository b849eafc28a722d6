"""The one place where the constraints of a system become rows of A a = b.

Every constraint is brought to velocity level, psi(t, q, v) = 0: a position error phi(t, q) as its total time
derivative psi = phi_t + phi_q q', a velocity error as it stands. Differentiating once more gives

    A = d psi / d v                      by `jax.jacfwd`,
    b = -(psi_t + psi_q q')              by one `jax.jvp` along (1, q', 0),

for all constraints at once; a kind that gives its rows itself is left out of that. Rheonomic constraints are no special
case: time is an argument whose tangent is 1.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._compiler import compile_small
from .._misc._arguments import call_user_function, number_array, real_array
from .._misc._closures import trace_once
from .._misc._errors import InputError, format_value
from .._misc._types import (
    Coordinates,
    Time,
    Velocities,
    choose_by_precision,
    in_full_precision,
    is_within_jit,
)
from ._constraint import OF_POSITIONS, OF_VELOCITIES, AbstractConstraint, Kind, bilateral
from ._system import AbstractSystem, require_sizes


def most_off(dtype: Any) -> float:
    """How far rows may be off and count as kept, of a projected state: times 1 and the largest coordinate, or velocity.

    A projection leaves some 1e-12 in float64, and 1e-9 where a linkage passes a singular position; rows that no state
    obeys are off by parts of what they say.
    """
    return choose_by_precision(dtype, 1e-7, 1e-3)


def is_off(error: Array, x: Array) -> Array:
    """Whether rows count as not kept by a projected state."""
    largest = lambda x: jnp.max(jnp.abs(x), initial=0)
    return largest(error) > most_off(x.dtype) * (1 + largest(x))


@final
class Rows(eqx.Module):
    """All constraints of a system at one state, as m rows of A a = b.

    - `A`: constraint Jacobian (m, n).
    - `b`: right-hand side (m,).
    - `position_error`: phi for holonomic rows, 0 for the others (m,).
    - `velocity_error`: psi for holonomic and nonholonomic rows, 0 for the others (m,).
    - `names`: one name a row, `"pin[0]"`, `"pin[1]"` for a constraint of several rows.
    - `kinds`: `"holonomic"`, `"nonholonomic"`, `"acceleration"`, or `"position"` for a row that asks nothing of a.
    """

    A: Float[Array, "m n"]
    b: Float[Array, " m"]
    position_error: Float[Array, " m"]
    velocity_error: Float[Array, " m"]
    names: tuple[str, ...] = eqx.field(static=True)
    kinds: tuple[Kind, ...] = eqx.field(static=True)

    @property
    def of_positions(self) -> Bool[np.ndarray, " m"]:
        """Which rows have a position error."""
        return np.array([kind in OF_POSITIONS for kind in self.kinds], bool)

    @property
    def of_velocities(self) -> Bool[np.ndarray, " m"]:
        """Which rows have a velocity error."""
        return np.array([kind in OF_VELOCITIES for kind in self.kinds], bool)

    @property
    def of_accelerations(self) -> Bool[np.ndarray, " m"]:
        """Which rows ask something of the acceleration."""
        return np.array([kind != "position" for kind in self.kinds], bool)


def _as_rows(value: Array, name: str) -> Array:
    value = number_array(f"what constraint '{name}' returns", value)
    if not jnp.issubdtype(value.dtype, jnp.floating):
        remedy = "the difference a - b for a == b" if value.dtype == bool else "0.0 for 0"
        raise InputError(f"constraint '{name}' returned {value.dtype}; return real numbers: write {remedy}.")
    if value.ndim > 1:
        raise InputError(
            f"constraint '{name}' returned shape {value.shape}; return a scalar or a vector of rows, as x.ravel() is."
        )
    return jnp.atleast_1d(value)


def _ask_each_kind(
    constraints: Sequence[AbstractConstraint],
    ask: Callable[[type[AbstractConstraint], list[Any]], Sequence[Any]],
) -> list[Any]:
    """What the constraints answer, each kind being asked once."""
    kinds: dict[type[AbstractConstraint], list[int]] = {}
    for i, c in enumerate(constraints):
        kinds.setdefault(type(c), []).append(i)
    found: dict[int, Any] = {}
    for kind, places in kinds.items():
        found |= zip(places, ask(kind, [constraints[i] for i in places]), strict=True)
    return [found[i] for i in range(len(constraints))]


def _errors_of_each_kind(
    constraints: Sequence[AbstractConstraint],
    ask: Callable[[type[AbstractConstraint], list[Any]], Sequence[Array | None]],
) -> list[Array | None]:
    """The same as rows; None where a constraint does not answer."""
    found = zip(_ask_each_kind(constraints, ask), constraints, strict=True)
    return [None if x is None else _as_rows(x, c.name) for x, c in found]


def _position_errors(
    constraints: Sequence[AbstractConstraint], t: Time, q: Coordinates
) -> list[Array | None]:
    return _errors_of_each_kind(constraints, lambda kind, several: kind.position_errors(several, t, q))


def _stack_rows(parts: Sequence[Array | None], dtype: Any) -> Array:
    rows = [x for x in parts if x is not None]
    return jnp.concatenate(rows) if rows else jnp.zeros(0, dtype)


def _constraints_of(system: AbstractSystem) -> tuple[AbstractConstraint, ...]:
    return bilateral(getattr(system, "constraints", None))


def position_rows(system: AbstractSystem, t: Time, q: Coordinates) -> Float[Array, " mh"]:
    """The stacked position errors phi(t, q) of the constraints that have such, in their order (m_h,)."""
    return _stack_rows(_position_errors(_constraints_of(system), t, q), q.dtype)


def position_rows_and_jacobian(
    system: AbstractSystem, t: Time, q: Coordinates
) -> tuple[Float[Array, " mh"], Float[Array, "mh nq"]]:
    """phi(t, q) as `position_rows`, and d phi / d q."""
    constraints = _constraints_of(system)
    own = _ask_each_kind(constraints, lambda kind, several: kind.position_jacobians(several, t, q))
    left = [c for c, J in zip(constraints, own, strict=True) if J is None]
    # Differentiated below: the user's functions are called once.
    errors = trace_once(lambda q: _position_errors(left, t, q), q)
    of_left = zip(errors(q), jax.jacfwd(errors)(q), strict=True)
    given = [c for c, J in zip(constraints, own, strict=True) if J is not None]
    of_given = zip(_position_errors(given, t, q), [J for J in own if J is not None], strict=True)
    pairs = [next(of_left if J is None else of_given) for J in own]
    found = [(phi, J) for phi, J in pairs if phi is not None]
    if not found:
        return jnp.zeros(0, q.dtype), jnp.zeros((0, q.size), q.dtype)
    phi, J = map(jnp.concatenate, zip(*found, strict=True))
    return phi, J


def _errors(
    system: AbstractSystem, constraints: Sequence[AbstractConstraint], t: Time, q: Coordinates, v: Velocities
) -> tuple[list[Array | None], list[Array | None]]:
    """phi and psi of each constraint; None where it has no such."""
    qdot = call_user_function("`kinematics`", system.kinematics, t, q, v)
    if qdot.shape != q.shape:
        require_sizes(system, q.size, v.size)
        raise InputError(
            f"`kinematics` returned shape {qdot.shape}; the rate of q must have its shape {q.shape}."
        )
    psis = _errors_of_each_kind(constraints, lambda kind, several: kind.velocity_errors(several, t, q, v))
    told = [c for c, psi in zip(constraints, psis, strict=True) if psi is not None]
    left = [c for c, psi in zip(constraints, psis, strict=True) if psi is None]
    of_told = iter(_position_errors(told, t, q))
    of_left = jax.jvp(lambda t, q: _position_errors(left, t, q), (t, q), (jnp.ones_like(t), qdot))
    rates = zip(*of_left, strict=True)
    errors = [next(rates) if psi is None else (next(of_told), psi) for psi in psis]
    return [phi for phi, _ in errors], [psi for _, psi in errors]


def velocity_rows(system: AbstractSystem, t: Time, q: Coordinates, v: Velocities) -> Float[Array, " mv"]:
    """The stacked velocity errors psi(t, q, v) of the constraints that have such, in their order (m_v,)."""
    return _stack_rows(_errors(system, _constraints_of(system), t, q, v)[1], q.dtype)


def _require_velocity_error(c: AbstractConstraint, psi: Array | None) -> Array:
    if psi is None:
        raise InputError(
            f"constraint '{c.name}' says nothing: {type(c).__name__} must have the method position_error, "
            "velocity_error or acceleration_rows."
        )
    return psi


def _own_rows(c: AbstractConstraint, v: Velocities, found: Any) -> tuple[Array, Array] | None:
    """A and b where the constraint gives them itself, as `found`."""
    if found is None:
        return None
    if not isinstance(found, tuple | list) or len(found) != 2:
        raise InputError(f"constraint '{c.name}' must return the pair (A, b), got {format_value(found)}.")
    A, b = (real_array(f"{part} of constraint '{c.name}'", x) for part, x in zip("Ab", found, strict=True))
    if A.ndim != 2 or A.shape[1:] != v.shape or b.shape != A.shape[:1]:
        raise InputError(
            f"constraint '{c.name}' returned A of shape {A.shape} and b of shape {b.shape}; "
            f"with {v.size} velocities they must be (k, {v.size}) and (k,)."
        )
    return A, b


def _differentiate_errors(
    errors: Callable[..., Any], system: AbstractSystem, t: Time, q: Coordinates, v: Velocities
) -> tuple[Array, Array]:
    """A and b from the rates of the velocity errors, one constraint after the other."""
    psi = lambda t, q, v: _stack_rows(errors(t, q, v)[1], q.dtype)
    A = jax.jacfwd(psi, argnums=2)(t, q, v)
    return A, -jax.jvp(psi, (t, q, v), (jnp.ones_like(t), system.kinematics(t, q, v), jnp.zeros_like(v)))[1]


class Level(NamedTuple):
    """What a constraint writes out, what follows by differentiation, and the size of the terms of both."""

    written: Array
    derived: Array
    size: Array


def collect_levels(
    system: AbstractSystem, c: AbstractConstraint, t: Time, q: Coordinates, v: Velocities
) -> dict[str, Level]:
    """Of one constraint each level that it writes out itself, beside the derivative of the level before."""
    qdot, one, levels = system.kinematics(t, q, v), jnp.ones_like(t), {}
    position = lambda t, q: _position_errors([c], t, q)[0]
    rate = lambda t, q, v: jax.jvp(position, (t, q), (one, system.kinematics(t, q, v)))[1]
    own = lambda t, q, v: _errors_of_each_kind([c], lambda kind, same: kind.velocity_errors(same, t, q, v))[0]
    add = lambda what, x, y, more: levels.update({what: Level(x, y, jnp.abs(x) + jnp.abs(y) + more)})
    has_position, psi = position(t, q) is not None, own(t, q, v)
    if has_position and (J := type(c).position_jacobians([c], t, q)[0]) is not None:
        derived = jax.jacfwd(position, argnums=1)(t, q)
        add("jacobian", J, derived, jnp.max(jnp.abs(derived), initial=0))
    if has_position and psi is not None:
        derived = rate(t, q, v)
        add("velocity", psi, derived, jnp.abs(jax.jacfwd(position, argnums=1)(t, q)) @ jnp.abs(qdot))
    if not has_position and psi is None:
        return levels
    error = rate if psi is None else own
    found = _own_rows(c, v, type(c).all_acceleration_rows([c], t, q, v)[0])
    if found is not None:
        A = jax.jacfwd(error, argnums=2)(t, q, v)
        b = -jax.jvp(error, (t, q, v), (one, qdot, jnp.zeros_like(v)))[1]
        add("A", found[0], A, jnp.max(jnp.abs(A), initial=0))
        add("b", found[1], b, jnp.abs(A) @ jnp.abs(v))
    return levels


class _Part(NamedTuple):
    """The rows of one constraint."""

    A: Array
    b: Array
    position_error: Array
    velocity_error: Array


def _part(c: AbstractConstraint, A: Array, b: Array, phi: Array | None, psi: Array | None) -> _Part:
    for error, kinds, level in ((phi, OF_POSITIONS, "position"), (psi, OF_VELOCITIES, "velocity")):
        if (error is not None) != (c.kind in kinds):
            given = "no" if error is None else "a"
            raise InputError(f"constraint '{c.name}' is of kind '{c.kind}', but has {given} {level} error.")
    zero = jnp.zeros_like(b)
    part = _Part(A, b, zero if phi is None else phi, zero if psi is None else psi)
    if any(x.shape != b.shape for x in part[2:]):
        raise InputError(
            f"constraint '{c.name}' has {b.size} rows, but a position error of shape {part.position_error.shape} and a "
            f"velocity error of shape {part.velocity_error.shape}; each must have a value for each row."
        )
    return part


@in_full_precision
def constraint_errors(
    system: AbstractSystem, t: Time, q: Coordinates, v: Velocities
) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
    """phi and psi of all rows (m,), as in `constraint_rows`, which is much more to compute: zero where there is none."""
    constraints = _constraints_of(system)
    errors = zip(constraints, *_errors(system, constraints, t, q, v), strict=True)
    levels = list[tuple[Array, Array]]()
    for c, phi, psi in errors:
        if psi is None:
            rows = jax.eval_shape(lambda c=c: type(c).all_acceleration_rows([c], t, q, v)[0])
            psi = jnp.zeros(_require_velocity_error(c, rows and rows[1]).shape, q.dtype)
        levels.append((jnp.zeros_like(psi) if phi is None else phi, psi))
    of_positions, of_velocities = zip(*levels, strict=True) if levels else ((), ())
    return _stack_rows(of_positions, q.dtype), _stack_rows(of_velocities, q.dtype)


@in_full_precision
def constraint_rows(system: AbstractSystem, t: Time | float, q: Coordinates, v: Velocities) -> Rows:
    """All constraints of `system` as rows A a = b, with their errors (theory: Xu-Liu 2017, eqs. (3)-(5)).

    **Arguments:**

    - `system`: whose `constraints` are differentiated.
    - `t`: time [s], a scalar.
    - `q`: generalized coordinates (n_q,).
    - `v`: generalized velocities (n,).

    **Returns:** `Rows`, in the order of `system.constraints`.

    **Raises:** `InputError`, naming the constraint, if one returns an array of the wrong shape.
    """
    q, v = real_array("q", q), real_array("v", v)
    t = real_array("t", t).astype(q.dtype)
    if t.ndim or q.ndim != 1 or v.ndim != 1:
        raise InputError(
            f"t, q, v have shapes {t.shape}, {q.shape}, {v.shape}; they must be (), (n_q,), (n,)."
        )
    compiled = isinstance(system, AbstractSystem) and not is_within_jit(system, t, q, v)
    return (_compiled_rows if compiled else _rows)(system, t, q, v)


def _rows(system: AbstractSystem, t: Array, q: Array, v: Array) -> Rows:
    constraints = _constraints_of(system)
    ask: Callable[..., Any] = lambda kind, several: kind.all_acceleration_rows(several, t, q, v)
    asked = zip(constraints, _ask_each_kind(constraints, ask), strict=True)
    own = [_own_rows(c, v, found) for c, found in asked]
    given, left = (
        [c for c, x in zip(constraints, own, strict=True) if (x is None) == none] for none in (0, 1)
    )
    of_given = zip(*_errors(system, given, t, q, v), strict=True)
    of_left, A, b = iter(()), jnp.zeros((0, v.size), q.dtype), jnp.zeros(0, q.dtype)
    if left:
        # Differentiated twice below: the user's functions are called once.
        errors = trace_once(lambda t, q, v: _errors(system, left, t, q, v), t, q, v)
        of_left = zip(*errors(t, q, v), strict=True)
        A, b = _differentiate_errors(errors, system, t, q, v)
    parts, names, kinds, start = [], [], [], 0
    for c, rows in zip(constraints, own, strict=True):
        phi, psi = next(of_left if rows is None else of_given)
        if rows is None:
            k = _require_velocity_error(c, psi).size
            rows, start = (A[start : start + k], b[start : start + k]), start + k
        parts.append(_part(c, *rows, phi, psi))
        k = parts[-1].b.size
        names += [c.name] if k == 1 else [f"{c.name}[{i}]" for i in range(k)]
        kinds += [c.kind] * k
    if not parts:
        return Rows(A, b, b, b, (), ())
    return Rows(
        *(jnp.concatenate(column) for column in zip(*parts, strict=True)),
        names=tuple(names),
        kinds=tuple(kinds),
    )


_compiled_rows = compile_small(_rows)
"""As one program: outside of jit its dozens of operations would be compiled and called one by one."""
