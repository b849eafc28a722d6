"""Reports on runs: estimated errors against a closed form, derivatives that are wrong found out, files read back."""

import json
import re

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from typer.testing import CliRunner

import ukjax as uk
from ukjax._cli._commands import app


def swing(**options) -> tuple[uk.Trajectory, np.ndarray]:
    """The pendulum of 1 m from 30 degrees below the horizontal, and its true errors of coordinates (2,)."""
    run = uk.simulate(uk.models.pendulum(), t1=5.0, ts=101, **options)
    start = np.arctan2(np.asarray(run.q[0, 0]), -np.asarray(run.q[0, 1]))
    angle, _ = oracles.pendulum_elliptic(np.asarray(run.t), start, 0.0, 9.81)
    true = np.stack([np.sin(angle), -np.cos(angle)], axis=1)
    return run, np.abs(np.asarray(run.q) - true).max(axis=0)


@pytest.mark.parametrize("tolerance", [1e-4, 1e-7, 1e-10])
@pytest.mark.parametrize("solver", [dfx.Dopri8(), dfx.Tsit5()], ids=["dopri8", "tsit5"])
def test_estimated_errors_of_adaptive_runs(solver, tolerance):
    """Within a tenth of the true one, as the second run's own error is below a tenth of the first's."""
    run, true = swing(solver=solver, rtol=tolerance, atol=tolerance)
    estimate = run.certify(directions=0).position_error
    assert np.all(true <= 1.1 * estimate)
    assert np.all(estimate <= 1.1 * true)


@pytest.mark.parametrize(("solver", "order"), [(dfx.Euler(), 1), (dfx.Heun(), 2)], ids=["euler", "heun"])
def test_estimated_errors_at_fixed_steps(solver, order):
    """A quarter of the step has at most 4^-p of the error at order p, so the estimate has at least 1 - 4^-p of it."""
    run, true = swing(solver=solver, dt0=5e-4, stepsize_controller=dfx.ConstantStepSize())
    certificate = run.certify(directions=0)
    estimate = certificate.position_error
    assert np.all((0.97 * (1 - 0.25**order) * true <= estimate) & (estimate <= 1.03 * true))
    assert certificate.sections["method"]["step"] == 5e-4
    assert certificate.ok


@pytest.mark.parametrize(
    ("row", "name", "error"),
    [
        (uk.Holonomic(lambda t, q: jnp.stack([q[0], q[0] - t**3]), name="walls"), "walls[1]", 0.5),
        (uk.Nonholonomic(lambda t, q, v: q[0], name="of positions"), "of positions", ".* 0.5"),
    ],
    ids=["contradicting", "of another kind"],
)
def test_rows_that_no_motion_keeps_are_told_of(row, name, error):
    """q_0 goes half way between 0 and t^3; and a row of positions that is taken for one of velocities holds nothing back,
    so that q_0 = t^2 / 2."""
    force = jnp.array([0.0 if row.name == "walls" else 1.0, -9.81])
    system = uk.System(jnp.eye(2), force, [row])
    with pytest.warns(uk.ConstraintWarning, match=rf"{re.escape(name)}\..* with errors up to {error}"):
        run = uk.simulate(system, jnp.zeros(2), jnp.zeros(2), t1=1.0, on_violation="continue")
    assert run.result_name == "constraints_broken"
    np.testing.assert_allclose(run.q_end[0], 0.5, rtol=1e-3 if row.name == "walls" else 1e-8)
    with pytest.warns(uk.ConstraintWarning):
        certificate = run.certify(directions=0)
    assert certificate.checks["constraints are kept"] is False


def falls(force) -> uk.Problem:
    """A bead on the x axis under a force of its position."""
    system = uk.System(jnp.eye(2), force, [uk.Holonomic(lambda t, q: q[1], name="axis")])
    return uk.Problem(system, [1.0, 0.0], [0.0, 0.0], 0.0, 1.0)


@jax.custom_jvp
def pull(q):
    return -q


@pull.defjvp
def _(primals, tangents):
    return pull(*primals), -1.001 * tangents[0]


@pytest.mark.slow
def test_derivatives_are_checked():
    """A force whose derivative is off by a thousandth is found out; the right one is not."""
    right = uk.simulate(falls(lambda t, q, v: -q), rtol=1e-10, atol=1e-10).certify()
    wrong = uk.simulate(falls(lambda t, q, v: pull(q)), rtol=1e-10, atol=1e-10).certify()
    name = "derivatives agree with differences"
    assert (right.checks[name], wrong.checks[name]) == (True, False)
    assert right.ok
    assert not wrong.ok
    assert 1e-5 < wrong.sections["derivatives"]["largest_relative"] < 1e-2
    assert right.sections["derivatives"]["largest_relative"] < 1e-8


