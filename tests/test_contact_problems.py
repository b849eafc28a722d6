"""Impacts and rests against closed forms and SciPy: states to 1e-8, times to 1e-9, derivatives to 1e-6."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contact_references import (
    TIGHT,
    G,
    compared,
    discs_at,
    exactly,
    followed,
    forward,
    slopes,
    within,
)
from scipy.optimize import minimize

import ukjax as uk

pytestmark = pytest.mark.slow


# ---- one ball, one pendulum


def bounced(t, h0, g, e):
    """Height and velocity of a ball that falls from h0."""
    start = jnp.sqrt(2 * h0 / g)
    speed, falling = e * g * start, t < start
    rest = jnp.where(e < 1, start * (1 + e) / jnp.where(e < 1, 1 - e, 1), jnp.inf)
    for _ in range(20):
        over = t > start + 2 * speed / g
        start, speed = jnp.where(over, start + 2 * speed / g, start), jnp.where(over, e * speed, speed)
    s = t - start
    flies = jnp.where(t < rest, jnp.stack([speed * s - g * s * s / 2, speed - g * s]), 0)
    return jnp.where(falling, jnp.stack([h0 - g * t * t / 2, -g * t]), flies)


@pytest.mark.parametrize("e", [1.0, 0.8, 0.5, 0.0])
def test_bouncing_ball(e):
    """Problem 1; derivatives by e are taken from below at 1, from above at 0."""
    times, count, whole = [0.2, 0.6, 1.1, 1.7, 2.3, 4.2], 5 if e else 1, e in (0, 1)

    def run(p, options):
        h0, g, e = p
        floor = uk.Unilateral(lambda t, q: q[0], restitution=e, name="floor")
        ball = uk.System(jnp.eye(1), -g * jnp.ones(1), [floor])
        found = uk.simulate(ball, jnp.reshape(h0, 1), jnp.zeros(1), t1=4.2, ts=jnp.array(times), **options)
        told = found.contacts
        last = jnp.take(told.event_time, told.num_events - 1)  # when it rests; the fifth impact if e = 1
        states = found.q[:6, 0], found.v[:6, 0], told.force[5]
        return (jnp.concatenate(states), jnp.append(told.event_time[:count], last)), found

    def exact(p):
        h0, g, e = p
        states = jnp.stack([bounced(t, *p) for t in times])
        bounces = jnp.sqrt(2 * h0 / g) * (1 + 2 * jnp.cumsum(jnp.stack([0 * e, e, e**2, e**3, e**4])))
        rests = bounces[count - 1] if whole else bounces[0] * (1 + e) / (1 - e)
        force = jnp.where(e < 1, g, 0)
        return jnp.append(states.T.ravel(), force), jnp.append(bounces[:count], rests)

    compared(run, exact, [1.0, G, e], exactly)


def pendulum_bounces(p, at, most):
    """SciPy's pendulum on a stop: states at times, and times and speeds of impacts."""
    th0, length, stop, e, g = p
    rate = lambda t, y: [y[1], -g / length * np.sin(y[0])]
    hits = lambda t, y: y[0] - stop + 1e-15
    hits.direction, speeds = -1, []

    def jump(k, t, y):
        speeds.append(-y[1])
        return [stop, -e * y[1]]

    states, times = followed(rate, [th0, 0.0], max(at), [hits], jump, at, most)
    return states, times, np.array(speeds)


def pendulum_on_a_stop(p, at, options):
    th0, length, stop, e, g = p
    side = uk.Unilateral(lambda t, q: q[0] - stop, restitution=e, name="stop")
    force = lambda t, q, v: -g * length * jnp.sin(q)
    system = uk.System(length**2 * jnp.eye(1), force, [side])
    return uk.simulate(system, jnp.reshape(th0, 1), jnp.zeros(1), t1=max(at), ts=at, **options)


