"""Tendons of a file: their lengths, and the springs and dampers on them."""

from collections.abc import Mapping
from typing import Any, final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._misc._types import Coordinates, Time, Velocities, as_jax
from ..mechanisms import AbstractTreeLoad, Touched, TreeMotion
from ..mechanisms._loads import AbstractCoordinateLoad, AbstractLoad, Bodies, Placements, Twists, parts_of
from ..mechanisms._placement import rate_of
from ._lengths import Anchor, Around, Lengths, Path, Straight, stack_lengths
from ._passive import from_actuators
from ._reference import Reference, is_given, mujoco
from ._report import FeatureParts, RefusedError, Row, features


@final
class Elastic(eqx.Module):
    """A spring that pulls beyond one length and pushes below another, and a damper: -k x - c l'."""

    stiffness: Float[Array, ""]  # k [N/m]
    damping: Float[Array, ""]  # c [N s/m]
    # `least`, `greatest`: between these lengths x is zero [m].
    least: Float[Array, ""]
    greatest: Float[Array, ""]

    def stretch(self, length: Float[Array, ""]) -> Float[Array, ""]:
        """x: how far a length is beyond."""
        over, under = length - self.greatest, length - self.least
        return jnp.where(over > 0, over, jnp.where(under < 0, under, 0))

    def force(self, length: Float[Array, ""], rate: Float[Array, ""]) -> Float[Array, ""]:
        """The force along the length [N]."""
        return -self.stiffness * self.stretch(length) - self.damping * rate

    def potential(self, length: Float[Array, ""]) -> Float[Array, ""]:
        """k x^2 / 2 [J]."""
        return 0.5 * self.stiffness * self.stretch(length) ** 2


@final
class FixedTendon(AbstractCoordinateLoad):
    """Spring and damper of a tendon whose length is linear in the coordinates."""

    name: str = eqx.field(static=True)
    length: Lengths
    elastic: Elastic

    def rate(self, q: Coordinates, v: Velocities) -> Float[Array, ""]:
        return self.length.rate(v)[0]

    def effort(self, t: Time, q: Coordinates, v: Velocities) -> Float[Array, ""]:
        return self.elastic.force(self.length(q)[0], self.rate(q, v))

    def potential(self, q: Coordinates) -> Float[Array, ""]:
        return self.elastic.potential(self.length(q)[0])


@final
class SpatialTendon(AbstractLoad):
    """Spring and damper of a tendon that is a path through points of bodies."""

    name: str = eqx.field(static=True)
    path: Path
    elastic: Elastic

    @property
    def bodies(self) -> tuple[str, ...]:
        return self.path.bodies

    def rate(self, bodies: Bodies, placements: Placements, twists: Twists) -> Array:
        return rate_of(self.path, parts_of(self, placements), parts_of(self, twists))

    def effort(self, bodies: Bodies, t: Time, placements: Placements, twists: Twists) -> Array:
        length = self.path(*parts_of(self, placements))
        return self.elastic.force(length, self.rate(bodies, placements, twists))

    def potential(self, bodies: Bodies, placements: Placements) -> Float[Array, ""]:
        return self.elastic.potential(self.path(*parts_of(self, placements)))


@final
class TendonArmature(AbstractTreeLoad):
    """What tendons move by their rates: no force but that of inertia."""

    # `fixed`: lengths that are linear in the coordinates, which come first; `paths`: those through points of bodies.
    fixed: Lengths
    paths: tuple[Path, ...]
    moved: Float[Array, " k"]  # of each [kg] (k,)
    name: str = eqx.field(static=True, default="tendon armature")

    @property
    def inertia(self) -> Array:
        return self.moved

    def touches(self, q: Coordinates, v: Velocities) -> Touched:
        return Touched((), self.fixed.touched, [name for x in self.paths for name in x.bodies])

    def rate(self, motion: TreeMotion) -> Array:
        ends = lambda by_name, x: [by_name[name] for name in x.bodies]
        of = lambda x: rate_of(x, ends(motion.placements, x), ends(motion.twists, x))
        return jnp.concatenate([self.fixed.rate(motion.v), *(of(x)[None] for x in self.paths)])

    def effort(self, motion: TreeMotion) -> Array:
        return jnp.zeros_like(self.moved)


def _armature(at: Reference, lengths: Mapping[int, Lengths | Path]) -> TendonArmature | None:
    values = np.array(getattr(at.model, "tendon_armature", np.zeros(at.model.ntendon)))
    if hasattr(at.model, "actuator_armature"):
        values += from_actuators(at, "tendon", at.model.actuator_armature)
    has = [i for i in lengths if values[i]]
    if not has:
        return None
    order = sorted(has, key=lambda i: isinstance(lengths[i], Path))
    fixed = stack_lengths([x for i in order if isinstance(x := lengths[i], Lengths)])
    paths: Any = tuple(lengths[i] for i in order if isinstance(lengths[i], Path))
    return TendonArmature(fixed=fixed, paths=paths, moved=as_jax(values[order]))


