"""An environment as Gymnasium has them: copies as one vector environment, of one compiled step, or one alone."""

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector.utils import batch_space
from jaxtyping import Array

from .._compiler import JitByZeros
from .._misc._arguments import real_array, require_finite, whole_number
from .._misc._errors import InputError
from .._system._drive import AbstractDrive
from .._system._system import AbstractSystem
from ._environment_state import InputForce

if TYPE_CHECKING:
    from ._environment import Environment
    from ._environment_state import EnvironmentState


@functools.partial(JitByZeros, kinds=(AbstractSystem, InputForce))
def _reset(environment: "Environment", words: Array) -> tuple["EnvironmentState", Array]:
    keys = jax.vmap(lambda x: jax.random.fold_in(jax.random.key(x[0]), x[1]))(words)
    states = jax.vmap(environment.reset)(keys)
    return states, jax.vmap(environment.observation)(states)


@functools.partial(JitByZeros, kinds=(AbstractSystem, InputForce))
def _step(environment: "Environment", states: "EnvironmentState", over: Array, actions: Array) -> tuple:
    """Copies that are `over` start anew and ignore their action; the others make a step."""

    def each(state: "EnvironmentState", over: Array, action: Array) -> tuple:
        after, reward, terminated, truncated = environment.advance(state, action)
        after = jax.tree.map(lambda new, old: jnp.where(over, new, old), environment.reset(state.key), after)
        reward = jnp.where(over, jnp.zeros_like(reward), reward)
        return after, environment.observation(after), reward, terminated & ~over, truncated & ~over

    return jax.vmap(each)(states, over, actions)


def _bounds(environment: "Environment", low: Any, high: Any) -> list[np.ndarray]:
    low, high = real_array("low", low), real_array("high", high)
    try:
        shape = np.broadcast_shapes(low.shape, high.shape)
        apply = environment.apply
        shape = apply.B.shape[1:] if isinstance(apply, InputForce) else shape
        shape = (apply.size,) if isinstance(apply, AbstractDrive) else shape
        return [np.broadcast_to(x, shape) for x in (low, high)]
    except ValueError as error:
        raise InputError(
            f"low and high must have the shape of an action, got {low.shape} and {high.shape}."
        ) from error


@final
class Copies:
    """The states of copies of an environment, and the spaces of one of them.

    **Arguments:** as `VectorEnvironment`.
    """

    def __init__(self, environment: "Environment", num_envs: int, low: Any, high: Any):
        self.environment, self.num_envs = environment, whole_number("num_envs", num_envs, most=10**6)
        state = eqx.filter_eval_shape(environment.reset, jax.random.key(0))
        seen = eqx.filter_eval_shape(environment.observation, state)
        if not isinstance(seen, jax.ShapeDtypeStruct):
            raise InputError("for Gymnasium observe must return one array.")
        self._dtype = state.q.dtype
        low, high = (np.array(x, self._dtype) for x in _bounds(environment, low, high))
        if not np.all(low < high):
            raise InputError(f"low must lie below high, got {low} and {high}.")
        self.action_space = gym.spaces.Box(low, high, dtype=self._dtype.type)
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, seen.shape, dtype=seen.dtype.type)
        self.states: Any = None
        self._folded: tuple[Any, Any] = (None, None)

    def folded_entries(self, environment: "Environment") -> Any:
        """Which of its entries are folded into code: looked at once for each environment."""
        if self._folded[0] is not environment:
            self._folded = environment, _reset.folded(environment)
        return self._folded[1]

    def reset(self, random: np.random.Generator, seeds: Sequence[int | None] = ()) -> np.ndarray:
        """What is observed of new episodes, whose keys are drawn where there is no seed."""
        words = random.integers(2**32, size=(self.num_envs, 2), dtype=np.uint32)
        for k, seed in enumerate(seeds):
            if seed is not None:
                words[k] = np.random.SeedSequence(seed).generate_state(2)
        self.states, seen = _reset(self.environment, words, folded=self.folded_entries(self.environment))
        return np.array(seen)

    def check_actions(self, actions: Any) -> Array:
        """Actions of all copies."""
        if self.states is None:
            raise gym.error.ResetNeeded("reset must be called before step.")  # as Gymnasium has it
        actions = real_array("actions", actions).astype(self._dtype)
        shape = (self.num_envs, *self.action_space.shape)
        if actions.shape != shape:
            raise InputError(f"actions must have shape {shape}, got {actions.shape}.")
        require_finite("actions", actions)
        return actions

    def advance(self, program: JitByZeros, environment: "Environment", *given: Any) -> list[np.ndarray]:
        """What a compiled step of the states tells beside the next ones."""
        self.states, *told = program(
            environment, self.states, *given, folded=self.folded_entries(environment)
        )
        return [np.array(x) for x in told]


