"""What commands share: the names users choose from, KEY=VALUE pairs, and checks of the files to write."""

from __future__ import annotations

import dataclasses
import importlib.resources
import importlib.util
import inspect
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

import ukjax as uk

from .._figures import _files
from .._misc._errors import InputError, missing_extra, unknown_name
from .._run._certificate import require_suffix
from ._own_models import is_own, own_model
from ._robot_files import is_robot, robot_model

if TYPE_CHECKING:
    import diffrax as dfx

_T = TypeVar("_T")


def _hyphenate(name: str) -> str:
    """The name of a class as one types it, without an abbreviation at its end: `householder` for HouseholderQR."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", re.sub(r"(?<=[a-z])[A-Z]+$", "", name)).lower()


# Names in `ukjax`, not what they stand for, since that loads JAX.
METHODS = {_hyphenate(x): x for x in uk._NAMES["_pseudoinverse._methods"].split()}  # pyright: ignore
FORMULAS = {
    "udwadia-kalaba": "UdwadiaKalaba",
    "schur": "Schur",
    "range-form": "RangeForm",
    "stacked-form": "StackedForm",
    "null-space": "NullSpace",
    "kkt": "KKT",
}
STABILIZERS = ("projection", "baumgarte", "baumgarte-squared", "none")
_FIGURES = (".png", ".pdf", ".svg")


Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A parameter of the model; may be repeated."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def catalogue() -> list[dict[str, Any]]:
    """The models, as they were read off once: to build them all takes seconds. A test compares."""
    return json.loads(importlib.resources.files("ukjax._cli").joinpath("catalogue.json").read_text("utf-8"))


def _check_name(name: str | None) -> str | None:
    """The name of a model, refused at once where there is none: before JAX is loaded."""
    if name is not None and not (is_own(name) or is_robot(name)):
        choose("model", name, {x["model"]: x["model"] for x in catalogue()})
    return name


NAME = typer.Argument(
    metavar="NAME",
    callback=_check_name,
    help="A model, as in `ukjax list`, or your own: a function, as mymodel.py:hoop or package.module:hoop, or a "
    "robot's file, as robot.xml or robot.urdf.",
)
Name = Annotated[str, NAME]

Method = Annotated[str | None, typer.Option(help=f"Pseudoinverse: {', '.join(METHODS)}.")]
Formula = Annotated[str, typer.Option(help=f"{', '.join(FORMULAS)}.")]
Rcond = Annotated[float | None, typer.Option(help="The rank rule's threshold; 1e-4, in float32 0.03.")]
Stabilizer = Annotated[str, typer.Option(help=f"{', '.join(STABILIZERS)}.")]
Alpha = Annotated[float | None, typer.Option(help="Baumgarte's velocity gain.")]
Beta = Annotated[float | None, typer.Option(help="Baumgarte's position gain.")]
Solver = Annotated[str, typer.Option(help="A Diffrax solver: tsit5, kvaerno5, heun, ...")]
Rtol = Annotated[float | None, typer.Option(help="Relative tolerance; 1e-8, float32 1e-5.")]
Atol = Annotated[float | None, typer.Option(help="Absolute tolerance; 1e-8, float32 1e-5.")]
ContactBy = Annotated[
    str | None,
    typer.Option(
        "--contact",
        help="How contacts are met: events, the default, or steps of --dt0; gradients need 'differentiated steps'.",
    ),
]
End = Annotated[float | None, typer.Option(help="End in s; by default the model's.")]
Step = Annotated[float | None, typer.Option(help="First step in s, and all of them where none adapts.")]
Times = Annotated[int | None, typer.Option(help="How many times to save at; 201.")]
MaxSteps = Annotated[int, typer.Option(help="Give up after so many steps.")]
OnViolation = Annotated[
    str, typer.Option(help="Where no motion keeps the constraints: stop, or continue by least squares.")
]
Float32 = Annotated[bool, typer.Option("--float32", help="Compute in single precision.")]
Plot = Annotated[Path | None, typer.Option(help="Draw to a .png, .pdf or .svg file.")]


def _key(name: str) -> str:
    return re.sub("[-_ ]", "", name).lower()


def choose(kind: str, name: str, known: dict[str, _T]) -> _T:
    """The entry of that name, or of its class's name, whatever the case and the hyphens."""
    for k, x in known.items():
        if _key(name) in (_key(k), _key(x if isinstance(x, str) else getattr(x, "__name__", k))):
            return x
    raise unknown_name(kind, name.lower(), list(known))


def solvers() -> dict[str, type[dfx.AbstractSolver]]:
    """Diffrax's solvers for ordinary differential equations, by their names in lower case."""
    import diffrax as dfx

    return {
        name.lower(): cls
        for name, cls in vars(dfx).items()
        if inspect.isclass(cls)
        and issubclass(cls, dfx.AbstractSolver)
        and getattr(cls, "term_structure", None) is dfx.AbstractTerm
    }


