"""What was measured in one run."""

import dataclasses
from collections.abc import Mapping
from typing import Any, final

import numpy as np

from ..._misc._arguments import real_values, require_finite, require_instance
from ..._misc._closures import require_untraced
from ..._misc._errors import InputError, format_value, unknown_name
from ..._misc._types import Numbers


def _vector(name: str, value: Any) -> np.ndarray:
    array = np.asarray(real_values(name, value))
    if array.ndim != 1 or not array.size:
        raise InputError(f"{name} has shape {array.shape}; it must be a vector.")
    return array


@final
@dataclasses.dataclass(frozen=True)
class Recording:
    """What was measured in one run: k times, and the values of each sensor at these.

    **Arguments:**

    - `t`: increasing times [s] (k,).
    - `y`: what was measured (k,) or (k, d); or a dict of these by the names that `measure` returns. A name that is left
      out was not measured in this run.
    - `missing`: which samples are not there: True where not, an array like `y`, or a dict of these by name. `"nan"`
      says that NaN stands for a missing sample. Without it a NaN is an error.
    - `q0`, `v0`: initial coordinates and velocities of this run; by default the problem's.
    - `t0`: when this run starts [s]; by default the problem's `t0`.
    - `inputs`: arguments of the model that are known and differ between recordings, such as a measured torque: a dict of
      arrays. All recordings have the same names and shapes.
    - `name`: by default its number.
    """

    t: Any
    y: Any
    _: dataclasses.KW_ONLY
    missing: Any = None
    q0: Numbers | None = None
    v0: Numbers | None = None
    t0: float | None = None
    inputs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    name: str = ""

    def __post_init__(self):
        require_untraced("Recording", self.t, self.y, self.inputs, self.q0, self.v0)
        t = _vector("t of a recording", self.t)
        require_finite("t of a recording", t)
        if np.any(back := np.diff(t) <= 0):
            i = int(np.argmax(back))
            raise InputError(f"t of a recording must increase; t[{i + 1}] = {t[i + 1]:g} follows {t[i]:g}.")
        object.__setattr__(self, "t", t)
        series = self.y if isinstance(self.y, Mapping) else {"": self.y}
        if not series:
            raise InputError("y of a recording is empty: give an array or a dict of arrays.")
        object.__setattr__(self, "y", {name: self._series(name, x) for name, x in series.items()})
        require_instance("inputs of a recording", self.inputs, Mapping, "{'torque': values}")
        for name in ("q0", "v0"):
            if (value := getattr(self, name)) is not None:
                require_finite(f"{name} of a recording", _vector(f"{name} of a recording", value))
        require_instance("the name of a recording", self.name, str, "'swing 1'")

    def _series(self, name: str, given: Any) -> np.ndarray:
        """Values (k, d), NaN for those that are missing."""
        what = f"y['{name}'] of a recording" if name else "y of a recording"
        y, count = np.array(real_values(what, given), float), self.t.size
        if y.ndim not in (1, 2) or y.shape[0] != count:
            raise InputError(f"{what} has shape {y.shape}; there are {count} times, so give ({count}, d).")
        y, missing = y.reshape(count, -1), self.missing
        if isinstance(missing, str):
            if missing != "nan":
                raise InputError(
                    f"missing must be 'nan', an array like y, or a dict of these, got {missing!r}."
                )
            absent = np.isnan(y)
        else:
            if isinstance(missing, Mapping):
                if unknown := [key for key in missing if not name or key not in self.y]:
                    raise unknown_name("series in missing", unknown[0], self.y if name else ())
                missing = missing.get(name)
            absent = np.zeros(y.shape, bool) if missing is None else np.asarray(missing)
            if absent.dtype != bool or absent.size not in (count, y.size):
                raise InputError(
                    f"missing must be True and False like {what}, got {format_value(self.missing)}."
                )
            absent = np.broadcast_to(absent.reshape(count, -1), y.shape)
        wrong = ~np.isfinite(y) & ~absent
        if wrong.any():
            i = int(np.argmax(wrong.any(axis=1)))
            raise InputError(
                f"{what} is {y[i][wrong[i]][0]} at sample {i}, t = {self.t[i]:g}: give missing='nan' if NaN says that "
                "there is no sample, or a mask."
            )
        return np.where(absent, np.nan, y)
