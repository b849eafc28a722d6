"""The acceleration from scalar equations of motion: sparse factorizations in an order of low fill-in.

With M = L D L^T (unit lower L) and the rows w_i = L^-1 A_i^T, the multipliers solve S lambda = b - A M^-1 (Q + c),
S_ij = w_i^T D^-1 w_j, and a = M^-1 (Q + c + A^T lambda). S is factored as L D L^T too. Which rows it leaves out, with
lambda_i = 0, A decides: of A A^T = L D L^T those whose pivot is at most rcond^2 of the diagonal entry, the sine of their
angle to the rows before them being at most rcond; and those whose pivot may be rounding, of the size of L_ij^2 times
that of row j: L is large where a redundant row is told from rows that are nearly dependent themselves. For consistent
rows that is the answer of the pseudoinverse, whatever row of a dependent set is left out. One step of iterative
refinement brings the accuracy from that of the squared condition number of B = A M^-1/2 back to that of B. Where M is
diagonal, as of bodies in absolute coordinates, and the pivots of S tell that rows are clearly independent, a is found
without the decision and without refinement.

Derivatives need no derivative of the factorization. With the residuals r = (Q + A^T lambda - M a, b - A a) and K the
matrix of the equations, the change of (a, lambda) is K^-1 times the change of r with a and lambda held: one more solve
by the same factors.
"""

import copy
import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import jax.numpy as jnp
import numpy as np

from .._compiler._scalars import (
    Expression,
    TranslationError,
    Vector,
    apply,
    as_number,
    as_vector,
    attach,
    differs,
    divide,
    dot,
    entries,
    freeze,
    invert,
    is_zero,
    largest,
    maximum,
    minimum,
    negate,
    sqrt,
    times,
    total,
    unless,
    where,
    without_noise,
)
from .._formula._acceleration import AbstractFormula, Equations
from .._misc._tolerances import (
    EXACT,
    REFINED,
    ROUNDING,
    ROW_NOISE,
    TOLD_BY_POSITIONS,
    TURNED_AT_STAGES,
    WELL_CONDITIONED,
)
from .._pseudoinverse import AbstractPseudoinverse
from .._system._system import TreeInertia
from ._factors import (
    Factors,
    Rule,
    TreeFactors,
    factor,
    factor_mass_matrix,
    order_of,
    product,
    solve_by_factors,
)


def _factor_masses(M: np.ndarray | TreeInertia, rounding: float) -> tuple[Factors | TreeFactors, Expression]:
    """M = L D L^T, by its entries or as that of a tree, and whether it is positive definite.

    A pivot that is at most `rounding` of its diagonal entry counts as zero.
    """
    definite, positive = True, set[Expression]()

    def invert_positive(pivot: Expression, diagonal: Expression) -> Expression:
        nonlocal definite
        above: Expression = pivot > (0.0 if pivot is diagonal else rounding * diagonal)
        if above not in positive:
            positive.add(above)
            definite = definite & above
        return 1.0 / where(above, pivot, 1.0)

    factors = factor_mass_matrix(M, invert_positive)
    return factors, definite


def _gram(left: Sequence[Any], right: Sequence[Any]) -> np.ndarray:
    """The symmetric matrix of products of rows, given by their entries."""
    X = np.empty((len(left), len(left)), object)
    for i, row in enumerate(left):
        for j in range(i + 1):
            X[i, j] = X[j, i] = dot(row, right[j])
    return X


def _off_diagonal(M: np.ndarray) -> np.ndarray:
    """Which entries off the diagonal are not structurally zero."""
    return ~np.eye(len(M), dtype=bool) & ~np.vectorize(is_zero, otypes=[bool])(M)


def _noise(X: np.ndarray, eps: float) -> Expression:
    """What rows leave that are small enough beside the largest to be nothing but rounding."""
    larger = lambda x, y: y if is_zero(x) else maximum(x, y)
    return (ROW_NOISE * eps) ** 2 * functools.reduce(larger, np.diag(X), 0.0)


