"""Sweeps: against closed forms, single runs and SciPy; what is named, what fails, what is refused."""

import functools
import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.special
import scipy.stats.qmc
import xarray as xr
from typer.testing import CliRunner

import ukjax as uk
from ukjax._cli import _commands as cli
from ukjax._sweep import _progress, _run
from ukjax._sweep._chunk import memory_for
from ukjax._sweep._store import Memory
from ukjax.models import MODELS


def area(width, height, depth=2.0):
    return {"area": width * height, "sides": (jnp.stack([width, height]), width * depth)}


WIDTHS, HEIGHTS = np.array([1.0, 2.0, 4.0]), np.array([0.5, 1.0, 1.5, 2.0, 3.0])


@pytest.mark.parametrize("chunk", [None, 1, 2, 4, 5, 7, 15, 100])
def test_a_grid_has_its_parameters_as_dimensions(chunk: int | None) -> None:
    runs = uk.sweep(area, {"width": WIDTHS, "height": HEIGHTS}, chunk=chunk)
    assert runs.area.dims == ("width", "height")
    np.testing.assert_array_equal(runs.area, np.outer(WIDTHS, HEIGHTS))
    np.testing.assert_array_equal(runs["sides.0"].sel(width=4.0, height=1.5), [4.0, 1.5])
    np.testing.assert_array_equal(runs["sides.1"], np.outer(2 * WIDTHS, np.ones(5)))
    assert np.all(runs.result == 0)
    assert np.prod(runs.attrs["chunk"]) <= (chunk or 15)


def test_every_block_runs_by_one_program(monkeypatch: pytest.MonkeyPatch) -> None:
    traced, batch = [], _run.run_batch
    monkeypatch.setattr(_run, "run_batch", lambda *args: traced.append(1) or batch(*args))
    uk.sweep(area, {"width": np.arange(1.0, 18.0), "height": np.arange(1.0, 12.0)}, chunk=4)
    assert len(traced) == 1


def test_tables_of_all_kinds() -> None:
    columns = {"width": WIDTHS, "height": HEIGHTS[:3]}
    dataset = xr.Dataset({name: ("case", x) for name, x in columns.items()})
    for table in (uk.Table(columns), pd.DataFrame(columns), dataset, uk.Table(pd.DataFrame(columns))):
        runs = uk.sweep(area, table)
        assert runs.area.dims == ("run",)
        np.testing.assert_array_equal(runs.area, WIDTHS * HEIGHTS[:3])
        np.testing.assert_array_equal(runs.height, HEIGHTS[:3])


def test_names_of_rows_are_kept(tmp_path) -> None:
    columns = {"width": WIDTHS[:2], "height": HEIGHTS[:2]}
    sweep = lambda table: uk.sweep(area, table, store=tmp_path / "runs.zarr", overwrite=True).load()
    named = pd.DataFrame(columns, index=pd.Index(["thin", "wide"], name="beam"))
    assert sweep(named).set_index(run="beam").height.sel(run="wide") == HEIGHTS[1]
    assert sweep(dict_of := uk.Table(dict(named.items()))).beam.values.tolist() == ["thin", "wide"]
    assert dict_of.describe() == {"samples": "table"}
    runs = sweep(
        pd.DataFrame(columns, index=pd.MultiIndex.from_tuples([(3, "a"), (7, "b")], names=["k", None]))
    )
    assert runs.k.values.tolist() == [3, 7]
    assert runs.level_1.values.tolist() == ["a", "b"]
    assert sweep(pd.DataFrame(columns, index=[5, 2])).area.sel(run=2) == WIDTHS[1] * HEIGHTS[1]
    dated = sweep(pd.DataFrame(columns, index=pd.date_range("2024-02-28", periods=2, freq="2D")))
    assert dated.run.values.tolist() == ["2024-02-28 00:00:00", "2024-03-01 00:00:00"]
    dataset = xr.Dataset({name: ("case", x) for name, x in columns.items()}, {"case": ["p", "q"]})
    assert sweep(dataset).case.dims == ("run",)
    assert "run" not in sweep(pd.DataFrame(columns)).coords
    uk.sweep(area, dataset, store=tmp_path / "runs.zarr", overwrite=True)
    with pytest.raises(uk.InputError, match="another sweep, which differs in values"):
        uk.sweep(area, dataset.assign_coords(case=["p", "r"]), store=tmp_path / "runs.zarr")


