"""Learning environments: a mechanical system under actions held over each step, as pure functions of a state."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, final

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._compiler import JitByZeros
from .._formula._acceleration import AbstractFormula
from .._misc._arguments import (
    call_user_function,
    flag,
    number_array,
    positive_time,
    real_array,
    require_finite,
    require_function,
    whole_number,
)
from .._misc._errors import InputError, format_value, needing
from .._misc._types import Coordinates, Forces, Time, Velocities
from .._motion._project import Projection, project
from .._run._step import step
from .._system._drive import AbstractDrive, DrivenSystem
from .._system._problem import Problem
from .._system._stabilize import AbstractStabilizer
from .._system._system import AbstractSystem
from ._environment_state import EnvironmentState, InputForce, require_state

if TYPE_CHECKING:
    from ._gymnasium import SingleEnvironment, VectorEnvironment
    from ._stable_baselines import StableBaselinesEnvironment

Sample = Callable[[Array], tuple[Coordinates, Velocities]]


@final
class _Always(eqx.Module):
    """The same initial state for every key."""

    q: Coordinates
    v: Velocities

    def __call__(self, key: Array) -> tuple[Coordinates, Velocities]:
        return self.q, self.v


def _whole_state(t: Time, q: Coordinates, v: Velocities) -> Array:
    return jnp.concatenate([q, v])


def _never(t: Time, q: Coordinates, v: Velocities) -> Array:
    return jnp.asarray(False)


def _input_force(apply: Array) -> InputForce:
    B = real_array("apply", apply)
    if B.ndim != 2:
        raise InputError(f"apply must be a function or an input matrix (n, p), got shape {B.shape}.")
    require_finite("apply", B)
    return InputForce(B)


def _require_meant(system, sample, reward, observe, done, dt, horizon, substeps) -> None:
    if not isinstance(system, AbstractSystem):
        raise InputError(f"expected a system or a Problem, got {type(system).__name__}.")
    for name, function, takes in (
        ("reward", reward, "t, q, v, action"),
        ("observe", observe, "t, q, v"),
        ("sample", sample, "key"),
        ("done", done, "t, q, v"),
    ):
        require_function(name, function, takes)
    positive_time("dt", dt)
    whole_number("horizon", horizon)
    whole_number("substeps", substeps)


def _split(key: Any) -> Array:
    try:
        return jax.random.split(key)
    except (TypeError, ValueError) as error:  # ValueError: of several keys
        raise InputError(
            f"key must be one random key, such as jax.random.key(0), got {format_value(key)}: for many use jax.vmap."
        ) from error


def _scalar(name: str, value: Any) -> Array:
    """What a user's function returned, which must be one number."""
    value = number_array(f"what {name} returns", value)
    if jnp.iscomplexobj(value):
        raise InputError(f"{name} must be real, got {value.dtype}.")
    if value.shape:
        raise InputError(f"{name} must be a scalar, got shape {value.shape}.")
    return value


@partial(JitByZeros, kinds=(AbstractSystem, InputForce))
def _take_substeps(
    system: AbstractSystem,
    apply: Callable[..., Any] | AbstractDrive,
    action: Any,
    t: Array,
    y: tuple[Array, Array],
    h: Array,
    count: int,
    options: dict[str, Any],
) -> tuple[Array, Array]:
    """The state after some steps; compiled here, as a loop that is run outside of `jit` is compiled at each call."""
    if isinstance(apply, AbstractDrive):
        driven = apply.drive(system, t, *y, action, count * h)
    else:
        driven = DrivenSystem(system, apply, action)

    def onwards(y: tuple[Array, Array], i: Array) -> tuple[tuple[Array, Array], None]:
        return step(driven, t + i * h, *y, h, **options), None

    return jax.lax.scan(onwards, y, jnp.arange(count, dtype=h.dtype))[0]


