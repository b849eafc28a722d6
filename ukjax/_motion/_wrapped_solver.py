"""What a solver that wraps another one leaves to it."""

from typing import Any

import diffrax as dfx
import equinox as eqx

_SCANS = {dfx.ForwardMode: "lax", dfx.DirectAdjoint: "bounded"}


def with_scan(solver: Any, adjoint: dfx.AbstractAdjoint) -> Any:
    """The solver, with the loop over its stages as an adjoint can differentiate it.

    Diffrax sees to that, but not for a solver that another one wraps.
    """
    kind = _SCANS.get(type(adjoint))
    if kind is None or getattr(solver, "scan_kind", "") is not None:
        return solver
    return eqx.tree_at(lambda s: s.scan_kind, solver, kind, is_leaf=lambda x: x is None)


class AbstractForwardingSolver(dfx.AbstractWrappedSolver):
    """A Diffrax solver around another, which answers all but `init` and `step`.

    - `solver`: the other one.
    """

    solver: eqx.AbstractVar[Any]

    @property
    def term_structure(self) -> Any:
        return self.solver.term_structure

    @property
    def interpolation_cls(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.solver.interpolation_cls

    @property
    def term_compatible_contr_kwargs(self) -> Any:
        return self.solver.term_compatible_contr_kwargs

    @property
    def root_finder(self) -> Any:
        return self.solver.root_finder

    @property
    def scan_kind(self) -> Any:  # Diffrax's forward-mode adjoints set it
        return self.solver.scan_kind

    def order(self, terms: Any) -> int | None:
        """The solver's; `terms` as Diffrax gives them."""
        return self.solver.order(terms)

    def strong_order(self, terms: Any) -> Any:
        """The solver's; `terms` as Diffrax gives them."""
        return self.solver.strong_order(terms)

    def error_order(self, terms: Any) -> Any:
        """The solver's; `terms` as Diffrax gives them."""
        return self.solver.error_order(terms)

    def func(self, terms: Any, t0: Any, y0: Any, args: Any) -> Any:
        """The solver's; `terms`, `t0`, `y0` and `args` as Diffrax gives them."""
        return self.solver.func(terms, t0, y0, args)
