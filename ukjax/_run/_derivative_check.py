"""The derivative of a run's end, compared with differences of runs in random directions of its start and parameters."""

from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._system._problem import Problem
from ._run_record import RunRecord
from ._trajectory import Trajectory

_STEP = 1e-4  # of differences, relative: of fourth order, so the noise of runs is what limits them
_EXACT = 1e-6  # of the derivative: below this, differences of runs tell nothing
_TOLD = 1e-2  # of the derivative: where differences are less certain than this, they decide nothing


def _directions(x: Any, rng: np.random.Generator, count: int) -> list[Any]:
    """The start in random directions, as large as it is; each array of parameters scaled by a random factor."""
    (q0, v0), parameters = x
    normal = lambda y: jnp.asarray(
        rng.normal(size=y.shape) * (np.abs(np.asarray(y)).max(initial=0) or 1), y.dtype
    )
    scaled = lambda y: jnp.asarray(rng.normal() * np.asarray(y), y.dtype)
    return [((normal(q0), normal(v0)), jax.tree.map(scaled, parameters)) for _ in range(count)]


def _perturb(x: Any, direction: Any, by: float) -> Any:
    return jax.tree.map(lambda a, b: jnp.asarray(np.asarray(a) + by * np.asarray(b), a.dtype), x, direction)


def _inner(a: Any, b: Any) -> float:
    return sum(float(np.vdot(x, y)) for x, y in zip(*map(jax.tree.leaves, (a, b)), strict=True))


def derivatives(
    made: RunRecord, problem: Problem, run: Trajectory, changes: dict[str, Any], noise: float, count: int
) -> tuple[bool | None, dict[str, Any]]:
    """Compares the derivative of a random combination of the final state with central differences.

    **Returns:** whether they agree, None where differences cannot tell, and what was compared.
    """
    rng = np.random.default_rng(0)  # so that a report can be repeated
    # Parameters of redundant rows, such as the lengths of a parallelogram, cannot be changed one by one.
    free = int(run.rank_min) == len(run.row_names)
    parameters, rest = eqx.partition(problem.system, eqx.is_inexact_array if free else lambda _: False)
    weights = [jnp.asarray(rng.normal(size=x.shape[1:]), x.dtype) for x in (run.q, run.v)]
    x0 = ((made.q0, made.v0), parameters)

    def end(x: Any) -> Array:
        (q0, v0), parameters = x
        system = eqx.combine(parameters, rest)
        again = made.again(system, q0=q0, v0=v0, ts=2, start_tolerance=jnp.inf, **changes)
        return weights[0] @ again.q_end + weights[1] @ again.v_end

    along = _directions(x0, rng, count)
    if isinstance(made.by.options["adjoint"], dfx.ForwardMode):
        exact = [float(eqx.filter_jvp(end, (x0,), (d,))[1]) for d in along]
    else:
        gradient = eqx.filter_grad(end)(x0)
        exact = [_inner(gradient, d) for d in along]
    differences, doubts = zip(*(_difference(end, x0, d, noise) for d in along), strict=True)
    scale = max(np.abs(exact).max(), np.abs(differences).max())
    apart = [abs(a - b) for a, b in zip(exact, differences, strict=True)]
    verdicts = [
        None if doubt > _TOLD * scale else a <= max(doubt, _EXACT * scale)
        for a, doubt in zip(apart, doubts, strict=True)
    ]
    told = {
        "of": "a random combination of the final coordinates and velocities",
        "by": "the start and "
        + ("all parameters" if free else "no parameters, since constraint rows are redundant"),
        "directions": count,
        "derivatives": exact,
        "differences": list(differences),
        "apart": apart,
        "differences_are_uncertain_by": list(doubts),
        "largest_relative": max(apart) / scale if scale else 0.0,
    }
    return False if False in verdicts else None if None in verdicts else True, told


def _difference(end: Any, x: Any, direction: Any, noise: float) -> tuple[float, float]:
    """The derivative along a direction by differences of fourth order, and how uncertain it is."""
    near, far = (
        (float(end(_perturb(x, direction, s))) - float(end(_perturb(x, direction, -s))))
        for s in (_STEP, 2 * _STEP)
    )
    of_second, of_fourth = near / (2 * _STEP), (8 * near - far) / (12 * _STEP)
    return of_fourth, abs(of_fourth - of_second) + noise / _STEP
