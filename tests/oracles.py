"""Independent answers for the models: closed forms, elliptic functions, minimal coordinates.

Nothing here knows ukjax or JAX. An oracle in minimal coordinates is an acceleration (the equation
of motion written by hand) and a map to the model's coordinates with its two derivatives;
`integrate` solves the former by SciPy (DOP853, rtol 1e-13).
"""

from collections.abc import Callable

import numpy as np
from scipy.integrate import solve_ivp
from scipy.special import ellipj, ellipk, ellipkinc

GRAVITY = 9.81
Array = np.ndarray
State = tuple[Array, Array, Array]
"""Coordinates, velocities and accelerations of a model."""


def integrate(acceleration: Callable, x0, rate0, ts) -> tuple[Array, Array]:
    """x(ts) and x'(ts) of x'' = acceleration(x, x'), each (len(ts), n); ts[0] is the start."""
    x0, rate0, ts = np.atleast_1d(x0), np.atleast_1d(rate0), np.asarray(ts, float)
    n = x0.size

    def rhs(t, y):
        return np.concatenate([y[n:], np.atleast_1d(acceleration(y[:n], y[n:]))])

    y0 = np.concatenate([x0, rate0]).astype(float)
    solution = solve_ivp(rhs, (ts[0], ts[-1]), y0, "DOP853", t_eval=ts, rtol=1e-13, atol=1e-13, max_step=0.05)
    assert solution.success, solution.message
    return solution.y[:n].T, solution.y[n:].T


# --- SCARA (Xu-Liu 2017)

SCARA = {
    "m1": 20.0, "m2": 15.0, "m3": 15.0, "m4": 0.5, "l0": 0.0, "l1": 0.2, "l2": 0.25, "r1": 0.1,
    "r2": 0.125, "Iz1": 0.27, "Iz2": 0.31, "Iz3": 0.02, "Iz4": 0.0001, "g": 9.8,
}  # fmt: skip


def scara_matrices(q, v, p=SCARA) -> tuple[Array, Array, Array]:
    """M, C and G in the closed forms of eqs. (34), (35), (36)."""
    l1, l2, r2 = p["l1"], p["l2"], p["r2"]
    alpha = p["Iz1"] + p["r1"] ** 2 * p["m1"] + l1**2 * (p["m2"] + p["m3"] + p["m4"])
    beta = p["Iz2"] + p["Iz3"] + p["Iz4"] + l2**2 * (p["m3"] + p["m4"]) + p["m2"] * r2**2
    gamma = l1 * l2 * (p["m3"] + p["m4"]) + l1 * p["m2"] * r2
    delta = p["Iz3"] + p["Iz4"]
    c, s = gamma * np.cos(q[1]), gamma * np.sin(q[1])
    M = np.array(
        [
            [alpha + beta + 2 * c, beta + c, delta, 0.0],
            [beta + c, beta, delta, 0.0],
            [delta, delta, delta, 0.0],
            [0.0, 0.0, 0.0, p["m4"]],
        ]
    )
    C = np.zeros((4, 4))
    C[0, :2] = -s * v[1], -s * (v[0] + v[1])
    C[1, 0] = s * v[0]
    return M, C, np.array([0.0, 0.0, 0.0, p["m4"] * p["g"]])


def scara_posture(t, p=SCARA) -> State:
    """q, q', q'' that meet eq. (48): the elbow q2 < 0 by the cosine rule, then linear systems."""
    w = 0.4 * np.pi
    s, c = 0.05 * np.sin(w * t), 0.05 * np.cos(w * t)
    l1, l2 = p["l1"], p["l2"]
    r2 = s**2 + (0.35 + c) ** 2
    q2 = np.arccos((r2 - l1**2 - l2**2) / (2 * l1 * l2))
    inner = np.arccos((r2 + l1**2 - l2**2) / (2 * l1 * np.sqrt(r2)))
    q1 = inner - np.arctan2(s, 0.35 + c)
    q = np.array([q1, -q2, q2 - q1, 0.02 * t - p["l0"]])
    s1, c1, s12, c12 = np.sin(q1), np.cos(q1), np.sin(q1 - q2), np.cos(q1 - q2)
    A = np.eye(4)
    A[0] = -l1 * c1 - l2 * c12, -l2 * c12, 0, 0
    A[1] = -l1 * s1 - l2 * s12, -l2 * s12, 0, 0
    A[2, :3] = 1
    v = np.linalg.solve(A, [w * c, -w * s, 0, 0.02])
    turn1, turn2 = v[0] ** 2, (v[0] + v[1]) ** 2
    b = [
        -l1 * s1 * turn1 - l2 * s12 * turn2 - w * w * s,
        l1 * c1 * turn1 + l2 * c12 * turn2 - w * w * c,
    ]
    return q, v, np.linalg.solve(A, [*b, 0, 0])


