"""Programs of scalars as text for LLVM: the functions of a program, which call each other."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, final

from ._instructions import ArrayOperand, Machine, Place, scalar_type
from ._live_nodes import LiveNodes
from ._llvm_function import Callee, Function, Group, Home, Source, left_in_memory
from ._nodes import Batch, Node, Operand
from ._subprogram import Subprogram

_SHARED = 2000  # operations of a sub-program without loops, from which on programs share its machine code
_AS_LONG = 1.15  # all its results are computed where that takes up to so many times as many operations
_TOGETHER = 4  # numbers, from which on one pointer is given in place of them


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
    machine: Machine,
    units: dict[str, None] | None = None,
) -> tuple[str, frozenset[str]]:
    """The text of `compute(..., members, results..., operands...)`, and the functions of C that it calls.

    The texts of units are left in `units`; without it there are none.
    """
    module = Module(machine, units)
    flat = [x for out in outputs for x in ([out] if isinstance(out, Node) else out)]
    module.find_results(needed := LiveNodes(flat, values=True))
    function = Function(module, needed, flat)
    text = module.text(function.compute(outputs, operands, results, params))
    return text, frozenset(module.called)


def write_scalar_function(
    name: str, params: Sequence[Node], output: Operand, machine: Machine
) -> tuple[str, frozenset[str]]:
    """The text of a function of scalars that calls others, and those of C that it calls; all are of one type."""
    module = Module(machine)
    module.find_results(needed := LiveNodes([output], values=True))
    function = Function(module, needed, [output])
    function.names.update({p: f"%in{i}" for i, p in enumerate(params)})
    function.nodes(function.needed.outermost)
    t = params[0].type
    kind, value = scalar_type(t), function.value(output, t)
    given = ", ".join(f"{kind} %in{i}" for i in range(len(params)))
    body = "\n".join(["entry:", *function.emit.lines, f"  ret {kind} {value}"])
    return f"define internal {kind} @{name}({given}) {{\n{body}\n}}", frozenset(module.called)


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
        entries = max(results, left_in_memory(given), 1)
        return f"@callee{self._count}", self.reserve(entries * self.machine.width * 8)

    def outline(
        self, nodes: Sequence[Node], given: list[Node], homes: Mapping[Node, Home], results: list[Node]
    ) -> tuple[str, int]:
        """The name of a function of straight code, and where in memory it finds what is given last and leaves results."""
        name, place = self._new_function(len(given), len(results))
        self._functions.append(Function(self).straight(name, nodes, given, homes, results, place))
        return name, place

    def find_results(self, needed: LiveNodes) -> None:
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

    def batch(self, batch: Batch, program: Any) -> str:
        """The name of the function that computes a program at many members, side by side in vectors."""
        units = dict[str, None]()
        assert self.machine.vectors
        assert self._units is not None  # of a CPU's code
        given, results = program.arrays(batch.shared)
        machine = self.machine.vectors(program.width(batch.members))
        text, called = write_function(program.outputs, given, results, program.params, machine, units)
        name = f"@batch_{hashlib.sha256(text.encode()).hexdigest()[:24]}"
        text = text.replace("@callee", f"{name}_").replace("@compute", name)
        assert self._units is not None
        self._units |= dict.fromkeys((*units, text))
        pointers = ", ".join(["ptr"] * (len(given) + len(results)))
        self.declared[name] = f"i1 {name}(ptr, i64, {pointers})"
        self.called |= called
        return name

    def results_of(self, program: Subprogram, arrays: tuple[Place, ...]) -> tuple[int, ...]:
        """Which results the function of a sub-program leaves."""
        if (program, arrays) in self._callees:
            return self._callees[program, arrays].results
        wanted = self.results[program]
        if not self._is_unit(program, arrays):
            return wanted
        unit, every = program.units.get(self.machine.width), tuple(range(len(program.results)))
        chosen = tuple(sorted({*wanted, *(unit.callee.results if unit else ())}))
        nodes = lambda results: len(program.needed(results, values=True).nodes)
        return every if nodes(every) <= _AS_LONG * nodes(chosen) else chosen

    def _is_unit(self, program: Subprogram, arrays: tuple[Place, ...]) -> bool:
        return self._units is not None and not arrays and program.size >= _SHARED and not program.repeats

    def callee(self, program: Subprogram, arrays: tuple[Place, ...], homes: Sequence[Home | None]) -> Callee:
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

    def _write(self, program: Subprogram, arrays: tuple[Place, ...], homes: Sequence[Home | None]) -> Callee:
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
