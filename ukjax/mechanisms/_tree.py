"""Kinematic trees: bodies and joints in minimal coordinates, with loop-closing constraints on top."""

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._compiler import evaluate_known, find_dependence
from .._formula._members import Members
from .._misc._errors import InputError
from .._misc._types import Coordinates, Forces, MassMatrix, Numbers, Time, Velocities, as_jax
from .._system._constraint import AbstractConstraint, as_constraints
from .._system._system import TreeInertia
from ._abstract_joint import AbstractJoint, lift_to_space
from ._bodies import AbstractBody
from ._contact_places import TreePlaces
from ._contact_rows import require_no_contacts, require_positions
from ._contacts import AnyContact
from ._divide import (
    ConstraintOfPart,
    CoordinateLoadOfPart,
    Entries,
    TreeLoadOfPart,
    acts_on_its_own,
    divide_tree,
)
from ._loads import AbstractCoordinateLoad, AbstractLoad, AbstractTreeLoad, Gravity, Touched, TreeMotion
from ._mechanism import Mechanism, Placements, Twists, require_joints, require_loads, require_unique, sum_of
from ._mechanism_system import MechanismSystem
from ._placement import Twist
from ._tree_dynamics import compute_inertial_wrenches, generalized_force, sum_subtree_wrenches, tree_inertia
from ._tree_layout import Order, check_armature, order_tree
from ._tree_loops import loop_constraints, loop_wrenches
from ._tree_place import TreeAt, cast_arrays, twists_by_name
from ._visual import Visual


