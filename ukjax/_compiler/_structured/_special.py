"""Special functions in plain JAX: what JAX leaves to C++, and what it has iterations for.

Formulas are those of the NIST Digital Library of Mathematical Functions (DLMF, dlmf.nist.gov).
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

_BERNOULLI = (
    *(1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798),
    -174611 / 330,
)  # B_2, B_4, ...
_FAR = 12  # from where on asymptotic series of the gamma function are exact but for rounding


def _sum_powers(coefficients: Sequence[float], x: Any) -> Any:
    """c_0 + c_1 x + c_2 x^2 + ..."""
    found = jnp.full_like(x, coefficients[-1])
    for c in coefficients[-2::-1]:
        found = found * x + c
    return found


# --- The gamma function and its derivatives


def _sum_inverse_powers(s: Any, q: Any, power: Callable[[Any, Any], Any] = jnp.power) -> Any:
    """The sum of (q + k)^-s by Euler and Maclaurin's formula (DLMF 25.11.5), of s > 1 and q > 0."""
    found = sum(power(q + k, -s) for k in range(_FAR))
    far = q + _FAR
    term = power(far, -s)
    found = found + far * term / (s - 1) + 0.5 * term
    rising = s * term / far  # s (s + 1) ... (s + 2 k - 2) (q + N)^(1 - s - 2 k) / (2 k)!
    for k, b in enumerate(_BERNOULLI, 1):
        rising = rising / 2 if k == 1 else rising
        found = found + b * rising
        rising = rising * (s + 2 * k - 1) * (s + 2 * k) / ((2 * k + 1) * (2 * k + 2) * far * far)
    return found


def _zeta(s: Any, q: Any) -> Any:
    """Hurwitz's zeta function; NaN for q < 0 or s < 1."""
    found = _sum_inverse_powers(jnp.where(s > 1, s, 2), jnp.where(q > 0, q, 1))
    pole = (s == 1) | ((s > 1) & (q <= 0) & (q == jnp.round(q)))
    return jnp.where((s > 1) & (q > 0), found, jnp.where(pole, jnp.inf, jnp.nan))


# log(gamma(1 + x)) = -gamma x + zeta(2) x^2 / 2 - zeta(3) x^3 / 3 + ... (DLMF 5.7.3), for sizes of x up to 1/2
_ABOUT_ONE = (
    *(0.0, -float(np.euler_gamma)),
    *((-1) ** s * float(_sum_inverse_powers(float(s), 1.0, pow)) / s for s in range(2, 50)),
)


def _lgamma_beyond_half(x: Any) -> Any:
    """By the series about 1 and 2, to which the recurrence leads from above, or by Stirling's (DLMF 5.11.1)."""
    near, product = jnp.minimum(x, _FAR), jnp.ones_like(x)
    for _ in range(_FAR - 2):
        less = near - 1
        product, near = (jnp.where(near >= 2.5, y, z) for y, z in ((product * less, product), (less, near)))
    two = near >= 1.5
    off = jnp.where(two, near - 2, near - 1)
    near = _sum_powers(_ABOUT_ONE, off) + jnp.where(two, jnp.log1p(off), 0) + jnp.log(product)
    far = jnp.maximum(x, _FAR)
    terms = [b / (2 * k * (2 * k - 1)) for k, b in enumerate(_BERNOULLI, 1)]
    series = _sum_powers(terms, 1 / (far * far)) / far
    stirling = (far - 0.5) * jnp.log(far) - far + 0.5 * math.log(2 * math.pi) + series
    return jnp.where(x < _FAR, near, stirling)


def _lgamma(x: Any) -> Any:
    """log |gamma(x)|; below 1/2 by reflection (DLMF 5.5.3)."""
    reflects = x < 0.5
    found = _lgamma_beyond_half(jnp.where(reflects, 1 - x, jnp.where(jnp.isinf(x), 1, x)))
    sine = jnp.sin(math.pi * jnp.where(reflects, jnp.abs(x - jnp.round(x)), 0.5))
    found = jnp.where(reflects, math.log(math.pi) - jnp.log(sine) - found, found)
    return jnp.where(jnp.isinf(x), jnp.inf, found)


