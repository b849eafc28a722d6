"""The scalar code of a system's acceleration, and the numbers it takes: time, state and parameters.

Code is kept by the structure of a system and the entries of its parameters that are folded in (`_compiler/_tracing`), so
that runs with other parameters share it, and what is compiled from it.

A formula with no scalar code of its own, or too long a one, finds the acceleration on arrays, from equations of motion by
scalar code: these are most of what XLA would compile, and for a mechanism of many bodies it would take minutes.

A force with large products of matrices of parameters, as a neural network is, stays on arrays: scalar code of them is
long, and so slow to compile, and no faster. Its value is then one more operand of the code. Elsewhere, in the mass matrix
or the rows, such a product leaves a system without scalar code.
"""

import contextlib
import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._compiler._expressions import ExpressionPytree, Program, builder_of, run, short_enough
from .._compiler._scalars import (
    Builder,
    Expression,
    TranslationError,
    as_number,
    as_vector,
    differs,
    is_truth,
    largest,
)
from .._compiler._structured._live_nodes import LiveNodes
from .._compiler._structured._nodes import Node, is_number
from .._compiler._structured._operations import LargeProductError
from .._compiler._structured._rebuild import Rebuilder
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
from .._formula._acceleration import AbstractFormula, Equations
from .._formula._equations import applied_forces, equations_of_motion, inertia
from .._misc._arguments import call_user_function
from .._misc._tolerances import ASYMMETRIC, CLEARLY
from .._misc._types import Coordinates, Forces, Time, Velocities, module_for
from .._pseudoinverse import GramSchmidt
from .._system._rows import constraint_rows
from .._system._stabilize import AbstractStabilizer
from .._system._system import AbstractSystem, TreeInertia, innermost
from ._solve import How, Solution, StepRelativeRank, least_of, solution_by

Numbers = Float[Array, " k"] | tuple[Array, Array, Array]
"""Of the parameters, in one piece or three: the second is another for each of several accelerations at a position."""


def join_numbers(numbers: Numbers) -> Array:
    """In one piece."""
    return module_for(numbers).concatenate(numbers) if isinstance(numbers, tuple) else numbers


_OF_VALUES = ("multipliers", "sure", "known")
"""What of `observed` has no derivative, or is of no use but to states that have values."""


# --- What the codes of an acceleration and of a projection take of a system, as JAX traced it


class TracedSystem(NamedTuple):
    """Functions of parameter arrays and the state.

    - `rows`: all constraints, of the parameters, t, q and v.
    - `inertia`: the mass matrix, of the parameters, t and q.
    """

    rows: TracedFunction
    inertia: TracedFunction


@cached_or_untranslatable
def trace_system(structure: Structure, avals: tuple[Any, ...], state: tuple[Any, ...]) -> TracedSystem:
    """What both kinds of code take of a system, traced once for each structure."""
    system = lambda leaves: rebuild(structure, leaves)[0]
    n = state[2].shape[0]
    rows = trace(lambda leaves, *state: constraint_rows(system(leaves), *state), [*avals], *state)
    masses = trace(lambda leaves, t, q: inertia(system(leaves), t, q, n), [*avals], *state[:2])
    return TracedSystem(rows, masses)


def trace_motion(
    structure: Structure, avals: Sequence[Any], state: Sequence[Any], shared: TracedSystem
) -> tuple[TracedFunction, TracedFunction, TracedFunction]:
    """The equations of motion, the energy and the rates of the coordinates, of parameters and state.

    The equations take two more operands: what the functions of `shared` return.
    """

    def equations(leaves: Any, state: Any, M: Any, rows: Any) -> Any:
        system, stabilizer = rebuild(structure, leaves)
        t, q, v, *applied = state
        return equations_of_motion(
            system, t, q, v, stabilizer, (applied[0], applied[1]) if applied else None, M, rows
        )

    def energy(leaves: Any, state: Any) -> Any:
        system, _ = rebuild(structure, leaves)
        return call_user_function(
            f"the energy of {type(innermost(system)).__name__}", system.energy, *state[:3]
        )

    def rates(leaves: Any, state: Any) -> Any:
        return rebuild(structure, leaves)[0].kinematics(*state[:3])

    given = [*avals], [*state]
    known = shared.inertia.shapes, shared.rows.shapes
    return trace(equations, *given, *known), trace(energy, *given), trace(rates, *given)


# --- The acceleration


