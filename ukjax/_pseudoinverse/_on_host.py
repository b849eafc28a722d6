"""The rank rule by NumPy, for matrices that have values: nothing is compiled."""

import numpy as np

from ._scaling import ROW_NOISE


def unit_rows_on_host(A: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows brought to unit norm, and their norms: infinite for those that vanish."""
    size = np.abs(A).max(axis=(-2, -1), initial=0, keepdims=True)
    size = np.where(size == 0, 1, size)  # so that no square overflows
    A = A / size
    norms = np.linalg.norm(A, axis=-1)
    noise = ROW_NOISE * np.finfo(A.dtype).eps * norms.max(axis=-1, initial=0, keepdims=True)
    norms = np.where(norms > noise, norms, np.inf)
    return A / norms[..., None], norms * size[..., 0]


def solve_on_host(A: np.ndarray, b: np.ndarray, rcond: float) -> np.ndarray:
    """x of least norm that solves A x = b, best for rows of unit norm where nothing does."""
    unit, norms = unit_rows_on_host(A)
    return np.linalg.pinv(unit, rcond=rcond) @ (b / norms)


def rank_on_host(A: np.ndarray, rcond: float) -> int:
    """The rank of rows of unit norm: how many singular values are above `rcond` of the largest."""
    if not A.size:
        return 0
    sizes = np.linalg.svd(unit_rows_on_host(A)[0], compute_uv=False)
    return int(np.sum(sizes > rcond * sizes[0]))
