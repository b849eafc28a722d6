"""What a run tells of itself: servo rows, points, reactions, loads and energies by part, under names of one's own."""

import builtins
import csv
import warnings

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
import ukjax.mechanisms as um

APART = uk.Holonomic(lambda t, q: q[1] - q[0] - 1.0, name="distance")
PUSH = jnp.array([[1.0], [0.0]])
GAINS = uk.Baumgarte(20.0, 100.0)  # (d/dt + 10)^2 of the error is zero
SPAN = {"t1": 0.5, "ts": 6}


def pushed(x2=0.9) -> uk.Problem:
    """Two masses, the first pushed so that they come to be 1 m apart."""
    return uk.with_servo(uk.models.two_mass_spring(x2=x2), PUSH, APART, stabilizer=GAINS)


@pytest.fixture(scope="module")
def servo_run() -> uk.Trajectory:
    return uk.simulate(pushed(), **SPAN)


def test_tracking_error_is_that_of_the_gains(servo_run):
    """e'' + 20 e' + 100 e = 0 from e = -0.1 at rest."""
    t, found = np.asarray(servo_run.t), servo_run.servo()
    decay = np.exp(-10 * t)
    np.testing.assert_allclose(found.position_error[:, 0], -0.1 * (1 + 10 * t) * decay, atol=1e-8)
    np.testing.assert_allclose(found.velocity_error[:, 0], 10 * t * decay, atol=1e-6)
    np.testing.assert_allclose(found.residual, 0, atol=1e-12)
    assert found.realizable.all()
    assert (found.row_names, found.row_kinds, found.input_names) == (("distance",), ("holonomic",), ("u[0]",))


def test_servo_multipliers_are_those_of_ideal_rows(servo_run):
    """And the inputs those of `servo_control`; the ideal rows are solved by the Udwadia-Kalaba formula."""
    system, found = uk.models.two_mass_spring().system, servo_run.servo()
    ideal = uk.System(system.mass_matrix, system.force, [APART])
    for i in (0, 4):
        at = servo_run.t[i], servo_run.q[i], servo_run.v[i]
        expected = uk.UdwadiaKalaba().acceleration(ideal, *at, stabilizer=GAINS)
        np.testing.assert_allclose(found.multipliers[i], expected.multipliers, rtol=1e-10)
        control = uk.servo_control(system, PUSH, APART, *at, stabilizer=GAINS)
        np.testing.assert_allclose(found.inputs[i], control.u, rtol=1e-12)


def test_summary_tells_how_the_servo_rows_were_followed(servo_run):
    figures, found = servo_run.summary(), servo_run.servo()
    assert figures["max_position_error"] == 0.0  # of passive rows, of which there are none
    assert figures["max_servo_position_error"] == pytest.approx(0.1)
    assert figures["servo_position_error_end"] == pytest.approx(0.6 * np.exp(-5), abs=1e-8)
    assert figures["max_servo_velocity_error"] == np.abs(found.velocity_error).max()
    assert figures["max_input"] == np.abs(found.inputs).max()
    assert "max_input" not in uk.simulate(uk.models.two_mass_spring(), **SPAN).summary()


@pytest.mark.parametrize("suffix", ["npz", "nc", "zarr"])
def test_files_keep_the_servo(servo_run, suffix, tmp_path):
    loaded = uk.Trajectory.load(servo_run.save(tmp_path / f"run.{suffix}"))
    for before, after in zip(
        jax.tree.leaves(servo_run.servo()), jax.tree.leaves(loaded.servo()), strict=True
    ):
        np.testing.assert_array_equal(after, before)
    assert loaded.summary() == servo_run.summary()
    assert "Tracking error" in [axes.get_title(loc="left") for axes in loaded.plot().axes]


def test_what_is_not_known_says_so(servo_run, tmp_path):
    plain = uk.simulate(uk.System(jnp.eye(1), jnp.zeros(1)), jnp.zeros(1), jnp.ones(1), t1=0.1, ts=2)
    for method, what in {
        "servo": "is not under servo control",
        "points": "defines no named points",
        "reactions": "is not a mechanism",
        "loads": "is not a mechanism",
        "energies": "defines no energy by parts",
    }.items():
        with pytest.raises(uk.InputError, match=f"System {what}"):
            getattr(plain, method)()
    loaded = uk.Trajectory.load(servo_run.save(tmp_path / "run.npz"))
    with pytest.raises(uk.InputError, match=r"with_problem\(problem\)"):
        loaded.points()
    with pytest.raises(uk.InputError, match="must be a Problem or a system, got int"):
        loaded.with_problem(3)
    with pytest.raises(uk.InputError, match=r"part of a run.*reaction.*reactions"):
        plain.to_xarray(parts="reaction")


