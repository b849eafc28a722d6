"""The numbers of a robot by the file's names, and the robot with others: masses, places, dampers and the like.

All of a body is told in its own axes, those that the file gives it. What is on a body keeps its place there: a longer
link moves all behind it.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._misc._arguments import fails, real_array
from .._misc._errors import InputError, require_known
from .._misc._types import Numbers
from .._system._constraint import DryFriction
from ..mechanisms import (
    AbstractCoordinateLoad,
    AbstractJoint,
    Body,
    Connect,
    Contact,
    Free,
    JointFriction,
    Limit,
    TreeSystem,
)
from ..mechanisms._bodies import check_array, check_nonnegative, check_positive_scalar
from ._actuators import actuators_of
from ._bodies import SeveralJoints
from ._clear import with_contacts
from ._limits import JointRates
from ._passive import GravityCompensation, JointDamping, JointSprings
from ._transmissions import Crank, PathTransmission

Values = dict[str, Array]


class Axes(NamedTuple):
    """Of the tree's bodies and the ground, in the reference posture, by name."""

    origins: dict[str, Array]  # of their frames in the file [m] (3,)
    turns: dict[str, Array]  # those frames' axes as columns (3, 3)
    starts: dict[str, Array]  # of coordinates of joints, the file's there [rad], [m]
    actuators: tuple[str, ...]  # their names


class _Kind(NamedTuple):
    """A kind of parameter."""

    known: Callable[[TreeSystem, Axes], Values]  # what it is of a tree, by name
    put: Callable[[TreeSystem, Axes, Values], TreeSystem]  # the tree with others


def _numbers(of: TreeSystem) -> dict[str, int]:
    return {body.name: i for i, body in enumerate(of.bodies)}


def _make_body_kind(
    field: str, seen: Callable[[Body, Axes], Array], made: Callable[[Body, Axes, Array], Array]
) -> _Kind:
    """A number of each body, which `seen` tells from a field and `made` turns into it."""

    def known(tree: TreeSystem, axes: Axes) -> Values:
        return {body.name: seen(body, axes) for body in tree.bodies}  # pyright: ignore[reportArgumentType]

    def put(tree: TreeSystem, axes: Axes, values: Values) -> TreeSystem:
        places = [_numbers(tree)[name] for name in values]
        bodies: Any = tree.bodies
        made_of = [made(bodies[i], axes, x) for i, x in zip(places, values.values(), strict=True)]
        tree = _update_compensation(
            tree, {n: (bodies[i], m) for n, i, m in zip(values, places, made_of, strict=True)}, field
        )
        return eqx.tree_at(lambda x: [getattr(x.mechanism.bodies[i], field) for i in places], tree, made_of)

    return _Kind(known, put)


def _update_compensation(
    tree: TreeSystem, changed: Mapping[str, tuple[Body, Array]], field: str
) -> TreeSystem:
    """What compensates the weight of bodies follows their masses and centres."""
    for i, load in enumerate(tree.mechanism.loads):
        if not isinstance(load, GravityCompensation):
            continue
        forces, centres = list(load.forces), list(load.centres)
        for k, name in enumerate(load.carriers):
            if name in changed and field == "mass":
                forces[k] = forces[k] * (changed[name][1] / changed[name][0].mass)
            elif name in changed and field == "centre":
                centres[k] = centres[k] + (changed[name][1] - changed[name][0].centre)
        other = dataclasses.replace(load, forces=jnp.stack(forces), centres=jnp.stack(centres))
        tree = eqx.tree_at(lambda x, i=i: x.mechanism.loads[i], tree, other)
        if (drives := actuators_of(tree)) is not None and drives.compensation is not None:
            at: Any = lambda x: actuators_of(x).compensation  # pyright: ignore[reportOptionalMemberAccess]
            tree = eqx.tree_at(at, tree, other)
    return tree


