"""Live pages: a browser runs them, and its numbers are those of `uk.step`, of closed forms, and those that it prints."""

import base64
import dataclasses
import gzip
import json
import math
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from browser import CHROMIUM, Page, opened
from test_to_c import four_bar
from typer.testing import CliRunner

import ukjax as uk
import ukjax.mechanisms as um
from ukjax._cli import _commands as cli
from ukjax._figures._moving_parts import Curve, ShownRun, build_moving_parts
from ukjax._interop._live_page import _place_parts
from ukjax.mechanisms._default_visuals import visuals_of

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
STEPS, DT = 100, 1e-3


def ball() -> uk.Problem:
    """It strikes the floor within the first steps."""
    disk, floor = um.disk("ball", (0.0, 0.1), 0.1, mass=1.0), um.HalfSpace("ground", point=(0.0, 0.0))
    touch = um.Contact(um.Sphere("ball", (0.0, 0.1), 0.1), floor, restitution=0.7, friction=0.3)
    thrown = um.assemble([disk], loads=[um.Gravity()], contacts=[touch], name="ball")
    return um.problem(thrown, v0=[1.5, -2.0, 20.0], t1=1.0)


def block() -> uk.Problem:
    """It has the look of its contact, and strikes the floor within the first steps."""
    body = um.PlanarBody("block", 1.0, (0.0, 0.1), 0.02)
    floor = um.HalfSpace("ground", point=(0.0, 0.0))
    touch = um.Contact(um.Cuboid("block", (0.0, 0.1), (0.4, 0.2)), floor, restitution=0.3, friction=0.3)
    thrown = um.assemble([body], loads=[um.Gravity()], contacts=[touch], name="block")
    return um.problem(thrown, v0=[1.5, -2.0, 0.5], t1=1.0)


def spatial() -> uk.Problem:
    """A tree with a spring, in space."""
    top, end = (0.0, 0.0, 0.0), (0.5, 0.0, 0.0)
    arm = um.tree(
        [um.rod("arm", top, end, mass=1.0, radius=0.02)],
        [um.Spherical("shoulder", "ground", "arm", top)],
        [um.Gravity(), um.SpringDamper("spring", "ground", "arm", (0.5, 0.0, 1.0), end, stiffness=20.0)],
        name="arm",
    )
    return um.problem(arm, t1=1.0)


MODELS: dict[str, Callable[[], uk.Problem]] = {
    "pendulum": lambda: uk.models.pendulum(rate=0.5),
    "parallelogram": uk.models.parallelogram,  # which passes its flat position, where rows depend on each other
    "four-bar": four_bar,
    "arm": spatial,
    "ball": ball,
    "block": block,
}


@contextmanager
def running(path: Path, folder: Path) -> Iterator[Page]:
    """A page that has drawn some frames."""
    with opened(path.as_uri(), folder / "profile") as page:
        end = time.monotonic() + 60
        while not page.evaluate("(window.live?.drawn ?? 0) > 2"):
            assert time.monotonic() < end, (page.complaints, page.evaluate("document.body.innerText"))
            time.sleep(0.1)
        yield page
        assert page.complaints == []
        assert {address.split(":")[0] for address in page.requests} <= {"file", "data", "blob"}


def steps(page: Page, count: int) -> Any:
    page.evaluate("live.paused = true, live.motion.reset()")
    return page.evaluate(f"live.motion.steps({count})")


def move_slider(page: Page, name: str, value: float) -> None:
    page.evaluate(
        f"(x => {{ x.value = {value}; x.dispatchEvent(new Event('input')); }})"
        f"(document.querySelector('input[name=\"{name}\"]'))"
    )


def printed(page: Page, name: str) -> float:
    return float(page.evaluate(f"document.getElementById('{name}').textContent").split()[0])


