"""The length of a rod from noisy positions, when one of its joints has clearance: a posterior by Hamiltonian Monte Carlo.

The recursive form of the Udwadia-Kalaba equation is a Kalman filter that measures constraints (Orsino 2017), and the
clearance R of a row is the variance of that measurement: with R > 0 the row is met as far as its noise allows. In a
four-bar linkage the coupler's row has a clearance that nobody knows. Under load the rod then looks longer or shorter
than it is. Measured are both pins over 1 s, with noise; wanted is the coupler's length, together with R.

Sampled by blackjax through `uk.Recursive`, with the gradient by forward-mode differentiation. The data are made, and the
posterior is checked by quadrature on a grid, with SciPy and equations written out in numpy. The posterior of one who
ignores the clearance (R = 0) shows what that costs.

    python experiments/clearance_posterior.py [--out out/clearance_posterior] [--quick]
"""

import argparse
import time
from pathlib import Path
from typing import NamedTuple

import diffrax as dfx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from four_bar import LENGTHS, FourBar
from loose_four_bar import GAINS, SAMPLES, SECONDS, pins_by_scipy
from paper_tables import Table
from rollout import rollout
from scipy.optimize import least_squares

import ukjax as uk
from ukjax._figures._plot import STYLE
from ukjax._misc._errors import missing_extra

try:
    import blackjax
except ImportError as error:
    raise missing_extra("this experiment", "learn") from error

STEPS = 100
NOISE = 0.01  # standard deviation of each measured coordinate [m]
LENGTH, CLEARANCE = LENGTHS[2], 0.8  # the truth [m], [1/kg]
# Normal priors of the length [m] and of log R.
MEANS, DEVIATIONS = np.array([0.9, np.log(0.5)]), np.array([0.05, 1.0])
COLOURS = ("#0b5fa5", "#c8452b", "#2f8f4e")


# --- The model, and its posterior


