"""Derivatives through whole runs and through single accelerations, against central differences of their values."""

import itertools

import diffrax as dfx
import equinox as eqx
import gradient_table
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import pytest
from gradient_cases import (
    ADJOINTS,
    AXES,
    CASES,
    FORMULAS,
    METHODS,
    MODELS,
    Case,
    along,
    applies,
    derivatives,
    directions,
    end,
    inputs,
    measure,
)
from helpers import central

import ukjax as uk
from ukjax._formula._acceleration import equations_of_motion

QUICK = {
    Case("rolling_disk", "Schur", "Greville", "Baumgarte, per row", "ForwardMode", "adaptive"),
}


# Whole runs


@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=() if c in QUICK else pytest.mark.slow, id=c.name) for c in CASES]
)
def test_runs(case):
    """By gains, parameters and start, forward under jit and vmap, in reverse under jit."""
    errors = measure(case)
    jax.clear_caches()
    assert errors.forward < 1e-6
    if case.adjoint != "ForwardMode":
        assert errors.reverse < 1e-6
        assert errors.disagreement < 1e-10


def test_every_pair_of_options_has_a_case():
    pairs = lambda case: set(itertools.combinations(zip(AXES, case, strict=True), 2))
    possible = (Case(*options) for options in itertools.product(*AXES.values()))
    wanted = set().union(*(pairs(case) for case in possible if applies(case)))
    assert set().union(*map(pairs, CASES)) == wanted


def test_the_page_shows_what_is_tested():
    """Every cell of the page's table has its cases, every case its cells, and no error is larger than claimed."""
    written = gradient_table.written()
    assert written.keys() == gradient_table.cells().keys()
    assert max(written.values()) < 1e-6
    assert set(CASES) >= QUICK


# Single accelerations


def _acceleration(model, formulas, x):
    """a, constraint force and multipliers of every formula, at the start of the model."""
    system, q, v = MODELS[model].build(x["parameters"], x["start"])
    equations = equations_of_motion(system, jnp.zeros(()), q, v, uk.Baumgarte(*x["gains"]))
    found = [formula.solve(equations) for formula in formulas]
    return jnp.stack([jnp.concatenate([f.a, f.constraint_force, f.multipliers]) for f in found])


def _check_accelerations(model, pairs):
    """Forward against differences, reverse against forward; all of the pairs (formula, method) in one program."""
    case = Case(model, "", "", "Baumgarte", "", "")
    formulas = [FORMULAS[formula](METHODS[method]) for formula, method in pairs]
    x, d = inputs(case), directions(case)
    flat = lambda s: _acceleration(model, formulas, along(x, d, s)).ravel()
    jvp, exact = (f.reshape(len(x), len(pairs), -1) for f in derivatives(flat, len(x)))
    assert np.all(np.isfinite(jvp))
    w = np.random.default_rng(0).normal(size=(len(pairs), exact.shape[-1]))
    pull = jax.jit(lambda x, w: jax.vjp(lambda x: _acceleration(model, formulas, x), x)[1](w)[0])(
        x, jnp.asarray(w)
    )
    dots = [sum(jax.tree.leaves(jax.tree.map(lambda g, d: jnp.sum(g * d), pull[k], d[k]))) for k in x]
    for i, pair in enumerate(pairs):
        scale = np.abs(exact[:, i]).max(axis=1, keepdims=True)
        np.testing.assert_array_less(np.abs(jvp[:, i] - exact[:, i]) / scale, 1e-6, err_msg=str(pair))
    forward = np.einsum("kij,ij->k", jvp, w)
    np.testing.assert_allclose(dots, forward, rtol=0, atol=1e-10 * np.linalg.norm(jvp) * np.linalg.norm(w))


def _pairs(model, methods, formulas=tuple(FORMULAS)):
    every = [(f, m) for f in formulas for m in methods]
    return [(f, m) for f, m in every if applies(Case(model, f, m, "Baumgarte", "", ""))]


@pytest.mark.slow
def test_accelerations_at_repeated_and_zero_singular_values():
    """Every formula, where differentiating singular values and vectors would give NaN."""
    _check_accelerations("doubled rods", _pairs("doubled rods", ["GramSchmidt"]))


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_accelerations_of_every_model(model):
    _check_accelerations(model, _pairs(model, ["GramSchmidt"]))


@pytest.mark.slow
@pytest.mark.parametrize("formula", FORMULAS)
@pytest.mark.parametrize("model", ["doubled rods", "pendulum"])
def test_accelerations_by_every_method(model, formula):
    _check_accelerations(model, _pairs(model, METHODS, [formula]))


# Second order


