"""The models against independent equations of motion: M, Q, A and b, starts, energies and errors."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest

import ukjax as uk
from ukjax import models
from ukjax._misc import _lie

OWN = (
    "scara",
    "parallelogram",
    "two_mass_spring",
    "pendulum",
    "spherical_pendulum",
    "n_pendulum",
    "slider_crank",
    "knife_edge",
    "rolling_disk",
    "spinning_top",
)
_rows = eqx.filter_jit(uk.constraint_rows)
_energy = eqx.filter_jit(lambda system, t, q, v: system.energy(t, q, v))


@eqx.filter_jit
def _terms(system, t, q, v):
    return system.mass_matrix(t, q), system.force(t, q, v)


def _state(t, q, v):
    return jnp.asarray(t, float), jnp.asarray(q), jnp.asarray(v)


def _random_state(problem, rng):
    return _state(rng.uniform(0, 2), rng.normal(size=problem.q0.size), rng.normal(size=problem.v0.size))


def _acceleration(system, t, q, v):
    """By numpy: a = L^-T (L^-1 Q + B^+ (b - A M^-1 Q)), B = A L^-T, M = L L^T."""
    state = _state(t, q, v)
    M, Q = (np.asarray(x) for x in _terms(system, *state))
    rows = _rows(system, *state)
    L = np.linalg.cholesky(M)
    free = np.linalg.solve(L, Q)
    if not rows.names:
        return np.linalg.solve(L.T, free)
    B = np.linalg.solve(L, np.asarray(rows.A).T).T
    gap = np.asarray(rows.b) - B @ free
    return np.linalg.solve(L.T, free + np.linalg.pinv(B, rcond=1e-9) @ gap)


def _check_state(system, t, state, tolerance=1e-10):
    """A consistent state and its acceleration, as the oracle gives them."""
    q, v, a = state
    rows = _rows(system, *_state(t, q, v))
    np.testing.assert_allclose(rows.position_error, 0.0, atol=1e-14)
    np.testing.assert_allclose(rows.velocity_error, 0.0, atol=2e-14)
    np.testing.assert_allclose(
        _acceleration(system, t, q, v), a, rtol=tolerance, atol=tolerance * (1 + abs(a).max())
    )


# Accelerations against oracles


@pytest.mark.parametrize("theta", [np.pi / 3, np.pi / 2, -0.9, 2.5, 4.0])
@pytest.mark.parametrize("rate", [0.0, 1.0, -3.3])
def test_parallelogram_moves_as_its_one_degree_of_freedom(theta, rate):
    problem = models.parallelogram(angle=theta, rate=rate)
    state = oracles.parallelogram_state(theta, rate)
    np.testing.assert_allclose(problem.q0, state[0], atol=1e-15)
    np.testing.assert_allclose(problem.v0, state[1], atol=1e-15)
    _check_state(problem.system, 0.0, state)


def test_parallelogram_has_one_redundant_row():
    problem = models.parallelogram()
    A = _rows(problem.system, *_state(0.0, problem.q0, problem.v0)).A
    assert np.linalg.matrix_rank(A) == 11
    flat = models.parallelogram(angle=0.0)
    A = _rows(flat.system, *_state(0.0, flat.q0, flat.v0)).A
    assert np.linalg.matrix_rank(A, tol=1e-12) == 10


@pytest.mark.parametrize("angle", [0.0, 0.8, -2.0, 3.0])
def test_pendulum_moves_as_its_angle(angle):
    problem = models.pendulum(angle=angle, rate=-1.4, length=0.7, mass=3.0)
    state = oracles.pendulum_state(angle, -1.4, 0.7)
    np.testing.assert_allclose(problem.q0, state[0], atol=1e-15)
    np.testing.assert_allclose(problem.v0, state[1], atol=1e-15)
    _check_state(problem.system, 0.0, state)


@pytest.mark.parametrize("n", [1, 3, 6])
def test_n_pendulum_moves_as_its_angles(n):
    angles, rates = np.random.default_rng(n).normal(size=(2, n))
    system = models.n_pendulum(n, length=0.8, mass=2.0).system
    _check_state(system, 0.0, oracles.n_pendulum_state(angles, rates, 0.8))
    problem = models.n_pendulum(n, angle=0.4, rate=1.2)
    state = oracles.n_pendulum_state(np.full(n, 0.4), np.full(n, 1.2))
    np.testing.assert_allclose(problem.q0, state[0], atol=1e-14)
    np.testing.assert_allclose(problem.v0, state[1], atol=1e-14)


def test_spherical_pendulum_moves_as_its_angles():
    rng = np.random.default_rng(0)
    system = models.spherical_pendulum(length=1.3).system
    for _ in range(5):
        x, rates = rng.uniform(0.3, 2.5, size=2), rng.normal(size=2)
        _check_state(system, 0.0, oracles.spherical_pendulum_state(x, rates, 1.3))
    problem = models.spherical_pendulum()
    np.testing.assert_allclose(problem.q0, [0.6, 0.0, -0.8], atol=1e-15)
    np.testing.assert_allclose(problem.v0, [0.0, 1.5, 0.0], atol=1e-15)


@pytest.mark.parametrize("angle", [0.0, np.pi / 4, 2.0, np.pi, 5.5])
def test_slider_crank_moves_as_its_one_degree_of_freedom(angle):
    problem = models.slider_crank(angle=angle, rate=-2.0)
    state = oracles.slider_crank_state(angle, -2.0)
    np.testing.assert_allclose(problem.q0, state[0], atol=1e-15)
    np.testing.assert_allclose(problem.v0, state[1], atol=1e-14)
    _check_state(problem.system, 0.0, state)
    A = _rows(problem.system, *_state(0.0, problem.q0, problem.v0)).A
    assert A.shape == (10, 9)
    assert np.linalg.matrix_rank(A) == 8


@functools.cache
def _reference(name):
    """A model, and its reference path as a function of the time with two derivatives, as one program."""
    problem = models.get(name)

    @jax.jit
    def path(t):
        rate = lambda t: jax.jvp(problem.reference, (t,), (jnp.ones_like(t),))
        (q, v), (_, a) = jax.jvp(rate, (t,), (jnp.ones_like(t),))
        return q, v, a

    return problem, lambda t: [np.asarray(x) for x in path(jnp.asarray(t, float))]


@pytest.mark.parametrize("name", ["knife_edge", "rolling_disk"])
@pytest.mark.parametrize("t", [0.0, 0.004, 1.0, 7.3])
def test_closed_forms_on_the_incline(name, t):
    (problem, path), closed = _reference(name), getattr(oracles, name)
    now, start = path(t), path(problem.t0)
    np.testing.assert_allclose(now[0], closed(t), atol=1e-12)
    _check_state(problem.system, t, now)
    np.testing.assert_allclose(start[0], problem.q0, atol=1e-15)
    np.testing.assert_allclose(start[1], problem.v0, atol=1e-15)


@pytest.mark.parametrize("name", ["knife_edge", "rolling_disk"])
def test_closed_forms_hold_without_turning(name):
    straight, slow = (models.get(name, rate=rate).reference(1.2) for rate in (0.0, 1e-9))
    assert np.isfinite(straight).all()
    np.testing.assert_allclose(straight, slow, atol=1e-8)


def test_top_moves_as_its_euler_angles():
    rng = np.random.default_rng(0)
    system = models.spinning_top().system
    for _ in range(5):
        x = rng.uniform([0, 0.4, 0], [6, 2.6, 6])
        rates = rng.normal(size=3)
        q, omega, omega_rate = oracles.top_state(x, rates)
        centre = system.points(0.0, jnp.asarray(q))["centre"]
        np.testing.assert_allclose(centre, oracles.top_rotation(x)[:, 2], atol=1e-15)
        np.testing.assert_allclose(_acceleration(system, 0.0, 1.7 * q, omega), omega_rate, atol=1e-12)
        after, before = (oracles.top_state(x + h * rates, rates)[0] for h in (1e-6, -1e-6))
        np.testing.assert_allclose(
            system.kinematics(*_state(0.0, q, omega)), (after - before) / 2e-6, atol=1e-9
        )
        energy = oracles.top_conserved(x, rates)[0]
        np.testing.assert_allclose(_energy(system, *_state(0.0, q, omega)), energy, rtol=1e-14)
    problem = models.spinning_top()
    q, omega, _ = oracles.top_state([0, np.pi / 3, 0], [0.5, 0.0, 12.0 - 0.25])
    np.testing.assert_allclose(problem.q0, q, atol=1e-15)
    np.testing.assert_allclose(problem.v0, omega, atol=1e-14)


def test_top_with_singular_mass_moves_alike():
    rng = np.random.default_rng(1)
    problem = models.spinning_top(formulation="singular mass")
    system, quasi = problem.system, models.spinning_top()
    np.testing.assert_allclose(problem.v0, quasi.system.kinematics(0.0, quasi.q0, quasi.v0))
    for _ in range(3):
        x, rates = rng.uniform([0, 0.4, 0], [6, 2.6, 6]), rng.normal(size=3)
        q, omega, omega_rate = (jnp.asarray(x) for x in oracles.top_state(x, rates))
        v = _lie.quaternion_rate(q, omega)
        a = _lie.quaternion_rate(v, omega) + _lie.quaternion_rate(q, omega_rate)
        t, q, v = _state(0.0, q, v)
        (M, Q), rows = _terms(system, t, q, v), _rows(system, t, q, v)
        assert np.linalg.matrix_rank(M) == 3
        np.testing.assert_allclose(rows.position_error, 0.0, atol=1e-15)
        np.testing.assert_allclose(rows.velocity_error, 0.0, atol=1e-15)
        kkt = np.block([[np.asarray(M), -np.asarray(rows.A).T], [rows.A, np.zeros((1, 1))]])
        solution = np.linalg.solve(kkt, np.concatenate([Q, rows.b]))
        np.testing.assert_allclose(solution[:4], a, atol=1e-12)
        np.testing.assert_allclose(system.energy(t, q, v), quasi.system.energy(t, q, omega), rtol=1e-14)


def test_two_masses_swing_in_closed_form():
    parameters = {"m1": 1.5, "m2": 0.7, "k": 4.0, "l": 0.3, "force": 0.9}
    system = models.two_mass_spring(**parameters).system
    t, h = 0.8, 1e-3
    late, now, early = (oracles.two_mass_spring(t + s, **parameters) for s in (h, 0.0, -h))
    a = _acceleration(system, t, now, np.zeros(2))
    np.testing.assert_allclose(a, (late - 2 * now + early) / h**2, atol=1e-5)
    np.testing.assert_allclose(models.two_mass_spring().q0, oracles.two_mass_spring(0.0))


# SCARA


@pytest.mark.parametrize("seed", range(4))
def test_scara_equals_the_papers_matrices(seed):
    problem = models.scara()
    t, q, v = _random_state(problem, np.random.default_rng(seed))
    M, C, G = oracles.scara_matrices(q, v)
    computed = _terms(problem.system, t, q, v)
    np.testing.assert_allclose(computed[0], M, atol=1e-12)
    np.testing.assert_allclose(computed[1], -C @ v - G, atol=1e-12)


class _LagrangianScara(uk.LagrangianSystem):
    """The same arm from the velocities of its centres of mass, written by hand."""

    constraints: tuple = ()

    def lagrangian(self, t, q, v):
        p = oracles.SCARA
        turn = jnp.cumsum(q[:3])
        omega = jnp.cumsum(v[:3])

        def velocity(first, second):
            x = -first * jnp.cos(turn[0]) * omega[0] - second * jnp.cos(turn[1]) * omega[1]
            y = -first * jnp.sin(turn[0]) * omega[0] - second * jnp.sin(turn[1]) * omega[1]
            return x * x + y * y

        l1, l2 = p["l1"], p["l2"]
        twice = p["m1"] * velocity(p["r1"], 0.0) + p["m2"] * velocity(l1, p["r2"])
        twice += (p["m3"] + p["m4"]) * velocity(l1, l2) + p["m4"] * v[3] ** 2
        twice += p["Iz1"] * omega[0] ** 2 + p["Iz2"] * omega[1] ** 2
        twice += (p["Iz3"] + p["Iz4"]) * omega[2] ** 2
        return 0.5 * twice - p["m4"] * p["g"] * q[3]


@pytest.mark.parametrize("seed", range(4))
def test_scara_equals_its_lagrangian(seed):
    problem = models.scara()
    state = _random_state(problem, np.random.default_rng(seed))
    by_hand = _terms(_LagrangianScara(), *state)
    for computed, expected in zip(_terms(problem.system, *state), by_hand, strict=True):
        np.testing.assert_allclose(computed, expected, atol=1e-12)
    energies = (_energy(system, *state) for system in (problem.system, _LagrangianScara()))
    np.testing.assert_allclose(next(energies), next(energies), rtol=1e-13)


@pytest.mark.parametrize("t", [0.0, 1.3, 8.0, 20.0])
def test_scara_follows_its_path(t):
    problem = models.scara()
    q, v, a = oracles.scara_posture(t)
    np.testing.assert_allclose(problem.reference(t), q, atol=1e-14)
    _check_state(problem.system, t, (q, v, a))
    w = 0.4 * np.pi * t
    expected = [0.05 * np.sin(w), 0.35 + 0.05 * np.cos(w), 0.02 * t]
    np.testing.assert_allclose(problem.points(t, jnp.asarray(q))["tool"], expected, atol=1e-14)


def test_scara_starts():
    """The paper's start misses the path by what models.md says; the exact one does not."""
    problem = models.scara()
    rows = _rows(problem.system, *_state(0.0, problem.q0, problem.v0))
    np.testing.assert_allclose(rows.position_error, [5.6546e-3, -2.1797e-4, -1.74533e-2, 0.0], atol=5e-8)
    assert rows.names == ("tool x", "tool y", "orientation", "tool z")
    exact = models.scara(exact_start=True)
    q, v, _ = oracles.scara_posture(0.0)
    np.testing.assert_allclose(exact.q0, q, atol=1e-14)
    np.testing.assert_allclose(exact.v0, v, atol=1e-14)
    np.testing.assert_allclose(np.rad2deg(q[:3]), [30.7535, -54.9004, 24.1468], atol=1e-4)


