"""The laws of a file's actuators: what each exerts along its length, and how its activations change (MuJoCo's).

Each exerts f = (g0 + g1 l + g2 l') u + b0 + b1 l + b2 l' along its length l, or what the curves of a muscle say; u and f
are clipped to their ranges. u is an input or an activation z, of which

    z' = u            of an integrator,
    z' = (u - z) / T  of a filter; of a muscle T depends on u and z (Millard et al. 2013, J. Biomech. Eng. 135, 021005).

At an end of its range an activation stays.
"""

from collections.abc import Sequence
from typing import final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._misc._types import as_jax
from ._controllers import AbstractController, ActuatorState
from ._reference import LEAST


@final
class Muscles(eqx.Module):
    """The curves of force over length and velocity of k muscles, without unit (`mju_muscleGain`, `mju_muscleBias`)."""

    peak: Float[Array, " k"]  # the active force at rest and at optimum length [N]
    # `start`, `first`, `optimum`: a length of `first` [m] is `start` optimum lengths [m].
    start: Float[Array, " k"]
    first: Float[Array, " k"]
    optimum: Float[Array, " k"]
    # `least`, `greatest`: where the active force ends, in optimum lengths.
    least: Float[Array, " k"]
    greatest: Float[Array, " k"]
    fastest: Float[Array, " k"]  # where it ends [optimum lengths / s]
    # `passive`, `lengthening`: the largest passive and active force, in peaks.
    passive: Float[Array, " k"]
    lengthening: Float[Array, " k"]

    @classmethod
    def of(cls, prm: np.ndarray, ranges: np.ndarray, acc0: np.ndarray) -> "Muscles":
        """From MuJoCo's parameters (k, 9), its ranges of lengths (k, 2), and accelerations from a unit force (k,)."""
        least = lambda x: np.maximum(LEAST, x)
        start, end, force, scale, *others = prm.T[:9]
        optimum = least((ranges[:, 1] - ranges[:, 0]) / least(end - start))
        peak = np.where(force < 0, scale / least(acc0), force)
        return cls(*map(as_jax, (peak, start, ranges[:, 0], optimum, *others)))

    def _over_optimum(self, length: Array) -> Array:
        return self.start + (length - self.first) / self.optimum

    def gain(self, length: Float[Array, " k"], rate: Float[Array, " k"]) -> Float[Array, " k"]:
        """The force of full activation, negative as it pulls."""
        L, V = self._over_optimum(length), rate / jnp.maximum(LEAST, self.optimum * self.fastest)
        a, b = 0.5 * (self.least + 1.0), 0.5 * (1.0 + self.greatest)
        part = lambda x, size: x / jnp.maximum(LEAST, size)
        rise, before = part(L - self.least, a - self.least), part(1.0 - L, 1.0 - a)
        after, fall = part(L - 1.0, b - 1.0), part(self.greatest - L, self.greatest - b)
        of_length = jnp.where(a >= L, 0.5 * rise**2, jnp.where(L <= 1.0, 1.0 - 0.5 * before**2,
                    jnp.where(b >= L, 1.0 - 0.5 * after**2, 0.5 * fall**2)))  # fmt: skip
        of_length = jnp.where((self.least <= L) & (self.greatest >= L), of_length, 0.0)
        y = self.lengthening - 1.0
        stretched = jnp.where(y >= V, self.lengthening - part((y - V) ** 2, y), self.lengthening)
        of_rate = jnp.where(V <= -1.0, 0.0, jnp.where(V <= 0.0, (V + 1.0) ** 2, stretched))
        return -self.peak * of_length * of_rate

    def bias(self, length: Float[Array, " k"]) -> Float[Array, " k"]:
        """The passive force."""
        L, b = self._over_optimum(length), 0.5 * (1.0 + self.greatest)
        size = jnp.maximum(LEAST, b - 1.0)
        curve = jnp.where(b >= L, 0.5 * ((L - 1.0) / size) ** 2, 0.5 + (L - b) / size)
        return jnp.where(L <= 1.0, 0.0, -self.peak * self.passive * curve)


def _muscle_rate(u: Array, z: Array, times: Float[Array, "k 3"]) -> Array:
    """z' of muscles, from the times of activation and deactivation and the width of what is between."""
    active = 0.5 + 1.5 * jnp.clip(z, 0.0, 1.0)
    rise, fall, change = times[:, 0] * active, times[:, 1] / active, jnp.clip(u, 0.0, 1.0) - z
    width = times[:, 2]
    x = jnp.clip(change / jnp.where(width < LEAST, 1.0, width) + 0.5, 0.0, 1.0)
    smooth = fall + (rise - fall) * x**3 * (3.0 * x * (2.0 * x - 5.0) + 10.0)
    time = jnp.where(width < LEAST, jnp.where(change > 0, rise, fall), smooth)
    return change / jnp.maximum(LEAST, time)


