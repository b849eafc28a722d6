"""The command `ukjax tune NAME`: Baumgarte's gains for a model, by `tune`."""

import dataclasses
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import ukjax as uk

from .._misc._errors import InputError
from . import _options
from ._terminal import interruptible, print_json, show_rows, start_jax

_OPTIMIZERS = ("lbfgs", "adam", "sgd")


def _optimizer(name: str) -> Any:
    import optax

    chosen = _options.choose("optimizer", name, {x: x for x in _OPTIMIZERS})
    return {"lbfgs": None, "adam": optax.adam(0.2), "sgd": optax.sgd(0.1)}[chosen]


def _perturb_starts(problem: "uk.Problem", size: float, count: int) -> "uk.Problem | list[uk.Problem]":
    """The problem from `count` starts that are off by normal errors of that size, the same at every call."""
    if not size:
        return problem
    random = np.random.default_rng(0)
    off = lambda x: x + size * random.normal(size=x.shape).astype(x.dtype)
    return [dataclasses.replace(problem, q0=off(problem.q0), v0=off(problem.v0)) for _ in range(count)]


def _in_words(summary: dict[str, Any], written: list[str], seconds: float) -> dict[str, str]:
    """What a person reads of a search."""
    shown = {name: f"{x:.6g}" for name, x in summary["gains"].items()}
    from .._tune._result import ending  # which loads JAX

    shown |= {
        "loss": f"{summary['loss']:.4g}, {summary['improvement']:.3g} times less than {summary['loss_before']:.4g}",
        "evaluations of the run": f"{summary['evaluations']}, before {summary['evaluations_before']}",
        "search": f"{ending(summary['stopped'])} after {summary['iterations']} iterations, {seconds:.1f} s",
    }
    return shown | ({"written": ", ".join(written)} if written else {})


def tune(
    name: _options.Name,
    parameters: _options.Set = None,
    stabilizer: Annotated[str, typer.Option(help="baumgarte or baumgarte-squared.")] = "baumgarte",
    alpha: Annotated[float | None, typer.Option(help="Velocity gain to start from.")] = None,
    beta: Annotated[float | None, typer.Option(help="Position gain to start from.")] = None,
    per_row: Annotated[bool, typer.Option("--per-row", help="Gains of its own for every row.")] = False,
    t1: Annotated[float | None, typer.Option(help="End in s; by default the model's, at most 5 s.")] = None,
    dt0: Annotated[
        float | None, typer.Option(help="First step in s; 0.01 and all of them without --adaptive.")
    ] = None,
    adaptive: Annotated[bool, typer.Option("--adaptive", help="Adaptive steps; stiffness costs.")] = False,
    budget: Annotated[float | None, typer.Option(help="Evaluations that runs may take.")] = None,
    position: Annotated[float, typer.Option(help="Weight of the position errors.")] = 1.0,
    velocity: Annotated[float, typer.Option(help="Weight of the velocity errors.")] = 0.0,
    window: Annotated[tuple[float, float] | None, typer.Option(help="Times that count, in s.")] = None,
    off: Annotated[float, typer.Option(help="Tune for several starts, off by errors of this size.")] = 0.0,
    samples: Annotated[int, typer.Option(min=2, help="How many starts with --off.")] = 8,
    worst: Annotated[
        bool, typer.Option("--worst", help="Of several starts the worst, not the mean.")
    ] = False,
    method: _options.Method = None,
    formula: _options.Formula = "udwadia-kalaba",
    rcond: _options.Rcond = None,
    solver: _options.Solver = "tsit5",
    rtol: _options.Rtol = None,
    atol: _options.Atol = None,
    max_steps: _options.MaxSteps = 100_000,
    optimizer: Annotated[str, typer.Option(help=f"{', '.join(_OPTIMIZERS)}.")] = "lbfgs",
    starts: Annotated[int, typer.Option(help="How many gains to try first.")] = 32,
    iterations: Annotated[int, typer.Option(help="The most steps of the optimizer.")] = 40,
    checkpoint: Annotated[Path | None, typer.Option(help="An .npz file to go on from later.")] = None,
    plot: _options.Plot = None,
    resolution: Annotated[int, typer.Option(min=2, help="Points along each gain of the plot.")] = 32,
    float32: _options.Float32 = False,
    progress: Annotated[bool, typer.Option(help="Show the loss while it falls.")] = True,
    as_json: _options.Json = False,
) -> None:
    """Tune Baumgarte's gains of a model, so that its constraint errors are small."""
    _options.check_targets(plot, None, False)
    if stabilizer not in ("baumgarte", "baumgarte-squared"):
        raise InputError(f"only baumgarte and baumgarte-squared have gains to tune, not '{stabilizer}'.")
    start_jax(float32)
    import diffrax as dfx

    squared = stabilizer == "baumgarte-squared"
    alpha, beta = (
        x if given is None else given
        for given, x in zip((alpha, beta), (0.25, 200.0**0.5) if squared else (0.5, 200.0), strict=True)
    )
    problem = _options.problem_of(name, parameters)
    settings: dict[str, Any] = {
        "optimizer": _optimizer(optimizer),
        "t1": min(problem.t1, problem.t0 + 5.0) if t1 is None else t1,
        "dt0": 0.01 if dt0 is None and not adaptive else dt0,
        "stepsize_controller": None if adaptive else dfx.ConstantStepSize(),
        "formula": _options.formula_of(formula, method, rcond),
        "solver": _options.choose("solver", solver, _options.solvers())(),
        "convention": "squared" if squared else "plain",
        "aggregate": "worst" if worst else "mean",
    }
    settings |= {"rtol": rtol, "atol": atol, "max_steps": max_steps, "per_row": per_row, "starts": starts}
    settings |= {"iterations": iterations, "checkpoint": checkpoint, "progress": progress}
    gains = _options.stabilizer_of(stabilizer, alpha, beta, rcond)
    loss = uk.ViolationLoss(position, velocity, window=window, budget=budget)
    start = time.perf_counter()
    result = interruptible(lambda: uk.tune(_perturb_starts(problem, off, samples), gains, loss, **settings))
    seconds = time.perf_counter() - start
    written = [str(path) for path in (checkpoint, plot) if path is not None]
    if plot is not None:
        interruptible(lambda: result.plot(plot, resolution=resolution))
    if as_json:
        return print_json(result.summary() | {"wall_time": seconds})
    summary = result.summary()
    show_rows(_in_words(summary, written, seconds), title=summary["model"])
