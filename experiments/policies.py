"""Policies by analytic gradients (short-horizon actor-critic, Xu et al. 2022) beside PPO, on the same environments.

Both learn with the same networks, rewards and environments, in float32; an update is one compiled program. What is shown
is the return of the mean action over 32 whole episodes against the processor time of the updates.

Curves are kept in the folder of the figure, which shows all that are there: tasks may be learnt one by one.

    python experiments/policies.py [--tasks cart-pole hopper] [--by SHAC PPO] [--seeds 1] [--share 1] [--out out/policies]
"""

import argparse
import time
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax
from jaxtyping import Array
from paper_tables import Table
from policy_tasks import TASKS, Task, hopper

import ukjax as uk
from ukjax._figures._plot import STYLE

DISCOUNT, LAMBDA = 0.99, 0.95


# --- Networks


class Scale(eqx.Module):
    """Running mean and variance of observations."""

    mean: Array
    variance: Array
    count: Array

    def __call__(self, x: Array) -> Array:
        return jnp.clip((x - self.mean) / jnp.sqrt(self.variance + 1e-6), -10, 10)

    def with_batch(self, x: Array) -> "Scale":
        """After another batch (k, n), by Chan's formula."""
        count = self.count + x.shape[0]
        off, share = jnp.mean(x, axis=0) - self.mean, x.shape[0] / count
        spread = self.variance * (1 - share) + jnp.var(x, axis=0) * share + off**2 * share * (1 - share)
        return Scale(self.mean + off * share, spread, count)


class Actor(eqx.Module):
    """A normal distribution of actions before they are bounded; its deviation is the same everywhere."""

    mean: eqx.nn.MLP
    log_deviation: Array

    def __init__(self, sees: int, actions: int, key: Array):
        net = eqx.nn.MLP(sees, actions, 64, 2, jax.nn.elu, key=key)
        last = lambda net: net.layers[-1].weight
        self.mean = eqx.tree_at(last, net, 0.01 * last(net))
        self.log_deviation = jnp.full(actions, -0.7)


class Learner(NamedTuple):
    """All that an update changes."""

    actor: Actor
    critic: eqx.nn.MLP
    target: eqx.nn.MLP
    scale: Scale
    actor_state: optax.OptState
    critic_state: optax.OptState
    states: uk.EnvironmentState
    key: Array


class Step(NamedTuple):
    """What a rollout keeps of each step: `seen` before, `after` it; `over`: the episode ended, by `fallen` or time."""

    seen: Array
    raw: Array
    reward: Array
    after: Array
    fallen: Array
    over: Array


def value(critic: eqx.nn.MLP, scale: Scale, seen: Array) -> Array:
    return critic(scale(seen))[0]


@jax.custom_vjp
def bounded(x: Array) -> Array:
    """x; a gradient that comes back through it is cut to norm 1e3, and to zero where it is not finite."""
    return x


def _cut(_: None, g: Array) -> tuple[Array]:
    norm = jnp.linalg.norm(g)
    return (jnp.where(jnp.isfinite(norm), g * jnp.minimum(1, 1e3 / jnp.maximum(norm, 1e-12)), 0),)


bounded.defvjp(lambda x: (x, None), _cut)


def move(task: Task, actor: Actor, scale: Scale, state: uk.EnvironmentState, noise: Array) -> tuple:
    """One step of one environment, which starts anew where its episode is over."""
    environment = task.environment
    state = eqx.tree_at(lambda s: (s.q, s.v), state, (bounded(state.q), bounded(state.v)))
    seen = environment.observation(state)
    raw = actor.mean(scale(seen)) + jnp.exp(actor.log_deviation) * noise
    reached, reward, fallen, late = environment.advance(state, jnp.tanh(raw))
    over = fallen | late
    fresh = environment.reset(reached.key)
    onwards = jax.tree.map(lambda new, old: jnp.where(over, new, old), fresh, reached)
    return onwards, Step(seen, raw, reward, environment.observation(reached), fallen, over)


