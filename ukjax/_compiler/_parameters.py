"""The parameters of a system as inputs of scalar programs.

They are inputs, so that runs with other values share the code. But an array with a zero in it is taken for a direction
or a selection: its entries 0, 1 and -1 are folded into the code, for they are what makes it short. Arrays that a program
does not read are no inputs of it: what the force alone takes, the projection need not carry along.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core
from jaxtyping import Array, Float

from .._misc._types import is_traced
from .._system._stabilize import AbstractStabilizer
from .._system._system import AbstractSystem
from ._scalars import Builder


class Leaf(NamedTuple):
    """A parameter array: its shape and type, in order which entries are inputs and what the others are."""

    aval: jax.ShapeDtypeStruct
    varying: tuple[bool, ...]
    known: tuple[Any, ...]


class Structure(NamedTuple):
    """All of a system and stabilizer but the numbers in its arrays."""

    arrays: Any
    static: tuple[Any, ...]
    static_tree: Any


def leaf(x: Array) -> Leaf:
    aval = jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=jax.typeof(x).weak_type)
    if is_traced(x):
        return Leaf(aval, (True,) * x.size, ())
    values = np.asarray(x).reshape(-1)
    if not jnp.issubdtype(x.dtype, jnp.floating):
        varying = np.zeros(x.size, bool)
    elif x.ndim and not values.all():
        varying = ~np.isin(values, (0.0, 1.0, -1.0))
    else:
        varying = np.ones(x.size, bool)
    return Leaf(aval, tuple(varying.tolist()), tuple(values[~varying].tolist()))


def split(system: Any, stabilizer: AbstractStabilizer | None) -> tuple[list[Array], Structure]:
    arrays, static = eqx.partition((system, stabilizer), lambda x: isinstance(x, jax.Array | np.ndarray))
    leaves, tree = jax.tree.flatten(arrays)
    rest, rest_tree = jax.tree.flatten(static)
    return leaves, Structure(tree, tuple(rest), rest_tree)


def rebuild_system(
    structure: Structure, leaves: Sequence[Array]
) -> tuple[AbstractSystem, AbstractStabilizer]:
    """The system and stabilizer of a structure and its parameter arrays."""
    static = jax.tree.unflatten(structure.static_tree, structure.static)
    return eqx.combine(jax.tree.unflatten(structure.arrays, leaves), static)


class InputMaker:
    """Makes the inputs of a program, in order."""

    def __init__(self, build: Builder):
        self.build, self.count = build, 0

    def __call__(
        self, shape: tuple[int, ...], varying: Sequence[bool] = (), known: Sequence[Any] = ()
    ) -> np.ndarray:
        """An array of inputs, and of numbers that are known where it does not vary."""
        varying = varying or (True,) * math.prod(shape)
        numbers, folded = np.empty(len(varying), object), iter(known)
        for i, varies in enumerate(varying):
            numbers[i] = self.build.input() if varies else next(folded)
            self.count += varies
        return numbers.reshape(shape)

    def of(self, leaves: Sequence[Leaf]) -> list[np.ndarray]:
        """Those of all parameters."""
        found = [self(x.aval.shape, x.varying, x.known) for x in leaves]
        return [
            convert_reals(self.build, x, self.build.type, leaf.aval)
            for x, leaf in zip(found, leaves, strict=True)
        ]


def convert_reals(build: Builder, x: np.ndarray, t: str, aval: Any) -> np.ndarray:
    """Real numbers of a type as those of an array's."""
    to = np.dtype(jax.dtypes.canonicalize_dtype(aval.dtype)).name
    if to == t or not jnp.issubdtype(aval.dtype, jnp.floating):
        return x
    return np.asarray(np.frompyfunc(lambda y: build.nodes.convert(y, t, to), 1, 1)(x), object)


def read_by(leaves: Sequence[Leaf], *traced: core.ClosedJaxpr) -> tuple[Leaf, ...]:
    """The same parameters, without inputs for arrays that no program reads."""
    read = set[int]()
    for x in traced:
        operands = {id(v) for e in x.jaxpr.eqns for v in e.invars} | set(map(id, x.jaxpr.outvars))
        read |= {i for i, v in enumerate(x.jaxpr.invars[: len(leaves)]) if id(v) in operands}
    without = lambda x: Leaf(x.aval, (False,) * len(x.varying), (0.0,) * len(x.varying))
    return tuple(x if i in read else without(x) for i, x in enumerate(leaves))


def numbers(
    leaves: Sequence[Leaf], system: AbstractSystem, stabilizer: AbstractStabilizer | None, dtype: Any
) -> Float[Array, " k"]:
    """The parameters that are inputs, as a vector."""
    arrays, _ = split(system, stabilizer)
    xp = jnp if is_traced(arrays) else np
    found = [xp.zeros(0, dtype)]
    for x, it in zip(arrays, leaves, strict=True):
        places = np.flatnonzero(it.varying)
        flat = xp.reshape(xp.asarray(x), -1).astype(dtype) if places.size else found[0]
        found.append(flat if places.size in (0, x.size) else flat[places])
    return xp.concatenate(found)  # pyright: ignore
