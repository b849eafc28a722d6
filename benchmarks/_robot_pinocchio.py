"""A compiled model of MuJoCo rebuilt in Pinocchio, joint by joint, for its own reader of MJCF differs on some files."""

import importlib
import importlib.util
import time
from collections.abc import Callable
from typing import Any

import numpy as np


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


def _torques(model: Any, qpos: np.ndarray, qvel: np.ndarray, ctrl: np.ndarray) -> np.ndarray:
    """Of motors, dampers and springs on hinges and slides."""
    found = -model.dof_damping * qvel
    of, at = model.jnt_dofadr, model.jnt_qposadr
    scalar = model.jnt_type > 1
    springs = -model.jnt_stiffness * (qpos[at] - model.qpos_spring[at])
    found[of[scalar]] += springs[scalar]
    found[of[model.actuator_trnid[:, 0]]] += model.actuator_gear[:, 0] * ctrl
    return found


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


def run_by_pinocchio(
    model: Any, start: tuple[Any, Any], t1: float, dt: float, ctrl: Callable[[float], np.ndarray]
) -> tuple[float, np.ndarray] | None:
    """Seconds that `constraintDynamics` takes in a run by classical Runge-Kutta steps, and qpos at its end.

    The free joint comes first, whose linear velocity Pinocchio has in the body's axes. None without Pinocchio.

    **Arguments:**

    - `model`: MuJoCo's; its actuators are motors on hinges.
    - `start`: qpos and qvel, at rest.
    - `t1`, `dt`: how long, in which steps [s].
    - `ctrl`: of the motors, at t.
    """
    if importlib.util.find_spec("pinocchio") is None:
        return None
    pin: Any = importlib.import_module("pinocchio")
    found, carried = rebuilt(model)
    data, loops, held = (
        found.createData(),
        _connects(pin, model, found, carried),
        pin.StdVec_RigidConstraintData(),
    )
    for loop in loops:
        held.append(loop.createData())
    pin.initConstraintDynamics(found, data, loops, held)
    settings, spent = pin.ProximalSettings(1e-12, 1e-12, 2), 0.0

    def acceleration(t: float, q: np.ndarray, v: np.ndarray) -> np.ndarray:
        nonlocal spent
        tau = _torques(model, _to_mujoco(model, q), v, ctrl(t))
        begin = time.process_time()
        solved = pin.constraintDynamics(found, data, q, v, tau, loops, held, settings)
        spent += time.process_time() - begin
        return solved.copy()

    q, v = _coordinates(model, np.asarray(start[0])[None])[0], np.array(start[1])
    for i in range(round(t1 / dt)):
        t = i * dt
        a1 = acceleration(t, q, v)
        v2 = v + dt / 2 * a1
        a2 = acceleration(t + dt / 2, pin.integrate(found, q, dt / 2 * v), v2)
        v3 = v + dt / 2 * a2
        a3 = acceleration(t + dt / 2, pin.integrate(found, q, dt / 2 * v2), v3)
        v4 = v + dt * a3
        a4 = acceleration(t + dt, pin.integrate(found, q, dt * v3), v4)
        q = pin.integrate(found, q, dt / 6 * (v + 2 * v2 + 2 * v3 + v4))
        v = v + dt / 6 * (a1 + 2 * a2 + 2 * a3 + a4)
    return spent, _to_mujoco(model, q)
