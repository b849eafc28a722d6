"""DC motors, PID controllers and servos of orientations: laws with several inputs and activations (MuJoCo 4).

A setpoint that changes by a limited rate is an activation that comes to its input within a time step of the file, as
MuJoCo's does.
"""

import abc
from typing import Any, ClassVar, NamedTuple, final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._misc._lie import quaternion_product, rotation_matrix
from ..mechanisms._placement import norm
from ._reference import LEAST
from ._state import conjugate, rotation_vector

INPUTS = ("pos", "vel", "ff", "voltage")
"""What inputs of a controller may mean, in their order; MuJoCo marks each that there is by a bit."""
SLOTS = {
    "pid": ("setpoint", "integral"),
    "dcmotor": ("setpoint", "integral", "temperature", "bristle", "current"),
    "so3": (),
}
"""What activations of controllers are, in their order."""


Places = tuple[tuple[str, int], ...]
"""Where something is, by what it is."""


class Controlled(NamedTuple):
    """What a controller says: a force, one more that has no range, and the rates of its activations."""

    force: Array
    free: Array
    rates: dict[str, Array]


class ActuatorState(NamedTuple):
    """What the laws of all actuators depend on."""

    u: Float[Array, " nu"]  # inputs
    z: Float[Array, " na"]  # activations
    length: Float[Array, " k"]
    rate: Float[Array, " k"]


class AbstractController(eqx.Module):
    """A controller of one length, or of the three of an orientation."""

    place: eqx.AbstractVar[int]  # which of the actuators' lengths is its first
    inputs: eqx.AbstractVar[Places]  # where its inputs are, by what they mean
    states: eqx.AbstractVar[Places]  # where its activations are, by what they are
    width: ClassVar[int] = 1

    @abc.abstractmethod
    def __call__(self, u: dict[str, Array], z: dict[str, Array], length: Array, rate: Array) -> Controlled:
        """**Arguments:** inputs, zero where there is none, and activations by name."""

    def at(self, state: ActuatorState) -> Controlled:
        """The same, from what all actuators have."""
        u, z, length, rate = state
        inputs = dict.fromkeys(INPUTS, jnp.zeros((), length.dtype)) | {name: u[i] for name, i in self.inputs}
        states = {name: z[i] for name, i in self.states}
        own = self.place if self.width == 1 else slice(self.place, self.place + self.width)
        return self(inputs, states, length[own], rate[own])

    def on_lengths(self, x: Array, of: Array) -> Array:
        """Numbers of all lengths, with those of a controller added."""
        return x.at[self.place : self.place + self.width].add(of.reshape(self.width))


def _limit_slew(u: Array, before: Array, fastest: Array, step: Array) -> tuple[Array, Array]:
    """The setpoint after a step, and its rate."""
    end = jnp.clip(u, before - fastest * step, before + fastest * step)
    return end, (end - before) / step


def _wind_up(error: Array, z: Array, most: Array) -> Array:
    """The rate of an integral that stays within a bound, 0 for none."""
    held = jnp.where(
        z >= most, jnp.minimum(error, 0.0), jnp.where(z <= -most, jnp.maximum(error, 0.0), error)
    )
    return jnp.where(most > 0, held, error)


@final
class PID(AbstractController):
    """kp (u_pos - l) + kv (u_vel - l') + u_ff + ki z, of which the terms in l and l' are a bias of the actuator."""

    place: int = eqx.field(static=True)
    inputs: Places = eqx.field(static=True)
    states: Places = eqx.field(static=True)
    period: float = eqx.field(static=True)  # of a length that is an angle, 0 of others
    gains: Float[Array, "3"]  # kp, kv, ki
    # `most`: of |z|, 0 for any; `fastest`: of setpoints.
    most: Float[Array, ""]
    fastest: Float[Array, ""]
    step: Float[Array, ""]  # of the file [s]

    def _nearest(self, x: Array, to: Array) -> Array:
        return x - self.period * jnp.floor((x - to) / self.period + 0.5) if self.period > 0 else x

    def __call__(self, u: dict[str, Array], z: dict[str, Array], length: Array, rate: Array) -> Controlled:
        kp, kv, ki = self.gains
        wanted, rates = u["pos"], {}
        if "setpoint" in z:
            wanted = self._nearest(wanted, z["setpoint"])
            wanted, rates["setpoint"] = _limit_slew(wanted, z["setpoint"], self.fastest, self.step)
        wanted = self._nearest(wanted, length)
        force = kp * wanted + kv * u["vel"] + u["ff"]
        if "integral" in z:
            rates["integral"] = _wind_up(wanted - length, z["integral"], self.most)
            force = force + ki * z["integral"]
        return Controlled(force, jnp.zeros_like(force), rates)


