"""What a body looks like: plain shapes and meshes, placed in the reference posture. Pictures alone depend on them."""

import dataclasses
import hashlib
from typing import Any, final

import numpy as np

from .._misc._arguments import one_of, require_no_mask
from .._misc._errors import InputError, format_value
from .._misc._types import is_traced
from ._bodies import check_name

_SIZES = {"box": 3, "sphere": 1, "capsule": 2, "cylinder": 2, "ellipsoid": 3, "mesh": 0, "line": 1}
"""How many lengths each kind has."""
_ROUNDING = 1e-4  # of a rotation matrix read from a file of single precision, or typed with five digits


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Visual:
    """A shape that is fixed to a body, in the reference posture, in world coordinates.

    Its numbers are NumPy's, and nothing but pictures depends on them. Two of equal numbers are equal, so that a mechanism
    made anew with the same ones is not compiled anew.

    **Arguments:**

    - `body`: the body's name, or `"ground"`.
    - `kind`: `"box"`, `"sphere"`, `"capsule"`, `"cylinder"`, `"ellipsoid"`, `"mesh"` or `"line"`.
    - `size`: lengths [m]: of a box its edges (3,), of a sphere its radius, of a capsule or a cylinder, along its z axis,
      radius and length (2,), the caps of a capsule not counted; of an ellipsoid its semi-axes (3,); of a line its radius;
      of a mesh nothing.
    - `position`: of its centre, or of the origin of its vertices [m] (3,); in the plane also (2,).
    - `rotation`: from its own axes to the world's (3, 3); by default none.
    - `colour`: red, green, blue from 0 to 1 and, if it is to be seen through, opacity; by default the body's.
    - `vertices`: of a mesh, or the points a line goes through [m] (n, 3).
    - `faces`: of a mesh, three numbers of vertices each, counterclockwise as seen from outside (f, 3).

    **Raises:** `InputError` for an unknown kind, and numbers that do not fit it.
    """

    body: str
    kind: str
    size: Any = ()
    position: Any = (0.0, 0.0, 0.0)
    rotation: Any = None
    colour: Any = None
    vertices: Any = None
    faces: Any = None

    def __post_init__(self):
        what = f"a visual of body '{check_name('body', self.body)}'"
        one_of(f"the kind of {what}", self.kind, _SIZES)
        given = {x.name: getattr(self, x.name) for x in dataclasses.fields(self)}
        if is_traced(list(given.values())):
            raise InputError(f"{what} takes numbers that are known, not ones that JAX traces.")
        size = self.size if _is_vector(self.size) else [self.size]
        rotation = np.eye(3) if self.rotation is None else self.rotation
        fixed = {
            "size": _check_numbers(f"the size of {what}", size, (_SIZES[self.kind],)),
            "position": _check_place(f"the position of {what}", self.position),
            "rotation": _check_numbers(f"the rotation of {what}", rotation, (3, 3)),
            "colour": None if self.colour is None else _check_colour(f"the colour of {what}", self.colour),
        }
        if np.any(fixed["size"] < 0):
            raise InputError(f"the size of {what} must not be negative, got {self.size}.")
        turned = fixed["rotation"] @ fixed["rotation"].T
        if not np.allclose(turned, np.eye(3), atol=_ROUNDING) or np.linalg.det(fixed["rotation"]) < 0:
            raise InputError(
                f"the rotation of {what} must be a rotation matrix, got {format_value(self.rotation)}."
            )
        fixed |= _check_geometry(what, self.kind, self.vertices, self.faces)
        for name, value in fixed.items():
            object.__setattr__(self, name, value)
        digest = hashlib.sha256(f"{self.body}\0{self.kind}".encode())
        for value in fixed.values():
            digest.update(b"-" if value is None else str(value.shape).encode() + value.tobytes())
        object.__setattr__(self, "_digest", digest.digest())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Visual) and self._digest == other._digest  # pyright: ignore[reportAttributeAccessIssue]

    def __hash__(self) -> int:
        return hash(self._digest)  # pyright: ignore[reportAttributeAccessIssue]

    def extent(self) -> tuple[np.ndarray, np.ndarray]:
        """The lowest and the highest corner of the box around it, along its own axes (3,) [m]."""
        if self.kind in ("mesh", "line"):
            reach = self.size if self.kind == "line" else 0.0
            return self.vertices.min(axis=0) - reach, self.vertices.max(axis=0) + reach
        if self.kind in ("capsule", "cylinder"):
            r, length = self.size
            half = np.array([r, r, length / 2 + (r if self.kind == "capsule" else 0.0)])
        else:
            half = self.size / 2 if self.kind == "box" else self.size * np.ones(3)
        return -half, half


