"""Tuning of gains against what does not use it: scalar error equations by the same Runge-Kutta method in numpy, SciPy."""

import types

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import oracles
import pytest
import scipy.optimize

import ukjax as uk
from ukjax._tune import _checkpoint, _figure, _objective, _tune
from ukjax._tune._gains import GainSpace
from ukjax._tune._loss import Violation

GAINS = uk.Baumgarte(0.5, 200.0)
FIXED = {"dt0": 0.01, "stepsize_controller": dfx.ConstantStepSize()}
STEPS = FIXED | {"t1": 1.0}
PHI, PSI = np.array([0.02, -0.01]), np.array([0.0, 0.3])


class Rows(eqx.Module):
    """phi = q - (0, 0.1 t): with M = 1 and no force each error obeys e'' + alpha e' + beta e = 0 exactly."""

    def __call__(self, t, q):
        return q - jnp.stack([jnp.zeros_like(t), 0.1 * t])


def linear(phi=PHI, psi=PSI, **fields):
    system = uk.System(jnp.eye(2), jnp.zeros(2), (uk.Holonomic(Rows(), name="follow"),))
    return uk.Problem(system, jnp.asarray(phi), jnp.asarray(psi) + jnp.array([0.0, 0.1]), 0.0, 1.0, **fields)


def oracle(gains, phi=PHI, psi=PSI, steps=100, rows=False):
    """The mean square of the errors of `linear`."""
    found = oracles.linear_error_loss(gains[0], gains[1], phi, psi, 0.01, steps, dfx.Tsit5().tableau)
    return found if rows else found.sum(axis=-1)


@pytest.fixture(scope="module")
def tuned():
    return uk.tune(linear(), GAINS, **STEPS)


@pytest.fixture(scope="module")
def grid():
    return np.geomspace(1e-1, 1e4, 60)


def test_loss_is_that_of_the_error_equation(tuned, grid):
    """On the whole grid, where runs are stable; elsewhere both are huge."""
    first, second, losses = tuned.landscape(60, 1e-1, 1e4)
    np.testing.assert_allclose(first, grid, rtol=1e-12)
    expected = oracle(np.meshgrid(first, second, indexing="ij"))
    stable = expected < 1.0
    assert 0.5 < stable.mean() < 0.9
    np.testing.assert_allclose(losses[stable], expected[stable], rtol=1e-7)
    assert losses[~stable].min() >= 1.0 - 1e-7


def test_tuned_gains_are_the_best(tuned, grid):
    best = np.min(oracle(np.meshgrid(grid, grid, indexing="ij")))
    assert oracle((tuned.alpha, tuned.beta)) == pytest.approx(tuned.loss, rel=1e-9)
    assert tuned.loss < 1.02 * best
    assert tuned.loss < oracle((0.5, 200.0)) / 20
    assert tuned.stopped == "converged"


def test_history(tuned):
    history, summary = tuned.history, tuned.summary()
    assert history.gains[0].tolist() == pytest.approx([0.5, 200.0])
    assert history.loss[0] == pytest.approx(oracle((0.5, 200.0)), rel=1e-10)
    for gains, loss in zip(history.gains, history.loss, strict=True):
        assert loss == pytest.approx(oracle(gains), rel=1e-8)
    assert set(history.evaluations) == {100 * 6 + 1}
    assert tuned.loss == history.loss.min() == summary["loss"]
    assert (summary["evaluations"], summary["evaluations_before"]) == (601, 601)
    assert summary["iterations"] == len(history.loss) - 1 <= 40
    assert tuned.names == ("alpha", "beta")
    assert summary["gains"] == {"alpha": pytest.approx(tuned.alpha), "beta": pytest.approx(tuned.beta)}
    np.testing.assert_allclose([tuned.gains.alpha, tuned.gains.beta], tuned.values, rtol=1e-12)


