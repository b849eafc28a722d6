"""Reverse mode: programs of cotangents, which can be differentiated again.

A program runs with a tape of what each loop carries, and then back: a pass of a loop is computed again from the tape, and
the cotangents of its results are pulled back through it. A branch is computed again from what it was given. So nothing of
a pass is kept but what the loop carries.
"""

import collections
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, final

from ._activity import LINEAR, find_active, find_varied_parameters, is_left_out
from ._arrays import LONG, tabulate, to_scalars
from ._builder import Builder
from ._derivative_rules import find_partials, pull_back_by_rule, refusal
from ._live_nodes import LiveNodes
from ._moves import fill_array
from ._nodes import GROWING, Node, Operand, Region, is_number, zero
from ._rebuild import Extra, Rebuilder
from ._subprogram import Subprogram
from ._trace import Interpreter

_WORTH_KEEPING = 10  # operations a number that a function gives takes, above which a tape has it
_SNAPSHOT_BY_LOOP = 64  # entries of an array above which a loop copies them to a tape and back


@final
@dataclasses.dataclass
class _Tape:
    """What a tape has of each pass of a loop.

    - `carried`: what it was given.
    - `made`: what it computed.
    - `moves`: the condition that it is kept at all, if there is one.
    """

    carried: Sequence[Node]
    made: Sequence[Node]
    moves: Node | None

    @property
    def all(self) -> list[Node]:
        return [*self.carried, *self.made]

    @functools.cached_property
    def layout(self) -> tuple[dict[Node, int], collections.Counter[str]]:
        """Where each begins on the tape of its type, and how many entries of each type there are."""
        before, of_type = dict[Node, int](), collections.Counter[str]()
        for p in self.all:
            before[p] = of_type[p.type]
            of_type[p.type] += _entries(p)
        return before, of_type


