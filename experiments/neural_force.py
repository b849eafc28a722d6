"""A neural network learns the friction of a four-bar linkage's crank bearing, with and without the Udwadia-Kalaba layer.

The same network, with the same initial weights, data, loss and optimizer, gives generalized forces on the two pins from
their positions and velocities:

- with the layer it is an impressed force of the constrained system, so that friction is all it has to learn;
- without, it has to learn the forces of the rods as well, and nothing keeps their lengths;
- without, with a penalty on the lengths' errors in the loss.

Training minimizes the error of short runs through `uk.step` with Projection. Judged by held-out runs of 4 s.

    python experiments/neural_force.py [--out out/neural_force] [--quick]
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax
from four_bar import LENGTHS, FourBar
from paper_tables import Table
from rollout import rollout

import ukjax as uk
from ukjax._figures._plot import STYLE

DT, WINDOW, BATCH, STEPS = 0.02, 10, 64, 200
SCALES = np.array([0.5, 3.0])  # of positions [m] and velocities [m/s] in the loss
STARTS = ((1.2, 0.0), (2.5, 0.0), (-2.0, 3.0), (0.3, -2.0), (1.8, 4.0), (-0.6, -4.0), (3.0, 2.0), (0.9, 6.0))
HELD_OUT = ((1.5, 2.0), (2.8, -3.0), (-1.2, 0.0), (0.5, 5.0))  # crank angle [rad] and rate [rad/s]
CASES = {"with the layer": (True, 0.0), "without": (False, 0.0), "without, penalty": (False, 10.0)}
COLOURS = ("#0b5fa5", "#c8452b", "#2f8f4e")

Force = Callable[[jax.Array, jax.Array], jax.Array]


def torque(rate: jax.Array) -> jax.Array:
    """The true friction [N m] of the crank's bearing: Coulomb, Stribeck and viscous."""
    return -(0.5 + 0.3 * jnp.exp(-(rate**2))) * jnp.tanh(rate / 0.3) - 0.1 * rate


def crank_rate(q: jax.Array, v: jax.Array) -> jax.Array:
    return (q[0] * v[1] - q[1] * v[0]) / (q[0] ** 2 + q[1] ** 2)


def friction(q: jax.Array, v: jax.Array) -> jax.Array:
    """The true friction as a force on B [N] (4,)."""
    turn = jnp.stack([-q[1], q[0]]) / (q[0] ** 2 + q[1] ** 2)
    return jnp.concatenate([torque(crank_rate(q, v)) * turn, jnp.zeros(2)])


@final
class Network(eqx.Module):
    """Generalized forces on the pins [N] (4,) from their positions and velocities."""

    layers: eqx.nn.MLP

    def __init__(self, key: jax.Array):
        self.layers = eqx.nn.MLP(
            8, 4, width_size=32, depth=2, activation=jnp.tanh, key=key, dtype=jnp.float64
        )

    def __call__(self, q: jax.Array, v: jax.Array) -> jax.Array:
        return 10.0 * self.layers(jnp.concatenate([2.0 * q, 3.0 * v]))


@final
class Loaded(uk.AbstractSystem):
    """The linkage with one more force; `held`: whether its rods are constraints."""

    linkage: FourBar
    extra: Force
    held: bool = eqx.field(static=True)

    def mass_matrix(self, t, q):
        return self.linkage.mass_matrix(t, q)

    def force(self, t, q, v):
        return self.linkage.force(t, q, v) + self.extra(q, v)

    @property
    def constraints(self):
        return self.linkage.constraints if self.held else ()


def linkage() -> FourBar:
    return FourBar(jnp.asarray(LENGTHS))


def run(extra: Force, held: bool, q: jax.Array, v: jax.Array, dt: float, steps: int):
    """q and v of a batch of starts (b, steps + 1, 4)."""
    system = Loaded(linkage(), extra, held)
    return jax.vmap(lambda q, v: rollout(system, q, v, dt, steps))(q, v)