def check_seed(seed: Any, name: str = "seed") -> int | None:
    """A seed, or none.

    **Raises:** `InputError`.
    """
    return None if seed is None else whole_number(name, seed, 0, 2**128)


def _refuse_options(options: dict[str, Any] | None) -> None:
    if options:
        raise InputError(f"reset takes no options, got {', '.join(map(repr, options))}.")


@final
class VectorEnvironment(gym.vector.VectorEnv):
    """Copies of an `Environment`, seeded by Gymnasium's rules; an ended episode starts anew at the next step.

    A seed s is short for the seeds s, s + 1, ... of the copies, as in Gymnasium's own vector environments. A copy with a
    seed starts as `SingleEnvironment` does with this seed.

    **Arguments:**

    - `environment`: what is copied.
    - `num_envs`: how many copies.
    - `low`, `high`: least and greatest action, as for `Environment.gymnasium`.
    """

    def __init__(self, environment: "Environment", num_envs: int, low: Any, high: Any):
        self.environment, self._copies = environment, Copies(environment, num_envs, low, high)
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": gym.vector.AutoresetMode.NEXT_STEP}
        self.single_action_space = self._copies.action_space
        self.single_observation_space = self._copies.observation_space
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self._over = jnp.zeros(num_envs, bool)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        _refuse_options(options)
        if isinstance(seed, list | tuple | np.ndarray):
            if len(seed) != self.num_envs:
                raise InputError(
                    f"seed must be one number, or one for each of {self.num_envs} copies, got {len(seed)}."
                )
            seeds = [check_seed(x, f"seed[{k}]") for k, x in enumerate(seed)]
        else:
            first = check_seed(seed)
            seeds = [] if first is None else [first + k for k in range(self.num_envs)]
        super().reset(seed=next((x for x in seeds if x is not None), None))
        self._over = jnp.zeros(self.num_envs, bool)
        return self._copies.reset(self.np_random, seeds), {}

    def step(self, actions: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        actions = self._copies.check_actions(actions)
        told = self._copies.advance(_step, self.environment, self._over, actions)
        seen, reward, terminated, truncated = told
        self._over = jnp.asarray(terminated | truncated)
        return seen, reward, terminated, truncated, {}


@final
class SingleEnvironment(gym.Env):
    """One `Environment` as a `gymnasium.Env`, seeded by Gymnasium's rules.

    **Arguments:**

    - `environment`: the environment.
    - `low`, `high`: least and greatest action, as for `Environment.gymnasium_env`.
    """

    def __init__(self, environment: "Environment", low: Any, high: Any):
        self.environment, self._copies = environment, Copies(environment, 1, low, high)
        self.action_space, self.observation_space = self._copies.action_space, self._copies.observation_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        _refuse_options(options)
        seed = check_seed(seed)
        super().reset(seed=seed)
        return self._copies.reset(self.np_random, [seed])[0], {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        actions = self._copies.check_actions(real_array("action", action)[None])
        told = self._copies.advance(_step, self.environment, jnp.zeros(1, bool), actions)
        seen, reward, terminated, truncated = (x[0] for x in told)
        return seen, float(reward), bool(terminated), bool(truncated), {}