@final
class TreeSystem(MechanismSystem):
    """A kinematic tree in minimal coordinates; made by `tree`.

    Its coordinates are those of the joints, in their order; `labels` names them. Mass matrix and forces: Xu-Liu 2017,
    eqs. (12)-(31), the forces by Newton and Euler. Loops are constraints on top.

    - `mechanism`: its bodies, joints (the tree's first, then the loops) and loads.
    - `further`, `on_coordinates`: further constraints and loads, on the coordinates.
    - `on_tree`: loads that see the whole motion; their states of first order are velocities behind the others.
    - `armature`: what each velocity moves besides the bodies (n,), or None.
    - `order`: what hangs on what."""

    mechanism: Mechanism
    further: tuple[AbstractConstraint, ...]
    on_coordinates: tuple[AbstractCoordinateLoad, ...]
    on_tree: tuple[AbstractTreeLoad, ...]
    armature: Float[Array, "*parts n"] | None
    order: Order = eqx.field(static=True)
    in_joint_coordinates: ClassVar[bool] = True

    @property
    def loads(self) -> tuple[AbstractLoad | AbstractCoordinateLoad | AbstractTreeLoad, ...]:
        """The loads on bodies, then those on coordinates, then those that see the whole motion."""
        return (*self.mechanism.loads, *self.on_coordinates, *self.on_tree)

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the coordinates: the joint's, with more words where it has several."""
        return self.order.labels

    @property
    def velocity_labels(self) -> tuple[str, ...]:
        """The names of the velocities: as the coordinates', but `wx`, `wy`, `wz` of a ball; then those of the states."""
        return self.order.velocity_labels

    @property
    def state_labels(self) -> tuple[str, ...]:
        """The names of the states of first order."""
        return tuple(name for load in self.on_tree for name in load.states)

    @property
    def q0(self) -> Coordinates:
        """The coordinates of the reference posture: zero, and (1, 0, 0, 0) for a quaternion."""
        q0 = np.zeros(len(self.labels), self.mechanism.bodies[0].mass.dtype)
        q0[self.quaternions] = 1.0
        return as_jax(q0)

    @property
    def v0(self) -> Velocities:
        """Velocities zero."""
        return jnp.zeros(self.order.layout.nv, self.mechanism.bodies[0].mass.dtype)

    @property
    def blocks(self) -> tuple[tuple[int, ...], ...]:
        if self.further or any(load.inertia is not None for load in self.on_tree):
            return ()
        parts = divide_tree(self.mechanism, [x.bodies for x in self.loops], loaded=False)
        states = range(self.order.layout.nv - self.order.layout.states, self.order.layout.nv)
        return (*(v for part in parts for v in part.members.v), *((k,) for k in states))

    def members(self) -> tuple[Members, ...]:
        m, q0, v0 = self.mechanism, self.q0, self.v0
        whole: list[Any] = [(x, range(0)) for x in (*self.further, *self.on_coordinates)]
        whole += [(x, range(v0.size)[places]) for x, places in self._loads_with_states(q0.dtype)]
        touched = [_find_touched(x, q0, v0) for x, _ in whole]
        if None in touched or not all(map(acts_on_its_own, m.loads)):
            return ()
        names = [self._touched_bodies(x) for x in touched if x is not None]
        parts = divide_tree(m, [x.bodies for x in (*self.loops, *m.loads)], loaded=True, single=names)
        if sum(len(part.members) for part in parts) == 1:
            return ()
        divided = []
        for part in parts:
            inside = {m.bodies[i].name for i in part.bodies[0]}
            own = [x for x, on in zip(whole, names, strict=True) if not inside.isdisjoint(on)]
            one, q, v = part.members.one, part.members.q, part.members.v
            v = [(*x, *(k for _, states in own for k in states)) for x in v]
            rotors = None if self.armature is None else self.armature[np.array(v if len(v) > 1 else v[0])]
            entries = Entries(q0, q[0], v[0], v0.size)
            constraints = tuple(
                ConstraintOfPart(x.name, x, entries) for x, _ in own if isinstance(x, AbstractConstraint)
            )
            loads = [x for x, _ in own if not isinstance(x, AbstractConstraint)]
            divided.append(
                Members(_make_part(one, part.order, constraints, loads, rotors, entries), q, tuple(v))
            )
        return tuple(divided)

    def _touched_bodies(self, touched: Touched) -> tuple[str, ...]:
        """The names of bodies that are touched, at least one."""
        by_name = {body.name: body for body in self.bodies}
        free = [(x.child, x.freedoms(by_name[x.child])) for x in self.joints[: len(by_name)]]
        moved = [[name for name, own in free for part in own for _ in range(n(part))] for n in _SIZES]
        numbers = touched.coordinates, touched.velocities
        names = {*touched.bodies, *(by[k] for by, ks in zip(moved, numbers, strict=True) for k in ks)}
        return tuple(x for x in by_name if x in names) or (self.bodies[0].name,)

    def _place_bodies(self, q: Coordinates) -> TreeAt:
        return TreeAt(self.mechanism, self.order.layout, q)

    def _locate_bodies(self, t: Time | float, q: Coordinates) -> tuple[Mechanism, Placements]:
        at = self._place_bodies(q)
        return at.mechanism, at.placements

    def _move_bodies(
        self, t: Time | float, q: Coordinates, v: Velocities
    ) -> tuple[Mechanism, Placements, Twists]:
        at = self._place_bodies(q)
        twists = at.rates(v).twist
        return at.mechanism, at.placements, twists_by_name(self.bodies, twists)

    @property
    def _has_own_kinematics(self) -> bool:
        return bool(self.state_labels) or len(self.labels) != self.order.layout.nv

    def kinematics(self, t: Time, q: Coordinates, v: Velocities) -> Coordinates:
        return self.order.layout.rate(q, v) if self._has_own_kinematics else v

    @evaluate_known
    def mass_matrix(self, t: Time, q: Coordinates) -> MassMatrix:
        """M = sum J_i^T diag(m_i, I_i) J_i (Xu-Liu 2017, eq. (24)), the armature on its diagonal, and what loads move."""
        M, moved = self._link_inertia(q, own=False).dense(), self._load_inertia(q.dtype)
        if moved is None:
            return M
        still = jnp.zeros(M.shape[0], q.dtype)
        J = jax.jacfwd(lambda v: self._load_inertia_rates(t, q, v))(still)
        return M + J.T @ (moved[:, None] * J)

    def tree_inertia(self, t: Time, q: Coordinates) -> TreeInertia | None:
        return (
            None
            if self._load_inertia(q.dtype) is not None
            else self._link_inertia(q, self.order.layout.aligned)
        )

    def _link_inertia(self, q: Coordinates, own: bool) -> TreeInertia:
        at = self._place_bodies(q)
        return tree_inertia(at.chains, at.posture, cast_arrays(self.armature, q.dtype), own)

    def _load_inertia(self, dtype: jnp.dtype) -> Float[Array, " k"] | None:
        """What the rates of loads move besides the bodies."""
        inertias = [load.inertia for load in cast_arrays(self.on_tree, dtype) if load.inertia is not None]
        return jnp.concatenate(inertias) if inertias else None

    def _load_inertia_rates(self, t: Time, q: Coordinates, v: Velocities) -> Float[Array, " k"]:
        own = self.motions(t, q, v)
        return jnp.concatenate([load.rate(motion) for load, motion in own if load.inertia is not None])

    @evaluate_known
    def force(self, t: Time, q: Coordinates, v: Velocities) -> Forces:
        """Q = sum J_i^T (loads - inertial forces at v' = 0), equal to Xu-Liu 2017, eqs. (28)-(31)."""
        return self._force(t, q, v)

    def _force(self, t: Time, q: Coordinates, v: Velocities, a: Velocities | None = None) -> Forces:
        """Q less M a, by default of a = 0."""
        at = self._place_bodies(q)
        twists = at.rates(v).twist
        loads, direct = self._load_wrenches_and_forces(at, t, q, v, twists, a)
        falls = self._free_fall(q.dtype)
        return generalized_force(at.chains, at.posture, loads, v, a, falls) + direct

    @evaluate_known
    def required_force(self, t: Time, q: Coordinates, v: Velocities, a: Velocities) -> Forces:
        """M a - Q, the force that an acceleration takes besides all loads, by Newton and Euler.

        **Arguments:**

        - `a`: the acceleration v' (n,).
        """
        needed = -self._force(t, q, v, a)
        armature, layout = cast_arrays(self.armature, q.dtype), self.order.layout
        needed = needed if armature is None else needed + armature * a
        return needed + jnp.where(np.arange(layout.nv) >= layout.nv - layout.states, a, 0)

    def _load_wrenches_and_forces(
        self, at: TreeAt, t: Time, q: Coordinates, v: Velocities, twists: Twist, a: Velocities | None = None
    ) -> tuple[Twist, Forces]:
        """What all loads but gravity come to: wrenches on the bodies, stacked, and forces on the velocities.

        Forces of inertia of what loads move are among them, at v' = a, by default zero.
        """
        wrenches, direct = self._body_load_wrenches(at, t, twists), self._coordinate_load_force(t, q, v)
        for i, (load, places, motion) in enumerate(self._motions(at, t, q, v, twists)):
            effort = load.effort(motion)
            if load.inertia is not None:
                rate = lambda q, v, i=i, load=load: load.rate(self.motions(t, q, v)[i][1])
                along = self.kinematics(t, q, v), jnp.zeros_like(v) if a is None else a
                effort = effort - load.inertia * jax.jvp(rate, (q, v), along)[1]
            wrench, own = _pull_back(self.bodies, load.rate, motion, twists, effort)
            wrenches, direct = jax.tree.map(jnp.add, wrenches, wrench), direct + own
            if load.states:
                direct = direct.at[places].add(load.state_rate(motion))
        return wrenches, direct

    def motions(self, t: Time, q: Coordinates, v: Velocities) -> list[tuple[AbstractTreeLoad, TreeMotion]]:
        """The loads that see the whole motion, and what each sees."""
        at = self._place_bodies(q)
        twists = at.rates(v).twist
        return [(load, motion) for load, _, motion in self._motions(at, t, q, v, twists)]

    def _loads_with_states(self, dtype: jnp.dtype) -> list[tuple[AbstractTreeLoad, slice]]:
        """The loads that see the whole motion, and where their states are in v."""
        loads, start = [], self.order.layout.nv - self.order.layout.states
        for load in cast_arrays(self.on_tree, dtype):
            loads.append((load, slice(start, start + len(load.states))))
            start += len(load.states)
        return loads

    def _motions(
        self, at: TreeAt, t: Time, q: Coordinates, v: Velocities, twists: Twist
    ) -> list[tuple[AbstractTreeLoad, slice, TreeMotion]]:
        seen, by_name, unknown = [], twists_by_name(self.bodies, twists), lambda *_: v
        for load, places in self._loads_with_states(q.dtype):
            motion = TreeMotion(t, q, v, at.placements, by_name, v[places], unknown)

            def generalized(rate: Any, effort: Any, motion: TreeMotion = motion) -> Forces:
                wrench, direct = _pull_back(self.bodies, rate, motion, twists, effort)
                return generalized_force(at.chains, at.posture, wrench, jnp.zeros_like(v)) + direct

            seen.append((load, places, motion._replace(generalized=generalized)))
        return seen

    def coordinate_force(self, t: Time, q: Coordinates, v: Velocities) -> Forces | None:
        """The generalized forces of the loads on coordinates, if there are any."""
        own = (load.coordinate_force(t, q, v, v[places]) for load, places in self._loads_with_states(q.dtype))
        forces = [x for x in own if x is not None]
        return (
            sum_of([self._coordinate_load_force(t, q, v), *forces]) if self.on_coordinates or forces else None
        )

    def _coordinate_load_force(self, t: Time, q: Coordinates, v: Velocities) -> Forces:
        loads = cast_arrays(self.on_coordinates, q.dtype)
        _, transposed = jax.vjp(lambda v: [load.rate(q, v) for load in loads], v)
        return transposed([load.effort(t, q, v) for load in loads])[0]

    def _further_energies(self, t: Time, q: Coordinates, v: Velocities) -> dict[str, Array]:
        energies = {}
        if self.armature is not None:
            energies["kinetic_armature"] = 0.5 * jnp.sum(cast_arrays(self.armature, v.dtype) * v**2)
        if (moved := self._load_inertia(q.dtype)) is not None:
            energies["kinetic_loads"] = 0.5 * jnp.sum(moved * self._load_inertia_rates(t, q, v) ** 2)
        potentials = {load.name: load.potential(q) for load in cast_arrays(self.on_coordinates, q.dtype)}
        return energies | {f"potential_{name}": x for name, x in potentials.items() if x is not None}

    def _body_load_wrenches(self, at: TreeAt, t: Time, twists: Twist) -> Twist:
        """The force at the centre of each body and the torque on it that all loads but gravity come to, stacked."""
        loads = at.mechanism.loads
        others = tuple(load for load in loads if not isinstance(load, Gravity))
        mechanism = (
            at.mechanism
            if len(others) == len(loads)
            else eqx.tree_at(lambda x: x.loads, at.mechanism, others)
        )
        _, transposed = jax.vjp(
            lambda x: mechanism.rates(at.placements, twists_by_name(self.bodies, x)), twists
        )
        return transposed(mechanism.efforts(t, at.placements, twists_by_name(self.bodies, twists)))[0]

    def _free_fall(self, dtype: jnp.dtype) -> Float[Array, "3"]:
        accelerations = [
            x.acceleration(self.mechanism.dimension, dtype)
            for x in self.mechanism.loads
            if isinstance(x, Gravity)
        ]
        return lift_to_space(sum_of([jnp.zeros(self.mechanism.dimension, dtype), *accelerations]))

    @property
    def places(self) -> TreePlaces:
        return TreePlaces(self.mechanism, self.order)

    @property
    def loops(self) -> tuple[AbstractJoint, ...]:
        """The joints that close loops."""
        return self.mechanism.joints[len(self.mechanism.bodies) :]

    @property
    def quaternions(self) -> list[int]:
        return [element.q for element in self.order.layout.elements if element.kind == "ball"]

    @property
    def _joint_constraints(self) -> tuple[AbstractConstraint, ...]:
        return tuple(loop_constraints(self.mechanism, self.order.layout))

    def joint_wrenches(
        self, t: Time, q: Coordinates, v: Velocities, a: Velocities, multipliers: Float[Array, " m"]
    ) -> Twists:
        """What each joint, loops included, does to its child: a force, and a torque about the child's centre of mass.

        By Newton and Euler: through the joint of a body goes what accelerates all bodies behind it, less what loads and
        loops do to them. Along a joint's own freedoms that is zero, but for what `further` constraints, the loads on
        coordinates and the armature ask of it.

        **Arguments:**

        - `a`: the acceleration v' (n,).
        - `multipliers`: lambda of the rows of `constraints` (m,).

        **Returns:** a `Twist` for each joint by name, in world axes: the torque in place of `omega` [N m], the force in
        place of `velocity` [N].
        """
        require_no_contacts(self.mechanism)
        at = self._place_bodies(q)
        rates = at.rates(v, a)
        twists, asked = rates.twist, compute_inertial_wrenches(at.chains, at.posture, rates)
        loops = loop_wrenches(at.mechanism, at.placements, t, twists, multipliers)
        weight = at.chains.mass[:, None] * self._free_fall(q.dtype)[None]
        asked = Twist(asked.omega, asked.velocity - weight)
        for given in (
            self._load_wrenches_and_forces(at, t, q, v, twists, a)[0],
            *(wrench for wrench, _ in loops.values()),
        ):
            asked = jax.tree.map(jnp.subtract, asked, given)
        carried = twists_by_name(self.bodies, sum_subtree_wrenches(self.order.parents, at.centres, asked))
        by_joint = {
            self.joints[i].name: carried[b.name]
            for i, b in zip(self.order.carrying, self.bodies, strict=True)
        }
        return by_joint | {name: wrench for name, (_, wrench) in loops.items()}


