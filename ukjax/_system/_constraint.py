"""The kinds of constraints: what each says of a system's positions, velocities or accelerations."""

from collections.abc import Callable, Sequence
from typing import Any, final

import equinox as eqx
from jaxtyping import Array

from .._misc._errors import InputError
from .._misc._types import Coordinates, Time, Velocities
from .._misc._unchecked import make_unchecked
from .._misc._user_function import call_user_function
from ._constraint_names import Kind, constraint_name, names_by_kind
from ._together import AbstractTogether
from ._unilateral import AbstractUnilateral


class AbstractConstraint(eqx.Module):
    """A named set of k constraint rows. Concrete ones: `Holonomic`, `Nonholonomic`, `AccelerationConstraint`.

    A kind of your own overrides at least one of the three methods below. What it leaves out follows from the others by
    differentiation: the velocity error as the rate of the position error, the rows A a = b as the rate of the velocity
    error. Rows that have a position error are projected by position, those that have a velocity error by velocity.

    - `name`: what reports and errors call it.
    """

    name: eqx.AbstractVar[str]

    @property
    def kind(self) -> Kind:
        """What reports call its rows, by the first of the three methods that its class has."""
        has = lambda method: getattr(type(self), method) is not getattr(AbstractConstraint, method)
        if has("position_error"):
            return "holonomic"
        return "nonholonomic" if has("velocity_error") else "acceleration"

    def position_error(self, t: Time, q: Coordinates) -> Array | None:
        """phi(t, q), a scalar or (k,), zero where the constraint holds; None (the default) where there is none."""
        return None

    def velocity_error(self, t: Time, q: Coordinates, v: Velocities) -> Array | None:
        """psi(t, q, v), a scalar or (k,), zero where the constraint holds; None (the default) for the rate of phi."""
        return None

    def acceleration_rows(self, t: Time, q: Coordinates, v: Velocities) -> tuple[Array, Array] | None:
        """The pair (A, b) of shapes (k, n) and (k,), with A a = b; None (the default) for what d psi / dt = 0 gives."""
        return None

    @classmethod
    def position_errors(cls, constraints: Sequence[Any], t: Time, q: Coordinates) -> Sequence[Array | None]:
        """The position errors of several `constraints` of this kind: where one computation serves all, override it."""
        return [call_user_function(f"constraint '{c.name}'", c.position_error, t, q) for c in constraints]

    @classmethod
    def position_jacobians(
        cls, constraints: Sequence[Any], t: Time, q: Coordinates
    ) -> Sequence[Array | None]:
        """d phi / d q (k, n_q) of several `constraints` of this kind; None (the default) for what JAX finds of phi."""
        return [None] * len(constraints)

    @classmethod
    def velocity_errors(
        cls, constraints: Sequence[Any], t: Time, q: Coordinates, v: Velocities
    ) -> Sequence[Array | None]:
        """The velocity errors of several `constraints` of this kind."""
        return [call_user_function(f"constraint '{c.name}'", c.velocity_error, t, q, v) for c in constraints]

    @classmethod
    def all_acceleration_rows(
        cls, constraints: Sequence[Any], t: Time, q: Coordinates, v: Velocities
    ) -> Sequence[tuple[Array, Array] | None]:
        """The rows of several `constraints` of this kind that give them themselves."""
        return [
            call_user_function(f"constraint '{c.name}'", c.acceleration_rows, t, q, v) for c in constraints
        ]


def _values(constraints: Sequence[Any], *arguments: Array) -> list[Array]:
    """What the functions of constraints return; those that can be evaluated together are."""
    found: dict[int, Array] = {}
    together: dict[type[AbstractTogether], list[int]] = {}
    for i, c in enumerate(constraints):
        if isinstance(c.fn, AbstractTogether):
            together.setdefault(type(c.fn), []).append(i)
        else:
            found[i] = call_user_function(f"constraint '{c.name}'", c.fn, *arguments)
    for kind, places in together.items():
        found |= zip(places, kind.together([constraints[i].fn for i in places], *arguments), strict=True)
    for i, c in enumerate(constraints):
        if found[i] is None:  # which of a kind would mean that it has no such error
            raise InputError(f"constraint '{c.name}' must return an array of numbers, got None.")
    return [found[i] for i in range(len(constraints))]


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

    def position_error(self, t: Time, q: Coordinates) -> Array:
        return self.fn(t, q)

    @classmethod
    def position_errors(cls, constraints: Sequence[Any], t: Time, q: Coordinates) -> Sequence[Array | None]:
        return _values(constraints, t, q)


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

    @property
    def kind(self) -> Kind:
        return "position"

    def position_error(self, t: Time, q: Coordinates) -> Array:
        return self.fn(t, q)

    @classmethod
    def position_errors(cls, constraints: Sequence[Any], t: Time, q: Coordinates) -> Sequence[Array | None]:
        return _values(constraints, t, q)


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

    def velocity_error(self, t: Time, q: Coordinates, v: Velocities) -> Array:
        return self.fn(t, q, v)

    @classmethod
    def velocity_errors(
        cls, constraints: Sequence[Any], t: Time, q: Coordinates, v: Velocities
    ) -> Sequence[Array | None]:
        return _values(constraints, t, q, v)


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

    def acceleration_rows(self, t: Time, q: Coordinates, v: Velocities) -> tuple[Array, Array]:
        return self.fn(t, q, v)


def as_constraints(value: Any) -> tuple[Any, ...]:
    """The constraints of a system as a tuple, those of functions without a name named by kind and number.

    They are `AbstractConstraint`s, and unilateral ones, which `bilateral` leaves out.

    **Raises:** `InputError` for anything else.
    """
    several = isinstance(value, tuple | list)
    if not several or not all(isinstance(c, AbstractConstraint | AbstractUnilateral) for c in value):
        got = f"({', '.join(type(c).__name__ for c in value)})" if several else type(value).__name__
        raise InputError(
            "constraints must be a tuple of Holonomic(fn), Nonholonomic(fn), AccelerationConstraint(fn) or "
            f"Unilateral(fn), got {got}."
        )
    names = names_by_kind([c.name for c in value], [c.kind for c in value])
    # Not by `replace`, which would check numbers again that may stand for shapes.
    renamed = lambda c, name: make_unchecked(type(c), **(vars(c) | {"name": name}))
    return tuple(c if c.name == name else renamed(c, name) for c, name in zip(value, names, strict=True))


def bilateral(value: Any) -> tuple[AbstractConstraint, ...]:
    """Those of the constraints of a system that act in both directions: with rows A a = b."""
    return tuple(c for c in as_constraints(value) if isinstance(c, AbstractConstraint))


def unilateral(value: Any) -> tuple[AbstractUnilateral, ...]:
    """Those of the constraints of a system that act in one direction."""
    return tuple(c for c in as_constraints(value) if isinstance(c, AbstractUnilateral))


def require_bilateral(what: str, value: Any) -> None:
    """Raises `InputError` for unilateral constraints where they would be left out."""
    if found := unilateral(value):
        raise InputError(
            f"{what} does not know unilateral constraints, and the system has {', '.join(c.name for c in found)}: "
            "`ukjax.simulate` does, and `ukjax.solve_contacts` solves them at one instant."
        )
