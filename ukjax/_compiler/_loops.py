"""LLVM functions written as Python expressions, with loops over arrays whose sizes are known only when they run.

Scalar programs (`_program`) are written out operation by operation. Where sizes are large, or change from call to call,
loops take their place:

    f = Function("float64")
    with f.loop(count) as i:
        x[i] = a * x[i] + y[i]
"""

import contextlib
from collections.abc import Iterator
from typing import Any, final

from ._llvm_text import Writer
from ._machine_code import Kind

# Products may be part of sums: fused operations. Of sums of products, `dot`, the order is free as well.
_OF_NUMBERS = {"add": "fadd contract", "sub": "fsub contract", "mul": "fmul contract", "div": "fdiv"}
_SUM = "fadd reassoc contract nsz"
_COMPARED = {"lt": ("fcmp olt", "icmp slt"), "le": ("fcmp ole", "icmp sle"), "gt": ("fcmp ogt", "icmp sgt")}


@final
class Value:
    """A number, an integer or a truth of a function.

    - `kind`: its LLVM type.
    - `name`: what it is called there, or a literal.
    """

    def __init__(self, f: "Function", kind: str, name: str):
        self._f, self.kind, self.name = f, kind, name

    def _with(self, op: str, other: Any, *, turned: bool = False) -> "Value":
        f, x, y = self._f, self, self._f.value(other, self.kind)
        x, y = (y, x) if turned else (x, y)
        name = _OF_NUMBERS[op] if self.kind == f.number else op
        return Value(f, self.kind, f.w.apply(name, self.kind, x.name, y.name))

    def _compared(self, op: str, other: Any) -> "Value":
        f, y = self._f, self._f.value(other, self.kind)
        name = _COMPARED[op][self.kind != f.number]
        return Value(f, "i1", f.w.apply(name, self.kind, self.name, y.name))

    def __add__(self, other: Any) -> "Value":
        return self._with("add", other)

    def __radd__(self, other: Any) -> "Value":
        return self._with("add", other, turned=True)

    def __sub__(self, other: Any) -> "Value":
        return self._with("sub", other)

    def __rsub__(self, other: Any) -> "Value":
        return self._with("sub", other, turned=True)

    def __mul__(self, other: Any) -> "Value":
        return self._with("mul", other)

    def __rmul__(self, other: Any) -> "Value":
        return self._with("mul", other, turned=True)

    def __truediv__(self, other: Any) -> "Value":
        return self._with("div", other)

    def __rtruediv__(self, other: Any) -> "Value":
        return self._with("div", other, turned=True)

    def __lt__(self, other: Any) -> "Value":
        return self._compared("lt", other)

    def __le__(self, other: Any) -> "Value":
        return self._compared("le", other)

    def __gt__(self, other: Any) -> "Value":
        return self._compared("gt", other)

    def __floordiv__(self, other: int) -> "Value":
        return self._with("udiv", other)

    def equals(self, other: "Value") -> "Value":
        """Whether two integers are equal."""
        return Value(self._f, "i1", self._f.w.apply("icmp eq", self.kind, self.name, other.name))

    def __and__(self, other: "Value") -> "Value":
        return self._with("and", other)

    def __or__(self, other: "Value") -> "Value":
        return self._with("or", other)

    def __invert__(self) -> "Value":
        return Value(self._f, "i1", self._f.w.apply("xor", "i1", self.name, "true"))


@final
class ArrayPlace:
    """An array of a function, from some entry on.

    - `kind`: the LLVM type of its entries.
    - `name`: the pointer to it.
    """

    def __init__(self, f: "Function", kind: str, name: str):
        self._f, self.kind, self.name = f, kind, name

    def at(self, i: Any) -> "ArrayPlace":
        """The array from entry i on."""
        return ArrayPlace(
            self._f, self.kind, self._f.w.at(self.kind, self.name, self._f.value(i, "i64").name)
        )

    def __getitem__(self, i: Any) -> Value:
        return Value(self._f, self.kind, self._f.w.load(self.kind, self.at(i).name))

    def __setitem__(self, i: Any, value: Any) -> None:
        self._f.w.store(self.kind, self._f.value(value, self.kind).name, self.at(i).name)