_SIZES = operator.attrgetter("nq"), operator.attrgetter("nv")


def _make_part(
    mechanism: Mechanism,
    own_order: Order,
    further: tuple[AbstractConstraint, ...],
    loads: Sequence[AbstractCoordinateLoad | AbstractTreeLoad],
    armature: Array | None,
    entries: Entries,
) -> TreeSystem:
    """A part of a tree, with further constraints on it and loads of the whole."""
    on_coordinates = tuple(
        CoordinateLoadOfPart(x.name, x, entries) for x in loads if isinstance(x, AbstractCoordinateLoad)
    )
    on_tree = tuple(TreeLoadOfPart(x.name, x, entries) for x in loads if isinstance(x, AbstractTreeLoad))
    states = [name for load in on_tree for name in load.states]
    if states:
        own_order = order_tree(mechanism.bodies, mechanism.joints[: len(mechanism.bodies)], states)
    return TreeSystem(mechanism, further, on_coordinates, on_tree, armature, own_order)  # pyright: ignore[reportCallIssue]


def _find_touched(x: Any, q: Coordinates, v: Velocities) -> Touched | None:
    """What a further constraint or a load acts on and depends on; None where that may be anything."""
    if isinstance(x, AbstractTreeLoad):
        return x.touches(q, v)
    if isinstance(x, AbstractCoordinateLoad):
        seen = find_dependence(
            lambda t, q, v: (x.rate(q, v), x.effort(t, q, v)), jnp.zeros((), q.dtype), q, v
        )
    elif isinstance(x, AbstractConstraint):
        rows = lambda t, q, v: (
            x.position_error(t, q),
            x.velocity_error(t, q, v),
            x.acceleration_rows(t, q, v),
        )
        seen = find_dependence(rows, jnp.zeros((), q.dtype), q, v)
    else:
        return None
    return None if seen is None else Touched(seen[1], seen[2])


