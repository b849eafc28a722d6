"""What a GPU does: its tests, its numbers beside the CPU's, steps a second, and which estimates were wrong.

python benchmarks/gpu.py [parallelogram ...] [--sizes 1e3 1e5 1e7] [--output gpu.md] [--figure gpu.png]

One command for a machine with a GPU. It runs the tests marked `gpu`; compares a batch of each model with the CPU; times
batches from 1e3 to 1e7 runs in float64 and float32, at fixed and at adaptive steps, beside MJX where
that is installed (`pip install mujoco-mjx`); and holds them to the estimates of `gpu_static.py`, by the table in
docs/measurements.md. Runs differ in their velocities. Times are those of later calls, the results left on the device.

Without a GPU it says so. `--device cpu` tries the script itself: with few runs it takes a minute.
"""

import argparse
import functools
import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # the tests have a process of their own

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
from _gpu_report import Report, estimates
from _timing import interleaved, machine
from gpu_static import MODELS, WAYS

import ukjax as uk

ROOT = Path(__file__).parents[1]
SIZES = "1e3", "1e4", "1e5", "1e6", "1e7"
PRECISIONS = {"float64": True, "float32": False}
ESTIMATED = "H100"  # the card of the table in docs/measurements.md
COMPARED = 256  # runs, of which those with as many steps are compared
TOLERANCES = {"float64": 1e-6, "float32": 1e-1}
"""Of the largest difference to the CPU, in units of the largest number of a state: rounding grows with the motion."""
CASES = {"parallelogram": "parallelogram", "four_bars": "four_bars_1", "scara": "scara"}
"""Models that MJX has too: `_peer_cases` says how. Its springs are others than those of Andrews' mechanism."""


class Way(NamedTuple):
    """How a model is run: its name, precision, and fixed or adaptive steps."""

    model: str
    precision: str
    steps: str


def device_of(kind: str) -> Any:
    """The first device of a platform, or a message that ends the script."""
    try:
        return jax.devices(kind)[0]
    except RuntimeError:
        seen = ", ".join(sorted({x.platform for x in jax.devices()}))
        raise SystemExit(
            f"No device '{kind}' here: JAX sees {seen}. On a machine with an NVIDIA GPU: "
            "pip install 'jax[cuda12]'. To try this script without one: "
            "python benchmarks/gpu.py pendulum --device cpu --sizes 16 64 --steps 20"
        ) from None


def tests() -> str:
    """What became of the tests marked `gpu`, in pytest's words."""
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", "-n", "0", "tests/test_gpu.py"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    lines = found.stdout.strip().splitlines() or found.stderr.strip().splitlines()
    failed = [x for x in lines if x.startswith(("FAILED", "ERROR"))]
    return "\n".join(["pytest -m gpu: " + lines[-1].strip("= "), *failed])


