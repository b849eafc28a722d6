"""Derivatives of runs by parameters and start, forward along the steps or back through them: by machine code."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from .._misc._linear import Ways, changes
from ._observe import Solved


def changed(run: Callable[..., Solved], ways: Ways, primals: Any, tangents: Any) -> tuple[Solved, Solved]:
    """A run and its change, one linear operation: so it can be batched before it is transposed.

    **Arguments:**

    - `run`: the run, of pytrees of arrays: of the model and more, start, span and times.
    - `ways`: to compute the change: the run by Diffrax; machine code where only model and start change: of these and the
      changes of the model's numbers and of the start, or the cotangents of q and v.
    - `primals`, `tangents`: the arguments, and their changes, None where there is none.
    """
    solved = run(*primals)
    names = ("q", "v") if ways.push or ways.pull else ("t", "q", "v")
    numbers = lambda of: [getattr(of, name) for name in names]

    def pushed(given: Any, changes: Any) -> Any:
        assert ways.push is not None
        of = lambda by: (by[0][0].numbers, by[1])  # the model's numbers, and the start
        filled = lambda x, dx: jnp.zeros_like(x) if dx is None else dx
        return ways.push(*given, jax.tree.map(filled, of(given), of(changes)))

    def pulled(given: Any, cotangents: list[Any]) -> Any:
        assert ways.pull is not None
        of_numbers, start = ways.pull(*given, cotangents)
        (model, *others), _, *times = jax.tree.map(jnp.zeros_like, given)
        return (dataclasses.replace(model, numbers=of_numbers), *others), start, *times

    of_arrays = ways._replace(
        forward=lambda *given: numbers(ways.forward(*given)),
        reverse=lambda *given: numbers(ways.reverse(*given)),
        push=ways.push and pushed,
        pull=ways.pull and pulled,
    )
    found = changes(of_arrays, primals, tangents, numbers(solved))
    return solved, jax.tree.map(lambda _: None, solved)._replace(**dict(zip(names, found, strict=True)))
