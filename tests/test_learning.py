"""The learning experiments: their oracles at single states, and that each finds the truth its data were made from."""

import importlib
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk

EXPERIMENTS = Path(__file__).parents[1] / "experiments"


@pytest.fixture
def script(monkeypatch):
    """script(name): a module of `experiments/`, under the promotion rules its users have."""
    pytest.importorskip("matplotlib")
    pytest.importorskip("scipy")
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield importlib.import_module
    for path in EXPERIMENTS.glob("*.py"):
        sys.modules.pop(path.stem, None)


# --- The linkage


def test_four_bar_is_made_of_uniform_rods(script):
    """Kinetic energy as that of rods that move and turn: m v^2 / 2 + m l^2 omega^2 / 24."""
    four_bar = script("four_bar")
    system = four_bar.FourBar(jnp.asarray(four_bar.LENGTHS))
    q, v = (np.asarray(x) for x in system.start(3.0))
    ends = [(0 * q[:2], q[:2]), (q[:2], q[2:]), (q[2:], np.array([four_bar.LENGTHS[0], 0.0]))]
    rates = [(0 * v[:2], v[:2]), (v[:2], v[2:]), (v[2:], 0 * v[2:])]
    energy = 0.0
    for (a, b), (va, vb), length in zip(ends, rates, four_bar.LENGTHS[1:], strict=True):
        mass, rod, speed = four_bar.DENSITY * length, b - a, vb - va
        np.testing.assert_allclose(np.hypot(*rod), length, rtol=1e-12)
        np.testing.assert_allclose(rod @ speed, 0.0, atol=1e-12)
        turning = (rod[0] * speed[1] - rod[1] * speed[0]) / length**2
        centre = 0.5 * (va + vb)
        energy += 0.5 * mass * centre @ centre + mass * length**2 * turning**2 / 24.0
    np.testing.assert_allclose(0.5 * v @ np.asarray(system.mass_matrix(0.0, q)) @ v, energy, rtol=1e-12)


# --- Identification


def base_parameters(l1=0.2, l2=0.25, r1=0.1, r2=0.125):
    """What the equations of the SCARA arm have of m1..m4, Iz1..Iz4, one combination a row."""
    tip = [1.0, 1.0]
    return np.array(
        [
            [r1**2, l1**2, *(l1**2 * x for x in tip), 1, 0, 0, 0],
            [0, r2, *(l2 * x for x in tip), 0, 0, 0, 0],
            [0, r2**2, *(l2**2 * x for x in tip), 0, 1, 0, 0],
            [0, 0, 0, 0, 0, 0, 1, 1],
            [0, 0, 0, 1, 0, 0, 0, 0],
        ]
    )


def test_bases_of_sensitivities_that_see_sums(script):
    base = script("base_parameters")
    rng = np.random.default_rng(0)
    parameters = rng.uniform(0.5, 2.0, size=8)
    J = rng.normal(size=(40, 5)) @ base_parameters() * parameters
    found, singular_values = base.bases(J)
    assert np.all(singular_values[5:] < 1e-12 * singular_values[0])
    assert found
    study = base.Study("", tuple("abcdefgh"), parameters, lambda x: x, "sum")
    for basis in found:
        np.testing.assert_allclose(J[:, basis.free], J[:, basis.kept] @ basis.K, atol=1e-8 * np.abs(J).max())
        combined, _ = base.combination(study, parameters, basis)
        unseen = np.linalg.svd(base_parameters())[2][5:]
        np.testing.assert_allclose(combined(parameters + unseen[0]), combined(parameters), rtol=1e-6)


@pytest.mark.usefixtures("optimized")
@pytest.mark.slow
def test_identification(script, tmp_path):
    rail, helix, swinging, driven = script("identify").main(["--quick", "--out", str(tmp_path)])
    for found in (rail, helix, swinging, driven):
        assert np.all(np.abs(found.error) < 0.01)
        assert np.all(np.abs(found.error) < 4.5 * found.deviation)
    assert [len(f.combinations) for f in (rail, helix, swinging, driven)] == [5, 4, 4, 3]
    # What is said to change nothing changes no base parameter; on the helix links 3 and 4 do not turn.
    for found, seen in ((rail, base_parameters()), (helix, base_parameters()[[0, 1, 2, 4]])):
        kept, free, K = found.basis
        unseen = np.zeros((8, free.size))
        unseen[free, np.arange(free.size)], unseen[kept] = 1.0, -K
        change = seen @ (found.parameters[:, None] * unseen)
        np.testing.assert_allclose(change, 0.0, atol=1e-5 * np.abs(seen @ found.parameters).max())
    # Angles of a linkage driven at a given rate do not tell its size.
    np.testing.assert_allclose(driven.basis.K, -1.0, atol=1e-6)
    assert (tmp_path / "identify.png").stat().st_size > 10_000


