"""What a robot's file brings to the tree, and what becomes of its features: used, approximated or ignored, and why."""

import dataclasses
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, final

from .._misc._display import html_of
from .._misc._errors import InputError
from .._system._constraint import AbstractConstraint, AbstractUnilateral
from .._system._problem import Problem
from ..mechanisms import AbstractCoordinateLoad, AbstractJoint, AbstractLoad, AbstractTreeLoad
from ..mechanisms._contacts import AnyContact

_SHOWN = 4  # names of a feature in a table


@final
@dataclasses.dataclass(frozen=True)
class Feature:
    """One feature of a file.

    - `feature`: what it is, such as `"joint damping"`.
    - `names`: what has it.
    - `status`: `"used"`, `"approximated"` or `"ignored"`.
    - `why`: how it is used or approximated, or why it is ignored.
    - `moves`: whether it changes the motion, as contacts do and cameras do not.
    """

    feature: str
    names: tuple[str, ...]
    status: Literal["used", "approximated", "ignored"] = "used"
    why: str = ""
    moves: bool = True

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.names)


@final
@dataclasses.dataclass(frozen=True)
class RobotReport:
    """What a robot's file has and what became of it. `print(report)` shows a table.

    - `source`: the file, or what else the robot came from.
    - `features`: one `Feature` each, those used first.
    - `problem`: what was made of the file, for its picture in a notebook.
    """

    source: str
    features: tuple[Feature, ...]
    problem: Problem | None = dataclasses.field(default=None, compare=False, repr=False)

    def of(self, status: str) -> tuple[Feature, ...]:
        """The features of one status.

        **Arguments:**

        - `status`: `"used"`, `"approximated"` or `"ignored"`.
        """
        return tuple(x for x in self.features if x.status == status)

    def __str__(self) -> str:
        """A line for each feature."""
        lines = [f"{self.source}:"]
        for x in self.features:
            names = ", ".join(x.names[:_SHOWN]) + (
                f" and {x.count - _SHOWN} more" if x.count > _SHOWN else ""
            )
            lines.append(f"  {x.status}: {x.feature} ({x.count}): {names}" + (f"; {x.why}" if x.why else ""))
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return html_of(self)


def report_of(source: str, features: Iterable[Feature], strict: bool, problem: Problem) -> RobotReport:
    """The report; features that nothing has are left out."""
    order = ("used", "approximated", "ignored")
    listed = sorted((x for x in features if x.names), key=lambda x: order.index(x.status))
    lost = [f"{x.feature} ({x.status}: {x.why})" for x in listed if x.moves and x.status != "used"]
    if strict and lost:
        raise InputError(
            f"{source} has what would not be used as it stands, and strict=True: {'; '.join(lost)}."
        )
    return RobotReport(source, tuple(listed), problem)


Row = tuple[str, str, str, str]
"""A feature, the name of what has it, its status and why, as in `Feature`; of what does not change the motion the status
is `"still"` where it is used, and `"off"` where it is ignored."""


class RefusedError(Exception):
    """A part of a file that cannot be used: why."""


def features(rows: Iterable[Row]) -> tuple[Feature, ...]:
    """What has the same feature, status and reason together."""
    names_of: dict[tuple[str, str, str], list[str]] = {}
    for feature, name, status, why in rows:
        names_of.setdefault((feature, status, why), []).append(name)
    known: Any = {"off": "ignored", "still": "used"}
    return tuple(
        Feature(feature, tuple(names), known.get(status, status), why, status not in known)
        for (feature, status, why), names in names_of.items()
    )


class FeatureParts(NamedTuple):
    """What one kind of feature, such as equalities or tendons, brings."""

    # `loads`: on bodies, on coordinates, or on all of the tree.
    loads: tuple[AbstractLoad | AbstractCoordinateLoad | AbstractTreeLoad, ...] = ()
    loops: tuple[AbstractJoint, ...] = ()  # joints that close loops
    constraints: tuple[AbstractConstraint | AbstractUnilateral, ...] = ()  # on the coordinates
    features: tuple[Feature, ...] = ()  # for the report, one for each feature of this kind that the file has
    contacts: tuple[AnyContact, ...] = ()  # limits, and contacts of shapes
    # `geoms`: of each contact of shapes, by the names of its rows, that of its first shape first.
    geoms: Mapping[str, tuple[int, int]] = MappingProxyType({})