def length_errors(q: jax.Array) -> jax.Array:
    """Errors of the three rods' lengths [m] (..., 3)."""
    flat = q.reshape(-1, 4)
    system = linkage()
    at = lambda q: jnp.stack([c.fn(jnp.zeros(()), q) for c in system.constraints])
    return jax.vmap(at)(flat).reshape(*q.shape[:-1], 3)


def start(angle: jax.Array, rate: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Consistent q and v, the crank at `angle` and turning at `rate`."""
    return FourBar(jnp.asarray(LENGTHS), angle).start(rate)


@jax.jit
def observed(starts: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The true motion of 4 s at steps of DT, computed with steps four times shorter."""
    q, v = run(friction, True, *jax.vmap(start)(*starts.T), DT / 4, 4 * STEPS)
    return q[:, ::4], v[:, ::4]


# --- Training


def misfit(network: Network, held: bool, weight: jax.Array, q: jax.Array, v: jax.Array):
    """The loss of a batch of windows (b, WINDOW + 1, 4), and the largest error of a length [m]."""
    q_run, v_run = run(network, held, q[:, 0], v[:, 0], DT, WINDOW)
    off = length_errors(q_run)
    errors = ((q_run - q) / SCALES[0]) ** 2 + ((v_run - v) / SCALES[1]) ** 2
    return jnp.mean(errors) + weight * jnp.mean(off**2), (jnp.mean(errors), jnp.max(jnp.abs(off)))


class Trained(NamedTuple):
    network: Network
    loss: np.ndarray
    violation: np.ndarray
    seconds: float


def train(held: bool, weight: float, data, iterations: int) -> Trained:
    """Adam with a cosine schedule on random windows of the data."""
    q, v = data
    network = Network(jax.random.key(0))
    schedule = optax.warmup_cosine_decay_schedule(1e-4, 5e-3, 20, iterations, 1e-5)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(schedule))
    state = optimizer.init(eqx.filter(network, eqx.is_array))

    @eqx.filter_jit
    def update(network: Network, state: Any, weight: jax.Array, key: jax.Array):
        of, at = jax.random.split(key)
        which = jax.random.randint(of, (BATCH,), 0, q.shape[0])
        first = jax.random.randint(at, (BATCH,), 0, q.shape[1] - WINDOW)
        times = first[:, None] + jnp.arange(WINDOW + 1)[None, :]
        windows = q[which[:, None], times], v[which[:, None], times]
        (_, shown), slope = eqx.filter_value_and_grad(misfit, has_aux=True)(network, held, weight, *windows)
        change, state = optimizer.update(slope, state)
        return eqx.apply_updates(network, change), state, shown

    begun, history = time.process_time(), []
    for key in jax.random.split(jax.random.key(1), iterations):
        network, state, shown = update(network, state, jnp.asarray(weight), key)
        history.append(shown)
    loss, violation = (np.array(x) for x in zip(*history, strict=True))
    return Trained(network, loss, violation, time.process_time() - begun)


# --- Judging


class Judged(NamedTuple):
    """A trained network on the held-out runs.

    `error`: root mean square over pins and times [m]. `violation`: the largest error of a length [m].
    """

    name: str
    trained: Trained
    q: np.ndarray
    error: float
    violation: float
    torque: np.ndarray


RATES = np.linspace(-6.0, 6.0, 121)


@eqx.filter_jit
def learnt_torque(network: Network) -> jax.Array:
    """The network's power over the crank's rate, in the posture of 1.2 rad: what it says of friction [N m]."""

    def at(rate):
        q, v = start(jnp.asarray(1.2), rate)
        return jnp.dot(v, network(q, v)) / crank_rate(q, v)

    return jax.vmap(at)(jnp.asarray(RATES))


def judge(name: str, trained: Trained, q: jax.Array, v: jax.Array) -> Judged:
    moved = eqx.filter_jit(run)(trained.network, CASES[name][0], q[:, 0], v[:, 0], DT, STEPS)[0]
    error = jnp.sqrt(jnp.mean((moved - q) ** 2))
    violation = jnp.max(jnp.abs(length_errors(moved)))
    said = np.asarray(learnt_torque(trained.network))
    return Judged(name, trained, np.asarray(moved), float(error), float(violation), said)


