"""Functions of parameters as JAX traces them: their arrays as inputs of scalar programs, and what has no scalar code."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core
from jaxtyping import Array, Float

from .._misc._closures import HashableByKey, find_instances, require_seen
from .._misc._garbage import undisturbed
from .._misc._types import is_traced
from ._scalars import Builder, TranslationError
from ._structured._arrays import to_scalars
from ._structured._compound import close_in_parts, divide, unite
from ._structured._moves import fill_array
from ._structured._trace import Interpreter

# --- Parameters as inputs of scalar programs
#
# They are inputs, so that runs with other values share the code. But an array with a zero in it is taken for a
# direction or a selection: its entries 0, 1 and -1 are folded into the code, for they are what makes it short. Arrays
# that a program does not read are no inputs of it: what the force alone takes, the projection need not carry along.


T = TypeVar("T")


class Leaf(NamedTuple):
    """A parameter array: its shape and type, in order which entries are inputs and what the others are."""

    aval: jax.ShapeDtypeStruct
    varying: tuple[bool, ...]
    known: tuple[Any, ...]


class Structure(NamedTuple):
    """All of a pytree but the numbers in its arrays.

    - `arrays`, `types`: the arrays among its leaves, and what they are of.
    - `static`, `static_tree`: all else.
    """

    arrays: Any
    types: tuple[Any, ...]
    static: tuple[Any, ...]
    static_tree: Any


def leaf(x: Array, dtype: Any) -> Leaf:
    """A parameter of a program that computes in a type: real numbers are of this one, whatever they were."""
    real = jnp.issubdtype(x.dtype, jnp.floating)
    aval = jax.ShapeDtypeStruct(x.shape, dtype if real else x.dtype, weak_type=jax.typeof(x).weak_type)
    if is_traced(x):
        return Leaf(aval, *_folded.get(id(x), ((True,) * x.size, ())))
    values = np.asarray(x).reshape(-1)
    if not real:
        varying = np.zeros(x.size, bool)
    elif x.ndim and not values.all():
        varying = (values != 0) & (np.abs(values) != 1)
    else:
        varying = np.ones(x.size, bool)
    return Leaf(aval, tuple(varying.tolist()), tuple(values[~varying].tolist()))


_folded: dict[int, tuple[tuple[bool, ...], tuple[Any, ...]]] = {}  # by arrays that are being traced


@final
class JitByZeros(Generic[T]):
    """`equinox.filter_jit`, compiled for the entries of arrays that scalar code folds in, as they are in each call.

    Within `jit` the numbers of a system are not known, and so not which of them are zero: code would be twice as long.
    What another transformation traces, as of a derivative by these arrays, is taken as it comes.

    **Arguments:**

    - `fn`: a function of pytrees.
    - `kinds`: classes of what in them has such arrays.
    """

    def __init__(self, fn: Callable[..., T], kinds: tuple[type, ...]):
        self._kinds = kinds

        @eqx.filter_jit
        def compiled(folded: HashableByKey[Any], *given: Any) -> T:
            all_of = zip(map(id, self._arrays_of(given)), folded.value, strict=True)
            # Functions may hold arrays that are known already, of a program around this one.
            mine = {key: entries for key, entries in all_of if key not in _folded}
            _folded.update(mine)
            try:
                return fn(*given)
            finally:
                for key in mine:
                    del _folded[key]

        self._compiled = compiled

    def _arrays_of(self, given: Any) -> list[Any]:
        leaves = jax.tree.leaves(find_instances(given, self._kinds))
        return [x for x in leaves if isinstance(x, jax.Array | np.ndarray)]

    def folded(self, *given: Any) -> HashableByKey[Any]:
        """What is folded in of these arguments, for many calls with them."""
        found = tuple(leaf(x, x.dtype)[1:] for x in self._arrays_of(given))
        return HashableByKey(found, found)

    def __call__(self, *given: Any, folded: HashableByKey[Any] | None = None) -> T:
        return self._compiled(self.folded(*given) if folded is None else folded, *given)


def split(parameters: Any) -> tuple[list[Array], Structure]:
    """The arrays of a pytree, of a complex one its parts, and the rest."""
    arrays, static = eqx.partition(parameters, lambda x: isinstance(x, jax.Array | np.ndarray))
    leaves, tree = jax.tree.flatten(arrays)
    rest, rest_tree = jax.tree.flatten(static)
    parts = [part for x in leaves for part in divide(x)]
    return parts, Structure(tree, tuple(x.dtype for x in leaves), tuple(rest), rest_tree)


def rebuild(structure: Structure, leaves: Sequence[Array]) -> Any:
    """The pytree of a structure and arrays."""
    static = jax.tree.unflatten(structure.static_tree, structure.static)
    return eqx.combine(jax.tree.unflatten(structure.arrays, unite(structure.types, leaves)), static)


class InputMaker:
    """Makes the inputs of a program, in order."""

    def __init__(self, build: Builder):
        self.build, self.count = build, 0

    def __call__(
        self, shape: tuple[int, ...], varying: Sequence[bool] = (), known: Sequence[Any] = ()
    ) -> np.ndarray:
        """An array of inputs, and of numbers that are known where it does not vary."""
        varying = varying or (True,) * math.prod(shape)
        numbers, folded = np.empty(len(varying), object), iter(known)
        for i, varies in enumerate(varying):
            numbers[i] = self.build.input() if varies else next(folded)
            self.count += varies
        return numbers.reshape(shape)

    def of(self, leaves: Sequence[Leaf]) -> list[np.ndarray]:
        """Those of all parameters. Whole numbers and truths come as real numbers, among the others."""
        return [self._of(x) for x in leaves]

    def _of(self, x: Leaf) -> np.ndarray:
        if not (jnp.issubdtype(x.aval.dtype, jnp.integer) or x.aval.dtype == bool):
            return self(x.aval.shape, x.varying, x.known)
        known, b, t = iter(x.known), self.build.nodes, np.dtype(x.aval.dtype).name

        of_type = lambda y: b.convert(y, self.build.type, t)

        def whole() -> Any:
            pieces = map(of_type, self((len(shifts),)))
            moved = [b.apply("shift_left", t, y, k) if k else y for y, k in zip(pieces, shifts, strict=True)]
            return functools.reduce(lambda x, y: b.either(x, y, t), moved)

        shifts = _find_shifts(x.aval.dtype, self.build.type)
        return fill_array(x.aval.shape, [whole() if varies else of_type(next(known)) for varies in x.varying])


def _find_shifts(dtype: Any, into: Any) -> range:
    """Which bits the pieces begin at that a whole number of a type is cut into, each a real number of another: one where
    that has room for all bits."""
    bits = 1 if jnp.issubdtype(dtype, jnp.bool_) else jnp.iinfo(dtype).bits
    return range(0, bits, bits if bits <= jnp.finfo(into).nmant + 1 else 16)


def convert_reals(build: Builder, x: np.ndarray, t: str, aval: Any) -> np.ndarray:
    """Real numbers of a type as those of an array's."""
    to = np.dtype(jax.dtypes.canonicalize_dtype(aval.dtype)).name
    if to == t or not jnp.issubdtype(aval.dtype, jnp.floating):
        return x
    return np.asarray(np.frompyfunc(lambda y: build.nodes.convert(y, t, to), 1, 1)(x), object)


