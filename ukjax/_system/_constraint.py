"""The kinds of constraints: what each says of a system's positions, velocities or accelerations."""

import abc
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, final, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._misc._arguments import (
    call_user_function,
    fails,
    is_list,
    number_array,
    one_of,
    real_array,
    require_function,
    require_not_negative,
    whole_number,
)
from .._misc._errors import InputError
from .._misc._modules import replace_unchecked
from .._misc._types import Coordinates, Time, Velocities, is_traced
from ._labels import unique_names

# --- What constraints are called: as they were named, as their functions are, or by kind and number; and their kinds

Kind = Literal["holonomic", "nonholonomic", "acceleration", "position"]
OF_POSITIONS: tuple[Kind, ...] = ("holonomic", "position")
"""The kinds of rows that have a position error."""
OF_VELOCITIES: tuple[Kind, ...] = (*OF_POSITIONS, "nonholonomic")
"""The kinds of rows that have a velocity error."""

_UNNAMED = "<lambda>"
"""What Python calls a function that has no name."""


def constraint_name(fn: Callable, name: str | None, takes: str = "t, q, v") -> str:
    """The name given, or the function's own; raises `InputError` for what is no name, or no such function."""
    if name is None:
        name = getattr(fn, "__name__", type(fn).__name__)
    if not isinstance(name, str):
        raise InputError(f"the name of a constraint must be a string, got {name!r}.")
    require_function(f"constraint '{name}'", fn, takes)
    return name


def names_by_kind(names: Sequence[str], kinds: Sequence[str]) -> tuple[str, ...]:
    """The names, but for functions that have none their kind and number, such as `holonomic 2`; and a number behind
    those that were there before, such as `rod` and `rod 2`: functions made in a loop have one name.
    """
    found, counts = [], dict.fromkeys(kinds, 0)
    for name, kind in zip(names, kinds, strict=True):
        counts[kind] += 1
        found.append(f"{kind} {counts[kind]}" if name == _UNNAMED else name)
    return unique_names(found)


# --- Functions of constraints that are evaluated together, so that tracing them once serves all


class AbstractTogether(eqx.Module):
    """A constraint's function that is evaluated together with all others of its type, as those of joints are."""

    @staticmethod
    @abc.abstractmethod
    def together(functions: Sequence[Any], *arguments: Array) -> list[Array]:
        """What each function returns.

        **Arguments:**

        - `functions`: all of this type.
        - `arguments`: the same for each.
        """


# --- Constraints that act in one direction only: gaps that stay open or closed, Coulomb friction, dry friction in
# joints

Slip = Callable[[Time, Coordinates, Velocities], Array]
ImpactLaw = Literal["newton", "poisson"]
"""What a restitution says: of velocities (Newton), or of impulses (Poisson)."""


class AbstractUnilateral(eqx.Module):
    """A named set of contacts. Concrete ones: `Unilateral` and `DryFriction`.

    - `name`: what reports and errors call it.
    - `names`: of each of its contacts, if they have such.
    - `kind`: what reports call those without a name.
    """

    name: eqx.AbstractVar[str]
    names: eqx.AbstractVar[tuple[str, ...]]
    kind: eqx.AbstractClassVar[str]


def _coefficient(what: str, name: str, value: Any, most: float = math.inf, dimensions: int = 1) -> Array:
    called = f"the {what} of '{name}'"
    with jax.ensure_compile_time_eval():  # so that a number stays one within `jit`
        numbers = real_array(called, value)
    if numbers.ndim > dimensions:
        raise InputError(f"{called} has shape {numbers.shape}; it must be a number, or one for each contact.")
    require_not_negative(called, value)
    if fails(lambda x: x <= most, value):
        raise InputError(f"{called} must be at most {most}, got {value}.")
    return numbers


def impact_law(name: str, value: Any) -> ImpactLaw:
    """One of the laws of impact."""
    return one_of(f"the impact of '{name}'", value, get_args(ImpactLaw))


def require_soft(name: str, stiffness: Any, damping: Any, restitution: Any) -> None:
    """Raises `InputError` for what a spring and damper of a contact cannot have."""
    if stiffness is None:
        if fails(lambda d: d == 0, damping):
            raise InputError(f"'{name}' has damping but no stiffness: without one it is rigid; give both.")
        return
    if fails(lambda k: k > 0, stiffness):
        raise InputError(f"the stiffness of '{name}' must be positive, or None for a rigid contact.")
    if fails(lambda e: e == 0, restitution):
        raise InputError(
            f"'{name}' has stiffness and restitution: the spring makes it bounce, give damping instead."
        )


def _check_names(names: Any) -> tuple[str, ...]:
    if not is_list(names) or not all(isinstance(x, str) and x for x in names):
        raise InputError(f"names must be words, one for each contact, got {names!r}.")
    return tuple(names)


