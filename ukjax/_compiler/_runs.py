"""Many runs as one operation of JAX, whose `vmap` is itself, with more runs, and which devices share by runs.

It has no derivative.
"""

import functools
from collections.abc import Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax.experimental.custom_partitioning import custom_partitioning
from jax.extend import core
from jax.interpreters import batching, mlir
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array

from ._primitive import is_alone, needs_devices
from ._run_layout import OPERANDS

runs_p = core.Primitive("runs")
runs_p.multiple_results = True
needs_devices(runs_p)


class Runs(Protocol):
    """What computes runs: hashable.

    - `dtype`: of all arrays.
    """

    dtype: Any

    def shapes(self, runs: int, saves: int) -> list[tuple[int, ...]]:
        """Those of the results, whose first axis is that of the runs."""
        ...

    def called(self, *operands: Array) -> Sequence[Array]:
        """The results, by a foreign function.

        **Arguments:**

        - `operands`: arrays (runs, count), or (1, count) where all runs have the same; the first are `OPERANDS`.
        """
        ...


def sizes(operands: Sequence[Any]) -> tuple[int, int]:
    """How many runs there are, and how many times to save at."""
    return max(x.shape[0] for x in operands), operands[OPERANDS.index("times")].shape[1]


@runs_p.def_abstract_eval
def _abstract(*operands: Any, program: Runs) -> Any:
    shapes = program.shapes(*sizes(operands))
    return [operands[0].update(shape=shape, dtype=program.dtype, weak_type=False) for shape in shapes]


@functools.partial(jax.jit, static_argnames="program")
def _run(*operands: Array, program: Runs) -> Any:
    return runs_p.bind(*operands, program=program)


@runs_p.def_impl
def _impl(*operands: Array, program: Runs) -> Any:
    return _run(*operands, program=program)


def _batched(operands: Sequence[Array], axes: Sequence[Any], *, program: Runs) -> Any:
    """All runs of all members one after the other."""
    members = next(x.shape[a] for x, a in zip(operands, axes, strict=True) if a is not None)
    runs = max(x.shape[0 if a is None else int(a == 0)] for x, a in zip(operands, axes, strict=True))

    def flat(x: Array, axis: Any) -> Array:
        if axis is None and x.shape[0] == 1:
            return x
        x = jnp.broadcast_to(x, (members, *x.shape)) if axis is None else jnp.moveaxis(x, axis, 0)
        return jnp.broadcast_to(x, (members, runs, x.shape[2])).reshape(members * runs, x.shape[2])

    found = runs_p.bind(*map(flat, operands, axes), program=program)
    return [x.reshape(members, runs, *x.shape[1:]) for x in found], [0] * len(found)


def _over_devices(*operands: Array, program: Runs) -> Any:
    """The same where XLA shares arrays between devices: each makes its own runs."""
    runs, _ = sizes(operands)
    own = [x.shape[0] == runs > 1 for x in operands]
    given = ", ".join(f"{'r' if it else f'a{i}'} b{i}" for i, it in enumerate(own))
    further = [
        [f"c{i}_{k}" for k in range(1, len(x))] for i, x in enumerate(program.shapes(*sizes(operands)))
    ]

    def split(mesh: Any, arrays: Sequence[Any], found: Sequence[Any]) -> Any:
        (over, *_) = [*found[0].sharding.spec, None]
        placed = lambda it: NamedSharding(mesh, PartitionSpec(over if it else None))
        return mesh, compute, (placed(True),) * len(found), tuple(map(placed, own))

    def compute(*operands: Array) -> Any:
        return tuple(runs_p.bind(*operands, program=program))

    shared = custom_partitioning(compute)
    alone = [name for i, it in enumerate(own) for name in ([f"b{i}"] if it else [f"a{i}", f"b{i}"])]
    result = ", ".join(" ".join(["r", *names]) for names in further)
    alone += [name for names in further for name in names]
    shared.def_partition(split, sharding_rule=f"{given} -> {result}", need_replication_factors=tuple(alone))
    return list(shared(*operands))


def _lowered(ctx: Any, *operands: Any, program: Runs, by: str) -> Any:
    made = getattr(program, by) if is_alone(ctx) else functools.partial(_over_devices, program=program)
    return mlir.lower_fun(lambda *x: list(made(*x)), multiple_results=True)(ctx, *operands)


batching.primitive_batchers[runs_p] = _batched
for _platform, _by in (("cpu", "called"), ("cuda", "by_kernel")):
    mlir.register_lowering(runs_p, functools.partial(_lowered, by=_by), platform=_platform)