SECOND = {
    "over reverse": Case("pendulum", "UdwadiaKalaba", "GramSchmidt", "Baumgarte", "DirectAdjoint", "fixed"),
    "over forward": Case("pendulum", "UdwadiaKalaba", "GramSchmidt", "Baumgarte", "ForwardMode", "fixed"),
    "over forward, singular mass": Case(
        "spinning_top", "NullSpace", "GramSchmidt", "Baumgarte", "ForwardMode", "fixed"
    ),
    "over forward, Projection": Case(
        "pendulum", "UdwadiaKalaba", "GramSchmidt", "Projection", "ForwardMode", "fixed"
    ),
    "over forward, rank 11 of 12": Case(
        "parallelogram", "UdwadiaKalaba", "GramSchmidt", "Baumgarte", "ForwardMode", "fixed"
    ),
}


@pytest.mark.parametrize(
    "case",
    [pytest.param(x, id=name, marks=pytest.mark.slow if "1" in name else ()) for name, x in SECOND.items()],
)
def test_second_order(case):
    """All second derivatives of a function of the end, forward over the mode of the case, by differences of gradients."""
    x, d = inputs(case), directions(case)
    value = lambda s: jnp.sum(jnp.sin(end(case, along(x, d, s), ADJOINTS[case.adjoint])))
    gradient = jax.jacfwd(value) if case.adjoint == "ForwardMode" else jax.grad(value)
    found, exact = derivatives(gradient, len(x))
    scale = np.abs(exact).max()
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-4 * scale)
    np.testing.assert_allclose(found, found.T, rtol=0, atol=1e-9 * scale)


# Adaptive steps


@pytest.mark.slow
def test_adaptive_steps_are_held_fixed():
    """The derivative of an adaptive run is that of the same steps taken at any parameter, not of choosing them."""
    options = {
        "q0": jnp.asarray([0.8, -0.6]),
        "v0": jnp.zeros(2),
        "t0": 0.0,
        "t1": 1.0,
        "solver": dfx.Tsit5(),
    }

    def run(gravity, **more):
        return uk.simulate(uk.models.pendulum(gravity=gravity).system, **options, **more)

    loose = {"rtol": 1e-3, "atol": 1e-3, "adjoint": dfx.ForwardMode(), "max_steps": 64}
    slope = jax.jit(lambda g: jax.jvp(lambda g: run(g, ts=2, **loose).q[-1], (g,), (jnp.ones(()),))[1])
    steps = run(9.81, ts="steps", rtol=1e-3, atol=1e-3).t
    same = jax.jit(lambda g: run(g, ts=2, stepsize_controller=dfx.StepTo(steps), max_steps=64).q[-1])
    frozen = central(lambda h: same(jnp.asarray(9.81 + h)))
    np.testing.assert_allclose(slope(jnp.asarray(9.81)), frozen, rtol=0, atol=1e-8 * np.abs(frozen).max())


# Scalar code


@pytest.mark.slow
def test_scalar_code_of_a_projected_run():
    """By L D L^T, as cases name their formula: the projected parallelogram."""

    def end(mass, rate):
        run = uk.simulate(
            uk.models.parallelogram(mass=mass, rate=rate), t0=0.0, t1=0.11, ts=3, solver=dfx.Heun(), dt0=0.02,
            max_steps=8, stepsize_controller=dfx.ConstantStepSize(),
        )  # fmt: skip
        assert run.computed_by.startswith("scalar code")
        return jnp.sum(run.q[-1] * jnp.arange(12.0)) + jnp.sum(run.v[1] ** 2)

    x = tuple(map(jnp.asarray, (1.3, 0.8)))
    found, value = jax.jit(jax.grad(end, argnums=(0, 1)))(*x), jax.jit(end)
    for i, slope in enumerate(found):
        along = lambda s, i=i: value(*(y + s if j == i else y for j, y in enumerate(x)))
        np.testing.assert_allclose(slope, central(along, 1e-4), rtol=1e-7, atol=1e-8)


# Batches


