"""A whole integration as one LLVM function: explicit Runge-Kutta steps, projection, step control, saved times.

Each lane of a vector integrates a run of its own, at its own steps, and takes the next run when one has ended: no run
waits for another. The scalar programs of the field, the projection and the control are called on rows of numbers, one for
each lane (`_routine`).
"""

from typing import final

from ._foreign import dimension
from ._llvm_text import Writer
from ._routine import texts
from ._run_lanes import RunLanes
from ._run_layout import GIVEN, RunLayout, strides
from ._run_steps import RunSteps


@final
class WholeRun:
    """The text of an integration.

    Its function `integrate` takes rows to work on, saved states (runs, saves, n) and ends (runs, 5 + n) to set, how many
    runs and saves there are, and the operands, each with how far apart its runs are.

    **Arguments:**

    - `layout`: of what is integrated.
    - `settled`: whether saved states that lie between steps are projected, as the ends of steps are.
    """

    def __init__(self, layout: RunLayout, settled: bool):
        self._at, self._rows, self._settled = layout, layout.rows, settled
        self._steps, self._lanes = RunSteps(layout), RunLanes(layout)

    def text(self) -> str:
        """All functions."""
        routines = texts(self._at.routines, self._at.kind)
        functions = [*self._rows.functions(), *self._steps.functions(), *self._lanes.functions()]
        return "\n".join([*functions, routines, self._integrate()])

    @staticmethod
    def call() -> str:
        """The instructions by which a foreign function of XLA calls it: results are saved states, ends and rows."""
        sizes = [dimension("out0", axis, name) for axis, name in ((0, "runs"), (1, "saves"))]
        call = f"  call void @integrate(ptr %out2, ptr %out0, ptr %out1, i64 %runs, i64 %saves, {GIVEN})"
        return "\n".join([*sizes, *strides(), call])

    def _integrate(self) -> str:
        w, at = Writer(), self._at
        for routine in at.routines:
            routine.begin(w)
        self._rows.store(w, 0.0, at.new)
        self._lanes.begin(w)
        with w.repeat() as going:
            self._steps.attempt(w)
            self._lanes.save(w, self._steps.settle if self._settled else None)
            self._steps.move_on(w)
            going.append(self._lanes.end(w))
        given = f"ptr %rows, ptr %saved, ptr %ends, i64 %runs, i64 %saves, {GIVEN}"
        return w.function("integrate", given, internal=False)
