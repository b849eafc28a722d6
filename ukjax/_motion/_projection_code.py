"""Scalar code that projects a state onto the constraints, and the error estimate of the step that led to it.

The positions move by dq = M^-1 J^T mu, with M and J where the step ended, until phi(q + dq) = 0: chord iterations on
mu. With quasi-velocities, q' = N v, they move by dq = E x, E = [N, I - N N^+], x = diag(M, I)^-1 E^T J^T mu: also where
N does not reach, for the length of a quaternion may be a constraint too. Then the velocities move by the same equations
with the rows there. For derivatives the change of (dq, mu) is that of the solution of M dq = J^T mu, phi(q + dq) = 0, in
which the matrices need not be differentiated beyond their product with what is known (see `_solve`).

What the error estimate says along nearly dependent rows is no error, since the projection removes it. With S = A M^-1 A^T
that part is M^-1 A^T (S^+ - (S + delta^2 diag S)^-1) A e: rows count as dependent by their angle to the others, smoothly.

Where M may be singular, M + c J^T J stands for it: the state found is the same, as J dq is what is prescribed.

The same damped matrix, in which no row is left out, solves for what the rows left out lack in the end: where the others
are nearly dependent, these hold them only to rounding over the sine of their angle.
"""

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from .._compiler._expressions import FixedPointIteration, Program, builder_of, run, short_enough
from .._compiler._scalars import (
    Expression,
    Vector,
    attach,
    freeze,
    invert,
    is_zero,
    largest,
    times,
    total,
    where,
    without_noise,
)
from .._compiler._scalars import product as multiply
from .._compiler._structured._trace import Interpreter
from .._compiler._tracing import (
    InputMaker,
    Leaf,
    Structure,
    TracedFunction,
    cached_or_untranslatable,
    leaf,
    numbers,
    read_by,
    rebuild,
    split,
    trace,
)
from .._misc._tolerances import ON_CONSTRAINTS, nearly_dependent
from .._misc._types import Coordinates, Time, Velocities
from .._system._rows import Rows, most_off, position_rows_and_jacobian
from .._system._stabilize import AbstractStabilizer
from .._system._system import AbstractSystem, TreeInertia, has_quasi_velocities
from ._acceleration_code import trace_system
from ._factors import extend_mass_matrix, factor, product, solve_by_factors
from ._solve import Solver, solve

OF_ROWS = 1e-3
"""The size of c J^T J beside M: as large as M it would hide the inertia of a thin rod from float32."""

_ITERATIONS = 2
_REFINEMENTS = 5  # of the change, which converges as fast as the positions do, with no check of its own


class MotionFunctions(NamedTuple):
    """The functions of a system, of expressions.

    - `positions`: q -> phi (h,).
    - `jacobian`: q -> J (h, n_q).
    - `velocities`: q, v -> A (m, n), psi (m,), of the rows that have a velocity error.
    - `inertia`: q -> M (n, n), by its entries or as that of a tree.
    - `rates`: q -> N (n_q, n) of quasi-velocities; None where velocities are those of q.
    - `holonomic`: which rows of `velocities` are those of positions.
    - `singular`: whether M may be singular.
    """

    positions: Callable[[Vector], np.ndarray]
    jacobian: Callable[[Vector], np.ndarray]
    velocities: Callable[[Vector, Vector], tuple[np.ndarray, np.ndarray]]
    inertia: Callable[[Vector], np.ndarray | TreeInertia]
    rates: Callable[[Vector], np.ndarray] | None
    holonomic: tuple[bool, ...]
    singular: bool


class Basis(NamedTuple):
    """Where positions can move to, dq = E x, by a basis.

    - `E`: (n_q, k); None where x is dq.
    - `M`: of x (k, k).
    """

    E: np.ndarray | None
    M: np.ndarray | TreeInertia

    def moved(self, x: Vector) -> Vector:
        """dq."""
        return x if self.E is None else times(self.E, x)

    def reached(self, n: int) -> "Basis":
        """Only those of the velocities (n,)."""
        return self if self.E is None else self._replace(E=self.E[:, :n])

    def seen(self, J: np.ndarray) -> np.ndarray:
        """J E."""
        return J if self.E is None else multiply(J, self.E)