@final
class Unilateral(AbstractUnilateral):
    """A gap that cannot become negative, g(t, q) >= 0, with impacts and Coulomb friction (Signorini 1933; Moreau 1988).

        0 <= lambda  perp  g >= 0,    u_n+ = -e u_n-  in an impact,    |lambda_t| <= mu lambda

    With a coefficient for each component of the slip, friction obeys sum (lambda_i / mu_i)^2 <= lambda^2: an ellipse of
    sliding friction, with friction of turning too if some components are angular velocities.

    With a stiffness k and a damping d the gap is soft, by `contact="steps"` alone: the force on it is max(0, -k g - d g')
    where it is closed. It has no impacts.

    By Poisson's law an impact has two phases: impulses p_c compress until u_n >= 0, and impulses of at least e p_c, with
    friction of their own, expand (Glocker and Pfeiffer 1995). Of one contact without friction it is Newton's.

    **Arguments:**

    - `fn`: g(t, q), a scalar or (k,): the gaps of k contacts, positive where they are open [m].
    - `restitution`: e of the law of impact, from 0 to 1, a number or one for each contact.
    - `impact`: that law, `"newton"` or `"poisson"`; one, or one for each contact.
    - `friction`: mu of Coulomb's law, a number or one for each contact, or (k, d) one for each component of the slip;
      then the first of a contact must be positive if others are.
    - `slip`: the tangential velocity s(t, q, v) of a contact [m/s]: a number in the plane, (2,) in space; of k contacts
      (k,) or (k, 2). It must be linear in v, and friction needs it. Behind it angular velocities, as `turning` says.
    - `name`: what reports and errors call it; by default the function's name, of a lambda such as `contact 1`.
    - `names`: of each of the k contacts; by default `<name>[0]`, ...
    - `angle`: whether the gaps are angles [rad], of which forces are moments; one answer, or one for each contact.
    - `turning`: how many of the last components of the slip are angular velocities [rad/s], whose friction is a moment
      and whose mu a length [m]: 1 for one about the normal (in the plane, of rolling), 2 for two of rolling, 3 for all.
    - `stiffness`: k [N/m], a number or one for each contact; None (the default) for a rigid one.
    - `damping`: d [N s/m], likewise, of a soft one.

    **Raises:** `InputError` for coefficients that are negative or not finite, a restitution above 1, friction without
    `slip`, a stiffness that is not positive or has a restitution beside it, and damping without stiffness.
    """

    kind: ClassVar[str] = "contact"

    fn: Callable[[Time, Coordinates], Array]
    restitution: Array
    friction: Array
    slip: Slip | None
    name: str = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    angle: bool | tuple[bool, ...] = eqx.field(static=True)
    impact: ImpactLaw | tuple[ImpactLaw, ...] = eqx.field(static=True)
    turning: int = eqx.field(static=True)
    stiffness: Array | None
    damping: Array

    def __init__(
        self,
        fn: Callable[[Time, Coordinates], Array],
        *,
        restitution: Any = 0.0,
        friction: Any = 0.0,
        slip: Slip | None = None,
        name: str | None = None,
        names: Sequence[str] = (),
        angle: bool | Sequence[bool] = False,
        impact: ImpactLaw | Sequence[ImpactLaw] = "newton",
        turning: int = 0,
        stiffness: Any = None,
        damping: Any = 0.0,
    ):
        self.fn, self.turning = fn, whole_number("turning", turning, 0)
        self.name, self.names = constraint_name(fn, name, "t, q"), _check_names(names)
        self.restitution = _coefficient("restitution", self.name, restitution, 1.0)
        self.friction = _coefficient("friction", self.name, friction, dimensions=2)
        if self.friction.ndim == 2 and fails(
            lambda x: np.all((x[:, 0] > 0) | (x == 0).all(axis=1)), friction
        ):
            raise InputError(f"the first friction of '{self.name}' must be positive where others are.")
        if self.turning and self.friction.ndim < 2:
            raise InputError(
                f"'{self.name}' has angular velocities in its slip: give friction for each component of it, (k, d)."
            )
        if slip is not None:
            require_function(f"the slip of '{self.name}'", slip, "t, q, v")
        elif is_traced(friction) or fails(lambda x: x == 0, friction):
            raise InputError(
                f"the friction of '{self.name}' needs its tangential velocity: give slip(t, q, v), linear in v."
            )
        self.slip = slip
        self.angle = angle if isinstance(angle, bool) else tuple(map(bool, angle))
        laws: Sequence[Any] = (impact,) if isinstance(impact, str) else impact
        each: dict[int, ImpactLaw] = {
            id(x): impact_law(self.name, x) for x in {id(x): x for x in laws}.values()
        }
        checked: tuple[ImpactLaw, ...] = tuple(each[id(x)] for x in laws)
        self.impact = checked[0] if isinstance(impact, str) else checked
        require_soft(self.name, stiffness, damping, restitution)
        self.stiffness = None if stiffness is None else _coefficient("stiffness", self.name, stiffness)
        self.damping = _coefficient("damping", self.name, damping)

    @property
    def sliding_friction(self) -> Array:
        """Mu of the first component of the slip, a number or one for each contact (k,)."""
        return self.friction if self.friction.ndim < 2 else self.friction[:, 0]

    @property
    def slip_scale(self) -> Array | None:
        """Mu of each component of the slip over that of the first (k, d): in slips times these, and forces over them,
        the cone of friction is round. None for a round one."""
        if self.friction.ndim < 2:
            return None
        first = self.friction[:, :1]
        return self.friction / jnp.where(first > 0, first, 1)

    def gaps(self, t: Time, q: Coordinates) -> Array:
        """g(t, q) as a vector (k,)."""
        return _vector(
            f"the gap of '{self.name}'", call_user_function(f"contact '{self.name}'", self.fn, t, q)
        )


