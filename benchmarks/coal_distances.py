"""Distances and depths of convex shapes beside coal (hpp-fcl), in random poses.

Along any normal n two bodies are apart by sigma(n) = min n . b - max n . a, at most their distance, or less their depth.
So of two answers the one with the larger sigma of its own normal is the better one, and what an answer lacks is known
without a third program: the larger sigma less its distance. Supports are computed here, by NumPy. Prints a table: for
bodies that are apart, and that overlap by less and by more than 3 cm, how many there are, the most that ukjax and that
coal is off by [m], and how often coal has no answer.

    pip install coal
    python benchmarks/coal_distances.py [--poses 10000] [--only box]
"""

import argparse
import itertools
from typing import Any

import coal
import jax
import jax.numpy as jnp
import numpy as np

import ukjax as uk
import ukjax.mechanisms as um
from ukjax.mechanisms._contact_pairs import meet
from ukjax.mechanisms._placement import Placement

KINDS = "box", "cylinder", "ellipsoid", "capsule", "hull", "sphere"
SHALLOW = 0.03
SHAPES_A_PAIR = 20


def measures(kind: str, rng: np.random.Generator) -> np.ndarray:
    """Of a random shape: half lengths and radii [m], or the points of a hull."""
    if kind == "hull":
        x = rng.normal(size=(24, 3))
        return x * rng.uniform(0.1, 0.4, 3) / np.linalg.norm(x, axis=1)[:, None]
    return rng.uniform(0.05, 0.4, {"sphere": 1, "cylinder": 2, "capsule": 2}.get(kind, 3))


def ours(kind: str, body: str, x: Any) -> um.AbstractShape:
    """A shape about the origin."""
    zero, along = jnp.zeros(3), jnp.array([0.0, 0.0, 1.0]) * jnp.ravel(x)[-1]
    made = {
        "box": lambda: um.Cuboid(body, zero, 2 * x),
        "cylinder": lambda: um.Cylinder(body, -along, along, x[0]),
        "ellipsoid": lambda: um.Ellipsoid(body, zero, x),
        "capsule": lambda: um.Capsule(body, -along, along, x[0]),
        "sphere": lambda: um.Sphere(body, zero, x[0]),
        "hull": lambda: um.ConvexHull(body, x),
    }
    return made[kind]()


def theirs(kind: str, x: np.ndarray) -> Any:
    """The same of coal."""
    if kind == "hull":
        points = coal.StdVec_Vec3s()
        points.extend(list(x))
        return coal.Convex.convexHull(points, False, "")
    made = {
        "box": lambda: coal.Box(*(2 * x)),
        "cylinder": lambda: coal.Cylinder(x[0], 2 * x[1]),
        "ellipsoid": lambda: coal.Ellipsoid(*x),
        "capsule": lambda: coal.Capsule(x[0], 2 * x[1]),
        "sphere": lambda: coal.Sphere(x[0]),
    }
    return made[kind]()


def farthest(kind: str, x: np.ndarray, d: np.ndarray) -> float:
    """How far a shape about the origin reaches along a direction."""
    if kind == "box":
        return float(np.abs(d) @ x)
    if kind == "ellipsoid":
        return float(np.linalg.norm(d * x))
    if kind == "hull":
        return float(np.max(x @ d))
    if kind == "sphere":
        return float(x[0])
    across = np.hypot(d[0], d[1]) if kind == "cylinder" else 1.0
    return float(x[0] * across + x[1] * abs(d[2]))


def rotation(rng: np.random.Generator) -> np.ndarray:
    """A random one."""
    Q, R = np.linalg.qr(rng.normal(size=(3, 3)))
    Q = Q * np.sign(np.diagonal(R))
    return Q * np.linalg.det(Q)


def compared(kinds: tuple[str, str], poses: int) -> np.ndarray:
    """Of each pose the best sigma, and what ukjax and coal lack of it."""
    rng, found = np.random.default_rng(0), []
    request = coal.DistanceRequest()
    request.enable_signed_distance = True
    request.gjk_tolerance = request.epa_tolerance = 1e-12
    request.gjk_max_iterations = request.epa_max_iterations = 500
    still = Placement(jnp.eye(3), jnp.zeros(3), jnp.zeros(3))

    @uk.scalarize
    def answer(x: Any, y: Any, R: Any, S: Any, p: Any) -> tuple[Any, Any]:
        shapes = [ours(k, n, z) for k, n, z in zip(kinds, "ab", (x, y), strict=True)]
        ends = [Placement(R, jnp.zeros(3), jnp.zeros(3)), Placement(S, p, still.centre)]
        swaps = shapes[0].order > shapes[1].order
        if swaps:
            shapes, ends = shapes[::-1], ends[::-1]
        met = meet(*shapes, *ends)
        # The least of several places; their normals are one.
        return jnp.min(met.gap), -met.normal[0] if swaps else met.normal[0]

    for _ in range(SHAPES_A_PAIR):
        given = [measures(kind, rng) for kind in kinds]
        if "hull" in kinds:  # the corners only, as ukjax takes them where they are known
            given = [
                np.asarray(um.ConvexHull("a", x).points) if k == "hull" else x
                for k, x in zip(kinds, given, strict=True)
            ]
        a, b = map(theirs, kinds, given)
        reach = sum(np.abs(x).max() for x in given)
        for _ in range(poses // SHAPES_A_PAIR):
            R, S, p = rotation(rng), rotation(rng), rng.normal(size=3)
            p *= rng.uniform(0.1, 1.4) * reach / np.linalg.norm(p)
            gap, n = map(np.asarray, answer(*given, R, S, p))
            result = coal.DistanceResult()
            distance = coal.distance(
                a, coal.Transform3s(R, np.zeros(3)), b, coal.Transform3s(S, p), request, result
            )

            def sigma(n: np.ndarray, given: Any = given, R: Any = R, S: Any = S, p: Any = p) -> float:
                return n @ p - farthest(kinds[1], given[1], -S.T @ n) - farthest(kinds[0], given[0], R.T @ n)

            best = max(sigma(n), sigma(np.asarray(result.normal)))
            found.append((best, abs(best - gap), abs(best - distance)))
    return np.array(found)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--poses", type=int, default=10_000)
    parser.add_argument("--only", default="", help="pairs with this in their name")
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    print("| pair | apart | ukjax | coal | overlap to 3 cm | ukjax | coal | deeper | ukjax | coal |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for kinds in itertools.combinations_with_replacement(KINDS, 2):
        if given.only not in "-".join(kinds):
            continue
        best, *off = compared(kinds, given.poses).T
        line = f"| {kinds[0]}, {kinds[1]} |"
        for which in (best > 0, (best <= 0) & (best > -SHALLOW), best <= -SHALLOW):
            line += f" {which.sum():,} |"
            for x in off:
                none = np.sum(x[which] > 1e3)
                line += f" {x[which & (x < 1e3)].max(initial=0):.0e}{f', none {none}' * bool(none)} |"
        print(line, flush=True)


if __name__ == "__main__":
    main()
