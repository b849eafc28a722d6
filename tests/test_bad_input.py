"""Arguments that cannot be meant: each gives an `InputError` of one line that names the cause."""

import multiprocessing
import os

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import pytest

import ukjax as uk
import ukjax.mechanisms as um

pytestmark = pytest.mark.wrong_shapes
NAN, INF = float("nan"), float("inf")
ROD = uk.Holonomic(lambda t, q: 0.5 * (jnp.dot(q, q) - 1), name="rod")  # one, so that systems share programs


def _pendulum(**parts):
    """A pendulum with one part replaced by something wrong."""
    parts = {
        "mass_matrix": jnp.eye(2),
        "force": jnp.asarray([0.0, -9.81]),
        "constraints": [ROD],
    } | parts
    return uk.System(**parts)


GOOD = _pendulum()
TWICE = _pendulum(
    constraints=[
        uk.Holonomic(lambda t, q: 0.5 * (jnp.dot(q, q) - 1), name="rod"),
        uk.Holonomic(lambda t, q: jnp.dot(q, q) - 1, name="same rod"),
    ]
)
Q0, V0 = np.array([1.0, 0.0]), np.zeros(2)
BOTH = ("acceleration", "simulate")


def _call(door, system=GOOD, q=Q0, v=V0, *, t0=0.0, formula=None, **options):
    formula = uk.UdwadiaKalaba() if formula is None else formula
    match door:
        case "acceleration":
            return formula.acceleration(system, t0, q, v, **options)
        case "simulate":
            return uk.simulate(system, q, v, **({"t0": t0, "t1": 1.0, "formula": formula} | options))
        case "project":
            return uk.project(system, t0, q, v)
        case "check":
            return uk.check(system, t0, q, v)
        case "rows":
            return uk.constraint_rows(system, t0, jnp.asarray(q), jnp.asarray(v))


def _refused(words, fn, *args, **kwargs):
    with pytest.raises(uk.InputError) as error:
        fn(*args, **kwargs)
    message = str(error.value)
    assert "\n" not in message
    for word in words if isinstance(words, tuple) else (words,):
        assert word in message, message


def test_what_is_refused_below_is_good_but_for_one_thing():
    for door in ("acceleration", "simulate", "project", "check", "rows"):
        _call(door)


ALL = ("acceleration", "simulate", "project", "check")


@pytest.mark.parametrize("door", ALL)
@pytest.mark.parametrize(
    ("q", "v", "words"),
    [
        (np.ones((1, 2)), V0, ("q has shape (1, 2)", "vector")),
        (Q0, np.zeros((2, 1)), ("v has shape (2, 1)", "vector")),
        (np.float64(1.0), V0, "q has shape ()"),
        ([], [], "v has no entries"),
        (np.ones(3), V0, ("q has 3 entries", "v has 2")),
        (Q0, np.zeros(1), "v has 1"),
        ([1.0, NAN], V0, ("q must be finite", "nan")),
        (Q0, [INF, 0.0], ("v must be finite", "inf")),
        (Q0 * 1j, V0, ("q must be real", "complex")),
        (Q0, V0 * 1j, "v must be real"),
        (Q0.astype(jnp.bfloat16), V0.astype(jnp.bfloat16), ("float32 or float64", "bfloat16")),
        (Q0.astype(jnp.float16), V0.astype(jnp.float16), ("float32 or float64", "float16")),
        (np.array(["1.0", "0.0"]), V0, "q must be an array of numbers"),
        ("upright", V0, "q must be an array of numbers"),
        (Q0, [[0.0], [0.0, 1.0]], "v must be an array of numbers"),
        (Q0, {"v": 1.0}, "v must be an array of numbers"),
        (None, None, "an initial state is needed"),
        (Q0, None, "an initial state is needed"),
    ],
)
def test_states(door, q, v, words):
    _refused(words, _call, door, q=q, v=v)


@pytest.mark.parametrize("door", ALL)
@pytest.mark.parametrize(
    ("t", "words"),
    [
        (NAN, "must be finite"),
        (INF, "must be finite"),
        (np.zeros(2), "it must be a scalar"),
        ("now", "must be an array of numbers"),
        (1j, "must be real"),
    ],
)
def test_times(door, t, words):
    _refused(words, _call, door, t0=t)


@pytest.mark.parametrize("door", ALL)
@pytest.mark.parametrize("system", [None, "pendulum", uk.System, uk.models.pendulum, 3.0, {}])
def test_systems(door, system):
    _refused("expected a system or a Problem", _call, door, system=system)


@pytest.mark.parametrize("door", ALL)
@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"mass_matrix": jnp.ones(2)}, ("mass matrix has shape (2,)", "(2, 2)")),
        ({"mass_matrix": jnp.eye(3)}, ("mass matrix has shape (3, 3)", "(2, 2)")),
        ({"force": jnp.zeros(3)}, ("force has shape (3,)", "(2,)")),
        ({"force": lambda t, q, v: jnp.zeros((2, 1))}, ("force has shape (2, 1)", "(2,)")),
        ({"nonideal_force": lambda t, q, v: jnp.zeros(1)}, ("non-ideal force has shape (1,)", "(2,)")),
        ({"kinematics": lambda t, q, v: jnp.zeros(3)}, ("kinematics", "(3,)", "(2,)")),
        (
            {"constraints": [uk.Holonomic(lambda t, q: jnp.ones((1, 1)) * q[0], name="wall")]},
            ("constraint 'wall'", "(1, 1)"),
        ),
        (
            {"constraints": [uk.Nonholonomic(lambda t, q, v: jnp.outer(v, v), name="skid")]},
            ("constraint 'skid'", "(2, 2)"),
        ),
        (
            {"constraints": [uk.AccelerationConstraint(lambda t, q, v: (jnp.eye(3), q), name="rows")]},
            ("constraint 'rows'", "(3, 3)", "(k, 2)"),
        ),
        (
            {"constraints": [uk.AccelerationConstraint(lambda t, q, v: (jnp.eye(2), q[0]), name="rows")]},
            ("constraint 'rows'", "b of shape ()", "(k,)"),
        ),
        ({"mass_matrix": lambda t, q: None}, ("mass matrix", "numbers", "None")),
        ({"force": lambda t, q, v: None}, ("force", "numbers", "None")),
        (
            {"constraints": [uk.Holonomic(lambda t, q: None, name="forgotten")]},
            ("constraint 'forgotten'", "numbers", "None"),
        ),
        ({"constraints": [uk.Nonholonomic(lambda t, q, v: 3, name="three")]}, ("'three'", "real numbers")),
    ],
    ids=lambda x: next(iter(x)) if isinstance(x, dict) else "",
)
def test_shapes_of_what_a_system_returns(door, parts, words):
    if door == "project" and parts.keys() & {"force", "nonideal_force"}:
        pytest.skip("a projection asks for no force")
    _refused(words, _call, door, system=_pendulum(**parts))


