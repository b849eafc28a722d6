"""Levels and modules of a hierarchy: which rows belong to which level, and which variables they touch.

Where the rows so far touch each module's variables only, the recursion's P is block diagonal, and each module is a
problem of its own (Orsino 2017, section 2): identical ones are one batch.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..._compiler import compile_small
from ..._misc._arguments import all_of
from ..._misc._errors import InputError
from ..._misc._types import Coordinates, Numbers, Time, Velocities
from ..._system._problem import Problem, resolve_state
from ..._system._rows import constraint_rows
from ..._system._system import AbstractSystem
from ._kalman import ModuleBlock

Levels = tuple[tuple[str, ...], ...]


def _rows_by_constraint(names: Sequence[str], wanted: Sequence[str]) -> dict[str, list[int]]:
    """The row numbers of each constraint; a constraint whose own name ends in "[0]" is known by being wanted."""
    by_constraint: dict[str, list[int]] = {}
    for i, row in enumerate(names):
        by_constraint.setdefault(row if row in wanted else re.sub(r"\[\d+\]$", "", row), []).append(i)
    return by_constraint


def row_levels(levels: Levels | None, names: Sequence[str]) -> tuple[list[list[int]], dict[str, list[int]]]:
    """The row numbers of each level, and of each constraint; raises `InputError` unless each is in one level."""
    known = _rows_by_constraint(names, [] if levels is None else [name for level in levels for name in level])
    if levels is None:
        return list(known.values()), known
    given = [name for level in levels for name in level]
    have = f"the constraints are {', '.join(known) or 'none'}."
    for name in given:
        if name not in known:
            raise InputError(f"levels names '{name}', which is no constraint of the system: {have}")
    for name in known:
        if name not in given:
            raise InputError(f"levels leaves out the constraint '{name}'; each must be in one level.")
    return [[i for name in level for i in known[name]] for level in levels], known


def as_levels(levels: Sequence[Sequence[str]] | None) -> Levels | None:
    """Levels as tuples of names, each given once; raises `InputError` for anything else."""
    if levels is None:
        return None
    levels = all_of("levels", levels, (str, Sequence), "['rod', 'wheel']")
    result = tuple((level,) if isinstance(level, str) else tuple(level) for level in levels)
    given = [name for level in result for name in level]
    for name in given:
        if not isinstance(name, str):
            raise InputError(f"levels must hold the names of constraints, not {name!r}.")
        if given.count(name) > 1:
            raise InputError(f"levels names the constraint '{name}' twice; each must be in one level.")
    return result


class Module(NamedTuple):
    """A part of a mechanism that is coupled to others only at higher levels of a hierarchy.

    - `variables`: the numbers of its velocities.
    - `constraints`: the names of the constraints among them.
    """

    variables: tuple[int, ...]
    constraints: tuple[str, ...]


def as_modules(modules: Sequence[Module | tuple[Sequence[int], Sequence[str]]]) -> tuple[Module, ...]:
    """Modules as `Module`, no variable and no constraint in two of them; raises `InputError` for anything else."""
    result = []
    for module in all_of("modules", modules, object, "Module((0, 1), ('rod',))"):
        try:
            variables, constraints = module
            result.append(Module(tuple(int(i) for i in variables), tuple(str(name) for name in constraints)))
        except (TypeError, ValueError):
            raise InputError(
                f"a module is (numbers of velocities, names of constraints), not {module!r}."
            ) from None
    for what, parts in (
        ("velocity", [m.variables for m in result]),
        ("constraint", [m.constraints for m in result]),
    ):
        given = [part for module in parts for part in module]
        twice = [part for part in given if given.count(part) > 1]
        if twice:
            raise InputError(f"modules hold the {what} {twice[0]!r} twice; each belongs to one module.")
    return tuple(result)


def blocks(
    modules: Sequence[Module],
    levels: Sequence[Sequence[int]],
    known: dict[str, list[int]],
    soft: Sequence[int],
    n: int,
) -> list[ModuleBlock]:
    """The modules in rows and columns, over the lowest levels that are made of modules alone."""
    for module in modules:
        for name in module.constraints:
            if name not in known:
                raise InputError(f"modules name '{name}'; the constraints are {', '.join(known)}.")
        if not all(0 <= i < n for i in module.variables):
            raise InputError(f"modules hold velocities {module.variables}; there are {n}, from 0 on.")
    rows = [{i for name in module.constraints for i in known[name]} for module in modules]
    within = set().union(*rows)
    depth = next((k for k, level in enumerate(levels) if not within.issuperset(level)), len(levels))
    result = []
    for module, own in zip(modules, rows, strict=True):
        by_level = tuple(tuple(i for i in level if i in own) for level in levels[:depth])
        clearances = [n + k for k, i in enumerate(soft) if any(i in level for level in by_level)]
        result.append(ModuleBlock((*module.variables, *clearances), by_level))
    return [block for block in result if any(block.levels)]


@compile_small
def _couplings(system: AbstractSystem, t: Time, q: Coordinates, v: Velocities):
    return system.mass_matrix(t, q), constraint_rows(system, t, q, v)


def _components(sets: Sequence[np.ndarray], n: int) -> np.ndarray:
    """A number for each of n variables, the same for those that a set connects."""
    labels = np.arange(n)
    for members in sets:
        together = np.unique(labels[members])
        labels[np.isin(labels, together)] = together.min(initial=n)
    return labels


def find_modules(
    system: AbstractSystem | Problem,
    levels: Sequence[Sequence[str]],
    t: Time | float | None = None,
    q: Numbers | None = None,
    v: Numbers | None = None,
) -> tuple[Module, ...]:
    """The modules that a hierarchy consists of, up to the highest level that leaves more than one.

    Two velocities belong together where the mass matrix or a row couples them, at the given state or at one of two
    random ones near it.

    **Arguments:**

    - `system`: the mechanical system, or a `Problem`, which brings what is not given.
    - `levels`: names of constraints, a tuple for each level, the lowest first.
    - `t`: time [s].
    - `q`: generalized coordinates (n_q,).
    - `v`: generalized velocities (n,).

    **Returns:** a `Module` for each part with constraints, for `Recursive`; none where the lowest level couples all.

    **Raises:** `InputError` as `Recursive`.
    """
    system, t, q, v = resolve_state(system, t, q, v)
    given, n = as_levels(levels) or (), v.size
    rng, couplings = np.random.default_rng(0), []
    for size in (0.0, 0.1, 0.1):
        moved = [x + (size * rng.normal(size=x.shape)).astype(x.dtype) for x in (q, v)]
        couplings.append(_couplings(system, t, *moved))
    M = np.any([np.asarray(M) != 0 for M, _ in couplings], axis=0)
    A = np.any([np.asarray(rows.A) != 0 for _, rows in couplings], axis=0)
    by_level, known = row_levels(given, couplings[0][1].names)
    masses = [np.flatnonzero(row) for row in M]
    for depth in range(len(given), 0, -1):
        touched = {i: np.flatnonzero(A[i]) for level in by_level[:depth] for i in level}
        labels = _components([*masses, *touched.values()], n)
        owners: dict[int, list[str]] = {}
        parts = {
            name: labels[np.concatenate([touched[i] for i in known[name]])] for name in sum(given[:depth], ())
        }
        for name, part in parts.items():
            owners.setdefault(int(part.min(initial=n)), []).append(name)
        apart = all(part.size and part.min() == part.max() for part in parts.values())
        if apart and len(owners) > 1:
            return as_modules(
                [(np.flatnonzero(labels == label).tolist(), names) for label, names in owners.items()]
            )
    return ()
