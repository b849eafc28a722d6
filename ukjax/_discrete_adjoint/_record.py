"""What a run is differentiated by, what it gives, and the record of its steps."""

import math
from typing import Any, NamedTuple

import diffrax as dfx
import jax.numpy as jnp
from jaxtyping import Array

State = tuple[Array, Array]


class Arguments(NamedTuple):
    """What a run is differentiated by.

    - `parameters`: what the vector field is given.
    - `y0`: the state at the start.
    - `t0`, `t1`: start and end [s].
    - `ts`: the times to save at [s]; None for every step.
    """

    parameters: Any
    y0: State
    t0: Array
    t1: Array
    ts: Array | None


class Outcome(NamedTuple):
    """What a run gives: as in `diffrax.Solution`, the saved times and states, and the last."""

    saved: tuple[Array, State]
    last: tuple[Array, State]
    stats: dict[str, Any]
    result: dfx.RESULTS


class Record(NamedTuple):
    """The accepted steps: their times (max_steps + 1,), every k-th state, and how many were taken."""

    times: Array
    states: State
    taken: Array


def interval(max_steps: int) -> int:
    """From how many steps to how many a state is recorded.

    **Arguments:**

    - `max_steps`: the most steps of a run.
    """
    return math.isqrt(max_steps - 1) + 1


def step(
    terms: Any, solver: Any, parameters: Any, y: State, start: Array, end: Array
) -> tuple[State, dict[str, Any]]:
    """The state after one step, and what its interpolation is made of.

    **Arguments:**

    - `terms`, `solver`: of Diffrax.
    - `parameters`: what the vector field is given.
    - `y`: the state at its start.
    - `start`, `end`: its times [s].
    """
    begun = solver.init(terms, start, end, y, parameters)
    y, _, motion, _, _ = solver.step(terms, start, end, y, parameters, begun, made_jump=jnp.array(True))
    return y, motion
