"""Functions that take traced values from around them, opened: the values become arrays of a pytree.

What JAX traces, a parameter under `jax.grad` or in a sweep, is known to it where it is an array of a pytree. In
`lambda t, q: q[0] - L` it hides in a cell of the function.
"""

import dataclasses
import functools
import inspect
import types
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, final

import equinox as eqx
import jax
import numpy as np
from jax.core import Tracer
from jax.extend.core import jaxpr_as_fun

from ._errors import InputError
from ._types import T, is_traced, is_tracing

# --- What is compared by a key, so that what was compiled for one serves its equals


@final
class HashableByKey(Generic[T]):
    """Something that equals all of the same key, which is hashed once; a function can be called as it is.

    **Arguments:**

    - `value`: the thing, which lives as long.
    - `key`: what tells it from others.
    """

    def __init__(self, value: T, key: Hashable):
        self.value, self._key, self._hash = value, key, hash(key)

    def __call__(self: Any, *arguments: Any, **keywords: Any) -> Any:
        return self.value(*arguments, **keywords)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, HashableByKey):
            return self is other
        return self._hash == other._hash and self._key == other._key


def equal_to_itself(cls: type[T]) -> type[T]:
    """A class of modules that are called as functions: `jax.jit` asks for their hash, and arrays have none."""
    cls.__hash__, cls.__eq__ = object.__hash__, object.__eq__
    return cls


def key_by_identity(x: T) -> HashableByKey[T]:
    """Something that is equal to itself alone."""
    return HashableByKey(x, id(x))


Static = HashableByKey[Any]
"""What something is compiled for: pytrees without arrays."""


def partition_static(parts: Any) -> tuple[Static, Any]:
    """Pytrees as what something is compiled for, and the arrays it is compiled of."""
    arrays, rest = eqx.partition(parts, eqx.is_array)
    leaves, tree = jax.tree.flatten(rest)
    return HashableByKey(rest, (tuple(leaves), tree)), arrays


def combine_static(static: Static, arrays: Any) -> Any:
    """The pytrees that were parted."""
    return eqx.combine(arrays, static.value)


# --- Functions that are called once, and evaluated and differentiated as what JAX traced then


