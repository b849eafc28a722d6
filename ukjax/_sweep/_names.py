"""Parameters by name: a model's arguments, a system's fields, initial states and gains, and their components."""

import inspect
import re
from collections.abc import Callable, Iterable
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._formula._acceleration import AbstractFormula
from .._misc._arguments import call_user_function, kind_of
from .._misc._errors import InputError, format_value, unknown_name
from .._system._problem import Problem
from .._system._stabilize import AbstractStabilizer, Baumgarte
from .._system._system import AbstractForwardingSystem, AbstractSystem, names_of, states_of

_COMPONENT = re.compile(r"(.+)\[(\d+)\]$")
_LONGEST_NAME = 100  # of a file most systems allow 255 bytes
# Of arguments that change the structure of a system, which a batch cannot.
_STRUCTURAL = (int, str, bool)


@final
class RunSpec(eqx.Module):
    """One run to make: its arrays are what parameters can name."""

    # `q0`, `v0`: the initial state.
    q0: Array
    v0: Array
    system: AbstractSystem  # the mechanical system
    stabilizer: AbstractStabilizer  # how constraint errors are kept small
    formula: AbstractFormula | None  # how the acceleration is computed


def require_name(what: str, name: Any) -> None:
    """Raises `InputError` unless a name can be that of an array in a Zarr folder, where it is a folder too."""
    taken = (".", "..", "zarr.json")
    fits = isinstance(name, str) and name.isprintable() and 0 < len(name) <= _LONGEST_NAME
    if not fits or "/" in name or name.startswith("__") or name.strip() in ("", *taken):
        raise InputError(f"the name of {what} is a word such as 'length', got {format_value(name)}.")


def _is_number(x: Any) -> bool:
    return eqx.is_array_like(x) and not isinstance(x, bool)


def _matches(known: list[str], name: str) -> list[int]:
    """The leaves whose path a name is, or the part of it behind its first word."""
    if name in known:
        return [known.index(name)]
    return [i for i, path in enumerate(known) if path.partition(".")[2] == name]


def _map_labels(spec: RunSpec) -> dict[str, str]:
    """The initial coordinates and velocities by the labels a system gives them, such as those of joints."""
    names = names_of(spec.system, spec.q0, spec.v0)
    own = lambda labels: [(i, x) for i, x in enumerate(labels) if not _COMPONENT.match(x)]
    of_q = {label: f"q0[{i}]" for i, label in own(names.coordinates)}
    mark = lambda label: label if label in states_of(spec.system) else f"{label}'"
    return of_q | {mark(label): f"v0[{i}]" for i, label in own(names.velocities)}


def _place(known: list[str], name: str, others: Iterable[str]) -> int:
    """Which leaf a name means: its path, or the part of it that no other leaf shares."""
    matches = _matches(known, name)
    if len(matches) > 1:
        raise InputError(f"'{name}' could be {' or '.join(known[i] for i in matches)}: give one of these.")
    if not matches:
        if name in ("alpha", "beta"):
            raise InputError(f"{name} is a gain of Baumgarte: give stabilizer=uk.Baumgarte(alpha, beta).")
        short = (path.removeprefix("system.") for path in known)
        raise unknown_name("parameter", name, dict.fromkeys([*others, *short]))
    return matches[0]


def _replace_leaf(name: str, leaf: Any, component: int | None, value: Array) -> Array:
    leaf = jnp.asarray(leaf)
    leaf = leaf if jnp.issubdtype(leaf.dtype, jnp.inexact) else leaf.astype(float)
    value = value.astype(leaf.dtype)
    if component is None:
        if value.shape not in ((), leaf.shape):
            raise InputError(f"a value of {name} has shape {value.shape}, it must have {leaf.shape}.")
        return jnp.broadcast_to(value, leaf.shape)
    if leaf.ndim != 1 or component >= leaf.size or value.ndim:
        raise InputError(f"there is no number {name}: its array has shape {leaf.shape}.")
    return leaf.at[component].set(value)


def replace_parameters(spec: RunSpec, values: dict[str, Array], others: Iterable[str] = ()) -> RunSpec:
    """The specification with the values of some parameters."""
    numbers, rest = eqx.partition(spec, _is_number)
    paths, structure = jax.tree_util.tree_flatten_with_path(numbers)
    known = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in paths]
    leaves, labels = [leaf for _, leaf in paths], _map_labels(spec)
    for name, value in values.items():
        meant = name if _matches(known, name) else labels.get(name, name)
        match = _COMPONENT.match(meant)
        whole, component = (match[1], int(match[2])) if match else (meant, None)
        i = _place(known, whole, [*others, *labels])
        leaves[i] = _replace_leaf(name, leaves[i], component, value)
    return eqx.combine(jax.tree.unflatten(structure, leaves), rest)


