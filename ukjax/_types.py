"""Names for the arrays of one state, so that signatures read like the theory."""

from jaxtyping import Array, Float

Time = Float[Array, ""]
Coordinates = Float[Array, " nq"]
"""Generalized coordinates q."""
Velocities = Float[Array, " n"]
"""Generalized velocities (or quasi-velocities) v."""
Forces = Float[Array, " n"]
"""Generalized forces, conjugate to v."""
MassMatrix = Float[Array, "n n"]
