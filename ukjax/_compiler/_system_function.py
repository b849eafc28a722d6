"""Functions of arrays, and of a system and of arrays, as scalar code."""

import contextlib
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._formula._acceleration import (
    AbstractFormula,
    Acceleration,
    Equations,
    UdwadiaKalaba,
    equations_of_motion,
    misses_rows,
    require_rows_kept,
    why_not_finite,
)
from .._formula._equations import require_energy
from .._formula._on_host import accelerations, clearly_independent
from .._misc._closures import require_seen
from .._misc._errors import InputError
from .._misc._types import as_jax, is_traced
from .._pseudoinverse import GramSchmidt
from .._system._stabilize import AbstractStabilizer, NoStabilizer
from .._system._system import AbstractSystem
from ._code import builder_of, short_enough
from ._expressions import ExpressionPytree
from ._foreign import machine_code_is_wanted
from ._scalars import TranslationError
from ._structured._arrays import MATERIALIZED, to_scalars
from ._structured._jaxprs import loops
from ._structured._scalarize import scalarize
from ._structured._trace import Interpreter
from ._traced_system import (
    InputMaker,
    Leaf,
    Structure,
    cached_or_untranslatable,
    convert_reals,
    leaf,
    numbers,
    read_by,
    rebuild_system,
    split,
)


@final
class SystemFunction:
    """A function of systems of one structure.

    - `written`: what it returns, a pytree of real numbers; inputs are the parameters and the arrays.
    """

    def __init__(self, written: ExpressionPytree, leaves: Sequence[Leaf]):
        self.written, self._leaves = written, leaves

    def numbers(self, system: Any, stabilizer: AbstractStabilizer | None) -> Array:
        """The parameters it takes, as a vector."""
        return numbers(self._leaves, system, stabilizer, self.written.program.dtype)

    def __call__(self, system: AbstractSystem, stabilizer: AbstractStabilizer, *arrays: Array) -> Any:
        """What the function returns."""
        return self.written(self.numbers(system, stabilizer), *arrays)


def system_function(
    function: Callable[..., Any], system: AbstractSystem, stabilizer: AbstractStabilizer, *arrays: Any
) -> SystemFunction:
    """The scalar code of function(system, stabilizer, *arrays), made once for each structure.

    **Raises:** `TranslationError`.
    """
    leaves, structure = split(system, stabilizer)
    shapes = tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays)
    parameters = tuple(leaf(x, shapes[0].dtype) for x in leaves)
    code = write_system_function(function, structure, parameters, shapes)
    short_enough(code.written.program)
    return code


@cached_or_untranslatable
def write_system_function(
    function: Callable[..., Any], structure: Structure, leaves: tuple[Leaf, ...], shapes: tuple[Any, ...]
) -> SystemFunction:
    """As `system_function`, however long, for evaluation by NumPy."""
    of_leaves = lambda leaves, *arrays: function(*rebuild_system(structure, leaves), *arrays)
    closed, out = jax.make_jaxpr(of_leaves, return_shape=True)([x.aval for x in leaves], *shapes)
    require_seen(closed.consts)
    leaves, inputs = read_by(leaves, closed), InputMaker(builder_of(shapes[0].dtype))
    if sum(map(sum, (x.varying for x in leaves))) > MATERIALIZED and any(map(loops, closed.jaxpr.eqns)):
        raise TranslationError("it loops, and parameters, here scalars, are too many for that")
    return SystemFunction(_interpret_jaxpr(closed, out, inputs, inputs.of(leaves), shapes), leaves)


class OfSystem(NamedTuple):
    """A function of a system and arrays as one of a stabilizer too."""

    function: Callable[..., Any]

    def __call__(self, system: AbstractSystem, _: AbstractStabilizer, *arrays: Array) -> Any:
        return self.function(system, *arrays)