def roll(task: Task, actor: Actor, scale: Scale, states: uk.EnvironmentState, noise: Array) -> tuple:
    """Steps (k, environments) under noise (k, environments, actions)."""

    def one(states: uk.EnvironmentState, noise: Array) -> tuple:
        return jax.vmap(lambda s, e: move(task, actor, scale, s, e))(states, noise)

    return jax.lax.scan(one, states, noise)


def lambda_returns(steps: Step, values: Array) -> Array:
    """TD(lambda) targets (k, environments) from the values after each step."""
    live = DISCOUNT * ~steps.fallen

    def back(later: Array, x: tuple) -> tuple:
        reward, live, over, value = x
        target = reward + live * jnp.where(over, value, (1 - LAMBDA) * value + LAMBDA * later)
        return target, target

    inputs = steps.reward, live, steps.over, values
    return jax.lax.scan(back, values[-1], inputs, reverse=True)[1]


def fit(loss, model, state, optimizer, share, data, key: Array, passes: int, batches: int) -> tuple:
    """Passes of an optimizer, a share of its steps, over minibatches of data, whose arrays have the samples first."""
    size = jax.tree.leaves(data)[0].shape[0]
    arrays, static = eqx.partition(model, eqx.is_array)

    def one(carry: tuple, chosen: Array) -> tuple:
        arrays, state = carry
        batch = jax.tree.map(lambda x: x[chosen], data)
        slope = jax.grad(lambda a: loss(eqx.combine(a, static), batch))(arrays)
        change, state = optimizer.update(slope, state)
        return (optax.apply_updates(arrays, jax.tree.map(lambda x: share * x, change)), state), None

    order = jax.vmap(lambda k: jax.random.permutation(k, size))(jax.random.split(key, passes))
    (arrays, state), _ = jax.lax.scan(one, (arrays, state), order.reshape(passes * batches, -1))
    return eqx.combine(arrays, static), state


# --- Short-horizon actor-critic


class SHAC(NamedTuple):
    """The actor climbs the gradient of the return of a short horizon and of the target critic at its end."""

    environments: int = 32
    horizon: int = 16
    rate: float = 2e-3
    critic_rate: float = 2e-3
    kept: float = 0.4  # of the target critic, each update
    passes: int = 4
    batches: int = 4

    def optimizers(self) -> tuple:
        adam = lambda rate: optax.apply_if_finite(
            optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate, 0.7, 0.95)), 1000
        )
        return adam(self.rate), adam(self.critic_rate)

    def update(self, task: Task, learner: Learner, share: Array) -> Learner:
        optimizers = self.optimizers()
        key, one, two = jax.random.split(learner.key, 3)
        scale, target = learner.scale, learner.target
        noise = jax.random.normal(one, (self.horizon, self.environments, task.actions))

        def loss(actor: Actor) -> tuple:
            states, steps = roll(task, actor, scale, learner.states, noise)
            last = jnp.arange(self.horizon)[:, None] == self.horizon - 1
            worth = jax.vmap(jax.vmap(lambda x: value(target, scale, x)))(steps.after)
            gain = steps.reward + DISCOUNT * jnp.where((steps.over | last) & ~steps.fallen, worth, 0)
            # The discount starts anew with each episode.
            ages = jax.lax.scan(
                lambda age, over: (jnp.where(over, 0, age + 1), age),
                jnp.zeros(self.environments, int),
                steps.over,
            )[1]
            return -jnp.sum(DISCOUNT**ages * gain) / noise[..., 0].size, (states, steps)

        (_, (states, steps)), slope = eqx.filter_value_and_grad(loss, has_aux=True)(learner.actor)
        change, actor_state = optimizers[0].update(slope, learner.actor_state)
        actor = eqx.apply_updates(learner.actor, jax.tree.map(lambda x: share * x, change))
        steps = jax.lax.stop_gradient(steps)
        worth = jax.vmap(jax.vmap(lambda x: value(target, scale, x)))(steps.after)
        data = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (steps.seen, lambda_returns(steps, worth)))

        def error(critic: eqx.nn.MLP, batch: tuple) -> Array:
            return jnp.mean((jax.vmap(lambda x: value(critic, scale, x))(batch[0]) - batch[1]) ** 2)

        critic, critic_state = fit(
            *(error, learner.critic, learner.critic_state, optimizers[1], share),
            *(data, two, self.passes, self.batches),
        )
        target = jax.tree.map(
            lambda old, new: self.kept * old + (1 - self.kept) * new if eqx.is_array(old) else old,
            target,
            critic,
        )
        scale = scale.with_batch(data[0])
        return Learner(actor, critic, target, scale, actor_state, critic_state, states, key)


