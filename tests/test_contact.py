"""Contacts with Coulomb friction at one instant, against their laws, closed forms and finite differences."""

import functools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contact_references import violation
from scipy.integrate import solve_ivp

import ukjax as uk
from ukjax._contact._modes import ambiguous_impulses
from ukjax._contact._solve import solution_of
from ukjax._formula._contact_problem import ContactData, flatten_problem

PROBLEMS = {x["name"]: x for x in json.loads((Path(__file__).parent / "contact_problems.json").read_text())}


def arrays(name):
    x = PROBLEMS[name]
    return np.array(x["G"]), np.array(x["u_free"]), np.array(x["mu"]), x["dim"]


# Of 12 contacts each takes 2 s to compile; those of 6 go the same way.
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (len(x["mu"]) == 12)) for name, x in PROBLEMS.items()],
)
def test_laws_hold(name):
    G, u, mu, dim = arrays(name)
    found = uk.solve_contacts(G, u, mu, tangents=dim - 1)
    assert violation(G, u, mu, dim, found.impulses) < 1e-10
    assert found.residual < 1e-10
    assert bool(found.ambiguous.any()) == (name == "table_four_legs_spin_slide")
    np.testing.assert_allclose(found.velocities, G @ np.asarray(found.impulses) + u, atol=3e-12)


@functools.partial(jax.jit, static_argnums=0)
def _from(layout, data, guess):
    """What is found from impulses given."""
    return solution_of(flatten_problem(data), layout, guess)


# Of two contacts G, u', mu, and which are on the border of two modes.
BORDERS = {
    "none": (np.array([[2.0, 0.5], [0.5, 1.0]]), (-1.0, 0.1), (0.0, 0.0), (False, False)),
    "about to close": (np.array([[2.0, 0.5], [0.5, 1.0]]), (-1.0, -0.25), (0.0, 0.0), (False, True)),
    "nothing closes": (np.array([[2.0, 0.5], [0.5, 1.0]]), (0.0, 0.0), (0.0, 0.0), (True, True)),
    "both bear what one could": (np.ones((2, 2)), (-1.0, -1.0), (0.0, 0.0), (True, True)),
    "between two walls": (np.array([[1.0, -1.0], [-1.0, 1.0]]), (-1.0, 1.0), (0.0, 0.0), (False, True)),
    "at the limit of friction": (np.eye(4), (-1.0, 0.3, -1.0, 0.2), (0.3, 0.3), (True, False)),
}


@pytest.mark.parametrize("name", BORDERS)
def test_borders_of_modes_are_told(name):
    """Where differences to the two sides are not the same, or the impulses are one of many solutions."""
    G, u, mu, border = BORDERS[name]
    found = uk.solve_contacts(G, np.array(u), np.array(mu))
    np.testing.assert_array_equal(found.border, border)
    assert not found.ambiguous.any()  # velocities are those of all solutions
    with jax.debug_nans(True):
        slopes = jax.jacfwd(lambda u: uk.solve_contacts(G, u, np.array(mu)).velocities)(jnp.array(u))
    at = lambda u: np.asarray(uk.solve_contacts(G, u, np.array(mu)).velocities)
    two_sided = True
    for k, one in enumerate(1e-4 * np.eye(len(u))):
        ahead, back = (at(u + one) - at(np.array(u))) / 1e-4, (at(np.array(u)) - at(u - one)) / 1e-4
        two_sided &= bool(np.allclose(ahead, back, atol=1e-6))
        if not any(border):
            np.testing.assert_allclose(slopes[:, k], ahead, atol=1e-6)
    assert two_sided == (not any(border))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_no_border_is_told_of_where_there_is_none(seed):
    """Random contacts with friction: derivatives are differences, or modes are on a border."""
    rng = np.random.default_rng(seed)
    J, mu = rng.normal(size=(6, 6)), np.array([0.3, 0.6])
    G, u, du = J @ J.T, rng.normal(size=6), rng.normal(size=6)
    solve = lambda u: uk.solve_contacts(G, u, mu).velocities
    assert not uk.solve_contacts(G, u, mu).border.any()
    slope = jax.jvp(solve, (jnp.array(u),), (jnp.array(du),))[1]
    np.testing.assert_allclose(slope, (solve(u + 1e-6 * du) - solve(u - 1e-6 * du)) / 2e-6, atol=1e-6)


