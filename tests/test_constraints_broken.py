"""Runs whose constraints no motion keeps: they end there, with a result that says so.

The references are geometry: chains of rods from the origin to a point that is moved reach as far as they are long.
"""

import json
import warnings

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq
from typer.testing import CliRunner

import ukjax as uk
import ukjax.mechanisms as um
from ukjax._cli._commands import app

RATE = 0.2
REACHED = (1 - 0.6) / RATE
"""A point on a unit circle is pulled along x from 0.6 at this rate: until x = 1."""


def _pulled(rate=RATE):
    rod = uk.Holonomic(lambda t, q: q[0] ** 2 + q[1] ** 2 - 1.0, name="rod")
    pull = uk.Holonomic(lambda t, q: q[0] - 0.6 - rate * t, name="pull")
    return uk.System(jnp.eye(2), jnp.zeros(2), [rod, pull])


Q0 = jnp.array([0.6, 0.8])


def _run(rate=RATE, **options):
    rate = jnp.asarray(rate)
    v0 = rate * jnp.array([1.0, -0.75])
    return uk.simulate(_pulled(rate), Q0, v0, **({"t1": 4.0, "ts": 41} | options))


@pytest.mark.parametrize(
    ("options", "late"),
    [
        ({}, 1e-6),
        pytest.param({"ts": "steps"}, 1e-6, marks=pytest.mark.slow),
        pytest.param({"event": lambda t, q, v: q[1] + 0.5}, 1e-6, marks=pytest.mark.slow),
        pytest.param({"formula": uk.UdwadiaKalaba(uk.SVD())}, 1e-6, marks=pytest.mark.slow),
        ({"stepsize_controller": dfx.ConstantStepSize(), "dt0": 0.05}, 0.051),
    ],
    ids=["default", "steps", "event", "SVD", "fixed steps"],
)
def test_it_stops_where_no_motion_is_left(options, late):
    with pytest.warns(uk.ConstraintWarning, match="rod, pull"):
        run = _run(**options)
    assert run.result_name == "constraints_broken"
    assert not run.ok
    assert -1e-9 <= run.t_end - REACHED < late
    assert run.broken_rows == ("rod", "pull")
    assert "rod, pull" in run.message
    before = np.asarray(run.t) < REACHED
    assert np.abs(run.position_error[before]).max() < 1e-6
    assert run.summary()["broken_rows"] == ["rod", "pull"]
    with pytest.raises(uk.SimulationError, match="could be kept no longer"):
        run.raise_if_failed()


def _contradicting(**options):
    """Rows of one rank that ask for different velocities from t = 0.5 on."""
    first = uk.Nonholonomic(lambda t, q, v: v[0] - 1.0, name="belt")
    second = uk.Nonholonomic(lambda t, q, v: v[0] - 1.0 - jnp.maximum(t - 0.5, 0.0), name="wall")
    return uk.simulate(uk.System(jnp.eye(1), jnp.zeros(1), [first, second]), [0.0], [1.0], t1=1.0, **options)


def test_it_goes_on_where_asked():
    with pytest.warns(uk.ConstraintWarning, match="The run ended at"):
        run = _contradicting(on_violation="continue")
    assert run.result_name == "constraints_broken"
    assert run.t_end == 1.0
    np.testing.assert_allclose(run.max_velocity_error, 0.25, atol=0.01)  # least squares of 1 and 1.5
    assert np.all(np.isfinite(run.t))
    with pytest.raises(uk.InputError, match="on_violation"):
        _contradicting(on_violation="ignore")


