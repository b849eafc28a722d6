"""Scalar code against the formulas, NumPy and finite differences; what it cannot translate, and its size."""

import functools
import math

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import central, equations
from jax import lax

import ukjax as uk
from ukjax._compiler import _expressions
from ukjax._compiler._expressions import Program
from ukjax._compiler._scalars import Builder
from ukjax._compiler._structured._moves import pad_entries

FITTING = (
    "scara",
    "parallelogram",
    "coordinated_robots",
    "n_pendulum",
    "slider_crank",
    "rolling_disk",
    "spinning_top",
)


def _states(problem: uk.Problem, batch: int, amount: float = 0.05):
    """A batch of consistent states near the start."""
    rng = np.random.default_rng(0)
    q = np.asarray(problem.q0) + amount * rng.normal(size=(batch, problem.q0.size))
    v = np.asarray(problem.v0) + amount * rng.normal(size=(batch, problem.v0.size))
    projection, system = uk.Projection(), problem.system
    project = jax.jit(jax.vmap(lambda q, v: projection(system, jnp.zeros(()), q, v)))
    for _ in range(3):
        q, v = project(q, v)
    return q, v


def _by_numpy(M, Q, A, b):
    """The KKT system of one state by least squares."""
    m = len(b)
    K = np.block([[M, -A.T], [A, np.zeros((m, m))]])
    return np.linalg.lstsq(K, np.concatenate([Q, b]), rcond=1e-11)[0][: len(Q)]


@pytest.mark.parametrize(
    "name", [pytest.param(x, marks=[pytest.mark.slow] * (x in ("scara", "slider_crank"))) for x in FITTING]
)
def test_equals_the_kkt_system(name):
    problem = uk.models.get(name)
    q, v = _states(problem, 5)
    found = uk.lanes(problem)(0.0, q, v)

    def terms(q, v):
        rows = uk.constraint_rows(problem.system, 0.0, q, v)
        t = jnp.asarray(0.0)
        return problem.system.mass_matrix(t, q), problem.system.force(t, q, v), rows.A, rows.b

    given = [np.asarray(x) for x in jax.jit(jax.vmap(terms))(q, v)]
    for a, *state in zip(found, *given, strict=True):
        expected = _by_numpy(*state)
        np.testing.assert_allclose(a, expected, rtol=0, atol=1e-11 * (1 + abs(expected).max()))


def test_times_of_their_own_and_gains():
    problem = uk.models.scara()
    stabilizer, formula = uk.Baumgarte(3.0, 7.0), uk.UdwadiaKalaba()
    q, v = jnp.tile(problem.q0, (3, 1)), jnp.tile(problem.v0, (3, 1))
    times = jnp.array([0.0, 1.0, 2.5])
    found = np.asarray(uk.lanes(problem, stabilizer=stabilizer)(times, q, v))
    for t, a in zip(np.asarray(times), found, strict=True):
        expected = formula.acceleration(problem.system, t, problem.q0, problem.v0, stabilizer=stabilizer)
        np.testing.assert_allclose(a, expected.a, rtol=1e-11, atol=1e-11)


def test_rank_drops_as_the_rule_says():
    """In its flat position the parallelogram has rank 10 instead of 11."""
    problem = uk.models.parallelogram(angle=0.0, rate=2.0)
    found = uk.lanes(problem)(0.0, problem.q0[None], problem.v0[None])[0]
    expected = uk.UdwadiaKalaba().acceleration(problem.system, 0.0, problem.q0, problem.v0)
    assert int(expected.rank) == 10
    np.testing.assert_allclose(found, expected.a, atol=1e-11)


