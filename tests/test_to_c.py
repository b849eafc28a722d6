"""Models written as C: compiled by a C compiler, called by ctypes, and compared with ukjax and with closed forms."""

import ctypes
import dataclasses
import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from test_scalarize import CASES
from typer.testing import CliRunner

import ukjax as uk
import ukjax.mechanisms as um
from ukjax._cli import _commands as cli
from ukjax._interop._c_functions import parameters_of

CC = shutil.which("cc")
ZIG = [sys.executable, "-m", "ziglang", "cc"] if importlib.util.find_spec("ziglang") else None
STRICT = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Wconversion", "-Wshadow", "-Werror"]
GRIPPER = Path(__file__).parent.parent / "experiments" / "robots" / "robotiq_2f85.xml"
needs_cc = pytest.mark.skipif(CC is None, reason="no C compiler, cc")
needs_zig = pytest.mark.skipif(ZIG is None, reason="pip install ziglang")


class Library:
    """Functions of an export, called with NumPy's arrays: each result of a call is as large as it is given."""

    def __init__(self, export: Any, dtype: str = "float64"):
        self.export, self.dtype = export, np.dtype(dtype)
        name = export.files[0].removesuffix(".h")
        path = export.folder / f"{name}.so"
        source = str(export.folder / f"{name}.c")
        subprocess.run([CC, *STRICT, "-O1", "-shared", "-fPIC", source, "-o", path, "-lm"], check=True)
        self.library, self.name = ctypes.CDLL(str(path)), name

    def __call__(
        self, function: str, t: float, *arrays: Any, gives: tuple[int, ...], **changed: float
    ) -> Any:
        real = ctypes.c_double if self.dtype == np.float64 else ctypes.c_float
        names = [*self.export.parameters]
        given = [np.asarray(x, self.dtype, order="C") for x in arrays]
        results = [np.full(n, np.nan, self.dtype) for n in gives]
        own = []
        if names:
            values = (real * len(names)).in_dll(self.library, f"{self.name}_defaults")
            values = (real * len(names))(*values)
            for name, x in changed.items():
                values[names.index(name)] = x
            own = [values]
        places = [x.ctypes.data_as(ctypes.c_void_p) if x.ndim else real(float(x)) for x in (*given, *results)]
        getattr(self.library, f"{self.name}_{function}")(*own, real(t), *places)
        return results[0] if len(results) == 1 else results


def run_self_test(export: Any) -> subprocess.CompletedProcess:
    name = export.files[0].removesuffix(".h")
    sources = [str(export.folder / x) for x in (f"{name}.c", f"{name}_test.c")]
    program = str(export.folder / "self_test")
    subprocess.run([CC, *STRICT, "-O1", *sources, "-lm", "-o", program], check=True)
    return subprocess.run([program], capture_output=True, text=True)


def gripper() -> uk.Problem:
    return uk.load(GRIPPER).problem


def four_bar() -> uk.Problem:
    A, B, C, D = (0.0, 0.0), (0.0, 1.0), (1.5, 1.5), (1.5, 0.0)
    linkage = um.assemble(
        bodies=[
            um.rod("crank", A, B, mass=1.0),
            um.rod("coupler", B, C, mass=2.0),
            um.rod("rocker", D, C, mass=1.0),
        ],
        joints=[
            um.Revolute("A", "ground", "crank", A),
            um.Revolute("B", "crank", "coupler", B),
            um.Revolute("C", "coupler", "rocker", C),
            um.Revolute("D", "ground", "rocker", D),
        ],
        loads=[um.Gravity()],
        name="four-bar",
    )
    return um.problem(linkage, rates={"crank": 3.0}, t1=2.0)


MODELS: dict[str, Callable[[], uk.Problem]] = {
    "pendulum": lambda: uk.models.pendulum(rate=0.5),
    "four-bar": four_bar,
    "scara": uk.models.scara,
    "gripper": gripper,
    "parallelogram": uk.models.parallelogram,
}


def states(problem: uk.Problem, count: int = 5) -> list[tuple[Any, Any, Any]]:
    """States on the constraints."""
    random = np.random.default_rng(5)
    near = lambda x: np.asarray(x) + random.normal(0, 0.05, x.shape)
    times = random.uniform(0, 0.5, count)
    return [(t, *uk.project(problem, t, near(problem.q0), near(problem.v0))) for t in times]


@needs_cc
@pytest.mark.parametrize("model", MODELS)
def test_accelerations_are_those_of_ukjax(model: str, tmp_path: Path) -> None:
    problem = MODELS[model]()
    library = Library(uk.to_c(problem, tmp_path))
    here = uk.lanes(problem)
    for t, q, v in states(problem):
        a = library("acceleration", t, q, v, gives=(v.size,))
        expected = here(t, q[None], v[None])[0]
        np.testing.assert_allclose(a, expected, atol=1e-13 * max(1, np.max(np.abs(expected))), rtol=0)


@needs_cc
@pytest.mark.parametrize("model", MODELS)
def test_accelerations_in_float32(model: str, tmp_path: Path) -> None:
    """To the rounding of float32 they are those of float64."""
    problem = MODELS[model]()
    library = Library(uk.to_c(problem, tmp_path, dtype="float32"), "float32")
    assert "double" not in (tmp_path / library.export.files[1]).read_text()
    here = uk.lanes(problem)
    for t, q, v in states(problem):
        a = library("acceleration", t, q, v, gives=(v.size,))
        expected = here(t, q[None], v[None])[0]
        np.testing.assert_allclose(a, expected, atol=3e-4 * max(1, np.max(np.abs(expected))), rtol=0)


