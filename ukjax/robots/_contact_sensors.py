"""Contact sensors of a file: which contacts they may find, and what they read of these (MuJoCo's XML reference,
"sensor/contact").

A contact is found where it pushes, as the gap of rigid bodies at rest is but rounding. Its axes are MuJoCo's: the normal
n from the first body to the second, t across n from y, or from z where n is steeper than 60 degrees along y, and n x t.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..mechanisms._placement import norm
from ..mechanisms._tree_motion import cross
from ._rays import is_within
from ._reference import LEAST, Reference

if TYPE_CHECKING:
    from ._sensor_kinds import RobotState, Sensor

PARTS = ("found", "force", "torque", "dist", "pos", "normal", "tangent", "linvel", "angvel")
"""What is read of a contact, in MuJoCo's order."""
REDUCTIONS = ("none", "mindist", "maxforce", "netforce")


class ContactMatch(NamedTuple):
    """A contact that a contact sensor may find."""

    name: str  # among the contacts of the tree
    bodies: tuple[int, int]  # the sensor's first and second: numbers of the tree's plus 1; 0 for the ground
    swapped: bool  # whether that is against the contact's order
    against: bool  # whether MuJoCo's normal is against the sensor's


def match_contacts(
    at: Reference,
    numbers: Mapping[str, int],
    geoms: Mapping[str, tuple[int, int]],
    first: tuple[str, int],
    second: tuple[str, int],
) -> tuple[ContactMatch, ...]:
    """The contacts that a sensor of two sides may find: kinds and numbers of objects, of kind `"unknown"` for any."""
    model, matches = at.model, list[ContactMatch]()
    for name, ends in geoms.items():
        # MuJoCo's first is the one of lower kind.
        ordered = sorted(ends, key=lambda i: (int(model.geom_type[i]), i))
        (a1, a2), (b1, b2) = ([_is_on(model, i, *side) for i in ordered] for side in (first, second))
        if not ((a1 or a2) and (b1 or b2)):
            continue
        given = [kind != "unknown" for kind, _ in (first, second)]
        along = (a1 and b2) if all(given) else a1 if given[0] else b2
        against = not along and any(given)
        ordered = ordered[::-1] if against else ordered
        start, end = (numbers[at.carriers[model.geom_bodyid[i]]] for i in ordered)
        matches.append(ContactMatch(name, (start, end), ordered[0] != ends[0], against))
    return tuple(matches)


def _is_on(model: Any, geom: int, kind: str, i: int) -> bool:
    """Whether a geom is one, or on a body, or below it in the tree."""
    body = int(model.geom_bodyid[geom])
    if kind == "xbody":
        while body > i:
            body = int(model.body_parentid[body])
    return {"geom": geom == i, "body": body == i, "xbody": body == i}.get(kind, True)


def _axes(normal: Float[Array, "n 3"], against: np.ndarray) -> Float[Array, "n 3 3"]:
    """MuJoCo's axes of contacts, as rows, turned about the third where its normals are against these."""
    steep = jnp.abs(normal[:, 1:2]) >= 0.5
    start = jnp.where(steep, jnp.eye(3, dtype=normal.dtype)[2:], jnp.eye(3, dtype=normal.dtype)[1:2])
    across = start - normal * jnp.sum(start * normal, axis=1, keepdims=True)
    across = across / jnp.sqrt(jnp.sum(across**2, axis=1, keepdims=True))
    across = across * np.where(against, -1.0, 1.0).astype(normal.dtype)[:, None]
    return jnp.stack([normal, across, cross(normal, across)], axis=1)


def read_contacts(at: "RobotState", s: "Sensor") -> Float[Array, " size"]:
    """What a contact sensor reads, of one contact after another, zero where there are no more."""
    if not s.matches:
        return jnp.zeros(s.size, at.q.dtype)
    places = [at.contact_places[x.name] for x in s.matches]
    signs = jnp.array([-1.0 if x.swapped else 1.0 for x in s.matches], at.q.dtype)[:, None]
    efforts = [x.effort(at.forces[match.name]) for x, match in zip(places, s.matches, strict=True)]
    force, moment = (signs * jnp.stack(x) for x in zip(*efforts, strict=True))
    x, gap = jnp.stack([x.point for x in places]), jnp.stack([x.gap for x in places])
    is_found = jnp.stack([at.forces[match.name][0] > 0 for match in s.matches])
    if s.shape:
        size, back = jnp.asarray(s.numbers, at.q.dtype), at.R[s.frame].T
        inside = [is_within(s.shape, size, back @ (place.point - at.x[s.frame])) for place in places]
        is_found = is_found & jnp.stack(inside)
    count = jnp.sum(is_found.astype(at.q.dtype))
    if s.reduce == "netforce":
        read = _sum_up(jnp.where(is_found[:, None], force, 0.0), jnp.where(is_found[:, None], moment, 0.0), x)
        own = jnp.concatenate([count[None] if part == "found" else read[part] for part in s.parts])
        return jnp.concatenate([own, jnp.zeros(s.size - own.size, own.dtype)])
    normal = signs * jnp.stack([x.axes[0] for x in places])
    axes = _axes(normal, np.array([x.against for x in s.matches]))
    rates = [at.motion_of(tuple(match.bodies[k] for match in s.matches), x) for k in (0, 1)]
    turned = lambda vectors: jnp.einsum("nab,nb->na", axes, vectors)
    columns = {
        "found": lambda: jnp.full_like(gap, count),
        "force": lambda: turned(force),
        "torque": lambda: turned(moment),
        "dist": lambda: gap,
        "pos": lambda: x,
        "normal": lambda: axes[:, 0],
        "tangent": lambda: axes[:, 1],
        "linvel": lambda: turned(rates[1].velocity - rates[0].velocity),
        "angvel": lambda: turned(rates[1].omega - rates[0].omega),
    }
    rows = jnp.concatenate([columns[part]().reshape(len(gap), -1) for part in s.parts], axis=1)
    order = {"mindist": gap, "maxforce": -jnp.sum(force**2, axis=1)}.get(s.reduce, jnp.arange(len(gap)))
    return _pick_first(rows, order.astype(gap.dtype), is_found, s.size // rows.shape[1])


def _pick_first(rows: Array, order: Array, is_left: Array, count: int) -> Array:
    """Of the rows that are left the first ones by an order, zero where there are no more."""
    picked = []
    for _ in range(count):
        k = jnp.argmin(jnp.where(is_left, order, jnp.inf))
        picked.append(jnp.where(is_left[k], rows[k], 0.0))
        is_left = is_left & (np.arange(len(rows)) != k)
    return jnp.concatenate(picked)


def _sum_up(force: Array, moment: Array, x: Array) -> dict[str, Array]:
    """The sum of forces, and that of their moments about their mean place, by their sizes; in world axes."""
    weights = jnp.stack([norm(f) for f in force])
    point = weights @ x / jnp.maximum(LEAST, jnp.sum(weights))
    total = jnp.sum(moment + cross(x - point[None], force), axis=0)
    unit, zero = jnp.eye(3, dtype=x.dtype), jnp.zeros(1, x.dtype)
    along = {"normal": unit[0], "tangent": unit[1]}
    return {"force": jnp.sum(force, axis=0), "torque": total, "dist": zero, "pos": point} | along
