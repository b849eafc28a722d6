"""What is kept of the steps of a run, to go through them again from the last to the first.

Each lane of a vector keeps its accepted steps: of all, their times and how close to singular they start; of those in one
segment, a number of steps in a row, the state at their start, their stages and their multipliers; and the state at the
start of every segment. Steps in segments before the last are computed once more.
"""

import math
from collections.abc import Callable
from typing import final

from ._llvm_text import Writer
from ._run_layout import RunLayout
from ._run_steps import RunSteps

_SEGMENT = 2**21  # bytes of each lane for the steps of one segment, which then stay in the processor's cache

Marker = Callable[[Writer, str, int], None]
"""Marks in a row the lanes that have more steps than a number."""

Back = Callable[[Writer, str, str], None]
"""Writes what is done for one step: by its number, and its place in its segment."""


@final
class Tape:
    """Gives out the rows of the array `%tape`, and writes what keeps steps there and computes them again.

    - `size`: how many rows there are.

    **Arguments:**

    - `layout`: of the runs.
    - `most`: the most steps of a run.
    """

    def __init__(self, layout: RunLayout, most: int):
        self._at, self._rows, self._steps = layout, layout.rows, RunSteps(layout)
        n, kind = layout.motion.size, layout.kind
        self._kept = n * (1 + len(layout.method.c)) + layout.motion.multipliers
        affordable = _SEGMENT // (kind.bytes * self._kept)
        self._segment = max(1, min(most, max(affordable, math.isqrt(most))))
        self._starts = 3 * most
        self._several = most > self._segment
        self._steps_kept = self._starts + -(-most // self._segment) * n * self._several
        self.size = self._steps_kept + self._segment * self._kept
        self._later = self._rows.new(1)

    def time(self, w: Writer, step: str) -> str:
        """Where the start of a step stands; its end follows, and then how close to singular it starts."""
        return w.at(self._at.kind.vector, "%tape", w.apply("mul", "i64", step, 3))

    def resume(self, w: Writer, step: str) -> None:
        """Sets the times of a step, and how close to singular it starts, of all lanes."""
        at, rows, time = self._at, self._rows, self.time(w, step)
        w.do(f"call void @copy(ptr {rows.place(w, at.t)}, ptr {time}, i64 2)")
        near = w.at(at.kind.vector, time, 2)
        w.do(f"call void @copy(ptr {rows.place(w, at.nearness)}, ptr {near}, i64 1)")

    def _start(self, w: Writer, segment: str) -> str:
        """Where the state at the start of a segment stands."""
        row = w.apply("add", "i64", w.apply("mul", "i64", segment, self._at.motion.size), self._starts)
        return w.at(self._at.kind.vector, "%tape", row)

    def parts(self, w: Writer, step: str) -> tuple[str, str, str]:
        """Where the state, the stages and the multipliers of a step stand, by its place in its segment."""
        row = w.apply("add", "i64", w.apply("mul", "i64", step, self._kept), self._steps_kept)
        state, n = w.at(self._at.kind.vector, "%tape", row), self._at.motion.size
        stages, multipliers = (
            w.at(self._at.kind.vector, state, n * i) for i in (1, 1 + len(self._at.method.c))
        )
        return state, stages, multipliers

    def _sources(self, w: Writer) -> list[tuple[str, int]]:
        """Where these are when a step has been made, and how many rows they are."""
        at, n = self._at, self._at.motion.size
        rows = ((at.y, n), (at.stages, n * len(at.method.c)), (at.projected + n, at.motion.multipliers))
        return [(self._rows.place(w, row), count) for row, count in rows]

    def keep(self, w: Writer, lane: str, steps: str) -> None:
        """Keeps the step that a lane has made.

        **Arguments:**

        - `w`: writes it.
        - `lane`: which.
        - `steps`: where it is counted how many it has kept.
        """
        i, sources = w.load("i64", steps), self._sources(w)
        time = self.time(w, i)
        moves = [(time, self._rows.place(w, self._at.t), 2)]
        moves += [(w.at(self._at.kind.vector, time, 2), self._rows.place(w, self._at.nearness), 1)]
        place = w.apply("urem", "i64", i, self._segment)
        moves += [(to, *source) for to, source in zip(self.parts(w, place), sources, strict=True)]
        for to, of, count in moves:
            w.do(f"call void @put(ptr {to}, ptr {of}, i64 {lane}, i64 {count})")
        if self._several:
            with w.when(w.apply("icmp eq", "i64", place, 0)):
                to, n = self._start(w, w.apply("udiv", "i64", i, self._segment)), self._at.motion.size
                w.do(f"call void @put(ptr {to}, ptr {sources[0][0]}, i64 {lane}, i64 {n})")
        w.increased(steps)

    def backwards(self, w: Writer, most: str, mark: Marker, step: Back) -> None:
        """All steps, the last one first.

        **Arguments:**

        - `w`: writes it.
        - `most`: the steps of the lane that has most.
        - `mark`: marks the lanes that have steps.
        - `step`: what is done.
        """
        segments = w.apply("udiv", "i64", w.apply("add", "i64", most, self._segment - 1), self._segment)
        with w.loop(segments) as passed:
            segment = _before(w, segments, passed)
            first = w.apply("mul", "i64", segment, self._segment)
            if self._several:
                self._compute_again(w, segment, first, mark)
            left = w.apply("sub", "i64", most, first)
            short = w.apply("icmp ult", "i64", left, self._segment)
            count = w(f"select i1 {short}, i64 {left}, i64 {self._segment}")
            with w.loop(count) as done:
                i = _before(w, count, done)
                step(w, w.apply("add", "i64", first, i), i)

    def _compute_again(self, w: Writer, segment: str, first: str, mark: Marker) -> None:
        """The steps of a segment of the lanes that have steps in later ones."""
        at, rows, n = self._at, self._rows, self._at.motion.size
        mark(w, w.apply("add", "i64", first, self._segment), self._later)
        with w.when(rows.any(w, self._later)):
            w.do(f"call void @copy(ptr {rows.place(w, at.y)}, ptr {self._start(w, segment)}, i64 {n})")
            with w.loop(self._segment) as i:
                self.resume(w, w.apply("add", "i64", first, i))
                self._steps.take(w, 0)
                where = rows.place(w, self._later)
                for to, (of, count) in zip(self.parts(w, i), self._sources(w), strict=True):
                    w.do(f"call void @blend(ptr {to}, ptr {of}, ptr {where}, i64 {count})")
                rows.copy(w, at.y, at.y1, n)


def _before(w: Writer, count: str, passed: str) -> str:
    """The number of a pass of a loop that goes downwards."""
    return w.apply("sub", "i64", w.apply("sub", "i64", count, 1), passed)
