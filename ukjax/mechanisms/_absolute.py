"""A mechanism in absolute coordinates: every body has its own, and every joint is rows of constraints."""

from collections.abc import Iterable, Sequence
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._compiler import evaluate_known
from .._formula._members import Members
from .._misc._arguments import one_of
from .._misc._errors import InputError
from .._misc._types import Coordinates, Forces, MassMatrix, Time, Velocities, as_jax, module_for
from .._system._constraint import (
    AbstractConstraint,
    AbstractTogether,
    Holonomic,
    Nonholonomic,
    as_constraints,
)
from ._abstract_joint import AbstractJoint
from ._bodies import GROUND, AbstractBody, Body
from ._contact_places import AbsolutePlaces
from ._contact_rows import require_positions
from ._contacts import AnyContact
from ._coordinates import (
    AbstractCoordinates,
    EulerCoordinates,
    QuaternionCoordinates,
    call_each_body,
    coordinates_of,
)
from ._divide import acts_on_its_own, divide_assembly
from ._loads import AbstractLoad
from ._mechanism import Mechanism
from ._mechanism_system import MechanismSystem
from ._visual import Visual
from ._vmap_by_structure import vmap_by_structure


def _collect_ends(functions: Sequence[Any]) -> dict[int, AbstractCoordinates]:
    """The coordinates of all bodies that joints join, each once."""
    return {id(end): end for function in functions for end in function.ends}


@final
class JointRows(AbstractTogether):
    """phi of a joint, as a function of the coordinates of all bodies."""

    joint: AbstractJoint
    ends: tuple[AbstractCoordinates, ...]

    def __call__(self, t: Time, q: Coordinates) -> Array:
        return self.together([self], t, q)[0]

    @staticmethod
    def together(functions: Sequence[Any], *arguments: Array) -> list[Array]:
        (t, q), ends = arguments, _collect_ends(functions)
        placed = call_each_body("placement", ends, q)
        items = [(x.joint, *(placed[id(end)] for end in x.ends)) for x in functions]
        return vmap_by_structure(lambda joint, *placements: joint.rows(t, *placements), items)


@final
class JointSlip(AbstractTogether):
    """psi of a nonholonomic joint, as a function of the coordinates and velocities of all bodies."""

    joint: AbstractJoint
    ends: tuple[AbstractCoordinates, ...]

    def __call__(self, t: Time, q: Coordinates, v: Velocities) -> Array:
        return self.together([self], t, q, v)[0]

    @staticmethod
    def together(functions: Sequence[Any], *arguments: Array) -> list[Array]:
        (t, q, v), ends = arguments, _collect_ends(functions)
        placed = call_each_body("placement", ends, q)
        moved = call_each_body("twist", ends, q, v)
        of = lambda by_end, function: tuple(by_end[id(end)] for end in function.ends)
        items = [(x.joint, of(placed, x), of(moved, x)) for x in functions]
        return vmap_by_structure(lambda joint, placements, twists: joint.slip(t, placements, twists), items)


@final
class UnitNorm(eqx.Module):
    """phi of a unit quaternion."""

    body: EulerCoordinates

    def __call__(self, t: Time, q: Coordinates) -> Float[Array, ""]:
        return self.body.norm(q)