def _call(fn: Callable[..., Any], names: Iterable[str]) -> tuple[tuple[str, ...], bool]:
    """Which parameters a function takes, and whether all in one dict."""
    names = tuple(names)
    try:
        taken = inspect.signature(fn).parameters
    except ValueError as error:  # of some classes of Python nothing is known
        raise InputError(
            f"{format_value(fn)} does not say what it takes: give a function with named arguments."
        ) from error
    if any(p.kind is p.VAR_KEYWORD for p in taken.values()):
        return names, False
    positional = [p for p in taken.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    one = len(taken) == 1 and len(positional) == 1 and positional[0].default is inspect.Parameter.empty
    if one and positional[0].name not in names:
        return names, True
    for name in names:
        if name in taken and kind_of(taken[name]) in _STRUCTURAL:
            raise InputError(
                f"{name} changes the structure of {getattr(fn, '__name__', 'the model')}, so it is the same for "
                f"all runs: set it by functools.partial, and make one sweep for each."
            )
    return tuple(name for name in names if name in taken), False


def _require_arguments(whose: str, model: Any, own: dict[str, Any], rest: dict[str, Any]) -> None:
    """Raises `InputError` for a model of which arguments are missing: a name that is given instead may be misspelt."""
    known = inspect.signature(model).parameters
    wanted = [
        name
        for name, x in known.items()
        if x.default is x.empty and x.kind not in (x.VAR_POSITIONAL, x.VAR_KEYWORD) and name not in own
    ]
    if wanted and rest:
        raise unknown_name("parameter", next(iter(rest)), known)
    if wanted:
        raise InputError(f"{whose} needs {', '.join(wanted)}: give a value among the parameters.")


@final
class Build(eqx.Module):
    """From values to what is to be run: a problem with its `RunSpec`, or what a function returned."""

    model: Any  # a problem, or a function of parameters
    own: tuple[str, ...]  # the parameters the function takes; the others name arrays of the `RunSpec`
    as_dict: bool  # whether it takes them in one dict
    # `stabilizer`, `formula`: of the runs.
    stabilizer: AbstractStabilizer
    formula: AbstractFormula | None

    def __init__(
        self,
        model: Any,
        names: Iterable[str],
        stabilizer: AbstractStabilizer,
        formula: AbstractFormula | None,
    ):
        if not isinstance(model, Problem) and (isinstance(model, AbstractSystem) or not callable(model)):
            raise InputError(
                f"give a Problem or a function of the parameters, got {type(model).__name__}; "
                "uk.Problem(system, q0, v0, t0, t1) makes a problem of a system."
            )
        self.model, self.stabilizer, self.formula = model, stabilizer, formula
        self.own, self.as_dict = ((), False) if isinstance(model, Problem) else _call(model, names)

    def __call__(self, values: dict[str, Array]) -> tuple[Problem, RunSpec] | Any:
        """What the values lead to."""
        own = {name: values[name] for name in self.own}
        rest = {name: x for name, x in values.items() if name not in own}
        made = self.model
        if not isinstance(made, Problem):
            whose = getattr(self.model, "__name__", "the model")
            if not self.as_dict:
                _require_arguments(whose, self.model, own, rest)
            made = (
                call_user_function(whose, self.model, own)
                if self.as_dict
                else call_user_function(whose, self.model, **own)
            )
        if not isinstance(made, Problem):
            if rest:
                known = inspect.signature(self.model).parameters
                raise unknown_name("parameter", next(iter(rest)), known)
            return made
        spec = RunSpec(made.q0, made.v0, made.system, self.stabilizer, self.formula)
        others = () if isinstance(self.model, Problem) else inspect.signature(self.model).parameters
        return made, replace_parameters(spec, rest, others) if rest else spec

    def check(self, values: dict[str, Array]) -> Problem | None:
        """The problem of values that are not traced, so that the model can object to them; None if there is none."""
        made = self(values)
        if isinstance(made, tuple) and len(made) == 2 and isinstance(made[1], RunSpec):
            stabilizer = made[1].stabilizer
            if isinstance(stabilizer, Baumgarte):
                Baumgarte(stabilizer.alpha, stabilizer.beta)
            return made[0]
        return None


def points_of(problem: Problem, system: AbstractSystem) -> Callable[..., dict[str, Array]] | None:
    """The named points of a problem, seen from a system whose fields have changed."""
    owner = getattr(problem.points, "__self__", None)
    while isinstance(system, AbstractForwardingSystem) and not isinstance(owner, type(system)):
        system = system.system  # the points of a system under servo control are its own
    if isinstance(owner, type(system)):
        return getattr(system, problem.points.__name__)  # pyright: ignore[reportOptionalMemberAccess]
    return problem.points


def parse_units(fn: Any) -> dict[str, str]:
    """The units in the docstring of a model, such as of "- `mass`, `length`: of the rod [kg], [m]"."""
    by_name: dict[str, str] = {}
    doc = inspect.getdoc(getattr(fn, "func", fn)) or ""
    for head, text in re.findall(r"^- (`[^:\n]*`): ((?:.|\n(?=  ))*)", doc, re.MULTILINE):
        names, units = re.findall(r"`([^`]+)`", head), re.findall(r"\[([^\]\d][^\]]*)\]", text)
        if len(units) == len(names):
            by_name |= dict(zip(names, units, strict=True))
    return by_name
