"""The least squares: what is made small, the method, and how noise, robust losses and pieces of runs enter it.

Made small is the sum of rho(r) over the samples, r = (output - sample) / noise, and of squares of priors, of jumps between
pieces of runs, and of a weak pull towards where a round of the search began, which keeps directions in place that the
data do not tell, and vanishes as rounds go on. A robust rho enters as the square of sign(r) sqrt(2 rho(r)), which has the same
sum and the same gradient.

A round goes through u with z = z_0 + u / D, where D is the sensitivity where it begins: a step of one is a change by one
standard deviation, were there no other unknowns, whatever the units are.
"""

import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
from jaxtyping import Array

from .._misc._closures import Static, combine_static, partition_static
from .._misc._errors import InputError
from ._runs import Outcome, Rows, Runs

Loss = Literal["squares", "huber", "cauchy"]

TUNING = {"squares": np.inf, "huber": 1.345, "cauchy": 2.385}
"""Where residuals begin to count less, in units of the noise: of normal ones the estimate has 95 % of the efficiency."""
_LOST = 1e6  # the residual of a sample that a run does not get to
_PULL = 1e-4  # towards where a round began, per standard deviation
_SETTLED = 1e-2  # relative change of the noise at which rounds end; z has then moved by less than D tells
_ROUNDS = 30
DEPENDENT = 1e-7
"""Singular values below this share of the largest are of directions that change nothing."""
_GIVEN_UP = 12  # steps in a row that were not taken: each is a fifth of the one before
_CONTINUITY = (1e-2, 1e-4, 1e-6)
"""Standard deviation of jumps between pieces of a run, relative to the spread of the state, in rounds one after another."""


@final
class Fit(eqx.Module):
    """What is made small, as a function of u.

    - `runs`, `rows`: the runs, and the recordings beside them.
    - `index`: for each row, where its unknown initial state is in z; the length of z for what is known (b, f).
    - `joined`: rows and the rows that go on where they end (j,), (j,).
    - `state_size`: spread of coordinates and velocities, for jumps (n_q,), (n,).
    - `prior`: numbers of `report` with a prior, their means and standard deviations, (n,) each.
    - `z`, `scale`: where u = 0 is, and D.
    """

    runs: Runs
    rows: Rows
    index: Array
    joined: tuple[Array, Array]
    state_size: tuple[Array, Array]
    prior: tuple[Array, Array, Array]
    z: Array
    scale: Array
    loss: Loss = eqx.field(static=True)

    @property
    def count(self) -> int:
        """How many of z are parameters."""
        return sum(part.z.size for part in self.runs.space.parts.values())

    def split(self, z: Array) -> tuple[Array, Array]:
        """The parameters, and what the initial state of each row is changed by."""
        return z[: self.count], jnp.append(z, 0.0)[self.index]

    def at(self, u: Array) -> Array:
        return self.z + u / self.scale


class Weights(NamedTuple):
    """What changes from round to round.

    - `noise`: of each channel (d,).
    - `jump`: relative standard deviation of jumps between pieces of runs.
    """

    noise: Array
    jump: Array


def _robust(r: Array, loss: Loss) -> Array:
    """sign(r) sqrt(2 rho(r))."""
    k = TUNING[loss]
    if loss == "huber":
        large = jnp.abs(r) > k
        beyond = jnp.where(large, jnp.abs(r), k)
        return jnp.where(large, jnp.sign(r) * jnp.sqrt(k * (2.0 * beyond - k)), r)
    if loss == "cauchy":
        x = jnp.where(r == 0, 1.0, (r / k) ** 2)
        return jnp.where(r == 0, r, r * jnp.sqrt(jnp.log1p(x) / x))
    return r


def report(fit: Fit, z: Array, start: tuple[Array, Array]) -> Array:
    """All numbers that can have a prior: parameters, and the initial states of all rows."""
    return jnp.concatenate([fit.runs.space.numbers(z[: fit.count]), jnp.concatenate(start, axis=1).ravel()])


