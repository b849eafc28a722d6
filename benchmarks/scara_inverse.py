"""The forces that keep the SCARA arm on its helix, at many instants: ukjax beside Pinocchio's `rnea` in C++, on one core.

    python benchmarks/scara_inverse.py [--batch 1024] [--rounds 5]

Its four rows prescribe all four coordinates, so that a program for given motions needs no constraint: Pinocchio is given
the accelerations, for nothing. ukjax finds them from the constraint functions, by `uk.lanes`, and then M a - Q.
"""

import argparse
import importlib
import importlib.util
import time
from collections.abc import Callable
from typing import Any

import _one_thread as _one_thread
import jax
import jax.numpy as jnp
import numpy as np
from _pinocchio_cpp import CompiledRobot, load_library
from _timing import interleaved, machine, pinned, table

import ukjax as uk


def arm(x: dict[str, float]) -> Any:
    """Pinocchio's model: two hinges, a third, and the slide of the tool, all along z."""
    pin: Any = importlib.import_module("pinocchio")
    model = pin.Model()
    model.gravity.linear = np.array([0.0, 0.0, -x["gravity"]])
    at = lambda y, z=0.0: pin.SE3(np.eye(3), np.array([0.0, y, z]))
    links = (
        (pin.JointModelRZ(), at(0.0, x["l0"]), x["m1"], x["r1"], x["Iz1"]),
        (pin.JointModelRZ(), at(x["l1"]), x["m2"], x["r2"], x["Iz2"]),
        (pin.JointModelRZ(), at(x["l2"]), x["m3"], 0.0, x["Iz3"]),
        (pin.JointModelPZ(), at(0.0), x["m4"], 0.0, x["Iz4"]),
    )
    for i, (joint, place, mass, centre, inertia) in enumerate(links):
        model.addJoint(i, joint, place, f"{i}")
        moments = np.diag([inertia] * 3)
        model.appendBodyToJoint(i + 1, pin.Inertia(mass, np.array([0.0, centre, 0.0]), moments), at(0.0))
    return model


def main() -> None:
    """Prints microseconds for one instant, and how far the forces differ."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    problem = uk.models.scara(exact_start=True)
    system, t = problem.system, jnp.asarray(0.1)
    rng = np.random.default_rng(0)
    q, v = (jnp.asarray(x + 0.1 * rng.normal(size=(given.batch, 4))) for x in (problem.q0, problem.v0))
    lanes = uk.lanes(problem)

    needed = jax.vmap(uk.scalarize(lambda q, v, a: system.mass_matrix(t, q) @ a - system.force(t, q, v)))
    accelerate = jax.jit(lambda q, v: lanes(t, q, v))
    ours = jax.jit(lambda q, v: needed(q, v, lanes(t, q, v)))
    cases: dict[str, Callable[[], Any]] = {
        "ukjax, acceleration": lambda: accelerate(q, v),
        "ukjax, acceleration and force": lambda: ours(q, v),
    }
    with pinned(1):
        a, force = accelerate(q, v), ours(q, v)
        if importlib.util.find_spec("pinocchio") is not None and load_library() is not None:
            x = {k: float(y) for k, y in vars(system).items() if np.ndim(y) == 0}
            robot = CompiledRobot(arm(x), ())
            states, wanted = np.hstack([q, v]), np.array(a)
            difference = np.max(np.abs(robot.torques(states, wanted) - force))
            print(f"forces differ by {difference:.1e} of {np.max(np.abs(force)):.3g}")
            cases["Pinocchio C++, rnea"] = lambda: robot.torques(states, wanted)
        found = interleaved(cases, given.rounds, clock=time.process_time)
    print(machine())
    print(table(["us / state"], {name: [1e6 * x / given.batch] for name, x in found.items()}))


if __name__ == "__main__":
    main()
