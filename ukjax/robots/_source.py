"""Where a robot comes from: a file, a text, or what MuJoCo has read already; and what MuJoCo makes of it."""

import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .._misc._arguments import require_instance
from .._misc._errors import InputError, format_value
from ._closures import Closure
from ._contact_selection import ContactSelection
from ._directives import read_directives
from ._files import parse_xml
from ._graph import Description
from ._mocap import set_mocap_free
from ._reference import mujoco
from ._report import Feature
from ._sdf import read_sdf
from ._urdf import read_urdf
from ._usd import USD_ENDINGS, read_usd
from ._visuals import Look


def _missing_assets(spec: Any, assets: Any, folder: str) -> list[Any]:
    start = Path(spec.modelfiledir or ".") / (folder or "")
    known = set(spec.assets or ())
    return [x for x in assets if x.file and x.file not in known and not (start / x.file).is_file()]


def _geoms_with(spec: Any, field: str, lacking: list[Any]) -> list[Any]:
    names = {x.name or Path(x.file).stem for x in lacking}
    return [geom for geom in spec.geoms if getattr(geom, field) in names]


def remove_missing(spec: Any, touching: bool) -> list[Feature]:
    """Takes out what lies in files that are not there, where it is only for pictures and contacts; and tells of it, of
    contacts where they are wanted.
    """
    meshdir, texturedir = spec.compiler.meshdir or spec.meshdir, spec.compiler.texturedir or spec.texturedir
    meshes, fields = _missing_assets(spec, spec.meshes, meshdir), _missing_assets(spec, spec.hfields, meshdir)
    textures = _missing_assets(spec, spec.textures, texturedir)
    geoms = [*_geoms_with(spec, "meshname", meshes), *_geoms_with(spec, "hfieldname", fields)]
    for geom in geoms:
        body = geom.parent
        weightless = geom.mass == 0 or geom.density == 0
        if not (body.explicitinertial or weightless or body.id == 0):
            raise InputError(
                f"the mass of body '{body.name}' follows from mesh '{geom.meshname}', whose file is not there: "
                "add the file, or give the body an inertial."
            )
    lost = {
        "mesh": meshes,
        "hfield": fields,
        "texture": textures,
        "skin": _missing_assets(spec, spec.skins, meshdir),
    }
    missing = {x.name for x in textures}
    for material in spec.materials:
        material.textures = ["" if name in missing else name for name in material.textures]
    touch = tuple(x.name or x.parent.name for x in geoms if x.contype or x.conaffinity)
    why = "the file of its mesh is not there"
    lost_features = [Feature("shape that touches", touch if touching else (), "ignored", why)]
    for kind, items in lost.items():
        names = tuple(x.name or x.file for x in items)
        lost_features.append(
            Feature(f"missing file of a {kind}", names, "ignored", "for pictures", moves=False)
        )
    for item in [*geoms, *(x for items in lost.values() for x in items)]:
        spec.delete(item)
    return lost_features


_NO_MASS = 1e-14  # [kg], [kg m^2]: above the least that MuJoCo lets a body have that moves
_UNREAD = "read by MuJoCo alone, which loses some of a URDF: limits of velocity, paths of meshes"


class Source(NamedTuple):
    """A robot as MuJoCo compiled it."""

    model: Any  # the `MjModel`
    title: str  # what reports call the source
    name: str  # of the robot
    features: tuple[Feature, ...]  # of the file that the model has lost
    looks: tuple[Look, ...] = ()  # visual elements that the model has lost
    closures: tuple[Closure, ...] = ()  # joints that close loops and are no equalities of the model


def read(
    source: Any,
    free_base: bool,
    wanted: ContactSelection,
    mocap: tuple[str, ...] = (),
    floor: float | None = None,
) -> Source:
    """A robot as MuJoCo compiles it."""
    such_as = "the path of a robot's file, its text, a mujoco.MjSpec or a mujoco.MjModel"
    require_instance("a robot", source, (str, Path, mujoco().MjSpec, mujoco().MjModel), such_as)
    if isinstance(source, mujoco().MjModel):
        asked = [
            word
            for word, given in (("free_base", free_base), ("mocap", mocap), ("floor", floor is not None))
            if given
        ]
        if asked:
            raise InputError(
                f"{asked[0]} needs a file, a text or a mujoco.MjSpec: a compiled model cannot be changed."
            )
        return Source(source, "a compiled model", "robot", ())
    if isinstance(source, mujoco().MjSpec):
        given, title = Description(source.copy()), "a specification"
    else:
        text = isinstance(source, str) and source.lstrip().startswith("<")
        title = "a text" if text else str(source)
        given = _describe_text(str(source), Path(), wanted) if text else _describe_file(Path(source), wanted)
    return _compile_spec(given, title, (free_base, mocap, floor), wanted)


def _describe_file(path: Path, wanted: ContactSelection) -> Description:
    """The description of a file, by its ending and its first element."""
    path, ending = _file(path), path.suffix.lower()
    if ending in USD_ENDINGS:
        return read_usd(path, wanted)
    if ending in (".yaml", ".yml"):
        return read_directives(path, wanted, _describe_file)
    return _describe_text(path.read_bytes(), path.parent.resolve(), wanted, path)


