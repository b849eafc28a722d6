"""Robots from files as tasks of `optimal_control.py`: a gripper whose fingers are loops, and Cassie, which jumps.

Crocoddyl's own models pin bodies to the world alone. So its motions here are Pinocchio's rigid constraints, which also
join two bodies: a model of motion, one of impact and one of the end, each in Python around calls of Pinocchio, which take
nearly all of the time.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROBOTS = Path(__file__).parents[1] / "experiments" / "robots"
DAMPING = 50.0  # of Pinocchio's constraints at velocity level [1/s], as Baumgarte's


class RobotTask(NamedTuple):
    """Bring a robot from its start, at rest, to a posture at rest.

    - `spec`: MuJoCo's, whose joints have neither springs nor dampers.
    - `driven`: joints with a moment each; effort costs `effort` / 2 times their squares per second.
    - `posture`: angles that joints are to reach, by name; those of `driven` that are left out are to return. A free base
      is to return, too. What is missed costs `weight` / 2 times its square, as do velocities at the end.
    - `calm`: what squares of velocities cost, / 2, per second.
    - `phases`: steps, and whether the points of `points` are closed; none for a robot without contacts.
    - `points`: of bodies that touch the floor, by geom.
    """

    name: str
    spec: Any
    driven: tuple[str, ...]
    posture: dict[str, float]
    effort: float
    calm: float
    weight: float
    h: float
    phases: tuple[tuple[int, bool], ...]
    points: tuple[str, ...]

    @property
    def steps(self) -> int:
        return sum(count for count, _ in self.phases)


def _without_springs(name: str) -> Any:
    import mujoco

    spec = mujoco.MjSpec.from_file(str(ROBOTS / name))
    for joint in spec.joints:
        joint.damping, joint.stiffness = np.zeros(3), np.zeros(3)
    for x in [*spec.actuators, *spec.sensors, *spec.tendons]:
        spec.delete(x)
    spec.keys[0].ctrl = []
    return spec


def gripper() -> RobotTask:
    """A Robotiq 2F-85 closes, each finger by its own motor: two loops; the slide it hangs on lifts it."""
    import mujoco

    spec = _without_springs("robotiq_2f85.xml")
    for x in spec.equalities:
        if x.type != 0:  # all but connected points
            spec.delete(x)
    # On a slide, for Pinocchio 4.0 has wrong derivatives of loops that begin at the world.
    spec.body("hand").add_joint(name="lift", type=mujoco.mjtJoint.mjJNT_SLIDE, axis=[0, 0, 1])
    spec.keys[0].qpos = [0.0, *np.asarray(spec.keys[0].qpos)]
    driven = ("lift", "left_driver_joint", "right_driver_joint")
    posture = {"lift": 0.1, "left_driver_joint": 0.6, "right_driver_joint": 0.6}
    return RobotTask("gripper", spec, driven, posture, 1e-2, 0.0, 1e2, 5e-3, ((60, False),), ())


def cassie() -> RobotTask:
    """Cassie without its leaf springs jumps in place: four loops, and two points under each foot."""
    import mujoco

    spec = _without_springs("cassie.xml")
    kept = np.ones(35, bool)
    for joint in list(spec.joints):
        if joint.name.endswith(("-shin", "-heel-spring")):
            spec.delete(joint)
    kept[[15, 17, 29, 31]] = False
    spec.keys[0].qpos = np.asarray(spec.keys[0].qpos)[kept]
    spec.worldbody.add_geom(
        name="floor", type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 1], contype=1, conaffinity=1
    )
    model = spec.compile()
    data = mujoco.MjData(model)
    data.qpos[:] = model.key_qpos[0]
    mujoco.mj_kinematics(model, data)
    points = []
    for side in ("left", "right"):
        foot = spec.body(f"{side}-foot")
        number = model.body(f"{side}-foot").id
        capsule = int(model.body_geomadr[number])
        radius, half = model.geom_size[capsule][:2]
        axis = data.geom_xmat[capsule].reshape(3, 3)[:, 2]
        for k, end in enumerate((-half, half)):
            place = data.geom_xpos[capsule] + end * axis - [0.0, 0.0, radius]
            own = data.xmat[number].reshape(3, 3).T @ (place - data.xpos[number])
            points.append(f"{side}-point-{k}")
            # So small that it does not roll.
            foot.add_geom(
                name=points[-1],
                type=mujoco.mjtGeom.mjGEOM_SPHERE,
                size=[1e-6, 0, 0],
                pos=own,
                mass=0,
                contype=1,
                conaffinity=1,
            )
    driven = tuple(
        f"{side}-{x}"
        for side in ("left", "right")
        for x in ("hip-roll", "hip-yaw", "hip-pitch", "knee", "foot")
    )
    phases = (30, True), (20, False), (30, True)
    return RobotTask("Cassie's jump", spec, driven, {}, 1e-3, 1e-2, 1e3, 1e-2, phases, tuple(points))


# --- By Crocoddyl


def crocoddyl_robot_solver(task: RobotTask, q0: np.ndarray, u: np.ndarray) -> Any:
    """As `crocoddyl_solver` of `_plan_peers`, from MuJoCo's coordinates q0 and inputs u."""
    import time

    import crocoddyl
    import pinocchio as pin
    from _plan_peers import Solved
    from _robot_pinocchio import _connects, _coordinates, rebuilt

    mj = task.spec.compile()
    model, carried = rebuilt(mj)
    state = crocoddyl.StateMultibody(model)
    nq, n = model.nq, model.nv
    x0 = np.concatenate([_coordinates(mj, q0[None])[0], np.zeros(n)])
    loops = list(_connects(pin, mj, model, carried))
    points = []
    for name in task.points:
        geom = mj.geom(name)
        joint, place = carried[int(mj.geom_bodyid[geom.id])]
        points.append((joint, place * pin.SE3(np.eye(3), np.array(mj.geom_pos[geom.id]))))
    start = model.createData()
    pin.forwardKinematics(model, start, x0[:nq])
    held = [
        pin.RigidConstraintModel(
            pin.ContactType.CONTACT_3D, model, joint, place, 0,
            pin.SE3(np.eye(3), (start.oMi[joint] * place).translation), pin.ReferenceFrame.LOCAL_WORLD_ALIGNED,
        )
        for joint, place in points
    ]  # fmt: skip
    for x in [*loops, *held]:
        x.setBaumgarteCorrectorParameters(pin.BaumgarteCorrectorParameters(0.25 * DAMPING**2, DAMPING))
    address = {mj.joint(i).name: int(mj.jnt_dofadr[i]) for i in range(mj.njnt)}
    B = np.zeros((n, len(task.driven)))
    for k, name in enumerate(task.driven):
        B[address[name], k] = 1.0
    target, chosen = x0.copy(), np.zeros(2 * n)
    chosen[n:] = 1.0
    for name in task.driven:
        chosen[address[name]] = 1.0
    if mj.jnt_type[0] == 0:
        chosen[:6] = 1.0
    for name, angle in task.posture.items():
        target[model.idx_qs[1 + mj.joint(name).id]] = angle - mj.qpos0[mj.joint(name).qposadr[0]]
    settings = lambda: pin.ProximalSettings(1e-12, 1e-5, 50)

    def rows(closed: bool) -> tuple[Any, Any]:
        models, datas = pin.StdVec_RigidConstraintModel(), pin.StdVec_RigidConstraintData()
        for x in [*loops, *(held if closed else [])]:
            models.append(x)
            datas.append(x.createData())
        return models, datas

    class Motion(crocoddyl.DifferentialActionModelAbstract):
        def __init__(self, closed: bool):
            super().__init__(state, B.shape[1], 0)
            self.closed = closed

        def createData(self) -> Any:
            return MotionData(self)

        def calc(self, data: Any, x: Any, u: Any = None) -> None:
            u = np.zeros(B.shape[1]) if u is None else u
            args = data.rows[0], data.rows[1], data.settings
            data.xout = pin.constraintDynamics(model, data.own, x[:nq], x[nq:], B @ u, *args)
            data.cost = 0.5 * task.effort * u @ u + 0.5 * task.calm * x[nq:] @ x[nq:]

        def calcDiff(self, data: Any, x: Any, u: Any = None) -> None:
            u = np.zeros(B.shape[1]) if u is None else u
            pin.computeConstraintDynamicsDerivatives(
                model, data.own, data.rows[0], data.rows[1], data.settings
            )
            data.Fx = np.hstack([data.own.ddq_dq, data.own.ddq_dv])
            data.Fu = data.own.ddq_dtau @ B
            data.Lx = np.concatenate([np.zeros(n), task.calm * x[nq:]])
            data.Lu = task.effort * u
            data.Lxx = np.diag(np.concatenate([np.zeros(n), np.full(n, task.calm)]))
            data.Luu = task.effort * np.eye(len(u))

    class MotionData(crocoddyl.DifferentialActionDataAbstract):
        def __init__(self, of: Any):
            super().__init__(of)
            self.own, self.rows, self.settings = model.createData(), rows(of.closed), settings()
            pin.initConstraintDynamics(model, self.own, *self.rows)

    class Impact(crocoddyl.ActionModelAbstract):
        """The plastic impact of the points, at a cost of their heights."""

        def __init__(self):
            super().__init__(state, 0, 0)

        def createData(self) -> Any:
            return ImpactData(self)

        def _end(self, data: Any, x: Any) -> Any:
            args = data.rows[0], data.rows[1], 0.0, data.settings
            return pin.impulseDynamics(model, data.own, x[:nq], x[nq:], *args)

        def calc(self, data: Any, x: Any, u: Any = None) -> None:
            data.xnext = np.concatenate([x[:nq], self._end(data, x)])
            pin.forwardKinematics(model, data.heights, x[:nq])
            data.off = np.array([(data.heights.oMi[i] * place).translation[2] for i, place in points])
            data.cost = 0.5 * LANDING * data.off @ data.off

        def calcDiff(self, data: Any, x: Any, u: Any = None) -> None:
            # By differences, as Pinocchio 4.0's derivatives of impacts are wrong here; it is one stage of many.
            after = lambda d: self._end(data, state.integrate(x, 1e-6 * d))
            columns = [(after(d) - after(-d)) / 2e-6 for d in np.eye(2 * n)]
            data.Fx = np.vstack([np.eye(n, 2 * n), np.stack(columns, axis=1)])
            pin.computeJointJacobians(model, data.heights, x[:nq])
            J = np.zeros((len(points), 2 * n))
            for k, (i, place) in enumerate(points):
                J6 = pin.getJointJacobian(model, data.heights, i, pin.ReferenceFrame.LOCAL_WORLD_ALIGNED)
                arm = data.heights.oMi[i].rotation @ place.translation
                J[k, :n] = (J6[:3] - pin.skew(arm) @ J6[3:])[2]
            data.Lx, data.Lxx = LANDING * J.T @ data.off, LANDING * J.T @ J

    class ImpactData(crocoddyl.ActionDataAbstract):
        def __init__(self, of: Any):
            super().__init__(of)
            self.own, self.heights, self.rows, self.settings = (
                model.createData(), model.createData(), rows(True), settings(),
            )  # fmt: skip
            pin.initConstraintDynamics(model, self.own, *self.rows)

    class End(crocoddyl.ActionModelAbstract):
        def __init__(self):
            super().__init__(state, 0, 0)

        def calc(self, data: Any, x: Any, u: Any = None) -> None:
            off = chosen * state.diff(target, x)
            data.cost, data.xnext = 0.5 * task.weight * off @ off, x

        def calcDiff(self, data: Any, x: Any, u: Any = None) -> None:
            off, jacobians = chosen * state.diff(target, x), state.Jdiff(target, x)
            J = chosen[:, None] * np.copy(jacobians[1])
            data.Lx, data.Lxx = task.weight * J.T @ off, task.weight * J.T @ J

    stages, us, before = [], [], None
    for count, closed in task.phases:
        if closed and before is False:
            stages.append(Impact())
            us.append(np.zeros(0))
        motion = crocoddyl.IntegratedActionModelRK(Motion(closed), crocoddyl.RKType.two, task.h)
        stages += [motion] * count
        us += [u] * count
        before = closed
    problem = crocoddyl.ShootingProblem(x0, stages, End())
    problem.nthreads = 1

    def solve(tolerance: float, most: int) -> Any:
        solver = crocoddyl.SolverFDDP(problem)
        solver.th_stop = tolerance
        begun = time.process_time()
        done = solver.solve([x0] * (len(stages) + 1), us, most, False)
        seconds = time.process_time() - begun
        data, off = model.createData(), 0.0
        for x in list(solver.xs):
            pin.forwardKinematics(model, data, np.asarray(x)[:nq])
            for loop in loops:
                ends = (
                    data.oMi[loop.joint1_id] * loop.joint1_placement,
                    data.oMi[loop.joint2_id] * loop.joint2_placement,
                )
                off = max(off, float(np.linalg.norm(ends[0].translation - ends[1].translation)))
        return Solved(float(solver.cost), int(solver.iter), seconds, off, bool(done))

    return solve


LANDING = 1e6  # what squares of heights cost, / 2, where points land [1/m^2]
