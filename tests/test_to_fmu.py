"""Models as FMUs: checked and run by FMPy, with CVode and by themselves, and compared with ukjax and closed forms."""

import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import diffrax as dfx
import equinox as eqx
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from jaxtyping import Array
from test_to_c import CC, STRICT, four_bar, needs_cc, needs_zig
from typer.testing import CliRunner

import ukjax as uk
import ukjax.mechanisms as um
from ukjax._cli import _commands as cli
from ukjax._interop._units import base_units

fmpy = pytest.importorskip("fmpy", reason="pip install fmpy")
find_problems = pytest.importorskip("fmpy.validation").validate_fmu
pytestmark = needs_cc


def double_pendulum() -> uk.Problem:
    """A tree without constraints: there is nothing to project onto."""
    links = [um.rod("upper", (0.0, 0.0), (0.5, 0.0), 1.0), um.rod("lower", (0.5, 0.0), (1.0, 0.0), 1.0)]
    hinges = [
        um.Revolute("shoulder", "ground", "upper", (0.0, 0.0)),
        um.Revolute("elbow", "upper", "lower", (0.5, 0.0)),
    ]
    return um.problem(um.tree(links, hinges, [um.Gravity()], name="double pendulum"), t1=1.0)


def driven() -> uk.Problem:
    """A constraint that moves with time, and no energy."""
    force = lambda t, q, v: jnp.array([0.0, -jnp.sin(2 * t) - q[1] * (1 + q[0])])
    guide = uk.Holonomic(lambda t, q: q[0] - 0.1 * jnp.sin(3 * t) * (1 + q[1]), name="guide")
    return uk.Problem(uk.System(jnp.eye(2), force, [guide]), jnp.zeros(2), jnp.array([0.3, 0.0]), 0.0, 1.0)


class Damped(uk.AbstractSystem):
    """A mass at a damper.

    - `mass`: it moves along x [kg].
    - `rate`: of the damper [N s/m]; where it stands
      does not matter.
    """

    mass: Array
    rate: Array
    constraints: tuple = ()
    labels: tuple[str, ...] = eqx.field(static=True, default=("x",))
    units: tuple[str, ...] = eqx.field(static=True, default=("m",))

    def mass_matrix(self, t: Any, q: Any) -> Array:
        return self.mass * jnp.eye(1)

    def force(self, t: Any, q: Any, v: Any) -> Array:
        return -self.rate * v


MODELS: dict[str, tuple[Callable[[], uk.Problem], Any]] = {
    "pendulum": (lambda: uk.models.pendulum(rate=0.5), None),
    "knife-edge": (uk.models.knife_edge, None),
    "driven": (driven, None),
    "double pendulum": (double_pendulum, ["shoulder", "elbow"]),
    "four-bar": (four_bar, ["A"]),
}


class Unit:
    """An FMU of a model, and its variables by name."""

    def __init__(self, model: str, folder: Path):
        make, inputs = MODELS[model]
        self.problem = make()
        self.export = uk.to_fmu(self.problem, folder / f"{model}.fmu", inputs=inputs)
        self.path, self.folder = str(self.export.path), folder / model
        self.index = {x.name: k for k, x in enumerate(self.export.variables)}
        fmpy.extract(self.path, str(self.folder))
        self.described = fmpy.read_model_description(self.path)
        nq, nv = self.problem.q0.size, self.problem.v0.size
        self.states = range(1, 1 + nq + nv)
        self.inputs = [k for k, x in enumerate(self.export.variables) if x.causality == "input"]
        self.results = range(min(k for x, k in self.index.items() if x.startswith("der(")), len(self.index))

    def open(self, kind: str = "ModelExchange", **start: float) -> Any:
        """An instance that is initialized; values of `start` are set before."""
        of = self.described.modelExchange or self.described.coSimulation
        cls = fmpy.fmi3.FMU3Model if kind == "ModelExchange" else fmpy.fmi3.FMU3Slave
        it = cls(
            guid=self.described.guid,
            unzipDirectory=str(self.folder),
            modelIdentifier=of.modelIdentifier,
            instanceName="it",
        )
        it.instantiate()
        it.setFloat64([self.index[x] for x in start], [*start.values()])
        it.enterInitializationMode()
        it.exitInitializationMode()
        return it

    def run(self, kind: str, t1: float, **how: Any) -> Any:
        """The states at eleven times, and the last values of all outputs."""
        outputs = [x.name for x in self.export.variables if x.causality == "output"]
        found = fmpy.simulate_fmu(
            self.path, validate=True, fmi_type=kind, stop_time=t1, output_interval=t1 / 10,
            record_events=False, output=outputs, **how,
        )  # fmt: skip
        names = outputs[: len(self.states)]
        return np.array([[row[x] for x in names] for row in found]), {x: found[x] for x in outputs}


