"""The SCARA arm of Xu and Liu (2017), whose tool follows a helix: four rows on four joints."""

import math
from typing import ClassVar, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._misc._lie import adjoint, exp_twist, inverse_adjoint, rigid_motion
from .._misc._types import Coordinates, Forces, MassMatrix, Time, Velocities
from .._system._constraint import AbstractConstraint, Holonomic
from .._system._problem import Problem
from .._system._system import AbstractSystem
from ._parameters import Scalar, as_parameter, check, check_choice, check_finite, check_positive

_CITATION = (
    "Y. Xu and R. Liu, Dynamic modeling of SCARA robot based on Udwadia-Kalaba theory, "
    "Advances in Mechanical Engineering 9(10), 2017, doi:10.1177/1687814017728450."
)
_DEGREE = math.pi / 180.0


@final
class Scara(AbstractSystem):
    """Three parallel revolute joints q1, q2, q3 [rad] and a vertical prismatic one, q4 [m].

    Built from joint twists by the product of exponentials; it equals the closed forms (34)-(36).
    """

    m1: Array = eqx.field(converter=as_parameter)
    m2: Array = eqx.field(converter=as_parameter)
    m3: Array = eqx.field(converter=as_parameter)
    m4: Array = eqx.field(converter=as_parameter)
    l0: Array = eqx.field(converter=as_parameter)
    l1: Array = eqx.field(converter=as_parameter)
    l2: Array = eqx.field(converter=as_parameter)
    r1: Array = eqx.field(converter=as_parameter)
    r2: Array = eqx.field(converter=as_parameter)
    Iz1: Array = eqx.field(converter=as_parameter)
    Iz2: Array = eqx.field(converter=as_parameter)
    Iz3: Array = eqx.field(converter=as_parameter)
    Iz4: Array = eqx.field(converter=as_parameter)
    gravity: Array = eqx.field(converter=as_parameter)
    radius: Array = eqx.field(converter=as_parameter)
    reach: Array = eqx.field(converter=as_parameter)
    frequency: Array = eqx.field(converter=as_parameter)
    climb: Array = eqx.field(converter=as_parameter)

    def twists(self) -> Float[Array, "4 6"]:
        """The joint twists at q = 0, one a row (eq. (33))."""
        o, i = jnp.zeros_like(self.l1), jnp.ones_like(self.l1)
        revolute = [jnp.stack([x, o, o, o, o, i]) for x in (o, self.l1, self.l1 + self.l2)]
        return jnp.stack([*revolute, jnp.stack([o, o, i, o, o, o])])

    def _at_rest(self, y: Array, dtype: jnp.dtype) -> Float[Array, "4 4"]:
        """A frame along the base's axes at (0, y, l0), where the arm stretches along y at q = 0."""
        p = jnp.stack([jnp.zeros_like(y), y, self.l0]).astype(dtype)
        return rigid_motion(jnp.eye(3, dtype=dtype), p)

    def _frames(self, q: Coordinates) -> list[Float[Array, "4 4"]]:
        """The products of exponentials e^(hat(xi_1) q_1) ... e^(hat(xi_i) q_i), i = 0..4 (eq. (38))."""
        frames = [jnp.eye(4, dtype=q.dtype)]
        for motion in jax.vmap(exp_twist)(self.twists().astype(q.dtype), q):
            frames.append(frames[-1] @ motion)
        return frames

    def _links(self, q: Coordinates) -> tuple[Float[Array, "4 4 4"], Float[Array, "4 6 4"]]:
        """Frame and body Jacobian of each link's centre of mass (eqs. (15)-(17))."""
        frames, tip = self._frames(q), self.l1 + self.l2
        centres = (self.r1, self.l1 + self.r2, tip, tip)
        g = jnp.stack([f @ self._at_rest(y, q.dtype) for f, y in zip(frames[1:], centres, strict=True)])
        carried = jax.vmap(adjoint)(jnp.stack(frames[:-1]))
        columns = jnp.einsum("jab,jb->aj", carried, self.twists().astype(q.dtype))
        moves = jnp.tril(jnp.ones((4, 4), q.dtype))  # joint j moves link i where j <= i
        return g, jax.vmap(inverse_adjoint)(g) @ columns * moves[:, None, :]

    def _inertia(self, dtype: jnp.dtype) -> Float[Array, "4 6"]:
        """The diagonal of each link's inertia (m, m, m, Ix, Iy, Iz); no link turns about x or y."""
        masses = (self.m1, self.m2, self.m3, self.m4)
        moments = (self.Iz1, self.Iz2, self.Iz3, self.Iz4)
        o = jnp.zeros_like(self.m1)
        return jnp.stack(
            [jnp.stack([m, m, m, o, o, Iz]) for m, Iz in zip(masses, moments, strict=True)]
        ).astype(dtype)

    labels: ClassVar[tuple[str, ...]] = ("q1", "q2", "q3", "q4")
    units: ClassVar[tuple[str, ...]] = ("rad", "rad", "rad", "m")

    def mass_matrix(self, t: Time, q: Coordinates) -> MassMatrix:
        """M = sum J_i^T M_i J_i with the body Jacobians J_i of the links (eq. (24))."""
        J = self._links(q)[1]
        return jnp.einsum("lai,la,laj->ij", J, self._inertia(q.dtype), J)

    def force(self, t: Time, q: Coordinates, v: Velocities) -> Forces:
        """Q = -C v - G, each link by Newton and Euler in its own frame: with the body twist V_i = J_i v and
        momentum P_i = M_i V_i, Q = sum J_i^T (gravity - M_i J_i' v - ad*(V_i) P_i); equal to eqs. (28)-(31)."""
        (g, J), (_, J_rate) = jax.jvp(self._links, (q,), (v,))
        inertia, twist = self._inertia(q.dtype), J @ v
        momentum = inertia * twist
        turned = jnp.cross(twist[:, 3:], momentum[:, :3])
        spun = jnp.cross(twist[:, 3:], momentum[:, 3:]) + jnp.cross(twist[:, :3], momentum[:, :3])
        weight = -self.gravity.astype(q.dtype) * inertia[:, :1] * g[:, 2, :3]
        wrench = jnp.concatenate([weight - turned, -spun], axis=1) - inertia * (J_rate @ v)
        return jnp.einsum("lai,la->i", J, wrench)

    def energy(self, t: Time, q: Coordinates, v: Velocities) -> Float[Array, ""]:
        g, J = self._links(q)
        inertia, twist = self._inertia(q.dtype), J @ v
        height = jnp.dot(inertia[:, 0], g[:, 2, 3])
        return 0.5 * jnp.sum(inertia * twist**2) + self.gravity.astype(q.dtype) * height

    def tool(self, q: Coordinates) -> Float[Array, "3"]:
        """The tool's position [m] (eqs. (38)-(39))."""
        return (self._frames(q)[-1] @ self._at_rest(self.l1 + self.l2, q.dtype))[:3, 3]

    def path(self, t: Time) -> Float[Array, "3"]:
        """Where the tool shall be [m] (eq. (40))."""
        angle = self.frequency * t
        x, y = self.radius * jnp.sin(angle), self.reach + self.radius * jnp.cos(angle)
        return jnp.stack([x, y, self.climb * t])

    def _along(self, axis: int, t: Time, q: Coordinates) -> Float[Array, ""]:
        return self.tool(q)[axis] - self.path(t)[axis]

    def tool_x(self, t: Time, q: Coordinates) -> Float[Array, ""]:
        return self._along(0, t, q)

    def tool_y(self, t: Time, q: Coordinates) -> Float[Array, ""]:
        return self._along(1, t, q)

    def orientation(self, t: Time, q: Coordinates) -> Float[Array, ""]:
        return q[0] + q[1] + q[2]

    def tool_z(self, t: Time, q: Coordinates) -> Float[Array, ""]:
        return self._along(2, t, q)

    @property
    def constraints(self) -> tuple[AbstractConstraint, ...]:
        """The trajectory constraints in the order of eq. (48)."""
        return (
            Holonomic(self.tool_x, name="tool x"),
            Holonomic(self.tool_y, name="tool y"),
            Holonomic(self.orientation, name="orientation"),
            Holonomic(self.tool_z, name="tool z"),
        )

    def posture(self, t: Time) -> Coordinates:
        """q(t) that meets eq. (48), by inverse kinematics on the elbow branch q2 < 0."""
        x, y, z = self.path(jnp.asarray(t))
        cosine = (x * x + y * y - self.l1**2 - self.l2**2) / (2.0 * self.l1 * self.l2)
        q2 = -jnp.arccos(cosine)
        q1 = jnp.arctan2(-x, y) - jnp.arctan2(self.l2 * jnp.sin(q2), self.l1 + self.l2 * cosine)
        return jnp.stack([q1, q2, -(q1 + q2), z - self.l0])

    def points(self, t: Time, q: Coordinates) -> dict[str, Array]:
        return {"tool": self.tool(q)}

    def drawing(self, t: Time, q: Coordinates) -> dict[str, Array]:
        """The arm from joint to joint, and the quill down to the tool."""
        frames, joints = self._frames(q), (jnp.zeros_like(self.l1), self.l1, self.l1 + self.l2)
        base = jnp.zeros(3, q.dtype)
        arm = [(frames[i] @ self._at_rest(y, q.dtype))[:3, 3] for i, y in enumerate(joints)]
        return {"arm": jnp.stack([base, *arm]), "quill": jnp.stack([arm[-1], self.tool(q)])}


