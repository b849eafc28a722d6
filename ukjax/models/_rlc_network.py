"""A ladder of resistors, coils and capacitors, assembled by Kirchhoff's laws as constraints, module by module."""

from typing import final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._misc._types import Time, as_jax
from .._system._any_order import AnyOrderSystem, OfOrder
from .._system._problem import Problem
from ._parameters import Scalar, as_parameter, check_count, check_finite, check_not_negative, check_positive

_CITATION = (
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
    return Problem(system, q0, v0, 0.0, 10.0, citation=_CITATION, name="rlc_network")
