"""Environments: against the pendulum's closed form, steps by hand, finite differences, and Gymnasium's rules."""

import equinox as eqx
import helpers
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest

import ukjax as uk
from ukjax._interop._environment_state import InputForce
from ukjax._system._drive import DrivenSystem

B = jnp.asarray([[1.0], [0.0]])  # a push along x
STEPS = 8
ACTIONS = jnp.asarray(np.random.default_rng(0).normal(size=(3 * STEPS, 1)))


def _random_angle(key):
    """Off the constraint: positions too long, velocities along the rod."""
    angle = jax.random.uniform(key, (), float, -1.0, 1.0)
    return 1.1 * jnp.stack([jnp.sin(angle), -jnp.cos(angle)]), jnp.ones(2)


def _reward(t, q, v, u):
    return q[1] - 0.01 * u @ u + 0.1 * t


def _far_right(t, q, v):
    return q[0] > 0.3


def _environment(problem=None, **options):
    problem = uk.models.pendulum() if problem is None else problem
    options = {"sample": _random_angle, "done": _far_right, "stabilizer": uk.NoStabilizer()} | options
    return uk.Environment(problem, B, _reward, **{"dt": 0.05, "horizon": STEPS} | options)


@eqx.filter_jit
def _rollout(environment, state, actions, auto_reset=False):
    def body(state, action):
        state, seen, reward, done = environment.step(state, action, auto_reset=auto_reset)
        return state, (seen, reward, done)

    return jax.lax.scan(body, state, actions)


@eqx.filter_jit
def _resets(environment, keys):
    return jax.vmap(environment.reset)(keys)


@pytest.fixture(scope="module")
def environment():
    return _environment()


@pytest.fixture(scope="module")
def starts(environment):
    return _resets(environment, jax.random.split(jax.random.key(1), 3))


@pytest.fixture(scope="module")
def at_rest(starts):
    """The pendulum at 60 degrees."""
    problem = uk.models.pendulum()
    return eqx.tree_at(lambda s: (s.q, s.v), jax.tree.map(lambda x: x[0], starts), (problem.q0, problem.v0))


def test_a_constant_push_tilts_gravity(environment, at_rest):
    """A pendulum pushed along x with the force u swings about the direction of (u, -m g)."""
    u, g = 5.0, 9.81
    state, (seen, reward, done) = _rollout(environment, at_rest, jnp.full((STEPS, 1), u))
    t = 0.05 * np.arange(1, STEPS + 1)
    tilt, w2 = np.arctan2(u, g), np.hypot(u, g)
    angle, rate = oracles.pendulum_elliptic(t, np.pi / 3 - tilt, 0.0, w2)
    s, c = np.sin(angle + tilt), np.cos(angle + tilt)
    np.testing.assert_allclose(seen, np.stack([s, -c, c * rate, s * rate], 1), atol=1e-6)
    np.testing.assert_allclose(reward, -c - 0.25 + 0.1 * t, atol=1e-6)
    np.testing.assert_array_equal(done, (s > 0.3) | (t > 0.399))
    np.testing.assert_allclose(state.t, 0.05 * STEPS, atol=1e-15)


@pytest.mark.slow
def test_a_rollout_is_repeated_steps_of_the_pushed_system(environment, at_rest):
    pendulum, q, v = environment.system, at_rest.q, at_rest.v

    @jax.jit
    def by_hand(q, v, u):
        force = lambda t, q, v: pendulum.force(t, q, v) + jnp.stack([u[0], jnp.zeros_like(u[0])])
        pushed = uk.System(pendulum.mass_matrix, force, pendulum.constraints)
        return uk.step(pushed, 0.0, q, v, 0.05, stabilizer=uk.NoStabilizer())

    _, (seen, *_) = _rollout(environment, at_rest, ACTIONS[:STEPS])
    for u, each in zip(ACTIONS[:STEPS], seen, strict=True):
        q, v = by_hand(q, v, u)
        np.testing.assert_allclose(each, jnp.concatenate([q, v]), atol=1e-13)


