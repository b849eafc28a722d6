"""A joint that ties nothing, so that a free body can be part of a tree."""

from typing import Any, ClassVar, final

import equinox as eqx
import numpy as np
from jaxtyping import Array

from ._abstract_joint import AbstractJoint, set_ends
from ._bodies import AbstractBody, PointMass, check_array
from ._freedoms import Freedom


@final
class Free(AbstractJoint):
    """No joint at all: six freedoms in space, three in the plane. It makes a free body part of a tree.

    Its coordinates in a tree are the displacement of the child's point along the parent's axes [m], then the
    orientation: an angle in the plane, a quaternion in space. A point mass has the displacement only.

    **Arguments:**

    - `name`: what reports call it.
    - `parent`, `child`: names of the bodies.
    - `point`: of the child, which is displaced and about which it turns [m] (2,) or (3,).
    """

    name: str = eqx.field(static=True)
    parent: str = eqx.field(static=True)
    child: str = eqx.field(static=True)
    point: Array
    turns: ClassVar[bool] = False

    def __init__(self, name: str, parent: str, child: str, point: Any):
        set_ends(self, name, parent, child)
        self.point = check_array(f"the point of joint '{name}'", point, (2,), (3,))

    @property
    def holonomic(self) -> bool:
        return False

    def freedoms(self, child: AbstractBody) -> list[Freedom]:
        axes: Any = np.eye(self.dimension, dtype=self.point.dtype)
        slides = [Freedom.slide(self.point, axis, label) for axis, label in zip(axes, "xyz", strict=False)]
        if isinstance(child, PointMass):
            return slides
        return [*slides, Freedom.turn(self.point) if self.dimension == 2 else Freedom.ball(self.point)]
