"""Contacts of shapes as kinds: one program for all pairs that are alike, which takes a pair by its number.

Of the two bodies of a pair placements and twists are looked up in arrays in memory. Contact velocities are linear in the
twists, so the rows of a contact are few numbers by twist times those by which velocities move the two bodies.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._contact._kinds import ContactMotion, Instant, Motion
from .._formula._contact_list import entry, item, loop, put
from .._misc._types import as_jax, module_for
from ._contact_shapes import Capsule, Cuboid, HalfSpace, Sphere
from ._contacts import Contact
from ._placement import AnyPlacement, Twist, rate_of
from ._vmap_by_structure import _form


def flat_twist(twist: Twist) -> Float[Array, " s"]:
    """A twist as one vector, the angular velocity first."""
    return jnp.concatenate([jnp.reshape(twist.omega, -1), twist.velocity])


def _twist(x: Float[Array, " s"]) -> Twist:
    return Twist(x[:3], x[3:]) if x.size == 6 else Twist(x[0], x[1:])


class _Bodies(NamedTuple):
    """The bodies of contacts, stacked; see `Motion`.

    - `placements`: where they are.
    - `twists`, `rates`: how they move, and the rates of that (bodies, s).
    - `columns`: how velocities move them, from the first of theirs on (bodies, s, w).
    """

    placements: AnyPlacement
    twists: Array
    rates: Array
    columns: Array


class _Row(NamedTuple):
    """The rows of a contact: by the twists of its two bodies (1 + d, 2, s), and which bodies these are."""

    by_twist: Array
    bodies: tuple[Array, Array]
    of: _Bodies


@final
class ShapeKind(eqx.Module):
    """Contacts of pairs of shapes that are alike.

    - `places`: where bodies are.
    - `stacked`: the contacts, their arrays stacked.
    - `bodies`: the names of all bodies.
    - `pairs`: of each contact the places of its bodies among these.
    - `contacts`: which of all contacts each is.
    - `tangents`: how many tangential rows each has.
    """

    places: Any
    stacked: Contact
    bodies: tuple[str, ...] = eqx.field(static=True)
    pairs: tuple[tuple[int, int], ...] = eqx.field(static=True)
    contacts: tuple[int, ...] = eqx.field(static=True)
    tangents: int = eqx.field(static=True)

    @property
    def has_gap(self) -> bool:
        """They all have one."""
        return True

    def _placements(self, at: Instant) -> AnyPlacement:
        by_name = lambda: self.places.placements(self.bodies, at.q)
        stack = lambda found: jax.tree.map(lambda *x: jnp.stack(x), *(found[name] for name in self.bodies))
        return at.once(("placements", self.bodies), lambda: stack(by_name()))

    def _twists(self, q: Array, v: Array) -> Array:
        moved = self.places.moving(self.bodies, q, v)[1]
        return jnp.stack([flat_twist(moved[name]) for name in self.bodies])

    def moving(self, motion: Motion) -> _Bodies:
        at, v, q_rate, a = motion

        def bodies() -> _Bodies:
            twists, rates = jax.jvp(self._twists, (at.q, v), (q_rate, a))
            return _Bodies(self._placements(at), twists, rates, self.places.columns(self.bodies, at.q))

        return at.once(("motion", self.bodies), bodies)

    def _numbers(self, i: Array) -> tuple[Array, Array]:
        first, second = (jnp.asarray(np.array(x)) for x in zip(*self.pairs, strict=True))
        return entry(first, i), entry(second, i)

    def _contact(self, i: Array, dtype: jnp.dtype) -> Contact:
        arrays, rest = eqx.partition(self.stacked, eqx.is_array)
        return eqx.combine(jax.tree.map(lambda x: item(jnp.asarray(x), i).astype(dtype), arrays), rest)

    def gaps(self, at: Instant, so_far: Array) -> Array:
        places, which, dtype = self._placements(at), jnp.asarray(np.array(self.contacts)), at.q.dtype

        def one(i: Array, so_far: Array) -> Array:
            ends = [jax.tree.map(lambda x, b=b: item(x, b), places) for b in self._numbers(i)]
            return put(so_far, entry(which, i), self._contact(i, dtype).meeting(*ends).gap[0])

        return loop(len(self.contacts), one, so_far)

    def motion(self, moving: _Bodies, i: Array) -> ContactMotion:
        numbers, dtype = self._numbers(i), moving.twists.dtype
        contact, at = self._contact(i, dtype), lambda x: [item(x, b) for b in numbers]
        places = [jax.tree.map(lambda x, b=b: item(x, b), moving.placements) for b in numbers]
        twists, rates = at(moving.twists), at(moving.rates)
        gap = lambda *places: contact.meeting(*places).gap[0]
        speed = lambda places, twists: rate_of(gap, places, list(map(_twist, twists)))
        flows = [place.flow(_twist(x)) for place, x in zip(places, twists, strict=True)]
        return ContactMotion(gap(*places), jax.jvp(speed, (places, twists), (flows, rates))[1])

    def rows(self, moving: _Bodies, i: Array) -> _Row:
        numbers, dtype = self._numbers(i), moving.twists.dtype
        contact = self._contact(i, dtype)
        places = [jax.tree.map(lambda x, b=b: item(x, b), moving.placements) for b in numbers]
        meeting = contact.meeting(*places)

        def velocities(twists: Float[Array, "2 s"]) -> Array:
            moves = [_twist(x) for x in twists]
            rate = rate_of(lambda *places: contact.meeting(*places).gap[0], places, moves)
            if not self.tangents:
                return rate[None]
            first, second = (
                _velocity_of(meeting.point[0], place, twist)
                for place, twist in zip(places, moves, strict=True)
            )
            across = contact.tangents(places[0], meeting)[0]
            return jnp.concatenate([rate[None], across @ (second - first)])

        by_twist = jax.jacfwd(velocities)(jnp.zeros((2, moving.twists.shape[1]), dtype))
        return _Row(by_twist, numbers, moving)

    def write(self, rows: _Row, J: Array, row: Array, stride: int) -> Array:
        starts = jnp.asarray(np.array(self.places.velocity_starts(self.bodies)))
        for k, body in enumerate(rows.bodies):
            J = _with_body(
                J, rows.by_twist[:, k], rows.of.columns, body, entry(starts, body) * stride + row, stride
            )
        return J

    def drift(self, rows: _Row) -> Array:
        return jnp.zeros(1 + self.tangents, rows.by_twist.dtype)


def _with_body(
    J: Array, by_twist: Float[Array, "rows s"], columns: Array, body: Array, to: Array, stride: int
) -> Array:
    """J with what the velocities of a body add to the rows of a contact, of the first velocity from a place on."""
    (_, s, width), flat = columns.shape, columns.reshape(-1)

    def column(j: Array, J: Array) -> Array:
        moves = [entry(flat, (body * s + c) * width + j) for c in range(s)]
        for a in range(by_twist.shape[0]):
            at = to + j * stride + a
            more = sum((by_twist[a, c] * moves[c] for c in range(1, s)), by_twist[a, 0] * moves[0])
            J = put(J, at, entry(J, at) + more)
        return J

    return loop(width, column, J)


def _velocity_of(point: Array, placement: AnyPlacement, twist: Twist) -> Array:
    """Of the place of a body that is at a point of the world."""
    arm = point - placement.p
    turning = twist.omega * jnp.stack([-arm[1], arm[0]]) if arm.shape == (2,) else jnp.cross(twist.omega, arm)
    return twist.velocity + turning


def _single(contact: Contact) -> list[Contact]:
    """A contact of several places as contacts of one: of the ends of a capsule, or the corners of a box, with a plane."""
    first, second = contact.shapes
    if contact.count == 1:
        return [contact]
    assert isinstance(first, HalfSpace)
    if isinstance(second, Capsule):
        balls = [Sphere(second.body, x, second.radius) for x in (second.start, second.end)]
    else:
        assert isinstance(second, Cuboid)
        corners = second.corners()
        balls = [Sphere(second.body, corners[i]) for i in range(contact.count)]
    return [eqx.tree_at(lambda c: c.shapes, contact, (first, ball)) for ball in balls]


def _stack(contacts: Sequence[Contact]) -> Contact:
    arrays, rest = eqx.partition(contacts[0], eqx.is_array)
    columns = zip(*(jax.tree.leaves(eqx.filter(x, eqx.is_array)) for x in contacts), strict=True)
    stacked = [as_jax(module_for(*x).stack(x)) for x in columns]
    return eqx.combine(jax.tree.unflatten(jax.tree.structure(arrays), stacked), rest)


def kinds_of_shapes(
    places: Any, contacts: Sequence[Contact], first: int, names: tuple[str, ...]
) -> list[ShapeKind]:
    """Contacts by kinds."""
    singles = [x for contact in contacts for x in _single(contact)]
    groups: dict[Any, list[int]] = {}
    for i, x in enumerate(singles):
        groups.setdefault(_form(x), []).append(i)
    number = {name: i for i, name in enumerate(names)}
    kinds = []
    for of in groups.values():
        own = [singles[i] for i in of]
        pairs = tuple((number[x.bodies[0]], number[x.bodies[1]]) for x in own)
        tangents = (own[0].dimension - 1) * own[0].rough
        kinds.append(ShapeKind(places, _stack(own), names, pairs, tuple(first + i for i in of), tangents))
    return kinds
