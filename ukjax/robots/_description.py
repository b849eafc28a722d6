"""What a file of any format is read as: MuJoCo's specification of the tree, and what that has no place for."""

from typing import Any, NamedTuple

from ._closures import Closure
from ._report import Feature
from ._urdf_looks import Look


class Description(NamedTuple):
    """A robot as it is described, before MuJoCo compiles it.

    - `spec`: a `mujoco.MjSpec`.
    - `features`: what the report says besides what follows from the spec.
    - `looks`: visual elements that the spec has not.
    - `closures`: joints that close loops and are no equalities of the spec.
    - `base`: the root link of a URDF, of which the file does not say whether it moves.
    """

    spec: Any
    features: tuple[Feature, ...] = ()
    looks: tuple[Look, ...] = ()
    closures: tuple[Closure, ...] = ()
    base: str = ""
