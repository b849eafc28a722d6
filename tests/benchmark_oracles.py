"""Independent answers for the benchmark models: closed forms and one or three degrees of freedom, by NumPy and SciPy.

Nothing here knows ukjax or JAX.
"""

import numpy as np
from oracles import GRAVITY, Array, pendulum_elliptic
from scipy.integrate import solve_ivp

# --- n four-bars: parallel links that turn together, couplers that do not turn


def four_bars_top(t, n: int = 1, angle: float = np.pi / 2, speed: float = 1.0) -> tuple[Array, Array]:
    """Angle of the links from the horizontal (k,), and B0 (k, 2).

    With rods of 1 m and 1 kg ((n + 1) / 3 + n) angle'' = -g ((n + 1) / 2 + n) cos(angle): a pendulum's equation for the
    angle from hanging, angle + pi / 2.
    """
    w2 = GRAVITY * ((n + 1) / 2 + n) / ((n + 1) / 3 + n)
    theta = pendulum_elliptic(t, angle + np.pi / 2, -speed, w2)[0] - np.pi / 2
    return theta, np.stack([np.cos(theta), np.sin(theta)], axis=-1)


# --- Andrews' squeezer: IVP test set, at 0.03 s

ANDREWS_START = (
    -0.0617138900142764496358948458001, 0.0, 0.455279819163070380255912382449, 0.222668390165885884674473185609,
    0.487364979543842550225598953530, -0.222668390165885884674473185609, 1.23054744454982119249735015568,
)  # fmt: skip
ANDREWS_END = (
    15.81077119629904, -15.75637105984298, 0.04082224013073101, -0.5347301163226948,
    0.5244099658805304, 0.5347301163226948, 1.048080741042263,
)  # fmt: skip

# --- Bricard: the linkage has threefold symmetry, so its hinges turn by a, b, a, b, a, b with
# (1 - sin a)(1 - sin b) = 1, a smooth curve through the start (0, 0)

_CORNERS = np.array([(0, 0, 0), (1, 0, 0), (1, -1, 0), (1, -1, 1), (0, -1, 1), (0, 0, 1)], float)
_AXES = np.array([(0, 1, 0), (0, 0, 1), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 0, 0)], float)


def _turn(axis: Array, angle: Array) -> Array:
    """Taylor coefficients of the rotation by an angle of Taylor coefficients angle[0], angle[1], angle[2]."""
    K = np.cross(np.eye(3), -axis)
    (_, first, second), (s, c) = angle, (np.sin(angle[0]), np.cos(angle[0]))
    sine = (s, c * first, c * second - s * first**2 / 2)
    cosine = (c, -s * first, -s * second - c * first**2 / 2)
    unit = (1.0, 0.0, 0.0)
    return np.array(
        [e * np.eye(3) + x * K + (e - y) * K @ K for e, x, y in zip(unit, sine, cosine, strict=True)]
    )


def bricard_corners(a: float, b: float) -> tuple[Array, Array]:
    """The six corners along the curve, as Taylor coefficients in its parameter (3, 6, 3), and the loop's error.

    The parameter's rate is that of (a, b)' = (-F_b, F_a), along F = (1 - sin a)(1 - sin b) = 1.
    """
    (sa, ca), (sb, cb) = (np.sin(a), np.cos(a)), (np.sin(b), np.cos(b))
    first = cb * (1 - sa), -ca * (1 - sb)
    second = (
        -sb * (1 - sa) * first[1] - cb * ca * first[0],
        sa * (1 - sb) * first[0] + ca * cb * first[1],
    )
    angles = [np.array([x, f, s / 2]) for x, f, s in zip((a, b), first, second, strict=True)]
    Q = np.array([np.eye(3), np.zeros((3, 3)), np.zeros((3, 3))])
    corners = [np.zeros((3, 3))]
    for k in range(5):
        R = _turn(_AXES[k], angles[k % 2])
        Q = np.array([sum(Q[i] @ R[j - i] for i in range(j + 1)) for j in range(3)])
        corners.append(corners[-1] + Q @ (_CORNERS[k + 1] - _CORNERS[k]))
    error = np.concatenate([corners[5][0] - _CORNERS[5], np.cross(Q[0] @ _AXES[5], _AXES[5])])
    return np.stack(corners, axis=1), error


