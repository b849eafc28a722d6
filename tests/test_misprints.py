"""The misprints that docs/theory.md lists: what is printed fails, and what is said to be meant holds."""

import functools

import numpy as np
import pytest
from scipy.linalg import expm
from scipy.spatial.transform import Rotation

# --- Xu and Liu 2017: the SCARA arm, in numpy with SciPy's matrix exponential

MASSES, INERTIAS = (20.0, 15.0, 15.0, 0.5), (0.27, 0.31, 0.02, 0.0001)
L1, L2, R1, R2 = 0.2, 0.25, 0.1, 0.125
CENTRES = (R1, L1 + R2, L1 + L2, L1 + L2)
TWISTS = np.array([[x, 0, 0, 0, 0, 1] for x in (0, L1, L1 + L2)] + [[0, 0, 1, 0, 0, 0]], float)
START = np.array([*np.radians([30.0, -55.0, 24.0]), 0.0])


def _hat(w):
    return np.array([[0, -w[2], w[1]], [w[2], 0, -w[0]], [-w[1], w[0], 0]])


@functools.cache
def _turn(link, x):
    """exp(xi x) of a link's twist."""
    xi = TWISTS[link]
    return expm(np.block([[_hat(xi[3:]), xi[:3, None]], [np.zeros((1, 4))]]) * x)


def _adjoint(g):
    R, p = g[:3, :3], g[:3, 3]
    return np.block([[R, _hat(p) @ R], [np.zeros((3, 3)), R]])


def _bracket(x, y):
    """[x, y] of twists, the vee of hat(x) hat(y) - hat(y) hat(x)."""
    linear = np.cross(x[3:], y[:3]) - np.cross(y[3:], x[:3])
    return np.concatenate([linear, np.cross(x[3:], y[3:])])


def _between(q, i, j):
    """A_ij of eq. (25), i >= j."""
    g = np.eye(4)
    for k in range(j + 1, i + 1):
        g = g @ _turn(k, q[k])
    return np.linalg.inv(_adjoint(g))


def _link(q, i):
    """Ad of g_SCi(q) (eq. (15)); at q = 0 of the frame at rest."""
    g = np.eye(4)
    for k in range(i + 1):
        g = g @ _turn(k, q[k])
    rest = np.eye(4)
    rest[1, 3] = CENTRES[i]
    return _adjoint(g @ rest)


def _inertia(i):
    return np.diag([MASSES[i]] * 3 + [0, 0, INERTIAS[i]])


def _by_24(q, at):
    """M by eq. (24), Ad taken at `at`."""
    M = np.zeros((4, 4))
    for i in range(4):
        columns = [_between(q, i, j) @ TWISTS[j] if j <= i else np.zeros(6) for j in range(4)]
        J = np.linalg.inv(_link(at, i)) @ np.stack(columns, axis=1)
        M += J.T @ _inertia(i) @ J
    return M


def _by_26(q, at, *, inverse_twice):
    """M by eqs. (26)-(27), the first factor of (26) inverted or not."""
    M = np.zeros((4, 4))
    for i in range(4):
        Ad = _link(at, i)
        inverse = np.linalg.inv(Ad)
        columns = [_between(q, i, j) @ TWISTS[j] if j <= i else np.zeros(6) for j in range(4)]
        B = np.stack(columns, axis=1)
        M += B.T @ (inverse if inverse_twice else Ad).T @ _inertia(i) @ inverse @ B
    return M


def _mass(q):
    """M from the kinetic energy of links that turn about z, their centres by finite differences of sines."""
    p = lambda q, i: np.array(
        [
            [-R1 * np.sin(q[0]), R1 * np.cos(q[0]), 0],
            [-L1 * np.sin(q[0]) - R2 * np.sin(q[0] + q[1]), L1 * np.cos(q[0]) + R2 * np.cos(q[0] + q[1]), 0],
            *[[-L1 * np.sin(q[0]) - L2 * np.sin(q[0] + q[1]), L1 * np.cos(q[0]) + L2 * np.cos(q[0] + q[1]), z]
              for z in (0.0, q[3])],
        ]
    )[i]  # fmt: skip
    turning = np.array([[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 0]], float)
    M, h = np.zeros((4, 4)), 1e-5
    for i in range(4):
        J = np.stack([(p(q + h * e, i) - p(q - h * e, i)) / (2 * h) for e in np.eye(4)], axis=1)
        M += MASSES[i] * J.T @ J + INERTIAS[i] * np.outer(turning[i], turning[i])
    return M


def test_xu_liu_24_and_26_take_the_adjoint_at_rest_and_twice_inverted():
    zero, exact = np.zeros(4), _mass(START)
    np.testing.assert_allclose(_by_24(START, zero), exact, atol=1e-8)
    np.testing.assert_allclose(_by_26(START, zero, inverse_twice=True), exact, atol=1e-8)
    assert np.abs(_by_24(START, START) - exact).max() > 0.5
    assert np.abs(_by_26(START, START, inverse_twice=False) - exact).max() > 6
    assert np.abs(_by_26(START, zero, inverse_twice=False) - exact).max() > 6


