"""The steps of a whole integration: an explicit Runge-Kutta method's, and the projection of their ends."""

from typing import final

import numpy as np

from ._llvm_text import Writer
from ._routine import Again
from ._run_layout import RunLayout


@final
class RunSteps:
    """Writes what makes one step of all lanes.

    **Arguments:**

    - `layout`: where everything is.
    """

    def __init__(self, layout: RunLayout):
        self._at, self._rows = layout, layout.rows

    def functions(self) -> list[str]:
        """The functions that are called: the states at which stages are evaluated, the end of a step, and its error."""
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

    def attempt(self, w: Writer) -> None:
        """One step of every lane, and what the control says of it."""
        self._begin_new(w)
        self.take(w, int(self._at.method.keeps_first))
        self._at.step.run(w, self._at.controlled)

    def move_on(self, w: Writer) -> None:
        """Has each lane begin the step that the control says."""
        at, rows, n = self._at, self._rows, self._at.motion.size
        rows.blend(w, at.y, at.y1, at.accepts, n)
        if at.method.keeps_first:
            rows.blend(w, at.stages, at.stages + (len(at.method.c) - 1) * n, at.accepts, n)
        rows.copy(w, at.t, at.controlled + 2, 6 + at.control.kept)

    def _begin_new(self, w: Writer) -> None:
        """How close to singular new runs start; their first stage where the method keeps the last for the next step."""
        at, rows, n = self._at, self._rows, self._at.motion.size
        with w.when(rows.any(w, at.new)):
            t = rows.product(w, rows.load(w, at.t), at.direction)
            if at.project:
                time = at.project.inputs + at.numbers[1]
                rows.store(w, t, time)
                rows.copy(w, time + 1, at.y, n)
                rows.clear(w, time + 1 + 2 * n, at.motion.multipliers)
                at.project.run(w, at.projected)
                rows.blend(w, at.nearness, at.projected + n + at.motion.multipliers, at.new)
            if at.method.keeps_first:
                rows.store(w, t, at.field_t)
                rows.copy(w, at.field_t + 1, at.y, n)
                at.field.run(w, at.projected)
                rows.blend(w, at.stages, at.projected, at.new, n)
            rows.store(w, 0.0, at.new)

    def take(self, w: Writer, first: int) -> None:
        """One step of every lane, from t to t_next.

        **Arguments:**

        - `w`: writes it.
        - `first`: the first stage to compute.
        """
        at, rows, vector, method = self._at, self._rows, self._at.kind.vector, self._at.method
        n = at.motion.size
        t, t_next = (rows.product(w, rows.load(w, row), at.direction) for row in (at.t, at.t_next))
        h = w.apply("fsub", vector, t_next, t)
        rows.store(w, h, at.h)
        rows.copy(w, at.field_near, at.nearness)
        given = ", ".join(f"ptr {rows.place(w, row)}" for row in (at.y, at.stages, at.h))
        for i in range(first, len(method.c)):
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

    def _project(self, w: Writer, mu: int) -> None:
        """The end of the step on the constraints."""
        at, rows, n, m = self._at, self._rows, self._at.motion.size, self._at.motion.multipliers
        self._settle(w, mu)
        rows.copy(w, at.y1, at.projected, n)
        rows.copy(w, at.near, at.projected + n + m)
        if at.motion.estimates:
            rows.copy(w, at.error, at.projected + n + m + 2, n)

    def settle(self, w: Writer, time: int) -> None:
        """Projects the states in the rows of what a projection gives, if steps are projected.

        **Arguments:**

        - `w`: writes it.
        - `time`: the row of their times, multiplied by the direction of time.
        """
        at, rows, n = self._at, self._rows, self._at.motion.size
        if at.project is None:
            return
        to = at.project.inputs + at.numbers[1]
        rows.store(w, rows.product(w, rows.load(w, time), at.direction), to)
        rows.copy(w, to + 1, at.projected, n)
        self._settle(w, to + 1 + 2 * n)  # whatever the errors are: the state does not depend on them

    def _settle(self, w: Writer, mu: int) -> None:
        """The projection: again where that brings a lane nearer.

        Lanes that are settled keep their multipliers, and so what is computed from them.
        """
        at, n, m = self._at, self._at.motion.size, self._at.motion.multipliers
        assert at.project is not None
        at.project.repeat(w, at.projected, Again(n + m + 1, n, m), mu)
