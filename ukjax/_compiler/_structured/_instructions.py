"""Operations on numbers as instructions of LLVM: each number a register, or a vector of one number of each member."""

import contextlib
import functools
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, final

import numpy as np

from .._trigonometry import ReducedAngle, cosine, sine, turn
from ._nodes import Node, is_float, is_integer
from ._table import OPERATIONS

if TYPE_CHECKING:
    from ._llvm_function import Function

_INTS = {1: "i8", 2: "i16", 4: "i32", 8: "i64"}


@functools.cache
def scalar_type(t: str) -> str:
    """LLVM's name of a type."""
    if t == "bool":
        return "i1"
    return {"float64": "double", "float32": "float"}[t] if is_float(t) else _INTS[np.dtype(t).itemsize]


def stored_type(t: str) -> str:
    """LLVM's name of a type in memory, where truths are bytes."""
    return "i8" if t == "bool" else scalar_type(t)


def literal(x: Any, t: str) -> str:
    """One number as LLVM reads it, exactly."""
    if is_float(t):
        return f"0x{struct.unpack('>Q', struct.pack('>d', float(np.dtype(t).type(x))))[0]:016X}"
    return str(int(x))


class ArrayOperand(NamedTuple):
    """How an array is given to a program, or taken from it.

    - `type`, `size`: of its entries, and how many.
    - `shared`: whether all members have the same.
    """

    type: str
    size: int
    shared: bool


class Place(NamedTuple):
    """Where an array is: entry i of member m at `pointer` + (i * stride + m * lane) entries.

    - `stride`: between entries, a number or a name.
    - `lane`: 1, or 0 where all members have the same.
    - `own`: whether it may be written to.
    - `header`: of a growing array, where it stands where its entries are, and how many it has room for.
    """

    pointer: str
    stride: str
    lane: int
    own: bool
    header: str = ""


class Arithmetic(Protocol):
    """What instructions on numbers are written for.

    - `width`: members side by side.
    - `contracts`: whether a product and a sum may be rounded once.
    - `library`: whether the functions of C are there; else whoever takes the text adds them.
    - `functions`: operations on reals that are calls in place of instructions, and what they call.
    """

    width: int
    contracts: bool
    library: bool
    functions: dict[str, str]


class Machine(Arithmetic, Protocol):
    """What a function is written for.

    - `parameters`: of `compute`, before the number of members.
    - `passed`: parameters of other functions, and what they are given for them.
    - `straight`: operations of straight code of which there is one function, in float64 and in float32; more are divided.
    - `apart`: how far it is in memory from one byte that functions leave for each other to the next.
    - `first`, `step`: the member that a call begins with, and how far it is to the next.
    - `returns`: the type of what `compute` returns.
    - `vectors`: makes one for so many members side by side, as those of a batch within a program are to be; or None.
    """

    parameters: str
    passed: tuple[str, ...]
    straight: dict[str, int]
    apart: int
    first: str
    step: str
    returns: str
    vectors: Any

    def begin_pass(self, f: "Function") -> Callable[[int], None]:
        """What comes before a pass that may be long, told how many instructions it has when it is written."""
        ...

    def allocate(self, f: "Function", t: str, size: int) -> Place:
        """Room for an array of each member."""
        ...

    def find(self, emit: "Emitter", place: Place) -> str:
        """Where the entries of a growing array are now."""
        ...

    def grow(self, f: "Function", place: Place, index: str, t: str) -> None:
        """Has a growing array hold an entry."""
        ...

    def clear(self, f: "Function", place: Place, like: Place, t: str) -> None:
        """Has a growing array be zero wherever another has entries."""
        ...

    def enter(self, f: "Function") -> list[str]:
        """What comes before all members."""
        ...

    def leave(self, f: "Function", results: Sequence[ArrayOperand]) -> None:
        """What follows a member whose results were written."""
        ...

    def exit(self, f: "Function") -> None:
        """What follows the last member."""
        ...


