"""The command line: `ukjax list`, `simulate`, `check`, `load`, `tune`, `sweep`, `export`, `bench`, `doctor`, `cache`;
also `python -m ukjax`.

Exit status 0 for success, 1 for a run that ended early, 2 for bad input, with one line on stderr that says
what was wrong. Being an application, it switches JAX to float64 and keeps compiled programs in a cache.
"""

import dataclasses
import importlib.metadata
import importlib.util
import os
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.markup import escape
from rich.table import Table

import ukjax as uk

from .._misc import _cache
from .._misc._errors import InputError
from . import _options
from ._bench import bench
from ._export import export
from ._robot_files import load
from ._sweep import sweep
from ._terminal import OneLineErrors, interruptible, print_json, show, show_rows, start_jax
from ._tune import tune

_EXAMPLES = """[bold]Try[/bold]

  ukjax simulate scara --plot scara.png      a SCARA arm, as a figure

  ukjax simulate parallelogram --view        a linkage, in the browser

  ukjax load robot.xml                       what of a robot's file is used

  ukjax simulate robot.urdf --t1 1 --view    a robot from its file

  ukjax list                                 all models

  ukjax doctor                               versions, devices, what is missing
"""
app = typer.Typer(
    name="ukjax",
    cls=OneLineErrors,
    rich_markup_mode="rich",
    epilog=_EXAMPLES,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Runs the command line, and leaves at once on Ctrl-C."""
    try:
        app(prog_name="ukjax")
    except SystemExit as leaving:
        if leaving.code != 130:
            raise
        print("interrupted", file=sys.stderr, flush=True)
        os._exit(130)  # a compilation under way in the other thread cannot be stopped otherwise


def _show_version(wanted: bool) -> None:
    if wanted:
        print("ukjax", importlib.metadata.version("ukjax"))
        raise typer.Exit


@app.callback()
def _application(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Its version.")
    ] = False,
) -> None:
    """Simulate constrained mechanical systems by the Udwadia-Kalaba equation."""


def _points(problem: "uk.Problem", trajectory: "uk.Trajectory") -> dict[str, Any]:
    if problem.points is None:
        return {}
    return problem.points(trajectory.t_end, trajectory.q_end)


_EVENTS_SHOWN = 8  # lines of a table


def _in_words(problem: "uk.Problem", figures: dict[str, Any]) -> dict[str, str]:
    """What a person reads of a run."""

    def short(x: float | None) -> str:
        return "-" if x is None else f"{x:.3g}"

    ranks = sorted({figures["rank_min"], figures["rank_max"]})
    evaluations = figures["evaluations"]
    shown = {
        "result": figures["result"],
        "time": f"{problem.t0:g} to {figures['t1']:g} s",
        "steps": str(figures["steps"])
        + ("" if evaluations is None else f", {evaluations} evaluations of the acceleration"),
        "max. position error": short(figures["max_position_error"]),
        "max. velocity error": short(figures["max_velocity_error"]),
        **{
            words: short(figures[name])
            for name, words in {
                "max_servo_position_error": "max. tracking error",
                "servo_position_error_end": "tracking error at the end",
                "max_input": "max. input",
            }.items()
            if name in figures
        },
        "change of energy": short(figures["energy_drift"]) + " J",
        "rank of the rows": " to ".join(map(str, ranks)),
    }
    if any(figures["start_moved"]):
        shown["start moved by"] = "q {:.3g}, v {:.3g}".format(*figures["start_moved"])
    for name, point in figures["points"].items():
        rounded = np.round(np.asarray(point), 9) + 0.0  # no -0
        shown[f"{name} at the end"] = ", ".join(f"{x:.9g}" for x in rounded) + " m"
    if (told := figures.get("contact_events")) is not None:
        more = [f"and {len(told) - _EVENTS_SHOWN} more (--json)"] if len(told) > _EVENTS_SHOWN else []
        shown["contacts"] = "\n".join([*told[:_EVENTS_SHOWN], *more]) or "none met"
    return shown


@app.command("list")
def list_models(
    citations: Annotated[bool, typer.Option("--citations", help="Also say where each is from.")] = False,
    as_json: _options.Json = False,
) -> None:
    """List the models."""
    entries = _options.catalogue()
    if as_json:
        return print_json({"models": entries})
    table = Table(box=None, padding=(0, 2, int(citations), 0))
    for column in ("model", "coordinates", "rows", "description"):
        table.add_column(column, no_wrap=column == "model")
    for entry in entries:
        *numbers, description, citation = (escape(str(x)) for x in entry.values())
        table.add_row(*numbers, f"{description}\n[dim]{citation}[/dim]" if citations else description)
    show(table)


@app.command()
def simulate(
    name: _options.Name,
    parameters: _options.Set = None,
    t1: _options.End = None,
    dt0: _options.Step = None,
    contact: _options.ContactBy = None,
    method: _options.Method = None,
    formula: _options.Formula = "udwadia-kalaba",
    rcond: _options.Rcond = None,
    stabilizer: _options.Stabilizer = "projection",
    alpha: _options.Alpha = None,
    beta: _options.Beta = None,
    rtol: _options.Rtol = None,
    atol: _options.Atol = None,
    solver: _options.Solver = "dopri8",
    times: _options.Times = None,
    save_steps: Annotated[bool, typer.Option("--save-steps", help="Save every step.")] = False,
    max_steps: _options.MaxSteps = 100_000,
    on_violation: _options.OnViolation = "stop",
    float32: _options.Float32 = False,
    plot: _options.Plot = None,
    out: Annotated[
        Path | None, typer.Option("--out", "--save", help="Save to a .npz, .nc, .zarr, .csv or .html file.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Certify it: write a report to a .md or .json file.")
    ] = None,
    view: Annotated[bool, typer.Option("--view", help="Show it in the browser, until Ctrl-C.")] = False,
    progress: Annotated[bool, typer.Option(help="Show how far the run is.")] = False,
    as_json: _options.Json = False,
) -> None:
    """Simulate a model, and print how well its constraints were kept."""
    if save_steps and times is not None:
        raise InputError("--save-steps saves every step; leave out --times.")
    _options.check_targets(plot, out, progress, view, report)
    start_jax(float32)
    import diffrax as dfx

    settings = _options.numerics(formula, method, rcond, stabilizer, alpha, beta, solver)
    settings |= {"progress": dfx.TqdmProgressMeter() if progress else False}
    settings |= {"t1": t1, "dt0": dt0, "contact": contact, "rtol": rtol, "atol": atol, "max_steps": max_steps}
    settings |= {"on_violation": on_violation}
    problem = _options.problem_of(name, parameters)
    start = time.perf_counter()
    trajectory = interruptible(lambda: uk.simulate(problem, ts="steps" if save_steps else times, **settings))
    wall_time = time.perf_counter() - start
    written = []
    for write, path in ((trajectory.plot, plot), (trajectory.save, out), (trajectory.certify, report)):
        if path is not None:
            write(path)
            written.append(str(path))
    figures = trajectory.summary() | {
        "points": _points(problem, trajectory),
        "message": trajectory.message,
        "wall_time": wall_time,
    }
    figures |= {} if trajectory.contacts is None else {"contact_events": trajectory.contacts.told()}
    if as_json:
        print_json(figures)
    else:
        rows = _in_words(problem, figures)
        rows |= {"simulation took": f"{wall_time:.1f} s, compiling included"}
        rows |= {"written": ", ".join(written)} if written else {}
        show_rows(rows, title=problem.name, caption=problem.citation)
    if view:
        shown = trajectory.view()
        if sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
            typer.launch(shown.address)  # elsewhere it might take a browser of the terminal
        shown.wait()
    if not trajectory.ok:
        print(trajectory.message, file=sys.stderr)
        raise typer.Exit(1)


@app.command()
def check(name: _options.Name, parameters: _options.Set = None, as_json: _options.Json = False) -> None:
    """Examine a model's constraints: rank, redundant and inconsistent rows, uniqueness."""
    start_jax()
    problem = _options.problem_of(name, parameters)
    report = interruptible(lambda: uk.check(problem))
    if not as_json:
        print(report)
        return
    fields = {field.name: getattr(report, field.name) for field in dataclasses.fields(report)}
    del fields["problem"]  # which the command was given
    state = report.consistent_state
    fields["contact_pairs"] = [x._asdict() for x in report.contact_pairs]
    fields["consistent_state"] = None if state is None else dict(zip("qv", state, strict=True))
    counts = {"ok": report.ok, "degrees_of_freedom": report.degrees_of_freedom}
    print_json({"model": problem.name, **counts, **fields})


_EXTRAS = {
    "plot": "matplotlib", "data": "xarray", "progress": "tqdm", "sweep": "scipy", "gym": "gymnasium", "view": "viser",
    "export": "flatbuffers", "torch": "torch", "sb3": "stable_baselines3", "cluster": "distributed", "ray": "ray",
    "robots": "mujoco", "usd": "pxr", "learn": "blackjax", "fmu": "fmpy",
}  # fmt: skip
"""A library of each extra, by which it is known to be there."""


@app.command()
def doctor(as_json: _options.Json = False) -> None:
    """Say which versions, devices and caches there are, and which extras are missing."""
    start_jax()
    import jax

    names = ("ukjax", "jax", "jaxlib", "diffrax", "equinox", "optax", "numpy", "llvmlite")
    folder = _cache.root()
    facts: dict[str, Any] = {
        "python": sys.version.split()[0],
        "versions": {name: importlib.metadata.version(name) for name in names},
        "devices": [f"{x.platform}: {x.device_kind}" for x in jax.devices()],
        "cache": None if folder is None else str(folder),
        "missing_extras": [x for x, library in _EXTRAS.items() if importlib.util.find_spec(library) is None],
    }
    if as_json:
        return print_json(facts)
    versions = [f"{name} {version}" for name, version in facts["versions"].items()]
    missing = ", ".join(f"ukjax[{x}]" for x in facts["missing_extras"])
    show_rows(
        {
            "python": facts["python"],
            "versions": "\n".join(versions),
            "devices": "\n".join(facts["devices"]),
            "cache": facts["cache"] or f"{_cache.VARIABLE}={os.environ[_cache.VARIABLE]}: nothing is kept",
            "extras not installed": missing or "none",
        }
    )


@app.command()
def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Remove what is there.")] = False,
    as_json: _options.Json = False,
) -> None:
    """Say where compiled programs are kept and how much room they take, or remove them."""
    folder = _cache.root()
    if clear and folder is not None:
        _cache.clear(folder)
    files, size = (0, 0) if folder is None else _cache.size(folder)
    if as_json:
        print_json({"folder": None if folder is None else str(folder), "files": files, "bytes": size})
    elif folder is None:
        print(f"{_cache.VARIABLE}={os.environ[_cache.VARIABLE]}: nothing is kept")
    else:
        print(f"{folder}: {files} file{'' if files == 1 else 's'}, {size / 1e6:.1f} MB")


app.command()(load)
app.command()(tune)
app.command()(sweep)
app.command()(export)
app.command()(bench)
