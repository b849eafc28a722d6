"""YAML files that put robots together: Drake's model directives, and loops of a URDF as example-parallel-robots has them.

Directives: https://github.com/RobotLocomotion/drake, `multibody/parsing/model_directives.h`. Loops:
https://github.com/Gepetto/example-parallel-robots, `robot.yaml` beside `robot.urdf`.
"""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from .._misc._errors import InputError, needing, require_known, unknown_name
from ._contact_selection import ContactSelection
from ._files import find_file
from ._graph import Description, Joint, add_closure, add_start, inverse, place_of, pose_arguments
from ._reference import mujoco
from ._report import Feature

Describe = Callable[[Path, ContactSelection], Description]


def read_directives(path: Path, wanted: ContactSelection, describe: Describe) -> Description:
    """The robot of a YAML file.

    **Arguments:**

    - `describe`: reads the files that it names.
    """
    given = _read(path)
    if "closed_loop" in given:
        return _add_loops(path, given, wanted, describe)
    if not isinstance(given.get("directives"), list):
        raise InputError(
            f"{path} has neither 'directives' of Drake nor the 'closed_loop' of a URDF beside it."
        )
    station = _Station(wanted, describe)
    station.run(path, given["directives"], "")
    return station.build(path.stem.removesuffix(".dmd"))


def _read(path: Path) -> dict[str, Any]:
    with needing("loading a robot from YAML", "robots"):
        import yaml

    class Loader(yaml.SafeLoader):
        """With tags such as `!Rpy`, as the values under `"!"`."""

    def tagged(loader: Any, tag: str, node: Any) -> Any:
        return {"!": tag, **(loader.construct_mapping(node, deep=True) if node.value else {})}

    Loader.add_multi_constructor("!", tagged)
    try:
        content = yaml.load(path.read_text(), Loader)
    except (yaml.YAMLError, ValueError) as error:
        raise InputError(f"{path} is no YAML: {' '.join(str(error).split())}.") from error
    if not isinstance(content, dict):
        raise InputError(f"{path} must be a mapping of words to values, such as 'directives: [...]'.")
    return content


# --- loops of a URDF


def _add_loops(
    path: Path, given: Mapping[str, Any], wanted: ContactSelection, describe: Describe
) -> Description:
    """`closed_loop`: pairs of links whose frames meet, `type`: whether in their origins (3d) or altogether (6d)."""
    description = describe(path.with_suffix(".urdf"), wanted)
    pairs, types = given["closed_loop"], given.get("type") or []
    if not isinstance(pairs, list) or len(types) != len(pairs):
        raise InputError(f"{path}: 'type' must say '3d' or '6d' for each pair of 'closed_loop'.")
    links, closures = [body.name for body in description.spec.bodies], []
    for pair, kind in zip(pairs, types, strict=True):
        require_known(f"link of a closed_loop in {path}:", links, *pair)
        if str(kind).lower() not in ("3d", "6d") or len(pair) != 2:
            raise InputError(
                f"{path}: a closed_loop is a pair of links of type '3d' or '6d', got {pair} of '{kind}'."
            )
        meet, (first, second) = "ball" if str(kind).lower() == "3d" else "fixed", pair
        joint = Joint(f"{first} {second}", meet, first, second, (np.eye(4), np.eye(4)))
        closures.append(add_closure(description.spec, joint))
    names, kinds = given.get("joint_name") or [], given.get("joint_type") or []
    if len(names) != len(kinds):
        raise InputError(f"{path}: 'joint_type' must have an entry for each of 'joint_name'.")
    for name, kind in zip(names, kinds, strict=True):
        require_known(f"joint in joint_name of {path}:", [x.name for x in description.spec.joints], name)
        _change_joint(description.spec, description.spec.joint(name), str(kind), path)
    motors = Feature(
        "name_mot", tuple(given.get("name_mot") or ()), "ignored", "no actuators follow from it", False
    )
    return description._replace(
        features=(*description.features, motors), closures=(*description.closures, *closures)
    )


