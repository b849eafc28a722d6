"""What each load of a mechanism does along a run: its effort, what that works on, and its power."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._misc._types import Coordinates, Numbers, Time, Velocities, in_full_precision
from .._system._problem import resolve_state
from ._current_values import MechanismSystem, require_mechanism
from ._springs import command_actuators
from ._tree import TreeSystem

if TYPE_CHECKING:
    from .._run._trajectory import Trajectory


@final
class Effort(eqx.Module):
    """What a load does; along a trajectory with times in front.

    - `effort`: force or torque [N], [N m]: a scalar of springs and actuators, a vector of a `Force`, one row a body of
      `Gravity`; in world axes.
    - `rate`: what it works on, of the same shape: a velocity [m/s], an angular velocity [rad/s].
    - `power`: their product [W].
    """

    effort: Array
    rate: Array
    power: Float[Array, ""]


@eqx.filter_jit
@in_full_precision
def efforts_along(
    system: MechanismSystem, states: tuple[Array, ...], inputs: Mapping[str, Array]
) -> dict[str, Effort]:
    """The efforts of all loads at k states."""

    def at(inputs: Mapping[str, Array], t: Time, q: Coordinates, v: Velocities) -> dict[str, Effort]:
        mechanism = command_actuators(system, inputs).mechanism
        placements, twists = system.placements(t, q), system.twists(t, q, v)
        efforts = mechanism.efforts(t, placements, twists)
        rates = mechanism.rates(placements, twists)
        if isinstance(system, TreeSystem):
            efforts += [load.effort(t, q, v) for load in system.on_coordinates]
            rates += [load.rate(q, v) for load in system.on_coordinates]
            motions = system.motions(t, q, v)
            efforts += [load.effort(motion) for load, motion in motions]
            rates += [load.rate(motion) for load, motion in motions]
        names = [load.name for load in system.loads]
        return {name: Effort(e, r, jnp.sum(e * r)) for name, e, r in zip(names, efforts, rates, strict=True)}

    return jax.vmap(at)(inputs, *states)


def efforts(
    system: MechanismSystem,
    t: "Time | float | Trajectory",
    q: Numbers | None = None,
    v: Numbers | None = None,
) -> dict[str, Effort]:
    """The effort and the power of each load, at one state or along a run.

    A load works by e . r, where its effort e is a force or torque and r the rate that it works on (principle of virtual
    power); a positive power feeds the mechanism.

    **Arguments:**

    - `system`: a mechanism, in absolute coordinates or a tree.
    - `t`: time [s]; or a `Trajectory` of the system.
    - `q`: generalized coordinates (n_q,).
    - `v`: generalized velocities (n,).

    **Returns:** an `Effort` by the load's name; along a trajectory with its times in front.

    **Raises:** `InputError` for a system that is no mechanism, and a state of wrong shape.
    """
    require_mechanism(system)
    if hasattr(t, "multipliers"):
        return efforts_along(system, tuple(getattr(t, x) for x in ("t", "q", "v")), {})
    states = tuple(x[None] for x in resolve_state(system, t, q, v)[1:])  # pyright: ignore[reportArgumentType]
    return jax.tree.map(lambda x: x[0], efforts_along(system, states, {}))
