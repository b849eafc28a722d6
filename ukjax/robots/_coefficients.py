"""Restitution and friction: as a user gives them by geom, body, joint or pair, and as a file's solref implies them."""

import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from .._misc._arguments import real_array
from .._misc._errors import InputError, format_value, unknown_name

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
            if name not in names:
                raise unknown_name(f"name in {what}:", name, dict.fromkeys(names))


def coefficients(what: str, value: Any, most: float) -> Coefficients:
    """What `load` is given."""
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
