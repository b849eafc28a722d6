"""Where a tree is: its description as arrays, and its posture, at one q."""

from collections.abc import Sequence
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._misc._types import Coordinates, Velocities, in_full_precision
from ._abstract_joint import Freedom, lift_to_space
from ._bodies import GROUND, AbstractBody, Body, PlanarBody
from ._loads import Placements
from ._mechanism import Mechanism, Twists
from ._placement import AnyPlacement, Placement, PlanarPlacement, Twist, ground_placement, ground_twist
from ._tree_layout import TreeLayout
from ._tree_motion import Chains, Posture, Rates, cross
from ._vmap_by_structure import unstack_tree


def _inertia_in_space(body: AbstractBody) -> Float[Array, "3 3"]:
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


def make_chains(mechanism: Mechanism, layout: TreeLayout) -> Chains:
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
        None if mechanism.offsets is None else _element_offsets(mechanism, of_joints, layout),
        jnp.stack([body.mass for body in bodies]),
        jnp.stack([lift_to_space(body.centre) for body in bodies]),
        jnp.stack([_inertia_in_space(body) for body in bodies]),
    )


def _element_offsets(
    mechanism: Mechanism, of_joints: Sequence[Sequence[Freedom]], layout: TreeLayout
) -> Float[Array, "elements 3"]:
    """How far elements are put off: the first of each joint, by what its child is."""
    number = {body.name: i for i, body in enumerate(mechanism.bodies)}
    by_velocity, v = {}, 0
    for joint, parts in zip(mechanism.joints, of_joints, strict=False):
        if parts:
            by_velocity[v] = mechanism.offsets[number[joint.child]]  # pyright: ignore[reportOptionalSubscript]
        v += sum(part.nv for part in parts)
    none = jnp.zeros_like(mechanism.offsets[0])  # pyright: ignore[reportOptionalSubscript]
    return jnp.stack([by_velocity.get(element.v, none) for element in layout.elements])


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


def twists_by_name(bodies: Sequence[AbstractBody], twists: Twist) -> Twists:
    """Stacked twists as those of the bodies and the ground by name."""
    d, by_name = bodies[0].dimension, [body.name for body in bodies]
    if d == 2:
        twists = Twist(twists.omega[:, 2], twists.velocity[:, :2])
    by_body = dict(zip(by_name, unstack_tree(twists, len(bodies)), strict=True))
    return {GROUND: ground_twist(d, twists.omega.dtype)} | by_body


# --- Some bodies of a tree

Ends = tuple[Float[Array, "k 3 3"], Float[Array, "k 3"], Float[Array, " k"]]
"""Of some bodies: rotations from the reference posture, centres [m], and in the plane angles [rad]."""


def locate_bodies(chains: Chains, q: Coordinates, bodies: tuple[int, ...]) -> tuple[Posture, Ends]:
    """The posture of a tree, and where some bodies are."""
    posture, frames, places = chains.posture(q), np.array(chains.layout.frames, int), np.array(bodies, int)
    at = frames[places]
    centres = posture.origin[at] + chains.levers(posture)[places]
    return posture, (posture.rotation[at], centres, posture.angle[at])


@eqx.filter_custom_jvp
def locate_ends(chains: Chains, q: Coordinates, *, bodies: tuple[int, ...]) -> Ends:
    """Where some bodies are.

    Their change with q is their twist, a sum over what carries them. So each column of a Jacobian takes as much as one
    axis does, where that of the product of exponentials takes all frames behind it.
    """
    return locate_bodies(chains, q, bodies)[1]


@locate_ends.def_jvp
@in_full_precision
def _(primals: tuple, tangents: tuple, *, bodies: tuple[int, ...]) -> tuple[Ends, Ends]:
    (chains, q), (of_chains, of_q) = primals, tangents
    located = locate_ends(chains, q, bodies=bodies)
    change = jax.tree.map(jnp.zeros_like, located)
    if jax.tree.leaves(of_chains):
        fixed = lambda chains: locate_bodies(chains, q, bodies)[1]
        moved = eqx.filter_jvp(fixed, (chains,), (of_chains,))[1]
        change = eqx.combine(moved, change)  # None stands for what does not change
    if of_q is not None:
        posture, (R, p, _) = locate_bodies(chains, q, bodies)
        twists = twists_of(chains, posture, p, chains.velocities(q, of_q), bodies)
        columns = jnp.swapaxes(R, 1, 2)
        turned = jnp.swapaxes(cross(jnp.broadcast_to(twists.omega[:, None], R.shape), columns), 1, 2)
        change = jax.tree.map(jnp.add, change, (turned, twists.velocity, twists.omega[:, 2]))
    return located, change


