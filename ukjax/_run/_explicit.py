"""A run by an explicit Runge-Kutta method: steps, their projection, step control and saved times, in one loop.

The steps are Diffrax's: its tableaus, its interpolation and its controllers, in a loop that JAX traces once. Diffrax's own
loop serves every other solver; to trace it takes longer than a short run with all else.
"""

import dataclasses
from typing import Any, NamedTuple

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from .._misc._precision import in_full_precision
from .._motion._model import Model, projected_by_code
from .._motion._projected_solver import end_of_step
from ._batch._programs import NEAR_END, Setting, _square, _stepped, begun


class Ends(NamedTuple):
    t: Array
    q: Array
    v: Array
    result: Array
    steps: Array
    accepted: Array


def _sum(weights: np.ndarray, stages: list[Array]) -> Array:
    terms = [float(w) * k for w, k in zip(weights, stages, strict=False) if w]
    return sum(terms[1:], terms[0])


@in_full_precision
def explicit_run(
    model: Model, solver: Any, controller: Any, setting: Setting, y0: Any, span: Any, ts: Array, settle: bool
) -> Ends:
    model = model.ready()
    tableau, kind = solver.tableau, type(solver)
    a, c = _square(tableau)
    keeps = tableau.fsal and not setting.projected
    dtype, n_q = y0[0].dtype, y0[0].size
    t0, t1, dt0 = span
    forward = jnp.where(t1 < t0, -1, 1).astype(dtype)
    t0, t1, dt0 = forward * t0, forward * t1, None if dt0 is None else forward * dt0
    near_end = t1 - NEAR_END * jnp.spacing(jnp.abs(t1))
    ts = forward * ts
    parts = lambda y: (y[:n_q], y[n_q:])
    joined = lambda y: jnp.concatenate(y)

    def field(t: Array, y: Array, near: Array) -> Array:
        q, v = parts(y)
        here = model if model.projection is None else dataclasses.replace(model, nearness=near)
        return joined([model.system.kinematics(t, q, v), here.acceleration(t, q, v)])

    y = joined(y0)
    near = jnp.zeros((), dtype)
    if setting.projected:
        near = projected_by_code(model, forward * t0, y0, None).nearness
    t_next, kept = begun(setting, controller, t1, t0, dt0)
    k0 = field(forward * t0, y, near) if keeps else jnp.zeros(0, dtype)
    counts = [jnp.zeros((), jnp.int32)] * 4
    saved = jnp.full((len(ts), y.size), jnp.inf, dtype)
    first = (jnp.asarray(True), t0, t_next, kept, near, *counts, y, k0, saved)

    def body(state: Any) -> Any:
        _, t, t_next, kept, near, steps, accepted, result, count, y, k0, saved = state
        start, end = forward * t, forward * t_next
        h = end - start
        k = [k0 if keeps else field(start, y, near)]
        for i in range(1, len(c)):
            at = end if c[i] == 1 else start + h * float(c[i])
            k.append(field(at, y + h * _sum(a[i], k), near))
        y1, error = y + h * _sum(tableau.b_sol, k), h * _sum(tableau.b_error, k)
        near1 = near
        if setting.projected:
            pair, error, near1 = end_of_step(model, end, parts(y1), parts(error))
            y1, error = joined(pair), joined(error)
        given = forward, t1, near_end, t, t_next, kept, near, steps, accepted, result
        accept, goes_on, *after = _stepped(
            setting, controller, *given, *parts(y), *parts(y1), *lax.stop_gradient(parts(error)), lax.stop_gradient(near1)
        )

        def due(state: Any) -> Any:
            count, _ = state
            return accept & (count < len(ts)) & (ts[jnp.minimum(count, len(ts) - 1)] <= t_next)

        stages = jnp.stack(k)

        def save(state: Any) -> Any:
            count, saved = state
            at = ts[jnp.minimum(count, len(ts) - 1)]
            between = kind.interpolation_cls(t0=start, t1=end, y0=y, y1=y1, k=h * stages)
            return count + 1, saved.at[count].set(between.evaluate(forward * at))

        if len(ts):
            count, saved = lax.while_loop(due, save, (count, saved))
        y = jnp.where(accept, y1, y)
        k0 = jnp.where(accept, k[-1], k0) if keeps else k0
        return (goes_on, *after, count, y, k0, saved)

    _, t, _, _, _, steps, accepted, result, count, y, _, saved = lax.while_loop(lambda s: s[0], body, first)
    states = jnp.concatenate([saved, y[None]])
    t = jnp.append(jnp.where(jnp.arange(len(ts)) < count, ts, jnp.inf), t)
    return Ends(forward * t, states[:, :n_q], states[:, n_q:], result, steps, accepted)
