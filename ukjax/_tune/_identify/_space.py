"""Parameters as one vector z in which no step leaves their bounds, and as the numbers that are reported.

A number above a bound is searched by the logarithm of its distance from it, one between two bounds by the logit. The
mass, centre and inertia of a body are searched by the log-Cholesky parameters of its pseudo-inertia (Rucker and Wensing
2022): J = [[S, h], [h^T, m]] = U U^T with the second moments S = tr(I)/2 - I about the origin, h = m c and U upper
triangular with a positive diagonal. Every z is a body that can exist, and every such body has a z.
"""

import abc
from collections.abc import Mapping
from typing import Any, final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..._misc._arguments import real_array, require_finite, require_instance
from ..._misc._errors import InputError, format_value, require_known
from ..._misc._types import arrays_of, as_jax, module_for
from ...mechanisms import AbstractBody, Body, PlanarBody, PointMass

# --- Numbers with bounds


def to_search(x: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """z of numbers within their bounds; infinite on a bound."""
    with np.errstate(divide="ignore", invalid="ignore"):
        above, below = np.isfinite(low), np.isfinite(high)
        return np.select(
            [above & below, above, below],
            [np.log((x - low) / (high - x)), np.log(x - low), -np.log(high - x)],
            x,
        )


def from_search(z: Any, low: Any, high: Any) -> Array:
    """Numbers within their bounds."""
    z, low, high = given = arrays_of(z, low, high)
    xp = module_for(*given)
    above, below = xp.isfinite(low), xp.isfinite(high)
    lowest, highest = xp.where(above, low, 0.0), xp.where(below, high, 0.0)
    # exp(z) of a free number may overflow, and its derivative with it
    exponent = xp.where(above | below, z, 0.0)
    both = lowest + (highest - lowest) * xp.exp(-xp.logaddexp(0.0, -exponent))
    one = xp.where(above, lowest + xp.exp(exponent), highest - xp.exp(-exponent))
    return xp.where(above & below, both, xp.where(above | below, one, z))


def search_slope(x: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The derivative of numbers by z."""
    above, below = np.isfinite(low), np.isfinite(high)
    with np.errstate(invalid="ignore"):
        both = (x - low) * (high - x) / (high - low)
        return np.select([above & below, above, below], [both, x - low, high - x], 1.0)


# --- Parameters


class AbstractPart(eqx.Module):
    """One parameter: its numbers in z, and what they make."""

    names: eqx.AbstractVar[tuple[str, ...]]  # of the numbers that are reported
    z: eqx.AbstractVar[Array]  # where the search starts
    # `size`: how far z may change at first, where the data do not say; infinite where nothing does.
    size: eqx.AbstractVar[Array]
    # `low`, `high`: their bounds.
    low: eqx.AbstractVar[Array]
    high: eqx.AbstractVar[Array]

    @abc.abstractmethod
    def value(self, z: Array) -> Any:
        """What the model is given."""

    @abc.abstractmethod
    def numbers(self, value: Any) -> Array:
        """What is reported of that."""

    @abc.abstractmethod
    def as_given(self, value: Any) -> Any:
        """The value, as the user gave it: a Python number, or an array of NumPy's."""


def _bound(name: str, given: Any, infinite: float, shape: tuple[int, ...]) -> np.ndarray:
    array = np.asarray(infinite if given is None else real_array(f"the bounds of '{name}'", given), float)
    if array.shape not in ((), shape) or np.isnan(array).any():
        raise InputError(
            f"a bound of '{name}' must be a number or have shape {shape}, got {format_value(given)}."
        )
    return np.broadcast_to(array, shape)


@final
class NumberPart(AbstractPart):
    """Numbers, each with its bounds."""

    names: tuple[str, ...] = eqx.field(static=True)
    z: Array
    size: Array
    low: Array
    high: Array
    shape: tuple[int, ...] = eqx.field(static=True)
    plain: bool = eqx.field(static=True)

    def __init__(self, name: str, given: Any, bounds: Any):
        x = np.asarray(real_array(f"the first guess of '{name}'", given), float)
        require_finite(f"the first guess of '{name}'", x)
        if not isinstance(bounds, tuple | list) or len(bounds) != 2:
            raise InputError(
                f"bounds of '{name}' must be a pair (low, high), None for none, got {format_value(bounds)}."
            )
        low, high = (_bound(name, b, e, x.shape) for b, e in zip(bounds, (-np.inf, np.inf), strict=True))
        if not np.all(low < high):
            raise InputError(f"bounds of '{name}' must have low < high, got {format_value(bounds)}.")
        if not np.all((low < x) & (x < high)):
            raise InputError(
                f"the first guess of '{name}' must lie between its bounds {bounds}, got {format_value(given)}."
            )
        low, high, flat = low.ravel(), high.ravel(), x.ravel()
        free = ~(np.isfinite(low) | np.isfinite(high))
        self.names = tuple(name + "".join(f"[{i}]" for i in place) for place in np.ndindex(x.shape))
        self.z = as_jax(to_search(flat, low, high))
        self.size = jnp.asarray(np.where(free, np.where(flat == 0, np.inf, np.abs(flat)), 1.0))
        self.low, self.high, self.shape = as_jax(low), as_jax(high), x.shape
        self.plain = isinstance(given, int | float)

    def value(self, z: Array) -> Array:
        return as_jax(from_search(z, self.low, self.high).reshape(self.shape))

    def numbers(self, value: Any) -> Array:
        return jnp.ravel(value)

    def as_given(self, value: Any) -> Any:
        return float(value) if self.plain else np.asarray(value)


_THICK = 1e-9  # least share of the second moment along an axis in their sum: below, a body has no logarithm
_UPPER, _INERTIA = np.triu_indices(3, 1), np.triu_indices(3)


def _log_cholesky(name: str, body: Body) -> np.ndarray:
    """log diag U and what stands above, of U U^T = S / m about the centre of mass."""
    inertia = np.asarray(body.inertia, float)
    moments = (0.5 * np.trace(inertia) * np.eye(3) - inertia) / float(body.mass)
    if not np.linalg.eigvalsh(moments)[0] > _THICK * np.trace(moments):
        raise InputError(
            f"the body of parameter '{name}' has no thickness in some direction, so that not all inertias near to "
            "its own are possible: give it some, such as um.rod(..., radius=)."
        )
    U = np.linalg.cholesky(moments[::-1, ::-1])[
        ::-1, ::-1
    ]  # of the matrix turned round, whose factor is lower
    return np.concatenate([np.log(np.diag(U)), U[_UPPER]])


@final
class BodyPart(AbstractPart):
    """The mass, centre and inertia of a body."""

    names: tuple[str, ...] = eqx.field(static=True)
    z: Array
    size: Array
    low: Array
    high: Array
    body: Any

    def __init__(self, name: str, body: AbstractBody):
        d, extent = body.dimension, np.inf
        parts = [np.log(np.atleast_1d(np.asarray(body.mass, float))), np.asarray(body.centre, float)]
        names = ["mass", *(f"centre[{i}]" for i in range(d))]
        if isinstance(body, PlanarBody):
            parts.append(np.log(np.atleast_1d(np.asarray(body.inertia, float))))
            names.append("inertia")
            extent = float(np.sqrt(body.inertia / body.mass))
        elif isinstance(body, Body):
            parts.append(_log_cholesky(name, body))
            names += [f"inertia[{i},{j}]" for i, j in zip(*_INERTIA, strict=True)]
            extent = float(np.exp(parts[-1][:3]).max())
        z = np.concatenate(parts)
        is_length = [*[False], *d * [True], *(z.size - d - 1) * [False]]
        is_length[d + 4 :] = len(is_length[d + 4 :]) * [True]  # U above its diagonal
        positive = [x in ("mass", "inertia") or (x[-4:-3] == x[-2:-1] and x[0] == "i") for x in names]
        self.names, self.z, self.body = tuple(f"{name}.{x}" for x in names), jnp.asarray(z), body
        self.size = jnp.asarray(np.where(is_length, extent, 1.0))
        self.low, self.high = jnp.where(jnp.asarray(positive), 0.0, -jnp.inf), jnp.full(len(names), jnp.inf)

    def value(self, z: Array) -> AbstractBody:
        body, mass, d = self.body, jnp.exp(z[0]), self.body.dimension
        centre, rest = z[1 : 1 + d], z[1 + d :]
        if isinstance(body, PointMass):
            return eqx.tree_at(lambda x: (x.mass, x.centre), body, (mass, centre))
        if isinstance(body, PlanarBody):
            inertia = jnp.exp(rest[0])
        else:
            U = jnp.diag(jnp.exp(rest[:3])).at[_UPPER].set(rest[3:])
            moments = mass * (U @ U.T)
            inertia = jnp.trace(moments) * jnp.eye(3) - moments
        return eqx.tree_at(lambda x: (x.mass, x.centre, x.inertia), body, (mass, centre, inertia))

    def numbers(self, value: Any) -> Array:
        more = []
        if isinstance(value, PlanarBody):
            more.append(value.inertia[None])
        elif isinstance(value, Body):
            more.append(value.inertia[_INERTIA])
        return jnp.concatenate([value.mass[None], value.centre, *more])

    def as_given(self, value: Any) -> Any:
        return value


@final
class Space(eqx.Module):
    """All parameters: their names, and what each is, in the same order. (JAX would sort a dict.)"""

    keys: tuple[str, ...] = eqx.field(static=True)
    parts: tuple[AbstractPart, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for part in self.parts for name in part.names)

    @property
    def size(self) -> int:
        """How many numbers are searched."""
        return sum(part.z.size for part in self.parts)

    def joined(self, field: str) -> np.ndarray:
        """A field of all parts as one vector."""
        return np.concatenate([np.zeros(0), *(np.asarray(getattr(part, field)) for part in self.parts)])

    def values(self, z: Any) -> dict[str, Any]:
        """What the model is given."""
        found, begin = {}, 0
        for key, part in zip(self.keys, self.parts, strict=True):
            found[key] = part.value(z[begin : begin + part.z.size])
            begin += part.z.size
        return found

    def numbers(self, z: Array) -> Array:
        """The numbers that are reported."""
        each = zip(self.parts, self.values(z).values(), strict=True)
        return jnp.concatenate([jnp.zeros(0), *(part.numbers(x) for part, x in each)])

    def as_given(self, z: Array) -> dict[str, Any]:
        """The values, as the user gave them."""
        each = zip(self.parts, self.values(z).items(), strict=True)
        return {key: part.as_given(x) for part, (key, x) in each}


def make_space(parameters: Any, bounds: Any) -> Space:
    """The parameters that are searched."""
    require_instance("parameters", parameters, Mapping, "{'length': 1.0}")
    require_instance("bounds", bounds, Mapping, "{'mass': (0.0, None)}")
    require_known("parameter in bounds", parameters, *bounds)
    parts = []
    for name, given in parameters.items():
        if not isinstance(given, AbstractBody):
            parts.append(NumberPart(name, given, bounds.get(name, (None, None))))
        elif name in bounds:
            raise InputError(
                f"'{name}' is a body, which stays one that can be by itself: leave its bounds out."
            )
        else:
            parts.append(BodyPart(name, given))
    return Space(tuple(parameters), tuple(parts))