def test_derivatives_by_state_and_parameter():
    """Forward and reverse, against central differences; the linkage has a redundant row."""
    problem = uk.models.parallelogram()
    q, v = (x[None] for x in (problem.q0, problem.v0 + 0.0))
    weights = jnp.asarray(np.random.default_rng(1).normal(size=(1, 12)))

    @jax.jit
    def value(mass, angle):
        other = uk.models.parallelogram(mass=mass, angle=angle, rate=1.0)
        return jnp.sum(weights * uk.lanes(other)(0.0, other.q0[None], other.v0[None]))

    point, step = (jnp.asarray(1.2), jnp.asarray(0.9)), 1e-5
    expected = [
        (value(1.2 + step, 0.9) - value(1.2 - step, 0.9)) / (2 * step),
        (value(1.2, 0.9 + step) - value(1.2, 0.9 - step)) / (2 * step),
    ]
    for mode in (jax.jacrev, jax.jacfwd):
        np.testing.assert_allclose(jax.jit(mode(value, argnums=(0, 1)))(*point), expected, rtol=1e-7)
    assert uk.lanes(problem)(0.0, q, v).shape == (1, 12)


def test_structural_zeros_are_no_code():
    """Chains of pendulums: M is diagonal, each row meets its neighbours only."""
    chains = (uk.models.n_pendulum(n) for n in (2, 4, 16))
    small, short, long = (uk.lanes(p).operations(0.0, p.q0, p.v0) for p in chains)
    # Pivots of M, 4 by 4 and diagonal, and of two rows, with what they divide; and of the rows alone, for their rank.
    assert small["div"] <= 13
    assert sum(long.values()) < 5 * sum(short.values())  # in proportion to the chain, not to its cube


def test_control_flow_and_index_operations():
    """Loops of known length, branches, gathers, scatters and cumulative sums of user code."""

    def force(t, q, v):
        total, _ = lax.scan(lambda c, x: (c + x * x, None), jnp.zeros(()), q)
        q = q.at[1].add(2.0 * v[0]).at[np.array([0, 2])].set(v[:2])
        picked = q[np.array([2, 0, 1])] + jnp.cumsum(q) + jnp.where(v > 0, q, -q)
        branch = lax.cond(v[0] > 0, jnp.sin, jnp.cos, q[0])
        return picked * jnp.maximum(total, 0.1) + branch + jnp.linalg.norm(v) + jnp.max(q) - jnp.prod(v)

    row = uk.Nonholonomic(lambda t, q, v: jnp.dot(jnp.roll(q, 1), v) + t * v[0] ** 3, name="row")
    system = uk.System(jnp.diag(jnp.array([1.0, 2.0, 3.0])), force, [row])
    rng = np.random.default_rng(2)
    q, v = rng.normal(size=(2, 6, 3))
    found = uk.lanes(system)(0.7, q, v)
    for a, *state in zip(found, q, v, strict=True):
        expected = uk.UdwadiaKalaba().acceleration(system, 0.7, *state).a
        np.testing.assert_allclose(a, expected, rtol=1e-11, atol=1e-11)


def test_index_operations():
    """Gathers with windows, of batches, clipped; slices at computed places; padding; those out of bounds refused."""
    places = np.array([[0, 2], [1, 1]])

    def force(t, q, v):
        x = q.reshape(3, 4)
        rows = x[places]  # (2, 2, 4)
        each = jax.vmap(lambda row, i: lax.dynamic_slice(row, (i,), (2,)))(x, np.array([0, 2, 1]))  # (3, 2)
        windows = jax.vmap(lambda i: lax.dynamic_slice(x, (i, 1), (2, 2)), out_axes=1)(
            np.array([0, 1])
        )  # (2, 2, 2)
        clipped = jnp.take(q, np.array([3, 99]), mode="clip")
        paired = x[np.array([2, 0]), np.array([3, 1])]
        moved = lax.dynamic_update_slice(x, v[:4].reshape(2, 2), (1, 9)).reshape(-1)
        padded = lax.pad(v[:3], 0.5, [(2, 1, 1)])
        parts = [rows[1, 0], each.reshape(-1), windows.reshape(-1)[2:6], clipped, paired, padded[:4]]
        return moved + jnp.concatenate(parts)[:12] + jnp.concatenate(parts)[-12:]

    system = uk.System(jnp.eye(12), force, [])
    q, v = np.random.default_rng(5).normal(size=(2, 1, 12))
    np.testing.assert_allclose(uk.lanes(system)(0.0, q, v)[0], jax.jit(force)(0.0, q[0], v[0]), rtol=1e-14)
    outside = uk.System(jnp.eye(12), lambda t, q, v: q.at[np.arange(1, 13)].get(mode="fill"), [])
    beyond = uk.lanes(outside)(0.0, q, v)[0]
    np.testing.assert_array_equal(beyond[:-1], q[0, 1:])
    assert np.isnan(beyond[-1])


