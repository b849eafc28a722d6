"""A compiled model of MuJoCo rebuilt in Pinocchio, joint by joint, for its own reader of MJCF differs on some files."""

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
from _pinocchio_cpp import CompiledRobot, load_library


def _placement(pin: Any, position: np.ndarray, quaternion: np.ndarray) -> Any:
    w, x, y, z = quaternion
    return pin.SE3(pin.Quaternion(w, x, y, z).matrix(), np.array(position))


def _joint(pin: Any, kind: int, axis: np.ndarray) -> Any:
    """Of MuJoCo's kinds: free, ball, slide, hinge."""
    return (
        pin.JointModelFreeFlyer,
        pin.JointModelSpherical,
        lambda: pin.JointModelPrismaticUnaligned(axis),
        lambda: pin.JointModelRevoluteUnaligned(axis),
    )[kind]()


def rebuilt(model: Any) -> tuple[Any, list[tuple[int, Any]]]:
    """Pinocchio's model, and of each of MuJoCo's bodies the joint that carries it and where it is in the joint's frame.

    **Arguments:**

    - `model`: MuJoCo's.
    """
    pin: Any = importlib.import_module("pinocchio")
    found = pin.Model()
    found.gravity.linear = np.array(model.opt.gravity)
    carried = [(0, pin.SE3.Identity())]
    for body in range(1, model.nbody):
        carrier, parent = carried[model.body_parentid[body]]
        place = parent * _placement(pin, model.body_pos[body], model.body_quat[body])
        first = int(model.body_jntadr[body])
        for joint in range(first, first + int(model.body_jntnum[body])):
            kind = int(model.jnt_type[joint])
            anchor = pin.SE3(np.eye(3), np.array(model.jnt_pos[joint]) if kind else np.zeros(3))
            at = pin.SE3.Identity() if kind == 0 else place * anchor
            carrier = found.addJoint(
                carrier, _joint(pin, kind, np.array(model.jnt_axis[joint])), at, f"{joint}"
            )
            place = anchor.inverse()
        inertial = _placement(pin, model.body_ipos[body], model.body_iquat[body])
        inertia = pin.Inertia(float(model.body_mass[body]), np.zeros(3), np.diag(model.body_inertia[body]))
        found.appendBodyToJoint(carrier, inertia, place * inertial)
        carried.append((carrier, place))
    found.armature = np.array(model.dof_armature)
    return found, carried


def _coordinates(model: Any, qpos: np.ndarray) -> np.ndarray:
    """Pinocchio's coordinates: less the reference angles, and quaternions with the scalar last."""
    found = qpos - model.qpos0
    for joint, kind in enumerate(model.jnt_type):
        if kind < 2:
            at = int(model.jnt_qposadr[joint])
            found[:, at : at + 3] = qpos[:, at : at + 3]
            ball = at + 3 if kind == 0 else at
            found[:, ball : ball + 4] = qpos[:, [ball + 1, ball + 2, ball + 3, ball]]
    return found


def _connects(pin: Any, model: Any, found: Any, carried: list[tuple[int, Any]]) -> Any:
    import mujoco

    rows = pin.StdVec_RigidConstraintModel()
    for i in range(model.neq):
        if model.eq_type[i] != mujoco.mjtEq.mjEQ_CONNECT or model.eq_objtype[i] != mujoco.mjtObj.mjOBJ_BODY:
            continue
        (one, first), (other, second) = (carried[x[i]] for x in (model.eq_obj1id, model.eq_obj2id))
        points = (pin.SE3(np.eye(3), np.array(model.eq_data[i, k : k + 3])) for k in (0, 3))
        ends = [place * point for place, point in zip((first, second), points, strict=True)]
        rows.append(pin.RigidConstraintModel(pin.ContactType.CONTACT_3D, found, one, ends[0], other, ends[1]))
    return rows


def accelerations(
    model: Any, qpos: np.ndarray, qvel: np.ndarray
) -> tuple[str, Callable[[], np.ndarray] | None]:
    """What is called, and a call that returns the accelerations at all states; None without Pinocchio.

    **Arguments:**

    - `model`: MuJoCo's.
    - `qpos`, `qvel`: its states.
    """
    if importlib.util.find_spec("pinocchio") is None:
        return "", None
    pin: Any = importlib.import_module("pinocchio")
    found, carried = rebuilt(model)
    data, tau, q = found.createData(), np.zeros(found.nv), _coordinates(model, qpos)
    loops = _connects(pin, model, found, carried)
    if not len(loops):
        aba = pin.aba
        every = lambda: np.array([aba(found, data, *state, tau) for state in zip(q, qvel, strict=True)])
        return "aba", every
    held = pin.StdVec_RigidConstraintData()
    for loop in loops:
        held.append(loop.createData())
    settings, dynamics = pin.ProximalSettings(1e-12, 1e-12, 2), pin.constraintDynamics
    pin.initConstraintDynamics(found, data, loops, held)
    solved = lambda q, v: dynamics(found, data, q, v, tau, loops, held, settings).copy()
    return "constraintDynamics", lambda: np.array([solved(*state) for state in zip(q, qvel, strict=True)])


