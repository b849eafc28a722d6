"""What notebooks show: HTML that parses, with the numbers that the objects have, and a picture where there is one."""

import base64
import dataclasses
import io
import re
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
import ukjax.mechanisms as um

ROBOTS = Path(__file__).parent.parent / "experiments" / "robots"
A, B, C, D = (0.0, 0.0), (0.3, 0.0), (0.5, 0.6), (0.9, 0.0)
BODIES = [
    um.rod("crank", A, B, mass=1.0),
    um.rod("coupler", B, C, mass=1.0),
    um.rod("rocker", C, D, mass=1.0),
]
PINS = [
    um.Revolute("A", "ground", "crank", A),
    um.Revolute("B", "crank", "coupler", B),
    um.Revolute("C", "coupler", "rocker", C),
    um.Revolute("D", "rocker", "ground", D),
]
WIRE = uk.Holonomic(lambda t, q: q[1] - q[0] ** 2, name="wire")
BEAD = uk.System(jnp.eye(2), jnp.array([0.0, -9.81]), [WIRE])


class ShownRun(HTMLParser):
    """The rows of all tables by their first cell, the text, and the picture."""

    def __init__(self, x: object):
        super().__init__()
        self.open, self.rows, self.text, self.styles, self.picture = [], {}, "", "", None
        self.feed(x._repr_html_())
        self.close()
        assert self.open == []  # every tag is closed, in order

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.styles += given.get("style", "") + ";"
        if tag == "img":
            kind, _, data = given["src"].partition(",")
            assert kind == "data:image/png;base64"
            self.picture = base64.b64decode(data, validate=True)
            return
        self.open.append(tag)
        if tag == "tr":
            self.cells = []
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        if tag == "tr":
            self.rows[self.cells[0]] = self.cells[1:]

    def handle_data(self, data):
        self.text += data + "\n"
        if self.open[-1] in ("td", "th"):
            self.cells[-1] += data


@pytest.fixture(scope="module")
def turning() -> uk.Trajectory:
    problem = um.problem(um.assemble(BODIES, PINS, [um.Gravity()], name="four-bar"), rates={"A": 8.0}, t1=0.3)
    return uk.simulate(problem, ts=11)


def test_a_problem_shows_its_sizes_its_energy_and_how_far_constraints_are_off(turning):
    problem = turning.problem
    moved = dataclasses.replace(problem, q0=problem.q0.at[0].add(0.25))  # the crank, which A and B hold
    for x, off in ((problem, 0.0), (moved, 0.25)):
        shown = ShownRun(x)
        assert "four-bar" in shown.text
        assert shown.rows["bodies"] == ["3: crank, coupler, rocker"]
        assert shown.rows["joints"] == ["4: A, B, C, D"]
        assert shown.rows["coordinates"][0].startswith("9: crank x, crank y, crank theta, ")
        assert "velocities" not in shown.rows  # which have the same names
        assert shown.rows["time"] == ["0 to 0.3 s"]
        energy = float(x.system.energy(jnp.asarray(0.0), x.q0, x.v0))
        assert float(shown.rows["energy"][0].removesuffix(" J")) == pytest.approx(energy, rel=1e-5)
        kind, rows, phi, _ = shown.rows["A"]
        assert (kind, rows) == ("holonomic", "2")
        assert float(phi) == pytest.approx(off, abs=1e-12)


@pytest.mark.parametrize("build", [um.assemble, lambda b, j, **x: um.tree(b, j[:3], loops=j[3:], **x)])
def test_mechanisms_show_themselves_in_their_reference_posture(build):
    shown = ShownRun(build(BODIES, PINS, name="linkage"))
    assert shown.text.startswith("linkage")
    assert shown.rows["D"] == ["holonomic", "2", "0", "0"]
    assert shown.picture is not None


