"""The errors along a run, and nothing else of it: for tuning."""

import functools
from typing import Any

import diffrax as dfx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._compiler._structured._scalarize import scalarize
from .._misc._closures import Static, combine_static, partition_static
from .._motion._model import Model
from ._integrated import Span, State, integrate_run
from ._observe import errors_at
from ._results import RESULTS

_SAME = 1e-6  # steps by which a fixed step may miss the end that it is to reach


def _ends_of_steps(span: Span, most: int) -> tuple[Array, Array]:
    """The ends of fixed steps, the start among them, and which of them there are."""
    t0, t1, dt0 = span
    assert dt0 is not None
    steps = jnp.arange(most + 1).astype(dt0.dtype)
    last = jnp.ceil((t1 - t0) / dt0 - _SAME)
    return jnp.where(steps < last, t0 + steps * dt0, t1), steps <= last


@functools.partial(scalarize, fallback="xla")
def _evaluate_errors(of: Static, arrays: Any, t: Array, q: Array, v: Array) -> tuple[Array, Array]:
    return errors_at(combine_static(of, arrays), t, q, v)


def errors_along(
    model: Model,
    y0: State,
    span: Span,
    ts: Array | None,
    settings: dict[str, Any],
    solver: dfx.AbstractSolver,
    *,
    reverse: bool,
) -> tuple[Array, tuple[Array, Array], dict[str, Any], Array]:
    """Only the errors of a run: much less to compute and to differentiate than a `Trajectory`.

    **Returns:** times, errors (phi, psi) there, statistics, and whether the run reached its end.
    """
    settings = {"event": None, "progress_meter": dfx.NoProgressMeter()} | settings
    times, there = (ts, True) if ts is not None else _ends_of_steps(span, settings["max_steps"])
    model = model.ready()
    static, arrays = partition_static((model, settings, solver, False))
    start = model.project(span[0], y0)
    solved = integrate_run(static, reverse, arrays, start, span, times)
    t = jnp.where(there, solved.t[:-1], jnp.inf)
    # States that were not reached are infinite, and so would be their derivatives.
    reached = jnp.isfinite(t)[:, None]
    q, v = (jnp.where(reached, x[:-1], x[-1:]) for x in (solved.q, solved.v))
    errors = jax.vmap(functools.partial(_evaluate_errors, *partition_static(model.system)))(
        jnp.where(reached[:, 0], t, span[1]), q, v
    )
    return t, errors, solved.stats, solved.result == RESULTS.successful
