"""Masses and inertias of the SCARA arm, and lengths of a four-bar linkage, from trajectories with 1 % noise.

Four data sets; what each can tell follows from the singular values of its sensitivities, and what it cannot is named:

- the arm's joint positions while its tool slides on a rail and known forces drive its joints, six short runs;
- the joint forces on the paper's helix. (The joint positions tell nothing there: four rows on four joints decide them.)
- a tracing point on the coupler of a four-bar linkage that swings under gravity;
- the angles of coupler and rocker while the crank turns at a given rate.

The estimate is SciPy's Levenberg-Marquardt in logarithms of the parameters, with Jacobians by forward-mode
differentiation through the runs, from as many starts as it takes to fit the data. Noise: 1 % of the standard deviation
of the signal that varies most.

    python experiments/identify.py [--out out/identify] [--quick]
"""

import argparse
import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from base_parameters import Basis, Study, bases, combination, deviations, in_words, unseen_changes
from four_bar import LENGTHS, NAMES, FourBar, angles, outline, tracer
from paper_tables import Table
from rollout import rollout
from scara_runs import DRIVES, MASSES, arm_on_helix, arm_on_rail
from scipy.optimize import least_squares

import ukjax as uk
from ukjax._figures._plot import STYLE

NOISE = 0.01
STARTS = 8  # at most
PULL = 1e-2  # towards the start, in standard deviations per unit of a logarithm: it decides what the data leave open
COLOURS = ("#0b5fa5", "#c8452b", "#2f8f4e", "#6b4fa0")


class Found(NamedTuple):
    """What a study gave. Errors and deviations of combinations are relative."""

    study: Study
    basis: Basis
    combinations: list[str]
    unseen: list[str]
    true: np.ndarray
    estimate: np.ndarray
    deviation: np.ndarray
    singular_values: np.ndarray
    start: np.ndarray
    parameters: np.ndarray
    data: np.ndarray
    before: np.ndarray
    fit: np.ndarray

    @property
    def error(self) -> np.ndarray:
        return self.estimate / self.true - 1.0


# --- The mechanisms


def swinging(lengths: jax.Array, steps: int) -> jax.Array:
    """The tracing point over 2 s from rest (k, 2)."""
    linkage = FourBar(lengths)
    return tracer(rollout(linkage, *linkage.start(), 2.0 / steps, steps)[0])


def driven(lengths: jax.Array, steps: int) -> jax.Array:
    """Angles of coupler and rocker over a turn of the crank (k, 2)."""
    linkage = FourBar(lengths, rate=2.0 * np.pi)
    return angles(rollout(linkage, *linkage.start(), 1.0 / steps, steps)[0], lengths[0])


def studies(steps: int) -> list[Study]:
    arm = uk.models.scara().system
    masses = np.array([float(getattr(arm, name)) for name in MASSES])
    lengths = np.array(LENGTHS)
    of = lambda fn: lambda parameters: fn(parameters, steps)
    return [
        Study("arm on a rail: joint positions", MASSES, masses, of(arm_on_rail), "sum"),
        Study("arm on the helix: joint forces", MASSES, masses, of(arm_on_helix), "sum"),
        Study("four-bar, swinging: tracing point", NAMES, lengths, of(swinging), "product"),
        Study("four-bar, driven: angles", NAMES, lengths, of(driven), "product"),
    ]


# --- The estimate


def estimate(misfit: Callable, jacobian: Callable, noise: float, truth: np.ndarray) -> tuple:
    """The start (up to 20 % off) and the fit. A bad fit shows in its chi-squared; then another start is tried."""
    random, fits = np.random.default_rng(1), []
    for _ in range(STARTS):
        start = truth * random.uniform(0.8, 1.2, size=truth.size)
        solution = least_squares(
            # Lengths that do not close have no run.
            lambda log: np.nan_to_num(np.append(misfit(log), PULL * (log - np.log(start))), nan=1e3),  # noqa: B023
            np.log(start),
            jac=lambda log: np.nan_to_num(
                np.vstack([jacobian(log).reshape(-1, log.size) / noise, PULL * np.eye(log.size)])
            ),
            method="lm",
            x_scale=1.0,
            ftol=1e-10,
            xtol=1e-8,
            max_nfev=40,
        )
        fits.append((start, solution))
        if 2.0 * solution.cost < 1.3 * solution.fun.size:
            break
    return min(fits, key=lambda fit: fit[1].cost)


def identify(study: Study, seed: int = 0) -> Found:
    """Makes the data, estimates the parameters from a start up to 20 % off, and compares with the truth."""
    both = lambda log: (study.outputs(jnp.exp(log)),) * 2
    compiled = jax.jit(jax.jacfwd(both, has_aux=True))
    at = functools.lru_cache(
        lambda log: compiled(np.array(log))
    )  # SciPy asks for values and derivatives apart
    run, jacobian = (lambda log, i=i: np.asarray(at(tuple(log))[i]) for i in (1, 0))

    random = np.random.default_rng(seed)
    exact = run(np.log(study.truth))
    noise = NOISE * exact.std(axis=0).max()
    data = exact + noise * random.normal(size=exact.shape)
    start, solution = estimate(lambda log: (run(log) - data).ravel() / noise, jacobian, noise, study.truth)
    parameters, J = np.exp(solution.x), solution.jac[: data.size]
    candidates, singular_values = bases(J)
    spread = lambda basis: deviations(study, parameters, J, basis).max()
    best = min(candidates, key=lambda basis: (round(np.log10(spread(basis)), 2), np.abs(basis.K).sum()))
    combined, factors = combination(study, parameters, best)
    return Found(
        study,
        best,
        [in_words(study, i, best.free, row) for i, row in zip(best.kept, factors, strict=True)],
        unseen_changes(study, best),
        combined(study.truth),
        combined(parameters),
        deviations(study, parameters, J, best),
        singular_values,
        start,
        parameters,
        data,
        run(np.log(start)),
        run(solution.x),
    )


