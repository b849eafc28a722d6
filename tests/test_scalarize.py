"""Functions as programs of scalars, beside the same functions by `jax.jit`, finite differences and closed forms."""

from collections.abc import Callable
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import optimistix as optx
import pytest
from jax import lax
from numpy.testing import assert_allclose

import ukjax as uk
from ukjax._compiler._structured import _primitive
from ukjax._formula._contact_list import entry, loop, put
from ukjax._misc._derivatives import freeze, with_tangent_of

X = jnp.array([0.5, 1.5, 2.5])
MATRIX = jnp.asarray(np.random.default_rng(0).normal(size=(4, 4)))


def _newton(x: Any) -> Any:
    """Square roots, each by as many steps as it takes."""
    step = lambda y: 0.5 * (y + x / y)
    return lax.while_loop(lambda y: jnp.any(jnp.abs(y * y - x) > 1e-13), step, x + 1.0)


def _indexed(x: Any) -> Any:
    """A loop that reads and writes an array at places it computes."""
    step = lambda i, a: a.at[i % 50].add(0.01 * jnp.sin(a[(i * 7) % 50]))
    return lax.fori_loop(0, 300, step, jnp.zeros(50).at[:3].set(x))


def _scanned(x: Any) -> Any:
    """A loop over rows that gives rows."""
    step = lambda c, y: (0.9 * c + jnp.sin(y * x[2]), 0.01 * c * c)
    return lax.scan(step, x[0], jnp.tile(x, 40))


def _chosen(x: Any) -> Any:
    """A side with a loop, and one without."""
    long = lambda y: lax.fori_loop(0, 300, lambda i, s: 1.01 * jnp.sin(s), y)
    return lax.cond(x[0] > 0.4, long, lambda y: 2 * jnp.cos(y), x)


def _nested(x: Any) -> Any:
    """A loop within a loop, whose length each pass decides."""

    def outer(i: Any, s: Any) -> Any:
        goes_on = lambda u: jnp.abs(u * u - s[1] - i) > 1e-12
        root = lax.while_loop(goes_on, lambda u: 0.5 * (u + (s[1] + i) / u), s[0])
        return 0.5 * s + 0.3 * root * x[2] + 0.1

    return lax.fori_loop(0, 30, outer, x)


@jax.custom_jvp
def _doubled_slope(x: Any) -> Any:
    return jnp.sin(x)


_doubled_slope.defjvp(lambda x, dx: (jnp.sin(x[0]), 2 * jnp.cos(x[0]) * dx[0]))


def _shifted(a: Any) -> Any:
    return lx.MatrixLinearOperator(a + 4 * jnp.eye(len(a)))


