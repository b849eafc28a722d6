"""A heavy symmetric top: a quaternion, turned by the angular velocity in body axes or by its own rate."""

import math
from typing import ClassVar, final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._misc._lie import quaternion_product, quaternion_rate, rotation_matrix
from .._misc._types import Coordinates, Forces, MassMatrix, Time, Velocities
from .._system._constraint import AbstractConstraint, Holonomic
from .._system._lagrangian import LagrangianSystem
from .._system._problem import Problem
from .._system._system import AbstractSystem
from ._parameters import Scalar, as_parameter, check_choice, check_finite, check_positive, evaluate_start

_CITATION = "Lagrange's top; H. Goldstein, Classical Mechanics, 2nd ed. 1980, section 5-7."


def _outline(length: Array, q: Coordinates) -> dict[str, Array]:
    """The axis, and a rim whose first spoke shows the spin."""
    R = rotation_matrix(q)
    angles = jnp.linspace(0.0, 2.0 * math.pi, 25, dtype=q.dtype)
    ring = 0.4 * length * (jnp.outer(jnp.cos(angles), R[:, 0]) + jnp.outer(jnp.sin(angles), R[:, 1]))
    centre = (length * R[:, 2])[None]
    return {
        "axis": jnp.concatenate([jnp.zeros_like(centre), centre]),
        "rim": jnp.concatenate([centre, centre + ring]),
    }


@final
class SpinningTop(AbstractSystem):
    """q = unit quaternion (scalar first, body to world), v = body angular velocity [rad/s]; z up.

    Four coordinates, three velocities and no constraint: q' = 1/2 q o (0, v) keeps |q|.
    """

    mass: Array = eqx.field(converter=as_parameter)
    length: Array = eqx.field(converter=as_parameter)
    I1: Array = eqx.field(converter=as_parameter)
    I3: Array = eqx.field(converter=as_parameter)
    gravity: Array = eqx.field(converter=as_parameter)

    labels: ClassVar[tuple[str, ...]] = ("qw", "qx", "qy", "qz")
    velocity_labels: ClassVar[tuple[str, ...]] = ("wx", "wy", "wz")

    def _moments(self) -> Float[Array, "3"]:
        return jnp.stack([self.I1, self.I1, self.I3])

    def mass_matrix(self, t: Time, q: Coordinates) -> MassMatrix:
        return jnp.diag(self._moments()).astype(q.dtype)

    def force(self, t: Time, q: Coordinates, v: Velocities) -> Forces:
        """Euler's equations: -v x (I v), and the moment l e3 x R^T (-m g ez) of the weight."""
        up = rotation_matrix(q)[2]  # the vertical in body axes
        o = jnp.zeros_like(up[0])
        weight = self.mass * self.gravity * self.length * jnp.stack([up[1], -up[0], o])
        return weight - jnp.cross(v, self._moments() * v)

    def kinematics(self, t: Time, q: Coordinates, v: Velocities) -> Coordinates:
        return quaternion_rate(q, v)

    def energy(self, t: Time, q: Coordinates, v: Velocities) -> Float[Array, ""]:
        height = self.length * rotation_matrix(q)[2, 2]
        return 0.5 * jnp.dot(self._moments() * v, v) + self.mass * self.gravity * height

    @property
    def constraints(self) -> tuple[AbstractConstraint, ...]:
        return ()

    def points(self, t: Time, q: Coordinates) -> dict[str, Array]:
        return {"centre": self.length * rotation_matrix(q)[:, 2]}

    def drawing(self, t: Time, q: Coordinates) -> dict[str, Array]:
        return _outline(self.length, q)


@final
class QuaternionTop(LagrangianSystem):
    """The same top with v = q', four velocities: a mass matrix of rank 3, made up for by |q| = 1."""

    mass: Array = eqx.field(converter=as_parameter)
    length: Array = eqx.field(converter=as_parameter)
    I1: Array = eqx.field(converter=as_parameter)
    I3: Array = eqx.field(converter=as_parameter)
    gravity: Array = eqx.field(converter=as_parameter)

    def lagrangian(self, t: Time, q: Coordinates, v: Velocities) -> Float[Array, ""]:
        """T - V with omega = 2 q* o q' in body axes."""
        omega = 2.0 * quaternion_product(q * jnp.asarray([1, -1, -1, -1], q.dtype), v)[1:]
        kinetic = 0.5 * (self.I1 * (omega[0] ** 2 + omega[1] ** 2) + self.I3 * omega[2] ** 2)
        return kinetic - self.mass * self.gravity * self.length * rotation_matrix(q)[2, 2]

    def norm(self, t: Time, q: Coordinates) -> Float[Array, ""]:
        return 0.5 * (jnp.dot(q, q) - 1.0)

    @property
    def constraints(self) -> tuple[AbstractConstraint, ...]:
        return (Holonomic(self.norm, name="unit quaternion"),)

    def points(self, t: Time, q: Coordinates) -> dict[str, Array]:
        return {"centre": self.length * rotation_matrix(q)[:, 2]}

    def drawing(self, t: Time, q: Coordinates) -> dict[str, Array]:
        return _outline(self.length, q)


def _start(_: None, theta: Array, precession: Array, spin: Array) -> tuple[Array, Array, Array]:
    """The quaternion, the angular velocity in body axes, and the quaternion's rate."""
    o = jnp.zeros_like(theta)
    q = jnp.stack([jnp.cos(0.5 * theta), jnp.sin(0.5 * theta), o, o])
    omega = jnp.stack([o, precession * jnp.sin(theta), spin])
    return q, omega, quaternion_rate(q, omega)


def spinning_top(
    *,
    mass: Scalar = 1.0,
    length: Scalar = 1.0,
    I1: Scalar = 1.25,
    I3: Scalar = 0.5,
    gravity: Scalar = 9.81,
    theta: Scalar = math.pi / 3.0,
    precession: Scalar = 0.5,
    spin: Scalar = 12.0,
    formulation: str = "quasi-velocities",
) -> Problem:
    """A heavy symmetric top about a fixed point, in quaternion coordinates.

    **Arguments:**

    - `mass`: [kg].
    - `length`: from the fixed point to the centre of mass [m].
    - `I1`, `I3`: moments of inertia about the fixed point, across and along the axis [kg m^2].
    - `gravity`: along -z [m/s^2].
    - `theta`: of the axis from the upward vertical at the start [rad].
    - `precession`: phi' at the start [rad/s]; theta' is zero.
    - `spin`: component of the angular velocity along the axis, psi' + phi' cos(theta) [rad/s].
    - `formulation`: `"quasi-velocities"`, v = the angular velocity in body axes, without constraint; or
      `"singular mass"`, v = q', with a 4 x 4 mass matrix of rank 3 and the constraint |q| = 1.

    **Returns:** the `Problem`; points: `centre`.

    **Raises:** `InputError`, naming the parameter that is wrong.
    """
    check_positive(mass=mass, length=length, I1=I1, I3=I3)
    check_finite(gravity=gravity, theta=theta, precession=precession, spin=spin)
    check_choice(("quasi-velocities", "singular mass"), formulation=formulation)
    q0, omega, rates = evaluate_start(_start, None, theta, precession, spin)
    if formulation == "quasi-velocities":
        system, v0 = SpinningTop(mass, length, I1, I3, gravity), omega
    else:
        system, v0 = QuaternionTop(mass, length, I1, I3, gravity), rates
    return Problem(system, q0, v0, 0.0, 10.0, system.points, citation=_CITATION, name="spinning_top")