def first_input(trajectory: uk.Trajectory) -> jax.Array:
    assert trajectory.problem is not None
    return trajectory.servo().inputs[0, 0] + 0 * trajectory.problem.q0[0]


def test_sweeps_tell_what_single_runs_do(servo_run):
    outputs = ["inputs", "servo_position_error", "max_servo_velocity_error", first_input]
    runs = uk.sweep(pushed, {"x2": [0.9, 1.2]}, outputs=outputs, progress=False, **SPAN)
    found = servo_run.servo()
    np.testing.assert_allclose(runs.inputs.sel(x2=0.9, input="u[0]"), found.inputs[:, 0], atol=1e-8)
    errors = runs.servo_position_error.sel(x2=0.9, servo_row="distance")
    np.testing.assert_allclose(errors, found.position_error[:, 0], atol=1e-9)
    np.testing.assert_allclose(runs.max_servo_velocity_error[0], np.exp(-1), atol=1e-6)  # e' at t = 0.1
    np.testing.assert_allclose(runs.first_input, runs.inputs[:, 0, 0])
    with pytest.raises(uk.InputError, match="no output inputs: two_mass_spring has no servo control"):
        uk.sweep(uk.models.two_mass_spring, {"x2": [1.0]}, outputs="inputs", progress=False, **SPAN)


ROD = um.rod("rod", (0.0, 0.0), (1.0, 0.0), mass=2.0)
PARTS = (
    [ROD],
    [um.Revolute("hinge", "ground", "rod", (0.0, 0.0))],
    [um.Gravity(), um.Actuator("motor", "hinge")],
)
COARSE = {"solver": dfx.Euler(), "dt0": 0.1}  # forces and energies are those of the states, wherever they are
MADE = {"assemble": um.assemble, "tree": um.tree}


def held(kind: str) -> uk.Problem:
    """A rod that is held level by a motor."""
    system = MADE[kind](*PARTS)
    level = uk.Holonomic(lambda t, q: q[-1], name="level")
    return uk.with_servo(um.problem(system, t1=0.2), um.input_matrix(system), level, stabilizer=GAINS)


@pytest.mark.parametrize("kind", ["assemble", pytest.param("tree", marks=pytest.mark.slow)])
def test_statics_of_a_rod_held_level(kind):
    """The motor bears m g l / 2, the hinge the weight and no torque, in absolute coordinates as in a tree."""
    run = uk.simulate(held(kind), ts=2, stabilizer=uk.NoStabilizer(), **COARSE)
    weight = 2.0 * 9.81
    assert run.servo().input_names == ("motor",)
    loads, hinge = run.loads(), run.reactions()["hinge"]
    np.testing.assert_allclose(loads["motor"].effort, weight / 2, rtol=1e-9)
    np.testing.assert_allclose(loads["gravity"].effort[:, 0], [[0, -weight]] * 2, atol=1e-9)
    np.testing.assert_allclose(loads["gravity"].power, 0, atol=1e-9)
    np.testing.assert_allclose(hinge.force, [[0, weight]] * 2, atol=1e-9)
    np.testing.assert_allclose(hinge.torque, 0, atol=1e-9)


def falling(kind: str, mass: float = 2.0) -> uk.Problem:
    rod = um.rod("rod", (0.0, 0.0), (1.0, 0.0), mass=mass)
    return um.problem(MADE[kind]([rod], *PARTS[1:]), t1=0.3)


