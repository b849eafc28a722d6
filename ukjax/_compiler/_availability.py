"""Whether what is traced now may become machine code of our own."""

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

import jax

from ._foreign import version
from ._gpu._call import kernels_run
from ._machine_code import llvm

_leaves: contextvars.ContextVar[bool] = contextvars.ContextVar("leaves", default=False)


@contextlib.contextmanager
def to_leave_process() -> Iterator[None]:
    """What is traced within is to run where this process and its machine code are not."""
    token = _leaves.set(True)
    try:
        yield
    finally:
        _leaves.reset(token)


def stays_here() -> bool:
    """Whether what is traced now is to run in this process."""
    return not _leaves.get()


def machine_code_runs() -> bool:
    """Whether machine code, or a kernel, runs on the device that JAX uses here by default."""
    device: Any = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]
    platform = getattr(device, "platform", device) or jax.default_backend()
    return compiler_is_here() and (platform == "cpu" or kernels_run())


def machine_code_is_wanted() -> bool:
    """Whether what is traced now may be machine code."""
    return stays_here() and machine_code_runs() and not looks_for_nans()


def looks_for_nans() -> bool:
    """Whether JAX is to stop where a NaN is made: it sees operations on arrays, and nothing of machine code."""
    return jax.config.jax_debug_nans  # pyright: ignore[reportAttributeAccessIssue]


def compiler_is_here() -> bool:
    """Whether machine code can be made here, and be called by XLA."""
    return llvm() is not None and version() is not None
