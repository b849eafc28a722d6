"""Andrews' squeezer as seven bodies: its dimensions, how it is closed, and the mechanism in absolute coordinates."""

from typing import NamedTuple, final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._misc._types import Coordinates, Time, module_for
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
from ._rr_module import direction as unit

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

    def closed(self, Theta: Array) -> Coordinates:
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
    q = x.closed(Theta)
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
