"""A model as a Functional Mock-up Unit (FMI 3.0 or 2.0), for simulators such as Simulink, OpenModelica and Dymola."""

import hashlib
import importlib.metadata
import importlib.util
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import uuid
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._compiler._structured._c import literal
from .._compiler._structured._live_nodes import LiveNodes
from .._compiler._structured._nodes import Node, is_number
from .._compiler._structured._program import Program
from .._misc._arguments import positive_time, require_instance
from .._misc._closures import require_untraced
from .._misc._errors import InputError, format_value
from .._misc._files import as_path, replacing
from .._motion._project import project
from .._run._quantities import coordinate_units
from .._system._constraint import unilateral
from .._system._problem import Problem
from .._system._rows import constraint_rows
from .._system._stabilize import AbstractStabilizer, NoStabilizer
from ._c_contacts import ContactNames, contact_names, evaluate, hold, settle
from ._c_contacts import step as step_within
from ._c_functions import (
    FUNCTIONS,
    Function,
    ModelState,
    Settings,
    Values,
    input_units,
    observe,
    wrap_function,
)
from ._c_text import File, Part, describe_origin, write_header, write_source
from ._to_c import make_file
from ._units import base_units, force_units, velocity_units

_TOLERANCE = 1e-9
"""By how much a state may be off the constraints before it is projected, and what solvers are asked for unless told
otherwise: impacts enlarge what they leave, at 1e-6 to 3e-4."""

# --- What is computed


def _model(given: ModelState, u: Array | None = None) -> Values:
    """q', v', the multipliers and forces of the constraints, the energy, and by how much constraints are off."""
    observed = observe(given, u)
    energy = given.system.energy(given.t, given.q, given.v)
    off = jnp.abs(jnp.concatenate([observed["position_error"], observed["velocity_error"]]))
    parts = [
        given.system.kinematics(given.t, given.q, given.v),
        observed["a"],
        *([observed["multipliers"], observed["constraint_force"]] if off.size else []),
        *([] if energy is None else [energy[None]]),
        *(x for _, x in given.own_outputs()),
        *([jnp.max(off)[None]] if off.size else []),
    ]
    return {"y": jnp.concatenate(parts)}


def _differentiate(model: Callable[..., Values], given: ModelState, u: tuple[Array, ...]) -> Values:
    """Derivatives of these by time, state and inputs."""

    def values(t: Array, q: Array, v: Array, *u: Array) -> Array:
        return model(given._replace(t=t, q=q, v=v), *u)["y"]

    by = jax.jacfwd(values, tuple(range(3 + len(u))))(given.t, given.q, given.v, *u)
    return {"jacobian": jnp.concatenate([x.reshape(len(x), -1) for x in by], axis=1)}


def _step(given: ModelState, dt: Array, *u: Array) -> Values:
    """The state after one step, projected onto the constraints."""
    return {"state": jnp.concatenate([*FUNCTIONS["step"](given, dt, *u).values()])}


def _project(given: ModelState) -> Values:
    """The nearest state on the constraints."""
    return {"state": jnp.concatenate(project(given.system, given.t, given.q, given.v))}


# --- Variables: each has the index of its value as its reference


def _list_functions(problem: Problem, inputs: Sequence[str], mode: int | None) -> list[Function]:
    """The functions that fmi3.c calls; with contacts all are of the mode too."""
    dt, u = {"dt": np.asarray(1e-3)}, {"u": np.zeros(len(inputs))} if inputs else {}
    rates, derivatives = (
        "The rates of the state, and the outputs.",
        "Derivatives of these by time, state and inputs.",
    )
    if mode is None:
        own = [
            Function("model", rates, u, _model),
            Function("derivatives", derivatives, u, lambda given, *u: _differentiate(_model, given, u)),
            Function("step", "The state after one step.", dt | u, _step),
        ]
        state = jnp.asarray(problem.t0, problem.q0.dtype), problem.q0, problem.v0
        constrained = bool(eqx.filter_eval_shape(constraint_rows, problem.system, *state).names)
        nearest = Function("project", "The nearest state on the constraints.", {}, _project)
        return [*own, nearest] if constrained else own

    def differentiate(given: ModelState, mode: Array, *u: Array) -> Values:
        return _differentiate(lambda given, *u: evaluate(given, mode, *u), given, u)

    of = {"mode": np.zeros(mode)}
    return [
        Function("model", rates, of | u, evaluate),
        Function("derivatives", derivatives, of | u, differentiate),
        Function("step", "The state after one step within the mode.", dt | of | u, step_within),
        Function("project", "The nearest state on constraints and closed contacts.", of, hold),
        Function("settle", "The state and the mode after what happens at an instant.", of | u, settle),
    ]