def test_an_energy_is_a_number():
    _refused(
        ("energy has shape (2,)", "scalar"), _call, "simulate", system=_pendulum(energy=lambda t, q, v: v)
    )


@pytest.mark.parametrize("door", BOTH)
@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"mass_matrix": jnp.diag(jnp.asarray([1.0, NAN]))}, "mass matrix is not finite"),
        ({"force": jnp.asarray([0.0, INF])}, "force is not finite"),
        ({"nonideal_force": lambda t, q, v: NAN * q}, "non-ideal force is not finite"),
        (
            {"constraints": [uk.Holonomic(lambda t, q: jnp.sqrt(q[1]), name="rooted")]},
            ("rooted", "not finite"),
        ),
    ],
    ids=lambda x: next(iter(x)) if isinstance(x, dict) else "",
)
def test_values_that_are_not_finite(door, parts, words):
    stabilizer = {"stabilizer": uk.NoStabilizer()}
    _refused(words, _call, door, system=_pendulum(**parts), **stabilizer)


@pytest.mark.parametrize("door", BOTH)
@pytest.mark.parametrize("formula", [uk.UdwadiaKalaba(), uk.Schur()])
@pytest.mark.parametrize("mass", [jnp.diag(jnp.asarray([1.0, 0.0])), -jnp.eye(2)])
def test_mass_matrices_that_are_not_positive_definite(door, formula, mass):
    words = ("not positive definite", type(formula).__name__)
    _refused(words, _call, door, system=_pendulum(mass_matrix=mass), formula=formula)


@pytest.mark.parametrize("door", BOTH)
@pytest.mark.parametrize("formula", [uk.UdwadiaKalaba, uk.Schur])
def test_cholesky_on_redundant_rows(door, formula):
    words = ("rod, same rod", "only 1 are independent", "CompleteOrthogonal or SVD")
    _refused(words, _call, door, system=TWICE, formula=formula(uk.Cholesky()))


def test_projection_by_cholesky_on_redundant_rows():
    stabilizer = uk.Projection(uk.Cholesky())
    _refused(("rod", "same rod"), _call, "simulate", system=TWICE, stabilizer=stabilizer)


def test_inconsistent_constraints_are_named():
    rows = [
        uk.Nonholonomic(lambda t, q, v: v[0] - t, name="faster"),
        uk.Nonholonomic(lambda t, q, v: v[0] + t, name="slower"),
        uk.Nonholonomic(lambda t, q, v: v[1], name="apart"),
    ]
    system = _pendulum(constraints=rows)
    for stabilizer in (uk.Projection(), uk.NoStabilizer()):
        with pytest.raises(uk.InputError) as error:
            _call("simulate", system=system, stabilizer=stabilizer)
        assert "faster, slower" in str(error.value)
        assert "apart" not in str(error.value)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"t1": None}, "an end time t1 is needed"),
        ({"t1": 0.0}, "t1 = 0.0 must be later than t0 = 0.0"),
        ({"t1": -1.0}, "must be later"),
        ({"t1": NAN}, "t1 must be finite"),
        ({"t1": INF}, "t1 must be finite"),
        ({"t1": "late"}, "t1"),
        ({"t1": 1j}, "t1"),
        ({"t1": np.ones(2)}, ("t1", "scalar")),
        ({"ts": [0.0, 0.5, 0.4]}, "ts must increase"),
        ({"ts": [0.0, 0.5, 0.5]}, "ts must increase"),
        ({"ts": [0.0, 1.5]}, "ts must increase within t0 = 0.0 and t1 = 1.0"),
        ({"ts": [-0.5, 0.5]}, "ts must increase within"),
        ({"ts": [0.0, NAN]}, "ts must be finite"),
        ({"ts": np.ones((2, 2))}, ("ts has shape (2, 2)", "vector")),
        ({"ts": []}, ("ts has shape (0,)", "vector")),
        ({"ts": "all"}, ("'steps'", "'all'")),
        ({"ts": 1}, ("number of times ts", "at least 2, got 1")),
        ({"ts": -3}, ("number of times ts", "at least 2, got -3")),
        ({"ts": 0.5}, "ts has shape ()"),
        ({"ts": ["a", "b"]}, "ts"),
        ({"dt0": 0.0}, "dt0 must be a positive time"),
        ({"dt0": -0.1}, "dt0 must be a positive time"),
        ({"dt0": NAN}, "dt0 must be a positive time"),
        ({"dt0": INF}, "dt0 must be a positive time"),
        ({"dt0": "small"}, "dt0"),
        ({"solver": dfx.Euler()}, ("Euler", "dt0")),
        ({"stepsize_controller": dfx.ConstantStepSize()}, ("Dopri8", "dt0")),
        ({"rtol": 0.0}, "rtol must lie between 0 and 1"),
        ({"rtol": -1e-6}, "rtol must lie between 0 and 1"),
        ({"atol": NAN}, "atol must lie between 0 and 1"),
        ({"rtol": INF}, "rtol must lie between 0 and 1"),
        ({"rtol": "tight"}, "rtol"),
        ({"max_steps": 0}, "max_steps must be an integer of at least 1"),
        ({"max_steps": -5}, "max_steps must be an integer of at least 1"),
        ({"max_steps": True}, "max_steps must be an integer of at least 1"),
        ({"max_steps": 2.5}, "max_steps"),
        ({"max_steps": None}, "max_steps"),
        ({"solver": "Tsit5"}, "solver"),
        ({"solver": dfx.Tsit5}, "solver"),
        ({"stabilizer": uk.Projection}, "stabilizer"),
        ({"stabilizer": 10.0}, "stabilizer"),
        ({"formula": uk.SVD()}, "formula"),
        ({"formula": uk.UdwadiaKalaba}, "formula"),
        ({"event": 0.5}, "event"),
        ({"event": lambda q: q[0]}, ("event", "(t, q, v)", "(q)")),
        ({"event": lambda t, q, v: q}, ("event", "(2,)", "scalar")),
        ({"event": lambda t, q, v: None}, ("event", "None")),
        ({"solver": dfx.SemiImplicitEuler(), "dt0": 0.1}, ("SemiImplicitEuler", "Tsit5")),
        ({"solver": dfx.HalfSolver(dfx.KenCarp4())}, ("HalfSolver", "Tsit5")),
        ({"stepsize_controller": 1e-6}, "stepsize_controller"),
        ({"adjoint": "reverse"}, "adjoint"),
        ({"progress": "yes"}, "progress must be something like True"),
    ],
    ids=lambda x: "-".join(f"{k}={v}"[:24] for k, v in x.items()) if isinstance(x, dict) else "",
)
def test_options_of_simulate(options, words):
    _refused(words, uk.simulate, GOOD, Q0, V0, **({"t1": 1.0} | options))


