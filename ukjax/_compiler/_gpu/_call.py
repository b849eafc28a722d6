"""Kernels in PTX, called by XLA: through a custom call of its own, which takes a kernel as text."""

import functools
import hashlib
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._machine_code import llvm
from ._primitive_functions import ENTRY

# --- PTX from the text of a kernel: by LLVM, as llvmlite ships it, on any machine

_TRIPLE = "nvptx64-nvidia-cuda"
# What every card since Ampere (2020) runs, and every driver since CUDA 11.8 reads: the driver compiles PTX for its card.
_CARD, _VERSION = "sm_80", "+ptx78"


@functools.cache
def _target() -> Any:
    """LLVM's code generator for PTX; None where it is not."""
    binding = llvm()
    if binding is None:
        return None
    try:
        binding.initialize_all_targets()
        binding.initialize_all_asmprinters()
        return binding.Target.from_triple(_TRIPLE)
    except RuntimeError:
        return None


def writes_ptx() -> bool:
    """Whether LLVM can, here."""
    return _target() is not None


# Programs become part of the run, and its arrays registers. Nothing else: LLVM would take what does not change out of
# loops, and so have all parameters of a run fill registers that its programs need.
_PASSES = "always_inliner", "global_opt", "sroa", "simplify_cfg", "instruction_combine", "simplify_cfg"


def optimize_module(module: Any, machine: Any) -> None:
    """Has LLVM simplify a module."""
    binding = llvm()
    passes = binding.create_new_module_pass_manager()
    for name in _PASSES:
        getattr(passes, f"add_{name}_pass")()
    options = binding.create_pipeline_tuning_options(speed_level=2)
    passes.run(module, binding.create_pass_builder(machine, options))


def with_target(text: str, triple: str, machine: Any) -> str:
    """A text with its target, which says how numbers in memory are aligned: to be there when it is read."""
    return f'target triple = "{triple}"\ntarget datalayout = "{machine.target_data}"\n{text}'


def ptx(text: str) -> str:
    """The PTX of a text."""
    machine = _target().create_target_machine(cpu=_CARD, features=_VERSION, opt=3)
    module = llvm().parse_assembly(with_target(text, _TRIPLE, machine))
    optimize_module(module, machine)
    return machine.emit_assembly(module)


# --- Calls of kernels

_TARGET = "__gpu$xla.gpu.ptx"  # of XLA's since JAX 0.8
# A warp: threads that end free what others can use only with all of their block, and runs end at different times.
_THREADS = 32
_TRIAL = """declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
define ptx_kernel void @trial(ptr %x, ptr %y, ptr %found) {
  %i = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %a.place = getelementptr float, ptr %x, i32 %i
  %b.place = getelementptr float, ptr %y, i32 %i
  %to = getelementptr float, ptr %found, i32 %i
  %a = load float, ptr %a.place
  %b = load float, ptr %b.place
  %c = fsub float %a, %b
  store float %c, ptr %to
  ret void
}"""


def _launch_ptx(
    kernel: str, name: str, operands: Sequence[Array], shapes: Sequence[Any], threads: int
) -> Any:
    """What a kernel writes."""
    size = lambda x: np.int32(x)
    return jax.ffi.ffi_call(_TARGET, shapes)(
        *operands, name=name, kernel_type="ptx", kernel_data=kernel,
        grid_x=size(-(-threads // _THREADS)), grid_y=size(1), grid_z=size(1),
        block_x=size(_THREADS), block_y=size(1), block_z=size(1), shared_mem_bytes=size(0),
    )  # fmt: skip


@functools.cache
def kernels_run() -> bool:
    """Whether there is a GPU of this process that runs such kernels: one that subtracts numbers is tried."""
    if not writes_ptx():
        return False
    x, y = np.arange(_THREADS, dtype=np.float32), np.full(_THREADS, 3, np.float32)
    shape = [jax.ShapeDtypeStruct(x.shape, x.dtype)]
    try:
        device = jax.local_devices(backend="cuda")[0]
        with jax.ensure_compile_time_eval(), jax.default_device(device):
            found = jax.jit(lambda *given: _launch_ptx(ptx(_TRIAL), "trial", given, shape, _THREADS))(
                jnp.asarray(x), jnp.asarray(y)
            )
            return bool(np.array_equal(np.asarray(found[0]), x - y))
    except (RuntimeError, ValueError):  # no such device, or no such call: XLA's errors are the former
        return False


def call_kernel(kernel: str, operands: Sequence[Array], shapes: Sequence[Any], threads: int) -> Any:
    """What a kernel writes."""
    # XLA keeps loaded kernels apart by where their text is, which it may forget; a name of its own tells each.
    name = f"{ENTRY}_{hashlib.sha256(kernel.encode()).hexdigest()[:16]}"
    return _launch_ptx(kernel.replace(f".entry {ENTRY}(", f".entry {name}("), name, operands, shapes, threads)
