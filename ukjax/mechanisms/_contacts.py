"""What acts in one direction only between bodies: limits and dry friction of joints, and contacts of shapes."""

import abc
from collections.abc import Callable, Collection, Sequence
from typing import Any, final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._misc._arguments import fails, require_instance
from .._misc._errors import InputError, require_known
from .._misc._modules import replace_unchecked
from .._misc._types import Coordinates, Velocities, arrays_of, as_jax, is_traced, module_for
from .._system._constraint import ImpactLaw, impact_law, require_soft
from ._abstract_joint import AbstractJoint, normalize_axis
from ._bodies import check_array, check_name, check_nonnegative
from ._contact_pairs import CLOSED_FORMS, Meeting, count_contacts, is_offered, meet
from ._contact_shapes import AbstractShape, HalfSpace, HeightField, Surface
from ._placement import AnyPlacement, Twist, ground_placement
from ._slips import SlipAxes, SlipForm


class AbstractLength(eqx.Module):
    """What has limits and dry friction as a joint has and is none, such as a tendon."""

    name: eqx.AbstractVar[str]  # what reports call it
    turns: eqx.AbstractVar[bool]  # whether it is an angle [rad] and no length [m]

    @property
    @abc.abstractmethod
    def bodies(self) -> tuple[str, ...]:
        """The bodies whose places it depends on, if any."""

    @abc.abstractmethod
    def value(self, q: Coordinates, placements: Sequence[AnyPlacement]) -> Float[Array, ""]:
        """How long it is.

        **Arguments:**

        - `q`: coordinates.
        - `placements`: of `bodies`.
        """

    @abc.abstractmethod
    def rate(
        self, v: Velocities, placements: Sequence[AnyPlacement], twists: Sequence[Twist]
    ) -> Float[Array, ""]:
        """How fast it becomes longer, linear in v.

        **Arguments:**

        - `v`: velocities.
        - `placements`, `twists`: of `bodies`.
        """


def _as_length(joint: Any) -> AbstractLength | None:
    return joint if isinstance(joint, AbstractLength) else None


def _name_of_joint(what: str, joint: Any) -> str:
    if isinstance(joint, AbstractLength):
        return joint.name
    require_instance(what, joint, (AbstractJoint, str), "Revolute(...), Prismatic(...) or the name of one")
    return check_name("joint", joint if isinstance(joint, str) else joint.name)


def _check_share(what: str, value: Any) -> Array:
    array = check_nonnegative(what, value)
    if fails(lambda x: x <= 1, value):
        raise InputError(f"{what} must be at most 1, got {value}.")
    return array


@final
class Limit(eqx.Module):
    """Stops of a joint: its position stays between two values, with impacts by Newton's or Poisson's law.

    The position is that of `Revolute`, `Prismatic`, `Cylindrical` and `Screw`, an angle [rad] or a slide [m] from the
    reference posture, or of `Spherical` the whole angle by which it is turned. In a tree any coordinate that is no
    quaternion has limits, under its label, and hinges count turns; otherwise the angle of a hinge in space is known
    between -pi and pi.

    Reports call the stops `<name>.lower` and `<name>.upper`.

    **Arguments:**

    - `joint`: the joint, its name, or the label of a coordinate of a tree; of a robot's tendon its length.
    - `lower`, `upper`: the least and the largest position; None for no stop.
    - `restitution`: e of the law of impact, from 0 to 1.
    - `impact`: that law, `"newton"` or `"poisson"`, as of `ukjax.Unilateral`.
    - `name`: by default the joint's.

    **Raises:** `InputError` without any stop, for stops in the wrong order, and a restitution that is not from 0 to 1.
    """

    joint: str = eqx.field(static=True)
    length: AbstractLength | None
    lower: Float[Array, ""] | None
    upper: Float[Array, ""] | None
    restitution: Float[Array, ""]
    impact: ImpactLaw = eqx.field(static=True)
    name: str = eqx.field(static=True)

    def __init__(
        self,
        joint: AbstractJoint | AbstractLength | str,
        lower: Any = None,
        upper: Any = None,
        *,
        restitution: Any = 0.0,
        impact: ImpactLaw = "newton",
        name: str | None = None,
    ):
        self.joint, self.length = _name_of_joint("the joint of a limit", joint), _as_length(joint)
        self.name = self.joint if name is None else check_name("limit", name)
        if lower is None and upper is None:
            raise InputError(f"limit '{self.name}' has no stop: give lower, upper or both.")
        given = (("lower", lower), ("upper", upper))
        self.lower, self.upper = (
            None if x is None else check_array(f"the {word} stop of limit '{self.name}'", x, ())
            for word, x in given
        )
        if None not in (lower, upper) and fails(lambda a, b: a < b, lower, upper):
            raise InputError(f"limit '{self.name}' needs lower < upper, got {lower} and {upper}.")
        self.restitution = _check_share(f"the restitution of limit '{self.name}'", restitution)
        self.impact = impact_law(self.name, impact)

    @property
    def stops(self) -> tuple[Array | None, Array | None]:
        """The lower and the upper one."""
        return self.lower, self.upper

    @property
    def row_names(self) -> list[str]:
        """What reports call the stops."""
        words = zip(("lower", "upper"), self.stops, strict=True)
        return [f"{self.name}.{word}" for word, x in words if x is not None]


