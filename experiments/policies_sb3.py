"""PPO of Stable-Baselines3 on an environment of `policies.py`, with the same settings: is our PPO as good as it?

python experiments/policies_sb3.py [--task hopper] [--seeds 2] [--seconds 60]
"""

import argparse
import time

import numpy as np
import stable_baselines3
import torch
from policies import DISCOUNT, LAMBDA, PPO
from policy_tasks import TASKS
from stable_baselines3.common.vec_env import VecNormalize


def mean_return(model: stable_baselines3.PPO, environments: VecNormalize, tests, horizon: int) -> float:
    """Of the mean action over whole episodes."""
    seen, total, over = tests.reset(), 0.0, np.zeros(tests.num_envs, bool)
    for _ in range(horizon):
        actions, _ = model.predict(environments.normalize_obs(seen), deterministic=True)
        seen, rewards, ends, _ = tests.step(actions)
        total, over = total + np.where(over, 0, rewards), over | ends
    return float(np.mean(total))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", default="hopper", choices=[x for x in TASKS if x != "Cassie"])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=60.0, help="of the processor, for each seed")
    options = parser.parse_args()
    torch.set_num_threads(1)
    task, ours = TASKS[options.task](), PPO()
    environment, bounds = task.environment, (-np.ones(task.actions), np.ones(task.actions))
    tests = environment.stable_baselines(32, *bounds)
    network = {"net_arch": [64, 64], "activation_fn": torch.nn.ELU, "log_std_init": -0.7}
    for seed in range(options.seeds):
        inner = environment.stable_baselines(ours.environments, *bounds)
        environments = VecNormalize(inner, norm_reward=False, gamma=DISCOUNT)
        model = stable_baselines3.PPO(
            *("MlpPolicy", environments, ours.rate, ours.horizon),
            batch_size=ours.environments * ours.horizon // ours.batches,
            n_epochs=ours.passes,
            gamma=DISCOUNT,
            gae_lambda=LAMBDA,
            clip_range=ours.clip,
            policy_kwargs=network,
            seed=seed,
        )
        model.learn(ours.environments * ours.horizon)  # compiles
        spent, steps, rows = 0.0, 0, []
        while spent < options.seconds:
            began = time.process_time()
            model.learn(8 * ours.environments * ours.horizon, reset_num_timesteps=False)
            spent, steps = spent + time.process_time() - began, model.num_timesteps
            rows.append(mean_return(model, environments, tests, environment.horizon))
        told = " ".join(f"{x:.0f}" for x in rows)
        each = f"{1e6 * spent / steps:.0f} µs a step, CPU"
        print(f"{options.task}, seed {seed}, {steps} steps, {each}; after equal steps: {told}", flush=True)


if __name__ == "__main__":
    main()