@pytest.mark.parametrize("forward", [True, False])
def test_gradient(tuned, forward):
    """Central differences of the numpy loss, in forward and in reverse mode."""
    space = GainSpace(uk.Baumgarte(20.0, 900.0), "plain", 2)
    objective = eqx.tree_at(lambda o: o.space, tuned._objective, space)
    x = np.asarray(space.start)
    value, gradient, _ = _objective.loss_and_gradient(objective, space.start, forward)
    log = lambda x: np.log(oracle((np.exp(x[:2]), np.exp(x[2:]))))
    assert float(value) == pytest.approx(log(x), rel=1e-9)
    np.testing.assert_allclose(gradient, scipy.optimize.approx_fprime(x, log, 1e-7), atol=2e-6)


def test_gains_of_every_row(tuned):
    """Each row's best, by SciPy; together not worse than gains they share."""
    rows = uk.tune(linear(), GAINS, per_row=True, **STEPS)
    assert rows.names == ("alpha[0]", "alpha[1]", "beta[0]", "beta[1]")
    assert rows.loss <= tuned.loss * (1 + 1e-3)
    assert oracle((rows.alpha, rows.beta)) == pytest.approx(rows.loss, rel=1e-9)
    best = 0.0
    for i in range(2):
        of_row = lambda x, i=i: float(np.log(oracle(np.exp(x), PHI[[i]], PSI[[i]])))
        starts = [np.log([a, b]) for a in (30.0, 150.0) for b in (3e3, 3e4)]
        found = [scipy.optimize.minimize(of_row, x, method="Nelder-Mead").fun for x in starts]
        best += np.exp(min(found))
    assert rows.loss < 1.02 * best


@pytest.mark.usefixtures("optimized")
@pytest.mark.slow
def test_squared_convention(tuned):
    """psi' + 2 alpha psi + beta^2 phi: the same optimum, written otherwise."""
    found = uk.tune(linear(), uk.Baumgarte.squared(0.25, 200.0**0.5), convention="squared", **STEPS)
    assert found.history.gains[0] == pytest.approx([0.25, 200.0**0.5])
    assert found.history.loss[0] == pytest.approx(tuned.history.loss[0], rel=1e-12)
    assert found.loss == pytest.approx(tuned.loss, rel=1e-2)
    np.testing.assert_allclose([2 * found.alpha, found.beta**2], [found.gains.alpha, found.gains.beta])
    assert oracle((2 * found.alpha, found.beta**2)) == pytest.approx(found.loss, rel=1e-9)


def test_from_beyond_stability():
    """The run with the gains given overflows; a large step of Adam over the edge is taken back."""
    start = uk.Baumgarte(1e-3, 1e8)
    with pytest.raises(uk.InputError, match="not finite at the given gains"):
        uk.tune(linear(), start, starts=0, **STEPS)
    found = uk.tune(linear(), start, optimizer=optax.adam(1.5), iterations=25, **STEPS)
    assert found.history.loss[0] == np.inf
    assert np.isfinite(found.history.loss[1:]).all()
    assert np.all(found.history.loss[2:] <= 2.001 * found.history.loss[1:-1])
    assert found.loss < 1.1 * oracle((280.0, 78000.0))


# --- Several starts, several problems


@pytest.mark.usefixtures("optimized")
@pytest.mark.slow
def test_robust():
    """A batch of initial violations, and a list of problems: mean and worst of the losses of each alone."""
    starts = np.array([[0.02, -0.01], [0.0, 0.05], [0.3, 0.1]])
    losses = [oracle((20.0, 400.0), phi=phi) for phi in starts]
    options = {"starts": 0, "iterations": 0, **STEPS}
    gains, problem = uk.Baumgarte(20.0, 400.0), linear()
    together = uk.tune(problem, gains, q0=jnp.asarray(starts), **options)
    assert together.loss == pytest.approx(np.mean(losses), rel=1e-9)
    assert together.history.evaluations[0] == 3 * 601
    problems = [linear(phi) for phi in starts]
    assert uk.tune(problems, gains, **options).loss == pytest.approx(together.loss, rel=1e-12)
    worst = uk.tune(problems, gains, aggregate="worst", **options)
    assert worst.loss == pytest.approx(max(losses), rel=1e-9)