@needs_cc
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_self_test_agrees(model: str, dtype: str, tmp_path: Path) -> None:
    done = run_self_test(uk.to_c(MODELS[model](), tmp_path, ["acceleration", "forces"], dtype=dtype))
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith("all agree\n")
    assert done.stdout.count("largest difference") == 4 * 3


@needs_cc
def test_the_self_test_notices_another_number(tmp_path: Path) -> None:
    export = uk.to_c(uk.models.pendulum(), tmp_path)
    source = tmp_path / "pendulum.c"
    source.write_text(source.read_text().replace(".gravity = 9.81", ".gravity = 9.82"))
    done = run_self_test(export)
    assert done.returncode == 1
    assert "WRONG" in done.stdout


@needs_cc
def test_a_pendulum_falls_as_by_hand(tmp_path: Path) -> None:
    """Of a point on a rod, a = -g e_y - (v.v - g y) / L^2 q."""
    library = Library(uk.to_c(uk.models.pendulum(), tmp_path))
    q, v, L, g = np.array([0.6, -0.8]), np.array([0.4, 0.3]), 1.0, 9.81
    by_hand = lambda L, g: np.array([0, -g]) - (v @ v - g * q[1]) / L**2 * q
    np.testing.assert_allclose(library("acceleration", 0.0, q, v, gives=(2,)), by_hand(L, g), atol=1e-14)
    changed = library("acceleration", 0.0, q, v, gives=(2,), gravity=1.62)
    np.testing.assert_allclose(changed, by_hand(L, 1.62), atol=1e-14)


@needs_cc
def test_parameters_are_those_of_the_model(tmp_path: Path) -> None:
    problem = four_bar()
    export = uk.to_c(problem, tmp_path)
    assert {"crank_mass", "coupler_mass", "C_point_0"} <= {*export.parameters}
    assert export.parameters["coupler_mass"] == 2.0
    heavy = dataclasses.replace(problem, system=_with_mass(problem.system, 5.0))
    library, (t, q, v) = Library(export), states(problem, 1)[0]
    a = library("acceleration", t, q, v, gives=(v.size,), coupler_mass=5.0)
    np.testing.assert_allclose(a, uk.lanes(heavy)(t, q[None], v[None])[0], atol=1e-12)


def _with_mass(system: Any, mass: float) -> Any:
    import equinox as eqx

    return eqx.tree_at(lambda s: s.mechanism.bodies[1].mass, system, jnp.asarray(mass))


ON_A_RAIL = """<mujoco><worldbody><body><joint name="rail" type="slide" axis="1 0 0" damping="0.5" stiffness="40"/>
<geom size="0.1"/><body pos="0 0 -1"><joint name="hinge" axis="0 1 0" damping="0.3" stiffness="2" armature="0.02"/>
<geom size="0.1"/></body></body></worldbody></mujoco>"""


def test_numbers_of_joints_in_robot_files_have_their_names_and_units() -> None:
    problem = uk.load(ON_A_RAIL).problem
    found, _ = parameters_of((problem.system, uk.NoStabilizer()))
    found = {x.name: (x.default, x.unit) for x in found}
    assert found["joint_damping_damping_rail_c0"] == (0.5, "N s/m")
    assert found["joint_damping_damping_hinge_c0"] == (0.3, "N m s/rad")
    assert found["joint_springs_stiffness_rail_k0"] == (40.0, "N/m")
    assert found["joint_springs_stiffness_hinge_k0"] == (2.0, "N m/rad")
    assert found["armature_hinge"] == (0.02, "kg m^2")


WITH_ACTUATORS = ON_A_RAIL.replace(
    "</mujoco>",
    """<actuator><position name="aim" joint="hinge" kp="20" kv="3" forcerange="-4 5"/>
<velocity name="cruise" joint="rail" kv="7" ctrlrange="-5 6"/><motor name="push" joint="rail" gear="2" ctrlrange="-8 9"/>
<intvelocity name="turn" joint="hinge" kp="11" actrange="-1.5 1.2" ctrlrange="-2 3"/>
<general name="own" joint="hinge" gainprm="13" biasprm="-1 -2 -3" biastype="affine"/></actuator></mujoco>""",
)


def test_numbers_of_actuators_in_robot_files_have_their_names_and_units() -> None:
    problem = uk.load(WITH_ACTUATORS).problem
    found, _ = parameters_of((problem.system, uk.NoStabilizer()))
    found = {x.name.removeprefix("actuators_"): (x.default, x.unit) for x in found}
    assert found["laws_gain_aim_g0"] == (20.0, "N m/rad")  # 20 (u - q) - 3 q'
    assert found["laws_bias_aim_b2"] == (-3.0, "N m s/rad")
    assert found["laws_range_aim_greatest"] == (5.0, "N m")
    assert found["laws_gain_cruise_g0"] == (7.0, "N s/m")
    assert found["input_range_cruise_least"] == (-5.0, "m/s")
    assert found["input_range_push_greatest"] == (9.0, "N")
    assert found["laws_gain_turn_g0"] == (11.0, "N m/rad")
    assert found["laws_activation_range_turn_greatest"] == (1.2, "rad")
    assert found["input_range_turn_greatest"] == (3.0, "rad/s")
    assert found["laws_bias_own_b1"] == (-2.0, "N m/rad")
    assert found["laws_gain_own_g0"] == (13.0, "")  # of an input that may be anything


