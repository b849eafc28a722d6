"""Points of a mechanism under the names a benchmark gives them."""

from typing import Any, final

import equinox as eqx
from jaxtyping import Array

from .._misc._types import Coordinates, Time


@final
class NamedPoints(eqx.Module):
    """points(t, q) with some of the points of a mechanism, by names of their own."""

    system: Any  # the mechanism
    # `names`: pairs (name, the mechanism's name), such as ("ball1", "rod 1.end").
    names: tuple[tuple[str, str], ...] = eqx.field(static=True)

    def __call__(self, t: Time, q: Coordinates) -> dict[str, Array]:
        points = self.system.points(t, q)
        return {name: points[known] for name, known in self.names}