@final
class _Reverse(Rebuilder):
    """Makes a program again with tapes, and then runs it back.

    - `cotangents`: of each node of reals, what has come back to it so far.
    """

    def __init__(self, builder: Builder, needed: LiveNodes, values: dict, varied: set[Node]):
        super().__init__(builder, needed, values)
        self.varied, self.cotangents = varied, dict[Node, Any]()
        self.tapes: dict[Node, tuple[Operand, list[Any]]] = {}
        self.restored = dict[Node, Any]()  # from tapes
        self._tape_of = dict[Node, _Tape]()
        self._is_worth_keeping = functools.cache(self._find_worth_keeping)

    def scalar(self, node: Node) -> Any:
        return self.get(node.args[0]) if is_left_out(node) else super().scalar(node)

    # --- with tapes

    def nodes(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            super().nodes((node,))
            for x in (node, *self.needed.outputs.get(node, ())):
                if x in self.restored:
                    self.values[x] = self.restored[x]

    def loop(self, node: Node) -> None:
        if not self._is_active(node):
            return super().loop(node)
        tape, kinds = self._kept(node), self._kinds(node)

        def within(more: Sequence[Operand]) -> Any:
            count, *tapes = more
            written: dict[str, Any] = dict(zip(kinds, tapes, strict=True))

            def write(kept: Sequence[Node]) -> None:
                for p in kept:
                    place = self._place(node, count, p)
                    written[p.type] = self._write(written[p.type], place, p, self.values[p])

            write(tape.carried)  # before the pass, so that it may change arrays in place

            def finish() -> list[Operand]:
                write(tape.made)
                last = self.b.add(count, 1, "int64")
                if tape.moves is not None:  # else the next pass takes the place of this one
                    last = self.b.select(self.get(tape.moves), last, count, "int64")
                return [last, *(written[t] for t in kinds)]

            return finish

        extra: list[Extra] = [(0, ("int64", None)), *((self.b.tape(t), (t, GROWING)) for t in kinds)]
        count, *tapes = self._loop(node, extra, within)
        self.tapes[node] = count, tapes
        return None

    def _is_active(self, control: Node) -> bool:
        """Whether it is to be run back."""
        return any(x in self.varied for x in self.needed.outputs.get(control, ()))

    def _kinds(self, node: Node) -> list[str]:
        """The types of what is kept of a loop."""
        return sorted({p.type for p in self._kept(node).all})

    def _place(self, node: Node, count: Operand, p: Node) -> Operand:
        """Where on the tape of its type a pass of a loop has something."""
        before, of_type = self._kept(node).layout
        return count * of_type[p.type] + before[p]

    def _kept(self, node: Node) -> "_Tape":
        """What a pass is computed again from: of what a loop carries, and of what costs much to compute, what is read."""
        if node not in self._tape_of:
            region, made = node.data.region, list[Node]()
            read = self._read_again(region, made)
            live = [region.params[k] for k in self.needed.carried(node)]
            carried = [p for p in live if p in read and p.size != GROWING]
            self._tape_of[node] = _Tape(carried, made, self._moves(node))
        return self._tape_of[node]

    def _moves(self, node: Node) -> Node | None:
        """What tells that a pass of a loop changes something with a derivative, if there is such a condition.

        A pass that does not, such as a step that is refused, is not run back.
        """
        body, found = node.data, None
        for k in self.needed.carried(node):
            param, x = body.region.params[k], body.results[k]
            if param not in self.varied or x is param:
                continue
            control = x.args[0] if x.__class__ is Node and x.args else None
            if control is None:
                return None
            if x.op == "select" and x.args[2] is param:
                conditions = {control}
            elif x.op == "output" and control.op == "loop" and control.args[x.data] is param:
                conditions = set(_all_of(control.data.condition))
            else:
                return None
            found = conditions if found is None else found & conditions
        ready = [x for x in found or () if x.__class__ is Node and x.region is body.region]
        return ready[0] if ready else None

    def _read_again(self, region: Region, made: list[Node]) -> set[Node]:
        """The nodes whose values the way back through a region needs: where an operation is not linear, and places.

        What is only moved, as when an entry of an array is kept unless a condition holds, is not among them. So a buffer
        that a loop fills is not copied in every pass.
        """
        wanted: set[Node] = set()
        inside = dict.fromkeys(self._inside(region))
        stack: list[Any] = []
        for node in (x for r in inside for x in self.needed.of(r)):
            if node.op in ("loop", "branch", "call") and not self._is_active(node):
                continue
            if node.op == "loop":  # which writes what it carries to a tape of its own
                live = [k for k in self.needed.carried(node) if node.data.region.params[k].size is None]
                stack += [node.data.condition, *(node.args[k] for k in live)]
                stack += [node.data.results[k] for k in live]
            elif node.op == "branch":
                stack.append(node.args[0])
            elif node.op == "call":
                stack += node.args
            elif node not in self.varied:
                continue
            elif node.op in ("load", "store"):
                stack.append(node.args[1])
            elif node.op == "select":
                stack.append(node.args[0])
            elif node.op == "mul":
                one, other = node.args
                stack += [x for x, factor in ((one, other), (other, one)) if factor in self.varied]
            elif node.op not in LINEAR:
                stack += node.args
        while stack:
            x = stack.pop()
            if x.__class__ is not Node or x in wanted or x.region not in inside:
                continue
            wanted.add(x)
            if x.op == "output" and x.region is region and self._is_worth_keeping(x.args[0]):
                made.append(x)
                continue
            owner = (
                self.needed.owner.get(x.region) if x.op == "parameter" and x.region is not region else None
            )
            if x.op == "output" and x.args[0].op == "loop":
                loop = x.args[0]
                stack += [loop.args[x.data], loop.data.results[x.data], loop.data.condition]
            elif x.op == "output" and x.args[0].op == "branch":
                stack += [results[x.data] for results in x.args[0].data.results]
                stack.append(x.args[0].args[0])
            elif owner is not None:
                k = x.data if owner.op == "loop" else 1 + x.data
                stack.append(owner.args[k])
                if owner.op == "loop":
                    stack.append(owner.data.results[x.data])
            else:
                stack += x.args
        made.sort(key=lambda x: x.number)
        return wanted

    def _find_worth_keeping(self, control: Node) -> bool:
        """Whether what it gives is kept, so that it is not run again."""
        outs = self.needed.outputs[control]
        if any(x.size == GROWING for x in outs):
            return False
        if control.op == "loop":
            # A short loop that fills an array is run again in no more time than it is copied.
            entries = sum(map(_entries, outs))
            short = any(x.size is not None for x in outs) and self._weight(control) < entries
            return not short and not self._is_active(control)
        if any(x.size is not None for x in outs):
            return False
        return control.op == "call" and control.data.size > _WORTH_KEEPING * len(outs)

    def _weight(self, loop: Node) -> int:
        """How many operations a pass of a loop is written in."""
        return sum(len(self.needed.of(x)) for x in self._inside(loop.data.region))

    def _inside(self, region: Region) -> list[Region]:
        """A region and those within it."""
        found = [region]
        for node in self.needed.of(region):
            inner = (
                [node.data.region] if node.op == "loop" else node.data.regions if node.op == "branch" else ()
            )
            for x in inner:
                found += self._inside(x)
        return found

    def _write(self, tape: Any, start: Operand, p: Node, value: Any) -> Any:
        """A tape with a value written from a place on."""
        b = self.b
        if p.size is None:
            return b.store(tape, start, value)
        if p.size <= _SNAPSHOT_BY_LOOP:
            for i in range(p.size):
                tape = b.store(tape, start + i, b.load(value, i))
            return tape
        return tabulate(b, (p.size,), p.type, lambda i: b.load(value, i), into=(tape, start)).node

    def _read(self, tape: Any, start: Operand, p: Node) -> Any:
        """What was written to a tape from a place on."""
        b = self.b
        if p.size is None:
            return b.load(tape, start)
        if p.size <= _SNAPSHOT_BY_LOOP:
            return b.pack([b.load(tape, start + i) for i in range(p.size)], p.type)
        return tabulate(b, (p.size,), p.type, lambda i: b.load(tape, start + i)).node

    # --- and back

    def give(self, x: Any, change: Any) -> None:
        """Adds to the cotangent of an operand."""
        if x.__class__ is not Node or x not in self.varied or (is_number(change) and change == 0):
            return
        if x not in self.cotangents:
            self.cotangents[x] = change
        elif x.size is None:
            self.cotangents[x] = self.b.add(self.cotangents[x], change, x.type)
        else:
            self.cotangents[x] = self._sum(x, self.cotangents[x], change)

    def _sum(self, x: Node, u: Any, v: Any) -> Any:
        """The sum of two arrays."""
        b, size, t = self.b, x.size, x.type
        if size == GROWING:
            raise refusal("a tape of a loop is used in two ways")
        if v.op == "fill" and v.args[0] == 0:
            return u
        if u.op == "fill" and u.args[0] == 0:
            return v
        add = lambda i, array: [b.store(array, i, b.add(b.load(array, i), b.load(v, i), t))]
        return b.count_up(size, [u], [(t, size)], add)[0]

    def array_cotangent(self, x: Node) -> Any:
        """The cotangent of an array as it is so far."""
        return self.cotangents.get(x) or self.b.zeros_like(self.get(x))

    def back(self, nodes: Sequence[Node]) -> None:
        """Pulls the cotangents of nodes back to their operands, from the last to the first."""
        for node in reversed(nodes):
            if node.op == "loop":
                self._loop_back(node)
            elif node.op == "branch":
                self._branch_back(node)
            elif node.op == "call":
                self._call_back(node)
            elif node in self.cotangents and node in self.varied:
                self._node_back(node, nodes)

    def _node_back(self, node: Node, nodes: Sequence[Node]) -> None:
        b, op, t = self.b, node.op, node.type
        if op == "rule":
            return self._rule_back(node, nodes)
        change = self.cotangents.pop(node)
        args = [self.get(x) for x in node.args]
        if op == "load":
            array = node.args[0]
            so_far = self.array_cotangent(array)
            self.cotangents[array] = b.store(so_far, args[1], b.add(b.load(so_far, args[1]), change, t))
        elif op == "store":
            array, _, value = node.args
            self.give(value, b.load(change, args[1]))
            self.give(array, b.store(change, args[1], 0.0))
        elif op == "pack":
            for i, x in enumerate(node.args):
                self.give(x, b.load(change, i))
        elif op == "fill":
            self.give(node.args[0], b.total([b.load(change, i) for i in range(node.size or 0)], t))
        elif op == "convert":
            self.give(node.args[0], b.convert(change, t, node.data))
        elif op == "select":
            self.give(node.args[1], b.select(args[0], change, 0.0, t))
            self.give(node.args[2], b.select(args[0], 0.0, change, t))
        elif op == "refuse":
            raise refusal(node.data[0])
        else:
            partials = find_partials(b, node, args, self.values.get(node, node))
            for x, slope in zip(node.args, partials, strict=True):
                if slope is not None:
                    self.give(x, b.mul(slope, change, t))
        return None

    def _rule_back(self, node: Node, nodes: Sequence[Node]) -> None:
        """By the transpose of its author's changes, which are linear in those of the inputs."""
        rule, inputs = node.data[0], node.args[1:]
        group = [
            x
            for x in nodes
            if x.op == "rule" and x.data[0] is rule and x.args[1:] == inputs and x in self.cotangents
        ]
        changes = {x.data[1:]: self.cotangents.pop(x) for x in group}
        arrays, varied, start = [], [], 0
        for i, aval in enumerate(rule.inputs):
            entries = inputs[start : start + aval.size]
            arrays.append(fill_array(aval.shape, [self.get(x) for x in entries]))
            if any(x.__class__ is Node and x in self.varied for x in entries):
                varied.append(i)
            start += aval.size
        closed, real = pull_back_by_rule(rule, tuple(varied))
        given = [fill_array(v.shape, [changes.get((k, i), 0.0) for i in range(v.size)]) for k, v in real]
        interpreter = Interpreter(self.b)
        found = iter(interpreter.closed(closed, [*arrays, *given]))
        start = 0
        for i, aval in enumerate(rule.inputs):
            if i in varied:
                for x, change in zip(
                    inputs[start : start + aval.size],
                    to_scalars(self.b, next(found)).reshape(-1),
                    strict=True,
                ):
                    self.give(x, change)
            start += aval.size

    def _captured(self, node: Node) -> list[Node]:
        """What a loop uses of what stands around it and varies."""
        regions = set(self._inside(node.data.region))
        found: dict[Node, None] = {}
        for region in regions:
            for x in self.needed.of(region):
                operands = list(x.args)
                if x.op == "loop":
                    operands = [x.args[k] for k in self.needed.carried(x)] + [
                        x.data.results[k] for k in self.needed.carried(x)
                    ]
                for y in operands:
                    if y.__class__ is Node and y.region not in regions and y in self.varied:
                        found[y] = None
        for k in self.needed.carried(node):
            y = node.data.results[k]
            if y.__class__ is Node and y.region not in regions and y in self.varied:
                found[y] = None
        return list(found)

    def _loop_back(self, node: Node) -> None:
        body = node.data
        outs = [x for x in self.needed.outputs.get(node, ()) if x in self.cotangents]
        if not outs:
            return
        moving = [k for k in self.needed.carried(node) if body.region.params[k] in self.varied]
        params = [body.region.params[k] for k in moving]
        captured, kept = self._captured(node), self._kept(node)
        count, tapes = self.tapes[node]
        by_kind = dict(zip(self._kinds(node), tapes, strict=True))
        ends = {x.data: self.cotangents.pop(x) for x in outs}
        zero_of = lambda p, x: 0.0 if p.size is None else self.b.zeros_like(x)
        final = {x.data: self.values[x] for x in self.needed.outputs.get(node, ())}
        first: list[Operand] = [count]
        for k, p in zip(moving, params, strict=True):
            first.append(ends[k] if k in ends else zero_of(p, final.get(k, self.get(node.args[k]))))
        first += [self.cotangents[x] if x in self.cotangents else zero_of(x, self.get(x)) for x in captured]
        types = [("int64", None), *((p.type, p.size) for p in params), *((x.type, x.size) for x in captured)]
        around, outside, restored = self.values, self.cotangents, self.restored

        def step(carried: Sequence[Operand]) -> Any:
            left = carried[0]

            def advance() -> list[Operand]:
                b = self.b
                last = b.sub(left, 1, "int64")
                place = b.apply("max", "int64", last, 0)
                self.values = dict(around)
                read = {p: self._read(by_kind[p.type], self._place(node, place, p), p) for p in kept.all}
                self.values.update((p, read[p]) for p in kept.carried)
                self.restored = restored | {p: read[p] for p in kept.made}
                if kept.moves is not None:
                    self.restored[kept.moves] = True
                for p in (body.region.params[k] for k in self.needed.carried(node)):
                    if p in read:
                        continue
                    if p.size is None:  # which no pass reads
                        self.values[p] = zero(p.type)
                    else:
                        self.values[p] = b.tape(p.type) if p.size == GROWING else b.absent(p.type, p.size)
                self.nodes(self.needed.of(body.region))
                self.cotangents = dict(zip(captured, carried[1 + len(moving) :], strict=True))
                for k, change in zip(moving, carried[1:], strict=False):
                    result = body.results[k]
                    self.give(result, change)
                self.back(self.needed.of(body.region))
                pulled = [self.cotangents.get(p) for p in params]
                pulled = [
                    zero_of(p, self.values[p]) if x is None else x
                    for x, p in zip(pulled, params, strict=True)
                ]
                return [last, *pulled, *(self.cotangents[x] for x in captured)]

            return self.b.compare("gt", left, 0, "int64"), advance

        made = self.b.loop(first, types, step)
        self.values, self.cotangents, self.restored = around, outside, restored
        self.cotangents.update(zip(captured, made[1 + len(moving) :], strict=True))
        for k, change in zip(moving, made[1:], strict=False):
            self.give(node.args[k], change)

    def _call_back(self, node: Node) -> None:
        outs = [x for x in self.needed.outputs.get(node, ()) if x in self.cotangents]
        if not outs:
            return
        outs.sort(key=lambda x: x.data)
        varied = find_varied_parameters(node, self.varied)
        callee = _pull_callee_back(node.data, varied, tuple(x.data for x in outs))
        given = [*map(self.get, node.args), *(self.cotangents.pop(x) for x in outs)]
        changes = iter(self.b.call(callee, given))
        for x in (node.args[i] for i in varied):
            one = x.size is None
            self.give(
                x, next(changes) if one else self.b.pack(list(itertools.islice(changes, x.size)), x.type)
            )

    def _branch_back(self, node: Node) -> None:
        body = node.data
        outs = [x for x in self.needed.outputs.get(node, ()) if x in self.cotangents]
        if not outs:
            return
        moving = [i for i in self.needed.given(node) if node.args[1 + i] in self.varied]
        around, outside = self.values, self.cotangents
        self.values = dict(around)
        params = [body.regions[0].params[i] for i in moving]
        extra: list[Extra] = [(self.cotangents.pop(x), (x.type, x.size)) for x in outs]

        def within(side: int, more: Sequence[Operand]) -> Any:
            def finish() -> list[Operand]:
                self.cotangents = {}
                for x, change in zip(outs, more, strict=True):
                    self.give(body.results[side][x.data], change)
                self.back(self.needed.of(body.regions[side]))
                found = []
                for i in moving:
                    p = body.regions[side].params[i]
                    none = 0.0 if p.size is None else self.b.zeros_like(self.values[p])
                    found.append(self.cotangents.get(p, none))
                return found

            return finish

        found = self._branch(node, extra, [(p.type, p.size) for p in params], within, values=False)
        self.values, self.cotangents = around, outside
        for i, change in zip(moving, found, strict=True):
            self.give(node.args[1 + i], change)


def _entries_of(b: Builder, array: Node) -> Any:
    """The entries of an array, whose memory then vanishes; a long one as it is."""
    large = (array.size or 0) > LONG
    return array if large else tuple(b.load(array, i) for i in range(array.size or 0))


def _all_of(condition: Any) -> list[Any]:
    """The conditions that hold wherever one does."""
    if condition.__class__ is Node and condition.op == "and":
        return [y for x in condition.args for y in _all_of(x)]
    return [condition]


def _entries(p: Node) -> int:
    return 1 if p.size is None else p.size


def _run_back(
    needed: LiveNodes,
    params: Sequence[Node],
    varied: Sequence[int],
    outputs: Sequence[Any],
    cotangents: Callable[[Builder], Iterable[tuple[Any, Any]]],
) -> tuple[Builder, list[Any]]:
    """The cotangents of parameters varied, from all parameters and those of outputs, each with its output."""
    build, seeds = Builder(), [params[i] for i in varied]
    values = {p: build.parameter(build.top, p.type, p.size) for p in params}
    maker = _Reverse(build, needed, values, find_active(needed, set(seeds), outputs))
    maker.nodes(needed.outermost)
    for x, change in cotangents(build):
        maker.give(x, change)
    maker.back(needed.outermost)
    return build, [
        maker.cotangents.get(p, 0.0) if p.size is None else maker.array_cotangent(p) for p in seeds
    ]


def _pull_callee_back(callee: Subprogram, varied: tuple[int, ...], results: tuple[int, ...]) -> Subprogram:
    """A sub-program of cotangents of parameters varied, those of arrays entry by entry, from all parameters and the
    cotangents of some results."""
    key = "backward", varied, results
    if key not in callee.derivatives:
        outs = [callee.results[k] for k in results]
        build, found = _run_back(
            callee.needed(results),
            callee.region.params,
            varied,
            outs,
            lambda build: [(x, build.parameter(build.top, x.type)) for x in outs],
        )
        changes = list[Operand]()
        for i, x in zip(varied, found, strict=True):
            size = callee.region.params[i].size
            changes += [x] if size is None else [build.load(x, k) for k in range(size)]
        callee.derivatives[key] = Subprogram(build.top, changes)
    return callee.derivatives[key]


def pull_back(program: Any, varied: Sequence[int]) -> tuple[Region, list[Any]]:
    """What a program of cotangents of operands varied consists of: it takes all operands, and those of real results."""

    def cotangents(build: Builder) -> Iterator[tuple[Any, Any]]:
        given = [build.parameter(build.top, *program.results[k]) for k in program.real_results]
        for change, k in zip(given, program.real_results, strict=True):
            out = program.outputs[k]
            if isinstance(out, Node):
                yield out, change
            else:
                yield from ((x, build.load(change, i)) for i, x in enumerate(out))

    build, found = _run_back(LiveNodes(program.flat), program.params, varied, program.flat, cotangents)
    return build.top, [_entries_of(build, x) for x in found]