def test_the_header_names_what_numbers_belong_to(tmp_path: Path) -> None:
    uk.to_c(four_bar(), tmp_path)
    header = (tmp_path / "four_bar.h").read_text()
    assert "q[4]  coupler y" in header
    assert "row 7  D[1]" in header
    assert "Bodies: crank, coupler, rocker." in header
    assert "Joints: A, B, C, D." in header
    assert "The acceleration a = v' of M a = Q + A^T lambda, A a = b." in header
    assert "double coupler_inertia; /* inertia: about the centre of mass [kg m^2] */" in header


def test_the_header_has_the_start(tmp_path: Path) -> None:
    problem = uk.models.four_bars(1)
    uk.to_c(problem, tmp_path, name="four")
    header = (tmp_path / "four.h").read_text().replace("\\\n", "")
    for name, x in (("Q", problem.q0), ("V", problem.v0)):
        (numbers,) = re.findall(rf"#define FOUR_START_{name} {{(.*)}}", header)
        np.testing.assert_array_equal([float(y.strip(" ()")) for y in numbers.split(",")], x)


@needs_cc
def test_a_step_with_contacts(tmp_path: Path) -> None:
    """A ball that spins strikes the floor, and one that lies on it rolls on."""
    ball, floor = um.disk("ball", (0.0, 0.1), 0.1, mass=1.0), um.HalfSpace("ground", point=(0.0, 0.0))
    touch = um.Contact(um.Sphere("ball", (0.0, 0.1), 0.1), floor, restitution=0.7, friction=0.3)
    thrown = um.assemble([ball], loads=[um.Gravity()], contacts=[touch], name="ball")
    problem = um.problem(thrown, v0=[1.5, -2.0, 20.0], t1=1.0)
    library = Library(uk.to_c(problem, tmp_path, "step"))
    for q, v in (([0.0, 0.101, 0.0], [1.5, -2.0, 20.0]), ([0.0, 0.1, 0.0], [1.0, 0.0, -10.0])):
        expected = uk.step(problem, 0.0, jnp.array(q), jnp.array(v), 1e-3)
        found = library("step", 0.0, q, v, 1e-3, gives=(3, 3))
        np.testing.assert_allclose(found, expected, atol=1e-13)
    np.testing.assert_allclose(found[1], [1.0, 0.0, -10.0], atol=1e-12)
    with pytest.raises(uk.InputError, match="does not know unilateral constraints"):
        uk.to_c(problem, tmp_path, "acceleration")
    with pytest.raises(uk.InputError, match=r"step has a loop .* for ever, one of ukjax, as of contacts"):
        uk.to_c(problem, tmp_path, "step", bounded=True)


@needs_cc
def test_constants_leave_no_struct(tmp_path: Path) -> None:
    export = uk.to_c(uk.models.scara(), tmp_path, constants=True)
    assert not export.parameters
    assert "parameters *p" not in (tmp_path / "scara.h").read_text()
    assert run_self_test(export).returncode == 0


# --- Functions


ALL = ["acceleration", "constraints", "forces", "mass_matrix", "energy", "step"]


@needs_cc
@pytest.mark.parametrize("model", ["pendulum", "four-bar", "parallelogram"])
def test_functions_are_those_of_ukjax(model: str, tmp_path: Path) -> None:
    problem = MODELS[model]()
    library, system = Library(uk.to_c(problem, tmp_path, ALL)), problem.system
    for t, q, v in states(problem, 2):
        n, rows = v.size, uk.constraint_rows(system, t, q, v)
        m, close = rows.b.size, lambda x, y: np.testing.assert_allclose(x, y, atol=1e-11)
        A, b, position_error, velocity_error = library("constraints", t, q, v, gives=(m * n, m, m, m))
        close(A.reshape(m, n), rows.A)
        close(b, rows.b)
        close(position_error, rows.position_error)
        close(velocity_error, rows.velocity_error)
        M = library("mass_matrix", t, q, v, gives=(n * n,)).reshape(n, n)
        close(M, system.mass_matrix(t, q))
        close(library("energy", t, q, v, gives=(1,))[0], system.energy(t, q, v))
        a = library("acceleration", t, q, v, gives=(n,))
        multipliers, force = library("forces", t, q, v, gives=(m, n))
        close(A.reshape(m, n).T @ multipliers, force)
        close(M @ a, system.force(t, q, v) + force)
        close(A.reshape(m, n) @ a, b)
        expected = uk.step(system, t, q, v, 1e-2)
        found = library("step", t, q, v, 1e-2, gives=(q.size, n))
        for x, y in zip(found, expected, strict=True):
            close(x, y)


@needs_cc
@pytest.mark.parametrize("model", ["pendulum", "scara"])
def test_derivatives_are_differences(model: str, tmp_path: Path) -> None:
    problem = MODELS[model]()
    library = Library(uk.to_c(problem, tmp_path, ["acceleration", "acceleration_jacobian"]))
    t, q, v = states(problem, 1)[0]
    q, v, n = np.asarray(q), np.asarray(v), v.size
    by_q, by_v = library("acceleration_jacobian", t, q, v, gives=(n * n, n * n))
    a = lambda q, v: library("acceleration", t, q, v, gives=(n,))
    h = 1e-5
    for i, e in enumerate(np.eye(n)):
        for found, off in ((by_q, (h * e, 0 * e)), (by_v, (0 * e, h * e))):
            difference = (a(q + off[0], v + off[1]) - a(q - off[0], v - off[1])) / (2 * h)
            np.testing.assert_allclose(found.reshape(n, n)[:, i], difference, atol=1e-7)