def _check_numbers(what: str, value: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Finite numbers of a shape, in which -1 is any number of them; nobody writes to them."""
    require_no_mask(what, value)
    try:
        array = np.array(value, float)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{what} must be an array of numbers, got {format_value(value)}.") from error
    if len(array.shape) != len(shape) or any(
        n not in (-1, k) for k, n in zip(array.shape, shape, strict=True)
    ):
        wanted = str(shape).replace("-1", "n")
        raise InputError(f"{what} must have shape {wanted}, got {array.shape}.")
    if not np.all(np.isfinite(array)):
        raise InputError(f"{what} must be finite, got {format_value(value)}.")
    array.flags.writeable = False
    return array


def _is_vector(value: Any) -> bool:
    return isinstance(value, tuple | list) or getattr(value, "ndim", 0) > 0


def _check_place(what: str, value: Any) -> np.ndarray:
    return _check_numbers(what, [*value, 0.0] if _is_vector(value) and len(value) == 2 else value, (3,))


def _check_colour(what: str, value: Any) -> np.ndarray:
    array = _check_numbers(what, value, (4 if _is_vector(value) and len(value) == 4 else 3,))
    if np.any((array < 0) | (array > 1)):
        raise InputError(f"{what} must be numbers from 0 to 1, got {format_value(value)}.")
    return array


def _check_geometry(what: str, kind: str, vertices: Any, faces: Any) -> dict[str, np.ndarray | None]:
    """The vertices of a mesh or a line and the faces of a mesh, single precision and 32 bits as viewers take them."""
    wanted = {"vertices": kind in ("mesh", "line"), "faces": kind == "mesh"}
    for name, value in (("vertices", vertices), ("faces", faces)):
        if wanted[name] != (value is not None):
            raise InputError(f"{what} of kind '{kind}' {'needs' if wanted[name] else 'takes no'} {name}.")
    arrays: dict[str, np.ndarray | None] = {"vertices": None, "faces": None}
    if wanted["vertices"]:
        arrays["vertices"] = _check_numbers(f"the vertices of {what}", vertices, (-1, 3)).astype(np.float32)
    if wanted["faces"]:
        arrays["faces"] = _check_numbers(f"the faces of {what}", faces, (-1, 3)).astype(np.uint32)
        count = len(arrays["vertices"])  # pyright: ignore[reportArgumentType]
        if not arrays["faces"].size or np.any(np.asarray(faces) < 0) or arrays["faces"].max() >= count:
            raise InputError(f"the faces of {what} must number its {count} vertices from 0.")
    elif wanted["vertices"] and len(arrays["vertices"]) < 2:  # pyright: ignore[reportArgumentType]
        raise InputError(f"{what} of kind 'line' needs at least two vertices.")
    return arrays


def facing(axis: Any) -> np.ndarray:
    """A rotation that takes the z axis to another one.

    **Returns:** (3, 3), or (k, 3, 3).
    """
    z = np.asarray(axis, float)
    z = z / np.linalg.norm(z, axis=-1, keepdims=True)
    aside = np.where(np.abs(z[..., :1]) < 0.9, [1.0, 0.0, 0.0], [0.0, 1.0, 0.0])
    y = np.cross(z, aside)
    y /= np.linalg.norm(y, axis=-1, keepdims=True)
    return np.stack([np.cross(y, z), y, z], axis=-1)


def lift_to_space(x: Any, depth: float) -> np.ndarray:
    """A place as one of space, of the plane at a depth."""
    x = np.asarray(x, float)
    return np.append(x, depth) if x.size == 2 else x
