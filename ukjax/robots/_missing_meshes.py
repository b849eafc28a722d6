"""Files that a robot's file refers to and that are not there: meshes, height fields and textures for pictures."""

from pathlib import Path
from typing import Any

from .._misc._errors import InputError
from ._report import Feature


def _lacking(spec: Any, assets: Any, folder: str) -> list[Any]:
    """The assets whose files are not there."""
    start = Path(spec.modelfiledir or ".") / (folder or "")
    known = set(spec.assets or ())
    return [x for x in assets if x.file and x.file not in known and not (start / x.file).is_file()]


def _geoms_with(spec: Any, field: str, lacking: list[Any]) -> list[Any]:
    names = {x.name or Path(x.file).stem for x in lacking}
    return [geom for geom in spec.geoms if getattr(geom, field) in names]


def without_missing(spec: Any, touching: bool) -> list[Feature]:
    """Takes out what lies in files that are not there, where it is only for pictures and contacts; and tells of it, of
    contacts where they are wanted.
    """
    meshdir, texturedir = spec.compiler.meshdir or spec.meshdir, spec.compiler.texturedir or spec.texturedir
    meshes, fields = _lacking(spec, spec.meshes, meshdir), _lacking(spec, spec.hfields, meshdir)
    textures = _lacking(spec, spec.textures, texturedir)
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
        "skin": _lacking(spec, spec.skins, meshdir),
    }
    missing = {x.name for x in textures}
    for material in spec.materials:
        material.textures = ["" if name in missing else name for name in material.textures]
    touch = tuple(x.name or x.parent.name for x in geoms if x.contype or x.conaffinity)
    why = "the file of its mesh is not there"
    found = [Feature("shape that touches", touch if touching else (), "ignored", why)]
    for kind, items in lost.items():
        names = tuple(x.name or x.file for x in items)
        found.append(Feature(f"missing file of a {kind}", names, "ignored", "for pictures", moves=False))
    for item in [*geoms, *(x for items in lost.values() for x in items)]:
        spec.delete(item)
    return found
