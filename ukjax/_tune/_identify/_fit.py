"""The least squares: what is made small, the method, and how noise, robust losses and pieces of runs enter it.

Made small is the sum of rho(r) over the samples, r = (output - sample) / noise, and of squares of priors, of jumps
between pieces of runs, and of a weak pull towards where a round of the search began, which keeps directions in place
that the data do not tell, and vanishes as rounds go on. A robust rho enters as the square of sign(r) sqrt(2 rho(r)),
which has the same sum and the same gradient.

A round goes through u with z = z_0 + u / D, where D is the sensitivity where it begins: a step of one is a change by
one standard deviation, were there no other unknowns, whatever the units are.
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
from scipy import sparse

from ..._misc._closures import Static, combine_static, partition_static
from ..._misc._errors import InputError
from ..._misc._types import arrays_of, as_jax, module_for
from ._blocks import BlockQR, Blocks, Layout, block_product, find_blocks, solve_blocks, sparse_parts
from ._runs import Outcome, Rows, Runs
from ._statistics import DEPENDENT, directions

Loss = Literal["squares", "huber", "cauchy"]

TUNING = {"squares": np.inf, "huber": 1.345, "cauchy": 2.385}
"""Where residuals begin to count less, in units of the noise: of normal ones the estimate has 95 % of the efficiency."""
_LOST = 1e6  # the residual of a sample that a run does not get to
_PULL = 1e-4  # towards where a round began, per standard deviation
_SETTLED = 1e-2  # relative change of the noise at which rounds end; squares then fell by less than a tenth of a sample's
_ROUNDS = 30
_FAR = 1e6  # one by the damping of later rounds
_ENOUGH = 1e-3
"""A round ends where squares would fall by no more, in units of those of one sample: by 0.03 of a standard error. Runs
with adaptive steps are not smoother than that where data are precise."""
_IDLE = 4  # steps in a row by which squares fall by no more: there are none better
_FIRST_CHANGE = (
    0.01  # over which differences are first taken, relative to the size of a number, and ten times at most
)
_CONTINUITY = (1.0, 1e-2, 1e-4, 1e-7)
"""Standard deviation of jumps between pieces of a run, relative to the size of the state, in one round after another."""


@final
class Fit(eqx.Module):
    """What is made small, as a function of u."""

    # `runs`, `rows`: the runs, and the recordings beside them.
    runs: Runs
    rows: Rows
    layout: Layout  # which unknown initial state is where in z, and which rows are joined
    state_size: tuple[Array, Array]  # spread of coordinates and velocities, for jumps (n_q,), (n,)
    # `prior`: numbers of `report` with a prior, their means and standard deviations, (n,) each.
    prior: tuple[Array, Array, Array]
    # `z`, `scale`: where u = 0 is, and D.
    z: Array
    scale: Array
    change: Array  # of each of z, over which differences are taken where runs have no derivatives
    loss: Loss = eqx.field(static=True)

    @property
    def count(self) -> int:
        """How many of z are parameters."""
        return self.layout.count

    def at(self, u: Array) -> Array:
        z, u, scale = arrays_of(self.z, u, self.scale)
        return z + u / scale

    def run(self, z: Array) -> Outcome:
        return self.runs(*self.layout.split(z), self.rows, self.layout.split(self.change))


class Weights(NamedTuple):
    """What changes from round to round."""

    noise: Array  # of each channel (d,)
    jump: Array  # relative standard deviation of jumps between pieces of runs


def robust(r: Array, loss: Loss) -> Array:
    """sign(r) sqrt(2 rho(r))."""
    k, xp = TUNING[loss], module_for(r)
    if loss == "huber":
        large = xp.abs(r) > k
        beyond = xp.where(large, xp.abs(r), k)
        return xp.where(large, xp.sign(r) * xp.sqrt(k * (2.0 * beyond - k)), r)
    if loss == "cauchy":
        x = xp.where(r == 0, 1.0, (r / k) ** 2)
        return xp.where(r == 0, r, r * xp.sqrt(xp.log1p(x) / x))
    return r


def report(fit: Fit, z: Array, start: tuple[Array, Array]) -> Array:
    """All numbers that can have a prior: parameters, and the initial states of all rows."""
    return jnp.concatenate([fit.runs.space.numbers(z[: fit.count]), jnp.concatenate(start, axis=1).ravel()])


def data_residuals(fit: Fit, outcome: Outcome, noise: Any) -> Array:
    """(output - sample) / noise (b, k, d); 0 where there is no sample."""
    found, y, present, noise = given = arrays_of(outcome.y, fit.rows.y, fit.rows.present, noise)
    xp = module_for(*given)
    off = (found - y) / xp.broadcast_to(noise, y.shape)
    off = xp.where(xp.isfinite(off), off, _LOST)
    return xp.where(present > 0, off, 0.0)


def _jumps(off: Array, along: Array, size: Array) -> Array:
    """Jumps (j, n) in the directions that states are searched in (j, n, f), relative to the size of the state: others are
    the constraints' own, or the length of a quaternion."""
    scaled = along / jnp.broadcast_to(size[:, None], along.shape)
    length = jnp.sqrt(jnp.sum(scaled**2, axis=1))
    found = jnp.einsum("jnf,jn->jf", scaled, off / jnp.broadcast_to(size, off.shape))
    return jnp.nan_to_num(found / jnp.where(length > 0, length, 1.0), nan=_LOST)


