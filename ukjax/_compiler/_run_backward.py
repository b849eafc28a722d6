"""Cotangents of whole integrations as one LLVM function: back through the steps taken, whose sizes count as constants.

As many runs as a vector has lanes go forward together, and then back.
"""

from typing import final

from ._foreign import dimension
from ._llvm_text import Writer
from ._program import Program
from ._routine import texts
from ._run_lanes import RunLanes
from ._run_layout import GIVEN, OPERANDS, RunLayout, strides
from ._run_step_back import StepBack
from ._run_steps import RunSteps
from ._run_tape import Tape


@final
class Backward:
    """The text of the cotangents of an integration.

    Its function `pull` takes rows and a tape to work on, cotangents (runs, count) to set, of the parameters of the field
    and of the projection, and of the state at the start; how many runs and saved states there are; the operands of the
    integration; and the cotangents of the saved states (runs, saves n) and of those at the end (runs, n).

    - `tape`: what is kept of the steps.

    **Arguments:**

    - `layout`: of what is integrated.
    - `field`, `projection`: as of `StepBack`.
    - `most`: the most steps of a run.
    """

    def __init__(self, layout: RunLayout, field: Program, projection: Program | None, most: int):
        self._at, self._rows, self._number = layout, layout.rows, layout.kind.number
        self._steps, self._lanes, self.tape = RunSteps(layout), RunLanes(layout), Tape(layout, most)
        self._back, self._alive = StepBack(layout, self.tape, field, projection), layout.rows.new(1)

    def text(self) -> str:
        """All functions."""
        called = [self._steps.functions(), self._lanes.beginning(), self._back.functions()]
        functions = [*self._rows.functions(), *(x for each in called for x in each)]
        routines = texts([*self._at.routines, *self._back.routines], self._at.kind)
        return "\n".join([*functions, routines, self._pull()])

    @staticmethod
    def call() -> str:
        """The instructions by which a foreign function of XLA calls it: results are cotangents, rows and the tape."""
        count, times = len(OPERANDS), OPERANDS.index("times")
        sizes = [dimension(f"in{count + 1}", 0, "runs"), dimension(f"in{times}", 1, "saves")]
        results = ", ".join(f"ptr %out{i}" for i in (3, 4, 0, 1, 2))
        given = f"{results}, i64 %runs, i64 %saves, {GIVEN}, ptr %in{count}, ptr %in{count + 1}"
        return "\n".join([*sizes, *strides(), f"  call void @pull({given})"])

    def _pull(self) -> str:
        w, width = Writer(), self._at.kind.width
        for routine in [*self._at.routines, *self._back.routines]:
            routine.begin(w)
        for name, count in {
            "run": width,
            "steps": width,
            "left": width,
            "group": 1,
            "calls": 1,
            "most": 1,
        }.items():
            w.do(f"%{name} = alloca i64, i64 {count}")
        w.store("i64", 0, "%group")
        with w.repeat() as groups:
            self._begin(w)
            self._forward(w)
            with w.loop(width) as lane:
                self._turn(w, lane)
            self.tape.backwards(w, w.load("i64", "%most"), self._back.mark, self._back.back)
            with w.loop(width) as lane:
                for to, (row, count) in zip(
                    ("field", "projection", "state"), self._back.outputs, strict=True
                ):
                    place = self._of_run(w, f"%{to}", w.load("i64", w.at("i64", "%run", lane)), count)
                    w.do(
                        f"call void @give(ptr {place}, ptr {self._rows.place(w, row)}, i64 {lane}, i64 {count})"
                    )
            groups.append(w.apply("icmp ult", "i64", w.increased("%group", width), "%runs"))
        given = (
            f"ptr %rows, ptr %tape, ptr %field, ptr %projection, ptr %state, i64 %runs, i64 %saves, {GIVEN}"
        )
        return w.function("pull", f"{given}, ptr %ofsaved, ptr %ofend", internal=False)

    def _of_run(self, w: Writer, array: str, run: str, count: int) -> str:
        return w.at(self._number, array, w.apply("mul", "i64", run, count))

    def _begin(self, w: Writer) -> None:
        """Gives the lanes the next runs. The last lanes end with the last run: some runs are made twice."""
        at, rows = self._at, self._rows
        group, last = w.load("i64", "%group"), w.apply("sub", "i64", "%runs", at.kind.width)
        first = w(f"select i1 {w.apply('icmp ult', 'i64', group, last)}, i64 {group}, i64 {last}")
        with w.loop(at.kind.width) as lane:
            run = w.apply("add", "i64", first, lane)
            w.store("i64", run, w.at("i64", "%run", lane))
            w.store("i64", 0, w.at("i64", "%steps", lane))
            w.do(f"call void @fill(ptr %rows, i64 {lane}, i64 {run}, {GIVEN})")
            of = w.at(self._number, "%ofend", w.apply("mul", "i64", run, at.motion.size))
            end = rows.place(w, self._back.outputs[2][0])
            w.do(f"call void @fetch(ptr {end}, ptr {of}, i64 {lane}, i64 {at.motion.size})")
        rows.store(w, 1.0, self._alive)
        self._back.begin(w)

    def _forward(self, w: Writer) -> None:
        """The runs, as `WholeRun` makes them, but that steps are kept in place of saved states."""
        at, rows = self._at, self._rows
        with w.repeat() as going:
            self._steps.attempt(w)
            with w.loop(at.kind.width) as lane:
                moved = (rows.is_marked(w, row, lane) for row in (at.accepts, self._alive))
                with w.when(w.apply("and", "i1", *moved)):
                    self.tape.keep(w, lane, w.at("i64", "%steps", lane))
            self._steps.move_on(w)
            rows.store(w, rows.product(w, rows.load(w, self._alive), at.goes_on), self._alive)
            going.append(rows.any(w, self._alive))
        w.store("i64", 0, "%most")

    def _turn(self, w: Writer, lane: str) -> None:
        """How many states a lane saved, and the most steps of any."""
        steps, left = w.load("i64", w.at("i64", "%steps", lane)), w.at("i64", "%left", lane)
        w.store("i64", 0, left)
        with w.when(w.apply("icmp ugt", "i64", steps, w.load("i64", "%most"))):
            w.store("i64", steps, "%most")
        with w.when(w.apply("icmp ugt", "i64", steps, 0)), w.loop("%saves") as k:
            last = self._back.end_of(w, w.apply("sub", "i64", steps, 1), lane)
            with w.when(w.apply("fcmp ole", self._number, self._back.time(w, lane, k), last)):
                w.store("i64", w.apply("add", "i64", k, 1), left)
