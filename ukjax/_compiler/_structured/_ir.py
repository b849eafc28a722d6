"""The representation of a program over scalars: nodes, regions, and the one table of operations.

A node is one operation on operands; an operand is a node or a Python number, whose type the node gives. Equal operations
on equal operands are one node, constants are folded, and structural zeros vanish (0 x is 0 even where x is infinite).

Control flow is structured. A `loop` carries values round a region while a condition holds there; a `branch` runs one of
two regions. A node belongs to the deepest region among its operands', so what does not change in a loop stands before it;
what only a loop of one pass or none uses, a condition in other words, is computed there (`_sink`).
Nodes are numbered as they are made, and run in that order: an operand always comes before its use.

A `call` runs a sub-program, which is compiled once however often it is called. It is a program by itself: its nodes stand
in a region of its own, and it uses nothing but what it is given. Where a loop calls it, what does not change in the loop
is a sub-program of its own, called before (`Subprogram.divide`).

Arrays that are indexed at run time are values too: `load` reads an entry, `store` gives the array with an entry replaced.
Who writes machine code may do that in place, where the former array is not read any more.
"""

import collections
import functools
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, final

import numpy as np

from ..._misc._errors import Untranslatable

Number = float | int | bool


@final
class Region:
    """Where nodes run: the whole program, the body of a loop, or one side of a branch.

    - `depth`: how many regions are around it.
    - `params`: the nodes that stand for what it is given.
    - `loops`: whether it is the body of a loop.
    """

    __slots__ = ("depth", "loops", "params")

    def __init__(self, depth: int, *, loops: bool = False):
        self.depth, self.params, self.loops = depth, list[Node](), loops


