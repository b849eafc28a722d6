"""Programs of scalars as kernels of a GPU, without one: compiled for this machine, where threads run one after the other.

The text is that of a GPU but for how a thread is counted and for a reciprocal, which is as inexact here as there.
"""

import re
from collections.abc import Callable
from typing import Any

import diffrax as dfx
import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from jax import lax
from kernels import as_with_gpu, kernels_on_host, registers_of, run_threads
from numpy.testing import assert_allclose, assert_array_equal

import ukjax as uk
from ukjax._compiler._structured import _kernel
from ukjax._compiler._structured._program import program_of

MEMBERS = 11
X = np.array([0.5, 1.5, 2.5])


def _newton(x: Any) -> Any:
    """Square roots, each member by as many steps as it takes."""
    step = lambda y: 0.5 * (y + x / y)
    return lax.while_loop(lambda y: jnp.any(jnp.abs(y * y - x) > 1e-13), step, x + 1.0)


def _nested(x: Any) -> Any:
    """A loop within a loop, whose length each pass decides."""

    def outer(i: Any, s: Any) -> Any:
        goes_on = lambda u: jnp.abs(u * u - s[1] - i) > 1e-12
        root = lax.while_loop(goes_on, lambda u: 0.5 * (u + (s[1] + i) / u), s[0])
        return 0.5 * s + 0.3 * root * x[2] + 0.1

    return lax.fori_loop(0, 30, outer, x)


def _sides(x: Any) -> Any:
    """A side with a loop and one without; members take both."""
    long = lambda y: lax.fori_loop(0, 90, lambda i, s: 1.01 * jnp.sin(s), y)
    return lax.cond(x[0] > 0.7, long, lambda y: 2 * jnp.cos(y), x)


def _indexed(size: int) -> Callable[[Any], Any]:
    """A loop that reads and writes an array at places it computes."""

    def function(x: Any) -> Any:
        step = lambda i, a: a.at[i % size].add(0.01 * jnp.sin(a[(i * 7) % size]))
        return lax.fori_loop(0, 2 * size, step, jnp.zeros(size, x.dtype).at[:3].set(x))

    return function


@jax.jit
def _roots(x: Any) -> Any:
    """A function that is long enough to be called: roots of y^2 + sum sin(k y) / 100 = x by Newton's method."""
    k = jnp.arange(1.0, 40.0)
    f = lambda y: y * y + 0.01 * jnp.sin(jnp.outer(y, k)).sum(1) - x
    slope = lambda y: 2 * y + 0.01 * jnp.cos(jnp.outer(y, k)) @ k
    return lax.while_loop(lambda y: jnp.any(jnp.abs(f(y)) > 1e-13), lambda y: y - f(y) / slope(y), x + 1.0)


def _calls(x: Any) -> Any:
    """A function that is called from a loop, which each member ends, and from elsewhere."""
    step = lambda y: y + 0.2 * _roots(y + 1) + 0.1 * _roots(y + 2)
    return lax.while_loop(lambda y: y[0] < 3, step, x) * _roots(x + 3)


def _kinds(x: Any) -> Any:
    """Numbers of all types, carried and chosen."""
    step = lambda i, c: (
        c[0] ^ (c[1] > i),
        (c[1] * 5 + 3) % 17,
        c[2] * jnp.uint32(3),
        c[3] / 3 + c[1].astype("float32"),
    )
    start = x[0] > 1, jnp.int32(9 * x[1]), jnp.uint32(7 * x[2]), x.astype(jnp.float32)
    return lax.fori_loop(0, jnp.int32(9 * x[0]), step, start)


def _decay(x: Any) -> Any:
    """Diffrax's own run with steps that each member chooses."""
    return dfx.diffeqsolve(
        dfx.ODETerm(lambda t, y, k: jnp.stack([-k[0] * y[0], k[0] * y[0] - k[1] * y[1] ** 2])),
        dfx.Tsit5(),
        0.0,
        2.0,
        None,
        jnp.array([1.0, 0.5]),
        x,
        saveat=dfx.SaveAt(ts=jnp.linspace(0, 2, 4)),
        stepsize_controller=dfx.PIDController(rtol=1e-8, atol=1e-8),
        adjoint=dfx.ForwardMode(),
        throw=False,
    ).ys


SMOOTH: dict[str, Callable[..., Any]] = {
    "while": _newton,
    "nested": _nested,
    "sides": _sides,
    "small array": _indexed(50),
    "large array": _indexed(200),
    "solve": lambda x: jnp.linalg.solve(jnp.outer(x, x) + jnp.eye(3), x),
    "calls": _calls,
    "Diffrax": _decay,
}
ROUGH: dict[str, Callable[..., Any]] = {
    "types": _kinds,
    "order": lambda x: (jnp.sort(-x), jnp.argmax(jnp.sin(9 * x)), jnp.round(3 * x), jnp.sign(x - 1)),
    "table": lambda x: jnp.interp(x, jnp.arange(40.0), jnp.arange(40.0) ** 2),
}