@final
class AbsoluteSystem(MechanismSystem):
    """A mechanism in absolute coordinates, made by `assemble`: a block of M for each body, rows for each joint.

    Planar bodies have (x, y, theta), point masses their place, bodies in space their centre and a quaternion that is
    (1, 0, 0, 0) in the reference posture. Its constraints bear the names of the joints.

    - `mechanism`: the description.
    - `further`: further constraints, on the coordinates.
    - `euler`: whether v = q' of quaternions, too; otherwise v has angular velocities in body axes.
    """

    mechanism: Mechanism
    further: tuple[AbstractConstraint, ...]
    euler: bool = eqx.field(static=True)

    def coordinates(self) -> dict[str, AbstractCoordinates]:
        """The coordinates of each body, by name."""
        return coordinates_of(self.bodies, self.euler)

    @property
    def loads(self) -> tuple[AbstractLoad, ...]:
        """The loads."""
        return self.mechanism.loads

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the coordinates, such as `crank x`, `crank theta`; of a quaternion `crank qw`, ..."""
        return tuple(f"{name} {x}" for name, part in self.coordinates().items() for x in part.labels)

    @property
    def velocity_labels(self) -> tuple[str, ...]:
        """The names of the velocities; of an angular velocity in body axes `crank wx`, ..."""
        return tuple(f"{name} {x}" for name, part in self.coordinates().items() for x in part.velocity_labels)

    @property
    def q0(self) -> Coordinates:
        """The coordinates of the reference posture (n_q,)."""
        parts = [part.reference for part in self.coordinates().values()]
        return as_jax(module_for(parts).concatenate(parts))

    @property
    def _joint_constraints(self) -> tuple[AbstractConstraint, ...]:
        parts, rows = self.places.coordinates((*self.mechanism.by_name, GROUND)), []
        for joint in self.joints:
            ends = tuple(parts[name] for name in joint.bodies)
            if joint.holonomic:
                rows.append(Holonomic(JointRows(joint, ends), name=joint.name))
            if joint.nonholonomic:
                rows.append(Nonholonomic(JointSlip(joint, ends), name=joint.slip_name))
        unit = [part for part in parts.values() if isinstance(part, EulerCoordinates)]
        return (
            *rows,
            *(Holonomic(UnitNorm(part), name=f"{part.body.name}, unit quaternion") for part in unit),
        )

    def members(self) -> tuple[Members, ...]:
        if self.further or not all(map(acts_on_its_own, self.mechanism.loads)):
            return ()
        parts = divide_assembly(self.mechanism, self.coordinates())
        if sum(map(len, parts)) == 1:
            return ()
        alone = lambda one: AbsoluteSystem(one, (), self.euler)  # pyright: ignore[reportCallIssue]
        return tuple(Members(alone(x.one), x.q, x.v) for x in parts)

    @property
    def places(self) -> AbsolutePlaces:
        return AbsolutePlaces(self.mechanism, self.coordinates())

    @property
    def quaternions(self) -> list[int]:
        kinds = (QuaternionCoordinates, EulerCoordinates)
        return [part.q_start + 3 for part in self.coordinates().values() if isinstance(part, kinds)]

    @property
    def _has_own_kinematics(self) -> bool:
        return not self.euler and any(isinstance(body, Body) for body in self.bodies)

    def kinematics(self, t: Time, q: Coordinates, v: Velocities) -> Coordinates:
        """p' = 1/2 p o (0, omega) for each quaternion p, which keeps its length."""
        if not self._has_own_kinematics:
            return v
        return jnp.concatenate(list(call_each_body("rate", self.coordinates(), q, v).values()))

    @evaluate_known
    def mass_matrix(self, t: Time, q: Coordinates) -> MassMatrix:
        blocks = list(call_each_body("inertia", self.coordinates(), q).values())
        if all(block.ndim == 1 for block in blocks):
            return jnp.diag(jnp.concatenate(blocks)).astype(q.dtype)
        square = [jnp.diag(block) if block.ndim == 1 else block for block in blocks]
        return jax.scipy.linalg.block_diag(*square).astype(q.dtype)

    @evaluate_known
    def force(self, t: Time, q: Coordinates, v: Velocities) -> Forces:
        return self._load_force(t, q, v) + jnp.concatenate(
            list(call_each_body("gyroscopic", self.coordinates(), q, v).values())
        )

    def _load_force(self, t: Time, q: Coordinates, v: Velocities) -> Forces:
        """Q = (dr / dv)^T e over all loads."""
        if not self.loads:
            return jnp.zeros_like(v)
        placements = self.placements(t, q)
        _, transposed = jax.vjp(lambda v: self.mechanism.rates(placements, self.twists(t, q, v)), v)
        return transposed(self.mechanism.efforts(t, placements, self.twists(t, q, v)))[0]


def assemble(
    bodies: Iterable[AbstractBody],
    joints: Iterable[AbstractJoint] = (),
    loads: Iterable[AbstractLoad] = (),
    *,
    coordinates: str = "quaternion",
    constraints: tuple[AbstractConstraint, ...] | list[AbstractConstraint] = (),
    name: str = "mechanism",
    visuals: Iterable[Visual] = (),
    contacts: Iterable[AnyContact] = (),
) -> AbsoluteSystem:
    """A mechanism as a system in absolute coordinates.

    **Arguments:**

    - `bodies`: any of `Body`, `PlanarBody`, `PointMass`; all in the plane or all in space.
    - `joints`: joints between them and the ground.
    - `loads`: loads on them; there is no gravity unless it is among them.
    - `coordinates`: of bodies in space: `"quaternion"`, with the velocity of the centre and the angular velocity in
      body axes for v; or `"euler parameters"`, with v = q', a mass matrix of rank 6 of 7 for each body, for which
      `RangeForm` and its kin are, and a row for each unit quaternion.
    - `constraints`: further constraints, functions of the coordinates of all bodies one after the other.
    - `name`: what plots, summaries and files of its runs are titled.
    - `visuals`: what bodies look like where they are shown; those without have a shape of their own.
    - `contacts`: limits and dry friction of joints, and contacts of shapes: `Limit`, `JointFriction`, `Contact`.

    **Returns:** the system; its `q0` is the reference posture, `points(t, q)` are its named points.

    **Raises:** `InputError` for what does not fit together, in one line.
    """
    one_of("coordinates", coordinates, ("quaternion", "euler parameters"))
    if any(hasattr(x, "mechanism") for x in (bodies if isinstance(bodies, list | tuple) else ())):
        raise InputError(
            "a robot has joint coordinates: write tree([robot, ...], joints, loads, loops=...) instead."
        )
    mechanism = Mechanism(bodies, joints, loads, name, visuals, contacts)
    further = as_constraints(constraints)
    euler = coordinates == "euler parameters"
    system = AbsoluteSystem(mechanism, further, euler)  # pyright: ignore[reportCallIssue]
    require_positions(system.places)
    return system