def test_within_jit_and_in_batches():
    """Members that get stuck and members that do not, each as if it ran alone."""
    rates = np.array([0.05, 0.2, 0.0, 0.4, -0.1])
    runs = jax.jit(jax.vmap(_run))(rates)
    names = [jax.tree.map(lambda x, i=i: x[i], runs).result_name for i in range(5)]
    assert names == ["successful", "constraints_broken"] * 2 + ["successful"]
    stuck = np.array([1, 3])
    np.testing.assert_allclose(runs.t_end[stuck], (1 - 0.6) / rates[stuck], atol=1e-6)
    np.testing.assert_array_equal(runs.t_end[np.array([0, 2, 4])], 4.0)
    np.testing.assert_array_equal(
        np.isfinite(runs.t[3])[runs.t[0] != 1.0], (runs.t[0] < 1.0)[runs.t[0] != 1.0]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        alone = _run(0.4)
    np.testing.assert_array_equal(alone.t, runs.t[3])
    before = np.asarray(alone.t) < 0.95  # up to where velocities grow without bound
    np.testing.assert_allclose(alone.q[before], runs.q[3][before], atol=1e-9)


@pytest.mark.slow
def test_a_derivative_beside_runs_that_stop():
    """Of a batch in which one run gets to its end, at x = 0.8 where y = sqrt(1 - x^2)."""
    slope = jax.grad(lambda rates: jax.vmap(_run)(rates).q_end[0, 1])(jnp.array([0.05, 0.4]))
    np.testing.assert_allclose(slope, [-0.8 / 0.6 * 4.0, 0.0], rtol=1e-6)


def test_derivatives_beside_times_that_were_not_reached():
    """x = 0.6 + rate t and y = sqrt(1 - x^2), of which runs reach t = 0.5; by reverse mode."""
    t, rate = 0.25, 0.4
    x = 0.6 + rate * t
    of = lambda rate: _run(rate, t1=4.0, ts=17, event=lambda t, q, v: t - 0.5).q[1]
    np.testing.assert_allclose(jax.jacrev(of)(rate), [t, -x * t / np.sqrt(1 - x**2)], rtol=1e-3)


def test_contradictions_of_velocities():
    with pytest.warns(uk.ConstraintWarning):
        run = _contradicting()
    assert run.result_name == "constraints_broken"
    np.testing.assert_allclose(run.t_end, 0.5, atol=1e-3)
    assert run.broken_rows == ("belt", "wall")


@pytest.mark.slow
def test_in_float32():
    with jax.enable_x64(False), pytest.warns(uk.ConstraintWarning):
        run = uk.simulate(
            _pulled(np.float32(RATE)), np.float32(Q0), RATE * np.float32([1.0, -0.75]), t1=4.0, ts=5
        )
    assert run.result_name == "constraints_broken"
    np.testing.assert_allclose(run.t_end, REACHED, atol=0.02)


def _over_a_floor(rate=RATE, **options):
    rate = jnp.asarray(rate)
    floor = uk.Unilateral(lambda t, q: q[1] + 10.0, name="floor")
    system = uk.System(jnp.eye(2), jnp.zeros(2), [*_pulled(rate).constraints, floor])
    return uk.simulate(system, Q0, rate * jnp.array([1.0, -0.75]), **({"t1": 4.0, "ts": 17} | options))


@pytest.mark.slow
def test_of_a_run_with_contacts():
    with pytest.warns(uk.ConstraintWarning, match="rod, pull"):
        run = _over_a_floor()
    assert run.result_name == "constraints_broken"
    np.testing.assert_allclose(run.t_end, REACHED, atol=1e-5)
    assert run.broken_rows == ("rod", "pull")
    assert run.max_position_error < 1e-6
    assert not np.isfinite(run.t[-1])


@pytest.mark.slow
def test_of_runs_with_contacts_in_a_batch_and_their_derivatives():
    runs = jax.jit(jax.vmap(_over_a_floor))(np.array([0.05, 0.4]))
    assert np.asarray(runs.result == uk.RESULTS.constraints_broken).tolist() == [False, True]
    np.testing.assert_allclose(runs.t_end, [4.0, 1.0], atol=1e-5)
    slope = jax.grad(lambda rate: _over_a_floor(rate).q[3, 1])(0.4)  # at x = 0.9
    np.testing.assert_allclose(slope, -0.9 * 0.75 / np.sqrt(1 - 0.9**2), rtol=1e-3)


H = 0.03
BY_STEPS = {"ts": 9, "contact": "steps", "dt0": H}


def test_of_a_run_with_contacts_by_steps():
    """It ends with the first step that is off, as a run by fixed steps without contacts does."""
    with pytest.warns(uk.ConstraintWarning, match=r"rod, pull\. The run ended at 2"):
        run = _over_a_floor(**BY_STEPS)
    assert run.result_name == "constraints_broken"
    assert not run.ok
    assert -1e-9 <= run.t_end - REACHED < H
    assert run.broken_rows == ("rod", "pull")
    assert run.max_position_error < 1e-5
    t, x = np.asarray(run.t), 0.6 + RATE * np.asarray(run.t)
    np.testing.assert_array_equal(np.isfinite(t), np.linspace(0, 4, 9) <= run.t_end)
    before = t < REACHED - H
    np.testing.assert_allclose(run.q[before, 1], np.sqrt(1 - x[before] ** 2), atol=1e-9)
    assert int(run.stats["num_steps"]) == round(float(run.t_end) / (4 / 134))


@pytest.mark.slow
def test_of_runs_with_contacts_by_steps_in_a_batch():
    rates = np.array([0.05, 0.4])
    runs = jax.jit(jax.vmap(lambda rate: _over_a_floor(rate, **BY_STEPS)))(rates)
    assert np.asarray(runs.result == uk.RESULTS.constraints_broken).tolist() == [False, True]
    late = np.asarray(runs.t_end) - np.minimum(4.0, 0.4 / rates)
    assert late[0] == 0
    assert -1e-9 <= late[1] < H
    np.testing.assert_allclose(runs.q_end[0], [0.8, 0.6], atol=1e-9)


@pytest.mark.slow
def test_of_a_run_with_contacts_by_steps_that_goes_on():
    with pytest.warns(uk.ConstraintWarning, match="The run ended at"):
        run = _over_a_floor(ts=5, contact="steps", dt0=0.05, on_violation="continue")
    assert run.result_name == "constraints_broken"
    assert run.t_end == 4.0
    assert np.all(np.isfinite(run.t))


@pytest.mark.slow
def test_derivatives_of_steps_that_stop():
    """Of y = sqrt(1 - x^2) with x = 0.6 + rate t, where runs get to, also beside one that stops."""
    run = lambda rate: _over_a_floor(rate, ts=5, contact="differentiated steps", dt0=0.03)
    y = lambda rate: run(rate).q[1, 1]
    slope = -0.8 / np.sqrt(1 - 0.8**2)
    np.testing.assert_allclose([jax.grad(y)(0.2), jax.jacfwd(y)(0.2)], slope, rtol=1e-9)
    batch = jax.grad(lambda rates: jnp.sum(jax.vmap(run)(rates).q[:, 1, 1]))(jnp.array([0.05, 0.2]))
    np.testing.assert_allclose(batch, [-0.65 / np.sqrt(1 - 0.65**2), slope], rtol=1e-9)


def test_a_sweep():
    rates = np.array([0.05, 0.2, 0.4])
    problem = lambda rate: uk.Problem(_pulled(rate), Q0, rate * jnp.array([1.0, -0.75]), 0.0, 4.0)
    runs = uk.sweep(problem, {"rate": rates}, progress=False)
    assert (runs.result == 0).values.tolist() == [True, False, False]
    assert runs.result.attrs["flag_meanings"].split()[int(runs.result[1]) + 1] == "constraints_broken"
    np.testing.assert_allclose(runs.t_end, [4.0, 2.0, 1.0], atol=1e-6)
    assert np.isnan(runs.q_end.values[1:]).all()


def test_on_the_command_line(tmp_path):
    model = tmp_path / "pulled.py"
    model.write_text(
        "import jax.numpy as jnp\nimport ukjax as uk\n"
        "def pulled(rate: float = 0.2):\n"
        "    rod = uk.Holonomic(lambda t, q: q[0] ** 2 + q[1] ** 2 - 1.0, name='rod')\n"
        "    pull = uk.Holonomic(lambda t, q: q[0] - 0.6 - rate * t, name='pull')\n"
        "    system = uk.System(jnp.eye(2), jnp.zeros(2), [rod, pull])\n"
        "    return uk.Problem(system, jnp.array([0.6, 0.8]), rate * jnp.array([1.0, -0.75]), 0.0, 4.0)\n"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = CliRunner().invoke(app, ["simulate", f"{model}:pulled", "--json"])
    assert found.exit_code == 1
    told = json.loads(found.stdout)
    assert told["result"] == "constraints_broken"
    assert told["broken_rows"] == ["rod", "pull"]
    np.testing.assert_allclose(told["t1"], REACHED, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "late", "off"),
    [
        pytest.param({}, 1e-5, 1e-6, id="without contact"),
        pytest.param({"contact": "events"}, 1e-5, 1e-5, id="events"),
        pytest.param({"contact": "steps", "dt0": 2e-3}, 2e-3, 4e-4, id="steps"),
    ],
)
@pytest.mark.slow
def test_a_slider_pulled_beyond_its_reach(options, late, off):
    """Also with a ball at the slider, which a wall that it never gets to would stop."""
    pin = (0.3 * np.cos(0.5), 0.3 * np.sin(0.5))
    end = (pin[0] + np.sqrt(0.64 - pin[1] ** 2), 0.0)
    bodies = [um.rod("crank", (0.0, 0.0), pin, mass=1.0), um.rod("rod", pin, end, mass=1.0)]
    bodies.append(um.PlanarBody("slider", 2.0, end, 0.01))
    joints = [
        um.Revolute("base", "ground", "crank", (0.0, 0.0)), um.Revolute("elbow", "crank", "rod", pin),
        um.Revolute("wrist", "rod", "slider", end), um.Prismatic("guide", "ground", "slider", end, (1.0, 0.0)),
        um.Drive("motor", "guide", lambda t: 0.2 * t),
    ]  # fmt: skip
    wall = um.Contact(um.HalfSpace("ground", (3.0, 0.0), normal=(-1.0, 0.0)), um.Sphere("slider", end, 0.1))
    system = um.assemble(bodies, joints, contacts=[wall] if options else [])
    with pytest.warns(uk.ConstraintWarning, match="motor"):
        run = uk.simulate(um.problem(system, t1=1.0), **options)
    assert run.result_name == "constraints_broken"
    assert -1e-5 < run.t_end - (0.3 + 0.8 - end[0]) / 0.2 < late
    assert "motor" in run.broken_rows
    assert run.max_position_error < off


def _chain(lengths, path):
    """Points on rods from the origin to a point that moves on a path."""
    count = len(lengths) - 1

    def rods(t, q):
        points = jnp.concatenate([jnp.zeros((1, 2)), q.reshape(count, 2), path(t)[None]])
        return jnp.sum(jnp.diff(points, axis=0) ** 2, axis=1) - lengths**2

    return uk.System(jnp.eye(2 * count), lambda t, q, v: -jnp.tile(jnp.array([0.0, 9.81]), count), [
        uk.Holonomic(rods, name="rods")
    ])  # fmt: skip


def _folded(rng, count):
    """Random lengths, places of points with these distances, and the amplitude of the path's last point."""
    angles = rng.uniform(-1.2, 1.2, count)
    lengths = rng.uniform(0.4, 1.0, count)
    points = np.cumsum(lengths[:, None] * np.stack([np.cos(angles), np.sin(angles)], 1), axis=0)
    return lengths, points, rng.normal(size=2) * rng.uniform(0.1, 0.8)


def _stuck_at(lengths, points, amplitude):
    """When the end of the path is first too far for all rods, or too near for the longest; None if it never is."""

    def room(t):
        distance = np.linalg.norm(points[-1] + amplitude * np.sin(2 * t))
        return min(sum(lengths) - distance, distance - 2 * max(lengths) + sum(lengths))

    ts = np.linspace(0, 1.5, 3001)
    first = np.flatnonzero([room(t) < 0 for t in ts])
    return brentq(room, ts[first[0] - 1], ts[first[0]]) if first.size else None


@pytest.mark.parametrize(
    "count", [2, pytest.param(3, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.slow)]
)
def test_result_zero_means_kept(count):
    """Random chains whose end is moved to and fro by random amounts: the result is 0 where that can be, and then
    errors are below 1e-6; else it is known when it cannot, of two rods on either side."""
    rng = np.random.default_rng(count)
    chains = [_folded(rng, count) for _ in range(40)]

    def run(lengths, points, amplitude):
        path = lambda t: points[-1] + amplitude * jnp.sin(2 * t)
        v0 = jnp.zeros(2 * count - 2)
        start = points[:-1].reshape(-1)
        return uk.simulate(
            _chain(lengths, path), start, v0, t1=1.5, ts=61, start_tolerance=jnp.inf, max_steps=4000
        )

    runs = jax.jit(jax.vmap(run))(*(jnp.array(x) for x in zip(*chains, strict=True)))
    results = np.asarray(jax.tree.leaves(runs.result)[0])
    errors = np.maximum(np.abs(runs.position_error), np.abs(runs.velocity_error)).max(axis=(1, 2))
    assert errors[results == 0].max() < 1e-6
    for i, chain in enumerate(chains):
        when = _stuck_at(*chain)
        assert results[i] == (0 if when is None else 16), i
        if when is not None:
            np.testing.assert_allclose(runs.t_end[i], when, atol=1e-4)
    assert 5 < np.sum(results == 0) < 35


def _held(reach):
    """A point held by two rods of length 1, from (0, 0) and (reach, 0): beyond 2 there is none."""
    rods = lambda t, q: jnp.stack([jnp.sum(q**2), (q[0] - reach) ** 2 + q[1] ** 2]) - 1.0
    system = uk.System(jnp.eye(2), jnp.zeros(2), [uk.Holonomic(rods, name="rods")])
    return uk.Problem(system, jnp.stack([reach / 2, jnp.sqrt(1 - reach**2 / 4)]), jnp.zeros(2), 0.0, 1.0)


def test_a_first_run_that_cannot_start_does_not_end_a_sweep():
    runs = uk.sweep(_held, {"reach": [2.5, 1.0, 1.5]}, progress=False)
    names = runs.result.attrs["flag_meanings"].split()
    assert [names[i + 1] for i in runs.result.values] == ["diverged", "successful", "successful"]
    np.testing.assert_allclose(runs.q_end[1:, 0], [0.5, 0.75], atol=1e-12)
    assert np.isnan(runs.q_end[0]).all()


# --- Velocities that would have to jump: free masses whose constraints turn or stop them at x = 1 after 1 s

_LINE = uk.Holonomic(lambda t, q: q[1], name="line")
_WALL = uk.Holonomic(lambda t, q: q[1] + jnp.maximum(q[0] - 1.0, 0.0) ** 2, name="wall")
_RAMP = uk.Holonomic(lambda t, q: q[1] - 0.17 * jnp.maximum(q[0] - 1.0, 0.0), name="ramp")
_DRIVE = uk.Holonomic(
    lambda t, q: q[0] - jnp.interp(t, jnp.array([0.0, 1.0, 2.0]), jnp.array([0.0, 1.0, 0.5])), name="drive"
)
_FLOOR = uk.Unilateral(lambda t, q: q[2] + 1.0, name="floor")


def _straight_on(rows, other=0.0, **options):
    system = uk.System(jnp.eye(3), jnp.zeros(3), rows)
    return uk.simulate(system, [0.0, 0.0, 0.0], [1.0, 0.0, other], **({"t1": 2.0, "ts": 5} | options))


@pytest.mark.parametrize(
    ("rows", "options"),
    [
        ([_LINE, _WALL], {}),
        ([_LINE, _WALL], {"other": 10.0}),
        pytest.param([_LINE, _WALL], {"solver": dfx.Tsit5(), "ts": "steps"}, marks=pytest.mark.slow),
        ([_RAMP], {}),
        ([_DRIVE], {}),
        pytest.param([_RAMP, _FLOOR], {}, marks=pytest.mark.slow),
    ],
    ids=["wall", "wall beside another", "wall, steps", "ramp", "drive", "ramp and contact"],
)
def test_it_stops_where_velocities_would_have_to_jump(rows, options):
    with pytest.warns(uk.ConstraintWarning):
        run = _straight_on(rows, **options)
    assert run.result_name == "constraints_broken"
    np.testing.assert_allclose([run.t_end, run.q_end[0]], 1.0, atol=1e-5)
    before = np.isfinite(run.t) & (run.t < 1.0)
    np.testing.assert_allclose(run.v[before, 0], 1.0, rtol=1e-9)


@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param({"ts": "steps"}, marks=pytest.mark.slow),
        pytest.param({"solver": dfx.Kvaerno5()}, marks=pytest.mark.slow),
        pytest.param({"event": uk.Event(lambda t, q, v: q[0] - 1.9)}, marks=pytest.mark.slow),
        pytest.param({"contact": "events"}, marks=pytest.mark.slow),
    ],
    ids=["default", "steps", "implicit", "event", "contact"],
)
def test_it_stops_soon_where_rows_depart_from_each_other_slowly(options):
    """Where their rates differ by little more than is kept, x - 1 = 0.037: steps crept on by 1e-12 s for ever."""
    slow = uk.Holonomic(lambda t, q: q[1] + jnp.maximum(q[0] - 1.0, 0.0) ** 6, name="slow")
    rows = [_LINE, slow, *([_FLOOR] if "contact" in options else [])]
    with pytest.warns(uk.ConstraintWarning):
        run = _straight_on(rows, max_steps=300, **options)
    assert run.result_name == "constraints_broken"
    assert set(run.broken_rows) == {"line", "slow"}
    assert 0.0 < run.q_end[0] - 1.0 < (1e-6 / 6) ** 0.2
    assert run.max_velocity_error < 1e-6


