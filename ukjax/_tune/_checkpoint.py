"""A search in a file, to go on from."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from .._misc._errors import InputError
from .._misc._files import read_npz, write_npz
from ._search import Point, Search, Stepper

_STATE = "stalled", "scans", "apart", "begun"


def save(path: Path, search: Search, fingerprint: str) -> None:
    """Writes a checkpoint, whole or not at all."""
    arrays = {f"memory{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(search.memory))}
    columns = {name: np.stack([getattr(p, name) for p in search.points]) for name in Point._fields}
    state = {name: getattr(search, name) for name in _STATE}
    write_npz(path, {"fingerprint": fingerprint} | state, columns | arrays)


def load(path: Path, stepper: Stepper, fingerprint: str) -> Search:
    """Reads a checkpoint.

    **Raises:** `InputError` for a file that is none, or of another problem or optimizer.
    """
    header, arrays = read_npz(path)
    try:
        columns = zip(*(arrays[name] for name in Point._fields), strict=True)
        points = [Point(x, float(value), slope, int(count)) for x, value, slope, count in columns]
        kept = [arrays[f"memory{i}"] for i in range(sum(name.startswith("memory") for name in arrays))]
        state = {name: header[name] for name in _STATE}
        mark = header["fingerprint"]
    except (KeyError, ValueError, TypeError) as error:
        raise InputError(f"'{path}' is not a checkpoint of tune: {error!r}.") from error
    leaves, structure = jax.tree.flatten(stepper.memory(state["apart"]))
    shapes = [(x.shape, x.dtype) for x in map(jnp.asarray, leaves)]
    if mark != fingerprint or [(x.shape, x.dtype) for x in kept] != shapes:
        raise InputError(
            f"'{path}' is a checkpoint of another problem, loss or optimizer: give another path, or delete it."
        )
    return Search(tuple(points), jax.tree.unflatten(structure, map(jnp.asarray, kept)), **state)