class FmuVariable(NamedTuple):
    """A variable of an FMU, a number.

    - `name`, `description`, `unit`: the unit is empty where it is not known.
    - `causality`: `"independent"`, `"input"`, `"output"`, `"parameter"` or `"local"`.
    - `start`: its value by default; None of what is computed.
    - `derivative_of`: the reference of the state whose rate it is; None of others.
    - `discrete`: whether it changes at events alone.
    """

    name: str
    causality: str
    start: float | None = None
    unit: str = ""
    description: str = ""
    derivative_of: int | None = None
    discrete: bool = False


class FmuExport(NamedTuple):
    """What `to_fmu` has written.

    - `path`: the file.
    - `variables`: by their references, which are their places.
    - `platforms`: those that it has binaries for.
    """

    path: Path
    variables: tuple[FmuVariable, ...]
    platforms: tuple[str, ...]


class _Layout(NamedTuple):
    """Where the values are."""

    variables: list[FmuVariable]
    inputs: int  # how many come before the parameters: time, state, inputs
    mode: int  # where the mode of contacts begins, after the parameters
    first_result: int
    margins: int  # where those of contacts begin, to the end

    def place(self, name: str) -> int | None:
        names = [x.name for x in self.variables]
        return names.index(name) if name in names else None


def _name_all(group: str, labels: Sequence[str]) -> list[str]:
    """Names that tools show in a tree, such as `position.crank_x`."""
    words = [re.sub(r"\W+", "_", x, flags=re.ASCII).strip("_") or "x" for x in labels]
    if len(set(words)) < len(words):
        words = [f"{x}_{i}" for i, x in enumerate(words)]
    return [f"{group}.{'_' * x[0].isdigit()}{x}" for x in words]


def _name_unit(unit: str) -> str:
    """As simulators write units: `kg.m2/s`."""
    return unit.replace(" ", ".").replace("^", "")


