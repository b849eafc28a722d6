"""Andrews' squeezer mechanism: seven bodies that move within milliseconds, in two sets of coordinates."""

from typing import ClassVar, NamedTuple, final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._misc._arguments import fails
from .._misc._types import Coordinates, Forces, MassMatrix, Time, Velocities, module_for
from .._system._constraint import AbstractConstraint, Holonomic
from .._system._problem import Problem
from .._system._system import AbstractSystem
from ..mechanisms import (
    GROUND,
    AbsoluteSystem,
    AbstractLoad,
    PlanarBody,
    PlanarPlacement,
    Revolute,
    SpringDamper,
    assemble,
)
from ..mechanisms._loads import Bodies, Placements, Twists
from ._parameters import (
    NamedPoints,
    Scalar,
    as_parameter,
    check,
    check_choice,
    check_finite,
    check_positive,
    evaluate_start,
    stack_parameters,
)
from ._rr_linkages import unit

POINTS = {"F": "K1.F", "E": "K2.E", "D": "K3.D", "G": "K5.G", "H": "K7.H"}


@final
class Dimensions(eqx.Module):
    """Masses [kg], inertias [kg m^2] and lengths [m] under the names of the IVP test set, where a figure shows them.

    Crank K1 turns about the origin and joins K2 at F; K2 ends at E, where K3, K4 and K6 join it. K3 turns about B and
    bears the spring, at D, to C; K5 turns about A and joins K4 at G; K7 turns about A and joins K6 at H.
    """

    m: Float[Array, "7"]
    inertia: Float[Array, "7"]
    A: Float[Array, "2"]
    B: Float[Array, "2"]
    C: Float[Array, "2"]
    d: Array
    da: Array
    e: Array
    ea: Array
    rr: Array
    ra: Array
    ss: Array
    sa: Array
    sb: Array
    sc: Array
    sd: Array
    ta: Array
    tb: Array
    u: Array
    ua: Array
    ub: Array
    zf: Array
    zt: Array
    fa: Array

    def solve_loops(self, Theta: Array) -> Coordinates:
        """(beta, Theta, gamma, Phi, delta, Omega, epsilon) with the loops closed as in the test set [rad].

        Each loop is a triangle of known sides, solved by the law of cosines.
        """
        # F - E seen from the crank, so that E = |r| (cos, sin)(beta + turn).
        r = jnp.stack([self.rr - self.d * jnp.cos(Theta), -self.d * jnp.sin(Theta)])
        reach, turn = length(r), direction(r)
        beta = direction(self.B) + angle_between(reach, length(self.B), self.ss) - turn
        E = reach * unit(beta + turn)
        gamma = direction(E - self.B) + 0.5 * jnp.pi
        from_A = E - self.A
        # G and H lie on either side of the line from A to E.
        delta = direction(from_A) + angle_between(self.zt, length(from_A), self.e)
        epsilon = direction(from_A) - angle_between(self.u, length(from_A), self.zf) + 0.5 * jnp.pi
        Phi = direction(from_A - self.zt * unit(delta)) + 0.5 * jnp.pi - delta
        Omega = direction(from_A - self.u * unit(epsilon - 0.5 * jnp.pi)) - epsilon
        q = jnp.stack([beta, Theta, gamma, Phi, delta, Omega, epsilon])
        return jnp.mod(q + jnp.pi, 2.0 * jnp.pi) - jnp.pi

    def places(self, q: Coordinates) -> dict[str, Array]:
        """The points F, E, D, G and H, from the seven angles [m]."""
        beta, Theta, gamma, _, delta, _, epsilon = q
        F, side = self.rr * unit(beta), jnp.stack([jnp.sin(gamma), -jnp.cos(gamma)])
        return {
            "F": F,
            "E": F - self.d * unit(beta + Theta),
            "D": self.B + self.sc * side + self.sd * unit(gamma),
            "G": self.A + self.zt * unit(delta),
            "H": self.A + self.u * unit(epsilon - 0.5 * jnp.pi),
        }

    def centres(self, q: Coordinates) -> Float[Array, "7 2"]:
        """The centres of mass of K1 to K7, from the seven angles [m]."""
        beta, Theta, gamma, Phi, delta, Omega, epsilon = q
        at, right = self.places(q), lambda angle: unit(angle - 0.5 * jnp.pi)
        return jnp.stack(
            [
                self.ra * unit(beta),
                at["F"] - self.da * unit(beta + Theta),
                self.B + self.sa * right(gamma) + self.sb * unit(gamma),
                at["G"] + (self.e - self.ea) * right(Phi + delta),
                self.A + self.ta * unit(delta) - self.tb * right(delta),
                at["H"] + (self.zf - self.fa) * unit(Omega + epsilon),
                self.A + self.ua * right(epsilon) - self.ub * unit(epsilon),
            ]
        )