def test_several_solutions_are_told():
    """Of a table that slides and spins other impulses, sought from elsewhere, obey the laws too, and turn it more."""
    G, u, mu, dim = arrays("table_four_legs_spin_slide")
    first = uk.solve_contacts(G, u, mu)
    assert first.ambiguous.all()
    guess = np.array(first.impulses)
    guess[::dim] += np.array([0.2, -0.2, -0.2, 0.2]) * guess.max()
    layout = ((True, dim - 1),) * len(mu)
    other = np.asarray(_from(layout, ContactData(G, u, mu, 0 * mu), guess).p)
    assert violation(G, u, mu, dim, other) < 1e-10
    assert np.abs(G @ (other - first.impulses)).max() > 1e-4 * np.abs(u).max()
    # What slides without turning does so by any of its solutions.
    assert not uk.solve_contacts(*arrays("box_four_corners_slide")[:3]).ambiguous.any()


def test_sliding_contact_that_may_as_well_be_open():
    """Painleve: G_nn - mu s G_nt < 0, so that u = (0.1, 1) may go on, and be slowed down by impulses."""
    G, u, mu = np.array([[1.0, 2.0], [2.0, 8.0]]), np.array([0.1, 1.0]), 1.0
    found = uk.solve_contacts(G, u, [mu])
    assert violation(G, u, np.array([mu]), 2, found.impulses) < 1e-10
    p = 0.1 * np.array([1.0, -mu])  # the other one: u_n = 0.1 + (1 - 2) p_n = 0
    assert violation(G, u, np.array([mu]), 2, p) < 1e-10
    data = ContactData(G, u, np.array([mu]), np.zeros(1))
    found = _from(((True, 1),), data, p)
    np.testing.assert_allclose(found.p, p, atol=1e-10)
    after = data._replace(u=G @ p + u)
    assert jax.jit(ambiguous_impulses, static_argnums=0)(((True, 1),), after, found)[0] == 1


def random_problems(rng, size, contacts, dim, freedoms):
    J = rng.normal(size=(size, contacts * dim, freedoms))
    G = np.einsum("bik,bk,bjk->bij", J, rng.uniform(0.1, 2.0, (size, freedoms)), J)
    u = np.einsum("bik,bk->bi", J, rng.normal(size=(size, freedoms)))
    return 0.5 * (G + np.swapaxes(G, 1, 2)), u, rng.uniform(0.0, 1.2, (size, contacts))


def test_what_is_printed():
    """A block of 2 kg falls at 1 m/s: 2 N s, and it slides."""
    found = uk.solve_contacts(np.eye(2) / 2, [-1.0, 3.0], [0.5])
    told = repr(found)
    assert told.startswith("Contacts: 1 of 1 closed, of which 1 slide; residual ")
    assert told.endswith("impulses [ 2. -1.]")
    assert "other motions" not in told
    traced = []
    jax.jit(lambda u: traced.append(repr(uk.solve_contacts(jnp.eye(2), u, jnp.array([0.5])))))(jnp.ones(2))
    assert traced == ["Contacts: impulses (2,), closed (1,)"]


@pytest.mark.usefixtures("optimized")
@pytest.mark.parametrize(
    "shape", [(4, 3, 6), *(pytest.param(x, marks=pytest.mark.slow) for x in ((6, 2, 5), (5, 1, 3)))]
)
def test_laws_hold_in_batches_of_dependent_contacts(shape):
    G, u, mu = random_problems(np.random.default_rng(1), 50, *shape)
    solve = jax.jit(jax.vmap(lambda G, u, mu: uk.solve_contacts(G, u, mu).impulses))
    for problem in zip(G, u, mu, solve(G, u, mu), strict=True):
        assert violation(*problem[:3], shape[1], problem[3]) < 1e-10


def test_a_sliding_sphere_does_not_lift():
    """Its normal velocity is zero, where convex models of friction give mu |u_t|."""
    G, u, mu, _ = arrays("sphere_on_plane_slip")
    found = uk.solve_contacts(G, u, mu)
    assert bool(found.sliding[0])
    assert abs(found.velocities[0]) < 3e-12 < abs(found.velocities[1]) + abs(found.velocities[2])