def residuals(fit: Fit, z: Array, weights: Weights) -> Array:
    """What squares are made small of: of samples, jumps and priors."""
    outcome = fit.run(z)
    data = robust(data_residuals(fit, outcome, weights.noise), fit.loss)
    ends = fit.layout.ends
    jumps = [
        _jumps(end[ends] - start[ends + 1], along[ends + 1], size) / weights.jump
        for end, start, along, size in zip(
            outcome.end, outcome.start, (fit.rows.along_q, fit.rows.along_v), fit.state_size, strict=True
        )
    ]
    which, mean, deviation = fit.prior
    prior = (report(fit, z, outcome.start)[which] - mean) / deviation
    return jnp.concatenate([data.ravel(), jnp.concatenate(jumps, axis=1).ravel(), prior])


@eqx.filter_jit
def outcomes(fit: Fit) -> Outcome:
    """All runs."""
    return fit.run(fit.z)


# --- Levenberg and Marquardt, step by step, so that progress is seen and Ctrl-C heard

# Optimistix makes damping less only where a step was better than predicted to 1 %: collinear parameters take thousands.
_SOLVER = eqx.tree_at(
    lambda solver: solver.search,
    optx.LevenbergMarquardt(rtol=1e-6, atol=1e-4),
    optx.ClassicalTrustRegion(high_cutoff=0.75, low_cutoff=1e-4, high_constant=10.0, low_constant=0.2),
)


def _residuals(u: Array, static: Static, arrays: Any) -> Array:
    fit, weights = combine_static(static, arrays)
    return jnp.concatenate([residuals(fit, fit.at(u), weights), _PULL * u])


_made_small = eqx.filter_custom_jvp(_residuals)


@_made_small.def_jvp
def _made_small_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    """By blocks: what Optimistix keeps of a step are these arrays, whatever was traced."""
    u, static, arrays = primals
    fit, weights = combine_static(static, arrays)
    r, slope = jax.linearize(lambda u: residuals(fit, fit.at(u), weights), u)
    blocks, du = find_blocks(slope, fit.layout, u.size), tangents[0]
    change = jnp.concatenate([block_product(blocks, fit.layout, du), _PULL * du])
    return jnp.concatenate([r, _PULL * u]), change


@functools.lru_cache(maxsize=16)
def _blank(static: Static, tree: Any, shapes: tuple[Any, ...], size: int) -> Any:
    """The state of the method before its first step; it holds a trace, so one of each kind of problem serves all."""
    arrays, u = jax.tree.unflatten(tree, shapes), jnp.zeros(size)
    fn = lambda u, arrays: (_made_small(u, static, arrays), None)
    out, aux = eqx.filter_eval_shape(fn, u, arrays)
    return _SOLVER.init(fn, u, arrays, {}, out, aux, frozenset())


