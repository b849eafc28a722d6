"""From a robot's file to a tree of `mechanisms`, its start, and the report."""

from collections.abc import Iterable, Mapping
from typing import Any, get_args

import numpy as np

from .._misc._arguments import flag, one_of
from .._misc._errors import InputError, unknown_name
from .._misc._garbage import collector_held_back, with_room
from .._misc._progress import say
from .._misc._types import as_jax
from .._motion._project import tolerance_of
from .._system._problem import Problem
from ..mechanisms import GROUND, Gravity, TreeSystem, tree
from ..mechanisms._bodies import check_array
from ..mechanisms._postures import close_loops, with_unit_quaternions
from ._actuators import ActuatorInputs, inputs_of
from ._bodies import bodies, frames, joints, joints_by_kind, require_unique_motion
from ._clear import Start, resolve_start_penetration, without_contacts
from ._closures import closures
from ._contact_selection import read_contact_selection
from ._drives import actuators, input_names, start_activations
from ._equalities import equalities, find_half_turned_welds
from ._fluid import fluid
from ._geoms import contacts, geom_names
from ._limits import frictions, limits, tendon_stops
from ._mocap import Motion, check_motions
from ._mocap import mocap as mocap_motions
from ._passive import armature, compensation, damping, springs
from ._read_sensors import sensors
from ._reference import Reference, mujoco, name_of, reference
from ._report import Feature, FeatureParts, report_of
from ._robot import Frames, Robot
from ._source import read
from ._state import Conversion, conversion, state_of
from ._tendons import tendon_lengths, tendons
from ._visuals import visuals


@say("ukjax: reading a robot ...")
@with_room
@collector_held_back()
def load(
    source: Any,
    *,
    strict: bool = False,
    merge_fixed: bool = True,
    free_base: bool = False,
    keyframe: str | int | None = None,
    contact: bool | Iterable[str | tuple[str, str]] | None = None,
    restitution: float | Mapping[str | tuple[str, str], float] | None = None,
    friction: float | Mapping[str | tuple[str, str], float] | None = None,
    start: Start = "nearest",
    ctrl: Any = None,
    mocap: Mapping[str, Motion] | None = None,
    floor: bool | float = False,
    t1: float = 10.0,
) -> Robot:
    """A robot from a file, as a tree of `ukjax.mechanisms`: MJCF, URDF, SDF, USD, or YAML with Drake's model directives.

    Equalities are exact constraints. What is not modelled is in `report`: nothing is left out silently.

    **Arguments:**

    - `source`: path of a file, the text of one in XML, a `mujoco.MjSpec` or a `mujoco.MjModel`.
    - `strict`: whether to refuse what would be approximated or ignored and changes the motion. Exact equalities and rigid
      stops count as used, where MuJoCo's are soft; what `contact` leaves out has to be left out by name, as by False.
    - `merge_fixed`: whether bodies without a joint become parts of those they are fixed to, or bodies on `Fixed` joints.
    - `free_base`: whether a base that the file fixes to the world moves freely, as a walking robot's.
    - `keyframe`: name or number of the keyframe to start at; by default the first, or else the reference posture.
    - `contact`: which inequalities of the file the robot keeps: none by default and by False, True for all, or a list of
      `"limits"` and `"friction"` of joints and tendons, `"ground"` for contact with what stands still, `"self"` for
      contact of moving bodies, and pairs of geoms or bodies by name, such as `("foot", "floor")`.
    - `restitution`: e of Newton's law of impact, from 0 to 1: one for all contacts and stops, or by geom, body, joint,
      tendon and pair of geoms or bodies, of which a pair counts before one, and of two the larger; by default as the
      file's `solref` implies: of a damping ratio below 1 that of a spring and a damper that do not pull (`"-1000 0"`: 1),
      else 0.
    - `friction`: mu of contacts likewise, by default the file's.
    - `start`: what becomes of one that is beyond limits or in contact: by `"nearest"` the robot starts at the nearest
      posture with all gaps >= 0, by the mass metric, and the report says what moves; by `"as it is"` at that of the file,
      for `simulate(..., contact="steps", start_tolerance=inf)`, whose first steps push it out.
    - `ctrl`: inputs of the actuators (nu,), a function of (t) or of (t, q, v) that returns them, or a `Tabulated`; by
      default those of the keyframe, or else zeros.
    - `mocap`: motions of mocap bodies, by name: where the body is [m] (3,), or that and its quaternion, scalar first
      (7,), constant or as a function of t. Such a body has a free joint, whose coordinates are among `qpos`, and 6 rows
      hold it there. Others stay where they start.
    - `floor`: whether to add a horizontal plane at z = 0, or its height [m], for files without one. Unless `contact` is
      given, the robot keeps its contact with that, as by `contact=["ground"]`.
    - `t1`: end of the problem [s].

    **Returns:** the `Robot`.

    **Raises:** `InputError` for what is no robot, with `strict` for what is not modelled, and where no posture near the
    start is clear, with the depth of each contact by its geoms; `MissingExtraError` without `mujoco`.
    """
    height = _floor_height(floor)
    if height is not None and contact is None:
        contact = ["ground"]
    wanted = read_contact_selection(contact, restitution, friction)
    one_of("start", start, get_args(Start))
    for option, value in (("strict", strict), ("merge_fixed", merge_fixed), ("free_base", free_base)):
        flag(option, value)
    motions = check_motions(mocap)
    read_in = read(source, free_base, wanted, tuple(motions), height)
    if not read_in.model.nv:
        raise InputError(f"{read_in.title} has no joint, so nothing can move.")
    key = _keyframe(read_in.model, keyframe)
    at = reference(read_in.model, key, merge_fixed)
    lengths, refused = tendon_lengths(at)
    inputs = _inputs(at, ctrl, key)
    of_geoms = (*geom_names(at), *at.names.bodies)
    wanted.restitution.require_known(
        "restitution", (*of_geoms, *at.names.joints, *at.names.tendons, *(x.name for x in read_in.closures))
    )
    wanted.friction.require_known("friction", of_geoms)
    passive = (_gravity(at), compensation(at), fluid(at), springs(at), damping(at))
    parts = [
        *passive,
        *(part(at, wanted) for part in (limits, frictions, contacts)),
        tendon_stops(at, wanted, lengths),
        tendons(at, lengths, refused),
        actuators(at, lengths, inputs, start_activations(at, key)),
        equalities(at, lengths),
        closures(at, read_in.closures, wanted),
        mocap_motions(at, motions),
    ]
    rotors, of_rotors = armature(at)
    of_parts = (x for part in parts for x in part.features)
    features = [
        *_list_joints_and_bodies(at),
        *of_rotors,
        *of_parts,
        *list_unmodelled(at, key),
        *read_in.features,
    ]
    mechanism = tree(
        bodies(at),
        joints(at),
        [x for part in parts for x in part.loads],
        loops=[x for part in parts for x in part.loops],
        constraints=list[Any](x for part in parts for x in part.constraints),
        armature=rotors,
        name=read_in.name,
        visuals=visuals(at, read_in.looks),
        contacts=[x for part in parts for x in part.contacts],
    )
    converted = conversion(at)
    problem, of_start = _make_problem(at, mechanism, converted, key, start, t1)
    geoms = {name: x for part in parts for name, x in part.geoms.items()}
    table, of_sensors = sensors(at, mechanism, lengths, geoms, read_in.closures)
    report = report_of(read_in.title, [*features, *of_sensors, *of_start], strict, problem)
    return Robot(problem, report, at.names, converted, inputs, table)