SMOOTH: dict[str, tuple[Callable[..., Any], Any]] = {
    "entries": (lambda x: (jnp.sin(x) * x.sum(), x[::-1] ** 2 / jnp.tanh(x)), X),
    "functions": (
        lambda x: [
            f(x / 3)
            for f in (jnp.exp, jnp.log, jnp.arctan, jnp.arcsin, jnp.sqrt, jnp.cbrt, jax.lax.erf, jnp.cosh)
        ],
        X,
    ),
    "powers": (lambda x: (x**3, x**2.5, x ** x[0], jnp.arctan2(x, x[0]), jnp.hypot(x, x[1])), X),
    "while": (_newton, X),
    "indexed": (_indexed, X),
    "scan": (_scanned, X),
    "cond": (_chosen, X),
    "nested": (_nested, X),
    "solve": (lambda a: (jnp.linalg.solve(a, a[0]), jnp.linalg.inv(a), jnp.linalg.det(a)), MATRIX),
    "cholesky": (lambda a: jnp.linalg.cholesky(a @ a.T + jnp.eye(4)), MATRIX),
    "eigh": (lambda a: jnp.linalg.eigvalsh(a + a.T), MATRIX),
    "svd": (lambda a: jnp.linalg.svd(a[:3], compute_uv=False), MATRIX),
    "qr": (lambda a: jnp.linalg.qr(a)[1], MATRIX),
    "solve by Lineax": (lambda a: lx.linear_solve(_shifted(a), jnp.arange(4.0)).value, MATRIX),
    "solves by Lineax": (
        lambda a: jax.vmap(lambda s: lx.linear_solve(_shifted(s * a), a[0]).value)(a[1] ** 2),
        MATRIX,
    ),
    "root by Optimistix": (
        lambda x: optx.root_find(lambda y, x: y + x * jnp.sin(y) - 1, optx.Newton(1e-12, 1e-12), x, x).value,
        0.3 * X,
    ),
    "conjugate gradients": (
        lambda a: jax.scipy.sparse.linalg.cg(
            lambda x: a @ (a.T @ x) + x, jax.device_put((a[0], a[1]))[0], tol=1e-14
        )[0],
        MATRIX,
    ),
    "sorted": (lambda x: jnp.sort(jnp.outer(x, jnp.sin(jnp.arange(1.0, 20.0))), axis=None), X),
}
ROUGH: dict[str, tuple[Callable[..., Any], Any]] = {
    "order": (lambda x: (jnp.sort(x), jnp.argsort(-x), jnp.argmax(x), jnp.sort(jnp.stack([x, -x]), 0)), X),
    "order of many": (
        lambda x: (
            lambda y: (jnp.argsort(y), jnp.sort(-y, descending=True), jnp.lexsort((y, jnp.round(2 * y))))
        )(jnp.round(9 * jnp.sin(jnp.outer(jnp.arange(8.0), x)))),
        X,
    ),
    "places": (
        lambda x: (x[jnp.argmax(x)], jnp.arange(40.0)[jnp.int32(x[0] * 30)], x.at[jnp.int32(x[1])].set(7)),
        X,
    ),
    "integers": (
        lambda x: (
            lambda k: (
                k // 3,
                k % 3,
                -k // 3,
                k << 30,
                k >> 1,
                k & 6,
                k ^ 5,
                k * k * 10**9,
                jnp.uint32(k) - 7,
            )
        )(jnp.int32(x * 4)),
        X,
    ),
    "rounding": (
        lambda x: (
            jnp.floor(x),
            jnp.round(x),
            jnp.trunc(-x),
            jnp.sign(x - 1),
            jnp.nextafter(x, 9.0),
            jnp.rint(x),
        ),
        X,
    ),
    "bits": (lambda x: jnp.uint32(x[0]) * jnp.uint32(0x9E3779B9) ^ (jnp.uint32(x[2]) << jnp.uint32(7)), X),
    "truths": (
        lambda x: (x > 1, jnp.any(x > 2), jnp.all(x > 0) & ~(x[0] > x), jnp.where(x > 1, x, jnp.inf)),
        X,
    ),
    "tables": (
        lambda x: (
            jnp.interp(x, jnp.arange(9.0), jnp.arange(9.0) ** 2),
            jnp.searchsorted(jnp.arange(30.0), x),
            jnp.polyval(jnp.arange(4.0), x),
        ),
        X,
    ),
}
CASES = SMOOTH | ROUGH


