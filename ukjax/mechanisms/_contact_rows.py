"""The limits, dry friction and contacts of a mechanism as unilateral constraints on its coordinates."""

import abc
import itertools
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, NamedTuple, final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._misc._arguments import real_array
from .._misc._errors import InputError, format_value, unknown_name
from .._misc._types import Coordinates, Time, Velocities, as_jax, module_for
from .._system._constraint import AbstractUnilateral, DryFriction, Unilateral
from ._abstract_joint import AbstractJoint
from ._contact_kinds import ShapeKind, kinds_of_shapes
from ._contact_pairs import Meeting, is_closed_form, meet_each
from ._contact_table import RowForm
from ._contacts import Contact, JointFriction, Limit
from ._convex_kinds import ConvexKind
from ._field_kinds import FieldKind
from ._mechanism import Mechanism, Placements, Twists
from ._moving_bodies import DividedBodies
from ._placement import AnyPlacement, Twist, rate_of
from ._vmap_by_structure import vmap_by_structure


class AbstractBodyKinematics(eqx.Module):
    """Where the bodies of a mechanism are, as functions of its coordinates."""

    mechanism: eqx.AbstractVar[Mechanism]

    @abc.abstractmethod
    def cast_mechanism(self, dtype: jnp.dtype) -> Mechanism:
        """The mechanism in one precision."""

    @abc.abstractmethod
    def placements(self, names: Iterable[str], q: Coordinates) -> Placements:
        """Where some bodies are, by name."""

    @abc.abstractmethod
    def place_and_move(
        self, names: Iterable[str], q: Coordinates, v: Velocities
    ) -> tuple[Placements, Twists]:
        """Where some bodies are and how they move, by name."""

    @abc.abstractmethod
    def divide(self) -> DividedBodies:
        """All bodies, by parts that nothing joins."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The coordinates whose rates are velocities."""
        return ()

    @property
    def slides(self) -> tuple[str, ...]:
        """Those that are displacements."""
        return ()

    def coordinate(self, label: str) -> tuple[int, int] | None:
        """The places in q and v of a coordinate whose rate is a velocity; None where a label is none."""
        return None


def _find_measured_joints(
    places: AbstractBodyKinematics, items: Sequence[Any], dtype: jnp.dtype
) -> dict[str, AbstractJoint]:
    """The joints whose position is that of no coordinate, by name."""
    wanted = {x.joint for x in items if x.length is None and places.coordinate(x.joint) is None}
    return {joint.name: joint for joint in places.cast_mechanism(dtype).joints if joint.name in wanted}


def _measure_joints(
    places: AbstractBodyKinematics, items: Sequence[Any], q: Coordinates, v: Velocities | None
) -> Float[Array, " k"]:
    """The positions of the joints of limits and frictions; with v their rates."""
    joints = _find_measured_joints(places, items, q.dtype)
    measured = [*joints.values(), *(x.length for x in items if x.length is not None)]
    names = dict.fromkeys(name for x in measured for name in x.bodies)
    placed, moved = {}, {}
    if names:
        placed, moved = (places.placements(names, q), {}) if v is None else places.place_and_move(names, q, v)
    of = lambda by_name, x: tuple(by_name[name] for name in x.bodies)
    position = lambda joint, *ends: joint.stop_position(*ends)
    rate = lambda joint, ends, moves: rate_of(joint.stop_position, ends, moves)
    if v is None:
        by_joint = vmap_by_structure(position, [(x, *of(placed, x)) for x in joints.values()])
    else:
        by_joint = vmap_by_structure(rate, [(x, of(placed, x), of(moved, x)) for x in joints.values()])
    positions, values = dict(zip(joints, by_joint, strict=True)), list[Array]()
    coordinates = [None if x.length is not None else places.coordinate(x.joint) for x in items]
    for x, own in zip(items, coordinates, strict=True):
        if x.length is not None:
            ends = of(placed, x.length)
            values.append(
                x.length.value(q, ends) if v is None else x.length.rate(v, ends, of(moved, x.length))
            )
        elif own is None:
            values.append(positions[x.joint])
    # All coordinates at once: one by one they would be several operations each.
    at = np.array([q_v[v is not None] for q_v in coordinates if q_v is not None], int)
    found = jnp.concatenate([(q if v is None else v)[at], *(jnp.reshape(x, 1) for x in values)])
    order = np.argsort([x is None for x in coordinates], kind="stable")
    return found[np.argsort(order)] if values else found


@final
class LimitGaps(eqx.Module):
    """The gaps of limits."""

    places: AbstractBodyKinematics

    def __call__(self, t: Time, q: Coordinates) -> Float[Array, " k"]:
        limits = [x for x in self.places.cast_mechanism(q.dtype).of_joints if isinstance(x, Limit)]
        stops = [
            (i, x, is_upper)
            for i, own in enumerate(limits)
            for is_upper, x in enumerate(own.stops)
            if x is not None
        ]
        numbers, values, is_upper = zip(*stops, strict=True)
        at, stop = _measure_joints(self.places, limits, q, None)[np.array(numbers)], jnp.stack(values)
        return jnp.where(np.array(is_upper, bool), stop - at, at - stop)


