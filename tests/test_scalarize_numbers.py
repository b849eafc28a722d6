"""Whole numbers, truths and entries that are changed, in programs of scalars: by XLA and NumPy's own functions."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import pytest
from jax import lax
from numpy.testing import assert_allclose, assert_array_equal

import ukjax as uk

OF_TWO = {
    "quotients": lambda x, y: (lax.div(x, y), lax.rem(x, y), x // y, x % y),
    "shifts": lambda x, y: (
        lax.shift_left(x, y),
        lax.shift_right_logical(x, y),
        lax.shift_right_arithmetic(x, y),
    ),
}


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint64", "int64"])
@pytest.mark.parametrize("name", OF_TWO)
def test_whole_numbers_are_those_of_xla(name: str, dtype: str) -> None:
    """Also of a division by zero, by which a process ends, and of shifts by more bits than there are."""
    info = np.iinfo(dtype)
    ends = np.array(
        [info.min, info.max, 0, 1, 3, info.bits - 1, info.bits, info.bits + 1, -(info.min < 0)], dtype
    )
    x, y = (jnp.asarray(z.ravel()) for z in np.meshgrid(ends, ends))
    expected = jax.jit(OF_TWO[name])(x, y)
    for found in (uk.scalarize(OF_TWO[name])(x, y), uk.scalarize(lambda: OF_TWO[name](x, y))()):
        for a, b in zip(found, expected, strict=True):
            assert_array_equal(a, b)


@pytest.mark.parametrize("source", ["float32", "float64"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64", "uint64"])
def test_reals_become_the_nearest_whole_numbers_towards_zero(dtype: str, source: str) -> None:
    info = np.iinfo(dtype)
    ends = (0.7, -0.7, info.min, info.max, 2.0 * info.max, -2.0 * info.max, np.inf, -np.inf)
    x = np.array([*ends, np.nan], source)
    expected = [min(max(int(y), info.min), info.max) for y in x[:6]] + [info.max, info.min, 0]
    found = uk.scalarize(lambda x: x.astype(dtype))(x)
    assert [int(y) for y in found] == expected


def test_extremes_and_products_of_truths() -> None:
    x = np.array([True, False, True, True])
    of = uk.scalarize(lambda x: (jnp.max(x), jnp.min(x), jnp.maximum(x, ~x), x @ x, x[:3] @ ~x[1:]))
    for found, expected in zip(
        of(x),
        (True, False, np.ones(4, bool), True, True),
        strict=True,
    ):
        assert_array_equal(found, expected)


CHANGED: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "apply": (lambda x, k, y: x.at[k].apply(jnp.sin), lambda x, k, y: x.put(k, np.sin(x[k]))),
    "multiply": (lambda x, k, y: x.at[k].multiply(y), np.multiply.at),
    "divide": (lambda x, k, y: x.at[k].divide(y), np.divide.at),
    "subtract": (lambda x, k, y: x.at[k].subtract(y), np.subtract.at),
    "min": (lambda x, k, y: x.at[k].min(y), np.minimum.at),
    "max": (lambda x, k, y: x.at[k].max(y), np.maximum.at),
}


@pytest.mark.parametrize("size", [6, 40])
@pytest.mark.parametrize("name", CHANGED)
def test_entries_changed_at_places_that_are_not_known(name: str, size: int) -> None:
    mine, theirs = CHANGED[name]
    x, k, y = np.linspace(-1.0, 2.0, size), np.array([3, 1, -2]), np.array([0.3, -1.5, 0.7])
    expected = x.copy()
    theirs(expected, k, y)
    assert_allclose(uk.scalarize(mine)(x, k, y), expected, rtol=1e-15)
    h, dx = 1e-6, np.cos(np.arange(size))
    moved = [mine(jnp.asarray(x + s * h * dx), k, y) for s in (1, -1)]
    change = jax.jvp(lambda x: uk.scalarize(mine)(x, k, y), (jnp.asarray(x),), (jnp.asarray(dx),))[1]
    assert_allclose(change, (moved[0] - moved[1]) / (2 * h), atol=1e-8)


def test_rounding_to_fewer_bits_is_not_passed_over() -> None:
    with pytest.raises(uk.Untranslatable, match="fewer bits"):
        uk.scalarize(lambda x: lax.reduce_precision(x, 8, 7))(jnp.asarray(1.2345))
    same = uk.scalarize(lambda x: lax.reduce_precision(x, 11, 52))
    assert same(jnp.asarray(1.2345)) == 1.2345


@pytest.mark.parametrize("solver", [lx.LU(), lx.QR(), lx.AutoLinearSolver(well_posed=True)])
@pytest.mark.parametrize("throw", [False, True])
def test_a_constraint_that_solves_by_lineax_has_scalar_code(
    solver: lx.AbstractLinearSolver, throw: bool
) -> None:
    """x' K^-1 x = 1, an ellipse, beside the same with the inverse written down."""
    stiffness = np.array([[2.0, 0.3], [0.3, 1.0]])
    inverse = np.linalg.inv(stiffness)

    def solved(t, q):
        operator = lx.MatrixLinearOperator(jnp.asarray(stiffness))
        return q @ lx.linear_solve(operator, q, solver, throw=throw).value - 1.0

    q0 = jnp.array([0.0, np.sqrt(1 / inverse[1, 1])])
    v0 = jnp.array([0.5, -0.5 * inverse[1, 0] / inverse[1, 1]])
    ends = []
    for row in (solved, lambda t, q: q @ jnp.asarray(inverse) @ q - 1.0):
        system = uk.System(jnp.eye(2), jnp.array([0.0, -9.81]), [uk.Holonomic(row, name="ellipse")])
        run = uk.simulate(system, q0, v0, t1=0.5, ts=3)
        assert run.ok
        assert run.computed_by.startswith("scalar code")
        ends.append(run.q_end)
    assert_allclose(ends[0], ends[1], atol=1e-9)


