"""Servo control as the user calls it: the inputs at one state, and the closed loop for `simulate`."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, final, overload

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._compiler import compile_small
from .._compiler._structured._scalarize import scalarize
from .._misc._arguments import (
    all_of,
    call_user_function,
    flag,
    one_of,
    real_array,
    require_function,
    require_instance,
)
from .._misc._errors import InputError
from .._misc._tolerances import ROW_NOISE
from .._misc._types import (
    Coordinates,
    Forces,
    MassMatrix,
    Numbers,
    Time,
    Velocities,
    in_full_precision,
    is_traced,
)
from .._pseudoinverse import AbstractPseudoinverse, GramSchmidt, as_pseudoinverse, inverse_cholesky, pinv
from .._system._constraint import AbstractConstraint, Kind, require_bilateral
from .._system._labels import make_indexed_names, own_labels
from .._system._problem import Problem, resolve_state
from .._system._rows import Rows, constraint_rows
from .._system._stabilize import AbstractStabilizer, NoStabilizer
from .._system._system import AbstractForwardingSystem, AbstractSystem, System, require_no_friction
from ._acceleration import OR_RANGE_FORM, Equations, UdwadiaKalaba, equations_of_motion, why_not_finite

# --- What servo control tells: of one state, and of a run


@final
class ServoControl(eqx.Module):
    """What `servo_control` returns; `str(control)` says in words which servo rows are not realized.

    - `u`: the inputs (p,).
    - `residual`: A_s a - b_s, one a servo row (s,): zero where the row is realized.
    - `realizable_rows`: whether the inputs realize the row, one a servo row (s,).
    - `realizable`: whether they realize all servo rows: (C Bbar)(C Bbar)^+ bbar = bbar (Liu 2015, eq. (33)).
    - `controllable`: whether the inputs act on the servo rows at all: rank of C Bbar >= 1 (Liu 2015, eq. (34)).
    - `rank`: the rank the servo rows were given as equations for u.
    - `multipliers`: what the inputs do along the servo rows, as the multipliers the rows would have if ideal
      constraint forces did the same to them: (C N)^+T Bbar u (s,).
    - `a`: the acceleration under u (n,).
    - `input_force`: B_u u (n,).
    - `constraint_force`: the force of the passive constraints under u (n,).
    - `names`: one name a servo row.
    """

    u: Float[Array, " p"]
    residual: Float[Array, " s"]
    realizable_rows: Bool[Array, " s"]
    realizable: Bool[Array, ""]
    controllable: Bool[Array, ""]
    rank: Int[Array, ""]
    multipliers: Float[Array, " s"]
    a: Velocities
    input_force: Forces
    constraint_force: Forces
    names: tuple[str, ...] = eqx.field(static=True)

    def __str__(self) -> str:
        if is_traced(self) or self.u.ndim != 1:
            return repr(self)
        lines = [
            f"{self.u.size} inputs, {len(self.names)} servo rows of rank {int(self.rank)}: "
            f"u = {np.array2string(np.asarray(self.u), precision=6)}."
        ]
        if not self.controllable:
            lines.append("No input acts on any servo row.")
        for name, realized, residual in zip(self.names, self.realizable_rows, self.residual, strict=True):
            if not realized:
                lines.append(f"Not realizable: {name} misses its acceleration by {float(residual):.3e}.")
        return "\n".join(lines)


@final
class ServoRun(eqx.Module):
    """How a run of k saved times followed its s servo rows, and by which p inputs; `Trajectory.servo` returns it.

    - `inputs`: u (k, p).
    - `position_error`: phi of the servo rows, the tracking error; 0 where they are none of positions (k, s).
    - `velocity_error`: psi of the servo rows (k, s).
    - `multipliers`: what the inputs do along each row, as its multiplier (k, s); see `ServoControl`.
    - `residual`: A_s a - b_s (k, s), zero where the inputs realize the row.
    - `realizable`: whether they realize all rows (k,).
    - `row_names`: the names of the s rows.
    - `row_kinds`: of each, `"holonomic"`, `"nonholonomic"`, `"acceleration"` or `"position"`.
    - `input_names`: of the p inputs: of actuators their names, else `u[0]`, ...
    """

    inputs: Float[Array, "k p"]
    position_error: Float[Array, "k s"]
    velocity_error: Float[Array, "k s"]
    multipliers: Float[Array, "k s"]
    residual: Float[Array, "k s"]
    realizable: Bool[Array, " k"]
    row_names: tuple[str, ...] = eqx.field(static=True)
    row_kinds: tuple[Kind, ...] = eqx.field(static=True)
    input_names: tuple[str, ...] = eqx.field(static=True)


# --- Servo constraints: the actuator forces that make a system follow rows it would not follow by itself
#
# With W = L^-1 of M = L L^T for M^-1/2 and x = L^T a, the inputs u act as M a = Q + c + A_p^T lambda + B_u u, where
# the passive rows (A_p, b_p) hold whatever u is. So they are eliminated first: with B_p = A_p W^T and
# N = I - B_p^+ B_p,
#
# x = abar + Bbar u,    abar = N W (Q + c) + B_p^+ b_p,    Bbar = N W B_u.
#
# The servo rows (A_s, b_s) then ask for C Bbar u = bbar, with C = A_s W^T and bbar = b_s - C abar, so that
#
# u = (C Bbar)^+ bbar + [I - (C Bbar)^+ (C Bbar)] s                                  (Liu 2015, eq. (35))
#
# Liu's own step 4 puts a = M^-1/2 (Q + Q_c) and Bbar = M^-1/2 B_u instead, where the passive force Q_c depends on u in
# turn. That linear fixed point is solved here too: another u of the same motion.

Formula = Literal["eliminate", "paper"]
InputMatrix = Array | Callable[[Time, Coordinates], Array]
"""B_u (n, p), or a function of (t, q) that returns it."""
FreeVector = Array | Callable[[Time, Coordinates, Velocities], Array]
"""s (p,), or a function of (t, q, v) that returns it."""
ServoConstraints = tuple[AbstractConstraint, ...] | list[AbstractConstraint] | AbstractConstraint


@final
class _ReducedEquations(eqx.Module):
    """The equations with the passive rows eliminated, in the names of the module's docstring: x0 = W (Q + c),
    E = W B_u, `CN` = C N, and `effect` = C Bbar."""

    W: MassMatrix
    x0: Forces
    abar: Forces
    C: Float[Array, "s n"]
    CN: Float[Array, "s n"]
    E: Float[Array, "n p"]
    Bbar: Float[Array, "n p"]
    effect: Float[Array, "s p"]
    bbar: Float[Array, " s"]


def _without_noise(effect: Array, C: Array, E: Array) -> Array:
    """`effect`, a product of C and E, with entries that are rounding of it set to zero."""
    sizes = jnp.sum(C * C, axis=1)[:, None] * jnp.sum(E * E, axis=0)[None, :]
    noise = ROW_NOISE * jnp.finfo(effect.dtype).eps
    return jnp.where(effect**2 <= noise**2 * sizes, 0, effect)


def _eliminate(
    equations: Equations, A_s: Array, b_s: Array, B_u: Array, method: AbstractPseudoinverse
) -> _ReducedEquations:
    """Takes the passive rows out. A servo row that they already determine is none for u: by the threshold that
    decides rank, since what drift leaves of it would ask for huge inputs."""
    W = inverse_cholesky(equations.M)
    B_p = equations.rows.A @ W.T
    inverse = pinv(B_p, method).matrix
    x0 = W @ (equations.Q + equations.c)
    abar = x0 + inverse @ (equations.rows.b - B_p @ x0)
    C, E = A_s @ W.T, W @ B_u
    Bbar = E - inverse @ (B_p @ E)
    left = C - (C @ inverse) @ B_p
    dependent = jnp.sum(left * left, axis=1) <= method.threshold(C.dtype) ** 2 * jnp.sum(C * C, axis=1)
    left = jnp.where(dependent[:, None], 0, left)
    return _ReducedEquations(W, x0, abar, C, left, E, Bbar, _without_noise(left @ E, left, E), b_s - C @ abar)


def least_inputs(
    equations: Equations, A_s: Array, b_s: Array, B_u: Array, method: AbstractPseudoinverse
) -> Float[Array, " p"]:
    """The u of least norm by which A_s a = b_s, of `Law` with neither weight nor s."""
    r = _eliminate(equations, A_s, b_s, B_u, method)
    return pinv(r.effect, method).matrix @ r.bbar


@final
class Law(eqx.Module):
    """The control law u(t, q, v) of a system: the arguments of `servo_control`, checked."""

    input_matrix: InputMatrix
    servo_constraints: tuple[AbstractConstraint, ...]
    stabilizer: AbstractStabilizer
    passive_stabilizer: AbstractStabilizer
    formula: Formula = eqx.field(static=True)
    free: FreeVector | None
    weight: Float[Array, "p p"] | None
    pinv: AbstractPseudoinverse

    def __init__(
        self,
        input_matrix: InputMatrix,
        servo_constraints: ServoConstraints,
        stabilizer: AbstractStabilizer,
        passive_stabilizer: AbstractStabilizer,
        formula: Formula,
        free: FreeVector | None,
        weight: Array | None,
        pinv: AbstractPseudoinverse | lx.AbstractLinearSolver,
    ):
        rows = (
            (servo_constraints,) if isinstance(servo_constraints, AbstractConstraint) else servo_constraints
        )
        self.servo_constraints = all_of("servo_constraints", rows, AbstractConstraint, "Holonomic(fn)")
        if not self.servo_constraints:
            raise InputError(
                "servo_constraints must be Holonomic, Nonholonomic or AccelerationConstraint; there is none."
            )
        for name, x in (("stabilizer", stabilizer), ("passive_stabilizer", passive_stabilizer)):
            require_instance(name, x, AbstractStabilizer, "Baumgarte(1.0, 10.0)")
        if stabilizer.projects:
            raise InputError(
                "an actuator cannot project a state onto servo constraints; use Baumgarte for the stabilizer."
            )
        one_of("formula", formula, ("eliminate", "paper"))
        self.input_matrix = _array_or_function("input_matrix", input_matrix, "t, q")
        self.free = None if free is None else _array_or_function("free", free, "t, q, v")
        self.stabilizer, self.passive_stabilizer, self.formula = stabilizer, passive_stabilizer, formula
        self.weight = None if weight is None else _weight_matrix(weight)
        self.pinv = as_pseudoinverse(pinv)

    def task(self, system: AbstractSystem, t: Time, q: Coordinates, v: Velocities) -> Rows:
        """The servo rows, their b stabilized."""
        require_no_friction("servo control", system)
        servo = System(system.mass_matrix, system.force, self.servo_constraints, kinematics=system.kinematics)
        rows = constraint_rows(servo, t, q, v)
        if not rows.names:
            raise InputError("the servo constraints have no rows: give at least one.")
        return eqx.tree_at(lambda r: r.b, rows, self.stabilizer.right_hand_side(rows))

    def inputs(
        self, t: Time, q: Coordinates, v: Velocities
    ) -> tuple[Float[Array, "n p"], Float[Array, " p"]]:
        """B_u and s, their shapes checked."""
        B = self.input_matrix
        B = call_user_function("input_matrix", B, t, q) if callable(B) else B
        B = real_array("input_matrix", B).astype(q.dtype)
        if B.ndim != 2 or B.shape[0] != v.size or not B.size:
            raise InputError(
                f"the input matrix has shape {B.shape}; with {v.size} velocities it must be ({v.size}, p), "
                "a column for each of p inputs."
            )
        p = B.shape[1]
        s = call_user_function("free", self.free, t, q, v) if callable(self.free) else self.free
        s = jnp.zeros(p, q.dtype) if s is None else real_array("free", s).astype(q.dtype)
        if s.shape != (p,):
            raise InputError(f"the free vector s has shape {s.shape}; with {p} inputs it must be ({p},).")
        if self.weight is not None and self.weight.shape != (p, p):
            raise InputError(
                f"the weight is for {self.weight.shape[0]} inputs, but the input matrix has {p} columns."
            )
        return B, s

    def _inputs(
        self, equations: Equations, rows: Rows, t: Time, q: Coordinates, v: Velocities
    ) -> tuple[_ReducedEquations, Float[Array, "n p"], Float[Array, " p"], Int[Array, ""]]:
        """The reduced equations, B_u, u and the rank it was found with."""
        B_u, s = self.inputs(t, q, v)
        r = _eliminate(equations, rows.A, rows.b, B_u, self.pinv)
        u, rank = self._by_paper(r, s) if self.formula == "paper" else self._by_elimination(r, s)
        return r, B_u, u, rank

    @in_full_precision
    def input_force(self, system: AbstractSystem, t: Time, q: Coordinates, v: Velocities) -> Forces:
        """B_u u at one state, and nothing else: what a closed loop needs at every step."""
        equations = equations_of_motion(system, t, q, v, self.passive_stabilizer)
        _, B_u, u, _ = self._inputs(equations, self.task(system, t, q, v), t, q, v)
        return B_u @ u

    @in_full_precision
    def solve(self, system: AbstractSystem, t: Time, q: Coordinates, v: Velocities) -> ServoControl:
        """u and what it does, at one state: to be jitted, vmapped, differentiated."""
        equations = equations_of_motion(system, t, q, v, self.passive_stabilizer)
        rows = self.task(system, t, q, v)
        r, B_u, u, rank = self._inputs(equations, rows, t, q, v)
        moved = r.Bbar @ u
        residual = r.C @ moved - r.bbar
        terms = jnp.abs(r.C) @ (jnp.abs(r.x0) + jnp.abs(r.abar) + jnp.abs(r.Bbar) @ jnp.abs(u))
        fulfilled = jnp.abs(residual) <= jnp.finfo(u.dtype).eps ** 0.4 * (terms + jnp.abs(rows.b))
        a, force = r.W.T @ (r.abar + moved), B_u @ u
        return ServoControl(
            u=u,
            residual=residual,
            realizable_rows=fulfilled,
            realizable=jnp.all(fulfilled),
            controllable=jnp.any(r.effect != 0),
            rank=rank,
            multipliers=pinv(r.CN, self.pinv).matrix.T @ moved,
            a=a,
            input_force=force,
            constraint_force=equations.M @ a - equations.Q - force,
            names=rows.names,
        )

    def _inverse(self, G: Float[Array, "s p"]) -> tuple[Float[Array, "p s"], Int[Array, ""]]:
        """G^+ and its rank; with a weight R the inverse that gives least u^T R u, V^T (G V^T)^+ with V^T V = R^-1."""
        if self.weight is None:
            inverse = pinv(G, self.pinv)
            return inverse.matrix, inverse.rank
        V = inverse_cholesky(self.weight.astype(G.dtype))
        inverse = pinv(G @ V.T, self.pinv)
        return V.T @ inverse.matrix, inverse.rank

    def _by_elimination(self, r: _ReducedEquations, s: Array) -> tuple[Array, Array]:
        inverse, rank = self._inverse(r.effect)
        return s + inverse @ (r.bbar - r.effect @ s), rank

    def _by_paper(self, r: _ReducedEquations, s: Array) -> tuple[Array, Array]:
        """The u with u = K [bbar + (D - C Bbar) u] + (I - K D) s, D = C W B_u, K = D^+: in the bracket is what the
        paper's bbar is at Q_c(u). So u = K w + (I - K D) s with w in the range of D, where C Bbar u = bbar."""
        D = _without_noise(r.C @ r.E, r.C, r.E)
        K, _ = self._inverse(D)
        onto = D @ K
        fixed = s - K @ (D @ s)
        inverse = pinv(onto @ r.effect @ K, self.pinv)
        return fixed + K @ (inverse.matrix @ (onto @ (r.bbar - r.effect @ fixed))), inverse.rank

    def why_not_finite(self, system: AbstractSystem, t: Time, q: Coordinates, v: Velocities) -> str:
        """One sentence on why u is not finite at this state."""
        rows, (B_u, s) = self.task(system, t, q, v), self.inputs(t, q, v)
        parts = {f"servo row {name}": (A, b) for name, A, b in zip(rows.names, rows.A, rows.b, strict=True)}
        for what, arrays in {**parts, "input matrix": (B_u,), "free vector s": (s,)}.items():
            if not all(np.all(np.isfinite(x)) for x in arrays):
                return f"the {what} is not finite at t = {t}, q = {q}, v = {v}."
        formula = UdwadiaKalaba(self.pinv)
        equations = equations_of_motion(system, t, q, v, self.passive_stabilizer)
        if np.all(np.isfinite(formula.solve(equations).a)):
            return (
                f"the pseudoinverse failed on the servo rows {', '.join(rows.names)} at t = {t}; "
                "use a method that handles dependent rows, such as CompleteOrthogonal or SVD."
            )
        text = why_not_finite(formula, equations, t, q, v)
        return text.replace(OR_RANGE_FORM, "") + " Servo control needs M > 0."