def _lay_out(
    file: File,
    of_inputs: dict[str, str],
    start: tuple[Any, Any],
    energy: bool,
    step: float,
    contacts: ContactNames | None,
    outputs: Sequence[str],
) -> _Layout:
    (of_q, of_v), system, (q0, v0) = file.labels, file.problem.system, start
    units = [x if base_units(x) else "" for x in coordinate_units(system)] or [""] * len(of_q)
    rates = [f"{x}/s" if x in ("m", "rad") else "" for x in units]
    of_rates = velocity_units(system) or [""] * len(of_v)
    positions, velocities = _name_all("position", of_q), _name_all("velocity", of_v)
    states = [
        FmuVariable(name, "output", float(x), unit, f"{kind} {label}")
        for kind, *columns in (
            ("coordinate", positions, q0, units, of_q),
            ("velocity", velocities, v0, of_rates, of_v),
        )
        for name, x, unit, label in zip(*columns, strict=True)
    ]
    found = [FmuVariable("time", "independent", unit="s"), *states]
    inputs = zip(_name_all("input", file.inputs), of_inputs.items(), strict=True)
    found += [FmuVariable(x, "input", 0.0, unit, f"effort of {label}") for x, (label, unit) in inputs]
    count = len(found)
    found += [
        FmuVariable(
            f"parameter.{x.name}", "parameter", x.default, x.unit, x.about or "of the model, in SI units"
        )
        for x in file.parameters
    ]
    about = "longest step of co-simulation; each is projected onto the constraints"
    found.append(FmuVariable("step_size", "parameter", step, "s", about))
    held = bool(file.rows or contacts)
    if held:
        about = "by how much constraints may be off before the state is projected onto them"
        found.append(FmuVariable("constraint_tolerance", "parameter", _TOLERANCE, description=about))
    mode = len(found)
    if contacts:
        for group, about, labels in (
            ("closed", "whether it bears: 1 or 0;", contacts.contacts),
            ("sticking", "whether it bears and does not slide: 1 or 0;", contacts.contacts),
            ("slip_direction", "where it slides to, where it does;", contacts.rows),
        ):
            kind = "local" if group == "slip_direction" else "output"
            found += [
                FmuVariable(x, kind, description=f"{about} {y}", discrete=True)
                for x, y in zip(_name_all(group, labels), labels, strict=True)
            ]
    first = len(found)
    of_states = [*rates, *(f"{x}^2" if x else "" for x in of_rates)]
    found += [
        FmuVariable(f"der({x.name})", "local", None, unit, f"rate of {x.name}", k)
        for k, (x, unit) in enumerate(zip(states, of_states, strict=True), 1)
    ]

    def add(
        group: str, labels: Sequence[str], about: str, units: Sequence[str] = (), causality: str = "output"
    ) -> None:
        named = zip(_name_all(group, labels), labels, units or [""] * len(labels), strict=True)
        found.extend(FmuVariable(x, causality, None, unit, f"{about} {y}") for x, y, unit in named)

    if held:
        add("multiplier", file.rows, "multiplier of constraint")
        add("constraint_force", of_v, "generalized force of the constraints on", force_units(system))
    if energy:
        found.append(FmuVariable("energy", "output", unit="J", description="mechanical energy"))
    add("output", outputs, "of your own:")
    if contacts:
        add("gap", contacts.gapped, "gap of", contacts.gap_units)
        add("contact_force", contacts.rows, "force of", contacts.force_units)
    if held:
        about = "by how much constraints are off, at most, of positions and of velocities"
        found.append(FmuVariable("constraint_error", "output", description=about))
    margins = len(found)
    if contacts:
        about = "event indicator: the mode holds as long as it is positive;"
        add("margin", contacts.margins, about, causality="local")
    return _Layout(found, count, mode, first, margins)


# --- The text of its files


def _write_glue(file: File, layout: _Layout, token: str) -> str:
    """Sizes and calls, for fmi3.c."""
    nq, nv = len(file.problem.q0), len(file.problem.v0)
    name, inputs, count, mode = file.name, layout.inputs, len(layout.variables), layout.mode
    sizes = {
        "VALUES": count, "INPUTS": inputs, "STATE": 1, "STATES": nq + nv, "MODE": mode,
        "MODES": layout.first_result - mode, "FIRST_RESULT": layout.first_result,
        "RESULTS": count - layout.first_result, "MARGIN": layout.margins, "MARGINS": count - layout.margins,
        "STEP_SIZE": layout.place("step_size"), "TOLERANCE": layout.place("constraint_tolerance"),
        "CONSTRAINT_ERROR": layout.place("constraint_error"),
    }  # fmt: skip
    gaps = [k for k, x in enumerate(layout.variables) if x.name.startswith("gap.")]
    sizes |= {"GAP": gaps[0] if gaps else 0, "GAPS": len(gaps)}
    places = {"dt": "dt", "mode": f"(x) + {mode}", "u": f"(x) + {1 + nq + nv}"}
    macros = {
        "model": "EVALUATE(x, y)", "derivatives": "DIFFERENTIATE(x, y)", "step": "STEP_ON(x, dt, y)",
        "project": "PROJECT(x, y)", "settle": "SETTLE(x, y)",
    }  # fmt: skip

    def call(part: Part) -> str:
        own = [f"(const {name}_parameters *)((x) + {inputs})"] * ("*p" in part.written.head)
        given = ["(x)[0]", "(x) + 1", f"(x) + {1 + nq}", *(places[x] for x in part.function.further), "y"]
        return f"{part.written.name}({', '.join([*own, *given])})"

    start = ", ".join(literal(x.start or 0.0, "float64") for x in layout.variables)
    lines = [
        f"/* {describe_origin(file)} */",
        f'#include "{name}.h"',
        "",
        f'#define TOKEN "{token}"',
        *(f"#define {key} {x}" for key, x in sizes.items() if x is not None),
        *(f"#define {macros[x.function.name]} {call(x)}" for x in file.parts),
        f"static const double START[VALUES] = {{{start}}};",
    ]
    return "\n".join([*lines, ""])


