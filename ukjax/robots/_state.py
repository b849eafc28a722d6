"""States of MuJoCo as states of the tree, and back.

Of a hinge or a slide q = qpos - qpos0 and v = qvel. A ball of the tree turns a frame that has the world's axes in the
reference posture, where MuJoCo's body has the axes R0, of quaternion p0; so with the quaternion p of MuJoCo

    ball   q = p0 p p0*,    free   q = p p0*,    both   v = R0 omega,

since MuJoCo's ball counts from the body's own axes, its free joint from those of the world, and both have the angular
velocity in body axes. All of v is linear in qvel, with constant coefficients.
"""

from collections.abc import Callable
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._compiler import evaluate_at_states
from .._misc._lie import quaternion_product, rotation_matrix
from .._misc._types import Coordinates, Velocities, as_jax
from ._bodies import joints_by_kind
from ._reference import Reference


@final
class Conversion(eqx.Module):
    """Between the states of a model and those of its tree, which have the same places."""

    qpos0: Float[Array, " nq"]  # MuJoCo's coordinates in the reference posture (nq,)
    # `balls`: where the coordinates and the velocities of each quaternion start, and whether it is of a free joint.
    balls: tuple[tuple[int, int, bool], ...] = eqx.field(static=True)
    upright: Float[Array, "k 4"]  # p0 of each (k, 4)

    def _places(self, which: int, size: int) -> np.ndarray:
        """Where the coordinates, or else the velocities, of quaternions are (k, size)."""
        return np.array([x[which] for x in self.balls], int)[:, None] + np.arange(size)

    def _turn_each(self, x: Array, others: Array, turn: Callable[[Array, Array, Array], Array]) -> Array:
        """Coordinates whose quaternions are those of x, of length 1, turned by p0 of each; and otherwise others."""
        places, free = self._places(0, 4), jnp.asarray(np.array([x[2] for x in self.balls], bool))
        p = x[places] / jnp.sqrt(jnp.sum(x[places] ** 2, 1, keepdims=True))
        return others.at[places].set(jax.vmap(turn)(p, self.upright.astype(x.dtype), free))

    def _rotate_omegas(self, v: Array, back: bool) -> Array:
        """R0 omega, or R0^T omega, in place of each omega."""
        places = self._places(1, 3)
        R = jax.vmap(rotation_matrix)(self.upright.astype(v.dtype))
        turned = jnp.einsum("kji,kj->ki" if back else "kij,kj->ki", R, v[places])
        return v.at[places].set(turned)

    @eqx.filter_jit
    def velocities(self, qvel: Array) -> Velocities:
        """v of qvel; v' of qacc."""
        return self._rotate_omegas(qvel, back=False)

    @eqx.filter_jit
    def rates(self, v: Velocities) -> Array:
        """qvel of v; qacc of v'."""
        return self._rotate_omegas(v, back=True)

    @eqx.filter_jit
    def coordinates(self, qpos: Array) -> Coordinates:
        """q of qpos; quaternions are brought to length 1."""

        def turn(p: Array, p0: Array, free: Array) -> Array:
            p = quaternion_product(p, conjugate(p0))
            return jnp.where(free, p, quaternion_product(p0, p))

        return self._turn_each(qpos, qpos - self.qpos0.astype(qpos.dtype), turn)

    @eqx.filter_jit
    def positions(self, q: Coordinates) -> Array:
        """qpos of q; quaternions are brought to length 1."""

        def turn(p: Array, p0: Array, free: Array) -> Array:
            p = quaternion_product(p, p0)
            return jnp.where(free, p, quaternion_product(conjugate(p0), p))

        return self._turn_each(q, q + self.qpos0.astype(q.dtype), turn)


def conjugate(p: Float[Array, "4"]) -> Float[Array, "4"]:
    """The inverse of a unit quaternion."""
    return p * jnp.array([1.0, -1.0, -1.0, -1.0], p.dtype)


def rotation_vector(p: Float[Array, "4"]) -> Float[Array, "3"]:
    """The axis of a unit quaternion's rotation times its angle, of at most pi [rad]."""
    p = jnp.where(p[0] < 0, -p, p)
    square = jnp.dot(p[1:], p[1:])
    tiny = square < 1e-12  # there the series below is exact to rounding
    sine = jnp.sqrt(jnp.where(tiny, 1.0, square))
    share = jnp.where(
        tiny, 2.0 / p[0] * (1.0 - square / (3.0 * p[0] ** 2)), 2.0 * jnp.arctan2(sine, p[0]) / sine
    )
    return share * p[1:]


def _convert_state(conversion: Conversion, qpos: Array, qvel: Array) -> tuple[Array, Array]:
    return conversion.coordinates(qpos), conversion.velocities(qvel)


def state_of(conversion: Conversion, qpos: np.ndarray, qvel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """q and v of a state that has values: nothing is compiled."""
    given = (np.array(x, conversion.qpos0.dtype)[None] for x in (qpos, qvel))
    q, v = evaluate_at_states(_convert_state, conversion, *given)
    return q[0], v[0]


def conversion(at: Reference) -> Conversion:
    """Between the states of a model and those of its tree."""
    model, turning = at.model, joints_by_kind(at)
    balls, upright = [], []
    for i in sorted([*turning["free"], *turning["ball"]]):
        free = i in turning["free"]
        ahead = 3 if free else 0  # a free joint has its displacement first
        balls.append((int(model.jnt_qposadr[i]) + ahead, int(model.jnt_dofadr[i]) + ahead, free))
        upright.append(at.data.xquat[model.jnt_bodyid[i]])
    return Conversion(as_jax(np.array(model.qpos0)), tuple(balls), as_jax(np.array(upright).reshape(-1, 4)))
