"""How a run ended, and its motion between saved times."""

from typing import Any, final

import diffrax as dfx
import equinox as eqx
import jax
from jaxtyping import Array

from .._motion._project import Projection
from .._system._stabilize import AbstractStabilizer
from .._system._system import AbstractSystem


class RESULTS(dfx.RESULTS):  # pyright: ignore[reportGeneralTypeIssues]
    """How a simulation ended: Diffrax's codes, and `diverged`."""

    diverged = (
        "The state or the acceleration became infinite or NaN: the motion diverged, the mass matrix lost its "
        "positive definiteness, or the pseudoinverse method met rows it cannot handle."
    )


def code(result: Any) -> int:
    """The number of a result that has a value: comparing results themselves would compile.

    **Arguments:**

    - `result`: of a run.
    """
    return int(jax.tree.leaves(result)[0])


@final
class Dense(eqx.Module):
    """A trajectory between its saved times: Diffrax's interpolation, projected where the run projects."""

    interpolation: dfx.DenseInterpolation
    system: AbstractSystem
    stabilizer: AbstractStabilizer

    @eqx.filter_jit
    def __call__(self, t: Array) -> tuple[Array, Array]:
        q, v = self.interpolation.evaluate(t)
        if (method := self.stabilizer.projection_method) is not None:
            q, v = Projection(method)(self.system, t, q, v)
        return q, v