# What every model keeps


@pytest.mark.parametrize("name", OWN)
def test_start_is_consistent(name):
    problem = models.get(name, exact_start=True) if name == "scara" else models.get(name)
    assert problem.name == name
    assert problem.citation
    assert problem.t1 > problem.t0
    rows = _rows(problem.system, *_state(problem.t0, problem.q0, problem.v0))
    np.testing.assert_allclose(rows.position_error, 0.0, atol=1e-14)
    np.testing.assert_allclose(rows.velocity_error, 0.0, atol=1e-14)
    constraint_names = [c.name for c in problem.system.constraints]
    assert len(set(constraint_names)) == len(constraint_names)
    points = problem.points(jnp.asarray(problem.t0), problem.q0)
    assert points
    assert all(x.shape in ((2,), (3,)) for x in points.values())


@pytest.mark.parametrize("name", OWN)
def test_energy_belongs_to_mass_and_force(name):
    """E_v = M v, E_q N v + E_v M^-1 Q = 0: unconstrained, every model is conservative."""
    problem = models.get(name)
    system = problem.system
    gradients = jax.jit(jax.grad(lambda q, v: system.energy(0.0, q, v), argnums=(0, 1)))
    for seed in range(3):
        t, q, v = _random_state(problem, np.random.default_rng(seed))
        M, Q = (np.asarray(x) for x in _terms(system, t, q, v))
        by_q, by_v = gradients(q, v)
        assert system.energy(t, q, v).shape == ()
        np.testing.assert_allclose(by_v, M @ v, atol=1e-12)
        power = by_q @ system.kinematics(t, q, v) + by_v @ np.linalg.solve(M, Q)
        np.testing.assert_allclose(power, 0.0, atol=1e-11 * (1 + np.abs(Q).max()))


