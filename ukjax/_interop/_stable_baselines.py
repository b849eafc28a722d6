"""An environment as a vector environment of Stable-Baselines3, all copies one compiled step."""

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import jax
import jax.numpy as jnp
import numpy as np
from stable_baselines3.common.vec_env import VecEnv  # pyright: ignore[reportMissingImports]

from .._compiler import JitByZeros
from .._system._system import AbstractSystem
from ._environment_state import InputForce
from ._gymnasium import Copies, check_seed

if TYPE_CHECKING:
    from ._environment import Environment
    from ._environment_state import EnvironmentState


@functools.partial(JitByZeros, kinds=(AbstractSystem, InputForce))
def _step(environment: "Environment", states: "EnvironmentState", actions: Any) -> tuple:
    """The states to go on from, what is seen of them, and what a step told; ended episodes start anew at once."""

    def each(state: "EnvironmentState", action: Any) -> tuple:
        after, reward, terminated, truncated = environment.advance(state, action)
        over, fresh = terminated | truncated, environment.reset(after.key)
        onward = jax.tree.map(lambda new, old: jnp.where(over, new, old), fresh, after)
        last = environment.observation(after)
        return onward, environment.observation(onward), last, reward, terminated, truncated

    return jax.vmap(each)(states, actions)


@final
class StableBaselinesEnvironment(VecEnv):
    """Copies of an `Environment` by the rules of Stable-Baselines3: an ended episode starts anew in the same step, and
    its last observation is in `infos`.

    **Arguments:** as `Environment.stable_baselines`.
    """

    def __init__(self, environment: "Environment", num_envs: int, low: Any, high: Any):
        self.environment, self._copies = environment, Copies(environment, num_envs, low, high)
        self.render_mode, self._actions = None, None
        super().__init__(num_envs, self._copies.observation_space, self._copies.action_space)

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        return super().seed(check_seed(seed))

    def reset(self) -> np.ndarray:
        seeds = self._seeds
        self._reset_seeds()
        return self._copies.reset(np.random.default_rng(), seeds)

    def step_async(self, actions: Any) -> None:
        self._actions = self._copies.check_actions(actions)

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        told = self._copies.advance(_step, self.environment, self._actions)
        seen, last, reward, terminated, truncated = told
        done = terminated | truncated
        infos: list[dict[str, Any]] = [
            {"TimeLimit.truncated": bool(truncated[i] and not terminated[i])}
            | ({"terminal_observation": last[i]} if done[i] else {})
            for i in range(self.num_envs)
        ]
        return seen, reward.astype(np.float32), done, infos

    def close(self) -> None:
        pass

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self, attr_name) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        setattr(self, attr_name, value)

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        method = getattr(self.environment, method_name)
        return [method(*args, **kwargs) for _ in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False for _ in self._get_indices(indices)]
