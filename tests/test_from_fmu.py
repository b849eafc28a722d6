"""FMUs as forces: those that ukjax writes, put back, beside closed forms."""

import shutil
from pathlib import Path
from typing import Any

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_to_c import needs_cc

import ukjax as uk

fmpy = pytest.importorskip("fmpy", reason="pip install fmpy")
pytestmark = needs_cc

K, C = 4.0, 0.5  # a spring and a damper


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fmus")


@pytest.fixture(scope="module", params=["3.0", "2.0"])
def spring(request: Any, folder: Path) -> uk.LoadedFmu:
    """A unit mass on a spring and a damper: its acceleration is their force at its states."""
    system = uk.System(jnp.eye(1), lambda t, q, v: -K * q - C * v, labels=("x",))
    problem = uk.Problem(system, jnp.array([1.0]), jnp.zeros(1), 0.0, 1.0, name=f"spring{request.param[0]}")
    path = uk.to_fmu(
        problem, folder / f"spring{request.param}.fmu", inputs=jnp.eye(1), fmi=request.param
    ).path
    return uk.load_fmu(path, outputs=["position.x"])


def damped(x0: Any, t: Any) -> Any:
    """x'' = -K x - C x'."""
    decay, w = C / 2, np.sqrt(K - C**2 / 4)
    return x0 * jnp.exp(-decay * t) * (jnp.cos(w * t) + decay / w * jnp.sin(w * t))


def moved_by(fmu: uk.LoadedFmu, x0: Any, t1: float = 2.0, **how: Any) -> uk.Trajectory:
    force = lambda t, q, v: fmu.rates(t, jnp.concatenate([q, v]), jnp.zeros(1))[1:]
    return uk.simulate(uk.System(jnp.eye(1), force), x0, jnp.zeros(1), t1=t1, rtol=1e-10, atol=1e-10, **how)


def test_a_spring_and_damper_move_a_mass_as_the_closed_form_says(spring: uk.LoadedFmu) -> None:
    assert spring.states == ("position.x", "velocity.x")
    assert spring.outputs == ("position.x",)
    run = moved_by(spring, jnp.array([0.7]), ts=9)
    np.testing.assert_allclose(run.q[:, 0], damped(0.7, np.asarray(run.t)), atol=1e-9)


def test_derivatives_go_through_it_both_ways(spring: uk.LoadedFmu) -> None:
    force = lambda x, u: spring.rates(0.3, x, u)[1]
    at = jnp.array([0.2, -0.4]), jnp.array([0.1])
    for differentiate in (jax.jacfwd, jax.jacrev):
        by_x, by_u = jax.jit(differentiate(force, (0, 1)))(*at)
        np.testing.assert_allclose(by_x, [-K, -C], atol=1e-13)
        np.testing.assert_allclose(by_u, [1.0], atol=1e-13)


@pytest.mark.slow
def test_a_run_is_differentiated_through_it(spring: uk.LoadedFmu) -> None:
    end = lambda x0, **how: moved_by(spring, x0[None], ts=2, **how).q_end[0]
    slope = float(damped(1.0, 2.0))
    assert jax.grad(end)(jnp.asarray(0.7)) == pytest.approx(slope, abs=1e-8)
    forward = lambda x0: end(x0, adjoint=dfx.ForwardMode())
    assert jax.jvp(forward, (jnp.asarray(0.7),), (jnp.asarray(1.0),))[1] == pytest.approx(slope, abs=1e-8)


def test_its_states_are_states_of_the_system(folder: Path) -> None:
    """A filter z' = u of first order, made an FMU, integrates a speed: with it a spring, x'' = -K z, z' = x'."""
    idle = lambda t, q, v: jnp.zeros(1)
    system = uk.System(jnp.eye(1), idle, labels=("y",))
    problem = uk.Problem(system, jnp.zeros(1), jnp.zeros(1), 0.0, 1.0, name="integrator")
    fmu = uk.load_fmu(uk.to_fmu(problem, folder / "integrator.fmu", inputs=jnp.eye(1)).path)
    np.testing.assert_array_equal(fmu.start, np.zeros(2))
    # y'' = u, with u = x'': then y' = x' and y = x, seen from the FMU's own states.
    rate = lambda t, q, v, z: fmu.rates(t, z, -K * z[:1])
    force = lambda t, q, v, z: -K * fmu(t, z, jnp.zeros(1))[:1]
    joined = uk.System(jnp.eye(1), force, states=["y", "dy"], state_rate=rate)
    run = uk.simulate(
        joined, jnp.array([0.5]), jnp.array([0.0, 0.5, 0.0]), t1=2.0, ts=9, rtol=1e-10, atol=1e-10
    )
    np.testing.assert_allclose(run.q[:, 0], 0.5 * np.cos(2.0 * np.asarray(run.t)), atol=1e-8)


def test_vmap_calls_it_for_each(spring: uk.LoadedFmu) -> None:
    x = jnp.arange(6.0).reshape(3, 2)
    found = jax.vmap(lambda x: spring.rates(0.0, x, jnp.zeros(1))[1])(x)
    np.testing.assert_allclose(found, -K * x[:, 0] - C * x[:, 1], atol=1e-13)


# --- What is refused


def test_what_is_no_force_is_refused(folder: Path, spring: uk.LoadedFmu) -> None:
    floor = uk.Unilateral(lambda t, q: q[0], name="floor")
    bouncing = uk.Problem(
        uk.System(jnp.eye(1), jnp.array([-9.81]), [floor]), jnp.ones(1), jnp.zeros(1), 0.0, 1.0
    )
    path = uk.to_fmu(bouncing, folder / "bouncing.fmu").path
    with pytest.raises(uk.InputError, match="has events: a force of a system has none"):
        uk.load_fmu(path)
    with pytest.raises(uk.InputError, match="unknown variable of the FMU"):
        uk.load_fmu(folder / "spring3.0.fmu", outputs=["position.y"])
    with pytest.raises(uk.InputError, match=r"2 states, position\.x, velocity\.x"):
        spring(0.0, jnp.zeros(3), jnp.zeros(1))
    with pytest.raises(uk.InputError, match=r"no\.fmu"):
        uk.load_fmu(folder / "no.fmu")


def test_an_fmu_without_derivatives_is_not_differentiated(folder: Path) -> None:
    path = folder / "plain.fmu"
    uk.to_fmu(uk.models.pendulum(), path)
    unpacked = fmpy.extract(str(path))
    text = (Path(unpacked) / "modelDescription.xml").read_text()
    (Path(unpacked) / "modelDescription.xml").write_text(
        text.replace('providesDirectionalDerivatives="true"', "")
    )
    plain = shutil.make_archive(str(folder / "plain2"), "zip", unpacked)
    fmu = uk.load_fmu(plain)
    x = jnp.asarray(fmu.start)
    with pytest.raises(uk.InputError, match="has no directional derivatives"):
        jax.jacfwd(lambda x: fmu.rates(0.0, x))(x)
