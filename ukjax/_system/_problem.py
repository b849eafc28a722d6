"""A system with its initial state, and the one place where states given by a user are checked."""

from collections.abc import Callable
from functools import partial
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._misc._arguments import real_array, real_values, require_finite
from .._misc._closures import hoist_tracers
from .._misc._display import html_of
from .._misc._errors import InputError, format_value
from .._misc._modules import reduce_module
from .._misc._types import Coordinates, Numbers, Time, Velocities, is_traced, is_transforming
from ._labels import title_of
from ._system import AbstractSystem, require_sizes


@final
class Problem(eqx.Module):
    """A system with the initial state, time span and named points that make it a problem to solve.

    **Arguments:**

    - `system`: the mechanical system.
    - `q0`: initial coordinates (n_q,).
    - `v0`: initial velocities (n,).
    - `t0`: start [s].
    - `t1`: end [s].
    - `points`: points(t, q) -> dict of named world positions [m], so that solutions in different
      coordinates can be compared; by default none.
    - `reference`: q(t) in closed form, where an elementary one exists.
    - `citation`: where the problem comes from.
    - `name`: its name, as in `ukjax list`; by default that of the system's class.
    """

    system: AbstractSystem
    q0: Coordinates = eqx.field(converter=partial(real_array, "q0"))
    v0: Velocities = eqx.field(converter=partial(real_array, "v0"))
    t0: Array | float
    t1: Array | float
    points: Callable[[Time, Coordinates], dict[str, Array]] | None = None
    reference: Callable[[Time], Array] | None = None
    citation: str = eqx.field(static=True, default="")
    name: str = eqx.field(static=True, default="")

    def __post_init__(self):
        if not isinstance(self.name, str):
            raise InputError(f"the name of a problem must be text, got {format_value(self.name)}.")
        for end in ("t0", "t1"):
            if not isinstance(x := getattr(self, end), float) and real_values(end, x).ndim:
                raise InputError(f"{end} has shape {jnp.shape(x)}; it must be a scalar.")
        self.name = self.name or title_of(self.system)

    def __repr__(self) -> str:
        """One line: what it is, how large, and its span."""
        is_known = not is_traced(self.t0, self.t1) and not (jnp.ndim(self.t0) or jnp.ndim(self.t1))
        span = f", {float(self.t0):g} to {float(self.t1):g} s" if is_known else ""
        return f"Problem '{self.name}': {jnp.size(self.q0)} coordinates, {jnp.size(self.v0)} velocities{span}"

    def _repr_html_(self) -> str:
        return html_of(self)

    def __reduce__(self):
        return reduce_module(self)


def _remedy(name: str, array: Array) -> str:
    """What to write for an array that is no vector."""
    if array.ndim == 0:
        return f"write [{name}], a number for each velocity"
    return f"write {name}.ravel()" if max(array.shape) == array.size else "for many use jax.vmap"


def resolve_state(
    system: AbstractSystem | Problem,
    t: Time | float | None,
    q: Numbers | None,
    v: Numbers | None,
) -> tuple[AbstractSystem, Time, Coordinates, Velocities]:
    """The system and the state as arrays of one dtype; a `Problem` brings what is not given.

    Values that JAX traces and functions of the system hold are arrays of the system returned.

    **Returns:** (system, t, q, v)."""
    if isinstance(system, Problem):
        t = system.t0 if t is None else t
        q = system.q0 if q is None else q
        v = system.v0 if v is None else v
        system = system.system
    if not isinstance(system, AbstractSystem):
        hint = "make a ukjax.System(mass_matrix, force, constraints), or derive its class from ukjax.AbstractSystem"
        if isinstance(getattr(system, "problem", None), Problem):
            hint = "give its `problem`"
        elif callable(system):
            hint = "call it"
        raise InputError(f"expected a system or a Problem, got {type(system).__name__}: {hint}.")
    t = real_values("t", 0.0 if t is None else t)
    if t.ndim:
        raise InputError(f"t has shape {t.shape}; it must be a scalar, before q and v.")
    if q is None or v is None:
        raise InputError(
            "an initial state is needed: give q0 and v0, or a Problem, which brings its own, as "
            "ukjax.mechanisms.problem(mechanism) does."
        )
    q, v = real_values("q", q), real_values("v", v)
    for name, array in (("q", q), ("v", v)):
        if array.ndim != 1:
            raise InputError(
                f"{name} has shape {array.shape}; one state is a vector: {_remedy(name, array)}."
            )
    if not v.size:
        raise InputError("v has no entries: there is nothing that moves.")
    require_sizes(system, q.size, v.size)
    dtype = q.dtype
    if v.dtype != dtype:
        with jax.numpy_dtype_promotion("standard"):
            dtype = jnp.result_type(q, v)
    if dtype not in (np.float32, np.float64):
        raise InputError(f"q and v must be float32 or float64, got {dtype}: give q.astype(jnp.float32).")
    t, q, v = (x if x.dtype == dtype else x.astype(dtype) for x in (t, q, v))
    for name, array in (("t", t), ("q", q), ("v", v)):
        require_finite(name, array)
    return hoist_tracers(system) if is_transforming() else system, t, q, v