def test_starts_are_drawn_and_consistent(environment, starts):
    np.testing.assert_allclose(jnp.sum(starts.q**2, 1), 1.0, atol=1e-14)
    np.testing.assert_allclose(jnp.sum(starts.q * starts.v, 1), 0.0, atol=1e-14)
    assert np.unique(starts.q[:, 0]).size == 3
    assert np.unique(jax.random.key_data(starts.key), axis=0).shape[0] == 3


def test_a_batch_is_its_members_and_goes_on_by_itself(environment, starts):
    """Over three horizons, some episodes ended early; a member alone, episode by episode, is the same."""
    many = eqx.filter_vmap(_rollout, in_axes=(None, 0, None, None))(environment, starts, ACTIONS, True)
    seen, reward, done = (np.asarray(x) for x in many[1])
    lengths = set()
    for i in range(3):
        state, k = jax.tree.map(lambda x, i=i: x[i], starts), 0
        while k + STEPS <= ACTIONS.shape[0]:
            _, (alone, its_reward, over) = _rollout(environment, state, ACTIONS[k : k + STEPS])
            count = 1 + int(np.argmax(over))
            np.testing.assert_array_equal(over[:count], done[i, k : k + count])
            np.testing.assert_allclose(its_reward[:count], reward[i, k : k + count], atol=1e-12)
            np.testing.assert_allclose(alone[: count - 1], seen[i, k : k + count - 1], atol=1e-12)
            state = jax.tree.map(lambda x: x[0], _resets(environment, jnp.stack([state.key] * 3)))
            k += count
            np.testing.assert_allclose(environment.observation(state), seen[i, k - 1], atol=1e-12)
            lengths.add(count)
    assert max(lengths) == STEPS > min(lengths)


@pytest.mark.slow
def test_the_gradient_of_the_return(environment, at_rest):
    total = lambda actions: jnp.sum(_rollout(environment, at_rest, actions)[1][1])
    actions = ACTIONS[:STEPS]
    gradient = jax.jit(jax.grad(total))(actions)
    direction = jnp.asarray(np.random.default_rng(1).normal(size=actions.shape))
    slope = helpers.central(lambda s: total(actions + s * direction))
    np.testing.assert_allclose(jnp.sum(gradient * direction), slope, rtol=1e-8)


