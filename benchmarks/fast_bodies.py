"""Fast, small, thin and spinning bodies by time steps of 1 ms: whether any passes through another.

Each case is thrown from random places, so that impacts fall anywhere within a step, at speeds at which a body moves up to
a hundred times its thickness in a step. Without gravity and without friction what must happen is known: what meets
another strikes it, and where restitution is 1, energy stays. Prints a table:

- missed: runs in which a body is behind another that it met, or met it without a change of velocity;
- deepest: the deepest penetration at four times in each step, over all runs [m];
- energy: the most by which the energy at the end is above that at the start, relative;
- parts: the most time steps, and parts of these, that a run took.

    python benchmarks/fast_bodies.py [--starts 200] [--only NAME]
"""

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

import ukjax as uk
import ukjax.mechanisms as um

STEP, STEPS = 1e-3, 80
SPEEDS = 2.0, 10.0, 50.0, 200.0


class Case(NamedTuple):
    """A mechanism in its reference posture; random starts of it at some speed (q, v); and which ends are misses, of
    positions and velocities at the start and at the end."""

    name: str
    system: Any
    start: Callable[[Any, float], tuple[np.ndarray, np.ndarray]]
    missed: Callable[..., np.ndarray]


def _ball(name: str, x: Any, radius: float, mass: float = 1.0) -> um.Body:
    return um.Body(name, mass, x, 0.4 * mass * radius**2 * np.eye(3))


def _assemble(bodies: Any, shapes: Any, joints: Any = (), restitution: float = 1.0) -> Any:
    pairs = [(a, b) for i, a in enumerate(shapes) for b in shapes[i + 1 :] if a.body != b.body]
    contacts = [um.Contact(a, b, restitution=restitution, name=f"{i}") for i, (a, b) in enumerate(pairs)]
    make = um.tree if joints else um.assemble
    return make(list(bodies), list(joints), contacts=contacts)


def _turn(rng: Any) -> np.ndarray:
    x = rng.normal(size=4)
    return x / np.linalg.norm(x)