def _find_carrying_joints(tree: TreeSystem) -> dict[str, AbstractJoint]:
    """The joint that carries each body that moves against its parent, but for those that move freely."""
    carrying = {tree.joints[i].child: tree.joints[i] for i in tree.order.carrying}
    free = lambda x: isinstance(x, Free) or not x.freedoms(tree.bodies[_numbers(tree)[x.child]])
    return {name: joint for name, joint in carrying.items() if not free(joint)}


def _positions(tree: TreeSystem, axes: Axes) -> Values:
    offsets, positions = tree.mechanism.offsets, {}
    for name, joint in _find_carrying_joints(tree).items():
        apart = axes.origins[name] - axes.origins[joint.parent]
        more = 0.0 if offsets is None else offsets[_numbers(tree)[name]]
        positions[name] = axes.turns[joint.parent].T @ (apart + more)
    return positions


def _set_positions(tree: TreeSystem, axes: Axes, values: Values) -> TreeSystem:
    offsets, joints = tree.mechanism.offsets, _find_carrying_joints(tree)
    offsets_of_bodies = jnp.zeros((len(tree.bodies), 3), tree.q0.dtype) if offsets is None else offsets
    for name, x in values.items():
        apart = axes.origins[name] - axes.origins[joints[name].parent]
        offsets_of_bodies = offsets_of_bodies.at[_numbers(tree)[name]].set(
            axes.turns[joints[name].parent] @ x - apart
        )
    return eqx.tree_at(lambda x: x.mechanism.offsets, tree, offsets_of_bodies, is_leaf=lambda x: x is None)


def _connects(tree: TreeSystem) -> dict[str, tuple[int, Connect]]:
    return {x.name: (i, x) for i, x in enumerate(tree.joints) if isinstance(x, Connect)}


def _anchors(tree: TreeSystem, axes: Axes) -> Values:
    seen = lambda body, x: axes.turns[body].T @ (x - axes.origins[body])
    return {
        name: jnp.stack([seen(x.parent, x.parent_point), seen(x.child, x.point)])
        for name, (_, x) in _connects(tree).items()
    }


def _set_anchors(tree: TreeSystem, axes: Axes, values: Values) -> TreeSystem:
    for name, (first, second) in values.items():
        i, old = _connects(tree)[name]
        made = lambda body, x: axes.origins[body] + axes.turns[body] @ x
        points = (made(old.parent, first), made(old.child, second))
        at = lambda x, i=i: (x.mechanism.joints[i].parent_point, x.mechanism.joints[i].point)
        tree = eqx.tree_at(at, tree, points)
    return tree


def _velocities(tree: TreeSystem) -> dict[str, range]:
    """The velocities of each joint of the file."""
    places, v = {}, 0
    for joint, _ in zip(tree.joints, tree.bodies, strict=False):
        for part in joint.parts if isinstance(joint, SeveralJoints) else (joint,):
            n = sum(x.nv for x in part.freedoms(tree.bodies[_numbers(tree)[joint.child]]))
            places |= {part.name: range(v, v + n)} if n else {}
            v += n
    return places


def _load(tree: TreeSystem, kind: type) -> tuple[int, Any] | None:
    return next(((i, x) for i, x in enumerate(tree.on_coordinates) if isinstance(x, kind)), None)


def _with_load(tree: TreeSystem, i: int, load: AbstractCoordinateLoad) -> TreeSystem:
    loads = (*tree.on_coordinates[:i], load, *tree.on_coordinates[i + 1 :])
    return dataclasses.replace(tree, on_coordinates=loads)


def _dampings(tree: TreeSystem, _: Axes) -> Values:
    load = (_load(tree, JointDamping) or (0, None))[1]
    own = {} if load is None else dict(zip(load.places, load.damping[:, 0], strict=True))
    return {name: own.get(v[0], jnp.zeros((), tree.q0.dtype)) for name, v in _velocities(tree).items()}


