"""The projection of a step's end as scalar code, and its derivative."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core
from jaxtyping import Array, Float

from .._misc._once import once_traced
from .._misc._types import Coordinates, Time, Velocities
from .._system._rows import position_rows_and_jacobian
from .._system._stabilize import AbstractStabilizer
from .._system._system import AbstractSystem, has_quasi_velocities
from ._code import MOST, short_enough
from ._common import common
from ._interpret import Interpreter
from ._kernel_code import Again
from ._moves import filled
from ._parameters import InputMaker, Leaf, Structure, joined, leaf, numbers, read_by, split
from ._program import Program
from ._projection import MotionFunctions, projection
from ._refusals import remembered
from ._repeated import Repeated
from ._scalars import Builder
from ._written import run


class Projected(NamedTuple):
    """The end of a step, on the constraints.

    - `q`: generalized coordinates (n_q,).
    - `v`: generalized velocities (n,).
    - `errors`: of both, less their parts along nearly dependent rows, if they were given.
    - `nearness`: how close to singular the rows are: grows without bound.
    """

    q: Coordinates
    v: Velocities
    errors: tuple[Coordinates, Velocities] | None
    nearness: Float[Array, ""] | None


@final
class ProjectionCode:
    """The projection of systems of one structure as scalar code.

    - `whole`: the operations, those for error estimates included.
    - `rows`: how many are on positions.
    - `again`: how it is run again.
    - `counts`: of the numbers of its operands.
    """

    def __init__(
        self,
        whole: Program,
        without: Callable[[], Program],
        leaves: Sequence[Leaf],
        again: Again,
        counts: Sequence[int],
    ):
        self.whole, self.rows, self.counts = whole, again.size, counts
        self._without, self._leaves = without, leaves
        self.again, self._settling = again, functools.cache(lambda program: Repeated(program, again))

    @functools.cached_property
    def bare(self) -> Program:
        """Without those for error estimates."""
        return self._without()

    def numbers(self, system: AbstractSystem, stabilizer: AbstractStabilizer) -> Float[Array, " k"]:
        """The parameters the projection takes, as `Code.numbers`.

        **Arguments:** as there.
        """
        return numbers(self._leaves, system, stabilizer, self.whole.dtype)

    def __call__(
        self,
        numbers: Float[Array, " k"],
        t: Time,
        q: Coordinates,
        v: Velocities,
        errors: tuple[Coordinates, Velocities] | None = None,
    ) -> Projected:
        """The projected end of a step.

        **Arguments:**

        - `numbers`: of the parameters, as `numbers` gives them.
        - `t`: time [s].
        - `q`: generalized coordinates (n_q,).
        - `v`: generalized velocities (n,).
        - `errors`: the step's error estimates of both.
        """
        program = self.bare if errors is None else self.whole
        estimates = jnp.zeros(q.size + v.size, q.dtype) if errors is None else jnp.concatenate(errors)
        found = _projected(self._settling(program), numbers, t, q, v, lax.stop_gradient(estimates))
        ends = np.cumsum([q.size, v.size, self.rows + 2])
        q, v, rest, kept = jnp.split(found, ends)
        return Projected(q, v, None if errors is None else (kept[: q.size], kept[q.size :]), rest[-2])

    def on_host(
        self, numbers: np.ndarray, t: np.ndarray, q: np.ndarray, v: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The projected states, (k, n_q) and (k, n), on NumPy arrays.

        **Arguments:**

        - `numbers`: of the parameters, (numbers, 1).
        - `t`, `q`, `v`: the states, along the last axis: (1, k), (n_q, k), (n, k).
        """
        n_q, n = len(q), len(v)
        found = self._settling(self.whole).on_host(numbers, t, q, v, np.zeros((n_q + n, 1)))
        return found[:n_q].T, found[n_q : n_q + n].T


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _projected(program: Repeated, numbers: Array, t: Array, q: Array, v: Array, errors: Array) -> Array:
    """All outputs, with mu iterated on for as long as that brings the positions nearer."""
    return run(program, numbers, t, q, v, errors)


@_projected.defjvp
def _(program: Repeated, primals: Sequence[Array], tangents: Sequence[Array]) -> tuple[Array, Array]:
    found = _projected(program, *primals)
    once = lambda *x: run(program.once, *x, found[program.last])
    return found, jax.jvp(once, tuple(primals), tuple(tangents))[1]