def test_pendulum_that_bounces_off_a_stop():
    """Problem 2a."""
    p, at = [1.0, 0.8, -0.3, 0.7, G], [0.3, 0.8, 1.5, 2.5, 6.0]

    def run(p, options):
        found = pendulum_on_a_stop(p, at, options)
        told = found.contacts
        speed = told.impulse[:4, 0] / (p[1] ** 2 * (1 + p[3]))
        states = found.q[:5, 0], found.v[:5, 0], told.impulse[:4, 0], speed
        return (jnp.concatenate(states), told.event_time[:4]), found

    def reference(p):
        states, times, speeds = pendulum_bounces(p, at, 10)
        return [*states.T.ravel(), *(p[1] ** 2 * (1 + p[3]) * speeds[:4]), *speeds[:4]], times[:4]

    compared(run, reference, p)


def test_pendulum_that_comes_to_rest_on_a_stop():
    """Problem 2c. Infinitely many bounces, then the torque of the stop; their end by SciPy and what small ones take."""
    p, at = [1.0, 0.8, 0.2, 0.7, G], [5.0]

    def run(p, options):
        found = pendulum_on_a_stop(p, at, options)
        last = jnp.take(found.contacts.event_time, found.contacts.num_events - 1)
        return (found.contacts.force[0], jnp.append(found.contacts.event_time[:5], last)), found

    def reference(p):
        _, length, stop, e, g = p
        _, times, speeds = pendulum_bounces(p, at, 30)
        b = g / length * np.sin(stop)
        rest = times[-1] + 2 * e * speeds[-1] / (b * (1 - e))
        return [g * length * np.sin(stop)], [*times[:5], rest]

    compared(run, reference, p)


# ---- discs


def discs(q0, v0, masses, radii, e, t1, force=None, **options):
    n = len(radii)

    def gap(i, j):
        return lambda t, q: jnp.linalg.norm(q[2 * i : 2 * i + 2] - q[2 * j : 2 * j + 2]) - radii[i] - radii[j]

    touching = [uk.Unilateral(gap(i, j), restitution=e, name=f"{j}-{i}") for i in range(n) for j in range(i)]
    none = jnp.zeros(2 * n) if force is None else force
    system = uk.System(jnp.diag(jnp.repeat(jnp.stack([*map(jnp.asarray, masses)]), 2)), none, touching)
    return uk.simulate(system, q0, v0, t1=t1, ts=[t1], **options)


def test_two_unequal_balls_on_a_line():
    """Problem 5b, derivatives also by restitution, masses and radius."""

    def run(p, options):
        x1, x2, v1, v2, e, m1, m2, r = p
        zero = jnp.zeros_like(x1)
        q0, v0 = jnp.stack([x1, zero, x2, zero]), jnp.stack([v1, zero, v2, zero])
        found = discs(q0, v0, [m1, m2], [r, r], e, 0.8, **options)
        states = jnp.concatenate([found.q_end[::2], found.v_end[::2]])
        return (states, found.contacts.event_time[:1]), found

    def reference(p):
        x1, x2, v1, v2, e, m1, m2, r = p
        q, v, times = discs_at(
            0.8, [[x1, 0], [x2, 0]], [[v1, 0], [v2, 0]], np.zeros((2, 2)), [m1, m2], [r, r], e
        )
        return np.concatenate([q[:, 0], v[:, 0]]), times

    compared(run, reference, [0.0, 0.9, 2.0, -0.5, 0.6, 1.0, 2.5, 0.15])


def test_three_discs_two_collisions():
    """Problem 5g: the whole Jacobian (12, 12) of a billiard."""
    masses, radii, e = [1.0, 1.2, 0.8], [0.1, 0.1, 0.12], 0.95
    y0 = [0, 0, 0.5, 0.05, 1, -0.02, 2, 0, 0, 0, -0.1, 0.05]

    def run(p, options):
        found = discs(p[:6], p[6:], masses, radii, e, 1.0, **options)
        return (jnp.concatenate([found.q_end, found.v_end]), found.contacts.event_time[:2]), found

    def reference(p):
        q, v, times = discs_at(
            1.0, p[:6].reshape(3, 2), p[6:].reshape(3, 2), np.zeros((3, 2)), masses, radii, e
        )
        return np.concatenate([q.ravel(), v.ravel()]), times

    trajectory = compared(run, reference, y0)
    assert trajectory.contacts.num_events == 2


