"""A rigid cube identified from real tosses onto a table, and tosses it has not seen predicted; MuJoCo beside it.

550 tosses of an acrylic cube, tracked by tags at 148 Hz (ContactNets: Pfrommer, Halm and Posa 2020). From the first
tosses of a random order follow friction, restitution, inertia, and height and tilt of the table: `uk.identify` with
`contact="differentiated steps"` and Cauchy's loss. The velocities at the start of each toss are unknown too, since those
measured are differences of places. MuJoCo's friction, `solref`, `solimp`, inertia, height and tilt follow from the same
loss of the same samples by SciPy's method of Nelder and Mead, from the measured velocities, in as many seconds of
processor time as `identify` took. Both take steps of a quarter of a sample. Of the last 150 tosses each is predicted from
its first measured state.

    python benchmarks/cube_tosses.py --data cube_tosses.npz [--tosses 16 64] [--only ukjax]

The file has `states` (quaternion w x y z, position, angular velocity in the axes of the body, velocity), `lengths` of the
tosses, and the table at z = 0.
"""

import argparse
import contextlib
import time
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
HELD_OUT = 150
SPEEDS = (0.05, 0.05, 0.05, 0.5, 0.5, 0.5)  # errors of the first velocities [m/s], [rad/s]
SEARCHED = {"friction": 0.2, "restitution": 0.1, "inertia": 0.8e-3, "height": 0.0, "tilt": np.zeros(2)}
BOUNDS = {"friction": (0.0, 2.0), "restitution": (0.0, 0.95), "inertia": (1e-4, 3e-3)}


class Toss(NamedTuple):
    """A toss as coordinates x, y, z, quaternion (k, 7), and the velocities it starts with (6,)."""

    q: np.ndarray
    v0: np.ndarray

    @property
    def t(self) -> np.ndarray:
        return SAMPLE * np.arange(len(self.q))


def load(file: Path) -> list[Toss]:
    data = np.load(file)
    states = np.split(np.asarray(data["states"], float), np.cumsum(data["lengths"])[:-1])
    half_a_step = np.array([0.0, 0.0, -0.5 * GRAVITY * SAMPLE])  # velocities are backward differences
    return [
        Toss(
            np.concatenate([x[:, 4:7], x[:, :4]], axis=1),
            np.concatenate([x[0, 10:13] + half_a_step, x[0, 7:10]]),
        )
        for x in states
    ]


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


# --- ukjax


def cube(friction, restitution, inertia, height, tilt):
    body = um.Body("cube", MASS, (0.0, 0.0, 0.0), inertia * jnp.ones(3))
    normal, zero = jnp.append(jnp.asarray(tilt), 1.0), jnp.zeros_like(jnp.asarray(height, float))
    floor = um.HalfSpace("ground", point=jnp.stack([zero, zero, height]), normal=normal)
    box_ = um.Cuboid("cube", (0.0, 0.0, 0.0), (EDGE, EDGE, EDGE))
    touch = um.Contact(box_, floor, restitution=restitution, friction=friction)
    system = um.assemble([body], loads=[um.Gravity()], contacts=[touch], name="cube")
    return uk.Problem(system, jnp.array([0.0, 0.0, 0.3, 1.0, 0.0, 0.0, 0.0]), jnp.zeros(6), 0.0, 1.0)


def fit_ukjax(tosses: list[Toss]) -> uk.IdentifyResult:
    """Velocities at the start are unknown, with those measured and their errors as priors."""
    names = [str(i) for i in range(len(tosses))]
    recordings = [
        uk.Recording(x.t[1:], outputs(x.q[1:], np), q0=x.q[0], v0=x.v0, name=name)
        for x, name in zip(tosses, names, strict=True)
    ]
    priors = {
        f"cube {which}'{' of ' * (len(tosses) > 1)}{name * (len(tosses) > 1)}": (x.v0[k], SPEEDS[k])
        for x, name in zip(tosses, names, strict=True)
        for k, which in enumerate(("x", "y", "z", "wx", "wy", "wz"))
    }
    return uk.identify(
        cube, recordings, SEARCHED, measure=outputs, bounds=BOUNDS, priors=priors, loss="cauchy", initial="v0",
        contact="differentiated steps", dt0=SAMPLE / SUBSTEPS,
    )  # fmt: skip


def predict_ukjax(parameters: dict[str, Any], tosses: list[Toss]) -> list[np.ndarray]:
    problem, longest = cube(**parameters), max(len(x.q) for x in tosses)
    times = SAMPLE * np.arange(longest)

    def run(q0: Any, v0: Any) -> Any:
        return uk.simulate(
            problem.system, q0, v0, t1=float(times[-1]), ts=times, contact="steps", dt0=SAMPLE / SUBSTEPS
        ).q

    q0, v0 = jnp.stack([x.q[0] for x in tosses]), jnp.stack([x.v0 for x in tosses])
    q = np.asarray(jax.jit(jax.vmap(run))(q0, v0))
    return [found[: len(x.q)] for found, x in zip(q, tosses, strict=True)]


