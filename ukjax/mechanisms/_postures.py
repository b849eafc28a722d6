"""Starting postures: joints, bodies and points are put where they are wanted, and the rest of the mechanism follows.

From one posture, the reference posture or a problem's start, with x of what is named and s from 0 to 1 in small steps,

    phi(t, q) = 0,    x(q) = x0 + s (x1 - x0),

each solved by projection in the mass metric, from where the two steps before lead (continuation; Allgower and Georg,
Introduction to Numerical Continuation Methods, 2003, chapter 2), with the coordinates that are named put in place. So
of several assemblies, elbow up or down, it is the one that the drawn posture leads to, and what is left open moves no
more than it must. Joints that are not named stay, if they are part of no loop and carry no body or point that is named
(`joints_that_stay`).

Where a step leads beyond the range of Newton's method, it is halved. Near a singular posture, such as a stretched arm
that is to bend, rows ask for what no velocity gives, only a curvature: w^T phi + w^T H[x, x] / 2 = 0 with w^T J = 0. The
least x that solves it leads on (`_bend`; loc. cit., section 8.1). Within `jit` steps are all alike.
"""

import contextlib
import dataclasses
import warnings
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from itertools import pairwise
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._compiler import AtStates, evaluate_at_state
from .._misc._arguments import fails, real_array
from .._misc._errors import InputError
from .._misc._types import Coordinates, Time, Velocities, as_jax, in_full_precision, is_traced, module_for
from .._motion._model import nearest_start
from .._motion._project import (
    Projection,
    compute_position_terms,
    largest,
    position_root,
    positions_on_host,
    project_known,
    tolerance_of,
)
from .._system._constraint import Holonomic
from .._system._rows import constraint_rows, most_off, position_rows
from ._abstract_joint import AbstractJoint
from ._bodies import GROUND, PlanarBody, PointMass, check_array
from ._joint_rows import orientation_rows, same_direction, turn_rows
from ._joints import Fixed
from ._mechanism_system import MechanismSystem
from ._placement import AnyPlacement, PlanarPlacement
from ._tree import TreeSystem

_STEPS = 64
"""On the way there: a full turn in steps of a tenth of a radian. In long ones a linkage could change its assembly."""
_HALVINGS = 20
"""Of a step, before a posture counts as one that cannot be reached: shorter ones are smaller than what counts as off."""
_POSTURES = 1_000
"""That are sought on the way by halved steps: of 60 random linkages, loops apart by metres, none needed more than 151."""


def _value_shapes(system: MechanismSystem, at: Mapping[str, Any], t: Time, q: Coordinates) -> dict[str, Any]:
    return eqx.filter_eval_shape(lambda t, q: system.values_of(tuple(at), t, q), t, q)


@final
class HeldAt(eqx.Module):
    """Rows that are zero where what bears a name is at a value."""

    system: MechanismSystem
    name: str = eqx.field(static=True)
    value: Array

    def __call__(self, t: Time, q: Coordinates) -> Array:
        if self.system.is_coordinate(self.name):
            return q[self.system.labels.index(self.name)][None] - self.value
        placements = self.system.placements(t, q)
        joints = {joint.name: joint for joint in self.system.joints}
        if self.name in joints:
            joint = joints[self.name]
            return joint.configuration_rows(self.value, placements[joint.parent], placements[joint.child])
        if self.name in placements and not isinstance(self.system.mechanism.by_name[self.name], PointMass):
            return orientation_rows(self.value, placements[GROUND], placements[self.name])
        return self.system.points(t, q)[self.name] - self.value


def _hold_values(system: MechanismSystem, values: dict[str, Array]) -> MechanismSystem:
    rows = [Holonomic(HeldAt(system, name, x), name=f"{name}, as given") for name, x in values.items()]
    return dataclasses.replace(system, further=(*system.further, *rows))


# --- What is not named stays, where loops allow


@final
class StillRows(eqx.Module):
    """Rows that are zero where two bodies are to each other as they were; of point masses only where they are."""

    parent: AnyPlacement
    child: AnyPlacement
    turns: bool = eqx.field(static=True)

    def __call__(self, parent: AnyPlacement, child: AnyPlacement) -> Array:
        place = lambda parent, child: parent.back(child.p - parent.p)
        moved = place(parent, child) - place(self.parent, self.child)
        if not self.turns:
            return moved
        if isinstance(parent, PlanarPlacement):
            turned = same_direction(parent, child) - same_direction(self.parent, self.child)
        else:
            turned = turn_rows(self.parent.R.T @ self.child.R, parent, child)  # pyright: ignore
        return jnp.concatenate([moved, turned])