def test_point_mass_on_a_plane():
    """With G = 1/m it stops if u_t <= -mu u_n, and keeps u_t + mu u_n else."""
    m, mu = 2.0, 0.4
    for tangential, left, sliding in ((1.0, 0.2, True), (0.7, 0.0, False)):
        found = uk.solve_contacts(np.eye(3) / m, [-2.0, tangential * 0.6, tangential * 0.8], mu, tangents=2)
        np.testing.assert_allclose(found.velocities, [0, 0.6 * left, 0.8 * left], atol=3e-12)
        np.testing.assert_allclose(found.impulses[0], 2.0 * m, rtol=1e-14)
        assert bool(found.sliding[0]) is sliding
        assert bool(found.closed[0])
    assert not bool(uk.solve_contacts(np.eye(3), [1.0, 1.0, 0.0], 0.4, tangents=2).closed[0])


def test_dry_friction_of_a_joint_beside_a_stop():
    """A rate with friction torque up to c and no normal row, and an independent stop."""
    G = np.diag([0.5, 2.0])
    for rate, left in ((3.0, 2.0), (-0.4, 0.0)):
        found = uk.solve_contacts(
            G, [rate, -1.0], [0.0, 0.0], limit=[2.0, 0.0], tangents=(1, 0), normals=(False, True)
        )
        np.testing.assert_allclose(found.velocities, [left, 0.0], atol=3e-12)
        np.testing.assert_allclose(found.impulses, [(left - rate) / 0.5, 0.5], atol=3e-12)


@pytest.mark.parametrize(
    "name", ["spatial_random_6", "planar_random_4", "sphere_in_groove", "table_four_legs_tips"]
)
def test_derivatives_against_differences(name):
    """Of u, which is unique where contacts are dependent too."""
    G, u, mu, dim = arrays(name)
    rng = np.random.default_rng(0)
    S = rng.normal(size=G.shape)
    change = G @ (S + S.T) @ G, G @ rng.normal(size=u.shape), 0.1 * rng.normal(size=mu.shape)

    def velocities(s):
        moved = (x + s * dx for x, dx in zip((G, u, mu), change, strict=True))
        return uk.solve_contacts(*moved, tangents=dim - 1).velocities

    weights = rng.normal(size=u.shape)

    @jax.jit
    def at(s):
        found, exact = jax.jvp(velocities, (s,), (1.0,))
        return found, exact, jax.grad(lambda s: weights @ velocities(s))(s)

    h = 1e-6
    (above, *_), (below, *_), (_, exact, pulled) = (jax.device_get(at(s)) for s in (h, -h, 0.0))
    np.testing.assert_allclose(exact, (above - below) / (2 * h), rtol=2e-6, atol=2e-7)
    np.testing.assert_allclose(pulled, weights @ exact, rtol=1e-9)


def test_float32():
    G, u, mu, dim = arrays("spatial_random_6")
    G, u, mu = (x.astype(np.float32) for x in (G, u, mu))
    found = uk.solve_contacts(G, u, mu)
    assert found.impulses.dtype == jnp.float32
    assert violation(G, u, mu, dim, found.impulses) < 1e-4


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((np.eye(3), np.zeros(2), [0.1]), {}, "delassus must be"),
        ((np.array([[1.0, 1.0], [0.0, 1.0]]), np.zeros(2), [0.1]), {}, "symmetric"),
        ((np.eye(2), np.zeros(2), [-0.1]), {}, "friction must be finite and not negative"),
        ((np.eye(2), [np.nan, 0.0], [0.1]), {}, "velocity must be finite"),
        ((np.eye(2), np.zeros(2), 0.1), {}, "tangents"),
        ((np.eye(3), np.zeros(3), [0.1, 0.1]), {}, "must be those of all contacts"),
    ],
)
def test_bad_input(arguments, options, message):
    with pytest.raises(uk.InputError, match=message):
        uk.solve_contacts(*arguments, **options)


