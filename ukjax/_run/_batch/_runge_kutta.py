"""Explicit Runge-Kutta steps of many runs at once: the state's numbers by rows, the runs along them.

Diffrax's step, mapped over a batch, has the runs first; each stage then costs more in moving numbers than in the
scalar code of an acceleration.
"""

from typing import Any, final

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap
from jaxtyping import Array

from ..._motion._wrapped_solver import AbstractForwardingSolver


def in_slots(solver: Any) -> Any:
    """The solver, its steps written for slots if it is an explicit Runge-Kutta method, also within a wrapper.

    **Arguments:**

    - `solver`: a Diffrax solver.
    """
    if isinstance(getattr(solver, "solver", None), dfx.AbstractSolver):
        return eqx.tree_at(lambda s: s.solver, solver, in_slots(solver.solver))
    explicit = isinstance(solver, dfx.AbstractERK) and isinstance(solver.tableau, dfx.ButcherTableau)
    return RungeKuttaInLanes(solver) if explicit else solver


def square(tableau: dfx.ButcherTableau) -> tuple[np.ndarray, np.ndarray]:
    """The coefficients a (s, s) and c (s,) of all stages, the first among them.

    **Arguments:**

    - `tableau`: of an explicit method.
    """
    a, c = np.zeros((tableau.num_stages,) * 2), np.zeros(tableau.num_stages)
    for i, row in enumerate(tableau.a_lower):
        a[i + 1, : i + 1] = row
    c[1:] = tableau.c
    return a, c


@final
class RungeKuttaInLanes(AbstractForwardingSolver):
    """An explicit Runge-Kutta solver of vectors, or tuples of them, whose steps are made for `jax.vmap`.

    **Arguments:**

    - `solver`: the Diffrax solver.
    """

    solver: Any

    def init(self, terms: Any, t0: Any, t1: Any, y0: Any, args: Any) -> Any:
        return self.solver.init(terms, t0, t1, y0, args)

    def step(
        self, terms: Any, t0: Any, t1: Any, y0: Any, args: Any, solver_state: Any, made_jump: Any
    ) -> Any:
        given = terms, t0, t1, y0, args, solver_state, jnp.asarray(made_jump)
        arrays, static = eqx.partition(given, eqx.is_array)
        leaves, tree = jax.tree.flatten(arrays)

        def make(leaves: Any) -> Any:
            return eqx.combine(jax.tree.unflatten(tree, list(leaves)), static)

        @custom_vmap
        def step(*leaves: Array) -> Any:
            return self.solver.step(*make(leaves))[:4]

        @step.def_vmap
        def _(count: int, batched: list[bool], *leaves: Array) -> Any:
            last = [jnp.moveaxis(x, 0, -1) if b else x for x, b in zip(leaves, batched, strict=True)]
            axes = jax.tree.unflatten(tree, [-1 if b else None for b in batched])
            result = _step(self.solver.tableau, make(last), axes, count)
            return jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0), result), jax.tree.map(
                lambda x: True, result
            )

        return *step(*leaves), dfx.RESULTS.successful


def _combined(weights: Array, ks: Array) -> Array:
    # Not a product of matrices, for which XLA calls its other threads: that costs more than the sum.
    return sum((weights[j] * ks[j] for j in range(1, len(ks))), weights[0] * ks[0])


def _step(tableau: dfx.ButcherTableau, given: Any, axes: Any, slots: int) -> Any:
    """The state, the error, what the interpolation needs and the derivative at the end, the slots last."""
    terms, t0, t1, y0, args, solver_state, made_jump = given
    over_terms, over_t0, over_t1, _, over_args, _, _ = axes
    leaves, tree = jax.tree.flatten(y0)
    ends = np.cumsum([x.shape[0] for x in leaves])[:-1].tolist()
    joined = lambda y: jnp.concatenate([jnp.broadcast_to(x, (x.shape[0], slots)) for x in jax.tree.leaves(y)])
    parted = lambda y: jax.tree.unflatten(tree, jnp.split(y, ends, axis=-2))
    mapped = lambda fn, *axes: jax.vmap(fn, in_axes=axes, out_axes=-1, axis_size=slots)
    control = mapped(lambda terms, t0, t1: terms.contr(t0, t1), over_terms, over_t0, over_t1)(terms, t0, t1)
    field = mapped(lambda terms, t, y, args: terms.vf(t, y, args), over_terms, -1, -1, over_args)
    a, c = (jnp.asarray(x, leaves[0].dtype) for x in square(tableau))
    start = joined(y0)
    control = jnp.broadcast_to(control, start.shape)

    def stage(i: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        ks, _ = state
        t = jnp.where(c[i] == 1, t1, t0 + c[i] * (t1 - t0))
        y = start + _combined(a[i], ks)
        f = joined(field(terms, jnp.broadcast_to(t, (slots,)), parted(y), args))
        return lax.dynamic_update_index_in_dim(ks, f * control, i, 0), f

    ks, first = jnp.zeros((len(c), *start.shape), start.dtype), 0
    f = jnp.zeros_like(start)
    if tableau.fsal:
        is_first, f = solver_state[0], joined(solver_state[1])
        first = jnp.where(jnp.any(is_first | made_jump), 0, 1)
        ks = lax.dynamic_update_index_in_dim(ks, f * control, 0, 0)
    ks, f = lax.fori_loop(first, len(c), stage, (ks, f))
    change, error = (_combined(jnp.asarray(b, start.dtype), ks) for b in (tableau.b_sol, tableau.b_error))
    end = parted(start + change)
    dense = {"y0": parted(start), "y1": end, "k": parted(ks)}
    return end, parted(error), dense, (jnp.zeros(slots, bool), parted(f)) if tableau.fsal else None
