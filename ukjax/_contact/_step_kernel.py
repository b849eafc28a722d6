"""The text of a whole time step: blocks of members, of which no matrix ever leaves its registers.

A block is as many members as one vector holds. Scalar code finds what precedes impulses (`Prepare`), where positions
arrive (`Arrive`), the nearest ones on bilateral rows, and the gaps there (`Gaps`), for all of a block; contact problems
are solved member by member, as `_newton_code` does, and read rows and inverse inertia where they were computed. So a step
waits for the slowest of a block, not of a batch.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, final

import numpy as np

from .._compiler import (
    MOST_CALLS,
    ArrayPlace,
    Function,
    Kind,
    LoopText,
    Program,
    ProjectionCode,
    Spread,
    Stage,
    Value,
    Written,
)
from ._newton_code import Kernel
from ._penetration import TRIES
from ._rows import ContactLayout

Rows = Callable[[Value, Value], Value]
"""What rows hold, by row and member."""


class Stages(NamedTuple):
    """The scalar code of a step.

    - `before`: `Prepare`.
    - `arrive`: `Arrive`.
    - `settle`: the projection onto bilateral rows, where there are any.
    - `gaps`: `Gaps`.
    """

    before: Written
    arrive: Written
    settle: ProjectionCode | None
    gaps: Written


@final
class StepKernel:
    """Writes the function.

    **Arguments:**

    - `layout`: of the contacts.
    - `stages`: the scalar code.
    - `how`: the tolerance of contact problems, and the numbers of what the function returns, as `StepCode` says.
    - `kind`: of the vectors of a block.
    - `shared`: which operands are the same for all members.
    """

    def __init__(
        self,
        layout: ContactLayout,
        stages: Stages,
        how: tuple[float, tuple[int, ...]],
        kind: Kind,
        shared: tuple[bool, ...],
    ):
        tolerance, self.sizes = how
        self.width, self.shared, self.f = kind.width, shared, (f := Function(kind.dtype))
        self.newton = Kernel(layout.contacts, self.sizes[1], tolerance, kind.dtype)
        self.free, self.kind, self.start = f.given("%work"), kind, 0
        self.before, self.arrive, self.gaps = (
            self._stage(name, x.program, x.counts, x.starts)
            for name, x in (("before", stages.before), ("arrive", stages.arrive), ("gaps", stages.gaps))
        )
        settle, self.settle = stages.settle, None
        if settle is not None:
            again = settle.again
            starts = 0, self.sizes[0], again.first, again.flag
            self.of_positions = again.size
            self.settle = self._stage("settle", settle.bare, settle.counts, starts)
        self.counts = [
            stages.before.counts[0],
            stages.arrive.counts[0],
            settle.counts[0] if settle else 0,
            stages.gaps.counts[0],
            *stages.before.counts[3:],
            *stages.before.counts[1:3],
            self.sizes[2],
        ]
        sizes = self.newton.sizes
        # Of each member: velocities after impulses, the guess of these, whether there is a problem to solve, that
        # problem, and what was found.
        rows = np.cumsum([0, *self.sizes[1:3], 1, *sizes.operands[2:], *sizes.found]) * kind.width
        self.struck, self.guess, self.going, *places = (self.free.at(self.start + int(x)) for x in rows[:-1])
        self.problem, self.found = places[:6], places[6:]
        self.newton.begin(f, self.free.at(self.start + int(rows[-1])))
        self.numbers = self.start + int(rows[-1]) + sizes.numbers

    def _stage(self, name: str, program: Program, counts: Sequence[int], starts: Sequence[int]) -> Stage:
        stage = Stage(self.f, program, counts, starts, name, self.kind, self.free.at(self.start))
        self.start += stage.size
        return stage

    def text(self) -> LoopText:
        """The code."""
        f, width = self.f, self.width
        stages = [x for x in (self.before, self.arrive, self.settle, self.gaps) if x is not None]
        members = Value(f, "i64", "%members")
        self._filled(True)
        for stage in stages:
            stage.spread()
        with f.loop((members + (width - 1)) // width) as block:
            first = block * width
            first = f.where(first < members - width, first, members - width)  # some are computed twice
            self._filled(False, first, members)
            self.before.call()
            self._member_by_member(f.given("%found").at(first), members)
        names = "".join(f", ptr noalias %given{i}" for i in range(len(self.shared)))
        head = f"ptr noalias %work, ptr noalias %found, i64 %members{names}"
        tables = [x for of in (self.newton, *stages) for x in of.tables()]
        code = "\n".join([f.declared(), *tables, f.w.function("compute", head, internal=False)])
        return LoopText(code, self.numbers, Stage.functions(stages))

    def _filled(self, shared: bool, first: Value | int = 0, members: Value | int = 1) -> None:
        """Fills the inputs of all programs that are the same for all members, or the others."""
        numbers, q, v, t, h, *laws = self.before.inputs
        of_arrive, q_arrive, _, t_arrive, h_arrive, *_ = self.arrive.inputs
        of_settle = self.settle.inputs[:1] if self.settle else []
        places = (
            [numbers],
            [of_arrive],
            of_settle,
            self.gaps.inputs[:1],
            [t, t_arrive],
            [h, h_arrive],
            *([x] for x in laws),
            [q, q_arrive],
            [v],
            [self.guess],
        )
        for i, (to, count) in enumerate(zip(places, self.counts, strict=True)):
            if count and self.shared[i] == shared:
                with self.f.loop(count) as j:
                    of = self.f.given(f"%given{i}").at(j if shared else j * members + first)
                    with self.f.loop(self.width) as k:
                        for place in to:
                            place[j * self.width + k] = of[0 if shared else k]

    def _rows(self, count: int, to: ArrayPlace, of: Rows) -> None:
        """Sets rows of all members, as a function of row and member."""
        with self.f.loop(count) as j, self.f.loop(self.width) as k:
            to[j * self.width + k] = of(j, k)

    def _told(self, leaf: int, count: int, found: ArrayPlace, members: Value, of: Rows) -> None:
        """Sets what the function returns."""
        to = found.at(members * sum(self.sizes[:leaf]))
        with self.f.loop(count) as j, self.f.loop(self.width) as k:
            to[j * members + k] = of(j, k)

    def _own(self, place: ArrayPlace) -> Rows:
        return lambda j, k: place[j * self.width + k]

    def _of(self, stage: Stage, leaf: int) -> Rows:
        return lambda j, k: stage.output(leaf, k)[j]

    def _member_by_member(self, found: ArrayPlace, members: Value) -> None:
        """Impulses, and then displacements for as long as contacts are not apart."""
        f, (n_q, v, m, *_), width = self.f, self.sizes, self.width
        *_, h, _, friction, limit = self.before.inputs
        nothing = lambda j, k: f.value(0.0)
        limits = lambda j, k: limit[j * width + k] * h[k]
        first = nothing, self._of(self.before, 2), self._own(friction), limits, self._of(self.before, 5)
        self._posed((*first, self._own(self.guess)))
        self._rows(1, self.going, lambda j, k: f.value(1.0))
        tries, some = f.variable(), f.variable()
        with f.repeat() as again:
            self._solved()
            with f.when(tries[0] < 0.5):
                self._struck(found, members)
            self._rows(v, self.arrive.inputs[6], self._own(self.found[5]))
            self._rows(m, self.gaps.inputs[4], self._own(self.found[0]))
            self._arrived()
            some[0] = 0.0
            with f.loop(width) as k:
                self.going[k] = self.gaps.output(2, k)[0]
                some[0] = f.max(some[0], self.going[k])
            again.append(((some[0] > 0.5) & (tries[0] < TRIES)).name)
            tries[0] = tries[0] + 1.0
            back = lambda j, k: 0.0 - self.found[5][j * width + k]
            of_gaps = lambda leaf: self._of(self.gaps, leaf)
            self._posed((back, of_gaps(0), nothing, nothing, of_gaps(1), self._own(self.found[0])))
        self._told(0, n_q, found, members, self._of(self.settle or self.arrive, 0))
        velocities = self._of(self.settle, 1) if self.settle else self._own(self.struck)
        self._told(1, v, found, members, velocities)

    def _arrived(self) -> None:
        """Where positions arrive, on the bilateral rows, and the gaps there."""
        (_, q, _, t, _), (n_q, v, *_) = self.gaps.inputs, self.sizes
        self.arrive.call()
        if self.settle is not None:
            self._rows(1, self.settle.inputs[1], self._of(self.arrive, 1))
            self._rows(n_q, self.settle.inputs[2], self._of(self.arrive, 0))
            self._rows(v, self.settle.inputs[3], self._own(self.struck))
            self._projected(self.settle)
        self._rows(n_q, q, self._of(self.settle or self.arrive, 0))
        self._rows(1, t, self._of(self.arrive, 1))
        self.gaps.call()

    def _projected(self, settle: Stage) -> None:
        """Runs the projection for as long as that brings positions of any member nearer."""
        f, mu, calls, some = self.f, settle.inputs[5], self.f.variable(), self.f.variable()
        if self.of_positions:
            self._rows(self.of_positions, mu, lambda j, k: f.value(0.0))
        with f.repeat() as again:
            settle.call()
            some[0], calls[0] = 0.0, calls[0] + 1.0
            if self.of_positions:
                with f.loop(self.width) as k, f.when(settle.output(3, k)[0] > 0.5):
                    some[0] = 1.0
                    with f.loop(self.of_positions) as j:
                        mu[j * self.width + k] = settle.output(2, k)[j]
            again.append(((some[0] > 0.5) & (calls[0] < float(MOST_CALLS))).name)

    def _posed(self, of: Sequence[Rows]) -> None:
        """Sets the next problem."""
        for place, count, x in zip(self.problem, self.newton.sizes.operands[2:], of, strict=True):
            self._rows(count, place, x)

    def _solved(self) -> None:
        f, width = self.f, self.width
        with f.loop(width) as k, f.when(self.going[k] > 0.5):
            rows = [self.before.output(3, k), self.before.output(4, k)]
            given = [*rows, *(Spread(x.at(k), width) for x in self.problem)]
            self.newton.member(given, self.found[0].at(k), f.value(width, "i64"))

    def _struck(self, found: ArrayPlace, members: Value) -> None:
        """What impulses leave; there is no displacement yet."""
        f, (n_q, v, m, _, _, n, _, _), width = self.f, self.sizes, self.width
        both, middle = self.arrive.inputs[2], self.arrive.inputs[5]
        before, change, v_after = self.before.inputs[2], self.found[5], self.struck
        self._rows(n_q, middle, self._of(self.before, 0))
        self._rows(v, v_after, lambda j, k: self.before.output(1, k)[j] + change[j * width + k])
        self._rows(v, both, lambda j, k: before[j * width + k] + v_after[j * width + k])
        for leaf, (count, of) in enumerate(zip((m, 1, 1, n, n), self.found, strict=False), 2):
            self._told(leaf, count, found, members, self._own(of))
        self._told(7, n, found, members, self._of(self.before, 6))
        for count, of in ((m, self.found[0]), (v, change)):
            self._rows(count, of, lambda j, k: f.value(0.0))
