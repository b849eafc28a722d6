"""The same numbers on a GPU as on the CPU. Run with `pytest -m gpu`; skipped where there is none."""

from typing import Any

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from ukjax._compiler._gpu._call import kernels_run

pytestmark = pytest.mark.gpu
METHODS = [uk.SVD(), uk.CompleteOrthogonal(), uk.Greville(), uk.HouseholderQR(), uk.GramSchmidt()]
WAYS: dict[str, dict[str, Any]] = {
    "adaptive": {},
    "fixed": {"solver": dfx.Tsit5(), "stepsize_controller": dfx.ConstantStepSize(), "dt0": 0.002},
}


def _on(platform: str, function, *arguments):
    with jax.default_device(jax.devices(platform)[0]):
        return jax.tree.map(np.asarray, function(*arguments))


def test_kernels_run() -> None:
    """XLA's custom call takes PTX, and the card computes what it says: else operations of XLA take its place."""
    assert kernels_run()


@pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__)
def test_batch_of_accelerations(method):
    problem = uk.models.parallelogram()
    angles = np.linspace(0.2, 1.4, 4096)

    def accelerations():
        def at(angle):
            q, v = problem.system.state(angle, 1.0)
            return uk.UdwadiaKalaba(method).acceleration(problem.system, 0.0, q, v).a

        return jax.jit(jax.vmap(at))(jnp.asarray(angles))

    np.testing.assert_allclose(_on("gpu", accelerations), _on("cpu", accelerations), rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", sorted(uk.models.MODELS))
def test_every_model_runs(name):
    def end():
        trajectory = uk.simulate(uk.models.get(name), t1=0.2)
        return trajectory.q[-1], trajectory.constraint_force[-1]

    for gpu, cpu in zip(_on("gpu", end), _on("cpu", end), strict=True):
        np.testing.assert_allclose(gpu, cpu, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("x64", [True, False], ids=["float64", "float32"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", sorted(uk.models.MODELS))
def test_batches_of_runs(name: str, way: str, x64: bool) -> None:
    """Saved states and steps of a thousand runs; some end early, since they may take no more than some steps."""

    def runs():
        problem = uk.models.get(name)
        span = 0.02 * (problem.t1 - problem.t0)

        def one(scale):
            given = problem.system, problem.q0, scale * problem.v0
            times = {"t0": problem.t0, "t1": problem.t0 + span, "ts": 5, "max_steps": 25, "throw": False}
            options = {k: x * span * 20 if k == "dt0" else x for k, x in WAYS[way].items()}
            run = uk.simulate(*given, **times, **options)
            return run.q, run.v, run.stats["num_steps"], jax.tree.leaves(run.result)[0]

        return jax.jit(jax.vmap(one))(jnp.linspace(0.3, 1.5, 1000))

    with jax.enable_x64(x64):
        q, v, steps, codes = _on("gpu", runs)
        expected = _on("cpu", runs)
    same = steps == expected[2]  # where rounding decides whether a step is accepted, they may differ
    assert same.mean() > 0.95
    np.testing.assert_array_equal(codes[same], expected[3][same])
    tolerance = 1e-8 if x64 else 1e-3
    for found, want in zip((q, v), expected[:2], strict=True):
        scale = max(1.0, np.max(np.abs(want), initial=0.0, where=np.isfinite(want)))
        np.testing.assert_allclose(found[same], want[same], rtol=0, atol=tolerance * scale)


def test_sweeps() -> None:
    """In chunks, over all devices there are, as in one chunk on the CPU."""
    angles = np.linspace(0.1, 1.5, 1001)
    run = lambda **options: uk.sweep(
        uk.models.pendulum,
        {"angle": angles},
        t1=1.0,
        ts=3,
        outputs=("q_end", "steps"),
        progress=False,
        **options,
    )
    found, want = run(devices=jax.devices("gpu"), chunk=200), run(devices=jax.devices("cpu")[:1])
    np.testing.assert_allclose(found["q_end"], want["q_end"], rtol=0, atol=1e-9)


def test_derivatives() -> None:
    """In both modes."""

    def slopes():
        def end(angle, **options):
            return uk.simulate(uk.models.pendulum(angle=angle), t1=0.5, ts=2, **options).q[-1]

        forward = jax.vmap(lambda x: jax.jvp(lambda x: end(x, adjoint=dfx.ForwardMode()), (x,), (1.0,))[1])
        reverse = jax.vmap(jax.grad(lambda x: end(x).sum()))
        angles = jnp.linspace(0.1, 1.0, 64)
        return forward(angles), reverse(angles)

    for gpu, cpu in zip(_on("gpu", slopes), _on("cpu", slopes), strict=True):
        np.testing.assert_allclose(gpu, cpu, rtol=0, atol=1e-7)


@pytest.mark.parametrize("x64", [True, False], ids=["float64", "float32"])
def test_programs_of_scalars(x64: bool) -> None:
    """Loops that each member ends, arrays that are indexed, and both modes of derivatives."""

    def root(x):
        step = lambda y: 0.5 * (y + x / y)
        y = jax.lax.fori_loop(0, jnp.int32(40 * x[0]), lambda i, y: step(y), x + 1)
        array = jnp.zeros(300, x.dtype).at[:3].set(y)
        return jax.lax.fori_loop(0, 600, lambda i, a: a.at[i % 300].add(0.1 * a[(i * 7) % 300]), array)[:9]

    def derivatives():
        loss = lambda x: jnp.sum(jnp.sin(uk.scalarize(root)(x)))
        x = jnp.linspace(0.1, 3.0, 3000).reshape(1000, 3)
        forward = jax.vmap(lambda x: jax.jvp(loss, (x,), (x,)))(x)
        return forward, jax.vmap(jax.grad(loss))(x), jax.vmap(jax.hessian(loss))(x[:100])

    with jax.enable_x64(x64):
        pairs = zip(*(jax.tree.leaves(_on(p, jax.jit(derivatives))) for p in ("gpu", "cpu")), strict=True)
        for gpu, cpu in pairs:
            tolerance = 1e-10 if x64 else 1e-3
            np.testing.assert_allclose(gpu, cpu, rtol=tolerance, atol=tolerance * np.abs(cpu).max())
