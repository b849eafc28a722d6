"""Kernels of a GPU without one: the text of a thread compiled for this machine, one thread after the other."""

import contextlib
import ctypes
import functools
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.interpreters import mlir

from ukjax._compiler._gpu._call import optimize_module, with_target
from ukjax._compiler._gpu._primitive_functions import ENTRY
from ukjax._compiler._machine_code import llvm
from ukjax._compiler._structured import _primitive
from ukjax._compiler._structured._kernel import Kernel


def _run(text: str, arrays: list[np.ndarray]) -> None:
    """Calls what a kernel is for this host."""
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(arrays))
    function(_compiled(text).get_function_address(ENTRY))(*(x.ctypes.data for x in arrays))


@functools.lru_cache(100)
def _compiled(text: str) -> Any:
    binding = llvm()
    machine = binding.Target.from_default_triple().create_target_machine(
        cpu=binding.get_host_cpu_name(), features=binding.get_host_cpu_features().flatten(), opt=2
    )
    module = binding.parse_assembly(with_target(text, binding.get_process_triple(), machine))
    module.verify()
    optimize_module(module, machine)
    engine = binding.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return engine


def run_threads(
    kernel: Kernel, operands: Sequence[Any], members: int, threads: int | None = None, words: int = 100_000
) -> list[np.ndarray]:
    """What a kernel of a program gives, by so many threads with so many words each for what grows."""
    sizes = members, min(threads or members, members), words
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Kernel, "sizes", lambda self, members: sizes)
        shapes = kernel.shapes(members)
    results = [np.full(x.shape, 77, x.dtype) for x in shapes]
    _run(kernel.host_text, [*map(np.ascontiguousarray, operands), np.array(sizes, np.int32), *results])
    return results


@contextlib.contextmanager
def kernels_on_host(threads: int = 3, words: int = 100_000) -> Iterator[list[Kernel]]:
    """As with a GPU of so many threads; what is scalarized runs as kernels here, and those that ran are given."""
    kernels = list[Kernel]()

    def call(program: Any, operands: Sequence[Any], count: int) -> Any:
        kernel = program.kernel(tuple(x.ndim == 1 for x in operands))
        assert kernel.exists
        kernels.append(kernel)
        shapes = kernel.shapes(count)[: len(program.results)]
        run = lambda *x: run_threads(kernel, x, count, threads, words)[: len(shapes)]
        return jax.pure_callback(run, shapes, *operands)

    lowering = mlir.lower_fun(functools.partial(_primitive._call, call), multiple_results=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_primitive, "_by_foreign_function", lowering)
        jax.clear_caches()
        yield kernels
    jax.clear_caches()


@contextlib.contextmanager
def as_with_gpu() -> Iterator[None]:
    """As where there is a GPU that takes kernels; what was traced before is lowered anew."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_primitive, "kernels_run", lambda: True)
        jax.clear_caches()
        yield
    jax.clear_caches()


def run_kernel(run: Callable[..., Any], *batch: Any) -> Kernel:
    """The kernel of the steps of a run, the first there is, of a batch."""
    with kernels_on_host() as kernels:
        jax.block_until_ready(jax.jit(jax.vmap(run))(*batch))
        return kernels[0]


def assembler() -> str | None:
    """NVIDIA's, of the package nvidia-cuda-nvcc-cu12 or in the path."""
    for folder in (Path(x) for x in sys.path):
        found = folder / "nvidia" / "cuda_nvcc" / "bin" / "ptxas"
        if found.exists():
            return str(found)
    return shutil.which("ptxas")


def registers_of(ptx: str, card: str = "sm_90") -> tuple[int, int] | None:
    """Registers of a thread, and bytes of those written to memory by all functions; None without the assembler."""
    if assembler() is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "kernel.ptx")
        source.write_text(ptx)
        command = [assembler(), "-v", f"-arch={card}", str(source), "-o", f"{source}.cubin"]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    (registers,) = re.findall(r"Used (\d+) registers", told)
    return int(registers), sum(map(int, re.findall(r"(\d+) bytes spill stores", told)))