def through_an_impact(G, u, mu, e):
    """Impulses by SciPy, with friction that turns round within a nanometre a second; see `poisson_impact`."""

    def rates(p, x):
        friction = -mu * x[1] / np.sqrt(x[1] ** 2 + 1e-18)
        return [*(G @ [1.0, friction]), friction]

    ends = lambda p, x: x[0] + (1e-300 if p == 0 else 0.0)
    ends.terminal, ends.direction = True, 1
    how = {"method": "Radau", "rtol": 1e-10, "atol": 1e-12}
    first = solve_ivp(rates, (0.0, 1e3), [*u, 0.0], events=[ends], **how)
    compressed = first.t[-1]
    if not e:
        return np.array([compressed, first.y[2, -1]])
    rest = solve_ivp(rates, (compressed, (1 + e) * compressed), first.y[:, -1], **how)
    return np.array([rest.t[-1], rest.y[2, -1]])


@pytest.mark.parametrize("e", [0.0, 0.5])
def test_impacts_of_poisson(e):
    """Of matrices with strong coupling, so that slip goes on, sticks, and turns round."""
    rng, kinds = np.random.default_rng(2), set()
    impact = jax.jit(uk.poisson_impact)
    for _ in range(30):
        R = rng.normal(size=(2, 2))
        G, u, mu = R @ R.T + 0.02 * np.eye(2), rng.normal(size=2), rng.uniform(0.02, 0.8)
        u[0] = -abs(u[0])
        found = impact(G, u, mu, e)
        np.testing.assert_allclose(found.impulses, through_an_impact(G, u, mu, e), rtol=1e-5, atol=1e-6)
        after = u + G @ np.asarray(found.impulses)
        np.testing.assert_allclose(found.velocities, after, atol=1e-12)
        energy = 0.5 * after @ np.linalg.solve(G, after) - 0.5 * u @ np.linalg.solve(G, u)
        np.testing.assert_allclose(found.energy, energy, atol=1e-10)
        kinds.add((abs(after[1]) < 1e-9, after[1] * u[1] < -1e-9))
    assert kinds == {(True, False), (False, True), (False, False)}


@pytest.mark.parametrize("e", [0.0, 0.5])
def test_impact_without_collision(e):
    """The rod of Painleve, pressed together by its slip alone: u = 0 at p_c, where -G^-1 u is the impulse."""
    phi, mu, u = 1.1, 1.6, np.array([0.0, -2.0])
    arms = np.array([-0.5 * np.cos(phi), 0.5 * np.sin(phi)])
    G = np.eye(2) + 12 * np.outer(arms, arms)
    impact = jax.jit(uk.poisson_impact)
    found = impact(G, u, mu, e)
    stuck = -np.linalg.solve(G, u)
    more = e * stuck[0] * np.array([1.0, -G[0, 1] / G[1, 1]])
    np.testing.assert_allclose(found.compression, stuck[0], rtol=1e-13)
    np.testing.assert_allclose(found.impulses, stuck + more, rtol=1e-13)
    np.testing.assert_allclose(found.velocities[1], 0, atol=1e-14)
    slope = jax.jit(jax.jacfwd(lambda u: impact(G, u, mu, 0.0).impulses))(u)
    np.testing.assert_allclose(slope[:, 1], -np.linalg.inv(G)[:, 1], rtol=1e-12)
    assert found.energy < 0
    less = impact(G, u, 1.2, e)  # with less friction it is not pressed
    np.testing.assert_allclose(less.impulses, 0, atol=0)


@pytest.mark.parametrize("u_n", [-1e-16, -5e-324, 0.0, 5e-17, 1e-14])
def test_impact_without_collision_of_a_computed_velocity(u_n):
    """A velocity that is zero but for rounding is zero: what presses the contact together is slip."""
    G = np.array([[1.6172483, -1.2127446], [-1.2127446, 3.3827517]])
    stuck = np.linalg.solve(G, [0.0, 2.0])
    np.testing.assert_allclose(uk.poisson_impact(G, [u_n, -2.0], 1.6, 0.0).impulses, stuck, rtol=1e-13)
    np.testing.assert_allclose(uk.poisson_impact(G, [1e-6, -2.0], 1.6, 0.0).impulses, 0, atol=0)


def test_an_impact_takes_what_is_symmetric_but_for_rounding():
    """Without friction p_n = -(1 + e) u_n / G_nn."""
    G = np.array([[2.0, 0.3], [np.nextafter(0.3, 1), 1.0]])
    np.testing.assert_allclose(uk.poisson_impact(G, [-1.0, 0.5], 0.0, 0.5).impulses, [0.75, 0.0], rtol=1e-15)