def _array_or_function(name: str, x: Any, takes: str) -> Any:
    if not callable(x):
        return real_array(name, x)
    require_function(name, x, takes)
    return x


def _weight_matrix(weight: Array) -> Float[Array, "p p"]:
    R = real_array("weight", weight)
    R = jnp.diag(R) if R.ndim == 1 else R
    if R.ndim != 2 or R.shape[0] != R.shape[1]:
        raise InputError(f"the weight has shape {R.shape}; it must be (p,) or (p, p), for p inputs.")
    if not is_traced(R):
        x = np.asarray(R)
        if not (np.all(np.isfinite(x)) and np.allclose(x, x.T) and np.linalg.eigvalsh(x).min(initial=1) > 0):
            raise InputError(
                f"the weight must be positive (as a matrix: symmetric positive definite), got {R}."
            )
    return R


# --- Servo control as the user calls it


@compile_small
def _control(law: Law, system: AbstractSystem, t: Array, q: Array, v: Array) -> ServoControl:
    return law.solve(system, t, q, v)


def servo_control(
    system: AbstractSystem | Problem,
    input_matrix: InputMatrix,
    servo_constraints: ServoConstraints,
    t: Time | float | None = None,
    q: Numbers | None = None,
    v: Numbers | None = None,
    *,
    stabilizer: AbstractStabilizer = NoStabilizer(),
    passive_stabilizer: AbstractStabilizer = NoStabilizer(),
    formula: Formula = "eliminate",
    free: FreeVector | None = None,
    weight: Array | None = None,
    pinv: AbstractPseudoinverse | lx.AbstractLinearSolver = GramSchmidt(),
    throw: bool = False,
) -> ServoControl:
    """The inputs u that make a system follow servo constraints: u = (C Bbar)^+ bbar + [I - (C Bbar)^+ (C Bbar)] s.

    Constraint-following servo control (Liu 2015, eq. (35)), for fully, under- and redundantly actuated systems;
    the passive constraints are eliminated first. Where the inputs cannot realize the rows, u
    is the least-squares one, and the report names the rows. Needs M > 0; jit, vmap and differentiation apply.

    **Arguments:**

    - `system`: the system with its passive constraints, or a `Problem`, which brings its initial state.
    - `input_matrix`: B_u (n, p), the generalized forces of p unit inputs, or a function of (t, q).
    - `servo_constraints`: the rows to follow: `Holonomic`, `Nonholonomic`, `AccelerationConstraint`.
    - `t`: time [s].
    - `q`: generalized coordinates (n_q,).
    - `v`: generalized velocities (n,).
    - `stabilizer`: gains on the errors of the servo rows, for a start or a disturbance off them: `Baumgarte`.
    - `passive_stabilizer`: the one that the passive rows are simulated with, if it is `Baumgarte`.
    - `formula`: `"eliminate"`, u of least norm among all that do; or `"paper"`, Liu's own with the passive force
      consistent with u, which need not be the least.
    - `free`: s (p,), which moves u among those that do the same, or a function of (t, q, v); by default zero.
    - `weight`: R (p,) or (p, p), positive: u is least in u^T R u (nearest to s in it); by default the identity.
    - `pinv`: a pseudoinverse method that handles dependent rows, or a lineax solver.
    - `throw`: raise an error where a servo row is not realizable.

    **Returns:** `ServoControl`.

    **Raises:** `InputError` for wrong shapes, no servo rows, non-finite values and a mass matrix that is not
    positive definite; with `throw`, for rows that are not realizable, by name (under `jit` a runtime error).
    """
    law = Law(input_matrix, servo_constraints, stabilizer, passive_stabilizer, formula, free, weight, pinv)
    flag("throw", throw)
    system, t, q, v = resolve_state(system, t, q, v)
    require_bilateral("servo_control", system.constraints)
    control = _control(law, system, t, q, v)
    if is_traced(control):
        message = f"the inputs cannot realize all servo rows {', '.join(control.names)}."
        return eqx.error_if(control, ~control.realizable, message) if throw else control
    if not np.all(np.isfinite(control.u)):
        raise InputError(law.why_not_finite(system, t, q, v))
    if throw and not control.realizable:
        raise InputError(f"the inputs cannot realize all servo rows at t = {t}. {control}")
    return control