def _basis(N: np.ndarray | None, M: np.ndarray | TreeInertia, dtype: Any) -> Basis:
    """[N, I - N N^+], and M with a unit matrix beside it."""
    if N is None:
        return Basis(None, M)
    gram, rounding = multiply(N.T, N), len(N) * float(jnp.finfo(dtype).eps)
    factors, _ = factor(gram, lambda pivot, size, *_: (invert(pivot, pivot > rounding * size),))
    inverse = np.stack([solve_by_factors(factors, row) for row in N], axis=1)  # N^+
    beyond = np.eye(len(N)).astype(object) - multiply(N, inverse)
    beyond = beyond[:, [not all(map(is_zero, column)) for column in beyond.T]]
    return Basis(np.concatenate([N, beyond], axis=1), extend_mass_matrix(M, beyond.shape[1]))


def _metric(M: np.ndarray | TreeInertia, J: np.ndarray, singular: bool) -> np.ndarray | TreeInertia:
    """M, or M + c J^T J where it may be singular."""
    if not singular or not len(J):
        return M
    M = np.stack([product(M, column) for column in np.eye(J.shape[1]).astype(object)], axis=1)
    size = total(x * x for x in J.flat)
    return M + OF_ROWS * total(np.diag(M)) * invert(size, size > 0.0) * multiply(J.T, J)


class ProjectedPositions(NamedTuple):
    """Positions on their constraints.

    - `q`: the positions (n_q,).
    - `mu`: what moved them (h,).
    - `again`: 1 if more iterations would bring them nearer, else 0.
    - `damped`: the damped solver.
    - `to`: where they could move.
    - `J`: of the rows, where they came from (h, n_q).
    - `error`: of the rows, at most, before the last iteration.
    """

    q: Vector
    mu: Vector
    again: Expression
    damped: Solver
    to: Basis
    J: np.ndarray
    error: Expression


def _apply_multipliers(solver: Solver, multipliers: Vector) -> Vector:
    """M^-1 J^T mu."""
    return solver.back(solver.pushed(np.full(len(solver.mass.order), 0.0, object), multipliers))


def _damp_solver(solver: Solver, delta: float) -> Solver:
    """The same, with S + delta^2 diag S in place of S."""
    damped, S = copy.copy(solver), solver.S.copy()
    for i in range(len(S)):
        S[i, i] = (1 + delta**2) * S[i, i]
    damped.schur = factor(S, lambda pivot, *_: (invert(pivot, pivot > solver.noise),))[0]  # a row may be zero
    return damped


def positions(motion: MotionFunctions, q: Vector, mu: Vector, rcond: float, dtype: Any) -> ProjectedPositions:
    """The projected positions."""
    eps, J = float(jnp.finfo(dtype).eps), motion.jacobian(q)
    to = _basis(None if motion.rates is None else motion.rates(q), motion.inertia(q), dtype)
    rows = without_noise(to.seen(J), eps)
    to = to._replace(M=_metric(to.M, rows, motion.singular))
    solver = Solver(to.M, rows, rcond, eps, or_in_metric=True)
    change, errors = _apply_multipliers(solver, mu), []
    damped = _damp_solver(solver, nearly_dependent(dtype))
    for left in reversed(range(_ITERATIONS)):
        phi = motion.positions(q + to.moved(change))
        errors.append(largest(phi))
        more = solver.multipliers(-phi)
        if not left:
            more = more + damped.multipliers(-phi - times(solver.S, more))
        mu, change = mu + more, change + _apply_multipliers(solver, more)
    moved, (before, after) = q + to.moved(change), errors[-2:]
    rounding = eps * (largest(J.reshape(-1)) * largest(q))
    halved, short = after < 0.5 * before, after * after > rounding * before
    again = where(halved & short, 1.0, 0.0)
    carried = _carry_derivative(motion, (q, moved, change), mu, solver, to, rows)
    return ProjectedPositions(attach(moved, carried), mu, again, damped, to, J, after)


def _carry_derivative(
    motion: MotionFunctions,
    moves: tuple[Vector, Vector, Vector],
    mu: Vector,
    solver: Solver,
    to: Basis,
    rows: np.ndarray,
) -> Vector:
    """What has the derivative of projected positions, given those before and after, and the change x between."""
    q, moved, change = moves
    still, held, force = solver.frozen(), freeze(change), times(rows.T, freeze(mu))
    fixed = to if to.E is None else to._replace(E=freeze(to.E))
    carried = q + fixed.moved(still.back(still.free(force - product(to.M, held))))
    if to.E is not None:
        carried = carried + to.moved(held)
    there = freeze(moved)
    phi, J = motion.positions(there), freeze(motion.jacobian(there))
    for _ in range(_REFINEMENTS):
        error = phi + times(J, carried)
        carried = carried + fixed.moved(_apply_multipliers(still, still.multipliers(-error)))
    return carried


