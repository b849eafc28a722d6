"""Links and joints in any order, as files have them: a tree for MuJoCo, and the joints that close its loops."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.transform import Rotation

from .._misc._errors import InputError
from ._closures import BUSHING, Axis, Closure
from ._reference import mujoco
from ._report import Feature, Row
from ._visuals import Look


class Description(NamedTuple):
    """A robot as it is described, before MuJoCo compiles it."""

    spec: Any  # a `mujoco.MjSpec`
    features: tuple[Feature, ...] = ()  # what the report says besides what follows from the spec
    looks: tuple[Look, ...] = ()  # visual elements that the spec has not
    closures: tuple[Closure, ...] = ()  # joints that close loops and are no equalities of the spec
    base: str = ""  # the root link of a URDF, of which the file does not say whether it moves


WORLD = "world"


class Shape(NamedTuple):
    """A shape that touches."""

    name: str
    kind: str  # of MuJoCo's geoms: `"box"`, `"sphere"`, `"cylinder"`, `"capsule"`, `"ellipsoid"`, `"plane"`, `"mesh"`
    size: Sequence[float] | np.ndarray  # MuJoCo's, halves of lengths [m]
    place: np.ndarray  # in the link (4, 4)
    # `mesh`: its file, or vertices (n, 3) and triangles (m, 3).
    mesh: Path | tuple[np.ndarray, np.ndarray] | None = None
    scale: Sequence[float] | np.ndarray = (1.0, 1.0, 1.0)  # of a mesh's file
    friction: float = 1.0  # its coefficient
    groups: int = 1  # bits, of which two shapes that touch have one in common
    density: float = 1000.0  # where the link's mass follows from it [kg/m^3]


class Link(NamedTuple):
    """A rigid body."""

    name: str
    place: np.ndarray  # in the world, where the file has it (4, 4)
    mass: float | None  # [kg]; None where mass and inertia follow from the shapes
    centre: np.ndarray  # the frame of its inertia, in the link (4, 4)
    inertia: np.ndarray  # about the centre [kg m^2] (3, 3)
    shapes: tuple[Shape, ...] = ()
    weightless: bool = False  # whether gravity does not act on it


class Joint(NamedTuple):
    """A joint between two links, or a link and the world."""

    name: str
    kind: str  # one of `CLOSING`, or `"planar"` or `"free"`
    parent: str
    child: str
    # `places`: its frame in the parent and in the child (4, 4), the same place in the world where all positions are
    # zero.
    places: tuple[np.ndarray, np.ndarray]
    axes: tuple[Axis, ...] = ()  # its freedoms from the parent outwards; of a gearbox, the axes of both gears
    ratio: float = 0.0  # of a screw, the advance a turn [m]; of a gearbox the child's rate by the parent's
    carrier: str = ""  # the link that carries a gearbox
    loop: bool = False  # whether it is to close a loop

    def reverse(self) -> "Joint":
        """The same joint with parent and child exchanged."""
        axes = tuple(x._replace(direction=-x.direction) for x in reversed(self.axes))
        return self._replace(parent=self.child, child=self.parent, places=self.places[::-1], axes=axes)


class Mimic(NamedTuple):
    """One joint's position follows another's: offset + factor times the leader's."""

    follower: str
    leader: str
    offset: float
    factor: float


def _fix_locked(joint: Joint, rows: list[Row]) -> Joint:
    """A joint of one axis without play, as files lock it: fixed."""
    if len(joint.axes) != 1 or tuple(joint.axes[0].limits) != (0.0, 0.0):
        return joint
    rows.append(("joint without play", joint.name, "used", "its limits are both 0: fixed"))
    return joint._replace(kind="fixed", axes=())


def place_of(xyz: Any = (0.0, 0.0, 0.0), turn: Rotation | None = None) -> np.ndarray:
    """A place and a rotation as a matrix (4, 4)."""
    matrix = np.eye(4)
    matrix[:3, 3] = xyz
    if turn is not None:
        matrix[:3, :3] = turn.as_matrix()
    return matrix


ENDLESS = 1e15  # files write 1e16, or the largest number of 32 bits, for no limit