# --- Pendulum, elliptic


def pendulum_elliptic(t, angle, rate, w2) -> tuple[Array, Array]:
    """angle(t), rate(t) of angle'' = -w2 sin(angle), swinging or turning, by Jacobi's functions."""
    t, w = np.asarray(t, float), np.sqrt(w2)
    k2 = rate**2 / (4 * w2) + np.sin(angle / 2) ** 2
    if k2 < 1:  # sin(angle / 2) = k sn(u), rate = 2 w k cn(u)
        k, home = np.sqrt(k2), 2 * np.pi * np.round(angle / (2 * np.pi))
        amplitude = np.arctan2(np.sin((angle - home) / 2), rate / (2 * w))
        sn, cn, dn, _ = ellipj(w * t + ellipkinc(amplitude, k2), k2)
        return home + 2 * np.arctan2(k * sn, dn), 2 * w * k * cn
    k, m, sense = np.sqrt(k2), 1 / k2, np.sign(rate)  # angle / 2 = am(k w t + u0)
    u = sense * w * k * t + ellipkinc(angle / 2, m)
    turns = np.round(u / (2 * ellipk(m)))
    _, _, dn, am = ellipj(u - 2 * ellipk(m) * turns, m)
    return 2 * (am + np.pi * turns), sense * 2 * w * k * dn


def pendulum_acceleration(angle, rate, length=1.0):
    return -GRAVITY / length * np.sin(angle)


def pendulum_state(angle, rate, length=1.0) -> State:
    return n_pendulum_state([angle], [rate], length)


# --- Parallelogram (DPV 2008), one degree of freedom

PARALLELOGRAM_W2 = 3.5 * GRAVITY / 3.05


def parallelogram_acceleration(theta, rate):
    """3.05 theta'' = -3.5 g cos(theta), theta from the horizontal."""
    return -PARALLELOGRAM_W2 * np.cos(theta)


def parallelogram_elliptic(t, theta, rate) -> tuple[Array, Array]:
    """theta(t), theta'(t): theta + pi/2 is a pendulum's angle."""
    angle, speed = pendulum_elliptic(t, theta + np.pi / 2, rate, PARALLELOGRAM_W2)
    return angle - np.pi / 2, speed


def parallelogram_state(theta, rate) -> State:
    """The twelve absolute coordinates, their rates and accelerations."""
    u, n = np.array([np.cos(theta), np.sin(theta)]), np.array([-np.sin(theta), np.cos(theta)])
    bend = parallelogram_acceleration(theta, rate)
    q, v, a = [], [], []
    for i in range(3):
        q += [i + u[0] / 2, u[1] / 2, theta]
        v += [*(n * rate / 2), rate]
        a += [*((n * bend - u * rate**2) / 2), bend]
    q += [1 + u[0], u[1], 0]
    v += [*(n * rate), 0]
    a += [*(n * bend - u * rate**2), 0]
    return np.array(q), np.array(v), np.array(a)


# --- Chain of pendulums, in angles from the downward vertical


def n_pendulum_acceleration(angles, rates, length=1.0) -> Array:
    """sum_j c_ij (cos(d_ij) x_j'' + sin(d_ij) x_j'^2) = -c_ii g / l sin(x_i), d_ij = x_i - x_j."""
    n = len(angles)
    index = np.arange(n)
    count = n - np.maximum(index[:, None], index[None, :])
    d = np.subtract.outer(angles, angles)
    force = -(count * np.sin(d)) @ np.square(rates) - np.diag(count) * GRAVITY / length * np.sin(angles)
    return np.linalg.solve(count * np.cos(d), force)


