"""The equations of motion at one state, evaluated from a system with the shapes of all it returns checked."""

from typing import Any, final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from .._misc._arguments import number_array
from .._misc._called import called
from .._misc._errors import InputError
from .._misc._precision import in_full_precision
from .._misc._types import Coordinates, Forces, MassMatrix, Time, Velocities
from .._system._rows import Rows, constraint_rows
from .._system._stabilize import AbstractStabilizer, NoStabilizer
from .._system._system import AbstractSystem
from .._system._tree_inertia import TreeInertia


@final
class Equations(eqx.Module):
    """The equations of motion at one state: M a = Q + c + A^T lambda under A a = b.

    - `M`: mass matrix (n, n); where scalar code is made of them a `TreeInertia` may stand in its place.
    - `Q`: impressed generalized force (n,).
    - `c`: non-ideal constraint force (n,), zero for ideal constraints.
    - `rows`: the constraint rows, `rows.b` already stabilized.
    """

    M: Any
    Q: Forces
    c: Forces
    rows: Rows


def _expect(what: str, array: Array, shape: tuple[int, ...]) -> Array:
    array = number_array(what, array)
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        raise InputError(f"{what} must be real, got {array.dtype}.")
    if array.shape != shape:
        raise InputError(f"{what} has shape {array.shape}; it must be {shape or 'a scalar'}.")
    return array


@in_full_precision
def applied_forces(system: AbstractSystem, t: Time, q: Coordinates, v: Velocities) -> tuple[Forces, Forces]:
    """The impressed force and the non-ideal constraint force, Q and c of `Equations`, with their shapes checked.

    **Arguments:** as `equations_of_motion`.
    """
    of = f"of {type(system).__name__}"
    Q = _expect("the force", called(f"the force {of}", system.force, t, q, v), (v.size,))
    c = called(f"the non-ideal force {of}", system.nonideal_force, t, q, v)
    return Q, jnp.zeros_like(Q) if c is None else _expect("the non-ideal force", c, (v.size,))


def mass_matrix(system: AbstractSystem, t: Time, q: Coordinates, n: int) -> MassMatrix:
    """The mass matrix, with its shape checked.

    **Arguments:**

    - `system`: the mechanical system.
    - `t`: time [s].
    - `q`: generalized coordinates (n_q,).
    - `n`: the number of velocities.

    **Raises:** `InputError` for another shape.
    """
    M = called(f"the mass matrix of {type(system).__name__}", system.mass_matrix, t, q)
    return _expect("the mass matrix", M, (n, n))


@in_full_precision
def inertia(system: AbstractSystem, t: Time, q: Coordinates, n: int) -> MassMatrix | TreeInertia:
    """The mass matrix, that of a tree in the form in which it is factored in proportion to its size.

    **Arguments:** as `mass_matrix`.
    """
    found = system.tree_inertia(t, q)
    return mass_matrix(system, t, q, n) if found is None else found


def with_dense_mass(equations: Equations) -> Equations:
    """Equations of motion at several states, along the first axes, with the mass matrix as an array whatever it was."""
    if not isinstance(equations.M, TreeInertia):
        return equations
    return eqx.tree_at(
        lambda of: of.M, equations, equations.M.dense(), is_leaf=lambda x: isinstance(x, TreeInertia)
    )


@in_full_precision
def equations_of_motion(
    system: AbstractSystem,
    t: Time,
    q: Coordinates,
    v: Velocities,
    stabilizer: AbstractStabilizer,
    applied: tuple[Forces, Forces] | None = None,
    M: MassMatrix | TreeInertia | None = None,
    rows: Rows | None = None,
) -> Equations:
    """Evaluates a system at one state, with the shapes of all it returns checked.

    **Arguments:**

    - `system`: the mechanical system.
    - `t`: time [s].
    - `q`: generalized coordinates (n_q,).
    - `v`: generalized velocities (n,).
    - `stabilizer`: gives the b to enforce.
    - `applied`: the `applied_forces`, if they are known already.
    - `M`: the mass matrix, if it is known already.
    - `rows`: the constraint rows, if they are known already.

    **Returns:** `Equations`.

    **Raises:** `InputError` naming what has the wrong shape.
    """
    M = mass_matrix(system, t, q, v.size) if M is None else M
    Q, c = applied_forces(system, t, q, v) if applied is None else applied
    rate = called(f"`kinematics` of {type(system).__name__}", system.kinematics, t, q, v)
    _expect("the rate of the coordinates from `kinematics`", rate, q.shape)
    known = constraint_rows(system, t, q, v) if rows is None else rows
    enforced = eqx.tree_at(lambda r: r.b, known, stabilizer.right_hand_side(known))
    return Equations(M, Q, c, enforced)


def require_shapes(system: AbstractSystem, t: Time, q: Coordinates, v: Velocities) -> None:
    """Raises `InputError` for a system that returns arrays of wrong shapes; evaluates nothing.

    **Arguments:** as `equations_of_motion`.
    """
    eqx.filter_eval_shape(equations_of_motion, system, t, q, v, NoStabilizer())
    require_energy(system, t, q, v)


def require_energy(system: AbstractSystem, t: Time, q: Coordinates, v: Velocities) -> None:
    """Raises `InputError` for an energy that is no scalar; evaluates nothing.

    **Arguments:** as `equations_of_motion`.
    """
    eqx.filter_eval_shape(energy_of, system, t, q, v)


def energy_of(system: AbstractSystem, t: Time, q: Coordinates, v: Velocities) -> Array | None:
    """The energy [J], with its shape checked, or None where the system has none.

    **Arguments:** as `equations_of_motion`.
    """
    energy = called(f"the energy of {type(system).__name__}", system.energy, t, q, v)
    return None if energy is None else _expect("the energy", energy, ())