def finite_limits(low: float, high: float) -> tuple[float, float]:
    """Limits, infinite where a file means none."""
    return (-np.inf if low <= -ENDLESS else low, np.inf if high >= ENDLESS else high)


def inverse(place: np.ndarray) -> np.ndarray:
    """The inverse of a place (4, 4)."""
    R = place[:3, :3].T
    matrix = np.eye(4)
    matrix[:3, :3], matrix[:3, 3] = R, -R @ place[:3, 3]
    return matrix


def pose_arguments(place: np.ndarray) -> dict[str, Any]:
    """A place as MuJoCo has it."""
    quat = np.zeros(4)
    mujoco().mju_mat2Quat(quat, place[:3, :3].ravel())
    return {"pos": place[:3, 3], "quat": quat}


def grow_tree(
    links: Mapping[str, Link], joints: Iterable[Joint], fixed: Iterable[str]
) -> tuple[list[Joint], list[Joint]]:
    """The joints of a tree from the world outwards, and those that close its loops.

    A link that no joint leads to moves freely.
    """
    own = [joint for joint in joints if joint.kind != "gearbox" and not joint.loop]
    reached, carrying, left = {WORLD, *fixed}, list[Joint](), list(own)
    children = {joint.child for joint in own}
    roots = sorted((name for name in links if name not in fixed), key=lambda name: name in children)
    while True:
        while True:
            forward = next((x for x in left if x.parent in reached and x.child not in reached), None)
            back = next((x for x in left if x.child in reached and x.parent not in reached), None)
            joint = forward or back
            if joint is None:
                break
            left.remove(joint)
            carrying.append(joint if joint is forward else joint.reverse())
            reached.add(carrying[-1].child)
        root = next((name for name in roots if name not in reached), None)
        if root is None:
            break
        carrying.append(Joint(root, "free", WORLD, root, (links[root].place, np.eye(4))))
        reached.add(root)
    tree = {joint.name for joint in carrying}
    return carrying, [joint for joint in joints if joint.name not in tree]


def _name_axes(joint: Joint) -> Joint:
    named = lambda i, x: x._replace(name=x.name or (f"{joint.name} {i + 1}" if i else joint.name))
    return joint._replace(axes=tuple(named(i, x) for i, x in enumerate(joint.axes)))


def _add_joint(body: Any, joint: Joint, spec: Any) -> None:
    kinds, place = mujoco().mjtJoint, joint.places[1]
    if joint.kind == "free":
        body.add_freejoint(name=joint.name)
    elif joint.kind == "ball":
        added = body.add_joint(name=joint.name, type=kinds.mjJNT_BALL, pos=place[:3, 3])
        for axis in joint.axes[:1]:
            _set_first(added, "damping", axis.damping)
    elif joint.kind != "fixed":
        for axis in joint.axes:
            added = body.add_joint(
                name=axis.name,
                type=kinds.mjJNT_SLIDE if axis.slides else kinds.mjJNT_HINGE,
                pos=place[:3, 3],
                axis=place[:3, :3] @ axis.direction,
                springref=axis.rest,
                frictionloss=axis.friction,
                armature=axis.armature,
            )
            _set_first(added, "damping", axis.damping)
            _set_first(added, "stiffness", axis.stiffness)
            if np.isfinite(axis.limits).any():
                added.limited, added.range = (
                    mujoco().mjtLimited.mjLIMITED_TRUE,
                    np.clip(axis.limits, -1e10, 1e10),
                )
            if np.isfinite(axis.effort):
                added.actfrclimited = mujoco().mjtLimited.mjLIMITED_TRUE
                added.actfrcrange = [-axis.effort, axis.effort]
    if joint.kind == "screw":
        turn, slide = sorted(joint.axes, key=lambda x: x.slides)
        tie(spec, Mimic(slide.name, turn.name, 0.0, joint.ratio / (2.0 * np.pi)))


def _set_first(element: Any, field: str, value: float) -> None:
    """A coefficient, of which MuJoCo 4 has those of higher powers beside it."""
    array = np.atleast_1d(np.array(getattr(element, field)))
    setattr(element, field, [value, *array[1:]] if array.size > 1 else value)