@pytest.mark.parametrize("n", [1, 5, 64])
def test_samples_are_those_of_scipy(n: int) -> None:
    ranges = {"width": (1.0, 3.0), "height": (-2.0, -1.0)}
    low, high = np.array(list(ranges.values())).T
    qmc = scipy.stats.qmc
    latin = qmc.scale(qmc.LatinHypercube(2, rng=7).random(n), low, high)
    sobol = qmc.scale(qmc.Sobol(2, rng=7).random_base2(6)[:n], low, high)
    for samples, expected in ((uk.LatinHypercube(ranges, n, 7), latin), (uk.Sobol(ranges, n, 7), sobol)):
        runs = uk.sweep(area, samples)
        np.testing.assert_allclose(runs.width, expected[:, 0], rtol=1e-15)
        np.testing.assert_allclose(runs.area, expected.prod(axis=1), rtol=1e-15)
        assert runs.attrs["seed"] == 7


def test_functions_of_a_dict_and_outputs_chosen() -> None:
    runs = uk.sweep(
        lambda x: {"sum": x["a"] + x["b"], "rest": x["a"]}, {"a": [1.0], "b": [2.0, 3.0]}, outputs="sum"
    )
    assert set(runs.data_vars) == {"sum", "result"}
    np.testing.assert_array_equal(runs["sum"], [[3.0, 4.0]])


def test_gradients_of_arrays_by_arrays() -> None:
    points = np.array([[1.0, 2.0], [3.0, 5.0], [-1.0, 0.5]])
    table = uk.Table({"point": points, "scale": [1.0, 2.0, 3.0]})
    runs = uk.sweep(lambda point, scale: {"y": scale * point**2}, table, gradients="y")
    assert runs["d_y_d_scale"].dims == ("run", "y_0")
    np.testing.assert_allclose(runs["d_y_d_scale"], points**2)
    expected = 2 * np.array([1.0, 2.0, 3.0])[:, None, None] * points[:, :, None] * np.eye(2)
    np.testing.assert_allclose(runs["d_y_d_point"], expected)


def test_outputs_that_do_not_depend_on_the_run() -> None:
    found = uk.sweep(lambda x: {"y": x, "yes": jnp.asarray(True), "two": 2.0}, {"x": [0.0, 1.0]})
    assert found.yes.values.tolist() == [1, 1]
    assert found.two.values.tolist() == [2.0, 2.0]


def test_a_function_that_fails_here_and_there() -> None:
    runs = uk.sweep(lambda x: {"root": jnp.sqrt(x), "double": 2 * x}, {"x": np.array([4.0, -1.0, 9.0])})
    np.testing.assert_array_equal(runs.root, [2.0, np.nan, 3.0])
    np.testing.assert_array_equal(runs.double, [8.0, -2.0, 18.0])
    names = runs.result.attrs["flag_meanings"].split()
    assert [names[1 + code] for code in runs.result.values] == ["successful", "diverged", "successful"]


def test_chunks_fit_the_memory() -> None:
    def long(x):
        return jnp.full(10_000, x)

    runs = uk.sweep(long, {"x": np.arange(50.0)}, memory=1e6)
    assert 1 <= runs.attrs["chunk"][0] * 80_000 <= 1e6
    np.testing.assert_array_equal(runs.value[:, 17], np.arange(50.0))


class Power(eqx.Module):
    """A force rate * x^exponent."""

    rate: jax.Array
    exponent: int = eqx.field(static=True)

    def __call__(self, t, q, v):
        return self.rate * q**self.exponent


def particle(rate=-1.0, exponent=1, start=1.0):
    """A point on a line.

    - `rate`: of the force [N/m].
    - `start`: its place
      [m].
    """
    system = uk.System(
        jnp.eye(1), Power(jnp.asarray(rate, float), exponent), energy=lambda t, q, v: 0.5 * v[0] ** 2
    )
    place = lambda t, q: {"tip": jnp.stack([q[0], 0 * q[0]])}
    return uk.Problem(
        system, jnp.stack([jnp.sqrt(start) ** 2]), jnp.zeros(1), 0.0, 1.0, place, name="particle"
    )


TIGHT = {"solver": dfx.Tsit5(), "rtol": 1e-10, "atol": 1e-10}


@pytest.fixture(scope="module")
def springs() -> xr.Dataset:
    """x = x0 cos(sqrt(k) t) for stiffnesses k = -rate; from a negative start the model makes NaN."""
    params = {"rate": [-1.0, -4.0], "start": [1.0, -1.0, 2.0]}
    outputs = [
        "q",
        "v",
        "v_end",
        "energy",
        "energy_drift",
        "points",
        "points_end",
        "t_end",
        "steps",
        "rank_max",
    ]
    return uk.sweep(particle, params, outputs=outputs, gradients="v_end", ts=[0.25, 0.5, 1.0], **TIGHT)


