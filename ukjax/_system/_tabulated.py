"""Functions of time given by a table: measured loads, motions from a file."""

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any, Literal, final, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import scipy.linalg
from jaxtyping import Array, Float

from .._misc._arguments import fails, one_of, real_array, require_finite
from .._misc._closures import equal_to_itself
from .._misc._errors import InputError
from .._misc._types import Numbers, Time, arrays_of, as_jax, is_traced, module_for

Kind = Literal["hold", "linear", "cubic"]
_LEAST: dict[Kind, int] = {"hold": 1, "linear": 2, "cubic": 4}


_are_found: contextvars.ContextVar[bool] = contextvars.ContextVar("tables are found", default=False)


@contextlib.contextmanager
def held_tables_are_found() -> Iterator[None]:
    """Tables whose values jump are refused within: a run has found those of its system, and ends steps at no others."""
    token = _are_found.set(True)
    try:
        yield
    finally:
        _are_found.reset(token)


@final
@equal_to_itself
class Tabulated(eqx.Module):
    """A function of time through the points of a table: f(t_i) = y_i. A system may call it anywhere.

    Between times it is a straight line, or a cubic spline, whose first and second derivatives are continuous
    (C. de Boor, A Practical Guide to Splines, 1978, chapter IV, "not-a-knot": the third derivative is continuous at the
    second and the last but one time). For what is differentiated twice, such as a driven motion, take the spline. Or the
    value is held until the next time: f(t) = y_i for t_i <= t < t_i+1, a zero-order hold, as of a digital controller.
    Before the first and after the last time the value at the end is held.

    In a run of `simulate` steps end where a held value jumps, if the table is a field of the system, or a local variable
    around its functions; one that a function makes while the run calls it is refused. Steps of your own (`step`,
    Diffrax's solvers) should end there as well.

    It can be differentiated by its argument and by `values`, and by `times` but for held values, where that derivative is
    zero, which for a run it is not. It has scalar code for up to some 4,000 times.

    **Arguments:**

    - `times`: increasing times [s] (k,), k >= 2; k >= 4 for `"cubic"`, k >= 1 for `"hold"`.
    - `values`: the values there (k,) or (k, ...), in any unit.
    - `kind`: `"linear"`, `"cubic"` or `"hold"`.

    **Raises:** `InputError` for times that do not increase, shapes that do not fit, numbers that are not finite, and held
    values in a table that a function makes within a run.
    """

    times: Float[Array, " k"]
    coefficients: tuple[Float[Array, "intervals ..."], ...]
    """Of the powers of t - t_i in each interval, the constant first; held values have an interval after the last time."""

    def __init__(self, times: Numbers, values: Numbers, *, kind: Kind = "linear"):
        times, values = real_array("times", times), real_array("values", values)
        one_of("kind", kind, get_args(Kind))
        if kind == "hold" and _are_found.get():
            raise InputError(
                "a table of kind 'hold' was made within a run, by a function of its system: no step would end where its "
                "values jump, and derivatives by its times would be zero. Make it before, and have the function call it."
            )
        if times.ndim != 1 or values.shape[:1] != times.shape:
            raise InputError(
                f"times and values have shapes {times.shape} and {values.shape}; they must be (k,) and (k, ...)."
            )
        if times.size < _LEAST[kind]:
            raise InputError(f"a {kind} table needs at least {_LEAST[kind]} times, got {times.size}.")
        require_finite("times", times)
        require_finite("values", values)
        if fails(lambda t: np.all(np.diff(t) > 0), times):
            raise InputError("times must increase, each greater than the one before.")
        with jax.numpy_dtype_promotion("standard"):
            dtype = jnp.result_type(times, values)
        times, values = (x.astype(dtype) for x in arrays_of(times, values))
        make = {"linear": _lines, "cubic": _spline, "hold": lambda times, values: (values,)}[kind]
        self.times, self.coefficients = as_jax(times), tuple(map(as_jax, make(times, values)))

    @property
    def holds(self) -> bool:
        """Whether values are held until the next time, and jump there."""
        return len(self.coefficients) == 1

    def __call__(self, t: Time | float) -> Float[Array, "..."]:
        """f(t), of the shape of one of the values.

        **Arguments:**

        - `t`: time [s].
        """
        times = self.times
        t = real_array("t", t).astype(times.dtype)
        t = jnp.where(t < times[0], times[0], jnp.where(t > times[-1], times[-1], t))
        i = jnp.clip(jnp.searchsorted(times, t, side="right") - 1, 0, len(self.coefficients[0]) - 1)
        rest, (*lower, found) = t - times[i], (c[i] for c in self.coefficients)
        for c in reversed(lower):
            found = c + rest * found
        return found


def _expand_lengths(h: Array, values: Array) -> Array:
    """The lengths of intervals with as many dimensions as the values."""
    return h.reshape(-1, *[1] * (values.ndim - 1))


def _lines(times: Array, values: Array) -> tuple[Array, ...]:
    xp = module_for(times, values)
    return values[:-1], xp.diff(values, axis=0) / _expand_lengths(xp.diff(times), values)


def _spline(times: Array, values: Array) -> tuple[Array, ...]:
    """With second derivatives m: h_i-1 m_i-1 + 2 (h_i-1 + h_i) m_i + h_i m_i+1 = 6 (s_i - s_i-1), slopes s.

    Not-a-knot: m_0 and the last m lie on the lines through their two neighbours.
    """
    xp = module_for(times, values)
    h = xp.diff(times)
    slopes = xp.diff(values, axis=0) / _expand_lengths(h, values)
    first, last = h[0] / h[1], h[-1] / h[-2]
    inner = h[1:-1]
    upper = xp.concatenate([inner[:1] - h[0] * first, inner[1:]])
    lower = xp.concatenate([inner[:-1], inner[-1:] - h[-1] * last])
    diagonal = 2 * (h[:-1] + h[1:])
    starts, ends = diagonal[:1] + h[0] * (1 + first), diagonal[-1:] + h[-1] * (1 + last)
    diagonal = xp.concatenate([starts, diagonal[1:-1], ends])
    right = 6 * xp.diff(slopes, axis=0)
    m = _solve_tridiagonal(lower, diagonal, upper, right.reshape(len(right), -1)).reshape(right.shape)
    start, end = (1 + first) * m[:1] - first * m[1:2], (1 + last) * m[-1:] - last * m[-2:-1]
    m = xp.concatenate([start, m, end])
    h = _expand_lengths(h, values)
    linear = slopes - h * (2 * m[:-1] + m[1:]) / 6
    return values[:-1], linear, m[:-1] / 2, (m[1:] - m[:-1]) / (6 * h)


def _solve_tridiagonal(lower: Any, diagonal: Any, upper: Any, right: Any) -> Any:
    """The solution of a system with one diagonal on each side, for each column."""
    if not is_traced((lower, diagonal, upper, right)):
        bands = np.stack([np.append(0, upper), diagonal, np.append(lower, 0)])
        return scipy.linalg.solve_banded((1, 1), bands, right).astype(right.dtype)
    operator = lx.TridiagonalLinearOperator(*map(jnp.asarray, (diagonal, lower, upper)))
    solve = lambda column: lx.linear_solve(operator, column, lx.Tridiagonal(), throw=False).value
    return jax.vmap(solve, 1, 1)(right)