def _total(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: sum(jnp.sum(jnp.sin(y)) for y in jax.tree.leaves(f(x)))


def _assert_same(found: Any, wanted: Any, rtol: float = 1e-12) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        assert_allclose(a, b, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("name", CASES)
def test_a_function_gives_what_it_gives_by_xla(name: str) -> None:
    f, x = CASES[name]
    _assert_same(uk.scalarize(f)(x), jax.jit(f)(x))


@pytest.mark.parametrize("name", ["while", "cond", "nested", "solve", "places", "indexed"])
def test_members_of_a_batch_are_those_alone(name: str) -> None:
    f, x = CASES[name]
    scalar = uk.scalarize(f)
    batch = jnp.stack([(1 + 0.07 * k) * x for k in range(11)], 1)
    alone = [scalar(batch[:, k]) for k in range(11)]
    _assert_same(jax.vmap(scalar, 1)(batch), jax.tree.map(lambda *y: jnp.stack(y), *alone))
    pairs = jnp.stack([batch[:, :3], 2 * batch[:, :3]])  # nested, in other axes
    twice = jax.vmap(jax.vmap(scalar, 1), 0)(pairs)
    _assert_same(jax.tree.map(lambda y: y[0, 1], twice), alone[1])


def test_arrays_between_programs_of_members_are_not_transposed() -> None:
    one, other = (uk.scalarize(lambda x, f=f: f(x) @ x) for f in (jnp.sin, jnp.cos))
    both = lambda x: jnp.sum(other(one(x)))
    x = jnp.linspace(0.0, 1.0, 45).reshape(5, 3, 3)
    text = jax.jit(jax.vmap(both)).lower(x).as_text()
    assert text.count("stablehlo.transpose") == 1  # of what is given: the members are its first axis
    assert_allclose(jax.vmap(both)(x), [jnp.sum(jnp.cos(y := jnp.sin(a) @ a) @ y) for a in x], rtol=1e-13)


def test_many_members_within_a_program_are_a_loop() -> None:
    """700 of an array of five: more entries than can be written out, and no more text for more members."""

    @uk.scalarize
    def inner(x: Any, a: Any) -> Any:
        return jnp.sin(x) * jnp.sum(x**2) / a, lax.while_loop(lambda y: y < 9.0, lambda y: 2 * y + a, x[0])

    def plain(x: Any, a: Any) -> Any:
        grown = lax.scan(lambda y, _: (jnp.where(y < 9.0, 2 * y + a, y), None), x[0], length=9)[0]
        return jnp.sin(x) * jnp.sum(x**2) / a, grown

    def many(of: Any) -> Any:
        def total(x: Any, a: Any) -> Any:
            y, z = jax.vmap(of, (1, None))(x, a)
            return jnp.sum(y[:, 1] * z) + jnp.sum(y**3), y

        return total

    outer = uk.scalarize(many(inner))
    x, a = jnp.asarray(np.random.default_rng(0).uniform(0.5, 1.5, (5, 700))), jnp.asarray(1.3)
    for found, expected in zip(outer(x, a), many(plain)(x, a), strict=True):
        assert_allclose(found, expected, rtol=1e-12)
    of = lambda f: jax.grad(lambda x, a: f(x, a)[0], (0, 1))(x, a)
    for found, expected in zip(of(outer), of(many(plain)), strict=True):
        assert_allclose(found, expected, rtol=1e-10)
    moved = lambda f: jax.jvp(lambda a: f(x, a)[0], (a,), (1.0,))[1]
    assert_allclose(moved(outer), moved(many(plain)), rtol=1e-10)
    text = uk.scalarize(many(inner)).as_text
    assert text(x[:, :600], a).count("\n") == text(x, a).count("\n")


def test_members_that_have_ended_read_nothing() -> None:
    """Where they are, indices are not those of any entry."""

    def total(x: jax.Array, n: jax.Array) -> jax.Array:
        far = jnp.where(n < 0, 0, 10**12)
        index = loop(64, lambda i, index: put(index, i, far), jnp.zeros(64, int))
        index = loop(n, lambda i, index: put(index, i, i), index)
        return loop(n, lambda i, so_far: so_far + entry(x, entry(index, i)), 0.0)

    x, counts = jnp.arange(64.0) ** 2, jnp.arange(0, 64, 3)
    found = jax.jit(jax.vmap(uk.scalarize(total), in_axes=(None, 0)))(x, counts)
    assert_allclose(found, [np.sum(np.arange(n) ** 2.0) for n in counts])


def test_loops_whose_members_end_by_themselves() -> None:
    """`vmap` within a function leaves one condition a member."""

    def powers(x: jax.Array, n: jax.Array) -> jax.Array:
        return lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * x), (jnp.zeros_like(n), 1.0))[1]

    x, n = jnp.linspace(0.5, 1.5, 5), jnp.array([0, 3, 40, 7, 2])
    assert_allclose(uk.scalarize(jax.vmap(powers))(x, n), np.asarray(x) ** np.asarray(n), rtol=1e-14)


@pytest.mark.parametrize("name", SMOOTH)
def test_first_and_second_derivatives_are_those_of_differences(name: str) -> None:
    f, x = SMOOTH[name]
    scalar, h = _total(uk.scalarize(f)), 1e-6
    d = jnp.asarray(np.random.default_rng(1).normal(size=x.shape))
    slope = (_total(jax.jit(f))(x + h * d) - _total(jax.jit(f))(x - h * d)) / (2 * h)
    assert_allclose(jax.jvp(scalar, (x,), (d,))[1], slope, rtol=1e-5, atol=1e-8)
    gradient = jax.jit(jax.grad(scalar))
    assert_allclose(jnp.sum(gradient(x) * d), slope, rtol=1e-5, atol=1e-8)
    bend = (gradient(x + h * d) - gradient(x - h * d)) / (2 * h)
    scale = float(jnp.max(jnp.abs(bend))) + 1e-3
    ways = {
        "forward over reverse": lambda: jax.jvp(jax.grad(scalar), (x,), (d,))[1],
        "reverse over reverse": lambda: jax.grad(lambda y: jnp.sum(jax.grad(scalar)(y) * d))(x),
        "reverse over forward": lambda: jax.grad(lambda y: jax.jvp(scalar, (y,), (d,))[1])(x),
    }
    for way, second in ways.items():
        assert_allclose(second() / scale, bend / scale, rtol=0, atol=1e-6, err_msg=way)


