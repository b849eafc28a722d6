"""Kernels: programs mapped over members, and whole runs."""

import functools
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, final

from jaxtyping import Array

from .._structured._functions import is_known
from ._call import kernels_run, launched
from ._ptx import ptx, writes_ptx
from ._texts import KernelText, gpu_text


class OneThread(Protocol):
    """What one thread computes, a member or a run."""

    def called(self) -> Iterable[str] | None:
        """The functions of C that it calls; None where there are operations that are not known."""
        ...

    def text(self) -> KernelText:
        """All of it."""
        ...


@final
class GpuKernel:
    """A thread for each member or run."""

    def __init__(self, thread: OneThread):
        self._thread = thread

    @functools.cached_property
    def exists(self) -> bool:
        """Whether LLVM can write it: of operations and functions that are known here."""
        called = self._thread.called()
        return writes_ptx() and called is not None and all(map(is_known, called))

    def runs_here(self) -> bool:
        """Whether it is there, and a GPU of this process that takes it."""
        return self.exists and kernels_run()

    @functools.cached_property
    def text(self) -> KernelText:
        """What one thread computes."""
        return self._thread.text()

    @functools.cached_property
    def ptx(self) -> str:
        """The same for a GPU."""
        return ptx(gpu_text(self.text))

    def __call__(self, operands: Sequence[Array], sizes: Sequence[int], shapes: Sequence[Any]) -> list[Array]:
        """Its results, as `launched` gives them.

        **Arguments:** as of `launched`.
        """
        return launched(self.ptx, operands, sizes, shapes)
