"""What keeps constraint errors small: a correction of the right-hand side b, a projection after every step, or both.

`Projection`, which does the latter, stands beside what it does in `_project`.
"""

from typing import final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._misc._arguments import real_array, require_not_negative
from .._misc._errors import InputError
from .._misc._types import is_traced
from .._pseudoinverse import AbstractPseudoinverse
from ._rows import Rows


class AbstractStabilizer(eqx.Module):
    """How constraint errors are kept small: `NoStabilizer`, `Baumgarte` or `Projection`.

    One of your own overrides what it does of the three below; by default a stabilizer does nothing. It may correct b and
    have states projected.
    """

    def right_hand_side(self, rows: Rows) -> Float[Array, " m"]:
        """The b (m,) to enforce in A a = b; by default `rows.b`."""
        return rows.b

    @property
    def projection_method(self) -> AbstractPseudoinverse | None:
        """The pseudoinverse method by which the start of a run and the end of each step are projected onto the
        constraints, as `uk.project` does; None (the default) where they stay as they are."""
        return None

    @property
    def projects(self) -> bool:
        """Whether states are projected."""
        return self.projection_method is not None

    @property
    def fastest_rate(self) -> Float[Array, ""] | None:
        """A bound on the fastest rate [1/s] at which errors are damped, which `uk.tune` keeps steps short enough for;
        None (the default) where there is none."""
        return None


@final
class NoStabilizer(AbstractStabilizer):
    """Enforces A a = b as it stands: an initial violation grows linearly, and rounding drifts."""


def _gain(value: Array | float, name: str) -> Array:
    gain = real_array(f"the gain {name}", value)
    if gain.ndim > 1:
        raise InputError(f"the gain {name} has shape {gain.shape}; give a scalar or one value per row.")
    require_not_negative(f"the gain {name}", value)
    return gain


@final
class Baumgarte(AbstractStabilizer):
    """Baumgarte's stabilization, psi' + alpha psi + beta phi = 0 (Xu-Liu 2017, eq. (52)).

    `Baumgarte.squared(alpha, beta)` is the other convention, psi' + 2 alpha psi + beta^2 phi = 0 (DPV 2008,
    eq. (32); Liu 2015). Nonholonomic rows have psi' + alpha psi = 0 (or 2 alpha psi).

    **Arguments:**

    - `alpha`: velocity gain [1/s], a scalar or one per row (m,).
    - `beta`: position gain [1/s^2], a scalar or one per row (m,).

    **Raises:** `InputError` for a negative or non-finite gain.
    """

    alpha: Float[Array, "..."]
    beta: Float[Array, "..."]

    def __init__(self, alpha: Array | float, beta: Array | float):
        self.alpha = _gain(alpha, "alpha")
        self.beta = _gain(beta, "beta")

    def __repr__(self) -> str:
        """With the numbers, where they have values."""
        shown = (x if is_traced(x) else np.asarray(x).tolist() for x in (self.alpha, self.beta))
        return "Baumgarte(alpha={}, beta={})".format(*shown)

    @classmethod
    def squared(cls, alpha: Array | float, beta: Array | float) -> "Baumgarte":
        """The convention psi' + 2 alpha psi + beta^2 phi = 0; critically damped where alpha = beta.

        **Arguments:**

        - `alpha`: damping [1/s], a scalar or one per row.
        - `beta`: natural frequency [1/s], a scalar or one per row.
        """
        return cls(2 * _gain(alpha, "alpha"), _gain(beta, "beta") ** 2)

    def right_hand_side(self, rows: Rows) -> Float[Array, " m"]:
        m, dtype = rows.b.shape, rows.b.dtype
        for name, gain in (("alpha", self.alpha), ("beta", self.beta)):
            if gain.shape not in ((), m):
                raise InputError(
                    f"the gain {name} has shape {gain.shape}; give a scalar or one value for each of the "
                    f"{m[0]} rows {', '.join(rows.names)}."
                )
        alpha, beta = (jnp.broadcast_to(gain.astype(dtype), m) for gain in (self.alpha, self.beta))
        return rows.b - alpha * rows.velocity_error - beta * rows.position_error

    @property
    def fastest_rate(self) -> Float[Array, ""]:
        return jnp.max(jnp.sqrt(self.alpha**2 + self.beta))