@pytest.mark.parametrize("name", ["while", "cond", "solve"])
def test_derivatives_of_members_are_those_alone(name: str) -> None:
    f, x = SMOOTH[name]
    gradient = jax.grad(_total(uk.scalarize(f)))
    batch = jnp.stack([x, 1.1 * x, 0.3 * x])
    alone = jnp.stack([gradient(y) for y in batch])
    assert_allclose(jax.vmap(gradient)(batch), alone, rtol=1e-12)
    summed = jax.grad(lambda y: jnp.sum(jax.vmap(_total(uk.scalarize(f)))(y)))(batch)
    assert_allclose(summed, alone, rtol=1e-12)


def test_a_derivative_that_an_author_gives_is_taken() -> None:
    scalar = uk.scalarize(lambda x: jnp.sum(_doubled_slope(x) * x))
    wanted = jax.jacfwd(lambda x: jnp.sum(_doubled_slope(x) * x))(X)
    assert_allclose(jax.grad(scalar)(X), wanted, rtol=1e-14)
    assert_allclose(jax.jacfwd(scalar)(X), wanted, rtol=1e-14)


NARROW: dict[str, Callable[..., Any]] = {
    "loop": lambda x: lax.fori_loop(0, 40, lambda i, y: 0.5 * (y + x / y), x + 1),
    "indexed": lambda x: lax.fori_loop(
        0, 99, lambda i, a: a.at[i % 9].add(a[(i * 7) % 9] / 9), jnp.tile(x, 3)
    ),
    "cond": _chosen,
    "solve": lambda x: jnp.linalg.solve(jnp.outer(x, x) + jnp.eye(3, dtype=x.dtype), x),
    "sines": lambda x: (jnp.sin(40 * x), jnp.cos(x), x**2.5, jnp.exp(-x)),
}


@jax.custom_vjp
def _clipped(x: Any) -> Any:
    return 2 * x


_clipped.defvjp(lambda x: (2 * x, None), lambda _, g: (jnp.clip(g, -1, 1),))


@jax.custom_vjp
def _rooted(x: Any) -> Any:
    """By Newton's method, with a rule that does not look at it."""
    return lax.while_loop(lambda y: jnp.abs(y * y - x) > 1e-12, lambda y: 0.5 * (y + x / y), x + 1)


_rooted.defvjp(lambda x: (_rooted(x), x), lambda x, g: (0.5 * g / jnp.sqrt(x),))


def test_second_derivatives_of_even_functions_where_they_are_even() -> None:
    """Of sqrt(x^2 + y^2) by x at x = 0: 1 / y; it was zero, since the slope of |x| was zero there."""
    f = uk.scalarize(lambda x: jnp.hypot(x, 2.0))
    found = [jax.hessian(f)(0.0), jax.grad(jax.grad(f))(0.0), jax.jacfwd(jax.jacfwd(f))(0.0)]
    assert_allclose(found, 0.5, rtol=1e-15)


@jax.custom_jvp
def _still(x: Any) -> Any:
    return jnp.zeros_like(x)


_still.defjvp(lambda x, dx: (_still(*x), 3 * dx[0]))


def test_powers_with_whole_exponents_that_are_not_known() -> None:
    """x^0 and x^1 have all derivatives, also at zero."""
    power = uk.scalarize(jax.lax.pow)
    x, n = (a.ravel() for a in np.meshgrid([-1.3, 0.0, 0.7], np.arange(4)))
    slope, bend = n * x ** np.maximum(n - 1, 0), n * (n - 1) * x ** np.maximum(n - 2, 0)
    with jax.numpy_dtype_promotion("standard"):
        found = [
            jax.vmap(f)(jnp.asarray(x), jnp.asarray(n)) for f in (power, jax.grad(power), jax.hessian(power))
        ]
    assert_allclose(found, [x**n, slope, bend], rtol=1e-14)


def test_a_constant_has_the_derivative_that_its_author_gives() -> None:
    f = uk.scalarize(lambda x: x**2 + _still(x))
    assert_allclose([f(2.0), jax.grad(f)(2.0), jax.jvp(f, (2.0,), (1.0,))[1]], [4.0, 7.0, 7.0], rtol=1e-15)


