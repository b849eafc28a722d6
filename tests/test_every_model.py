"""One grid over every model: its start, its energy, its constraints, the formulas, the transformations, the CLI."""

import functools
import json

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import central, equations, solve, state, textbook
from scipy.integrate import simpson
from typer.testing import CliRunner

import ukjax as uk
from ukjax._cli import _commands as cli
from ukjax._formula._acceleration import Equations
from ukjax._system._rows import Rows
from ukjax.models import MODELS

PARAMETERS = {
    "scara": {"exact_start": True},  # the paper's own start misses the path, see test_models.py
    "rlc_network": {"resistance": 0.0},  # resistance takes energy
    # Dampers take energy, and stiff springs ask for smaller steps than these tests take.
    "flyball_governor": {"coordinates": "joints", "stiffness": 800.0, "damping": 0.0},
}
FORMULAS = {
    "UdwadiaKalaba": uk.UdwadiaKalaba(),
    "Schur": uk.Schur(),
    "RangeForm": uk.RangeForm(),
    "StackedForm": uk.StackedForm(),
    "NullSpace": uk.NullSpace(),
    "KKT": uk.KKT(),
    "Recursive": uk.Recursive(),
}
TEXTBOOK = ("UdwadiaKalaba", "Schur")
SPAN = 0.05
AXIS = jax.tree_util.GetAttrKey("axis")
# What four steps may span where SPAN is too much.
FEW_STEPS = {"andrews": 1e-3}


class Case:
    """A model, a state of it that moves and meets its constraints, and what holds there."""

    def __init__(self, name: str):
        self.name = name
        self.problem = uk.models.get(name, **PARAMETERS.get(name, {}))
        self.system = self.problem.system

    @functools.cached_property
    def state(self) -> tuple[jax.Array, jax.Array, jax.Array]:
        """The start with a random velocity added that no row opposes."""
        t, q, v = state(self.problem.t0, self.problem.q0, self.problem.v0)
        A = np.asarray(equations(self.system, t, q, v)[2].A)
        z = 0.3 * np.random.default_rng(0).normal(size=v.size)
        return t, q, v + (z - np.linalg.pinv(A, rcond=1e-9) @ (A @ z))

    @functools.cached_property
    def terms(self) -> tuple[np.ndarray, ...]:
        """M, Q, A and b at that state."""
        M, Q, rows = equations(self.system, *self.state)
        return tuple(np.asarray(x) for x in (M, Q, rows.A, rows.b))

    @functools.cached_property
    def exact(self) -> tuple[np.ndarray, np.ndarray]:
        """a and A^T lambda by numpy: least squares on [[M, -A^T], [A, 0]] (a; lambda) = (Q; b)."""
        M, Q, A, b = self.terms
        kkt, right = np.block([[M, -A.T], [A, np.zeros((b.size, b.size))]]), np.concatenate([Q, b])
        solution = np.linalg.lstsq(kkt, right, rcond=1e-13)[0]
        np.testing.assert_allclose(kkt @ solution, right, rtol=0, atol=1e-9 * (1 + abs(right).max()))
        return solution[: Q.size], A.T @ solution[Q.size :]

    @property
    def formulas(self) -> dict[str, uk.AbstractFormula]:
        """Those that apply: all, unless the mass matrix is singular."""
        M = self.terms[0]
        definite = np.linalg.eigvalsh(M)[0] > 0
        return {name: f for name, f in FORMULAS.items() if definite or not f.needs_definite_mass}


@eqx.filter_jit
def _energy_rate(system, t, q, v, a):
    rates = jnp.ones_like(t), system.kinematics(t, q, v), a
    return jax.jvp(system.energy, (t, q, v), rates)[1]


# How many velocities and rows the formulas are compiled for: as many as the largest of the models below has.
VELOCITIES, ROWS = 27, 24
LEVELS = 3  # of rows that follow each other, for the formula that goes by levels


