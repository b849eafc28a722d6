"""What determines the machine code of a traced program, as a digest: of two that differ, the digests do.

Names of variables and functions do not count, nor where objects are in memory. Functions within a program (rules for
derivatives) are told by what they trace to. What cannot be told so, as operations of others that are written in Python,
makes a program that is known to nobody: `UnknownError`.
"""

import enum
import functools
import hashlib
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.extend import core

from ._derivative_rules import pull_back_by_rule, rule_changes
from ._jaxprs import loops, reverse_only
from ._live_nodes import LiveNodes
from ._nodes import DerivativeRule, Node, Operand
from ._subprogram import Subprogram

Given = jax.ShapeDtypeStruct
"""An array that a program closes over and is given as an operand: only its shape and type are part of the program."""

_PACKAGES = "jax", "jaxlib", "numpy", "equinox", "lineax", "optimistix", "diffrax"
"""Whose operations are told by their names, since versions are part of the digest."""
_OWN = "_compiler", "_misc"
"""Rooms that say what a program becomes, which are part of the digest as they are."""
_NAMES = tuple(f"{x}." for x in (*_PACKAGES, *(f"ukjax.{x}" for x in _OWN)))
_PLAIN = frozenset((type(None), bool, int, float, complex, str, bytes))
# Parameters that only say how XLA is to go about it, or how an operation is called.
_WITHOUT_EFFECT = {
    "jit": ("jaxpr",),
    "pjit": ("jaxpr",),
    "closed_call": ("call_jaxpr",),
    "core_call": ("call_jaxpr",),
    "remat": ("jaxpr",),
    "checkpoint": ("jaxpr",),
    "custom_jvp_call": ("call_jaxpr",),
    "custom_vjp_call": ("call_jaxpr", "jaxpr", "fun_jaxpr"),
    "custom_vjp_call_jaxpr": ("call_jaxpr", "jaxpr", "fun_jaxpr"),
}


class UnknownError(Exception):
    """What cannot be told."""


def identity(jaxpr: Any, consts: Sequence[Any], order: int = 0) -> str | None:
    """The digest of a program that a jaxpr becomes; None where it cannot be told."""
    return _digest(order, lambda writer: writer.jaxpr(jaxpr, consts))


def identity_of_nodes(program: Subprogram, besides: Any, order: int = 0) -> str | None:
    """The same of a program that is given as what it becomes, and of what else determines it."""

    def write(writer: "_Writer") -> None:
        writer.nodes(program.outputs, program.needed())
        writer.lines.append(repr(besides))

    return _digest(order, write)


def _digest(order: int, write: Callable[["_Writer"], None]) -> str | None:
    try:
        write(writer := _Writer(order))
    except UnknownError:
        return None
    return writer.digest()


def derive_identity(way: str, of: str | None, varied: Sequence[int]) -> str | None:
    """The digest of a derivative of a program with this digest."""
    return of and hashlib.sha256(f"{way} {of} {tuple(varied)}".encode()).hexdigest()


@functools.cache
def _versions() -> str:
    """What else the code depends on: this package as it is, and the others."""
    of_package = hashlib.sha256()
    root = Path(__file__).parents[2]
    for path in sorted(path for room in _OWN for path in (root / room).rglob("*.py")):
        of_package.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    found = [f"{x} {getattr(sys.modules.get(x), '__version__', None)}" for x in _PACKAGES]
    return " ".join([*found, sys.version, of_package.hexdigest()])


@functools.cache
def _is_ours(primitive: Any) -> bool:
    """Whether what an operation does is told by its name and those versions."""
    return _is_in_packages(primitive.impl, 4)


def _is_in_packages(function: Any, depth: int) -> bool:
    if isinstance(function, functools.partial):
        return all(_is_in_packages(x, depth) for x in (function.func, *function.args) if callable(x))
    if not isinstance(function, types.FunctionType):
        return True
    if not f"{function.__module__}.".startswith(_NAMES):
        return False
    inner = [x for cell in function.__closure__ or () for x in [_contents(cell)] if callable(x)]
    return depth == 0 or all(_is_in_packages(x, depth - 1) for x in inner)


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled
        return None