def tie(spec: Any, mimic: Mimic) -> None:
    """A joint that follows another, as an equality."""
    added = spec.add_equality(
        name1=mimic.follower,
        name2=mimic.leader,
        objtype=mujoco().mjtObj.mjOBJ_JOINT,
        type=mujoco().mjtEq.mjEQ_JOINT,
    )
    added.data[:2] = mimic.offset, mimic.factor


def add_start(spec: Any, positions: Mapping[str, Any]) -> None:
    """A keyframe where joints are at given positions, by their names."""
    if not positions:
        return
    model = spec.copy().compile()
    qpos = np.array(model.qpos0)
    for name, x in positions.items():
        joint, given = model.joint(name), np.atleast_1d(np.asarray(x, float))
        count = {0: 7, 1: 4}.get(int(joint.type[0]), 1)
        if given.shape != (count,):
            raise InputError(f"the position of joint '{name}' must have {count} numbers, got {x!r}.")
        qpos[joint.qposadr[0] :][:count] = given
    spec.add_key(name="start", qpos=qpos)


def add_closure(spec: Any, joint: Joint) -> Closure:
    """Sites where the ends of a joint are, and the joint between them."""
    sites = []
    for body, place, end in zip((joint.parent, joint.child), joint.places, ("parent", "child"), strict=True):
        sites.append(f"{joint.name} {end}")
        spec.body(body).add_site(name=sites[-1], **pose_arguments(place))
    ends = (sites[0], sites[1])
    return Closure(joint.name, joint.kind, ends, joint.axes, joint.ratio, joint.carrier)


BUSHING_LAWS = tuple(f"{x}_{y}" for x in ("torque", "force") for y in ("stiffness", "damping"))
"""What a linear bushing has on three axes each."""


def make_bushing(
    name: str, ends: tuple[str, str], places: tuple[np.ndarray, np.ndarray], laws: Mapping[str, np.ndarray]
) -> Joint:
    """A linear bushing of Drake between frames of two links, by `BUSHING_LAWS`."""
    axes = [
        Axis(
            axis, what == "force", damping=laws[f"{what}_damping"][k], stiffness=laws[f"{what}_stiffness"][k]
        )
        for what in ("torque", "force")
        for k, axis in enumerate(np.eye(3))
    ]
    return Joint(name, BUSHING, *ends, places, tuple(axes), loop=True)


def add_shape(spec: Any, body: Any, shape: Shape, weighed: bool) -> None:
    """A shape as a geom of a body, and its mesh."""
    geom = body.add_geom(
        name=shape.name,
        type=getattr(mujoco().mjtGeom, f"mjGEOM_{shape.kind.upper()}"),
        contype=shape.groups,
        conaffinity=shape.groups,
        density=shape.density if weighed else 0.0,
        **pose_arguments(shape.place),
    )
    geom.friction[0] = shape.friction
    if shape.kind != "mesh":
        geom.size = [*shape.size, 0.0, 0.0, 0.0][:3]
        return
    scale, shell = np.asarray(shape.scale, float), mujoco().mjtMeshInertia.mjMESH_INERTIA_SHELL
    same = (x for x in spec.meshes if x.file == str(shape.mesh) and (x.scale == scale).all())
    if not weighed and (known := next((x for x in same if x.inertia == shell), None)) is not None:
        geom.meshname = known.name
        return
    name = shape.mesh.stem if isinstance(shape.mesh, Path) else f"mesh of {shape.name}"
    name = name if spec.mesh(name) is None else f"{name} {len(spec.meshes)}"
    mesh = spec.add_mesh(name=name, scale=scale)
    geom.meshname = mesh.name
    if isinstance(shape.mesh, tuple):
        mesh.uservert, mesh.userface = shape.mesh[0].ravel(), shape.mesh[1].ravel()
    else:
        mesh.file = str(shape.mesh)
    if not weighed:  # it may be flat, or inside out
        mesh.inertia = shell


_CLOSE = 1e-4  # [m], [rad]: files have places in numbers of 32 bits


