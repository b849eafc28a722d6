"""`identify`: estimates and their errors beside closed forms and SciPy, and what it refuses."""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import sparse
from scipy.linalg import null_space
from scipy.optimize import curve_fit, least_squares

import ukjax as uk
import ukjax.mechanisms as um
from ukjax._tune._identify._blocks import (
    Blocks,
    Layout,
    block_product,
    find_blocks,
    solve_blocks,
    sparse_parts,
    sum_squares,
)
from ukjax._tune._identify._space import make_space
from ukjax._tune._identify._statistics import directions

TIMES = np.linspace(0.1, 4.0, 40)
TRUE = {"stiffness": 5.0, "damping": 0.3}


def spring(mass=2.0, stiffness=4.0, damping=0.1, start=1.0):
    """A mass on a spring and a damper."""
    force = lambda t, q, v: -stiffness * q - damping * v
    system = uk.System(jnp.reshape(jnp.asarray(mass, float), (1, 1)), force)
    return uk.Problem(
        system, jnp.reshape(jnp.asarray(start, float), 1), jnp.zeros(1), 0.0, 4.0, name="spring"
    )


def swing(t, stiffness, damping, mass=2.0, start=1.0):
    """Where it is, in closed form."""
    decay = damping / (2 * mass)
    rate = np.sqrt(stiffness / mass - decay**2)
    return start * np.exp(-decay * t) * (np.cos(rate * t) + decay / rate * np.sin(rate * t))


def noisy(seed, t=TIMES, **parameters):
    return swing(t, **(TRUE | parameters)) + 0.02 * np.random.default_rng(seed).normal(size=t.size)


GUESS = {"stiffness": 3.0, "damping": 0.1}
POSITIVE = {"stiffness": (0.0, None), "damping": (0.0, None)}


@pytest.fixture(scope="module")
def fitted():
    return uk.identify(spring, uk.Recording(TIMES, noisy(0)), GUESS, bounds=POSITIVE)


def test_estimates_and_covariance_are_those_of_scipy_in_closed_form(fitted) -> None:
    best, covariance = curve_fit(swing, TIMES, noisy(0), [4.0, 0.2])
    errors = np.sqrt(np.diag(covariance))
    assert np.all(np.abs(fitted.values - best) < 0.05 * errors)
    np.testing.assert_allclose(fitted.covariance, covariance, rtol=1e-2)
    np.testing.assert_allclose(fitted.standard_errors, errors, rtol=5e-3)
    off = noisy(0) - swing(TIMES, *best)
    np.testing.assert_allclose(fitted.noise, np.sqrt(off @ off / (TIMES.size - 2)), rtol=1e-3)
    np.testing.assert_allclose(fitted.residuals[0][:, 0], off, atol=1e-3)
    assert fitted.names == ("stiffness", "damping")
    assert fitted.parameters["stiffness"] == fitted.values[0]
    assert np.all((fitted.intervals()[:, 0] < best) & (best < fitted.intervals()[:, 1]))


def test_another_data_set_compiles_nothing(fitted) -> None:
    with jax.log_compiles(False):
        compiled = []
        jax.monitoring.register_event_duration_secs_listener(lambda name, *_, **__: compiled.append(name))
        uk.identify(spring, uk.Recording(TIMES, noisy(1)), GUESS, bounds=POSITIVE)
    assert not [name for name in compiled if "backend_compile" in name]


def test_recordings_of_different_lengths_and_missing_samples() -> None:
    long, short = noisy(1), noisy(2)[:25]
    long[[3, 17]], absent = np.nan, np.isnan(np.where(np.arange(25) == 7, np.nan, short))
    recordings = [
        uk.Recording(TIMES, long, missing="nan", name="long"),
        uk.Recording(TIMES[:25], short, missing=absent, name="short"),
    ]
    found = uk.identify(spring, recordings, GUESS, bounds=POSITIVE)
    t = np.concatenate([TIMES[~np.isnan(long)], TIMES[:25][~absent]])
    y = np.concatenate([long[~np.isnan(long)], short[~absent]])
    best, covariance = curve_fit(swing, t, y, [4.0, 0.2])
    assert np.all(np.abs(found.values - best) < 0.05 * np.sqrt(np.diag(covariance)))
    assert [len(x) for x in found.residuals] == [40, 25]
    assert np.isnan(found.residuals[1][7, 0])
    data = found.to_xarray()
    assert dict(data.sizes) == {
        "parameter": 2, "parameter_": 2, "end": 2, "channel": 1, "recording": 2, "sample": 40
    }  # fmt: skip
    assert int(data.measured.notnull().sum()) == t.size


