"""The scalar code of a system's acceleration, and the numbers it takes: time, state and parameters.

Of parameters whose values are at hand, those that are 0, 1 or -1 are folded into the code, for they are what makes it
short: components of axes, entries of selections. Code is kept by the structure of a system and these entries, so that
runs with other parameters share it, and what is compiled from it.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._acceleration import AbstractFormula, Schur, UdwadiaKalaba, equations_of_motion
from .._pseudoinverse import Lineax
from .._stabilize import AbstractStabilizer
from .._system import AbstractSystem
from .._types import Coordinates, Time, Velocities, is_traced
from ._interpret import Interpreter
from ._program import Program
from ._scalars import Builder, TranslationError
from ._solve import acceleration

LARGEST = 20_000
"""More operations than this are not compiled, what repeats being counted once: it would take minutes."""

MOST = 500_000
"""More operations than this are not even written out."""


class Leaf(NamedTuple):
    """A parameter array: its shape and type, in order which entries are inputs and what the others are."""

    aval: jax.ShapeDtypeStruct
    varying: tuple[bool, ...]
    known: tuple[Any, ...]


class Structure(NamedTuple):
    """All of a system and stabilizer but the numbers in its arrays."""

    arrays: Any
    static: tuple[Any, ...]
    static_tree: Any


def leaf(x: Array) -> Leaf:
    aval = jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=jax.typeof(x).weak_type)
    if is_traced(x):
        return Leaf(aval, (True,) * x.size, ())
    values = np.asarray(x).reshape(-1)
    varying = np.zeros(x.size, bool)
    if jnp.issubdtype(x.dtype, jnp.floating):
        varying = ~np.isin(values, (0.0, 1.0, -1.0))
    return Leaf(aval, tuple(varying.tolist()), tuple(values[~varying].tolist()))


def split(system: AbstractSystem, stabilizer: AbstractStabilizer) -> tuple[list[Array], Structure]:
    arrays, static = eqx.partition((system, stabilizer), lambda x: isinstance(x, jax.Array | np.ndarray))
    leaves, tree = jax.tree.flatten(arrays)
    rest, rest_tree = jax.tree.flatten(static)
    return leaves, Structure(tree, tuple(rest), rest_tree)


def joined(structure: Structure, leaves: Sequence[Array]) -> tuple[AbstractSystem, AbstractStabilizer]:
    """The system and stabilizer of a structure and its parameter arrays."""
    static = jax.tree.unflatten(structure.static_tree, structure.static)
    return eqx.combine(jax.tree.unflatten(structure.arrays, leaves), static)


class Inputs:
    """Makes the inputs of a program, in order.

    **Arguments:**

    - `build`: makes the expressions.
    """

    def __init__(self, build: Builder):
        self.build, self.count = build, 0

    def __call__(
        self, shape: tuple[int, ...], varying: Sequence[bool] = (), known: Sequence[Any] = ()
    ) -> np.ndarray:
        """An array of inputs, and of numbers that are known where it does not vary.

        **Arguments:**

        - `shape`: of the array.
        - `varying`: which of its entries are inputs; by default all.
        - `known`: the others.
        """
        varying = varying or (True,) * math.prod(shape)
        numbers, folded = np.empty(len(varying), object), iter(known)
        for i, varies in enumerate(varying):
            numbers[i] = self.build.input(self.count) if varies else next(folded)
            self.count += varies
        return numbers.reshape(shape)

    def of(self, leaves: Sequence[Leaf]) -> list[np.ndarray]:
        """Those of all parameters."""
        return [self(x.aval.shape, x.varying, x.known) for x in leaves]


@final
class Code:
    """The acceleration of systems of one structure as scalar code.

    - `program`: the operations; its inputs are the varying entries of the parameters, t, q and v.
    """

    def __init__(self, program: Program, leaves: Sequence[Leaf]):
        self.program = program
        self._varying = [np.flatnonzero(x.varying) for x in leaves]

    def numbers(self, system: AbstractSystem, stabilizer: AbstractStabilizer) -> Float[Array, " k"]:
        """The parameters the program takes. Make them once, outside of loops: their derivative is then one vector.

        **Arguments:**

        - `system`, `stabilizer`: of the structure, and with the folded entries, the code was made for.
        """
        leaves, _ = split(system, stabilizer)
        flat = [jnp.reshape(x, -1).astype(self.program.dtype) for x in leaves]
        kept = [
            x if len(places) == x.size else x[places] for x, places in zip(flat, self._varying, strict=True)
        ]
        return jnp.concatenate([jnp.zeros(0, self.program.dtype), *(x for x in kept if x.size)])

    def __call__(self, numbers: Float[Array, " k"], t: Time, q: Coordinates, v: Velocities) -> Velocities:
        """The acceleration (n,).

        **Arguments:**

        - `numbers`: of the parameters.
        - `t`: time [s].
        - `q`: generalized coordinates (n_q,).
        - `v`: generalized velocities (n,).
        """
        return run(self.program, numbers, t, q, v)


def run(program: Program, *operands: Array) -> Array:
    """The outputs of a program of all numbers in some arrays, as a vector.

    **Arguments:**

    - `program`: what to run.
    - `operands`: its inputs.
    """
    return program(*(jnp.reshape(x, -1).astype(program.dtype) for x in operands))


def _rcond(formula: AbstractFormula) -> float:
    if not isinstance(formula, UdwadiaKalaba | Schur):
        raise TranslationError(f"{type(formula).__name__} has no scalar code; UdwadiaKalaba and Schur have")
    if isinstance(formula.pinv, Lineax) or formula.pinv.independent_rows:
        raise TranslationError(f"{type(formula.pinv).__name__} has its own rules for dependent rows")
    return formula.pinv.rcond


def code_for(
    system: AbstractSystem,
    formula: AbstractFormula,
    stabilizer: AbstractStabilizer,
    t: Time,
    q: Coordinates,
    v: Velocities,
) -> Code:
    """The code of an acceleration, made once for each structure.

    **Arguments:**

    - `system`, `formula`, `stabilizer`: what to compute. Entries of their arrays that JAX traces become inputs.
    - `t`, `q`, `v`: of these only shapes and types matter.

    **Raises:** `TranslationError`.
    """
    leaves, structure = split(system, stabilizer)
    state = tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (t, q, v))
    return _made(structure, tuple(map(leaf, leaves)), state, _rcond(formula))


@functools.lru_cache(maxsize=64)
def _made(structure: Structure, leaves: tuple[Leaf, ...], state: tuple[Any, ...], rcond: float) -> Code:
    def equations(leaves: list[Array], t: Time, q: Coordinates, v: Velocities) -> tuple[Array, ...]:
        system, stabilizer = joined(structure, leaves)
        e = equations_of_motion(system, t, q, v, stabilizer)
        return e.M, e.Q + e.c, e.rows.A, e.rows.b

    closed = jax.make_jaxpr(equations)([x.aval for x in leaves], *state)
    build = Builder(MOST)
    inputs = Inputs(build)
    parameters, counts = inputs.of(leaves), [inputs.count, *(math.prod(x.shape) for x in state)]
    arguments = parameters + [inputs(x.shape) for x in state]
    M, Q, A, b = Interpreter(build).run(closed.jaxpr, closed.consts, arguments)
    dtype = state[1].dtype
    a = acceleration(build, M, Q, A, b, rcond, float(jnp.finfo(dtype).eps))
    return Code(short_enough(Program(a, counts, dtype)), leaves)


def short_enough(program: Program) -> Program:
    """The program, or an error if its compilation would take too long."""
    if program.compiled > LARGEST:
        raise TranslationError(f"{program.compiled} operations are more than the {LARGEST} worth compiling")
    return program
