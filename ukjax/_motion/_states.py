"""What holds at states that have values, from a model's scalar code on NumPy arrays: XLA compiles nothing."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from .._compiler import Code
from .._formula._acceleration import AbstractFormula, Acceleration, Equations
from .._formula._equations import with_dense_mass
from .._system._system import AbstractSystem
from ._model import Model


class States(NamedTuple):
    """Times [s] (k,), coordinates (k, n_q) and velocities (k, n)."""

    t: Array | np.ndarray
    q: Array | np.ndarray
    v: Array | np.ndarray


def _operands(model: Model, states: States, of_projection: bool = False) -> tuple[np.ndarray, ...]:
    numbers = model.ready().numbers if model.numbers is None else model.numbers
    assert numbers is not None
    t, q, v = map(np.asarray, states)
    return np.asarray(numbers[of_projection])[:, None], t[None], q.T, v.T


def _all_operands(code: Code, model: Model, states: States) -> tuple[np.ndarray, ...]:
    """Those of the acceleration's code, the force included where it is apart."""
    applied = _applied(code, model.system, states) if code.apart else ()
    return *_operands(model, states), *(np.asarray(x).T for x in applied)


@eqx.filter_jit
def _applied(code: Code, system: AbstractSystem, states: States) -> tuple[Array, ...]:
    return jax.vmap(lambda t, q, v: code.applied(system, t, q, v))(*states)


@eqx.filter_jit
def _projected_on_arrays(model: Model, states: States) -> tuple[Array, Array]:
    return jax.vmap(lambda t, q, v: model.project(t, (q, v)))(*states)


def projected(model: Model, states: States) -> States:
    """The states projected, if the stabilizer projects; by arrays where the projection has no scalar code.

    **Arguments:**

    - `model`: with scalar code.
    - `states`: where.
    """
    if model.stabilizer.projection_method is None:
        return states
    if model.projection is None:
        return States(states.t, *_projected_on_arrays(model, states))
    return States(states.t, *model.projection.on_host(*_operands(model, states, of_projection=True)))


def equations(model: Model, states: States) -> Equations:
    """The equations of motion, each array with the states along its first axis.

    **Arguments:** as `projected`.
    """
    assert model.code is not None
    return with_dense_mass(model.code.equations.on_host(*_all_operands(model.code, model, states)))


def observed(model: Model, states: States) -> dict[str, Any]:
    """Accelerations, constraint forces, multipliers, errors, ranks, the energy where there is code of it; and where all
    this is `regular`: the rows clearly independent. Where not, the formula has to tell.

    **Arguments:** as `projected`.
    """
    assert model.code is not None
    found = model.code.observed.on_host(*_all_operands(model.code, model, states))
    return found | {"regular": (found["regular"] > 0.5) & np.all(np.isfinite(found["a"]), axis=1)}


@eqx.filter_jit
def solved(formula: AbstractFormula, equations: Equations) -> Acceleration:
    """What a formula says of equations of motion with the states along their first axes.

    **Arguments:**

    - `formula`: the formula.
    - `equations`: as `equations` gives them.
    """
    return jax.vmap(formula.solve)(equations)