@pytest.fixture(scope="module")
def units(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Unit]:
    made = dict[str, Unit]()
    folder = tmp_path_factory.mktemp("fmus")
    return lambda model: made.get(model) or made.setdefault(model, Unit(model, folder))


def at_a_state(unit: Unit, it: Any) -> np.ndarray:
    """Moves an instance to a state on the constraints, with inputs, and returns time, state and inputs."""
    p, random = unit.problem, np.random.default_rng(3)
    near = lambda x: np.asarray(x) + random.normal(0, 0.1, x.shape)
    q, v = uk.project(p, 0.2, near(p.q0), near(p.v0))
    u = random.normal(0, 1, len(unit.inputs))
    it.enterContinuousTimeMode()
    known = np.concatenate([[0.2], q, v, u])
    move_to(unit, it, known)
    return known


def move_to(unit: Unit, it: Any, known: np.ndarray) -> None:
    n = len(unit.states)
    it.setTime(known[0])
    states = (np.ctypeslib.as_ctypes(np.ascontiguousarray(known[1 : 1 + n])), n)
    it.setContinuousStates(*states)
    it.setFloat64(unit.inputs, list(known[1 + n :]))


# --- Whole runs


@pytest.mark.parametrize("model", MODELS)
def test_fmpy_has_no_finding(model: str, units: Callable[[str], Unit]) -> None:
    unit = units(model)
    assert find_problems(unit.path) == []
    done = subprocess.run(
        [sys.executable, "-m", "fmpy", "validate", unit.path], capture_output=True, text=True
    )
    assert "No problems found." in done.stdout


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("kind", ["ModelExchange", "CoSimulation"])
def test_runs_are_those_of_ukjax(model: str, kind: str, units: Callable[[str], Unit]) -> None:
    unit = units(model)
    p = unit.problem
    run = uk.simulate(p.system, p.q0, p.v0, t1=0.5, ts=11, rtol=1e-12, atol=1e-12)
    found, outputs = unit.run(kind, 0.5, relative_tolerance=1e-13)
    np.testing.assert_allclose(found, np.hstack([run.q, run.v]), atol=1e-8)
    if "energy" in outputs:
        np.testing.assert_allclose(outputs["energy"], outputs["energy"][0], atol=1e-7)
    assert max(outputs.get("constraint_error", [0.0])) < 1.1e-9
    forces = [outputs[x] for x in outputs if x.startswith("constraint_force.")]
    if forces:
        np.testing.assert_allclose(np.transpose(forces), run.constraint_force, atol=1e-6)


@pytest.mark.parametrize("kind", ["ModelExchange", "CoSimulation"])
def test_a_pendulum_swings_as_elliptic_functions_say(kind: str, units: Callable[[str], Unit]) -> None:
    start = {"position.x": np.sin(1.0), "position.y": -np.cos(1.0)}
    start |= {"velocity.x": 0.5 * np.cos(1.0), "velocity.y": 0.5 * np.sin(1.0)}
    found, _ = units("pendulum").run(kind, 2.0, relative_tolerance=1e-13, start_values=start)
    for t, row in zip(np.linspace(0, 2, 11), found, strict=True):
        angle, _ = oracles.pendulum_elliptic(t, 1.0, 0.5, 9.81)
        np.testing.assert_allclose(row[:2], [np.sin(angle), -np.cos(angle)], atol=1e-8)


