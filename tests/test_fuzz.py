"""Random systems, states and arguments: a finite answer, a code with a reason, or a named error.

Never a silent NaN, never another exception. Systems are arrays in fields, of one shape, so that all examples
share their compiled functions; what varies is the values, and which of them are spoilt.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ukjax as uk

pytestmark = pytest.mark.wrong_shapes

N = 3
NAMES = ("curve[0]", "curve[1]", "slip", "given[0]", "given[1]")


class Curve(eqx.Module):
    """Two quadratic holonomic rows, moving in time."""

    H: jax.Array
    J: jax.Array
    c: jax.Array

    def __call__(self, t, q):
        return 0.5 * jnp.einsum("kij,i,j->k", self.H, q, q) + self.J @ q - self.c * (1 + 0.1 * jnp.sin(t))


class Slip(eqx.Module):
    """One nonholonomic row, linear in v."""

    n: jax.Array
    d: jax.Array

    def __call__(self, t, q, v):
        return self.n @ v + q[0] * v[1] * self.d - self.d


class Given(eqx.Module):
    A: jax.Array
    b: jax.Array

    def __call__(self, t, q, v):
        return self.A, self.b


class Spring(eqx.Module):
    k: jax.Array
    f: jax.Array

    def __call__(self, t, q, v):
        return self.f - self.k * q - 0.1 * v


class Energy(eqx.Module):
    def __call__(self, t, q, v):
        return 0.5 * v @ v


_ENERGY = Energy()

MASSES = ("unit", "random", "huge", "tiny", "spread", "singular", "negative", "zero", "nan")
ROWS = ("full", "duplicate", "inconsistent", "zero", "huge", "tiny", "spread", "nan", "overdetermined")
STATES = (
    "normal",
    "zero",
    "large",
    "huge",
    "nan",
    "inf",
    "short",
    "matrix",
    "text",
    "none",
    "integers",
    "complex",
)
VALID_STATES = ("normal", "zero", "large", "huge", "integers")


def _mass(kind, rng):
    B = rng.normal(size=(N, N))
    M = B @ B.T + 0.1 * np.eye(N)
    match kind:
        case "unit":
            return np.eye(N)
        case "huge":
            return 1e12 * M
        case "tiny":
            return 1e-12 * M
        case "spread":
            return np.diag([1e-8, 1.0, 1e8])
        case "singular":
            return np.outer(B[0], B[0])
        case "negative":
            return M - 10 * np.eye(N)
        case "zero":
            return np.zeros((N, N))
        case "nan":
            return M * np.nan
    return M


def _constraints(kind, rng):
    """`full` has rank 2 of the five rows: the second curve, the slip and the given rows are zero."""
    H, J, c = rng.normal(size=(2, N, N)), rng.normal(size=(2, N)), rng.normal(size=2)
    n, d, A, b = rng.normal(size=N), rng.normal(), np.zeros((2, N)), np.zeros(2)
    H[1], J[1], c[1] = 0, 0, 0
    match kind:
        case "duplicate":
            H[1], J[1], c[1] = -2 * H[0], -2 * J[0], -2 * c[0]
        case "inconsistent":
            H[1], J[1], c[1] = H[0], J[0], c[0] + 1
            A, b = np.stack([n, n]), np.array([1.0, 2.0])
        case "zero":
            H, J, c, n, d = 0 * H, 0 * J, 0 * c, 0 * n, 0.0
        case "huge":
            H, J, c = 1e10 * H, 1e10 * J, 1e10 * c
        case "tiny":
            H, J, c, n, d = 1e-10 * H, 1e-10 * J, 1e-10 * c, 1e-10 * n, 1e-10 * d
        case "spread":
            n, d = 1e9 * n, 1e9 * d
            A[0], b[0] = 1e-9 * rng.normal(size=N), 1e-9
        case "nan":
            J[0, 0] = np.nan
        case "overdetermined":
            A, b = rng.normal(size=(2, N)), rng.normal(size=2)
    return (
        uk.Holonomic(Curve(jnp.asarray(H), jnp.asarray(J), jnp.asarray(c)), name="curve"),
        uk.Nonholonomic(Slip(jnp.asarray(n), jnp.asarray(d, float)), name="slip"),
        uk.AccelerationConstraint(Given(jnp.asarray(A), jnp.asarray(b)), name="given"),
    )


def _state(kind, rng):
    x = rng.normal(size=N)
    match kind:
        case "zero":
            return np.zeros(N)
        case "large":
            return 1e4 * x
        case "huge":
            return 1e200 * x
        case "nan":
            return np.where(np.arange(N) == 1, np.nan, x)
        case "inf":
            return np.where(np.arange(N) == 2, np.inf, x)
        case "short":
            return x[:2]
        case "matrix":
            return np.outer(x, x)
        case "text":
            return ["a", "b", "c"]
        case "none":
            return None
        case "integers":
            return np.arange(N)
        case "complex":
            return 1j * x
    return x


def _mostly(good, kinds):
    """Good ones more often than not, so that what comes later is reached too."""
    return st.integers(0, 6).flatmap(lambda i: st.sampled_from(good if i else kinds))


@st.composite
def examples(draw):
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    mass = _mass(draw(_mostly(("unit", "random"), MASSES)), rng)
    rows = _constraints(draw(_mostly(("full", "duplicate", "overdetermined"), ROWS)), rng)
    force = Spring(
        jnp.asarray(draw(st.sampled_from([0.0, 1.0, 1e6, -1e6])), float), jnp.asarray(rng.normal(size=N))
    )
    system = uk.System(mass, force, rows, energy=_ENERGY)
    q, v = (_state(draw(_mostly(("normal",), STATES)), rng) for _ in range(2))
    t = draw(_mostly([0.0], [0.0, 1, -5.0, 1e9, np.nan, np.inf, "now", None]))
    return system, t, q, v


MANY = pytest.mark.parametrize("share", [0.2, pytest.param(1.0, marks=pytest.mark.slow)], ids=["few", "many"])


def fuzz(count, test, **drawn):
    """Calls a test with examples."""
    to = settings(
        max_examples=round(count),
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    to(given(**drawn)(test))()


def _outcome(fn, *args, **kwargs):
    """The result, or None where it was refused by a named error of one line."""
    try:
        return fn(*args, **kwargs)
    except uk.InputError as error:
        message = str(error)
        assert message.strip()
        assert "\n" not in message, message
        return None


def _finite(tree):
    for leaf in jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array_like)):
        assert np.all(np.isfinite(leaf)), tree


@pytest.mark.parametrize(
    "formula",
    [
        uk.UdwadiaKalaba(),
        uk.UdwadiaKalaba(uk.SVD()),
        uk.Schur(uk.Greville()),
        uk.UdwadiaKalaba(uk.Cholesky()),
    ],
    ids=["default", "svd", "schur", "cholesky"],
)
@MANY
def test_acceleration(formula, share):
    fuzz(100 * share, lambda example: _finite(_outcome(formula.acceleration, *example)), example=examples())


_STABILIZERS = (uk.Projection(), uk.Baumgarte(np.float64(10.0), np.float64(100.0)))


@pytest.mark.parametrize("stabilizer", _STABILIZERS, ids=["projection", "baumgarte"])
@MANY
def test_simulate(stabilizer, share):
    fuzz(
        100 * share,
        lambda example, t1, rtol: _simulated(stabilizer, example, t1, rtol),
        example=examples(),
        t1=_mostly([0.3], [0.3, 1e-9, 1e9, 0.0, -1.0, np.nan, "end", None]),
        rtol=_mostly([1e-6], [1e-6, 1e-15, 0.0, -1.0, np.nan]),
    )


def _simulated(stabilizer, example, t1, rtol):
    system, t0, q, v = example
    run = _outcome(
        uk.simulate, system, q, v, t0=t0, t1=t1, rtol=rtol, ts=3, max_steps=20, stabilizer=stabilizer
    )
    if run is None:
        return
    if run.ok:
        assert run.result_name == "successful"
        assert run.message == ""
        _finite((run.t, run.q, run.v, run.a, run.constraint_force, run.multipliers, run.energy))
        _finite((run.position_error, run.velocity_error))
    else:
        assert run.result_name != "successful"
        assert "It stopped at t = " in run.message
        assert np.all(np.isfinite(run.q[run.t < run.t_end]))
        with pytest.raises(uk.SimulationError):
            run.raise_if_failed()


@MANY
def test_check(share):
    fuzz(175 * share, _checked, example=examples())


def _checked(example):
    report = _outcome(uk.check, *example)
    if report is None:
        return
    assert report.rows == NAMES
    assert 0 <= report.rank <= N
    assert 0 <= report.mass_rank <= N
    assert "nan" not in str(report)
    _finite((report.singular_values, report.inconsistent, report.position_error, report.velocity_error))
    if report.consistent_state is not None:
        _finite(report.consistent_state)


_rows = eqx.filter_jit(uk.constraint_rows)


@MANY
def test_project(share):
    fuzz(175 * share, _projected, example=examples())


def _projected(example):
    state = _outcome(uk.project, *example)
    if state is None:
        return
    _finite(state)
    t = jnp.asarray(0.0 if example[1] is None else example[1], float)
    rows = _rows(example[0], t, *state)
    assert np.abs(rows.position_error).max() <= 1e4 * np.finfo(float).eps
    assert np.abs(rows.velocity_error).max() <= 1e4 * np.finfo(float).eps


# The command line

_MODELS = ("pendulum", "pendulum", "pendulum", "nonsense", "")
_NUMBERS = ("0.05", "1e-6", "5", "0", "-1", "nan", "1e999", "x", "")
_OPTIONS = {
    "--set": ("length=2", "rate=1", "length=-1", "length", "=", "rate=nan", "mass=[1,2]", "mass={}", "zzz=1"),
    "--t1": _NUMBERS,
    "--dt0": _NUMBERS,
    "--rtol": _NUMBERS,
    "--atol": _NUMBERS,
    "--rcond": _NUMBERS,
    "--alpha": _NUMBERS,
    "--beta": _NUMBERS,
    "--times": ("2", "1", "0", "-3", "1.5", "x"),
    "--max-steps": ("40", "1", "0", "-1", "x"),
    "--method": ("svd", "SVD", "greville", "cholesky", "nonsense", ""),
    "--formula": ("schur", "Udwadia-Kalaba", "nonsense"),
    "--stabilizer": ("none", "baumgarte", "projection", "nonsense"),
    "--solver": ("tsit5", "euler", "nonsense", "abstractsolver"),
    "--out": ("x.npz", "x.txt", "/nowhere/x.npz", "", "\x00"),
    "--plot": ("x.pdf", "x.txt", "/nowhere/x.png"),
}
_FLAGS = ("--json", "--float32", "--save-steps", "--unknown", "--", "é")
_PAIRS = st.one_of(
    *[st.tuples(st.just(name), st.sampled_from(values)) for name, values in _OPTIONS.items()],
    st.tuples(st.sampled_from(_FLAGS)),
)


@pytest.fixture(scope="module")
def cli(tmp_path_factory):
    """The command line in this process, in a folder of its own."""
    module = pytest.importorskip("ukjax._cli._commands")
    runner = pytest.importorskip("typer.testing").CliRunner()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("cli"))
        patch.setenv("UKJAX_CACHE", "0")
        yield lambda arguments: runner.invoke(module.app, arguments)
    jax.config.update("jax_enable_x64", True)


def test_command_line(cli):
    """Exit status 0, 1 or 2; for bad input one line, and never a traceback."""
    pairs = st.lists(_PAIRS, max_size=2)
    fuzz(50, lambda model, pairs: _called(cli, model, pairs), model=st.sampled_from(_MODELS), pairs=pairs)


def _called(cli, model, pairs):
    start = ["simulate", model, "--t1", "0.05", "--max-steps", "50", "--times", "3"]
    words = [word for pair in pairs for word in pair]
    outcome = cli(start + words)
    error = outcome.exception
    assert error is None or isinstance(error, SystemExit), (words, error)
    assert outcome.exit_code in (0, 1, 2), (words, outcome.output)
    assert "Traceback" not in outcome.output
    if outcome.exit_code == 2:
        assert outcome.stderr.startswith("error: ")
        assert len(outcome.stderr.strip().splitlines()) == 1, outcome.stderr