def table(judged: list[Judged]) -> Table:
    iterations = judged[0].trained.loss.size
    columns = (
        "error of the pins, held out (r.m.s.) [m]",
        "of a rod's length, held out [m]",
        "in training [m]",
        "of the friction [N m]",
        "CPU [s]",
    )
    shown = Table(
        "The same network, with the Udwadia-Kalaba layer and without",
        f"network, {iterations} iterations",
        *columns,
    )
    for j in judged:
        off = np.sqrt(np.nanmean((j.torque - np.asarray(torque(RATES))) ** 2))
        numbers = (f"{x:.1e}" for x in (j.error, j.violation, j.trained.violation.max(), off))
        shown.add_row(j.name, *numbers, f"{j.trained.seconds:.0f}")
    return shown


def figure(judged: list[Judged], truth: np.ndarray, file: Path) -> None:
    with plt.rc_context(STYLE):
        fig, axes = plt.subplots(2, 2, figsize=(10.0, 7.0), layout="constrained")
        t = DT * np.arange(truth.shape[1])
        axes[1, 0].plot(t, truth[0, :, 0], color="#202020", lw=3.0, alpha=0.35, label="true")
        axes[1, 1].plot(RATES, torque(RATES), color="#202020", lw=3.0, alpha=0.35, label="true")
        for j, colour in zip(judged, COLOURS, strict=True):
            axes[0, 0].semilogy(j.trained.loss, color=colour, lw=1.0, label=j.name)
            axes[0, 1].semilogy(np.maximum(j.trained.violation, 1e-17), color=colour, lw=1.0)
            axes[1, 0].plot(t, j.q[0, :, 0], color=colour, label=j.name)
            axes[1, 1].plot(RATES, j.torque, color=colour)
        axes[0, 1].axhline(1e-8, color="#404040", ls=":", lw=1.0)
        axes[0, 0].set(xlabel="iteration", ylabel="mean squared error, scaled", ylim=(3e-6, 3.0))
        axes[0, 0].set_title("Training: error of runs of 0.2 s", loc="left")
        axes[0, 1].set(xlabel="iteration", ylabel="largest error of a length [m]")
        axes[0, 1].set_title("Constraints during training", loc="left")
        axes[1, 0].set(xlabel="t [s]", ylabel="$x_B$ [m]", ylim=(-0.8, 0.8))
        axes[1, 0].set_title("A held-out run", loc="left")
        axes[1, 1].set(xlabel="rate of the crank [rad/s]", ylabel="torque [N m]", ylim=(-2.5, 2.5))
        axes[1, 1].set_title("Friction learnt", loc="left")
        axes[0, 0].legend(fontsize="small", loc="upper right", ncols=3)
        axes[1, 0].legend(fontsize="small", ncols=2)
        fig.savefig(file, dpi=160)
        plt.close(fig)


def main(arguments: list[str] | None = None) -> list[Judged]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/neural_force"), help="folder of the figure")
    parser.add_argument("--quick", action="store_true", help="few iterations")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    plt.switch_backend("agg")
    options.out.mkdir(parents=True, exist_ok=True)
    q, v = observed(jnp.asarray(STARTS + HELD_OUT))
    known, iterations = len(STARTS), 40 if options.quick else 600
    data = q[:known, : STEPS // 2], v[:known, : STEPS // 2]
    judged = []
    for name, (held, weight) in CASES.items():
        trained = train(held, weight, data, iterations)
        judged.append(judge(name, trained, q[known:], v[known:]))
    print(table(judged))
    figure(judged, np.asarray(q[known:]), options.out / "neural_force.png")
    print(f"CPU time {time.process_time():.0f} s; wrote {options.out / 'neural_force.png'}")
    return judged


if __name__ == "__main__":
    main()
