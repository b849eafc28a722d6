"""The five-bar linkage: two RR modules whose tips are pinned together (Orsino 2017, Figure 1)."""

from typing import ClassVar, final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._misc._arguments import fails
from .._misc._types import Coordinates, Forces, MassMatrix, Time, Velocities
from .._system._constraint import AbstractConstraint, Holonomic
from .._system._problem import Problem
from .._system._system import AbstractSystem
from ._parameters import Scalar, as_parameter, check, check_finite, check_positive, evaluate_start
from ._planar import PLANAR_UNITS, Pin, energy, planar_labels, weight
from ._rr_module import CITATION, RRModule


@final
class FiveBar(AbstractSystem):
    """Four uniform links in absolute coordinates (x, y, theta), y up: proximal and distal, left, then right.

    The ground, the fifth bar, is as long as `base`; its middle is the origin.
    """

    levels: ClassVar[tuple[tuple[str, ...], ...]] = (
        ("base pin 1", "base pin 2"),
        ("elbow 1", "elbow 2"),
        ("tip pin",),
    )

    base: Array = eqx.field(converter=as_parameter)
    length: Array = eqx.field(converter=as_parameter)
    mass: Array = eqx.field(converter=as_parameter)
    gravity: Array = eqx.field(converter=as_parameter)

    @property
    def legs(self) -> tuple[RRModule, ...]:
        pivots = [jnp.stack([half, jnp.zeros_like(half)]) for half in (-0.5 * self.base, 0.5 * self.base)]
        return tuple(RRModule(pivot, self.length, self.mass, k) for k, pivot in enumerate(pivots))

    @property
    def labels(self) -> tuple[str, ...]:
        return planar_labels(*(f"{link} {i}" for i in (1, 2) for link in ("proximal", "distal")))

    @property
    def units(self) -> tuple[str, ...]:
        return PLANAR_UNITS * 4

    def _masses(self) -> Float[Array, "12"]:
        return jnp.stack([m for leg in self.legs for m in leg.masses()])

    def mass_matrix(self, t: Time, q: Coordinates) -> MassMatrix:
        return jnp.diag(self._masses()).astype(q.dtype)

    def force(self, t: Time, q: Coordinates, v: Velocities) -> Forces:
        return weight(self._masses(), self.gravity).astype(q.dtype)

    def energy(self, t: Time, q: Coordinates, v: Velocities) -> Float[Array, ""]:
        return energy(self._masses(), self.gravity, q, v)

    @property
    def constraints(self) -> tuple[AbstractConstraint, ...]:
        """Five revolute joints, two rows each."""
        left, right = self.legs
        tip_pin = Pin(0.5 * self.length, 0.5 * self.length, 1, 3)
        joints = (left.base_pin, right.base_pin, left.elbow_pin, right.elbow_pin, tip_pin)
        return tuple(
            Holonomic(joint, name=name) for joint, name in zip(joints, sum(self.levels, ()), strict=True)
        )

    def points(self, t: Time, q: Coordinates) -> dict[str, Array]:
        """Where the tips meet, and the elbows as points of the proximal links."""
        left, right = self.legs
        return {"tip": left.tip(q), "elbow1": left.elbow(q), "elbow2": right.elbow(q)}

    def drawing(self, t: Time, q: Coordinates) -> dict[str, Array]:
        """The legs."""
        return {f"leg {leg.leg + 1}": leg.drawing(q) for leg in self.legs}

    def state(self, x: Scalar, y: Scalar) -> tuple[Coordinates, Velocities]:
        """q with the tip at (x, y) [m], both elbows bent to the same side, and v = 0."""
        tip = jnp.stack([as_parameter(x), as_parameter(y)])
        q = jnp.stack([coordinate for leg in self.legs for coordinate in leg.reaching(tip)])
        return q, jnp.zeros_like(q)


def five_bar(
    *,
    base: Scalar = 1.0,
    length: Scalar = 0.8,
    mass: Scalar = 1.0,
    gravity: Scalar = 9.81,
    x: Scalar = 0.05,
    y: Scalar = -0.9,
) -> Problem:
    """A five-bar linkage, passive: 12 coordinates, 10 rows, 2 degrees of freedom (Orsino 2017, Fig. 1).

    Built of the legs of `planar_3rrr`. Its system's `levels` are the hierarchy, for `Recursive`.

    **Arguments:**

    - `base`: distance of the two base pivots, at (-base/2, 0) and (base/2, 0) [m].
    - `length`: of each link [m].
    - `mass`: of each link, uniform [kg].
    - `gravity`: along -y [m/s^2].
    - `x`: of the tip at the start, at rest [m].
    - `y`: likewise [m].

    **Returns:** the `Problem`; points: `tip`, `elbow1`, `elbow2`.

    **Raises:** `InputError`, naming the parameter that is wrong.
    """
    check_positive(base=base, length=length, mass=mass)
    check_finite(gravity=gravity, x=x, y=y)
    system = FiveBar(base, length, mass, gravity)
    q0, v0 = evaluate_start(FiveBar.state, system, x, y)
    check(not fails(np.isfinite, q0), "x and y must be within reach: no leg is that long.")
    return Problem(
        system, q0, v0, 0.0, 1.0, system.points, citation=CITATION.format(figure=1), name="five_bar"
    )
