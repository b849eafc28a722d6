"""How XLA compiles loops for a CPU: an option that makes runs of small systems several times as fast."""

import os

import jax
from jax._src import xla_bridge  # JAX has no public way to ask whether it has started

_NAME = "xla_cpu_small_while_loop_byte_threshold"
MOST_CHECKS = 5_000
"""Pairs of arrays up to which LLVM checks that they do not overlap, as a loop over members on vectors asks for. By itself
it gives up above 128; thousands take seconds to compile."""

# LLVM's: how many checks, and that no loop of more passes is written out, which then would not run on vectors.
_OF_LLVM = f"-vectorize-memory-check-threshold={MOST_CHECKS},-unroll-full-max-count=15"
# XLA's newer way to compile what moves arrays about divides for each number, which the stages of batches take long by.
_EMITTERS = "--xla_cpu_use_fusion_emitters=false"
_OPTIONS = f"--xla_backend_extra_options={_NAME}=10000000,{_OF_LLVM} {_EMITTERS}"


def are_loops_whole() -> bool:
    """Whether `compile_loops_whole` was called, or the same option given otherwise."""
    return _NAME in os.environ.get("XLA_FLAGS", "")


def _is_without_cpu() -> bool:
    """Whether JAX was told, by `JAX_PLATFORMS` or its configuration, to compute on accelerators alone."""
    named = jax.config.jax_platforms  # pyright: ignore[reportAttributeAccessIssue]
    return bool(named) and "cpu" not in named.split(",")


def compile_loops_whole() -> None:
    """Has XLA compile loops over arrays of less than ten megabytes into one native function each, on a CPU.

    Left to itself XLA does so below a kilobyte, and runs larger loops as a list of small functions: for systems of few
    coordinates that takes longer than what they compute. Call this before JAX computes anything, as one turns on
    float64. It appends XLA's option `xla_cpu_small_while_loop_byte_threshold`, two of LLVM's that let more loops run on
    vectors, and `xla_cpu_use_fusion_emitters=false`, by which batches move their arrays about in half the time, to the
    environment variable `XLA_FLAGS`, which JAX reads once.

    Loops around scalar code of more than some 3,000 operations are lists of functions all the same: that code is one of
    them, and takes longer than the rest.

    In a process that computes on a GPU as well, LLVM's two options hold for the GPU's kernels too: loops of more than 15
    passes are not written out there. Where `JAX_PLATFORMS` names accelerators alone, nothing is done.

    **Raises:** `RuntimeError` if JAX has started already, so that the option would be ignored.
    """
    if are_loops_whole() or _is_without_cpu():
        return
    if xla_bridge.backends_are_initialized():
        raise RuntimeError("call compile_loops_whole() before JAX computes anything: it has started already.")
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_OPTIONS}".strip()
