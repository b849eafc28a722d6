"""How far the store of a sweep is."""

import math
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
    numbers = range(math.prod(stored.chunks.grid))
    finished = sorted(set(numbers) - set(stored.incomplete()))
    results, by = np.full(stored.chunks.sizes, NOT_RUN), Counter()
    for number in finished:
        region = stored.chunks.region(number)
        results[region] = stored.results(region)
        by.update(stored.arrays[PROCESSOR][stored.chunks.place(number)].ravel().tolist())
    made = results != NOT_RUN
    return {
        "model": attributes["model"],
        "runs": results.size,
        "made": int(made.sum()),
        "failed": int((made & ~np.asarray(has_succeeded(results))).sum()),
        "chunks": len(numbers),
        "chunks_made": len(finished),
        "processors": dict(by),
        "in_use": place.in_use(),
    }
