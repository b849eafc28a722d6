"""Inverse dynamics: the efforts that a motion takes, with closed loops and any choice of joints that are driven.

    M a = Q + A^T lambda + B_u u,        A a = b.

It is servo control (`ukjax.servo_control`) whose servo rows ask for the whole acceleration, M a = M a_given: the u of
least norm among all that do.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._compiler import compile_small, evaluate_by_code
from .._formula._equations import Equations, equations_of_motion
from .._formula._servo import least_inputs
from .._misc._arguments import flag
from .._misc._errors import InputError
from .._misc._types import Coordinates, Forces, Numbers, Time, Velocities, in_full_precision, is_traced
from .._pseudoinverse import GramSchmidt, pinv
from .._system._constraint import require_bilateral
from .._system._problem import Problem
from .._system._rows import Rows, constraint_rows
from .._system._stabilize import NoStabilizer
from .._system._system import AbstractSystem, names_of, require_no_friction, states_of
from ..mechanisms._bodies import check_array
from ..mechanisms._reactions import Reaction, reactions_along
from ..mechanisms._start import compute_named_rates
from ._inputs import Inputs, input_matrix_of
from ._states import mechanism_of, require_mechanism, state_of


@final
class InverseDynamics(eqx.Module):
    """What a motion takes.

    - `efforts`: u, of least norm, on top of what drives exert already (p,): torques [N m], forces [N].
    - `names`: of the inputs, one an effort.
    - `multipliers`: lambda of least norm, one a row (m,).
    - `residual`: M a - Q - A^T lambda - B_u u (n,): what no effort can do, zero where `realizable`.
    - `realizable`: whether the efforts do it; outside `jit` always true, unless `throw=False`.
    - `reactions`: of a mechanism, at each joint, by name; of a driven joint without the effort of its motor.
    """

    efforts: Float[Array, " p"]
    names: tuple[str, ...] = eqx.field(static=True)
    multipliers: Float[Array, " m"]
    residual: Forces
    realizable: Bool[Array, ""]
    reactions: dict[str, Reaction]


def _evaluate_equations(
    given: tuple[Any, ...], t: Time, q: Coordinates, v: Velocities
) -> tuple[Equations, Array]:
    """The equations of motion and B_u, given a system and a function that returns B_u."""
    system, matrix = given
    return equations_of_motion(system, t, q, v, NoStabilizer()), matrix(t, q)


@compile_small
@in_full_precision
def _inverse_dynamics(
    system: AbstractSystem, matrix: Any, a: Velocities, t: Time, q: Coordinates, v: Velocities
) -> tuple[Array, Array, Array, Array, Rows]:
    """u, lambda, what is left of the forces, how large these are, and the rows."""
    at, B = evaluate_by_code(_evaluate_equations, (system, matrix), t, q, v)
    own, given = at.rows, at.Q + at.c
    if states := len(states_of(system)):  # which change by themselves
        a = jnp.concatenate([a[:-states], given[-states:]])
    needed = at.M @ a
    u = least_inputs(at, at.M, needed, B, GramSchmidt())
    driven = B @ u
    multipliers = pinv(own.A, GramSchmidt()).matrix.T @ (needed - given - driven)
    held = own.A.T @ multipliers
    sizes = jnp.abs(needed) + jnp.abs(given) + jnp.abs(driven) + jnp.abs(held)
    return u, multipliers, needed - given - driven - held, jnp.max(sizes), own


def inverse_dynamics(
    system: AbstractSystem | Problem,
    a: Numbers | Mapping[str, Any],
    t: Time | float | None = None,
    q: Numbers | None = None,
    v: Numbers | None = None,
    *,
    inputs: Inputs = None,
    throw: bool = True,
) -> InverseDynamics:
    """The efforts of motors that give a system an acceleration, in loops too: the least ones, with the reactions.

    **Arguments:**

    - `system`: the system, or a `Problem`, which brings its state.
    - `a`: the acceleration v' (n,), which meets the constraint rows; or of a mechanism accelerations by name, as rates
      for `ukjax.mechanisms.velocity`, of which the rows make the others; where these leave any open, it is the least v'.
      States of first order change by themselves: what `a` has for them does not count.
    - `t`: time [s].
    - `q`: generalized coordinates (n_q,).
    - `v`: generalized velocities (n,); by default zero.
    - `inputs`: names of actuators or of joints that are driven; or B_u (n, p), the generalized forces of unit inputs, or
      a function of (t, q) that returns it, such as `ukjax.mechanisms.input_matrix(system)`. By default all actuators;
      where there are none all joints with a position, and of a system that is no mechanism all velocities.
    - `throw`: whether it is an error where the inputs cannot do it.

    **Returns:** `InverseDynamics`.

    **Raises:** `InputError` for wrong shapes, unknown names, an acceleration that breaks constraint rows, and, with
    `throw`, one that the inputs cannot give, with the names of the velocities.
    """
    flag("throw", throw)
    system, t, q, v = state_of(system, t, q, v)
    require_bilateral("inverse_dynamics", system.constraints)
    require_no_friction("inverse_dynamics", system)
    a = (
        _complete_acceleration(system, a, t, q, v)
        if isinstance(a, Mapping)
        else check_array("a", a, (v.size,)).astype(q.dtype)
    )
    matrix, names, actuators = input_matrix_of(system, inputs, t, q, v.size, every=True)
    names = names or names_of(system, q, v).velocities
    u, multipliers, residual, size, rows = _inverse_dynamics(system, matrix, a, t, q, v)
    least = jnp.finfo(q.dtype).eps ** 0.5
    realizable = jnp.max(jnp.abs(residual)) <= least * size
    if not is_traced(residual):
        _require_consistent(jax.tree.map(np.asarray, rows), np.asarray(a))
        if throw and not realizable:
            raise InputError(_not_realizable(system, np.asarray(residual), float(least * size), names, q, v))
    mechanism, at = mechanism_of(system), {}
    if mechanism is not None:
        driven = tuple(dataclasses.replace(x, drive=u[i]) for i, x in enumerate(actuators))
        loaded = eqx.tree_at(lambda s: s.mechanism.loads, mechanism, (*mechanism.mechanism.loads, *driven))
        states = tuple(x[None] for x in (t, q, v, a, multipliers))
        at = jax.tree.map(lambda x: x[0], reactions_along(loaded, states, {}))
    return InverseDynamics(u, names, multipliers, residual, realizable, at)


def _rates_at(given: tuple[Any, ...], t: Time, q: Coordinates, v: Velocities) -> tuple[Array, Array, Rows]:
    """The rates that are given by name: how they change with v, and with everything else; and the rows."""
    system, wanted = given
    rates = lambda t, q, v: jnp.concatenate(
        [jnp.atleast_1d(x) for x in compute_named_rates(system, wanted, t, q, v)]
    )
    bias = jax.jvp(rates, (t, q, v), (jnp.ones_like(t), system.kinematics(t, q, v), jnp.zeros_like(v)))[1]
    return jax.jacfwd(rates, argnums=2)(t, q, v), bias, constraint_rows(system, t, q, v)


@compile_small
@in_full_precision
def _solve_acceleration(
    system: AbstractSystem, wanted: dict[str, Array], t: Time, q: Coordinates, v: Velocities
) -> tuple[Array, Array]:
    """v' of which some are given, and by how much it misses these."""
    J, bias, rows = evaluate_by_code(_rates_at, (system, wanted), t, q, v)
    own = jnp.concatenate([jnp.atleast_1d(x) for x in wanted.values()]) - bias
    a = pinv(jnp.concatenate([rows.A, J]), GramSchmidt()).matrix @ jnp.concatenate([rows.b, own])
    return a, jnp.max(jnp.abs(J @ a - own))


