"""What a worker does: it prepares the sweep once, and makes the chunks it is told to."""

import functools
import json
import socket
import threading
import traceback
from typing import Any, NamedTuple

import jax
import numpy as np

from ..._misc._errors import InputError, MissingExtraError
from ..._misc._types import is_float64_enabled
from .._chunk import Maker, fit_chunk_shape, make_chunks, maker_for
from .._place import place_of
from .._prepare import SweepPlan, prepare
from .._samples import Table
from .._store import Store, differences
from .._template import NOT_RUN

_PARTS = 100  # chunks of a sweep at least, so that many workers have some, to the end
_REMEMBERED = 4  # sweeps that take turns on one worker
_lock = threading.Lock()


class Definition(NamedTuple):
    """A sweep without its runs: the arguments of `prepare`, with the values of one run (1, ...) for samples."""

    model: Any
    example: dict[str, np.ndarray]
    outputs: Any
    gradients: tuple[str, ...]
    stabilizer: Any
    formula: Any
    options: dict[str, Any]
    reductions: Any


class Status(NamedTuple):
    """What a worker tells of a task: all that travels back."""

    value: Any = None  # what the task returned
    error: str = ""  # why it could not, or nothing
    final: bool = False  # whether to try again is of no use


class PreparedSweep(NamedTuple):
    """A sweep in a worker: the plan, and what of its attributes a worker decides."""

    plan: SweepPlan
    attributes: dict[str, Any]


def _with_status(task: Any) -> Any:
    """The task with a status for an exception: not every one can travel."""

    @functools.wraps(task)
    def tell(*arguments: Any) -> Status:
        try:
            return Status(task(*arguments))
        except (InputError, MissingExtraError) as error:
            return Status(error=str(error), final=True)
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            line = f"{where.filename.rpartition('/')[2]}, line {where.lineno}"
            text = " ".join(str(error).split())
            return Status(error=f"{type(error).__name__}: {text} ({line}, on {socket.gethostname()})")

    return tell


@functools.lru_cache(_REMEMBERED)
def _prepare_sweep(pickled: bytes, x64: bool) -> PreparedSweep:
    import cloudpickle

    try:
        definition: Definition = cloudpickle.loads(pickled)
    except (ImportError, AttributeError, OSError) as error:
        raise InputError(
            f"a worker on {socket.gethostname()} cannot load the model: {error}. Install the module there, or have it "
            "travel by cloudpickle.register_pickle_by_value(module)."
        ) from error
    plan = prepare(definition.model, Table(definition.example), *definition[2:])
    attributes = {name: plan.template.attributes[name] for name in ("precision", "ukjax", "jax", "jaxlib")}
    device = jax.local_devices()[0]
    return PreparedSweep(
        plan, attributes | {"devices": f"1 {device.platform}", "program": plan.program.fingerprint()}
    )


@functools.lru_cache(_REMEMBERED)
def _maker(pickled: bytes, shape: tuple[int, ...], x64: bool) -> Maker:
    return maker_for(_prepare_sweep(pickled, x64).plan, shape, jax.local_devices()[:1])


@functools.lru_cache(_REMEMBERED)
def _store(name: str, attributes: str) -> Store:
    return Store(place_of(name), json.loads(attributes))


@_with_status
def examine(
    pickled: bytes, sizes: tuple[int, ...], memory: float | None, fit: bool
) -> tuple[dict[str, Any], tuple[int, ...]]:
    """What a worker decides of a sweep: attributes, and the shape of chunks if it is to."""
    with _lock:
        plan, attributes = _prepare_sweep(pickled, is_float64_enabled())
        devices = jax.local_devices()[:1]
        return attributes, fit_chunk_shape(plan, sizes, memory, devices, _PARTS) if fit else ()


@_with_status
def chunk(pickled: bytes, store: str, attributes: str, number: int) -> tuple[int, int]:
    """Makes a chunk, unless it is there; returns its number of runs, and how many of them failed."""
    with _lock:
        target = _store(store, attributes)
        known = json.loads(attributes)
        if differs := differences(known, _prepare_sweep(pickled, is_float64_enabled()).attributes):
            raise InputError(f"a worker on {socket.gethostname()} would make another sweep: {differs}.")
        maker = _maker(pickled, target.chunks.shape, is_float64_enabled())
    region = target.chunks.region(number)
    results = target.results(region)
    if np.all(results != NOT_RUN):
        return results.size, 0
    (made,) = make_chunks(maker, target, [number])
    return made
