"""The command `ukjax bench`: the benchmark problems, measured by `bench`."""

import importlib.util
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

import ukjax as uk

from .._misc._errors import InputError, missing_extra
from .._misc._files import replacing
from ._options import Json, problem_of
from ._own_models import is_own
from ._robot_files import is_robot
from ._terminal import interruptible, plain, print_json, show, start_jax

_PROBLEMS = (
    "pendulum", "scara", "parallelogram", "four_bars", "four_bars_10", "andrews", "andrews_energy", "bricard",
    "flyball_governor",
)  # fmt: skip
_COLUMNS = (
    "run",
    "error\nat end",
    "largest\nerror",
    "warm\n[s]",
    "steps",
    "energy\n[J]",
    "row\nerror",
    "measured",
)


def _short(x: float | None) -> str:
    return "-" if x is None else f"{x:.2g}"


def _table(result: "uk.BenchResult") -> Table:
    """A row for each tolerance, and one for each other program; each says where it was measured."""
    ended = "" if set(result.result) == {"successful"} else f"; {', '.join(result.result)}"
    title = f"{result.problem}, {result.t1:g} s: {result.quantity} [{result.unit}] against {result.reference}"
    first = f"first run {result.cold:.1f} s with compilation, by {result.solver}{ended}"
    table = Table(title=escape(title), caption=escape(first), box=None, padding=(0, 1, 0, 0))
    for column in _COLUMNS:
        table.add_column(escape(column), no_wrap=column != "run")
    for i, rtol in enumerate(result.rtol):
        errors = (_short(result.end_error[i]), _short(result.error[i]))
        kept = (_short(result.energy_drift[i]), _short(result.position_error[i]))
        times = (f"{result.warm[i]:.3g}", str(result.steps[i]))
        table.add_row(f"ukjax {rtol:.0e}", *errors, *times, *kept, "here")
    for peer in result.peers:
        figures = (_short(peer.end_error), "", f"{peer.wall:.3g}", "", "", _short(peer.constraint_error))
        table.add_row(peer.program, *figures, "elsewhere", style="dim")
    return table


def _show(results: "list[uk.BenchResult]", about: dict[str, Any]) -> None:
    """What a person reads."""
    for result in results:
        show(_table(result))
        print()
    print(f"here: {about['processor']}, {about['cores']} cores, JAX {about['jax']}")
    if any(result.peers for result in results):
        print(f"elsewhere: other programs, {results[0].peers_source}")


def _prepare_folder(out: Path) -> None:
    """Finds out before the runs whether there is where to write, and what to draw with."""
    if importlib.util.find_spec("matplotlib") is None:
        raise missing_extra("--out", "bench")
    if out.exists() and not out.is_dir():
        raise InputError(f"--out takes a folder; '{out}' is a file.")
    out.mkdir(parents=True, exist_ok=True)


def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help=f"Problems: {', '.join(_PROBLEMS)}; or a function that returns one, as mymodel.py:hoop.",
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer problems and tolerances.")] = False,
    repeats: Annotated[int, typer.Option(help="Warm runs the median is taken of, at least 3.")] = 3,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write bench.json and work_precision.png there.")
    ] = None,
    progress: Annotated[bool, typer.Option(help="Show how far it is.")] = True,
    as_json: Json = False,
) -> None:
    """Measure the benchmark problems: errors against independent references, times, and other programs' figures."""
    start_jax()
    from ._benchmark import machine, work_precision

    if out is not None:
        _prepare_folder(out)
    chosen = [problem_of(name, None) if is_own(name) or is_robot(name) else name for name in names or ()]
    results = interruptible(lambda: uk.bench(chosen, quick=quick, repeats=repeats, progress=progress))
    about = machine()
    report = {"machine": about, "results": [result.summary() for result in results]}
    if out is not None:
        with replacing(out / "bench.json") as partial:
            partial.write_text(json.dumps(plain(report), indent=1, allow_nan=False) + "\n")
        work_precision(results, out / "work_precision.png")
    if as_json:
        print_json(report)
    else:
        _show(results, about)
        if out is not None:
            print("written:", out / "bench.json", out / "work_precision.png")
    if failed := [x.problem for x in results if set(x.result) != {"successful"}]:
        print("ended early:", ", ".join(failed), file=sys.stderr)
        raise typer.Exit(1)
