"""What a run tells beyond its own arrays, computed when it is asked for: named points, energies, how servo rows were
followed, of a mechanism its joints, loads and contacts; and as arrays by name for tables of a run and sweeps.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from .._compiler._structured._scalarize import scalarize
from .._formula._servo import Servoed, ServoRun, compute_servo_run
from .._misc._errors import InputError, require_known
from .._system._labels import title_of
from .._system._problem import Problem
from .._system._system import innermost
from ..mechanisms import GROUND, Contact, Effort, Reaction, TreeSystem, contact_frames
from ..mechanisms._mechanism_system import MechanismSystem
from ..mechanisms._reactions import efforts_along, reactions_along
from ..mechanisms._start import InputMatrix
from ._doctor import contacts_of_shapes
from ._results import get_problem

if TYPE_CHECKING:
    from ._trajectory import Trajectory


@eqx.filter_jit
def _evaluate_along(fn: Callable[..., dict[str, Array]], *states: Array) -> dict[str, Array]:
    return jax.vmap(scalarize(lambda *state: fn(*state), fallback="xla"))(*states)


def points(trajectory: "Trajectory") -> dict[str, Array]:
    """As `Trajectory.points`."""
    return _evaluate_along(require_points(get_problem(trajectory)), trajectory.t, trajectory.q)


def require_points(problem: Problem) -> Callable[..., dict[str, Array]]:
    """The function of a problem's named points; raises `InputError` where it has none."""
    if problem.points is None:
        raise InputError(f"{problem.name} defines no named points: give uk.Problem(..., points=...).")
    return problem.points


def energies(trajectory: "Trajectory") -> dict[str, Array]:
    """As `Trajectory.energies`."""
    system = get_problem(trajectory).system
    fn = getattr(system, "energies", None)
    if fn is None:
        raise InputError(
            f"{title_of(system)} defines no energy by parts: give it a method energies(t, q, v) that returns a dict."
        )
    return _evaluate_along(fn, trajectory.t, trajectory.q, trajectory.v)


def servo(trajectory: "Trajectory") -> ServoRun:
    """As `Trajectory.servo`."""
    if trajectory.tracking is not None:
        return trajectory.tracking
    system = get_problem(trajectory).system
    if not isinstance(system, Servoed):
        raise InputError(
            f"{title_of(system)} is not under servo control: simulate uk.with_servo(system, ...)."
        )
    return compute_servo_run(system, trajectory.t, trajectory.q, trajectory.v)


# --- Of mechanisms: joints, loads and contacts


def _mechanism(trajectory: "Trajectory", method: str) -> tuple[MechanismSystem, dict[str, Array]]:
    """The mechanism that was simulated, and what servo control had its actuators do."""
    system = get_problem(trajectory).system
    inputs = {}
    if isinstance(system, Servoed):
        if isinstance(matrix := system.law.input_matrix, InputMatrix):
            u = compute_servo_run(system, trajectory.t, trajectory.q, trajectory.v).inputs
            inputs = dict(zip(matrix.labels, u.T, strict=True))
        system = system.system
    if not isinstance(system, MechanismSystem):
        raise InputError(
            f"{title_of(system)} is not a mechanism of bodies, joints and loads, so it has no {method}(); build it "
            f"by ukjax.mechanisms.assemble or tree."
        )
    return system, inputs


_METRES, _RADIANS = ("x", "y", "z"), ("theta",)


def coordinate_units(system: Any) -> tuple[str, ...]:
    """The units of the coordinates of a mechanism, nothing for those of quaternions; of other systems their `units`."""
    system = innermost(system)
    if isinstance(system, TreeSystem):
        turns = {i + k for i in system.quaternions for k in range(4)}
        labels = enumerate(system.labels)
        return tuple("m" if x in system.order.slides else "" if i in turns else "rad" for i, x in labels)
    if not isinstance(system, MechanismSystem):
        return getattr(system, "units", ())
    last = [x.rpartition(" ")[2] for x in system.labels]
    return tuple("m" if x in _METRES else "rad" if x in _RADIANS else "" for x in last)


def pair_names(trajectory: "Trajectory") -> dict[str, str]:
    """The names of the contacts of a mechanism by the names of their places, of those that are shapes."""
    if trajectory.problem is None:
        return {}
    return {name: x.name for name, x in contacts_of_shapes(trajectory.problem.system).items()}


