"""What a `Trajectory` offers: xarray, files in three formats, figures, evaluation between saved times."""

import builtins
import json
import re
import zipfile

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk

ERRORS = ("position_error", "velocity_error")
ARRAYS = ("t", "q", "v", "a", "constraint_force", "multipliers", *ERRORS, "energy", "rank")
SUFFIXES = ("npz", "nc", "zarr")
OF_EVENTS = (
    "impulse",
    "speed",
    "sudden",
    "residual",
    "reset",
    "reset_moved",
)  # of those that there were


@pytest.fixture(scope="module")
def trajectory():
    """A pendulum: one row, an energy."""
    return uk.simulate(uk.models.pendulum(), t1=1.0, ts=11)


@pytest.fixture(scope="module")
def free():
    """No rows, no energy, and a run that ended early."""
    system = uk.System(jnp.eye(2), lambda t, q, v: -q)
    return uk.simulate(system, np.ones(2), np.zeros(2), t1=5.0, ts=6, max_steps=3)


def test_in_a_line(trajectory, free):
    """Printed without compiling, in a batch, within `jit`, and where something else stands for its arrays."""
    phi, psi = (np.abs(getattr(trajectory, name)).max() for name in ERRORS)
    errors = f"position error {phi:.1e}, velocity error {psi:.1e}"
    assert str(trajectory) == f"Trajectory 'pendulum': 0 to 1 s at 11 times, successful, {errors}"
    assert f"to {free.t_end:.6g} s at {np.sum(np.isfinite(free.t))} of 6 times, max_steps_reached" in repr(
        free
    )
    batch = jax.tree.map(lambda x: jnp.stack([x, x]), trajectory)
    shapes = "Trajectory 'pendulum': t (2, 11), q (2, 11, 2), 1 constraint rows"
    assert repr(batch) == shapes
    within = []
    jax.jit(lambda run: within.append(repr(run)))(batch)
    assert within == [shapes]
    assert repr(jax.tree.map(lambda x: None, trajectory)) == "Trajectory 'pendulum'"
    early = uk.compiled(uk.models.pendulum(), t1=1.0, ts=11, event=lambda t, q, v: t - 0.55)()
    assert repr(early).startswith("Trajectory 'Pendulum': 0 to 0.55 s at 6 of 11 times, event_occurred")


def test_to_xarray(trajectory):
    data = trajectory.to_xarray()
    assert dict(data.sizes) == {"time": 11, "coordinate": 2, "velocity": 2, "row": 1}
    dims = {
        "q": ("time", "coordinate"),
        "v": ("time", "velocity"),
        "a": ("time", "velocity"),
        "constraint_force": ("time", "velocity"),
        "multipliers": ("time", "row"),
        "position_error": ("time", "row"),
        "velocity_error": ("time", "row"),
        "energy": ("time",),
        "rank": ("time",),
    }
    assert {name: x.dims for name, x in data.data_vars.items()} == dims
    for name in dims:
        np.testing.assert_array_equal(data[name], getattr(trajectory, name))
        assert data[name].attrs["units"]
    np.testing.assert_array_equal(data["time"], trajectory.t)
    assert data["time"].attrs["units"] == "s"
    assert data["energy"].attrs["units"] == "J"
    assert list(data["row"].values) == ["rod"]
    assert list(data["row_kind"].values) == ["holonomic"]
    assert data.attrs["model"] == "pendulum"
    assert data.attrs["result"] == "successful"
    np.testing.assert_array_equal(data["q"].sel(time=0.5).values, trajectory.q[5])
    np.testing.assert_array_equal(data["multipliers"].sel(row="rod").values, trajectory.multipliers[:, 0])


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("which", ["trajectory", "free"])
def test_round_trip(which, suffix, tmp_path, request):
    original = request.getfixturevalue(which)
    path = tmp_path / f"run.{suffix}"
    assert original.save(path) == path
    assert [x.name for x in tmp_path.iterdir()] == [path.name]  # no temporary files are left
    loaded = uk.Trajectory.load(str(path))
    for name in ARRAYS:
        before, after = getattr(original, name), getattr(loaded, name)
        if before is None:
            assert after is None
        else:
            np.testing.assert_array_equal(after, before)
            assert after.dtype == before.dtype
            assert after.shape == before.shape
    assert loaded.row_names == original.row_names
    assert loaded.row_kinds == original.row_kinds
    assert loaded.name == original.name
    assert loaded.message == original.message
    assert loaded.result_name == original.result_name
    assert loaded.ok == original.ok
    assert loaded.summary() == original.summary()
    assert {k: int(x) for k, x in loaded.stats.items()} == {k: int(x) for k, x in original.stats.items()}
    assert loaded.dense is None
    assert loaded.problem is None
    assert loaded.computed_by == original.computed_by


