"""Modes: eigenvalues and eigenvectors of a linearized system.

    A x = lambda x,    lambda = -zeta omega +- i omega sqrt(1 - zeta^2)

with the natural frequency omega = |lambda| and the damping ratio zeta. The derivative at simple eigenvalues, with X of
eigenvectors and G = X^-1 dA X, is d lambda_i = G_ii and dX = X (G_ij / (lambda_j - lambda_i)), i /= j (Magnus 1985).
"""

from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

from .._misc._arguments import require_instance
from .._misc._errors import InputError
from .._misc._types import Coordinates, in_full_precision, is_traced
from ._linearize import Linearization


@final
class Modes(eqx.Module):
    """The modes of a linearized system.

    Those with Im lambda >= 0 come first, in the order of |lambda|; their conjugates follow.

    `print(modes)` shows the first ones as a table.

    - `eigenvalues`: lambda [1/s] (k,).
    - `vectors`: of independent coordinates and velocities, a column for each mode (k, k).
    - `shapes`: the change of all coordinates, a column for each mode, the largest entry 1 (n_q, k).
    - `labels`: names of all coordinates.
    """

    eigenvalues: Complex[Array, " k"]
    vectors: Complex[Array, "k k"]
    shapes: Complex[Array, "nq k"]
    labels: tuple[str, ...] = eqx.field(static=True)

    @property
    def frequencies(self) -> Float[Array, " k"]:
        """Natural frequencies |lambda| / (2 pi) [Hz]."""
        return jnp.abs(self.eigenvalues) / (2 * np.pi)

    @property
    def damping_ratios(self) -> Float[Array, " k"]:
        """zeta = -Re lambda / |lambda|: 1 of what only decays, -1 of what only grows; NaN where lambda is 0."""
        return (0 - self.eigenvalues.real) / jnp.abs(self.eigenvalues)  # 0, not -0, of what is undamped

    def motion(self, q: Coordinates, mode: int, amplitude: float, phases: Array) -> Float[Array, "p nq"]:
        """The coordinates as the mode swings, to first order: q + amplitude Re(shape e^(i phase)).

        **Arguments:**

        - `q`: where it was linearized (n_q,).
        - `mode`: its number.
        - `amplitude`: of the coordinate that moves most [m], [rad].
        - `phases`: (p,) [rad].
        """
        turned = jnp.exp(1j * jnp.asarray(phases))[:, None] * self.shapes[:, mode][None]
        return jnp.asarray(q)[None] + amplitude * turned.real

    def __str__(self) -> str:
        if is_traced(self) or self.eigenvalues.ndim != 1:
            return repr(self)
        lines = ["  Hz            damping       moves most"]
        for k in np.flatnonzero(np.asarray(self.eigenvalues.imag) >= 0):
            label = self.labels[int(_moves_most(self.shapes)[k])]
            lines.append(f"  {self.frequencies[k]:<12.6g}  {self.damping_ratios[k]:<12.4g}  {label}")
        return "\n".join(lines)


def _moves_most(shapes: Array) -> Array:
    """The first coordinate of those that move most but for rounding, of each mode."""
    sizes = jnp.abs(shapes)
    least = (1 - jnp.finfo(sizes.dtype).eps ** 0.5) * jnp.max(sizes, axis=0, keepdims=True)
    return jnp.argmax(sizes >= least, axis=0)


@jax.custom_jvp
def _eigen(A: Array) -> tuple[Array, Array]:
    values, X = jnp.linalg.eig(A)
    noise = 1e2 * jnp.finfo(A.dtype).eps * jnp.max(jnp.abs(values), initial=0)
    order = jnp.lexsort((jnp.abs(values), values.imag < -noise))
    return values[order], X[:, order]


@_eigen.defjvp
@in_full_precision
def _(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
    values, X = _eigen(*primals)
    G = jnp.linalg.solve(X, tangents[0].astype(X.dtype) @ X)
    gaps = values[None, :] - values[:, None] + jnp.eye(len(values), dtype=X.dtype)
    own = jnp.eye(len(values), dtype=bool)
    return (values, X), (jnp.diag(G), X @ jnp.where(own, 0, G / gaps))


def modes(linearization: Linearization) -> Modes:
    """Eigenfrequencies, damping ratios and mode shapes of a linearized system, closed loops or not.

    On a GPU, JAX finds eigenvalues in some versions only. The derivative is that of simple eigenvalues.

    **Arguments:**

    - `linearization`: from `linearize`, best of an equilibrium.

    **Returns:** `Modes`.

    **Raises:** `InputError` for what is no linearization.
    """
    require_instance("linearization", linearization, Linearization, "linearize(problem)")
    if not is_traced(linearization.A) and not np.all(np.isfinite(linearization.A)):
        raise InputError("the linearization is not finite.")
    values, X = jax.jit(_eigen)(linearization.A)
    shapes = linearization.to_q.astype(X.dtype) @ X
    largest = _moves_most(shapes)
    shapes = shapes / shapes[largest, jnp.arange(len(values))][None]
    return Modes(values, X, shapes, linearization.labels)
