"""PTX from the text of a kernel: by LLVM, as llvmlite ships it, on any machine."""

import functools
from typing import Any

from .._machine_code import llvm

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
