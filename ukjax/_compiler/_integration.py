"""Whole runs as one operation of JAX: machine code that XLA calls, or Python itself on NumPy arrays.

Its `vmap` is itself, with more runs. It has no derivative: who takes one integrates by operations of JAX.
"""

import ctypes
import functools
from collections.abc import Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.custom_partitioning import custom_partitioning
from jax.extend import core
from jax.interpreters import batching, mlir
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array

from ._foreign import compiled, kind_for, registered
from ._primitive import needs_devices
from ._run_layout import COUNTED, OPERANDS, Control, Layout, Method, Motion
from ._whole_run import WholeRun

integration_p = core.Primitive("integration")
integration_p.multiple_results = True
needs_devices(integration_p)


@final
class Integration:
    """Runs of one motion by one method under one control.

    **Arguments:**

    - `motion`, `method`, `control`: as their classes say.
    """

    def __init__(self, motion: Motion, method: Method, control: Control):
        self.size, self.dtype = motion.size, motion.field.dtype
        self._parts = motion, method, control
        self._written = functools.cache(self._written_for)
        self._on_host = functools.cache(self._compiled_for)

    @property
    def has_machine_code(self) -> bool:
        """Whether LLVM can compile all of it, on a CPU."""
        motion, method, control = self._parts
        programs = motion.field, motion.projection, method.weights, control.step
        return all(x.has_machine_code for x in programs if x is not None)

    def _written_for(self, width: int) -> tuple[str, int]:
        """The text for so many lanes, and how many numbers it works on."""
        layout = Layout(*self._parts, kind_for(self.dtype, width))
        return WholeRun(layout).text(), layout.rows.size * width

    def _compiled_for(self, width: int) -> tuple[Any, Any]:
        engine = compiled(self._written(width)[0])
        pointer, integer = ctypes.c_void_p, ctypes.c_int64
        kinds = [pointer] * 3 + [integer] * 2 + [pointer, integer] * len(OPERANDS)
        return engine, ctypes.CFUNCTYPE(None, *kinds)(engine.get_function_address("integrate"))

    def shapes(self, runs: int, saves: int) -> list[tuple[int, ...]]:
        """Those of what runs give: saved states, and ends."""
        return [(runs, saves, self.size), (runs, len(COUNTED) + self.size)]

    def __call__(self, *operands: Array) -> tuple[Array, Array]:
        """The saved states (runs, saves, n), and the ends (runs, 5 + n): `COUNTED` and the state.

        **Arguments:**

        - `operands`: arrays (runs, count), or (1, count) where all runs have the same, as `OPERANDS` lists them.
        """
        saved, ends = integration_p.bind(*operands, program=self)
        return saved, ends

    def on_host(self, *operands: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The same, at once.

        **Arguments:** as of a call.
        """
        given = [np.ascontiguousarray(x, self.dtype) for x in operands]
        runs, saves = _sizes(given)
        width = kind_for(self.dtype, runs).width
        saved, ends = (np.empty(shape, self.dtype) for shape in self.shapes(runs, saves))
        rows = np.empty(self._written(width)[1], self.dtype)
        strides = [0 if len(x) == 1 else x.shape[1] for x in given]
        places = [x for pair in zip((x.ctypes.data for x in given), strides, strict=True) for x in pair]
        _, integrate = self._on_host(width)
        integrate(rows.ctypes.data, saved.ctypes.data, ends.ctypes.data, runs, saves, *places)
        return saved, ends

    def called(self, *operands: Array) -> tuple[Array, Array]:
        """The call of the foreign function.

        **Arguments:** as of a call.
        """
        runs, saves = _sizes(operands)
        width = kind_for(self.dtype, runs).width
        text, numbers = self._written(width)
        name = registered(text, WholeRun.call(), len(operands), 3, "integration")
        shapes = [jax.ShapeDtypeStruct(x, self.dtype) for x in (*self.shapes(runs, saves), (numbers,))]
        saved, ends, _ = jax.ffi.ffi_call(name, shapes)(*operands)
        return saved, ends


def _sizes(operands: Sequence[Any]) -> tuple[int, int]:
    """How many runs there are, and how many times to save at."""
    return max(x.shape[0] for x in operands), operands[OPERANDS.index("times")].shape[1]


@integration_p.def_abstract_eval
def _abstract(*operands: Any, program: Integration) -> Any:
    shapes = program.shapes(*_sizes(operands))
    return [operands[0].update(shape=shape, dtype=program.dtype, weak_type=False) for shape in shapes]


@functools.partial(jax.jit, static_argnames="program")
def _run(*operands: Array, program: Integration) -> Any:
    return integration_p.bind(*operands, program=program)


@integration_p.def_impl
def _impl(*operands: Array, program: Integration) -> Any:
    return _run(*operands, program=program)


def _batched(operands: Sequence[Array], axes: Sequence[Any], *, program: Integration) -> Any:
    """All runs of all members one after the other."""
    members = next(x.shape[a] for x, a in zip(operands, axes, strict=True) if a is not None)
    runs = max(x.shape[0 if a is None else int(a == 0)] for x, a in zip(operands, axes, strict=True))

    def flat(x: Array, axis: Any) -> Array:
        if axis is None and x.shape[0] == 1:
            return x
        x = jnp.broadcast_to(x, (members, *x.shape)) if axis is None else jnp.moveaxis(x, axis, 0)
        return jnp.broadcast_to(x, (members, runs, x.shape[2])).reshape(members * runs, x.shape[2])

    found = integration_p.bind(*map(flat, operands, axes), program=program)
    return [x.reshape(members, runs, *x.shape[1:]) for x in found], [0, 0]


def _over_devices(*operands: Array, program: Integration) -> Any:
    """The same where XLA shares arrays between devices: each makes its own runs."""
    runs, _ = _sizes(operands)
    own = [x.shape[0] == runs > 1 for x in operands]
    given = ", ".join(f"{'r' if it else f'a{i}'} b{i}" for i, it in enumerate(own))

    def split(mesh: Any, arrays: Sequence[Any], found: Sequence[Any]) -> Any:
        (over, *_) = [*found[0].sharding.spec, None]
        placed = lambda it: NamedSharding(mesh, PartitionSpec(over if it else None))
        return mesh, compute, (placed(True),) * 2, tuple(map(placed, own))

    def compute(*operands: Array) -> Any:
        return tuple(integration_p.bind(*operands, program=program))

    shared = custom_partitioning(compute)
    alone = [name for i, it in enumerate(own) for name in ([f"b{i}"] if it else [f"a{i}", f"b{i}"])]
    shared.def_partition(
        split, sharding_rule=f"{given} -> r s n, r e", need_replication_factors=(*alone, "s", "n", "e")
    )
    return list(shared(*operands))


def _lowered(ctx: Any, *operands: Any, program: Integration) -> Any:
    alone = getattr(ctx.module_context.axis_context, "num_devices", 1) in (None, 1)  # as under shard_map
    made = program.called if alone else functools.partial(_over_devices, program=program)
    return mlir.lower_fun(lambda *x: list(made(*x)), multiple_results=True)(ctx, *operands)


batching.primitive_batchers[integration_p] = _batched
mlir.register_lowering(integration_p, _lowered, platform="cpu")
