"""SDF, as Gazebo has it, versions 1.4 to 1.12: frames, nested and included models, joints of all kinds, loops.

Specification: http://sdformat.org/spec and the proposals on pose semantics and on model composition there.
"""

import functools
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from .._misc._errors import InputError, require_known, unknown_name
from ._contact_selection import ContactSelection
from ._files import find_mesh, is_ascii, local_name, numbers_in, parse_xml
from ._graph import (
    BUSHING_LAWS,
    ENDLESS,
    WORLD,
    Axis,
    Description,
    Joint,
    Link,
    Mimic,
    Shape,
    finite_limits,
    inverse,
    make_bushing,
    place_of,
    pose_arguments,
    specify,
)
from ._report import Row, features
from ._visuals import Look, mesh_shape, read_colour, visual_shape

_KINDS = {"continuous": "revolute", "revolute2": "universal"}
_FREEDOMS = {"revolute": 1, "prismatic": 1, "universal": 2, "gearbox": 2, "screw": 1, "fixed": 0, "ball": 0}
# Elements without a part in what is read, by the words of the report and whether they change the motion.
_OTHERS = {
    "plugin": ("plugins are not run", True),
    "sensor": ("not read", False),
    "light": ("for pictures", False),
    "gripper": ("not read", True),
    "actor": ("not read", True),
    "population": ("not read", True),
    "wind": ("not read", True),
    "atmosphere": ("not read", False),
    "battery": ("not read", False),
    "projector": ("for pictures", False),
    "particle_emitter": ("for pictures", False),
    "audio_source": ("not read", False),
    "enable_wind": ("not read", True),
    "velocity_decay": ("not read", True),
    "fluid_added_mass": ("not read", True),
    "state": ("it starts where the models are", True),
    "physics": ("simulate has its own steps", False),
}


def _text(element: ET.Element | None, path: str, default: str = "") -> str:
    return default if element is None else (element.findtext(path) or default).strip()


def _number(element: ET.Element | None, path: str, default: float, what: str) -> float:
    return float(numbers_in(_text(element, path, str(default)), 1, f"{what}: <{path}>")[0])


def _flag(element: ET.Element | None, path: str) -> bool:
    return _text(element, path).lower() in ("1", "true")


def _pose(element: ET.Element | None, what: str) -> np.ndarray:
    text = "" if element is None or not element.text else element.text
    if element is None or not text.strip():
        return np.eye(4)
    if element.get("rotation_format") == "quat_xyzw":
        numbers = numbers_in(text, 7, what)
        return place_of(numbers[:3], Rotation.from_quat(numbers[3:]))
    numbers = numbers_in(text, 6, what)
    degrees = element.get("degrees", "").lower() in ("1", "true")
    return place_of(numbers[:3], Rotation.from_euler("xyz", numbers[3:], degrees=degrees))