def _to_mujoco(model: Any, q: np.ndarray) -> np.ndarray:
    """The inverse of `_coordinates`, of one state."""
    found = q + model.qpos0
    for joint, kind in enumerate(model.jnt_type):
        if kind < 2:
            at = int(model.jnt_qposadr[joint])
            found[at : at + 3] = q[at : at + 3]
            ball = at + 3 if kind == 0 else at
            found[ball : ball + 4] = q[[ball + 3, ball, ball + 1, ball + 2]]
    return found


def compile_robot(model: Any, amplitude: np.ndarray, frequency: float, gain: float) -> Any:
    """The robot in C++ with its dampers, springs and motors on hinges and slides; None where it cannot be built.

    **Arguments:**

    - `model`: MuJoCo's.
    - `amplitude`, `frequency`: of the sines that the motors follow [rad/s].
    - `gain`: Baumgarte's [1/s].
    """
    if importlib.util.find_spec("pinocchio") is None or load_library() is None:
        return None
    pin: Any = importlib.import_module("pinocchio")
    found, carried = rebuilt(model)
    loops = [
        (x.joint1_id, x.joint1_placement, x.joint2_id, x.joint2_placement)
        for x in _connects(pin, model, found, carried)
    ]
    stiffness, rest, motors = np.zeros((3, model.nv))
    scalar = model.jnt_type > 1
    of, at = model.jnt_dofadr[scalar], model.jnt_qposadr[scalar]
    stiffness[of] = model.jnt_stiffness[scalar]
    rest[of] = (model.qpos_spring - model.qpos0)[at]
    on_joints = model.actuator_trntype == 0
    moved = model.jnt_dofadr[model.actuator_trnid[on_joints, 0]]
    motors[moved] = (model.actuator_gear[:, 0] * amplitude)[on_joints]
    torques = {"damping": model.dof_damping, "stiffness": stiffness, "rest": rest, "amplitude": motors}
    return CompiledRobot(found, loops, gain, 2, frequency=frequency, **torques)


def prepare_accelerations_in_cpp(
    model: Any, qpos: np.ndarray, qvel: np.ndarray
) -> Callable[[], np.ndarray] | None:
    """As `accelerations`, with the loop over the states in C++."""
    robot = compile_robot(model, np.zeros(model.nu), 0.0, 0.0)
    states = np.hstack([_coordinates(model, qpos), qvel])
    return None if robot is None else lambda: robot.accelerations(states)


def run_compiled(robot: Any, model: Any, qpos: np.ndarray, t1: float, order: int, size: float) -> np.ndarray:
    """qpos at t1 of a run from rest. **Arguments:** `compile_robot`'s result; the others as `CompiledRobot.run`'s."""
    start = np.concatenate([_coordinates(model, qpos[None])[0], np.zeros(model.nv)])
    return _to_mujoco(model, robot.run(start[None], t1, order, size)[0, : model.nq])


def run_by_scipy(model: Any, qpos: np.ndarray, t1: float, tolerance: float) -> np.ndarray | None:
    """qpos at t1 of a tree of hinges and slides from rest, by DOP853 of SciPy and `pinocchio.aba`; None without it."""
    if importlib.util.find_spec("pinocchio") is None:
        return None
    from scipy.integrate import solve_ivp

    pin: Any = importlib.import_module("pinocchio")
    found, _ = rebuilt(model)
    data, n, damping = found.createData(), model.nv, np.array(model.dof_damping)

    def rate(_: float, x: np.ndarray) -> np.ndarray:
        return np.concatenate([x[n:], pin.aba(found, data, x[:n], x[n:], -damping * x[n:])])

    start = np.concatenate([_coordinates(model, qpos[None])[0], np.zeros(n)])
    run = solve_ivp(rate, (0.0, t1), start, "DOP853", rtol=tolerance, atol=tolerance)
    return _to_mujoco(model, run.y[:n, -1])
