"""Servo constraints: the actuator forces that make a system follow rows it would not follow by itself.

With W = L^-1 of M = L L^T for M^-1/2 and x = L^T a, the inputs u act as M a = Q + c + A_p^T lambda + B_u u, where
the passive rows (A_p, b_p) hold whatever u is. So they are eliminated first: with B_p = A_p W^T and
N = I - B_p^+ B_p,

    x = abar + Bbar u,    abar = N W (Q + c) + B_p^+ b_p,    Bbar = N W B_u.

The servo rows (A_s, b_s) then ask for C Bbar u = bbar, with C = A_s W^T and bbar = b_s - C abar, so that

    u = (C Bbar)^+ bbar + [I - (C Bbar)^+ (C Bbar)] s                                  (Liu 2015, eq. (35))

Liu's own step 4 puts a = M^-1/2 (Q + Q_c) and Bbar = M^-1/2 B_u instead, where the passive force Q_c depends on u in
turn. That linear fixed point is solved here too: another u of the same motion.
"""

from collections.abc import Callable
from typing import Any, Literal, final

import equinox as eqx
import jax.numpy as jnp
import lineax as lx
import numpy as np
from jaxtyping import Array, Float, Int

from ..._misc._arguments import all_of, one_of, real_array, require_function, require_instance
from ..._misc._errors import InputError
from ..._misc._precision import in_full_precision
from ..._misc._tolerances import ROW_NOISE
from ..._misc._types import Coordinates, Forces, MassMatrix, Time, Velocities, is_traced
from ..._misc._user_function import call_user_function
from ..._pseudoinverse import AbstractPseudoinverse, as_pseudoinverse, inverse_cholesky, pinv
from ..._system._constraint import AbstractConstraint
from ..._system._rows import Rows, constraint_rows
from ..._system._stabilize import AbstractStabilizer
from ..._system._system import AbstractSystem, System, require_no_friction
from .._acceleration import Equations, UdwadiaKalaba, equations_of_motion, why_not_finite
from ._servo_report import ServoControl

Formula = Literal["eliminate", "paper"]
InputMatrix = Array | Callable[[Time, Coordinates], Array]
"""B_u (n, p), or a function of (t, q) that returns it."""
FreeVector = Array | Callable[[Time, Coordinates, Velocities], Array]
"""s (p,), or a function of (t, q, v) that returns it."""
ServoConstraints = tuple[AbstractConstraint, ...] | list[AbstractConstraint] | AbstractConstraint


@final
class _Reduced(eqx.Module):
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
) -> _Reduced:
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
    return _Reduced(W, x0, abar, C, left, E, Bbar, _without_noise(left @ E, left, E), b_s - C @ abar)


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
        if stabilizer.projection_method is not None:
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
    ) -> tuple[_Reduced, Float[Array, "n p"], Float[Array, " p"], Int[Array, ""]]:
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

    def _by_elimination(self, r: _Reduced, s: Array) -> tuple[Array, Array]:
        inverse, rank = self._inverse(r.effect)
        return s + inverse @ (r.bbar - r.effect @ s), rank

    def _by_paper(self, r: _Reduced, s: Array) -> tuple[Array, Array]:
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
        return text.replace("; RangeForm does not", "") + " Servo control needs M > 0."


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