def test_two_balls_on_a_line():
    """Problem 5a, the gradients of nimblephysics issue 97: x1 ends where it would if the balls had passed through each
    other."""

    def end(s):
        run = discs(
            jnp.stack([s[0], 0.0, s[1], 0.0]),
            jnp.stack([s[2], 0.0, s[3], 0.0]),
            [1.0] * 2,
            [0.1] * 2,
            1.0,
            1.0,
            **TIGHT,
        )
        return run.q_end[::2], (run.q_end[::2], run.v_end[::2], run.contacts.event_time[0])

    jacobian, found = jax.jit(jax.jacrev(end, has_aux=True))(jnp.array([0.0, 0.52, 1.0, 0.0]))
    within(1e-9, jacobian, [[0, 1, 0, 1], [1, 0, 1, 0]])
    for x, exact in zip(found, ([0.32, 1.2], [0.0, 1.0], 0.32), strict=True):
        within(1e-9, x, exact)


@pytest.mark.parametrize(
    ("apart", "after"), [(0.0, [-1 / 3, 2 / 3, 2 / 3]), (1e-6, [0, 0, 1])], ids=["together", "in turn"]
)
def test_impacts_at_one_instant_are_one_problem(apart, after):
    """Problem 5h, three equal balls, two of them touching: by Moreau's law both contacts are struck, and the balls leave
    with -1/3, 2/3 and 2/3. However little they are apart, the impacts follow each other, and only the last one leaves.
    """
    run = discs([0, 0, 0.5, 0, 0.7 + apart, 0], [1, 0, 0, 0, 0, 0], [1.0] * 3, [0.1] * 3, 1.0, 1.0, **TIGHT)
    within(1e-9, run.v_end[::2], after)
    within(1e-12, [run.v_end.sum(), (run.v_end**2).sum()], [1, 1])  # momentum, twice the energy


def test_ball_on_ground_and_wall():
    """Problems 5c and 5d, tasks 1 and 2 of diff_sim_grads (Zhong et al. 2022) in the limit of continuous time."""

    def run(p, options):
        x0, y0, vx, vy, e, wall, g = p
        both = [
            uk.Unilateral(lambda t, q: q[1] - 0.1, restitution=e, name="floor"),
            uk.Unilateral(lambda t, q: wall - q[0] - 0.1, restitution=e, name="wall"),
        ]
        ball = uk.System(jnp.eye(2), jnp.stack([0 * g, -g]), both)
        found = uk.simulate(ball, jnp.stack([x0, y0]), jnp.stack([vx, vy]), t1=0.6, ts=[0.6], **options)
        loss = jnp.sum((found.q_end - jnp.array([-2.0, 1.5])) ** 2)
        states = jnp.concatenate([found.q_end, found.v_end, loss[None]])
        return (states, found.contacts.event_time[:2]), found

    def reference(p):
        x0, y0, vx, vy, e, wall, g = p
        floor = (vy + np.sqrt(vy * vy + 2 * g * (y0 - 0.1))) / g
        side = (wall - 0.1 - x0) / vx
        up, after = e * (g * floor - vy), 0.6 - floor
        q = np.array([wall - 0.1 - e * vx * (0.6 - side), 0.1 + up * after - g * after**2 / 2])
        v = np.array([-e * vx, up - g * after])
        return [*q, *v, np.sum((q - [-2.0, 1.5]) ** 2)], [floor, side]

    compared(run, reference, [-0.5, 1.0, 5.0, -5.0, 0.92, 1.75, 9.8])

    # Task 1 has neither gravity nor a wall in reach: what fell comes up, e times as fast.
    def fallen(y, v, e, r):
        floor = uk.Unilateral(lambda t, q: q[0] - r, restitution=e, name="floor")
        ball = uk.System(jnp.eye(1), jnp.zeros(1), [floor])
        return uk.simulate(ball, jnp.reshape(y, 1), jnp.reshape(v, 1), t1=1.0, ts=[1.0]).q_end[0]

    value, slope = jax.jit(jax.value_and_grad(fallen, (0, 1, 2, 3)))(1.0, -2.0, 1.0, 0.1)
    # y = r - e v (1 - t), t = (y0 - r) / -v
    within(1e-9, [value, *slope], [1.2, -1, -1, 1.1, 2])


