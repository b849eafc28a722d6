"""Limits and dry friction of a robot's joints and tendons: rigid stops, friction that holds; MuJoCo's are soft."""

from collections.abc import Mapping, Sequence
from typing import final

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from .._misc._types import Coordinates, Time, Velocities, as_jax
from .._system._constraint import DryFriction
from ..mechanisms import JointFriction, Limit
from ..mechanisms._contacts import AbstractLength
from ..mechanisms._placement import AnyPlacement, Twist, rate_of
from ._bodies import joints_by_kind
from ._contact_selection import ContactSelection, is_usual, restitution_of
from ._geoms import UNUSED_SOLREF, rigid_words
from ._lengths import Lengths, Path
from ._reference import Reference, kind_of, mujoco
from ._report import Feature, FeatureParts, Row
from ._report import features as as_features
from ._state import Conversion, conversion


@final
class JointRates(eqx.Module):
    """The rates of joints in MuJoCo's axes."""

    places: tuple[int, ...] = eqx.field(static=True)  # of the velocities
    conversion: Conversion | None  # where components are those of MuJoCo: its axes turn with the body

    def __call__(self, t: Time, q: Coordinates, v: Velocities) -> Float[Array, " k"]:
        return (v if self.conversion is None else self.conversion.rates(v))[np.array(self.places)]


@final
class TendonLength(AbstractLength):
    """The length of a tendon: linear in the coordinates, or that of a path through points of bodies."""

    name: str = eqx.field(static=True)
    length: Lengths | Path
    turns: bool = eqx.field(static=True)

    @property
    def bodies(self) -> tuple[str, ...]:
        return self.length.bodies if isinstance(self.length, Path) else ()

    def value(self, q: Coordinates, placements: Sequence[AnyPlacement]) -> Float[Array, ""]:
        return self.length(*placements) if isinstance(self.length, Path) else self.length(q)[0]

    def rate(
        self, v: Velocities, placements: Sequence[AnyPlacement], twists: Sequence[Twist]
    ) -> Float[Array, ""]:
        of = self.length
        return rate_of(of, placements, twists) if isinstance(of, Path) else of.rate(v)[0]


def tendon_stops(
    at: Reference, chosen: ContactSelection, lengths: Mapping[int, Lengths | Path]
) -> FeatureParts:
    """The limits of tendons as stops, and their dry friction."""
    model, stops, rows = at.model, list[Limit | JointFriction](), list[Row]()
    limited = np.array(model.tendon_limited, bool) & (not at.is_disabled("LIMIT"))
    loss = np.array(model.tendon_frictionloss) * (not at.is_disabled("FRICTIONLOSS"))
    for i, length in lengths.items():
        name, still = at.names.tendons[i], isinstance(length, Path) and len(length.bodies) < 2
        own = TendonLength(name=name, length=length, turns=_is_sum_of_angles(at, i))
        e, e_rows = _restitution(chosen, name, model.tendon_solref_lim[i])
        for has, feature, word, how in (
            (limited[i], "tendon limits", "limits", rigid_words("rigid stops", e)),
            (loss[i] > 0, "tendon frictionloss", "friction", "it holds at rest, not soft"),
        ):
            if not has:
                continue
            if still:
                rows.append((feature, name, "ignored", "its length does not change"))
                continue
            if not chosen.has(word):
                rows += chosen.left_out(feature, [name], word)
                continue
            if word == "limits":
                low, high = map(float, model.tendon_range[i])
                stops += _make_limits(own, low, high, e)
                rows += e_rows
            else:
                stops.append(JointFriction(own, float(loss[i])))
            rows.append((feature, name, "used", how))
    return FeatureParts(contacts=tuple(stops), features=as_features(rows))


def _make_limits(of: str | TendonLength, low: float, high: float, e: float) -> list[Limit]:
    """The limit of a range; none where it has no end, which a file may say of what it calls limited."""
    lower, upper = (float(x) if np.isfinite(x) else None for x in (low, high))
    return [] if lower is upper is None else [Limit(of, lower, upper, restitution=e)]


