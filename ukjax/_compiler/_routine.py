"""Scalar programs as parts of a larger LLVM function: each works on rows of its own in one array.

A row holds one number for each lane, and so is one vector. The rows of a program are its constants, its inputs, and what
its parts store: the registers of `_registers`. A part is a loop over what repeats in the program. A pass of it mostly
reads rows that are as far as its own from those of the pass before, so that it is nothing but arithmetic on memory.

XLA's loops for a CPU cannot be that: their operands are copied to arrays of their own, as is each result, of which LLVM
does not know that none overlaps another; and long ones take minutes to compile.
"""

import functools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, final

import numpy as np

from .._misc._garbage import collector_paused
from ._llvm_text import Writer
from ._machine_code import Instructions, Kind
from ._registers import Part, ProgramParts

MOST_CALLS = 16
"""How many times a program is run at most: each brings positions nearer, and two or three are usual."""

_MOVERS = {"blend": ", ptr %where", "take": ", ptr %table", "spread": ""}


class Again(NamedTuple):
    """How a program is run again: in members where one output is above a half, with others in place of its last operand.

    That operand is zero at first. Members that are done keep theirs, and so compute the same for as long as others go on.

    - `flag`: the output that says so.
    - `first`, `size`: which outputs take the operand's place, and how many.
    """

    flag: int
    first: int
    size: int


def table(name: str, kind: str, entries: Any) -> str:
    """A constant array."""
    listed = ", ".join(f"{kind} {x}" for x in entries)
    return f"@{name} = internal constant [{len(entries)} x {kind}] [{listed}]"


def _part(name: str, part: Part, kind: Kind) -> tuple[list[str], dict[str, int]]:
    """One part as a function, with the table of rows it reads at no regular distance; and the functions of C it calls."""
    w, vector, aligned = Writer(), kind.vector, f", align {kind.bytes}"
    apart = np.diff(part.reads.astype(int), axis=0)
    regular = (apart == apart[:1]).all(axis=0)
    irregular, columns = part.reads[:, ~regular], np.cumsum(~regular) - 1
    distances = apart[0] if len(apart) else 0 * part.reads[0]
    with w.loop(len(part.reads)) as k:
        # Where a pass counts rows from, by how far that is from where the one before does.
        start = functools.cache(lambda apart: w.at(vector, "%rows", w.apply("mul", "i64", k, apart)))
        entries = functools.cache(
            lambda: w.at("i32", f"@{name}.rows", w.apply("mul", "i64", k, irregular.shape[1]))
        )

        def load(i: int) -> str:
            if regular[i]:
                place = w.at(vector, start(int(distances[i])), int(part.reads[0, i]))
            else:
                row = w.load("i32", w.at("i32", entries(), int(columns[i])))
                place = w(f"getelementptr {vector}, ptr %rows, i32 {row}")
            return w.load(vector, place, aligned)

        def store(i: int, value: str) -> None:
            place = w.at(vector, start(len(part.outputs) if len(part.reads) > 1 else 0), part.writes + i)
            w.store(vector, value, place, aligned)

        body = Instructions(w, kind, load)
        body.compute(part.outputs, store)
    tables = [table(f"{name}.rows", "i32", irregular.ravel())] if irregular.size else []
    return [*tables, w.function(name, "ptr %rows")], body.called


@collector_paused()
def part_functions(parts: ProgramParts, kind: Kind, prefix: str = "") -> tuple[list[str], dict[str, int]]:
    """The parts of a program as functions of its rows, the table of its constants, and the functions of C they call."""
    lines, called = list[str](), dict[str, int]()
    for i, part in enumerate(parts.parts):
        written, needed = _part(f"{prefix}part{i}", part, kind)
        lines += written
        called |= needed
    lines += [table(f"{prefix}constants", kind.number, [kind.literal(x) for x in parts.constants])]
    return lines, called


def declared(called: dict[str, int], kind: Kind) -> list[str]:
    """The declarations of functions of C.

    **Arguments:**

    - `called`: with how many operands each.
    - `kind`: of the vectors.
    """
    return [f"declare {kind.number} @{name}({', '.join([kind.number] * n)})" for name, n in called.items()]