def reactions(trajectory: "Trajectory") -> dict[str, Reaction]:
    """As `Trajectory.reactions`."""
    system, inputs = _mechanism(trajectory, "reactions")
    states = (trajectory.t, trajectory.q, trajectory.v, trajectory.a, trajectory.multipliers)
    return reactions_along(system, states, inputs, trajectory.rank)


def loads(trajectory: "Trajectory") -> dict[str, Effort]:
    """As `Trajectory.loads`."""
    system, inputs = _mechanism(trajectory, "loads")
    return efforts_along(system, (trajectory.t, trajectory.q, trajectory.v), inputs)


@eqx.filter_jit
def _frames_along(system: MechanismSystem, t: Array, q: Array) -> dict[str, tuple[Array, Array]]:
    at = lambda t, q: {k: x[:2] for k, x in contact_frames(system, t, q).items()}
    return jax.vmap(scalarize(at, fallback="xla"))(t, q)


class ContactForce(NamedTuple):
    """The force at a contact of shapes, in world axes."""

    point: Array  # where it acts [m] (k, d)
    force: Array  # on the second body [N] (k, d)
    friction: Array  # the part of it across the normal


def contacts(trajectory: "Trajectory") -> dict[str, ContactForce]:
    """The forces at contacts of shapes, by name."""
    system, history = _mechanism(trajectory, "contacts")[0], trajectory.contacts
    if history is None or not any(isinstance(x, Contact) for x in system.mechanism.contacts):
        raise InputError(f"{title_of(system)} has no contacts of shapes.")
    found = {}
    for name, (point, axes) in _frames_along(system, trajectory.t, trajectory.q).items():
        own = history.force[:, history.rows(name)][:, : axes.shape[1]]  # without moments
        each = own[:, :, None] * axes[:, : own.shape[1]]
        found[name] = ContactForce(point, each.sum(axis=1), each[:, 1:].sum(axis=1))
    return found


def forces_on_bodies(trajectory: "Trajectory") -> dict[str, ContactForce]:
    """As `contacts`, but where the second body is the ground the force on the first."""
    of_shapes = contacts_of_shapes(get_problem(trajectory).system)
    signs = {name: -1.0 if x.bodies[1] == GROUND else 1.0 for name, x in of_shapes.items()}
    return {
        k: ContactForce(x.point, signs[k] * x.force, signs[k] * x.friction)
        for k, x in contacts(trajectory).items()
    }


def _name_fields(by_owner: Mapping[str, Any], *fields: str) -> dict[str, Array]:
    return {f"{field}_{name}": getattr(x, field) for field in fields for name, x in by_owner.items()}


PARTS: dict[str, Callable[["Trajectory"], dict[str, Array]]] = {
    "points": lambda run: {f"point_{name}": x for name, x in points(run).items()},
    "reactions": lambda run: _name_fields(reactions(run), "force", "torque"),
    "loads": lambda run: _name_fields(loads(run), "effort", "power"),
    "contacts": lambda run: {f"contact_{name}": x.force for name, x in contacts(run).items()},
    "energies": lambda run: {f"energy_{name}": x for name, x in energies(run).items()},
}
"""What tables of a run, and sweeps, can be asked for, as arrays by name, times in front."""

_UNITS = {
    "point": "m",
    "contact": "N",
    "force": "N",
    "torque": "N m",
    "effort": "N or N m",
    "power": "W",
    "energy": "J",
}


def units_of(name: str) -> str:
    """The unit of an array that a part has."""
    return _UNITS[name.partition("_")[0]]


def dims_of(name: str, shape: tuple[int, ...]) -> tuple[str, ...]:
    """The dimensions of an array that a part has, behind the times."""
    if not shape:
        return ()
    if shape[-1] not in (2, 3):
        return tuple(f"{name}_{i}" for i in range(len(shape)))
    return (*(("body",) if len(shape) == 2 else ()), "axis")


def choose_parts(parts: Any) -> tuple[str, ...]:
    """The parts asked for."""
    names = (parts,) if isinstance(parts, str) else tuple(parts)
    require_known("part of a run", PARTS, *names)
    return names


def arrays_of(trajectory: "Trajectory", parts: Any) -> dict[str, np.ndarray]:
    """The arrays of the parts asked for, by name."""
    return {
        name: np.asarray(x) for part in choose_parts(parts) for name, x in PARTS[part](trajectory).items()
    }
