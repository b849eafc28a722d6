"""Scalar programs as tables of operations that one loop works off: however long they are, there is little to compile.

The numbers of all members stand in registers, and an operation takes up to three of them into another. Within a loop that
XLA compiles whole it takes some ten nanoseconds, and half a nanosecond a member.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from ._expressions import BOOLEAN, OPERATIONS, Expression, Node, reachable
from ._trigonometry import by_polynomials

_FUSED: dict[str, Callable[..., Array]] = {
    "mul_add": lambda x, y, z: x * y + z,
    "mul_sub": lambda x, y, z: x * y - z,
    "sub_mul": lambda x, y, z: z - x * y,
}
_TAKES_BOOLEANS = {"and": 2, "or": 2, "xor": 2, "not": 1, "select": 1}  # how many of its first operands
_CACHED = 2**19  # numbers worked on at a time: they stay in a processor's caches
_MOST_STEPS = 200_000  # of more, with their registers, XLA does not compile the loop whole


class Tape(NamedTuple):
    """A program as a table; constants come first in the registers, then inputs.

    - `kinds`: operations that occur, with how many operands each has.
    - `table`: for each step its kind, the registers of three operands, and that of the result (steps, 5).
    - `constants`: their values.
    - `size`: how many registers there are.
    - `outputs`: the registers of the program's outputs.
    """

    kinds: list[tuple[str, int]]
    table: np.ndarray
    constants: list[float]
    size: int
    outputs: list[int]


Step = tuple[str, tuple[Expression, ...]]


def _fused(nodes: Sequence[Node], outputs: Sequence[Expression]) -> dict[Node, Step]:
    """The steps, in order, by the operation each gives the result of; products used once go with their sum."""
    uses: dict[Any, int] = {}
    for x in [*outputs, *(y for node in nodes for y in node.args)]:
        uses[x] = uses.get(x, 0) + 1
    lone = lambda x: isinstance(x, Node) and x.op == "mul" and uses[x] == 1
    steps: dict[Node, Step] = {}
    for node in nodes:
        steps[node] = (node.op, node.args)
        if node.op in ("add", "sub"):
            first, second = node.args
            if lone(second):
                steps[node] = ("mul_add" if node.op == "add" else "sub_mul", (*second.args, first))
                del steps[second]
            elif lone(first):
                steps[node] = (f"mul_{node.op}", (*first.args, second))
                del steps[first]
    return steps


def tape(outputs: Sequence[Expression], count: int) -> Tape:
    """The table of a program.

    **Arguments:**

    - `outputs`: of the program.
    - `count`: of its inputs.
    """
    steps = _fused([x for x in reachable(outputs) if x.op != "input"], outputs)
    last = {x: i for i, (_, args) in enumerate(steps.values()) for x in args if isinstance(x, Node)}
    given = [*outputs, *(x for _, args in steps.values() for x in args)]
    constants = list(dict.fromkeys(float(x) for x in given if not isinstance(x, Node)))
    first = len(constants) + count
    place: dict[Any, int] = {x: k for k, x in enumerate(constants)}
    place |= {x: len(constants) + x.args[0] for x in given if isinstance(x, Node) and x.op == "input"}
    at = lambda x: place[x if isinstance(x, Node) else float(x)]
    kept, free, size = set(outputs), [], first
    kinds: dict[tuple[str, int], int] = {}
    table = np.zeros((len(steps), 5), np.int32)
    for i, (node, (op, args)) in enumerate(steps.items()):
        reads = [at(x) for x in args]
        free += [at(x) for x in dict.fromkeys(args) if last.get(x) == i and x not in kept and at(x) >= first]
        if not free:
            free, size = [size], size + 1
        place[node] = free.pop()
        kind = kinds.setdefault((op, len(args)), len(kinds))
        table[i] = [kind, *reads, *[0] * (3 - len(reads)), place[node]]
    return Tape(list(kinds), table, constants, size, [at(x) for x in outputs])


def fits(tape: Tape) -> bool:
    """Whether its loop is compiled whole where loops are."""
    return len(tape.table) <= _MOST_STEPS


def block_of(tape: Tape) -> int:
    """How many members to work on at a time."""
    return max(16, _CACHED // tape.size)


def _computed(op: str) -> Callable[..., Array]:
    """An operation on numbers, which are one and zero for true and false."""
    by = {**OPERATIONS, **_FUSED, **by_polynomials()}[op]

    def compute(*args: Array) -> Array:
        booleans = _TAKES_BOOLEANS.get(op, 0)
        found = by(*(x > 0.5 if i < booleans else x for i, x in enumerate(args)))
        return found.astype(args[0].dtype) if op in BOOLEAN else found

    return compute


def run(tape: Tape, inputs: Float[Array, "count members"]) -> Float[Array, "outputs members"]:
    """The outputs.

    **Arguments:**

    - `tape`: of the program.
    - `inputs`: of the program.
    """
    members, dtype, steps = inputs.shape[1], inputs.dtype, jnp.asarray(tape.table)
    constants = jnp.broadcast_to(
        jnp.asarray(np.array(tape.constants, dtype))[:, None], (len(tape.constants), members)
    )
    later = jnp.zeros((tape.size - len(constants) - len(inputs), members), dtype)

    def result(op: str, operands: int, registers: Array, step: Array) -> Array:
        taken = [lax.dynamic_index_in_dim(registers, step[k], keepdims=False) for k in range(1, operands + 1)]
        return _computed(op)(*taken)

    kinds = [functools.partial(result, *kind) for kind in tape.kinds]

    def after(k: Array, registers: Array) -> Array:
        step = lax.dynamic_index_in_dim(steps, k, keepdims=False)
        found = lax.switch(step[0], kinds, registers, step)
        return lax.dynamic_update_index_in_dim(registers, found, step[4], 0)

    registers = jnp.concatenate([constants, inputs, later])
    registers = lax.fori_loop(np.int32(0), np.int32(len(tape.table)), after, registers)
    return registers[np.array(tape.outputs)]