class Model:
    """A model, or a world: a scope of names, with a frame of its own.

    - `element`: the `<model>` or `<world>`.
    - `prefix`: of its names in the robot.
    - `above`: the scope it is in.
    - `folder`: of its file.
    - `version`: of its file.
    - `given`: the elements that an `<include>` sets in place of the model's own.
    """

    def __init__(
        self,
        element: ET.Element,
        prefix: str,
        above: "Model | None",
        folder: Path,
        version: tuple[int, ...],
        given: ET.Element | None = None,
    ):
        self.element, self.prefix, self.above = element, prefix, above
        self.folder, self.version, self.given = folder, version, given
        self.name = _text(given, "name") or element.get("name") or element.tag
        self.what = f"{element.tag} '{self.name}'"
        self.static = any(_flag(x, "static") for x in (element, given)) or bool(above and above.static)
        self.inside, self.named = dict[str, Model](), dict[str, ET.Element]()
        self._pending = list[str]()
        merged = [x for x in element.findall("include") if x.get("merge", "").lower() in ("1", "true")]
        for include in merged:
            self._merge(include)
        for child in element:
            if child.tag in ("link", "joint", "frame"):
                self._add(child)
            elif child.tag == "model":
                self._nest(Model(child, self._prefix_of(child.get("name", "")), self, folder, version))
            elif child.tag == "include" and child not in merged:
                self._nest(_include(child, self))

    def _prefix_of(self, name: str) -> str:
        return f"{self.prefix}{name}::"

    def _add(self, child: ET.Element) -> None:
        name = child.get("name")
        if not name:
            raise InputError(f"{self.what} has a <{child.tag}> without a name.")
        if name in self.named:
            raise InputError(
                f"{self.what} has two elements '{name}': each link, joint and frame needs a name of its own."
            )
        self.named[name] = child

    def _nest(self, model: "Model") -> None:
        if model.name in self.inside or model.name in self.named:
            raise InputError(
                f"{self.what} has two elements '{model.name}': each model needs a name of its own."
            )
        self.inside[model.name] = model

    def _merge(self, include: ET.Element) -> None:
        """Puts what an included model has into this one, in a frame of its own."""
        model = _include(include, self)
        frame = f"_merged__{model.name}__model__"
        placed = ET.Element("frame", name=frame)
        pose = model.own("pose")
        if pose is not None:
            placed.append(pose)
        self.element.append(placed)
        for child in model.element:
            if child.tag in ("link", "frame", "joint", "model", "include"):
                if child.tag != "joint" and child.get("attached_to") is None:
                    pose = child.find("pose")
                    pose = ET.SubElement(child, "pose") if pose is None else pose
                    if not pose.get("relative_to"):
                        pose.set("relative_to", frame)
                for uri in child.iter("uri"):  # they count from the folder of their own file
                    if "://" not in str(uri.text):
                        uri.text = str(model.folder / str(uri.text).strip())
                for x in child.iter():
                    for key in ("relative_to", "attached_to", "expressed_in"):
                        if x.get(key) == "__model__":
                            x.set(key, frame)
                self.element.append(child)

    def own(self, tag: str) -> ET.Element | None:
        """An element, that of the include first."""
        element = None if self.given is None else self.given.find(tag)
        return self.element.find(tag) if element is None else element

    def scope_of(self, name: str) -> "tuple[Model, str]":
        """The scope of a name, and the name there, such as `arm::hand`."""
        first, _, rest = name.partition("::")
        if not rest:
            return self, name
        require_known(f"model in {self.what}:", self.inside, first)
        return self.inside[first].scope_of(rest)

    def place(self, name: str) -> np.ndarray:
        """Where a frame is in this scope's own frame (4, 4)."""
        if name in ("", "__model__", "__root__") or (name == WORLD and name not in self.named):
            return np.eye(4) if name != WORLD else inverse(self.in_world)
        first, _, rest = name.partition("::")
        if rest or first in self.inside:
            require_known(f"model in {self.what}:", self.inside, first)
            return self.inside[first].in_above @ self.inside[first].place(rest)
        require_known(f"frame in {self.what}:", [*self.named, *self.inside], name)
        if name in self._pending:
            raise InputError(
                f"{self.what}: the poses of {', '.join(map(repr, self._pending))} refer to each other in a circle."
            )
        self._pending.append(name)
        element = self.named[name]
        base = {"joint": _text(element, "child"), "frame": element.get("attached_to", "")}.get(
            element.tag, ""
        )
        placed = self.place_in(element, base)
        self._pending.pop()
        return placed

    def place_in(self, element: ET.Element, base: str) -> np.ndarray:
        """Where an element's `<pose>` has it in this scope's frame; by default it counts from a frame `base`."""
        pose = element.find("pose")
        relative = (pose.get("relative_to") or "") if pose is not None and self.version >= (1, 7) else ""
        return self.place(relative or base) @ _pose(
            pose, f"the pose of {element.tag} '{element.get('name')}'"
        )

    @property
    def in_above(self) -> np.ndarray:
        """This scope's frame in that of the scope it is in."""
        pose = self.own("pose")
        relative = (pose.get("relative_to") or "") if pose is not None else ""
        placed = _pose(pose, f"the pose of {self.what}")
        if self.above is not None and relative:
            placed = self.above.place(relative) @ placed
        frame = self.element.get("placement_frame", "")
        frame = _text(self.given, "placement_frame") or frame
        return placed @ inverse(self.place(frame)) if frame else placed

    @functools.cached_property
    def in_world(self) -> np.ndarray:
        """This scope's frame in the world."""
        return self.in_above if self.above is None else self.above.in_world @ self.in_above

    def link_of(self, name: str) -> tuple[str, np.ndarray]:
        """The link that a frame is fixed to, by its name in the robot, and where that is in the world (4, 4)."""
        scope, own = self.scope_of(name)
        if own == WORLD and own not in scope.named:
            return WORLD, np.eye(4)
        if own in scope.inside or own == "__model__":
            model = scope.inside.get(own, scope)
            return model.link_of(model.canonical)
        require_known(f"link or frame in {scope.what}:", [*scope.named, *scope.inside], own)
        element = scope.named[own]
        if element.tag == "link":
            return scope.prefix + own, scope.in_world @ scope.place(own)
        base = element.get("attached_to") if element.tag == "frame" else _text(element, "child")
        scope.place(own)  # which says where frames refer to each other in a circle
        return scope.link_of(base or (WORLD if scope.element.tag == "world" else scope.canonical))

    @property
    def canonical(self) -> str:
        """The link that the model's frame is fixed to."""
        given = self.element.get("canonical_link")
        own = [name for name, x in self.named.items() if x.tag == "link"]
        nested = [f"{name}::{model.canonical}" for name, model in self.inside.items()]
        if not (given or own or nested):
            raise InputError(f"{self.what} has no link.")
        return given or [*own, *nested][0]

    def all(self) -> "Iterator[Model]":
        """This scope and those in it."""
        yield self
        for model in self.inside.values():
            yield from model.all()

    def of(self, tag: str) -> list[ET.Element]:
        """The named elements of a kind."""
        return [x for x in self.named.values() if x.tag == tag]