def test_what_the_data_do_not_tell_is_named_and_a_prior_decides_it() -> None:
    recording, guess = uk.Recording(TIMES, noisy(0)), {"mass": 2.0, **GUESS}
    bounds = {"mass": (0.0, None), **POSITIVE}
    open_ = uk.identify(spring, recording, guess, bounds=bounds)
    assert np.all(np.isinf(open_.standard_errors))
    (together,) = open_.unseen
    assert together == pytest.approx({"mass": 1.0, "stiffness": 1.0, "damping": 1.0}, rel=1e-3)
    assert "no output tells: " in str(open_)
    decided = uk.identify(spring, recording, guess, bounds=bounds, priors={"mass": (2.0, 0.2)})
    assert decided.standard_errors[0] == pytest.approx(0.2, rel=1e-3)
    assert decided.values[0] == pytest.approx(2.0, rel=1e-4)
    assert decided.correlation[0, 1] > 0.9


@pytest.mark.parametrize(
    ("low", "high", "at"),
    [
        ((-np.inf, 0.5), (np.inf, 1.0), {"damping"}),
        ((-np.inf, -np.inf), (4.5, 0.1), {"stiffness", "damping"}),
    ],
)
def test_a_number_that_the_data_want_beyond_its_bound_is_at_it(low, high, at) -> None:
    y, middle = noisy(0), {"stiffness": 4.0, "damping": 0.7 if at == {"damping"} else 0.05}
    bounds = {name: (low[k], high[k]) for k, name in enumerate(middle)}
    found = uk.identify(spring, uk.Recording(TIMES, y), middle, bounds=bounds)
    best = least_squares(
        lambda p: swing(TIMES, *p) - y, list(middle.values()), bounds=(low, high), xtol=1e-12
    )
    np.testing.assert_allclose(found.values, best.x, rtol=1e-4)
    assert set(found.at_bounds) == at
    assert [np.isinf(e) for e in found.standard_errors] == [name in at for name in found.names]
    assert found.unseen == ()
    assert str(found).count("at its bound") == len(at)


def test_offsets_initial_states_and_outputs_by_function() -> None:
    """Two sensors of known noise, one with an offset, beside a linear fit of the same in SciPy."""
    random = np.random.default_rng(3)
    place = 0.4 + swing(TIMES, **TRUE, start=0.8) + 0.02 * random.normal(size=TIMES.size)
    measure = lambda q, a, gain: {"place": q[0], "push": gain * a}
    decay, rate = 0.3 / 4, np.sqrt(2.5 - (0.3 / 4) ** 2)
    speed = -0.8 * np.exp(-decay * TIMES) * 2.5 / rate * np.sin(rate * TIMES)
    acceleration = -(5.0 * swing(TIMES, **TRUE, start=0.8) + 0.3 * speed) / 2.0
    found = uk.identify(
        spring,
        uk.Recording(
            TIMES, {"place": place, "push": 3.0 * acceleration + 0.3 * random.normal(size=40)}, q0=[0.7]
        ),
        {**GUESS, "gain": 2.0},
        measure=measure,
        offsets="place",
        initial="q0",
        noise={"place": 0.02, "push": 0.3},
    )
    shifted = lambda t, k, c, start, offset: offset + swing(t, k, c, start=start)
    best, _ = curve_fit(shifted, TIMES, place, [4.0, 0.2, 1.0, 0.0])
    truth = {"stiffness": 5.0, "damping": 0.3, "gain": 3.0, "offset.place": 0.4, "q0[0]": 0.8}
    assert found.names == tuple(truth)
    assert np.all(np.abs(found.values - list(truth.values())) < 4 * found.standard_errors)
    assert found.offsets["place"] == pytest.approx(best[3], abs=0.02)
    assert float(found.problems[0].q0[0]) == pytest.approx(found.values[-1])


