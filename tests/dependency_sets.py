"""Tests ukjax with the oldest, or with the newest, releases of its dependencies that pyproject.toml allows.

    python3.11 tests/dependency_sets.py oldest
    python3.14 tests/dependency_sets.py newest
    python3.11 tests/dependency_sets.py oldest tests -n 2 --dist worksteal

Makes a virtual environment of the Python that runs it, installs ukjax there as users do, not in place, and runs the
README's examples and a test or two of each extra. Arguments after the set go to pytest instead of that list.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = [
    "tests/test_docs.py::test_python_blocks_run[README.md]",
    "tests/test_models.py",
    "tests/test_simulate.py",
    "tests/test_mechanisms.py",
    "tests/test_robots.py::test_a_robot_moves_as_in_mujoco",
    "tests/test_urdf_looks.py",
    "tests/test_cli.py",
    "tests/test_trajectory.py",
    "tests/test_export.py",
    "tests/test_environment.py",
    "tests/test_tune.py",
    "tests/test_sweep.py",
    "tests/test_cluster_stores.py",
]


def lower_bounds() -> dict[str, str]:
    """The oldest release that is allowed of each package, of several bounds the highest."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    requirements = sum(project["optional-dependencies"].values(), project["dependencies"])
    oldest: dict[str, str] = {}
    for name, version in re.findall(
        r"^([\w-]+)(?:\[[\w,]+\])?>=([\d.]+)", "\n".join(requirements), re.MULTILINE
    ):
        oldest[name] = max(version, oldest.get(name, "0"), key=lambda x: [int(part) for part in x.split(".")])
    return oldest


def install(environment: Path, oldest: bool) -> None:
    """Installs ukjax with what its tests need, and prints which releases came."""
    venv.create(environment, with_pip=True)
    pip = [environment / "bin" / "pip", "--disable-pip-version-check"]
    constraints = environment / "constraints.txt"
    constraints.write_text("".join(f"{k}=={x}\n" for k, x in lower_bounds().items()) if oldest else "")
    subprocess.run([*pip, "install", "-q", "-c", constraints, f"{ROOT}[test]"], check=True)
    print(f"Python {sys.version.split()[0]}", flush=True)
    subprocess.run([*pip, "freeze"], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("releases", choices=["oldest", "newest"])
    options, arguments = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        install(Path(folder), options.releases == "oldest")
        # The command pytest, unlike `python -m pytest`, does not find the ukjax of the working folder.
        pytest = [Path(folder) / "bin" / "pytest", "-m", "slow or not slow", "-p", "no:cacheprovider"]
        sys.exit(subprocess.run([*pytest, *(arguments or TESTS)], cwd=ROOT, check=False).returncode)


if __name__ == "__main__":
    main()
