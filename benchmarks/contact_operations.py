"""Where a time step with contacts goes, of a humanoid that falls and of Cassie dropped, beside MuJoCo's stages.

Scalar operations are counted in the program of a step, and of its motion without impulses, those of a loop once; Newton
steps of contact problems are counted as they run. Times are processor time of one thread: of our whole steps with 256
members, and of MuJoCo's stages, each called again at states of its own fall, and of its steps.
"""

import argparse
import platform
import time

import _one_thread  # noqa: F401
import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from robot_contacts import FILE as HUMANOID
from robot_contacts import TOUCHING
from robot_runs import FILE as CASSIE

import ukjax as uk
from ukjax._contact._bilateral import BilateralMotion
from ukjax._contact._rows import contact_model, layout_of
from ukjax._contact._stepping import contact_step, run_time_stepping
from ukjax._formula._acceleration import UdwadiaKalaba

jax.config.update("jax_enable_x64", True)
STEP, MEMBERS, CALLS = 1e-3, 256, 200
STAGES = (
    "mj_fwdPosition",
    "mj_fwdVelocity",
    "mj_fwdActuation",
    "mj_fwdAcceleration",
    "mj_fwdConstraint",
    "mj_Euler",
)


def humanoid():
    """Its file, which contacts, how high it begins above its start [m], and for how many steps."""
    return mujoco.MjSpec.from_file(str(HUMANOID)), ["limits", *((x, "floor") for x in TOUCHING)], 0.0, 1000


def cassie():
    """The same, on a floor."""
    spec, plane = mujoco.MjSpec.from_file(str(CASSIE)), mujoco.mjtGeom.mjGEOM_PLANE
    spec.worldbody.add_geom(name="floor", type=plane, size=[0, 0, 1], conaffinity=15, condim=3)
    return spec, [("left-foot", "floor"), ("right-foot", "floor")], 0.01, 200


def cassie_and_thighs():
    """The same with eight contacts: those of the capsules at its hips as well."""
    spec, feet, *more = cassie()
    return spec, [*feet, ("left-hip-pitch", "floor"), ("right-hip-pitch", "floor")], *more


def seconds(run, *given):
    """What a call returns, and its processor time, the least of three after the first."""
    found, least = jax.block_until_ready(run(*given)), np.inf
    uk.optimize_now()
    for _ in range(3):
        began = time.process_time()
        jax.block_until_ready(run(*given))
        least = min(least, time.process_time() - began)
    return found, least


def of_ours(system, q0, v, steps):
    """Rows of the table: of stages operations and microseconds; then those of a whole step, and what it solves."""
    t, h = jnp.zeros(()), jnp.asarray(STEP)
    layout, laws = layout_of(system, t, q0, v[0])
    state = t, q0, v[0]
    model, _ = contact_model(
        system, UdwadiaKalaba(), uk.Projection(), dfx.Dopri8(), state, automatic=True, implicit=True
    )

    def one(v):
        start = model.start(t, (q0, v))
        found = run_time_stepping(
            model, layout, laws, start, (0.0, steps * STEP), steps, jnp.array([steps * STEP])
        )
        solved = found.solver_steps, found.residual, found.contacts.closed[-1].sum()
        return found.q[-1], found.v[-1], solved, found.contacts.gap.min()

    (q, v, solved, gap), whole = seconds(jax.jit(jax.vmap(one)), v)
    arrays, rest = eqx.partition(model.ready(), eqx.is_array)

    def without_impulses(arrays, t, q, v, h):
        motion = BilateralMotion(eqx.combine(arrays, rest), (q.size, v.size))
        return motion.step_freely(t, q, v, h)[:-1]

    def with_contacts(arrays, t, q, v, h):
        step = contact_step(eqx.combine(arrays, rest), layout, t, q, v)
        after = step(t, h, step.before(t, q, v), laws, jnp.asarray(False))[0]
        return after.q, after.v

    for function in (without_impulses, with_contacts):
        count = sum(uk.scalarize(function).operations(arrays, t, q[0], v[0], h).values())
        yield function.__name__.replace("_", " "), f"{count:,} operations", np.nan
    if model.system.constraints:
        yield "projection", f"{model.projection.whole.size:,} operations each time", np.nan
    newton, residual, closed = (np.asarray(x) for x in solved)
    told = f"{newton.mean() / steps:.2f} Newton steps, {len(layout.owner)} rows, {closed.mean():.1f} closed at the end"
    yield "whole step", told, whole / steps / MEMBERS * 1e6
    yield "residual, at worst", f"{residual.max():.0e}; gap {float(gap.min()):.0e} m", np.nan


def of_mujoco(model, robot, q0, v, steps):
    """The same of its stages, at states along one fall."""
    model.opt.timestep, model.opt.integrator = STEP, mujoco.mjtIntegrator.mjINT_EULER
    data, spent, rows, iterations = mujoco.MjData(model), np.zeros(len(STAGES)), [], []
    mujoco.mj_step(model, data, nstep=steps)  # what is done once is not counted
    mujoco.mj_resetData(model, data)
    data.qpos[:], data.qvel[:] = robot.state_to_mujoco(q0, v)
    whole, deepest = 0.0, 0.0
    for _ in range(10):
        began = time.process_time()
        mujoco.mj_step(model, data, nstep=steps // 10)
        whole += time.process_time() - began
        deepest = min(deepest, *data.contact.dist, 0.0)
        kept = data.qpos.copy(), data.qvel.copy(), data.qacc_warmstart.copy(), data.time
        mujoco.mj_forward(model, data)
        rows.append(data.nefc)
        iterations.append(data.solver_niter.sum())
        for i, name in enumerate(STAGES):
            stage, began = getattr(mujoco, name), time.process_time()
            for _ in range(CALLS):
                if name == "mj_fwdConstraint":
                    data.qacc_warmstart[:] = kept[2]
                stage(model, data)
            spent[i] += (time.process_time() - began) / CALLS / 10
        data.qpos[:], data.qvel[:], data.qacc_warmstart[:], data.time = kept
    yield from ((name, "", us) for name, us in zip(STAGES, spent * 1e6, strict=True))
    told = f"{np.mean(iterations):.1f} iterations, {np.mean(rows):.0f} rows"
    yield "whole step", told, whole / (steps // 10 * 10) * 1e6
    yield "deepest contact", f"{deepest:.0e} m", np.nan


def main():
    """Prints a table for each robot."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--robot", choices=("humanoid", "cassie", "cassie_and_thighs"), action="append")
    chosen = parser.parse_args().robot or ["humanoid", "cassie", "cassie_and_thighs"]
    print(f"{platform.machine()}, jax {jax.__version__}, MuJoCo {mujoco.__version__}, float64, one thread")
    for name in chosen:
        spec, contact, height, steps = globals()[name]()
        robot, model = uk.load(spec, contact=contact), spec.compile()
        q0 = robot.problem.q0.at[2].add(height)
        v = 0.02 * np.random.default_rng(0).normal(size=(MEMBERS, robot.problem.v0.size))
        print(f"\n| {name} | what | us a step and member |\n|---|---|---|")
        ours, theirs = of_ours(robot.problem.system, q0, v, steps), of_mujoco(model, robot, q0, v[0], steps)
        for who, rows in (("ukjax", ours), ("MuJoCo", theirs)):
            for stage, told, us in rows:
                print(f"| {who}: {stage} | {told} | {'' if np.isnan(us) else f'{us:.2f}'} |")


if __name__ == "__main__":
    main()
