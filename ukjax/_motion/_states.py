"""What holds at states that have values, from a model's scalar code on NumPy arrays: XLA compiles nothing."""

import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from .._compiler._structured._scalarize import scalarize
from .._formula._acceleration import AbstractFormula, Equations
from .._formula._equations import with_dense_mass
from .._formula._on_host import accelerations
from .._misc._closures import Static, combine_static, partition_static
from .._misc._types import as_jax
from .._system._system import AbstractSystem
from ._acceleration_code import AccelerationProgram, join_numbers
from ._model import Model


class States(NamedTuple):
    """Times [s] (k,), coordinates (k, n_q) and velocities (k, n)."""

    t: Array | np.ndarray
    q: Array | np.ndarray
    v: Array | np.ndarray


def _operands(model: Model, states: States, of_projection: bool = False) -> tuple[np.ndarray, ...]:
    numbers = model.ready().numbers
    assert numbers is not None
    own: Any = numbers[of_projection]
    own, t, q, v = map(np.asarray, (join_numbers(own), *states))
    return own[:, None], t[None], q.T, v.T


def _all_operands(code: AccelerationProgram, model: Model, states: States) -> tuple[np.ndarray, ...]:
    """Those of the acceleration's code, the force included where it is apart."""
    applied = _compute_applied_forces(code, model.system, states) if code.apart else ()
    operands = _operands(model, states)
    return *operands, *(np.asarray(x).T for x in applied), np.full((1, 1), np.inf, operands[1].dtype)


@eqx.filter_jit
def _compute_applied_forces(
    code: AccelerationProgram, system: AbstractSystem, states: States
) -> tuple[Array, ...]:
    return jax.vmap(lambda t, q, v: code.applied(system, t, q, v))(*states)


@functools.partial(scalarize, fallback="xla")
def _solve_one(of: Static, arrays: Any, equations: Equations) -> dict[str, Array]:
    solved = combine_static(of, arrays).solve(equations)
    return {name: getattr(solved, name) for name in ("a", "constraint_force", "multipliers", "rank")}


@eqx.filter_jit
def _solve_by_formula(formula: AbstractFormula, equations: Equations) -> dict[str, Any]:
    return jax.vmap(functools.partial(_solve_one, *partition_static(formula)))(equations)


@functools.partial(scalarize, fallback="xla")
def _project_one(of: Static, arrays: Any, t: Array, q: Array, v: Array) -> tuple[Array, Array]:
    return combine_static(of, arrays).project(t, (q, v))


@eqx.filter_jit
def _project_on_arrays(model: Model, states: States) -> tuple[Array, Array]:
    return jax.vmap(functools.partial(_project_one, *partition_static(model)))(*states)


def project_states(model: Model, states: States) -> States:
    """The states projected, if the stabilizer projects; by arrays where the projection has no scalar code."""
    if model.stabilizer.projection_method is None:
        return states
    if model.projection is None:
        return States(states.t, *_project_on_arrays(model, states))
    return States(states.t, *model.projection.on_host(*_operands(model, states, of_projection=True)))


def equations(model: Model, states: States) -> Equations:
    """The equations of motion, each array with the states along its first axis."""
    assert model.code is not None
    return with_dense_mass(model.code.equations.on_host(*_all_operands(model.code, model, states)))


def mass_matrices(model: Model, states: States) -> np.ndarray:
    """Mass matrices (k, n, n), one operation of NumPy after the other: of a few states."""
    assert model.code is not None
    return model.code.masses.by_numpy(*_all_operands(model.code, model, states))


def observe_states(model: Model, states: States) -> dict[str, Any]:
    """Accelerations, constraint forces, multipliers of least norm, errors, ranks, the energy where there is code of it.

    And where the rows are `regular`: clearly independent of each other, or dependent on others but for rounding; and how
    many are `lost`, as `loses_rows` has them.
    Elsewhere the formula tells accelerations, forces and multipliers.
    """
    assert model.code is not None
    operands = _all_operands(model.code, model, states)
    found = model.code.observed.on_host(*operands)
    if not model.is_solved:
        here = jax.tree.map(as_jax, equations(model, states))
        found |= jax.tree.map(np.asarray, _solve_by_formula(model.formula, here))
        return found | {"regular": np.all(np.isfinite(found["a"]), axis=1)}
    kept, regular, known = found.pop("kept") > 0.5, found.pop("sure") > 0.5, found.pop("known")
    if not kept.all():
        of_least_norm, holds = _least_norm(model.code, known, found["multipliers"], kept)
        found["multipliers"], regular = of_least_norm, regular & holds
    finite = np.all(np.isfinite(found["a"]), axis=1)
    unsure = np.flatnonzero(finite & ~regular)
    if unsure.size:
        taken = States(*(np.asarray(x)[unsure] for x in states))
        for name, x in accelerations(equations(model, taken), kept[unsure])._asdict().items():
            found[name][unsure] = x
    return found | {"regular": finite & regular}


def loses_rows(model: Model, t: Array, q: Array, v: Array) -> bool:
    """Whether bodies are too light for scalar code: in the metric of M^-1 nothing but rounding is left of their rows."""
    if model.code is None or not model.is_solved:
        return False
    states = States(*(np.asarray(x)[None] for x in (t, q, v)))
    found = model.code.observed.on_host(*_all_operands(model.code, model, states))
    return bool(np.any(found["lost"] > 0.5))


def _least_norm(
    code: AccelerationProgram, known: np.ndarray, multipliers: np.ndarray, kept: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Multipliers (k, m) without their part along the z of A^T z = 0, and where these are exact but for rounding (k,)."""
    out = ~kept
    states, rows = np.nonzero(out)  # of each pair a z, with 1 in its row and 0 in the others left out
    this = np.arange(kept.shape[1])[:, None] == rows
    depends = code.dependency.on_host(known.T[:, states], this.astype(multipliers.dtype))
    exact = np.ones(len(kept), bool)
    exact[states[depends["holds"] <= 0.5]] = False
    left, count = multipliers.copy(), out.sum(axis=1)
    for k in np.unique(count[count > 0]):  # states with as many z each are one stack
        those = count == k
        Z = depends["z"][those[states]].reshape(-1, k, kept.shape[1])
        Q, _ = np.linalg.qr(np.swapaxes(Z, 1, 2))
        left[those] -= np.einsum("smk,snk,sn->sm", Q, Q, left[those], optimize=True)
    return left, exact