@final
class Servoed(AbstractForwardingSystem):
    """A system under servo control: its force gains B_u u(t, q, v); all else is the system's own.

    Made by `with_servo`. The servo rows are not among its `constraints`: nothing but the inputs keeps them.

    **Arguments:**

    - `system`: the system without its inputs.
    - `law`: the control law.
    """

    system: AbstractSystem
    law: Law

    def force(self, t: Time, q: Coordinates, v: Velocities) -> Forces:
        return self.system.force(t, q, v) + self.law.input_force(self.system, t, q, v)

    def control(self, t: Time, q: Coordinates, v: Velocities) -> Float[Array, " p"]:
        """The inputs u (p,); along a run they are in `trajectory.servo().inputs`."""
        return self.report(t, q, v).u

    def report(self, t: Time, q: Coordinates, v: Velocities) -> ServoControl:
        """u and what it does, as `servo_control` returns it."""
        return _control(self.law, self.system, jnp.asarray(t, q.dtype), q, v)


@eqx.filter_jit
def compute_servo_run(servoed: Servoed, t: Array, q: Array, v: Array) -> ServoRun:
    """How a run followed its servo rows."""
    law, system = servoed.law, servoed.system

    def at(t: Array, q: Array, v: Array) -> tuple[ServoControl, Rows]:
        return law.solve(system, t, q, v), law.task(system, t, q, v)

    control, rows = jax.vmap(scalarize(at, fallback="xla"))(t, q, v)
    p = control.u.shape[1]
    return ServoRun(
        inputs=control.u,
        position_error=rows.position_error,
        velocity_error=rows.velocity_error,
        multipliers=control.multipliers,
        residual=control.residual,
        realizable=control.realizable,
        row_names=rows.names,
        row_kinds=rows.kinds,
        input_names=own_labels(law.input_matrix, "labels", p) or make_indexed_names("u", p),
    )