def blank_state(static: Static, arrays: Any, size: int) -> Any:
    leaves, tree = jax.tree.flatten(arrays)
    return _blank(static, tree, tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in leaves), size)


@eqx.filter_jit
def step_once(static: Static, u: Array, arrays: Any, state: Any) -> tuple[Array, Any, Array, Blocks, Array]:
    """One step: the best u, the state, residuals and derivatives there, and by what squares would fall if linear."""
    fn = lambda u, arrays: (_made_small(u, static, arrays), None)
    layout, n = combine_static(static, arrays)[0].layout, u.size
    solver = eqx.tree_at(lambda solver: solver.descent.linear_solver, _SOLVER, BlockQR(layout))
    u, state, _ = solver.step(fn, u, arrays, {}, state, frozenset())
    r, slope = state.f_info.residual, state.f_info.jac.mv
    blocks = find_blocks(lambda du: slope(du)[:-n], layout, n)
    _, gain = solve_blocks(blocks, layout, jnp.full(n, _PULL), r[:-n], r[-n:])
    return u, state, r, blocks, gain


class _Descent:
    """Least squares from u = 0 on; what a step gives of the best point is there after it."""

    def __init__(self, fit: Fit, weights: Weights, number: int = 0):
        self._static, self._arrays = partition_static((fit, weights))
        state = blank_state(self._static, self._arrays, fit.z.size)
        if number:  # in later rounds steps of Gauss and Newton are right
            state = eqx.tree_at(lambda s: s.search_state.step_size, state, jnp.asarray(_FAR))
        self._state, self._fit, self._blocks = state, fit, None
        self.u = as_jax(np.zeros(fit.z.size))

    def step(self) -> None:
        self.u, self._state, self.r, self._blocks, self.gain = step_once(
            self._static, self.u, self._arrays, self._state
        )

    @property
    def cost(self) -> float:
        return float(np.sum(np.asarray(self.r) ** 2))

    @property
    def J(self) -> Any:
        """Derivatives of residuals by z: of samples, jumps and priors; None before the first step."""
        if self._blocks is None:
            return None
        scale = sparse.diags_array(np.asarray(self._fit.scale))
        return [x @ scale for x in sparse_parts(self._blocks, self._fit.layout, self.u.size)]


# --- Rounds: the noise is estimated and u measured anew between them


def _estimate_noise(fit: Fit, J: Any, noise: np.ndarray) -> np.ndarray:
    """The standard deviation of each channel, from what the fit leaves: of squares by degrees of freedom, of robust
    losses by the median, which outliers do not move."""
    d = noise.size
    off = np.asarray(data_residuals(fit, outcomes(fit), noise)).reshape(-1, d)
    present = np.asarray(fit.rows.present).reshape(-1, d) > 0
    root = directions(J[0], J[1], J[2], fit.layout, np.asarray(fit.scale)).root
    share = (J[0] @ root).power(2).sum(axis=1).reshape(off.shape)  # how far a sample decides its own fit
    found = noise.copy()
    for c in range(d):
        r = off[present[:, c], c]
        left = r.size - share[present[:, c], c].sum()
        if left < 0.5 and r.size:
            raise InputError(
                f"{r.size} samples of a channel are no more than the numbers they decide, so its noise cannot be "
                "estimated: give noise=, or fewer parameters."
            )
        if r.size:
            size = np.sqrt(np.mean(r**2)) if fit.loss == "squares" else 1.4826 * np.median(np.abs(r))
            found[c] *= size * np.sqrt(r.size / left)
    return found


def scale_of_squares(squares: np.ndarray, size: np.ndarray) -> np.ndarray:
    """D: how sensitive residuals are to each of z, by the sum of squares of derivatives, at least so that z changes by no
    more than its size at once."""
    norms = np.sqrt(squares)
    unsized = DEPENDENT * norms.max(initial=0) or 1.0
    return np.maximum(norms, np.where(np.isinf(size), unsized, 1.0 / size))


def scale_of(J: Any, size: np.ndarray) -> np.ndarray:
    return scale_of_squares(np.sum([x.power(2).sum(axis=0) for x in J], axis=0), size)


