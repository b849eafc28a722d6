"""Dependence of rows is a matter of A: neither masses nor units change which rows count as independent."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
from jaxtyping import Array

import ukjax as uk
import ukjax.mechanisms as um
from ukjax._motion._acceleration_code import compile_acceleration

GRAVITY = 9.81
ROPES = ((1.0, 0.0, 0.0, 1.0), (0.0, 1.0, 1.0, -2.0))
START = (-1.0, -3.0, -4.0, -2.0)


class Atwood(uk.AbstractSystem):
    """Three weights and a pulley of mass mu on two ropes; `more` rows of them are redundant."""

    mu: Array
    more: int = 0

    def mass_matrix(self, t, q):
        return jnp.diag(jnp.concatenate([jnp.array([1.0, 2.0, 3.0], q.dtype), self.mu[None].astype(q.dtype)]))

    def force(self, t, q, v):
        return -GRAVITY * jnp.diag(self.mass_matrix(t, q))

    @property
    def constraints(self):
        def ropes(t, q):
            rows = [q[0] + q[3] + 3, q[1] + q[2] - 2 * q[3] + 3]
            return jnp.stack([*rows, 0.7 * rows[0] - 0.3 * rows[1]][: 2 + self.more])

        return (uk.Holonomic(ropes, name="ropes"),)


def exact(mu, pull=1.0):
    """The acceleration by Gauss-Jordan elimination of [M, -A^T; A, 0] in fractions."""
    M, A = (
        np.diag([Fraction(x) for x in (1, 2, 3, mu)]),
        np.array([[Fraction(x) for x in row] for row in ROPES]),
    )
    right = [*(-Fraction(GRAVITY) * np.diag(M)), Fraction(0), Fraction(0)]
    right[3] *= Fraction(pull)
    zero = np.full((2, 2), Fraction(0))
    K = np.column_stack([np.block([[M, -A.T], [A, zero]]), right])
    for i in range(6):
        pivot = i + int(np.argmax(np.abs(K[i:, i])))
        K[[i, pivot]] = K[[pivot, i]]
        K[i] = K[i] / K[i, i]
        for j in set(range(6)) - {i}:
            K[j] = K[j] - K[j, i] * K[i]
    return K[:4, 6].astype(float)


def decades(*some):
    every = [10.0**k for k in range(-16, 17)]
    return [pytest.param(mu, marks=() if mu in some else pytest.mark.slow) for mu in every]


@pytest.mark.parametrize("mu", decades(1e-9, 1e16))
def test_a_pulley_of_any_mass(mu):
    system = Atwood(jnp.asarray(mu))
    run = uk.simulate(system, START, np.zeros(4), t0=0.0, t1=1.0, ts=2)
    np.testing.assert_allclose(run.q[-1], np.array(START) + exact(mu) / 2, atol=1e-12)
    assert run.rank_min == run.rank_max == uk.check(system, run.q[-1], run.v[-1]).rank == 2


@pytest.mark.parametrize("mu", decades(1e-4, 1e16))
def test_a_pulley_of_any_mass_in_single_precision(mu):
    system = Atwood(jnp.asarray(mu, jnp.float32))
    start = jnp.asarray(START, jnp.float32)
    run = uk.simulate(system, start, jnp.zeros(4, jnp.float32), t0=0.0, t1=1.0, ts=2)
    right = np.array(START) + exact(float(np.float32(mu))) / 2
    np.testing.assert_allclose(run.q[-1], right, atol=1e-5)
    assert run.rank_min == run.rank_max == 2


@pytest.mark.parametrize("stabilizer", [uk.NoStabilizer(), uk.Baumgarte(10.0, 25.0)])
def test_without_projection_and_where_masses_are_traced(stabilizer):
    """With a redundant row beside; of one mass alone and of several at once."""
    mus = jnp.array([1e-12, 1e-6, 1.0])
    ends = lambda mu: uk.simulate(
        Atwood(mu, 1), jnp.array(START), jnp.zeros(4), t0=0.0, t1=1.0, ts=2, stabilizer=stabilizer
    )
    runs = jax.vmap(ends)(mus)
    for q, mu, rank in zip(runs.q[:, 1], mus, runs.rank[:, 1], strict=True):
        np.testing.assert_allclose(q, np.array(START) + exact(float(mu)) / 2, atol=1e-11)
        assert rank == 2


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    "stabilizer", [pytest.param(uk.Projection(), marks=pytest.mark.slow), uk.NoStabilizer()]
)
def test_rows_lost_where_masses_are_traced_are_no_success(stabilizer, dtype):
    """The formula cannot be changed there; a run that succeeds is right, and lighter bodies make none that does."""
    mus = jnp.array([1e-16, 1e-14, 1e-7, 1e-5, 1e-3], dtype)
    ends = lambda mu: uk.simulate(
        Atwood(mu), jnp.array(START, dtype), jnp.zeros(4, dtype), t0=0.0, t1=1.0, ts=2, stabilizer=stabilizer
    )
    runs = jax.jit(jax.vmap(ends))(mus)
    good = np.asarray(runs.result == uk.RESULTS.successful)
    broken = np.asarray(runs.result == uk.RESULTS.constraints_broken)
    np.testing.assert_array_equal(good, ~broken)
    assert (good[0], good[-1]) == (False, True)
    for q, mu in zip(runs.q_end[good], mus[good], strict=True):
        np.testing.assert_allclose(q, np.array(START) + exact(float(mu)) / 2, rtol=1e-6)


@pytest.mark.parametrize("formula", [uk.UdwadiaKalaba(), uk.UdwadiaKalaba(uk.SVD()), uk.Schur()])
def test_an_acceleration_is_right_or_refused(formula):
    """Within jit, where nothing can be refused, the residual says so."""
    of = lambda mu: formula.acceleration(Atwood(mu, 1), 0.0, jnp.array(START), jnp.zeros(4))
    compiled = jax.jit(of)
    for mu in (1.0, 1e-4, 1e-7):
        np.testing.assert_allclose(of(jnp.asarray(mu)).a, exact(mu), atol=1e-7)
        np.testing.assert_allclose(compiled(jnp.asarray(mu)).residual, 0, atol=1e-6)
    for mu in (1e-9, 1e-12, 1e-16):
        with pytest.raises(uk.InputError, match=r"too light .* NullSpace"):
            of(jnp.asarray(mu))
        assert np.abs(compiled(jnp.asarray(mu)).residual).max() > 1


FORMULAS = [uk.RangeForm(), uk.RangeForm(uk.SVD()), uk.StackedForm(), uk.StackedForm(uk.SVD())]
FORMULAS += [uk.NullSpace(), uk.KKT()]


@pytest.mark.parametrize("formula", FORMULAS)
@pytest.mark.parametrize("pull", [1.0, 0.01])
def test_a_heavy_pulley_by_formulas_without_the_inverse_mass(formula, pull):
    """Right to 1e-5 or refused, of 1e-16 to 1e16 kg, also where the pulley weighs less than its mass: by fractions."""

    class Pulled(Atwood):
        def force(self, t, q, v):
            return super().force(t, q, v) * jnp.array([1.0, 1.0, 1.0, pull])

    refused = []
    for k in range(-16, 17, 2):
        mu = 10.0**k
        try:
            found = formula.acceleration(Pulled(jnp.asarray(mu), 1), 0.0, jnp.array(START), jnp.zeros(4))
        except uk.InputError:
            refused.append(k)
        else:
            np.testing.assert_allclose(found.a, exact(mu, pull), atol=1e-4)
    assert min(refused, default=17) >= 8
    if isinstance(formula, uk.RangeForm):
        with pytest.raises(uk.InputError, match=r"too far apart for RangeForm"):
            uk.simulate(Pulled(jnp.asarray(1e9)), START, np.zeros(4), t0=0.0, t1=1.0, formula=formula)


_ALONE = [uk.NullSpace(), uk.StackedForm(), uk.KKT()]


@pytest.mark.parametrize(
    ("formula", "stabilizer"),
    [
        (uk.RangeForm(), uk.NoStabilizer()),
        *(pytest.param(f, uk.NoStabilizer(), marks=pytest.mark.slow) for f in _ALONE),
        pytest.param(uk.RangeForm(), uk.Projection(), marks=pytest.mark.slow),
    ],
    ids=lambda x: type(x).__name__,
)
def test_masses_too_far_apart_within_jit_are_no_success(formula, stabilizer):
    """Of 1e-16 to 1e16 kg: what succeeds is right to 1e-5, as forces out of balance by 1e-6 are let be; what is right
    to 1e-7 succeeds. Between them rounding decides."""
    masses = 10.0 ** np.arange(-16, 17, 2)
    options = {"t0": 0.0, "t1": 1.0, "ts": 2, "formula": formula, "stabilizer": stabilizer}
    ends = lambda mu: uk.simulate(Atwood(mu, 1), jnp.array(START), jnp.zeros(4), **options)
    runs = jax.jit(jax.vmap(ends))(jnp.asarray(masses))
    right, exactly = (
        np.array(
            [
                np.allclose(q, np.array(START) + exact(mu) / 2, rtol=rtol)
                for q, mu in zip(runs.q_end, masses, strict=True)
            ]
        )
        for rtol in (1e-5, 1e-7)
    )
    good = np.asarray(runs.result == uk.RESULTS.successful)
    assert np.all(right[good])
    assert np.all(good[exactly])
    assert 2 <= np.sum(~good) <= 3
    lost = uk.RESULTS.diverged if isinstance(formula, uk.KKT) else uk.RESULTS.masses_too_far_apart
    np.testing.assert_array_equal(runs.result == lost, ~good)


def test_explicit_formulas_say_that_bodies_are_too_light():
    for pinv in (uk.GramSchmidt(), uk.SVD()):
        with pytest.raises(uk.InputError, match=r"too light .* NullSpace"):
            uk.simulate(
                Atwood(jnp.asarray(1e-10)), START, np.zeros(4), t0=0.0, t1=1.0, formula=uk.UdwadiaKalaba(pinv)
            )


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_trolley_of_a_tenth_of_a_gram_under_a_bob_of_a_kilogram(dtype):
    """x'' and theta'' of the two freedoms, by SciPy; the rod's row has the light coordinate alone where it hangs."""
    m, M, L, angle = 1e-4, 1.0, 1.0, 0.6

    def slope(t, y):
        c, s = np.cos(y[1]), np.sin(y[1])
        matrix = [[m + M, M * L * c], [M * L * c, M * L**2]]
        return [*y[2:], *np.linalg.solve(matrix, [M * L * s * y[3] ** 2, -M * GRAVITY * L * s])]

    y = scipy.integrate.solve_ivp(slope, (0, 1), [0, angle, 0, 0], rtol=1e-10, atol=1e-11, method="DOP853").y[
        :, -1
    ]
    right = [y[0], 0.0, y[0] + L * np.sin(y[1]), -L * np.cos(y[1])]
    mass, pull = np.diag([m, m, M, M]).astype(dtype), (-GRAVITY * np.array([0, m, 0, M])).astype(dtype)
    rows = (
        uk.Holonomic(lambda t, q: q[1], name="rail"),
        uk.Holonomic(lambda t, q: (jnp.sum((q[2:] - q[:2]) ** 2) - L**2) / 2, name="rod"),
    )
    system = uk.System(jnp.asarray(mass), jnp.asarray(pull), rows)
    start = jnp.asarray([0, 0, L * np.sin(angle), -L * np.cos(angle)], dtype)
    run = uk.simulate(system, start, jnp.zeros(4, dtype), t0=0.0, t1=1.0, ts=2)
    np.testing.assert_allclose(run.q[-1], right, atol=2e-4 if dtype == np.float32 else 1e-5)
    assert run.rank_min == uk.check(system, run.q[-1], run.v[-1]).rank == 2