# --- Proximal policy optimization (Schulman et al. 2017)


class PPO(NamedTuple):
    """The actor climbs the likelihood ratio, clipped, times generalized advantages."""

    environments: int = 64
    horizon: int = 32
    rate: float = 5e-4
    clip: float = 0.2
    passes: int = 8
    batches: int = 8

    def optimizers(self) -> tuple:
        return optax.chain(optax.clip_by_global_norm(0.5), optax.adam(self.rate)), None

    def update(self, task: Task, learner: Learner, share: Array) -> Learner:
        optimizers = self.optimizers()
        key, one, two = jax.random.split(learner.key, 3)
        scale = learner.scale
        noise = jax.random.normal(one, (self.horizon, self.environments, task.actions))
        states, steps = roll(task, learner.actor, scale, learner.states, noise)
        worth = lambda seen: jax.vmap(jax.vmap(lambda x: value(learner.critic, scale, x)))(seen)
        returns = lambda_returns(steps, worth(steps.after))
        advantage = returns - worth(steps.seen)
        log = lambda actor, seen, raw: jnp.sum(
            -0.5 * ((raw - actor.mean(scale(seen))) / jnp.exp(actor.log_deviation)) ** 2 - actor.log_deviation
        )
        before = jax.vmap(jax.vmap(lambda seen, raw: log(learner.actor, seen, raw)))(steps.seen, steps.raw)
        data = jax.tree.map(
            lambda x: x.reshape(-1, *x.shape[2:]), (steps.seen, steps.raw, before, advantage, returns)
        )

        def loss(models: tuple, batch: tuple) -> Array:
            actor, critic = models
            seen, raw, before, advantage, returns = batch
            ratio = jnp.exp(jax.vmap(lambda s, r: log(actor, s, r))(seen, raw) - before)
            advantage = (advantage - jnp.mean(advantage)) / (jnp.std(advantage) + 1e-8)
            gain = jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - self.clip, 1 + self.clip) * advantage)
            off = jax.vmap(lambda x: value(critic, scale, x))(seen) - returns
            return -jnp.mean(gain) + 0.5 * jnp.mean(off**2)

        (actor, critic), state = fit(
            *(loss, (learner.actor, learner.critic), learner.actor_state, optimizers[0], share),
            *(data, two, self.passes, self.batches),
        )
        scale = scale.with_batch(data[0])
        return Learner(actor, critic, critic, scale, state, None, states, key)


# --- Learning, and how good it is


def begin(task: Task, method: SHAC | PPO, key: Array) -> Learner:
    """Networks and environments before the first update."""
    optimizers = method.optimizers()
    key, one, two, three = jax.random.split(key, 4)
    states = jax.vmap(task.environment.reset)(jax.random.split(one, method.environments))
    # Episodes that began together would also end together.
    states = eqx.tree_at(
        lambda s: s.steps,
        states,
        jax.random.randint(one, states.steps.shape, 0, task.environment.horizon, states.steps.dtype),
    )
    sees = jax.vmap(task.environment.observation)(states).shape[1]
    actor = Actor(sees, task.actions, two)
    critic = eqx.nn.MLP(sees, 1, 64, 2, jax.nn.elu, key=three)
    scale = Scale(jnp.zeros(sees), jnp.ones(sees), jnp.asarray(1e-3))
    both = (actor, critic) if optimizers[1] is None else actor
    arrays = lambda x: eqx.filter(x, eqx.is_array)
    critic_state = None if optimizers[1] is None else optimizers[1].init(arrays(critic))
    learner = Learner(
        actor, critic, critic, scale, optimizers[0].init(arrays(both)), critic_state, states, key
    )
    return jax.tree.map(lambda x: jax.lax.convert_element_type(x, x.dtype) if eqx.is_array(x) else x, learner)


