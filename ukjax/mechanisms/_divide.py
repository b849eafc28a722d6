"""Parts of a mechanism that nothing joins to each other, of which those that are alike are one description with stacked
arrays: programs with loops take one after the other, so that their size grows with the kinds of parts only."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np

from .._formula._members import Members
from ._abstract_joint import AbstractJoint
from ._bodies import GROUND, AbstractBody
from ._loads import AbstractLoad, Gravity
from ._mechanism import Mechanism
from ._tree_layout import Order, order
from ._vmap_by_structure import form_of, stack_trees


def find_groups(names: Sequence[str], joined: Iterable[Sequence[str]]) -> list[list[int]]:
    """The numbers of names that are joined, directly or by others; the ground joins nothing."""
    group = {name: i for i, name in enumerate(names)}
    for own in joined:
        roots = {group[name] for name in own if name != GROUND}
        if len(roots) > 1:
            least = min(roots)
            group = {name: least if root in roots else root for name, root in group.items()}
    found: dict[int, list[int]] = {}
    for i, name in enumerate(names):
        found.setdefault(group[name], []).append(i)
    return list(found.values())


def _without_points(body: AbstractBody) -> AbstractBody:
    """A body without points to be reported, which have names."""
    return eqx.tree_at(lambda x: x.points, body, {}) if getattr(body, "points", None) else body


def _part_of(
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
    bodies = [_without_points(whole.bodies[i]) for i in own]
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
        mechanism, form = _part_of(whole, own, (), whole.joints, loaded=True)
        parts = [coordinates[names[i]] for i in own]
        q, v = (
            tuple(k for first, n in x for k in range(first, first + n))
            for x in ([(x.q_start, x.sizes[0]) for x in parts], [(x.v_start, x.sizes[1]) for x in parts])
        )
        alike.setdefault(form, []).append((mechanism, q, v))
    found = []
    for own in alike.values():
        mechanisms, q, v = zip(*own, strict=True)
        found.append(Members(mechanisms[0] if len(own) == 1 else stack_trees(mechanisms), q, v))
    return found


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
        mechanism, form = _part_of(whole, own, [carrying[i] for i in joints], loops, loaded=loaded)
        inside = {bodies[i].name for i in own}
        alone = None if all(map(inside.isdisjoint, single)) else q
        alike.setdefault((form, alone), []).append((mechanism, q, v, tuple(own), len(joints)))
    parts = []
    for own in alike.values():
        mechanisms, q, v, numbers, (joints, *_) = zip(*own, strict=True)
        own_order = order(mechanisms[0].bodies, mechanisms[0].joints[:joints])
        stacked = mechanisms[0] if len(own) == 1 else stack_trees(mechanisms)
        parts.append(TreePart(Members(stacked, q, v), numbers, own_order))
    return parts
