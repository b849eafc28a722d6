"""Lengths of joints, fixed tendons, and actuators on them: linear in the coordinates, and in the rotations of balls."""

from collections.abc import Sequence
from typing import final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._misc._types import Coordinates, Velocities, as_jax
from ._state import rotation_vector

Term = tuple[int | None, int, float]
"""One joint's part in a length: the number of its coordinate, or None where the length does not know it, the number
of its velocity, and its coefficient."""


@final
class Lengths(eqx.Module):
    """k lengths l = l0 + sum c_i q_i; each has as many terms as the longest, those it lacks with c = 0.

    That of a servo on a ball is c.x of its rotation vector x, whose rate counts as the angular velocity, as in MuJoCo.
    """

    # `coordinates`: the numbers of the coordinates of each; -1 where the length does not know it.
    coordinates: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    velocities: tuple[tuple[int, ...], ...] = eqx.field(static=True)  # the numbers of their velocities
    coefficients: Float[Array, "k terms"]  # c (k, terms)
    reference: Float[Array, " k"]  # l0, in the reference posture (k,)
    # `balls`: where the quaternion of a ball starts, for each length; -1 for none.
    balls: tuple[int, ...] = eqx.field(static=True, default=())

    @classmethod
    def of(
        cls, terms: Sequence[Sequence[Term]], reference: Sequence[float], balls: Sequence[int] = ()
    ) -> "Lengths":
        """From the terms of each."""
        width = max((len(own) for own in terms), default=0)
        filled = [[*own, *[(None, 0, 0.0)] * (width - len(own))] for own in terms]
        number = lambda i: -1 if i is None else i
        return cls(
            tuple(tuple(number(i) for i, _, _ in own) for own in filled),
            tuple(tuple(j for _, j, _ in own) for own in filled),
            as_jax(np.array([[c for _, _, c in own] for own in filled], float).reshape(len(terms), width)),
            as_jax(np.asarray(reference, float)),
            tuple(balls),
        )

    def __len__(self) -> int:
        return len(self.coordinates)

    @property
    def touched(self) -> tuple[int, ...]:
        """The numbers of the velocities of all."""
        return tuple(k for own in self.velocities for k in own)

    def change(self, q: Coordinates) -> Float[Array, " k"]:
        """l - l0."""
        at = np.array(self.coordinates, int).reshape(self.coefficients.shape)
        known = (at >= 0).astype(q.dtype)
        coefficients = self.coefficients.astype(q.dtype)
        found = jnp.sum(known * coefficients * q[np.maximum(at, 0)], axis=1)
        for k, ball in enumerate(self.balls):
            if ball >= 0:
                found = found.at[k].add(jnp.dot(coefficients[k, :3], rotation_vector(q[ball : ball + 4])))
        return found

    def rate(self, v: Velocities) -> Float[Array, " k"]:
        """l'."""
        at = np.array(self.velocities, int).reshape(self.coefficients.shape)
        return jnp.sum(self.coefficients.astype(v.dtype) * v[at], axis=1)

    def __call__(self, q: Coordinates) -> Float[Array, " k"]:
        return self.reference.astype(q.dtype) + self.change(q)


def stack_lengths(several: Sequence[Lengths]) -> Lengths:
    """Several as one."""
    terms = [
        list(zip((None if i < 0 else i for i in q), v, c.tolist(), strict=True))
        for x in several
        for q, v, c in zip(x.coordinates, x.velocities, np.asarray(x.coefficients), strict=True)
    ]
    return Lengths.of(terms, [float(x) for own in several for x in np.asarray(own.reference)])
