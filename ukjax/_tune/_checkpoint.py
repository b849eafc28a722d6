"""A search in a file, to go on from."""

import json
import zipfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from .._misc._errors import InputError
from ._search import Point, Search, Stepper

_STATE = "stalled", "scans", "apart", "begun"


def save(path: Path, search: Search, fingerprint: str) -> None:
    """Writes a checkpoint, whole or not at all.

    **Arguments:**

    - `path`: an .npz file.
    - `search`: what to keep.
    - `fingerprint`: of the search.
    """
    arrays = {f"memory{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(search.memory))}
    columns = {name: np.stack([getattr(p, name) for p in search.points]) for name in Point._fields}
    state = {name: getattr(search, name) for name in _STATE}
    header = json.dumps({"fingerprint": fingerprint} | state)
    partial = path.with_name(f".{path.stem}.partial.npz")
    np.savez(partial, allow_pickle=False, header=np.array(header), **columns, **arrays)
    partial.replace(path)


def load(path: Path, stepper: Stepper, fingerprint: str) -> Search:
    """Reads a checkpoint.

    **Arguments:**

    - `path`: the file.
    - `stepper`: to go on with.
    - `fingerprint`: of the search.

    **Raises:** `InputError` for a file that is none, or of another problem or optimizer.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            header = json.loads(str(file["header"]))
            columns = zip(*(file[name] for name in Point._fields), strict=True)
            points = [Point(x, float(value), slope, int(count)) for x, value, slope, count in columns]
            kept = [file[f"memory{i}"] for i in range(sum(name.startswith("memory") for name in file))]
            state = {name: header[name] for name in _STATE}
    except (KeyError, ValueError, OSError, zipfile.BadZipFile) as error:
        raise InputError(f"'{path}' is no checkpoint of tune, or is damaged: {error}") from error
    leaves, structure = jax.tree.flatten(stepper.memory(state["apart"]))
    shapes = [(x.shape, x.dtype) for x in map(jnp.asarray, leaves)]
    if header["fingerprint"] != fingerprint or [(x.shape, x.dtype) for x in kept] != shapes:
        raise InputError(
            f"'{path}' is a checkpoint of another problem, loss or optimizer: give another path, or delete it."
        )
    return Search(tuple(points), jax.tree.unflatten(structure, map(jnp.asarray, kept)), **state)
