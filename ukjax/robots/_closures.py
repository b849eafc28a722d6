"""Joints of a file that close loops, as joints of `mechanisms`: of URDF, SDF and USD, where MJCF has equalities."""

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, final

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from .._misc._types import Time, as_jax
from ..mechanisms import (
    AbstractJoint,
    Connect,
    Cylindrical,
    Gear,
    JointFriction,
    Limit,
    Placement,
    Prismatic,
    Revolute,
    Screw,
    TorsionalSpring,
    Universal,
)
from ..mechanisms._abstract_joint import AbstractAxisJoint
from ..mechanisms._placement import AnyPlacement, Twist
from ._bushings import Bushing
from ._contact_selection import ContactSelection
from ._equalities import Weld
from ._geoms import rigid_words
from ._reference import Reference, remove_rounding
from ._report import FeatureParts, RefusedError, Row, features

_KINDS: dict[str, Any] = {
    "revolute": Revolute,
    "prismatic": Prismatic,
    "cylindrical": Cylindrical,
    "universal": Universal,
    "screw": Screw,
}
CLOSING = (*_KINDS, "ball", "fixed", "gearbox")
"""The kinds of joints that can close a loop."""
BUSHING = "bushing"
"""The kind of what joins two bodies by springs and dampers alone, on its six axes."""


class Axis(NamedTuple):
    """A freedom of a joint."""

    direction: np.ndarray  # in the joint's frame (3,)
    slides: bool = False
    limits: tuple[float, float] = (-np.inf, np.inf)  # lowest and highest position [rad], [m]
    # `damping`, `stiffness`, `rest`, `friction`: of a damper, a spring and dry friction.
    damping: float = 0.0
    stiffness: float = 0.0
    rest: float = 0.0
    friction: float = 0.0
    effort: float = np.inf  # the largest that actuators give
    armature: float = 0.0  # what it moves besides
    name: str = ""  # that of the joint for the first axis, where none is given


class Closure(NamedTuple):
    """A joint that closes a loop: where two sites meet."""

    name: str
    kind: str  # one of `CLOSING`
    sites: tuple[str, str]  # names of the sites, on its parent and on its child
    # `axes`: in axes of the first site, but for the second axis of a universal joint and of a gearbox.
    axes: tuple[Axis, ...] = ()
    ratio: float = 0.0  # of a gearbox; the pitch of a screw [m]
    carrier: str = ""  # the body that carries a gearbox

    def with_prefix(self, prefix: str) -> "Closure":
        """The same of a model whose names have a prefix."""
        sites, carrier = tuple(prefix + x for x in self.sites), self.carrier and prefix + self.carrier
        return self._replace(name=prefix + self.name, sites=sites, carrier=carrier)


class AbstractOpenJoint(AbstractJoint):
    """A joint that may be open in the reference posture: the child is taken where the joint would be whole."""

    joint: eqx.AbstractVar[AbstractJoint]  # whole in the reference posture
    turn: eqx.AbstractVar[Array]  # of the child, from its reference posture to where it would be (3, 3)
    shift: eqx.AbstractVar[Array]  # likewise: X goes to turn X + shift [m] (3,)
    turns: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return self.joint.name

    @property
    def parent(self) -> str:
        return self.joint.parent

    @property
    def child(self) -> str:
        return self.joint.child

    @property
    def point(self) -> Array:
        return self.joint.point

    def _close(self, child: AnyPlacement) -> Placement:
        assert isinstance(child, Placement)
        return Placement(child.R @ self.turn.T, child.p, self.turn @ child.centre + self.shift)

    def rows(self, t: Time, *placements: AnyPlacement) -> Array | None:
        parent, child = placements
        return self.joint.rows(t, parent, self._close(child))


@final
class OpenJoint(AbstractOpenJoint):
    """Such a joint without a position."""

    joint: AbstractJoint
    turn: Array
    shift: Array