@pytest.mark.slow
def test_gradients_of_a_batch_are_those_of_its_members():
    """By all parameters of 1024 SCARA arms in one call."""
    problem = uk.models.scara()
    parameters, rest = eqx.partition(problem.system, eqx.is_inexact_array)
    rng = np.random.default_rng(0)
    many = jax.tree.map(lambda x: x * jnp.asarray(1 + 0.01 * rng.normal(size=1024)), parameters)

    def loss(parameters):
        run = uk.simulate(
            *(eqx.combine(parameters, rest), problem.q0, problem.v0),
            **{"t0": 0.0, "t1": 0.04, "dt0": 0.01, "ts": 2, "max_steps": 4},
            solver=dfx.Heun(),
            stabilizer=uk.Baumgarte(10.0, 100.0),
            stepsize_controller=dfx.ConstantStepSize(),
        )
        return jnp.sum(run.q[-1] ** 2 + run.v[-1] ** 2)

    together, alone = jax.jit(jax.vmap(jax.grad(loss)))(many), jax.jit(jax.grad(loss))
    for i in (0, 500, 1023):
        single = jax.tree.leaves(alone(jax.tree.map(lambda x, i=i: x[i], many)))
        scale = max(float(jnp.abs(x)) for x in single)
        assert scale > 0
        for x, y in zip(single, jax.tree.leaves(together), strict=True):
            np.testing.assert_allclose(y[i], x, rtol=0, atol=1e-10 * scale)


def test_backsolve_is_as_good_as_the_tolerance():
    """The adjoint equations integrated backwards: near the derivative of the motion, not that of the run."""

    def end_of_run(length, tolerance):
        problem = uk.models.pendulum(length=length)
        run = uk.simulate(
            problem, t1=0.5, ts=2, stabilizer=uk.Baumgarte(10.0, 100.0), rtol=tolerance, atol=tolerance,
            adjoint=dfx.BacksolveAdjoint(), max_steps=256,
        )  # fmt: skip
        return jnp.sum(run.q[-1])

    step, at = 1e-4, jax.jit(jax.value_and_grad(end_of_run))
    values = [at(1.0 + k * step, 1e-11)[0] for k in (-2, -1, 1, 2)]
    expected = (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * step)
    found = [at(1.0, tolerance)[1] for tolerance in (1e-5, 1e-9)]
    np.testing.assert_allclose(found[0], expected, rtol=1e-3)
    np.testing.assert_allclose(found[1], expected, rtol=1e-7)


def test_backsolve_says_what_it_cannot_follow():
    with pytest.raises(uk.InputError, match="a projection after each step"):
        uk.simulate(uk.models.pendulum(), t1=1.0, adjoint=dfx.BacksolveAdjoint())


def test_by_the_first_step_outside_of_jit():
    """Euler on a free fall: q(T) = g (T^2 - sum of h_i^2) / 2; Diffrax's steps are h, 2 T / N - h and then T / N."""
    g, steps = 2.0, 5
    fall = uk.System(jnp.eye(1), lambda t, q, v: jnp.array([g]))
    run = lambda h: uk.simulate(
        fall, jnp.zeros(1), jnp.zeros(1), t1=1.0, dt0=h, ts=2, solver=dfx.Euler(), max_steps=8
    )
    h = 0.22
    assert abs(jax.grad(lambda h: run(h).q[-1, 0])(h) + 2 * g * (h - 1 / steps)) < 1e-12


@pytest.mark.slow
def test_by_a_matrix_that_lineax_solves_with():
    """An anisotropic spring as its inverse: q'' = -C^-1 q, with C = diag(c, 1). So q = cos(t / sqrt(c)), and
    dq/dc = t sin(t / sqrt(c)) / (2 c^(3/2)). The gradient was zero."""

    def end(c):
        compliance = lx.MatrixLinearOperator(jnp.diag(jnp.stack([c, jnp.ones_like(c)])))
        system = uk.System(jnp.eye(2), lambda t, q, v: -lx.linear_solve(compliance, q).value)
        return uk.simulate(system, jnp.ones(2), jnp.zeros(2), t1=1.0, ts=2, rtol=1e-10, atol=1e-10).q_end[0]

    c = 0.5
    slope = np.sin(1 / np.sqrt(c)) / (2 * c**1.5)
    np.testing.assert_allclose(jax.grad(end)(c), slope, rtol=1e-8)
    np.testing.assert_allclose(jax.jvp(end, (c,), (1.0,))[1], slope, rtol=1e-8)


@pytest.mark.slow
def test_second_derivatives_through_an_implicit_solver():
    """Of cos(w) by w^2, w = sqrt(k); they were wrong by some percent."""

    def end(k):
        spring = uk.System(jnp.eye(1), lambda t, q, v: -k * q)
        run = uk.simulate(
            spring, jnp.ones(1), jnp.zeros(1), t1=1.0, ts=2, solver=dfx.Kvaerno5(), rtol=1e-8, atol=1e-8
        )
        return run.q_end[0]

    w = np.sqrt(2.0)
    bend = (np.sin(w) / w - np.cos(w)) / (4 * w**2)
    np.testing.assert_allclose(jax.hessian(end)(2.0), bend, rtol=1e-5)
