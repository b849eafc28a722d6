"""Functions that a program of scalars calls, beside the same by `jax.jit` and finite differences."""

import functools
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from numpy.testing import assert_allclose

import ukjax as uk
from ukjax._compiler._structured import _llvm, _llvm_function, _program
from ukjax._compiler._structured._builder import Builder
from ukjax._compiler._structured._lanes import Lanes
from ukjax._compiler._structured._subprogram import Subprogram

X = jnp.array([0.5, 1.5, 2.5])


@jax.jit
def _solved(x: Any) -> tuple[Any, Any]:
    """The solution of equations whose matrix depends on x, and a sum."""
    rows = jnp.sin(jnp.outer(x, jnp.arange(1.0, 21.0, dtype=x.dtype)))
    return jnp.linalg.solve(rows @ rows.T + 3 * jnp.eye(3, dtype=x.dtype), x), jnp.cos(rows).sum()


@jax.jit
def _roots(x: Any) -> Any:
    """Roots of y^2 + sum sin(k y) / 1000 = x by Newton's method, each by as many steps as it takes."""
    k = jnp.arange(1.0, 25.0)
    f = lambda y: y * y + 1e-3 * jnp.sin(jnp.outer(y, k)).sum(1) - x
    slope = lambda y: 2 * y + 1e-3 * jnp.cos(jnp.outer(y, k)) @ k
    return lax.while_loop(lambda y: jnp.any(jnp.abs(f(y)) > 1e-13), lambda y: y - f(y) / slope(y), x + 1.0)


@jax.jit
def _mixed(x: Any, k: Any, more: Any) -> Any:
    """Truths, whole numbers, an argument handed back, a constant, and the same twice."""
    y = jnp.sin(jnp.outer(x, jnp.arange(60.0))).sum(1)
    return y > 0, k + jnp.int32(jnp.sum(jnp.abs(y))), more, 7.0, y, y


@jax.jit
def _twice(x: Any) -> Any:
    """A function that calls another twice."""
    y, s = _solved(x)
    return _solved(y + x)[0] * s + jnp.sin(jnp.outer(x, jnp.arange(1.0, 40.0, dtype=x.dtype))).sum(1)


@functools.partial(jax.jit, static_argnums=1)
def _product(a: Any, n: int) -> Any:
    return functools.reduce(jnp.matmul, [a] * n)


@jax.jit
def _scaled(x: Any, y: Any, z: Any) -> tuple[Any, Any]:
    """Little of y, more of x, and most of z; and what depends on z alone."""
    rows = jnp.sin(jnp.outer(z, jnp.arange(1.0, 21.0, dtype=z.dtype)))
    return (rows.sum(1) + jnp.exp(-x) * jnp.exp(-x[::-1]) ** 2) * jnp.sin(y) + jnp.cos(rows).mean(), rows[
        0, 3
    ]