def test_impacts_that_are_refused():
    for given, why in (
        ((np.eye(3), np.zeros(3), 0.1, 0.0), "delassus"),
        ((-np.eye(2), np.zeros(2), 0.1, 0.0), "positive definite"),
        ((np.eye(2), np.zeros(2), -0.1, 0.0), "friction"),
    ):
        with pytest.raises(uk.InputError, match=why):
            uk.poisson_impact(*given)


def test_a_ton_on_a_gram():
    """Two cubes in a stack, on four corners each, for a millisecond: impulses carry their weight, to rounding.

    Impulses are a million times what moves the lower one, and what slip dissipates beside them is not compared with it.
    """
    half, masses = 0.1, np.array([1e-3, 1e3])

    def rows(corner):
        x, y, z = corner
        spin = np.array([[0, z, -y], [-z, 0, x], [y, -x, 0]])  # of a velocity by the angular one
        return np.hstack([np.eye(3), spin])[[2, 0, 1]]

    corners = [(x, y) for x in (-half, half) for y in (-half, half)]
    lower = [np.hstack([rows((*c, -half)), np.zeros((3, 6))]) for c in corners]
    upper = [np.hstack([-rows((*c, half)), rows((*c, -half))]) for c in corners]
    J, own = np.vstack(lower + upper), np.repeat([1, 2 * half**2 / 3], 3)
    fall = np.zeros(12)
    fall[[2, 8]] = -9.81e-3
    G, u = J / np.outer(masses, own).ravel() @ J.T, J @ fall
    found = uk.solve_contacts(G, u, 0.9 * np.ones(8), tangents=2)
    carried = 9.81e-3 * np.array([masses.sum(), masses[1]])
    np.testing.assert_allclose(found.impulses[::3].reshape(2, 4).sum(1), carried, rtol=1e-7)
    assert violation(G, u, 0.9, 3, found.impulses) < 1e-10
    assert found.residual < 1e-7


@pytest.mark.slow
def test_a_bounce_where_jit_is_disabled():
    """A ball that falls from 0.5 m onto a floor: v(t) = -g t, then e g t_b - g (t - t_b) with t_b = sqrt(2 h / g)."""
    ball = uk.System(jnp.eye(1), jnp.array([-9.8]), [uk.Unilateral(lambda t, q: q[0], restitution=0.5)])
    with jax.disable_jit():
        run = uk.simulate(ball, [0.5], [0.0], t1=0.5)
    fall = np.sqrt(2 * 0.5 / 9.8)
    np.testing.assert_allclose(run.v_end, [0.5 * 9.8 * fall - 9.8 * (0.5 - fall)], rtol=1e-7)


@pytest.mark.parametrize("mu", [pytest.param(0.2, marks=pytest.mark.slow), 0.5])
def test_a_sliding_block_tips_over_its_front_edge(mu):
    """By friction at its feet, 1 m below its centre and 0.3 m off it, if mu is above 0.3."""
    g, inertia, b, h, side = 9.81, 0.3, 0.3, 1.0, jnp.array([1.0, -1.0])
    gap = lambda t, q: q[1] + side * b * jnp.sin(q[2]) - h * jnp.cos(q[2]) + h
    slip = lambda t, q, v: v[0] - v[2] * (side * b * jnp.sin(q[2]) - h * jnp.cos(q[2]))
    feet = uk.Unilateral(gap, friction=mu, slip=slip, name="foot")
    block = uk.System(jnp.diag(jnp.array([1.0, 1.0, inertia])), jnp.array([0.0, -g, 0.0]), [feet])
    run = uk.simulate(block, jnp.zeros(3), jnp.array([1.0, 0.0, 0.0]), t1=0.01)
    on_both = g * (b + side * mu * h) / (2 * b)
    # On the front edge alone y'' + b theta'' = 0, with theta'' = (b - mu h) N / inertia.
    on_front = g / (1 + b * (b - mu * h) / inertia)
    normal = on_both if mu * h < b else jnp.array([on_front, 0.0])
    np.testing.assert_allclose(run.contacts.force[0].reshape(2, 2)[:, 0], normal, atol=1e-8)
