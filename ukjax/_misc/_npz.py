"""Named arrays with a header in an .npz file, which NumPy alone reads, never by pickle."""

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ._errors import InputError
from ._paths import replacing, require_there

_HEADER = "header"


def write_npz(path: Path, header: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays, whole or not at all.

    **Raises:** `InputError` where it cannot be written.
    """
    with replacing(path) as partial:
        named: dict[str, Any] = {_HEADER: np.array(json.dumps(header)), **arrays}
        np.savez_compressed(partial, allow_pickle=False, **named)


def _array(content: bytes) -> np.ndarray:
    return np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)


def read_npz(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The header and the arrays.

    **Raises:** `InputError` if there is none, or it is not such a file.
    """
    require_there(path)
    try:
        with zipfile.ZipFile(path) as file:
            # Whole, so that their checksums are compared before NumPy makes arrays of whatever shape they say.
            members = {name.removesuffix(".npy"): file.read(name) for name in file.namelist()}
        arrays = {name: _array(content) for name, content in members.items()}
        header = json.loads(str(arrays.pop(_HEADER)))
        if not isinstance(header, dict):
            raise TypeError("its header is no table of names")
    except Exception as error:  # of damaged files zipfile, zlib and NumPy raise some ten kinds
        raise InputError(f"'{path}' was not written by ukjax, or is damaged: {error!r}.") from error
    return header, arrays