def _complete_acceleration(
    system: AbstractSystem, wanted: Mapping[str, Any], t: Time, q: Coordinates, v: Velocities
) -> Velocities:
    """The acceleration that meets the rows and those given."""
    mechanism = require_mechanism(system)
    if not wanted:
        raise InputError("a must name one acceleration at least, such as {'crank': 2.0}.")
    shapes = eqx.filter_eval_shape(lambda t, q, v: compute_named_rates(mechanism, wanted, t, q, v), t, q, v)
    given = {
        name: check_array(f"the acceleration of '{name}'", x, like.shape).astype(q.dtype)
        for (name, x), like in zip(wanted.items(), shapes, strict=True)
    }
    a, miss = _solve_acceleration(mechanism, given, t, q, v)
    if not is_traced(miss) and miss > jnp.finfo(q.dtype).eps ** 0.4 * (1 + jnp.max(jnp.abs(a))):
        raise InputError(
            f"no motion of the mechanism has the accelerations given for {', '.join(given)}: off by {float(miss):.1e}."
        )
    return a


def _require_consistent(rows: Rows, a: np.ndarray) -> None:
    """Raises `InputError` unless A a = b."""
    off, scale = rows.A @ a - rows.b, np.abs(rows.A) @ np.abs(a) + np.abs(rows.b)
    wrong = np.abs(off) > np.finfo(a.dtype).eps ** 0.4 * (scale + np.max(scale, initial=0))
    if wrong.any():
        names = ", ".join(
            f"{name} by {x:.2g}" for name, x, w in zip(rows.names, off, wrong, strict=True) if w
        )
        raise InputError(f"the acceleration a breaks constraint rows: {names}; give accelerations by name.")


def _not_realizable(
    system: AbstractSystem, residual: np.ndarray, least: float, names: tuple[str, ...], q: Array, v: Array
) -> str:
    left = names_of(system, q, v).velocities
    parts = [f"{name} ({x:.2g})" for name, x in zip(left, residual, strict=True) if abs(x) > least]
    return (
        f"the inputs {', '.join(names) or '(none)'} cannot give this acceleration: force is missing along "
        f"{', '.join(parts)}; throw=False gives the nearest."
    )
