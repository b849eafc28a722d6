"""Constraints, stabilizers and pseudoinverse methods that are not ukjax's own, in every door."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
from jaxtyping import Array

import ukjax as uk
from ukjax._system._rows import constraint_errors

GRAVITY, AMPLITUDE, RATE, END = 9.81, 0.1, 3.0, 1.0


def _pivot(t):
    """Position, velocity and acceleration of a pivot that swings sideways."""
    x = AMPLITUDE * jnp.stack([jnp.sin(RATE * t), RATE * jnp.cos(RATE * t), -(RATE**2) * jnp.sin(RATE * t)])
    return jnp.stack([x, jnp.zeros(3)], axis=1)


class MovingRod(uk.AbstractConstraint):
    """A rod on a moving pivot, all of whose derivatives are written out."""

    length: Array
    name: str = eqx.field(static=True, default="rod")

    def position_error(self, t, q):
        return (jnp.sum((q - _pivot(t)[0]) ** 2) - self.length**2) / 2

    def velocity_error(self, t, q, v):
        r, w = q - _pivot(t)[0], v - _pivot(t)[1]
        return jnp.dot(r, w)

    def acceleration_rows(self, t, q, v):
        pivot = _pivot(t)
        r, w = q - pivot[0], v - pivot[1]
        return r[None], jnp.stack([jnp.dot(r, pivot[2]) - jnp.dot(w, w)])


class PositionsAlone(uk.AbstractConstraint):
    """The same, its position error alone."""

    length: Array
    name: str = eqx.field(static=True, default="rod")

    def position_error(self, t, q):
        return (jnp.sum((q - _pivot(t)[0]) ** 2) - self.length**2) / 2


class RatesAlone(uk.AbstractConstraint):
    """The same as a velocity error, which is not known to be the rate of anything."""

    length: Array
    name: str = eqx.field(static=True, default="rod")

    def velocity_error(self, t, q, v):
        return jnp.dot(q - _pivot(t)[0], v - _pivot(t)[1])


class RowsAlone(uk.AbstractConstraint):
    """The same as rows of accelerations."""

    length: Array
    name: str = eqx.field(static=True, default="rod")

    def acceleration_rows(self, t, q, v):
        return MovingRod(self.length).acceleration_rows(t, q, v)


KINDS = {
    MovingRod: "holonomic",
    PositionsAlone: "holonomic",
    RatesAlone: "nonholonomic",
    RowsAlone: "acceleration",
}


def _problem(kind=MovingRod, length=1.0):
    length = jnp.asarray(length)
    system = uk.System(2.0 * jnp.eye(2), jnp.array([0.0, -2.0 * GRAVITY]), (kind(length),))
    return uk.Problem(system, jnp.stack([length, 0.0]), jnp.array([RATE * AMPLITUDE, 0.0]), 0.0, END)


def _angle(length, t):
    """The angle from the vertical, from SciPy: length angle'' = -g sin(angle) - x'' cos(angle)."""

    def rate(t, y):
        x = -AMPLITUDE * RATE**2 * np.sin(RATE * t)
        return [y[1], -(GRAVITY * np.sin(y[0]) + x * np.cos(y[0])) / length]

    found = scipy.integrate.solve_ivp(rate, (0, END), [np.pi / 2, 0.0], t_eval=t, rtol=1e-12, atol=1e-12)
    return found.y[0]


def _place(length, t):
    angle = _angle(length, t)
    return np.stack([AMPLITUDE * np.sin(RATE * t) + length * np.sin(angle), -length * np.cos(angle)], axis=1)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_each_level(kind) -> None:
    """Against derivatives by hand."""
    t, q, v = 0.4, jnp.array([0.8, -0.5]), jnp.array([0.3, 0.7])
    rows = uk.constraint_rows(_problem(kind).system, t, q, v)
    assert (rows.names, rows.kinds) == (("rod",), (KINDS[kind],))
    pivot = AMPLITUDE * np.sin(RATE * t)
    rate, acceleration = AMPLITUDE * RATE * np.cos(RATE * t), -(RATE**2) * pivot
    r, w = np.asarray(q) - [pivot, 0], np.asarray(v) - [rate, 0]
    np.testing.assert_allclose(rows.A, r[None], rtol=1e-14)
    np.testing.assert_allclose(rows.b, [r[0] * acceleration - w @ w], rtol=1e-13)
    known = KINDS[kind] == "holonomic", KINDS[kind] != "acceleration"
    expected = (r @ r - 1) / 2 if known[0] else 0, r @ w if known[1] else 0
    np.testing.assert_allclose(rows.position_error, [expected[0]], rtol=1e-14)
    np.testing.assert_allclose(rows.velocity_error, [expected[1]], rtol=1e-14)
    assert (list(rows.of_positions), list(rows.of_velocities)) == ([known[0]], [known[1]])


@pytest.mark.parametrize("kind", KINDS)
def test_simulates_as_scipy_does(kind) -> None:
    ts = np.linspace(0, END, 11)
    run = uk.simulate(_problem(kind), ts=ts, rtol=1e-10, atol=1e-10)
    assert run.computed_by.startswith("scalar code")
    np.testing.assert_allclose(run.q, _place(1.0, ts), atol=2e-8)
    if kind in (MovingRod, PositionsAlone):
        assert max(run.max_position_error, run.max_velocity_error) < 1e-13


# Which rows a kind has is tested above, and a run by a formula that projects below.
@pytest.mark.parametrize(
    "kind",
    [
        RowsAlone,
        *(pytest.param(x, marks=pytest.mark.slow) for x in (MovingRod, PositionsAlone, RatesAlone)),
    ],
)
def test_simulates_by_a_formula_as_scipy_does(kind) -> None:
    ts = np.linspace(0, END, 11)
    run = uk.simulate(_problem(kind), ts=ts, rtol=1e-10, atol=1e-10, formula=uk.NullSpace())
    assert "by NullSpace" in run.computed_by
    np.testing.assert_allclose(run.q, _place(1.0, ts), atol=2e-8)


def test_projects_and_checks() -> None:
    system, q, v = _problem().system, jnp.array([1.1, 0.1]), jnp.array([0.5, 0.2])
    report = uk.check(system, 0.0, q, v)
    assert (report.rows, report.rank) == (("rod",), 1)
    assert "Violated: rod" in str(report)
    q1, v1 = uk.project(system, 0.0, q, v)
    unit = np.asarray(q) / np.linalg.norm(q)  # the mass is the same in all directions
    np.testing.assert_allclose(q1, unit, atol=1e-14)
    pivot = np.array([RATE * AMPLITUDE, 0])
    np.testing.assert_allclose(v1, v - unit * (unit @ (np.asarray(v) - pivot)), atol=1e-14)


def test_sweeps() -> None:
    lengths = np.array([0.5, 1.0, 1.5])
    found = uk.sweep(
        lambda length: _problem(MovingRod, length),
        {"length": lengths},
        outputs=["q_end"],
        rtol=1e-10,
        atol=1e-10,
    )
    expected = [_place(length, np.array([0.0, END]))[-1] for length in lengths]
    np.testing.assert_allclose(found.q_end, expected, atol=5e-8)


def test_has_gradients_and_lanes() -> None:
    def end(length):
        return uk.simulate(_problem(MovingRod, length), t1=0.5, rtol=1e-9, atol=1e-9).q[-1, 1]

    h = 1e-4
    slope = (_place_at(1.0 + h) - _place_at(1.0 - h)) / (2 * h)
    np.testing.assert_allclose(jax.grad(end)(jnp.asarray(1.0)), slope, rtol=1e-5)
    problem = _problem()
    q = jnp.stack([problem.q0, jnp.array([0.6, -0.8])])
    v = jnp.stack([problem.v0, jnp.array([0.8 + RATE * AMPLITUDE, 0.6])])
    a = uk.lanes(problem.system)(0.0, q, v)
    free = np.array([0.0, -GRAVITY])
    w = np.asarray(v) - [RATE * AMPLITUDE, 0]
    expected = [free - x * (x @ free + y @ y) for x, y in zip(np.asarray(q), w, strict=True)]
    np.testing.assert_allclose(a, expected, atol=1e-13)


def _place_at(length):
    return _place(length, np.array([0.0, 0.5]))[-1, 1]


class Silent(uk.AbstractConstraint):
    name: str = "quiet"


class Unequal(uk.AbstractConstraint):
    name: str = "unequal"

    def position_error(self, t, q):
        return q[:1]

    def acceleration_rows(self, t, q, v):
        return jnp.eye(2), jnp.zeros(2)


@pytest.mark.parametrize(
    ("constraint", "words"),
    [
        (Silent(), "constraint 'quiet' says nothing: Silent must have the method position_error"),
        (Unequal(), r"constraint 'unequal' has 2 rows, but a position error of shape \(1,\)"),
    ],
)
def test_what_makes_no_rows_is_refused(constraint, words) -> None:
    system = uk.System(jnp.eye(2), jnp.zeros(2), (constraint,))
    with pytest.raises(uk.InputError, match=words):
        uk.constraint_rows(system, 0.0, jnp.ones(2), jnp.ones(2))


class CubicDamping(uk.AbstractStabilizer):
    """psi' = -k psi^3, whose solution is psi0 / sqrt(1 + 2 k psi0^2 t)."""

    gain: Array

    def right_hand_side(self, rows):
        return rows.b - self.gain * rows.velocity_error**3


