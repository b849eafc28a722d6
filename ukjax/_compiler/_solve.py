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
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import jax.numpy as jnp
import numpy as np

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
from ._factors import Factors, Taken, factor, factor_mass_matrix, order_of, product, solve_by_factors
from ._scalars import (
    Builder,
    Expression,
    TranslationError,
    Vector,
    dot,
    entries,
    is_zero,
    largest,
    minus,
    plus,
    times,
    without_noise,
)


@final
class Mass:
    """M = L D L^T, factored once.

    - `factors`: L and 1 / D.
    - `definite`: whether M is positive definite.

    **Arguments:**

    - `build`: makes the expressions.
    - `M`: mass matrix (n, n), by its entries or as that of a tree.
    - `rounding`: a pivot at most this much of its diagonal entry counts as zero.
    """

    def __init__(self, build: Builder, M: np.ndarray | TreeInertia, rounding: float):
        self.build, self.definite, self._rounding = build, True, rounding
        self._seen: list[Expression] = []
        self.factors = factor_mass_matrix(build, M, self._positive)

    def _positive(self, pivot: Expression, diagonal: Expression) -> Expression:
        least = 0.0 if pivot is diagonal else self.build.apply("mul", self._rounding, diagonal)
        above = self.build.apply("gt", pivot, least)
        if above not in self._seen:
            self._seen.append(above)
            self.definite = self.build.apply("and", self.definite, above)
        return self.build.apply("div", 1.0, self.build.apply("select", above, pivot, 1.0))


def _gram(build: Builder, left: Sequence[Any], right: Sequence[Any]) -> np.ndarray:
    """The symmetric matrix of products of rows, given by their entries."""
    X = np.empty((len(left), len(left)), object)
    for i, row in enumerate(left):
        for j in range(i + 1):
            X[i, j] = X[j, i] = build.dot(row, right[j])
    return X


def _off_diagonal(M: np.ndarray) -> np.ndarray:
    """Which entries off the diagonal are not structurally zero."""
    return ~np.eye(len(M), dtype=bool) & ~np.vectorize(is_zero, otypes=[bool])(M)


def _noise(build: Builder, X: np.ndarray, eps: float) -> Expression:
    """What rows leave that are small enough beside the largest to be nothing but rounding."""
    larger = lambda x, y: y if is_zero(x) else build.apply("max", x, y)
    return build.apply("mul", (ROW_NOISE * eps) ** 2, functools.reduce(larger, np.diag(X), 0.0))


def _rule(build: Builder, X: np.ndarray, rcond: Expression, eps: float) -> Callable[..., Expression]:
    """1 / D_i of a row, or zero if it depends on those before it, by the rank rule or as far as rounding can tell."""
    apply, noise, sine = build.apply, _noise(build, X, eps), build.apply("max", eps, rcond)
    square = apply("mul", sine, sine)

    def invert(pivot: Expression, i: int, taken: Taken) -> Expression:
        least = noise
        if taken:
            carried = (apply("mul", x, apply("mul", X[j, j], inverse)) for j, (x, inverse) in taken.items())
            most = apply("max", least, apply("mul", ROUNDING * eps, build.total(carried)))
            least = apply("max", most, apply("mul", square, X[i, i]))
        return build.inverse(pivot, apply("gt", pivot, least))

    return invert


