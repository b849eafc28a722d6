"""The command `ukjax export NAME --to c`: a model's functions in C, by `to_c`; `--to page`: a live page, by `to_page`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

import ukjax as uk

from .._misc._errors import InputError
from . import _options
from ._terminal import interruptible, print_json, show, start_jax


def export(
    name: _options.Name,
    to: Annotated[
        str, typer.Option("--to", help="c, which is C99, or page, a live page for browsers.")
    ] = "c",
    out: Annotated[
        Path | None,
        typer.Option(help="The folder, or page, to write; by default the model's name and _c, or .html."),
    ] = None,
    functions: Annotated[
        list[str] | None,
        typer.Option(
            "--function",
            help="A function, such as acceleration, forces, step or acceleration_jacobian; may be repeated.",
        ),
    ] = None,
    parameters: _options.Set = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input", help="A motor, by its actuator or joint, whose effort is given; may be repeated."
        ),
    ] = None,
    constants: Annotated[
        bool, typer.Option("--constants", help="Write masses, lengths and gains into the code.")
    ] = False,
    bounded: Annotated[bool, typer.Option("--bounded", help="Refuse loops without a bound.")] = False,
    float32: _options.Float32 = False,
    as_json: _options.Json = False,
) -> None:
    """Write functions of a model as C, with a self-test and a README; or a page on which it moves."""
    if to not in ("c", "page"):
        raise InputError(f"--to is c or page, not '{to}': C99 is what models are written in.")
    if to == "page" and (functions or constants or bounded or float32):
        raise InputError(
            "--function, --constants, --bounded and --float32 are for --to c: a page has its own functions."
        )
    start_jax(float32)
    problem = _options.problem_of(name, parameters)
    if to == "page":
        path = interruptible(lambda: uk.to_page(problem, out or f"{problem.name}.html", inputs=inputs))
        print_json({"path": str(path)}) if as_json else print(f"{path}: {path.stat().st_size / 1e3:.0f} kB")
        return
    chosen, folder = functions or ["acceleration"], out or Path(f"{problem.name}_c")
    how = {"constants": constants, "bounded": bounded, "inputs": inputs}
    written = interruptible(lambda: uk.to_c(problem, folder, chosen, **how))
    if as_json:
        print_json(
            {
                "folder": str(written.folder),
                "files": written.files,
                "functions": {k: x._asdict() for k, x in written.functions.items()},
                "parameters": written.parameters,
            }
        )
        return
    table = Table(title=f"{written.folder}: {', '.join(written.files)}")
    for column in ("function", "operations", "stack, about [B]", "loops without a bound"):
        table.add_column(column, justify="left" if column == "function" else "right")
    for function, x in written.functions.items():
        table.add_row(function, str(x.operations), str(x.stack_bytes), str(x.unbounded))
    show(table)
