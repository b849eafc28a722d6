"""What several tests share: the methods, systems given as arrays, textbook formulas in numpy, differences."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import scipy.linalg

import ukjax as uk

METHODS = {
    "SVD": uk.SVD(),
    "CompleteOrthogonal": uk.CompleteOrthogonal(),
    "Greville": uk.Greville(),
    "HouseholderQR": uk.HouseholderQR(),
    "GramSchmidt": uk.GramSchmidt(),
    "Cholesky": uk.Cholesky(),
    "lineax.SVD": lx.SVD(),
    "lineax.Auto": lx.AutoLinearSolver(well_posed=False),
}
OWN_METHODS = tuple(name for name in METHODS if not name.startswith("lineax"))
RANK_DEFICIENT = tuple(name for name in METHODS if name != "Cholesky")


class Rows(eqx.Module):
    """A and b as they stand, in fields: systems of one shape share their compiled functions."""

    A: jax.Array
    b: jax.Array

    def __call__(self, t, q, v):
        return self.A, self.b


class Given(eqx.Module):
    """A constant force, in a field."""

    value: jax.Array

    def __call__(self, t, q, v):
        return self.value


class Equations(NamedTuple):
    """M a = Q + constraint force, A a = b, non-ideal force c, and a basis of ker A."""

    M: np.ndarray
    Q: np.ndarray
    A: np.ndarray
    b: np.ndarray
    c: np.ndarray
    rank: int

    def system(self) -> uk.System:
        rows = uk.AccelerationConstraint(Rows(jnp.asarray(self.A), jnp.asarray(self.b)), name="row")
        return uk.System(self.M, self.Q, (rows,), nonideal_force=Given(jnp.asarray(self.c)))

    @property
    def kernel(self) -> np.ndarray:
        """An orthonormal basis of ker A (n, n - rank)."""
        return np.linalg.svd(self.A)[2][self.rank :].T if self.A.size else np.eye(self.Q.size)


def _orthogonal(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.linalg.qr(rng.normal(size=(n, n)))[0]


def random_equations(
    seed: int, m: int, n: int, rank: int, *, consistent: bool = True, ideal: bool = True
) -> Equations:
    """Well-conditioned random equations: eigenvalues of M and singular values of A within [0.5, 2]."""
    rng = np.random.default_rng([seed, m, n, rank])
    V = _orthogonal(rng, n)
    M = V @ np.diag(rng.uniform(0.5, 2.0, n)) @ V.T
    values = np.zeros((m, n))
    np.fill_diagonal(values[:rank, :rank], rng.uniform(0.5, 2.0, rank))
    A = _orthogonal(rng, m) @ values @ _orthogonal(rng, n) if m else np.zeros((0, n))
    b = A @ rng.normal(size=n) if consistent else rng.normal(size=m)
    c = np.zeros(n) if ideal else rng.normal(size=n)
    return Equations((M + M.T) / 2, rng.normal(size=n), A, b, c, rank)


class Textbook(NamedTuple):
    a: np.ndarray
    constraint_force: np.ndarray
    multipliers: np.ndarray
    rank: int


def textbook(M, Q, A, b, c=None, *, rcond: float = 1e-9) -> Textbook:
    """DPV 2008 (31) and Liu 2015 (12)-(13) word by word, with the symmetric root of M.

    Q_c = M^1/2 B^+ (b - A M^-1 Q) + M^1/2 (I - B^+ B) M^-1/2 c,  a = M^-1 (Q + Q_c),  B = A M^-1/2.
    """
    M, Q, A, b = (np.asarray(x, float) for x in (M, Q, A, b))
    c = np.zeros_like(Q) if c is None else np.asarray(c, float)
    values, V = scipy.linalg.eigh(M)
    root, inverse_root = (V @ np.diag(values**p) @ V.T for p in (0.5, -0.5))
    B = A @ inverse_root
    # Rank is decided on rows of unit norm, as theory.md asks; the inverse is B's own.
    norms = np.linalg.norm(B, axis=1)
    unit = B / np.where(norms > 1e-12 * norms.max(initial=0), norms, np.inf)[:, None]
    rank = int(np.linalg.matrix_rank(unit, rtol=rcond)) if B.size else 0
    if B.size:
        U, s, VT = scipy.linalg.svd(B, full_matrices=False)
        P = VT[:rank].T @ np.diag(1 / s[:rank]) @ U[:, :rank].T
    else:
        P = np.zeros(B.T.shape)
    ideal = root @ P @ (b - A @ np.linalg.solve(M, Q))
    nonideal = root @ (np.eye(Q.size) - P @ B) @ inverse_root @ c
    force = ideal + nonideal
    multipliers = scipy.linalg.lstsq(A.T, force - c, cond=rcond)[0] if A.size else np.zeros(A.shape[0])
    return Textbook(np.linalg.solve(M, Q + force), force, multipliers, rank)


def central(fn, h: float = 1e-3) -> np.ndarray:
    """The derivative of fn(s) at s = 0 by central differences of order four."""
    near, far = (np.asarray(fn(k * h)) - np.asarray(fn(-k * h)) for k in (1, 2))
    return (8 * near - far) / (12 * h)


def state(t, q, v) -> tuple[jax.Array, jax.Array, jax.Array]:
    """A state as float64 arrays."""
    return jnp.asarray(t, float), jnp.asarray(q, float), jnp.asarray(v, float)


rows_of = eqx.filter_jit(uk.constraint_rows)


@eqx.filter_jit
def _solve(formula, equations):
    return formula.solve(equations)


def solve(formula, equations):
    """What a formula makes of equations, as one program; where it has values, as arrays of NumPy."""
    found = _solve(formula, equations)
    return found if isinstance(found.a, jax.core.Tracer) else jax.tree.map(np.asarray, found)


@eqx.filter_jit
def equations(system, t, q, v) -> tuple:
    """M, Q and the rows of a system, as one program: its parts on their own would be a hundred small ones."""
    return system.mass_matrix(t, q), system.force(t, q, v), uk.constraint_rows(system, t, q, v)


def primitives(jaxpr) -> set[str]:
    """The names of all primitives in a jaxpr, those of inner jaxprs included."""
    jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    names = set()
    for equation in jaxpr.eqns:
        names.add(equation.primitive.name)
        for parameter in jax.tree.leaves(equation.params, is_leaf=_is_jaxpr):
            if _is_jaxpr(parameter):
                names |= primitives(parameter)
    return names


def _is_jaxpr(x) -> bool:
    return hasattr(x, "eqns") or hasattr(getattr(x, "jaxpr", None), "eqns")
