"""Batches of integrations against single runs and closed forms, and their failures."""

from collections.abc import Callable
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from ukjax._run import _integrate


@pytest.fixture(autouse=True, scope="module", params=["our loop", "Diffrax's loop"])
def way(request):
    """The loop of explicit methods, and Diffrax's, which any solver has."""
    jax.clear_caches()
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "Diffrax's loop":
            patch.setattr(_integrate, "fits", lambda *_: False)
        yield
    jax.clear_caches()


class Spring(eqx.Module):
    """A force -k x."""

    k: jax.Array

    def __call__(self, t, q, v):
        return -self.k * q


TIGHT = {"rtol": 1e-9, "atol": 1e-9, "solver": dfx.Tsit5(), "adjoint": dfx.ForwardMode()}


def oscillator(k: Any, x0: Any = 1.0, t1: Any = 1.0, **options: Any) -> uk.Trajectory:
    """x = x0 cos(sqrt(k) t)."""
    system = uk.System(jnp.eye(1), Spring(jnp.asarray(k)))
    x0 = jnp.stack([jnp.asarray(x0)])
    return uk.simulate(
        system, x0, 0 * x0, t1=t1, **{"ts": 5} | TIGHT | {"stabilizer": uk.NoStabilizer()} | options
    )


def kept(trajectory: uk.Trajectory) -> dict[str, jax.Array]:
    counts = {k: trajectory.stats[k] for k in ("num_steps", "num_accepted_steps", "num_rejected_steps")}
    return {
        "t": trajectory.t,
        "q": trajectory.q,
        "v": trajectory.v,
        "result": trajectory.result._value,
    } | counts


def require_same(batch: dict, one: Callable[[int], dict], runs: range, tolerance: float = 1e-12) -> None:
    batch, one = jax.device_get(batch), jax.jit(one)
    for i in runs:
        for name, x in jax.device_get(one(i)).items():
            np.testing.assert_allclose(
                batch[name][i], x, rtol=tolerance, atol=tolerance, err_msg=f"{name} {i}"
            )


SOLVERS = {
    "first same as last": TIGHT,
    "fixed steps": {"solver": dfx.Heun(), "dt0": 0.013, "stepsize_controller": dfx.ConstantStepSize()},
    "Euler": {"solver": dfx.Euler(), "dt0": 0.013},
    "many stages": {"solver": dfx.Dopri8()},
    "jumps": {"stepsize_controller": dfx.ClipStepSizeController(dfx.PIDController(1e-9, 1e-9), jump_ts=np.array([0.3]))},
}  # fmt: skip
SLOW = ("first same as last", "many stages", "jumps", "Euler")  # the first are held to closed forms below


@pytest.mark.parametrize(
    "options",
    [pytest.param(x, id=name, marks=pytest.mark.slow if name in SLOW else ()) for name, x in SOLVERS.items()],
)
def test_runs_are_those_of_simulate(options: dict) -> None:
    k = jnp.linspace(1.0, 900.0, 11)
    batch = jax.jit(jax.vmap(lambda k: kept(oscillator(k, **options))))(k)
    assert len(set(np.asarray(batch["num_steps"]))) > 1 or "dt0" in options
    # Dopri8's estimate of a short step's error is rounding, and so is part of the next step's length.
    tolerance = 1e-9 if isinstance(options.get("solver"), dfx.Dopri8) else 1e-12
    require_same(batch, lambda i: kept(oscillator(k[i], **options)), range(0, 11, 5), tolerance)


@pytest.mark.slow
def test_implicit_steps() -> None:
    k, options = jnp.linspace(1.0, 900.0, 11), {"solver": dfx.Kvaerno3(), "rtol": 1e-6, "atol": 1e-6}
    batch = jax.jit(jax.vmap(lambda k: kept(oscillator(k, **options))))(k)
    require_same(batch, lambda i: kept(oscillator(k[i], **options)), range(0, 11, 5), 1e-9)


def swing(angle: Any, length: Any) -> dict:
    problem = uk.models.pendulum(angle=angle, length=length)
    return kept(uk.simulate(problem, t1=1.0, ts=4, **TIGHT))


@pytest.mark.parametrize(
    "axes",
    [
        pytest.param((0, 0), id="both"),
        pytest.param((0, None), id="state", marks=pytest.mark.slow),
        pytest.param((None, 0), id="parameter", marks=pytest.mark.slow),
    ],
)
def test_projected_runs(axes: tuple) -> None:
    angles, lengths = jnp.linspace(0.1, 2.5, 9), jnp.linspace(0.01, 2.0, 9)
    given = [x if a == 0 else x[4] for x, a in zip((angles, lengths), axes, strict=True)]
    batch = jax.jit(jax.vmap(swing, axes))(*given)
    at = lambda i: swing(*(x[i] if a == 0 else x for x, a in zip(given, axes, strict=True)))
    require_same(batch, at, range(0, 9, 4))
    np.testing.assert_allclose(jnp.linalg.norm(batch["q"], axis=-1), jnp.broadcast_to(
        lengths[:, None] if axes[1] == 0 else lengths[4], (9, 4)), rtol=1e-12)  # fmt: skip


