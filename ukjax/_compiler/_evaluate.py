"""Functions of parameters and arrays as scalar code: within `jit`, and at once where all have values."""

import contextlib
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core
from jaxtyping import Array

from .._misc._closures import require_seen
from .._misc._errors import Untranslatable
from .._misc._types import as_jax, is_traced, is_within_jit
from ._expressions import ExpressionPytree, builder_of, short_enough
from ._foreign import machine_code_is_wanted
from ._scalars import TranslationError
from ._structured._arrays import MATERIALIZED, to_scalars
from ._structured._jaxprs import loops
from ._structured._live_nodes import LiveNodes
from ._structured._nodes import is_number
from ._structured._program import program_of
from ._structured._scalarize import scalarize
from ._structured._trace import Interpreter
from ._tracing import (
    InputMaker,
    Leaf,
    Structure,
    cached_or_untranslatable,
    convert_reals,
    leaf,
    numbers,
    read_by,
    rebuild,
    split,
)

M = TypeVar("M", bound=Callable[..., Any])


@final
class FunctionCode:
    """A function of parameters of one structure, and of arrays.

    - `written`: what it returns, a pytree of real numbers; inputs are the parameters and the arrays.
    """

    def __init__(self, written: ExpressionPytree, leaves: Sequence[Leaf]):
        self.written, self._leaves = written, leaves

    def numbers(self, parameters: Any) -> Array:
        """The parameters it takes, as a vector."""
        return numbers(self._leaves, parameters, self.written.program.dtype)

    def __call__(self, parameters: Any, *arrays: Array) -> Any:
        """What the function returns."""
        return self.written(self.numbers(parameters), *arrays)


def translate_function(function: Callable[..., Any], parameters: Any, *arrays: Any) -> FunctionCode:
    """The scalar code of function(parameters, *arrays), made once for each structure of the parameters.

    **Raises:** `TranslationError`.
    """
    leaves, structure = split(parameters)
    shapes = tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays)
    code = _write_function(function, structure, tuple(leaf(x, shapes[0].dtype) for x in leaves), shapes)
    short_enough(code.written.program)
    return code


@cached_or_untranslatable
def _trace_function(
    function: Callable[..., Any], structure: Structure, avals: tuple[Any, ...], shapes: tuple[Any, ...]
) -> tuple[core.ClosedJaxpr, Any]:
    """The jaxpr of a function of the arrays among its parameters, and of others, and the structure of what it returns."""
    of_leaves = lambda leaves, *arrays: function(rebuild(structure, leaves), *arrays)
    closed, out = jax.make_jaxpr(of_leaves, return_shape=True)(list(avals), *shapes)
    require_seen(closed.consts)
    return closed, jax.tree.structure(out)


@cached_or_untranslatable
def _write_function(
    function: Callable[..., Any], structure: Structure, leaves: tuple[Leaf, ...], shapes: tuple[Any, ...]
) -> FunctionCode:
    """As `translate_function`, however long, for evaluation by NumPy."""
    closed, out = _trace_function(function, structure, tuple(x.aval for x in leaves), shapes)
    leaves, inputs = read_by(leaves, closed), InputMaker(builder_of(shapes[0].dtype))
    if sum(map(sum, (x.varying for x in leaves))) > MATERIALIZED and any(map(loops, closed.jaxpr.eqns)):
        raise TranslationError("it loops, and parameters, here scalars, are too many for that")
    return FunctionCode(_interpret_jaxpr(closed, out, inputs, inputs.of(leaves), shapes), leaves)


def evaluate_by_code(function: Callable[..., Any], parameters: Any, *arrays: Any) -> Any:
    """function(parameters, *arrays) within `jit`: by its machine code where there is any, so that XLA compiles one call
    where it would compile a mechanism, for seconds.
    """
    if machine_code_is_wanted():
        with contextlib.suppress(TranslationError):
            return translate_function(function, parameters, *arrays)(parameters, *arrays)
    return function(parameters, *arrays)


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
    out = jax.tree.structure(out)
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
    return ExpressionPytree(build, jax.tree.unflatten(out, numbers), counts)


# --- Functions at states that have values, from their scalar code on NumPy arrays: XLA compiles nothing
#
# Compilation by XLA takes seconds for what is asked of a mechanism once or a few times: its rows, its equations of
# motion, its reactions. To trace these and to write them out as scalars takes a tenth of that.


@eqx.filter_jit
def _evaluate_as_program(function: Callable[..., Any], parameters: Any, states: tuple[Any, ...]) -> Any:
    """By a program with loops, or by XLA."""
    arrays, structure = split(parameters)
    one = lambda *state: function(parameters, *state)
    with contextlib.suppress(TranslationError):  # which says that what was traced cannot be kept
        shapes = tuple(jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in states)
        avals = tuple(leaf(x, shapes[0].dtype).aval for x in arrays)
        closed, out = _trace_function(function, structure, avals, shapes)
        given = [x.astype(like.dtype) for x, like in zip(arrays, avals, strict=True)]
        one = lambda *state: jax.tree.unflatten(out, core.jaxpr_as_fun(closed)(*given, *state))
    return jax.vmap(scalarize(one, fallback="xla"))(*states)


@final
class AtStates:
    """A function of some parameters, at one batch of states after the other."""

    def __init__(self, function: Callable[..., Any], parameters: Any):
        arrays, structure = split(parameters)
        leaves = lambda dtype: tuple(leaf(x, dtype) for x in arrays)
        self._function, self._parameters = function, parameters

        @functools.cache
        def code(*state: Any) -> FunctionCode | None:
            with contextlib.suppress(TranslationError):
                return _write_function(function, structure, leaves(state[0].dtype), state)

        self._code = code
        self._numbers = functools.cache(lambda code: np.asarray(code.numbers(parameters)))

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


def evaluate_known(method: M) -> M:
    """A method of (t, q, ...) of a module as one program: by its scalar code where it and all arguments have values, and
    compiled where `vmap` or a derivative outside of `jit` would run it operation by operation."""
    compiled = compile_small(method)

    @functools.wraps(method)
    def evaluated(self: Any, t: Any, q: Any, *rest: Any) -> Any:
        if is_within_jit(self, t, q, rest):
            return method(self, t, q, *rest)
        if is_traced(self, t, q, rest):
            q = jnp.asarray(q)
            return compiled(self, jnp.asarray(t, q.dtype), q, *rest)
        q = np.asarray(q)
        return jax.tree.map(as_jax, evaluate_at_state(method, self, np.asarray(t, q.dtype), q, *rest))

    return evaluated  # pyright: ignore[reportReturnType]


# --- Which numbers a function depends on


def find_dependence(function: Callable[..., Any], *shapes: Any) -> tuple[frozenset[int], ...] | None:
    """Of each argument, an array, the entries that what a function returns may depend on, whatever their values and those
    that it closes over are; None where it cannot be followed."""
    closed = jax.make_jaxpr(function)(*shapes)
    unknown = lambda x: is_traced(x) or jnp.issubdtype(jnp.result_type(x), jnp.floating)
    try:
        program, _, _ = program_of(closed, unknown)
        nodes = LiveNodes(program.flat).nodes
    except Untranslatable:
        return None
    params, found = iter(program.params), []
    for shape in shapes:
        own = next(params) if shape.size else None
        read = [x for x in nodes if own in x.args]
        known = all(x.op == "load" and is_number(x.args[1]) for x in read)
        found.append(frozenset(int(x.args[1]) for x in read) if known else frozenset(range(shape.size)))
    return tuple(found)
