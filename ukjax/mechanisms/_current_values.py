"""Where joints, bodies and points of a mechanism are in a posture."""

from typing import Any

from jaxtyping import Array

from .._misc._arguments import require_instance
from .._misc._errors import unknown_name
from .._misc._types import Coordinates, Time
from ._absolute import AbsoluteSystem
from ._bodies import GROUND, PointMass
from ._joint_rows import orientation
from ._tree import TreeSystem

MechanismSystem = AbsoluteSystem | TreeSystem


def require_mechanism(system: Any) -> None:
    """Raises `InputError` unless a system is a mechanism, in any coordinates."""
    such_as = "assemble(bodies, joints, loads) or tree(bodies, joints, loads)"
    require_instance("the system", system, (AbsoluteSystem, TreeSystem), such_as)


def is_coordinate(system: MechanismSystem, name: str) -> bool:
    """Whether a coordinate of a tree has this name, as those of joints with one freedom do."""
    return isinstance(system, TreeSystem) and name in system.labels


def now(system: MechanismSystem, names: tuple[str, ...], t: Time, q: Coordinates) -> dict[str, Array]:
    """Where joints, bodies and points are, by their names: positions, orientations against the reference posture, places.

    **Raises:** `InputError` for a name that is not known, and for a joint without a position.
    """
    joints, bodies = {joint.name: joint for joint in system.joints}, system.mechanism.by_name
    placements, points, values = system.placements(t, q), system.points(t, q), {}
    for name in names:
        if is_coordinate(system, name):
            values[name] = q[system.labels.index(name)]
        elif name in joints:
            joint = joints[name]
            oriented = not isinstance(bodies.get(joint.child), PointMass)
            values[name] = joint.configuration(placements[joint.parent], placements[joint.child], oriented)
        elif name in bodies and not isinstance(bodies[name], PointMass):
            values[name] = orientation(placements[GROUND], placements[name])
        elif name in points:
            values[name] = points[name]
        else:
            raise unknown_name("joint, body or point", name, dict.fromkeys([*joints, *points]))
    return values
