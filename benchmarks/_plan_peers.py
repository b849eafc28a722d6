"""The tasks of `optimal_control.py` for other programs: Crocoddyl on Pinocchio's models, and CasADi with IPOPT.

A mechanism is a chain of hinges and slides, each described in the reference posture; where it is closed, its tip is
pinned to a point of the ground. Inputs act on joints.
"""

import time
from typing import Any, NamedTuple

import numpy as np


class Link(NamedTuple):
    """A joint, and the body it carries: mass, centre and inertia about it."""

    kind: str  # "hinge" or "slide"
    point: Any
    axis: Any
    mass: float
    centre: Any
    inertia: Any


class Task(NamedTuple):
    """Bring a chain from q = 0 at rest to where residuals of the end vanish, at weight / 2 times their squares.

    - `driven`: joints that inputs act on, at most `most`; effort costs `effort` / 2 times their squares per second.
    - `posture`: angles that joints are to reach, at rest.
    - `pin`: where the tip is pinned in the plane of a closed chain; none of an open one.
    """

    name: str
    chain: tuple[Link, ...]
    driven: tuple[int, ...]
    most: float
    effort: float
    posture: dict[int, float]
    pin: Any
    gravity: Any
    T: float
    steps: int
    weight: float
    first: Any  # guess of the inputs (p,)


class Solved(NamedTuple):
    cost: float
    iterations: int
    seconds: float
    off: float  # how far the loop is open at worst
    done: bool


# --- Crocoddyl


def crocoddyl_solver(task: Task) -> Any:
    """A function that solves the task, made ready."""
    import crocoddyl
    import pinocchio as pin

    model = pin.Model()
    model.gravity.linear = np.asarray(task.gravity, float)
    joint, at = 0, np.zeros(3)
    for i, link in enumerate(task.chain):
        kind = pin.JointModelRevoluteUnaligned if link.kind == "hinge" else pin.JointModelPrismaticUnaligned
        place = pin.SE3(np.eye(3), np.asarray(link.point, float) - at)
        joint = model.addJoint(joint, kind(np.asarray(link.axis, float)), place, f"joint {i}")
        at = np.asarray(link.point, float)
        inertia = pin.Inertia(link.mass, np.asarray(link.centre, float) - at, np.asarray(link.inertia, float))
        model.appendBodyToJoint(joint, inertia, pin.SE3.Identity())
        parent = model.addJointFrame(joint)
    if task.pin is not None:
        place = pin.SE3(np.eye(3), np.array([task.pin[0], 0.0, task.pin[1]]) - at)
        frame = model.addFrame(pin.Frame("tip", joint, parent, place, pin.FrameType.OP_FRAME))
    state, n = crocoddyl.StateMultibody(model), model.nv
    actuation = crocoddyl.ActuationModelFull(state)
    cost_model = lambda residual, *activation: crocoddyl.CostModelResidual(state, *activation, residual)
    running, end = crocoddyl.CostModelSum(state, n), crocoddyl.CostModelSum(state, n)
    running.addCost("effort", cost_model(crocoddyl.ResidualModelControl(state, n)), task.effort)
    target, chosen = np.zeros(2 * n), np.zeros(2 * n)
    for i, angle in task.posture.items():
        target[i], chosen[[i, n + i]] = angle, 1.0
    activation = crocoddyl.ActivationModelWeightedQuad(chosen)
    end.addCost("state", cost_model(crocoddyl.ResidualModelState(state, target, n), activation), task.weight)
    contacts = crocoddyl.ContactModelMultiple(state, n)
    if task.pin is not None:
        pinned = crocoddyl.ContactModel2D(state, frame, np.asarray(task.pin, float), n, np.array([0.0, 50.0]))
        contacts.addContact("pin", pinned)

    def action(costs: Any, h: float) -> Any:
        if task.pin is None:
            motion = crocoddyl.DifferentialActionModelFreeFwdDynamics(state, actuation, costs)
            motion.armature = np.zeros(n)  # which has it take Featherstone's algorithm
        else:
            motion = crocoddyl.DifferentialActionModelContactFwdDynamics(state, actuation, contacts, costs)
        made = crocoddyl.IntegratedActionModelRK(motion, crocoddyl.RKType.two, h)
        most = np.zeros(n)
        most[list(task.driven)] = task.most
        made.u_lb, made.u_ub = -most, most
        return made

    stages = [action(running, task.T / task.steps)] * task.steps
    problem = crocoddyl.ShootingProblem(np.zeros(2 * n), stages, action(end, 0.0))
    problem.nthreads = 1
    u = np.zeros(n)
    u[list(task.driven)] = task.first

    def solve(tolerance: float, most: int) -> Solved:
        # Bounds that no input reaches are left to the solver without them, which is faster.
        kind = (
            crocoddyl.SolverBoxFDDP
            if np.isfinite(task.most) or len(task.driven) < n
            else crocoddyl.SolverFDDP
        )
        solver = kind(problem)
        solver.th_stop = tolerance
        us = [u] * task.steps
        xs = problem.rollout(us)
        begun = time.process_time()
        done = solver.solve(xs, us, most, True)
        seconds = time.process_time() - begun
        off, data = 0.0, model.createData()
        if task.pin is not None:
            states = solver.xs  # kept, as its entries are views
            for x in states:
                pin.framesForwardKinematics(model, data, np.asarray(x)[:n])
                off = max(off, float(np.linalg.norm(data.oMf[frame].translation[[0, 2]] - task.pin)))
        return Solved(float(solver.cost), int(solver.iter), seconds, off, bool(done))

    return solve


