"""A point steered by its jerk along a helix: third-order dynamics under a constraint of order zero."""

import math
from typing import final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._misc._types import Coordinates, Time
from .._system._any_order import AnyOrderSystem, OfOrder
from .._system._problem import Problem
from ._parameters import Scalar, as_parameter, check_positive, evaluate_start

_CITATION = (
    "R. M. M. Orsino, Recursive modular modelling methodology for lumped-parameter dynamic systems, "
    "Proceedings of the Royal Society A 473, 2017, section 2 (models of any order)."
)


@final
class JerkPoint(eqx.Module):
    """What steers the point, m r''' = -m rate^2 r' + constraint force, and its path r = (R cos u, R sin u, p u)."""

    radius: Array = eqx.field(converter=as_parameter)
    pitch: Array = eqx.field(converter=as_parameter)
    mass: Array = eqx.field(converter=as_parameter)
    rate: Array = eqx.field(converter=as_parameter)

    def mass_matrix(self, t: Time, r: Array, velocity: Array) -> Float[Array, "3 3"]:
        return (self.mass * jnp.eye(3)).astype(r.dtype)

    def force(self, t: Time, r: Array, velocity: Array, acceleration: Array) -> Float[Array, "3"]:
        return (-self.mass * self.rate**2 * velocity).astype(r.dtype)

    def path(self, t: Time, r: Array) -> Float[Array, "2"]:
        angle = r[2] / self.pitch
        return r[:2] - self.radius * jnp.stack([jnp.cos(angle), jnp.sin(angle)])

    def points(self, t: Time, q: Coordinates) -> dict[str, Array]:
        return {"point": q[:3]}

    def _cruise(self) -> Array:
        """The rate u' it approaches [rad/s]: k u'^2 = rate^2, k the square of the slope's cosine."""
        return self.rate * jnp.sqrt(1.0 + (self.pitch / self.radius) ** 2)

    def orders(self, t: Time) -> Float[Array, "3 3"]:
        """r, r' and r'' of u' = cruise tanh(rate t / sqrt(2)), which solves u''' = k u'^3 - rate^2 u'."""
        w = self.rate / math.sqrt(2.0)
        tanh = jnp.tanh(w * t)
        # ln cosh x without overflow; u, u' and u'' follow.
        u = self._cruise() / w * (jnp.logaddexp(w * t, -w * t) - math.log(2.0))
        du, ddu = self._cruise() * tanh, self._cruise() * w * (1.0 - tanh**2)
        c, s, zero = self.radius * jnp.cos(u), self.radius * jnp.sin(u), jnp.zeros_like(u)
        tangent, inward = jnp.stack([-s, c, self.pitch]), jnp.stack([-c, -s, zero])
        return jnp.stack([jnp.stack([c, s, self.pitch * u]), du * tangent, ddu * tangent + du**2 * inward])

    def reference(self, t: Time) -> Coordinates:
        """The coordinates (r, r') at t."""
        return self.orders(t)[:2].reshape(-1)


def jerk_point(
    *, radius: Scalar = 0.5, pitch: Scalar = 0.2, mass: Scalar = 1.0, rate: Scalar = 1.0
) -> Problem:
    """A point on a helix whose jerk is controlled: third order, 2 rows that are differentiated three times.

    At rest but for an acceleration along the path, it approaches a steady speed, at which the jerk the path asks for
    and the control -rate^2 r' cancel along it. Its system is an `AnyOrderSystem` of order 3: coordinates are r and r',
    velocities r''.

    **Arguments:**

    - `radius`: of the helix [m].
    - `pitch`: its rise per radian [m].
    - `mass`: the force per jerk [kg]; the motion does not depend on it.
    - `rate`: of the control [1/s].

    **Returns:** the `Problem`, with `reference`; points: `point`.

    **Raises:** `InputError`, naming the parameter that is wrong.
    """
    check_positive(radius=radius, pitch=pitch, mass=mass, rate=rate)
    point = JerkPoint(radius, pitch, mass, rate)
    system = AnyOrderSystem(3, point.mass_matrix, point.force, (OfOrder(0, point.path, name="path"),))
    q0, v0 = system.state(evaluate_start(JerkPoint.orders, point, 0.0))
    return Problem(
        system, q0, v0, 0.0, 3.0, point.points, point.reference, citation=_CITATION, name="jerk_point"
    )
