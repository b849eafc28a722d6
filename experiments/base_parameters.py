"""Which combinations of parameters data can tell: the base parameters of Gautier (1990), from sensitivities.

M. Gautier, Numerical calculation of the base inertial parameters of robots, Proc. IEEE ICRA, 1990.
"""

import itertools
from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import numpy as np

UNSEEN = 1e-6  # singular values below this part of the largest count as zero; there is a gap of decades


class Study(NamedTuple):
    """A data set: what is measured, as a function of the parameters.

    `kind`: whether combinations of the parameters read as sums (the equations are linear in masses and inertias) or as
    products of powers (lengths).
    """

    name: str
    names: tuple[str, ...]
    truth: np.ndarray
    outputs: Callable[[jax.Array], jax.Array]
    kind: Literal["sum", "product"]


class Basis(NamedTuple):
    """Parameters that are kept, those that are free, and K: the data tell of logarithms only kept + K free."""

    kept: np.ndarray
    free: np.ndarray
    K: np.ndarray


def bases(jacobian: np.ndarray) -> tuple[list[Basis], np.ndarray]:
    """How the parameters' logarithms split into kept and free ones, by the sensitivities J (k, p).

    J = J_kept (kept + K free): the data tell each kept one only together with its row of K times the free ones, the
    base parameters of Gautier (1990). Returns all such bases, and the singular values of J.
    """
    _, singular_values, vt = np.linalg.svd(jacobian, full_matrices=False)
    rank, columns = int(np.sum(singular_values > UNSEEN * singular_values[0])), range(jacobian.shape[1])
    found = []
    for kept in itertools.combinations(columns, rank):
        free = np.setdiff1d(columns, kept)
        if np.linalg.cond(vt[:rank][:, kept]) < 1e6:
            K = np.linalg.solve(vt[:rank][:, kept], vt[:rank][:, free])
            found.append(Basis(np.array(kept), free, np.where(np.abs(K) < 1e-6, 0.0, K)))
    return found, singular_values


def combination(study: Study, parameters: np.ndarray, basis: Basis) -> tuple[Callable, np.ndarray]:
    """The combinations of a basis as a function of the parameters, and the factors or powers of the free ones."""
    kept, free, K = basis
    if study.kind == "product":
        return lambda x: x[kept] * np.prod(x[free] ** K, axis=1), K
    factors = K * parameters[kept][:, None] / parameters[free]
    return lambda x: x[kept] + factors @ x[free], factors


def deviations(study: Study, parameters: np.ndarray, J: np.ndarray, basis: Basis) -> np.ndarray:
    """Relative standard deviations of the combinations, from the Fisher information J^T J."""
    kept = basis.kept
    sigma = np.sqrt(np.diag(np.linalg.inv(J[:, kept].T @ J[:, kept])))
    if study.kind == "product":
        return sigma
    return sigma * parameters[kept] / np.abs(combination(study, parameters, basis)[0](parameters))


def in_words(study: Study, base: int, others: np.ndarray, factors: np.ndarray) -> str:
    """A kept parameter combined with the others: `m3 + 0.5 m2`, or `crank / ground`."""
    words = study.names[base]
    for i, factor in zip(others, factors, strict=True):
        if factor == 0.0:
            continue
        if study.kind == "sum":
            size = "" if abs(abs(factor) - 1.0) < 1e-6 else f"{abs(factor):.4g} "
            words += f" {'+' if factor > 0 else '-'} {size}{study.names[i]}"
        else:
            power = "" if abs(abs(factor) - 1.0) < 1e-6 else f"^{abs(factor):.3g}"
            words += f" {'*' if factor > 0 else '/'} {study.names[i]}{power}"
    return words


def unseen_changes(study: Study, basis: Basis) -> list[str]:
    """Changes of the parameters that leave the data as they are, one for each free parameter."""
    changes = []
    for column, i in zip(basis.K.T, basis.free, strict=True):
        parts = [f"{study.names[i]} +1 %"]
        parts += [
            f"{study.names[j]} {-x:+.3g} %" for j, x in zip(basis.kept, column, strict=True) if x != 0.0
        ]
        changes.append(", ".join(parts))
    return changes