@pytest.mark.parametrize(
    ("parameter", "force"),
    [
        (np.int64(4), lambda k, q: -k.astype(float) * q),
        (np.uint8(1), lambda k, q: -jnp.array([1.0, 4.0])[k] * q),
        (np.True_, lambda k, q: jnp.where(k, -4.0 * q, -q)),
    ],
)
def test_whole_numbers_and_truths_are_parameters_of_runs(parameter: Any, force: Callable[..., Any]) -> None:
    """x'' = -4 x, for what `jit` and `vmap` trace as for what is known: LLVM had refused the code."""

    def end(k):
        row = uk.Holonomic(lambda t, q: jnp.where(k.astype(bool), q[1], q[0]), name="row")
        system = uk.System(jnp.eye(2), lambda t, q, v: force(k, q), [row])
        return uk.simulate(system, jnp.array([1.0, 0.0]), jnp.zeros(2), t1=1.0, ts=2).q_end

    for found in (
        end(jnp.asarray(parameter)),
        jax.jit(end)(jnp.asarray(parameter)),
        jax.vmap(end)(jnp.asarray([parameter]))[0],
    ):
        assert_allclose(found, [np.cos(2.0), 0.0], atol=1e-8)


def test_an_environment_takes_whole_numbers_as_actions() -> None:
    push = lambda t, q, v, u: jnp.array([1.0, 0.0]) * u.astype(float)
    environment = uk.Environment(uk.models.pendulum(), push, lambda t, q, v, u: q[1], dt=0.05, horizon=5)
    state = environment.reset(jax.random.key(0))
    expected = environment.step(state, jnp.ones(1))[1]
    for action in (jnp.ones(1, int), jnp.ones(1, bool), jnp.ones(1, jnp.uint8)):
        assert_array_equal(environment.step(state, action)[1], expected)
