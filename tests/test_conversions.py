"""Python and NumPy on values that JAX traces: one sentence says whose function it was and what to write."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.interpolate

import ukjax as uk

STATE = [0.5], [0.0]
PLACES = np.linspace(0.0, 1.0, 5)
SPLINE = scipy.interpolate.CubicSpline(PLACES, PLACES**2)
LIST = [1.0, 2.0]


# fmt: off
def _buffer(zeros, put):
    def force(t, q, v):
        f = zeros(1)
        put(f, q[0])
        return f

    return force


def _put(f, x):
    f[0] = x


FORCES = {
    "NumPy buffer": (_buffer(np.zeros, _put), r"writes into an array.*jnp.stack.*f.at\[0\].set"),
    "JAX buffer": (_buffer(jnp.zeros, _put), r"writes into an array.*jnp.stack.*f.at\[0\].set"),
    "np.interp": (lambda t, q, v: np.interp(q, PLACES, PLACES), "NumPy or SciPy.*jnp.interp for np.interp"),
    "spline": (lambda t, q, v: SPLINE(q), "Tabulated"),
    "np.sin": (lambda t, q, v: np.sin(q) @ np.asarray(q) * q, "jnp in place of np"),
    "if": (lambda t, q, v: q if q[0] > 0 else -q, "jnp.where"),
    "max": (lambda t, q, v: jnp.stack([max(q[0], 0.0)]), "jnp.maximum"),
    "math": (lambda t, q, v: jnp.array([math.sin(q[0])]), "in place of math"),
    "list": (lambda t, q, v: q * LIST[q[0].astype(int)], "place in a list"),
    "mask": (lambda t, q, v: jnp.sum(q[q > 0]) + q, "picks entries"),
}
# fmt: on


@pytest.mark.parametrize("name", FORCES)
def test_forces(name):
    force, words = FORCES[name]
    system = uk.System(jnp.eye(1), force)
    with pytest.raises(uk.InputError, match=f"the force of System .*{words}") as refused:
        uk.simulate(system, *STATE, t1=1.0)
    assert isinstance(refused.value.__cause__, TypeError | IndexError | ValueError)
    assert "\n" not in str(refused.value)


SINGLE = lambda t, q, v=None: q if q[0] > 0 else -q
CALLS = {
    "constraint 'rod'": lambda: uk.System(jnp.eye(1), -jnp.ones(1), [uk.Holonomic(SINGLE, name="rod")]),
    "constraint 'edge'": lambda: uk.System(jnp.eye(1), -jnp.ones(1), [uk.Nonholonomic(SINGLE, name="edge")]),
    "the mass matrix of System": lambda: uk.System(lambda t, q: SINGLE(t, q)[None], -jnp.ones(1)),
    "the energy of System": lambda: uk.System(
        jnp.eye(1), -jnp.ones(1), energy=lambda t, q, v: SINGLE(t, q)[0]
    ),
}


@pytest.mark.parametrize("whose", CALLS)
@pytest.mark.parametrize("transform", [lambda f: f, jax.jit])
def test_other_functions(whose, transform):
    with pytest.raises(uk.InputError, match=f"{whose} decides by a value"):
        transform(lambda: uk.simulate(CALLS[whose](), *STATE, t1=1.0).q)()


def test_an_event():
    system = uk.System(jnp.eye(1), -jnp.ones(1))
    with pytest.raises(uk.InputError, match="the event decides by a value"):
        uk.simulate(system, *STATE, t1=1.0, event=lambda t, q, v: 1.0 if q[0] > 0 else -1.0)