def _batch(size: int = MEMBERS) -> Any:
    return jnp.asarray(X * np.linspace(0.4, 1.9, size)[:, None])


def _assert_close(found: Any, wanted: Any, rtol: float) -> None:
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert a.dtype == b.dtype
        least = 4 * np.finfo(a.dtype).eps if jnp.issubdtype(a.dtype, jnp.floating) else 0
        largest = np.max(np.abs(np.asarray(b, float)), initial=0)
        assert_allclose(a, b, rtol=max(rtol, least), atol=rtol * largest)


@pytest.mark.parametrize("name", [*SMOOTH, *ROUGH])
def test_a_kernel_gives_what_xla_gives(name: str) -> None:
    f = (SMOOTH | ROUGH)[name]
    wanted = jax.jit(jax.vmap(f))(_batch())
    with kernels_on_host():
        found = jax.jit(jax.vmap(uk.scalarize(f)))(_batch())
    _assert_close(found, wanted, 1e-8 if name == "Diffrax" else 1e-12)


def _total(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: sum(jnp.sum(jnp.sin(y)) for y in jax.tree.leaves(f(x)))


DERIVATIVES: dict[str, Callable[..., Any]] = {
    "forward": lambda f, d: lambda x: jax.jvp(f, (x,), (d,))[1],
    "reverse": lambda f, d: jax.grad(f),
    "forward over reverse": lambda f, d: lambda x: jax.jvp(jax.grad(f), (x,), (d,))[1],
    "reverse over reverse": lambda f, d: jax.grad(lambda x: jnp.sum(jax.grad(f)(x) * d)),
}
LONG = "Diffrax", "large array", "calls"


@pytest.mark.parametrize(
    ("name", "way"), [(x, way) for x in SMOOTH for way in DERIVATIVES if x not in LONG or " " not in way]
)
def test_derivatives_are_those_of_machine_code(name: str, way: str) -> None:
    """Which `test_scalarize` compares with differences; the first here too."""
    scalar, d = _total(uk.scalarize(SMOOTH[name])), jnp.array([0.3, -0.2, 0.1])
    derivative = jax.vmap(DERIVATIVES[way](scalar, d))
    wanted = jax.jit(derivative)(_batch())
    with kernels_on_host(words=1_000_000):
        found = jax.jit(derivative)(_batch())
    _assert_close(found, wanted, 1e-11)
    if way == "reverse" and name not in LONG:
        f, h = jax.jit(jax.vmap(_total(SMOOTH[name]))), 1e-6
        slope = (f(_batch() + h * d[None]) - f(_batch() - h * d[None])) / (2 * h)
        assert_allclose(found @ d, slope, rtol=1e-4, atol=1e-6 * float(jnp.abs(slope).max()))


@pytest.mark.parametrize("name", ["calls", "nested"])
def test_what_is_too_large_for_the_stack_of_a_thread_is_in_the_memory_of_all(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_kernel, "_MOST_STACK", 0)
    f, gradient = SMOOTH[name], jax.vmap(jax.grad(_total(uk.scalarize(SMOOTH[name]))))
    wanted = jax.jit(jax.vmap(f))(_batch()), gradient(_batch())
    with kernels_on_host(words=1_000_000) as kernels:
        found = jax.jit(jax.vmap(uk.scalarize(f)))(_batch()), gradient(_batch())
    assert not any(re.search(r"%room = alloca \[[1-9]", x.host_text) for x in kernels)
    _assert_close(found, wanted, 1e-11)


def _long(x: Any) -> Any:
    """As many passes as its first number says; each keeps two numbers."""
    return lax.fori_loop(0, jnp.int32(x[0]), lambda i, y: jnp.sin(y) + 0.1 * x[1:], x[1:])


def test_a_member_that_needs_more_memory_than_there_is_is_nan() -> None:
    """And those before and after it on the same thread are right."""
    passes = jnp.array([20.0, 900.0, 30.0, 25.0, 800.0, 35.0, 100.0])
    batch = jnp.concatenate([passes[:, None], _batch(7)[:, 1:]], 1)
    gradient = jax.vmap(jax.grad(lambda x: jnp.sum(uk.scalarize(_long)(x))))
    wanted = gradient(batch)
    for threads in (1, 3, 7):
        with kernels_on_host(threads, words=600):
            found = gradient(batch)
        assert_array_equal(np.isnan(found).all(1), passes > 600 / 2)
        assert_allclose(found[passes < 300], wanted[passes < 300], rtol=1e-13)
    with kernels_on_host(3, words=20_000):
        assert_allclose(gradient(batch), wanted, rtol=1e-13)


def test_a_function_that_needs_more_memory_than_there_is_ends_what_called_it() -> None:
    gradient = jax.vmap(jax.grad(_total(uk.scalarize(_calls))))
    wanted = gradient(_batch())
    with kernels_on_host(words=20):
        assert np.isnan(gradient(_batch())).all()
    with kernels_on_host(words=1000) as kernels:
        assert_allclose(gradient(_batch()), wanted, rtol=1e-11)
    assert "call i1 @callee" in kernels[-1].host_text


def test_operands_that_all_members_share_are_read_once() -> None:
    table = jnp.asarray(np.random.default_rng(0).normal(size=3000))
    scalar = uk.scalarize(lambda i, x, y: table[i] * x + y[1])
    i, y = jnp.arange(0, 2200, 200), jnp.array([1.0, 2.0])
    with kernels_on_host():
        found = jax.vmap(scalar, (0, None, None))(i, 3.0, y)
    assert_allclose(found, 3 * table[i] + 2, rtol=1e-14)


@pytest.mark.parametrize("name", ["sides", "solve", "small array", "large array"])
def test_float32_stays_float32(name: str) -> None:
    """What is given and carried, and tapes, whose entries have places of eight bytes."""
    with jax.enable_x64(False):
        batch = _batch().astype(jnp.float32)
        gradient = jax.vmap(jax.grad(_total(uk.scalarize(SMOOTH[name]))))
        with kernels_on_host(words=1_000_000) as kernels:
            found = gradient(batch)
    program = kernels[-1].host_text.split("define internal void @compute(")[1].split("\n}")[0]
    assert "float" in program
    assert "double" not in program
    wanted = jax.vmap(jax.grad(_total(uk.scalarize(SMOOTH[name]))))(_batch())
    _assert_close(found, wanted.astype(jnp.float32), 1e-4)


# What XLA is given.


def _lowered(function: Callable[..., Any], platform: str = "cuda") -> str:
    return jax.jit(function).trace(_batch()).lower(lowering_platforms=(platform,)).as_text()


CALL = re.compile(r"custom_call @([\w$.]+)")


def test_a_program_is_one_kernel_and_nothing_is_computed_beside_it() -> None:
    one = uk.scalarize(_newton)
    functions = one, jax.grad(lambda x: jnp.sum(one(x))), jax.hessian(lambda x: jnp.sum(one(x)))
    with as_with_gpu():
        for function in functions:
            text = _lowered(jax.vmap(function))
            assert CALL.findall(text) == ["__gpu$xla.gpu.ptx"]
            assert not re.search(r"stablehlo\.(while|divide|sine|sqrt)", text)
        assert "__gpu$" not in _lowered(jax.vmap(one), "rocm")
        exported = jax.export.export(jax.jit(jax.vmap(one)), platforms=("cuda",))(_batch())
        assert "__gpu$" not in exported.mlir_module()
        assert "tensor<4294" not in _lowered(
            jax.vmap(functions[1])
        )  # memory is that of the threads there are


def test_without_kernels_operations_of_xla_take_their_place() -> None:
    text = _lowered(jax.vmap(uk.scalarize(_newton)))
    assert CALL.findall(text) == []
    assert "stablehlo.while" in text


def test_a_batch_of_none_is_none() -> None:
    with as_with_gpu():
        text = jax.jit(jax.vmap(uk.scalarize(_newton))).trace(jnp.zeros((0, 3)))
        assert CALL.findall(text.lower(lowering_platforms=("cuda",)).as_text()) == []


# The functions of kernels.

RANGES: dict[str, tuple[float, float]] = {
    "exp": (-700, 709), "exp2": (-1000, 1000), "expm1": (-40, 700), "log": (1e-300, 1e300), "log1p": (-0.999, 1e6),
    "tan": (-50, 50), "atan": (-1e3, 1e3), "asin": (-1, 1), "acos": (-1, 1), "sinh": (-700, 700), "cosh": (-700, 700),
    "tanh": (-25, 25), "asinh": (-1e9, 1e9), "acosh": (1, 1e9), "atanh": (-1, 1), "cbrt": (-1e9, 1e9),
    "sin": (-50, 50), "cos": (-50, 50), "erf": (-7, 7), "erfc": (-6, 26),
}  # fmt: skip
EXACT = {"exp2": lambda x: mpmath.mpf(2) ** x, "cbrt": lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x))}


