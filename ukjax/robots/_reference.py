"""A compiled model in its reference posture: names, and which body of the tree carries what.

The reference posture is the one at `qpos0`, so every place and direction of the tree is one of MuJoCo's there.
"""

from typing import Any, NamedTuple

import numpy as np

from .._misc._errors import needing
from .._system._labels import unique_names
from ..mechanisms import GROUND


def mujoco() -> Any:
    """The module `mujoco`."""
    with needing("loading a robot", "robots"):
        import mujoco
    return mujoco


LEAST = 1e-15
"""MuJoCo's mjMINVAL: what it divides by at least, and the least mass."""


def name_of(model: Any, kind: str, i: int) -> str:
    """The name of one of a kind of object, such as `"geom"`; empty where it has none."""
    return mujoco().mj_id2name(model, getattr(mujoco().mjtObj, f"mjOBJ_{kind.upper()}"), i) or ""


def is_given(model: Any, field: str, i: int) -> bool:
    """Whether a model has a field, which older versions of MuJoCo lack, and entry i of it is not zero."""
    return bool(np.any(getattr(model, field, np.zeros(i + 1))[i]))


# The largest rounding of a place or a direction beside what it is a part of: turning by a few quaternions leaves that.
# What is smaller is zero, so that scalar code leaves it out.
_ROUNDING = 1e-14


class Names(NamedTuple):
    """The names of what is in a file, by MuJoCo's numbers; what has no name there gets one."""

    # `bodies`, `joints`, `sites`, `tendons`, `actuators`, `equalities`, `keyframes`, `sensors`: of each.
    bodies: tuple[str, ...]
    joints: tuple[str, ...]
    sites: tuple[str, ...]
    tendons: tuple[str, ...]
    actuators: tuple[str, ...]
    equalities: tuple[str, ...]
    keyframes: tuple[str, ...]
    sensors: tuple[str, ...]


class Reference(NamedTuple):
    """A model in its reference posture."""

    model: Any  # MuJoCo's `MjModel`
    data: Any  # its `MjData` at `qpos0`: `xpos`, `xmat`, `xipos`, `xanchor`, `xaxis`, `site_xpos`, ..
    names: Names  # of all parts
    # `carriers`: the name of the tree's body that carries each of MuJoCo's bodies; `"ground"` for what stands still.
    carriers: tuple[str, ...]

    def frame(self, kind: str, number: int) -> tuple[str, np.ndarray, np.ndarray]:
        """What carries a body, site or geom, its place in the reference posture [m], and its axes there as columns."""
        prefix = "" if kind == "body" else f"{kind}_"
        body = number if kind == "body" else getattr(self.model, f"{kind}_bodyid")[number]
        places, axes = (getattr(self.data, f"{prefix}{x}")[number] for x in ("xpos", "xmat"))
        return self.carriers[body], remove_rounding(places), remove_rounding(axes.reshape(3, 3))

    def is_disabled(self, flag: str) -> bool:
        """Whether the file turns something off, such as `"GRAVITY"`."""
        return bool(self.model.opt.disableflags & getattr(mujoco().mjtDisableBit, f"mjDSBL_{flag}", 0))


def remove_rounding(x: np.ndarray, size: float = 1.0) -> np.ndarray:
    """Numbers without rounding about zero."""
    return np.where(np.abs(x) < _ROUNDING * size, 0.0, x)


def word_of(enumeration: str, number: Any) -> str:
    """The word of a file for a number of MuJoCo's: of `"Geom"` such as `"capsule"`."""
    name: str = getattr(mujoco(), f"mjt{enumeration}")(int(number)).name
    return name.partition("_")[2].lower()


def kind_of(model: Any, joint: int) -> str:
    """`"free"`, `"ball"`, `"slide"` or `"hinge"`."""
    return word_of("Joint", model.jnt_type[joint])


def _names_of(model: Any) -> Names:
    def of(kind: str, count: int, unnamed: Any) -> tuple[str, ...]:
        return unique_names([name_of(model, kind, i) or unnamed(i) for i in range(count)])

    bodies = of("body", model.nbody, lambda i: f"body {i}")
    bodies = (GROUND, *(f"{name} body" if name == GROUND else name for name in bodies[1:]))
    return Names(
        bodies,
        of("joint", model.njnt, lambda i: f"{bodies[model.jnt_bodyid[i]]} {kind_of(model, i)}"),
        of("site", model.nsite, lambda i: f"site {i}"),
        of("tendon", model.ntendon, lambda i: f"tendon {i}"),
        of("actuator", getattr(model, "nactuator", model.nu), lambda i: f"actuator {i}"),
        of("equality", model.neq, lambda i: f"equality {i}"),
        of("key", model.nkey, lambda i: f"keyframe {i}"),
        of("sensor", model.nsensor, lambda i: f"sensor {i}"),
    )


def reference(model: Any, keyframe: int | None, merge_fixed: bool) -> Reference:
    """A model in its reference posture."""
    data = mujoco().MjData(model)
    if keyframe is not None:
        mujoco().mj_resetDataKeyframe(model, data, keyframe)
    data.qpos[:] = model.qpos0
    mujoco().mj_kinematics(model, data)
    mujoco().mj_comPos(model, data)
    names = _names_of(model)
    carriers = list[str]()
    for i, weld in enumerate(model.body_weldid):
        still = model.body_dofnum[weld] == 0  # the world, and mocap bodies
        alone = not merge_fixed and i > 0 and model.body_mass[i] > 0 and (still or model.body_mass[weld] > 0)
        moves = weld == i and not still
        # A body that hangs on one kept apart stays with it.
        onto = i if alone or moves or i == 0 else int(model.body_parentid[i])
        carriers.append(names.bodies[i] if onto == i else carriers[onto])
    return Reference(model, data, names, tuple(carriers))
