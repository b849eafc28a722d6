"""Operations written for LLVM, on vectors of numbers: one number of each member of a block."""

import functools
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple, final

import numpy as np

from ._expressions import Expression, Node, is_truth, reachable
from ._llvm_text import Writer
from ._trigonometry import COEFFICIENTS

_ARITHMETIC = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_COMPARISONS = {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "eq": "oeq", "ne": "une"}
_LOGIC = {"and": "and", "or": "or", "xor": "xor", "eq": "icmp eq", "ne": "icmp ne"}
_INTRINSICS = {
    "abs": "fabs",
    "max": "maximum",
    "min": "minimum",
    "sqrt": "sqrt",
    "floor": "floor",
    "ceil": "ceil",
}
_SAME = frozenset(("attached", "stop_gradient"))
_WRITTEN_OUT = frozenset(("neg", "not", "select", "sign", "rsqrt", "logistic", "is_finite", "sin", "cos"))
# fmt: off
_OF_C = {name: name for name in (
    "exp", "exp2", "expm1", "log", "log1p", "tan", "atan2", "pow", "erf", "erfc", "cbrt", "asin", "acos", "atan",
    "sinh", "cosh", "tanh", "asinh", "acosh", "atanh",
)} | {"rem": "fmod"}
# fmt: on
_KNOWN = frozenset((*_ARITHMETIC, *_COMPARISONS, *_LOGIC, *_INTRINSICS, *_OF_C, *_SAME, *_WRITTEN_OUT))


class Kind(NamedTuple):
    """Vectors of `width` numbers of a type, "float64" or "float32"; of one, that number by itself."""

    dtype: str
    width: int

    @property
    def number(self) -> str:
        """One number."""
        return {"float64": "double", "float32": "float"}[self.dtype]

    @property
    def vector(self) -> str:
        """A number of each member."""
        return self.of(self.number)

    @property
    def truths(self) -> str:
        """True or false for each member."""
        return self.of("i1")

    def of(self, one: str) -> str:
        """So many of a type."""
        return one if self.width == 1 else f"<{self.width} x {one}>"

    def repeated(self, kind: str, one: str) -> str:
        """A constant of a type for all members."""
        return one if self.width == 1 else "<" + ", ".join([f"{kind} {one}"] * self.width) + ">"

    def spread(self, write: Callable[[str], str], one: str) -> str:
        """The name of a number for all members.

        **Arguments:**

        - `write`: writes an instruction and gives the name of its result.
        - `one`: the name of the number.
        """
        if self.width == 1:
            return one
        first = write(f"insertelement {self.vector} undef, {self.number} {one}, i32 0")
        return write(
            f"shufflevector {self.vector} {first}, {self.vector} undef, <{self.width} x i32> zeroinitializer"
        )

    @property
    def bytes(self) -> int:
        """The size of a number."""
        return np.dtype(self.dtype).itemsize

    def literal(self, x: float) -> str:
        """One number as LLVM reads it, exactly."""
        bits = struct.unpack(">Q", struct.pack(">d", float(np.dtype(self.dtype).type(x))))[0]
        return f"0x{bits:016X}"

    def constant(self, x: float) -> str:
        """The same number for all members."""
        return self.repeated(self.number, self.literal(x))

    def of_c(self, op: str) -> str | None:
        """The function of the C library that computes an operation, if one does."""
        name = "exp" if op == "logistic" else _OF_C.get(op)
        return name and name + ("f" if self.dtype == "float32" else "")


def functions(nodes: Sequence[Node], kind: Kind) -> dict[str, int] | None:
    """Functions of the C library that operations need, with how many operands they take; None if some are not known."""
    ops = {x.op: len(x.args) for x in nodes if x.op != "input"}
    if not ops.keys() <= _KNOWN:
        return None
    return {name: count for op, count in ops.items() if (name := kind.of_c(op))}


