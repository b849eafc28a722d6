"""The overconstrained parallelogram of de Falco, Pennestri and Vita (2008): 12 rows of rank 11."""

import math
from typing import final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._misc._types import Coordinates, Forces, MassMatrix, Time, Velocities
from .._system._constraint import AbstractConstraint, Holonomic
from .._system._problem import Problem
from .._system._system import AbstractSystem
from ._parameters import (
    Scalar,
    as_parameter,
    check_choice,
    check_finite,
    check_not_negative,
    check_positive,
    evaluate_start,
)
from ._planar import PLANAR_UNITS, GroundPin, Pin, find_body_point, planar_labels

_CITATION = (
    "D. de Falco, E. Pennestri and L. Vita, Investigation of the influence of pseudoinverse matrix "
    "calculations on multibody dynamics simulations by means of the Udwadia-Kalaba formulation, "
    "Journal of Aerospace Engineering 22(4), 2009, Figure 1."
)
_STARTS = {"rest": (math.pi / 3.0, 0.0), "spinning": (math.pi / 2.0, 1.0)}
_COUPLER = 3


@final
class Parallelogram(AbstractSystem):
    """Links 1 to 3 and a coupler in absolute coordinates (x, y, theta) of their centres, y up.

    Each link joins a ground pin to the coupler: at its one end, middle and other end, A, B, C.
    """

    length: Array = eqx.field(converter=as_parameter)
    mass: Array = eqx.field(converter=as_parameter)
    inertia: Array = eqx.field(converter=as_parameter)
    coupler_length: Array = eqx.field(converter=as_parameter)
    coupler_mass: Array = eqx.field(converter=as_parameter)
    coupler_inertia: Array = eqx.field(converter=as_parameter)
    gravity: Array = eqx.field(converter=as_parameter)

    @property
    def labels(self) -> tuple[str, ...]:
        return planar_labels("link 1", "link 2", "link 3", "coupler")

    @property
    def units(self) -> tuple[str, ...]:
        return PLANAR_UNITS * 4

    def _masses(self) -> Float[Array, "12"]:
        link = [self.mass, self.mass, self.inertia]
        return jnp.stack([*link, *link, *link, self.coupler_mass, self.coupler_mass, self.coupler_inertia])

    def mass_matrix(self, t: Time, q: Coordinates) -> MassMatrix:
        return jnp.diag(self._masses()).astype(q.dtype)

    def force(self, t: Time, q: Coordinates, v: Velocities) -> Forces:
        o, weight = jnp.zeros_like(self.mass), -self.mass * self.gravity
        return jnp.stack([*[o, weight, o] * 3, o, -self.coupler_mass * self.gravity, o]).astype(q.dtype)

    def energy(self, t: Time, q: Coordinates, v: Velocities) -> Float[Array, ""]:
        height = self.mass * (q[1] + q[4] + q[7]) + self.coupler_mass * q[10]
        return 0.5 * jnp.dot(self._masses() * v, v) + self.gravity * height

    @property
    def constraints(self) -> tuple[AbstractConstraint, ...]:
        """Six revolute joints, two rows each."""
        end, half = 0.5 * self.length, 0.5 * self.coupler_length
        o = jnp.zeros_like(half)
        ground = [
            Holonomic(GroundPin(-end, jnp.stack([i * half, o]), i), name=f"ground pin {i + 1}")
            for i in range(3)
        ]
        coupler = [
            Holonomic(Pin(end, (i - 1) * half, i, _COUPLER), name=f"coupler pin {'ABC'[i]}") for i in range(3)
        ]
        return (*ground, *coupler)

    def points(self, t: Time, q: Coordinates) -> dict[str, Array]:
        """The upper pins, as points of the links."""
        return {name: find_body_point(q, i, 0.5 * self.length) for i, name in enumerate("ABC")}

    def drawing(self, t: Time, q: Coordinates) -> dict[str, Array]:
        """The links from their ground pins to the coupler, and the coupler."""
        ends = (-0.5 * self.length, 0.5 * self.length)
        links = {f"link {i + 1}": jnp.stack([find_body_point(q, i, end) for end in ends]) for i in range(3)}
        half = 0.5 * self.coupler_length
        return links | {
            "coupler": jnp.stack([find_body_point(q, _COUPLER, x) for x in (-half, 0.0 * half, half)])
        }

    def state(self, angle: Scalar, rate: Scalar) -> tuple[Coordinates, Velocities]:
        """q and v of the parallelogram branch, all links at `angle` [rad] from the horizontal."""
        c, s = self.length * jnp.cos(angle), self.length * jnp.sin(angle)
        half = 0.5 * self.coupler_length
        q, v = [], []
        for i in range(3):
            q += [i * half + 0.5 * c, 0.5 * s, angle]
            v += [-0.5 * s * rate, 0.5 * c * rate, rate]
        return jnp.asarray([*q, half + c, s, 0.0]), jnp.asarray([*v, -s * rate, c * rate, 0.0])


def parallelogram(
    *,
    length: Scalar = 1.0,
    mass: Scalar = 1.0,
    inertia: Scalar = 0.1,
    coupler_length: Scalar = 2.0,
    coupler_mass: Scalar = 2.0,
    coupler_inertia: Scalar = 0.2,
    gravity: Scalar = 9.81,
    start: str = "rest",
    angle: Scalar | None = None,
    rate: Scalar | None = None,
) -> Problem:
    """Three parallel links and a coupler, one degree of freedom (DPV 2008, Fig. 1).

    Twelve rows of rank eleven. It passes flat positions, where the rank drops to ten and other
    branches meet.

    **Arguments:**

    - `length`, `mass`, `inertia`: of each link [m], [kg], [kg m^2] about its middle.
    - `coupler_length`, `coupler_mass`, `coupler_inertia`: of the coupler, likewise; its pins are
      half its length apart. It may be massless, which needs a formula for singular mass matrices.
    - `gravity`: along -y [m/s^2].
    - `start`: `"rest"` (60 deg from the horizontal, at rest) or `"spinning"` (90 deg, 1 rad/s).
    - `angle`: of the links from the horizontal at the start [rad], instead of that of `start`.
    - `rate`: of the links at the start [rad/s], instead of that of `start`.

    **Returns:** the `Problem`; points: the upper pins `A`, `B`, `C`.

    **Raises:** `InputError`, naming the parameter that is wrong.
    """
    check_positive(length=length, mass=mass, inertia=inertia, coupler_length=coupler_length)
    check_not_negative(coupler_mass=coupler_mass, coupler_inertia=coupler_inertia)
    check_choice(_STARTS, start=start)
    angle = _STARTS[start][0] if angle is None else angle
    rate = _STARTS[start][1] if rate is None else rate
    check_finite(gravity=gravity, angle=angle, rate=rate)
    system = Parallelogram(length, mass, inertia, coupler_length, coupler_mass, coupler_inertia, gravity)
    q0, v0 = evaluate_start(Parallelogram.state, system, angle, rate)
    return Problem(system, q0, v0, 0.0, 20.0, system.points, citation=_CITATION, name="parallelogram")