def _include(include: ET.Element, above: Model) -> Model:
    """The model that an `<include>` means."""
    uri = _text(include, "uri")
    file = find_model(uri, above.folder)
    if file is None:
        raise InputError(
            f"{above.what} includes '{uri}', and there is no such file: model://x is looked for in the folders above."
        )
    root = parse_xml(file.read_bytes(), str(file))
    models = root.findall("model")
    if root.tag != "sdf" or len(models) != 1:
        raise InputError(f"{above.what} includes '{uri}', which must be an SDF file with one <model>.")
    name = _text(include, "name") or models[0].get("name") or "model"
    merged = include.get("merge", "").lower() in ("1", "true")
    prefix = above.prefix if merged else above._prefix_of(name)
    return Model(models[0], prefix, above, file.parent, version_of(root), include)


def find_model(uri: str, folder: Path) -> Path | None:
    """The file of an included model: itself, or of its folder what `model.config` names for the newest version."""
    scheme, _, rest = uri.rpartition("://")
    above = [folder, *folder.parents] if scheme in ("model", "package") else [folder]
    for start in above:
        place = start / rest
        if place.is_file():
            return place
        if (place / "model.config").is_file():
            named = parse_xml((place / "model.config").read_bytes(), str(place / "model.config")).findall(
                "sdf"
            )
            newest = max(named, key=lambda x: _version(x.get("version", "1.0")), default=None)
            if newest is not None and (place / str(newest.text).strip()).is_file():
                return place / str(newest.text).strip()
        if (place / "model.sdf").is_file():
            return place / "model.sdf"
    return None


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(x) if x.isdigit() else 0 for x in text.split("."))


def version_of(root: ET.Element) -> tuple[int, ...]:
    """The version of an SDF file."""
    return _version(root.get("version", "1.12"))


# --- links