def test_starts_are_eliminated_to_the_same_as_least_squares_over_all_numbers() -> None:
    """Seven recordings with starts of their own and priors, beside SciPy's dense Jacobian of the same."""
    random, starts = np.random.default_rng(7), np.linspace(0.5, 1.5, 7)
    y = np.array([swing(TIMES, **TRUE, start=x) for x in starts]) + 0.02 * random.normal(size=(7, 40))
    recordings = [uk.Recording(TIMES, y[i], q0=[1.0], name=str(i)) for i in range(7)]
    priors = {"stiffness": (5.2, 0.1)} | {f"q0[0] of {i}": (starts[i], 0.01) for i in (1, 4)}
    found = uk.identify(spring, recordings, GUESS, initial="q0", noise=0.02, priors=priors)

    def residuals(x):
        off = [(swing(TIMES, *x[:2], start=x[2 + i]) - y[i]) / 0.02 for i in range(7)]
        known = [(x[0] - 5.2) / 0.1, *((x[2 + i] - starts[i]) / 0.01 for i in (1, 4))]
        return np.concatenate([*off, known])

    best = least_squares(residuals, [4.0, 0.2, *starts], xtol=1e-14, ftol=1e-14)
    covariance = np.linalg.inv(best.jac.T @ best.jac)
    assert found.names == ("stiffness", "damping", *(f"q0[0] of {i}" for i in range(7)))
    assert np.all(np.abs(found.values - best.x) < 0.02 * np.sqrt(np.diag(covariance)))
    np.testing.assert_allclose(found.covariance, covariance, rtol=2e-3, atol=1e-3 * covariance[8, 8])
    np.testing.assert_allclose(found.costs[-1], 2 * best.cost, rtol=1e-4)


def _random_blocks(joined):
    """Derivatives of four runs, of which the last has one number, and three may be pieces of one; with priors."""
    random, f, p, m, size = np.random.default_rng(3), 2, 3, 5, 10
    ends = np.array([0, 1] if joined else [], int)
    index = np.array([[3, 4], [5, 6], [7, 8], [9, size]])
    layout = Layout(index, ends, np.array([4, 0, 2]), np.array([[1], [3], [2], [3], [0]]), p, m)
    jumps = random.normal(size=(ends.size, 2 * f, 2 * f + p))
    jumps[:, f:] = 0.0  # a number is one of coordinates or of velocities
    blocks = Blocks(random.normal(size=(4, m, f + p)), jumps, random.normal(size=(3, f + p)))
    layout, blocks = jax.tree.map(jnp.asarray, (layout, blocks))
    # Those of the number that there is not are zero.
    return layout, find_blocks(lambda z: block_product(blocks, layout, z), layout, size), size


@pytest.mark.parametrize("joined", [False, True], ids=["recordings", "pieces"])
def test_blocks_solve_the_same_as_the_whole_matrix(joined) -> None:
    layout, blocks, size = _random_blocks(joined)
    J = np.asarray(jax.vmap(lambda z: block_product(blocks, layout, z), out_axes=1)(jnp.eye(size)))
    np.testing.assert_allclose(sparse.vstack(sparse_parts(blocks, layout, size)).toarray(), J)
    again = find_blocks(lambda z: jnp.asarray(J) @ z, layout, size)
    np.testing.assert_allclose(block_product(again, layout, jnp.arange(10.0)), J @ np.arange(10.0))
    np.testing.assert_allclose(
        sum_squares(blocks, layout, size), np.sum(np.delete(J, _jump_rows(joined), 0) ** 2, 0)
    )
    random = np.random.default_rng(4)
    r, diagonal, below = random.normal(size=len(J)), random.uniform(0.1, 1.0, size), random.normal(size=size)
    z, fall = solve_blocks(blocks, layout, *map(jnp.asarray, (diagonal, r, below)))
    A, b = np.vstack([J, np.diag(diagonal)]), np.concatenate([r, below])
    best, left, *_ = np.linalg.lstsq(A, b)
    np.testing.assert_allclose(z, best, rtol=1e-10)
    np.testing.assert_allclose(fall, b @ b - left[0], rtol=1e-10)


def _jump_rows(joined):
    return np.arange(20, 28) if joined else np.arange(0)