def _inputs(at: Reference, ctrl: Any, key: int | None) -> ActuatorInputs:
    given = np.zeros(at.model.nu) if key is None else np.array(at.model.key_ctrl[key])
    return inputs_of(ctrl, given, input_names(at))


def _floor_height(floor: Any) -> float | None:
    if isinstance(floor, bool):
        return 0.0 if floor else None
    return float(check_array("floor", floor, ()))


def _keyframe(model: Any, wanted: str | int | None) -> int | None:
    names = [model.key(i).name for i in range(model.nkey)]
    if wanted is None:
        return 0 if names else None
    if wanted in names:
        return names.index(wanted)
    if isinstance(wanted, int) and 0 <= wanted < len(names):
        return wanted
    raise unknown_name("keyframe", wanted, [name or str(i) for i, name in enumerate(names)])


def _gravity(at: Reference) -> FeatureParts:
    g = np.array(at.model.opt.gravity)
    if at.is_disabled("GRAVITY") or not g.any():
        return FeatureParts()
    return FeatureParts(
        loads=(Gravity(g),), features=(Feature("gravity", (f"{np.linalg.norm(g):g} m/s^2",)),)
    )


def _list_joints_and_bodies(at: Reference) -> list[Feature]:
    """Joints, and what they carry."""
    joints_of_kind = [
        Feature(f"{kind} joint", tuple(at.names.joints[i] for i in own))
        for kind, own in joints_by_kind(at).items()
    ]
    moving = [name for name in dict.fromkeys(at.carriers) if name != GROUND]
    fixed = [name for name, carrier in zip(at.names.bodies, at.carriers, strict=True) if name != carrier]
    joints_of_kind.append(Feature("body", tuple(moving)))
    return [*joints_of_kind, Feature("fixed body", tuple(fixed), why="part of what carries it")]