def _describe_text(
    text: str | bytes, folder: Path, wanted: ContactSelection, path: Path | None = None
) -> Description:
    raw, title = text.strip(), "a text" if path is None else str(path)
    raw = raw.encode() if isinstance(raw, str) else raw
    features = tuple[Feature, ...]()
    try:
        root = parse_xml(raw, title)
    except InputError as error:
        if path is not None and path.suffix.lower() in (".sdf", ".world"):
            raise
        root = None
        features = (Feature("XML that is not well-formed", (str(error),), "approximated", _UNREAD),)
    if root is not None and root.tag in ("sdf", "gazebo"):
        return read_sdf(root, folder, wanted)
    if root is not None and root.tag == "robot":
        return read_urdf(root, folder, wanted)
    if root is not None and path is not None and path.suffix.lower() in (".sdf", ".world"):
        raise InputError(f"{title} is no SDF: its root is <{root.tag}>, not <sdf>.")
    from_file, from_text = mujoco().MjSpec.from_file, mujoco().MjSpec.from_string
    spec = (
        _call_mujoco(title, from_text, raw.decode())
        if path is None
        else _call_mujoco(title, from_file, str(path))
    )
    return Description(spec, features)


def _file(path: Path) -> Path:
    try:
        is_there = path.is_file()
    except (OSError, ValueError) as error:  # a name too long, a zero in it
        raise InputError(f"{format_value(str(path))} is no path of a file: {error}") from error
    if path.is_dir():
        raise InputError(f"'{path}' is a folder; give the path of a file.")
    if not is_there:
        raise InputError(f"there is no file '{path}'.")
    return path


def _call_mujoco(title: str, function: Any, *arguments: Any) -> Any:
    """What a function of MuJoCo returns; its errors become an `InputError`."""
    try:
        return function(*arguments)
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"MuJoCo cannot read {title}: {error}") from error


def _compile_spec(
    given: Description,
    title: str,
    changed: tuple[bool, tuple[str, ...], float | None],
    wanted: ContactSelection,
) -> Source:
    spec, features = given.spec, list(given.features)
    free_base, mocap, floor = changed
    if free_base:
        _set_free(spec)
    if floor is not None:
        _add_floor(spec, floor)
        features.append(Feature("floor", ("floor",), why=f"added at the height {floor:g} m"))
    features += remove_missing(spec, wanted.touching)
    if negative := [body for body in spec.bodies if body.mass < 0]:
        raise InputError(
            f"{title}: body '{negative[0].name}' has the mass {negative[0].mass:g}, which is negative."
        )
    impossible = {} if spec.compiler.balanceinertia else _replace_impossible_inertias(spec)
    masses = [body.mass for body in impossible]
    bounds = spec.compiler.boundmass, spec.compiler.boundinertia
    if not any(bounds):  # bodies without mass pass by what is nothing beside others
        spec.compiler.boundmass = spec.compiler.boundinertia = _NO_MASS
    _call_mujoco(title, set_mocap_free, spec, mocap)
    model = _call_mujoco(title, spec.compile)
    if not any(bounds):
        light = np.array(model.body_mass) <= _NO_MASS
        model.body_mass[light], model.body_inertia[light] = 0.0, 0.0
    for (body, moments), mass in zip(impossible.items(), masses, strict=True):
        # A file may set the total mass, which scales all.
        model.body_inertia[body.id] = moments * (model.body_mass[body.id] / mass if mass > 0 else 1.0)
    if impossible:
        names = tuple(body.name for body in impossible)
        features.append(Feature("moments of inertia that no body can have", names))
        warnings.warn(
            f"{title}: no body can have the moments of inertia of {', '.join(names)}: two of them together are less than "
            "the third, or one is not positive. They are taken as they stand.",
            stacklevel=5,
        )
    return Source(model, title, spec.modelname or "robot", tuple(features), given.looks, given.closures)


def _add_floor(spec: Any, height: float) -> None:
    """A plane, level where there is gravity."""
    if spec.geom("floor") is not None:
        raise InputError("the file has a geom 'floor' already: leave out floor, and give contact=True.")
    down = np.array(spec.option.gravity)
    up = -down / np.linalg.norm(down) if down.any() else np.array([0.0, 0.0, 1.0])
    turn = np.zeros(4)
    mujoco().mju_quatZ2Vec(turn, up)
    plane = mujoco().mjtGeom.mjGEOM_PLANE
    spec.worldbody.add_geom(name="floor", type=plane, size=[0.0, 0.0, 1.0], pos=height * up, quat=turn)


def _set_free(spec: Any) -> None:
    bases = [body for body in spec.worldbody.bodies if not body.joints and not body.mocap]
    if len(bases) != 1:
        names = ", ".join(f"'{body.name}'" for body in bases) or "none"
        raise InputError(
            f"free_base needs one body that is fixed to the world; there are {len(bases)}: {names}."
        )
    bases[0].add_freejoint()


def _replace_impossible_inertias(spec: Any) -> dict[Any, np.ndarray]:
    """The principal moments of bodies where two together are less than the third, or one is not positive.

    MuJoCo refuses these, so the bodies get others to be compiled with, about the same axes.
    """
    moments_of = {}
    for body in spec.bodies:
        xx, yy, zz, xy, xz, yz = body.fullinertia
        full = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
        known = bool(np.isfinite(full).all())
        moments, axes = np.linalg.eigh(full) if known else (np.array(body.inertia), np.eye(3))
        least, middle, most = np.sort(moments)
        none = body.mass == 0 and not moments.any()
        if not body.explicitinertial or none or (least > 0 and least + middle >= most):
            continue
        moments_of[body] = moments
        body.inertia = np.ones(3)
        if known:
            body.fullinertia = np.full(6, np.nan)
            turned, own = np.zeros(4), np.array(body.iquat)
            mujoco().mju_mat2Quat(turned, (axes * np.linalg.det(axes)).ravel())
            mujoco().mju_mulQuat(body.iquat, own, turned)
    return moments_of