@final
class RegisterRows:
    """Gives out the rows of the array `%rows`, and writes what moves them."""

    def __init__(self, kind: Kind):
        self.kind, self.size, self.aligned = kind, 0, f", align {kind.bytes}"

    def new(self, count: int) -> int:
        """The first of so many new rows."""
        self.size += count
        return self.size - count

    def place(self, w: Writer, row: int) -> str:
        """Where a row is."""
        return w.at(self.kind.vector, "%rows", row)

    def load(self, w: Writer, row: int) -> str:
        """The numbers of a row."""
        return w.load(self.kind.vector, self.place(w, row), self.aligned)

    def any(self, w: Writer, row: int) -> str:
        """Whether a row marks a lane."""
        width = self.kind.width
        marked = w.apply("fcmp ogt", self.kind.vector, self.load(w, row), self.kind.constant(0.5))
        if width == 1:
            return marked
        return w.apply("icmp ne", f"i{width}", w(f"bitcast {self.kind.truths} {marked} to i{width}"), 0)

    def blend(self, w: Writer, to: int, of: int, where: int, count: int = 1) -> None:
        """Sets rows to others in the lanes that another row marks."""
        given = ", ".join(f"ptr {self.place(w, row)}" for row in (to, of, where))
        w.do(f"call void @blend({given}, i64 {count})")

    def clear(self, w: Writer, row: int, count: int) -> None:
        """Sets rows to zero."""
        w.do(f"call void @clear(ptr {self.place(w, row)}, i64 {count})")

    def spread(self, w: Writer, to: int, numbers: str, count: int) -> None:
        """Sets each of so many rows to one number, of those at a place."""
        if count:
            w.do(f"call void @spread(ptr {self.place(w, to)}, ptr {numbers}, i64 {count})")

    def functions(self) -> Iterator[str]:
        """The functions that move rows."""
        for name, given in _MOVERS.items():
            yield self._mover(name, given)
        w = Writer()
        with w.loop("%count") as k:
            w.store(self.kind.vector, self.kind.constant(0.0), w.at(self.kind.vector, "%to", k), self.aligned)
        yield w.function("clear", "ptr %to, i64 %count")

    def _mover(self, name: str, given: str) -> str:
        """A function that sets `%count` rows from `%to` on, from `%of`."""
        w, kind, vector = Writer(), self.kind, self.kind.vector
        marked = ""
        if name == "blend":
            where = w.load(vector, "%where", self.aligned)
            marked = w.apply("fcmp ogt", vector, where, kind.constant(0.5))
        with w.loop("%count") as k:
            to, of = w.at(vector, "%to", k), k
            if name == "take":
                entry = w.load("i32", w.at("i32", "%table", k))
                of = w(f"zext i32 {entry} to i64")
            if name == "spread":
                x = kind.spread(w, w.load(kind.number, w.at(kind.number, "%of", k)))
            else:
                x = w.load(vector, w.at(vector, "%of", of), self.aligned)
            if name == "blend":
                before = w.load(vector, to, self.aligned)
                x = w(f"select {kind.truths} {marked}, {vector} {x}, {vector} {before}")
            w.store(vector, x, to, self.aligned)
        return w.function(name, f"ptr %to, ptr %of{given}, i64 %count")


@final
class Routine:
    """A program on rows of its own.

    - `inputs`: the row of its first input.

    **Arguments:**

    - `name`: before the names of all it is written as.
    - `parts`: of the program.
    - `rows`: where it gets its rows.
    """

    def __init__(self, name: str, parts: ProgramParts, rows: RegisterRows):
        self._name, self._parts, self._rows = name, parts, rows
        self._start = rows.new(parts.size)
        self.inputs = self._start + len(parts.constants)

    def text(self) -> tuple[list[str], dict[str, int]]:
        """Its functions and tables, and the functions of C that it calls."""
        lines, called = part_functions(self._parts, self._rows.kind, self._name)
        return [*lines, table(f"{self._name}outputs", "i32", self._parts.outputs)], called

    def begin(self, w: Writer) -> None:
        """Sets its constants, which stay."""
        self._rows.spread(w, self._start, f"@{self._name}constants", len(self._parts.constants))

    def run(self, w: Writer, to: int) -> None:
        """Computes its outputs, into rows from `to` on."""
        start, count = self._rows.place(w, self._start), len(self._parts.outputs)
        for i in range(len(self._parts.parts)):
            w.do(f"call void @{self._name}part{i}(ptr {start})")
        given = f"ptr {self._rows.place(w, to)}, ptr {start}, ptr @{self._name}outputs, i64 {count}"
        w.do(f"call void @take({given})")

    def repeat(self, w: Writer, to: int, again: Again, last: int) -> None:
        """Computes its outputs until no lane goes on, or it was run often enough.

        **Arguments:**

        - `w`: writes it; of a function that has an integer `%calls` to count in.
        - `to`: the row of the first output.
        - `again`: how it is run again.
        - `last`: the row of what it is given again.
        """
        rows, flag = self._rows, to + again.flag
        rows.clear(w, last, again.size)
        w.store("i64", 0, "%calls")
        with w.repeat() as going:
            self.run(w, to)
            rows.blend(w, last, to + again.first, flag, again.size)
            few = w.apply("icmp ult", "i64", w.increased("%calls"), MOST_CALLS)
            going.append(w.apply("and", "i1", few, rows.any(w, flag)))


def texts(routines: Sequence[Routine], kind: Kind) -> str:
    """All routines, with the declarations of what they call."""
    lines, called = list[str](), dict[str, int]()
    for routine in routines:
        written, needed = routine.text()
        lines, called = lines + written, called | needed
    return "\n".join([*lines, *declared(called, kind)])
