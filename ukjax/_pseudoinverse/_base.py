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
from jaxtyping import Array, Complex, Float, Inexact, Int

from .._misc._arguments import number_array
from .._misc._errors import InputError
from .._misc._tolerances import DEFAULT_RCOND as DEFAULT_RCOND
from .._misc._tolerances import IN_SINGLE_PRECISION
from .._misc._types import choose_by_precision
from ._kernels import dot
from ._scaling import left_null_space, unit_rows


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
    """What solves B x = r with least norm: B^+ = P (I - V^T V).

    - `P`: does so for every r in the range of B (n, m).
    - `V`: orthonormal rows, or zero ones, that span the rest (m, m); None where there is none.
    - `rank`: of B; -1 where it is not finite.
    """

    P: Float[Array, "n m"]
    V: Float[Array, "m m"] | None
    rank: Int[Array, ""]

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


@eqx.filter_custom_jvp
def _pinv(B: Array, *, method: AbstractPseudoinverse) -> tuple[Array, Array]:
    return compute_primal_pinv(B, method)


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