@final
class AccelerationProgram:
    """The acceleration of systems of one structure as scalar code.

    - `equations`: the `Equations` at states, in which the mass matrix may be that of a tree. Inputs, of all programs, are
      the varying entries of the parameters, t, q and v, where the force is apart Q and c, and how close to singular the
      rows are where a step starts: see `ProjectedStep`; infinite for a state that is no stage of a projected step.
    - `observed`: what a trajectory tells of states, and which rows are `kept`, and whether clearly so (`sure`), and what
      `dependency` takes (`known`); of a formula on arrays, errors and energy only.
    - `unsolved`: why the formula is left to arrays; None where the acceleration is scalar code too.
    - `apart`: whether the force is left to arrays.
    - `symmetric`: whether the mass matrix is, whatever the numbers.
    """

    def __init__(
        self,
        solved: tuple[Program, ExpressionPytree] | str,
        leaves: Sequence[Leaf],
        equations: ExpressionPytree,
        observed: ExpressionPytree,
        rates: Sequence[Expression],
        apart: bool,
    ):
        self.equations, self.observed, self.apart = equations, observed, apart
        self._rates, self._solved = rates, solved
        self.unsolved = solved if isinstance(solved, str) else None
        M = equations.arrays.M
        self.symmetric = isinstance(M, TreeInertia) or all(map(_are_the_same, M.flat, M.T.flat))
        self._leaves = leaves
        self.of_pieces = functools.cache(self._of_pieces)

    @property
    def program(self) -> Program:
        """The acceleration's operations.

        **Raises:** `TranslationError` where the formula is left to arrays.
        """
        if isinstance(self._solved, str):
            raise TranslationError(self._solved)
        return self._solved[0]

    @property
    def dependency(self) -> ExpressionPytree:
        """How rows that are not kept depend on others: of what is `known`, and 1 for the row and 0 for the others.

        It gives `z` with A^T z = 0, and whether it `holds` and b^T z = 0 too.
        """
        assert not isinstance(self._solved, str)
        return self._solved[1]

    @functools.cached_property
    def told(self) -> ExpressionPytree:
        """What of `observed` can be differentiated."""
        kept = {x: y for x, y in self.observed.arrays.items() if x not in _OF_VALUES}
        return ExpressionPytree(self.observed.build, kept, self.observed.counts)

    @functools.cached_property
    def masses(self) -> ExpressionPytree:
        """The mass matrix at states."""
        e = self.equations
        return ExpressionPytree(e.build, e.arrays.M, e.counts)

    @functools.cached_property
    def field(self) -> Program:
        """The derivative of the state: q' and the acceleration."""
        program = self.program
        return Program(program.build, [*self._rates, *program.outputs], program.counts)

    def numbers(self, system: AbstractSystem, stabilizer: AbstractStabilizer) -> Float[Array, " k"]:
        """The parameters the program takes. Make them once, outside of loops: their derivative is then one vector."""
        return numbers(self._leaves, (system, stabilizer), self.equations.program.dtype)

    def applied(self, system: AbstractSystem, t: Time, q: Coordinates, v: Velocities) -> tuple[Forces, ...]:
        """The operands after v: Q and c, by arrays, where the force is apart."""
        return applied_forces(system, t, q, v) if self.apart else ()

    def __call__(
        self, numbers: Float[Array, " k"], t: Time, q: Coordinates, v: Velocities, *applied: Forces
    ) -> Velocities:
        """The acceleration (n,) at a state that is no stage of a projected step."""
        return self.stage(numbers, t, q, v, *applied, jnp.full_like(t, jnp.inf))

    def stage(self, numbers: Numbers, *state: Array) -> Velocities:
        """The acceleration (n,) at a stage of a step."""
        if isinstance(numbers, tuple):
            return run(self.of_pieces(tuple(x.size for x in numbers)), *numbers, *state)
        return run(self.program, numbers, *state)

    def _of_pieces(self, sizes: tuple[int, int, int]) -> Program:
        """The acceleration's program that takes the numbers in three pieces. What depends neither on the second nor on
        velocities is computed once for accelerations that differ in these."""
        whole = self.program
        numbers, t, q, *late = whole.counts
        assert numbers == sum(sizes)
        program = Program(whole.build, whole.outputs, [*sizes, t, q, *late])
        first = sizes[0]
        program.divide([*range(first, first + sizes[1]), *range(numbers + t + q, sum(whole.counts))])
        return program


def compile_acceleration(
    system: AbstractSystem,
    how: AbstractFormula | StepRelativeRank | float | None,
    stabilizer: AbstractStabilizer,
    t: Any,
    q: Any,
    v: Any,
) -> AccelerationProgram:
    """The code of an acceleration, made once for each structure.

    **Raises:** `TranslationError`.
    """
    leaves, structure = split((system, stabilizer))
    state = tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (t, q, v))
    parameters = tuple(leaf(x, q.dtype) for x in leaves)
    if isinstance(how, AbstractFormula):
        return _compile_structure(structure, parameters, state, how.inverted_by or type(how))
    rcond = GramSchmidt().threshold(q.dtype) if how is None else how
    return _compile_structure(structure, parameters, state, rcond)


@cached_or_untranslatable
def _compile_structure(
    structure: Structure, leaves: tuple[Leaf, ...], state: tuple[Any, ...], how: How
) -> AccelerationProgram:
    try:
        return _write_acceleration(structure, leaves, state, how, apart=False)
    except LargeProductError:
        return _write_acceleration(structure, leaves, state, how, apart=True)