@final
class Emitter:
    """Writes the instructions of a function.

    - `lines`: what is written, and `entry` what comes before it.
    - `block`: the label of what is written now.
    - `width`: members side by side.
    - `declared`: what is called of others, by name.
    - `called`: the functions of C among it.
    """

    def __init__(self, machine: Arithmetic, declared: dict[str, str], called: set[str]):
        self.machine, self.width, self.declared, self.called = machine, machine.width, declared, called
        self.lines, self.entry, self.block, self.count = list[str](), list[str](), "entry", 0
        self._constants, self._turned = dict[Any, str](), dict[tuple[str, str], ReducedAngle]()

    def new(self, word: str = "v") -> str:
        self.count += 1
        return f"%{word}{self.count}"

    def __call__(self, instruction: str) -> str:
        self.count += 1
        name = f"%v{self.count}"
        self.lines.append(f"  {name} = {instruction}")
        return name

    def do(self, instruction: str) -> None:
        self.lines.append(f"  {instruction}")

    def labels(self, *words: str) -> list[str]:
        self.count += 1
        return [f"{word}{self.count}" for word in words]

    def begin(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.block = label

    def count_up(self, count: str, body: Callable[[str], None]) -> None:
        """A body for each number below a count."""
        head, inner, after = self.labels("head", "inner", "after")
        before, k = self.block, f"%{head}.k"
        self.do(f"br label %{head}")
        self.begin(head)
        place = len(self.lines)
        self.lines.append("")
        more = self(f"icmp ult i64 {k}, {count}")
        self.do(f"br i1 {more}, label %{inner}, label %{after}")
        self.begin(inner)
        body(k)
        self.do(f"{k}.next = add i64 {k}, 1")
        self.lines[place] = f"  {k} = phi i64 [0, %{before}], [{k}.next, %{self.block}]"
        self.do(f"br label %{head}")
        self.begin(after)

    def lanes(self, one: str) -> str:
        return one if self.width == 1 else f"<{self.width} x {one}>"

    def vector(self, t: str) -> str:
        return self.lanes(scalar_type(t))

    def repeat(self, kind: str, one: str) -> str:
        return one if self.width == 1 else "<" + ", ".join([f"{kind} {one}"] * self.width) + ">"

    def constant(self, x: Any, t: str) -> str:
        sign = math.copysign(1, x) if x.__class__ is float else 0
        key = (x.__class__, t, x if x == x else "nan", sign, self.width)
        name = self._constants.get(key)
        if name is None:
            name = self._constants[key] = self.repeat(scalar_type(t), literal(x, t))
        return name

    def spread(self, one: str, kind: str) -> str:
        """A scalar for all members."""
        if self.width == 1:
            return one
        kinds = self.lanes(kind)
        first = self(f"insertelement {kinds} poison, {kind} {one}, i32 0")
        return self(f"shufflevector {kinds} {first}, {kinds} poison, <{self.width} x i32> zeroinitializer")

    @contextlib.contextmanager
    def for_all(self) -> Iterator[None]:
        """Writes what is the same for all members once."""
        width, self.width = self.width, 1
        yield
        self.width = width

    def truth(self, x: str) -> str:
        """Of a byte in memory, the truth."""
        return self(f"trunc {self.lanes('i8')} {x} to {self.lanes('i1')}")

    def reduce(self, how: str, kind: str, x: str) -> str:
        """One number of those of all members."""
        name = f"llvm.vector.reduce.{how}.v{self.width}{kind}"
        self.declared[name] = f"{kind} @{name}({self.lanes(kind)})"
        return self(f"call {kind} @{name}({self.lanes(kind)} {x})")

    def gather(self, where: str, mask: str, t: str) -> str:
        """What is in memory at places, for some members."""
        kinds, places, masks = self.lanes(stored_type(t)), self.lanes("ptr"), self.lanes("i1")
        name = f"llvm.masked.gather.v{self.width}{_short(stored_type(t))}.v{self.width}p0"
        self.declared[name] = f"{kinds} @{name}({places}, i32, {masks}, {kinds})"
        bytes = np.dtype(t).itemsize
        given = f"{places} {where}, i32 {bytes}, {masks} {mask}, {kinds} zeroinitializer"
        return self(f"call {kinds} @{name}({given})")

    def scatter(self, value: str, where: str, mask: str, t: str) -> None:
        """Stores at places, for some members."""
        kinds, places, masks = self.lanes(stored_type(t)), self.lanes("ptr"), self.lanes("i1")
        name = f"llvm.masked.scatter.v{self.width}{_short(stored_type(t))}.v{self.width}p0"
        self.declared[name] = f"void @{name}({kinds}, {places}, i32, {masks})"
        bytes = np.dtype(t).itemsize
        self.do(f"call void @{name}({kinds} {value}, {places} {where}, i32 {bytes}, {masks} {mask})")

    def compare(self, how: str, x: str, y: str, t: str) -> str:
        ordered, signed, unsigned = (
            OPERATIONS[how].llvm.split() if " " in OPERATIONS[how].llvm else ("", "", "")
        )
        if is_float(t):
            return self(f"fcmp {ordered} {self.vector(t)} {x}, {y}")
        return self(f"icmp {unsigned if t[0] == 'u' or t == 'bool' else signed} {self.vector(t)} {x}, {y}")

    def choose(self, which: str, x: str, y: str, t: str) -> str:
        return self(f"select {self.lanes('i1')} {which}, {self.vector(t)} {x}, {self.vector(t)} {y}")

    def arithmetic(self, op: str, x: str, y: str, t: str) -> str:
        return self(f"f{op}{' contract' * self.machine.contracts} {self.vector(t)} {x}, {y}")

    def turn(self, x: str, t: str) -> ReducedAngle:
        """An angle, turned back once for its sine and its cosine."""
        key = (x, self.block)
        if key not in self._turned:
            self._turned[key] = turn(Number(self, x, t), t, Number)
        return self._turned[key]

    def intrinsic(self, name: str, operands: Sequence[str], t: str) -> str:
        if is_integer(t):
            name = {"maximum": "smax", "minimum": "smin", "fabs": "abs"}[name]
            name = name.replace("s", "u", 1) if t[0] == "u" and name != "abs" else name
        full = f"llvm.{name}.{'' if self.width == 1 else f'v{self.width}'}{_short(scalar_type(t))}"
        kind = self.vector(t)
        given = [f"{kind} {x}" for x in operands] + (["i1 false"] if name == "abs" else [])
        self.declared[full] = (
            f"{kind} @{full}({', '.join([kind] * len(operands) + (['i1'] if name == 'abs' else []))})"
        )
        return self(f"call {kind} @{full}({', '.join(given)})")

    def library(self, name: str, operands: Sequence[str], t: str) -> str:
        """A function of the C library."""
        kind = scalar_type(t)
        name += _suffix(t)
        self.called.add(name)
        if self.machine.library:
            self.declared[name] = f"{kind} @{name}({', '.join([kind] * len(operands))})"
        return self.call(name, operands, t)

    def call(self, name: str, operands: Sequence[str], t: str) -> str:
        """A function of numbers of a type, for one member after the other."""
        kind = scalar_type(t)
        one = lambda given: self(f"call {kind} @{name}({', '.join(f'{kind} {x}' for x in given)})")
        if self.width == 1:
            return one(operands)
        kinds, out = self.vector(t), "poison"
        for k in range(self.width):
            value = one([self(f"extractelement {kinds} {x}, i32 {k}") for x in operands])
            out = self(f"insertelement {kinds} {out}, {kind} {value}, i32 {k}")
        return out


@final
class Number:
    """A real number while a function is written: an operation on it writes an instruction.

    **Arguments:**

    - `emit`: writes it.
    - `name`: of it.
    - `t`: its type.
    """

    def __init__(self, emit: Emitter, name: str, t: str = "float64"):
        self.emit, self.name, self.t = emit, name, t

    def _name(self, x: "Number | float") -> str:
        return x.name if isinstance(x, Number) else self.emit.constant(float(x), self.t)

    def _apply(self, op: str, x: "Number | float", y: "Number | float") -> "Number":
        return Number(self.emit, self.emit.arithmetic(op, self._name(x), self._name(y), self.t), self.t)

    def __add__(self, y: "Number | float") -> "Number":
        return self._apply("add", self, y)

    def __sub__(self, y: "Number | float") -> "Number":
        return self._apply("sub", self, y)

    def __rsub__(self, y: float) -> "Number":
        return self._apply("sub", y, self)

    def __mul__(self, y: "Number | float") -> "Number":
        return self._apply("mul", self, y)

    def __truediv__(self, y: "Number | float") -> "Number":
        names = [self.name, self._name(y)]
        return Number(self.emit, self.emit.call(self.emit.machine.functions["div"], names, self.t), self.t)

    def __neg__(self) -> "Number":
        return Number(self.emit, self.emit(f"fneg {self.emit.vector(self.t)} {self.name}"), self.t)

    def __abs__(self) -> "Number":
        return self.of("fabs")

    def __lt__(self, y: "Number | float") -> str:
        return self.is_("olt", y)

    def __eq__(self, y: Any) -> Any:
        return self.is_("oeq", y)

    def is_(self, how: str, y: "Number | float") -> str:
        """A comparison as LLVM names it: oge, ult and so on."""
        return self.emit(f"fcmp {how} {self.emit.vector(self.t)} {self.name}, {self._name(y)}")

    def of(self, intrinsic: str, *others: "Number | float") -> "Number":
        """An intrinsic function of it: fabs, floor, and of others too fma, which rounds once."""
        names = [self.name, *map(self._name, others)]
        return Number(self.emit, self.emit.intrinsic(intrinsic, names, self.t), self.t)

    @staticmethod
    def floor(x: "Number") -> "Number":
        """The largest whole number below, as `numpy.floor`."""
        return x.of("floor")

    @staticmethod
    def where(which: str, x: "Number", y: "Number | float") -> "Number":
        """x where a truth holds, else y, as `numpy.where`."""
        return Number(x.emit, x.emit.choose(which, x.name, x._name(y), x.t), x.t)


def _suffix(t: str) -> str:
    return "f" if t == "float32" else ""  # as the C library has it


def _short(kind: str) -> str:
    return {"double": "f64", "float": "f32"}.get(kind, kind)


def operand_types(node: Node) -> tuple[str, ...]:
    """Of what an operation on numbers takes."""
    if node.op == "select":
        return "bool", node.type, node.type
    return (node.data if node.op in _OF_OTHER_TYPE else node.type,) * len(node.args)


def write_operation(emit: Emitter, node: Node, operands: Sequence[str]) -> str:
    """Writes an operation on numbers of these names, and gives that of its value."""
    op, t, functions = node.op, node.type, emit.machine.functions
    if op in _WRITTEN:
        return _WRITTEN[op](emit, node, *operands)
    if is_float(t) and op in functions:
        return emit.call(functions[op] + _suffix(t), operands, t)
    how = OPERATIONS[op].llvm
    if how.startswith("@"):
        return emit.intrinsic(how[1:], operands, t)
    if how.endswith("()"):
        return emit.library(how[:-2], operands, t)
    instruction = how.split()[0 if is_float(t) or len(how.split()) < 2 else 1]
    if op in ("quotient", "remainder"):
        instruction = how.split()[t[0] == "u"]
    x, y = operands
    if is_float(t):
        return emit.arithmetic(instruction[1:], x, y, t)
    return emit(f"{instruction} {emit.vector(t)} {x}, {y}")


def _comparison(emit: Emitter, node: Node, x: str, y: str) -> str:
    return emit.compare(node.op, x, y, node.data)


def _select(emit: Emitter, node: Node, which: str, x: str, y: str) -> str:
    return emit.choose(which, x, y, node.type)


def _neg(emit: Emitter, node: Node, x: str) -> str:
    kind = emit.vector(node.type)
    return emit(
        f"fneg {kind} {x}" if is_float(node.type) else f"sub {kind} {emit.constant(0, node.type)}, {x}"
    )


def _not(emit: Emitter, node: Node, x: str) -> str:
    t = node.type
    return emit(f"xor {emit.vector(t)} {x}, {emit.constant(True if t == 'bool' else -1, t)}")


def _sign(emit: Emitter, node: Node, x: str) -> str:
    t = node.type
    minus, zero, one = (emit.constant(float(c) if is_float(t) else c, t) for c in (-1, 0, 1))
    below = emit.choose(emit.compare("lt", x, zero, t), minus, x, t)
    return emit.choose(emit.compare("gt", x, zero, t), one, below, t)


def _is_finite(emit: Emitter, node: Node, x: str) -> str:
    t = node.data
    return emit.compare("lt", emit.intrinsic("fabs", [x], t), emit.constant(math.inf, t), t)


def _convert(emit: Emitter, node: Node, x: str) -> str:
    source, target = node.data, node.type
    if source == "bool" and is_float(target):  # for a conversion LLVM leaves its fast way
        return emit.choose(x, emit.constant(1.0, target), emit.constant(0.0, target), target)
    if source == "bool":
        how = "zext"
    elif is_float(source) and is_float(target):
        how = "fpext" if source == "float32" else "fptrunc"
    elif is_float(source):
        how = "fptoui" if target[0] == "u" else "fptosi"
    elif is_float(target):
        how = "uitofp" if source[0] == "u" else "sitofp"
    else:
        a, b = np.dtype(source).itemsize, np.dtype(target).itemsize
        if a == b:
            return x
        how = "trunc" if a > b else "zext" if source[0] == "u" else "sext"
    return emit(f"{how} {emit.vector(source)} {x} to {emit.vector(target)}")


def _bitcast(emit: Emitter, node: Node, x: str) -> str:
    if scalar_type(node.data) == scalar_type(node.type):
        return x
    return emit(f"bitcast {emit.vector(node.data)} {x} to {emit.vector(node.type)}")


_OF_OTHER_TYPE = frozenset(("lt", "le", "gt", "ge", "eq", "ne", "is_finite", "convert", "bitcast"))
_WRITTEN: dict[str, Callable[..., str]] = {
    **dict.fromkeys(("lt", "le", "gt", "ge", "eq", "ne"), _comparison),
    "select": _select,
    "neg": _neg,
    "not": _not,
    "sign": _sign,
    "is_finite": _is_finite,
    "convert": _convert,
    "bitcast": _bitcast,
    "sin": lambda emit, node, x: sine(emit.turn(x, node.type), Number).name,
    "cos": lambda emit, node, x: cosine(emit.turn(x, node.type), Number).name,
}
