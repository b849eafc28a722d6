"""Tables 1-6 of de Falco, Pennestri and Vita (2008) again: operations they count, and those this package does.

The paper counts additions and multiplications by formula. Here every primitive of a traced computation is counted,
loop bodies as often as they run: XLA's own count has each body once.

    python experiments/flop_counts.py [--quick]
"""

import argparse
import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal, jaxpr_as_fun
from paper_tables import Table
from pseudoinverse_dpv import METHODS

import ukjax as uk
from ukjax._formula._acceleration import Equations

SIZES = ((2, 3, 2), (15, 18, 15), (19, 28, 19), (12, 12, 11))
"""m, n and rank: those of Table 6, and the parallelogram's."""


def pseudoinverse_of(m: int, n: int) -> int:
    """What the paper takes for a pseudoinverse, whatever the method: the SVD's (Golub and Van Loan 1996)."""
    return 4 * m**2 * n + 8 * m * n**2 + 9 * n**3


# Table 1, and the sums of Tables 2-5.
FORMULAS: dict[str, Callable[[int, int], int]] = {
    "(31)": lambda m, n: 12 * m * n**2 + 4 * m**2 * n + 9 * n**3 + 6 * n**2 + 4 * n,
    "(43)": lambda m, n: (
        4 * m**2 * n + 10 * m * n**2 + 11 * n**3 + 4 * (n + m) ** 2 * n + (n + m) * (8 * n**2 + 2 * n) + n
    ),
    "(35)": lambda m, n: 8 * n**2 * m + 21 * m**3 + 2 * m**2 * n + 6 * n**2 + 3 * n,
    "(41)": lambda m, n: 4 * m**2 * n + 12 * m * n**2 + 34 * n**3 + 3 * n + 4 * n**2,
}
SUMS: dict[str, Callable[[int, int], int]] = {
    "(31)": lambda m, n: 2 * n + 4 * n**2 * m + pseudoinverse_of(m, n) + 6 * n**2 + 2 * n,
    "(43)": lambda m, n: (
        pseudoinverse_of(m, n) + 2 * m * n**2 + n + 2 * n**3 + pseudoinverse_of(n + m, n) + 2 * (n + m) * n
    ),
    "(35)": lambda m, n: n + 8 * n**2 * m + 21 * m**3 + 2 * m**2 * n + n + 6 * n**2 + n,
    "(41)": lambda m, n: pseudoinverse_of(m, n) + 4 * n**2 * m + 2 * n + 25 * n**3 + 4 * n**2 + n,
}
TABLE_6 = {
    "(31)": {(2, 3): 573, (15, 18): 129_024, (19, 28): 421_568},
    "(43)": {(2, 3): 1218, (15, 18): 294_102, (19, 28): 975_716},
    "(35)": {(2, 3): 399, (15, 18): 119_853, (19, 28): 288_211},
    "(41)": {(2, 3): 1227, (15, 18): 274_158, (19, 28): 968_772},
}
OURS = {"(31)": uk.UdwadiaKalaba, "(43)": uk.StackedForm, "(35)": uk.Schur, "(41)": uk.RangeForm}


# --- Counting


@dataclasses.dataclass(frozen=True)
class Count:
    """Floating-point arithmetic, as the paper counts it; and all that XLA counts, choices and integers too."""

    arithmetic: int = 0
    total: int = 0

    def __add__(self, other: "Count") -> "Count":
        return Count(self.arithmetic + other.arithmetic, self.total + other.total)

    def __mul__(self, times: int) -> "Count":
        return Count(times * self.arithmetic, times * self.total)


MOVES = {
    *("broadcast_in_dim", "reshape", "slice", "squeeze", "transpose", "concatenate", "iota", "pad", "split"),
    *("copy", "convert_element_type", "dynamic_slice", "dynamic_update_slice", "gather", "platform_index"),
}
ARITHMETIC = {"add", "sub", "mul", "div", "neg", "abs", "sqrt", "max", "min", "square"}
CHOICES = {"select_n", "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not", "is_finite"}
REDUCTIONS = {"reduce_sum", "reduce_max", "reduce_and", "reduce_or"}