class DampedAndProjected(uk.AbstractStabilizer):
    """Baumgarte's correction within steps, and a projection after each."""

    alpha: Array
    beta: Array
    pinv: uk.AbstractPseudoinverse = uk.GramSchmidt()

    def right_hand_side(self, rows):
        return uk.Baumgarte(self.alpha, self.beta).right_hand_side(rows)

    @property
    def projection_method(self):
        return self.pinv


@pytest.mark.parametrize("formula", [None, uk.UdwadiaKalaba()])
def test_stabilizer_that_corrects(formula) -> None:
    problem, gain, psi = uk.models.pendulum(rate=0.5), 4.0, 0.3
    length = np.linalg.norm(problem.q0)
    v0 = problem.v0 + psi * problem.q0 / length
    run = uk.simulate(
        problem,
        v0=v0,
        t1=1.0,
        ts="steps",
        stabilizer=CubicDamping(gain),
        formula=formula,
        rtol=1e-10,
        atol=1e-10,
    )
    first = float(run.velocity_error[0, 0])
    assert abs(first) > 0.1
    expected = first / np.sqrt(1 + 2 * gain * first**2 * np.asarray(run.t))
    np.testing.assert_allclose(run.velocity_error[:, 0], expected, atol=1e-8)


@pytest.mark.parametrize("formula", [None, uk.UdwadiaKalaba()])
def test_stabilizer_that_corrects_and_projects(formula) -> None:
    """Started off the constraints it is projected onto them, and stays there to rounding."""
    problem = _problem()
    run = uk.simulate(
        problem.system,
        problem.q0 * 1.001,
        problem.v0,
        t1=END,
        ts=np.linspace(0, END, 3),
        stabilizer=DampedAndProjected(5.0, 20.0),
        formula=formula,
        rtol=1e-10,
        atol=1e-10,
    )
    assert max(run.max_position_error, run.max_velocity_error) < 1e-13
    np.testing.assert_allclose(run.q, _place(1.0, np.linspace(0, END, 3)), atol=2e-8)
    rows = uk.constraint_rows(problem.system, 0.0, problem.q0 * 1.1, problem.v0)
    expected = np.asarray(rows.b) - 5 * np.asarray(rows.velocity_error) - 20 * np.asarray(rows.position_error)
    np.testing.assert_allclose(DampedAndProjected(5.0, 20.0).right_hand_side(rows), expected, rtol=1e-14)


