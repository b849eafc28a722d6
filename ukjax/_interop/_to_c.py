"""A model's functions as C99, for programs without Python: a header, a source, a self-test and a README."""

import contextlib
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._compiler._structured._c import TYPES, Argument, FunctionText, Module, Source
from .._compiler._structured._live_nodes import LiveNodes
from .._compiler._structured._program import Program, program_of
from .._misc._arguments import flag, require_instance, require_solver
from .._misc._closures import require_untraced
from .._misc._errors import InputError, format_value
from .._misc._files import as_path
from .._motion._project import project
from .._system._problem import Problem
from .._system._rows import constraint_rows
from .._system._stabilize import AbstractStabilizer, NoStabilizer
from .._system._system import names_of
from ._c_functions import (
    Function,
    ModelState,
    Parameter,
    Settings,
    explain_untranslatable,
    function_of,
    make_identifier,
    parameters_of,
)
from ._c_text import File, Part, Test, write_files

State = tuple[Any, Any, Any]  # t, q, v

_TESTED = 3  # states of the self-test, besides that of the start
_OFF = 0.1  # by how much they are off the start, before they are projected onto the constraints


class CFunction(NamedTuple):
    """What `to_c` says of a function that it has written.

    - `operations`: how many it has, those of loops once.
    - `stack_bytes`: about how much stack it takes; compilers take more or less.
    - `unbounded`: how many of its loops have no bound on their passes.
    - `most_operations`: how many a call runs at most, with all passes of its loops; None where one has no bound.
    """

    operations: int
    stack_bytes: int
    unbounded: int
    most_operations: int | None


class CExport(NamedTuple):
    """What `to_c` has written.

    - `folder`: where it is.
    - `files`: their names.
    - `functions`: by their names in C.
    - `parameters`: their names in C, and what they are by default.
    """

    folder: Path
    files: tuple[str, ...]
    functions: dict[str, CFunction]
    parameters: dict[str, float]


class _FunctionProgram(NamedTuple):
    """A function as a program: of parameters, t, q, v and what else it takes."""

    function: Function
    program: Program
    results: dict[str, tuple[int, ...]]  # their shapes


def to_c(
    problem: Problem,
    folder: str | Path,
    functions: Sequence[str | Callable[..., Any]] = ("acceleration",),
    *,
    name: str | None = None,
    dtype: Any = None,
    constants: bool = False,
    stabilizer: AbstractStabilizer = NoStabilizer(),
    inputs: Any = None,
    solver: dfx.AbstractSolver = dfx.Tsit5(),
    bounded: bool = False,
) -> CExport:
    """Writes functions of a model as C99: what a controller or a simulator without Python needs.

    The C code is the scalar program that runs here, operation by operation. It takes its memory from the stack, keeps
    nothing between calls, and needs `sin`, `cos`, `sqrt` and the like of `math.h` alone; the header says which, and how
    many operations each function has, how much stack it takes, and which loops have no bound. Every function takes the
    parameters, t, q and v, then what else it takes, then its results; matrices are row by row:

    - `"acceleration"`: v'.
    - `"constraints"`: A and b of the rows A v' = b, and the errors of positions and velocities.
    - `"forces"`: the multipliers of the rows, and the generalized force of the constraints.
    - `"mass_matrix"`, `"energy"`.
    - `"inverse_dynamics"`: of an acceleration, the least inputs that give it; see `ukjax.analysis.inverse_dynamics`.
    - `"servo"`: the inputs of a model under `with_servo`.
    - `"step"`: of dt, the state after one step of `solver`, projected onto the constraints, as `ukjax.step`; with
      contacts a step of Moreau's scheme.
    - any of these with `_jacobian`, such as `"acceleration_jacobian"`: derivatives by q, v and what else it takes.
    - a function of your own of `(system, t, q, v)` and of further arrays and numbers, whose defaults say how large they
      are; it returns an array, or a dict of them.

    **Arguments:**

    - `problem`: the model; its start is where the self-test begins.
    - `folder`: where to write; it is made. Files of the same names are replaced.
    - `functions`: which to write.
    - `name`: in front of all names in C; by default that of the problem.
    - `dtype`: `"float64"` or `"float32"`; by default that of the problem.
    - `constants`: whether masses, lengths and gains are written into the code; else they are arguments, in a struct with
      the problem's values as defaults. Entries 0, 1 and -1 of arrays with a zero are always written into the code.
    - `stabilizer`: what the acceleration has against drift, as `Baumgarte(1.0, 10.0)`.
    - `inputs`: the motors, as for `ukjax.analysis.inverse_dynamics`, which finds their efforts: names of actuators or of
      joints, or B_u (n, p), or a function of (t, q) that returns it. Acceleration, forces and step then take u (p,).
    - `solver`: of `"step"`: an explicit one of Diffrax.
    - `bounded`: whether a loop whose number of passes has no bound is an error.

    **Returns:** `CExport`: the folder, its files, and what each function takes.

    **Raises:** `InputError` for unknown functions, what has no form in C, by the line of your function where that is
    known, and a folder that cannot be written.
    """
    require_untraced("to_c", problem, functions, inputs)
    folder = as_path("folder", folder)
    file, _ = make_file(
        problem,
        (functions,) if isinstance(functions, str) or callable(functions) else tuple(functions),
        name=name,
        dtype=dtype,
        constants=constants,
        stabilizer=stabilizer,
        inputs=inputs,
        solver=solver,
        bounded=bounded,
    )
    made = {
        x.name: CFunction(x.operations, x.stack_bytes, len(x.unbounded), x.most_operations)
        for x in (y.written for y in file.parts)
    }
    return CExport(folder, write_files(folder, file), made, {x.name: x.default for x in file.parameters})


