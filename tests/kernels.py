"""Kernels of a GPU without one: the text of a thread compiled for this machine, one thread after the other."""

import contextlib
import ctypes
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from ukjax._compiler._foreign import llvm
from ukjax._compiler._gpu import _kernel
from ukjax._compiler._gpu._ptx import optimized
from ukjax._compiler._gpu._texts import ENTRY, KernelText, host_text
from ukjax._compiler._integration import Integration


def on_host(
    text: KernelText, operands: list, sizes: tuple[int, ...], shapes: list[tuple[int, ...]]
) -> list[np.ndarray]:
    """What a kernel writes: results of these shapes, filled with NaN before."""
    binding, code = llvm(), host_text(text)
    machine = binding.Target.from_default_triple().create_target_machine(
        cpu=binding.get_host_cpu_name(), features=binding.get_host_cpu_features().flatten(), opt=2
    )
    module = binding.parse_assembly(code)
    module.verify()
    module.triple, module.data_layout = binding.get_process_triple(), str(machine.target_data)
    optimized(module, machine)
    engine = binding.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    arrays = [np.ascontiguousarray(x) for x in operands]
    arrays = [*arrays, np.array([*sizes, *(x.shape[1] for x in arrays)], np.int32)]
    arrays += [np.full(shape, np.nan, arrays[0].dtype) for shape in shapes]
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(arrays))(engine.get_function_address(ENTRY))
    function(*(x.ctypes.data for x in arrays))
    return arrays[-len(shapes) :]


@contextlib.contextmanager
def as_with_gpu() -> Iterator[None]:
    """As where there is a GPU that takes kernels; what was traced before is lowered anew."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_kernel, "kernels_run", lambda: True)
        jax.clear_caches()
        yield
    jax.clear_caches()


def captured(run: Callable[[], Any]) -> tuple[Integration, list[np.ndarray]]:
    """What a run integrates, and its operands."""
    found = []
    usual = Integration.on_host

    def told(self: Integration, *operands: np.ndarray) -> Any:
        found.append((self, [np.asarray(x, self.dtype) for x in operands]))
        return usual(self, *operands)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Integration, "on_host", told)
        run()
    return found[-1]


def assembler() -> str | None:
    """NVIDIA's, of the package nvidia-cuda-nvcc-cu12 or in the path."""
    for folder in (Path(x) for x in sys.path):
        found = folder / "nvidia" / "cuda_nvcc" / "bin" / "ptxas"
        if found.exists():
            return str(found)
    return shutil.which("ptxas")


def registers_of(ptx: str, card: str = "sm_90") -> tuple[int, int] | None:
    """Registers of a thread, and bytes of those written to memory; None without the assembler."""
    if assembler() is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "kernel.ptx")
        source.write_text(ptx)
        command = [assembler(), "-v", f"-arch={card}", str(source), "-o", f"{source}.cubin"]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    (registers,) = re.findall(r"Used (\d+) registers", told)
    return int(registers), max(map(int, re.findall(r"(\d+) bytes spill stores", told)))