@overload
def with_servo(system: Problem, *args, **kwargs) -> Problem: ...
@overload
def with_servo(system: AbstractSystem, *args, **kwargs) -> Servoed: ...
def with_servo(
    system: AbstractSystem | Problem,
    input_matrix: InputMatrix,
    servo_constraints: ServoConstraints,
    *,
    stabilizer: AbstractStabilizer = NoStabilizer(),
    passive_stabilizer: AbstractStabilizer = NoStabilizer(),
    formula: Formula = "eliminate",
    free: FreeVector | None = None,
    weight: Array | None = None,
    pinv: AbstractPseudoinverse | lx.AbstractLinearSolver = GramSchmidt(),
) -> Servoed | Problem:
    """The closed loop: the system with the inputs of `servo_control` at every state, for `simulate`.

    **Arguments:**

    - `system`: the system with its passive constraints, or a `Problem`.
    - `input_matrix`, `servo_constraints`, `stabilizer`, `passive_stabilizer`, `formula`, `free`, `weight`, `pinv`:
      as for `servo_control`.

    **Returns:** a `Servoed` system, whose `control(t, q, v)` is u; of a `Problem`, the problem with it for system
    and no `reference`.

    **Raises:** `InputError` for invalid arguments.
    """
    law = Law(input_matrix, servo_constraints, stabilizer, passive_stabilizer, formula, free, weight, pinv)
    require_instance("system", system, (AbstractSystem, Problem), "uk.models.scara()")
    if isinstance(system, Problem):
        return dataclasses.replace(system, system=Servoed(system.system, law), reference=None)
    return Servoed(system, law)