def _digamma(x: Any) -> Any:
    """The slope of log(gamma(x)), by its asymptotic series, recurrence and reflection (DLMF 5.11.2, 5.5.2, 5.5.4)."""
    reflects = x < 0.5
    far, less = jnp.where(reflects, 1 - x, x), jnp.zeros_like(x)
    for _ in range(_FAR):
        near = far < _FAR
        less, far = less + jnp.where(near, 1 / far, 0), jnp.where(near, far + 1, far)
    terms = [0.0, *(-b / (2 * k) for k, b in enumerate(_BERNOULLI, 1))]
    found = jnp.log(far) - 0.5 / far + _sum_powers(terms, 1 / (far * far)) - less
    fraction = x - jnp.round(x)
    pole = reflects & (fraction == 0)
    turned = found - math.pi / jnp.tan(math.pi * jnp.where(reflects & ~pole, fraction, 0.25))
    return jnp.where(pole, jnp.nan, jnp.where(reflects, turned, found))


def _polygamma(order: Any, x: Any) -> Any:
    """The derivatives of digamma (DLMF 5.15.1, 25.11.1)."""
    found = jnp.exp(_lgamma(order + 1)) * _zeta(order + 1, x)
    found = jnp.where(order % 2 == 0, -found, found)
    is_whole = (order >= 0) & (order == jnp.round(order))
    return jnp.where(order == 0, _digamma(x), jnp.where(is_whole, found, jnp.nan))


# --- Incomplete gamma and beta functions


_MOST = 1_000_000  # passes: an argument of 1e8 takes 100,000


def _iterate(step: Callable[[Any, Any], tuple[Any, Any]], state: Any) -> Any:
    """The state of each entry once its iteration ends, of which `step`, given its number, tells; NaN if it does not."""

    def advance(carried: Any) -> Any:
        i, going, state = carried
        new, ends = step(i, state)
        kept = jax.tree.map(lambda x, y: jnp.where(going, x, y), new, state)
        return i + 1, going & ~ends, kept

    goes_on = lambda carried: jnp.any(carried[1]) & (carried[0] < _MOST)
    first = jnp.ones((), state[0].dtype), jnp.ones_like(state[0], bool), state
    _, going, state = lax.while_loop(goes_on, advance, first)
    return jax.tree.map(lambda x: jnp.where(going, jnp.nan, x), state)


def _continued_fraction(first: Any, coefficients: Callable[[Any], tuple[Any, Any]]) -> Any:
    """1 / (b_0 + a_1 / (b_1 + a_2 / ...)) by Lentz's method, of b_0 and the next a and b."""
    tiny = 1e3 * float(jnp.finfo(first.dtype).tiny)
    enough = 4 * float(jnp.finfo(first.dtype).eps)  # what rounding of both factors may come to
    safe = lambda x: jnp.where(jnp.abs(x) < tiny, tiny, x)

    def step(i: Any, state: Any) -> Any:
        found, c, d = state
        a, b = coefficients(i)
        c, d = safe(b + a / c), 1 / safe(b + a * d)
        return (found * c * d, c, d), ~(jnp.abs(c * d - 1) > enough)

    start = 1 / safe(first)
    return _iterate(step, (start, jnp.full_like(first, 1 / tiny), start))[0]


def _incomplete_gamma(a: Any, x: Any, *, upper: bool) -> Any:
    """P(a, x) or Q(a, x), by a series (DLMF 8.11.4) or a continued fraction (DLMF 8.9.2)."""
    known = (x > 0) & (a > 0) & jnp.isfinite(x) & jnp.isfinite(a)
    given, here = jnp.where(known, a, 1), jnp.where(known, x, 1)
    by_series = here < given + 1
    size = jnp.exp(given * jnp.log(here) - here - _lgamma(given))

    def add(i: Any, state: Any) -> Any:
        total, term = state
        term = term * at / (given + i)
        return (total + term, term), total + term == total

    at = jnp.where(by_series, here, 0)
    first = 1 / given
    lower = size * _iterate(add, (first, first))[0]
    beyond = jnp.where(by_series, given + 3, here)
    fraction = _continued_fraction(
        beyond + 1 - given, lambda i: (-i * (i - given), beyond + 2 * i + 1 - given)
    )
    rest = size * fraction
    found = jnp.where(by_series, 1 - lower if upper else lower, rest if upper else 1 - rest)
    all_of_it = ((a > 0) & (x == jnp.inf)) | ((a == 0) & (x > 0))
    ends = jnp.where((a > 0) & (x == 0), 0.0, jnp.where(all_of_it, 1.0, jnp.nan))
    return jnp.where(known, found, 1 - ends if upper else ends)


def _igamma_grad_a(a: Any, x: Any) -> Any:
    """The derivative of P(a, x) by a."""
    return jax.jvp(lambda a: _incomplete_gamma(a, x, upper=False), (a,), (jnp.ones_like(a),))[1]


