"""Which rows of the equations of motion count as dependent on others, by L D L^T."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from .._formula._acceleration import AbstractFormula, Equations
from .._misc._tolerances import TOLD_BY_POSITIONS, TURNED_AT_STAGES
from .._pseudoinverse import AbstractPseudoinverse
from ._scalars import Builder, Expression, TranslationError
from ._solve import Solution, acceleration
from ._vectors import plus


class StepRelativeRank(NamedTuple):
    """The rule of L D L^T at stages of projected steps, by the rows where the step starts.

    There, on the constraints, dependent rows are so but for rounding. At the stages they turn by how far these are off,
    and are no less dependent: taken for independent they stop the motion. So the threshold is the square of the least
    sine of the rows there, times a constant, but at least `least`, and A decides. Where no row depends on others none can
    turn so: rows that are nearly dependent are on their way through a singular position, or to the end of the motion, and
    stay as far as their sines can be told from rounding of positions.
    """

    least: float


How = AbstractPseudoinverse | type[AbstractFormula] | StepRelativeRank | float
"""What B^+ is computed by; the kind of a formula that has none; or the rule of L D L^T, or its threshold."""


def least_of(how: How) -> float:
    """The least threshold of L D L^T; 1 for anything else."""
    if isinstance(how, StepRelativeRank):
        return how.least
    return how if isinstance(how, float) else 1.0


def solution_by(how: How, build: Builder, e: Equations, near: Expression | None, dtype: Any) -> Solution:
    """The acceleration, and what else is known of it.

    **Raises:** `TranslationError` if there is no such scalar code.
    """
    given = e.M, plus(build, e.Q, e.c), e.rows.A, e.rows.b
    if isinstance(how, type):
        raise TranslationError(f"{how.__name__} has no scalar code")
    if isinstance(how, AbstractPseudoinverse) and len(e.rows.A):
        raise TranslationError(f"{type(how).__name__} has loops")
    rcond, eps = least_of(how), float(jnp.finfo(dtype).eps)
    alike = np.array_equal(e.rows.of_velocities, e.rows.of_accelerations)  # of which `near` is known
    if near is None or not alike or not isinstance(how, StepRelativeRank):
        return acceleration(build, *given, rcond, eps)
    apply = build.apply
    inverse_sine = apply("abs", near)
    start = build.inverse(inverse_sine, apply("gt", inverse_sine, 0.0))  # zero where it is not known
    turned = apply("max", rcond, apply("mul", TURNED_AT_STAGES, apply("mul", start, start)))
    independent = apply("and", apply("gt", near, 0.0), apply("gt", start, 0.0))
    kept = min(rcond, TOLD_BY_POSITIONS * eps**0.5)
    return acceleration(build, *given, apply("select", independent, kept, turned), eps, independent)