@needs_cc
@pytest.mark.parametrize("model", ["pendulum", "parallelogram"])
def test_derivatives_of_forces_are_differences(model: str, tmp_path: Path) -> None:
    """Also where rows depend on others, as of the parallelogram: along motions that keep the rank."""
    problem = MODELS[model]()
    library = Library(uk.to_c(problem, tmp_path, ["forces", "forces_jacobian"]))
    t, q, v = states(problem, 1)[0]
    rows, q, v, n = uk.constraint_rows(problem.system, t, q, v), np.asarray(q), np.asarray(v), v.size
    m, free = rows.b.size, np.linalg.svd(rows.A)[2][np.linalg.matrix_rank(rows.A, 1e-9) :]
    sizes = (n * n, n * n, m * n, m * n)
    by_q, by_v, multipliers_by_q, multipliers_by_v = (
        x.reshape(-1, n) for x in library("forces_jacobian", t, q, v, gives=sizes)
    )
    forces = lambda q, v: np.concatenate(library("forces", t, q, v, gives=(m, n)))
    h = 1e-5
    for e in free:
        for J, off in (
            (np.vstack([multipliers_by_q, by_q]), (h * e, 0 * e)),
            (np.vstack([multipliers_by_v, by_v]), (0 * e, h * e)),
        ):
            difference = (forces(q + off[0], v + off[1]) - forces(q - off[0], v - off[1])) / (2 * h)
            np.testing.assert_allclose(J @ e, difference, atol=1e-6 * max(1, np.abs(J).max()))


@needs_cc
def test_inverse_dynamics(tmp_path: Path) -> None:
    """The torque of the crank that gives the linkage an acceleration; the acceleration under it is that one."""
    problem = four_bar()
    library = Library(uk.to_c(problem, tmp_path, ["inverse_dynamics"], inputs=["A"]))
    t, q, v = states(problem, 1)[0]
    a = uk.lanes(problem)(t, q[None], v[None])[0]
    rows = uk.constraint_rows(problem.system, t, q, v)
    free = np.linalg.svd(rows.A)[2][-1]  # the one motion there is
    wanted = a + 2.0 * free
    expected = uk.analysis.inverse_dynamics(problem, wanted, t, q, v, inputs=["A"])
    u, multipliers = library("inverse_dynamics", t, q, v, wanted, gives=(1, rows.b.size))
    np.testing.assert_allclose(u, expected.efforts, atol=1e-11)
    np.testing.assert_allclose(multipliers, expected.multipliers, atol=1e-11)


@needs_cc
def test_servo_control(tmp_path: Path) -> None:
    """A force along x that has a pendulum's point follow a height, as a = (a_x, y'') demands."""
    push = jnp.array([[1.0], [0.0]])
    task = uk.AccelerationConstraint(lambda t, q, v: (jnp.array([[0.0, 1.0]]), jnp.array([jnp.sin(t)])))
    problem = uk.with_servo(uk.models.pendulum(), push, task)
    library = Library(uk.to_c(problem, tmp_path, ["servo"], name="servoed"))
    q, v, t = np.array([0.6, -0.8]), np.array([0.4, 0.3]), 0.3
    # On the circle q.a = -v.v with a_y = sin t gives a_x; the rod pulls along q, the input along x.
    a = np.array([(-v @ v - q[1] * np.sin(t)) / q[0], np.sin(t)])
    pull = (a[1] + 9.81) / q[1]
    np.testing.assert_allclose(library("servo", t, q, v, gives=(1,)), a[0] - pull * q[0], atol=1e-12)


@needs_cc
def test_inputs_drive_the_model(tmp_path: Path) -> None:
    """A torque on the crank: M a = Q + A^T lambda + B u, and a short step is as long as that acceleration."""
    problem, torque = four_bar(), np.array([3.0])
    functions = ["acceleration", "forces", "step", "acceleration_jacobian"]
    library = Library(uk.to_c(problem, tmp_path, functions, inputs=["A"]))
    assert "u[0]  A" in (tmp_path / "four_bar.h").read_text()
    t, q, v = states(problem, 1)[0]
    n, B = v.size, np.eye(9)[:, 2:3]  # the moment of the crank
    a = library("acceleration", t, q, v, torque, gives=(n,))
    multipliers, force = library("forces", t, q, v, torque, gives=(8, n))
    M, Q = problem.system.mass_matrix(t, q), problem.system.force(t, q, v)
    np.testing.assert_allclose(M @ a, Q + force + B @ torque, atol=1e-11)
    np.testing.assert_allclose(
        uk.constraint_rows(problem.system, t, q, v).A.T @ multipliers, force, atol=1e-11
    )
    *_, by_u = library("acceleration_jacobian", t, q, v, torque, gives=(n * n, n * n, n))
    free = library("acceleration", t, q, v, np.zeros(1), gives=(n,))
    np.testing.assert_allclose(free + by_u * torque, a, atol=1e-11)  # it is linear in u
    _, v1 = library("step", t, q, v, 1e-4, torque, gives=(n, n))
    np.testing.assert_allclose((v1 - v) / 1e-4, a, rtol=1e-2, atol=1e-2)


@needs_cc
def test_a_number_that_a_controller_has_twice_is_one_parameter(tmp_path: Path) -> None:
    lengths = um.rod("arm", (0.0, 0.0), (0.5, 0.3), 2.0)
    arm = um.tree(
        [lengths], [um.Revolute("hinge", "ground", "arm", (0.0, 0.1))], [um.Actuator("motor", "hinge")]
    )
    law = uk.Holonomic(lambda t, q: q, name="still")
    controlled = uk.with_servo(um.problem(arm), um.input_matrix(arm), law, stabilizer=uk.Baumgarte(3.0, 5.0))
    for dtype in ("float64", "float32"):
        export = uk.to_c(controlled, tmp_path, "servo", name="arm", dtype=dtype)
        assert {"arm_mass", "stabilizer_alpha", "stabilizer_beta"} <= {*export.parameters}
        assert sum("mass" in x for x in export.parameters) == 1


