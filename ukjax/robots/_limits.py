"""Limits and dry friction of a robot's joints: rigid stops, and friction that holds, where MuJoCo's are soft."""

from typing import final

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from .._misc._types import Coordinates, Time, Velocities, as_jax
from .._system._unilateral import DryFriction
from ..mechanisms import Limit
from ._chosen import Chosen
from ._joints import kinds
from ._parts import Parts
from ._reference import Reference
from ._report import Feature
from ._state import Conversion, conversion

_RIGID = "rigid stops without restitution, not soft"


@final
class JointRates(eqx.Module):
    """The rates of joints in MuJoCo's axes.

    - `places`: of the velocities.
    - `conversion`: where components are those of MuJoCo: its axes turn with the body.
    """

    places: tuple[int, ...] = eqx.field(static=True)
    conversion: Conversion | None

    def __call__(self, t: Time, q: Coordinates, v: Velocities) -> Float[Array, " k"]:
        return (v if self.conversion is None else self.conversion.rates(v))[np.array(self.places)]


def _named(at: Reference, has: np.ndarray) -> tuple[str, ...]:
    return tuple(at.names.joints[i] for i in np.flatnonzero(has))


def limits(at: Reference, chosen: Chosen) -> Parts:
    """The limits of joints as stops, from the reference posture.

    **Arguments:**

    - `at`: the model in its reference posture.
    - `chosen`: what of contact is used.
    """
    model, of_kind, found = at.model, kinds(at), []
    limited = np.array(model.jnt_limited, bool) & (not at.disabled("LIMIT"))
    balls = np.isin(np.arange(model.njnt), of_kind["ball"])
    several = limited & balls & (np.array(model.body_jntnum)[model.jnt_bodyid] > 1)
    features = [
        Feature(
            "limit of a ball among several joints",
            _named(at, several),
            "ignored",
            "it has no joint of its own",
        )
    ]
    limited &= ~several
    if not chosen.has("limits"):
        return Parts(
            features=(Feature("joint limit", _named(at, limited), "ignored", chosen.why("limits")), *features)
        )
    for i in np.flatnonzero(limited).tolist():
        low, high = (float(x) for x in model.jnt_range[i])
        start = 0.0 if balls[i] else float(model.qpos0[model.jnt_qposadr[i]])
        found.append(Limit(at.names.joints[i], None if balls[i] else low - start, high - start))
    margins = _named(at, limited & (np.array(model.jnt_margin) > 0))
    features += [
        Feature("joint limit", _named(at, limited), "approximated", _RIGID),
        Feature("margin of a limit", margins, "ignored", "stops are where the range ends"),
    ]
    return Parts(contacts=tuple(found), features=tuple(features))


def frictions(at: Reference, chosen: Chosen) -> Parts:
    """The dry friction of joints.

    **Arguments:** as `limits`.
    """
    model = at.model
    loss = np.zeros(model.nv) if at.disabled("FRICTIONLOSS") else np.array(model.dof_frictionloss)
    places = np.flatnonzero(loss > 0)
    owners = model.dof_jntid[places]
    names = tuple(at.names.joints[i] for i in dict.fromkeys(owners.tolist()))
    if not chosen.has("friction") or not len(places):
        why = chosen.why("friction")
        return Parts(features=(Feature("joint frictionloss", names, "ignored", why),))
    turning = np.isin(owners, [*kinds(at)["ball"], *kinds(at)["free"]])
    rates = JointRates(tuple(places.tolist()), conversion(at) if turning.any() else None)
    own = [f"{at.names.joints[i]} friction" for i in owners]
    number = lambda k: own[:k].count(own[k])
    each = [name if own.count(name) == 1 else f"{name}[{number(k)}]" for k, name in enumerate(own)]
    friction = DryFriction(rates, as_jax(loss[places]), name="joint friction", names=each)
    feature = Feature("joint frictionloss", names, "approximated", "it holds at rest, not soft")
    return Parts(constraints=(friction,), features=(feature,))
