"""Functions of users, called so that what they raise says whose they are."""

from collections.abc import Callable
from typing import Any

from ._conversions import mend
from ._errors import InputError, MissingExtraError, SimulationError

_LONGEST = 200  # characters of a message that come from an exception


def call_user_function(whose: str, fn: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """What a user's function returns.

    **Raises:** `InputError` for what the function raises, which is kept as its cause, with the mend where it asks for
    values that JAX traces; errors of ukjax as they are.
    """
    try:
        return fn(*arguments, **keywords)
    except (InputError, MissingExtraError, SimulationError):
        raise
    except Exception as error:
        what = mend(error) or f"raised {type(error).__name__}: {_first_line(error)}"
        raise InputError(f"{whose} {what}") from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["(no message)"])[0][:_LONGEST]
