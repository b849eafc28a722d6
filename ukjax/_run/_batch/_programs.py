"""Solvers and step-size controllers as scalar programs, traced from Diffrax's own code."""

from typing import Any, NamedTuple, NoReturn

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..._compiler import Control, Method, TranslationError, program_of
from ..._motion._projected_solver import refused, shortest_step

NEAR_END = 100
"""Units of rounding within which a step is moved to the end, as Diffrax does."""


def _square(tableau: dfx.ButcherTableau) -> tuple[np.ndarray, np.ndarray]:
    """The coefficients a (s, s) and c (s,) of all stages of an explicit method, the first among them."""
    a, c = np.zeros((tableau.num_stages,) * 2), np.zeros(tableau.num_stages)
    for i, row in enumerate(tableau.a_lower):
        a[i + 1, : i + 1] = row
    c[1:] = tableau.c
    return a, c


def method_of(kind: type[dfx.AbstractSolver], dtype: Any, projected: bool) -> Method:
    """An explicit Runge-Kutta solver: its tableau, and the program of its interpolation.

    **Arguments:**

    - `kind`: of Diffrax's solvers.
    - `dtype`: of the state.
    - `projected`: whether the state is moved after each step, so that no stage of it is left for the next.

    **Raises:** `TranslationError` for other solvers.
    """
    tableau = getattr(kind, "tableau", None)
    # A wrapper of Diffrax's, such as HalfSolver, is an instance of what it wraps, but its class is not a subclass.
    plain = issubclass(kind, dfx.AbstractERK) and kind.step is dfx.AbstractERK.step
    if not (plain and isinstance(tableau, dfx.ButcherTableau)):
        raise TranslationError(f"{kind.__name__} is not an explicit Runge-Kutta solver")
    stages = tableau.num_stages

    def weights(t0: Array, t1: Array, t: Array) -> Array:
        unit = jnp.eye(2 + stages, dtype=dtype)
        between = kind.interpolation_cls(t0=t0, t1=t1, y0=unit[0], y1=unit[1], k=(t1 - t0) * unit[2:])
        return between.evaluate(t)

    (a, c), ends = _square(tableau), np.stack([tableau.b_sol, tableau.b_error])
    times = [jax.ShapeDtypeStruct((), dtype)] * 3
    return Method(a, c, ends, tableau.fsal and not projected, program_of(weights, times, dtype))


class Setting(NamedTuple):
    """What a control depends on.

    - `controller`: a Diffrax controller, with the shapes of its arrays in their place.
    - `error_order`: of the solver.
    - `state`: the shapes of q and v.
    - `projected`: whether steps are.
    - `given`: whether the first step is.
    - `max_steps`: the most to take.
    - `stop`: the code with which a run ends where no motion keeps the constraints; None for one that goes on.
    """

    controller: Any
    error_order: Any
    state: tuple[Any, Any]
    projected: bool
    given: bool
    max_steps: int
    stop: int | None = None


class _Unknown:
    """Stands for the terms and the arguments of a run, at which Diffrax's own controllers do not look."""

    def __getattr__(self, name: str) -> NoReturn:
        raise TranslationError("a controller that looks at the model has no scalar code")


_UNKNOWN: Any = _Unknown()
_RESULT = jax.tree.structure(dfx.RESULTS.successful)


def begun(setting: Setting, controller: Any, t1: Array, t0: Array, dt0: Array | None) -> tuple[Array, Any]:
    """The end of the first step, and what the controller keeps.

    **Arguments:**

    - `setting`: what it depends on.
    - `controller`: with its numbers.
    - `t1`, `t0`: end and start [s].
    - `dt0`: the first step [s], if it is given.

    **Raises:** `TranslationError` where the controller evaluates the field, which Diffrax's own do not in a run.
    """

    def field(*_: Any) -> NoReturn:
        raise TranslationError("a controller that evaluates the field has no scalar code")

    given = _UNKNOWN, t0, t1, setting.state, dt0, _UNKNOWN, field, setting.error_order
    t_next, kept = controller.init(*given)
    return jnp.minimum(t_next, t1), jax.tree.map(jnp.asarray, kept)