def test_npz_needs_no_pickle(trajectory, tmp_path):
    path = trajectory.save(tmp_path / "run.npz")
    with np.load(path, allow_pickle=False) as file:
        assert {file[name].dtype.kind for name in file.files} <= {"f", "i", "U"}
        assert json.loads(str(file["header"]))["labels"]["row"] == ["rod"]
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            assert b"pickle" not in archive.read(name)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_saving_replaces_what_was_there(suffix, trajectory, free, tmp_path):
    path = tmp_path / f"run.{suffix}"
    trajectory.save(path)
    free.save(path)
    loaded = uk.Trajectory.load(path)
    assert loaded.energy is None
    assert loaded.q.shape == free.q.shape
    assert [x.name for x in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="events", marks=pytest.mark.slow),
        pytest.param({"contact": "steps", "dt0": 0.01}, id="steps"),
    ],
)
def test_contacts_are_read_back(options, tmp_path):
    floor = uk.Unilateral(
        lambda t, q: q[1], restitution=0.5, friction=0.3, slip=lambda t, q, v: v[0], name="floor"
    )
    system = uk.System(jnp.eye(2), jnp.array([0.0, -9.81]), [floor])
    run = uk.simulate(system, [0.0, 1.0], [1.0, 0.0], t1=1.0, ts=11, **options)
    happened = np.isfinite(run.contacts.event_time)
    assert happened.any()
    for suffix in SUFFIXES:
        read = uk.Trajectory.load(run.save(tmp_path / f"run.{suffix}"))
        assert read.computed_by == run.computed_by
        assert read.contacts.told() == run.contacts.told()
        for name, x in vars(run.contacts).items():
            found = getattr(read.contacts, name)
            if isinstance(x, tuple):
                assert found == x, name
            else:
                of_events = name.startswith("event_") or name in OF_EVENTS
                np.testing.assert_array_equal(found, x[happened] if of_events else x, err_msg=name)
                assert found.dtype.kind == x.dtype.kind, name


def test_bad_files(trajectory, tmp_path):
    for path in (tmp_path / "run.pkl", tmp_path / "run"):
        with pytest.raises(uk.InputError, match=r"\.npz, \.nc or \.zarr"):
            trajectory.save(path)
        with pytest.raises(uk.InputError, match=r"\.npz, \.nc or \.zarr"):
            uk.Trajectory.load(path)
    for suffix in SUFFIXES:
        with pytest.raises(uk.InputError, match="no file"):
            uk.Trajectory.load(tmp_path / f"absent.{suffix}")
    foreign = tmp_path / "foreign.npz"
    np.savez(foreign, x=np.ones(3))
    with pytest.raises(uk.InputError, match="was not written by ukjax"):
        uk.Trajectory.load(foreign)
    for suffix in ("npz", "nc"):
        garbage = tmp_path / f"garbage.{suffix}"
        garbage.write_bytes(b"not a file of this kind")
        with pytest.raises(uk.InputError, match="garbage"):
            uk.Trajectory.load(garbage)
    (tmp_path / "garbage.zarr").mkdir()
    with pytest.raises(uk.InputError, match="garbage"):
        uk.Trajectory.load(tmp_path / "garbage.zarr")


@pytest.mark.parametrize("suffix", ["nc", "zarr"])
def test_foreign_datasets_are_refused(suffix, tmp_path):
    import xarray

    path = tmp_path / f"foreign.{suffix}"
    data = xarray.Dataset({"x": ("time", np.ones(3))})
    if suffix == "nc":
        data.to_netcdf(path, engine="h5netcdf")
    else:
        data.to_zarr(path, consolidated=False)
    with pytest.raises(uk.InputError, match="was not written by ukjax"):
        uk.Trajectory.load(path)