# --- Neural force


@pytest.mark.usefixtures("optimized")
@pytest.mark.slow
def test_neural_force(script, tmp_path):
    held, free, penalized = script("neural_force").main(["--quick", "--out", str(tmp_path)])
    assert held.trained.violation.max() < 1e-8
    assert held.violation < 1e-8
    assert min(free.violation, penalized.violation) > 1e-3
    assert held.error < 0.5 * min(free.error, penalized.error)
    assert held.trained.loss[-5:].mean() < 0.3 * held.trained.loss[:5].mean()
    assert (tmp_path / "neural_force.png").stat().st_size > 10_000


# --- Optimal control


def test_servo_torques_are_those_of_inverse_dynamics(script):
    """At rest at the start, where nothing depends on the numbers of steps: numpy and SciPy against the law."""
    control = script("optimal_control")
    problem = uk.models.coordinated_robots()
    q = control.angles_of(np.zeros((3, 3)), np.array([0.0]))[0]
    np.testing.assert_allclose(q, problem.q0, atol=1e-12)
    u = control.closed_loop(jnp.zeros((3, 3))).control(0.0, problem.q0, problem.v0)
    weight = control.GRAVITY * control.REACH.sum(axis=0) * np.cos(q)
    closing = np.stack([-np.sin(q), np.cos(q)])
    off = np.eye(5) - np.linalg.pinv(closing) @ closing
    np.testing.assert_allclose(u, np.linalg.pinv(off @ control.INPUTS, rcond=1e-9) @ off @ weight, atol=1e-9)
    np.testing.assert_allclose(control.INPUTS, problem.system.input_matrix)


@pytest.mark.usefixtures("optimized")
@pytest.mark.slow
def test_optimal_control(script, tmp_path):
    control = script("optimal_control")
    found = control.main(["--quick", "--out", str(tmp_path)])
    assert found.gradient < 1e-4
    np.testing.assert_allclose((found.naive, found.best), found.in_numpy, rtol=5e-3)
    assert found.best < 0.9 * found.naive
    # No direction leads down by more than what the steps' error is worth.
    for change in 0.02 * np.vstack([np.eye(9), -np.eye(9)]):
        assert control.effort_in_numpy(found.coefficients + change) > 0.9995 * found.in_numpy[1]
    assert (tmp_path / "optimal_control.png").stat().st_size > 10_000


# --- Clearances


def test_equations_of_the_check_are_those_of_the_recursive_form(script):
    loose, four_bar = script("loose_four_bar"), script("four_bar")
    nominal = jnp.asarray(four_bar.LENGTHS)
    formula = uk.Recursive((("crank", "coupler", "rocker"),), clearance={"coupler": 0.7})
    q, v = four_bar.FourBar(nominal).start()
    v = v + jnp.array([0.3, -0.2, 0.5, 0.4])
    longer = four_bar.FourBar(nominal.at[2].set(0.91))
    a = formula.acceleration(longer, 0.0, q, v, stabilizer=uk.Baumgarte(*loose.GAINS)).a
    rods = np.array([[four_bar.LENGTHS[1], 0.91, four_bar.LENGTHS[3]]])
    by_hand = loose.acceleration(np.asarray(q)[None], np.asarray(v)[None], rods, np.array([0.7]))[0]
    np.testing.assert_allclose(a, by_hand, rtol=1e-10, atol=1e-9)


@pytest.mark.usefixtures("optimized")
@pytest.mark.slow
def test_posterior(script, tmp_path):
    pytest.importorskip("blackjax")
    posterior = script("clearance_posterior")
    found = posterior.main(["--quick", "--out", str(tmp_path)])
    truth = np.array([posterior.LENGTH, np.log(posterior.CLEARANCE)])
    assert np.all(found.sampled.rhat < 1.05)
    assert found.sampled.divergent == 0
    # Of some hundred effective samples, the mean errs by less than 0.3 and the deviation by less than 30 %.
    assert np.all(np.abs(found.mean - found.grid_mean) < 0.3 * found.grid_deviation)
    np.testing.assert_allclose(found.deviation, found.grid_deviation, rtol=0.3)
    assert np.all(np.abs(found.grid_mean - truth) < 4.0 * found.grid_deviation)
    assert abs(found.rigid_mean - posterior.LENGTH) > 5.0 * found.rigid_deviation
    assert (tmp_path / "clearance_posterior.png").stat().st_size > 10_000