def test_a_rule_that_is_not_looked_at_is_told() -> None:
    """Of a matrix of 3,600 entries, by which the operations of Lineax have no derivative of their own."""
    f = uk.scalarize(lambda x: lx.linear_solve(_shifted(x * jnp.ones((60, 60))), jnp.arange(60.0)).value[0])
    assert np.isfinite(f(1.0))
    with pytest.raises(uk.Untranslatable, match="no derivative: a rule for derivatives"):
        jax.grad(f)(1.0)


def test_a_rule_for_reverse_mode_only_is_taken() -> None:
    """Within a loop, in a function that is called, in a batch, and twice; forward mode has none, as in JAX."""
    scalar = uk.scalarize(lambda x: jnp.sum(_clipped(x) ** 2))
    assert_allclose(scalar(X), 4 * jnp.sum(X**2))
    assert_allclose(jax.grad(scalar)(X), np.clip(4 * X, -1, 1))
    assert_allclose(jax.vmap(jax.grad(scalar))(jnp.stack([X, 0.1 * X])), np.clip([4 * X, 0.4 * X], -1, 1))
    repeated = lambda x: jnp.sum(lax.fori_loop(0, 40, lambda _, y: 0.5 * _clipped(0.9 * y) + x, x))
    assert_allclose(jax.grad(uk.scalarize(repeated))(X), jax.grad(jax.jit(repeated))(X), rtol=1e-12)
    twice = lambda x: jnp.sum(jax.grad(lambda x: jnp.sum(jnp.sin(_clipped(x))))(x) ** 2)
    assert_allclose(jax.grad(uk.scalarize(twice))(X), jax.grad(twice)(X), rtol=1e-12)
    with pytest.raises(uk.Untranslatable, match="custom_vjp is for reverse mode only"):
        jax.jacfwd(scalar)(X)


def test_a_rule_around_a_loop_is_not_passed_over() -> None:
    scalar = uk.scalarize(lambda x: _rooted(x[0]))
    assert_allclose(scalar(X), np.sqrt(X[0]))
    for derivative in (jax.grad(scalar), jax.jacfwd(scalar)):
        with pytest.raises(uk.Untranslatable, match="custom_vjp"):
            derivative(X)


def test_rules_that_differ_are_different_programs() -> None:
    """Also where what they compute is the same, and machine code is kept."""
    for slope in (2.0, 3.0):
        rule = jax.custom_vjp(lambda x: 2 * x)
        rule.defvjp(lambda x: (2 * x, None), lambda _, g, slope=slope: (slope * g,))
        assert_allclose(jax.grad(uk.scalarize(lambda x, rule=rule: jnp.sum(rule(x))))(X), slope)