def _write_acceleration(
    structure: Structure, leaves: Sequence[Leaf], state: tuple[Any, ...], how: How, *, apart: bool
) -> AccelerationProgram:
    dtype, build = state[1].dtype, builder_of(state[1].dtype)
    state = (*state, state[2], state[2]) if apart else state
    avals = tuple(x.aval for x in leaves)
    rows, inertia = shared = trace_system(structure, avals, tuple(state[:3]))
    equations, energy, rates = trace_motion(structure, avals, state, shared)
    leaves, inputs = (
        read_by(leaves, *(x.program for x in (rows, inertia, equations, energy, rates))),
        InputMaker(build),
    )
    parameters = inputs.of(leaves)
    interpreter = Interpreter(build.nodes, written_out=True, parameters=inputs.count)
    counts = [inputs.count, *(math.prod(x.shape) for x in state), 1]
    arguments, near = (parameters, [inputs(x.shape) for x in state]), inputs(()).item()
    known = (
        inertia.by(interpreter, parameters, arguments[1][:2]),
        rows.by(interpreter, parameters, arguments[1][:3]),
    )
    e: Equations = equations.numbers_by(build, interpreter, *arguments, *known)
    written = ExpressionPytree(build, e, counts)
    observed: dict[str, Any] = {
        "position_error": e.rows.position_error,
        "velocity_error": e.rows.velocity_error,
        "asymmetric": np.array(_is_asymmetric(e.M, dtype), object),
    }
    try:
        solution = solution_by(how, e, near, dtype)
        program = short_enough(Program(build, list(solution.a), counts))
        if isinstance(how, StepRelativeRank):
            solution = solution_by(how, e, None, dtype)
        observed |= _observe_solution(e, solution, least_of(how))
        dependency, observed["known"] = _dependency(build, solution, len(e.rows.A), observed)
        solved = program, dependency
    except TranslationError as reason:
        if least_of(how) < 1:
            raise
        short_enough(written.program)
        solved = str(reason)
    with contextlib.suppress(TranslationError):  # what the energy needs, the acceleration need not
        observed["energy"] = energy.numbers_by(build, interpreter, *arguments)
    of_q = rates.numbers_by(build, interpreter, *arguments)
    return AccelerationProgram(
        solved, leaves, written, ExpressionPytree(build, observed, counts), list(of_q), apart
    )


def _are_the_same(x: Expression, y: Expression) -> bool:
    return x is y or (is_number(x) and is_number(y) and x == y)


def _is_asymmetric(M: Any, dtype: Any) -> Expression:
    """1 where `asymmetry` of a mass matrix is positive. Of the same expression on both sides nothing is computed."""
    if isinstance(M, TreeInertia):
        return 0.0
    pairs = [(x, M[j, i]) for (i, j), x in np.ndenumerate(M) if i < j]
    gaps = [x - y for x, y in pairs if not _are_the_same(x, y)]
    return (
        as_number(largest(gaps) > ASYMMETRIC * float(np.finfo(dtype).eps) * largest(M.flat)) if gaps else 0.0
    )


def _dependency(
    build: Builder, solution: Solution, m: int, observed: dict[str, Any]
) -> tuple[ExpressionPytree, np.ndarray]:
    """How rows depend on others, and of what is observed that takes: neither is computed a second time."""
    further = Builder(build.type)
    z, holds = solution.dependency(given := as_vector(build.placeholder() for _ in range(m)))
    found = [*z, as_number(holds)]
    seen = set(LiveNodes([x for array in jax.tree.leaves(observed) for x in array.reshape(-1)]).nodes)
    known, between = _borders(found, seen.union(build.nodes.top.params))
    inputs = [further.input() for _ in range(len(known) + m)]
    of_type = lambda x, node: differs(x, 0.0) if is_truth(node) else x
    values = {node: of_type(x, node) for x, node in zip(inputs, (*known, *given), strict=True)}
    copies = Rebuilder(further.nodes, LiveNodes(()), values)
    copies.nodes(between)
    *z, holds = map(copies.get, found)
    arrays = {"z": np.array(z, object), "holds": np.array(holds, object)}
    return ExpressionPytree(further, arrays, [len(known), m]), np.array(known, object)


def _borders(outputs: Sequence[Expression], seen: set[Node]) -> tuple[list[Node], list[Node]]:
    """The nodes among those `seen` that outputs are computed of, and in order those between.

    Inputs are to be among them: the copy has inputs of its own.
    """
    found, visited = dict[Node, None](), set[Node]()
    stack = [x for x in outputs if isinstance(x, Node)]
    while stack:
        node = stack.pop()
        if node in seen:
            found[node] = None
        elif node not in visited and node.op != "parameter":
            visited.add(node)
            stack += [x for x in node.args if isinstance(x, Node)]
    return list(found), sorted(visited, key=lambda x: x.number)


def _observe_solution(e: Equations, solution: Solution, rcond: float) -> dict[str, Any]:
    """What a trajectory tells of a solution."""
    observed = {
        "a": solution.a,
        "constraint_force": np.add(solution.force, e.c),
        "multipliers": solution.multipliers,
        "rank": solution.rank,
        "kept": solution.kept,
        "sure": as_number(solution.nearness < 1 / (CLEARLY * rcond)),
        "lost": solution.lost,
    }
    return {key: np.array(x, object) for key, x in observed.items()}
