"""What a run tells beyond its own arrays, computed when it is asked for: named points, reactions, loads, energies, and
how servo rows were followed.
"""

import contextlib
import functools
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._formula._servo._control import Servoed, ServoRun, compute_servo_run
from .._misc._arguments import real_array, unknown_name
from .._misc._closures import key_by_identity
from .._misc._errors import InputError
from .._misc._types import as_jax, is_traced, module_for
from .._system._labels import title_of
from .._system._problem import Problem
from .._system._system import AbstractSystem
from ..mechanisms import Contact, Effort, Reaction, contact_frames
from ..mechanisms._current_values import MechanismSystem
from ..mechanisms._efforts import efforts_along
from ..mechanisms._reactions import reactions_along
from ..mechanisms._start import InputMatrix

if TYPE_CHECKING:
    from ._trajectory import Trajectory


# --- How a run was made, so that it can be made again: from the same start with other options

_SMALL = 64  # numbers of an array that is compared by value


def key(x: Any) -> Hashable:
    """Of an option: simple values, and modules of such, as solvers and stabilizers are, are equal by value; all else is
    equal to itself alone.
    """
    if x is None or isinstance(x, bool | int | float | str):
        return type(x), x
    small = isinstance(x, Array | np.ndarray) and x.size <= _SMALL and not is_traced(x)
    if small and jax.numpy.issubdtype(x.dtype, np.number):
        return x.shape, x.dtype, np.asarray(x).tobytes()
    if isinstance(x, eqx.Module):
        leaves, tree = jax.tree.flatten(x)
        with contextlib.suppress(TypeError):  # of fields that have no hash
            return hash(tree), tree, *map(key, leaves)
    return key_by_identity(x)


@final
@jax.tree_util.register_static
class RunOptions:
    """The options of a run, and what can be done with them. JAX compiles nothing anew for equal ones.

    **Arguments:**

    - `simulate`: as `ukjax.simulate`.
    - `certify`: what makes a `Certificate` of a trajectory.
    - `options`: keyword arguments of `simulate` but for the start and the end, as they were given.
    """

    def __init__(self, simulate: Callable[..., Any], certify: Callable[..., Any], options: dict[str, Any]):
        self.simulate, self.certify, self.options = simulate, certify, options

    def __reduce__(self):  # without the key, in which objects stand by where they lie in memory
        return RunOptions, (self.simulate, self.certify, self.options)

    @functools.cached_property
    def _key(self) -> Hashable:
        return tuple((name, key(x)) for name, x in self.options.items())

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, RunOptions) and self._key == other._key)


class RunRecord(NamedTuple):
    """A run's start as it was given, its end, and its options.

    - `q0`, `v0`, `t0`, `t1`: as for `ukjax.simulate`.
    - `by`: the options.
    """

    q0: Array
    v0: Array
    t0: Array
    t1: Array
    by: RunOptions

    def again(self, system: Any, **changes: Any) -> Any:
        """The `Trajectory` of the same run with some arguments changed."""
        start = {name: getattr(self, name) for name in ("q0", "v0", "t0", "t1")}
        return self.by.simulate(system, **(start | self.by.options | changes))


def as_problem(trajectory: "Trajectory", given: Any) -> Problem:
    """What was simulated, of a problem or a system.

    **Raises:** `InputError` for anything else.
    """
    if isinstance(given, AbstractSystem):
        points = getattr(given, "points", None)
        return Problem(given, trajectory.q[0], trajectory.v[0], 0.0, 0.0, points, name=trajectory.name)
    if not isinstance(given, Problem):
        raise InputError(f"problem must be a Problem or a system, got {type(given).__name__}.")
    return given


def get_problem(trajectory: "Trajectory") -> Problem:
    """What was simulated.

    **Raises:** `InputError` where it is not known.
    """
    if trajectory.problem is None:
        raise InputError(
            "this trajectory does not know its problem, since it was made within jit or read from a file: use "
            "trajectory.with_problem(problem)."
        )
    return trajectory.problem


@eqx.filter_jit
def _evaluate_along(fn: Callable[..., dict[str, Array]], *states: Array) -> dict[str, Array]:
    return jax.vmap(lambda *state: fn(*state))(*states)


def get_run_record(trajectory: "Trajectory") -> RunRecord:
    """How a run was made; raises `InputError` where that is not known."""
    if trajectory.made is None:
        raise InputError(
            "this trajectory does not know how it was made: it comes from a file, or from within jit. Call simulate "
            "outside jit."
        )
    return trajectory.made


