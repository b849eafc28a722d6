"""Systems of any order: a point steered by its jerk, and a network whose laws are Kirchhoff's."""

import math
from typing import final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._misc._types import Coordinates, Time, as_jax
from .._system._any_order import AnyOrderSystem, OfOrder
from .._system._problem import Problem
from ._parameters import (
    Scalar,
    as_parameter,
    check_count,
    check_finite,
    check_not_negative,
    check_positive,
    evaluate_start,
)

_JERK_POINT = (
    "R. M. M. Orsino, Recursive modular modelling methodology for lumped-parameter dynamic systems, "
    "Proceedings of the Royal Society A 473, 2017, section 2 (models of any order)."
)


@final
class JerkPoint(eqx.Module):
    """What steers the point, m r''' = -m rate^2 r' + constraint force, and its path r = (R cos u, R sin u, p u)."""

    radius: Array = eqx.field(converter=as_parameter)
    pitch: Array = eqx.field(converter=as_parameter)
    mass: Array = eqx.field(converter=as_parameter)
    rate: Array = eqx.field(converter=as_parameter)

    def mass_matrix(self, t: Time, r: Array, velocity: Array) -> Float[Array, "3 3"]:
        return (self.mass * jnp.eye(3)).astype(r.dtype)

    def force(self, t: Time, r: Array, velocity: Array, acceleration: Array) -> Float[Array, "3"]:
        return (-self.mass * self.rate**2 * velocity).astype(r.dtype)

    def path(self, t: Time, r: Array) -> Float[Array, "2"]:
        angle = r[2] / self.pitch
        return r[:2] - self.radius * jnp.stack([jnp.cos(angle), jnp.sin(angle)])

    def points(self, t: Time, q: Coordinates) -> dict[str, Array]:
        return {"point": q[:3]}

    def _cruise(self) -> Array:
        """The rate u' it approaches [rad/s]: k u'^2 = rate^2, k the square of the slope's cosine."""
        return self.rate * jnp.sqrt(1.0 + (self.pitch / self.radius) ** 2)

    def orders(self, t: Time) -> Float[Array, "3 3"]:
        """r, r' and r'' of u' = cruise tanh(rate t / sqrt(2)), which solves u''' = k u'^3 - rate^2 u'."""
        w = self.rate / math.sqrt(2.0)
        tanh = jnp.tanh(w * t)
        # ln cosh x without overflow; u, u' and u'' follow.
        u = self._cruise() / w * (jnp.logaddexp(w * t, -w * t) - math.log(2.0))
        du, ddu = self._cruise() * tanh, self._cruise() * w * (1.0 - tanh**2)
        c, s, zero = self.radius * jnp.cos(u), self.radius * jnp.sin(u), jnp.zeros_like(u)
        tangent, inward = jnp.stack([-s, c, self.pitch]), jnp.stack([-c, -s, zero])
        return jnp.stack([jnp.stack([c, s, self.pitch * u]), du * tangent, ddu * tangent + du**2 * inward])

    def reference(self, t: Time) -> Coordinates:
        """The coordinates (r, r') at t."""
        return self.orders(t)[:2].reshape(-1)


def jerk_point(
    *, radius: Scalar = 0.5, pitch: Scalar = 0.2, mass: Scalar = 1.0, rate: Scalar = 1.0
) -> Problem:
    """A point on a helix whose jerk is controlled: third order, 2 rows that are differentiated three times.

    At rest but for an acceleration along the path, it approaches a steady speed, at which the jerk the path asks for
    and the control -rate^2 r' cancel along it. Its system is an `AnyOrderSystem` of order 3: coordinates are r and r',
    velocities r''.

    **Arguments:**

    - `radius`: of the helix [m].
    - `pitch`: its rise per radian [m].
    - `mass`: the force per jerk [kg]; the motion does not depend on it.
    - `rate`: of the control [1/s].

    **Returns:** the `Problem`, with `reference`; points: `point`.

    **Raises:** `InputError`, naming the parameter that is wrong.
    """
    check_positive(radius=radius, pitch=pitch, mass=mass, rate=rate)
    point = JerkPoint(radius, pitch, mass, rate)
    system = AnyOrderSystem(3, point.mass_matrix, point.force, (OfOrder(0, point.path, name="path"),))
    q0, v0 = system.state(evaluate_start(JerkPoint.orders, point, 0.0))
    return Problem(
        system, q0, v0, 0.0, 3.0, point.points, point.reference, citation=_JERK_POINT, name="jerk_point"
    )


_NETWORK = (
    "R. M. M. Orsino, Recursive modular modelling methodology for lumped-parameter dynamic systems, "
    "Proceedings of the Royal Society A 473, 2017, section 2 (models that are not mechanical)."
)