def _start_of(joint: Joint, place: np.ndarray, rows: list[Row]) -> dict[str, Any]:
    """The positions of a joint by which its child is where the file has it, of its frame in the parent's (4, 4)."""
    if np.abs(place - np.eye(4)).max() < 1e-9 or joint.kind == "free":
        return {}
    turn, positions, left = Rotation.from_matrix(place[:3, :3]), dict[str, Any](), place[:3, 3].copy()
    if joint.kind == "ball":
        R = joint.places[1][:3, :3]
        positions[joint.name] = Rotation.from_matrix(R @ place[:3, :3] @ R.T).as_quat(scalar_first=True)
        turn = Rotation.identity()
    for axis in joint.axes:
        if axis.slides:
            positions[axis.name] = float(axis.direction @ left)
            left -= positions[axis.name] * axis.direction
        else:
            vector = turn.as_rotvec()
            positions[axis.name] = float(axis.direction @ vector)
            turn = Rotation.from_rotvec(-positions[axis.name] * axis.direction) * turn
    if max(turn.magnitude(), np.abs(left).max()) > _CLOSE:
        rows.append(
            ("place of a body", joint.child, "approximated", f"it starts where joint '{joint.name}' has it")
        )
    return positions


def specify(
    name: str,
    links: Sequence[Link],
    joints: Sequence[Joint],
    mimics: Iterable[Mimic] = (),
    fixed: Iterable[str] = (),
    spec: Any = None,
) -> tuple[Any, list[Closure], list[Row]]:
    """Links and joints as a `MjSpec`, by default a new one, with the joints that close its loops, and what is to be said
    of these."""
    by_name, fixed = {link.name: link for link in links}, tuple(fixed)
    still = by_name.pop(WORLD, None)
    for joint in joints:
        for end in (joint.parent, joint.child):
            if end != WORLD and end not in by_name:
                raise InputError(f"joint '{joint.name}' joins '{end}', and there is no such link.")
        if joint.parent == joint.child:
            raise InputError(f"joint '{joint.name}' joins '{joint.parent}' to itself.")
    spec = mujoco().MjSpec() if spec is None else spec
    spec.modelname, spec.compiler.degree = name, False
    starts, rows = dict[str, Any](), list[Row]()
    tree, closing = grow_tree(by_name, [_name_axes(_fix_locked(x, rows)) for x in joints], fixed)
    bodies, unmoved = {WORLD: spec.worldbody}, {WORLD}
    for shape in () if still is None else still.shapes:
        add_shape(spec, spec.worldbody, shape, False)
    welded = [Joint(f"{x} fixed", "fixed", WORLD, x, (by_name[x].place, np.eye(4))) for x in fixed]
    for joint in (*welded, *tree):
        link = by_name[joint.child]
        place = joint.places[0] @ inverse(joint.places[1])
        body = bodies[joint.parent].add_body(name=link.name, **pose_arguments(place))
        bodies[link.name] = body
        _add_joint(body, joint, spec)
        parent = np.eye(4) if joint.parent == WORLD else by_name[joint.parent].place
        starts |= _start_of(joint, inverse(parent @ joint.places[0]) @ link.place @ joint.places[1], rows)
        if link.mass is not None:
            body.explicitinertial, body.mass = True, link.mass
            body.ipos = link.centre[:3, 3]
            full = link.centre[:3, :3] @ link.inertia @ link.centre[:3, :3].T
            body.fullinertia = [full[0, 0], full[1, 1], full[2, 2], full[0, 1], full[0, 2], full[1, 2]]
        body.gravcomp = 1.0 if link.weightless else 0.0
        if joint.kind == "fixed" and joint.parent in unmoved:
            unmoved.add(link.name)
        for shape in link.shapes:
            if shape.kind == "plane" and link.name not in unmoved:
                rows.append(
                    ("plane that moves", shape.name, "ignored", "only planes that stand still are offered")
                )
                continue
            add_shape(spec, body, shape, link.mass is None)
    closures = list[Closure]()
    for joint in closing:
        if joint.kind in ("planar", "free"):
            raise InputError(f"joint '{joint.name}' is {joint.kind}, and closes a loop: such a joint cannot.")
        closures.append(add_closure(spec, joint))
    known = {x.name for x in spec.joints}
    for mimic in mimics:
        lost = [x for x in (mimic.follower, mimic.leader) if x and x not in known]
        if lost:
            rows.append(("mimic", mimic.follower, "ignored", f"'{lost[0]}' is no joint of the tree"))
            continue
        tie(spec, mimic)
    add_start(spec, starts)
    return spec, closures, rows