@pytest.mark.parametrize("name", OWN)
def test_parameters_can_be_differentiated(name):
    """Energy by every parameter, against central differences."""
    problem = models.get(name)
    t, q, v = _random_state(problem, np.random.default_rng(0))
    leaves, structure = jax.tree.flatten(problem.system)

    def energy(parameters):
        return jax.tree.unflatten(structure, list(parameters)).energy(t, q, v)

    parameters = jnp.stack([jnp.asarray(x, float) for x in leaves])
    gradient, energy, h = jax.jit(jax.grad(energy))(parameters), jax.jit(energy), 1e-5
    for i, step in enumerate(h * np.eye(len(leaves))):
        central = (energy(parameters + step) - energy(parameters - step)) / (2 * h)
        np.testing.assert_allclose(gradient[i], central, atol=1e-7)


def test_models_can_be_built_inside_transformations():
    def bend(length):
        problem = models.slider_crank(rod_length=length)
        return jnp.sum(problem.q0) + problem.system.energy(0.0, problem.q0, problem.v0)

    lengths = jnp.asarray([0.8, 1.0])
    slopes = jax.jit(jax.vmap(jax.grad(bend)))(lengths)
    for length, slope in zip(lengths, slopes, strict=True):
        central = (bend(length + 1e-6) - bend(length - 1e-6)) / 2e-6
        np.testing.assert_allclose(slope, central, rtol=1e-7)


