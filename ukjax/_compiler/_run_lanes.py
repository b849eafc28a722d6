"""The lanes of a whole integration: how each begins a run, saves its states, and ends it."""

from collections.abc import Callable
from typing import final

import numpy as np

from ._llvm_text import Writer
from ._run_layout import COUNTED, GIVEN, OPERANDS, RunLayout


@final
class RunLanes:
    """Writes what is done for one lane after the other.

    **Arguments:**

    - `layout`: where everything is.
    """

    def __init__(self, layout: RunLayout):
        self._at, self._rows, self._number = layout, layout.rows, layout.kind.number

    def functions(self) -> list[str]:
        """The functions that are called."""
        return [*self.beginning(), self._finish()]

    def beginning(self) -> list[str]:
        """Those of them that begin a run: `fetch` sets numbers of a lane, and `fill` all it starts with."""
        return [self._fetch(), self._fill()]

    def _fetch(self) -> str:
        """Sets the numbers of one lane in rows."""
        w = Writer()
        with w.loop("%count") as k:
            x = w.load(self._number, w.at(self._number, "%of", k))
            w.store(self._number, x, self._in_row(w, "%to", k, "%lane"))
        return w.function("fetch", "ptr %to, ptr %of, i64 %lane, i64 %count")

    def _in_row(self, w: Writer, first: str, k: str, lane: str) -> str:
        return w.at(self._number, w.at(self._at.kind.vector, first, k), lane)

    def _fill(self) -> str:
        """Has a lane begin a run."""
        w, at, rows = Writer(), self._at, self._rows
        programs = zip(OPERANDS, at.numbers, (at.field, at.project, at.step), strict=False)
        parameters = [(name, count, x.inputs) for name, count, x in programs if x]
        others = [("start", 5 + at.control.kept, at.direction), ("state", at.motion.size, at.y)]
        for name, n, to in [*parameters, *others]:
            i = OPERANDS.index(name)
            of = w.at(self._number, f"%in{i}", w.apply("mul", "i64", "%run", f"%stride{i}"))
            w.do(f"call void @fetch(ptr {rows.place(w, to)}, ptr {of}, i64 %lane, i64 {n})")
        begun = {at.nearness: np.inf, at.steps: 0.0, at.accepted: 0.0, at.result: 0.0, at.new: 1.0}
        for row, value in begun.items():
            w.store(self._number, at.kind.literal(value), rows.number(w, row, "%lane"))
        return w.function("fill", f"ptr %rows, i64 %lane, i64 %run, {GIVEN}")

    def _finish(self) -> str:
        """Writes the end of a run, and the states it did not get to as infinite."""
        w, at, n = Writer(), self._at, self._at.motion.size
        end = w.at(self._number, "%ends", w.apply("mul", "i64", "%run", len(COUNTED) + n))
        counted = [w.load(self._number, self._rows.number(w, row, "%lane")) for row in self._counted]
        for i, x in enumerate([*counted, w(f"uitofp i64 %count to {self._number}")]):
            w.store(self._number, x, w.at(self._number, end, i))
        state, y = w.at(self._number, end, len(COUNTED)), self._rows.place(w, at.y)
        with w.loop(n) as k:
            x = w.load(self._number, self._in_row(w, y, k, "%lane"))
            w.store(self._number, x, w.at(self._number, state, k))
        missing = w.apply("mul", "i64", w.apply("sub", "i64", "%saves", "%count"), n)
        first = self._saved(w, "%run", "%count")
        with w.loop(missing) as k:
            w.store(self._number, at.kind.literal(np.inf), w.at(self._number, first, k))
        given = "ptr %rows, ptr %saved, ptr %ends, i64 %saves, i64 %lane, i64 %run, i64 %count"
        return w.function("finish", given)

    @property
    def _counted(self) -> tuple[int, ...]:
        return self._at.t, self._at.result, self._at.steps, self._at.accepted

    def _saved(self, w: Writer, run: str, count: str) -> str:
        """Where a state is saved."""
        before = w.apply("add", "i64", w.apply("mul", "i64", run, "%saves"), count)
        return w.at(self._number, "%saved", w.apply("mul", "i64", before, self._at.motion.size))

    def begin(self, w: Writer) -> None:
        """Gives each lane its first run."""
        width = self._at.kind.width
        for name, count in (("run", width), ("count", width), ("next", 1), ("active", 1), ("calls", 1)):
            w.do(f"%{name} = alloca i64, i64 {count}")
        w.store("i64", 0, "%next")
        w.store("i64", 0, "%active")
        with w.loop(width) as lane:
            self._take_next(w, lane)

    def _take_next(self, w: Writer, lane: str) -> None:
        """Has a lane begin the next run, if there is one left; else its run is -1."""
        run, own = w.load("i64", "%next"), w.at("i64", "%run", lane)
        w.store("i64", -1, own)
        with w.when(w.apply("icmp ult", "i64", run, "%runs")):
            w.store("i64", run, own)
            w.store("i64", 0, w.at("i64", "%count", lane))
            w.do(f"call void @fill(ptr %rows, i64 {lane}, i64 {run}, {GIVEN})")
            w.increased("%next")
            w.increased("%active")

    def _known(self, w: Writer, lane: str) -> tuple[str, str, str]:
        """The run of a lane, how many states it has saved, and whether it has a run."""
        run, count = (w.load("i64", w.at("i64", f"%{name}", lane)) for name in ("run", "count"))
        return run, count, w.apply("icmp sge", "i64", run, 0)

    def end(self, w: Writer) -> str:
        """Ends runs that do not go on, whose lanes take others; whether there is any left."""
        with w.loop(self._at.kind.width) as lane:
            run, count, active = self._known(w, lane)
            ended = w.apply("xor", "i1", self._rows.is_marked(w, self._at.goes_on, lane), "true")
            with w.when(w.apply("and", "i1", active, ended)):
                given = f"i64 %saves, i64 {lane}, i64 {run}, i64 {count}"
                w.do(f"call void @finish(ptr %rows, ptr %saved, ptr %ends, {given})")
                w.increased("%active", -1)
                self._take_next(w, lane)
        return w.apply("icmp ne", "i64", w.load("i64", "%active"), 0)

    def save(self, w: Writer, settle: Callable[[Writer, int], None] | None = None) -> None:
        """Saves the states at the times to save at that lie in an accepted step: of each lane one at a time.

        **Arguments:**

        - `w`: writes it.
        - `settle`: projects states, given the row of their times; None to save them as they are.
        """
        at, rows = self._at, self._rows
        rows.copy(w, at.weigh.inputs, at.t, 2)
        with w.repeat() as going:
            rows.store(w, 0.0, at.due)
            with w.loop(at.kind.width) as lane:
                run, count, active = self._known(w, lane)
                left = w.apply("icmp ult", "i64", count, "%saves")
                moved = w.apply("and", "i1", left, rows.is_marked(w, at.accepts, lane))
                with w.when(w.apply("and", "i1", active, moved)):
                    self._mark_due(w, lane, run, count)
            due = rows.any(w, at.due)
            with w.when(due):
                self._save_due(w, settle)
            going.append(due)

    def _mark_due(self, w: Writer, lane: str, run: str, count: str) -> None:
        at, times = self._at, OPERANDS.index("times")
        place = w.apply("add", "i64", w.apply("mul", "i64", run, f"%stride{times}"), count)
        t = w.load(self._number, w.at(self._number, f"%in{times}", place))
        end = w.load(self._number, self._rows.number(w, at.t_next, lane))
        with w.when(w.apply("fcmp ole", self._number, t, end)):
            w.store(self._number, t, self._rows.number(w, at.weigh.inputs + 2, lane))
            w.store(self._number, at.kind.literal(1.0), self._rows.number(w, at.due, lane))

    def _save_due(self, w: Writer, settle: Callable[[Writer, int], None] | None) -> None:
        at, rows, vector, n = self._at, self._rows, self._at.kind.vector, self._at.motion.size
        stages = len(at.method.c)
        at.weigh.run(w, at.scratch)
        weights = [rows.load(w, at.scratch + j) for j in range(2 + stages)]
        weights[2:] = [rows.product(w, x, at.direction) for x in weights[2:]]
        places = [rows.place(w, row) for row in (at.y, at.y1, *(at.stages + j * n for j in range(stages)))]
        mixed = rows.place(w, at.projected)  # which no one needs until the next step
        with w.loop(n) as k:
            total = at.kind.constant(0.0)
            for weight, place in zip(weights, places, strict=True):
                x = w.load(vector, w.at(vector, place, k), rows.aligned)
                total = w.apply("fadd contract", vector, total, w.apply("fmul contract", vector, weight, x))
            w.store(vector, total, w.at(vector, mixed, k), rows.aligned)
        if settle:
            settle(w, at.weigh.inputs + 2)
        with w.loop(at.kind.width) as lane, w.when(rows.is_marked(w, at.due, lane)):
            run, count, _ = self._known(w, lane)
            to = self._saved(w, run, count)
            with w.loop(n) as k:
                w.store(
                    self._number,
                    w.load(self._number, self._in_row(w, mixed, k, lane)),
                    w.at(self._number, to, k),
                )
            w.increased(w.at("i64", "%count", lane))
