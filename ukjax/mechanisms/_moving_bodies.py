"""The bodies of contacts in memory, where a program takes any by its number: how they move, and how rows move them.

Contact velocities are linear in the twists, so the rows of a contact are few numbers by twist times those by which
velocities move the two bodies.
"""

import abc
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._contact._kinds import ContactMotion, Instant, Motion
from .._formula._contact_list import SparseRows, entry, item, loop, put_item
from .._formula._members import Members, places_of, take_entries
from .._misc._blank import blank
from .._misc._types import Coordinates, Velocities
from ._bodies import GROUND
from ._placement import AnyPlacement, Twist, ground_placement, norm, rate_of
from ._slips import SlipAxes, SlipForm, velocity_of


def flat_twist(twist: Twist) -> Float[Array, " s"]:
    """A twist as one vector, the angular velocity first."""
    return jnp.concatenate([jnp.reshape(twist.omega, -1), twist.velocity])


def twist_of(x: Float[Array, " s"]) -> Twist:
    """The twist that is one vector."""
    return Twist(x[:3], x[3:]) if x.size == 6 else Twist(x[0], x[1:])


class MovingBodies(NamedTuple):
    """The bodies of contacts, stacked; see `Motion`."""

    placements: AnyPlacement  # where they are
    # `twists`, `rates`: how they move, and the rates of that (bodies, s).
    twists: Array
    rates: Array
    columns: Array  # how velocities move them, of each its own (bodies, s, w)


class AbstractBodies(eqx.Module):
    """The bodies of parts of a mechanism that are alike."""

    members: eqx.AbstractVar[Members]  # these parts, with their coordinates and velocities
    names: eqx.AbstractVar[tuple[tuple[str, ...], ...]]  # of the bodies of each

    @abc.abstractmethod
    def locate(self, one: Any, q: Coordinates) -> list[AnyPlacement]:
        """Where the bodies of one are, by its own coordinates."""

    @abc.abstractmethod
    def move(
        self, one: Any, q: Coordinates, v: Velocities, q_rate: Coordinates, a: Velocities
    ) -> list[tuple[Array, Array]]:
        """How they move, and the rates of that with q' and v' = a."""

    @abc.abstractmethod
    def columns(self, one: Any, q: Coordinates) -> Float[Array, "bodies s w"]:
        """How velocities move them: of each its twist by w of its own ones."""

    @property
    @abc.abstractmethod
    def moved_by(self) -> tuple[tuple[int, ...], ...]:
        """By which of its own velocities each moves."""

    def where(self, names: Sequence[str], unknown: int) -> tuple[tuple[int, ...], ...]:
        """The places of the bodies of each in a list; one for all that are not in it."""
        number = {name: i for i, name in enumerate(names)}
        return tuple(tuple(number.get(name, unknown) for name in own) for own in self.names)


def _put_all(stacked: Any, places: Sequence[Any], values: Sequence[Any]) -> Any:
    for place, own in zip(places, values, strict=True):
        stacked = jax.tree.map(lambda x, y, place=place: put_item(x, place, y), stacked, own)
    return stacked


