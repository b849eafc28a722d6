"""The projection of a step's end as scalar code, and its derivative."""

from collections.abc import Sequence
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from .._misc._types import Coordinates, Time, Velocities
from .._system._rows import Rows, position_rows_and_jacobian
from .._system._stabilize import AbstractStabilizer
from .._system._system import AbstractSystem, has_quasi_velocities
from ._code import builder_of, short_enough
from ._common import Traced, common, trace
from ._expression_pytree import run
from ._expressions import FixedPointIteration, Program
from ._parameters import InputMaker, Leaf, Structure, leaf, numbers, read_by, rebuild_system, split
from ._projection import MotionFunctions, projection
from ._refusals import cached_or_untranslatable
from ._structured._moves import fill_array
from ._structured._trace import Interpreter


class Projected(NamedTuple):
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
        return numbers(self._leaves, system, stabilizer, self.whole.dtype)

    def __call__(
        self,
        numbers: Float[Array, " k"],
        t: Time,
        q: Coordinates,
        v: Velocities,
        errors: tuple[Coordinates, Velocities] | None = None,
    ) -> Projected:
        """The projected end of a step."""
        # Any will do where none are given; those that are no constants have it be one function for LLVM.
        estimates = jnp.concatenate(errors or (q, v))
        found = run(self.whole, numbers, t, q, v, lax.stop_gradient(estimates))
        ends = np.cumsum([q.size, v.size, self.rows, 4, q.size])
        q, v, _, told, *kept = jnp.split(found, ends)
        return Projected(q, v, None if errors is None else (kept[0], kept[1]), told[0], told[2:])

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
) -> ProjectionCode:
    """The code of a projection, made once for each structure.

    **Raises:** `TranslationError`.
    """
    leaves, structure = split(system, stabilizer)
    state = tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (t, q, v))
    return _write_projection(structure, tuple(map(leaf, leaves)), state, rcond, has_quasi_velocities(system))


def _functions(
    structure: Structure, avals: tuple[Any, ...], state: tuple[Any, ...], quasi: bool
) -> tuple[list[Traced], Rows]:
    """What `MotionFunctions` are made of, of parameters, t and q, the second to last of v too; and the shapes of the
    rows."""
    rows, masses = common(structure, avals, state)
    at = trace(
        lambda leaves, *of: position_rows_and_jacobian(rebuild_system(structure, leaves)[0], *of),
        [*avals],
        *state[:2],
    )

    def rates(leaves: list[Array], t: Time, q: Coordinates) -> Array:
        system, _ = rebuild_system(structure, leaves)
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
    structure: Structure, leaves: tuple[Leaf, ...], state: tuple[Any, ...], rcond: float, quasi: bool
) -> ProjectionCode:
    functions, known = _functions(structure, tuple(x.aval for x in leaves), state, quasi)
    leaves = read_by(leaves, *(x.program for x in functions))
    build = builder_of(state[1].dtype)
    inputs = InputMaker(build)
    parameters, t = inputs.of(leaves), inputs(())
    interpreter = Interpreter(build.nodes, written_out=True, parameters=inputs.count - 1)
    (n_q,), (n,), (rows,) = state[1].shape, state[2].shape, functions[0].shapes.shape
    counts = [inputs.count - 1, 1, n_q, n, n_q + n, rows]
    q, v, *errors, mu = (list(inputs((k,))) for k in (n_q, n, n_q, n, rows))

    def evaluated(function: Traced) -> Any:
        return lambda *x: function.numbers_by(
            build, interpreter, parameters, t, [fill_array((len(y),), y) for y in x]
        )

    positions, jacobian, masses, velocities, *rates = map(evaluated, functions)
    of_velocities = lambda *x: tuple(of[known.of_velocities] for of in velocities(*x))
    holonomic = tuple(map(bool, known.of_positions[known.of_velocities]))
    motion = MotionFunctions(
        positions, jacobian, of_velocities, masses, rates[0] if rates else None, holonomic
    )
    dtype = state[1].dtype
    found = projection(build, motion, (q, v), mu, (errors[0], errors[1]), rcond, dtype)
    again = FixedPointIteration(n_q + n + rows + 1, n_q + n, rows)
    return ProjectionCode(short_enough(Program(build, found, counts, again)), leaves, rows, counts)
