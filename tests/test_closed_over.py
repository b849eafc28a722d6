"""Arrays that `jit` closes over have values: they may be given wherever numbers may, and wrong ones are refused."""

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
import ukjax.mechanisms as um

PENDULUM = uk.models.pendulum()
ROWS = jnp.eye(2), jnp.ones(2)
ZERO, ONE = jnp.asarray(np.zeros(())), jnp.asarray(np.ones(()))
AT, X, Y = (0.0, 0.0, 0.0), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0)


def _simulated(**options):
    fixed = {"t1": 0.02, "ts": 2, "solver": dfx.Euler(), "dt0": 0.01, "stabilizer": uk.NoStabilizer()}
    return uk.simulate(PENDULUM, **(fixed | options)).q[:2]


def _environment(dt):
    environment = uk.Environment(PENDULUM, jnp.eye(2), lambda t, q, v, u: q[1], dt=dt, horizon=2)
    return environment.step(environment.reset(jax.random.key(0)), jnp.zeros(2))[0].q


CASES = {
    "step": (lambda x: uk.step(PENDULUM, None, None, None, x), 0.1, -0.1, "dt must be a positive time"),
    "simulate": (lambda x: _simulated(dt0=x), 0.01, 0.0, "dt0 must be a positive time"),
    "end": (lambda x: _simulated(t0=ZERO, t1=x), 0.02, -1.0, "must be later than t0"),
    "times": (lambda x: _simulated(t0=ZERO, t1=ONE, ts=x), [0.0, 1.0], [1.0, 0.0], "ts must increase"),
    "environment": (_environment, 0.1, np.inf, "dt must be a positive time"),
    "alpha": (lambda x: uk.Baumgarte(x, 1.0), 1.0, -1.0, "alpha must be finite and not negative"),
    "beta": (lambda x: uk.Baumgarte.squared(1.0, x), [1.0, 2.0], [1.0, -2.0], "beta must be finite"),
    "clearance": (lambda x: uk.Recursive(clearance=x), 0.1, -0.1, "clearance of the rows must be finite"),
    "clearance of one": (lambda x: uk.Recursive(clearance={"rod": x}), 0.1, np.nan, "clearance of 'rod'"),
    "levels": (lambda x: uk.enforce_levels(jnp.zeros(2), [ROWS], [x]), 0.1, -0.1, "clearance of level 1"),
    "decay": (lambda x: uk.AnyOrderSystem(2, ROWS[0], ROWS[1], decay=x), 1.0, -1.0, "decay must be finite and not"),
    "loss": (lambda x: uk.ViolationLoss(x, x), 1.0, 0.0, "one of the weights must be positive"),
    "weights": (lambda x: uk.ViolationLoss(row_weights=x), [1.0, 0.0], [1.0, -1.0], "row_weights must be finite"),
    "planar body": (lambda x: um.PlanarBody("a", x, (0, 0), x), 1.0, 0.0, "mass of body 'a' must be greater than 0"),
    "body": (lambda x: um.Body("a", 1.0, AT, x), np.eye(3), np.diag([1.0, 1, -1]), "no negative principal moment"),
    "moments": (lambda x: um.Body("a", 1.0, AT, x), [1.0, 1, 1], [1.0, 1, 3], "triangle inequality"),
    "point mass": (lambda x: um.PointMass("a", x, AT), 1.0, np.nan, "mass of body 'a'"),
    "planar rod": (lambda x: um.rod("a", (0, 0), (1, 0), x), 1.0, -1.0, "must be greater than 0, got -1."),
    "rod": (lambda x: um.rod("a", AT, x, 1.0, radius=0.1), X, AT, "rod 'a' has no length"),
    "radius": (lambda x: um.rod("a", AT, X, 1.0, radius=x), 0.1, -0.1, "radius of rod 'a' must not be negative"),
    "box": (lambda x: um.box("a", (0, 0), x, 1.0), [1.0, 1.0], [-1.0, 1.0], "size of box 'a' must not be negative"),
    "disk": (lambda x: um.disk("a", AT, x, 1.0), 1.0, 0.0, "radius of disc 'a' must be greater than 0"),
    "axis": (lambda x: um.disk("a", AT, 1.0, 1.0, axis=x), X, AT, "axis of disc 'a' must not be the zero vector"),
    "screw": (lambda x: um.Screw("a", "b", "c", AT, X, x), -0.1, 0.0, "pitch of joint 'a' must not be 0"),
    "length": (lambda x: um.Distance("a", "b", "c", AT, X, x), 0.1, 0.0, "length of joint 'a' must be greater than 0"),
    "distance": (lambda x: um.Distance("a", "b", "c", AT, x), X, AT, "points of joint 'a' coincide"),
    "hinge": (lambda x: um.Revolute("a", "b", "c", AT, x), X, AT, "axis of joint 'a' must not be the zero vector"),
    "universal": (lambda x: um.Universal("a", "b", "c", AT, X, x), Y, AT, "child's axis of joint 'a'"),
    "rolling": (lambda x: um.Rolling("a", "b", "c", AT, (0, 0, 1), X, x), (0, 0, 1), AT, "normal of joint 'a'"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_within_jit_as_outside(name):
    make, good, bad, words = CASES[name]
    good, bad = jnp.asarray(np.asarray(good, float)), jnp.asarray(np.asarray(bad, float))
    made = lambda x: eqx.filter(make(x), eqx.is_array)
    inside, outside = jax.jit(lambda: made(good))(), made(good)
    for x, y in zip(jax.tree.leaves(inside), jax.tree.leaves(outside), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-14)
    for call in (lambda: made(bad), jax.jit(lambda: made(bad))):
        with pytest.raises(uk.InputError, match=words):
            call()
