"""Cotangents of one step of a whole integration: the last state's become those of the first, and of the parameters.

A step is differentiated as it was computed: first the projection, at the multipliers it ended with, then the stages from
the last to the first. Saved states are sums of the state before and after the step and of its stages; so are the
cotangents of these of theirs.
"""

from typing import final

import numpy as np

from ._llvm_text import Writer
from ._program import Program
from ._routine import Routine
from ._run_layout import OPERANDS, RunLayout
from ._run_tape import Tape


@final
class StepBack:
    """Writes how all lanes go back through one step.

    - `outputs`: rows of cotangents, and how many they are: of the parameters of the field and of the projection, and of
      the state.
    - `routines`: the programs of cotangents.

    **Arguments:**

    - `layout`: of what is integrated.
    - `tape`: what is kept of the steps.
    - `field`, `projection`: programs of the operands of those and a cotangent of the state they give: cotangents of the
      parameters and of the state.
    """

    def __init__(self, layout: RunLayout, tape: Tape, field: Program, projection: Program | None):
        self._at, self._rows, self._tape = layout, layout.rows, tape
        self._number = layout.kind.number
        rows, n, (own, theirs, _) = layout.rows, layout.motion.size, layout.numbers
        self._field = Routine("pullfield", field.native, rows)
        self._project = Routine("pullproject", projection.native, rows) if projection else None
        self._pulled = rows.new(max(own, theirs) + n)
        self._of_field, self._of_projection, self._end = rows.new(own), rows.new(theirs), rows.new(n)
        self._start, self._stages = rows.new(n), rows.new(n * len(layout.method.c))
        self._saved, self._h, self._active = rows.new(n), rows.new(1), rows.new(1)
        self.outputs = (self._of_field, own), (self._of_projection, theirs), (self._end, n)
        self.routines = [self._field, *([self._project] if self._project else [])]

    def functions(self) -> list[str]:
        """The functions that are called."""
        weights = [*self._at.method.a, self._at.method.ends[0]]
        return [*self._movers(), *(self._spread(f"back{i}", row) for i, row in enumerate(weights))]

    def begin(self, w: Writer) -> None:
        """Sets what stays the same for all steps of a run."""
        at, rows = self._at, self._rows
        for row, count in self.outputs[:2]:
            rows.clear(w, row, count)
        rows.copy(w, self._field.inputs, at.field.inputs, at.numbers[0])
        if self._project and at.project:
            rows.copy(w, self._project.inputs, at.project.inputs, at.numbers[1])

    def _movers(self) -> list[str]:
        """Functions that move the numbers of one lane, and add rows in marked lanes."""
        kind, rows, found = self._at.kind, self._rows, []
        for name in ("put", "give"):
            w = Writer()
            with w.loop("%count") as k:
                x = w.load(kind.number, w.at(kind.number, w.at(kind.vector, "%of", k), "%lane"))
                own = w.at(kind.number, w.at(kind.vector, "%to", k), "%lane")
                w.store(kind.number, x, own if name == "put" else w.at(kind.number, "%to", k))
            found.append(w.function(name, "ptr %to, ptr %of, i64 %lane, i64 %count"))
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
                self._add(w, w.at(kind.vector, w.at(kind.vector, "%stages", int(j) * n), k), term)
        return w.function(name, "ptr %y, ptr %stages, ptr %of, ptr %h")

    def end_of(self, w: Writer, step: str, lane: str) -> str:
        """When a step of a lane ended."""
        place = w.at(self._at.kind.vector, self._tape.time(w, step), 1)
        return w.load(self._number, w.at(self._number, place, lane))

    def time(self, w: Writer, lane: str, k: str) -> str:
        """The time to save at of that number."""
        i, run = OPERANDS.index("times"), w.load("i64", w.at("i64", "%run", lane))
        place = w.apply("add", "i64", w.apply("mul", "i64", run, f"%stride{i}"), k)
        return w.load(self._number, w.at(self._number, f"%in{i}", place))

    def mark(self, w: Writer, count: str, row: int) -> None:
        """Marks the lanes with more steps than a number.

        **Arguments:**

        - `w`: writes it.
        - `count`: the number.
        - `row`: where they are marked.
        """
        with w.loop(self._at.kind.width) as lane:
            more = w.apply("icmp ugt", "i64", w.load("i64", w.at("i64", "%steps", lane)), count)
            w.store(self._number, w(f"uitofp i1 {more} to {self._number}"), self._rows.number(w, row, lane))

    def back(self, w: Writer, step: str, place: str) -> None:
        """Back through a step.

        **Arguments:**

        - `w`: writes it.
        - `step`: its number.
        - `place`: that in its segment.
        """
        at, rows, vector, n = self._at, self._rows, self._at.kind.vector, self._at.motion.size
        self.mark(w, step, self._active)
        self._tape.resume(w, step)
        rows.copy(w, self._field.inputs + at.numbers[0] + 1 + n, at.nearness)
        t, t_next = (rows.product(w, rows.load(w, row), at.direction) for row in (at.t, at.t_next))
        rows.store(w, w.apply("fsub", vector, t_next, t), self._h)
        for row, count in ((self._start, n), (self._stages, n * len(at.method.c))):
            rows.clear(w, row, count)
        w.store("i64", 0, "%calls")  # of saved states in the step
        self._add_saved(w, step)
        y, stages, mu = self._tape.parts(w, place)
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
            saves = w.apply("icmp ugt", "i64", w.load("i64", "%calls"), 0)
            with w.when("true" if weights[:, i].any() else saves):
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
        cotangent, mu = row + 1 + n + (routine is self._field), of[1]
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
            rows.clear(w, self._saved, at.motion.size)
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
        t, first = self.time(w, lane, k), w.apply("icmp eq", "i64", step, 0)
        before = w(f"select i1 {first}, i64 0, i64 {w.apply('sub', 'i64', step, 1)}")
        own = w.apply("fcmp ogt", self._number, t, self.end_of(w, before, lane))
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
