"""`bench`: its references against other computations, and what it measures of the pendulum."""

import dataclasses
import json
from pathlib import Path

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from benchmark_oracles import bricard_corners
from oracles import integrate
from scipy.integrate import solve_ivp
from typer.testing import CliRunner, Result

import ukjax as uk
from ukjax._cli import _commands as cli
from ukjax._cli._bench import _table
from ukjax._cli._benchmark import CASES, _references
from ukjax._cli._benchmark._run import _simulate_compiled
from ukjax._cli._terminal import show

G = 9.81


@pytest.fixture(scope="module")
def result() -> uk.BenchResult:
    (found,) = uk.bench(["pendulum"], tolerances=(1e-6, 1e-9))
    return found


def ukjax(*args: str) -> Result:
    return CliRunner().invoke(cli.app, ["bench", *args], env={"COLUMNS": "250"})


# References


@pytest.mark.parametrize(
    ("name", "t1", "w2", "angle", "rate"),
    [
        ("parallelogram", 5.0, 3.5 * G / 3.05, np.pi / 3, 0.0),
        ("four_bars", 5.0, G * 2 / (5 / 3), np.pi / 2, -1.0),
        ("four_bars_10", 5.0, G * 15.5 / (41 / 3), np.pi / 2, -1.0),
    ],
)
def test_closed_forms_solve_their_equations(name, t1, w2, angle, rate) -> None:
    ts = np.linspace(0.0, t1, 21)
    theta = integrate(lambda x, v: -w2 * np.cos(x), angle, rate, ts)[0][:, 0]
    expected = np.stack([np.cos(theta), np.sin(theta)], axis=1)
    np.testing.assert_allclose(CASES[name].reference(ts), expected, atol=1e-9)


def test_the_pendulum_solves_its_equation() -> None:
    ts = np.linspace(0.0, 10.0, 21)
    angle = integrate(lambda x, v: -G * np.sin(x), np.pi / 3, 0.0, ts)[0][:, 0]
    expected = np.stack([np.sin(angle), -np.cos(angle)], axis=1)
    np.testing.assert_allclose(_references.pendulum(ts), expected, atol=1e-9)


def test_the_arm_holds_the_tool_on_its_path() -> None:
    """Forward kinematics of the joints give eq. (40)."""
    ts = np.linspace(0.0, 20.0, 41)
    q1, q2, q3, q4 = _references.scara(ts).T
    w = 0.4 * np.pi
    np.testing.assert_allclose(-0.2 * np.sin(q1) - 0.25 * np.sin(q1 + q2), 0.05 * np.sin(w * ts), atol=1e-14)
    np.testing.assert_allclose(
        0.2 * np.cos(q1) + 0.25 * np.cos(q1 + q2), 0.35 + 0.05 * np.cos(w * ts), atol=1e-14
    )
    np.testing.assert_allclose(q1 + q2 + q3, 0.0, atol=1e-14)
    np.testing.assert_allclose(q4, 0.02 * ts, atol=1e-15)


def test_bricard_keeps_its_lengths_and_its_energy() -> None:
    """From rest: no kinetic energy where the potential is that of the start, and never more potential."""
    for a, b in [(0.0, 0.0), (0.3, np.arcsin(1 - 1 / (1 - np.sin(0.3))))]:
        np.testing.assert_allclose(_references.bricard_corners(a, b), bricard_corners(a, b)[0], atol=1e-15)
        np.testing.assert_allclose(bricard_corners(a, b)[1], 0.0, atol=1e-14)
    ts = np.linspace(0.0, 1.0, 2001)
    rates = _references._bricard_rates
    y = solve_ivp(rates, (0.0, 1.0), np.zeros(3), "Radau", t_eval=ts[::200], rtol=1e-9, atol=1e-11).y
    energy = []
    for a, b, rate in y.T:
        corners = _references.bricard_corners(a, b)
        v, height = corners[1] * rate, corners[0][:, 1]
        centres = (v[:-1] + v[1:]) / 2
        turning = (v[1:] - v[:-1]) / np.sqrt(12.0)
        energy.append(0.5 * np.sum(centres**2 + turning**2) + G * np.sum(height[:-1] + height[1:]) / 2)
    np.testing.assert_allclose(energy, energy[0], atol=1e-7)
    np.testing.assert_allclose(
        _references.bricard(ts[::200])[-1], _references.bricard_corners(*y[:2, -1])[0, 2], atol=1e-7
    )


