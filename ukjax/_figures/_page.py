"""A scene as one HTML file that needs no network: drawn by viser, whose player has a time slider and speeds."""

import contextlib
import html
from collections.abc import Iterator
from typing import Any

import numpy as np

from .._misc._errors import needing
from ..mechanisms import Visual
from ..mechanisms._visual import facing
from ._meshes import capsule, tube
from ._moving_parts import Curve, SceneNode
from ._scene import FROM, Scene, first_name, opacity_of

FIELD = 0.6  # of view, from top to bottom [rad]: that of a lens of 60 mm, which distorts little
_ASPECT = 1.3  # width by height of a window in which all must be in sight
_MARGIN = 1.15
_FROM = {True: (0.06, 1.0, 0.06), False: FROM}  # of the plane a little from aside, so that it looks solid
_BELOW = {True: 0.02, False: 0.002}  # where the grid is, so that it does not flicker through what lies on it
_MOST_TUBES = 8  # points of a line that is drawn as tubes, with light and shadow; one of more is drawn flat


def _wxyz(rotation: np.ndarray) -> np.ndarray:
    from scipy.spatial.transform import Rotation

    return Rotation.from_matrix(rotation).as_quat(scalar_first=True)


def _segments(points: np.ndarray) -> np.ndarray:
    return np.stack([points[:-1], points[1:]], axis=1)


def _add(scene: Any, name: str, visual: Visual, colour: tuple[Any, ...]) -> Any:
    """A shape, as a node of viser's scene."""
    *rgb, own = (*colour[:3], 1.0) if visual.colour is None else (*visual.colour.tolist(), 1.0)[:4]
    opacity = own * colour[3] if own * colour[3] < 1 else None
    place: dict[str, Any] = {"wxyz": _wxyz(visual.rotation), "position": visual.position}
    look: dict[str, Any] = {"color": tuple(rgb), "opacity": opacity, "cast_shadow": opacity is None, **place}
    size = visual.size
    if visual.kind == "box":
        return scene.add_box(name, dimensions=size, **look)
    if visual.kind == "cylinder":
        return scene.add_cylinder(name, radius=float(size[0]), height=float(size[1]), **look)
    if visual.kind in ("sphere", "ellipsoid"):
        return scene.add_icosphere(name, radius=1.0, scale=tuple(float(x) for x in size * np.ones(3)), **look)
    if visual.kind == "line" and len(visual.vertices) > _MOST_TUBES:
        segments, thickness = _segments(visual.vertices), 2.0 * float(size[0])
        return scene.add_line_segments(name, segments, tuple(rgb), thickness=thickness, **place)
    if visual.kind == "mesh":
        return scene.add_mesh_simple(name, visual.vertices, visual.faces, flat_shading=True, **look)
    mesh = capsule(*size) if visual.kind == "capsule" else tube(visual.vertices, float(size[0]))
    return scene.add_mesh_simple(name, *mesh, **look)


def _add_part(scene: Any, name: str, part: SceneNode | Curve, colour: tuple[Any, ...]) -> Any:
    if isinstance(part, Curve):
        thickness = 2.0 * float(part.radius)
        return scene.add_line_segments(name, _segments(part.points[0]), colour[:3], thickness=thickness)
    if part.scale is not None:
        return _add(scene, name, part.visuals[0], colour)
    frame = scene.add_frame(name, show_axes=False)
    for i, visual in enumerate(part.visuals):
        _add(scene, f"{name}/{visual.kind} {i + 1}", visual, colour)
    return frame


def _move(handle: Any, part: SceneNode | Curve, frame: int) -> None:
    if isinstance(part, Curve):
        handle.points = _segments(part.points[min(frame, len(part.points) - 1)])
        return
    handle.position, handle.wxyz = part.position[frame], part.wxyz[frame]
    if part.scale is not None:
        handle.scale = tuple(part.scale[frame].tolist())


def place_camera(scene: Scene) -> tuple[np.ndarray, np.ndarray]:
    """Where a camera stands and what it looks at, so that all that ever moves is in sight."""
    right, above, away = scene.axes(_FROM[scene.planar])
    middle = (scene.low + scene.high) / 2
    corners = scene.box() - middle
    half = np.tan(FIELD / 2)
    wide = np.abs(corners @ right) / (_ASPECT * half)
    tall = np.abs(corners @ above) / half
    distance = _MARGIN * float(np.max(np.maximum(wide, tall) + corners @ away))
    return middle + max(distance, 1e-6) * away, middle


def _grid(viser_scene: Any, scene: Scene) -> None:
    """A ground a little below all that moves; of the plane a sheet behind it."""
    span = float(np.linalg.norm(scene.high - scene.low)) or 1.0
    cell = scene.cell()
    normal = np.array([0.0, 0.0, 1.0]) if scene.planar else scene.up
    height = min(corner @ normal for corner in (scene.low, scene.high)) if scene.planar else scene.ground()
    viser_scene.add_grid(
        "/grid",
        width=10.0 * span,
        height=10.0 * span,
        cell_size=cell,
        section_size=5 * cell,
        infinite_grid=True,
        fade_distance=8 * span,
        position=(height - _BELOW[scene.planar] * span) * normal,
        wxyz=_wxyz(facing(normal)),
        cell_color=(222, 225, 230),
        section_color=(190, 194, 202),
    )


def page(scene: Scene, title: str) -> str:
    """A scene as the text of an HTML file."""
    with needing("a view in the browser", "view"):
        import viser
    with _silence(), contextlib.ExitStack() as at_end:
        server = viser.ViserServer(host="127.0.0.1", port=0, verbose=False)
        at_end.callback(server.stop)
        moved = _draw_scene(server, scene)
        film = server.get_scene_serializer()
        seconds = scene.seconds / max(scene.times.size - 1, 1)
        for frame in range(scene.times.size):
            for handle, part in moved:
                _move(handle, part, frame)
            film.insert_sleep(seconds)
        text = film.as_html()
    return text.replace("<title>Viser</title>", f"<title>{html.escape(title)}</title>")


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Viser says where it runs, and that it has stopped, by rich, which in notebooks writes past `sys.stdout`."""
    import rich

    console = rich.get_console()
    before, console.quiet = console.quiet, True
    try:
        yield
    finally:
        console.quiet = before


def _draw_scene(server: Any, scene: Scene) -> list[tuple[Any, SceneNode | Curve]]:
    """All of a scene at its first frame; what is moved from there."""
    server.scene.set_up_direction(tuple(scene.up))
    _grid(server.scene, scene)
    camera = server.initial_camera
    camera.position, camera.look_at = place_camera(scene)
    far = float(np.linalg.norm(camera.position - camera.look_at))
    camera.up, camera.fov, camera.near, camera.far = scene.up, FIELD, far / 100, far * 100
    colours, moved = scene.colours(), []
    for run, parts in scene.parts.items():
        for part in parts:
            colour = (*colours[first_name(part)], opacity_of(part, scene))
            name = f"/{run.replace('/', '|')}/{part.name}"
            moved.append((_add_part(server.scene, name, part, colour), part))
    for i, (words, place) in enumerate(scene.captions):
        server.scene.add_label(f"/captions/{i + 1}", words, position=place, anchor="top-center")
    return moved
