"""Two planar robots that carry a common load (Liu 2015, section V): five links, two closing rows, six torques."""

import math
from typing import ClassVar, final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._misc._types import Coordinates, Forces, MassMatrix, Time, Velocities
from .._system._constraint import AbstractConstraint, Holonomic
from .._system._problem import Problem
from .._system._system import AbstractSystem
from ._parameters import Scalar, as_parameter, check_finite, check_positive

_CITATION = (
    "X. Liu, S. Zhen, K. Huang, H. Zhao, Y.-H. Chen and K. Shao, A systematic approach for "
    "designing analytical dynamics and servo control of constrained mechanical systems, "
    "IEEE/CAA Journal of Automatica Sinica 2(4), 2015, section V."
)
_LOAD = 2
# How far along its own direction, in lengths, link j carries the centre of link i.
_REACH = [[1.0] * i + [0.5] + [0.0] * (4 - i) for i in range(5)]
# Torques of the six joints on the five absolute angles (eq. (70)).
_INPUTS = [
    [1.0, -1.0, 0.0, 0.0, 0.0, 0.0],
    [0.0, 1.0, -1.0, 0.0, 0.0, 0.0],
    [0.0, 0.0, 1.0, 1.0, 0.0, 0.0],
    [0.0, 0.0, 0.0, -1.0, 1.0, 0.0],
    [0.0, 0.0, 0.0, 0.0, -1.0, 1.0],
]


@final
class CoordinatedRobots(AbstractSystem):
    """Angles theta1..theta5 [rad] of the links from the horizontal; link 3 is the load, the end of link 5 is hinged.

    Links 1, 2 are the first robot, links 4, 5 the second, counted from the load to its base.
    """

    mass: Array = eqx.field(converter=as_parameter)
    inertia: Array = eqx.field(converter=as_parameter)
    load_mass: Array = eqx.field(converter=as_parameter)
    load_inertia: Array = eqx.field(converter=as_parameter)
    length: Array = eqx.field(converter=as_parameter)
    gravity: Array = eqx.field(converter=as_parameter)

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(f"theta{i}" for i in range(1, 6))

    units: ClassVar[tuple[str, ...]] = ("rad",) * 5

    def _masses(self, dtype: jnp.dtype) -> Float[Array, "5"]:
        link = self.mass
        return jnp.stack([link, link, self.load_mass, link, link]).astype(dtype)

    def _coupling(self, dtype: jnp.dtype) -> Float[Array, "5 5"]:
        """The factors of cos(theta_i - theta_j) in M (eq. (A2))."""
        reach = jnp.asarray(_REACH, dtype) * self.length.astype(dtype)
        return reach.T @ (self._masses(dtype)[:, None] * reach)

    def mass_matrix(self, t: Time, q: Coordinates) -> MassMatrix:
        """M (eq. (A2))."""
        link = self.inertia
        inertias = jnp.stack([link, link, self.load_inertia, link, link]).astype(q.dtype)
        return self._coupling(q.dtype) * jnp.cos(q[:, None] - q[None, :]) + jnp.diag(inertias)

    def force(self, t: Time, q: Coordinates, v: Velocities) -> Forces:
        """Q = -C v - G (eqs. (A3)-(A4))."""
        turning = self._coupling(q.dtype) * jnp.sin(q[:, None] - q[None, :])
        return -turning @ v**2 - self._weights(q.dtype) * jnp.cos(q)

    def _weights(self, dtype: jnp.dtype) -> Float[Array, "5"]:
        reach = jnp.asarray(_REACH, dtype)
        return (self.gravity * self.length).astype(dtype) * (self._masses(dtype) @ reach)

    def energy(self, t: Time, q: Coordinates, v: Velocities) -> Float[Array, ""]:
        return 0.5 * jnp.dot(v, self.mass_matrix(t, q) @ v) + jnp.dot(self._weights(q.dtype), jnp.sin(q))

    def _along(self, q: Coordinates, reach: list[float]) -> Float[Array, "2"]:
        """The point reached by that much of each link, in lengths."""
        directions = jnp.stack([jnp.cos(q), jnp.sin(q)])
        return self.length.astype(q.dtype) * (directions @ jnp.asarray(reach, q.dtype))

    def load(self, q: Coordinates) -> Float[Array, "2"]:
        """The centre of the load [m] (eq. (65))."""
        return self._along(q, _REACH[_LOAD])

    def path(self, t: Time) -> Float[Array, "2"]:
        """Where the centre of the load shall be [m] (eq. (64))."""
        return self.length.astype(t.dtype) * jnp.stack([jnp.full_like(t, 1.5), 0.5 * (1.0 - jnp.cos(t))])

    def closing(self, t: Time, q: Coordinates) -> Float[Array, "2"]:
        end = self._along(q, [1.0] * 5)
        return jnp.stack([end[0] - 3.0 * self.length.astype(q.dtype), end[1]])

    def load_position(self, t: Time, q: Coordinates) -> Float[Array, "2"]:
        return self.load(q) - self.path(t).astype(q.dtype)

    def load_angle(self, t: Time, q: Coordinates) -> Float[Array, ""]:
        return q[_LOAD]

    @property
    def constraints(self) -> tuple[AbstractConstraint, ...]:
        """The end of link 5 hinged to the ground (eq. (60))."""
        return (Holonomic(self.closing, name="closing"),)

    @property
    def servo_constraints(self) -> tuple[AbstractConstraint, ...]:
        """The motion of the load (eqs. (64) and (68)), for `servo_control`."""
        return (
            Holonomic(self.load_position, name="load position"),
            Holonomic(self.load_angle, name="load angle"),
        )

    @property
    def input_matrix(self) -> Float[Array, "5 6"]:
        """B of the six joint torques (eq. (70)), for `servo_control`."""
        return jnp.asarray(_INPUTS)

    def points(self, t: Time, q: Coordinates) -> dict[str, Array]:
        joints = {name: [1.0] * i + [0.0] * (5 - i) for i, name in enumerate("ABCDE", 1)}
        return {"load": self.load(q)} | {name: self._along(q, reach) for name, reach in joints.items()}

    def drawing(self, t: Time, q: Coordinates) -> dict[str, Array]:
        """Two arms, and the load between them."""
        A, B, C, D, E = (self.points(t, q)[name] for name in "ABCDE")
        ground = jnp.zeros_like(A)
        return {"left": jnp.stack([ground, A, B]), "load": jnp.stack([B, C]), "right": jnp.stack([C, D, E])}