class Eigen(uk.AbstractPseudoinverse):
    """By the eigenvalues of B B^T."""

    rcond: float | None = eqx.field(static=True, default=None)

    def of_unit_rows(self, B):
        values, U = jnp.linalg.eigh(B @ B.T)
        kept = values > self.threshold(B.dtype) ** 2 * jnp.max(values)
        inverse = jnp.where(kept, 1 / jnp.where(kept, values, 1.0), 0.0)
        return B.T @ (U * inverse[None, :]) @ U.T, jnp.sum(kept)


def test_pseudoinverse_method() -> None:
    """Dependent rows of very different sizes, and the derivative along a direction that keeps the rank."""
    rng = np.random.default_rng(5)
    X, Y, dX, dY = (rng.normal(size=shape) for shape in ((4, 2), (2, 6), (4, 2), (2, 6)))
    scales = np.array([1.0, 1e3, 1e-3, 10.0])[:, None]
    at = lambda s: scales * ((X + s * dX) @ (Y + s * dY))
    inverse = lambda B: uk.pinv(B, Eigen())
    found = jax.jit(inverse)(at(0.0))
    expected = np.linalg.pinv(at(0.0), rcond=1e-9)
    np.testing.assert_allclose(found.matrix, expected, atol=1e-9 * np.abs(expected).max())
    assert found.rank == 2
    h = 1e-5
    slope = (np.linalg.pinv(at(h), rcond=1e-9) - np.linalg.pinv(at(-h), rcond=1e-9)) / (2 * h)
    direction = scales * (dX @ Y + X @ dY)
    moved = jax.jit(lambda *x: jax.jvp(lambda B: inverse(B).matrix, *x)[1])((at(0.0),), (direction,))
    np.testing.assert_allclose(moved, slope, atol=1e-6 * np.abs(slope).max())


