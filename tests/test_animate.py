"""Moving pictures: where bars and points are drawn, what files hold, and what cannot be drawn."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import ukjax as uk
import ukjax.mechanisms as um


@pytest.fixture(scope="module")
def swing() -> uk.Trajectory:
    return uk.simulate(uk.models.pendulum(), t1=1.0, ts=21)


@pytest.mark.parametrize("suffix", [".gif", ".html"])
def test_writes_as_many_frames_as_the_time_asks_for(swing, tmp_path, suffix):
    path = tmp_path / f"swing{suffix}"
    swing.animate(path, fps=6, speed=0.5)
    if suffix == ".gif":
        with Image.open(path) as film:
            assert film.n_frames == 13  # 1 s at half speed and 6 a second, both ends included
    else:
        assert "<input" in path.read_text()


def test_bars_and_points_are_where_the_motion_is(swing):
    film = swing.animate(fps=20)
    figure = film._fig  # pyright: ignore[reportAttributeAccessIssue]
    (axes,) = figure.axes
    film._draw_frame(13)  # pyright: ignore[reportAttributeAccessIssue]
    bar, path, mark = axes.lines
    np.testing.assert_allclose(np.transpose(bar.get_data()), [[0, 0], swing.q[13]], atol=1e-12)
    np.testing.assert_allclose(np.transpose(path.get_data()), swing.q[:14], atol=1e-12)
    np.testing.assert_allclose(np.transpose(mark.get_data()), swing.q[13:14], atol=1e-12)
    assert axes.get_aspect() == 1.0


def test_drawings_are_finite_lines():
    for name in ("parallelogram", "slider_crank", "n_pendulum", "scara", "rolling_disk"):
        problem = uk.models.get(name)
        lines = problem.system.drawing(jnp.asarray(0.0), problem.q0)
        assert lines, name
        for line in lines.values():
            assert line.ndim == 2
            assert np.all(np.isfinite(line))


def test_links_are_drawn_at_their_length():
    """All five of the robots' links are 1 m long."""
    problem = uk.models.coordinated_robots()
    lines = problem.system.drawing(jnp.asarray(0.0), problem.q0).values()
    lengths = np.concatenate([np.linalg.norm(np.diff(x, axis=0), axis=1) for x in lines])
    np.testing.assert_allclose(lengths, np.ones(5), atol=1e-12)


def test_mechanisms_draw_their_bodies_and_springs():
    rod = um.rod("rod", (0.0, 0.0), (1.0, 0.0), mass=1.0)
    spring = um.SpringDamper("spring", "ground", "rod", (1.0, 1.0), (1.0, 0.0), stiffness=1.0)
    hinge = um.Revolute("hinge", "ground", "rod", (0.0, 0.0))
    for system in (um.assemble([rod], [hinge], [spring]), um.tree([rod], [hinge], [spring])):
        q = system.q0.at[-1].add(np.pi / 2)
        q = q if q.size == 1 else jnp.array([0.0, 0.5, np.pi / 2])
        lines = system.drawing(jnp.asarray(0.0), q)
        np.testing.assert_allclose(sorted(lines["rod"], key=lambda x: x[1]), [[0, 0], [0, 1]], atol=1e-15)
        np.testing.assert_allclose(lines["spring"], [[1, 1], [0, 1]], atol=1e-15)


def test_what_cannot_be_drawn_says_so(swing, tmp_path):
    with pytest.raises(uk.InputError, match=r"must end in \.gif, \.mp4, \.html"):
        swing.animate(tmp_path / "swing.avi")
    with pytest.raises(uk.InputError, match="speed must lie between 0 and inf"):
        swing.animate(speed=0.0)
    bare = uk.System(jnp.eye(1), jnp.zeros(1))
    with pytest.raises(uk.InputError, match="nothing to draw of System"):
        uk.simulate(bare, jnp.zeros(1), jnp.ones(1), t1=0.1).animate()
    loaded = uk.Trajectory.load(swing.save(Path(tmp_path) / "swing.npz"))
    with pytest.raises(uk.InputError, match=r"give animate\(problem=\.\.\.\)"):
        loaded.animate()
    loaded.animate(problem=swing.problem, fps=4)
