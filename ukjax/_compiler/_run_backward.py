"""Cotangents of whole integrations as one LLVM function: back through the steps taken, whose sizes count as constants.

As many runs as a vector has lanes go forward together, and then back. A step is differentiated as it was computed: first
the projection, at the multipliers it ended with, then the stages from the last to the first. Saved states are sums of the
state before and after a step and of its stages; so are the cotangents of these of theirs.
"""

from typing import final

import numpy as np

from ._foreign import dimension
from ._llvm_text import Writer
from ._program import Program
from ._routine import Routine, texts
from ._run_lanes import Lanes
from ._run_layout import OPERANDS, Layout
from ._run_steps import Steps
from ._run_tape import Tape


@final
class Backward:
    """The text of the cotangents of an integration.

    Its function `pull` takes rows and a tape to work on, cotangents (runs, count) to set, of the parameters of the field
    and of the projection, and of the state at the start; how many runs and saved states there are; the operands of the
    integration; and the cotangents of the saved states (runs, saves n) and of those at the end (runs, n).

    **Arguments:**

    - `layout`: of what is integrated.
    - `field`, `projection`: programs of the operands of those and a cotangent of the state they give: cotangents of the
      parameters and of the state.
    - `most`: the most steps of a run.
    """

    def __init__(self, layout: Layout, field: Program, projection: Program | None, most: int):
        self._at, self._rows = layout, layout.rows
        self._steps, self._lanes, self._number = Steps(layout), Lanes(layout), layout.kind.number
        rows, n, (own, theirs, _) = layout.rows, layout.motion.size, layout.numbers
        self._field = Routine("pullfield", field, rows)
        self._project = Routine("pullproject", projection, rows) if projection else None
        self._pulled = rows.new(max(own, theirs) + n)
        self._of_field, self._of_projection, self._end = rows.new(own), rows.new(theirs), rows.new(n)
        self._start, self._stages = rows.new(n), rows.new(n * len(layout.method.c))
        self._saved, self._h = rows.new(n), rows.new(1)
        self._alive, self._active = rows.new(1), rows.new(1)
        self.tape = Tape(layout, most)

    @property
    def _outputs(self) -> list[tuple[int, int]]:
        """Rows of what is computed, and how many they are."""
        own, theirs, _ = self._at.numbers
        return [(self._of_field, own), (self._of_projection, theirs), (self._end, self._at.motion.size)]

    def text(self) -> str:
        """All functions."""
        own = [self._field, *([self._project] if self._project else [])]
        functions = [
            *self._rows.functions(),
            *self._steps.functions(),
            *self._lanes.beginning(),
            *self._movers(),
        ]
        weights = [*self._at.method.a, self._at.method.ends[0]]
        functions += [self._spread(f"back{i}", row) for i, row in enumerate(weights)]
        routines = texts([*self._at.routines, *own], self._at.kind)
        return "\n".join([*functions, routines, self._pull(own)])

    @staticmethod
    def call() -> str:
        """The instructions by which a foreign function of XLA calls it: results are cotangents, rows and the tape."""
        first, count = len(OPERANDS), len(OPERANDS) + 2
        lines = [
            dimension(f"in{first + 1}", 0, "runs"),
            dimension(f"in{OPERANDS.index('times')}", 1, "saves"),
        ]
        for i in range(first):
            lines += [dimension(f"in{i}", axis, f"size{i}.{axis}") for axis in (0, 1)]
            lines += [f"  %shared{i} = icmp eq i64 %size{i}.0, 1"]
            lines += [f"  %stride{i} = select i1 %shared{i}, i64 0, i64 %size{i}.1"]
        given = [f"ptr %in{i}, i64 %stride{i}" for i in range(first)] + [
            f"ptr %in{i}" for i in range(first, count)
        ]
        results = ", ".join(f"ptr %out{i}" for i in (3, 4, 0, 1, 2))
        return "\n".join([*lines, f"  call void @pull({results}, i64 %runs, i64 %saves, {', '.join(given)})"])

    def _movers(self) -> list[str]:
        """Functions that move the numbers of one lane, set rows to zero, and add rows in marked lanes."""
        kind, rows, found = self._at.kind, self._rows, []
        for name in ("put", "give"):
            w = Writer()
            with w.loop("%count") as k:
                x = w.load(kind.number, w.at(kind.number, w.at(kind.vector, "%of", k), "%lane"))
                own = w.at(kind.number, w.at(kind.vector, "%to", k), "%lane")
                w.store(kind.number, x, own if name == "put" else w.at(kind.number, "%to", k))
            found.append(w.function(name, "ptr %to, ptr %of, i64 %lane, i64 %count"))
        w = Writer()
        with w.loop("%count") as k:
            w.store(kind.vector, kind.constant(0.0), w.at(kind.vector, "%to", k), rows.aligned)
        found.append(w.function("clear", "ptr %to, i64 %count"))
        w = Writer()
        marked = w.apply(
            "fcmp ogt", kind.vector, w.load(kind.vector, "%where", rows.aligned), kind.constant(0.5)
        )
        with w.loop("%count") as k:
            x = w.load(kind.vector, w.at(kind.vector, "%of", k), rows.aligned)
            x = w(f"select {kind.truths} {marked}, {kind.vector} {x}, {kind.vector} {kind.constant(0.0)}")
            self._add(w, w.at(kind.vector, "%to", k), x)
        return [*found, w.function("gather", "ptr %to, ptr %of, ptr %where, i64 %count")]

    def _add(self, w: Writer, place: str, x: str) -> None:
        vector, aligned = self._at.kind.vector, self._rows.aligned
        w.store(vector, w.apply("fadd contract", vector, w.load(vector, place, aligned), x), place, aligned)

    def _spread(self, name: str, weights: np.ndarray) -> str:
        """Adds a cotangent of y + h sum w_j k_j to those of y and of the k_j."""
        w, kind, rows, n = Writer(), self._at.kind, self._rows, self._at.motion.size
        h = w.load(kind.vector, "%h", rows.aligned)
        with w.loop(n) as k:
            x = w.load(kind.vector, w.at(kind.vector, "%of", k), rows.aligned)
            self._add(w, w.at(kind.vector, "%y", k), x)
            x = w.apply("fmul contract", kind.vector, x, h)
            for j in np.flatnonzero(weights):
                term = w.apply("fmul contract", kind.vector, x, kind.constant(float(weights[j])))
                self._add(w, w.at(kind.vector, w.at(kind.vector, "%stages", j * n), k), term)
        return w.function(name, "ptr %y, ptr %stages, ptr %of, ptr %h")

    def _pull(self, own: list[Routine]) -> str:
        w, width = Writer(), self._at.kind.width
        for routine in [*self._at.routines, *own]:
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
            self.tape.backwards(w, w.load("i64", "%most"), self._mark, self._step)
            with w.loop(width) as lane:
                for to, (row, count) in zip(("field", "projection", "state"), self._outputs, strict=True):
                    place = self._of_run(w, f"%{to}", w.load("i64", w.at("i64", "%run", lane)), count)
                    w.do(
                        f"call void @give(ptr {place}, ptr {self._rows.place(w, row)}, i64 {lane}, i64 {count})"
                    )
            groups.append(w.apply("icmp ult", "i64", w.increased("%group", width), "%runs"))
        given = f"ptr %rows, ptr %tape, ptr %field, ptr %projection, ptr %state, i64 %runs, i64 %saves, {self._at.given}"
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
            w.do(f"call void @fill(ptr %rows, i64 {lane}, i64 {run}, {at.given})")
            of = w.at(self._number, "%ofend", w.apply("mul", "i64", run, at.motion.size))
            w.do(
                f"call void @fetch(ptr {rows.place(w, self._end)}, ptr {of}, i64 {lane}, i64 {at.motion.size})"
            )
        rows.store(w, 1.0, self._alive)
        for row, count in self._outputs[:2]:
            w.do(f"call void @clear(ptr {rows.place(w, row)}, i64 {count})")
        for pull, forth, count in (
            (self._field, at.field, at.numbers[0]),
            (self._project, at.project, at.numbers[1]),
        ):
            if pull and forth:
                rows.copy(w, pull.inputs, forth.inputs, count)

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
            last = self._end_of(w, w.apply("sub", "i64", steps, 1), lane)
            with w.when(w.apply("fcmp ole", self._number, self._time(w, lane, k), last)):
                w.store("i64", w.apply("add", "i64", k, 1), left)

    def _end_of(self, w: Writer, step: str, lane: str) -> str:
        place = w.at(self._at.kind.vector, self.tape.time(w, step), 1)
        return w.load(self._number, w.at(self._number, place, lane))

    def _time(self, w: Writer, lane: str, k: str) -> str:
        """A time to save at."""
        i, run = OPERANDS.index("times"), w.load("i64", w.at("i64", "%run", lane))
        place = w.apply("add", "i64", w.apply("mul", "i64", run, f"%stride{i}"), k)
        return w.load(self._number, w.at(self._number, f"%in{i}", place))

    def _mark(self, w: Writer, count: str, row: int) -> None:
        """Marks the lanes with more steps than a number."""
        with w.loop(self._at.kind.width) as lane:
            more = w.apply("icmp ugt", "i64", w.load("i64", w.at("i64", "%steps", lane)), count)
            w.store(self._number, w(f"uitofp i1 {more} to {self._number}"), self._rows.number(w, row, lane))

    def _step(self, w: Writer, step: str, place: str) -> None:
        """Back through a step."""
        at, rows, vector, n = self._at, self._rows, self._at.kind.vector, self._at.motion.size
        self._mark(w, step, self._active)
        w.do(f"call void @copy(ptr {rows.place(w, at.t)}, ptr {self.tape.time(w, step)}, i64 2)")
        t, t_next = (rows.product(w, rows.load(w, row), at.direction) for row in (at.t, at.t_next))
        rows.store(w, w.apply("fsub", vector, t_next, t), self._h)
        for row, count in ((self._start, n), (self._stages, n * len(at.method.c))):
            w.do(f"call void @clear(ptr {rows.place(w, row)}, i64 {count})")
        w.store("i64", 0, "%calls")  # of saved states in the step
        self._add_saved(w, step)
        y, stages, mu = self.tape.parts(w, place)
        given = f"ptr {y}, ptr {stages}, ptr {rows.place(w, self._h)}"
        of, last = self._end, len(at.method.c)
        if self._project:
            of = self._back_through(
                w, self._project, t_next, f"@sum{last}", given, (self._end, mu), at.numbers[1]
            )
        self._call_spread(w, last, of)
        weights = np.array([*at.method.a, at.method.ends[0]])
        for i in reversed(range(last)):
            later = w.apply(
                "fmul contract", vector, rows.load(w, self._h), at.kind.constant(float(at.method.c[i]))
            )
            time = t_next if at.method.c[i] == 1 else w.apply("fadd contract", vector, t, later)
            # A stage of no weight only makes saved states.
            needed = w.apply("icmp ugt", "i64", w.load("i64", "%calls"), -1 if weights[:, i].any() else 0)
            with w.when("true" if weights[:, i].any() else needed):
                state = self._stages + i * n, None
                of = self._back_through(w, self._field, time, f"@sum{i}", given, state, at.numbers[0])
                self._call_spread(w, i, of)
        rows.blend(w, self._end, self._start, self._active, n)

    def _call_spread(self, w: Writer, i: int, of: int) -> None:
        given = ", ".join(
            f"ptr {self._rows.place(w, row)}" for row in (self._start, self._stages, of, self._h)
        )
        w.do(f"call void @back{i}({given})")

    def _back_through(
        self,
        w: Writer,
        routine: Routine,
        time: str,
        total: str,
        given: str,
        of: tuple[int, str | None],
        count: int,
    ) -> int:
        """Runs a program of cotangents; the row of those of the state."""
        rows, at, n = self._rows, self._at, self._at.motion.size
        row = routine.inputs + count
        rows.store(w, time, row)
        w.do(f"call void {total}(ptr {rows.place(w, row + 1)}, {given})")
        cotangent, mu = row + 1 + n, of[1]
        if mu:
            m = at.motion.multipliers
            w.do(f"call void @copy(ptr {rows.place(w, row + 1 + 2 * n)}, ptr {mu}, i64 {m})")
            cotangent = row + 1 + 2 * n + m
        rows.copy(w, cotangent, of[0], n)
        routine.run(w, self._pulled)
        to = self._of_field if routine is self._field else self._of_projection
        places = ", ".join(f"ptr {rows.place(w, x)}" for x in (to, self._pulled, self._active))
        w.do(f"call void @gather({places}, i64 {count})")
        return self._pulled + count

    def _add_saved(self, w: Writer, step: str) -> None:
        """Adds what saved states in a step say, one of each lane at a time, the last ones first."""
        at, rows = self._at, self._rows
        rows.copy(w, at.weigh.inputs, at.t, 2)
        with w.repeat() as going:
            rows.store(w, 0.0, at.due)
            w.do(f"call void @clear(ptr {rows.place(w, self._saved)}, i64 {at.motion.size})")
            with w.loop(at.kind.width) as lane:
                left = w.load("i64", w.at("i64", "%left", lane))
                some = w.apply("icmp ugt", "i64", left, 0)
                with w.when(w.apply("and", "i1", some, rows.is_marked(w, self._active, lane))):
                    self._mark_due(w, step, lane, w.apply("sub", "i64", left, 1))
            due = rows.any(w, at.due)
            with w.when(due):
                w.increased("%calls")
                self._add_due(w)
            going.append(due)

    def _mark_due(self, w: Writer, step: str, lane: str, k: str) -> None:
        """Takes up the last saved state of a lane that is left, if it is in the step."""
        at, rows, n = self._at, self._rows, self._at.motion.size
        t, first = self._time(w, lane, k), w.apply("icmp eq", "i64", step, 0)
        before = w(f"select i1 {first}, i64 0, i64 {w.apply('sub', 'i64', step, 1)}")
        own = w.apply("fcmp ogt", self._number, t, self._end_of(w, before, lane))
        with w.when(w.apply("or", "i1", first, own)):
            w.store(self._number, t, rows.number(w, at.weigh.inputs + 2, lane))
            w.store(self._number, at.kind.literal(1.0), rows.number(w, at.due, lane))
            w.store("i64", k, w.at("i64", "%left", lane))
            run = w.load("i64", w.at("i64", "%run", lane))
            place = w.apply("add", "i64", w.apply("mul", "i64", run, "%saves"), k)
            of = w.at(self._number, "%ofsaved", w.apply("mul", "i64", place, n))
            w.do(f"call void @fetch(ptr {rows.place(w, self._saved)}, ptr {of}, i64 {lane}, i64 {n})")

    def _add_due(self, w: Writer) -> None:
        at, rows, kind, n = self._at, self._rows, self._at.kind, self._at.motion.size
        stages = len(at.method.c)
        at.weigh.run(w, at.scratch)
        due = w.apply("fcmp ogt", kind.vector, rows.load(w, at.due), kind.constant(0.5))
        weights = [rows.load(w, at.scratch + j) for j in range(2 + stages)]
        weights[2:] = [rows.product(w, x, at.direction) for x in weights[2:]]
        zero = kind.constant(0.0)
        weights = [w(f"select {kind.truths} {due}, {kind.vector} {x}, {kind.vector} {zero}") for x in weights]
        to = [self._start, self._end, *(self._stages + j * n for j in range(stages))]
        places = [rows.place(w, row) for row in [self._saved, *to]]
        with w.loop(n) as k:
            x = w.load(kind.vector, w.at(kind.vector, places[0], k), rows.aligned)
            for weight, place in zip(weights, places[1:], strict=True):
                self._add(w, w.at(kind.vector, place, k), w.apply("fmul contract", kind.vector, weight, x))
