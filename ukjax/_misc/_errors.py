"""The errors ukjax raises. Each carries one sentence: what was wrong and what would be right."""

import contextlib
import difflib
from collections.abc import Container, Iterable, Iterator
from typing import Any


class InputError(ValueError):
    """An invalid argument: a wrong shape, a NaN, an unknown name, a negative gain.

    The message is one line, also where it shows an array or quotes another error.

    **Arguments:**

    - `message`: what was wrong and what would be right.
    """

    def __init__(self, message: str):
        super().__init__(" ".join(str(message).split()))


class Untranslatable(Exception):  # noqa: N818
    """A function that cannot be written as a program of scalars; the message says which operation of it, and why.

    - `at`: the line of a user's function that has the operation, such as "model.py, line 12"; empty where not known.
    """

    def __init__(self, message: str, at: str = ""):
        super().__init__(message)
        self.at = at


class SimulationError(RuntimeError):
    """A simulation that could not be finished, raised only where `throw=True` was asked for."""


class SweepError(RuntimeError):
    """Chunks of a sweep that workers could not make, however often they were tried; the store has all others.

    - `reasons`: why, by number of the chunk.

    **Arguments:**

    - `message`: how many, and why.
    - `reasons`: of each.
    """

    def __init__(self, message: str, reasons: dict[int, str]):
        super().__init__(" ".join(str(message).split()), reasons)
        self.reasons = reasons

    def __str__(self) -> str:
        return self.args[0]


class MissingExtraError(ImportError):
    """An optional dependency that is not installed; the message names the extra that brings it."""


class StartMovedWarning(UserWarning):
    """An initial state that was visibly off the constraints: the run starts from the nearest one on them."""


class ConstraintWarning(UserWarning):
    """A run whose constraints are not kept, though its states are projected onto them: they contradict each other."""


class CacheWarning(UserWarning):
    """Compiled programs are not kept for other processes: their folder is not this user's alone, or cannot be made."""


class ContactWarning(UserWarning):
    """A run that met contacts of which no motion obeys the laws, or several do: it says by what rule it went on."""


def missing_extra(feature: str, extra: str) -> MissingExtraError:
    """The error for a `feature` whose optional dependencies come with `ukjax[extra]`."""
    return MissingExtraError(
        f"{feature} needs an optional dependency: install it with `pip install 'ukjax[{extra}]'`."
    )


@contextlib.contextmanager
def needing(feature: str, extra: str) -> Iterator[None]:
    """Turns an import that fails within into `missing_extra`."""
    try:
        yield
    except ImportError as error:
        raise missing_extra(feature, extra) from error


_SHOWN = 200  # characters of a value in a message


def format_value(value: Any) -> str:
    """A value as a message shows it, cut where it is long."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


# Names in a message: a robot has hundreds, and the one that is meant is near the given one.
_MOST_LISTED, _ALIKE = 50, 12


def unknown_name(kind: str, name: Any, known: Iterable[str]) -> InputError:
    """The error for a name that is not known, with the closest one that is, and all there are; of many those most alike.

    **Arguments:**

    - `kind`: what is named, such as `"model"`.
    - `name`: what was given.
    - `known`: the names there are.
    """
    known = list(dict.fromkeys(known))
    close = difflib.get_close_matches(str(name), known, n=1)
    hint = f"; did you mean '{close[0]}'?" if close else "."
    if len(known) <= _MOST_LISTED:
        return InputError(f"unknown {kind} '{name}'{hint} Known: {', '.join(known)}.")
    alike = difflib.get_close_matches(str(name), known, n=_ALIKE, cutoff=0)
    rest = len(known) - len(alike)
    return InputError(f"unknown {kind} '{name}'{hint} Known: {', '.join(alike)} and {rest} more.")


def require_known(kind: str, known: Iterable[str], *names: Any) -> None:
    """Raises `unknown_name` for the first of some names that is not among those there are."""
    known = known if isinstance(known, Container) else list(known)
    for name in names:
        if name not in known:
            raise unknown_name(kind, name, known)