def _filled(M, Q, A, b) -> Equations:
    """The equations among others of that size: with coordinates that nothing moves, and with rows of zeros."""
    grown = lambda x, *shape: np.pad(x, [(0, new - old) for new, old in zip(shape, x.shape, strict=True)])
    masses = np.append(np.zeros(Q.size), np.full(VELOCITIES - Q.size, np.diagonal(M).mean()))
    M = grown(M, VELOCITIES, VELOCITIES) + np.diag(masses)
    names = tuple(f"level {LEVELS * i // ROWS}[{i % (ROWS // LEVELS)}]" for i in range(ROWS))
    zero = np.zeros(ROWS)
    rows = Rows(grown(A, ROWS, VELOCITIES), grown(b, ROWS), zero, zero, names, ("acceleration",) * ROWS)
    return Equations(M, grown(Q, VELOCITIES), np.zeros(VELOCITIES), rows)


# They have tests of their own in test_field_models.py and test_trees.py.
LONG = ("arm_6r", "bennett", "bicycle", "rattleback", "spatial_slider_crank", "stewart", "strandbeest")
LONG += ("turntable_ball",)
CASES = [pytest.param(name, marks=pytest.mark.slow if name in LONG else ()) for name in MODELS]


@pytest.fixture(scope="module", params=CASES)
def case(request):
    return Case(request.param)


def test_start_is_consistent(case):
    problem = case.problem
    rows = equations(problem.system, *state(problem.t0, problem.q0, problem.v0))[2]
    np.testing.assert_allclose(rows.position_error, 0.0, atol=1e-13)
    np.testing.assert_allclose(rows.velocity_error, 0.0, atol=1e-13)
    assert problem.name == case.name
    assert problem.citation


def test_energy_changes_by_the_power_of_the_constraints(case):
    """E' = v . Q_c along the motion."""
    if eqx.filter_eval_shape(case.system.energy, *case.state) is None:
        pytest.skip("no energy is defined")
    a, force = case.exact
    rate = _energy_rate(case.system, *case.state, jnp.asarray(a))
    scale = 1 + np.abs(case.state[2] * force).max()
    np.testing.assert_allclose(rate, np.asarray(case.state[2]) @ force, rtol=0, atol=1e-9 * scale)


# Those for a singular mass matrix are tested by themselves in test_singular_mass.py and test_kkt.py.
@pytest.mark.parametrize(
    "names",
    [
        ("UdwadiaKalaba", "Schur", "RangeForm", "Recursive"),
        pytest.param(("StackedForm", "NullSpace", "KKT"), marks=pytest.mark.slow),
    ],
    ids=["some", "others"],
)
def test_every_formula_is_the_least_squares_answer(case, names):
    a, _ = case.exact
    equations = _filled(*case.terms)
    for name in (x for x in names if x in case.formulas):
        found = solve(case.formulas[name], equations).a
        np.testing.assert_allclose(found[: a.size], a, rtol=0, atol=1e-8 * (1 + abs(a).max()), err_msg=name)
        assert not found[a.size :].any()


@pytest.mark.slow
def test_every_formula_at_the_models_own_sizes_and_levels(case):
    a, _ = case.exact
    for name, formula in case.formulas.items():
        found = formula.acceleration(case.system, *case.state).a
        np.testing.assert_allclose(found, a, rtol=0, atol=1e-8 * (1 + abs(a).max()), err_msg=name)


@pytest.mark.parametrize("faster", [0.0, 1.0])
def test_definite_masses_have_the_textbooks_answer(case, faster):
    """a, constraint force, least-norm multipliers and rank, at the start and at another velocity there."""
    t, q, v = state(case.problem.t0, case.problem.q0, case.problem.v0)
    if "UdwadiaKalaba" not in case.formulas:
        with pytest.raises(uk.InputError, match="positive definite"):
            uk.UdwadiaKalaba().acceleration(case.system, t, q, v)
        return
    v = v + faster * (case.state[2] - v)
    M, Q, rows = equations(case.system, t, q, v)
    terms = [np.asarray(x) for x in (M, Q, rows.A, rows.b)]
    expected = textbook(*terms, rcond=1e-6)
    for formula in TEXTBOOK:
        computed = solve(FORMULAS[formula], _filled(*terms))
        for name in ("a", "constraint_force", "multipliers"):
            truth = getattr(expected, name)
            size = 1e-10 * (1 + np.abs(truth).max(initial=0))
            found = getattr(computed, name)[: truth.size]
            np.testing.assert_allclose(found, truth, atol=size, err_msg=name)
        assert computed.rank == expected.rank


