"""Mechanisms of the field: closed forms, published numbers, and equations written down another way."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import GRAVITY, integrate
from scipy.integrate import solve_ivp
from scipy.optimize import least_squares

import ukjax as uk

# --- Bicycle

# Of Meijaard et al. 2007, Table 2, by speed [m/s]: the weave's real and imaginary part, capsize and castering [1/s].
EIGENVALUES = {
    4.0: (0.41325331521125, 3.07910818603206, -1.42944427361326, -12.15861426576447),
    5.0: (-0.77534188219585, 4.46486771378823, -0.32286642900409, -14.07838969279822),
    6.0: (-1.52644486584142, 5.87673060598709, -0.00406690076970, -16.08537123098026),
    10.0: (-3.72016840437287, 10.90681139476287, 0.16105338653172, -24.62459635017404),
}


@pytest.mark.slow
@pytest.mark.usefixtures("optimized")
def test_eigenvalues_of_the_benchmark_bicycle():
    """To 12 digits; what else there is, of position, heading and speed, is zero."""

    free = ["seat x", "seat y", "steer"]
    for speed, (weave, turns, capsize, castering) in EIGENVALUES.items():
        found = np.linalg.eigvals(uk.analysis.linearize(uk.models.bicycle(speed=speed), independent=free).A)
        of_lean = found[np.argsort(-np.abs(found))][:4]
        expected = [complex(weave, turns), complex(weave, -turns), capsize, castering]
        for value in expected:
            assert np.abs(of_lean - value).min() < 1e-12 * max(1.0, abs(castering))


@pytest.mark.slow
def test_the_bicycle_is_stable_between_the_benchmarks_speeds():
    """Pushed a little, it straightens up at 5 m/s, and falls at 3."""
    lean = lambda speed: _lean(uk.simulate(uk.models.bicycle(speed=speed, roll_rate=0.05), t1=4.0, ts=41))
    steady, falling = lean(5.0), lean(3.0)
    assert np.abs(steady[-5:]).max() < 0.25 * np.abs(steady).max()
    assert np.abs(falling[-1]) > 5 * np.abs(steady).max()


def _lean(run: uk.Trajectory) -> np.ndarray:
    """Of the rear wheel: how far its axle is from the horizontal."""
    placements = jax.vmap(run.problem.system.placements)(run.t, run.q)
    axle = jax.vmap(lambda p: p.vector(jnp.array([0.0, 1.0, 0.0])))(placements["rear wheel"])
    return np.asarray(axle)[:, 2]


# --- Closed loops


def _frames(crank: float, rod: float, y: float, z: float, angle: float):
    """Slider position and orientation of the rod of the spatial slider-crank, as functions of the crank's angle."""
    pin = jnp.stack([0.0 * angle, y - crank * jnp.sin(angle), z + crank * jnp.cos(angle)])
    x = jnp.sqrt(rod**2 - pin[1] ** 2 - pin[2] ** 2)
    slider = jnp.stack([x, 0.0 * x, 0.0 * x])
    d = (slider - pin) / rod
    across = jnp.stack([-d[1], d[0], 0.0 * x]) / jnp.hypot(d[0], d[1])
    return slider, 0.5 * (slider + pin), jnp.stack([d, across, jnp.cross(d, across)], axis=1)


def test_spatial_slider_crank_moves_as_its_crank_alone():
    """Lagrange's equation of the crank's angle, J(s) s'' + J'(s) s'^2 / 2 + V'(s) = 0, integrated by SciPy."""
    frames = lambda s: _frames(0.08, 0.3, 0.1, 0.12, s)

    def inertia(s):
        (_, _, R), (slider, middle, dR) = jax.jvp(frames, (s,), (jnp.ones_like(s),))
        spin = R.T @ dR  # skew, in the rod's axes: along, across, third
        omega = jnp.stack([spin[2, 1], spin[0, 2], spin[1, 0]])
        moments = jnp.array([4e-4, 4e-3, 4e-3])
        return 1e-4 + 2.0 * slider @ slider + 0.5 * middle @ middle + moments @ omega**2

    height = lambda s: 0.5 * GRAVITY * frames(s)[1][2]
    terms = jax.jit(lambda s: (*jax.value_and_grad(inertia)(s), jax.grad(height)(s)))

    def acceleration(s, w):
        J, dJ, dV = map(float, terms(s[0]))
        return np.array([-(0.5 * dJ * w[0] ** 2 + dV) / J])

    problem = uk.models.spatial_slider_crank()
    run = uk.simulate(problem, t1=1.0, ts=11, rtol=1e-10, atol=1e-10)
    angles, _ = integrate(acceleration, np.zeros(1), np.array([6.0]), np.asarray(run.t))
    expected = jax.jit(jax.vmap(lambda s: frames(s)[0]))(np.asarray(angles).ravel())
    np.testing.assert_allclose(run.points()["slider"], expected, rtol=0, atol=1e-8)


