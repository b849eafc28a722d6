"""Where a tree is: its description as arrays, and its posture, at one q."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._misc._types import Coordinates
from ._bodies import GROUND, AbstractBody, Body, PlanarBody
from ._loads import Placements
from ._mechanism import Mechanism
from ._placement import Placement, PlanarPlacement, ground_placement
from ._tree_joints import freedoms, in_space
from ._tree_layout import Layout
from ._tree_motion import Axes, Chains, Posture


class Place(NamedTuple):
    """A tree at one q."""

    mechanism: Mechanism
    chains: Chains
    posture: Posture
    placements: Placements


def _inertia(body: AbstractBody) -> Float[Array, "3 3"]:
    """About the centre of mass; in the plane about its normal alone; none for a point mass."""
    if isinstance(body, Body):
        return body.inertia
    about = body.inertia if isinstance(body, PlanarBody) else jnp.zeros_like(body.mass)
    return jnp.zeros((3, 3), about.dtype).at[2, 2].set(about)


def _described(mechanism: Mechanism, dtype: jnp.dtype) -> Mechanism:
    arrays, rest = eqx.partition(mechanism, eqx.is_inexact_array)
    return eqx.combine(jax.tree.map(lambda x: x.astype(dtype), arrays), rest)


def _chains(mechanism: Mechanism, layout: Layout) -> Chains:
    """The description as arrays, velocities in their order."""
    bodies, by_name = mechanism.bodies, mechanism.by_name
    carrying = mechanism.joints[: len(bodies)]
    free = [part for joint in carrying for part in freedoms(joint, by_name[joint.child])]
    turn, slide = (jnp.concatenate([getattr(part, x) for part in free]) for x in ("turn", "slide"))
    points = jnp.stack([part.point for part in free for _ in range(part.nv)])
    return Chains(
        layout,
        Axes(turn, slide, points),
        jnp.stack([body.mass for body in bodies]),
        jnp.stack([in_space(body.centre) for body in bodies]),
        jnp.stack([_inertia(body) for body in bodies]),
    )


def place(mechanism: Mechanism, layout: Layout, q: Coordinates) -> Place:
    """A tree at one q.

    **Arguments:**

    - `mechanism`: its bodies, joints and loads.
    - `layout`: what hangs on what.
    - `q`: its coordinates.
    """
    mechanism = _described(mechanism, q.dtype)
    chains = _chains(mechanism, layout)
    posture, d = chains.posture(q), mechanism.dimension
    angles = chains.angles(q) if d == 2 else None
    placements = {GROUND: ground_placement(d, q.dtype)}
    for i, body in enumerate(mechanism.bodies):
        if angles is None:
            placement = Placement(posture.rotation[i], posture.centre[i], body.centre)
        else:
            placement = PlanarPlacement(angles[i], posture.centre[i, :2], body.centre)
        placements[body.name] = placement
    return Place(mechanism, chains, posture, placements)