def test_a_problem_needs_no_more():
    problem = uk.models.pendulum()
    _refused("must be later", uk.simulate, problem, t0=30.0)
    _refused("q has shape (1, 2)", uk.simulate, problem, np.ones((1, 2)))


# Gains, thresholds, methods


@pytest.mark.parametrize("make", [uk.Baumgarte, uk.Baumgarte.squared])
@pytest.mark.parametrize(
    ("gains", "words"),
    [
        ((-1.0, 1.0), ("alpha", "not negative")),
        ((1.0, -1.0), ("beta", "not negative")),
        ((NAN, 1.0), ("alpha", "finite")),
        ((1.0, INF), ("beta", "finite")),
        ((1.0, np.array([1.0, -2.0])), ("beta", "not negative")),
        ((np.ones((2, 2)), 1.0), ("alpha", "(2, 2)")),
        (("stiff", 1.0), "alpha"),
        ((1.0, None), "beta"),
        ((1j, 1.0), "alpha"),
    ],
)
def test_gains(make, gains, words):
    _refused(words, make, *gains)


@pytest.mark.parametrize("door", BOTH)
def test_gains_of_the_wrong_length_name_the_rows(door):
    words = ("alpha", "(3,)", "2 rows rod, same rod")
    _refused(words, _call, door, system=TWICE, stabilizer=uk.Baumgarte(np.ones(3), 1.0))


@pytest.mark.parametrize(
    "method", [uk.SVD, uk.CompleteOrthogonal, uk.Greville, uk.HouseholderQR, uk.GramSchmidt, uk.Cholesky]
)
@pytest.mark.parametrize("rcond", [0.0, -1e-4, 1.0, 7.0, NAN, INF, "small", 1j])
def test_rcond(method, rcond):
    _refused("rcond must be a number between 0 and 1", method, rcond=rcond)


@pytest.mark.parametrize("formula", [uk.UdwadiaKalaba, uk.Schur, uk.Projection])
@pytest.mark.parametrize("method", [uk.SVD, "SVD", None, 1e-4])
def test_pseudoinverses(formula, method):
    _refused("pseudoinverse method must be one of Cholesky()", formula, method)


def test_pinv_takes_any_method_but_no_class():
    B = jnp.asarray([[1.0, 2.0, 0.0], [0.0, 1.0, 1.0]])
    found = uk.pinv(B, lx.SVD(rcond=1e-4))
    np.testing.assert_allclose(found.matrix, np.linalg.pinv(B), atol=1e-14)
    _refused("pseudoinverse method must be one of Cholesky()", uk.pinv, B, uk.SVD)


@pytest.mark.parametrize("rcond", [0.0, -1.0, NAN, 1.0, "x"])
def test_rcond_of_check(rcond):
    _refused("rcond", uk.check, GOOD, 0.0, Q0, V0, rcond=rcond)


@pytest.mark.parametrize("tolerance", [-1.0, NAN, "x"])
def test_tolerance_of_project(tolerance):
    project = lambda q: uk.project(GOOD, 0.0, q, V0, tolerance=tolerance)
    _refused("tolerance must lie between", project, Q0)
    _refused("tolerance must lie between", jax.jit(project), Q0)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: uk.Recursive(clearance="a"), "the clearance of the rows must be an array of numbers"),
        (lambda: uk.Recursive(clearance={"rod": None}), "the clearance of 'rod' must be an array of numbers"),
        (lambda: uk.AnyOrderSystem(2, np.eye(2), np.ones(2), decay=np.ones(2)), "decay has shape (2,)"),
        (lambda: uk.AnyOrderSystem(2, np.eye(2), np.ones(2), decay=INF), "decay must be finite"),
        (lambda: uk.ViolationLoss(window=3), "window must be a start and a later end in seconds, got 3"),
        (lambda: uk.ViolationLoss(window="ab"), "window must be a start"),
        (lambda: uk.ViolationLoss(window=(0, 1, 2)), "window must be a start"),
        (lambda: uk.ViolationLoss(np.ones(2)), "position has shape (2,); it must be a scalar"),
        (lambda: uk.ViolationLoss(row_weights=1.0), "row_weights has shape (); it must be a vector"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_what_is_made_of_numbers(make, words):
    _refused(words, make)


@pytest.mark.parametrize(
    ("dt", "words"),
    [
        ("0.1", "dt must be an array of numbers"),
        (INF, "dt must be a positive time"),
        (NAN, "dt must be a positive time"),
        (0.0, "dt must be a positive time"),
        (np.ones(2), "dt must be a positive time"),
        (1j, "dt must be real"),
    ],
)
def test_steps_of_time(dt, words):
    _refused(words, uk.step, GOOD, 0.0, Q0, V0, dt)
    reward = lambda t, q, v, u: q[0]
    sample = lambda key: (Q0, V0)
    _refused(words, uk.Environment, GOOD, np.eye(2), reward, dt=dt, horizon=2, sample=sample)
    if np.ndim(dt):  # a shape is known of a tracer too
        _refused(words, jax.jit(lambda dt: uk.step(GOOD, 0.0, Q0, V0, dt)), dt)


# Constraints and systems


@pytest.mark.parametrize("kind", [uk.Holonomic, uk.Nonholonomic, uk.AccelerationConstraint])
@pytest.mark.parametrize("fn", [None, 1.0, "rod"])
def test_constraints_need_functions(kind, fn):
    _refused("function", kind, fn, name="rod")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: uk.Holonomic(lambda q: q[0], name="rod"), ("constraint 'rod'", "(t, q)", "takes (q)")),
        (lambda: uk.Nonholonomic(lambda t, q: q[0], name="skid"), ("constraint 'skid'", "(t, q, v)")),
        (lambda: uk.OfOrder(1, lambda t, q: q[0], name="rate"), ("constraint 'rate'", "(t, q0, q1)")),
        (lambda: uk.Holonomic(lambda t, q: q[0], name=3), ("name", "3")),
        (lambda: _pendulum(mass_matrix=lambda q: jnp.eye(2)), ("mass matrix", "(t, q)")),
        (lambda: _pendulum(energy=lambda q, v: q[0]), ("energy", "(t, q, v)")),
        (lambda: uk.lagrangian_system(lambda q, v: v @ v), ("lagrangian", "(t, q, v)")),
    ],
)
def test_functions_of_other_arguments(make, words):
    _refused(words, make)


