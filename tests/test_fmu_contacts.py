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
from test_to_c import CC, STRICT, four_bar, needs_cc

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
    system = um.tree(
        [link], [hinge], [um.Gravity()], contacts=[um.JointFriction("hinge", 1.0)], name="stiff hinge"
    )
    return um.problem(system, t1=2.0)


def stopped_four_bar() -> uk.Problem:
    linkage: Any = four_bar().system
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
        self.states = [
            x.name for x in self.export.variables[1 : 1 + self.problem.q0.size + self.problem.v0.size]
        ]

    def open(self, kind: str = "CoSimulation", **how: Any) -> Any:
        """An instance, not initialized."""
        cls = fmpy.fmi3.FMU3Slave if kind == "CoSimulation" else fmpy.fmi3.FMU3Model
        identifier = self.described.coSimulation.modelIdentifier
        it = cls(
            guid=self.described.guid,
            unzipDirectory=str(self.folder),
            modelIdentifier=identifier,
            instanceName="it",
        )
        it.instantiate(**how)
        return it

    def run(self, kind: str, t1: float, intervals: int = 10, outputs: Any = (), **how: Any) -> Any:
        """The states at times, and outputs then."""
        found = fmpy.simulate_fmu(
            self.path, validate=True, fmi_type=kind, stop_time=t1, output_interval=t1 / intervals / 10,
            record_events=False, output=[*self.states, *outputs], relative_tolerance=1e-13, **how,
        )  # fmt: skip
        return np.array([[row[x] for x in self.states] for row in found[::10]]), {
            x: found[x][::10] for x in outputs
        }


@pytest.fixture(scope="module")
def units(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Unit]:
    made = dict[str, Unit]()
    folder = tmp_path_factory.mktemp("fmus")
    return lambda model: made.get(model) or made.setdefault(model, Unit(model, folder))


# --- Whole runs


@pytest.mark.parametrize("model", ["ball", "stopped"])
def test_solvers_that_are_told_no_tolerance_keep_impacts(model: str, units: Callable[[str], Unit]) -> None:
    unit = units(model)
    found = fmpy.simulate_fmu(
        unit.path, fmi_type="ModelExchange", stop_time=1.0, output_interval=0.1, output=unit.states,
        record_events=False,
    )  # fmt: skip
    run = uk.simulate(unit.problem, t1=1.0, ts=11, rtol=1e-12, atol=1e-12)
    states = np.array([[row[x] for x in unit.states] for row in found])
    np.testing.assert_allclose(states, np.hstack([run.q, run.v]), atol=2e-6)


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


def test_a_block_slides_as_far_as_its_energy_lasts(units: Callable[[str], Unit]) -> None:
    """v^2 / (2 mu g), then it sticks, whose force is that which accelerates nothing."""
    unit = units("sliding")
    names = ["closed.plane", "sticking.plane", "contact_force.plane_normal", "contact_force.plane_slip"]
    for kind in ("ModelExchange", "CoSimulation"):
        found, outputs = unit.run(kind, 1.0, outputs=names)
        np.testing.assert_allclose(found[-1, [0, 2]], [3.0**2 / (2 * 0.4 * 9.81), 0.0], atol=1e-11)
        first, last = (np.array([outputs[x][i] for x in names]) for i in (1, -1))
        np.testing.assert_allclose(first, [1, 0, 19.62, -0.4 * 19.62], atol=1e-9)
        np.testing.assert_allclose(last, [1, 1, 19.62, 0], atol=1e-9)


def test_a_ball_bounces_as_newton_says(units: Callable[[str], Unit]) -> None:
    """The first three times by free fall and e, found by the co-simulation that ends its steps there."""
    unit = units("ball")
    it = unit.open(eventModeUsed=True, earlyReturnAllowed=True)
    it.enterInitializationMode()
    it.exitInitializationMode()
    it.updateDiscreteStates()
    it.enterStepMode()
    t, fall = 0.0, np.sqrt(2 * 0.4 / 9.81)
    speeds = 0.6 ** np.arange(3) * 9.81 * fall
    wanted = fall + np.array([0.0, *np.cumsum(2 * speeds[1:] / 9.81)])
    for time, speed in zip(wanted, speeds, strict=True):
        event, terminate, early, last = it.doStep(t, 2.0 - t)
        assert (event, terminate, early) == (True, False, True)
        assert last == pytest.approx(time, abs=1e-12)
        vy = unit.index["velocity.ball_y"]
        assert it.getFloat64([vy])[0] == pytest.approx(-speed, abs=1e-10)
        it.enterEventMode()
        again, _, _, moved, _, _ = it.updateDiscreteStates()
        assert (again, moved) == (False, True)
        assert it.getFloat64([vy])[0] == pytest.approx(0.6 * speed, abs=1e-10)
        it.enterStepMode()
        t = last