def scara(
    *,
    m1: Scalar = 20.0,
    m2: Scalar = 15.0,
    m3: Scalar = 15.0,
    m4: Scalar = 0.5,
    l0: Scalar = 0.0,
    l1: Scalar = 0.2,
    l2: Scalar = 0.25,
    r1: Scalar = 0.1,
    r2: Scalar = 0.125,
    Iz1: Scalar = 0.27,
    Iz2: Scalar = 0.31,
    Iz3: Scalar = 0.02,
    Iz4: Scalar = 0.0001,
    gravity: Scalar = 9.8,
    radius: Scalar = 0.05,
    reach: Scalar = 0.35,
    frequency: Scalar = 0.4 * math.pi,
    climb: Scalar = 0.02,
    exact_start: bool = False,
) -> Problem:
    """The SCARA arm whose tool follows a helix, orientation fixed (Xu-Liu 2017, eqs. (33)-(48)).

    The start is the paper's, some mm off the path, with q2 = -55 deg (the printed +55 deg misses
    the path by 0.405 m). As many rows as joints: q(t) is algebraic, and `reference` gives it.

    **Arguments:**

    - `m1`, `m2`, `m3`, `m4`: masses of the links [kg].
    - `l0`: height of the tool at q4 = 0 [m].
    - `l1`, `l2`: lengths of the first two links [m].
    - `r1`, `r2`: distances of their centres of mass from their joints [m].
    - `Iz1`, `Iz2`, `Iz3`, `Iz4`: moments of inertia about the centres of mass, axis z [kg m^2].
    - `gravity`: along -z [m/s^2].
    - `radius`: of the tool's circle [m].
    - `reach`: distance of the circle's centre from the base axis [m].
    - `frequency`: angular frequency of the tool on its circle [rad/s].
    - `climb`: vertical speed of the tool [m/s].
    - `exact_start`: start on the path (True) or at the paper's posture (False).

    **Returns:** the `Problem`; points: `tool`.

    **Raises:** `InputError`, naming the parameter that is wrong.
    """
    check_positive(m1=m1, m2=m2, m3=m3, m4=m4, l1=l1, l2=l2)
    check_positive(Iz1=Iz1, Iz2=Iz2, Iz3=Iz3, Iz4=Iz4, radius=radius, reach=reach)
    check_finite(l0=l0, r1=r1, r2=r2, gravity=gravity, frequency=frequency, climb=climb)
    check_choice((True, False), exact_start=exact_start)
    message = "reach and radius must keep the tool within |l1 - l2| and l1 + l2 of the base axis."
    check(reach + radius < l1 + l2, message)
    check(abs(reach - radius) > abs(l1 - l2), message)
    links = (m1, m2, m3, m4, l0, l1, l2, r1, r2, Iz1, Iz2, Iz3, Iz4)
    system = Scara(*links, gravity, radius, reach, frequency, climb)
    q0 = np.array([30.0 * _DEGREE, -55.0 * _DEGREE, 24.0 * _DEGREE, 0.0])
    v0 = np.array([-0.157, 0.0001, 0.157, 0.0195])
    if exact_start:
        q0, v0 = jax.jvp(system.posture, (jnp.zeros(()),), (jnp.ones(()),))
    return Problem(system, q0, v0, 0.0, 20.0, system.points, system.posture, citation=_CITATION, name="scara")
