"""Writes the text of LLVM functions: instructions with names made up, loops and branches as `with` blocks."""

import contextlib
from collections.abc import Iterator
from typing import final


@final
class Writer:
    """The instructions of one function, in order."""

    def __init__(self) -> None:
        self.lines = ["entry:"]
        self._block, self._count = "entry", 0

    def __call__(self, instruction: str) -> str:
        """The name of an instruction's result."""
        self._count += 1
        self.lines.append(f"  %v{self._count} = {instruction}")
        return f"%v{self._count}"

    def do(self, instruction: str) -> None:
        """An instruction without a result."""
        self.lines.append(f"  {instruction}")

    def at(self, kind: str, base: str, index: str | int) -> str:
        """Where the entry of an array of a type is."""
        return self(f"getelementptr {kind}, ptr {base}, i64 {index}")

    def load(self, kind: str, place: str, aligned: str = "") -> str:
        """What stands at a place."""
        return self(f"load {kind}, ptr {place}{aligned}")

    def store(self, kind: str, value: str | int, place: str, aligned: str = "") -> None:
        """Sets what stands at a place."""
        self.do(f"store {kind} {value}, ptr {place}{aligned}")

    def apply(self, operation: str, kind: str, x: str | int, y: str | int) -> str:
        """An operation on two numbers of a type."""
        return self(f"{operation} {kind} {x}, {y}")

    def increased(self, place: str, by: int = 1) -> str:
        """An integer at a place, after it was increased there."""
        more = self.apply("add", "i64", self.load("i64", place), by)
        self.store("i64", more, place)
        return more

    def _blocks(self, *names: str) -> list[str]:
        self._count += 1
        return [f"{name}{self._count}" for name in names]

    def _begin(self, block: str) -> None:
        self.lines.append(f"{block}:")
        self._block = block

    @contextlib.contextmanager
    def loop(self, count: str | int) -> Iterator[str]:
        """The body of a loop; yields the name of what counts up from zero.

        **Arguments:**

        - `count`: how many passes, a number or a name; none for zero.
        """
        head, body, latch, after = self._blocks("head", "body", "latch", "after")
        before, k = self._block, f"%{head}.k"
        self.do(f"br label %{head}")
        self._begin(head)
        self.do(f"{k} = phi i64 [0, %{before}], [{k}.next, %{latch}]")
        self.do(f"br i1 {self(f'icmp ult i64 {k}, {count}')}, label %{body}, label %{after}")
        self._begin(body)
        yield k
        self.do(f"br label %{latch}")
        self._begin(latch)
        self.do(f"{k}.next = add i64 {k}, 1")
        self.do(f"br label %{head}")
        self._begin(after)

    @contextlib.contextmanager
    def when(self, condition: str) -> Iterator[None]:
        """What is done where a condition holds.

        **Arguments:**

        - `condition`: the name of a truth.
        """
        yes, after = self._blocks("yes", "after")
        self.do(f"br i1 {condition}, label %{yes}, label %{after}")
        self._begin(yes)
        yield
        self.do(f"br label %{after}")
        self._begin(after)

    @contextlib.contextmanager
    def repeat(self) -> Iterator[list[str]]:
        """What is done at least once; the body appends the name of the truth that it is to be done again."""
        head, after = self._blocks("again", "after")
        self.do(f"br label %{head}")
        self._begin(head)
        going: list[str] = []
        yield going
        self.do(f"br i1 {going[0]}, label %{head}, label %{after}")
        self._begin(after)

    def function(
        self,
        name: str,
        given: str,
        *,
        internal: bool = True,
        written_out: bool = False,
        returns: str = "void",
    ) -> str:
        """The text of the function.

        **Arguments:**

        - `name`: what it is called.
        - `given`: its parameters.
        - `internal`: whether only this module calls it.
        - `written_out`: whether it is to become part of what calls it.
        - `returns`: the type and the name of what it returns.
        """
        lines = "\n".join([*self.lines, f"  ret {returns}"])
        kind, how = "internal " if internal else "", "alwaysinline " if written_out else ""
        return f"define {kind}{returns.split()[0]} @{name}({given}) {how}{{\n{lines}\n}}"
