"""A sweep whose chunks are made by the workers of an executor."""

import contextlib
import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import numpy as np

from ..._misc._compilation_cache import cache_folder
from ..._misc._errors import InputError, SweepError
from ..._misc._types import is_float64_enabled
from ..._misc._worker import call_in_worker, here
from .._progress import Update
from .._samples import AbstractSamples
from . import _task
from ._driver import Ledger, give_out
from ._executors import Workers
from ._travel import pickle_definition


@contextlib.contextmanager
def open_cluster(
    executor: Any, model: Any, samples: AbstractSamples, definition: tuple[Any, ...]
) -> Iterator["Cluster"]:
    """Workers that know a sweep, until they are left."""
    sent = pickle_definition(_task.Definition(model, samples.at(np.array([0])), *definition))
    with contextlib.closing(Workers(executor)) as workers:
        yield Cluster(workers, sent)


class Cluster:
    """Workers that know a sweep, by its pickled definition."""

    def __init__(self, workers: Workers, definition: bytes):
        self.workers, self._definition = workers, definition
        self._settings = {"driver": here(), "x64": is_float64_enabled(), "cache": cache_folder()}

    def _submit(self, task: Callable[..., Any], *arguments: Any) -> Future:
        called = (self._settings, _task.__name__, task.__name__, self._definition, *arguments)
        return self.workers.submit(call_in_worker, *called)

    def examine(
        self, sizes: tuple[int, ...], memory: float | None, fit: bool
    ) -> tuple[dict[str, Any], tuple[int, ...]]:
        """What a worker decides of the sweep: attributes, and the shape of chunks if it is to."""
        found: list[Any] = []
        examine = lambda number: self._submit(_task.examine, sizes, memory, fit)
        failed = give_out(
            self.workers, examine, [0], lambda value, ledger: found.append(value) if value else None
        )
        for reason in failed.values():
            raise InputError(f"a worker could not prepare the sweep: {reason}.")
        return found[0]

    def fill(self, target: Any, pending: list[int], before: int, update: Update) -> None:
        """Has chunks made."""
        name, text = target.place.name, json.dumps(target.attributes)
        update(before, 0)
        chunk = lambda number: self._submit(_task.chunk, name, text, number)

        def done(value: tuple[int, int] | None, ledger: Ledger) -> None:
            note = f"{self.workers.count()} workers"
            update(*(value or (0, 0)), f"{note}, {ledger.again} chunks again" if ledger.again else note)

        if failed := give_out(self.workers, chunk, pending, done):
            number, reason = next(iter(failed.items()))
            runs = ", ".join(f"{part.start} to {part.stop - 1}" for part in target.chunks.region(number))
            raise SweepError(
                f"{len(failed)} chunks of '{name}' could not be made; chunk {number} (runs {runs}): {reason}. "
                "The others that were made are there, and the same call tries these again.",
                failed,
            )
