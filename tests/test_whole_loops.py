"""How XLA is asked to compile loops: before JAX starts, and where there is a CPU to compute on."""

import os
import subprocess
import sys

import jax
import pytest

import ukjax as uk


@pytest.mark.parametrize(("platforms", "asked"), [("", True), ("cuda,cpu", True), ("cuda", False)])
def test_nothing_is_asked_where_a_gpu_computes_alone(platforms: str, asked: bool) -> None:
    """LLVM's options would hold for the GPU's kernels. JAX is not started: it would look for the GPU."""
    code = "import os, ukjax; ukjax.compile_loops_whole(); print(os.environ['XLA_FLAGS'])"
    environment = os.environ | {"JAX_PLATFORMS": platforms, "XLA_FLAGS": ""}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert ("small_while_loop" in done.stdout) == asked


def test_too_late() -> None:
    assert jax.devices()
    with pytest.raises(RuntimeError, match="before JAX computes anything"):
        uk.compile_loops_whole()