def test_a_step_ends_early_where_the_simulator_asks(units: Callable[[str], Unit]) -> None:
    unit, times = units("ball"), []

    def update(environment: Any, time: float, *flags: Any) -> None:
        *_, may, wanted, _ = flags
        times.append(time)
        wanted[0] = may and time > 0.0105

    it = unit.open(earlyReturnAllowed=True, intermediateUpdate=update)
    it.enterInitializationMode()
    it.exitInitializationMode()
    _, _, early, last = it.doStep(0.0, 0.1)
    assert early
    assert last == pytest.approx(0.011)
    np.testing.assert_allclose(times, np.arange(1, 12) * 1e-3)


def test_the_mode_is_kept_with_the_state(units: Callable[[str], Unit]) -> None:
    """A block that slides goes on sliding from a state that was written down before it stuck."""
    unit = units("sliding")
    it, other = unit.open(), unit.open()
    for x in (it, other):
        x.enterInitializationMode()
        x.exitInitializationMode()
    read = lambda x: np.array(x.getFloat64(list(range(len(unit.index)))))
    it.doStep(0.0, 0.5)
    kept = it.serializeFMUState(it.getFMUState())
    it.doStep(0.5, 0.5)
    assert it.getFloat64([unit.index["sticking.plane"]]) == [1.0]
    other.setFMUState(other.deserializeFMUState(kept))
    assert other.getFloat64([unit.index["sticking.plane"]]) == [0.0]
    other.doStep(0.5, 0.5)
    np.testing.assert_array_equal(read(other), read(it))


def test_time_may_be_set_again(units: Callable[[str], Unit]) -> None:
    """Solvers go back and forth within a step: what is computed depends on the last time and state alone."""
    unit = units("ball")
    it = unit.open("ModelExchange")
    it.enterInitializationMode()
    it.exitInitializationMode()
    it.updateDiscreteStates()
    it.enterContinuousTimeMode()
    read = lambda: it.getFloat64(list(range(len(unit.index))))
    it.setTime(0.1)
    before = read()
    for time in (0.1, 0.3, 0.05, 0.1, 0.1):
        it.setTime(time)
        read()
    assert read() == before


def test_a_solver_that_finds_events_late_still_comes_to_rest(units: Callable[[str], Unit]) -> None:
    """Euler's method of FMPy looks once a step: a block that slid an instant too long is not pushed back and forth."""
    unit = units("sliding")
    found = fmpy.simulate_fmu(
        unit.path, fmi_type="ModelExchange", solver="Euler", stop_time=1.0, output_interval=1e-3,
        output=[*unit.states, "sticking.plane"],
    )  # fmt: skip
    assert found["sticking.plane"][-1] == 1
    assert found[unit.states[2]][-1] == 0
    assert found[unit.states[0]][-1] == pytest.approx(3.0**2 / (2 * 0.4 * 9.81), abs=4e-3)


def test_a_motor_that_is_switched_on_breaks_a_joint_loose(units: Callable[[str], Unit]) -> None:
    """At the bottom a torque below that of dry friction moves nothing; one above gives (u - limit) / J."""
    unit = units("stiff hinge")
    it = unit.open(earlyReturnAllowed=False)
    angle, speed, motor = (
        next(k for x, k in unit.index.items() if x.startswith(y)) for y in ("position", "velocity", "input")
    )
    it.setFloat64([angle], [-np.pi / 2])
    it.enterInitializationMode()
    it.exitInitializationMode()
    it.setFloat64([motor], [0.9])
    it.doStep(0.0, 0.1)
    assert it.getFloat64([angle, speed]) == pytest.approx([-np.pi / 2, 0.0], abs=1e-15)
    it.setFloat64([motor], [1.5])
    rate = next(k for x, k in unit.index.items() if x.startswith("der(velocity"))
    it.doStep(0.1, 1e-6)
    assert it.getFloat64([rate])[0] == pytest.approx(0.5 / (0.6**2 / 3), rel=1e-6)