def _rate_of_mass(q, *, printed):
    """dM_ij / dq_k below eq. (30); its first bracket with A_li as printed, or with A_ki."""
    D = np.zeros((4, 4, 4))
    inverses = [np.linalg.inv(_link(np.zeros(4), i)) for i in range(4)]
    at = lambda i, j: _between(q, i, j) if i >= j else np.zeros((6, 6))
    for i, j, k, m in np.ndindex(4, 4, 4, 4):
        if m >= max(i, j):
            inertia = at(m, k).T @ inverses[m].T @ _inertia(m) @ inverses[m]
            first = _bracket(at(m if printed else k, i) @ TWISTS[i], TWISTS[k])
            second = _bracket(at(k, j) @ TWISTS[j], TWISTS[k])
            D[i, j, k] += first @ inertia @ at(m, j) @ TWISTS[j]
            D[i, j, k] += second @ inertia @ at(m, i) @ TWISTS[i]
    return D


def test_xu_liu_30_needs_the_twist_carried_to_link_k():
    q, h = START + np.array([0.1, 0.4, -0.2, 0.05]), 1e-4
    exact = np.stack([(_mass(q + h * e) - _mass(q - h * e)) / (2 * h) for e in np.eye(4)], axis=2)
    np.testing.assert_allclose(_rate_of_mass(q, printed=False), exact, atol=1e-5)
    assert np.abs(_rate_of_mass(q, printed=True) - exact).max() > 0.5


def test_xu_liu_start_as_printed_misses_the_path_by_0_405_m():
    q1, q12 = np.radians([30.0, 85.0])
    tool = np.array([-L1 * np.sin(q1) - L2 * np.sin(q12), L1 * np.cos(q1) + L2 * np.cos(q12)])
    miss = tool - [0.0, 0.40]
    np.testing.assert_allclose([abs(miss[0]), np.hypot(*miss)], [0.349, 0.405], atol=5e-4)


@pytest.mark.parametrize("gamma", [-2.5, 0.3, 3.0])
def test_xu_liu_45_is_phi_psi_gamma(gamma):
    """At psi = 0 with phi = 0 the angle left is gamma = atan2(-r12, r11)."""
    R = Rotation.from_euler("ZYZ", [0.0, 0.0, gamma]).as_matrix()
    np.testing.assert_allclose(np.arctan2(-R[0, 1], R[0, 0]), gamma, rtol=1e-12)


# --- de Falco, Pennestri and Vita 2008


def test_dpv_27_has_the_other_sign_of_23():
    rng = np.random.default_rng(0)
    M, A = np.diag(rng.uniform(1, 2, 5)), rng.normal(size=(3, 5))
    F, gamma = rng.normal(size=5), rng.normal(size=3)
    x = np.linalg.solve(np.block([[M, A.T], [A, np.zeros((3, 3))]]), np.concatenate([F, gamma]))
    free = np.linalg.solve(M, F)
    by_27 = np.linalg.solve(A @ np.linalg.solve(M, A.T), gamma - A @ free)
    np.testing.assert_allclose(x[5:], -by_27, rtol=1e-10)
    np.testing.assert_allclose(x[:5], free + np.linalg.solve(M, A.T @ by_27), rtol=1e-9)


def test_dpv_13_needs_the_transpose():
    """With A = Q diag(L, 0) P of (12), the pseudoinverse is P^T diag(L^-1, 0) Q^T."""
    rng = np.random.default_rng(1)
    (Q, _), (P, _) = np.linalg.qr(rng.normal(size=(4, 4))), np.linalg.qr(rng.normal(size=(4, 4)))
    middle, inverse = np.zeros((4, 4)), np.zeros((4, 4))
    middle[:2, :2] = np.tril(rng.normal(size=(2, 2))) + 2 * np.eye(2)
    inverse[:2, :2] = np.linalg.inv(middle[:2, :2])
    exact = np.linalg.pinv(Q @ middle @ P)
    np.testing.assert_allclose(P.T @ inverse @ Q.T, exact, atol=1e-12)
    assert np.abs(P @ inverse @ Q.T - exact).max() > 0.1


# --- Liu et al. 2015


def test_liu_58_has_the_other_sign():
    theta, h = 0.7, 1e-6
    place = lambda x: 0.5 * np.array([np.cos(x), np.sin(x)])
    rate = (place(theta + h) - place(theta - h)) / (2 * h)
    np.testing.assert_allclose(rate, [-0.5 * np.sin(theta), 0.5 * np.cos(theta)], atol=1e-9)