def _find_dependencies(model: Program, jacobian: Program, given: Sequence[int]) -> list[dict[int, str]]:
    """Of each result, the references of time, states and inputs that it depends on, and how; these are operands of
    places `given`."""
    operands = [model.params[k] for k in given]
    starts = np.cumsum([0, *(x.size for x in operands)])
    span = lambda i: range(starts[i], starts[i + 1])
    (results,), (slopes,) = model.outputs, jacobian.outputs
    count, width = model.results[0][1], int(starts[-1])

    def depends(result: Any) -> set[int]:
        found = set[int]()
        for node in LiveNodes([result], values=True).nodes:
            for x in {y for y in node.args if isinstance(y, Node) and y in operands}:
                i = operands.index(x)
                by_entry = node.op == "load" and is_number(node.args[1])
                found.update([span(i)[int(node.args[1])]] if by_entry else span(i))
        return found

    if isinstance(results, Node):  # an array that is written in loops
        return [dict.fromkeys(sorted(depends(results)), "dependent")] * count
    constant = lambda k: (
        not isinstance(slopes, Node) and is_number(slopes[k]) and slopes[k] != 0
    )  # zero may hide a step
    return [
        {j: "constant" if constant(i * width + j) else "dependent" for j in sorted(depends(x))}
        for i, x in enumerate(results)
    ]


def _to_text(root: ElementTree.Element) -> str:
    ElementTree.indent(root)
    return ElementTree.tostring(root, "unicode", xml_declaration=True) + "\n"


def _add(parent: ElementTree.Element, tag: str, **attributes: Any) -> ElementTree.Element:
    """An element, with the attributes that are given."""
    text = lambda x: str(x).lower() if isinstance(x, bool) else repr(x) if isinstance(x, float) else str(x)
    return ElementTree.SubElement(
        parent, tag, {k: text(x) for k, x in attributes.items() if x not in (None, "")}
    )


