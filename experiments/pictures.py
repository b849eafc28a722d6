"""The pictures of README and docs, drawn from runs.

    python experiments/pictures.py [parallelogram cassie gripper drift mechanisms ...] [--out docs/pictures]

Each is below 400 kB. The robots' files are in `experiments/robots`. Pictures of a page of docs
show what its own code computes.
"""

import argparse
import contextlib
import io
import os
import re
import tempfile
from pathlib import Path

import diffrax as dfx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import mujoco
import numpy as np
from matplotlib.animation import FuncAnimation

import ukjax as uk
import ukjax.mechanisms as um

HERE = Path(__file__).parent
PICTURES = HERE.parent / "docs" / "pictures"
ROBOTS = HERE / "robots"
LIMIT = 400_000  # bytes of a film


def place(name: str) -> Path:
    """Where a film goes."""
    return PICTURES / f"{name}.gif"


def parallelogram() -> None:
    """Three cranks pass their flat position, where the rows depend on each other; arrows are the forces in the joints."""
    up = np.array([0.5, 0.75**0.5])
    cranks = [um.rod(f"crank {k + 1}", (k, 0.0), up + np.array([k, 0.0]), mass=1.0) for k in range(3)]
    coupler = um.rod("coupler", up, up + np.array([2.0, 0.0]), mass=1.0)
    pins = [um.Revolute(f"pin {k + 1}", "ground", f"crank {k + 1}", (float(k), 0.0)) for k in range(3)]
    pins += [
        um.Revolute(f"joint {k + 1}", f"crank {k + 1}", "coupler", up + np.array([k, 0.0])) for k in range(3)
    ]
    system = um.assemble([*cranks, coupler], pins, [um.Gravity()])
    problem = um.problem(system, rates={"pin 1": -1.0}, t1=2.6)
    run = uk.simulate(problem, ts=261)
    run.animate(place("parallelogram"), problem=named(problem, "parallelogram"), parts="reactions", fps=15)


def cassie() -> None:
    """Cassie held at its pelvis, its ten motors at a tenth of their strength; rods and springs close its loops."""
    text = (ROBOTS / "cassie.xml").read_text()
    held = text.replace("<freejoint/>", "").replace('qpos="0 0 1.0059301 1 0 0 0 ', 'qpos="')
    amplitude = 0.1 * np.array([4.5, 4.5, 12.2, 12.2, 0.9] * 2)
    phase = np.repeat([0.0, np.pi], 5)
    robot = uk.load(held, ctrl=lambda t: amplitude * jnp.sin(4 * jnp.pi * t + phase))
    run = uk.simulate(robot.problem, t1=1.0, ts=101)
    run.animate(place("cassie"), problem=named(robot.problem, "Cassie"), fps=15, speed=0.5)


def gripper() -> None:
    """A Robotiq gripper closes on a ball that floats between its pads."""
    spec = mujoco.MjSpec.from_file(str(ROBOTS / "robotiq_2f85.xml"))
    for mesh in [x for x in spec.geoms if x.type == mujoco.mjtGeom.mjGEOM_MESH]:
        spec.delete(mesh)
    ball = spec.worldbody.add_body(name="ball", pos=[0.004, 0.0, 0.135])
    ball.add_freejoint()
    ball.add_geom(type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[0.017, 0, 0], mass=0.05, rgba=[0.9, 0.45, 0.1, 1])
    spec.option.gravity = [0.0, 0.0, 0.0]
    for key in spec.keys:
        key.qpos = [*key.qpos, 0.004, 0.0, 0.135, 1.0, 0.0, 0.0, 0.0]
    robot = uk.load(spec.to_xml(), ctrl=lambda t: jnp.array([0.0]), contact=["self"])
    run = uk.simulate(robot.problem, t1=0.5, ts=101, contact="steps", dt0=5e-4)
    run.animate(place("gripper"), problem=named(robot.problem, "gripper"), fps=15, speed=0.25)


def drift() -> None:
    """The rod of a pendulum that starts 1 % off, with gains as guessed and as found by `uk.tune`."""
    problem = uk.models.pendulum(rate=0.5)
    off, guess = 1.01 * problem.q0, uk.Baumgarte(0.5, 200.0)
    fixed = {"dt0": 0.01, "stepsize_controller": dfx.ConstantStepSize()}
    tuned = uk.tune(problem, guess, q0=off, t1=1.0, **fixed).gains
    figure, axes = plt.subplots(figsize=(7.0, 3.6), layout="constrained")
    lines = []
    for name, gains, colour in (("guessed gains", guess, "#d55e00"), ("tuned gains", tuned, "#0072b2")):
        run = uk.simulate(problem, off, t1=1.0, ts=201, stabilizer=gains)
        error = np.abs(np.asarray(run.position_error[:, 0])) + 1e-12
        lines.append((*axes.semilogy([], [], label=name, color=colour, lw=2), np.asarray(run.t), error))
    axes.set(xlabel="time [s]", ylabel="error of the rod's length [m²]", xlim=(0, 1), ylim=(1e-10, 0.1))
    axes.legend(loc="lower left")
    axes.grid(alpha=0.25)

    def draw_frame(frame: int) -> list:
        for line, t, error in lines:
            line.set_data(t[: 5 * frame + 1], error[: 5 * frame + 1])
        return [x[0] for x in lines]

    FuncAnimation(figure, draw_frame, frames=41).save(place("drift"), writer="pillow", fps=12, dpi=62)