@pytest.mark.parametrize("joined", [False, True], ids=["recordings", "pieces"])
def test_covariance_by_blocks_is_that_of_the_whole_matrix(joined) -> None:
    """With one parameter that nothing tells; along changes that open no jumps."""
    layout, blocks, size = _random_blocks(joined)
    blocks = jax.tree.map(lambda x: x.at[..., -1].set(0.0), blocks)
    samples, jumps, priors = sparse_parts(blocks, layout, size)
    of = directions(samples, jumps, priors, layout, np.ones(size))
    Z = null_space(jumps.toarray()) if joined else np.eye(size)
    J = np.vstack([samples.toarray(), priors.toarray()]) @ Z
    R, unseen = of.root.toarray(), of.unseen.toarray()
    np.testing.assert_allclose(R @ R.T, Z @ np.linalg.pinv(J.T @ J, rcond=1e-10) @ Z.T, atol=1e-9)
    assert unseen.shape[1] == 1
    np.testing.assert_allclose(np.abs(unseen[:, 0]), np.eye(size)[2], atol=1e-9)


def test_the_best_of_many_first_guesses_is_found() -> None:
    """From a stiffness that is eight times too large the search ends beside the data; others end at the truth."""
    t = np.linspace(0.1, 12.0, 120)
    longer = lambda stiffness, damping: dataclasses.replace(spring(2.0, stiffness, damping), t1=12.0)
    y = swing(t, 5.0, 0.1) + 0.02 * np.random.default_rng(0).normal(size=t.size)
    bounds = {"stiffness": (0.5, 60.0), "damping": (0.0, None)}
    given = longer, uk.Recording(t, y), {"stiffness": 40.0, "damping": 0.1}
    alone = uk.identify(*given, bounds=bounds)
    best = uk.identify(*given, bounds=bounds, starts=16)
    assert alone.noise[0] > 0.5
    assert np.all(np.abs(best.values - [5.0, 0.1]) < 4 * best.standard_errors)
    costs = [x.cost for x in best.starts]
    assert len(costs) == 16
    assert costs == sorted(costs)
    assert sum(x.guess == pytest.approx(given[2]) for x in best.starts) == 1
    assert best.starts[0].parameters["stiffness"] == pytest.approx(best.values[0], rel=1e-4)
    assert "best of 16 first guesses" in str(best)


@pytest.mark.parametrize("loss", ["huber", "cauchy"])
def test_robust_losses_are_not_moved_by_outliers(loss) -> None:
    y = noisy(4)
    y[[5, 20, 33]] += [1.0, -2.0, 0.5]
    found = uk.identify(spring, uk.Recording(TIMES, y), GUESS, bounds=POSITIVE, loss=loss)
    assert np.all(np.abs(found.values - [5.0, 0.3]) < 4 * found.standard_errors)
    assert found.noise[0] < 0.04  # of 0.02 and three outliers; of squares it is 0.4


def test_predictions_have_a_band_that_new_samples_lie_in(fitted) -> None:
    new = uk.Recording(np.linspace(0.05, 6.0, 400), np.zeros(400), q0=[1.5])
    told = fitted.predict(new)
    truth = swing(new.t, **TRUE, start=1.5)[:, None]
    fresh = truth + 0.02 * np.random.default_rng(5).normal(size=truth.shape)
    inside = np.mean((told.low < fresh) & (fresh < told.high))
    assert 0.9 < inside < 0.99
    assert np.all(np.abs(told.y - truth) < 4.5 * told.deviation + 1e-6)
    np.testing.assert_allclose(fitted.predict(0).y, noisy(0)[:, None] - fitted.residuals[0])


def test_a_result_shows_itself(fitted, tmp_path) -> None:
    lines = str(fitted).splitlines()
    assert lines[0].startswith("spring: 2 numbers from 1 recording, 40 samples; converged after ")
    assert lines[1].split() == ["estimate", "standard", "error", "95", "%", "interval"]
    assert lines[2].split()[0] == "stiffness"
    assert "<table" in fitted._repr_html_()
    assert fitted.summary()["estimates"]["damping"] == fitted.values[1]
    fitted.plot(tmp_path / "fit.png")
    assert (tmp_path / "fit.png").stat().st_size > 10_000


# --- Bodies


def _link():
    inertia = np.array([[0.2, 0.01, 0.0], [0.01, 0.15, 0.02], [0.0, 0.02, 0.1]])
    return um.Body("link", 2.0, (0.02, 0.01, -0.4), inertia)