@final
class DCMotor(AbstractController):
    """A motor of resistance R and constant K, K i = K (V - K l') / R, or with inductance i' = ((V - K l') / R - i) / T.

    V is an input, or what a controller on board asks for. Further: heating, cogging and LuGre friction (Canudas de Wit et
    al. 1995, IEEE Trans. Autom. Control 40, 419-425), whose bristles are bent by z: z' = l' - s0 |l'| z / g(l').
    """

    place: int = eqx.field(static=True)
    inputs: Places = eqx.field(static=True)
    states: Places = eqx.field(static=True)
    # `gain`, `bias`, `dynamics`: MuJoCo's parameters.
    gain: Float[Array, "10"]
    bias: Float[Array, "10"]
    dynamics: Float[Array, "10"]
    step: Float[Array, ""]  # of the file [s]

    def _voltage(
        self, u: dict[str, Array], wanted: Array, integral: Array, length: Array, rate: Array
    ) -> Array:
        R, K, _, _, kp, ki, kd, most, *_ = self.gain
        if not {name for name, _ in self.inputs} & {"pos", "vel", "ff"}:
            return u["voltage"]
        torque = kp * (wanted - length) + kd * (u["vel"] - rate) + ki * integral + u["ff"]
        V = R / K * torque + K * rate
        return jnp.where(most > 0, jnp.clip(V, -most, most), V) + u["voltage"]

    def __call__(self, u: dict[str, Array], z: dict[str, Array], length: Array, rate: Array) -> Controlled:
        R, K, per_degree, reference, *_ = self.gain
        time, fastest_current, thermal, capacity, ambient, s0, s1, fastest, most, _ = self.dynamics
        cogging, poles, phase, coulomb, static, stribeck, *_ = self.bias
        wanted, rates = u["pos"], {}
        if "setpoint" in z:
            wanted, rates["setpoint"] = _limit_slew(wanted, z["setpoint"], fastest, self.step)
        if "integral" in z:
            rates["integral"] = _wind_up(wanted - length, z["integral"], most)
        integral = z["integral"] if "integral" in z else jnp.zeros_like(length)
        V = self._voltage(u, wanted, integral, length, rate)
        if "temperature" in z:
            R = R * (1.0 + per_degree * (z["temperature"] + ambient - reference))
        direct = (V - K * rate) / jnp.maximum(LEAST, R)
        current: Any = z.get("current", direct)
        if "temperature" in z:
            rates["temperature"] = (R * current**2 - z["temperature"] / thermal) / capacity
        if "current" in z:
            change = (direct - current) / time
            limited = jnp.clip(change, -fastest_current, fastest_current)
            rates["current"] = jnp.where(fastest_current > 0, limited, change)
        free = cogging * jnp.sin(poles * length + phase)
        if "bristle" in z:
            ratio = rate / jnp.maximum(LEAST, stribeck)
            g = coulomb + (static - coulomb) * jnp.exp(-(ratio**2))
            rates["bristle"] = rate - s0 * jnp.abs(rate) / jnp.maximum(LEAST, g) * z["bristle"]
            free = free - s0 * z["bristle"] - s1 * rates["bristle"]
        return Controlled(K * current, free, rates)


