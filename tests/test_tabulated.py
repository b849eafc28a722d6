"""Tables of time, and searches in tables, as scalar code: compared with SciPy, NumPy, JAX itself, and differences."""

import functools

import diffrax as dfx
import jax
import jax.numpy as jnp
import jax.test_util
import numpy as np
import pytest
import scipy.integrate
import scipy.interpolate

import ukjax as uk

RANDOM = np.random.default_rng(0)
TIMES = np.cumsum(RANDOM.uniform(0.05, 0.2, 12))
VALUES = np.sin(3 * TIMES) + RANDOM.normal(0, 0.1, 12)
WITHIN = RANDOM.uniform(TIMES[0], TIMES[-1], 40)
OUTSIDE = np.array([TIMES[0] - 1.0, TIMES[-1] + 1.0])


@pytest.mark.parametrize("shape", [(), (2,), (2, 3)])
def test_a_spline_is_that_of_scipy(shape):
    values = RANDOM.normal(size=(12, *shape))
    found = uk.Tabulated(TIMES, values, kind="cubic")
    known = scipy.interpolate.CubicSpline(TIMES, values)
    at = jax.jit(jax.vmap(lambda t: (found(t), jax.jacfwd(jax.jacfwd(found))(t))))
    value, second = jax.device_get(at(np.concatenate([WITHIN, OUTSIDE])))
    np.testing.assert_allclose(value[:-2], known(WITHIN), rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(second[:-2], known(WITHIN, 2), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(value[-2:], values[[0, -1]], rtol=1e-9)


def test_four_times_are_one_cubic():
    found = uk.Tabulated(np.arange(4.0), np.arange(4.0) ** 3, kind="cubic")
    np.testing.assert_allclose(found(2.5), 2.5**3, rtol=1e-12)


def test_a_table_is_a_function_to_jit():
    table = uk.Tabulated([0.0, 1.0, 3.0], [0.0, 2.0, 1.0], kind="linear")
    np.testing.assert_allclose(jax.vmap(jax.jit(table))(jnp.array([0.5, 2.0])), [1.0, 1.5], rtol=1e-15)


def test_lines_are_those_of_numpy():
    found = uk.Tabulated(TIMES, VALUES)
    at = np.concatenate([WITHIN, OUTSIDE, TIMES])
    values = jax.jit(jax.vmap(found))(at)
    np.testing.assert_allclose(values, np.interp(at, TIMES, VALUES), rtol=1e-12, atol=1e-14)
    slope = np.diff(VALUES)[0] / np.diff(TIMES)[0]
    np.testing.assert_allclose(
        jax.jit(jax.grad(found))(TIMES[0]), slope, rtol=1e-12
    )  # where a run often starts


@pytest.mark.parametrize("kind", ["linear", "cubic"])
def test_derivatives_by_the_table(kind):
    f = jax.jit(lambda times, values: uk.Tabulated(times, values, kind=kind)(0.6))
    jax.test_util.check_grads(f, (TIMES, VALUES), 1, rtol=1e-6)


def test_it_is_of_one_type():
    found = uk.Tabulated(np.arange(4.0, dtype=np.float32), np.arange(4, dtype=np.float32), kind="cubic")
    assert found(0.5).dtype == jnp.float32


@pytest.mark.parametrize(
    ("times", "values", "options", "words"),
    [
        ([0.0, 2.0, 1.0], np.zeros(3), {}, "times must increase"),
        ([0.0, 1.0, 1.0], np.zeros(3), {}, "times must increase"),
        ([0.0, 1.0], np.zeros(3), {}, r"\(2,\) and \(3,\); they must be \(k,\)"),
        (np.zeros((2, 2)), np.zeros(2), {}, "they must be"),
        ([0.0], np.zeros(1), {}, "at least 2 times"),
        ([0.0, 1.0, 2.0], np.zeros(3), {"kind": "cubic"}, "at least 4 times"),
        ([0.0, 1.0], [0.0, np.nan], {}, "values"),
        ([], np.zeros(0), {"kind": "hold"}, "at least 1 times"),
        ([0.0, 1.0], [0.0, 1.0], {"kind": "quadratic"}, "'hold' or 'linear' or 'cubic'"),
    ],
)
def test_bad_tables(times, values, options, words):
    with pytest.raises(uk.InputError, match=words):
        uk.Tabulated(times, values, **options)


@pytest.mark.parametrize("kind", ["linear", "cubic"])
def test_a_run_under_a_tabulated_load(kind):
    """By scalar code, as SciPy integrates it with its own interpolation."""
    load = uk.Tabulated(TIMES, VALUES, kind=kind)
    system = uk.System(jnp.eye(1), lambda t, q, v: jnp.stack([load(t)]) - q)
    run = uk.simulate(system, [0.0], [1.0], t1=2.0, ts=3, rtol=1e-9, atol=1e-9, solver=dfx.Tsit5())
    assert run.computed_by.startswith("scalar code")
    spline = scipy.interpolate.CubicSpline(TIMES, VALUES)
    at = lambda t: np.interp(t, TIMES, VALUES)
    given = at if kind == "linear" else lambda t: spline(np.clip(t, TIMES[0], TIMES[-1]))
    slope = lambda t, y: [y[1], given(t) - y[0]]
    known = scipy.integrate.solve_ivp(slope, (0.0, 2.0), [0.0, 1.0], rtol=1e-9, atol=1e-9, max_step=0.01)
    np.testing.assert_allclose([run.q[-1, 0], run.v[-1, 0]], known.y[:, -1], rtol=1e-6)


TABLE, PLACES = jnp.asarray(VALUES), jnp.asarray(TIMES)
HERMITE = dfx.CubicInterpolation(PLACES, dfx.backward_hermite_coefficients(PLACES, TABLE))
FUNCTIONS = {
    "interp": lambda q, v: jnp.interp(q[0], PLACES, TABLE) * v,
    "periodic": lambda q, v: jnp.interp(q[0], PLACES, TABLE, period=1.1) * v,
    "parameters": lambda q, v: jnp.interp(0.7, jnp.sort(PLACES), jnp.concatenate([TABLE[:-3], q])) * v,
    "diffrax": lambda q, v: dfx.LinearInterpolation(PLACES, TABLE).evaluate(q[0]) * v,
    "rate": lambda q, v: dfx.LinearInterpolation(PLACES, TABLE).derivative(q[0]) * v,
    "hermite": lambda q, v: HERMITE.evaluate(q[0]) * v,
    "argmax": lambda q, v: q[jnp.argmax(q)] * v[jnp.argmin(q)] * q,
    "nested": lambda q, v: TABLE[3 * jnp.argmax(q) + 2 * jnp.argmin(v) % 3] * v,
    "switch": lambda q, v: jax.lax.switch(jnp.argmax(q), [jnp.sin, jnp.cos, jnp.square], v),
    "cond": lambda q, v: jax.lax.cond(q[0] > 0.5, jnp.sin, jnp.cos, v),
    "set": lambda q, v: q.at[jnp.argmax(q)].set(v[0]),
    "add": lambda q, v: q.at[jnp.argmin(q)].add(v[0]),
    "slice": lambda q, v: jax.lax.dynamic_slice(TABLE, [jnp.argmax(q)], [3]) * v,
    "unsigned": lambda q, v: TABLE[jnp.argmax(q).astype(jnp.uint8) - jnp.uint8(1) >> jnp.uint8(6)] * v,
    "count": lambda q, v: jnp.sum(q[0] > PLACES).astype(float) * v,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_searches_and_places(name):
    """Scalar code against JAX's own vmap of the function, with derivatives in both modes."""
    f = FUNCTIONS[name]
    system = uk.System(jnp.eye(3), lambda t, q, v: f(q, v))
    q = RANDOM.uniform(-0.2, 1.6, (7, 3))
    q, v, direction = map(jnp.asarray, (q, np.cos(2 * q), np.sin(5 * q)))
    lanes = uk.lanes(system)

    @functools.partial(jax.jit, static_argnums=0)
    def told(f, q, v):
        value, pull = jax.vjp(f, q, v)
        return value, *pull(direction), jax.jvp(f, (q, v), (direction, q))[1]

    by_code, by_jax = (told(f, q, v) for f in (lambda q, v: lanes(0.0, q, v), jax.vmap(f)))
    for found, known in zip(by_code, by_jax, strict=True):
        np.testing.assert_allclose(found, known, rtol=1e-11, atol=1e-12)


def test_operations_grow_as_the_table():
    """Some operations a time, not one search after the other."""
    state = (jnp.zeros(()), jnp.zeros(1), jnp.zeros(1))
    places = jnp.linspace(0.0, 1.0, 128)
    system = uk.System(jnp.eye(1), lambda t, q, v: jnp.interp(q, places, jnp.sin(places)))
    assert sum(uk.lanes(system).operations(*state).values()) < 4 * 128


def test_the_largest_of_what_is_not_a_number():
    f = lambda q: jnp.asarray([1.0, 2.0, 3.0])[jnp.argmax(q)]
    system = uk.System(jnp.eye(3), lambda t, q, v: f(q) * jnp.ones(3))
    q = jnp.asarray([[1.0, jnp.nan, 5.0], [jnp.nan, 2.0, 1.0], [0.0, 4.0, 4.0], [0.0, 1.0, jnp.nan]])
    np.testing.assert_array_equal(uk.lanes(system)(0.0, q, 0 * q)[:, 0], jax.vmap(f)(q))


@pytest.mark.parametrize("shape", [(), (2,)])
def test_held_values_are_those_of_scipy(shape):
    values = RANDOM.normal(size=(12, *shape))
    at = np.concatenate([WITHIN, TIMES])
    known = scipy.interpolate.interp1d(TIMES, values, kind="previous", axis=0)
    held = jax.jit(jax.vmap(uk.Tabulated(TIMES, values, kind="hold")))
    np.testing.assert_array_equal(held(at), known(at))
    np.testing.assert_array_equal(held(OUTSIDE), values[[0, -1]])
    assert uk.Tabulated([1.0], [2.0], kind="hold")(jnp.float64(0.3)) == 2.0


class Cart(uk.AbstractSystem):
    """On a rail, pushed."""

    push: object

    def mass_matrix(self, t, q):
        return jnp.eye(2, dtype=q.dtype)

    def force(self, t, q, v):
        return jnp.stack([self.push(t), v[0]])  # pyright: ignore[reportCallIssue]

    @property
    def constraints(self):
        return (uk.Holonomic(lambda t, q: q[1], name="rail"),)


KNOTS = np.linspace(0.0, 2.0, 21)  # the last one at the end of the run
PUSHES = RANDOM.normal(size=21)
LAST = np.float64(0.1) * (2.0 - KNOTS[:-1] - 0.05)  # d q(2) / d push, of a double integrator


def _pushed(push, **options):
    return uk.simulate(Cart(push), jnp.zeros(2), jnp.zeros(2), t0=0.0, t1=2.0, ts=5, **options)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dt0": 0.03},
        {"solver": dfx.Heun(), "dt0": 0.02, "stepsize_controller": dfx.ConstantStepSize()},
        pytest.param({"solver": dfx.Tsit5(), "stabilizer": uk.Baumgarte(5.0, 5.0)}, marks=pytest.mark.slow),
        pytest.param({"event": lambda t, q, v: q[0] - 1e3}, marks=pytest.mark.slow),
    ],
    ids=["default", "dt0", "fixed", "stages kept", "event"],
)
def test_steps_end_where_held_values_jump(options):
    """Methods of order two and more are exact between: with a step across a jump none would be."""
    run = _pushed(uk.Tabulated(KNOTS, PUSHES, kind="hold"), **options)
    assert run.ok
    np.testing.assert_allclose(run.q[-1, 0], LAST @ PUSHES[:-1], rtol=0, atol=1e-12)
    np.testing.assert_allclose(run.v[-1, 0], 0.1 * PUSHES[:-1].sum(), rtol=0, atol=1e-12)
    assert run.stats["num_rejected_steps"] == 0
    assert run.stats["num_steps"] <= (110 if "stepsize_controller" in options else 30)


def test_held_values_in_functions_and_derivatives():
    table = uk.Tabulated(KNOTS, PUSHES, kind="hold")
    assert _pushed(lambda t: 2.0 * table(t)).stats["num_rejected_steps"] == 0
    last = lambda pushes: _pushed(uk.Tabulated(KNOTS, pushes, kind="hold")).q[-1, 0]
    value, slopes = jax.value_and_grad(last)(jnp.asarray(PUSHES))
    np.testing.assert_allclose(value, LAST @ PUSHES[:-1], rtol=0, atol=1e-12)
    np.testing.assert_allclose(slopes, [*LAST, 0.0], rtol=0, atol=1e-10)
