"""Scalar programs as one JAX operation: many numbers in, many numbers out, mapped over arrays of one shape.

The operation is closed under what JAX does with operations. Its `vmap` is itself on larger arrays. Its tangent, and
the transpose of that, are programs again: traced from JAX's own rules for one number each, and interpreted, so that
zeros fold away there too.

On a CPU it compiles to one loop over the members. XLA would otherwise make a loop of each output and compute what the
outputs share once in each: three to seven times the work, and as much more to compile. The one construct of XLA whose
body yields several numbers and is computed once is the body of a reduction, so the members are reduced two by two, by
a body that evaluates the program on the next member and passes the results of the one before.
"""

import functools
from collections.abc import Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array

from ._interpret import Interpreter
from ._moves import Scalars, filled
from ._parts import parts
from ._scalars import Builder, Expression, Node, evaluate, plain, reachable


@final
class Program:
    """Expressions of numbered inputs, all of one floating-point type.

    - `outputs`: the expressions.
    - `count`: the number of inputs.
    - `dtype`: of inputs and outputs.
    """

    def __init__(self, outputs: Sequence[Expression], count: int, dtype: Any):
        self.outputs, self.count, self.dtype = tuple(plain(outputs)), count, jnp.dtype(dtype)
        self._differentiated = tuple(outputs)
        self.tangent = functools.cache(self._tangent)
        self.transpose = functools.cache(self._transpose)

    @functools.cached_property
    def size(self) -> int:
        """The number of operations."""
        return sum(node.op != "input" for node in reachable(self.outputs))

    def __call__(self, inputs: Sequence[Array]) -> list[Array]:
        """The values of the outputs.

        **Arguments:**

        - `inputs`: arrays of one shape.
        """
        return program_p.bind(*inputs, program=self)

    def evaluate(self, inputs: Sequence[Array]) -> list[Array]:
        """The same as separate JAX operations."""
        return evaluate(self.outputs, inputs, self.dtype)

    def _tangent(self, varied: tuple[int, ...]) -> "Program":
        """The change of the outputs, from the inputs and the changes of those `varied`."""

        def change(*args: Array) -> list[Array]:
            inputs, changes = list(args[: self.count]), args[self.count :]

            def moved(*values: Array) -> list[Array]:
                for place, value in zip(varied, values, strict=True):
                    inputs[place] = value
                return evaluate(self._differentiated, inputs, self.dtype)

            return jax.jvp(moved, tuple(inputs[i] for i in varied), changes)[1]

        return traced(change, self.count + len(varied), self.dtype)

    def _transpose(self, linear: tuple[int, ...], given: tuple[int, ...]) -> "Program":
        """Cotangents of the inputs `linear`, from the other inputs and the cotangents of the outputs `given`."""
        others = [i for i in range(self.count) if i not in linear]

        def pulled(*args: Array) -> Sequence[Array]:
            known = dict(zip(others, args, strict=False))

            def partial(*values: Array) -> list[Array]:
                inputs = known | dict(zip(linear, values, strict=True))
                outputs = self.evaluate([inputs[i] for i in range(self.count)])
                return [outputs[i] for i in given]

            number = jax.ShapeDtypeStruct((), self.dtype)
            return jax.linear_transpose(partial, *[number] * len(linear))(list(args[len(others) :]))

        return traced(pulled, len(others) + len(given), self.dtype)


def traced(function: Any, count: int, dtype: Any) -> Program:
    """The program of a function of `count` numbers that returns numbers.

    **Arguments:**

    - `function`: made of JAX operations.
    - `count`: the number of its arguments.
    - `dtype`: of all.
    """
    closed = jax.make_jaxpr(function)(*[jax.ShapeDtypeStruct((), dtype)] * count)
    build = Builder()
    inputs: list[Scalars] = [filled((), [build.input(i)]) for i in range(count)]
    outputs = Interpreter(build).run(closed.jaxpr, closed.consts, inputs)
    return Program([x[()] for x in outputs], count, dtype)


program_p = core.Primitive("scalar_program")
program_p.multiple_results = True


@program_p.def_abstract_eval
def _abstract(*inputs: Any, program: Program) -> list[Any]:
    return [inputs[0].update(dtype=program.dtype, weak_type=False)] * len(program.outputs)


@functools.partial(jax.jit, static_argnames="program")
def _run(*inputs: Array, program: Program) -> list[Array]:
    return program_p.bind(*inputs, program=program)


@program_p.def_impl
def _impl(*inputs: Array, program: Program) -> list[Array]:
    return _run(*inputs, program=program)


