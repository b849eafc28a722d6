"""Scalar programs as parts of a larger LLVM function: each works on rows of its own in one array.

A row holds one number for each lane, and so is one vector. The rows of a program are its constants, its inputs, and what
its parts store.
"""

from collections.abc import Iterator, Sequence
from typing import final

from ._kernel_code import declared, part_functions, table
from ._llvm_text import Writer
from ._machine_code import Kind
from ._program import Program


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

    def store(self, w: Writer, value: str | float, row: int) -> None:
        """Sets a row to numbers, or all of it to one number."""
        value = value if isinstance(value, str) else self.kind.constant(value)
        w.store(self.kind.vector, value, self.place(w, row), self.aligned)

    def number(self, w: Writer, row: int, lane: str) -> str:
        """Where the number of one lane is."""
        return w.at(self.kind.number, self.place(w, row), lane)

    def product(self, w: Writer, x: str, row: int) -> str:
        """Numbers times those of a row."""
        return w.apply("fmul", self.kind.vector, x, self.load(w, row))

    def is_marked(self, w: Writer, row: int, lane: str) -> str:
        """Whether a row marks a lane: by 1, in place of 0."""
        x = w.load(self.kind.number, self.number(w, row, lane))
        return w.apply("fcmp ogt", self.kind.number, x, self.kind.literal(0.5))

    def any(self, w: Writer, row: int) -> str:
        """Whether a row marks a lane."""
        width = self.kind.width
        marked = w.apply("fcmp ogt", self.kind.vector, self.load(w, row), self.kind.constant(0.5))
        if width == 1:
            return marked
        return w.apply("icmp ne", f"i{width}", w(f"bitcast {self.kind.truths} {marked} to i{width}"), 0)

    def copy(self, w: Writer, to: int, of: int, count: int = 1) -> None:
        """Sets rows to others."""
        if count:
            w.do(f"call void @copy(ptr {self.place(w, to)}, ptr {self.place(w, of)}, i64 {count})")

    def blend(self, w: Writer, to: int, of: int, where: int, count: int = 1) -> None:
        """Sets rows to others in the lanes that another row marks."""
        given = ", ".join(f"ptr {self.place(w, row)}" for row in (to, of, where))
        w.do(f"call void @blend({given}, i64 {count})")

    def clear(self, w: Writer, row: int, count: int) -> None:
        """Sets rows to zero."""
        w.do(f"call void @clear(ptr {self.place(w, row)}, i64 {count})")

    def functions(self) -> Iterator[str]:
        """The functions that move rows."""
        for name, given in {
            "copy": "",
            "blend": ", ptr %where",
            "take": ", ptr %table",
            "spread": "",
        }.items():
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
    - `program`: the program.
    - `rows`: where it gets its rows.
    """

    def __init__(self, name: str, program: Program, rows: RegisterRows):
        self._name, self._parts, self._rows = name, program.native, rows
        self._start = rows.new(self._parts.size)
        self.inputs = self._start + len(self._parts.constants)

    def text(self) -> tuple[list[str], dict[str, int]]:
        """Its functions and tables, and the functions of C that it calls."""
        lines, called = part_functions(self._parts, self._rows.kind, self._name)
        return [*lines, table(f"{self._name}outputs", "i32", self._parts.outputs)], called

    def begin(self, w: Writer) -> None:
        """Sets its constants, which stay."""
        place, count = self._rows.place(w, self._start), len(self._parts.constants)
        w.do(f"call void @spread(ptr {place}, ptr @{self._name}constants, i64 {count})")

    def run(self, w: Writer, to: int) -> None:
        """Computes its outputs, into rows from `to` on."""
        start, count = self._rows.place(w, self._start), len(self._parts.outputs)
        for i in range(len(self._parts.parts)):
            w.do(f"call void @{self._name}part{i}(ptr {start}, ptr null, i64 0, i64 0)")
        given = f"ptr {self._rows.place(w, to)}, ptr {start}, ptr @{self._name}outputs, i64 {count}"
        w.do(f"call void @take({given})")


def texts(routines: Sequence[Routine], kind: Kind) -> str:
    """All routines, with the declarations of what they call."""
    lines, called = list[str](), dict[str, int]()
    for routine in routines:
        written, needed = routine.text()
        lines, called = lines + written, called | needed
    return "\n".join([*lines, *declared(called, kind)])