def _state(
    places: Any, velocities: Any, turns: Any = None, spins: Any = None
) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates and velocities of free bodies: of each a place and a quaternion, velocity and spin."""
    q, v = [], []
    for i, (x, u) in enumerate(zip(places, velocities, strict=True)):
        q += [*x, *((1.0, 0, 0, 0) if turns is None else turns[i])]
        v += [*u, *((0.0, 0, 0) if spins is None else spins[i])]
    return np.array(q), np.array(v)


def _onto_plate(shape: Any, name: str, *, spins: float = 0.0) -> Case:
    """A body thrown down on a plate of 2 mm."""
    plate = um.Cuboid("ground", (0.0, 0.0, 0.0), (1.0, 1.0, 0.002))
    body = um.Body("body", 1.0, (0.0, 0.0, 0.1), 1e-4 * np.eye(3))
    system = _assemble([body], [plate, shape])

    def start(rng: Any, speed: float) -> tuple[np.ndarray, np.ndarray]:
        place = [*rng.uniform(-0.1, 0.1, 2), 0.06 + rng.uniform(0, 1) * speed * STEP]
        spin = spins * rng.normal(size=3)
        return _state([place], [[*rng.normal(size=2), -speed]], [_turn(rng)], [spin])

    return Case(name, system, start, lambda q0, v0, q, v: q[2] < 0)


def _at_each_other(one: Any, other: Any, name: str, aside: float) -> Case:
    """A body thrown at another one at rest, so that they meet."""
    bodies = [_ball("one", (0.0, 0.0, 0.0), 0.01), _ball("other", (0.2, 0.0, 0.0), 0.01)]
    system = _assemble(bodies, [one("one", np.zeros(3)), other("other", np.array([0.2, 0.0, 0.0]))])

    def start(rng: Any, speed: float) -> tuple[np.ndarray, np.ndarray]:
        off = rng.normal(size=2)
        off *= aside * np.sqrt(rng.uniform()) / np.linalg.norm(off)
        places = [[-0.06 - rng.uniform(0, 1) * speed * STEP, *off], [0.06, 0.0, 0.0]]
        return _state(places, [[speed, 0.0, 0.0], np.zeros(3)], [_turn(rng), _turn(rng)])

    return Case(name, system, start, lambda q0, v0, q, v: np.abs(v - v0).max() == 0)


def _chain() -> Case:
    """A heavy ball strikes a small one in front of a wall of 2 mm."""
    bodies = [_ball("heavy", (0.0, 0.0, 0.0), 0.1, 100.0), _ball("small", (0.2, 0.0, 0.0), 0.005, 0.01)]
    wall = um.Cuboid("ground", (0.3, 0.0, 0.0), (0.002, 1.0, 1.0))
    spheres = [um.Sphere("heavy", (0.0, 0.0, 0.0), 0.1), um.Sphere("small", (0.2, 0.0, 0.0), 0.005)]
    system = _assemble(bodies, [wall, *spheres], restitution=0.0)

    def start(rng: Any, speed: float) -> tuple[np.ndarray, np.ndarray]:
        gap = rng.uniform(1e-4, 0.02)
        small = 0.299 - 0.005 - gap
        heavy = small - 0.105 - rng.uniform(0, 1) * speed * STEP
        return _state([[heavy, 0.0, 0.0], [small, 0.0, 0.0]], [[speed, 0, 0], np.zeros(3)])

    return Case("a heavy ball, a small one, a wall", system, start, lambda q0, v0, q, v: q[7] > 0.3)


def _rod_past_peg() -> Case:
    """A rod on a hinge, of 2 mm, turns towards a peg of 2 mm."""
    rod = um.rod("rod", (0.0, 0.0, 0.0), (0.3, 0.0, 0.0), mass=1.0, radius=0.002)
    hinge = um.Revolute("hinge", "ground", "rod", point=(0.0, 0.0, 0.0), axis=(0, 0, 1))
    peg = um.Capsule("ground", (0.0, 0.25, -0.1), (0.0, 0.25, 0.1), 0.002)
    system = _assemble([rod], [peg, um.Capsule("rod", (0.0, 0.0, 0.0), (0.3, 0.0, 0.0), 0.002)], [hinge])

    def start(rng: Any, speed: float) -> tuple[np.ndarray, np.ndarray]:
        turn = min(speed / 0.3 * STEP, 0.7)
        return np.array([np.pi / 2 - 0.05 - rng.uniform(0, 1) * turn]), np.array([speed / 0.3])

    return Case("a rod past a peg", system, start, lambda q0, v0, q, v: q[0] > np.pi / 2)


def _in_plane() -> Case:
    """A disc of 5 mm and a bar of 2 mm in the plane."""
    disc = um.PlanarBody("disc", 1.0, (0.0, 0.1), 1e-5)
    shapes = [um.Cuboid("ground", (0.0, 0.0), (1.0, 0.002)), um.Sphere("disc", (0.0, 0.1), 0.005)]
    system = _assemble([disc], shapes)

    def start(rng: Any, speed: float) -> tuple[np.ndarray, np.ndarray]:
        place = [rng.uniform(-0.1, 0.1), 0.02 + rng.uniform(0, 1) * speed * STEP, 0.0]
        return np.array(place), np.array([rng.normal(), -speed, 0.0])

    return Case("a disc on a bar in the plane", system, start, lambda q0, v0, q, v: q[1] < 0)


def _onto_field() -> Case:
    """A ball of 5 mm on ground with hills."""
    x = np.linspace(0, 20, 41)
    heights = 0.02 * np.sin(x)[:, None] * np.cos(x)[None]
    field = um.HeightField("ground", (0.0, 0.0, 0.0), heights, (1.0, 1.0))
    system = _assemble([_ball("ball", (0, 0, 0.1), 0.005)], [field, um.Sphere("ball", (0, 0, 0.1), 0.005)])

    def start(rng: Any, speed: float) -> tuple[np.ndarray, np.ndarray]:
        place = [*rng.uniform(-0.1, 0.1, 2), 0.06 + rng.uniform(0, 1) * speed * STEP]
        return _state([place], [[0.0, 0.0, -speed]])

    return Case("a ball on a height field", system, start, lambda q0, v0, q, v: q[2] < -0.03)


def cases() -> list[Case]:
    """All of them."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(12, 3))
    points *= 0.02 / np.linalg.norm(points, axis=1)[:, None]
    at, x, z = np.array([0.0, 0.0, 0.1]), np.array([0.05, 0.0, 0.0]), np.array([0.0, 0.0, 0.05])
    ball = lambda name, p: um.Sphere(name, p, 0.01)
    hull = lambda name, p: um.ConvexHull(name, p + points)
    bar = lambda name, p: um.Cuboid(name, p, (0.01, 0.01, 0.1))
    rod = lambda name, p: um.Capsule(name, p - z, p + z, 0.002)
    can = lambda name, p: um.Cylinder(name, p - 0.1 * z, p + 0.1 * z, 0.01)
    return [
        _onto_plate(um.Sphere("body", at, 0.005), "a ball on a plate"),
        _onto_plate(um.Cuboid("body", at, (0.02, 0.03, 0.01)), "a box that turns, on a plate", spins=50.0),
        _onto_plate(um.ConvexHull("body", at + points), "a hull that turns, on a plate", spins=50.0),
        _onto_plate(
            um.Capsule("body", at - x, at + x, 0.002),
            "a rod that turns, on a plate",
            spins=200.0,
        ),
        _at_each_other(ball, ball, "a ball on a ball", 0.018),
        _at_each_other(hull, hull, "a hull on a hull", 0.01),
        _at_each_other(bar, bar, "a bar on a bar, edges and all", 0.004),
        _at_each_other(rod, rod, "a rod on a rod", 0.001),
        _at_each_other(can, ball, "a can on a ball", 0.01),
        _chain(),
        _rod_past_peg(),
        _in_plane(),
        _onto_field(),
    ]