def _strong(solver: Solver, damped: Solver, A: np.ndarray, e: Vector, to: Basis) -> Vector:
    """An error less its part along nearly dependent rows."""
    along = times(A, e)
    weak = solver.multipliers(along) - damped.multipliers(along)
    return e - to.moved(_apply_multipliers(solver, weak))


def projection(
    motion: MotionFunctions,
    state: tuple[Vector, Vector],
    mu: Vector,
    errors: tuple[Vector, Vector],
    rcond: float,
    dtype: Any,
) -> list[Expression]:
    """All of the projection: q, v, mu, how close to singular, whether to iterate on, by how much rows of positions and of
    velocities were off before the last correction, and the errors of q and v.

    How close to singular the rows are is negative where some depend on others, and infinite where they are still off: no
    state near this one obeys them.
    """
    (q, v), settled, kept = state, None, errors[0]
    again: Expression = 0.0
    was_off: Expression = 0.0
    is_off: Expression = 0.0
    limit = lambda x: most_off(dtype) * (1.0 + largest(x))
    if len(mu):
        settled = positions(motion, q, mu, rcond, dtype)
        q, mu, again, was_off = settled.q, settled.mu, settled.again, settled.error
        is_off = where(was_off > limit(q), 1.0, 0.0)
    A, psi = motion.velocities(q, v)
    if not len(psi):
        near = where(is_off > 0.5, math.inf, 0.0)
        return [*q, *v, *freeze([*mu, near, again, was_off, 0.0, *errors[0], *errors[1]])]
    eps = float(jnp.finfo(dtype).eps)
    A = without_noise(A, eps)
    M = _metric(motion.inertia(q), A, motion.singular)
    to = Basis(None, M)
    solver = Solver(M, A, ON_CONSTRAINTS, eps, or_in_metric=True)
    alike = motion.rates is None and all(motion.holonomic)  # the rows of velocities and those of positions
    damped = settled.damped if settled and alike else _damp_solver(solver, nearly_dependent(dtype))
    change, _ = solve(solver, M, A, np.full(len(v), 0.0, object), -psi, damped)
    v = v + change
    short = psi + times(A, change)
    is_off = where(largest(short) > limit(v), 1.0, is_off)
    near = solver.nearness()
    near = where(solver.some_depend(), -near, near)
    near = where(is_off > 0.5, math.inf, near)
    if settled:
        rows, every = A[list(motion.holonomic)], all(motion.holonomic)
        of_q = solver if every else Solver(M, rows, ON_CONSTRAINTS, eps, or_in_metric=True)
        if motion.rates is None:
            kept = _strong(of_q, settled.damped, rows, kept, to)
        else:  # by the same rows: what N does not reach is not nearly dependent
            weak = damped if every else _damp_solver(of_q, nearly_dependent(dtype))
            kept = _strong(of_q, weak, settled.J, kept, settled.to.reached(len(v)))
    told = [*mu, near, again, was_off, largest(psi)]
    rest = [*told, *kept, *_strong(solver, damped, A, errors[1], to)]
    return [*q, *v, *freeze(rest)]


# --- The projection of a step's end as scalar code, and its derivative


class ProjectedStep(NamedTuple):
    """The end of a step, on the constraints.

    - `q`: generalized coordinates (n_q,).
    - `v`: generalized velocities (n,).
    - `errors`: of both, less their parts along nearly dependent rows, if they were given.
    - `nearness`: how close to singular the rows are: grows without bound; negative where some depend on others, infinite
      where they are still off.
    - `violations`: of the rows of positions, and of velocities, at most, before the last correction.
    """

    q: Coordinates
    v: Velocities
    errors: tuple[Coordinates, Velocities] | None
    nearness: Float[Array, ""] | None
    violations: Float[Array, "2"]


