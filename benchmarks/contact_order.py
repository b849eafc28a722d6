"""The order of time steps with contacts: errors in the mean over 200 times, beside event by event at tolerances of 1e-11.

The tests hold event by event to closed forms and SciPy on these problems: a ball that bounces until it rests, a block
that slides to its stop, one that sticks and slips as it is pulled, a sphere that slides until it rolls, and a double
pendulum whose tip strikes a wall. An impact's error goes with its place within a step, so each error is the mean of four
runs, of up to a fifth more steps.
"""

import argparse
import platform

import _one_thread  # noqa: F401
import jax
import jax.numpy as jnp
import numpy as np

import ukjax as uk

jax.config.update("jax_enable_x64", True)
G, STEPS, MORE, TIMES = 9.81, (256, 512, 1024, 2048, 4096), (1.0, 1.07, 1.13, 1.19), 200


def ball():
    """System, q and v at the start, and the time at the end."""
    floor = uk.Unilateral(lambda t, q: q[0], restitution=0.5, name="floor")
    return uk.System(jnp.eye(1), jnp.array([-G]), [floor]), [1.0], [0.0], 2.0


def block(force):
    floor = uk.Unilateral(lambda t, q: q[1], friction=0.4, slip=lambda t, q, v: v[0], name="floor")
    return uk.System(jnp.eye(2), lambda t, q, v: jnp.stack([force(t), jnp.asarray(-G)]), [floor])


def sphere():
    r, mu = 0.11, 0.2
    down = jnp.array([0, 0, -r])
    slip = lambda t, q, v: (v[:3] + jnp.cross(v[3:], down))[:2]
    floor = uk.Unilateral(lambda t, q: q[2] - r, friction=mu, slip=slip, name="floor")
    M, force = jnp.diag(jnp.array([1.0] * 3 + [0.4 * r**2] * 3)), jnp.array([0, 0, -G, 0, 0, 0])
    system = uk.System(M, force, [floor], kinematics=lambda t, q, v: v[:3])
    return system, [0, 0, r], [3.0, 0.5, 0, -25.0, -10.0, 7.0], 2.0


def double_pendulum():
    m1, m2, l1, l2 = 1.0, 0.7, 1.0, 0.8

    def M(t, q):
        c = m2 * l1 * l2 * jnp.cos(q[0] - q[1])
        return jnp.array([[(m1 + m2) * l1**2, c], [c, m2 * l2**2]])

    def force(t, q, v):
        s = m2 * l1 * l2 * jnp.sin(q[0] - q[1])
        weight = jnp.array([(m1 + m2) * l1, m2 * l2]) * G * jnp.sin(q)
        return s * jnp.array([-(v[1] ** 2), v[0] ** 2]) - weight

    gap = lambda t, q: 0.6 - l1 * jnp.sin(q[0]) - l2 * jnp.sin(q[1])
    return uk.System(M, force, [uk.Unilateral(gap, restitution=0.5, name="wall")]), [-0.8, -0.5], [0, 0], 2.0


PROBLEMS = {
    "a ball bounces until it rests, e = 0.5": ball(),
    "a block slides to its stop": (block(lambda t: 0.0 * t), [0, 0], [3.0, 0], 2.0),
    "a block sticks and slips": (block(lambda t: 6 * jnp.sin(3 * t)), [0, 0], [0, 0], 5.0),
    "a sphere slides until it rolls": sphere(),
    "a double pendulum strikes a wall, e = 0.5": double_pendulum(),
}


def main():
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    chosen = parser.parse_args().only
    print(f"{platform.machine()}, jax {jax.__version__}, float64\n")
    print("| |", " | ".join(f"{n} steps" for n in STEPS), "| order |")
    print("|---|" + "---|" * (len(STEPS) + 1))
    for name in chosen:
        system, q, v, end = PROBLEMS[name]
        q, v = (jnp.asarray(x, float) for x in (q, v))
        ts = np.linspace(0, end, TIMES + 1)[1:]
        right = uk.simulate(system, q, v, t1=end, ts=ts, rtol=1e-11, atol=1e-11).q
        errors = []
        for n in STEPS:
            given = {"t1": end, "ts": ts, "contact": "steps"}
            runs = [uk.simulate(system, q, v, dt0=end / round(x * n), **given).q for x in MORE]
            errors.append(float(np.mean(np.max(np.abs(np.stack(runs) - right), axis=2))))
        order = -np.polyfit(np.log(STEPS), np.log(errors), 1)[0]
        print(f"| {name} |", " | ".join(f"{x:.0e}" for x in errors), f"| {order:.2f} |", flush=True)


if __name__ == "__main__":
    main()