def make_file(
    problem: Problem,
    functions: Sequence[Any],
    *,
    name: str | None,
    dtype: Any,
    constants: bool,
    stabilizer: AbstractStabilizer,
    inputs: Any,
    solver: dfx.AbstractSolver,
    bounded: bool = False,
    tested: bool = True,
    outputs: Sequence[Function] = (),
) -> tuple[File, list[Program]]:
    """What `to_c` writes, with its self-test if that is wished, and each function as a program."""
    require_instance("problem", problem, Problem, "uk.models.scara()")
    require_instance("stabilizer", stabilizer, AbstractStabilizer, "Baumgarte(1.0, 10.0)")
    require_solver(solver)
    flag("constants", constants)
    flag("bounded", bounded)
    if not functions:
        raise InputError("functions names nothing to write; give ['acceleration'], for example.")
    name = make_identifier(name or problem.name)
    dtype = _dtype_of(problem, dtype)
    problem, stabilizer = _cast((problem, stabilizer), dtype)
    model, state = (problem.system, stabilizer), (jnp.asarray(problem.t0, dtype), problem.q0, problem.v0)
    parameters, with_values = ([], lambda _: model) if constants else parameters_of(model)
    how = Settings(model, state, inputs, solver, outputs)
    of = [function_of(x, problem.v0.size, len(how.input_names)) for x in functions]
    if len({x.name for x in of}) < len(of):
        raise InputError(f"functions names one twice: {', '.join(x.name for x in of)}.")
    translated = [_translate(x, with_values, len(parameters), state, how) for x in of]
    programs = [x.program for x in translated]
    reads = _reads_parameters(programs, len(parameters))
    module = Module(name)
    sources = [_make_source(x, name, parameters, reads, state) for x in translated]
    written = explain_untranslatable("the model", lambda: module.write(sources))
    if bounded:
        _require_bounds(of, written)
    states = _make_states(problem, state) if tested else []
    parts = [
        Part(x.function, y, x.results, [_evaluate(x, parameters, at) for at in states])
        for x, y in zip(translated, written, strict=True)
    ]
    labels = names_of(problem.system, problem.q0, problem.v0)
    texts = "".join([*module.shared, *(x.text for x in written)])
    named = re.findall(r"p->(\w+)", texts)  # what is read: a callee may need less than it is given
    fields = [x for x in parameters if x.name in named] or parameters[:reads]
    rows = eqx.filter_eval_shape(constraint_rows, problem.system, *state).names
    return File(name, problem, dtype.name, labels, rows, how.input_names, fields, parts, module), programs


def _reads_parameters(programs: Sequence[Program], count: int) -> bool:
    """Whether any of the programs reads any of its first operands, so many."""
    needed = [(x.params[:count], LiveNodes(x.flat, values=True)) for x in programs]
    return any(x in y for params, y in needed for x in params)


def _require_bounds(functions: Sequence[Function], written: Sequence[FunctionText]) -> None:
    for function, x in zip(functions, written, strict=True):
        for loop in x.unbounded:
            what = f"{function.name} has a loop that may go on for ever"
            if not loop.at:
                raise InputError(f"{what}, one of ukjax, as of contacts: leave out bounded=True.")
            raise InputError(
                f"{what} ({loop.at}): have its condition count passes up to a number, or leave out bounded=True."
            )


