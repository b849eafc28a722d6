"""The command line: what it prints, what it writes, its exit status, and its one line for bad input."""

import dataclasses
import importlib.util
import inspect
import json
import os
import platform
import re
import signal
import subprocess
import sys
import time
import tomllib
import urllib.request
from pathlib import Path

import diffrax as dfx
import equinox as eqx
import jax
import numpy as np
import pytest
from typer.testing import CliRunner, Result

import ukjax as uk
from ukjax._cli import _commands as cli
from ukjax._cli._options import solvers
from ukjax.models import MODELS

ROOT = Path(__file__).parent.parent
SHORT = ["--t1", "0.2", "--times", "5", "--solver", "tsit5"]


@pytest.fixture(autouse=True)
def _double_precision():
    yield
    jax.config.update("jax_enable_x64", True)


def ukjax(*args: str) -> Result:
    return CliRunner().invoke(cli.app, args, env={"COLUMNS": "200"})


def strict(text: str) -> dict:
    """The one JSON object of a text without NaN or Infinity."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    assert text.count("\n") == 1
    return json.loads(text, parse_constant=refuse)


def test_simulate_prints_one_object() -> None:
    result = ukjax("simulate", "pendulum", *SHORT, "--set", "length=2", "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    figures = strict(result.stdout)
    contract = (
        "model t1 steps max_position_error max_velocity_error energy_drift rank_min rank_max points result"
    )
    assert set(figures) == {
        *contract.split(),
        "evaluations",
        "message",
        "wall_time",
        "start_moved",
        "event",
        "broken_rows",
        "rejected_steps",
        "least_sine",
        "nearly_dependent",
    }
    assert (figures["model"], figures["t1"], figures["result"]) == ("pendulum", 0.2, "successful")
    assert figures["rank_min"] == figures["rank_max"] == 1
    assert figures["steps"] > 0
    assert figures["max_position_error"] < 1e-12
    assert figures["max_velocity_error"] < 1e-12
    assert figures["energy_drift"] < 1e-5
    assert figures["message"] == ""
    assert np.hypot(*figures["points"]["mass"]) == pytest.approx(2.0, abs=1e-12)


def test_simulate_prints_a_table() -> None:
    result = ukjax("simulate", "knife_edge", *SHORT)
    assert (result.exit_code, result.stderr) == (0, "")
    for words in ("knife_edge", "successful", "max. velocity error", "rank", "evaluations", "compiling"):
        assert words in result.stdout


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--formula", "udwadia-kalaba"], (None, uk.Projection(), dfx.Dopri8())),
        (
            ["--formula", "udwadia-kalaba", "--rcond", "1e-3"],
            (
                uk.UdwadiaKalaba(uk.GramSchmidt(1e-3)),
                uk.Projection(dataclasses.replace(uk.Projection().pinv, rcond=1e-3)),
                dfx.Dopri8(),
            ),
        ),
        (["--method", "svd"], (uk.UdwadiaKalaba(uk.SVD()), uk.Projection(), dfx.Dopri8())),
        (
            ["--method", "HouseholderQR", "--formula", "Schur", "--rcond", "1e-3", "--solver", "Kvaerno5"],
            (
                uk.Schur(uk.HouseholderQR(1e-3)),
                uk.Projection(dataclasses.replace(uk.Projection().pinv, rcond=1e-3)),
                dfx.Kvaerno5(),
            ),
        ),
        (
            ["--method", "Gram-Schmidt", "--stabilizer", "baumgarte", "--alpha", "3", "--beta", "5"],
            (uk.UdwadiaKalaba(uk.GramSchmidt()), uk.Baumgarte(3.0, 5.0), dfx.Dopri8()),
        ),
        (
            ["--method", "greville", "--stabilizer", "Baumgarte-Squared", "--alpha", "3", "--beta", "5"],
            (uk.UdwadiaKalaba(uk.Greville()), uk.Baumgarte(6.0, 25.0), dfx.Dopri8()),
        ),
        (
            ["--method", "cholesky", "--stabilizer", "none", "--solver", "heun"],
            (uk.UdwadiaKalaba(uk.Cholesky()), uk.NoStabilizer(), dfx.Heun()),
        ),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_options_become_arguments(options, expected, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {}

    def note(problem, **settings):
        given.update(settings)
        raise uk.InputError("noted")

    monkeypatch.setattr(uk, "simulate", note)
    ukjax("simulate", "pendulum", *options, "--rtol", "1e-6", "--dt0", "0.1", "--max-steps", "7")
    assert eqx.tree_equal((given["formula"], given["stabilizer"], given["solver"]), expected)
    rest = {"t1": None, "dt0": 0.1, "rtol": 1e-6, "atol": None, "max_steps": 7, "ts": None, "progress": False}
    assert {name: given[name] for name in rest} == rest


def test_single_precision() -> None:
    figures = strict(ukjax("simulate", "pendulum", *SHORT, "--float32", "--json").stdout)
    assert figures["points"]["mass"][0] == np.float32(figures["points"]["mass"][0])


def test_a_run_that_ends_early() -> None:
    result = ukjax("simulate", "pendulum", "--max-steps", "3", "--solver", "tsit5", "--json")
    assert result.exit_code == 1
    figures = strict(result.stdout)
    assert figures["result"] == "max_steps_reached"
    assert 0 < figures["t1"] < 10
    assert figures["message"].startswith("The maximum number of solver steps was reached.")
    assert figures["message"] in result.stderr
    result = ukjax("simulate", "pendulum", "--max-steps", "3", "--solver", "tsit5")
    assert result.exit_code == 1
    assert "max_steps_reached" in result.stdout
    assert "It stopped at" in result.stderr


def test_a_run_without_finite_numbers_is_still_json(monkeypatch: pytest.MonkeyPatch) -> None:
    summary = {"model": "pendulum", "energy_drift": float("nan"), "max_position_error": float("inf")}
    monkeypatch.setattr(uk.Trajectory, "summary", lambda self: summary)
    figures = strict(ukjax("simulate", "pendulum", *SHORT, "--json").stdout)
    assert figures["energy_drift"] is None
    assert figures["max_position_error"] is None


def test_list() -> None:
    result = ukjax("list", "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    models = {entry["model"]: entry for entry in strict(result.stdout)["models"]}
    assert list(models) == list(MODELS)
    assert models["scara"]["coordinates"] == models["scara"]["rows"] == 4
    assert models["parallelogram"]["rows"] == 12
    assert "Xu" in models["scara"]["citation"]
    assert models["scara"]["description"].startswith("The SCARA arm")
    table = ukjax("list").stdout
    assert all(name in table for name in MODELS)


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_the_list_is_what_the_models_are(every: int) -> None:
    """The command reads a file, since to build all models takes seconds, and to count their rows some more."""
    kept = json.loads((Path(cli.__file__).parent / "catalogue.json").read_text("utf-8"))
    listed, found = {x["model"]: x for x in kept}, []
    for i, (name, model) in enumerate(MODELS.items()):
        figures = listed.get(name)
        if figures is None or i % every == 0:
            problem = eqx.filter_eval_shape(model)
            figures = {"coordinates": problem.q0.size, "rows": count_of_rows(model)}
            figures |= {"description": "", "citation": problem.citation}
        found.append({"model": name} | figures | {"description": inspect.getdoc(model).partition("\n")[0]})
    assert kept == found, f"write to catalogue.json: {json.dumps(found, indent=1, ensure_ascii=False)}"


def count_of_rows(model) -> int:
    def rows():
        problem = model()
        return uk.constraint_rows(problem.system, problem.t0, problem.q0, problem.v0)

    return len(eqx.filter_eval_shape(rows).names)


def test_check() -> None:
    result = ukjax("check", "slider_crank")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == f"{uk.check(uk.models.slider_crank())}\n"
    report = strict(ukjax("check", "slider_crank", "--json").stdout)
    assert "problem" not in report
    assert (report["model"], report["ok"], report["rank"]) == ("slider_crank", True, 8)
    assert report["degrees_of_freedom"] == 1
    assert ["wrist pin[0]", "wrist pin, second bearing[0]"] in report["redundant"]
    assert len(report["consistent_state"]["q"]) == 9
    assert len(strict(ukjax("check", "n_pendulum", "--set", "n=5", "--json").stdout)["rows"]) == 5


@pytest.mark.parametrize("suffix", [".npz", ".nc", ".zarr"])
def test_files_load_back(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"run{suffix}"
    result = ukjax("simulate", "pendulum", *SHORT, "--out", str(path), "--json")
    assert result.exit_code == 0, result.stderr
    trajectory = uk.Trajectory.load(path)
    assert len(trajectory) == 5
    assert {
        k: v for k, v in strict(result.stdout).items() if k in trajectory.summary()
    } == trajectory.summary()


def test_every_step_can_be_saved_and_drawn(tmp_path: Path) -> None:
    figure, data = tmp_path / "run.png", tmp_path / "run.npz"
    options = ["--t1", "0.2", "--solver", "heun", "--dt0", "0.01", "--save-steps", "--json"]
    result = ukjax(
        "simulate", "pendulum", *options, "--rtol", "1e-3", "--plot", str(figure), "--out", str(data)
    )
    assert result.exit_code == 0, result.stderr
    assert figure.read_bytes().startswith(b"\x89PNG")
    trajectory = uk.Trajectory.load(data)
    assert len(trajectory) == trajectory.stats["num_accepted_steps"] + 1
    assert trajectory.stats["num_steps"] == strict(result.stdout)["steps"]


PENDULUM = ["simulate", "pendulum"]
BAD_INPUT = {
    "unknown command": (["simulat", "pendulum"], "No such command 'simulat'"),
    "unknown option": ([*PENDULUM, "--wrong"], "--wrong"),
    "no model": (["simulate"], "NAME"),
    "not a number": ([*PENDULUM, "--t1", "long"], "--t1"),
    "unknown model": (["simulate", "pendulumm"], "did you mean 'pendulum'? Known: scara"),
    "unknown model to check": (["check", "scarra"], "did you mean 'scara'?"),
    "unknown parameter": ([*PENDULUM, "--set", "lenght=2"], "did you mean 'length'? Known: mass"),
    "no value": ([*PENDULUM, "--set", "length"], "--set takes KEY=VALUE"),
    "empty value": ([*PENDULUM, "--set", "length="], "--set takes KEY=VALUE"),
    "no key": ([*PENDULUM, "--set", "=2"], "--set takes KEY=VALUE"),
    "set twice": ([*PENDULUM, "--set", "length=2", "--set", "length=3"], "given twice"),
    "not a number to set": ([*PENDULUM, "--set", "length=long"], "length must be a number"),
    "NaN to set": ([*PENDULUM, "--set", "length=NaN"], "length must be a finite number"),
    "infinity to set": ([*PENDULUM, "--set", "length=1e999"], "length must be a finite number"),
    "huge integer to set": ([*PENDULUM, "--set", "length=1" + 400 * "0"], "length must be"),
    "negative length": ([*PENDULUM, "--set", "length=-1"], "length must be greater than 0"),
    "end before start": ([*PENDULUM, "--t1", "0"], "must be later than t0"),
    "end is NaN": ([*PENDULUM, "--t1", "nan"], "t1 must be finite"),
    "negative gain": (
        [*PENDULUM, "--stabilizer", "baumgarte", "--alpha", "-1", "--beta", "1"],
        "alpha must be finite and not negative",
    ),
    "gain is missing": ([*PENDULUM, "--stabilizer", "baumgarte", "--alpha", "1"], "needs both gains"),
    "gain of a projection": ([*PENDULUM, "--alpha", "1"], "gains of baumgarte, not of projection"),
    "unknown method": ([*PENDULUM, "--method", "SDV"], "did you mean 'svd'? Known: svd, complete-orthogonal"),
    "unknown formula": ([*PENDULUM, "--formula", "shur"], "did you mean 'schur'?"),
    "unknown solver": ([*PENDULUM, "--solver", "dopri9"], "Known: bosh3, dopri5, dopri8"),
    "stochastic solver": ([*PENDULUM, "--solver", "itomilstein"], "unknown solver"),
    "unknown stabilizer": ([*PENDULUM, "--stabilizer", "baumgart"], "did you mean 'baumgarte'?"),
    "rank threshold": ([*PENDULUM, "--rcond", "0"], "rcond must be"),
    "tolerance": ([*PENDULUM, "--rtol", "0"], "rtol must lie between 0 and 1"),
    "step": ([*PENDULUM, "--dt0", "-0.1"], "dt0 must be a positive time"),
    "fixed step missing": ([*PENDULUM, "--solver", "euler"], "needs dt0"),
    "no steps": ([*PENDULUM, "--max-steps", "0"], "max_steps must be an integer of at least 1"),
    "one time": ([*PENDULUM, "--times", "1"], "at least 2"),
    "times and steps": ([*PENDULUM, "--times", "9", "--save-steps"], "leave out --times"),
    "format": ([*PENDULUM, "--out", "run.txt"], "must end in .npz, .nc or .zarr"),
    "format of a figure": ([*PENDULUM, "--plot", "run.txt"], "must end in .png, .pdf, .svg"),
    "no folder": ([*PENDULUM, "--plot", "nowhere/run.png"], "there is no folder 'nowhere'"),
    "no gains": (
        ["tune", "scara", "--stabilizer", "projection"],
        "baumgarte and baumgarte-squared have gains",
    ),
    "optimizer": (["tune", "scara", "--optimizer", "adm"], "did you mean 'adam'?"),
    "gain to tune": (["tune", "scara", "--alpha", "0"], "the gain alpha must be positive to be tuned"),
    "nothing to tune": (["tune", "two_mass_spring"], "no constraints that could be violated"),
    "checkpoint": (["tune", "scara", "--checkpoint", "x.pkl"], "a checkpoint is an .npz file"),
}


@pytest.mark.parametrize(("args", "words"), BAD_INPUT.values(), ids=BAD_INPUT)
def test_bad_input_is_one_line(args: list[str], words: str) -> None:
    result = ukjax(*args)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert words in result.stderr


@pytest.mark.parametrize(
    ("module", "options", "extra"),
    [
        ("matplotlib", ["--plot", "run.png"], "plot"),
        ("h5netcdf", ["--out", "run.nc"], "data"),
        ("zarr", ["--out", "run.zarr"], "data"),
        ("tqdm", ["--progress"], "progress"),
    ],
)
def test_missing_extras_are_named_before_the_run(
    module: str, options: list[str], extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    result = ukjax(*PENDULUM, *options)
    assert result.exit_code == 2
    assert result.stderr.endswith(f"install it with `pip install 'ukjax[{extra}]'`.\n")


@pytest.mark.slow
def test_every_solver_offered_can_be_used() -> None:
    problem = uk.models.pendulum()
    for name, solver in solvers().items():
        dt0 = None if name in ("dopri5", "kvaerno3") else 0.01
        shape = jax.eval_shape(
            lambda q, s=solver, h=dt0: uk.simulate(problem, q, t1=0.1, dt0=h, solver=s()).q, problem.q0
        )
        assert shape.shape == (201, 2)


def test_tune_prints_one_object(monkeypatch: pytest.MonkeyPatch) -> None:
    tune, asked = uk.tune, []

    def noting(*args, **settings):
        """The second time, what was found the first time."""
        found = asked[0][-1] if asked else tune(*args, **settings)
        asked.append((args, settings, found))
        return found

    monkeypatch.setattr(uk, "tune", noting)
    options = ["--t1", "0.5", "--off", "0.01", "--samples", "3", "--starts", "4", "--iterations", "3"]
    result = ukjax("tune", "pendulum", *options, "--no-progress", "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    figures = strict(result.stdout)
    assert set(figures["gains"]) == {"alpha", "beta"}
    assert figures["loss"] < figures["loss_before"]
    assert figures["improvement"] == pytest.approx(figures["loss_before"] / figures["loss"])
    assert figures["evaluations"] == 3 * (6 * 50 + 1)
    table = ukjax("tune", "pendulum", *options, "--stabilizer", "baumgarte-squared", "--method", "SVD")
    assert table.exit_code == 0
    for words in ("pendulum", "alpha", "beta", "times less than", "iterations"):
        assert words in table.stdout
    (_, gains, _), settings, _ = asked[1]
    assert eqx.tree_equal(gains, uk.Baumgarte.squared(0.25, 200.0**0.5))
    assert (settings["convention"], settings["formula"]) == ("squared", uk.UdwadiaKalaba(uk.SVD()))


def test_help() -> None:
    assert "simulate" in ukjax().stdout
    assert ukjax("--help").exit_code == ukjax("simulate", "--help").exit_code == 0
    assert ukjax("--version").stdout.startswith("ukjax 0.")


# What a shell starts in the background ignores interrupts, and so would these.
AS_MODULE = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("ukjax", run_name="__main__", alter_sys=True)
"""


