"""The scripts that reproduce the papers: their oracles, and that each runs and finds what it says."""

import importlib
import sys
from pathlib import Path

import numpy as np
import oracles
import pytest

EXPERIMENTS = Path(__file__).parents[1] / "experiments"


@pytest.fixture
def script(monkeypatch):
    """script(name): a module of `experiments/`."""
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    yield importlib.import_module
    for path in EXPERIMENTS.glob("*.py"):
        sys.modules.pop(path.stem, None)


# --- Oracles


@pytest.mark.parametrize(("angle", "rate"), [(60.0, 0.0), (90.0, 1.0), (-80.0, 5.0), (-60.0, 0.0)])
def test_closed_form_of_the_parallelogram_is_elliptic(script, angle, rate):
    linkage = script("linkage")
    theta = linkage.closed_form(np.radians(angle), rate)
    exact = oracles.parallelogram_elliptic(linkage.TIMES, np.radians(angle), rate)[0]
    np.testing.assert_allclose(theta, exact, rtol=0, atol=1e-9)


def test_scara_posture_meets_the_constraints(script):
    scara = script("scara_xu_liu")
    t = np.linspace(0.0, 20.0, 57)
    q = scara.posture(t)
    np.testing.assert_allclose(scara.tool(q), scara.path(t), rtol=0, atol=1e-14)
    np.testing.assert_allclose(q[:, :3].sum(axis=1), 0.0, rtol=0, atol=1e-14)
    np.testing.assert_allclose(np.degrees(q[0, :3]), (30.753, -54.900, 24.147), rtol=0, atol=1e-3)
    assert np.all(q[:, 1] < 0)


def test_scara_drift_is_that_of_the_printed_start(script):
    drift = script("scara_xu_liu").drift
    np.testing.assert_allclose(drift(0.0), (5.6546e-3, -2.1797e-4, 0.0), rtol=0, atol=1e-7)
    np.testing.assert_allclose(drift(20.0)[1:], (-1.776e-2, -1.0e-2), rtol=0, atol=1e-5)


def test_every_row_of_the_paper_is_there(script):
    dpv = script("pseudoinverse_dpv")
    keys = {(stabilizer, tol, method) for stabilizer, tol in dpv.TABLE for method in dpv.METHODS}
    assert set(dpv.PAPER) == keys


# --- Judging a run


def _states(script, case):
    linkage = script("linkage")
    theta = linkage.closed_form(case.angle, case.rate)
    q = np.zeros((theta.size, 12))
    q[:, [2, 5, 8]] = theta[:, None]
    last = lambda x: np.concatenate([x, x[-1:]])
    return linkage, last(linkage.TIMES), last(q), np.zeros((theta.size + 1, 12))


def test_judge(script):
    case = script("linkage").Case(np.pi / 3, 0.0, 1e-8)
    linkage, t, q, phi = _states(script, case)

    def judged(t=t, q=q, phi=phi):
        return linkage.judge(t, q, phi, 10, 140, case)

    assert (judged().kind, str(judged())) == ("right", "Correct")
    q_wrong = np.where(t[:, None] > 5.02, q + 1.0, q)
    assert str(judged(q=q_wrong)) == "Wrong branch after 5.00 s"
    assert str(judged(q=q_wrong, phi=phi + 0.01)) == "Correct up to 5.00 s"
    unreached = np.where(t[:, None] > 7.02, np.inf, q)
    stopped = np.where(t > 7.02, np.inf, t)
    stopped[-1], unreached[-1] = 7.03, q[141]
    assert str(judged(t=stopped, q=unreached)) == "Gave up at 7.03 s"


# --- The scripts


@pytest.mark.slow
def test_scara_runs(script, tmp_path):
    scara = script("scara_xu_liu")
    found = scara.main(["--out", str(tmp_path), "--count", "201"])
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"fig{n:02d}.png" for n in range(2, 11)]
    np.testing.assert_allclose(found["q(20)"], scara.EXACT_Q, rtol=0, atol=1e-9)
    np.testing.assert_allclose(found["force(0)"], scara.EXACT_FORCE, rtol=0, atol=1e-8)
    np.testing.assert_allclose(
        found["none: displacement at 20 s"], np.abs(scara.drift(20.0)), rtol=0, atol=1e-8
    )
    assert found["exact start, Projection: joints"].max() < 1e-12
    assert found["exact start, none: joints"].max() < 1e-8


@pytest.mark.slow
def test_pseudoinverses_run(script, tmp_path):
    rows = script("pseudoinverse_dpv").main(["--quick", "--out", str(tmp_path)])
    kinds = {row.stabilizer: row.outcome.kind for row in rows}
    assert kinds["squared(100, 100)"] == kinds["Projection"] == "right"
    assert len((tmp_path / "runs.csv").read_text().splitlines()) == len(rows) + 1


@pytest.mark.slow
def test_rank_rule_runs(script, tmp_path):
    results = script("rank_rule").main(["--quick", "--out", str(tmp_path)])
    cells = next(cells for kind, cells in results.items() if kind.name == "Projection")
    assert all(cell.all_right for (rcond, _), cell in cells.items() if rcond == 1e-4)
    assert (tmp_path / "rank_rule.png").stat().st_size > 10_000
