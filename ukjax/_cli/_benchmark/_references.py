"""What the benchmark problems' motion is, found without ukjax or JAX: closed forms, published numbers, SciPy."""

import numpy as np

Array = np.ndarray
_GRAVITY = 9.81


def pendulum_angle(t: Array, angle: float, rate: float, w2: float) -> Array:
    """The angle (k,) of angle'' = -w2 sin(angle), swinging or turning, by Jacobi's elliptic functions."""
    from scipy.special import ellipj, ellipk, ellipkinc

    w = np.sqrt(w2)
    k2 = rate**2 / (4 * w2) + np.sin(angle / 2) ** 2
    if k2 < 1:  # sin(angle / 2) = k sn(u)
        home = 2 * np.pi * np.round(angle / (2 * np.pi))
        amplitude = np.arctan2(np.sin((angle - home) / 2), rate / (2 * w))
        sn, _, dn, _ = ellipj(w * t + ellipkinc(amplitude, k2), k2)
        return home + 2 * np.arctan2(np.sqrt(k2) * sn, dn)
    m = 1 / k2  # angle / 2 = am(k w t + u0)
    u = np.sign(rate) * w * np.sqrt(k2) * t + ellipkinc(angle / 2, m)
    turns = np.round(u / (2 * ellipk(m)))
    return 2 * (ellipj(u - 2 * ellipk(m) * turns, m)[3] + np.pi * turns)


def pendulum(t: Array) -> Array:
    """The mass (k, 2) of the pendulum let go at 60 deg."""
    angle = pendulum_angle(t, np.pi / 3, 0.0, _GRAVITY)
    return np.stack([np.sin(angle), -np.cos(angle)], axis=1)


def scara(t: Array) -> Array:
    """The joints (k, 4) that keep the tool on its path, by the cosine rule (Xu-Liu 2017, eq. (48))."""
    x, y = 0.05 * np.sin(0.4 * np.pi * t), 0.35 + 0.05 * np.cos(0.4 * np.pi * t)
    upper, fore, reach2 = 0.2, 0.25, x * x + y * y
    elbow = np.arccos((reach2 - upper**2 - fore**2) / (2 * upper * fore))
    inner = np.arccos((reach2 + upper**2 - fore**2) / (2 * upper * np.sqrt(reach2)))
    shoulder = inner - np.arctan2(x, y)
    return np.stack([shoulder, -elbow, elbow - shoulder, 0.02 * t], axis=1)


def parallelogram(t: Array) -> Array:
    """Pin A (k, 2) from rest at 60 deg: 3.05 theta'' = -3.5 g cos(theta), so theta + pi/2 is a pendulum's angle."""
    theta = pendulum_angle(t, np.pi / 3 + np.pi / 2, 0.0, 3.5 * _GRAVITY / 3.05) - np.pi / 2
    return np.stack([np.cos(theta), np.sin(theta)], axis=1)


def four_bars(t: Array, n: int = 1) -> Array:
    """B0 (k, 2) of n four-bars: ((n + 1) / 3 + n) theta'' = -g ((n + 1) / 2 + n) cos(theta), from upright at -1 rad/s."""
    w2 = _GRAVITY * ((n + 1) / 2 + n) / ((n + 1) / 3 + n)
    theta = pendulum_angle(t, np.pi, -1.0, w2) - np.pi / 2
    return np.stack([np.cos(theta), np.sin(theta)], axis=1)


ANDREWS_END = (
    15.81077119629904, -15.75637105984298, 0.04082224013073101, -0.5347301163226948,
    0.5244099658805304, 0.5347301163226948, 1.048080741042263,
)  # fmt: skip


def andrews(t: Array) -> Array:
    """The seven angles (k, 7) as the IVP Test Set prints them at 0.03 s; NaN before."""
    return np.where(np.isclose(t, 0.03, rtol=1e-12)[:, None], ANDREWS_END, np.nan)


# Bricard: the linkage has threefold symmetry, so its hinges turn by a, b, a, b, a, b with
# (1 - sin a)(1 - sin b) = 1, a smooth curve through the start (0, 0).

_CORNERS = np.array([(0, 0, 0), (1, 0, 0), (1, -1, 0), (1, -1, 1), (0, -1, 1), (0, 0, 1)], float)
_AXES = np.array([(0, 1, 0), (0, 0, 1), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 0, 0)], float)


def _turn(axis: Array, angle: tuple[float, float, float]) -> Array:
    """Taylor coefficients (3, 3, 3) of the rotation by an angle of these Taylor coefficients."""
    K = np.cross(np.eye(3), -axis)
    (_, first, second), (s, c) = angle, (np.sin(angle[0]), np.cos(angle[0]))
    sine = (s, c * first, c * second - s * first**2 / 2)
    cosine = (c, -s * first, -s * second - c * first**2 / 2)
    unit = (1.0, 0.0, 0.0)
    return np.array(
        [e * np.eye(3) + x * K + (e - y) * K @ K for e, x, y in zip(unit, sine, cosine, strict=True)]
    )


