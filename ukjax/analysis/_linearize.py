"""Linearization: x' = A x + B u of a constrained system, in independent coordinates.

The columns of the rows' Jacobian J are split into dependent and independent ones (coordinate partitioning; Wehage and
Haug 1982, J. Mech. Des. 104, 247-255), so that near a state (q, v) on the constraints

    delta q = N Z_q s,    Z_q = [1; -J_d^+ J_i],    delta v = Z_v w + C s,

where w and s are changes of independent velocities and coordinates, Z_v is of all rows of velocities, and C keeps these
rows where q changes. These are coordinates of the constrained states, in which

    s' = (N^+ q')_i,    w' = v'_i,

so A and B are derivatives of q' = N v and of the acceleration v' along those columns: of the full simulator, dependent
rows and all. The state need be no equilibrium; the rates there are `drift`.
"""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._compiler import compile_small, evaluate_by_code
from .._formula._acceleration import AbstractFormula, UdwadiaKalaba
from .._formula._equations import Equations, equations_at, equations_of_motion
from .._misc._arguments import require_instance
from .._misc._errors import InputError
from .._misc._types import Coordinates, Numbers, Time, Velocities, in_full_precision, is_traced
from .._pseudoinverse import GramSchmidt, pinv
from .._system._any_order import AnyOrderSystem
from .._system._constraint import require_bilateral
from .._system._drive import DrivenSystem
from .._system._problem import Problem
from .._system._stabilize import NoStabilizer
from .._system._system import AbstractSystem, has_quasi_velocities, names_of, states_of
from ..mechanisms._bodies import check_array
from ._independent import Split, independent_of
from ._inputs import Inputs, MatrixForce, input_matrix_of
from ._outputs import Outputs, outputs_of
from ._states import state_of


@final
class Linearization(eqx.Module):
    """x' = drift + A x + B u, y = y0 + C x + D u, for changes x of independent coordinates and velocities, u of inputs.

    - `A`: (k, k).
    - `B`: (k, p).
    - `C`: (o, k).
    - `D`: (o, p).
    - `drift`: x' at the state itself (k,), where it is at rest zero.
    - `y0`: the outputs at the state itself (o,).
    - `to_q`: the change of all coordinates, `to_q @ x` (n_q, k).
    - `to_v`: the change of all velocities, `to_v @ x` (n, k).
    - `states`: names of x: of independent coordinates, then of velocities, such as `crank`, `crank'`, or `q[0]`, `v[0]`.
    - `inputs`, `outputs`: names of u and y.
    - `labels`: names of all coordinates.
    """

    A: Float[Array, "k k"]
    B: Float[Array, "k p"]
    C: Float[Array, "o k"]
    D: Float[Array, "o p"]
    drift: Float[Array, " k"]
    y0: Float[Array, " o"]
    to_q: Float[Array, "nq k"]
    to_v: Float[Array, "n k"]
    states: tuple[str, ...] = eqx.field(static=True, default=())
    inputs: tuple[str, ...] = eqx.field(static=True, default=())
    outputs: tuple[str, ...] = eqx.field(static=True, default=())
    labels: tuple[str, ...] = eqx.field(static=True, default=())


def _kernel(J: Float[Array, "m n"], independent: tuple[int, ...]) -> Float[Array, "n k"]:
    """Z of the module's docstring."""
    i = np.array(independent, int)
    rest = np.setdiff1d(np.arange(J.shape[1]), i)
    Z = jnp.zeros((J.shape[1], len(i)), J.dtype).at[i, np.arange(len(i))].set(1)
    return Z.at[rest].set(-pinv(J[:, rest], GramSchmidt()).matrix @ J[:, i])


def _evaluate_equations(
    given: tuple[Any, ...], t: Time, q: Coordinates, v: Velocities, u: Array
) -> tuple[Array, Array, Equations]:
    """N, q', and the equations of motion, given a system, B_u and outputs."""
    system, matrix, _ = given
    rates, driven = lambda v: system.kinematics(t, q, v), DrivenSystem(system, MatrixForce(matrix), u)
    return jax.jacfwd(rates)(v), rates(v), equations_of_motion(driven, t, q, v, NoStabilizer())