def _link(element: ET.Element, scope: Model, folder: Path, touching: bool, rows: list[Row]) -> Link:
    name, what = scope.prefix + str(element.get("name")), f"link '{element.get('name')}'"
    inertial = element.find("inertial")
    if inertial is not None and inertial.get("auto", "").lower() in ("1", "true"):
        mass, density = None, _number(inertial, "density", 1000.0, what)
    else:
        mass, density = _number(inertial, "mass", 1.0, what), 1000.0
        if inertial is None:
            rows.append(("link without inertial", name, "used", "SDF gives it 1 kg and 1 kg m^2"))
    xx, yy, zz = (_number(inertial, f"inertia/{x}", 1.0, what) for x in ("ixx", "iyy", "izz"))
    xy, xz, yz = (_number(inertial, f"inertia/{x}", 0.0, what) for x in ("ixy", "ixz", "iyz"))
    centre = np.eye(4) if inertial is None else _place_in_link(inertial, scope, element)
    shapes = list[Shape]()
    for i, collision in enumerate(element.findall("collision")):
        shape = _shape(collision, scope, element, f"{name} {collision.get('name', i)}", folder, density)
        if isinstance(shape, str):
            rows.append(
                (f"collision of a {shape}", name, "ignored", "such a shape, or its file, is not read")
            )
        elif touching or mass is None or shape.kind != "mesh":
            shapes.append(shape)
            rows += _surface(collision, shape.name)
    if _text(element, "kinematic").lower() in ("1", "true"):
        rows.append(("kinematic link", name, "ignored", "it moves as others do"))
    inertia = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    placed = scope.in_world @ scope.place(str(element.get("name")))
    weightless = element.find("gravity") is not None and not _flag(element, "gravity")
    return Link(name, placed, mass, centre, inertia, tuple(shapes), weightless)


def _place_in_link(element: ET.Element, scope: Model, link: ET.Element) -> np.ndarray:
    name = str(link.get("name"))
    return inverse(scope.place(name)) @ scope.place_in(element, name)


def _geometry(
    geometry: ET.Element | None, what: str, find: Callable[[str], Path | None]
) -> tuple[str, list[float], Path | None, list[float]] | str:
    """Kind, MuJoCo's size, file and scale of a `<geometry>`; the kind alone of one that is not read."""
    kind = next((x.tag for x in geometry if x.tag != "empty"), "empty") if geometry is not None else "empty"
    own = None if geometry is None else geometry.find(kind)
    number = lambda path, default: _number(own, path, default, f"{what}: <{kind}>")
    vector = lambda path, default, n=3: numbers_in(_text(own, path, default), n, f"{what}: <{path}>").tolist()
    if kind == "box":
        return kind, [0.5 * x for x in vector("size", "1 1 1")], None, []
    if kind == "sphere":
        return kind, [number("radius", 1.0)], None, []
    if kind in ("cylinder", "capsule"):
        return kind, [number("radius", 0.5), 0.5 * number("length", 1.0)], None, []
    if kind == "ellipsoid":
        return kind, vector("radii", "1 1 1"), None, []
    if kind == "plane":
        return kind, [0.0, 0.0, 1.0], None, vector("normal", "0 0 1")
    if kind == "mesh":
        file = find(_text(own, "uri"))
        return kind if file is None else (kind, [], file, vector("scale", "1 1 1"))
    return kind


def _shape(
    collision: ET.Element, scope: Model, link: ET.Element, name: str, folder: Path, density: float
) -> Shape | str:
    what = f"collision '{name}'"
    geometry = _geometry(collision.find("geometry"), what, lambda uri: find_mesh(uri, folder))
    if isinstance(geometry, str):
        return geometry
    kind, size, file, further = geometry
    if file is not None and is_ascii(file):
        return "mesh"
    placed = _place_in_link(collision, scope, link)
    if kind == "plane":
        normal = np.array(further)
        placed = placed @ place_of(turn=Rotation.align_vectors([normal], [[0.0, 0.0, 1.0]])[0])
    if kind not in ("mesh", "plane") and not min(size) > 0.0:
        return f"{kind} without size"
    surface = collision.find("surface")
    mu = _number(surface, "friction/ode/mu", 1.0, what)
    mask = _text(surface, "contact/collide_bitmask", "1")
    groups = int(mask, 0) & 0x7FFFFFFF if mask.lower().startswith("0x") or mask.isdigit() else 1
    scale = further if kind == "mesh" else (1.0, 1.0, 1.0)
    own = _number(collision, "density", density, what)
    return Shape(name, kind, size, placed, file, scale, min(mu, 1e6), 1 if groups == 0xFFFF else groups, own)


