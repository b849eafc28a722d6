"""The text of a whole time step: blocks of members, of which no matrix ever leaves its registers.

A block is as many members as one vector holds. Scalar code finds what precedes impulses (`Prepare`), and where positions
arrive (`Ends`), for all of a block; contact problems are solved member by member, as `_newton_code` does, and read rows
and inverse inertia where they were computed. So a step waits for the slowest of a block, not of a batch.
"""

from collections.abc import Callable, Sequence
from typing import final

import numpy as np

from .._compiler import Function, Kind, Place, Spread, Stage, Text, Value, Written
from ._newton_code import Kernel
from ._penetration import TRIES
from ._rows import Layout

Rows = Callable[[Value, Value], Value]
"""What rows hold, by row and member."""


@final
class StepKernel:
    """Writes the function.

    **Arguments:**

    - `layout`: of the contacts.
    - `before`, `after`: the programs.
    - `how`: the tolerance of contact problems, and the numbers of what the function returns, as `StepCode` says.
    - `kind`: of the vectors of a block.
    - `shared`: which operands are the same for all members.
    """

    def __init__(
        self,
        layout: Layout,
        before: Written,
        after: Written,
        how: tuple[float, tuple[int, ...]],
        kind: Kind,
        shared: tuple[bool, ...],
    ):
        tolerance, self.sizes = how
        self.width, self.shared, self.f = kind.width, shared, (f := Function(kind.dtype))
        self.newton = Kernel(layout.contacts, self.sizes[1], tolerance, kind.dtype)
        free = f.given("%work")
        self.before = Stage(f, before, "before", kind, free)
        self.after = Stage(f, after, "after", kind, free.at(self.before.size))
        self.counts = [
            before.counts[0],
            after.counts[0],
            *before.counts[3:],
            *before.counts[1:3],
            self.sizes[2],
        ]
        sizes = self.newton.sizes
        # Of each member: the guess of impulses, whether there is a problem to solve, that problem, and what was found.
        rows = np.cumsum([0, self.sizes[2], 1, *sizes.operands[2:], *sizes.found]) * kind.width
        start = self.before.size + self.after.size
        self.guess, self.going, *places = (free.at(start + int(x)) for x in rows[:-1])
        self.problem, self.found = places[:6], places[6:]
        self.newton.begin(f, free.at(start + int(rows[-1])))
        self.numbers = start + int(rows[-1]) + sizes.numbers

    def text(self) -> Text:
        """The code."""
        f, width, stages = self.f, self.width, (self.before, self.after)
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
        return Text(code, self.numbers, Stage.functions(stages))

    def _filled(self, shared: bool, first: Value | int = 0, members: Value | int = 1) -> None:
        """Fills the inputs of both programs that are the same for all members, or the others."""
        numbers, q, v, *rest = self.before.inputs
        others, q_after, _, _, t_after, h_after, *_ = self.after.inputs
        t, h, *laws = rest
        places = (
            [numbers],
            [others],
            [t, t_after],
            [h, h_after],
            *([x] for x in laws),
            [q, q_after],
            [v],
            [self.guess],
        )
        for i, (to, count) in enumerate(zip(places, self.counts, strict=True)):
            if self.shared[i] == shared:
                with self.f.loop(count) as j:
                    of = self.f.given(f"%given{i}").at(j if shared else j * members + first)
                    with self.f.loop(self.width) as k:
                        for place in to:
                            place[j * self.width + k] = of[0 if shared else k]

    def _rows(self, count: int, to: Place, of: Rows) -> None:
        """Sets rows of all members, as a function of row and member."""
        with self.f.loop(count) as j, self.f.loop(self.width) as k:
            to[j * self.width + k] = of(j, k)

    def _told(self, leaf: int, count: int, found: Place, members: Value, of: Rows) -> None:
        """Sets what the function returns."""
        to = found.at(members * sum(self.sizes[:leaf]))
        with self.f.loop(count) as j, self.f.loop(self.width) as k:
            to[j * members + k] = of(j, k)

    def _own(self, place: Place) -> Rows:
        return lambda j, k: place[j * self.width + k]

    def _of(self, stage: Stage, leaf: int) -> Rows:
        return lambda j, k: stage.output(leaf, k)[j]

    def _member_by_member(self, found: Place, members: Value) -> None:
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
            for place, of, count in zip(
                self.after.inputs[-2:], (self.found[5], self.found[0]), (v, m), strict=True
            ):
                self._rows(count, place, self._own(of))
            self.after.call()
            some[0] = 0.0
            with f.loop(width) as k:
                self.going[k] = self.after.output(3, k)[0]
                some[0] = f.max(some[0], self.going[k])
            again.append(((some[0] > 0.5) & (tries[0] < TRIES)).name)
            tries[0] = tries[0] + 1.0
            of_after = lambda leaf: self._of(self.after, leaf)
            back = lambda j, k: 0.0 - self.found[5][j * width + k]
            self._posed((back, of_after(1), nothing, nothing, of_after(2), self._own(self.found[0])))
        self._told(0, n_q, found, members, self._of(self.after, 0))

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

    def _struck(self, found: Place, members: Value) -> None:
        """What impulses leave; there is no displacement yet."""
        f, (n_q, v, m, _, _, n, _, _), width = self.f, self.sizes, self.width
        _, _, both, v_after, *_ = self.after.inputs
        before, change = self.before.inputs[2], self.found[5]
        self._rows(n_q, self.after.inputs[6], self._of(self.before, 0))
        self._rows(v, v_after, lambda j, k: self.before.output(1, k)[j] + change[j * width + k])
        self._rows(v, both, lambda j, k: before[j * width + k] + v_after[j * width + k])
        self._told(1, v, found, members, self._own(v_after))
        for leaf, (count, of) in enumerate(zip((m, 1, 1, n, n), self.found, strict=False), 2):
            self._told(leaf, count, found, members, self._own(of))
        self._told(7, n, found, members, self._of(self.before, 6))
        for count, of in ((m, self.found[0]), (v, change)):
            self._rows(count, of, lambda j, k: f.value(0.0))
