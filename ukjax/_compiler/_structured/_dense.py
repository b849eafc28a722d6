"""Dense linear algebra and sorting of small arrays, in plain JAX: what JAX itself leaves to LAPACK or to XLA's sort.

Each function stands for a primitive of JAX, with its operands, parameters and outputs. Matrices of up to `_WRITTEN_OUT`
rows, and as many numbers to be sorted, are written out; larger ones are loops.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

_WRITTEN_OUT = 8
_SWEEPS = 12  # of Jacobi's method; quadratic convergence needs some 6 for matrices of this size


def _repeat(count: int, body: Callable[[Any, Any], Any], state: Any, small: int | None = None) -> Any:
    """state after `count` passes of a body, which takes the number of the pass and the state."""
    if (count if small is None else small) <= _WRITTEN_OUT:
        for k in range(count):
            state = body(k, state)
        return state
    return lax.fori_loop(0, count, body, state)


def _map_leading_axes(function: Callable[..., Any], *arrays: Any, ndims: tuple[int, ...]) -> Any:
    """A function of matrices, over the leading axes of stacks of them."""
    import jax

    for _ in range(arrays[0].ndim - ndims[0]):
        function = jax.vmap(function)
    return function(*arrays)


def lu(x: Any, **params: Any) -> Any:
    """P A = L U by rows' largest pivots: both factors in one matrix, the pivots, and the permutation."""

    def factor(a: Any) -> Any:
        rows, columns = a.shape
        places = jnp.arange(rows)

        def column(k: Any, state: Any) -> Any:
            a, pivots, order = state
            size = jnp.where(places >= k, jnp.abs(a[:, k]), -1.0)
            pivot = jnp.argmax(size).astype(jnp.int32)
            a, order = _exchange_rows(a, k, pivot), _exchange_rows(order, k, pivot)
            top = a[k]
            below = places > k
            safe = jnp.where(top[k] == 0, 1.0, top[k]).astype(a.dtype)
            factors = jnp.where(below, jnp.where(top[k] == 0, a[:, k], a[:, k] / safe), 0.0).astype(a.dtype)
            right = jnp.arange(columns) > k
            a = a - jnp.outer(factors, jnp.where(right, top, 0.0))
            a = jnp.where(below[:, None] & (jnp.arange(columns) == k)[None, :], factors[:, None], a)
            return a, pivots.at[k].set(pivot), order

        count = min(rows, columns)
        start = (a, jnp.zeros(count, jnp.int32), jnp.arange(rows, dtype=jnp.int32))
        return _repeat(count, column, start)

    return _map_leading_axes(factor, x, ndims=(2,))


def lu_pivots_to_permutation(pivots: Any, *, permutation_size: int) -> Any:
    """The order of rows that exchanges of them one after the other lead to."""

    def order(pivots: Any) -> Any:
        exchange = lambda k, order: _exchange_rows(order, k, pivots[k])
        return _repeat(pivots.shape[0], exchange, jnp.arange(permutation_size, dtype=pivots.dtype))

    return _map_leading_axes(order, pivots, ndims=(1,))


def _exchange_rows(x: Any, k: Any, pivot: Any) -> Any:
    """x with rows k and `pivot` in each other's place."""
    places = jnp.arange(x.shape[0])
    other = jnp.sum(jnp.where((places == pivot).reshape(-1, *[1] * (x.ndim - 1)), x, 0), 0).astype(x.dtype)
    mine = x[k]
    select = lambda which, new, old: jnp.where(which.reshape(-1, *[1] * (x.ndim - 1)), new[None], old)
    return select(places == k, other, select(places == pivot, mine, x))


def cholesky(x: Any, **params: Any) -> Any:
    """The lower factor L of a Hermitian matrix L L^H; NaN where it is not positive definite."""

    def factor(a: Any) -> Any:
        n = a.shape[0]
        places = jnp.arange(n)

        def column(k: Any, factor: Any) -> Any:
            rest = a[:, k] - factor @ jnp.conj(factor[k])
            pivot = jnp.sqrt(rest[k])
            new = jnp.where(places > k, rest / pivot, jnp.where(places == k, pivot, 0.0))
            return jnp.where((places == k)[None, :], new[:, None], factor)

        return _repeat(n, column, jnp.zeros_like(a))

    return _map_leading_axes(factor, x, ndims=(2,))


