"""What a `Trajectory` tells of the states a run saved: forces, errors, energy and rank there."""

from functools import partial
from typing import Any, NamedTuple

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ._acceleration import equations_of_motion
from ._constraint import Kind, constraint_rows
from ._control import Servoed
from ._projected_solver import Model
from ._trajectory import RESULTS, Dense, Trajectory
from ._types import is_traced


def errors_at(t: Array, y: tuple[Array, Array], model: Model) -> tuple[Array, Array]:
    """phi and psi of all rows (m,), those of the servo included for a system under servo control.

    **Arguments:**

    - `t`: time [s].
    - `y`: the state (q, v).
    - `model`: the system.
    """
    rows = [constraint_rows(model.system, t, *y)]
    if isinstance(model.system, Servoed):
        rows.append(model.system.law.task(model.system.system, t, *y))
    phi, psi = ([getattr(r, f"{level}_error") for r in rows] for level in ("position", "velocity"))
    return jnp.concatenate(phi), jnp.concatenate(psi)


class _Saved(NamedTuple):
    """What a solve saved, and how it ended; the last state is the final one."""

    t: Array
    q: Array
    v: Array
    result: dfx.RESULTS
    stats: dict[str, Array]


@eqx.filter_jit
def _observe(
    model: Model, saved: _Saved, stages: int | None
) -> tuple[dict[str, Any], dict[str, Any], tuple[tuple[str, ...], tuple[Kind, ...]]]:
    """All a `Trajectory` holds of every saved state, which is projected here if it lies between steps, and of the end.

    And the rows' names and kinds, which are known once it is traced.
    """
    t, q, v, result, stats = saved

    def at(t: Array, q: Array, v: Array) -> dict[str, Any]:
        q, v = model.project(t, (q, v))
        equations = equations_of_motion(model.system, t, q, v, model.stabilizer)
        acceleration = model.formula.solve(equations)
        return {
            "q": q,
            "v": v,
            "a": acceleration.a,
            "constraint_force": acceleration.constraint_force,
            "multipliers": acceleration.multipliers,
            "position_error": equations.rows.position_error,
            "velocity_error": equations.rows.velocity_error,
            "energy": model.system.energy(t, q, v),
            "rank": acceleration.rank,
        }

    rows = eqx.filter_eval_shape(constraint_rows, model.system, t[0], q[0], v[0])
    observed = jax.vmap(at)(t, q, v)
    finite = jnp.all(jnp.isfinite(observed["a"][-1])) & jnp.all(jnp.isfinite(observed["q"][-1]))
    result = RESULTS.where(finite, RESULTS.promote(result), RESULTS.diverged)
    if stages is not None:
        stats = stats | {"num_evaluations": stages * stats["num_steps"]}
    return observed | {"t": t}, {"result": result, "stats": stats}, (rows.names, rows.kinds)


def _reached(saved: _Saved) -> tuple[_Saved, int]:
    """The states of the times reached, each once, and their number.

    The last is repeated up to a power of two, so that runs of different lengths share compiled code.
    """
    t, q, v = (np.asarray(x) for x in saved[:3])
    reached = np.flatnonzero(np.isfinite(t) & np.append(t[:-1] != t[-1], True))
    padded = np.append(reached, np.full(2 ** (reached.size - 1).bit_length() - reached.size, reached[-1]))
    return saved._replace(t=t[padded], q=q[padded], v=v[padded]), reached.size


@partial(jax.jit, static_argnums=1)
def _first(arrays: Any, kept: int) -> Any:
    return jax.tree.map(lambda x: x[:kept], arrays)


def assembled(model: Model, solution: dfx.Solution, name: str, stages: int | None, dense: bool) -> Trajectory:
    """The trajectory of a solve; its length is the number of times asked for and, last, the final state.

    **Arguments:**

    - `model`: what was integrated.
    - `solution`: Diffrax's, with what was saved and, last, the final state.
    - `name`: of the run.
    - `stages`: evaluations of the acceleration in a step; None where their number varies.
    - `dense`: whether the solution holds the motion between saved times.
    """
    assert solution.ts is not None
    assert solution.ys is not None
    parts = jax.tree.leaves(solution.ts), *zip(*solution.ys, strict=True)
    tracing = is_traced(parts)
    stats = {k: x for k, x in solution.stats.items() if k != "max_steps"}
    saved = _Saved(
        *(jnp.concatenate(x) if tracing else np.concatenate(x) for x in parts), solution.result, stats
    )
    saved, kept = (saved, saved.t.size) if tracing else _reached(saved)
    observed, ended, (names, kinds) = _observe(model, saved, stages)
    return Trajectory(
        **_first(observed, kept),
        **ended,
        row_names=names,
        row_kinds=kinds,
        name=name,
        dense=Dense(solution.interpolation, model.system, model.stabilizer) if dense else None,
    )


def throw_if_failed(trajectory: Trajectory) -> Trajectory:
    """The trajectory, with a runtime error attached that is raised where a compiled run fails.

    **Arguments:**

    - `trajectory`: of the run.
    """
    failed = (trajectory.result != RESULTS.successful) & (trajectory.result != RESULTS.event_occurred)
    return trajectory.result.error_if(trajectory, failed)