def test_every_vector_is_a_body_that_can_be() -> None:
    """The pseudo-inertia of Wensing, Kim and Slotine (2018) is positive definite, however far a search goes."""
    space = make_space({"link": _link()}, {})
    z = space.joined("z")
    kept = space.values(jnp.asarray(z))["link"]
    np.testing.assert_allclose(kept.inertia, _link().inertia, atol=1e-12)
    np.testing.assert_allclose(kept.centre, _link().centre)
    for seed in range(50):
        body = space.values(jnp.asarray(z + np.random.default_rng(seed).normal(size=z.size)))["link"]
        um.Body("again", body.mass, body.centre, body.inertia)  # which refuses what cannot be
        about = np.asarray(body.centre)
        at_origin = np.asarray(body.inertia) + float(body.mass) * (
            about @ about * np.eye(3) - np.outer(about, about)
        )
        moments = 0.5 * np.trace(at_origin) * np.eye(3) - at_origin
        h = float(body.mass) * about
        pseudo = np.block([[moments, h[:, None]], [h[None], float(body.mass)]])
        assert np.linalg.eigvalsh(pseudo)[0] > 0


@pytest.mark.slow
@pytest.mark.parametrize("shooting", [None, 0.5], ids=["whole", "pieces"])
def test_a_body_on_a_ball_joint_up_to_what_no_motion_tells(shooting) -> None:
    """Its motion depends on the first moment and the inertia about the pivot, up to a common factor: on eight of ten
    numbers (Khalil and Dombre, base parameters)."""

    def pendulum(link):
        hip = um.Spherical("hip", "ground", "link", (0.0, 0.0, 0.0))
        return um.problem(um.tree([link], [hip], [um.Gravity()]), t1=2.0)

    def told(body):
        c, m = np.asarray(body.centre), float(body.mass)
        about_pivot = np.asarray(body.inertia) + m * (c @ c * np.eye(3) - np.outer(c, c))
        return np.append(about_pivot[np.triu_indices(3)], m * c) / np.trace(about_pivot)

    true, random, recordings = pendulum(_link()), np.random.default_rng(0), []
    for _ in range(3):
        v0 = 3.0 * random.normal(size=3)
        run = uk.simulate(true, v0=v0, ts=np.linspace(0.02, 2.0, 100))
        recordings.append(uk.Recording(run.t, np.asarray(run.q) + 1e-3 * random.normal(size=(100, 4)), v0=v0))
    guess = um.Body("link", 1.5, (0.0, 0.0, -0.3), (0.1, 0.1, 0.1))
    found = uk.identify(pendulum, recordings, {"link": guess}, noise=1e-3, shooting=shooting)
    assert 0.9 < found.misfit < 1.1
    assert len(found.unseen) == 2
    np.testing.assert_allclose(told(found.parameters["link"]), told(_link()), atol=1e-3)
    um.Body("again", *(getattr(found.parameters["link"], x) for x in ("mass", "centre", "inertia")))


# --- Mechanisms, contacts and long runs