@needs_cc
def test_results_may_stand_where_arguments_do(tmp_path: Path) -> None:
    library = Library(uk.to_c(uk.models.pendulum(), tmp_path, ["step"], constants=True))
    q, v, real = np.array([0.6, -0.8]), np.array([0.4, 0.3]), ctypes.c_double
    q1, v1 = library("step", 0.0, q, v, 1e-2, gives=(2, 2))
    state = [x.ctypes.data_as(ctypes.c_void_p) for x in (q, v)]
    library.library.pendulum_step(real(0.0), *state, real(1e-2), *state)
    assert (q == q1).all()
    assert (v == v1).all()


@needs_cc
def test_large_results_may_stand_there_too(tmp_path: Path) -> None:
    """Arrays that stay in memory: one that is given, and one that is made of it."""

    def swap(system: Any, t: Any, q: Any, v: Any, x=np.zeros(300), y=np.zeros(300)) -> Any:
        return {"first": y, "second": jax.lax.fori_loop(0, 300, lambda i, z: z.at[i].add(1.0), x), "third": q}

    library = Library(uk.to_c(uk.models.pendulum(), tmp_path, swap))
    q, x, y = np.array([0.6, -0.8]), np.arange(300.0), np.arange(300.0) ** 2
    places = [z.ctypes.data_as(ctypes.c_void_p) for z in (q, q, x, y, x, y, q)]
    library.library.pendulum_swap(ctypes.c_double(0.0), *places)
    np.testing.assert_array_equal(x, np.arange(300.0) ** 2)
    np.testing.assert_array_equal(y, np.arange(300.0) + 1)


# --- What programs consist of