def test_two_balls_under_control():
    """Problem 5e (a), task 3 of diff_sim_grads: derivatives by starts, velocities and a constant force."""

    def run(p, options):
        control = jnp.concatenate([p[6:8], jnp.zeros(2)])
        v0 = jnp.concatenate([p[2:4], jnp.zeros(2)])
        found = discs(
            jnp.concatenate([p[:2], p[4:6]]), v0, [1.0, 1.0], [0.2, 0.2], 1.0, 1.0, force=control, **options
        )
        end = found.q_end[2:]
        loss = jnp.sum(end**2) + 0.1 * jnp.sum(p[6:8] ** 2)
        return (jnp.append(end, loss), found.contacts.event_time[:1]), found

    def reference(p):
        a = np.array([p[6:8], [0, 0]])
        q, _, times = discs_at(1.0, [p[:2], p[4:6]], [p[2:4], [0, 0]], a, [1, 1], [0.2, 0.2], 1.0)
        return [*q[1], np.sum(q[1] ** 2) + 0.1 * np.sum(p[6:8] ** 2)], times

    compared(run, reference, [-2.0, -2.0, 0.0, 0.0, -1.0, -1.0, 3.0, 3.0])


def test_best_control_of_two_balls():
    """Problem 5e (b): a control u = a + b t up to the contact. The loss by SciPy, from when and how fast they meet; at
    its least our gradient is zero, elsewhere as the closed form's."""
    way, left = (
        np.sqrt(2) - 0.4,
        np.sqrt(2),
    )  # of the first ball to the contact, and of the second to the goal

    def run(p, options):
        along = jnp.array([1.0, 1.0, 0.0, 0.0]) / np.sqrt(2)
        force = lambda t, q, v: (p[0] + p[1] * t) * along
        q0 = jnp.array([-2.0, -2.0, -1.0, -1.0])
        found = discs(q0, jnp.zeros(4), [1.0, 1.0], [0.2, 0.2], 1.0, 1.0, force=force, **options)
        t = found.contacts.event_time[0]
        spent = p[0] ** 2 * t + p[0] * p[1] * t**2 + p[1] ** 2 * t**3 / 3
        speed = jnp.sqrt(jnp.sum(found.v_end[2:] ** 2))  # of the second ball, as of the first one before
        return (jnp.stack([jnp.sum(found.q_end[2:] ** 2) + 0.1 * spent, speed]), t[None]), found

    def control(t, speed):
        """a and b by which the first ball meets the second at t, with a speed."""
        return np.linalg.solve([[t, t * t / 2], [t * t / 2, t**3 / 6]], [speed, way])

    def loss(x):
        (t, speed), (a, b) = x, control(*x)
        return (left - speed * (1 - t)) ** 2 + 0.1 * (a * a * t + a * b * t**2 + b * b * t**3 / 3)

    best = minimize(loss, [0.6, 3.0], method="Nelder-Mead", options={"xatol": 1e-11, "fatol": 1e-15}).x
    a, b = control(*best)
    found, (slope, _), _ = forward(run, jnp.array([a, b]))
    within(1e-8, found[0], [loss(best), best[1]])
    within(1e-9, found[1], best[:1])
    within(1e-6, slope[0], 0)

    def reference(p):
        # |a t^2 / 2 + b t^3 / 6| = way, by the first of its roots
        t = min(r.real for r in np.roots([p[1] / 6, p[0] / 2, 0, -way]) if abs(r.imag) < 1e-9 and r.real > 0)
        speed = p[0] * t + p[1] * t * t / 2
        return [loss([t, speed]), speed], [t]

    compared(run, reference, [4.0, 1.0])


