"""MuJoCo, which reads and compiles robots' files; an optional dependency."""

from typing import Any

from .._misc._errors import missing_extra


def mujoco() -> Any:
    """The module `mujoco`.

    **Raises:** `MissingExtraError` where it is not installed.
    """
    try:
        import mujoco
    except ImportError as error:
        raise missing_extra("loading a robot", "robots") from error
    return mujoco
