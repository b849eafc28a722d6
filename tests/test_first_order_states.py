"""States of first order beside coordinates: closed forms, derivatives, and what runs tell of them."""

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import ukjax as uk
import ukjax.analysis as ua
import ukjax.mechanisms as um

M = 2.0


def driven(tau: jax.Array | float, constraints: tuple = ()) -> uk.System:
    """A cart that a filtered voltage of 1 V drives; the capacitor has energy, too."""
    return uk.System(
        jnp.array([[M]]),
        lambda t, q, v, z: z,
        constraints,
        energy=lambda t, q, v, z: 0.5 * M * v[0] ** 2 + 0.5 * z[0] ** 2,
        labels=["cart"],
        states=["voltage"],
        state_rate=lambda t, q, v, z: (1.0 - z) / tau,
    )


def run_of(tau: jax.Array | float, **options: object) -> uk.Trajectory:
    accurate = {"t0": 0.0, "t1": 1.5, "ts": 31, "rtol": 1e-11, "atol": 1e-11}
    return uk.simulate(driven(tau), jnp.zeros(1), jnp.zeros(2), **accurate | options)  # pyright: ignore[reportArgumentType]


def test_a_filtered_input_drives_a_mass_as_in_closed_form(tmp_path) -> None:
    tau, run = 0.3, run_of(0.3)
    decay = np.exp(-run.t / tau)
    assert_allclose(run.states["voltage"], 1 - decay, atol=1e-9)
    assert_allclose(run.v[:, 0], (run.t - tau * (1 - decay)) / M, atol=1e-9)
    assert_allclose(run.q[:, 0], (run.t**2 / 2 - tau * run.t + tau**2 * (1 - decay)) / M, atol=1e-9)
    assert_allclose(run.energy, 0.5 * M * run.v[:, 0] ** 2 + 0.5 * run.states["voltage"] ** 2)
    assert run.velocity_names == ("cart", "voltage")
    for suffix in ("npz", "nc"):
        again = uk.Trajectory.load(run.save(tmp_path / f"run.{suffix}"))
        assert_allclose(again.states["voltage"], run.states["voltage"])
    panels = {axes.get_title(loc="left"): [x.get_label() for x in axes.lines] for axes in run.plot().axes}
    assert panels["States of first order"] == ["voltage"]
    assert panels["Velocities"] == ["cart"]


def test_derivatives_of_the_run() -> None:
    tau, end = 0.3, lambda tau: run_of(tau, max_steps=256).q_end[0]
    wanted = (-1.5 + 2 * tau * (1 - np.exp(-1.5 / tau)) - 1.5 * np.exp(-1.5 / tau)) / M
    assert_allclose(jax.grad(end)(tau), wanted, rtol=1e-7)
    assert_allclose(jax.jvp(end, (tau,), (1.0,))[1], wanted, rtol=1e-7)


def test_constraints_do_not_feel_states_and_events_do() -> None:
    held = uk.Holonomic(lambda t, q: q[0], name="held")
    run = uk.simulate(
        driven(0.3, (held,)), jnp.zeros(1), jnp.zeros(2), t0=0.0, t1=1.0, ts=11, rtol=1e-10, atol=1e-10
    )
    assert_allclose(run.q, 0.0, atol=1e-12)
    assert_allclose(run.states["voltage"], 1 - np.exp(-run.t / 0.3), atol=1e-8)
    assert_allclose(run.constraint_force[:, 0], -run.states["voltage"], atol=1e-9)
    assert_allclose(run.constraint_force[:, 1], 0.0)
    said = str(uk.check(driven(0.3, (held,)), run.q_end, run.v_end))
    assert said.startswith("1 velocities, 1 constraint rows of rank 1: 0 degrees of freedom.")
    half = run_of(0.3, event=lambda t, q, v: v[1] - 0.5)
    assert_allclose(half.t_end, 0.3 * np.log(2), rtol=1e-7)