def by_steps(problem: uk.Problem, count: int = STEPS) -> tuple[np.ndarray, np.ndarray]:
    one = jax.jit(lambda t, q, v: uk.step(problem.system, t, q, v, DT))
    t, q, v = float(problem.t0), problem.q0, problem.v0
    for _ in range(count):
        (q, v), t = one(t, q, v), t + DT
    return np.asarray(q), np.asarray(v)


@needs_browser
@pytest.mark.parametrize("model", MODELS)
def test_steps_are_those_of_ukjax(model: str, tmp_path: Path) -> None:
    problem = MODELS[model]()
    with running(uk.to_page(problem, tmp_path / "page.html"), tmp_path) as page:
        found = steps(page, STEPS)
    for name, expected in zip("qv", by_steps(problem), strict=True):
        np.testing.assert_allclose(found[name], expected, atol=1e-12, rtol=0)
        assert np.max(np.abs(expected - getattr(problem, f"{name}0"))) > 1e-3


@needs_browser
def test_it_moves_and_prints_how_far_it_is_off(tmp_path: Path) -> None:
    """Through the flat position, where other programs lose the parallelogram."""
    with running(uk.to_page(uk.models.parallelogram(), tmp_path / "page.html"), tmp_path) as page:
        before = page.picture()
        time.sleep(0.7)
        after = page.picture()
        page.evaluate("live.paused = true")
        first = printed(page, "time")
        page.evaluate("live.paused = false, live.speed = 20")
        end = time.monotonic() + 60
        while (now := printed(page, "time")) < first + 3:
            assert time.monotonic() < end
            time.sleep(0.1)
        assert abs(printed(page, "change")) < 1e-6 * abs(printed(page, "energy"))
        assert printed(page, "position") < 1e-12
        assert printed(page, "velocity") < 1e-12
        assert printed(page, "rate") > 0
    assert now > 3
    assert np.mean(np.any(before != after, axis=-1)) > 1e-3


@needs_browser
def test_a_slider_changes_the_motion(tmp_path: Path) -> None:
    moon = uk.models.pendulum(rate=0.5, gravity=1.62)
    with running(uk.to_page(uk.models.pendulum(rate=0.5), tmp_path / "page.html"), tmp_path) as page:
        move_slider(page, "gravity", 1.62)
        found = steps(page, STEPS)
        expected = by_steps(moon)
        np.testing.assert_allclose(found["q"], expected[0], atol=1e-12)
        np.testing.assert_allclose(found["v"], expected[1], atol=1e-12)
        move_slider(page, "length", 1.5)  # while it moves, the mass goes to its new circle
        page.evaluate("live.motion.steps(600)")
        state = page.evaluate("live.motion.steps(1)")
        assert np.hypot(*state["q"]) == pytest.approx(1.5, abs=1e-12)
        assert printed(page, "position") < 1e-12


class Ball(uk.AbstractSystem):
    """A mass on a sphere about the origin, at a height: where the height is above the sphere, it is nowhere."""

    radius: jax.Array
    height: jax.Array

    @property
    def constraints(self) -> tuple[uk.Holonomic, ...]:
        rows = lambda t, q: jnp.stack([q @ q - self.radius**2, q[2] - self.height])
        return (uk.Holonomic(rows, name="on a circle"),)

    def mass_matrix(self, t: Any, q: Any) -> Any:
        return jnp.eye(3)

    def force(self, t: Any, q: Any, v: Any) -> Any:
        return jnp.zeros(3)

    def drawing(self, t: Any, q: Any) -> Any:
        return {"string": jnp.stack([jnp.zeros(3), q])}


@needs_browser
def test_a_slider_goes_back_where_there_is_no_posture(tmp_path: Path) -> None:
    system = Ball(jnp.array(1.2), jnp.array(0.5))
    start = jnp.array([np.sqrt(1.2**2 - 0.5**2), 0.0, 0.5])
    path = uk.to_page(uk.Problem(system, start, jnp.array([0.0, 1.0, 0.0]), 0.0, 1.0), tmp_path / "page.html")
    with running(path, tmp_path) as page:
        steps(page, 10)
        page.evaluate("live.motion.wanted[live.data.parameters.findIndex(x => x.name === 'height')] = 3.0")
        page.evaluate("live.motion.steps(6000)")
        state = page.evaluate("live.motion.steps(1)")
        message, off = page.evaluate("[live.motion.message, live.motion.report().position]")
    radius, height = state["p"]
    assert message == "No posture there: the slider went back."
    assert 0.6 < height < radius == 1.2
    assert np.linalg.norm(state["q"]) == pytest.approx(1.2, abs=1e-9)
    assert off < 1e-9