def test_co_simulation_is_of_the_solver_s_order(units: Callable[[str], Unit]) -> None:
    """Tsit5 is of fifth order: half the step, a thirtieth of the error."""
    unit, errors = units("pendulum"), []
    run = uk.simulate(unit.problem, t1=1.0, ts=2, rtol=1e-13, atol=1e-13)
    for h in (0.1, 0.05):
        found, _ = unit.run("CoSimulation", 1.0, start_values={"step_size": h})
        errors.append(np.abs(found[-1, :2] - run.q_end).max())
    assert 20 < errors[0] / errors[1] < 60


def test_steps_are_no_longer_than_step_size_and_end_at_communication_points(
    units: Callable[[str], Unit],
) -> None:
    """Of 0.25 s with at most 0.1 s they are three, as by `uk.step`."""
    unit = units("pendulum")
    it = unit.open("CoSimulation", step_size=0.1)
    event, terminate, early, last = it.doStep(0.0, 0.25)
    assert (bool(event), bool(terminate), bool(early)) == (False, False, False)
    assert float(getattr(last, "value", last)) == 0.25
    q, v = unit.problem.q0, unit.problem.v0
    for k in range(3):
        q, v = uk.step(unit.problem, k / 12, q, v, 1 / 12)
    np.testing.assert_allclose(it.getFloat64(list(unit.states)), [*q, *v], atol=1e-13)


def test_a_loose_solver_is_held_on_the_constraints(units: Callable[[str], Unit]) -> None:
    """CVode at 1e-4 drifts; events after its steps bring the state back, to the tolerance that is asked for."""
    unit = units("four-bar")
    errors = {}
    for tolerance in (1e-6, 1e3):
        start = {"constraint_tolerance": tolerance}
        _, outputs = unit.run("ModelExchange", 1.0, relative_tolerance=1e-4, start_values=start)
        errors[tolerance] = max(outputs["constraint_error"])
    assert errors[1e-6] <= 1e-6 < 1e-4 < errors[1e3]


# --- One state


@pytest.mark.parametrize("model", MODELS)
def test_derivatives_are_those_of_the_values(model: str, units: Callable[[str], Unit]) -> None:
    unit = units(model)
    it = unit.open()
    known = at_a_state(unit, it)
    knowns, unknowns = list(range(len(known))), [*unit.states, *unit.results]
    columns = [it.getDirectionalDerivative(unknowns, knowns, list(e)) for e in np.eye(len(known))]
    rows = [it.getAdjointDerivative(unknowns, knowns, list(e), len(knowns)) for e in np.eye(len(unknowns))]
    J = np.array(rows)
    np.testing.assert_allclose(J, np.transpose(columns), atol=1e-14 * np.abs(J).max())
    h, error = 1e-6, unit.index.get("constraint_error")
    for j in knowns:
        values = []
        for sign in (1, -1):
            move_to(unit, it, known + sign * h * np.eye(len(known))[j])
            values.append(np.array(it.getFloat64(unknowns)))
        difference = (values[0] - values[1]) / (2 * h)
        smooth = [i for i, x in enumerate(unknowns) if x != error]  # its absolute values have kinks at zero
        scale = max(1, np.abs(J[:, j]).max())
        np.testing.assert_allclose(J[smooth, j], difference[smooth], atol=1e-6 * scale)


@pytest.mark.parametrize("model", MODELS)
def test_results_depend_on_what_the_model_structure_says(model: str, units: Callable[[str], Unit]) -> None:
    """And, of what depends on few, on nothing less: a rate of a position on its velocity alone."""
    unit = units(model)
    root = ElementTree.fromstring((unit.folder / "modelDescription.xml").read_text())
    structure = root.find("ModelStructure")
    assert structure is not None
    unknowns = {int(x.attrib["valueReference"]): x.attrib for x in structure if x.tag != "InitialUnknown"}
    said = {k: set(map(int, x["dependencies"].split())) for k, x in unknowns.items()}
    it = unit.open()
    known = at_a_state(unit, it)
    J = np.transpose(
        [it.getDirectionalDerivative(list(said), [j], [1.0]) for j in range(len(known))],
    )
    for row, of in zip(J, said.values(), strict=True):
        assert set(np.flatnonzero(row)) <= of
    if model == "pendulum":
        names = list(unit.index)
        depends = {names[k]: {names[x] for x in of} for k, of in said.items()}
        assert depends["der(position.x)"] == {"velocity.x"}
        assert depends["energy"] == {"position.y", "velocity.x", "velocity.y"}
        assert unknowns[unit.index["der(position.x)"]]["dependenciesKind"] == "constant"


