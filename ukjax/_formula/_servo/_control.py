"""Servo control as the user calls it: the inputs at one state, and the closed loop for `simulate`.

The law itself, with its equations, is in `_servo_law`.
"""

import dataclasses
from typing import final, overload

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
from jaxtyping import Array, Float

from ..._misc._arguments import flag, require_instance
from ..._misc._errors import InputError
from ..._misc._types import Coordinates, Forces, Numbers, Time, Velocities, is_traced
from ..._pseudoinverse import AbstractPseudoinverse, GramSchmidt
from ..._system._constraint import require_bilateral
from ..._system._labels import make_indexed_names, own_labels
from ..._system._problem import Problem, resolve_state
from ..._system._rows import Rows
from ..._system._stabilize import AbstractStabilizer, NoStabilizer
from ..._system._system import AbstractForwardingSystem, AbstractSystem
from ._servo_law import Formula, FreeVector, InputMatrix, Law, ServoConstraints
from ._servo_report import ServoControl, ServoRun


@eqx.filter_jit
def _control(law: Law, system: AbstractSystem, t: Array, q: Array, v: Array) -> ServoControl:
    return law.solve(system, t, q, v)


def servo_control(
    system: AbstractSystem | Problem,
    input_matrix: InputMatrix,
    servo_constraints: ServoConstraints,
    t: Time | float | None = None,
    q: Numbers | None = None,
    v: Numbers | None = None,
    *,
    stabilizer: AbstractStabilizer = NoStabilizer(),
    passive_stabilizer: AbstractStabilizer = NoStabilizer(),
    formula: Formula = "eliminate",
    free: FreeVector | None = None,
    weight: Array | None = None,
    pinv: AbstractPseudoinverse | lx.AbstractLinearSolver = GramSchmidt(),
    throw: bool = False,
) -> ServoControl:
    """The inputs u that make a system follow servo constraints: u = (C Bbar)^+ bbar + [I - (C Bbar)^+ (C Bbar)] s.

    Constraint-following servo control (Liu 2015, eq. (35)), for fully, under- and redundantly actuated systems;
    the passive constraints are eliminated first (theory: `_servo_law`). Where the inputs cannot realize the rows, u
    is the least-squares one, and the report names the rows. Needs M > 0; jit, vmap and differentiation apply.

    **Arguments:**

    - `system`: the system with its passive constraints, or a `Problem`, which brings its initial state.
    - `input_matrix`: B_u (n, p), the generalized forces of p unit inputs, or a function of (t, q).
    - `servo_constraints`: the rows to follow: `Holonomic`, `Nonholonomic`, `AccelerationConstraint`.
    - `t`: time [s].
    - `q`: generalized coordinates (n_q,).
    - `v`: generalized velocities (n,).
    - `stabilizer`: gains on the errors of the servo rows, for a start or a disturbance off them: `Baumgarte`.
    - `passive_stabilizer`: the one that the passive rows are simulated with, if it is `Baumgarte`.
    - `formula`: `"eliminate"`, u of least norm among all that do; or `"paper"`, Liu's own with the passive force
      consistent with u, which need not be the least.
    - `free`: s (p,), which moves u among those that do the same, or a function of (t, q, v); by default zero.
    - `weight`: R (p,) or (p, p), positive: u is least in u^T R u (nearest to s in it); by default the identity.
    - `pinv`: a pseudoinverse method that handles dependent rows, or a lineax solver.
    - `throw`: raise an error where a servo row is not realizable.

    **Returns:** `ServoControl`.

    **Raises:** `InputError` for wrong shapes, no servo rows, non-finite values and a mass matrix that is not
    positive definite; with `throw`, for rows that are not realizable, by name (under `jit` a runtime error).
    """
    law = Law(input_matrix, servo_constraints, stabilizer, passive_stabilizer, formula, free, weight, pinv)
    flag("throw", throw)
    system, t, q, v = resolve_state(system, t, q, v)
    require_bilateral("servo_control", system.constraints)
    control = _control(law, system, t, q, v)
    if is_traced(control):
        message = f"the inputs cannot realize all servo rows {', '.join(control.names)}."
        return eqx.error_if(control, ~control.realizable, message) if throw else control
    if not np.all(np.isfinite(control.u)):
        raise InputError(law.why_not_finite(system, t, q, v))
    if throw and not control.realizable:
        raise InputError(f"the inputs cannot realize all servo rows at t = {t}. {control}")
    return control