def _set_dampings(tree: TreeSystem, _: Axes, values: Values) -> TreeSystem:
    places = [k for name in values for k in _velocities(tree)[name]]
    i, old = _load(tree, JointDamping) or (len(tree.on_coordinates), None)
    if old is None:
        old = JointDamping(damping=jnp.zeros((0, 3), tree.q0.dtype), places=(), conversion=None)
    more = [k for k in places if k not in old.places]
    damping = jnp.concatenate([old.damping, jnp.zeros((len(more), 3), old.damping.dtype)])
    every = (*old.places, *more)
    for name, x in values.items():
        for k in _velocities(tree)[name]:
            damping = damping.at[every.index(k), 0].set(x)
    return _with_load(tree, i, JointDamping(damping=damping, places=every, conversion=old.conversion))


def _stiffnesses(tree: TreeSystem, _: Axes) -> Values:
    load = (_load(tree, JointSprings) or (0, None))[1]
    if load is None:
        return {}
    own = dict(zip(load.places[1], load.stiffness[:, 0], strict=True))
    return {name: own[v[0]] for name, v in _velocities(tree).items() if v[0] in own}


def _set_stiffnesses(tree: TreeSystem, _: Axes, values: Values) -> TreeSystem:
    i, old = _load(tree, JointSprings)  # pyright: ignore[reportGeneralTypeIssues]
    stiffness = old.stiffness
    for name, x in values.items():
        stiffness = stiffness.at[old.places[1].index(_velocities(tree)[name][0]), 0].set(x)
    return _with_load(tree, i, dataclasses.replace(old, stiffness=stiffness))


def _rotors(tree: TreeSystem) -> Array:
    return jnp.zeros(len(tree.velocity_labels), tree.q0.dtype) if tree.armature is None else tree.armature


def _armatures(tree: TreeSystem, _: Axes) -> Values:
    return {name: _rotors(tree)[v[0]] for name, v in _velocities(tree).items()}


def _set_armatures(tree: TreeSystem, _: Axes, values: Values) -> TreeSystem:
    rotors = _rotors(tree)
    for name, x in values.items():
        for k in _velocities(tree)[name]:
            rotors = rotors.at[k].set(x)
    return dataclasses.replace(tree, armature=rotors)


def _make_contact_kind(kinds: tuple[type, ...], field: str) -> _Kind:
    """A number of contacts, or of these and of stops, by their names."""

    def known(tree: TreeSystem, _: Axes) -> Values:
        return {x.name: getattr(x, field) for x in tree.mechanism.contacts if isinstance(x, kinds)}

    def put(tree: TreeSystem, _: Axes, values: Values) -> TreeSystem:
        def changed(x: Any) -> Any:
            if not (isinstance(x, kinds) and x.name in values):
                return x
            if isinstance(x, Contact) and field == "friction":  # whether it has any is known when it is made
                return x.with_friction(values[x.name])
            return eqx.tree_at(lambda x: getattr(x, field), x, values[x.name])

        return with_contacts(tree, tuple(map(changed, tree.mechanism.contacts)))

    return _Kind(known, put)


def _limits(tree: TreeSystem, axes: Axes) -> Values:
    zero = jnp.zeros((), tree.q0.dtype)
    ranges = {}
    for x in tree.mechanism.contacts:
        if isinstance(x, Limit):
            ends = (-jnp.inf if x.lower is None else x.lower, jnp.inf if x.upper is None else x.upper)
            ranges[x.name] = jnp.stack([zero + end for end in ends]) + axes.starts.get(x.name, zero)
    return ranges


def _set_limits(tree: TreeSystem, axes: Axes, values: Values) -> TreeSystem:
    def changed(x: Any) -> Any:
        if not (isinstance(x, Limit) and x.name in values):
            return x
        lower, upper = values[x.name] - axes.starts.get(x.name, 0.0)
        given = (None if x.lower is None else lower, None if x.upper is None else upper)
        return Limit(
            x.joint if x.length is None else x.length,
            *given,
            restitution=x.restitution,
            impact=x.impact,
            name=x.name,
        )

    return with_contacts(tree, tuple(map(changed, tree.mechanism.contacts)))