@final
class _Writer:
    """Writes what a program is, into a digest."""

    def __init__(self, order: int):
        self._order, self.lines = order, [_versions(), str(jax.config.read("jax_enable_x64")), str(order)]
        self._jaxprs, self._programs = dict[Any, int](), dict[Any, int]()
        self._kept: list[Any] = []  # so that no other object comes to have the same address

    def digest(self) -> str:
        """Of what was written."""
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()

    def jaxpr(self, jaxpr: Any, consts: Sequence[Any]) -> None:
        """Writes a jaxpr with what it closes over. The digest tells which of those within are one."""
        key = (self._order, id(jaxpr), *map(id, consts))
        if key in self._jaxprs:
            self.lines.append(f"again {self._jaxprs[key]}")
            return
        self._jaxprs[key] = len(self._jaxprs)
        self._kept.append((jaxpr, consts))
        names, write = dict[Any, int](), self.lines.append
        write("given")
        for v in (*jaxpr.constvars, *jaxpr.invars):
            names[v] = len(names)
            write(_aval(v.aval))
        for x in consts:
            write("operand" if isinstance(x, Given) else _array(x))

        def read(x: Any) -> str:
            return f"%{names[x]}" if not isinstance(x, core.Literal) else f"{_aval(x.aval)} {_array(x.val)}"

        for e in jaxpr.eqns:
            write(f"{e.primitive.name} {' '.join(map(read, e.invars))}")
            self._equation(e)
            for v in e.outvars:
                names[v] = len(names)
                write(_aval(v.aval))
        write(f"gives {' '.join(map(read, jaxpr.outvars))}")

    def _equation(self, e: Any) -> None:
        name, params = e.primitive.name, e.params
        if not _is_ours(e.primitive):
            raise UnknownError(name)
        if name == "pure_callback":
            if "_error.<locals>" not in str(
                params.get("callback")
            ):  # of `equinox.error_if`, which is not called
                raise UnknownError(name)
            return
        if name == "scalars":
            return self._program(params["program"], 0)
        if name == "scalars_change":
            self._program(params["program"], 1)
            return self._value(params["varied"])
        if self._order and (name == "custom_jvp_call" or (name == "custom_vjp_call" and not loops(e))):
            self._rule(e)
        taken = _WITHOUT_EFFECT.get(name)
        for key, x in sorted(params.items()):
            if taken is None or key in taken:
                self.lines.append(key)
                self._value(x)

    def _program(self, program: Any, more: int) -> None:
        known = program.identity(self._order + more)
        if known is None:
            raise UnknownError("program")
        self._number(program)
        self.lines.append(known)

    def _number(self, program: Any) -> bool:
        """Writes which program it is, and tells whether it was met before."""
        key = self._order, program
        met = key in self._programs
        self.lines.append(f"program {self._programs.setdefault(key, len(self._programs))}")
        return met

    def nodes(self, outputs: Sequence[Operand], needed: LiveNodes) -> None:
        """Writes the nodes that outputs need."""
        write, nodes = self.lines.append, needed.nodes
        places = {x: f"%{i}" for i, x in enumerate(nodes)}
        within = {x.region: "within" if x.region in needed.owner else "" for x in nodes}

        def tell(x: Operand) -> str:
            if x.__class__ is not Node:
                return repr(x)
            return places.get(x) or (f"given {x.data}" if x.op == "parameter" else "unused")

        told = lambda args: " ".join([tell(x) for x in args])
        for node in nodes:
            op, data = node.op, node.data
            args = " ".join([places.get(x) or tell(x) for x in node.args])
            write(f"{op} {node.type} {node.size} {within[node.region]} {args}")
            if data is None:
                continue
            if op == "loop":
                write(f"{told([data.condition])}; {told(data.results)}; {told(data.region.params)}")
            elif op == "branch":
                for region, results in zip(data.regions, data.results, strict=True):
                    write(f"{told(results)}; {told(region.params)}")
            elif op == "call":
                if not self._number(data):
                    self.nodes(data.results, data.needed())
                    write(str(data.given()))
            elif op == "rule":
                rule, k, i = data
                write(f"{k} {i}")
                self._call(rule)
            else:
                write(repr(data))
        write(told(outputs))

    def _call(self, call: DerivativeRule) -> None:
        if self._number(call) or not self._order:
            return
        self._differentiated(call)

    def _rule(self, e: Any) -> None:
        """A rule for a derivative, by what that is."""
        given = [*dict.fromkeys(v for v in e.invars if not isinstance(v, core.Literal))]
        numbers = [v for v in given if np.issubdtype(v.aval.dtype, np.floating)]
        if e.params.get("symbolic_zeros") and len(numbers) > 1:
            raise UnknownError("a rule that looks at which of several changes are zero")
        alone = core.Jaxpr((), given, e.outvars, [e], debug_info=e.params["call_jaxpr"].jaxpr.debug_info)
        function = core.jaxpr_as_fun(core.ClosedJaxpr(alone, ()))
        self._differentiated(DerivativeRule(function, tuple(v.aval for v in given)))

    def _differentiated(self, rule: DerivativeRule) -> None:
        real = tuple(i for i, x in enumerate(rule.inputs) if np.issubdtype(x.dtype, np.floating))
        try:
            with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
                closed, _ = rule_changes(rule, real)
                if reverse_only(closed):
                    closed, _ = pull_back_by_rule(rule, real)
        except (
            Exception
        ) as error:  # of any kind: a rule that refuses does so again where its derivative is asked for
            return self.lines.append(f"{type(error).__name__}: {error}")
        self._order -= 1
        self.jaxpr(closed.jaxpr, closed.consts)
        self._order += 1

    def _value(self, x: Any) -> None:
        """A parameter of an operation."""
        write = self.lines.append
        if type(x) in _PLAIN:
            write(repr(x))
        elif type(x) in (tuple, list):
            if all(type(y) in _PLAIN for y in x):
                return write(repr(x))
            write(f"{len(x)} of")
            for y in x:
                self._value(y)
        elif hasattr(x, "eqns"):
            self.jaxpr(x, ())
        elif hasattr(x, "jaxpr") and hasattr(x, "consts"):
            self.jaxpr(x.jaxpr, x.consts)
        elif isinstance(x, np.ndarray | np.generic | jax.Array):
            write(_array(x))
        elif isinstance(x, np.dtype) or (isinstance(x, type) and issubclass(x, np.generic)):
            write(np.dtype(x).name)
        elif isinstance(x, enum.Enum):
            write(f"{type(x).__qualname__} {x.name}")
        elif isinstance(x, tuple) and hasattr(x, "_fields"):
            write(f"{type(x).__qualname__} of {len(x)}")
            for y in x:
                self._value(y)
        elif type(x).__module__.partition(".")[0] in ("jax", "jaxlib") and not callable(x):
            told = repr(x)
            if " at 0x" in told or "..." in told:
                raise UnknownError(type(x).__name__)
            write(told)
        else:
            raise UnknownError(type(x).__name__)


def _aval(aval: Any) -> str:
    if not hasattr(aval, "shape"):
        raise UnknownError(type(aval).__name__)
    return _form(aval.dtype, aval.shape, getattr(aval, "weak_type", False))


@functools.cache  # NumPy takes long to name its types
def _form(dtype: Any, shape: tuple[int, ...], weak: bool) -> str:
    return f"{dtype}{shape}{weak}"


def _array(x: Any) -> str:
    """An array with its numbers."""
    if isinstance(x, Tracer):
        raise UnknownError("a value that is traced")
    if not isinstance(x, np.ndarray | np.generic | jax.Array | bool | int | float | complex):
        raise UnknownError(type(x).__name__)
    if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.extended):
        raise UnknownError(str(x.dtype))
    array = np.asarray(x)
    if array.dtype == object:
        raise UnknownError("objects")
    held = array.tobytes()
    return f"{array.dtype}{array.shape}{held.hex() if len(held) <= 64 else hashlib.sha256(held).hexdigest()}"