def length(r: Float[Array, "2"]) -> Array:
    """|r|."""
    return jnp.sqrt(jnp.dot(r, r))


def direction(r: Float[Array, "2"]) -> Array:
    """The angle of r from the x axis [rad]."""
    return jnp.arctan2(r[1], r[0])


def angle_between(a: Array, b: Array, opposite: Array) -> Array:
    """The angle of a triangle between sides a and b [rad]."""
    return jnp.arccos((a * a + b * b - opposite * opposite) / (2.0 * a * b))


@final
class ConstantTorque(AbstractLoad):
    """A torque on a body that does not change, with its potential, so that the energy is conserved."""

    name: str = eqx.field(static=True)
    body: str = eqx.field(static=True)
    torque: Array

    @property
    def bodies(self) -> tuple[str, ...]:
        return (self.body,)

    def rate(self, bodies: Bodies, placements: Placements, twists: Twists) -> Array:
        return twists[self.body].omega

    def effort(self, bodies: Bodies, t: Time, placements: Placements, twists: Twists) -> Array:
        return self.torque

    def potential(self, bodies: Bodies, placements: Placements) -> Array:
        placement = placements[self.body]
        assert isinstance(placement, PlanarPlacement)
        return -self.torque * placement.angle


class AndrewsPosture(NamedTuple):
    """Where the bodies are: the seven angles q, angles and centres of K1 to K7, and points."""

    q: Coordinates
    angles: list[Array]
    centres: list[Array]
    points: dict[str, Array]


def solve_posture(x: Dimensions, Theta: Array) -> AndrewsPosture:
    """The posture with this angle of K2 against the crank."""
    q = x.solve_loops(Theta)
    beta, Theta, gamma, Phi, delta, Omega, epsilon = q
    angles = [beta, beta + Theta, gamma, Phi + delta, delta, Omega + epsilon, epsilon]
    return AndrewsPosture(q, angles, list(x.centres(q)), x.places(q))


def squeezer(
    x: Dimensions, start: AndrewsPosture, drive: Array, stiffness: Array, rest: Array
) -> AbsoluteSystem:
    """The mechanism of bodies K1 to K7, ten hinges, the drive and the spring, in its reference posture."""
    at, xp = start.points, module_for(x)
    ends = ("F", "E", "D", "E", "G", "E", "H")
    columns = zip(ends, xp.asarray(x.m), start.centres, xp.asarray(x.inertia), start.angles, strict=True)
    bodies = [
        PlanarBody(f"K{i + 1}", mass, centre, inertia, angle, {end: at[end]})
        for i, (end, mass, centre, inertia, angle) in enumerate(columns)
    ]
    pins = [
        *(("O", GROUND, "K1", np.zeros(2, x.A.dtype)), ("F", "K1", "K2", at["F"]), ("B", GROUND, "K3", x.B)),
        *(("A, K5", GROUND, "K5", x.A), ("A, K7", GROUND, "K7", x.A)),
        *(("G", "K5", "K4", at["G"]), ("H", "K7", "K6", at["H"])),
        *((f"E, K{i}", "K2", f"K{i}", at["E"]) for i in (3, 4, 6)),
    ]
    loads = [
        ConstantTorque("drive", "K1", drive),
        SpringDamper("spring", GROUND, "K3", x.C, at["D"], stiffness, length=rest),
    ]
    return assemble(bodies, [Revolute(*pin) for pin in pins], loads)


