"""Where a tree is: its description as arrays, and its posture, at one q."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._misc._types import Coordinates
from ._abstract_joint import Freedom, lift_to_space
from ._bodies import GROUND, AbstractBody, Body, PlanarBody
from ._loads import Placements
from ._mechanism import Mechanism, Twists
from ._placement import AnyPlacement, Placement, PlanarPlacement, Twist, ground_placement, ground_twist
from ._tree_layout import TreeLayout
from ._tree_motion import Chains, Posture
from ._vmap_by_structure import unstack_tree


class TreeAt(NamedTuple):
    """A tree at one q."""

    mechanism: Mechanism
    chains: Chains
    posture: Posture
    centres: Float[Array, "bodies 3"]
    placements: Placements


def _inertia(body: AbstractBody) -> Float[Array, "3 3"]:
    """About the centre of mass; in the plane about its normal alone; none for a point mass."""
    if isinstance(body, Body):
        return body.inertia
    about = body.inertia if isinstance(body, PlanarBody) else jnp.zeros_like(body.mass)
    return about * jnp.asarray(np.diag([0.0, 0.0, 1.0]), about.dtype)


def cast_arrays(parts: Any, dtype: jnp.dtype) -> Any:
    """A mechanism, or parts of one, with all arrays in one precision."""
    if all(x.dtype == dtype for x in jax.tree.leaves(parts) if eqx.is_inexact_array(x)):
        return parts
    arrays, rest = eqx.partition(parts, eqx.is_inexact_array)
    return eqx.combine(jax.tree.map(lambda x: x.astype(dtype), arrays), rest)


def chains_of(mechanism: Mechanism, layout: TreeLayout) -> Chains:
    """The description as arrays, velocities in their order."""
    bodies, by_name = mechanism.bodies, mechanism.by_name
    carrying = mechanism.joints[: len(bodies)]
    of_joints = [joint.freedoms(by_name[joint.child]) for joint in carrying]
    free = [part for parts in of_joints for part in parts]
    still = jnp.zeros((layout.states, 3), mechanism.bodies[0].mass.dtype)
    angular, linear = (
        jnp.concatenate([*(getattr(part, x) for part in free), still]) for x in ("angular", "linear")
    )
    starts = np.cumsum([0, *(part.nv for part in free)]).tolist()
    by_start = dict(zip(starts, free, strict=False))
    return Chains(
        layout,
        angular,
        linear,
        jnp.stack([by_start[element.v].point for element in layout.elements]),
        None if mechanism.offsets is None else _offsets(mechanism, of_joints, layout),
        jnp.stack([body.mass for body in bodies]),
        jnp.stack([lift_to_space(body.centre) for body in bodies]),
        jnp.stack([_inertia(body) for body in bodies]),
    )


def _offsets(
    mechanism: Mechanism, of_joints: Sequence[Sequence[Freedom]], layout: TreeLayout
) -> Float[Array, "elements 3"]:
    """How far elements are put off: the first of each joint, by what its child is."""
    number = {body.name: i for i, body in enumerate(mechanism.bodies)}
    found, v = {}, 0
    for joint, parts in zip(mechanism.joints, of_joints, strict=False):
        if parts:
            found[v] = mechanism.offsets[number[joint.child]]  # pyright: ignore[reportOptionalSubscript]
        v += sum(part.nv for part in parts)
    none = jnp.zeros_like(mechanism.offsets[0])  # pyright: ignore[reportOptionalSubscript]
    return jnp.stack([found.get(element.v, none) for element in layout.elements])


def place_bodies(
    bodies: Sequence[AbstractBody],
    R: Float[Array, "k 3 3"],
    p: Float[Array, "k 3"],
    angle: Float[Array, " k"],
) -> Sequence[AnyPlacement]:
    """The placements of some bodies from stacked arrays, those of the plane by their angles."""
    if bodies[0].dimension == 2:
        each = unstack_tree((angle, p[:, :2]), len(bodies))
        return [PlanarPlacement(x[0], x[1], body.centre) for x, body in zip(each, bodies, strict=True)]
    each = unstack_tree((R, p), len(bodies))
    return [Placement(x[0], x[1], body.centre) for x, body in zip(each, bodies, strict=True)]


def moving(bodies: Sequence[AbstractBody], twists: Twist) -> Twists:
    """Stacked twists as those of the bodies and the ground by name."""
    d, by_name = bodies[0].dimension, [body.name for body in bodies]
    if d == 2:
        twists = Twist(twists.omega[:, 2], twists.velocity[:, :2])
    found = dict(zip(by_name, unstack_tree(twists, len(bodies)), strict=True))
    return {GROUND: ground_twist(d, twists.omega.dtype)} | found


def place(mechanism: Mechanism, layout: TreeLayout, q: Coordinates) -> TreeAt:
    """A tree at one q."""
    mechanism = cast_arrays(mechanism, q.dtype)
    chains = chains_of(mechanism, layout)
    posture, frames, bodies = chains.posture(q), np.array(layout.frames, int), mechanism.bodies
    centres = posture.origin[frames] + chains.levers(posture)
    found = place_bodies(bodies, posture.rotation[frames], centres, posture.angle[frames])
    placements = {body.name: x for body, x in zip(bodies, found, strict=True)}
    placements[GROUND] = ground_placement(mechanism.dimension, q.dtype)
    return TreeAt(mechanism, chains, posture, centres, placements)
