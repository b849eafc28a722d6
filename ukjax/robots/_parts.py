"""What a part of a file brings to the tree, and to the report."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from .._system._constraint import AbstractConstraint, AbstractUnilateral
from ..mechanisms import AbstractCoordinateLoad, AbstractJoint, AbstractLoad, AbstractTreeLoad
from ..mechanisms._contacts import AnyContact
from ._report import Feature


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
