"""Numbers as whole ones, and the neighbours of numbers, by operations that every backend has."""

from typing import Any

import jax.numpy as jnp

from ._expressions import Expression
from ._scalars import Builder


def whole(build: Builder, x: Expression, target: Any) -> Expression:
    """x without its fraction, as the nearest number of an integer type, and 0 for NaN, as XLA has it."""
    least, most = float(jnp.iinfo(target).min), float(jnp.iinfo(target).max)
    down = build.apply("lt", x, 0.0)
    cut = build.apply("select", down, build.apply("ceil", x), build.apply("floor", x))
    bounded = build.apply("min", build.apply("max", cut, least), most)
    return build.apply("select", build.apply("eq", x, x), bounded, 0.0)


def next_after(build: Builder, x: Expression, y: Expression, kind: Any) -> Expression:
    """The number after x on the way to y: x plus a little more than half the distance of neighbours, rounded
    (S. M. Rump et al., "Computing predecessor and successor in rounding to nearest", BIT 49, 2009).
    """
    info = jnp.finfo(kind)
    unit, most, least = float(info.eps) / 2, float(info.max), float(info.tiny)
    size = build.apply("min", build.apply("abs", x), most)
    step = build.apply("max", build.apply("mul", unit * (1 + 2 * unit), size), least)
    up = build.apply("max", build.apply("add", x, step), -most)
    down = build.apply("min", build.apply("sub", x, step), most)
    back = build.apply("select", build.apply("gt", x, y), down, build.apply("add", x, y))
    other = build.apply("select", build.apply("eq", x, y), y, back)
    return build.apply("select", build.apply("lt", x, y), up, other)