def model_of(name: str, pairs: list[str] | None) -> tuple[Callable[..., uk.Problem], dict[str, Any]]:
    """The function that builds a model, and its parameters, which it is known to take."""
    made = robot_model if is_robot(name) else own_model if is_own(name) else uk.models.named
    model = made(name)
    given = _pairs(pairs or [])
    uk.models.require_parameters(name, model, given)
    known = inspect.signature(model).parameters
    return model, {key: _value(key, text, known.get(key)) for key, text in given.items()}


def problem_of(name: str, pairs: list[str] | None) -> uk.Problem:
    """The model of that name with parameters."""
    model, parameters = model_of(name, pairs)
    return model(**parameters)


def _pairs(pairs: list[str]) -> dict[str, str]:
    parameters: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not (key.isidentifier() and equals and value):
            raise InputError(f"--set takes KEY=VALUE, such as gravity=9.81; got '{pair}'.")
        if key in parameters:
            raise InputError(f"--set {key} is given twice.")
        parameters[key] = value
    return parameters


_WORDS = {float: "a number", int: "an integer", bool: "true or false"}


def _value(key: str, text: str, parameter: inspect.Parameter | None) -> Any:
    """A value as JSON where it is, of the kind that the model's parameter says it has."""
    from .._misc._arguments import kind_of

    kind = None if parameter is None else kind_of(parameter)
    if kind is str:
        return text
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    if kind is None:
        return value
    whole = isinstance(value, int) and not isinstance(value, bool)
    fits = {float: whole or isinstance(value, float), int: whole, bool: isinstance(value, bool)}
    try:
        if fits[kind]:
            return kind(value)
    except OverflowError:  # an integer that no float is as large as
        pass
    raise InputError(f"{key} must be {_WORDS[kind]}, not {value!r}.")


def _with_rcond(pinv: Any, rcond: float | None) -> Any:
    return pinv if rcond is None else dataclasses.replace(pinv, rcond=rcond)


def formula_of(formula: str, method: str | None, rcond: float | None) -> uk.AbstractFormula | None:
    """The formula, None for the default one: by scalar code where that can be, which also compiles sooner."""
    chosen = choose("formula", formula, FORMULAS)
    if chosen == "UdwadiaKalaba" and method is None and rcond is None:
        return None
    cls = getattr(uk, chosen)
    pinv = cls().pinv if method is None else getattr(uk, choose("method", method, METHODS))()
    return cls(_with_rcond(pinv, rcond))


def stabilizer_of(
    name: str, alpha: float | None, beta: float | None, rcond: float | None
) -> uk.AbstractStabilizer:
    name = choose("stabilizer", name, {x: x for x in STABILIZERS})
    if name in ("projection", "none"):
        if alpha is not None or beta is not None:
            raise InputError(f"--alpha and --beta are gains of baumgarte, not of {name}.")
        return (
            uk.NoStabilizer() if name == "none" else uk.Projection(_with_rcond(uk.Projection().pinv, rcond))
        )
    if alpha is None or beta is None:
        raise InputError(f"{name} needs both gains: give --alpha and --beta.")
    return (uk.Baumgarte if name == "baumgarte" else uk.Baumgarte.squared)(alpha, beta)


def numerics(
    formula: str,
    method: str | None,
    rcond: float | None,
    stabilizer: str,
    alpha: float | None,
    beta: float | None,
    solver: str,
) -> dict[str, Any]:
    """The formula, the stabilizer and the solver of runs."""
    return {
        "formula": formula_of(formula, method, rcond),
        "stabilizer": stabilizer_of(stabilizer, alpha, beta, rcond),
        "solver": choose("solver", solver, solvers())(),
    }


def _require(feature: str, extra: str, *modules: str) -> None:
    if any(importlib.util.find_spec(module) is None for module in modules):
        raise missing_extra(feature, extra)


def check_targets(
    plot: Path | None, out: Path | None, progress: bool, view: bool = False, report: Path | None = None
) -> None:
    """Finds out before the run whether its files can be written after it."""
    if plot is not None:
        if plot.suffix not in _FIGURES:
            raise InputError(f"cannot draw '{plot}': the name must end in {', '.join(_FIGURES)}.")
        _require("--plot", "plot", "matplotlib")
    if view or (out is not None and out.suffix == ".html"):
        _require("--view" if view else f"--out {out}", "view", "viser")
    if out is not None and out.suffix != ".html":
        suffix = _files.check_suffix(out)
        if suffix not in (".npz", ".csv"):
            modules = ("zarr",) if suffix == ".zarr" else ("h5netcdf", "h5py")
            _require(f"--out {out}", "data", "xarray", *modules)
    if report is not None:
        require_suffix(report)
    for path in (plot, out, report):
        if path is not None and not os.access(path.parent, os.W_OK):
            raise InputError(f"cannot write '{path}': there is no folder '{path.parent}' to write to.")
    if progress:
        _require("--progress", "progress", "tqdm")