def test_runs_have_names_times_and_units(springs: xr.Dataset) -> None:
    k, x0, t = -springs.rate, springs.start, springs.time
    x = x0 * np.cos(np.sqrt(k) * t)
    assert springs.q.dims == ("rate", "start", "time", "coordinate")
    fine = {"start": [1.0, 2.0]}
    xr.testing.assert_allclose(
        springs.q.isel(coordinate=0, drop=True).sel(fine),
        x.sel(fine).transpose(*springs.q.dims[:3]),
        atol=1e-8,
    )
    v = -x0 * np.sqrt(k) * np.sin(np.sqrt(k) * t)
    xr.testing.assert_allclose(
        springs.energy.sel(fine), (0.5 * v**2).sel(fine).transpose(*springs.q.dims[:3]), atol=1e-8
    )
    drift = abs(0.5 * v**2 - 0.5 * v.isel(time=0) ** 2).max("time").sel(fine).transpose("rate", "start")
    xr.testing.assert_allclose(springs.energy_drift.sel(fine), drift, atol=1e-8)
    np.testing.assert_array_equal(springs.point_tip[..., 0], springs.q[..., 0])
    np.testing.assert_allclose(springs.point_tip_end, springs.point_tip.isel(time=-1), atol=1e-12)
    np.testing.assert_array_equal(springs.rank_max, [[0, -1, 0], [0, -1, 0]])
    assert (springs.time.units, springs.rate.units, springs.start.units) == ("s", "N/m", "m")
    assert springs.attrs["model"] == "particle"
    assert springs.attrs["jax"] == jax.__version__


def test_gradients_of_runs(springs: xr.Dataset) -> None:
    k, x0 = 4.0, 2.0
    by_rate = springs["d_v_end_d_rate"].sel(rate=-k, start=x0)
    w = np.sqrt(k)  # v = -x0 w sin w at t = 1, rate = -w^2
    np.testing.assert_allclose(by_rate, [x0 * (np.sin(w) + w * np.cos(w)) / (2 * w)], rtol=1e-7)
    np.testing.assert_allclose(springs["d_v_end_d_start"].sel(rate=-k, start=x0), [-w * np.sin(w)], rtol=1e-7)


@pytest.mark.slow
def test_runs_are_those_of_simulate(springs: xr.Dataset) -> None:
    for rate in (-1.0, -4.0):
        alone = uk.simulate(particle(rate, start=2.0), ts=[0.25, 0.5, 1.0], **TIGHT)
        swept = springs.sel(rate=rate, start=2.0)
        np.testing.assert_allclose(swept.q, alone.q, rtol=0, atol=1e-14)
        np.testing.assert_allclose(swept.v_end, alone.v[-1], rtol=0, atol=1e-14)
        assert int(swept.steps) == alone.stats["num_steps"]


def test_a_run_that_is_not_a_number_is_said_and_alone(springs: xr.Dataset) -> None:
    failed = springs.sel(start=-1.0)
    names = springs.result.attrs["flag_meanings"].split()
    assert [names[1 + code] for code in failed.result.values] == ["diverged", "diverged"]
    assert "infinite or NaN" in springs.result.attrs["diverged"]
    for name in ("q", "v_end", "energy_drift", "point_tip", "d_v_end_d_start"):
        assert np.all(np.isnan(failed[name]))
    assert np.all(springs.result.sel(start=[1.0, 2.0]) == 0)
    assert int(springs.steps.max()) < 100


@pytest.mark.slow
def test_a_run_that_blows_up_does_not_hold_up_the_others() -> None:
    """x'' = 6 x^2 with x = s / (1 - sqrt(s) t)^2 is infinite at t = 1 / sqrt(s)."""
    s = np.array([0.04, 4.0, 0.25])
    table = uk.Table({"q0": s[:, None], "v0": 2 * s[:, None] ** 1.5})
    runs = uk.sweep(
        particle(6.0, 2), table, outputs=["q_end", "t_end", "steps"], rtol=1e-6, atol=1e-6, solver=dfx.Tsit5()
    )
    assert runs.q0.dims == ("run", "coordinate")
    np.testing.assert_allclose(runs.q_end[[0, 2], 0], (s / (1 - np.sqrt(s)) ** 2)[[0, 2]], rtol=1e-4)
    assert np.isnan(runs.q_end[1, 0])
    assert float(runs.t_end[1]) == pytest.approx(0.5, abs=1e-3)
    names = runs.result.attrs["flag_meanings"].split()
    assert names[1 + int(runs.result[1])] in ("dt_min_reached", "diverged")
    assert int(runs.steps[1]) < 1000


