"""A chain of n four-bar linkages side by side: parallel links and couplers, rows that all depend where it lies flat."""

import math
from typing import final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._misc._types import Coordinates, Forces, MassMatrix, Time, Velocities
from .._system._constraint import AbstractConstraint, Holonomic
from .._system._problem import Problem
from .._system._system import AbstractSystem
from ._parameters import Scalar, as_parameter, check_count, check_finite, check_positive, evaluate_start
from ._planar import PLANAR_UNITS, energy, planar_labels, weight

_CITATION = (
    "M. Gonzalez, D. Dopico, U. Lugris and J. Cuadrado, A benchmarking system for MBS simulation software, "
    "Multibody System Dynamics 16, 2006; IFToMM library of computational benchmark problems: N four-bar mechanism."
)


@final
class FourBars(AbstractSystem):
    """2 n + 1 equal rods in absolute coordinates (x, y, theta), y up: link 0, coupler 1, link 1, ..., coupler n, link n.

    Link i turns about (i length, 0); coupler i joins the tops of links i - 1 and i. All rows are array operations over
    the rods, so that nothing but their sizes depends on n.
    """

    length: Array = eqx.field(converter=as_parameter)
    mass: Array = eqx.field(converter=as_parameter)
    gravity: Array = eqx.field(converter=as_parameter)
    n: int = eqx.field(static=True)

    @property
    def labels(self) -> tuple[str, ...]:
        return planar_labels(
            "link 0", *(f"{part} {i}" for i in range(1, self.n + 1) for part in ("coupler", "link"))
        )

    @property
    def units(self) -> tuple[str, ...]:
        return PLANAR_UNITS * (2 * self.n + 1)

    def _masses(self) -> Float[Array, " {6*self.n+3}"]:
        inertia = self.mass * self.length**2 / 12.0
        return jnp.tile(jnp.stack([self.mass, self.mass, inertia]), 2 * self.n + 1)

    def mass_matrix(self, t: Time, q: Coordinates) -> MassMatrix:
        return jnp.diag(self._masses()).astype(q.dtype)

    def force(self, t: Time, q: Coordinates, v: Velocities) -> Forces:
        return weight(self._masses(), self.gravity).astype(q.dtype)

    def energy(self, t: Time, q: Coordinates, v: Velocities) -> Float[Array, ""]:
        return energy(self._masses(), self.gravity, q, v)

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

    def state(self, angle: Scalar, rate: Scalar) -> tuple[Coordinates, Velocities]:
        """q and v with all links parallel at `angle` [rad] from the horizontal, turning at `rate` [rad/s]."""
        length = self.length
        angle, rate = (jnp.asarray(x, length.dtype) for x in (angle, rate))
        c, s, o = length * jnp.cos(angle), length * jnp.sin(angle), jnp.zeros_like(length)
        pivots = length * np.arange(self.n + 1, dtype=length.dtype)

        def interleaved(link: list[Array], coupler: list[Array], shift: Array) -> Array:
            bodies = [
                jnp.stack([x + shift, *(jnp.full_like(shift, y) for y in rest)], 1)
                for x, *rest in (link, coupler)
            ]
            return jnp.stack(bodies, 1).reshape(-1, 3)[:-1].ravel()

        q = interleaved([0.5 * c, 0.5 * s, angle], [0.5 * length + c, s, o], pivots)
        link = [-0.5 * s * rate, 0.5 * c * rate, rate]
        return q, interleaved(link, [-s * rate, c * rate, o], jnp.zeros_like(pivots))


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
    return Problem(system, q0, v0, 0.0, 10.0, system.points, citation=_CITATION, name="four_bars")