def bricard_corners(a: float, b: float) -> Array:
    """The six corners along the curve, as Taylor coefficients in its parameter (3, 6, 3).

    The parameter's rate is that of (a, b)' = (-F_b, F_a), along F = (1 - sin a)(1 - sin b) = 1.
    """
    (sa, ca), (sb, cb) = (np.sin(a), np.cos(a)), (np.sin(b), np.cos(b))
    first = cb * (1 - sa), -ca * (1 - sb)
    second = (
        -sb * (1 - sa) * first[1] - cb * ca * first[0],
        sa * (1 - sb) * first[0] + ca * cb * first[1],
    )
    angles = [(x, f, s / 2) for x, f, s in zip((a, b), first, second, strict=True)]
    Q = np.array([np.eye(3), np.zeros((3, 3)), np.zeros((3, 3))])
    corners = [np.zeros((3, 3))]
    for k in range(5):
        R = _turn(_AXES[k], angles[k % 2])
        Q = np.array([sum(Q[i] @ R[j - i] for i in range(j + 1)) for j in range(3)])
        corners.append(corners[-1] + Q @ (_CORNERS[k + 1] - _CORNERS[k]))
    return np.stack(corners, axis=1)


def _doubled_energy(u: Array, w: Array) -> float:
    """2 T of slender rods of 1 kg between corners of velocities u and w, as a bilinear form."""
    p, q = slice(None, -1), slice(1, None)
    return np.sum(2 * u[p] * w[p] + u[p] * w[q] + u[q] * w[p] + 2 * u[q] * w[q]) / 6


def _bricard_rates(t: float, y: Array) -> Array:
    """(a', b', rate') of the one degree of freedom along the curve."""
    a, b, rate = y
    x = bricard_corners(a, b)
    slope, bend = x[1], 2 * x[2]
    load = _doubled_energy(slope, bend) * rate**2 + _GRAVITY * np.sum(slope[:-1, 1] + slope[1:, 1]) / 2
    along = rate * np.cos(b) * (1 - np.sin(a)), -rate * np.cos(a) * (1 - np.sin(b))
    return np.array([*along, -load / _doubled_energy(slope, slope)])


def bricard(t: Array) -> Array:
    """P3 (k, 3), by SciPy's DOP853 along the curve of closed loops."""
    from scipy.integrate import solve_ivp

    solution = solve_ivp(
        _bricard_rates, (t[0], t[-1]), np.zeros(3), "DOP853", t_eval=t, rtol=1e-12, atol=1e-12
    )
    return np.array([bricard_corners(a, b)[0, 2] for a, b, _ in solution.y.T])


def _spin_inertia(angle: float) -> tuple[float, float]:
    """The governor's moment of inertia about its shaft, and its derivative by the rods' angle."""
    rod, w, beside, m, ball = 1.0, 0.01, 0.05, 0.3, 5.0
    across, axial = m * (rod * rod + w * w) / 12, m * w * w / 6
    c, s = np.cos(angle), np.sin(angle)
    far, near = beside + rod * c, beside + rod * c / 2
    value = m * w * w / 6 + 3.0 * 0.1**2 / 6
    value += 2 * (ball * far**2 + m * near**2 + across * c * c + axial * s * s)
    return value, -2 * s * (2 * ball * rod * far + m * rod * near + 2 * (across - axial) * c)


def _flyball_rates(t: float, y: Array) -> Array:
    """(s', angle', s'', angle''), the spin eliminated by its momentum."""
    rod, w, m, ball, slider, K, C, rest = 1.0, 0.01, 0.3, 5.0, 3.0, 8e5, 4e4, 0.5
    hinge = m * (rod * rod + w * w) / 12 + m * rod * rod / 4 + ball * rod * rod
    momentum = _spin_inertia(np.pi / 6)[0] * 2 * np.pi
    s, angle, ds, dangle = y
    sine, cosine = np.sin(angle), np.cos(angle)
    value, slope = _spin_inertia(angle)
    x, z = rod / 2 * cosine, rod - rod / 2 * sine - s
    length = np.hypot(x, z)
    by_s, by_angle = -z / length, (-x * sine - z * cosine) * rod / 2 / length
    tension = K * (length - rest) + C * (by_s * ds + by_angle * dangle)
    torque = slope * (momentum / value) ** 2 / 2 + 2 * (ball + m / 2) * rod * _GRAVITY * cosine
    bend = (torque - 2 * tension * by_angle) / (2 * hinge)
    return np.array([ds, dangle, -_GRAVITY - 2 * tension * by_s / slider, bend])


def flyball_governor(t: Array) -> Array:
    """s (k, 1), by SciPy's LSODA on slide and rods' angle."""
    from scipy.integrate import solve_ivp

    y0 = [0.5, np.pi / 6, 0.0, 0.0]
    solution = solve_ivp(_flyball_rates, (t[0], t[-1]), y0, "LSODA", t_eval=t, rtol=1e-12, atol=1e-13)
    return solution.y[:1].T