@final
class OrientationServo(AbstractController):
    """kp log(p* o p_u) + c - kv omega in axes of the body that turns, its quaternion p, and p_u that of the input."""

    place: int = eqx.field(static=True)
    inputs: Places = eqx.field(static=True)
    states: Places = eqx.field(static=True)
    gains: Float[Array, "3"]  # kp, c, kv
    most: Float[Array, ""]  # of the torque, infinite for any [N m]
    width: ClassVar[int] = 3

    def __call__(self, u: dict[str, Array], z: dict[str, Array], length: Array, rate: Array) -> Controlled:
        kp, shift, kv = self.gains
        inputs = jnp.stack([u[name] for name, _ in self.inputs])
        if inputs.size == 4:
            size = norm(inputs)
            unit = jnp.asarray([1.0, 0.0, 0.0, 0.0], inputs.dtype)
            wanted = jnp.where(size > 0, inputs / jnp.where(size > 0, size, 1.0), unit)
        else:
            wanted = _quaternion(jnp.stack([z[name] for name, _ in self.states]) if z else inputs)
        now = _quaternion(length)
        R = rotation_matrix(now)  # lengths and rates are in axes of the other body
        error = rotation_vector(quaternion_product(conjugate(now), wanted))
        torque = kp * error + shift - kv * (R.T @ rate)
        size = norm(torque)
        torque = torque * jnp.where(size > self.most, self.most / jnp.where(size > 0, size, 1.0), 1.0)
        rates = {name: x for (name, _), x in zip(self.states, inputs, strict=False)}
        return Controlled(R @ torque, jnp.zeros_like(torque), rates)


def _quaternion(x: Float[Array, "3"]) -> Float[Array, "4"]:
    """The unit quaternion of a rotation by a vector."""
    angle = norm(x)
    share = jnp.where(angle > 0, jnp.sin(angle / 2) / jnp.where(angle > 0, angle, 1.0), 0.5)
    return jnp.concatenate([jnp.cos(angle / 2)[None], share * x])


def read_controller(model: Any, i: int, place: int, kind: str, period: float) -> AbstractController:
    """The controller of an actuator, `"pid"`, `"dcmotor"` or `"so3"`."""
    gain, bias, dynamics = (
        np.array(getattr(model, f"actuator_{x}prm")[i], float) for x in ("gain", "bias", "dyn")
    )
    spec, first, start = (int(getattr(model, f"actuator_{x}")[i]) for x in ("ctrlspec", "ctrladr", "actadr"))
    if kind == "so3":
        return _read_orientation(model, i, place, (first, start))
    meant = [name for bit, name in enumerate(INPUTS) if spec >> bit & 1]
    inputs = tuple((name, first + k) for k, name in enumerate(meant))
    if kind == "pid":
        has = {"setpoint": dynamics[1] > 0, "integral": gain[0] > 0}
    else:
        sizes = dynamics[7], gain[5], dynamics[2], dynamics[5], dynamics[0]
        has = {name: x > 0 for name, x in zip(SLOTS["dcmotor"], sizes, strict=True)}
    states = tuple((name, start + k) for k, name in enumerate(name for name, x in has.items() if x))
    step = jnp.asarray(float(model.opt.timestep))
    shared: Any = {"place": place, "inputs": inputs, "states": states, "step": step}
    as_arrays: Any = lambda **numbers: {name: jnp.asarray(x) for name, x in numbers.items()}
    if kind == "pid":
        gains, (most, fastest) = np.array([-bias[1], -bias[2], gain[0]]), dynamics[:2]
        return PID(period=period, **shared, **as_arrays(gains=gains, most=most, fastest=fastest))
    return DCMotor(**shared, **as_arrays(gain=gain, bias=bias, dynamics=dynamics))


def _read_orientation(model: Any, i: int, place: int, starts: tuple[int, int]) -> OrientationServo:
    count, activations = int(model.actuator_ctrlnum[i]), int(model.actuator_actnum[i])
    sizes = zip(("input", "activation"), starts, (count, activations), strict=True)
    inputs, states = (tuple((f"{name} {k}", start + k) for k in range(n)) for name, start, n in sizes)
    bias = np.array(model.actuator_biasprm[i], float)
    most = float(model.actuator_forcerange[i][1]) if model.actuator_forcelimited[i] else np.inf
    gains = np.array([float(model.actuator_gainprm[i][0]), bias[0], -bias[2]])
    own: Any = {"place": place, "inputs": inputs, "states": states}
    return OrientationServo(gains=jnp.asarray(gains), most=jnp.asarray(most), **own)
