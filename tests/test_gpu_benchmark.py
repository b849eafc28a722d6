"""`benchmarks/gpu.py` without a GPU: what it says then, what it makes of measurements, and a small run on the CPU."""

from pathlib import Path
from typing import Any

import jax
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import gpu

    return gpu


def test_without_a_gpu_it_says_so(script: Any) -> None:
    if any(x.platform == "gpu" for x in jax.devices()):
        pytest.skip("there is one")
    with pytest.raises(SystemExit, match=r"JAX sees cpu.*jax\[cuda12\].*--device cpu"):
        script.main([])


def test_estimates_are_those_of_the_page(script: Any) -> None:
    page = script.ROOT / "docs" / "measurements.md"
    found = script.estimates(page)
    assert {x[0] for x in found} == set(script.MODELS)
    assert {x[1:] for x in found} == {(p, s) for p in script.PRECISIONS for s in script.WAYS}
    assert all(f"| {x:.1e} |" in page.read_text() for x in found.values())


def test_what_is_said_of_measurements(script: Any, tmp_path: Path) -> None:
    names = "as estimated", "faster", "slow", "no memory"
    expected = {(name, "float64", "fixed"): 1e9 for name in names}
    report, rates = script.Report(expected), (5e8, 2e9, 1e8, float("nan"))
    for name, rate in zip(names, rates, strict=True):
        way = script.Way(name, "float64", "fixed")
        report.compared(way, 1e-3 if name == "slow" else 1e-9, 1.0, 1e-6)
        report.measured(way, 1000, rate)
    *_, table, wrong = report.text().split("\n\n")
    cells = {row.split(" | ")[0].strip("| "): row for row in table.splitlines()}
    assert "0.50" in cells["as estimated"]
    assert "2.00 (too low: an upper bound)" in cells["faster"]
    assert "0.10 (too high)" in cells["slow"]
    assert "WRONG" in cells["slow"]
    assert "WRONG" not in cells["faster"]
    assert "| - |" in cells["no memory"]
    assert wrong == "Estimates that were wrong: faster float64 fixed, slow float64 fixed.\n"
    report.draw(tmp_path / "gpu.png")
    assert (tmp_path / "gpu.png").stat().st_size > 1000


@pytest.mark.slow
def test_all_of_it_on_a_cpu(script: Any, tmp_path: Path) -> None:
    files = [str(tmp_path / x) for x in ("gpu.md", "gpu.png")]
    given = ["pendulum", "--device", "cpu", "--sizes", "8", "16", "--steps", "5", "--rounds", "1"]
    script.main([*given, "--output", files[0], "--figure", files[1]])
    text = Path(files[0]).read_text()
    assert text.count("| pendulum |") >= 4
    assert text.count("0.0e+00, 100 %") == 4  # the CPU beside itself
