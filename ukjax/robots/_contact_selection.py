"""What of a file's limits, dry friction and contacts a robot takes over, and with which coefficients."""

import functools
import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from .._misc._arguments import is_list, real_array
from .._misc._errors import InputError, format_value, require_known
from ._report import Row

_USUAL = (0.02, 1.0)  # MuJoCo's solref where a file gives none


class Coefficients(NamedTuple):
    """What a user gives of one coefficient: for all, and by one name or two."""

    every: float | None
    by_name: dict[frozenset[str], float]

    def of(self, *names: tuple[str, ...]) -> float | None:
        """That of one thing or of two, each by its names: of the pair, else the larger of the two's, else of all."""
        if not self.by_name:
            return self.every
        if len(names) == 2:
            pairs = [
                self.by_name[key]
                for a in names[0]
                for b in names[1]
                if len(key := frozenset((a, b))) == 2 and key in self.by_name
            ]
            if pairs:
                return pairs[0]
        single = [self.by_name[key] for own in names for a in own if (key := frozenset((a,))) in self.by_name]
        return max(single) if single else self.every

    def require_known(self, what: str, names: tuple[str, ...]) -> None:
        """Raises `InputError` for names that a file does not have."""
        for name in (x for key in self.by_name for x in key):
            require_known(f"name in {what}:", names, name)


def coefficients(what: str, value: Any, most: float) -> Coefficients:
    """What `load` is given for `restitution` or `friction`."""
    such = f"{what} must be a number, or map geoms, bodies, joints and pairs to such, as {{('foot', 'floor'): 0.5}}"

    def checked(x: Any) -> float:
        number = np.asarray(real_array(f"a value of {what}", x))
        if number.ndim or not 0 <= number <= most:
            upto = "at least 0" if np.isinf(most) else f"from 0 to {most:g}"
            raise InputError(f"a value of {what} must be one number, {upto}, got {format_value(x)}.")
        return float(number)

    if value is None:
        return Coefficients(None, {})
    if not isinstance(value, Mapping):
        return Coefficients(checked(value), {})
    by_name = {}
    for key, x in value.items():
        names = (key,) if isinstance(key, str) else key
        if not (isinstance(names, tuple) and len(names) in (1, 2) and all(isinstance(n, str) for n in names)):
            raise InputError(f"{such}, got the name {format_value(key)}.")
        by_name[frozenset(names)] = checked(x)
    return Coefficients(None, by_name)


def restitution_of(solref: np.ndarray) -> float:
    """e of a stiff contact of this `solref`: that of a spring and a damper that do not pull.

    With zeta the damping ratio, s = sqrt(1 - zeta^2) and bounces under their own inertia alone,

        e = exp(-zeta / s atan2(2 zeta s, 2 zeta^2 - 1))    (Schwager and Poeschel 2007, eq. (12)),

    zeta = b / (2 sqrt(k)) of solref = (-k, -b), and the second entry of (time constant, damping ratio). From zeta = 1 on,
    as by default, a contact is meant not to bounce: e = 0.
    """
    first, second = (float(x) for x in solref)
    if first > 0:
        zeta = second
    elif first < 0:
        zeta = -second / (2.0 * np.sqrt(-first))
    else:
        return 0.0
    if zeta >= 1:
        return 0.0
    zeta = max(zeta, 0.0)
    s = np.sqrt(1.0 - zeta**2)
    return float(np.exp(-zeta / s * np.arctan2(2.0 * zeta * s, 2.0 * zeta**2 - 1.0)))


def is_usual(solref: np.ndarray) -> bool:
    """Whether it is what MuJoCo takes where a file says nothing."""
    near = functools.partial(math.isclose, rel_tol=1e-5, abs_tol=1e-8)
    return all(map(near, solref, _USUAL))


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

    def asked_pairs(self, *names: tuple[str, str]) -> set[frozenset[str]]:
        """Those of `pairs` that two geoms are."""
        first, second = names if self.pairs else ((), ())
        return {frozenset((a, b)) for a in first for b in second} & self.pairs


def read_contact_selection(contact: Any, restitution: Any, friction: Any) -> ContactSelection:
    """The choice that a user made, as given to `load`."""
    selection = _read_contact_parts(contact)
    return selection._replace(
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
