"""Programs of scalars as the text of LLVM functions: each scalar a register, or a vector of one number of each member.

Members of a batch lie side by side in vectors. In a loop, those that have ended keep what they carry, and the loop goes
on until the last one has; what is stored meanwhile is stored for the others only.

Arrays in memory are changed in place where nothing reads their former entries any more, and copied where something does.
"""

import collections
import contextlib
import functools
import hashlib
import itertools
import math
import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple, Protocol, final

import numpy as np

from .._trigonometry import COEFFICIENTS
from ._ir import (
    GROWING,
    OPERATIONS,
    TRUTHS,
    Needed,
    Node,
    Operand,
    Subprogram,
    is_float,
    is_integer,
    is_number,
)
from ._uses import Uses, apart, count_passes, depth_first, find_in_place, is_plain

# Numbers that a function is given in registers; the others are left for it in memory. For more, LLVM leaves its fast way
# to choose instructions, and a GPU keeps them in memory of each call; browsers allow 1000.
_DIRECT = 8
_SAME = frozenset(("rule", "refuse", "stop_gradient", "attached"))  # whose value is that of an operand
_SHARED = 2000  # operations of a sub-program without loops, from which on programs share its machine code
_AS_LONG = 1.15  # all its results are computed where that takes up to so many times as many operations
_COPIED = 4096  # entries of an operand, up to which numbers of it are left for others
_TOGETHER = 4  # numbers, from which on one pointer is given in place of them
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


@final
class Source:
    """Where numbers were left in memory: from `offset` on, or from where the pointer at `slot` says.

    - `program`: the sub-program whose next call leaves others there, if any does.
    - `alive`: whether they are there still.
    """

    __slots__ = ("alive", "offset", "program", "slot")

    def __init__(self, offset: int = 0, program: Subprogram | None = None, slot: int | None = None):
        self.offset, self.program, self.slot, self.alive = offset, program, slot, True


Home = tuple[Source, int]
"""Where in memory a number is, and how many bytes behind."""


class Group(NamedTuple):
    """Numbers that a function finds where others have left them.

    - `numbers`: which of those given, in order.
    - `behind`: how many bytes each is behind a pointer, which stands at `slot`.
    - `staged`: where they are put if they are not together.
    """

    numbers: tuple[int, ...]
    behind: tuple[int, ...]
    slot: int
    staged: int


class Callee(NamedTuple):
    """The function of a sub-program.

    - `name`: its name.
    - `results`: which it leaves.
    - `place`: where in memory it finds what is given last, and leaves its results.
    - `groups`: of numbers that are elsewhere in memory.
    - `room`: where its own part of memory begins.
    - `cost`, `stops`: as of what wrote it.
    """

    name: str
    results: tuple[int, ...]
    place: int
    groups: tuple[Group, ...]
    room: int = 0
    cost: int = 0
    stops: bool = False

    def within(self, room: int) -> "Callee":
        """The same where its part of memory begins elsewhere."""
        groups = (x._replace(slot=room + x.slot, staged=room + x.staged) for x in self.groups)
        return self._replace(room=room, place=room + self.place, groups=tuple(groups))


class Unit(NamedTuple):
    """A function of a sub-program that programs share, compiled by itself.

    - `callee`: the function.
    - `declared`: how others declare it.
    - `texts`: of it, and of other units that it calls.
    - `room`: bytes of memory that it takes.
    - `called`: the functions of C that it calls.
    """

    callee: Callee
    declared: str
    texts: tuple[str, ...]
    room: int
    called: frozenset[str]


def write_function(
    outputs: Sequence[Any],
    operands: Sequence[ArrayOperand],
    results: Sequence[ArrayOperand],
    params: Sequence[Node],
    machine: "Machine",
    units: dict[str, None] | None = None,
) -> tuple[str, frozenset[str]]:
    """The text of `compute(..., members, results..., operands...)`, and the functions of C that it calls.

    The texts of units are left in `units`; without it there are none.
    """
    module = Module(machine, units)
    flat = [x for out in outputs for x in ([out] if isinstance(out, Node) else out)]
    module.find_results(needed := Needed(flat, values=True))
    function = Function(module, needed, flat)
    text = module.text(function.compute(outputs, operands, results, params))
    return text, frozenset(module.called)


def write_scalar_function(
    name: str, params: Sequence[Node], output: Operand, machine: "Machine"
) -> tuple[str, frozenset[str]]:
    """The text of a function of scalars that calls others, and those of C that it calls; all are of one type."""
    module = Module(machine)
    module.find_results(needed := Needed([output], values=True))
    function = Function(module, needed, [output])
    function.names.update({p: f"%in{i}" for i, p in enumerate(params)})
    function.nodes(function.needed.outermost)
    t = params[0].type
    kind, value = scalar_type(t), function.value(output, t)
    given = ", ".join(f"{kind} %in{i}" for i in range(len(params)))
    body = "\n".join(["entry:", *function.lines, f"  ret {kind} {value}"])
    return f"define internal {kind} @{name}({given}) {{\n{body}\n}}", frozenset(module.called)