def _everything(problem, t, q, v):
    system, rows = problem.system, uk.constraint_rows(problem.system, t, q, v)
    results = [rows.A, rows.b, system.force(t, q, v), system.energy(t, q, v)]
    results += [system.kinematics(t, q, v), *problem.points(t, q).values()]
    return [*results, system.mass_matrix(t, q)]


def _single_precision(problem):
    q, v = problem.q0.astype(jnp.float32), problem.v0.astype(jnp.float32)
    results = eqx.filter_eval_shape(_everything, problem, jnp.asarray(0.5, jnp.float32), q, v)
    assert all(x.dtype == jnp.float32 for x in results), [x.dtype for x in results]


@pytest.mark.parametrize("name", [pytest.param(x, marks=[pytest.mark.slow] * (x == "scara")) for x in OWN])
def test_single_precision(name):
    """A float32 state stays float32, whether x64 is on or off."""
    _single_precision(models.get(name))
    with jax.enable_x64(False):
        problem = models.get(name)
        assert problem.q0.dtype == problem.v0.dtype == jnp.float32
        _single_precision(problem)
        if problem.reference is not None:
            assert problem.reference(0.5).dtype == jnp.float32


# The registry and bad input


def test_registry():
    assert set(OWN) <= set(models.MODELS)
    assert all(models.MODELS[name] is getattr(models, name) for name in OWN)
    assert models.get("n_pendulum", n=2, mass=2).system.mass.dtype == float