def _joint_friction(tree: TreeSystem) -> tuple[int, DryFriction] | None:
    return next(
        (
            (i, x)
            for i, x in enumerate(tree.further)
            if isinstance(x, DryFriction) and isinstance(x.rate, JointRates)
        ),
        None,
    )


def _losses(tree: TreeSystem, _: Axes) -> Values:
    losses = {x.name: x.limit for x in tree.mechanism.contacts if isinstance(x, JointFriction)}
    if own := _joint_friction(tree):
        places = own[1].rate.places  # pyright: ignore[reportFunctionMemberAccess]
        of_joints = {k: name for name, v in _velocities(tree).items() for k in v}
        losses |= {of_joints[k]: x for k, x in reversed(list(zip(places, own[1].limit, strict=True)))}
    return losses


def _set_losses(tree: TreeSystem, axes: Axes, values: Values) -> TreeSystem:
    if own := _joint_friction(tree):
        i, old = own
        of_joints = {k: name for name, v in _velocities(tree).items() for k in v}
        places = old.rate.places  # pyright: ignore[reportFunctionMemberAccess]
        given = (values.get(of_joints[k]) for k in places)
        limit = jnp.stack([old if new is None else new for old, new in zip(old.limit, given, strict=True)])
        tree = eqx.tree_at(lambda x: x.further[i].limit, tree, limit)
    return _make_contact_kind((JointFriction,), "limit").put(tree, axes, values)


def _drives(tree: TreeSystem, axes: Axes) -> dict[str, int]:
    """The place of each actuator in their load."""
    load = actuators_of(tree)
    return {} if load is None else {axes.actuators[k]: n for n, k in enumerate(load.which)}


def _make_drive_kind(field: str, curves: str) -> _Kind:
    """Three numbers of each actuator, but of those that have curves of muscles or controllers instead."""

    def known(tree: TreeSystem, axes: Axes) -> Values:
        if (drives := actuators_of(tree)) is None:
            return {}
        controlled = (x.place + k for x in drives.laws.controllers for k in range(x.width))
        others = {*controlled, *getattr(drives.laws, curves)}
        coefficients = getattr(drives.laws, field)
        return {name: coefficients[n] for name, n in _drives(tree, axes).items() if n not in others}

    def put(tree: TreeSystem, axes: Axes, values: Values) -> TreeSystem:
        own: Any = actuators_of
        of = lambda tree: getattr(own(tree).laws, field)
        coefficients = of(tree)
        for name, x in values.items():
            coefficients = coefficients.at[_drives(tree, axes)[name]].set(x)
        return eqx.tree_at(of, tree, coefficients)

    return _Kind(known, put)


def _gears(tree: TreeSystem, axes: Axes) -> Values:
    load: Any = actuators_of(tree)
    gears = {}
    for name, n in _drives(tree, axes).items():
        if n < len(load.lengths):
            gears |= {name: load.gear[n]} if n in load.geared else {}
        elif isinstance(own := load.transmissions[n - len(load.lengths)], PathTransmission | Crank):
            gears[name] = own.gear
    return gears


def _set_gears(tree: TreeSystem, axes: Axes, values: Values) -> TreeSystem:
    of: Any = actuators_of
    for name, x in values.items():
        n, load = _drives(tree, axes)[name], of(tree)
        if (k := n - len(load.lengths)) < 0:
            lengths, share = load.lengths, x / load.gear[n]
            where = lambda y: (of(y).lengths.coefficients, of(y).lengths.reference, of(y).gear)
            new = (
                lengths.coefficients.at[n].multiply(share),
                lengths.reference.at[n].multiply(share),
                load.gear.at[n].set(x),
            )
            tree = eqx.tree_at(where, tree, new)
        else:
            tree = eqx.tree_at(lambda y, k=k: of(y).transmissions[k].gear, tree, x)
    return tree