def _batched(inputs: Sequence[Array], axes: Sequence[Any], *, program: Program) -> tuple[list[Array], list]:
    size = next(x.shape[a] for x, a in zip(inputs, axes, strict=True) if a is not None)
    rows = [
        jnp.broadcast_to(x[None], (size, *x.shape)) if a is None else jnp.moveaxis(x, a, 0)
        for x, a in zip(inputs, axes, strict=True)
    ]
    return program_p.bind(*rows, program=program), [0] * len(program.outputs)


def _jvp(primals: Sequence[Array], tangents: Sequence[Any], *, program: Program) -> tuple[list, list]:
    varied = tuple(i for i, x in enumerate(tangents) if type(x) is not ad.Zero)
    change = program.tangent(varied)
    return program_p.bind(*primals, program=program), program_p.bind(
        *primals, *(tangents[i] for i in varied), program=change
    )


def _transposed(cotangents: Sequence[Any], *inputs: Any, program: Program) -> list[Any]:
    linear = tuple(i for i, x in enumerate(inputs) if ad.is_undefined_primal(x))
    given = tuple(i for i, x in enumerate(cotangents) if type(x) is not ad.Zero)
    known = [x for x in inputs if not ad.is_undefined_primal(x)]
    pulled = program_p.bind(*known, *(cotangents[i] for i in given), program=program.transpose(linear, given))
    places = dict(zip(linear, pulled, strict=True))
    return [places.get(i) for i in range(len(inputs))]


def _paired(*inputs: Array, program: Program) -> list[Array]:
    """The program as reductions of pairs of members; see the module's docstring."""
    shape, size = inputs[0].shape, inputs[0].size
    values: dict[Any, Array] = dict(enumerate(jnp.reshape(x, -1) for x in inputs))
    for part in parts(program.outputs):
        needed = [values[x.args[0] if x.op == "input" else x] for x in part.needs]
        found = _reduced(Program(part.outputs, len(needed), program.dtype), needed)
        values |= zip(part.gives, found, strict=True)

    def value(x: Expression) -> Array:
        if not isinstance(x, Node):
            return jnp.full((size,), x, program.dtype)
        return values[x.args[0] if x.op == "input" else x]

    return [jnp.reshape(value(x), shape) for x in program.outputs]


def _reduced(program: Program, inputs: Sequence[Array]) -> list[Array]:
    """A program over vectors, as the reduction of pairs of their entries."""
    size, outputs = inputs[0].size, len(program.outputs)
    if size == 1:  # computed twice, which costs less than a loop for each output
        pairs = [jnp.broadcast_to(x[:, None], (1, 2)) for x in inputs]
    else:
        pairs = [jnp.reshape(jnp.pad(x, (0, size % 2), mode="edge"), (-1, 2)) for x in inputs]
    pairs += [pairs[0]] * (2 * outputs - len(pairs))

    def body(before: Sequence[Array], member: Sequence[Array]) -> tuple[Array, ...]:
        return (
            *before[outputs : 2 * outputs],
            *program.evaluate(member[: len(inputs)]),
            *member[2 * outputs :],
        )

    found = lax.reduce(tuple(pairs), (jnp.zeros((), program.dtype),) * len(pairs), body, (1,))
    # All results count as used: a pass that looks for what unused ones need takes exponential time on such a body.
    found = lax.optimization_barrier(found)
    if size == 1:
        return list(found[outputs : 2 * outputs])
    both = zip(found[:outputs], found[outputs : 2 * outputs], strict=True)
    return [jnp.stack(pair, axis=1).reshape(-1)[:size] for pair in both]


def _on_cpu(ctx: Any, *inputs: Any, program: Program) -> Any:
    # Partitioned by XLA, the reduction itself could be split among devices; under shard_map it is local.
    alone = getattr(ctx.module_context.axis_context, "num_devices", 1) in (None, 1)
    way = _paired if alone and ctx.avals_in[0].size else _separately
    return mlir.lower_fun(way, multiple_results=True)(ctx, *inputs, program=program)


def _separately(*inputs: Array, program: Program) -> list[Array]:
    return program.evaluate(inputs)


batching.primitive_batchers[program_p] = _batched
ad.primitive_jvps[program_p] = _jvp
ad.primitive_transposes[program_p] = _transposed
mlir.register_lowering(program_p, mlir.lower_fun(_separately, multiple_results=True))
mlir.register_lowering(program_p, _on_cpu, platform="cpu")
