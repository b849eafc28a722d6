"""What tuning makes small: the mean square of the constraint errors along a run, and what stiffness costs."""

from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._misc._arguments import fails, real_array, require_between, require_not_negative
from .._misc._errors import InputError, format_value
from .._run._trajectory import Trajectory
from .._system._stabilize import AbstractStabilizer


@final
class Violation(eqx.Module):
    """How far a run is off its constraints at k times; times it did not reach are infinite.

    - `t`: times [s] (k,).
    - `position_error`: phi (k, m).
    - `velocity_error`: psi (k, m).
    """

    t: Float[Array, " k"]
    position_error: Float[Array, "k m"]
    velocity_error: Float[Array, "k m"]


def _weight(name: str, value: Any, ndim: int = 0) -> Any:
    """A number stays one: a default argument must not make arrays when ukjax is imported."""
    try:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        weight = float(value) if is_number else real_array(name, value)
    except OverflowError as error:
        raise InputError(f"{name} must be finite, got {format_value(value)}.") from error
    if np.ndim(weight) != ndim:
        raise InputError(f"{name} has shape {np.shape(weight)}; it must be a {('scalar', 'vector')[ndim]}.")
    require_not_negative(name, weight)
    return weight


def _window(given: Any) -> tuple[float, float]:
    try:
        start, end = map(float, given)
    except (TypeError, ValueError):
        start, end = np.nan, np.nan
    if not start < end:
        raise InputError(f"window must be a start and a later end in seconds, got {given!r}.")
    return start, end


@final
class ViolationLoss(eqx.Module):
    """The mean over the saved times of sum_i w_i (position phi_i^2 + velocity psi_i^2), over the rows i.

    With a budget, the loss of gains is this times 1 + (N / budget)^2, where N counts the evaluations of the
    acceleration: larger gains are stiffer, which costs a solver with adaptive steps evaluations instead of stability.
    A count has no derivative; N's is taken as if it were proportional to the largest sqrt(alpha^2 + beta) of the
    rows, which bounds the roots of s^2 + alpha s + beta.

    **Arguments:**

    - `position`: weight of the squared position errors.
    - `velocity`: weight of the squared velocity errors.
    - `window`: (start, end) [s], the times that count; by default all.
    - `row_weights`: w (m,), one a row; by default 1.
    - `budget`: evaluations that runs may take (steps, where unknown). By default, where steps are adaptive and
      the solver is explicit, as many as with the gains given; none at fixed steps, which bound the gains themselves.

    **Raises:** `InputError` for negative weights, or none at all, and a window that is none.
    """

    position: float | Float[Array, ""]
    velocity: float | Float[Array, ""]
    window: tuple[float, float] | None = eqx.field(static=True)
    row_weights: Float[Array, " m"] | None
    budget: float | None = eqx.field(static=True)

    def __init__(
        self,
        position: float | Array = 1.0,
        velocity: float | Array = 0.0,
        *,
        window: tuple[float, float] | None = None,
        row_weights: Array | None = None,
        budget: float | None = None,
    ):
        self.position, self.velocity = _weight("position", position), _weight("velocity", velocity)
        if fails(lambda *weights: any(weights), self.position, self.velocity):
            raise InputError("position and velocity are both 0: one of the weights must be positive.")
        self.window = None if window is None else _window(window)
        self.row_weights = None if row_weights is None else _weight("row_weights", row_weights, 1)
        if budget is not None:
            require_between("budget", budget, 0, np.inf)
        self.budget = budget

    def __call__(self, run: Trajectory | Violation) -> Float[Array, ""]:
        """The loss, without the budget's factor.

        **Arguments:**

        - `run`: a trajectory, or its errors alone.
        """
        phi, psi, dtype = run.position_error, run.velocity_error, run.t.dtype
        counts = jnp.isfinite(run.t)
        if self.window is not None:
            counts &= (run.t >= self.window[0]) & (run.t <= self.window[1])
        squares = [
            jnp.asarray(weight, dtype) * jnp.where(counts[:, None], error, 0) ** 2
            for weight, error in ((self.position, phi), (self.velocity, psi))
        ]
        rows = jnp.sum(squares[0] + squares[1], axis=0)
        if self.row_weights is not None:
            if self.row_weights.shape != rows.shape:
                raise InputError(f"row_weights has shape {self.row_weights.shape}; the rows are {rows.size}.")
            rows = self.row_weights.astype(dtype) * rows
        return jnp.sum(rows) / jnp.sum(counts).astype(dtype)


def fastest_rate(gains: Any) -> Float[Array, ""] | None:
    """A bound on the fastest rate [1/s] at which the stabilizers among the gains damp an error; None where none does."""
    is_stabilizer = lambda x: isinstance(x, AbstractStabilizer)
    each = [x.fastest_rate for x in jax.tree.leaves(gains, is_leaf=is_stabilizer) if is_stabilizer(x)]
    rates = [rate for rate in each if rate is not None]
    return jnp.max(jnp.stack(rates)) if rates else None
