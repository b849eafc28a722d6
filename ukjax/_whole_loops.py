"""How XLA compiles loops for a CPU: an option that makes runs of small systems several times as fast."""

import os

from jax._src import xla_bridge  # JAX has no public way to ask whether it has started

_OPTION = "--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold=10000000"


def compile_loops_whole() -> None:
    """Has XLA compile loops over arrays of less than ten megabytes into one native function each, on a CPU.

    Left to itself XLA does so below a kilobyte, and runs larger loops as a list of small functions: for systems of few
    coordinates that takes longer than what they compute. Call this before JAX computes anything, as one turns on
    float64. It appends XLA's option `xla_cpu_small_while_loop_byte_threshold` to the environment variable `XLA_FLAGS`,
    which JAX reads once. GPUs are not concerned.

    **Raises:** `RuntimeError` if JAX has started already, so that the option would be ignored.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_cpu_small_while_loop_byte_threshold" in flags:
        return
    if xla_bridge.backends_are_initialized():
        raise RuntimeError("call compile_loops_whole() before JAX computes anything: it has started already.")
    os.environ["XLA_FLAGS"] = f"{flags} {_OPTION}".strip()