def test_with_fixed_steps_it_stops_where_little_of_the_velocity_would_be_left():
    fixed = {"stepsize_controller": dfx.ConstantStepSize(), "dt0": 0.01}
    with pytest.warns(uk.ConstraintWarning):
        run = _straight_on([_LINE, _WALL], **fixed)
    assert run.result_name == "constraints_broken"
    np.testing.assert_allclose(run.t_end, 1.0, atol=0.011)


def test_it_goes_on_if_that_is_asked_for_with_what_the_projection_leaves():
    run = _straight_on([_RAMP], on_violation="continue")
    assert run.ok
    turned = np.array([1.0, 0.17, 0.0])
    np.testing.assert_allclose(run.v_end, turned / (turned @ turned), atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{"contact": "steps", "dt0": 0.02}, {"contact": "events"}], ids=["steps", "events"]
)
def test_gap_that_becomes_nan_ends_the_run(options) -> None:
    """A roof whose height has no value after half a second: the run stops there, within `jit` too, and names it."""
    roof = uk.Unilateral(lambda t, q: 1.0 + jnp.sqrt(0.5 - t) - q[0], name="roof")
    system = uk.System(jnp.eye(1), jnp.zeros(1), [roof])
    run = uk.simulate(system, [0.1], [0.2], t1=1.0, ts=5, **options)
    assert run.result_name == "diverged"
    assert "roof is not finite" in run.message
    np.testing.assert_allclose(run.t_end, 0.5, atol=0.02)
    np.testing.assert_allclose(run.q[:2, 0], 0.1 + 0.2 * run.t[:2])
    assert np.all(np.isnan(run.q[3:]))
    within = jax.jit(lambda q: uk.simulate(system, q, jnp.array([0.2]), t1=1.0, **options))(jnp.array([0.1]))
    assert within.result == run.result
    np.testing.assert_allclose(within.t_end, run.t_end)