@final
class StillJoint(eqx.Module):
    """The same as a function of the coordinates of a mechanism."""

    system: MechanismSystem
    ends: tuple[str, ...] = eqx.field(static=True)
    rows: StillRows

    def __call__(self, t: Time, q: Coordinates) -> Array:
        placements = self.system.placements(t, q)
        return self.rows(*(placements[name] for name in self.ends))


def joints_that_stay(system: MechanismSystem, named: Collection[str]) -> list[AbstractJoint]:
    """The joints that can stay as they are where what is named is put elsewhere, or moves: they are not named, part of no
    loop, and not on the way from the ground to a body or point that is named. None of a mechanism with further
    constraints, of which nobody knows what they join."""
    if system.further:
        return []
    joints, bodies = {joint.name for joint in system.joints}, system.mechanism.by_name
    places = [x for x in named if x not in joints and not system.is_coordinate(x)]
    links = [(joint, *ends) for joint in system.joints for ends in pairwise(joint.bodies)]
    beside = defaultdict(list)
    for joint, a, b in links:
        beside[a].append((b, joint))
        beside[b].append((a, joint))
    before: dict[str, Any] = {}  # how each body is reached, from the ground outwards
    for root in (GROUND, *bodies):
        if root not in before:
            before[root], ways = None, [root]
            for here in ways:
                new = {there: (here, joint) for there, joint in beside[here] if there not in before}
                before |= new
                ways += new
    # Links that close loops leave a mark at both ends, which is gone again where the ways to these meet.
    marks = dict.fromkeys(before, 0)
    for i, (joint, a, b) in enumerate(links):
        if before[a] != (b, joint) and before[b] != (a, joint):
            marks[a], marks[b] = marks[a] ^ 1 << i, marks[b] ^ 1 << i
    moves = {body: any(x == body or x.startswith(f"{body}.") for x in places) for body in before}
    staying = []
    for body, way in reversed(before.items()):
        if way is not None:
            inwards, joint = way
            marks[inwards] ^= marks[body]
            moves[inwards] |= moves[body]
            given = any(x == joint.name or x.startswith(f"{joint.name} ") for x in named)
            if not (marks[body] or moves[body] or given or len(joint.bodies) > 2 or isinstance(joint, Fixed)):
                staying.append(joint)
    return staying


def hold_joint(
    system: MechanismSystem, joint: AbstractJoint, placements: Mapping[str, AnyPlacement]
) -> StillRows:
    """What holds a joint as it is."""
    turns = not any(isinstance(system.mechanism.by_name.get(name), PointMass) for name in joint.bodies)
    return StillRows(placements[joint.parent], placements[joint.child], turns)


def _keep_unnamed(
    system: MechanismSystem, named: Collection[str], t: Time, q: Coordinates
) -> MechanismSystem:
    """The mechanism with rows that hold the joints which stay. Those of an open tree do so by themselves."""
    if isinstance(system, TreeSystem) and not system.loops and all(system.is_coordinate(x) for x in named):
        return system
    joints = joints_that_stay(system, named)
    if not joints:
        return system
    placements = system.placements(t, q)
    hold = lambda joint: StillJoint(system, joint.bodies, hold_joint(system, joint, placements))
    return dataclasses.replace(
        system, further=tuple(Holonomic(hold(x), name=f"{x.name}, unmoved") for x in joints)
    )


def with_unit_quaternions(system: MechanismSystem, q: Coordinates) -> Coordinates:
    """A posture with all quaternions of length 1: rows on rotations leave it open, and steps onto them change it."""
    xp = module_for(q)
    for i in system.quaternions:
        p = q[i : i + 4]
        q = xp.concatenate([q[:i], p / xp.sqrt(xp.dot(p, p)), q[i + 4 :]])
    return q


Rows = Callable[[Any], tuple[Any, ...]]
"""phi, phi_q and what else `compute_position_terms` tells of coordinates."""