def triangular_solve(
    a: Any,
    b: Any,
    *,
    left_side: bool,
    lower: bool,
    transpose_a: bool,
    conjugate_a: bool,
    unit_diagonal: bool,
    **_: Any,
) -> Any:
    """x of A x = B, or of x A = B, for a triangular A."""

    def solve(a: Any, b: Any) -> Any:
        a = jnp.conj(a) if conjugate_a else a
        a = a.T if transpose_a else a
        below = lower != transpose_a
        if not left_side:
            a, b, below = a.T, b.T, not below
        n = a.shape[0]
        places = jnp.arange(n)

        def row(i: Any, x: Any) -> Any:
            k = i if below else n - 1 - i
            known = places < k if below else places > k
            rest = b[k] - jnp.where(known, a[k], 0.0) @ x
            new = rest if unit_diagonal else rest / a[k, k]
            return jnp.where((places == k)[:, None], new[None, :], x)

        x = _repeat(n, row, jnp.zeros_like(b))
        return x if left_side else x.T

    return _map_leading_axes(solve, a, b, ndims=(2,))


def geqrf(x: Any, **params: Any) -> Any:
    """Householder's QR: R above, reflectors below the diagonal, and their factors."""
    return _factor_by_reflectors(x, pivoting=False)[:2]


def _factor_by_reflectors(x: Any, *, pivoting: bool) -> Any:
    """As `geqrf`, and the order of columns: the longest of what is left of them first, if there are pivots."""

    def factor(a: Any) -> Any:
        rows, columns = a.shape
        places = jnp.arange(rows)

        def exchange(k: Any, a: Any, order: Any) -> Any:
            left = jnp.sum(jnp.where((places >= k)[:, None], a * a, 0.0), 0)
            longest = jnp.argmax(jnp.where(jnp.arange(columns) >= k, left, -1.0))
            return _exchange_rows(a.T, k, longest).T, _exchange_rows(order, k, longest)

        def column(k: Any, state: Any) -> Any:
            a, taus, order = state
            a, order = exchange(k, a, order) if pivoting else (a, order)
            x = jnp.where(places >= k, a[:, k], 0.0)
            alpha, rest = a[k, k], jnp.sum(jnp.where(places > k, x * x, 0.0))
            flat = rest == 0
            norm = jnp.sqrt(jnp.where(flat, 1.0, alpha * alpha + rest))
            beta = jnp.where(alpha > 0, -norm, norm)
            scale = jnp.where(flat, 1.0, alpha - beta)
            v = jnp.where(places == k, 1.0, jnp.where(places > k, x / scale, 0.0))
            tau = jnp.where(flat, 0.0, (beta - alpha) / beta)
            right = jnp.arange(columns) > k
            a = a - jnp.where(right[None, :], tau * jnp.outer(v, v @ a), 0.0)
            new = jnp.where(places > k, v, jnp.where(places == k, jnp.where(flat, alpha, beta), a[:, k]))
            a = jnp.where((jnp.arange(columns) == k)[None, :], new[:, None], a)
            return a, taus.at[k].set(tau), order

        count = min(rows, columns)
        start = a, jnp.zeros(count, a.dtype), jnp.arange(columns, dtype=jnp.int32)
        return _repeat(count, column, start)

    return _map_leading_axes(factor, x, ndims=(2,))


def ormqr(a: Any, taus: Any, c: Any, *, left: bool, transpose: bool, **_: Any) -> Any:
    """Q C, Q^T C, C Q or C Q^T, for the orthogonal Q of Householder's reflectors."""

    def multiply(a: Any, taus: Any, c: Any) -> Any:
        places = jnp.arange(a.shape[0])
        count = taus.shape[0]
        forwards = transpose == left  # Q = H_0 H_1 ..., and each H is symmetric

        def reflect(i: Any, c: Any) -> Any:
            k = i if forwards else count - 1 - i
            v = jnp.where(places == k, 1.0, jnp.where(places > k, a[:, k], 0.0))
            return c - taus[k] * jnp.outer(v, v @ c)

        c = _repeat(count, reflect, c if left else c.T)
        return c if left else c.T

    return _map_leading_axes(multiply, a, taus, c, ndims=(2, 1, 2))


def householder_product(a: Any, taus: Any, **params: Any) -> Any:
    """The orthogonal matrix of Householder's reflectors, as many columns of it as `a` has."""
    columns = jnp.broadcast_to(jnp.eye(*a.shape[-2:], dtype=a.dtype), a.shape)
    return ormqr(a, taus, columns, left=True, transpose=False)


