"""A run of a system with unilateral constraints by equal time steps."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._contact._history import AT_TIMES
from .._contact._rows import contact_model, layout_of, require_newton
from .._contact._stepping import March, march, steps_within
from .._contact._touching import Touching
from .._misc._arguments import require_instance, require_solver, whole_number
from .._misc._errors import InputError
from .._misc._types import is_traced, is_tracing
from .._system._stabilize import AbstractStabilizer
from .._system._system import AbstractSystem
from . import _options
from ._contact_told import ContactRun, begun_at, rows_told, told_of, trajectory_of
from ._interned import interned
from ._observe import Names
from ._plan import Options, padded
from ._results import RESULTS, result_of, step_counts
from ._trajectory import Trajectory


def _checked(options: Options, span: tuple[Array, Array, Array | None]) -> int:
    """The number of steps."""
    o, (t0, t1, dt0) = options, span
    require_instance("stabilizer", o.stabilizer, AbstractStabilizer, "Projection()")
    require_solver(o.solver)
    if dt0 is None:
        raise InputError("contact='steps' needs dt0, the length of its steps [s].")
    if is_traced(t0, t1, dt0):
        raise InputError(
            "contact='steps' needs to know the number of its steps: t0, t1 and dt0 cannot be traced."
        )
    for name in ("event", "dense", "stepsize_controller", "adjoint", "progress"):
        if getattr(o, name) not in (None, False):
            raise InputError(
                f"contact='steps' takes equal steps of its own and knows no {name}; contact='events' does."
            )
    steps, most = steps_within(float(t0), float(t1), float(dt0)), whole_number("max_steps", o.max_steps)
    if steps > most:
        raise InputError(f"{steps} steps of {float(dt0):g} s are more than max_steps = {most}.")
    return steps


@eqx.filter_jit
def _marched(
    run: ContactRun,
    span: tuple[Array, Array],
    q: Array,
    v: Array,
    steps: int | Array,
    room: int | None,
    ts: Array,
) -> tuple[dict[str, Any], March, tuple[Array, Array], Names]:
    args = run.touching
    start = args.model.start(span[0], (q, v))
    found = march(args.model, args.layout, args.coefficients, start, span, steps, ts, room=room)
    told = jax.vmap(lambda *state: told_of(run, *state))(ts, found.q, found.v, found.push)
    return told, found, start, rows_told(run, span[0], *start)


def _first(
    count: int, observed: dict[str, Any], found: March, begun: tuple[Array, Array], rows: Names
) -> tuple:
    """What `_marched` returns, without saved times that were only added to it."""
    cut = lambda x: jnp.asarray(np.asarray(x)[:count])  # by NumPy: each shape would be compiled
    of_times = {name: cut(getattr(found.contacts, name)) for name in AT_TIMES}
    contacts = dataclasses.replace(found.contacts, **of_times)
    return jax.tree.map(cut, observed), found._replace(contacts=contacts), begun, rows


def steps_trajectory(
    system: AbstractSystem,
    options: Options,
    start: tuple[Array, Array, Array],
    rest: tuple[Array, Array | None],
    ts: Array | None,
    *,
    start_tolerance: float | None,
    **told: Any,
) -> Trajectory:
    """The trajectory of a run by equal time steps.

    **Arguments:**

    - `system`: with contacts.
    - `options`: as given to `simulate`.
    - `start`: (t, q, v).
    - `rest`: the end, and the length of the steps.
    - `ts`: the times to save at; None for every step.
    - `start_tolerance`: how far the start may be moved.
    - `told`: fields of the trajectory that are known before the run.

    **Raises:** `InputError` for options that equal steps do not have.
    """
    (t0, q, v), (t1, dt0) = start, rest
    steps, system = _checked(options, (t0, t1, dt0)), interned(system, *start)
    formula = _options.formula(options.formula, options.stabilizer, q.dtype)
    layout, coefficients = layout_of(system, t0, q, v)
    require_newton(layout)
    model, said = contact_model(
        system,
        formula,
        options.stabilizer,
        options.solver,
        start,
        automatic=options.formula is None,
        implicit=True,
    )
    said = f"time steps with {len(layout.names)} contacts; bilateral motion by {said}"
    run = ContactRun(Touching(model, coefficients, layout), formula, options.solver, {}, None, said)
    at = np.linspace(float(t0), float(t1), steps + 1, dtype=q.dtype) if ts is None else ts
    if is_tracing() or is_traced(run, start, at):
        observed, found, begun, rows = _marched(run, (t0, t1), q, v, steps, None, jnp.asarray(at))
    else:
        q, v = begun_at(run, start, options.formula is None, start_tolerance)
        room, ends = 2 ** (steps - 1).bit_length(), padded(np.asarray(at), t1)  # pyright: ignore[reportArgumentType]
        whole = _marched(run, (t0, t1), q, v, jnp.asarray(steps), room, jnp.asarray(ends))
        observed, found, begun, rows = _first(len(at), *whole)
    run = run._replace(computed_by=f"{steps} {said}")
    return trajectory_of(
        run,
        start,
        observed,
        begun=begun,
        rows=rows,
        contacts=found.contacts,
        stats=step_counts(steps, steps) | {"num_unsolved_steps": found.unsolved},
        result=RESULTS.where(found.diverged, RESULTS.diverged, result_of(np.int32(0))),
        **told,
    )