def test_bennett_keeps_the_product_of_tangents():
    """tan(theta / 2) tan(phi / 2) = sin((beta + alpha) / 2) / sin((beta - alpha) / 2) all the way round."""
    a, b, alpha = 1.0, 1.5, np.pi / 6
    beta = np.arcsin(b * np.sin(alpha) / a)
    problem = uk.models.bennett(a=a, b=b, alpha=alpha, angle=1.0)
    run = uk.simulate(problem, t1=3.0, ts=31)
    assert np.all(np.asarray(run.rank) == 2)
    # Coordinates count from the start, where the second hinge is at -phi.
    product = np.sin((beta + alpha) / 2) / np.sin((beta - alpha) / 2)
    phi0 = 2 * np.arctan(product / np.tan(0.5))
    theta, phi = 1.0 + np.asarray(run.q[:, 0]), phi0 - np.asarray(run.q[:, 1])
    np.testing.assert_allclose(np.tan(theta / 2) * np.tan(phi / 2), product, rtol=1e-9)
    assert float(run.energy_drift) < 1e-5
    assert np.ptp(theta) > 0.5


HOLY = {
    "b": 41.5,
    "c": 39.3,
    "d": 40.1,
    "e": 55.8,
    "f": 39.4,
    "g": 36.7,
    "h": 65.7,
    "i": 49.0,
    "j": 50.0,
    "k": 61.9,
}


def test_the_foot_of_the_strandbeest():
    """Where Jansen's eleven lengths put it, found by solving the distances for all pins at once."""
    problem = uk.models.strandbeest(scale=1.0, density=1e-3)
    run = uk.simulate(problem, t1=2.0, ts=9, rtol=1e-9, atol=1e-9)
    points = jax.vmap(problem.system.points)(run.t, run.q)
    pins = {"C": "shoulder.C", "D": "foot.D", "E": "shoulder.E", "F": "foot.F", "G": "foot.G"}
    B = np.array([-38.0, -7.8])
    for k in range(len(run)):
        P = np.asarray(points["crank.end"][k])

        def off(x, P=P):
            C, D, E, F, G = x.reshape(5, 2)
            pairs = {
                "b": (B, C), "c": (B, D), "d": (B, E), "e": (C, E), "f": (E, F), "g": (D, F), "h": (F, G), "i": (D, G),
                "j": (P, C), "k": (P, D),
            }  # fmt: skip
            return [np.linalg.norm(p - q) - HOLY[name] for name, (p, q) in pairs.items()]

        found = np.array([points[name][k] for name in pins.values()])
        solved = least_squares(off, found.ravel() + 0.1, xtol=1e-15, ftol=1e-15, gtol=1e-15).x
        np.testing.assert_allclose(found, solved.reshape(5, 2), rtol=0, atol=1e-6)
        np.testing.assert_allclose(np.linalg.norm(P), 15.0, rtol=1e-12)