@final
class Spread:
    """The numbers of one member, each of which stands in a row of a block; read as a `ArrayPlace` is.

    **Arguments:**

    - `row`: that of the member, in the first row of the block.
    - `width`: of rows.
    - `which`: the row of each number, where they do not follow each other.
    """

    def __init__(self, row: ArrayPlace, width: int, which: ArrayPlace | None = None):
        self._row, self._width, self._which = row, width, which

    def at(self, i: Any) -> "Spread":
        """The numbers from one on."""
        if self._which is None:
            return Spread(self._row.at(i * self._width), self._width)
        return Spread(self._row, self._width, self._which.at(i))

    def __getitem__(self, i: Any) -> Value:
        row = i if self._which is None else self._which[i]
        return self._row[row * self._width]


@final
class Function:
    """A function that is being written.

    - `number`: the LLVM type of its numbers.

    **Arguments:**

    - `dtype`: of its numbers, "float64" or "float32".
    """

    def __init__(self, dtype: str):
        self._kind, self.w = Kind(dtype, 1), Writer()
        self.number, self.bytes = self._kind.number, self._kind.bytes

    def value(self, x: Any, kind: str | None = None) -> Value:
        """A number, integer or truth of Python, or one of the function's own, as such."""
        if isinstance(x, Value):
            return x
        kind = self.number if kind is None else kind
        return Value(self, kind, self._kind.literal(x) if kind == self.number else str(x).lower())

    def given(self, name: str, kind: str | None = None) -> ArrayPlace:
        """An array that is one of the parameters."""
        return ArrayPlace(self, kind or self.number, name)

    def variable(self, start: Any = 0.0, kind: str | None = None) -> ArrayPlace:
        """What holds one value, at entry 0, which may be set again."""
        place = self.several(1, kind)
        place[0] = start
        return place

    def several(self, count: int, kind: str | None = None) -> ArrayPlace:
        """A few values on the stack."""
        kind, name = kind or self.number, f"%own{len(self.w.lines)}"
        self.w.lines.insert(1, f"  {name} = alloca [{count} x {kind}], align 64")
        return ArrayPlace(self, kind, name)

    @contextlib.contextmanager
    def loop(self, count: Any) -> Iterator[Value]:
        """The body of a loop; yields what counts up from zero."""
        with self.w.loop(self.value(count, "i64").name) as k:
            yield Value(self, "i64", k)

    @contextlib.contextmanager
    def when(self, truth: Value) -> Iterator[None]:
        """What is done where something is true."""
        with self.w.when(truth.name):
            yield

    @contextlib.contextmanager
    def repeat(self) -> Iterator[list[str]]:
        """What is done at least once; the body appends the name of the truth that it is to be done again."""
        with self.w.repeat() as again:
            yield again

    def where(self, truth: Value, x: Any, y: Any) -> Value:
        """One of two."""
        kind = next((z.kind for z in (x, y) if isinstance(z, Value)), self.number)
        a, b = self.value(x, kind).name, self.value(y, kind).name
        return Value(self, kind, self.w(f"select i1 {truth.name}, {kind} {a}, {kind} {b}"))

    def _called(self, name: str, *given: Any) -> Value:
        parts = ", ".join(f"{self.number} {self.value(x).name}" for x in given)
        intrinsic = f"@llvm.{name}.f{8 * self.bytes}"
        return Value(self, self.number, self.w(f"call {self.number} {intrinsic}({parts})"))

    def sqrt(self, x: Value) -> Value:
        return self._called("sqrt", x)

    def abs(self, x: Value) -> Value:
        return self._called("fabs", x)

    def max(self, x: Value, y: Any) -> Value:
        return self._called("maximum", x, y)

    def min(self, x: Value, y: Any) -> Value:
        return self._called("minimum", x, y)

    def declared(self) -> str:
        """The declarations of what it calls."""
        n, bits = self.number, 8 * self.bytes
        of = {"sqrt": 1, "fabs": 1, "maximum": 2, "minimum": 2}
        return "\n".join(
            f"declare {n} @llvm.{name}.f{bits}({', '.join([n] * count)})" for name, count in of.items()
        )

    @property
    def eps(self) -> float:
        """The precision of its numbers."""
        return {8: 2.0**-52, 4: 2.0**-23}[self.bytes]

    def dot(self, x: ArrayPlace | Spread, y: ArrayPlace | Spread, count: Any) -> Value:
        """The sum of products."""
        total = self.variable()
        with self.loop(count) as i:
            total[0] = Value(
                self, self.number, self.w.apply(_SUM, self.number, total[0].name, (x[i] * y[i]).name)
            )
        return total[0]

    def add(self, x: ArrayPlace, factor: Value, y: ArrayPlace | Spread, count: Any) -> None:
        """Adds a multiple of y to x."""
        with self.loop(count) as i:
            x[i] = x[i] + factor * y[i]