class NotCountedError(Exception):
    """A primitive whose operations are not known, such as a LAPACK routine."""


def _of_primitive(equation: Any) -> Count:
    """Additions, multiplications, divisions, square roots and maxima are one operation each."""
    name, out = equation.primitive.name, equation.outvars[0].aval
    operand = equation.invars[0].aval if equation.invars else out
    real = bool(jnp.issubdtype(operand.dtype, jnp.floating))
    if name in MOVES:
        return Count()
    if name in ARITHMETIC:
        return Count(out.size * real, out.size)
    if name in CHOICES:
        return Count(0, out.size)
    if name in REDUCTIONS:
        return Count((operand.size - out.size) * real, operand.size - out.size)
    if name == "argmax":  # XLA's reduction compares values and places: nine operations, seven of truth values
        each = 7 if operand.dtype == bool else 9
        return Count(operand.size - out.size, each * (operand.size - out.size))
    if name == "integer_pow" and equation.params["y"] == 2:
        return Count(out.size, out.size)
    if name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        return Count(1, 1) * (2 * math.prod(operand.shape[i] for i in contracted) * out.size)
    raise NotCountedError(name)


def _needed(jaxpr: Any) -> list[Any]:
    """The equations on which the results depend: a compiler drops the others."""
    kept, wanted = [], {x for x in jaxpr.outvars if not isinstance(x, Literal)}
    for equation in reversed(jaxpr.eqns):
        if not wanted.isdisjoint(equation.outvars):
            kept.append(equation)
            wanted |= {x for x in equation.invars if not isinstance(x, Literal)}
    return kept[::-1]


def _called(equation: Any) -> Any | None:
    """The jaxpr an equation runs once: that of a jitted function, or of one with its own derivative."""
    return equation.params.get("jaxpr" if equation.primitive.name == "jit" else "call_jaxpr")


def _count(closed: Any, passes: Iterator[int]) -> Count:
    """The operations of a jaxpr whose while loops, none within another loop, run `passes` times."""
    count, none = Count(), iter(())
    for equation in _needed(closed.jaxpr):
        called, params = _called(equation), equation.params
        if called is not None:
            count += _count(called, passes)
        elif equation.primitive.name == "scan":
            count += _count(params["jaxpr"], none) * params["length"]
        elif equation.primitive.name == "while":
            times = next(passes)
            count += _count(params["cond_jaxpr"], none) * (times + 1)
            count += _count(params["body_jaxpr"], none) * times
        elif equation.primitive.name == "cond":  # a choice of platform; the last is any other
            count += _count(params["branches"][-1], passes)
        else:
            count += _of_primitive(equation)
    return count


def _counted_loop(params: dict[str, Any], inputs: list[Any]) -> tuple[list[Any], jax.Array]:
    """What a while loop returns, and how often it ran."""
    at, body_at = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
    unfinished, step = (jaxpr_as_fun(params[f"{part}_jaxpr"]) for part in ("cond", "body"))
    passes, state = jax.lax.while_loop(
        lambda carry: unfinished(*inputs[:at], *carry[1])[0],
        lambda carry: (carry[0] + 1, step(*inputs[at:body_at], *carry[1])),
        (jnp.zeros((), int), inputs[body_at:]),
    )
    return state, passes


def _run(closed: Any, values: Sequence[Any]) -> tuple[list[Any], list[jax.Array]]:
    """The results of a jaxpr, and how often each of its while loops ran."""
    jaxpr, passes = closed.jaxpr, []
    known = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*closed.consts, *values], strict=True))
    read = lambda x: x.val if isinstance(x, Literal) else known[x]
    for equation in _needed(jaxpr):
        inputs, called = [read(x) for x in equation.invars], _called(equation)
        if called is not None:
            results, more = _run(called, inputs)
            passes += more
        elif equation.primitive.name == "while":
            results, times = _counted_loop(equation.params, inputs)
            passes.append(times)
        else:
            results = equation.primitive.bind(*inputs, **equation.params)
            results = results if equation.primitive.multiple_results else [results]
        known |= dict(zip(equation.outvars, results, strict=True))
    return [read(x) for x in jaxpr.outvars], passes


