"""What a part of a file brings to the tree, and to the report."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from .._system._constraint import AbstractConstraint, AbstractUnilateral
from ..mechanisms import AbstractCoordinateLoad, AbstractJoint, AbstractLoad, AbstractTreeLoad
from ..mechanisms._contacts import AnyContact
from ._report import Feature


class FeatureParts(NamedTuple):
    """What one kind of feature, such as equalities or tendons, brings.

    - `loads`: on bodies, on coordinates, or on all of the tree.
    - `loops`: joints that close loops.
    - `constraints`: on the coordinates.
    - `contacts`: limits, and contacts of shapes.
    - `features`: for the report, one for each feature of this kind that the file has.
    - `geoms`: of each contact of shapes, by the names of its rows, that of its first shape first.
    """

    loads: tuple[AbstractLoad | AbstractCoordinateLoad | AbstractTreeLoad, ...] = ()
    loops: tuple[AbstractJoint, ...] = ()
    constraints: tuple[AbstractConstraint | AbstractUnilateral, ...] = ()
    features: tuple[Feature, ...] = ()
    contacts: tuple[AnyContact, ...] = ()
    geoms: Mapping[str, tuple[int, int]] = MappingProxyType({})
