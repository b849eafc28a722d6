"""A rigid cube identified from real tosses, and tosses it has not seen predicted; MuJoCo and Drake beside it.

550 tosses of an acrylic cube, tracked by tags at 148 Hz (ContactNets: Pfrommer, Halm and Posa 2020). From the first
tosses of a random order follow friction, restitution, inertia, height and tilt of the table, the edge of the cube and
gravity, both in the lengths and times of the tracking. Tosses are cut into windows of 24 samples, each from its own
measured state: over a whole toss small errors grow until the fit knows nothing of an impact. `uk.identify` takes time
steps of a quarter of a sample, with derivatives by differences (`contact="steps"`), Cauchy's loss, and the velocities at
the start of each window as unknowns, since those measured are differences of places.

MuJoCo and Drake get the same windows, loss, steps and as many seconds of processor time, from the measured velocities,
by Nelder and Mead's method; MuJoCo half of the time by the least squares of its own toolbox, and the better counts.
Their contacts have stiffness and damping in place of restitution. Of the last 150 tosses each is predicted from its
first measured state. "Of itself": the model predicts its own runs, from first velocities with the errors of those
measured.

    python benchmarks/cube_tosses.py --data cube_tosses.npz [--tosses 16 64 256] [--programs ukjax mujoco drake]

The file has `states` (quaternion w x y z, position, angular velocity in the axes of the body, velocity), `lengths` of the
tosses, and the table at z = 0.
"""

import argparse
import contextlib
import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table
from scipy.optimize import minimize
from scipy.spatial.transform import Rotation

import ukjax as uk
import ukjax.mechanisms as um

EDGE, MASS, SAMPLE, SUBSTEPS, GRAVITY = 0.1048, 0.37, 0.0068, 4, 9.81
STEP = SAMPLE / SUBSTEPS
HELD_OUT, WINDOW, SHORTEST = 150, 24, 8
TRACKED = (2.2e-5, 2.6e-4)  # errors of places [m] and rotations [rad], as scattered about free flights
SPEEDS = 3 * [2 * TRACKED[0] / SAMPLE] + 3 * [
    2 * TRACKED[1] / SAMPLE
]  # of velocities by differences, with some to spare
FIRST = {
    "friction": 0.2, "restitution": 0.1, "inertia": 0.8e-3, "height": 0.0, "tilt": np.zeros(2), "edge": 0.1048,
    "gravity": 9.81,
}  # fmt: skip
BOUNDS = {
    "friction": (0.0, 2.0), "restitution": (0.0, 0.95), "inertia": (1e-4, 3e-3), "edge": (0.09, 0.12),
    "gravity": (8.0, 11.0),
}  # fmt: skip


class Toss(NamedTuple):
    """A toss, or a window of one, as coordinates x, y, z, quaternion (k, 7), and the velocities it starts with (6,)."""

    q: np.ndarray
    v0: np.ndarray

    @property
    def t(self) -> np.ndarray:
        return SAMPLE * np.arange(len(self.q))


def load(file: Path) -> list[np.ndarray]:
    """Of each toss coordinates and velocities (k, 13)."""
    data = np.load(file)
    states = np.split(np.asarray(data["states"], float), np.cumsum(data["lengths"])[:-1])
    half_a_step = np.array([0.0, 0.0, -0.5 * GRAVITY * SAMPLE])  # velocities are backward differences
    return [np.hstack([x[:, 4:7], x[:, :4], x[:, 10:13] + half_a_step, x[:, 7:10]]) for x in states]


def toss(states: np.ndarray, first: int = 0, count: int | None = None) -> Toss:
    last = None if count is None else first + count + 1
    return Toss(states[first:last, :7], states[first, 7:])


def windows(tosses: list[np.ndarray]) -> list[Toss]:
    return [toss(x, k, WINDOW) for x in tosses for k in range(0, len(x) - SHORTEST, WINDOW)]


def outputs(q: Any, xp: Any = jnp) -> Any:
    """Place and axes of the cube, all in edges (..., 12)."""
    w, x, y, z = (q[..., i] for i in range(3, 7))
    n = w * w + x * x + y * y + z * z
    axes = [
        1 - 2 * (y * y + z * z) / n, 2 * (x * y - w * z) / n, 2 * (x * z + w * y) / n,
        2 * (x * y + w * z) / n, 1 - 2 * (x * x + z * z) / n, 2 * (y * z - w * x) / n,
        2 * (x * z - w * y) / n, 2 * (y * z + w * x) / n, 1 - 2 * (x * x + y * y) / n,
    ]  # fmt: skip
    return xp.concatenate([q[..., :3] / EDGE, xp.stack(axes, axis=-1)], axis=-1)


