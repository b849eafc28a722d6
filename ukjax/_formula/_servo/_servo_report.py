"""What servo control tells: of one state, and of a run."""

from typing import final

import equinox as eqx
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..._misc._types import Forces, Velocities, is_traced
from ..._system._constraint_names import Kind


@final
class ServoControl(eqx.Module):
    """What `servo_control` returns; `str(control)` says in words which servo rows are not realized.

    - `u`: the inputs (p,).
    - `residual`: A_s a - b_s, one a servo row (s,): zero where the row is realized.
    - `realizable_rows`: whether the inputs realize the row, one a servo row (s,).
    - `realizable`: whether they realize all servo rows: (C Bbar)(C Bbar)^+ bbar = bbar (Liu 2015, eq. (33)).
    - `controllable`: whether the inputs act on the servo rows at all: rank of C Bbar >= 1 (Liu 2015, eq. (34)).
    - `rank`: the rank the servo rows were given as equations for u.
    - `multipliers`: what the inputs do along the servo rows, as the multipliers the rows would have if ideal
      constraint forces did the same to them: (C N)^+T Bbar u (s,).
    - `a`: the acceleration under u (n,).
    - `input_force`: B_u u (n,).
    - `constraint_force`: the force of the passive constraints under u (n,).
    - `names`: one name a servo row.
    """

    u: Float[Array, " p"]
    residual: Float[Array, " s"]
    realizable_rows: Bool[Array, " s"]
    realizable: Bool[Array, ""]
    controllable: Bool[Array, ""]
    rank: Int[Array, ""]
    multipliers: Float[Array, " s"]
    a: Velocities
    input_force: Forces
    constraint_force: Forces
    names: tuple[str, ...] = eqx.field(static=True)

    def __str__(self) -> str:
        if is_traced(self) or self.u.ndim != 1:
            return repr(self)
        lines = [
            f"{self.u.size} inputs, {len(self.names)} servo rows of rank {int(self.rank)}: "
            f"u = {np.array2string(np.asarray(self.u), precision=6)}."
        ]
        if not self.controllable:
            lines.append("No input acts on any servo row.")
        for name, realized, residual in zip(self.names, self.realizable_rows, self.residual, strict=True):
            if not realized:
                lines.append(f"Not realizable: {name} misses its acceleration by {float(residual):.3e}.")
        return "\n".join(lines)


@final
class ServoRun(eqx.Module):
    """How a run of k saved times followed its s servo rows, and by which p inputs; `Trajectory.servo` returns it.

    - `inputs`: u (k, p).
    - `position_error`: phi of the servo rows, the tracking error; 0 where they are none of positions (k, s).
    - `velocity_error`: psi of the servo rows (k, s).
    - `multipliers`: what the inputs do along each row, as its multiplier (k, s); see `ServoControl`.
    - `residual`: A_s a - b_s (k, s), zero where the inputs realize the row.
    - `realizable`: whether they realize all rows (k,).
    - `row_names`: the names of the s rows.
    - `row_kinds`: of each, `"holonomic"`, `"nonholonomic"`, `"acceleration"` or `"position"`.
    - `input_names`: of the p inputs: of actuators their names, else `u[0]`, ...
    """

    inputs: Float[Array, "k p"]
    position_error: Float[Array, "k s"]
    velocity_error: Float[Array, "k s"]
    multipliers: Float[Array, "k s"]
    residual: Float[Array, "k s"]
    realizable: Bool[Array, " k"]
    row_names: tuple[str, ...] = eqx.field(static=True)
    row_kinds: tuple[Kind, ...] = eqx.field(static=True)
    input_names: tuple[str, ...] = eqx.field(static=True)