def _rotate_inertia(body: Body, axes: Axes, x: Array) -> Array:
    R = axes.turns[body.name]
    return R @ x @ R.T


_KINDS = {
    "mass": _make_body_kind("mass", lambda body, _: body.mass, lambda body, _, x: x),
    "centre": _make_body_kind(
        "centre",
        lambda body, axes: axes.turns[body.name].T @ (body.centre - axes.origins[body.name]),
        lambda body, axes, x: axes.origins[body.name] + axes.turns[body.name] @ x,
    ),
    "inertia": _make_body_kind(
        "inertia",
        lambda body, axes: axes.turns[body.name].T @ body.inertia @ axes.turns[body.name],
        _rotate_inertia,
    ),
    "position": _Kind(_positions, _set_positions),
    "anchor": _Kind(_anchors, _set_anchors),
    "damping": _Kind(_dampings, _set_dampings),
    "stiffness": _Kind(_stiffnesses, _set_stiffnesses),
    "armature": _Kind(_armatures, _set_armatures),
    "friction": _make_contact_kind((Contact,), "friction"),
    "restitution": _make_contact_kind((Contact, Limit), "restitution"),
    "frictionloss": _Kind(_losses, _set_losses),
    "limit": _Kind(_limits, _set_limits),
    "gain": _make_drive_kind("gain", "pulls"),
    "bias": _make_drive_kind("bias", "resists"),
    "gear": _Kind(_gears, _set_gears),
}
_POSITIVE, _NOT_NEGATIVE = ("mass",), ("armature", "friction", "frictionloss", "restitution")
_MOVES = ("position", "anchor")  # what opens closed loops


def parameters(tree: TreeSystem, axes: Axes) -> dict[str, Values]:
    """All that `with_parameters` takes, as it is."""
    return {kind: x.known(tree, axes) for kind, x in _KINDS.items()}


def with_parameters(
    tree: TreeSystem, axes: Axes, changes: Mapping[str, Mapping[str, Numbers]]
) -> tuple[TreeSystem, bool]:
    """A robot's tree with other numbers, and whether its loops may have opened."""
    for kind, given in changes.items():
        require_known("parameter", _KINDS, kind)
        if not isinstance(given, Mapping):
            raise InputError(f"{kind} must map names to values, such as {{'upper': 1.0}}, got {given!r}.")
        known = _KINDS[kind].known(tree, axes)
        values = {name: _check_number(kind, name, x, known) for name, x in given.items()}
        tree = _KINDS[kind].put(tree, axes, values) if values else tree
    return tree, any(changes.get(kind) for kind in _MOVES)


def _check_number(kind: str, name: str, value: Numbers, known: Values) -> Array:
    if not known:
        raise InputError(f"this robot has no {kind} to set.")
    require_known(f"name of a {kind}:", known, name)
    what = f"the {kind} of '{name}'"
    if kind in _POSITIVE:
        return check_positive_scalar(what, value)
    if kind == "restitution" and fails(lambda x: x <= 1, value):
        raise InputError(f"{what} must be at most 1, got {value}.")
    if kind == "limit":
        return _check_range(what, value, known[name])
    return (check_nonnegative if kind in _NOT_NEGATIVE else check_array)(what, value, known[name].shape)


def _check_range(what: str, value: Numbers, known: Array) -> Array:
    """A range, without an end where it has none."""
    array = real_array(what, value)
    if array.shape != (2,) or fails(lambda x: np.all((x == np.asarray(known)) | np.isfinite(x)), value):
        raise InputError(f"{what} must be (lower, upper) as finite as {known}, got {value}.")
    if fails(lambda x: x[0] < x[1], value):
        raise InputError(f"{what} must have lower < upper, got {value}.")
    return array
