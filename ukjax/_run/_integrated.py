"""The steps of a run as one program of scalars, Diffrax's loop and all."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import diffrax as dfx
import equinox as eqx
import jax
from jaxtyping import Array

from .._compiler._structured import scalarize
from .._misc._errors import Untranslatable
from .._misc._keyed import Keyed
from ._integrate import Span, State, integrate
from ._observe import Solved

R = TypeVar("R")

Static = Keyed[Any]
"""What a run is compiled for: pytrees without arrays."""

# Adjoints whose derivatives are those of the steps, which a program of scalars has in both modes by itself.
_OF_STEPS = (dfx.ForwardMode, dfx.DirectAdjoint)


def parted(parts: Any) -> tuple[Static, Any]:
    """What a run is compiled for, and the arrays it is compiled of.

    **Arguments:**

    - `parts`: pytrees.
    """
    arrays, rest = eqx.partition(parts, eqx.is_array)
    leaves, tree = jax.tree.flatten(rest)
    return Keyed(rest, (tuple(leaves), tree)), arrays


def joined(static: Static, arrays: Any) -> Any:
    """The pytrees that were parted.

    **Arguments:**

    - `static`, `arrays`: as `parted` gives them.
    """
    return eqx.combine(arrays, static.value)


def by_one_program(
    fn: Callable[..., R], adjoint: dfx.AbstractAdjoint | None, default: dfx.AbstractAdjoint, *arrays: Any
) -> R:
    """What a function that integrates gives, as one program of scalars, which has derivatives by itself.

    What has no scalar code, and a run with an adjoint that is told how to go back, is left to XLA.

    **Arguments:**

    - `fn`: of an adjoint and the arrays.
    - `adjoint`: that was asked for, if any was.
    - `default`: that of a run by XLA.
    - `arrays`: pytrees of arrays.
    """
    if adjoint is None or isinstance(adjoint, _OF_STEPS):
        try:
            return scalarize(functools.partial(fn, dfx.ForwardMode()))(*arrays)
        except Untranslatable:
            pass
    return fn(default if adjoint is None else adjoint, *arrays)


@functools.partial(jax.jit, static_argnums=0)
def integrated(static: Static, arrays: Any, y0: State, span: Span, ts: Array | None) -> Solved:
    """The steps of a run.

    **Arguments:** as `integrate`, and:

    - `static`, `arrays`: a model, settings, a solver, and whether the motion between saved times is kept.
    """

    def run(adjoint: dfx.AbstractAdjoint, arrays: Any, y0: State, span: Span, ts: Array | None) -> Solved:
        model, settings, solver, dense = joined(static, arrays)
        return integrate(model, y0, span, ts, settings | {"adjoint": adjoint}, solver, dense)

    _, settings, _, _ = joined(static, arrays)
    return by_one_program(run, *settings["adjoint"], arrays, y0, span, ts)
