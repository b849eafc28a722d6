"""The same numbers on a GPU as on the CPU. Run with `pytest -m gpu`; skipped where there is none."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk

pytestmark = pytest.mark.gpu
METHODS = [uk.SVD(), uk.CompleteOrthogonal(), uk.Greville(), uk.HouseholderQR(), uk.GramSchmidt()]


def _on(platform: str, function, *arguments):
    with jax.default_device(jax.devices(platform)[0]):
        return jax.tree.map(np.asarray, function(*arguments))


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
