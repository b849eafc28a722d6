"""Programs of scalars as C99: each scalar a constant of its own, loops and branches as they are, callees as functions.

One operation is one statement: compilers that contract a product and a sum within a statement find none, and all round as
the machine code does here. Nothing is allocated, and nothing is kept between calls.
"""

import collections
import itertools
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import numpy as np

from ..._misc._errors import Untranslatable
from ._inline import inline
from ._live_nodes import LiveNodes
from ._nodes import GROWING, MARKS, Node, Operand, Region, is_float, is_integer, is_number, zero
from ._subprogram import Subprogram
from ._table import OPERATIONS
from ._uses import Uses, bound_passes, depth_first, find_in_place, is_plain

TYPES = {
    "float64": "double", "float32": "float", "bool": "bool", "int32": "int32_t", "int64": "int64_t",
    "uint32": "uint32_t", "uint64": "uint64_t",
}  # fmt: skip
"""Numbers that C has, by their names in NumPy."""
_WORD = re.compile(r"[A-Za-z_]\w*")
_WIDTH = 110  # of lines


class Argument(NamedTuple):
    """What a C function is given for an operand of a program.

    - `declaration`: in its list of parameters.
    - `entries`: each entry of the operand, as C reads it.
    - `indexed`: whether they are entries of an array of that name.
    """

    declaration: str
    entries: tuple[str, ...]
    indexed: str = ""


class Source(NamedTuple):
    """A function to write.

    - `name`: its name in C.
    - `outputs`, `params`: of the program.
    - `arguments`: one an operand.
    - `results`: (name, type, size) of each output.
    """

    name: str
    outputs: Sequence[Any]
    params: Sequence[Node]
    arguments: Sequence[Argument]
    results: Sequence[tuple[str, str, int]]


class Loop(NamedTuple):
    """A loop in C.

    - `bound`: how many passes it makes at most; None where that is not known.
    - `at`: the user's line that has it, where that is known; else empty.
    """

    bound: int | None
    at: str


class FunctionText(NamedTuple):
    """A function in C.

    - `name`: its name.
    - `head`: its declaration, without the semicolon.
    - `text`: all of it.
    - `operations`: how many it has, those of loops once, with those of functions that it calls.
    - `stack_bytes`: about how many its numbers take at a time, with those of functions that it calls.
    - `loops`: those it has, with those of functions that it calls.
    - `most_operations`: how many it runs at most; None where a loop has no bound.
    """

    name: str
    head: str
    text: str
    operations: int
    stack_bytes: int
    loops: tuple[Loop, ...]
    most_operations: int | None

    @property
    def unbounded(self) -> list[Loop]:
        """Loops that may go on for ever, as far as is known."""
        return [x for x in self.loops if x.bound is None]


@final
class Module:
    """Writes the functions of one file.

    - `shared`: tables, and what functions call, in order.
    - `math`: the functions of `math.h` that are used.

    **Arguments:**

    - `prefix`: of all names.
    """

    def __init__(self, prefix: str):
        self.prefix, self.shared, self.math = prefix, list[str](), set[str]()
        self._callees: dict[Subprogram, tuple[str, _Function]] = {}
        self.results: dict[Subprogram, tuple[int, ...]] = {}  # that any call needs
        self._tables: dict[Node, str] = {}

    def write(self, sources: Sequence[Source]) -> list[FunctionText]:
        """The functions.

        **Raises:** `Untranslatable`.
        """
        flat = [[x for out in s.outputs for x in ([out] if isinstance(out, Node) else out)] for s in sources]
        written_out = inline([(s.params, x) for s, x in zip(sources, flat, strict=True)])
        flat, sources = (
            [x for _, x in written_out],
            [_replace(s, *of) for s, of in zip(sources, written_out, strict=True)],
        )
        needed = [LiveNodes(x, values=True) for x in flat]
        for x in needed:
            self._find_results(x)
        return [
            _Function(self, *of).whole(source)
            for of, source in zip(zip(needed, flat, strict=True), sources, strict=True)
        ]

    def _find_results(self, needed: LiveNodes) -> None:
        for call in (x for x in needed.nodes if x.op == "call"):
            known = self.results.get(call.data, ())
            results = tuple(sorted({*known, *needed.results(call)}))
            if results != known:
                self.results[call.data] = results
                self._find_results(call.data.needed(results, values=True))

    def callee(self, program: Subprogram) -> tuple[str, "_Function"]:
        """The name of the function of a sub-program, and what wrote it."""
        if program not in self._callees:
            results = self.results[program]
            chosen = [program.results[k] for k in results]
            function = _Function(self, program.needed(results, values=True), chosen)
            name = f"{self.prefix}_part{len(self._callees) + 1}"
            self._callees[program] = name, function
            self.shared.append(function.callee(name, program, results))  # after those that it calls itself
        return self._callees[program]

    def table(self, node: Node) -> str:
        """The name of an array of constants."""
        if node not in self._tables:
            name = self._tables[node] = f"{self.prefix}_table{len(self._tables) + 1}"
            entries = ", ".join(literal(x, node.type) for x in node.data[0])
            self.shared.append(f"static const {_ctype(node.type)} {name}[{node.size}] = {{{entries}}};\n")
        return self._tables[node]


