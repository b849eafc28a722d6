"""The SCARA arm as a user would write it: closed forms in NumPy, of one state or of a batch.

The paper's equations (34)-(36) and (48), for `ukjax.models.scara(exact_start=True)`; no other program states a constraint
that is a path in time.
"""

import math

import numpy as np
from numpy import linalg

import ukjax as uk

Array = np.ndarray


class ScaraScript:
    """Accelerations (..., 4) of the joints by the Udwadia-Kalaba formula, the tool held on its helix by a gain."""

    n = 4

    def __init__(self, problem: uk.Problem, gain: float):
        system = problem.system
        x = {k: float(v) for k, v in vars(system).items() if np.ndim(v) == 0}
        self.problem, self.gain, self.x = problem, gain, x
        tip = x["m3"] + x["m4"]
        self.turned = x["Iz3"] + x["Iz4"]
        self.first = x["Iz1"] + x["m1"] * x["r1"] ** 2 + (x["m2"] + tip) * x["l1"] ** 2
        self.second = x["Iz2"] + x["m2"] * x["r2"] ** 2 + tip * x["l2"] ** 2 + self.turned
        self.coupling = (x["m2"] * x["r2"] + tip * x["l2"]) * x["l1"]

    def start(self) -> tuple[Array, Array]:
        """q and v, on the path."""
        return np.asarray(self.problem.q0), np.asarray(self.problem.v0)

    def path(self, t: float) -> tuple[Array, Array, Array]:
        """Where tool and orientation shall be, with two derivatives: x, y, angle, z."""
        x, angle = self.x, self.x["frequency"] * t
        s, c, w = x["radius"] * math.sin(angle), x["radius"] * math.cos(angle), x["frequency"]
        at, rate = [s, x["reach"] + c, 0.0, x["climb"] * t], [w * c, -w * s, 0.0, x["climb"]]
        return np.array(at), np.array(rate), np.array([-w * w * s, -w * w * c, 0.0, 0.0])

    def posture(self, t: float) -> Array:
        """q on the path, the elbow at q2 < 0."""
        (x, y, _, z), _, _ = self.path(t)
        l1, l2 = self.x["l1"], self.x["l2"]
        elbow = -math.acos((x * x + y * y - l1 * l1 - l2 * l2) / (2 * l1 * l2))
        shoulder = math.atan2(-x, y) - math.atan2(l2 * math.sin(elbow), l1 + l2 * math.cos(elbow))
        return np.array([shoulder, elbow, -shoulder - elbow, z - self.x["l0"]])

    def _arm(self, q: Array) -> tuple[Array, Array, Array, Array]:
        """x and y of upper arm and forearm."""
        l1, l2, both = self.x["l1"], self.x["l2"], q[..., 0] + q[..., 1]
        return -l1 * np.sin(q[..., 0]), l1 * np.cos(q[..., 0]), -l2 * np.sin(both), l2 * np.cos(both)

    def gaps(self, q: Array, t: float) -> Array:
        """phi (..., 4)."""
        x1, y1, x2, y2 = self._arm(q)
        at = np.stack([x1 + x2, y1 + y2, q[..., :3].sum(-1), q[..., 3] + self.x["l0"]], -1)
        return at - self.path(t)[0]

    def accelerations(self, t: float, q: Array, v: Array) -> Array:
        """a of M a = Q + A^T lambda, A a = b."""
        x1, y1, x2, y2 = self._arm(q)
        M, A = np.zeros((*q.shape, 4)), np.zeros((*q.shape, 4))
        c = self.coupling * np.cos(q[..., 1])
        M[..., :3, :3] = self.turned
        M[..., 0, 0], M[..., 1, 1], M[..., 3, 3] = self.first + self.second + 2 * c, self.second, self.x["m4"]
        M[..., 0, 1] = M[..., 1, 0] = self.second + c
        A[..., 0, 0], A[..., 0, 1], A[..., 1, 0], A[..., 1, 1] = -y1 - y2, -y2, x1 + x2, x2
        A[..., 2, :3] = A[..., 3, 3] = 1.0
        h, both = self.coupling * np.sin(q[..., 1]), v[..., 0] + v[..., 1]
        Q = np.zeros(q.shape)
        Q[..., 0], Q[..., 1] = h * v[..., 1] * (v[..., 0] + both), -h * v[..., 0] ** 2
        Q[..., 3] = -self.x["m4"] * self.x["gravity"]
        turning = np.zeros(q.shape)
        turning[..., 0] = -x1 * v[..., 0] ** 2 - x2 * both**2
        turning[..., 1] = -y1 * v[..., 0] ** 2 - y2 * both**2
        _, rate, b = self.path(t)
        b = b - turning - 2 * self.gain * (np.matvec(A, v) - rate) - self.gain**2 * self.gaps(q, t)
        free = linalg.solve(M, Q[..., None])[..., 0]
        weighted = linalg.solve(M, np.swapaxes(A, -1, -2))
        multipliers = np.matvec(linalg.pinv(A @ weighted), b - np.matvec(A, free))
        return free + np.matvec(weighted, multipliers)