@final
class Solver:
    """Solves M a - A^T lambda = f, A a = b for scalars, M and A being factored once.

    **Arguments:**

    - `build`: makes the expressions.
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
        build: Builder,
        M: np.ndarray | TreeInertia,
        A: np.ndarray,
        rcond: Expression,
        eps: float,
        or_in_metric: Expression = False,
    ):
        mass = Mass(build, M, A.shape[1] * eps)
        self.build, self.definite, self.mass = build, mass.definite, mass.factors
        self.W = [self.mass.forward(build, row) for row in A]
        self.scaled = [
            [build.apply("mul", d, w) for d, w in zip(self.mass.inverse, row, strict=True)] for row in self.W
        ]
        S = _gram(build, list(map(entries, self.W)), list(map(entries, self.scaled)))
        self.S, self.noise = S, _noise(build, S, eps)
        self._order = order_of(S)  # of both factorizations, so that both tell the same row of a dependent set
        self._eps, self._shape = eps, A.shape
        # What `_factor_by_rows` takes, as a list: branches are given values.
        self._by_rows: Vector = [*S.reshape(-1), *A.reshape(-1), rcond, or_in_metric]
        self.quick: Factors | None = None
        # With as many rows as velocities, some depend on others in all that moves.
        if isinstance(M, np.ndarray) and 2 < len(S) < len(M) and not np.any(_off_diagonal(M)):
            self.quick = factor(build, S, lambda pivot, *_: build.apply("div", 1.0, pivot), self._order)
            self.exact, self._independent = self._judge(self.quick, np.diag(M), rcond)
            self.undecided = [*self._by_rows, self._independent, *self.quick.values()]
        elif len(S) == 1:  # left out only if it is zero
            self.schur = factor(build, S, lambda x, *_: build.inverse(x, build.apply("gt", x, 0.0)))
            self.lost = 0.0
        else:
            self.schur, self.lost = self._factor_by_rows(self._by_rows)

    def _judge(self, quick: Factors, M: np.ndarray, rcond: Expression) -> tuple[Expression, Expression]:
        """Whether multipliers need no refinement, and whether masses M and pivots tell that rows are independent in A.

        With masses from m to m', pivots of A A^T are at least m times those of S, diagonal entries at most m' times. So
        no row is left out whose pivot is above m' / m times what the rule asks of the square of the sine. Rounding is
        below that: of what the pivots before leave, ROUNDING EPS over that square. Squares of inverse sines are at least
        1, so that their sum bounds the largest.
        """
        apply, total, eps = self.build.apply, self.build.total, self._eps
        lightest, heaviest = (
            functools.reduce(lambda x, y: apply(op, x, y), dict.fromkeys(M)) for op in ("min", "max")
        )
        sine, rounding = apply("max", eps, rcond), max(REFINED * eps**0.5, (ROUNDING * eps) ** 0.5)
        least = apply("mul", 4.0, apply("max", rounding, apply("mul", sine, sine)))
        noise = apply("mul", (ROW_NOISE * eps) ** 2 / (4 * rounding), total(np.diag(self.S)))
        pairs = zip(quick.order, quick.inverse, strict=True)
        inverse_squares = (apply("mul", apply("add", self.S[i, i], noise), inverse) for i, inverse in pairs)
        growth = total(apply("abs", x) for x in inverse_squares)
        of_heaviest = apply("mul", apply("mul", least, heaviest), apply("sub", growth, len(self.S) - 1.0))
        independent = apply("and", self.definite, apply("lt", of_heaviest, lightest))
        return apply("and", independent, apply("le", growth, WELL_CONDITIONED)), independent

    def decide(
        self, quick: Factors, there: Callable[[Expression], Expression] = lambda x: x
    ) -> tuple[Factors, Expression]:
        """The factors, and how many rows are lost: by rows only where quick ones leave open that all are independent.

        `there` gives what stands for what is `undecided` where that is to run.
        """
        quick = quick.with_values(map(there, quick.values()))
        given = list(map(there, self._by_rows))

        def by_rows(there: Callable[[Expression], Expression]) -> Vector:
            factors, lost = self._factor_by_rows(list(map(there, given)))
            return [*factors.values(quick), lost]

        *values, lost = self.build.unless(there(self._independent), [*quick.values(), 0.0], given, by_rows)
        return quick.with_values(values), lost

    @functools.cached_property
    def schur(self) -> Factors:
        """The factors of S, where they were not found along with the acceleration."""
        assert self.quick
        factors, self.lost = self.decide(self.quick)
        return factors

    def _factor_by_rows(self, given: Vector) -> tuple[Factors, Expression]:
        """The factors of S, and how many rows are lost: A decides, for rows of a light body, independent in A, are nearly
        parallel in the metric of M^-1."""
        build, apply, eps, (m, n) = self.build, self.build.apply, self._eps, self._shape
        *entries_of, rcond, or_in_metric = given
        S = np.array(entries_of[: m * m], object).reshape(m, m)
        A = np.array(entries_of[m * m :], object).reshape(m, n)
        rows = list(map(entries, A))
        angles = _gram(build, rows, rows)
        factors = factor(build, angles, _rule(build, angles, rcond, eps), self._order)
        inverse = dict(zip(factors.order, factors.inverse, strict=True))
        kept = {i: apply("ne", x, 0.0) for i, x in inverse.items()}
        in_metric = _rule(build, S, rcond, eps)
        lost: list[Expression] = []

        def invert(pivot: Expression, i: int, taken: Taken) -> Expression:
            size = S[i, i]
            known = apply("gt", pivot, apply("mul", ROUNDING * eps, size))
            # By how much less the row is independent in the metric of M^-1.
            inverse_square = apply("mul", angles[i, i], inverse[i])
            exact = apply("gt", apply("mul", pivot, inverse_square), apply("mul", REFINED * eps**0.5, size))
            unknown = apply("and", kept[i], apply("not", apply("and", exact, known)))
            lost.append(apply("select", unknown, 1.0, 0.0))
            stays = apply("and", or_in_metric, apply("ne", in_metric(pivot, i, taken), 0.0))
            return build.inverse(pivot, apply("or", apply("and", kept[i], known), stays))

        return factor(build, S, invert, self._order), build.total(lost)

    def free(self, f: Sequence[Expression]) -> Vector:
        """x = L^T a, were there no rows."""
        z = self.mass.forward(self.build, f)
        return [self.build.apply("mul", d, x) for d, x in zip(self.mass.inverse, z, strict=True)]

    def short(self, b: Sequence[Expression], x: Sequence[Expression]) -> Vector:
        """What the rows lack, b - A a."""
        return minus(self.build, b, times(self.build, self.W, x))

    def multipliers(self, lacking: Sequence[Expression]) -> Vector:
        """The multipliers that give the rows what they lack."""
        return solve_by_factors(self.build, self.schur, lacking)

    def pushed(self, x: Sequence[Expression], multipliers: Sequence[Expression]) -> Vector:
        """x with the multipliers' part added."""
        if not self.W:
            return list(x)
        return plus(self.build, x, times(self.build, zip(*self.scaled, strict=True), multipliers))

    def back(self, x: Sequence[Expression]) -> Vector:
        """a of x."""
        return self.mass.backward(self.build, x)

    def kept(self) -> Vector:
        """Which rows are not left out."""
        marks: Vector = [0.0] * len(self.W)
        for i, inverse in zip(self.schur.order, self.schur.inverse, strict=True):
            marks[i] = self.build.number(self.build.apply("ne", inverse, 0.0))
        return marks

    def dependency(self, e: Sequence[Expression]) -> Vector:
        """z with A^T z = 0, whose entries are `e` in the rows left out; refined once, as the acceleration is."""
        z = list(e)
        for _ in range(2):
            z = minus(self.build, z, self.multipliers(self.effect(z)))
        return z

    def effect(self, multipliers: Sequence[Expression]) -> Vector:
        """What multipliers give the rows, A M^-1 A^T lambda."""
        return times(self.build, self.W, times(self.build, zip(*self.scaled, strict=True), multipliers))

    def nearness(self) -> Expression:
        """How close to singular the rows are: the largest inverse sine of an angle between one and those before it, in
        the metric of M^-1, by which accelerations grow."""
        apply = self.build.apply
        pairs = zip(self.schur.order, self.schur.inverse, strict=True)
        return apply(
            "sqrt", largest(self.build, [apply("mul", self.S[i, i], inverse) for i, inverse in pairs])
        )

    def some_depend(self) -> Expression:
        """Whether some rows depend on others; those that are rounding do not."""
        apply = self.build.apply
        pairs = zip(self.schur.order, self.schur.inverse, strict=True)
        left_out = [
            apply("and", apply("eq", x, 0.0), apply("gt", self.S[i, i], self.noise)) for i, x in pairs
        ]
        return functools.reduce(lambda x, y: apply("or", x, y), left_out, False)

    def frozen(self) -> "Solver":
        """The same solver, constant to a differentiation."""
        solver, freeze = copy.copy(self), self.build.frozen
        solver.mass, solver.schur = self.mass.frozen(self.build), self.schur.frozen(self.build)
        solver.W, solver.scaled = ([freeze(row) for row in rows] for rows in (self.W, self.scaled))
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
    build = solver.build
    free = solver.free(f)
    lacking = solver.short(b, free)
    quick = None if refined_by else solver.quick

    def once(schur: Factors, lacking: Vector, free: Vector) -> tuple[Vector, Vector]:
        multipliers = solve_by_factors(build, schur, lacking)
        return solver.pushed(free, multipliers), multipliers

    def refine(schur: Factors, x: Vector, first: Vector) -> tuple[Vector, Vector]:
        second = solve_by_factors(build, schur, minus(build, b, times(build, A, solver.back(x))))
        return solver.back(solver.pushed(x, second)), plus(build, first, second)

    def where_definite(a: Vector, definite: Expression) -> Vector:
        return [build.apply("select", definite, x, float("nan")) for x in a]

    def decide(there: Callable[[Expression], Expression]) -> Vector:
        assert quick
        schur, lost = solver.decide(quick, there)
        a, multipliers = refine(schur, *once(schur, list(map(there, lacking)), list(map(there, free))))
        return [*where_definite(a, there(solver.definite)), *multipliers, *schur.values(schur), lost]

    if quick:
        x, first = once(quick, lacking, free)
        values = [*solver.back(x), *first, *quick.values(), 0.0]
        found = build.unless(
            solver.exact, values, [*lacking, *free, *solver.undecided, solver.definite], decide
        )
        a, multipliers, factors = found[: len(x)], found[len(x) :][: len(b)], found[len(x) + len(b) : -1]
        solver.schur, solver.lost = quick.with_values(factors), found[-1]
    else:
        a, multipliers = once(solver.schur, lacking, free)
        if len(b) > 1 or refined_by:  # a row alone is as far from dependent as it can be
            a, multipliers = refine((refined_by or solver).schur, a, multipliers)
        else:
            a = solver.back(a)
        if not refined_by:
            a = where_definite(a, solver.definite)
    still, multipliers = solver.frozen(), build.frozen(multipliers)
    held = build.frozen(a)
    force = times(build, A.T, multipliers) if len(A) else [0.0] * len(a)
    free = still.free(minus(build, plus(build, f, force), product(build, M, held)))
    lacking = still.short(minus(build, b, times(build, A, held)), free)
    change = still.back(still.pushed(free, still.multipliers(lacking)))
    return [build.apply("attached", *pair) for pair in zip(a, change, strict=True)], multipliers


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
    dependency: Callable[[Sequence[Expression]], tuple[Vector, Expression]]
    rank: Expression
    lost: Expression = 0.0