def test_problems_of_other_structure_are_refused():
    with pytest.raises(uk.InputError, match="problem 1 has another structure than problem 0"):
        uk.tune([linear(), uk.models.pendulum()], GAINS, **STEPS)


# --- Losses


def test_violation_loss_is_the_weighted_mean():
    random = np.random.default_rng(0)
    t, phi, psi = np.linspace(0, 1, 11), random.normal(size=(11, 3)), random.normal(size=(11, 3))
    run = Violation(*map(jnp.asarray, (t, phi, psi)))
    weights = np.array([1.0, 2.0, 0.0])
    loss = uk.ViolationLoss(3.0, 0.5, window=(0.25, 0.75), row_weights=weights)
    kept = slice(3, 8)
    expected = np.mean((3.0 * phi[kept] ** 2 + 0.5 * psi[kept] ** 2) @ weights)
    assert float(loss(run)) == pytest.approx(expected, rel=1e-12)
    assert float(uk.ViolationLoss()(run)) == pytest.approx(np.mean((phi**2).sum(axis=1)), rel=1e-12)


@pytest.mark.usefixtures("optimized")
@pytest.mark.slow
def test_a_loss_of_the_whole_trajectory():
    """Position errors plus a price for forces: against the same runs, one by one, by `simulate`."""
    price = lambda run: jnp.mean(jnp.sum(run.position_error**2 + 1e-9 * run.constraint_force**2, axis=1))
    options = FIXED | {"solver": dfx.Heun(), "dt0": 0.02, "t1": 0.5}
    found = uk.tune(linear(), GAINS, price, ts=26, starts=0, iterations=6, **options)
    for gains, loss in zip(found.history.gains, found.history.loss, strict=True):
        run = uk.simulate(linear(), ts=26, stabilizer=uk.Baumgarte(*gains), **options)
        assert price(run) == pytest.approx(
            loss, rel=0.1
        )  # a run outside jit keeps its end once, inside twice
    assert found.loss < 0.5 * found.history.loss[0]


def test_dt0_is_the_first_step():
    """As many steps as the same run by `simulate` takes; without a controller all of dt0, with a warning."""
    options = {"dt0": 0.01, "t1": 0.3, "ts": [0.3]}
    search = {"loss": lambda run: jnp.asarray(run.stats["num_steps"], float), "starts": 0, "iterations": 0}
    for controller in (dfx.ConstantStepSize(), dfx.PIDController(rtol=1e-6, atol=1e-6)):
        run = uk.simulate(
            linear(), solver=dfx.Tsit5(), stabilizer=GAINS, stepsize_controller=controller, **options
        )
        found = uk.tune(linear(), GAINS, stepsize_controller=controller, **options, **search)
        assert round(found.loss) == run.stats["num_steps"]
    with pytest.warns(FutureWarning, match="dt0 is the first step, as in simulate, and Tsit5 would adapt"):
        assert round(uk.tune(linear(), GAINS, **options, **search).loss) == 30


@pytest.mark.usefixtures("optimized")
@pytest.mark.slow
def test_adaptive_steps_keep_to_a_budget():
    """Without bound the gains would grow; a larger budget buys a smaller error."""
    errors, evaluations = [], []
    for budget in (1000.0, 4000.0):
        loss = uk.ViolationLoss(budget=budget)
        found = uk.tune(linear(), GAINS, loss, t1=1.0, rtol=1e-6, atol=1e-8, starts=16)
        assert found.history.evaluations.min() > 0
        evaluations.append(found.summary()["evaluations"])
        factor = 1 + (evaluations[-1] / budget) ** 2
        errors.append(found.loss / factor)
        exact = oracles.exact_error_loss(found.alpha, found.beta, PHI, PSI, np.linspace(0, 1, 201))
        assert errors[-1] == pytest.approx(exact.sum(), rel=0.02)
    assert evaluations[0] < evaluations[1]
    assert evaluations[0] < 2 * 1000.0
    assert evaluations[1] < 2 * 4000.0
    assert errors[1] < 0.8 * errors[0]


