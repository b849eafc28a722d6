"""The bodies of a robot: those that move as one are merged, with their mass, centre and inertia."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from .._misc._errors import InputError
from ..mechanisms import GROUND, Body
from ._reference import Reference, cleaned


def _merged(at: Reference, members: list[int]) -> tuple[float, np.ndarray, np.ndarray]:
    """Mass, centre and inertia about it, in world axes of the reference posture, of bodies that move as one."""
    masses, places = at.model.body_mass[members], at.data.xipos[members]
    mass = float(np.sum(masses))
    centre = masses @ places / mass if mass > 0 else places[0]
    axes = at.data.ximat[members].reshape(-1, 3, 3)
    own = np.einsum("iab,ib,icb->ac", axes, at.model.body_inertia[members], axes)
    arms = places - centre
    square = np.einsum("i,ia,ia->", masses, arms, arms) * np.eye(3)
    inertia = own + square - np.einsum("i,ia,ib->ab", masses, arms, arms)
    return mass, cleaned(centre), cleaned(inertia, float(np.max(np.abs(inertia))))


def _body(name: str, mass: float, centre: np.ndarray, inertia: np.ndarray, points: dict[str, Any]) -> Body:
    """The body, also where its moments are such that no body can have them, as in some files."""
    body = Body(name, mass, centre, np.ones(3), points, "joints")
    return eqx.tree_at(
        lambda x: x.inertia, body, jnp.asarray(0.5 * (inertia + inertia.T), body.inertia.dtype)
    )


def bodies(at: Reference) -> list[Body]:
    """The tree's bodies in MuJoCo's order, with the places of all bodies and sites on them as points.

    **Arguments:**

    - `at`: the model in its reference posture.

    **Raises:** `InputError` for a body that moves and has no mass.
    """
    members: dict[str, list[int]] = {}
    for i, carrier in enumerate(at.carriers):
        members.setdefault(carrier, []).append(i)
    points = frames(at)
    found = []
    for name, own in members.items():
        if name == GROUND:
            continue
        mass, centre, inertia = _merged(at, own)
        if not mass > 0:
            raise InputError(f"body '{name}' moves and has no mass: give it one in the file.")
        named = {frame: x for frame, (carrier, x) in points.items() if carrier == name}
        found.append(_body(name, mass, centre, inertia, named))
    return found


def frames(at: Reference) -> dict[str, tuple[str, np.ndarray]]:
    """Every body and site by name: what carries it, and where its origin is in the reference posture [m].

    A site with the name of a body is called "<name> site".

    **Arguments:**

    - `at`: the model in its reference posture.
    """
    found = {at.names.bodies[i]: at.point(i) for i in range(1, at.model.nbody)}
    for i, name in enumerate(at.names.sites):
        found[f"{name} site" if name in found else name] = at.site(i)[:2]
    return found