def test_inputs_and_parameters_are_those_of_the_model(units: Callable[[str], Unit]) -> None:
    """M a = Q + A^T lambda + B u; of a link of another mass too."""
    unit = units("four-bar")
    it = unit.open()
    known = at_a_state(unit, it)
    q, v, u = known[1:10], known[10:19], known[19]
    M = np.array(unit.problem.system.mass_matrix(0.2, q))
    Q = np.array(unit.problem.system.force(0.2, q, v))
    a = lambda: np.array(it.getFloat64([k for x, k in unit.index.items() if x.startswith("der(vel")]))
    force = lambda: np.array(
        it.getFloat64([k for x, k in unit.index.items() if x.startswith("constraint_force")])
    )
    torque = u * np.eye(9)[2]
    np.testing.assert_allclose(M @ a(), Q + force() + torque, atol=1e-10)
    it.setFloat64([unit.index["parameter.coupler_mass"]], [5.0])
    M[3, 3] = M[4, 4] = 5.0
    Q[4] = -5.0 * 9.81
    np.testing.assert_allclose(M @ a(), Q + force() + torque, atol=1e-9)
    variable = {x.name: x for x in unit.described.modelVariables}["parameter.coupler_mass"]
    assert (variable.variability, variable.start) == ("tunable", "2.0")


def test_units_are_those_of_coordinates_and_docstrings(units: Callable[[str], Unit]) -> None:
    """As FMPy reads them, whose own rules of units find nothing wrong (`fmpy validate`, above)."""
    described = units("four-bar").described
    found = {x.name: x.unit for x in described.modelVariables}
    expected = {
        "position.coupler_x": "m", "velocity.coupler_theta": "rad/s", "der(velocity.coupler_x)": "m/s2", "energy": "J",
        "parameter.coupler_mass": "kg", "parameter.coupler_inertia": "kg.m2", "parameter.coupler_centre_0": "m",
        "constraint_force.coupler_x": "N", "constraint_force.coupler_theta": "N.m", "step_size": "s",
    }  # fmt: skip
    assert {x: found[x] for x in expected} == expected
    base = {x.name: x.baseUnit for x in described.unitDefinitions}
    assert (base["kg.m2"].kg, base["kg.m2"].m, base["N.m"].m, base["N.m"].s) == (1, 2, 2, -2)
    said = {x.name: x.description for x in described.modelVariables}
    assert found["input.A"] == "N.m"
    assert said["parameter.coupler_inertia"] == "inertia: about the centre of mass"


def test_fields_of_own_classes_are_described_by_their_docstrings(tmp_path: Path) -> None:
    own = uk.Problem(Damped(jnp.array(2.0), jnp.array(3.0)), jnp.ones(1), jnp.ones(1), 0.0, 1.0, name="own")
    found = {x.name: x for x in uk.to_fmu(own, tmp_path / "own.fmu", platforms=[]).variables}
    rate = found["parameter.rate"]
    assert (rate.unit, rate.description) == ("N s/m", "rate: of the damper")
    assert base_units("N s/m") == {"kg": 1, "s": -1}
    assert base_units("1/s") == {"s": -1}
    assert base_units("furlongs") is None


# --- Instances and their states