def _replace(source: Source, params: list[Node], flat: list[Any]) -> Source:
    """A source of another program with as many outputs."""
    left = iter(flat)
    outputs = [next(left) if isinstance(x, Node) else [next(left) for _ in x] for x in source.outputs]
    return source._replace(outputs=outputs, params=params)


class _Place(NamedTuple):
    """Where an array is: its name in C, or how each entry is read; and whether it may be written to."""

    name: str
    own: bool
    entries: tuple[str, ...] = ()


@final
class _Function:
    """Writes one function."""

    def __init__(self, module: Module, needed: LiveNodes, flat: Sequence[Operand]):
        self.module, self.needed, self.uses = module, needed, Uses(needed, flat)
        self.names: dict[Node, str] = {}
        self.places: dict[Node, _Place] = {}
        self.lines, self.depth, self._count = list[str](), 1, 0
        self.operations, self.stack_bytes, self.loops = 0, 0, list[Loop]()
        self.most = 0.0  # operations that are run, infinitely many where a loop has no bound
        self._arrays = self._called = 0  # bytes
        self._rooms: dict[str, tuple[str, int, Region]] = {}  # arrays that others may use after them
        self._given = set[str]()  # entries of what an exported function is given
        self._live: dict[str, list[int]] = {}  # of each scalar: bytes, first and last line

    # --- writing

    def new(self, letter: str = "v") -> str:
        self._count += 1
        return f"{letter}{self._count}"

    def do(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def scalar(self, t: str, text: str = "", letter: str = "v") -> str:
        """The name of a new scalar; a constant, unless its letter is another."""
        name = self.new(letter)
        value = f" = {text}" if text else ""
        self.do(f"{'const ' if letter == 'v' else ''}{_ctype(t)} {name}{value};")
        self._live[name] = [np.dtype(t).itemsize, len(self.lines), len(self.lines)]
        return name

    def value(self, x: Operand, t: str) -> str:
        """An operand as C reads it."""
        if is_number(x):
            return literal(x, t)
        name = self.names[x]
        if name in self._live:
            self._live[name][2] = len(self.lines) + 1
        return name

    # --- the whole

    def whole(self, source: Source) -> FunctionText:
        """The text of an exported function."""
        for node, argument in zip(source.params, source.arguments, strict=True):
            self.places[node] = _Place(argument.indexed, own=False, entries=argument.entries)
            self._given.update(argument.entries)
        self.nodes(self.needed.outermost)
        writes = list[str]()
        for out, (name, t, size) in zip(source.outputs, source.results, strict=True):
            if isinstance(out, Node):
                writes.append(
                    f"for (int i = 0; i < {size}; ++i) {name}[i] = {self._local_array(out, size)}[i];"
                )
            else:
                writes += [f"{name}[{k}] = {self._local(x, t)};" for k, x in enumerate(out)]
        for line in writes:
            self.do(line)
        read = self._finish()
        names = [_name_of(x.declaration) for x in source.arguments if x.declaration]
        unread = [f"(void){x};" for x in names if x not in read]
        given = [*(x.declaration for x in source.arguments if x.declaration)]
        given += [f"{_ctype(t)} {name}[{size}]" for name, t, size in source.results]
        head = f"void {source.name}({', '.join(given)})"
        body = "\n".join([*("    " + x for x in unread), *self.lines])
        text = f"{wrap(head)}\n{{\n{body}\n}}\n"
        most = int(self.most) if math.isfinite(self.most) else None
        return FunctionText(
            source.name, head, text, self.operations, self.stack_bytes, tuple(self.loops), most
        )

    def _finish(self) -> set[str]:
        """Drops constants that nothing reads, as of callees that need less than they are given; returns what is read."""
        change = np.zeros(len(self.lines) + 3, np.int64)  # of bytes in use, from one line to the next
        for size, born, last in self._live.values():
            change[born] += size
            change[min(last, len(self.lines)) + 1] -= size
        self.stack_bytes = int(np.cumsum(change).max()) + self._arrays + self._called
        kept, read = list[str](), set[str]()
        for line in reversed(self.lines):
            words = _WORD.findall(line)
            if words[:1] == ["const"] and words[2] not in read:
                self.operations -= 1
                self.most -= 1
                continue
            read.update(words[3:] if words[:1] == ["const"] else words)
            kept.append(line)
        self.lines = kept[::-1]
        return read

    def _local(self, x: Operand, t: str) -> str:
        """A value that writing results does not change, though they may stand where arguments do."""
        text = self.value(x, t)
        return self.scalar(t, text) if text in self._given else text

    def _local_array(self, x: Node, size: int) -> str:
        if not self.places[x].entries:
            return self.array_name(x)
        made = self.allocate(x.type, size).name
        self.copy(x, made, size)
        return made

    def callee(self, name: str, program: Subprogram, results: tuple[int, ...]) -> str:
        """The text of the function of a sub-program."""
        given = list[str]()
        for i in program.given(results, values=True):
            param = program.region.params[i]
            given.append(f"const {_ctype(param.type)} x{i}{'' if param.size is None else f'[{param.size}]'}")
            if param.size is None:
                self.names[param] = f"x{i}"
            else:
                self.places[param] = _Place(f"x{i}", own=False)
        self.nodes(self.needed.outermost)
        chosen = [program.results[k] for k in results]
        given += [
            f"{_ctype(t)} {_name_out(t)}[{count}]"
            for t, count in collections.Counter(x.type for x in chosen).items()
        ]
        for x, (t, k) in zip(chosen, _number(chosen), strict=True):
            self.do(f"{_name_out(t)}[{k}] = {self.value(x, t)};")
        self._finish()
        body = "\n".join(self.lines)
        head = wrap(f"static void {name}({', '.join(given)})")
        return f"{head}\n{{\n{body}\n}}\n"

    def call(self, node: Node) -> None:
        program, results = node.data, self.module.results[node.data]
        name, callee = self.module.callee(program)
        chosen = [program.results[k] for k in results]
        outs = {
            t: self.allocate(t, count).name
            for t, count in collections.Counter(x.type for x in chosen).items()
        }
        params = program.region.params
        given = [
            self.value(node.args[i], params[i].type)
            if params[i].size is None
            else self.array_name(node.args[i])
            for i in program.given(results, values=True)
        ]
        self.lines += wrap(f"{'    ' * self.depth}{name}({', '.join([*given, *outs.values()])});").split("\n")
        self.operations += callee.operations
        self.most += callee.most
        self.loops += callee.loops
        self._called = max(self._called, callee.stack_bytes + 8 * len(given))
        numbered = _number(chosen)
        for x in self.needed.outputs[node]:
            t, k = numbered[results.index(x.data)]
            self.names[x] = f"{outs[t]}[{k}]"

    # --- arrays

    def allocate(self, t: str, size: int, by: Node | None = None) -> _Place:
        """Room for an array; for what a node makes, that of one that nothing reads any more, if there is one."""
        for name, kind in self._rooms.items():
            if by and kind == (t, size, by.region) and self._is_free(name, by):
                return _Place(name, own=True)
        name = self.new("a")
        if by:
            self._rooms[name] = t, size, by.region
        self.do(f"{_ctype(t)} {name}[{size}];")
        self._arrays += size * np.dtype(t).itemsize
        return _Place(name, own=True)

    def _is_free(self, name: str, by: Node) -> bool:
        here = [x for x, place in self.places.items() if place.name == name]

        def is_over(x: Node) -> bool:
            end, region = self.uses.last.get(x, math.inf), x.region
            while region is not by.region and region in self.needed.owner:
                control = self.needed.owner[region]  # within it: over when it is
                end, region = control.number, control.region
            return region is by.region and end < by.number

        return bool(here) and all(map(is_over, here))

    def array_name(self, node: Node) -> str:
        """An array that C can index."""
        place = self.places[node]
        if place.name:
            return place.name
        made = self.allocate(node.type, len(place.entries))
        for k, x in enumerate(place.entries):
            self.do(f"{made.name}[{k}] = {x};")
        return made.name

    def copy(self, source: Node, target: str, size: Any) -> None:
        name = self.array_name(source)
        if name != target:
            self.do(f"for (int i = 0; i < {size}; ++i) {target}[i] = {name}[i];")

    def _may_overwrite(self, array: Node, by: Node) -> bool:
        return self.places[array].own and self.uses.ends_at(array, by)

    def array(self, node: Node) -> None:
        op, t = node.op, node.type
        if node.size == GROWING:
            raise Untranslatable(
                "a derivative in reverse mode through a loop takes memory that grows, which C has no form for here"
            )
        if op == "absent":
            raise AssertionError("an array is read that the tape of a loop does not have")
        if op == "table":
            self.places[node] = _Place(self.module.table(node), own=False)
        elif op == "stop_gradient":
            self.places[node] = self.places[node.args[0]]._replace(own=False)
        elif op == "store":
            self._store(node)
        else:
            place = self.places[node] = self.allocate(t, node.size or 0, node)
            if op == "fill":
                x = self.value(node.args[0], t)
                self.do(f"for (int i = 0; i < {node.size}; ++i) {place.name}[i] = {x};")
            elif op == "pack":
                for k, x in enumerate(node.args):
                    self.do(f"{place.name}[{k}] = {self.value(x, t)};")
            else:
                assert op == "blank", op

    def _store(self, node: Node) -> None:
        array, index, value = node.args
        if self._may_overwrite(array, node):
            place = self.places[array]
        else:
            place = self.allocate(node.type, array.size, node)
            self.copy(array, place.name, array.size)
        self.places[node] = place
        self.do(f"{place.name}[{self.value(index, 'int64')}] = {self.value(value, node.type)};")

    def _load(self, node: Node) -> None:
        array, index = node.args
        text = f"{self.array_name(array)}[{self.value(index, 'int64')}]"
        self.names[node] = self.scalar(node.type, text)

    def _is_given(self, node: Node) -> bool:
        """Whether a node is an entry of an operand, which is read where it is used."""
        if node.op != "load" or not is_number(node.args[1]):
            return False
        place = self.places.get(node.args[0])
        if place is None or not place.entries:
            return False
        self.names[node] = place.entries[int(node.args[1])]
        return True

    # --- control

    def nodes(self, nodes: Sequence[Node]) -> None:
        nodes = [x for x in nodes if not self._is_given(x)]
        for plain, run in itertools.groupby(nodes, is_plain):
            for node in depth_first(list(run)) if plain else run:
                if node.op == "loop":
                    self.loop(node)
                elif node.op == "branch":
                    self.branch(node)
                elif node.op == "call":
                    self.call(node)
                elif node.size is not None:
                    self.array(node)
                elif node.op == "load":
                    self._load(node)
                elif node.op in MARKS:
                    self._rename(node)
                else:
                    self.operations += 1
                    self.most += 1
                    self.names[node] = self.operation(node)

    def _rename(self, node: Node) -> None:
        (x, *_) = node.args
        self.names[node] = literal(x, node.type) if is_number(x) else self.names[x]

    def loop(self, node: Node) -> None:
        body, live = node.data, self.needed.carried(node)
        params, results = [body.region.params[k] for k in live], [body.results[k] for k in live]
        taken = set[Any]()
        for param, x in zip(params, [node.args[k] for k in live], strict=True):
            if param.size is None:
                self.names[param] = self.scalar(param.type, self.value(x, param.type), "p")
                continue
            if param.size == GROWING:
                self.array(param)  # which raises
            place = self.places[x]
            if x in taken or not self._may_overwrite(x, node):
                place = self.allocate(param.type, param.size, node)
                self.copy(x, place.name, param.size)
            taken.add(x)
            self.places[param] = place
        self.loops.append(Loop(bound := bound_passes(node), body.at))
        start = len(self.lines)
        self.do(
            f"for (;;) {{ /* {'passes without a bound' if bound is None else f'at most {bound} passes'} */"
        )
        self.depth += 1
        before, self.most = self.most, 0.0
        asked, mine = self.needed.asked(node), self.needed.of(body.region)
        self.nodes([x for x in mine if x in asked])
        self.do(f"if (!{self.value(body.condition, 'bool')}) break;")
        self.nodes([x for x in mine if x not in asked])
        self._pass_on(params, results)
        self.most = before + (
            math.inf if bound is None else self.most * (bound + 1)
        )  # once more, to the break
        self.depth -= 1
        self.do("}")
        for of in self._live.values():  # what is read within is there until the last pass
            if of[1] <= start < of[2]:
                of[2] = len(self.lines)
        for out in self.needed.outputs.get(node, ()):
            of = self.names if out.size is None else self.places
            of[out] = of[body.region.params[out.data]]  # pyright: ignore[reportArgumentType]

    def _pass_on(self, params: Sequence[Node], results: Sequence[Operand]) -> None:
        """Has what a pass gives stand where the next one reads it."""
        carried = {self.names[p] if p.size is None else self.places[p].name for p in params}
        moves = list[str]()
        for p, r in zip(params, results, strict=True):
            if p.size is None:
                name, text = self.names[p], self.value(r, p.type)
                if text != name:
                    moves.append(f"{name} = {self.scalar(p.type, text) if text in carried else text};")
                continue
            name, source = self.places[p].name, self.array_name(r)
            if source == name:
                continue
            if source in carried:  # which may be changed before it is read
                aside = self.allocate(p.type, p.size or 0)
                self.copy(r, aside.name, p.size)
                source = aside.name
            moves.append(f"for (int i = 0; i < {p.size}; ++i) {name}[i] = {source}[i];")
        for line in moves:
            self.do(line)

    def branch(self, node: Node) -> None:
        body, given = node.data, node.args[1:]
        outputs = [(x.data, *body.types[x.data]) for x in self.needed.outputs.get(node, ())]
        in_place = find_in_place(node, self.needed, self._may_overwrite)
        places = {
            k: self.places[given[in_place[k]]] if k in in_place else self.allocate(t, size, node)
            for k, t, size in outputs
            if size is not None
        }
        scalars = {k: (self.scalar(t, letter="b"), t) for k, t, size in outputs if size is None}
        self.do(f"if ({self.value(node.args[0], 'bool')}) {{")
        before, sides = self.most, list[float]()
        for side, (region, results) in enumerate(zip(body.regions, body.results, strict=True)):
            if side:
                self.do("} else {")
            self.depth += 1
            self.most = 0.0
            for i in self.needed.given(node):
                param = region.params[i]
                if param.size is None:
                    self.names[param] = self.value(given[i], param.type)
                else:
                    self.places[param] = self.places[given[i]]._replace(own=i in in_place.values())
            self.nodes(self.needed.of(region))
            for k, place in places.items():
                self.copy(results[k], place.name, body.types[k][1])
            for k, (name, t) in scalars.items():
                self.do(f"{name} = {self.value(results[k], t)};")
            sides.append(self.most)
            self.depth -= 1
        self.most = before + max(sides)
        self.do("}")
        for out in self.needed.outputs.get(node, ()):
            if out.size is None:
                self.names[out] = scalars[out.data][0]
            else:
                self.places[out] = places[out.data]

    # --- scalars

    def operation(self, node: Node) -> str:
        """Writes one operation."""
        op, t = node.op, node.type
        of = node.data if op in _COMPARED or op in _CONVERSIONS else t  # type of operands
        types = ["bool", t, t] if op == "select" else [of] * len(node.args)
        given = [self.value(x, y) for x, y in zip(node.args, types, strict=True)]
        if op == "bitcast" and is_float(of) != is_float(t):
            name, source = self.scalar(t, letter="b"), self.scalar(of, given[0])
            self.do(f"memcpy(&{name}, &{source}, sizeof {name});")
            return name
        if op in _CONVERSIONS:
            return self.scalar(t, f"({_ctype(t)}){given[0]}")
        if op in _FORMS and not (op == "abs" and is_float(t)):
            return self.scalar(t, _FORMS[op](of, *given))
        known = OPERATIONS[op].llvm
        function = _FUNCTIONS.get(op) or (known[:-2] if known.endswith("()") else "")
        if not function or not is_float(t):
            raise Untranslatable(f"'{op}' of {t} has no form in C")
        self.module.math.add(function)
        return self.scalar(t, f"{function}{'f' if t == 'float32' else ''}({', '.join(given)})")


def literal(x: Any, t: str) -> str:
    """A number as C reads it, exactly."""
    if t == "bool":
        return "true" if x else "false"
    if is_integer(t):
        if x == np.iinfo(t).min < 0:
            return f"{t.upper()}_MIN"
        return f"({int(x)})" if x < 0 else f"{int(x)}{'u' if t[0] == 'u' else ''}"
    if math.isnan(x) or math.isinf(x):
        return "NAN" if math.isnan(x) else "INFINITY" if x > 0 else "(-INFINITY)"
    text = repr(float(x)) if t == "float64" else f"{np.float32(x)!s}f"
    return f"({text})" if text.startswith("-") else text


def wrap(text: str) -> str:
    """A declaration or a call over several lines, broken at commas."""
    lines = [""]
    for part in text.replace(", ", ",\n").split("\n"):
        if len(lines[-1]) + len(part) > _WIDTH:
            lines.append("    " + part)
        else:
            lines[-1] += f" {part}" if lines[-1] else part
    return "\n".join(lines)


def _ctype(t: str) -> str:
    if t not in TYPES:
        raise Untranslatable(f"numbers of type {t} have no form in C here")
    return TYPES[t]


def _name_of(declaration: str) -> str:
    """The name that a declaration declares."""
    return _WORD.findall(declaration.partition("[")[0])[-1]


def _name_out(t: str) -> str:
    return f"out_{_ctype(t).removesuffix('_t')}"


def _number(results: Sequence[Node]) -> list[tuple[str, int]]:
    """The type of each, and which of that type it is."""
    counts = collections.Counter[str]()
    numbered = list[tuple[str, int]]()
    for x in results:
        numbered.append((x.type, counts[x.type]))
        counts[x.type] += 1
    return numbered


def _infix(sign: str, logical: str = "") -> Callable[..., str]:
    """An operation between its operands; of whole numbers by unsigned ones, which wrap round."""

    def form(t: str, x: str, y: str) -> str:
        if t == "bool":
            return f"{x} {logical or sign} {y}"
        if t[0] == "i" and sign in ("+", "-", "*", "<<"):
            return f"({TYPES[t]})((u{TYPES[t]}){x} {sign} (u{TYPES[t]}){y})"
        return f"{x} {sign} {y}"

    return form


def _sign_of(t: str, x: str) -> str:
    one, none = literal(1, t), literal(zero(t), t)
    return f"{x} > {none} ? {one} : ({x} < {none} ? -{one} : {x})"


def _exceeds(t: str, x: str, sign: str, y: str) -> str:
    """Whether x is the one of two: real numbers are NaN if either is."""
    return f"({x} {sign} {y} || {x} != {x})" if is_float(t) else f"{x} {sign} {y}"


_CONVERSIONS = ("convert", "bitcast")
_COMPARED = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=", "is_finite": ""}
_FUNCTIONS = {x: x for x in ("sin", "cos", "sqrt", "floor", "ceil")} | {"abs": "fabs", "round": "rint"}
_FORMS: dict[str, Callable[..., str]] = {
    "add": _infix("+"),
    "sub": _infix("-"),
    "mul": _infix("*", "&&"),
    "div": _infix("/"),
    "quotient": _infix("/"),
    "remainder": _infix("%"),
    "neg": lambda t, x: f"({TYPES[t]})(0u - (u{TYPES[t]}){x})" if t[0] == "i" else f"-{x}",
    "max": lambda t, x, y: f"{_exceeds(t, x, '>', y)} ? {x} : {y}",
    "min": lambda t, x, y: f"{_exceeds(t, x, '<', y)} ? {x} : {y}",
    "sign": _sign_of,
    "abs": lambda t, x: f"{x} < 0 ? -{x} : {x}",
    **{op: _infix(sign) for op, sign in _COMPARED.items() if sign},
    "and": _infix("&", "&&"),
    "or": _infix("|", "||"),
    "xor": _infix("^", "!="),
    "not": lambda t, x: f"!{x}" if t == "bool" else f"~{x}",
    "shift_left": _infix("<<"),
    "shift_right_logical": lambda t, x, y: (
        f"({TYPES[t]})(({'u' if t[0] == 'i' else ''}{TYPES[t]}){x} >> {y})"
    ),
    "shift_right_arithmetic": lambda t, x, y: f"({TYPES[t]})(({TYPES[t].removeprefix('u')}){x} >> {y})",
    "select": lambda t, c, x, y: f"{c} ? {x} : {y}",
    "is_finite": lambda t, x: f"({x} - {x}) == {literal(0.0, t)}",
}
"""How operations are written, of the type of their operands; all others are functions of `math.h`."""