def named(problem: uk.Problem, name: str) -> uk.Problem:
    """The problem under another name and without named points, whose paths would hide the bodies."""
    return uk.Problem(problem.system, problem.q0, problem.v0, problem.t0, problem.t1, name=name)


# --- Pictures of pages


def run_page(name: str, blocks: int = 1) -> dict:
    """What the first Python blocks of a page of the docs compute, by name."""
    text = (HERE.parent / "docs" / f"{name}.md").read_text()
    names: dict = {"__name__": name}
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        for block in re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)[:blocks]:
            exec(block, names)
    return names


def draw(name: str, x: str, y: str, *, log: bool = False, **lines: tuple) -> None:
    """A plot of named lines, each (x values, y values, style)."""
    figure, axes = plt.subplots(figsize=(5.5, 3.2), layout="constrained")
    for label, line in lines.items():
        axes.plot(*line, ms=4, label=label.replace("_", " "))
    axes.set(xlabel=x, ylabel=y, yscale="log" if log else "linear")
    axes.grid(alpha=0.3)
    if len(lines) > 1:
        axes.legend()
    figure.savefig(PICTURES / f"{name}.png", dpi=110)


def gradients() -> None:
    """Gradient descent on the length of a pendulum."""
    miss = jax.jit(jax.vmap(jax.value_and_grad(run_page("gradients")["miss"])))
    lengths, path = jnp.linspace(0.6, 1.8, 121), [1.0]
    for _ in range(8):
        path.append(path[-1] - 0.3 * float(miss(jnp.array([path[-1]]))[1][0]))
    steps = jnp.array(path)
    draw(
        "gradients", "length [m]", "squared distance [m²]",
        every_length=(lengths, miss(lengths)[0]), gradient_descent=(steps, miss(steps)[0], "o-"),
    )  # fmt: skip


def sweeps() -> None:
    """The period of a pendulum over its angle, for two lengths."""
    runs = run_page("sweeps")["runs"]
    lines = {f"length_{x:g}_m": (runs.angle, runs.period.sel(length=x), "o-") for x in (0.5, 1.0)}
    draw("sweeps", "initial angle [rad]", "period [s]", **lines)


def tuning() -> None:
    """What `result.plot` draws."""
    run_page("tuning")["result"].plot(PICTURES / "tuning.png")


def identify() -> None:
    """What `result.plot` draws."""
    figure = run_page("identify")["result"].plot()
    figure.set_size_inches(6, 4.5)
    figure.savefig(PICTURES / "identify.png", dpi=110)


def analysis() -> None:
    """The linkage of the page at rest, and at times of the swing of its mode."""
    names = run_page("analysis", 7)
    figure, axes = plt.subplots(figsize=(5.5, 3.2), layout="constrained")
    for q, shade in [*((q, 0.2) for q in names["swing"][:13:2]), (names["rest"].q, 1.0)]:
        for line, colour in zip(names["four_bar"].drawing(0.0, q).values(), ("C0", "C1", "C2"), strict=False):
            axes.plot(*line.T, "o-", color=colour, lw=3, alpha=shade)
    axes.set(xlabel="x [m]", ylabel="y [m]", aspect="equal")
    figure.savefig(PICTURES / "analysis.png", dpi=110)


def learning() -> None:
    """Data and fit, and the losses of a training."""
    names = run_page("learning", 3)
    t = 0.02 * np.arange(1, 51)
    fit, guess = (names["positions"](jnp.asarray(x))[:, 0] for x in (names["fit"].value, 1.0))
    data = (t, names["data"][:, 0], ".")
    draw("learning-fit", "time [s]", "x [m]", data=data, fit=(t, fit), first_guess=(t, guess, "--"))
    losses = names["losses"]
    draw("learning-loss", "iteration", "mean squared error [m²]", log=True, loss=(range(len(losses)), losses))


RUNS = {"mechanisms": "run", "contact": "run", "viewer": "run", "tutorial": "turning"}
"""Pages whose first block has a run, and its name: their picture is its film."""
DRAWN = (parallelogram, cassie, gripper, drift, gradients, sweeps, tuning, identify, analysis, learning)


def main() -> None:
    global PICTURES
    functions = {x.__name__: x for x in DRAWN}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", choices=[*functions, *RUNS, []], help="which; by default all")
    parser.add_argument("--out", type=Path, default=PICTURES, help="the folder they go to")
    given = parser.parse_args()
    PICTURES = given.out.absolute()
    PICTURES.mkdir(exist_ok=True)
    jax.config.update("jax_enable_x64", True)
    for name in given.names or (*functions, *RUNS):
        if name in RUNS:
            run_page(name)[RUNS[name]].animate(place(name), fps=15)
        else:
            functions[name]()
    for path in sorted(PICTURES.iterdir()):
        size = path.stat().st_size
        print(f"{path.name}: {size / 1000:.0f} kB{'' if size < LIMIT else ', too large'}")


if __name__ == "__main__":
    os.environ.setdefault("MPLBACKEND", "agg")
    main()
