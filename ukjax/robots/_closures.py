"""Joints of a file that close loops, as joints of `mechanisms`: of URDF, SDF and USD, where MJCF has equalities."""

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, final

import numpy as np
from jaxtyping import Array

from .._misc._types import Time, as_jax
from ..mechanisms import (
    AbstractJoint,
    Connect,
    Cylindrical,
    Gear,
    Placement,
    Prismatic,
    Revolute,
    Screw,
    Universal,
)
from ..mechanisms._placement import AnyPlacement
from ._equalities import Weld
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


class Closure(NamedTuple):
    """A joint that closes a loop: where two sites meet."""

    name: str
    kind: str  # one of `CLOSING`
    sites: tuple[str, str]  # names of the sites, on its parent and on its child
    axis: np.ndarray  # in axes of the first site
    child_axis: np.ndarray | None = None  # of a universal joint and a gearbox, in axes of the second
    ratio: float = 0.0  # of a gearbox; the pitch of a screw [m]
    carrier: str = ""  # the body that carries a gearbox

    def with_prefix(self, prefix: str) -> "Closure":
        """The same of a model whose names have a prefix."""
        sites, carrier = tuple(prefix + x for x in self.sites), self.carrier and prefix + self.carrier
        return self._replace(name=prefix + self.name, sites=sites, carrier=carrier)


@final
class OpenJoint(AbstractJoint):
    """A joint that may be open in the reference posture: the child is taken where the joint would be whole."""

    joint: AbstractJoint  # whole in the reference posture
    turn: Array  # of the child, from its reference posture to where it would be (3, 3)
    shift: Array  # likewise: X goes to turn X + shift [m] (3,)
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

    def rows(self, t: Time, *placements: AnyPlacement) -> Array | None:
        parent, child = placements
        assert isinstance(child, Placement)
        whole = Placement(child.R @ self.turn.T, child.p, self.turn @ child.centre + self.shift)
        return self.joint.rows(t, parent, whole)


def _make_joint(at: Reference, of: Closure) -> AbstractJoint:
    sites = [at.frame("site", at.names.sites.index(name)) for name in of.sites]
    (parent, child), (point, child_point), (axes, child_axes) = zip(*sites, strict=True)
    if parent == child:
        raise RefusedError("both of its ends are on one body, or do not move")
    axis, ends = axes @ of.axis, (of.name, parent, child)
    if of.kind == "ball":
        return Connect(*ends, point, child_point)
    if of.kind == "fixed":
        return Weld(*ends, point, child_point, axes, child_axes)
    child_axis = None if of.child_axis is None else child_axes @ of.child_axis
    if of.kind == "gearbox":
        return Gear(*ends, of.ratio, at.carriers[at.names.bodies.index(of.carrier)], axis, child_axis)
    turn = axes @ child_axes.T
    turn = np.eye(3) + remove_rounding(turn - np.eye(3))
    shift = remove_rounding(point - turn @ child_point)
    further = () if child_axis is None else (turn @ child_axis,)
    further = (of.ratio,) if of.kind == "screw" else further
    joint = _KINDS[of.kind](*ends, point, axis, *further)
    whole = (turn == np.eye(3)).all() and not shift.any()
    return joint if whole else OpenJoint(joint=joint, turn=as_jax(turn), shift=as_jax(shift))  # pyright: ignore[reportCallIssue]


def closures(at: Reference, given: Sequence[Closure]) -> FeatureParts:
    """The joints that close loops, as loops of the tree."""
    loops, rows = list[AbstractJoint](), list[Row]()
    for closure in given:
        feature = f"{closure.kind} joint that closes a loop"
        try:
            loops.append(_make_joint(at, closure))
        except RefusedError as why:
            rows.append((feature, closure.name, "ignored", str(why)))
        else:
            rows.append((feature, closure.name, "used", "exact"))
    return FeatureParts(loops=tuple(loops), features=features(rows))