# ---- a blow through loops, and several at one instant


def after_start(system, q0, v0):
    """Velocities and impulses after what happens at the start."""
    run = uk.simulate(system, q0, v0, t1=1e-3, ts=[0.0], adjoint=dfx.ForwardMode())
    return run.v[0], run.contacts.impulse[0], run


def test_blow_through_a_loop_with_redundant_joints():
    """Problem 11a: three cranks carry one coupler, 12 dependent rows, whose foot is struck; in closed form with one
    coordinate. Derivatives by angle, rate, friction, restitution and the coupler's mass."""
    length, mc, pins = 0.4, 0.3, (-0.5, 0.0, 0.5)

    def system(th, mu, e, M):
        def joints(t, q):
            rows, at = [], q[9:]
            for k, x in enumerate(pins):
                c = q[3 * k : 3 * k + 3]
                half = length / 2 * jnp.stack([jnp.cos(c[2]), jnp.sin(c[2])])
                turned = x * jnp.stack([jnp.cos(at[2]), jnp.sin(at[2])])
                rows += [c[:2] - half - jnp.array([x, 0.0]), c[:2] + half - at[:2] - turned]
            return jnp.concatenate(rows)

        foot = uk.Unilateral(
            lambda t, q: q[10] - length * jnp.sin(th),
            restitution=e,
            friction=mu,
            slip=lambda t, q, v: v[9],
            name="foot",
        )
        crank = [mc, mc, mc * length**2 / 12]
        masses = jnp.concatenate([jnp.array(crank * 3), M * jnp.array([1.0, 1.0, 1 / 12])])
        return uk.System(jnp.diag(masses), jnp.zeros(12), [uk.Holonomic(joints), foot]), masses

    def struck(p):
        th, w, mu, e, M = p
        half, zero = length / 2 * jnp.stack([jnp.cos(th), jnp.sin(th)]), 0.0 * th
        q0 = [jnp.stack([x + half[0], half[1], th]) for x in pins]
        v0 = [jnp.stack([-half[1], half[0], 1.0 + zero])] * 3
        q0 = jnp.concatenate([*q0, jnp.append(2 * half, zero)])
        v0 = w * jnp.concatenate([*v0, jnp.stack([-2 * half[1], 2 * half[0], zero])])
        of, masses = system(th, mu, e, M)
        v, impulse, run = after_start(of, q0, v0)
        energy = 0.5 * (masses @ v**2 - masses @ v0**2)
        return jnp.concatenate([v[2:3], v[10:8:-1], impulse, energy[None]]), run.position_error

    def exact(p):
        """The rate turns round, u_n+ = -e u_n-, and friction is against the slip after the blow."""
        th, w, mu, e, M = p
        inertia = 3 * mc * length**2 / 3 + M * length**2
        n, t = length * jnp.cos(th), -length * jnp.sin(th)
        rate = -e * w
        side = jnp.sign(t * rate)
        normal = inertia * (rate - w) / (n - mu * side * t)
        energy = inertia * (rate**2 - w**2) / 2
        return jnp.stack([rate, n * rate, t * rate, normal, -mu * normal * side, energy])

    p = jnp.array([-1.0, -3.0, 0.3, 0.4, 1.5])
    run = jax.jit(lambda p: struck(p))
    found, error = run(p)
    within(1e-8, found, exact(p))
    within(1e-12, error, 0)
    within(1e-6, jax.jit(jax.jacfwd(lambda p: struck(p)[0]))(p), exactly(exact, p))
    # Without restitution it stops, and every division of the impulse between the rows that stops it is a solution.
    found, _ = run(p.at[3].set(0.0))
    rate, _, _, normal, along, _ = np.asarray(found)
    inertia = 3 * mc * length**2 / 3 + 1.5 * length**2
    within(1e-8, rate, 0)
    within(1e-8, length * (np.cos(-1.0) * normal - np.sin(-1.0) * along), inertia * 3.0)
    assert abs(along) <= 0.3 * normal + 1e-9


