"""Derivatives of runs: back through the steps by machine code where that can be, else by Diffrax."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._misc._by_platform import by_platform
from .._misc._linear import linear
from ._observe import Solved

Pull = Callable[..., tuple[Any, Any]]
"""Of the arguments of a run and the cotangents of q and v: those of the model's numbers and of the start."""


def _is_none(x: Any) -> bool:
    return x is None


def changed(
    run: Callable[..., Solved], by_diffrax: Callable[..., Solved], pull: Pull, primals: Any, tangents: Any
) -> Any:
    """A run and its change, by parameters and start only: reverse mode is machine code, forward mode Diffrax's.

    **Arguments:**

    - `run`: the run, of arrays, of which the model's are first, start, span and times.
    - `by_diffrax`: the same by Diffrax, which can be differentiated.
    - `pull`: the machine code.
    - `primals`, `tangents`: the arguments, and their changes; None where they do not change.
    """
    solved = run(*primals)
    fixed, tree = jax.tree.flatten(primals)
    changes, tree_of_changes = jax.tree.flatten(tangents)
    varied = jax.tree.map(lambda x: x is not None, tangents, is_leaf=_is_none)

    def states(found: Any) -> list[Any]:
        return [found.q, found.v]

    def forth(*given: Array) -> Sequence[Array]:
        of, by = (
            jax.tree.unflatten(tree, given[: len(fixed)]),
            jax.tree.unflatten(tree_of_changes, given[len(fixed) :]),
        )
        found, change = eqx.filter_jvp(by_diffrax, of, by)
        return [
            jnp.zeros_like(x) if dx is None else dx
            for x, dx in zip(states(found), states(change), strict=True)
        ]

    def back_by_diffrax(*given: Array) -> list[Array]:
        of, cotangents = jax.tree.unflatten(tree, given[: len(fixed)]), list(given[len(fixed) :])
        moving, still = eqx.partition(of, varied)
        _, pulled = jax.vjp(lambda moving: states(by_diffrax(*eqx.combine(moving, still))), moving)
        return jax.tree.leaves(pulled(cotangents))

    def back_by_machine(*given: Array) -> list[Array]:
        of, cotangents = jax.tree.unflatten(tree, given[: len(fixed)]), given[len(fixed) :]
        numbers, start = pull(*of, cotangents)
        zeros = jax.tree.map(jnp.zeros_like, of)
        model = dataclasses.replace(zeros[0][0], numbers=numbers)
        found = (model, *zeros[0][1:]), start, *zeros[2:]
        return jax.tree.leaves(eqx.filter(found, varied))

    @jax.custom_jvp
    def back(*given: Array) -> list[Array]:
        return by_platform(back_by_machine, back_by_diffrax, *given)

    back.defjvp(lambda primals, tangents: jax.jvp(back_by_diffrax, primals, tangents))
    dq, dv = linear(forth, back, fixed, changes, states(solved))
    nothing = jax.tree.map(lambda _: None, solved)
    return solved, nothing._replace(q=dq, v=dv)
