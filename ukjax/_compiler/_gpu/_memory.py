"""What a thread works on: arrays of its own, and programs that read and set them.

Wherever an entry is chosen by a number known to the text, LLVM keeps it in a register; other arrays are a thread's local
memory.
"""

import math
from collections.abc import Sequence
from typing import final

from .._expressions import Expression, reachable, weight
from .._llvm_text import Writer
from .._machine_code import Instructions, Kind, functions
from .._registers import Part, parts
from .._routine import MOST_CALLS, Again

# By weight. NVIDIA's assembler takes 5 s or less for programs as long as `_WHOLE`, and a minute for one of 30,000
# operations, which in pieces of half to all of `_PIECE` takes 4 s and spills a tenth. Calls save registers: shorter ones
# are 10 to 40 % faster as a whole (benchmarks/gpu_static.py).
_WHOLE, _PIECE = 8_000, 1_500


@final
class LocalArray:
    """An array of numbers.

    **Arguments:**

    - `w`: writes the function that has it.
    - `kind`: of its numbers.
    - `name`: of the array.
    - `size`: how many.
    """

    def __init__(self, w: Writer, kind: Kind, name: str, size: int):
        self._w, self._kind, self.name, self.size = w, kind, f"%{name}", size
        w.do(f"{self.name} = alloca [{max(size, 1)} x {kind.number}]")

    def place(self, i: int | str) -> str:
        """Where an entry is."""
        return self._w.at(self._kind.number, self.name, i)

    def load(self, i: int | str) -> str:
        """An entry."""
        return self._w.load(self._kind.number, self.place(i))

    def store(self, i: int | str, value: str | float) -> None:
        """Sets an entry."""
        value = value if isinstance(value, str) else self._kind.literal(value)
        self._w.store(self._kind.number, value, self.place(i))

    def all(self, first: int, count: int) -> list[str]:
        """So many entries."""
        return [self.load(first + i) for i in range(count)]

    def fill(self, first: int, values: Sequence[str | float]) -> None:
        """Sets entries from one on."""
        for i, x in enumerate(values):
            self.store(first + i, x)


@final
class Called:
    """A program as a function of an array of a thread, and another for its outputs.

    A long one calls functions of its own, one after the other: a GPU's assembler takes more than in proportion to what it
    compiles as one, and finds registers for less of it. What they pass on stands in a further array.

    **Arguments:**

    - `name`: of the function.
    - `outputs`: of the program.
    - `kind`: of the numbers.
    - `parameters`: how many of its inputs, the first ones, stand in the device's memory, those of all runs side by side.
    """

    def __init__(self, name: str, outputs: Sequence[Expression], kind: Kind, parameters: int):
        self._name, self._outputs, self._kind, self.parameters = name, outputs, kind, parameters
        self._inputs = 1 + max((x.args[0] for x in reachable(outputs) if x.op == "input"), default=-1)
        is_long = sum(map(weight, reachable(outputs))) > _WHOLE
        self._parts = parts(outputs, self._inputs, longest=_PIECE if is_long else math.inf)

    def _number(self, w: Writer, register: int) -> str:
        """What stands in one of the registers of `_registers`: a constant, an input, or what was passed on."""
        number, i = self._kind.number, register - len(self._parts.constants)
        if i < 0:
            return self._kind.literal(self._parts.constants[register])
        if i < self.parameters:
            place = w.at(number, "%numbers", w.apply("mul", "i64", "%apart", i))
            return w.load(number, place, ", !invariant.load !0")
        array, first = ("%in", self.parameters) if i < self._inputs else ("%kept", self._inputs)
        return w.load(number, w.at(number, array, i - first))

    def text(self) -> str:
        """The function, and those that it calls."""
        w, number, given = Writer(), self._kind.number, "ptr %numbers, i64 %apart, ptr %in, ptr"
        found, first = self._parts, len(self._parts.constants) + self._inputs
        kept, texts = LocalArray(w, self._kind, "kept", found.size - first), []
        for i, part in enumerate(found.parts):
            texts.append(self._part(f"{self._name}.{i}", part, first, f"{given} %kept"))
            w.do(f"call void @{self._name}.{i}({given} {kept.name})")
        for i, register in enumerate(found.outputs):
            w.store(number, self._number(w, register), w.at(number, "%out", i))
        return "\n".join([*texts, w.function(self._name, f"{given} %out", written_out=True)])

    def _part(self, name: str, part: Part, first: int, given: str) -> str:
        """One of them; `first` is the register that the array begins with."""
        w, number = Writer(), self._kind.number
        body = Instructions(w, self._kind, lambda i: self._number(w, int(part.reads[0, i])))
        kept = lambda i: w.at(number, "%kept", part.writes + i - first)
        body.compute(part.outputs, lambda i, value: w.store(number, value, kept(i)))
        return w.function(name, given, written_out=len(self._parts.parts) == 1)

    def run(self, w: Writer, numbers: str, apart: str, inputs: str, to: str) -> None:
        """Computes its outputs.

        **Arguments:**

        - `w`: writes it.
        - `numbers`, `apart`: where the first parameter of the run is, and how far from one to the next.
        - `inputs`, `to`: where the other inputs are, and where the outputs go.
        """
        w.do(f"call void @{self._name}(ptr {numbers}, i64 {apart}, ptr {inputs}, ptr {to})")

    def repeat(
        self,
        w: Writer,
        numbers: str,
        apart: str,
        given: LocalArray,
        found: LocalArray,
        calls: str,
        again: Again,
    ) -> None:
        """Computes its outputs until a flag among them is down, or it was run often enough.

        **Arguments:** as of `run`, and:

        - `given`, `found`: the arrays of inputs and outputs. What it is given again comes last, and is zero at first.
        - `calls`: the place of an integer, to count in.
        - `again`: how it is run again.
        """
        last = given.size - again.size
        given.fill(last, [0.0] * again.size)
        w.store("i64", 0, calls)
        with w.repeat() as going:
            self.run(w, numbers, apart, given.name, found.name)
            given.fill(last, found.all(again.first, again.size))
            few = w.apply("icmp ult", "i64", w.increased(calls), MOST_CALLS)
            flag = w.apply("fcmp ogt", self._kind.number, found.load(again.flag), self._kind.literal(0.5))
            going.append(w.apply("and", "i1", few, flag))

    def called(self) -> dict[str, int]:
        """The functions of C that it calls, with how many operands each."""
        return functions(reachable(self._outputs), self._kind) or {}
