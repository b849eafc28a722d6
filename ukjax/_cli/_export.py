"""The command `ukjax export NAME`: a model as C, by `to_c`, as an FMU, by `to_fmu`, or as a live page, by `to_page`."""

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
        str, typer.Option("--to", help="c, which is C99, fmu, for simulators, or page, for browsers.")
    ] = "c",
    out: Annotated[
        Path | None,
        typer.Option(help="The folder or file to write; by default the model's name with _c, .fmu or .html."),
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
    step: Annotated[
        float | None, typer.Option(help="Of an FMU: the longest step of co-simulation [s].")
    ] = None,
    platforms: Annotated[
        list[str] | None,
        typer.Option(
            "--platform", help="Of an FMU: for which to compile, such as x86_64-windows; may be repeated."
        ),
    ] = None,
    fmi: Annotated[str | None, typer.Option(help="Of an FMU: the version, 3.0 or 2.0.")] = None,
    float32: _options.Float32 = False,
    as_json: _options.Json = False,
) -> None:
    """Write a model as C, with a self-test and a README, as an FMU, or as a page on which it moves."""
    own_options = {
        "c": ("--function", "--constants", "--bounded", "--float32", "--input"),
        "fmu": ("--step", "--platform", "--fmi", "--constants", "--input"),
        "page": ("--input",),
    }
    if to not in own_options:
        raise InputError(
            f"--to is c, fmu or page, not '{to}': C99, a Functional Mock-up Unit, or a live page."
        )
    of_fmu = {"step": step, "platforms": platforms, "fmi": fmi}
    given = {f"--{k}".removesuffix("s"): x for k, x in of_fmu.items()}
    given |= {"--function": functions, "--bounded": bounded, "--float32": float32, "--constants": constants}
    if foreign := [option for option, x in given.items() if x and option not in own_options[to]]:
        raise InputError(f"{foreign[0]} is not an option of --to {to}.")
    start_jax(float32)
    problem = _options.problem_of(name, parameters)
    if to == "page":
        path = interruptible(lambda: uk.to_page(problem, out or f"{problem.name}.html", inputs=inputs))
        print_json({"path": str(path)}) if as_json else print(f"{path}: {path.stat().st_size / 1e3:.0f} kB")
        return
    if to == "fmu":
        own = {"constants": constants, "inputs": inputs}
        own |= {k: x for k, x in of_fmu.items() if x is not None}
        fmu = interruptible(lambda: uk.to_fmu(problem, out, **own))
        if as_json:
            print_json(
                {
                    "path": str(fmu.path),
                    "platforms": fmu.platforms,
                    "variables": [x._asdict() for x in fmu.variables],
                }
            )
            return
        told = [x for x in fmu.variables if x.causality != "local"]
        caption = f"and {len(fmu.variables) - len(told)} local variables, the derivatives"
        table = Table(title=f"{fmu.path}: binaries for {', '.join(fmu.platforms)}", caption=caption)
        for column in ("variable", "causality", "start", "unit"):
            table.add_column(column, justify="right" if column == "start" else "left")
        for x in told:
            table.add_row(x.name, x.causality, "" if x.start is None else f"{x.start:g}", x.unit)
        show(table)
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
