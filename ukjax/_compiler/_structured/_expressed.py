"""Expressions of numbered inputs as programs of scalars, called where another program computes with them."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._expressions import reachable
from ._identity import identity_of_expressions
from ._ir import Builder, DerivativeRule, Node, Operand, Region, is_number
from ._program import MOST, Program, spread_members
from ._trace import COMPOSED, Interpreter, Value, filled

MOST_CALLS = 16
"""How many times a program is run at most: each brings positions nearer, and two or three are usual."""


def program_of(of: Any) -> Program:
    """The program of expressions, which it is made of where it is first asked for."""
    t, sizes = of.dtype.name, of.counts[:-1] if of.again else of.counts

    def make() -> tuple[Region, list[Any]]:
        build = Builder(MOST)
        params = [build.parameter(build.top, t, n) for n in sizes]
        inputs = [
            filled((n,), [build.load(x, i) for i in range(n)]) for x, n in zip(params, sizes, strict=True)
        ]
        (found,) = _write(of, Interpreter(build), inputs)
        return build.top, [tuple(found.tolist())]

    return Program(
        make,
        [(t, n) for n in sizes],
        [(t, len(of.outputs))],
        functools.partial(identity_of_expressions, of),
        functools.partial(_write, of),
        repeats=of.again is not None,
    )


def _write(of: Any, interpreter: Interpreter, inputs: Sequence[Value]) -> list[Value]:
    """The outputs, member by member, by calls unless they are short."""
    arrays = [interpreter.scalars(x) for x in inputs]
    members = np.broadcast_shapes(*(x.shape[1:] for x in arrays))
    columns = np.concatenate([spread_members(x, members) for x in arrays]).T
    outputs = np.empty((len(of.outputs), len(columns)), object)
    for k, column in enumerate(columns):
        outputs[:, k] = (_repeat if of.again else _call)(of, interpreter, column.tolist())
    return [outputs.reshape(-1, *members)]


def _call(of: Any, interpreter: Interpreter, inputs: list[Operand]) -> list[Operand]:
    trace = lambda inner, flat: _inline(of, inner.b, flat)
    called = interpreter.call(of, inputs, [of.dtype.name] * len(inputs), trace)
    return called or _inline(of, interpreter.b, inputs)


def _repeat(of: Any, interpreter: Interpreter, inputs: list[Operand]) -> list[Operand]:
    """Their derivatives are those of the program at the operand it ends with, as of any point that a function leaves
    fixed."""
    t, b, (flag, first, size) = of.dtype.name, interpreter.b, of.again
    count = len(of.outputs)
    once = lambda before: _call(of, interpreter, [*inputs, *before[first : first + size]])

    def step(carried: Sequence[Operand]) -> Any:
        calls, before = carried[0], list(carried[1:])
        more = b.both(
            b.compare("gt", before[flag], 0.5, t), b.compare("lt", calls, MOST_CALLS, "int64"), "bool"
        )
        return more, lambda: [b.add(calls, 1, "int64"), *once(before)]

    start = [0.0] * count
    start[flag] = 1.0  # so that there is a first time
    found = b.loop([0, *start], [("int64", None), *[(t, None)] * count], step)[1:]
    return [b.apply("attached", t, *pair) for pair in zip(found, once(found), strict=True)]


def _inline(of: Any, b: Builder, inputs: list[Operand]) -> list[Operand]:
    """Expressions have no types: all are numbers of one, but for truths."""
    t, values = of.dtype.name, dict[Any, Operand]()
    known = lambda x: values[x] if hasattr(x, "op") else x
    for node in reachable(of.outputs):
        if node.op == "input":
            values[node] = inputs[node.args[0]]
            continue
        if node.op == "ruled":
            x, (call, k, i), *given = node.args
            values[node] = b.rule(known(x), _rule(call), k, i, [known(y) for y in given])
            continue
        args = [known(x) for x in node.args]
        op = node.op
        kinds = [x.type if isinstance(x, Node) else "bool" if isinstance(x, bool) else t for x in args]
        if op in COMPOSED:
            values[node] = COMPOSED[op](b, t, *args)
        elif op in ("eq", "ne", "and", "or", "xor", "not") and "bool" in kinds:
            args = [bool(x) if is_number(x) else x for x in args]
            op = {"eq": "xor", "ne": "xor"}.get(op, op)
            value = b.apply(op, "bool", *args)
            values[node] = b.invert(value, "bool") if node.op == "eq" else value
        elif op == "select":
            kind = "bool" if kinds[1] == "bool" and kinds[2] == "bool" else t
            values[node] = b.select(args[0], args[1], args[2], kind)
        else:
            values[node] = b.apply(op, t, *(x if isinstance(x, Node) else float(x) for x in args))
    of_type = lambda x: (
        b.convert(x, "bool", t) if isinstance(x, bool) or getattr(x, "type", t) == "bool" else x
    )
    return [of_type(known(x)) for x in of.outputs]


@functools.cache
def _rule(call: Any) -> DerivativeRule:
    return DerivativeRule(call.function, tuple(call.inputs))
