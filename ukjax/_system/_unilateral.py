"""Constraints that act in one direction only: gaps that stay open or closed, Coulomb friction, dry friction in joints."""

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, final, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._misc._arguments import (
    fails,
    is_list,
    number_array,
    one_of,
    real_array,
    require_function,
    require_not_negative,
)
from .._misc._errors import InputError
from .._misc._types import Coordinates, Time, Velocities, is_traced
from .._misc._user_function import call_user_function
from ._constraint_names import constraint_name

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


def _coefficient(what: str, name: str, value: Any, most: float = math.inf) -> Array:
    called = f"the {what} of '{name}'"
    with jax.ensure_compile_time_eval():  # so that a number stays one within `jit`
        numbers = real_array(called, value)
    if numbers.ndim > 1:
        raise InputError(f"{called} has shape {numbers.shape}; it must be a number, or one for each contact.")
    require_not_negative(called, value)
    if fails(lambda x: x <= most, value):
        raise InputError(f"{called} must be at most {most}, got {value}.")
    return numbers


def impact_law(name: str, value: Any) -> ImpactLaw:
    """One of the laws of impact.

    **Raises:** `InputError` for another.
    """
    return one_of(f"the impact of '{name}'", value, get_args(ImpactLaw))


def _check_names(names: Any) -> tuple[str, ...]:
    if not is_list(names) or not all(isinstance(x, str) and x for x in names):
        raise InputError(f"names must be words, one for each contact, got {names!r}.")
    return tuple(names)


@final
class Unilateral(AbstractUnilateral):
    """A gap that cannot become negative, g(t, q) >= 0, with impacts and Coulomb friction (Signorini 1933; Moreau 1988).

        0 <= lambda  perp  g >= 0,    u_n+ = -e u_n-  in an impact,    |lambda_t| <= mu lambda

    By Poisson's law an impact has two phases: impulses p_c compress until u_n >= 0, and impulses of at least e p_c, with
    friction of their own, expand (Glocker and Pfeiffer 1995). Of one contact without friction it is Newton's.

    **Arguments:**

    - `fn`: g(t, q), a scalar or (k,): the gaps of k contacts, positive where they are open [m].
    - `restitution`: e of the law of impact, from 0 to 1, a number or one for each contact.
    - `impact`: that law, `"newton"` or `"poisson"`; one, or one for each contact.
    - `friction`: mu of Coulomb's law, a number or one for each contact.
    - `slip`: the tangential velocity s(t, q, v) of a contact [m/s]: a number in the plane, (2,) in space; of k contacts
      (k,) or (k, 2). It must be linear in v, and friction needs it.
    - `name`: what reports and errors call it; by default the function's name, of a lambda such as `contact 1`.
    - `names`: of each of the k contacts; by default `<name>[0]`, ...
    - `angle`: whether the gaps are angles [rad], of which forces are moments; one answer, or one for each contact.

    **Raises:** `InputError` for coefficients that are negative or not finite, a restitution above 1, and friction without
    `slip`.
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
    ):
        self.fn = fn
        self.name, self.names = constraint_name(fn, name, "t, q"), _check_names(names)
        self.restitution = _coefficient("restitution", self.name, restitution, 1.0)
        self.friction = _coefficient("friction", self.name, friction)
        if slip is not None:
            require_function(f"the slip of '{self.name}'", slip, "t, q, v")
        elif is_traced(friction) or fails(lambda x: x == 0, friction):
            raise InputError(
                f"the friction of '{self.name}' needs its tangential velocity: give slip(t, q, v), linear in v."
            )
        self.slip = slip
        self.angle = angle if isinstance(angle, bool) else tuple(map(bool, angle))
        laws: Sequence[Any] = (impact,) if isinstance(impact, str) else impact
        checked: tuple[ImpactLaw, ...] = tuple(impact_law(self.name, x) for x in laws)
        self.impact = checked[0] if isinstance(impact, str) else checked

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
    """The tangential velocities of a contact's `count` gaps (count, d); d is 0 without `slip`.

    **Raises:** `InputError` for another shape.
    """
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
    if value.ndim != 2 or value.shape[0] != count or value.shape[1] not in (1, 2):
        raise InputError(
            f"{what} has shape {value.shape}; of {count} contacts it must be ({count},) in the plane, ({count}, 2) in "
            "space."
        )
    return value
