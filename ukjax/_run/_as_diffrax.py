"""The motion as a differential equation of Diffrax's, for calls of `diffrax.diffeqsolve` of one's own."""

from typing import Any, NamedTuple

import diffrax as dfx
from jaxtyping import Array

from .._formula._acceleration import AbstractFormula
from .._misc._types import Numbers, Time, is_traced
from .._motion._model import Model, translate_model
from .._motion._project import Projection
from .._motion._solvers import with_projection
from .._system._constraint import require_bilateral
from .._system._problem import Problem, resolve_state
from .._system._stabilize import AbstractStabilizer
from .._system._system import AbstractSystem
from . import _options
from ._integrate import vector_field
from ._start import find_start


class DiffraxProblem(NamedTuple):
    """The arguments of `diffrax.diffeqsolve` that describe a motion.

    - `terms`: y' = f(t, y, args) of the state y = (q, v).
    - `solver`: the solver, whose steps are projected onto the constraints if the stabilizer projects.
    - `y0`: the state to start from.
    - `args`: what the term and the solver compute with.
    """

    terms: dfx.ODETerm
    solver: dfx.AbstractSolver
    y0: tuple[Array, Array]
    args: Any


def as_diffrax(
    system: AbstractSystem | Problem,
    q0: Numbers | None = None,
    v0: Numbers | None = None,
    *,
    t0: Time | float | None = None,
    formula: AbstractFormula | None = None,
    stabilizer: AbstractStabilizer = Projection(),
    solver: dfx.AbstractSolver = dfx.Dopri8(),
) -> DiffraxProblem:
    """The motion of a constrained system, v' = a(t, q, v) and q' = N(t, q) v, for Diffrax's own functions.

        terms, solver, y0, args = uk.as_diffrax(uk.models.pendulum())
        controller = diffrax.PIDController(rtol=1e-8, atol=1e-8)
        solution = diffrax.diffeqsolve(
            terms, solver, 0.0, 1.0, None, y0, args, stepsize_controller=controller
        )

    The state is the pair (q, v). Controllers, `SaveAt`, events, adjoints and steps by hand are yours to choose. States
    between steps are interpolated, and so are on the constraints only as near as the interpolation is: `uk.project` them.
    `simulate` does all this by itself, in less time.

    **Arguments:**

    - `system`: the system, or a `Problem`, which brings q0, v0 and t0.
    - `q0`: initial generalized coordinates (n_q,).
    - `v0`: initial generalized velocities (n,).
    - `t0`: the time of the initial state [s].
    - `formula`: how the acceleration is computed; by default as `simulate` does.
    - `stabilizer`: how constraint errors are kept small.
    - `solver`: any Diffrax solver for ordinary differential equations; `EnergyProjection` too.

    **Returns:** `DiffraxProblem`, to be unpacked.

    **Raises:** `InputError` for what `simulate` refuses of these.
    """
    t0 = system.t0 if t0 is None and isinstance(system, Problem) else t0
    system, t, q, v = resolve_state(system, t0, q0, v0)
    require_bilateral("as_diffrax", system.constraints)
    _options.require_method(formula, stabilizer, solver)
    chosen = _options.formula(formula, stabilizer, q.dtype)
    model = Model(system, chosen, stabilizer)
    model = translate_model(model, solver, t, q, v, automatic=formula is None)[0].ready()
    start = (
        model.start(t, (q, v))
        if is_traced((system, t, q, v))
        else find_start(model, t, q, v, formula is None)
    )
    wrapped = with_projection(solver) if stabilizer.projects else solver
    return DiffraxProblem(dfx.ODETerm(vector_field), wrapped, start, model)  # pyright: ignore[reportArgumentType]