@final
class DividedBodies(eqx.Module):
    """The bodies of a mechanism, by parts that nothing joins: what is stacked is computed by loops over those alike."""

    parts: tuple[AbstractBodies, ...]  # the parts
    dimension: int = eqx.field(static=True)  # 2 in the plane, 3 in space

    def _stack(self, names: Sequence[str], of_ground: Any, each: Callable[..., Sequence[Any]]) -> Any:
        """What `each` returns of the bodies of one, from a part, the number of one, and itself, stacked."""
        several = any(len(part.members) > 1 for part in self.parts)
        by_name = {GROUND: of_ground}
        for part in self.parts:
            if len(part.members) == 1:
                by_name |= zip(part.names[0], each(part, 0, part.members.one), strict=True)
        if not several:
            return jax.tree.map(lambda *x: jnp.stack(x), *(by_name[name] for name in names))
        # Behind all others stands what is not asked for.
        unknown, number = len(names), {name: i for i, name in enumerate(names)}
        new = lambda x: blank((unknown + 1) * x.size, x.dtype).reshape(unknown + 1, *x.shape)
        stacked = jax.tree.map(new, of_ground)
        known = [name for name in by_name if name in number]
        stacked = _put_all(stacked, [number[name] for name in known], [by_name[name] for name in known])
        for part in self.parts:
            if len(part.members) > 1:
                where = part.where(names, unknown)

                def body(k: Array, one: Any, stacked: Any, part: Any = part, where: Any = where) -> Any:
                    return _put_all(stacked, places_of(where, k), each(part, k, one))

                stacked = part.members.each(body, stacked)
        return stacked

    def locate(self, names: Sequence[str], at: Instant) -> AnyPlacement:
        """Where bodies are, stacked."""
        own = lambda part, k: take_entries(at.q, part.members.q, k)
        each = lambda part, k, one: part.locate(one, own(part, k))
        ground = ground_placement(self.dimension, at.q.dtype)
        return at.once(("placements", names), lambda: self._stack(names, ground, each))

    def move(self, names: Sequence[str], motion: Motion) -> MovingBodies:
        """How bodies move."""
        at, v, q_rate, a = motion
        s, w = 3 if self.dimension == 2 else 6, self.velocity_numbers(names).shape[1]
        zeros = lambda *shape: jnp.zeros(shape, v.dtype)

        def each(part: AbstractBodies, k: Any, one: Any) -> Sequence[Any]:
            q, q_along = (take_entries(x, part.members.q, k) for x in (at.q, q_rate))
            own, along = (take_entries(x, part.members.v, k) for x in (v, a))
            columns = _first_moved(part.columns(one, q), part.moved_by, w)
            moves = part.move(one, q, own, q_along, along)
            return [(*move, column) for move, column in zip(moves, columns, strict=True)]

        still = zeros(s), zeros(s), zeros(s, w)
        moved = at.once(("motion", names), lambda: self._stack(names, still, each))
        return MovingBodies(self.locate(names, at), *moved)

    def _each_name(self) -> dict[str, tuple[int, ...]]:
        """The velocities by which each body moves, by name."""
        found = dict[str, tuple[int, ...]]()
        for part in self.parts:
            for names, v in zip(part.names, part.members.v, strict=True):
                found |= {
                    name: tuple(v[i] for i in own) for name, own in zip(names, part.moved_by, strict=True)
                }
        return found

    def velocity_counts(self, names: Sequence[str]) -> np.ndarray:
        """By how many velocities each of some bodies moves (bodies,)."""
        by_name = self._each_name()
        return np.array([len(by_name.get(name, ())) for name in names])

    def velocity_numbers(self, names: Sequence[str]) -> np.ndarray:
        """By which velocities each of some bodies moves, filled up with the first (bodies, w)."""
        by_name = self._each_name()
        own = [by_name.get(name, ()) for name in names]
        width = max(1, *map(len, own))
        return np.array([(*x, *(0,) * (width - len(x))) for x in own])


def _first_moved(
    columns: Float[Array, "bodies s w"], moved_by: Sequence[Sequence[int]], width: int
) -> list[Float[Array, "s width"]]:
    """Of each body its columns, filled up with zeros."""
    found = []
    for own, numbers in zip(columns, moved_by, strict=True):
        own = own[:, : min(len(numbers), width)]  # bodies that are not asked for may have more
        found.append(jnp.pad(own, ((0, 0), (0, width - own.shape[1]))))
    return found


def contact_motion(
    gap: Array, point: Array, places: Sequence[AnyPlacement], numbers: Sequence[Array], of: MovingBodies
) -> ContactMotion:
    """The motion of a contact with a gap at a point, of bodies in some places."""

    def fastest(twists: Array) -> Array:
        each = zip(places, (twist_of(item(twists, b)) for b in numbers), strict=True)
        return sum((norm(velocity_of(point, *one)) for one in each), jnp.zeros((), point.dtype))

    return ContactMotion(gap, fastest(of.twists), fastest(of.rates))


def gap_acceleration(
    gap: Callable[..., Array], places: Sequence[AnyPlacement], numbers: Sequence[Array], of: MovingBodies
) -> Array:
    """How fast the rate of a gap changes, a function of two placements."""
    twists, rates = ([item(x, b) for b in numbers] for x in (of.twists, of.rates))
    speed = lambda places, twists: rate_of(gap, places, list(map(twist_of, twists)))
    flows = [place.flow(twist_of(x)) for place, x in zip(places, twists, strict=True)]
    return jax.jvp(speed, (list(places), twists), (flows, rates))[1]


Gap = Callable[..., tuple[Array, Array, Array]]
"""Gap, point and normal of a contact, as a function of two placements."""


class BodyRow(NamedTuple):
    """The rows of a contact: by the twists of its two bodies (1 + d, 2, s), and which bodies these are."""

    by_twist: Array
    bodies: tuple[Array, Array]
    of: MovingBodies


def contact_row(
    gap: Callable[..., Array],
    point: Array,
    slip: tuple[SlipAxes, Array | None] | None,
    places: Sequence[AnyPlacement],
    numbers: tuple[Array, Array],
    of: MovingBodies,
) -> BodyRow:
    """The rows of a contact from its gap, a function of two placements, its place, and the axes of slip and what they are
    scaled by, if any."""

    def velocities(twists: Float[Array, "2 s"]) -> Array:
        moves = [twist_of(x) for x in twists]
        rate = rate_of(gap, places, moves)
        if slip is None:
            return rate[None]
        axes, scale = slip
        rates = axes.velocities(point, places, moves)
        return jnp.concatenate([rate[None], rates if scale is None else scale * rates])

    return BodyRow(jax.jacfwd(velocities)(jnp.zeros((2, of.twists.shape[1]), point.dtype)), numbers, of)


