"""A mechanism as it is described: bodies, joints and loads that fit together, in no coordinates yet."""

import collections
import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._misc._arguments import all_of, fails
from .._misc._errors import InputError, require_known, unknown_name
from .._misc._types import Time
from ._abstract_joint import AbstractAxisJoint, AbstractJoint
from ._bodies import GROUND, AbstractBody, PointMass, check_name
from ._contact_shapes import AbstractShape
from ._contact_table import ContactTable, RowForm, TabulatedContacts, tabulate
from ._contacts import AnyContact, Contact, JointFriction, Limit, require_fits
from ._loads import (
    AbstractCoordinateLoad,
    AbstractLoad,
    AbstractTreeLoad,
    Gravity,
    Placements,
    Torque,
    Twists,
)
from ._visual import Visual
from ._vmap_by_structure import vmap_by_structure


def require_joints(name: str, values: Any) -> tuple[AbstractJoint, ...]:
    """Joints as a tuple."""
    return all_of(name, values, AbstractJoint, "Revolute('pin', 'ground', 'crank', (0, 0))")


def require_loads(values: Any) -> tuple[Any, ...]:
    """Loads as a tuple, of `values` as given."""
    return all_of("loads", values, (AbstractLoad, AbstractCoordinateLoad, AbstractTreeLoad), "Gravity()")


