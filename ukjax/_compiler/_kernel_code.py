"""Scalar programs written for LLVM: a loop over blocks of members, and within it loops over what repeats in the program.

A block is as many members as one vector holds. All its numbers stand in registers, those of `_registers`: rows of one
number for each member. A pass of a part mostly reads rows that are as far as its own from those of the pass before, so
that it is nothing but arithmetic on memory.

XLA's loops for a CPU cannot be that: their operands are copied to arrays of their own, as is each result, of which LLVM
does not know that none overlaps another; and long ones take minutes to compile.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .._misc._garbage import collector_paused
from ._machine_code import Instructions, Kind
from ._registers import Part, ProgramParts

MOST_CALLS = 16
"""How many times a program is run at most: each brings positions nearer, and two or three are usual."""


class Again(NamedTuple):
    """How a program is run again: in members where one output is above a half, with others in place of its last operand.

    That operand is zero at first. Members that are done keep theirs, and so compute the same for as long as others go on.

    - `flag`: the output that says so.
    - `first`, `size`: which outputs take the operand's place, and how many.
    """

    flag: int
    first: int
    size: int


class Operand(NamedTuple):
    """An array of inputs: how many, and whether they are the same for all members."""

    inputs: int
    shared: bool


def table(name: str, kind: str, entries: Any) -> str:
    """A constant array."""
    listed = ", ".join(f"{kind} {x}" for x in entries)
    return f"@{name} = internal constant [{len(entries)} x {kind}] [{listed}]"


def _loop(name: str, count: int | str, body: Sequence[str]) -> str:
    """A function that counts %k up from zero. It is given registers, numbers elsewhere, `%count` and `%members`."""
    given = "ptr noalias %registers, ptr noalias %numbers, i64 %count, i64 %members"
    head = [f"define internal void @{name}({given}) {{", "  br label %pass", "pass:"]
    end = ["  %next = add i64 %k, 1", f"  %more = icmp ult i64 %next, {count}"]
    end += ["  br i1 %more, label %pass, label %done", "done:", "  ret void", "}"]
    return "\n".join([*head, "  %k = phi i64 [0, %0], [%next, %pass]", *body, *end])


def _part(name: str, part: Part, kind: Kind) -> tuple[list[str], dict[str, int]]:
    """One part as a function, with the table of rows it reads at no regular distance; and the functions of C it calls."""
    vector, irregular, apart = kind.vector, list[np.ndarray](), np.diff(part.reads.astype(int), axis=0)
    regular = (apart == apart[:1]).all(axis=0).tolist()
    first, distances = part.reads[0].tolist(), (apart[0] if len(apart) else 0 * part.reads[0]).tolist()
    starts = dict[
        int, str
    ]()  # where a pass counts rows from, by how far that is from where the one before does

    def row(body: Instructions, first: int, distance: int) -> str:
        start = starts.setdefault(distance, f"%start{len(starts)}")
        return body(f"getelementptr {vector}, ptr {start}, i64 {first}")

    def load(body: Instructions, i: int) -> str:
        if regular[i]:
            place = row(body, first[i], distances[i])
        else:
            irregular.append(part.reads[:, i])
            entry = body(f"getelementptr i32, ptr %entries, i64 {len(irregular) - 1}")
            place = body(f"getelementptr {vector}, ptr %registers, i32 {body(f'load i32, ptr {entry}')}")
        return body(f"load {vector}, ptr {place}, align {kind.bytes}")

    def store(body: Instructions, i: int, value: str) -> None:
        place = row(body, part.writes + i, len(part.outputs) if len(part.reads) > 1 else 0)
        body.lines.append(f"  store {vector} {value}, ptr {place}, align {kind.bytes}")

    body, before = Instructions(kind, load), list[str]()
    body.compute(part.outputs, store)
    for distance, start in starts.items():
        before += [f"  {start}.row = mul i64 %k, {distance}"]
        before += [f"  {start} = getelementptr {vector}, ptr %registers, i64 {start}.row"]
    if irregular:
        before += [f"  %entry = mul i64 %k, {len(irregular)}"]
        before += [f"  %entries = getelementptr i32, ptr @{name}.rows, i64 %entry"]
    tables = [table(f"{name}.rows", "i32", np.array(irregular).T.ravel())] if irregular else []
    return [*tables, _loop(name, len(part.reads), [*before, *body.lines])], body.called


def _moves(kind: Kind, outputs: Sequence[int]) -> list[str]:
    """What fills registers with numbers of members, or with one for all of them, and what takes out outputs."""
    vector, number, at = kind.vector, kind.number, f"align {kind.bytes}"
    own = f"  %own = getelementptr {vector}, ptr %registers, i64 %k"
    theirs = f"  %first = mul i64 %k, %members\n  %theirs = getelementptr {number}, ptr %numbers, i64 %first"
    load = f"  %x = load {vector}, ptr"
    store = f"  store {vector} %x, ptr"
    of_one = Instructions(kind, lambda body, i: "")
    spread = kind.spread(of_one, "%one")
    to_spread = [f"  %place = getelementptr {number}, ptr %numbers, i64 %k"]
    to_spread += [f"  %one = load {number}, ptr %place", *of_one.lines]
    kept = f"""  %entry = getelementptr i32, ptr @outputs, i64 %k
  %row = load i32, ptr %entry
  %own = getelementptr {vector}, ptr %registers, i32 %row"""
    return [
        _loop("filled", "%count", [own, theirs, f"{load} %theirs, {at}", f"{store} %own, {at}"]),
        _loop("spread", "%count", [own, *to_spread, f"  store {vector} {spread}, ptr %own, {at}"]),
        table("outputs", "i32", outputs),
        _loop("taken", "%count", [kept, theirs, f"{load} %own, {at}", f"{store} %theirs, {at}"]),
    ]


@collector_paused()
def part_functions(parts: ProgramParts, kind: Kind, prefix: str = "") -> tuple[list[str], dict[str, int]]:
    """The parts of a program as functions, with the table of its constants, and the functions of C that they call."""
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


def text(parts: ProgramParts, operands: Sequence[Operand], kind: Kind, again: Again | None = None) -> str:
    """The function `compute` of registers, outputs, the number of members, and arrays of inputs.

    Inputs and outputs are arrays (count, members); what is the same for all members (count,). Members are at least as
    many as a vector holds.

    **Arguments:**

    - `parts`: of the program.
    - `operands`: what holds its inputs, but for the last one of a program that is run again.
    - `kind`: of the vectors.
    - `again`: how it is run again, if it is.
    """
    written, called = part_functions(parts, kind)
    lines = [*_moves(kind, parts.outputs), *written, *declared(called, kind)]
    calls = [f"  call void @part{i}(ptr %registers, ptr null, i64 0, i64 0)" for i in range(len(parts.parts))]
    if again:
        lines += _of_last(parts, kind, again, len(parts.constants) + sum(x.inputs for x in operands))
        calls = _until_done(parts, kind, again, calls)
    else:
        calls += ["  br label %computed"]
    return "\n".join([*lines, _blocks(parts, operands, kind, calls)])


def _of_last(parts: ProgramParts, kind: Kind, again: Again, last: int) -> list[str]:
    """What sets the last operand, whose first row is given: to zero, and to outputs in members that go on."""
    vector, at = kind.vector, f"align {kind.bytes}"
    own = [f"  %row = add i64 %k, {last}", f"  %own = getelementptr {vector}, ptr %registers, i64 %row"]
    zero = f"  store {vector} {kind.constant(0.0)}, ptr %own, {at}"
    changed = f"""  %flag.row = getelementptr {vector}, ptr %registers, i64 {parts.outputs[again.flag]}
  %flag = load {vector}, ptr %flag.row, {at}
  %goes.on = fcmp ogt {vector} %flag, {kind.constant(0.5)}
  %output = add i64 %k, {again.first}
  %entry = getelementptr i32, ptr @outputs, i64 %output
  %found.row = load i32, ptr %entry
  %found = getelementptr {vector}, ptr %registers, i32 %found.row
  %new = load {vector}, ptr %found, {at}
  %old = load {vector}, ptr %own, {at}
  %x = select {kind.truths} %goes.on, {vector} %new, {vector} %old
  store {vector} %x, ptr %own, {at}"""
    return [_loop("cleared", "%count", [*own, zero]), _loop("changed", "%count", [*own, changed])]


def _until_done(parts: ProgramParts, kind: Kind, again: Again, calls: Sequence[str]) -> list[str]:
    """The calls of a block, until no member of it goes on."""
    vector, width = kind.vector, kind.width
    given = f"(ptr %registers, ptr null, i64 {again.size}, i64 0)"
    return [
        f"  call void @cleared{given}",
        "  br label %pass",
        "pass:",
        "  %calls = phi i64 [0, %block], [%called, %pass]",
        *calls,
        f"  %flag.row = getelementptr {vector}, ptr %registers, i64 {parts.outputs[again.flag]}",
        f"  %flag = load {vector}, ptr %flag.row, align {kind.bytes}",
        f"  %go.on = fcmp ogt {vector} %flag, {kind.constant(0.5)}",
        f"  %which = bitcast {kind.truths} %go.on to i{width}",
        f"  %some = icmp ne i{width} %which, 0",
        f"  call void @changed{given}",
        "  %called = add i64 %calls, 1",
        f"  %few = icmp ult i64 %called, {MOST_CALLS}",
        "  %goes.on = and i1 %few, %some",
        "  br i1 %goes.on, label %pass, label %computed",
    ]


def _blocks(parts: ProgramParts, operands: Sequence[Operand], kind: Kind, calls: Sequence[str]) -> str:
    """The loop over blocks. The last one ends where members do: some are computed twice rather than fewer at a time."""
    constants = Operand(len(parts.constants), shared=True)
    once, each, row = list[str](), list[str](), 0
    for i, (count, shared) in enumerate([constants, *operands]):
        place = "@constants" if i == 0 else f"%in{i - 1}"
        once += [f"  %rows{i} = getelementptr {kind.vector}, ptr %registers, i64 {row}"]
        if shared and count:
            once += [f"  call void @spread(ptr %rows{i}, ptr {place}, i64 {count}, i64 0)"]
        elif count:
            each += [f"  %some{i} = getelementptr {kind.number}, ptr {place}, i64 %start"]
            each += [f"  call void @filled(ptr %rows{i}, ptr %some{i}, i64 {count}, i64 %members)"]
        row += count
    each += [*calls, "computed:"]
    if parts.outputs:
        each += [f"  %out = getelementptr {kind.number}, ptr %outputs, i64 %start"]
        each += [f"  call void @taken(ptr %registers, ptr %out, i64 {len(parts.outputs)}, i64 %members)"]
    lines, given = "\n".join, ", ".join(f"ptr %in{i}" for i in range(len(operands)))
    return f"""define void @compute(ptr %registers, ptr %outputs, i64 %members, {given}) {{
  %last = sub i64 %members, {kind.width}
{lines(once)}
  br label %block
block:
  %member = phi i64 [0, %0], [%after, %computed]
  %fits = icmp ult i64 %member, %last
  %start = select i1 %fits, i64 %member, i64 %last
{lines(each)}
  %after = add i64 %start, {kind.width}
  %more = icmp ult i64 %after, %members
  br i1 %more, label %block, label %done
done:
  ret void
}}"""