def _describe(
    file: File,
    layout: _Layout,
    fmi: str,
    token: str,
    step: float,
    depends: list[dict[int, str]],
    sources: Sequence[str],
) -> str:
    problem, old = file.problem, fmi == "2.0"
    constrained, margins = (
        layout.place("constraint_error") is not None,
        range(layout.margins, len(layout.variables)),
    )
    root = ElementTree.Element(
        "fmiModelDescription", {"fmiVersion": fmi, "guid" if old else "instantiationToken": token},
        modelName=problem.name, description=problem.citation,
        generationTool=f"ukjax {importlib.metadata.version('ukjax')}", variableNamingConvention="structured",
    )  # fmt: skip
    if old:
        root.set("numberOfEventIndicators", str(len(margins)))
    able: dict[str, Any] = {"modelIdentifier": file.name}
    if old:
        able |= {"canGetAndSetFMUstate": True, "canSerializeFMUstate": True}
        able |= {"providesDirectionalDerivative": True}
        steps = {"completedIntegratorStepNotNeeded": not constrained}
    else:
        able |= {"canGetAndSetFMUState": True, "canSerializeFMUState": True}
        able |= {"providesDirectionalDerivatives": True, "providesAdjointDerivatives": True}
        steps = {"needsCompletedIntegratorStep": constrained}
    exchange = _add(root, "ModelExchange", **able, **steps)
    able |= {"canHandleVariableCommunicationStepSize": True}
    if not old:
        able |= {"providesIntermediateUpdate": True, "canReturnEarlyAfterIntermediateUpdate": True}
        able |= {"mightReturnEarlyFromDoStep": True, "hasEventMode": bool(margins)}
    simulation = _add(root, "CoSimulation", **able)
    if old:
        for kind in (exchange, simulation):
            files = _add(kind, "SourceFiles")
            for name in sources:
                _add(files, "File", name=name)
    units = _add(root, "UnitDefinitions")
    for name in dict.fromkeys(x.unit for x in layout.variables if x.unit):
        _add(_add(units, "Unit", name=_name_unit(name)), "BaseUnit", **base_units(name) or {})
    categories = _add(root, "LogCategories")
    for name in ("logStatusError", "logStatusDiscard"):
        _add(categories, "Category", name=name)
    t0, t1 = float(problem.t0), float(problem.t1)
    _add(root, "DefaultExperiment", startTime=t0, stopTime=t1, tolerance=_TOLERANCE, stepSize=step)
    variables, kinds = _add(root, "ModelVariables"), ("continuous", "discrete")
    for k, x in enumerate(layout.variables):
        known = x.causality in ("independent", "input")
        common = {
            "name": x.name, "valueReference": k, "causality": x.causality, "description": x.description,
            "variability": "tunable" if x.causality == "parameter" else kinds[x.discrete],
            "initial": None if known else "calculated" if x.start is None else "exact",
        }  # fmt: skip
        number = {"unit": _name_unit(x.unit), "start": x.start}
        if old:
            by_place = None if x.derivative_of is None else x.derivative_of + 1
            _add(_add(variables, "ScalarVariable", **common), "Real", **number, derivative=by_place)
        else:
            _add(variables, "Float64", **common, **number, derivative=x.derivative_of)
    structure = _add(root, "ModelStructure")

    def list_unknowns(kind: str, group: str, chosen: Callable[[FmuVariable], bool]) -> None:
        parent = _add(structure, group) if old else structure
        for k, x in enumerate(layout.variables):
            if not chosen(x):
                continue
            place = {"index": k + 1} if old else {"valueReference": k}
            element = _add(parent, "Unknown" if old else kind, **place)
            if kind != "InitialUnknown":  # also empty ones: they say that it depends on nothing
                of_state = {} if x.discrete else {k: "constant"}
                own = of_state if k < layout.first_result else depends[k - layout.first_result]
                element.set("dependencies", " ".join(str(j + old) for j in own))
                element.set("dependenciesKind", " ".join(own.values()))

    list_unknowns("Output", "Outputs", lambda x: x.causality == "output")
    list_unknowns("ContinuousStateDerivative", "Derivatives", lambda x: x.derivative_of is not None)
    unknown = lambda x: x.start is None and (x.causality == "output" or x.derivative_of is not None)
    list_unknowns("InitialUnknown", "InitialUnknowns", unknown)
    if not old:
        for k in margins:
            _add(structure, "EventIndicator", valueReference=k)
    return _to_text(root)


def _describe_build(file: File, sources: Sequence[str]) -> str:
    root = ElementTree.Element("fmiBuildDescription", fmiVersion="3.0")
    configuration = _add(root, "BuildConfiguration", modelIdentifier=file.name)
    files = _add(configuration, "SourceFileSet", language="C99")
    for name in sources:
        _add(files, "SourceFile", name=name)
    return _to_text(root)


# --- Binaries

_SUFFIXES = {"linux": "so", "darwin": "dylib", "windows": "dll"}
_TARGETS = {"linux": "linux-gnu.2.17", "darwin": "macos", "windows": "windows-gnu"}  # of Zig
_SYSTEMS = {"Linux": "linux", "Darwin": "darwin", "Windows": "windows"}
_PROCESSORS = {"AMD64": "x86_64", "x86_64": "x86_64", "arm64": "aarch64", "aarch64": "aarch64"}
_OF_FMI_2 = {"x86_64-linux": "linux64", "x86_64-windows": "win64", "x86_64-darwin": "darwin64"}  # folders
PLATFORMS = tuple(f"{x}-{y}" for x in ("x86_64", "aarch64") for y in _SUFFIXES)


def _own_platform() -> str:
    system, processor = platform.system(), platform.machine()
    return f"{_PROCESSORS.get(processor, processor)}-{_SYSTEMS.get(system, system)}"