def flops(fn: Callable[..., Any], *arguments: Any) -> Count:
    """The operations of fn(*arguments): loops count as often as they run on these arguments."""
    closed = jax.make_jaxpr(fn)(*arguments)
    passes = jax.jit(lambda values: _run(closed, values)[1])(jax.tree.leaves(arguments))
    return _count(closed, iter([int(times) for times in passes]))


def xla(fn: Callable[..., Any], *arguments: Any) -> int:
    """What XLA reports for the compiled function: every loop body once."""
    cost = jax.jit(fn).lower(*arguments).compile().cost_analysis()
    return int(cost["flops"] + cost.get("transcendentals", 0))


# --- The tables


def random_equations(m: int, n: int, rank: int) -> Equations:
    """M a = Q under m rows of that rank, consistent; M is full, where the paper takes it for diagonal."""
    rng = np.random.default_rng(0)
    normal = lambda *shape: jnp.asarray(rng.normal(size=shape))
    A, root = normal(m, rank) @ normal(rank, n), normal(n, n)
    zero, names = jnp.zeros(m), tuple(map(str, range(m)))
    rows = uk.Rows(A, A @ normal(n), zero, zero, names, ("acceleration",) * m)
    return Equations(root @ root.T + n * jnp.eye(n), normal(n), jnp.zeros(n), rows)


def _kernel(B: jax.Array, method: Any) -> jax.Array:
    """The method itself, for rows of unit norm: its answer is not yet symmetrized."""
    return method.of_unit_rows(B)[0]


def pseudoinverses(sizes: Sequence[tuple[int, int, int]]) -> dict[tuple[int, int, int, str], tuple[int, ...]]:
    """By size and method: the paper's count, the kernel's, `pinv`'s with scaling and its undoing, XLA's report."""
    found = {}
    for size in sizes:
        A = random_equations(*size).rows.A
        unit = A / jnp.linalg.norm(A, axis=1, keepdims=True)
        for name, method in METHODS.items():
            whole = lambda B, method=method: uk.pinv(B, method()).matrix
            kernel = flops(lambda B, method=method: _kernel(B, method()), unit).arithmetic
            found[*size, name] = (
                pseudoinverse_of(*size[:2]),
                kernel,
                flops(whole, A).arithmetic,
                xla(whole, A),
            )
    return found


def accelerations(
    sizes: Sequence[tuple[int, int, int]],
) -> dict[tuple[int, int, int, str], tuple[int | None, ...]]:
    """By size and formula: the paper's count, ours by `GramSchmidt` and by `SVD` (None: LAPACK, not counted)."""
    found = {}
    for size in sizes:
        equations = random_equations(*size)
        for number, formula in OURS.items():
            counts = []
            for method in (uk.GramSchmidt(), uk.SVD()):
                solve = lambda e, f=formula(method): f.solve(e).a
                try:
                    counts.append(flops(solve, equations).arithmetic)
                except NotCountedError:
                    counts.append(None)
            found[*size, number] = (FORMULAS[number](*size[:2]), *counts)
    return found


def _table(title: str, columns: Sequence[str], found: dict[Any, tuple[int | None, ...]]) -> Table:
    result = Table(f"{title}; in brackets: in parts of the paper's count", "m × n, rank", *columns, names=2)
    for (m, n, rank, name), (paper, *counts) in found.items():
        ours = ["LAPACK" if x is None else f"{x:,} ({x / paper:.2f})" for x in counts]
        result.add_row(f"{m} × {n}, {rank}", name, f"{paper:,}", *ours)
    return result


def main(arguments: list[str] | None = None) -> tuple[dict, dict]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the smallest size only")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    sizes = SIZES[:1] if options.quick else SIZES
    inverses = pseudoinverses(sizes)
    columns = ("method", "the paper (SVD)", "method by itself", "with scaling", "XLA's report")
    print(_table("Floating-point operations of a pseudoinverse", columns, inverses))
    accelerated = accelerations(sizes)
    columns = ("equation", "the paper", "GramSchmidt", "SVD")
    print(_table("... of an acceleration", columns, accelerated))
    return inverses, accelerated


if __name__ == "__main__":
    main()