# --- Gains of other things


def test_servo_gains():
    """Two masses with a spring (Liu 2015, section IV) started 0.1 m off their servo row: its error obeys the same
    linear equation, since the input realizes the row."""
    apart = uk.Holonomic(lambda t, q: q[1] - q[0] - 1.0, name="distance")

    def driven(gains):
        problem = uk.models.two_mass_spring(x2=0.9)
        return uk.with_servo(problem, jnp.array([[1.0], [0.0]]), apart, stabilizer=gains)

    found = uk.tune(driven, GAINS, **STEPS)
    expected = lambda gains: oracle(gains, np.array([-0.1]), np.array([0.0]))
    assert found.history.loss[0] == pytest.approx(expected((0.5, 200.0)), rel=1e-6)
    assert found.loss == pytest.approx(expected((found.alpha, found.beta)), rel=1e-6)
    assert found.loss < found.history.loss[0] / 20


@pytest.mark.usefixtures("optimized")
@pytest.mark.slow
def test_gains_in_a_pytree_of_the_users_own():
    """Critical damping alone, one number: beta = alpha^2 / 4."""

    def damped(gains):
        return linear(), uk.Baumgarte(gains["rate"], gains["rate"] ** 2 / 4)

    found = uk.tune(damped, {"rate": 10.0}, **STEPS)
    assert found.names == ("rate",)
    log = lambda x: float(np.log(oracle((np.exp(x), np.exp(x) ** 2 / 4))))
    best = scipy.optimize.minimize_scalar(log, bounds=np.log([1.0, 500.0]), method="bounded")
    assert np.log(found.loss) < best.fun + 0.02
    with pytest.raises(uk.InputError, match="not Baumgarte"):
        _ = found.alpha


# --- Interrupted and resumed


def test_resumed_search_is_the_uninterrupted_one(tmp_path, monkeypatch):
    whole = uk.tune(linear(), GAINS, iterations=8, tolerance=1e-9, **STEPS)
    path, written = tmp_path / "search.npz", []

    def interrupting(*args):
        _checkpoint.save(*args)
        written.append(args)
        if len(written) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(_tune, "save", interrupting)
    options = {"iterations": 8, "tolerance": 1e-9, "checkpoint": path, **STEPS}
    stopped = uk.tune(linear(), GAINS, **options)
    assert stopped.stopped == "interrupted"
    assert stopped.loss == stopped.history.loss.min()
    assert len(stopped.history.loss) < len(whole.history.loss)
    monkeypatch.undo()
    resumed = uk.tune(linear(), GAINS, **options)
    for name, expected in whole.history._asdict().items():
        np.testing.assert_array_equal(getattr(resumed.history, name), expected)
    np.testing.assert_array_equal(resumed.values, whole.values)
    assert (resumed.loss, resumed.stopped) == (whole.loss, whole.stopped)
    assert [x.name for x in tmp_path.iterdir()] == ["search.npz"]
    for other, more in ((linear(2 * PHI), {}), (linear(), {"optimizer": optax.adam(0.1)})):
        with pytest.raises(uk.InputError, match="checkpoint of another problem, loss or optimizer"):
            uk.tune(other, GAINS, **(options | more))
    path.write_bytes(b"nothing")
    with pytest.raises(uk.InputError, match="was not written by ukjax, or is damaged"):
        uk.tune(linear(), GAINS, **options)


def pushed(force):
    system = uk.System(jnp.eye(2), force, (uk.Holonomic(Rows(), name="follow"),))
    return uk.Problem(system, jnp.asarray(PHI), jnp.asarray(PSI) + jnp.array([0.0, 0.1]), 0.0, 1.0)