def qr(x: Any, *, pivoting: bool, full_matrices: bool, **_: Any) -> Any:
    """An orthogonal and an upper triangular factor, and with pivots the order of columns."""
    rows, columns = x.shape[-2:]
    a, taus, order = _factor_by_reflectors(x, pivoting=pivoting)
    wide = jnp.concatenate([a, jnp.zeros((*a.shape[:-1], max(rows - columns, 0)), a.dtype)], -1)
    q = householder_product(wide if full_matrices and rows > columns else a[..., : min(rows, columns)], taus)
    r = jnp.triu(a if full_matrices else a[..., : min(rows, columns), :])
    return (q, r, order) if pivoting else (q, r)


def eigh(x: Any, *, lower: bool = True, sort_eigenvalues: bool = True, **_: Any) -> Any:
    """Eigenvectors and eigenvalues of a symmetric matrix, by Jacobi's method (Golub and Van Loan, section 8.5)."""

    def decompose(a: Any) -> Any:
        n = a.shape[0]
        a = jnp.tril(a) + jnp.tril(a, -1).T if lower else jnp.triu(a) + jnp.triu(a, 1).T
        pairs = np.array([(p, q) for p in range(n) for q in range(p + 1, n)], np.int32).reshape(-1, 2)

        def rotate(i: Any, state: Any) -> Any:
            a, v = state
            p, q = jnp.asarray(pairs)[i] if not isinstance(i, int) else pairs[i]
            cosine, sine = _rotation(a[p, p], a[q, q], a[p, q])
            a = _turn_columns(_turn_columns(a, p, q, cosine, sine).T, p, q, cosine, sine).T
            return a, _turn_columns(v, p, q, cosine, sine)

        sweep = lambda _, state: _repeat(len(pairs), rotate, state, n)
        state = (a, jnp.eye(n, dtype=a.dtype))
        a, v = lax.fori_loop(0, _SWEEPS, sweep, state) if n > 1 else state
        w = jnp.diagonal(a)
        if sort_eigenvalues:
            order = jnp.argsort(w)
            v, w = v[:, order], w[order]
        return v, w

    return _map_leading_axes(decompose, x, ndims=(2,))


def _rotation(app: Any, aqq: Any, apq: Any) -> tuple[Any, Any]:
    """Cosine and sine of the rotation that makes an entry zero."""
    none = apq == 0
    theta = (aqq - app) / (2 * jnp.where(none, 1.0, apq))
    t = jnp.where(theta >= 0, 1.0, -1.0) / (jnp.abs(theta) + jnp.sqrt(theta * theta + 1))
    t = jnp.where(none, 0.0, t)
    cosine = 1 / jnp.sqrt(t * t + 1)
    return cosine, t * cosine


def _turn_columns(a: Any, p: Any, q: Any, cosine: Any, sine: Any) -> Any:
    """a with columns p and q rotated."""
    x, y = a[:, p], a[:, q]
    return a.at[:, p].set(cosine * x - sine * y).at[:, q].set(sine * x + cosine * y)


def svd(x: Any, *, full_matrices: bool, compute_uv: bool, **_: Any) -> Any:
    """Singular values and vectors, by one-sided Jacobi rotations (Golub and Van Loan, section 8.6)."""

    def decompose(a: Any) -> Any:
        rows, columns = a.shape
        if rows < columns:
            found = decompose(a.T)
            return (found[0], found[2].T, found[1].T) if compute_uv else found
        n = columns
        pairs = np.array([(p, q) for p in range(n) for q in range(p + 1, n)], np.int32).reshape(-1, 2)

        def rotate(i: Any, state: Any) -> Any:
            a, v = state
            p, q = jnp.asarray(pairs)[i] if not isinstance(i, int) else pairs[i]
            x, y = a[:, p], a[:, q]
            cosine, sine = _rotation(x @ x, y @ y, x @ y)
            return _turn_columns(a, p, q, cosine, sine), _turn_columns(v, p, q, cosine, sine)

        sweep = lambda _, state: _repeat(len(pairs), rotate, state, n)
        state = (a, jnp.eye(n, dtype=a.dtype))
        a, v = lax.fori_loop(0, _SWEEPS, sweep, state) if n > 1 else state
        s = jnp.sqrt(jnp.sum(a * a, 0))
        order = jnp.argsort(-s)
        a, v, s = a[:, order], v[:, order], s[order]
        if not compute_uv:
            return (s,)
        # Columns of zero singular values are filled up so that U is orthogonal: by QR of those that are not.
        u = a / jnp.where(s == 0, 1.0, s)
        q, taus = geqrf(jnp.where(s > 0, u, 0.0))
        full = householder_product(jnp.concatenate([q, jnp.zeros((rows, rows - n), a.dtype)], 1), taus)
        own = jnp.concatenate([s > 0, jnp.zeros(rows - n, bool)])
        u = jnp.where(own[None, :], jnp.concatenate([u, jnp.zeros((rows, rows - n), a.dtype)], 1), full)
        return s, (u if full_matrices else u[:, :n]), v.T

    return _map_leading_axes(decompose, x, ndims=(2,))