@needs_browser
def test_the_mouse_pulls_a_body(tmp_path: Path) -> None:
    """A pendulum that hangs: the force of the pull on its mass is k (target - q) to begin with, and moves it there."""
    hanging = uk.models.pendulum(angle=0.0)
    with running(uk.to_page(hanging, tmp_path / "page.html"), tmp_path) as page:
        mass = np.asarray(hanging.q0)
        pixel = page.evaluate(
            f"""(x => {{ const p = live.picture, [r, u, a] = p.axes(), d = add(x, p.eye, -1);
            const h = Math.tan(p.scene.field / 2) * dot(d, a), s = p.canvas.clientHeight / 2;
            return [p.canvas.clientWidth / 2 + s * dot(d, r) / h, s - s * dot(d, u) / h]; }})
            ([{mass[0]}, {mass[1]}, 0])"""
        )
        press = lambda kind, x, y: page(
            "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1
        )
        press("mousePressed", *pixel)
        press("mouseMoved", pixel[0] + 120, pixel[1])
        time.sleep(1.0)
        pulled = page.evaluate("[...live.motion.q]")
        target, stiffness = page.evaluate("live.motion.pull.target"), page.evaluate("live.data.stiffness")
        page.evaluate("live.paused = true")
        force = page.evaluate(
            "(m => { m.reset(); m.pull = { slot: live.data.parts - 1, local: [0, 0, 0], target: [0.3, -0.9, 0] };"
            " return { force: [...m.force()], at: m.placeOf(m.pull) }; })(live.motion)"
        )
        press("mouseReleased", pixel[0] + 120, pixel[1])
    assert pulled[0] > 0.05
    assert target[0] > 0.1
    np.testing.assert_allclose(force["at"][:2], mass, atol=1e-12)
    np.testing.assert_allclose(force["force"], stiffness * (np.array([0.3, -0.9]) - mass), atol=1e-10)


@needs_browser
def test_an_effort_does_its_work(tmp_path: Path) -> None:
    """The torque of a motor on a crank by itself: its angular velocity grows by torque / inertia."""
    wheel = um.assemble(
        [um.disk("wheel", (0.0, 0.0), 0.2, mass=3.0)], [um.Revolute("axle", "ground", "wheel", (0.0, 0.0))]
    )
    page_at = uk.to_page(um.problem(wheel, t1=1.0), tmp_path / "page.html", inputs=["axle"])
    with running(page_at, tmp_path) as page:
        move_slider(page, "effort of axle", 0.6)
        found = steps(page, STEPS)
    assert found["v"][2] == pytest.approx(0.6 / (0.5 * 3.0 * 0.2**2) * STEPS * DT, rel=1e-12)


@pytest.mark.parametrize("model", ["pendulum", "parallelogram", "four-bar", "arm"])
def test_parts_are_placed_as_in_other_pictures(model: str) -> None:
    problem = MODELS[model]()
    t, q = np.array([0.0, 1.0]), np.stack([problem.q0, problem.q0])
    shown = build_moving_parts(
        ShownRun("run", problem, t, q, {}, paths=False, contacts={}, shapes=False), t
    ).parts
    bodies = dict.fromkeys(x.body for x in visuals_of(problem.system))
    places = _place_parts(problem, bodies, problem.system, jnp.asarray(0.0), problem.q0)
    assert {x.name for x in shown} >= {*places}
    for part in shown:
        if isinstance(part, Curve) or part.name not in places:
            continue
        found, scale = np.asarray(places[part.name]), np.ones(3) if part.scale is None else part.scale[0]
        w, *xyz = part.wxyz[0]
        x, y, z = xyz
        skew = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
        rotation = np.eye(3) + 2 * w * skew + 2 * skew @ skew
        np.testing.assert_allclose(found[:, 3], part.position[0], atol=1e-12)
        np.testing.assert_allclose(found[:, :3], rotation * scale, atol=1e-12)