def _pull_back(
    bodies: tuple[AbstractBody, ...], rate: Any, motion: TreeMotion, twists: Twist, effort: Any
) -> tuple[Twist, Forces]:
    """The wrenches on all bodies, stacked, and the forces on velocities that efforts come to."""
    of = lambda twists, v: rate(motion._replace(v=v, twists=twists_by_name(bodies, twists)))
    return jax.vjp(of, twists, motion.v)[1](effort)


def tree(
    bodies: Iterable[AbstractBody | Any],
    joints: Iterable[AbstractJoint] = (),
    loads: Iterable[AbstractLoad | AbstractCoordinateLoad | AbstractTreeLoad] = (),
    *,
    loops: Iterable[AbstractJoint] = (),
    constraints: tuple[AbstractConstraint, ...] | list[AbstractConstraint] = (),
    armature: Mapping[str, Any] | Numbers | None = None,
    name: str = "mechanism",
    visuals: Iterable[Visual] = (),
    contacts: Iterable[AnyContact] = (),
) -> TreeSystem:
    """A mechanism in minimal coordinates: a kinematic tree by product of exponentials, with loops as constraints.

    Every body is the child of one joint, and joints lead away from the ground:

        g(q) = e^(hat(xi_1) q_1) ... e^(hat(xi_i) q_i)                        (Xu-Liu 2017, eq. (15))

    with the joints' twists xi in the reference posture, where all q are zero. The coordinates are those of the joints
    in their order: an angle [rad] or a slide [m] of `Revolute` and `Prismatic`; angle, then slide of `Cylindrical`; the
    angle of `Screw`; the angles about the parent's and the child's axis of `Universal`; none of `Fixed`. `Spherical` has
    a quaternion (scalar first, child against parent) whose velocities are the relative angular velocity in the child's
    axes [rad/s]; so nothing is singular in any posture, and q has more entries than v. `Free` is a displacement and, in
    space, a quaternion.

    **Arguments:**

    - `bodies`, `joints`: all in the plane or all in space; one joint for each body, any of those above. The first of the
      bodies may be a tree or a robot from a file: it comes with all it has, its joints first. Its bodies have names for
      the joints of others, and its loads on all bodies, such as gravity, act on the others too.
    - `loads`: loads on the bodies, the coordinates or all of the tree; there is no gravity unless it is among them.
    - `loops`: joints that close loops, and drives, gears, paths and the like: any joint, as constraint rows.
    - `constraints`: further constraints, on the coordinates.
    - `armature`: of velocities besides the bodies, by label or (n,): a rotor's inertia times gear ratio squared [kg m^2].
    - `name`: the title of its runs.
    - `visuals`: what bodies look like where they are shown; those without have a shape of their own.
    - `contacts`: limits and dry friction of joints, and contacts of shapes: `Limit`, `JointFriction`, `Contact`.

    **Returns:** the `TreeSystem`.

    **Raises:** `InputError` for joints in a cycle, a body not joined to the ground, and what `Mechanism` refuses.
    """
    joints, loops, loads = (
        require_joints("joints", joints),
        require_joints("loops", loops),
        require_loads(loads),
    )
    constraints, offsets = as_constraints(constraints), None
    first, *others = bodies if isinstance(bodies, list | tuple) and bodies else (None,)
    if (first := as_tree(first)) is not None:
        own = first.mechanism
        bodies = [*own.bodies, *others]
        joints, loops = (*first.joints[: len(own.bodies)], *joints), (*first.loops, *loops)
        loads, constraints = (*first.loads, *loads), (*first.further, *constraints)
        visuals, contacts = (*own.visuals, *visuals), (*own.contacts, *contacts)
        armature = _with_armature(first, armature)
        if own.offsets is not None:
            offsets = jnp.pad(own.offsets, ((0, len(others)), (0, 0)))
    if any(as_tree(x) is not None for x in others):
        raise InputError(
            "only the first of the bodies may be a tree or a robot; a file of model directives joins several."
        )
    on_coordinates = tuple(load for load in loads if isinstance(load, AbstractCoordinateLoad))
    on_tree = tuple(load for load in loads if isinstance(load, AbstractTreeLoad))
    on_bodies = [load for load in loads if isinstance(load, AbstractLoad)]
    require_unique("load", [load.name for load in loads if hasattr(load, "name")])
    states = [name for load in on_tree for name in load.states]
    mechanism = Mechanism(bodies, (*joints, *loops), on_bodies, name, visuals, contacts, offsets)
    hierarchy = order_tree(mechanism.bodies, mechanism.joints[: len(joints)], states)
    rotors = None if armature is None else check_armature(armature, hierarchy.velocity_labels, len(states))
    system = TreeSystem(mechanism, constraints, on_coordinates, on_tree, rotors, hierarchy)  # pyright: ignore[reportCallIssue]
    require_positions(system.places)
    return system


def as_tree(x: Any) -> TreeSystem | None:
    """A tree, or that of a robot; None for anything else."""
    x = x if isinstance(x, TreeSystem) else getattr(x, "mechanism", None)
    return x if isinstance(x, TreeSystem) else None


def _with_armature(first: TreeSystem, given: Any) -> Any:
    if first.armature is None:
        return given
    labels = first.velocity_labels[: len(first.velocity_labels) - len(first.state_labels)]
    own = dict(zip(labels, first.armature, strict=False))
    if given is not None and not isinstance(given, Mapping):
        raise InputError("with a tree among the bodies armature must be given by names of velocities.")
    return own | dict(given or {})