def test_functions_that_take_more():
    """By default values, or any number of them; of a class; and one of which Python knows no signature."""

    class Circle:
        def __call__(self, t, q, radius=1.0):
            return jnp.dot(q, q) - radius**2

    for fn in (Circle(), lambda *state: state[1][0], jax.jit(lambda t, q: q[0]), max):
        uk.Holonomic(fn, name="any")


def test_what_a_trajectory_cannot_do(tmp_path):
    run = uk.simulate(GOOD, Q0, V0, t1=0.1, dense=True, solver=dfx.Heun(), dt0=0.05)
    _refused(("t has shape (2,)", "vmap"), run.evaluate, jnp.zeros(2))
    _refused((".png", "run.xyz"), run.plot, tmp_path / "run.xyz")


@pytest.mark.parametrize(
    "constraints",
    [lambda t, q: q[0], [lambda t, q: q[0]], "rod", [uk.Holonomic], [None], 3],
    ids=["function", "functions", "text", "class", "None", "number"],
)
def test_systems_need_constraints(constraints):
    _refused("constraint", uk.System, jnp.eye(2), jnp.zeros(2), constraints)


def test_one_constraint_without_a_tuple():
    """A single constraint is not a sequence of constraints: named, not a stray TypeError."""
    rod = uk.Holonomic(lambda t, q: q[0], name="rod")
    _refused("constraints", uk.System, jnp.eye(2), jnp.zeros(2), rod)


@pytest.mark.parametrize(
    ("mass", "force", "words"),
    [("heavy", np.zeros(2), "mass"), (np.eye(2), "push", "force"), (np.eye(2) * 1j, np.zeros(2), "mass")],
)
def test_systems_of_numbers(mass, force, words):
    _refused(words, lambda: _call("acceleration", system=uk.System(mass, force)))


def test_integer_states_and_matrices_are_meant():
    """Integers are numbers: the same as floats."""
    system = uk.System(np.eye(2, dtype=int), np.array([0, -2]), GOOD.constraints)
    expected = uk.System(np.eye(2), np.array([0.0, -2.0]), GOOD.constraints)
    a, b = (uk.UdwadiaKalaba().acceleration(s, 0, [1, 0], [0, 1]).a for s in (system, expected))
    np.testing.assert_allclose(a, b, atol=1e-14)
    np.testing.assert_allclose(a, [-1.0, -2.0], atol=1e-14)


def test_models():
    _refused(("unknown model 'pendulm'", "did you mean 'pendulum'"), uk.models.get, "pendulm")
    words = ("unknown parameter", "'lenght'", "did you mean 'length'")
    _refused(words, uk.models.get, "pendulum", lenght=2.0)
    _refused("unknown model", uk.models.get, "")
    _refused("unknown model", uk.models.get, None)


@pytest.mark.parametrize("formula", [None, uk.UdwadiaKalaba(), uk.RangeForm()])
def test_a_mass_matrix_with_one_triangle(formula):
    system = uk.System(lambda t, q: jnp.array([[2.0, q[0]], [0.0, 1.0]]), np.ones(2))
    words = "not symmetric", "M[0, 1] = 0.5", "M[1, 0] = 0.0"
    _refused(words, uk.simulate, system, [0.5, 0.0], [0.0, 0.0], t1=1.0, formula=formula)


@pytest.mark.parametrize("formula", [None, uk.RangeForm()])
@pytest.mark.parametrize("solver_arrays", [False, True])
def test_a_mass_matrix_with_one_triangle_within_jit(formula, solver_arrays):
    """The same run that is refused outside; one that becomes so is told outside, too."""
    force = lambda t, q, v: jnp.array([0.0, -9.81]) + (jnp.sort(q) if solver_arrays else 0 * q)

    def run(c, upper):
        M = lambda t, q: jnp.stack([jnp.stack([2.0 + 0 * c, c]), jnp.stack([c - upper, 1.0 + 0 * c])])
        return uk.simulate(uk.System(M, force), np.zeros(2), np.zeros(2), t1=0.1, formula=formula)

    known = jax.jit(lambda *x: run(*x).result)
    assert known(0.5, 0.0) == uk.RESULTS.successful
    assert known(0.5, 1e-9) == uk.RESULTS.mass_matrix_not_symmetric
    later = uk.System(lambda t, q: jnp.eye(2) + jnp.array([[0.0, 0.5], [0.0, 0.0]]) * t, force)
    found = uk.simulate(later, np.zeros(2), np.zeros(2), t1=0.1, formula=formula)
    assert found.result_name == "mass_matrix_not_symmetric"
    assert "not symmetric" in found.message
    assert not found.ok


def test_steps_and_accelerations_by_a_mass_matrix_with_one_triangle():
    ball = lambda gaps: uk.System(lambda t, q: jnp.array([[2.0, 0.5], [0.0, 1.0]]), np.ones(2), gaps)
    floor = uk.Unilateral(lambda t, q: q[0] + 1.0)
    for system in (ball([]), ball([floor])):
        for y in uk.step(system, 0.0, np.zeros(2), np.zeros(2), 0.1):
            assert np.all(np.isnan(y))
    given = ball([]), 0.0, np.zeros(2), np.zeros(2)
    _refused(("not symmetric", "M[0, 1] = 0.5"), uk.UdwadiaKalaba().acceleration, *given)


# Functions of the user


def _raises(*arguments, **keywords):
    raise KeyError("stiffness")


class _Arm(uk.AbstractSystem):
    """Its constraints name a parameter that is not there."""

    constraints: tuple = ()

    def mass_matrix(self, t, q):
        return jnp.eye(2)

    def force(self, t, q, v):
        return self.stiffness * q


def _system_of(**parts):
    return lambda: uk.check(_pendulum(**parts), 0.0, Q0, V0)


def _environment(**parts):
    options = {"reward": lambda t, q, v, u: q[0], "dt": 0.01, "horizon": 3, "sample": lambda key: (Q0, V0)}
    return uk.Environment(GOOD, np.eye(2), **(options | parts))


def _start():
    return uk.EnvironmentState(
        jnp.zeros(()), jnp.asarray(Q0), jnp.asarray(V0), jnp.asarray(0), jax.random.key(0)
    )