def computed(name: str, *given: np.ndarray) -> np.ndarray:
    """Not within XLA, whose threads take numbers near zero as zero."""
    number, function = jax.ShapeDtypeStruct((1,), given[0].dtype), getattr(lax, name)
    program, _, _ = program_of(jax.make_jaxpr(function)(*[number] * len(given)), lambda _: False)
    kernel = program.kernel((False,) * len(given))
    assert kernel.exists
    return run_threads(kernel, [x[None] for x in given], given[0].size, threads=2)[0][0]


def places(found: np.ndarray, exact: list[Any]) -> float:
    """The largest error, in units of the last place."""
    unit = [mpmath.mpf(float(np.spacing(found.dtype.type(abs(float(x)))))) for x in exact]
    return max(abs((mpmath.mpf(float(x)) - y) / u) for x, y, u in zip(found, exact, unit, strict=True))


def spread(low: float, high: float) -> np.ndarray:
    """Numbers of all sizes between bounds."""
    rng = np.random.default_rng(0)
    sizes = np.exp(rng.uniform(np.log(1e-9), np.log(max(abs(low), abs(high))), 300))
    x = np.concatenate([rng.uniform(low, high, 300), sizes, -sizes])
    return x[(x > low) & (x < high)]


@pytest.mark.parametrize("name", RANGES)
def test_functions_are_near_exact(name: str) -> None:
    x = spread(*RANGES[name])
    with mpmath.workprec(150):
        exact = [(EXACT.get(name) or getattr(mpmath, name))(mpmath.mpf(float(a))) for a in x]
        assert places(computed(name, x), exact) < (4 if name == "erfc" else 2.5)