@final
class Mechanism(eqx.Module):
    """Bodies, joints and loads, checked against each other: all in the plane or all in space.

    `assemble` turns the same three into a system in absolute coordinates.

    **Arguments:**

    - `bodies`: any of `Body`, `PlanarBody`, `PointMass`.
    - `joints`: joints between them and the ground.
    - `loads`: loads on them; there is no gravity unless it is among them.
    - `name`: what plots, summaries and files of its runs are titled.
    - `visuals`: what bodies look like where they are shown; those without have a shape of their own.
    - `contacts`: limits and dry friction of joints, and contacts of shapes: `Limit`, `JointFriction`, `Contact`.
    - `offsets`: how far each body of a tree, and all it carries, is put off from where its joint has it in the reference
      posture, in axes of what carries it, which are the world's there [m] (bodies, 3).

    **Raises:** `InputError` for names that are used twice or not known, and for what does not fit together.
    """

    bodies: tuple[AbstractBody, ...]
    joints: tuple[AbstractJoint, ...]
    loads: tuple[AbstractLoad, ...]
    name: str = eqx.field(static=True)
    visuals: tuple[Visual, ...] = eqx.field(static=True)
    offsets: Float[Array, "bodies 3"] | None
    # Of contacts, each shape once, though many have it: a hull has thousands of points; those of shapes by tables; and
    # others, with their places among all.
    shapes: tuple[AbstractShape, ...]
    tables: tuple[ContactTable, ...]
    of_joints: tuple[Limit | JointFriction, ...]
    places_of_joints: tuple[int, ...] = eqx.field(static=True)

    def __init__(
        self,
        bodies: Iterable[AbstractBody],
        joints: Iterable[AbstractJoint] = (),
        loads: Iterable[AbstractLoad] = (),
        name: str = "mechanism",
        visuals: Iterable[Visual] = (),
        contacts: Iterable[AnyContact] = (),
        offsets: Array | None = None,
    ):
        self.offsets = offsets
        self.name = check_name("mechanism", name)
        self.bodies = all_of("bodies", bodies, AbstractBody, "rod('crank', (0, 0), (1, 0), 1.0)")
        joints = require_joints("joints", joints)
        loads = all_of("loads", loads, AbstractLoad, "Gravity()")
        self.visuals = all_of("visuals", visuals, Visual, "Visual('crank', 'box', (1.0, 0.1, 0.1))")
        kinds = (Limit, JointFriction, Contact)
        contacts = all_of("contacts", contacts, kinds, "Limit('elbow', -1.0, 2.0)")
        self.shapes, self.tables = tabulate(contacts)
        self.places_of_joints = tuple(i for i, x in enumerate(contacts) if not isinstance(x, Contact))
        self.of_joints = tuple(contacts[i] for i in self.places_of_joints)
        if not self.bodies:
            raise InputError("a mechanism needs at least one body.")
        for what, items in (("body", self.bodies), ("joint", joints), ("load", loads)):
            require_unique(what, [item.name for item in items])
        axes = {joint.name: joint for joint in joints if isinstance(joint, AbstractAxisJoint)}
        self.joints = tuple(_resolve_joint(joint, axes) for joint in joints)
        self.loads = tuple(_resolve_joint(load, axes) for load in loads)
        _require_dimension(self)
        by_name = self.by_name
        known = dict.fromkeys((*by_name, GROUND))
        for joint in self.joints:
            _check_ends("joint", joint, known)
            _check_point_masses(joint, by_name)
        for load in self.loads:
            _check_ends("load", load, known)
        names = [name for x in self.of_joints for name in x.row_names]
        for table in self.tables:
            names += TabulatedContacts(self.shapes, [table]).row_names()
        require_unique("contact", names)
        fitting = {id(x) for x in self.shapes if x.body in known and x.dimension in (None, self.dimension)}
        for contact in contacts:
            if isinstance(contact, Contact) and not fitting.issuperset(map(id, contact.shapes)):
                require_fits(contact, self.dimension, known)
        for visual in self.visuals:
            if visual.body not in known:
                raise unknown_name("body in a visual:", visual.body, known)

    @property
    def contacts(self) -> tuple[AnyContact, ...]:
        """Limits and dry friction of joints, and contacts of shapes."""
        by_place: dict[int, AnyContact] = dict(zip(self.places_of_joints, self.of_joints, strict=True))
        for table in self.tables:
            by_place |= zip(table.places, table.contacts(self.shapes), strict=True)
        return tuple(by_place[i] for i in range(len(by_place)))

    @property
    def contacts_by_form(self) -> dict[RowForm, TabulatedContacts]:
        """The contacts of shapes by the form of their rows."""
        forms = sorted({table.form for table in self.tables})
        return {x: TabulatedContacts(self.shapes, [t for t in self.tables if t.form == x]) for x in forms}

    def without_shapes(self) -> "Mechanism":
        """The same without contacts of shapes and visuals."""
        return Mechanism(self.bodies, self.joints, self.loads, self.name, (), self.of_joints, self.offsets)

    @property
    def dimension(self) -> int:
        """2 in the plane, 3 in space."""
        return self.bodies[0].dimension

    @property
    def by_name(self) -> dict[str, AbstractBody]:
        """The bodies by name."""
        return {body.name: body for body in self.bodies}

    def _map_loads(self, function: Callable[..., Any], *of_bodies: Mapping[str, Any]) -> list[Any]:
        """A function of each load, and of what belongs to its bodies, by name: to all if it names none."""

        def with_names(load: AbstractLoad, bodies: tuple, *of_ends: tuple) -> Any:
            names = load.bodies or tuple(by_name)
            own = (dict(zip(names, x, strict=True)) for x in of_ends)
            return function(load, {b.name: b for b in bodies}, *own)

        by_name, items = self.by_name, []
        for load in self.loads:
            names = load.bodies or tuple(by_name)
            bodies = tuple(by_name[name] for name in dict.fromkeys(names) if name in by_name)
            items.append((load, bodies, *(tuple(of[name] for name in names) for of in of_bodies)))
        return vmap_by_structure(with_names, items)

    def rates(self, placements: Placements, twists: Twists) -> list[Array]:
        """The rate each load works at, linear in the twists.

        **Arguments:**

        - `placements`, `twists`: of all bodies and the ground, by name.
        """
        return self._map_loads(lambda load, bodies, *of: load.rate(bodies, *of), placements, twists)

    def efforts(self, t: Time, placements: Placements, twists: Twists) -> list[Array]:
        """The effort of each load, to work on its rate."""
        return self._map_loads(lambda load, bodies, *of: load.effort(bodies, t, *of), placements, twists)

    def kinetic_energy(self, placements: Placements, twists: Twists) -> Float[Array, ""]:
        """The kinetic energy of all bodies [J]."""
        items = [(b, placements[b.name], twists[b.name]) for b in self.bodies]
        return sum_of(vmap_by_structure(lambda body, *of: body.kinetic_energy(*of), items))

    def potential_energy(self, placements: Placements) -> Float[Array, ""]:
        """The potential energy of all loads that have one [J]."""
        parts = self._map_loads(lambda load, bodies, *of: load.potential(bodies, *of), placements)
        zero = jnp.zeros((), self.bodies[0].centre.dtype)
        return sum_of([zero, *(part for part in parts if part is not None)])

    def energies(self, placements: Placements, twists: Twists) -> dict[str, Array]:
        """The parts of the energy [J]: `kinetic_<body>`, and `potential_<load>` of the loads that have one.

        **Arguments:**

        - `placements`, `twists`: of all bodies and the ground, by name.
        """
        kinetic = {b.name: b.kinetic_energy(placements[b.name], twists[b.name]) for b in self.bodies}
        potential = {load.name: load.potential(self.by_name, placements) for load in self.loads}
        return {f"kinetic_{name}": x for name, x in kinetic.items()} | {
            f"potential_{name}": x for name, x in potential.items() if x is not None
        }

    def points(self, placements: Placements) -> dict[str, Array]:
        """The named world points: centres under the bodies' names, their further points as `body.point`."""
        points = {body.name: placements[body.name].p for body in self.bodies}
        for body in self.bodies:
            for name, X in body.points.items():
                points[f"{body.name}.{name}"] = placements[body.name].point(X)
        return points

    def drawing(self, placements: Placements) -> dict[str, Array]:
        """Each body as a line through its named points if there are several, or else through its joints, closed where
        these are more than two; one whose shape is "joints" through these first; rods and springs between bodies."""
        outlines = {}
        for body in self.bodies:
            joints = [
                j.point
                for j in self.joints
                if body.name in j.bodies and getattr(j, "point", None) is not None
            ]
            through = list(body.points.values())
            if getattr(body, "shape", "") == "joints":
                further = [X for name, X in body.points.items() if name != body.name]
                through = joints if len(joints) > 1 else [*joints, *further]
            elif len(through) < 2:
                through = [*joints, *through]
            through += [body.centre] if len(through) == 1 else []
            if len(through) > 2:  # an outline
                through.append(through[0])
            if len(through) > 1:
                outlines[body.name] = jnp.stack([placements[body.name].point(X) for X in through])
        between: list[Any] = [x for x in (*self.joints, *self.loads) if hasattr(x, "parent_point")]
        for item in between:
            ends = ((item.parent, item.parent_point), (item.child, item.point))
            outlines[item.name] = jnp.stack([placements[name].point(X) for name, X in ends])
        return outlines


