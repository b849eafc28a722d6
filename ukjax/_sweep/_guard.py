"""A step-size controller that gives a run up where no step is short enough, so that its neighbours need not wait."""

from typing import Any, final

import diffrax as dfx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._run import _options

# The shortest step, in units of rounding of the largest time.
_SHORTEST = 64.0


@final
class Guarded(_options.AbstractControllerAround):
    """An adaptive controller whose first step is never NaN, and that ends a run whose steps become too short.

    Diffrax's own would go on to the largest number of steps.
    """

    controller: dfx.AbstractAdaptiveStepSizeController
    end: Float[Array, ""]  # the largest time in magnitude [s]

    def __init__(self, controller: dfx.AbstractAdaptiveStepSizeController, end: Float[Array, ""]):
        self.controller, self.end = controller, end

    def wrap(self, direction: Any) -> "Guarded":
        wrapped: Any = self.controller.wrap(direction)
        return Guarded(wrapped, self.end)

    def init(self, terms: Any, t0: Any, t1: Any, *given: Any, **named: Any) -> tuple[Any, Any]:
        first, state = self.controller.init(terms, t0, t1, *given, **named)
        return jnp.where(jnp.isfinite(first), first, t0 + (t1 - t0) / 1000), state

    def adapt_step_size(self, *given: Any, **named: Any) -> Any:
        *kept, start, end, jump, state, result = self.controller.adapt_step_size(*given, **named)
        shortest = _SHORTEST * jnp.finfo(self.end.dtype).eps * self.end
        stuck = ~(end - start > shortest)
        return *kept, start, end, jump, state, dfx.RESULTS.where(stuck, dfx.RESULTS.dt_min_reached, result)


def guarded_steps(options: dict[str, Any], end: Any, dtype: Any) -> dict[str, Any]:
    """Options of `simulate` for runs beside each other: how steps are controlled, and derivatives in forward mode."""
    tolerances, with_dt0 = (options["rtol"], options["atol"]), options["dt0"] is not None
    controller = options["stepsize_controller"]
    controller = _options.controller(controller, options["solver"], with_dt0, tolerances, dtype)
    if isinstance(controller, dfx.AbstractAdaptiveStepSizeController):
        controller = Guarded(controller, jnp.asarray(end, dtype))
    return {"stepsize_controller": controller, "adjoint": dfx.ForwardMode()}