def test_a_run_shows_what_its_summary_says(turning):
    shown, told = ShownRun(turning), turning.summary()
    assert shown.rows["result"] == ["successful"]
    assert shown.rows["time"] == ["0 to 0.3 s, 11 saved"]
    assert shown.rows["steps"] == [f"{told['steps']}, {told['rejected_steps']} of them rejected"]
    assert shown.rows["constraint rows"] == ["8, rank 8"]
    energy, drift = (float(x) for x in re.findall(r"[-\d.e]+(?= J)", shown.rows["energy"][0]))
    np.testing.assert_allclose([energy, drift], [turning.energy[0], told["energy_drift"]], rtol=0.05)
    off = np.array([shown.rows[name][2:] for name in "ABCD"], float).max(axis=0)
    largest = told["max_position_error"], told["max_velocity_error"]
    np.testing.assert_allclose(off, largest, rtol=0.05)


def test_a_run_shows_why_it_ended():
    pole = uk.System(jnp.eye(1), lambda t, q, v: v**2)  # v = 1 / (1 - t)
    run = uk.simulate(pole, [0.0], [1.0], t1=2.0, max_steps=100)
    assert not run.ok
    assert ShownRun(run).rows["result"][0].startswith(f"{run.result_name}: {run.message}")


def test_many_constraints_are_those_farthest_off():
    fix = lambda i: uk.Holonomic(lambda t, q: q[i], name=f"fix {i}")
    system = uk.System(jnp.eye(20), jnp.zeros(20), [fix(i) for i in range(20)])
    shown = ShownRun(uk.Problem(system, jnp.arange(20.0), jnp.zeros(20), 0.0, 1.0))
    listed = {name: float(row[2]) for name, row in shown.rows.items() if name.startswith("fix")}
    assert listed == {f"fix {i}": float(i) for i in range(8, 20)}
    assert "and 8 more" in shown.text


def test_the_report_of_check_shows_its_words_and_the_state_it_is_about():
    report = uk.check(BEAD, [1.0, 1.5], [0.0, 0.0])
    shown = ShownRun(report)
    for sentence in str(report).splitlines():
        assert sentence in shown.text
    assert "check: ok" in shown.text
    assert shown.rows["wire"] == ["holonomic", "1", "5.0e-01", "0"]
    twice = uk.System(jnp.eye(2), jnp.zeros(2), [WIRE, uk.Holonomic(lambda t, q: q[1] - q[0] ** 2 - t**2)])
    assert "check: not ok" in ShownRun(uk.check(twice, [1.0, 1.0], [0.0, 0.0])).text


def test_robots_show_what_became_of_their_file():
    pytest.importorskip("mujoco")
    robot = uk.load(ROBOTS / "robotiq_2f85.xml")
    shown = ShownRun(robot)
    assert shown.rows["inputs"] == ["1: gripper"]
    assert shown.rows["bodies"][0].startswith(f"{len(robot.mechanism.bodies)}: ")
    assert "joint limit (ignored)" in shown.rows["not used as it stands"][0]
    assert shown.picture is not None
    report = ShownRun(robot.report)
    assert report.picture == shown.picture
    for feature in robot.report.features:
        assert feature.feature in report.text
        assert f"{feature.count}: {feature.names[0]}" in report.text


def test_sensors_show_what_they_are():
    pytest.importorskip("mujoco")
    sensors = uk.load(ROBOTS / "cassie.xml").sensors
    rows = ShownRun(sensors).rows
    assert [rows[name][0] for name in sensors.names] == list(sensors.kinds.values())
    assert rows["pelvis-orientation"] == ["framequat", "4", ""]
    assert rows["pelvis-angular-velocity"] == ["gyro", "3", "0.0005"]
    assert "0 sensors" in ShownRun(uk.load(ROBOTS / "robotiq_2f85.xml").sensors).text


def test_pictures_have_no_background_and_texts_the_colour_of_the_page(turning):
    image = pytest.importorskip("PIL.Image")
    shown = ShownRun(turning)
    with image.open(io.BytesIO(shown.picture)) as picture:
        opaque = np.asarray(picture.convert("RGBA"))[..., 3] > 0
        colours = picture.convert("RGB").getcolors(1 << 24)
    assert not opaque[[0, 0, -1, -1], [0, -1, 0, -1]].any()
    assert 0.02 < opaque.mean() < 0.5
    assert len(colours) > 10
    assert not re.search(r"color|background", shown.styles)


