"""What a thread works on: arrays of its own, and programs that read and set them.

Wherever an entry is chosen by a number known to the text, LLVM keeps it in a register; other arrays are a thread's local
memory.
"""

from collections.abc import Iterable, Sequence
from typing import final

from .._expressions import Expression
from .._llvm_text import Writer
from .._machine_code import Body, Kind, functions

TABLES = 4
"""The address space of constants: on a GPU memory of its own, on a host like any other."""


@final
class Local:
    """An array of numbers.

    **Arguments:**

    - `w`: writes the function that has it.
    - `kind`: of its numbers.
    - `name`: of the array.
    - `size`: how many.
    """

    def __init__(self, w: Writer, kind: Kind, name: str, size: int):
        self._w, self._kind, self.name = w, kind, f"%{name}"
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

    **Arguments:**

    - `name`: of the function.
    - `outputs`: of the program.
    - `kind`: of the numbers.
    - `parameters`: how many of its inputs, the first ones, stand in the device's memory, those of all runs side by side.
    """

    def __init__(self, name: str, outputs: Sequence[Expression], kind: Kind, parameters: int):
        self._name, self._outputs, self._kind, self.parameters = name, outputs, kind, parameters

    def text(self) -> str:
        """The function."""
        w, number, count = Writer(), self._kind.number, self.parameters

        def load(body: Body, i: int) -> str:
            if i >= count:
                return body(f"load {number}, ptr {body(f'getelementptr {number}, ptr %in, i64 {i - count}')}")
            row = body(f"mul i64 %apart, {i}")
            place = body(f"getelementptr {number}, ptr %numbers, i64 {row}")
            return body(f"load {number}, ptr {place}, !invariant.load !0")

        def store(body: Body, i: int, value: str) -> None:
            place = body(f"getelementptr {number}, ptr %out, i64 {i}")
            body.lines.append(f"  store {number} {value}, ptr {place}")

        body = Body(self._kind, load)
        body.compute(self._outputs, store)
        w.lines += body.lines
        return w.function(self._name, "ptr %numbers, i64 %apart, ptr %in, ptr %out", written_out=True)

    def run(self, w: Writer, numbers: str, apart: str, inputs: str, to: str) -> None:
        """Computes its outputs.

        **Arguments:**

        - `w`: writes it.
        - `numbers`, `apart`: where the first parameter of the run is, and how far from one to the next.
        - `inputs`, `to`: where the other inputs are, and where the outputs go.
        """
        w.do(f"call void @{self._name}(ptr {numbers}, i64 {apart}, ptr {inputs}, ptr {to})")

    def called(self) -> dict[str, int]:
        """The functions of C that it calls, with how many operands each."""
        return functions(self._outputs, self._kind) or {}


def table(name: str, kind: Kind, values: Iterable[float]) -> str:
    """A constant array of numbers."""
    listed = [f"{kind.number} {kind.literal(x)}" for x in values]
    array = f"[{len(listed)} x {kind.number}] [{', '.join(listed)}]"
    return f"@{name} = internal addrspace({TABLES}) constant {array}"


def entry(w: Writer, kind: Kind, name: str, i: str) -> str:
    """An entry of a constant array."""
    place = w(f"getelementptr {kind.number}, ptr addrspace({TABLES}) @{name}, i64 {i}")
    return w(f"load {kind.number}, ptr addrspace({TABLES}) {place}")
