"""What acts in one direction only between bodies: limits and dry friction of joints, and contacts of shapes."""

from typing import Any, final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._misc._arguments import fails, require_instance
from .._misc._errors import InputError, unknown_name
from .._misc._types import as_jax, is_traced, module_for
from .._system._constraint import ImpactLaw, impact_law
from ._abstract_joint import AbstractJoint
from ._abstract_length import AbstractLength
from ._bodies import check_array, check_name, check_nonnegative
from ._contact_pairs import CLOSED_FORMS, Meeting, count_contacts, is_offered, meet
from ._contact_shapes import AbstractShape, HalfSpace, Surface
from ._joint_rows import across
from ._placement import AnyPlacement, ground_placement


def _length_of(joint: Any) -> AbstractLength | None:
    return joint if isinstance(joint, AbstractLength) else None


def _name_of_joint(what: str, joint: Any) -> str:
    if isinstance(joint, AbstractLength):
        return joint.name
    require_instance(what, joint, (AbstractJoint, str), "Revolute(...), Prismatic(...) or the name of one")
    return check_name("joint", joint if isinstance(joint, str) else joint.name)


def _share(what: str, value: Any) -> Array:
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
        self.joint, self.length = _name_of_joint("the joint of a limit", joint), _length_of(joint)
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
        self.restitution = _share(f"the restitution of limit '{self.name}'", restitution)
        self.impact = impact_law(self.name, impact)

    @property
    def row_names(self) -> list[str]:
        """What reports call the stops."""
        return [f"{self.name}.{word}" for word in ("lower", "upper") if getattr(self, word) is not None]

    def gaps(self, position: Array) -> Float[Array, " k"]:
        """How far the position is from each stop.

        **Arguments:**

        - `position`: of the joint [rad], [m].
        """
        lower = [] if self.lower is None else [position - self.lower]
        upper = [] if self.upper is None else [self.upper - position]
        return jnp.stack(lower + upper)


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
        self.joint, self.length = _name_of_joint("the joint of a friction", joint), _length_of(joint)
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
    of them a `HalfSpace`. Two have one contact where one is a `Sphere` or an `Ellipsoid`, and two capsules; else up to
    five that come and go, which time stepping takes (`contact="steps"`), and events do not. On a `HalfSpace` a `Capsule`
    has two contacts and a `Cuboid` one at each corner, for both. In the plane a `HalfSpace` meets a `Sphere`, a `Capsule`
    and a `Cuboid`, and a `Sphere` these and another; a `Capsule` meets a `Capsule`. A `Surface` meets a point.

    **Arguments:**

    - `first`, `second`: shapes of two bodies.
    - `restitution`: e of the law of impact, from 0 to 1.
    - `impact`: that law, `"newton"` or `"poisson"`, as of `ukjax.Unilateral`.
    - `friction`: mu of Coulomb's law.
    - `name`: by default the names of the two bodies, such as `foot-ground`.

    **Raises:** `InputError` for shapes that cannot meet or are of one body, and coefficients out of range.
    """

    shapes: tuple[AbstractShape, AbstractShape]
    restitution: Float[Array, ""]
    friction: Float[Array, ""]
    impact: ImpactLaw = eqx.field(static=True)
    direction: Array
    rough: bool = eqx.field(static=True)
    name: str = eqx.field(static=True)

    def __init__(
        self,
        first: AbstractShape,
        second: AbstractShape,
        *,
        restitution: Any = 0.0,
        impact: ImpactLaw = "newton",
        friction: Any = 0.0,
        name: str | None = None,
    ):
        for x in (first, second):
            require_instance("a shape of a contact", x, AbstractShape, "Sphere('ball', (0, 0, 1), 0.1)")
        self.name = f"{first.body}-{second.body}" if name is None else check_name("contact", name)
        self.shapes = _order_shapes(self.name, first, second)
        self.restitution = _share(f"the restitution of contact '{self.name}'", restitution)
        self.impact = impact_law(self.name, impact)
        self.friction = check_nonnegative(f"the friction of contact '{self.name}'", friction)
        self.rough = is_traced(friction) or fails(lambda x: x == 0, friction)
        self.direction = self._reference_normal()

    @property
    def dimension(self) -> int:
        """2 in the plane, 3 in space."""
        return self.shapes[1].dimension  # pyright: ignore[reportReturnType]

    @property
    def bodies(self) -> tuple[str, str]:
        """The bodies that meet, the first one first."""
        return (self.shapes[0].body, self.shapes[1].body)

    def _reference_normal(self) -> Array:
        """The normal in the reference posture; of convex bodies about, along the line between their middles."""
        first, second = self.shapes
        if isinstance(first, Surface):
            still = ground_placement(self.dimension, self.restitution.dtype)
            return self.meeting(still, still).normal[0]
        if isinstance(first, HalfSpace):
            return first.normal
        xp = module_for(first.middle, second.middle)
        off = xp.asarray(second.middle) - xp.asarray(first.middle)
        off = xp.where(xp.any(off != 0), off, 1)
        return as_jax(off / xp.sqrt(xp.dot(off, off)))

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

    def tangents(self, first: AnyPlacement, meeting: Meeting) -> Float[Array, "k tangents d"]:
        """Directions of slip in the world, across the normals.

        In space they are those across the normal of the reference posture, turned with it the shortest way in the first
        body's axes: so they turn smoothly, until the normal is the opposite one.

        **Arguments:**

        - `first`: placement of the first body.
        - `meeting`: from `meeting`.
        """
        if self.dimension == 2:
            return jnp.stack([meeting.normal[:, 1], -meeting.normal[:, 0]], axis=1)[:, None]
        return jnp.stack([turn_tangents(self.direction, first, n) for n in meeting.normal])


def turn_tangents(start: Array, first: AnyPlacement, normal: Array) -> Float[Array, "2 3"]:
    """Directions of slip in space: those across a normal of the reference posture, turned with it the shortest way."""
    n = first.back(normal)
    share = (n + start) / jnp.maximum(1 + jnp.dot(n, start), jnp.finfo(n.dtype).eps)
    return jnp.stack([first.vector(a - jnp.dot(n, a) * share) for a in across(start)])


AnyContact = Limit | JointFriction | Contact


def _order_shapes(
    name: str, first: AbstractShape, second: AbstractShape
) -> tuple[AbstractShape, AbstractShape]:
    """The two shapes, the one of lower order first."""
    a, b = sorted((first, second), key=lambda x: x.order)
    kinds = type(a), type(b)
    if not is_offered(a, b):
        offered = ", ".join(f"{x.__name__} and {y.__name__}" for x, y in CLOSED_FORMS)
        raise InputError(
            f"contact '{name}': a {kinds[0].__name__} and a {kinds[1].__name__} are not offered; there are {offered}, "
            "and in space any two convex shapes, and these and a HalfSpace."
        )
    if a.body == b.body:
        raise InputError(f"contact '{name}' is of '{a.body}' with itself; its two bodies must differ.")
    if a.dimension not in (None, b.dimension):
        raise InputError(f"contact '{name}' has one shape in the plane and one in space.")
    if isinstance(a, Surface) and fails(lambda r: r == 0, b.radius):  # pyright: ignore[reportAttributeAccessIssue]
        raise InputError(f"contact '{name}': points touch a Surface, so give the Sphere no radius.")
    return a, b


def require_fits(contact: Contact, dimension: int, bodies: list[str]) -> None:
    """Raises `InputError` for a contact that does not fit into a mechanism."""
    if contact.dimension != dimension:
        words = {2: "in the plane", 3: "in space"}
        raise InputError(
            f"contact '{contact.name}' is {words[contact.dimension]} but the mechanism is {words[dimension]}."
        )
    for name in contact.bodies:
        if name not in bodies:
            raise unknown_name(f"body in contact '{contact.name}':", name, bodies)