@pytest.mark.parametrize("kind", MADE)
def test_energies_by_part_of_a_falling_rod(kind):
    """Kinetic m l^2 theta'^2 / 6, the potential of what the centre has fallen, and where the tip is."""
    run = uk.simulate(falling(kind), ts=4, **COARSE)
    parts, theta, rate = run.energies(), run.q[:, -1], run.v[:, -1]
    np.testing.assert_allclose(parts["kinetic_rod"], 2.0 * rate**2 / 6, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(parts["potential_gravity"], 9.81 * np.sin(theta), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(sum(parts.values()), run.energy, atol=1e-12)
    tip = np.stack([np.cos(theta), np.sin(theta)], axis=1)
    np.testing.assert_allclose(run.points()["rod.end"], tip, atol=1e-9)


@pytest.mark.slow
def test_parts_are_the_same_in_sweeps_and_compiled_runs():
    run = uk.simulate(falling("tree"), ts=4, **COARSE)
    force, rate = run.reactions()["hinge"].force, run.v[:, 0]
    outputs = ["energies", "points_end", "reactions", "loads"]
    vary = {"mass": [2.0]}
    runs = uk.sweep(lambda mass: falling("tree", mass), vary, outputs=outputs, ts=4, progress=False, **COARSE)
    np.testing.assert_allclose(runs.energy_kinetic_rod[0], 2.0 * rate**2 / 6, atol=1e-9)
    np.testing.assert_allclose(runs["point_rod.end_end"][0], run.points()["rod.end"][-1], atol=1e-9)
    np.testing.assert_allclose(runs.force_hinge[0], force, atol=1e-9)
    assert runs.force_hinge.attrs["units"] == "N"
    # What gravity feeds in is the growth of the kinetic energy, m l^2 theta' theta'' / 3.
    np.testing.assert_allclose(runs.power_gravity[0], 2.0 * rate * run.a[:, 0] / 3, atol=1e-9)

    def compiled(mass):
        problem = falling("tree", mass)
        run = uk.simulate(problem, ts=4, **COARSE)
        assert run.problem is None
        return run.with_problem(problem).reactions()["hinge"].force[:4]

    np.testing.assert_allclose(jax.jit(compiled)(2.0), force, atol=1e-9)


def test_labels_are_distinct_and_fit():
    box = um.box("box", (0.0, 0.0, 0.0), (1.0, 0.5, 0.2), mass=2.0)
    free = um.tree([box], [um.Free("free", "ground", "box", (0.0, 0.0, 0.0))])
    for system in (free, um.assemble([box]), um.assemble([box], coordinates="euler parameters")):
        n = jax.eval_shape(system.mass_matrix, jnp.zeros(()), system.q0).shape[0]
        for labels, count in ((system.labels, system.q0.size), (system.velocity_labels, n)):
            assert len(set(labels)) == len(labels) == count
    assert free.labels[2:4] == ("free z", "free qw")
    assert free.velocity_labels[2:4] == ("free z", "free wx")
    planar = um.assemble(*PARTS)
    assert planar.labels == planar.velocity_labels == ("rod x", "rod y", "rod theta")
    assert "rod theta = " in str(uk.check(planar, 0.0, jnp.array([0.3, 0.4, 0.5]), jnp.zeros(3)))


class Crane(uk.AbstractSystem):
    """A user's class."""

    labels: tuple
    constraints = ()

    def mass_matrix(self, t, q):
        return jnp.eye(2)

    def force(self, t, q, v):
        return -q


def crane(labels=("trolley", "rope, left")) -> uk.Trajectory:
    return uk.simulate(Crane(labels), jnp.array([1.0, 2.0]), jnp.zeros(2), t1=1.0, ts=3)


def test_names_of_ones_own_reach_everything(tmp_path):
    run = crane()
    assert run.name == run.problem.name == uk.with_servo(run.problem, PUSH, APART).name == "Crane"
    assert uk.Problem(uk.with_servo(Crane(()), PUSH, APART), [0.0, 1.0], [0.0, 0.0], 0, 1).name == "Crane"
    np.testing.assert_array_equal(run.to_xarray().q.sel(coordinate="trolley"), run.q[:, 0])
    np.testing.assert_array_equal(run.to_xarray().a.sel(velocity="rope, left"), run.a[:, 1])
    legend = run.plot().axes[0].get_legend().get_texts()
    assert [text.get_text() for text in legend] == ["trolley", "rope, left"]
    assert uk.Trajectory.load(run.save(tmp_path / "run.npz")).names == run.names
    frame = run.to_pandas()
    np.testing.assert_array_equal(frame["q[trolley]"], run.q[:, 0])
    assert frame.index.name == "t"
    assert frame.attrs["model"] == "Crane"
    with run.save(tmp_path / "run.csv").open(newline="") as file:
        names, *rows = csv.reader(file)
    assert names == ["t", *frame.columns]
    np.testing.assert_array_equal(np.array(rows, float)[:, names.index("v[rope, left]")], run.v[:, 1])
    with pytest.raises(uk.InputError, match=r"lacks what a trajectory needs"):
        uk.Trajectory.load(tmp_path / "run.csv")
    functions = uk.System(jnp.eye(1), jnp.zeros(1), labels=["x"])
    assert uk.simulate(functions, jnp.zeros(1), jnp.ones(1), t1=0.1).names == (("x",), ("x",))


@pytest.mark.parametrize(
    ("labels", "match"),
    [(("a",), "a tuple of 2 names"), (3, "a tuple of 2 names"), (("a", "a"), "'a' twice")],
)
def test_labels_that_do_not_fit_are_refused(labels, match):
    with pytest.raises(uk.InputError, match=f"`labels` of Crane.*{match}"):
        crane(labels)


def test_without_names_they_are_numbered():
    run = crane(())
    assert run.names == (("q[0]", "q[1]"), ("v[0]", "v[1]"))
    assert {"q[1]", "a[0]", "energy", "rank"} & set(run.to_pandas().columns) == {"q[1]", "a[0]", "rank"}


def test_pandas_that_is_missing_is_named(monkeypatch):
    real = builtins.__import__

    def missing(name, *args, **kwargs):
        if name == "pandas":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    run = crane()
    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(uk.MissingExtraError, match=r"to_pandas\(\).*ukjax\[data\]"):
        run.to_pandas()


def test_of_many_coordinates_those_that_move_most_are_drawn():
    """Twelve oscillators, the amplitude of each that of its number, in mixed order."""
    amplitudes = np.random.default_rng(0).permutation(12) + 1.0
    run = uk.simulate(uk.System(jnp.eye(12), lambda t, q, v: -q), amplitudes, np.zeros(12), t1=3.0, ts=9)
    axes = run.plot().axes[0]
    assert "10 of 12" in axes.get_title(loc="left")
    drawn = {line.get_label() for line in axes.lines}
    assert drawn == {f"q[{i}]" for i in np.flatnonzero(amplitudes > 2)}
    assert {text.get_text() for text in axes.get_legend().get_texts()} == drawn


def test_accelerations_alone_draw_no_empty_panel():
    row = uk.AccelerationConstraint(lambda t, q, v: (jnp.array([[1.0, 1.0]]), jnp.zeros(1)), name="together")
    run = uk.simulate(uk.System(jnp.eye(2), lambda t, q, v: -q, [row]), np.ones(2), np.zeros(2), t1=1.0, ts=3)
    figure = run.plot()
    assert all(axes.lines for axes in figure.axes)
    assert "Constraint error" not in [axes.get_title(loc="left") for axes in figure.axes]


def test_outlines_of_bodies_are_closed():
    corners = {"a": (0.0, 0.0), "b": (1.0, 0.0), "c": (0.5, 0.9)}
    plate = um.PlanarBody("plate", 1.0, (0.5, 0.3), 0.1, points=corners)
    system = um.assemble([plate])
    outline = system.drawing(jnp.asarray(0.0), system.q0)["plate"]
    np.testing.assert_allclose(outline, [*corners.values(), corners["a"]], atol=1e-15)


def test_a_mechanism_has_the_name_it_is_given():
    arm = um.rod("arm", (0, 0), (0, 1), 1.0)
    pin = um.Revolute("pin", "ground", "arm", (0, 0))
    swing = um.tree([arm], [pin], name="swing")
    run = uk.simulate(swing, swing.q0, swing.v0, t1=0.1, ts=2)
    assert (run.name, run.summary()["model"]) == ("swing", "swing")
    assert um.problem(um.assemble([arm], [pin], name="swing"), v0=np.zeros(3)).name == "swing"
    assert um.problem(swing, name="clock").name == "clock"
    assert um.problem(um.tree([arm], [pin])).name == "mechanism"
    with pytest.raises(uk.InputError, match="the name of a mechanism must be a word, got 3"):
        um.tree([arm], [pin], name=3)


def test_zarr_opens_without_a_warning(tmp_path):
    import xarray

    crane().save(tmp_path / "run.zarr")
    uk.sweep(lambda x: {"y": 2 * x}, {"x": [1.0, 2.0]}, store=tmp_path / "sweep.zarr", progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(xarray.open_zarr(tmp_path / "run.zarr").coordinate.values) == ["trolley", "rope, left"]
        assert xarray.open_zarr(tmp_path / "sweep.zarr").y.values.tolist() == [2.0, 4.0]


def test_gains_print_as_numbers():
    assert repr(uk.Baumgarte(20.0, [1.0, 2.0])) == "Baumgarte(alpha=20.0, beta=[1.0, 2.0])"
