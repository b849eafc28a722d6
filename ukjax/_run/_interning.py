"""Functions compared by what they compute, so that what was compiled for one serves its equals.

JAX tells functions apart by identity. A function written anew, such as a lambda in a loop, would be compiled anew, for
seconds, though nothing in it has changed. Here a function is keyed by what JAX traces of its system, with every
constant, when a run is planned; which takes milliseconds. What has to be traced later is traced of the function at hand:
no function ever stands for another one. Objects that are called as functions, and classes of modules that are not this
package's, are keyed as well: what they take from around them may have changed. Not seen as equal are functions in static
fields, methods of classes made anew, and functions with derivative rules of their own that are made anew.
"""

from collections.abc import Callable, Hashable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._compiler._tracing import rebuild, split
from .._contact._rows import kinematics as contact_kinematics
from .._formula._acceleration import equations_of_motion
from .._formula._equations import energy_of
from .._formula._servo import Servoed
from .._misc._closures import HashableByKey, hoist_tracers, require_seen, with_key
from .._misc._jax_programs import signature
from .._system._constraint import unilateral
from .._system._stabilize import NoStabilizer
from .._system._system import AbstractSystem


def _is_function(x: Any) -> bool:
    return callable(x) and not isinstance(x, type | HashableByKey)


_OWN = {__name__.partition(".")[0], "equinox"}
"""Packages whose classes take nothing from around them that changes."""


def _has_classes_of_others(tree: Any) -> bool:
    """Whether methods of some module in a pytree are not this package's."""
    if (data := tree.node_data()) is None:
        return False
    kind = data[0]
    others = issubclass(kind, eqx.Module) and kind.__module__.partition(".")[0] not in _OWN
    return others or any(map(_has_classes_of_others, tree.children()))


def _evaluate_system(system: AbstractSystem, *state: Array) -> Any:
    """All that runs ask of a system."""
    energy = energy_of(system, *state)
    motion = equations_of_motion(system, *state, stabilizer=NoStabilizer()), system.kinematics(*state), energy
    if unilateral(system.constraints):
        motion = motion, contact_kinematics(system, *state)
    if not isinstance(system, Servoed):
        return motion
    law = system.law
    return motion, law.task(system.system, *state), law.solve(system.system, *state).u


def _shapes(arrays: Any) -> tuple[jax.ShapeDtypeStruct, ...]:
    return tuple(jax.ShapeDtypeStruct(jnp.shape(x), x.dtype) for x in arrays)


def _key(function: Callable, *shapes: Any) -> Hashable:
    # JAX keeps what it traced of the very same function.
    program = jax.make_jaxpr(lambda *arguments: function(*arguments))(*shapes)
    require_seen(program.consts)
    return signature(program)


def intern_system(system: AbstractSystem, t: Array, q: Array, v: Array) -> AbstractSystem:
    """The same system, its functions keyed by what it computes, with the values that JAX traces among its arrays."""
    system = hoist_tracers(system)
    leaves, structure = split(system)
    functions = [i for i, x in enumerate(structure.static) if _is_function(x)]
    others = _has_classes_of_others(structure.static_tree)
    if not (functions or others):
        return system
    of_leaves = lambda x, *state: _evaluate_system(rebuild(structure, x), *state)
    key = _key(of_leaves, _shapes(leaves), *_shapes((t, q, v)))
    static = list(structure.static)
    for i in functions:
        static[i] = HashableByKey(static[i], (i, key))
    system = rebuild(structure._replace(static=tuple(static)), leaves)
    return with_key(system, key) if others else system  # pyright: ignore[reportReturnType]


def intern_function(function: Callable, *arguments: Any) -> Callable:
    """The same function, keyed by what it computes."""
    if not _is_function(function):
        return function
    return HashableByKey(function, _key(function, *_shapes(arguments)))