def projection_for(
    system: AbstractSystem,
    stabilizer: AbstractStabilizer,
    rcond: float,
    t: Time,
    q: Coordinates,
    v: Velocities,
) -> ProjectionCode:
    """The code of a projection, made once for each structure.

    **Arguments:**

    - `system`, `stabilizer`: as for `code_for`.
    - `rcond`: the rank rule's threshold for positions.
    - `t`, `q`, `v`: of these only shapes and types matter.

    **Raises:** `TranslationError`.
    """
    leaves, structure = split(system, stabilizer)
    state = tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (t, q, v))
    return _made(structure, tuple(map(leaf, leaves)), state, rcond, has_quasi_velocities(system))


def _jaxprs(structure: Structure, avals: list[Any], state: tuple[Any, ...], quasi: bool) -> tuple[Any, ...]:
    """The functions of `MotionFunctions`, traced, with the pytrees they return; and which rows are those of positions.

    They take parameters, t and q, and v.
    """
    of_positions: tuple[bool, ...] = ()

    n, shared = state[2].shape[0], common(structure, tuple(avals), state)

    def positions(leaves: list[Array], t: Time, q: Coordinates) -> tuple[Array, Array]:
        return position_rows_and_jacobian(joined(structure, leaves)[0], t, q)

    def velocities(leaves: list[Array], t: Time, q: Coordinates, v: Velocities) -> tuple[Array, Array]:
        nonlocal of_positions
        rows = shared.rows(leaves, t, q, v)
        known = rows.of_velocities
        of_positions = tuple(map(bool, rows.of_positions[known]))
        return rows.A[known], rows.velocity_error[known]

    def rates(leaves: list[Array], t: Time, q: Coordinates) -> Array:
        system, _ = joined(structure, leaves)
        return jax.jacfwd(system.kinematics, argnums=2)(t, q, jnp.zeros(n, state[2].dtype))

    def traced(function: Any, *state: Any) -> tuple[core.ClosedJaxpr, Any]:
        closed, shapes = jax.make_jaxpr(function, return_shape=True)(avals, *state)
        return closed, jax.tree.structure(shapes)

    at = once_traced(positions, avals, *state[:2])
    of_q = [lambda *x: at(*x)[0], lambda *x: at(*x)[1], shared.inertia, *([rates] if quasi else [])]
    return traced(velocities, *state), [traced(function, *state[:2]) for function in of_q], of_positions


@remembered
def _made(
    structure: Structure, leaves: tuple[Leaf, ...], state: tuple[Any, ...], rcond: float, quasi: bool
) -> ProjectionCode:
    velocity, of_q, of_positions = _jaxprs(structure, [x.aval for x in leaves], state, quasi)
    leaves = read_by(leaves, *(x for x, _ in (velocity, *of_q)))
    build = Builder(MOST)
    inputs = InputMaker(build)
    parameters = [*inputs.of(leaves), inputs(())]
    interpreter = Interpreter(build, inputs.count - 1)
    (n_q,), (n,), rows = state[1].shape, state[2].shape, of_q[0][0].out_avals[0].shape[0]
    counts = [inputs.count - 1, 1, n_q, n, n_q + n, rows]
    q, v, *errors, mu = (list(inputs((k,))) for k in (n_q, n, n_q, n, rows))

    def evaluated(traced: tuple[core.ClosedJaxpr, Any]) -> Any:
        closed, tree = traced
        run = lambda *x: interpreter.run(
            closed.jaxpr, closed.consts, [*parameters, *(filled((len(y),), y) for y in x)]
        )
        return lambda *x: jax.tree.unflatten(tree, run(*x))

    positions, jacobian, masses, *rates = map(evaluated, of_q)
    quasi_rates = rates[0] if rates else None
    motion = MotionFunctions(positions, jacobian, evaluated(velocity), masses, quasi_rates, of_positions)
    dtype = state[1].dtype
    found = projection(build, motion, (q, v), mu, (errors[0], errors[1]), rcond, dtype)
    without = lambda: Program(found[: n_q + n + rows + 2], counts, dtype)
    again = Again(n_q + n + rows + 1, n_q + n, rows)
    return ProjectionCode(short_enough(Program(found, counts, dtype)), without, leaves, again, counts)