@final
class Way(eqx.Module):
    """From one posture to another."""

    system: MechanismSystem
    start: dict[str, Array]
    end: dict[str, Array]

    def values(self, share: Any) -> dict[str, Array]:
        """Where what is named is on the way."""
        return {name: self.start[name] + share * (x - self.start[name]) for name, x in self.end.items()}

    def ahead(self, passed: tuple[Coordinates, Coordinates], share: Any, onwards: Any) -> Coordinates:
        """Where the postures here and one before lead, with the coordinates that are named put in place."""
        q, before = passed
        ahead = with_unit_quaternions(self.system, q + onwards * (q - before))
        for name, x in self.values(share).items():
            if self.system.is_coordinate(name):
                i = self.system.labels.index(name)
                ahead = module_for(ahead, x).concatenate([ahead[:i], x[None], ahead[i + 1 :]])
        return ahead


def _list_steps(dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """How far each step leads, and whether it goes on in the direction of the last one. Not so twice at the end: what
    the last step left is removed to rounding."""
    shares = np.append(np.linspace(0.0, 1.0, _STEPS + 1), (1.0, 1.0))
    return shares.astype(dtype), np.append(np.ones(_STEPS + 1), (0.0, 0.0)).astype(dtype)


def _evaluate_held_rows(
    parameters: tuple[MechanismSystem, tuple[str, ...]], t: Time, q: Coordinates, *values: Array
) -> tuple[Any, ...]:
    system, names = parameters
    return compute_position_terms(_hold_values(system, dict(zip(names, values, strict=True))), t, q)


def _values_at(
    parameters: tuple[MechanismSystem, tuple[str, ...]], t: Time, q: Coordinates
) -> dict[str, Array]:
    system, names = parameters
    return system.values_of(names, t, q)


@in_full_precision
def _follow_path(
    system: MechanismSystem, t: Time, q: Coordinates, end: dict[str, Array]
) -> tuple[Coordinates, Array]:
    """The posture at the end of the way, and phi there; by NumPy where all has values."""
    system = _keep_unnamed(system, end, t, q)
    if is_traced((system, t, q, end)):
        return _follow_path_in_jit(system, t, q, end)
    # The values are arguments: the system is prepared once, not for each step.
    held = AtStates(_evaluate_held_rows, (system, tuple(end)))
    way = Way(system, evaluate_at_state(_values_at, (system, tuple(end)), t, q), end)

    def rows_at(share: Any) -> Rows:
        values = way.values(share).values()
        return lambda q: held.one(t, q, *values)

    here, least = np.asarray(q), tolerance_of(q.dtype)
    posture_at_end, left, is_clear = _go_by_equal_steps(way, rows_at, here)
    if not (is_clear and left <= least):
        carefully, less = _go_by_halved_steps(way, rows_at, here)
        posture_at_end = carefully if less <= max(left, least) else posture_at_end
    return posture_at_end, evaluate_at_state(position_rows, _hold_values(system, end), t, posture_at_end)


def _go_by_equal_steps(way: Way, rows_at: Callable[[Any], Rows], q: Any) -> tuple[Any, float, bool]:
    """The posture at the end, how far its rows are off, and whether no step led out of the range of Newton's method: by
    none were they off by more after its iterations than before."""
    rcond, passed, is_clear, left = Projection().pinv.threshold(q.dtype), (q, q), True, 0.0
    for share, onwards in zip(*_list_steps(q.dtype), strict=True):
        at, ahead = rows_at(share), way.ahead(passed, share, onwards)
        q = positions_on_host(at, ahead, rcond)[0]
        left = largest(at(q)[0])
        is_clear &= bool(left <= max(largest(at(ahead)[0]), most_off(q.dtype)))
        passed = with_unit_quaternions(way.system, q), passed[0]
    return passed[0], left, is_clear


def _go_by_halved_steps(way: Way, rows_at: Callable[[Any], Rows], q: Any) -> tuple[Any, float]:
    """The posture at the end or as far as it gets, and how far rows of the end are off, by steps that all meet theirs."""
    dtype, rcond = q.dtype, Projection().pinv.threshold(q.dtype)

    def land(passed: Any, share: Any, onwards: Any) -> Any | None:
        """A posture at a share of the way, from where the last ones lead, else from the last one bent."""
        at, off = rows_at(share), np.inf
        best: Any = q
        for begin in (
            lambda: way.ahead(passed, share, onwards),
            lambda: _bend(at, way.ahead(passed, share, 0)),
        ):
            if off <= tolerance_of(dtype) or (ahead := begin()) is None:
                continue
            candidates: Any = positions_on_host(at, ahead, rcond)[0], ahead
            for x in candidates:
                if (left := largest(at(x)[0])) < off:
                    off, best = left, with_unit_quaternions(way.system, x)
        return best if off <= most_off(dtype) * (1 + largest(best)) else None

    sought = 0

    def go(passed: Any, last: Any, share: Any, onwards: Any, halvings: int) -> Any:
        """The postures at a share of the way and before, and the share; where that fails, the last that were found."""
        nonlocal sought
        sought += 1
        landed = land(passed, share, onwards) if sought <= _POSTURES else None
        if landed is not None:
            return (landed, passed[0]), share
        if not halvings or sought > _POSTURES:
            return passed, last
        middle = (last + share) / 2
        passed, reached = go(passed, last, middle, onwards / 2, halvings - 1)
        return go(passed, middle, share, 1, halvings - 1) if reached == middle else (passed, reached)

    passed, reached = (q, q), np.zeros((), dtype)
    for share, onwards in zip(*_list_steps(dtype), strict=True):
        passed, reached = go(passed, reached, share, onwards, _HALVINGS)
        if reached != share:
            break
    return passed[0], largest(rows_at(np.ones((), dtype))(passed[0])[0])


def _bend(at: Rows, q: Any) -> Any | None:
    """A posture that meets the row which velocities meet worst, by the curvature of rows along what they leave free."""
    phi, *terms = at(q)
    G = position_root(np, *terms)
    # Not of unit norm: of a row that nearly vanishes that would hide it.
    U, s, V = np.linalg.svd(B := terms[0] @ G)
    (m, k), eps = B.shape, np.finfo(B.dtype).eps
    s = np.append(s, np.zeros(max(m, k) - len(s), s.dtype))
    asked, least = U.T @ phi, np.sqrt(eps) * s[0]
    i = int(np.argmax(np.abs(asked) / np.maximum(s[:m], least)))
    free = V[s[:k] <= max(2 * s[i], least)]
    if not len(free):
        return None
    step = eps**0.25 / largest(free @ G.T)
    row = lambda x: float(U[:, i] @ at(q + step * (G @ x))[0])
    sums = np.zeros((len(free), len(free)))
    for a, b in zip(*np.triu_indices(len(free)), strict=True):
        x = free[a] + free[b]
        sums[a, b] = sums[b, a] = (row(x) + row(-x) - 2 * asked[i]) / step**2
    alone = np.diag(sums) / 4
    bends, ways = np.linalg.eigh((sums - alone - alone[:, None]) / 2)
    displacements = []
    for curvature, x in zip(bends, ways.T @ free, strict=True):
        roots = np.roots([curvature / 2, s[i] * V[i] @ x if i < k else 0, asked[i]])
        displacements += [root.real * (G @ x) for root in roots if abs(root.imag) <= 0.1 * abs(root)]
    # At a fold two roots are one, with an imaginary part by rounding. The least; of two that bend to either side by the
    # same, the one that turns what turns most counter-clockwise.
    by_size = lambda dq: (float(f"{largest(dq):.2g}"), dq[np.argmax(np.abs(dq))] < 0)
    return q + min(displacements, key=by_size) if displacements else None


@eqx.filter_jit
def _follow_path_in_jit(
    system: MechanismSystem, t: Time, q: Coordinates, end: dict[str, Array]
) -> tuple[Coordinates, Array]:
    still = jnp.zeros(len(system.velocity_labels), q.dtype)
    way = Way(system, system.values_of(tuple(end), t, q), end)

    def step(passed: Any, how_far: Any) -> Any:
        held = _hold_values(system, way.values(how_far[0]))
        q = nearest_start(held, t, way.ahead(passed, *how_far), still)[0]
        return (with_unit_quaternions(system, q), passed[0]), None

    (q, _), _ = jax.lax.scan(step, (q, q), _list_steps(q.dtype))
    return q, position_rows(_hold_values(system, end), t, q)


def _check_value(name: str, value: Any, like: Any) -> Array:
    """A value of the right shape; of the two unit quaternions that mean a rotation the one nearer to upright."""
    array = check_array(f"the value of '{name}' in at", value, like.shape).astype(like.dtype)
    if like.shape not in ((4,), (7,)):
        return array
    xp, p = module_for(array), array[-4:]
    if fails(lambda x: abs(x[-4:] @ x[-4:] - 1.0) < 1e-3, value):
        raise InputError(
            f"the value of '{name}' in at must end in a unit quaternion, scalar first; got {value}."
        )
    p = xp.where(p[0] < 0, -1, 1).astype(p.dtype) * p / xp.sqrt(xp.dot(p, p))
    return xp.concatenate([array[:-4], p])


def _angles(system: MechanismSystem, name: str, value: np.ndarray) -> Any:
    joint = {joint.name: joint for joint in system.joints}.get(name)
    if joint is not None:
        return joint.angles_in(value)
    return value.ravel() if isinstance(system.mechanism.by_name.get(name), PlanarBody) else np.zeros(0)


def _warn_of_degrees(system: MechanismSystem, values: dict[str, Array]) -> None:
    """Warns of angles of more than a turn: they are legal, and more often degrees."""
    for name, value in values.items():
        angles = () if is_traced(value) else _angles(system, name, np.asarray(value))
        for angle in angles:
            if abs(angle) > 2 * np.pi:
                warnings.warn(
                    f"'{name}' in at is to turn by {angle:g} rad, {abs(angle) / (2 * np.pi):.1f} turns: angles are in "
                    f"radians, and {angle:g} degrees are {np.deg2rad(angle):.4g} rad.",
                    stacklevel=5,
                )


def hold_at(system: MechanismSystem, at: Mapping[str, Any], dtype: Any) -> MechanismSystem:
    """The mechanism with further rows, which hold what is named at a value."""
    t, q = (jax.ShapeDtypeStruct(x, dtype) for x in ((), system.q0.shape))
    shapes = _value_shapes(system, at, t, q)  # pyright: ignore[reportArgumentType]
    return _hold_values(system, {name: _check_value(name, value, shapes[name]) for name, value in at.items()})


def posture(system: MechanismSystem, at: Mapping[str, Any], t: Time | float, q: Coordinates) -> Coordinates:
    """The posture that another one leads to where what is named goes to a value."""
    t = real_array("t", t).astype(q.dtype)
    shapes = _value_shapes(system, at, t, q)
    end = {name: _check_value(name, value, shapes[name]) for name, value in at.items()}
    _warn_of_degrees(system, end)
    q, phi = _follow_path(system, t, q, end)
    tolerance = tolerance_of(q.dtype)
    if not is_traced(phi) and not np.max(np.abs(phi), initial=0) <= tolerance:
        v = jnp.zeros(jax.eval_shape(system.mass_matrix, t, q).shape[0], q.dtype)
        rows = eqx.filter_eval_shape(constraint_rows, _hold_values(system, end), t, q, v)
        names = [name for name, of_q in zip(rows.names, rows.of_positions, strict=True) if of_q]
        errors = np.abs(np.asarray(phi))
        least = max(tolerance, 1e-3 * errors.max())
        off = ", ".join(f"{name} ({x:.1e})" for name, x in zip(names, errors, strict=True) if not x <= least)
        wanted = ", ".join(f"{name} = {x}" for name, x in at.items())
        raise InputError(f"the mechanism cannot be closed at {wanted}: still off are {off}.")
    return q if is_traced(q) else as_jax(q)


_ASIDE = (
    0.1,
    0.3,
    0.6,
    1.0,
    1.5,
)  # [rad], [m]: how far from a posture one that closes its loops is looked for


def close_loops(
    system: TreeSystem, t: Time, q0: Coordinates, v0: Velocities
) -> tuple[Coordinates, Velocities, tuple[str, ...]]:
    """The nearest state on the constraints, or one aside of it where Newton's method finds none near, as for a linkage
    that is drawn flat; then also the names of the loops.
    """
    project = lambda q: project_known(Projection(), system, t, q, v0, tolerance_of(q0.dtype))
    try:
        return *project(q0), ()
    except InputError:
        for i, aside in enumerate(_ASIDE):
            shifted: Any = np.asarray(q0) + aside * np.cos((i + np.arange(q0.size, dtype=q0.dtype)) ** 2)
            with contextlib.suppress(InputError):
                q, v = project(as_jax(with_unit_quaternions(system, shifted)))
                return q, v, tuple(joint.name for joint in system.loops)
        raise