def own_columns(
    chains: Chains, posture: Posture, centres: Float[Array, "k 3"], bodies: tuple[int, ...]
) -> tuple[Twist, Int[np.ndarray, "k w"]]:
    """The same of the velocities that move each body alone (k, w, 3), and which these are."""
    numbers, moves = chains.layout.moving_velocities(bodies)
    points = posture.origin[1:][np.array(chains.layout.of_velocity, int)[numbers]]
    moves = jnp.asarray(moves, centres.dtype)[:, :, None]
    angular = moves * posture.angular[numbers]
    return Twist(
        angular, moves * posture.linear[numbers] + cross(angular, centres[:, None] - points)
    ), numbers


def twists_of(
    chains: Chains, posture: Posture, centres: Float[Array, "k 3"], v: Velocities, bodies: tuple[int, ...]
) -> Twist:
    """How some bodies move, stacked."""
    of, numbers = own_columns(chains, posture, centres, bodies)
    return jax.tree.map(lambda x: jnp.einsum("ika,ik->ia", x, v[numbers]), of)


def placements_by_name(mechanism: Mechanism, numbers: Sequence[int], ends: Ends) -> Placements:
    """The placements of some bodies and the ground, by name."""
    bodies = [mechanism.bodies[i] for i in numbers]
    by_name = dict(zip((body.name for body in bodies), place_bodies(bodies, *ends), strict=True))
    return {GROUND: ground_placement(mechanism.dimension, ends[1].dtype)} | by_name


@final
class TreeAt:
    """Some bodies of a tree, by default all, at one q, in its precision; `placements` are theirs and the ground's."""

    def __init__(
        self,
        mechanism: Mechanism,
        layout: TreeLayout,
        q: Coordinates,
        numbers: Sequence[int] | None = None,
    ):
        self.mechanism = cast_arrays(mechanism, q.dtype)
        self.numbers = tuple(range(len(mechanism.bodies)) if numbers is None else numbers)
        self.chains = make_chains(self.mechanism, layout)
        self.posture, self.ends = locate_bodies(self.chains, q, self.numbers)
        self.placements = placements_by_name(self.mechanism, self.numbers, self.ends)

    @property
    def bodies(self) -> list[AbstractBody]:
        """The bodies, in the order of their numbers."""
        return [self.mechanism.bodies[i] for i in self.numbers]

    @property
    def centres(self) -> Float[Array, "k 3"]:
        """Their centres [m]."""
        return self.ends[1]

    def rates(self, v: Velocities, a: Velocities | None = None) -> Rates:
        """How their centres move, stacked, with v' = a, by default zero; from the ground outwards."""
        frames, places = np.array(self.chains.layout.frames, int), np.array(self.numbers, int)
        levers = self.chains.levers(self.posture)[places]
        return self.chains.rates(self.posture, v, a).at(frames[places], levers)

    def twists(self, v: Velocities) -> Twists:
        """How they move, and the ground, by name; each by the velocities that move it."""
        return twists_by_name(
            self.bodies, twists_of(self.chains, self.posture, self.centres, v, self.numbers)
        )

    @property
    def columns(self) -> Twists:
        """How each velocity moves the bodies by itself, by their names: twists along a first axis (n,)."""
        posture, layout, centres = self.posture, self.chains.layout, self.centres
        moves = jnp.asarray(layout.moved(self.numbers), centres.dtype)[:, :, None]
        points = posture.origin[1:][np.array(layout.of_velocity, int)]
        arm = moves * (centres[:, None] - points[None])
        angular = jnp.broadcast_to(posture.angular, arm.shape)
        of = Twist(moves * angular, moves * posture.linear[None] + cross(angular, arm))
        if self.mechanism.dimension == 2:
            of = Twist(of.omega[..., 2], of.velocity[..., :2])
        by_name = {body.name: jax.tree.map(lambda x, i=i: x[i], of) for i, body in enumerate(self.bodies)}
        return {GROUND: jax.tree.map(lambda x: jnp.zeros_like(x[0]), of)} | by_name