def test_each_run_has_its_own_span() -> None:
    """Backwards in time, too."""
    ends = jnp.array([0.5, -1.0, 3.0, 1.0, -2.0, 0.1, 2.0])
    batch = jax.vmap(lambda t1: kept(oscillator(4.0, t1=t1)))(ends)
    np.testing.assert_allclose(batch["t"], np.outer(ends, [0, 0.25, 0.5, 0.75, 1]), atol=1e-15)
    np.testing.assert_allclose(batch["q"][..., 0], np.cos(2 * batch["t"]), atol=1e-7)


def test_runs_that_fail_are_alone() -> None:
    """One of NaN, one that needs too many steps, one whose span is empty; to the last bit nothing else changes."""
    compiled = jax.jit(jax.vmap(lambda k, t1: kept(oscillator(k, t1=t1, max_steps=100))))
    many = lambda *given: jax.device_get(compiled(*given))
    k, ends = np.array([1.0, 2.0, 4.0, 6.0, 9.0, 16.0, 25.0]), np.ones(7)
    alone = many(k, ends)
    batch = many(np.array([1.0, np.nan, 4.0, 1e6, 9.0, 16.0, 25.0]), np.array([1.0, 1, 1, 1, 0, 1, 1]))
    names = list(uk.RESULTS._name_to_item)
    found = [names[int(x)] for x in batch["result"]]
    assert [found[i] for i in (0, 2, 4, 5, 6)] == 5 * ["successful"]
    assert found[1] != "successful"
    assert (found[3], int(batch["num_steps"][3])) == ("max_steps_reached", 100)
    np.testing.assert_array_equal(batch["q"][4], 1.0)
    good = np.array([0, 2, 5, 6])
    np.testing.assert_allclose(batch["q"][good, -1, 0], np.cos(np.sqrt(k[good])), atol=1e-7)
    for name, x in alone.items():
        np.testing.assert_array_equal(batch[name][good], x[good])
        np.testing.assert_array_equal(many(k[::-1], ends)[name], x[::-1])


@pytest.mark.slow
def test_a_batch_of_batches_is_one_batch() -> None:
    k, x0 = jnp.linspace(1.0, 100.0, 3), jnp.linspace(1.0, 2.0, 5)
    q = jax.vmap(lambda k: jax.vmap(lambda x0: oscillator(k, x0).q[-1, 0])(x0))(k)
    np.testing.assert_allclose(q, np.outer(np.cos(np.sqrt(k)), x0), atol=1e-7)


def derivatives(mode: str, end: Callable, k: jax.Array, x0: jax.Array) -> jax.Array:
    """By k: a tangent of the batch, a tangent of each run, or all tangents of each run."""
    if mode == "of the batch":
        return jax.jvp(lambda k: jax.vmap(end)(k, x0), (k,), (jnp.ones_like(k),))[1]
    if mode == "of each":
        return jax.vmap(lambda k, x0: jax.jvp(lambda k: end(k, x0), (k,), (jnp.ones(()),))[1])(k, x0)
    return jax.vmap(jax.jacfwd(end, (0, 1)))(k, x0)[0]


@pytest.mark.parametrize(
    "mode", ["of each", *(pytest.param(x, marks=pytest.mark.slow) for x in ("of the batch", "all"))]
)
def test_forward_derivatives(mode: str) -> None:
    """d/dk of x0 cos(sqrt(k))."""
    k, x0 = jnp.linspace(1.0, 100.0, 7), jnp.linspace(1.0, 2.0, 7)
    end = lambda k, x0: oscillator(k, x0).q[-1, 0]
    found = jax.jit(lambda k, x0: derivatives(mode, end, k, x0))(k, x0)
    np.testing.assert_allclose(found, -x0 * np.sin(np.sqrt(k)) / (2 * np.sqrt(k)), atol=1e-6)


def test_batches_are_lowered_for_other_platforms() -> None:
    """On any machine: a batch can be lowered for a GPU, where machine code of this process is of no use."""
    batch = jax.jit(jax.vmap(lambda k: oscillator(k).q)).trace(jnp.linspace(1.0, 100.0, 71))
    own, others = (batch.lower(lowering_platforms=(x,)).as_text() for x in ("cpu", "cuda"))
    assert "ukjax_scalars" in own
    assert "ukjax_" not in others
    assert "while" in others
