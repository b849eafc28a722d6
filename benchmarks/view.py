"""What a run takes as an HTML file: seconds for 200 frames, the first time and later, and the size of the file.

    python benchmarks/view.py [--models pendulum]

Processor time of the whole process, of runs over 200/30 s.
"""

import argparse
import tempfile
import time
from pathlib import Path

import jax
from _timing import machine, table

import ukjax as uk

MODELS = ("pendulum", "four_bars", "slider_crank", "arm_6r", "bricard", "rolling_disk")


def measure(model: str, path: Path) -> list[float]:
    """Seconds the first time, seconds a later time, and megabytes."""
    run = uk.simulate(uk.models.get(model), t1=200 / 30)
    times = []
    for _ in range(4):
        start = time.process_time()
        run.save(path)
        times.append(time.process_time() - start)
    return [times[0], min(times[1:]), path.stat().st_size / 1e6]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", nargs="+", default=MODELS)
    models = parser.parse_args().models
    jax.config.update("jax_enable_x64", True)
    print(machine(), end="\n\n")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.html"
        print(
            table(["first [s]", "later [s]", "file [MB]"], {model: measure(model, path) for model in models})
        )


if __name__ == "__main__":
    main()