@pytest.mark.parametrize("shape", [(3,), (2, 4), (0, 2), (1, 3, 2)])
def test_padding_is_that_of_lax(shape):
    """Before, after and between, and cut off."""
    x = np.arange(math.prod(shape)).reshape(shape)
    configs = [[each] * x.ndim for each in [(2, 1, 0), (0, 3, 2), (1, -1, 1), (-1, 2, 1)]]
    expected = jax.jit(lambda x: [lax.pad(x, jnp.asarray(-7, x.dtype), config) for config in configs])(x)
    for config, exact in zip(configs, expected, strict=True):
        found = pad_entries([x, np.asarray(-7)], [], {"padding_config": config})
        np.testing.assert_array_equal(found, exact)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1, 4_000])
def test_sine_and_cosine_on_a_cpu(dtype, size):
    """In units of the last place of one, of NumPy's values in the next longer type."""
    angles = np.random.default_rng(0).uniform(-1, 1, (5, 4_000)) * np.logspace(-3, 4, 5)[:, None]
    angles = np.concatenate([angles.ravel(), np.arange(-40, 41) * np.pi / 2]).astype(dtype)
    build = Builder(dtype)
    outputs = [build.apply(op, x) for x in [build.input()] for op in ("sin", "cos")]
    compute = jax.jit(jax.vmap(Program(build, outputs, (1,)), 1, 1))
    for start in range(0, len(angles), max(size, 200)):
        x = angles[start : start + size]
        exact = [f(x.astype(np.longdouble if dtype is np.float64 else np.float64)) for f in (np.sin, np.cos)]
        got = np.asarray(compute(jnp.asarray(x)[None]))
        assert got.dtype == dtype
        np.testing.assert_allclose(got, np.array(exact, float), rtol=0, atol=1.2 * np.finfo(dtype).eps)
    far = np.asarray(compute(jnp.asarray([np.repeat([1e30, -1e20, np.inf, np.nan], 8)], dtype)))
    assert np.all(np.abs(far[:, :16]) < 2)
    assert np.isnan(far[:, 16:]).all()


def test_second_derivatives_of_a_coupled_mass_matrix():
    """As JAX differentiates the solution of M a = Q."""
    mass = lambda q: jnp.array([[2 + q[0] ** 2, q[1]], [q[1], 2 + jnp.cos(q[0])]])
    fast = uk.lanes(uk.System(lambda t, q: mass(q), lambda t, q, v: -(q**3)))
    q, weights = jnp.array([0.3, 0.5]), jnp.array([1.0, 2.0])
    found = jax.jit(jax.hessian(lambda q: fast(0.0, q[None], jnp.zeros((1, 2)))[0] @ weights))(q)
    expected = jax.jit(jax.hessian(lambda q: jnp.linalg.solve(mass(q), -(q**3)) @ weights))(q)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.slow
def test_second_derivatives():
    """By differences of gradients."""
    problem = uk.models.scara()
    fast = uk.lanes(problem)

    def value(q):
        return jnp.sum(jnp.sin(fast(0.0, q[None], problem.v0[None] + 0.1))[0] * jnp.arange(1.0, 5.0))

    gradient, h = jax.jit(jax.grad(value)), 1e-6
    sides = [[gradient(problem.q0 + s * h * e) for s in (1, -1)] for e in np.eye(4)]
    expected = np.stack([(after - before) / (2 * h) for after, before in sides])
    for hessian in (jax.jacfwd(jax.grad(value)), jax.jacrev(jax.grad(value)), jax.jacfwd(jax.jacfwd(value))):
        found = jax.jit(hessian)(problem.q0)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-8 * abs(expected).max())