@pytest.fixture
def models(monkeypatch):
    """Where the mechanisms of the intervals' coverage stand."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    import interval_coverage

    return interval_coverage


@pytest.mark.slow
def test_a_four_bar_by_encoders(models) -> None:
    encoders = lambda q: {"crank": q[2], "rocker": q[8]}
    run = uk.simulate(models.four_bar(0.15, 1.3), ts=np.linspace(0.02, 1.0, 50))
    random = np.random.default_rng(0)
    y = {
        name: np.asarray(run.q[:, i]) + 1e-3 * random.normal(size=50)
        for name, i in (("crank", 2), ("rocker", 8))
    }
    found = uk.identify(
        models.four_bar, uk.Recording(run.t, y), {"damping": 0.05, "mass": 1.0}, measure=encoders,
        bounds={"damping": (0.0, None), "mass": (0.0, None)},
    )  # fmt: skip
    assert np.all(np.abs(found.values - [0.15, 1.3]) < 4 * found.standard_errors)
    assert np.all(np.abs(found.noise - 1e-3) < 3e-4)
    assert found.channels == ("crank", "rocker")


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"contact": "events"},
        {"contact": "differentiated steps", "dt0": 1e-3},
        {"contact": "steps", "dt0": 1e-3},
    ],
    ids=["events", "differentiated steps", "steps"],
)
def test_restitution_and_friction_through_impacts(options, models) -> None:
    """A ball with backspin, which slides in both impacts."""
    g, fall = 9.81, np.sqrt(2 * 0.9 / 9.81)
    t = np.linspace(0.02, 1.1, 55)
    e, mu = 0.65, 0.2
    after, speed = t - fall, e * g * fall  # in closed form, up to the second impact at 1 s
    again = after - 2 * speed / g
    up = lambda s, v: v * s - g * s**2 / 2
    height = 0.1 + np.where(
        after < 0, 0.9 - g * t**2 / 2, np.where(again < 0, up(after, speed), up(again, e * speed))
    )
    kick = mu * (1 + e) * g * fall
    x = 1.5 * t + np.where(after > 0, -kick * after, 0.0) + np.where(again > 0, -e * kick * again, 0.0)
    sign = np.sign(uk.simulate(models.ball(e, mu), t1=0.6, ts=[0.6]).v[0, 0] - 1.5)
    x = 1.5 * t - sign * (x - 1.5 * t)
    random = np.random.default_rng(0)
    y = np.stack([x, height], axis=1) + 2e-3 * random.normal(size=(55, 2))
    found = uk.identify(
        models.ball, uk.Recording(t, y), {"restitution": 0.72, "friction": 0.15}, measure=models.place,
        bounds={"restitution": (0.0, 1.0), "friction": (0.0, None)}, **options,
    )  # fmt: skip
    later = found.predict(
        uk.Recording([0.2, 0.4], np.zeros((2, 2)))
    )  # over another span than that of the samples
    np.testing.assert_allclose(later.y[:, 1], 1.0 - g * np.array([0.2, 0.4]) ** 2 / 2, atol=0.01)
    within = 4 * found.standard_errors + (2e-3 if "dt0" in options else 0.0)  # steps are of first order
    assert np.all(np.abs(found.values - [e, mu]) < within)
    assert found.standard_errors.max() < 5e-3


@pytest.mark.slow
def test_pieces_of_a_chaotic_run_find_the_same_from_both_sides() -> None:
    """A double pendulum for 12 s; runs that are not cut end in minima beside the truth, which ones rounding decides."""
    double = lambda gravity: uk.models.n_pendulum(n=2, gravity=gravity, angle=2.5)
    run = uk.simulate(double(9.81), ts=np.linspace(0.04, 12.0, 300), t1=12.0)
    y = np.asarray(run.q) + 5e-3 * np.random.default_rng(0).normal(size=run.q.shape)
    found = [
        uk.identify(
            double, uk.Recording(run.t, y), {"gravity": guess}, shooting=0.6, bounds={"gravity": (0.0, None)}
        )
        for guess in (8.0, 12.0)
    ]
    for x in found:
        assert abs(x.values[0] - 9.81) < 4 * x.standard_errors[0] < 1e-3
        assert np.all(np.abs(x.noise - 5e-3) < 5e-4)
    assert abs(found[0].values[0] - found[1].values[0]) < 0.1 * found[0].standard_errors[0]


@pytest.mark.slow
def test_numbers_of_a_robot_from_a_file() -> None:
    gripper = uk.load(
        "experiments/robots/robotiq_2f85.xml", ctrl=lambda t: jnp.where(t < 0.2, jnp.array([0.06]), 0.0)
    )
    changed = gripper.with_parameters(armature={"left_driver_joint": 0.0075}).problem
    run = uk.simulate(changed, t1=0.4, ts=np.linspace(0.0, 0.4, 41))
    pad = np.asarray(jax.vmap(lambda q: changed.points(0.0, q)["left_pad"][::2])(run.q))
    y = pad + 2e-4 * np.random.default_rng(0).normal(size=pad.shape)
    found = uk.identify(
        gripper, uk.Recording(run.t, y), {"armature.left_driver_joint": 0.005},
        measure=lambda points: points["left_pad"][::2], bounds={"armature.left_driver_joint": (0.0, None)},
    )  # fmt: skip
    assert abs(found.values[0] - 0.0075) < 4 * found.standard_errors[0] < 2e-3


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["squares", "huber", "cauchy"])
def test_intervals_cover_the_truth_as_often_as_they_say(loss) -> None:
    """Of 80 data sets: a binomial of 95 % is within 70 and 80 in 99.7 % of cases."""
    inside = np.zeros(2)
    for seed in range(80):
        found = uk.identify(spring, uk.Recording(TIMES, noisy(seed)), GUESS, bounds=POSITIVE, loss=loss)
        low, high = found.intervals().T
        inside += (low < [5.0, 0.3]) & (high > [5.0, 0.3])
    assert np.all((inside >= 70) & (inside <= 80))


# --- What is refused, in a sentence, before anything runs

Y = np.zeros(3)


@pytest.mark.parametrize(
    ("t", "y", "options", "words"),
    [
        ([0.1, 0.3, 0.2], Y, {}, r"t\[2\] = 0.2 follows 0.3"),
        ([0.1, np.nan, 0.2], Y, {}, "must be finite, got nan in entry 1"),
        ([0.1, 0.2, 0.3], [0.0, np.nan, 0.0], {}, "nan at sample 1, t = 0.2: give missing='nan'"),
        ([0.1, 0.2, 0.3], np.zeros(4), {}, "there are 3 times"),
        ([0.1, 0.2, 0.3], {"a": Y}, {"missing": {"b": Y > 0}}, "unknown series in missing 'b'"),
        ([0.1, 0.2, 0.3], Y, {"missing": Y}, "True and False"),
        ([0.1, 0.2, 0.3], Y, {"missing": "none"}, "missing must be 'nan'"),
        ([0.1, 0.2, 0.3], {}, {}, "is empty"),
    ],
)
def test_recordings_that_cannot_be(t, y, options, words) -> None:
    with pytest.raises(uk.InputError, match=words):
        uk.Recording(t, y, **options)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"parameters": {"stifness": 1.0}}, "unknown parameter 'stifness'; did you mean 'stiffness'"),
        ({"parameters": {"mass": np.nan}}, "must be finite"),
        ({"parameters": {}}, "nothing to identify"),
        ({"bounds": {"mass": (0.0, None)}}, "unknown parameter in bounds 'mass'"),
        ({"bounds": {"stiffness": (5.0, 1.0)}}, "low < high"),
        ({"bounds": {"stiffness": (5.0, None)}}, "must lie between its bounds"),
        ({"bounds": {"stiffness": 5.0}}, r"a pair \(low, high\)"),
        ({"priors": {"mass": (1.0, 0.1)}}, "unknown parameter in priors 'mass'"),
        ({"priors": {"stiffness": (1.0, 0.0)}}, "positive standard deviation"),
        ({"priors": {"stiffness": 1.0}}, "a mean and a standard deviation"),
        ({"noise": -0.1}, "noise must be positive"),
        ({"noise": {"angle": 0.1}}, "unknown channel in noise 'angle'"),
        ({"offsets": "angle"}, "unknown channel in offsets 'angle'"),
        ({"initial": "q"}, "unknown initial state 'q'"),
        ({"loss": "l1"}, "loss must be 'squares' or 'huber' or 'cauchy'"),
        ({"shooting": -1.0}, "shooting must lie between"),
        ({"measure": lambda x: x}, "unknown argument of measure 'x'"),
        ({"measure": lambda q: jnp.append(q, q)}, "1 columns, and measure returns 2"),
        ({"measure": lambda q: {"angle": q[0]}}, "must agree: both arrays, or both dicts"),
        ({"measure": lambda points: points["tip"]}, "the problem has none"),
        ({"contact": "events"}, "needs a system with Unilateral"),
        ({"data": []}, "data has no recordings"),
        ({"data": uk.Recording([-1.0, 0.2], [0.0, 0.0])}, "before the run starts at 0 s: give its t0"),
        ({"data": uk.Recording([0.0], [0.0])}, "nothing has moved by then"),
        ({"data": uk.Recording([0.1], [0.0], q0=[0.0, 1.0])}, "this system needs"),
        ({"data": uk.Recording([0.1, 0.2], [1.0, 1.0], missing=[True, True])}, "all samples .* are missing"),
        ({"sigma": 0.1}, "no argument 'sigma': write noise="),
        ({"model_or_problem": spring().system}, "identify needs a start"),
    ],
)  # fmt: skip
def test_arguments_that_cannot_be(changed, words) -> None:
    given = {"model_or_problem": spring, "data": uk.Recording(TIMES, noisy(0)), "parameters": GUESS} | changed
    with pytest.raises(uk.InputError, match=words) as caught:
        uk.identify(**given)
    assert "\n" not in str(caught.value)


def test_a_first_guess_that_does_not_get_to_the_data_is_refused() -> None:
    with pytest.raises(
        uk.InputError, match="with the first guess the run beside recording '0' has no outputs at"
    ):
        uk.identify(spring, uk.Recording(TIMES, noisy(0)), {"stiffness": 3.0}, max_steps=3)