@final
class Environment(eqx.Module):
    """Episodes of a system under actions: `reset` and `step` are pure, for `jit`, `vmap`, `scan` and derivatives.

    An action is held over a step, while the force it makes follows the state: M a = Q + apply(t, q, v, action) +
    constraint force. Steps are made of those of `ukjax.step`, so the constraints hold after each; with unilateral
    constraints they are Moreau's, of first order. Methods are compiled by `equinox.filter_jit(env.step)`;
    `jax.jit` takes a function of its own, `lambda state, u: env.step(state, u)`. An episode ends (it is terminated) where
    its state is not finite: after an action that is not, or a step that `ukjax.step` cannot take.

    **Arguments:**

    - `system`: the mechanical system, or a `Problem`, which brings its initial state and time.
    - `apply`: the generalized force (n,) of an action as a function of (t, q, v, action), or a constant input
      matrix B (n, p) for the force B action; or the `mocap_drive` of a robot.
    - `reward`: r(t, q, v, action) of the state reached, a scalar.
    - `dt`: duration of a step [s].
    - `horizon`: steps of an episode.
    - `observe`: the observation, a function of (t, q, v); by default q and v in one vector.
    - `sample`: (q, v) to start from, a function of a random key; it is projected onto the constraints. By default
      the problem's initial state.
    - `done`: whether an episode ends before its horizon, a function of (t, q, v); by default never.
    - `substeps`: how many steps of `ukjax.step` an action is held over, each of dt / substeps: stiff springs or dampers
      take short ones, of half a millisecond for a robot as Cassie. Method `error` tells whether they are short enough.
    - `t0`: start of every episode [s]; by default the problem's, or 0.
    - `formula`: as for `ukjax.step`.
    - `stabilizer`: as for `ukjax.step`.
    - `solver`: as for `ukjax.step`.

    **Raises:** `InputError` for invalid arguments.
    """

    system: AbstractSystem
    apply: Callable[[Time, Coordinates, Velocities, Array], Forces] | AbstractDrive
    reward: Callable[[Time, Coordinates, Velocities, Array], Array]
    dt: float
    horizon: int = eqx.field(static=True)
    observe: Callable[[Time, Coordinates, Velocities], Array]
    sample: Sample
    done: Callable[[Time, Coordinates, Velocities], Array]
    substeps: int = eqx.field(static=True)
    t0: Array | float
    formula: AbstractFormula | None
    stabilizer: AbstractStabilizer
    solver: dfx.AbstractSolver

    def __init__(
        self,
        system: AbstractSystem | Problem,
        apply: Callable[[Time, Coordinates, Velocities, Array], Forces] | AbstractDrive | Array,
        reward: Callable[[Time, Coordinates, Velocities, Array], Array],
        *,
        dt: float,
        horizon: int,
        observe: Callable[[Time, Coordinates, Velocities], Array] = _whole_state,
        sample: Sample | None = None,
        done: Callable[[Time, Coordinates, Velocities], Array] = _never,
        substeps: int = 1,
        t0: Array | float | None = None,
        formula: AbstractFormula | None = None,
        stabilizer: AbstractStabilizer = Projection(),
        solver: dfx.AbstractSolver = dfx.Tsit5(),
    ):
        if isinstance(system, Problem):
            t0 = system.t0 if t0 is None else t0
            sample = _Always(system.q0, system.v0) if sample is None else sample
            system = system.system
        if sample is None:
            raise InputError("an initial state is needed: give sample, or a Problem, which brings its own.")
        _require_meant(system, sample, reward, observe, done, dt, horizon, substeps)
        real_array("t0", 0.0 if t0 is None else t0)
        apply = apply if callable(apply) or isinstance(apply, AbstractDrive) else _input_force(apply)
        self.system, self.apply, self.reward, self.dt, self.horizon = system, apply, reward, dt, horizon
        self.observe, self.sample, self.done, self.substeps = observe, sample, done, substeps
        self.t0 = 0.0 if t0 is None else t0
        self.formula, self.stabilizer, self.solver = formula, stabilizer, solver

    def reset(self, key: Array) -> EnvironmentState:
        """The first state of an episode.

        **Arguments:**

        - `key`: a JAX random key.

        **Returns:** the state; `observation` shows what is seen of it.
        """
        key, draw = _split(key)
        start = call_user_function("sample", self.sample, draw)
        if not isinstance(start, tuple | list) or len(start) != 2:
            raise InputError(f"sample must return the pair (q, v), got {format_value(start)}.")
        q, v = project(self.system, self.t0, *start)
        return EnvironmentState(jnp.asarray(self.t0, q.dtype), q, v, jnp.asarray(0, jnp.int32), key)

    def observation(self, state: EnvironmentState) -> Array:
        """What is observed of a state.

        **Arguments:**

        - `state`: from `reset` or `step`.
        """
        require_state(state)
        return call_user_function("observe", self.observe, state.t, state.q, state.v)

    def _reached(self, state: EnvironmentState, action: Array, substeps: int) -> tuple[Array, Array, Any]:
        """(q, v) after a step, and the action as numbers."""
        require_state(state)
        numbers = partial(number_array, "action")
        action = numbers(action) if isinstance(self.apply, InputForce) else jax.tree.map(numbers, action)
        options = {"formula": self.formula, "stabilizer": self.stabilizer, "solver": self.solver}
        h = jnp.asarray(self.dt, state.q.dtype) / substeps
        at = state.t, (state.q, state.v), h
        return *_take_substeps(self.system, self.apply, action, *at, substeps, options), action

    def error(self, state: EnvironmentState, action: Array) -> tuple[Coordinates, Velocities]:
        """How far off a step is, which none tells by itself: what twice the substeps add to the state reached.

        Of a method of order p that is 1 - 2^-p of the error, where steps are short enough for it to be small.

        **Arguments:**

        - `state`: from `reset` or `step`.
        - `action`: held over the step.

        **Returns:** the changes of q (n_q,) and v (n,).
        """
        (q, v, _), (q2, v2, _) = (self._reached(state, action, k * self.substeps) for k in (1, 2))
        return q2 - q, v2 - v

    def advance(self, state: EnvironmentState, action: Array) -> tuple[EnvironmentState, Array, Array, Array]:
        """One step, with the two ways an episode ends told apart.

        **Arguments:**

        - `state`: from `reset` or `step`.
        - `action`: held over the step.

        **Returns:** (state, reward, terminated, truncated): terminated by `done` or a state that is not finite, truncated
        at the horizon.
        """
        q, v, action = self._reached(state, action, self.substeps)
        steps = state.steps + 1
        t = jnp.asarray(self.t0, q.dtype) + steps.astype(q.dtype) * jnp.asarray(self.dt, q.dtype)
        reward = _scalar("reward", call_user_function("reward", self.reward, t, q, v, action))
        done = _scalar("done", call_user_function("done", self.done, t, q, v))
        if jnp.issubdtype(done.dtype, jnp.floating):  # a margin would be true on both sides of zero
            raise InputError(f"done must be a truth value such as q[1] < 0, got {done.dtype}.")
        done = done.astype(bool)
        done = done | ~(jnp.all(jnp.isfinite(q)) & jnp.all(jnp.isfinite(v)))
        return EnvironmentState(t, q, v, steps, state.key), reward, done, steps >= self.horizon

    def step(
        self, state: EnvironmentState, action: Array, *, auto_reset: bool = False
    ) -> tuple[EnvironmentState, Array, Array, Array]:
        """One step of an episode.

        **Arguments:**

        - `state`: from `reset` or `step`.
        - `action`: held over the step.
        - `auto_reset`: where the episode ends, return the first state of the next one and its observation, so that a
          `scan` goes on; reward and done are those of the step taken.

        **Returns:** (state, observation, reward, done).
        """
        auto_reset = flag("auto_reset", auto_reset)
        after, reward, terminated, truncated = self.advance(state, action)
        done = terminated | truncated
        if auto_reset:
            fresh = self.reset(after.key)
            after = jax.tree.map(lambda new, old: jnp.where(done, new, old), fresh, after)
        return after, self.observation(after), reward, done

    def gymnasium(self, num_envs: int, low: Array | float, high: Array | float) -> "VectorEnvironment":
        """Many copies as a Gymnasium vector environment, compiled as one.

        Episodes that ended start anew at the next step (`AutoresetMode.NEXT_STEP`).

        **Arguments:**

        - `num_envs`: how many.
        - `low`: least action; an array of the shape of an action, or one number for all its entries.
        - `high`: greatest action, likewise; for a function `apply` one of the two must have the shape of an action.

        **Returns:** the `gymnasium.vector.VectorEnv`.

        **Raises:** `MissingExtraError` without gymnasium, and `InputError` for bounds of other shapes or in the wrong
        order.
        """
        with needing("Environment.gymnasium()", "gym"):
            from ._gymnasium import VectorEnvironment
        return VectorEnvironment(self, num_envs, low, high)

    def gymnasium_env(self, low: Array | float, high: Array | float) -> "SingleEnvironment":
        """This environment as a single `gymnasium.Env`, for programs that take no other; a batch is far faster.

        **Arguments:**

        - `low`, `high`: least and greatest action, as for `gymnasium`.

        **Returns:** the `gymnasium.Env`.

        **Raises:** as `gymnasium`.
        """
        with needing("Environment.gymnasium_env()", "gym"):
            from ._gymnasium import SingleEnvironment
        return SingleEnvironment(self, low, high)

    def stable_baselines(
        self, num_envs: int, low: Array | float, high: Array | float
    ) -> "StableBaselinesEnvironment":
        """Many copies as a vector environment of Stable-Baselines3, compiled as one.

        Episodes that ended start anew in the same step; `infos` has what was last observed of them, and whether they
        ended at the horizon only, as that library expects.

        **Arguments:**

        - `num_envs`: how many.
        - `low`, `high`: least and greatest action, as for `gymnasium`.

        **Returns:** the `stable_baselines3.common.vec_env.VecEnv`.

        **Raises:** `MissingExtraError` without stable-baselines3 (`ukjax[sb3]`), and `InputError` as `gymnasium`.
        """
        with needing("Environment.stable_baselines()", "sb3"):
            from ._stable_baselines import StableBaselinesEnvironment
        return StableBaselinesEnvironment(self, num_envs, low, high)