# --- CasADi with IPOPT: multiple shooting on Lagrange's equations, differentiated exactly


def casadi_solver(task: Task) -> Any:
    """As `crocoddyl_solver`."""
    import casadi as ca

    n, p = len(task.chain), len(task.driven)
    q, v, u = ca.SX.sym("q", n), ca.SX.sym("v", n), ca.SX.sym("u", p)
    R, d, energy, potential = ca.SX.eye(3), ca.SX.zeros(3), 0, 0
    skew = lambda a: ca.skew(ca.DM(np.asarray(a, float)))
    turned = ca.SX.zeros(3)
    for i, link in enumerate(task.chain):
        axis, point = ca.DM(np.asarray(link.axis, float)), ca.DM(np.asarray(link.point, float))
        if link.kind == "hinge":
            turned = turned + R @ axis * v[i]
            about = (
                ca.SX.eye(3)
                + ca.sin(q[i]) * skew(link.axis)
                + (1 - ca.cos(q[i])) * skew(link.axis) @ skew(link.axis)
            )
            d, R = d + R @ (point - about @ point), R @ about
        else:
            d = d + R @ axis * q[i]
        centre = R @ ca.DM(np.asarray(link.centre, float)) + d
        speed, within = ca.jtimes(centre, q, v), R.T @ turned
        energy += 0.5 * link.mass * ca.dot(speed, speed)
        energy += 0.5 * within.T @ ca.DM(np.asarray(link.inertia, float)) @ within
        potential -= link.mass * ca.dot(ca.DM(np.asarray(task.gravity, float)), centre)
    momentum = ca.gradient(energy, v)
    M = ca.jacobian(momentum, v)
    bias = ca.jtimes(momentum, q, v) - ca.gradient(energy, q) + ca.gradient(potential, q)
    root = ca.chol(M)  # upper
    solve_mass = lambda b: ca.solve(root, ca.solve(root.T, b))
    force = ca.SX.zeros(n)
    for i, joint in enumerate(task.driven):
        force[joint] = u[i]
    if task.pin is None:
        a = solve_mass(force - bias)
    else:
        tip = (R @ ca.DM([task.pin[0], 0.0, task.pin[1]]) + d)[[0, 2]]
        J = ca.jacobian(tip, q)
        drift = ca.jtimes(J @ v, q, v) + 50.0 * (J @ v)
        free, across = solve_mass(force - bias), solve_mass(J.T)
        a = free - across @ (ca.inv_minor(J @ across) @ (J @ free + drift))
    x, h = ca.vertcat(q, v), task.T / task.steps
    rate = ca.Function("rate", [x, u], [ca.vertcat(v, a)])
    now, held = ca.MX.sym("x", 2 * n), ca.MX.sym("u", p)
    step = ca.Function("step", [now, held], [now + h * rate(now + 0.5 * h * rate(now, held), held)])
    there = [q[i] - angle for i, angle in task.posture.items()]
    end = ca.Function("end", [x], [ca.vertcat(*there, *(v[i] for i in task.posture))])
    X, U = ca.MX.sym("X", 2 * n, task.steps + 1), ca.MX.sym("U", p, task.steps)
    after = step.map(task.steps)(X[:, :-1], U)
    missed = end(X[:, -1])
    cost = 0.5 * h * task.effort * ca.sumsqr(U) + 0.5 * task.weight * ca.sumsqr(missed)
    problem = {
        "x": ca.veccat(X, U),
        "f": cost,
        "g": ca.veccat(X[:, 0], after - X[:, 1:]),
    }
    size = 2 * n * (task.steps + 1)
    low = np.concatenate([np.full(size, -np.inf), np.full(p * task.steps, -task.most)])
    states = [np.zeros(2 * n)]
    for _ in range(task.steps):
        states.append(np.asarray(step(states[-1], np.asarray(task.first))).ravel())
    first = np.concatenate([np.concatenate(states), np.tile(task.first, task.steps)])

    def solve(tolerance: float, most: int) -> Solved:
        options = {"print_time": False, "ipopt": {"print_level": 0, "tol": tolerance, "max_iter": most}}
        solver = ca.nlpsol("solver", "ipopt", problem, options)
        begun = time.process_time()
        found = solver(x0=first, lbx=low, ubx=-low, lbg=0.0, ubg=0.0)
        seconds = time.process_time() - begun
        stats, off = solver.stats(), 0.0
        if task.pin is not None:
            place = ca.Function("place", [q], [tip])
            qs = np.asarray(found["x"])[:size].reshape(task.steps + 1, 2 * n)[:, :n]
            off = max(float(np.linalg.norm(np.asarray(place(row)).ravel() - task.pin)) for row in qs)
        return Solved(float(found["f"]), int(stats["iter_count"]), seconds, off, bool(stats["success"]))

    return solve