def evaluate_by_code(function: Callable[..., Any], system: Any, *arrays: Any) -> Any:
    """function(system, *arrays) within `jit`: by its machine code where there is any, so that XLA compiles one call where
    it would compile a mechanism, for seconds.
    """
    stabilizer = NoStabilizer()
    if machine_code_is_wanted():
        with contextlib.suppress(TranslationError):
            code = system_function(OfSystem(function), system, stabilizer, *arrays)
            return code(system, stabilizer, *arrays)
    return function(system, *arrays)


def compile_small(function: Callable[..., Any]) -> Callable[..., Any]:
    """`equinox.filter_jit` of a function of small arrays: one program of scalars where it can be one, which takes a
    fraction of the time that XLA takes."""

    @eqx.filter_jit
    @functools.wraps(function)
    def compiled(*args: Any) -> Any:
        if not machine_code_is_wanted():
            return function(*args)
        arrays, rest = eqx.partition(args, eqx.is_array)
        return scalarize(lambda arrays: function(*eqx.combine(arrays, rest)), fallback="xla")(arrays)

    return compiled


def array_function(function: Callable[..., Any], *arrays: Any) -> ExpressionPytree:
    """The scalar code of function(*arrays), made once; what it takes of other such functions it calls.

    **Raises:** `TranslationError`.
    """
    written = _write_array_function(function, tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays))
    short_enough(written.program)
    return written


@cached_or_untranslatable
def _write_array_function(function: Callable[..., Any], shapes: tuple[Any, ...]) -> ExpressionPytree:
    closed, out = jax.make_jaxpr(function, return_shape=True)(*shapes)
    return _interpret_jaxpr(closed, out, InputMaker(builder_of(shapes[0].dtype)), [], shapes, calls=True)


def _interpret_jaxpr(
    closed: Any,
    out: Any,
    inputs: InputMaker,
    parameters: list[Any],
    shapes: Sequence[Any],
    *,
    calls: bool = False,
) -> ExpressionPytree:
    """The code of a jaxpr that takes parameters, which are inputs already, and arrays."""
    counts = [inputs.count, *(math.prod(x.shape) for x in shapes)]
    arguments = parameters + [inputs(x.shape) for x in shapes]
    build = inputs.build
    interpreter = Interpreter(build.nodes, written_out=True, parameters=counts[0], calls=calls)
    found = interpreter.run(closed.jaxpr, closed.consts, arguments)
    like = jax.ShapeDtypeStruct((), build.type)
    of_type = lambda x, v: convert_reals(build, x, np.dtype(v.dtype).name, like)
    numbers = [of_type(to_scalars(interpreter.b, x), v) for x, v in zip(found, closed.out_avals, strict=True)]
    return ExpressionPytree(build, jax.tree.unflatten(jax.tree.structure(out), numbers), counts)


# --- Functions at states that have values, from their scalar code on NumPy arrays: XLA compiles nothing
#
# Compilation by XLA takes seconds for what is asked of a mechanism once or a few times: its rows, its equations of
# motion, its reactions. To trace these and to write them out as scalars takes a tenth of that.


@eqx.filter_jit
def _evaluate_as_program(function: Callable[..., Any], parameters: Any, states: tuple[Any, ...]) -> Any:
    """By a program with loops, or by XLA."""
    return jax.vmap(scalarize(lambda *state: function(parameters, *state), fallback="xla"))(*states)