def _rule(X: np.ndarray, rcond: Expression, eps: float) -> Rule:
    """1 / D_i of a row, or zero if it depends on those before it, by the rank rule or as far as rounding can tell."""
    noise, sine = _noise(X, eps), maximum(eps, rcond)
    square = sine * sine

    def invert_kept(
        pivot: Expression, size: Expression, carried: Callable[[], Expression]
    ) -> tuple[Expression]:
        least = noise
        if not is_zero(by_rounding := carried()):
            least = maximum(maximum(least, ROUNDING * eps * by_rounding), square * size)
        return (invert(pivot, pivot > least),)

    return invert_kept


@final
class Solver:
    """Solves M a - A^T lambda = f, A a = b for scalars, M and A being factored once.

    **Arguments:**

    - `M`: mass matrix (n, n), by its entries or as that of a tree.
    - `A`: constraint Jacobian (m, n).
    - `rcond`: the rank rule's threshold, a number or an expression.
    - `eps`: of the precision.
    - `or_in_metric`: whether rows stay, too, that are independent in the metric of M^-1 by this threshold. Rows of light
      bodies are nearly dependent in that metric only; near a singular position rows are so in both.

    Below, x stands for L^T a, of M = L D L^T.
    """

    def __init__(
        self,
        M: np.ndarray | TreeInertia,
        A: np.ndarray,
        rcond: Expression,
        eps: float,
        or_in_metric: Expression = False,
    ):
        self.mass, self.definite = _factor_masses(M, A.shape[1] * eps)
        self.W = [self.mass.forward(row) for row in A]
        self.scaled = [self.mass.inverse * row for row in self.W]
        S = _gram(list(map(entries, self.W)), list(map(entries, self.scaled)))
        self.S, self.noise = S, _noise(S, eps)
        self._order = order_of(S)  # of both factorizations, so that both tell the same row of a dependent set
        self._eps = eps
        self._by_rows = S, A, rcond, or_in_metric  # what `_factor_by_rows` takes
        self.quick: Factors | None = None
        # With as many rows as velocities, some depend on others in all that moves.
        if isinstance(M, np.ndarray) and 2 < len(S) < len(M) and not np.any(_off_diagonal(M)):
            self.quick = factor(S, lambda pivot, *_: (divide(1.0, pivot),), self._order)[0]
            self.exact, self._independent = self._judge(self.quick, np.diag(M), rcond)
            given = *S.reshape(-1), *A.reshape(-1), rcond, or_in_metric
            self.undecided = [*given, self._independent, *self.quick.values()]
        elif len(S) == 1:  # left out only if it is zero
            self.schur = factor(S, lambda x, *_: (invert(x, x > 0.0),))[0]
            self.lost = 0.0
        else:
            self.schur, self.lost = self._factor_by_rows(*self._by_rows)

    def _judge(self, quick: Factors, M: np.ndarray, rcond: Expression) -> tuple[Expression, Expression]:
        """Whether multipliers need no refinement, and whether masses M and pivots tell that rows are independent in A.

        With masses from m to m', pivots of A A^T are at least m times those of S, diagonal entries at most m' times. So
        no row is left out whose pivot is above m' / m times what the rule asks of the square of the sine. Rounding is
        below that: of what the pivots before leave, ROUNDING EPS over that square. Squares of inverse sines are at least
        1, so that their sum bounds the largest.
        """
        eps = self._eps
        lightest, heaviest = (functools.reduce(of, dict.fromkeys(M)) for of in (minimum, maximum))
        sine, rounding = maximum(eps, rcond), max(REFINED * eps**0.5, (ROUNDING * eps) ** 0.5)
        least = 4.0 * maximum(rounding, sine * sine)
        noise = (ROW_NOISE * eps) ** 2 / (4 * rounding) * total(np.diag(self.S))
        pairs = zip(quick.order, quick.inverse, strict=True)
        growth = total(abs((self.S[i, i] + noise) * inverse) for i, inverse in pairs)
        of_heaviest = least * heaviest * (growth - (len(self.S) - 1.0))
        independent = self.definite & (of_heaviest < lightest)
        return independent & (growth <= WELL_CONDITIONED), independent

    def decide(self, quick: Factors, there: Callable[[Any], Any] = lambda x: x) -> tuple[Factors, Expression]:
        """The factors, and how many rows are lost: by rows only where quick ones leave open that all are independent.

        `there` gives what stands for what is `undecided` where that is to run.
        """
        quick = quick.with_values(there(quick.values()))
        given = list(map(there, self._by_rows))

        def by_rows(there: Callable[[Any], Any]) -> list[Expression]:
            factors, lost = self._factor_by_rows(*map(there, given))
            return [*factors.values(quick), lost]

        asked = [x for part in given for x in np.ravel(part)]
        *values, lost = unless(there(self._independent), [*quick.values(), 0.0], asked, by_rows)
        return quick.with_values(values), lost

    @functools.cached_property
    def schur(self) -> Factors:
        """The factors of S, where they were not found along with the acceleration."""
        assert self.quick
        factors, self.lost = self.decide(self.quick)
        return factors

    def _factor_by_rows(
        self, S: np.ndarray, A: np.ndarray, rcond: Expression, or_in_metric: Expression
    ) -> tuple[Factors, Expression]:
        """The factors of S, and how many rows are lost: A decides, for rows of a light body, independent in A, are nearly
        parallel in the metric of M^-1."""
        eps, rows = self._eps, list(map(entries, A))
        angles = _gram(rows, rows)
        factors, _ = factor(angles, _rule(angles, rcond, eps), self._order)
        inverse = np.full(len(S), 0.0, object)
        inverse[factors.order] = factors.inverse
        in_metric = _rule(S, rcond, eps)

        def invert_kept(
            pivot: Expression,
            size: Expression,
            carried: Callable[[], Expression],
            inverse: Expression,
            inverse_square: Expression,
        ) -> tuple[Expression, Expression]:
            kept, known = differs(inverse, 0.0), pivot > ROUNDING * eps * size
            exact = pivot * inverse_square > REFINED * eps**0.5 * size
            stays = or_in_metric & differs(in_metric(pivot, size, carried)[0], 0.0)
            lost = where(kept & negate(exact & known), 1.0, 0.0)
            return invert(pivot, (kept & known) | stays), lost

        # By how much less a row is independent in the metric of M^-1 than by its angle.
        inverse_squares = np.diag(angles) * inverse
        factors, lost = factor(S, invert_kept, self._order, inverse, inverse_squares)
        return factors, total(x for (x,) in lost)

    def free(self, f: Vector) -> Vector:
        """x = L^T a, were there no rows."""
        return self.mass.inverse * self.mass.forward(f)

    def short(self, b: Vector, x: Vector) -> Vector:
        """What the rows lack, b - A a."""
        return b - times(self.W, x)

    def multipliers(self, lacking: Vector) -> Vector:
        """The multipliers that give the rows what they lack."""
        return solve_by_factors(self.schur, lacking)

    def pushed(self, x: Vector, multipliers: Vector) -> Vector:
        """x with the multipliers' part added."""
        return x + times(zip(*self.scaled, strict=True), multipliers) if self.W else x

    def back(self, x: Vector) -> Vector:
        """a of x."""
        return self.mass.backward(x)

    def kept(self) -> Vector:
        """Which rows are not left out."""
        marks = np.full(len(self.W), 0.0, object)
        for i, inverse in zip(self.schur.order, self.schur.inverse, strict=True):
            marks[i] = as_number(differs(inverse, 0.0))
        return marks

    def dependency(self, e: Vector) -> Vector:
        """z with A^T z = 0, whose entries are `e` in the rows left out; refined once, as the acceleration is."""
        z = e
        for _ in range(2):
            z = z - self.multipliers(self.effect(z))
        return z

    def effect(self, multipliers: Vector) -> Vector:
        """What multipliers give the rows, A M^-1 A^T lambda."""
        return times(self.W, times(zip(*self.scaled, strict=True), multipliers))

    def nearness(self) -> Expression:
        """How close to singular the rows are: the largest inverse sine of an angle between one and those before it, in
        the metric of M^-1, by which accelerations grow."""
        pairs = zip(self.schur.order, self.schur.inverse, strict=True)
        return sqrt(largest([self.S[i, i] * inverse for i, inverse in pairs]))

    def some_depend(self) -> Expression:
        """Whether some rows depend on others; those that are rounding do not."""
        pairs = zip(self.schur.order, self.schur.inverse, strict=True)
        left_out = [apply("eq", x, 0.0) & (self.S[i, i] > self.noise) for i, x in pairs]
        return functools.reduce(operator.or_, left_out, False)

    def frozen(self) -> "Solver":
        """The same solver, constant to a differentiation."""
        solver = copy.copy(self)
        solver.mass, solver.schur = self.mass.frozen(), self.schur.frozen()
        solver.W, solver.scaled = (list(map(freeze, rows)) for rows in (self.W, self.scaled))
        return solver