class AbstractPairKind(eqx.Module):
    """What kinds of contacts between pairs of bodies share."""

    places: eqx.AbstractVar[DividedBodies]  # where bodies are
    bodies: eqx.AbstractVar[tuple[str, ...]]  # the names of all bodies
    pairs: eqx.AbstractVar[tuple[tuple[int, int], ...]]  # of each pair the places of its bodies among these
    form: eqx.AbstractVar[SlipForm]  # which kinds of slip friction resists
    has_gap: ClassVar[bool] = True

    @property
    def tangents(self) -> int:
        """How many tangential rows each has."""
        return self.form.tangents

    @property
    def width(self) -> int:
        """How many velocities move each at most."""
        return 2 * self.places.velocity_numbers(self.bodies).shape[1]

    def _numbers(self, pair: Array) -> tuple[Array, Array]:
        first, second = (jnp.asarray(np.array(x)) for x in zip(*self.pairs, strict=True))
        return entry(first, pair), entry(second, pair)

    def _ends(self, placements: Any, pair: Array) -> tuple[Any, Any]:
        first, second = (jax.tree.map(lambda x, b=b: item(x, b), placements) for b in self._numbers(pair))
        return first, second

    def moving(self, motion: Motion) -> MovingBodies:
        return self.places.move(self.bodies, motion)

    def write(self, rows: BodyRow, J: SparseRows, k: Array, row: Array) -> SparseRows:
        numbers = self.places.velocity_numbers(self.bodies)
        widths = jnp.asarray(self.places.velocity_counts(self.bodies))
        (_, s, most), flat = rows.of.columns.shape, rows.of.columns.reshape(-1)
        count, J, numbers = rows.by_twist.shape[0], J.begin(k), jnp.asarray(numbers.reshape(-1))

        def of_body(J: SparseRows, body: Array, by_twist: Array) -> SparseRows:
            def column(j: Array, J: SparseRows) -> SparseRows:
                moves = [entry(flat, (body * s + c) * most + j) for c in range(s)]
                values = [
                    sum((by_twist[a, c] * moves[c] for c in range(1, s)), by_twist[a, 0] * moves[0])
                    for a in range(count)
                ]
                return J.add(k, row, entry(numbers, body * most + j), values)

            return loop(entry(widths, body), column, J)

        for place, body in enumerate(rows.bodies):
            J = of_body(J, body, rows.by_twist[:, place])
        return J

    def drift(self, rows: BodyRow) -> Array:
        return jnp.zeros(1 + self.tangents, rows.by_twist.dtype)


class SoughtContact(NamedTuple):
    """A contact as it was sought."""

    pair: Array  # the number of its pair
    there: Array  # whether there is one
    gap: Gap
    ends: tuple[Any, Any]  # where its bodies were
    far: Array  # what stands for the gap of one that is not there


class AbstractSoughtKind(AbstractPairKind):
    """Contacts whose places are sought and kept. With the places of both bodies they say gap, point and normal."""

    directions: eqx.AbstractVar[Array]  # of each pair that of which directions of slip are made (pairs, 3)
    # `scales`: of each pair what its slip is scaled by (pairs, tangents); None where it is not.
    scales: eqx.AbstractVar[Array | None]
    seeks: ClassVar[bool] = True

    @abc.abstractmethod
    def _seek_contact(self, kept: Any, i: Array, *, held: bool = False) -> SoughtContact:
        """Contact i; where its rows are asked for, with rims of discs that are `held` (`Touch.hold_rims`)."""

    def motion(self, moving: MovingBodies, kept: Any, i: Array) -> ContactMotion:
        of = self._seek_contact(kept, i)

        def look(_: Array, so_far: ContactMotion) -> ContactMotion:
            distance, point, _ = of.gap(*of.ends)
            return contact_motion(distance, point, of.ends, self._numbers(of.pair), moving)

        none = ContactMotion(of.far, zero := jnp.zeros_like(of.far), zero)
        return loop(of.there.astype(of.pair.dtype), look, none)

    def acceleration(self, moving: MovingBodies, kept: Any, i: Array) -> Array:
        of = self._seek_contact(kept, i)
        return gap_acceleration(lambda *x: of.gap(*x)[0], of.ends, self._numbers(of.pair), moving)

    def rows(self, moving: MovingBodies, kept: Any, i: Array) -> BodyRow:
        """The rows of a contact; of one that is not there nothing is known."""
        of = self._seek_contact(kept, i, held=True)
        ends = self._ends(moving.placements, of.pair)
        _, point, normal = of.gap(*ends)
        own = lambda x: item(jnp.asarray(x).astype(point.dtype), of.pair)
        slip = None
        if self.tangents:
            scale = None if self.scales is None else own(self.scales)
            slip = self.form.axes(own(self.directions), ends, normal), scale
        row = contact_row(lambda *x: of.gap(*x)[0], point, slip, ends, self._numbers(of.pair), moving)
        return row._replace(by_twist=jnp.where(of.there, row.by_twist, 0))
