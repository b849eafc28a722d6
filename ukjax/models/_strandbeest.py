"""A leg of Theo Jansen's beach animals: eleven rods that turn a crank into a step."""

from typing import Any

from jaxtyping import Array

from .._misc._types import module_for
from .._system._problem import Problem
from ..mechanisms import GROUND, Gravity, PlanarBody, Revolute, assemble, rod, velocity
from ._parameters import NamedPoints, Scalar, check_finite, check_positive, numbers, stack_parameters

_CITATION = "T. Jansen, The Great Pretender, 2007 (the eleven holy numbers)."
_LENGTHS = {
    "a": 38.0, "b": 41.5, "c": 39.3, "d": 40.1, "e": 55.8, "f": 39.4, "g": 36.7, "h": 65.7, "i": 49.0, "j": 50.0,
    "k": 61.9, "l": 7.8, "m": 15.0,
}  # fmt: skip


def _meeting(p: Array, to_p: Array, q: Array, to_q: Array, xp: Any) -> Array:
    """The point at these distances from two others, to the left on the way from p to q."""
    along = q - p
    apart = xp.sqrt(along @ along)
    x = (to_p**2 - to_q**2 + apart**2) / (2 * apart)
    y = xp.sqrt(to_p**2 - x**2)
    return p + (x * along + y * xp.stack([-along[1], along[0]])) / apart


def _triangle(name: str, corners: dict[str, Array], mass: Array, xp: Any) -> PlanarBody:
    """Three thin rods as one body: their mass by length, m l^2 / 12 of each about its own middle."""
    ends = list(corners.values())
    sides = [(ends[i], ends[(i + 1) % 3]) for i in range(3)]
    masses = [mass * xp.sqrt((q - p) @ (q - p)) for p, q in sides]
    total = masses[0] + masses[1] + masses[2]
    centre = sum(m * 0.5 * (p + q) for m, (p, q) in zip(masses, sides, strict=True)) / total
    inertia = sum(
        m * ((q - p) @ (q - p) / 12.0 + (0.5 * (p + q) - centre) @ (0.5 * (p + q) - centre))
        for m, (p, q) in zip(masses, sides, strict=True)
    )
    return PlanarBody(name, total, centre, inertia, points=corners)


def strandbeest(
    *,
    scale: Scalar = 0.01,
    density: Scalar = 0.5,
    angle: Scalar = 0.0,
    rate: Scalar = 2.0,
    gravity: Scalar = 9.81,
) -> Problem:
    """One leg: a crank, four rods and two triangles with ten pins, 21 coordinates, one degree of freedom.

    The crank turns about the origin, the leg's fixed pin is at (-a, -l).

    **Arguments:**

    - `scale`: the length of the unit of the holy numbers, of which the crank has 15 [m].
    - `density`: of all rods [kg/m].
    - `angle`: of the crank at the start, from +x [rad].
    - `rate`: of the crank at the start [rad/s].
    - `gravity`: along -y [m/s^2].

    **Returns:** the `Problem`; points: `foot`, `crank`.

    **Raises:** `InputError`, naming the parameter that is wrong.
    """
    check_positive(scale=scale, density=density)
    check_finite(angle=angle, rate=rate, gravity=gravity)
    unit, rho, theta, w = numbers(scale, density, angle, rate)
    xp = module_for(unit, rho, theta, w)
    s = {name: x * unit for name, x in _LENGTHS.items()}
    origin = xp.stack([xp.zeros_like(unit)] * 2)
    P = s["m"] * xp.stack([xp.cos(theta), xp.sin(theta)])
    B = xp.stack([-s["a"], -s["l"]])
    C = _meeting(B, s["b"], P, s["j"], xp)
    D = _meeting(P, s["k"], B, s["c"], xp)
    E = _meeting(B, s["d"], C, s["e"], xp)
    F = _meeting(D, s["g"], E, s["f"], xp)
    G = _meeting(D, s["i"], F, s["h"], xp)
    ends = {"crank": (origin, P), "upper rod": (P, C), "lower rod": (P, D), "side": (B, D), "link": (E, F)}
    mass = lambda p, q: rho * xp.sqrt((q - p) @ (q - p))
    bodies = [rod(name, p, q, mass(p, q)) for name, (p, q) in ends.items()]
    bodies += [_triangle("shoulder", {"B": B, "C": C, "E": E}, rho, xp)]
    bodies += [_triangle("foot", {"D": D, "F": F, "G": G}, rho, xp)]
    pins = [
        ("crank pin", GROUND, "crank", origin), ("P upper", "crank", "upper rod", P),
        ("P lower", "crank", "lower rod", P),
        ("B shoulder", GROUND, "shoulder", B), ("B side", GROUND, "side", B), ("C", "upper rod", "shoulder", C),
        ("D", "lower rod", "side", D), ("D foot", "side", "foot", D), ("E", "shoulder", "link", E),
        ("F", "link", "foot", F),
    ]  # fmt: skip
    system = assemble(bodies, [Revolute(*pin) for pin in pins], [Gravity(stack_parameters((0.0, -gravity)))])
    v0 = velocity(system, {"crank pin": w})
    points = NamedPoints(system, (("foot", "foot.G"), ("crank", "crank.end")))
    return Problem(system, system.q0, v0, 0.0, 5.0, points, citation=_CITATION, name="strandbeest")