def solve(
    solver: Solver,
    M: np.ndarray | TreeInertia,
    A: np.ndarray,
    f: Vector,
    b: Vector,
    refined_by: Solver | None = None,
) -> tuple[Vector, Vector]:
    """a of M a = f + A^T lambda, A a = b, with the derivative as in the module's docstring; and lambda, without."""
    free = solver.free(f)
    lacking = solver.short(b, free)
    quick = None if refined_by else solver.quick

    def once(schur: Factors, lacking: Vector, free: Vector) -> tuple[Vector, Vector]:
        multipliers = solve_by_factors(schur, lacking)
        return solver.pushed(free, multipliers), multipliers

    def refine(schur: Factors, x: Vector, first: Vector) -> tuple[Vector, Vector]:
        second = solve_by_factors(schur, b - times(A, solver.back(x)))
        return solver.back(solver.pushed(x, second)), first + second

    def where_definite(a: Vector, definite: Expression) -> Vector:
        return as_vector(where(definite, x, math.nan) for x in a)

    def decide(there: Callable[[Any], Any]) -> list[Expression]:
        assert quick
        schur, lost = solver.decide(quick, there)
        a, multipliers = refine(schur, *once(schur, there(lacking), there(free)))
        return [*where_definite(a, there(solver.definite)), *multipliers, *schur.values(schur), lost]

    if quick:
        x, first = once(quick, lacking, free)
        values = [*solver.back(x), *first, *quick.values(), 0.0]
        found = unless(solver.exact, values, [*lacking, *free, *solver.undecided, solver.definite], decide)
        a, multipliers, factors = map(as_vector, np.split(as_vector(found[:-1]), [len(x), len(x) + len(b)]))
        solver.schur, solver.lost = quick.with_values(factors), found[-1]
    else:
        a, multipliers = once(solver.schur, lacking, free)
        if len(b) > 1 or refined_by:  # a row alone is as far from dependent as it can be
            a, multipliers = refine((refined_by or solver).schur, a, multipliers)
        else:
            a = solver.back(a)
        if not refined_by:
            a = where_definite(a, solver.definite)
    still, multipliers = solver.frozen(), freeze(multipliers)
    held = freeze(a)
    force = times(A.T, multipliers) if len(A) else np.full(len(a), 0.0, object)
    free = still.free(f + force - product(M, held))
    lacking = still.short(b - times(A, held), free)
    change = still.back(still.pushed(free, still.multipliers(lacking)))
    return attach(a, change), multipliers


