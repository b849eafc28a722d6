"""What of a file's limits, dry friction and contacts a robot takes over."""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from .._misc._arguments import is_list
from .._misc._errors import InputError
from ._coefficients import Coefficients, coefficients
from ._rows import Row

_WORDS = ("limits", "friction", "ground", "self")


class ContactSelection(NamedTuple):
    """A choice, as given to `load`."""

    words: frozenset[str]  # of `"limits"`, `"friction"`, `"ground"`, `"self"`
    pairs: frozenset[frozenset[str]]  # of geoms or bodies whose contact is taken besides
    given: bool  # whether it was given, so that what is left out is so on purpose
    # `restitution`, `friction`: in place of the file's.
    restitution: Coefficients = Coefficients(None, {})
    friction: Coefficients = Coefficients(None, {})

    @property
    def touching(self) -> bool:
        """Whether any geoms touch."""
        return self.has("ground") or self.has("self") or bool(self.pairs)

    def has(self, word: str) -> bool:
        """Whether something is taken over."""
        return word in self.words

    def left_out(self, feature: str, names: Iterable[str], word: str) -> list[Row]:
        """Lines for the report on what is not taken over."""
        why = f"not asked for: load(..., contact=True), or contact=['{word}']"
        return [(feature, name, "off" if self.given else "ignored", why) for name in names]

    def matching(self, *names: tuple[str, str]) -> set[frozenset[str]]:
        """Those of `pairs` that two geoms are."""
        first, second = names if self.pairs else ((), ())
        return {frozenset((a, b)) for a in first for b in second} & self.pairs


def read_contact_selection(contact: Any, restitution: Any, friction: Any) -> ContactSelection:
    """The choice that a user made, as given to `load`."""
    found = _read_contact_parts(contact)
    return found._replace(
        restitution=coefficients("restitution", restitution, 1.0),
        friction=coefficients("friction", friction, math.inf),
    )


def _read_contact_parts(contact: Any) -> ContactSelection:
    if contact is None or isinstance(contact, bool):
        return ContactSelection(frozenset(_WORDS if contact else ()), frozenset(), contact is not None)
    such = f"True, False, or a list of {', '.join(map(repr, _WORDS))} and pairs of geoms or bodies ('foot', 'floor')"
    if not is_list(contact):
        raise InputError(f"contact must be {such}, got {contact!r}.")
    words, pairs = set(), set()
    for x in contact:
        if isinstance(x, str) and x in _WORDS:
            words.add(x)
        elif isinstance(x, tuple | list) and len(x) == 2 and all(isinstance(name, str) for name in x):
            pairs.add(frozenset(x))
        else:
            raise InputError(f"contact must be {such}, got {x!r} in it.")
    return ContactSelection(frozenset(words), frozenset(pairs), True)
