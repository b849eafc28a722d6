"""The bodies of contacts in memory, where a program takes any by its number: how they move, and how rows move them.

Contact velocities are linear in the twists, so the rows of a contact are few numbers by twist times those by which
velocities move the two bodies.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._contact._kinds import Instant, Motion
from .._formula._contact_list import SparseRows, entry, loop
from ._placement import AnyPlacement, Twist, rate_of
from ._slips import SlipAxes


def flat_twist(twist: Twist) -> Float[Array, " s"]:
    """A twist as one vector, the angular velocity first."""
    return jnp.concatenate([jnp.reshape(twist.omega, -1), twist.velocity])


def twist_of(x: Float[Array, " s"]) -> Twist:
    """The twist that is one vector."""
    return Twist(x[:3], x[3:]) if x.size == 6 else Twist(x[0], x[1:])


class MovingBodies(NamedTuple):
    """The bodies of contacts, stacked; see `Motion`.

    - `placements`: where they are.
    - `twists`, `rates`: how they move, and the rates of that (bodies, s).
    - `columns`: how velocities move them, of each its own (bodies, s, w).
    """

    placements: AnyPlacement
    twists: Array
    rates: Array
    columns: Array


def locate_all(places: Any, names: Sequence[str], at: Instant) -> AnyPlacement:
    """Where bodies are, stacked."""
    by_name = lambda: places.placements(names, at.q)
    stack = lambda found: jax.tree.map(lambda *x: jnp.stack(x), *(found[name] for name in names))
    return at.once(("placements", names), lambda: stack(by_name()))


def move_all(places: Any, names: Sequence[str], motion: Motion) -> MovingBodies:
    """How bodies move."""
    at, v, q_rate, a = motion

    def twists(q: Array, v: Array) -> Array:
        moved = places.moving(names, q, v)[1]
        return jnp.stack([flat_twist(moved[name]) for name in names])

    def bodies() -> MovingBodies:
        now, rates = jax.jvp(twists, (at.q, v), (q_rate, a))
        return MovingBodies(locate_all(places, names, at), now, rates, places.columns(names, at.q))

    return at.once(("motion", names), bodies)


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


def write_row(
    places: Any, names: Sequence[str], row: BodyRow, J: SparseRows, k: Array, to: Array
) -> SparseRows:
    """J with the rows of contact k of a list, from row `to` on."""
    numbers, widths = places.velocity_numbers(names), jnp.asarray(places.velocity_counts(names))
    (_, s, most), flat = row.of.columns.shape, row.of.columns.reshape(-1)
    rows, J, numbers = row.by_twist.shape[0], J.begin(k), jnp.asarray(numbers.reshape(-1))

    def of_body(J: SparseRows, body: Array, by_twist: Array) -> SparseRows:
        def column(j: Array, J: SparseRows) -> SparseRows:
            moves = [entry(flat, (body * s + c) * most + j) for c in range(s)]
            values = [
                sum((by_twist[a, c] * moves[c] for c in range(1, s)), by_twist[a, 0] * moves[0])
                for a in range(rows)
            ]
            return J.add(k, to, entry(numbers, body * most + j), values)

        return loop(entry(widths, body), column, J)

    for place, body in enumerate(row.bodies):
        J = of_body(J, body, row.by_twist[:, place])
    return J