def _sweep(outputs=None, **options):
    problem = uk.Problem(GOOD, Q0, V0, 0.0, 0.1)
    return uk.sweep(problem, {"q0[0]": [1.0]}, outputs=outputs, ts=2, solver=dfx.Tsit5(), **options)


def _tune(system, loss):
    return uk.tune(system, {"k": 1.0}, loss, t1=0.1, dt0=0.1, starts=0, iterations=0)


PROBLEM = uk.Problem(GOOD, Q0, V0, 0.0, 0.1)


@pytest.mark.parametrize(
    ("call", "whose"),
    [
        (_system_of(mass_matrix=lambda t, q: _raises()), "the mass matrix of System"),
        (_system_of(force=lambda t, q, v: _raises()), "the force of System"),
        (_system_of(nonideal_force=lambda t, q, v: _raises()), "the non-ideal force of System"),
        (_system_of(kinematics=lambda t, q, v: _raises()), "`kinematics` of System"),
        (lambda: uk.check(_Arm(), 0.0, Q0, V0), "the force of _Arm raised AttributeError"),
        (_system_of(constraints=[uk.Holonomic(lambda t, q: _raises(), name="rod")]), "constraint 'rod'"),
        (
            _system_of(constraints=[uk.Nonholonomic(lambda t, q, v: _raises(), name="skid")]),
            "constraint 'skid'",
        ),
        (_system_of(constraints=[uk.AccelerationConstraint(_raises, name="rows")]), "constraint 'rows'"),
        (
            lambda: uk.project(_pendulum(energy=lambda t, q, v: _raises()), 0.0, Q0, V0),
            "the energy of System",
        ),
        (lambda: uk.check(uk.lagrangian_system(_raises), 0.0, Q0, V0), "the lagrangian"),
        (
            lambda: uk.servo_control(GOOD, _raises, [uk.Holonomic(lambda t, q: q[0])], 0.0, Q0, V0),
            "input_matrix",
        ),
        (lambda: uk.simulate(PROBLEM, event=lambda t, q, v: _raises(), ts=2), "the event"),
        (lambda: uk.sweep(_raises, {"x": [1.0]}), "_raises"),
        (lambda: _sweep({"last": _raises}), "output last"),
        (lambda: _tune(_raises, uk.ViolationLoss()), "the function of the gains"),
        (lambda: _tune(lambda k: PROBLEM, lambda run: _raises()), "the loss"),
        (lambda: _environment(sample=lambda key: _raises()).reset(jax.random.key(0)), "sample"),
        (lambda: _environment(observe=lambda t, q, v: _raises()).observation(_start()), "observe"),
        (lambda: uk.export(_raises, "never", np.ones(2)), "function"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_what_a_function_raises_names_the_function(call, whose):
    with pytest.raises(uk.InputError) as error:
        call()
    message = str(error.value)
    assert whose in message
    assert "raised" in message
    assert "stiffness" in message
    causes, cause = [], error.value
    while cause := cause.__cause__:
        causes.append(type(cause))
    assert causes[-1] in (KeyError, AttributeError)


# Whatever else is no such argument


class _Thing:
    """No argument of anything."""


HUGE = 10**30
THINGS = (None, "text", _Thing(), {"a": 1.0}, [None], 1j, np.array(["a"]), b"ab", lambda: 1.0)
STRANGE = (
    "\0",
    np.array(object()),
    np.array(["\0"]),
    jax.random.key(0),
    int,
    10**400,
    [[1.0], [1.0, 2.0]],
)
FUNCTIONS = (
    _raises,
    max,
    int,
    lambda *of: None,
    lambda *of: "text",
    lambda *of: HUGE,
    lambda *of: {"a": 1.0},
)
BLOCK = um.box("block", (0.5, 0.0, 0.0), (1.0, 0.1, 0.1), 20.0)
DOOR = um.tree(
    [um.box("leaf", (0.5, 0.0), (1.0, 0.1), 20.0)], [um.Revolute("hinge", um.GROUND, "leaf", (0.0, 0.0))]
)
GAP = lambda t, q: q[0]
URDF = (
    '<robot name="r"><link name="a"/><link name="b"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" '
    'ixy="0" ixz="0" iyz="0"/></inertial></link><joint name="j" type="continuous"><parent link="a"/><child link="b"/>'
    '<axis xyz="0 0 1"/></joint></robot>'
)
FOLDERS = ("", ".", "..", "no/such\0name", "x" * 5_000, None, 3, b"run", ["run"])


def test_truth_values_and_masks_are_no_numbers():
    """NumPy would take True as 1, and forget that an entry is not there."""
    masked = np.ma.array([1.0, 2.0], mask=[True, False])
    for name, call, values in (
        ("t1", lambda x: uk.simulate(PROBLEM, t1=x), [True, np.True_, jnp.array(True)]),
        ("t", lambda x: uk.simulate(PROBLEM, t0=x), [True]),
        ("ts", lambda x: uk.simulate(PROBLEM, ts=x), [masked, [False, True]]),
        ("q0", lambda x: uk.Problem(GOOD, x, V0, 0.0, 1.0), [masked, [True, False]]),
        ("rcond", lambda x: uk.SVD(rcond=x), [True, np.True_]),
        ("friction", lambda x: uk.Unilateral(GAP, friction=x), [True]),
        ("position", uk.ViolationLoss, [True]),
        ("values of x", lambda x: uk.Table({"x": x}), [masked]),
        ("size", lambda x: _look(size=x), [np.ma.array([1.0, 2.0, 3.0], mask=True)]),
    ):
        for value in values:
            with pytest.raises(uk.InputError, match=name):
                call(value)
    whole = np.ma.array([0.0, -1.0], mask=False)  # nothing is lost of one without a mask
    np.testing.assert_array_equal(uk.Problem(GOOD, whole, V0, 0.0, 1.0).q0, [0.0, -1.0])


def _joined(kind, *more):
    """The door in space, on a joint of some kind."""
    return um.problem(um.assemble([BLOCK], [kind("joint", um.GROUND, "block", (0.0, 0.0, 0.0), *more)]))


def _slips(slip):
    contact = uk.Unilateral(GAP, friction=0.2, slip=slip)
    return uk.check(_pendulum(constraints=[contact]), 0.0, [0.0, 0.0], V0)


def _look(**parts):
    return um.Visual("block", "box", **({"size": (1.0, 1.0, 1.0)} | parts))


def _level(level):
    return uk.at_level(GOOD, [["rod"]], level)


@pytest.mark.parametrize(
    ("name", "call", "values"),
    [
        ("stabilizer", lambda x: uk.check(GOOD, 0.0, Q0, V0, stabilizer=x), THINGS),
        ("stabilizer", lambda x: uk.UdwadiaKalaba().acceleration(GOOD, 0.0, Q0, V0, stabilizer=x), THINGS),
        ("constraints", lambda x: uk.constraint_rows(x, 0.0, Q0, V0), THINGS),
        ("t", lambda x: uk.constraint_rows(GOOD, x, Q0, V0), [x for x in THINGS if x is not None]),
        ("q0", lambda x: uk.Problem(GOOD, x, V0, 0.0, 1.0), THINGS),
        ("energy", lambda x: _pendulum(energy=x), [x for x in THINGS if x is not None]),
        ("kinematics", lambda x: _pendulum(kinematics=x), [x for x in THINGS if x is not None]),
        ("B", lambda x: uk.pinv(x, uk.SVD()), [x for x in THINGS if not isinstance(x, complex)]),
        ("levels", lambda x: uk.Recursive(x), [3, 1.5, "rod", _Thing(), [None], [3], lambda: 1.0]),
        ("levels", uk.orthogonal_projectors, [None, 3, "rod", _Thing(), {"a": 1}, lambda: 1.0]),
        ("level", _level, [None, -1, 7, 1.5, "1", True, HUGE]),
        ("system", lambda x: uk.at_level(x, [["rod"]], 1), THINGS),
        ("system", lambda x: uk.with_servo(x, np.eye(2), [uk.Holonomic(lambda t, q: q[0])]), THINGS),
        ("input_matrix", lambda x: uk.with_servo(GOOD, x, [uk.Holonomic(lambda t, q: q[0])]), THINGS),
        ("servo_constraints", lambda x: uk.with_servo(GOOD, np.eye(2), x), THINGS),
        ("order", lambda x: uk.OfOrder(x, lambda t, *q: q[0]), [*THINGS, -1, HUGE, 1.5]),
        (
            "constraints",
            lambda x: uk.AnyOrderSystem(2, np.eye(2), np.zeros(2), x),
            [3, None, "rod", [3], _Thing()],
        ),
        ("angle", lambda x: uk.models.pendulum(angle=x), [*THINGS, HUGE, 10**400, NAN]),
        ("trajectory", lambda x: uk.passages(x, system=GOOD), THINGS),
        ("dense", lambda x: uk.simulate(PROBLEM, dense=x), [*THINGS, 0, 1]),
        ("throw", lambda x: uk.simulate(PROBLEM, throw=x), [*THINGS, 0, 1]),
        ("max_steps", lambda x: uk.simulate(PROBLEM, max_steps=x), [*THINGS, HUGE]),
        ("ts", lambda x: uk.simulate(PROBLEM, ts=x), [HUGE, *THINGS[1:]]),
        ("t", lambda x: uk.simulate(PROBLEM, t0=x), [10**400, *THINGS[1:]]),
        (
            "params",
            uk.Grid,
            [{n: [1.0]} for n in (".", "..", "zarr.json", "", "a/b", "__x", "a\n", 3, "x" * 300)],
        ),
        ("values of x", lambda x: uk.Table({"x": x}), [*THINGS[:3], [10**400], 1.0, []]),
        ("outputs", _sweep, [3, 1.5, _Thing(), [3]]),
        ("output", _sweep, [{"zarr.json": len}, {3: len}, {None: len}]),
        ("outputs", lambda x: uk.sweep(lambda x: x, {"x": [1.0]}, outputs=x), [3, _Thing(), [3]]),
        ("result", lambda x: uk.sweep(lambda p: {x: p}, {"p": [1.0]}), ["result"]),
        ("output", lambda x: uk.sweep(lambda p: {x: p}, {"p": [1.0]}), [".", "..", "zarr.json", "a/b"]),
        ("output", lambda x: _sweep({"x": lambda run: x}), ["text", _Thing(), {"a": "b"}, ["a"], 1j]),
        ("result", lambda x: _sweep({x: lambda run: run.q}), ["result"]),
        ("gradients", lambda x: _sweep(gradients=x), [None, 3, [3], _Thing(), b"q_end"]),
        ("devices", lambda x: _sweep(devices=x), ["cpu", 3, [], [None], _Thing()]),
        ("chunk", lambda x: _sweep(chunk=x), [0, -1, 1.5, "all", HUGE, True]),
        ("overwrite", lambda x: _sweep(overwrite=x), THINGS),
        ("store", lambda x: _sweep(store=x), [x for x in FOLDERS[:4] if x is not None]),
        (
            "checkpoint",
            lambda x: uk.tune(PROBLEM, uk.Baumgarte(1.0, 1.0), dt0=0.1, checkpoint=x),
            FOLDERS[6:],
        ),
        ("aggregate", lambda x: uk.tune(PROBLEM, uk.Baumgarte(1.0, 1.0), aggregate=x), THINGS),
        ("convention", lambda x: uk.tune(PROBLEM, uk.Baumgarte(1.0, 1.0), dt0=0.1, convention=x), THINGS),
        ("per_row", lambda x: uk.tune(PROBLEM, uk.Baumgarte(1.0, 1.0), dt0=0.1, per_row=x), THINGS),
        ("t1", lambda x: uk.tune(PROBLEM, uk.Baumgarte(1.0, 1.0), t1=x), [10**400, *THINGS[1:], np.ones(2)]),
        ("position", uk.ViolationLoss, [*THINGS, 10**400]),
        ("key", lambda x: _environment().reset(x), [*THINGS, 0, np.ones(3)]),
        ("state", lambda x: _environment().step(x, np.zeros(2)), THINGS),
        ("state", lambda x: _environment().observation(x), THINGS),
        (
            "action",
            lambda x: _environment().step(_start(), x),
            ["text", _Thing(), b"ab", lambda: 1.0, [1.0], HUGE],
        ),
        ("auto_reset", lambda x: _environment().step(_start(), np.zeros(2), auto_reset=x), THINGS),
        (
            "sample",
            lambda x: _environment(sample=lambda key: x).reset(jax.random.key(0)),
            [None, 3, "q", (Q0,)],
        ),
        ("sample", lambda x: _environment(sample=x), THINGS),
        (
            "platforms",
            lambda x: uk.export(jnp.sin, "never", Q0, platforms=x),
            [None, 3, "cpux", ["x"], [None]],
        ),
        ("vjp_order", lambda x: uk.export(jnp.sin, "never", Q0, vjp_order=x), [*THINGS, -1, HUGE, INF, 1.5]),
        ("argument", lambda x: uk.export(jnp.sin, "never", x), ["text", _Thing(), b"ab", lambda: 1.0, HUGE]),
        ("function", lambda x: uk.export(lambda q: x, "never", Q0), ["text", _Thing(), lambda: 1.0]),
        ("path", lambda x: uk.export(jnp.sin, x, Q0), FOLDERS[:4] + FOLDERS[5:]),
        ("rates", lambda x: um.problem(DOOR, rates=x), [*THINGS[1:3], *THINGS[4:], np.ones(2), ""]),
        ("name", lambda x: um.problem(DOOR, name=x), [*THINGS[2:], np.ones(2)]),
        ("t1", lambda x: uk.Problem(GOOD, Q0, V0, 0.0, x), [*THINGS, 10**400, np.ones(2)]),
        ("system", um.input_matrix, THINGS),
        ("joints", lambda x: um.tree(DOOR.bodies, x), THINGS),
        ("loops", lambda x: um.tree(DOOR.bodies, DOOR.joints, loops=x), THINGS),
        ("loads", lambda x: um.tree(DOOR.bodies, DOOR.joints, x), THINGS),
        ("radius", lambda x: um.rod("leaf", (0.0, 0.0), (1.0, 0.0), 1.0, x), [*THINGS, -1.0, np.ones(2)]),
        ("direction", lambda x: uk.Event(lambda t, q, v: q[0], x), [*THINGS[1:], True, np.ones(2)]),
        ("restitution", lambda x: uk.Unilateral(GAP, restitution=x), [*THINGS, 10**400, np.ones((2, 2))]),
        ("friction", lambda x: uk.Unilateral(GAP, friction=x), [*THINGS, 10**400]),
        ("limit", lambda x: uk.DryFriction(lambda t, q, v: v[0], x), [*THINGS, 10**400]),
        ("contact", lambda x: uk.simulate(PROBLEM, contact=x), [*THINGS[1:], np.ones(2)]),
        ("kind", lambda x: uk.Tabulated([0.0, 1.0], [0.0, 1.0], kind=x), [*THINGS, np.ones(2)]),
        ("start_tolerance", lambda x: uk.simulate(PROBLEM, start_tolerance=x), [*THINGS[1:], -(10**400)]),
        ("q", lambda x: uk.analysis.equilibrium(DOOR, q=x), [*THINGS[1:], np.ones(7), np.ones((2, 2))]),
        ("t", lambda x: uk.analysis.mass_properties(DOOR, t=x), [*THINGS[1:], 10**400]),
        ("body", lambda x: uk.analysis.mass_properties(DOOR, bodies=x), THINGS[1:]),
        ("body", lambda x: uk.analysis.jacobian(DOOR, x), [*THINGS, np.ones(2)]),
        ("reward", lambda x: _environment(reward=lambda *of: x).step(_start(), np.zeros(2)), [*THINGS]),
        ("done", lambda x: _environment(done=lambda *of: x).step(_start(), np.zeros(2)), [*THINGS]),
        ("names", uk.bench, [*THINGS[2:3], 1j, THINGS[-1], 3, np.ones(2)]),
        ("", uk.load_exported, FOLDERS),
        ("", uk.Trajectory.load, FOLDERS),
        ("dt0", lambda x: uk.simulate(PROBLEM, dt0=x), [x for x in STRANGE if x is not int]),
        ("rtol", lambda x: uk.simulate(PROBLEM, rtol=x), STRANGE),
        ("start_tolerance", lambda x: uk.simulate(PROBLEM, start_tolerance=x), STRANGE[:-2]),
        (
            "energy",
            lambda x: uk.simulate(_pendulum(energy=x), Q0, V0, t1=0.1),
            [lambda *of: 1j, *FUNCTIONS[4:]],
        ),
        (
            "force",
            lambda x: uk.check(_pendulum(force=x), 0.0, Q0, V0),
            [lambda t, q, v: 1j * q, *FUNCTIONS[3:]],
        ),
        ("slip", _slips, [lambda t, q, v: 1j, *FUNCTIONS]),
        ("names", lambda x: uk.DryFriction(lambda t, q, v: v[0], 1.0, names=x), STRANGE[1:-1]),
        ("levels", uk.Recursive, STRANGE[1:2]),
        ("clearances", lambda x: uk.enforce_levels(V0, [(np.eye(2), V0)], x), STRANGE[1:2]),
        ("ranks", lambda x: uk.null_space_bases([np.eye(2)], ranks=x), [*THINGS[1:], *STRANGE]),
        ("eta", lambda x: uk.StackedForm(eta=x), [*THINGS[1:], *STRANGE, 1.0, np.eye(2)]),
        (
            "eta",
            lambda x: uk.StackedForm(eta=x).acceleration(GOOD, 0.0, Q0, V0),
            [np.ones(3), []],
        ),
        ("rcond", lambda x: uk.Lineax(lx.SVD(), x), [*THINGS[1:], *STRANGE]),
        ("R", uk.zyz_angles, [*THINGS, *STRANGE, np.eye(2)]),
        ("angles", uk.zyz_rotation, [*THINGS, *STRANGE, np.ones(2)]),
        ("takes", lambda x: uk.sweep(x, {"x": [1.0]}), [int]),
        ("t1", lambda x: uk.tune(PROBLEM, uk.Baumgarte(1.0, 1.0), dt0=0.1, t1=x), [1e30, HUGE]),
        ("length", lambda x: _joined(um.Distance, (1.0, 0.0, 0.0), x), [*FUNCTIONS]),
        ("joint", lambda x: _joined(um.Distance, (1.0, 0.0, 0.0), x), [lambda t: NAN]),
        ("surface", lambda x: _joined(um.Guide, x), FUNCTIONS),
        ("path", lambda x: _joined(um.PathMotion, x), FUNCTIONS),
        ("coordinates", lambda x: um.assemble([BLOCK], coordinates=x), [*THINGS, *STRANGE, np.ones(7)]),
        ("size", lambda x: _look(size=x), [*THINGS, *STRANGE]),
        ("position", lambda x: _look(position=x), [*THINGS, *STRANGE]),
        ("colour", lambda x: _look(colour=x), [*THINGS[1:], *STRANGE]),
        ("rotation", lambda x: _look(rotation=x), [*THINGS[1:], *STRANGE]),
        ("system", lambda x: um.contact_frames(x, 0.0, Q0), THINGS),
        ("q", lambda x: um.contact_frames(DOOR, 0.0, x), [*THINGS, *STRANGE, np.ones(7)]),
        ("strict", lambda x: uk.load(URDF, strict=x), [*THINGS, np.ones(2), 1]),
        ("free_base", lambda x: uk.load(URDF, free_base=x), [*THINGS, np.ones(2), 1]),
        ("merge_fixed", lambda x: uk.load(URDF, merge_fixed=x), [*THINGS, np.ones(2), 1]),
        ("contact", lambda x: uk.load(URDF, contact=x), STRANGE[:2]),
        ("ctrl", lambda x: uk.load(URDF, ctrl=x), [int, *THINGS[1:8]]),
        ("", uk.load, FOLDERS),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_things_that_are_no_such_argument(name, call, values):
    for value in values:
        with pytest.raises(uk.InputError) as error:
            call(value)
        assert "\n" not in str(error.value)
        assert name in str(error.value) or name == "params"


def test_paths_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "folder.npz").mkdir()
    (tmp_path / "mine.zarr").mkdir()
    (tmp_path / "mine.zarr" / "notes").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    run = uk.simulate(PROBLEM, ts=2, solver=dfx.Tsit5())
    for name in ("file/run.npz", "file/run.nc", "file/run.zarr", "absent/run.npz", "folder.npz", "mine.zarr"):
        with pytest.raises(uk.InputError, match=name.split("/")[-1]):
            run.save(tmp_path / name)
    for name in ("file/run.png", "absent/run.svg"):
        with pytest.raises(uk.InputError, match="cannot be written"):
            run.plot(tmp_path / name)
    for name in ("link", "file/runs", "file"):
        with pytest.raises(uk.InputError, match=name.split("/")[-1]):
            uk.sweep(lambda x: x, {"x": [1.0]}, store=tmp_path / name)
    for name in ("link", "absent", "folder.npz", "file"):
        with pytest.raises(uk.InputError, match=name):
            uk.load_exported(tmp_path / name)
    assert {x.name for x in tmp_path.iterdir()} == {"file", "folder.npz", "mine.zarr", "link"}
    assert (tmp_path / "mine.zarr" / "notes").exists()


def _in_a_child(kind):
    if kind == "simulate":
        return uk.simulate(PROBLEM, ts=2)
    return uk.sweep(lambda x: x, {"x": [1.0]})


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning", "ignore:.*use of fork:DeprecationWarning")
@pytest.mark.parametrize("kind", ["simulate", "sweep"])
def test_a_forked_process_says_so_instead_of_waiting(kind):
    with multiprocessing.get_context("fork").Pool(1) as pool, pytest.raises(uk.InputError, match="'spawn'"):
        pool.apply_async(_in_a_child, (kind,)).get(timeout=20)


class _Reads(uk.AbstractSystem):
    place: int = eqx.field(static=True)
    of: str = eqx.field(static=True)

    def mass_matrix(self, t, q):
        return jnp.eye(2) * (q[self.place] if self.of == "mass" else 1.0)

    def force(self, t, q, v):
        return jnp.ones(2) * (v[self.place] if self.of == "force" else 0.0)

    @property
    def constraints(self):
        read = lambda t, q: q[self.place if self.of == "constraint" else 0]
        return (uk.Holonomic(read, name="rod"),)


@pytest.mark.parametrize("of", ["mass", "force", "constraint"])
@pytest.mark.parametrize("place", [5, -3])
def test_places_that_are_not_there(of, place):
    """JAX would take the nearest entry."""
    system, state = _Reads(place, of), (jnp.zeros(2), jnp.zeros(2))
    with pytest.raises(uk.InputError, match=rf"reads entry {place} of an axis of 2"):
        uk.simulate(system, *state, t0=0.0, t1=0.1)
    with pytest.raises(uk.InputError, match=rf"reads entry {place} of an axis of 2"):
        uk.step(system, 0.0, *state, 0.1)


def test_loops_may_leave_the_last_place_out():
    """`lax.scan` over i with x[i + 1], which is not used in the last pass, is right."""

    class Chain(_Reads):
        def force(self, t, q, v):
            i = jnp.arange(2)
            following = jax.lax.map(lambda i: jnp.where(i + 1 < 2, q[i + 1], 0.0), i)
            return following

    run = uk.simulate(Chain(0, ""), jnp.array([0.0, 0.5]), jnp.zeros(2), t0=0.0, t1=0.1)
    np.testing.assert_allclose(run.q[-1], [0.0, 0.5], atol=1e-12)


def test_a_misspelt_parameter_of_a_model():
    """The name that is given, and the one that is meant."""

    def spring(stiffness, damping=0.1):
        system = uk.System(np.eye(1), lambda t, q, v: -stiffness * q - damping * v)
        return uk.Problem(system, np.ones(1), np.zeros(1), 0.0, 1.0)

    seen = uk.Recording(np.linspace(0.1, 1.0, 9), np.ones((9, 1)))
    with pytest.raises(uk.InputError, match="'stifness'; did you mean 'stiffness'"):
        uk.identify(spring, seen, {"stifness": 4.0})
    with pytest.raises(uk.InputError, match="'stifness'; did you mean 'stiffness'"):
        uk.sweep(spring, {"stifness": [4.0, 5.0]})
    with pytest.raises(uk.InputError, match="spring needs stiffness"):
        uk.identify(spring, seen, {"damping": 0.2})


def _springs(k):
    """Each function that needs numbers, of a spring whose stiffness may have none."""
    system = uk.System(np.eye(1), lambda t, q, v: -k * q)
    problem = uk.Problem(system, np.ones(1), np.zeros(1), 0.0, 1.0)
    return {
        "plan": lambda: uk.plan(problem, lambda t, q, v, u: u @ u, inputs=[[1.0]], steps=2),
        "tune": lambda: uk.tune(problem, uk.Baumgarte(1.0, 1.0)),
        "sweep": lambda: uk.sweep(problem, {"q0[0]": [1.0]}),
        "Recording": lambda: uk.Recording(np.ones(1), k * np.ones(1)),
        "to_c": lambda: uk.to_c(problem, "never written"),
        "to_fmu": lambda: uk.to_fmu(problem, "never written"),
        "to_page": lambda: uk.to_page(problem, "never written"),
    }


@pytest.mark.parametrize("transform", [jax.jit, jax.grad])
@pytest.mark.parametrize("name", _springs(1.0))
def test_what_needs_numbers_says_so_where_there_are_none(name, transform):
    def f(k):
        _springs(k)[name]()
        return k

    with pytest.raises(uk.InputError, match=f"{name} needs numbers"):
        transform(f)(2.0)
