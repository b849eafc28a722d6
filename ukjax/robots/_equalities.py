"""Equalities of a file as exact constraints: points and frames that coincide, joints and tendons tied by polynomials.

MuJoCo's are soft. Here they hold to rounding error, as loops of the tree (`Connect`, `Weld`, `PathTie`) or as
constraints on its coordinates (`Tie`). Residuals are those of MuJoCo, but for signs and the scale of torques.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._compiler import evaluate_at_state
from .._misc._types import Coordinates, Time, as_jax
from .._system._constraint import Holonomic
from ..mechanisms import Connect, TreeSystem
from ..mechanisms._abstract_joint import AbstractJoint
from ..mechanisms._placement import AnyPlacement, Placement, norm
from ._lengths import Lengths, Path, stack_lengths
from ._reference import Reference, mujoco, name_of, word_of
from ._report import FeatureParts, RefusedError, features


@final
class Weld(AbstractJoint):
    """A weld that may be open in the reference posture: a frame of the child meets one of the parent. 6 rows.

    Three are x' - x, three the vector part of the quaternion of the child's frame against the parent's, which is
    sin(angle / 2) times the axis. Half a turn away that has no slope along the axis, as MuJoCo's: nothing turns it back.
    """

    name: str = eqx.field(static=True)  # what reports call it
    # `parent`, `child`: names of the bodies.
    parent: str = eqx.field(static=True)
    child: str = eqx.field(static=True)
    parent_point: Array = eqx.field(converter=as_jax)  # of the parent, in the reference posture [m] (3,)
    point: Array = eqx.field(converter=as_jax)  # of the child, likewise
    # `parent_frame`: of the parent, in the reference posture, in world axes (3, 3); `frame`: of the child, likewise.
    parent_frame: Array = eqx.field(converter=as_jax)
    frame: Array = eqx.field(converter=as_jax)
    turns: ClassVar[bool] = True

    def is_half_turned(self, parent: AnyPlacement, child: AnyPlacement) -> Float[Array, ""]:
        """1 where the frames are half a turn apart, to rounding; else 0."""
        rows = self.rows(jnp.zeros((), parent.p.dtype), parent, child)
        return (norm(rows[3:]) > 1.0 - 4.0 * jnp.finfo(rows.dtype).eps).astype(rows.dtype)

    def rows(self, t: Time, *placements: AnyPlacement) -> Float[Array, "6"]:
        parent, child = placements
        assert isinstance(parent, Placement)
        assert isinstance(child, Placement)
        S = (child.R @ self.frame).T @ (parent.R @ self.parent_frame)
        # 1 + tr S = (2 cos(angle / 2))^2, zero half a turn away only
        square = 1.0 + S[0, 0] + S[1, 1] + S[2, 2]
        least = jnp.finfo(S.dtype).eps
        twice = jnp.sqrt(jnp.where(square > least, square, least))
        vector = jnp.stack([S[2, 1] - S[1, 2], S[0, 2] - S[2, 0], S[1, 0] - S[0, 1]]) / (2.0 * twice)
        # There S = 2 a a^T - 1, whose skew part has lost the axis a.
        column = (S + jnp.eye(3, dtype=S.dtype))[:, jnp.argmax(jnp.diag(S))]
        vector = jnp.where(square > least, vector, column / norm(column))
        return jnp.concatenate([child.point(self.point) - parent.point(self.parent_point), vector])


def _half_turns(tree: TreeSystem, t: Time, q: Coordinates) -> Array:
    at = tree.placements(t, q)
    welds = [x for x in tree.joints if isinstance(x, Weld)]
    return jnp.stack([weld.is_half_turned(at[weld.parent], at[weld.child]) for weld in welds])


def find_half_turned_welds(tree: TreeSystem, q: Coordinates) -> tuple[str, ...]:
    """The names of welds whose frames are half a turn apart."""
    names = [x.name for x in tree.joints if isinstance(x, Weld)]
    far = evaluate_at_state(_half_turns, tree, np.zeros((), q.dtype), q) if names else ()
    return tuple(name for name, x in zip(names, far, strict=True) if x)


def polynomial(coefficients: Float[Array, "5"], x: Array) -> Array:
    """c0 + c1 x + c2 x^2 + c3 x^3 + c4 x^4."""
    value = coefficients[4]
    for i in (3, 2, 1, 0):
        value = coefficients[i] + x * value
    return value


@final
class Tie(eqx.Module):
    """phi(t, q) = s1 - c0 - c1 s2 - ... - c4 s2^4, of the changes of lengths from the reference posture."""

    lengths: Lengths  # of s1, and of s2 where there is one
    coefficients: Float[Array, "5"]  # c0 to c4 (5,)

    def __call__(self, t: Time, q: Coordinates) -> Float[Array, ""]:
        first, *second = self.lengths.change(q)
        return _compute_tie_residual(first, second, self.coefficients.astype(q.dtype))


@final
class PathTie(AbstractJoint):
    """As `Tie`, of paths through points of bodies. 1 row."""

    name: str = eqx.field(static=True)
    paths: tuple[Path, ...]
    reference: Float[Array, " paths"]
    coefficients: Float[Array, "5"]
    turns: ClassVar[bool] = False

    @property
    def bodies(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for path in self.paths for name in path.bodies))

    @property
    def parent(self) -> str:
        return self.bodies[0]

    @property
    def child(self) -> str:
        return self.bodies[-1]

    @property
    def point(self) -> Array:
        return self.paths[0].parts[0].start.point

    def rows(self, t: Time, *placements: AnyPlacement) -> Float[Array, "1"]:
        by_name = dict(zip(self.bodies, placements, strict=True))
        lengths = [path(*(by_name[name] for name in path.bodies)) for path in self.paths]
        first, *second = [x - x0 for x, x0 in zip(lengths, self.reference, strict=True)]
        return _compute_tie_residual(first, second, self.coefficients)[None]


def _compute_tie_residual(first: Array, second: Sequence[Array], coefficients: Float[Array, "5"]) -> Array:
    return first - (polynomial(coefficients, second[0]) if second else coefficients[0])


def _make_loop(at: Reference, i: int, name: str, weld: bool) -> Connect | Weld:
    """A connect or a weld, by bodies or by sites."""
    model, data = at.model, at.model.eq_data[i]
    ends = int(model.eq_obj1id[i]), int(model.eq_obj2id[i])
    by_sites = model.eq_objtype[i] == mujoco().mjtObj.mjOBJ_SITE
    frames = [at.frame("site" if by_sites else "body", end) for end in ends]
    (parent, child), points, turns = zip(*frames, strict=True)
    if parent == child:
        raise RefusedError("both of its ends are on one body, or do not move")
    if not by_sites:
        own = (data[3:6], data[0:3]) if weld else (data[0:3], data[3:6])
        points = [point + turn @ x for point, turn, x in zip(points, turns, own, strict=True)]
    if not weld or data[10] == 0.0:
        return Connect(name, parent, child, points[0], points[1])
    first = turns[0]
    if not by_sites:
        relative = np.zeros(9)
        mujoco().mju_quat2Mat(relative, data[6:10] / np.linalg.norm(data[6:10]))
        first = first @ relative.reshape(3, 3)
    return Weld(name, parent, child, points[0], points[1], first, turns[1])


def _make_tie(at: Reference, i: int, name: str, lengths: Mapping[int, Lengths | Path]) -> Holonomic | PathTie:
    """A polynomial of joints or tendons."""
    model = at.model
    ends = [int(x) for x in (model.eq_obj1id[i], model.eq_obj2id[i]) if x >= 0]
    coefficients = as_jax(np.array(model.eq_data[i][:5]))
    if model.eq_type[i] == mujoco().mjtEq.mjEQ_JOINT:
        of = [
            Lengths.of([[(int(model.jnt_qposadr[end]), int(model.jnt_dofadr[end]), 1.0)]], [0.0])
            for end in ends
        ]
    else:
        of = [lengths[end] for end in ends if end in lengths]
        if len(of) < len(ends):
            raise RefusedError("its tendon is not supported")
    paths = [x for x in of if isinstance(x, Path)]
    linear = [x for x in of if isinstance(x, Lengths)]
    if not paths:
        return Holonomic(Tie(stack_lengths(linear), coefficients), name=name)
    if linear:
        raise RefusedError("it ties a fixed to a spatial tendon")
    reference = as_jax(np.array(model.tendon_length0[ends]))
    tie = PathTie(name, tuple(paths), reference, coefficients)  # pyright: ignore[reportCallIssue]
    if len(tie.bodies) < 2:
        raise RefusedError("its tendons do not change their lengths")
    return tie


def equalities(at: Reference, lengths: Mapping[int, Lengths | Path]) -> FeatureParts:
    """The equalities of a model: loops of the tree, and constraints on its coordinates."""
    model, kinds = at.model, mujoco().mjtEq
    loops, ties, rows, names = [], [], [], set()
    off = at.is_disabled("EQUALITY") or at.is_disabled("CONSTRAINT")
    for i in range(model.neq):
        kind = int(model.eq_type[i])
        feature = f"equality {word_of('Eq', kind)}"
        name = equality_name(at, i, names)
        if off or not model.eq_active0[i]:
            rows.append((feature, name, "off", "disabled in the file" if off else "inactive in the file"))
            continue
        try:
            if kind in (kinds.mjEQ_CONNECT, kinds.mjEQ_WELD):
                loops.append(_make_loop(at, i, name, kind == kinds.mjEQ_WELD))
            elif kind in (kinds.mjEQ_JOINT, kinds.mjEQ_TENDON):
                tie = _make_tie(at, i, name, lengths)
                (ties if isinstance(tie, Holonomic) else loops).append(tie)
            else:
                raise RefusedError("not supported")
        except RefusedError as why:
            rows.append((feature, name, "ignored", str(why)))
        else:
            rows.append((feature, name, "used", "exact, not soft"))
    return FeatureParts((), tuple(loops), tuple(ties), features(rows))


def equality_name(at: Reference, i: int, taken: set[str]) -> str:
    """What an equality is called: its own name, or what it ties."""
    model = at.model
    name = name_of(model, "equality", i)
    if not name:
        kind = word_of("Eq", model.eq_type[i])
        by_sites = model.eq_objtype[i] == mujoco().mjtObj.mjOBJ_SITE
        named = {"joint": at.names.joints, "tendon": at.names.tendons}
        of = named.get(kind, at.names.sites if by_sites else at.names.bodies)
        ends = [int(x) for x in (model.eq_obj1id[i], model.eq_obj2id[i]) if 0 <= x < len(of)]
        name = " ".join([kind, *(of[end] for end in ends)])
    name = name if name not in taken else f"{name} ({i})"
    taken.add(name)
    return name