# --- In seven angles


_CITATION = (
    "W. Schiehlen (ed.), Multibody Systems Handbook, 1990; E. Hairer and G. Wanner, Solving Ordinary Differential "
    "Equations II, 1996, section VII.7; F. Mazzia and C. Magherini, Test Set for Initial Value Problem Solvers, 2008."
)


@final
class Andrews(AbstractSystem):
    """The squeezer in seven angles (beta, Theta, gamma, Phi, delta, Omega, epsilon), as the IVP test set states it.

    Theta, Phi and Omega are relative: M has four blocks, and six rows close three loops at E.
    """

    dimensions: Dimensions
    drive: Array
    stiffness: Array
    rest: Array

    labels: ClassVar[tuple[str, ...]] = ("beta", "Theta", "gamma", "Phi", "delta", "Omega", "epsilon")
    units: ClassVar[tuple[str, ...]] = ("rad",) * 7

    def mass_matrix(self, t: Time, q: Coordinates) -> MassMatrix:
        x = self.dimensions
        m1, m2, m3, m4, m5, m6, m7 = x.m
        I1, I2, I3, I4, I5, I6, I7 = x.inertia
        h, f, cos2 = x.e - x.ea, x.zf - x.fa, x.da * x.rr * jnp.cos(q[1])
        sin4, sin6 = x.zt * h * jnp.sin(q[3]), x.u * f * jnp.sin(q[5])
        M11 = m1 * x.ra**2 + m2 * (x.rr**2 - 2.0 * cos2 + x.da**2) + I1 + I2
        M12, M22 = m2 * (x.da**2 - cos2) + I2, m2 * x.da**2 + I2
        M33 = m3 * (x.sa**2 + x.sb**2) + I3
        M44, M45 = m4 * h**2 + I4, m4 * (h**2 + sin4) + I4
        M55 = m4 * (x.zt**2 + 2.0 * sin4 + h**2) + m5 * (x.ta**2 + x.tb**2) + I4 + I5
        M66, M67 = m6 * f**2 + I6, m6 * (f**2 - sin6) + I6
        M77 = m6 * (f**2 - 2.0 * sin6 + x.u**2) + m7 * (x.ua**2 + x.ub**2) + I6 + I7
        M = jnp.diag(jnp.stack([M11, M22, M33, M44, M55, M66, M77]))
        for i, j, entry in ((0, 1, M12), (3, 4, M45), (5, 6, M67)):
            M = M.at[jnp.array([i, j]), jnp.array([j, i])].set(entry)
        return M.astype(q.dtype)

    def _spring(self, q: Coordinates) -> Float[Array, "2"]:
        """From C to D [m]."""
        return self.dimensions.places(q)["D"] - self.dimensions.C

    def force(self, t: Time, q: Coordinates, v: Velocities) -> Forces:
        x, (_, m2, _, m4, _, m6, _) = self.dimensions, self.dimensions.m
        turn2, turn4, turn6 = m2 * x.da * x.rr, m4 * x.zt * (x.e - x.ea), m6 * x.u * (x.zf - x.fa)
        spring, (c, s) = self._spring(q), (jnp.cos(q[2]), jnp.sin(q[2]))
        pull = -self.stiffness * (1.0 - self.rest / length(spring)) * spring
        Q = [
            self.drive - turn2 * v[1] * (v[1] + 2.0 * v[0]) * jnp.sin(q[1]),
            turn2 * v[0] ** 2 * jnp.sin(q[1]),
            pull[0] * (x.sc * c - x.sd * s) + pull[1] * (x.sd * c + x.sc * s),
            turn4 * v[4] ** 2 * jnp.cos(q[3]),
            -turn4 * v[3] * (v[3] + 2.0 * v[4]) * jnp.cos(q[3]),
            -turn6 * v[6] ** 2 * jnp.cos(q[5]),
            turn6 * v[5] * (v[5] + 2.0 * v[6]) * jnp.cos(q[5]),
        ]
        return jnp.stack(Q).astype(q.dtype)

    def energy(self, t: Time, q: Coordinates, v: Velocities) -> Float[Array, ""]:
        """Kinetic energy, that of the spring, and the potential of the constant drive [J]."""
        stretch = length(self._spring(q)) - self.rest
        kinetic = 0.5 * jnp.dot(v, self.mass_matrix(t, q) @ v)
        return kinetic + 0.5 * self.stiffness * stretch**2 - self.drive * q[0]

    def loops(self, t: Time, q: Coordinates) -> Float[Array, "6"]:
        """E on K2 less E on K3, on K4 and on K6 [m]."""
        x, at = self.dimensions, self.dimensions.places(q)
        _, _, gamma, Phi, delta, Omega, epsilon = q
        across = lambda angle: jnp.stack([jnp.sin(angle), -jnp.cos(angle)])
        on = (
            x.B + x.ss * across(gamma),
            at["G"] + x.e * across(Phi + delta),
            at["H"] + x.zf * unit(Omega + epsilon),
        )
        return jnp.concatenate([at["E"] - place for place in on])

    @property
    def constraints(self) -> tuple[AbstractConstraint, ...]:
        return (Holonomic(self.loops, name="loops"),)

    def points(self, t: Time, q: Coordinates) -> dict[str, Array]:
        return self.dimensions.places(q)

    def drawing(self, t: Time, q: Coordinates) -> dict[str, Array]:
        """The bodies, K3 with its arm to D, and the spring."""
        x, at = self.dimensions, self.dimensions.places(q)
        lines = {
            "K1": (jnp.zeros_like(x.A), at["F"]),
            "K2": (at["F"], at["E"]),
            "K3": (at["E"], x.B, at["D"]),
            "K4": (at["G"], at["E"]),
            "K5": (x.A, at["G"]),
            "K6": (at["H"], at["E"]),
            "K7": (x.A, at["H"]),
            "spring": (x.C, at["D"]),
        }
        return {name: jnp.stack(line) for name, line in lines.items()}


