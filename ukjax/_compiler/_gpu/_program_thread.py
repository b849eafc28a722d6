"""One member of a program as a function of LLVM: what a thread of a GPU computes."""

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from .._expressions import Expression, reachable
from .._llvm_text import Writer
from .._machine_code import Kind, functions
from .._routine import Again
from ._memory import Called, LocalArray
from ._texts import KernelText, parameters


@final
class ProgramThread:
    """One member of a program; its results are the outputs (outputs, members).

    **Arguments:**

    - `outputs`: of the program.
    - `counts`: how many inputs each operand holds.
    - `dtype`: of all.
    - `again`: how it is run again, if it is; the last operand is then the kernel's own.
    """

    def __init__(
        self, outputs: Sequence[Expression], counts: Sequence[int], dtype: Any, again: Again | None = None
    ):
        self._outputs, self._counts, self._kind = outputs, counts, Kind(np.dtype(dtype).name, 1)
        self._again = again

    def called(self) -> dict[str, int] | None:
        """The functions of C that it calls; None where there are operations that are not known."""
        return functions(reachable(self._outputs), self._kind)

    def text(self) -> KernelText:
        """All of it."""
        w, kind, again = Writer(), self._kind, self._again
        # What the kernel itself gives, where it is run again, comes last.
        counts = self._counts if again is None else self._counts[:-1]
        called = Called("program", self._outputs, kind, counts[0])
        given, found = (
            LocalArray(w, kind, "given", sum(self._counts[1:])),
            LocalArray(w, kind, "found", len(self._outputs)),
        )
        self._fill(w, given, counts)
        where = w, "%own0", "%apart0"
        if again is None:
            called.run(*where, given.name, found.name)
        else:
            w.do("%calls = alloca i64")
            called.repeat(*where, given, found, "%calls", again)
        for i, x in enumerate(found.all(0, len(self._outputs))):
            row = w.apply("add", "i64", w.apply("mul", "i64", "%members", i), "%run")
            w.store(kind.number, x, w.at(kind.number, "%out0", row))
        text = KernelText("", self.called() or (), ("members",), len(counts), 1)
        function = w.function("run", parameters(text), written_out=True)
        return text._replace(functions="\n".join([called.text(), function, "!0 = !{}"]))

    def _fill(self, w: Writer, given: LocalArray, counts: Sequence[int]) -> None:
        """Takes the numbers of a member, but for those of the first operand."""
        number = self._kind.number
        for k in range(len(counts)):
            shared = w.apply("icmp eq", "i64", f"%apart{k}", 1)
            w.do(f"%first{k} = select i1 {shared}, i64 0, i64 %run")
            w.do(f"%own{k} = getelementptr {number}, ptr %in{k}, i64 %first{k}")
        rows = [(k, row) for k, count in enumerate(counts) if k for row in range(count)]
        for i, (k, row) in enumerate(rows):
            given.store(i, w.load(number, w.at(number, f"%own{k}", w.apply("mul", "i64", f"%apart{k}", row))))