def test_limit_and_rough_floor_struck_at_one_instant():
    """Problem 11b: Moreau's law of three rows at once, against the only mode that obeys it, found by trying all."""
    l1, m1, l2, th2 = 0.5, 1.0, 0.4, 0.4

    def mass(q, m2):
        c = m2 * l1 * l2 / 2 * jnp.cos(q[1])
        one, two = m1 * l1**2 / 3 + m2 * l1**2, m2 * l2**2 / 3
        return jnp.stack([jnp.stack([one + two + 2 * c, two + c]), jnp.stack([two + c, two + 0 * c])])

    def tip(q):
        return jnp.stack(
            [l1 * jnp.cos(q[0]) + l2 * jnp.cos(q[0] + q[1]), l1 * jnp.sin(q[0]) + l2 * jnp.sin(q[0] + q[1])]
        )

    def run(p):
        w1, w2, mu, e, el, m2, th1 = p
        start = jnp.stack([th1, th2 + 0 * th1])
        floor = tip(start)[1]
        rows = [
            uk.Unilateral(lambda t, q: th2 - q[1], restitution=el, name="limit"),
            uk.Unilateral(
                lambda t, q: tip(q)[1] - floor,
                restitution=e,
                friction=mu,
                slip=lambda t, q, v: jax.jvp(tip, (q,), (v,))[1][0],
                name="tip",
            ),
        ]
        system = uk.System(lambda t, q: mass(q, m2), jnp.zeros(2), rows)
        v, impulse, _ = after_start(system, start, jnp.stack([w1, w2]))
        return jnp.concatenate([v, impulse])

    def reference(p):
        w1, w2, mu, e, el, m2, th1 = p
        start = jnp.array([th1, th2])
        M, tips = np.asarray(mass(start, m2)), np.asarray(jax.jacfwd(tip)(start))
        J, v = np.array([[0.0, -1.0], tips[1], tips[0]]), np.array([w1, w2])
        G, u0 = J @ np.linalg.solve(M, J.T), J @ v
        free = u0 + np.array([el, e, 0]) * np.minimum(u0, 0)
        found = []
        for limit in (0, 1):
            for friction in ("open", "stick", -1, 1):
                A, b = np.eye(3), np.zeros(3)  # of the impulses
                if limit:
                    A[0], b[0] = G[0], -free[0]
                if friction != "open":
                    A[1], b[1] = G[1], -free[1]
                    if friction == "stick":
                        A[2], b[2] = G[2], -free[2]
                    else:
                        A[2] = [0, friction * mu, 1]  # against a slip of this sign
                if np.linalg.matrix_rank(A, 1e-9) < 3:
                    continue
                impulse = np.linalg.solve(A, b)
                u = G @ impulse + free
                right = np.all(impulse[:2] >= -1e-12) and np.all(u[:2] >= -1e-12)
                right &= abs(impulse[2]) <= mu * impulse[1] + 1e-12
                if right and (friction in ("open", "stick") or u[2] * friction > 0):
                    found.append([*(v + np.linalg.solve(M, J.T @ impulse)), *impulse])
        assert len(found) == 1
        return np.array(found[0])

    p = [-2.0, 1.5, 0.35, 0.3, 0.2, 0.6, -0.9]
    found, slope = jax.jit(lambda p: (run(p), jax.jacfwd(run)(p)))(jnp.array(p))
    within(1e-8, found, reference(np.array(p)))
    within(1e-6, slope, slopes(reference, p))
