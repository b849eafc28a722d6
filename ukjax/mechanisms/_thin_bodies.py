"""Whether a step takes thin bodies through each other.

Two bodies are apart by a(n) = min n . b - max n . a along a direction n; along the normal at the start of a step that is
their gap. In a step that takes them through each other, a(n) of the same n falls below minus the sum of the radii of
balls within both. As long as it stays above a part of the smaller radius, the shortest way out of an overlap is the way
in, and bodies behind the thinner one are where they were.
"""

from collections.abc import Sequence

import jax.numpy as jnp
from jaxtyping import Array

from ._placement import AnyPlacement

_OVERLAP = 0.25  # of that radius: less takes more steps, more lets pass what grazes


def share_without_passing(start: Array, end: Array, inradii: Sequence[Array]) -> Array:
    """How much of a step may be taken that leads from one a(n) to another, of bodies with balls of two radii within."""
    low, high = jnp.minimum(*inradii), jnp.maximum(*inradii)
    least = -_OVERLAP * jnp.where(low > 0, low, high)
    passes = (end < least) & (start > least)
    return jnp.where(passes, (start - least) / jnp.where(passes, start - end, 1), 1)


def bow(size: Array, start: AnyPlacement, end: AnyPlacement) -> Array:
    """How far points of a body that turns leave the straight lines between the ends of their ways, to leading order:
    angle^2 size / 4, twice as far as if it turned about its middle."""
    turns = [end.vector(x) - start.vector(x) for x in jnp.eye(start.p.size, dtype=start.p.dtype)]
    return sum((jnp.dot(x, x) for x in turns), jnp.zeros_like(size)) * size / 8
