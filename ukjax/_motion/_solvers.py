"""Diffrax solvers that project: onto the constraints after each step, and onto the energy of the start."""

import dataclasses
import functools
from typing import Any, NamedTuple, final

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from .._misc._arguments import require_solver
from .._misc._errors import InputError
from .._misc._tolerances import CLOSER_TO_SINGULAR, ON_CONSTRAINTS, nearly_dependent
from .._misc._types import T, in_full_precision
from .._system._rows import constraint_rows, is_off
from .._system._system import has_quasi_velocities
from ._model import Model, project_by_code
from ._project import Directions, Projection, position_directions, velocity_directions

# --- What a solver that wraps another one leaves to it

_SCANS = {dfx.ForwardMode: "lax", dfx.DirectAdjoint: "bounded"}


def with_scan(solver: Any, adjoint: dfx.AbstractAdjoint) -> Any:
    """The solver, with the loop over its stages as an adjoint can differentiate it.

    Diffrax sees to that, but not for a solver that another one wraps.
    """
    kind = _SCANS.get(type(adjoint))
    if kind is None or getattr(solver, "scan_kind", "") is not None:
        return solver
    return eqx.tree_at(lambda s: s.scan_kind, solver, kind, is_leaf=lambda x: x is None)


class AbstractForwardingSolver(dfx.AbstractWrappedSolver):
    """A Diffrax solver around another, which answers all but `init` and `step`.

    - `solver`: the other one.
    """

    solver: eqx.AbstractVar[Any]

    @property
    def term_structure(self) -> Any:
        return self.solver.term_structure

    @property
    def interpolation_cls(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.solver.interpolation_cls

    @property
    def term_compatible_contr_kwargs(self) -> Any:
        return self.solver.term_compatible_contr_kwargs

    @property
    def root_finder(self) -> Any:
        return self.solver.root_finder

    @property
    def scan_kind(self) -> Any:  # Diffrax's forward-mode adjoints set it
        return self.solver.scan_kind

    def order(self, terms: Any) -> int | None:
        """The solver's; `terms` as Diffrax gives them."""
        return self.solver.order(terms)

    def strong_order(self, terms: Any) -> Any:
        """The solver's; `terms` as Diffrax gives them."""
        return self.solver.strong_order(terms)

    def error_order(self, terms: Any) -> Any:
        """The solver's; `terms` as Diffrax gives them."""
        return self.solver.error_order(terms)

    def func(self, terms: Any, t0: Any, y0: Any, args: Any) -> Any:
        """The solver's; `terms`, `t0`, `y0` and `args` as Diffrax gives them."""
        return self.solver.func(terms, t0, y0, args)


# --- Any Diffrax solver, with its state projected onto the constraints after each step
#
# Two things make this right at every tolerance, also where the linkage passes a singular position.
#
# Of the error estimate, the part along nearly dependent rows is left out: the projection removes it, so it is no
# error. Near a singular position the accelerations of the inner stages, which lie off the constraints by a little,
# are wrong in just those directions, by that little over the smallest singular value. Counted as an error it makes
# the controller shrink the step until it is trapped there. (Along well-conditioned rows the estimate stays whole:
# it guards the convergence of the projection, and the states between steps.)
#
# A step that ends where the rows are much closer to singular than where it began is refused. It would be
# consistent, but the next acceleration would amplify rounding. A refused step is retried shorter, ends before the
# singular position, and the next one passes it.
#
# A step from whose end no projection reaches the constraints is refused too, until it is too short to be the reason:
# then no motion keeps them any longer, and the run ends there. Steps leave the constraints by their curvature, which
# is of second order: in a step of a root of EPS of one that was accepted, it is rounding. A limit of the time's rounding
# alone would be passed by steps little longer, for ever, where rows depend on each other ever less.
#
# So it does where velocities would have to jump, because the slope of a constraint jumps, or rows that were redundant
# stop the motion. By how much a projection moves velocities vanishes with the step elsewhere, but for rounding, which
# grows as the rows come closer to singular. So a small part of it counts as an error; and where they are moved in a step
# that is too short to be the reason, or by more than what they are then, they jump.

_REFUSED = 1e8
_OF_MOVE = 1e-3  # small, as beside singular positions steps that are right are moved by more than their error
# In units of rounding of the time: a step this short changes nothing. More than `GuardedController` gives up at, 10, by
# more than a controller shrinks a step at once, to a fifth.
_SHORTEST = 64
# Of the longest accepted step: in float32, after some minutes, steps of that size are nothing out of the ordinary.
_SHORT_OF_LONGEST = 1e-2


def _without_weak_part(e: Array, every: Directions, strong: Directions) -> Array:
    """An error less its part along nearly dependent rows: those in `every` that `strong` leaves out."""
    along = every.J @ e
    return e + every.correction(along) - strong.correction(along)


@in_full_precision
def end_of_step(
    model: Model, t: Array, y: tuple[Array, Array], error: tuple[Array, Array] | None
) -> tuple[tuple[Array, Array], tuple[Array, Array] | None, Any]:
    """The projected state, the error that the controller is to see, and the nearness, as of a `ProjectedStep`."""
    system, method = model.system, model.stabilizer.projection_method
    assert method is not None
    if model.projection is not None:
        end = project_by_code(model, t, y, error)
        return (end.q, end.v), end.errors, end.nearness
    q, v = Projection(method).positions(system, t, y[0]), y[1]
    rows = constraint_rows(system, t, q, v)
    every, strong = (
        dataclasses.replace(method, rcond=rcond) for rcond in (ON_CONSTRAINTS, nearly_dependent(q.dtype))
    )
    directions, psi = velocity_directions(system, t, q, rows, every)
    change = directions.correction(psi)
    v, psi = v + change, psi + directions.J @ change
    off = is_off(rows.position_error, q) | is_off(psi, v)
    if error is not None:
        pair = directions, velocity_directions(system, t, q, rows, strong)[0]
        if has_quasi_velocities(system) or np.any(rows.of_velocities & ~rows.of_positions):
            of_q = tuple(position_directions(system, t, q, method) for method in (every, strong))
        else:
            of_q = pair
        error = _without_weak_part(error[0], *of_q), _without_weak_part(error[1], *pair)
    near = jnp.max(jnp.abs(directions.inverse), initial=0)
    return (q, v), error, jnp.where(off, jnp.inf, near)


def shortest_step(*times: Array) -> Array:
    """The length of a step that is too short to change anything at these times [s]."""
    return _SHORTEST * jnp.finfo(times[0].dtype).eps * functools.reduce(jnp.maximum, map(jnp.abs, times))


def inflate_error_if_singular(error: T, after: Array, before: Array) -> T:
    """The error estimate of a step; of one that ends much closer to singular than it starts so large that the controller
    refuses it.
    """
    singular = (after != jnp.inf) & (jnp.abs(after) > CLOSER_TO_SINGULAR * jnp.abs(before))
    return jax.tree.map(lambda e: jnp.where(singular, _REFUSED * e, e), error)


def inflate_error_if(broken: Array, error: T, short: Array) -> T:
    """The error estimate of a step; where it is broken so large that the controller refuses it, until it is too short for
    that to be the reason.
    """
    of_step = jnp.where(short, 0.0, jnp.inf)
    return jax.tree.map(lambda e: jnp.where(broken, of_step.astype(e.dtype), e), error)


def judge_constraints(
    error: tuple[Array, Array],
    near: Array,
    v: Array,
    projected: Array,
    h: Array,
    shortest: Array,
    longest: Array,
) -> tuple[tuple[Array, Array], Array]:
    """The error estimate of a step whose velocities v were projected, and whether no motion keeps the constraints.

    **Arguments:**

    - `error`: of q and v, as `end_of_step` gives it.
    - `near`: how close to singular the rows are at its end, infinite where it is off the constraints.
    - `v`, `projected`: the velocities before and after the projection (n,).
    - `h`: the length of the step, of which one up to `shortest` is too short to be the reason [s].
    - `longest`: that of the longest accepted step [s]. One that is off after a tiny part of it, and right but for that,
      is accepted, so that the run ends.
    """
    ordinary = h > jnp.where(longest > 0, _SHORT_OF_LONGEST * longest, jnp.inf)
    short, off = (h <= shortest) & ~ordinary, near == jnp.inf
    departs = off & ~short & (h <= jnp.sqrt(jnp.finfo(h.dtype).eps) * longest)
    moved, near = lax.stop_gradient((projected - v, jnp.abs(near)))
    largest = lambda x: jnp.max(jnp.abs(x), initial=0)
    jumps = is_off(moved / (1 + near), projected)
    broken = off | (jumps & (short | (largest(moved) > largest(projected))))
    least = jnp.where(jumps, _OF_MOVE * jnp.abs(moved), 0)
    error = error[0], jnp.where(jnp.abs(error[1]) < least, least, error[1])
    return inflate_error_if(broken & ~departs, error, short), broken


@eqx.filter_jit
def _step(
    solver: dfx.AbstractSolver,
    terms: Any,
    t0: Any,
    t1: Any,
    y0: Any,
    args: Model,
    solver_state: Any,
    stop: "Stop | None",
) -> Any:
    """A step as `ProjectedSolver.step`: Diffrax asks for it four times in a run, and JAX keeps what it traced."""
    inner, singular_before, longest = solver_state
    here = args if args.projection is None else dataclasses.replace(args, nearness=singular_before)
    # The state was moved after the last step: a stage kept from it (first same as last) is stale.
    y1, error, dense_info, inner, result = solver.step(
        terms, t0, t1, y0, here, inner, made_jump=np.array(True)
    )
    v = y1[1]
    y1, error, singular = end_of_step(args, t1, y1, error)
    # Without an estimate, of a solver for fixed steps, only the judgement counts: of any arrays of its shape.
    estimate = y1 if error is None else inflate_error_if_singular(error, singular, singular_before)
    if stop is not None:  # Diffrax heeds it where the step is accepted
        of_step = t1 - t0, stop.shortest, longest
        estimate, broken = judge_constraints(estimate, singular, v, y1[1], *of_step)
        result = dfx.RESULTS.where(broken, stop.result, result)
    error = None if error is None else estimate
    if "y1" in dense_info:
        dense_info = dense_info | {"y1": y1}
    return y1, error, dense_info, (inner, singular, jnp.maximum(longest, t1 - t0)), result


class Stop(NamedTuple):
    """How a run ends where no motion keeps the constraints.

    - `shortest`: the step that is too short to be the reason [s].
    - `result`: the code to end with, as one of Diffrax's.
    """

    shortest: Array
    result: Any


@final
class ProjectedSolver(AbstractForwardingSolver):
    """Wraps a Diffrax solver for the state (q, v), with a `Model` for arguments.

    **Arguments:**

    - `solver`: the solver whose steps are projected.
    - `stop`: how the run ends where no motion keeps the constraints; None for one that goes on.
    """

    solver: dfx.AbstractSolver
    stop: Stop | None = None

    def init(self, terms: Any, t0: Any, t1: Any, y0: Any, args: Model) -> Any:
        near = jnp.full((), jnp.inf, y0[0].dtype)  # no step is refused for where the run starts
        if args.projection is not None:
            # With any error estimate, so that it is the program that steps take, and not one more.
            near = project_by_code(args, jnp.asarray(t0, near.dtype), y0, y0).nearness
        return self.solver.init(terms, t0, t1, y0, args), near, jnp.zeros_like(t0)

    def step(
        self, terms: Any, t0: Any, t1: Any, y0: Any, args: Model, solver_state: Any, made_jump: Any
    ) -> Any:
        return _step(self.solver, terms, t0, t1, y0, args, solver_state, self.stop)


# --- The energy of the start kept by any Diffrax solver: one more invariant to project onto
#
# After a step the state is projected onto the constraints, then its velocity scaled, v* = s v, so that
#
# s^2 T + V = E0,    T = v.M v / 2,    V = E - T.
#
# Of all velocities of that energy v* is the nearest in the mass metric, and it meets velocity rows A v = 0 as v did
# (Hairer, Lubich and Wanner, Geometric Numerical Integration, IV.4).

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