@pytest.mark.parametrize("tier", ["events", "steps"])
def test_both_tiers_of_contact_carry_states(tier: str) -> None:
    # Falls on the floor without a bounce, where the voltage alone goes on.
    floor = uk.Unilateral(lambda t, q: q[0], restitution=0.0, name="floor")
    system = uk.System(
        jnp.array([[M]]),
        lambda t, q, v, z: z - 9.81 * M,
        (floor,),
        states=["voltage"],
        state_rate=lambda t, q, v, z: (1.0 - z) / 0.3,
    )
    fall = {"events": {}, "steps": {"dt0": 1e-3}}[tier]
    run = uk.simulate(system, jnp.array([0.5]), jnp.zeros(2), t0=0.0, t1=0.6, ts=7, contact=tier, **fall)  # pyright: ignore
    assert_allclose(run.states["voltage"], 1 - np.exp(-run.t / 0.3), atol=2e-6)
    assert_allclose(run.q_end, 0.0, atol=1e-8)
    assert_allclose(run.v_end[0], 0.0, atol=1e-8)


def test_linearization_and_solvers_know_states() -> None:
    linear = ua.linearize(driven(0.3), 0.0, jnp.zeros(1), jnp.zeros(2))
    assert linear.states == ("cart", "cart'", "voltage")
    assert_allclose(linear.A, [[0, 1, 0], [0, 0, 1 / M], [0, 0, -1 / 0.3]], atol=1e-14)
    stiff = run_of(1e-4, solver=dfx.Kvaerno5(), rtol=1e-8, atol=1e-8)
    assert int(stiff.stats["num_steps"]) < 200
    assert_allclose(stiff.q_end[0], (1.5**2 / 2 - 1e-4 * 1.5 + 1e-8) / M, atol=1e-7)


class FilteredPush(um.AbstractTreeLoad):
    """A filtered voltage pushes a body along x."""

    body: str = eqx.field(static=True)
    tau: jax.Array
    name: str = eqx.field(static=True, default="push")

    @property
    def states(self) -> tuple[str, ...]:
        return ("voltage",)

    def rate(self, motion: um.TreeMotion) -> jax.Array:
        return motion.twists[self.body].velocity[0]

    def effort(self, motion: um.TreeMotion) -> jax.Array:
        return motion.z[0]

    def state_rate(self, motion: um.TreeMotion) -> jax.Array:
        return (1.0 - motion.z) / self.tau


def test_a_load_with_a_state_on_a_tree() -> None:
    cart = um.box("cart", (0.0, 0.0), (0.2, 0.1), mass=M)
    rail = um.Prismatic("rail", "ground", "cart", (0.0, 0.0), (1.0, 0.0))
    tau, tree = 0.3, um.tree([cart], [rail], [FilteredPush(body="cart", tau=jnp.asarray(0.3)), um.Gravity()])
    assert tree.velocity_labels == ("rail", "voltage")
    assert tree.state_labels == ("voltage",)
    run = uk.simulate(um.problem(tree, t1=1.5), ts=16, rtol=1e-10, atol=1e-10)
    decay = np.exp(-run.t / tau)
    assert_allclose(run.q[:, 0], (run.t**2 / 2 - tau * run.t + tau**2 * (1 - decay)) / M, atol=1e-8)
    assert_allclose(run.states["voltage"], 1 - decay, atol=1e-8)
    push = run.loads()["push"]
    assert_allclose(push.effort, run.states["voltage"])
    assert_allclose(push.power, run.states["voltage"] * run.v[:, 0])
    assert_allclose(run.energy, 0.5 * M * run.v[:, 0] ** 2)
    force = run.reactions()["rail"].force  # the rail carries the weight, and the push does not pass it
    assert_allclose(force, np.tile([0.0, 9.81 * M], (16, 1)), atol=1e-9)
    table = uk.sweep(um.problem(tree, t1=0.5), {"voltage": [0.0, 1.0]}, outputs="v", ts=2, progress=False)
    assert_allclose(table["v"].values[:, -1, 1], [1 - np.exp(-5 / 3), 1.0], atol=1e-7)


def test_what_does_not_belong_together_is_refused() -> None:
    with pytest.raises(uk.InputError, match="states and state_rate belong together"):
        uk.System(jnp.eye(1), lambda t, q, v: v, states=["x"])
    with pytest.raises(uk.InputError, match=r"force must be a function of \(t, q, v, z\)"):
        uk.System(jnp.eye(1), lambda t, q, v: v, states=["x"], state_rate=lambda t, q, v, z: z)
    wrong = uk.System(jnp.eye(1), lambda t, q, v, z: v, states=["x"], state_rate=lambda t, q, v, z: q[:0])
    with pytest.raises(
        uk.InputError, match=r"state_rate returned shape \(0,\); with 1 states it must be \(1,\)"
    ):
        uk.simulate(wrong, jnp.zeros(1), jnp.zeros(2), t1=1.0)
