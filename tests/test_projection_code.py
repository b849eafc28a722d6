"""The projection of quasi-velocities as scalar code, against that on arrays, and NumPy."""

import dataclasses

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import central, rows_of

import ukjax as uk
from ukjax._misc._tolerances import nearly_dependent
from ukjax._motion._model import Model, translate_model
from ukjax._motion._solvers import end_of_step
from ukjax._system._rows import position_rows

AXIS = jax.tree_util.GetAttrKey("axis")
MODELS = {
    "spinning_top": uk.models.spinning_top,
    "jerk_point": uk.models.jerk_point,
    "rlc_network": uk.models.rlc_network,
    "flyball_governor": lambda: uk.models.flyball_governor(coordinates="absolute"),
}
SLOW = {"flyball_governor": pytest.mark.slow}


@pytest.fixture(params=[pytest.param(x, marks=SLOW.get(x, ()), id=x) for x in MODELS], scope="module")
def case(request):
    """A model by both ways, and a state off its constraints: far off, unless rows are redundant."""
    problem = MODELS[request.param]()
    model = Model(problem.system, uk.UdwadiaKalaba(), uk.Projection())
    t, rng = jnp.asarray(problem.t0), np.random.default_rng(0)
    model, said = translate_model(model, dfx.Tsit5(), t, problem.q0, problem.v0, automatic=True)
    assert "projected by" in said, said
    off = 1e-6 if request.param == "flyball_governor" else 1e-3
    q, v = (np.asarray(x) + off * rng.normal(size=x.shape) for x in (problem.q0, problem.v0))
    errors = tuple(1e-3 * rng.normal(size=x.shape) for x in (q, v))
    return model, dataclasses.replace(model, projection=None), (t, q, v), errors


def test_states(case):
    code, arrays, (t, q, v), errors = case
    found, expected = (jax.jit(lambda m=m: end_of_step(m, t, (q, v), errors))() for m in (code, arrays))
    for x, y in zip(found[0], expected[0], strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=1e-9)
    rows = rows_of(code.system, t, *found[0])
    np.testing.assert_allclose(rows.position_error, 0.0, atol=1e-13)
    np.testing.assert_allclose(rows.velocity_error, 0.0, atol=1e-12)


@eqx.filter_jit
def _directions(system, t, q, v):
    """Of q' = N v, and of rows on positions."""
    return jax.jacfwd(system.kinematics, argnums=2)(t, q, v), jax.jacfwd(position_rows, argnums=2)(
        system, t, q
    )


def test_errors(case):
    """Less their parts along nearly dependent rows: e - N M^-1 A^T (S^+ - (S + delta^2 diag S)^-1) J e, by NumPy."""
    code, _, (t, q, v), errors = case
    (after, rate), found, _ = jax.jit(lambda: end_of_step(code, t, (q, v), errors))()
    rows = rows_of(code.system, t, after, rate)
    known = np.array(rows.kinds) != "acceleration"
    A, kinds = np.asarray(rows.A)[known], np.array(rows.kinds)[known]
    M = np.asarray(code.system.mass_matrix(t, after))
    N, J = jax.device_get(_directions(code.system, t, jnp.asarray(q), jnp.asarray(v)))
    of_q = A[kinds != "nonholonomic"], J, N, found[0], errors[0]
    for rows, along, into, e, given in (of_q, (A, A, np.eye(len(M)), found[1], errors[1])):
        S = rows @ np.linalg.solve(M, rows.T)
        damped = S + nearly_dependent(S.dtype) ** 2 * np.diag(np.diag(S))
        weak = (
            (np.linalg.pinv(S, 1e-9, hermitian=True) - np.linalg.pinv(damped, 1e-12, hermitian=True))
            @ along
            @ given
        )
        expected = given - into @ np.linalg.solve(M, rows.T @ weak)
        np.testing.assert_allclose(e, expected, rtol=0, atol=5e-3 * abs(given).max())


def test_derivatives(case):
    """By state and parameters along one direction, against central differences of the projection on arrays.

    Axes stay: rows are redundant only while they are parallel and of unit length.
    """
    code, arrays, (t, q, v), _ = case
    parameters, rest = eqx.partition(code.system, eqx.is_inexact_array)
    rng = np.random.default_rng(1)
    d = jax.tree.map(lambda x: 1e-2 * rng.normal(size=np.shape(x)), (q, v))

    def ends(model, s):
        grown = lambda path, x: x if path[-1] == AXIS else x * (1 + 1e-3 * s)
        grown = jax.tree_util.tree_map_with_path(grown, parameters)
        model = dataclasses.replace(model, system=eqx.combine(grown, rest))
        return jnp.concatenate(end_of_step(model, t, (q + s * d[0], v + s * d[1]), None)[0])

    slope = jax.jit(lambda s: jax.jvp(lambda s: ends(code, s), (s,), (jnp.ones(()),))[1])(jnp.zeros(()))
    other = jax.jit(lambda s: ends(arrays, s))
    exact = central(lambda s: other(jnp.asarray(s)))
    np.testing.assert_allclose(slope, exact, rtol=0, atol=1e-6 * (1 + abs(exact).max()))
    back = jax.jit(jax.grad(lambda s: jnp.sum(ends(code, s) ** 2)))(jnp.zeros(()))
    np.testing.assert_allclose(back, 2 * ends(code, jnp.zeros(())) @ slope, rtol=1e-9)