def sum_of(parts: list[Array]) -> Array:
    """The sum of a list that is not empty."""
    return jax.tree.reduce(jnp.add, parts)


def require_unique(what: str, names: list[str]) -> None:
    """Raises `InputError` for a name that is used twice."""
    name, count = collections.Counter(names).most_common(1)[0] if names else ("", 0)
    if count > 1:
        raise InputError(f"{count} {what} names are '{name}': each {what} needs a name of its own.")


def _resolve_joint(item: Any, joints: dict[str, AbstractAxisJoint]) -> Any:
    name = getattr(item, "joint", None)
    if not isinstance(name, str):
        return item
    require_known(f"joint with a position, in '{item.name}':", joints, name)
    return dataclasses.replace(item, joint=joints[name])


def _dimension_of(item: AbstractJoint | AbstractLoad) -> int | None:
    """Where a joint or a load has a dimension of its own."""
    if isinstance(item, AbstractJoint):
        return item.dimension
    if isinstance(item, Gravity):
        return None if item.g is None else item.g.shape[0]
    if isinstance(item, Torque):
        return None if callable(item.torque) else (2 if item.torque.ndim == 0 else 3)
    point = getattr(item, "point", None)
    return None if point is None else point.shape[0]


def _require_dimension(mechanism: Mechanism) -> None:
    """All in the plane, or all in space."""
    dimension = mechanism.dimension
    words = {2: "in the plane", 3: "in space"}
    first = mechanism.bodies[0].name
    for what, items in (("body", mechanism.bodies), ("joint", mechanism.joints), ("load", mechanism.loads)):
        for item in items:
            own = item.dimension if isinstance(item, AbstractBody) else _dimension_of(item)
            if own not in (None, dimension):
                raise InputError(
                    f"{what} '{item.name}' is {words[own]} but body '{first}' is {words[dimension]}; a mechanism is one "
                    f"or the other."
                )


def _check_ends(what: str, item: AbstractJoint | AbstractLoad, known: Collection[str]) -> None:
    require_known(f"body in {what} '{item.name}':", known, *item.bodies)


def _check_point_masses(joint: AbstractJoint, by_name: Mapping[str, AbstractBody]) -> None:
    """A point mass has no orientation, and no other point than its place."""
    ends = [joint.parent, joint.child]
    for name in dict.fromkeys(joint.bodies):
        body = by_name.get(name)
        if not isinstance(body, PointMass):
            continue
        if joint.turns:
            raise InputError(
                f"joint '{joint.name}' concerns the orientation of '{name}', a point mass, which has none; "
                f"use Spherical or Distance."
            )
        parents = getattr(joint, "parent_point", joint.point)
        X = (parents, joint.point)[ends.index(name)]
        if fails(lambda a, b: np.allclose(a, b, rtol=1e-5, atol=1e-6), X, body.centre):
            raise InputError(
                f"joint '{joint.name}' must hold point mass '{name}' at its place {body.centre}, not at {X}."
            )
