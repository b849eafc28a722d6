"""Moore-Penrose inverses with one rank rule and one derivative for every method.

What all methods share lives here: rows are brought to unit norm before the method decides the rank, that
scaling is undone exactly afterwards, and the derivative at constant rank is written once.
"""

import abc
import dataclasses
import numbers
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Complex, Float, Inexact, Int

from .._misc._arguments import number_array
from .._misc._errors import InputError
from .._misc._tolerances import DEFAULT_RCOND as DEFAULT_RCOND
from .._misc._tolerances import IN_SINGLE_PRECISION
from .._misc._tolerances import ROW_NOISE as ROW_NOISE
from .._misc._types import choose_by_precision
from ._kernels import dot, one_hot_largest

# --- Rows of unit norm, and the way back
#
# With B = C Bs, C diagonal, let P solve Bs x = z with least norm for every z in the range of Bs. Then P C^-1
# does the same for B. Other right-hand sides must first be projected onto the range of B, by I - V V^T with V
# an orthonormal basis of B's left null space.


def unit_rows(
    B: Float[Array, "m n"],
) -> tuple[Float[Array, "m n"], Float[Array, " m"], Bool[Array, " m"], Float[Array, ""]]:
    """B = size * diag(scales) * rows, with rows of norm 1; noise becomes zero rows, of scale 1.

    **Returns:** (rows, scales, nonzero, size); `size` is the largest entry of B, so that no square overflows.
    """
    size = jnp.max(jnp.abs(B))
    size = jnp.where(size == 0, jnp.ones_like(size), size)
    B = B / size
    norms = jnp.sqrt(jnp.sum(B * B, axis=1))
    nonzero = norms > ROW_NOISE * jnp.finfo(B.dtype).eps * jnp.max(norms)
    scales = jnp.where(nonzero, norms, jnp.ones_like(norms))
    return jnp.where(nonzero[:, None], B / scales[:, None], 0), scales, nonzero, size


def left_null_space(
    P: Float[Array, "n m"],
    B: Float[Array, "m n"],
    nonzero: Bool[Array, " m"],
    rank: Int[Array, ""],
) -> Float[Array, "m m"]:
    """Orthonormal rows V that span B's left null space, from P, which solves B x = r with least norm where that
    has a solution; rows beyond its dimension are zero.

    It is spanned by the rows of I - B P and has dimension m - rank, zero rows aside, so there are none for independent
    rows. They are refined once, for V B = 0 to rounding and not to rounding times the condition number.
    """
    complement = jnp.diag(nonzero.astype(P.dtype)) - dot(B, P)
    V = _leading_rows(complement, jnp.sum(nonzero).astype(rank.dtype) - rank)
    return V - dot(dot(V, B), P)


def _leading_rows(Y: Float[Array, "m m"], count: Int[Array, ""]) -> Float[Array, "m m"]:
    """`count` orthonormal rows spanning the rows of Y, largest first; the rest are zero.

    The number of steps is that of the rows, for scalar code has no loops of unknown length; without any to find, none is
    made.
    """
    indices = jnp.arange(Y.shape[0], dtype=count.dtype)

    def step(carry, i):
        Y, V = carry
        squares = jnp.sum(Y * Y, axis=1)
        one_hot = one_hot_largest(squares)
        v = dot(one_hot, Y)
        v = v - dot(dot(V, v), V)
        square = jnp.sum(v * v)
        v = jnp.where(square > 0, v / jnp.sqrt(jnp.where(square > 0, square, 1)), 0)
        Y = (Y - jnp.outer(dot(Y, v), v)) * (1 - one_hot)[:, None]
        return (Y, jnp.where(((indices == i) & (i < count))[:, None], v[None, :], V)), None

    none = jnp.zeros_like(Y)
    return jax.lax.cond(count > 0, lambda: jax.lax.scan(step, (Y, none), indices)[0][1], lambda: none)


# --- The inverse with its rank, its derivative, and what each method implements


class RankedInverse(eqx.Module):
    """The Moore-Penrose inverse `matrix` of an (m, n) matrix, and the `rank` it was computed at.

    `matrix` is NaN where the method could not compute it: for input that is not finite and for a failed
    plugged-in solver (rank -1), and for dependent rows given to `Cholesky`.
    """

    matrix: Inexact[Array, "n m"]
    rank: Int[Array, ""]