def process(tmp_path: Path, *args: str, **env: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", AS_MODULE, *args],
        cwd=tmp_path,
        env=os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache"), "UKJAX_CACHE": ""} | env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_a_second_process_finds_the_programs_of_the_first(tmp_path: Path) -> None:
    found = []
    for length in ("1.5", "2.5"):
        command = *PENDULUM, *SHORT, "--set", f"length={length}", "--json", "--formula", "null-space"
        run = process(tmp_path, *command, JAX_COMPILATION_CACHE_DIR="")
        out, _ = run.communicate(timeout=300)
        assert run.returncode == 0
        strict(out)
        found.append(
            {path.name for path in (tmp_path / "cache" / "ukjax").rglob("*") if "atime" not in path.name}
        )
    assert any(name.endswith(".kept") for name in found[0]), "no program was kept"
    assert found[0] == found[1], "the second run compiled again"


def test_the_cache_is_told_and_emptied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UKJAX_CACHE", str(tmp_path / "kept"))
    folder = tmp_path / "kept" / "programs"
    folder.mkdir(parents=True)
    (folder / "a.kept").write_bytes(bytes(1000))
    (folder / "of others").write_bytes(bytes(10))
    told = {"folder": str(tmp_path / "kept"), "files": 1, "bytes": 1000}
    assert strict(ukjax("cache", "--json").stdout) == told
    assert ukjax("cache").stdout == f"{tmp_path / 'kept'}: 1 file, 0.0 MB\n"
    assert strict(ukjax("cache", "--clear", "--json").stdout) == told | {"files": 0, "bytes": 0}
    assert [x.name for x in folder.iterdir()] == ["of others"]
    monkeypatch.setenv("UKJAX_CACHE", "off")
    assert ukjax("cache").stdout == "UKJAX_CACHE=off: nothing is kept\n"
    assert strict(ukjax("cache", "--json").stdout) == {"folder": None, "files": 0, "bytes": 0}


def test_no_traceback_from_a_real_process(tmp_path: Path) -> None:
    run = process(tmp_path, "simulate", "nothing", UKJAX_CACHE="0")
    out, err = run.communicate(timeout=300)
    assert (run.returncode, out) == (2, "")
    assert err.startswith("error: unknown model 'nothing'")
    assert err.count("\n") == 1
    assert not (tmp_path / "cache").exists()


def test_progress_goes_to_standard_error() -> None:
    result = ukjax(*PENDULUM, *SHORT, "--progress", "--json")
    assert result.exit_code == 0
    strict(result.stdout)
    assert "100.00%" in result.stderr


def test_view_opens_the_picture_in_the_browser(tmp_path: Path) -> None:
    """Of a robot's file; the browser is a program that writes down what it is asked to open."""
    browser, asked = tmp_path / "xdg-open", tmp_path / "asked"
    browser.write_text(f"#!/bin/sh\necho $1 > {asked}\n")
    browser.chmod(0o755)
    robot = ROOT / "experiments" / "robots" / "robotiq_2f85.xml"
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    run = process(tmp_path, "simulate", str(robot), "--t1", "0.01", "--view", DISPLAY=":0", PATH=path)
    for _ in range(600):
        if asked.exists() and asked.read_text():
            break
        time.sleep(0.1)
    with urllib.request.urlopen(asked.read_text().strip(), timeout=60) as page:
        assert b"Dual_wrist_camera" in page.read()
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=60)
    assert run.returncode == 0