def test_states_are_kept_restored_and_written_down(units: Callable[[str], Unit]) -> None:
    unit = units("pendulum")
    it, other = unit.open("CoSimulation"), unit.open("CoSimulation", step_size=0.02)
    read = lambda x: np.array(x.getFloat64(list(range(len(unit.index)))))
    it.setFloat64([unit.index["parameter.gravity"]], [5.0])
    it.doStep(0.0, 0.1)
    kept = it.getFMUState()
    written = it.serializeFMUState(kept)
    it.doStep(0.1, 0.2)
    later = read(it)
    it.setFMUState(kept)
    it.doStep(0.1, 0.2)
    np.testing.assert_array_equal(read(it), later)
    copy = other.deserializeFMUState(written)
    other.setFMUState(copy)
    other.doStep(0.1, 0.2)
    np.testing.assert_array_equal(read(other), later)
    it.freeFMUState(kept)
    other.freeFMUState(copy)
    it.reset()
    fresh = unit.open("CoSimulation")
    np.testing.assert_array_equal(read(it), read(fresh))


def test_a_start_beside_the_constraints_is_projected(units: Callable[[str], Unit]) -> None:
    unit = units("pendulum")
    it = unit.open(**{"position.x": 0.9, "position.y": -0.8})
    x, y = it.getFloat64([1, 2])
    assert x / y == pytest.approx(-0.9 / 0.8, abs=1e-12)
    assert np.hypot(x, y) == pytest.approx(1.0, abs=1e-9)


# --- FMI 2.0


@pytest.fixture(scope="module")
def of_fmi_2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fmi2") / "pendulum.fmu"
    uk.to_fmu(uk.models.pendulum(rate=0.5), path, fmi="2.0")
    fmpy.extract(str(path), str(path.with_suffix("")))
    return path


def test_an_fmu_of_fmi_2_runs_as_ukjax(of_fmi_2: Path) -> None:
    assert find_problems(str(of_fmi_2)) == []
    run = uk.simulate(uk.models.pendulum(rate=0.5), t1=0.5, ts=11, rtol=1e-12, atol=1e-12)
    for kind in ("ModelExchange", "CoSimulation"):
        found = fmpy.simulate_fmu(
            str(of_fmi_2), validate=True, fmi_type=kind, stop_time=0.5, output_interval=0.05,
            relative_tolerance=1e-13, record_events=False,
        )  # fmt: skip
        names = ["position.x", "position.y", "velocity.x", "velocity.y"]
        q_and_v = np.array([[row[x] for x in names] for row in found])
        np.testing.assert_allclose(q_and_v, np.hstack([run.q, run.v]), atol=1e-8)


def test_an_fmu_of_fmi_2_has_derivatives_and_states(of_fmi_2: Path) -> None:
    described = fmpy.read_model_description(str(of_fmi_2))
    index = {x.name: k for k, x in enumerate(described.modelVariables)}
    given = {
        "guid": described.guid,
        "unzipDirectory": str(of_fmi_2.with_suffix("")),
        "modelIdentifier": "pendulum",
        "instanceName": "it",
    }
    it = fmpy.fmi2.FMU2Slave(**given)
    it.instantiate()
    it.setupExperiment(startTime=0.0)
    it.enterInitializationMode()
    it.exitInitializationMode()
    it.doStep(0.0, 0.1)
    kept = it.getFMUstate()
    written = it.serializeFMUstate(kept)
    it.doStep(0.1, 0.1)
    later = it.getReal([1, 2, 3, 4])
    it.setFMUstate(it.deSerializeFMUstate(written))
    it.doStep(0.1, 0.1)
    assert it.getReal([1, 2, 3, 4]) == later
    # Energy m v.v / 2 + m g y: its derivative by y is m g, by v_x it is m v_x.
    by = [it.getDirectionalDerivative([index["energy"]], [k], [1.0])[0] for k in (2, 3)]
    np.testing.assert_allclose(by, [9.81, later[2]], atol=1e-13)


# --- What is refused


