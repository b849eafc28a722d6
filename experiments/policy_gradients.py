"""How good gradients of a hopper's return are that go through contacts: bias and deviation of each estimator.

The return of a horizon from states of a learnt policy, with its noise, is differentiated along random directions of the
policy's weights. The reference is the central difference of the mean return on the hard floor, with common random
numbers. Bias is the distance of an estimator's mean from it; deviation is that of one sample, both in lengths of the
reference. A soft floor is another mechanism: its own difference is shown as well.

    python experiments/policy_gradients.py [--quick]
"""

import argparse
import time
from collections.abc import Callable
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array
from paper_tables import Table
from policies import SHAC, Actor, begin, bounded, returns
from policy_tasks import Task, hopper

DIRECTIONS, CHANGE = 6, 0.2  # of unit length in all weights, and how far each moves


def horizon_return(task: Task, act: Callable, state, noise: Array, held=False, cut=False) -> tuple:
    """Of one start: the sum of rewards until the hopper falls, all rewards, and log densities of the actions.

    Actions that are held do not change with the policy, only their density does. Gradients are cut as `policies` does.
    """

    def one(carry: tuple, noise: Array) -> tuple:
        state, over = carry
        if cut:
            state = eqx.tree_at(lambda s: (s.q, s.v), state, (bounded(state.q), bounded(state.v)))
        mean, deviation = act(task.environment.observation(state))
        raw = mean + deviation * noise
        raw = jax.lax.stop_gradient(raw) if held else raw
        log = jnp.sum(-0.5 * ((raw - mean) / deviation) ** 2 - jnp.log(deviation))
        state, reward, fallen, _ = task.environment.advance(state, jnp.tanh(raw))
        reward = jnp.where(over, 0, reward)
        return (state, over | fallen), (reward, log)

    _, (rewards, logs) = jax.lax.scan(one, (state, jnp.asarray(False)), noise)
    return jnp.sum(rewards), rewards, logs


def spread(samples: Array) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of samples (k, directions)."""
    return np.mean(samples, axis=0), np.cov(np.asarray(samples).T)


def main(arguments: list[str] | None = None) -> dict[tuple[int, str], tuple[float, float, float]]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one short horizon, few samples")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    hard, soft, fine, method = hopper(), hopper("soft"), hopper("soft", 24), SHAC()
    learner = begin(soft, method, jax.random.key(0))
    update = eqx.filter_jit(lambda learner: method.update(soft, learner, jnp.asarray(1.0)))
    for _ in range(20 if options.quick else 150):
        learner = update(learner)
    actor, scale = learner.actor, learner.scale
    for name, task in (("soft", soft), ("hard", hard)):
        whole = returns(task, actor, scale, jax.random.split(jax.random.key(4), 64))
        print(f"return of the policy, learnt on the soft floor, on the {name} one: {jnp.mean(whole):.0f}")
    weights, rebuild = ravel_pytree(eqx.filter(actor, eqx.is_array))
    static = eqx.filter(actor, eqx.is_array, inverse=True)
    directions = jax.random.normal(jax.random.key(1), (DIRECTIONS, weights.size))
    directions /= jnp.linalg.norm(directions, axis=1, keepdims=True)

    def moved(x: Array) -> Callable:
        changed: Actor = eqx.combine(rebuild(weights + x @ directions), static)
        return lambda seen: (changed.mean(scale(seen)), jnp.exp(changed.log_deviation))

    @eqx.filter_jit
    def starts(keys: Array):
        """States after 1 s on the hard floor, or where it fell before."""

        def one(state, noise):
            mean, deviation = moved(jnp.zeros(DIRECTIONS))(hard.environment.observation(state))
            after, _, fallen, _ = hard.environment.advance(state, jnp.tanh(mean + deviation * noise))
            return jax.tree.map(lambda a, b: jnp.where(fallen, b, a), after, state), None

        state = jax.vmap(hard.environment.reset)(keys)
        noise = jax.random.normal(keys[0], (60, keys.size, 3))
        return jax.lax.scan(lambda s, e: (jax.vmap(lambda s, e: one(s, e)[0])(s, e), None), state, noise)[0]

    def by_difference(task: Task, state, noise: Array) -> Array:
        gain = lambda x: horizon_return(task, moved(x), state, noise)[0]
        off = CHANGE * jnp.eye(DIRECTIONS)
        return jnp.stack([(gain(x) - gain(-x)) / (2 * CHANGE) for x in off])

    def by_steps(task: Task, state, noise: Array, cut: bool = False) -> Array:
        gain = lambda x: horizon_return(task, moved(x), state, noise, cut=cut)[0]
        return jax.grad(gain)(jnp.zeros(DIRECTIONS))

    def by_likelihood(task: Task, states, noise: Array) -> Array:
        """REINFORCE; the baseline is the mean of what others gain from each step on."""
        zero = jnp.zeros(DIRECTIONS)
        rewards = jax.vmap(lambda s, e: horizon_return(task, moved(zero), s, e)[1])(states, noise)
        ahead = jnp.cumsum(rewards[:, ::-1], axis=1)[:, ::-1]
        ahead = ahead - jnp.mean(ahead, axis=0)
        log = lambda x, s, e, gain: jnp.sum(horizon_return(task, moved(x), s, e, held=True)[2] * gain)
        return jax.vmap(lambda *given: jax.jacfwd(log)(zero, *given))(states, noise, ahead)

    each = lambda fn, task: eqx.filter_jit(jax.vmap(partial(fn, task)))
    shown = Table("", "horizon", "gradient", "bias", "its error", "deviation of a sample", "samples",
                  "µs a step, CPU", names=2)  # fmt: skip
    found = {}
    few, many = (64, 256) if options.quick else (1024, 4096)
    for steps in (8,) if options.quick else (8, 32):
        states = starts(jax.random.split(jax.random.key(2), 2 * many))
        noise = jax.random.normal(jax.random.key(3), (2 * many, steps, 3))
        reference = None
        for name, fn, count in (
            ("hard floor, differences", each(by_difference, hard), 2 * many),
            ("hard floor, through steps", each(by_steps, hard), few),
            ("hard floor, likelihood ratio", eqx.filter_jit(partial(by_likelihood, hard)), few),
            ("soft floor, differences", each(by_difference, soft), many),
            ("soft floor, through steps", each(by_steps, soft), many),
            ("soft floor, through steps, cut", each(partial(by_steps, cut=True), soft), many),
            ("soft floor in 24 substeps, through steps", each(by_steps, fine), many),
            ("soft floor, likelihood ratio", eqx.filter_jit(partial(by_likelihood, soft)), many),
        ):
            some = jax.tree.map(lambda x, k=count: x[:k], (states, noise))
            compiled = fn.lower(*some).compile()
            began = time.process_time()
            samples = jax.block_until_ready(compiled(*some))
            took = 1e6 * (time.process_time() - began) / (count * steps)
            mean, covariance = spread(samples)
            reference = mean if reference is None else reference
            size = np.linalg.norm(reference)
            bias, deviation = np.linalg.norm(mean - reference) / size, np.sqrt(np.trace(covariance)) / size
            found[steps, name] = bias, deviation / np.sqrt(count), deviation
            error = f"{deviation / np.sqrt(count):.3f}"
            shown.add_row(
                str(steps), name, f"{bias:.3f}", error, f"{deviation:.2f}", str(count), f"{took:.0f}"
            )
            print(f"{steps} steps, {name}: {mean.round(3)}", flush=True)
    print(shown)
    return found


if __name__ == "__main__":
    main()