@final
class FrictionRates(eqx.Module):
    """The rates of joints with dry friction."""

    places: AbstractBodyKinematics
    is_linear: ClassVar[bool] = True  # in the velocities

    def __call__(self, t: Time, q: Coordinates, v: Velocities) -> Float[Array, " k"]:
        frictions = [x for x in self.places.cast_mechanism(q.dtype).of_joints if isinstance(x, JointFriction)]
        return _measure_joints(self.places, frictions, q, v)


def _list_contacts(mechanism: Mechanism, form: RowForm | None = None) -> list[Contact]:
    """The contacts of shapes by their form; or those of one form."""
    by_form = mechanism.contacts_by_form
    forms = by_form if form is None else [form]
    return [x for own in forms for x in by_form[own].each(lambda table: table.contacts(mechanism.shapes))]


def _body_names(contacts: Sequence[Contact]) -> list[str]:
    return list(dict.fromkeys(name for x in contacts for name in x.bodies))


@final
class ContactGaps(eqx.Module):
    """The gaps of the contacts of one form."""

    places: AbstractBodyKinematics
    form: RowForm = eqx.field(static=True)

    def __call__(self, t: Time, q: Coordinates) -> Float[Array, " k"]:
        contacts = _list_contacts(self.places.cast_mechanism(q.dtype), self.form)
        placed = self.places.placements(_body_names(contacts), q)
        return jnp.concatenate([x.gap for x in _meet_contacts(contacts, placed)])

    @property
    def size(self) -> tuple[int, int]:
        """How many contacts there are, and how many tangential rows each has."""
        return int(self.places.mechanism.contacts_by_form[self.form].counts().sum()), self.form.tangents

    @property
    def changing(self) -> list[str]:
        """The contacts whose places are now one corner of a shape, now another."""
        own = self.places.mechanism.contacts_by_form[self.form]
        shapes = self.places.mechanism.shapes
        of = lambda x: list(zip(x.names, x.counts(shapes), x.pairs, strict=True))
        closed = lambda a, b: is_closed_form(shapes[a], shapes[b])
        return [name for name, count, pair in own.each(of) if count > 1 and not closed(*pair)]

    def kinds(self, first: int) -> list[ShapeKind | ConvexKind | FieldKind]:
        """The contacts by kinds, for steps over a list of them."""
        by_form, shapes = self.places.mechanism.contacts_by_form, self.places.mechanism.shapes
        pairs = [pair for x in by_form.values() for pair in x.each(lambda table: table.pairs)]
        names = tuple(
            dict.fromkeys(shapes[i].body for i in dict.fromkeys(itertools.chain.from_iterable(pairs)))
        )
        return kinds_of_shapes(self.places.divide(), by_form[self.form], first, names)


def _meet_contacts(contacts: Sequence[Contact], placed: Placements) -> list[Meeting]:
    return meet_each([(*x.shapes, placed[x.bodies[0]], placed[x.bodies[1]]) for x in contacts])


def _compute_slip(
    contact: Contact, meeting: Meeting, ends: tuple[AnyPlacement, ...], moves: tuple[Twist, ...]
) -> Array:
    places = zip(meeting.point, meeting.normal, strict=True)
    return jnp.stack([contact.slip_axes(ends, n).velocities(x, ends, moves) for x, n in places])


@final
class ContactSlips(eqx.Module):
    """The slips of the contacts of one form."""

    places: AbstractBodyKinematics
    form: RowForm = eqx.field(static=True)
    is_linear: ClassVar[bool] = True  # in the velocities

    def __call__(self, t: Time, q: Coordinates, v: Velocities) -> Float[Array, "k d"]:
        contacts = _list_contacts(self.places.cast_mechanism(q.dtype), self.form)
        placed, moved = self.places.place_and_move(_body_names(contacts), q, v)
        of = lambda by_name, x: tuple(by_name[name] for name in x.bodies)
        met = _meet_contacts(contacts, placed)
        items = [(x, m, of(placed, x), of(moved, x)) for x, m in zip(contacts, met, strict=True)]
        return jnp.concatenate(vmap_by_structure(_compute_slip, items))


class ContactFrame(NamedTuple):
    """Where a contact is, in the world.

    - `point`: halfway between the two shapes [m] (d,).
    - `axes`: the normal, then the directions of slip, as rows (d, d): forces on the rows of the contact times these are
      the force on the second body.
    - `bodies`: the first and the second.
    - `about`: directions of turning (r, 3), in the plane (r, 1): moments on further rows times these are that on the
      second body.
    - `gap`: how far the shapes are apart [m].
    """

    point: Array
    axes: Array
    bodies: tuple[str, str]
    about: Array
    gap: Array

    def effort(self, forces: Array) -> tuple[Array, Array]:
        """The force on the second body, and the moment about the point.

        **Arguments:**

        - `forces`: on the rows of the contact (rows,).
        """
        of_axes, of_about = forces[: len(self.axes)], forces[len(self.axes) :]
        return of_axes @ self.axes[: of_axes.size], of_about @ self.about


