"""The motion in Diffrax's own functions: against closed forms."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest

import ukjax as uk


def exact(t: float) -> tuple[np.ndarray, np.ndarray]:
    """The pendulum of `uk.models.pendulum(rate=0.5)`."""
    angle, rate = oracles.pendulum_elliptic(t, np.pi / 3, 0.5, 9.81)
    return np.array([np.sin(angle), -np.cos(angle)]), rate * np.array([np.cos(angle), np.sin(angle)])


PROBLEM = uk.models.pendulum(rate=0.5)


@pytest.mark.parametrize(
    "solver", [dfx.Dopri8(), uk.EnergyProjection(dfx.Tsit5())], ids=["projected", "energy too"]
)
def test_a_controller_and_saved_states_of_ones_own(solver: dfx.AbstractSolver) -> None:
    terms, solver, y0, args = uk.as_diffrax(PROBLEM, solver=solver)
    saveat = dfx.SaveAt(
        subs=[dfx.SubSaveAt(t1=True), dfx.SubSaveAt(steps=True, fn=lambda t, y, args: y[0] @ y[0])]
    )
    controller = dfx.PIDController(1e-10, 1e-10, pcoeff=0.3, icoeff=0.3, dtmax=0.1)
    solution = dfx.diffeqsolve(
        terms, solver, 0.0, 1.0, None, y0, args, saveat=saveat, stepsize_controller=controller, max_steps=1000
    )
    assert solution.ys is not None
    (q, v), lengths = solution.ys[0], solution.ys[1]
    for found, expected in zip((q[0], v[0]), exact(1.0), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-8)
    steps = int(solution.stats["num_accepted_steps"])
    np.testing.assert_allclose(lengths[:steps], 1.0, atol=1e-14)


def test_steps_by_hand() -> None:
    terms, solver, y, args = uk.as_diffrax(PROBLEM, solver=dfx.Dopri5())
    step = jax.jit(lambda t, y, state: solver.step(terms, t, t + 0.01, y, args, state, made_jump=False))
    state = solver.init(terms, 0.0, 0.01, y, args)
    for i in range(20):
        y, _, _, state, _ = step(0.01 * i, y, state)
    for found, expected in zip(y, exact(0.2), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-9)


def test_a_steady_state() -> None:
    """A damped pendulum hangs down in the end."""
    system = uk.System(
        jnp.eye(2),
        lambda t, q, v: jnp.array([0.0, -9.81]) - 4.0 * v,
        (uk.Holonomic(lambda t, q: q @ q - 1.0),),
    )
    terms, solver, y0, args = uk.as_diffrax(system, jnp.array([1.0, 0.0]), jnp.zeros(2), solver=dfx.Tsit5())
    solution = dfx.diffeqsolve(
        terms, solver, 0.0, jnp.inf, None, y0, args, max_steps=None,
        stepsize_controller=dfx.PIDController(1e-8, 1e-8), event=dfx.Event(dfx.steady_state_event(1e-6, 1e-6)),
        adjoint=dfx.ImplicitAdjoint(),
    )  # fmt: skip
    assert solution.ys is not None
    np.testing.assert_allclose(solution.ys[0][0], [0.0, -1.0], atol=1e-5)


def test_what_is_refused() -> None:
    with pytest.raises(uk.InputError, match="solver"):
        uk.as_diffrax(PROBLEM, solver="Dopri8")  # pyright: ignore[reportArgumentType]
    with pytest.raises(uk.InputError, match="q0"):
        uk.as_diffrax(PROBLEM.system, v0=jnp.zeros(2))