@pytest.mark.slow
def test_checkpoints_of_other_functions_are_refused(tmp_path):
    """What differs has no name and no arrays of its own: a force, a loss, an optimizer with as much memory."""
    path, short = tmp_path / "search.npz", FIXED | {"dt0": 0.05, "t1": 0.2, "starts": 0, "iterations": 1}
    given = {
        "system": pushed(lambda t, q, v: -q),
        "gains": GAINS,
        "loss": lambda run: jnp.mean(run.position_error[0] ** 2) + jnp.mean(run.q[0] ** 2) + 1.0,
        "optimizer": optax.adam(0.1),
        "ts": 3,
    }
    first = uk.tune(**given, checkpoint=path, **short)
    again = uk.tune(**given, checkpoint=path, **short)
    np.testing.assert_array_equal(again.history.loss, first.history.loss)
    for other in (
        {"system": pushed(lambda t, q, v: -2 * q)},
        {"loss": lambda run: jnp.mean(run.position_error[0] ** 2) + 2.0},
        {"optimizer": optax.adam(0.2)},
        {"gains": uk.Baumgarte(0.5, 100.0)},
    ):
        with pytest.raises(uk.InputError, match="checkpoint of another problem, loss or optimizer"):
            uk.tune(**(given | other), checkpoint=path, **short)


# --- Figures


def test_figures(tuned, tmp_path):
    pytest.importorskip("matplotlib")
    tuned.plot(tmp_path / "landscape.png", resolution=8)
    assert (tmp_path / "landscape.png").stat().st_size > 10_000
    alone = uk.tune(linear(), uk.Baumgarte(jnp.full(2, 0.5), 200.0), iterations=1, starts=0, **STEPS)
    assert len(alone.plot().axes) == 2
    with pytest.raises(uk.InputError, match="drawn over two gains; these are 3"):
        alone.landscape()


# --- Bad input

BAD = {
    "gain is zero": ({"gains": uk.Baumgarte(0.0, 1.0)}, "the gain alpha must be positive to be tuned"),
    "projection": ({"gains": uk.Projection()}, "Projection has no gains to tune"),
    "no stabilizer": ({"gains": 3.0}, "gains must be something like Baumgarte"),
    "optimizer": ({"optimizer": "adam"}, "optimizer must be one of Optax's"),
    "line search": ({"optimizer": optax.lbfgs(), "starts": 0}, "give for instance optax.lbfgs"),
    "window": ({"loss": uk.ViolationLoss(window=(2.0, 3.0))}, "lies outside the run"),
    "loss": ({"loss": 1.0}, "loss must be ViolationLoss"),
    "row weights": ({"loss": uk.ViolationLoss(row_weights=np.ones(3))}, "give one for each of 2 rows"),
    "convention": ({"convention": "cubed"}, "convention must be 'plain' or 'squared'"),
    "aggregate": ({"aggregate": "median"}, "aggregate must be 'mean' or 'worst'"),
    "checkpoint": ({"checkpoint": "search.pkl"}, "a checkpoint is an .npz file"),
    "starts": ({"starts": -1}, "starts must be an integer"),
    "tolerance": ({"tolerance": 2.0}, "tolerance must lie between 0 and 1"),
    "step": ({"dt0": -0.1}, "dt0 must be a positive time"),
    "batch": ({"q0": jnp.ones((3, 2)), "v0": jnp.ones((2, 2))}, "give as many of both"),
    "gains per row": (
        {"gains": uk.Baumgarte(np.ones(3), 1.0), "starts": 0},
        "one value for each of the 2 rows",
    ),
    "no weight": (
        {"loss": uk.ViolationLoss(row_weights=np.zeros(2)), "starts": 0},
        "the loss must be positive",
    ),
}


