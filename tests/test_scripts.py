"""Every script of `experiments/` and `benchmarks/` runs, and the tables of the pages are those that are printed."""

import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pages import ROOT, check_figures, tables

FOLDERS = ROOT / "experiments", ROOT / "benchmarks", ROOT / "benchmarks" / "gradients"
FILES = [x for folder in FOLDERS for x in sorted(folder.glob("*.py"))]
SCRIPTS = [str(x.relative_to(ROOT)) for x in FILES if "__main__" in x.read_text() and x.stem[0] != "_"]
CASSIE = ROOT / "experiments" / "robots" / "cassie.xml"
GRIPPER = str(CASSIE.with_name("robotiq_2f85.xml"))
# Arguments that shorten a script. `figures.py` runs all the others; what other tests run has None.
SHORT: dict[str, list[str] | None] = {
    "experiments/adams.py": ["--quick"],
    "experiments/cassie_walk.py": ["--starts", "2", "--seconds", "1"],
    "experiments/clearance_posterior.py": None,
    "experiments/controller_in_c.py": ["--quick"],
    "experiments/figures.py": ["--quick", "--only", "liu_servo", "--again"],
    "experiments/fixed_steps.py": None,
    "experiments/flat_passages.py": ["--quick"],
    "experiments/flop_counts.py": None,
    "experiments/fmu_in_ecos.py": [],
    "experiments/identify.py": None,
    "experiments/liu_servo.py": ["--quick"],
    "experiments/live_pages.py": ["four_bar", "--out", "."],
    "experiments/long_runs.py": ["--quick"],
    "experiments/neural_force.py": None,
    "experiments/operations.py": ["--quick"],
    "experiments/optimal_control.py": None,
    "experiments/orsino_3rrr.py": None,
    "experiments/orsino_modules.py": None,
    "experiments/pictures.py": ["tutorial", "gradients", "--out", "."],
    "experiments/policies.py": ["--quick", "--tasks", "cart-pole"],
    "experiments/policies_elsewhere.py": [],
    "experiments/policies_sb3.py": ["--task", "cart-pole", "--seeds", "1", "--seconds", "1"],
    "experiments/policy_gradients.py": None,
    "experiments/pseudoinverse_dpv.py": ["--quick", "--study", "rcond"],
    "experiments/rank_rule.py": None,
    "experiments/receding_horizon.py": ["--quick"],
    "experiments/scara_xu_liu.py": None,
    "experiments/single_precision.py": None,
    "experiments/stiff_solvers.py": ["--quick", "--only", "gains"],
    "experiments/tune_gains.py": None,
    "benchmarks/acceleration.py": ["pendulum", "--batches", "1"],
    "benchmarks/allegro_cube.py": ["--help"],
    "benchmarks/batched.py": [
        "--models",
        "four_bars",
        "--methods",
        "fixed",
        "--batches",
        "1",
        "8",
        "--rounds",
        "1",
    ],
    "benchmarks/c_code.py": ["--models", "pendulum", "--rounds", "1"],
    "benchmarks/c_sizes.py": ["--models", "pendulum"],
    "benchmarks/calls.py": ["--models", "pendulum"],
    "benchmarks/chains.py": ["--links", "3", "--batch", "8"],
    "benchmarks/clearance_bias.py": ["--clearances", "0.1"],
    "benchmarks/cluster.py": ["--quick", "--overhead", "pool", "--rounds", "1"],
    "benchmarks/coal_distances.py": ["--poses", "20", "--only", "box-sphere"],
    "benchmarks/compilation.py": ["--models", "pendulum", "--batches", "1"],
    "benchmarks/compile_choices.py": ["--one", "pendulum, uk.Tabulated of 50 entries"],
    "benchmarks/contact.py": [],
    "benchmarks/contact_bench_problems.py": ["--help"],
    "benchmarks/contact_operations.py": ["--robot", "cassie"],
    "benchmarks/contact_order.py": ["--only", "a block slides to its stop"],
    "benchmarks/contact_problems.py": [],
    "benchmarks/contact_starts.py": ["--starts", "8", "--only", "box"],
    "benchmarks/cube_tosses.py": ["--help"],
    "benchmarks/fast_bodies.py": ["--starts", "2", "--only", "in the plane"],
    "benchmarks/first_results.py": [
        "--only",
        "a pendulum for 1 s",
        "a four-bar from Python, above the compiled run",
    ],
    "benchmarks/gpu.py": None,
    "benchmarks/gpu_static.py": ["pendulum", "--cards", "sm_90"],
    "benchmarks/growth.py": ["--sizes", "1", "2", "--batches", "1"],
    "benchmarks/import_time.py": ["--rounds", "1"],
    "benchmarks/interval_coverage.py": ["--quick"],
    "benchmarks/many_recordings.py": ["--recordings", "3"],
    "benchmarks/methods.py": ["--only", "angles"],
    "benchmarks/mixed_precision.py": ["--models", "pendulum", "--starts", "2"],
    "benchmarks/neural_force.py": ["--widths", "4", "--stabilizers", "Projection"],
    "benchmarks/optimal_control.py": ["--only", "four-bar", "--rounds", "1"],
    "benchmarks/peers.py": ["--cases", "parallelogram", "--batch-cases", "--programs", "ukjax", "--quick"],
    "benchmarks/piles.py": ["--bodies", "1", "--shapes", "sphere", "--seconds", "0.05"],
    "benchmarks/pseudoinverse.py": ["--size", "4", "--rank", "3", "--batches", "1", "8"],
    "benchmarks/reverse_mode.py": ["--steps", "100", "--stabilizers", "Projection", "--batch", "8"],
    "benchmarks/robot_contacts.py": [],
    "benchmarks/robot_drops.py": [GRIPPER],
    "benchmarks/robot_files.py": [str(CASSIE.parent), "--only", "robotiq", "--states", "1"],
    "benchmarks/robot_formats.py": [str(CASSIE.parent)],
    "benchmarks/robot_hands.py": ["--help"],
    "benchmarks/robot_runs.py": ["--t1", "0.02", "--rounds", "1"],
    "benchmarks/robot_sensors.py": [str(CASSIE.parent), "--states", "1"],
    "benchmarks/robots.py": [GRIPPER, "--batch", "8", "--rounds", "1"],
    "benchmarks/roofline.py": ["pendulum", "--batch", "8"],
    "benchmarks/scalarize.py": ["Kalman filter"],
    "benchmarks/scara_inverse.py": ["--batch", "64", "--rounds", "1"],
    "benchmarks/sim_benchmark.py": ["bouncing", "standing", "--steps", "0.01"],
    "benchmarks/step_derivatives.py": ["--of", "ball"],
    "benchmarks/stewart.py": ["--legs", "3", "--order", "leg"],
    "benchmarks/view.py": ["--models", "pendulum"],
    "benchmarks/gradients/run.py": ["--engines", "ukjax", "--tasks", "bouncing", "--quick"],
}
COMPARED = {"adams": 6, "liu_servo": 40, "operations": 3, "pseudoinverse_dpv": 3}
"""How many figures of a shortened script stand in a page too, at least."""