def read_by(leaves: Sequence[Leaf], *traced: core.ClosedJaxpr) -> tuple[Leaf, ...]:
    """The same parameters, without inputs for arrays that no program reads."""
    read = set[int]()
    for x in traced:
        operands = {id(v) for e in x.jaxpr.eqns for v in e.invars} | set(map(id, x.jaxpr.outvars))
        read |= {i for i, v in enumerate(x.jaxpr.invars[: len(leaves)]) if id(v) in operands}
    without = lambda x: Leaf(x.aval, (False,) * len(x.varying), (0.0,) * len(x.varying))
    return tuple(x if i in read else without(x) for i, x in enumerate(leaves))


def numbers(leaves: Sequence[Leaf], parameters: Any, dtype: Any) -> Float[Array, " k"]:
    """The parameters that are inputs, as a vector."""
    arrays, _ = split(parameters)
    xp = jnp if is_traced(arrays) else np
    found = [xp.zeros(0, dtype)]
    for x, it in zip(arrays, leaves, strict=True):
        places = np.flatnonzero(it.varying)
        if not places.size:
            continue
        flat = xp.reshape(xp.asarray(x), -1)
        flat = flat if places.size == x.size else flat[places]
        if (
            not jnp.issubdtype(flat.dtype, jnp.floating)
            and len(shifts := _find_shifts(flat.dtype, dtype)) > 1
        ):
            flat = xp.stack([(flat >> k) & 0xFFFF for k in shifts], -1).reshape(-1)
        found.append(flat.astype(dtype))
    return xp.concatenate(found)  # pyright: ignore


