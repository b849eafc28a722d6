"""Programs of scalars as kernels of a GPU: each thread computes members, one after the other."""

import functools
from collections.abc import Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..._misc._garbage import collector_paused
from .._gpu._arithmetic import ENTRY, arithmetic
from .._gpu._call import call_kernel
from .._gpu._ptx import ptx, writes_ptx
from ._functions import definitions, is_known
from ._ir import Node
from ._llvm import ArrayOperand, write_function
from ._thread import WORD, GpuThread

# With 255 registers a thread, as many as the largest card holds at a time. Where each has memory, more would wait for it.
_MOST_THREADS = 1 << 15
_GROWING_BYTES = (
    1 << 32
)  # for what grows, of all threads; a card on which float64 is worth while has several times that
_MOST_WORDS = 1 << 23  # of it for one thread


@final
class Kernel:
    """A program for a GPU. See `write_function` for what it is made of."""

    @collector_paused()
    def __init__(
        self,
        outputs: Sequence[Any],
        operands: Sequence[ArrayOperand],
        results: Sequence[ArrayOperand],
        params: Sequence[Node],
    ):
        self._thread = GpuThread()
        self._operands, self._results = operands, results
        self._compute, self._called = write_function(outputs, operands, results, params, self._thread)

    @functools.cached_property
    def exists(self) -> bool:
        """Whether LLVM can write it: of functions that are known here."""
        return writes_ptx() and all(map(is_known, self._called))

    @functools.cached_property
    def ptx(self) -> str:
        """The kernel in PTX."""
        return ptx(self._text("gpu"))

    @property
    def host_text(self) -> str:
        """The same for this host: a function of the same parameters that runs one thread after the other."""
        return self._text("host")

    def _text(self, where: str) -> str:
        inputs = [f"%in{i}" for i in range(len(self._operands))]
        outputs = [f"%out{i}" for i in range(len(self._results))]
        written = [*outputs, *(["%memory"] if self._has_memory else [])]
        taken = ", ".join(
            [
                *(f"ptr noalias readonly {x}" for x in (*inputs, "%sizes")),
                *(f"ptr noalias {x}" for x in written),
            ]
        )
        sizes = "\n".join(
            f"""  %{name}.place = getelementptr i32, ptr %sizes, i64 {i}
  %{name}.short = load i32, ptr %{name}.place
  %{name} = zext i32 %{name}.short to i64"""
            for i, name in enumerate(("count", "threads", "words"))
        )
        memory = "%memory" if self._has_memory else "null"
        given = [f"i64 %thread, i64 %threads, i64 %words, ptr {memory}, i64 %count"]
        given += [f"ptr {x}" for x in (*outputs, *inputs)]
        frame = (_GPU if where == "gpu" else _HOST).format(
            entry=ENTRY, taken=taken, sizes=sizes, compute=f"call void @compute({', '.join(given)})"
        )
        compute = self._compute.replace("define void @compute(", "define internal void @compute(")
        return "\n".join([compute, definitions(self._called), arithmetic(where), frame])

    @property
    def _has_memory(self) -> bool:
        return self._thread.grows or self._thread.bytes > 0

    def sizes(self, members: int) -> tuple[int, int, int]:
        """For so many members, that number, how many threads, and how many words each has for growing arrays."""
        threads = min(members, _MOST_THREADS) if self._has_memory else members
        words = min(_GROWING_BYTES // WORD // threads, _MOST_WORDS) if self._thread.grows else 0
        return members, threads, words

    def shapes(self, members: int) -> list[Any]:
        """Of its results for so many members, and of the memory of all threads."""
        _, threads, words = self.sizes(members)
        shapes = [jax.ShapeDtypeStruct((x.size, members), np.dtype(x.type)) for x in self._results]
        room = threads * (self._thread.bytes + words * WORD)
        return [*shapes, *([jax.ShapeDtypeStruct((room,), np.uint8)] if self._has_memory else [])]

    def __call__(self, operands: Sequence[Array], members: int) -> list[Array]:
        """Its results, each (entries, members), of operands (entries, members), or (entries,) of those that all share."""
        sizes = self.sizes(members)
        given = [*operands, jnp.asarray(np.array(sizes, np.int32))]
        return call_kernel(self.ptx, given, self.shapes(members), sizes[1])[: len(self._results)]


_GPU = """declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
define ptx_kernel void @{entry}({taken}) {{
{sizes}
  %own = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %block = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %all = call i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
  %before = mul i32 %block, %all
  %short = add i32 %before, %own
  %thread = zext i32 %short to i64
  %exists = icmp ult i64 %thread, %threads
  br i1 %exists, label %begin, label %end
begin:
  {compute} alwaysinline
  br label %end
end:
  ret void
}}"""
_HOST = """define void @{entry}({taken}) {{
{sizes}
  br label %next
next:
  %thread = phi i64 [0, %0], [%after, %next]
  {compute} alwaysinline
  %after = add i64 %thread, 1
  %more = icmp ult i64 %after, %threads
  br i1 %more, label %next, label %end
end:
  ret void
}}"""
