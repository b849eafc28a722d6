"""MuJoCo, which reads and compiles robots' files; an optional dependency."""

from typing import Any

import numpy as np

from .._misc._errors import missing_extra


def mujoco() -> Any:
    """The module `mujoco`."""
    try:
        import mujoco
    except ImportError as error:
        raise missing_extra("loading a robot", "robots") from error
    return mujoco


def is_given(model: Any, field: str, i: int) -> bool:
    """Whether a model has a field, which older versions of MuJoCo lack, and entry i of it is not zero."""
    return bool(np.any(getattr(model, field, np.zeros(i + 1))[i]))