def first_change(size: np.ndarray) -> np.ndarray:
    """Over which differences are first taken."""
    return _FIRST_CHANGE * np.where(np.isinf(size), 0.1, size)


def _change_of(fit: Fit, J: Any, size: np.ndarray) -> np.ndarray:
    """So far that samples that depend on a number change by one standard deviation of the noise on the average: with time
    steps, an impact comes a step sooner or later, and smaller differences of few runs are 0 or too large."""
    count = (J[0] != 0).sum(axis=0)
    change = np.sqrt(count / np.maximum(J[0].power(2).sum(axis=0), 1e-300))
    return np.minimum(change, 10.0 * first_change(size))


def first_weights(fit: Fit, noise: "Noise") -> Weights:
    return Weights(jnp.asarray(noise.value), jnp.asarray(_jump_sizes(fit)[0]))


def _jump_sizes(fit: Fit) -> tuple[float, ...]:
    return _CONTINUITY if fit.layout.ends.size else _CONTINUITY[-1:]


class Noise(NamedTuple):
    """Standard deviations of channels (d,): where to begin, which are known, and the least that is estimated."""

    value: np.ndarray
    known: np.ndarray
    least: np.ndarray


class FitResult(NamedTuple):
    """What a search ended with."""

    fit: Fit  # with the best z
    weights: Weights  # there
    J: Any  # derivatives by z of the residuals of samples, jumps and priors, as sparse matrices
    costs: np.ndarray  # the sum of squares after each step
    stopped: str  # `"converged"`, `"iterations"` or `"interrupted"`


def search(
    fit: Fit, noise: Noise, size: np.ndarray, iterations: int, update: Callable[[int, float], None]
) -> FitResult:
    """Rounds of least squares, until neither the noise nor z changes.

    **Arguments:**

    - `size`: how far each of z may change at first, where the data do not say.
    - `update`: told of steps and costs.
    """
    jumps, weights, costs, stopped = _jump_sizes(fit), first_weights(fit, noise), [], "converged"
    descent = _Descent(fit, weights)
    descent.step()
    J: Any = descent.J
    count = fit.rows.y.size
    try:
        for number in range(_ROUNDS):
            if len(costs) >= iterations:
                stopped = "iterations"
                break
            weights = weights._replace(jump=jnp.asarray(jumps[min(number, len(jumps) - 1)]))
            scales = scale_of(J, size), _change_of(fit, J, size)
            fit = eqx.tree_at(lambda f: (f.scale, f.change), fit, tuple(map(as_jax, scales)))
            descent, before, first, enough, idle = _Descent(fit, weights, number), np.inf, np.inf, 0.0, 0
            while idle < _IDLE and len(costs) < iterations:
                descent.step()
                costs.append(descent.cost)
                first = costs[-1] if before == np.inf else first
                update(len(costs), costs[-1])
                enough = _ENOUGH * (1.0 if noise.known.all() else costs[-1] / count)
                idle = idle + 1 if before - costs[-1] <= enough else 0
                idle, before = _IDLE if descent.gain < enough else idle, costs[-1]
            J, fallen, changed = descent.J, first - costs[-1], 0.0
            fit = eqx.tree_at(lambda f: f.z, fit, as_jax(fit.at(descent.u)))
            if not noise.known.all():
                old = np.asarray(weights.noise)
                new = np.maximum(_estimate_noise(fit, J, old), noise.least)
                new = np.where(noise.known, noise.value, new)
                weights = weights._replace(noise=as_jax(new))
                changed = float(np.max(np.abs(np.log(new / old))))
                J[0] = sparse.diags_array(np.tile(old / new, count // new.size)) @ J[0]
            if idle >= _IDLE and number >= len(jumps) - 1 and changed < _SETTLED and fallen < 100.0 * enough:
                break
    except KeyboardInterrupt:
        if not costs:
            raise
        stopped, J = "interrupted", J if descent.J is None else descent.J
        fit = eqx.tree_at(lambda f: f.z, fit, as_jax(fit.at(descent.u)))
    return FitResult(fit, weights, J, np.array(costs), stopped)