@final
class Node:
    """One operation.

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


GROWING = -1
"""The size of an array that grows as it is stored to: the tape of a loop."""

Operand = Any
"""A node or a number. Type checkers cannot follow which, as it is told by class, for speed."""


class LoopBody(NamedTuple):
    """What a loop does: `args` of its node are the first values of what it carries.

    - `region`: its parameters are the values carried.
    - `condition`: it goes on while this holds.
    - `results`: the next values.
    - `at`: the user's line that has it, where that is known.
    """

    region: Region
    condition: Operand
    results: tuple[Operand, ...]
    at: str = ""


class BranchBody(NamedTuple):
    """What a branch does: `args` of its node are the condition, and what both sides are given.

    - `regions`: the side where the condition holds, and the other.
    - `results`: of each.
    - `types`: of results, with sizes.
    """

    regions: tuple[Region, Region]
    results: tuple[tuple[Operand, ...], tuple[Operand, ...]]
    types: tuple[tuple[str, int | None], ...]


@final
class Subprogram:
    """Scalars from scalars and arrays in memory, a program by itself that others call.

    - `region`: its parameters are what it is given.
    - `outputs`: what it gives.
    - `results`: of that, what it computes; numbers, parameters and repetitions are known to who calls.
    - `derivatives`: programs derived of it, each made once.
    - `units`: its machine code for vectors of a width, which programs share.
    - `parts`: into which it was divided, if it was: all calls are calls of these, so that they are compiled once.
    """

    def __init__(self, region: Region, outputs: Sequence[Operand]):
        self.region, self.outputs = region, tuple(outputs)
        self.results = tuple(dict.fromkeys(x for x in outputs if x.__class__ is Node and x.op != "parameter"))
        self.derivatives, self.units = dict[Any, Any](), dict[int, Any]()
        self.parts: tuple[tuple[int, ...], Subprogram, Subprogram] | None = None
        self._tried = set[tuple[int, ...]]()
        self._needed = dict[Any, Needed]()

    def needed(self, results: tuple[int, ...] | None = None, values: bool = False) -> "Needed":
        """What some results need of it; all by default."""
        key = results, values
        if key not in self._needed:
            chosen = self.results if results is None else [self.results[k] for k in results]
            self._needed[key] = Needed(chosen, values)
        return self._needed[key]

    def given(self, results: tuple[int, ...] | None = None, values: bool = False) -> list[int]:
        """Which parameters some results need, in order."""
        needed = self.needed(results, values)
        return [i for i, p in enumerate(self.region.params) if p in needed]

    def divide(self, varied: tuple[int, ...]) -> None:
        """Into what does not depend on some parameters, and the rest, unless that was done before or is no less work.

        Before them stands which parameters the rest takes: these, and others that are arrays. Behind them it takes what
        the first computes.
        """
        if self.parts is None and varied not in self._tried:
            self._tried.add(varied)
            self.parts = self._divide(varied)

    def call_parts(self, build: "Builder", args: Sequence[Operand]) -> list[Operand]:
        """What it computes, by calls of its parts."""
        assert self.parts
        given, before, rest = self.parts
        return build.call(rest, [*(args[i] for i in given), *build.call(before, args)])

    @functools.cached_property
    def _of_parts(self) -> "Subprogram":
        build = Builder()
        args = [build.parameter(build.top, p.type, p.size) for p in self.region.params]
        return Subprogram(build.top, self.call_parts(build, args))

    def written(self) -> "Subprogram":
        """What a call that was made before it was divided is to call."""
        return self if self.parts is None else self._of_parts

    def _divide(self, varied: tuple[int, ...]) -> "tuple[tuple[int, ...], Subprogram, Subprogram] | None":
        nodes, params = self.needed().nodes, self.region.params
        if any(x.op in ("loop", "branch") for x in nodes):
            return None
        late = {params[i] for i in varied}
        for x in nodes:
            if not late.isdisjoint(x.args):
                late.add(x)
        if any(x.size is not None for x in nodes):
            for x in reversed(nodes):  # arrays that are made are not passed on
                if x in late:
                    late.update(y for y in x.args if y.__class__ is Node and y.size is not None)
        given = tuple(i for i, p in enumerate(params) if p in late)
        asked = [y for x in nodes if x in late for y in x.args] + list(self.results)
        passed = [x for x in dict.fromkeys(asked) if x.__class__ is Node and x not in late]
        computed = sum(x not in late and x.op not in ("parameter", "output") for x in nodes)
        if computed <= sum(x.op != "parameter" for x in passed):
            return None
        build = Builder()
        new = {x: build.parameter(build.top, x.type, x.size) for x in [*(params[i] for i in given), *passed]}
        for x in nodes:
            if x in late and x not in new:
                args = tuple([new.get(y, y) for y in x.args])
                new[x] = build.copy(x, args)
        return given, Subprogram(self.region, passed), Subprogram(build.top, [new[x] for x in self.results])

    @functools.cached_property
    def size(self) -> int:
        """How many operations it has, without those of others that it calls."""
        return sum(x.op not in ("parameter", "output") for x in self.needed().nodes)

    @functools.cached_property
    def repeats(self) -> bool:
        """Whether it has loops."""
        nodes = self.needed().nodes
        return any(x.op == "loop" or (x.op == "call" and x.data.repeats) for x in nodes)


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


def is_float(type: str) -> bool:
    """Whether a type is that of real numbers."""
    return type[0] == "f"


def is_integer(type: str) -> bool:
    """Whether a type is that of whole numbers."""
    return type[0] in "iu"


# --- the table of operations ------------------------------------------------------------------------------------------


class Operation(NamedTuple):
    """One row of the table.

    - `numpy`: computes it, also for constants.
    - `partials`: its derivatives by each operand, from builder, type, operands and value; None where there is none.
    - `llvm`: how LLVM has it: an instruction for real numbers and one for whole ones, an intrinsic `@name`, a function of
      the C library `name()`; an empty text where `_llvm` writes it out.
    - `jax`: its name in `jax.lax`, if another.
    - `cost`: in additions.
    """

    numpy: Callable[..., Any]
    partials: Callable[..., tuple] | None = None
    llvm: str = ""
    jax: str = ""
    cost: int = 1


def _erf_slope(b: "Builder", t: str, x: Operand, sign: float) -> Operand:
    return b.mul(b.apply("exp", t, b.neg(b.mul(x, x, t), t)), sign * 2.0 / math.sqrt(math.pi), t)


def _tie(b: "Builder", t: str, less: Operand, equal: Operand) -> Operand:
    """The derivative of a maximum: half of each where both are equal, as JAX has it."""
    return b.select(less, 1.0, b.select(equal, 0.5, 0.0, t), t)


def _power(b: "Builder", t: str, x: Operand, y: Operand, z: Operand) -> tuple:
    by_x = b.mul(y, b.apply("pow", t, x, b.sub(y, 1.0, t)), t)
    known = is_number(y)
    by_y = None if known else b.mul(z, b.apply("log", t, b.select(b.compare("eq", x, 0.0, t), 1.0, x, t)), t)
    return by_x if known else b.select(b.compare("eq", y, 0.0, t), 0.0, by_x, t), by_y


def _vectorize(function: Callable[..., float]) -> Callable[..., Any]:
    return np.vectorize(function, otypes=[float])


def _unary(slope: Callable[["Builder", str, Any, Any], Operand]) -> Callable[..., tuple]:
    return lambda b, t, x, y: (slope(b, t, x, y),)


def _no_slope(b: "Builder", t: str, *args: Operand) -> tuple:
    return (None,) * (len(args) - 1)


_one_less = lambda b, t, y: b.sub(1.0, b.mul(y, y, t), t)
_root = lambda b, t, x: b.apply("sqrt", t, x)

OPERATIONS: dict[str, Operation] = {
    "add": Operation(np.add, lambda b, t, x, y, z: (1.0, 1.0), "fadd add"),
    "sub": Operation(np.subtract, lambda b, t, x, y, z: (1.0, -1.0), "fsub sub"),
    "mul": Operation(np.multiply, lambda b, t, x, y, z: (y, x), "fmul mul"),
    "div": Operation(
        np.divide,
        lambda b, t, x, y, z: (
            b.div(1.0, y, t),
            None if is_number(y) else b.neg(b.div(z, y, t), t),
        ),
        "fdiv",
        cost=4,
    ),
    "neg": Operation(np.negative, _unary(lambda b, t, x, y: -1.0)),
    "max": Operation(
        np.maximum,
        lambda b, t, x, y, z: (
            _tie(b, t, b.compare("gt", x, y, t), b.compare("eq", x, y, t)),
            _tie(b, t, b.compare("lt", x, y, t), b.compare("eq", x, y, t)),
        ),
        "@maximum",
    ),
    "min": Operation(
        np.minimum,
        lambda b, t, x, y, z: (
            _tie(b, t, b.compare("lt", x, y, t), b.compare("eq", x, y, t)),
            _tie(b, t, b.compare("gt", x, y, t), b.compare("eq", x, y, t)),
        ),
        "@minimum",
    ),
    "rem": Operation(
        np.fmod,
        lambda b, t, x, y, z: (1.0, b.neg(b.truncate(b.div(x, y, t), t), t)),
        "fmod()",
        cost=20,
    ),
    "pow": Operation(np.power, _power, "pow()", cost=40),
    "atan2": Operation(
        np.arctan2,
        lambda b, t, x, y, z: (
            b.div(y, b.add(b.mul(x, x, t), b.mul(y, y, t), t), t),
            b.neg(b.div(x, b.add(b.mul(x, x, t), b.mul(y, y, t), t), t), t),
        ),
        "atan2()",
        cost=40,
    ),
    "abs": Operation(np.abs, _unary(lambda b, t, x, y: b.apply("sign", t, x)), "@fabs"),
    "sign": Operation(np.sign, _no_slope),
    "floor": Operation(np.floor, _no_slope, "@floor"),
    "ceil": Operation(np.ceil, _no_slope, "@ceil"),
    "round": Operation(np.round, _no_slope, "@roundeven"),
    "sqrt": Operation(np.sqrt, _unary(lambda b, t, x, y: b.div(0.5, y, t)), "@sqrt", cost=6),
    "cbrt": Operation(np.cbrt, _unary(lambda b, t, x, y: b.div(1 / 3, b.mul(y, y, t), t)), "cbrt()", cost=30),
    "exp": Operation(np.exp, _unary(lambda b, t, x, y: y), "exp()", cost=20),
    "exp2": Operation(np.exp2, _unary(lambda b, t, x, y: b.mul(y, math.log(2), t)), "exp2()", cost=20),
    "expm1": Operation(np.expm1, _unary(lambda b, t, x, y: b.add(y, 1.0, t)), "expm1()", cost=20),
    "log": Operation(np.log, _unary(lambda b, t, x, y: b.div(1.0, x, t)), "log()", cost=20),
    "log1p": Operation(
        np.log1p, _unary(lambda b, t, x, y: b.div(1.0, b.add(x, 1.0, t), t)), "log1p()", cost=20
    ),
    "sin": Operation(np.sin, _unary(lambda b, t, x, y: b.apply("cos", t, x)), cost=20),
    "cos": Operation(np.cos, _unary(lambda b, t, x, y: b.neg(b.apply("sin", t, x), t)), cost=20),
    "tan": Operation(np.tan, _unary(lambda b, t, x, y: b.add(b.mul(y, y, t), 1.0, t)), "tan()", cost=30),
    "asin": Operation(
        np.arcsin,
        _unary(lambda b, t, x, y: b.div(1.0, _root(b, t, _one_less(b, t, x)), t)),
        "asin()",
        cost=30,
    ),
    "acos": Operation(
        np.arccos,
        _unary(lambda b, t, x, y: b.div(-1.0, _root(b, t, _one_less(b, t, x)), t)),
        "acos()",
        cost=30,
    ),
    "atan": Operation(
        np.arctan, _unary(lambda b, t, x, y: b.div(1.0, b.add(b.mul(x, x, t), 1.0, t), t)), "atan()", cost=30
    ),
    "sinh": Operation(np.sinh, _unary(lambda b, t, x, y: b.apply("cosh", t, x)), "sinh()", cost=30),
    "cosh": Operation(np.cosh, _unary(lambda b, t, x, y: b.apply("sinh", t, x)), "cosh()", cost=30),
    "tanh": Operation(np.tanh, _unary(lambda b, t, x, y: _one_less(b, t, y)), "tanh()", cost=30),
    "asinh": Operation(
        np.arcsinh,
        _unary(lambda b, t, x, y: b.div(1.0, _root(b, t, b.add(b.mul(x, x, t), 1.0, t)), t)),
        "asinh()",
        cost=30,
    ),
    "acosh": Operation(
        np.arccosh,
        _unary(lambda b, t, x, y: b.div(1.0, _root(b, t, b.sub(b.mul(x, x, t), 1.0, t)), t)),
        "acosh()",
        cost=30,
    ),
    "atanh": Operation(
        np.arctanh, _unary(lambda b, t, x, y: b.div(1.0, _one_less(b, t, x), t)), "atanh()", cost=30
    ),
    "erf": Operation(
        _vectorize(math.erf), _unary(lambda b, t, x, y: _erf_slope(b, t, x, 1.0)), "erf()", cost=40
    ),
    "erfc": Operation(
        _vectorize(math.erfc), _unary(lambda b, t, x, y: _erf_slope(b, t, x, -1.0)), "erfc()", cost=40
    ),
    "lt": Operation(np.less, llvm="olt slt ult"),
    "le": Operation(np.less_equal, llvm="ole sle ule"),
    "gt": Operation(np.greater, llvm="ogt sgt ugt"),
    "ge": Operation(np.greater_equal, llvm="oge sge uge"),
    "eq": Operation(np.equal, llvm="oeq eq eq"),
    "ne": Operation(np.not_equal, llvm="une ne ne"),
    "and": Operation(np.bitwise_and, llvm="and and", jax="bitwise_and"),
    "or": Operation(np.bitwise_or, llvm="or or", jax="bitwise_or"),
    "xor": Operation(np.bitwise_xor, llvm="xor xor", jax="bitwise_xor"),
    "not": Operation(np.invert, jax="bitwise_not"),
    "shift_left": Operation(np.left_shift, llvm="shl shl"),
    "shift_right_logical": Operation(
        lambda x, y: np.right_shift(x.view(f"u{x.dtype.itemsize}"), y.view(f"u{x.dtype.itemsize}")).view(
            x.dtype
        ),
        llvm="lshr lshr",
    ),
    "shift_right_arithmetic": Operation(np.right_shift, llvm="ashr ashr"),
    "quotient": Operation(lambda x, y: np.trunc(x / y).astype(x.dtype), llvm="sdiv udiv", jax="div", cost=20),
    "remainder": Operation(np.fmod, llvm="srem urem", jax="rem", cost=20),
    "select": Operation(
        np.where, lambda b, t, p, x, y, z: (None, b.select(p, 1.0, 0.0, t), b.select(p, 0.0, 1.0, t))
    ),
    "is_finite": Operation(np.isfinite),
    "convert": Operation(lambda x: x, _unary(lambda b, t, x, y: 1.0), jax="convert_element_type"),
    "bitcast": Operation(lambda x: x, jax="bitcast_convert_type"),
    "stop_gradient": Operation(lambda x: x, _no_slope),
    # A value with the derivative of another, to the first differentiation: derivatives have the value alone.
    "attached": Operation(lambda x, carrier: x, lambda b, t, x, carrier, y: (None, 1.0)),
}
"""What a program can do with scalars; what is not here, nor written in terms of it by `_trace`, cannot be translated."""

TRUTHS = frozenset(("lt", "le", "gt", "ge", "eq", "ne", "is_finite"))
"""Operations whose operands have another type than their value, which is true or false."""


# --- the builder ------------------------------------------------------------------------------------------------------


@final
class Builder:
    """Makes nodes, each distinct one once, simplified as it goes.

    **Arguments:**

    - `most`: nodes to make; an attempt at more raises `Untranslatable`.
    """

    def __init__(self, most: float = math.inf):
        self.top = Region(0)
        self.region = self.top  # of what is being made now
        self._known: dict[tuple, Node] = {}
        self.count, self._most = 0, most  # of nodes made so far

    def node(self, op: str, type: str, *args: Any, data: Any = None, size: int | None = None) -> Node:
        """A node as it stands, or the one made before of the same operands."""
        # 1, 1.0 and True are equal as keys, so the class goes in.
        key = (op, type, data, *[x if x.__class__ is Node else (x.__class__, x) for x in args])
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
        return Builder(self._most)

    # --- regions

    def parameter(self, region: Region, type: str, size: int | None = None) -> Node:
        """A new value that a region is given."""
        self.count += 1
        node = Node("parameter", (), type, len(region.params), region, self.count, size)
        region.params.append(node)
        return node

    def open_region(self, *, loops: bool = False) -> Region:
        """A region within the present one, in which nodes are made until another is the present one."""
        self.region = Region(self.region.depth + 1, loops=loops)
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

    def call(self, callee: Subprogram, args: Sequence[Operand]) -> list[Operand]:
        """The outputs of a sub-program."""
        values: dict[Any, Operand] = dict(zip(callee.results, self.results(callee, args), strict=True))
        values |= dict(zip(callee.region.params, args, strict=True))
        return [values.get(x, x) if x.__class__ is Node else x for x in callee.outputs]

    def results(self, callee: Subprogram, args: Sequence[Operand]) -> list[Operand]:
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
        if x is y or (is_number(x) and is_number(y) and x == y):
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

    def both(self, x: Any, y: Any, t: str) -> Operand:
        if t != "bool" or (is_number(x) and is_number(y)):
            return fold("and", t, (x, y)) if is_number(x) and is_number(y) else self.node("and", t, x, y)
        for u, v in ((x, y), (y, x)):
            if u.__class__ is not Node:
                return v if u else False
        return x if x is y else self._sorted("and", x, y, t)

    def either(self, x: Any, y: Any, t: str) -> Operand:
        if t != "bool" or (is_number(x) and is_number(y)):
            return fold("or", t, (x, y)) if is_number(x) and is_number(y) else self.node("or", t, x, y)
        for u, v in ((x, y), (y, x)):
            if u.__class__ is not Node:
                return True if u else v
        return x if x is y else self._sorted("or", x, y, t)

    def invert(self, x: Any, t: str) -> Operand:
        if x.__class__ is not Node:
            return (not x) if t == "bool" else fold("not", t, (x,))
        return x.args[0] if x.op == "not" else self.node("not", t, x)

    def convert(self, x: Any, source: str, target: str) -> Operand:
        """A value as another type: reals towards zero and within its limits as whole numbers, as XLA has it."""
        if source == target:
            return x
        if x.__class__ is not Node:
            return convert_number(x, target)
        if target == "bool":
            return self.compare("ne", x, zero(source), source)
        if is_float(source) and is_integer(target):
            info = np.iinfo(target)
            bounded = self.apply(
                "min", source, self.apply("max", source, x, float(info.min)), _largest(source, target)
            )
            return self.node(
                "convert",
                target,
                self.select(self.compare("eq", x, x, source), bounded, 0.0, source),
                data=source,
            )
        return self.node("convert", target, x, data=source)

    def truncate(self, x: Operand, t: str) -> Operand:
        """x without its fraction."""
        down = self.compare("lt", x, 0.0, t)
        return self.select(down, self.apply("ceil", t, x), self.apply("floor", t, x), t)

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
        """The sum, pairwise, so that rounding errors stay small."""
        terms = [x for x in terms if x.__class__ is Node or x != 0]
        if not terms:
            return zero(t)
        while len(terms) > 1:
            pairs = [self.add(x, y, t) for x, y in zip(terms[::2], terms[1::2], strict=False)]
            terms = pairs + terms[len(pairs) * 2 :]
        return terms[0]

    def rule(
        self, value: Operand, rule: DerivativeRule, k: int, i: int, inputs: Sequence[Operand]
    ) -> Operand:
        """A value, entry i of output k of a function of the inputs that has a derivative of its own."""
        if is_number(value):
            return value
        return self.node("rule", value.type, value, *inputs, data=(rule, k, i))

    def refuse(self, value: Operand, message: str, backward: bool) -> Operand:
        """A value whose derivative raises: in reverse mode only where `backward`."""
        return value if is_number(value) else self.node("refuse", value.type, value, data=(message, backward))

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
            if all(x == entries[0] for x in entries):
                return self.fill(entries[0] if entries else 0, len(entries), t)
            return self.node("table", t, data=(tuple(entries),), size=len(entries))
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


def base_of(array: Node) -> Node:
    """The array in whose memory one is that has no derivative."""
    while array.op == "stop_gradient":
        array = array.args[0]
    return array


def zero(t: str) -> Number:
    """Zero of a type."""
    return 0.0 if is_float(t) else False if t == "bool" else 0


def _largest(source: str, target: str) -> float:
    """The largest number of a real type that a whole one can hold."""
    most = np.dtype(source).type(np.iinfo(target).max)
    return float(most if int(most) <= np.iinfo(target).max else np.nextafter(most, np.dtype(source).type(0)))


def convert_number(x: Any, t: str) -> Number:
    """A number as one of a type."""
    if t == "bool":
        return bool(x)
    if is_float(t):
        return float(np.dtype(t).type(x))
    info = np.iinfo(t)
    if isinstance(x, float):
        x = 0 if math.isnan(x) else min(max(x, info.min), info.max)
    x, span = int(x), 1 << info.bits
    return (x - int(info.min)) % span + int(info.min)


# What places in arrays are computed by, tens of thousands of times for a robot: NumPy takes ten times as long.
_OF_PLACES = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "eq": operator.eq, "ne": operator.ne,
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip


def fold(op: str, t: str, args: Sequence[Any]) -> Number:
    """An operation on numbers that are known."""
    if t == "int64" and op in _OF_PLACES and all(x.__class__ is int for x in args):
        found = _OF_PLACES[op](*args)
        if -(1 << 63) <= found < 1 << 63:
            return found
    dtype = np.dtype(t)
    with np.errstate(all="ignore"):
        given = [x if op == "select" and i == 0 else dtype.type(x) for i, x in enumerate(args)]
        return np.asarray(OPERATIONS[op].numpy(*given)).item()


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
}


# --- what programs consist of -----------------------------------------------------------------------------------------


_BY_VISIT = frozenset(("output", "parameter", "loop", "branch", "rule", "attached"))


@final
class Needed:
    """What outputs need of a program.

    - `nodes`: in the order in which they were made.
    - `within`: those of each region that compute there; parameters and outputs of control aside.
    - `live`: of each loop, which of the values it carries are needed.
    - `owner`: the node each region belongs to.
    - `outputs`: of each node that controls, those of its outputs that are needed.
    - `sunk`: of nodes that are computed in a deeper region than their own, that region.
    """

    def __init__(self, outputs: Sequence[Operand], values: bool = False):
        self._values = values  # whether derivatives are not asked for
        self.live: dict[Node, set[int]] = {}
        self.owner: dict[Region, Node] = {}
        self.outputs: dict[Node, list[Node]] = {}
        seen = self._seen = set[Node]()
        stack = self._stack = list[Node]()
        self._need(outputs)
        while stack:
            node = stack.pop()
            if node.op in _BY_VISIT:
                self._visit(node)
                continue
            for x in node.args:  # most nodes: without a call
                if x.__class__ is Node and x not in seen:
                    seen.add(x)
                    stack.append(x)
        self.nodes = sorted(seen, key=operator.attrgetter("number"))
        self.within: dict[Region, list[Node]] = {}
        sunk = self.sunk = _sink(self, outputs) if values else {}
        for node in self.nodes:
            if node.op == "output":
                self.outputs.setdefault(node.args[0], []).append(node)
            elif node.op != "parameter":
                self.within.setdefault(sunk.get(node, node.region), []).append(node)

    @functools.cached_property
    def outermost(self) -> list[Node]:
        """The nodes that compute outside of all loops and branches, in order."""
        outside = [x for region, nodes in self.within.items() if region not in self.owner for x in nodes]
        return sorted(outside, key=operator.attrgetter("number"))

    def _need(self, operands: Iterable[Any]) -> None:
        for x in operands:
            if x.__class__ is Node and x not in self._seen:
                self._seen.add(x)
                self._stack.append(x)

    def _visit(self, node: Node) -> None:
        if node.op == "output":
            (control,) = node.args
            self._need(node.args)
            if control.op == "loop":
                self._need_carried(control, node.data)
            elif control.op == "branch":
                self.owner.update(
                    dict.fromkeys(control.data.regions, control)
                )  # before its parameters are seen
                self._need(results[node.data] for results in control.data.results)
        elif node.op == "parameter":
            control = self.owner.get(node.region)
            if control is not None and control.op == "loop":
                self._need_carried(control, node.data)
            elif control is not None:
                self._need([control.args[1 + node.data]])
        elif node.op == "loop":
            self.owner[node.data.region] = node
            self.live.setdefault(node, set())
            self._need([node.data.condition])
        elif node.op == "branch":
            self._need([node.args[0]])
        else:  # the derivative of what it stands for is another's
            self._need(node.args[:1] if self._values else node.args)

    def _need_carried(self, loop: Node, k: int) -> None:
        live = self.live.setdefault(loop, set())
        if k not in live:
            live.add(k)
            self.owner[loop.data.region] = loop
            self._need([loop.args[k], loop.data.results[k], loop.data.region.params[k]])

    def __contains__(self, node: Node) -> bool:
        return node in self._seen

    def carried(self, loop: Node) -> list[int]:
        """Which of the values that a loop carries are needed, in order."""
        return sorted(self.live.get(loop, ()))

    def given(self, branch: Node) -> list[int]:
        """Which of the values that a branch is given are needed on either side, in order."""
        params = (p for region in branch.data.regions for p in region.params)
        return sorted({p.data for p in params if p in self._seen})

    def results(self, call: Node) -> tuple[int, ...]:
        """Which results of a call are needed, in order."""
        return tuple(sorted(x.data for x in self.outputs.get(call, ())))

    def asked(self, loop: Node) -> set[Node]:
        """The nodes of a loop's region that its condition depends on."""
        region, found = loop.data.region, set[Node]()
        stack = [loop.data.condition]
        while stack:
            x = stack.pop()
            if x.__class__ is not Node or x in found or x.region.depth < region.depth:
                continue
            found.add(x)
            stack += x.args
            if x.op in ("loop", "branch"):
                inner = [x.data.region] if x.op == "loop" else x.data.regions
                stack += [y for within in inner for y in self.of(within)]
        return found

    def of(self, region: Region) -> list[Node]:
        """The nodes of a region that compute, in order."""
        return self.within.get(region, [])


