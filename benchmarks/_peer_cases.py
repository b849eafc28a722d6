"""The benchmark cases: one mechanism for every program, and what each one's result is compared with."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from _peer_mechanisms import GROUND, SQUEEZER_ANGLES, Mechanism, rods, squeezer
from _peer_scara import ScaraScript

import ukjax as uk
from ukjax._cli._benchmark import _references

Array = np.ndarray


class Case(NamedTuple):
    """A mechanism, run from its start.

    - `problem`: as ukjax has it.
    - `mechanism`: as the others have it; none if they cannot state it.
    - `expected`: what is compared, at the end.
    - `tips`: the same from ukjax's coordinates, from the hinges' angles, and from absolute coordinates in the bodies'
      order.
    - `unit`: of these.
    - `floor`: how well `expected` is known.
    - `scale`: the steps the field takes on four-bars, times this.
    """

    problem: uk.Problem
    mechanism: Mechanism | None
    expected: Array
    tips: tuple[Callable[[Array], Array], Callable[[Array], Array], Callable[[Array], Array]]
    unit: str = "m"
    floor: float = 1e-12
    scale: float = 1.0

    @property
    def t1(self) -> float:
        """The end [s]."""
        return float(self.problem.t1)

    def speeds(self, size: int) -> Array:
        """What the members of a batch multiply their rates with; all move alike where time gives the motion."""
        return np.ones(size) if self.mechanism is None else np.linspace(-1, 1, size)

    def moving(self) -> tuple[Mechanism | None, Array]:
        """The linkage with its links turning at 1 rad/s, and ukjax's v of that; batches scale it; else the start."""
        if not hasattr(self.problem.system, "state"):
            return self.mechanism, np.asarray(self.problem.v0)
        signs = (1.0 if body.parent == GROUND else -1.0 for body in self.mechanism.bodies)
        bodies = (body._replace(rate=sign) for body, sign in zip(self.mechanism.bodies, signs, strict=True))
        state: Any = self.problem.system
        v = state.state(self.mechanism.bodies[0].angle, 1.0)[1]
        return self.mechanism._replace(bodies=tuple(bodies)), np.asarray(v)


class Single(NamedTuple):
    """A way to run a case.

    - `program`, `setting`: who and how.
    - `make`: prepares it and gives a function of nothing that runs it once and returns the last state.
    - `error`, `drift`: of that state, against `Case.expected`, and of loops or rows [m].
    """

    program: str
    setting: str
    make: Callable[[], Callable[[], Any]]
    error: Callable[[Any], float]
    drift: Callable[[Any], float]


class Batch(NamedTuple):
    """A way to run many members of a case: from the same posture, each with a speed of its own.

    - `program`, `setting`: who and how; the error is that of the `Single` of the same names.
    - `h`, `steps`: of a member [s].
    - `make`: as `Single`'s.
    - `cores`: how many it may use.
    """

    program: str
    setting: str
    h: float
    steps: int
    make: Callable[[], Callable[[], Any]]
    cores: int = 1


def error(case: Case, which: int) -> Callable[[Any], float]:
    """The largest difference from what is expected; `which` of `Case.tips` reads the state."""

    def of(state: Any) -> float:
        found = case.tips[which](np.asarray(state))
        return float(np.max(np.abs(found - case.expected))) if np.all(np.isfinite(found)) else float("nan")

    return of


def _direction(index: int) -> Callable[[Array], Array]:
    return lambda q: np.array([np.cos(q[index]), np.sin(q[index])])


def _squeezer_angles(q: Array) -> Array:
    """The seven from absolute coordinates of K1, K2, K3, K5, K4, K7, K6."""
    K1, K2, K3, K5, K4, K7, K6 = q[2::3]
    return np.array([K1, K2 - K1, K3, K4 - K5, K5, K6 - K7, K7])


_ROD_TIPS = (_direction(2), _direction(0), _direction(2))


def _four_bars(n: int) -> Case:
    expected = _references.four_bars(np.array([10.0]), n)[0]
    return Case(uk.models.four_bars(n), rods("four_bars", n), expected, _ROD_TIPS)


def _parallelogram() -> Case:
    expected = _references.parallelogram(np.array([20.0]))[0]
    return Case(uk.models.parallelogram(), rods("parallelogram"), expected, _ROD_TIPS)


def _andrews() -> Case:
    tips = (np.array, lambda q: q[list(SQUEEZER_ANGLES)], _squeezer_angles)
    expected = np.array(_references.ANDREWS_END)
    return Case(uk.models.andrews(), squeezer(), expected, tips, "rad", 2e-9, 5e-3)


def _scara() -> Case:
    problem = uk.models.scara(exact_start=True)
    expected = ScaraScript(problem, 0.0).posture(float(problem.t1))
    return Case(problem, None, expected, (np.array, np.array, np.array), "rad")


CASES: dict[str, Callable[[], Case]] = {
    "four_bars_1": lambda: _four_bars(1),
    "four_bars_10": lambda: _four_bars(10),
    "four_bars_40": lambda: _four_bars(40),
    "parallelogram": _parallelogram,
    "andrews": _andrews,
    "scara": _scara,
}


def steps_of(case: Case, sizes: Iterable[float]) -> list[tuple[float, int]]:
    """Steps near these sizes, times the case's scale, that end at its end; and how many."""
    counts = [round(case.t1 / (size * case.scale)) for size in sizes]
    return [(case.t1 / count, count) for count in counts]


def member_steps(size: int, rate: float, most: int = 1000) -> int:
    """How many steps of each member take about a third of a second, at so many steps a second in all."""
    return int(np.clip(rate / 3 / size, 5, most))