# --- What is shown


def table(found: Found) -> Table:
    shown = Table("", found.study.name, "true", "estimate", "error [%]", "one standard deviation [%]")
    columns = found.combinations, found.true, found.estimate, 100 * found.error, 100 * found.deviation
    for name, true, estimate, error, deviation in zip(*columns, strict=True):
        shown.add_row(name, f"{true:.6g}", f"{estimate:.6g}", f"{error:+.3f}", f"{deviation:.3f}")
    return shown


def draw_data(axes, arm: Found, linkage: Found) -> None:
    """Data, the run with the parameters at the start, and the fit: one run of the arm, the tracing point."""
    count = len(arm.data) // len(DRIVES)
    t = np.linspace(0.0, 1.5, count)
    for i, colour in enumerate(COLOURS):
        axes[0].plot(t[::6], arm.data[:count:6, i], ".", ms=2.5, color=colour, alpha=0.5)
        axes[0].plot(t, arm.fit[:count, i], color=colour, label=f"$q_{i + 1}$")
        axes[0].plot(t, arm.before[:count, i], ":", color=colour, lw=1.0)
    axes[0].set(xlabel="t [s]", ylabel="joint position [rad, m]")
    axes[0].set_title("Arm on a rail, first run (dotted: start)", loc="left")
    axes[0].legend(ncols=4, fontsize="small")
    axes[1].plot(*linkage.data.T, ".", ms=2.5, color="#808890", label="measured")
    axes[1].plot(*linkage.before.T, ":", color=COLOURS[1], lw=1.0, label="start")
    axes[1].plot(*linkage.fit.T, color=COLOURS[0], label="fit")
    lengths = jnp.asarray(linkage.parameters)
    bars = outline(np.asarray(FourBar(lengths).start()[0]), lengths[0])
    axes[1].plot(*bars.T, "o-", color="#202020", lw=1.0, ms=3.0, alpha=0.4)
    axes[1].set(xlabel="x [m]", ylabel="y [m]", aspect="equal")
    axes[1].set_title("Tracing point of the four-bar", loc="left")
    axes[1].legend(fontsize="small")


def draw_information(axis, all_found: list[Found]) -> None:
    """Singular values: 1 / s is the relative standard deviation of a direction in parameter space."""
    floor = 1e-2
    for found, colour in zip(all_found, COLOURS, strict=True):
        s = np.maximum(found.singular_values, floor)
        axis.semilogy(np.arange(1, s.size + 1), s, "o-", color=colour, ms=4, label=found.study.name)
    axis.axhspan(0.5 * floor, 4 * floor, color="#c8452b", alpha=0.12, lw=0)
    axis.text(1.0, 1.2 * floor, "not seen (zero to rounding)", fontsize=8, color="#a03020")
    axis.set(xlabel="direction", ylabel="singular value = 1 / relative deviation", ylim=(0.5 * floor, 2e6))
    axis.set_title("What the data tell", loc="left")
    axis.legend(fontsize="x-small", loc="upper right")


def draw_errors(axis, all_found: list[Found]) -> None:
    labels, row = [], 0
    for found, colour in zip(all_found, COLOURS, strict=True):
        rows = np.arange(row, row + found.error.size)
        bars = {"xerr": 100 * found.deviation, "fmt": "o", "ms": 4, "color": colour, "lw": 1.2, "capsize": 2}
        axis.errorbar(100 * found.error, rows, **bars)
        labels, row = labels + found.combinations, row + found.error.size
    axis.axvspan(-1, 1, color="#2f8f4e", alpha=0.10, lw=0)
    axis.axvline(0, color="#404040", lw=0.8)
    axis.set_yticks(range(row), labels, fontsize=7)
    axis.invert_yaxis()
    axis.set(xlabel="error, with one standard deviation [%]", xlim=(-1.6, 1.6))
    axis.set_title("Identifiable combinations", loc="left")


def figure(all_found: list[Found], file: Path) -> None:
    with plt.rc_context(STYLE):
        fig, axes = plt.subplots(2, 2, figsize=(10.0, 7.5), layout="constrained")
        draw_data(axes[0], all_found[0], all_found[2])
        draw_information(axes[1, 0], all_found)
        draw_errors(axes[1, 1], all_found)
        fig.savefig(file, dpi=160)
        plt.close(fig)


def main(arguments: list[str] | None = None) -> list[Found]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/identify"), help="folder of the figure")
    parser.add_argument("--quick", action="store_true", help="a third of the samples")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    plt.switch_backend("agg")
    options.out.mkdir(parents=True, exist_ok=True)
    all_found = []
    for study in studies(100 if options.quick else 300):
        all_found.append(identify(study))
        print(table(all_found[-1]))
        for change in all_found[-1].unseen:
            print(f"  changes nothing: {change}")
    figure(all_found, options.out / "identify.png")
    print(f"CPU time {time.process_time():.0f} s; wrote {options.out / 'identify.png'}")
    return all_found


if __name__ == "__main__":
    main()