def test_what_cannot_be_done_is_said_to_the_simulator(units: Callable[[str], Unit]) -> None:
    unit = units("pendulum")
    error = fmpy.fmi1.FMICallException
    with pytest.raises(error):  # a mass at the hinge has no direction
        unit.open(**{"position.x": 0.0, "position.y": 0.0})
    it = unit.open("CoSimulation")
    with pytest.raises(error):
        it.setFloat64([unit.index["energy"]], [1.0])
    with pytest.raises(error):
        it.setFloat64([1], [0.5])  # a state, in a run
    with pytest.raises(error):
        it.getFloat64([1000])
    with pytest.raises(error):
        it.getDirectionalDerivative([unit.index["energy"]], [unit.index["parameter.mass"]], [1.0])
    it.setFloat64([unit.index["step_size"]], [-1.0])
    with pytest.raises(error):
        it.doStep(0.0, 0.1)
    it.setFloat64([unit.index["step_size"]], [100.0])
    before = it.getFloat64([0, *unit.states])
    with pytest.raises(error, match="discard"):
        it.doStep(0.0, 100.0)
    assert it.getFloat64([0, *unit.states]) == before


def test_a_model_description_of_another_fmu_is_refused(units: Callable[[str], Unit]) -> None:
    unit = units("pendulum")
    it = fmpy.fmi3.FMU3Model(
        guid="{other}", unzipDirectory=str(unit.folder), modelIdentifier="pendulum", instanceName="it"
    )
    with pytest.raises(Exception, match=r"[Ii]nstantiate"):
        it.instantiate()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"platforms": ["amiga"]}, "platforms must be a list of x86_64-linux"),
        ({"platforms": "x86_64-linux"}, "platforms must be a list"),
        ({"step": 0.0}, "step must be"),
        ({"fmi": "1.0"}, "fmi must be '3.0' or '2.0'"),
        ({"inputs": ["motor"]}, "B_u|inputs"),
    ],
)
def test_wrong_arguments(options: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(uk.InputError, match=message):
        uk.to_fmu(uk.models.pendulum(), tmp_path / "x.fmu", **options)
    assert not list(tmp_path.iterdir())


# --- What is in the file


def test_the_sources_compile_without_a_warning(units: Callable[[str], Unit], of_fmi_2: Path) -> None:
    folder = units("pendulum").folder / "sources"
    build = ElementTree.fromstring((folder / "buildDescription.xml").read_text())
    sources = [x.attrib["name"] for x in build.iter("SourceFile")]
    strict = [x for x in STRICT if x != "-Wconversion"]
    subprocess.run([str(CC), *strict, "-c", *sources], cwd=folder, check=True)
    prefixed = [*strict, "-DFMI3_FUNCTION_PREFIX=own_", "-c", "fmi3.c", "-o", "prefixed.o"]
    subprocess.run([str(CC), *prefixed], cwd=folder, check=True)
    assert b"own_fmi3DoStep" in (folder / "prefixed.o").read_bytes()
    folder = of_fmi_2.with_suffix("") / "sources"
    subprocess.run([str(CC), *strict, "-c", "pendulum.c", "fmi2.c"], cwd=folder, check=True)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("make") is None, reason="no make, which FMPy compiles with")
def test_fmpy_compiles_source_code_alone(tmp_path: Path) -> None:
    pytest.importorskip("cmake", reason="pip install cmake")
    path = tmp_path / "pendulum.fmu"
    uk.to_fmu(uk.models.pendulum(rate=0.5), path, platforms=[])
    assert not any("binaries" in x for x in zipfile.ZipFile(path).namelist())
    subprocess.run([sys.executable, "-m", "fmpy", "compile", str(path)], check=True, capture_output=True)
    found = fmpy.simulate_fmu(str(path), stop_time=1.0, output=["position.x"], output_interval=1.0)
    run = uk.simulate(uk.models.pendulum(rate=0.5), t1=1.0, ts=2, solver=dfx.Tsit5())
    np.testing.assert_allclose(found["position.x"][-1], run.q_end[0], atol=1e-4)


@pytest.mark.slow
@needs_zig
def test_binaries_of_other_platforms(tmp_path: Path) -> None:
    """Their first bytes are those of PE and ELF."""
    begins = {"x86_64-windows": b"MZ", "aarch64-linux": b"\x7fELF"}
    export = uk.to_fmu(uk.models.pendulum(), tmp_path / "pendulum.fmu", platforms=list(begins))
    assert export.platforms == tuple(begins)
    archive = zipfile.ZipFile(export.path)
    for target, begin in begins.items():
        (name,) = [x for x in archive.namelist() if x.startswith(f"binaries/{target}/pendulum.")]
        assert archive.read(name).startswith(begin)


