"""Sine and cosine by polynomials, for scalar code on a CPU.

XLA calls the C library for them, one number at a time, between which it saves what the processor's registers hold.
Here they are additions and multiplications, so that a loop over members runs on vectors of numbers.

An angle is k quarter turns and a rest, |rest| <= pi/4, found exactly enough by taking pi/2 off in three parts whose
first two have trailing zeros (Cody and Waite, Software Manual for the Elementary Functions, 1980). Coefficients in
float64 are those of FreeBSD's msun (k_sin.c, k_cos.c), in float32 those of Cephes (sinf.c).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array


class _Coefficients(NamedTuple):
    half_pi: tuple[float, ...]
    sine: tuple[float, ...]
    cosine: tuple[float, ...]


# fmt: off
COEFFICIENTS = {
    "float64": _Coefficients(
        (1.57079632673412561417, 6.07710050630396597660e-11, 2.02226624879595063154e-21),
        (-1.66666666666666324348e-01, 8.33333333332248946124e-03, -1.98412698298579493134e-04,
         2.75573137070700676789e-06, -2.50507602534068634195e-08, 1.58969099521155010221e-10),
        (-0.5, 4.16666666666666019037e-02, -1.38888888888741095749e-03, 2.48015872894767294178e-05,
         -2.75573143513906633035e-07, 2.08757232129817482790e-09, -1.13596475577881948265e-11),
    ),
    "float32": _Coefficients(
        (1.5703125, 4.837512969970703125e-4, 7.54978995489188216e-8),
        (-1.6666654611e-1, 8.3321608736e-3, -1.9515295891e-4),
        (-0.5, 4.166664568298827e-2, -1.388731625493765e-3, 2.443315711809948e-5),
    ),
}
# fmt: on


class _Turned(NamedTuple):
    """An angle's rest, by its sine and cosine, and its quarter turns, as a fraction 0, 1/4, 1/2 or 3/4 of a turn."""

    sine: Array
    cosine: Array
    fraction: Array
    is_odd: Array


def _polynomial(x: Array, coefficients: tuple[float, ...]) -> Array:
    value = jnp.full_like(x, coefficients[-1])
    for c in coefficients[-2::-1]:
        value = value * x + c
    return value


def _turned(x: Array) -> _Turned:
    known = COEFFICIENTS[x.dtype.name]
    quarters = lax.floor(x * (2 / jnp.pi) + 0.5)
    rest = x
    for part in known.half_pi:
        rest = rest - quarters * part
    # Angles whose own rounding is a turn, above 1e15 or in float32 1e7, are to give bounded values all the same.
    rest = lax.select(lax.abs(rest) < 1, rest, rest - rest)
    square = rest * rest
    fraction = quarters * 0.25
    fraction = fraction - lax.floor(fraction)
    return _Turned(
        rest + rest * square * _polynomial(square, known.sine),
        1 + square * _polynomial(square, known.cosine),
        fraction,
        lax.eq(lax.abs(fraction - 0.5), jnp.full_like(x, 0.25)),
    )


def by_polynomials() -> dict[str, Callable[..., Array]]:
    """Sine and cosine of arrays; what both need of one argument is computed once."""
    kept: dict[int, tuple[Array, _Turned]] = {}  # with the argument, so that its id is not given to another

    def turned(x: Array) -> _Turned:
        if id(x) not in kept:
            kept[id(x)] = x, _turned(x)
        return kept[id(x)][1]

    def sine(x: Array) -> Array:
        if x.dtype.name not in COEFFICIENTS:
            return lax.sin(x)
        at = turned(x)
        value = lax.select(at.is_odd, at.cosine, at.sine)
        return lax.select(at.fraction < 0.5, value, -value)

    def cosine(x: Array) -> Array:
        if x.dtype.name not in COEFFICIENTS:
            return lax.cos(x)
        at = turned(x)
        value = lax.select(at.is_odd, at.sine, at.cosine)
        return lax.select(lax.abs(at.fraction - 0.375) < 0.25, -value, value)

    return {"sin": sine, "cos": cosine}