def test_derivatives_within_a_mode(units: Callable[[str], Unit]) -> None:
    """Both ways the same, and those of the values, of a linkage that touches its stop and of one that is free of it."""
    unit = units("stopped")
    it = unit.open("ModelExchange")
    it.enterInitializationMode()
    it.exitInitializationMode()
    it.updateDiscreteStates()
    it.enterContinuousTimeMode()
    n = len(unit.states)
    knowns = list(range(1 + n))
    unknowns = [k for x, k in unit.index.items() if x.startswith(("der(", "gap.", "contact_force."))]
    J = np.transpose([it.getDirectionalDerivative(unknowns, [k], [1.0]) for k in knowns])
    rows = [it.getAdjointDerivative(unknowns, knowns, list(e), len(knowns)) for e in np.eye(len(unknowns))]
    np.testing.assert_allclose(rows, J, atol=1e-12)
    state, h = np.array(it.getFloat64(knowns)), 1e-6
    for k in knowns[1:]:
        values = []
        for sign in (1, -1):
            moved = np.ascontiguousarray((state + sign * h * np.eye(1 + n)[k])[1:])
            it.setContinuousStates(np.ctypeslib.as_ctypes(moved), n)
            values.append(np.array(it.getFloat64(unknowns)))
        np.testing.assert_allclose(
            J[:, k], (values[0] - values[1]) / (2 * h), atol=1e-6 * max(1, np.abs(J).max())
        )


def test_fmi_2_has_the_same_events(tmp_path: Path) -> None:
    path = str(uk.to_fmu(sliding_block(), tmp_path / "block.fmu", fmi="2.0").path)
    assert find_problems(path) == []
    assert fmpy.read_model_description(path).numberOfEventIndicators == 3
    for kind in ("ModelExchange", "CoSimulation"):
        found = fmpy.simulate_fmu(
            path, validate=True, fmi_type=kind, stop_time=1.0, output_interval=0.1, relative_tolerance=1e-12
        )
        names = [x for x in found.dtype.names if x.startswith("position")]
        assert found[names[0]][-1] == pytest.approx(3.0**2 / (2 * 0.4 * 9.81), abs=1e-9)


# --- What is refused


def test_a_start_that_penetrates_is_refused(units: Callable[[str], Unit]) -> None:
    unit, said = units("ball"), []
    it = unit.open(
        loggingOn=True, logMessage=lambda environment, status, category, message: said.append(message)
    )
    it.setFloat64([unit.index["position.ball_y"]], [0.05])
    it.enterInitializationMode()
    with pytest.raises(fmpy.fmi1.FMICallException):
        it.exitInitializationMode()


def test_shapes_whose_corners_take_turns_are_refused(tmp_path: Path) -> None:
    box = um.Body("box", 1.0, (0.0, 0.0, 0.5), inertia=jnp.eye(3))
    other = um.Body("other", 1.0, (0.0, 0.0, 1.5), inertia=jnp.eye(3))
    shapes = [
        um.Cuboid(name, centre, (0.2, 0.2, 0.2))
        for name, centre in (("box", (0, 0, 0.5)), ("other", (0, 0, 1.5)))
    ]
    system = um.assemble([box, other], contacts=[um.Contact(*shapes)])
    with pytest.raises(uk.InputError, match="cannot be followed from event to event"):
        uk.to_fmu(um.problem(system), tmp_path / "boxes.fmu")


def test_the_sources_compile_without_a_warning(units: Callable[[str], Unit]) -> None:
    folder = units("sliding").folder / "sources"
    strict = [x for x in STRICT if x != "-Wconversion"]
    subprocess.run([str(CC), *strict, "-c", "fmi3.c", "System.c"], cwd=folder, check=True)