def test_plot(trajectory, free, tmp_path):
    from matplotlib.figure import Figure

    figure = trajectory.plot(tmp_path / "run.png")
    assert isinstance(figure, Figure)
    data = (tmp_path / "run.png").read_bytes()
    assert data.startswith(b"\x89PNG")
    assert len(data) > 10_000
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    # Where it is small, a power of ten is in the title, and not beside the axis.
    told = re.fullmatch(r"Change of energy \[(?:\$10\^\{(-?\d+)\}\$ )?J\]", titles[-1])
    assert told
    drawn = figure.axes[-1].lines[0].get_ydata() * 10.0 ** int(told[1] or 0)
    change = np.append(trajectory.energy, trajectory.end.energy) - trajectory.energy[0]
    np.testing.assert_allclose(drawn, change[: len(drawn)], rtol=1e-9, atol=1e-30)
    assert figure.axes[-1].yaxis.get_offset_text().get_text() == ""
    lines = figure.axes[0].lines
    np.testing.assert_array_equal(lines[1].get_ydata(), trajectory.q[:, 1])
    # Without rows and energy: no panel of forces, errors, energy or rank, which would be empty.
    assert [axes.get_title(loc="left") for axes in free.plot().axes] == ["Coordinates", "Velocities"]


def _without(monkeypatch, *modules):
    real = builtins.__import__

    def missing(name, *args, **kwargs):
        if name.split(".")[0] in modules:
            raise ImportError(f"No module named '{name}'")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)


def test_missing_extras_are_named(trajectory, tmp_path, monkeypatch):
    saved = {suffix: trajectory.save(tmp_path / f"run.{suffix}") for suffix in SUFFIXES}
    _without(monkeypatch, "matplotlib", "xarray")
    with pytest.raises(uk.MissingExtraError, match=r"ukjax\[plot\]"):
        trajectory.plot()
    with pytest.raises(uk.MissingExtraError, match=r"ukjax\[data\]"):
        trajectory.to_xarray()
    for suffix in ("nc", "zarr"):
        with pytest.raises(uk.MissingExtraError, match=r"ukjax\[data\]"):
            trajectory.save(tmp_path / f"other.{suffix}")
        with pytest.raises(uk.MissingExtraError, match=r"ukjax\[data\]"):
            uk.Trajectory.load(saved[suffix])
    uk.Trajectory.load(trajectory.save(tmp_path / "plain.npz"))  # needs none


def test_evaluate_needs_a_dense_run(trajectory):
    with pytest.raises(uk.InputError, match="dense=True"):
        trajectory.evaluate(0.5)


def test_compiled_run_that_ended_early_has_the_figures_of_the_other():
    """Under jit the times after the event are there, with nothing in them."""
    problem, angle = uk.models.pendulum(), np.pi / 3

    def run(q):
        return uk.simulate(problem, q, t1=3.0, ts=31, event=lambda t, q, v: q[0])

    compiled, expected = jax.jit(run)(problem.q0), run(problem.q0)
    assert compiled.ok
    assert len(compiled) == len(expected) == 31
    np.testing.assert_array_equal(compiled.t, expected.t)
    assert np.isinf(compiled.t).any()
    assert np.array_equal(np.isnan(compiled.q), np.isinf(compiled.t)[:, None] | np.zeros((31, 2), bool))
    np.testing.assert_allclose(compiled.q_end, expected.q_end, atol=1e-12)
    assert not compiled.rank_changed
    reached = np.isfinite(expected.t)
    energy = np.append(np.asarray(expected.energy)[reached], expected.end.energy)
    np.testing.assert_allclose(compiled.energy_drift, np.abs(energy - energy[0]).max(), rtol=1e-6)
    errors = {name: np.abs(getattr(expected, name))[reached].max() for name in ERRORS}
    for name, error in errors.items():
        np.testing.assert_allclose(getattr(compiled, f"max_{name}"), error, rtol=0, atol=1e-14)
    summary = compiled.summary()
    assert summary["rank_min"] == summary["rank_max"] == 1
    assert energy[0] == pytest.approx(-9.81 * np.cos(angle))
    assert all(np.isfinite(x) for x in summary.values() if isinstance(x, float))


