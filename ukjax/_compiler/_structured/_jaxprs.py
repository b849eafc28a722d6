"""What is asked of jaxprs before they are interpreted."""

import functools
import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from ..._misc._errors import Untranslatable
from ..._misc._places import line_of_user
from ._moves import MOVES
from ._replacements import REPLACEMENTS

SHORT = 400
"""Operations that a scan may become; more stay a loop."""

SCATTERS = frozenset(
    ("scatter", "scatter_add", *(f"scatter-{op}" for op in ("add", "sub", "mul", "min", "max")))
)

INLINED = frozenset(
    ("jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint", "custom_lin")
)
"""Operations that call a function, and do no more."""

_TYPES = frozenset(
    ("float64", "float32", "bool", *(f"{s}int{k}" for s in ("", "u") for k in (8, 16, 32, 64)))
)


def type_of(aval: Any) -> str:
    """The type of an array's entries."""
    return _type_named(aval.dtype)


@functools.cache  # NumPy takes long to name its types
def _type_named(dtype: Any) -> str:
    name = np.dtype(dtype).name if not jnp.issubdtype(dtype, jax.dtypes.extended) else str(dtype)
    if name not in _TYPES:
        hint = ": draw random numbers outside, and pass them" if name.startswith("key<") else ""
        raise Untranslatable(f"numbers of type {name} have no scalar code{hint}")
    return name


def line_of(equation: Any) -> str:
    """The user's line that an equation comes from, such as "model.py, line 12"; empty where there is none."""
    traceback = equation.source_info.traceback
    lines = (line_of_user(x.file_name, x.line_num) for x in (traceback.frames if traceback else ()))
    return next(filter(None, lines), "")


def core_jaxpr(x: Any) -> Any:
    """A jaxpr without the constants it may come with."""
    return x.jaxpr if hasattr(x, "jaxpr") else x


def jaxprs_in(params: dict) -> list[Any]:
    """The jaxprs among the parameters of an equation."""
    found = list[Any]()
    for x in params.values():  # of all equations: mostly there are none
        if x.__class__ is tuple or x.__class__ is list:
            found += [y for y in x if hasattr(y, "eqns") or hasattr(y, "jaxpr")]
        elif hasattr(x, "eqns") or hasattr(x, "jaxpr"):
            found.append(x)
    return found


def count_scanned(equation: Any) -> tuple[int, int]:
    """How many of a scan's inputs are constant, and how many it carries.

    By their shapes: JAX 0.11 changed how parameters say it.
    """
    body = core_jaxpr(equation.params["jaxpr"])
    kept = sum(v.aval.ndim == x.aval.ndim for v, x in zip(equation.outvars, body.outvars, strict=True))
    fixed = sum(v.aval.ndim == x.aval.ndim for v, x in zip(equation.invars, body.invars, strict=True))
    return fixed - kept, kept


def function_of(equation: Any, debug_info: Any) -> Callable[..., list[Any]]:
    """What one equation computes of its operands that are no numbers, each once."""
    given = dict.fromkeys(v for v in equation.invars if not isinstance(v, core.Literal))
    alone = core.Jaxpr((), [*given], equation.outvars, [equation], debug_info=debug_info)
    return core.jaxpr_as_fun(core.ClosedJaxpr(alone, ()))


def solve_within(equation: Any, inputs: Sequence[Any]) -> tuple[Any, list[Any]]:
    """The jaxpr of a `custom_linear_solve` that solves, and what it takes of the inputs."""
    sizes = equation.params["const_lengths"]
    start = sizes.matvec + sizes.vecmat
    given = [*inputs[start : start + sizes.solve], *inputs[sum(sizes) :]]
    return equation.params["jaxprs"].solve, given


def while_of_members(e: Any) -> Any:
    """A loop whose members end by themselves, as `vmap` leaves it, as one that goes on until the last has ended."""
    p = e.params
    nc, nb = p["cond_nconsts"], p["body_nconsts"]
    condition, body = (core.jaxpr_as_fun(p[name]) for name in ("cond_jaxpr", "body_jaxpr"))

    def run(*inputs: Any) -> Any:
        of_condition, of_body, first = inputs[:nc], inputs[nc : nc + nb], inputs[nc + nb :]
        active = lambda x: condition(*of_condition, *x)[0]

        def advance(x: Any) -> Any:
            goes = active(x)
            wide = lambda y: jnp.reshape(goes, goes.shape + (1,) * (y.ndim - goes.ndim))
            return [jnp.where(wide(new), new, old) for new, old in zip(body(*of_body, *x), x, strict=True)]

        return jax.lax.while_loop(lambda x: jnp.any(active(x)), advance, list(first))

    return jax.make_jaxpr(run)(*(v.aval for v in e.invars))


