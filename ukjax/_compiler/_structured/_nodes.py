"""The representation of a program over scalars: nodes and regions.

A node is one operation on operands; an operand is a node or a Python number, whose type the node gives.

Control flow is structured. A `loop` carries values round a region while a condition holds there; a `branch` runs one of
two regions. A node belongs to the deepest region among its operands', so what does not change in a loop stands before it;
what only a loop of one pass or none uses, a condition in other words, is computed there (`_needed`).
Nodes are numbered as they are made, and run in that order: an operand always comes before its use.

A `call` runs a sub-program, which is compiled once however often it is called. It is a program by itself: its nodes stand
in a region of its own, and it uses nothing but what it is given. Where a loop calls it, what does not change in the loop
is a sub-program of its own, called before (`Subprogram.divide`).

Arrays that are indexed at run time are values too: `load` reads an entry, `store` gives the array with an entry replaced.
Who writes machine code may do that in place, where the former array is not read any more.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, final

import numpy as np

Number = float | int | bool


@final
class Region:
    """Where nodes run: the whole program, the body of a loop, or one side of a branch.

    - `depth`: how many regions are around it.
    - `build`: makes its nodes.
    - `params`: the nodes that stand for what it is given.
    - `loops`: whether it is the body of a loop.
    """

    __slots__ = ("build", "depth", "loops", "params")

    def __init__(self, depth: int, build: Any = None, *, loops: bool = False):
        self.depth, self.build, self.params, self.loops = depth, build, list[Node](), loops


def _make_signs(make: Callable[..., Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """What a sign does where a node stands left of it, and right of it; of arrays NumPy asks for each entry."""

    def left(self: "Node", y: Any) -> Any:
        return NotImplemented if y.__class__ is np.ndarray else make(self.region.build, self, y, self.type)

    return left, lambda self, x: make(self.region.build, x, self, self.type)


@final
class Node:
    """One operation. Signs between nodes and numbers make others of the same type: +, <, & and so on, but not ==.

    - `op`: a key of `OPERATIONS`, or one of those that `Builder` makes by name.
    - `args`: its operands.
    - `type`: a NumPy name of a type, of the value or of an array's entries.
    - `data`: what else determines it.
    - `region`: where it runs.
    - `number`: when it was made.
    - `size`: of an array, how many entries; `GROWING` where that is not known; None of a scalar.
    """

    __slots__ = ("args", "data", "number", "op", "region", "size", "type")

    def __init__(self, op: str, args: tuple, type: str, data: Any, region: Region, number: int, size: Any):
        self.op, self.args, self.type, self.data = op, args, type, data
        self.region, self.number, self.size = region, number, size

    def __repr__(self) -> str:
        return f"%{self.number}"

    __add__, __radd__ = _make_signs(lambda b, x, y, t: b.add(x, y, t))
    __sub__, __rsub__ = _make_signs(lambda b, x, y, t: b.sub(x, y, t))
    __mul__, __rmul__ = _make_signs(lambda b, x, y, t: b.mul(x, y, t))
    __truediv__, __rtruediv__ = _make_signs(lambda b, x, y, t: b.div(x, y, t))
    __and__, __rand__ = _make_signs(lambda b, x, y, t: b.both(x, y, t))
    __or__, __ror__ = _make_signs(lambda b, x, y, t: b.either(x, y, t))
    __lt__, __gt__ = (_make_signs(lambda b, x, y, t, op=op: b.compare(op, x, y, t))[0] for op in ("lt", "gt"))
    __le__, __ge__ = (_make_signs(lambda b, x, y, t, op=op: b.compare(op, x, y, t))[0] for op in ("le", "ge"))

    def __neg__(self) -> Any:
        return self.region.build.neg(self, self.type)

    def __abs__(self) -> Any:
        return self.region.build.apply("abs", self.type, self)


GROWING = -1
"""The size of an array that grows as it is stored to: the tape of a loop."""


MARKS = frozenset(("rule", "refuse", "stop_gradient", "attached"))
"""Operations on scalars that say something of derivatives; the value is that of the first operand."""


Operand = Any
"""A node or a number. Type checkers cannot follow which, as it is told by class, for speed."""


class LoopBody(NamedTuple):
    """What a loop does: `args` of its node are the first values of what it carries.

    - `region`: its parameters are the values carried.
    - `condition`: it goes on while this holds.
    - `results`: the next values.
    - `at`: the user's line that has it, where that is known.
    - `batch`: what its passes compute, if they are the members of a batch.
    """

    region: Region
    condition: Operand
    results: tuple[Operand, ...]
    at: str = ""
    batch: "Batch | None" = None


class Batch(NamedTuple):
    """A program at many members, which a loop computes one after the other, and a CPU's code several at once.

    - `program`: it gives what the loop carries behind its counter.
    - `operands`: arrays in memory, its entries along the first axis, and the members along the second.
    - `shared`: which of them have no second axis.
    - `members`: how many.
    """

    program: Any
    operands: "tuple[Node, ...]"
    shared: tuple[bool, ...]
    members: int


class BranchBody(NamedTuple):
    """What a branch does: `args` of its node are the condition, and what both sides are given.

    - `regions`: the side where the condition holds, and the other.
    - `results`: of each.
    - `types`: of results, with sizes.
    """

    regions: tuple[Region, Region]
    results: tuple[tuple[Operand, ...], tuple[Operand, ...]]
    types: tuple[tuple[str, int | None], ...]


class DerivativeRule(NamedTuple):
    """A function of arrays whose derivative JAX is to give, as its author wrote it.

    - `function`: takes and returns lists of arrays.
    - `inputs`: their shapes and types.
    """

    function: Callable[..., Any]
    inputs: tuple[Any, ...]


def is_number(x: Operand) -> bool:
    """Whether an operand is known."""
    return type(x) is not Node


def name_number(x: Any) -> tuple[type, Any]:
    """What tells a known number from all others: 1, 1.0 and True are equal, and zeros of both signs."""
    return x.__class__, x or repr(x)


def is_same(x: Operand, y: Operand) -> bool:
    """Whether two operands are known to be the same."""
    return x is y or (is_number(x) and is_number(y) and name_number(x) == name_number(y))


def is_float(type: str) -> bool:
    """Whether a type is that of real numbers."""
    return type[0] == "f"


def is_integer(type: str) -> bool:
    """Whether a type is that of whole numbers."""
    return type[0] in "iu"


def base_of(array: Node) -> Node:
    """The array in whose memory one is that has no derivative."""
    while array.op == "stop_gradient":
        array = array.args[0]
    return array


def find_count(loop: Node, x: Operand) -> tuple[int, int] | None:
    """Where a value that a loop carries starts and by how much it grows in each pass, if these are known."""
    if is_number(x) or x.op != "parameter" or x.region is not loop.data.region:
        return None
    first, after = loop.args[x.data], loop.data.results[x.data]
    if not is_number(first) or is_number(after) or after.op != "add":
        return None
    by, counter = after.args  # numbers first
    grows = is_number(by) and isinstance(by, int) and by > 0 and counter is x
    return (int(first), int(by)) if grows else None


def zero(t: str) -> Number:
    """Zero of a type."""
    return 0.0 if is_float(t) else False if t == "bool" else 0
