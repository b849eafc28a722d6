"""What a whole integration is made of, and where in memory it keeps what."""

from typing import NamedTuple, final

import numpy as np

from ._expressions import reachable
from ._foreign import dimension
from ._machine_code import Kind
from ._program import Program
from ._routine import RegisterRows, Routine

OPERANDS = ("field", "projection", "control", "start", "times", "state")
"""Arrays (runs, count), or (1, count) for all runs: the parameters of three programs; the direction of time, 1 or -1, t1,
the time from which on a step ends at t1, t0, the first t_next and what the control keeps; the times to save at; the
state. Times are multiplied by their direction, so that they increase."""

COUNTED = ("t", "result", "steps", "accepted", "saved")
"""What stands before the state at the end of a run."""


GIVEN = ", ".join(f"ptr %in{i}, i64 %stride{i}" for i in range(len(OPERANDS)))
"""The parameters of functions that take the operands: arrays, and how far apart the runs are in each."""


def strides() -> list[str]:
    """Instructions of a foreign function of XLA: how far apart the runs are in each operand."""
    lines = list[str]()
    for i in range(len(OPERANDS)):
        lines += [dimension(f"in{i}", axis, f"size{i}.{axis}") for axis in (0, 1)]
        lines += [f"  %shared{i} = icmp eq i64 %size{i}.0, 1"]
        lines += [f"  %stride{i} = select i1 %shared{i}, i64 0, i64 %size{i}.1"]
    return lines


class MotionPrograms(NamedTuple):
    """What is integrated.

    - `field`: of parameters, t, the state, and how close to singular the rows are where the step starts: the state's
      derivative.
    - `projection`: of parameters, t, the state, its error and multipliers: the state, multipliers, nearness (infinite
      where the rows are still off), whether to iterate on, and the error; if the steps are projected.
    - `multipliers`: how many there are.
    - `size`: of the state.
    - `estimates`: whether the error is needed: else the projection does not give it.
    """

    field: Program
    projection: Program | None
    multipliers: int
    size: int
    estimates: bool


class Method(NamedTuple):
    """An explicit Runge-Kutta method of s stages.

    - `a`: weights of the stages (s, s).
    - `c`: times of the stages (s,).
    - `ends`: weights of the solution and of the error estimate (2, s).
    - `keeps_first`: whether the last stage of a step is the first of the next.
    - `weights`: the program of t, t_next and a time between them: how the state there is made of those at both and of the
      stages.
    """

    a: np.ndarray
    c: np.ndarray
    ends: np.ndarray
    keeps_first: bool
    weights: Program


class Control(NamedTuple):
    """A step-size controller.

    - `numbers`: how many parameters it has.
    - `kept`: how many numbers it keeps between steps.
    - `most`: the most steps it lets a run take.
    - `step`: the program of its parameters, the direction of time, t1, the time from which on a step ends at t1, t,
      t_next, what is kept, nearness at the start, steps, accepted ones, result, the state before and after a step, its
      error and nearness. It gives whether the step is accepted, whether the run goes on, and t to result anew.
    """

    numbers: int
    kept: int
    most: int
    step: Program

    def reads_error(self, size: int) -> bool:
        """Whether the program needs the error of a step."""
        count = sum(self.step.counts)
        read = (x.args[0] for x in reachable(self.step.outputs) if x.op == "input")
        return any(count - 1 - size <= i < count - 1 for i in read)


@final
class RunLayout:
    """The rows of an integration: of its programs, of the lanes' states, and to work on.

    **Arguments:**

    - `motion`, `method`, `control`: what is integrated, and how.
    - `kind`: of the vectors.
    """

    def __init__(self, motion: MotionPrograms, method: Method, control: Control, kind: Kind):
        self.motion, self.method, self.control, self.kind = motion, method, control, kind
        n, stages, mu = motion.size, len(method.c), motion.multipliers
        self.rows = rows = RegisterRows(kind)
        self.field, self.step = (
            Routine("field", motion.field.native, rows),
            Routine("step", control.step.native, rows),
        )
        self.weigh = Routine("weigh", method.weights.native, rows)
        self.project = Routine("project", motion.projection.native, rows) if motion.projection else None
        of_projection = sum(motion.projection.counts) - 1 - 2 * n - mu if motion.projection else 0
        self.numbers = sum(motion.field.counts) - 2 - n, of_projection, control.numbers
        self.field_t = self.field.inputs + self.numbers[0]
        self.field_near = self.field_t + 1 + n
        # A lane's state stands in the inputs of the control's program.
        self.direction = self.step.inputs + control.numbers
        self.t, self.t_next, self.kept = (self.direction + i for i in (3, 4, 5))
        self.nearness = self.kept + control.kept
        self.steps, self.accepted, self.result, self.y = (self.nearness + i for i in (1, 2, 3, 4))
        self.y1, self.error, self.near = (self.y + i * n for i in (1, 2, 3))
        self.of_projection = n + mu + 2 + n * motion.estimates
        self.controlled = rows.new(8 + control.kept)  # the outputs of that program
        self.stages, self.projected = rows.new(stages * n), rows.new(self.of_projection)
        self.scratch = rows.new(stages + 2)
        self.new, self.due, self.h = (rows.new(1) for _ in range(3))

    @property
    def routines(self) -> list[Routine]:
        """All programs."""
        return [self.field, self.step, self.weigh, *([self.project] if self.project else [])]

    @property
    def accepts(self) -> int:
        """The row that marks the lanes whose step was accepted."""
        return self.controlled

    @property
    def goes_on(self) -> int:
        """The row that marks the lanes whose run has not ended."""
        return self.controlled + 1