def test_gains_and_fields_and_components_by_name() -> None:
    """phi'' + alpha phi' + beta phi = 0 from phi = 1, critically damped: phi = (1 + a t) exp(-a t), alpha = 2 a."""
    free = uk.System(jnp.eye(2), jnp.zeros(2), (uk.Holonomic(lambda t, q: q[:1], name="wall"),))
    problem = uk.Problem(free, jnp.array([1.0, 0.0]), jnp.zeros(2), 0.0, 1.0, name="wall")
    a = np.array([1.0, 2.0, 3.0])
    table = uk.Table({"alpha": 2 * a, "stabilizer.beta": a**2, "v0[1]": a, "force_": np.stack([0 * a, a]).T})
    settings = {"stabilizer": uk.Baumgarte(1.0, 1.0), **TIGHT}
    runs = uk.sweep(problem, table, outputs=["q_end", "position_error"], ts=3, **settings)
    np.testing.assert_allclose(runs.q_end[:, 0], (1 + a) * np.exp(-a), atol=1e-8)
    np.testing.assert_allclose(runs.q_end[:, 1], a + a / 2, atol=1e-8)
    np.testing.assert_allclose(runs.position_error[:, -1, 0], runs.q_end[:, 0])
    assert list(runs.row.values) == ["wall"]
    assert runs.alpha.units == "1/s"
    with pytest.raises(uk.InputError, match="gain beta must be finite and not negative"):
        uk.sweep(problem, {"beta": [1.0, -1.0]}, **settings)


def swung_to(trajectory: uk.Trajectory) -> jax.Array:
    return jnp.arctan2(trajectory.q[-1, 0], -trajectory.q[-1, 1])


ANGLES = np.array([0.1, 1.0, 2.0, 3.0])


@pytest.fixture(scope="module")
def pendulums() -> xr.Dataset:
    return uk.sweep(
        functools.partial(uk.models.pendulum, gravity=4.0),
        {"angle": ANGLES, "length": [1.0, 2.0]},
        outputs=[swung_to, "q", "max_position_error", "energy_drift", "rank_min", "steps"],
        t1=2.0, ts=5, chunk=6, **TIGHT,
    )  # fmt: skip


@pytest.mark.slow
def test_pendulums_swing_as_the_elliptic_functions_say(pendulums: xr.Dataset) -> None:
    """sin(theta / 2) = k sn(K(k) - w t, k), k = sin(theta_0 / 2): Whittaker, Analytical Dynamics, ch. IV."""
    theta, length = np.meshgrid(ANGLES, [1.0, 2.0], indexing="ij")
    k = np.sin(theta / 2)
    sn = scipy.special.ellipj(scipy.special.ellipk(k**2) - np.sqrt(4.0 / length) * 2.0, k**2)[0]
    np.testing.assert_allclose(pendulums.swung_to, 2 * np.arcsin(k * sn), atol=1e-7)
    assert float(pendulums.max_position_error.max()) < 1e-14
    assert float(pendulums.energy_drift.max()) < 1e-7
    assert np.all(pendulums.rank_min == 1)


@pytest.mark.slow
def test_pendulums_are_those_of_simulate(pendulums: xr.Dataset) -> None:
    for angle in ANGLES:
        alone = uk.simulate(uk.models.pendulum(gravity=4.0, angle=angle, length=2.0), t1=2.0, ts=5, **TIGHT)
        swept = pendulums.sel(angle=angle, length=2.0)
        np.testing.assert_allclose(swept.q, alone.q, rtol=0, atol=1e-12)
        assert int(swept.steps) == alone.stats["num_steps"]


@pytest.mark.slow
def test_a_start_that_cannot_be_made_consistent_is_said() -> None:
    """At the pivot the rod's row has no gradient, so no step towards the circle."""
    table = uk.Table({"q0": [[0.0, -1.0], [0.0, 0.0], [0.0, -3.0]], "v0[0]": [0.0, 0.0, 0.0]})
    problem = uk.models.pendulum()
    runs = uk.sweep(problem, table, t1=0.1, ts=2, dt0=0.1, solver=dfx.Euler(), outputs=["q_end", "steps"])
    names = runs.result.attrs["flag_meanings"].split()
    found = [names[1 + code] for code in runs.result.values]
    assert found[0] == found[2] == "successful"
    assert found[1] in ("inconsistent_start", "diverged")
    np.testing.assert_allclose(runs.q_end[[0, 2]], [[0.0, -1.0], [0.0, -1.0]], atol=1e-9)


def test_progress_tells_rate_and_time_left(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "150")
    params = {"width": WIDTHS, "height": HEIGHTS}
    uk.sweep(area, params, chunk=5, progress=False)
    assert capsys.readouterr() == ("", "")
    uk.sweep(area, params, chunk=5)
    shown = re.sub(r"\x1b\[[\d;?]*\w", "", capsys.readouterr().err)
    assert re.search(r"area .*15/15 runs .* runs/s, 0:00:00 left, 0 failed", shown)


@pytest.mark.parametrize(("seconds", "lines"), [(60.0, [15]), (0.0, [5, 10, 15])])
def test_the_logger_is_told_of_progress_now_and_then(seconds, lines, monkeypatch, caplog) -> None:
    monkeypatch.setattr(_progress, "_EVERY", seconds)
    with caplog.at_level(logging.INFO, "ukjax"):
        uk.sweep(area, {"width": WIDTHS, "height": HEIGHTS}, chunk=5, progress=False)
    assert [int(x) for x in re.findall(r"area: (\d+) of 15 runs, .* 0 failed", caplog.text)] == lines