@final
class ProjectionCode:
    """The projection of systems of one structure as scalar code.

    - `whole`: the operations, those for error estimates included.
    - `rows`: how many are on positions.
    - `counts`: of the numbers of its operands.
    """

    def __init__(
        self,
        whole: Program,
        leaves: Sequence[Leaf],
        rows: int,
        counts: Sequence[int],
    ):
        self.whole, self.rows, self.counts, self._leaves = whole, rows, counts, leaves

    def numbers(self, system: AbstractSystem, stabilizer: AbstractStabilizer) -> Float[Array, " k"]:
        """The parameters the projection takes, as `Code.numbers`."""
        return numbers(self._leaves, (system, stabilizer), self.whole.dtype)

    def __call__(
        self,
        numbers: Float[Array, " k"],
        t: Time,
        q: Coordinates,
        v: Velocities,
        errors: tuple[Coordinates, Velocities] | None = None,
    ) -> ProjectedStep:
        """The projected end of a step."""
        # Any will do where none are given; those that are no constants have it be one function for LLVM.
        estimates = jnp.concatenate(errors or (q, v))
        found = run(self.whole, numbers, t, q, v, lax.stop_gradient(estimates))
        ends = np.cumsum([q.size, v.size, self.rows, 4, q.size])
        q, v, _, told, *kept = jnp.split(found, ends)
        return ProjectedStep(q, v, None if errors is None else (kept[0], kept[1]), told[0], told[2:])

    def on_host(
        self, numbers: np.ndarray, t: np.ndarray, q: np.ndarray, v: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The projected states, (k, n_q) and (k, n), on NumPy arrays."""
        n_q, n = len(q), len(v)
        found = self.whole.on_host(numbers, t, q, v, np.zeros((n_q + n, 1)))
        return found[:n_q].T, found[n_q : n_q + n].T


def projection_for(
    system: AbstractSystem,
    stabilizer: AbstractStabilizer,
    rcond: float,
    t: Time,
    q: Coordinates,
    v: Velocities,
    *,
    singular: bool = False,
) -> ProjectionCode:
    """The code of a projection, made once for each structure; of one whose mass matrix may be `singular`.

    **Raises:** `TranslationError`.
    """
    leaves, structure = split((system, stabilizer))
    state = tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (t, q, v))
    parameters = tuple(leaf(x, q.dtype) for x in leaves)
    return _write_projection(structure, parameters, state, rcond, has_quasi_velocities(system), singular)


def _functions(
    structure: Structure, avals: tuple[Any, ...], state: tuple[Any, ...], quasi: bool
) -> tuple[list[TracedFunction], Rows]:
    """What `MotionFunctions` are made of, of parameters, t and q, the second to last of v too; and the shapes of the
    rows."""
    rows, masses = trace_system(structure, avals, state)
    at = trace(
        lambda leaves, *of: position_rows_and_jacobian(rebuild(structure, leaves)[0], *of),
        [*avals],
        *state[:2],
    )

    def rates(leaves: list[Array], t: Time, q: Coordinates) -> Array:
        system, _ = rebuild(structure, leaves)
        return jax.jacfwd(system.kinematics, argnums=2)(t, q, jnp.zeros_like(state[2]))

    found = [
        at.part(lambda x: x[0]),
        at.part(lambda x: x[1]),
        masses,
        rows.part(lambda x: (x.A, x.velocity_error)),
    ]
    return found + ([trace(rates, [*avals], *state[:2])] if quasi else []), rows.shapes


@cached_or_untranslatable
def _write_projection(
    structure: Structure,
    leaves: tuple[Leaf, ...],
    state: tuple[Any, ...],
    rcond: float,
    quasi: bool,
    singular: bool,
) -> ProjectionCode:
    functions, known = _functions(structure, tuple(x.aval for x in leaves), state, quasi)
    leaves = read_by(leaves, *(x.program for x in functions))
    build = builder_of(state[1].dtype)
    inputs = InputMaker(build)
    parameters, t = inputs.of(leaves), inputs(())
    interpreter = Interpreter(build.nodes, written_out=True, parameters=inputs.count - 1)
    (n_q,), (n,), (rows,) = state[1].shape, state[2].shape, functions[0].shapes.shape
    counts = [inputs.count - 1, 1, n_q, n, n_q + n, rows]
    q, v, *errors, mu = (inputs((k,)) for k in (n_q, n, n_q, n, rows))

    def evaluated(function: TracedFunction) -> Any:
        return lambda *x: function.numbers_by(build, interpreter, parameters, t, x)

    positions, jacobian, masses, velocities, *rates = map(evaluated, functions)
    of_velocities = lambda *x: tuple(of[known.of_velocities] for of in velocities(*x))
    holonomic = tuple(map(bool, known.of_positions[known.of_velocities]))
    motion = MotionFunctions(
        positions, jacobian, of_velocities, masses, rates[0] if rates else None, holonomic, singular
    )
    dtype = state[1].dtype
    found = projection(motion, (q, v), mu, (errors[0], errors[1]), rcond, dtype)
    again = FixedPointIteration(n_q + n + rows + 1, n_q + n, rows)
    return ProjectionCode(short_enough(Program(build, found, counts, again)), leaves, rows, counts)
