"""Systems of any order k, M q(k) = Q + constraint force, as ordinary systems (Orsino 2017, section 2).

With coordinates (q0, ..., q(k-2)), velocities v = q(k-1) and the kinematics q' = (q1, ..., q(k-2), v), v' is q(k),
and all that holds of a system holds of one of any order. A constraint h(t, q0, ..., qj) = 0 has the derivatives

    h, h', ..., h^(k-2-j)     which know no velocities: positions must satisfy each,
    h^(k-1-j)                 on velocities; its derivative is the row A q(k) = b.

Of the first only the last has a row in q(k) and is a holonomic constraint; the others are on positions alone, with
rows of zeros, which rank leaves out.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._misc._arguments import all_of, real_array, require_function, require_not_negative, whole_number
from .._misc._errors import InputError
from .._misc._types import Coordinates, Forces, MassMatrix, Time, Velocities, as_jax, module_for
from ._constraint import (
    AbstractConstraint,
    AccelerationConstraint,
    Holonomic,
    Nonholonomic,
    PositionConstraint,
    constraint_name,
    names_by_kind,
)
from ._system import AbstractSystem

_HIGHEST = 100  # each order differentiates once more


def _variables(count: int) -> str:
    return ", ".join(["t", *(f"q{i}" for i in range(count))])


@final
class OfOrder(eqx.Module):
    """A constraint h(t, q0, ..., qj) = 0 on variables up to order j of an `AnyOrderSystem` (Orsino 2017, eq. (2.1)).

    It is differentiated k - j times; of order k itself it must be linear in the last variable.

    **Arguments:**

    - `order`: j, from 0 to k.
    - `fn`: h(t, q0, ..., qj), of j + 1 arrays (n,), returning a scalar or an array of shape (k,).
    - `name`: what reports call it; by default the function's name. Its derivatives are `name'`, `name''`, ...
    """

    order: int = eqx.field(static=True)
    fn: Callable[..., Array]
    name: str = eqx.field(static=True)

    def __init__(self, order: int, fn: Callable[..., Array], *, name: str | None = None):
        self.order = whole_number("order", order, 0, _HIGHEST)
        self.fn = fn
        self.name = constraint_name(fn, name, _variables(self.order + 1))


@final
class _Rate(eqx.Module):
    """(d/dt + decay) fn: a function of one variable more."""

    fn: Callable[..., Array]
    decay: Array

    def __call__(self, t: Time, *x: Array) -> Array:
        value, rate = jax.jvp(self.fn, (t, *x[:-1]), (jnp.ones_like(t), *x[1:]))
        return rate + self.decay.astype(value.dtype) * value


@final
class _OfState(eqx.Module):
    """A function of the first `count` of (q0, ..., q(k-1)) as one of the engine's state: (t, q) or (t, q, v)."""

    fn: Callable[..., Array]
    order: int = eqx.field(static=True)
    count: int = eqx.field(static=True)

    def __call__(self, t: Time, q: Coordinates, v: Velocities | None = None) -> Array:
        below = q.reshape(self.order - 1, -1) if q.size else ()
        return self.fn(t, *(*below, v)[: self.count])


@final
class _Affine(eqx.Module):
    """The rows of h(t, q0, ..., qk) = 0, linear in qk: A = dh/dqk, b = -h at qk = 0."""

    fn: Callable[..., Array]
    order: int = eqx.field(static=True)

    def __call__(self, t: Time, q: Coordinates, v: Velocities) -> tuple[Array, Array]:
        below = q.reshape(self.order - 1, -1) if q.size else ()
        last = lambda a: jnp.atleast_1d(self.fn(t, *below, v, a))
        zero = jnp.zeros_like(v)
        return jax.jacfwd(last)(zero), -last(zero)


@final
class AnyOrderSystem(AbstractSystem):
    """M q(k) = Q under constraints: order k, the state (q0, ..., q(k-1)), each qi' = q(i+1) (Orsino 2017, eq. (2.4)).

    It is an `AbstractSystem` like any other: its coordinates are (q0, ..., q(k-2)), stacked, its velocities q(k-1), its
    acceleration is q(k); `state` and `orders` go to and fro. Of order 2 it is `System`, and of order 1 it has no
    coordinates but velocities.

    `Projection` holds every constraint of order j and its derivatives below k to rounding. `Baumgarte` holds the last
    derivative that is a position, so an h of order j < k - 2 would drift as its integral does, k - 2 - j times; with a
    `decay` s that derivative is (d/dt + s)^(k-2-j) h instead, and all of them die out. Without stabilizer
    errors grow as t^(k-1-j).

    **Arguments:**

    - `order`: k, at least 1.
    - `mass_matrix`: M(t, q0, ..., q(k-2)) (n, n), or a constant array.
    - `force`: Q(t, q0, ..., q(k-1)) (n,), or a constant array.
    - `constraints`: any of `OfOrder`.
    - `energy`: E(t, q0, ..., q(k-1)), if it is to be reported.
    - `decay`: s [1/s], not negative.

    **Raises:** `InputError` for an order that is not positive, constraints of higher order and a negative decay.
    """

    order: int = eqx.field(static=True)
    mass_matrix_: Callable[..., Array] | Array
    force_: Callable[..., Array] | Array
    laws: tuple[OfOrder, ...]
    energy_: Callable[..., Array] | None
    decay: Array

    def __init__(
        self,
        order: int,
        mass_matrix: Callable[..., Array] | Array,
        force: Callable[..., Array] | Array,
        constraints: Sequence[OfOrder] = (),
        *,
        energy: Callable[..., Array] | None = None,
        decay: Array | float = 0.0,
    ):
        self.order = whole_number("order", order, most=_HIGHEST)
        self.mass_matrix_ = (
            mass_matrix if callable(mass_matrix) else real_array("the mass matrix", mass_matrix)
        )
        self.force_ = force if callable(force) else real_array("the force", force)
        laws = all_of("constraints", constraints, OfOrder, "OfOrder(order, fn)")
        names = names_by_kind([c.name for c in laws], ["constraint"] * len(laws))
        self.laws = tuple(dataclasses.replace(c, name=name) for c, name in zip(laws, names, strict=True))
        for c in self.laws:
            if c.order > order:
                raise InputError(
                    f"constraint '{c.name}' is of order {c.order}; the system is of order {order}."
                )
        if energy is not None:
            require_function("energy", energy, _variables(self.order))
        self.energy_ = energy
        self.decay = real_array("decay", decay)
        require_not_negative("decay", decay)
        if self.decay.ndim:
            raise InputError(f"decay has shape {self.decay.shape}; it must be a scalar.")

    def _at(self, fn: Callable[..., Array] | Array, t: Time, q: Coordinates, v: Velocities | None) -> Array:
        if not callable(fn):
            return fn
        return _OfState(fn, self.order, self.order - (v is None))(t, q, v)

    def mass_matrix(self, t: Time, q: Coordinates) -> MassMatrix:
        return self._at(self.mass_matrix_, t, q, None)

    def force(self, t: Time, q: Coordinates, v: Velocities) -> Forces:
        return self._at(self.force_, t, q, v)

    def kinematics(self, t: Time, q: Coordinates, v: Velocities) -> Coordinates:
        return jnp.concatenate([q, v])[v.size :]

    def energy(self, t: Time, q: Coordinates, v: Velocities) -> Float[Array, ""] | None:
        return None if self.energy_ is None else self._at(self.energy_, t, q, v)

    @property
    def constraints(self) -> tuple[AbstractConstraint, ...]:
        """Each of the given ones and what follows from it (see the module's docstring)."""
        return tuple(c for law in self.laws for c in self._derivatives(law))

    def _derivatives(self, law: OfOrder) -> list[AbstractConstraint]:
        k, j, fn = self.order, law.order, law.fn
        if j == k:
            return [AccelerationConstraint(_Affine(fn, k), name=law.name)]
        if j == k - 1:
            return [Nonholonomic(_OfState(fn, k, k), name=law.name)]
        found, last = [], k - 2 - j
        for i in range(last + 1):
            kind = PositionConstraint if i < last else Holonomic
            found.append(kind(_OfState(fn, k, j + i + 1), name=law.name + "'" * i))
            fn = _Rate(fn, self.decay)
        return found

    def state(self, x: Float[Array, "k n"] | Sequence[Sequence[float]]) -> tuple[Coordinates, Velocities]:
        """The engine's (q, v) of a state.

        **Arguments:**

        - `x`: (q0, ..., q(k-1)), of shape (k, n).

        **Raises:** `InputError` for another shape.
        """
        given = real_array("x", x)
        if given.ndim != 2 or given.shape[0] != self.order:
            raise InputError(f"x has shape {given.shape}; it must be ({self.order}, n), one row an order.")
        rows = module_for(given).asarray(given)
        return as_jax(rows[:-1].reshape(-1)), as_jax(rows[-1])

    def orders(self, q: Float[Array, "*steps nq"], v: Float[Array, "*steps n"]) -> Float[Array, "*steps k n"]:
        """(q0, ..., q(k-1)) of the engine's (q, v), also of a whole trajectory's.

        **Arguments:** `q`, `v`: as simulated.

        **Returns:** an array of shape (..., k, n).
        """
        return jnp.concatenate([q, v], axis=-1).reshape(*v.shape[:-1], self.order, v.shape[-1])
