"""How a run was made, so that it can be made again: from the same start with other options."""

import contextlib
import functools
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, final

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from .._misc._closures import key_by_identity
from .._misc._types import is_traced

_SMALL = 64  # numbers of an array that is compared by value


def key(x: Any) -> Hashable:
    """Of an option: simple values, and modules of such, as solvers and stabilizers are, are equal by value; all else is
    equal to itself alone.
    """
    if x is None or isinstance(x, bool | int | float | str):
        return type(x), x
    small = isinstance(x, Array | np.ndarray) and x.size <= _SMALL and not is_traced(x)
    if small and jax.numpy.issubdtype(x.dtype, np.number):
        return x.shape, x.dtype, np.asarray(x).tobytes()
    if isinstance(x, eqx.Module):
        leaves, tree = jax.tree.flatten(x)
        with contextlib.suppress(TypeError):  # of fields that have no hash
            return hash(tree), tree, *map(key, leaves)
    return key_by_identity(x)


@final
@jax.tree_util.register_static
class RunOptions:
    """The options of a run, and what can be done with them. JAX compiles nothing anew for equal ones.

    **Arguments:**

    - `simulate`: as `ukjax.simulate`.
    - `certify`: what makes a `Certificate` of a trajectory.
    - `options`: keyword arguments of `simulate` but for the start and the end, as they were given.
    """

    def __init__(self, simulate: Callable[..., Any], certify: Callable[..., Any], options: dict[str, Any]):
        self.simulate, self.certify, self.options = simulate, certify, options

    def __reduce__(self):  # without the key, in which objects stand by where they lie in memory
        return RunOptions, (self.simulate, self.certify, self.options)

    @functools.cached_property
    def _key(self) -> Hashable:
        return tuple((name, key(x)) for name, x in self.options.items())

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, RunOptions) and self._key == other._key)


class RunRecord(NamedTuple):
    """A run's start as it was given, its end, and its options.

    - `q0`, `v0`, `t0`, `t1`: as for `ukjax.simulate`.
    - `by`: the options.
    """

    q0: Array
    v0: Array
    t0: Array
    t1: Array
    by: RunOptions

    def again(self, system: Any, **changes: Any) -> Any:
        """The `Trajectory` of the same run with some arguments changed."""
        start = {name: getattr(self, name) for name in ("q0", "v0", "t0", "t1")}
        return self.by.simulate(system, **(start | self.by.options | changes))
