"""The command `ukjax sweep NAME`: many runs of a model, by `sweep`."""

import csv
import functools
import itertools
import math
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.markup import escape
from rich.table import Table

import ukjax as uk

from .._misc._errors import InputError
from .._system._labels import make_indexed_names
from . import _options
from ._cluster import executor_of, tell_status
from ._terminal import interruptible, print_json, share_cores, show, start_jax

_SEQUENCES = {"sobol": "Sobol", "latin-hypercube": "LatinHypercube"}  # names in `ukjax`, which load JAX


def _numbers(option: str, pair: str, such_as: str) -> tuple[str, list[float]]:
    """KEY and the numbers between colons or commas."""
    key, equals, text = pair.partition("=")
    try:
        if not (key and equals):
            raise ValueError
        return key, [float(x) for x in text.replace(":", ",").split(",")]
    except ValueError:
        raise InputError(f"{option} takes {such_as}; got '{pair}'.") from None


def _axis(pair: str) -> tuple[str, np.ndarray]:
    such_as = "KEY=LOW:HIGH:N or KEY=VALUE,VALUE,..., such as angle=0.1:3:30"
    key, numbers = _numbers("--grid", pair, such_as)
    if ":" not in pair:
        return key, np.array(numbers)
    if len(numbers) != 3 or "," in pair or numbers[2] < 1 or numbers[2] % 1:
        raise InputError(f"--grid takes {such_as}; got '{pair}'.")
    return key, np.linspace(numbers[0], numbers[1], int(numbers[2]))


def _range(pair: str) -> tuple[str, tuple[float, float]]:
    key, numbers = _numbers("--sample", pair, "KEY=LOW:HIGH, such as length=0.5:2")
    if len(numbers) != 2:
        raise InputError(f"--sample takes KEY=LOW:HIGH, such as length=0.5:2; got '{pair}'.")
    return key, (numbers[0], numbers[1])


def _read(path: Path) -> "uk.samples.Table":
    with path.open(newline="", encoding="utf-8-sig") as file:  # spreadsheets write a byte-order mark
        head, *rows = [row for row in csv.reader(file) if any(map(str.strip, row))] or [[]]
    if any(len(row) != len(head) for row in rows) or not rows:
        raise InputError(
            f"'{path}' must begin with a line of names; each further line has a number for each name."
        )
    return uk.samples.Table(
        _distinct("--table", [(name.strip(), [row[i] for row in rows]) for i, name in enumerate(head)])
    )


