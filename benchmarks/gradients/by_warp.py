"""Warp, by its tape. WARP_PYTHON names an interpreter with `warp-lang<1.10`, the last with a simulator.

Balls are bodies, and the integrators its own: semi-implicit with springs of 1e5 N/m per kg as contacts, whose damping
gives the restitution, and XPBD with its restitution, whose gradients are zero already in free flight: it copies states,
and the tape writes the gradients of copies over those of what was copied. Warp computes in float32.
"""

import math

import numpy as np
import tasks
import warp as wp
import warp.sim
from tasks import STEPS, STIFFNESS

wp.config.quiet = True


@wp.kernel
def place_balls(
    q: wp.array(dtype=wp.vec3),
    v: wp.array(dtype=wp.vec3),
    x: wp.array(dtype=wp.transform),
    u: wp.array(dtype=wp.spatial_vector),
):
    i = wp.tid()
    x[i] = wp.transform(q[i], wp.quat_identity())
    u[i] = wp.spatial_vector(wp.vec3(), v[i])


@wp.kernel
def push(force: wp.vec3, f: wp.array(dtype=wp.spatial_vector)):
    f[0] = wp.spatial_vector(wp.vec3(), force)


@wp.kernel
def read(x: wp.array(dtype=wp.transform), ball: int, axis: int, found: wp.array(dtype=float)):
    found[0] = wp.transform_get_translation(x[ball])[axis]


def damping(e):
    """Of a contact of 1 kg: it acts while bodies approach only, so over an angle acos(ratio) of the oscillation."""
    low, high = 0.0, 1.0
    for _ in range(40):
        ratio = (low + high) / 2
        kept = math.exp(-ratio * math.acos(ratio) / math.sqrt(1 - ratio**2))
        low, high = (ratio, high) if kept > e else (low, ratio)
    return 2 * low * math.sqrt(STIFFNESS)


def build(balls):
    builder = wp.sim.ModelBuilder(up_vector=(0.0, 1.0, 0.0), gravity=-balls.gravity)
    contact = {"ke": STIFFNESS, "kd": damping(balls.e), "kf": 0.0, "mu": 0.0, "restitution": balls.e}
    for _ in range(balls.number):
        body = builder.add_body(m=1.0, I_m=wp.mat33(np.eye(3, dtype=np.float32)))
        builder.add_shape_sphere(body, radius=balls.radius, density=0.0, **contact)
    if balls.wall is not None:
        builder.add_shape_box(-1, pos=(balls.wall + 5, 0, 0), hx=5.0, hy=5.0, hz=5.0, density=0.0, **contact)
    if balls.floor:
        builder.set_ground_plane(**contact)
    model = builder.finalize("cpu", requires_grad=True)
    model.ground = balls.floor
    return model


def jacobian(integrator):
    def of(task):
        balls = task.balls
        model = build(balls)
        start = np.array(balls.start).reshape(2, balls.number, 2)
        start = np.concatenate([start, np.zeros((2, balls.number, 1))], axis=2).astype(np.float32)

        def compute(end):
            q, v = (wp.array(x, dtype=wp.vec3, requires_grad=True) for x in start)
            found = [wp.zeros(1, dtype=float, requires_grad=True) for _ in range(2 * balls.number)]
            tape = wp.Tape()
            with tape:
                state = model.state()
                wp.launch(place_balls, balls.number, [q, v], [state.body_q, state.body_qd])
                for _ in range(round(end * STEPS)):
                    state.clear_forces()
                    if any(balls.force):
                        wp.launch(push, 1, [wp.vec3(*balls.force, 0.0)], [state.body_f])
                    wp.sim.collide(model, state)
                    after = model.state()
                    integrator.simulate(model, state, after, 1 / STEPS)
                    state = after
                for i, x in enumerate(found):
                    wp.launch(read, 1, [state.body_q, i // 2, i % 2], [x])
            rows = []
            for x in found:
                tape.backward(x)
                rows.append(np.concatenate([y.grad.numpy()[:, :2].ravel() for y in (q, v)]))
                tape.zero()
            return np.array(rows, float)

        return compute

    return of


TASKS = [x for x in tasks.TASKS if x.startswith(("impact", "resting"))]
ENGINES = {
    "Warp, semi-implicit": jacobian(wp.sim.SemiImplicitIntegrator(angular_damping=0.0)),
    "Warp, XPBD": jacobian(wp.sim.XPBDIntegrator(enable_restitution=True)),
}