class Solution(NamedTuple):
    """What solves M a = Q + A^T lambda, A a = b.

    - `a`: acceleration (n,).
    - `multipliers`: lambda (m,), without a derivative; zero for rows left out.
    - `force`: A^T lambda (n,), with the derivative of M a - Q.
    - `nearness`: how close to singular the rows left are.
    - `kept`: which rows were not left out.
    - `dependency`: of the entries of z in the rows left out: z with A^T z = 0, and whether so it is, and b^T z = 0.
    - `rank`: of the rows.
    - `lost`: how many rows are independent in A, of which the metric of M^-1 leaves too little beside rounding: of bodies
      too light for the precision.
    """

    a: Vector
    multipliers: Vector
    force: Vector
    nearness: Expression
    kept: Vector
    dependency: Callable[[Vector], tuple[Vector, Expression]]
    rank: Expression
    lost: Expression = 0.0


def _dependency(
    solver: Solver, A: np.ndarray, b: Vector, a: Vector, eps: float, e: Vector
) -> tuple[Vector, Expression]:
    """As in `Solution`, within rounding: A^T z in the norm of M^-1, beside what each row adds to it."""
    z = solver.dependency(e)
    squares = z * z
    vanishes = abs(dot(z, solver.effect(z))) <= (EXACT * eps) ** 2 * dot(squares, np.diag(solver.S))
    of_b = abs(b) + times(abs(A), abs(a))  # b is what terms as large as A a leave
    return z, vanishes & (abs(dot(z, b)) <= EXACT * eps * dot(abs(z), of_b))


