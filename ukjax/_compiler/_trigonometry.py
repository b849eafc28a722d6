"""The coefficients of sine and cosine as polynomials, which unlike calls of the C library run on vectors of numbers.

An angle is k quarter turns and a rest, |rest| <= pi/4, found exactly enough by taking pi/2 off in three parts whose
first two have trailing zeros (Cody and Waite, Software Manual for the Elementary Functions, 1980). Coefficients in
float64 are those of FreeBSD's msun (k_sin.c, k_cos.c), in float32 those of Cephes (sinf.c).
"""

from typing import NamedTuple


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