def _change_joint(spec: Any, joint: Any, kind: str, path: Path) -> None:
    axes = dict(zip("XYZ", np.eye(3), strict=True))
    first, second = kind.removeprefix("UJOINT_")[:1], kind[-1:]
    if kind == "SPHERICAL":
        joint.type, joint.limited = mujoco().mjtJoint.mjJNT_BALL, mujoco().mjtLimited.mjLIMITED_FALSE
    elif kind == "FIXED":
        spec.delete(joint)
    elif kind.startswith("UJOINT_") and first in axes and second in axes:
        joint.limited = mujoco().mjtLimited.mjLIMITED_FALSE
        joint.axis = axes[first]
        joint.parent.add_joint(
            name=f"{joint.name} {second}", type=joint.type, pos=joint.pos, axis=axes[second]
        )
    else:
        raise InputError(
            f"{path}: joint '{joint.name}' is to be '{kind}'; SPHERICAL, FIXED and UJOINT_XY are read."
        )


# --- Drake's model directives

_KEYS = {
    "add_model": ("name", "file", "default_joint_positions", "default_free_body_pose"),
    "add_model_instance": ("name",),
    "add_frame": ("name", "X_PF"),
    "add_weld": ("parent", "child", "X_PC"),
    "add_directives": ("file", "model_namespace"),
    "add_collision_filter_group": (
        "name",
        "members",
        "ignored_collision_filter_groups",
        "member_groups",
        "model_namespace",
    ),
}


def _transform(given: Any, what: str) -> np.ndarray:
    try:
        turn = given.get("rotation") or {}
        turn: dict[str, Any] = {"deg": turn} if isinstance(turn, list) else turn
        kind = turn.get("!", "Rpy")
        if kind == "Rpy":
            rotation = Rotation.from_euler("xyz", turn.get("deg", (0.0, 0.0, 0.0)), degrees=True)
        elif kind == "AngleAxis":
            axis = np.array(turn["axis"], float)
            rotation = Rotation.from_rotvec(np.radians(turn["angle_deg"]) * axis / np.linalg.norm(axis))
        else:
            raise InputError(f"{what}: a rotation of kind '!{kind}' is not read; !Rpy and !AngleAxis are.")
        return place_of(np.array(given.get("translation") or (0.0, 0.0, 0.0), float), rotation)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise InputError(f"{what}: {given!r} is no translation and rotation in numbers.") from error