def data_residuals(fit: Fit, outcome: Outcome, noise: Array) -> Array:
    """(output - sample) / noise (b, k, d); 0 where there is no sample."""
    rows = fit.rows
    off = (outcome.y - rows.y) / jnp.broadcast_to(noise, rows.y.shape)
    off = jnp.where(jnp.isfinite(off), off, _LOST)
    return jnp.where(rows.present > 0, off, 0.0)


def residuals(fit: Fit, z: Array, weights: Weights) -> tuple[Array, Array]:
    """What squares are made small of: of samples, and of all else."""
    outcome = fit.runs(*fit.split(z), fit.rows)
    data = _robust(data_residuals(fit, outcome, weights.noise), fit.loss)
    ends, begins = fit.joined
    jumps = [
        ((end[ends] - start[begins]) / jnp.broadcast_to(size, (ends.size, size.size)) / weights.jump).ravel()
        for end, start, size in zip(outcome.end, outcome.start, fit.state_size, strict=True)
    ]
    jumps = [jnp.where(jnp.isfinite(x), x, _LOST) for x in jumps]
    which, mean, deviation = fit.prior
    prior = (report(fit, z, outcome.start)[which] - mean) / deviation
    return data.ravel(), jnp.concatenate([*jumps, prior])


@eqx.filter_jit
def slopes(fit: Fit, weights: Weights) -> tuple[Array, Array]:
    """Derivatives of the residuals by z."""
    return jax.jacfwd(lambda z: residuals(fit, z, weights))(fit.z)


@eqx.filter_jit
def outcomes(fit: Fit) -> Outcome:
    """All runs."""
    return fit.runs(*fit.split(fit.z), fit.rows)


# --- Levenberg and Marquardt, step by step, so that progress is seen and Ctrl-C heard

# Optimistix makes damping less only where a step was better than predicted to 1 %: collinear parameters take thousands.
_SOLVER = eqx.tree_at(
    lambda solver: solver.search,
    optx.LevenbergMarquardt(rtol=1e-6, atol=1e-4),
    optx.ClassicalTrustRegion(high_cutoff=0.75, low_cutoff=1e-4, high_constant=10.0, low_constant=0.2),
)


def _made_small(static: Static) -> Callable[[Array, Any], tuple[Array, None]]:
    def fn(u: Array, arrays: Any) -> tuple[Array, None]:
        fit, weights = combine_static(static, arrays)
        return jnp.concatenate([*residuals(fit, fit.at(u), weights), _PULL * u]), None

    return fn


@functools.lru_cache(maxsize=16)
def _blank(static: Static, tree: Any, shapes: tuple[Any, ...], size: int) -> Any:
    """The state of the method before its first step; it holds a trace, so one of each kind of problem serves all."""
    arrays, u = jax.tree.unflatten(tree, shapes), jnp.zeros(size)
    fn = _made_small(static)
    out, aux = eqx.filter_eval_shape(fn, u, arrays)
    return _SOLVER.init(fn, u, arrays, {}, out, aux, frozenset())


@eqx.filter_jit
def _step(static: Static, u: Array, arrays: Any, state: Any) -> tuple[Array, Any]:
    u, state, _ = _SOLVER.step(_made_small(static), u, arrays, {}, state, frozenset())
    return u, state


def _descend(fit: Fit, weights: Weights, most: int, after: Callable[[float], None]) -> tuple[Array, str]:
    """The best u of one round, and how the round ended."""
    static, arrays = partition_static((fit, weights))
    leaves, tree = jax.tree.flatten(arrays)
    shapes = tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in leaves)
    u, state = jnp.zeros(fit.z.size), _blank(static, tree, shapes, fit.z.size)
    try:
        for _ in range(most):
            u, state = _step(static, u, arrays, state)
            after(float(jnp.sum(state.f_info.residual**2)))
            if bool(state.terminate) or int(state.num_steps_since_acceptance) >= _GIVEN_UP:
                return u, "converged"
    except KeyboardInterrupt:
        return u, "interrupted"
    return u, "iterations"


# --- Rounds: the noise is estimated and u measured anew between them


def leverages(J: np.ndarray) -> np.ndarray:
    """Of each row, how far it decides its own fit."""
    U, s, _ = np.linalg.svd(J, full_matrices=False)
    return np.sum(U[:, s > DEPENDENT * s.max(initial=0)] ** 2, axis=1)