# --- What has no scalar code is refused once: to find out may take as long as to write it

_KEPT = 64  # results, and refusals: those of the systems a session goes back and forth between

_forget: list[Callable[[], None]] = []


def forget() -> None:
    """Drops all that is kept, as `jax.clear_caches` does with what JAX keeps: memory, where systems come by hundreds."""
    for clear in _forget:
        clear()


class _Refusal(NamedTuple):
    """Why something has no scalar code, and at which line of the user's."""

    reason: str
    at: str


def cached_or_untranslatable(make: Callable[..., T]) -> Callable[..., T]:
    """The same function, which keeps what it made, by its arguments, and why it could not."""

    @functools.lru_cache(maxsize=_KEPT)
    def outcome(*args: Any) -> T | _Refusal:
        try:
            return undisturbed(make)(*args)
        except TranslationError as reason:
            return _Refusal(str(reason), reason.at)  # without the frames it was raised in, and all they hold

    _forget.append(outcome.cache_clear)

    @functools.wraps(make)
    def kept(*args: Any) -> T:
        try:
            hash(args)
        except TypeError as reason:
            raise TranslationError(f"what it is made of cannot be kept: {reason}") from None
        found = outcome(*args)
        if isinstance(found, _Refusal):
            raise TranslationError(*found)
        return found

    return kept


# --- A function as JAX traced it


class TracedFunction(NamedTuple):
    """A function as JAX traced it.

    - `program`: its operations.
    - `outputs`: the pytree it returns, of the program's variables.
    - `shapes`: the same, of shapes and types.
    """

    program: core.ClosedJaxpr
    outputs: Any
    shapes: Any

    def part(self, of: Callable[[Any], Any]) -> "TracedFunction":
        """The function that returns a part only: what that does not need is left out where it is interpreted."""
        return self._replace(outputs=of(self.outputs), shapes=of(self.shapes))

    def by(self, interpreter: Interpreter, *inputs: Any) -> Any:
        """The pytree of expressions, each array of its own type."""
        outputs, tree = jax.tree.flatten(self.outputs)
        jaxpr, consts = self.program.jaxpr, self.program.consts
        found = interpreter.run(jaxpr, consts, jax.tree.leaves(inputs), outputs)
        return jax.tree.unflatten(tree, [to_scalars(interpreter.b, x) for x in found])

    def numbers_by(self, build: Builder, interpreter: Interpreter, *inputs: Any) -> Any:
        """The same, of real numbers of the builder's type."""
        found, like = self.by(interpreter, *inputs), jax.ShapeDtypeStruct((), build.type)
        real = lambda aval: jnp.issubdtype(aval.dtype, jnp.floating)
        of_type = lambda x, aval: (
            convert_reals(build, x, np.dtype(aval.dtype).name, like) if real(aval) else x
        )
        return jax.tree.map(of_type, found, self.shapes)


def trace(function: Callable[..., Any], *shapes: Any) -> TracedFunction:
    """A function as JAX traces it."""
    program, found = jax.make_jaxpr(function, return_shape=True)(*shapes)
    program = close_in_parts(program)
    require_seen(program.consts)
    return TracedFunction(
        program, jax.tree.unflatten(jax.tree.structure(found), program.jaxpr.outvars), found
    )
