"""Makes the nodes of a program.

Equal operations on equal operands are one node, constants are folded, and structural zeros vanish (0 x is 0 even where x
is infinite).
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from ..._misc._errors import Untranslatable
from ._nodes import (
    GROWING,
    BranchBody,
    DerivativeRule,
    LoopBody,
    Node,
    Operand,
    Region,
    is_float,
    is_integer,
    is_number,
    is_same,
    name_number,
    zero,
)
from ._table import TRUTHS, convert_number, fold

if TYPE_CHECKING:
    from ._subprogram import Subprogram


@final
class Builder:
    """Makes nodes, each distinct one once, simplified as it goes.

    **Arguments:**

    - `most`: nodes to make; an attempt at more raises `Untranslatable`.
    - `real`: the type of real numbers that stand alone.
    """

    def __init__(self, most: float = math.inf, real: str = "float64"):
        self.top = Region(0, self)
        self.region = self.top  # of what is being made now
        self._known: dict[tuple, Node] = {}
        self.count, self._most, self.real = 0, most, real  # of nodes made so far

    def node(self, op: str, type: str, *args: Any, data: Any = None, size: int | None = None) -> Node:
        """A node as it stands, or the one made before of the same operands."""
        # Numbers by `name_number`, written out, for this is done a million times.
        key = (op, type, data, *[x if x.__class__ is Node else (x.__class__, x or repr(x)) for x in args])
        node = self._known.get(key)
        if node is None:
            node = self._known[key] = self._new(op, args, type, data, size)
        return node

    def copy(self, node: Node, args: tuple) -> Node:
        """A node of another program, of other operands, of which there is none yet: it is not looked for."""
        return self._new(node.op, args, node.type, node.data, node.size)

    def _new(self, op: str, args: tuple, type: str, data: Any, size: int | None) -> Node:
        self.count += 1
        if self.count > self._most:
            raise Untranslatable(f"it takes more than {self._most:,} operations, too many to write out")
        region = self.top
        for x in args:
            if x.__class__ is Node and x.region.depth > region.depth:
                region = x.region
        return Node(op, args, type, data, region, self.count, size)

    def another(self) -> "Builder":
        """A builder of a program by itself, of as many nodes at most."""
        return Builder(self._most, self.real)

    # --- regions

    def parameter(self, region: Region, type: str, size: int | None = None) -> Node:
        """A new value that a region is given."""
        self.count += 1
        node = Node("parameter", (), type, len(region.params), region, self.count, size)
        region.params.append(node)
        return node

    def open_region(self, *, loops: bool = False) -> Region:
        """A region within the present one, in which nodes are made until another is the present one."""
        self.region = Region(self.region.depth + 1, self, loops=loops)
        return self.region

    def _control(
        self, op: str, args: Sequence[Operand], body: Any, types: Sequence[tuple[str, int | None]]
    ) -> list[Node]:
        self.count += 1
        node = Node(op, tuple(args), "", body, self.region, self.count, None)
        outputs = []
        for k, (type, size) in enumerate(types):
            self.count += 1
            outputs.append(Node("output", (node,), type, k, self.region, self.count, size))
        return outputs

    def loop(
        self,
        first: Sequence[Operand],
        types: Sequence[tuple[str, int | None]],
        step: Callable[..., Any],
        at: str = "",
    ) -> list[Node]:
        """What is carried after the last pass."""
        outer = self.region
        region = self.open_region(loops=True)
        carried = [self.parameter(region, *t) for t in types]
        condition, advance = step(carried)
        results = tuple(advance())
        self.region = outer
        return self._control("loop", first, LoopBody(region, condition, results, at), types)

    def count_up(
        self,
        count: Operand,
        first: Sequence[Operand],
        types: Sequence[tuple[str, int | None]],
        body: Callable[..., Sequence[Operand]],
    ) -> list[Node]:
        """What is carried after a pass for each number below a count, of that number and what is carried."""

        def step(carried: Sequence[Any]) -> Any:
            i, *state = carried
            return self.compare("lt", i, count, "int64"), lambda: [i + 1, *body(i, *state)]

        return self.loop([0, *first], [("int64", None), *types], step)[1:]

    def branch(
        self,
        condition: Operand,
        given: Sequence[Operand],
        sides: tuple[Callable[..., Sequence[Operand]], Callable[..., Sequence[Operand]]],
        types: Sequence[tuple[str, int | None]],
        given_types: Sequence[tuple[str, int | None]],
    ) -> list[Node]:
        """The outputs of one of two sides."""
        outer, regions, results = self.region, [], []
        for side in sides:
            region = self.open_region()
            results.append(tuple(side([self.parameter(region, *t) for t in given_types])))
            regions.append(region)
            self.region = outer
        body = BranchBody((regions[0], regions[1]), (results[0], results[1]), tuple(types))
        return self._control("branch", (condition, *given), body, types)

    def call(self, callee: "Subprogram", args: Sequence[Operand]) -> list[Operand]:
        """The outputs of a sub-program."""
        values: dict[Any, Operand] = dict(zip(callee.results, self.results(callee, args), strict=True))
        values |= dict(zip(callee.region.params, args, strict=True))
        return [values.get(x, x) if x.__class__ is Node else x for x in callee.outputs]

    def results(self, callee: "Subprogram", args: Sequence[Operand]) -> list[Operand]:
        """What a sub-program computes."""
        given = set(callee.given())
        args = [x if i in given else 0 for i, x in enumerate(args)]  # the rest nobody reads
        if callee.repeats:  # as a loop, it is to run only where it stands: elsewhere it might never end
            return self._control("call", args, callee, [(x.type, None) for x in callee.results])
        where = max((x.region for x in args if x.__class__ is Node), key=lambda x: x.depth, default=self.top)
        if where.loops:
            callee.divide(tuple(i for i, x in enumerate(args) if x.__class__ is Node and x.region is where))
        if callee.parts:
            return callee.call_parts(self, args)
        node = self.node("call", "", *args, data=callee)
        return [self.node("output", x.type, node, data=k) for k, x in enumerate(callee.results)]

    # --- scalars

    def apply(self, op: str, type: str, *args: Operand) -> Operand:
        """Any operation of the table."""
        special = _SPECIAL.get(op)
        if special is not None:
            return special(self, *args, type)
        if op in TRUTHS:
            return self.compare(op, *args, type)
        if all(map(is_number, args)):
            return fold(op, type, args)
        return self.node(op, type, *args)

    def compare(self, op: str, *args: Any) -> Operand:
        """A comparison of operands, whose type comes last."""
        *operands, type = args
        if all(map(is_number, operands)):
            return bool(fold(op, type, operands))
        if len(operands) == 2 and operands[0] is operands[1] and is_integer(type):
            return op in ("eq", "le", "ge")
        return self.node(op, "bool", *operands, data=type)

    # Sums and products are made a million times for a large mechanism, mostly of zeros: classes are compared here, and
    # not by a function, for that shows.

    def add(self, x: Any, y: Any, t: str) -> Operand:
        if x.__class__ is not Node:
            if y.__class__ is not Node:
                return x + y if t == "float64" else fold("add", t, (x, y))
            if x == 0:
                return y
        elif y.__class__ is not Node and y == 0:
            return x
        if y.__class__ is Node and y.op == "neg":
            return self.sub(x, y.args[0], t)
        if x.__class__ is Node and x.op == "neg":
            return self.sub(y, x.args[0], t)
        return self._sorted("add", x, y, t)

    def sub(self, x: Any, y: Any, t: str) -> Operand:
        if y.__class__ is not Node:
            if x.__class__ is not Node:
                return x - y if t == "float64" else fold("sub", t, (x, y))
            return x if y == 0 else self.node("sub", t, x, y)
        if x.__class__ is not Node and x == 0:
            return self.neg(y, t)
        if x is y:
            return zero(t)
        if y.op == "neg":
            return self.add(x, y.args[0], t)
        return self.node("sub", t, x, y)

    def neg(self, x: Any, t: str) -> Operand:
        if x.__class__ is not Node:
            return -x if t == "float64" else fold("neg", t, (x,))
        return x.args[0] if x.op == "neg" else self.node("neg", t, x)

    def mul(self, x: Any, y: Any, t: str) -> Operand:
        if y.__class__ is not Node:
            x, y = y, x
        if x.__class__ is not Node:
            if y.__class__ is not Node:
                return x * y if t == "float64" else fold("mul", t, (x, y))
            if x == 0:
                return zero(t)
            if x == 1:
                return y
            if x < 0 and (is_float(t) or x == -1):
                return self.neg(self.mul(-x, y, t), t)
        elif x.op == "neg":
            return self.neg(self.mul(x.args[0], y, t), t)
        if y.op == "neg":
            return self.neg(self.mul(x, y.args[0], t), t)
        return self._sorted("mul", x, y, t)

    def div(self, x: Any, y: Any, t: str) -> Operand:
        if not is_float(t):
            return self.apply("quotient", t, x, y)
        if x.__class__ is not Node:
            if y.__class__ is not Node:
                return fold("div", t, (x, y))
            if x == 0:
                return 0.0
        if y.__class__ is not Node and y in (1.0, -1.0):
            return self.mul(x, y, t)
        if y.__class__ is not Node and y != 0 and math.frexp(y)[0] in (0.5, -0.5):  # a power of two: exact
            return self.mul(x, 1.0 / y, t)
        return self.node("div", t, x, y)

    def _sorted(self, op: str, x: Any, y: Any, t: str) -> Node:
        """Operands that may change places: numbers first, then in the order they were made."""
        first = x.__class__ is not Node or (y.__class__ is Node and x.number <= y.number)
        return self.node(op, t, x, y) if first else self.node(op, t, y, x)

    def select(self, which: Any, x: Any, y: Any, t: str) -> Operand:
        """x where `which` holds, else y."""
        if which.__class__ is not Node:
            return x if which else y
        if is_same(x, y):
            return x
        if t == "bool":
            if x is True:
                return self.either(which, y, t)
            if x is False:
                return self.both(self.invert(which, t), y, t)
            if y is False:
                return self.both(which, x, t)
            if y is True:
                return self.either(self.invert(which, t), x, t)
        return self.node("select", t, which, x, y)

    def _combine(self, op: str, neutral: bool, x: Any, y: Any, t: str) -> Operand:
        """Both or either of two truths, of which one is `neutral`; of whole numbers bit by bit."""
        if is_number(x) and is_number(y):
            return fold(op, t, (x, y))
        if t != "bool":
            return self.node(op, t, x, y)
        for u, v in ((x, y), (y, x)):
            if u.__class__ is not Node:
                return v if u == neutral else u
        return x if x is y else self._sorted(op, x, y, t)

    def both(self, x: Any, y: Any, t: str) -> Operand:
        return self._combine("and", True, x, y, t)

    def either(self, x: Any, y: Any, t: str) -> Operand:
        return self._combine("or", False, x, y, t)

    def invert(self, x: Any, t: str) -> Operand:
        if x.__class__ is not Node:
            return (not x) if t == "bool" else fold("not", t, (x,))
        return x.args[0] if x.op == "not" else self.node("not", t, x)

    def _extreme(self, op: str, x: Operand, y: Operand, t: str) -> Operand:
        if t == "bool":
            return self.either(x, y, t) if op == "max" else self.both(x, y, t)
        return fold(op, t, (x, y)) if is_number(x) and is_number(y) else self.node(op, t, x, y)

    def maximum(self, x: Any, y: Any, t: str) -> Operand:
        return self._extreme("max", x, y, t)

    def minimum(self, x: Any, y: Any, t: str) -> Operand:
        return self._extreme("min", x, y, t)

    def convert(self, x: Any, source: str, target: str) -> Operand:
        """A value as another type: reals towards zero and within its limits as whole numbers, as XLA has it."""
        if source == target:
            return x
        if x.__class__ is not Node:
            return convert_number(x, target)
        if target == "bool":
            return self.compare("ne", x, zero(source), source)
        if is_float(source) and is_integer(target):
            info, most = np.iinfo(target), _largest(source, target)
            bounded = self.apply("min", source, self.apply("max", source, x, float(info.min)), most)
            known = self.select(self.compare("eq", x, x, source), bounded, 0.0, source)
            whole = self.node("convert", target, known, data=source)
            if int(most) == info.max:
                return whole
            return self.select(self.compare("gt", x, most, source), int(info.max), whole, target)
        return self.node("convert", target, x, data=source)

    def power(self, x: Operand, exponent: int, t: str) -> Operand:
        """x to an integer power, by repeated squaring."""
        if exponent < 0:
            return self.div(1.0, self.power(x, -exponent, t), t)
        if exponent == 0:
            return convert_number(1, t)
        half = self.power(x, exponent // 2, t)
        square = self.mul(half, half, t) if exponent > 1 else convert_number(1, t)
        return self.mul(square, x, t) if exponent % 2 else square

    def total(self, terms: Iterable[Operand], t: str) -> Operand:
        """The sum, pairwise, so that rounding errors stay small; of truths whether any holds."""
        terms = [x for x in terms if x.__class__ is Node or x != 0]
        if not terms:
            return zero(t)
        add = self.either if t == "bool" else self.add
        while len(terms) > 1:
            pairs = [add(x, y, t) for x, y in zip(terms[::2], terms[1::2], strict=False)]
            terms = pairs + terms[len(pairs) * 2 :]
        return terms[0]

    def rule(
        self, value: Operand, t: str, rule: DerivativeRule, k: int, i: int, inputs: Sequence[Operand]
    ) -> Operand:
        """A value, entry i of output k of a function of the inputs that has a derivative of its own."""
        # Also a number, of which the author may say that it has a derivative.
        return (
            value if all(map(is_number, inputs)) else self.node("rule", t, value, *inputs, data=(rule, k, i))
        )

    def refuse(self, value: Operand, message: str, backward: bool, inputs: Sequence[Operand] = ()) -> Operand:
        """A value whose derivative, by itself or by the inputs, raises: in reverse mode only where `backward`."""
        if is_number(value):
            return value
        return self.node("refuse", value.type, value, *inputs, data=(message, backward))

    # --- arrays

    def stop_gradient(self, array: Node) -> Node:
        """An array without a derivative, in the same memory."""
        if array.op in ("table", "stop_gradient"):
            return array
        return self.node("stop_gradient", array.type, array, size=array.size)

    def load(self, array: Node, index: Operand) -> Operand:
        """An entry of an array; within bounds it must be."""
        if array.op == "stop_gradient":
            return self.apply("stop_gradient", array.type, self.load(array.args[0], index))
        if array.op == "pack" and is_number(index):
            return array.args[int(index)]
        if array.op == "table" and is_number(index):
            return array.data[0][int(index)]
        if array.op == "fill":
            return array.args[0]
        while array.op == "store" and is_number(index) and is_number(array.args[1]):
            if index == array.args[1]:
                return array.args[2]
            array = array.args[0]
            if array.op in ("pack", "table", "fill"):
                return self.load(array, index)
        return self.node("load", array.type, array, index)

    def store(self, array: Node, index: Operand, value: Operand) -> Node:
        """The array with an entry replaced."""
        return self.node("store", array.type, array, index, value, size=array.size)

    def pack(self, entries: Sequence[Operand], t: str) -> Node:
        """An array of these entries."""
        entries = list(entries)
        if all(map(is_number, entries)):
            if len({name_number(x) for x in entries}) <= 1:
                return self.fill(entries[0] if entries else 0, len(entries), t)
            negative_zeros = tuple(i for i, x in enumerate(entries) if x == 0 and repr(x)[0] == "-")
            return self.node("table", t, data=(tuple(entries), negative_zeros), size=len(entries))
        return self.node("pack", t, *entries, size=len(entries))

    def zeros_like(self, array: Node) -> Node:
        """An array of zeros as large as another."""
        if array.size != GROWING:
            return self.fill(zero(array.type), array.size, array.type)
        self.count += 1
        return Node("zeros_like", (array,), array.type, None, self.region, self.count, GROWING)

    def fill(self, value: Operand, size: int, t: str) -> Node:
        """An array of equal entries."""
        return self.node("fill", t, value, data=size, size=size)

    def absent(self, t: str, size: int) -> Node:
        """An array that nobody reads."""
        return self.node("absent", t, data=size, size=size)

    def blank(self, size: int, t: str) -> Node:
        """An array whose entries are not read before they are stored; each a new one, where it is made."""
        self.count += 1
        return Node("blank", (), t, None, self.region, self.count, size)

    def tape(self, t: str) -> Node:
        """An array without entries that grows as it is stored to; each a new one."""
        self.count += 1
        return Node("tape", (), t, None, self.region, self.count, GROWING)


def _largest(source: str, target: str) -> float:
    """The largest number of a real type that a whole one can hold."""
    most = np.dtype(source).type(np.iinfo(target).max)
    return float(most if int(most) <= np.iinfo(target).max else np.nextafter(most, np.dtype(source).type(0)))


_SPECIAL: dict[str, Callable[..., Operand]] = {
    "add": Builder.add,
    "sub": Builder.sub,
    "mul": Builder.mul,
    "div": Builder.div,
    "neg": Builder.neg,
    "select": Builder.select,
    "and": Builder.both,
    "or": Builder.either,
    "not": Builder.invert,
    "max": Builder.maximum,
    "min": Builder.minimum,
}