def look(tosses: list[np.ndarray]) -> None:
    """Prints what free flights and cubes at rest say of the tracking."""
    corners = np.array(np.meshgrid(*3 * [[-0.5, 0.5]])).reshape(3, -1).T * EDGE
    falls, off, faces, heights, up = [], [], [], [], []
    for x in tosses:
        R = Rotation.from_quat(np.roll(x[:, 3:7], -1, axis=1)).as_matrix()
        lowest = np.min(x[:, 2:3] + np.einsum("kj,cj->kc", R[:, 2], corners), axis=1)
        flight = int(np.argmax(lowest < 0.01))
        if flight >= 12:
            t = SAMPLE * np.arange(flight)
            fall = np.polyfit(t, x[:flight, 2], 2)
            falls.append(2 * fall[0])
            off.append(np.std(x[:flight, 2] - np.polyval(fall, t)))
        axis = int(np.argmax(np.abs(R[-1, 2])))
        faces.append(2 * axis + (R[-1, 2, axis] > 0))
        heights.append(np.append(x[-4:, :3].mean(axis=0), 1.0))
        up.append(R[-1, :, axis] * np.sign(R[-1, 2, axis]))
    known, z = np.array(heights), np.array(heights)[:, 2]
    plane = np.hstack([np.eye(6)[faces], known[:, :2]])
    half, *_ = np.linalg.lstsq(plane, z)
    error = np.std(falls) / len(falls) ** 0.5
    print(f"{len(falls)} free flights: vertical acceleration {np.mean(falls):.3f} +- {error:.3f} m/s^2, ")
    print(f"  places scattered by {1e3 * np.median(off):.3f} mm")
    print(f"centre at rest above z = 0, by face [mm]: {', '.join(f'{1e3 * h:.2f}' for h in half[:6])}")
    print(
        f"  off a plane by {1e3 * np.std(z - plane @ half):.2f} mm; normals scattered by {np.std(up, axis=0)[:2]}"
    )


# --- ukjax


def cube(friction, restitution, inertia, height, tilt, edge, gravity):
    body = um.Body("cube", MASS, (0.0, 0.0, 0.0), inertia * jnp.ones(3))
    normal, zero = jnp.append(jnp.asarray(tilt), 1.0), jnp.zeros_like(jnp.asarray(height, float))
    floor = um.HalfSpace("ground", point=jnp.stack([zero, zero, height]), normal=normal)
    touch = um.Contact(
        um.Cuboid("cube", (0.0, 0.0, 0.0), edge * jnp.ones(3)),
        floor,
        restitution=restitution,
        friction=friction,
    )
    load = um.Gravity(jnp.stack([zero, zero, -gravity]))
    system = um.assemble([body], loads=[load], contacts=[touch], name="cube")
    return uk.Problem(system, jnp.array([0.0, 0.0, 0.3, 1.0, 0.0, 0.0, 0.0]), jnp.zeros(6), 0.0, 1.0)


def fit_ukjax(seen: list[Toss], noise: float, iterations: int, contact: Any) -> uk.IdentifyResult:
    """Velocities at the start are unknown, with those measured and their errors as priors."""
    recordings = [
        uk.Recording(x.t[1:], outputs(x.q[1:], np), q0=x.q[0], v0=x.v0, name=str(i))
        for i, x in enumerate(seen)
    ]
    priors = {
        f"cube {which}' of {i}": (x.v0[k], SPEEDS[k])
        for i, x in enumerate(seen)
        for k, which in enumerate(("x", "y", "z", "wx", "wy", "wz"))
    }
    return uk.identify(
        cube, recordings, FIRST, measure=outputs, noise=noise, bounds=BOUNDS, priors=priors, loss="cauchy",
        initial="v0", contact=contact, dt0=STEP, iterations=iterations,
    )  # fmt: skip


