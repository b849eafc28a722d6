"""The door to programs of scalars: a function of small arrays, compiled as one program, loops and all."""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, Generic, Literal, NamedTuple, ParamSpec, TypeVar, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ..._misc._arguments import one_of
from ..._misc._errors import InputError, Untranslatable
from ..._misc._garbage import undisturbed
from ._compound import close_in_parts, divide, is_compound, unite
from ._primitive import reshape_members, scalars_p
from ._program import Program, program_of

P = ParamSpec("P")
R = TypeVar("R")

_LARGE = 1000  # entries of an array closed over above which it is read from memory, not written into the code


class _TracedProgram(NamedTuple):
    """A function traced for arguments of some shapes.

    - `program`: of its arrays, and of `consts`.
    - `consts`: what it closes over and is not written into the program.
    - `call`: its outputs, from the arrays given.
    - `outs`, `tree`: the shapes of the program's results, and the structure of what the function returns.
    """

    program: Program
    consts: tuple[Any, ...]
    call: Callable[..., Any]
    outs: Sequence[Any]
    tree: Any


@final
class ScalarFunction(Generic[P, R]):
    """A function as one program of scalars. See `scalarize`, which makes it."""

    def __init__(self, fn: Callable[P, R], fallback: str | None):
        functools.update_wrapper(self, fn)
        self._fn, self._fallback = fn, fallback
        self._known: dict[Any, Any] = {}

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """What the function returns.

        **Raises:** `Untranslatable` where the function cannot be translated, unless a `fallback` was asked for.
        """
        arrays, traced = self._trace_for(args, kwargs)
        return traced.call(*arrays, *traced.consts) if isinstance(traced, _TracedProgram) else traced(*arrays)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def as_text(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """The program for such arguments, one operation a line: loops and branches are indented.

        **Arguments:** those of the function.

        **Raises:** `Untranslatable`.
        """
        return self._translate(args, kwargs)[1].program.as_text()

    def operations(self, *args: P.args, **kwargs: P.kwargs) -> dict[str, int]:
        """How many operations of each kind the program is written in, those of a loop once.

        **Arguments:** those of the function.

        **Raises:** `Untranslatable`.
        """
        return self._translate(args, kwargs)[1].program.operations()

    def on_host(self, fixed: Any, *args: Any) -> Callable[..., Any]:
        """The function on NumPy's arrays, of all arguments but the first, by machine code that Python itself calls:
        sooner than by JAX, which also compiles how it is called.

        **Arguments:**

        - `fixed`: the first argument.
        - `args`: others with the shapes and types of those that it is to be called with.

        **Raises:** `Untranslatable`.
        """
        arrays, traced = self._translate((fixed, *args), {})
        if len(traced.outs) != traced.tree.num_leaves or any(is_compound(jax.typeof(x)) for x in arrays):
            raise Untranslatable("complex numbers and random keys are given and returned within JAX only")
        held = [np.ascontiguousarray(x, jax.typeof(x).dtype) for x in (*arrays, *traced.consts)]
        given = slice(len(jax.tree.leaves(fixed)), len(arrays))
        types, full = [x.dtype for x in held[given]], [i for i, x in enumerate(held) if x.size]

        def call(*args: Any) -> Any:
            now = [np.ascontiguousarray(x, t) for x, t in zip(jax.tree.leaves(args), types, strict=True)]
            places[given] = [x.ctypes.data for x in now]
            found = iter(traced.program.on_host([places[i] for i in full]))
            made = [
                next(found).reshape(x.shape) if x.size else np.zeros(x.shape, x.dtype) for x in traced.outs
            ]
            return jax.tree.unflatten(traced.tree, made)

        places = [x.ctypes.data for x in held]  # to ask for them takes as long as a short program
        return call

    def _translate(self, args: Any, kwargs: Any) -> tuple[list[Any], _TracedProgram]:
        arrays, traced = self._trace_for(args, kwargs)
        if not isinstance(traced, _TracedProgram):
            raise Untranslatable("the function is compiled by XLA, for it could not be translated")
        return arrays, traced

    def _trace_for(self, args: Any, kwargs: Any) -> tuple[list[Any], _TracedProgram | Callable[..., Any]]:
        """The arrays among the arguments, and what is made for such, or compiled by XLA."""
        leaves, tree = jax.tree.flatten((args, kwargs))
        is_array = [
            isinstance(x, jax.Array | np.ndarray | np.generic | float | int | complex) for x in leaves
        ]
        arrays = [x for x, it in zip(leaves, is_array, strict=True) if it]
        static = tuple(None if it else x for x, it in zip(leaves, is_array, strict=True))
        shapes = [jax.typeof(x) for x in arrays]
        key = (
            tree,
            static,
            tuple((x.shape, x.dtype, x.weak_type) for x in shapes),
            jax.config.read("jax_enable_x64"),
        )
        try:
            known = self._known.get(key, self)
        except TypeError:
            raise InputError(
                "arguments of a scalarized function are arrays, numbers, or values that can be compared and hashed; "
                f"got {[type(x).__name__ for x, it in zip(leaves, is_array, strict=True) if not it]}."
            ) from None
        if known is not self:
            return arrays, known
        function = _of_arrays(self._fn, tree, static, is_array)
        try:
            traced = _trace(function, shapes)
        except Untranslatable as error:
            if self._fallback is None:
                name = getattr(self._fn, "__name__", "a function")
                raise Untranslatable(f"{name}: {error}", error.at) from None
            traced = jax.jit(function)
        # What closes over values that another transformation traces is another function at each call.
        if not isinstance(traced, _TracedProgram) or not any(isinstance(x, Tracer) for x in traced.consts):
            self._known[key] = traced
        return arrays, traced


def _of_arrays(
    fn: Callable[..., Any], tree: Any, static: tuple[Any, ...], is_array: list[bool]
) -> Callable[..., Any]:
    """A function of the arrays among its arguments."""

    def function(*arrays: Any) -> Any:
        given = iter(arrays)
        leaves = [next(given) if it else x for x, it in zip(static, is_array, strict=True)]
        args, kwargs = jax.tree.unflatten(tree, leaves)
        return fn(*args, **kwargs)

    return function


@undisturbed
def _trace(function: Callable[..., Any], shapes: list[Any]) -> _TracedProgram:
    """A function of arrays traced for some shapes."""
    out_tree: list[Any] = []

    def flat(*arrays: Any) -> list[Any]:
        outputs, structure = jax.tree.flatten(function(*arrays))
        out_tree.append(structure)
        return outputs

    structs = [jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=x.weak_type) for x in shapes]
    closed = jax.make_jaxpr(flat)(*structs)
    returned, closed = closed.out_avals, close_in_parts(closed)
    program, consts, outs = program_of(closed, lambda x: isinstance(x, Tracer) or np.size(x) > _LARGE)
    structure = out_tree[0]

    @jax.jit
    def call(*arrays: Any) -> Any:
        parts = itertools.chain(*map(divide, map(jnp.asarray, arrays)))
        whole = [reshape_members(x, (x.size,)) for x in parts]
        outputs = iter(
            scalars_p.bind(*[x for x in whole if x.size], program=program) if program.results else ()
        )
        made = [
            reshape_members(next(outputs), x.shape) if x.size else jnp.zeros(x.shape, x.dtype) for x in outs
        ]
        return jax.tree.unflatten(structure, unite([x.dtype for x in returned], made))

    return _TracedProgram(program, tuple(consts), call, outs, structure)