def acceleration(
    M: Any,
    Q: Vector,
    A: np.ndarray,
    b: Vector,
    rcond: Expression,
    eps: float,
    or_in_metric: Expression = False,
) -> Solution:
    """The solution of M a = Q + A^T lambda, A a = b; see the module's docstring."""
    A = without_noise(A, eps)
    solver = Solver(M, A, rcond, eps, or_in_metric)
    a, multipliers = solve(solver, M, A, Q, b)
    force = times(A.T, multipliers) if len(A) else np.full(len(a), 0.0, object)
    force = attach(force, product(M, a) - Q)
    depends = functools.partial(_dependency, solver, A, b, a, eps)
    kept = solver.kept()
    return Solution(a, multipliers, force, solver.nearness(), kept, depends, total(kept), solver.lost)


# --- Which rows of the equations of motion count as dependent on others, by L D L^T


class StepRelativeRank(NamedTuple):
    """The rule of L D L^T at stages of projected steps, by the rows where the step starts.

    There, on the constraints, dependent rows are so but for rounding. At the stages they turn by how far these are off,
    and are no less dependent: taken for independent they stop the motion. So the threshold is the square of the least
    sine of the rows there, times a constant, but at least `least`, and A decides. Where no row depends on others none can
    turn so: rows that are nearly dependent are on their way through a singular position, or to the end of the motion, and
    stay as far as their sines can be told from rounding of positions.
    """

    least: float


How = AbstractPseudoinverse | type[AbstractFormula] | StepRelativeRank | float
"""What B^+ is computed by; the kind of a formula that has none; or the rule of L D L^T, or its threshold."""


def least_of(how: How) -> float:
    """The least threshold of L D L^T; 1 for anything else."""
    if isinstance(how, StepRelativeRank):
        return how.least
    return how if isinstance(how, float) else 1.0


def solution_by(how: How, e: Equations, near: Expression | None, dtype: Any) -> Solution:
    """The acceleration, and what else is known of it.

    **Raises:** `TranslationError` if there is no such scalar code.
    """
    rows: Any = e.rows
    solved: Any = functools.partial(acceleration, e.M, np.add(e.Q, e.c), rows.A, rows.b)
    if isinstance(how, type):
        raise TranslationError(f"{how.__name__} has no scalar code")
    if isinstance(how, AbstractPseudoinverse) and len(e.rows.A):
        raise TranslationError(f"{type(how).__name__} has loops")
    rcond, eps = least_of(how), float(jnp.finfo(dtype).eps)
    alike = np.array_equal(e.rows.of_velocities, e.rows.of_accelerations)  # of which `near` is known
    if near is None or not alike or not isinstance(how, StepRelativeRank):
        return solved(rcond, eps)
    inverse_sine = abs(near)
    start = invert(inverse_sine, inverse_sine > 0.0)  # zero where it is not known
    turned = maximum(rcond, TURNED_AT_STAGES * (start * start))
    independent = (near > 0.0) & (start > 0.0)
    kept = min(rcond, TOLD_BY_POSITIONS * eps**0.5)
    return solved(where(independent, kept, turned), eps, independent)
