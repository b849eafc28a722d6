"""Scalar programs as stages of a function with loops (`_loops`): they compute a block of members, on registers of its."""

from collections.abc import Iterable, Sequence
from typing import final

from ._loops import ArrayPlace, Function, Spread, Value
from ._machine_code import Kind
from ._program import Program
from ._routine import declared, part_functions, table


@final
class Stage:
    """A program called within a function.

    - `inputs`: where each of its operands begins, a row a number.
    - `size`: how many numbers it works with.

    **Arguments:**

    - `f`: the function.
    - `program`: the program.
    - `counts`: of the numbers of its operands, those of none included.
    - `starts`: of the arrays it returns, where among its outputs each begins.
    - `name`: of it.
    - `kind`: of the vectors of a block.
    - `place`: where so many numbers are free.
    """

    def __init__(
        self,
        f: Function,
        program: Program,
        counts: Sequence[int],
        starts: Sequence[int],
        name: str,
        kind: Kind,
        place: ArrayPlace,
    ):
        self._f, self._name, self._kind, self._place = f, name, kind, place
        self._parts, self._starts = program.native, starts
        row, self.inputs = len(self._parts.constants), list[ArrayPlace]()
        for count in counts:
            self.inputs.append(place.at(row * kind.width))
            row += count
        self.size = self._parts.size * kind.width
        self._functions, self.called = part_functions(self._parts, kind, f"{name}.")

    def spread(self) -> None:
        """Writes what sets its constants, once for all blocks."""
        f, width = self._f, self._kind.width
        with f.loop(len(self._parts.constants)) as i:
            x = f.given(f"@{self._name}.given")[i]
            with f.loop(width) as k:
                self._place[i * width + k] = x

    def call(self) -> None:
        """Writes what runs it."""
        for i in range(len(self._parts.parts)):
            self._f.w.do(f"call void @{self._name}.part{i}(ptr {self._place.name})")

    def output(self, i: int, member: Value) -> Spread:
        """The numbers of an array it returns, of one member of the block."""
        which = self._f.given(f"@{self._name}.found", "i64").at(self._starts[i])
        return Spread(self._place.at(member), self._kind.width, which)

    def tables(self) -> list[str]:
        """What the function needs of it."""
        constants = [self._kind.literal(x) for x in self._parts.constants]
        parts = [f"declare void @{self._name}.part{i}(ptr)" for i in range(len(self._parts.parts))]
        return [
            table(f"{self._name}.given", self._kind.number, constants),
            table(f"{self._name}.found", "i64", self._parts.outputs),
            *parts,
        ]

    @staticmethod
    def functions(stages: Sequence["Stage"]) -> str:
        """The programs themselves."""
        called: dict[str, int] = {}
        for stage in stages:
            called |= stage.called
        written: Iterable[str] = (
            x.replace("define internal", "define") for s in stages for x in s._functions
        )
        return "\n".join([*declared(called, stages[0]._kind), *written])