def test_numbers_can_be_constants(tmp_path: Path) -> None:
    export = uk.to_fmu(uk.models.pendulum(), tmp_path / "pendulum.fmu", constants=True)
    assert [x.name for x in export.variables if x.causality == "parameter"] == [
        "step_size",
        "constraint_tolerance",
    ]
    assert find_problems(str(export.path)) == []


def test_names_that_tools_do_not_take_are_changed(tmp_path: Path) -> None:
    """Those of Python in Greek, with spaces, and two that would be one."""
    labels = ("θ 1", "φ 1", "2nd <x>")
    system = uk.System(jnp.eye(3), lambda t, q, v: -q, labels=labels)
    problem = uk.Problem(system, jnp.array([0.1, 0.2, 0.3]), jnp.zeros(3), 0.0, 1.0, name="über & co")
    export = uk.to_fmu(problem, tmp_path / "x.fmu")
    assert find_problems(str(export.path)) == []
    assert len({x.name for x in export.variables}) == len(export.variables)
    found = fmpy.simulate_fmu(str(export.path), stop_time=1.0, output_interval=1.0, relative_tolerance=1e-11)
    last = [float(found[x.name][-1]) for x in export.variables[1:4]]
    np.testing.assert_allclose(last, np.cos(1.0) * np.array([0.1, 0.2, 0.3]), atol=1e-8)


# --- The command


def test_the_command(tmp_path: Path) -> None:
    path = tmp_path / "moon.fmu"
    given = ["export", "pendulum", "--to", "fmu", "--out", str(path), "--fmi", "2.0"]
    given += ["--set", "gravity=1.62", "--step", "0.01"]
    done = CliRunner().invoke(cli.app, given)
    assert done.exit_code == 0, done.output
    assert "position.x" in done.output
    described = fmpy.read_model_description(str(path))
    assert described.fmiVersion == "2.0"
    start = {x.name: x.start for x in described.modelVariables}
    assert (start["parameter.gravity"], start["step_size"]) == ("1.62", "0.01")
    wrong = CliRunner().invoke(cli.app, ["export", "pendulum", "--to", "fmu", "--function", "energy"])
    assert wrong.exit_code == 2
    assert "--function is not an option of --to fmu" in re.sub(r"\s+", " ", wrong.output)


# --- Outputs of one's own


def test_outputs_of_your_own_are_poses_of_bodies(tmp_path: Path) -> None:
    """Of a double pendulum: the lower rod's centre and angle, by the angles of the hinges; derivatives too."""

    def lower(system: Any, t: Any, q: Any, v: Any) -> Any:
        at = system.placements(t, q)["lower"]
        return {"centre": at.p, "angle": at.angle}

    def speed(system: Any, t: Any, q: Any, v: Any) -> Any:
        return jnp.sum(v)

    export = uk.to_fmu(double_pendulum(), tmp_path / "pendulum.fmu", outputs=[lower, speed])
    names = ["output.lower_centre_0", "output.lower_centre_1", "output.lower_angle", "output.speed"]
    assert [x.name for x in export.variables if x.name.startswith("output.")] == names
    assert find_problems(str(export.path)) == []
    states = [x.name for x in export.variables[1:5]]
    found = fmpy.simulate_fmu(
        str(export.path),
        stop_time=0.3,
        output_interval=0.1,
        output=[*states, *names],
        relative_tolerance=1e-9,
    )
    q1, q2, v1, v2, x, y, angle, rate = (found[k] for k in (*states, *names))
    np.testing.assert_allclose(x, 0.5 * np.cos(q1) + 0.25 * np.cos(q1 + q2), atol=1e-12)
    np.testing.assert_allclose(y, 0.5 * np.sin(q1) + 0.25 * np.sin(q1 + q2), atol=1e-12)
    np.testing.assert_allclose(angle - angle[0], q1 + q2, atol=1e-12)
    np.testing.assert_allclose(rate, v1 + v2, atol=1e-12)
    assert abs(q1[-1]) > 0.1