def sort(*operands: Any, dimension: int, num_keys: int, **_: Any) -> Any:
    """Arrays in the order of the first ones; equal ones stay as they are."""
    arrays = [jnp.moveaxis(x, dimension, 0) for x in operands]
    n, rest = arrays[0].shape[0], arrays[0].shape[1:]
    if n <= _WRITTEN_OUT:
        out = _sort_by_exchanges(arrays, num_keys)
    else:
        flat = [x.reshape(n, -1) for x in arrays]
        out = jax.vmap(lambda *x: _sort_by_rank(x, num_keys), 1, 1)(*flat)
        out = [x.reshape(n, *rest) for x in out]
    return [jnp.moveaxis(x, 0, dimension) for x in out]


def _compare(pairs: list[tuple[Any, Any]]) -> tuple[Any, Any]:
    """Whether the first of each pair stand before the others, by the first keys that differ; and whether none do."""
    before, same = False, True
    for x, y in pairs:
        less, more = lax.lt_to_p.bind(x, y), lax.lt_to_p.bind(y, x)
        before, same = before | (same & less), same & ~(less | more)
    return before, same


def _sort_by_rank(arrays: tuple[Any, ...], num_keys: int) -> list[Any]:
    """Each entry goes to as many places after the first as there are entries before it."""
    places = jnp.arange(len(arrays[0]))

    def place(i: Any, out: list[Any]) -> list[Any]:
        before, same = _compare([(x, jnp.full_like(x, x[i])) for x in arrays[:num_keys]])
        rank = jnp.sum(before | (same & (places < i)))
        return [y.at[rank].set(x[i]) for x, y in zip(arrays, out, strict=True)]

    return lax.fori_loop(0, len(places), place, list(map(jnp.zeros_like, arrays)))


def _sort_by_exchanges(arrays: list[Any], num_keys: int) -> list[Any]:
    """By odd-even transpositions."""
    n = len(arrays[0])
    columns = [list(x) for x in arrays] if n else []

    for step in range(n):
        for i in range(step % 2, n - 1, 2):
            swap, _ = _compare([(x[i + 1], x[i]) for x in columns[:num_keys]])
            for x in columns:
                x[i], x[i + 1] = jnp.where(swap, x[i + 1], x[i]), jnp.where(swap, x[i], x[i + 1])
    return [jnp.stack(x) for x in columns] if n else arrays


def tridiagonal_solve(dl: Any, d: Any, du: Any, b: Any, **params: Any) -> Any:
    """By elimination in which neighbouring rows change places, as LAPACK's gtsv."""

    def solve(dl: Any, d: Any, du: Any, b: Any) -> Any:
        zero = jnp.zeros_like(d[0])

        def eliminate(row: Any, after: Any) -> Any:
            (d, du, b), (below, d_after, du_after, b_after) = row, after
            swaps = jnp.abs(d) < jnp.abs(below)
            pair = lambda x, y: (jnp.where(swaps, y, x), jnp.where(swaps, x, y))
            (top, low), (right, low_right) = pair(d, below), pair(du, d_after)
            (far, low_far), (b, low_b) = pair(zero, du_after), pair(b, b_after)
            factor = low / jnp.where(top == 0, 1, top)
            left = low_right - factor * right, low_far - factor * far, low_b - factor * b
            return left, (top, right, far, b)

        def substitute(known: Any, row: Any) -> Any:
            (x, after), (top, right, far, b) = known, row
            x, after = (b - right * x - far * after) / top, x
            return (x, after), x

        du = jnp.append(du[:-1], zero)
        last, rows = lax.scan(eliminate, (d[0], du[0], b[0]), (dl[1:], d[1:], du[1:], b[1:]))
        end = last[2] / last[0]
        above = lax.scan(substitute, (end, jnp.zeros_like(end)), rows, reverse=True)[1]
        return jnp.concatenate([above, end[None]])

    return [_map_leading_axes(solve, dl, d, du, b, ndims=(1,))]


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "lu": lu,
    "lu_pivots_to_permutation": lu_pivots_to_permutation,
    "cholesky": cholesky,
    "triangular_solve": triangular_solve,
    "geqrf": geqrf,
    "householder_product": householder_product,
    "ormqr": ormqr,
    "qr": qr,
    "eigh": eigh,
    "svd": svd,
    "sort": sort,
    "tridiagonal_solve": tridiagonal_solve,
}