def _distinct(option: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    parameters = dict(pairs)
    if len(parameters) < len(pairs):
        raise InputError(f"{option} names a parameter twice.")
    return parameters


def _samples(
    grid: list[str], sample: list[str], table: Path | None, runs: int, sequence: str, seed: int
) -> "uk.samples.AbstractSamples":
    if sum(map(bool, (grid, sample, table))) != 1:
        raise InputError("say what varies: either --grid, or --sample, or --table.")
    if table is not None:
        return _read(table)
    if grid:
        return uk.samples.Grid(_distinct("--grid", [_axis(pair) for pair in grid]))
    kind = getattr(uk, _options.choose("sequence", sequence, _SEQUENCES))
    return kind(_distinct("--sample", [_range(pair) for pair in sample]), runs, seed)


def _where(runs: Any, place: tuple[Any, ...]) -> dict[str, float]:
    one = runs.isel(dict(zip(runs["result"].dims, map(int, place), strict=True)))
    names = [name for name in runs.attrs["parameters"] if one[name].ndim == 0]
    return {name: float(one[name]) for name in names}


_MOST_ENTRIES = 12  # of an output that are told apart: a screen holds some of these


def _places(labels: list[str]) -> list[str]:
    """What stands in brackets: labels, or numbers where there are none of one's own."""
    numbers = [str(i) for i in range(len(labels))]
    return numbers if any(labels == list(make_indexed_names(x, len(labels))) for x in "qvu") else labels


def _entries(runs: Any, name: str) -> dict[str, np.ndarray]:
    """An output by names such as `q_end[1]` or `q_end[crank theta]`, each (runs..., k): k numbers a run, as over time.

    Of an output with many entries they are taken together.
    """
    of_runs, output = runs["result"].dims, runs[name]
    dims = [dim for dim in output.dims if dim not in (*of_runs, "time")]
    x = output.transpose(*of_runs, *dims, ...).values
    shape, lengths = x.shape[: len(of_runs)], [output.sizes[dim] for dim in dims]
    if math.prod(lengths) > _MOST_ENTRIES:
        return {name: x.reshape(*shape, -1)}
    places = [_places([str(x) for x in output[dim].values]) for dim in dims]
    names = [f"{name}[{', '.join(place)}]" if place else name for place in itertools.product(*places)]
    x = x.reshape(*shape, len(names), -1)
    return {entry: x[..., i, :] for i, entry in enumerate(names)}


def _range_of(runs: Any, x: np.ndarray) -> dict[str, Any] | None:
    """Of numbers (runs..., k) the least, the median, the largest, and where; None where no run gave any."""
    valid = np.isfinite(x) if x.dtype.kind == "f" else x >= 0
    if not valid.any():
        return None
    low, high = (np.where(valid, x, fill) for fill in (np.inf, -np.inf))
    least, largest = (np.unravel_index(i, x.shape) for i in (low.argmin(), high.argmax()))
    return {
        "min": x[least].item(), "median": float(np.median(x[valid])), "max": x[largest].item(),
        "at_min": _where(runs, least[:-1]), "at_max": _where(runs, largest[:-1]),
    }  # fmt: skip


def _summary(runs: Any, seconds: float) -> dict[str, Any]:
    """The figures of a sweep: how its runs ended, and the range of each output."""
    codes = runs["result"].values
    names = runs["result"].attrs["flag_meanings"].split()
    outcomes = {
        names[code + 1]: int(n) for code, n in zip(*np.unique(codes, return_counts=True), strict=True)
    }
    good = sum(outcomes.get(name, 0) for name in ("successful", "event_occurred"))
    names = [name for name in runs.data_vars if name != "result"]
    entries = {entry: x for name in names for entry, x in _entries(runs, name).items()}
    outputs = {name: figures for name, x in entries.items() if (figures := _range_of(runs, x))}
    return {
        "model": runs.attrs["model"], "runs": codes.size, "failed": codes.size - good, "results": outcomes,
        "outputs": outputs, "wall_time": seconds,
    }  # fmt: skip


def _show(summary: dict[str, Any], out: str | None) -> None:
    """What a person reads of a sweep."""
    results = ", ".join(f"{n} {name}" for name, n in summary["results"].items())
    table = Table(title=f"{summary['model']}: {results}", caption=f"{summary['wall_time']:.1f} s")
    for column in ("output", "least", "at", "median", "largest", "at"):
        table.add_column(column)
    for name, x in summary["outputs"].items():
        at = ["\n".join(f"{k} {v:.4g}" for k, v in x[key].items()) for key in ("at_min", "at_max")]
        if x["min"] == x["max"]:
            at = ["", ""]
        shown = (name, f"{x['min']:.4g}", at[0], f"{x['median']:.4g}", f"{x['max']:.4g}", at[1])
        table.add_row(*map(escape, shown))
    show(table)
    if out is not None:
        print("written:", out)


def sweep(
    name: Annotated[str | None, _options.NAME] = None,
    parameters: _options.Set = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=LOW:HIGH:N", help="An axis of a grid, or KEY=VALUE,VALUE; may be repeated."
        ),
    ] = None,
    sample: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=LOW:HIGH", help="A range to sample; may be repeated."),
    ] = None,
    table: Annotated[Path | None, typer.Option(help="A .csv file: names, then a line for each run.")] = None,
    runs: Annotated[int, typer.Option(help="How many runs with --sample.")] = 1024,
    sequence: Annotated[str, typer.Option(help=f"{', '.join(_SEQUENCES)}.")] = "sobol",
    seed: Annotated[int, typer.Option(help="Of the samples.")] = 0,
    output: Annotated[
        list[str] | None, typer.Option(help="What to keep of each run; may be repeated.")
    ] = None,
    gradient: Annotated[
        list[str] | None, typer.Option(help="An output to differentiate; may be repeated.")
    ] = None,
    out: Annotated[
        str | None, typer.Option(help="A .zarr folder, or its URL; the same command resumes it.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the folder.")] = False,
    chunk: Annotated[int | None, typer.Option(help="The most runs at once; by default by memory.")] = None,
    cores: Annotated[
        int | None, typer.Option(min=1, help="CPU cores that share the runs; by default all.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes here that make the chunks.")] = None,
    dask: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="A Dask scheduler, as tcp://host:8786.")
    ] = None,
    ray: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="A Ray cluster, as ray://host:10001 or auto.")
    ] = None,
    status: Annotated[
        str | None,
        typer.Option(metavar="STORE", help="Tell how far a store is, and end."),
    ] = None,
    t1: _options.End = None,
    dt0: _options.Step = None,
    contact: _options.ContactBy = None,
    times: _options.Times = None,
    method: _options.Method = None,
    formula: _options.Formula = "udwadia-kalaba",
    rcond: _options.Rcond = None,
    stabilizer: _options.Stabilizer = "projection",
    alpha: _options.Alpha = None,
    beta: _options.Beta = None,
    solver: _options.Solver = "dopri8",
    rtol: _options.Rtol = None,
    atol: _options.Atol = None,
    max_steps: _options.MaxSteps = 100_000,
    on_violation: _options.OnViolation = "stop",
    float32: _options.Float32 = False,
    progress: Annotated[bool, typer.Option(help="Show runs per second and the time left.")] = True,
    as_json: _options.Json = False,
) -> None:
    """Make many runs of a model, which differ in parameters, initial states or gains."""
    if status is not None:
        return tell_status(status, as_json)
    if name is None:
        raise InputError("give the NAME of a model, as in `ukjax list`.")
    if out is not None and not out.endswith(".zarr"):
        raise InputError(f"a sweep is written to a .zarr folder; got '{out}'.")
    executor = executor_of(workers, dask, ray)
    start_jax(float32)
    if executor is None:
        share_cores(cores)
    elif out is None or cores is not None:
        raise InputError("workers need --out, where they write to, and no --cores: each has one.")
    samples = _samples(grid or [], sample or [], table, runs, sequence, seed)
    model, fixed = _options.model_of(name, parameters)
    if both := fixed.keys() & set(samples.names):
        raise InputError(f"{min(both)} is both set and varied.")
    settings = _options.numerics(formula, method, rcond, stabilizer, alpha, beta, solver)
    settings |= {"outputs": output or None, "gradients": gradient or ()}
    settings |= {"t1": t1, "dt0": dt0, "contact": contact, "ts": times, "rtol": rtol, "atol": atol}
    settings |= {"max_steps": max_steps, "on_violation": on_violation, "executor": executor}
    settings |= {"store": out, "overwrite": overwrite, "chunk": chunk, "progress": progress}
    start = time.perf_counter()
    dataset = interruptible(lambda: uk.sweep(functools.partial(model, **fixed), samples, **settings))
    summary = _summary(dataset, time.perf_counter() - start)
    if as_json:
        print_json(summary | {"out": out})
    else:
        _show(summary, out)
    if summary["failed"] == summary["runs"]:
        raise typer.Exit(1)