def bricard(ts: Array) -> tuple[Array, Array]:
    """P3 (k, 3), and (a, b) (k, 2): slender rods of 1 kg, whose kinetic energy is m (v1.v1 + v1.v2 + v2.v2) / 6."""

    def inner(u: Array, w: Array) -> float:
        """2 T of corner velocities u, w, as a bilinear form."""
        p, q = slice(None, -1), slice(1, None)
        return np.sum(2 * u[p] * w[p] + u[p] * w[q] + u[q] * w[p] + 2 * u[q] * w[q]) / 6

    def rhs(t: float, y: Array) -> Array:
        a, b, rate = y
        x, _ = bricard_corners(a, b)
        slope, bend = x[1], 2 * x[2]
        height = slope[:-1, 1] + slope[1:, 1]
        acceleration = -(inner(slope, bend) * rate**2 + GRAVITY * np.sum(height) / 2) / inner(slope, slope)
        return np.array(
            [
                rate * np.cos(b) * (1 - np.sin(a)),
                -rate * np.cos(a) * (1 - np.sin(b)),
                acceleration,
            ]
        )

    solution = solve_ivp(rhs, (ts[0], ts[-1]), np.zeros(3), "DOP853", t_eval=ts, rtol=1e-12, atol=1e-12)
    assert solution.success
    angles = solution.y[:2].T
    return np.array([bricard_corners(*pair)[0][0, 2] for pair in angles]), angles


# --- Flyball governor: spin, slide and one angle for both rods


def flyball_governor(ts: Array, method: str = "Radau", rtol: float = 1e-11) -> Array:
    """s (k,) and the rods' angle below the horizontal (k,)."""
    rod, w, beside, m, ball, slider = 1.0, 0.01, 0.05, 0.3, 5.0, 3.0
    K, C, rest, g = 8e5, 4e4, 0.5, GRAVITY
    across, axial = m * (rod * rod + w * w) / 12, m * w * w / 6
    hinge = across + m * rod * rod / 4 + ball * rod * rod
    axis = m * w * w / 6 + slider * 0.1**2 / 6

    def spin(angle: float) -> tuple[float, float]:
        """The moment of inertia about the shaft, and its derivative by the angle."""
        c, s = np.cos(angle), np.sin(angle)
        far, near = beside + rod * c, beside + rod * c / 2
        value = axis + 2 * (ball * far**2 + m * near**2 + across * c * c + axial * s * s)
        slope = -2 * s * (2 * ball * rod * far + m * rod * near + 2 * (across - axial) * c)
        return value, slope

    start = np.pi / 6
    momentum = spin(start)[0] * 2 * np.pi

    def rhs(t: float, y: Array) -> Array:
        s, angle, ds, dangle = y
        sine, cosine = np.sin(angle), np.cos(angle)
        value, slope = spin(angle)
        x, z = rod / 2 * cosine, rod - rod / 2 * sine - s
        length = np.hypot(x, z)
        by_s, by_angle = -z / length, (-x * sine - z * cosine) * rod / 2 / length
        tension = K * (length - rest) + C * (by_s * ds + by_angle * dangle)
        torque = slope * (momentum / value) ** 2 / 2 + 2 * (ball * rod + m * rod / 2) * g * cosine
        return np.array(
            [
                ds,
                dangle,
                -g - 2 * tension * by_s / slider,
                (torque - 2 * tension * by_angle) / (2 * hinge),
            ]
        )

    y0 = [0.5, start, 0.0, 0.0]
    solution = solve_ivp(rhs, (ts[0], ts[-1]), y0, method, t_eval=ts, rtol=rtol, atol=1e-13)
    assert solution.success
    return solution.y[:2]