# --- MuJoCo


def predict_mujoco(x: np.ndarray, tosses: list[Toss]) -> list[np.ndarray]:
    import mujoco

    friction, stiff, damped, width, inertia, height, *tilt = x
    up = np.array([*tilt, 1.0]) / np.linalg.norm([*tilt, 1.0])
    xml = f"""<mujoco><option timestep="{SAMPLE / SUBSTEPS}" gravity="0 0 {-GRAVITY}" cone="elliptic"/>
    <worldbody><geom type="plane" size="2 2 1" pos="0 0 {height}" zaxis="{up[0]} {up[1]} {up[2]}" name="table"/>
    <body><freejoint/><inertial pos="0 0 0" mass="{MASS}" diaginertia="{inertia} {inertia} {inertia}"/>
    <geom type="box" size="{EDGE / 2} {EDGE / 2} {EDGE / 2}" friction="{friction} 0 0" solref="{stiff} {damped}"
    solimp="0.9 0.95 {width} 0.5 2" condim="3" priority="1"/></body></worldbody></mujoco>"""
    model = mujoco.MjModel.from_xml_string(xml)
    data, found = mujoco.MjData(model), []
    for toss in tosses:
        mujoco.mj_resetData(model, data)
        data.qpos[:], data.qvel[:] = toss.q[0], toss.v0
        q = np.empty_like(toss.q)
        for k in range(len(q)):
            q[k] = data.qpos
            for _ in range(SUBSTEPS):
                mujoco.mj_step(model, data)
        found.append(q)
    return found


def loss(tosses: list[Toss], predicted: list[np.ndarray], noise: np.ndarray) -> float:
    """Cauchy's, of all samples."""
    total = 0.0
    for x, q in zip(tosses, predicted, strict=True):
        r = (outputs(q[1:], np) - outputs(x.q[1:], np)) / noise / 2.385
        total += float(np.sum(np.log1p(np.nan_to_num(r, nan=1e3) ** 2)))
    return total


def fit_mujoco(tosses: list[Toss], noise: np.ndarray, seconds: float) -> tuple[np.ndarray, int]:
    """Nelder and Mead's method through logarithms of what is positive, for some seconds of processor time."""
    start, count, best = time.process_time(), 0, (np.inf, np.zeros(8))
    first = np.array([*np.log([0.2, 0.02, 0.5, 1e-3, 0.8e-3]), 0.0, 0.0, 0.0])
    simplex = first + np.vstack([np.zeros(8), np.diag([0.5, 0.5, 0.5, 1.0, 0.2, 1e-3, 5e-3, 5e-3])])
    real = lambda z: np.array([*np.exp(z[:5]), *z[5:]])

    def evaluate(z: np.ndarray) -> float:
        nonlocal count, best
        if time.process_time() - start > seconds:
            raise StopIteration
        count += 1
        value = loss(tosses, predict_mujoco(real(z), tosses), noise)
        best = min(best, (value, z), key=lambda x: x[0])
        return value

    with contextlib.suppress(StopIteration):
        minimize(
            evaluate,
            first,
            method="Nelder-Mead",
            options={"initial_simplex": simplex, "maxfev": 10**6, "xatol": 1e-5},
        )
    return real(best[1]), count


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


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the file of tosses, .npz")
    parser.add_argument("--tosses", type=int, nargs="+", default=[16], help="how many to identify from")
    parser.add_argument("--held-out", type=int, default=HELD_OUT, help="how many to predict")
    parser.add_argument("--only", choices=["ukjax"], help="without MuJoCo")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    tosses = load(options.data)
    order = np.random.default_rng(0).permutation(len(tosses))
    unseen = [tosses[i] for i in order[-options.held_out :]]
    columns = (
        "tosses",
        "program",
        "place along [edges]",
        "at the end",
        "rotation along [deg]",
        "at the end",
        "faces [%]",
    )
    table = Table(*columns, "fit, CPU [s]", box=box.MARKDOWN)
    first = predict_ukjax(SEARCHED, unseen)
    table.add_row("0", "ukjax, first guess", *judge(unseen, first), "")
    for count in options.tosses:
        seen = [tosses[i] for i in order[:count]]
        start = time.process_time()
        found = fit_ukjax(seen)
        seconds = time.process_time() - start
        print(found, flush=True)
        table.add_row(
            str(count), "ukjax", *judge(unseen, predict_ukjax(found.parameters, unseen)), f"{seconds:.0f}"
        )
        if options.only is None:
            x, tried = fit_mujoco(seen, found.noise, seconds)
            names = "friction", "solref", "damping ratio", "width", "inertia", "height", "tilt", "tilt"
            print(
                "MuJoCo:",
                ", ".join(f"{a} {b:.4g}" for a, b in zip(names, x, strict=True)),
                f"({tried} trials)",
            )
            table.add_row("", "MuJoCo", *judge(unseen, predict_mujoco(x, unseen)), f"{seconds:.0f}")
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