def _is_at_most_one(x: Operand) -> bool:
    if is_number(x):
        return 0 <= x <= 1
    if x.op == "convert":
        return x.data == "bool"
    return x.op in ("select", "mul") and all(map(_is_at_most_one, x.args[-2:]))


def _runs_once(loop: Node) -> bool:
    """Whether a loop makes one pass or none: it counts from zero up to a truth."""
    body, more = loop.data, loop.data.condition
    if is_number(more) or more.op != "lt":
        return False
    counter, end = more.args
    if is_number(counter) or counter.op != "parameter" or counter.region is not body.region:
        return False
    counts = body.results[counter.data]
    return (
        loop.args[counter.data] == 0
        and not is_number(counts)
        and (counts.op == "add" and set(counts.args) == {1, counter})
        and _is_at_most_one(end)
    )


_STAYS = frozenset(("parameter", "output", "loop", "branch"))


def _reads_or_repeats(call: Node) -> bool:
    """Whether a call is to run where it stands: arrays may be changed later, and loops run on elsewhere."""
    return call.data.repeats or any(x.__class__ is Node and x.size is not None for x in call.args)


def _sink(needed: Needed, outputs: Sequence[Operand]) -> dict[Node, Region]:
    """Where nodes are computed that stand before a loop of one pass or none and are only used in it."""
    once = {loop.data.region for loop in needed.live if _runs_once(loop)}
    if not once:
        return {}
    owner, meet, sunk, asked = needed.owner, dict[Node, Region](), dict[Node, Region](), set[Node]()

    def common(x: Region, y: Region) -> Region:
        """The deepest region around both."""
        while x is not y:
            if x.depth < y.depth:
                x, y = y, x
            x = owner[x].region
        return x

    def use(x: Operand, region: Region) -> None:
        if x.__class__ is Node:
            x = x.args[0] if x.op == "output" and x.args[0].op == "call" else x
            known = meet.get(x, region)
            meet[x] = region if known is region else common(known, region)

    replaced = collections.defaultdict[Node, list[int]](list)  # of arrays, when their place may be taken
    for node in needed.nodes:
        if node.op in ("store", "loop", "branch"):
            for x in node.args:
                if x.__class__ is Node and x.size is not None:
                    replaced[base_of(x)].append(node.number)

    def may_wait(load: Node, inner: Region) -> bool:
        """Whether an array is there still when a control runs that stands beside a load."""
        array, control = base_of(load.args[0]), owner[inner]
        return array.region is not load.region or not any(
            load.number < x <= control.number for x in replaced[array]
        )

    top = [x.region for x in needed.nodes[:1]]
    while top and top[0] in owner:
        top = [owner[top[0]].region]
    for x in outputs:
        use(x, top[0])
    for node in reversed(needed.nodes):
        op, region = node.op, node.region
        if op == "parameter" or op == "output":
            continue
        if op == "loop":
            if node.data.region in once:  # what its condition needs is computed before
                asked |= needed.asked(node)
            use(node.data.condition, node.data.region)
            for k in needed.carried(node):
                use(node.data.results[k], node.data.region)
                use(node.args[k], region)
            continue
        if op == "branch":
            for results, inner in zip(node.data.results, node.data.regions, strict=True):
                for x in results:
                    use(x, inner)
        elif op not in _STAYS and node.size is None and not (op == "call" and _reads_or_repeats(node)):
            deepest, path = meet.get(node, region), list[Region]()
            while deepest.depth > region.depth:
                path.append(deepest)
                deepest = owner[deepest].region
            for inner in reversed(path):
                if inner not in once or (op == "load" and not may_wait(node, path[-1])):
                    break
                region = sunk[node] = inner
        if node in asked:
            region = owner[region].region
        for x in node.args[:1] if op in ("rule", "attached") else node.args:
            use(x, region)
    return sunk


