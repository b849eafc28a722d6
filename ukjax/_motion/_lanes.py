"""A system as scalar code: traced, interpreted, solved and written out again as one program over numbers."""

from collections import Counter
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._compiler._structured._scalarize import scalarize
from .._formula._acceleration import AbstractFormula
from .._formula._equations import with_dense_mass
from .._misc._arguments import real_array, require_instance
from .._misc._closures import Static, combine_static, equal_to_itself, hoist_tracers, partition_static
from .._misc._errors import InputError
from .._misc._types import Coordinates, Time, Velocities
from .._pseudoinverse import GramSchmidt
from .._system._constraint import require_bilateral
from .._system._problem import Problem
from .._system._stabilize import AbstractStabilizer, NoStabilizer
from .._system._system import AbstractSystem
from ._acceleration_code import AccelerationProgram, compile_acceleration


@final
@equal_to_itself
class Lanes(eqx.Module):
    """The acceleration of a system as scalar code, made by `lanes`. Called with a batch it gives one result a member.

    - `system`, `stabilizer`: what it computes.
    - `how`: by a formula, or by L D L^T with a threshold; None for the default one.
    """

    system: AbstractSystem
    how: AbstractFormula | float | None
    stabilizer: AbstractStabilizer

    def one(self, t: Time, q: Coordinates, v: Velocities) -> Velocities:
        """The acceleration (n,) of one state, for use inside `jit`, `vmap` and the like.

        **Arguments:**

        - `t`: time [s].
        - `q`: generalized coordinates (n_q,).
        - `v`: generalized velocities (n,).

        **Raises:** `TranslationError`.
        """
        t, q, v = _state(t, q, v)
        code = compile_acceleration(self.system, self.how, self.stabilizer, t, q, v)
        return _acceleration(code, self, code.numbers(self.system, self.stabilizer), t, q, v)

    def operations(self, t: Time | float, q: Coordinates, v: Velocities) -> dict[str, int]:
        """How many operations of each kind one acceleration is written in; those of a loop count once.

        **Arguments:** as `one`.
        """
        t, q, v = _state(t, q, v)
        code = compile_acceleration(self.system, self.how, self.stabilizer, t, q, v)
        if code.unsolved:
            numbers, applied = code.numbers(self.system, self.stabilizer), code.applied(self.system, t, q, v)
            return _with_loops.operations(*partition_static((self.how, code)), numbers, t, q, v, *applied)
        return dict(Counter(code.program.operations()))

    def __call__(
        self, t: Float[Array, "..."] | float, q: Float[Array, "batch nq"], v: Float[Array, "batch n"]
    ) -> Float[Array, "batch n"]:
        """The accelerations of a batch.

        **Arguments:**

        - `t`: time [s], one for all or one for each (batch,).
        - `q`: generalized coordinates (batch, n_q).
        - `v`: generalized velocities (batch, n).

        **Returns:** a (batch, n).
        """
        t, q, v = _state(t, q, v)
        if q.ndim != 2 or v.ndim != 2 or q.shape[0] != v.shape[0] or t.shape not in ((), q.shape[:1]):
            raise InputError(
                f"t, q and v have shapes {t.shape}, {q.shape} and {v.shape}; they must be () or (batch,), "
                f"(batch, n_q) and (batch, n)."
            )
        one = (jax.ShapeDtypeStruct(shape, q.dtype) for shape in ((), q.shape[1:], v.shape[1:]))
        return _accelerations(
            compile_acceleration(self.system, self.how, self.stabilizer, *one), self, t, q, v
        )


@scalarize
def _with_loops(
    of: Static, arrays: Any, numbers: Array, t: Array, q: Array, v: Array, *applied: Array
) -> Array:
    formula, code = combine_static(of, arrays)
    near = jnp.full_like(t, jnp.inf)
    return formula.solve(with_dense_mass(code.equations(numbers, t, q, v, *applied, near))).a


def _acceleration(
    code: AccelerationProgram, lanes: Lanes, numbers: Array, t: Array, q: Array, v: Array
) -> Array:
    applied = code.applied(lanes.system, t, q, v)
    if code.unsolved:
        return _with_loops(*partition_static((lanes.how, code)), numbers, t, q, v, *applied)
    return code(numbers, t, q, v, *applied)


@eqx.filter_jit
def _accelerations(code: AccelerationProgram, lanes: Lanes, t: Array, q: Array, v: Array) -> Array:
    # Batch last: each scalar of the program is a contiguous vector over the batch.
    numbers = code.numbers(lanes.system, lanes.stabilizer)
    one = jax.vmap(lambda t, q, v: _acceleration(code, lanes, numbers, t, q, v), (0, 1, 1), 1)
    return one(jnp.broadcast_to(t, q.shape[:1]), q.T, v.T).T


def _state(t: Array | float, q: Array, v: Array) -> tuple[Array, Array, Array]:
    q, v = real_array("q", q), real_array("v", v)
    return real_array("t", t).astype(q.dtype), q, v


def lanes(
    system: AbstractSystem | Problem,
    formula: AbstractFormula | None = None,
    *,
    stabilizer: AbstractStabilizer = NoStabilizer(),
    rcond: float | None = None,
) -> Lanes:
    """The acceleration of a system as straight scalar code over a batch: the fast path.

    The system is traced as it stands, every array of it taken apart into numbers, structural zeros and constants folded
    away, and M = L D L^T and A M^-1 A^T = L D L^T factored in an order of low fill-in. What is left has no small matrix,
    and no loop but those of your own functions that end by a condition. It runs on vectors of a number of each member.

    The result equals that of the formulas for consistent rows, of any rank. Of inconsistent rows it meets an independent
    set, where a formula spreads the error over all. With a formula given it is that, by its own method, which takes
    several times as many operations, in loops.

    **Arguments:**

    - `system`: the mechanical system, or a `Problem`.
    - `formula`: any; by default L D L^T.
    - `stabilizer`: gives the b to enforce.
    - `rcond`: the rank rule's threshold of L D L^T; by default 1e-4, in float32 0.03.

    **Returns:** f(t, q, v) -> a with q (batch, n_q), v (batch, n), a (batch, n); for use under `jit`, `vmap` and
    differentiation as well.

    **Raises:** `InputError`; and on the first call `TranslationError` for a system or formula whose functions use what
    scalar code cannot do, such as callbacks and checks that raise; or, where LLVM does not compile, for more
    than 10,000 operations. `Untranslatable` for a formula's own operations that no program of scalars has.
    """
    system = system.system if isinstance(system, Problem) else system
    require_instance("system", system, AbstractSystem, "uk.models.pendulum().system")
    require_bilateral("lanes", system.constraints)
    require_instance("stabilizer", stabilizer, AbstractStabilizer, "Baumgarte(1.0, 10.0)")
    if formula is None:
        return Lanes(
            hoist_tracers(system), rcond if rcond is None else GramSchmidt(rcond).threshold(None), stabilizer
        )
    require_instance("formula", formula, AbstractFormula, "UdwadiaKalaba()")
    if rcond is not None:
        raise InputError(
            "rcond is that of L D L^T; a formula's is given to its method, as in SVD(rcond=1e-6)."
        )
    return Lanes(hoist_tracers(system), formula, stabilizer)