# --- Policies


def test_targets_of_a_critic_are_sums_over_horizons(script):
    """TD(lambda) written out: a mean of n-step returns, the longest with what is left (Sutton, Barto 12.3)."""
    policies = script("policies")
    random = np.random.default_rng(0)
    reward, values = random.normal(size=(2, 7, 1))
    fallen, over = np.zeros((2, 7, 1), bool)
    over[2], fallen[4], over[4] = True, True, True  # an episode ends by time, another by a fall
    nothing = np.zeros((7, 1))
    steps = policies.Step(nothing, nothing, reward, nothing, jnp.asarray(fallen), jnp.asarray(over))
    targets = np.asarray(policies.lambda_returns(steps, jnp.asarray(values)))
    discount, decay = policies.DISCOUNT, policies.LAMBDA
    for start in range(7):
        end = next((k for k in range(start, 7) if over[k, 0]), 6)
        returns = []
        for last in range(start, end + 1):
            ages = np.arange(last - start + 1)
            tail = 0.0 if fallen[last, 0] else discount ** (last - start + 1) * values[last, 0]
            returns.append(np.sum(discount**ages * reward[start : last + 1, 0]) + tail)
        shares = [(1 - decay) * decay**i for i in range(len(returns) - 1)] + [decay ** (len(returns) - 1)]
        np.testing.assert_allclose(targets[start, 0], np.dot(shares, returns), rtol=1e-12)


@pytest.mark.slow
def test_floors_of_the_hopper_differ_only_where_it_touches(script):
    """In the air both are the same mechanism; at rest the soft floor carries its weight, as MuJoCo has it."""
    mujoco = pytest.importorskip("mujoco")
    tasks = script("policy_tasks")
    hard, soft = tasks.hopper(), tasks.hopper("soft")
    action = jnp.array([0.3, -0.5, 0.8])
    ends = []
    for environment in (hard.environment, soft.environment):
        state = environment.reset(jax.random.key(0))
        state = eqx.tree_at(lambda s: s.q, state, state.q.at[1].add(0.5).at[3:].add(-0.3))
        ends.append(environment.advance(state, action)[0])
    np.testing.assert_allclose(ends[0].q, ends[1].q, atol=2e-5)  # of a first-order step of 4 ms
    np.testing.assert_allclose(ends[0].v, ends[1].v, atol=2e-2)
    model = tasks._specification().compile()
    weight = mujoco.mj_getTotalmass(model) * 9.81
    depth = 1e-3
    q = jnp.zeros(6).at[1].set(-depth - float(_lowest(model, mujoco)))
    force = soft.environment.apply(0.0, q, jnp.zeros(6), jnp.zeros(3))
    np.testing.assert_allclose(force[1], 2 * tasks.STIFFNESS * depth, rtol=1e-6)
    assert force[1] < weight


def _lowest(model, mujoco) -> float:
    """The height of the foot's lowest points in the reference posture."""
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    return data.site("toe").xpos[2] - model.geom_size[model.geom("foot_geom").id][0]


@pytest.mark.usefixtures("optimized")
@pytest.mark.slow
def test_gradients_of_a_short_horizon_are_those_of_differences(script):
    """On the cart-pole and on the soft floor, for each weight along a random direction."""
    policies, tasks = script("policies"), script("policy_tasks")
    for task in (tasks.cart_pole(), tasks.hopper("soft")):
        learner = policies.begin(task, policies.SHAC(environments=4), jax.random.key(0))
        noise = jax.random.normal(jax.random.key(1), (6, 4, task.actions))
        arrays, static = eqx.partition(learner.actor, eqx.is_array)
        along = jax.tree.map(
            lambda x: jnp.asarray(np.random.default_rng(x.size).normal(size=x.shape)), arrays
        )

        @jax.jit
        def gain(h, task=task, arrays=arrays, static=static, along=along, learner=learner, noise=noise):
            actor = eqx.combine(jax.tree.map(lambda x, d: x + h * d, arrays, along), static)
            return jnp.sum(policies.roll(task, actor, learner.scale, learner.states, noise)[1].reward)

        difference = (gain(1e-5) - gain(-1e-5)) / 2e-5
        np.testing.assert_allclose(jax.jit(jax.grad(gain))(0.0), difference, rtol=1e-5)


