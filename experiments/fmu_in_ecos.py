"""FMUs of ukjax in Ecos, a co-simulator in C++ with an importer of its own, beside `uk.simulate`.

    pip install ecospy tbb
    python experiments/fmu_in_ecos.py

Each FMU is run for a second of communication steps of 10 ms; the table has by how much the coordinates are then off those
of a run at tolerances of 1e-12.
"""

import ctypes
import importlib.util
import sys
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np

import ukjax as uk
import ukjax.mechanisms as um

STEP, STEPS = 0.01, 100


def thrown_ball() -> uk.Problem:
    """A disc that bounces on the floor, with friction and spin."""
    ball = um.disk("ball", (0.0, 0.5), 0.1, mass=1.0)
    floor = um.HalfSpace("ground", point=(0.0, 0.0))
    touch = um.Contact(um.Sphere("ball", (0.0, 0.5), 0.1), floor, restitution=0.6, friction=0.3)
    system = um.assemble([ball], loads=[um.Gravity()], contacts=[touch], name="ball")
    return um.problem(system, v0=[1.5, 0.0, 20.0])


def run_in_ecos(ecospy: Any, path: Path, names: list[str]) -> np.ndarray:
    """Values of some variables after the last step."""
    with ecospy.EcosSimulationStructure() as structure:
        structure.add_model("model", str(path))
        with ecospy.EcosSimulation(structure=structure, step_size=STEP) as simulation:
            simulation.init()
            simulation.step(STEPS)
            found = [simulation.get_real(f"model::{x}") for x in names]
            simulation.terminate()
    return np.array(found)


def main() -> None:
    """Prints the table."""
    if importlib.util.find_spec("ecospy") is None:
        print("Ecos is not installed: pip install ecospy tbb")
        return
    for threads in (Path(sys.prefix) / "lib").glob("libtbb.so.12"):  # of `pip install tbb`, which Ecos loads
        ctypes.CDLL(str(threads), mode=ctypes.RTLD_GLOBAL)
    import ecospy  # pyright: ignore[reportMissingImports]

    jax.config.update("jax_enable_x64", True)
    print("| | FMI 2.0 | FMI 3.0 |\n|---|---|---|")
    for problem in (uk.models.pendulum(rate=0.5), uk.models.scara(), thrown_ball()):
        how: dict[str, Any] = {"contact": "events"} if problem.name == "ball" else {}
        end = problem.t0 + STEP * STEPS
        expected = np.asarray(uk.simulate(problem, t1=end, ts=2, rtol=1e-12, atol=1e-12, **how).q_end)
        off = []
        for fmi in ("2.0", "3.0"):
            with tempfile.TemporaryDirectory() as folder:
                export = uk.to_fmu(problem, Path(folder) / f"{problem.name}.fmu", fmi=fmi)
                names = [x.name for x in export.variables if x.name.startswith("position.")]
                off.append(np.max(np.abs(run_in_ecos(ecospy, export.path, names) - expected)))
        print(f"| {problem.name} | {off[0]:.0e} | {off[1]:.0e} |", flush=True)


if __name__ == "__main__":
    main()