@final
class CurrentLaw(eqx.Module):
    """What flows through the element `into` a node flows `out` of it through the others."""

    into: int = eqx.field(static=True)
    out: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, t: Time, q: Array, current: Array) -> Float[Array, ""]:
        return current[self.into] - sum(current[k] for k in self.out)


@final
class Ladder(eqx.Module):
    """Elements in charges: resistor, coil and capacitor of section 1, then of section 2, ...

    An element obeys L q'' = V - R q' - q/C, V being the voltage across it; the multiplier of a Kirchhoff law is the
    potential of the node.
    """

    resistance: Array = eqx.field(converter=as_parameter)
    inductance: Array = eqx.field(converter=as_parameter)
    capacitance: Array = eqx.field(converter=as_parameter)
    voltage: Array = eqx.field(converter=as_parameter)
    wire: Array = eqx.field(converter=as_parameter)
    sections: int = eqx.field(static=True)

    def inductances(self, t: Time, q: Array) -> Float[Array, "n n"]:
        return jnp.diag(jnp.stack([self.wire, self.inductance, self.wire] * self.sections)).astype(q.dtype)

    def voltages(self, t: Time, q: Array, current: Array) -> Float[Array, " n"]:
        """The voltage each element is driven with: the source, less those over resistance and capacitance."""
        zero = jnp.zeros_like(self.resistance)
        resistance = jnp.stack([self.resistance, zero, zero] * self.sections)
        stiffness = jnp.stack([zero, zero, 1.0 / self.capacitance] * self.sections)
        return (-resistance * current - stiffness * q).at[0].add(self.voltage).astype(q.dtype)

    def energy(self, t: Time, q: Array, current: Array) -> Float[Array, ""]:
        """Of coils, wires, capacitors and the source [J]; only resistance takes from it."""
        coils = 0.5 * jnp.dot(current, self.inductances(t, q) @ current)
        return coils + 0.5 * jnp.dot(q[2::3], q[2::3]) / self.capacitance - self.voltage * q[0]

    def laws(self) -> tuple[OfOrder, ...]:
        """Kirchhoff's current law: in each section, then between sections."""
        first = range(0, 3 * self.sections, 3)
        wires = [OfOrder(1, CurrentLaw(k, (k + 1,)), name=f"wire {k // 3 + 1}") for k in first]
        onward = [(k + 2, k + 3) for k in first[:-1]] + [(first[-1] + 2,)]
        nodes = [
            OfOrder(1, CurrentLaw(k + 1, out), name=f"node {k // 3 + 1}")
            for k, out in zip(first, onward, strict=True)
        ]
        return (*wires, *nodes)


def rlc_network(
    *,
    sections: int = 3,
    resistance: Scalar = 0.5,
    inductance: Scalar = 1.0,
    capacitance: Scalar = 0.25,
    voltage: Scalar = 1.0,
    wire: Scalar = 0.1,
) -> Problem:
    """A ladder of RLC sections switched to a source: 3 charges and 2 rows a section, of second order.

    In each section a resistor and a coil lead to a node, from where a capacitor leads to ground and the next section goes
    on. With one section it is the series RLC circuit. The constraints `wire k`, inside section k, and `node k`, to its
    capacitor and the next section, come in the order of a hierarchy: `Recursive()` enforces them module by module. Its
    system is an `AnyOrderSystem` of order 2; its mass matrix holds inductances, its force voltages.

    **Arguments:**

    - `sections`: how many.
    - `resistance`: of each resistor [ohm].
    - `inductance`: of each coil [H].
    - `capacitance`: of each capacitor [F].
    - `voltage`: of the source from t = 0 on [V]; all charges and currents start at zero.
    - `wire`: inductance of a resistor and of a capacitor [H]. Where it is 0 the mass matrix is singular, and
      `RangeForm`, `StackedForm` or `NullSpace` is the formula to choose; the acceleration stays unique.

    **Returns:** the `Problem`, without points: nothing moves.

    **Raises:** `InputError`, naming the parameter that is wrong.
    """
    check_count(sections=sections)
    check_positive(inductance=inductance, capacitance=capacitance)
    check_finite(resistance=resistance, voltage=voltage, wire=wire)
    check_not_negative(resistance=resistance, wire=wire)
    ladder = Ladder(resistance, inductance, capacitance, voltage, wire, sections)
    system = AnyOrderSystem(2, ladder.inductances, ladder.voltages, ladder.laws(), energy=ladder.energy)
    q0, v0 = system.state(as_jax(np.zeros((2, 3 * sections), ladder.resistance.dtype)))
    return Problem(system, q0, v0, 0.0, 10.0, citation=_NETWORK, name="rlc_network")