class AbstractPseudoinverse(eqx.Module):
    """A method for the Moore-Penrose inverse (DPV 2008, section 3); the concrete ones are in `ukjax.pseudoinverses`.

    All are called alike, `method(B) -> RankedInverse(matrix, rank)`, under any JAX transformation. One of your own says
    how rows of norm 1 are inverted; scaling, derivative and non-finite input are seen to.

    - `rcond`: a row, or a singular value, counts as dependent when it adds at most this to rows of unit norm; None for
      the default. A static field.
    - `independent_rows`: whether the method only ever succeeds on independent rows, as `Cholesky` does.
    """

    rcond: eqx.AbstractVar[float | None]
    independent_rows: ClassVar[bool] = False

    def __check_init__(self):
        if self.rcond is None:
            return
        if not (isinstance(self.rcond, numbers.Real) and 0.0 < self.rcond < 1.0):
            raise InputError(
                f"rcond must be a number between 0 and 1, such as {DEFAULT_RCOND}; got {self.rcond!r}."
            )

    @abc.abstractmethod
    def of_unit_rows(self, B: Float[Array, "m n"]) -> tuple[Float[Array, "n m"], Int[Array, ""]]:
        """P (n, m) and the rank of `B` (m, n), whose rows have norm 1 or are zero; m, n > 0.

        P solves consistent systems with least norm (B P B = B, P B P = P, P B symmetric). B P need not be
        symmetric: `compute_primal_pinv` makes it so.
        """

    def __call__(self, B: Inexact[Array, "m n"]) -> RankedInverse:
        """The same as `ukjax.pinv(B, self)`."""
        B = number_array("B", B)
        if B.ndim != 2 or not jnp.issubdtype(B.dtype, jnp.inexact):
            raise InputError(
                f"pinv needs one floating-point matrix of shape (m, n), use jax.vmap for several; "
                f"got shape {B.shape} and dtype {B.dtype}."
            )
        if jnp.iscomplexobj(B):
            return self._of_complex(B)
        # Of nothing there is no derivative: JAX cannot differentiate a custom rule that was vmapped, then jitted, for it.
        find = compute_primal_pinv if 0 in B.shape else _pinv
        return RankedInverse(*find(B, method=self))

    def _of_complex(self, B: Complex[Array, "m n"]) -> RankedInverse:
        """By the real matrix [[Re B, -Im B], [Im B, Re B]], of twice the rank, whose inverse is made in the same way."""
        m, n = B.shape
        found = self(jnp.block([[B.real, -B.imag], [B.imag, B.real]]))
        return RankedInverse(jax.lax.complex(found.matrix[:n, :m], found.matrix[n:, :m]), found.rank // 2)

    def threshold(self, dtype: Any) -> float:
        """`rcond`, or what stands for it: 1e-4, and 0.03 in float32.

        **Arguments:**

        - `dtype`: of the matrix.
        """
        if self.rcond is not None:
            return self.rcond
        return choose_by_precision(dtype, DEFAULT_RCOND, IN_SINGLE_PRECISION)

    def squared(self, dtype: Any) -> "AbstractPseudoinverse":
        """The same method for B B^T, whose singular values are squares: with rcond^2 for rcond.

        **Arguments:**

        - `dtype`: of B.
        """
        return dataclasses.replace(self, rcond=self.threshold(dtype) ** 2)


class Solving(eqx.Module):
    """What solves B x = r with least norm: B^+ = P (I - V^T V)."""

    P: Float[Array, "n m"]  # does so for every r in the range of B (n, m)
    # `V`: orthonormal rows, or zero ones, that span the rest (m, m); None where there is none.
    V: Float[Array, "m m"] | None
    rank: Int[Array, ""]  # of B; -1 where it is not finite

    @property
    def matrix(self) -> Float[Array, "n m"]:
        """B^+.

        V is projected out twice, since where a small row depends on large ones the first time leaves rounding errors as
        large as that row's scale is small.
        """
        P = self.P
        if self.V is not None:
            for _ in range(2):
                P = P - dot(dot(P, self.V.T), self.V)
        return P

    def range_part(self, r: Float[Array, " m"]) -> Float[Array, " m"]:
        """The part of r in the range of B; P or its transpose then do what B^+ does, without its matrix."""
        if self.V is not None:
            for _ in range(2):
                r = r - dot(self.V.T, dot(self.V, r))
        return r


def solving(B: Array, method: AbstractPseudoinverse) -> Solving:
    """What solves B x = r, by the method's own operations."""
    rows, scales, nonzero, size = unit_rows(B)
    P, rank = method.of_unit_rows(rows)
    P, V = P / scales[None, :], None
    if not method.independent_rows:
        V = left_null_space(P, scales[:, None] * rows, nonzero, rank)
    finite = jnp.isfinite(size)
    P = jnp.where(finite, P / size, jnp.nan)
    return Solving(P, V, jnp.where(finite, rank, -1).astype(jnp.int32))


def compute_primal_pinv(B: Array, method: AbstractPseudoinverse) -> tuple[Array, Array]:
    """What `pinv` returns, by the method's own operations, for use inside another method."""
    m, n = B.shape
    if m == 0 or n == 0:
        return jnp.zeros((n, m), B.dtype), jnp.zeros((), jnp.int32)
    found = solving(B, method)
    return found.matrix, found.rank


_compute_by_itself = eqx.filter_jit(
    compute_primal_pinv
)  # so that a program has it once for each shape and method


@eqx.filter_custom_jvp
def _pinv(B: Array, *, method: AbstractPseudoinverse) -> tuple[Array, Array]:
    return _compute_by_itself(B, method)


@_pinv.def_jvp
def _pinv_jvp(primals, tangents, *, method):
    (B,), (dB,) = primals, tangents
    P, rank = _pinv(B, method=method)
    if dB is None:
        return (P, rank), (None, None)
    dBT = dB.T
    range_part = dot(dot(P, dot(P.T, dBT)), jnp.eye(B.shape[0], dtype=B.dtype) - dot(B, P))
    kernel_part = dot(dot(jnp.eye(B.shape[1], dtype=B.dtype) - dot(P, B), dot(dBT, P.T)), P)
    return (P, rank), (range_part + kernel_part - dot(P, dot(dB, P)), None)


# --- The rank rule by NumPy, for matrices that have values: nothing is compiled


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