def evaluate_dense(trajectory: "Trajectory", t: Any) -> tuple[Array, Array]:
    """(q, v) at any time of the run."""
    if trajectory.dense is None:
        raise InputError("this trajectory has no dense output: call simulate(..., dense=True).")
    t = real_array("t", t).astype(trajectory.t.dtype)
    if t.ndim:
        raise InputError(f"t has shape {t.shape}; it is one time (use jax.vmap for many).")
    return trajectory.dense(t)


# Below, times that are not finite were not reached: a compiled run that ended early has some, which mean nothing.


def largest(t: Array, x: Any) -> Array:
    """As `Trajectory.largest`; by NumPy where values are known, which compiles nothing."""
    xp = module_for(t, x)
    reached = xp.isfinite(t).reshape(-1, *[1] * (x.ndim - 1))
    return as_jax(xp.max(xp.abs(xp.where(reached, x, 0)), initial=0))


def drift(t: Array, energy: Array) -> Array:
    """The largest change of an energy (k,) [J] since the first saved time, as `largest`."""
    xp = module_for(t, energy)
    return largest(t, xp.subtract(energy, xp.asarray(energy)[xp.argmax(xp.isfinite(t))]))


def ranks(t: Array, rank: Array) -> tuple[Array, Array]:
    """The least and the largest of the ranks (k,) at saved times, as `largest`."""
    xp = module_for(t, rank)
    reached = xp.isfinite(t)
    least = xp.min(xp.where(reached, rank, np.iinfo(rank.dtype).max))
    return as_jax(least), as_jax(xp.max(xp.where(reached, rank, -1)))


def points(trajectory: "Trajectory") -> dict[str, Array]:
    """As `Trajectory.points`."""
    problem = get_problem(trajectory)
    if problem.points is None:
        raise InputError(f"{problem.name} defines no named points: give uk.Problem(..., points=...).")
    return _evaluate_along(problem.points, trajectory.t, trajectory.q)


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


def is_servoed(trajectory: "Trajectory") -> bool:
    """Whether a run is known to be under servo control."""
    known = trajectory.problem is not None and isinstance(trajectory.problem.system, Servoed)
    return known or trajectory.tracking is not None


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
    frames = jax.vmap(lambda t, q: {k: x[:2] for k, x in contact_frames(system, t, q).items()})
    return frames(t, q)


def contacts(trajectory: "Trajectory") -> dict[str, tuple[Array, Array]]:
    """Of contacts of shapes the place [m] and the force on the second body [N], in world axes, by name.

    **Raises:** `InputError` for a run without such.
    """
    system, history = _mechanism(trajectory, "contacts")[0], trajectory.contacts
    if history is None or not any(isinstance(x, Contact) for x in system.mechanism.contacts):
        raise InputError(f"{title_of(system)} has no contacts of shapes.")
    found = {}
    for name, (point, axes) in _frames_along(system, trajectory.t, trajectory.q).items():
        own = history.force[:, history.rows(name)]
        found[name] = point, jnp.einsum("ti,tia->ta", own, axes[:, : own.shape[1]])
    return found


def _name_reactions(trajectory: "Trajectory") -> dict[str, Array]:
    by_joint = reactions(trajectory)
    forces, torques = (
        {f"{k}_{name}": getattr(x, k) for name, x in by_joint.items()} for k in ("force", "torque")
    )
    return forces | torques


def _name_loads(trajectory: "Trajectory") -> dict[str, Array]:
    by_load = loads(trajectory)
    efforts, powers = (
        {f"{k}_{name}": getattr(x, k) for name, x in by_load.items()} for k in ("effort", "power")
    )
    return efforts | powers


PARTS: dict[str, Callable[["Trajectory"], dict[str, Array]]] = {
    "points": lambda run: {f"point_{name}": x for name, x in points(run).items()},
    "reactions": _name_reactions,
    "loads": _name_loads,
    "contacts": lambda run: {f"contact_{name}": force for name, (_, force) in contacts(run).items()},
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
    """The parts asked for.

    **Raises:** `InputError` for unknown ones.
    """
    names = (parts,) if isinstance(parts, str) else tuple(parts)
    for name in names:
        if name not in PARTS:
            raise unknown_name("part of a run", name, PARTS)
    return names


def arrays_of(trajectory: "Trajectory", parts: Any) -> dict[str, np.ndarray]:
    """The arrays of the parts asked for, by name."""
    return {
        name: np.asarray(x) for part in choose_parts(parts) for name, x in PARTS[part](trajectory).items()
    }
