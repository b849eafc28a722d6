"""One run as a function of LLVM: what a thread of a GPU computes, by the steps of `_whole_run`.

Its stages, its calls of the projection and its saved times are loops, so that each program is there once. Saved states
and ends have the runs last: threads side by side read and write numbers side by side.
"""

from typing import final

import numpy as np

from .._llvm_text import Writer
from .._machine_code import Kind
from .._routine import Again
from .._run_layout import COUNTED, OPERANDS, Control, Method, MotionPrograms
from ._memory import Called, LocalArray, entry, table
from ._texts import KernelText, parameters

_FIELD, _PROJECTION, _CONTROL, _START, _TIMES, _STATE = range(len(OPERANDS))
_SAVED, _ENDS = "%out0", "%out1"
_DIRECTION, _T, _T_NEXT, _KEPT = 0, 3, 4, 5  # among the inputs of the control's program


@final
class Thread:
    """One run: its results are saved states (saves, n, runs) and ends (5 + n, runs), its operands those of `OPERANDS`.

    **Arguments:**

    - `motion`, `method`, `control`: what is integrated, and how.
    - `kind`: of all numbers.
    """

    def __init__(self, motion: MotionPrograms, method: Method, control: Control, kind: Kind):
        self._motion, self._method, self._control, self._kind = motion, method, control, kind
        n, mu, stages = motion.size, motion.multipliers, len(method.c)
        self._field = Called("field", motion.field.outputs, kind, sum(motion.field.counts) - 2 - n)
        self._step = Called("step", control.step.outputs, kind, control.numbers)
        self._weigh = Called("weigh", method.weights.outputs, kind, 0)
        self._project = None
        if motion.projection is not None:
            own = sum(motion.projection.counts) - 1 - 2 * n - mu
            self._project = Called("project", motion.projection.outputs, kind, own)
        self._w = w = Writer()
        local = lambda name, size: LocalArray(w, kind, name, size)
        # The inputs of the control's program: a run keeps its state there.
        self._nearness = _KEPT + control.kept
        self._steps, self._y = self._nearness + 1, self._nearness + 4
        self._y1, self._error, self._near = (self._y + i * n for i in (1, 2, 3))
        self._lane, self._controlled = local("lane", self._near + 1), local("controlled", 8 + control.kept)
        self._stages, self._sums = local("stages", stages * n), local("sums", n)
        self._point, self._times = local("point", 2 + n), local("times", 3)
        self._weights, self._mixed = local("weights", 2 + stages), local("mixed", 2 + stages)
        self._ahead, self._projected = local("ahead", 1 + 2 * n + mu), local("projected", 2 * n + mu + 2)
        for name in ("count", "calls", "new"):
            w.do(f"%{name} = alloca i64")
        w.do("%due = alloca i1")

    def text(self) -> KernelText:
        """All of it."""
        method, kind = self._method, self._kind
        weights = np.vstack([method.a, method.ends])
        tables = [table("stage.weights", kind, weights.ravel()), table("stage.times", kind, method.c)]
        texts = [*tables, *(x.text() for x in self._programs), "!0 = !{}"]
        text = KernelText("", self.called(), ("runs", "saves"), len(OPERANDS), 2)
        return text._replace(functions="\n".join([*texts, self._run(parameters(text))]))

    @property
    def _programs(self) -> list[Called]:
        return [x for x in (self._field, self._step, self._weigh, self._project) if x]

    def called(self) -> set[str]:
        """The functions of C that it calls."""
        return {name for x in self._programs for name in x.called()}

    def _apply(self, operation: str, x: str, y: str) -> str:
        return self._w.apply(operation, self._kind.number, x, y)

    def _plus(self, x: str, y: str, z: str) -> str:
        """x + y z."""
        return self._apply("fadd contract", x, self._apply("fmul contract", y, z))

    def _chosen(self, which: str, x: str, y: str) -> str:
        return self._w(f"select i1 {which}, {self._kind.number} {x}, {self._kind.number} {y}")

    def _is_marked(self, x: str) -> str:
        return self._apply("fcmp ogt", x, self._kind.literal(0.5))

    def _run(self, given: str) -> str:
        w = self._w
        for i in range(len(OPERANDS)):
            shared = w.apply("icmp eq", "i64", f"%apart{i}", 1)
            w.do(f"%first{i} = select i1 {shared}, i64 0, i64 %run")
            w.do(f"%own{i} = getelementptr {self._kind.number}, ptr %in{i}, i64 %first{i}")
        self._begin()
        if self._project:
            self._start_near(self._project)
        with w.repeat() as going:
            self._take()
            self._step.run(w, f"%own{_CONTROL}", f"%apart{_CONTROL}", self._lane.name, self._controlled.name)
            accepted, goes_on = (self._is_marked(self._controlled.load(i)) for i in (0, 1))
            with w.when(accepted):
                self._save()
                self._accept()
            self._lane.fill(_T, self._controlled.all(2, 6 + self._control.kept))
            going.append(goes_on)
        self._end()
        return w.function("run", given, written_out=True)

    def _operand(self, i: int, j: int | str) -> str:
        """A number of an operand."""
        place = self._w.at(self._kind.number, f"%own{i}", self._w.apply("mul", "i64", f"%apart{i}", j))
        return self._w.load(self._kind.number, place)

    def _begin(self) -> None:
        w, lane = self._w, self._lane
        lane.fill(_DIRECTION, [self._operand(_START, j) for j in range(5 + self._control.kept)])
        lane.fill(self._nearness, [np.inf, 0.0, 0.0, 0.0])
        lane.fill(self._y, [self._operand(_STATE, j) for j in range(self._motion.size)])
        lane.store(self._near, 0.0)
        w.store("i64", 0, "%count")
        w.store("i64", 1, "%new")

    def _start_near(self, project: Called) -> None:
        """How close to singular the run starts."""
        n, m, lane = self._motion.size, self._motion.multipliers, self._lane
        t = self._apply("fmul", lane.load(_T), lane.load(_DIRECTION))
        self._ahead.fill(0, [t, *lane.all(self._y, n), *[0.0] * (n + m)])
        given = f"%own{_PROJECTION}", f"%apart{_PROJECTION}"
        project.run(self._w, *given, self._ahead.name, self._projected.name)
        lane.store(self._nearness, self._projected.load(n + m))

    def _take(self) -> None:
        """One step from t to t_next: its stages, then its end, then its error."""
        w, n, stages = self._w, self._motion.size, len(self._method.c)
        t, t_next = (
            self._apply("fmul", self._lane.load(i), self._lane.load(_DIRECTION)) for i in (_T, _T_NEXT)
        )
        h = self._apply("fsub", t_next, t)
        first = "0"
        if self._method.keeps_first:
            first = w.apply("sub", "i64", "1", w.load("i64", "%new"))
            w.store("i64", 0, "%new")
        passes = w.apply("sub", "i64", stages + 1 + self._motion.estimates, first)
        with w.loop(passes) as k:
            i = w.apply("add", "i64", k, first)
            self._sum(i)
            changes = [self._apply("fmul contract", x, h) for x in self._sums.all(0, n)]
            ends = [
                self._apply("fadd contract", self._lane.load(self._y + r), x) for r, x in enumerate(changes)
            ]
            with w.when(w.apply("icmp ult", "i64", i, stages)):
                self._evaluate(i, t, t_next, h, ends)
            with w.when(w.apply("icmp eq", "i64", i, stages)):
                self._lane.fill(self._y1, ends)
            if self._motion.estimates:
                with w.when(w.apply("icmp ugt", "i64", i, stages)):
                    self._lane.fill(self._error, changes)
        if self._project:
            self._onto_constraints(self._project, t_next)

    def _sum(self, i: str) -> None:
        """The sum of the stages so far, by the weights of a row."""
        w, n, stages = self._w, self._motion.size, len(self._method.c)
        self._sums.fill(0, [0.0] * n)
        row = w.apply("mul", "i64", i, stages)
        fewer = w.apply("icmp ult", "i64", i, stages)
        with w.loop(w(f"select i1 {fewer}, i64 {i}, i64 {stages}")) as j:
            self._add(self._sums, entry(w, self._kind, "stage.weights", w.apply("add", "i64", row, j)), j)

    def _add(self, sums: LocalArray, weight: str, j: str) -> None:
        """Adds a stage times its weight."""
        start = self._w.apply("mul", "i64", j, self._motion.size)
        for r in range(self._motion.size):
            x = self._stages.load(self._w.apply("add", "i64", start, r))
            sums.store(r, self._plus(sums.load(r), x, weight))

    def _evaluate(self, i: str, t: str, t_next: str, h: str, y: list[str]) -> None:
        w, kind = self._w, self._kind
        c = entry(w, kind, "stage.times", i)
        at_end = self._apply("fcmp oeq", c, kind.literal(1.0))
        time = self._chosen(at_end, t_next, self._plus(t, h, c))
        self._point.fill(0, [time, *y, self._lane.load(self._nearness)])
        to = self._stages.place(w.apply("mul", "i64", i, self._motion.size))
        self._field.run(w, f"%own{_FIELD}", f"%apart{_FIELD}", self._point.name, to)

    def _onto_constraints(self, project: Called, t_next: str) -> None:
        """The end of the step on the constraints: again where that brings it nearer."""
        w, lane, found = self._w, self._lane, self._projected
        n, m = self._motion.size, self._motion.multipliers
        given = [*lane.all(self._y1, n), *(lane.all(self._error, n) if self._motion.estimates else [0.0] * n)]
        self._ahead.fill(0, [t_next, *given])
        again = Again(n + m + 1, n, m)
        where = w, f"%own{_PROJECTION}", f"%apart{_PROJECTION}"
        project.repeat(*where, self._ahead, found, "%calls", again)
        lane.fill(self._y1, found.all(0, n))
        lane.store(self._near, found.load(n + m))
        if self._motion.estimates:
            lane.fill(self._error, found.all(n + m + 2, n))

    def _accept(self) -> None:
        n = self._motion.size
        self._lane.fill(self._y, self._lane.all(self._y1, n))
        if self._method.keeps_first:
            last = (len(self._method.c) - 1) * n
            self._stages.fill(0, self._stages.all(last, n))

    def _save(self) -> None:
        """Saves the states at the times to save at that lie in the step."""
        w = self._w
        with w.repeat() as going:
            w.store("i1", "false", "%due")
            count = w.load("i64", "%count")
            with w.when(w.apply("icmp ult", "i64", count, "%saves")):
                t = self._operand(_TIMES, count)
                due = self._apply("fcmp ole", t, self._lane.load(_T_NEXT))
                w.store("i1", due, "%due")
                with w.when(due):
                    self._save_at(t, count)
            going.append(w.load("i1", "%due"))

    def _save_at(self, t: str, count: str) -> None:
        w, n = self._w, self._motion.size
        self._times.fill(0, [*self._lane.all(_T, 2), t])
        self._weigh.run(w, self._times.name, "0", self._times.name, self._weights.name)
        of_y, of_y1 = self._weights.load(0), self._weights.load(1)
        ends = zip(self._lane.all(self._y, n), self._lane.all(self._y1, n), strict=True)
        self._sums.fill(0, [self._plus(self._apply("fmul contract", y, of_y), y1, of_y1) for y, y1 in ends])
        # Copied, since the entries of this array are chosen as the thread runs: those above stay in registers.
        self._mixed.fill(0, self._weights.all(2, len(self._method.c)))
        with w.loop(len(self._method.c)) as j:
            weight = self._apply("fmul", self._mixed.load(j), self._lane.load(_DIRECTION))
            self._add(self._sums, weight, j)
        row = w.apply("mul", "i64", count, n)
        for r in range(n):
            self._write(_SAVED, w.apply("add", "i64", row, r), self._sums.load(r))
        w.increased("%count")

    def _write(self, array: str, row: int | str, value: str) -> None:
        """Sets a number of the run in an array (rows, runs)."""
        place = self._w.apply("add", "i64", self._w.apply("mul", "i64", "%runs", row), "%run")
        self._w.store(self._kind.number, value, self._w.at(self._kind.number, array, place))

    def _end(self) -> None:
        """Writes the end of the run, and the states it did not get to as infinite."""
        w, lane, n, number = self._w, self._lane, self._motion.size, self._kind.number
        count = w.load("i64", "%count")
        # t, and then result, steps and accepted, which the control's program has in another order
        counted = [lane.load(i) for i in (_T, self._steps + 2, self._steps, self._steps + 1)]
        ends = [*counted, w(f"uitofp i64 {count} to {number}"), *lane.all(self._y, n)]
        assert len(ends) == len(COUNTED) + n
        for i, x in enumerate(ends):
            self._write(_ENDS, i, x)
        row = w.apply("mul", "i64", count, n)
        with w.loop(w.apply("mul", "i64", w.apply("sub", "i64", "%saves", count), n)) as k:
            self._write(_SAVED, w.apply("add", "i64", row, k), self._kind.literal(np.inf))
