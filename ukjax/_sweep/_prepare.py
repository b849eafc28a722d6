"""What `sweep` makes of its arguments, each checked before anything is computed: one run, and what all will give."""

import importlib.metadata
from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._formula._acceleration import AbstractFormula
from .._formula._servo import compute_servo_run
from .._misc._arguments import (
    all_of,
    call_user_function,
    real_array,
    whole_number,
)
from .._misc._errors import InputError, format_value, unknown_name
from .._run import _options
from .._system._problem import Problem, resolve_state
from .._system._rows import constraint_rows
from .._system._stabilize import AbstractStabilizer
from .._system._system import names_of
from ._member import RESULT, Member, TracedRun, Variable, trace
from ._names import Build, RunSpec, parse_units
from ._outputs import OUTCOMES, Outputs, select_outputs
from ._place import MADE_BY
from ._reductions import AbstractReduction
from ._samples import AbstractSamples, count, digest
from ._template import NOT_RUN, PROCESSOR, ArraySpec, Template

_UNITS = {"alpha": "1/s", "beta": "1/s^2", "q0": "generalized coordinate", "v0": "generalized velocity"}


Reductions = dict[str, tuple[AbstractReduction, ...]]


class SweepPlan(NamedTuple):
    """A sweep that can be run."""

    samples: AbstractSamples  # what varies
    program: TracedRun  # one run
    reductions: Reductions  # of outputs that are not kept
    template: Template  # of the result


def _extremes(samples: AbstractSamples) -> list[int]:
    """Runs in which a parameter is least or largest."""
    dims, runs = list(samples.sizes), [0]
    coordinates = samples.coordinates()
    for along, values in (coordinates[name] for name in samples.names):
        for place in (np.argmin(values), np.argmax(values)):
            index = dict.fromkeys(dims, 0)
            index |= dict(zip(along, np.unravel_index(place, values.shape), strict=True))
            runs.append(int(np.ravel_multi_index([index[x] for x in dims], tuple(samples.sizes.values()))))
    return sorted(set(runs))


def values_of(samples: AbstractSamples, run: int) -> dict[str, np.ndarray]:
    """The values of one run."""
    return {name: x[0] for name, x in samples.at(np.array([run])).items()}


def _check_extremes(build: Build, samples: AbstractSamples, options: dict[str, Any]) -> None:
    spans = set()
    for run in _extremes(samples):
        values = values_of(samples, run)
        try:
            problem = build.check({name: jnp.asarray(x, float) for name, x in values.items()})
        except InputError as error:
            shown = ", ".join(f"{name} = {x}" for name, x in values.items())
            raise InputError(f"{error} (run {run}: {shown})") from error
        spans.add(tuple(float(getattr(problem, x)) for x in ("t0", "t1") if options[x] is None))
    if len(spans) > 1:
        raise InputError("t0 and t1 are the same for all runs: give them to sweep.")


def _returns_problem(build: Build, example: dict[str, np.ndarray]) -> bool:
    values = {name: jnp.asarray(x, float) for name, x in example.items()}
    with jax.default_device(jax.devices()[0]):
        made = call_user_function("the model", eqx.filter_eval_shape, build, values)
    return isinstance(made, tuple) and len(made) == 2 and isinstance(made[1], RunSpec)


def _span(problem: Problem, options: dict[str, Any]) -> dict[str, Any]:
    """The options with start, end and times to save at as numbers."""
    given = {x: getattr(problem, x) if options[x] is None else options[x] for x in ("t0", "t1")}
    dtype = jnp.result_type(problem.q0)
    t0, t1 = (real_array(name, x).astype(dtype) for name, x in given.items())
    if t0.ndim:
        raise InputError(f"t0 has shape {t0.shape}; it must be a scalar.")
    whole_number("max_steps", options["max_steps"])
    ts = _options.times(t0, t1, options["ts"])
    if ts is None:
        raise InputError(
            "runs of a sweep differ in their steps, so ts must be times or their number, not 'steps'."
        )
    return options | {"t0": float(t0), "t1": float(t1), "ts": np.asarray(ts)}


def _labels(program: TracedRun, problem: Problem, spec: RunSpec, options: dict[str, Any]) -> dict[str, Any]:
    """Coordinates along the inner dimensions: times, and names of coordinates, velocities, rows and inputs."""
    used = {x for variable in program.variables.values() for x in variable.dims}
    # Of the first run, which may be one that cannot start; only the shape of its state is asked for.
    system, t, q, v = resolve_state(spec.system, problem.t0, *map(jnp.zeros_like, (spec.q0, spec.v0)))
    names = names_of(system, q, v)
    labels = {"coordinate": names.coordinates, "velocity": names.velocities}
    if "row" in used:
        labels["row"] = eqx.filter_eval_shape(constraint_rows, system, t, q, v).names
    if used & {"servo_row", "input"}:
        servo = eqx.filter_eval_shape(compute_servo_run, system, *(x[None] for x in (t, q, v)))
        labels |= {"servo_row": servo.row_names, "input": servo.input_names}
    coordinates = {x: ((x,), np.asarray(labels[x], dtype=object), {}) for x in labels if x in used}
    if "time" in used:
        coordinates["time"] = (("time",), options["ts"], {"units": "s"})
    return coordinates


