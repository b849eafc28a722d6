"""Scalar programs as tables of operations that one loop works off: however long they are, there is little to compile.

The numbers of all members stand in registers, and a step takes some of them to another: a tree of operations (`_trees`)
of one of a few dozen shapes. Within a loop that XLA compiles whole it takes some tens of nanoseconds for 64 members.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from ._expressions import Expression, Node, reachable
from ._trees import Shape, steps, value

_CACHED = 2**18  # numbers worked on at a time: they stay in a processor's second cache
_MOST_STEPS = 200_000  # of more, with their registers, XLA does not compile the loop whole
# The largest trees, and how many steps those of one shape have to save, for each shape takes ten milliseconds to compile:
# of programs that are run often, and of those that are run once or twice.
_OFTEN, _ONCE = (100, 0.005), (3, 0.02)


class Tape(NamedTuple):
    """A program as a table; constants come first in the registers, then inputs.

    - `shapes`: trees of operations that occur, with how many operands each has.
    - `table`: for each step its shape, the registers of its operands, and last that of the result (steps, columns).
    - `constants`: their values.
    - `size`: how many registers there are.
    - `outputs`: the registers of the program's outputs.
    """

    shapes: list[tuple[Shape, int]]
    table: np.ndarray
    constants: list[float]
    size: int
    outputs: list[int]


def tape(outputs: Sequence[Expression], count: int, once: bool = False) -> Tape:
    """The table of a program.

    **Arguments:**

    - `outputs`: of the program.
    - `count`: of its inputs.
    - `once`: whether it is run once or twice, so that it should have few shapes.
    """
    every, kept = reachable(outputs), {x for x in outputs if isinstance(x, Node)}
    found = steps([x for x in every if x.op != "input"], kept, *(_ONCE if once else _OFTEN))
    last = {x: i for i, step in enumerate(found) for x in step.operands if isinstance(x, Node)}
    given = [*outputs, *(x for step in found for x in step.operands)]
    constants = list(dict.fromkeys(float(x) for x in given if not isinstance(x, Node)))
    place: dict[Expression, int] = {x: k for k, x in enumerate(constants)}
    place |= {x: len(constants) + x.args[0] for x in every if x.op == "input"}
    size = len(constants) + count
    free = sorted(set(range(len(constants), size)) - set(place.values()))
    at = lambda x: place[x if isinstance(x, Node) else float(x)]
    shapes: dict[tuple[Shape, int], int] = {}
    table = np.zeros((len(found), 2 + max((len(x.operands) for x in found), default=0)), np.uint32)
    for i, (node, shape, operands) in enumerate(found):
        reads = [at(x) for x in operands]
        free += [at(x) for x in operands if last.get(x) == i and x not in kept]
        if not free:
            free, size = [size], size + 1
        place[node] = free.pop()
        table[i, : 1 + len(reads)] = [shapes.setdefault((shape, len(reads)), len(shapes)), *reads]
        table[i, -1] = place[node]
    return Tape(list(shapes), table, constants, size, [at(x) for x in outputs])


def fits(tape: Tape) -> bool:
    """Whether its loop is compiled whole where loops are."""
    return len(tape.table) <= _MOST_STEPS


def block_of(tape: Tape) -> int:
    """How many members to work on at a time."""
    return max(32, _CACHED // tape.size)


def run(tape: Tape, inputs: Float[Array, "count members"]) -> Float[Array, "outputs members"]:
    """The outputs.

    **Arguments:**

    - `tape`: of the program.
    - `inputs`: of the program.
    """
    (members, dtype), table = (inputs.shape[1], inputs.dtype), jnp.asarray(tape.table)
    # Unsigned, for JAX asks of other numbers whether they count from the end.
    entry = lambda k, column: lax.dynamic_slice(table, (k, np.uint32(column)), (1, 1))[0, 0]
    # Results are multiplied by one on their way to a register: a mere copy would become a call of `memcpy`, which waits
    # for what was just written in smaller parts. XLA would see through it if all factors were one.
    ones = jnp.asarray(np.append(np.ones(len(tape.table)), -1.0)[:, None], dtype)

    def result(shape: Shape, operands: int, registers: Array, k: Array) -> Array:
        row = lambda column: lax.dynamic_slice(registers, (entry(k, column), np.uint32(0)), (1, members))
        return value(shape, [row(column) for column in range(1, operands + 1)]).astype(dtype)

    kinds = [functools.partial(result, *x) for x in tape.shapes]

    def after(i: Array, registers: Array) -> Array:
        k = i.astype(np.uint32)
        found = lax.switch(entry(k, 0).astype(np.int32), kinds, registers, k)
        found = found * lax.dynamic_slice(ones, (k, np.uint32(0)), (1, 1))
        return lax.dynamic_update_slice(registers, found, (entry(k, table.shape[1] - 1), np.uint32(0)))

    constants = jnp.broadcast_to(np.array(tape.constants, dtype)[:, None], (len(tape.constants), members))
    free = jnp.zeros((tape.size - len(constants) - len(inputs), members), dtype)
    registers = jnp.concatenate([constants, inputs, free])
    registers = lax.fori_loop(0, len(tape.table), after, registers)
    return registers[np.array(tape.outputs)]
