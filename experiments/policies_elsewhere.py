"""Policies that `policies.py` has kept, with steps a quarter as long, and in Gymnasium's own half-cheetah and ant.

python experiments/policies_elsewhere.py [--folder out/policies]
"""

import argparse
import copy
from pathlib import Path

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from policies import PPO, begin, returns
from policy_tasks import ASSETS, TASKS, Task

import ukjax as uk

NAMES = {"half-cheetah": ("HalfCheetah-v5", "half_cheetah.xml"), "ant": ("Ant-v5", "ant.xml")}


def finer(task: Task) -> Task:
    environment = copy.copy(task.environment)
    object.__setattr__(environment, "substeps", 4 * environment.substeps)
    return Task(environment, task.actions)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("out/policies"))
    folder = parser.parse_args().folder
    for name, (theirs, asset) in NAMES.items():
        task, robot = TASKS[name](), uk.load(str(ASSETS / asset))
        learner = begin(task, PPO(), jax.random.key(0))
        for file in sorted(folder.glob(f"{name} *.eqx")):
            actor, scale = eqx.tree_deserialise_leaves(file, (learner.actor, learner.scale))
            keys = jax.random.split(jax.random.key(3), 16)
            here, fine = (float(jnp.mean(returns(x, actor, scale, keys))) for x in (task, finer(task)))
            act = jax.jit(
                lambda q, v, a=actor, s=scale, e=task.environment: jnp.tanh(a.mean(s(e.observe(0.0, q, v))))
            )
            world, far = gymnasium.make(theirs), []
            for seed in range(3):
                world.reset(seed=seed)
                data = world.unwrapped.data
                start = data.qpos[0]
                for _ in range(task.environment.horizon):
                    q, v = robot.state_from_mujoco(data.qpos.copy(), data.qvel.copy())
                    state = (jnp.asarray(x, jnp.float32) for x in (q, v))
                    if world.step(np.asarray(act(*state)))[2]:
                        break
                far.append(f"{data.qpos[0] - start:.0f}")
            print(f"{file.stem}: return {here:.0f}, in finer steps {fine:.0f}; in MuJoCo {' '.join(far)} m")


if __name__ == "__main__":
    main()