def _surface(collision: ET.Element, name: str) -> Iterator[Row]:
    """What a surface has that is not read."""
    surface = collision.find("surface")
    if surface is None:
        return
    if _number(surface, "bounce/restitution_coefficient", 0.0, name) > 0:
        yield "restitution of a surface", name, "ignored", "load(..., restitution=...) sets it"
    mu, mu2 = (_number(surface, f"friction/ode/{x}", 1.0, name) for x in ("mu", "mu2"))
    if mu != mu2:
        yield "friction of two directions", name, "approximated", "that of the first counts for both"
    if surface.find("soft_contact") is not None:
        yield "soft contact", name, "ignored", "contacts are rigid"


def _looks(element: ET.Element, scope: Model, folder: Path, rows: list[Row]) -> Iterator[Look]:
    name = scope.prefix + str(element.get("name"))
    for visual in element.findall("visual"):
        geometry = _geometry(
            visual.find("geometry"), f"visual '{visual.get('name')}'", lambda uri: find_mesh(uri, folder)
        )
        if isinstance(geometry, str) or geometry[0] == "plane":
            rows.append(
                (
                    "visual geometry",
                    name,
                    "off",
                    "a plane, or its mesh is not there, or of a kind that is not read",
                )
            )
            continue
        kind, size, file, scale = geometry
        shape = visual_shape(kind, np.array(size)) if file is None else mesh_shape(file, np.array(scale))
        if shape is None:
            rows.append(("visual geometry", name, "off", "its mesh cannot be read"))
            continue
        placed = _place_in_link(visual, scope, element)
        words = _text(visual, "material/diffuse") or _text(visual, "material/ambient")
        colour = read_colour(words, f"a visual of link '{name}'") if words else None
        yield Look(name, shape, placed[:3, 3], placed[:3, :3], colour)
        rows.append(("visual geometry", name, "still", "in pictures"))


# --- joints


def _axis(element: ET.Element, tag: str, scope: Model, slides: bool, endless: bool, rows: list[Row]) -> Axis:
    own, name = element.find(tag), str(element.get("name"))
    what = f"joint '{name}'"
    if own is None:
        raise InputError(f"{what} of type '{element.get('type')}' has no <{tag}>.")
    direction = numbers_in(_text(own, "xyz", "0 0 1"), 3, f"{what}: <xyz>")
    size = float(np.linalg.norm(direction))
    if size == 0.0:
        raise InputError(f"{what}: the axis must not be the zero vector.")
    xyz = own.find("xyz")
    frame = "" if xyz is None else xyz.get("expressed_in", "")
    if not frame and (
        scope.version <= (1, 4)
        if own.find("use_parent_model_frame") is None
        else _flag(own, "use_parent_model_frame")
    ):
        frame = "__model__"
    if frame:
        relative = inverse(scope.place(name)) @ scope.place(frame)
        direction = relative[:3, :3] @ direction
    number = lambda path, default: _number(own, path, default, what)
    limits = finite_limits(number("limit/lower", -np.inf), number("limit/upper", np.inf))
    if limits[0] > limits[1]:
        raise InputError(f"{what}: its lower limit {limits[0]:g} is above its upper limit {limits[1]:g}.")
    effort = number("limit/effort", np.inf)
    speed = number("limit/velocity", np.inf)
    if 0 <= speed < ENDLESS:
        rows.append(("velocity limit", scope.prefix + name, "ignored", "speeds have no limits"))
    return Axis(
        direction / size,
        slides,
        (-np.inf, np.inf) if endless else limits,
        number("dynamics/damping", 0.0),
        number("dynamics/spring_stiffness", 0.0),
        number("dynamics/spring_reference", 0.0),
        number("dynamics/friction", 0.0),
        effort if 0 < effort < ENDLESS else np.inf,
    )


