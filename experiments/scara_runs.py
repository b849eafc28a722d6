"""What is measured of the SCARA arm, as functions of its masses and inertias: runs with the tool on a rail, the helix."""

from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from rollout import rollout

import ukjax as uk

MASSES = ("m1", "m2", "m3", "m4", "Iz1", "Iz2", "Iz3", "Iz4")
# Sizes [N m] and rates [rad/s] of the torques on joints 1 to 3, and joint 1 at the start [rad]: six runs, picked from 96
# drawn at random for what they tell together.
DRIVES = np.array(
    [
        [-9.2, -18.5, 0.1, 3.4, 4.6, 4.3, 0.8],
        [23.9, -23.3, 0.1, 9.5, 6.6, 5.0, 1.1],
        [22.4, 23.9, 0.1, 5.8, 6.8, 8.8, 0.7],
        [33.0, 8.6, 0.1, 9.3, 10.8, 4.0, 1.0],
        [31.0, 18.2, 0.1, 10.2, 6.0, 5.4, 0.6],
        [-20.2, 24.0, 0.3, 9.0, 10.6, 9.6, 0.5],
    ]
)


@final
class ArmOnRail(uk.AbstractSystem):
    """The SCARA arm with its tool on a rail along x, its joints driven by known forces."""

    arm: uk.AbstractSystem
    height: jax.Array
    sizes: jax.Array
    rates: jax.Array

    def mass_matrix(self, t, q):
        return self.arm.mass_matrix(t, q)

    def force(self, t, q, v):
        torques = self.sizes * jnp.cos(self.rates * t)
        return self.arm.force(t, q, v) + jnp.append(torques, 4.9 + 0.6 * jnp.cos(3.0 * t))

    def rail(self, t, q):
        return self.arm.tool(q)[1] - self.height

    @property
    def constraints(self):
        return (uk.Holonomic(self.rail),)


def arm_with(parameters: jax.Array) -> uk.AbstractSystem:
    """The arm with these masses and inertias."""
    where = lambda arm: tuple(getattr(arm, name) for name in MASSES)
    return eqx.tree_at(where, uk.models.scara().system, tuple(parameters))


def arm_on_rail(parameters: jax.Array, steps: int) -> jax.Array:
    """Joint positions of all runs of 1.5 s (k, 4)."""
    arm, gains = arm_with(parameters), uk.Baumgarte(20.0, 100.0)

    def run(drive):
        q0 = jnp.stack([drive[6], -2.0 * drive[6], jnp.asarray(0.7), jnp.asarray(0.0)])
        system = ArmOnRail(arm, arm.tool(q0)[1], drive[:3], drive[3:6])
        return rollout(system, q0, jnp.zeros(4), 1.5 / steps, steps, stabilizer=gains)[0]

    return jax.vmap(run)(jnp.asarray(DRIVES)).reshape(-1, 4)


def arm_on_helix(parameters: jax.Array, steps: int) -> jax.Array:
    """Joint forces of 20 s, four turns of the helix (k, 4): the constraint forces of the paper's rows."""
    arm = arm_with(parameters)

    def force(t):
        q, v = jax.jvp(arm.posture, (t,), (jnp.ones_like(t),))
        return uk.UdwadiaKalaba().acceleration(arm, t, q, v).constraint_force

    return jax.vmap(force)(jnp.linspace(0.0, 20.0, 60 * steps))