def coordinated_robots(
    *,
    mass: Scalar = 1.0,
    inertia: Scalar = 1.0,
    load_mass: Scalar = 1.0,
    load_inertia: Scalar = 1.0,
    length: Scalar = 1.0,
    gravity: Scalar = 9.8,
) -> Problem:
    """Two planar robots that carry a common load, passive (Liu 2015, section V).

    Their bases are three lengths apart; the start is level, at (60, -60, 0, 60, -60) deg and at rest. The motion
    of the load (64) is not among the constraints: it is left to servo control, with the system's
    `servo_constraints` and `input_matrix`.

    **Arguments:**

    - `mass`, `inertia`: of each of the four links of the robots [kg], [kg m^2] about its middle.
    - `load_mass`, `load_inertia`: of the load, likewise.
    - `length`: of each link and of the load [m].
    - `gravity`: along -y [m/s^2].

    **Returns:** the `Problem`; points: `load` (its centre), and the ends `A` to `E` of the links.

    **Raises:** `InputError`, naming the parameter that is wrong.
    """
    check_positive(mass=mass, inertia=inertia, load_mass=load_mass, load_inertia=load_inertia, length=length)
    check_finite(gravity=gravity)
    system = CoordinatedRobots(mass, inertia, load_mass, load_inertia, length, gravity)
    up = math.pi / 3.0
    q0, v0 = np.array([up, -up, 0.0, up, -up]), np.zeros(5)
    return Problem(
        system, q0, v0, 0.0, 2.0 * math.pi, system.points, citation=_CITATION, name="coordinated_robots"
    )