@final
class Laws(eqx.Module):
    """What k actuators exert, and how their activations change."""

    gain: Float[Array, "k 3"]  # of the input, g (k, 3)
    bias: Float[Array, "k 3"]  # what is exerted besides, b (k, 3)
    # `range`: of the force f (k, 2); `limited`: whether it has one.
    range: Float[Array, "k 2"]
    times: Float[Array, "k 3"]  # of filters T, and those of muscles (k, 3)
    # `activation_range`: of z (k, 2); `kept`: whether it has one.
    activation_range: Float[Array, "k 2"]
    # `period`: of lengths that are angles of servos (k,), whose input means the nearest turn; 0 of others.
    period: Float[Array, " k"]
    # `muscles`, `passive`: those whose gain, and whose bias, are the curves of muscles; `pulls`, `resists` say which.
    muscles: Muscles
    passive: Muscles
    # `controllers`: PID controllers, DC motors and servos of orientations, whose gain is zero here.
    controllers: tuple[AbstractController, ...]
    limited: tuple[bool, ...] = eqx.field(static=True)
    inputs: tuple[int, ...] = eqx.field(static=True)  # which input each follows
    states: tuple[int, ...] = eqx.field(static=True)  # which of all activations is that of each; -1 for none
    # `dynamics`: `"none"`, `"integrator"`, `"filter"` or `"muscle"`, each.
    dynamics: tuple[str, ...] = eqx.field(static=True)
    kept: tuple[bool, ...] = eqx.field(static=True)
    turns: tuple[bool, ...] = eqx.field(static=True)
    pulls: tuple[int, ...] = eqx.field(static=True)
    resists: tuple[int, ...] = eqx.field(static=True)

    def _activations(self, z: Float[Array, " na"]) -> tuple[np.ndarray, Float[Array, " k"]]:
        """Whether each has one, and it, zero of others."""
        own = np.array(self.states, int)
        if not np.any(own >= 0):
            return own >= 0, jnp.zeros(len(own), z.dtype)
        return own >= 0, jnp.where(own >= 0, z[np.maximum(own, 0)], 0.0)

    def force(self, state: ActuatorState) -> Float[Array, " k"]:
        """f before it is clipped (k,)."""
        u, z, length, rate = state
        has, own = self._activations(z)
        x = jnp.where(has, clip_some(own, self.activation_range, self.kept), u[np.array(self.inputs, int)])
        if any(self.turns):
            period = jnp.where(np.array(self.turns), self.period, 1.0)
            x = x - jnp.where(np.array(self.turns), period * jnp.floor((x - length) / period + 0.5), 0.0)
        affine = lambda c: c[:, 0] + c[:, 1] * length + c[:, 2] * rate
        gain, bias = affine(self.gain), affine(self.bias)
        if self.pulls:
            at = np.array(self.pulls)
            gain = gain.at[at].set(self.muscles.gain(length[at], rate[at]))
        if self.resists:
            at = np.array(self.resists)
            bias = bias.at[at].set(self.passive.bias(length[at]))
        force = gain * x + bias
        for controller in self.controllers:
            force = controller.on_lengths(force, controller.at(state).force)
        return force

    def free_force(self, state: ActuatorState) -> Float[Array, " k"]:
        """What has no range (k,): friction and cogging of motors."""
        force = jnp.zeros_like(state.length)
        for controller in self.controllers:
            force = controller.on_lengths(force, controller.at(state).free)
        return force

    def clip(self, force: Float[Array, " k"]) -> Float[Array, " k"]:
        """f within its ranges."""
        return clip_some(force, self.range, self.limited)

    def state_rate(self, state: ActuatorState) -> Float[Array, " na"]:
        """z' (na,)."""
        rates = jnp.zeros_like(state.z)
        for controller in self.controllers:
            by_name = controller.at(state).rates
            for name, place in controller.states:
                rates = rates.at[place].set(by_name[name])
        has, own = self._activations(state.z)
        if not np.any(has):
            return rates
        x, kinds = state.u[np.array(self.inputs, int)], np.array(self.dynamics)
        rate = jnp.where(kinds == "filter", (x - own) / jnp.maximum(LEAST, self.times[:, 0]), x)
        if np.any(kinds == "muscle"):
            rate = jnp.where(kinds == "muscle", _muscle_rate(x, own, self.times), rate)
        if any(self.kept):
            low, high = self.activation_range.T
            beyond = ((own >= high) & (rate > 0)) | ((own <= low) & (rate < 0))
            rate = jnp.where(np.array(self.kept) & beyond, 0.0, rate)
        places = np.array(self.states, int)
        return rates.at[places[has]].set(rate[np.flatnonzero(has)])


def clip_some(
    x: Float[Array, " k"], ranges: Float[Array, "k 2"], which: Sequence[bool]
) -> Float[Array, " k"]:
    """Numbers, some of them clipped to their ranges."""
    if not any(which):
        return x
    inside = jnp.minimum(jnp.maximum(x, ranges[:, 0]), ranges[:, 1])
    return inside if all(which) else jnp.where(np.array(which), inside, x)