@pytest.mark.parametrize(("arguments", "words"), BAD.values(), ids=BAD)
def test_bad_input(arguments, words):
    with pytest.raises(uk.InputError, match=words) as raised:
        uk.tune(**({"system": linear(), "gains": GAINS, "iterations": 1} | STEPS | arguments))
    assert "\n" not in str(raised.value)


def test_other_bad_input():
    with pytest.raises(uk.InputError, match="no constraints that could be violated"):
        uk.tune(uk.models.two_mass_spring(), GAINS, **STEPS)
    with pytest.raises(uk.InputError, match="a function that returns one of these"):
        uk.tune(lambda gains: 3.0, GAINS, **STEPS)
    for start in ({}, {"q0": jnp.zeros(2), "v0": jnp.zeros(2)}):
        with pytest.raises(
            uk.InputError, match=r"return a Problem, such as uk.Problem\(system, q0, v0, t0, t1\)"
        ):
            uk.tune(lambda gains: linear().system, GAINS, **(STEPS | start))
    with pytest.raises(uk.InputError, match="tune needs numbers"):
        jax.grad(lambda a: uk.tune(linear(), uk.Baumgarte(a, 1.0), **STEPS).loss)(1.0)
    with pytest.raises(uk.InputError, match="one of the weights must be positive"):
        uk.ViolationLoss(0.0)
    with pytest.raises(uk.InputError, match="window must be a start and a later end"):
        uk.ViolationLoss(window=(1.0, 0.5))


# --- The robots


@pytest.mark.usefixtures("optimized")
@pytest.mark.slow
@pytest.mark.parametrize("solver", [dfx.Tsit5(), dfx.Bosh3()], ids=["Tsit5", "Bosh3"])
def test_scara(solver, grid):
    """Its four rows on four joints leave scalar error equations, up to the error of the method."""
    problem = uk.models.scara()
    rows = uk.constraint_rows(problem.system, 0.0, problem.q0, problem.v0)
    errors = np.asarray(rows.position_error), np.asarray(rows.velocity_error)
    expected = lambda gains: oracles.linear_error_loss(*gains, *errors, 0.01, 500, solver.tableau).sum(
        axis=-1
    )
    found = uk.tune(problem, GAINS, solver=solver, t1=5.0, **FIXED)
    best = np.min(expected(np.meshgrid(grid, grid, indexing="ij")))
    assert found.history.loss[0] == pytest.approx(expected((0.5, 200.0)), rel=1e-3)
    assert found.loss == pytest.approx(expected((found.alpha, found.beta)), rel=1e-2)
    assert found.loss < 1.02 * best
    assert found.loss < found.history.loss[0] / 20


