"""Triangles of the shapes that pictures are made of."""

import itertools

import numpy as np

from ..mechanisms import Visual
from ..mechanisms._visual import facing

Mesh = tuple[np.ndarray, np.ndarray]
"""Vertices (n, 3) [m], and faces (f, 3), three numbers of vertices each, counterclockwise from outside."""


def revolve(r: np.ndarray, z: np.ndarray, around: int) -> Mesh:
    """The surface that a line of radii and heights, from below to above, sweeps about the z axis."""
    angle = np.linspace(0.0, 2 * np.pi, around, endpoint=False)
    rings = np.stack([np.outer(r, np.cos(angle)), np.outer(r, np.sin(angle)), np.outer(z, angle * 0 + 1)], -1)
    i = np.arange((len(r) - 1) * around).reshape(len(r) - 1, around)
    j = np.roll(i, -1, axis=1)
    faces = np.stack([np.stack([i, j, j + around], -1), np.stack([i, j + around, i + around], -1)])
    return rings.reshape(-1, 3), faces.reshape(-1, 3)


def capsule(radius: float, length: float, around: int = 20, along: int = 12) -> Mesh:
    """A capsule about the z axis, its centre at the origin.

    **Arguments:**

    - `around`, `along`: corners of a ring, and rings: with 20 and 12 its outline looks round.
    """
    polar = np.linspace(-np.pi / 2, np.pi / 2, along)
    r, z = radius * np.cos(polar), radius * np.sin(polar) + np.where(polar < 0, -0.5, 0.5) * length
    return revolve(r, z, around)


def cylinder(radius: float, length: float, around: int = 20) -> Mesh:
    """A cylinder about the z axis, its centre at the origin."""
    return revolve(
        radius * np.array([0.0, 1.0, 1.0, 0.0]), 0.5 * length * np.array([-1.0, -1.0, 1.0, 1.0]), around
    )


def box(edges: np.ndarray) -> Mesh:
    """A box with its centre at the origin."""
    corners = np.array(list(itertools.product((-0.5, 0.5), repeat=3))) * edges
    sides = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
    return corners, np.array([x for a, b, c, d in sides for x in ((a, b, c), (a, c, d))])


def tube(points: np.ndarray, radius: float, around: int = 20, along: int = 12) -> Mesh:
    """Capsules between points (p, 3)."""
    vertices, faces = [np.zeros((0, 3))], [np.zeros((0, 3), int)]
    for a, b in itertools.pairwise(points):
        if (length := float(np.linalg.norm(b - a))) > 0:
            v, f = capsule(radius, length, around, along)
            faces.append(f + sum(map(len, vertices)))
            vertices.append(v @ facing(b - a).T + (a + b) / 2)
    return np.concatenate(vertices), np.concatenate(faces)


_AROUND, _ALONG = 20, 9  # of shapes that a flat picture shows


def mesh_of(visual: Visual) -> Mesh:
    """A visual in the axes of its body's reference posture, with as many triangles as a flat picture needs."""
    size, kind = visual.size, visual.kind
    r, length = size if kind in ("capsule", "cylinder") else (0.0, 0.0)
    if kind == "mesh":
        vertices, faces = visual.vertices, visual.faces
    elif kind == "box":
        vertices, faces = box(size)
    elif kind == "cylinder":
        vertices, faces = cylinder(r, length, _AROUND)
    elif kind == "capsule":
        vertices, faces = capsule(r, length, _AROUND, _ALONG)
    elif kind == "line":
        vertices, faces = tube(visual.vertices, float(size[0]), 8, 4)
    else:  # spheres and ellipsoids
        vertices, faces = capsule(1.0, 0.0, _AROUND, 12)
        vertices = vertices * size
    return vertices @ visual.rotation.T + visual.position, faces
