"""The equations of motion at one state, evaluated from a system with the shapes of all it returns checked."""

from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._compiler import evaluate_at_state
from .._misc._arguments import call_user_function, number_array
from .._misc._errors import InputError
from .._misc._tolerances import ASYMMETRIC
from .._misc._types import Coordinates, Forces, MassMatrix, Time, Velocities, in_full_precision, module_for
from .._pseudoinverse import GramSchmidt, inverse_cholesky, pinv
from .._system._constraint import unilateral
from .._system._rows import Rows, constraint_rows
from .._system._stabilize import AbstractStabilizer, NoStabilizer
from .._system._system import AbstractSystem, TreeInertia, innermost


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
        raise InputError(
            f"{what} has shape {array.shape}; it must be {shape or 'a scalar'}{_remedy(array, shape)}."
        )
    return array


def _remedy(array: Array, shape: tuple[int, ...]) -> str:
    """What to do about an array of another shape: a sentence's end."""
    if not shape:
        return ""
    if len(shape) == 2 and array.ndim < 2:
        return f": write {f'm * jnp.eye({shape[0]})' if array.ndim == 0 else 'jnp.diag(masses)'}"
    if array.ndim == 2 and array.size == shape[0]:
        return ": write x.ravel() for x"
    return f", since the state has {shape[0]} entries"


def _name_of(system: AbstractSystem) -> str:
    """The class of the user's own system, whatever drives it."""
    return type(innermost(system)).__name__


@in_full_precision
def applied_forces(system: AbstractSystem, t: Time, q: Coordinates, v: Velocities) -> tuple[Forces, Forces]:
    """The impressed force and the non-ideal constraint force, Q and c of `Equations`, with their shapes checked."""
    of = f"of {_name_of(system)}"
    Q = _expect("the force", call_user_function(f"the force {of}", system.force, t, q, v), (v.size,))
    c = call_user_function(f"the non-ideal force {of}", system.nonideal_force, t, q, v)
    return Q, jnp.zeros_like(Q) if c is None else _expect("the non-ideal force", c, (v.size,))


def asymmetry(M: Any) -> Array:
    """Where positive M differs from M^T by more than rounding; not a number where M is none."""
    xp = module_for(M)
    return xp.max(xp.abs(M - M.T), initial=0) - ASYMMETRIC * xp.finfo(M.dtype).eps * xp.max(
        xp.abs(M), initial=0
    )


def describe_asymmetry(M: Any) -> str:
    """One sentence on where a mass matrix with values is not symmetric; empty where it is."""
    if not asymmetry(M) > 0:
        return ""
    i, j = np.unravel_index(np.abs(M - M.T).argmax(), M.shape)
    return f"the mass matrix is not symmetric: M[{i}, {j}] = {M[i, j]}, M[{j}, {i}] = {M[j, i]}. Write both of them."


def mass_matrix(system: AbstractSystem, t: Time, q: Coordinates, n: int) -> MassMatrix:
    """The mass matrix, with its shape checked."""
    M = call_user_function(f"the mass matrix of {_name_of(system)}", system.mass_matrix, t, q)
    return _expect("the mass matrix", M, (n, n))