def contact_frames(system: Any, t: Time | float, q: Coordinates) -> dict[str, ContactFrame]:
    """Where contacts of shapes are, by name, in the order of a run's contacts.

    **Arguments:**

    - `system`: a mechanism, in absolute coordinates or a tree.
    - `t`: time [s].
    - `q`: coordinates (n_q,).

    **Returns:** a `ContactFrame` each.

    **Raises:** `InputError` for what is no mechanism, and another shape.
    """
    if not hasattr(system, "places"):
        raise InputError(f"system must be a mechanism, got {format_value(system)}.")
    q = real_array("q", q)
    if q.shape != system.q0.shape:
        raise InputError(f"q has shape {q.shape}; the mechanism has {system.q0.size} coordinates.")
    places: AbstractBodyKinematics = system.places
    mechanism = places.cast_mechanism(q.dtype)
    contacts = _list_contacts(mechanism)
    if not contacts:
        return {}
    placed, frames = places.placements(_body_names(contacts), q), {}
    for x, meeting in zip(contacts, _meet_contacts(contacts, placed), strict=True):
        ends = [placed[name] for name in x.bodies]
        for i, (name, n) in enumerate(zip(x.row_names, meeting.normal, strict=True)):
            slip = x.slip_axes(ends, n)
            axes = jnp.concatenate([n[None], slip.across])
            frames[name] = ContactFrame(meeting.point[i], axes, x.bodies, slip.about, meeting.gap[i])
    return frames


def require_positions(places: AbstractBodyKinematics) -> None:
    """Raises `InputError` for a limit or friction of what has no position of its own."""
    known = [joint.name for joint in places.mechanism.joints if joint.stops]
    of_joints = (x for x in places.mechanism.of_joints if x.length is None)
    for x in of_joints:
        if x.joint not in known and places.coordinate(x.joint) is None:
            raise unknown_name(f"joint with a position, of '{x.name}':", x.joint, [*known, *places.labels])


def require_no_contacts(mechanism: Mechanism) -> None:
    """Raises `InputError` for reactions that contacts of shapes would add to: in a tree nothing tells these forces."""
    if names := [name for x in mechanism.tables for name in x.names]:
        raise InputError(
            f"reactions of a tree with contacts ({', '.join(names[:3])}) are not offered: use `assemble`."
        )


def _is_angle(places: AbstractBodyKinematics, limit: Limit) -> bool:
    name = limit.joint
    if limit.length is not None:
        return limit.length.turns
    if places.coordinate(name) is not None:
        return name not in places.slides
    return any(x.stops == "angle" for x in places.mechanism.joints if x.name == name)


def unilateral_rows(places: AbstractBodyKinematics) -> tuple[Any, ...]:
    """The unilateral constraints of a mechanism: limits, contacts with and without friction, and dry friction."""
    contacts, constraints = places.mechanism.of_joints, list[AbstractUnilateral]()
    limits = [x for x in contacts if isinstance(x, Limit)]
    if limits:
        angle = [_is_angle(places, x) for x in limits for _ in x.row_names]
        told = {
            "restitution": _repeat_by_rows(limits, "restitution"),
            "impact": [x.impact for x in limits for _ in x.row_names],
            "names": _list_row_names(limits),
        }
        constraints.append(Unilateral(LimitGaps(places), name="limits", angle=angle, **told))
    for form, own in places.mechanism.contacts_by_form.items():
        tangents, turning, soft = form
        rubs: dict[str, Any] = {}
        if tangents:
            which = "friction" if all(x.stacked.form.is_round for x in own.tables) else "frictions"
            rubs = {"friction": own.column(which), "slip": ContactSlips(places, form)}
        word = f"contacts with {tangents} rows" if turning else "contacts" if tangents else "smooth contacts"
        word = f"soft {word}" if soft else word
        springs: dict[str, Any] = {what: own.column(what) for what in ("stiffness", "damping") if soft}
        laws = own.each(lambda table: [table.stacked.impact] * len(table.places))
        impact = [x for x, count in zip(laws, own.counts(), strict=True) for _ in range(count)]
        names, restitution = own.row_names(), own.column("restitution")
        told: dict[str, Any] = {"restitution": restitution, "impact": impact, "names": names}
        constraints.append(
            Unilateral(ContactGaps(places, form), name=word, turning=turning, **told, **rubs, **springs)
        )
    frictions = [x for x in contacts if isinstance(x, JointFriction)]
    if frictions:
        most, names = _repeat_by_rows(frictions, "limit"), _list_row_names(frictions)
        constraints.append(DryFriction(FrictionRates(places), most, name="joint friction", names=names))
    return tuple(constraints)


def _list_row_names(items: Sequence[Any]) -> tuple[str, ...]:
    return tuple(name for x in items for name in x.row_names)


def _repeat_by_rows(items: Sequence[Any], what: str) -> Array:
    """A number of each item, or several, as often as it has rows, by NumPy where values are known."""
    pairs = [(getattr(x, what), len(x.row_names)) for x in items]
    xp = module_for(*(x for x, _ in pairs))
    return as_jax(xp.concatenate([xp.repeat(xp.asarray(x)[None], count, axis=0) for x, count in pairs]))
