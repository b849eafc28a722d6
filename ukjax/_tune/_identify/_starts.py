"""Several first guesses at once: all are searched for some steps as one batch, and the best goes on."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy import stats

from ..._misc._closures import Static, combine_static, partition_static
from .._gains import scatter_points
from ._blocks import sum_squares
from ._fit import Fit, Weights, blank_state, first_weights, scale_of_squares, step_once
from ._prepare import Identification
from ._space import NumberPart, to_search

_STEPS = 25  # of all first guesses at most
_FALLEN = 1e-2  # share by which squares fall in a step that is worth it, and
_IDLE = 3  # steps in a row in which none does


class Start(NamedTuple):
    """What became of a first guess.

    - `guess`, `parameters`: where it began and where it got to.
    - `cost`: the sum of squares there, with the noise that the search began with.
    """

    guess: dict[str, Any]
    parameters: dict[str, Any]
    cost: float


def first_guesses(prepared: Identification, count: int) -> np.ndarray:
    """The parameters given, in z, and others, evenly spread: by their priors; between two bounds; else as far from those
    given as a search may change them at first, which is a factor e for a number with one bound (count, p)."""
    fit, space = prepared.fit, prepared.fit.runs.space
    given, size, low, high = (space.joined(x) for x in ("z", "size", "low", "high"))
    unit = scatter_points(count - 1, given.size)
    z = given + (2 * unit - 1) * np.where(np.isinf(size), 0.0, size)
    plain = np.concatenate([np.full(x.z.size, isinstance(x, NumberPart)) for x in space.parts])
    between = plain & np.isfinite(low) & np.isfinite(high)
    z[:, between] = to_search((low + (high - low) * unit)[:, between], low[between], high[between])
    for i, mean, deviation in zip(*map(np.asarray, fit.prior), strict=True):
        if i < given.size and plain[i]:
            inside = low[i] + 1e-3 * deviation, high[i] - 1e-3 * deviation
            x = np.clip(stats.norm.ppf(unit[:, i], mean, deviation), *inside)
            z[:, i] = to_search(x, low[i], high[i])
    return np.vstack([given, z])


@eqx.filter_jit
def _step_all(static: Static, u: Array, z: Array, scale: Array, arrays: Any, state: Any) -> Any:
    """A step of each: the best u, the state, squares there, and those of derivatives by each of z."""

    def one(u: Array, z: Array, scale: Array, state: Any) -> Any:
        own = eqx.tree_at(lambda x: (x[0].z, x[0].scale), arrays, (z, scale))
        u, state, r, blocks, _ = step_once(static, u, own, state)
        layout = combine_static(static, own)[0].layout
        return u, state, jnp.sum(r**2), sum_squares(blocks, layout, u.size)

    return eqx.filter_vmap(one)(u, z, scale, state)


def try_starts(
    fit: Fit, weights: Weights, size: np.ndarray, guesses: np.ndarray, update: Callable[[int, float], None]
) -> tuple[np.ndarray, np.ndarray]:
    """Where searches from each of the guesses get to (count, z), and their sums of squares (count,)."""
    static, arrays = partition_static((fit, weights))
    z = np.tile(np.asarray(fit.z), (len(guesses), 1))
    z[:, : fit.count] = guesses
    blank = blank_state(static, arrays, fit.z.size)
    blank = jax.tree.map(lambda x: jnp.stack([x] * len(z)) if eqx.is_array(x) else x, blank)
    step = lambda u, scale, state: _step_all(static, u, jnp.asarray(z), scale, arrays, state)
    none = jnp.zeros(z.shape)
    scale = np.stack([scale_of_squares(np.asarray(x), size) for x in step(none, none + 1.0, blank)[3]])
    u, state, cost, idle = none, blank, np.full(len(z), np.inf), 0
    for number in range(_STEPS):
        before = cost
        u, state, cost, _ = step(u, jnp.asarray(scale), state)
        cost = np.asarray(cost)
        update(number, float(cost.min()))
        idle = 0 if np.any(cost < (1 - _FALLEN) * before) else idle + 1
        if idle == _IDLE:
            break
    return z + np.asarray(u) / scale, cost


def from_best_start(
    prepared: Identification, count: int, update: Callable[[int, float], None]
) -> tuple[Fit, tuple[Start, ...]]:
    """The fit from the best of some first guesses on, and what became of each, the best first."""
    fit, space = prepared.fit, prepared.fit.runs.space
    guesses = first_guesses(prepared, count)
    z, cost = try_starts(fit, first_weights(fit, prepared.noise), prepared.size, guesses, update)
    order = np.argsort(cost)
    made = lambda x: space.as_given(jnp.asarray(x))
    tried = tuple(Start(made(guesses[i]), made(z[i, : fit.count]), float(cost[i])) for i in order)
    return eqx.tree_at(lambda f: f.z, fit, jnp.asarray(z[order[0]])), tried