def test_the_stewart_platform_follows_its_path_and_legs_bear_newtons_forces():
    """Leg forces f: the sum of f u is m (p'' + g), and that of moments d(I omega)/dt, of the path's derivatives."""
    problem = uk.models.stewart()
    run = uk.simulate(problem, t1=1.3, ts=14)
    pose = problem.system.joints[0].pose
    t = np.asarray(run.t)
    s, w = np.sin(2.0 * t), 2.0
    np.testing.assert_allclose(run.q[:, 0], 0.2 * s, rtol=0, atol=1e-12)
    np.testing.assert_allclose(run.q[:, 2], 1.2 + 0.15 * np.sin(4.0 * t), rtol=0, atol=1e-12)
    m, across = 50.0, 50.0 * 0.6**2 / 4  # of a disc about a diameter
    for k in range(len(t)):
        p = np.array([0.2 * s[k], 0.0, 1.2 + 0.15 * np.sin(4 * t[k])])
        force = m * np.array([-0.2 * w**2 * s[k], 0.0, -0.15 * 16 * np.sin(4 * t[k]) + GRAVITY])
        moment = np.array([0.0, -across * 0.3 * w**2 * s[k], 0.0])
        columns = []
        for leg in problem.system.joints:
            top = np.asarray(pose.point(t[k], leg.point))
            u = (top - np.asarray(leg.parent_point)) / np.linalg.norm(top - np.asarray(leg.parent_point))
            columns.append(np.concatenate([u, np.cross(top - p, u)]))
        expected = np.linalg.solve(np.stack(columns, axis=1), np.concatenate([force, moment]))
        np.testing.assert_allclose(run.multipliers[k], expected, rtol=0, atol=1e-8 * np.abs(expected).max())


# --- Rolling


def test_a_ball_on_a_turntable_goes_round_at_two_sevenths():
    """Its centre obeys v' = 2/7 Omega x v, so it runs round a circle: x + iy = x0 + v0 (e^(i w t) - 1) / (i w)."""
    run = uk.simulate(uk.models.turntable_ball(), ts=51, rtol=1e-10, atol=1e-10)
    w, t = 2.0 / 7.0 * 3.0, np.asarray(run.t)
    place = 0.3 + 0.2j * (np.exp(1j * w * t) - 1) / (1j * w)
    ball = np.asarray(run.points()["ball"])
    np.testing.assert_allclose(ball[:, 0] + 1j * ball[:, 1], place, rtol=0, atol=1e-8)
    np.testing.assert_allclose(ball[:, 2], 0.05, rtol=0, atol=1e-12)


def _rolling_stone(y, a2, depth, m, inertia):
    """Newton and Euler in the stone's axes for rolling: omega' and n', n the vertical there (Bondi 1986)."""
    omega, n = y[:3], y[3:]
    reach = np.sqrt(n @ (a2 * n))
    r = -a2 * n / reach + np.array([0.0, 0.0, depth])  # from the centre of mass, which lies below the middle
    dn = np.cross(n, omega)
    dr = -a2 * dn / reach + a2 * n * (n @ (a2 * dn)) / reach**3
    v = -np.cross(omega, r)
    right = -np.cross(omega, inertia @ omega) + m * np.cross(
        r, -np.cross(omega, dr) + np.cross(omega, v) + GRAVITY * n
    )
    mass = inertia + m * (r @ r * np.eye(3) - np.outer(r, r))
    return np.concatenate([np.linalg.solve(mass, right), dn])


@pytest.mark.slow
def test_the_rattleback_reverses():
    """Against Newton and Euler in body axes, integrated by SciPy; and it turns back."""
    run = uk.simulate(uk.models.rattleback(tip=0.5), t1=7.0, ts=51, rtol=1e-10, atol=1e-10)
    inertia = np.array([[2e-4, -2e-5, 0.0], [-2e-5, 1.6e-3, 0.0], [0.0, 0.0, 1.7e-3]])
    squares = np.array([0.2, 0.03, 0.02]) ** 2
    fn = lambda t, y: _rolling_stone(y, squares, 0.01, 1.0, inertia)
    start = np.array([0.5, 0.0, -5.0, 0.0, 0.0, 1.0])
    exact = solve_ivp(fn, (0.0, 7.0), start, "DOP853", np.asarray(run.t), rtol=1e-10, atol=1e-11).y.T
    placements = jax.vmap(run.problem.system.placements)(run.t, run.q)
    up = jax.vmap(lambda p: p.back(jnp.array([0.0, 0.0, 1.0])))(placements["stone"])
    np.testing.assert_allclose(up, exact[:, 3:], rtol=0, atol=1e-5)
    spin = np.einsum("ki,ki->k", exact[:, :3], exact[:, 3:])
    np.testing.assert_allclose(run.v[:, 3:], exact[:, :3], rtol=0, atol=1e-4)
    assert spin[0] < -4.9
    assert spin[-1] > 2.0