@final
class JointFriction(eqx.Module):
    """Dry friction of a joint, which resists up to a torque or force whatever presses it.

    Reports call it `<name> friction`.

    **Arguments:**

    - `joint`: the joint, its name, or the label of a coordinate of a tree; of a robot's tendon its length.
    - `limit`: what it resists [N m], [N].
    - `name`: by default the joint's.

    **Raises:** `InputError` for a negative limit.
    """

    joint: str = eqx.field(static=True)
    length: AbstractLength | None
    limit: Float[Array, ""]
    name: str = eqx.field(static=True)

    def __init__(self, joint: AbstractJoint | AbstractLength | str, limit: Any, *, name: str | None = None):
        self.joint, self.length = _name_of_joint("the joint of a friction", joint), _as_length(joint)
        self.name = self.joint if name is None else check_name("friction", name)
        self.limit = check_nonnegative(f"the limit of friction '{self.name}'", limit)

    @property
    def row_names(self) -> list[str]:
        """What reports call it."""
        return [f"{self.name} friction"]


@final
class Contact(eqx.Module):
    """Two shapes that may touch, with impacts by Newton's or Poisson's law and Coulomb's friction.

    In space any two convex shapes meet (`Sphere`, `Capsule`, `Cuboid`, `Cylinder`, `Ellipsoid`, `ConvexHull`), and each
    of them a `HalfSpace` and a `HeightField`. Two have one contact where one is a `Sphere` or an `Ellipsoid`, and two
    capsules; else up to five that come and go, and with a `HeightField` nine: time stepping takes these, and events do
    not. On a `HalfSpace` a `Capsule` has two contacts and a `Cuboid` one at each corner, for both. In the plane a
    `HalfSpace` meets a `Sphere`, a `Capsule` and a `Cuboid`, and a `Sphere` these and another; a `Capsule` meets a
    `Capsule`. A `Surface` meets a point.

    **Arguments:**

    - `first`, `second`: shapes of two bodies.
    - `restitution`: e of the law of impact, from 0 to 1.
    - `impact`: that law, `"newton"` or `"poisson"`, as of `ukjax.Unilateral`.
    - `friction`: mu of Coulomb's law; or two of them, in space: along a direction and across it.
    - `torsion`: mu against turning about the normal, in space [m]: the most moment that friction bears, over the force.
    - `rolling`: mu against rolling [m]: likewise, of a moment across the normal.
    - `along`: the direction of the first of two frictions, in the reference posture (3,); it turns with the body of the
      shape that is given first.
    - `stiffness`: k of each place of contact [N/m], for time stepping: the shapes sink into each other, and the normal
      force is max(0, -k g - d g') where the gap g is negative. None (the default) for a rigid contact.
    - `damping`: d of a contact with stiffness [N s/m].
    - `name`: by default the names of the two bodies, such as `foot-ground`.

    Friction in several directions has one bound: with f_i the forces along them and moments, sum (f_i / mu_i)^2 <= f_n^2
    (the elliptic cone of MuJoCo), and does the most work against the slip.

    **Raises:** `InputError` for shapes that cannot meet or are of one body, coefficients out of range, torsion or rolling
    without friction, two frictions without a direction across the normal, stiffness with restitution, and damping without
    stiffness.
    """

    shapes: tuple[AbstractShape, AbstractShape]
    restitution: Float[Array, ""]
    friction: Float[Array, ""]
    second_friction: Float[Array, ""]
    torsion: Float[Array, ""]
    rolling: Float[Array, ""]
    stiffness: Float[Array, ""] | None
    damping: Float[Array, ""]
    impact: ImpactLaw = eqx.field(static=True)
    direction: Array
    form: SlipForm = eqx.field(static=True)
    name: str = eqx.field(static=True)

    def __init__(
        self,
        first: AbstractShape,
        second: AbstractShape,
        *,
        restitution: Any = 0.0,
        impact: ImpactLaw = "newton",
        friction: Any = 0.0,
        torsion: Any = 0.0,
        rolling: Any = 0.0,
        along: Any = None,
        stiffness: Any = None,
        damping: Any = 0.0,
        name: str | None = None,
    ):
        for x in (first, second):
            require_instance("a shape of a contact", x, AbstractShape, "Sphere('ball', (0, 0, 1), 0.1)")
        self.name = f"{first.body}-{second.body}" if name is None else check_name("contact", name)
        self.shapes = _order_shapes(self.name, first, second)
        self.restitution = _check_share(f"the restitution of contact '{self.name}'", restitution)
        self.impact = impact_law(self.name, impact)
        of, there = f"of contact '{self.name}'", lambda x: is_traced(x) or fails(lambda x: x == 0, x)
        require_soft(self.name, stiffness, damping, restitution)
        has_spring = stiffness is not None
        self.stiffness = check_nonnegative(f"the stiffness {of}", stiffness) if has_spring else None
        self.damping = check_nonnegative(f"the damping {of}", damping)
        two = len(np.shape(friction)) > 0
        if two:
            given = check_nonnegative(f"the friction {of}", friction, (2,))
            self.friction, self.second_friction = given[0], given[1]
        else:
            self.friction = self.second_friction = check_nonnegative(f"the friction {of}", friction)
        self.torsion = check_nonnegative(f"the torsion {of}", torsion)
        self.rolling = check_nonnegative(f"the rolling friction {of}", rolling)
        turned = None if along is None else int(self.shapes[0] is not first)
        dimension = self.shapes[1].dimension
        assert dimension is not None, "the second shape has a size"
        self.form = SlipForm(dimension, there(friction), there(torsion), there(rolling), turned)
        if self.form.twists and self.dimension == 2:
            raise InputError(
                f"contact '{self.name}' is in the plane, where nothing turns about a normal: give rolling."
            )
        if (self.form.turning or two) and not is_traced(friction) and fails(lambda x: x > 0, self.friction):
            raise InputError(
                f"contact '{self.name}' needs friction > 0 along with torsion or rolling, and the first of two positive."
            )
        self.direction = as_jax(_reference_normal(*self.shapes))
        if two or along is not None:
            self.direction = self._align(along, two)

    def _align(self, along: Any, two: bool) -> Array:
        if self.dimension == 2 or not two or along is None:
            raise InputError(
                f"contact '{self.name}': two frictions, in space, and `along` go together: friction=(0.8, 0.3), "
                "along=(1, 0, 0)."
            )
        direction = normalize_axis(f"the direction `along` of contact '{self.name}'", along, 3)
        if fails(lambda a, n: abs(np.dot(a, n)) < 1 - 1e-6, direction, self.direction):
            raise InputError(f"contact '{self.name}': `along` must not be the normal.")
        return direction

    @property
    def dimension(self) -> int:
        """2 in the plane, 3 in space."""
        return self.form.dimension

    @property
    def bodies(self) -> tuple[str, str]:
        """The bodies that meet, the first one first."""
        return (self.shapes[0].body, self.shapes[1].body)

    @property
    def count(self) -> int:
        """How many contacts there are."""
        return count_contacts(*self.shapes)

    @property
    def row_names(self) -> list[str]:
        """What reports call the contacts."""
        return [self.name] if self.count == 1 else [f"{self.name}[{i}]" for i in range(self.count)]

    def meeting(self, first: AnyPlacement, second: AnyPlacement) -> Meeting:
        """Gaps, places and normals.

        **Arguments:**

        - `first`, `second`: placements of `bodies`.
        """
        return meet(*self.shapes, first, second)

    def with_friction(self, friction: Any) -> "Contact":
        """The same contact with another friction; of two the first, and the second in proportion.

        **Arguments:**

        - `friction`: mu.
        """
        aligned = self.form.aligned
        first, second = self.shapes if aligned in (None, 0) else self.shapes[::-1]
        two = {}
        if aligned is not None:
            ratio = self.second_friction / self.friction
            friction, two = jnp.stack([friction, ratio * friction]), {"along": self.direction}
        return Contact(
            first,
            second,
            restitution=self.restitution,
            impact=self.impact,
            friction=friction,
            torsion=self.torsion,
            rolling=self.rolling,
            stiffness=self.stiffness,
            damping=self.damping,
            name=self.name,
            **two,
        )

    @property
    def frictions(self) -> Float[Array, " tangents"]:
        """The coefficients of all that friction resists."""
        sliding = [self.friction, self.second_friction][: self.dimension - 1]
        rolling = [self.rolling] * (self.dimension - 1) * self.form.rolls
        parts = [*sliding, *[self.torsion] * self.form.twists, *rolling]
        return as_jax(module_for(*parts).stack(parts, axis=-1))

    @property
    def slip_scale(self) -> Float[Array, " tangents"] | None:
        """These beside the first one; None where all are alike."""
        if self.form.is_round:
            return None
        first, every = arrays_of(self.friction, self.frictions)
        xp, first = module_for(first), first[..., None]
        return as_jax(every / xp.where(first > 0, first, 1))

    def slip_axes(self, ends: Sequence[AnyPlacement], normal: Array) -> SlipAxes:
        """Directions of slip in the world.

        **Arguments:**

        - `ends`: placements of `bodies`.
        - `normal`: of one of the contacts (d,).
        """
        return self.form.axes(self.direction, ends, normal)


