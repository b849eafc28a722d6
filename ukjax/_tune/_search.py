"""The search: a coarse scan of starts, then steps of any Optax optimizer, each shortened until it may be taken.

The least loss often lies close to where an explicit step becomes unstable and the loss explodes. So a step that
leads to a loss that is not finite, or more than twice the one before, is halved until it does not; and if the
optimizer's memory points uphill, it is cleared. No step changes a gain by more than a factor e.

Where steps no longer help though the gradient is not small, points around the best are tried: near singular
positions a loss is too rough for its gradient to lead to the least. At last, gains of several entries, such as one
per row, begin to move apart; until then they change by one factor.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from .._compiler import compile_small
from .._misc._errors import InputError
from .._misc._jax_programs import fingerprint, trace_program
from .._misc._types import as_jax
from ._gains import scatter_points
from ._objective import Objective, loss_and_gradient, losses

_HALVINGS = 10  # of a step, before it is given up
_RISE = float(np.log(2.0))  # of log(loss) that a step may bring
_LONGEST = 1.0  # change of a log(gain) by a step: a factor e
_SCANNED = 1e-1, 1e4  # the gains between which starts are tried
_AROUND = (
    0.7  # how far from the best, in log(gain), points are tried where steps no longer help: a factor two
)
_FINER = 4  # times as many points as starts are tried there, in as many parts, until one is better
_BATCH = 32  # points tried at once
_ROUNDS = 8  # of starts, until one is finite
_BETTER = 0.1  # by which log(loss) is less at such a point for the search to go on there: less is luck on a rough loss
_IN_VAIN = 2  # rounds of points around the best, of which none was better, after which there is none
_FLAT, _ROUGH = (
    1e-2,
    1e-1,
)  # slopes of log(loss): below the first it is a minimum, above the second it may be rough
_FORWARD_UP_TO = 32  # gains, for which forward mode computes all derivatives in one run


class Point(NamedTuple):
    """x = log(gains), log(loss) there, its gradient, and the evaluations of the runs (steps, where unknown)."""

    x: np.ndarray
    value: float
    gradient: np.ndarray
    evaluations: int

    @property
    def finite(self) -> bool:
        return bool(np.isfinite(self.value) and np.all(np.isfinite(self.gradient)))


class Search(NamedTuple):
    """All that the search knows after an iteration: what a checkpoint holds."""

    points: tuple[Point, ...]  # one an iteration
    memory: Any  # the optimizer's
    stalled: int = 0  # iterations since the last improvement
    scans: int = 0  # scans around the best since then
    apart: bool = False  # whether entries of one gain move apart already
    begun: int = 0  # how many points there were when they began to

    @property
    def best(self) -> Point:
        return min(self.points, key=lambda point: point.value)


def evaluate(objective: Objective, x: np.ndarray) -> Point:
    """The objective at a point."""
    value, gradient, evaluations = loss_and_gradient(objective, jnp.asarray(x), len(x) <= _FORWARD_UP_TO)
    return Point(np.asarray(x), float(value), np.asarray(gradient), int(evaluations))


def scan(objective: Objective, x: np.ndarray) -> np.ndarray:
    """log(loss) at many points, in batches of one size; infinite where a run fails."""
    size = min(_BATCH, len(x))
    padded = np.concatenate([x, np.repeat(x[-1:], -len(x) % size, axis=0)])
    parts = [
        np.asarray(losses(objective, jnp.asarray(part))) for part in np.split(padded, len(padded) // size)
    ]
    values = np.concatenate(parts)[: len(x)]
    return np.where(np.isnan(values), np.inf, values)


class Stepper:
    """Steps of an Optax optimizer on an objective, and scans.

    **Arguments:**

    - `objective`: the function.
    - `optimizer`: the optimizer, of x.
    - `starts`: how many points a scan tries; 0 for none.
    """

    def __init__(self, objective: Objective, optimizer: optax.GradientTransformation, starts: int):
        self.objective, self.optimizer, self.starts = objective, optimizer, starts
        self.alike = objective.space.alike
        self._begin, self._update = compile_small(optimizer.init), compile_small(optimizer.update)

    def _directions(self, apart: bool) -> np.ndarray:
        return np.eye(len(self.alike)) if apart else self.alike

    def memory(self, apart: bool) -> Any:
        """The optimizer's state before its first step."""
        with jax.numpy_dtype_promotion("standard"):  # Optax mixes kinds of integers
            return self._begin(as_jax(np.zeros(self._directions(apart).shape[1])))

    def anywhere(self, given: Point) -> Search:
        """The point given and, if one of a scan of the whole range is better, the best of those."""
        points = [given]
        for i in range(_ROUNDS if self.starts else 0):
            unit = scatter_points(self.starts, self.alike.shape[1], i * self.starts)
            x = np.log(_SCANNED[0] * (_SCANNED[1] / _SCANNED[0]) ** unit) @ self.alike.T
            values = scan(self.objective, x)
            if values.min() < given.value or not given.finite:
                points = [given, evaluate(self.objective, x[np.argmin(values)])]
            if points[-1].finite:
                break
        return Search(tuple(points), self.memory(False))

    def nearby(self, search: Search, tolerance: float) -> Search:
        """The search moved to a better point around the best one, if a scan finds one."""
        best, along = search.best, self._directions(search.apart)
        count = _FINER * self.starts
        first = count * (len(search.points) + search.scans)
        x = best.x + _AROUND * (2 * scatter_points(count, along.shape[1], first) - 1) @ along.T
        for part in np.split(x, _FINER):
            values = scan(self.objective, part)
            if values.min() < best.value - max(tolerance, _BETTER):
                there = evaluate(self.objective, part[np.argmin(values)])
                if there.finite:
                    return search._replace(
                        points=(*search.points, there), memory=self.memory(search.apart), stalled=0, scans=0
                    )
        return search._replace(scans=search.scans + 1)

    def slope(self, search: Search) -> float:
        """The norm of the gradient at the best point."""
        return float(np.linalg.norm(search.best.gradient @ self._directions(search.apart)))

    def _call_optimizer(self, gradient: Array, memory: Any, z: Array) -> tuple[Any, Any]:
        """The optimizer's step and state."""
        try:
            with jax.numpy_dtype_promotion("standard"):  # Optax mixes kinds of integers
                return self._update(gradient, memory, z)
        except TypeError as error:
            raise InputError(
                "the optimizer needs more than gains and gradient; tune shortens steps itself, so give for "
                "instance optax.lbfgs(1.0, linesearch=None) or optax.adam(0.1)."
            ) from error

    def fingerprint(self) -> str:
        """A digest of what is made small, how, and from where, to tell a checkpoint of another search."""
        start = self.objective.space.start

        def program(x: Array) -> list[Array]:
            z = jnp.zeros(self.alike.shape[1])
            return [losses(self.objective, x[None]), self._call_optimizer(z, self.memory(False), z)[0]]

        return fingerprint(trace_program(program, start), start)

    def _step(self, point: Point, memory: Any, apart: bool) -> tuple[np.ndarray, Any]:
        """The optimizer's step, in the mean of the entries of each gain or in all entries."""
        along = self._directions(apart)
        z, gradient = (point.x @ along) / along.sum(axis=0), point.gradient @ along
        step, memory = self._call_optimizer(jnp.asarray(gradient), memory, jnp.asarray(z))
        step = along @ np.asarray(step)
        return step * min(1.0, _LONGEST / max(np.abs(step).max(), 1e-300)), memory

    def step(self, search: Search) -> Search:
        """One iteration."""
        here, apart = search.points[-1], search.apart
        direction, memory = self._step(here, search.memory, apart)
        if not np.all(np.isfinite(direction)) or direction @ here.gradient >= 0:
            direction, memory = self._step(here, self.memory(apart), apart)
        for halvings in range(_HALVINGS):
            there = evaluate(self.objective, here.x + direction * 0.5**halvings)
            if there.finite and there.value <= here.value + _RISE:
                return search._replace(points=(*search.points, there), memory=memory)
        return search._replace(points=(*search.points, here), memory=self.memory(apart))

    def spread(self, search: Search) -> Search:
        """The search from its best point on with the entries of one gain apart."""
        points = (*search.points, search.best)
        return Search(points, self.memory(True), apart=True, begun=len(points) - 1)


def run(
    stepper: Stepper,
    search: Search,
    limits: tuple[int, float, int],
    after: Callable[[Search], None],
) -> tuple[Search, str]:
    """Iterates until the loss stalls, the iterations are used up, or Ctrl-C.

    **Returns:** what is known, and why it stopped: `"converged"`, `"iterations"` or `"interrupted"`.
    """
    iterations, tolerance, patience = limits
    several = stepper.alike.shape[0] > stepper.alike.shape[1]
    try:
        while True:
            spent = len(search.points) - search.begun > iterations
            slope = stepper.slope(search)
            scans = _IN_VAIN if stepper.starts and slope > _ROUGH else 0
            if not spent and search.stalled < patience and not slope < _FLAT:
                before = search.best.value
                search = stepper.step(search)
                better = search.best.value < before - tolerance
                search = search._replace(stalled=0 if better else search.stalled + 1)
            elif not spent and search.scans < scans:
                search = stepper.nearby(search, tolerance)
            elif several and not search.apart:
                search = stepper.spread(search)
            else:
                return search, "iterations" if spent else "converged"
            after(search)
    except KeyboardInterrupt:
        return search, "interrupted"