@in_full_precision
def inertia(system: AbstractSystem, t: Time, q: Coordinates, n: int) -> MassMatrix | TreeInertia:
    """The mass matrix, that of a tree in the form in which it is factored in proportion to its size."""
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

    **Returns:** `Equations`."""
    M = mass_matrix(system, t, q, v.size) if M is None else M
    Q, c = applied_forces(system, t, q, v) if applied is None else applied
    rate = call_user_function(f"`kinematics` of {_name_of(system)}", system.kinematics, t, q, v)
    _expect("the rate of the coordinates from `kinematics`", rate, q.shape)
    known = constraint_rows(system, t, q, v) if rows is None else rows
    enforced = eqx.tree_at(lambda r: r.b, known, stabilizer.right_hand_side(known))
    friction = _friction(system, t, q, v, Equations(M, Q, c, enforced))
    return Equations(M, Q, c if friction is None else c + friction, enforced)


# Newton's method doubles the digits; the steps after which derivatives are taken double their order too.
_STEPS, _DIFFERENTIATED_STEPS, _SQUARINGS = 8, 2, 6


def _friction(
    system: AbstractSystem, t: Time, q: Coordinates, v: Velocities, equations: Equations
) -> Forces | None:
    """The friction c that goes with the multipliers of M a = Q + c + A^T lambda, A a = b; NaN if none is stable.

    With B = A W^T of `_acceleration` lambda = (B^+)^T (B^+ b - W (Q + c(lambda))), solved by Newton's method from the
    multipliers without friction. A change of friction by dc changes lambda by G dlambda, G = -(B^+)^T W dc/dlambda; if
    these do not die out, friction jams, and of several solutions none can be told from the others.
    """
    what = f"the friction force of {_name_of(system)}"
    m = len(equations.rows.b)
    if call_user_function(what, system.friction_force, t, q, v, jnp.zeros(m, v.dtype)) is None:
        return None
    if bad := unilateral(system.constraints):
        raise InputError(
            f"a friction_force cannot see the forces of unilateral constraints, and the system has "
            f"{', '.join(c.name for c in bad)}: give them friction by their own arguments, or a nonideal_force(t, q, v)."
        )

    def friction(multipliers: Array) -> Array:
        c = call_user_function(what, system.friction_force, t, q, v, multipliers)
        return _expect("the friction force", c, (v.size,))

    if m == 0:
        return friction(jnp.zeros(0, v.dtype))
    M = equations.M.dense() if isinstance(equations.M, TreeInertia) else equations.M
    W = inverse_cholesky(M)
    inverse = pinv(equations.rows.A @ W.T, GramSchmidt()).matrix
    per_force = inverse.T @ W
    without = inverse.T @ (inverse @ equations.rows.b) - per_force @ (equations.Q + equations.c)

    def step(multipliers: Array, to: tuple[Array, Array]) -> tuple[Array, Array, Array]:
        without, per_force = to
        answer = -per_force @ jax.jacfwd(friction)(multipliers)
        off = without - per_force @ friction(multipliers) - multipliers
        dx = pinv(jnp.eye(m, dtype=v.dtype) - answer, GramSchmidt()).matrix @ off
        return multipliers + dx, dx, answer

    constant = jax.lax.stop_gradient((without, per_force))
    found = constant[0]
    loop = lambda _, at: jax.lax.stop_gradient(step(at[0], constant))
    found, dx, answer = jax.lax.fori_loop(0, _STEPS, loop, (found, found, constant[1] @ constant[1].T))
    answer = jax.lax.fori_loop(0, _SQUARINGS, lambda _, x: x @ x, answer)
    small = jnp.finfo(v.dtype).eps ** 0.5 * jnp.maximum(
        jnp.max(jnp.abs(found)), jnp.max(jnp.abs(constant[0]))
    )
    # The trace, the sum of powers of eigenvalues, does not depend on the units of rows.
    stable = jnp.all(jnp.abs(dx) <= small) & (jnp.abs(jnp.trace(answer)) < 1)
    for _ in range(_DIFFERENTIATED_STEPS):
        found, _, _ = step(found, (without, per_force))
    return jnp.where(stable, friction(found), jnp.nan)


def require_shapes(system: AbstractSystem, t: Time, q: Coordinates, v: Velocities) -> None:
    """Raises `InputError` for a system that returns arrays of wrong shapes; evaluates nothing."""
    eqx.filter_eval_shape(equations_of_motion, system, t, q, v, NoStabilizer())
    require_energy(system, t, q, v)


def require_energy(system: AbstractSystem, t: Time, q: Coordinates, v: Velocities) -> None:
    """Raises `InputError` for an energy that is no scalar; evaluates nothing."""
    eqx.filter_eval_shape(energy_of, system, t, q, v)


def energy_of(system: AbstractSystem, t: Time, q: Coordinates, v: Velocities) -> Array | None:
    """The energy [J], with its shape checked, or None where the system has none."""
    energy = call_user_function(f"the energy of {_name_of(system)}", system.energy, t, q, v)
    return None if energy is None else _expect("the energy", energy, ())


def _equations(
    parameters: tuple[AbstractSystem, AbstractStabilizer], t: Array, q: Array, v: Array
) -> Equations:
    system, stabilizer = parameters
    require_energy(system, t, q, v)
    return equations_of_motion(system, t, q, v, stabilizer)


def equations_at(system: AbstractSystem, stabilizer: AbstractStabilizer, t: Any, q: Any, v: Any) -> Equations:
    """The equations of motion at one state that has values."""
    return evaluate_at_state(_equations, (system, stabilizer), t, q, v)
