"""Step-size controllers around others, which tell Diffrax the tolerances of those."""

from collections.abc import Callable
from typing import Any, final

import diffrax as dfx


@final
class _WithTolerances(dfx.AbstractAdaptiveStepSizeController):
    """A controller around an adaptive one, of whose tolerances implicit solvers ask."""

    around: Any

    def __init__(self, around: Any):
        self.around = around

    @property
    def rtol(self) -> Any:
        return self.around.controller.rtol

    @property
    def atol(self) -> Any:
        return self.around.controller.atol

    @property
    def norm(self) -> Callable[[Any], Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.around.controller.norm

    def wrap(self, direction: Any) -> "_WithTolerances":
        return _WithTolerances(self.around.wrap(direction))

    def init(self, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        return self.around.init(*args, **kwargs)

    def adapt_step_size(self, *args: Any, **kwargs: Any) -> Any:
        return self.around.adapt_step_size(*args, **kwargs)


def with_tolerances_of(around: Any) -> dfx.AbstractStepSizeController:
    """A controller around another one, its `controller`, adaptive where that is."""
    adaptive = isinstance(around.controller, dfx.AbstractAdaptiveStepSizeController)
    return _WithTolerances(around) if adaptive else around