def test_accelerations_by_lanes_can_be_part_of_a_program() -> None:
    problem = uk.models.four_bars(1)
    lanes, q, v = uk.lanes(problem.system), jnp.asarray(problem.q0)[None], jnp.asarray(problem.v0)[None]
    scalar = uk.scalarize(lambda q, v: lanes(0.0, q, v))
    assert_allclose(scalar(q, v), lanes(0.0, q, v), rtol=1e-12, atol=1e-12)
    along = lambda f: jax.jvp(lambda v: f(0.0, q, v), (v,), (v,))[1]
    assert_allclose(along(lambda t, q, v: scalar(q, v)), along(lanes), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", NARROW)
def test_float32_stays_float32(name: str) -> None:
    x, f = X.astype(jnp.float32), NARROW[name]
    _assert_same(uk.scalarize(f)(x), jax.jit(f)(x), rtol=3e-6)


class _Oscillator(eqx.Module):
    stiffness: Any
    name: str = eqx.field(static=True, default="oscillator")

    def force(self, x: Any) -> Any:
        return -self.stiffness * x


def test_arguments_are_pytrees_and_statics() -> None:
    @uk.scalarize
    def step(model: _Oscillator, state: dict, *, steps: int, kind: str) -> Any:
        assert kind == "plain"
        v = state["v"] + 0.1 * steps * model.force(state["x"])
        return {"x": state["x"] + v, "v": v}, jnp.zeros((0, 3))

    state = {"x": jnp.ones(2), "v": jnp.zeros(2)}
    found, empty = step(_Oscillator(jnp.asarray(4.0)), state, steps=2, kind="plain")
    assert_allclose(found["v"], -0.8 * np.ones(2))
    assert empty.shape == (0, 3)
    slope = jax.grad(lambda k: step(_Oscillator(k), state, steps=2, kind="plain")[0]["x"].sum())(
        jnp.asarray(4.0)
    )
    assert_allclose(slope, -0.4)


class _Doubler:
    @uk.scalarize
    def double(self, x: Any) -> Any:
        return 2 * x


def test_statics_are_taken_by_the_fallback_too() -> None:
    """Of a function that has no scalar code."""
    found = uk.scalarize(lambda x, ways: jnp.roots(x, strip_zeros=False) * len(ways), fallback="xla")
    x = jnp.array([1.0, 2.0, 4.0])
    for ways in ("once", "again"):
        assert_allclose(found(x, ways), np.roots(x) * len(ways), rtol=1e-14)


@pytest.mark.parametrize("n", [1, 2, 3, 30])
def test_tridiagonal_systems_are_solved(n: int) -> None:
    """Also where pivots vanish, beside NumPy; derivatives beside those of a dense solve."""
    diagonals = np.random.default_rng(n).normal(size=(3, n))
    diagonals[1, ::2] = 0 if n % 2 == 0 else 1e-9
    b = np.random.default_rng(0).normal(size=(n, 2))

    def dense(dl: Any, d: Any, du: Any, b: Any) -> Any:
        return jnp.linalg.solve(jnp.diag(d) + jnp.diag(dl[1:], -1) + jnp.diag(du[:-1], 1), b)

    solve, given = (
        uk.scalarize(jax.lax.linalg.tridiagonal_solve),
        (*map(jnp.asarray, diagonals), jnp.asarray(b)),
    )
    assert_allclose(solve(*given), dense(*given), rtol=1e-9, atol=1e-9)
    total = lambda f: jax.grad(lambda *x: jnp.sum(f(*x) ** 2), (0, 1, 2, 3))(*given)
    for found, expected in zip(total(solve), total(dense), strict=True):
        assert_allclose(found, expected, rtol=1e-7, atol=1e-7 * np.abs(expected).max(initial=1))


def test_a_method_is_one_of_its_object() -> None:
    assert_allclose(_Doubler().double(X), 2 * X)


def test_what_is_closed_over_may_be_traced() -> None:
    def loss(y: Any) -> Any:
        return jnp.sum(uk.scalarize(lambda x: x * y * jnp.sin(y))(X))

    assert_allclose(jax.grad(loss)(2.0), float(X.sum()) * (np.sin(2) + 2 * np.cos(2)), rtol=1e-14)
    assert_allclose(
        jax.jit(jax.vmap(loss))(jnp.array([1.0, 2.0])),
        [X.sum() * np.sin(1), 2 * X.sum() * np.sin(2)],
        rtol=1e-14,
    )


def test_large_arrays_are_read_from_memory() -> None:
    table = jnp.asarray(np.random.default_rng(2).normal(size=5000))
    long = jnp.arange(3000.0)
    assert_allclose(uk.scalarize(lambda i, x: table[i] * x[17])(4321, long), table[4321] * 17)


def test_an_operation_without_scalar_code_is_named() -> None:
    callback = lambda x: jax.pure_callback(np.sin, jax.ShapeDtypeStruct((3,), jnp.float64), x)
    with pytest.raises(uk.Untranslatable, match="pure_callback"):
        uk.scalarize(callback)(X)
    assert_allclose(uk.scalarize(callback, fallback="xla")(X), np.sin(X))
    with pytest.raises(uk.InputError, match="fallback"):
        uk.scalarize(callback, fallback="numpy")  # type: ignore[arg-type]
    with pytest.raises(uk.InputError, match="takes a function"):
        uk.scalarize(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("left", [False, True])
def test_products_with_the_orthogonal_matrix_of_reflectors(left: bool, transpose: bool) -> None:
    """As Lineax takes them from JAX 0.9 on, beside NumPy's orthogonal factor."""
    if not hasattr(jax.lax.linalg, "ormqr"):
        pytest.skip("this JAX has no such operation")
    tall, c = np.asarray(MATRIX)[:, :2], np.asarray(MATRIX) ** 2

    def product(a: jax.Array, c: jax.Array) -> jax.Array:
        reflectors, taus = jnp.linalg.qr(a, mode="raw")
        return jax.lax.linalg.ormqr(reflectors.mT, taus, c, left=left, transpose=transpose)

    q = np.linalg.qr(tall, mode="complete")[0]
    q = q.T if transpose else q
    assert_allclose(uk.scalarize(product)(tall, c), q @ c if left else c @ q, rtol=1e-12, atol=1e-12)


def test_an_error_that_equinox_would_raise_is_nan() -> None:
    f = uk.scalarize(lambda x: eqx.error_if(x, x < 0, "negative"))
    assert_allclose(f(X), X)
    assert np.isnan(f(-X)).all()


def test_the_text_shows_loops() -> None:
    text = uk.scalarize(_newton).as_text(X)
    assert "loop from" in text
    assert "while" in text


def test_what_is_exported_gives_the_same() -> None:
    scalar = uk.scalarize(_newton)
    exported = jax.export.export(jax.jit(scalar))(jax.ShapeDtypeStruct((3,), jnp.float64))
    assert_allclose(exported.call(X), np.sqrt(X), rtol=1e-14)
    mixed = uk.scalarize(lambda x: (jnp.sin(x), jnp.float32(2), jnp.arange(3), x > 1))
    exported = jax.export.export(jax.jit(mixed))(jax.ShapeDtypeStruct((3,), jnp.float32))
    x = X.astype(jnp.float32)
    _assert_same(exported.call(x), mixed(x), rtol=1e-6)


@pytest.mark.parametrize("room", [1 << 30, 1 << 9])
def test_gradients_that_are_exported_are_the_same_or_none(monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    """XLA has no arrays that grow: what a loop's passes leave has a room; where that is too small, there is no number."""
    monkeypatch.setattr(_primitive, "_ROOM", room)

    def repeated(x: Any) -> Any:
        """By a loop that ends by a condition, in a function that is called twice."""
        inner = jax.jit(
            lambda x: lax.while_loop(
                lambda y: y[1] < 3.0 + x, lambda y: (jnp.sin(y[0]), y[1] + 0.1), (x, 0.0)
            )
        )
        return inner(x)[0] + inner(2 * x)[0]

    def by_hand(x: float) -> float:
        def of(x: float) -> float:
            y, slope = x, 1.0
            for _ in range(int(np.sum(np.cumsum(np.full(1000, 0.1)) - 0.1 < 3.0 + x))):
                y, slope = np.sin(y), np.cos(y) * slope
            return slope

        return of(x) + 2 * of(2 * x)

    gradients = jax.vmap(jax.grad(uk.scalarize(repeated)))
    x = jnp.array([0.31, 0.77, 1.23])
    exported = jax.export.export(jax.jit(lambda x: gradients(x)))(jax.ShapeDtypeStruct((3,), jnp.float64))
    wanted = [by_hand(float(y)) for y in x] if room > 1 << 9 else [np.nan] * 3
    assert_allclose(exported.call(x), wanted, rtol=1e-12)


# --- whole integrations by Diffrax ------------------------------------------------------------------------------------


def _robertson(t: Any, y: Any, rates: Any) -> Any:
    slow, fast, medium = rates
    first = -slow * y[0] + medium * y[1] * y[2]
    last = fast * y[1] ** 2
    return jnp.stack([first, -first - last, last])


RATES, START = jnp.array([0.04, 3e2, 1e2]), jnp.array([1.0, 0.0, 0.0])


def _integrate(rates: Any, solver: Any, **options: Any) -> Any:
    saveat = options.pop("saveat", dfx.SaveAt(t1=True))
    return dfx.diffeqsolve(
        dfx.ODETerm(_robertson),
        solver,
        0.0,
        10.0,
        None,
        START,
        rates,
        saveat=saveat,
        stepsize_controller=dfx.PIDController(rtol=1e-8, atol=1e-8),
        adjoint=dfx.ForwardMode(),
        throw=False,
        max_steps=4096,
        **options,
    )


WHOLE: dict[str, Callable[[Any], Any]] = {
    "Tsit5": lambda k: _integrate(k, dfx.Tsit5()).ys,
    "times": lambda k: _integrate(k, dfx.Dopri5(), saveat=dfx.SaveAt(ts=jnp.linspace(0, 10, 7))).ys,
    "Kvaerno5": lambda k: _integrate(k, dfx.Kvaerno5()).ys,
    "event": lambda k: (lambda s: (s.ts, s.ys))(
        _integrate(
            k, dfx.Tsit5(), event=dfx.Event(lambda t, y, args, **_: y[0] - 0.9, optx.Newton(1e-10, 1e-10))
        )
    ),
}


@pytest.mark.parametrize(
    "name", ["Tsit5", *(pytest.param(x, marks=pytest.mark.slow) for x in WHOLE if x != "Tsit5")]
)
def test_diffrax_runs_as_one_program(name: str) -> None:
    run, d = WHOLE[name], jnp.array([0.01, 30.0, -5.0])
    scalar = uk.scalarize(run)
    _assert_same(scalar(RATES), jax.jit(run)(RATES), rtol=1e-9)
    slope = jax.jvp(_total(run), (RATES,), (d,))[1]  # by JAX itself
    assert_allclose(jax.jvp(_total(scalar), (RATES,), (d,))[1], slope, rtol=1e-6)
    gradient = jax.grad(_total(scalar))
    assert_allclose(jnp.sum(gradient(RATES) * d), slope, rtol=1e-6)
    if name == "Tsit5":
        second = jax.jvp(jax.grad(_total(scalar)), (RATES,), (d,))[1]
        assert_allclose(
            jax.grad(lambda k: jnp.sum(jax.grad(_total(scalar))(k) * d))(RATES), second, rtol=1e-6
        )
        members = jnp.stack([RATES, 2 * RATES, 0.1 * RATES])
        assert_allclose(jax.vmap(scalar)(members)[1:, 0], [scalar(x)[0] for x in members[1:]], rtol=1e-12)


def test_programs_run_where_jit_is_disabled() -> None:
    cube = uk.scalarize(lambda x: x**3)
    with jax.disable_jit():
        assert_allclose(jax.grad(cube)(2.0), 12.0, rtol=1e-15)
        assert_allclose(jax.jacfwd(jax.grad(cube))(2.0), 12.0, rtol=1e-15)
        assert_allclose(jax.vmap(jax.grad(cube))(jnp.array([1.0, 2.0])), [3.0, 12.0], rtol=1e-15)


def test_no_tracer_is_kept() -> None:
    """A function that closes over what another transformation traces."""
    with jax.checking_leaks():
        assert_allclose(jax.jit(jax.grad(lambda a: uk.scalarize(lambda x: a**2 * x)(3.0)))(2.0), 12.0)


def test_jax_debug_nans_finds_the_operation() -> None:
    f = uk.scalarize(lambda x: jnp.sqrt(x - 1) * 2)
    assert np.isnan(f(0.5))
    with jax.debug_nans(True):
        assert f(2.0) == 2.0
        with pytest.raises(FloatingPointError, match="sqrt"):
            f(0.5)


def test_a_value_keeps_the_derivative_of_its_carrier():
    """A root with the derivative of a step of Newton's method: of first order, and with the root attached, of second."""

    def root(a):
        x = jax.lax.stop_gradient(jnp.sqrt(a))
        step = lambda x: x - (x * x - a) / (2 * x)
        once = with_tangent_of(x, step(x), stays=True)
        return with_tangent_of(x, step(freeze(once)))

    for of in (uk.scalarize(root), root):
        assert_allclose(of(2.0), np.sqrt(2.0), rtol=1e-15)
        assert_allclose([jax.grad(of)(2.0), jax.jacfwd(of)(2.0)], 0.5 / np.sqrt(2.0), rtol=1e-14)
        second = jax.jacfwd(jax.jacfwd(of))(2.0), jax.jacfwd(jax.grad(of))(2.0)
        assert_allclose(second, -0.25 * 2.0**-1.5, rtol=1e-13)
    known = uk.scalarize(lambda a: with_tangent_of(jnp.zeros(()), 3 * a))
    assert (known(2.0), jax.grad(known)(2.0)) == (0.0, 3.0)


def test_what_is_not_differentiated_is_not_computed_again():
    """A loop that finds an array in each pass, which the way back reads: sums of y = a / (1 + k), found by Newton."""

    def passes(a):
        def one(k, total):
            number = 1.0 + k
            held, at = jax.lax.stop_gradient((a, number))
            nearer = lambda c: (c[0] + 1, c[1] * (2 - at * c[1]) + 0 * held)
            inverse = jax.lax.while_loop(lambda c: c[0] < 40, nearer, (0, jnp.full(3, 0.1)))[1]
            return total + jnp.sum(inverse * a)

        return jax.lax.fori_loop(0, 5, one, 0.0 * a[0])

    a = jnp.array([1.0, 2.0, 3.0])
    slope = np.sum(1 / np.arange(1.0, 6.0))
    assert_allclose(uk.scalarize(passes)(a), 6 * slope, rtol=1e-12)
    assert_allclose(jax.grad(uk.scalarize(passes))(a), np.full(3, slope), rtol=1e-12)


def test_constants_without_entries_keep_their_shape() -> None:
    code = uk.scalarize(lambda x: x + jnp.sum(jnp.zeros((0, 4)) * jnp.arange(4.0)[None]))
    assert_allclose(code(jnp.asarray(2.0)), 2.0)
