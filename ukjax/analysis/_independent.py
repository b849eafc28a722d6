"""Which velocities of a constrained system are independent: by name, or by the pivots of the rows."""

from typing import Any, NamedTuple

import equinox as eqx
import numpy as np

from .._formula._equations import equations_at
from .._misc._errors import InputError
from .._misc._types import Coordinates, Time, Velocities, is_traced
from .._pseudoinverse import GramSchmidt, rank_on_host
from .._system._rows import Rows, constraint_rows
from .._system._stabilize import NoStabilizer
from .._system._system import AbstractSystem, states_of
from ._states import select_names


class Split(NamedTuple):
    """The numbers of independent velocities: for changes of position, and for changes of velocity."""

    positions: tuple[int, ...]
    velocities: tuple[int, ...]


def _rank(A: np.ndarray) -> int:
    return rank_on_host(A, GramSchmidt().threshold(A.dtype))


def _choose_columns(A: np.ndarray, M: np.ndarray) -> tuple[int, ...]:
    """Independent columns: what is left when the rows are solved for the velocities that they determine best."""
    if not A.shape[0]:
        return tuple(range(A.shape[1]))
    import scipy.linalg

    sizes = np.maximum(np.diag(M), np.finfo(M.dtype).eps * np.trace(M))
    factors: Any = scipy.linalg.qr(A / np.sqrt(sizes), mode="r", pivoting=True)
    pivots = factors[1]
    return tuple(sorted(int(i) for i in pivots[_rank(A) :]))


def independent_of(
    system: AbstractSystem, state: tuple[Time, Coordinates, Velocities], names: tuple[str, ...], given: Any
) -> Split:
    """The independent velocities: those given by name, or those of the best pivots."""
    moving = len(names) - len(
        states_of(system)
    )  # states of first order, behind the others, are always independent
    own = None if given is None else tuple(names.index(x) for x in select_names("velocity", given, names))
    own_q = None if own is None else tuple(i for i in own if i < moving)
    own = None if own_q is None else (*own_q, *range(moving, len(names)))
    shape: Rows = eqx.filter_eval_shape(constraint_rows, system, *state)
    of_q, of_v = shape.of_positions, shape.of_velocities
    every, alike = tuple(range(len(names))), not (of_v & ~of_q).any()
    if is_traced((system, state)):
        if (of_v.any() and own is None) or (of_q.any() and not alike):
            raise InputError(
                "within jit, vmap and grad the names of `independent` velocities are needed, and rows on velocities must "
                "not stand beside rows on positions: which are independent would depend on values."
            )
        own = every if own is None else own
        return Split(own_q if alike and own_q is not None else every[:moving], own)
    known = equations_at(system, NoStabilizer(), *state)
    A, M = np.asarray(known.rows.A), np.asarray(known.M)
    split = Split(_choose_columns(A[of_q][:, :moving], M[:moving, :moving]), _choose_columns(A[of_v], M))
    if own is None:
        return split
    rest = np.setdiff1d(every, own)
    if len(own) != len(split.velocities) or _rank(A[of_v][:, rest]) < len(rest):
        raise InputError(
            f"independent must name {len(split.velocities)} velocities that determine all others here, such as "
            f"{', '.join(names[i] for i in split.velocities)}; got {', '.join(names[i] for i in own)}."
        )
    return Split(own_q if alike and own_q is not None else split.positions, own)