def _cast(model: Any, dtype: Any) -> Any:
    """A model with real numbers of a type; what is one array stays one."""
    made = dict[int, Any]()

    def cast(x: Any) -> Any:
        if not isinstance(x, jax.Array | np.ndarray) or not jnp.issubdtype(x.dtype, jnp.floating):
            return x
        return made.setdefault(id(x), x if x.dtype == dtype else x.astype(dtype))

    return jax.tree.map(cast, model)


def _dtype_of(problem: Problem, dtype: Any) -> np.dtype:
    try:
        name = np.dtype(problem.q0.dtype if dtype is None else dtype).name
    except TypeError:
        name = format_value(dtype)
    if name not in ("float64", "float32"):
        raise InputError(f"dtype must be 'float64' or 'float32', got {name}.")
    if name == "float64" and not jax.config.read("jax_enable_x64"):
        raise InputError("dtype='float64' needs jax.config.update('jax_enable_x64', True) first.")
    return np.dtype(name)


def _translate(
    function: Function, with_values: Callable[..., Any], count: int, state: State, how: Settings
) -> _FunctionProgram:
    shapes = dict[str, tuple[int, ...]]()

    def compute(*arrays: Any) -> list[Any]:
        values, (t, q, v, *further) = arrays[:count], arrays[count:]
        system, stabilizer = with_values(values)
        found = function.compute(ModelState(system, stabilizer, t, q, v, how), *further)
        found = {make_identifier(k): jnp.asarray(x) for k, x in found.items()}
        shapes.update({k: x.shape for k, x in found.items() if x.size})
        return [x.astype(q.dtype) for x in found.values()]

    dtype = state[1].dtype
    given = [jax.ShapeDtypeStruct((), dtype)] * count + [jax.ShapeDtypeStruct(x.shape, dtype) for x in state]
    given += [jax.ShapeDtypeStruct(x.shape, dtype) for x in function.further.values()]
    program, _, _ = explain_untranslatable(
        function.name, lambda: program_of(jax.make_jaxpr(compute)(*given), lambda x: False)
    )
    if not shapes:
        raise InputError(f"{function.name} of this model has no entries: there is nothing to write.")
    taken = ["p", "t", "q", "v", *function.further, *shapes]
    if len(set(taken)) < len(taken):
        raise InputError(
            f"names of what {function.name} takes and returns must differ, got {', '.join(taken[1:])}."
        )
    return _FunctionProgram(function, program, shapes)


def _make_source(
    x: _FunctionProgram, prefix: str, parameters: Sequence[Parameter], reads: bool, state: State
) -> Source:
    (real, _), *_ = x.program.results
    c = TYPES[real]
    given = [Argument("", (f"p->{y.name}",)) for y in parameters]
    if reads:
        given[0] = given[0]._replace(declaration=f"const {prefix}_parameters *p")
    given.append(Argument(f"{c} t", ("t",)))
    arrays = {"q": state[1], "v": state[2], **x.function.further}
    for name, array in arrays.items():
        if not array.ndim:
            given.append(Argument(f"{c} {name}", (name,)))
        elif array.size:
            entries = tuple(f"{name}[{i}]" for i in range(array.size))
            given.append(Argument(f"const {c} {name}[{array.size}]", entries, name))
    results = [(name, real, math.prod(shape)) for name, shape in x.results.items()]
    return Source(f"{prefix}_{x.function.name}", x.program.outputs, x.program.params, given, results)


def _make_states(problem: Problem, state: State) -> list[State]:
    """The start, and later states beside it on the constraints."""
    t, q, v = state
    random, span = np.random.default_rng(0), min(1.0, float(problem.t1) - float(problem.t0))
    near = lambda x: np.asarray(x) + _OFF * random.uniform(-1, 1, x.shape).astype(x.dtype)
    found = [state]
    for later in (float(t) + random.uniform(0, span, _TESTED)).astype(q.dtype):
        with contextlib.suppress(
            InputError
        ):  # there may be no state on the constraints near by: fewer are tested
            found.append((later, *project(problem.system, later, near(q), near(v))))
    return found


def _evaluate(x: _FunctionProgram, parameters: Sequence[Parameter], state: State) -> Test:
    """What a function gives at a state, by the machine code that runs here."""
    dtype, random = state[1].dtype, np.random.default_rng(1)
    vary = lambda y: np.where(y == 0, 1.0, 0.1 * y) * random.uniform(-1, 1, y.shape) + y
    further = map(vary, x.function.further.values())
    arrays = [*(y.default for y in parameters), *state, *further]
    held = [np.ascontiguousarray(y, dtype).reshape(-1) for y in arrays]
    held = [y for y in held if y.size]
    found = x.program.on_host([y.ctypes.data for y in held])
    return Test(held[len(parameters) :], found)