AnyContact = Limit | JointFriction | Contact


def copy_contact(
    like: Contact, first: AbstractShape, second: AbstractShape, name: str, middle: Callable[[Any], Any]
) -> Contact:
    """The same contact of other shapes of the same kinds, in their order, by the middle of each: where no direction of
    friction is given."""
    normal = _reference_normal(first, second, middle)
    return replace_unchecked(like, shapes=(first, second), name=name, direction=normal)


def _reference_normal(
    first: AbstractShape, second: AbstractShape, middle: Callable[[Any], Any] = lambda x: x.middle
) -> Any:
    """The normal in the reference posture; of convex bodies about, along the line between their middles."""
    if isinstance(first, Surface):
        still = ground_placement(2 if second.dimension == 2 else 3, second.centre.dtype)  # pyright: ignore
        return meet(first, second, still, still).normal[0]
    if isinstance(first, HalfSpace | HeightField):
        return first.normal
    ends = middle(first), middle(second)
    xp = module_for(*ends)
    start, end = map(xp.asarray, ends)
    off = xp.where(xp.any(end != start), end - start, 1)
    return off / xp.sqrt(xp.dot(off, off))


def _order_shapes(
    name: str, first: AbstractShape, second: AbstractShape
) -> tuple[AbstractShape, AbstractShape]:
    a, b = sorted((first, second), key=lambda x: x.order)
    kinds = type(a), type(b)
    if not is_offered(a, b):
        offered = ", ".join(f"{x.__name__} and {y.__name__}" for x, y in CLOSED_FORMS)
        raise InputError(
            f"contact '{name}': a {kinds[0].__name__} and a {kinds[1].__name__} are not offered; there are {offered}, "
            "and in space any two convex shapes, and these and a HalfSpace or a HeightField."
        )
    if a.body == b.body:
        raise InputError(f"contact '{name}' is of '{a.body}' with itself; its two bodies must differ.")
    if a.dimension not in (None, b.dimension):
        raise InputError(f"contact '{name}' has one shape in the plane and one in space.")
    if isinstance(a, Surface) and fails(lambda r: r == 0, b.radius):  # pyright: ignore[reportAttributeAccessIssue]
        raise InputError(f"contact '{name}': points touch a Surface, so give the Sphere no radius.")
    return a, b


def require_fits(contact: Contact, dimension: int, bodies: Collection[str]) -> None:
    """Raises `InputError` for a contact that does not fit into a mechanism."""
    if contact.dimension != dimension:
        words = {2: "in the plane", 3: "in space"}
        raise InputError(
            f"contact '{contact.name}' is {words[contact.dimension]} but the mechanism is {words[dimension]}."
        )
    require_known(f"body in contact '{contact.name}':", bodies, *contact.bodies)
