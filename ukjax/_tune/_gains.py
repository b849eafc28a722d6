"""The gains as one vector of logarithms, in which no step can make them negative."""

from typing import Any, Literal, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._misc._arguments import one_of, real_array
from .._misc._errors import InputError
from .._misc._types import as_jax, module_for
from .._system._stabilize import AbstractStabilizer, Baumgarte

Convention = Literal["plain", "squared"]


def to_convention(gains: Any, convention: Convention) -> Any:
    """Baumgarte's alpha and beta as the convention writes them; other gains as they are."""
    if convention == "plain":
        return gains
    return eqx.tree_at(lambda g: (g.alpha, g.beta), gains, (gains.alpha / 2, jnp.sqrt(gains.beta)))


def _positive(name: str, value: Any) -> np.ndarray:
    value = np.asarray(real_array(f"the gain {name}", value))
    if not np.all((value > 0) & np.isfinite(value)):
        raise InputError(f"the gain {name} must be positive to be tuned, got {value}.")
    return value


def as_given(given: Any, found: Any) -> Any:
    """The gains found, with Python numbers and arrays of NumPy's where the gains given have them."""

    def entry(before: Any, x: Any) -> Any:
        plain = isinstance(before, int | float) and not isinstance(before, bool)
        return float(x) if plain else np.asarray(x) if isinstance(before, np.ndarray) else x

    return jax.tree.map(entry, given, found)


@final
class GainSpace(eqx.Module):
    """Maps gains to x = log(gain), one entry each, and back."""

    given: Any  # the gains, as the convention writes them
    convention: Convention = eqx.field(static=True)  # how alpha and beta are written
    names: tuple[str, ...] = eqx.field(static=True)  # of the entries
    # `groups`: entries with the same number belong to one gain, such as alpha of several rows.
    groups: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, gains: Any, convention: Convention, rows: int | None):
        one_of("convention", convention, ("plain", "squared"))
        if not isinstance(gains, Baumgarte) and (convention == "squared" or rows is not None):
            raise InputError("convention and per_row are for Baumgarte's gains: give Baumgarte(alpha, beta).")
        numeric = lambda x: eqx.is_array_like(x) and not isinstance(x, bool)
        values, rest = eqx.partition(gains, numeric)
        paths, structure = jax.tree_util.tree_flatten_with_path(values)
        leaves, names, groups = [], [], []
        for group, (path, value) in enumerate(paths):
            name = jax.tree_util.keystr(path, simple=True, separator=".")
            value = _positive(name, value)
            if rows is not None and value.ndim == 0:
                value = np.full(rows, value)
            leaves.append(as_jax(value))
            names += [name] if value.ndim == 0 else [f"{name}[{i}]" for i in range(value.size)]
            groups += value.size * [group]
        if not leaves:
            whose = type(gains).__name__ if isinstance(gains, AbstractStabilizer) else repr(gains)
            raise InputError(f"{whose} has no gains to tune; give Baumgarte(alpha, beta), say.")
        self.given = to_convention(
            eqx.combine(jax.tree_util.tree_unflatten(structure, leaves), rest), convention
        )
        self.convention, self.names, self.groups = convention, tuple(names), tuple(groups)

    @property
    def start(self) -> Float[Array, " d"]:
        """x of the gains given."""
        leaves = jax.tree.leaves(eqx.filter(self.given, eqx.is_array))
        return as_jax(np.log(np.concatenate([np.asarray(leaf, float).ravel() for leaf in leaves])))

    def gains(self, x: Float[Array | np.ndarray, " d"]) -> Any:
        """The gains of a vector."""
        values, rest = eqx.partition(self.given, eqx.is_array)
        leaves, structure = jax.tree.flatten(values)
        ends = np.cumsum([leaf.size for leaf in leaves])
        xp = module_for(x)
        parts = xp.split(xp.exp(xp.asarray(x)), ends[:-1])
        shaped = [
            as_jax(part.reshape(leaf.shape).astype(leaf.dtype))
            for part, leaf in zip(parts, leaves, strict=True)
        ]
        gains = eqx.combine(jax.tree.unflatten(structure, shaped), rest)
        if self.convention == "plain":
            return gains
        return eqx.tree_at(lambda g: (g.alpha, g.beta), gains, (2 * gains.alpha, gains.beta**2))

    @property
    def alike(self) -> Float[np.ndarray, "d k"]:
        """The map from one entry for each of the k gains to all entries, those of one gain alike."""
        return np.eye(max(self.groups) + 1)[list(self.groups)]


def scatter_points(count: int, dimension: int, first: int = 0) -> Float[np.ndarray, "count dimension"]:
    """Points that fill the unit cube evenly, from a given one on: a Kronecker sequence with the powers of 1 / g,
    where g^(dimension + 1) = g + 1.
    """
    golden = 2.0
    for _ in range(50):
        golden = (1 + golden) ** (1 / (dimension + 1))
    steps = golden ** -np.arange(1.0, dimension + 1)
    return (0.5 + np.outer(first + np.arange(1, count + 1), steps)) % 1.0