def predict_ukjax(parameters: dict[str, Any], tosses: list[Toss]) -> list[np.ndarray]:
    problem, longest = cube(**parameters), max(len(x.q) for x in tosses)
    times = SAMPLE * np.arange(longest)

    def run(q0: Any, v0: Any) -> Any:
        return uk.simulate(problem.system, q0, v0, t1=float(times[-1]), ts=times, contact="steps", dt0=STEP).q

    q0, v0 = jnp.stack([x.q[0] for x in tosses]), jnp.stack([x.v0 for x in tosses])
    q = np.asarray(jax.jit(jax.vmap(run))(q0, v0))
    return [found[: len(x.q)] for found, x in zip(q, tosses, strict=True)]


# --- The other programs: contacts of stiffness and damping, searched through numbers of the order of one

NUMBERS = "friction", "inertia", "stiffness", "damping", "width", "height", "tilt", "tilt", "edge", "gravity"
LOGARITHMS = 5  # of the first so many numbers
MOVES = np.array([0.3, 0.2, 0.5, 0.5, 1.0, 1e-3, 3e-3, 3e-3, 2e-3, 0.2])  # what a change of one is


def real(z: np.ndarray, first: np.ndarray) -> np.ndarray:
    x = z * MOVES
    return np.concatenate([first[:LOGARITHMS] * np.exp(x[:LOGARITHMS]), first[LOGARITHMS:] + x[LOGARITHMS:]])


# Friction, inertia, `solref` (time constant and damping ratio), width of `solimp`.
FIRST_MUJOCO = np.array([0.2, 0.8e-3, 0.02, 0.5, 1e-3, 0.0, 0.0, 0.0, EDGE, GRAVITY])
# Friction, inertia, stiffness [N/m], dissipation of Hunt and Crossley [s/m], and a number that does nothing.
FIRST_DRAKE = np.array([0.2, 0.8e-3, 1e4, 1.0, 1.0, 0.0, 0.0, 0.0, EDGE, GRAVITY])


def predict_mujoco(x: np.ndarray, tosses: list[Toss]) -> list[np.ndarray]:
    import mujoco as m

    mujoco: Any = m  # compiled, without types
    friction, inertia, stiff, damped, width, height, *tilt, edge, gravity = x
    up = np.array([*tilt, 1.0]) / np.linalg.norm([*tilt, 1.0])
    xml = f"""<mujoco><option timestep="{STEP}" gravity="0 0 {-gravity}" cone="elliptic"/>
    <worldbody><geom type="plane" size="2 2 1" pos="0 0 {height}" zaxis="{up[0]} {up[1]} {up[2]}" name="table"/>
    <body><freejoint/><inertial pos="0 0 0" mass="{MASS}" diaginertia="{inertia} {inertia} {inertia}"/>
    <geom type="box" size="{edge / 2} {edge / 2} {edge / 2}" friction="{friction} 0 0" solref="{stiff} {damped}"
    solimp="0.9 0.95 {width} 0.5 2" condim="3" priority="1"/></body></worldbody></mujoco>"""
    model = mujoco.MjModel.from_xml_string(xml)
    data, found = mujoco.MjData(model), []
    for seen in tosses:
        mujoco.mj_resetData(model, data)
        data.qpos[:], data.qvel[:] = seen.q[0], seen.v0
        q = np.empty_like(seen.q)
        for k in range(len(q)):
            q[k] = data.qpos
            mujoco.mj_step(model, data, nstep=SUBSTEPS)
        found.append(q)
    return found


