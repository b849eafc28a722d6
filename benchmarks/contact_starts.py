"""Time steps from 10,000 random starts: whether any run is lost, or any contact problem left unsolved.

A box on four corners in any attitude, a chain of six rods joined by balls, thrown onto the ground in any shape (twelve
contacts), and Cassie, dropped in any attitude with joints off their home posture by up to 0.1 rad, its loops closed. All
begin with their lowest contact 1 cm above the floor, at random velocities. A run is lost that does not end well by its
own account, or whose end is not finite or a kilometre away. Gaps and loops are those at the end.
"""

import argparse
import platform
import time

import _one_thread  # noqa: F401
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from contact import box
from robot_runs import FILE as CASSIE

import ukjax as uk
import ukjax.mechanisms as um

jax.config.update("jax_enable_x64", True)
STARTS, MEMBERS = 10_000, 250


def unit(rng, *shape):
    """Random unit quaternions."""
    found = rng.normal(size=(*shape, 4))
    return found / np.linalg.norm(found, axis=-1, keepdims=True)


def boxes(rng, count):
    """The system, starts, and steps."""
    q = np.concatenate([np.zeros((count, 3)), unit(rng, count)], axis=1)
    return box(), q, rng.normal(size=(count, 6)) * [1, 1, 1, 5, 5, 5], (2e-3, 500)


def chains(rng, count):
    """The same, of rods of 0.2 m and 0.1 kg, with friction of 0.6 and restitution of 0.3."""
    links, length, radius = 6, 0.2, 0.05
    ends = [((i * length, 0, 0), ((i + 1) * length, 0, 0)) for i in range(links)]
    bodies = [um.rod(f"rod {i}", *x, 0.1, radius) for i, x in enumerate(ends)]
    joints = [um.Free("free", "ground", "rod 0", (0, 0, 0))]
    joints += [um.Spherical(f"ball {i}", f"rod {i - 1}", f"rod {i}", ends[i][0]) for i in range(1, links)]
    floor = um.HalfSpace("ground", (0, 0, 0))
    contacts = [
        um.Contact(floor, um.Capsule(f"rod {i}", *x, radius), friction=0.6, restitution=0.3)
        for i, x in enumerate(ends)
    ]
    system = um.tree(bodies, joints, [um.Gravity()], contacts=contacts)
    q = np.concatenate([np.zeros((count, 3)), unit(rng, count, links).reshape(count, -1)], axis=1)
    return system, q, 3 * rng.normal(size=(count, 3 + 3 * links)), (1e-3, 500)


def cassies(rng, count):
    """The same, of Cassie with two feet and two thighs that touch the floor."""
    spec, plane = mujoco.MjSpec.from_file(str(CASSIE)), mujoco.mjtGeom.mjGEOM_PLANE
    spec.worldbody.add_geom(name="floor", type=plane, size=[0, 0, 1], conaffinity=15, condim=3)
    touching = ("left-foot", "right-foot", "left-hip-pitch", "right-hip-pitch")
    robot = uk.load(spec, contact=[(name, "floor") for name in touching])
    system, labels = robot.mechanism, robot.mechanism.labels
    q = np.tile(np.asarray(robot.problem.q0), (count, 1))
    for i, label in enumerate(labels):
        if i >= 7 and " q" not in label:
            q[:, i] += rng.uniform(-0.1, 0.1, count)
    q[:, 3:7] = unit(rng, count)
    return system, q, 0.5 * rng.normal(size=(count, robot.problem.v0.size)), (1e-3, 300)


def fallen(system, steps):
    """A function of starts: of each member whether it is lost, its deepest gap, its loops, and steps unsolved."""
    h, count = steps
    gaps = [x for x in system.constraints if isinstance(x, uk.Unilateral)]
    lowest = lambda q: jnp.min(jnp.concatenate([jnp.atleast_1d(x.fn(jnp.zeros(()), q)) for x in gaps]))

    def one(q, v):
        q, v = uk.project(system, 0.0, q, v)
        q = q.at[2].add(0.01 - lowest(q))
        run = uk.simulate(system, q, v, t1=h * count, dt0=h, contact="steps", ts=jnp.array([h * count]))
        lost = (run.result != uk.RESULTS.successful) | ~jnp.all(jnp.isfinite(run.q) & (jnp.abs(run.q) < 1e3))
        off = jnp.max(jnp.abs(run.position_error), initial=0)
        return lost, run.contacts.gap.min(), off, run.stats["num_unsolved_steps"]

    return jax.jit(jax.vmap(one))


def main():
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=STARTS)
    parser.add_argument("--only", choices=("box", "chain", "Cassie"))
    given = parser.parse_args()
    print(f"{platform.machine()}, jax {jax.__version__}, float64, one thread\n")
    print("| | starts | steps | lost | deepest [m] | loops [m] | steps unsolved | processor time [s] |")
    print("|---|---|---|---|---|---|---|---|")
    for name, of in {"box": boxes, "chain": chains, "Cassie": cassies}.items():
        if given.only not in (None, name):
            continue
        system, q, v, steps = of(np.random.default_rng(0), given.starts)
        run, began = fallen(system, steps), time.process_time()
        found = [run(*(jnp.asarray(x[i : i + MEMBERS]) for x in (q, v))) for i in range(0, len(q), MEMBERS)]
        lost, gap, off, unsolved = (np.concatenate(x) for x in zip(*found, strict=True))
        print(
            f"| {name} | {len(q):,} | {steps[1]} of {steps[0] * 1e3:g} ms | {int(lost.sum())} "
            f"| {-min(gap.min(), 0):.0e} | {off.max():.0e} | {int(unsolved.sum())} in {int((unsolved > 0).sum())} runs "
            f"| {time.process_time() - began:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
