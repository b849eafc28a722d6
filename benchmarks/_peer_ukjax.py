"""ukjax on the benchmark mechanisms: `simulate` as it stands and inside `jit`, and loops of one's own over `uk.lanes`."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from _peer_cases import Batch, Case, Single, error, member_steps, steps_of
from jax import lax
from jax.sharding import Mesh, PartitionSpec

import ukjax as uk

Array = jax.Array
Loop = Callable[..., tuple[Array, Array]]
"""(q, v, h, steps) -> (q, v) of states (n,) or (n, batch), batch last."""

_RCOND, _GAIN = 1e-5, 20.0  # as at fixed steps by default: experiments/fixed_steps.py


def loop(problem: uk.Problem, solver: dfx.AbstractSolver | None = None) -> Loop:
    """A solver, or Runge and Kutta's method, over the scalar code, constraints held by Baumgarte."""
    code = uk.lanes(problem, stabilizer=uk.Baumgarte.squared(_GAIN, _GAIN), rcond=_RCOND)

    def step(t: Array, h: Array, y: tuple[Array, Array]) -> tuple[Array, Array]:
        accelerate = jax.vmap(code.one, (None, 1, 1), 1) if y[0].ndim == 2 else code.one
        q, v = y
        if solver is not None:
            terms: Any = dfx.ODETerm(lambda t, y, args: (y[1], accelerate(t, *y)))
            begun = solver.init(terms, t, t + h, y, None)
            return solver.step(terms, t, t + h, y, None, begun, True)[0]
        a1 = accelerate(t, q, v)
        v2 = v + 0.5 * h * a1
        a2 = accelerate(t + 0.5 * h, q + 0.5 * h * v, v2)
        v3 = v + 0.5 * h * a2
        a3 = accelerate(t + 0.5 * h, q + 0.5 * h * v2, v3)
        v4 = v + h * a3
        a4 = accelerate(t + h, q + h * v3, v4)
        return q + h / 6 * (v + 2 * (v2 + v3) + v4), v + h / 6 * (a1 + 2 * (a2 + a3) + a4)

    return lambda q, v, h, steps: lax.fori_loop(0, steps, lambda i, y: step(problem.t0 + i * h, h, y), (q, v))


def stepped(problem: uk.Problem, solver: dfx.AbstractSolver) -> Loop:
    """`uk.step` in a loop, with its default, projection after every step."""

    def run(q: Array, v: Array, h: Array, steps: int) -> tuple[Array, Array]:
        def one(t: Array, q: Array, v: Array) -> tuple[Array, Array]:
            return uk.step(problem, t, q, v, h, solver=solver)

        step = jax.vmap(one, (None, 1, 1), 1) if q.ndim == 2 else one
        return lax.fori_loop(0, steps, lambda i, y: step(problem.t0 + i * h, *y), (q, v))

    return run


def simulated(problem: uk.Problem, tolerance: float) -> Callable[[], Array]:
    """The q at the end of `simulate` with its defaults, called as it is."""
    return lambda: uk.simulate(problem, ts=2, rtol=tolerance, atol=tolerance).q[-1]


def compiled(problem: uk.Problem, solver: dfx.AbstractSolver) -> Callable[[Array], Array]:
    """The same inside `jit`, as a function of the tolerance."""
    return jax.jit(lambda x: uk.simulate(problem, ts=2, rtol=x, atol=x, solver=solver).q[-1])


def loops(problem: uk.Problem) -> dict[str, tuple[Loop, tuple[float, ...]]]:
    """Ways of fixed steps, and the steps to try on four-bars [s]; the first is that of batches."""
    return {
        "step, Dopri5": (stepped(problem, dfx.Dopri5()), (0.04, 0.05, 0.02, 0.01, 5e-3)),
        "loop, RK4": (loop(problem), (5e-3, 0.02, 0.01, 2e-3, 1e-3)),
        "loop, Dopri5": (loop(problem, dfx.Dopri5()), (0.008, 0.01, 5e-3, 0.02)),
    }


def singles(case: Case, quick: bool) -> Iterator[Single]:
    """`simulate`, the same compiled into the caller's own program, and loops; times of a loop are its own."""
    problem = case.problem

    @eqx.filter_jit
    def gaps(system: uk.AbstractSystem, q: Array) -> Array:
        return uk.constraint_rows(system, case.t1, q, 0.0 * problem.v0).position_error

    def measures(q: Any) -> float:
        return float(jnp.max(jnp.abs(gaps(problem.system, jnp.asarray(q)))))

    tolerances = (1e-6, 1e-8) if quick else (1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10)
    for x in tolerances:
        make = partial(simulated, problem, x)
        yield Single("ukjax", f"simulate, tolerance {x:g}", make, error(case, 0), measures)
    for name in ("Dopri8",) if quick else ("Dopri8", "Tsit5"):
        run = compiled(problem, getattr(dfx, name)())
        for x in tolerances:
            make = partial(partial, run, jnp.asarray(x))
            yield Single("ukjax", f"simulate in jit, {name} {x:g}", make, error(case, 0), measures)
    for name, (way, sizes) in loops(problem).items():
        run = jax.jit(way)
        for h, steps in steps_of(case, sizes[:3] if quick else sizes):
            make = lambda run=run, h=h, steps=steps: lambda: run(problem.q0, problem.v0, h, steps)[0]
            yield Single("ukjax", f"{name}, h = {h:.3g}", make, error(case, 0), measures)


def _run_whole(problem: uk.Problem, tolerance: float) -> Loop:
    """Runs of a batch by `simulate`, each with step sizes of its own, h long."""

    def run(q: Array, v: Array, h: Array, steps: int) -> tuple[Array, Array]:
        def one(q: Array, v: Array) -> tuple[Array, Array]:
            end = uk.simulate(problem, q, v, t1=problem.t1, ts=2, rtol=tolerance, atol=tolerance)
            return end.q[-1], end.v[-1]

        return jax.vmap(one, 1, 1)(q, v)

    return run


def batches(case: Case, size: int) -> Iterator[Batch]:
    """Loops over a batch, batch last, and whole runs of a batch, on one device and shared between two."""
    problem, (_, rate) = case.problem, case.moving()
    q = jnp.tile(problem.q0[:, None], (1, size))
    v = jnp.asarray(rate)[:, None] * case.speeds(size)

    def make(cores: int, one: Loop, h: float, steps: int) -> Callable[[], Array]:
        run, states = one, (q, v)
        if cores > 1:
            mesh = Mesh(np.array(jax.devices()[:cores]), ("batch",))
            spread = PartitionSpec(None, "batch")
            none = PartitionSpec()
            run = jax.shard_map(
                one,
                mesh=mesh,
                in_specs=(spread, spread, none, none),
                out_specs=(spread, spread),
                check_vma=False,
            )
            sharding = jax.sharding.NamedSharding(mesh, spread)
            states = jax.device_put((q, v), (sharding, sharding))
        fast = jax.jit(run)
        return lambda: fast(*states, h, steps)[0]

    ways = [(f"simulate in jit, Dopri8 {x:g}", _run_whole(problem, x), case.t1, 1) for x in (1e-6, 1e-8)]
    for name, (one, sizes) in loops(problem).items():
        ((h, _),) = steps_of(case, sizes[:1])
        ways.append((f"{name}, h = {h:.3g}", one, h, member_steps(size, 5e4 if size < 16 else 3e5)))
    for cores in (1, 2) if size > 1 and len(jax.devices()) > 1 else (1,):
        for name, one, h, steps in ways:
            yield Batch("ukjax", name, h, steps, partial(make, cores, one, h, steps), cores)
