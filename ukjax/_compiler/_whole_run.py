"""A whole integration as one LLVM function: explicit Runge-Kutta steps, projection, step control, saved times.

Each lane of a vector integrates a run of its own, at its own steps, and takes the next run when one has ended: no run
waits for another. The scalar programs of the field, the projection and the control are called on rows of numbers, one for
each lane (`_routine`).
"""

from typing import final

import numpy as np

from ._foreign import dimension
from ._llvm_text import Writer
from ._routine import texts
from ._run_lanes import Lanes
from ._run_layout import OPERANDS, Layout

_MOST_CALLS = 16  # of the projection in a step, each of which brings positions nearer


@final
class WholeRun:
    """The text of an integration.

    Its function `integrate` takes rows to work on, saved states (runs, saves, n) and ends (runs, 5 + n) to set, how many
    runs and saves there are, and the operands, each with how far apart its runs are.

    **Arguments:**

    - `layout`: of what is integrated.
    """

    def __init__(self, layout: Layout):
        self._at, self._rows, self._lanes = layout, layout.rows, Lanes(layout)

    def text(self) -> str:
        """All functions."""
        routines = texts(self._at.routines, self._at.kind)
        functions = [*self._rows.functions(), *self._sums(), *self._lanes.functions()]
        return "\n".join([*functions, routines, self._integrate()])

    @staticmethod
    def call() -> str:
        """The instructions by which a foreign function of XLA calls it: results are saved states, ends and rows."""
        lines = [dimension("out0", axis, name) for axis, name in ((0, "runs"), (1, "saves"))]
        for i in range(len(OPERANDS)):
            lines += [dimension(f"in{i}", axis, f"size{i}.{axis}") for axis in (0, 1)]
            lines += [f"  %shared{i} = icmp eq i64 %size{i}.0, 1"]
            lines += [f"  %stride{i} = select i1 %shared{i}, i64 0, i64 %size{i}.1"]
        given = ", ".join(f"ptr %in{i}, i64 %stride{i}" for i in range(len(OPERANDS)))
        call = f"  call void @integrate(ptr %out2, ptr %out0, ptr %out1, i64 %runs, i64 %saves, {given})"
        return "\n".join([*lines, call])

    def _sums(self) -> list[str]:
        """Functions of the states at which stages are evaluated, of the end of a step, and of its error."""
        method = self._at.method
        *states, error = [*method.a, *method.ends]
        return [*(self._sum(f"sum{i}", row) for i, row in enumerate(states)), self._sum("error", error)]

    def _sum(self, name: str, weights: np.ndarray) -> str:
        """y + h sum w_j k_j; of the error without y."""
        w, kind, rows, n = Writer(), self._at.kind, self._rows, self._at.motion.size
        vector, total = kind.vector, kind.constant(0.0)
        h = w.load(vector, "%h", rows.aligned)
        with w.loop(n) as k:
            for j in np.flatnonzero(weights):
                stage = w.at(vector, w.at(vector, "%stages", int(j) * n), k)
                x = w.load(vector, stage, rows.aligned)
                term = w.apply("fmul contract", vector, x, kind.constant(float(weights[j])))
                total = w.apply("fadd contract", vector, total, term)
            total = w.apply("fmul contract", vector, total, h)
            if name != "error":
                y = w.load(vector, w.at(vector, "%y", k), rows.aligned)
                total = w.apply("fadd contract", vector, y, total)
            w.store(vector, total, w.at(vector, "%to", k), rows.aligned)
        return w.function(name, "ptr %to, ptr %y, ptr %stages, ptr %h")

    def _integrate(self) -> str:
        w, at, rows, n = Writer(), self._at, self._rows, self._at.motion.size
        for routine in at.routines:
            routine.begin(w)
        rows.store(w, 0.0, at.new)
        self._lanes.begin(w)
        with w.repeat() as going:
            if at.method.keeps_first:
                self._begin_new(w)
            self._attempt(w)
            self._lanes.save(w)
            rows.blend(w, at.y, at.y1, at.accepts, n)
            if at.method.keeps_first:
                rows.blend(w, at.stages, at.stages + (len(at.method.c) - 1) * n, at.accepts, n)
            rows.copy(w, at.t, at.controlled + 2, 6 + at.control.kept)
            going.append(self._lanes.end(w))
        given = f"ptr %rows, ptr %saved, ptr %ends, i64 %runs, i64 %saves, {at.given}"
        return w.function("integrate", given, internal=False)

    def _begin_new(self, w: Writer) -> None:
        """The first stage of new runs, where the method keeps the last one for the next step."""
        at, rows, n = self._at, self._rows, self._at.motion.size
        with w.when(rows.any(w, at.new)):
            rows.store(w, rows.product(w, rows.load(w, at.t), at.direction), at.field_t)
            rows.copy(w, at.field_t + 1, at.y, n)
            at.field.run(w, at.projected)
            rows.blend(w, at.stages, at.projected, at.new, n)
            rows.store(w, 0.0, at.new)

    def _attempt(self, w: Writer) -> None:
        """One step of every lane, and what the control says of it."""
        at, rows, vector, method = self._at, self._rows, self._at.kind.vector, self._at.method
        n = at.motion.size
        t, t_next = (rows.product(w, rows.load(w, row), at.direction) for row in (at.t, at.t_next))
        h = w.apply("fsub", vector, t_next, t)
        rows.store(w, h, at.h)
        given = ", ".join(f"ptr {rows.place(w, row)}" for row in (at.y, at.stages, at.h))
        for i in range(int(method.keeps_first), len(method.c)):
            later = w.apply("fmul contract", vector, h, at.kind.constant(float(method.c[i])))
            time = w.apply("fadd contract", vector, t, later)
            rows.store(w, t_next if method.c[i] == 1 else time, at.field_t)
            w.do(f"call void @sum{i}(ptr {rows.place(w, at.field_t + 1)}, {given})")
            at.field.run(w, at.stages + i * n)
        end, error = at.y1, at.error
        if at.project:
            time = at.project.inputs + at.numbers[1]
            rows.store(w, t_next, time)
            end, error = time + 1, time + 1 + n
        w.do(f"call void @sum{len(method.c)}(ptr {rows.place(w, end)}, {given})")
        if at.motion.estimates:
            w.do(f"call void @error(ptr {rows.place(w, error)}, {given})")
        if at.project:
            self._project(w, error + n)
        else:
            rows.store(w, 0.0, at.near)
        at.step.run(w, at.controlled)

    def _project(self, w: Writer, mu: int) -> None:
        """The end of the step on the constraints: again where that brings a lane nearer, while the others stay."""
        at, rows, n, m = self._at, self._rows, self._at.motion.size, self._at.motion.multipliers
        assert at.project is not None
        rows.store(w, 1.0, at.unsettled)
        rows.store(w, 0.0, at.h)
        with w.loop(m) as k:
            zero, to = rows.load(w, at.h), w.at(at.kind.vector, rows.place(w, mu), k)
            w.store(at.kind.vector, zero, to, rows.aligned)
        w.store("i64", 0, "%calls")
        with w.repeat() as going:
            at.project.run(w, at.scratch)
            rows.blend(w, at.projected, at.scratch, at.unsettled, at.of_projection)
            rows.copy(w, mu, at.projected + n, m)
            rows.copy(w, at.unsettled, at.projected + n + m + 1)
            few = w.apply("icmp ult", "i64", w.increased("%calls"), _MOST_CALLS)
            going.append(w.apply("and", "i1", few, rows.any(w, at.unsettled)))
        rows.copy(w, at.y1, at.projected, n)
        rows.copy(w, at.near, at.projected + n + m)
        if at.motion.estimates:
            rows.copy(w, at.error, at.projected + n + m + 2, n)
