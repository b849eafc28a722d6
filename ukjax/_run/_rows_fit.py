"""Whether what a constraint says of velocities and accelerations is the rate of what it says of positions.

A kind of the user's own may write its velocity error and its rows out. Rows that are not the rates of the errors move a
mechanism otherwise than its constraints: projection brings it back at each step, at the cost of the wrong motion.
"""

from typing import Any

import numpy as np
from jaxtyping import Array

from .._compiler import evaluate_at_state
from .._formula._servo._control import Servoed
from .._system._constraint import AbstractConstraint, bilateral
from .._system._rows import Level, collect_levels
from .._system._system import AbstractSystem

_METHODS = (
    ("position_error", "position_errors"),
    ("position_jacobians",),
    ("velocity_error", "velocity_errors"),
    ("acceleration_rows", "all_acceleration_rows"),
)
_WORDS = {
    "jacobian": "its Jacobian is not the derivative of its position error",
    "velocity": "its velocity error is not the rate of its position error",
    "A": "its A is not the derivative of its velocity error by v",
    "b": "its b is not minus the rest of the rate of its velocity error",
}


def _levels(
    parameters: tuple[AbstractSystem, tuple[AbstractConstraint, ...]], t: Array, q: Array, v: Array
) -> list[dict[str, Level]]:
    system, constraints = parameters
    return [collect_levels(system, c, t, q, v) for c in constraints]


def _constraints(system: AbstractSystem) -> tuple[AbstractConstraint, ...]:
    """Those that write out more than one level; of a closed loop also the servo constraints."""
    servo = system.law.servo_constraints if isinstance(system, Servoed) else ()
    every = (*bilateral(getattr(system, "constraints", None)), *servo)
    return tuple(
        c
        for c in every
        if c.kind != "position" and sum(any(_has(c, x) for x in level) for level in _METHODS) > 1
    )


def _has(c: AbstractConstraint, method: str) -> bool:
    own, inherited = (
        getattr(getattr(x, method), "__func__", getattr(x, method)) for x in (type(c), AbstractConstraint)
    )
    return own is not inherited


def rows_that_do_not_fit(system: AbstractSystem, t: Any, q: Any, v: Any) -> dict[str, str]:
    """By constraint, what is not the derivative of what, and by how much, at a state that has values."""
    if not (constraints := _constraints(system)):
        return {}
    t, q, v = map(np.asarray, (t, q, v))
    parameters = system, constraints
    A = np.concatenate(
        [level["A"].derived for level in evaluate_at_state(_levels, parameters, t, q, v) if "A" in level]
    )
    further = np.random.default_rng(0).normal(size=v.size).astype(v.dtype)
    v = v + (further - np.linalg.pinv(A) @ (A @ further) if len(A) else further)
    tolerance = float(np.finfo(q.dtype).eps) ** 0.4
    unfit = {}
    for c, levels in zip(constraints, evaluate_at_state(_levels, parameters, t, q, v), strict=True):
        for what in (x for x in _WORDS if x in levels):
            written, derived, size = levels[what]
            off = np.abs(written - derived)
            if not np.all(off <= tolerance * size):
                unfit[c.name] = f"{_WORDS[what]}: off by {off.max():.1e}"
                break
    return unfit
