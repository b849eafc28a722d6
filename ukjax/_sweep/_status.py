"""How far the store of a sweep is."""

from collections import Counter
from typing import Any

import numpy as np

from .._misc._errors import InputError
from ._outputs import has_succeeded
from ._place import place_of
from ._store import Store
from ._template import NOT_RUN, PROCESSOR


def status(store: Any) -> dict[str, Any]:
    """How many runs and chunks of a store are made, how many runs failed, by what they were made, and whether a process
    is at work on it."""
    place = place_of(store)
    if (attributes := place.attributes()) is None:
        raise InputError(f"there is no store '{place.name}'.")
    stored = Store(place, attributes)
    results = stored.results()
    made = results != NOT_RUN
    unfinished = stored.chunks.unfinished(results, NOT_RUN)
    by = Counter(np.delete(stored.arrays[PROCESSOR][...].ravel(), unfinished).tolist())
    return {
        "model": attributes["model"],
        "runs": results.size,
        "made": int(made.sum()),
        "failed": int((made & ~np.asarray(has_succeeded(results))).sum()),
        "chunks": int(np.prod(stored.chunks.grid)),
        "chunks_made": int(np.prod(stored.chunks.grid)) - len(unfinished),
        "processors": dict(by),
        "in_use": place.in_use(),
    }