@pytest.mark.slow
def test_a_run_keeps_constraints_and_energy(case):
    """The energy changes by the work of the constraint force: none, unless constraints depend on time."""
    run = uk.simulate(case.problem, t1=case.problem.t0 + SPAN, ts=11)
    assert run.ok, run.message
    assert run.max_position_error < 1e-12
    assert run.max_velocity_error < 1e-12
    if run.energy is not None:
        power = np.sum(np.asarray(run.v * run.constraint_force), axis=1)
        work = simpson(power[:11], x=np.asarray(run.t)[:11])
        scale = 1 + np.abs(run.energy).max()
        np.testing.assert_allclose(run.energy[10] - run.energy[0], work, rtol=0, atol=1e-6 * scale)


@pytest.mark.slow
def test_jit_and_vmap_change_nothing(case):
    formula = next(iter(case.formulas.values()))
    rng, (t, q, v) = np.random.default_rng(0), case.state
    q, v = (x[None] + 1e-3 * jnp.asarray(rng.normal(size=(3, *x.shape))) for x in (q, v))
    accelerated = lambda q, v: formula.acceleration(case.system, t, q, v).a
    one_by_one = np.stack([accelerated(*one) for one in zip(q, v, strict=True)])
    with jax.disable_jit():
        eager = accelerated(q[0], v[0])
    tolerance = 1e-10 * (1 + abs(one_by_one).max())
    np.testing.assert_allclose(jax.jit(jax.vmap(accelerated))(q, v), one_by_one, rtol=0, atol=tolerance)
    np.testing.assert_allclose(eager, one_by_one[0], rtol=0, atol=tolerance)


@pytest.mark.slow
def test_runs_can_be_differentiated(case):
    """The end of a run, as all parameters grow together, against central differences.

    Axes stay: they are of unit length, and the rank of Bricard's rows drops for no others.
    """
    problem, span = case.problem, FEW_STEPS.get(case.name, SPAN)
    parameters, structure = eqx.partition(problem.system, eqx.is_inexact_array)

    def end(growth):
        grown = lambda path, x: x if path[-1] == AXIS else x * (1 + growth)
        system = eqx.combine(jax.tree_util.tree_map_with_path(grown, parameters), structure)
        run = uk.simulate(
            *(system, problem.q0, problem.v0),
            **{"t0": problem.t0, "t1": problem.t0 + span, "dt0": span / 4, "ts": 2, "max_steps": 8},
            solver=dfx.Heun(),
            stepsize_controller=dfx.ConstantStepSize(),
            adjoint=dfx.ForwardMode(),
        )
        return jnp.concatenate([run.q[-1], run.v[-1]])

    zero, one = jnp.zeros(()), jnp.ones(())
    slope = jax.jit(lambda: jax.jvp(end, (zero,), (one,))[1])()
    ends = jax.jit(end)
    expected = central(lambda s: ends(jnp.asarray(s)), 1e-4)
    assert np.abs(expected).max() > 0
    np.testing.assert_allclose(slope, expected, rtol=1e-6, atol=1e-7 * (1 + abs(expected).max()))


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_every_model_runs_from_the_command_line(name):
    result = CliRunner().invoke(cli.app, ["simulate", name, "--t1", "0.05", "--times", "3", "--json"])
    jax.config.update("jax_enable_x64", True)
    assert result.exit_code == 0, result.stderr
    figures = json.loads(result.stdout)
    assert (figures["model"], figures["t1"], figures["result"]) == (name, 0.05, "successful")
    assert figures["max_position_error"] < 1e-12
    assert figures["max_velocity_error"] < 1e-12
