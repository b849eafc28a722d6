"""Problems and trajectories between processes: pickled and copied, they are what they were."""

import copy
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor

import jax
import numpy as np
import pytest

import ukjax as uk
import ukjax.mechanisms as um

WAYS = {"pickle": lambda x: pickle.loads(pickle.dumps(x)), "copy": copy.copy, "deepcopy": copy.deepcopy}


class Nested(uk.AbstractSystem):
    """Its force is a method of another module."""

    inner: uk.AbstractSystem
    pull: object

    def mass_matrix(self, t, q):
        return self.inner.mass_matrix(t, q)

    def force(self, t, q, v):
        return self.pull(t, q, v)  # pyright: ignore[reportCallIssue]

    @property
    def constraints(self):
        return self.inner.constraints


def _nested() -> uk.Problem:
    pendulum = uk.models.pendulum()
    system = Nested(pendulum.system, pendulum.system.force)
    return uk.Problem(system, pendulum.q0, pendulum.v0, 0.0, 1.0, pendulum.points, name="nested")


def same(a, b) -> None:
    assert type(a) is type(b)
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        if isinstance(x, jax.Array | np.ndarray):
            assert (x.dtype, x.shape) == (y.dtype, y.shape)
            np.testing.assert_array_equal(x, y)
        else:
            assert x == y or callable(x)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["pendulum", "scara", "bricard", "flyball_governor"])
def test_problems(way, name):
    problem = getattr(uk.models, name)()
    same(WAYS[way](problem), problem)


@pytest.mark.parametrize("way", WAYS)
def test_methods_of_other_modules(way):
    problem = _nested()
    found = WAYS[way](problem)
    same(found, problem)
    state = 0.0, problem.q0, problem.v0
    np.testing.assert_array_equal(found.system.force(*state), problem.system.force(*state))


@pytest.fixture(scope="module")
def run() -> uk.Trajectory:
    return uk.simulate(uk.models.pendulum(), t1=0.2, dense=True)


@pytest.mark.parametrize("way", WAYS)
def test_trajectories(way, run):
    """With their problem and options: what asks for them still answers."""
    found = WAYS[way](run)
    same(found, run)
    assert found.summary() == run.summary()
    assert found.made.by == run.made.by
    np.testing.assert_array_equal(found.evaluate(0.1), run.evaluate(0.1))
    np.testing.assert_allclose(np.linalg.norm(found.points()["mass"], axis=1), 1.0, atol=1e-8)


def _swing(length: float) -> uk.Trajectory:
    jax.config.update("jax_enable_x64", True)
    return uk.simulate(uk.models.pendulum(length=length), t1=0.2)


@pytest.mark.slow
def test_from_a_pool_of_processes():
    lengths = [0.5, 2.0]
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        runs = list(pool.map(_swing, lengths))
    for length, found in zip(lengths, runs, strict=True):
        np.testing.assert_allclose(np.linalg.norm(found.q, axis=1), length, atol=1e-8)
        same(found.q, _swing(length).q)


@pytest.mark.parametrize("way", WAYS)
def test_mechanisms_with_contacts(way):
    bodies = [um.PlanarBody("ball", 1.0, (0.0, 1.0), 0.1)]
    floor = um.Contact(
        um.Sphere("ball", (0.0, 1.0), 0.1), um.HalfSpace("ground", (0.0, 0.0)), restitution=0.5
    )
    problem = um.problem(um.assemble(bodies, [], [um.Gravity((0.0, -9.81))], contacts=[floor]))
    same(WAYS[way](problem), problem)
