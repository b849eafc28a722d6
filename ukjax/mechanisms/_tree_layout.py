"""The order of a kinematic tree, from its bodies and joints; and one line on why they are not a tree."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from .._misc._errors import InputError, require_known
from .._misc._types import as_jax, module_for
from ._abstract_joint import AbstractJoint, Freedom
from ._bodies import GROUND, AbstractBody, check_nonnegative
from ._coordinates import ANGULAR_VELOCITY, QUATERNION
from ._tree_motion import Element, TreeLayout


class Order(NamedTuple):
    """A tree that hangs together."""

    layout: TreeLayout  # elements and the frames of the bodies
    labels: tuple[str, ...]  # a name for each coordinate
    velocity_labels: tuple[str, ...]  # a name for each velocity, states of first order included
    slides: tuple[str, ...]  # the labels of coordinates that are displacements
    carrying: tuple[int, ...]  # the number of the joint that carries each body
    parents: tuple[int, ...]  # the number of the body that carries each body; -1 for the ground


def _find_cycle(joints: Sequence[AbstractJoint], closing: AbstractJoint) -> list[str]:
    """The names of the joints on the way between the two bodies of one that is yet to be added, and its own."""
    ways = {closing.parent: []}
    while closing.child not in ways:
        for joint in joints:
            for a, b in ((joint.parent, joint.child), (joint.child, joint.parent)):
                if a in ways and b not in ways:
                    ways[b] = [*ways[a], joint.name]
    return [*ways[closing.child], closing.name]


def _require_tree(bodies: Sequence[AbstractBody], joints: Sequence[AbstractJoint]) -> None:
    """Raises `InputError` where joints form a cycle, leave a body without a way to the ground, or point to it."""
    group = {name: name for name in (GROUND, *(body.name for body in bodies))}
    for i, joint in enumerate(joints):
        a, b = group[joint.parent], group[joint.child]
        if a == b:
            names = ", ".join(f"'{name}'" for name in _find_cycle(joints[:i], joint))
            raise InputError(
                f"joints {names} form a cycle, and a tree has none: put one of them, such as '{joint.name}', "
                f"into `loops`."
            )
        group = {name: a if root == b else root for name, root in group.items()}
    for name, root in group.items():
        if root != group[GROUND]:
            raise InputError(
                f"nothing joins body '{name}' to the ground; where it moves freely add "
                f"Free('free', '{GROUND}', '{name}', point)."
            )
    carrying = {}
    for joint in joints:
        if joint.child == GROUND:
            raise InputError(
                f"joints of a tree lead away from the ground: exchange parent and child of joint '{joint.name}'."
            )
        if joint.child in carrying:
            raise InputError(
                f"joints of a tree lead away from the ground, but '{carrying[joint.child]}' and '{joint.name}' both "
                f"lead to '{joint.child}': exchange parent and child of the one that leads on from there."
            )
        carrying[joint.child] = joint.name


def _name_freedoms(joint: AbstractJoint, parts: Sequence[Freedom], of_ball: Sequence[str]) -> list[str]:
    """The names of what a joint leaves free, with several for each ball."""
    names = []
    for part in parts:
        stem = part.label if part.named else joint.name
        if part.kind == "ball":
            names += [f"{stem} {x}" for x in of_ball]
        else:
            names.append(stem if part.named or len(parts) == 1 else f"{stem} {part.label}")
    return names


def _is_axis(direction: Array) -> bool:
    """Whether a direction is known to be that of an axis of coordinates, or none."""
    return not isinstance(direction, Tracer) and set(np.abs(np.asarray(direction)).tolist()) <= {0.0, 1.0}


def order_tree(
    bodies: Sequence[AbstractBody], joints: Sequence[AbstractJoint], states: Sequence[str] = ()
) -> Order:
    """The tree that joints make of bodies; coordinates are in the order of the joints, states behind their velocities."""
    _require_tree(bodies, joints)
    number = {body.name: i for i, body in enumerate(bodies)}
    free = [joint.freedoms(bodies[number[joint.child]]) for joint in joints]
    labels, velocity_labels = (
        tuple(
            label
            for joint, parts in zip(joints, free, strict=True)
            for label in _name_freedoms(joint, parts, ball)
        )
        for ball in (QUATERNION, ANGULAR_VELOCITY)
    )
    slides = tuple(
        label
        for joint, parts in zip(joints, free, strict=True)
        for label, part in zip(_name_freedoms(joint, parts, ("",)), parts, strict=True)
        if part.slides
    )
    if not labels:
        raise InputError("no joint of the tree leaves any freedom, so nothing can move.")

    q, v, starts = 0, 0, []
    for parts in free:
        starts.append((q, v))
        q, v = q + sum(part.nq for part in parts), v + sum(part.nv for part in parts)

    elements, frames = [], {GROUND: 0}
    while len(frames) <= len(bodies):
        for joint, parts, (q, v) in zip(joints, free, starts, strict=True):
            if joint.parent not in frames or joint.child in frames:
                continue
            frame = frames[joint.parent]
            for part in parts:
                elements.append(Element(part.kind, frame, q, v))
                frame, q, v = len(elements), q + part.nq, v + part.nv
            frames[joint.child] = frame
    by_child = {joint.child: i for i, joint in enumerate(joints)}
    carrying = tuple(by_child[body.name] for body in bodies)
    parents = tuple(number.get(joints[i].parent, -1) for i in carrying)
    turned = [row for parts in free for part in parts for row in part.angular]
    several = all(map(_is_axis, turned)) and np.any(np.asarray(turned), axis=0).sum() > 1
    layout = TreeLayout(
        tuple(elements), tuple(frames[body.name] for body in bodies), len(states), bool(several)
    )
    return Order(layout, labels, (*velocity_labels, *states), slides, carrying, parents)


def check_armature(given: Any, labels: tuple[str, ...], states: int) -> Float[Array, " n"]:
    """One entry for each velocity, zero for the states, which are the last ones."""
    labels = labels[: len(labels) - states]
    if isinstance(given, Mapping):
        require_known("velocity in armature:", labels, *given)
        known = {name: check_nonnegative(f"the armature of '{name}'", x) for name, x in given.items()}
        xp = module_for(*known.values())
        values = xp.stack([xp.asarray(known.get(name, 0.0), float) for name in labels])
    else:
        values = check_nonnegative("armature", given, (len(labels),))
    return as_jax(module_for(values).pad(values, (0, states)) if states else values)
