"""Greville's method: row by row."""

from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp

from ._base import AbstractPseudoinverse
from ._kernels import above_rounding, dot, one_hot_largest, set_row


@final
class Greville(AbstractPseudoinverse):
    """Greville's method, row by row (DPV 2008, section 3, misprints corrected), for rows of any rank.

    For a further row a, with A the rows before it, P = A^+, d = a P and c = a - d A:

        [A; a]^+ = [P - k d, k],    k = c^T / (c c^T) where c is not 0, else k = P d^T / (1 + d d^T).

    Rows are taken by largest residual first, so that the rank does not depend on their order. c comes from
    Gram-Schmidt with one reorthogonalization and d from (a - c) P, refined once; as the formulas stand, B P
    loses symmetry with the square of the condition number.

    **Arguments:**

    - `rcond`: a row is dependent when ||c||, relative to unit norm, is at most this; by default
      1e-4, in float32 0.03.
    """

    rcond: float | None = eqx.field(static=True, default=None)

    def of_unit_rows(self, B):
        m = B.shape[0]
        rcond = above_rounding(self.threshold(B.dtype), B)

        # P is the transposed pseudoinverse, zero in rows not yet taken; `left` marks those.
        def step(i, carry):
            P, Q, residual, left, rank = carry
            squares = jnp.sum(residual * residual, axis=1)
            one_hot = one_hot_largest(jnp.where(left > 0, squares, -1))
            a, c = dot(one_hot, B), dot(one_hot, residual)
            c = c - dot(dot(Q, c), Q)
            square = jnp.sum(c * c)
            independent = jnp.sqrt(square) > rcond
            old = a - c
            d = dot(P, old)
            d = d + dot(P, old - dot(d, B))
            repeated = dot(d, P) / (1 + jnp.sum(d * d))
            k = jnp.where(independent, c / jnp.where(independent, square, 1), repeated)
            P = P + (one_hot - d)[:, None] * k[None, :]
            q = jnp.where(independent, c / jnp.sqrt(jnp.where(independent, square, 1)), 0)
            left = left - one_hot
            residual = (residual - dot(residual, q)[:, None] * q[None, :]) * left[:, None]
            return P, set_row(Q, i, q), residual, left, rank + independent.astype(rank.dtype)

        start = (
            jnp.zeros_like(B),
            jnp.zeros_like(B),
            B,
            jnp.ones(m, B.dtype),
            jnp.zeros((), jnp.int32),
        )
        P, _, _, _, rank = jax.lax.fori_loop(0, m, step, start)
        return P.T, rank