def batch(way: Way, runs: int, steps: int) -> Any:
    """A compiled batch: the ends, how many steps each run took, and the codes."""
    problem = uk.models.get(way.model)
    options = dict(WAYS[way.steps])
    span = steps * options["dt0"] if "dt0" in options else float(problem.t1 - problem.t0)

    def one(scale: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        run = uk.simulate(
            problem.system, problem.q0, scale * problem.v0, t0=problem.t0, t1=problem.t0 + span, ts=2,
            solver=dfx.Tsit5(), throw=False, **options,
        )  # fmt: skip
        end = jnp.concatenate([run.q[-1], run.v[-1]])
        return end, run.stats["num_steps"], jax.tree.leaves(run.result)[0]

    scales = jnp.linspace(0.5, 1.0, runs)
    return functools.partial(jax.jit(jax.vmap(one)), scales)


def compared(way: Way, device: Any, steps: int) -> tuple[float, float]:
    """The largest difference to the CPU among runs with as many steps, in units of the largest number; their share."""
    found = []
    for where in (device, jax.devices("cpu")[0]):
        with jax.default_device(where):
            found.append([np.asarray(x) for x in batch(way, COMPARED, steps)()])
    (end, count, code), (end_cpu, count_cpu, code_cpu) = found
    same = (count == count_cpu) & (code == code_cpu)
    scale = max(1.0, float(np.nanmax(np.abs(end_cpu))))
    off = np.abs(end - end_cpu)[same] / scale
    return float(np.max(off, initial=0.0)), float(np.mean(same))


def rate(way: Way, runs: int, steps: int, rounds: int) -> float:
    """Steps a second; NaN where the device has too little memory."""
    try:
        run = batch(way, runs, steps)
        taken = int(np.sum(np.asarray(run()[1]), dtype=np.int64))
        return taken / interleaved({"": run}, rounds)[""]
    except (RuntimeError, MemoryError) as error:  # XLA's is the former
        if "RESOURCE_EXHAUSTED" in str(error) or isinstance(error, MemoryError):
            return float("nan")
        raise


def rate_of_mjx(model: str, runs: int, steps: int, rounds: int) -> float:
    """The same of MJX, at steps of 1e-3 s by Euler's method; NaN where it has no such mechanism."""
    from _peer_cases import CASES as KNOWN
    from _peer_mujoco import mjx

    mechanism, _ = KNOWN[CASES[model]]().moving()
    q, v = mechanism.start
    scales = np.linspace(0.5, 1.0, runs)[:, None]
    run = mjx(mechanism, 1e-3, steps, "Euler", np.tile(q, (runs, 1)), scales * v)
    return runs * steps / interleaved({"": run}, rounds)[""]


def has_mjx() -> bool:
    """Whether it is installed."""
    try:
        from mujoco import mjx  # noqa: F401
    except ImportError:
        return False
    return True


def measured(report: Report, given: argparse.Namespace, device: Any) -> None:
    """All of it, printed as it comes."""
    sizes = [int(float(x)) for x in given.sizes]
    for model, (precision, x64), steps in itertools.product(given.models, PRECISIONS.items(), WAYS):
        way = Way(model, precision, steps)
        with jax.enable_x64(x64), jax.default_device(device):
            off, same = compared(way, device, given.steps)
            report.compared(way, off, same, TOLERANCES[precision])
            for runs in sizes:
                report.measured(way, runs, rate(way, runs, given.steps, given.rounds))
    if not has_mjx():
        return report.note("MJX is not installed: left out.")
    known = [model for model in given.models if model in CASES]
    for model, (precision, x64) in itertools.product(known, PRECISIONS.items()):
        with jax.enable_x64(x64), jax.default_device(device):
            for runs in sizes:
                found = rate_of_mjx(model, runs, given.steps, given.rounds)
                report.measured(Way(model, precision, "MJX"), runs, found)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--device", default="gpu", help="a platform of JAX's")
    parser.add_argument("--sizes", nargs="*", default=list(SIZES), help="runs of a batch")
    parser.add_argument("--steps", type=int, default=1000, help="of runs at fixed steps")
    parser.add_argument("--rounds", type=int, default=5, help="measurements, of which the median is taken")
    parser.add_argument("--output", type=Path, default=Path("gpu.md"))
    parser.add_argument("--figure", type=Path, default=Path("gpu.png"))
    given = parser.parse_args(arguments)
    device = device_of(given.device)
    estimated = ESTIMATED in device.device_kind
    report = Report(estimates(ROOT / "docs" / "measurements.md") if estimated else {})
    report.note(machine())
    if not estimated:
        report.note(f"The estimates are those of an {ESTIMATED}: none for this device.")
    if device.platform != "cpu":
        report.note(tests())
    measured(report, given, device)
    given.output.write_text(report.text())
    report.draw(given.figure)
    print(report.text())
    print(f"written: {given.output}, {given.figure}")


if __name__ == "__main__":
    main()