@final
class DryFriction(AbstractUnilateral):
    """Dry friction that needs no pressing: |f| <= limit, f = -limit s / |s| where the rate s is not zero.

    **Arguments:**

    - `rate`: s(t, q, v), linear in v: of a joint [rad/s] or [m/s]; a number or (k,), each of which is rubbed by itself.
    - `limit`: what it resists [N m] or [N], a number or one for each.
    - `name`: what reports and errors call it; by default the function's name, of a lambda such as `friction 1`.
    - `names`: of each of the k; by default `<name>[0]`, ...

    **Raises:** `InputError` for limits that are negative or not finite.
    """

    kind: ClassVar[str] = "friction"

    rate: Slip
    limit: Array
    name: str = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)

    def __init__(self, rate: Slip, limit: Any, *, name: str | None = None, names: Sequence[str] = ()):
        self.rate = rate
        self.name, self.names = constraint_name(rate, name, "t, q, v"), _check_names(names)
        self.limit = _coefficient("limit", self.name, limit)

    def rates(self, t: Time, q: Coordinates, v: Velocities) -> Array:
        """s(t, q, v) as a vector (k,)."""
        return _vector(
            f"the rate of '{self.name}'", call_user_function(f"friction '{self.name}'", self.rate, t, q, v)
        )


def _vector(what: str, value: Any) -> Array:
    value = number_array(what, value)
    if value.ndim > 1 or not jnp.issubdtype(value.dtype, jnp.floating):
        raise InputError(
            f"{what} is {value.dtype} of shape {value.shape}; it must be real, a scalar or a vector."
        )
    return jnp.atleast_1d(value)


def slips(contact: Unilateral, count: int, t: Time, q: Coordinates, v: Velocities) -> Array:
    """The tangential velocities of a contact's `count` gaps (count, d), by which its cone of friction is round; d is 0
    without `slip`."""
    if contact.slip is None:
        return jnp.zeros((count, 0), v.dtype)
    what = f"the slip of '{contact.name}'"
    value = number_array(what, call_user_function(what, contact.slip, t, q, v))
    if jnp.issubdtype(value.dtype, jnp.complexfloating):
        raise InputError(f"{what} must be real, got {value.dtype}.")
    if count == 1 and value.ndim < 2:
        value = value.reshape(1, -1)
    if value.ndim == 1:
        value = value[:, None]
    if value.ndim != 2 or value.shape[0] != count or value.shape[1] - contact.turning not in (1, 2):
        behind = f", each with {contact.turning} more for turning" if contact.turning else ""
        raise InputError(
            f"{what} has shape {value.shape}; of {count} contacts it must be ({count},) in the plane, ({count}, 2) in "
            f"space{behind}."
        )
    if (scale := contact.slip_scale) is None:
        return value
    if scale.shape != value.shape:
        raise InputError(
            f"the friction of '{contact.name}' has shape {scale.shape}; its slip has {value.shape}."
        )
    return value * scale.astype(value.dtype)


# --- Constraints that hold at all times


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
            raise InputError(
                f"constraint '{c.name}' must return an array of numbers, got None: does each branch have a `return`?"
            )
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

    They are `AbstractConstraint`s, and unilateral ones, which `bilateral` leaves out."""
    several = isinstance(value, tuple | list)
    if not several or not all(isinstance(c, AbstractConstraint | AbstractUnilateral) for c in value):
        got = f"({', '.join(type(c).__name__ for c in value)})" if several else type(value).__name__
        single = isinstance(value, AbstractConstraint | AbstractUnilateral)
        raise InputError(
            "constraints must be a tuple of Holonomic(fn), Nonholonomic(fn), AccelerationConstraint(fn) or "
            f"Unilateral(fn), got {got}{': put it into a list, [constraint]' if single else ''}."
        )
    names = names_by_kind([c.name for c in value], [c.kind for c in value])
    # Not by `replace`, which would check numbers again that may stand for shapes.
    renamed = lambda c, name: replace_unchecked(c, name=name)
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