def _linearize_equations(
    given: tuple[Any, ...],
    t: Time,
    q: Coordinates,
    v: Velocities,
    u: Array,
    a: Velocities,
    multipliers: Array,
    along: Float[Array, "nq k"],
) -> tuple[Any, Array]:
    """How q', what is left of the equations of motion with v' and lambda held fixed, psi and y change with s, v and u,
    where q changes by `along @ s`; and y."""
    outputs, sizes = given[2], (along.shape[1], v.size, u.size)
    parts = lambda x: jnp.split(x, np.cumsum(sizes)[:2], axis=-1)

    def near(x: Array) -> tuple[Array, ...]:
        s, dv, du = parts(x)
        q1, v1 = q + along @ s, v + dv
        _, rate, e = evaluate_by_code(_evaluate_equations, given, t, q1, v1, u + du)
        force = e.M @ a - e.Q - e.c - e.rows.A.T @ multipliers
        psi = e.rows.velocity_error[e.rows.of_velocities]
        y = outputs(t, q1, v1, a).astype(q.dtype)
        return rate, force, e.rows.A @ a - e.rows.b, psi, y

    push = jax.linearize(near, jnp.zeros(sum(sizes), q.dtype))[1]
    # One after the other: side by side they would be a program many times as long.
    columns = jax.lax.map(push, jnp.eye(sum(sizes), dtype=q.dtype))
    return [parts(x.T) for x in columns], outputs(t, q, v, a).astype(q.dtype)


def _differentiate_by_acceleration(
    outputs: Callable[..., Array], t: Time, q: Coordinates, v: Velocities, a: Velocities
) -> Float[Array, "o n"]:
    """dy/dv'."""
    return jax.jacfwd(lambda a: outputs(t, q, v, a).astype(q.dtype))(a)


@compile_small
@in_full_precision
def _linearize(
    system: AbstractSystem,
    driven: tuple[Any, Array],
    outputs: Callable[..., Array],
    formula: AbstractFormula,
    split: Split,
    state: tuple[Time, Coordinates, Velocities],
) -> Linearization:
    """The linearization but for its names."""
    (t, q, v), (matrix, u), (of_q, of_v) = state, driven, split
    n, zeros = v.size, lambda k: jnp.zeros(k, q.dtype)
    given = (system, matrix, outputs)
    N, rate, at = evaluate_by_code(_evaluate_equations, given, t, q, v, u)
    back = pinv(N, GramSchmidt()).matrix if has_quasi_velocities(system) else jnp.eye(n, dtype=q.dtype)
    solved, A = formula.solve(at), at.rows.A
    Zq, Jv = _kernel(A[at.rows.of_positions], of_q), A[at.rows.of_velocities]
    changes, y0 = _linearize_equations(given, t, q, v, u, solved.a, solved.multipliers, N @ Zq)
    by_s, by_v, by_u = zip(*changes, strict=True)
    rest = np.setdiff1d(np.arange(n), np.array(of_v, int))
    follow = zeros((n, len(of_q))).at[rest].set(-pinv(Jv[:, rest], GramSchmidt()).matrix @ by_s[3])
    to_v = jnp.concatenate([follow, _kernel(Jv, of_v)], axis=1)
    to_q = jnp.concatenate([N @ Zq, zeros((q.size, len(of_v)))], axis=1)
    moved, force, rows, _, y = (
        jnp.concatenate([jnp.pad(s, ((0, 0), (0, len(of_v)))) + v @ to_v, u], axis=1)
        for s, v, u in zip(by_s, by_v, by_u, strict=True)
    )
    # v' changes as the forces and rows that are left over ask: the same equations with another right-hand side.
    again = lambda Q, b: eqx.tree_at(lambda e: (e.Q, e.c, e.rows.b), at, (-Q, jnp.zeros_like(Q), -b))
    da = jax.lax.map(lambda x: formula.solve(again(*x)).a, (force.T, rows.T)).T
    y = y + evaluate_by_code(_differentiate_by_acceleration, outputs, t, q, v, solved.a) @ da
    pick = lambda of_rates, of_a: jnp.concatenate([of_rates[np.array(of_q, int)], of_a[np.array(of_v, int)]])
    k = to_q.shape[1]
    AB, drift = pick(back @ moved, da), pick(back @ rate, solved.a)
    return Linearization(
        A=AB[:, :k], B=AB[:, k:], C=y[:, :k], D=y[:, k:], drift=drift, y0=y0, to_q=to_q, to_v=to_v
    )


