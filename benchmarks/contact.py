"""A box that falls and tumbles on a plane, with contacts at four of its corners, beside MuJoCo at its defaults.

Times are of one core, a step and member, of 256 starts over 1 s in steps of 2 ms. MuJoCo's contacts are those it finds of
a box on a plane, up to four of eight corners; a member of ours has four corners.
"""

import platform
import time

import _one_thread  # noqa: F401
import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

import ukjax as uk
from ukjax._contact._rows import contact_model, layout_of
from ukjax._contact._stepping import gaps_along, run_time_stepping
from ukjax._formula._acceleration import UdwadiaKalaba
from ukjax._motion._project import Projection
from ukjax._system._constraint import Unilateral

jax.config.update("jax_enable_x64", True)
MEMBERS, STEPS, STEP, GRAVITY, MASS = 256, 500, 0.002, 9.81, 2.0
HALF = np.array([0.3, 0.2, 0.1])
CORNERS = HALF * [[x, y, -1] for x in (-1, 1) for y in (-1, 1)]
INERTIA = MASS / 3 * (HALF @ HALF - HALF**2)


def turned(p):
    """The rotation of a quaternion of any length."""
    w, x, y, z = p
    R = jnp.array(
        [
            [w * w + x * x - y * y - z * z, 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), w * w - x * x + y * y - z * z, 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), w * w - x * x - y * y + z * z],
        ]
    )
    return R / (p @ p)


def box():
    """Position and quaternion, with the velocity and the spin in the body."""
    corners, inertia = jnp.asarray(CORNERS), jnp.asarray(INERTIA)

    def rates(t, q, v):
        w, x, y, z = q[3:]
        return jnp.concatenate(
            [v[:3], 0.5 * jnp.array([[-x, -y, -z], [w, -z, y], [z, w, -x], [-y, x, w]]) @ v[3:]]
        )

    def force(t, q, v):
        return jnp.concatenate([jnp.array([0, 0, -MASS * GRAVITY]), -jnp.cross(v[3:], inertia * v[3:])])

    floor = Unilateral(
        lambda t, q: q[2] + corners @ turned(q[3:])[2],
        friction=0.5,
        slip=lambda t, q, v: v[None, :2] + (jnp.cross(v[None, 3:], corners) @ turned(q[3:]).T)[:, :2],
        name="corner",
    )
    M = jnp.diag(jnp.concatenate([jnp.full(3, MASS), inertia]))
    return uk.System(lambda t, q: M, force, [floor], kinematics=rates)


def starts():
    """Positions and velocities."""
    rng = np.random.default_rng(0)
    q, v = rng.normal(size=(MEMBERS, 7)), rng.normal(size=(MEMBERS, 6)) * [1, 1, 1, 2, 2, 2]
    q[:, :2], q[:, 2] = 0, rng.uniform(0.4, 0.8, MEMBERS)
    q[:, 3:] /= np.linalg.norm(q[:, 3:], axis=1)[:, None]
    return q, v


def ours(q, v):
    """The run of all members, to be called, and the gaps at the end of what it returns."""
    q, v, system = jnp.asarray(q), jnp.asarray(v), box()
    state = jnp.asarray(0.0), q[0], v[0]
    model, _ = contact_model(system, UdwadiaKalaba(), Projection(), dfx.Tsit5(), state, automatic=True)
    layout, coefficients = layout_of(system, *state)
    end = STEPS * STEP
    run = jax.jit(
        jax.vmap(
            lambda q, v: run_time_stepping(
                model, layout, coefficients, (q, v), (0.0, end), STEPS, jnp.array([end])
            )
        )
    )
    gaps = jax.jit(jax.vmap(lambda found: gaps_along(model, layout, (found.t, found.q, found.v), 1)))
    return lambda: jax.block_until_ready(run(q, v)), gaps


MJCF = f"""<mujoco><option timestep="{STEP}"/><worldbody><geom type="plane" size="0 0 1" friction=".5 .005 .0001"/>
<body><freejoint/><geom type="box" size="{" ".join(map(str, HALF))}" mass="{MASS}" friction=".5 .005 .0001"/></body>
</worldbody></mujoco>"""


def mujoco_run(q, v):
    """The same by MuJoCo; returns the deepest penetration at the end [m]."""
    import mujoco

    model = mujoco.MjModel.from_xml_string(MJCF)
    data = mujoco.MjData(model)

    def run():
        deepest = 0.0
        for q0, v0 in zip(q, v, strict=True):
            mujoco.mj_resetData(model, data)
            data.qpos[:], data.qvel[:] = q0, v0
            mujoco.mj_step(model, data, nstep=STEPS)
            deepest = min(deepest, *data.contact.dist, 0.0)
        return deepest

    return run


def main():
    """Prints the table."""
    q, v = starts()
    own, gaps = ours(q, v)
    runs = {"ukjax": own, "MuJoCo": mujoco_run(q, v)}
    found, times = {name: run() for name, run in runs.items()}, {name: [] for name in runs}
    uk.optimize_now()
    for _ in range(5):
        for name, run in runs.items():
            began = time.process_time()
            run()
            times[name].append((time.process_time() - began) / MEMBERS / STEPS * 1e6)
    print(f"{platform.machine()}, jax {jax.__version__}, processor time, median of 5 rounds in turn\n")
    print("| | us a step and member | deepest penetration [m] | residual |\n|---|---|---|---|")
    deepest = min(float(gaps(found["ukjax"]).min()), 0.0)
    print(
        f"| ukjax | {np.median(times['ukjax']):.2f} | {-deepest:.1e} | {float(found['ukjax'].residual.max()):.1e} |"
    )
    print(f"| MuJoCo | {np.median(times['MuJoCo']):.2f} | {-found['MuJoCo']:.1e} | |")


if __name__ == "__main__":
    main()
