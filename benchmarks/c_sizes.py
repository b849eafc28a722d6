"""Operations, code and stack of C by `uk.to_c` for a Cortex-M7 and for RISC-V, by Clang (`pip install ziglang`).

    python benchmarks/c_sizes.py [--models pendulum four_bar ...] [--double]

One function in a file, numbers as constants, in `float` unless `--double`. Operations are those of a call at most, with
all passes of loops. The stack is the sum of the frames that Clang tells, and the code that of `size`, with tables.
Nothing is run.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import jax
import numpy as np
from _timing import machine, table
from c_code import MODELS

import ukjax as uk

TARGETS = {
    "Cortex-M7": ["thumb-linux-musleabihf", "-mcpu=cortex_m7"],
    "RISC-V 32": ["riscv32-linux-musl", "-mcpu=generic_rv32+m+a+f+d+c"],
    "RISC-V 64": ["riscv64-linux-musl"],
}
CASES = [
    ("pendulum", "acceleration"),
    ("pendulum", "step"),
    ("four_bar", "acceleration"),
    ("four_bar", "forces"),
    ("four_bar", "inverse_dynamics"),
    ("four_bar", "step"),
    ("gripper", "acceleration"),
    ("scara", "acceleration"),
    ("arm_6r", "acceleration"),
]


def sizes(source: Path, target: list[str]) -> tuple[float, float]:
    """Bytes of code and of stack."""
    command = [sys.executable, "-m", "ziglang", "cc", "-target", *target, "-std=c99", "-O2", "-c"]
    command += ["-Wframe-larger-than=0", str(source), "-o", str(source.with_suffix(".o"))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    frames = [int(x) for x in re.findall(r"stack frame size \((\d+)\)", done.stderr)]
    listed = subprocess.run(["size", source.with_suffix(".o")], capture_output=True, text=True, check=True)
    return float(listed.stdout.splitlines()[1].split()[0]), float(sum(frames))


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--models", nargs="+", choices={x for x, _ in CASES})
    parser.add_argument("--double", action="store_true")
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    columns = ["operations", *(f"{x}, {y}" for x in TARGETS for y in ("code [B]", "stack [B]"))]
    rows = {}
    for model, function in CASES:
        if given.models and model not in given.models:
            continue
        with tempfile.TemporaryDirectory() as folder:
            how = {"dtype": "float64" if given.double else "float32", "constants": True}
            export = uk.to_c(MODELS[model](), folder, [function], name="model", **how)
            (said,) = export.functions.values()
            most = np.nan if said.most_operations is None else said.most_operations
            found = [sizes(Path(folder) / "model.c", x) for x in TARGETS.values()]
        rows[f"{model}, {function}"] = [most, *(x for pair in found for x in pair)]
        print(f"{model}, {function}: done", flush=True)
    print(f"{machine()}; {'double' if given.double else 'float'}\n\n{table(columns, rows)}")


if __name__ == "__main__":
    main()