@final
class Servoed(AbstractForwardingSystem):
    """A system under servo control: its force gains B_u u(t, q, v); all else is the system's own.

    Made by `with_servo`. The servo rows are not among its `constraints`: nothing but the inputs keeps them.

    **Arguments:**

    - `system`: the system without its inputs.
    - `law`: the control law.
    """

    system: AbstractSystem
    law: Law

    def force(self, t: Time, q: Coordinates, v: Velocities) -> Forces:
        return self.system.force(t, q, v) + self.law.input_force(self.system, t, q, v)

    def control(self, t: Time, q: Coordinates, v: Velocities) -> Float[Array, " p"]:
        """The inputs u (p,); along a run they are in `trajectory.servo().inputs`."""
        return self.report(t, q, v).u

    def report(self, t: Time, q: Coordinates, v: Velocities) -> ServoControl:
        """u and what it does, as `servo_control` returns it."""
        return _control(self.law, self.system, jnp.asarray(t, q.dtype), q, v)


@eqx.filter_jit
def compute_servo_run(servoed: Servoed, t: Array, q: Array, v: Array) -> ServoRun:
    """How a run followed its servo rows."""
    law, system = servoed.law, servoed.system

    def at(t: Array, q: Array, v: Array) -> tuple[ServoControl, Rows]:
        return law.solve(system, t, q, v), law.task(system, t, q, v)

    control, rows = jax.vmap(at)(t, q, v)
    p = control.u.shape[1]
    return ServoRun(
        inputs=control.u,
        position_error=rows.position_error,
        velocity_error=rows.velocity_error,
        multipliers=control.multipliers,
        residual=control.residual,
        realizable=control.realizable,
        row_names=rows.names,
        row_kinds=rows.kinds,
        input_names=own_labels(law.input_matrix, "labels", p) or make_indexed_names("u", p),
    )


@overload
def with_servo(system: Problem, *args, **kwargs) -> Problem: ...
@overload
def with_servo(system: AbstractSystem, *args, **kwargs) -> Servoed: ...
def with_servo(
    system: AbstractSystem | Problem,
    input_matrix: InputMatrix,
    servo_constraints: ServoConstraints,
    *,
    stabilizer: AbstractStabilizer = NoStabilizer(),
    passive_stabilizer: AbstractStabilizer = NoStabilizer(),
    formula: Formula = "eliminate",
    free: FreeVector | None = None,
    weight: Array | None = None,
    pinv: AbstractPseudoinverse | lx.AbstractLinearSolver = GramSchmidt(),
) -> Servoed | Problem:
    """The closed loop: the system with the inputs of `servo_control` at every state, for `simulate`.

    **Arguments:**

    - `system`: the system with its passive constraints, or a `Problem`.
    - `input_matrix`, `servo_constraints`, `stabilizer`, `passive_stabilizer`, `formula`, `free`, `weight`, `pinv`:
      as for `servo_control`.

    **Returns:** a `Servoed` system, whose `control(t, q, v)` is u; of a `Problem`, the problem with it for system
    and no `reference`.

    **Raises:** `InputError` for invalid arguments.
    """
    law = Law(input_matrix, servo_constraints, stabilizer, passive_stabilizer, formula, free, weight, pinv)
    require_instance("system", system, (AbstractSystem, Problem), "uk.models.scara()")
    if isinstance(system, Problem):
        return dataclasses.replace(system, system=Servoed(system.system, law), reference=None)
    return Servoed(system, law)