class Linkage:
    """The parallelogram of models.md in numpy, for many gains at once: states (..., 12), pins by hand."""

    weights = np.array([1.0, 1.0, 0.1] * 3 + [2.0, 2.0, 0.2])
    force = np.array([0.0, -9.81, 0.0] * 3 + [0.0, -19.62, 0.0])
    pins = [(i, -0.5, None, (float(i), 0.0)) for i in range(3)] + [(i, 0.5, i - 1.0, None) for i in range(3)]

    def rows(self, q, v):
        """phi, psi, A and b, row by row: body i at distance s along its x axis against the ground or the coupler."""
        phi, A, b = np.zeros(q.shape), np.zeros((*q.shape, 12)), np.zeros(q.shape)
        for k, (i, s, on_coupler, ground) in enumerate(self.pins):
            parts = [(i, s, 1.0)] + ([(3, on_coupler, -1.0)] if ground is None else [])
            for body, at, sign in parts:
                angle, rate = q[..., 3 * body + 2], v[..., 3 * body + 2]
                for axis, (f, df) in enumerate(((np.cos, lambda x: -np.sin(x)), (np.sin, np.cos))):
                    row = 2 * k + axis
                    phi[..., row] += sign * (q[..., 3 * body + axis] + at * f(angle))
                    A[..., row, 3 * body + axis] += sign
                    A[..., row, 3 * body + 2] += sign * at * df(angle)
                    b[..., row] += sign * at * f(angle) * rate**2
            if ground is not None:
                phi[..., 2 * k : 2 * k + 2] -= ground
        return phi, np.einsum("...ij,...j->...i", A, v), A, b

    def rate(self, y, alpha, beta):
        q, v = y[..., :12], y[..., 12:]
        phi, psi, A, b = self.rows(q, v)
        root, free = self.weights**-0.5, self.force / self.weights
        wanted = b - alpha[:, None] * psi - beta[:, None] * phi - np.einsum("...ij,j->...i", A, free)
        change = np.einsum("...ij,...j->...i", np.linalg.pinv(np.nan_to_num(A * root), rcond=1e-4), wanted)
        return np.concatenate([v, free + root * change], axis=-1)

    def loss(self, alpha, beta, q, v, dt, steps):
        tableau = dfx.Tsit5().tableau
        y = np.broadcast_to(np.concatenate([q, v]), (alpha.size, 24))
        total = np.sum(self.rows(y[:, :12], y[:, 12:])[0] ** 2, axis=-1)
        for _ in range(steps):
            k = [self.rate(y, alpha, beta)]
            for row in tableau.a_lower:
                k.append(self.rate(y + dt * sum(a * x for a, x in zip(row, k, strict=True)), alpha, beta))
            y = y + dt * sum(w * x for w, x in zip(tableau.b_sol, k, strict=True))
            total = total + np.sum(self.rows(y[:, :12], y[:, 12:])[0] ** 2, axis=-1)
        return total / (steps + 1)


@pytest.mark.usefixtures("optimized")
@pytest.mark.slow
def test_parallelogram():
    """Overconstrained, from rest and consistent, up to shortly before its flat position, against numpy and its SVD."""
    problem, steps = uk.models.parallelogram(), 40
    q, v = np.asarray(problem.q0), np.asarray(problem.v0)
    loss = lambda alpha, beta: Linkage().loss(np.ravel(alpha), np.ravel(beta), q, v, 0.01, steps)
    found = uk.tune(problem, GAINS, t1=0.01 * steps, **FIXED)
    with np.errstate(all="ignore"):
        grid = loss(*np.meshgrid(*2 * [np.geomspace(1e-1, 1e4, 24)]))
    assert found.loss == pytest.approx(loss(found.alpha, found.beta)[0], rel=1e-3)
    assert found.history.loss[0] == pytest.approx(loss(0.5, 200.0)[0], rel=1e-3)
    assert found.loss < 1.02 * np.nanmin(grid)
    rows = uk.tune(problem, GAINS, t1=0.01 * steps, per_row=True, **FIXED)
    assert rows.loss < 1.001 * found.loss


def test_a_loss_of_the_users_at_fixed_steps_sees_only_times_reached():
    problem = uk.models.pendulum()
    loss = lambda run: (
        jnp.mean(run.position_error**2) + 0.0 * jnp.sum(run.t)
    )  # not a number for any that is infinite
    options = FIXED | {"q0": 1.01 * problem.q0, "t1": 0.5, "starts": 0, "iterations": 1}
    found = uk.tune(problem, uk.Baumgarte(0.5, 200.0), loss, **options)
    assert found.loss < found.history.loss[0] < np.inf


def test_a_search_past_runs_that_fail_is_drawn(tmp_path):
    """A loss of 1e283 on a logarithmic axis would leave matplotlib without ticks."""
    loss, gains = np.array([1e283, 1e-5, np.inf, 1e-9]), np.array([[1.0, 2], [30, 40], [9, 9], [5, 6]])
    history = types.SimpleNamespace(loss=loss, gains=gains)
    figure = _figure.plot("a search", ("alpha", "beta"), history, None, tmp_path / "search.png")
    axes = figure.subfigs[0].axes[0]
    assert axes.get_ylim()[1] < 1
    assert "blank" in axes.get_title(loc="left")
    assert (tmp_path / "search.png").stat().st_size > 1e4
