"""Derivatives of runs by parameters and start: in reverse mode back through the steps by machine code."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from .._misc._linear import changes
from ._observe import Solved

Pull = Callable[..., tuple[Any, Any]]
"""Of the arguments of a run and the cotangents of q and v: those of the model's numbers and of the start."""


def changed(
    run: Callable[..., Solved],
    by_diffrax: Callable[..., Solved],
    pull: Pull | None,
    primals: Any,
    tangents: Any,
) -> tuple[Solved, Solved]:
    """A run and its change, one linear operation: so it can be batched before it is transposed.

    **Arguments:**

    - `run`: the run, of pytrees of arrays: of the model and more, start, span and times.
    - `by_diffrax`: the same by Diffrax, which can be differentiated.
    - `pull`: reverse mode by machine code, where only model and start change; by default Diffrax's.
    - `primals`, `tangents`: the arguments, and their changes, None where there is none.
    """
    solved = run(*primals)
    names = ("q", "v") if pull else ("t", "q", "v")
    numbers = lambda of: [getattr(of, name) for name in names]

    def pulled(given: Any, cotangents: list[Any]) -> Any:
        assert pull is not None
        of_numbers, start = pull(*given, cotangents)
        (model, *others), _, *times = jax.tree.map(jnp.zeros_like, given)
        return (dataclasses.replace(model, numbers=of_numbers), *others), start, *times

    states = lambda *given: numbers(by_diffrax(*given))
    found = changes(states, primals, tangents, numbers(solved), pulled if pull else None)
    return solved, jax.tree.map(lambda _: None, solved)._replace(**dict(zip(names, found, strict=True)))


def batched_with(given: Any, solved: Solved) -> Solved:
    """The same numbers, of which `vmap` takes all for batched if any that is given is.

    JAX requires that a derivative rule returns what is batched where the function does, and batches of runs by our own
    code count the steps of each, while Diffrax counts fixed steps once for all.

    **Arguments:**

    - `given`: pytree of arrays, arguments of the run.
    - `solved`: what it returned.
    """
    firsts = [jnp.ravel(x)[:1] for x in jax.tree.leaves(given) if eqx.is_array(x)]
    never = jnp.zeros((), bool)  # which XLA finds out as well
    for x in firsts:
        never &= jnp.any(x != x)
    return jax.tree.map(lambda x: jnp.where(never, jnp.zeros_like(x), x), solved)