@pytest.mark.usefixtures("optimized")
@pytest.mark.slow
def test_gradients_on_the_hard_floor_are_those_of_its_steps(script):
    """By actions, from states in and out of contact; a few differences lie across a jump of the steps."""
    environment = script("policy_tasks").hopper().environment
    states = jax.vmap(environment.reset)(jax.random.split(jax.random.key(0), 64))

    def onwards(state, actions):
        return jax.lax.scan(lambda s, a: (environment.advance(s, jnp.tanh(a))[0], None), state, actions)[0]

    noise = jax.random.normal(jax.random.key(1), (2, 64, 80, 3))
    states = jax.jit(jax.vmap(onwards))(states, 0.6 * noise[0])
    before, along = 0.5 * noise[1, :, :8], noise[1, :, 8:16]

    def end(h):
        after = jax.vmap(onwards)(states, before + h * along)
        return jnp.concatenate([after.q, after.v], axis=1)

    difference = (jax.jit(end)(1e-5) - jax.jit(end)(-1e-5)) / 2e-5
    slope = jax.jit(lambda: jax.jvp(end, (0.0,), (1.0,))[1])()
    off = jnp.linalg.norm(slope - difference, axis=1) / jnp.linalg.norm(difference, axis=1)
    assert jnp.quantile(off, 0.9) < 1e-4


@pytest.mark.usefixtures("optimized")
@pytest.mark.slow
def test_policies_learn_to_swing_up(script):
    """Both methods: from hanging, of a return of 200 at most."""
    policies, tasks = script("policies"), script("policy_tasks")
    task, keys = tasks.cart_pole(), jax.random.split(jax.random.key(5), 16)
    for method, updates in ((policies.SHAC(), 150), (policies.PPO(), 80)):
        learner = policies.begin(task, method, jax.random.key(0))
        update = eqx.filter_jit(lambda learner, method=method: method.update(task, learner, jnp.asarray(1.0)))
        first = float(jnp.mean(policies.returns(task, learner.actor, learner.scale, keys)))
        for _ in range(updates):
            learner = update(learner)
        last = float(jnp.mean(policies.returns(task, learner.actor, learner.scale, keys)))
        assert first < 20 < 60 < last < 200


@pytest.mark.usefixtures("optimized")
@pytest.mark.slow
def test_estimators_of_gradients(script):
    """Without contact's jumps all agree; those that should have no bias have none beyond their error."""
    found = script("policy_gradients").main(["--quick"])
    bias, error, _ = found[8, "hard floor, likelihood ratio"]
    assert bias < 4 * error
    bias, error, deviation = found[8, "soft floor, through steps"]
    assert deviation < found[8, "soft floor, likelihood ratio"][2]


def test_legs_of_cassie_reach_where_the_law_aims(script):
    """Its fits of knee and leg, by MuJoCo's kinematics with the shin's spring at rest: knee and tarsus turn as one."""
    mujoco = pytest.importorskip("mujoco")
    walk = script("cassie_walk")
    model = mujoco.MjModel.from_xml_path(str(walk.FILE))
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, 0)
    at = lambda joint: model.jnt_qposadr[model.joint(f"left-{joint}").id]
    both = data.qpos[at("knee")] + data.qpos[at("tarsus")]
    for knee in (-2.1, -1.5, -1.0):
        angles = {"hip-roll": 0, "hip-pitch": 0, "knee": knee, "tarsus": both - knee, "foot": walk.LEVEL}
        for joint, angle in angles.items():
            data.qpos[at(joint)] = angle
        mujoco.mj_kinematics(model, data)
        turned = data.body("left-foot").xmat.reshape(3, 3)
        sole = data.body("left-foot").xpos + turned @ [0.0085, 0.0412, 0]
        x, _, z = sole - data.body("left-hip-pitch").xpos
        length = np.hypot(x, z)
        np.testing.assert_allclose(np.polyval(walk.KNEE, length) - np.pi / 4, knee, atol=5e-3)
        np.testing.assert_allclose(np.polyval(walk.LEAN, length), np.arctan2(x, -z), atol=5e-3)
        along = turned @ [0.122567, -0.102846, 0]
        assert abs(along[2]) < 2e-3  # level