@final
class OpenAxisJoint(AbstractOpenJoint, AbstractAxisJoint):
    """Such a joint with a position."""

    joint: AbstractAxisJoint
    turn: Array
    shift: Array

    @property
    def axis(self) -> Array:
        return self.joint.axis

    @property
    def stops(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.joint.stops

    def position(self, parent: AnyPlacement, child: AnyPlacement) -> Float[Array, ""]:
        return self.joint.position(parent, self._close(child))

    def configuration_rows(self, value: Array, parent: AnyPlacement, child: AnyPlacement) -> Array:
        return self.joint.configuration_rows(value, parent, self._close(child))

    def angles_in(self, value: Any) -> Any:
        return self.joint.angles_in(value)

    def effort(self, parent: AnyPlacement, wrench: Twist) -> Float[Array, ""]:
        return self.joint.effort(parent, wrench)


def _find_ends(at: Reference, of: Closure) -> tuple[Any, Any, Any]:
    """The bodies of the ends, and where they are in the reference posture with their axes."""
    sites = [at.frame("site", at.names.sites.index(name)) for name in of.sites]
    bodies, points, axes = zip(*sites, strict=True)
    if bodies[0] == bodies[1]:
        raise RefusedError("both of its ends are on one body, or do not move")
    return bodies, points, axes


def _make_bushing(at: Reference, of: Closure) -> Bushing:
    bodies, points, axes = _find_ends(at, of)
    laws = (as_jax(np.array([getattr(x, what) for x in of.axes])) for what in ("stiffness", "damping"))
    return Bushing(of.name, bodies, as_jax(np.array(points)), as_jax(np.array(axes)), *laws)


def _make_joint(at: Reference, of: Closure) -> AbstractJoint:
    (parent, child), (point, child_point), (axes, child_axes) = _find_ends(at, of)
    given = [x.direction for x in of.axes] or [np.array([0.0, 0.0, 1.0])]
    axis, ends = axes @ given[0], (of.name, parent, child)
    if of.kind == "ball":
        return Connect(*ends, point, child_point)
    if of.kind == "fixed":
        return Weld(*ends, point, child_point, axes, child_axes)
    child_axis = child_axes @ given[1] if of.kind in ("universal", "gearbox") else None
    if of.kind == "gearbox":
        return Gear(*ends, of.ratio, at.carriers[at.names.bodies.index(of.carrier)], axis, child_axis)
    turn = axes @ child_axes.T
    turn = np.eye(3) + remove_rounding(turn - np.eye(3))
    shift = remove_rounding(point - turn @ child_point)
    further = () if child_axis is None else (turn @ child_axis,)
    further = (of.ratio,) if of.kind == "screw" else further
    joint = _KINDS[of.kind](*ends, point, axis, *further)
    if (turn == np.eye(3)).all() and not shift.any():
        return joint
    opened: Any = OpenAxisJoint if isinstance(joint, AbstractAxisJoint) else OpenJoint
    return opened(joint=joint, turn=as_jax(turn), shift=as_jax(shift))


def closures(at: Reference, given: Sequence[Closure], chosen: ContactSelection) -> FeatureParts:
    """The joints that close loops, as loops of the tree, with their springs, dampers, stops and dry friction."""
    loops, rows = list[AbstractJoint](), list[Row]()
    springs, stops = list[TorsionalSpring | Bushing](), list[Limit | JointFriction]()
    for closure in given:
        bushing = closure.kind == BUSHING
        feature = "linear bushing" if bushing else f"{closure.kind} joint that closes a loop"
        try:
            made = (_make_bushing if bushing else _make_joint)(at, closure)
        except RefusedError as why:
            rows.append((feature, closure.name, "ignored", str(why)))
            continue
        rows.append((feature, closure.name, "used", "" if bushing else "exact"))
        if isinstance(made, Bushing):
            springs.append(made)
            continue
        loops.append(made)
        for axis in closure.axes:
            known = closure.kind in _MEASURED and axis.slides == (closure.kind != "revolute")
            own = _read_laws(closure.name, axis, known, chosen)
            springs, stops, rows = [*springs, *own.loads], [*stops, *own.contacts], [*rows, *own.rows]
    return FeatureParts(tuple(springs), tuple(loops), features=features(rows), contacts=tuple(stops))


_MEASURED = ("revolute", "prismatic", "cylindrical")  # of which a position is known, of the last its slide


class _Laws(NamedTuple):
    """What acts along an axis of a joint."""

    loads: list[TorsionalSpring]
    contacts: list[Limit | JointFriction]
    rows: list[Row]


def _read_laws(name: str, axis: Axis, known: bool, chosen: ContactSelection) -> _Laws:
    """Springs, dampers, stops and dry friction of a joint that closes a loop, if its position is `known`."""
    laws, e = _Laws([], [], []), chosen.restitution.of((name,)) or 0.0
    lower, upper = (float(x) if np.isfinite(x) else None for x in axis.limits)
    has = {
        "limits": lower is not upper,
        "dry friction": axis.friction,
        "damping": axis.damping,
        "spring": axis.stiffness,
        "armature": axis.armature,
    }
    for what in (what for what, there in has.items() if there):
        feature, word, why = f"{what} of a joint that closes a loop", _WORDS.get(what, ""), ""
        if not known or what == "armature":
            why = "joints of the tree have one" if known else "hinges and slides that close loops have one"
            laws.rows.append((feature, name, "ignored", f"only {why}"))
            continue
        if word and not chosen.has(word):
            laws.rows.extend(chosen.left_out(feature, [name], word))
            continue
        if what == "limits":
            why = rigid_words("rigid stops", e)
            laws.contacts.append(Limit(name, lower, upper, restitution=e))
        elif what == "dry friction":
            why = "it holds at rest, not soft"
            laws.contacts.append(JointFriction(name, axis.friction))
        else:
            k, c = (axis.stiffness, 0.0) if what == "spring" else (0.0, axis.damping)
            laws.loads.append(TorsionalSpring(f"{name} {what}", name, k, c, axis.rest))
        laws.rows.append((feature, name, "used", why))
    return laws


_WORDS = {"limits": "limits", "dry friction": "friction"}  # what `contact` of `load` calls them
