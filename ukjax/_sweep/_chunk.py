"""One chunk of a sweep, made and written: the same here and in a worker."""

import math
import platform
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np

from .._compiler._machine_code import llvm
from ._chunks import chunk_shape, extent, runs_at_once
from ._member import RESULT
from ._outputs import has_succeeded
from ._prepare import Reductions, SweepPlan, values_of
from ._run import Batch, compile_batch
from ._store import AbstractTarget
from ._template import PROCESSOR


class Maker(NamedTuple):
    """What makes chunks in a process."""

    run: Batch  # the compiled program
    batch: int  # how many runs it takes
    reductions: Reductions  # of outputs that are not kept
    processor: str  # what it runs on


def processor(device: Any) -> str:
    """The kind of a device: programs compiled for equal ones give equal bits."""
    if device.platform != "cpu":
        return str(device.device_kind)
    features = llvm().get_host_cpu_features().flatten()
    return f"{platform.machine()} {llvm().get_host_cpu_name()} {sha256(features.encode()).hexdigest()[:8]}"


def maker_for(plan: SweepPlan, shape: tuple[int, ...], devices: Sequence[Any]) -> Maker:
    """What makes chunks of a shape."""
    return _maker_for(plan, shape, devices)[0]


def _maker_for(plan: SweepPlan, shape: tuple[int, ...], devices: Sequence[Any]) -> tuple[Maker, int]:
    batch = -(-math.prod(shape) // len(devices)) * len(devices)
    run, used = compile_batch(plan.program, values_of(plan.samples, 0), batch, devices)
    return Maker(run, batch, plan.reductions, processor(devices[0])), used


# Where none is given: on a CPU little, since others use it too [bytes]; elsewhere a part of what the device has left.
_MEMORY_OF_CPU, _SHARE = 1e9, 0.5


def memory_for(device: Any) -> float:
    """What a chunk may take on a device by default [bytes]."""
    stats = None if device.platform == "cpu" else device.memory_stats()
    if not stats or "bytes_limit" not in stats:
        return _MEMORY_OF_CPU
    return _SHARE * (stats["bytes_limit"] - stats.get("bytes_in_use", 0))


def fit_chunk_shape(
    plan: SweepPlan, sizes: tuple[int, ...], memory: float | None, devices: Sequence[Any], parts: int = 1
) -> tuple[int, ...]:
    """The shape of the largest chunks that go into the memory by what the compiler says of them."""
    memory = min(map(memory_for, devices)) if memory is None else memory
    memory /= len(devices) if devices[0].platform == "cpu" else 1  # the cores of a CPU share one
    limit = runs_at_once(plan.program.traced, memory, devices[0].platform) * len(devices)
    limit = min(limit, math.ceil(math.prod(sizes) / parts))
    while True:
        shape = chunk_shape(sizes, limit)
        if _maker_for(plan, shape, devices)[1] <= memory or limit <= len(devices):
            return shape
        limit = math.prod(shape) // 2


def make_chunks(maker: Maker, target: AbstractTarget, numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Makes the runs of chunks and writes them; yields of each how many runs there are, and how many of them failed.

    While one is fetched and written, the device makes the next.
    """
    started: tuple[int, dict[str, Any]] | None = None
    for number in numbers:
        before, started = started, (number, maker.run(target.values(number, maker.batch)))
        if before is not None:
            yield _write_chunk(maker, target, *before)
    if started is not None:
        yield _write_chunk(maker, target, *started)


def _write_chunk(maker: Maker, target: AbstractTarget, number: int, found: dict[str, Any]) -> tuple[int, int]:
    """Writes a chunk."""
    region = target.chunks.region(number)
    room = extent(region)
    size = math.prod(room)
    outputs = {name: np.asarray(x)[:size] for name, x in found.items()}
    good = np.asarray(has_succeeded(outputs[RESULT]))
    written: dict[str, Any] = {PROCESSOR: maker.processor}
    for name, x in outputs.items():
        if name not in maker.reductions:
            written[name] = x.reshape(*room, *x.shape[1:])
            continue
        counts = np.isfinite(x) & good.reshape(-1, *(1,) * (x.ndim - 1))
        runs = np.ravel_multi_index(
            np.ix_(*(np.arange(s.start, s.stop) for s in region)), target.chunks.sizes
        )
        for reduction in maker.reductions[name]:
            states = reduction.state(x, counts, runs.ravel())
            written |= {f"{name}_{reduction.name}_{key}": state for key, state in states.items()}
    target.write(number, written)
    return size, int(np.sum(~good))


def merge_reductions(
    target: AbstractTarget, reductions: Reductions
) -> dict[str, tuple[tuple[str, ...], np.ndarray]]:
    """Dimensions and values of the figures of all chunks, by name."""
    places = [target.chunks.place(i) for i in range(math.prod(target.chunks.grid))]
    found = {}
    for output, each in reductions.items():
        for reduction in each:
            start = f"{output}_{reduction.name}_"
            names = [name for name in target.of_chunks if name.startswith(start)]
            first = len(target.chunks.grid)
            arrays = {name.removeprefix(start): target.arrays[name] for name in names}
            states = (
                {key: x[place].reshape(x.shape[first:]) for key, x in arrays.items()} for place in places
            )
            for key, (dims, x) in reduction.merged(states).items():
                inner = tuple(f"{output}_{i}" for i in range(x.ndim - len(dims)))
                found[f"{output}_{key}"] = ((*inner, *dims), x)
    return found