def test_powers_angles_and_remainders() -> None:
    rng = np.random.default_rng(1)
    x, y = np.exp(rng.uniform(-20, 20, 500)), rng.uniform(-30, 30, 500)
    near = 1 + rng.uniform(-1e-3, 1e-3, 500)
    with mpmath.workprec(200):
        for base, power in ((x, y), (near, 1e4 * y)):
            exact = [mpmath.mpf(float(a)) ** mpmath.mpf(float(b)) for a, b in zip(base, power, strict=True)]
            assert places(computed("pow", base, power), exact) < 2.5
        a, b = rng.normal(size=(2, 500))
        exact = [mpmath.atan2(float(u), float(v)) for u, v in zip(a, b, strict=True)]
        assert places(computed("atan2", a, b), exact) < 2.5
    np.testing.assert_array_equal(computed("rem", y, x), np.fmod(y, x))
    np.testing.assert_allclose(computed("div", y, x), y / x, rtol=3e-16)


ODD = np.array([0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 0.5, -2, 3, 2.5, 1e308, 710, -750])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    ("name", "function"),
    [("pow", np.power), ("atan2", np.arctan2), ("div", np.divide), ("max", np.maximum), ("min", np.minimum)],
)
def test_infinities_zeros_and_what_is_no_number(name: str, function: Any) -> None:
    x, y = (a.ravel() for a in np.meshgrid(ODD, ODD))
    np.testing.assert_allclose(computed(name, x, y), function(x, y), rtol=1e-15)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", ["exp", "log", "expm1", "log1p", "tanh", "sinh", "cosh", "sqrt"])
def test_infinities_and_zeros_of_one(name: str) -> None:
    np.testing.assert_allclose(computed(name, ODD), getattr(np, name)(ODD), rtol=1e-15)


def test_functions_of_float32() -> None:
    x, y = np.random.default_rng(2).uniform(0.1, 5.0, (2, 300)).astype(np.float32)
    np.testing.assert_allclose(computed("pow", x, y), x**y, rtol=2e-7)
    np.testing.assert_allclose(computed("div", x, y), x / y, rtol=2e-7)
    np.testing.assert_allclose(computed("tanh", x), np.tanh(x), rtol=2e-7)


# Registers.

REGISTERS = {("value", "float64"): 128, ("reverse", "float64"): 176, ("value", "float32"): 88}
"""Of Diffrax's run; nothing is spilled."""


@pytest.mark.parametrize(("way", "dtype"), REGISTERS)
def test_registers_and_spills(way: str, dtype: str) -> None:
    """By NVIDIA's assembler, where it is installed: `pip install nvidia-cuda-nvcc-cu12`."""
    with jax.enable_x64(dtype == "float64"), kernels_on_host() as kernels:
        function = uk.scalarize(lambda x: _decay(x)[-1])
        jax.vmap(jax.grad(_total(function)) if way == "reverse" else function)(_batch().astype(dtype))
        found = registers_of(kernels[-1].ptx)
    if found is None:
        pytest.skip("needs ptxas")
    assert found[0] <= REGISTERS[way, dtype]
    assert found[1] == 0
