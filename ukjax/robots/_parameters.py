"""The numbers of a robot by the file's names, and the robot with others: masses, places, dampers and the like.

All of a body is told in its own axes, those that the file gives it. What is on a body keeps its place there: a longer
link moves all behind it.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._misc._arguments import fails, real_array
from .._misc._errors import InputError, require_known
from .._misc._types import Numbers
from .._system._constraint import DryFriction
from ..mechanisms import (
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


class _Number(NamedTuple):
    """A number of a robot by where its tree has it."""

    where: Callable[[TreeSystem], Any]  # an array of the tree, or several
    told: Callable[[Any], Array]  # what a file says of what is there
    put: Callable[[Any, Array], Any]  # what is to be there, of what there was and another number


def _entries(where: Callable[[TreeSystem], Any], rows: Sequence[int], *column: int) -> _Number:
    """The entries of an array in some rows, which are all the same."""
    return _Number(
        where, lambda x: x[rows[0], *column], lambda old, x: old.at[(np.array(rows), *column)].set(x)
    )


class _Kind(NamedTuple):
    """A kind of parameter: numbers of the tree, of limits, frictions and contacts, or of both."""

    numbers: Callable[[TreeSystem, Axes], dict[str, _Number]] = lambda tree, axes: {}
    # `complete`: the tree with arrays that `numbers` needs and it may lack, for some names.
    complete: Callable[[TreeSystem, Collection[str]], TreeSystem] = lambda tree, names: tree
    # `of_contact`: the number of a contact, if it has one; `with_number`: the contact with another.
    of_contact: Callable[[Any, Axes], Array | None] | None = None
    with_number: Callable[[Any, Axes, Array], Any] | None = None

    def known(self, tree: TreeSystem, axes: Axes) -> Values:
        """What it is of a tree, by name."""
        contacts = tree.mechanism.contacts if self.of_contact else ()
        told = ((x.name, self.of_contact(x, axes)) for x in contacts)  # pyright: ignore[reportOptionalCall]
        whole = self.complete(tree, _velocities(tree))
        return {name: x for name, x in told if x is not None} | {
            name: x.told(x.where(whole)) for name, x in self.numbers(whole, axes).items()
        }

    def put(self, tree: TreeSystem, axes: Axes, values: Values) -> TreeSystem:
        """The tree with others."""
        tree = self.complete(tree, values)
        for name, number in self.numbers(tree, axes).items():
            if name in values:
                tree = eqx.tree_at(number.where, tree, number.put(number.where(tree), values[name]))
        if not (self.of_contact and self.with_number):
            return tree
        contacts = list(tree.mechanism.contacts)
        for i, x in enumerate(contacts):
            if x.name in values and self.of_contact(x, axes) is not None:
                contacts[i] = self.with_number(x, axes, values[x.name])
        return with_contacts(tree, tuple(contacts))


# --- Bodies, and where they are


def _numbers_of(of: TreeSystem) -> dict[str, int]:
    return {body.name: i for i, body in enumerate(of.bodies)}


def _of_bodies(field: str, told: Callable[..., Array], put: Callable[..., Array]) -> _Kind:
    """A field of each body, by the origin and the axes of its frame in the file."""

    def number(i: int, frame: tuple[Array, Array]) -> _Number:
        where = lambda tree: getattr(tree.mechanism.bodies[i], field)
        return _Number(where, lambda x: told(*frame, x), lambda _, x: put(*frame, x))

    return _Kind(
        lambda tree, axes: {
            name: number(i, (axes.origins[name], axes.turns[name])) for name, i in _numbers_of(tree).items()
        }
    )


def _follow_weights(before: TreeSystem, tree: TreeSystem, names: Collection[str]) -> TreeSystem:
    """What compensates the weight of bodies follows their masses and centres."""
    old, new = before.mechanism.by_name, tree.mechanism.by_name
    for i, load in enumerate(tree.mechanism.loads):
        if not isinstance(load, GravityCompensation):
            continue
        forces, centres = load.forces, load.centres
        for k, name in enumerate(load.carriers):
            if name in names:
                forces = forces.at[k].multiply(new[name].mass / old[name].mass)
                centres = centres.at[k].add(new[name].centre - old[name].centre)
        other = dataclasses.replace(load, forces=forces, centres=centres)
        tree = eqx.tree_at(lambda x, i=i: x.mechanism.loads[i], tree, other)
        if (drives := actuators_of(tree)) is not None and drives.compensation is not None:
            at: Any = lambda x: actuators_of(x).compensation  # pyright: ignore[reportOptionalMemberAccess]
            tree = eqx.tree_at(at, tree, other)
    return tree


def _positions(tree: TreeSystem, axes: Axes) -> dict[str, _Number]:
    """Of bodies that move against their parents, but for those that move freely."""
    numbers = {}
    for joint in (tree.joints[i] for i in tree.order.carrying):
        i = _numbers_of(tree)[joint.child]
        if isinstance(joint, Free) or not joint.freedoms(tree.bodies[i]):
            continue
        turn, apart = axes.turns[joint.parent], axes.origins[joint.child] - axes.origins[joint.parent]
        told = lambda x, i=i, turn=turn, apart=apart: turn.T @ (apart + x[i])
        put = lambda old, x, i=i, turn=turn, apart=apart: old.at[i].set(turn @ x - apart)
        numbers[joint.child] = _Number(lambda tree: tree.mechanism.offsets, told, put)
    return numbers


def _with_offsets(tree: TreeSystem, names: Collection[str]) -> TreeSystem:
    none = jnp.zeros((len(tree.bodies), 3), tree.q0.dtype)
    known = tree.mechanism.offsets is not None
    is_none = lambda x: x is None
    return tree if known else eqx.tree_at(lambda x: x.mechanism.offsets, tree, none, is_leaf=is_none)


def _anchors(tree: TreeSystem, axes: Axes) -> dict[str, _Number]:
    numbers = {}
    for i, joint in enumerate(tree.joints):
        if isinstance(joint, Connect):
            frames = [(axes.origins[x], axes.turns[x]) for x in (joint.parent, joint.child)]
            told = lambda points, frames=frames: jnp.stack(
                [R.T @ (x - origin) for (origin, R), x in zip(frames, points, strict=True)]
            )
            put = lambda _, given, frames=frames: tuple(
                origin + R @ x for (origin, R), x in zip(frames, given, strict=True)
            )
            of_ends = lambda tree, i=i: (
                tree.mechanism.joints[i].parent_point,
                tree.mechanism.joints[i].point,
            )
            numbers[joint.name] = _Number(of_ends, told, put)
    return numbers


# --- Joints


def _velocities(tree: TreeSystem) -> dict[str, range]:
    places, v = {}, 0
    for joint, _ in zip(tree.joints, tree.bodies, strict=False):
        for part in joint.parts if isinstance(joint, SeveralJoints) else (joint,):
            n = sum(x.nv for x in part.freedoms(tree.bodies[_numbers_of(tree)[joint.child]]))
            places |= {part.name: range(v, v + n)} if n else {}
            v += n
    return places


def _of_load(kind: type, field: str, velocities: Callable[[Any], tuple[int, ...]]) -> Any:
    """The linear coefficients of joints in a load on coordinates, by the velocities it is on."""

    def numbers(tree: TreeSystem, axes: Axes) -> dict[str, _Number]:
        found = {}
        for i, load in enumerate(tree.on_coordinates):
            own = velocities(load) if isinstance(load, kind) else ()
            where = lambda tree, i=i: getattr(tree.on_coordinates[i], field)
            for name, v in _velocities(tree).items():
                if v[0] in own:
                    found[name] = _entries(where, [own.index(k) for k in v if k in own], 0)
        return found

    return numbers


def _with_dampers(tree: TreeSystem, names: Collection[str]) -> TreeSystem:
    """The tree with a damper of each velocity of some joints, by default of zero."""
    loads = tree.on_coordinates
    i = next((i for i, x in enumerate(loads) if isinstance(x, JointDamping)), len(loads))
    none = JointDamping(damping=jnp.zeros((0, 3), tree.q0.dtype), places=(), conversion=None)
    old: Any = loads[i] if i < len(loads) else none
    more = [k for name in names for k in _velocities(tree)[name] if k not in old.places]
    damping = jnp.pad(old.damping, ((0, len(more)), (0, 0)))
    new = JointDamping(damping=damping, places=(*old.places, *more), conversion=old.conversion)
    return dataclasses.replace(tree, on_coordinates=(*loads[:i], new, *loads[i + 1 :]))


def _armatures(tree: TreeSystem, axes: Axes) -> dict[str, _Number]:
    return {name: _entries(lambda tree: tree.armature, v) for name, v in _velocities(tree).items()}


def _with_armature(tree: TreeSystem, names: Collection[str]) -> TreeSystem:
    none = jnp.zeros(len(tree.velocity_labels), tree.q0.dtype)
    return dataclasses.replace(tree, armature=none if tree.armature is None else tree.armature)


def _losses(tree: TreeSystem, axes: Axes) -> dict[str, _Number]:
    numbers = {}
    for i, x in enumerate(tree.further):
        if isinstance(x, DryFriction) and isinstance(x.rate, JointRates):
            places = x.rate.places
            for name, v in _velocities(tree).items():
                if own := [row for row, k in enumerate(places) if k in v]:
                    where: Any = lambda tree, i=i: tree.further[i].limit
                    numbers[name] = _entries(where, own)
    return numbers


# --- Limits, frictions and contacts


def _of_contacts(kinds: tuple[type, ...], field: str) -> dict[str, Any]:
    """A number of contacts, or of these and of stops."""
    return {
        "of_contact": lambda x, axes: getattr(x, field) if isinstance(x, kinds) else None,
        "with_number": lambda x, axes, value: eqx.tree_at(lambda x: getattr(x, field), x, value),
    }


def _range(x: Any, axes: Axes) -> Array | None:
    if not isinstance(x, Limit):
        return None
    ends = (-jnp.inf if x.lower is None else x.lower, jnp.inf if x.upper is None else x.upper)
    return jnp.stack([jnp.asarray(end, x.restitution.dtype) for end in ends]) + axes.starts.get(x.name, 0.0)


def _with_range(x: Limit, axes: Axes, value: Array) -> Limit:
    given = value - axes.starts.get(x.name, 0.0)
    ends = (None if old is None else new for old, new in zip((x.lower, x.upper), given, strict=True))
    of = x.joint if x.length is None else x.length
    return Limit(of, *ends, restitution=x.restitution, impact=x.impact, name=x.name)


# --- Actuators


def _drives(tree: TreeSystem, axes: Axes) -> dict[str, int]:
    """The place of each actuator in their load."""
    load = actuators_of(tree)
    return {} if load is None else {axes.actuators[k]: n for n, k in enumerate(load.which)}


def _of_drives(field: str, curves: str) -> _Kind:
    """Three numbers of each actuator, but of those that have curves of muscles or controllers instead."""

    def numbers(tree: TreeSystem, axes: Axes) -> dict[str, _Number]:
        if (drives := actuators_of(tree)) is None:
            return {}
        controlled = (x.place + k for x in drives.laws.controllers for k in range(x.width))
        others = {*controlled, *getattr(drives.laws, curves)}
        where: Any = lambda tree: getattr(actuators_of(tree).laws, field)  # pyright: ignore[reportOptionalMemberAccess]
        return {name: _entries(where, [n]) for name, n in _drives(tree, axes).items() if n not in others}

    return _Kind(numbers)


def _gears(tree: TreeSystem, axes: Axes) -> dict[str, _Number]:
    load, numbers, of = actuators_of(tree), {}, cast("Any", actuators_of)
    if load is None:
        return {}
    for name, n in _drives(tree, axes).items():
        if n in load.geared:
            where = lambda x: (of(x).lengths.coefficients, of(x).lengths.reference, of(x).gear)

            def put(old: tuple[Array, ...], x: Array, n: int = n) -> tuple[Array, ...]:
                share = x / old[2][n]
                return old[0].at[n].multiply(share), old[1].at[n].multiply(share), old[2].at[n].set(x)

            numbers[name] = _Number(where, lambda x, n=n: x[2][n], put)
        elif (k := n - len(load.lengths)) >= 0 and isinstance(
            load.transmissions[k], PathTransmission | Crank
        ):
            gear = lambda x, k=k: of(x).transmissions[k].gear
            numbers[name] = _Number(gear, lambda x: x, lambda _, x: x)
    return numbers


_KINDS = {
    "mass": _of_bodies("mass", lambda _, R, x: x, lambda _, R, x: x),
    "centre": _of_bodies("centre", lambda o, R, x: R.T @ (x - o), lambda o, R, x: o + R @ x),
    "inertia": _of_bodies("inertia", lambda _, R, x: R.T @ x @ R, lambda _, R, x: R @ x @ R.T),
    "position": _Kind(_positions, _with_offsets),
    "anchor": _Kind(_anchors),
    "damping": _Kind(_of_load(JointDamping, "damping", lambda x: x.places), _with_dampers),
    "stiffness": _Kind(_of_load(JointSprings, "stiffness", lambda x: x.places[1])),
    "armature": _Kind(_armatures, _with_armature),
    # Whether a contact has friction is known when it is made.
    "friction": _Kind(
        of_contact=lambda x, axes: x.friction if isinstance(x, Contact) else None,
        with_number=lambda x, axes, value: x.with_friction(value),
    ),
    "restitution": _Kind(**_of_contacts((Contact, Limit), "restitution")),
    "frictionloss": _Kind(_losses, **_of_contacts((JointFriction,), "limit")),
    "limit": _Kind(of_contact=_range, with_number=_with_range),
    "gain": _of_drives("gain", "pulls"),
    "bias": _of_drives("bias", "resists"),
    "gear": _Kind(_gears),
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
    before = tree
    for kind, given in changes.items():
        require_known("parameter", _KINDS, kind)
        if not isinstance(given, Mapping):
            raise InputError(f"{kind} must map names to values, such as {{'upper': 1.0}}, got {given!r}.")
        known = _KINDS[kind].known(tree, axes)
        values = {name: _check_number(kind, name, x, known) for name, x in given.items()}
        tree = _KINDS[kind].put(tree, axes, values) if values else tree
    carried = {name for kind in ("mass", "centre") for name in changes.get(kind, ())}
    tree = _follow_weights(before, tree, carried) if carried else tree
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
