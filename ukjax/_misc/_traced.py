"""Functions as JAX traces them, the same in every process, and digests that tell one from another."""

from collections.abc import Callable, Hashable
from hashlib import sha256
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun
from jaxtyping import Array

from ._checks import nan_for_errors
from ._keyed import key_by_identity


def trace_program(fn: Callable[..., list[Array]], *arguments: Array) -> ClosedJaxpr:
    """What a function computes, with NaN in place of the errors that Equinox raises from compiled code."""
    # The device is part of the key under which JAX keeps what it traced: code kept from elsewhere may call back.
    with jax.default_device(jax.devices()[0]):
        return nan_for_errors(jax.make_jaxpr(fn)(*arguments))


def fingerprint(program: ClosedJaxpr, *values: Array) -> str:
    """A digest of all operations with all their constants, the same in every process."""
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in program.in_avals]
    digest = sha256(jax.jit(jaxpr_as_fun(program)).lower(*shapes).as_text().encode())
    for x in values:
        digest.update(np.asarray(x).tobytes())
    return digest.hexdigest()[:16]


def signature(program: ClosedJaxpr, *, with_rules: bool = True) -> Hashable:
    """What a program computes, to be compared within a process: equal only for programs that compute the same."""
    rules = () if with_rules else _RULES
    return _operations(program.jaxpr, rules), tuple(_content(x, rules) for x in program.consts)


_RULES = ("jvp_jaxpr_fun", "fwd_jaxpr_thunk", "bwd")
"""Parameters of operations that hold derivative rules."""


def _operations(jaxpr: Jaxpr, rules: tuple[str, ...]) -> Hashable:
    places: dict[Any, int] = {}

    def place(x: Any) -> Hashable:
        if isinstance(x, Literal):
            return _content(x.val, rules)
        return places.setdefault(x, len(places)), str(x.aval)

    inputs = tuple(map(place, [*jaxpr.constvars, *jaxpr.invars]))
    equations = tuple(
        (
            equation.primitive.name,
            tuple(map(place, equation.invars)),
            tuple(
                (name, _content(x, rules)) for name, x in sorted(equation.params.items()) if name not in rules
            ),
            tuple(map(place, equation.outvars)),
        )
        for equation in jaxpr.eqns
    )
    return inputs, equations, tuple(map(place, jaxpr.outvars))


def _content(x: Any, rules: tuple[str, ...]) -> Hashable:
    """A constant or a parameter of an operation; what cannot be compared is equal to itself alone."""
    if isinstance(x, ClosedJaxpr):
        return signature(x, with_rules=not rules)
    if isinstance(x, Jaxpr):
        return _operations(x, rules)
    if isinstance(x, tuple | list):
        return tuple(_content(y, rules) for y in x)
    if isinstance(x, jax.Array | np.ndarray | np.generic) or hasattr(x, "__array__"):
        array = np.asarray(x)
        return array.dtype.str, array.shape, array.tobytes()
    try:
        hash(x)
    except TypeError:
        return key_by_identity(x)
    return type(x), x
