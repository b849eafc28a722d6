"""Derivatives of runs by parameters and start, forward along the steps or back through them: by machine code."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from .._misc._linear import changes
from ._observe import Solved

Along = Callable[..., tuple[Any, Any]]
"""Of the arguments of a run, and of the changes of the model's numbers and of the start: those of q and v. Or of the
cotangents of q and v: those of the numbers and of the start."""


def changed(
    run: Callable[..., Solved],
    by_diffrax: tuple[Callable[..., Solved], Callable[..., Solved]],
    push: Along | None,
    pull: Along | None,
    primals: Any,
    tangents: Any,
) -> tuple[Solved, Solved]:
    """A run and its change, one linear operation: so it can be batched before it is transposed.

    **Arguments:**

    - `run`: the run, of pytrees of arrays: of the model and more, start, span and times.
    - `by_diffrax`: the same by Diffrax, which can be differentiated in forward mode, and in reverse mode.
    - `push`, `pull`: both by machine code, where only model and start change; by default Diffrax's.
    - `primals`, `tangents`: the arguments, and their changes, None where there is none.
    """
    solved = run(*primals)
    names = ("q", "v") if push or pull else ("t", "q", "v")
    numbers = lambda of: [getattr(of, name) for name in names]

    def pushed(given: Any, changes: Any) -> Any:
        assert push is not None
        of = lambda by: (by[0][0].numbers, by[1])  # the model's numbers, and the start
        filled = lambda x, dx: jnp.zeros_like(x) if dx is None else dx
        return push(*given, jax.tree.map(filled, of(given), of(changes)))

    def pulled(given: Any, cotangents: list[Any]) -> Any:
        assert pull is not None
        of_numbers, start = pull(*given, cotangents)
        (model, *others), _, *times = jax.tree.map(jnp.zeros_like, given)
        return (dataclasses.replace(model, numbers=of_numbers), *others), start, *times

    states = [lambda *given, way=way: numbers(way(*given)) for way in by_diffrax]
    found = changes(
        (states[0], states[1]), primals, tangents, numbers(solved), push and pushed, pull and pulled
    )
    return solved, jax.tree.map(lambda _: None, solved)._replace(**dict(zip(names, found, strict=True)))
