"""Long programs in parts: compilation takes more than in proportion to the length of a loop's body."""

from collections.abc import Sequence
from typing import NamedTuple

from ._scalars import BOOLEAN, Builder, Expression, Node, reachable

LONGEST = 4_000
"""Operations in one part."""


class Part(NamedTuple):
    """A part of a program, and what it passes on.

    - `outputs`: expressions whose inputs are numbered as in `needs`.
    - `needs`: the nodes of the whole program that are its inputs.
    - `gives`: the nodes of the whole program that are its outputs.
    """

    outputs: list[Expression]
    needs: list[Node]
    gives: list[Node]


def _part(nodes: Sequence[Node], wanted: set[Node]) -> Part:
    build, needs, own = Builder(), [], set(nodes)
    copies: dict[Node, Expression] = {}

    def copy(x: Expression) -> Expression:
        if not isinstance(x, Node):
            return x
        if x not in copies:
            # Conditions do not pass from part to part: they are cheap, and arrays are of numbers.
            if x in own or (x.op in BOOLEAN):
                copies[x] = build.apply(x.op, *map(copy, x.args))
            else:
                copies[x] = build.input(len(needs))
                needs.append(x)
        return copies[x]

    gives = [x for x in nodes if x in wanted and x.op not in BOOLEAN]
    return Part([copy(x) for x in gives], needs, gives)


def parts(outputs: Sequence[Expression], longest: int = LONGEST) -> list[Part]:
    """A program cut into parts of about equal length, in the order they are to be run.

    **Arguments:**

    - `outputs`: of the program.
    - `longest`: operations in one part.
    """
    nodes = [x for x in reachable(outputs) if x.op != "input"]
    count = -(-len(nodes) // longest)
    length = -(-len(nodes) // max(count, 1))
    found: list[Part] = []
    wanted = {x for x in outputs if isinstance(x, Node)}
    for k in reversed(range(count)):  # from the end, so that it is known what later parts need
        part = _part(nodes[k * length : (k + 1) * length], wanted)
        wanted |= set(part.needs)
        found.append(part)
    return found[::-1]