def _read_fixed_tendon(at: Reference, places: range) -> Lengths:
    model, terms, reference = at.model, [], 0.0
    for k in places:
        joint, coefficient = int(model.wrap_objid[k]), float(model.wrap_prm[k])
        terms.append((int(model.jnt_qposadr[joint]), int(model.jnt_dofadr[joint]), coefficient))
        reference += coefficient * float(model.qpos0[model.jnt_qposadr[joint]])
    return Lengths.of([terms], [reference])


def _spatial(at: Reference, places: range) -> Path:
    model, kinds = at.model, mujoco().mjtWrap
    names: dict[str, int] = {}

    def anchor(kind: str, number: int) -> Anchor:
        carrier, point, _ = at.frame(kind, number)
        return Anchor(names.setdefault(carrier, len(names)), as_jax(point))

    parts, divisors, divisor = [], [], 1.0
    last: Anchor | None = None
    around: Any = None
    for k in places:
        kind, number, parameter = int(model.wrap_type[k]), int(model.wrap_objid[k]), float(model.wrap_prm[k])
        if kind == kinds.mjWRAP_PULLEY:
            divisor, last, around = parameter, None, None
            continue
        if kind in (kinds.mjWRAP_SPHERE, kinds.mjWRAP_CYLINDER):
            around = (number, round(parameter), kind == kinds.mjWRAP_CYLINDER)
            continue
        here = anchor("site", number)
        if last is not None:
            parts.append(Straight(last, here) if around is None else _around(at, anchor, last, here, *around))
            divisors.append(divisor)
        last, around = here, None
    return Path(tuple(names), tuple(parts), as_jax(np.array(divisors)))


def _around(
    at: Reference, anchor: Any, start: Anchor, end: Anchor, geom: int, side: int, cylinder: bool
) -> Around:
    _, centre, frame = at.frame("geom", geom)
    radius = float(at.model.geom_size[geom][0])
    by = None
    if side >= 0:
        by = anchor("site", side)
        if np.linalg.norm(np.asarray(by.point) - centre) < radius:
            raise RefusedError("it passes inside of a sphere or a cylinder")
    return Around(start, end, anchor("geom", geom), as_jax(frame), as_jax(radius), by, cylinder)


def tendon_lengths(at: Reference) -> tuple[dict[int, Lengths | Path], dict[int, str]]:
    """The length of each tendon by its number, and why those without cannot be used."""
    model, lengths, refused = at.model, {}, {}
    for i in range(model.ntendon):
        start, count = int(model.tendon_adr[i]), int(model.tendon_num[i])
        places = range(start, start + count)
        try:
            fixed = count and model.wrap_type[start] == mujoco().mjtWrap.mjWRAP_JOINT
            lengths[i] = _read_fixed_tendon(at, places) if fixed else _spatial(at, places)
        except RefusedError as why:
            refused[i] = str(why)
    return lengths, refused


def _notes(at: Reference, i: int) -> list[Row]:
    """What of a tendon is not used."""
    model, name = at.model, at.names.tendons[i]
    notes = {
        "tendon_stiffnesspoly": ("tendon stiffness, nonlinear", "its linear part is used"),
        "tendon_dampingpoly": ("tendon damping, nonlinear", "its linear part is used"),
        "tendon_springyield": ("tendon spring yield", "plastic springs"),
    }
    return [
        (feature, name, "approximated" if "linear" in why else "ignored", why)
        for field, (feature, why) in notes.items()
        if is_given(model, field, i)
    ]


def tendons(at: Reference, lengths: Mapping[int, Lengths | Path], refused: Mapping[int, str]) -> FeatureParts:
    """The springs and dampers of the tendons."""
    model, loads, rows = at.model, [], []
    if (moved := _armature(at, lengths)) is not None:
        loads.append(moved)
    of_actuators = np.zeros(model.ntendon)
    if hasattr(model, "actuator_damping"):
        of_actuators = from_actuators(at, "tendon", model.actuator_damping)
    springs = not (at.is_disabled("SPRING") or at.is_disabled("PASSIVE"))
    dampers = not (at.is_disabled("DAMPER") or at.is_disabled("PASSIVE"))
    for i, name in enumerate(at.names.tendons):
        if i in refused:
            rows.append(("tendon", name, "ignored", refused[i]))
            continue
        length = lengths[i]
        kind = "spatial" if isinstance(length, Path) else "fixed"
        rows.append((f"{kind} tendon", name, "used", ""))
        if isinstance(length, Path) and any(
            isinstance(part, Around) and part.side is not None for part in length.parts
        ):
            rows.append(("tendon with a side site", name, "approximated", "by the rule of MuJoCo 3"))
        rows += _notes(at, i)
        if is_given(model, "tendon_armature", i):
            rows.append(("tendon armature", name, "used", ""))
        stiffness = float(model.tendon_stiffness[i]) * springs
        damping = (float(np.ravel(model.tendon_damping[i])[0]) + float(of_actuators[i])) * dampers
        if stiffness or damping:
            numbers = (stiffness, damping, *model.tendon_lengthspring[i])
            elastic = Elastic(*(as_jax(float(x)) for x in numbers))
            own = f"tendon {name}"
            if isinstance(length, Path):
                loads.append(SpatialTendon(own, length, elastic))
            else:
                loads.append(FixedTendon(own, length, elastic))
            rows.append(("tendon spring or damper", name, "used", ""))
    return FeatureParts(loads=tuple(loads), features=features(rows))
