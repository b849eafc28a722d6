"""What a file has that is not modelled, so that nothing is left out silently."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ._mujoco import mujoco
from ._reference import Reference
from ._report import Feature

_NO_CONTACT = "contact is not modelled: bodies pass through each other"
_INEQUALITY = "inequalities are not modelled: joints move beyond it"


def _named(at: Reference, kind: str, numbers: Sequence[int] | np.ndarray) -> tuple[str, ...]:
    """The names of some of a kind of object, of those that have one, else "<kind> <number>"."""
    number = getattr(mujoco().mjtObj, f"mjOBJ_{kind.upper()}")
    return tuple(mujoco().mj_id2name(at.model, number, int(i)) or f"{kind} {i}" for i in numbers)


def _all(at: Reference, kind: str, count: str) -> tuple[str, ...]:
    return _named(at, kind, range(getattr(at.model, count, 0)))


def _joints(at: Reference, has: np.ndarray) -> tuple[str, ...]:
    return tuple(at.names.joints[i] for i in np.flatnonzero(has))


def _of_joints(at: Reference) -> list[Feature]:
    model = at.model
    limited = np.zeros(model.njnt, bool) if at.disabled("LIMIT") else np.array(model.jnt_limited, bool)
    friction = np.zeros(model.nv) if at.disabled("FRICTIONLOSS") else model.dof_frictionloss
    rubbing = np.isin(np.arange(model.njnt), model.dof_jntid[friction > 0])
    return [
        Feature("joint limit", _joints(at, limited), "ignored", _INEQUALITY),
        Feature("joint frictionloss", _joints(at, rubbing), "ignored", "dry friction is not modelled"),
    ]


def _of_contact(at: Reference) -> list[Feature]:
    model = at.model
    if at.disabled("CONTACT"):
        return []
    touching = np.flatnonzero(np.array(model.geom_contype) | np.array(model.geom_conaffinity))
    return [
        Feature("colliding geom", _named(at, "geom", touching), "ignored", _NO_CONTACT),
        Feature("contact pair", _all(at, "pair", "npair"), "ignored", _NO_CONTACT),
        Feature("contact exclusion", _all(at, "exclude", "nexclude"), "ignored", _NO_CONTACT, moves=False),
    ]


def _of_surroundings(at: Reference) -> list[Feature]:
    """Fluids, mocap bodies, what bends, and plugins."""
    model, option = at.model, at.model.opt
    fluid = {"density": option.density, "viscosity": option.viscosity}
    mocap = np.flatnonzero(np.array(model.body_mocapid) >= 0)
    return [
        Feature(
            "fluid",
            tuple(f"{name} {x:g}" for name, x in fluid.items() if x),
            "ignored",
            "no drag is modelled",
        ),
        Feature(
            "mocap body", tuple(at.names.bodies[i] for i in mocap), "approximated", "it stays where it starts"
        ),
        Feature("flex", _all(at, "flex", "nflex"), "ignored", "bodies are rigid"),
        Feature("plugin", _all(at, "plugin", "nplugin"), "ignored", "plugins are not run"),
    ]


def _besides(at: Reference) -> list[Feature]:
    """What does not change the motion."""
    pictures = {"camera": "ncam", "light": "nlight", "skin": "nskin", "hfield": "nhfield", "texture": "ntex"}
    shown = {"mesh": "nmesh", "material": "nmat"}
    given = {"numeric": "nnumeric", "text": "ntext", "tuple": "ntuple"}
    return [
        *(
            Feature(kind, _all(at, kind, n), "ignored", "for pictures", moves=False)
            for kind, n in pictures.items()
        ),
        *(Feature(kind, _all(at, kind, n), why="in pictures", moves=False) for kind, n in shown.items()),
        Feature(
            "sensor", _all(at, "sensor", "nsensor"), "ignored", "use points and trajectories", moves=False
        ),
        *(
            Feature(kind, _all(at, kind, n), "ignored", "custom data", moves=False)
            for kind, n in given.items()
        ),
    ]


def _settings(at: Reference) -> list[Feature]:
    option = at.model.opt
    flags = [
        name.removeprefix("mjDSBL_") for name in dir(mujoco().mjtDisableBit) if name.startswith("mjDSBL_")
    ]
    off = tuple(flag.lower() for flag in flags if at.disabled(flag))
    integrator = mujoco().mjtIntegrator(option.integrator).name.removeprefix("mjINT_")
    own = (f"{integrator}, {option.timestep:g} s",)
    return [
        Feature("turned off by the file", off),
        Feature("integrator and time step", own, "ignored", "simulate has its own", moves=False),
    ]


def unused(at: Reference, keyframe: int | None) -> list[Feature]:
    """What is not modelled, but for equalities, tendons and actuators, which tell of themselves.

    **Arguments:**

    - `at`: the model in its reference posture.
    - `keyframe`: the number of the keyframe that the robot starts at.
    """
    others: Any = tuple(name for i, name in enumerate(at.names.keyframes) if i != keyframe)
    return [
        *_of_joints(at),
        *_of_contact(at),
        *_of_surroundings(at),
        *_settings(at),
        *_besides(at),
        Feature("keyframe", () if keyframe is None else (at.names.keyframes[keyframe],), why="the start"),
        Feature("keyframe", others, "ignored", "load(..., keyframe=...) starts at another", moves=False),
    ]
