"""Models of a user's own on the command line: a function of a file or of a module, in every command."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import ukjax as uk
from ukjax._cli import _commands as cli

MODEL = '''
import math
import beside
import ukjax as uk
import ukjax.mechanisms as um

def hoop(radius: float = 1.0, mass=1.0, closed: bool = True, beads: int = 1, wire: str = "hoop", turns=1):
    """A bead on a hoop, let go beside its centre."""
    assert (type(closed), type(beads), type(wire)) == (bool, int, str)
    bead = um.PointMass("bead", mass, (radius, 0.0))
    rod = um.Distance(wire, "ground", "bead", (0.0, 0.0), (radius, 0.0))
    return um.problem(um.assemble([bead], [rod], [um.Gravity((0.0, -beside.GRAVITY))]), t1=0.3 * turns)

def named():
    problem = hoop()
    return uk.Problem(problem.system, problem.q0, problem.v0, 0.0, 0.1, name="bead")

def needs(length):
    return hoop(radius=length)

def number():
    return 3

def divides():
    return 1 / 0

def refused():
    return um.PointMass("bead", -1.0, (0.0, 0.0))

def fails_later():
    problem = hoop()
    system = uk.System(problem.system.mass_matrix, lambda t, q, v: math.sqrt(q[0]) * q)
    return uk.Problem(system, problem.q0, problem.v0, 0.0, 0.1)

def classed():
    problem = hoop()
    system = uk.System(problem.system.mass_matrix, problem.system.force, problem.system.constraints)
    return uk.Problem(system, problem.q0, problem.v0, 0.0, 0.1)

constant = 3.0
'''
SHORT = ["--times", "3", "--solver", "tsit5"]


@pytest.fixture(autouse=True)
def folder(own_folder: Path) -> Path:
    (own_folder / "mymodel.py").write_text(MODEL)
    (own_folder / "beside.py").write_text("GRAVITY = 9.81\n")
    (own_folder / "syntax.py").write_text("import ukjax\n\ndef hoop(:\n")
    (own_folder / "imports.py").write_text("import no_such_library\n")
    (own_folder / "package").mkdir()
    (own_folder / "package" / "models.py").write_text("from mymodel import hoop\n")
    return own_folder


def ukjax(*args: str) -> Result:
    return CliRunner().invoke(cli.app, args, env={"COLUMNS": "200"})


def figures(*args: str) -> dict:
    result = ukjax(*args, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    return json.loads(result.stdout)


def test_simulate_and_check() -> None:
    found = figures("simulate", "mymodel.py:hoop", *SHORT, "--set", "radius=2", "--set", "turns=0.5")
    assert (found["model"], found["t1"], found["result"]) == ("hoop", 0.15, "successful")
    assert np.hypot(*found["points"]["bead"]) == pytest.approx(2.0, abs=1e-12)
    fall = 0.5 * 9.81 * 0.15**2  # as long as the hoop is nearly upright
    assert found["points"]["bead"][1] == pytest.approx(-fall, rel=1e-2)
    set_all = ["--set", "closed=false", "--set", "beads=2", "--set", "wire=1.50"]
    report = figures("check", "package.models:hoop", *set_all)
    assert (report["model"], report["rows"]) == ("hoop", ["1.50"])
    assert figures("check", "mymodel.py:named")["model"] == "bead"
    assert figures("check", "mymodel.py:classed")["model"] == "classed"
    assert figures("check", "mymodel.py:needs", "--set", "length=2")["ok"]


def test_sweep_tune_and_bench() -> None:
    varied = ["--grid", "radius=1,2", "--output", "energy_drift", "--no-progress", *SHORT]
    swept = figures("sweep", "mymodel.py:hoop", "--set", "mass=2", *varied)
    assert (swept["model"], swept["runs"], swept["failed"]) == ("hoop", 2, 0)
    assert {swept["outputs"]["energy_drift"][at]["radius"] for at in ("at_min", "at_max")} == {1.0, 2.0}
    assert "beads changes the structure" in ukjax("sweep", "mymodel.py:hoop", "--grid", "beads=1,2").stderr
    few = ["--starts", "2", "--iterations", "1", "--t1", "0.1", "--no-progress"]
    assert figures("tune", "mymodel.py:hoop", *few)["model"] == "hoop"


@pytest.mark.slow
def test_bench_of_a_problem() -> None:
    """The pendulum's mass goes as elliptic functions say; without them it is compared with a tighter run."""
    problem = uk.models.pendulum()
    problem = uk.Problem(problem.system, problem.q0, problem.v0, 0.0, 1.0, name="swing")
    (own,) = uk.bench(problem, tolerances=[1e-4, 1e-8])
    assert (own.problem, own.reference) == ("swing", "its own run at 1e-12")
    run = uk.simulate(problem, rtol=1e-4, atol=1e-4, ts=41)
    exact = uk.simulate(problem, rtol=1e-12, atol=1e-12, ts=41)
    assert own.error[0] == pytest.approx(np.abs(run.q - exact.q).max(), rel=1e-3)
    assert own.error[1] < 1e-3 * own.error[0]
    (known,) = uk.bench(uk.models.knife_edge(), tolerances=[1e-6])
    assert known.reference == "its closed form"
    assert 0 < known.error[0] < 1e-4


