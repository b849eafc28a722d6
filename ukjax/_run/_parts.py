"""What a run tells beyond its own arrays, computed when it is asked for: named points, energies, how servo rows were
followed; and how it was made.
"""

import contextlib
import functools
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, NamedTuple, final

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from .._compiler._structured._scalarize import scalarize
from .._formula._servo import Servoed, ServoRun, compute_servo_run
from .._misc._arguments import real_array
from .._misc._closures import key_by_identity
from .._misc._errors import InputError
from .._misc._types import as_jax, is_traced, module_for
from .._system._labels import title_of
from .._system._problem import Problem
from .._system._system import AbstractSystem

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
    """The options of a run, keyword arguments of `simulate` as they were given but for the start and the end, and what
    can be done with them. JAX compiles nothing anew for equal ones."""

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
    """A run's start as it was given, its end, and its options."""

    # `q0`, `v0`, `t0`, `t1`: as for `ukjax.simulate`.
    q0: Array
    v0: Array
    t0: Array
    t1: Array
    by: RunOptions  # the options

    def again(self, system: Any, **changes: Any) -> Any:
        """The `Trajectory` of the same run with some arguments changed."""
        start = {name: getattr(self, name) for name in ("q0", "v0", "t0", "t1")}
        return self.by.simulate(system, **(start | self.by.options | changes))


# --- What is asked of a run


def as_problem(trajectory: "Trajectory", given: Any) -> Problem:
    """What was simulated, of a problem or a system."""
    if isinstance(given, AbstractSystem):
        points = getattr(given, "points", None)
        return Problem(given, trajectory.q[0], trajectory.v[0], 0.0, 0.0, points, name=trajectory.name)
    if not isinstance(given, Problem):
        raise InputError(f"problem must be a Problem or a system, got {type(given).__name__}.")
    return given


def get_problem(trajectory: "Trajectory") -> Problem:
    """What was simulated."""
    if trajectory.problem is None:
        raise InputError(
            "this trajectory does not know its problem, since it was made within jit or read from a file: use "
            "trajectory.with_problem(problem)."
        )
    return trajectory.problem


@eqx.filter_jit
def _evaluate_along(fn: Callable[..., dict[str, Array]], *states: Array) -> dict[str, Array]:
    return jax.vmap(scalarize(lambda *state: fn(*state), fallback="xla"))(*states)


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


def is_servoed(trajectory: "Trajectory") -> bool:
    """Whether a run is known to be under servo control."""
    known = trajectory.problem is not None and isinstance(trajectory.problem.system, Servoed)
    return known or trajectory.tracking is not None