def test_the_governor_by_another_integrator() -> None:
    ts = np.linspace(0.0, 2.0, 11)
    y0 = [0.5, np.pi / 6, 0.0, 0.0]
    s = solve_ivp(_references._flyball_rates, (0, 2), y0, "Radau", t_eval=ts, rtol=1e-8, atol=1e-10).y[0]
    np.testing.assert_allclose(_references.flyball_governor(ts)[:, 0], s, atol=1e-6)


# Measurements


def test_the_pendulum_is_measured(result) -> None:
    """Errors are those of the mass along the same run, computed here by SciPy."""
    assert result.result == ["successful"] * 2
    for error, end_error, tolerance in zip(result.error, result.end_error, result.rtol, strict=True):
        run = _simulate_compiled(uk.models.pendulum(), dfx.Dopri8(), jnp.asarray(tolerance), 10.0)
        ts, q = np.asarray(run.t)[:41], np.asarray(run.q)[:41]
        angle = integrate(lambda x, v: -G * np.sin(x), np.pi / 3, 0.0, ts)[0][:, 0]
        wrong = np.abs(q - np.stack([np.sin(angle), -np.cos(angle)], axis=1))
        assert error == pytest.approx(wrong.max(), rel=1e-3, abs=1e-10)
        assert end_error == pytest.approx(wrong[-1].max(), rel=1e-3, abs=1e-10)
    assert result.error[1] < 1e-6
    assert result.error[1] < result.error[0]
    assert result.energy_drift[1] < 1e-6
    assert max(result.position_error) < 1e-12
    assert result.steps[0] < result.steps[1]
    assert all(x > 0 for x in (result.cold, *result.warm))


def test_the_command_prints_and_writes_the_same(tmp_path: Path) -> None:
    done = ukjax("pendulum", "--quick", "--no-progress", "--json", "--out", str(tmp_path / "new"))
    assert (done.exit_code, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert report == json.loads((tmp_path / "new" / "bench.json").read_text())
    (found,) = report["results"]
    fields = "problem quantity unit reference t1 solver cold rtol error end_error warm steps evaluations"
    fields += " energy_drift position_error velocity_error result peers peers_source"
    assert set(found) == set(fields.split())
    assert found["rtol"] == [1e-6, 1e-8]
    assert found["error"][1] < 1e-6
    assert {"processor", "cores", "jax"} <= set(report["machine"])
    assert (tmp_path / "new" / "work_precision.png").read_bytes().startswith(b"\x89PNG")


def test_the_table_says_where_figures_were_measured(result, monkeypatch, capsys) -> None:
    peers = list(CASES["four_bars"].peers)
    monkeypatch.setenv("COLUMNS", "80")
    show(_table(dataclasses.replace(result, peers=peers)))
    text = capsys.readouterr().out
    assert text.count("elsewhere") == len(peers) == 8
    assert text.count(" here ") == 2
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("columns", [20, 80])
def test_tables_lose_no_figure(result, monkeypatch, capsys, columns) -> None:
    """Long figures in a narrow terminal: the table is wider, and none is cut off or broken."""
    long = {"steps": [12_345_678, 9], "energy_drift": [-1.2e-113, -1.0], "warm": [0.000123, 1.0]}
    monkeypatch.setenv("COLUMNS", str(columns))
    show(_table(dataclasses.replace(result, **long)))
    text = capsys.readouterr().out
    assert all(figure in text.split() for figure in ("12345678", "-1.2e-113", "0.000123"))
    assert "\N{HORIZONTAL ELLIPSIS}" not in text


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (
            ["pendulun"],
            "unknown benchmark problem 'pendulun'; did you mean 'pendulum'? Known: pendulum, scara,",
        ),
        (["pendulum", "--repeats", "2"], "repeats must be an integer of at least 3"),
    ],
)
def test_bad_input_is_one_line(args, words) -> None:
    done = ukjax(*args)
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    assert words in done.stderr
    assert done.stdout == ""


def test_single_precision_is_refused() -> None:
    jax.config.update("jax_enable_x64", False)
    try:
        with pytest.raises(uk.InputError, match="double precision"):
            uk.bench(["pendulum"])
    finally:
        jax.config.update("jax_enable_x64", True)


def test_tolerances_are_checked() -> None:
    with pytest.raises(uk.InputError, match="tolerances must lie between 0 and 1"):
        uk.bench(["pendulum"], tolerances=[2.0])
