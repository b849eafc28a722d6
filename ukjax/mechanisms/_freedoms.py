"""What a joint leaves free, as a kinematic tree needs it: elements of one twist, and balls."""

from typing import Literal, NamedTuple

from jaxtyping import Array, Float

from .._misc._types import module_for


def lift_to_space(x: Array) -> Float[Array, "3"]:
    """A vector of the plane as one of space; one of space as it is."""
    xp = module_for(x)
    return xp.asarray(x) if x.shape == (3,) else xp.concatenate([x, xp.zeros(1, x.dtype)])


class Freedom(NamedTuple):
    """One freedom of a joint: a turn, a slide, a screw, or a ball with three velocities. Made by the methods below.

    - `kind`: `"twist"` for one coordinate, `"ball"` for a quaternion.
    - `label`: what the coordinate is called behind the joint's name, where the joint has several.
    - `angular`, `linear`: what each velocity does in the reference posture: it turns about a direction [1] and slides
      [m/rad, or 1] (k, 3).
    - `point`: of the axis, or the ball's centre [m] (3,).
    - `named`: whether the label is the whole name, without the joint's in front.
    - `slides`: whether the coordinate is a displacement and no angle.
    """

    kind: Literal["twist", "ball"]
    label: str
    angular: Float[Array, "k 3"]
    linear: Float[Array, "k 3"]
    point: Float[Array, "3"]
    named: bool = False
    slides: bool = False

    @classmethod
    def turn(
        cls, point: Array, axis: Array | None = None, label: str = "angle", advance: Array | float = 0.0
    ) -> "Freedom":
        """An angle about an axis [rad].

        **Arguments:**

        - `point`: on the axis in the reference posture [m] (2,) or (3,).
        - `axis`: of length 1 in the reference posture (3,); None in the plane.
        - `label`: what the coordinate is called.
        - `advance`: along the axis for each radian, of a screw [m/rad].
        """
        xp = module_for(axis, advance)
        along = xp.asarray([0.0, 0.0, 1.0], point.dtype) if axis is None else xp.asarray(axis)
        still = isinstance(advance, float) and advance == 0.0
        linear = xp.zeros_like(along) if still else xp.asarray(advance) * along
        return cls("twist", label, xp.expand_dims(along, 0), xp.expand_dims(linear, 0), lift_to_space(point))

    @classmethod
    def slide(cls, point: Array, axis: Array, label: str = "slide") -> "Freedom":
        """A displacement along an axis [m].

        **Arguments:**

        - `point`: on the axis in the reference posture [m] (2,) or (3,).
        - `axis`: of length 1 in the reference posture, of the same shape.
        - `label`: what the coordinate is called.
        """
        xp = module_for(axis := lift_to_space(axis))
        axis = xp.expand_dims(axis, 0)
        return cls("twist", label, xp.zeros_like(axis), axis, lift_to_space(point), slides=True)

    @classmethod
    def ball(cls, point: Array) -> "Freedom":
        """Any rotation: a quaternion of the child against the parent, with the relative angular velocity in the child's
        axes [rad/s].

        **Arguments:**

        - `point`: that stays in place, in the reference posture [m] (3,).
        """
        xp = module_for(point)
        return cls("ball", "", xp.eye(3, dtype=point.dtype), xp.zeros((3, 3), point.dtype), xp.asarray(point))

    @property
    def nq(self) -> int:
        """The number of its coordinates."""
        return 4 if self.kind == "ball" else 1

    @property
    def nv(self) -> int:
        """The number of its velocities."""
        return 3 if self.kind == "ball" else 1
