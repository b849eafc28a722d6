"""What the user writes of a constraint, and the one place where it becomes rows of A a = b.

Every constraint is brought to velocity level, psi(t, q, v) = 0: a holonomic phi(t, q) = 0 as its total
time derivative psi = phi_t + phi_q q', a nonholonomic one as it stands. Differentiating once more gives

    A = d psi / d v                      by `jax.jacfwd`,
    b = -(psi_t + psi_q q')              by one `jax.jvp` along (1, q', 0).

Rheonomic constraints are no special case: time is an argument whose tangent is 1.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._misc._arguments import number_array, real_array
from .._misc._called import called
from .._misc._errors import InputError, shown
from .._misc._precision import in_full_precision
from .._misc._types import Coordinates, Time, Velocities
from ._constraint_names import constraint_name, names_by_kind
from ._together import AbstractTogether

if TYPE_CHECKING:
    from ._system import AbstractSystem

Kind = Literal["holonomic", "nonholonomic", "acceleration", "position"]


class AbstractConstraint(eqx.Module):
    """A named set of constraint rows. Concrete ones: `Holonomic`, `Nonholonomic`, `AccelerationConstraint`."""

    name: eqx.AbstractVar[str]


@final
class Holonomic(AbstractConstraint):
    """A constraint on positions, phi(t, q) = 0; it may depend on time (Xu-Liu 2017, eq. (3)).

    **Arguments:**

    - `fn`: phi(t, q), returning a scalar or an array of shape (k,): k rows, in units of its own (m, rad, ...).
    - `name`: what reports and errors call it; by default the function's name, of a lambda such as `holonomic 1`.
    """

    fn: Callable[[Time, Coordinates], Array]
    name: str = eqx.field(static=True)

    def __init__(self, fn: Callable[[Time, Coordinates], Array], *, name: str | None = None):
        self.fn = fn
        self.name = constraint_name(fn, name, "t, q")


@final
class PositionConstraint(AbstractConstraint):
    """phi(t, q) = 0 whose rate is a position again and a constraint of its own, as in systems of higher order.

    Its row of A is zero, and asks nothing of the acceleration; but positions are projected onto it.

    **Arguments:**

    - `fn`: phi(t, q), whose rate does not depend on v.
    - `name`: what reports and errors call it; by default the function's name, of a lambda such as `position 1`.
    """

    fn: Callable[[Time, Coordinates], Array]
    name: str = eqx.field(static=True)

    def __init__(self, fn: Callable[[Time, Coordinates], Array], *, name: str | None = None):
        self.fn = fn
        self.name = constraint_name(fn, name, "t, q")


@final
class Nonholonomic(AbstractConstraint):
    """A constraint on velocities, psi(t, q, v) = 0, not necessarily linear in v (Xu-Liu 2017, eq. (3)).

    **Arguments:**

    - `fn`: psi(t, q, v), returning a scalar or an array of shape (k,).
    - `name`: what reports and errors call it; by default the function's name, of a lambda such as `nonholonomic 1`.
    """

    fn: Callable[[Time, Coordinates, Velocities], Array]
    name: str = eqx.field(static=True)

    def __init__(self, fn: Callable[[Time, Coordinates, Velocities], Array], *, name: str | None = None):
        self.fn = fn
        self.name = constraint_name(fn, name)


@final
class AccelerationConstraint(AbstractConstraint):
    """Rows given as they stand, A(t, q, v) a = b(t, q, v) (Udwadia and Kalaba 1992).

    Nothing is known of the position or velocity they came from, so no stabilizer acts on them.

    **Arguments:**

    - `fn`: returns the pair (A, b) of shapes (k, n) and (k,).
    - `name`: what reports and errors call it; by default the function's name, of a lambda such as `acceleration 1`.
    """

    fn: Callable[[Time, Coordinates, Velocities], tuple[Array, Array]]
    name: str = eqx.field(static=True)

    def __init__(
        self,
        fn: Callable[[Time, Coordinates, Velocities], tuple[Array, Array]],
        *,
        name: str | None = None,
    ):
        self.fn = fn
        self.name = constraint_name(fn, name)


_OF_POSITIONS = (Holonomic, PositionConstraint)
_KINDS: dict[type, Kind] = {
    Holonomic: "holonomic",
    PositionConstraint: "position",
    Nonholonomic: "nonholonomic",
}


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


def as_constraints(value: Any) -> tuple[AbstractConstraint, ...]:
    """The constraints of a system as a tuple, those of functions without a name named by kind and number.

    **Arguments:**

    - `value`: a sequence of constraints.

    **Raises:** `InputError` for anything else.
    """
    several = isinstance(value, tuple | list)
    if not several or not all(isinstance(c, AbstractConstraint) for c in value):
        got = f"({', '.join(type(c).__name__ for c in value)})" if several else type(value).__name__
        raise InputError(
            "constraints must be a tuple of Holonomic(fn), Nonholonomic(fn) or AccelerationConstraint(fn), "
            f"got {got}."
        )
    kinds = [_KINDS.get(type(c), "acceleration") for c in value]
    names = names_by_kind([c.name for c in value], kinds)
    return tuple(c if c.name == name else replace(c, name=name) for c, name in zip(value, names, strict=True))


def _constraints_of(system: "AbstractSystem") -> tuple[Any, ...]:
    return as_constraints(getattr(system, "constraints", None))


def _as_rows(value: Array, name: str) -> Array:
    value = number_array(f"what constraint '{name}' returns", value)
    if not jnp.issubdtype(value.dtype, jnp.floating):
        raise InputError(f"constraint '{name}' returned {value.dtype}; return real numbers.")
    if value.ndim > 1:
        raise InputError(
            f"constraint '{name}' returned shape {value.shape}; return a scalar or a vector of rows."
        )
    return jnp.atleast_1d(value)


def _values(constraints: Sequence[Any], *arguments: Array) -> list[Array]:
    """What the functions of constraints return, as rows."""
    found: dict[int, Array] = {}
    together: dict[type[AbstractTogether], list[int]] = {}
    for i, c in enumerate(constraints):
        if isinstance(c.fn, AbstractTogether):
            together.setdefault(type(c.fn), []).append(i)
        else:
            found[i] = called(f"constraint '{c.name}'", c.fn, *arguments)
    for kind, places in together.items():
        found |= zip(places, kind.together([constraints[i].fn for i in places], *arguments), strict=True)
    return [_as_rows(found[i], c.name) for i, c in enumerate(constraints)]


def position_rows(system: "AbstractSystem", t: Time, q: Coordinates) -> Float[Array, " mh"]:
    """The stacked position errors phi(t, q) of the constraints on positions alone, in their order (m_h,)."""
    rows = _values([c for c in _constraints_of(system) if isinstance(c, _OF_POSITIONS)], t, q)
    return jnp.concatenate(rows) if rows else jnp.zeros(0, q.dtype)


def _velocity_parts(
    system: "AbstractSystem", t: Time, q: Coordinates, v: Velocities
) -> tuple[list[Array], list[Array]]:
    """phi (zero where there is none) and psi of each differentiated constraint, in order."""
    qdot = called("`kinematics`", system.kinematics, t, q, v)
    if qdot.shape != q.shape:
        raise InputError(
            f"`kinematics` returned shape {qdot.shape}; the rate of q must have its shape {q.shape}."
        )
    constraints = _constraints_of(system)
    of_q, of_v = (
        [i for i, c in enumerate(constraints) if isinstance(c, kind)]
        for kind in (_OF_POSITIONS, Nonholonomic)
    )
    rows = lambda t, q: _values([constraints[i] for i in of_q], t, q)
    phi, rate = jax.jvp(rows, (t, q), (jnp.ones_like(t), qdot))
    slip = _values([constraints[i] for i in of_v], t, q, v)
    phis = dict(zip([*of_q, *of_v], [*phi, *map(jnp.zeros_like, slip)], strict=True))
    psis = dict(zip([*of_q, *of_v], [*rate, *slip], strict=True))
    return [phis[i] for i in sorted(phis)], [psis[i] for i in sorted(psis)]


def _acceleration_parts(
    c: AccelerationConstraint, t: Time, q: Coordinates, v: Velocities
) -> tuple[Array, Array]:
    found = called(f"constraint '{c.name}'", c.fn, t, q, v)
    if not isinstance(found, tuple | list) or len(found) != 2:
        raise InputError(f"constraint '{c.name}' must return the pair (A, b), got {shown(found)}.")
    A, b = (real_array(f"{part} of constraint '{c.name}'", x) for part, x in zip("Ab", found, strict=True))
    if A.ndim != 2 or A.shape[1:] != v.shape or b.shape != A.shape[:1]:
        raise InputError(
            f"constraint '{c.name}' returned A of shape {A.shape} and b of shape {b.shape}; "
            f"with {v.size} velocities they must be (k, {v.size}) and (k,)."
        )
    return A, b


@in_full_precision
def constraint_rows(system: "AbstractSystem", t: Time | float, q: Coordinates, v: Velocities) -> Rows:
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
    phis, psis = _velocity_parts(system, t, q, v)

    def psi(t: Array, q: Array, v: Array) -> Array:
        parts = _velocity_parts(system, t, q, v)[1]
        return jnp.concatenate(parts) if parts else jnp.zeros(0, q.dtype)

    A = jax.jacfwd(psi, argnums=2)(t, q, v)
    b = -jax.jvp(psi, (t, q, v), (jnp.ones_like(t), system.kinematics(t, q, v), jnp.zeros_like(v)))[1]

    parts, names, kinds, start = [], [], [], 0
    derived = iter(zip(phis, psis, strict=True))
    for c in _constraints_of(system):
        if isinstance(c, AccelerationConstraint):
            A_c, b_c = _acceleration_parts(c, t, q, v)
            parts.append((A_c, b_c, jnp.zeros_like(b_c), jnp.zeros_like(b_c)))
            k, kind = b_c.size, "acceleration"
        else:
            phi_c, psi_c = next(derived)
            k, kind = psi_c.size, _KINDS[type(c)]
            parts.append((A[start : start + k], b[start : start + k], phi_c, psi_c))
            start += k
        names += [c.name] if k == 1 else [f"{c.name}[{i}]" for i in range(k)]
        kinds += [kind] * k
    if not parts:
        return Rows(A, b, b, b, (), ())
    return Rows(
        *(jnp.concatenate(column) for column in zip(*parts, strict=True)),
        names=tuple(names),
        kinds=tuple(kinds),
    )
