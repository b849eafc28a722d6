"""Programs that others call."""

import functools
from collections.abc import Sequence
from typing import Any, final

from ._builder import Builder
from ._live_nodes import LiveNodes
from ._nodes import Node, Operand, Region, is_number, name_number
from ._rebuild import Rebuilder

WORTH_OWN_CODE = 0.8
"""Of the operations: where some inputs are known and fewer are left, a copy is made for them."""


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
        self._for_numbers = dict[Any, Subprogram | None]()
        self._needed = dict[Any, LiveNodes]()

    def needed(self, results: tuple[int, ...] | None = None, values: bool = False) -> "LiveNodes":
        """What some results need of it; all by default."""
        if results == tuple(range(len(self.results))):
            results = None
        key = results, values and self._is_more_than_values
        if key not in self._needed:
            chosen = self.results if results is None else [self.results[k] for k in results]
            self._needed[key] = LiveNodes(chosen, key[1])
        return self._needed[key]

    @functools.cached_property
    def _is_more_than_values(self) -> bool:
        """Whether its values need less than it, or are computed elsewhere."""
        return any(x.op in ("rule", "attached", "loop") for x in self.needed().nodes)

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

    def for_numbers(self, args: Sequence[Operand]) -> "Subprogram | None":
        """What computes its results from those of its arguments that are no numbers; None where it is hardly shorter."""
        known = tuple(name_number(x) if is_number(x) else None for x in args)
        if known not in self._for_numbers:
            self._for_numbers[known] = self._specialize(args)
        return self._for_numbers[known]

    def _specialize(self, args: Sequence[Operand]) -> "Subprogram | None":
        build = Builder()
        given = [
            x if is_number(x) else build.parameter(build.top, p.type, p.size)
            for x, p in zip(args, self.region.params, strict=True)
        ]
        rebuilt = Rebuilder(build, self.needed(), dict(zip(self.region.params, given, strict=True)))
        rebuilt.nodes(self.needed().outermost)
        special = Subprogram(build.top, list(map(rebuilt.get, self.results)))
        return special if special.size < WORTH_OWN_CODE * self.size else None

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
        # What is attached has a derivative that is only right together with those of others.
        late = {params[i] for i in varied}
        for x in nodes:
            if x.op == "attached" or not late.isdisjoint(x.args):
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
