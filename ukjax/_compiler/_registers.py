"""Long programs as loops over registers: each stretch of operations compiled once, its operands looked up.

All numbers that pass from one stretch to another stand in one array of registers: constants first, then the inputs,
then what each stretch stores, pass after pass.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .._misc._garbage import collector_paused
from ._expressions import Expression, Node, is_truth, reachable
from ._pieces import pieces
from ._repeats import stretches
from ._scalars import Builder


class Part(NamedTuple):
    """A stretch as a program of its own.

    - `outputs`: of one pass; their inputs are numbered as the columns of `reads`.
    - `reads`: registers (passes, inputs).
    - `writes`: the register of the first output of the first pass; the others follow.
    """

    outputs: list[Expression]
    reads: np.ndarray
    writes: int


class ProgramParts(NamedTuple):
    """A program in parts.

    - `constants`: what the first registers hold; the inputs follow.
    - `parts`: in the order they are to be run.
    - `size`: the number of registers.
    - `outputs`: the register of each output of the program.
    """

    constants: list[float]
    parts: list[Part]
    size: int
    outputs: list[int]


class _Registers:
    """Gives registers to constants, inputs and stored operations. Those of constants count down from -1."""

    def __init__(self, count: int):
        self.constants: dict[float, int] = {}
        self.stored: dict[Node, int] = {}
        self.size = count

    def of(self, x: Expression) -> int:
        if not isinstance(x, Node):
            return self.constants.setdefault(float(x), -1 - len(self.constants))
        return x.args[0] if x.op == "input" else self.stored[x]


def _part(passes: Sequence[Sequence[Node]], wanted: set[Node], registers: _Registers) -> Part:
    """One stretch, given by its passes; stores what is wanted elsewhere."""
    kept = [i for i in range(len(passes[0])) if any(nodes[i] in wanted for nodes in passes)]
    writes = registers.size
    for nodes in passes:
        registers.stored |= {nodes[i]: registers.size + k for k, i in enumerate(kept)}
        registers.size += len(kept)

    build, reads = Builder(), {}
    made: dict[Expression, Expression] = {}

    def read(each: tuple[Expression, ...]) -> Expression:
        found = build.input(reads.setdefault(tuple(map(registers.of, each)), len(reads)))
        return build.apply("ne", found, 0.0) if any(map(is_truth, each)) else found

    read_once = functools.cache(read)

    def operand(each: tuple[Expression, ...]) -> Expression:
        first = each[0]
        if type(first) is Node:
            return made[first] if first in made else read_once(each)
        if all(type(x) is type(first) and x == first for x in each):
            return first
        return read(each)  # each time: of constants 1.0 and True are equal

    for several in zip(*passes, strict=True):
        args = map(operand, zip(*(x.args for x in several), strict=True))
        made[several[0]] = build.repeated(several[0].op, *args)
    outputs = [build.number(made[passes[0][i]], is_truth(passes[0][i])) for i in kept]
    return Part(outputs, np.array(list(reads), np.int32).reshape(-1, len(passes)).T, writes)


def _wanted(every: Sequence[Sequence[Node]], outputs: Sequence[Expression]) -> set[Node]:
    """The operations whose results other passes need, or the program gives."""
    home = {x: k for k, nodes in enumerate(every) for x in nodes}
    wanted = {x for x in outputs if isinstance(x, Node)}
    for k, nodes in enumerate(every):
        wanted |= {x for node in nodes for x in node.args if home.get(x, k) != k}
    return wanted


@collector_paused()
def parts(
    outputs: Sequence[Expression],
    count: int,
    longest: float | None = None,
    nodes: Sequence[Node] | None = None,
) -> ProgramParts:
    """A program in parts, those that repeat as loops.

    **Arguments:**

    - `outputs`: of the program.
    - `count`: of its inputs.
    - `longest`: if given, parts weigh no more, and none is a loop.
    - `nodes`: all that outputs need, in the order of their numbers, where they are known.
    """
    nodes = sorted(reachable(outputs), key=lambda x: x.number) if nodes is None else nodes
    nodes = [x for x in nodes if x.op != "input"]
    if longest:
        found = [[x] for x in pieces(nodes, outputs, longest)]
    else:
        found = [[nodes[i : i + x.period] for i in x.starts] for x in stretches(nodes)]
    wanted, registers = _wanted([own for passes in found for own in passes], outputs), _Registers(count)
    made = [_part(passes, wanted, registers) for passes in found]
    given = [registers.of(x) for x in outputs]
    # Constants, numbered downwards from -1 until their number was known, come first.
    offset = len(registers.constants)
    at = lambda x: np.where(x < 0, -1 - x, x + offset)
    moved = [part._replace(reads=at(part.reads), writes=part.writes + offset) for part in made]
    return ProgramParts(
        list(registers.constants), moved, registers.size + offset, at(np.array(given, int)).tolist()
    )
