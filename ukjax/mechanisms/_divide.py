"""Parts of a mechanism that nothing joins to each other, of which those that are alike are one description with stacked
arrays: programs with loops take one after the other, so that their size grows with the kinds of parts only."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._formula._members import Members
from .._misc._types import Coordinates, Forces, Time, Velocities
from .._system._constraint import AbstractConstraint, Kind
from ._abstract_joint import AbstractJoint
from ._bodies import GROUND, AbstractBody
from ._loads import AbstractCoordinateLoad, AbstractLoad, AbstractTreeLoad, Gravity, TreeMotion
from ._mechanism import Mechanism
from ._tree_layout import Order, order_tree
from ._vmap_by_structure import form_of, stack_trees


def find_groups(names: Sequence[str], joined: Iterable[Sequence[str]]) -> list[list[int]]:
    """The numbers of names that are joined, directly or by others; the ground joins nothing."""
    group = {name: i for i, name in enumerate(names)}
    for own in joined:
        roots = {group[name] for name in own if name != GROUND}
        if len(roots) > 1:
            least = min(roots)
            group = {name: least if root in roots else root for name, root in group.items()}
    groups: dict[int, list[int]] = {}
    for i, name in enumerate(names):
        groups.setdefault(group[name], []).append(i)
    return list(groups.values())


def _drop_points(body: AbstractBody) -> AbstractBody:
    return eqx.tree_at(lambda x: x.points, body, {}) if getattr(body, "points", None) else body


def _extract_part(
    whole: Mechanism,
    own: Sequence[int],
    joints: Sequence[AbstractJoint],
    others: Sequence[AbstractJoint],
    *,
    loaded: bool,
) -> tuple[Mechanism, Hashable]:
    """Some bodies, joints, also those of others that they have, and loads; and what is equal where parts are alike."""
    place = {whole.bodies[i].name: k for k, i in enumerate(own)}
    joints = [*joints, *(x for x in others if set(x.bodies) & set(place))]
    loads = [x for x in whole.loads if loaded and (not x.bodies or set(x.bodies) & set(place))]
    offsets = None if whole.offsets is None else whole.offsets[np.array(own)]
    bodies = [_drop_points(whole.bodies[i]) for i in own]
    mechanism = Mechanism(bodies, joints, loads, "part", (), (), offsets)
    ends = tuple(tuple(place.get(name, -1) for name in x.bodies) for x in (*joints, *loads))
    return mechanism, (form_of(mechanism), ends)


def acts_on_its_own(load: AbstractLoad) -> bool:
    """Whether a load that names no bodies is on each by itself."""
    return bool(load.bodies) or isinstance(load, Gravity)


def divide_assembly(whole: Mechanism, coordinates: Mapping[str, Any]) -> list[Members]:
    """The mechanisms of the parts of one in absolute coordinates, which joints and loads hold together."""
    alike: dict[Hashable, list[tuple[Any, ...]]] = {}
    names = [body.name for body in whole.bodies]
    for own in find_groups(names, [x.bodies for x in (*whole.joints, *whole.loads)]):
        mechanism, form = _extract_part(whole, own, (), whole.joints, loaded=True)
        parts = [coordinates[names[i]] for i in own]
        q, v = (
            tuple(k for first, n in x for k in range(first, first + n))
            for x in ([(x.q_start, x.sizes[0]) for x in parts], [(x.v_start, x.sizes[1]) for x in parts])
        )
        alike.setdefault(form, []).append((mechanism, q, v))
    divided = []
    for own in alike.values():
        mechanisms, q, v = zip(*own, strict=True)
        divided.append(Members(mechanisms[0] if len(own) == 1 else stack_trees(mechanisms), q, v))
    return divided


class TreePart(NamedTuple):
    """Parts of a tree that are alike."""

    members: Members  # their mechanisms
    bodies: tuple[tuple[int, ...], ...]  # of each the numbers of its bodies in the whole
    order: Order  # of each


def divide_tree(
    whole: Mechanism, joined: Iterable[Sequence[str]], *, loaded: bool, single: Iterable[Sequence[str]] = ()
) -> list[TreePart]:
    """The parts of a tree that are held together by its joints and what else is `joined`; with loops and loads where they
    are to be `loaded`. What cannot move is with the first one that can. Parts with bodies that are `single`, which are
    joined too, are like no others."""
    bodies, count, single = whole.bodies, len(whole.bodies), list(single)
    number = {body.name: i for i, body in enumerate(bodies)}
    carrying, loops = whole.joints[:count], whole.joints[count:] if loaded else ()
    free = [joint.freedoms(bodies[number[joint.child]]) for joint in carrying]
    q_first, v_first = (
        np.cumsum([0, *(sum(getattr(x, size) for x in parts) for parts in free)]) for size in ("nq", "nv")
    )
    by_child = {joint.child: i for i, joint in enumerate(carrying)}
    moves = lambda own: any(free[by_child[bodies[i].name]] for i in own)
    groups = find_groups([body.name for body in bodies], [*(x.bodies for x in carrying), *joined, *single])
    still = [i for own in groups if not moves(own) for i in own]
    groups = [own for own in groups if moves(own)]
    groups[0] = sorted(groups[0] + still)
    alike: dict[Hashable, list[tuple[Any, ...]]] = {}
    for own in groups:
        joints = sorted(by_child[bodies[i].name] for i in own)
        q, v = (tuple(k for i in joints for k in range(x[i], x[i + 1])) for x in (q_first, v_first))
        mechanism, form = _extract_part(whole, own, [carrying[i] for i in joints], loops, loaded=loaded)
        inside = {bodies[i].name for i in own}
        alone = None if all(map(inside.isdisjoint, single)) else q
        alike.setdefault((form, alone), []).append((mechanism, q, v, tuple(own), len(joints)))
    parts = []
    for own in alike.values():
        mechanisms, q, v, numbers, (joints, *_) = zip(*own, strict=True)
        own_order = order_tree(mechanisms[0].bodies, mechanisms[0].joints[:joints])
        stacked = mechanisms[0] if len(own) == 1 else stack_trees(mechanisms)
        parts.append(TreePart(Members(stacked, q, v), numbers, own_order))
    return parts


# --- Loads and constraints of a whole tree as those of a part of it


class Entries(eqx.Module):
    """Which coordinates and velocities of a whole those of a part are."""

    q0: Array  # all coordinates in the reference posture, where those of other parts stay
    # `q`, `v`: the numbers of those of the part.
    q: tuple[int, ...] = eqx.field(static=True)
    v: tuple[int, ...] = eqx.field(static=True)
    size: int = eqx.field(static=True)  # how many velocities the whole has

    def coordinates(self, q: Array) -> Array:
        """All coordinates, of those of the part."""
        return self.q0.astype(q.dtype).at[np.array(self.q, int)].set(q)

    def velocities(self, v: Array) -> Array:
        """All velocities, of those of the part."""
        return jnp.zeros(self.size, v.dtype).at[np.array(self.v, int)].set(v)


@final
class CoordinateLoadOfPart(AbstractCoordinateLoad):
    """A load on coordinates of a part."""

    name: str = eqx.field(static=True)
    load: AbstractCoordinateLoad
    entries: Entries

    def rate(self, q: Coordinates, v: Velocities) -> Array:
        return self.load.rate(self.entries.coordinates(q), self.entries.velocities(v))

    def effort(self, t: Time, q: Coordinates, v: Velocities) -> Array:
        return self.load.effort(t, self.entries.coordinates(q), self.entries.velocities(v))

    def potential(self, q: Coordinates) -> Float[Array, ""] | None:
        return self.load.potential(self.entries.coordinates(q))


@final
class TreeLoadOfPart(AbstractTreeLoad):
    """A load that sees the whole motion of a part."""

    name: str = eqx.field(static=True)
    load: AbstractTreeLoad
    entries: Entries

    @property
    def states(self) -> tuple[str, ...]:
        return self.load.states

    @property
    def inertia(self) -> Array | None:
        return self.load.inertia

    def _complete(self, motion: TreeMotion) -> TreeMotion:
        def generalized(rate: Any, effort: Any) -> Forces:
            own = motion.generalized(lambda x: rate(self._complete(x)), effort)
            return self.entries.velocities(own)

        q, v = self.entries.coordinates(motion.q), self.entries.velocities(motion.v)
        return motion._replace(q=q, v=v, generalized=generalized)

    def rate(self, motion: TreeMotion) -> Array:
        return self.load.rate(self._complete(motion))

    def effort(self, motion: TreeMotion) -> Array:
        return self.load.effort(self._complete(motion))

    def state_rate(self, motion: TreeMotion) -> Array:
        return self.load.state_rate(self._complete(motion))

    def coordinate_force(self, t: Time, q: Coordinates, v: Velocities, z: Array) -> Forces | None:
        whole = self.entries.coordinates(q), self.entries.velocities(v)
        force = self.load.coordinate_force(t, *whole, z)
        return None if force is None else force[np.array(self.entries.v, int)]


@final
class ConstraintOfPart(AbstractConstraint):
    """A constraint on a part."""

    name: str = eqx.field(static=True)
    constraint: AbstractConstraint
    entries: Entries

    @property
    def kind(self) -> Kind:
        return self.constraint.kind

    def position_error(self, t: Time, q: Coordinates) -> Array | None:
        return self.constraint.position_error(t, self.entries.coordinates(q))

    def velocity_error(self, t: Time, q: Coordinates, v: Velocities) -> Array | None:
        return self.constraint.velocity_error(t, self.entries.coordinates(q), self.entries.velocities(v))

    def acceleration_rows(self, t: Time, q: Coordinates, v: Velocities) -> tuple[Array, Array] | None:
        rows = self.constraint.acceleration_rows(t, self.entries.coordinates(q), self.entries.velocities(v))
        return None if rows is None else (rows[0][..., np.array(self.entries.v, int)], rows[1])
