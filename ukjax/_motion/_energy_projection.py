"""The energy of the start kept by any Diffrax solver: one more invariant to project onto.

After a step the state is projected onto the constraints, then its velocity scaled, v* = s v, so that

    s^2 T + V = E0,    T = v.M v / 2,    V = E - T.

Of all velocities of that energy v* is the nearest in the mass metric, and it meets velocity rows A v = 0 as v did
(Hairer, Lubich and Wanner, Geometric Numerical Integration, IV.4).
"""

from typing import Any, final

import diffrax as dfx
import jax.numpy as jnp
from jaxtyping import Array

from .._misc._arguments import require_solver
from .._misc._errors import InputError
from .._misc._precision import in_full_precision
from ._model import Model
from ._projected_solver import ProjectedSolver, Stop
from ._wrapped_solver import AbstractForwardingSolver

# Near a turning point a little energy is much velocity: there it is left to the next step, which knows E0 as well.
_MOVING = 0.1
_TOO_FAR = 0.25  # the least part of the kinetic energy that a correction may leave


@in_full_precision
def _energy(model: Model, t: Array, q: Array, v: Array) -> Array:
    energy = model.system.energy(t, q, v)
    if energy is None:
        name = type(model.system).__name__
        raise InputError(f"EnergyProjection() needs the energy, and {name} does not define it.")
    return energy


@in_full_precision
def _scale_velocity(model: Model, t: Array, q: Array, v: Array, v_before: Array, wanted: Array) -> Array:
    """The velocity (n,) of the energy that is wanted."""
    M = model.system.mass_matrix(t, q)
    twice = lambda v: jnp.dot(v, M @ v)
    moving = twice(v) > _MOVING * twice(v - v_before)
    ratio = 1 + 2 * (wanted - _energy(model, t, q, v)) / jnp.where(moving, twice(v), 1)
    possible = moving & (ratio > _TOO_FAR)
    return jnp.where(possible, jnp.sqrt(jnp.where(possible, ratio, 1)), 1) * v


@final
class EnergyProjection(AbstractForwardingSolver):
    """A Diffrax solver whose steps end at the energy the run started with, as in
    `simulate(..., solver=EnergyProjection(diffrax.Dopri8()))`.

    After each step, projected if the stabilizer projects, the velocity is scaled so that the system's `energy` is that
    of the start. For systems that conserve it: no damping, no drives, constraints that do not depend on time, and a
    kinetic energy v.M v / 2. A step that ends near a turning point keeps its velocity. `step` starts anew each time.

    **Arguments:**

    - `solver`: any Diffrax solver for ordinary differential equations.

    **Raises:** `InputError` for anything else, and in a run where the system defines no energy.
    """

    solver: dfx.AbstractSolver

    def __init__(self, solver: dfx.AbstractSolver = dfx.Dopri8()):
        require_solver(solver)
        self.solver = solver

    def init(self, terms: Any, t0: Any, t1: Any, y0: Any, args: Model) -> Any:
        """The solver's state and the energy at `t0`; `terms`, `t1`, `y0` and `args` as Diffrax gives them."""
        return self.solver.init(terms, t0, t1, y0, args), _energy(args, t0, *y0)

    def step(
        self, terms: Any, t0: Any, t1: Any, y0: Any, args: Model, solver_state: Any, made_jump: Any
    ) -> Any:
        """The solver's step, scaled; the arguments are Diffrax's.

        **Arguments:**

        - `terms`: the vector field.
        - `t0`, `t1`: start and end [s].
        - `y0`: the state (q, v) at the start.
        - `args`: the model.
        - `solver_state`: the solver's own state, and the energy to keep [J].
        - `made_jump`: not needed, since every step may move the state.
        """
        inner, wanted = solver_state
        # The state was moved after the last step: a stage kept from it (first same as last) is stale.
        y1, error, dense_info, inner, result = self.solver.step(
            terms, t0, t1, y0, args, inner, made_jump=jnp.array(True)
        )
        y1 = y1[0], _scale_velocity(args, t1, *y1, y0[1], wanted)
        if "y1" in dense_info:
            dense_info = dense_info | {"y1": y1}
        return y1, error, dense_info, (inner, wanted), result


def with_projection(solver: dfx.AbstractSolver, stop: Stop | None = None) -> dfx.AbstractSolver:
    """The solver with its steps projected onto the constraints, and after that onto the energy if it is to be."""
    if isinstance(solver, EnergyProjection):
        return EnergyProjection(ProjectedSolver(solver.solver, stop))
    return ProjectedSolver(solver, stop)