@pytest.mark.parametrize(
    ("name", "parameters", "words"),
    [
        ("pendulm", {}, "did you mean 'pendulum'"),
        ("zzz", {}, "spinning_top"),
        ("pendulum", {"lenght": 1.0}, "did you mean 'length'"),
        ("pendulum", {"zzz": 1.0}, "Known: mass, length, gravity"),
        ("pendulum", {"length": 0.0}, "length must be greater than 0"),
        ("pendulum", {"mass": -1}, "mass must be greater than 0"),
        ("pendulum", {"mass": float("nan")}, "mass must be a finite number"),
        ("pendulum", {"mass": "heavy"}, "mass must be a number, not 'heavy'"),
        ("pendulum", {"mass": [1.0, 2.0]}, "mass must be a number"),
        ("pendulum", {"mass": True}, "mass must be a number"),
        ("pendulum", {"rate": float("inf")}, "rate must be a finite number"),
        ("spherical_pendulum", {"length": -2}, "length must be greater than 0"),
        ("n_pendulum", {"n": 0}, "n must be an integer of at least 1"),
        ("n_pendulum", {"n": 2.5}, "n must be an integer of at least 1"),
        ("parallelogram", {"start": "flat"}, "start must be 'rest' or 'spinning'"),
        ("parallelogram", {"coupler_inertia": -1}, "coupler_inertia must not be negative"),
        ("scara", {"exact_start": "yes"}, "exact_start must be True or False"),
        ("scara", {"reach": 0.45}, "reach and radius"),
        ("scara", {"Iz4": -1.0}, "Iz4 must be greater than 0"),
        ("slider_crank", {"rod_length": 0.4}, "rod_length must be greater than crank_length"),
        ("rolling_disk", {"radius": 0.0}, "radius must be greater than 0"),
        ("knife_edge", {"inertia": 0.0}, "inertia must be greater than 0"),
        ("spinning_top", {"I3": 0.0}, "I3 must be greater than 0"),
        ("spinning_top", {"formulation": "x"}, "formulation must be 'quasi-velocities' or"),
        ("two_mass_spring", {"k": 0.0}, "k must be greater than 0"),
    ],
)
def test_bad_input_is_named_in_one_line(name, parameters, words):
    with pytest.raises(uk.InputError) as error:
        models.get(name, **parameters)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


