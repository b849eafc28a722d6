"""The coefficients of sine and cosine as polynomials, which unlike calls of the C library run on vectors of numbers.

An angle is k quarter turns and a rest, |rest| <= pi/4, found by taking pi/2 off in parts (Cody and Waite, Software Manual
for the Elementary Functions, 1980). In float64 all but the last have 23 bits, so that k of them are exact for angles up
to 1.6e9; beyond, the result is that of an angle that is off by half its last digit. Coefficients in float64 are those of
FreeBSD's msun (k_sin.c, k_cos.c), in float32 those of Cephes (sinf.c).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np


class _Coefficients(NamedTuple):
    half_pi: tuple[float, ...]
    sine: tuple[float, ...]
    cosine: tuple[float, ...]


# fmt: off
COEFFICIENTS = {
    "float64": _Coefficients(
        (1.570796251296997, 7.549789415861596e-08, 5.390302529957765e-15, 3.2820031633724233e-22,
         3.7950107727212256e-29),
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


def sine(x: Any) -> Any:
    """By NumPy, operation by operation as machine code has it (`_structured/_llvm`)."""
    of_sine, of_cosine, fraction, odd = _turn(np.asarray(x))
    value = np.where(odd, of_cosine, of_sine)
    return np.where(fraction < 0.5, value, -value)


def cosine(x: Any) -> Any:
    """As `sine`."""
    of_sine, of_cosine, fraction, odd = _turn(np.asarray(x))
    value = np.where(odd, of_sine, of_cosine)
    return np.where(abs(fraction - 0.375) < 0.25, -value, value)


def _turn(x: np.ndarray) -> tuple[Any, ...]:
    """Sine and cosine of the rest, the fraction of a turn, and whether they change places."""
    known, one = COEFFICIENTS[x.dtype.name], x.dtype.type
    quarters = np.floor(x * one(2 / np.pi) + one(0.5))
    rest = x
    for part in known.half_pi:
        rest = rest - quarters * one(part)
    rest = np.where(abs(rest) < 1, rest, rest - rest)
    square = rest * rest
    of_sine = rest + rest * square * _polynomial(square, known.sine)
    of_cosine = one(1) + square * _polynomial(square, known.cosine)
    fraction = quarters * one(0.25)
    fraction = fraction - np.floor(fraction)
    return of_sine, of_cosine, fraction, abs(fraction - one(0.5)) == 0.25


def _polynomial(x: np.ndarray, coefficients: Sequence[float]) -> Any:
    one = x.dtype.type
    value = one(coefficients[-1])
    for c in coefficients[-2::-1]:
        value = value * x + one(c)
    return value
