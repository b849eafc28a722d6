"""How a run ended, and its motion between saved times."""

import functools
from typing import Any, final

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._misc._types import as_jax, is_traced
from .._motion._project import Projection
from .._system._stabilize import AbstractStabilizer
from .._system._system import AbstractSystem


class RESULTS(dfx.RESULTS):  # pyright: ignore[reportGeneralTypeIssues]
    """How a simulation ended: Diffrax's codes, and `diverged`."""

    diverged = (
        "The state or the acceleration became infinite or NaN: the motion diverged, the mass matrix lost its "
        "positive definiteness, or the pseudoinverse method met rows it cannot handle."
    )


def result_of(number: Any) -> RESULTS:
    """The result of a number among Diffrax's codes, which come first here.

    `RESULTS.promote` gives the same, by operations that compile where the number has a value.

    **Arguments:**

    - `number`: the number, a 32-bit integer of NumPy or JAX.
    """
    return jax.tree.unflatten(_STRUCTURE, [as_jax(number)])


def step_counts(steps: Any, accepted: Any) -> dict[str, Any]:
    """The statistics of the steps of a run.

    **Arguments:**

    - `steps`, `accepted`: how many were tried, and how many accepted.
    """
    counts = {"num_steps": steps, "num_accepted_steps": accepted, "num_rejected_steps": steps - accepted}
    integer = jnp.asarray if is_traced(steps) else np.asarray
    return {name: integer(x, np.int32) for name, x in counts.items()}


def code(result: Any) -> int:
    """The number of a result that has a value: comparing results themselves would compile."""
    return int(jax.tree.leaves(result)[0])


_STRUCTURE = jax.tree.structure(RESULTS.successful)


@functools.cache
def _good() -> tuple[int, ...]:
    return code(RESULTS.successful), code(RESULTS.event_occurred)


def is_good(result: Any) -> bool:
    """Whether a result that has a value is that of a run that did as it was asked."""
    return code(result) in _good()


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