def predict_drake(x: np.ndarray, tosses: list[Toss]) -> list[np.ndarray]:
    """Corners are spheres of a millimetre: of a box on a half-space point contact has a single point."""
    from pydrake import all as drake  # pyright: ignore[reportMissingImports]

    friction, inertia, stiffness, dissipation, _, height, *tilt, edge, gravity = x
    builder = drake.DiagramBuilder()
    plant, _ = drake.AddMultibodyPlantSceneGraph(builder, STEP)
    plant.mutable_gravity_field().set_gravity_vector([0, 0, -gravity])
    unit = drake.UnitInertia(*3 * [inertia / MASS])
    body = plant.AddRigidBody("cube", drake.SpatialInertia(MASS, np.zeros(3), unit))
    properties = drake.ProximityProperties()
    rubbing = drake.CoulombFriction(friction, friction)
    drake.AddContactMaterial(dissipation, stiffness, rubbing, properties)
    radius = 1e-3
    for i, corner in enumerate(np.array(np.meshgrid(*3 * [[-1, 1]])).reshape(3, -1).T):
        at = drake.RigidTransform(corner * (edge / 2 - radius))
        plant.RegisterCollisionGeometry(body, at, drake.Sphere(radius), str(i), properties)
    up = np.array([*tilt, 1.0]) / np.linalg.norm([*tilt, 1.0])
    table = drake.HalfSpace.MakePose(up, np.array([0.0, 0.0, height]))
    plant.RegisterCollisionGeometry(plant.world_body(), table, drake.HalfSpace(), "table", properties)
    plant.Finalize()
    simulator = drake.Simulator(builder.Build())
    root = simulator.get_mutable_context()
    context, found = plant.GetMyMutableContextFromRoot(root), []
    for seen in tosses:
        turned = Rotation.from_quat(np.roll(seen.q[0, 3:], -1)).apply(seen.v0[3:])
        root.SetTime(0.0)
        plant.SetPositions(context, np.roll(seen.q[0], -3))
        plant.SetVelocities(context, np.concatenate([turned, seen.v0[:3]]))
        simulator.Initialize()
        q = [seen.q[0]]
        for t in seen.t[1:]:
            simulator.AdvanceTo(t)
            q.append(np.roll(plant.GetPositions(context), 3))
        found.append(np.array(q))
    return found


def residuals(seen: list[Toss], predicted: list[np.ndarray], noise: float) -> np.ndarray:
    """Whose squares are Cauchy's loss."""
    off = [outputs(q[1:], np) - outputs(x.q[1:], np) for x, q in zip(seen, predicted, strict=True)]
    r = np.nan_to_num(np.concatenate(off) / noise / 2.385, nan=1e3).ravel()
    return np.sign(r) * np.sqrt(np.log1p(r**2))


Predict = Callable[[np.ndarray, list[Toss]], list[np.ndarray]]


def fit(
    predict: Predict, first: np.ndarray, seen: list[Toss], noise: float, seconds: float, toolbox: bool
) -> tuple[np.ndarray, int, float]:
    """The best numbers of some seconds of processor time, how many were tried, and the loss."""
    start, count, best = time.process_time(), 0, (np.inf, np.zeros(len(MOVES)))

    def evaluate(z: np.ndarray) -> np.ndarray:
        nonlocal count, best
        if time.process_time() - start > seconds:
            raise StopIteration
        count += 1
        r = residuals(seen, predict(real(z, first), seen), noise)
        best = min(best, (float(r @ r), z.copy()), key=lambda x: x[0])
        return r

    with contextlib.suppress(StopIteration):
        if toolbox:
            from mujoco.minimize import Verbosity, least_squares

            many = lambda z: np.stack([evaluate(x) for x in z.T], axis=1)
            while True:  # from the best again, with smaller differences
                for eps in (0.3, 0.1, 0.03):
                    least_squares(best[1], many, eps=eps, verbose=Verbosity.SILENT, max_iter=10)
        simplex = np.vstack([np.zeros(len(MOVES)), np.eye(len(MOVES))])
        loss = lambda z: float(np.sum(evaluate(z) ** 2))
        options = {"initial_simplex": simplex, "maxfev": 10**6, "xatol": 1e-3, "fatol": 1e-3}
        minimize(loss, np.zeros(len(MOVES)), method="Nelder-Mead", options=options)
    return real(best[1], first), count, best[0]


PROGRAMS: dict[str, tuple[Predict, np.ndarray, tuple[bool, ...]]] = {
    "mujoco": (predict_mujoco, FIRST_MUJOCO, (False, True)),
    "drake": (predict_drake, FIRST_DRAKE, (False,)),
}


# --- What predictions are worth


def judge(tosses: list[Toss], predicted: list[np.ndarray]) -> list[str]:
    """Median errors of place [edges] and of rotation [degrees], along tosses and at their ends, and right faces up."""
    place, turn, faces = [], [], []
    for x, q in zip(tosses, predicted, strict=True):
        place.append(np.linalg.norm(q[:, :3] - x.q[:, :3], axis=1) / EDGE)
        R, S = (Rotation.from_quat(np.roll(y[:, 3:], -1, axis=1)) for y in (q, x.q))
        turn.append(np.degrees((R * S.inv()).magnitude()))
        up = [r.as_matrix()[-1, 2] for r in (R, S)]
        faces.append(len({(int(np.argmax(np.abs(u))), bool(u[np.argmax(np.abs(u))] > 0)) for u in up}) == 1)
    along = lambda x: f"{np.median([y.mean() for y in x]):.3g}"
    end = lambda x: f"{np.median([y[-1] for y in x]):.3g}"
    return [along(place), end(place), along(turn), end(turn), f"{100 * np.mean(faces):.0f}"]