def thrown(case: Case, speed: float, starts: int) -> dict[str, float]:
    """What became of a case at a speed."""
    rng = np.random.default_rng(1)
    states = [case.start(rng, speed) for _ in range(starts)]
    q0, v0 = (np.stack(x) for x in zip(*states, strict=True))
    ts = np.linspace(0, STEP * STEPS, 4 * STEPS + 1)

    def run(q: Any, v: Any) -> Any:
        found = uk.simulate(case.system, q, v, t1=STEP * STEPS, ts=ts, contact="steps", dt0=STEP)
        return found.q, found.v, found.contacts.gap, found.energy, found.stats

    q, v, gap, energy, stats = jax.device_get(jax.jit(jax.vmap(run))(q0, v0))
    missed = [case.missed(*x) for x in zip(q[:, 0], v[:, 0], q[:, -1], v[:, -1], strict=True)]
    return {
        "missed": float(np.mean(missed)),
        "deepest": max(-float(np.nanmin(gap)), 0.0),
        "energy": float((energy[:, -1] / energy[:, 0]).max() - 1),
        "parts": int(np.max(stats["num_steps"])),
    }


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--starts", type=int, default=200)
    parser.add_argument("--only", default="", help="cases with this in their name")
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    print("| case | speed [m/s] | missed | deepest [m] | energy | parts |")
    print("|---|---|---|---|---|---|")
    for case in cases():
        for speed in SPEEDS if given.only in case.name else ():
            x = thrown(case, speed, given.starts)
            print(
                f"| {case.name} | {speed:g} | {x['missed']:.1%} | {x['deepest']:.0e} | {x['energy']:.0e} | "
                f"{x['parts']} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