def joint_of(element: ET.Element, scope: Model, rows: list[Row]) -> Joint:
    """A `<joint>`."""
    name, given = str(element.get("name")), str(element.get("type"))
    kind, what = _KINDS.get(given, given), f"joint '{name}' in {scope.what}"
    if kind not in _FREEDOMS:
        raise unknown_name(f"type of {what}:", given, [*_KINDS, *_FREEDOMS])
    ends = [_text(element, x) for x in ("parent", "child")]
    if not all(ends) or ends[1] == WORLD:
        raise InputError(f"{what} needs a <parent> and a <child>, and the world is no child.")
    (parent, parent_place), (child, child_place) = (scope.link_of(x) for x in ends)
    axes = [
        _axis(element, tag, scope, kind == "prismatic", given == "continuous", rows)
        for tag in ("axis", "axis2")[: _FREEDOMS[kind]]
    ]
    ratio, carrier = 0.0, ""
    if kind == "screw":
        ratio = _number(element, "screw_thread_pitch", 1.0, what)
        if element.find("thread_pitch") is not None and element.find("screw_thread_pitch") is None:
            ratio = (
                -2.0 * np.pi / (_number(element, "thread_pitch", 1.0, what) or np.inf)
            )  # radians a metre, left-handed
        if ratio == 0.0:
            raise InputError(f"{what}: the pitch of its thread must not be 0.")
        axes.append(Axis(axes[0].direction, True))
    if kind == "gearbox":
        ratio = -_number(element, "gearbox_ratio", 1.0, what)
        carrier = scope.link_of(_text(element, "gearbox_reference_body"))[0]
    here = scope.in_world @ scope.place(name)
    places = inverse(parent_place) @ here, inverse(child_place) @ here
    loop = _flag(element, "physics/simbody/must_be_loop_joint")
    return Joint(scope.prefix + name, kind, parent, child, places, tuple(axes), ratio, carrier, loop)


def _joints_of_drake(scope: Model) -> Iterator[Joint]:
    """`<drake:joint type="planar">`, by which a frame of the child moves in the plane of one of the parent, and
    `<drake:linear_bushing_rpy>`."""
    for k, element in enumerate(filter(_kind_of_drake, scope.element)):
        kind = _kind_of_drake(element)
        name, own = str(element.get("name")), {local_name(x.tag): (x.text or "").strip() for x in element}
        what, tags = f"<drake:{kind}> in {scope.what}", _ENDS_OF_DRAKE[kind]
        ends = [own.get(tag) or "" for tag in tags]
        if not all(ends) or (kind == "joint" and ends[1] == WORLD):
            raise InputError(
                f"{what} needs <drake:{tags[0]}> and <drake:{tags[1]}>, and the world is no child."
            )
        (parent, first), (child, second) = (scope.link_of(x) for x in ends)
        here = [scope.in_world @ scope.place(x) for x in ends]
        places = inverse(first) @ here[0], inverse(second) @ here[1]
        vector = lambda tag, own=own, what=what: numbers_in(
            own.get(tag) or "0 0 0", 3, f"{what}: <drake:{tag}>"
        )
        if kind != "joint":
            laws = {x: vector(f"bushing_{x}") for x in BUSHING_LAWS}
            yield make_bushing(f"{scope.prefix}bushing {k}", (parent, child), places, laws)
            continue
        c = vector("damping")
        axes = [Axis(axis, k < 2, damping=c[k]) for k, axis in enumerate(np.eye(3))]
        yield Joint(scope.prefix + name, "planar", parent, child, places, tuple(axes))


_ENDS_OF_DRAKE = {
    "joint": ("parent", "child"),
    "linear_bushing_rpy": ("bushing_frameA", "bushing_frameC"),
}


def _kind_of_drake(element: ET.Element) -> str:
    """The word of an element of Drake that is read, else an empty one."""
    tag = local_name(element.tag) if "}" in element.tag else ""
    return tag if tag in _ENDS_OF_DRAKE and (tag != "joint" or element.get("type") == "planar") else ""


def _mimics(element: ET.Element, scope: Model) -> Iterator[Mimic]:
    name = scope.prefix + str(element.get("name"))
    own = {"axis": name, "axis2": f"{name} 2"}
    for tag, follower in own.items():
        mimic = element.find(f"{tag}/mimic")
        if mimic is None:
            continue
        leader = scope.prefix + str(mimic.get("joint")) + (" 2" if mimic.get("axis") == "axis2" else "")
        what = f"the mimic of joint '{name}'"
        factor, start = _number(mimic, "multiplier", 1.0, what), _number(mimic, "reference", 0.0, what)
        yield Mimic(follower, leader, _number(mimic, "offset", 0.0, what) - factor * start, factor)


