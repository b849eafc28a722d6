"""Planar linkages in absolute coordinates (x, y, theta): two with dependent rows, and a chain of four-bars."""

import abc
import math
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._misc._types import Coordinates, Time, Velocities
from .._system._constraint import AbstractConstraint, Holonomic
from .._system._problem import Problem
from ._constant_systems import AbstractConstantSystem
from ._parameters import (
    Scalar,
    as_parameter,
    check,
    check_choice,
    check_count,
    check_finite,
    check_not_negative,
    check_positive,
    evaluate_start,
)


def find_body_point(q: Coordinates, body: int, offset: Array) -> Float[Array, "2"]:
    """The world point [m] at `offset` [m] from the centre of `body` along its own axis."""
    x, y, theta = q[3 * body : 3 * body + 3]
    return jnp.stack([x + offset * jnp.cos(theta), y + offset * jnp.sin(theta)])


class AbstractPlanarSystem(AbstractConstantSystem):
    """Bodies in absolute coordinates (x, y, theta) of their centres, y up."""

    gravity: eqx.AbstractVar[Array]

    @property
    @abc.abstractmethod
    def body_names(self) -> tuple[str, ...]:
        """The names of the bodies."""

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(f"{body} {x}" for body in self.body_names for x in ("x", "y", "theta"))

    @property
    def units(self) -> tuple[str, ...]:
        return ("m", "m", "rad") * len(self.body_names)

    def constant_force(self) -> Float[Array, " n"]:
        masses = self.masses()
        return jnp.where(np.arange(masses.size) % 3 == 1, -self.gravity * masses, 0.0)


class AbstractLinkage(AbstractPlanarSystem):
    """A linkage of one degree of freedom, whose posture an angle says."""

    @abc.abstractmethod
    def posture(self, angle: Array) -> Coordinates:
        """q where the links or the crank are at `angle` [rad] from +x."""

    def state(self, angle: Scalar, rate: Scalar) -> tuple[Coordinates, Velocities]:
        """q and v of that posture, where the angle grows by `rate` [rad/s]."""
        dtype = jnp.result_type(*jax.tree.leaves(self))
        angle, rate = (jnp.asarray(x, dtype) for x in (angle, rate))
        return jax.jvp(self.posture, (angle,), (rate,))


@final
class GroundPin(eqx.Module):
    """phi of a revolute joint between a body's point and a fixed point `anchor` (two rows [m])."""

    offset: Array
    anchor: Float[Array, "2"]
    body: int = eqx.field(static=True)

    def __call__(self, t: Time, q: Coordinates) -> Float[Array, "2"]:
        return find_body_point(q, self.body, self.offset) - self.anchor


@final
class Pin(eqx.Module):
    """phi of a revolute joint between points of two bodies (two rows [m])."""

    offset: Array
    other_offset: Array
    body: int = eqx.field(static=True)
    other: int = eqx.field(static=True)

    def __call__(self, t: Time, q: Coordinates) -> Float[Array, "2"]:
        return find_body_point(q, self.body, self.offset) - find_body_point(q, self.other, self.other_offset)


_SLIDER_CRANK = "P. E. Nikravesh, Computer-Aided Analysis of Mechanical Systems, 1988."
_CRANK, _ROD, _SLIDER = range(3)


