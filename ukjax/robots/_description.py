"""What a file of any format is read as: MuJoCo's specification of the tree, and what that has no place for."""

from typing import Any, NamedTuple

from ._closures import Closure
from ._report import Feature
from ._urdf_looks import Look


class Description(NamedTuple):
    """A robot as it is described, before MuJoCo compiles it."""

    spec: Any  # a `mujoco.MjSpec`
    features: tuple[Feature, ...] = ()  # what the report says besides what follows from the spec
    looks: tuple[Look, ...] = ()  # visual elements that the spec has not
    closures: tuple[Closure, ...] = ()  # joints that close loops and are no equalities of the spec
    base: str = ""  # the root link of a URDF, of which the file does not say whether it moves
