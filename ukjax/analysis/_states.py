"""What is analysed: a system at one state, and where it is a mechanism, its bodies there."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from .._misc._arguments import call_user_function, real_array
from .._misc._errors import InputError, require_known
from .._misc._types import Coordinates, Numbers, Time, Velocities
from .._system._problem import Problem, resolve_state
from .._system._system import AbstractSystem, innermost
from ..mechanisms import TreeSystem
from ..mechanisms._absolute import AbsoluteSystem
from ..mechanisms._mechanism_system import MechanismSystem
from ..mechanisms._placement import AnyPlacement, Twist
from ..mechanisms._tree_place import TreeAt


def state_of(
    system: AbstractSystem | Problem, t: Time | float | None, q: Numbers | None, v: Numbers | None
) -> tuple[AbstractSystem, Time, Coordinates, Velocities]:
    """As `resolve_state`; a mechanism brings its reference posture, and where no v is given it rests."""
    if isinstance(system, Problem):
        v = system.v0 if v is None and q is None else v
        own, q = system.system, system.q0 if q is None else q
    else:
        own = system
        q = own.q0 if q is None and isinstance(own, MechanismSystem) else q
    if v is None and q is not None and isinstance(own, AbstractSystem):
        t, q = real_array("t", 0.0 if t is None else t), real_array("q", q)
        mechanism = mechanism_of(own)
        if q.ndim != 1 or (mechanism is not None and q.shape != mechanism.q0.shape):
            wanted = "a vector" if mechanism is None else f"{mechanism.q0.shape}"
            raise InputError(f"q has shape {q.shape}; it must be {wanted}.")
        v = call_user_function(f"the mass matrix of {type(own).__name__}", make_zero_velocities, own, t, q)
    return resolve_state(system, t, q, v)


def make_zero_velocities(system: AbstractSystem, t: Time, q: Coordinates) -> Velocities:
    """Velocities zero, as many as the mass matrix has rows."""
    return jnp.zeros(jax.eval_shape(system.mass_matrix, t, q).shape[0], q.dtype)


def mechanism_of(system: AbstractSystem) -> MechanismSystem | None:
    """The mechanism a system is, or is made around; None where it is none."""
    inner = innermost(system)
    return inner if isinstance(inner, MechanismSystem) else None


def require_mechanism(system: AbstractSystem) -> MechanismSystem:
    """As `mechanism_of`."""
    mechanism = mechanism_of(system)
    if mechanism is None:
        raise InputError(
            f"{type(system).__name__} has no bodies: this needs a mechanism, such as mechanisms.tree(bodies, joints)."
        )
    return mechanism


def bodies_at(
    system: MechanismSystem, q: Coordinates, names: Iterable[str]
) -> tuple[Mapping[str, AnyPlacement], Callable[[Velocities], Mapping[str, Twist]]]:
    """Where some bodies are, and how they move as a function of v: linear, each body by itself."""
    names = tuple(names)
    if isinstance(system, AbsoluteSystem):
        own = system.coordinates()
        return {x: own[x].placement(q) for x in names}, lambda v: {x: own[x].twist(q, v) for x in names}
    assert isinstance(system, TreeSystem)
    numbers = [i for i, body in enumerate(system.bodies) if body.name in names]
    at = TreeAt(system.mechanism, system.order.layout, q, numbers)
    return at.placements, at.twists


def select_names(what: str, values: Any, known: Iterable[str]) -> tuple[str, ...]:
    """Names, one at least, each of them known."""
    known = list(known)
    names = tuple(values) if isinstance(values, Iterable) and not isinstance(values, str) else ()
    if not names or not all(isinstance(x, str) for x in names):
        raise InputError(
            f"give the names of one {what} or more in a list, such as {known[:2]}; got {values!r}."
        )
    require_known(what, known, *names)
    return names
