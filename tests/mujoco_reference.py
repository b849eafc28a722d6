"""An independent reference for robots from files: MuJoCo's terms, put together by NumPy into the Udwadia-Kalaba equation.

M is `mj_fullM`, the forces are `qfrc_passive + qfrc_actuator - qfrc_bias`, and the rows are those of `efc_J`, without
contacts, limits and dry friction. MuJoCo's own equalities are soft; here they are exact,

    a = M^-1 Q + (J M^(-1/2))^+ ...  by  M a = Q + J^T lambda,  J a = -J' v,

with dependent rows dropped by the pseudoinverse, and J' v from differences of J along the motion.
"""

import copy

import mujoco
import numpy as np

_OFF = (
    mujoco.mjtDisableBit.mjDSBL_CONTACT
    | mujoco.mjtDisableBit.mjDSBL_LIMIT
    | mujoco.mjtDisableBit.mjDSBL_FRICTIONLOSS
)
_RANK = 1e-7
"""Singular values of rows of length 1, below which they depend on others: those of closed loops are 1e-10 or less, and
the least of Cassie's that count are 6e-3."""


def smooth(model: mujoco.MjModel) -> mujoco.MjModel:
    """A copy without contacts, limits and dry friction, with dense Jacobians."""
    found = copy.copy(model)
    found.opt.disableflags |= int(_OFF)
    found.opt.enableflags &= ~int(getattr(mujoco.mjtEnableBit, "mjENBL_SLEEP", 0))
    found.opt.jacobian = mujoco.mjtJacobian.mjJAC_DENSE
    return found


def data(model: mujoco.MjModel, qpos: np.ndarray, qvel: np.ndarray, ctrl=None, act=None) -> mujoco.MjData:
    """MuJoCo's terms at a state."""
    found = mujoco.MjData(model)
    found.qpos[:], found.qvel[:] = qpos, qvel
    if ctrl is not None:
        found.ctrl[:] = ctrl
    if act is not None:
        found.act[:] = act
    mujoco.mj_forward(model, found)
    return found


def rows(model: mujoco.MjModel, qpos: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """J and the residuals of the equalities."""
    at = mujoco.MjData(model)
    at.qpos[:] = qpos
    mujoco.mj_fwdPosition(model, at)
    equal = np.asarray(at.efc_type) == mujoco.mjtConstraint.mjCNSTR_EQUALITY
    return at.efc_J.reshape(-1, model.nv)[equal].copy(), at.efc_pos[equal].copy()


def moved(model: mujoco.MjModel, qpos: np.ndarray, qvel: np.ndarray, dt: float) -> np.ndarray:
    """The coordinates after a time with constant velocities."""
    found = np.array(qpos)
    mujoco.mj_integratePos(model, found, np.asarray(qvel), dt)
    return found


def mass_matrix(model: mujoco.MjModel, at: mujoco.MjData) -> np.ndarray:
    """M, in the order of qvel."""
    M = np.zeros((model.nv, model.nv))
    try:
        mujoco.mj_fullM(model, at, M)
    except TypeError:  # before MuJoCo 4
        mujoco.mj_fullM(model, M, at.qM)
    return M


def _normalized(J: np.ndarray, root: np.ndarray, *right: np.ndarray) -> tuple[np.ndarray, ...]:
    """J M^(-1/2) with rows of length 1, those of zero left out."""
    A = np.linalg.solve(root, J.T).T
    size = np.linalg.norm(A, axis=1)
    kept = size > 1e-12 * max(size.max(initial=0.0), 1e-300)
    return A[kept] / size[kept, None], *(x[kept] / size[kept] for x in right)


def acceleration(
    model: mujoco.MjModel, qpos: np.ndarray, qvel: np.ndarray, ctrl=None, act=None
) -> np.ndarray:
    """qacc, with smooth forces and exact equalities."""
    return accelerations(model, qpos, qvel, ctrl, act)[0]


def accelerations(
    model: mujoco.MjModel, qpos: np.ndarray, qvel: np.ndarray, ctrl=None, act=None
) -> tuple[np.ndarray, np.ndarray]:
    """qacc, with smooth forces and exact equalities, and without the equalities."""
    model = smooth(model)
    at = data(model, qpos, qvel, ctrl, act)
    Q = at.qfrc_passive + at.qfrc_actuator - at.qfrc_bias
    root = np.linalg.cholesky(mass_matrix(model, at))
    free = found = np.linalg.solve(root, Q)  # in the coordinates in which M is 1
    J, _ = rows(model, qpos)
    if len(J):
        h = 1e-3 / max(np.abs(qvel).max(initial=0.0), 1e-12)
        along = {k: rows(model, moved(model, qpos, qvel, k * h))[0] for k in (-2, -1, 1, 2)}
        # five points: of order h^4
        change = (8 * (along[1] - along[-1]) - (along[2] - along[-2])) / (12 * h)
        A, b = _normalized(J, root, -change @ qvel)
        found = free + np.linalg.pinv(A, rcond=_RANK) @ (b - A @ free)
    return np.linalg.solve(root.T, found), np.linalg.solve(root.T, free)


def closed(model: mujoco.MjModel, qpos: np.ndarray, qvel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The state moved until its equalities hold, by Newton's method; `qvel` is made to fit.

    Raises ValueError where they do not come to hold.
    """
    model = smooth(model)
    qpos = np.array(qpos, float)
    still = np.zeros(model.nv)
    for sweep in range(60):
        at = data(model, qpos, still)
        J, error = rows(model, qpos)
        if not len(J):
            return qpos, np.array(qvel, float)
        if sweep and np.abs(error).max() < 1e-13:
            break
        root = np.linalg.cholesky(mass_matrix(model, at))
        A, b = _normalized(J, root, -error)
        # far from closure dependent rows contradict each other: their small singular values are left out at first
        step = np.linalg.pinv(A, rcond=1e-2 if np.abs(error).max() > 1e-4 else 1e-5) @ b
        step = np.linalg.solve(root.T, step)
        qpos = moved(model, qpos, step, min(1.0, 0.3 / max(np.abs(step).max(), 1e-300)))
        mujoco.mj_normalizeQuat(model, qpos)
    if np.abs(error).max() > 1e-9:
        raise ValueError(f"the equalities stay open by {np.abs(error).max():.1e}")
    root = np.linalg.cholesky(mass_matrix(model, data(model, qpos, still)))
    A, b = _normalized(rows(model, qpos)[0], root)[0], root.T @ qvel
    b = b - np.linalg.pinv(A, rcond=_RANK) @ (A @ b)
    return qpos, np.linalg.solve(root.T, b)