def _dependency(
    solver: Solver, A: np.ndarray, b: Vector, a: Vector, eps: float, e: Sequence[Expression]
) -> tuple[Vector, Expression]:
    """As in `Solution`, within rounding: A^T z in the norm of M^-1, beside what each row adds to it."""
    build, apply = solver.build, solver.build.apply
    within = lambda x, limit, part: apply("le", apply("abs", x), apply("mul", part, limit))
    size = lambda x: [apply("abs", entry) for entry in x]
    z = solver.dependency(e)
    squares = [apply("mul", x, x) for x in z]
    vanishes = within(
        dot(build, z, solver.effect(z)), dot(build, squares, np.diag(solver.S)), (EXACT * eps) ** 2
    )
    of_b = plus(build, size(b), times(build, map(size, A), size(a)))  # b is what terms as large as A a leave
    return z, apply("and", vanishes, within(dot(build, z, b), dot(build, size(z), of_b), EXACT * eps))


def acceleration(
    build: Builder,
    M: Any,
    Q: Any,
    A: Any,
    b: Any,
    rcond: Expression,
    eps: float,
    or_in_metric: Expression = False,
) -> Solution:
    """The solution of M a = Q + A^T lambda, A a = b; see the module's docstring."""
    A = without_noise(build, A, eps)
    solver = Solver(build, M, A, rcond, eps, or_in_metric)
    a, multipliers = solve(solver, M, A, list(Q), list(b))
    force = times(build, A.T, multipliers) if len(A) else [0.0] * len(a)
    needed = minus(build, product(build, M, a), Q)
    force = [build.apply("attached", *pair) for pair in zip(force, needed, strict=True)]
    depends = functools.partial(_dependency, solver, A, list(b), a, eps)
    kept = solver.kept()
    return Solution(a, multipliers, force, solver.nearness(), kept, depends, build.total(kept), solver.lost)


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


