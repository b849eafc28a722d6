"""Functions of arrays, and of a system and of arrays, as scalar code."""

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import jax
import numpy as np
from jaxtyping import Array

from .._misc._closures import require_seen
from .._system._stabilize import AbstractStabilizer, NoStabilizer
from .._system._system import AbstractSystem
from ._availability import machine_code_is_wanted
from ._code import builder_of, short_enough
from ._expression_pytree import ExpressionPytree
from ._parameters import (
    InputMaker,
    Leaf,
    Structure,
    convert_reals,
    leaf,
    numbers,
    read_by,
    rebuild_system,
    split,
)
from ._refusals import cached_or_untranslatable
from ._scalars import TranslationError
from ._structured._arrays import to_scalars
from ._structured._trace import Interpreter


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
    code = write_system_function(function, structure, tuple(map(leaf, leaves)), shapes)
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


def array_function(function: Callable[..., Any], *arrays: Any) -> ExpressionPytree:
    """The scalar code of function(*arrays), made once.

    **Raises:** `TranslationError`.
    """
    written = _write_array_function(function, tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays))
    short_enough(written.program)
    return written


@cached_or_untranslatable
def _write_array_function(function: Callable[..., Any], shapes: tuple[Any, ...]) -> ExpressionPytree:
    closed, out = jax.make_jaxpr(function, return_shape=True)(*shapes)
    return _interpret_jaxpr(closed, out, InputMaker(builder_of(shapes[0].dtype)), [], shapes)


def _interpret_jaxpr(
    closed: Any, out: Any, inputs: InputMaker, parameters: list[Any], shapes: Sequence[Any]
) -> ExpressionPytree:
    """The code of a jaxpr that takes parameters, which are inputs already, and arrays."""
    counts = [inputs.count, *(math.prod(x.shape) for x in shapes)]
    arguments = parameters + [inputs(x.shape) for x in shapes]
    build = inputs.build
    interpreter = Interpreter(build.nodes, written_out=True, parameters=counts[0])
    found = interpreter.run(closed.jaxpr, closed.consts, arguments)
    like = jax.ShapeDtypeStruct((), build.type)
    of_type = lambda x, v: convert_reals(build, x, np.dtype(v.dtype).name, like)
    numbers = [of_type(to_scalars(interpreter.b, x), v) for x, v in zip(found, closed.out_avals, strict=True)]
    return ExpressionPytree(build, jax.tree.unflatten(jax.tree.structure(out), numbers), counts)