def andrews(
    *,
    coordinates: str = "classical",
    drive: Scalar = 0.033,
    stiffness: Scalar = 4530.0,
    rest: Scalar = 0.07785,
    Theta: Scalar = 0.0,
    m1: Scalar = 0.04325,
    m2: Scalar = 0.00365,
    m3: Scalar = 0.02373,
    m4: Scalar = 0.00706,
    m5: Scalar = 0.07050,
    m6: Scalar = 0.00706,
    m7: Scalar = 0.05498,
    I1: Scalar = 2.194e-6,
    I2: Scalar = 4.410e-7,
    I3: Scalar = 5.255e-6,
    I4: Scalar = 5.667e-7,
    I5: Scalar = 1.169e-5,
    I6: Scalar = 5.667e-7,
    I7: Scalar = 1.912e-5,
    xa: Scalar = -0.06934,
    ya: Scalar = -0.00227,
    xb: Scalar = -0.03635,
    yb: Scalar = 0.03273,
    xc: Scalar = 0.014,
    yc: Scalar = 0.072,
    d: Scalar = 0.028,
    da: Scalar = 0.0115,
    e: Scalar = 0.02,
    ea: Scalar = 0.01421,
    rr: Scalar = 0.007,
    ra: Scalar = 0.00092,
    ss: Scalar = 0.035,
    sa: Scalar = 0.01874,
    sb: Scalar = 0.01043,
    sc: Scalar = 0.018,
    sd: Scalar = 0.02,
    ta: Scalar = 0.02308,
    tb: Scalar = 0.00916,
    u: Scalar = 0.04,
    ua: Scalar = 0.01228,
    ub: Scalar = 0.00449,
    zf: Scalar = 0.02,
    zt: Scalar = 0.04,
    fa: Scalar = 0.01421,
) -> Problem:
    """Andrews' squeezer, driven by a constant torque without gravity: one degree of freedom (IVP test set).

    It starts at rest. Parameters bear the test set's names; its figure shows the lengths.

    **Arguments:**

    - `coordinates`: `"classical"`, the test set's seven angles (beta, Theta, gamma, Phi, delta, Omega, epsilon) and 6
      rows; or `"absolute"`, 21 coordinates and 20 rows from bodies and joints, with the bodies' angles beta,
      beta + Theta, gamma, Phi + delta, delta, Omega + epsilon, epsilon.
    - `drive`: torque on the crank [N m].
    - `stiffness`, `rest`: of the spring from C to D [N/m], and its unstretched length [m].
    - `Theta`: angle of K2 against the crank at the start; the others close the loops [rad].
    - `m1` to `m7`: masses of the bodies, `m1`, `m2`, `m3`, `m4`, `m5`, `m6`, `m7` [kg].
    - `I1` to `I7`: inertias about their centres, `I1`, `I2`, `I3`, `I4`, `I5`, `I6`, `I7` [kg m^2].
    - `xa`, `ya`, `xb`, `yb`, `xc`, `yc`: the fixed points A, B and C [m].
    - `d`, `da`, `e`, `ea`, `rr`, `ra`, `ss`, `sa`, `sb`, `sc`, `sd`, `ta`, `tb`, `u`, `ua`, `ub`, `zf`, `zt`, `fa`:
      lengths [m].

    **Returns:** the `Problem`, 0.03 s; points: the hinges `F`, `E`, `G`, `H`, and `D`, where the spring pulls.

    **Raises:** `InputError`, naming the parameter that is wrong.
    """
    check_choice(("classical", "absolute"), coordinates=coordinates)
    masses = {"m1": m1, "m2": m2, "m3": m3, "m4": m4, "m5": m5, "m6": m6, "m7": m7}
    inertias = {"I1": I1, "I2": I2, "I3": I3, "I4": I4, "I5": I5, "I6": I6, "I7": I7}
    lengths = {"d": d, "da": da, "e": e, "ea": ea, "rr": rr, "ra": ra, "ss": ss, "sa": sa, "sb": sb, "sc": sc}
    lengths |= {"sd": sd, "ta": ta, "tb": tb, "u": u, "ua": ua, "ub": ub, "zf": zf, "zt": zt, "fa": fa}
    places = {"xa": xa, "ya": ya, "xb": xb, "yb": yb, "xc": xc, "yc": yc}
    check_positive(**masses, **inertias, **lengths)
    check_finite(drive=drive, stiffness=stiffness, rest=rest, Theta=Theta, **places)
    fixed = [stack_parameters(pair) for pair in ((xa, ya), (xb, yb), (xc, yc))]
    lengths = {name: as_parameter(x) for name, x in lengths.items()}
    dimensions = Dimensions(
        stack_parameters(masses.values()), stack_parameters(inertias.values()), *fixed, **lengths
    )
    start, loads = (
        evaluate_start(solve_posture, dimensions, Theta),
        map(as_parameter, (drive, stiffness, rest)),
    )
    if coordinates == "classical":
        system, q0 = Andrews(dimensions, *loads), start.q
        points = system.points
    else:
        system = squeezer(dimensions, start, *loads)
        q0, points = system.q0, NamedPoints(system, tuple(POINTS.items()))
    check(not fails(np.isfinite, q0), "the lengths do not close: no posture has this Theta.")
    return Problem(
        system, q0, np.zeros(q0.shape, q0.dtype), 0.0, 0.03, points, citation=_CITATION, name="andrews"
    )