@pytest.mark.parametrize("batch", [1, pytest.param(19, marks=pytest.mark.slow)])
def test_a_long_chain(batch):
    """Sixteen four-bars: their acceleration equals that of the KKT system."""
    problem = uk.models.four_bars(n=16)
    rng = np.random.default_rng(3)
    q = np.asarray(problem.q0) + 0.1 * rng.normal(size=(batch, problem.q0.size))
    v = rng.normal(size=q.shape)
    found = uk.lanes(problem)(0.0, q, v)
    for a, *at in zip(np.asarray(found), jnp.asarray(q), jnp.asarray(v), strict=True):
        M, Q, rows = equations(problem.system, jnp.zeros(()), *at)
        expected = _by_numpy(*map(np.asarray, (M, Q, rows.A, rows.b)))
        np.testing.assert_allclose(a, expected, rtol=0, atol=1e-10 * (1 + abs(expected).max()))


def test_float32_stays_float32():
    problem = uk.models.pendulum()
    q, v = (jnp.asarray(x, jnp.float32)[None] for x in (problem.q0, problem.v0))
    found = uk.lanes(problem)(jnp.zeros((), jnp.float32), q, v)
    assert found.dtype == jnp.float32
    expected = uk.UdwadiaKalaba().acceleration(problem.system, 0.0, problem.q0, problem.v0).a
    np.testing.assert_allclose(found[0], expected, atol=1e-5)


def test_an_indefinite_mass_matrix_gives_nan():
    system = uk.System(jnp.diag(jnp.array([1.0, -1.0])), jnp.ones(2))
    assert bool(jnp.isnan(uk.lanes(system)(0.0, jnp.zeros((1, 2)), jnp.zeros((1, 2)))).any())


def test_a_formula_of_a_singular_mass_matrix():
    problem = uk.models.pendulum()
    expected = uk.RangeForm().acceleration(problem.system, 0.0, problem.q0, problem.v0).a
    found = uk.lanes(problem, uk.RangeForm())(0.0, problem.q0[None], problem.v0[None])
    np.testing.assert_allclose(found[0], expected, rtol=1e-9, atol=1e-9)


def test_loops_that_end_by_a_condition():
    """Newton's method for x^3 + x = q in a force, in a batch whose members take different numbers of passes."""

    def root(t, q, v):
        miss = lambda x: x**3 + x - q
        step = lambda x: x - miss(x) / (3 * x**2 + 1)
        return lax.while_loop(lambda x: jnp.any(jnp.abs(miss(x)) > 1e-12), step, q)

    fast, q = uk.lanes(uk.System(jnp.eye(2), root)), np.linspace(-40.0, 60.0, 22).reshape(11, 2)
    x = fast(0.0, q, q)
    np.testing.assert_allclose(x**3 + x, q, atol=1e-11)
    slopes = jax.vmap(jax.jacfwd(lambda q: fast.one(0.0, q, q)))(q)
    np.testing.assert_allclose(slopes, jax.vmap(jnp.diag)(1 / (3 * x**2 + 1)), atol=1e-12)
    assert "scalar code" in uk.simulate(fast.system, q[0], q[0], t1=0.1, ts=2).computed_by


def test_what_cannot_be_translated_says_so(monkeypatch):
    q = jnp.ones((1, 2))
    with pytest.raises(uk.TranslationError, match="'eig' has no scalar code"):
        uk.lanes(uk.System(jnp.eye(2), lambda t, q, v: jnp.linalg.eigvals(jnp.diag(q)).real))(0.0, q, q)
    monkeypatch.setattr(_expressions, "MOST", 10_000)
    large = uk.System(jnp.eye(80), lambda t, q, v: jnp.tanh(jnp.outer(q, v)) @ q)
    with pytest.raises(uk.TranslationError, match="too many to write out"):
        uk.lanes(large)(0.0, jnp.ones((1, 80)), jnp.ones((1, 80)))
    with pytest.raises(uk.InputError, match="q and v have shapes"):
        uk.lanes(uk.models.pendulum())(0.0, q[0], q[0])
    with pytest.raises(uk.InputError, match="system must be something like"):
        uk.lanes("pendulum")