def _rotated(x: Any) -> Any:
    """Products of sparse matrices, whose zeros are known."""
    c, s = jnp.cos(x), jnp.sin(x)
    turn = lambda i: jnp.array([[c[i], -s[i], 0.0, x[i]], [s[i], c[i], 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    return _product(turn(0), 20) @ _product(turn(1), 20)


CALLS: dict[str, Callable[..., Any]] = {
    "once": lambda x: _solved(x + 1),
    "twice": lambda x: [_solved(_solved(x)[0] + x)[0], _solved(3 * x)[1]],
    "in a loop": lambda x: lax.fori_loop(0, 40, lambda i, y: y + 0.05 * _solved(y)[0], x),
    "in a side": lambda x: lax.cond(x[0] > 0.4, lambda y: _solved(y)[0], lambda y: 2 * _solved(-y)[0], x),
    "of a call": lambda x: _twice(x) + _twice(2 * x),
    "with a loop": lambda x: _roots(x) * _roots(x + _roots(x[::-1])),
    "with a loop, in a loop": lambda x: lax.while_loop(
        lambda y: y[0] < 3, lambda y: y + 0.2 * _roots(y + 1) + 0.1 * _roots(y + 2), x
    ),
    "of what does not change in a loop": lambda x: lax.fori_loop(
        0, 40, lambda i, y: 0.5 * y + 0.1 * _scaled(x, y, x)[0] * _scaled(x, y, x)[1], x
    ),
    "of what changes in two loops": lambda x: lax.fori_loop(
        0, 5, lambda i, y: lax.fori_loop(0, 4, lambda j, z: 0.5 * z + 0.1 * _scaled(y, z, x)[0], y), x
    ),
    "before, in and after a loop": lambda x: (
        _scaled(x, x[::-1], x)[0]
        + lax.fori_loop(0, 40, lambda i, y: 0.5 * y + 0.1 * _scaled(x, y, x)[0], x)
        + _scaled(2 * x, x, x)[1]
    ),
    "of zeros": _rotated,
}


def _total(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: sum(jnp.sum(jnp.sin(y)) for y in jax.tree.leaves(f(x)))


def _assert_same(result: Any, wanted: Any, rtol: float = 1e-12) -> None:
    assert jax.tree.structure(result) == jax.tree.structure(wanted)
    for a, b in zip(jax.tree.leaves(result), jax.tree.leaves(wanted), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        assert_allclose(a, b, rtol=rtol, atol=rtol)


def _calls(text: str) -> int:
    """How many calls there are, those of sub-programs aside."""
    return len(re.findall(r": call callee", text.split("\n\n")[0]))


@pytest.mark.parametrize("name", CALLS)
def test_a_program_with_calls_gives_what_it_gives_by_xla(name: str) -> None:
    scalar = uk.scalarize(CALLS[name])
    _assert_same(scalar(X), jax.jit(CALLS[name])(X))
    assert _calls(scalar.as_text(X)) >= 1


def test_a_function_is_one_sub_program_wherever_it_is_called() -> None:
    text = uk.scalarize(lambda x: [_solved(k * x)[0] for k in range(1, 6)]).as_text(X)
    assert _calls(text) == 5
    assert len(set(re.findall(r": call (callee \d+)", text.split("\n\n")[0]))) == 1


def test_what_does_not_change_in_a_loop_is_called_before_it() -> None:
    text = uk.scalarize(CALLS["of what changes in two loops"]).as_text(X)
    program, *callees = text.split("\n\n")
    depths = [len(line) - len(line.lstrip()) for line in program.split("\n") if ": call callee" in line]
    assert len(callees) == 3
    assert depths[0] < depths[1] < depths[2]
    assert ["cos" in callee for callee in callees] == [True, False, False]
    assert ["exp" in callee for callee in callees] == [False, True, False]


def test_all_calls_of_a_sub_program_are_calls_of_its_parts() -> None:
    program = uk.scalarize(CALLS["before, in and after a loop"])._trace_for((X,), {})[1].program
    code = program._code((True,), 1)
    assert (code.text + code.beside).count("call double @exp(") == 3  # of three entries, in one function


def test_loops_of_known_numbers_are_not_compiled_by_xla() -> None:
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, _, **__: compiled.append(event) if "backend_compile" in event else None
    )
    powers = lambda: lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, 1.5 * s[1]), (0, 1.0))
    summed = lambda: lax.scan(lambda total, k: (total + k, total), 0.0, jnp.arange(5.0))
    scalar, before = uk.scalarize(lambda x: x * powers()[1] + summed()[0]), len(compiled)
    text = scalar.as_text(X)
    assert len(compiled) == before
    assert "loop" not in text
    assert_allclose(scalar(X), X * 1.5**5 + 10, rtol=1e-14)


def test_a_sub_program_serves_for_numbers_that_make_it_no_shorter() -> None:
    @jax.jit
    def waves(x: Any, shift: Any) -> Any:
        return jnp.sin(jnp.outer(x, jnp.arange(1.0, 41.0)) + shift).sum(1)

    def summed(x: Any) -> Any:
        return waves(x, 0.5) + waves(x, 1.5) + waves(x, 2.5)

    program = uk.scalarize(summed)
    called = re.findall(r": call (callee \d+)", program.as_text(X).split("\n\n")[0])
    assert len(called) == 3
    assert len(set(called)) == 2  # that of the first number, and one for any
    assert_allclose(program(X), summed(X), rtol=1e-13)


def test_outputs_of_all_kinds_come_back() -> None:
    f = lambda x: [_mixed(y, jnp.int32(x[0] * 9), 2 * y) for y in (x, -x, x + 1)]
    scalar = uk.scalarize(f)
    _assert_same(scalar(X), jax.jit(f)(X))
    assert _calls(scalar.as_text(X)) == 3


def test_known_zeros_vanish_in_sub_programs() -> None:
    count = lambda f: len(uk.scalarize(f).as_text(X).splitlines())
    dense = lambda x: _product(jnp.outer(x, x), 6)
    sparse = lambda x: _product(jnp.diag(x), 6)
    assert count(sparse) < 0.4 * count(dense)


@pytest.mark.parametrize("name", CALLS)
def test_members_of_a_batch_are_those_alone(name: str) -> None:
    scalar = uk.scalarize(CALLS[name])
    batch = jnp.stack([(1 + 0.07 * k) * X for k in range(11)], 1)
    alone = [scalar(batch[:, k]) for k in range(11)]
    _assert_same(jax.vmap(scalar, 1)(batch), jax.tree.map(lambda *y: jnp.stack(y), *alone))
    gradient = jax.grad(_total(scalar))
    each = jnp.stack([gradient(batch[:, k]) for k in range(11)])
    assert_allclose(jax.vmap(gradient, 1)(batch), each, rtol=1e-9)


@pytest.mark.parametrize("name", CALLS)
def test_first_and_second_derivatives_are_those_of_differences(name: str) -> None:
    plain, scalar, h = _total(jax.jit(CALLS[name])), _total(uk.scalarize(CALLS[name])), 1e-6
    d = jnp.array([0.3, -0.7, 0.4])
    slope = (plain(X + h * d) - plain(X - h * d)) / (2 * h)
    assert_allclose(jax.jvp(scalar, (X,), (d,))[1], slope, rtol=1e-5, atol=1e-8)
    gradient = jax.jit(jax.grad(scalar))
    assert_allclose(jnp.sum(gradient(X) * d), slope, rtol=1e-5, atol=1e-8)
    bend = (gradient(X + h * d) - gradient(X - h * d)) / (2 * h)
    scale = float(jnp.max(jnp.abs(bend))) + 1e-3
    ways = {
        "forward over forward": lambda: jax.jacfwd(lambda y: jax.jvp(scalar, (y,), (d,))[1])(X),
        "forward over reverse": lambda: jax.jvp(jax.grad(scalar), (X,), (d,))[1],
        "reverse over reverse": lambda: jax.grad(lambda y: jnp.sum(jax.grad(scalar)(y) * d))(X),
        "reverse over forward": lambda: jax.grad(lambda y: jax.jvp(scalar, (y,), (d,))[1])(X),
    }
    for way, second in ways.items():
        assert_allclose(second() / scale, bend / scale, rtol=0, atol=1e-6, err_msg=way)


@pytest.mark.parametrize("name", ["twice", "in a loop", "of a call"])
def test_float32_stays_float32(name: str) -> None:
    x = X.astype(jnp.float32)
    _assert_same(uk.scalarize(CALLS[name])(x), jax.jit(CALLS[name])(x), rtol=3e-6)


@pytest.mark.parametrize("name", CALLS)
def test_what_is_exported_gives_the_same(name: str) -> None:
    scalar = uk.scalarize(CALLS[name])
    exported = jax.export.export(jax.jit(jax.vmap(scalar)))(jax.ShapeDtypeStruct((2, 3), jnp.float64))
    both = jnp.stack([X, 1.2 * X])
    _assert_same(exported.call(both), jax.vmap(scalar)(both), rtol=1e-11)


def test_programs_of_the_package_are_called_too() -> None:
    problem = uk.models.four_bars(1)
    lanes, q, v = uk.lanes(problem.system), jnp.asarray(problem.q0)[None], jnp.asarray(problem.v0)[None]
    f = lambda q, v: lanes(0.0, q, v) + lanes(0.0, q, 2 * v)
    scalar = uk.scalarize(f)
    assert_allclose(scalar(q, v), f(q, v), rtol=1e-11, atol=1e-11)
    assert _calls(scalar.as_text(q, v)) == 2
    along = lambda g: jax.jvp(lambda v: g(q, v), (v,), (v,))[1]
    assert_allclose(along(scalar), along(f), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(
    "limits",
    [
        {"straight": {"float64": 20}, "_DIRECT": 1},
        {"_TOGETHER": 1, "_DIRECT": 0},
        {"_TOGETHER": 1, "_DIRECT": 0, "_SHARED": 0, "straight": {"float64": 20}, "_AS_LONG": 0},
    ],
    ids=["in pieces", "in memory", "shared"],
)
def test_however_functions_are_given_their_numbers(
    name: str, limits: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code that is long, or called by several programs, is functions that leave each other numbers in memory."""
    wanted = jax.jit(CALLS[name])(X), jax.grad(_total(uk.scalarize(CALLS[name])))(X)
    for limit, value in limits.items():
        owner = next(x for x in (Lanes, _llvm, _llvm_function) if hasattr(x, limit))
        monkeypatch.setattr(owner, limit, value)
    monkeypatch.setattr(_program, "identity", lambda *_: None)  # or machine code kept would be taken
    scalar = uk.scalarize(CALLS[name])
    _assert_same(scalar(X), wanted[0])
    assert_allclose(jax.grad(_total(scalar))(X), wanted[1], rtol=1e-12)
    batch = jnp.stack([X, 1.1 * X, 0.9 * X])
    assert_allclose(jax.vmap(jax.grad(_total(scalar)))(batch)[0], wanted[1], rtol=1e-11)


def test_programs_share_the_machine_code_of_what_they_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_llvm, "_SHARED", 100)
    problem = uk.models.four_bars(1)
    lanes, q, v = uk.lanes(problem.system), jnp.asarray(problem.q0), jnp.asarray(problem.v0)
    one = uk.scalarize(lambda q, v: lanes.one(0.0, q, v))
    other = uk.scalarize(lambda q, v: lax.fori_loop(0, 3, lambda _, v: v + 0.1 * lanes.one(0.0, q, v), v))
    codes = [x._trace_for((q, v), {})[1].program._code((True, True), 1) for x in (one, other)]
    assert len(codes[0].units) == 1
    assert codes[0].units == codes[1].units
    assert all(code.text.count("\n") < codes[0].units[0].count("\n") for code in codes)
    wanted = v
    for _ in range(3):
        wanted = wanted + 0.1 * lanes(0.0, q[None], wanted[None])[0]
    assert_allclose(other(q, v), wanted, rtol=1e-12)


# --- Functions of arrays in memory


@jax.jit
def _farthest(points: Any, d: Any) -> tuple[Any, Any]:
    """The point farthest along a direction, bent, and how far it is; points are indexed where the program runs."""

    def look(i: Any, best: tuple[Any, Any]) -> tuple[Any, Any]:
        height = points[i] @ d
        return jnp.where(height > best[1], i, best[0]), jnp.maximum(height, best[1])

    i, height = lax.fori_loop(0, points.shape[0], look, (0, jnp.asarray(-jnp.inf, d.dtype)))
    x = points[i]
    for _ in range(30):
        x = jnp.sin(1.1 * x) + 0.1 * jnp.cross(x, d)
    return x, height


def _among_many(points: Any, d: Any) -> Any:
    """By an array that is made here, given to a function in a loop and once more."""
    many = jnp.concatenate([points * k for k in range(1, 20)])
    s = lax.fori_loop(0, 5, lambda _, s: _farthest(many, d + 0.1 * s)[0] + s, jnp.zeros_like(d))
    return s, _farthest(many, d)


def _held(points: Any, d: Any) -> Any:
    """The same of points without derivatives, in the memory of those that have them."""
    wide = jnp.concatenate([points] * 9)
    return jnp.sum(_farthest(lax.stop_gradient(wide), d)[0] ** 2) + jnp.sum(wide**3)


def _cloud() -> tuple[Any, Any]:
    points = jax.random.normal(jax.random.key(0), (10, 3), dtype=float)
    return points, jnp.array([1.0, 2.0, 0.3])


def test_arrays_are_given_to_functions_in_memory() -> None:
    points, d = _cloud()
    program = uk.scalarize(_among_many)
    text = program.as_text(points, d)
    found = re.search(r"^callee 1:\ngiven (.*)$", text, re.MULTILINE)
    assert found
    assert "float64[570]" in found[1]
    wanted = jax.jit(_among_many)(points, d)
    jax.tree.map(lambda x, y: assert_allclose(x, y, rtol=1e-13), program(points, d), wanted)
    many = (
        jnp.stack([points, 2 * points, points - 1, 0.3 * points, -points]),
        jnp.stack([d, -d, 2 * d, d + 1, d]),
    )
    for axes in ((0, 0), (None, 0), (0, None)):
        given = [x if axis == 0 else x[0] for x, axis in zip(many, axes, strict=True)]
        ours, jaxs = (jax.jit(jax.vmap(f, in_axes=axes))(*given) for f in (program, _among_many))
        jax.tree.map(lambda x, y: assert_allclose(x, y, rtol=1e-12), ours, jaxs)


@pytest.mark.parametrize("function", [lambda *x: jnp.sum(_among_many(*x)[0] ** 2), _held])
def test_derivatives_of_functions_of_arrays(function: Callable[..., Any]) -> None:
    points, d = _cloud()
    program = uk.scalarize(function)
    assert_allclose(jax.jacfwd(program)(points, d), jax.jacfwd(function)(points, d), rtol=1e-9, atol=1e-12)
    assert_allclose(jax.grad(program)(points, d), jax.jacfwd(function)(points, d), rtol=1e-9, atol=1e-12)


def test_an_array_that_is_changed_later_is_read_before() -> None:
    """What is read for a condition's sake is read where the condition holds, unless the array has changed by then."""

    def changed(x: Any, which: Any) -> Any:
        y = jnp.concatenate([x] * 30)  # in memory
        step = lambda i, y: y.at[i + 1].set(y[i] * 0.9 + 0.1)
        y = lax.fori_loop(0, 80, step, y)
        before = y[which] + 1.0
        z = lax.fori_loop(0, 80, step, -y)
        after = lax.fori_loop(0, (which > 5).astype(int), lambda _, s: s + jnp.exp(before) + z[which], 0.0)
        y = y.at[which].set(100.0)
        again = lax.fori_loop(0, (which > 5).astype(int), lambda _, s: s + before * y[which], after)
        return again, jnp.sum(y)

    for which in (3, 7, 20):
        ours, jaxs = (f(X, jnp.asarray(which)) for f in (uk.scalarize(changed), changed))
        assert_allclose(ours, jaxs, rtol=1e-13)


def test_long_results_that_are_known_are_filled() -> None:
    """And not written entry by entry: then a program would be as long as its results."""
    constant = lambda x: (jnp.zeros((300, 200), bool), jnp.arange(900.0), jnp.sin(x))
    program = uk.scalarize(constant)
    assert program.as_text(X).count("\n") < 40
    jax.tree.map(assert_allclose, program(X), constant(X))
    jax.tree.map(assert_allclose, jax.vmap(program)(X), jax.vmap(constant)(X))


def test_programs_that_need_other_results_of_what_they_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code that has those of one already gets those of another, or at once all where these take little more."""
    monkeypatch.setattr(_llvm, "_SHARED", 0)
    build = Builder()
    x, other = (build.parameter(build.top, "float64") for _ in range(2))

    def chain(count: int, start: float) -> Any:
        y = build.add(x if count > 5 else other, start, "float64")
        for _ in range(count):
            y = build.mul(y, build.add(y, x, "float64"), "float64")
        return y

    starts = (100, 0.1), (100, 0.2), (100, 0.3), (5, 0.4)
    callee = Subprogram(build.top, [chain(*each) for each in starts])

    def values(*which: int) -> list[np.ndarray]:
        def make() -> Any:
            outer = Builder()
            given = outer.load(outer.parameter(outer.top, "float64", 1), 0)
            outputs = outer.call(callee, [given, given])
            return outer.top, [tuple(outputs[k] for k in which)]

        program = _program.Program(
            make, [("float64", 1)], [("float64", len(which))], lambda order: None
        ).ready()
        given = np.array([0.3])
        return program.on_host([given.ctypes.data])[0]

    def wanted(count: int, start: float) -> float:
        y = 0.3 + start
        for _ in range(count):
            y *= y + 0.3
        return y

    exact = [wanted(*each) for each in starts]
    assert_allclose(values(0), exact[:1], rtol=1e-14)
    assert_allclose(values(1, 2), exact[1:3], rtol=1e-14)
    assert_allclose(values(3), exact[3:], rtol=1e-14)