def _restitution(chosen: ContactSelection, name: str, solref: np.ndarray) -> tuple[float, list[Row]]:
    """That of a stop, and what is to be said of its solref."""
    given = chosen.restitution.of((name,))
    if given is not None:
        return given, []
    e = restitution_of(solref)
    return e, [] if e or is_usual(solref) else [("solref of a limit", name, "off", UNUSED_SOLREF)]


def _is_sum_of_angles(at: Reference, tendon: int) -> bool:
    model, start = at.model, int(at.model.tendon_adr[tendon])
    places = range(start, start + int(model.tendon_num[tendon]))
    if any(model.wrap_type[k] != mujoco().mjtWrap.mjWRAP_JOINT for k in places):
        return False
    return all(kind_of(model, int(model.wrap_objid[k])) == "hinge" for k in places)


def _name_joints(at: Reference, has: np.ndarray) -> tuple[str, ...]:
    return tuple(at.names.joints[i] for i in np.flatnonzero(has))


def limits(at: Reference, chosen: ContactSelection) -> FeatureParts:
    """The limits of joints as stops, from the reference posture."""
    model, of_kind, stops, rows = at.model, joints_by_kind(at), [], list[Row]()
    limited = np.array(model.jnt_limited, bool) & (not at.is_disabled("LIMIT"))
    balls = np.isin(np.arange(model.njnt), of_kind["ball"])
    several = limited & balls & (np.array(model.body_jntnum)[model.jnt_bodyid] > 1)
    features = [
        Feature(
            "limit of a ball among several joints",
            _name_joints(at, several),
            "ignored",
            "it has no joint of its own",
        )
    ]
    limited &= ~several
    if not chosen.has("limits"):
        left = chosen.left_out("joint limit", _name_joints(at, limited), "limits")
        return FeatureParts(features=(*as_features(left), *features))
    for i in np.flatnonzero(limited).tolist():
        low, high = (float(x) for x in model.jnt_range[i])
        start = 0.0 if balls[i] else float(model.qpos0[model.jnt_qposadr[i]])
        e, of_stop = _restitution(chosen, name := at.names.joints[i], model.jnt_solref[i])
        stops += _make_limits(name, -np.inf if balls[i] else low - start, high - start, e)
        rows += [("joint limit", name, "used", rigid_words("rigid stops", e)), *of_stop]
    margins = _name_joints(at, limited & (np.array(model.jnt_margin) > 0))
    features += [
        *as_features(rows),
        Feature("margin of a limit", margins, "ignored", "stops are where the range ends"),
    ]
    return FeatureParts(contacts=tuple(stops), features=tuple(features))


def frictions(at: Reference, chosen: ContactSelection) -> FeatureParts:
    """The dry friction of joints."""
    model = at.model
    loss = np.zeros(model.nv) if at.is_disabled("FRICTIONLOSS") else np.array(model.dof_frictionloss)
    places = np.flatnonzero(loss > 0)
    owners = model.dof_jntid[places]
    names = tuple(at.names.joints[i] for i in dict.fromkeys(owners.tolist()))
    if not chosen.has("friction") or not len(places):
        return FeatureParts(features=as_features(chosen.left_out("joint frictionloss", names, "friction")))
    turning = np.isin(owners, [*joints_by_kind(at)["ball"], *joints_by_kind(at)["free"]])
    rates = JointRates(tuple(places.tolist()), conversion(at) if turning.any() else None)
    own = [f"{at.names.joints[i]} friction" for i in owners]
    number = lambda k: own[:k].count(own[k])
    each = [name if own.count(name) == 1 else f"{name}[{number(k)}]" for k, name in enumerate(own)]
    friction = DryFriction(rates, as_jax(loss[places]), name="joint friction", names=each)
    feature = Feature("joint frictionloss", names, why="it holds at rest, not soft")
    return FeatureParts(constraints=(friction,), features=(feature,))
