"""A planar four-bar linkage of uniform rods, in the Cartesian coordinates of its two moving pins B and C.

A rod of mass m between two points has in their coordinates the constant mass matrix m/6 [[2, 1], [1, 2]], and half its
weight at each: exact, without angles. The ground pins are A = (0, 0) and D = (ground, 0); q = (x_B, y_B, x_C, y_C).
`identify.py`, `neural_force.py` and `clearance_posterior.py` share it.
"""

from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import ukjax as uk

NAMES = ("ground", "crank", "coupler", "rocker")
LENGTHS = (1.0, 0.4, 0.9, 0.7)  # [m]: the crank can turn around
DENSITY = 2.0  # of the rods [kg/m]
GRAVITY = 9.81
TRACER = (0.45, 0.25)  # of the tracing point [m], along the coupler from B and across it


def posture(lengths: jax.Array, angle: jax.Array) -> jax.Array:
    """q with the crank at `angle` [rad], the rocker on the upper side of the line from B to D."""
    ground, crank, coupler, rocker = lengths
    B = crank * jnp.stack([jnp.cos(angle), jnp.sin(angle)])
    across = jnp.stack([ground, jnp.zeros_like(ground)]) - B
    squared = jnp.sum(across**2)
    along = (squared + coupler**2 - rocker**2) / (2.0 * squared)
    height = jnp.sqrt(coupler**2 / squared - along**2)
    C = B + along * across + height * jnp.stack([-across[1], across[0]])
    return jnp.concatenate([B, C])


@final
class FourBar(uk.AbstractSystem):
    """The linkage under gravity; where `rate` is given, its crank turns at that rate from `angle`.

    - `lengths`: of ground, crank, coupler and rocker [m] (4,).
    - `angle`: of the crank at the start [rad].
    - `rate`: of the crank, where it is driven [rad/s].
    """

    lengths: jax.Array
    angle: jax.Array | float = 1.2
    rate: float | None = eqx.field(static=True, default=None)

    def mass_matrix(self, t, q):
        crank, coupler, rocker = DENSITY * self.lengths[1:]
        pins = jnp.stack([2 * (crank + coupler), coupler, coupler, 2 * (coupler + rocker)]).reshape(2, 2)
        return jnp.kron(pins / 6.0, jnp.eye(2))

    def force(self, t, q, v):
        crank, coupler, rocker = DENSITY * self.lengths[1:]
        o = jnp.zeros_like(crank)
        return -0.5 * GRAVITY * jnp.stack([o, crank + coupler, o, coupler + rocker])

    def energy(self, t, q, v):
        return 0.5 * jnp.dot(v, self.mass_matrix(t, q) @ v) - jnp.dot(self.force(t, q, v), q)

    def crank(self, t, q):
        """The crank's length, or, where it is driven, its end."""
        if self.rate is None:
            return jnp.sqrt(jnp.sum(q[:2] ** 2)) - self.lengths[1]
        turned = self.angle + self.rate * t
        return q[:2] - self.lengths[1] * jnp.stack([jnp.cos(turned), jnp.sin(turned)])

    def coupler(self, t, q):
        return jnp.sqrt(jnp.sum((q[2:] - q[:2]) ** 2)) - self.lengths[2]

    def rocker(self, t, q):
        return jnp.sqrt((q[2] - self.lengths[0]) ** 2 + q[3] ** 2) - self.lengths[3]

    @property
    def constraints(self):
        rows = {"crank": self.crank, "coupler": self.coupler, "rocker": self.rocker}
        return tuple(uk.Holonomic(row, name=name) for name, row in rows.items())

    def start(self, rate: float = 0.0) -> tuple[jax.Array, jax.Array]:
        """Consistent q and v with the crank at `angle`, turning at `rate` [rad/s] if it is not driven."""
        rate = rate if self.rate is None else self.rate
        at = lambda angle: posture(self.lengths, angle)
        return jax.jvp(at, (jnp.asarray(self.angle),), (jnp.asarray(rate),))


def tracer(q: jax.Array) -> jax.Array:
    """Where the tracing point is [m] (..., 2)."""
    B, C = q[..., :2], q[..., 2:]
    along = (C - B) / jnp.linalg.norm(C - B, axis=-1, keepdims=True)
    across = jnp.stack([-along[..., 1], along[..., 0]], axis=-1)
    return B + TRACER[0] * along + TRACER[1] * across


def angles(q: jax.Array, ground: jax.Array) -> jax.Array:
    """The angles of coupler and rocker [rad] (..., 2)."""
    coupler, rocker = q[..., 2:] - q[..., :2], q[..., 2:] - jnp.stack([ground, jnp.zeros_like(ground)])
    return jnp.stack([jnp.arctan2(x[..., 1], x[..., 0]) for x in (coupler, rocker)], axis=-1)


def outline(q: np.ndarray, ground: float) -> np.ndarray:
    """A, B, C and D, to draw the linkage (4, 2)."""
    return np.array([[0.0, 0.0], q[:2], q[2:], [ground, 0.0]])