def test_every_command_can_print_json() -> None:
    commands = re.findall(r"^│ (\w+) ", ukjax("--help").stdout.partition("Commands")[2], re.MULTILINE)
    assert {"list", "simulate", "cache"} <= set(commands)
    assert [x for x in commands if "--json" not in ukjax(x, "--help").stdout] == []


def test_interrupt(tmp_path: Path) -> None:
    run = process(tmp_path, "simulate", "pendulum", "--t1", "1e9", "--max-steps", "1000000000",
                  UKJAX_CACHE="0", PYTHONUNBUFFERED="1", JAX_LOG_COMPILES="1")  # fmt: skip
    assert run.stderr is not None
    assert run.stderr.readline()  # it has come as far as to compile; the run takes hours
    time.sleep(0.6)
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=60)
    assert run.returncode == 130
    assert out == ""
    assert err.endswith("interrupted\n")
    assert "Traceback" not in err


def test_doctor_says_what_is_there_and_what_is_missing():
    facts = strict(CliRunner().invoke(cli.app, ["doctor", "--json"]).stdout)
    assert facts["versions"]["jax"] == jax.__version__
    assert facts["python"] == platform.python_version()
    assert ("torch" in facts["missing_extras"]) == (importlib.util.find_spec("torch") is None)
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    assert set(cli._EXTRAS) == extras - {"all", "bench", "docs", "test", "dev"}


def test_an_unknown_model_is_refused_before_jax_is_loaded():
    code = (
        "import sys; from ukjax._cli._commands import main\ntry: main()\nfinally: print('jax' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "simulate", "pendulm"], capture_output=True, text=True, check=False
    )
    assert "did you mean 'pendulum'" in done.stderr
    assert done.stdout.strip() == "False"
