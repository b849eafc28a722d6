"""How a run ended, and its motion between saved times."""

import functools
from typing import Any, final

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._misc._types import as_jax, is_traced, module_for
from .._motion._project import Projection
from .._system._rows import most_off
from .._system._stabilize import AbstractStabilizer
from .._system._system import AbstractSystem


class RESULTS(dfx.RESULTS):  # pyright: ignore[reportGeneralTypeIssues]
    """How a simulation ended: Diffrax's codes, and those below."""

    diverged = (
        "The state or the acceleration became infinite or NaN: the motion diverged, the mass matrix lost its "
        "positive definiteness, or the pseudoinverse method met rows it cannot handle."
    )
    inconsistent_start = "No initial state near the one given satisfies the constraints."
    constraints_broken = (
        "The constraints could be kept no longer: they contradict each other, no position near by satisfies "
        "them, or bodies are too light for the precision."
    )
    masses_too_far_apart = (
        "Masses are too far apart for the formula: what it says of light bodies is rounding of heavy ones."
    )


def result_of(number: Any) -> RESULTS:
    """The result of a number among Diffrax's codes, which come first here.

    `RESULTS.promote` gives the same, by operations that compile where the number has a value.
    """
    return jax.tree.unflatten(_STRUCTURE, [as_jax(number)])


def to_diffrax_result(number: int) -> dfx.RESULTS:
    """A number of ours as one of Diffrax's codes, which its loop hands on as it is."""
    return jax.tree.unflatten(jax.tree.structure(dfx.RESULTS.successful), [np.asarray(number, np.int32)])


def step_counts(steps: Any, accepted: Any) -> dict[str, Any]:
    """The statistics of the steps of a run."""
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


def judgement(
    columns: dict[str, Any], result: RESULTS, judged: bool, lost: Any = 0.0, unbalanced: Any = 0.0
) -> RESULTS:
    """The result of a run, by its saved states and its end: `diverged` where this is not finite, `masses_too_far_apart`
    where forces are out of balance in one of them, `constraints_broken` where one is off the constraints, or bodies are
    too light for their rows and no projection mends that.
    """
    xp = module_for(columns, result)
    finite = xp.all(xp.isfinite(xp.concatenate([xp.asarray(columns[x])[-1] for x in ("q", "a")])))
    known = xp.isfinite(columns["t"])
    off = xp.any(off_by(columns) > 1 if judged else known & (xp.asarray(lost) > 0.5))
    apart = xp.any(known & (xp.asarray(unbalanced) > 0.5))
    if xp is np:
        if is_good(result) and (apart or off):
            result = RESULTS.masses_too_far_apart if apart else RESULTS.constraints_broken
        return result if finite else RESULTS.diverged
    good = (result == RESULTS.successful) | (result == RESULTS.event_occurred)
    result = RESULTS.where(good & off, RESULTS.constraints_broken, result)
    result = RESULTS.where(good & apart, RESULTS.masses_too_far_apart, result)
    return RESULTS.where(finite, result, RESULTS.diverged)


def off_by(columns: dict[str, Any]) -> Array:
    """How far each row is off, (k, m): in position or in velocity, beside what counts as kept."""
    t = columns["t"]
    xp = module_for(columns)
    reached = xp.isfinite(t)[:, None]
    found: Any = 0.0
    for errors, state in (("position_error", "q"), ("velocity_error", "v")):
        errors, state = (xp.abs(xp.where(reached, columns[x], 0)) for x in (errors, state))
        found = xp.maximum(found, errors / (most_off(errors.dtype) * (1 + xp.max(state, initial=0))))
    return found


@final
class Dense(eqx.Module):
    """A trajectory between its saved times: Diffrax's interpolation, projected where the run projects."""

    interpolation: dfx.DenseInterpolation
    system: AbstractSystem
    stabilizer: AbstractStabilizer

    @eqx.filter_jit
    def __call__(self, t: Array) -> tuple[Array, Array]:
        # Diffrax multiplies times by a direction, an integer, which no program of scalars returns as weakly typed.
        with jax.numpy_dtype_promotion("standard"):
            q, v = self.interpolation.evaluate(t)
        if (method := self.stabilizer.projection_method) is not None:
            q, v = Projection(method)(self.system, t, q, v)
        return q, v
