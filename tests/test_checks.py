"""Equinox's checks in programs: those of times go, since `simulate` has made them; a user's stay, or become NaN."""

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxpr_as_fun

import ukjax as uk
from ukjax._misc._jax_programs import diffrax_called, nan_for_errors


def positive(x):
    return eqx.error_if(x, x < 0, "negative")


def thrown(t1, force):
    """How high a ball is that is thrown up from the floor, when it comes down or at the end."""
    problem = uk.Problem(uk.System(jnp.eye(1), force), jnp.zeros(1), jnp.array([5.0]), 0.0, 1.0)
    return uk.simulate(problem, t1=t1, event=below_the_floor, throw=False).q_end[0]


def below_the_floor(t, q, v):
    return q[0] + 1e-3


def weight(t, q, v):
    return jnp.array([-10.0])


class WeightBelow(eqx.Module):
    """With a check, and a limit that one program takes."""

    limit: jax.Array

    def __call__(self, t, q, v):
        return weight(t, q, v) + 0 * positive(self.limit - q)


def test_runs_with_events_call_nothing_back() -> None:
    text = str(jax.make_jaxpr(lambda t1: thrown(t1, weight))(jnp.asarray(0.5)))
    assert "scalars[" in text
    assert "callback" not in text


@pytest.mark.parametrize("name", ["scan", "while", "cond", "jit", "vmap", "custom_jvp", "custom_vjp"])
def test_checks_become_nan_wherever_they_are(name: str) -> None:
    rule, other = jax.custom_jvp(positive), jax.custom_vjp(positive)
    rule.defjvp(lambda x, dx: (positive(x[0]), 7.0 * dx[0]))
    other.defvjp(lambda x: (positive(x), None), lambda _, dx: (7.0 * dx,))
    places = {
        "scan": lambda x: jax.lax.scan(lambda y, _: (positive(y), None), x, length=2)[0],
        "while": lambda x: jax.lax.while_loop(lambda y: jnp.abs(y) < 4, lambda y: 2 * positive(y), x),
        "cond": lambda x: jax.lax.cond(jnp.abs(x) > 0.5, positive, lambda y: y, x),
        "jit": jax.jit(positive),
        "vmap": lambda x: jax.vmap(positive)(jnp.stack([x, x]))[1],
        "custom_jvp": rule,
        "custom_vjp": other,
    }
    run = jaxpr_as_fun(nan_for_errors(jax.make_jaxpr(places[name])(1.0)))
    (right,), (wrong,) = run(2.0), run(-2.0)
    assert right == places[name](2.0)
    assert np.isnan(wrong)
    if name.startswith("custom"):
        assert jax.grad(lambda x: run(x)[0])(2.0) == 7.0
    elif name not in ("while", "scan"):
        assert jax.grad(lambda x: run(x)[0])(2.0) == 1.0


def test_only_checks_of_times_go() -> None:
    def fn(times, x):
        t0, t1 = times
        return positive(t1 - t0), positive(x), positive(x * t1)

    run = jax.jit(lambda times, x: diffrax_called(fn, times, x))
    late, early = (jnp.asarray(0.0), jnp.asarray(1.0)), (jnp.asarray(1.0), jnp.asarray(0.0))
    np.testing.assert_array_equal(run(late, jnp.asarray(3.0)), [1.0, 3.0, 3.0])
    assert np.isnan(run(early, jnp.asarray(3.0))[0])
    with pytest.raises(Exception, match="negative"):
        run(late, jnp.asarray(-3.0))


@pytest.mark.parametrize("start", [3.0, 1e-300, 0.0, -2.0])
def test_numbers_before_are_found_by_a_loop(start: float) -> None:
    """A hundred of them, as Diffrax asks for; a few stay as they are."""

    def fn(times, x):
        (t,) = times
        for _ in range(100):
            t = eqxi.prevbefore(t)
        return t * x, eqxi.prevbefore(eqxi.prevbefore(x))

    traced = jax.make_jaxpr(lambda t, x: diffrax_called(fn, (t,), x))(*jnp.asarray([start, 1.0]))
    assert str(traced).count("custom_jvp_call") == 3
    of = lambda t: diffrax_called(fn, (t,), jnp.asarray(1.0))
    (found, near), change = jax.jit(lambda t: jax.jvp(of, (t,), (jnp.ones_like(t),)))(jnp.asarray(start))
    expected = np.float64(start)
    for _ in range(100):
        expected = np.nextafter(expected, -np.inf) if expected else -np.finfo(float).tiny
    assert found == expected
    assert near == np.nextafter(np.nextafter(1.0, 0.0), 0.0)
    assert change[0] == 1.0


def test_the_users_checks_raise_in_runs() -> None:
    np.testing.assert_allclose(thrown(0.5, WeightBelow(jnp.array(10.0))), 5.0 * 0.5 - 5.0 * 0.5**2, rtol=1e-6)
    with pytest.raises(Exception, match="negative"):
        thrown(0.5, WeightBelow(jnp.array(0.5)))
