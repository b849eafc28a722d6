"""A system as scalar code: traced, interpreted, solved and written out again as one program over numbers."""

from collections import Counter
from typing import NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._acceleration import AbstractFormula, Schur, UdwadiaKalaba, equations_of_motion
from .._arguments import real_array, require_instance
from .._errors import InputError
from .._problem import Problem
from .._pseudoinverse import Lineax
from .._stabilize import AbstractStabilizer, NoStabilizer
from .._system import AbstractSystem
from .._types import Coordinates, Time, Velocities, is_traced
from ._interpret import Interpreter
from ._moves import TranslationError, scalars
from ._scalars import Builder, Expression, evaluate, reachable
from ._solve import acceleration

LARGEST = 3_000
"""More operations than this are not written out: compilation would take minutes."""


class _Program(NamedTuple):
    """Expressions of a, and the arrays their inputs stand for."""

    outputs: list[Expression]
    inputs: list[Array]


def _rcond(formula: AbstractFormula) -> float:
    if not isinstance(formula, UdwadiaKalaba | Schur):
        raise TranslationError(f"{type(formula).__name__} has no scalar code; UdwadiaKalaba and Schur have")
    if isinstance(formula.pinv, Lineax) or formula.pinv.independent_rows:
        raise TranslationError(f"{type(formula.pinv).__name__} has its own rules for dependent rows")
    return formula.pinv.rcond


def _program(lanes: "Lanes", t: Time, q: Coordinates, v: Velocities) -> _Program:
    """The scalar code of one acceleration. Parameters that are known are folded into it."""
    rcond = _rcond(lanes.formula)
    arrays, static = eqx.partition((lanes.system, lanes.stabilizer), eqx.is_array)
    leaves, treedef = jax.tree.flatten(arrays)

    def equations(leaves: list[Array], t: Time, q: Coordinates, v: Velocities) -> tuple[Array, ...]:
        system, stabilizer = eqx.combine(jax.tree.unflatten(treedef, leaves), static)
        e = equations_of_motion(system, t, q, v, stabilizer)
        return e.M, e.Q + e.c, e.rows.A, e.rows.b

    closed = jax.make_jaxpr(equations)(leaves, t, q, v)
    build, inputs = Builder(), []

    def numbered(x: Array) -> np.ndarray:
        numbers = np.empty(x.size, object)
        for i, part in enumerate(jnp.ravel(x)):
            numbers[i] = build.input(len(inputs))
            inputs.append(part)
        return numbers.reshape(x.shape)

    arguments = [numbered(x) for x in (t, q, v)]
    arguments = [numbered(x) if is_traced(x) else scalars(x) for x in leaves] + arguments
    M, Q, A, b = Interpreter(build).run(closed.jaxpr, closed.consts, arguments)
    return _Program(acceleration(build, M, Q, A, b, rcond, float(jnp.finfo(q.dtype).eps)), inputs)


@final
class Lanes(eqx.Module):
    """The acceleration of a system as scalar code, made by `lanes`. Called with a batch it gives one result a member.

    - `system`, `formula`, `stabilizer`: what it computes.
    """

    system: AbstractSystem
    formula: AbstractFormula
    stabilizer: AbstractStabilizer

    def one(self, t: Time, q: Coordinates, v: Velocities) -> Velocities:
        """The acceleration (n,) of one state, for use inside `jit`, `vmap` and the like.

        **Arguments:**

        - `t`: time [s].
        - `q`: generalized coordinates (n_q,).
        - `v`: generalized velocities (n,).

        **Raises:** `TranslationError`.
        """
        program = _program(self, t, q, v)
        count = len(reachable(program.outputs))
        if count > LARGEST:
            raise TranslationError(
                f"{count} operations are more than the {LARGEST} that are worth writing out"
            )
        return jnp.stack(evaluate(program.outputs, program.inputs, q.dtype))

    def operations(self, t: Time, q: Coordinates, v: Velocities) -> dict[str, int]:
        """How many operations of each kind one acceleration takes.

        **Arguments:** as `one`.
        """
        nodes = reachable(_program(self, *_state(t, q, v)).outputs)
        return dict(Counter(node.op for node in nodes if node.op != "input"))

    @eqx.filter_jit
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
        t = jnp.broadcast_to(t, q.shape[:1])
        # Batch last: each scalar of the program is a contiguous vector over the batch.
        return jax.vmap(self.one, in_axes=(0, 1, 1), out_axes=1)(t, q.T, v.T).T


def _state(t: Array | float, q: Array, v: Array) -> tuple[Array, Array, Array]:
    q, v = real_array("q", q), real_array("v", v)
    return real_array("t", t).astype(q.dtype), q, v


def lanes(
    system: AbstractSystem | Problem,
    formula: AbstractFormula = UdwadiaKalaba(),
    *,
    stabilizer: AbstractStabilizer = NoStabilizer(),
) -> Lanes:
    """The acceleration of a system as straight scalar code over a batch: the fast path.

    The system is traced as it stands, every array of it taken apart into numbers, structural zeros and constants folded
    away, and M = L D L^T and A M^-1 A^T = L D L^T factored in an order of low fill-in. What is left has no loop and no
    small matrix, so XLA runs it over the members of a batch as over the entries of a vector.

    The result equals the formula's for consistent rows, of any rank. Of inconsistent rows it meets an independent
    set, where the formula spreads the error over all.

    **Arguments:**

    - `system`: the mechanical system, or a `Problem`.
    - `formula`: `UdwadiaKalaba` or `Schur`, whose `pinv.rcond` decides the rank; its method does not matter.
    - `stabilizer`: gives the b to enforce.

    **Returns:** f(t, q, v) -> a with q (batch, n_q), v (batch, n), a (batch, n); for use under `jit`, `vmap` and
    differentiation as well.

    **Raises:** `InputError`; and on the first call `TranslationError` for a system whose functions use what scalar code
    cannot do: loops that end by a condition, sorting, LAPACK; or for more than 3,000 operations.
    """
    system = system.system if isinstance(system, Problem) else system
    require_instance("system", system, AbstractSystem, "uk.models.pendulum().system")
    require_instance("formula", formula, AbstractFormula, "UdwadiaKalaba()")
    require_instance("stabilizer", stabilizer, AbstractStabilizer, "Baumgarte(1.0, 10.0)")
    return Lanes(system, formula, stabilizer)
