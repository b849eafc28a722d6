"""Functions that compute the same, taken for one: what was compiled for one serves the others.

JAX tells functions apart by identity. A function written anew, such as a lambda in a loop, would be compiled anew, for
seconds, though nothing in it has changed. Here functions are compared by what JAX traces of them, with every constant,
which takes milliseconds; and only where they stand in the same place of the same classes, with arrays of the same shapes.
Not seen as equal are functions in static fields, methods of classes made anew, and functions with derivative rules of
their own that are made anew.
"""

from collections.abc import Callable, Hashable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._compiler._parameters import Structure, joined, split
from .._formula._acceleration import equations_of_motion
from .._misc._traced import Same, signature
from .._misc._types import is_traced
from .._servo._control import Servoed
from .._system._stabilize import AbstractStabilizer, NoStabilizer
from .._system._system import AbstractSystem

_MOST = 256  # systems remembered; beyond that all are forgotten, and what is met next is compiled anew once


class _Known:
    """Objects by what they look like without their functions, and those equal to them."""

    def __init__(self):
        self._as: dict[Hashable, Any] = {}
        self._looking: dict[Hashable, list[tuple[Any, Callable[[], Hashable]]]] = {}
        self._signed: dict[Hashable, Hashable] = {}

    def __call__(self, key: Hashable, look: Hashable, signed: Callable[[], Hashable]) -> Any:
        """The object first met that equals the one of `key`; `signed` tells what it computes, if it has to."""
        if key in self._as:
            return self._as[key]
        if len(self._as) > _MOST:
            self.__init__()
        others = self._looking.setdefault(look, [])
        equal = next((other for other, its in others if self._of(other, its) == self._of(key, signed)), key)
        if equal is key:
            others.append((key, signed))
        self._as[key] = equal
        return equal

    def _of(self, key: Hashable, signed: Callable[[], Hashable]) -> Hashable:
        if key not in self._signed:
            self._signed[key] = signed()
        return self._signed[key]


_systems, _functions = _Known(), _Known()


def _computed(system: AbstractSystem, stabilizer: AbstractStabilizer, *state: Array) -> Any:
    """All that runs ask of a system."""
    found = equations_of_motion(system, *state, stabilizer), system.kinematics(*state), system.energy(*state)
    if not isinstance(system, Servoed):
        return found
    law = system.law
    return found, law.task(system.system, *state), law.solve(system.system, *state).u


def interned(system: AbstractSystem, t: Array, q: Array, v: Array) -> AbstractSystem:
    """The same system, with the functions of an equal one met before, if there is any.

    **Arguments:**

    - `system`: the system.
    - `t`, `q`, `v`: of these only shapes and types matter.
    """
    leaves, structure = split(system, NoStabilizer())
    functions = [x for x in structure.static if callable(x)]
    if not functions or is_traced(leaves):  # what traces hold is forgotten with them
        return system
    state = tuple(jax.ShapeDtypeStruct(jnp.shape(x), x.dtype) for x in (t, q, v))
    avals = tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in leaves)

    def signed() -> Hashable:
        return signature(
            jax.make_jaxpr(lambda x, *state: _computed(*joined(structure, x), *state))(avals, *state)
        )

    rest = tuple(None if callable(x) else x for x in structure.static)
    same: Structure = _systems(
        (structure, avals, state), (structure.arrays, rest, structure.static_tree, avals, state), signed
    )[0]
    return system if same is structure else joined(same, leaves)[0]


def interned_function(function: Callable, *arguments: Any) -> Callable:
    """The same function, or an equal one met before.

    **Arguments:**

    - `function`: of arrays.
    - `arguments`: arrays of the shapes and types it takes.
    """
    avals = tuple(jax.ShapeDtypeStruct(jnp.shape(x), x.dtype) for x in arguments)
    return _functions((Same(function), avals), avals, lambda: signature(jax.make_jaxpr(function)(*avals)))[
        0
    ].of