def imported(file: Path, needed: bool = False) -> list[tuple[str, list[str]]]:
    """Modules that a script imports, anywhere or where it begins, and the names it takes of them."""
    modules, tree = [], ast.parse(file.read_text())
    for node in tree.body if needed else ast.walk(tree):
        if isinstance(node, ast.Import):
            modules += [(x.name, []) for x in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules.append((node.module or "", [x.name for x in node.names]))
    return modules


@pytest.mark.parametrize("file", FILES, ids=lambda x: x.name)
def test_what_scripts_import_is_there(file: Path) -> None:
    """Of ukjax as it is, its private modules too; of scripts beside it as they are written."""
    for module, names in imported(file):
        beside = file.with_name(f"{module}.py")
        if module.partition(".")[0] == "ukjax":
            held = importlib.import_module(module)
            for name in names:
                assert hasattr(held, name) or importlib.import_module(f"{module}.{name}")
        elif beside.exists():
            written = {x.name for x in ast.walk(ast.parse(beside.read_text())) if hasattr(x, "name")}
            written |= {x.id for x in ast.walk(ast.parse(beside.read_text())) if isinstance(x, ast.Name)}
            written |= {name for _, taken in imported(beside) for name in taken}
            assert {*names} <= written


def test_every_script_is_run() -> None:
    assert list(SHORT) == SCRIPTS
    elsewhere = "".join(
        (ROOT / "tests" / f"test_{x}.py").read_text() for x in ("experiments", "learning", "gpu_benchmark")
    )
    for name, arguments in SHORT.items():
        assert (
            arguments is not None
            or f'script("{Path(name).stem}")' in elsewhere
            or name == "benchmarks/gpu.py"
        )


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, arguments in SHORT.items() if arguments is not None])
def test_script(name: str, tmp_path: Path) -> None:
    """By itself as a user runs it, in a terminal of 80 columns; its figures are those that the pages show."""
    for module, _ in imported(ROOT / name, needed=True):
        if module.partition(".")[0] not in {"ukjax", *(x.stem for x in FILES)}:
            pytest.importorskip(module.partition(".")[0])
    # Past a flat position figures depend on roundings: XLA then compiles as it does for users.
    as_users = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "false"} if Path(name).stem in COMPARED else {}
    run = subprocess.run(
        [sys.executable, str(ROOT / name), *(SHORT[name] or [])],
        env={**os.environ, "COLUMNS": "80", "PYTHONPATH": str(ROOT)} | as_users,
        cwd=tmp_path, capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    if "is missing: pip install" in run.stderr:  # of CUDA, or another program
        pytest.skip(run.stderr.splitlines()[-1])
    assert run.returncode == 0, run.stderr[-3000:]
    assert not any(line.rstrip().endswith("…") for line in run.stdout.splitlines())
    check_figures(run.stdout, COMPARED.get(Path(name).stem, 0))


# --- What compares figures


def table(*rows: str) -> str:
    return "\n".join(
        ["| method | stabilizer | NFUNC | error of θ | CPU [s] |", "|---|---|---:|---:|---:|", *rows, ""]
    )


def test_tables_are_as_wide_as_their_figures() -> None:
    shown = tables.Table("A title", "method", *(f"a column of many words, {i}" for i in range(20)))
    shown.add_row("SVD", *(f"{10**i:,}" for i in range(20)))
    (block,) = tables.blocks(str(shown))
    assert [*block.rows["SVD",].values()][1:] == [f"{10**i:,}" for i in range(20)]


def test_differences_of_figures() -> None:
    shown = "Some words.\n\n" + table(
        "| SVD | none | 7,332 | 4e-9 | 1.2 |", "| QR | none | 800 | correct | 3 |"
    )
    same = table("| SVD | none | 7,340 | 5e-9 | 9.9 |")
    assert tables.differences(same, shown) == (2, [])
    count, others = tables.differences(
        table("| SVD | none | 9,000 | 6e-9 | 9 |", "| QR | none | 800 | lost | 3 |"), shown
    )
    assert count == 4
    assert sorted(others) == [
        "QR, none: error of θ: lost printed, correct shown",
        "SVD, none: NFUNC: 9,000 printed, 7,332 shown",
        "SVD, none: error of θ: 6e-9 printed, 4e-9 shown",
    ]
    assert tables.replaced(same, shown) == "Some words.\n\n" + same
