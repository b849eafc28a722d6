"""A run as one compiled function, for loops."""

import inspect
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array

from .._misc._arguments import real_values, require_finite, require_function
from .._misc._errors import InputError, unknown_name
from .._misc._types import Numbers
from .._system._problem import Problem, resolve_state
from .._system._system import AbstractSystem
from ._simulate import simulate
from ._trajectory import Trajectory

_GIVEN_APART = ("system", "q0", "v0")


def _check_state(name: str, x: Any, first: Array) -> Array:
    """An initial state as the run was made for; of arrays of JAX, only what costs nothing to know is checked."""
    if x is None or (isinstance(x, jax.Array) and (x.shape, x.dtype) == (first.shape, first.dtype)):
        return first if x is None else x
    array = real_values(name, x)
    if array.shape != first.shape:
        raise InputError(
            f"{name} has shape {array.shape}; the run was made for {first.shape} (use jax.vmap for many)."
        )
    require_finite(name, x)
    return array.astype(first.dtype)


def _arrays_of(system: Any, like: tuple[Any, Any]) -> Any:
    """The arrays of a system, as many and of the same shapes as the first has."""
    arrays, kind = eqx.partition(system, eqx.is_array)
    shapes = [[x.shape for x in jax.tree.leaves(one)] for one in (arrays, like[0])]
    if not eqx.tree_equal(kind, like[1]) or shapes[0] != shapes[1]:
        raise InputError("system must be one like that of `compiled`, with other numbers in its arrays.")
    return arrays


def compiled(
    system: AbstractSystem | Problem,
    q0: Numbers | None = None,
    v0: Numbers | None = None,
    *,
    outputs: Callable[[Trajectory], Any] = lambda trajectory: trajectory,
    **options: Any,
) -> Callable[..., Any]:
    """A run as one compiled function of its start and system: `simulate` under `jax.jit`, without checks at each call.

        run = uk.compiled(uk.models.pendulum(), t1=2.0, outputs=lambda trajectory: trajectory.q_end)
        for speed in speeds:
            end = run(v0=speed)

    What `outputs` does not need is not computed. The results are those of `simulate`. The function also works within
    `jit`, `vmap` and differentiation. Of what a call gives only kinds and shapes are checked, not how near the
    constraints it is.

    **Arguments:**

    - `system`: the system, or a `Problem`, which brings q0, v0, t0 and t1.
    - `q0`: initial coordinates (n_q,), where a call does not give others.
    - `v0`: initial velocities (n,), likewise.
    - `outputs`: what to return of the `Trajectory`; by default all of it.
    - `options`: those of `simulate`: t0, t1, ts, solver and so on.

    **Returns:** `run(q0=..., v0=..., system=...)`, all optional; `system` is one like the first, with other numbers in
    its arrays. The first call compiles.

    **Raises:** `InputError` for what `simulate` refuses, for unknown options, and in a call for an initial state of
    another shape or of no numbers, and for a system of another kind.
    """
    known = [name for name in inspect.signature(simulate).parameters if name not in _GIVEN_APART]
    if unknown := [name for name in options if name not in known]:
        raise unknown_name("option", unknown[0], [*known, "outputs"])
    require_function("outputs", outputs, "trajectory")
    if isinstance(system, Problem):
        options = {"t0": system.t0, "t1": system.t1} | options
    first, _, q_first, v_first = resolve_state(system, None, q0, v0)
    arrays_first, kind = eqx.partition(first, eqx.is_array)

    @jax.jit
    def whole(arrays: Any, q0: Array, v0: Array) -> Any:
        return outputs(simulate(eqx.combine(arrays, kind), q0, v0, **options))

    def run(
        q0: Numbers | None = None, v0: Numbers | None = None, *, system: AbstractSystem | None = None
    ) -> Any:
        arrays = arrays_first if system is None else _arrays_of(system, (arrays_first, kind))
        return whole(arrays, _check_state("q0", q0, q_first), _check_state("v0", v0, v_first))

    return run
