"""A run as one compiled function, for loops."""

import inspect
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array

from .._misc._arguments import require_function
from .._misc._errors import InputError
from .._misc._names import unknown_name
from .._misc._types import Numbers
from .._system._problem import Problem, resolve_state
from .._system._system import AbstractSystem
from ._simulate import simulate
from ._trajectory import Trajectory

_GIVEN_APART = ("system", "q0", "v0")


def compiled(
    system: AbstractSystem | Problem,
    q0: Numbers | None = None,
    v0: Numbers | None = None,
    *,
    outputs: Callable[[Trajectory], Any] = lambda trajectory: trajectory,
    **options: Any,
) -> Callable[..., Any]:
    """A run as one compiled function of its start and system: `simulate` under `jax.jit`, without checks at each call.

        run = uk.compiled(uk.models.pendulum(), t1=2.0, outputs=lambda trajectory: trajectory.q[-1])
        for speed in speeds:
            end = run(v0=speed)

    What `outputs` does not need is not computed. The results are those of `simulate`. The function also works within
    `jit`, `vmap` and differentiation.

    **Arguments:**

    - `system`: the system, or a `Problem`, which brings q0, v0, t0 and t1.
    - `q0`: initial coordinates (n_q,), where a call does not give others.
    - `v0`: initial velocities (n,), likewise.
    - `outputs`: what to return of the `Trajectory`; by default all of it, as under `jit`: with one entry more than
      `ts`, and infinite times that were not reached.
    - `options`: those of `simulate`: t0, t1, ts, solver and so on.

    **Returns:** `run(q0=..., v0=..., system=...)`, all optional; `system` is one like the first, with other numbers in
    its arrays. The first call compiles.

    **Raises:** `InputError` for what `simulate` refuses, for unknown options, and in a call for a system of another kind.
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
        arrays = arrays_first
        if system is not None:
            arrays, other = eqx.partition(system, eqx.is_array)
            if not eqx.tree_equal(other, kind):
                raise InputError(
                    "system must be like the one given to `compiled`: only numbers in its arrays may differ."
                )
        return whole(arrays, q_first if q0 is None else q0, v_first if v0 is None else v0)

    return run
