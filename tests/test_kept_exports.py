"""Files that versions of ukjax have exported, read by this one: `tests/kept_exports`, against the closed form.

`python tests/test_kept_exports.py` adds those of the version at hand; do so for each release.
"""

import importlib.metadata
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest

import ukjax as uk

pytest.importorskip("flatbuffers")

KEPT = Path(__file__).with_name("kept_exports")
T = np.linspace(0.0, 1.0, 5)
STATE = np.array([0.6, -0.8]), np.array([0.8, 0.6])


def swing(q0, v0):
    run = uk.simulate(uk.models.pendulum(), q0, v0, t1=1.0, ts=jnp.asarray(T), rtol=1e-9, atol=1e-9)
    return run.q, run.v


def write_kept() -> None:
    """A run by XLA, and one by scalar code."""
    jax.config.update("jax_enable_x64", True)
    of = f"ukjax-{importlib.metadata.version('ukjax')}_jax-{jax.__version__}"
    for name, function in (("run", swing), ("scalar", uk.scalarize(swing))):
        uk.export(function, KEPT / f"{name}_{of}", *STATE)


@pytest.mark.parametrize("path", sorted(KEPT.iterdir()), ids=lambda x: x.name)
def test_files_of_earlier_versions_are_read(path: Path) -> None:
    numbers = lambda version: tuple(int(x) for x in version.split(".")[:3])
    if numbers(path.name.rpartition("jax-")[2]) > numbers(jax.__version__):
        pytest.skip("JAX reads no files of later versions")
    q, v = uk.load_exported(path)(*STATE)
    angle, rate = oracles.pendulum_elliptic(T, np.arctan2(0.6, 0.8), 1.0, 9.81)
    s, c = np.sin(angle), np.cos(angle)
    np.testing.assert_allclose(q, np.stack([s, -c], 1), atol=1e-7)
    np.testing.assert_allclose(v, rate[:, None] * np.stack([c, s], 1), atol=1e-7)


def test_a_file_that_jax_cannot_read_says_who_wrote_it(tmp_path: Path) -> None:
    """As of a far version: its own part is another, and the versions are behind it."""
    path = uk.export(jnp.sin, tmp_path / "sin", jnp.ones(2))
    content = path.read_bytes()
    versions = f'{{"ukjax": "{importlib.metadata.version("ukjax")}", "jax": "{jax.__version__}"}}'
    assert versions.encode() in content
    start = content.rindex(b"\nukjax_written_by")
    line = content[start : content.index(b"}", start) + 1].replace(jax.__version__.encode(), b"99.0.0")
    other = tmp_path / "other"
    other.write_bytes(b"another format" + line)
    with pytest.raises(
        uk.InputError, match=r"JAX cannot read .*written by ukjax .* with JAX 99\.0\.0, and this is"
    ):
        uk.load_exported(other)


if __name__ == "__main__":
    write_kept()