def n_pendulum_state(angles, rates, length=1.0) -> State:
    angles, rates = np.asarray(angles, float), np.asarray(rates, float)
    bends = n_pendulum_acceleration(angles, rates, length)
    s, c = np.sin(angles), np.cos(angles)
    q, v = np.stack([s, -c], 1), np.stack([c * rates, s * rates], 1)
    a = np.stack([c * bends - s * rates**2, s * bends + c * rates**2], 1)
    return tuple(length * np.cumsum(x, axis=0).ravel() for x in (q, v, a))  # type: ignore[return-value]


# --- Spherical pendulum, polar angle from the downward vertical and azimuth


def spherical_pendulum_acceleration(x, rates, length=1.0) -> Array:
    (theta, _), (theta_rate, phi_rate) = x, rates
    s, c = np.sin(theta), np.cos(theta)
    return np.array([s * c * phi_rate**2 - GRAVITY / length * s, -2 * c / s * theta_rate * phi_rate])


def spherical_pendulum_state(x, rates, length=1.0) -> State:
    (theta, phi), (w, p) = x, rates
    w2, p2 = spherical_pendulum_acceleration(x, rates, length)
    s, c = np.sin(theta), np.cos(theta)
    e, f = np.array([np.cos(phi), np.sin(phi)]), np.array([-np.sin(phi), np.cos(phi)])
    q = np.array([*(s * e), -c])
    v = np.array([*(c * w * e + s * p * f), s * w])
    radial = c * w2 - s * w**2 - s * p**2
    a = np.array([*(radial * e + (2 * c * w * p + s * p2) * f), s * w2 + c * w**2])
    return length * q, length * v, length * a


# --- Slider-crank, one degree of freedom

SLIDER_CRANK = {"crank": 0.5, "rod": 1.0, "masses": (1.0, 2.0, 1.0), "slider_inertia": 0.05}


def _slider_crank_curve(x, p=SLIDER_CRANK) -> State:
    """The nine coordinates as functions of the crank angle, and their two derivatives by it."""
    l1, l2 = p["crank"], p["rod"]
    s, c = l1 * np.sin(x), l1 * np.cos(x)
    tilt = -np.arcsin(s / l2)
    S, C = l2 * np.sin(tilt), l2 * np.cos(tilt)
    d1 = -c / C
    d2 = (s + S * d1**2) / C
    reach = (C, -S * d1, -S * d2 - C * d1**2)
    q = [c / 2, s / 2, x, c + reach[0] / 2, s / 2, tilt, c + reach[0], 0, 0]
    dq = [-s / 2, c / 2, 1, -s + reach[1] / 2, c / 2, d1, -s + reach[1], 0, 0]
    ddq = [-c / 2, -s / 2, 0, -c + reach[2] / 2, -s / 2, d2, -c + reach[2], 0, 0]
    return np.array(q), np.array(dq), np.array(ddq)


def slider_crank_acceleration(angle, rate, p=SLIDER_CRANK) -> float:
    """(k.M k) x'' = k.(Q - M k' x'^2), with k(x) the velocity coefficients."""
    _, k, dk = _slider_crank_curve(float(np.squeeze(angle)), p)
    (m1, m2, m3), l1, l2 = p["masses"], p["crank"], p["rod"]
    M = np.array([m1, m1, m1 * l1**2 / 12, m2, m2, m2 * l2**2 / 12, m3, m3, p["slider_inertia"]])
    Q = -GRAVITY * np.array([0, m1, 0, 0, m2, 0, 0, m3, 0])
    return k @ (Q - M * dk * float(np.squeeze(rate)) ** 2) / (k @ (M * k))


def slider_crank_state(angle, rate, p=SLIDER_CRANK) -> State:
    q, k, dk = _slider_crank_curve(angle, p)
    return q, k * rate, k * slider_crank_acceleration(angle, rate, p) + dk * rate**2


# --- Knife edge and rolling disk, closed forms