class Machine(Protocol):
    """What a function is written for.

    - `width`: members side by side.
    - `contracts`: whether a product and a sum may be rounded once.
    - `library`: whether the functions of C are there; else whoever takes the text adds them.
    - `functions`: operations on reals that are calls in place of instructions, and what they call.
    - `parameters`: of `compute`, before the number of members.
    - `passed`: parameters of other functions, and what they are given for them.
    - `straight`: operations of straight code of which there is one function, in float64 and in float32; more are divided.
    - `apart`: how far it is in memory from one byte that functions leave for each other to the next.
    - `first`, `step`: the member that a call begins with, and how far it is to the next.
    - `returns`: the type of what `compute` returns.
    """

    width: int
    contracts: bool
    library: bool
    functions: dict[str, str]
    parameters: str
    passed: tuple[str, ...]
    straight: dict[str, int]
    apart: int
    first: str
    step: str
    returns: str

    def begin_pass(self, f: "Function") -> Callable[[int], None]:
        """What comes before a pass that may be long, told how many instructions it has when it is written."""
        ...

    def allocate(self, f: "Function", t: str, size: int) -> Place:
        """Room for an array of each member."""
        ...

    def find(self, f: "Function", place: Place) -> str:
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
class Module:
    """What functions share.

    - `machine`: what they are for.
    - `declared`: what they call of others, by name.
    - `called`: the functions of C among it.
    - `globals`: tables.
    - `room`: bytes of memory that they use, each its own part: none runs within itself.
    - `tapes`: where in it headers of growing arrays are.
    """

    def __init__(self, machine: Machine, units: dict[str, None] | None = None):
        self.machine, self.room, self._units = machine, 0, units
        self.called = set[str]()
        self.declared: dict[str, str] = {}
        self.globals: list[str] = []
        self.tapes = list[int]()
        self._callees: dict[Any, Callee] = {}  # by sub-program, and where arrays lie
        self._reach = dict[Subprogram, frozenset[Subprogram]]()
        self.everywhere = Source()
        # Of each sub-program what one call is given, and what another call is given something else for.
        self._given = dict[Subprogram, tuple[Sequence[Operand], set[int]]]()
        self.results = dict[Subprogram, tuple[int, ...]]()  # of each sub-program, those that any call needs
        self._functions: list[str] = []
        self._count = 0

    def text(self, function: str) -> str:
        declared = [f"declare {x}" for x in self.declared.values()]
        return "\n".join([*declared, *self.globals, *self._functions, function])

    def reserve(self, bytes: int) -> int:
        """Where in memory there is room for so many bytes."""
        offset, self.room = self.room, self.room + -(-bytes // 64) * 64
        return offset

    def reserve_tape(self) -> int:
        """Where in memory there is room for a header of a growing array."""
        self.tapes.append(self.room)
        return self.reserve(16)

    def _new_function(self, given: int, results: int) -> tuple[str, int]:
        """Of a function of so many numbers, its name, and where it finds those given last, and leaves its results."""
        self._count += 1
        entries = max(results, given - _DIRECT, 1)
        return f"@callee{self._count}", self.reserve(entries * self.machine.width * 8)

    def outline(
        self, nodes: Sequence[Node], given: list[Node], homes: Mapping[Node, Home], results: list[Node]
    ) -> tuple[str, int]:
        """The name of a function of straight code, and where in memory it finds what is given last and leaves results."""
        name, place = self._new_function(len(given), len(results))
        self._functions.append(Function(self).straight(name, nodes, given, homes, results, place))
        return name, place

    def find_results(self, needed: Needed) -> None:
        """Looks for what is called, and which results of it are needed anywhere: one function is to serve all calls."""
        stack = [needed]
        while stack:
            here = stack.pop()
            for call in (x for x in here.nodes if x.op == "call"):
                program = call.data.written()
                first, varied = self._given.setdefault(program, (call.args, set()))
                varied.update(i for i, (x, y) in enumerate(zip(first, call.args, strict=True)) if x is not y)
                known = self.results.get(program, ())
                results = tuple(sorted({*known, *here.results(call)}))
                if results != known:
                    self.results[program] = results
                    stack.append(program.needed(results, values=True))

    def reach(self, program: Subprogram) -> frozenset[Subprogram]:
        """A sub-program and all that it calls."""
        if program not in self._reach:
            needed = program.needed(self.results[program], values=True)
            called = {x.data.written() for x in needed.nodes if x.op == "call"}
            self._reach[program] = frozenset([program]).union(*map(self.reach, called))
        return self._reach[program]

    def results_of(self, program: Subprogram, arrays: tuple["Place", ...]) -> tuple[int, ...]:
        """Which results the function of a sub-program leaves."""
        if (program, arrays) in self._callees:
            return self._callees[program, arrays].results
        wanted = self.results[program]
        if not self._is_unit(program, arrays):
            return wanted
        unit, every = program.units.get(self.machine.width), tuple(range(len(program.results)))
        nodes = lambda results: len(program.needed(results, values=True).nodes)
        if nodes(every) <= _AS_LONG * nodes(wanted):
            return every
        return tuple(sorted({*wanted, *(unit.callee.results if unit else ())}))

    def _is_unit(self, program: Subprogram, arrays: tuple["Place", ...]) -> bool:
        return self._units is not None and not arrays and program.size >= _SHARED and not program.repeats

    def callee(
        self, program: Subprogram, arrays: tuple["Place", ...], homes: Sequence[Home | None]
    ) -> Callee:
        """The function of a sub-program. What is in memory when it is called first it is to find by pointers."""
        key = program, arrays
        if key not in self._callees:
            unit = self._is_unit(program, arrays)
            self._callees[key] = (
                self._use_unit(program, homes) if unit else self._write(program, arrays, homes)
            )
        return self._callees[key]

    def _use_unit(self, program: Subprogram, homes: Sequence[Home | None]) -> Callee:
        """A function that other programs may have already."""
        results, width = self.results_of(program, ()), self.machine.width
        unit: Unit | None = program.units.get(width)
        if unit is None or unit.callee.results != results:
            unit = program.units[width] = self._make_unit(program, results, homes)
        assert self._units is not None
        self._units |= dict.fromkeys(unit.texts)
        self.declared[unit.callee.name] = unit.declared
        self.called |= unit.called
        return unit.callee.within(self.reserve(unit.room))

    def _make_unit(self, program: Subprogram, results: tuple[int, ...], homes: Sequence[Home | None]) -> Unit:
        inner = dict[str, None]()
        module = Module(self.machine, inner)
        module.everywhere, module.results[program] = self.everywhere, results
        module._given[program] = self._given[program]
        module.find_results(program.needed(results, values=True))
        callee = module._write(program, (), homes)
        # Of different units all names differ, and of one they are the same in all processes.
        text = module.text("")
        name = f"@unit_{hashlib.sha256(text.encode()).hexdigest()[:24]}_"
        own, text = callee.name.replace("@callee", name), text.replace("@callee", name)
        head = f"define internal void {own}("
        types = text.partition(head)[2].partition(")")[0].split(", ")
        declared = f"void {own}({', '.join(x.rpartition(' ')[0] for x in types)})"
        text = text.replace(head, head.replace(" internal", ""))
        return Unit(
            callee._replace(name=own), declared, (*inner, text), module.room, frozenset(module.called)
        )

    def _write(
        self, program: Subprogram, arrays: tuple["Place", ...], homes: Sequence[Home | None]
    ) -> Callee:
        results, varied = self.results_of(program, arrays), self._given[program][1]
        numbers = [i for i in program.given(results, values=True) if program.region.params[i].size is None]
        stays = lambda home, i: home and (home[0] is not self.everywhere or i not in varied)
        groups = self._groups([x if stays(x, i) else None for x, i in zip(homes, numbers, strict=True)])
        given = len(homes) - sum(len(x.numbers) for x in groups)
        name, place = self._new_function(given, len(results))
        found = Callee(name, results, place, groups)
        chosen = [program.results[k] for k in results]
        function = Function(self, program.needed(results, values=True), chosen)
        self._functions.append(function.subprogram(found, program, arrays))
        return found._replace(cost=function.cost, stops=function.stops)

    def _groups(self, homes: Sequence[Home | None]) -> tuple[Group, ...]:
        """Those of numbers that are in memory by the same source."""
        by_source = dict[Source, dict[int, int]]()  # places, and which number is there
        for i, home in enumerate(homes):
            if home:
                by_source.setdefault(home[0], {}).setdefault(home[1], i)
        found = []
        for places in by_source.values():
            if len(places) < _TOGETHER:
                continue
            pairs, first = sorted((i, x) for x, i in places.items()), min(places)
            behind = tuple(x - first for _, x in pairs)
            room = self.reserve(max(behind) + 8 * self.machine.width)
            found.append(Group(tuple(i for i, _ in pairs), behind, self.reserve(8), room))
        return tuple(found)


@final
class _Names(dict[Any, str]):
    """Of values. What was left in memory is read once its name is asked for, at the line where it was awaited."""

    def __init__(self, function: "Function"):
        self._function = function

    def __missing__(self, x: Any) -> str:
        self[x] = name = self._function.read_now(x)
        return name


@final
class Function:
    """Writes one function.

    **Arguments:**

    - `module`: what it shares with others.
    - `needed`: what it computes.
    - `flat`: what it gives.
    """

    def __init__(self, module: Module, needed: Needed | None = None, flat: Sequence[Operand] = ()):
        self.module, self.machine, self.width = module, module.machine, module.machine.width
        self.lines, self._count = list[str](), 0
        self._elsewhere = 0  # instructions that are run beside its lines, or less those that are not counted
        self.entry = list[str]()  # what comes before all else
        self.stops = False  # whether it may end before it has all results
        self.block, self.mask = "entry", ""
        self.names = _Names(self)
        self.homes, self._awaited = dict[Node, Home](), dict[Node, int]()  # and at which line they are read
        self._sources = list[Source]()  # whose numbers later calls replace
        self._pointers = dict[Source, str]()
        # Of operands: which may be copied and where they are then, and at which line numbers of them were read.
        self._operands, self._copies, self._loaded = set[Node](), dict[Node, int](), dict[Node, int]()
        self.places: dict[Node, Place] = {}
        self.declared = module.declared
        self.turned: dict[tuple[str, str], Any] = {}
        self.needed = needed or Needed(())
        self.uniform = _uniform(self.needed) if self.width > 1 else frozenset[Node]()
        self.single: dict[Node, str] = {}
        self.uses, self.reserved = Uses(self.needed, flat), set[Any]()

    # --- writing

    def new(self, word: str = "v") -> str:
        self._count += 1
        return f"%{word}{self._count}"

    def __call__(self, instruction: str) -> str:
        self._count += 1
        name = f"%v{self._count}"
        self.lines.append(f"  {name} = {instruction}")
        return name

    def do(self, instruction: str) -> None:
        self.lines.append(f"  {instruction}")

    def labels(self, *words: str) -> list[str]:
        self._count += 1
        return [f"{word}{self._count}" for word in words]

    def begin(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.block = label

    @property
    def cost(self) -> int:
        """About how many instructions run what is written so far, without the passes that are counted as they begin."""
        return len(self.lines) + self._elsewhere

    def vector(self, t: str) -> str:
        return self.lanes(scalar_type(t))

    def lanes(self, one: str) -> str:
        return one if self.width == 1 else f"<{self.width} x {one}>"

    def repeat(self, kind: str, one: str) -> str:
        return one if self.width == 1 else "<" + ", ".join([f"{kind} {one}"] * self.width) + ">"

    def constant(self, x: Any, t: str) -> str:
        sign = math.copysign(1, x) if x.__class__ is float else 0
        key = (x.__class__, t, x if x == x else "nan", sign, self.width)
        name = self.names.get(key)
        if name is None:
            name = self.names[key] = self.repeat(scalar_type(t), literal(x, t))
        return name

    def value(self, x: Operand, t: str) -> str:
        """The name of an operand of a type."""
        if x.__class__ is not Node:
            return self.constant(x, t)
        if x in self.single:
            return self.single[x] if self.width == 1 else self.spread(self.single[x], scalar_type(x.type))
        return self.names[x]

    def one(self, x: Operand, t: str) -> str:
        """The name of a number that all members have."""
        with self._for_all():
            return self.value(x, t)

    @contextlib.contextmanager
    def _for_all(self) -> Iterator[None]:
        """Writes what is the same for all members once."""
        width, self.width = self.width, 1
        yield
        self.width = width

    def spread(self, one: str, kind: str) -> str:
        """A scalar for all members."""
        if self.width == 1:
            return one
        kinds = self.lanes(kind)
        first = self(f"insertelement {kinds} poison, {kind} {one}, i32 0")
        return self(f"shufflevector {kinds} {first}, {kinds} poison, <{self.width} x i32> zeroinitializer")

    def truth(self, x: str) -> str:
        """Of a byte in memory, the truth."""
        return self(f"trunc {self.lanes('i8')} {x} to {self.lanes('i1')}")

    # --- the whole

    def compute(
        self,
        outputs: Sequence[Any],
        operands: Sequence[ArrayOperand],
        results: Sequence[ArrayOperand],
        params: Sequence[Node],
    ) -> str:
        """The text of the function that computes a program for all members, block by block."""
        given = [
            *(f"ptr noalias %out{i}" for i in range(len(results))),
            *(f"ptr noalias %in{i}" for i in range(len(operands))),
        ]
        head, body, done = "members", "block", "done"
        self.begin("run")
        self.do(f"br label %{head}")
        self.lines.append(f"{head}:")
        self.do(f"%at = phi i64 [{self.machine.first}, %run], [%next, %last]")
        self.do("%any = icmp ult i64 %at, %count")
        self.do(f"br i1 %any, label %{body}, label %{done}")
        self.begin(body)
        if self.width > 1:  # the last block takes some members again, so that it is whole
            last = self(f"sub i64 %count, {self.width}")
            over = self(f"icmp ugt i64 %at, {last}")
            self.do(f"%first = select i1 {over}, i64 {last}, i64 %at")
        else:
            self.do("%first = add i64 %at, 0")
        tell, before = self.machine.begin_pass(self), self.cost
        for i, (operand, node) in enumerate(zip(operands, params, strict=True)):
            shift = "0" if operand.shared else "%first"
            pointer = self(f"getelementptr {stored_type(operand.type)}, ptr %in{i}, i64 {shift}")
            self.places[node] = Place(
                pointer, "1" if operand.shared else "%count", 0 if operand.shared else 1, own=False
            )
            if operand.size <= _COPIED:
                self._operands.add(node)
        self.nodes(self.needed.outermost)
        for i, (out, result) in enumerate(zip(outputs, results, strict=True)):
            pointer = self(f"getelementptr {stored_type(result.type)}, ptr %out{i}, i64 %first")
            place = Place(pointer, "%count", 1, own=True)
            if isinstance(out, Node):
                self.copy(self.places[out], place, result.type, result.size, "")
            else:
                for k, x in enumerate(out):
                    self.write(place, str(k), self.value(x, result.type), result.type)
        self.do("br label %last")
        tell(self.cost - before)
        self.machine.leave(self, results)
        step = self.machine.step
        self.lines += ["last:", f"  %next = add i64 %at, {step}", f"  br label %{head}", f"{done}:"]
        self.machine.exit(self)
        begin = ["entry:", *self.machine.enter(self), *self.entry, "  br label %run"]
        lines = "\n".join([*begin, *filter(None, self.lines)])
        head = f"{self.machine.parameters}i64 %count, {', '.join(given)}"
        return f"define {self.machine.returns} @compute({head}) {{\n{lines}\n}}\n"

    def subprogram(self, callee: Callee, program: Subprogram, arrays: tuple[Place, ...]) -> str:
        """The text of a function of some results of a sub-program, which takes numbers, and arrays at places as these,
        and leaves its own numbers in memory."""
        results = callee.results
        given, rest, numbers = list(self.machine.passed), iter(arrays), list[Node]()
        if self.width > 1:
            self.mask = "%mask"
            given.append(f"{self.lanes('i1')} %mask")
        for i in program.given(results, values=True):
            param = program.region.params[i]
            if param.size is None:
                numbers.append(param)
                continue
            array = next(rest)
            given.append(f"ptr %given{i}")
            if not array.stride:
                given.append(f"i64 %stride{i}")
            self.places[param] = array._replace(pointer=f"%given{i}", stride=array.stride or f"%stride{i}")
        for group in callee.groups:
            source = Source(slot=group.slot)
            for i, behind in zip(group.numbers, group.behind, strict=True):
                self._await(numbers[i], source, behind)
        given += self._given([x for x in numbers if x not in self.homes], callee.place)
        self.nodes(self.needed.outermost)
        self._leave([program.results[k] for k in results], callee.place)
        end = ["  ret i1 true", "exhausted:", "  ret i1 false"] if self.stops else ["  ret void"]
        lines = "\n".join(["entry:", *self.entry, *filter(None, self.lines), *end])
        kind = "i1" if self.stops else "void"
        return f"define internal {kind} {callee.name}({', '.join(given)}) {{\n{lines}\n}}\n"

    def call_subprogram(self, node: Node) -> None:
        """Calls the function of a sub-program."""
        program, given = node.data.written(), list(self.machine.passed)
        if self.width > 1:
            given.append(f"{self.lanes('i1')} {self.mask or self.constant(True, 'bool')}")
        arrays = dict[int, Place]()
        for i in program.given(self.module.results[program], values=True):
            if program.region.params[i].size is not None:
                array = self.places[node.args[i]]
                known = array.stride if array.stride.isdigit() else ""
                given += [f"ptr {array.pointer}", *([] if known else [f"i64 {array.stride}"])]
                arrays[i] = Place("", known, array.lane, own=False)
        results = self.module.results_of(program, tuple(arrays.values()))
        numbers = [
            (node.args[i], program.region.params[i].type)
            for i in program.given(results, values=True)
            if i not in arrays
        ]
        reach, homes = self.module.reach(program), list[Home | None]()
        for x, _ in numbers if self._points_to(numbers) else ():
            home = self._home(x)
            homes.append(home if home and home[0].program not in reach else None)
        homes = homes or [None] * len(numbers)
        callee = self.module.callee(program, tuple(arrays.values()), homes)
        self._elsewhere += callee.cost
        if callee.room:
            given[0] = f"ptr {self.at(callee.room)}"
        for group in callee.groups:
            self._give_group(group, numbers, homes)
        grouped = {i for group in callee.groups for i in group.numbers}
        given += self._give([x for i, x in enumerate(numbers) if i not in grouped], callee.place)
        self._forget(reach)
        if callee.stops:
            whole = self(f"call i1 {callee.name}({', '.join(given)})")
            (after,) = self.labels("after")
            self.do(f"br i1 {whole}, label %{after}, label %exhausted")
            self.begin(after)
            self.stops = True
        else:
            self.do(f"call void {callee.name}({', '.join(given)})")
        self._sources.append(source := Source(callee.place, program))
        self._take({results.index(x.data): x for x in self.needed.outputs[node]}, source)

    def straight(
        self,
        name: str,
        nodes: Sequence[Node],
        given: Sequence[Node],
        homes: Mapping[Node, Home],
        results: Any,
        place: int,
    ) -> str:
        """The text of a function of straight code, which takes numbers and leaves its own in memory."""
        for x, home in homes.items():
            self._await(x, *home)
        params = [*self.machine.passed, *self._given(given, place)]
        self._write_each(nodes)
        self._leave(results, place)
        lines = "\n".join(["entry:", *self.entry, *filter(None, self.lines), "  ret void"])
        return f"define internal void {name}({', '.join(params)}) {{\n{lines}\n}}\n"

    # --- numbers in memory

    def _points_to(self, numbers: Collection[Any]) -> bool:
        """Whether a function is given pointers to some of these: not all of them can be given as such."""
        return len(numbers) > _DIRECT

    def _home(self, x: Operand) -> Home | None:
        """Where a number is in memory, if it is; one of an operand is put there when that is asked first."""
        home = self.homes.get(x) if x.__class__ is Node else None
        if home is None and x in self._loaded:
            array, index = x.args
            if array not in self._copies:
                self._copies[array] = self.module.reserve(array.size * 8 * self.width)
            home = self.module.everywhere, self._copies[array] + int(index) * 8 * self.width
            self.homes[x] = home
            line, lines, self.lines = self._loaded[x], self.lines, []
            self.write(self._at_home(home), "0", self.names[x], x.type)
            lines[line], self.lines = "\n".join(self.lines), lines
        return home if home and home[0].alive else None

    def _at_home(self, home: Home) -> Place:
        source, behind = home
        if source.slot is None:
            pointer = self.at(source.offset + behind)
        else:
            if source not in self._pointers:
                self._pointers[source], place = self.new("from"), self.new("slot")
                offset = source.slot * self.machine.apart
                self.entry.append(f"  {place} = getelementptr i8, ptr %room, i64 {offset}")
                self.entry.append(f"  {self._pointers[source]} = load ptr, ptr {place}")
            pointer = self._pointers[source]
            behind *= self.machine.apart
            pointer = self(f"getelementptr i8, ptr {pointer}, i64 {behind}") if behind else pointer
        return Place(pointer, str(self.width), 1, own=False)

    def _await(self, x: Node, source: Source, behind: int) -> None:
        """Has a number be read here, if its name is asked for."""
        self.homes[x], self._awaited[x] = (source, behind), len(self.lines)
        self.lines.append("")

    def read_now(self, x: Node) -> str:
        """The name of a number that was left in memory, read where it was awaited."""
        line, lines, self.lines = self._awaited.pop(x), self.lines, []
        width, self.width = self.width, self.machine.width
        name = self.read(self._at_home(self.homes[x]), "0", x.type)
        lines[line], self.lines, self.width = "\n".join(self.lines), lines, width
        return name

    def _forget(self, called: Set[Subprogram]) -> None:
        """Has numbers be where they were no more that these sub-programs have left."""
        for source in self._sources:
            source.alive &= source.program not in called
        self._sources = [x for x in self._sources if x.alive]

    def _called_within(self, nodes: Sequence[Node]) -> Iterator[Subprogram]:
        """What is called by nodes and in their regions."""
        for node in nodes:
            if node.op == "call":
                yield from self.module.reach(node.data.written())
            elif node.op in ("loop", "branch"):
                for region in [node.data.region] if node.op == "loop" else node.data.regions:
                    yield from self._called_within(self.needed.of(region))

    def _give_group(
        self, group: Group, numbers: Sequence[tuple[Operand, str]], homes: Sequence[Home | None]
    ) -> None:
        """Tells a function where a group of numbers is."""
        own = [homes[i] for i in group.numbers]
        source, first = own[0] or (None, 0)
        first -= group.behind[0]
        if source and all(
            x and x[0] is source and x[1] - first == behind
            for x, behind in zip(own, group.behind, strict=True)
        ):
            pointer = self._at_home((source, first)).pointer
        else:
            pointer = self.at(group.staged)
            for i, behind in zip(group.numbers, group.behind, strict=True):
                (x, t), at = numbers[i], self.at(group.staged + behind)
                self.write(Place(at, str(self.width), 1, own=True), "0", self.value(x, t), t)
        self.do(f"store ptr {pointer}, ptr {self.at(group.slot)}")

    def at(self, offset: int) -> str:
        """A place in memory."""
        return self(f"getelementptr i8, ptr %room, i64 {offset * self.machine.apart}")

    # --- memory

    def _may_overwrite(self, array: Node, by: Node) -> bool:
        """Whether an array's place is free once a node has read it."""
        return self.places[array].own and self.uses.ends_at(array, by)

    def allocate(self, t: str, size: int) -> Place:
        """Room for an array of each member."""
        return self.machine.allocate(self, t, size)

    def address(self, place: Place, index: str, t: str) -> str:
        """Where an entry of the first member is."""
        pointer = self.machine.find(self, place) if place.header else place.pointer
        if index.isdigit() and place.stride.isdigit():
            offset = int(index) * int(place.stride)
            return self(f"getelementptr {stored_type(t)}, ptr {pointer}, i64 {offset}") if offset else pointer
        offset = index if place.stride == "1" else self(f"mul i64 {index}, {place.stride}")
        return self(f"getelementptr {stored_type(t)}, ptr {pointer}, i64 {offset}")

    def read(self, place: Place, index: str, t: str) -> str:
        """An entry of all members, at the same place of each."""
        address, kind = self.address(place, index, t), stored_type(t)
        if place.lane == 0:
            value = self.spread(self(f"load {kind}, ptr {address}"), kind)
        else:
            value = self(f"load {self.lanes(kind)}, ptr {address}, align {np.dtype(t).itemsize}")
        return self.truth(value) if t == "bool" else value

    def write(self, place: Place, index: str, value: str, t: str, mask: str = "") -> None:
        """Stores an entry of all members, at the same place of each."""
        kind = self.lanes(stored_type(t))
        if mask:
            value = self.choose(mask, value, self.read(place, index, t), t)
        if t == "bool":
            value = self(f"zext {self.lanes('i1')} {value} to {kind}")
        self.do(f"store {kind} {value}, ptr {self.address(place, index, t)}, align {np.dtype(t).itemsize}")

    def _addresses(self, place: Place, index: str, t: str) -> str:
        """Where the entries are that each member asks for."""
        pointer = self.machine.find(self, place) if place.header else place.pointer
        many = self.lanes("i64")
        stride = (
            self.spread(place.stride, "i64")
            if place.stride.startswith("%")
            else self.repeat("i64", place.stride)
        )
        offset = self(f"mul {many} {index}, {stride}")
        if place.lane:
            lanes = "<" + ", ".join(f"i64 {k}" for k in range(self.width)) + ">"
            offset = self(f"add {many} {offset}, {lanes}")
        return self(f"getelementptr {stored_type(t)}, ptr {pointer}, {many} {offset}")

    def read_at(self, place: Place, index: str, t: str) -> str:
        """An entry of each member that goes on, at a place of its own: others may ask for places that are none."""
        if self.width == 1:
            return self.read(place, index, t)
        kind, kinds, bytes = stored_type(t), self.lanes(stored_type(t)), np.dtype(t).itemsize
        short = f"v{self.width}{_short(kind)}"
        name = f"llvm.masked.gather.{short}.v{self.width}p0"
        self.declared[name] = f"{kinds} @{name}({self.lanes('ptr')}, i32, {self.lanes('i1')}, {kinds})"
        where = self._addresses(place, index, t)
        mask = self.mask or self.constant(True, "bool")
        value = self(
            f"call {kinds} @{name}({self.lanes('ptr')} {where}, i32 {bytes}, {self.lanes('i1')} {mask}, "
            f"{kinds} zeroinitializer)"
        )
        return self.truth(value) if t == "bool" else value

    def write_at(self, place: Place, index: str, value: str, t: str) -> None:
        """Stores an entry of each member that goes on, at a place of its own."""
        if self.width == 1:
            return self.write(place, index, value, t)
        kind, kinds, bytes = stored_type(t), self.lanes(stored_type(t)), np.dtype(t).itemsize
        if t == "bool":
            value = self(f"zext {self.lanes('i1')} {value} to {kinds}")
        name = f"llvm.masked.scatter.v{self.width}{_short(kind)}.v{self.width}p0"
        self.declared[name] = f"void @{name}({kinds}, {self.lanes('ptr')}, i32, {self.lanes('i1')})"
        where = self._addresses(place, index, t)
        mask = self.mask or self.constant(True, "bool")
        self.do(
            f"call void @{name}({kinds} {value}, {self.lanes('ptr')} {where}, i32 {bytes}, {self.lanes('i1')} {mask})"
        )

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

    def copy(self, source: Place, target: Place, t: str, size: int, mask: str) -> None:
        """Copies an array of each member."""
        if source == target:
            return
        packed = str(self.width), 1
        if size > 8 and not mask and (source.stride, source.lane) == packed == (target.stride, target.lane):
            self.declared["llvm.memcpy"] = "void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"
            given = (
                f"ptr {target.pointer}, ptr {source.pointer}, i64 {size * self.width * np.dtype(t).itemsize}"
            )
            self.do(f"call void @llvm.memcpy.p0.p0.i64({given}, i1 false)")
        elif size <= 8:
            for k in range(size):
                self.write(target, str(k), self.read(source, str(k), t), t, mask)
        else:
            self.count_up(str(size), lambda k: self.write(target, k, self.read(source, k, t), t, mask))

    def fill(self, place: Place, value: str, t: str, size: int) -> None:
        """Fills an array of each member: where entries are side by side, by vectors."""
        wide = 1 if place.stride != "1" or t == "bool" else 64 // np.dtype(t).itemsize
        if wide > 1 and size >= 4 * wide:
            kind, whole = stored_type(t), size - size % wide
            kinds = f"<{wide} x {kind}>"
            first = self(f"insertelement {kinds} poison, {kind} {value}, i32 0")
            many = self(f"shufflevector {kinds} {first}, {kinds} poison, <{wide} x i32> zeroinitializer")

            def write(k: str) -> None:
                pointer = self(f"getelementptr {kinds}, ptr {place.pointer}, i64 {k}")
                self.do(f"store {kinds} {many}, ptr {pointer}, align {np.dtype(t).itemsize}")

            self.count_up(str(whole // wide), write)
            for k in range(whole, size):
                self.write(place, str(k), value, t)
        else:
            self.count_up(str(size), lambda k: self.write(place, k, value, t))

    # --- nodes

    def nodes(self, nodes: Sequence[Node]) -> None:
        """Writes nodes in order."""
        for plain, run in itertools.groupby(nodes, lambda x: is_plain(x) and x not in self.uniform):
            straight = list(run)
            straight = depth_first(straight) if plain else straight
            t = next((x.type for x in straight if x.type in self.machine.straight), "float64")
            count = len(straight) // self.machine.straight[t] if plain else 0
            if count < 2:
                self._write_each(straight)
                continue
            bounds = [len(straight) * k // count for k in range(count + 1)]
            for a, z in itertools.pairwise(bounds):
                self._outline(straight[a:z])

    def _outline(self, nodes: Sequence[Node]) -> None:
        """Writes straight code as a function of its own, and calls it."""
        self._elsewhere += len(nodes)
        inside, within = set(nodes), collections.Counter[Node]()
        given: dict[Node, None] = {}
        for node in nodes:
            for x in node.args[:1] if node.op in ("rule", "attached") else node.args:
                if x.__class__ is Node:
                    within[x] += 1
                    if x not in inside:
                        given[x] = None
        results = [x for x in nodes if self.uses.count[x] > within[x]]
        known = {x: self._home(x) for x in given} if self._points_to(given) else {}
        homes = {x: home for x, home in known.items() if home}
        rest = [x for x in given if x not in homes]
        name, place = self.module.outline(nodes, rest, homes, results)
        args = self._give([(x, x.type) for x in rest], place)
        self.do(f"call void {name}({', '.join([*self.machine.passed, *args])})")
        self._take(dict(enumerate(results)), Source(place))

    def _take(self, results: Mapping[int, Node], source: Source) -> None:
        """Names what a function has left in memory, by number."""
        for i, x in results.items():
            self._await(x, source, i * 8 * self.width)

    def _given(self, numbers: Sequence[Node], place: int) -> list[str]:
        """The parameters of a function for numbers, of which it reads the last ones from memory."""
        direct = numbers[:_DIRECT]
        self.names.update((x, f"%given.{i}") for i, x in enumerate(direct))
        self._take(dict(enumerate(numbers[len(direct) :])), Source(place))
        return [f"{self.vector(x.type)} %given.{i}" for i, x in enumerate(direct)]

    def _give(self, numbers: Sequence[tuple[Operand, str]], place: int) -> list[str]:
        """What a function is given for them; it finds the last ones in memory."""
        direct = numbers[:_DIRECT]
        self._store(numbers[len(direct) :], place)
        return [f"{self.vector(t)} {self.value(x, t)}" for x, t in direct]

    def _leave(self, results: Sequence[Node], place: int) -> None:
        """Leaves what a function computes in memory."""
        self._store([(x, x.type) for x in results], place)

    def _store(self, numbers: Sequence[tuple[Operand, str]], place: int) -> None:
        for i, (x, t) in enumerate(numbers):
            at = Place(self.at(place + i * 8 * self.width), str(self.width), 1, own=True)
            self.write(at, "0", self.value(x, t), t)

    def _write_each(self, nodes: Sequence[Node]) -> None:
        names, known, uniform = self.names, dict[tuple[str, str], str](), self.uniform
        for node in nodes:
            kind = node.op, node.type
            if (binary := known.get(kind)) is None:
                binary = known[kind] = self._binary(*kind)
            if binary and node not in uniform:  # most nodes: without calls
                x, y = node.args
                x = names.get(x) or self.value(x, node.type)
                y = names.get(y) or self.value(y, node.type)
                self._count += 1
                name = names[node] = f"%v{self._count}"
                self.lines.append(f"  {name} = {binary} {x}, {y}")
            elif node.op == "loop":
                self.loop(node)
            elif node.op == "branch":
                self.branch(node)
            elif node.op == "call":
                self.call_subprogram(node)
            elif node.size is not None:
                self.array(node)
            elif node.op == "load":
                self.load(node)
            elif node in self.uniform:
                with self._for_all():
                    self.single[node] = self.scalar(node)
            else:
                self.names[node] = self.scalar(node)
                if node.op in _SAME and (home := self.homes.get(node.args[0])):
                    self.homes[node] = home

    def _binary(self, op: str, t: str) -> str:
        """The instruction for sums and products of reals; none for other operations."""
        if op not in ("add", "sub", "mul", "div") or not is_float(t) or op in self.machine.functions:
            return ""
        return f"f{op}{' contract' * self.machine.contracts} {self.vector(t)}"

    def array(self, node: Node) -> None:
        if node.op == "absent":
            raise AssertionError("an array is read that the tape of a loop does not have")
        if node.op == "table":
            self.places[node] = self.table(node)
        elif node.op == "stop_gradient":
            self.places[node] = self.places[node.args[0]]._replace(own=False)
        elif node.op == "blank":
            self.places[node] = self.allocate(node.type, node.size)  # pyright: ignore[reportArgumentType]
        elif node.op == "tape":
            self.places[node] = self.allocate(node.type, GROWING)
        elif node.op == "zeros_like":
            place = self.places[node] = self.allocate(node.type, GROWING)
            self.machine.clear(self, place, self.places[node.args[0]], node.type)
        elif node.op == "fill":
            place = self.places[node] = self.allocate(node.type, node.data)
            self.fill(place, self.value(node.args[0], node.type), node.type, node.data)
        elif node.op == "pack":
            place = self.places[node] = self.allocate(node.type, node.size)
            for k, x in enumerate(node.args):
                self.write(place, str(k), self.value(x, node.type), node.type)
        else:
            self.store(node)

    def table(self, node: Node) -> Place:
        kind, name = stored_type(node.type), f"@table{len(self.module.globals)}"
        entries = ", ".join(f"{kind} {literal(x, node.type)}" for x in node.data[0])
        self.module.globals.append(f"{name} = internal constant [{node.size} x {kind}] [{entries}]")
        return Place(name, "1", 0, own=False)

    def load(self, node: Node) -> None:
        array, index = node.args
        place = self.places[array]
        if node in self.uniform:
            with self._for_all():
                self.single[node] = self.read(place, self.one(index, "int64"), node.type)
        elif is_number(index) or index in self.single:
            self.names[node] = self.read(place, self.one(index, "int64"), node.type)
            if array in self._operands and is_number(index):
                self._loaded[node] = len(self.lines)
                self.lines.append("")
        else:
            self.names[node] = self.read_at(place, self.names[index], node.type)

    def store(self, node: Node) -> None:
        array, index, value = node.args
        place = self.places[array]
        if array.size != GROWING and not self._may_overwrite(array, node):
            place = self.allocate(node.type, array.size)
            self.copy(self.places[array], place, node.type, array.size, "")
        self.places[node] = place
        if array.size == GROWING:
            self.reserve(node, place)
        named = self.value(value, node.type)
        if is_number(index) or index in self.single:
            self.write(place, self.one(index, "int64"), named, node.type, self.mask)
        else:
            self.write_at(place, self.names[index], named, node.type)

    def reserve(self, node: Node, place: Place) -> None:
        """Has a growing array hold what is stored, and what its region stores some entries further on."""
        base, _ = apart(node.args[1])
        key = base, node.region
        if (place.header, key) in self.reserved:
            return
        self.reserved.add((place.header, key))
        many, last = self.lanes("i64"), self.constant(self.uses.furthest[key], "int64")
        if base is not None:
            last = self(f"add {many} {self.value(base, 'int64')}, {last}")
        if self.width > 1:
            name = f"llvm.vector.reduce.smax.v{self.width}i64"
            self.declared[name] = f"i64 @{name}({many})"
            last = self(f"call i64 @{name}({many} {last})")
        self.machine.grow(self, place, last, node.type)

    # --- control

    def loop(self, node: Node) -> None:
        body, mask = node.data, self.mask
        live = self.needed.carried(node)
        params, results = [body.region.params[k] for k in live], [body.results[k] for k in live]
        first: list[str] = []
        taken: set[Any] = set()
        for param, x in zip(params, [node.args[k] for k in live], strict=True):
            if param.size is None:
                first.append((self.one if param in self.uniform else self.value)(x, param.type))
                continue
            place = self.places[x]
            free = x not in taken and self._may_overwrite(x, node)
            taken.add(x)
            if param.size != GROWING and not free:
                place = self.allocate(param.type, param.size)
                self.copy(self.places[x], place, param.type, param.size, "")
            self.places[param] = place
        scalars = [(p, r) for p, r in zip(params, results, strict=True) if p.size is None]
        head, inner, after = self.labels("loop", "body", "end")
        before = self.block
        self.do(f"br label %{head}")
        self.begin(head)
        start = len(self.lines)
        for param, _ in scalars:
            names = self.single if param in self.uniform else self.names
            names[param] = self.new("p")
            self.lines.append("")
        asked = self.needed.asked(node)
        mine = self.needed.of(body.region)
        self._forget(set(self._called_within(mine)))
        self.nodes([x for x in mine if x in asked])
        together = self.width == 1 or is_number(body.condition) or body.condition in self.uniform
        if together:
            more = self.one(body.condition, "bool")
        else:
            go = self.value(body.condition, "bool")
            if mask:
                go = self(f"and {self.lanes('i1')} {go}, {mask}")
            more, self.mask = self.any(go), go
        self.do(f"br i1 {more}, label %{inner}, label %{after}")
        self.begin(inner)
        tell = None if _is_vector_loop(mine) else self.machine.begin_pass(self)
        before_pass = self.cost
        self.nodes([x for x in mine if x not in asked])
        self._pass_on_arrays(params, results)
        following = []
        for param, result in scalars:
            if param in self.uniform:
                following.append(self.one(result, param.type))
                continue
            value = self.value(result, param.type)
            if not together and value != self.names[param]:
                value = self.choose(self.mask, value, self.names[param], param.type)
            following.append(value)
        for i, ((param, _), begin, value) in enumerate(zip(scalars, first, following, strict=True)):
            alike = param in self.uniform
            kind = scalar_type(param.type) if alike else self.vector(param.type)
            name = (self.single if alike else self.names)[param]
            self.lines[start + i] = f"  {name} = phi {kind} [{begin}, %{before}], [{value}, %{self.block}]"
        self.do(f"br label %{head}")
        once = self.cost - before_pass
        if tell:
            tell(once)
        self._elsewhere += (0 if tell else once * count_passes(node)) - once
        self.begin(after)
        self.mask = mask
        known = zip(live, params, strict=True)
        self._name_outputs(
            node, {k: (self.single.get(p) or self.names.get(p, ""), self.places.get(p)) for k, p in known}
        )

    def any(self, mask: str) -> str:
        """Whether any member is among those of a mask."""
        name = f"llvm.vector.reduce.or.v{self.width}i1"
        self.declared[name] = f"i1 @{name}({self.lanes('i1')})"
        return self(f"call i1 @{name}({self.lanes('i1')} {mask})")

    def _name_outputs(self, node: Node, values: dict[int, tuple[str, Any]]) -> None:
        for out in self.needed.outputs.get(node, ()):
            name, place = values[out.data]
            if out.size is None:
                (self.single if out in self.uniform else self.names)[out] = name
            else:
                self.places[out] = place

    def _pass_on_arrays(self, params: Sequence[Node], results: Sequence[Operand]) -> None:
        """Has the arrays that a pass gives stand where the next one reads them."""
        moves = [
            (self.places[r], self.places[p], p)  # pyright: ignore[reportArgumentType]
            for p, r in zip(params, results, strict=True)
            if p.size is not None and not _same_place(self.places[r], self.places[p])  # pyright: ignore[reportArgumentType]
        ]
        targets = {target.pointer for _, target, _ in moves}
        staged = []
        for source, target, p in moves:
            if source.pointer in targets and len(moves) > 1:
                temporary = self.allocate(p.type, p.size)
                self.copy(source, temporary, p.type, p.size, "")
                source = temporary
            staged.append((source, target, p))
        for source, target, p in staged:
            self.copy(source, target, p.type, p.size, self.mask)

    def branch(self, node: Node) -> None:
        body, mask, given = node.data, self.mask, node.args[1:]
        go = self.value(node.args[0], "bool")
        sides = list(zip(body.regions, body.results, strict=True))
        outputs = [(x.data, *body.types[x.data]) for x in self.needed.outputs.get(node, ())]
        in_place = find_in_place(node, self.needed, self._may_overwrite)
        arrays = {
            k: self.places[given[in_place[k]]] if k in in_place else self.allocate(t, size)
            for k, t, size in outputs
            if size is not None
        }
        scalars = [(k, t) for k, t, size in outputs if size is None]
        masks = ["", ""]
        if self.width > 1:
            masks = [go, self(f"xor {self.lanes('i1')} {go}, {self.constant(True, 'bool')}")]
            masks = [self(f"and {self.lanes('i1')} {m}, {mask}") for m in masks] if mask else masks
        yes, no, middle, join = self.labels("yes", "no", "middle", "join")

        def run(side: int) -> list[str]:
            region, results = sides[side]
            for i in self.needed.given(node):
                param = region.params[i]
                if param in self.uniform:
                    self.single[param] = self.one(given[i], param.type)
                elif param.size is None:
                    self.names[param] = self.value(given[i], param.type)
                else:
                    self.places[param] = self.places[given[i]]._replace(own=i in in_place.values())
            self.nodes(self.needed.of(region))
            for k, place in arrays.items():
                source = self.places[results[k]]
                if source.pointer != place.pointer:
                    t, size = body.types[k]
                    self.copy(source, place, t, size or 0, self.mask)
            return [self.value(results[k], t) for k, t in scalars]

        if self.width == 1:
            self.do(f"br i1 {go}, label %{yes}, label %{no}")
            arms = []
            for side, label in enumerate((yes, no)):
                self.begin(label)
                arms.append((run(side), self.block))
                self.do(f"br label %{join}")
            self.begin(join)
            (a, p), (b, q) = arms
            merged = [
                self(f"phi {self.vector(t)} [{x}, %{p}], [{y}, %{q}]")
                for x, y, (_, t) in zip(a, b, scalars, strict=True)
            ]
        else:  # each side is run where a member takes it, and leaves the others alone
            merged = [self.constant(0.0 if is_float(t) else 0, t) for _, t in scalars]
            for side, (enter, leave) in enumerate(((yes, middle), (no, join))):
                before, self.mask = self.block, masks[side]
                self.do(f"br i1 {self.any(masks[side])}, label %{enter}, label %{leave}")
                before = self.block
                self.begin(enter)
                values = run(side)
                if side:
                    values = [
                        self.choose(masks[1], x, y, t)
                        for x, y, (_, t) in zip(values, merged, scalars, strict=True)
                    ]
                end = self.block
                self.do(f"br label %{leave}")
                self.begin(leave)
                merged = [
                    self(f"phi {self.vector(t)} [{x}, %{end}], [{y}, %{before}]")
                    for x, y, (_, t) in zip(values, merged, scalars, strict=True)
                ]
        self.mask = mask
        named = {k: (x, None) for (k, _), x in zip(scalars, merged, strict=True)}
        self._name_outputs(node, named | {k: ("", place) for k, place in arrays.items()})

    # --- scalars

    def scalar(self, node: Node) -> str:
        """Writes one operation."""
        op, t = node.op, node.type
        if op in _SAME:
            return self.value(node.args[0], t)
        if op in _WRITTEN:
            return _WRITTEN[op](self, node)
        names = [self.value(x, t) for x in node.args]
        if is_float(t) and op in self.machine.functions:
            return self.call(self.machine.functions[op] + _suffix(t), names, t)
        how = OPERATIONS[op].llvm
        if how.startswith("@"):
            return self.intrinsic(how[1:], names, t)
        if how.endswith("()"):
            return self.library(how[:-2], names, t)
        instruction = how.split()[0 if is_float(t) or len(how.split()) < 2 else 1]
        if op in ("quotient", "remainder"):
            instruction = how.split()[t[0] == "u"]
        if is_float(t):
            return self.arithmetic(instruction[1:], names[0], names[1], t)
        return self(f"{instruction} {self.vector(t)} {names[0]}, {names[1]}")

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
        self.module.called.add(name)
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

    def polynomial(self, x: str, coefficients: Sequence[float], t: str) -> str:
        value = self.constant(coefficients[-1], t)
        for c in coefficients[-2::-1]:
            value = self.arithmetic("add", self.arithmetic("mul", value, x, t), self.constant(c, t), t)
        return value

    def turn(self, x: str, t: str) -> Any:
        """As in `_trigonometry`: sine and cosine of the rest, the fraction of a turn, and whether they change places."""
        key = (x, self.block)
        if key in self.turned:
            return self.turned[key]
        known, constant = COEFFICIENTS[t], lambda c: self.constant(c, t)
        do = lambda op, a, b: self.arithmetic(op, a, b, t)
        quarters = self.intrinsic("floor", [do("add", do("mul", x, constant(2 / np.pi)), constant(0.5))], t)
        rest = x
        for part in known.half_pi:
            rest = do("sub", rest, do("mul", quarters, constant(part)))
        small = self.compare("lt", self.intrinsic("fabs", [rest], t), constant(1.0), t)
        rest = self.choose(small, rest, do("sub", rest, rest), t)
        square = do("mul", rest, rest)
        sine = do("mul", do("mul", rest, square), self.polynomial(square, known.sine, t))
        cosine = do("mul", square, self.polynomial(square, known.cosine, t))
        fraction = do("mul", quarters, constant(0.25))
        fraction = do("sub", fraction, self.intrinsic("floor", [fraction], t))
        odd = self.compare(
            "eq", self.intrinsic("fabs", [do("sub", fraction, constant(0.5))], t), constant(0.25), t
        )
        self.turned[key] = do("add", rest, sine), do("add", constant(1.0), cosine), fraction, odd
        return self.turned[key]


def _uniform(needed: Needed) -> frozenset[Node]:
    """Whole numbers and truths that all members have in common, whatever they are given: what loops count, and places.

    A loop whose condition is one of these makes as many passes for each member. What it counts goes on for those who do
    not take part in it, too: nothing that they compute there is used.
    """
    found = {x for x in needed.nodes if x.size is None and x.type and not is_float(x.type)}
    same = lambda x: x.__class__ is not Node or x in found

    def holds(node: Node) -> bool:
        if node.op == "parameter":
            control = needed.owner.get(node.region)
            if control is None:
                return False
            if control.op == "branch":
                return same(control.args[1 + node.data])
            body = control.data
            return all(map(same, (body.condition, control.args[node.data], body.results[node.data])))
        if node.op == "output":
            (control,) = node.args
            return control.op == "loop" and control.data.region.params[node.data] in found
        if node.op == "load":
            return node.args[0].op == "table" and same(node.args[1])
        if node.op in ("convert", *TRUTHS) and is_float(node.data):
            return False
        return node.op not in ("bitcast", "is_finite", "rule", "refuse") and all(map(same, node.args))

    while wrong := [x for x in found if not holds(x)]:
        found.difference_update(wrong)
    return frozenset(found)


def _is_vector_loop(nodes: Sequence[Node]) -> bool:
    """Whether a loop with these nodes in it is an innermost one over arrays, which may become one over vectors."""
    ops = {x.op for x in nodes}
    return ops.isdisjoint(("loop", "branch", "call")) and not ops.isdisjoint(("load", "store"))


def _same_place(a: Place, b: Place) -> bool:
    return (a.pointer, a.header) == (b.pointer, b.header)


def _suffix(t: str) -> str:
    return "f" if t == "float32" else ""  # as the C library has it


def _short(kind: str) -> str:
    return {"double": "f64", "float": "f32"}.get(kind, kind)


def _comparison(f: Function, node: Node) -> str:
    t = node.data
    return f.compare(node.op, f.value(node.args[0], t), f.value(node.args[1], t), t)


def _select(f: Function, node: Node) -> str:
    p, x, y = node.args
    return f.choose(f.value(p, "bool"), f.value(x, node.type), f.value(y, node.type), node.type)


def _neg(f: Function, node: Node) -> str:
    t, x = node.type, f.value(node.args[0], node.type)
    return f(f"fneg {f.vector(t)} {x}") if is_float(t) else f(f"sub {f.vector(t)} {f.constant(0, t)}, {x}")


def _not(f: Function, node: Node) -> str:
    t = node.type
    return f(f"xor {f.vector(t)} {f.value(node.args[0], t)}, {f.constant(True if t == 'bool' else -1, t)}")


def _sign(f: Function, node: Node) -> str:
    t, x, zero = (
        node.type,
        f.value(node.args[0], node.type),
        f.constant(0.0 if is_float(node.type) else 0, node.type),
    )
    one = lambda c: f.constant(float(c) if is_float(t) else c, t)
    below = f.choose(f.compare("lt", x, zero, t), one(-1), x, t)
    return f.choose(f.compare("gt", x, zero, t), one(1), below, t)


def _is_finite(f: Function, node: Node) -> str:
    t = node.data
    return f.compare("lt", f.intrinsic("fabs", [f.value(node.args[0], t)], t), f.constant(math.inf, t), t)


def _convert(f: Function, node: Node) -> str:
    source, target = node.data, node.type
    x = f.value(node.args[0], source)
    if source == "bool" and is_float(target):  # for a conversion LLVM leaves its fast way
        return f.choose(x, f.constant(1.0, target), f.constant(0.0, target), target)
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
    return f(f"{how} {f.vector(source)} {x} to {f.vector(target)}")


def _bitcast(f: Function, node: Node) -> str:
    if scalar_type(node.data) == scalar_type(node.type):
        return f.value(node.args[0], node.data)
    return f(f"bitcast {f.vector(node.data)} {f.value(node.args[0], node.data)} to {f.vector(node.type)}")


def _sine(f: Function, node: Node) -> str:
    t = node.type
    sine, cosine, fraction, odd = f.turn(f.value(node.args[0], t), t)
    value = f.choose(odd, cosine, sine, t)
    return f.choose(
        f.compare("lt", fraction, f.constant(0.5, t), t), value, f(f"fneg {f.vector(t)} {value}"), t
    )


def _cosine(f: Function, node: Node) -> str:
    t = node.type
    sine, cosine, fraction, odd = f.turn(f.value(node.args[0], t), t)
    value = f.choose(odd, sine, cosine, t)
    middle = f.intrinsic("fabs", [f.arithmetic("sub", fraction, f.constant(0.375, t), t)], t)
    return f.choose(
        f.compare("lt", middle, f.constant(0.25, t), t), f(f"fneg {f.vector(t)} {value}"), value, t
    )


_WRITTEN: dict[str, Callable[[Function, Node], str]] = {
    **dict.fromkeys(("lt", "le", "gt", "ge", "eq", "ne"), _comparison),
    "select": _select,
    "neg": _neg,
    "not": _not,
    "sign": _sign,
    "is_finite": _is_finite,
    "convert": _convert,
    "bitcast": _bitcast,
    "sin": _sine,
    "cos": _cosine,
}