@pytest.mark.parametrize("mass", [1.0, 1e-4, 1e-8])
def test_light_links_and_a_redundant_one_carry_a_load(mass):
    """Three parallel links under a coupler of 1 kg: without their mass it is a pendulum; with it, one of closed form."""
    bodies, joints, tops = [], [], [(x + 0.5, 0.75**0.5) for x in (0.0, 1.0, 2.0)]
    for i, top in enumerate(tops):
        bodies.append(um.rod(f"link {i}", (float(i), 0.0), top, mass=mass))
        joints += [
            um.Revolute(f"foot {i}", "ground", f"link {i}", (float(i), 0.0)),
            um.Revolute(f"top {i}", f"link {i}", "coupler", top),
        ]
    bodies.append(um.rod("coupler", tops[0], tops[2], mass=1.0))
    problem = um.problem(um.assemble(bodies, joints, [um.Gravity((0, -GRAVITY))]), t1=2.0)
    inertia, weight = 1.0 + 3 * mass / 3, 1.0 + 3 * mass / 2
    slope = lambda t, y: [y[1], -GRAVITY * weight / inertia * np.cos(y[0])]
    angle = scipy.integrate.solve_ivp(slope, (0, 2), [np.pi / 3, 0], rtol=1e-12, atol=1e-12).y[0, -1]
    run = uk.simulate(problem, ts=2, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(run.points()["link 0.end"][-1], [np.cos(angle), np.sin(angle)], atol=1e-5)
    assert (run.rank_max, len(run.row_names), run.stats["num_steps"] < 1000) == (11, 12, True)


@pytest.mark.parametrize("sine", [1.0, 1e-2, 1e-3, 3e-4, 1e-6, 1e-10, 0.0])
@pytest.mark.parametrize("light", [1.0, 1e-4])
def test_rows_at_an_angle(sine, light):
    """Clearly independent rows take the short way, others that by A: both give the same accelerations."""
    masses = np.array([1.0, light, 2.0, 3.0, 0.5])
    rows = np.array(
        [
            [1.0, 0.2, 0.0, 0.0, 0.0],
            [0.0, 1.0, -0.5, 0.0, 0.1],
            [0.0, 0.0, 0.3, 1.0, 0.0],
            [0.0, 0.0, 0.0, 0.0, 1.0],
        ]
    )
    rows[3] = (rows[0] - rows[1] + 0.5 * rows[2]) / 1.7 + sine * rows[3]
    A, force = jnp.asarray(rows), jnp.array([0.3, -1.0, 2.0, 0.7, -0.4])
    system = uk.System(jnp.diag(masses), force, [uk.Holonomic(lambda t, q: A @ q, name="rows")])
    state = jnp.zeros(()), jnp.zeros(5), jnp.zeros(5)
    code = compile_acceleration(system, 1e-4, uk.NoStabilizer(), *state)
    found = code(code.numbers(system, uk.NoStabilizer()), *state)
    kept = rows if sine > 1e-4 else rows[:3]
    m = len(kept)
    matrix = np.block([[np.diag(masses), -kept.T], [kept, np.zeros((m, m))]])
    right = np.linalg.solve(matrix, np.concatenate([force, np.zeros(m)]))[:5]
    np.testing.assert_allclose(found, right, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("rows", [30, pytest.param(60, marks=pytest.mark.slow)])
def test_a_length_that_is_kept_many_times_over(rows):
    """Weights of a pendulum's one constraint share its multiplier by least norm, and the motion is the pendulum's."""
    weights = np.linspace(1.0, 2.0, rows)
    constraint = uk.Holonomic(lambda t, q: weights * (q @ q - 1.0) / 2)
    system = uk.System(jnp.eye(2), jnp.array([0.0, -9.81]), [constraint])
    run = uk.simulate(system, jnp.array([1.0, 0.0]), jnp.zeros(2), t1=1.0, ts=[0.0, 0.4, 1.0])
    # q.q = 1, so that the one multiplier of a = g + q lambda is -v.v - q.g; and v.v = 2 q.g from a start at rest.
    q, pull = np.asarray(run.q), -9.81 * np.asarray(run.q[:, 1])
    np.testing.assert_allclose(run.multipliers, -3 * pull[:, None] * weights / (weights @ weights), atol=1e-8)
    swing = scipy.integrate.solve_ivp(
        lambda t, x: [x[1], -9.81 * np.cos(x[0])], (0, 1), [0.0, 0.0], rtol=1e-12, atol=1e-12
    )
    np.testing.assert_allclose(q[-1], [np.cos(swing.y[0, -1]), np.sin(swing.y[0, -1])], atol=1e-6)


def test_many_rows_without_zeros():
    """24 rows of 30 velocities, against NumPy's pseudoinverse, and a derivative against differences."""
    rng = np.random.default_rng(1)
    A, b, f = rng.normal(size=(24, 30)), rng.normal(size=24), rng.normal(size=30)
    A[7] = A[3] + A[5]
    b[7] = b[3] + b[5]
    rows = uk.AccelerationConstraint(lambda t, q, v: (A * (1 + 0 * q[0]), b * q[1]))
    system = uk.System(jnp.eye(30), lambda t, q, v: f * q[2], [rows])
    one = uk.lanes(system).one
    right = lambda q: f * q[2] + np.linalg.pinv(A) @ (b * q[1] - A @ f * q[2])
    q, v, direction = rng.normal(size=(3, 30))
    a, slope = jax.jit(lambda q: jax.jvp(lambda q: one(0.0, q, v), (q,), (direction,)))(q)
    np.testing.assert_allclose(a, right(q), rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(slope, right(direction), rtol=1e-9, atol=1e-11)