def trace_once(fn: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
    """The function, from its operations: to trace it again, as each derivative does, takes several times as long."""
    closed, shapes = jax.make_jaxpr(fn, return_shape=True)(*arguments)
    run, structure = jaxpr_as_fun(closed), jax.tree.structure(shapes)
    return lambda *arguments: jax.tree.unflatten(structure, run(*jax.tree.leaves(arguments)))


# --- Functions that take traced values from around them


def _as_hashable(x: Any) -> HashableByKey[Any]:
    """Anything that is not traced: numbers and arrays equal by value, so that equal closures share what is compiled."""
    if isinstance(x, int | float | complex | str):
        return HashableByKey(x, (type(x), repr(x)))
    if isinstance(x, jax.Array | np.ndarray) and x.dtype != object:
        return HashableByKey(x, (type(x), x.shape, str(x.dtype), np.asarray(x).tobytes()))
    return key_by_identity(x)


class _Function(NamedTuple):
    """What a Python function is but for its contents: the values in its cells, and its defaults."""

    code: types.CodeType
    names: HashableByKey[Any]
    name: str

    def __call__(self, cells: Sequence[Any], defaults: Any, keywords: Any) -> Callable:
        made = types.FunctionType(
            self.code, self.names.value, self.name, defaults, tuple(map(types.CellType, cells))
        )
        made.__kwdefaults__ = keywords
        return made


class _Record(NamedTuple):
    """What an object that is no pytree is but for its attributes."""

    of: Any  # its class

    def __call__(self, attributes: dict[str, Any]) -> Any:
        made = self.of.__new__(self.of)
        made.__dict__.update(attributes)
        return made


def _partial(function: Callable, args: Any, keywords: Any) -> Callable:
    return functools.partial(function, *args, **keywords)


def _itself(x: T) -> T:
    return x


def _contents(x: Any) -> tuple[Callable[..., Any], tuple[Any, ...]] | None:
    """What a function holds, and what makes it anew of that; None for what cannot be looked into."""
    if isinstance(x, types.FunctionType):
        try:
            cells = [cell.cell_contents for cell in x.__closure__ or ()]
        except ValueError:  # a cell that is still empty
            return None
        made = _Function(x.__code__, _as_hashable(x.__globals__), x.__name__)
        return made, (cells, x.__defaults__, x.__kwdefaults__)
    if isinstance(x, functools.partial):
        return _partial, (x.func, x.args, x.keywords)
    if _is_method(x):
        return types.MethodType, (x.__func__, x.__self__)
    wrapped = getattr(x, "__wrapped__", None)
    if wrapped is not None and hasattr(x, "lower"):  # by `jax.jit`
        return _itself, (wrapped,)
    record = dataclasses.is_dataclass(type(x)) or isinstance(x, types.SimpleNamespace)
    return (_Record(type(x)), (dict(vars(x)),)) if record and hasattr(x, "__dict__") else None


def _is_method(x: Any) -> bool:
    return isinstance(getattr(x, "__func__", None), types.FunctionType) and hasattr(x, "__self__")


def _holds_functions(x: Any) -> bool:
    """Whether something is a function to JAX rather than the pytree it may be."""
    return isinstance(x, functools.partial) or _is_method(x)


class _OpenTree(NamedTuple):
    """A pytree, of which traced arrays are apart."""

    structure: Any  # of the pytree
    # `leaves`: None for a traced array, what is kept, or how a function is made and its contents.
    leaves: tuple[Any, ...]

    def fill(self, arrays: Iterator[Any]) -> Any:
        """The pytree with these arrays."""
        leaves = []
        for x in self.leaves:
            if isinstance(x, tuple):
                made, contents = x
                leaves.append(made(*contents.fill(arrays)))
            else:
                leaves.append(next(arrays) if x is None else x.value)
        return jax.tree.unflatten(self.structure, leaves)


def _extract_tracers(x: Any, within: tuple[int, ...] = ()) -> tuple[_OpenTree, list[Tracer]]:
    """A pytree without its traced arrays, those in its functions included, and these arrays."""
    try:
        leaves, structure = jax.tree.flatten(x, is_leaf=_holds_functions)
    except (TypeError, ValueError):  # keys that cannot be sorted
        leaves, structure = [x], jax.tree.structure(0)
    kept, arrays = [], []
    for leaf in leaves:
        contents = None if id(leaf) in within else _contents(leaf)
        if isinstance(leaf, Tracer):
            kept.append(None)
            arrays.append(leaf)
            continue
        if contents is not None:
            inner, own = _extract_tracers(contents[1], (*within, id(leaf)))
            # A function within one that is made anew is made anew as well, so that it is equal to its likes.
            if own or (within and isinstance(leaf, types.FunctionType)):
                kept.append((contents[0], inner))
                arrays += own
                continue
        kept.append(_as_hashable(leaf))
    return _OpenTree(structure, tuple(kept)), arrays


@final
class HoistedFunction(eqx.Module):
    """A function whose traced values are arrays of a pytree."""

    held: list[Any]  # the values
    rest: _OpenTree = eqx.field(static=True)  # all else

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.rest.fill(iter(self.held))(*args, **kwargs)


_CLOSING = weakref.WeakKeyDictionary[type, tuple[str, ...]]()


def _closing_methods(cls: type) -> tuple[str, ...]:
    """Names of methods and properties of a class that are closures, but for the cell that `super` needs."""
    if cls not in _CLOSING:
        every = {name: x for base in reversed(cls.__mro__) for name, x in vars(base).items()}
        codes = {
            name: getattr(x.fget if isinstance(x, property) else x, "__code__", None)
            for name, x in every.items()
        }
        _CLOSING[cls] = tuple(
            name for name, code in codes.items() if {*getattr(code, "co_freevars", ())} - {"__class__"}
        )
    return _CLOSING[cls]


def _make_method(name: str, like: Any) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self.rest_.fill(iter(self.held_))[name](self, *args, **kwargs)

    return property(method) if isinstance(like, property) else method


def _with_methods_hoisted(x: eqx.Module) -> eqx.Module:
    """The module as one of a class that takes the traced values of its methods from the module's arrays."""
    if not (names := _closing_methods(type(x))):
        return x
    methods = {name: inspect.getattr_static(type(x), name) for name in names}
    functions = {name: m.fget if isinstance(m, property) else m for name, m in methods.items()}
    rest, held = _extract_tracers(functions)
    if not held:
        return x
    _require_alive(held, x)
    body = {name: _make_method(name, m) for name, m in methods.items()}
    return _with_fields(x, body, held_=held, rest_=rest)


def with_key(x: eqx.Module, key: Hashable) -> eqx.Module:
    """The module, equal to its likes only if their keys are: what its class takes from around it may change."""
    return _with_fields(x, {}, key_=HashableByKey(None, key))


def _with_fields(x: eqx.Module, body: dict[str, Any], **fields: Any) -> eqx.Module:
    """The module as one of a subclass that has more fields and this body. All fields but lists are static."""
    cls = next(
        (c for c in type(x).__subclasses__() if {*vars(c).get("__annotations__", ())} == {*fields}), None
    )
    if cls is None:
        static = lambda value: None if isinstance(value, list) else eqx.field(static=True, default=None)
        body = body | {"__annotations__": dict.fromkeys(fields, Any), "__module__": type(x).__module__}
        metaclass: Any = type(type(x))
        more = {name: static(value) for name, value in fields.items()}
        cls = metaclass(type(x).__name__, (type(x),), body | more)
    made = object.__new__(cls)
    for name, value in (vars(x) | fields).items():
        object.__setattr__(made, name, value)
    return made  # pyright: ignore[reportReturnType]


class HiddenValueError(InputError):
    """A function takes a traced value from where `hoist_tracers` cannot see it."""


def require_seen(found: Any) -> None:
    """Raises `HiddenValueError` if JAX traces what is computed of arguments that it does not trace."""
    if is_traced(found):
        raise HiddenValueError(
            "a function of the system uses a value that JAX traces, from a global variable, a class or an object, where "
            "ukjax cannot find it: make it a field of the system, or a local variable around the function."
        )


def _require_alive(held: list[Tracer], function: Any) -> None:
    """Raises `InputError` for values of a run that is over, which a user's function put into a list around it."""
    for x in held:
        try:
            jax.lax.stop_gradient(x)
        except jax.errors.UnexpectedTracerError as error:
            name = getattr(function, "__name__", type(function).__name__)
            raise InputError(
                f"{name} keeps values of an earlier run in an object around it, as `log.append(q)` does: they have no "
                "numbers. Leave that out, make the list anew, and take values from the trajectory, or show them with "
                "jax.debug.print."
            ) from error


def _visible(x: Any) -> int:
    return sum(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(x))


def _map_tree(fn: Callable[[Any], Any], tree: T, is_leaf: Callable[[Any], bool]) -> T:
    """As `jax.tree.map`, but the very tree where that changes nothing."""
    leaves, structure = jax.tree.flatten(tree, is_leaf=is_leaf)
    mapped = [fn(x) for x in leaves]
    same = all(a is b for a, b in zip(mapped, leaves, strict=True))
    return tree if same else jax.tree.unflatten(structure, mapped)


def hoist_tracers(tree: T) -> T:
    """The same pytree, with the values that JAX traces and its functions hold among its arrays.

    It looks into the cells and default values of functions, functions they hold in turn, `functools.partial`, bound
    methods, `jax.jit`, dataclasses, and methods and properties of the classes of modules. It cannot see values in global
    variables, in attributes of other objects, in `static` fields, in class attributes, and in methods that are called
    by `super`. Functions that hold no traced values stay as they are.
    """

    if isinstance(tree, jax.Array | np.ndarray | float):  # most of what a module consists of
        return tree

    def of(x: Any) -> Any:
        if isinstance(x, eqx.Module) and not _is_method(x):
            x = _with_methods_hoisted(x)
            return _map_tree(hoist_tracers, x, lambda y: y is not x)
        if _contents(x) is not None:
            rest, held = _extract_tracers(x)
            _require_alive(held, x)
            return HoistedFunction(held, rest) if len(held) > _visible(x) else x
        return x

    return _map_tree(of, tree, lambda x: isinstance(x, eqx.Module) or _holds_functions(x))


def require_untraced(name: str, *values: Any) -> None:
    """Raises `InputError` where what is computed is traced, or one of some values, which functions may hold."""
    if is_tracing() or is_traced(*map(hoist_tracers, values)):
        raise InputError(
            f"{name} needs numbers, and JAX has none while it traces: call it outside jit, vmap and grad."
        )


def find_instances(tree: Any, kind: type[T] | tuple[type[T], ...]) -> list[T]:
    """All of a kind, or of some, in a pytree, and in what its functions hold where `hoist_tracers` sees it."""
    found, seen = list[T](), set[int]()

    def look(x: Any) -> None:
        for leaf in jax.tree.leaves(
            x, is_leaf=lambda y: isinstance(y, (kind, HoistedFunction)) or _holds_functions(y)
        ):
            if isinstance(leaf, kind):
                found.append(leaf)
            elif isinstance(leaf, HoistedFunction):
                look(leaf.rest.fill(iter(leaf.held)))
            elif id(leaf) not in seen and (contents := _contents(leaf)):
                seen.add(id(leaf))
                look(contents[1])

    look(tree)
    return found
