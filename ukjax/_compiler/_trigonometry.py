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


class ReducedAngle(NamedTuple):
    """An angle as quarter turns and a rest.

    - `sine`, `cosine`: of the rest.
    - `fraction`: of a turn, in quarters.
    - `odd`: whether these are an odd number, so that sine and cosine change places.
    """

    sine: Any
    cosine: Any
    fraction: Any
    odd: Any


def turn(x: Any, dtype: str, xp: Any) -> ReducedAngle:
    """An angle turned back, of arrays by NumPy, or of a `Number` by instructions: the same operations, the same bits."""
    known = COEFFICIENTS[dtype]
    quarters = xp.floor(x * (2 / np.pi) + 0.5)
    rest = x
    for part in known.half_pi:
        rest = rest - quarters * part
    rest = xp.where(abs(rest) < 1.0, rest, rest - rest)
    square = rest * rest
    sine = rest + rest * square * polynomial(square, known.sine)
    cosine = square * polynomial(square, known.cosine) + 1.0
    fraction = quarters * 0.25
    fraction = fraction - xp.floor(fraction)
    return ReducedAngle(sine, cosine, fraction, abs(fraction - 0.5) == 0.25)


def sine(x: ReducedAngle, xp: Any) -> Any:
    """The sine of an angle."""
    value = xp.where(x.odd, x.cosine, x.sine)
    return xp.where(x.fraction < 0.5, value, -value)


def cosine(x: ReducedAngle, xp: Any) -> Any:
    """The cosine of an angle."""
    value = xp.where(x.odd, x.sine, x.cosine)
    return xp.where(abs(x.fraction - 0.375) < 0.25, -value, value)


def polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    """A polynomial by Horner's rule, the constant term first."""
    value: Any = coefficients[-1]
    for c in coefficients[-2::-1]:
        value = x * value + c
    return value