def solution_by(how: How, build: Builder, e: Equations, near: Expression | None, dtype: Any) -> Solution:
    """The acceleration, and what else is known of it.

    **Raises:** `TranslationError` if there is no such scalar code.
    """
    given = e.M, plus(build, e.Q, e.c), e.rows.A, e.rows.b
    if isinstance(how, type):
        raise TranslationError(f"{how.__name__} has no scalar code")
    if isinstance(how, AbstractPseudoinverse) and len(e.rows.A):
        raise TranslationError(f"{type(how).__name__} has loops")
    rcond, eps = least_of(how), float(jnp.finfo(dtype).eps)
    alike = np.array_equal(e.rows.of_velocities, e.rows.of_accelerations)  # of which `near` is known
    if near is None or not alike or not isinstance(how, StepRelativeRank):
        return acceleration(build, *given, rcond, eps)
    apply = build.apply
    inverse_sine = apply("abs", near)
    start = build.inverse(inverse_sine, apply("gt", inverse_sine, 0.0))  # zero where it is not known
    turned = apply("max", rcond, apply("mul", TURNED_AT_STAGES, apply("mul", start, start)))
    independent = apply("and", apply("gt", near, 0.0), apply("gt", start, 0.0))
    kept = min(rcond, TOLD_BY_POSITIONS * eps**0.5)
    return acceleration(build, *given, apply("select", independent, kept, turned), eps, independent)
