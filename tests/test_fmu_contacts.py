"""FMUs with contacts, limits and dry friction: state events, by FMPy, beside runs of ukjax and closed forms."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from test_contact_friction import block
from test_to_c import four_bar, needs_cc

import ukjax as uk
import ukjax.mechanisms as um

fmpy = pytest.importorskip("fmpy", reason="pip install fmpy")
find_problems = pytest.importorskip("fmpy.validation").validate_fmu
pytestmark = needs_cc


def thrown_ball(v0: Any = (1.5, 0.0, 20.0), restitution: float = 0.6) -> uk.Problem:
    """A disk with backspin that bounces, comes to rest on the floor, and rolls."""
    ball, floor = um.disk("ball", (0.0, 0.5), 0.1, mass=1.0), um.HalfSpace("ground", point=(0.0, 0.0))
    touch = um.Contact(um.Sphere("ball", (0.0, 0.5), 0.1), floor, friction=0.3, restitution=restitution)
    return um.problem(um.assemble([ball], loads=[um.Gravity()], contacts=[touch], name="ball"), v0=list(v0))


def sliding_block() -> uk.Problem:
    plane = uk.Unilateral(lambda t, q: q[1], friction=0.4, slip=lambda t, q, v: v[0], name="plane")
    system = uk.System(2.0 * jnp.eye(2), jnp.array([0.0, -19.62]), [plane])
    return uk.Problem(system, jnp.zeros(2), jnp.array([3.0, 0.0]), 0.0, 1.0)


def stiff_hinge() -> uk.Problem:
    """A pendulum whose hinge has dry friction, and a motor."""
    link = um.rod("link", (0.0, 0.0), (0.6, 0.0), 1.0)
    hinge = um.Revolute("hinge", "ground", "link", (0.0, 0.0))
    system = um.tree([link], [hinge], [um.Gravity()], contacts=[um.JointFriction("hinge", 1.0)], name="stiff hinge")
    return um.problem(system, t1=2.0)


def stopped_four_bar() -> uk.Problem:
    linkage = four_bar().system
    stop = um.Limit("D", upper=0.2, restitution=0.5)
    system = um.assemble(linkage.bodies, linkage.joints, [um.Gravity()], contacts=[stop], name="stopped")
    return um.problem(system, rates={"A": 3.0})


def spinning_ball() -> uk.Problem:
    """In space, where the direction of slip turns."""
    place, floor = (0.0, 0.0, 0.3), um.HalfSpace("ground", point=(0.0, 0.0, 0.0), normal=(0.0, 0.0, 1.0))
    ball = um.Body("ball", 1.0, place, inertia=0.004 * jnp.eye(3))
    touch = um.Contact(um.Sphere("ball", place, 0.1), floor, friction=0.4, restitution=0.5)
    gravity = um.Gravity((0.0, 0.0, -9.81))
    system = um.assemble([ball], loads=[gravity], contacts=[touch], name="spinning ball")
    return um.problem(system, v0=[1.0, 0.0, 0.0, 15.0, 10.0, 5.0])


def rocking_block() -> uk.Problem:
    tilt, b, h = 0.1, 0.1, 0.4
    q0 = [-b * np.cos(tilt) + h * np.sin(tilt), b * np.sin(tilt) + h * np.cos(tilt), -tilt]
    return uk.Problem(block(b, h), jnp.array(q0), jnp.zeros(3), 0.0, 1.0, name="rocking block")


MODELS: dict[str, tuple[Callable[[], uk.Problem], Any]] = {
    "ball": (thrown_ball, None),
    "sliding": (sliding_block, None),
    "stiff hinge": (stiff_hinge, ["hinge"]),
    "stopped": (stopped_four_bar, None),
    "spinning ball": (spinning_ball, None),
    "rocking": (rocking_block, None),
}


class Unit:
    """An FMU of a model, and its variables by name."""

    def __init__(self, model: str, folder: Path, **how: Any):
        make, inputs = MODELS[model]
        self.problem = make()
        self.export = uk.to_fmu(self.problem, folder / f"{model}.fmu", inputs=inputs, **how)
        self.path, self.folder = str(self.export.path), folder / model
        self.index = {x.name: k for k, x in enumerate(self.export.variables)}
        self.described = fmpy.read_model_description(self.path)
        fmpy.extract(self.path, str(self.folder))
        self.states = [x.name for x in self.export.variables[1 : 1 + self.problem.q0.size + self.problem.v0.size]]

    def open(self, kind: str = "CoSimulation", **how: Any) -> Any:
        """An instance, not initialized."""
        cls = fmpy.fmi3.FMU3Slave if kind == "CoSimulation" else fmpy.fmi3.FMU3Model
        identifier = self.described.coSimulation.modelIdentifier
        it = cls(
            guid=self.described.guid, unzipDirectory=str(self.folder), modelIdentifier=identifier, instanceName="it"
        )
        it.instantiate(**how)
        return it

    def run(self, kind: str, t1: float, intervals: int = 10, outputs: Any = (), **how: Any) -> Any:
        """The states at times, and outputs then."""
        found = fmpy.simulate_fmu(
            self.path, validate=True, fmi_type=kind, stop_time=t1, output_interval=t1 / intervals / 10,
            record_events=False, output=[*self.states, *outputs], relative_tolerance=1e-13, **how,
        )  # fmt: skip
        return np.array([[row[x] for x in self.states] for row in found[::10]]), {x: found[x][::10] for x in outputs}


@pytest.fixture(scope="module")
def units(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Unit]:
    made = dict[str, Unit]()
    folder = tmp_path_factory.mktemp("fmus")
    return lambda model: made.get(model) or made.setdefault(model, Unit(model, folder))


# --- Whole runs


@pytest.mark.parametrize("model", MODELS)
def test_fmpy_has_no_finding(model: str, units: Callable[[str], Unit]) -> None:
    unit = units(model)
    assert find_problems(unit.path) == []
    done = subprocess.run(
        [sys.executable, "-m", "fmpy", "validate", unit.path], capture_output=True, text=True
    )
    assert "No problems found." in done.stdout
    assert unit.described.numberOfEventIndicators > 0


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("kind", ["ModelExchange", "CoSimulation"])
def test_runs_are_those_of_ukjax_event_by_event(model: str, kind: str, units: Callable[[str], Unit]) -> None:
    unit = units(model)
    p = unit.problem
    run = uk.simulate(p.system, p.q0, p.v0, t1=1.5, ts=11, rtol=1e-12, atol=1e-12)
    assert run.contacts is not None
    found, _ = unit.run(kind, 1.5)
    np.testing.assert_allclose(found, np.hstack([run.q, run.v]), atol=1e-8)