BAD = {
    "no file": ("mymodl.py:hoop", "there is no file 'mymodl.py'; did you mean 'mymodel.py'?"),
    "no folder": ("nowhere/mymodel.py:hoop", "there is no file 'nowhere/mymodel.py'."),
    "no module": ("mymodl:hoop", "there is no module 'mymodl'"),
    "no module in a package": ("package.nothing:hoop", "there is no module 'package.nothing'"),
    "no function": (
        "mymodel.py:hop",
        "unknown function of mymodel.py 'hop'; did you mean 'hoop'? Known: hoop,",
    ),
    "no colon": ("mymodel.py", "'mymodel.py' names no function: give file and function"),
    "no name": ("mymodel.py:", "names no function"),
    "no model": ("mymodel.py:constant", "constant in mymodel.py is of type float; a model is a function"),
    "no problem": (
        "mymodel.py:number",
        "number in mymodel.py returned something of type int; a model returns",
    ),
    "no value": ("mymodel.py:needs", "mymodel.py:needs needs length, which has no default"),
    "an exception": ("mymodel.py:divides", "mymodel.py, line 25: ZeroDivisionError: division by zero"),
    "an exception in a run": ("mymodel.py:fails_later", "the force of System makes a Python number"),
    "an error of ukjax": (
        "mymodel.py:refused",
        "mymodel.py, line 28: the mass of body 'bead' must be greater",
    ),
    "syntax": ("syntax.py:hoop", "syntax.py, line 3: SyntaxError: invalid syntax"),
    "an import": ("imports.py:hoop", "imports.py, line 1: ModuleNotFoundError: No module named 'no_such_lib"),
}


@pytest.mark.parametrize(("name", "words"), BAD.values(), ids=BAD)
def test_bad_models_are_one_line(name: str, words: str) -> None:
    result = ukjax("simulate", name)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert result.stderr.startswith("error: ")
    assert words in result.stderr


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        ("radius=wide", "radius must be a number, not 'wide'"),
        ("mass=true", "mass must be a number, not True"),
        ("closed=1", "closed must be true or false, not 1"),
        ("beads=1.5", "beads must be an integer, not 1.5"),
        ("beads=true", "beads must be an integer, not True"),
        ("radus=2", "unknown parameter of mymodel.py:hoop 'radus'; did you mean 'radius'?"),
    ],
)
def test_values_are_of_the_kind_the_function_says(pair: str, words: str) -> None:
    result = ukjax("check", "mymodel.py:hoop", "--set", pair)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert words in result.stderr


def test_a_file_does_not_take_the_place_of_a_module(folder: Path) -> None:
    (folder / "json.py").write_text("from mymodel import hoop\n")
    assert figures("check", "json.py:hoop")["ok"]
    assert sys.modules["json"] is json