def knife_edge(t, speed=0.4, rate=1.5, pull=GRAVITY * 0.5) -> Array:
    """(x, y, heading): u = speed + pull / rate sin(rate t) along the heading rate t; (..., 3)."""
    w, t = rate, np.asarray(t, float)
    x = speed / w * np.sin(w * t) + pull / (2 * w**2) * np.sin(w * t) ** 2
    y = speed / w * (1 - np.cos(w * t)) + pull / (4 * w**2) * (2 * w * t - np.sin(2 * w * t))
    return np.stack([x, y, w * t], axis=-1)


def rolling_disk(t, speed=0.4, rate=1.5, radius=0.5) -> Array:
    """(x, y, heading, roll): the knife edge's path under 2/3 of its pull, and distance / radius."""
    pull, t = GRAVITY * 0.5 / 1.5, np.asarray(t, float)
    distance = speed * t + pull / rate**2 * (1 - np.cos(rate * t))
    path = knife_edge(t, speed, rate, pull)
    return np.concatenate([path, (distance / radius)[..., None]], axis=-1)


# --- Heavy symmetric top, Euler angles (phi about z, theta, psi about the axis)

TOP = {"I1": 1.25, "I3": 0.5, "mgl": GRAVITY}


def top_acceleration(x, rates, p=TOP) -> Array:
    """T = I1/2 (theta'^2 + phi'^2 sin^2) + I3/2 (psi' + phi' cos)^2, V = mgl cos, by Lagrange."""
    theta, (phi1, theta1, psi1) = x[1], rates
    s, c = np.sin(theta), np.cos(theta)
    spin = psi1 + phi1 * c
    theta2 = (p["I1"] * phi1**2 * s * c - p["I3"] * spin * phi1 * s + p["mgl"] * s) / p["I1"]
    phi2 = (p["I3"] * spin * theta1 - 2 * p["I1"] * phi1 * theta1 * c) / (p["I1"] * s)
    return np.array([phi2, theta2, -phi2 * c + phi1 * theta1 * s])


def top_conserved(x, rates, p=TOP) -> Array:
    """Energy and the two angular momenta, about the vertical and about the axis."""
    theta, (phi1, theta1, psi1) = x[1], rates
    spin = psi1 + phi1 * np.cos(theta)
    kinetic = 0.5 * p["I1"] * (theta1**2 + phi1**2 * np.sin(theta) ** 2) + 0.5 * p["I3"] * spin**2
    about_z = p["I1"] * phi1 * np.sin(theta) ** 2 + p["I3"] * spin * np.cos(theta)
    return np.array([kinetic + p["mgl"] * np.cos(theta), about_z, p["I3"] * spin])


def top_nutation(t, theta, phi_rate, spin, p=TOP) -> Array:
    """cos(theta(t)) from theta' = 0, by the elliptic sine between the roots of its cubic."""
    u0 = np.cos(theta)
    a = (p["I1"] * phi_rate * (1 - u0**2) + p["I3"] * spin * u0) / p["I1"]
    b, beta = p["I3"] * spin / p["I1"], 2 * p["mgl"] / p["I1"]
    alpha = phi_rate**2 * (1 - u0**2) + beta * u0
    # u'^2 = (alpha - beta u) (1 - u^2) - (a - b u)^2
    u1, u2, u3 = np.sort(np.roots([beta, -alpha - b**2, 2 * a * b - beta, alpha - a**2]).real)
    m = (u2 - u1) / (u3 - u1)
    phase = 0.0 if abs(u0 - u1) < abs(u0 - u2) else ellipk(m)
    sn = ellipj(0.5 * np.sqrt(beta * (u3 - u1)) * np.asarray(t) + phase, m)[0]
    return u1 + (u2 - u1) * sn**2


def top_rotation(x) -> Array:
    """Body to world: Rz(phi) Rx(theta) Rz(psi)."""
    phi, theta, psi = x

    def about_z(angle):
        c, s = np.cos(angle), np.sin(angle)
        return np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]])

    c, s = np.cos(theta), np.sin(theta)
    return about_z(phi) @ np.array([[1, 0, 0], [0, c, -s], [0, s, c]]) @ about_z(psi)


