"""Scalar programs mapped over members, written for LLVM: a loop over blocks of as many members as one vector holds."""

from collections.abc import Sequence
from typing import NamedTuple

from ._llvm_text import Writer
from ._machine_code import Kind
from ._registers import ProgramParts
from ._routine import Again, RegisterRows, Routine, texts


class Operand(NamedTuple):
    """An array of inputs: how many, and whether they are the same for all members."""

    inputs: int
    shared: bool


def rows_of(parts: ProgramParts) -> int:
    """How many rows `text` works with."""
    return parts.size + len(parts.outputs)


def text(parts: ProgramParts, operands: Sequence[Operand], kind: Kind, again: Again | None = None) -> str:
    """The function `compute` of rows to work with, outputs, the number of members, and arrays of inputs.

    Inputs and outputs are arrays (count, members); what is the same for all members (count,). Members are at least as
    many as a vector holds: the last block ends where they do, so some are computed twice rather than fewer at a time.

    **Arguments:**

    - `parts`: of the program.
    - `operands`: what holds its inputs, but for the last one of a program that is run again.
    - `kind`: of the vectors.
    - `again`: how it is run again, if it is.
    """
    w, rows, own = Writer(), RegisterRows(kind), list[tuple[int, int]]()
    program = Routine("", parts, rows)
    outputs, row = rows.new(len(parts.outputs)), program.inputs
    w.do("%calls = alloca i64")
    program.begin(w)
    for i, (count, shared) in enumerate(operands):
        if shared:
            rows.spread(w, row, f"%in{i}", count)
        own += [] if shared else [(i, row)]
        row += count
    last = w.apply("sub", "i64", "%members", kind.width)
    blocks = w.apply("udiv", "i64", w.apply("add", "i64", "%members", kind.width - 1), kind.width)
    with w.loop(blocks) as k:
        first = w.apply("mul", "i64", k, kind.width)
        fits = w.apply("icmp ult", "i64", first, last)
        start = w(f"select i1 {fits}, i64 {first}, i64 {last}")
        for i, to in own:
            _move(w, rows, "read", to, w.at(kind.number, f"%in{i}", start), operands[i].inputs)
        if again:
            program.repeat(w, outputs, again, row)
        else:
            program.run(w, outputs)
        _move(w, rows, "write", outputs, w.at(kind.number, "%outputs", start), len(parts.outputs))
    given = ["ptr %rows", "ptr %outputs", "i64 %members", *(f"ptr %in{i}" for i in range(len(operands)))]
    movers = [*rows.functions(), _mover(rows, "read"), _mover(rows, "write")]
    return "\n".join(
        [*movers, texts([program], kind), w.function("compute", ", ".join(given), internal=False)]
    )


def _move(w: Writer, rows: RegisterRows, name: str, row: int, numbers: str, count: int) -> None:
    """Reads or writes rows from one on, of an array whose numbers for a member stand `%members` apart."""
    w.do(f"call void @{name}(ptr {rows.place(w, row)}, ptr {numbers}, i64 {count}, i64 %members)")


def _mover(rows: RegisterRows, name: str) -> str:
    w, vector = Writer(), rows.kind.vector
    with w.loop("%count") as k:
        own = w.at(vector, "%own", k)
        theirs = w.at(rows.kind.number, "%numbers", w.apply("mul", "i64", k, "%members"))
        of, to = (theirs, own) if name == "read" else (own, theirs)
        w.store(vector, w.load(vector, of, rows.aligned), to, rows.aligned)
    return w.function(name, "ptr %own, ptr %numbers, i64 %count, i64 %members")