@functools.cache
def _by_formula(name):
    """A model, and at a state of it the acceleration by the formula on arrays, the rows and the energy."""
    problem = uk.models.get(name)

    @jax.jit
    def of(t, q, v):
        told = uk.UdwadiaKalaba(uk.SVD()).acceleration(problem.system, t, q, v)
        return told, uk.constraint_rows(problem.system, t, q, v), problem.system.energy(t, q, v)

    return problem, of


@pytest.mark.parametrize("compiled", [False, True], ids=["", "in jit"])
@pytest.mark.parametrize(
    "name",
    [
        "parallelogram",
        "rolling_disk",
        *(pytest.param(x, marks=pytest.mark.slow) for x in ("scara", "five_bar")),
    ],
)
def test_what_a_trajectory_tells_is_what_the_formula_says(name, compiled):
    problem, by_formula = _by_formula(name)
    run = lambda: uk.simulate(problem, t1=problem.t0 + 0.5)
    found, ts = (jax.jit(run) if compiled else run)(), (5, 117, -1)
    assert "scalar code" in found.computed_by
    column = lambda name: np.asarray(getattr(found, name))
    for i in ts:
        expected, rows, energy = by_formula(*(column(x)[i] for x in ("t", "q", "v")))
        for what in ("a", "constraint_force", "multipliers", "rank"):
            value = np.asarray(getattr(expected, what))
            np.testing.assert_allclose(column(what)[i], value, rtol=1e-7, atol=1e-7, err_msg=what)
        np.testing.assert_allclose(column("position_error")[i], rows.position_error, atol=1e-14)
        np.testing.assert_allclose(column("velocity_error")[i], rows.velocity_error, atol=1e-13)
        if energy is not None:
            np.testing.assert_allclose(column("energy")[i], energy, rtol=1e-13)


@pytest.mark.parametrize(
    "name",
    [
        "parallelogram",
        "rolling_disk",
        *(pytest.param(x, marks=pytest.mark.slow) for x in ("scara", "five_bar")),
    ],
)
def test_derivatives_of_what_a_trajectory_tells(name):
    """By every parameter of the system along one direction, in one compiled run, against differences of such runs."""
    problem = uk.models.get(name)
    parameters, rest = eqx.partition(problem.system, eqx.is_inexact_array)
    rng = np.random.default_rng(0)
    change = jax.tree.map(lambda x: x * jnp.asarray(rng.normal(size=x.shape)) / 100, parameters)

    @jax.jit
    def told(s):
        system = eqx.combine(jax.tree.map(lambda x, d: x + s * d, parameters, change), rest)
        fixed = {
            "solver": dfx.Tsit5(),
            "stepsize_controller": dfx.ConstantStepSize(),
            "dt0": 0.01,
            "t0": problem.t0,
        }
        fixed |= {"t1": problem.t0 + 0.05, "ts": 3, "max_steps": 16, "adjoint": dfx.ForwardMode()}
        # The stabilizer leaves the state, which need not fit the rows, as it is: what is compared is what is told of it.
        run = uk.simulate(system, problem.q0, problem.v0, stabilizer=uk.Baumgarte(1.0, 1.0), **fixed)
        return {what: getattr(run, what)[1] for what in ("a", "constraint_force", "position_error", "energy")}

    slopes = jax.jit(lambda s: jax.jvp(told, (s,), (jnp.ones(()),))[1])(jnp.zeros(()))
    for what, slope in slopes.items():
        exact = central(lambda h, what=what: told(jnp.asarray(h))[what])
        scale = 1e-12 + np.abs(exact).max()
        np.testing.assert_allclose(slope, exact, rtol=0, atol=1e-6 * scale, err_msg=what)