def test_pseudoinverse_method_in_a_run() -> None:
    ts = np.linspace(0, END, 3)
    formula, projected = uk.UdwadiaKalaba(Eigen()), uk.Projection(Eigen())
    run = uk.simulate(_problem(), ts=ts, rtol=1e-10, atol=1e-10, formula=formula, stabilizer=projected)
    assert "by Eigen" in run.computed_by
    np.testing.assert_allclose(run.q, _place(1.0, ts), atol=2e-8)


class _Wrong(uk.AbstractConstraint):
    """`MovingRod` with one of its derivatives wrong."""

    length: Array
    what: str = eqx.field(static=True)
    name: str = eqx.field(static=True, default="rod")

    def position_error(self, t, q):
        return MovingRod(self.length).position_error(t, q)

    def velocity_error(self, t, q, v):
        right = MovingRod(self.length).velocity_error(t, q, v)
        return -right - 1e-3 if self.what == "velocity error" else right

    def acceleration_rows(self, t, q, v):
        A, b = MovingRod(self.length).acceleration_rows(t, q, v)
        return (2 * A if self.what == "A" else A), (-b if self.what == "b" else b)


@pytest.mark.parametrize("what", ["velocity error", "A", "b", "nothing"])
def test_rows_that_are_not_the_rates_of_their_errors_are_told(what):
    """At rest too, where a b of the wrong sign is nothing: rows are looked at with a velocity that keeps them."""
    rod = _Wrong(jnp.array(1.0), what)
    system = uk.System(jnp.eye(2), jnp.array([0.0, -GRAVITY]), (rod,))
    report = uk.check(system, [0.0, -1.0], [AMPLITUDE * RATE, 0.0])
    right = what == "nothing"
    assert report.ok == right
    assert list(report.unfit) == ([] if right else ["rod"])
    assert right or f"Wrong: of constraint 'rod', its {what} is not " in str(report)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_certificate_and_a_closed_loop_say_so_too(sign):
    """A point on a circle, whose rows have a b of either sign; as a constraint, and as what a motor follows."""

    class Circle(uk.AbstractConstraint):
        name: str = eqx.field(static=True, default="circle")

        def position_error(self, t, q):
            return (q @ q - 1) / 2

        def acceleration_rows(self, t, q, v):
            return q[None], -sign * (v @ v)[None]

    free = uk.System(jnp.eye(2), jnp.zeros(2))
    run = uk.simulate(uk.System(jnp.eye(2), jnp.zeros(2), (Circle(),)), [1.0, 0.0], [0.0, 1.0], t1=0.1, ts=3)
    certificate = run.certify(directions=0)
    assert certificate.checks["rows are the rates of their errors"] == (sign == 1)
    assert certificate.ok == (sign == 1)
    servoed = uk.with_servo(free, np.eye(2), Circle(), stabilizer=uk.Baumgarte(2.0, 1.0))
    assert list(uk.check(servoed, [1.0, 0.0], [0.0, 1.0]).unfit) == ([] if sign == 1 else ["circle"])


def test_errors_without_their_rows():
    """Of each kind beside closed forms; zero where a kind has none."""
    constraints = [
        uk.Holonomic(lambda t, q: q @ q - t),
        uk.Nonholonomic(lambda t, q, v: v[0] - q[1] * v[1]),
        uk.AccelerationConstraint(lambda t, q, v: (jnp.ones((2, 2)), v)),
    ]
    system = uk.System(jnp.eye(2), jnp.zeros(2), constraints)
    t, q, v = jnp.asarray(0.3), jnp.array([0.5, -0.7]), jnp.array([1.1, 0.4])
    phi, psi = constraint_errors(system, t, q, v)
    np.testing.assert_allclose(phi, [0.74 - 0.3, 0, 0, 0], rtol=1e-14)
    np.testing.assert_allclose(psi, [2 * (0.55 - 0.28) - 1, 1.1 + 0.28, 0, 0], rtol=1e-14)