def as_text(outputs: Sequence[Operand]) -> str:
    """A program as a person reads it, one operation a line, regions indented; what it calls comes after it."""
    callees: dict[Subprogram, str] = {}
    lines = _text_of(Needed(outputs), callees)
    lines.append(f"gives {_format_operands(outputs)}")
    written = 0
    while written < len(callees):
        callee, name = list(callees.items())[written]
        written += 1
        lines += [
            "",
            f"{name}:",
            *_text_of(callee.needed(), callees),
            f"gives {_format_operands(callee.results)}",
        ]
    return "\n".join(lines)


def _format_operands(operands: Iterable[Operand]) -> str:
    return ", ".join(map(repr, operands))


def _text_of(needed: Needed, callees: dict[Subprogram, str]) -> list[str]:
    """The lines of one program; what it calls is noted in `callees`."""
    lines: list[str] = []

    def block(nodes: Sequence[Node], indent: str) -> None:
        for node in nodes:
            size = "" if node.size is None else f"[{'*' if node.size == GROWING else node.size}]"
            if node.op == "loop":
                body, live = node.data, needed.carried(node)
                outs = {x.data: x for x in needed.outputs.get(node, ())}
                lines.append(f"{indent}{node!r}: loop from {_format_operands(node.args[k] for k in live)}")
                lines.append(f"{indent}  {_format_operands(body.region.params[k] for k in live)}:")
                block(needed.of(body.region), indent + "    ")
                lines.append(
                    f"{indent}  while {body.condition!r} next {_format_operands(body.results[k] for k in live)}"
                )
                lines.append(
                    f"{indent}  gives {', '.join(f'{x!r} = {body.region.params[k]!r}' for k, x in outs.items())}"
                )
            elif node.op == "branch":
                given, outs = needed.given(node), needed.outputs.get(node, ())
                lines.append(
                    f"{indent}{node!r}: branch {node.args[0]!r} of {_format_operands(node.args[1 + k] for k in given)}"
                )
                for word, region_, results in zip(
                    ("if so", "else"), node.data.regions, node.data.results, strict=True
                ):
                    lines.append(f"{indent}  {word} {_format_operands(region_.params[k] for k in given)}:")
                    block(needed.of(region_), indent + "    ")
                    lines.append(f"{indent}    gives {_format_operands(results[x.data] for x in outs)}")
                lines.append(f"{indent}  gives {_format_operands(outs)}")
            elif node.op == "call":
                name = callees.setdefault(node.data, f"callee {len(callees) + 1}")
                given = _format_operands(node.args[i] for i in node.data.given())
                outs = {x.data: x for x in needed.outputs.get(node, ())}
                taken = (f"{x!r} = {node.data.results[k]!r}" for k, x in sorted(outs.items()))
                lines.append(f"{indent}{node!r}: call {name} of {given}")
                lines.append(f"{indent}  gives {', '.join(taken)}")
            else:
                about = f" [{node.data}]" if node.op in ("convert", "parameter") or node.op in TRUTHS else ""
                lines.append(
                    f"{indent}{node!r}: {node.type}{size} = {node.op}{about} {_format_operands(node.args)}".rstrip()
                )

    params = [x for x in needed.nodes if x.op == "parameter" and x.region.depth == 0]
    kind = lambda x: x.type if x.size is None else f"{x.type}[{x.size}]"
    lines.append(f"given {', '.join(f'{x!r}: {kind(x)}' for x in params)}")
    block(needed.outermost, "")
    return lines