def control_of(setting: Setting) -> Control:
    """The program of a controller.

    **Arguments:**

    - `setting`: what it depends on.

    **Raises:** `TranslationError` where a controller does what scalar code cannot.
    """
    dtype = setting.state[0].dtype
    numbers, rest = eqx.partition(setting.controller, lambda x: isinstance(x, jax.ShapeDtypeStruct))
    if any(x.dtype != dtype for x in jax.tree.leaves(numbers)):
        raise TranslationError("a controller with numbers of another type has no scalar code")
    time, count = jax.ShapeDtypeStruct((), dtype), jax.ShapeDtypeStruct((), jnp.int32)
    given = time if setting.given else None
    first = lambda controller, *times: begun(setting, controller, *times)[1]
    kept = eqx.filter_eval_shape(first, setting.controller, time, time, given)

    def step(numbers: Any, *given: Any) -> Any:
        return _stepped(setting, eqx.combine(numbers, rest), *given)

    states = [*setting.state] * 3
    shapes = [numbers, *[time] * 5, kept, time, count, count, count, *states, time]
    count_of = lambda tree: sum(x.size for x in jax.tree.leaves(tree))
    return Control(count_of(numbers), count_of(kept), setting.max_steps, program_of(step, shapes, dtype))


def next_times(accepted: Any, t: Any, t_next: Any, t1: Array, near_end: Array) -> tuple[Array, Array]:
    """The start and the end of the next step: one that would end near the end of the run ends there.

    **Arguments:**

    - `accepted`: whether the last step was.
    - `t`, `t_next`: as the controller gives them.
    - `t1`: the end of the run.
    - `near_end`: the time that is near it.
    """
    t = jnp.minimum(t, t1)
    short = jnp.where(accepted, t1, t + 0.5 * (t1 - t))
    return t, jnp.where(t_next > near_end, short, t_next)


def _stepped(
    setting: Setting, controller: Any, direction: Array, t1: Array, near_end: Array, t: Array, t_next: Array, kept: Any,
    nearness: Array, steps: Array, accepted: Array, result: Array, q: Array, v: Array, q1: Array, v1: Array, eq: Array,
    ev: Array, nearness1: Array,
) -> Any:  # fmt: skip
    """What Diffrax's loop does after a step: whether it is accepted, whether the run goes on, and what is then known."""
    error = eq, ev
    if setting.projected:
        short = None if setting.stop is None else t_next - t <= shortest_step(t, t1)
        error = refused(error, nearness1, nearness, short)
    error = jax.tree.map(lambda x: jnp.where(jnp.isnan(x), jnp.inf, x), error)
    given = t, t_next, (q, v), (q1, v1), _UNKNOWN, error, setting.error_order, kept
    accept, t, t_next, jumped, kept, controlled = controller.adapt_step_size(*given)
    if jumped is not False and not setting.projected:  # a projected step keeps no stage for the next
        raise TranslationError("a controller that jumps has no scalar code without projection")
    t, t_next = next_times(accept, t, t_next, t1, near_end)
    before = jax.tree.unflatten(_RESULT, [result])
    if setting.projected and setting.stop is not None:
        broken = jnp.where(accept & (nearness1 == jnp.inf), setting.stop, result)
        before = jax.tree.unflatten(_RESULT, [broken.astype(result.dtype)])
    after = dfx.RESULTS.where(dfx.is_okay(before), controlled, before)
    steps, accepted = steps + 1, accepted + jnp.where(accept, 1, 0)
    succeeds = dfx.is_successful(after)
    goes_on = (t < t1) & succeeds & (steps < setting.max_steps)
    unfinished = (t < t1) & succeeds & (steps >= setting.max_steps)
    (after,) = jax.tree.leaves(dfx.RESULTS.where(unfinished, dfx.RESULTS.max_steps_reached, after))
    nearness = jnp.where(accept, nearness1, nearness)
    return jnp.asarray(accept), goes_on, t, t_next, kept, nearness, steps, accepted, after