@final
class AtStates:
    """A function of some parameters, at one batch of states after the other."""

    def __init__(self, function: Callable[..., Any], parameters: Any):
        arrays, structure = split(parameters, None)
        leaves, of_system = lambda dtype: tuple(leaf(x, dtype) for x in arrays), OfSystem(function)
        self._function, self._parameters = function, parameters

        @functools.cache
        def code(*state: Any) -> SystemFunction | None:
            with contextlib.suppress(TranslationError):
                return write_system_function(of_system, structure, leaves(state[0].dtype), state)

        self._code = code
        self._numbers = functools.cache(lambda code: np.asarray(code.numbers(parameters, None)))

    def __call__(self, *states: Array | np.ndarray) -> Any:
        state = tuple(jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in states)
        if (code := self._code(*state)) is None:
            return jax.tree.map(np.asarray, _evaluate_as_program(self._function, self._parameters, states))
        columns = (np.asarray(x).reshape(len(x), -1).T for x in states)
        return code.written.by_numpy(self._numbers(code)[:, None], *columns)

    def one(self, *state: Array | np.ndarray) -> Any:
        """The same at one state, by arrays without an axis for the states."""
        return jax.tree.map(lambda x: x[0], self(*(np.asarray(x)[None] for x in state)))


def evaluate_at_states(function: Callable[..., Any], parameters: Any, *states: Array | np.ndarray) -> Any:
    """What a function of parameters and states returns, each array of it with the states along its first axis.

    What has no scalar code is compiled.
    """
    return AtStates(function, parameters)(*states)


def evaluate_at_state(function: Callable[..., Any], parameters: Any, *state: Array | np.ndarray) -> Any:
    """As `evaluate_at_states`, at one state."""
    return AtStates(function, parameters).one(*state)


def _equations(
    parameters: tuple[AbstractSystem, AbstractStabilizer], t: Array, q: Array, v: Array
) -> Equations:
    system, stabilizer = parameters
    require_energy(system, t, q, v)
    return equations_of_motion(system, t, q, v, stabilizer)


def equations_at(system: AbstractSystem, stabilizer: AbstractStabilizer, t: Any, q: Any, v: Any) -> Equations:
    """The equations of motion at one state that has values."""
    return evaluate_at_state(_equations, (system, stabilizer), t, q, v)


def _independent(formula: AbstractFormula, equations: Equations) -> Acceleration | None:
    """What the default formula says, by NumPy; None where M is not positive definite or rows may be dependent."""
    if not (isinstance(formula, UdwadiaKalaba) and isinstance(formula.pinv, GramSchmidt)):
        return None
    A, b, M, Q = (np.asarray(x) for x in (equations.rows.A, equations.rows.b, equations.M, equations.Q))
    m = len(A)
    try:
        if not clearly_independent(equations, formula.pinv.threshold(A.dtype)):
            return None
        found = accelerations(jax.tree.map(lambda x: np.asarray(x)[None], equations), np.ones((1, m), bool))
    except np.linalg.LinAlgError:
        return None
    a, force, multipliers = (x[0] for x in found)
    gained = a - np.linalg.solve(M, Q + np.asarray(equations.c))
    told = np.int32(m), A @ a - b, gained @ M @ gained, np.True_
    return Acceleration(*map(jnp.asarray, (a, force, multipliers, *told)))


@compile_small
def _solve(formula: AbstractFormula, equations: Equations) -> Acceleration:
    return formula.solve(equations)


def solve_equations(formula: AbstractFormula, equations: Equations) -> Acceleration:
    """What a formula says of equations that have values; the formula alone is compiled."""
    return _solve(formula, jax.tree.map(as_jax, equations))


def acceleration_at(formula: AbstractFormula, system: AbstractSystem, t: Any, q: Any, v: Any) -> Acceleration:
    """What `formula.acceleration` returns; at a known state XLA compiles the linear algebra at most, and that only
    where rows may depend on each other, or for other formulas than the default.

    **Raises:** `InputError` as that does.
    """
    if is_traced((formula, system, t, q, v)):
        return formula.acceleration(system, t, q, v)
    equations = equations_at(system, NoStabilizer(), t, q, v)
    found = _independent(formula, equations) or solve_equations(formula, equations)
    if not np.all(np.isfinite(found.a)):
        raise InputError(why_not_finite(formula, equations, t, q, v))
    if misses_rows(found):
        require_rows_kept(formula, equations, found)
    return found
