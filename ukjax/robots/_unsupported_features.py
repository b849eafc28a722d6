"""What a file has that is not modelled, so that nothing is left out silently."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ._mujoco import mujoco
from ._reference import Reference
from ._report import Feature


def _name_objects(at: Reference, kind: str, numbers: Sequence[int] | np.ndarray) -> tuple[str, ...]:
    """The names of some of a kind of object, of those that have one, else "<kind> <number>"."""
    number = getattr(mujoco().mjtObj, f"mjOBJ_{kind.upper()}")
    return tuple(mujoco().mj_id2name(at.model, number, int(i)) or f"{kind} {i}" for i in numbers)


def _all(at: Reference, kind: str, count: str) -> tuple[str, ...]:
    return _name_objects(at, kind, range(getattr(at.model, count, 0)))


def _list_surroundings(at: Reference) -> list[Feature]:
    """Mocap bodies, what bends, and plugins."""
    model = at.model
    mocap = np.flatnonzero(np.array(model.body_mocapid) >= 0)
    return [
        Feature(
            "mocap body", tuple(at.names.bodies[i] for i in mocap), "approximated", "it stays where it starts"
        ),
        Feature("flex", _all(at, "flex", "nflex"), "ignored", "bodies are rigid"),
        Feature("plugin", _all(at, "plugin", "nplugin"), "ignored", "plugins are not run"),
    ]


def _besides(at: Reference) -> list[Feature]:
    """What does not change the motion."""
    pictures = {"camera": "ncam", "light": "nlight", "skin": "nskin", "texture": "ntex"}
    shown = {"mesh": "nmesh", "hfield": "nhfield", "material": "nmat"}
    given = {"numeric": "nnumeric", "text": "ntext", "tuple": "ntuple"}
    return [
        *(
            Feature(kind, _all(at, kind, n), "ignored", "for pictures", moves=False)
            for kind, n in pictures.items()
        ),
        *(Feature(kind, _all(at, kind, n), why="in pictures", moves=False) for kind, n in shown.items()),
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


def list_unmodelled(at: Reference, keyframe: int | None) -> list[Feature]:
    """What is not modelled, but for limits, contacts, equalities, tendons and actuators, which tell of themselves."""
    others: Any = tuple(name for i, name in enumerate(at.names.keyframes) if i != keyframe)
    return [
        *_list_surroundings(at),
        *_settings(at),
        *_besides(at),
        Feature("keyframe", () if keyframe is None else (at.names.keyframes[keyframe],), why="the start"),
        Feature("keyframe", others, "ignored", "load(..., keyframe=...) starts at another", moves=False),
    ]