@eqx.filter_jit
def returns(task: Task, actor: Actor, scale: Scale, keys: Array) -> Array:
    """Sums of rewards of whole episodes under the mean action."""

    def one(carry: tuple, _: None) -> tuple:
        state, over, total = carry
        seen = task.environment.observation(state)
        state, reward, fallen, late = task.environment.advance(state, jnp.tanh(actor.mean(scale(seen))))
        total = total + jnp.where(over, 0, reward)
        return (state, over | fallen | late, total), None

    def episode(key: Array) -> Array:
        start = task.environment.reset(key), jnp.asarray(False), jnp.asarray(0.0)
        return jax.lax.scan(one, start, length=task.environment.horizon)[0][2]

    return jax.vmap(episode)(keys)


class Curve(NamedTuple):
    """Processor seconds of the updates, without the compilation, steps taken, and mean returns."""

    seconds: np.ndarray
    steps: np.ndarray
    returns: np.ndarray


class Learning(NamedTuple):
    """Of a method on a task: processor seconds that compilation took, and for each seed what was learnt."""

    compiled: float
    learners: list[Learner]
    curves: list[Curve]


def learn(task: Task, method: SHAC | PPO, seeds: int, seconds: float, points: int) -> Learning:
    """Learns for so many processor seconds from each seed; the steps of the optimizers fall to a tenth meanwhile."""
    update = eqx.filter_jit(lambda learner, share: method.update(task, learner, share))
    tests = jax.random.split(jax.random.key(1000), 32)
    began = time.process_time()
    jax.block_until_ready(update(begin(task, method, jax.random.key(0)), jnp.asarray(0.0)))
    found = Learning(time.process_time() - began, [], [])
    for seed in range(seeds):
        learner, spent, updates, rows = begin(task, method, jax.random.key(seed)), 0.0, 0, []
        while True:
            if spent >= len(rows) * seconds / points:
                mean = float(jnp.mean(returns(task, learner.actor, learner.scale, tests)))
                rows.append((spent, updates, mean))
                if spent >= seconds:
                    break
            began = time.process_time()
            learner = jax.block_until_ready(update(learner, jnp.asarray(1 - 0.9 * spent / seconds)))
            spent, updates = spent + time.process_time() - began, updates + 1
        took, count, mean = np.array(rows).T
        found.learners.append(learner)
        found.curves.append(Curve(took, count * method.environments * method.horizon, mean))
        told = " ".join(f"{x:.0f}" for x in mean)
        print(f"  seed {seed}, {updates} updates, returns after equal times: {told}", flush=True)
    return found


# --- What is shown

# Task, method, processor seconds for each seed, seeds, and how often the policy is tried.
STUDIES = (
    ("soft hopper", SHAC(), 15.0, 3, 20),
    ("soft hopper", PPO(), 15.0, 3, 20),
    ("cart-pole", SHAC(), 7.5, 3, 20),
    ("cart-pole", PPO(), 7.5, 3, 20),
    ("hopper", SHAC(rate=5e-4), 15.0, 3, 20),
    ("hopper", PPO(), 15.0, 3, 20),
    ("half-cheetah", SHAC(), 60.0, 3, 20),
    ("half-cheetah", PPO(), 60.0, 3, 20),
    ("ant", SHAC(), 120.0, 2, 20),
    ("ant", PPO(), 120.0, 2, 20),
    ("Cassie", SHAC(environments=16, horizon=8), 120.0, 1, 4),
    ("Cassie", PPO(), 120.0, 1, 4),
)
COLOURS = {"SHAC": "#0b5fa5", "PPO": "#c8452b"}


def kept(folder: Path) -> dict[tuple[str, str], dict[str, np.ndarray]]:
    """By task and method: `seconds`, `steps` and `returns` (seeds, points), and `compiled`."""
    studies = ((task, type(method).__name__) for task, method, *_ in STUDIES)
    files = {study: folder / f"{study[0]} {study[1]}.npz" for study in studies}
    return {study: dict(np.load(file)) for study, file in files.items() if file.exists()}


