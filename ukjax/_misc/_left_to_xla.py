"""Why something that should be one program of scalars is left to XLA, beside what it gives, also through `jit`."""

from typing import final

import equinox as eqx

from ._errors import Untranslatable


@final
class LeftToXLA(eqx.Module):
    """Why a run is left to XLA.

    - `reason`: in words; none for one that is not.
    """

    reason: str = eqx.field(static=True, default="")

    def said(self, computed_by: str) -> str:
        """What a run is computed by, and why it is left to XLA, if it is."""
        return f"{computed_by}; steps by XLA, as {self.reason}" if self.reason else computed_by


def because(error: Untranslatable) -> LeftToXLA:
    """What is said of an error, without the name of a function of ours."""
    return LeftToXLA(str(error).partition(": ")[2].partition("\n")[0])
