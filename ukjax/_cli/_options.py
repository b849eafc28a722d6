"""What commands share: the names users choose from, KEY=VALUE pairs, and checks of the files to write."""

import dataclasses
import importlib.util
import inspect
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import diffrax as dfx
import typer

from .._figures import _files
from .._formula._acceleration import AbstractFormula, Schur, UdwadiaKalaba
from .._formula._singular_mass import NullSpace, RangeForm, StackedForm
from .._misc._arguments import unknown_name
from .._misc._errors import InputError, missing_extra
from .._motion._project import Projection
from .._pseudoinverse import (
    SVD,
    AbstractPseudoinverse,
    Cholesky,
    CompleteOrthogonal,
    GramSchmidt,
    Greville,
    HouseholderQR,
)
from .._system._stabilize import AbstractStabilizer, Baumgarte, NoStabilizer

_T = TypeVar("_T")

METHODS: dict[str, type[AbstractPseudoinverse]] = {
    "svd": SVD,
    "complete-orthogonal": CompleteOrthogonal,
    "greville": Greville,
    "householder": HouseholderQR,
    "gram-schmidt": GramSchmidt,
    "cholesky": Cholesky,
}
FORMULAS: dict[str, Callable[..., Any]] = {
    "udwadia-kalaba": UdwadiaKalaba,
    "schur": Schur,
    "range-form": RangeForm,
    "stacked-form": StackedForm,
    "null-space": NullSpace,
}
STABILIZERS = ("projection", "baumgarte", "baumgarte-squared", "none")
_FIGURES = (".png", ".pdf", ".svg")


Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A parameter of the model; may be repeated."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="A model, as in `ukjax list`.")]


def _key(name: str) -> str:
    return re.sub("[-_ ]", "", name).lower()


def choose(kind: str, name: str, known: dict[str, _T]) -> _T:
    """The entry of that name, or of its class's name, whatever the case and the hyphens."""
    for k, x in known.items():
        if _key(name) in (_key(k), _key(getattr(x, "__name__", k))):
            return x
    raise unknown_name(kind, name.lower(), list(known))


def solvers() -> dict[str, type[dfx.AbstractSolver]]:
    """Diffrax's solvers for ordinary differential equations, by their names in lower case."""
    return {
        name.lower(): cls
        for name, cls in vars(dfx).items()
        if inspect.isclass(cls)
        and issubclass(cls, dfx.AbstractSolver)
        and getattr(cls, "term_structure", None) is dfx.AbstractTerm
    }


def parameters_of(pairs: list[str]) -> dict[str, Any]:
    """KEY=VALUE pairs, with values read as JSON where they are."""
    parameters: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not (key.isidentifier() and equals and value):
            raise InputError(f"--set takes KEY=VALUE, such as gravity=9.81; got '{pair}'.")
        if key in parameters:
            raise InputError(f"--set {key} is given twice.")
        try:
            parameters[key] = json.loads(value)
        except ValueError:
            parameters[key] = value
    return parameters


def _with_rcond(pinv: AbstractPseudoinverse, rcond: float | None) -> AbstractPseudoinverse:
    return pinv if rcond is None else dataclasses.replace(pinv, rcond=rcond)


def formula_of(formula: str, method: str | None, rcond: float | None) -> AbstractFormula | None:
    """The formula, None for the default one: by scalar code where that can be, which also compiles sooner."""
    cls = choose("formula", formula, FORMULAS)
    if cls is UdwadiaKalaba and method is None and rcond is None:
        return None
    pinv = cls().pinv if method is None else choose("method", method, METHODS)()
    return cls(_with_rcond(pinv, rcond))


def stabilizer_of(
    name: str, alpha: float | None, beta: float | None, rcond: float | None
) -> AbstractStabilizer:
    name = choose("stabilizer", name, {x: x for x in STABILIZERS})
    if name in ("projection", "none"):
        if alpha is not None or beta is not None:
            raise InputError(f"--alpha and --beta are gains of baumgarte, not of {name}.")
        return NoStabilizer() if name == "none" else Projection(_with_rcond(Projection().pinv, rcond))
    if alpha is None or beta is None:
        raise InputError(f"{name} needs both gains: give --alpha and --beta.")
    return (Baumgarte if name == "baumgarte" else Baumgarte.squared)(alpha, beta)


def _require(feature: str, extra: str, *modules: str) -> None:
    if any(importlib.util.find_spec(module) is None for module in modules):
        raise missing_extra(feature, extra)


def check_targets(plot: Path | None, out: Path | None, progress: bool) -> None:
    """Finds out before the run whether its files can be written after it."""
    if plot is not None:
        if plot.suffix not in _FIGURES:
            raise InputError(f"cannot draw '{plot}': the name must end in {', '.join(_FIGURES)}.")
        _require("--plot", "plot", "matplotlib")
    if out is not None:
        suffix = _files.checked_suffix(out)
        if suffix != ".npz":
            modules = ("zarr",) if suffix == ".zarr" else ("h5netcdf", "h5py")
            _require(f"--out {out}", "data", "xarray", *modules)
    for path in (plot, out):
        if path is not None and not os.access(path.parent, os.W_OK):
            raise InputError(f"cannot write '{path}': there is no folder '{path.parent}' to write to.")
    if progress:
        _require("--progress", "progress", "tqdm")
