"""Drake's linear bushings: springs and dampers between frames of two bodies (`LinearBushingRollPitchYaw` there).

With frames A and C, the displacement x of C from A in axes B halfway between theirs, and the angles of roll, pitch and
yaw of C against A,

    effort = -(k0 q0 + d0 q0', .., kx x + dx x', ..).

Angles have a singularity at a pitch of 90 degrees.
"""

from typing import Any, final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._misc._lie import rotation_matrix, unit_quaternion
from .._misc._types import Time
from ..mechanisms import AbstractLoad
from ..mechanisms._loads import Bodies, Placements, Twists
from ..mechanisms._placement import rate_of


@final
class Bushing(AbstractLoad):
    """A linear bushing."""

    name: str = eqx.field(static=True)
    ends: tuple[str, str] = eqx.field(static=True)  # the bodies of A and of C
    points: Float[Array, "2 3"]  # of the frames, in the reference posture [m]
    axes: Float[Array, "2 3 3"]  # likewise, as columns
    # `stiffness`, `damping`: of roll, pitch and yaw [N m/rad], [N m s/rad], and along x, y and z [N/m], [N s/m].
    stiffness: Float[Array, "6"]
    damping: Float[Array, "6"]

    @property
    def bodies(self) -> tuple[str, ...]:
        return self.ends

    def _measure(self, placements: Placements) -> tuple[Array, Array, Array, Array]:
        """R of A, R of C in A, R of B, and the displacement in the world."""
        ends: Any = [placements[name] for name in self.ends]
        A, C = (p.R @ axes for p, axes in zip(ends, self.axes, strict=True))
        start, end = (p.point(X) for p, X in zip(ends, self.points, strict=True))
        p = unit_quaternion(A.T @ C)
        half = p + jnp.where(p[0] < 0, -1.0, 1.0) * jnp.eye(4, dtype=p.dtype)[0]
        return A, A.T @ C, A @ rotation_matrix(half), end - start

    def rate(self, bodies: Bodies, placements: Placements, twists: Twists) -> Float[Array, "6"]:
        A, relative, B, x = self._measure(placements)
        first, second = (twists[name] for name in self.ends)
        velocity = [
            rate_of(lambda p, X=X: p.point(X), [placements[name]], [twists[name]])
            for name, X in zip(self.ends, self.points, strict=True)
        ]
        halfway = 0.5 * (first.omega + second.omega)
        along = B.T @ (velocity[1] - velocity[0] - jnp.cross(halfway, x))
        _, pitch, yaw = _angles(relative)
        wx, wy, wz = A.T @ (second.omega - first.omega)
        inward, across = jnp.cos(yaw) * wx + jnp.sin(yaw) * wy, jnp.cos(yaw) * wy - jnp.sin(yaw) * wx
        roll_rate = inward / jnp.cos(pitch)
        return jnp.concatenate([jnp.stack([roll_rate, across, wz + jnp.sin(pitch) * roll_rate]), along])

    def effort(self, bodies: Bodies, t: Time, placements: Placements, twists: Twists) -> Float[Array, "6"]:
        _, relative, B, x = self._measure(placements)
        now = jnp.concatenate([_angles(relative), B.T @ x])
        return -self.stiffness * now - self.damping * self.rate(bodies, placements, twists)


def _angles(R: Float[Array, "3 3"]) -> Float[Array, "3"]:
    """Roll, pitch and yaw, about x, then y, then z of the first frame."""
    level = jnp.sqrt(R[0, 0] ** 2 + R[1, 0] ** 2)
    return jnp.stack(
        [jnp.arctan2(R[2, 1], R[2, 2]), jnp.arctan2(-R[2, 0], level), jnp.arctan2(R[1, 0], R[0, 0])]
    )
