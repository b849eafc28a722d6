"""A controller in C holds a five-bar arm on a circle: computed torque at 1 kHz, against the simulation in one process.

    python experiments/controller_in_c.py [--out out/controller_in_c] [--quick]

Two motors at the base drive an arm with a closed loop: five links, the ground one of them. Servo control finds their
torques from equations of motion that know the loop (`uk.with_servo`); `uk.to_c` writes it as C, and `cc` compiles it.
Every millisecond the C function is given what encoders would measure, and the arm moves under torques held until the
next. The same loop runs with torques from ukjax, and once with links a tenth heavier than the controller's.

The second table is the time of 100,000 calls by ctypes, of which Python takes some microseconds. Whatever else the
machine does is in the worst ones, and more of it in the time than in the processor time.
"""

import argparse
import ctypes
import subprocess
import time
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import ukjax as uk
import ukjax.mechanisms as um

LEFT, RIGHT, TIP = (-0.5, 0.0), (0.5, 0.0), (0.0, -1.0)
ELBOWS = (-0.78, -0.56), (0.78, -0.56)
RADIUS, RATE = 0.1, 3.0  # m, rad/s
DT = 1e-3


def arm(mass: float = 1.0) -> uk.Problem:
    """The arm at rest; `mass` of each link [kg]."""
    ends = {
        "upper 1": (LEFT, ELBOWS[0]), "lower 1": (ELBOWS[0], TIP),
        "upper 2": (RIGHT, ELBOWS[1]), "lower 2": (ELBOWS[1], TIP),
    }  # fmt: skip
    links = [um.rod(name, *points, mass) for name, points in ends.items()]
    joints = [
        um.Revolute("left base", "ground", "upper 1", LEFT),
        um.Revolute("left elbow", "upper 1", "lower 1", ELBOWS[0]),
        um.Revolute("right base", "ground", "upper 2", RIGHT),
        um.Revolute("right elbow", "upper 2", "lower 2", ELBOWS[1]),
    ]
    motors = [um.Actuator(f"{side} motor", f"{side} base") for side in ("left", "right")]
    tip = um.Revolute("tip", "lower 1", "lower 2", TIP)
    return um.problem(um.tree(links, joints, [um.Gravity(), *motors], loops=[tip], name="five-bar"))


def circle(t: Any) -> Any:
    """Where the tip is to be [m]: it starts at rest where the arm does."""
    angle = RATE * t - jnp.sin(RATE * t)
    return jnp.array(TIP) + RADIUS * jnp.stack([jnp.sin(angle), jnp.cos(angle) - 1])


def controlled(problem: uk.Problem) -> uk.Problem:
    """The arm under servo control, its errors fading within some hundredths of a second."""
    system = problem.system
    path = uk.Holonomic(lambda t, q: system.points(t, q)["lower 1.end"] - circle(t), name="path")
    return uk.with_servo(problem, um.input_matrix(system), path, stabilizer=uk.Baumgarte(40.0, 400.0))


class InC:
    """The controller, as C.

    **Arguments:**

    - `problem`: the model that it knows.
    - `folder`: where it is written and compiled.
    """

    def __init__(self, problem: uk.Problem, folder: Path):
        self.export = uk.to_c(controlled(problem), folder, "servo", name="arm", bounded=True)
        library = folder / "arm.so"
        options = ["-std=c99", "-O2", "-Wall", "-Wextra", "-pedantic", "-shared", "-fPIC"]
        subprocess.run(["cc", *options, folder / "arm.c", "-lm", "-o", library], check=True)
        loaded = ctypes.CDLL(str(library.resolve()))
        self._servo, self._own = (
            loaded.arm_servo,
            ctypes.byref(ctypes.c_double.in_dll(loaded, "arm_defaults")),
        )
        self._u = np.zeros(2)

    def __call__(self, t: float, q: np.ndarray, v: np.ndarray) -> np.ndarray:
        """The torques [N m]."""
        place = lambda x: ctypes.c_void_p(x.ctypes.data)
        self._servo(self._own, ctypes.c_double(t), place(q), place(v), place(self._u))
        return self._u


def follow(problem: uk.Problem, control: Any, steps: int) -> tuple[np.ndarray, np.ndarray, list[Any]]:
    """How far the tip is off the circle after each step, the torques, and the states that the controller was given."""
    matrix = um.input_matrix(problem.system)
    held = uk.Environment(
        problem, lambda t, q, v, u: matrix(t, q) @ u, lambda t, q, v, u: 0.0, dt=DT, horizon=steps
    )
    move = eqx.filter_jit(lambda state, u: held.step(state, u)[0])
    off = jax.jit(lambda t, q: jnp.linalg.norm(problem.system.points(t, q)["lower 1.end"] - circle(t)))
    state, errors, torques, seen = held.reset(jax.random.key(0)), [], [], []
    for k in range(steps):
        q, v = np.array(state.q), np.array(state.v)
        u = np.array(control(k * DT, q, v))
        seen.append((k * DT, q, v))
        state = move(state, jnp.asarray(u))
        errors.append(float(off((k + 1) * DT, state.q)))
        torques.append(u)
    return np.array(errors), np.array(torques), seen


def time_calls(control: Any, seen: list[Any], count: int, clock: Any) -> np.ndarray:
    """The time of each of so many calls [µs]."""
    times = np.empty(count)
    for k in range(count):
        at = seen[k % len(seen)]
        start = clock()
        control(*at)
        times[k] = 1e-3 * (clock() - start)
    return times


def main() -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out/controller_in_c"))
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    steps, calls = (200, 2_000) if given.quick else (2_000, 100_000)
    problem = arm()
    in_c, system = InC(problem, given.out), controlled(problem).system
    here = jax.jit(lambda t, q, v: system.control(t, q, v))  # pyright: ignore[reportAttributeAccessIssue]
    runs = {
        "controller in C": follow(problem, in_c, steps),
        "controller in ukjax": follow(problem, here, steps),
        "controller in C, links a tenth heavier": follow(arm(1.1), in_c, steps),
    }
    print("| | largest error of the tip [mm] | at the end [mm] | largest torque [N m] |\n|---|---|---|---|")
    for name, (errors, torques, _) in runs.items():
        print(f"| {name} | {1e3 * errors.max():.3f} | {1e3 * errors[-1]:.3f} | {np.abs(torques).max():.1f} |")
    difference = np.abs(runs["controller in C"][1] - runs["controller in ukjax"][1]).max()
    print(f"\nTorques of C and of ukjax differ by {difference:.0e} N m at most, over the whole run.\n")
    (of,) = in_c.export.functions.values()
    print(f"{calls} calls, of {of.operations} operations and about {of.stack_bytes} bytes of stack:\n")
    print("| | median [µs] | 99.9 % [µs] | worst [µs] |\n|---|---|---|---|")
    for name, clock in (("processor time", time.thread_time_ns), ("time", time.perf_counter_ns)):
        times = time_calls(in_c, runs["controller in C"][2], calls, clock)
        print(f"| {name} | {np.median(times):.1f} | {np.quantile(times, 0.999):.1f} | {times.max():.0f} |")


if __name__ == "__main__":
    main()