def luminance(colour) -> np.ndarray:
    """Of colours in 0 to 255, as the guidelines for contents of the web (WCAG 2.2) define it."""
    x = np.asarray(colour) / 255
    return np.where(x <= 0.04045, x / 12.92, ((x + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]


@pytest.mark.parametrize("colour", [(0.0, 0.0, 0.0), (1.0, 1.0, 1.0), (0.5, 0.5, 0.5)])
def test_pictures_differ_from_light_and_dark_pages(colour):
    image = pytest.importorskip("PIL.Image")
    look = um.Visual("crank", "box", (0.3, 0.1, 0.05), (0.15, 0.0), colour=colour)
    shown = ShownRun(um.assemble(BODIES[:1], PINS[:1], visuals=[look]))
    with image.open(io.BytesIO(shown.picture)) as picture:
        pixels = np.asarray(picture.convert("RGBA")).reshape(-1, 4)
    mine = luminance(pixels[pixels[:, 3] == 255, :3])
    for page in (0x11, 0xFF):
        other = luminance([page] * 3)
        contrast = (np.maximum(mine, other) + 0.05) / (np.minimum(mine, other) + 0.05)
        assert contrast.min() > 2


def test_names_are_text_and_no_markup():
    wire = uk.Holonomic(lambda t, q: q[1] - q[0] ** 2, name="<i>&amp;")
    system = uk.System(jnp.eye(2), jnp.zeros(2), [wire], labels=("<b>", 'a"b'))
    problem = uk.Problem(system, jnp.ones(2), jnp.zeros(2), 0.0, 1.0, name="<script>")
    for x in (problem, system, uk.simulate(problem, t1=0.1, ts=2), uk.check(problem)):
        shown = ShownRun(x)
        assert shown.rows["coordinates"] == ['2: <b>, a"b']
        assert shown.rows["<i>&amp;"][0] == "holonomic"


def fail(t, q):
    raise KeyError("arm")


class Drawn(uk.AbstractSystem):
    """A point with a drawing that fails."""

    draw: Callable
    constraints: tuple = ()

    def mass_matrix(self, t, q):
        return jnp.eye(2)

    def force(self, t, q, v):
        return jnp.zeros(2)

    def drawing(self, t, q):
        return self.draw(t, q)


def test_a_picture_that_fails_says_why_in_a_line(turning, monkeypatch):
    state = jnp.zeros(2), jnp.zeros(2), 0.0, 1.0
    for system, why in (
        (BEAD, "its system has no drawing"),
        (Drawn(fail), "drawing raised KeyError: 'arm'"),
        (Drawn(lambda t, q: [q]), "drawing must return a dict of arrays by name, got list"),
        (Drawn(lambda t, q: {"arm": "long"}), "'arm' of drawing must be an array of numbers"),
        (Drawn(lambda t, q: {"arm": q}), "line 'arm' of drawing has shape (2,)"),
        (Drawn(lambda t, q: {"arm": jnp.full((2, 2), jnp.nan)}), "must be finite"),
    ):
        shown = ShownRun(uk.Problem(system, *state))
        assert shown.picture is None
        assert why in next(x for x in shown.text.splitlines() if x.startswith("No picture: "))
        assert shown.rows["coordinates"] == ["2: q[0], q[1]"]
    unknown = dataclasses.replace(turning, problem=None)
    assert "No picture: this trajectory does not know its problem" in ShownRun(unknown).text
    lost = dataclasses.replace(turning.problem, q0=jnp.full(9, jnp.nan))
    assert "No figures: q must be finite" in ShownRun(lost).text
    bead = uk.Problem(BEAD, *state)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert (
        "its system has no drawing" in ShownRun(bead).text
    )  # Matplotlib is asked for where there is something to draw
    shown = ShownRun(turning)
    assert "pip install 'ukjax[plot]'" in shown.text
    assert shown.rows["result"] == ["successful"]


def test_what_has_no_numbers_is_a_line(turning):
    batch = jax.tree.map(lambda x: jnp.asarray(x)[None], dataclasses.replace(turning, made=None))
    assert ShownRun(batch).text.strip() == repr(batch)
    seen = []
    jax.eval_shape(lambda q: seen.append(uk.Problem(BEAD, q, q, 0.0, 1.0)._repr_html_()), jnp.ones(2))
    assert seen == ["<pre>Problem &#x27;System&#x27;: 2 coordinates, 2 velocities, 0 to 1 s</pre>"]