def scalarize(fn: Callable[P, R], *, fallback: Literal["xla"] | None = None) -> ScalarFunction[P, R]:
    r"""`fn` as one program of scalars, compiled once; it behaves like `jax.jit(fn)`.

    Every small array becomes its numbers, structural zeros vanish, `lax.while_loop`, `scan` and `cond` stay loops and
    branches, and the whole is one function of machine code on a CPU. XLA runs such a function operation by operation, at
    some microseconds each; here an operation costs what it costs the processor. Whole integrations by Diffrax, Newton
    iterations and filters of small matrices run 1.4 to 49 times as fast as by `jax.jit` on a CPU, and compile sooner
    (docs/scalarize.md). Large
    matrix products, convolutions and whatever fills vectors by itself belong to `jax.jit`.

    `vmap`, `jvp`, `vjp`, `grad` and `hessian` of the result work, also through `while_loop`, which JAX itself refuses in
    reverse mode: derivatives are programs again. In a batch the members are side by side in vector registers, and each
    ends its loops by itself.

    **Arguments:**

    - `fn`: a function of arrays, numbers and pytrees of them. Other arguments are static: they are compared and hashed.
    - `fallback`: `"xla"` compiles what cannot be translated by `jax.jit`; by default that is an error.

    **Returns:** a function like `fn`. `.as_text(*args)` shows the program.

    **Raises:** when called, `Untranslatable`, which names the operation that has no scalar code. A condition that
    `equinox.error_if` checks makes results NaN there, as Equinox does with `EQX_ON_ERROR=nan`.
    """
    if not callable(fn):
        raise InputError(f"scalarize takes a function, got {type(fn).__name__}.")
    if fallback is not None:
        one_of("fallback", fallback, ("xla",))
    return ScalarFunction(fn, fallback)


@final
class LeftToXLA(eqx.Module):
    """Why a run is left to XLA.

    - `reason`: in words; none for one that is not.
    """

    reason: str = eqx.field(static=True, default="")

    def said(self, computed_by: str) -> str:
        """What a run is computed by, and why it is left to XLA, if it is."""
        return f"{computed_by}; steps by XLA, as {self.reason}" if self.reason else computed_by


def explain_fallback(error: Untranslatable) -> LeftToXLA:
    """What is said of an error, without the name of a function of ours."""
    return LeftToXLA(str(error).partition(": ")[2].partition("\n")[0])
