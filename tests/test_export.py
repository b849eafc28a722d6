"""Simulations in files: run by JAX alone in another process, against the closed form; and what cannot be exported."""

import subprocess
import sys

import diffrax as dfx
import equinox as eqx
import helpers
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import oracles
import pytest

import ukjax as uk

pytest.importorskip("flatbuffers")

T = np.linspace(0.0, 1.0, 5)
ALONE = """
import sys
from pathlib import Path
import jax
import numpy as np
jax.config.update("jax_enable_x64", True)
import jax.export
run = jax.export.deserialize(bytearray(Path(sys.argv[1]).read_bytes())).call
np.savez(sys.argv[2], **run(np.array([0.6, -0.8]), np.array([0.8, 0.6])))
assert not {"ukjax", "equinox", "diffrax"} & sys.modules.keys()
"""


def _swing(q0, v0):
    problem = uk.models.pendulum()
    return uk.simulate(problem, q0, v0, t1=1.0, ts=jnp.asarray(T), solver=dfx.Tsit5(), rtol=1e-9, atol=1e-9)


def _steps(q0, v0):
    """The end of ten steps, with parameters and formula in the file."""
    system = uk.models.pendulum().system

    def body(state, t):
        return uk.step(system, t, *state, 0.02, stabilizer=uk.Baumgarte(5.0, 5.0)), None

    return jax.lax.scan(body, (q0, v0), 0.02 * jnp.arange(10.0))[0]


STATE = jnp.asarray([0.6, -0.8]), jnp.asarray([0.8, 0.6])