@pytest.mark.slow
def test_forward_mode_and_redundant_rows():
    """Parameters of redundant rows are left as they are: changed one by one they would contradict each other."""
    run = uk.simulate(uk.models.parallelogram(), t1=0.4, adjoint=dfx.ForwardMode())
    certificate = run.certify(directions=1)
    assert certificate.ok
    assert "no parameters" in certificate.sections["derivatives"]["by"]


def test_singular_positions_are_told():
    (found,) = (
        uk.simulate(uk.models.parallelogram(), t1=0.7)
        .certify(directions=0)
        .sections["rank"]["singular_positions"]
    )
    angle = lambda t: oracles.parallelogram_elliptic(np.asarray(t), np.pi / 3, 0.0)[0]
    assert abs(np.sin(angle(found["t"]))) < 1e-5
    assert found["rank"] == [11, 10, 11]


def test_a_run_stopped_by_an_event():
    """The bead cos(t) meets x = 0.9 at acos(0.9)."""
    run = uk.simulate(falls(lambda t, q, v: -q), event=lambda t, q, v: q[0] - 0.9, rtol=1e-7, atol=1e-7)
    certificate = run.certify(directions=0)
    errors = certificate.sections["errors"]
    assert certificate.ok
    true = abs(float(run.t_end) - np.arccos(0.9))
    assert true <= 1.1 * errors["time_of_event"] + 1e-12
    assert errors["time_of_event"] <= 1.2 * true + 1e-12


def test_files(tmp_path):
    run, _ = swing()
    certificate = run.certify(tmp_path / "report.json", directions=0)
    told = json.loads((tmp_path / "report.json").read_text())
    assert told["errors"]["coordinates"] == list(certificate.position_error)
    assert told["checks"] == certificate.checks
    text = certificate.save(tmp_path / "report.md").read_text()
    assert text == str(certificate)
    assert f"| jax | {jax.__version__} |" in text
    assert "| solver | Dopri8 |" in text
    assert "| formula | none given |" in text
    assert "| start and end [s] | 0, 5 |" in text
    assert told["method"]["rank_threshold"] == 1e-4
    assert repr(certificate).startswith("Certificate 'pendulum' (the run reached its end: holds")


def test_on_the_command_line(tmp_path):
    """With derivatives, as by default."""
    report = tmp_path / "report.md"
    done = CliRunner().invoke(app, ["simulate", "pendulum", "--t1", "1", "--report", str(report), "--json"])
    assert done.exit_code == 0, done.stderr
    assert "| derivatives agree with differences | holds |" in report.read_text()
    assert json.loads(done.stdout)["result"] == "successful"
    refused = CliRunner().invoke(app, ["simulate", "pendulum", "--report", "report.txt"])
    assert (refused.exit_code, refused.stderr.startswith("error: a report is written to a .md")) == (2, True)


def test_what_is_refused(tmp_path):
    run, _ = swing()
    with pytest.raises(uk.InputError, match="a report is written to a"):
        run.certify(tmp_path / "report.pdf")
    with pytest.raises(uk.InputError, match="directions"):
        run.certify(directions=-1)
    loaded = uk.Trajectory.load(run.save(tmp_path / "run.npz"))
    with pytest.raises(uk.InputError, match="does not know how it was made"):
        loaded.certify()
    with pytest.raises(uk.InputError, match="does not know how it was made"):
        jax.jit(lambda: uk.simulate(uk.models.pendulum(), t1=1.0))().certify()


def test_a_run_that_ends_early_fails():
    certificate = uk.simulate(uk.models.pendulum(), max_steps=3).certify()
    assert not certificate.ok
    assert "derivatives" not in certificate.sections
    assert json.loads(certificate.to_json())["errors"]["coordinates"] is not None


def test_runs_with_equal_options_are_one_to_jit():
    """How a run was made is no array: a function of trajectories is traced once for runs that differ in their start."""
    traced = []

    @jax.jit
    def last(run):
        traced.append(run)
        return run.q_end

    for speed in (0.0, 0.1):
        run = uk.simulate(uk.models.pendulum(), v0=[0.5 * speed, 3**0.5 / 2 * speed], t1=0.5)
        np.testing.assert_array_equal(last(run), run.q_end)
    assert len(traced) == 1


@pytest.mark.slow
def test_contacts():
    """A ball that is thrown up and bounces: closed form between impacts."""
    ground = uk.Unilateral(lambda t, q: q[0], restitution=0.5, name="ground")
    ball = uk.System(jnp.eye(1), lambda t, q, v: jnp.array([-9.81]), [ground])
    certificate = uk.simulate(ball, [1.0], [0.0], t1=0.7).certify()
    assert certificate.ok
    assert certificate.position_error[0] < 1e-8