def data_of(path: Path) -> dict[str, Any]:
    (packed,) = re.findall(r'id="data">([^<]*)<', path.read_text())
    return json.loads(gzip.decompress(base64.b64decode(packed)))


def test_sliders_have_names_units_and_the_model_in_their_range(tmp_path: Path) -> None:
    data = data_of(uk.to_page(uk.models.pendulum(), tmp_path / "page.html"))
    assert {x["name"]: x["unit"] for x in data["parameters"]} == {
        "mass": "kg",
        "length": "m",
        "gravity": "m/s²",
    }
    assert all(x["low"] < x["value"] < x["high"] for x in data["parameters"])
    data = data_of(uk.to_page(uk.models.pendulum(), tmp_path / "page.html", parameters=["length"]))
    assert [x["name"] for x in data["parameters"]] == ["length"]
    assert (tmp_path / "page.html").stat().st_size < 100_000


def test_what_cannot_be_written_is_told(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    with pytest.raises(uk.InputError, match=r"parameter.*'lenght'.*length"):
        uk.to_page(uk.models.pendulum(), path, parameters=["lenght"])
    with pytest.raises(uk.InputError, match=r"must end in \.html"):
        uk.to_page(uk.models.pendulum(), tmp_path / "page.txt")
    invisible = uk.System(jnp.eye(1), lambda t, q, v: -q)
    with pytest.raises(uk.InputError, match="nothing to show"):
        uk.to_page(uk.Problem(invisible, jnp.ones(1), jnp.zeros(1), 0.0, 1.0), path)
    single = dataclasses.replace(uk.models.pendulum(), q0=jnp.zeros(2, jnp.float32))
    with pytest.raises(uk.InputError, match="double precision"):
        uk.to_page(single, path)
    odd = uk.System(jnp.eye(2), lambda t, q, v: -jax.scipy.special.erf(q))
    problem = uk.Problem(odd, jnp.ones(2), jnp.zeros(2), 0.0, 1.0, lambda t, q: {"mass": q})
    with pytest.raises(uk.InputError, match="a browser has no function erf"):
        uk.to_page(problem, path)
    by_math = uk.System(jnp.eye(2), lambda t, q, v: jnp.full(2, math.sin(q[0])))
    with pytest.raises(uk.InputError, match="the force of System makes a Python number of a value"):
        uk.to_page(dataclasses.replace(problem, system=by_math), path)


def test_the_command(tmp_path: Path) -> None:
    path = tmp_path / "swing.html"
    done = CliRunner().invoke(cli.app, ["export", "pendulum", "--to", "page", "--out", str(path)])
    assert done.exit_code == 0, done.output
    assert "swing.html" in done.output
    assert "<title>pendulum</title>" in path.read_text()
    assert CliRunner().invoke(cli.app, ["export", "pendulum", "--to", "page", "--bounded"]).exit_code == 2


def test_the_pages_of_the_docs_are_as_new() -> None:
    """But for their data, they are the page that is written now."""
    root = Path(__file__).parent.parent
    template = (root / "ukjax" / "_interop" / "live_page.html").read_text()
    kept = {x.stem: x.read_text() for x in (root / "docs" / "live").glob("*.html")}
    assert {*kept} == {"parallelogram", "four_bar", "cassie", "blocks"}
    for text in kept.values():
        (title,) = re.findall("<title>(.*)</title>", text)
        bare = re.sub('(id="data">)[^<]*', r"\1{{data}}", text)
        assert bare == template.replace("{{title}}", title)
