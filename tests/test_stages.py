"""Large steps of linkages whose rows are dependent on their constraints, and turn apart at the stages of a step."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import central

import ukjax as uk

LINKAGES = {"bennett": uk.models.bennett(), "bricard": uk.models.bricard()}
# Steps of 0.02 and 0.04 s, and what they may change the energy by: their truncation, by convergence at smaller steps.
STEPS = {"Heun": (dfx.Heun(), 20, 5e-3), "Tsit5": (dfx.Tsit5(), 10, 1e-8)}


def run(problem, solver, count, formula=None, growth=0.0):
    return uk.simulate(
        *(problem.system, problem.q0, problem.v0 * (1 + growth)),
        **{"t1": 0.4, "dt0": 0.4 / count, "ts": 2, "max_steps": count + 1, "formula": formula},
        solver=solver,
        stepsize_controller=dfx.ConstantStepSize(),
    )


@pytest.mark.parametrize("way", ["at once", "jit", "vmap"])
@pytest.mark.parametrize("solver", STEPS)
@pytest.mark.parametrize("linkage", ["bennett", pytest.param("bricard", marks=pytest.mark.slow)])
def test_energy_stays(linkage, solver, way):
    """Taken for independent, a dependent row stops the one motion there is: half of the velocity was lost in a step."""
    problem, (solver, count, bound) = LINKAGES[linkage], STEPS[solver]
    end = lambda growth: (lambda r: (r.q[-1], r.v[-1]))(run(problem, solver, count, growth=growth))
    if way == "at once":
        q, v = end(0.0)
    elif way == "jit":
        q, v = jax.jit(end)(jnp.zeros(()))
    else:
        q, v = (x[0] for x in jax.jit(jax.vmap(end))(jnp.zeros(2)))
    energy = lambda q, v: float(problem.system.energy(0.0, q, v))
    assert abs(energy(q, v) - energy(problem.q0, problem.v0)) < bound


@pytest.mark.parametrize("linkage", ["bennett", pytest.param("bricard", marks=pytest.mark.slow)])
def test_derivatives_of_large_steps(linkage):
    problem, (solver, count, _) = LINKAGES[linkage], STEPS["Heun"]
    end = lambda growth: run(problem, solver, count, growth=growth).q[-1][0]
    pushed = jax.jit(lambda s: jax.jvp(end, (s,), (jnp.ones(()),)))
    expected = central(lambda s: pushed(jnp.asarray(s))[0], 1e-3)
    np.testing.assert_allclose(jax.jit(jax.grad(end))(0.0), expected, rtol=1e-6)
    np.testing.assert_allclose(pushed(jnp.zeros(()))[1], expected, rtol=1e-6)