def _require_usable(system: AbstractSystem, t: Time, q: Coordinates, v: Velocities) -> None:
    """Raises `InputError` for a state off the constraints, and for velocities that are none of these coordinates."""
    if is_traced((system, t, q, v)):
        return
    if isinstance(system, AnyOrderSystem):
        raise InputError(
            "linearize needs q' = N(q) v, and the coordinates of an AnyOrderSystem have rates among them."
        )
    rows, least = equations_at(system, NoStabilizer(), t, q, v).rows, np.finfo(q.dtype).eps ** 0.4
    off = np.maximum(np.abs(rows.position_error), np.abs(rows.velocity_error))
    if wrong := [f"{name} by {x:.1e}" for name, x in zip(rows.names, off, strict=True) if not x <= least]:
        raise InputError(
            f"the state is off the constraints ({', '.join(wrong)}): ukjax.project brings it there."
        )


def linearize(
    system: AbstractSystem | Problem,
    t: Time | float | None = None,
    q: Numbers | None = None,
    v: Numbers | None = None,
    *,
    inputs: Inputs = None,
    u: Numbers | None = None,
    outputs: Outputs = None,
    independent: Iterable[str] | None = None,
    formula: AbstractFormula = UdwadiaKalaba(),
) -> Linearization:
    """The linear system x' = A x + B u, y = C x + D u near a state, with all constraints eliminated.

    x are the changes of independent coordinates, then of independent velocities. The state may be one of rest
    (`equilibrium`) or of motion.

    **Arguments:**

    - `system`: the system, or a `Problem`, which brings its state.
    - `t`: time [s].
    - `q`: generalized coordinates (n_q,); by default of a mechanism the reference posture.
    - `v`: generalized velocities (n,); by default zero.
    - `inputs`: names of actuators or of joints that are driven; or B_u (n, p), or a function of (t, q) that returns it.
      By default the actuators, if there are any; of a robot from a file a small change of what they follow.
    - `u`: the inputs at the state (p,); by default zero.
    - `outputs`: names of frames, whose positions are the outputs; or a function of (t, q, v, v') that returns a vector.
    - `independent`: names of independent velocities (of a mechanism `system.velocity_labels`), as many as the constraints
      leave; by default those that the rows determine least. Within `jit`, `vmap` and `grad` they must be given where
      there are constraints.
    - `formula`: for the acceleration; where the mass matrix is singular `RangeForm()`.

    **Returns:** `Linearization`.

    **Raises:** `InputError` for a state off the constraints, names that are not known or not independent, wrong shapes,
    and what the formula refuses.
    """
    require_instance("formula", formula, AbstractFormula, "RangeForm()")
    system, t, q, v = state_of(system, t, q, v)
    require_bilateral("linearize", system.constraints)
    _require_usable(system, t, q, v)
    matrix, input_names, _ = input_matrix_of(system, inputs, t, q, v.size, every=False)
    p = len(input_names)
    u = jnp.zeros(p, q.dtype) if u is None else check_array("u", u, (p,)).astype(q.dtype)
    output_function, output_names = outputs_of(system, outputs, t, q, v)
    names = names_of(system, q, v)
    split = independent_of(system, (t, q, v), names.velocities, independent)
    result = _linearize(system, (matrix, u), output_function, formula, split, (t, q, v))
    if not is_traced(result.A) and not np.all(np.isfinite(result.A)):
        formula.acceleration(system, t, q, v)  # which says why it is not
        raise InputError(f"the derivatives are not finite at t = {t}, q = {q}, v = {v}.")
    # Quasi-velocities go where no coordinate alone does: a position is then named as its velocity is.
    of_q = names.velocities if has_quasi_velocities(system) else names.coordinates
    own = states_of(system)
    of_v = [f"{v}'" if v == q and v not in own else v for q, v in zip(of_q, names.velocities, strict=True)]
    states = [of_q[i] for i in split.positions] + [of_v[i] for i in split.velocities]
    return dataclasses.replace(
        result, states=tuple(states), inputs=input_names, outputs=output_names, labels=names.coordinates
    )