@final
class Instructions:
    """Instructions that compute expressions.

    **Arguments:**

    - `w`: writes them.
    - `kind`: of the vectors.
    - `load`: writes what loads an input, by its number.

    `called` are the functions of the C library that they need, with how many operands each takes.
    """

    def __init__(self, w: Writer, kind: Kind, load: Callable[[int], str]):
        self._w, self.kind, self.called = w, kind, dict[str, int]()
        self._vector, self._truths = kind.vector, kind.truths
        self._load, self._names = load, dict[Node, str]()
        self._turned = functools.cache(self._turned_once)

    def compute(self, outputs: Sequence[Expression], store: Callable[[int, str], None]) -> None:
        """Writes what computes expressions.

        **Arguments:**

        - `outputs`: the expressions.
        - `store`: writes what stores one, by its place among them and its name.
        """
        places: dict[Expression, list[int]] = {}
        for i, x in enumerate(outputs):
            if isinstance(x, Node) and x.op != "input":
                places.setdefault(x, []).append(i)
            else:
                store(i, self.name(x))
        for node in reachable(outputs):
            if node.op == "input":
                continue
            self._names[node] = self._operation(node)
            for i in places.get(node, ()):  # at once, so that it need not be kept
                store(i, self._names[node])

    def name(self, x: Expression) -> str:
        """What an expression that was computed, an input or a constant is called."""
        if isinstance(x, bool):
            return self.kind.repeated("i1", str(int(x)))
        if not isinstance(x, Node):
            return self.kind.constant(x)
        if x.op == "input" and x not in self._names:
            self._names[x] = self._load(x.args[0])
        return self._names[x]

    def _operation(self, node: Node) -> str:
        args, op = [self.name(x) for x in node.args], node.op
        if op in _SAME:
            return args[0]
        if op in _LOGIC and is_truth(node.args[0]):
            return self._w(f"{_LOGIC[op]} {self._truths} {args[0]}, {args[1]}")
        if op in _COMPARISONS:
            return self._w(f"fcmp {_COMPARISONS[op]} {self._vector} {args[0]}, {args[1]}")
        if op in _ARITHMETIC:
            return self._arithmetic(op, *args)
        if op in _INTRINSICS:
            return self._intrinsic(op, *args)
        if op == "select":
            boolean = is_truth(node)
            return self._select(args[0], args[1], args[2], boolean)
        name = self.kind.of_c(op)
        return self._each(name, args) if op in _OF_C and name else getattr(self, "_" + op)(*args)

    def _arithmetic(self, op: str, x: str, y: str) -> str:
        # A product and a sum may become one operation, as XLA has it on a CPU.
        return self._w(f"{_ARITHMETIC[op]} contract {self._vector} {x}, {y}")

    def _intrinsic(self, op: str, *args: str) -> str:
        vector = self._vector
        operands = ", ".join(f"{vector} {x}" for x in args)
        several = f"v{self.kind.width}" if self.kind.width > 1 else ""
        return self._w(f"call {vector} @llvm.{_INTRINSICS[op]}.{several}f{8 * self.kind.bytes}({operands})")

    def _each(self, function: str, args: Sequence[str]) -> str:
        """A function of C, for one member after the other."""
        number, vector = self.kind.number, self._vector
        self.called[function] = len(args)
        of = lambda each: self._w(f"call {number} @{function}({', '.join(f'{number} {x}' for x in each)})")
        if self.kind.width == 1:
            return of(args)
        found = "undef"
        for i in range(self.kind.width):
            value = of([self._w(f"extractelement {vector} {x}, i32 {i}") for x in args])
            found = self._w(f"insertelement {vector} {found}, {number} {value}, i32 {i}")
        return found

    def _select(self, which: str, x: str, y: str, truths: bool = False) -> str:
        kind = self._truths if truths else self._vector
        return self._w(f"select {self._truths} {which}, {kind} {x}, {kind} {y}")

    def _compared(self, how: str, x: str, y: float) -> str:
        return self._w(f"fcmp {_COMPARISONS[how]} {self._vector} {x}, {self.kind.constant(y)}")

    def _neg(self, x: str) -> str:
        return self._w(f"fneg {self._vector} {x}")

    def _not(self, x: str) -> str:
        return self._w(f"xor {self._truths} {x}, {self.name(True)}")

    def _sign(self, x: str) -> str:
        constant = self.kind.constant
        negative = self._select(self._compared("lt", x, 0.0), constant(-1.0), x)
        return self._select(self._compared("gt", x, 0.0), constant(1.0), negative)

    def _rsqrt(self, x: str) -> str:
        return self._arithmetic("div", self.kind.constant(1.0), self._intrinsic("sqrt", x))

    def _logistic(self, x: str) -> str:
        one, e = self.kind.constant(1.0), self._each(self.kind.of_c("logistic") or "", [self._neg(x)])
        return self._arithmetic("div", one, self._arithmetic("add", one, e))

    def _is_finite(self, x: str) -> str:
        return self._compared("lt", self._intrinsic("abs", x), float("inf"))

    def _polynomial(self, x: str, coefficients: Sequence[float]) -> str:
        value = self.kind.constant(coefficients[-1])
        for c in coefficients[-2::-1]:
            value = self._arithmetic("add", self._arithmetic("mul", value, x), self.kind.constant(c))
        return value

    def _turned_once(self, x: str) -> tuple[str, str, str, str]:
        """As in `_trigonometry`: sine and cosine of the rest, the fraction of a turn, and whether they change places."""
        known, constant, do = COEFFICIENTS[self.kind.dtype], self.kind.constant, self._arithmetic
        whole = functools.partial(self._intrinsic, "floor")
        quarters = whole(do("add", do("mul", x, constant(2 / np.pi)), constant(0.5)))
        rest = x
        for part in known.half_pi:
            rest = do("sub", rest, do("mul", quarters, constant(part)))
        small = self._compared("lt", self._intrinsic("abs", rest), 1.0)
        rest = self._select(small, rest, do("sub", rest, rest))
        square = do("mul", rest, rest)
        sine = do("mul", do("mul", rest, square), self._polynomial(square, known.sine))
        cosine = do("mul", square, self._polynomial(square, known.cosine))
        fraction = do("mul", quarters, constant(0.25))
        fraction = do("sub", fraction, whole(fraction))
        odd = self._compared("eq", self._intrinsic("abs", do("sub", fraction, constant(0.5))), 0.25)
        return do("add", rest, sine), do("add", constant(1.0), cosine), fraction, odd

    def _sin(self, x: str) -> str:
        sine, cosine, fraction, odd = self._turned(x)
        value = self._select(odd, cosine, sine)
        return self._select(self._compared("lt", fraction, 0.5), value, self._neg(value))

    def _cos(self, x: str) -> str:
        sine, cosine, fraction, odd = self._turned(x)
        value = self._select(odd, sine, cosine)
        middle = self._intrinsic("abs", self._arithmetic("sub", fraction, self.kind.constant(0.375)))
        return self._select(self._compared("lt", middle, 0.25), self._neg(value), value)
