"""The four-bar linkage whose coupler has clearance, in numpy and integrated by SciPy: `clearance_posterior.py`'s check.

Its posterior is sampled through ukjax; nothing of that is used here, the start's posture excepted.
"""

import jax.numpy as jnp
import numpy as np
from four_bar import DENSITY, GRAVITY, LENGTHS, FourBar
from scipy.integrate import solve_ivp

GAINS = (
    40.0,
    800.0,
)  # alpha, beta of all rows: beta / R is the stiffness of the joint, alpha / R its damping
SECONDS, SAMPLES = 1.0, 20


def mass_and_weight(rods: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """M (k, 4, 4) and Q (k, 4) of the lengths of crank, coupler and rocker (k, 3)."""
    a, b, c = DENSITY * rods.T
    M, Q = np.zeros((a.size, 4, 4)), np.zeros((a.size, 4))
    for i in (0, 1):
        M[:, i, i], M[:, 2 + i, 2 + i] = (a + b) / 3, (b + c) / 3
        M[:, i, 2 + i] = M[:, 2 + i, i] = b / 6
    Q[:, 1], Q[:, 3] = -0.5 * GRAVITY * (a + b), -0.5 * GRAVITY * (b + c)
    return M, Q


def acceleration(q: np.ndarray, v: np.ndarray, rods: np.ndarray, clearance: np.ndarray) -> np.ndarray:
    """a (k, 4) from M a = Q + A^T lambda and A a + R lambda = b; R of the coupler's row alone."""
    M, Q = mass_and_weight(rods)
    W, R = np.linalg.inv(M), np.zeros((len(q), 3, 3))
    R[:, 1, 1] = clearance
    vectors = np.stack([q[:, :2], q[:, 2:] - q[:, :2], q[:, 2:] - [LENGTHS[0], 0.0]], axis=1)
    speeds = np.stack([v[:, :2], v[:, 2:] - v[:, :2], v[:, 2:]], axis=1)
    long = np.linalg.norm(vectors, axis=2)
    along = vectors / long[:, :, None]
    psi = np.sum(along * speeds, axis=2)
    A = np.zeros((len(q), 3, 4))
    A[:, 0, :2], A[:, 1, :2], A[:, 1, 2:], A[:, 2, 2:] = along[:, 0], -along[:, 1], along[:, 1], along[:, 2]
    turning = (np.sum(speeds**2, axis=2) - psi**2) / long
    b = -turning - GAINS[0] * psi - GAINS[1] * (long - rods)
    free, AW = np.einsum("kij,kj->ki", W, Q), A @ W
    needed = b - np.einsum("kmi,ki->km", A, free)
    force = np.linalg.solve(AW @ A.transpose(0, 2, 1) + R, needed[:, :, None])[:, :, 0]
    return free + np.einsum("kmi,km->ki", AW, force)


def pins_by_scipy(length: np.ndarray, clearance: np.ndarray) -> np.ndarray:
    """Both pins at the times measured, for k lengths and clearances at once (k, SAMPLES, 4)."""
    k, (_, crank, _, rocker) = length.size, LENGTHS
    rods = np.stack([np.full(k, crank), length, np.full(k, rocker)], axis=1)

    def rate(t, y):
        q, v = y.reshape(2, k, 4)
        return np.concatenate([v.ravel(), acceleration(q, v, rods, clearance).ravel()])

    q0 = np.tile(np.asarray(FourBar(jnp.asarray(LENGTHS)).start()[0]), (k, 1))
    y0, times = np.concatenate([q0.ravel(), np.zeros(4 * k)]), np.linspace(0, SECONDS, SAMPLES + 1)
    run = solve_ivp(rate, (0.0, SECONDS), y0, method="DOP853", t_eval=times[1:], rtol=1e-8, atol=1e-10)
    return run.y[: 4 * k].reshape(k, 4, -1).transpose(0, 2, 1)