def _incomplete_beta(a: Any, b: Any, x: Any) -> Any:
    """I_x(a, b), by a continued fraction from the nearer end (DLMF 8.17.22)."""
    known = (a > 0) & (b > 0) & (x > 0) & (x < 1)
    p, q, here = jnp.where(known, a, 1), jnp.where(known, b, 1), jnp.where(known, x, 0.5)
    swaps = here > (p + 1) / (p + q + 2)
    p, q = jnp.where(swaps, q, p), jnp.where(swaps, p, q)
    here, beside = jnp.where(swaps, 1 - here, here), jnp.where(swaps, here, 1 - here)

    def coefficients(i: Any) -> tuple[Any, Any]:
        m = jnp.floor(i / 2)
        even = m * (q - m) / ((p + 2 * m - 1) * (p + 2 * m))
        odd = -(p + m) * (p + q + m) / ((p + 2 * m) * (p + 2 * m + 1))
        return jnp.where(i % 2 == 0, even, odd) * here, jnp.ones_like(p)

    size = jnp.exp(_lgamma(p + q) - _lgamma(p) - _lgamma(q) + p * jnp.log(here) + q * jnp.log(beside)) / p
    found = size * _continued_fraction(jnp.ones_like(p), coefficients)
    found = jnp.where(swaps, 1 - found, found)
    ends = jnp.where((a > 0) & (b > 0) & ((x == 0) | (x == 1)), x, jnp.nan)
    return jnp.where(known, found, ends)


# --- Bessel functions and the inverse of the error function

_LARGE = 30.0  # from where on asymptotic series of Bessel functions are exact but for rounding


def _bessel(order: int, x: Any) -> Any:
    """e^-|x| I(x), of order 0 or 1 (DLMF 10.25.2, 10.40.1)."""
    size = jnp.abs(x)
    scale = (_LARGE / 2) ** 2  # so that no coefficient is too small for float32
    of_series = [scale**k / (math.factorial(k) * math.factorial(k + order)) for k in range(60)]
    near = jnp.minimum(size, _LARGE)
    series = jnp.exp(-near) * _sum_powers(of_series, near * near / (4 * scale))
    series = series * near / 2 if order else series
    of_far = [1.0]
    for k in range(1, 25):
        of_far.append(of_far[-1] * ((2 * k - 1) ** 2 - 4 * order) / (8 * k * _LARGE))
    far = jnp.maximum(size, _LARGE)
    asymptotic = _sum_powers(of_far, _LARGE / far) / jnp.sqrt(2 * math.pi * far)
    found = jnp.where(size < _LARGE, series, asymptotic)
    return jnp.where(x < 0, -found, found) if order else found


def _erf_inv(x: Any) -> Any:
    """From S. Winitzki's approximation ("A handy approximation for the error function and its inverse", 2008), correct to
    0.2 %, by Halley's steps."""
    size = jnp.abs(x)
    inside = jnp.where(size < 1, size, 0)
    a, log = 0.147, jnp.log((1 - inside) * (1 + inside))
    half = 2 / (math.pi * a) + 0.5 * log
    square = jnp.sqrt(half * half - log / a) - half
    y = jnp.sqrt(jnp.where(square > 0, square, 0))
    for _ in range(3):
        off = jnp.where(inside < 0.5, lax.erf(y) - inside, (1 - inside) - lax.erfc(y))
        step = off * (0.5 * math.sqrt(math.pi)) * jnp.exp(y * y)
        y = y - step / (1 + y * step)
    found = jnp.where(size < 1, y, jnp.where(size == 1, jnp.inf, jnp.nan))
    return jnp.where(x < 0, -found, found)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: lambda *x, fn=fn, **_: [fn(*x)]
    for name, fn in {
        "lgamma": _lgamma,
        "digamma": _digamma,
        "polygamma": _polygamma,
        "zeta": _zeta,
        "igamma": functools.partial(_incomplete_gamma, upper=False),
        "igammac": functools.partial(_incomplete_gamma, upper=True),
        "igamma_grad_a": _igamma_grad_a,
        "regularized_incomplete_beta": _incomplete_beta,
        "bessel_i0e": functools.partial(_bessel, 0),
        "bessel_i1e": functools.partial(_bessel, 1),
        "erf_inv": _erf_inv,
    }.items()
}

DIFFERENTIATED_BY_JAX = (
    "lgamma",
    "digamma",
    "polygamma",
    "igamma",
    "igammac",
    "bessel_i0e",
    "bessel_i1e",
    "erf_inv",
)
"""What has a derivative in closed form, or one by other functions here."""
