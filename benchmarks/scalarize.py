"""`uk.scalarize` beside `jax.jit` on functions of small arrays: first result, later calls, gradients, batches.

    python benchmarks/scalarize.py            all cases, each in a process of its own
    python benchmarks/scalarize.py NAME       one of them, in this process

Processor seconds to the first result without imports, then the median of later calls in turn in one process, on one core.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
from jax import lax

import ukjax as uk

os.environ.setdefault("UKJAX_CACHE", "0")  # so that a first call compiles
RATES, START = jnp.array([0.04, 3e2, 1e2]), jnp.array([1.0, 0.0, 0.0])


def robertson(t: Any, y: Any, rates: Any) -> Any:
    """Robertson's reaction, with a slower fast rate."""
    first = -rates[0] * y[0] + rates[2] * y[1] * y[2]
    last = rates[1] * y[1] ** 2
    return jnp.stack([first, -first - last, last])


def kinetics(rates: Any, solver: Any, **options: Any) -> Any:
    """The concentrations after 10 s."""
    solution = dfx.diffeqsolve(
        dfx.ODETerm(robertson),
        solver,
        0.0,
        10.0,
        None,
        START,
        rates,
        stepsize_controller=dfx.PIDController(rtol=1e-6, atol=1e-8),
        adjoint=options.pop("adjoint", dfx.ForwardMode()),
        throw=False,
        **options,
    )
    return solution.ys[0]


def filtered(noise: Any) -> Any:
    """A Kalman filter of position and velocity over 200 measurements, by a scan."""
    advance, seen = jnp.array([[1.0, 0.1], [0.0, 1.0]]), jnp.array([[1.0, 0.0]])

    def step(state: Any, z: Any) -> Any:
        x, P = state
        x, P = advance @ x, advance @ P @ advance.T + noise[0] * jnp.eye(2)
        gain = P @ seen.T / (seen @ P @ seen.T + noise[1])
        return (x + gain[:, 0] * (z - seen @ x)[0], P - gain @ seen @ P), x[0]

    measured = jnp.asarray(np.sin(0.1 * np.arange(200)))
    return lax.scan(step, (jnp.zeros(2), jnp.eye(2)), measured)[1].sum()


def planets(masses: Any) -> Any:
    """Five bodies for 1,000 steps of velocity Verlet."""
    q = jnp.asarray(np.random.default_rng(0).normal(size=(5, 3)))

    def pull(q: Any) -> Any:
        apart = q[None] - q[:, None]
        near = (jnp.sum(apart**2, -1) + 0.1) ** -1.5
        return jnp.sum((masses[None, :] * near)[..., None] * apart, 1)

    def step(_: Any, state: Any) -> Any:
        q, v = state
        v = v + 0.005 * pull(q)
        q = q + 0.01 * v
        return q, v + 0.005 * pull(q)

    return lax.fori_loop(0, 1000, step, (q, jnp.zeros((5, 3))))[0].sum()


def solved(x: Any) -> Any:
    """Newton's method on six equations, until it has converged or 50 steps are done."""
    f = lambda y: y**3 + jnp.roll(y, 1) - x
    goes_on = lambda state: (jnp.max(jnp.abs(f(state[1]))) > 1e-10) & (state[0] < 50)
    step = lambda state: (state[0] + 1, state[1] - jnp.linalg.solve(jax.jacfwd(f)(state[1]), f(state[1])))
    return lax.while_loop(goes_on, step, (0, x))[1]


CASES: dict[
    str, tuple[Callable[..., Any], Any, bool]
] = {  # the function, its argument, whether XLA has its gradient
    "kinetics by Tsit5": (lambda k: kinetics(k, dfx.Tsit5()), RATES, False),
    "kinetics by Kvaerno5": (lambda k: kinetics(k, dfx.Kvaerno5()), RATES, False),
    "kinetics until an event": (
        lambda k: kinetics(
            k, dfx.Tsit5(), event=dfx.Event(lambda t, y, args, **_: y[0] - 0.9, optx.Newton(1e-8, 1e-8))
        ),
        RATES,
        False,
    ),
    "Kalman filter": (filtered, jnp.array([0.01, 0.1]), True),
    "five bodies": (planets, jnp.ones(5), True),
    "Newton, 6 x 6": (solved, jnp.arange(1.0, 7.0), False),
}


def by_xla_gradient(name: str) -> Callable[..., Any] | None:
    """The gradient by JAX's own reverse mode; of Diffrax, by its default adjoint."""
    f, _, has = CASES[name]
    if name.startswith("kinetics") and "event" not in name:
        solver = dfx.Tsit5() if "Tsit5" in name else dfx.Kvaerno5()
        f, has = (lambda k: kinetics(k, solver, adjoint=dfx.RecursiveCheckpointAdjoint())), True
    return jax.jit(jax.grad(lambda x: jnp.sum(f(x)))) if has else None


def first_and_later(calls: dict[str, Callable[[], Any]]) -> dict[str, tuple[float, float]]:
    """Processor seconds of first calls, and medians of later ones in turn [ms]."""
    first, later = {}, {name: [] for name in calls}
    for name, call in calls.items():
        start = time.process_time()
        jax.block_until_ready(call())
        first[name] = time.process_time() - start
    uk.optimize_now()
    for _ in range(15):
        for name, call in calls.items():
            start = time.perf_counter()
            jax.block_until_ready(call())
            later[name].append(1e3 * (time.perf_counter() - start))
    return {name: (first[name], statistics.median(later[name])) for name in calls}


def measure(name: str) -> None:
    """Prints the rows of one case."""
    jax.config.update("jax_enable_x64", True)
    jax.block_until_ready(jax.jit(jnp.sin)(1.0))
    f, x, _ = CASES[name]
    scalar, by_xla = uk.scalarize(f), jax.jit(f)
    many = x * jnp.linspace(0.9, 1.1, 64).reshape(-1, *[1] * x.ndim)
    gradient = by_xla_gradient(name)
    rows = {
        "value": ((lambda g: lambda: g(x))(jax.jit(scalar)), lambda: by_xla(x)),
        "gradient": (
            (lambda g: lambda: g(x))(jax.jit(jax.grad(lambda y: jnp.sum(scalar(y))))),
            gradient and (lambda: gradient(x)),
        ),
        "64 members": (
            (lambda g: lambda: g(many))(jax.jit(jax.vmap(scalar))),
            (lambda g: lambda: g(many))(jax.jit(jax.vmap(f))),
        ),
    }
    for row, (own, other) in rows.items():
        told = first_and_later({"own": own} | ({"xla": other} if other else {}))
        xla = told.get("xla")
        beside = f"{xla[0]:.2f} | {xla[1]:.3f} | {xla[1] / told['own'][1]:.1f}" if xla else "none | none | -"
        print(f"| {name}: {row} | {told['own'][0]:.2f} | {told['own'][1]:.3f} | {beside} |", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure(sys.argv[1])
    else:
        print("| | first, scalarize [CPU s] | later [ms] | first, jax.jit [CPU s] | later [ms] | ratio |")
        print("|---|---|---|---|---|---|")
        for case in CASES:
            subprocess.run([sys.executable, __file__, case], check=True)
