"""Solvers in a form whose steps reverse mode can differentiate."""

from typing import Any, final

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from .._batch import square

State = tuple[Array, Array]


def staged(solver: Any) -> Any:
    """The solver with its stages as a `lax.scan`, if it is an explicit Runge-Kutta method, also within a wrapper.

    **Arguments:**

    - `solver`: a Diffrax solver.
    """
    if isinstance(getattr(solver, "solver", None), dfx.AbstractSolver):
        return eqx.tree_at(lambda s: s.solver, solver, staged(solver.solver))
    explicit = isinstance(solver, dfx.AbstractERK) and isinstance(solver.tableau, dfx.ButcherTableau)
    return Stages(solver) if explicit else solver


def backwards(solver: Any) -> Any:
    """The solver in a form whose steps reverse mode can differentiate.

    **Arguments:**

    - `solver`: a Diffrax solver.
    """
    solver = staged(solver)
    if isinstance(solver, Stages):
        return solver
    if isinstance(getattr(solver, "solver", None), dfx.AbstractSolver):
        return eqx.tree_at(lambda s: s.solver, solver, backwards(solver.solver))
    if getattr(solver, "scan_kind", "") is None:
        return eqx.tree_at(lambda s: s.scan_kind, solver, "bounded", is_leaf=lambda x: x is None)
    return solver


@final
class Stages(dfx.AbstractWrappedSolver):
    """An explicit Runge-Kutta solver whose stages are a `lax.scan`. The first stage is evaluated in every step.

    **Arguments:**

    - `solver`: the Diffrax solver.
    """

    solver: Any

    @property
    def term_structure(self) -> Any:
        return self.solver.term_structure

    @property
    def interpolation_cls(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.solver.interpolation_cls

    def order(self, terms: Any) -> int | None:
        return self.solver.order(terms)

    def error_order(self, terms: Any) -> Any:
        return self.solver.error_order(terms)

    def init(self, terms: Any, t0: Any, t1: Any, y0: Any, args: Any) -> None:
        return None

    def step(
        self, terms: Any, t0: Any, t1: Any, y0: State, args: Any, solver_state: None, made_jump: Any
    ) -> Any:
        tableau, control = self.solver.tableau, terms.contr(t0, t1)
        (a, c), count = square(tableau), tableau.num_stages
        times = jnp.where(jnp.asarray(c == 1), t1, t0 + jnp.asarray(c, t0.dtype) * (t1 - t0))

        def moved(start: State, changes: State, weights: Array) -> State:
            return jax.tree.map(lambda y, k: y + weights.astype(k.dtype) @ k, start, changes)

        def stage(changes: State, now: tuple[Array, Array, Array]) -> tuple[State, None]:
            i, weights, t = now
            change = terms.prod(terms.vf(t, moved(y0, changes, weights), args), control)
            return jax.tree.map(lambda all, k: all.at[i].set(k), changes, change), None

        none = jax.tree.map(lambda y: jnp.zeros((count, *y.shape), y.dtype), y0)
        changes, _ = lax.scan(stage, none, (jnp.arange(count), jnp.asarray(a), times))
        y1 = moved(y0, changes, jnp.asarray(tableau.b_sol))
        error = moved(jax.tree.map(jnp.zeros_like, y0), changes, jnp.asarray(tableau.b_error))
        return y1, error, {"y0": y0, "y1": y1, "k": changes}, None, dfx.RESULTS.successful

    def func(self, terms: Any, t0: Any, y0: Any, args: Any) -> Any:
        return self.solver.func(terms, t0, y0, args)