SWEEP = ["sweep", "pendulum"]
BAD_COMMANDS = {
    "nothing varies": ([], "say what varies"),
    "two kinds": (["--grid", "angle=1,2", "--sample", "rate=0:1"], "say what varies"),
    "grid": (["--grid", "angle=1:2"], "--grid takes KEY=LOW:HIGH:N"),
    "numbers": (["--grid", "angle=few"], "--grid takes KEY=LOW:HIGH:N"),
    "twice": (["--grid", "angle=1,2", "--grid", "angle=3"], "--grid names a parameter twice"),
    "range": (["--sample", "angle=1:2:3"], "--sample takes KEY=LOW:HIGH"),
    "sequence": (["--sample", "angle=1:2", "--sequence", "sobl"], "did you mean 'sobol'?"),
    "no table": (["--table", "nothing.csv"], "nothing.csv"),
    "set and varied": (["--grid", "angle=1,2", "--set", "angle=1"], "angle is both set and varied"),
    "unknown parameter": (["--grid", "lenght=1,2"], "did you mean 'length'? Known: mass, length"),
    "refused by the model": (["--grid", "length=1,-2"], "length must be greater than 0"),
    "unknown output": (["--grid", "angle=1,2", "--output", "step"], "did you mean 'steps'?"),
    "format": (["--grid", "angle=1,2", "--out", "runs.nc"], "a sweep is written to a .zarr folder"),
    "gains of a projection": (["--grid", "alpha=1,2"], "alpha is a gain of Baumgarte"),
    "chunk": (["--grid", "angle=1,2", "--chunk", "0"], "chunk must be an integer of at least 1"),
}


def test_a_table_with_a_name_twice(tmp_path) -> None:
    (tmp_path / "runs.csv").write_text("angle,angle\n1,2\n")
    result = CliRunner().invoke(cli.app, [*SWEEP, "--table", str(tmp_path / "runs.csv")])
    assert result.exit_code == 2
    assert "--table names a parameter twice" in result.stderr


@pytest.mark.parametrize(("options", "words"), BAD_COMMANDS.values(), ids=BAD_COMMANDS)
def test_bad_commands_are_one_line(options: list[str], words: str) -> None:
    result = CliRunner().invoke(cli.app, [*SWEEP, *options])
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert words in result.stderr