def _states(output: str, x: Variable, reductions: tuple[AbstractReduction, ...]) -> dict[str, ArraySpec]:
    """What is stored of each chunk of an output that is not kept."""
    nothing, none = np.empty((0, *x.shape), x.dtype), np.empty(0, int)
    states = {}
    for reduction in reductions:
        for key, state in reduction.state(nothing, nothing == 0, none).items():
            name = f"{output}_{reduction.name}_{key}"
            if name in states:
                raise InputError(f"{output} has two reductions called {reduction.name}: give one of them.")
            dims = tuple(f"{name}_{i}" for i in range(state.ndim))
            states[name] = ArraySpec(dims, state.shape, state.dtype, {}, of_chunk=True)
    return states


def _columns(program: TracedRun, reductions: Reductions) -> dict[str, ArraySpec]:
    columns = {}
    for name, x in program.variables.items():
        attributes: dict[str, Any] = {"units": x.units} if x.units else {}
        if name in reductions:
            columns |= _states(name, x, reductions[name])
            continue
        if name == RESULT:
            attributes = {
                "flag_values": [NOT_RUN, *range(len(OUTCOMES))],
                "flag_meanings": " ".join(["not_run", *OUTCOMES]),
            }
            attributes |= {name: " ".join(text.split()) for name, text in OUTCOMES.items() if text}
        columns[name] = ArraySpec(x.dims, x.shape, x.dtype, attributes)
    return columns | {PROCESSOR: ArraySpec((), (), np.dtypes.StringDType(), {}, of_chunk=True)}


def check_reductions(reductions: Any) -> Reductions:
    """What is asked of outputs that are not kept, by their names."""
    such_as = "uk.reductions.Mean()"
    if not isinstance(reductions, Mapping):
        raise InputError(
            f"reductions are a dict from outputs to things like {such_as}, got {format_value(reductions)}."
        )
    several = {k: (x,) if isinstance(x, AbstractReduction) else x for k, x in reductions.items()}
    return {k: all_of("reductions", x, AbstractReduction, such_as) for k, x in several.items()}


def _format_tree(x: Any) -> str:
    return eqx.tree_pformat(x, width=100_000, short_arrays=False)


def _provenance(
    name: str,
    samples: AbstractSamples,
    member: Member,
    columns: dict[str, ArraySpec],
    reductions: Reductions,
    options: dict[str, Any],
) -> dict[str, Any]:
    attributes = {
        "made_by": MADE_BY,
        "model": name,
        "runs": count(samples),
        **samples.describe(),
        "values": digest(samples),
    }
    attributes |= {"parameters": list(samples.names)}
    attributes["outputs"] = [name for name, x in columns.items() if not x.of_chunk]
    attributes["chunk_variables"] = [name for name, x in columns.items() if x.of_chunk]
    if reductions:
        attributes["reductions"] = {name: list(map(_format_tree, x)) for name, x in reductions.items()}
    if not member.of_function:
        for option in ("formula", "stabilizer"):
            attributes[option] = _format_tree(getattr(member.build, option))
        shown = {k: x for k, x in options.items() if x is not None and k not in ("ts", "event")}
        attributes |= {k: x if isinstance(x, int | float) else _format_tree(x) for k, x in shown.items()}
    attributes["precision"] = str(jnp.result_type(float))
    packages = ("ukjax", "jax", "jaxlib", "diffrax", "equinox")
    return attributes | {package: importlib.metadata.version(package) for package in packages}


def prepare(
    model: Any,
    samples: AbstractSamples,
    outputs: Outputs,
    gradients: tuple[str, ...],
    stabilizer: AbstractStabilizer,
    formula: AbstractFormula | None,
    options: dict[str, Any],
    reductions: Reductions,
) -> SweepPlan:
    """A plan of a sweep."""
    _options.require_method(formula, stabilizer, options["solver"])
    outputs = list(reductions) if outputs is None and reductions else outputs
    build, example = Build(model, samples.names, stabilizer, formula), values_of(samples, 0)
    problem: Problem | None = None
    spec: Any = None
    named: dict[str, Any]
    if of_problem := _returns_problem(build, example):
        _check_extremes(build, samples, options)
        made: tuple[Problem, Any] = build({name: jnp.asarray(x, float) for name, x in example.items()})
        problem, spec = made
        options = _span(problem, options)
        named = select_outputs(outputs)
    elif outputs is None or isinstance(outputs, str):
        named = {} if outputs is None else {outputs: None}
    else:
        named = dict.fromkeys(all_of("outputs", outputs, str, "'value'"))
    member = Member(build, named, outputs is None, gradients, options, not of_problem)
    program = trace(member, example)
    labels = {} if problem is None else _labels(program, problem, spec, options)
    units = _UNITS | ({} if isinstance(model, Problem) else parse_units(model))
    coordinates = {
        name: (dims, x, {"units": units[name]} if name in units else {})
        for name, (dims, x) in samples.coordinates().items()
    }
    if unknown := [name for name in reductions if name not in program.variables or name == RESULT]:
        raise unknown_name("output to reduce", unknown[0], [x for x in program.variables if x != RESULT])
    columns = _columns(program, reductions)
    taken = {*columns, *(x for variable in program.variables.values() for x in variable.dims)}
    if clash := taken & {*coordinates, *samples.sizes} - {"q0", "v0"}:
        raise InputError(f"{min(clash)} is the name of both a parameter and an output: rename one.")
    name = problem.name if problem is not None else getattr(model, "__name__", type(model).__name__)
    attributes = _provenance(name, samples, member, columns, reductions, options)
    template = Template(samples.sizes, columns, coordinates | labels, attributes)
    return SweepPlan(samples, program, reductions, template)