def _make_problem(
    at: Reference, mechanism: TreeSystem, converted: Conversion, key: int | None, start: Start, t1: float
) -> tuple[Problem, list[Feature]]:
    """The tree at its start, on its constraints and clear, and what is to be said of that."""
    model, points = at.model, frames(at)
    carriers = {name: carrier for name, (carrier, _) in points.items()}
    still = np.zeros(model.nv)
    qpos, qvel = (model.qpos0, still) if key is None else (model.key_qpos[key], model.key_qvel[key])
    q0, v0 = state_of(converted, qpos, qvel)
    z0 = start_activations(at, key) if mechanism.state_labels else np.zeros(0)
    q0, v0 = as_jax(q0), as_jax(np.concatenate([v0, z0.astype(v0.dtype)]))
    require_unique_motion(mechanism, q0)
    around = find_half_turned_welds(mechanism, q0)
    if around:  # nothing says which way round: any small turn does
        aside = 10 * np.sqrt(np.finfo(q0.dtype).eps) * np.cos(np.arange(q0.size, dtype=q0.dtype) ** 2)
        q0 = as_jax(with_unit_quaternions(mechanism, np.asarray(q0) + aside))
    far, moved = (), dict[str, float]()
    if mechanism.bilateral_constraints:
        of_file = np.asarray(q0)
        q0, v0, far = close_loops(without_contacts(mechanism), as_jax(0.0), q0, v0)
        q0 = as_jax(with_unit_quaternions(mechanism, np.asarray(q0)))  # pyright: ignore[reportArgumentType]
        moves = zip(mechanism.labels, np.abs(np.asarray(q0) - of_file), strict=True)
        moved = {label: x for label, x in moves if x > tolerance_of(q0.dtype)}
    mechanism, q0, v0, of_start = resolve_start_penetration(mechanism, q0, v0, start)
    why = f"by at most {max(moved.values(), default=0.0):.2g} rad or m"
    of_start.append(Feature("start moved onto the loops", tuple(moved), why=why, moves=False))
    why = "no posture near the file's closes them; they start closed in another, of several maybe"
    of_start.append(Feature("loop far from closed", far, "approximated", why))
    why = "closed one of the two ways round; MuJoCo holds it so, as its force vanishes there"
    of_start.append(Feature("weld half a turn apart at the start", around, "approximated", why))
    own = {
        name: as_jax(at.frame("body", i)[2])
        for i, name in enumerate(at.names.bodies)
        if name == at.carriers[i] != GROUND
    }
    places = Frames(mechanism, carriers, {name: as_jax(x) for name, (_, x) in points.items()}, own)
    return Problem(mechanism, q0, v0, 0.0, t1, places), of_start


# --- What a file has that is not modelled, so that nothing is left out silently


def _name_all(at: Reference, kind: str, count: str) -> tuple[str, ...]:
    """The names of all of a kind of object, of those that have one, else "<kind> <number>"."""
    return tuple(name_of(at.model, kind, i) or f"{kind} {i}" for i in range(getattr(at.model, count, 0)))


_PICTURES, _SHOWN, _CUSTOM = (
    ("ignored", "for pictures", False),
    ("used", "in pictures", False),
    ("ignored", "custom data", False),
)
_COUNTED: dict[str, tuple[str, tuple[Any, str, bool]]] = {
    "flex": ("nflex", ("ignored", "bodies are rigid", True)),
    "plugin": ("nplugin", ("ignored", "plugins are not run", True)),
    "camera": ("ncam", _PICTURES),
    "light": ("nlight", _PICTURES),
    "skin": ("nskin", _PICTURES),
    "texture": ("ntex", _PICTURES),
    "mesh": ("nmesh", _SHOWN),
    "hfield": ("nhfield", _SHOWN),
    "material": ("nmat", _SHOWN),
    "numeric": ("nnumeric", _CUSTOM),
    "text": ("ntext", _CUSTOM),
    "tuple": ("ntuple", _CUSTOM),
}
"""Kinds of objects by MuJoCo's field of how many there are, and what becomes of them: as in `Feature`."""


def list_unmodelled(at: Reference, keyframe: int | None) -> list[Feature]:
    """What is not modelled, but for limits, contacts, equalities, tendons and actuators, which tell of themselves."""
    model, option = at.model, at.model.opt
    mocap = tuple(at.names.bodies[i] for i in np.flatnonzero(np.array(model.body_mocapid) >= 0))
    flags = [x.removeprefix("mjDSBL_") for x in dir(mujoco().mjtDisableBit) if x.startswith("mjDSBL_")]
    off = tuple(flag.lower() for flag in flags if at.is_disabled(flag))
    integrator = mujoco().mjtIntegrator(option.integrator).name.removeprefix("mjINT_")
    steps = (f"{integrator}, {option.timestep:g} s",)
    own = () if keyframe is None else (at.names.keyframes[keyframe],)
    others = tuple(name for i, name in enumerate(at.names.keyframes) if i != keyframe)
    return [
        Feature("mocap body", mocap, "approximated", "it stays where it starts"),
        *(Feature(kind, _name_all(at, kind, count), *how) for kind, (count, how) in _COUNTED.items()),
        Feature("turned off by the file", off),
        Feature("integrator and time step", steps, "ignored", "simulate has its own", moves=False),
        Feature("keyframe", own, why="the start"),
        Feature("keyframe", others, "ignored", "load(..., keyframe=...) starts at another", moves=False),
    ]
