"""The scalar code of a system's acceleration, and the numbers it takes: time, state and parameters.

Of parameters whose values are at hand, those that are 0, 1 or -1 are folded into the code, for they are what makes it
short: components of axes, entries of selections. Code is kept by the structure of a system and these entries, so that
runs with other parameters share it, and what is compiled from it.
"""

import contextlib
import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._formula._acceleration import AbstractFormula, Equations, Schur, UdwadiaKalaba, equations_of_motion
from .._misc._arguments import called
from .._misc._closures import require_seen
from .._misc._types import Coordinates, Time, Velocities, is_traced
from .._pseudoinverse import Lineax
from .._system._stabilize import AbstractStabilizer
from .._system._system import AbstractSystem
from ._expressions import is_number
from ._interpret import Interpreter
from ._program import Program
from ._scalars import Builder, TranslationError
from ._solve import acceleration, plus

LARGEST, LARGEST_BY_LLVM = 20_000, 100_000
"""More operations than this are not compiled, what repeats being counted once: it would take minutes, LLVM alone some
seconds."""

_CLEARLY = 10.0
"""Rows are clearly independent if each is by so many times the rank rule's threshold, whatever the order asked in."""

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
class Written:
    """A pytree of arrays of expressions.

    - `arrays`: the pytree.
    - `counts`: as for a `Program`.
    - `dtype`: of all.
    """

    def __init__(self, arrays: Any, counts: Sequence[int], dtype: Any):
        self.arrays, self.counts, self.dtype = arrays, counts, dtype

    @functools.cached_property
    def program(self) -> Program:
        """What computes all entries."""
        leaves = jax.tree.leaves(self.arrays)
        return Program([x for leaf in leaves for x in leaf.reshape(-1)], self.counts, self.dtype)

    def _parted(self, found: Any) -> Any:
        """The pytree, given its entries along the first axis; others come first in each array."""
        leaves, tree = jax.tree.flatten(self.arrays)
        ends = np.cumsum([x.size for x in leaves])
        arrays = [
            found[end - x.size : end].T.reshape(*found.shape[1:], *x.shape)
            for end, x in zip(ends, leaves, strict=True)
        ]
        return jax.tree.unflatten(tree, arrays)

    def on_host(self, *operands: np.ndarray) -> Any:
        """The pytree by NumPy, with the members along the first axis of each array.

        **Arguments:**

        - `operands`: as for `OnHost`.
        """
        return self._parted(self.program.on_host(*operands))

    def __call__(self, *operands: Array) -> Any:
        """The pytree.

        **Arguments:**

        - `operands`: the inputs.
        """
        return self._parted(run(self.program, *operands))


@final
class Code:
    """The acceleration of systems of one structure as scalar code.

    - `program`: the operations; its inputs are the varying entries of the parameters, t, q and v.
    - `equations`: the `Equations` at states.
    - `observed`: what a trajectory tells of states.
    - `symmetric`: whether the mass matrix is, whatever the numbers.
    """

    def __init__(self, program: Program, leaves: Sequence[Leaf], equations: Written, observed: Written):
        self.program, self.equations, self.observed = program, equations, observed
        M = equations.arrays.M
        same = lambda x, y: x is y or (is_number(x) and is_number(y) and x == y)
        self.symmetric = all(map(same, M.flat, M.T.flat))
        self._varying = [np.flatnonzero(x.varying) for x in leaves]

    def numbers(self, system: AbstractSystem, stabilizer: AbstractStabilizer) -> Float[Array, " k"]:
        """The parameters the program takes. Make them once, outside of loops: their derivative is then one vector.

        **Arguments:**

        - `system`, `stabilizer`: of the structure, and with the folded entries, the code was made for.
        """
        leaves, _ = split(system, stabilizer)
        xp = jnp if is_traced(leaves) else np
        flat = [xp.reshape(xp.asarray(x), -1).astype(self.program.dtype) for x in leaves]
        kept = [
            x if len(places) == x.size else x[places] for x, places in zip(flat, self._varying, strict=True)
        ]
        return xp.concatenate([xp.zeros(0, self.program.dtype), *(x for x in kept if x.size)])  # pyright: ignore

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


def _rcond(formula: AbstractFormula, dtype: Any) -> float:
    if not isinstance(formula, UdwadiaKalaba | Schur):
        raise TranslationError(f"{type(formula).__name__} has no scalar code; UdwadiaKalaba and Schur have")
    if isinstance(formula.pinv, Lineax) or formula.pinv.independent_rows:
        raise TranslationError(f"{type(formula.pinv).__name__} has its own rules for dependent rows")
    return formula.pinv.threshold(dtype)


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
    return _made(structure, tuple(map(leaf, leaves)), state, _rcond(formula, q.dtype))


@functools.lru_cache(maxsize=64)
def _made(structure: Structure, leaves: tuple[Leaf, ...], state: tuple[Any, ...], rcond: float) -> Code:
    dtype, build = state[1].dtype, Builder(MOST)
    inputs, interpreter = Inputs(build), Interpreter(build)
    parameters, counts = inputs.of(leaves), [inputs.count, *(math.prod(x.shape) for x in state)]
    arguments = parameters + [inputs(x.shape) for x in state]

    def written(function: Any) -> Any:
        """The pytree of arrays a function of all and the state returns, as expressions."""
        of_leaves = lambda leaves, *state: function(*joined(structure, leaves), *state)
        closed, shapes = jax.make_jaxpr(of_leaves, return_shape=True)([x.aval for x in leaves], *state)
        require_seen(closed.consts)
        found = interpreter.run(closed.jaxpr, closed.consts, arguments)
        return jax.tree.unflatten(jax.tree.structure(shapes), found)

    e: Equations = written(lambda system, stabilizer, *state: equations_of_motion(system, *state, stabilizer))
    Q = plus(build, e.Q, e.c)
    solution = acceleration(build, e.M, Q, e.rows.A, e.rows.b, rcond, float(jnp.finfo(dtype).eps))
    program = short_enough(Program(solution.a, counts, dtype))
    sure = build.apply("lt", solution.nearness, 1 / (_CLEARLY * rcond))
    observed = {
        "a": solution.a,
        "constraint_force": plus(build, solution.force, e.c),
        "multipliers": solution.multipliers,
        "rank": solution.rank,
        "regular": build.number(
            build.apply("and", build.apply("eq", solution.rank, len(e.rows.A)), sure), True
        ),
    }
    observed = {key: np.array(x, object) for key, x in observed.items()}
    observed |= {"position_error": e.rows.position_error, "velocity_error": e.rows.velocity_error}
    with contextlib.suppress(TranslationError):  # what the energy needs, the acceleration need not
        energy = lambda system, _, *state: called(
            f"the energy of {type(system).__name__}", system.energy, *state
        )
        observed["energy"] = written(energy)
    return Code(program, leaves, Written(e, counts, dtype), Written(observed, counts, dtype))


def short_enough(program: Program) -> Program:
    """The program, or an error if its compilation would take too long."""
    # Not `machine_code_is_wanted`: the code is kept for whoever asks next.
    native = program.can_be_native and jax.default_backend() == "cpu"
    most = LARGEST_BY_LLVM if native else LARGEST
    if program.compiled > most:
        raise TranslationError(f"{program.compiled} operations are more than the {most} worth compiling")
    return program
