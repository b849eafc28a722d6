"""The Udwadia-Kalaba equation level by level: a Kalman filter measuring constraints (Orsino 2017, section 4).

With W = L^-1 of M = L L^T, H~ = A~ W^T and x = L^T a, each level corrects what the levels below it gave:

    K = P H~^T (H~ P H~^T + R)^+,    x <- x + K (b~ - H~ x),    P <- (I - K H~) P    (eqs. (4.14)-(4.18))

from x = W (Q + c) and P = I: `_kalman`.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple, final

import equinox as eqx
import jax.numpy as jnp
import lineax as lx
import numpy as np
from jaxtyping import Array, Float

from ..._compiler import compile_small
from ..._misc._arguments import require_instance, whole_number
from ..._misc._errors import InputError
from ..._misc._types import Numbers, Time
from ..._pseudoinverse import AbstractPseudoinverse, GramSchmidt, as_pseudoinverse, inverse_cholesky
from ..._pseudoinverse import pinv as pseudoinverse
from ..._pseudoinverse._kernels import dot
from ..._system._constraint import AbstractConstraint
from ..._system._problem import Problem, resolve_state
from ..._system._stabilize import AbstractStabilizer, NoStabilizer
from ..._system._system import AbstractForwardingSystem, AbstractSystem
from .._acceleration import AbstractFormula, Acceleration, Equations, equations_of_motion
from ._kalman import Enforced, as_clearance, clearance_root, recursion, with_block, with_clearance
from ._levels import Levels, Module, as_levels, as_modules, blocks, row_levels

Clearance = Array | Mapping[str, Array] | None


class _Recursion(NamedTuple):
    """A finished recursion in z = (x, e): what each level gave, and the numbers of the rows enforced by then."""

    equations: Equations
    W: Float[Array, "n n"]
    H: Float[Array, "m k"]
    z0: Float[Array, " k"]
    states: list[Enforced]
    enforced: list[np.ndarray]

    def acceleration(self, level: int, method: AbstractPseudoinverse) -> Acceleration:
        """What follows from x: a = W^T x, and the constraint force M W^T (x - x0) + c."""
        M, rows, state = self.equations.M, self.equations.rows, self.states[level]
        dz = state.x - self.z0
        n, index = M.shape[0], self.enforced[level]
        a = dot(self.W.T, state.x[:n])
        multipliers = dot(pseudoinverse(self.H[index], method).matrix.T, dz)
        return Acceleration(
            a=a,
            constraint_force=dot(M, dot(self.W.T, dz[:n])) + self.equations.c,
            multipliers=jnp.zeros_like(rows.b).at[index].set(multipliers),
            rank=state.rank,
            residual=dot(rows.A, a) - rows.b,
            gauss=dot(dz[:n], dz[:n]),
            unique=jnp.array(True),
        )


@final
class Recursive(AbstractFormula):
    """The Udwadia-Kalaba equation enforced level by level; needs M > 0 (Orsino 2017, eq. (4.14)).

    Without clearance it is the acceleration of `UdwadiaKalaba` for consistent rows; where rows contradict each
    other, lower levels are kept and higher ones satisfied as well as that allows. `recursive_levels` gives the
    acceleration after each level, and `at_level` the model of a level as a system of its own.

    A clearance R makes a row yield to its force: A a = b - R lambda, lambda being its multiplier. With Baumgarte's
    stabilization, psi' + alpha psi + beta phi = -R lambda, the joint is a spring and damper in series with
    an inertia: it gives phi = -R lambda / beta at rest, so its stiffness is beta / R and its damping alpha / R. It
    also makes the multipliers of redundant rows unique. Derivatives by R need R > 0.

    Multipliers are the least ones of all rows together, found by one more pseudoinverse where they are asked for.

    **Arguments:**

    - `levels`: names of constraints, a tuple for each level, the lowest first; each constraint in one level. By
      default every constraint is a level, in order.
    - `clearance`: R, the acceleration error a row has per unit of its force: None (exact), a scalar, one per row
      (m,), a symmetric positive semidefinite matrix (m, m) where the errors of rows are correlated, or a dict of such by
      constraint name, the others being exact. In units of A M^-1 A^T: for a joint measured in metres [1/kg], for one
      measured in radians [1/(kg m^2)].
    - `pinv`: a pseudoinverse method that handles dependent rows, or a lineax solver.
    - `modules`: the parts the lowest levels leave apart, as `find_modules` gives them: `Module`s, or pairs of numbers
      of velocities and names of constraints. Those of one size are computed as one batch. Rows of a module that
      touch velocities of another give NaN.

    **Raises:** `InputError` for a name given twice and a clearance that is negative or no covariance; in use, for a name
    that is no constraint's and for a constraint left out.
    """

    levels: Levels | None = eqx.field(static=True)
    clearance: Clearance
    pinv: AbstractPseudoinverse
    modules: tuple[Module, ...] = eqx.field(static=True)
    needs_definite_mass: ClassVar[bool] = True

    def __init__(
        self,
        levels: Sequence[Sequence[str]] | None = None,
        clearance: Array | float | Mapping[str, Array | float] | None = None,
        pinv: AbstractPseudoinverse | lx.AbstractLinearSolver = GramSchmidt(),
        modules: Sequence[Module | tuple[Sequence[int], Sequence[str]]] = (),
    ):
        self.levels = as_levels(levels)
        if isinstance(clearance, Mapping):
            self.clearance = {name: as_clearance(value, f"'{name}'") for name, value in clearance.items()}
        else:
            self.clearance = None if clearance is None else as_clearance(clearance, "the rows")
        self.pinv = as_pseudoinverse(pinv)
        self.modules = as_modules(modules)

    def _soft(
        self, names: Sequence[str], known: dict[str, list[int]], dtype: jnp.dtype
    ) -> tuple[Float[Array, "m m"] | None, list[int]]:
        """R^1/2, and which rows have a clearance; (None, []) where all are exact."""
        if self.clearance is None:
            return None, []
        if not isinstance(self.clearance, Mapping):
            return clearance_root(self.clearance, len(names), "the rows", dtype), list(range(len(names)))
        root, soft = jnp.zeros((len(names), len(names)), dtype), []
        for name, value in self.clearance.items():
            if name not in known:
                raise InputError(f"clearance names '{name}'; the constraints are {', '.join(known)}.")
            rows = known[name]
            root = with_block(root, rows, clearance_root(value, len(rows), f"'{name}'", dtype))
            soft += rows
        return root, soft

    def _recurse(self, equations: Equations) -> "_Recursion":
        rows = equations.rows
        levels, known = row_levels(self.levels, rows.names)
        root, soft = self._soft(rows.names, known, rows.A.dtype)
        W = inverse_cholesky(equations.M)
        H = with_clearance(dot(rows.A, W.T), root, soft)
        free = dot(W, equations.Q + equations.c)
        z0 = jnp.concatenate([free, jnp.zeros(len(soft), free.dtype)])
        # Without any rows there is one level without rows.
        levels = levels or [[]]
        enforced = itertools.accumulate(levels)
        parts = blocks(self.modules, levels, known, soft, free.size)
        states = recursion(H, rows.b, z0, levels, self.pinv, parts)
        return _Recursion(equations, W, H, z0, states, [np.asarray(rows, int) for rows in enforced])

    def solve_levels(self, equations: Equations) -> tuple[Acceleration, ...]:
        """The acceleration after each level, the lowest first; the last is that of `solve`.

        Residuals are those of all rows, also of the levels not enforced yet; multipliers of those are zero.
        """
        recursed = self._recurse(equations)
        return tuple(recursed.acceleration(level, self.pinv) for level in range(len(recursed.states)))

    def solve(self, equations: Equations) -> Acceleration:
        return self._recurse(equations).acceleration(-1, self.pinv)


@compile_small
def _level_accelerations(
    formula: Recursive, system: AbstractSystem, t: Array, q: Array, v: Array, stabilizer: AbstractStabilizer
) -> tuple[Acceleration, ...]:
    return formula.solve_levels(equations_of_motion(system, t, q, v, stabilizer))


def recursive_levels(
    system: AbstractSystem | Problem,
    t: Time | float | None = None,
    q: Numbers | None = None,
    v: Numbers | None = None,
    *,
    formula: Recursive = Recursive(),
    stabilizer: AbstractStabilizer = NoStabilizer(),
) -> tuple[Acceleration, ...]:
    """The acceleration of the model of every level at one state (Orsino 2017, eq. (4.14)).

    **Arguments:**

    - `system`: the mechanical system, or a `Problem`, which brings what is not given.
    - `t`: time [s].
    - `q`: generalized coordinates (n_q,).
    - `v`: generalized velocities (n,).
    - `formula`: a `Recursive` with the levels.
    - `stabilizer`: gives the b to enforce.

    **Returns:** an `Acceleration` for each level, the lowest first.

    **Raises:** `InputError` as `Recursive.acceleration`.
    """
    system, t, q, v = resolve_state(system, t, q, v)
    require_instance("stabilizer", stabilizer, AbstractStabilizer, "NoStabilizer()")
    if not isinstance(formula, Recursive):
        raise InputError(f"formula must be a Recursive, which has levels; got {type(formula).__name__}.")
    return _level_accelerations(formula, system, t, q, v, stabilizer)


@final
class AtLevel(AbstractForwardingSystem):
    """A system under some of its constraints; all else is the system's own."""

    system: AbstractSystem
    kept: frozenset[str] = eqx.field(static=True)

    @property
    def constraints(self) -> tuple[AbstractConstraint, ...]:
        return tuple(c for c in self.system.constraints if c.name in self.kept)


def at_level(system: AbstractSystem, levels: Sequence[Sequence[str]], level: int) -> AbstractSystem:
    """The model of one level of a hierarchy, to be simulated like any system (Orsino 2017, section 2).

    It has the same variables, mass matrix and forces, and the constraints of the levels up to that one.

    **Arguments:**

    - `system`: the system with all constraints.
    - `levels`: names of constraints, a tuple for each level, the lowest first.
    - `level`: how many levels to enforce: 0 for none, up to all.

    **Returns:** the system.

    **Raises:** `InputError` for names that are not constraints' and a level there is not.
    """
    require_instance("system", system, AbstractSystem, "uk.models.pendulum().system")
    levels_ = as_levels(levels) or ()
    level = whole_number("level", level, 0)
    names = [c.name for c in system.constraints]
    for name in (name for level_ in levels_ for name in level_):
        if name not in names:
            raise InputError(f"levels names '{name}'; the constraints are {', '.join(names)}.")
    if level > len(levels_):
        raise InputError(f"level must lie between 0 and {len(levels_)}, got {level}.")
    kept = {name for level_ in levels_[:level] for name in level_}
    return AtLevel(system, frozenset(kept))