@pytest.mark.slow
def test_forces_that_follow_the_state_and_projected_steps():
    """A force along the path that balances gravity: a pendulum at rest stays. One that drifted comes back."""
    balance = lambda t, q, v, u: u * jnp.stack([-q[1], q[0]]) * q[0] * 9.81
    problem = uk.models.pendulum()
    start = lambda key: (problem.q0, problem.v0)
    environment = uk.Environment(problem.system, balance, _reward_of_height, dt=0.1, horizon=2, sample=start)
    state = environment.reset(jax.random.key(0))
    step = eqx.filter_jit(environment.step)
    np.testing.assert_allclose(step(state, jnp.asarray(1.0))[0].q, state.q, atol=1e-13)
    drifted = step(eqx.tree_at(lambda s: s.q, state, 1.001 * state.q), jnp.asarray(1.0))[0]
    np.testing.assert_allclose(drifted.q @ drifted.q, 1.0, atol=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("substeps", [1, 3])
def test_the_error_of_a_step_is_that_against_the_closed_form(substeps):
    """Of a stiff motor that holds a mass at the action's place: v' = w^2 (u - q)."""
    w, dt, q0, u = 40.0, 0.02, 0.3, 0.1
    free = uk.System(mass_matrix=jnp.eye(1), force=lambda t, q, v: -(w**2) * q)
    environment = uk.Environment(
        free,
        jnp.full((1, 1), w**2),
        lambda t, q, v, u: q[0],
        dt=dt,
        horizon=4,
        substeps=substeps,
        sample=lambda key: (jnp.full(1, q0), jnp.zeros(1)),
    )
    state = environment.reset(jax.random.key(0))
    after, *_ = environment.step(state, jnp.full(1, u))
    exact = np.array([u + (q0 - u) * np.cos(w * dt), -(q0 - u) * w * np.sin(w * dt)])
    off = exact - np.concatenate([after.q, after.v])
    np.testing.assert_allclose(np.concatenate(environment.error(state, jnp.full(1, u))), off, rtol=0.1)


def test_quasi_velocities_are_passed_on():
    """A top with more coordinates than velocities: without an action it moves as the system alone."""
    problem = uk.models.spinning_top()
    assert problem.q0.size > problem.v0.size
    environment = uk.Environment(problem, lambda t, q, v, u: 0.0 * v, _reward_of_height, dt=0.02, horizon=2)
    state = environment.reset(jax.random.key(0))
    after = eqx.filter_jit(environment.step)(state, jnp.zeros(0))[0]
    q, v = jax.jit(lambda q, v: uk.step(problem, 0.0, q, v, 0.02))(state.q, state.v)
    np.testing.assert_allclose(jnp.concatenate([after.q, after.v]), jnp.concatenate([q, v]), atol=1e-13)


def test_energy_and_drawing_are_those_of_the_system():
    """A pendulum at 60 deg, at rest: -m g l cos 60, and a rod from the pivot to the mass."""
    problem = uk.models.pendulum(angle=np.pi / 3)
    driven = DrivenSystem(problem.system, InputForce(B), jnp.ones(1))
    t = jnp.asarray(0.0)
    assert driven.energy(t, problem.q0, problem.v0) == pytest.approx(-9.81 / 2)
    (rod,) = driven.drawing(t, problem.q0).values()
    np.testing.assert_allclose(rod, [[0, 0], [np.sqrt(0.75), -0.5]], atol=1e-15)
    with pytest.raises(uk.InputError, match="q has 2 entries and v has 1"):
        uk.simulate(driven, problem.q0, jnp.zeros(1), t1=1.0)


def _reward_of_height(t, q, v, u):
    return q[1]


def test_what_cannot_be_meant_says_so(environment, at_rest):
    with pytest.raises(uk.InputError, match="dt must be a positive time"):
        _environment(dt=0.0)
    with pytest.raises(uk.InputError, match="horizon must be an integer of at least 1"):
        _environment(horizon=0)
    with pytest.raises(uk.InputError, match="substeps must be an integer of at least 1"):
        _environment(substeps=0)
    with pytest.raises(uk.InputError, match="give sample, or a Problem"):
        _environment(uk.models.pendulum().system, sample=None)
    with pytest.raises(uk.InputError, match="reward must be a function"):
        uk.Environment(uk.models.pendulum(), B, 1.0, dt=0.1, horizon=2)
    with pytest.raises(uk.InputError, match=r"apply must be a function or an input matrix \(n, p\)"):
        uk.Environment(uk.models.pendulum(), B[:, 0], _reward, dt=0.1, horizon=2)
    with pytest.raises(uk.InputError, match="apply must be finite, got nan in entry 0, 0"):
        uk.Environment(uk.models.pendulum(), jnp.full((2, 1), jnp.nan), _reward, dt=0.1, horizon=3)
    with pytest.raises(uk.InputError, match="key must be one random key"):
        environment.reset(jax.random.split(jax.random.key(0), 3))
    margin = uk.Environment(uk.models.pendulum(), B, _reward, dt=0.1, horizon=3, done=lambda t, q, v: q[1])
    with pytest.raises(
        uk.InputError, match="done must be a truth value"
    ):  # true wherever it is not exactly 0
        margin.step(margin.reset(jax.random.key(0)), jnp.ones(1))
    with pytest.raises(uk.InputError, match=r"input matrix \(2, 1\) has shape \(2,\)"):
        environment.step(at_rest, jnp.zeros(2))


@pytest.fixture(scope="module")
def vector(environment):
    pytest.importorskip("gymnasium")
    return environment.gymnasium(3, -4.0, 4.0)


def test_gymnasium_spaces_and_seeds(vector):
    import gymnasium as gym

    assert isinstance(vector, gym.vector.VectorEnv)
    assert vector.metadata["autoreset_mode"] is gym.vector.AutoresetMode.NEXT_STEP
    assert vector.single_action_space.shape == (1,)
    assert vector.observation_space.shape == (3, 4)
    first, info = vector.reset(seed=3)
    assert (first in vector.observation_space, info) == (True, {})
    second, _ = vector.reset()
    again, _ = vector.reset(seed=3)
    np.testing.assert_array_equal(first, again)
    assert np.all(second != first)
    with pytest.raises(uk.InputError, match="low must lie below high"):
        vector.environment.gymnasium(2, 1.0, -1.0)
    with pytest.raises(uk.InputError, match=r"actions must have shape \(3, 1\)"):
        vector.step(np.zeros(3))


def test_gymnasium_copies_have_seeds_of_their_own(vector, environment):
    """As Gymnasium's own vector environments have them: a number stands for those that follow it."""
    single = environment.gymnasium_env(-4.0, 4.0)
    alone = np.stack([single.reset(seed=seed)[0] for seed in (5, 6, 7)])
    assert len(np.unique(alone[:, 0])) == 3
    np.testing.assert_array_equal(vector.reset(seed=5)[0], alone)
    after = vector.reset()[0]
    np.testing.assert_array_equal(vector.reset(seed=[5, 6, 7])[0], alone)
    np.testing.assert_array_equal(vector.reset()[0], after)
    some = [vector.reset(seed=[None, 7, 5])[0] for _ in range(2)]
    np.testing.assert_array_equal([x[1:] for x in some], [alone[[2, 0]]] * 2)
    with pytest.raises(uk.InputError, match="one for each of 3 copies, got 2"):
        vector.reset(seed=[1, 2])
    with pytest.raises(uk.InputError, match=r"seed\[1\]"):
        vector.reset(seed=[1, -2, 3])
    for made in (vector, single):
        with pytest.raises(uk.InputError, match="no options, got 'angle'"):
            made.reset(options={"angle": 0.3})


def test_gymnasium_bounds_have_the_shape_of_an_action(environment):
    pytest.importorskip("gymnasium")
    function = uk.Environment(uk.models.pendulum(), lambda t, q, v, u: u, _reward, dt=0.05, horizon=STEPS)
    for low, high in (([-1, -2], 3.0), (-1.0, [3.0, 4.0])):
        space = function.gymnasium(2, low, high).single_action_space
        np.testing.assert_array_equal(space.low, np.broadcast_to(low, 2))
        np.testing.assert_array_equal(space.high, np.broadcast_to(high, 2))
    for made, low, high in (
        (function, [-1, -1], [1, 1, 1]),
        (environment, [-1, -1], 1.0),
        (environment, -1, [1, 1]),
    ):
        with pytest.raises(uk.InputError, match="low and high must have the shape of an action"):
            made.gymnasium(2, low, high)


def test_gymnasium_episodes_end_and_start_anew(vector):
    """By Gymnasium's convention the step after an end ignores its action, rewards nothing and shows the new start."""
    seen, _ = vector.reset(seed=0)
    vector.action_space.seed(0)
    count, over, ends = np.zeros(3, int), np.zeros(3, bool), set()
    for _ in range(3 * STEPS):
        actions = vector.action_space.sample()
        before = seen
        seen, reward, terminated, truncated, info = vector.step(actions)
        assert seen in vector.observation_space
        assert info == {}
        count = np.where(over, 0, count + 1)
        np.testing.assert_array_equal(truncated, count == STEPS)
        np.testing.assert_array_equal(terminated, ~over & (seen[:, 0] > 0.3))
        expected = seen[:, 1] - 0.01 * actions[:, 0] ** 2 + 0.1 * 0.05 * count
        np.testing.assert_allclose(reward, np.where(over, 0.0, expected), atol=1e-14)
        assert not np.any(over & np.all(seen == before, axis=1))
        over = terminated | truncated
        ends |= {"terminated"} if np.any(terminated) else set()
        ends |= {"truncated"} if np.any(truncated) else set()
    assert ends == {"terminated", "truncated"}


def test_gymnasium_wrappers_work(vector):
    wrappers = pytest.importorskip("gymnasium.wrappers.vector")
    recorded = wrappers.RecordEpisodeStatistics(vector)
    recorded.reset(seed=0)
    infos = [recorded.step(np.zeros((3, 1)))[-1] for _ in range(STEPS)]
    assert "episode" in infos[-1]


def test_an_episode_ends_where_the_state_is_not_finite(environment, at_rest):
    """And with `auto_reset` the next one starts as ever."""
    wrong = jnp.full(1, jnp.nan)
    _, _, _, done = environment.step(at_rest, wrong)
    assert bool(done)
    state, observation, _, done = environment.step(at_rest, wrong, auto_reset=True)
    assert bool(done)
    assert int(state.steps) == 0
    assert np.isfinite(observation).all()


def test_actions_that_are_not_finite_are_refused(vector):
    vector.reset(seed=0)
    with pytest.raises(uk.InputError, match="actions"):
        vector.step(np.full((3, 1), np.nan))


@pytest.mark.filterwarnings("ignore:.*WARN.*:UserWarning")
def test_a_single_environment_is_as_gymnasium_has_it(environment):
    checker = pytest.importorskip("gymnasium.utils.env_checker")
    single = environment.gymnasium_env(-4.0, 4.0)
    checker.check_env(single, skip_render_check=True)
    many = environment.gymnasium(1, -4.0, 4.0)
    one, _ = single.reset(seed=5)
    all_, _ = many.reset(seed=5)
    np.testing.assert_array_equal(one, all_[0])
    for action in np.linspace(-4.0, 4.0, STEPS):
        told, others = single.step(np.full(1, action)), many.step(np.full((1, 1), action))
        for x, y in zip(told[:4], others[:4], strict=True):
            np.testing.assert_array_equal(x, y[0])
        if told[2] or told[3]:
            break


@pytest.fixture
def baselines(environment):
    pytest.importorskip("stable_baselines3")
    return environment.stable_baselines(3, -4.0, 4.0)


def test_stable_baselines_sees_the_episodes_of_gymnasium(baselines, environment):
    """The same but for the step in which an episode starts anew."""
    baselines.seed(1)
    seen = baselines.reset()
    count = np.zeros(3, int)
    for i in range(2 * STEPS):
        actions = np.full((3, 1), np.sin(i))
        before = seen
        seen, reward, done, infos = baselines.step(actions)
        count += 1
        last = np.stack([info.get("terminal_observation", x) for info, x in zip(infos, seen, strict=True)])
        far = last[:, 0] > 0.3
        np.testing.assert_array_equal(done, far | (count == STEPS))
        np.testing.assert_array_equal([x["TimeLimit.truncated"] for x in infos], (count == STEPS) & ~far)
        expected = last[:, 1] - 0.01 * actions[:, 0] ** 2 + 0.1 * 0.05 * count
        np.testing.assert_allclose(reward, expected, atol=1e-6)
        assert np.all(np.abs(last - before) < 2)
        count = np.where(done, 0, count)
    baselines.seed(1)
    np.testing.assert_array_equal(baselines.reset(), (baselines.seed(1), baselines.reset())[1])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", [-1, "one", True, 1.5])
def test_stable_baselines_takes_no_such_seed(baselines, seed):
    with pytest.raises(uk.InputError, match="seed must be an integer of at least 0"):
        baselines.seed(seed)


def test_stable_baselines_trains(environment):
    """PPO learns to push towards the goal: to the left, where the reward counts x."""
    sb3 = pytest.importorskip("stable_baselines3")
    pytest.importorskip("torch").set_num_threads(1)
    left = uk.Environment(
        uk.models.pendulum(),
        B,
        lambda t, q, v, u: -q[0],
        dt=0.05,
        horizon=20,
        sample=_random_angle,
        stabilizer=uk.NoStabilizer(),
    ).stable_baselines(16, -4.0, 4.0)

    def mean(policy):
        left.seed(0)
        seen, total = left.reset(), 0.0
        for _ in range(20):
            seen, reward, _, _ = left.step(policy(seen))
            total += reward.mean()
        return total

    model = sb3.PPO("MlpPolicy", left, n_steps=20, batch_size=80, seed=0, device="cpu", learning_rate=3e-3)
    before = mean(lambda seen: np.zeros((16, 1)))
    model.learn(6_400)
    best = mean(lambda seen: np.full((16, 1), -4.0))
    assert mean(lambda seen: model.predict(seen, deterministic=True)[0]) > before + 0.5 * (best - before)


def test_a_step_outside_of_jit_compiles_once(environment, at_rest):
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, _, **__: compiled.append(event) if "backend_compile" in event else None
    )
    state = at_rest
    for i in range(4):
        state, _, _, _ = environment.step(state, ACTIONS[i])
        environment.error(state, ACTIONS[i])
        if i == 1:
            compiled.clear()
    assert not compiled
