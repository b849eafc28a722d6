"""The Jacobians of `contact_gradients.py` by Warp, as JSON; with an interpreter of its own: it needs `warp-lang<1.10`.

Balls are bodies, and the integrators its own: semi-implicit with springs of 1e5 N/m per kg as contacts, whose damping
gives the restitution, and XPBD with its restitution, whose gradients are zero already in free flight: it copies states,
and the tape writes the gradients of copies over those of what was copied. Warp computes in float32.
"""

import json
import math
import sys

import numpy as np
import warp as wp
import warp.sim
from _contact_tasks import STEPS, TASKS

STIFFNESS = 1e5


@wp.kernel
def laid(
    q: wp.array(dtype=wp.vec3),
    v: wp.array(dtype=wp.vec3),
    x: wp.array(dtype=wp.transform),
    u: wp.array(dtype=wp.spatial_vector),
):
    i = wp.tid()
    x[i] = wp.transform(q[i], wp.quat_identity())
    u[i] = wp.spatial_vector(wp.vec3(), v[i])


@wp.kernel
def pushed(force: wp.vec3, f: wp.array(dtype=wp.spatial_vector)):
    f[0] = wp.spatial_vector(wp.vec3(), force)


@wp.kernel
def place(x: wp.array(dtype=wp.transform), ball: int, axis: int, found: wp.array(dtype=float)):
    found[0] = wp.transform_get_translation(x[ball])[axis]


def damping(e):
    """Of a contact of 1 kg: it acts while bodies approach only, so over an angle acos(ratio) of the oscillation."""
    low, high = 0.0, 1.0
    for _ in range(60):
        ratio = (low + high) / 2
        kept = math.exp(-ratio * math.acos(ratio) / math.sqrt(1 - ratio**2))
        low, high = (ratio, high) if kept > e else (low, ratio)
    return 2 * low * math.sqrt(STIFFNESS)


def size(task):
    """The radius of balls; of a point that of a ball larger than what springs give way, which begins as much higher."""
    return task.radius or 0.1


def modelled(task):
    builder = wp.sim.ModelBuilder(up_vector=(0.0, 1.0, 0.0), gravity=-task.gravity)
    contact = {"ke": STIFFNESS, "kd": damping(task.e), "kf": 0.0, "mu": 0.0, "restitution": task.e}
    for _ in range(task.balls):
        body = builder.add_body(m=1.0, I_m=wp.mat33(np.eye(3, dtype=np.float32)))
        builder.add_shape_sphere(body, radius=size(task), density=0.0, **contact)
    if task.wall is not None:
        builder.add_shape_box(-1, pos=(task.wall + 5, 0, 0), hx=5.0, hy=5.0, hz=5.0, density=0.0, **contact)
    if task.floor:
        builder.set_ground_plane(**contact)
    model = builder.finalize("cpu", requires_grad=True)
    model.ground = task.floor
    return model


def jacobian(task, integrator):
    model, h = modelled(task), task.end / STEPS
    start = np.array(task.start, float).reshape(2, task.balls, 2)
    start[0, :, 1] += size(task) - task.radius
    start = np.concatenate([start, np.zeros((2, task.balls, 1))], axis=2)
    q, v = (wp.array(x, dtype=wp.vec3, requires_grad=True) for x in start.astype(np.float32))
    found = [wp.zeros(1, dtype=float, requires_grad=True) for _ in range(2 * task.balls)]
    tape = wp.Tape()
    with tape:
        state = model.state()
        wp.launch(laid, task.balls, [q, v], [state.body_q, state.body_qd])
        for _ in range(STEPS):
            state.clear_forces()
            if any(task.force):
                wp.launch(pushed, 1, [wp.vec3(*task.force, 0.0)], [state.body_f])
            wp.sim.collide(model, state)
            after = model.state()
            integrator.simulate(model, state, after, h)
            state = after
        for i, x in enumerate(found):
            wp.launch(place, 1, [state.body_q, i // 2, i % 2], [x])
    rows = []
    for x in found:
        tape.backward(x)
        rows.append(np.concatenate([y.grad.numpy()[:, :2].ravel() for y in (q, v)]))
        tape.zero()
    return np.array(task.outward([x.numpy()[0] for x in found])) @ np.array(rows, float)


if __name__ == "__main__":
    wp.config.quiet = True
    integrators = {
        "Warp, semi-implicit": wp.sim.SemiImplicitIntegrator(angular_damping=0.0),
        "Warp, XPBD": wp.sim.XPBDIntegrator(enable_restitution=True),
    }
    json.dump(
        {name: [jacobian(task, x).tolist() for task in TASKS] for name, x in integrators.items()}, sys.stdout
    )