@final
class SliderCrank(AbstractLinkage):
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
    def body_names(self) -> tuple[str, ...]:
        return ("crank", "rod", "slider")

    def masses(self) -> Float[Array, "9"]:
        crank = [self.crank_mass, self.crank_mass, self.crank_mass * self.crank_length**2 / 12.0]
        rod = [self.rod_mass, self.rod_mass, self.rod_mass * self.rod_length**2 / 12.0]
        return jnp.stack([*crank, *rod, self.slider_mass, self.slider_mass, self.slider_inertia])

    def slider_height(self, t: Time, q: Coordinates) -> Float[Array, ""]:
        return q[7]

    def slider_angle(self, t: Time, q: Coordinates) -> Float[Array, ""]:
        return q[8]

    @property
    def constraints(self) -> tuple[AbstractConstraint, ...]:
        """Ten rows of rank eight: the second bearing of the wrist pin repeats the first."""
        crank_end, rod_end = 0.5 * self.crank_length, 0.5 * self.rod_length
        wrist = Pin(rod_end, jnp.zeros_like(rod_end), _ROD, _SLIDER)
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

    def posture(self, angle: Array) -> Coordinates:
        """With the crank at `angle` [rad] from +x, the slider to its right."""
        c, s = self.crank_length * jnp.cos(angle), self.crank_length * jnp.sin(angle)
        tilt = -jnp.arcsin(s / self.rod_length)
        reach, o = self.rod_length * jnp.cos(tilt), jnp.zeros_like(c)
        return jnp.stack([0.5 * c, 0.5 * s, angle, c + 0.5 * reach, 0.5 * s, tilt, c + reach, o, o])


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
    return Problem(system, q0, v0, 0.0, 5.0, system.points, citation=_SLIDER_CRANK, name="slider_crank")


_PARALLELOGRAM = (
    "D. de Falco, E. Pennestri and L. Vita, Investigation of the influence of pseudoinverse matrix "
    "calculations on multibody dynamics simulations by means of the Udwadia-Kalaba formulation, "
    "Journal of Aerospace Engineering 22(4), 2009, Figure 1."
)
_STARTS = {"rest": (math.pi / 3.0, 0.0), "spinning": (math.pi / 2.0, 1.0)}
_COUPLER = 3


@final
class Parallelogram(AbstractLinkage):
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
    def body_names(self) -> tuple[str, ...]:
        return ("link 1", "link 2", "link 3", "coupler")

    def masses(self) -> Float[Array, "12"]:
        link = [self.mass, self.mass, self.inertia]
        return jnp.stack([*link, *link, *link, self.coupler_mass, self.coupler_mass, self.coupler_inertia])

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

    def posture(self, angle: Array) -> Coordinates:
        """Of the parallelogram branch, all links at `angle` [rad] from the horizontal."""
        c, s = self.length * jnp.cos(angle), self.length * jnp.sin(angle)
        half = 0.5 * self.coupler_length
        links = [x for i in range(3) for x in (i * half + 0.5 * c, 0.5 * s, angle)]
        return jnp.stack([*links, half + c, s, jnp.zeros_like(c)])


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
    return Problem(system, q0, v0, 0.0, 20.0, system.points, citation=_PARALLELOGRAM, name="parallelogram")


_FOUR_BARS = (
    "M. Gonzalez, D. Dopico, U. Lugris and J. Cuadrado, A benchmarking system for MBS simulation software, "
    "Multibody System Dynamics 16, 2006; IFToMM library of computational benchmark problems: N four-bar mechanism."
)


