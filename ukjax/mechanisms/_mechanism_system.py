"""What a mechanism has as a system in any coordinates, absolute or those of its joints."""

from typing import Any, ClassVar

import equinox as eqx
from jaxtyping import Array, Float

from .._compiler import evaluate_known
from .._misc._arguments import require_instance
from .._misc._errors import unknown_name
from .._misc._types import Coordinates, Time, Velocities
from .._system._constraint import AbstractConstraint, bilateral
from .._system._system import AbstractSystem
from ._abstract_joint import AbstractJoint
from ._bodies import GROUND, AbstractBody, PointMass
from ._contact_rows import AbstractBodyKinematics, unilateral_rows
from ._joint_rows import orientation
from ._mechanism import Mechanism, Placements, Twists, sum_of


class MechanismSystem(AbstractSystem):
    """A mechanism in some coordinates: an `AbsoluteSystem` or a `TreeSystem`."""

    mechanism: eqx.AbstractVar[Mechanism]
    further: eqx.AbstractVar[tuple[AbstractConstraint, ...]]
    in_joint_coordinates: ClassVar[bool] = False
    loads: eqx.AbstractVar[tuple[Any, ...]]
    labels: eqx.AbstractVar[tuple[str, ...]]
    velocity_labels: eqx.AbstractVar[tuple[str, ...]]
    q0: eqx.AbstractVar[Coordinates]
    places: eqx.AbstractVar[AbstractBodyKinematics]  # where bodies are, for contacts
    quaternions: eqx.AbstractVar[list[int]]  # where the coordinates of each start
    _joint_constraints: eqx.AbstractVar[tuple[AbstractConstraint, ...]]

    @property
    def bodies(self) -> tuple[AbstractBody, ...]:
        """The bodies."""
        return self.mechanism.bodies

    @property
    def joints(self) -> tuple[AbstractJoint, ...]:
        """The joints; of a tree its own, then those that close loops."""
        return self.mechanism.joints

    @property
    def title(self) -> str:
        """What runs of it are called."""
        return self.mechanism.name

    def is_coordinate(self, name: str) -> bool:
        """Whether a coordinate of a tree has this name, as those of joints with one freedom do."""
        return self.in_joint_coordinates and name in self.labels

    def _locate_bodies(self, t: Time | float, q: Coordinates) -> tuple[Mechanism, Placements]:
        """The mechanism in the precision of q, and where its bodies are."""
        places, names = self.places, (*self.mechanism.by_name, GROUND)
        return places.cast_mechanism(q.dtype), places.placements(names, q)

    def _move_bodies(
        self, t: Time | float, q: Coordinates, v: Velocities
    ) -> tuple[Mechanism, Placements, Twists]:
        """The mechanism in the precision of q, where its bodies are, and how they move."""
        places, names = self.places, (*self.mechanism.by_name, GROUND)
        return places.cast_mechanism(q.dtype), *places.place_and_move(names, q, v)

    @property
    def constraints(self) -> tuple[AbstractConstraint, ...]:
        """The rows of joints, named after them, the further constraints, then the limits and contacts."""
        return (*self._joint_constraints, *self.further, *unilateral_rows(self.places))

    @property
    def bilateral_constraints(self) -> tuple[AbstractConstraint, ...]:
        return bilateral((*self._joint_constraints, *self.further))

    def without_shapes(self) -> AbstractSystem:
        return eqx.tree_at(lambda x: x.mechanism, self, self.mechanism.without_shapes())

    @evaluate_known
    def placements(self, t: Time | float, q: Coordinates) -> Placements:
        """Where the bodies and the ground are, by name."""
        return self._locate_bodies(t, q)[1]

    @evaluate_known
    def twists(self, t: Time | float, q: Coordinates, v: Velocities) -> Twists:
        """How the bodies and the ground move, by name."""
        return self._move_bodies(t, q, v)[2]

    @evaluate_known
    def points(self, t: Time | float, q: Coordinates) -> dict[str, Array]:
        """The named world points [m]: centres under the bodies' names, their further points as `body.point`."""
        mechanism, placements = self._locate_bodies(t, q)
        return mechanism.points(placements)

    def drawing(self, t: Time, q: Coordinates) -> dict[str, Array]:
        mechanism, placements = self._locate_bodies(t, q)
        return mechanism.drawing(placements)

    def _further_energies(self, t: Time, q: Coordinates, v: Velocities) -> dict[str, Array]:
        """What bodies and loads on them do not have of the energy [J]."""
        return {}

    @evaluate_known
    def energy(self, t: Time, q: Coordinates, v: Velocities) -> Float[Array, ""]:
        """Kinetic energy and the potential of all loads that have one [J]."""
        mechanism, placements, twists = self._move_bodies(t, q, v)
        of_bodies = mechanism.kinetic_energy(placements, twists) + mechanism.potential_energy(placements)
        return sum_of([of_bodies, *self._further_energies(t, q, v).values()])

    @evaluate_known
    def energies(self, t: Time, q: Coordinates, v: Velocities) -> dict[str, Array]:
        """The parts of the energy [J]: `kinetic_<body>` and `potential_<load>`; of a tree also `kinetic_armature`,
        `kinetic_loads`."""
        mechanism, placements, twists = self._move_bodies(t, q, v)
        return mechanism.energies(placements, twists) | self._further_energies(t, q, v)

    def values_of(self, names: tuple[str, ...], t: Time, q: Coordinates) -> dict[str, Array]:
        """Where joints, bodies and points are: positions, orientations against the reference posture, places."""
        joints, bodies = {joint.name: joint for joint in self.joints}, self.mechanism.by_name
        placements, points, values = self.placements(t, q), self.points(t, q), {}
        for name in names:
            if self.is_coordinate(name):
                values[name] = q[self.labels.index(name)]
            elif name in joints:
                joint = joints[name]
                oriented = not isinstance(bodies.get(joint.child), PointMass)
                values[name] = joint.configuration(
                    placements[joint.parent], placements[joint.child], oriented
                )
            elif name in bodies and not isinstance(bodies[name], PointMass):
                values[name] = orientation(placements[GROUND], placements[name])
            elif name in points:
                values[name] = points[name]
            else:
                raise unknown_name("joint, body or point", name, dict.fromkeys([*joints, *points]))
        return values


def require_mechanism(system: Any) -> None:
    """Raises `InputError` unless a system is a mechanism, in any coordinates."""
    such_as = "assemble(bodies, joints, loads) or tree(bodies, joints, loads)"
    require_instance("the system", system, MechanismSystem, such_as)