def draw(found: dict[tuple[str, str], dict[str, np.ndarray]], file: Path) -> None:
    tasks = list(dict.fromkeys(task for task, _ in found))
    rows = -(-len(tasks) // 3)
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(
            rows, min(3, len(tasks)), figsize=(11, 3.2 * rows), layout="constrained", squeeze=False
        )
        for axis in axes.flat[len(tasks) :]:
            axis.set_axis_off()
        for (task, method), curves in found.items():
            axis = axes.flat[tasks.index(task)]
            lines = axis.plot(curves["seconds"].T, curves["returns"].T, color=COLOURS[method], lw=1.2)
            lines[0].set_label(method)
            axis.set(xlabel="processor time [s]", ylabel="return", title=task)
            axis.legend()
        figure.savefig(file, dpi=110)
        plt.close(figure)


def table(found: dict[tuple[str, str], dict[str, np.ndarray]]) -> Table:
    """Returns of each seed after an eighth of the time, a quarter, ..."""
    parts = (f"after {k} of CPU time" for k in ("1/8", "1/4", "1/2", "1/1"))
    shown = Table("", "task", "by", "CPU time [s]", *parts, "1e3 steps in CPU time", "µs a step, CPU",
                  "compiled, CPU s", names=2)  # fmt: skip
    for study, curves in found.items():
        seconds, steps, gains = curves["seconds"], curves["steps"], curves["returns"]
        whole = np.min(seconds[:, -1])
        at = lambda t, s=seconds, g=gains: " ".join(f"{np.interp(t, *x):.0f}" for x in zip(s, g, strict=True))
        each = 1e6 * np.sum(seconds[:, -1]) / np.sum(steps[:, -1])
        shown.add_row(*study, f"{whole:.0f}", *(at(whole / k) for k in (8, 4, 2, 1)),
                      f"{np.mean(steps[:, -1]) / 1e3:.0f}", f"{each:.0f}", f"{curves['compiled']:.0f}")  # fmt: skip
    return shown


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/policies"), help="folder of curves and figure")
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--by", nargs="*", default=list(COLOURS), choices=list(COLOURS))
    parser.add_argument("--seeds", type=int, help="instead of those of each study")
    parser.add_argument("--share", type=float, default=1.0, help="of the time of each study")
    parser.add_argument("--quick", action="store_true", help="one seed, a tenth of the time")
    options = parser.parse_args(arguments)
    if options.quick:
        options.seeds, options.share = 1, 0.1
    plt.switch_backend("agg")
    options.out.mkdir(parents=True, exist_ok=True)
    tests = jax.random.split(jax.random.key(2000), 64)
    moved = Table("", "learnt on the soft floor by", "there", "on the hard floor")
    for name, method, seconds, seeds, points in STUDIES:
        kind = type(method).__name__
        if name not in options.tasks or kind not in options.by:
            continue
        task = TASKS[name]()
        print(f"{name}, {kind}", flush=True)
        learning = learn(task, method, options.seeds or seeds, options.share * seconds, points)
        curves = {x: np.stack([getattr(curve, x) for curve in learning.curves]) for x in Curve._fields}
        np.savez(options.out / f"{name} {kind}.npz", compiled=learning.compiled, **curves)
        for seed, learner in enumerate(learning.learners):
            eqx.tree_serialise_leaves(
                options.out / f"{name} {kind} {seed}.eqx", (learner.actor, learner.scale)
            )
        if name == "soft hopper":
            hard = hopper()
            for learner in learning.learners:
                there, here = (
                    float(jnp.mean(returns(x, learner.actor, learner.scale, tests))) for x in (task, hard)
                )
                moved.add_row(kind, f"{there:.0f}", f"{here:.0f}")
        draw(kept(options.out), options.out / "policies.png")
    print(table(kept(options.out)))
    if len(moved.rows) > 1:
        print(moved)


if __name__ == "__main__":
    main()
