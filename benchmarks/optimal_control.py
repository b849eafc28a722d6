"""Optimal control by `ukjax.plan`, beside Crocoddyl and CasADi with IPOPT, in one process on one core.

Same motions (the midpoint rule with held inputs), same costs (effort, and what is missed at the end as a penalty), same
first inputs, bounds by each program's own means. A pole on a cart swings up, in joint coordinates and, by ukjax, once
more as a point on a rod that is a constraint; an arm of six hinges, its weight borne, takes another posture; the crank of
a four-bar linkage turns it against gravity. Crocoddyl closes the loop by a contact with stabilized velocities, CasADi by
the same equations; ukjax by rows that are projected. CasADi leaves out the arm: it takes minutes to build its
derivatives from expressions. Two robots are from files (`_plan_robots.py`): a gripper, two loops, closes and is lifted;
and Cassie, four loops, jumps in place by phases of contact, by ukjax with forces that push and stay within friction, by
Crocoddyl without these bounds. Cost reached, iterations, processor time per iteration and to the end, processor time of
the first result with what has to be built or compiled for it, and by how much loops are open at worst.

Needs Crocoddyl and CasADi, which ukjax does not: `pip install crocoddyl==3.2.1 pin==4.0.0 casadi` (the wheel does not say
for which Pinocchio it was built; with 4.1 its results are garbage). Without them their rows are missing.

    python benchmarks/optimal_control.py [--rounds 5] [--only cart-pole] [--most 500]
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import _one_thread  # noqa: F401  before NumPy
import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
from _plan_peers import Link, Solved, Task, casadi_solver, crocoddyl_solver
from _plan_robots import RobotTask, cassie, crocoddyl_robot_solver, gripper
from _timing import machine, pinned

import ukjax as uk
import ukjax.mechanisms as um

TOLERANCE = 1e-8
DOWN = (0.0, 0.0, -9.81)
# Of motions in the plane the turns are about -y, so that x and z are the plane's x and y.
TURN = (0.0, -1.0, 0.0)


def in_plane(place: Any) -> tuple[float, float, float]:
    return (place[0], 0.0, place[1])


def rod_in_plane(start: Any, end: Any, mass: float) -> Link:
    start, end = np.asarray(start, float), np.asarray(end, float)
    inertia = mass * np.sum((end - start) ** 2) / 12.0
    return Link(
        "hinge", in_plane(start), TURN, mass, in_plane(0.5 * (start + end)), np.diag([0.0, inertia, 0.0])
    )


# --- The tasks

O3 = np.zeros((3, 3))
CART_POLE = Task(
    "cart-pole",
    (
        Link("slide", (0.0, 0.0, 0.0), (1.0, 0.0, 0.0), 1.0, (0.0, 0.0, 0.0), O3),
        Link("hinge", (0.0, 0.0, 0.0), TURN, 0.3, (0.0, 0.0, -0.5), O3),
    ),
    (0,), 20.0, 0.02, {0: 1.0, 1: np.pi}, None, DOWN, 2.0, 100, 1e3, (0.0,),
)  # fmt: skip

SHOULDER, ELBOW, MIDDLE, WRIST = (0.0, 0.15, 0.66), (0.0, 0.15, 1.09), (0.301, 0.15, 1.09), (0.43, 0.15, 1.09)
FLANGE, TIP = (0.43, 0.15, 1.026), (0.43, 0.15, 0.93)
X, Y, Z = np.eye(3)


def link(point: Any, axis: Any, start: Any, end: Any, mass: float, radius: float) -> Link:
    """A hinge and a cylinder."""
    start, end = np.asarray(start, float), np.asarray(end, float)
    length = np.linalg.norm(end - start)
    along = (end - start) / length
    own = mass * (3 * radius**2 + length**2) / 12.0
    inertia = own * np.eye(3) + (0.5 * mass * radius**2 - own) * np.outer(along, along)
    return Link("hinge", point, axis, mass, tuple(0.5 * (start + end)), inertia)


ARM_LINKS = (
    link((0.0, 0.0, 0.0), Z, (0.0, 0.0, 0.0), (0.0, 0.0, 0.66), 13.0, 0.09),
    link(SHOULDER, Y, SHOULDER, ELBOW, 17.0, 0.07),
    link(ELBOW, Y, ELBOW, MIDDLE, 5.0, 0.05),
    link(MIDDLE, X, MIDDLE, WRIST, 1.2, 0.04),
    link(WRIST, Y, WRIST, FLANGE, 0.6, 0.03),
    link(FLANGE, Z, FLANGE, TIP, 1.0, 0.03),
)
POSTURE = dict(enumerate((0.8, 0.5, -0.4, 0.6, 0.7, -0.5)))
ARM = Task(
    "six-hinge arm", ARM_LINKS,
    (0, 1, 2, 3, 4, 5), np.inf, 1e-3, POSTURE, None, (0.0, 0.0, 0.0), 1.0, 50, 1e3, (0.0,) * 6,
)  # fmt: skip

A, B, C, D = (0.0, 0.0), (0.0, 0.3), (0.8, 0.6), (0.7, 0.0)
FOUR_BAR = Task(
    "four-bar",
    (rod_in_plane(A, B, 0.5), rod_in_plane(B, C, 1.0), rod_in_plane(C, D, 0.8)),
    (0,), 30.0, 1e-2, {0: 1.5}, D, DOWN, 1.0, 100, 1e2, (0.0,),
)  # fmt: skip


# --- By ukjax


def effort(weight: float) -> Callable[..., Any]:
    return lambda t, q, v, u: jnp.sqrt(weight) * u


def to_rest(task: Task) -> Callable[..., Any]:
    """Residuals of the end: angles and rates of joints."""
    joints = np.array(list(task.posture))
    target = np.array(list(task.posture.values()))
    return lambda t, q, v: jnp.sqrt(task.weight) * jnp.concatenate([q[joints] - target, v[joints]])


def cart_pole() -> tuple[Any, Any, Any]:
    bodies = [
        um.PlanarBody("cart", 1.0, (0.0, 0.0), 1.0),  # which does not turn
        um.PlanarBody("pole", 0.3, (0.0, -0.5), 1e-9),  # a point
    ]
    joints = [
        um.Prismatic("rail", "ground", "cart", (0.0, 0.0), (1.0, 0.0)),
        um.Revolute("pin", "cart", "pole", (0.0, 0.0)),
    ]
    return um.problem(um.tree(bodies, joints, [um.Gravity()])), ["rail"], to_rest(CART_POLE)


def rod_pole() -> tuple[Any, Any, Any]:
    """The same with the pole as a constraint."""

    def end(t, q, v):
        along, rate = q[1:] - jnp.stack([q[0], 0.0 * q[0]]), v[1:] - jnp.stack([v[0], 0.0 * v[0]])
        angle = jnp.arctan2(-along[0], along[1])  # from the top
        turning = (along[0] * rate[1] - along[1] * rate[0]) / 0.25
        return jnp.sqrt(CART_POLE.weight) * jnp.stack([q[0] - 1.0, angle, v[0], turning])

    model = uk.models.light_cart_pole(cart=1.0, mass=0.3, length=0.5, angle=0.0)
    return model, [[1.0], [0.0], [0.0]], end


def arm() -> tuple[Any, Any, Any]:
    names = [f"link {i}" for i in range(6)]
    bodies = [um.Body(name, x.mass, x.centre, x.inertia) for name, x in zip(names, ARM.chain, strict=True)]
    joints = [
        um.Revolute(f"hinge {i}", parent, name, x.point, x.axis)
        for i, (parent, name, x) in enumerate(zip(["ground", *names], names, ARM.chain, strict=False))
    ]
    system = um.tree(bodies, joints)
    return um.problem(system), [f"hinge {i}" for i in range(6)], to_rest(ARM)


def four_bar() -> tuple[Any, Any, Any]:
    bodies = [
        um.rod("crank", A, B, mass=0.5),
        um.rod("coupler", B, C, mass=1.0),
        um.rod("rocker", C, D, mass=0.8),
    ]
    joints = [
        um.Revolute("A", "ground", "crank", A),
        um.Revolute("B", "crank", "coupler", B),
        um.Revolute("C", "coupler", "rocker", C),
    ]
    system = um.tree(bodies, joints, [um.Gravity()], loops=[um.Revolute("D", "rocker", "ground", D)])
    return um.problem(system), ["A"], to_rest(FOUR_BAR)


def robot_solver(task: RobotTask, robot: Any, u: np.ndarray) -> Any:
    """By ukjax."""
    labels, q0 = robot.mechanism.labels, np.asarray(robot.problem.q0)
    driven = np.array([labels.index(x) for x in task.driven])
    target = np.array([task.posture.get(x, q0[i]) for x, i in zip(task.driven, driven, strict=True)])

    def cost(t, q, v, u):
        return jnp.concatenate([jnp.sqrt(task.effort) * u, jnp.sqrt(task.calm) * v])

    def end(t, q, v):
        base = [q[:3] - q0[:3], 2.0 * q[4:7]] if task.points else []
        return jnp.sqrt(task.weight) * jnp.concatenate([*base, q[driven] - target, v])

    phases = [(count, "smooth contacts" if closed else []) for count, closed in task.phases]
    still = np.tile(q0, (task.steps + 1, 1)), np.zeros((task.steps + 1, len(robot.mechanism.velocity_labels)))

    def solve(tolerance: float, most: int) -> Solved:
        begun = time.process_time()
        found = uk.plan(
            robot, cost, inputs=list(task.driven), t1=task.h * task.steps, steps=task.steps, end_cost=end, u=u,
            states=still, phases=phases if task.points else None, solver=dfx.Midpoint(), tolerance=tolerance,
            iterations=most,
        )  # fmt: skip
        seconds = time.process_time() - begun
        return Solved(
            found.cost, found.iterations, seconds, opening(robot.problem, found), found.stopped == "converged"
        )

    return solve


def opening(problem: Any, found: Any) -> float:
    """By how much loops are open at worst."""
    if not problem.system.bilateral_constraints:
        return 0.0
    rows = jax.vmap(lambda t, q, v: uk.constraint_rows(problem.system, t, q, v).position_error)
    return float(np.abs(rows(*map(jnp.asarray, (found.t, found.q, found.v)))).max())


def ukjax_solver(task: Task, make: Callable[[], tuple[Any, Any, Any]], **options: Any) -> Any:
    problem, inputs, end = make()
    cost = effort(task.effort)
    bounds = {"u": (-task.most, task.most)} if np.isfinite(task.most) else {}

    def solve(tolerance: float, most: int) -> Solved:
        begun = time.process_time()
        found = uk.plan(
            problem, cost, inputs=inputs, t1=task.T, steps=task.steps, end_cost=end, bounds=bounds,
            u=np.array(task.first), solver=dfx.Midpoint(), tolerance=tolerance, iterations=most, **options,
        )  # fmt: skip
        seconds = time.process_time() - begun
        return Solved(
            found.cost, found.iterations, seconds, opening(problem, found), found.stopped == "converged"
        )

    return solve


ROBOTS = {"gripper": gripper, "Cassie's jump": cassie}
TASKS = {
    "cart-pole": (CART_POLE, {"ukjax": cart_pole, "ukjax, pole as a row": rod_pole}),
    "six-hinge arm": (ARM, {"ukjax": arm}),
    "four-bar": (FOUR_BAR, {"ukjax": four_bar}),
}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=[*TASKS, *ROBOTS], help="one of the tasks")
    parser.add_argument("--most", type=int, default=500, help="iterations after which a search is stopped")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    print(f"{machine()}\n")
    print(
        "| task | by | cost | iterations | ms an iteration | ms to the end | first result, s | loop open by |"
    )
    print("|---|---|---|---|---|---|---|---|")
    with pinned(1):
        for name in (options.only,) if options.only else (*TASKS, *ROBOTS):
            measure(
                name,
                solvers_of(*TASKS[name]) if name in TASKS else solvers_of_robot(ROBOTS[name]()),
                options.rounds,
                options.most,
            )


def solvers_of_robot(task: RobotTask) -> dict[str, Callable[[], Any]]:
    robot = uk.load(task.spec, contact=[(x, "floor") for x in task.points] or None)
    u = holding_inputs(task, robot) if task.points else np.zeros(len(task.driven))
    q0 = np.asarray(robot.state_to_mujoco(robot.problem.q0, robot.problem.v0)[0])
    return {
        "ukjax": lambda: robot_solver(task, robot, u),
        "Crocoddyl": lambda: crocoddyl_robot_solver(task, q0, u),
    }


def holding_inputs(task: RobotTask, robot: Any) -> np.ndarray:
    """Moments that hold a robot with its feet on the floor."""
    problem = robot.problem
    system, state = problem.system, (jnp.asarray(0.0), jnp.asarray(problem.q0), jnp.asarray(problem.v0))
    names = robot.mechanism.velocity_labels
    moments = np.eye(len(names))[:, [names.index(x) for x in task.driven]]
    rows = [
        uk.constraint_rows(system, *state).A,
        jax.jacfwd(lambda v: contact_velocities(system, *state[:2], v))(state[2]),
    ]
    all_forces = np.concatenate([moments, *(np.asarray(x).T for x in rows)], axis=1)
    return np.linalg.lstsq(all_forces, -np.asarray(system.force(*state)), rcond=None)[0][: len(task.driven)]


def contact_velocities(system: Any, t: Any, q: Any, v: Any) -> Any:
    c = next(x for x in system.constraints if isinstance(x, uk.Unilateral))
    rate = jax.jvp(lambda q: c.gaps(t, q), (q,), (system.kinematics(t, q, v),))[1]
    return jnp.concatenate([rate, jnp.ravel(c.slip(t, q, v))])


def solvers_of(task: Task, ours: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    makers: dict[str, Callable[[], Any]] = {
        by: lambda make=make: ukjax_solver(task, make) for by, make in ours.items()
    }
    makers |= {f"{by}, second order": lambda make=make: ukjax_solver(task, make, second_order=True)
               for by, make in ours.items()}  # fmt: skip
    makers["Crocoddyl"] = lambda: crocoddyl_solver(task)
    if len(task.chain) <= 3:
        makers["CasADi, IPOPT"] = lambda: casadi_solver(task)
    return makers


def measure(name: str, makers: dict[str, Callable[[], Any]], rounds: int, most: int) -> None:
    solvers, first = {}, {}
    for by, make in makers.items():
        begun = time.process_time()
        try:
            solvers[by] = make()
        except ImportError:
            continue
        solvers[by](TOLERANCE, most)
        first[by] = time.process_time() - begun
    found: dict[str, list[Solved]] = {by: [] for by in solvers}
    for _ in range(rounds):
        for by, solve in solvers.items():
            found[by].append(solve(TOLERANCE, most))
    for by, runs in found.items():
        ms, one = 1e3 * float(np.median([x.seconds for x in runs])), runs[0]
        count = f"{one.iterations}" if one.done else f"{one.iterations}, not done"
        off = f"{one.off:.0e} m" if one.off else ""
        print(
            f"| {name} | {by} | {one.cost:.6g} | {count} | {ms / max(one.iterations, 1):.3f} | {ms:.1f} | "
            f"{first[by]:.2f} | {off} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