def test_first_time_saved_may_lie_after_the_end():
    problem, late = uk.models.pendulum(), jnp.array([2.0, 2.5])
    run = jax.jit(lambda q: uk.simulate(problem, q, t1=3.0, ts=late, event=lambda t, q, v: q[0]))(problem.q0)
    assert np.isfinite(run.t).tolist() == [False, False]
    np.testing.assert_allclose(run.q_end, [0.0, -1.0], atol=1e-6)
    assert (float(run.energy_drift), bool(run.rank_changed)) == (0.0, False)


def test_summary_and_length(trajectory, free):
    assert len(trajectory) == 11
    summary = trajectory.summary()
    assert summary["model"] == "pendulum"
    assert summary["t1"] == 1.0
    assert summary["result"] == "successful"
    assert summary["rank_min"] == summary["rank_max"] == 1
    assert summary["energy_drift"] == np.abs(trajectory.energy - trajectory.energy[0]).max()
    assert summary["max_position_error"] == np.abs(trajectory.position_error).max()
    json.dumps(summary)
    assert free.summary()["energy_drift"] is None
    assert free.summary()["result"] == "max_steps_reached"
    with pytest.raises(uk.SimulationError, match="maximum number of solver steps"):
        free.raise_if_failed()
    assert trajectory.raise_if_failed() is trajectory


@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param({"event": lambda t, q, v: q[0] - 0.4}, marks=pytest.mark.slow),
        pytest.param({"contact": "steps", "dt0": 0.01}, marks=pytest.mark.slow),
        pytest.param({"contact": "events"}, marks=pytest.mark.slow),
    ],
    ids=["plain", "event", "steps", "events"],
)
def test_one_number_within_jit_and_outside(options):
    """A ball that falls from 1 m: as many entries as times, and the same, alone, in `jit`, in a batch and in `grad`."""
    floor = [uk.Unilateral(lambda t, q: q[0] + 10.0, name="floor")] if "contact" in options else []
    ball = uk.System(jnp.eye(1), jnp.array([-9.81]), floor)
    ts = np.linspace(0.0, 0.4, 5)

    def run(height):
        return uk.simulate(ball, height[None], jnp.zeros(1), t1=0.5, ts=ts, **options)

    def size(height):
        asked = {"contact": "differentiated steps"} if options.get("contact") == "steps" else {}
        run = uk.simulate(ball, height[None], jnp.zeros(1), t1=0.5, ts=ts, **options | asked)
        return jnp.nansum(run.q**2)

    height = jnp.asarray(1.0)
    end = np.sqrt(2 * 0.6 / 9.81) if "event" in options else 0.5
    fallen = 1.0 - 9.81 / 2 * ts[ts <= end] ** 2
    found = (
        run(height),
        jax.jit(run)(height),
        jax.tree.map(lambda x: x[1], jax.vmap(run)(jnp.stack([height + 1, height]))),
    )
    for one in found:
        assert one.q.shape == (5, 1)
        np.testing.assert_allclose(one.t, np.where(ts <= end, ts, np.inf))
        np.testing.assert_allclose(one.q[ts <= end, 0], fallen, atol=1e-7)
        np.testing.assert_allclose(one.t_end, end, atol=1e-8)
        np.testing.assert_allclose(one.q_end, [1.0 - 9.81 / 2 * end**2], atol=1e-7)
        assert one.end.energy is None
    value, slope = jax.value_and_grad(size)(height)
    np.testing.assert_allclose(value, np.sum(fallen**2), atol=1e-7)
    np.testing.assert_allclose(slope, 2 * np.sum(fallen), atol=1e-6)


@pytest.mark.parametrize(
    "asked",
    [
        lambda run: run.ok,
        lambda run: run.result_name,
        lambda run: run.summary(),
        lambda run: run.max_position_error,
        lambda run: run.rank_changed,
        lambda run: run.plot(),
        lambda run: run.to_xarray(),
    ],
)
def test_figures_of_a_batch_are_asked_of_one_of_its_runs(asked):
    problem = uk.models.pendulum()
    runs = jax.vmap(lambda x: uk.simulate(problem.system, problem.q0, x * problem.v0, t1=0.1, ts=5))(
        jnp.arange(3.0)
    )
    with pytest.raises(uk.InputError, match=r"a batch of \(3,\) runs.*jax.tree.map\(lambda x: x\[i\]"):
        asked(runs)
    assert "successful" in repr(jax.tree.map(lambda x: x[1], runs))