# --- a file


def read_sdf(root: ET.Element, folder: Path, wanted: ContactSelection) -> Description:
    """An SDF file."""
    version = version_of(root)
    tops = [x for x in root if x.tag in ("world", "model")]
    if len(tops) != 1:
        raise InputError(f"an SDF file must have one <world> or one <model>, and this one has {len(tops)}.")
    top = Model(tops[0], "", None, folder, version)
    if top.element.tag == "world" and len(top.inside) == 1 and not top.named:
        for model in next(iter(top.inside.values())).all():  # a world's only model needs no prefix
            model.prefix = model.prefix.partition("::")[2]
    rows, links, joints, mimics, looks = list[Row](), list[Link](), list[Joint](), list[Mimic](), list[Look]()
    fixed, apart = list[str](), list[list[str]]()
    for scope in top.all():
        own = [_link(x, scope, scope.folder, wanted.touching, rows) for x in scope.of("link")]
        links += own
        fixed += [x.name for x in own] if scope.static else []
        for element in scope.of("link"):
            looks += _looks(element, scope, scope.folder, rows)
        if not (scope.static or _flag(scope.element, "self_collide")):
            apart.append([x.name for x in own if x.shapes])
        for element in () if scope.static else scope.of("joint"):
            joints.append(joint_of(element, scope, rows))
            mimics += _mimics(element, scope)
        joints += [] if scope.static else _joints_of_drake(scope)
        rows += _others(scope)
    if not links:
        raise InputError(f"{top.what} has no link.")
    spec, closing, of_graph = specify(top.name, links, joints, mimics, fixed)
    for names in apart:
        for i, first in enumerate(names):
            for second in names[i + 1 :]:
                spec.add_exclude(name=f"{first}-{second}", bodyname1=first, bodyname2=second)
    gravity = top.element.find("gravity")
    if top.element.tag == "world":
        spec.option.gravity = numbers_in(_text(top.element, "gravity", "0 0 -9.8"), 3, "<gravity>")
    elif gravity is not None and not _flag(top.element, "gravity"):
        spec.option.gravity = np.zeros(3)
    for scope in top.all():
        _add_frames(spec, scope)
    if any(len(names) > 1 for names in apart):
        rows.append(("contact within a model", top.name, "off", "the file has no <self_collide> there"))
    mixed = {x.friction for link in links for x in link.shapes}
    if len(mixed) > 1 and wanted.touching:
        rows.append(
            (
                "friction of unlike shapes",
                top.name,
                "approximated",
                "the larger of two counts, in Gazebo the smaller",
            )
        )
    return Description(spec, features([*rows, *of_graph]), tuple(looks), tuple(closing))


def _add_frames(spec: Any, scope: Model) -> None:
    for name in (str(x.get("name")) for x in scope.of("frame")):
        link, place = scope.link_of(name)
        here = inverse(place) @ scope.in_world @ scope.place(name)
        spec.body(link).add_site(name=scope.prefix + name, **pose_arguments(here))


def _others(scope: Model) -> Iterator[Row]:
    """What a model has that is not read."""
    for element in _elements(scope.element):
        tag = local_name(element.tag)
        name = scope.prefix + str(element.get("name") or element.get("filename") or scope.name)
        if tag in _OTHERS and not (
            tag in ("enable_wind", "velocity_decay") and (element.text or "").strip() in ("false", "0")
        ):
            why, moves = _OTHERS[tag]
            yield tag, name, "ignored" if moves else "off", why
        elif "}" in element.tag and not _kind_of_drake(element):
            yield "extension of a simulator", f"{tag} in {scope.name}", "ignored", "not read"


def _elements(element: ET.Element) -> Iterator[ET.Element]:
    """The elements within a model, but for those of models in it, and of what is not read itself."""
    for child in element:
        if child.tag in ("model", "include") and element.tag != "include":
            continue
        yield child
        if child.tag not in _OTHERS and "}" not in child.tag:
            yield from _elements(child)