def test_a_simulation_runs_without_its_python(tmp_path):
    path = uk.export(_swing, tmp_path / "swing", *STATE)
    done = subprocess.run(
        [sys.executable, "-c", ALONE, path, tmp_path / "run.npz"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    run = np.load(tmp_path / "run.npz")
    angle, rate = oracles.pendulum_elliptic(run["t"], np.arctan2(0.6, 0.8), 1.0, 9.81)
    s, c = np.sin(angle), np.cos(angle)
    np.testing.assert_allclose(run["t"], T)
    np.testing.assert_allclose(run["q"], np.stack([s, -c], 1), atol=1e-7)
    np.testing.assert_allclose(run["v"], rate[:, None] * np.stack([c, s], 1), atol=1e-7)
    np.testing.assert_allclose(run["multipliers"][:, 0], -(rate**2 + 9.81 * c), atol=1e-6)
    assert run["ok"]
    np.testing.assert_allclose([run["t_end"], *run["q_end"]], [1.0, *run["q"][-1]], atol=1e-12)
    assert run["rank"].tolist() == [1] * 5


def test_a_file_holds_no_paths_of_the_machine_that_wrote_it(tmp_path):
    limit = jax.config.jax_traceback_in_locations_limit
    content = uk.export(_steps, tmp_path / "steps", *STATE).read_bytes()
    assert b".py" not in content
    assert jax.config.jax_traceback_in_locations_limit == limit


def test_a_loaded_function_is_the_function_and_has_its_derivative(tmp_path):
    """From a file for two platforms."""
    path = uk.export(_steps, tmp_path / "steps", *STATE, platforms=("cpu", "cuda"), vjp_order=1)
    assert jax.export.deserialize(bytearray(path.read_bytes())).platforms == ("cpu", "cuda")
    run = uk.load_exported(path)
    q, v = run(*STATE)
    angle, rate = oracles.pendulum_elliptic(0.2, np.arctan2(0.6, 0.8), 1.0, 9.81)
    np.testing.assert_allclose(q, [np.sin(angle), -np.cos(angle)], atol=1e-7)
    np.testing.assert_allclose(v, rate * np.array([np.cos(angle), np.sin(angle)]), atol=1e-7)
    gradient = jax.jit(jax.grad(lambda q, v: run(q, v)[0][0], argnums=1))(*STATE)
    along = jnp.asarray([0.8, 0.6])
    slope = helpers.central(lambda s: run(STATE[0], STATE[1] + s * along)[0][0])
    np.testing.assert_allclose(gradient @ along, slope, rtol=1e-9)


def test_checks_traced_before_do_not_matter(tmp_path):
    """Equinox's checks call back into Python; JAX keeps what it traced of inner functions."""

    @jax.jit
    def checked(x):
        return eqx.error_if(x, x < 0, "negative")

    f = lambda x: 2.0 * checked(x)
    assert jax.eval_shape(f, jnp.ones(())).shape == ()
    run = uk.load_exported(uk.export(f, tmp_path / "f", jnp.ones(())))
    assert run(jnp.asarray(3.0)) == 6.0
    assert jnp.isnan(run(jnp.asarray(-3.0)))


def test_missing_extras_are_named(monkeypatch, tmp_path):
    for name in ("flatbuffers", "torch", "gymnasium", "ukjax._interop._gymnasium"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(uk.MissingExtraError, match=r"export\(\) needs .* 'ukjax\[export\]'"):
        uk.export(jnp.sin, tmp_path / "no", jnp.ones(2))
    with pytest.raises(uk.MissingExtraError, match=r"to_torch\(\) needs .* 'ukjax\[torch\]'"):
        uk.to_torch(jnp.sin)
    problem = uk.models.pendulum()
    environment = uk.Environment(problem, jnp.eye(2), lambda t, q, v, u: q[1], dt=0.1, horizon=2)
    with pytest.raises(uk.MissingExtraError, match=r"gymnasium\(\) needs .* 'ukjax\[gym\]'"):
        environment.gymnasium(2, -1.0, 1.0)


def test_what_cannot_be_exported_says_so(tmp_path):
    def calls_back(x):
        return jax.pure_callback(np.sin, x, x)

    with pytest.raises(uk.InputError, match=r"cannot be exported: .*callback.*\(test_export.py, line \d+\)"):
        uk.export(calls_back, tmp_path / "no", jnp.ones(2))
    with pytest.raises(uk.InputError, match="function must be a function of arrays"):
        uk.export(uk.models.pendulum(), tmp_path / "no")
    (tmp_path / "other").write_text("something else")
    with pytest.raises(uk.InputError, match=r"is not a file written by ukjax\.export"):
        uk.load_exported(tmp_path / "other")
    path = uk.export(jnp.sin, tmp_path / "sin", jnp.ones(2))
    jax.config.update("jax_enable_x64", False)
    try:
        with pytest.raises(uk.InputError, match="takes 64-bit arguments"):
            uk.load_exported(path)
    finally:
        jax.config.update("jax_enable_x64", True)


@pytest.mark.slow
def test_a_bouncing_ball_in_a_file_bounces() -> None:
    """A system without bilateral rows, so that its projection is none: z = v t - g t^2 / 2 after the first impact."""
    floor = uk.Unilateral(lambda t, q: q[0], restitution=0.8)
    ball = uk.System(jnp.eye(1), jnp.array([-9.81]), [floor])
    run = jax.jit(lambda q: uk.simulate(ball, q, jnp.zeros(1), t1=0.6, ts=2).q[-1, 0])
    end = jax.export.export(run)(jax.ShapeDtypeStruct((1,), float)).call(jnp.ones(1))
    since = 0.6 - np.sqrt(2 / 9.81)
    assert end == pytest.approx(0.8 * np.sqrt(2 * 9.81) * since - 9.81 * since**2 / 2, abs=1e-8)


def _recurrence(length, x):
    out = []
    u, v, w = x
    for _ in range(length):
        u, v = u * v + 0.1 * w, v - 0.2 * u
        out.append(u)
    return out


def test_code_grows_as_the_program_does():
    """XLA computes a value again in each kernel that needs it: of a long program that were its square."""
    x, sizes = np.array([0.3, 0.4, 0.5]), []
    for length in (50, 100):
        program = uk.scalarize(lambda x, length=length: jnp.stack(_recurrence(length, x)))
        compiled = jax.jit(jax.export.export(jax.jit(program))(x).call).lower(x).compile()
        np.testing.assert_allclose(compiled(x), _recurrence(length, x), rtol=1e-14)
        sizes.append(len(compiled.as_text().splitlines()))
    assert sizes[1] < 2.5 * sizes[0]
