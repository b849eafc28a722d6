"""The one place where a batch of runs is integrated, on one device or several."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from .._misc._jax_programs import signature
from ._member import TracedRun
from ._samples import RUN

_MOST = 8  # programs remembered, the latest ones, so that the next sweep of one need not be compiled
_made: dict[Any, Any] = {}
Batch = Callable[[dict[str, np.ndarray]], dict[str, Array]]


def run_batch(program: TracedRun, values: dict[str, Array]) -> dict[str, Array]:
    """The outputs of a batch of runs, each as if it were alone: one that fails is marked, its neighbours go on.

    **Returns:** outputs (b, ...), by name, the code of each outcome among them.
    """
    return jax.vmap(program)(values)


def compile_batch(
    program: TracedRun, example: dict[str, np.ndarray], batch: int, devices: Sequence[Any]
) -> tuple[Batch, int]:
    """The batch as a compiled program, and the memory that two take on each device, one of which runs [bytes].

    A call starts the program and does not wait for its results.
    """
    split = NamedSharding(Mesh(np.array(devices), (RUN,)), PartitionSpec(RUN))
    shapes = {
        name: jax.ShapeDtypeStruct((batch, *np.shape(x)), jnp.result_type(float))
        for name, x in example.items()
    }
    key = (
        signature(program.traced, with_rules=False),
        tuple(program.variables),
        tuple(shapes.items()),
        tuple(devices),
    )
    ready = _made.pop(key, None) or _compile_batch(program, shapes, split)
    _made[key] = ready
    if len(_made) > _MOST:
        del _made[next(iter(_made))]
    analysis = ready.memory_analysis()
    used = 0
    if analysis is not None:
        # What one batch gave is fetched while the next one runs.
        used = analysis.temp_size_in_bytes
        used += 2 * (analysis.argument_size_in_bytes + analysis.output_size_in_bytes)

    def run(values: dict[str, np.ndarray]) -> dict[str, Array]:
        given = {name: jax.device_put(np.asarray(x, shapes[name].dtype), split) for name, x in values.items()}
        found = ready(given)
        for x in found.values():
            x.copy_to_host_async()  # as soon as it is there, while the next batch runs
        return found

    return run, used


def _compile_batch(program: TracedRun, shapes: dict[str, Any], split: NamedSharding) -> Any:
    def whole(values: dict[str, Array]) -> dict[str, Array]:
        return run_batch(program, values)

    # Each device loops on its own: none waits for the steps of another.
    part = whole if split.mesh.size == 1 else jax.shard_map(
        whole, mesh=split.mesh, in_specs=PartitionSpec(RUN), out_specs=PartitionSpec(RUN), check_vma=False
    )  # fmt: skip
    return jax.jit(part, in_shardings=split, out_shardings=split).lower(shapes).compile()