def pins(length: jax.Array, clearance: jax.Array) -> jax.Array:
    """Both pins at the times measured (SAMPLES, 4), from the start the nominal lengths have."""
    q0, v0 = FourBar(jnp.asarray(LENGTHS)).start()
    lengths = jnp.asarray(LENGTHS).at[2].set(length)
    rows = ("crank", "coupler", "rocker")
    options = {
        "formula": uk.Recursive((rows,), clearance={"coupler": clearance}),
        "stabilizer": uk.Baumgarte(*GAINS),
        "solver": dfx.Tsit5(),
    }
    q, _ = rollout(FourBar(lengths), q0, v0, SECONDS / STEPS, STEPS, **options)
    return q[STEPS // SAMPLES :: STEPS // SAMPLES]


def scaled_residuals(z: jax.Array, data: jax.Array) -> jax.Array:
    """Misfits in standard deviations, those of the priors included: the negative log posterior is half their squares.

    z is the pair (length, log R), in standard deviations of the priors from their means.
    """
    length, log_clearance = MEANS + DEVIATIONS * z
    return jnp.concatenate([((pins(length, jnp.exp(log_clearance)) - data) / NOISE).ravel(), z])


def log_posterior(data: jax.Array):
    """The function of z to sample; its gradient takes two tangents through the run, not a run backwards."""

    @jax.custom_vjp
    def value(z):
        return -0.5 * jnp.sum(scaled_residuals(z, data) ** 2)

    def forward(z):
        both = lambda z: (scaled_residuals(z, data),) * 2
        J, residuals = jax.jacfwd(both, has_aux=True)(z)
        return -0.5 * jnp.sum(residuals**2), -residuals @ J

    value.defvjp(forward, lambda slope, change: (change * slope,))
    return value


class Sampled(NamedTuple):
    """Samples (chains, draws, 2) of the length and log R, and what is said of their quality."""

    samples: np.ndarray
    ess: np.ndarray
    rhat: np.ndarray
    acceptance: float
    divergent: int


def sample(data: jax.Array, chains: int, draws: int) -> Sampled:
    """HMC with the inverse Fisher information at the best fit for a metric; Gauss-Newton finds that from the prior."""

    @jax.jit
    def information(z):
        both = lambda z: (scaled_residuals(z, data),) * 2
        J, residuals = jax.jacfwd(both, has_aux=True)(z)
        return J.T @ J, J.T @ residuals

    z = jnp.zeros(2)
    for _ in range(8):
        fisher, slope = information(z)
        z = z - jnp.linalg.solve(fisher, slope)
    covariance = jnp.linalg.inv(information(z)[0])
    hmc = blackjax.hmc(log_posterior(data), 0.6, covariance, num_integration_steps=3)

    @jax.jit
    def run(keys, starts):
        def draw(states, key):
            states, info = jax.vmap(hmc.step)(jax.random.split(key, chains), states)
            return states, (states.position, info.acceptance_rate, info.is_divergent)

        return jax.lax.scan(draw, jax.vmap(hmc.init)(starts), keys)[1]

    spread = jax.random.multivariate_normal(jax.random.key(0), z, 2.0 * covariance, (chains,))
    drawn, acceptance, divergent = run(jax.random.split(jax.random.key(1), draws + draws // 4), spread)
    kept = jnp.swapaxes(drawn[draws // 4 :], 0, 1)
    ess, rhat = (
        f(kept)
        for f in (blackjax.diagnostics.effective_sample_size, blackjax.diagnostics.potential_scale_reduction)
    )
    samples = MEANS + DEVIATIONS * np.asarray(kept)
    return Sampled(samples, np.asarray(ess), np.asarray(rhat), float(acceptance.mean()), int(divergent.sum()))


# --- The check: quadrature over runs by SciPy


class Grid(NamedTuple):
    """The posterior at the points of a grid, normalized: the sum of its weights is 1."""

    axes: list[np.ndarray]
    weights: np.ndarray

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Means and standard deviations of the axes."""
        axes = np.meshgrid(*self.axes, indexing="ij")
        mean = np.array([np.sum(self.weights * x) for x in axes])
        return mean, np.sqrt([np.sum(self.weights * (x - m) ** 2) for x, m in zip(axes, mean, strict=True)])


def misfits(x: np.ndarray, data: np.ndarray) -> np.ndarray:
    """As `scaled_residuals`, of pairs (length, log R) (k, 2), or of lengths alone (k, 1), then with R = 0."""
    clearance = np.exp(x[:, 1]) if x.shape[1] == 2 else np.zeros(len(x))
    off = (pins_by_scipy(x[:, 0], clearance) - data).reshape(len(x), -1) / NOISE
    return np.hstack([off, (x - MEANS[: x.shape[1]]) / DEVIATIONS[: x.shape[1]]])


def quadrature(data: np.ndarray, points: int, with_clearance: bool = True) -> Grid:
    """The posterior on a grid over five standard deviations to each side of the best fit."""
    k = 2 if with_clearance else 1
    best = least_squares(lambda x: misfits(x[None], data)[0], MEANS[:k], x_scale=DEVIATIONS[:k])
    reach = 5.0 * np.sqrt(np.diag(np.linalg.inv(best.jac.T @ best.jac)))
    axes = [m + r * np.linspace(-1, 1, points) for m, r in zip(best.x, reach, strict=True)]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, k)
    value = -0.5 * np.sum(misfits(grid, data) ** 2, axis=1).reshape([points] * k)
    weights = np.exp(value - value.max())
    return Grid(axes, weights / weights.sum())


# --- What is shown


class Found(NamedTuple):
    """Means and deviations of the length [m] and log R: sampled, by quadrature, and of the length without clearance."""

    sampled: Sampled
    mean: np.ndarray
    deviation: np.ndarray
    grid_mean: np.ndarray
    grid_deviation: np.ndarray
    rigid_mean: float
    rigid_deviation: float


def table(found: Found) -> Table:
    draws = found.sampled.samples.reshape(-1, 2).shape[0]
    shown = Table(
        "", f"posterior by {draws} draws: mean ± standard deviation", "length of the coupler [m]", "log R"
    )
    words = lambda m, s: f"{m:.5f} ± {s:.5f}"
    shown.add_row("true", f"{LENGTH:.5f}", f"{np.log(CLEARANCE):.5f}")
    shown.add_row("sampled", *map(words, found.mean, found.deviation))
    shown.add_row("quadrature", *map(words, found.grid_mean, found.grid_deviation))
    off = (found.mean - found.grid_mean) / found.grid_deviation
    shown.add_row("difference of the means [deviations]", *(f"{x:+.3f}" for x in off))
    shown.add_row("ratio of the deviations", *(f"{x:.3f}" for x in found.deviation / found.grid_deviation))
    shown.add_row("effective samples", *(f"{x:.0f}" for x in found.sampled.ess))
    shown.add_row("R-hat", *(f"{x:.3f}" for x in found.sampled.rhat))
    shown.add_row("clearance ignored (quadrature)", words(found.rigid_mean, found.rigid_deviation), "")
    return shown


def figure(found: Found, data: np.ndarray, grid: Grid, rigid: Grid, file: Path) -> None:
    lengths, logs = found.sampled.samples.reshape(-1, 2).T
    with plt.rc_context(STYLE):
        fig, axes = plt.subplots(1, 3, figsize=(12.0, 3.9), layout="constrained")
        t = np.linspace(0, SECONDS, SAMPLES + 1)[1:]
        said = lambda q: np.linalg.norm(q[:, 2:] - q[:, :2], axis=1)
        fit = pins_by_scipy(found.mean[:1], np.exp(found.mean[1:]))[0]
        axes[0].errorbar(
            t, said(data), yerr=np.sqrt(2) * NOISE, fmt="o", ms=3, color="#606870", label="measured"
        )
        axes[0].plot(t, said(fit), color=COLOURS[0], label="posterior mean")
        axes[0].axhline(LENGTH, color="#202020", ls=":", lw=1.0, label="true length")
        axes[0].set(xlabel="t [s]", ylabel="distance of the pins [m]")
        axes[0].set_title("The coupler's joint yields", loc="left")
        axes[0].legend(fontsize="small")
        axes[1].plot(lengths, np.exp(logs), ".", ms=2.5, color=COLOURS[0], alpha=0.5, label="samples")
        levels = grid.weights.max() * np.exp(-0.5 * np.array([9.0, 4.0, 1.0]))
        contours = {"levels": levels, "colors": "#202020", "linewidths": 0.9}
        axes[1].contour(grid.axes[0], np.exp(grid.axes[1]), grid.weights.T, **contours)
        axes[1].plot(LENGTH, CLEARANCE, "+", color=COLOURS[1], ms=11, mew=2, label="true")
        axes[1].set(xlabel="length [m]", ylabel="clearance R [1/kg]")
        axes[1].set_title("Samples, and quadrature at 1, 2, 3 deviations", loc="left")
        axes[1].legend(fontsize="small")
        axes[2].hist(lengths, bins=30, density=True, color=COLOURS[0], alpha=0.35, label="samples")
        for g, name, colour in ((grid, "quadrature", "#202020"), (rigid, "clearance ignored", COLOURS[1])):
            marginal = g.weights.reshape(g.axes[0].size, -1).sum(axis=1)
            axes[2].plot(g.axes[0], marginal / np.diff(g.axes[0])[0], color=colour, label=name)
        axes[2].axvline(LENGTH, color=COLOURS[2], ls="--", lw=1.2, label="true")
        axes[2].set(xlabel="length [m]", ylabel="density [1/m]")
        axes[2].set_title("The length", loc="left")
        axes[2].legend(fontsize="small")
        fig.savefig(file, dpi=160)
        plt.close(fig)


def main(arguments: list[str] | None = None) -> Found:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--out", type=Path, default=Path("out/clearance_posterior"), help="folder of the figure"
    )
    parser.add_argument("--quick", action="store_true", help="half the draws, a coarser grid")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    plt.switch_backend("agg")
    options.out.mkdir(parents=True, exist_ok=True)
    exact = pins_by_scipy(np.array([LENGTH]), np.array([CLEARANCE]))[0]
    data = exact + NOISE * np.random.default_rng(0).normal(size=exact.shape)
    points, draws = (15, 40) if options.quick else (25, 120)
    sampled = sample(jnp.asarray(data), 16, draws)
    grid, rigid = quadrature(data, points), quadrature(data, 41, with_clearance=False)
    flat, (rigid_mean, rigid_deviation) = sampled.samples.reshape(-1, 2), rigid.moments()
    moments = flat.mean(axis=0), flat.std(axis=0), *grid.moments()
    found = Found(sampled, *moments, float(rigid_mean[0]), float(rigid_deviation[0]))
    print(table(found))
    figure(found, data, grid, rigid, options.out / "clearance_posterior.png")
    print(
        f"acceptance {sampled.acceptance:.2f}, {sampled.divergent} divergent, CPU time {time.process_time():.0f} s"
    )
    return found


if __name__ == "__main__":
    main()