def _choose_platforms(platforms: Any) -> tuple[str, ...]:
    chosen = (_own_platform(),) if platforms is None else tuple(platforms)
    for x in chosen:
        if isinstance(platforms, str) or x not in PLATFORMS:
            wrong = platforms if isinstance(platforms, str) else x
            raise InputError(
                f"platforms must be a list of {', '.join(PLATFORMS)}, or [] for source code alone; "
                f"got {format_value(wrong)}."
            )
    return chosen


def _find_compiler(target: str) -> list[str]:
    """The command of a C compiler for a platform."""
    processor, system = target.split("-")
    zig = [sys.executable, "-m", "ziglang", "cc"] if importlib.util.find_spec("ziglang") else []
    if target == _own_platform():
        if cc := shutil.which("cc"):
            return [cc]
        if zig:
            return zig
        raise InputError(
            "there is no C compiler here: install cc, or `pip install ziglang`, or give platforms=[] for an FMU of "
            "source code alone."
        )
    if not zig:
        raise InputError(f"a binary for {target} needs Zig: `pip install ziglang`.")
    return [*zig, "-target", f"{processor}-{_TARGETS[system]}"]


def _compile(folder: Path, sources: Sequence[str], target: str, output: str) -> bytes:
    command = _find_compiler(target)
    options = ["-std=c99", "-O2", "-shared", "-fvisibility=hidden", *sources, "-o", output]
    options += [] if target.endswith("windows") else ["-fPIC", "-lm"]
    done = subprocess.run([*command, *options], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise InputError(f"{' '.join(command)} cannot compile the FMU for {target}: {done.stderr[:1000]}")
    return (folder / output).read_bytes()


# --- The whole


def to_fmu(
    problem: Problem,
    path: str | Path | None = None,
    *,
    name: str | None = None,
    constants: bool = False,
    stabilizer: AbstractStabilizer = NoStabilizer(),
    inputs: Any = None,
    solver: dfx.AbstractSolver = dfx.Tsit5(),
    step: float = 1e-3,
    platforms: Sequence[str] | None = None,
    fmi: str = "3.0",
    outputs: Sequence[Callable[..., Any]] = (),
) -> FmuExport:
    """Writes a model as a Functional Mock-up Unit: for Simulink, OpenModelica, Dymola, FMPy and others.

    The FMU has the model's equations as C (`to_c`), and a binary compiled of it. It needs no Python.

    - In model exchange the simulator integrates the states q and v. A state that has drifted off the constraints by more
      than the parameter `constraint_tolerance` is projected onto them by an event after that step.
    - In co-simulation it takes steps of `solver`, of equal size and no longer than the parameter `step_size`, each
      projected onto the constraints, from one communication point to the next.
    - Contacts, limits and dry friction are state events, as of `simulate(contact="events")`: event indicators say how
      long the mode of contacts holds; impacts and the next mode are computed in event mode, and in co-simulation within
      its steps.
    - Outputs are positions, velocities, multipliers and forces of the constraints, the energy, and by how much
      constraints are off. Inputs are the efforts of motors. Masses, lengths and gains are tunable parameters.
    - Directional and adjoint derivatives are exact, by time, states and inputs, within a mode of contacts; FMI 2.0 has no
      adjoint ones.
    - Its state can be kept, restored and written down; a process can have many instances.

    **Arguments:**

    - `problem`: the model; its start is projected onto the constraints.
    - `path`: the file, which is replaced; by default the name with `.fmu`.
    - `name`: of the model in C and of the binary; by default that of the problem.
    - `constants`: whether masses, lengths and gains are written into the code instead.
    - `stabilizer`: what the acceleration has against drift in model exchange, as `Baumgarte(1.0, 10.0)`.
    - `inputs`: the motors, as of `to_c`: names of actuators or of joints, or B_u (n, p), or a function of (t, q).
    - `solver`: of co-simulation: an explicit one of Diffrax.
    - `step`: the parameter `step_size` by default [s].
    - `platforms`: for which to compile, such as `["x86_64-linux", "x86_64-windows"]`; by default this machine's. Others
      need `pip install ziglang`. Without any the FMU has source code alone.
    - `fmi`: the version of the standard, `"3.0"` or, for tools without, `"2.0"`.
    - `outputs`: further ones: functions of `(system, t, q, v)` that return a number, an array or a dict of such, as the
      poses of bodies.

    **Returns:** `FmuExport`: its path, its variables and its platforms.

    **Raises:** `InputError` for contacts that `simulate` cannot follow from event to event, for what has no form in C, a
    start that is on no constraints, and where there is no C compiler.
    """
    require_untraced("to_fmu", problem, outputs, inputs)
    require_instance("problem", problem, Problem, "uk.models.scara()")
    if fmi not in ("2.0", "3.0"):
        raise InputError(f"fmi must be '3.0' or '2.0', got {format_value(fmi)}.")
    chosen, size = _choose_platforms(platforms), float(positive_time("step", step))
    for target in chosen:
        _find_compiler(target)
    system, t0 = problem.system, problem.t0
    state = (jnp.asarray(t0, problem.q0.dtype), problem.q0, problem.v0)
    names = Settings((system, stabilizer), state, inputs, solver).input_names
    contacts = contact_names(problem) if unilateral(system.constraints) else None
    own = [wrap_function(x) for x in outputs]
    functions = _list_functions(problem, names, contacts and contacts.mode_size)
    file, programs = make_file(
        problem, functions, name=name, dtype="float64", constants=constants, stabilizer=stabilizer,
        inputs=inputs, solver=solver, tested=False, outputs=own,
    )  # fmt: skip
    start = project(file.problem) if file.rows else (problem.q0, problem.v0)
    given = ModelState(system, stabilizer, *state, Settings((system, stabilizer), state, None, solver, own))
    shapes = eqx.filter_eval_shape(ModelState.own_outputs, given)
    labels = [f"{x}_{i}" if y.size > 1 else x for x, y in shapes for i in range(y.size)]
    layout = _lay_out(
        file, input_units(problem, inputs), start, system.energy(*state) is not None, size, contacts, labels
    )
    places = [k for k, x in enumerate(functions[0].further) if x != "mode"]
    before = len(programs[0].params) - 3 - len(functions[0].further)
    operands = [before + k for k in (0, 1, 2, *(3 + k for k in places))]
    depends = _find_dependencies(programs[0], programs[1], operands)
    of_fmi = ["fmi3.c"] if fmi == "3.0" else ["fmi2.c", "fmi3.c"]  # the last is included by the one before
    compiled = [f"{file.name}.c", of_fmi[0]]
    sources = {f"{file.name}.h": write_header(file), f"{file.name}.c": write_source(file)}
    sources |= {x: Path(__file__).with_name(x).read_text("utf-8") for x in of_fmi}
    token = f"{{{uuid.UUID(bytes=hashlib.sha256(f'{layout}{sources}'.encode()).digest()[:16])}}}"
    sources["fmu.h"] = _write_glue(file, layout, token)
    contents: dict[str, str | bytes] = {f"sources/{x}": text for x, text in sources.items()}
    contents["modelDescription.xml"] = _describe(file, layout, fmi, token, size, depends, compiled)
    if fmi == "3.0":
        contents["sources/buildDescription.xml"] = _describe_build(file, compiled)
    with tempfile.TemporaryDirectory() as folder:
        for x, text in sources.items():
            (Path(folder) / x).write_text(text, "utf-8")
        for target in chosen:
            library = f"{file.name}.{_SUFFIXES[target.split('-')[1]]}"
            folder_of = _OF_FMI_2.get(target, target) if fmi == "2.0" else target
            contents[f"binaries/{folder_of}/{library}"] = _compile(Path(folder), compiled, target, library)
    path = as_path("path", path or f"{file.name}.fmu")
    with replacing(path) as partial, zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
        for x, content in sorted(contents.items()):
            archive.writestr(x, content)
    return FmuExport(path, tuple(layout.variables), chosen)
