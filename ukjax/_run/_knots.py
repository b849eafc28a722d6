"""Steps that end where a zero-order hold jumps: across a jump no method has its order, and a controller rejects step
after step to find it."""

from typing import Any, final

import diffrax as dfx
import jax.numpy as jnp
from jaxtyping import Array

from .._misc._closures import find_instances
from .._system._system import AbstractSystem
from .._system._tabulated import Tabulated
from ._tolerances import with_tolerances_of

# Diffrax moves a step that would end within 100 units of rounding of t1 to t1. If there is a jump, all but these are
# integrated before it.
_AT_END = 128
_SLIVER = 1e-3  # of a step: one that would end as near before a jump ends there


@final
class AtKnots(dfx.AbstractStepSizeController):
    """A controller whose steps end just before times of jumps (k,), and start there.

    Diffrax's `ClipStepSizeController` does so for adaptive steps only, and has no scalar code.
    """

    controller: dfx.AbstractStepSizeController
    knots: Array

    def wrap(self, direction: Any) -> "AtKnots":
        return AtKnots(self.controller.wrap(direction), self.knots * direction)

    def init(
        self, terms: Any, t0: Any, t1: Any, y0: Any, dt0: Any, args: Any, func: Any, error_order: Any
    ) -> Any:
        t_next, kept = self.controller.init(terms, t0, t1, y0, dt0, args, func, error_order)
        last = t1 - _AT_END * (jnp.nextafter(jnp.abs(t1), jnp.full_like(t1, jnp.inf)) - jnp.abs(t1))
        return self._clipped(t0, t_next, last), (kept, last)

    def adapt_step_size(
        self, t0: Any, t1: Any, y0: Any, y1_candidate: Any, args: Any, y_error: Any, error_order: Any,
        controller_state: Any,
    ) -> Any:  # fmt: skip
        kept, last = controller_state
        accepted, t, t_next, jumped, kept, result = self.controller.adapt_step_size(
            t0, t1, y0, y1_candidate, args, y_error, error_order, kept
        )
        after = jnp.nextafter(t, jnp.full_like(t, jnp.inf))
        jumps = jnp.any(self.knots == after)
        t, t_next = jnp.where(jumps, after, t), jnp.where(jumps, t_next + (after - t), t_next)
        return accepted, t, self._clipped(t, t_next, last), jumped | jumps, (kept, last), result

    def _clipped(self, t: Any, t_next: Any, last: Any) -> Array:
        knot = jnp.min(jnp.where(self.knots > t, self.knots, jnp.inf))
        before = jnp.nextafter(knot, jnp.full_like(knot, -jnp.inf))
        before = jnp.where((knot > last) & (t < last), jnp.minimum(before, last), before)
        return jnp.where(t_next > before - _SLIVER * (before - t), before, t_next)


def with_knots(
    controller: dfx.AbstractStepSizeController, system: AbstractSystem, dtype: Any
) -> dfx.AbstractStepSizeController:
    """The controller, made to end steps at the knots of the tables of a system that hold their values."""
    tables = find_instances(system, Tabulated)
    knots = [x.times.astype(dtype) for x in tables if x.holds]
    return with_tolerances_of(AtKnots(controller, jnp.concatenate(knots))) if knots else controller