def top_state(x, rates) -> State:
    """The quaternion (scalar first), the angular velocity in body axes and its rate."""
    (phi, theta, psi), (phi1, theta1, psi1) = x, rates
    phi2, theta2, psi2 = top_acceleration(x, rates)
    c, s, d, e = np.cos(theta / 2), np.sin(theta / 2), (phi - psi) / 2, (phi + psi) / 2
    q = np.array([c * np.cos(e), s * np.cos(d), s * np.sin(d), c * np.sin(e)])
    S, C, sp, cp = np.sin(theta), np.cos(theta), np.sin(psi), np.cos(psi)
    across = phi1 * S
    across1 = phi2 * S + phi1 * theta1 * C
    omega = [across * sp + theta1 * cp, across * cp - theta1 * sp, psi1 + phi1 * C]
    rate = [
        across1 * sp + across * cp * psi1 + theta2 * cp - theta1 * sp * psi1,
        across1 * cp - across * sp * psi1 - theta2 * sp - theta1 * cp * psi1,
        psi2 + phi2 * C - phi1 * theta1 * S,
    ]
    return q, np.array(omega), np.array(rate)


# --- Two masses and a spring


def two_mass_spring(t, x=(0.0, 1.0), m1=1.0, m2=2.0, k=3.0, l=0.5, force=0.0) -> Array:  # noqa: E741
    """x(t) from rest, (..., 2): the centre of mass is pushed, the spring swings about its rest."""
    t, total = np.asarray(t, float), m1 + m2
    w2 = k * (1 / m1 + 1 / m2)
    static = l - force / m1 / w2
    length = static + (x[1] - x[0] - static) * np.cos(np.sqrt(w2) * t)
    centre = (m1 * x[0] + m2 * x[1]) / total + 0.5 * force / total * t**2
    return np.stack([centre - m2 / total * length, centre + m1 / total * length], axis=-1)


# --- Errors under Baumgarte's stabilization: e'' + alpha e' + beta e = 0, one equation a row


def linear_error_loss(alpha, beta, phi, psi, dt, steps, tableau) -> Array:
    """The mean of e^2 over the steps of an explicit Runge-Kutta method, one a row (..., m).

    On a linear equation a step multiplies (e, e') by the method's R(z) = 1 + z b (1 + z A 1 + ...) at z = dt times
    the matrix of the equation. `alpha` and `beta` are arrays (...,) for all rows, or (m,), one a row; the tableau
    has `a_lower` and `b_sol`.
    """
    stages = len(tableau.b_sol)
    A, growth, power = np.zeros((stages, stages)), [1.0], np.ones(stages)
    for i, row in enumerate(tableau.a_lower):
        A[i + 1, : i + 1] = row
    for _ in range(stages):
        growth.append(tableau.b_sol @ power)
        power = A @ power
    alpha, beta = np.broadcast_arrays(np.asarray(alpha, float), np.asarray(beta, float))
    m = np.size(phi)
    if alpha.shape != (m,):
        alpha, beta = (np.repeat(x[..., None], m, axis=-1) for x in (alpha, beta))
    z = np.zeros((*alpha.shape, 2, 2))
    z[..., 0, 1], z[..., 1, 0], z[..., 1, 1] = dt, -dt * beta, -dt * alpha
    R, product = np.zeros_like(z), np.broadcast_to(np.eye(2), z.shape)
    for factor in growth:
        R, product = R + factor * product, product @ z
    e = np.broadcast_to(np.stack([phi, psi], axis=-1), (*alpha.shape, 2))[..., None]
    total = e[..., 0, 0] ** 2
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(steps):
            e = R @ e
            total = total + e[..., 0, 0] ** 2
        return np.where(np.isfinite(total), total, np.inf) / (steps + 1)


def exact_error_loss(alpha, beta, phi, psi, ts) -> Array:
    """The mean of e(t)^2 over the times, one a row (m,), by SciPy."""
    field = lambda t, e: (e[1], -alpha * e[1] - beta * e[0])
    found = [
        solve_ivp(field, (ts[0], ts[-1]), e, "DOP853", ts, rtol=1e-11, atol=1e-13)
        for e in zip(phi, psi, strict=True)
    ]
    return np.array([np.mean(e.y[0] ** 2) for e in found])
