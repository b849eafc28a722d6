"""Explicit Runge-Kutta steps written out stage by stage.

Diffrax loops over the stages, which keeps compilation short where the vector field is long. Where that is scalar code,
the moving of stages in and out of the loop takes several times what the stages themselves do.
"""

from collections.abc import Sequence
from typing import Any, final

import diffrax as dfx
import jax
import jax.numpy as jnp


def written_out(solver: dfx.AbstractSolver) -> dfx.AbstractSolver:
    """The solver with its stages written out if it is an explicit Runge-Kutta method, else as it is.

    **Arguments:**

    - `solver`: a Diffrax solver.
    """
    explicit = isinstance(solver, dfx.AbstractERK) and isinstance(solver.tableau, dfx.ButcherTableau)
    return WrittenOut(solver) if explicit else solver


def _moved(y: Any, weights: Sequence[float], changes: Sequence[Any]) -> Any:
    """y plus the weighted changes; those of weight zero take nothing."""
    used = [(float(w), k) for w, k in zip(weights, changes, strict=True) if w != 0]
    for w, k in used:
        y = jax.tree.map(lambda x, d, w=w: x + w * d, y, k)
    return y


@final
class WrittenOut(dfx.AbstractWrappedSolver):
    """An explicit Runge-Kutta solver whose steps have no loop. The first stage is evaluated in every step, so it is for
    steps that start where none ended (`ProjectedSolver`), and for single ones.

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
        self, terms: Any, t0: Any, t1: Any, y0: Any, args: Any, solver_state: Any, made_jump: Any
    ) -> Any:
        tableau, control, changes = self.solver.tableau, terms.contr(t0, t1), []
        rows = ((), *tableau.a_lower)
        for c, weights in zip((0.0, *tableau.c), rows, strict=True):
            t = t1 if c == 1 else t0 + float(c) * (t1 - t0)
            changes.append(terms.prod(terms.vf(t, _moved(y0, weights, changes), args), control))
        y1 = _moved(y0, tableau.b_sol, changes)
        error = _moved(jax.tree.map(jnp.zeros_like, y0), tableau.b_error, changes)
        dense = {"y0": y0, "y1": y1, "k": jax.tree.map(lambda *ks: jnp.stack(ks), *changes)}
        return y1, error, dense, None, dfx.RESULTS.successful

    def func(self, terms: Any, t0: Any, y0: Any, args: Any) -> Any:
        return self.solver.func(terms, t0, y0, args)