def _estimate_noise(fit: Fit, J: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """The standard deviation of each channel, from what the fit leaves: of squares by degrees of freedom, of robust losses
    by the median, which outliers do not move.

    **Raises:** `InputError` where there are too few samples to tell.
    """
    d = noise.size
    off = np.asarray(data_residuals(fit, outcomes(fit), jnp.asarray(noise))).reshape(-1, d)
    present = np.asarray(fit.rows.present).reshape(-1, d) > 0
    share = leverages(J / np.asarray(fit.scale))[: off.size].reshape(off.shape)
    found = noise.copy()
    for c in range(d):
        r = off[present[:, c], c]
        left = r.size - share[present[:, c], c].sum()
        if left < 0.5 and r.size:
            raise InputError(
                f"{r.size} samples of a channel are no more than the numbers they decide, so its noise cannot be estimated: "
                "give noise=, or fewer parameters."
            )
        if r.size:
            squares, median = (
                np.sqrt(np.sum(r**2) / left),
                1.4826 * np.median(np.abs(r)) * np.sqrt(r.size / left),
            )
            found[c] *= squares if fit.loss == "squares" else median
    return found


def scale_of(J: np.ndarray, size: np.ndarray) -> np.ndarray:
    """D: how sensitive residuals are to each of z, at least so that z changes by no more than its size at once."""
    norms = np.linalg.norm(J, axis=0)
    unsized = DEPENDENT * norms.max(initial=0) or 1.0
    return np.maximum(norms, np.where(np.isinf(size), unsized, 1.0 / size))


class Noise(NamedTuple):
    """Standard deviations of channels (d,): where to begin, which are known, and the least that is estimated."""

    value: np.ndarray
    known: np.ndarray
    least: np.ndarray


class Found(NamedTuple):
    """What a search ended with.

    - `fit`: with the best z.
    - `weights`: there.
    - `J`: derivatives of samples, and of all else, by z.
    - `costs`: the sum of squares after each step.
    - `stopped`: `"converged"`, `"iterations"` or `"interrupted"`.
    """

    fit: Fit
    weights: Weights
    J: tuple[np.ndarray, np.ndarray]
    costs: np.ndarray
    stopped: str


def search(
    fit: Fit, noise: Noise, size: np.ndarray, iterations: int, update: Callable[[int, float], None]
) -> Found:
    """Rounds of least squares, until neither the noise nor z changes.

    **Arguments:**

    - `size`: how far each of z may change at first, where the data do not say.
    - `update`: told of steps and costs.
    """
    jumps = _CONTINUITY if fit.joined[0].size else _CONTINUITY[-1:]
    costs: list[float] = []

    def after(cost: float) -> None:
        costs.append(cost)
        update(len(costs), cost)

    weights, stopped, moved = Weights(jnp.asarray(noise.value), jnp.asarray(jumps[0])), "converged", np.inf
    for number in range(_ROUNDS):
        weights = weights._replace(jump=jnp.asarray(jumps[min(number, len(jumps) - 1)]))
        J, J_rest = map(np.asarray, slopes(fit, weights))
        changed = 0.0
        if number and not noise.known.all():
            old = np.asarray(weights.noise)
            new = np.where(
                noise.known,
                noise.value,
                np.maximum(_estimate_noise(fit, np.concatenate([J, J_rest]), old), noise.least),
            )
            changed = float(np.max(np.abs(np.log(new / old))))
            weights = weights._replace(noise=jnp.asarray(new))
            J = J * np.tile(old / new, J.shape[0] // new.size)[:, None]
        if (number >= len(jumps) and changed < _SETTLED and moved < 1.0) or stopped != "converged":
            break
        fit = eqx.tree_at(lambda f: f.scale, fit, jnp.asarray(scale_of(np.concatenate([J, J_rest]), size)))
        u, stopped = _descend(fit, weights, iterations - len(costs), after)
        moved = float(np.max(np.abs(u), initial=0))
        fit = eqx.tree_at(lambda f: f.z, fit, fit.at(u))
    return Found(fit, weights, (J, J_rest), np.array(costs), stopped)
