"""Names for the arrays of one state, so that signatures read like the theory; and whether they have values."""

from typing import Any

import jax
from jax.core import Tracer
from jaxtyping import Array, Float

Time = Float[Array, ""]
Coordinates = Float[Array, " nq"]
"""Generalized coordinates q."""
Velocities = Float[Array, " n"]
"""Generalized velocities (or quasi-velocities) v."""
Forces = Float[Array, " n"]
"""Generalized forces, conjugate to v."""
MassMatrix = Float[Array, "n n"]


def is_traced(*values: Any) -> bool:
    """Whether JAX is tracing any array in these pytrees, so that its value cannot be looked at.

    **Arguments:**

    - `values`: pytrees.
    """
    return any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(values))