# The oracles themselves


def test_parallelogram_oracles_agree():
    ts = np.linspace(0.0, 5.0, 51)
    for theta, rate in ((np.pi / 3, 0.0), (np.pi / 2, 1.0)):
        x, v = oracles.integrate(oracles.parallelogram_acceleration, theta, rate, ts)
        closed = oracles.parallelogram_elliptic(ts, theta, rate)
        np.testing.assert_allclose(x[:, 0], closed[0], atol=1e-10)
        np.testing.assert_allclose(v[:, 0], closed[1], atol=1e-10)


@pytest.mark.parametrize(
    ("angle", "rate"), [(1.0, 0.0), (1.0, 3.0), (-1.0, -2.0), (0.0, -7.0), (7.0, -8.0), (-7.0, 0.3)]
)
def test_pendulum_oracles_agree(angle, rate):
    ts = np.linspace(0.0, 5.0, 51)
    x, v = oracles.integrate(oracles.pendulum_acceleration, angle, rate, ts)
    closed = oracles.pendulum_elliptic(ts, angle, rate, oracles.GRAVITY)
    np.testing.assert_allclose(x[:, 0], closed[0], atol=2e-11)
    np.testing.assert_allclose(v[:, 0], closed[1], atol=2e-11)


def test_top_oracles_agree():
    ts = np.linspace(0.0, 5.0, 51)
    x, v = oracles.integrate(oracles.top_acceleration, [0, np.pi / 3, 0], [0.5, 0, 11.75], ts)
    conserved = np.array([oracles.top_conserved(*state) for state in zip(x, v, strict=True)])
    np.testing.assert_allclose(conserved, np.broadcast_to(conserved[0], conserved.shape), atol=1e-11)
    nutation = oracles.top_nutation(ts, np.pi / 3, 0.5, 12.0)
    np.testing.assert_allclose(np.cos(x[:, 1]), nutation, atol=1e-11)


@pytest.mark.parametrize(
    ("name", "x", "rates"),
    [
        ("parallelogram", [1.0], [0.7]),
        ("n_pendulum", [0.3, 1.2, -0.8], [0.5, -1.0, 2.0]),
        ("spherical_pendulum", [1.0, 0.4], [0.6, 1.5]),
        ("slider_crank", [1.0], [2.0]),
        ("top", [0.3, 1.0, 0.2], [0.5, 0.2, 4.0]),
    ],
)
def test_oracle_states_are_derivatives_of_each_other(name, x, rates):
    """Along the oracle's own motion, q' and v' by central differences."""
    h = 1e-3
    ts = np.linspace(0.0, 2 * h, 3)
    xs, vs = oracles.integrate(getattr(oracles, f"{name}_acceleration"), x, rates, ts)
    if len(x) == 1:
        xs, vs = xs[:, 0], vs[:, 0]
    state = getattr(oracles, f"{name}_state")
    (q0, v0, _), (_, v, a), (q2, v2, _) = (state(*s) for s in zip(xs, vs, strict=True))
    if name != "top":  # its v is an angular velocity, not q'
        np.testing.assert_allclose((q2 - q0) / (2 * h), v, atol=2e-5)
    np.testing.assert_allclose((v2 - v0) / (2 * h), a, atol=3e-4)


def test_scara_posture_is_the_derivative_of_itself():
    h = 1e-5
    (q0, v0, _), (_, v, a), (q2, v2, _) = (oracles.scara_posture(3.0 + s) for s in (-h, 0.0, h))
    np.testing.assert_allclose((q2 - q0) / (2 * h), v, atol=1e-8)
    np.testing.assert_allclose((v2 - v0) / (2 * h), a, atol=1e-8)


def test_models_have_names_and_units() -> None:
    """Of what plots show; `units` are one a coordinate."""
    for name in ("pendulum", "spherical_pendulum", "slider_crank", "four_bars", "planar_3rrr", "scara"):
        problem = uk.models.get(name)
        units = problem.system.units
        assert len(units) == len(problem.system.labels) == problem.q0.size
        ends = {"x": "m", "y": "m", "z": "m", "theta": "rad"}
        assert all(ends.get(x.split()[-1], u) == u for x, u in zip(problem.system.labels, units, strict=True))