def loops(equation: Any) -> bool:
    """Whether an equation is a loop, or has one within."""
    if equation.primitive.name in ("while", "scan"):
        return True
    return any(loops(e) for x in jaxprs_in(equation.params) for e in core_jaxpr(x).eqns)


def reverse_only(closed: Any) -> bool:
    """Whether changes, as `jax.jvp` gives them, are by a rule of `jax.custom_vjp`: they can be transposed, no more."""
    return any(e.primitive.name == "custom_lin" for e in closed.eqns)


def live_equations(jaxpr: Any, of: Sequence[Any]) -> list[Any]:
    """The equations that some variables need, or that have effects."""
    needed, kept = {v for v in of if not isinstance(v, core.Literal)}, []
    for e in reversed(jaxpr.eqns):
        if e.effects or any(v in needed for v in e.outvars):
            kept.append(e)
            needed.update(v for v in e.invars if not isinstance(v, core.Literal))
    return kept[::-1]


def weakly_cached(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function of jaxprs, which knows those it has seen as long as they live."""
    known = weakref.WeakKeyDictionary[Any, Any]()

    def remembering(jaxpr: Any) -> Any:
        if jaxpr not in known:
            known[jaxpr] = function(jaxpr)
        return known[jaxpr]

    return remembering


@weakly_cached
def needed_equations(jaxpr: Any) -> list[Any]:
    """The equations that a jaxpr's outputs need, or that have effects."""
    return live_equations(jaxpr, jaxpr.outvars)


@weakly_cached
def weight(jaxpr: Any) -> int:
    """About how many operations a jaxpr becomes, loops counted once."""
    total = 0
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        inner = [core_jaxpr(x) for x in jaxprs_in(equation.params)]
        if inner:
            total += sum(map(weight, inner)) + (SHORT if name == "while" else 0)
        elif name == "dot_general":
            axes = equation.params["dimension_numbers"][0][0]
            shape = equation.invars[0].aval.shape
            total += 2 * equation.outvars[0].aval.size * math.prod(shape[i] for i in axes)
        elif name in REPLACEMENTS:
            total += (*equation.invars, *equation.outvars)[0].aval.size ** 2
        elif name == "scalars":
            total += equation.params["program"].length
        elif name not in MOVES:
            total += max((v.aval.size for v in (*equation.outvars, *equation.invars)), default=0)
    return total


@weakly_cached
def find_indexed_shapes(jaxpr: Any) -> set[tuple[int, ...]]:
    """The shapes of arrays that a jaxpr indexes at places it does not know."""
    shapes: set[tuple[int, ...]] = set()
    for e in jaxpr.eqns:
        name = e.primitive.name
        places = (
            e.invars[1:]
            if name in ("dynamic_slice", "gather")
            else e.invars[2:]
            if name == "dynamic_update_slice"
            else e.invars[1:2]
        )
        if (name in ("dynamic_slice", "gather", "dynamic_update_slice") or name in SCATTERS) and not all(
            isinstance(x, core.Literal) for x in places
        ):
            shapes.add(e.invars[0].aval.shape)
        if name == "maybe_set":
            shapes.add(e.invars[1].aval.shape)
        for inner in jaxprs_in(e.params):
            shapes |= find_indexed_shapes(core_jaxpr(inner))
    return shapes


def calls_back(jaxpr: Any) -> bool:
    """Whether something in a jaxpr calls Python, as checks that raise do."""
    return any(
        e.effects or e.primitive.name == "pure_callback" or any(map(calls_back, jaxprs_in(e.params)))
        for e in core_jaxpr(jaxpr).eqns
    )


def raises(jaxpr: Any) -> bool:
    """Whether a branch does nothing but raise, as `equinox.error_if` has it."""
    return any(
        e.primitive.name == "pure_callback" and "_error.<locals>" in str(e.params.get("callback"))
        for e in jaxpr.eqns
    )
