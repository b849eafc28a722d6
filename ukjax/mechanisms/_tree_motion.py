"""How a kinematic tree moves: product of exponentials, velocities, and the terms of Newton and Euler.

Every joint is a chain of elements, each of one twist (Xu-Liu 2017, eq. (15)) or one ball. A frame is the motion
away from the reference posture, so the frame behind an element is that before it times its exponential,

    g = e^(hat(xi_1) q_1) ... e^(hat(xi_i) q_i),

and it carries every point and axis that was given in the reference posture. One velocity v_k turns all that
lies behind it about an axis: with its direction w_k, its slide s_k and a point p_k of it, all in the world and
carried along, a point c behind it moves with s_k + w_k x (c - p_k), and the body turns with w_k. Sums over the
path of a body, or over what a joint carries, are products with constant matrices of zeros and ones.
"""

from typing import Literal, NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._misc._lie import exp_twist, quaternion_rate, rigid_motion, rotation_matrix
from .._misc._types import Coordinates, Velocities


class Element(NamedTuple):
    """One factor of the product of exponentials.

    - `kind`: `"twist"`, one coordinate, or `"ball"`, a quaternion and three angular velocities.
    - `before`: the frame it starts from; 0 is the ground, i + 1 the frame behind element i.
    - `q`, `v`: where its coordinates and its velocities start.
    """

    kind: Literal["twist", "ball"]
    before: int
    q: int
    v: int


class Layout(NamedTuple):
    """What hangs on what: elements from the ground outwards, and the frame of each body."""

    elements: tuple[Element, ...]
    frames: tuple[int, ...]

    @property
    def nv(self) -> int:
        """The number of velocities."""
        return sum(3 if element.kind == "ball" else 1 for element in self.elements)

    def reach(self) -> Bool[np.ndarray, "frames n"]:
        """Whether velocity k moves frame f."""
        rows = [np.zeros(self.nv, bool)]
        for kind, before, _, v in self.elements:
            rows.append(rows[before].copy())
            rows[-1][v : v + (3 if kind == "ball" else 1)] = True
        return np.stack(rows)

    def carriers(self) -> list[int]:
        """The frame that carries the axis of each velocity: a ball's axes turn with what is behind it."""
        carrier = {}
        for i, (kind, before, _, v) in enumerate(self.elements):
            carrier |= dict.fromkeys(range(v, v + 3), i + 1) if kind == "ball" else {v: before}
        return [carrier[k] for k in range(len(carrier))]


@final
class Axes(eqx.Module):
    """The axes of all velocities: directions `turn` [1], slides `slide` [m/rad or 1], points `point` [m] (n, 3)."""

    turn: Float[Array, "n 3"]
    slide: Float[Array, "n 3"]
    point: Float[Array, "n 3"]

    def twists(self) -> Float[Array, "n 6"]:
        """xi = (s - w x p, w), linear part first (Xu-Liu 2017, below eq. (15))."""
        return jnp.concatenate([self.slide - jnp.cross(self.turn, self.point), self.turn], axis=1)


def ball(quaternion: Float[Array, "4"], centre: Float[Array, "3"]) -> Float[Array, "4 4"]:
    """The motion of a ball joint: turned about its centre."""
    R = rotation_matrix(quaternion)
    return rigid_motion(R, centre - R @ centre)


@final
class Posture(eqx.Module):
    """A tree at one q: bodies' rotations from the reference posture and centres [m], axes in the world."""

    rotation: Float[Array, "bodies 3 3"]
    centre: Float[Array, "bodies 3"]
    axes: Axes


@final
class Chains(eqx.Module):
    """The bodies of a tree in the reference posture and what they hang on, as arrays."""

    layout: Layout = eqx.field(static=True)
    axes: Axes
    mass: Float[Array, " bodies"]
    centre: Float[Array, "bodies 3"]
    inertia: Float[Array, "bodies 3 3"]

    def moves(self, dtype: jnp.dtype) -> Float[Array, "bodies n"]:
        """1 where velocity k moves body i, else 0."""
        return jnp.asarray(self.layout.reach()[list(self.layout.frames)], dtype)

    def carried(self, dtype: jnp.dtype) -> Float[Array, "n n"]:
        """1 where velocity j moves the axis of velocity k, else 0."""
        return jnp.asarray(self.layout.reach()[self.layout.carriers()], dtype)

    def frames(self, q: Coordinates) -> Float[Array, "frames 4 4"]:
        """The products of exponentials (Xu-Liu 2017, eqs. (15) and (37)), the ground's first."""
        twists = self.axes.twists()
        single = [e for e in self.layout.elements if e.kind == "twist"]
        k, i = (np.array([getattr(e, x) for e in single], int) for x in ("v", "q"))
        motions = dict(zip(single, jax.vmap(exp_twist)(twists[k], q[i]), strict=True)) if single else {}
        frames = [jnp.eye(4, dtype=q.dtype)]
        for e in self.layout.elements:
            motion = motions[e] if e.kind == "twist" else ball(q[e.q : e.q + 4], self.axes.point[e.v])
            frames.append(frames[e.before] @ motion)
        return jnp.stack(frames)

    def posture(self, q: Coordinates) -> Posture:
        """Where bodies and axes are at q."""
        frames = self.frames(q)
        of_body = frames[np.array(self.layout.frames)]
        of_axis = frames[np.array(self.layout.carriers(), int)]
        R, p = of_axis[:, :3, :3], of_axis[:, :3, 3]
        turn, slide, point = (
            jnp.einsum("kab,kb->ka", R, x) for x in (self.axes.turn, self.axes.slide, self.axes.point)
        )
        centre = jnp.einsum("iab,ib->ia", of_body[:, :3, :3], self.centre)
        return Posture(of_body[:, :3, :3], centre + of_body[:, :3, 3], Axes(turn, slide, point + p))

    def angles(self, q: Coordinates) -> Float[Array, " bodies"]:
        """By how much bodies in the plane have turned: the sum of the angles before them."""
        return self.moves(q.dtype) @ (self.axes.turn[:, 2] * q)

    def rate(self, q: Coordinates, v: Velocities) -> Coordinates:
        """q' = N(q) v: the velocities themselves, and half a quaternion product for a ball."""
        parts = [
            (i, v[k : k + 1] if kind == "twist" else quaternion_rate(q[i : i + 4], v[k : k + 3]))
            for kind, _, i, k in self.layout.elements
        ]
        return jnp.concatenate([part for _, part in sorted(parts, key=lambda x: x[0])])