def test_the_command_sweeps_a_table(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Free fall of a particle without force, so that all ends where it started, or never starts."""
    monkeypatch.setitem(MODELS, "pendulum", particle)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs.csv").write_text("\ufeffrate, start\n0,1\n0,-1\n0,4\n\n")  # as spreadsheets do
    command = [
        *SWEEP,
        "--table",
        "runs.csv",
        "--out",
        "runs.zarr",
        "--solver",
        "euler",
        "--dt0",
        "0.5",
        "--times",
        "2",
    ]
    result = CliRunner().invoke(cli.app, [*command, "--json"])
    assert (result.exit_code, result.stderr) == (0, "")
    figures = json.loads(result.stdout)
    assert (figures["runs"], figures["failed"]) == (3, 1)
    assert figures["results"] == {"successful": 2, "diverged": 1}
    assert figures["outputs"]["energy_drift"]["max"] == 0
    assert figures["outputs"]["steps"]["max"] == 2
    end = figures["outputs"]["q_end[0]"]
    assert [end[x] for x in ("min", "median", "max")] == [1.0, 2.5, 4.0]
    assert end["at_max"] == {"rate": 0.0, "start": 4.0}
    runs = xr.open_zarr("runs.zarr", consolidated=False)
    np.testing.assert_array_equal(runs.q_end, [[1.0], [np.nan], [4.0]])
    table = CliRunner().invoke(cli.app, command)
    assert table.exit_code == 0
    for words in ("particle: 2 successful, 1 diverged", "energy_drift", "written: runs.zarr"):
        assert words in table.stdout


def test_the_command_tells_of_points_and_of_motions() -> None:
    """Where a pendulum of 2 m hangs that starts at rest: the least and largest of what it passes, and where it ends."""
    command = ["sweep", "pendulum", "--grid", "length=1,2", "--t1", "0.1", "--times", "3", "--no-progress"]
    chosen = ["--set", "angle=0", "--output", "points_end", "--output", "q", "--json"]
    result = CliRunner().invoke(cli.app, [*command, *chosen])
    assert (result.exit_code, result.stderr) == (0, "")
    outputs = json.loads(result.stdout)["outputs"]
    for name in ("point_mass_end[1]", "q[y]"):
        assert [outputs[name][x] for x in ("min", "max")] == pytest.approx([-2.0, -1.0])
        assert outputs[name]["at_min"] == {"length": 2.0}


PARTICLE = particle()
BAD = {
    "model": (3.0, {"x": [1.0]}, {}, "give a Problem or a function"),
    "system": (PARTICLE.system, {"x": [1.0]}, {}, "makes a problem of a system"),
    "no parameters": (particle, {}, {}, "there are no parameters"),
    "not a dict": (particle, [1.0], {}, "parameters are a dict"),
    "scalar": (particle, {"rate": 1.0}, {}, "must be an array of at least one number"),
    "empty": (particle, {"rate": []}, {}, "must be an array of at least one number"),
    "words": (particle, {"rate": ["fast"]}, {}, "the values of rate must be numbers"),
    "dates": (particle, {"rate": np.array(["2020"], "datetime64[D]")}, {}, "the values of rate must be numbers"),
    "NaN": (particle, {"rate": [np.nan]}, {}, "the values of rate must be finite"),
    "vectors in a grid": (particle, {"q0": [[1.0]]}, {}, "Give vectors in a Table"),
    "unknown of a model": (particle, {"rat": [1.0]}, {}, "did you mean 'rate'? Known: rate, exponent, start, q0"),
    "unknown of a problem": (PARTICLE, {"rate": [1.0]}, {}, "unknown parameter 'rate'"),
    "unknown of a function": (area, {"width": [1.0], "height": [1.0], "deep": [1.0]}, {}, "did you mean 'depth'"),
    "no such component": (PARTICLE, {"q0[1]": [1.0]}, {}, "there is no number q0[1]"),
    "shape": (PARTICLE, uk.Table({"q0": [[1.0, 2.0]]}), {}, "a value of q0 has shape (2,)"),
    "structural": (uk.models.n_pendulum, {"n": [1.0, 2.0]}, {}, "n changes the structure"),
    "refused by the model": (uk.models.pendulum, {"length": [1.0, -1.0]}, {}, "greater than 0, not -1. (run 1:"),
    "gain without Baumgarte": (PARTICLE, {"alpha": [1.0]}, {}, "alpha is a gain of Baumgarte"),
    "unknown output": (particle, {"rate": [1.0]}, {"outputs": ["qend"]}, "did you mean 'q_end'"),
    "output of a function": (area, {"width": [1.0], "height": [1.0]}, {"outputs": "aera"}, "did you mean 'area'"),
    "no name": (particle, {"rate": [1.0]}, {"outputs": [lambda run: run.q]}, "an output needs a name"),
    "no points": (uk.Problem(PARTICLE.system, [0.0], [0.0], 0.0, 1.0), {"q0[0]": [1.0]}, {"outputs": ["points"]},
                  "defines no named points"),
    "gradient": (particle, {"rate": [1.0]}, {"gradients": "qend"}, "unknown output to differentiate"),
    "gradient of a count": (particle, {"rate": [1.0]}, {"gradients": "steps"}, "steps is a count"),
    "span": (particle, {"rate": [1.0]}, {"t1": -1.0}, "must be later than t0"),
    "steps": (particle, {"rate": [1.0]}, {"ts": "steps"}, "ts must be times or their number"),
    "solver": (particle, {"rate": [1.0]}, {"solver": dfx.Tsit5}, "solver must be something like"),
    "chunk": (particle, {"rate": [1.0]}, {"chunk": 0}, "chunk must be an integer of at least 1"),
    "memory": (particle, {"rate": [1.0]}, {"memory": -1.0}, "memory must lie between"),
    "both": (lambda x: {"x": x}, {"x": [1.0]}, {}, "x is the name of both a parameter and an output"),
    "nothing returned": (lambda x: None, {"x": [1.0]}, {}, "the function must return a Problem, or arrays"),
}  # fmt: skip


@pytest.mark.parametrize(("model", "params", "options", "words"), BAD.values(), ids=BAD)
def test_bad_input(model, params, options, words: str) -> None:
    with pytest.raises(uk.InputError) as raised:
        uk.sweep(model, params, **options)
    assert words in str(raised.value)


def test_bad_samples() -> None:
    for make, words in (
        (lambda: uk.Sobol({"x": (1.0, 0.0)}, 4), "low < high"),
        (lambda: uk.Sobol({"x": (0.0, 1.0)}, 0), "n must be an integer of at least 1"),
        (lambda: uk.LatinHypercube({}, 4), "takes a range for each parameter"),
        (lambda: uk.LatinHypercube({"x": (0.0, 1.0)}, 4, -1), "seed must be an integer"),
        (lambda: uk.Table({"x": [1.0], "y": [1.0, 2.0]}), "equally long"),
        (
            lambda: uk.Table({"x": pd.Series([1.0, 2.0]), "y": pd.Series([1.0, 2.0], [1, 0])}),
            "different indexes",
        ),
        (lambda: uk.Table(xr.Dataset({"x": ("a", [1.0]), "y": ("b", [2.0])})), "along one dimension"),
        (lambda: uk.Table(pd.DataFrame({"x": [1.0]}, index=pd.Index([3], name="x"))), "rename one"),
    ):
        with pytest.raises(uk.InputError, match=words):
            make()


@pytest.mark.parametrize(("module", "options"), [("xarray", {}), ("zarr", {"store": "runs.zarr"})])
def test_missing_extras_are_named(
    module: str, options: dict, monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(uk.MissingExtraError, match=r"ukjax\[sweep\]"):
        uk.sweep(area, {"width": [1.0], "height": [1.0]}, **options)


SEVERAL = """
import jax, jax.numpy as jnp, numpy as np, ukjax as uk
jax.config.update("jax_enable_x64", True)
assert len(jax.devices()) == 2

def collatz(x):  # members take different numbers of steps
    odd = lambda n: jnp.where(n % 2 == 0, n / 2, 3 * n + 1)
    return jax.lax.while_loop(lambda c: c[0] > 1, lambda c: (odd(c[0]), c[1] + 1), (x, 0))[1]

devices = []
jax.config.update("jax_log_compiles", False)
x = np.arange(1.0, 30.0)
runs = uk.sweep(collatz, {"x": x}, chunk=7)
one = uk.sweep(collatz, {"x": x}, chunk=7, devices=jax.devices()[:1])
assert (runs.attrs["devices"], one.attrs["devices"]) == ("2 cpu", "1 cpu")

def expected(n):
    return 0 if n == 1 else 1 + expected(n // 2 if n % 2 == 0 else 3 * n + 1)

assert list(runs.value.values) == list(one.value.values) == [expected(int(n)) for n in x]

for kind in jax.sharding.AxisType.Explicit, jax.sharding.AxisType.Auto:  # the user's mesh is another one
    with jax.set_mesh(jax.make_mesh((2,), ("x",), axis_types=(kind,))):
        for given in None, jax.devices()[:1]:
            within = uk.sweep(collatz, {"x": x}, chunk=7, devices=given)
            assert list(within.value.values) == list(one.value.values)
print("same")
"""


def test_several_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
    done = subprocess.run([sys.executable, "-c", SEVERAL], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "same\n"), done.stderr


def test_within_jit_a_sweep_is_refused() -> None:
    with pytest.raises(uk.InputError, match="sweep needs numbers"):
        jax.jit(lambda x: x * uk.sweep(lambda y: {"z": y}, {"y": [1.0]}).z.values[0])(1.0)


@pytest.mark.slow
def test_the_command_shares_runs_between_cores(tmp_path: Path) -> None:
    found = []
    for cores in ([], ["--cores", "3"]):
        out = tmp_path / f"{len(found)}.zarr"
        varied = [
            "--sample",
            "angle=0.1:1",
            "--runs",
            "7",
            "--t1",
            "0.5",
            "--output",
            "q_end",
            "--out",
            str(out),
        ]
        command = [sys.executable, "-m", "ukjax", "sweep", "pendulum", *varied, *cores, "--no-progress"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found.append(xr.open_zarr(out, consolidated=False))
    own = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert [x.attrs["devices"] for x in found] == [f"{own} cpu", "3 cpu"]
    np.testing.assert_allclose(found[0].q_end, found[1].q_end, rtol=1e-13)


MILLION = """
import sys
from pathlib import Path
import jax, numpy as np, ukjax as uk
jax.config.update("jax_enable_x64", True)

def oscillator(stiffness):
    t = jax.numpy.linspace(0, 10, 100)
    x = jax.numpy.cos(jax.numpy.sqrt(stiffness) * t)
    return {"x": x, "largest": x.max()}

k = np.linspace(1.0, 2.0, 1_000_000)
runs = uk.sweep(oscillator, {"stiffness": k}, store=sys.argv[1])
assert runs.x.shape == (1_000_000, 100)
assert np.all(runs.result == 0)
np.testing.assert_allclose(runs.x[::99_999, -1], np.cos(10 * np.sqrt(k[::99_999])), atol=1e-12)
# What getrusage tells starts at what the parent process holds.
print(*(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells the most memory held")
def test_a_million_runs_in_bounded_memory(tmp_path) -> None:
    command = [sys.executable, "-c", MILLION, str(tmp_path / "runs.zarr")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 4e6, "more than 4 GB"


@pytest.mark.slow
@pytest.mark.parametrize("solver", [dfx.Tsit5(), dfx.Kvaerno5()], ids=["explicit", "implicit"])
def test_an_event_ends_each_run_at_its_own_time(solver: dfx.AbstractSolver) -> None:
    """x = cos(sqrt(k) t) crosses zero at pi / (2 sqrt(k)); for the smallest k not before the end."""
    k = np.array([1.0, 4.0, 9.0])
    settings = {"solver": solver, "rtol": 1e-9, "atol": 1e-9, "event": lambda t, q, v: q[0]}
    outputs = ["t_end", "energy_drift", "q"]
    runs = uk.sweep(particle, {"rate": -k}, outputs=outputs, gradients="t_end", t1=1.2, ts=7, **settings)
    ends = np.where(k > 2, np.pi / (2 * np.sqrt(k)), 1.2)
    np.testing.assert_allclose(runs.t_end, ends, atol=1e-7)
    names = runs.result.attrs["flag_meanings"].split()
    assert [names[1 + code] for code in runs.result.values] == ["successful"] + 2 * ["event_occurred"]
    by_rate = np.where(k > 2, np.pi / (4 * k**1.5), 0)  # rate = -k
    np.testing.assert_allclose(runs["d_t_end_d_rate"], by_rate, atol=1e-6)
    assert np.all(np.isfinite(runs.energy_drift))


@pytest.mark.parametrize("ends", [{"t0": 0.0, "t1": None}, {"t0": None, "t1": 1.0}])
def test_spans_that_differ_by_run(ends):
    problem = uk.models.pendulum()

    def of(end):
        return uk.Problem(
            problem.system, problem.q0, problem.v0, **{k: end if x is None else x for k, x in ends.items()}
        )

    with pytest.raises(uk.InputError, match="the same for all runs"):
        uk.sweep(of, {"end": [0.5, 0.6]})


def test_the_same_sweep_again_is_not_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """With other values of the parameters, whose results are those of runs by themselves."""
    made, compiling = [], _run._compile_batch
    monkeypatch.setattr(_run, "_compile_batch", lambda *given: made.append(given) or compiling(*given))
    for lengths in ([0.31, 0.47], [0.53, 0.59]):
        swept = uk.sweep(uk.models.pendulum, {"length": lengths}, outputs=["q_end"], t1=0.5)
        for length, q in zip(lengths, swept.q_end.values, strict=True):
            alone = uk.simulate(uk.models.pendulum(length=length), t1=0.5, ts=2).q[-1]
            np.testing.assert_allclose(q, alone, atol=1e-9)
    assert len(made) == 1


class Accelerator(NamedTuple):
    """What a device of JAX's tells of its memory."""

    platform: str
    stats: dict[str, int] | None

    def memory_stats(self) -> dict[str, int] | None:
        return self.stats


def rubbed(mu: float = 0.3) -> uk.Problem:
    """A block that slides on the level at 3 m/s."""
    slip = lambda t, q, v: v[0]
    floor = uk.Unilateral(lambda t, q: q[1], friction=mu, slip=slip, name="floor")
    system = uk.System(jnp.eye(2), jnp.array([0.0, -9.81]), [floor])
    return uk.Problem(system, [0.0, 0.0], [3.0, 0.0], 0.0, 2.0)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        pytest.param({}, 1e-10, id="events", marks=pytest.mark.slow),
        pytest.param({"contact": "steps", "dt0": 1e-3}, 1e-5, id="steps"),
    ],
)
def test_contacts(options, error):
    """It stops after v^2 / (2 mu g): exactly by events, and to some parts of v dt0 by steps."""
    mu = np.array([0.3, 0.4, 0.5])
    found = uk.sweep(rubbed, {"mu": mu}, outputs="q_end", progress=False, **options)
    np.testing.assert_allclose(found.q_end[:, 0], 9 / (2 * 9.81 * mu), atol=error)


def test_memory_is_planned_from_the_device() -> None:
    gpu = Accelerator("gpu", {"bytes_limit": 80_000, "bytes_in_use": 20_000})
    assert memory_for(gpu) == 30_000
    assert memory_for(Accelerator("tpu", None)) == memory_for(jax.devices("cpu")[0]) == 1e9


def test_a_chunk_is_written_while_the_next_one_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this order; and all are written."""
    events: list[str] = []
    values, write = Memory.values, Memory.write

    def started(self: Memory, number: int, batch: int) -> Any:
        events.append(f"start {number}")
        return values(self, number, batch)

    def written(self: Memory, number: int, arrays: Any) -> None:
        events.append(f"write {number}")
        write(self, number, arrays)

    monkeypatch.setattr(Memory, "values", started)
    monkeypatch.setattr(Memory, "write", written)
    runs = uk.sweep(lambda x: {"y": 2 * x}, {"x": np.arange(6.0)}, chunk=2)
    assert events == ["start 0", "start 1", "write 0", "start 2", "write 1", "write 2"]
    np.testing.assert_array_equal(runs.y, 2 * np.arange(6.0))