def from_measured_velocities(parameters: dict[str, Any], unseen: list[Toss]) -> list[str]:
    """What the model predicts of itself, from first velocities with the errors of those measured."""
    random, true = np.random.default_rng(0), predict_ukjax(parameters, unseen)
    noisy = [
        Toss(q, x.v0 + random.normal(size=6) * SPEEDS / 2**0.5) for q, x in zip(true, unseen, strict=True)
    ]
    return judge(noisy, predict_ukjax(parameters, noisy))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the file of tosses, .npz")
    parser.add_argument("--tosses", type=int, nargs="+", default=[16], help="how many to identify from")
    parser.add_argument("--held-out", type=int, default=HELD_OUT, help="how many to predict")
    parser.add_argument(
        "--noise", type=float, default=0.03, help="from which on residuals count less [edges]"
    )
    parser.add_argument("--iterations", type=int, default=10, help="of identify")
    parser.add_argument("--contact", default="steps", help="of identify")
    parser.add_argument("--look", action="store_true", help="only at free flights and cubes at rest")
    parser.add_argument("--programs", nargs="+", choices=["ukjax", *PROGRAMS], default=["ukjax", "mujoco"])
    parser.add_argument("--seconds", type=float, help="of others; by default what the first program took")
    options = parser.parse_args(arguments)
    if options.programs[0] != "ukjax" and options.seconds is None:
        parser.error("give --seconds, or let ukjax come first.")
    jax.config.update("jax_enable_x64", True)
    tosses = load(options.data)
    if options.look:
        return look(tosses)
    order = np.random.default_rng(0).permutation(len(tosses))
    unseen = [toss(tosses[i]) for i in order[-options.held_out :]]
    columns = (
        "tosses", "program", "place along [edges]", "at the end", "rotation along [deg]", "at the end", "faces [%]",
        "loss", "fit, CPU [s]",
    )  # fmt: skip
    table = Table(*columns, box=box.MARKDOWN)
    table.add_row("0", "ukjax, first guess", *judge(unseen, predict_ukjax(FIRST, unseen)), "", "")
    for count in options.tosses:
        seen = windows([tosses[i] for i in order[:count]])
        seconds, samples = options.seconds, 12 * sum(len(x.q) - 1 for x in seen)
        score = lambda loss, n=samples: f"{loss / n:.4f}"
        for program in options.programs:
            start = time.process_time()
            if program == "ukjax":
                found = fit_ukjax(seen, options.noise, options.iterations, options.contact)
                values = list(zip(found.names, found.values, found.standard_errors, strict=True))[:8]
                said = ", ".join(f"{name} {x:.4g} +- {error:.1g}" for name, x, error in values)
                said += f"; {len(seen)} windows, {len(found.names)} numbers, {len(found.costs)} steps"
                itself = from_measured_velocities(found.parameters, unseen)
                table.add_row(str(count), "ukjax, of itself", *itself, "", "")
                predict = functools.partial(predict_ukjax, found.parameters)
                loss = float(np.sum(residuals(seen, predict(seen), options.noise) ** 2))
            else:
                run, first, methods = PROGRAMS[program]
                fits = [
                    fit(run, first, seen, options.noise, seconds / len(methods), toolbox)
                    for toolbox in methods
                ]
                x, tried, loss = min(fits, key=lambda x: x[2])
                said = ", ".join(f"{a} {b:.4g}" for a, b in zip(NUMBERS, x, strict=True))
                said += f"; {tried} trials, losses {', '.join(score(x[2]) for x in fits)}"
                predict = functools.partial(run, x)
            spent = time.process_time() - start
            seconds = seconds or spent
            row = str(count), program, *judge(unseen, predict(unseen)), score(loss), f"{spent:.0f}"
            print(f"{' '.join(row)}: {said}", flush=True)
            table.add_row(*row)
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