class _Station:
    """Models, welds and frames as they are collected, by their whole names.

    A model is put where its weld, or else its free body, has it once all are known, since directives may refer to what
    comes later.
    """

    def __init__(self, wanted: ContactSelection, describe: Describe):
        self.wanted, self.describe = wanted, describe
        self.models, self.poses = dict[str, Description](), dict[str, Any]()
        self.welds = list[tuple[str, str, Any]]()
        self.frames, self.aliases = dict[str, tuple[str, Any]](), dict[str, str]()
        self.starts, self.groups = dict[str, Any](), dict[str, list[str]]()
        self.ignored = list[tuple[str, str]]()

    def run(self, path: Path, given: list[Any], scope: str) -> None:
        """Collects what directives say, those of further files too."""
        inside = lambda name: f"{scope}::{name}" if scope else str(name)
        for directive in given:
            has_words = isinstance(directive, dict) and directive
            kind, own = next(iter(directive.items())) if has_words else (str(directive), None)
            require_known(f"directive in {path}:", _KEYS, kind)
            if not isinstance(own, dict):
                raise InputError(f"{path}: {kind} must have {', '.join(_KEYS[kind])}.")
            require_known(f"word of {kind} in {path}:", _KEYS[kind], *own)
            self._take(path, kind, own, inside)

    def _take(self, path: Path, kind: str, own: dict[str, Any], inside: Callable[[str], str]) -> None:
        what = f"{kind} in {path}"
        try:
            if kind == "add_model":
                name = inside(own["name"])
                if name in self.models:
                    raise InputError(f"{what}: there are two models '{name}'.")
                self.models[name] = self.describe(self._file(path, own["file"]), self.wanted)
                for joint, x in (own.get("default_joint_positions") or {}).items():
                    self.starts[f"{name}::{joint}"] = x
                self.poses[name] = own.get("default_free_body_pose") or {}
            elif kind == "add_frame":
                base, name = inside(own["X_PF"]["base_frame"]), inside(own["name"])
                base = own["X_PF"]["base_frame"] if own["X_PF"]["base_frame"] == "world" else base
                if "::" not in own["name"] and "::" in base:  # it belongs to the model of its base
                    scoped = f"{self.aliases.get(base, base).rpartition('::')[0]}::{own['name']}"
                    self.aliases[name], name = scoped, scoped
                self.frames[name] = base, _transform(own["X_PF"], what)
            elif kind == "add_weld":
                parent, child = (x if x == "world" else inside(x) for x in (own["parent"], own["child"]))
                self.welds.append((parent, child, _transform(own.get("X_PC") or {}, what)))
            elif kind == "add_directives":
                file, under = self._file(path, own["file"]), own.get("model_namespace")
                given = _read(file).get("directives") or []
                self.run(file, given, inside(under) if under else inside("").removesuffix("::"))
            elif kind == "add_collision_filter_group":
                within = lambda x: inside(
                    f"{own['model_namespace']}::{x}" if own.get("model_namespace") else x
                )
                name = within(own["name"])
                members = [within(x) for x in own.get("members") or []]
                self.groups[name] = members + [
                    x for y in own.get("member_groups") or [] for x in self.groups[within(y)]
                ]
                self.ignored += [(name, within(x)) for x in own.get("ignored_collision_filter_groups") or []]
        except KeyError as error:
            raise InputError(f"{what} lacks {error}.") from error

    def _file(self, path: Path, name: str) -> Path:
        file = find_file(name, path.parent.resolve())
        if file is None:
            raise InputError(
                f"{path} names '{name}', and there is no such file: package://x is looked for in the folders above."
            )
        return file

    def build(self, name: str) -> Description:
        """All of it in one."""
        spec = mujoco().MjSpec()
        spec.modelname = name
        left = dict(self.models)
        features, looks, closures = list[Feature](), [], []
        while left:
            model = next((x for x in left if self._is_ready(spec, x, left)), None)
            if model is None:
                raise InputError(
                    f"the welds of models {', '.join(map(repr, left))} lead in a circle, or from no model."
                )
            own, prefix = left.pop(model), f"{model}::"
            if own.spec.keys:
                names = tuple(key.name or "keyframe" for key in own.spec.keys)
                features.append(
                    Feature(
                        "keyframe of a model", names, "ignored", "directives have starts of their own", False
                    )
                )
                for key in list(own.spec.keys):
                    own.spec.delete(key)
            self._attach(spec, model, own)
            of_model = lambda x, prefix=prefix: dataclasses.replace(
                x, names=tuple(prefix + name for name in x.names)
            )
            features += map(of_model, own.features)
            looks += [look._replace(link=prefix + look.link) for look in own.looks]
            closures += [closure.with_prefix(prefix) for closure in own.closures]
        for frame in self.frames:
            body, place = self._locate(spec, frame)
            spec.body(body).add_site(name=frame, **pose_arguments(place))
        self._exclude(spec)
        joints = {joint.name for joint in spec.joints}
        require_known("joint in default_joint_positions:", joints, *self.starts)
        add_start(spec, self.starts)
        return Description(spec, tuple(features), tuple(looks), tuple(closures))

    def _weld_of(self, model: str) -> tuple[str, str, Any] | None:
        own = [x for x in self.welds if self._model_of(x[1]) == model]
        if len(own) > 1:
            raise InputError(
                f"model '{model}' is welded {len(own)} times; a second weld closes a loop and is not read."
            )
        return own[0] if own else None

    def _model_of(self, frame: str) -> str:
        frame = self.aliases.get(frame, frame)
        while frame in self.frames:
            frame = self.frames[frame][0]
            frame = self.aliases.get(frame, frame)
        return frame.rpartition("::")[0] if frame != "world" else ""

    def _is_ready(self, spec: Any, model: str, left: Mapping[str, Any]) -> bool:
        weld = self._weld_of(model)
        above = weld[0] if weld else self._pose_of(model)[1].get("base_frame") or "world"
        return self._model_of(above) not in left or self._model_of(above) == model

    def _pose_of(self, model: str) -> tuple[str, Mapping[str, Any]]:
        """The free body of a model whose place is given, and that."""
        if len(self.poses[model]) > 1:
            raise InputError(f"model '{model}': default_free_body_pose of more than one body is not read.")
        return next(iter(self.poses[model].items()), ("", {}))

    def _locate(self, spec: Any, frame: str, prefix: str = "") -> tuple[str, np.ndarray]:
        """The body of a frame, and where the frame is in it (4, 4); of a model that is not attached yet names lack the
        prefix."""
        frame = self.aliases.get(frame, frame)
        if frame in self.frames:
            base, place = self.frames[frame]
            body, above = self._locate(spec, base, prefix)
            return body, above @ place
        name = frame.removeprefix(prefix)
        if name.endswith("::__model__"):
            first = next((x for x in spec.bodies if x.name.startswith(name.removesuffix("__model__"))), None)
            if first is not None:
                return first.name, inverse(_place_of_element(first))
        if name == "world" or spec.body(name) is not None:
            return name, np.eye(4)
        site = spec.site(name)
        if site is None:
            known = [x.name for x in (*spec.bodies, *spec.sites)]
            what = "frame of a weld:" if prefix else "frame in model directives:"
            raise unknown_name(what, frame, [*known, *self.frames])
        return site.parent.name, _place_of_element(site)

    def _attach(self, spec: Any, model: str, own: Description) -> None:
        """Puts a model where its weld has it, or else free to move where its base is not joined to the world."""
        weld, prefix = self._weld_of(model), f"{model}::"
        if weld is None:
            body, pose = self._pose_of(model)
            where = _transform(pose, f"default_free_body_pose of '{model}'") if pose else np.eye(4)
            parent, above = (
                self._locate(spec, pose.get("base_frame") or "world") if pose else ("world", np.eye(4))
            )
            if own.base:
                own.spec.body(own.base).add_freejoint(name=f"{own.base} free")
            frame = above @ where
            if body:
                frame = frame @ inverse(_place_of_element(own.spec.body(body)))
        else:
            parent, above = self._locate(spec, weld[0])
            child, place = self._locate(own.spec, weld[1], prefix)
            body, along = own.spec.body(child), place
            while body is not None and body.name != "world":
                free = body.joints and body.joints[0].type == mujoco().mjtJoint.mjJNT_FREE
                if free:
                    own.spec.delete(body.joints[0])
                elif body.joints:
                    raise InputError(
                        f"the weld of '{weld[1]}' closes a loop: it moves against the base of '{model}'."
                    )
                along, body = _place_of_element(body) @ along, body.parent
            frame = above @ weld[2] @ inverse(along)
        spec.attach(own.spec, prefix=prefix, frame=spec.body(parent).add_frame(**pose_arguments(frame)))

    def _exclude(self, spec: Any) -> None:
        """Contacts of the groups that ignore each other."""
        known, pairs = [body.name for body in spec.bodies], set[tuple[str, str]]()
        for first, second in self.ignored:
            require_known("collision filter group:", self.groups, first, second)
            for a in self.groups[first]:
                for b in self.groups[second]:
                    require_known("member of a collision filter group:", known, a, b)
                    if a != b and (b, a) not in pairs:
                        pairs.add((a, b))
        for a, b in pairs:
            spec.add_exclude(name=f"{a}-{b}", bodyname1=a, bodyname2=b)


def _place_of_element(element: Any) -> np.ndarray:
    return place_of(element.pos, Rotation.from_quat(element.quat, scalar_first=True))
