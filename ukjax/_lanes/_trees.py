"""Which operations of a long program a step of its table does together: trees of them.

A tree has one result and takes up to `_OPERANDS` numbers besides constants; what it computes on the way no other tree
needs. An operation on one number and constants is the exception: every tree that needs it does it again, which costs no
more than to read its result.
"""

import functools
from collections import Counter
from collections.abc import Callable, Sequence, Set
from typing import NamedTuple

from jaxtyping import Array

from ._expressions import OPERATIONS, Expression, Node
from ._trigonometry import by_polynomials

_OPERANDS = 12
_CHEAP = frozenset(("neg", "add", "sub", "mul"))
_COMMUTATIVE = frozenset(("add", "mul", "max", "min", "and", "or", "xor", "eq", "ne"))
_TAKES_BOOLEANS = {"and": 2, "or": 2, "xor": 2, "not": 1, "select": 1}  # how many of its first operands

Shape = int | tuple
"""A tree without its numbers: the place of an operand, or an operation and what it takes."""


class Step(NamedTuple):
    """A tree of operations.

    - `result`: the operation at its root.
    - `shape`: the tree.
    - `operands`: the numbers it takes, by their places in the shape.
    """

    result: Node
    shape: Shape
    operands: tuple[Expression, ...]


def _drawn(root: Node, inner: Set[Expression]) -> Step:
    """The tree of the operations `inner`. Operands that may change places do, so that equal trees look equal."""
    operands: dict[Expression, int] = {}

    def rank(x: Expression) -> tuple:
        return (0, x.op) if isinstance(x, Node) and x in inner else (1,)

    def shape(x: Expression) -> Shape:
        if not isinstance(x, Node):
            return operands.setdefault(float(x), len(operands))
        if x not in inner:
            return operands.setdefault(x, len(operands))
        return (x.op, *map(shape, sorted(x.args, key=rank) if x.op in _COMMUTATIVE else x.args))

    return Step(root, shape(root), tuple(operands))


class _Forest:
    """Finds the trees of a program.

    - `nodes`: its operations, each after its operands.
    - `outputs`: those whose results it gives.
    """

    def __init__(self, nodes: Sequence[Node], outputs: Set[Node]):
        self.nodes, self.outputs = nodes, outputs
        self.operands = {x: tuple(y for y in x.args if isinstance(y, Node)) for x in nodes}
        self.users: dict[Node, set[Node]] = {}
        for x, operands in self.operands.items():
            for y in operands:
                self.users.setdefault(y, set()).add(x)

    def _joining(self, own: Set[Node], operands: dict[Node, None]) -> tuple[Node, bool, dict] | None:
        """An operation that may join a tree, whether no other tree needs it then, and what the tree takes with it.

        **Arguments:**

        - `own`: operations of the tree that no other one does.
        - `operands`: what it takes.
        """
        for x in operands:
            if x.op == "input":
                continue
            alone = self.users[x] <= own and x not in self.outputs
            if alone or (x.op in _CHEAP and len(self.operands[x]) == 1):
                wider = dict.fromkeys([*(y for y in operands if y is not x), *self.operands[x]])
                if len(wider) <= _OPERANDS:
                    return x, alone, wider
        return None

    def _grown(self, root: Node, largest: int) -> list[Node]:
        """The operations of a tree, in the order it grows."""
        inner, own, operands = [root], {root}, dict.fromkeys(self.operands[root])
        while len(inner) < largest and (joining := self._joining(own, operands)):
            x, alone, operands = joining
            inner.append(x)
            own |= {x} if alone else set()
        return inner

    def tree(self, root: Node, largest: int, shapes: Set[Shape] | None = None) -> Step:
        """The largest tree of an operation, of so many at most and, unless it is alone, of one of the shapes if given."""
        inner = self._grown(root, largest)
        step = _drawn(root, set(inner))
        while shapes is not None and len(inner) > 1 and step.shape not in shapes:
            inner.pop()
            step = _drawn(root, set(inner))
        return step

    def steps(self, tree_of: Callable[[Node], Step]) -> list[Step]:
        """The steps in order, given the tree of any operation."""
        needed, found = set(self.outputs), []
        for root in reversed(self.nodes):
            if root in needed:
                found.append(tree_of(root))
                needed.update(x for x in found[-1].operands if isinstance(x, Node))
        return found[::-1]


def _size(shape: Shape) -> int:
    return 0 if isinstance(shape, int) else 1 + sum(map(_size, shape[1:]))


def steps(nodes: Sequence[Node], outputs: Set[Node], largest: int, share: float) -> list[Step]:
    """A program as steps, in order.

    **Arguments:**

    - `nodes`: its operations, each after its operands.
    - `outputs`: those whose results it gives.
    - `largest`: operations of a tree.
    - `share`: of the operations, which trees of one shape have to save steps for, or they are done one by one.
    """
    forest = _Forest(nodes, outputs)
    found = forest.steps(lambda x: forest.tree(x, largest))
    times = Counter(x.shape for x in found)
    worth = {x for x, count in times.items() if count * (_size(x) - 1) >= share * len(nodes)}
    known, large = {x.result: x for x in found if x.shape in worth}, max(map(_size, worth), default=1)
    return forest.steps(lambda x: known.get(x) or forest.tree(x, large, worth))


@functools.cache
def _by_name() -> dict[str, Callable[..., Array]]:
    return {**OPERATIONS, **by_polynomials()}


def value(shape: Shape, operands: Sequence[Array]) -> Array:
    """The result of a tree, true or false if its root says so.

    **Arguments:**

    - `shape`: of the tree.
    - `operands`: arrays of numbers; where it takes a truth, one stands for true and zero for false.
    """
    if isinstance(shape, int):
        return operands[shape]
    op, *args = shape
    found, booleans = [value(x, operands) for x in args], _TAKES_BOOLEANS.get(op, 0)
    dtype = operands[0].dtype
    true = lambda x: x if x.dtype == bool else x > 0.5
    return _by_name()[op](*(true(x) if i < booleans else x.astype(dtype) for i, x in enumerate(found)))