def each_operation(system: Any, t: Any, q: Any, v: Any) -> dict[str, Any]:
    x, y = q
    return {
        "plain": jnp.stack([x + y, x - y, x * y, x / y, -x, jnp.maximum(x, y), jnp.minimum(x, y), abs(y), jnp.sign(y)]),
        "rounded": jnp.stack([jnp.floor(3 * x), jnp.ceil(3 * y), jnp.round(5 * x), jnp.fmod(7 * x, y), x // y]),
        "powers": jnp.stack([jnp.sqrt(x), jnp.cbrt(x), x**1.7, x**5, jnp.exp(y), jnp.exp2(y), jnp.expm1(x), jnp.log(x)]),
        "angles": jnp.stack([jnp.sin(x), jnp.cos(y), jnp.tan(x), jnp.arctan2(y, x), jnp.arcsin(x), jnp.arccos(y)]),
        "others": jnp.stack([jnp.sinh(x), jnp.tanh(y), jnp.arctan(y), jnp.log1p(x), jax.lax.erf(x), jax.lax.erfc(y)]),
        "choices": jnp.where(jnp.isfinite(q / (q - x)), 1.0, 2.0),
        "whole": ((3 * x).astype(int) * 7 - 5) % 4 + jnp.array([1, 2]) // 2 + (x > y).astype(int),
        "indexed": jnp.arange(5.0)[(10 * x).astype(int) % 5] + jnp.zeros(5).at[(9 * x).astype(int) % 5].set(y),
        "branch": jax.lax.cond(x > 0.5, lambda z: z * 2, lambda z: jnp.sin(z) * jnp.exp(z) / (1 + z * z) ** 3, q),
        "scanned": jax.lax.scan(lambda z, w: (z + jnp.sin(w + z), z), x, jnp.linspace(0.0, 1.0, 300))[1][::50],
        "repeated": jax.lax.while_loop(lambda s: (s[1] > 1e-3) & (s[0] < 9), lambda s: (s[0] + 1, s[1] * y), (0, x))[1],
        "sorted": jnp.sort(jnp.concatenate([q, v, -q])),
        "solved": jnp.linalg.solve(jnp.array([[2.0, x], [y, 3.0]]), q),
        "decomposed": jnp.linalg.eigh(jnp.array([[2.0, x], [x, y]]))[0],
    }  # fmt: skip


@needs_cc
def test_operations_are_those_of_jax(tmp_path: Path) -> None:
    problem = uk.models.pendulum()
    library = Library(uk.to_c(problem, tmp_path, [each_operation]))
    for x, y in ((0.62, -0.35), (0.25, 0.9)):
        q, v = jnp.array([x, y]), jnp.array([0.1, 0.2])
        with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
            expected = each_operation(problem.system, 0.0, q, v)
        sizes = tuple(np.size(z) for z in expected.values())
        found = library("each_operation", 0.0, q, v, gives=sizes)
        for name, z in zip(expected, found, strict=True):
            np.testing.assert_allclose(z, np.ravel(expected[name]), atol=1e-13, rtol=1e-13, err_msg=name)


@needs_cc
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_programs_of_scalarize_are_those_of_jax(case: str, tmp_path: Path) -> None:
    function, given = CASES[case]

    def own(system: Any, t: Any, q: Any, v: Any, x=np.asarray(given)) -> Any:
        return {f"r{i}": jnp.asarray(y, float) for i, y in enumerate(jax.tree.leaves(function(x)))}

    library = Library(uk.to_c(uk.models.pendulum(), tmp_path, own))
    expected = list(map(np.ravel, jax.tree.leaves(function(given))))
    sizes = tuple(x.size for x in expected)
    found = library("own", 0.0, np.zeros(2), np.zeros(2), given, gives=sizes)
    for x, y in zip(found if len(expected) > 1 else [found], expected, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-12, rtol=1e-12)


def follow(system: Any, t: Any, q: Any, v: Any, target=jnp.zeros(2), gain=1.0) -> Any:
    """A spring to a target."""
    return gain * (target - q)


@needs_cc
def test_functions_of_your_own_take_further_arrays(tmp_path: Path) -> None:
    library = Library(uk.to_c(uk.models.pendulum(), tmp_path, follow))
    assert "A spring to a target." in (tmp_path / "pendulum.h").read_text()
    found = library("follow", 0.0, [0.6, -0.8], [0.0, 0.0], [1.0, 2.0], 3.0, gives=(2,))
    np.testing.assert_allclose(found, [1.2, 8.4], atol=1e-15)


def _many_terms(x: Any, factor: Any) -> Any:
    for k in range(150):
        x = x + factor * jnp.sin(x) / (k + 1)
    return x


@jax.jit
def _long(x: Any, factor: Any) -> Any:
    """Long enough to be a sub-program."""
    return _many_terms(x, factor)


def called_once(system: Any, t: Any, q: Any, v: Any) -> Any:
    return _long(q[0], 0.0 * t + 0.25) + q[1]


def called_twice(system: Any, t: Any, q: Any, v: Any) -> Any:
    return _long(q[0], v[0]) + _long(q[1], v[1])


@needs_cc
def test_what_is_called_once_is_written_out(tmp_path: Path) -> None:
    once = Library(uk.to_c(uk.models.pendulum(), tmp_path / "1", called_once))
    twice = Library(uk.to_c(uk.models.pendulum(), tmp_path / "2", called_twice))
    texts = [(tmp_path / x / "pendulum.c").read_text() for x in "12"]
    assert [x.count("static void") for x in texts] == [0, 1]
    np.testing.assert_allclose(
        once("called_once", 0.0, [0.6, -0.8], [1.0, 2.0], gives=(1,)),
        _many_terms(0.6, 0.25) - 0.8,
        rtol=1e-13,
    )
    np.testing.assert_allclose(
        twice("called_twice", 0.0, [0.6, -0.8], [1.0, 2.0], gives=(1,)),
        _many_terms(0.6, 1.0) + _many_terms(-0.8, 2.0), rtol=1e-13,
    )  # fmt: skip


def whole_run(system: Any, t: Any, q: Any, v: Any, t1=1.0) -> Any:
    """A run of adaptive steps, saved three times."""
    trajectory = uk.simulate(system, q, v, t1=t1, ts=3, solver=dfx.Tsit5(), rtol=1e-10, atol=1e-10)
    return {"saved": trajectory.q, "end": trajectory.q_end}


@needs_cc
def test_a_whole_run_is_a_function(tmp_path: Path) -> None:
    library = Library(uk.to_c(uk.models.pendulum(), tmp_path, whole_run))
    q, v = [np.sin(1.0), -np.cos(1.0)], [0.5 * np.cos(1.0), 0.5 * np.sin(1.0)]
    saved, end = library("whole_run", 0.0, q, v, 2.0, gives=(6, 2))
    for t, place in zip((0.0, 1.0, 2.0, 2.0), (*saved.reshape(3, 2), end), strict=True):
        angle, _ = oracles.pendulum_elliptic(t, 1.0, 0.5, 9.81)
        np.testing.assert_allclose(place, [np.sin(angle), -np.cos(angle)], atol=1e-8)


@needs_cc
def test_names_are_those_that_c_takes(tmp_path: Path) -> None:
    export = uk.to_c(
        uk.models.pendulum(), tmp_path, lambda system, t, q, v, double=1.0: {"if": double * q}, name="2 arms"
    )
    assert export.files[0] == "x2_arms.h"
    assert (
        "void x2_arms_lambda(double t, const double q[2], const double v[2], double double_, double if_[2])"
        in (tmp_path / "x2_arms.c").read_text()
    )
    assert run_self_test(export).returncode == 0


@needs_cc
def test_infinities_stay_what_they_are(tmp_path: Path) -> None:
    def odd(system: Any, t: Any, q: Any, v: Any) -> Any:
        return jnp.stack(
            [
                jnp.inf + 0 * q[0],
                jnp.maximum(q[0], jnp.nan),
                1 / (q[0] - q[0]),
                jnp.where(q[1] > 9, q[0], -jnp.inf),
            ]
        )

    library = Library(uk.to_c(uk.models.pendulum(), tmp_path, odd))
    found = library("odd", 0.0, [0.6, -0.8], [0.0, 0.0], gives=(4,))
    np.testing.assert_array_equal(found, [np.inf, np.nan, np.inf, -np.inf])


def test_the_code_keeps_nothing_and_says_what_it_needs(tmp_path: Path) -> None:
    export = uk.to_c(uk.models.scara(), tmp_path, ["acceleration", "step"])
    text, header = ((tmp_path / f"scara.{x}").read_text() for x in "ch")
    assert "alloc" not in text
    assert all("const" in x or "(" in x for x in re.findall(r"^\s*static.*", text, re.MULTILINE))
    called = set(re.findall(r"\b([a-z]\w*)\(", text)) - {"if", "for"}
    assert {x for x in called if not x.startswith("scara_")} == {"cos", "fabs", "sin", "sqrt"}
    assert "Of math.h it needs: cos, fabs, sin, sqrt." in header
    counted = export.functions["scara_acceleration"]
    assert f"{counted.operations} operations" in header
    assert counted.unbounded == 0
    assert all(f"q[{i}]  q{i + 1}" in header for i in range(4))


@needs_cc
def test_stack_is_about_what_a_compiler_takes(tmp_path: Path) -> None:
    export = uk.to_c(uk.models.scara(), tmp_path, constants=True)
    done = subprocess.run([CC, "-O2", "-fstack-usage", "-c", "scara.c"], cwd=tmp_path, capture_output=True)
    if done.returncode or not (tmp_path / "scara.su").exists():
        pytest.skip("the compiler does not tell")
    taken = sum(int(line.split("\t")[1]) for line in (tmp_path / "scara.su").read_text().splitlines())
    assert 0.5 * taken < export.functions["scara_acceleration"].stack_bytes < 2 * taken


@needs_zig
@pytest.mark.parametrize("target", ["native", "thumb-linux-musleabihf -mcpu=cortex_m7", "riscv32-linux-musl"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_clang_compiles_it_for_other_processors(target: str, dtype: str, tmp_path: Path) -> None:
    export = uk.to_c(uk.models.parallelogram(), tmp_path, ["acceleration", "step"], dtype=dtype)
    for source in export.files[1:3]:
        options = ["-target", *target.split(), *STRICT, "-O1", "-c", source, "-o", f"{source}.o"]
        subprocess.run([*ZIG, *options], cwd=tmp_path, check=True)


# --- What is refused


def _calls_back(t: Any, q: Any, v: Any) -> Any:
    return jax.pure_callback(np.sin, jax.ShapeDtypeStruct((2,), float), q)


def never_ends(system: Any, t: Any, q: Any, v: Any) -> Any:
    return jax.lax.while_loop(lambda x: x > 0.1, jnp.sin, q[0])


def _line_of(fn: Callable[..., Any]) -> str:
    return f"test_to_c.py, line {fn.__code__.co_firstlineno + 1}"


def _called_back() -> uk.Problem:
    system = uk.System(jnp.eye(2), _calls_back, [uk.Holonomic(lambda t, q: q @ q - 1)])
    return uk.Problem(system, jnp.array([1.0, 0]), jnp.zeros(2), 0.0, 1.0)


def test_a_callback_is_named_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(
        uk.InputError, match=rf"'pure_callback' has no scalar code \({_line_of(_calls_back)}\)"
    ):
        uk.to_c(_called_back(), tmp_path)
    with pytest.raises(uk.InputError, match=_line_of(_calls_back)):  # also where the reason was kept
        uk.to_c(_called_back(), tmp_path)


def test_scalarize_knows_the_line_too() -> None:
    with pytest.raises(uk.Untranslatable, match="'pure_callback' has no scalar code") as raised:
        uk.scalarize(_calls_back)(0.0, jnp.zeros(2), jnp.zeros(2))
    assert raised.value.at == _line_of(_calls_back)


def test_a_loop_without_a_bound(tmp_path: Path) -> None:
    export = uk.to_c(uk.models.pendulum(), tmp_path, never_ends)
    assert export.functions["pendulum_never_ends"].unbounded == 1
    assert "1 of them WITHOUT a bound" in (tmp_path / "pendulum.h").read_text()
    with pytest.raises(uk.InputError, match=rf"may go on for ever \({_line_of(never_ends)}\)"):
        uk.to_c(uk.models.pendulum(), tmp_path, never_ends, bounded=True)


def _by_numpy(t: Any, q: Any, v: Any) -> Any:
    return jnp.array([np.sin(q[0]), -9.81])


def test_numpy_in_a_force_is_named_with_its_line(tmp_path: Path) -> None:
    falling = uk.Problem(uk.System(jnp.eye(2), _by_numpy), jnp.ones(2), jnp.zeros(2), 0.0, 1.0)
    with pytest.raises(uk.InputError, match=rf"NumPy.*: write jnp .*\({_line_of(_by_numpy)}\)\."):
        uk.to_c(falling, tmp_path)


def test_every_loop_of_a_step_is_bounded(tmp_path: Path) -> None:
    uk.to_c(uk.models.four_bars(), tmp_path, ["step", "acceleration_jacobian"], bounded=True)


def _has_no_form(system: Any, t: Any, q: Any, v: Any) -> Any:
    return jnp.linalg.eigvals(jnp.outer(q, v)).real


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((["acceleratoin"],), {}, "did you mean 'acceleration'"),
        ((["acceleration", "acceleration"],), {}, "names one twice"),
        (([],), {}, "names nothing to write"),
        ((["servo"],), {}, "with_servo"),
        ((["acceleration"],), {"dtype": "int32"}, "dtype must be 'float64' or 'float32'"),
        ((lambda system, t, q, v, target: q,), {}, "takes target without a default"),
        ((lambda system, t, q: q,), {}, r"must be a function of \(system, t, q, v\)"),
        ((lambda system, t, q, v: {"q": v},), {}, "must differ"),
        ((_has_no_form,), {}, "'eig' has no scalar code"),
        (("step",), {"inputs": ["hip"]}, r"names 'hip', but Pendulum has no joints .* jnp.eye\(2\)"),
    ],
)
def test_what_cannot_be_is_said(arguments: Any, options: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(uk.InputError, match=message):
        uk.to_c(uk.models.pendulum(), tmp_path, *arguments, **options)


def test_a_model_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(uk.InputError, match="problem must be something like"):
        uk.to_c(uk.models.pendulum, tmp_path)  # pyright: ignore
    (tmp_path / "file").write_text("")
    with pytest.raises(uk.InputError, match="cannot be written"):
        uk.to_c(uk.models.pendulum(), tmp_path / "file")


# --- The command


def test_the_command(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    given = [
        "export",
        "pendulum",
        "--to",
        "c",
        "--out",
        str(folder),
        "--set",
        "length=2",
        "--function",
        "energy",
    ]
    done = CliRunner().invoke(cli.app, given)
    assert done.exit_code == 0, done.output
    assert "pendulum_energy" in done.output
    assert sorted(x.name for x in folder.iterdir()) == [
        "README.md",
        "pendulum.c",
        "pendulum.h",
        "pendulum_test.c",
    ]
    assert "pendulum_defaults" in (folder / "pendulum.h").read_text()
    assert CliRunner().invoke(cli.app, ["export", "pendulum", "--to", "rust"]).exit_code == 2


@needs_cc
def test_the_program_of_the_page_prints_what_the_page_says(tmp_path: Path) -> None:
    page = (Path(__file__).parent.parent / "docs" / "out-of-python.md").read_text()
    (program,) = re.findall(r"^```c\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (printed,) = re.findall(r"^after 1 s at .*\n", page, re.MULTILINE)
    uk.to_c(uk.models.pendulum(), tmp_path, ["acceleration", "step"])
    (tmp_path / "swing.c").write_text(program)
    subprocess.run([CC, *STRICT, "swing.c", "pendulum.c", "-lm", "-o", "swing"], cwd=tmp_path, check=True)
    done = subprocess.run([str(tmp_path / "swing")], capture_output=True, text=True, check=True)
    assert done.stdout == printed
    moon = uk.simulate(uk.models.pendulum(gravity=1.62), [0.0, -1.0], [2.0, 0.0], t1=1.0, ts=2)
    np.testing.assert_allclose([float(x) for x in re.findall(r"-?\d\.\d+", printed)], moon.q_end, atol=1e-6)


@needs_cc
def test_no_call_runs_more_operations_than_the_header_says(tmp_path: Path) -> None:
    """Counted while it runs: each constant in C is an operation."""
    export = uk.to_c(uk.models.pendulum(), tmp_path, ["acceleration", "step"])
    source, test = tmp_path / "pendulum.c", tmp_path / "pendulum_test.c"
    counted = re.sub(r"(?m)^ +(?=const \w+ v\d+ = )", "++operations; ", source.read_text())
    source.write_text(f"extern long operations;\n{counted}")
    say = r'\1; printf("\2 %ld\\n", operations); operations = 0;'
    told = re.sub(r"(pendulum_(\w+)\(&[^;]*\));", say, test.read_text())
    test.write_text(f"long operations = 0;\n{told}")
    subprocess.run([str(CC), "-std=c99", source, test, "-lm", "-o", tmp_path / "test"], check=True)
    run = subprocess.run([tmp_path / "test"], capture_output=True, text=True, check=True).stdout
    header = (tmp_path / "pendulum.h").read_text()
    most = {x.lower(): int(n) for x, n in re.findall(r"#define PENDULUM_(\w+)_OPERATIONS (\d+)", header)}
    assert most == {x: export.functions[f"pendulum_{x}"].most_operations for x in ("acceleration", "step")}
    found = {x: [int(n) for n in re.findall(rf"{x} (\d+)\n", run)] for x in most}
    assert set(found["acceleration"]) == {most["acceleration"]}
    assert 0 < max(found["step"]) <= most["step"]
    assert len(found["step"]) == 4


def two_links(damping: float = 0.0) -> uk.Problem:
    """Rods of 0.5 m and 1 kg in the plane, with a motor in each hinge."""
    links = [um.rod("upper", (0.0, 0.0), (0.5, 0.0), 1.0), um.rod("lower", (0.5, 0.0), (1.0, 0.0), 1.0)]
    hinges = [
        um.Revolute("shoulder", "ground", "upper", (0.0, 0.0)),
        um.Revolute("elbow", "upper", "lower", (0.5, 0.0)),
    ]
    loads = (
        [um.Gravity(), um.TorsionalSpring("rub", hinges[1], damping=damping)] if damping else [um.Gravity()]
    )
    return um.problem(um.tree(links, hinges, loads, name="two links"))


def torques_by_hand(q: Any, v: Any, a: Any, damping: float) -> np.ndarray:
    """Lagrange's equations of the two rods."""
    L, c, m, g = 0.5, 0.25, 1.0, 9.81
    turn, cos, h = m * L**2 / 12, np.cos(q[1]), m * L * c * np.sin(q[1])
    lower = turn + m * c**2
    M = np.array([[turn + m * c**2 + m * L**2 + lower + 2 * m * L * c * cos, lower + m * L * c * cos]] * 2)
    M[1] = M[0, 1], lower
    bend = m * c * g * np.cos(q[0] + q[1])
    weight = np.array([(m * c + m * L) * g * np.cos(q[0]) + bend, bend])
    return M @ a + [-h * (2 * v[0] * v[1] + v[1] ** 2), h * v[0] ** 2 + damping * v[1]] + weight


@needs_cc
@pytest.mark.parametrize("damping", [0.0, 0.3])
def test_torques_of_two_links_are_those_of_lagrange(damping: float, tmp_path: Path) -> None:
    """Without the mass matrix: by far fewer operations than by it."""
    problem = two_links(damping)
    export = uk.to_c(problem, tmp_path, ["inverse_dynamics"], name="links")
    random, library = np.random.default_rng(2), Library(export)
    assert export.functions["links_inverse_dynamics"].operations < 250
    for q, v, a in random.normal(0, 1, (5, 3, 2)):
        found = library("inverse_dynamics", 0.0, q, v, a, gives=(2,))
        np.testing.assert_allclose(found, torques_by_hand(q, v, a, damping), atol=1e-13)
        found = problem.system.required_force(0.0, jnp.asarray(q), jnp.asarray(v), jnp.asarray(a))
        np.testing.assert_allclose(found, torques_by_hand(q, v, a, damping), atol=1e-13)
