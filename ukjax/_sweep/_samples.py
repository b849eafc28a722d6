"""What a sweep varies: a value of each parameter for every run, on a grid, from a table, or sampled."""

import abc
import hashlib
from collections.abc import Mapping
from typing import Any, final

import equinox as eqx
import numpy as np
from jaxtyping import Int

from .._misc._arguments import require_no_mask, whole_number
from .._misc._errors import InputError, format_value
from ._names import require_name

RUN = "run"
"""The dimension of runs that lie on no grid."""

# Of initial states; other arrays have dimensions of their own.
_INNER = {"q0": "coordinate", "v0": "velocity"}


class AbstractSamples(eqx.Module):
    """Values of named parameters for a number of runs: `Grid`, `Table`, `LatinHypercube` or `Sobol`."""

    values: eqx.AbstractVar[dict[str, np.ndarray]]

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters."""
        return tuple(self.values)

    @property
    @abc.abstractmethod
    def sizes(self) -> dict[str, int]:
        """The dimensions the runs lie along; runs are numbered with the last one fastest."""

    @abc.abstractmethod
    def at(self, runs: Int[np.ndarray, " b"]) -> dict[str, np.ndarray]:
        """The values of some runs, by name (b, ...).

        **Arguments:**

        - `runs`: their numbers.
        """

    @abc.abstractmethod
    def coordinates(self) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
        """Dimensions and values of each parameter over all runs."""

    @abc.abstractmethod
    def describe(self) -> dict[str, Any]:
        """The kind of samples, and what they were drawn by."""


def count(samples: AbstractSamples) -> int:
    """How many runs there are."""
    return int(np.prod(list(samples.sizes.values()), dtype=np.int64))


def digest(samples: AbstractSamples) -> str:
    """A hash of all names and values."""
    hashed = hashlib.sha256(repr(samples.sizes).encode())
    for name, (dims, values) in samples.coordinates().items():
        hashed.update(repr((name, dims, values.shape)).encode())
        hashed.update(
            repr(values.tolist()).encode()
            if values.dtype == object
            else np.ascontiguousarray(values).tobytes()
        )
    return hashed.hexdigest()[:16]


def _values(name: Any, values: Any) -> np.ndarray:
    require_name("a parameter", name)
    require_no_mask(f"the values of {name}", values)
    try:
        if np.asarray(values).dtype.kind in "mM":  # which NumPy takes for numbers
            raise TypeError("times")
        array = np.asarray(values, dtype=float)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"the values of {name} must be numbers, got {format_value(values)}.") from error
    if array.ndim == 0 or array.size == 0:
        raise InputError(
            f"the values of {name} must be an array of at least one number, got {format_value(values)}."
        )
    if not np.all(np.isfinite(array)):
        raise InputError(f"the values of {name} must be finite.")
    return array


def _columns(values: Any) -> dict[str, np.ndarray]:
    """The columns of a mapping, a data frame or an `xarray.Dataset`."""
    if not hasattr(values, "items"):
        raise InputError(f"parameters are a dict from names to values, got {type(values).__name__}.")
    columns = {name: _values(name, getattr(x, "values", x)) for name, x in values.items()}
    if not columns:
        raise InputError("there are no parameters: give a dict such as {'length': [1.0, 2.0]}.")
    return columns


def _label(name: Any, values: Any) -> tuple[str, np.ndarray]:
    """A coordinate along runs: numbers as they are, anything else as text."""
    array, name = np.asarray(values), RUN if name is None else str(name)
    require_name("a label of a table", name)
    return name, array if array.dtype.kind in "biuf" else np.array([str(x) for x in array.tolist()], object)


def _labels(values: Any) -> dict[str, np.ndarray]:
    """The names of the rows of a data frame, of a dict of its columns, or of an `xarray.Dataset`."""
    if hasattr(values, "data_vars"):
        along = {x.dims[:1] for x in values.values()}
        if len(along) > 1:
            raise InputError(
                f"the variables of a table must lie along one dimension, got {sorted(along)}: "
                "give uk.samples.Grid, or a table of all rows such as dataset.stack(run=[...])."
            )
        return dict(_label(name, x.values) for name, x in values.coords.items() if x.dims in along)
    tables = (values,) if hasattr(values, "columns") else values.values()
    indexes = [x.index for x in tables if hasattr(x, "index") and hasattr(x.index, "equals")]
    if not indexes:
        return {}
    index, *others = indexes
    if not all(index.equals(other) for other in others):
        raise InputError(
            "the columns of a table have different indexes: align them, as pandas.DataFrame does."
        )
    if index.names == [None] and list(index) == list(range(len(index))):
        return {}
    names = index.names if index.nlevels == 1 else [x or f"level_{i}" for i, x in enumerate(index.names)]
    return dict(_label(name, index.get_level_values(i)) for i, name in enumerate(names))


@final
class Grid(AbstractSamples):
    """Every combination of the values given; each parameter is a dimension of the result.

    **Arguments:**

    - `values`: for each name the values (k,), such as `{"angle": jnp.linspace(0.1, 3.0, 30), "length": [1.0, 2.0]}`.

    **Raises:** `InputError` for what is not an array of finite numbers.
    """

    values: dict[str, np.ndarray]

    def __init__(self, values: Mapping[str, Any]):
        self.values = _columns(values)
        for name, x in self.values.items():
            if x.ndim > 1:
                raise InputError(
                    f"the values of {name} have shape {x.shape}; along a grid they are scalars. "
                    f"Give vectors in a Table, or single components such as '{name}[0]'."
                )

    @property
    def sizes(self) -> dict[str, int]:
        return {name: x.size for name, x in self.values.items()}

    def at(self, runs: Int[np.ndarray, " b"]) -> dict[str, np.ndarray]:
        places = np.unravel_index(runs, tuple(self.sizes.values()))
        return {name: x[place] for (name, x), place in zip(self.values.items(), places, strict=True)}

    def coordinates(self) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
        return {name: ((name,), x) for name, x in self.values.items()}

    def describe(self) -> dict[str, Any]:
        return {"samples": "grid"}


def inner_dims(name: str, ndim: int) -> tuple[str, ...]:
    """The dimensions of one value of a parameter."""
    if ndim == 1 and name in _INNER:
        return (_INNER[name],)
    return tuple(f"{name}_{i}" for i in range(ndim))


class AbstractRows(AbstractSamples):
    """Samples along the one dimension `run`: a column of values for each parameter."""

    @property
    def sizes(self) -> dict[str, int]:
        return {RUN: len(next(iter(self.values.values())))}

    def at(self, runs: Int[np.ndarray, " b"]) -> dict[str, np.ndarray]:
        return {name: x[runs] for name, x in self.values.items()}

    def coordinates(self) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
        columns = {}
        for name, x in self.values.items():
            columns[name] = ((RUN, *inner_dims(name, x.ndim - 1)), x)
        return columns


@final
class Table(AbstractRows):
    """One run for each row of a table; the result has the one dimension `run`.

    **Arguments:**

    - `values`: for each name as many values as there are runs (n, ...): a dict of arrays, a data frame, or an
      `xarray.Dataset`. Values may be arrays themselves, such as whole initial states `q0` (n, n_q). The index of a
      data frame and the coordinates of a dataset become coordinates of the result.

    **Raises:** `InputError` for columns of different lengths, and what is not finite numbers.
    """

    values: dict[str, np.ndarray]
    labels: dict[str, np.ndarray]

    def __init__(self, values: Mapping[str, Any]):
        self.values = _columns(values)
        lengths = {name: len(x) for name, x in self.values.items()}
        if len(set(lengths.values())) > 1:
            raise InputError(f"the columns of a table must be equally long, got {lengths}.")
        self.labels = _labels(values)
        if clash := self.labels.keys() & self.values.keys():
            raise InputError(
                f"{min(clash)} is the name of both a column and the index of a table: rename one."
            )

    def coordinates(self) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
        return super().coordinates() | {name: ((RUN,), x) for name, x in self.labels.items()}

    def describe(self) -> dict[str, Any]:
        return {"samples": "table"}


def _draw(kind: str, ranges: Any, n: Any, seed: Any) -> dict[str, np.ndarray]:
    """Samples of a kind that SciPy has, within the ranges of parameters."""
    if not isinstance(ranges, Mapping) or not ranges:
        raise InputError(f"{kind} takes a range for each parameter, such as {{'length': (0.5, 2.0)}}.")
    pairs = {name: _values(name, x) for name, x in ranges.items()}
    for name, pair in pairs.items():
        if pair.shape != (2,) or not pair[0] < pair[1]:
            raise InputError(
                f"the range of {name} must be (low, high) with low < high, got {ranges[name]!r}."
            )
    n, seed = whole_number("n", n), whole_number("seed", seed, 0, 2**128)  # NumPy's generators take any
    from scipy.stats import qmc  # slow to load

    sampler = getattr(qmc, kind)(len(pairs), rng=seed)
    # The whole power of two, which SciPy does not warn of, is the same sequence.
    unit = sampler.random_base2((n - 1).bit_length())[:n] if kind == "Sobol" else sampler.random(n)
    return dict(zip(pairs, qmc.scale(unit, *np.transpose(list(pairs.values()))).T, strict=True))


@final
class LatinHypercube(AbstractRows):
    """Random samples that are evenly spread along each parameter: one in each of n equal intervals of its range
    (McKay, Beckman and Conover 1979), by `scipy.stats.qmc`. The result has the one dimension `run`.

    **Arguments:**

    - `ranges`: for each name (low, high).
    - `n`: how many runs.
    - `seed`: of the random numbers; the same seed gives the same samples.

    **Raises:** `InputError` for what is no range.
    """

    values: dict[str, np.ndarray]
    seed: int = eqx.field(static=True)

    def __init__(self, ranges: Mapping[str, tuple[float, float]], n: int, seed: int = 0):
        self.values, self.seed = _draw("LatinHypercube", ranges, n, seed), int(seed)

    def describe(self) -> dict[str, Any]:
        return {"samples": "latin hypercube", "seed": self.seed}


@final
class Sobol(AbstractRows):
    """The first n points of Sobol's sequence, scrambled (Owen 1998), by `scipy.stats.qmc`: they fill the box of
    all ranges more evenly than random ones, best for n a power of 2. The result has the one dimension `run`.

    **Arguments:**

    - `ranges`: for each name (low, high).
    - `n`: how many runs.
    - `seed`: of the scrambling; the same seed gives the same samples.

    **Raises:** `InputError` for what is no range.
    """

    values: dict[str, np.ndarray]
    seed: int = eqx.field(static=True)

    def __init__(self, ranges: Mapping[str, tuple[float, float]], n: int, seed: int = 0):
        self.values, self.seed = _draw("Sobol", ranges, n, seed), int(seed)

    def describe(self) -> dict[str, Any]:
        return {"samples": "sobol", "seed": self.seed}


def as_samples(params: Any) -> AbstractSamples:
    """Samples as they are; a dict of arrays as a grid; anything else with named columns as a table."""
    if isinstance(params, AbstractSamples):
        return params
    return Grid(params) if isinstance(params, dict) else Table(params)
