"""A slider-crank whose wrist pin is modelled twice, so that one joint is redundant."""

import math
from typing import final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._misc._types import Coordinates, Forces, MassMatrix, Time, Velocities
from .._system._constraint import AbstractConstraint, Holonomic
from .._system._problem import Problem
from .._system._system import AbstractSystem
from ._parameters import Scalar, as_parameter, check, check_finite, check_positive, evaluate_start
from ._planar import PLANAR_UNITS, GroundPin, Pin, find_body_point, planar_labels

_CITATION = "P. E. Nikravesh, Computer-Aided Analysis of Mechanical Systems, 1988."
_CRANK, _ROD, _SLIDER = range(3)


@final
class SliderCrank(AbstractSystem):
    """Crank, rod and slider in absolute coordinates (x, y, theta), y up.

    Crank and rod are uniform; the crank turns about the origin, the slider moves along y = 0.
    """

    crank_length: Array = eqx.field(converter=as_parameter)
    rod_length: Array = eqx.field(converter=as_parameter)
    crank_mass: Array = eqx.field(converter=as_parameter)
    rod_mass: Array = eqx.field(converter=as_parameter)
    slider_mass: Array = eqx.field(converter=as_parameter)
    slider_inertia: Array = eqx.field(converter=as_parameter)
    gravity: Array = eqx.field(converter=as_parameter)

    @property
    def labels(self) -> tuple[str, ...]:
        return planar_labels("crank", "rod", "slider")

    @property
    def units(self) -> tuple[str, ...]:
        return PLANAR_UNITS * 3

    def _masses(self) -> Float[Array, "9"]:
        crank = [self.crank_mass, self.crank_mass, self.crank_mass * self.crank_length**2 / 12.0]
        rod = [self.rod_mass, self.rod_mass, self.rod_mass * self.rod_length**2 / 12.0]
        return jnp.stack([*crank, *rod, self.slider_mass, self.slider_mass, self.slider_inertia])

    def mass_matrix(self, t: Time, q: Coordinates) -> MassMatrix:
        return jnp.diag(self._masses()).astype(q.dtype)

    def force(self, t: Time, q: Coordinates, v: Velocities) -> Forces:
        o, masses = jnp.zeros_like(self.gravity), (self.crank_mass, self.rod_mass, self.slider_mass)
        return jnp.stack([x for m in masses for x in (o, -m * self.gravity, o)]).astype(q.dtype)

    def energy(self, t: Time, q: Coordinates, v: Velocities) -> Float[Array, ""]:
        moment = self.crank_mass * q[1] + self.rod_mass * q[4] + self.slider_mass * q[7]
        return 0.5 * jnp.dot(self._masses() * v, v) + self.gravity * moment

    def slider_height(self, t: Time, q: Coordinates) -> Float[Array, ""]:
        return q[7]

    def slider_angle(self, t: Time, q: Coordinates) -> Float[Array, ""]:
        return q[8]

    @property
    def constraints(self) -> tuple[AbstractConstraint, ...]:
        """Ten rows of rank eight: the second bearing of the wrist pin repeats the first."""
        crank_end, rod_end, o = (
            0.5 * self.crank_length,
            0.5 * self.rod_length,
            jnp.zeros_like(self.gravity),
        )
        wrist = Pin(rod_end, o, _ROD, _SLIDER)
        return (
            Holonomic(GroundPin(-crank_end, jnp.zeros_like(crank_end, shape=2), _CRANK), name="ground pin"),
            Holonomic(Pin(crank_end, -rod_end, _CRANK, _ROD), name="crank pin"),
            Holonomic(wrist, name="wrist pin"),
            Holonomic(wrist, name="wrist pin, second bearing"),
            Holonomic(self.slider_height, name="slider guide height"),
            Holonomic(self.slider_angle, name="slider guide angle"),
        )

    def points(self, t: Time, q: Coordinates) -> dict[str, Array]:
        return {"crank_pin": find_body_point(q, _CRANK, 0.5 * self.crank_length), "slider": q[6:8]}

    def drawing(self, t: Time, q: Coordinates) -> dict[str, Array]:
        pin, slider = self.points(t, q).values()
        return {"crank": jnp.stack([jnp.zeros_like(pin), pin]), "rod": jnp.stack([pin, slider])}

    def state(self, angle: Scalar, rate: Scalar) -> tuple[Coordinates, Velocities]:
        """q and v with the crank at `angle` [rad] from +x, the slider to its right."""
        c, s = self.crank_length * jnp.cos(angle), self.crank_length * jnp.sin(angle)
        tilt = -jnp.arcsin(s / self.rod_length)
        reach = self.rod_length * jnp.cos(tilt)
        tilt_rate = -c * rate / reach
        slider_rate = -s * rate + s * tilt_rate
        q = [0.5 * c, 0.5 * s, angle, c + 0.5 * reach, 0.5 * s, tilt, c + reach, 0.0, 0.0]
        rod_rate = [0.5 * (slider_rate - s * rate), 0.5 * c * rate, tilt_rate]
        v = [-0.5 * s * rate, 0.5 * c * rate, rate, *rod_rate, slider_rate, 0.0, 0.0]
        return jnp.asarray(q), jnp.asarray(v)


def slider_crank(
    *,
    crank_length: Scalar = 0.5,
    rod_length: Scalar = 1.0,
    crank_mass: Scalar = 1.0,
    rod_mass: Scalar = 2.0,
    slider_mass: Scalar = 1.0,
    slider_inertia: Scalar = 0.05,
    gravity: Scalar = 9.81,
    angle: Scalar = math.pi / 4.0,
    rate: Scalar = 6.0,
) -> Problem:
    """A slider-crank with a doubled wrist pin: 10 rows of rank 8, 1 degree of freedom.

    **Arguments:**

    - `crank_length`, `rod_length`: lengths [m]; the rod is the longer, so the crank can turn.
    - `crank_mass`, `rod_mass`, `slider_mass`: masses [kg].
    - `slider_inertia`: of the slider about its centre [kg m^2]; it never turns.
    - `gravity`: along -y [m/s^2].
    - `angle`: of the crank from +x at the start [rad].
    - `rate`: of the crank at the start [rad/s].

    **Returns:** the `Problem`; points: `crank_pin`, `slider`.

    **Raises:** `InputError`, naming the parameter that is wrong.
    """
    check_positive(crank_length=crank_length, rod_length=rod_length, crank_mass=crank_mass)
    check_positive(rod_mass=rod_mass, slider_mass=slider_mass, slider_inertia=slider_inertia)
    check_finite(gravity=gravity, angle=angle, rate=rate)
    check(rod_length > crank_length, "rod_length must be greater than crank_length.")
    system = SliderCrank(crank_length, rod_length, crank_mass, rod_mass, slider_mass, slider_inertia, gravity)
    q0, v0 = evaluate_start(SliderCrank.state, system, angle, rate)
    return Problem(system, q0, v0, 0.0, 5.0, system.points, citation=_CITATION, name="slider_crank")