@final
class FourBars(AbstractLinkage):
    """2 n + 1 equal rods in absolute coordinates (x, y, theta), y up: link 0, coupler 1, link 1, ..., coupler n, link n.

    Link i turns about (i length, 0); coupler i joins the tops of links i - 1 and i. All rows are array operations over
    the rods, so that nothing but their sizes depends on n.
    """

    length: Array = eqx.field(converter=as_parameter)
    mass: Array = eqx.field(converter=as_parameter)
    gravity: Array = eqx.field(converter=as_parameter)
    n: int = eqx.field(static=True)

    @property
    def body_names(self) -> tuple[str, ...]:
        return ("link 0", *(f"{part} {i}" for i in range(1, self.n + 1) for part in ("coupler", "link")))

    def masses(self) -> Float[Array, " {6*self.n+3}"]:
        inertia = self.mass * self.length**2 / 12.0
        return jnp.tile(jnp.stack([self.mass, self.mass, inertia]), 2 * self.n + 1)

    def _ends(self, q: Coordinates) -> tuple[Float[Array, "{2*self.n+1} 2"], Float[Array, "{2*self.n+1} 2"]]:
        """Start and end of every rod: bottom and top of links, left and right of couplers."""
        x, y, theta = q.reshape(-1, 3).T
        half = 0.5 * self.length
        centre, along = jnp.stack([x, y], 1), jnp.stack([half * jnp.cos(theta), half * jnp.sin(theta)], 1)
        return centre - along, centre + along

    def ground_pins(self, t: Time, q: Coordinates) -> Float[Array, " {2*self.n+2}"]:
        """x and y of each link's bottom less its pivot's [m]."""
        bottom = self._ends(q)[0][::2]
        x = bottom[:, 0] - self.length * np.arange(self.n + 1, dtype=q.dtype)
        return jnp.stack([x, bottom[:, 1]], 1).ravel()

    def left_pins(self, t: Time, q: Coordinates) -> Float[Array, " {2*self.n}"]:
        """x and y of each coupler's left end less those of the link's top [m]."""
        start, end = self._ends(q)
        return (start[1::2] - end[:-1:2]).ravel()

    def right_pins(self, t: Time, q: Coordinates) -> Float[Array, " {2*self.n}"]:
        """x and y of each coupler's right end less those of the next link's top [m]."""
        _, end = self._ends(q)
        return (end[1::2] - end[2::2]).ravel()

    @property
    def constraints(self) -> tuple[AbstractConstraint, ...]:
        """Two rows a pin, 6 n + 2 in all."""
        return (
            Holonomic(self.ground_pins, name="ground pins"),
            Holonomic(self.left_pins, name="left pins"),
            Holonomic(self.right_pins, name="right pins"),
        )

    def points(self, t: Time, q: Coordinates) -> dict[str, Array]:
        """The tops of the links, B0 to Bn."""
        return {f"B{i}": top for i, top in enumerate(self._ends(q)[1][::2])}

    def drawing(self, t: Time, q: Coordinates) -> dict[str, Array]:
        """The links, and all couplers as one line."""
        start, end = self._ends(q)
        links = {f"link {i}": jnp.stack([start[2 * i], end[2 * i]]) for i in range(self.n + 1)}
        return links | {"couplers": end[::2]}

    def posture(self, angle: Array) -> Coordinates:
        """With all links parallel at `angle` [rad] from the horizontal."""
        length, pivots = self.length, self.length * np.arange(self.n + 1, dtype=self.length.dtype)
        c, s, o = length * jnp.cos(angle), length * jnp.sin(angle), jnp.zeros_like(length)
        bodies = [
            jnp.stack([x + pivots, *(jnp.full_like(pivots, y) for y in rest)], 1)
            for x, *rest in ((0.5 * c, 0.5 * s, angle), (0.5 * length + c, s, o))
        ]
        return jnp.stack(bodies, 1).reshape(-1, 3)[:-1].ravel()


def four_bars(
    n: int = 1,
    *,
    length: Scalar = 1.0,
    mass: Scalar = 1.0,
    gravity: Scalar = 9.81,
    angle: Scalar = math.pi / 2.0,
    speed: Scalar = 1.0,
) -> Problem:
    """n four-bar linkages in a row: n + 1 parallel links and n couplers, one degree of freedom.

    6 n + 3 coordinates, 6 n + 2 rows. It passes flat positions, where the rank drops by n and other branches meet.

    **Arguments:**

    - `n`: number of four-bars, any from 1.
    - `length`: of every rod, and from pivot to pivot [m].
    - `mass`: of every rod, uniform [kg].
    - `gravity`: along -y [m/s^2].
    - `angle`: of the links from the horizontal at the start [rad]; by default they stand upright.
    - `speed`: of the couplers at the start, towards +x where upright [m/s].

    **Returns:** the `Problem`; points: the tops of the links, `B0` to `Bn`.

    **Raises:** `InputError`, naming the parameter that is wrong.
    """
    check_count(n=n)
    check_positive(length=length, mass=mass)
    check_finite(gravity=gravity, angle=angle, speed=speed)
    system = FourBars(length, mass, gravity, int(n))
    q0, v0 = evaluate_start(FourBars.state, system, angle, -speed / length)
    return Problem(system, q0, v0, 0.0, 10.0, system.points, citation=_FOUR_BARS, name="four_bars")
