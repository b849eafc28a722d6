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


def collections_of(film, frame):
    """The middles (n, 2) of what is drawn at a frame, and the lines."""
    film._draw_frame(frame)
    (axes,) = film._fig.axes
    assert axes.get_aspect() == 1.0
    middles = [np.mean(path.vertices[:-1], axis=0) for path in axes.collections[1].get_paths()]
    return np.array(middles), axes.lines


def test_bars_and_points_are_where_the_motion_is(swing):
    """A pendulum of 1 m about the origin: all that is drawn lies along its rod, and its path is a circle."""
    frame, width = 13, 0.03
    middles, (path,) = collections_of(swing.animate(fps=20), frame)
    along = np.asarray(swing.q[frame])
    reach, off = middles @ along, middles @ np.array([-along[1], along[0]])
    assert np.abs(off).max() < width
    assert reach.min() > -width
    assert abs(reach.max() - 1) < width
    x, y = path.get_data()
    np.testing.assert_allclose(np.hypot(x, y), 1.0, atol=2e-5)  # between the 21 saved times too
    np.testing.assert_allclose([x[-1], y[-1]], swing.q[frame], atol=1e-12)


def test_paths_reach_the_floor_between_saved_times():
    """A ball falls from 1 m: saved every 0.2 s, it is never seen near the floor, but its path turns round there."""
    g, radius = 9.81, 0.1
    ball = um.disk("ball", (0.0, 1.0), mass=1.0, radius=radius)
    floor = um.Contact(
        um.HalfSpace("ground", (0.0, 0.0)), um.Sphere("ball", (0.0, 1.0), radius), restitution=0.8
    )
    system = um.assemble([ball], loads=[um.Gravity((0.0, -g))], contacts=[floor])
    points = lambda t, q: {"centre": q[:2]}
    problem = uk.Problem(system, system.q0, jnp.zeros(3), 0.0, 1.0, points=points)
    run = uk.simulate(problem, ts=6)
    _, lines = collections_of(run.animate(fps=10), 10)
    assert abs(np.min(lines[-1].get_data()[1]) - radius) < 0.01  # its points are 1.7 ms apart, at 4 m/s
    assert np.min(run.q[:, 1]) > 2 * radius


def test_notebooks_show_figures_and_films(swing):
    """What IPython asks an object for: bytes of a picture, and a film with its buttons."""
    assert swing.plot()._repr_png_().startswith(b"\x89PNG")
    assert "<input" in swing.animate(fps=4)._repr_html_()


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
    with pytest.raises(uk.InputError, match="nothing to show of System"):
        uk.simulate(bare, jnp.zeros(1), jnp.ones(1), t1=0.1).animate()
    loaded = uk.Trajectory.load(swing.save(Path(tmp_path) / "swing.npz"))
    with pytest.raises(uk.InputError, match=r"give animate\(problem=\.\.\.\)"):
        loaded.animate()
    loaded.animate(problem=swing.problem, fps=4)


def test_lengths_and_angles_have_panels_of_their_own():
    """An arm that turns and reaches out, in joint coordinates and in absolute ones."""
    bodies = [um.rod("arm", (0.0, 0.0), (0.0, 1.0), 1.0), um.rod("hand", (0.0, 1.0), (0.0, 1.5), 1.0)]
    joints = [um.Revolute("turn", "ground", "arm", (0.0, 0.0))]
    joints += [um.Prismatic("reach", "arm", "hand", (0.0, 1.0), (0.0, 1.0))]
    lines = {}
    for build in (um.tree, um.assemble):
        run = uk.simulate(um.problem(build(bodies, joints, [um.Gravity()]), t1=0.1), ts=3)
        axes = run.plot().axes
        lines[build] = {x.get_title("left"): [y.get_label() for y in x.lines] for x in axes}
    assert lines[um.tree]["Coordinates [rad]"] == ["turn"]
    assert lines[um.tree]["Coordinates [m]"] == ["reach"]
    assert lines[um.assemble]["Coordinates [m]"] == ["arm x", "arm y", "hand x", "hand y"]
    assert lines[um.assemble]["Generalized constraint forces [N m]"] == ["arm theta", "hand theta"]
    axes = uk.simulate(uk.models.pendulum(), t1=0.1, ts=3).plot().axes
    assert [x.get_label() for y in axes if y.get_title("left") == "Coordinates [m]" for x in y.lines] == [
        "x",
        "y",
    ]
    bare = uk.simulate(uk.System(jnp.eye(1), jnp.zeros(1)), [0.0], [1.0], t1=0.1, ts=3)
    assert "Coordinates" in [x.get_title("left") for x in bare.plot().axes]
