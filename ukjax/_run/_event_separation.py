"""Several events in one step, of which Diffrax would take the first of the list, not the first in time.

A step in which more than one occurs is taken again at half its size, until one is left, or until they are simultaneous.
"""

from typing import Any, final

import diffrax as dfx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from ._event_location import Bracketing
from ._tolerances import with_tolerances

_SIMULTANEOUS = 1e3
"""Times nearer than this, in units of their rounding, are one: that of an event is not known better."""


def _occurs(before: Array, after: Array, direction: bool | None) -> Bool[Array, ""]:
    """Whether Diffrax sees an event in a step."""
    before, after = jnp.sign(before), jnp.sign(after)
    if direction is None:
        return before != after
    return (before <= 0) & (after > 0) if direction else (before > 0) & (after <= 0)


@final
class _Separated(dfx.AbstractStepSizeController):
    """A controller that takes a step with several events again, at half its size.

    - `controller`: for all other steps.
    - `event`: with more than one condition.
    """

    controller: dfx.AbstractStepSizeController
    event: dfx.Event

    def wrap(self, direction: Any) -> "_Separated":
        return _Separated(self.controller.wrap(direction), self.event)

    def init(self, *given: Any, **named: Any) -> tuple[Any, Any]:
        return self.controller.init(*given, **named)

    def adapt_step_size(
        self,
        t0: Any,
        t1: Any,
        y0: Any,
        y1_candidate: Any,
        args: Any,
        y_error: Any,
        error_order: Any,
        controller_state: Any,
    ) -> Any:
        directions = jax.tree.leaves(self.event.direction, is_leaf=lambda x: x is None)
        conditions = jax.tree.leaves(self.event.cond_fn, is_leaf=callable)
        occurred = [
            _occurs(condition(t0, y0, args), condition(t1, y1_candidate, args), direction)
            for condition, direction in zip(conditions, directions, strict=True)
        ]
        shortest = _SIMULTANEOUS * jnp.finfo(t1.dtype).eps * (1 + jnp.abs(t1))
        several = (jnp.sum(jnp.stack(occurred)) > 1) & (t1 - t0 > shortest)
        usual = self.controller.adapt_step_size(
            t0, t1, y0, y1_candidate, args, y_error, error_order, controller_state
        )
        again = (False, t0, t0 + 0.5 * (t1 - t0), False, controller_state, dfx.RESULTS.successful)
        chosen = jax.tree.map(lambda x, y: jnp.where(several, x, y), again[:-1], usual[:-1])
        return *chosen, dfx.RESULTS.where(several, again[-1], usual[-1])


def separate_events(
    controller: dfx.AbstractStepSizeController, event: dfx.Event | None
) -> dfx.AbstractStepSizeController:
    """The controller, so that no step ends with more than one event."""
    if event is None or not isinstance(event.root_finder, Bracketing):  # Diffrax's own events are as it says
        return controller
    if len(jax.tree.leaves(event.cond_fn, is_leaf=callable)) < 2:
        return controller
    return with_tolerances(_Separated(controller, event))
