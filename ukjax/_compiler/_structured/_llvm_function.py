"""Programs of scalars as the text of LLVM functions: each scalar a register, or a vector of one number of each member.

Members of a batch lie side by side in vectors. In a loop, those that have ended keep what they carry, and the loop goes
on until the last one has; what is stored meanwhile is stored for the others only.

Arrays in memory are changed in place where nothing reads their former entries any more, and copied where something does.
"""

import collections
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, NamedTuple, final

from ._instructions import (
    ArrayOperand,
    Emitter,
    Place,
    literal,
    operand_types,
    scalar_type,
    stored_type,
    write_operation,
)
from ._live_nodes import LiveNodes
from ._memory import Memory
from ._nodes import GROWING, MARKS, Node, Operand, is_float, is_number
from ._subprogram import Subprogram
from ._table import TRUTHS
from ._uses import Uses, apart, count_passes, depth_first, find_in_place, is_plain, may_wait

if TYPE_CHECKING:
    from ._llvm import Module

# Numbers that a function is given in registers; the others are left for it in memory. For more, LLVM leaves its fast way
# to choose instructions, and a GPU keeps them in memory of each call; browsers allow 1000.
_DIRECT = 8
_COPIED = 4096  # entries of an operand, up to which numbers of it are left for others


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


def left_in_memory(numbers: int) -> int:
    """Of so many that a function is given, how many it finds in memory."""
    return max(numbers - _DIRECT, 0)


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

    def __init__(self, module: "Module", needed: LiveNodes | None = None, flat: Sequence[Operand] = ()):
        self.module, self.machine = module, module.machine
        self.emit = Emitter(module.machine, module.declared, module.called)
        self._elsewhere = 0  # instructions that are run beside its lines, or less those that are not counted
        self.stops = False  # whether it may end before it has all results
        self.memory = Memory(self.emit, self.machine)
        self.names = _Names(self)
        self.homes, self._awaited = dict[Node, Home](), dict[Node, int]()  # and at which line they are read
        self._sources = list[Source]()  # whose numbers later calls replace
        self._pointers = dict[Source, str]()
        # Of operands: which may be copied and where they are then, and at which line numbers of them were read.
        self._operands, self._copies, self._loaded = set[Node](), dict[Node, int](), dict[Node, int]()
        self.places: dict[Node, Place] = {}
        self.needed = needed or LiveNodes(())
        self.uniform = _uniform(self.needed) if self.emit.width > 1 else frozenset[Node]()
        self.single: dict[Node, str] = {}
        self.uses, self.reserved = Uses(self.needed, flat), set[Any]()

    # --- writing

    @property
    def cost(self) -> int:
        """About how many instructions run what is written so far, without the passes that are counted as they begin."""
        return len(self.emit.lines) + self._elsewhere

    def value(self, x: Operand, t: str) -> str:
        """The name of an operand of a type."""
        if x.__class__ is not Node:
            return self.emit.constant(x, t)
        if x in self.single:
            return (
                self.single[x]
                if self.emit.width == 1
                else self.emit.spread(self.single[x], scalar_type(x.type))
            )
        return self.names[x]

    def one(self, x: Operand, t: str) -> str:
        """The name of a number that all members have."""
        with self.emit.for_all():
            return self.value(x, t)

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
        self.emit.begin("run")
        self.emit.do(f"br label %{head}")
        self.emit.lines.append(f"{head}:")
        self.emit.do(f"%at = phi i64 [{self.machine.first}, %run], [%next, %last]")
        self.emit.do("%any = icmp ult i64 %at, %count")
        self.emit.do(f"br i1 %any, label %{body}, label %{done}")
        self.emit.begin(body)
        if self.emit.width > 1:  # the last block takes some members again, so that it is whole
            last = self.emit(f"sub i64 %count, {self.emit.width}")
            over = self.emit(f"icmp ugt i64 %at, {last}")
            self.emit.do(f"%first = select i1 {over}, i64 {last}, i64 %at")
        else:
            self.emit.do("%first = add i64 %at, 0")
        tell, before = self.machine.begin_pass(self), self.cost
        for i, (operand, node) in enumerate(zip(operands, params, strict=True)):
            shift = "0" if operand.shared else "%first"
            pointer = self.emit(f"getelementptr {stored_type(operand.type)}, ptr %in{i}, i64 {shift}")
            self.places[node] = Place(
                pointer, "1" if operand.shared else "%count", 0 if operand.shared else 1, own=False
            )
            if operand.size <= _COPIED:
                self._operands.add(node)
        self.nodes(self.needed.outermost)
        for i, (out, result) in enumerate(zip(outputs, results, strict=True)):
            pointer = self.emit(f"getelementptr {stored_type(result.type)}, ptr %out{i}, i64 %first")
            place = Place(pointer, "%count", 1, own=True)
            if isinstance(out, Node):
                self.memory.copy(self.places[out], place, result.type, result.size, "")
            else:
                for k, x in enumerate(out):
                    self.memory.write(place, str(k), self.value(x, result.type), result.type)
        self.emit.do("br label %last")
        tell(self.cost - before)
        self.machine.leave(self, results)
        step = self.machine.step
        self.emit.lines += ["last:", f"  %next = add i64 %at, {step}", f"  br label %{head}", f"{done}:"]
        self.machine.exit(self)
        begin = ["entry:", *self.machine.enter(self), *self.emit.entry, "  br label %run"]
        lines = "\n".join([*begin, *filter(None, self.emit.lines)])
        head = f"{self.machine.parameters}i64 %count, {', '.join(given)}"
        return f"define {self.machine.returns} @compute({head}) {{\n{lines}\n}}\n"

    def subprogram(self, callee: Callee, program: Subprogram, arrays: tuple[Place, ...]) -> str:
        """The text of a function of some results of a sub-program, which takes numbers, and arrays at places as these,
        and leaves its own numbers in memory."""
        results = callee.results
        given, rest, numbers = list(self.machine.passed), iter(arrays), list[Node]()
        if self.emit.width > 1:
            self.memory.mask = "%mask"
            given.append(f"{self.emit.lanes('i1')} %mask")
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
        lines = "\n".join(["entry:", *self.emit.entry, *filter(None, self.emit.lines), *end])
        kind = "i1" if self.stops else "void"
        return f"define internal {kind} {callee.name}({', '.join(given)}) {{\n{lines}\n}}\n"

    def call_subprogram(self, node: Node) -> None:
        """Calls the function of a sub-program."""
        program, given = node.data.written(), list(self.machine.passed)
        if self.emit.width > 1:
            given.append(f"{self.emit.lanes('i1')} {self.memory.mask or self.emit.constant(True, 'bool')}")
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
            whole = self.emit(f"call i1 {callee.name}({', '.join(given)})")
            (after,) = self.emit.labels("after")
            self.emit.do(f"br i1 {whole}, label %{after}, label %exhausted")
            self.emit.begin(after)
            self.stops = True
        else:
            self.emit.do(f"call void {callee.name}({', '.join(given)})")
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
        lines = "\n".join(["entry:", *self.emit.entry, *filter(None, self.emit.lines), "  ret void"])
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
                self._copies[array] = self.module.reserve(array.size * 8 * self.emit.width)
            home = self.module.everywhere, self._copies[array] + int(index) * 8 * self.emit.width
            self.homes[x] = home
            line, lines, self.emit.lines = self._loaded[x], self.emit.lines, []
            self.memory.write(self._at_home(home), "0", self.names[x], x.type)
            lines[line], self.emit.lines = "\n".join(self.emit.lines), lines
        return home if home and home[0].alive else None

    def _at_home(self, home: Home) -> Place:
        source, behind = home
        if source.slot is None:
            pointer = self.at(source.offset + behind)
        else:
            if source not in self._pointers:
                self._pointers[source], place = self.emit.new("from"), self.emit.new("slot")
                offset = source.slot * self.machine.apart
                self.emit.entry.append(f"  {place} = getelementptr i8, ptr %room, i64 {offset}")
                self.emit.entry.append(f"  {self._pointers[source]} = load ptr, ptr {place}")
            pointer = self._pointers[source]
            behind *= self.machine.apart
            pointer = self.emit(f"getelementptr i8, ptr {pointer}, i64 {behind}") if behind else pointer
        return Place(pointer, str(self.emit.width), 1, own=False)

    def _await(self, x: Node, source: Source, behind: int) -> None:
        """Has a number be read here, if its name is asked for."""
        self.homes[x], self._awaited[x] = (source, behind), len(self.emit.lines)
        self.emit.lines.append("")

    def read_now(self, x: Node) -> str:
        """The name of a number that was left in memory, read where it was awaited."""
        line, lines, self.emit.lines = self._awaited.pop(x), self.emit.lines, []
        width, self.emit.width = self.emit.width, self.machine.width
        name = self.memory.read(self._at_home(self.homes[x]), "0", x.type)
        lines[line], self.emit.lines, self.emit.width = "\n".join(self.emit.lines), lines, width
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
                self.memory.write(Place(at, str(self.emit.width), 1, own=True), "0", self.value(x, t), t)
        self.emit.do(f"store ptr {pointer}, ptr {self.at(group.slot)}")

    def at(self, offset: int) -> str:
        """A place in memory."""
        return self.emit(f"getelementptr i8, ptr %room, i64 {offset * self.machine.apart}")

    # --- memory

    def _may_overwrite(self, array: Node, by: Node) -> bool:
        """Whether an array's place is free once a node has read it."""
        return self.places[array].own and self.uses.ends_at(array, by)

    def allocate(self, t: str, size: int) -> Place:
        """Room for an array of each member."""
        return self.machine.allocate(self, t, size)

    # --- nodes

    def nodes(self, nodes: Sequence[Node]) -> None:
        """Writes nodes in order."""
        for waits, run in itertools.groupby(nodes, lambda x: may_wait(x) and x not in self.uniform):
            for plain, part in itertools.groupby(depth_first(list(run)) if waits else run, is_plain):
                straight = list(part)
                t = next((x.type for x in straight if x.type in self.machine.straight), "float64")
                count = len(straight) // self.machine.straight[t] if plain and waits else 0
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
        self.emit.do(f"call void {name}({', '.join([*self.machine.passed, *args])})")
        self._take(dict(enumerate(results)), Source(place))

    def _take(self, results: Mapping[int, Node], source: Source) -> None:
        """Names what a function has left in memory, by number."""
        for i, x in results.items():
            self._await(x, source, i * 8 * self.emit.width)

    def _given(self, numbers: Sequence[Node], place: int) -> list[str]:
        """The parameters of a function for numbers, of which it reads the last ones from memory."""
        direct = numbers[:_DIRECT]
        self.names.update((x, f"%given.{i}") for i, x in enumerate(direct))
        self._take(dict(enumerate(numbers[len(direct) :])), Source(place))
        return [f"{self.emit.vector(x.type)} %given.{i}" for i, x in enumerate(direct)]

    def _give(self, numbers: Sequence[tuple[Operand, str]], place: int) -> list[str]:
        """What a function is given for them; it finds the last ones in memory."""
        direct = numbers[:_DIRECT]
        self._store(numbers[len(direct) :], place)
        return [f"{self.emit.vector(t)} {self.value(x, t)}" for x, t in direct]

    def _leave(self, results: Sequence[Node], place: int) -> None:
        """Leaves what a function computes in memory."""
        self._store([(x, x.type) for x in results], place)

    def _store(self, numbers: Sequence[tuple[Operand, str]], place: int) -> None:
        for i, (x, t) in enumerate(numbers):
            at = Place(self.at(place + i * 8 * self.emit.width), str(self.emit.width), 1, own=True)
            self.memory.write(at, "0", self.value(x, t), t)

    def _write_each(self, nodes: Sequence[Node]) -> None:
        emit, names, known, uniform = self.emit, self.names, dict[tuple[str, str], str](), self.uniform
        for node in nodes:
            kind = node.op, node.type
            if (binary := known.get(kind)) is None:
                binary = known[kind] = self._binary(*kind)
            if binary and node not in uniform:  # most nodes: with few calls
                x, y = node.args
                x = names.get(x) or self.value(x, node.type)
                y = names.get(y) or self.value(y, node.type)
                names[node] = emit(f"{binary} {x}, {y}")
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
                with self.emit.for_all():
                    self.single[node] = self.scalar(node)
            else:
                self.names[node] = self.scalar(node)
                if node.op in MARKS and (home := self.homes.get(node.args[0])):
                    self.homes[node] = home

    def _binary(self, op: str, t: str) -> str:
        """The instruction for sums and products of reals; none for other operations."""
        if op not in ("add", "sub", "mul", "div") or not is_float(t) or op in self.machine.functions:
            return ""
        return f"f{op}{' contract' * self.machine.contracts} {self.emit.vector(t)}"

    def scalar(self, node: Node) -> str:
        """Writes an operation on numbers."""
        if node.op in MARKS:
            return self.value(node.args[0], node.type)
        operands = zip(node.args, operand_types(node), strict=True)
        return write_operation(self.emit, node, [self.value(x, t) for x, t in operands])

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
            self.memory.fill(place, self.value(node.args[0], node.type), node.type, node.data)
        elif node.op == "pack":
            place = self.places[node] = self.allocate(node.type, node.size)
            for k, x in enumerate(node.args):
                self.memory.write(place, str(k), self.value(x, node.type), node.type)
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
            with self.emit.for_all():
                self.single[node] = self.memory.read(place, self.one(index, "int64"), node.type)
        elif is_number(index) or index in self.single:
            self.names[node] = self.memory.read(place, self.one(index, "int64"), node.type)
            if array in self._operands and is_number(index):
                self._loaded[node] = len(self.emit.lines)
                self.emit.lines.append("")
        else:
            self.names[node] = self.memory.read_at(place, self.names[index], node.type)

    def store(self, node: Node) -> None:
        array, index, value = node.args
        place = self.places[array]
        if array.size != GROWING and not self._may_overwrite(array, node):
            place = self.allocate(node.type, array.size)
            self.memory.copy(self.places[array], place, node.type, array.size, "")
        self.places[node] = place
        if array.size == GROWING:
            self.reserve(node, place)
        named = self.value(value, node.type)
        if is_number(index) or index in self.single:
            self.memory.write(place, self.one(index, "int64"), named, node.type, self.memory.mask)
        else:
            self.memory.write_at(place, self.names[index], named, node.type)

    def reserve(self, node: Node, place: Place) -> None:
        """Has a growing array hold what is stored, and what its region stores some entries further on."""
        base, _ = apart(node.args[1])
        key = base, node.region
        if (place.header, key) in self.reserved:
            return
        self.reserved.add((place.header, key))
        many, last = self.emit.lanes("i64"), self.emit.constant(self.uses.furthest[key], "int64")
        if base is not None:
            last = self.emit(f"add {many} {self.value(base, 'int64')}, {last}")
        if self.emit.width > 1:
            last = self.emit.reduce("smax", "i64", last)
        self.machine.grow(self, place, last, node.type)

    # --- control

    def _call_batch(self, node: Node) -> bool:
        """Computes the members of a batch side by side in vectors, if its arrays lie as they are to."""
        batch, region = node.data.batch, node.data.region
        live = [k for k in self.needed.carried(node) if k]
        program = batch.program.part(tuple(k - 1 for k in live))
        if program.width(batch.members) == 1:
            return False
        read, operands = LiveNodes(program.flat), list[str]()
        for array, param in zip(batch.operands, program.params, strict=True):
            known = array.op in ("fill", "table", "pack") and array not in self.needed
            if param in read and known and all(map(self._is_computed, array.args)):
                self.array(array)  # whose entries the loop has without reading them
            place = self.places.get(array)
            if param not in read:
                operands.append("null")
            elif place is None or place.stride != "1" or place.header:
                return False
            else:
                operands.append(place.pointer)
        places = {k: self.allocate(region.params[k].type, region.params[k].size or 0) for k in live}
        arrays = ", ".join(f"ptr {x}" for x in (*(x.pointer for x in places.values()), *operands))
        name, (after,) = self.module.batch(batch, program), self.emit.labels("after")
        ends = self.emit(f"call i1 {name}(ptr %watch, i64 {batch.members}, {arrays})")
        self.emit.do(f"br i1 {ends}, label %exhausted, label %{after}")
        self.emit.begin(after)
        self.stops = True
        self._name_outputs(node, {k: ("", place) for k, place in places.items()})
        return True

    def _is_computed(self, x: Operand) -> bool:
        """Whether a number is there already, wherever it is used."""
        return is_number(x) or (x.size is None and x in self.needed and x not in self.needed.sunk)

    def loop(self, node: Node) -> None:
        if node.data.batch and self.machine.vectors and self._call_batch(node):
            return
        body, mask = node.data, self.memory.mask
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
                self.memory.copy(self.places[x], place, param.type, param.size, "")
            self.places[param] = place
        scalars = [(p, r) for p, r in zip(params, results, strict=True) if p.size is None]
        head, inner, after = self.emit.labels("loop", "body", "end")
        before = self.emit.block
        self.emit.do(f"br label %{head}")
        self.emit.begin(head)
        start = len(self.emit.lines)
        for param, _ in scalars:
            names = self.single if param in self.uniform else self.names
            names[param] = self.emit.new("p")
            self.emit.lines.append("")
        asked = self.needed.asked(node)
        mine = self.needed.of(body.region)
        self._forget(set(self._called_within(mine)))
        self.nodes([x for x in mine if x in asked])
        together = self.emit.width == 1 or is_number(body.condition) or body.condition in self.uniform
        if together:
            more = self.one(body.condition, "bool")
        else:
            go = self.value(body.condition, "bool")
            if mask:
                go = self.emit(f"and {self.emit.lanes('i1')} {go}, {mask}")
            more, self.memory.mask = self.emit.reduce("or", "i1", go), go
        self.emit.do(f"br i1 {more}, label %{inner}, label %{after}")
        self.emit.begin(inner)
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
                value = self.emit.choose(self.memory.mask, value, self.names[param], param.type)
            following.append(value)
        for i, ((param, _), begin, value) in enumerate(zip(scalars, first, following, strict=True)):
            alike = param in self.uniform
            kind = scalar_type(param.type) if alike else self.emit.vector(param.type)
            name = (self.single if alike else self.names)[param]
            self.emit.lines[start + i] = (
                f"  {name} = phi {kind} [{begin}, %{before}], [{value}, %{self.emit.block}]"
            )
        self.emit.do(f"br label %{head}")
        once = self.cost - before_pass
        if tell:
            tell(once)
        self._elsewhere += (0 if tell else once * count_passes(node)) - once
        self.emit.begin(after)
        self.memory.mask = mask
        known = zip(live, params, strict=True)
        self._name_outputs(
            node, {k: (self.single.get(p) or self.names.get(p, ""), self.places.get(p)) for k, p in known}
        )

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
                self.memory.copy(source, temporary, p.type, p.size, "")
                source = temporary
            staged.append((source, target, p))
        for source, target, p in staged:
            self.memory.copy(source, target, p.type, p.size, self.memory.mask)

    def branch(self, node: Node) -> None:
        body, mask, given = node.data, self.memory.mask, node.args[1:]
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
        if self.emit.width > 1:
            masks = [go, self.emit(f"xor {self.emit.lanes('i1')} {go}, {self.emit.constant(True, 'bool')}")]
            masks = [self.emit(f"and {self.emit.lanes('i1')} {m}, {mask}") for m in masks] if mask else masks
        yes, no, middle, join = self.emit.labels("yes", "no", "middle", "join")

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
                    self.memory.copy(source, place, t, size or 0, self.memory.mask)
            return [self.value(results[k], t) for k, t in scalars]

        if self.emit.width == 1:
            self.emit.do(f"br i1 {go}, label %{yes}, label %{no}")
            arms = []
            for side, label in enumerate((yes, no)):
                self.emit.begin(label)
                arms.append((run(side), self.emit.block))
                self.emit.do(f"br label %{join}")
            self.emit.begin(join)
            (a, p), (b, q) = arms
            merged = [
                self.emit(f"phi {self.emit.vector(t)} [{x}, %{p}], [{y}, %{q}]")
                for x, y, (_, t) in zip(a, b, scalars, strict=True)
            ]
        else:  # each side is run where a member takes it, and leaves the others alone
            merged = [self.emit.constant(0.0 if is_float(t) else 0, t) for _, t in scalars]
            for side, (enter, leave) in enumerate(((yes, middle), (no, join))):
                before, self.memory.mask = self.emit.block, masks[side]
                self.emit.do(
                    f"br i1 {self.emit.reduce('or', 'i1', masks[side])}, label %{enter}, label %{leave}"
                )
                before = self.emit.block
                self.emit.begin(enter)
                values = run(side)
                if side:
                    values = [
                        self.emit.choose(masks[1], x, y, t)
                        for x, y, (_, t) in zip(values, merged, scalars, strict=True)
                    ]
                end = self.emit.block
                self.emit.do(f"br label %{leave}")
                self.emit.begin(leave)
                merged = [
                    self.emit(f"phi {self.emit.vector(t)} [{x}, %{end}], [{y}, %{before}]")
                    for x, y, (_, t) in zip(values, merged, scalars, strict=True)
                ]
        self.memory.mask = mask
        named = {k: (x, None) for (k, _), x in zip(scalars, merged, strict=True)}
        self._name_outputs(node, named | {k: ("", place) for k, place in arrays.items()})


def _uniform(needed: LiveNodes) -> frozenset[Node]:
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
