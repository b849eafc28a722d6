"""The stages of a plan: one step of the motion, its cost, and how both change with state, time and input.

The state x = (q, v) of a stage obeys all constraints. Near x it is written by numbers s without constraints,

    q(s) = q + N Z_q s_q - N A_q^+ phi,    v(s) = v + Z_v s_v - A_v^+ psi,

with orthonormal bases Z_q, Z_v of the velocities that the rows of positions and all rows allow (N = dq'/dv). The last
terms bring it back onto phi = 0 and psi = 0, up to second order, so derivatives by s are those of constrained states.
Z_q^T N^+ and Z_v^T give s back. So a sweep works with as many numbers as a mechanism has freedoms, and loops are exact.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, final

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..._compiler import evaluate_by_code
from ..._compiler._structured._scalarize import scalarize
from ..._contact._rows import kinematics
from ..._misc._arguments import call_user_function, number_array
from ..._misc._errors import InputError
from ..._motion._model import multipliers, project_once
from ..._motion._project import Projection
from ..._pseudoinverse import GramSchmidt, pinv
from ..._run._step import step
from ..._system._drive import DrivenSystem
from ..._system._rows import constraint_rows
from ..._system._stabilize import NoStabilizer
from ..._system._system import AbstractSystem, has_quasi_velocities
from ...analysis._inputs import MatrixForce
from ...analysis._states import mechanism_of
from ...mechanisms._postures import with_unit_quaternions
from ._phases import HeldContacts, HeldSystem, Instant

Cost = Callable[..., Any]

DYNAMICS = AbstractSystem, MatrixForce
"""Of what programs are compiled for which entries are zero."""


class Frame(NamedTuple):
    """The numbers s near a state: see the module's docstring.

    - `Zq`, `Zv`: Z_q and Z_v.
    - `N`, `back`: N, and N^+.
    - `inverse_q`, `inverse_v`: A_q^+ and A_v^+.
    """

    Zq: Array
    Zv: Array
    N: Array
    back: Array
    inverse_q: Array
    inverse_v: Array


class Penalty(NamedTuple):
    """The augmented Lagrangian of what a plan must keep."""

    bounds: Array  # multipliers of the bounds at all states (steps + 1, b)
    end: Array  # of what is to vanish at the end (e,)
    weight: Array  # mu


@final
class Stages(eqx.Module):
    """The motion and the costs of a plan."""

    # `system`, `force`: the system, and how inputs act on it.
    system: AbstractSystem
    force: MatrixForce
    # `cost`, `end_cost`, `end`: of the user; none that is not given.
    cost: Cost
    end_cost: Cost | None
    end: Cost | None
    solver: dfx.AbstractSolver
    low: Array
    high: Array
    bounded: tuple[int, ...] = eqx.field(static=True)  # which entries of (q, v) have bounds, `low` and `high`
    contacts: HeldContacts | None  # none of a system without contacts
    instants: Instant  # of all states, along the first axis
    steps: int = eqx.field(static=True)  # of the plan
    n_q: int = eqx.field(static=True)  # the number of coordinates
    free_time: bool = eqx.field(static=True)  # whether the end is searched
    exact: bool = eqx.field(static=True)  # whether second derivatives of the motion are taken

    # --- The motion

    def time(self, t0: Array, T: Array, at: Instant) -> Array:
        return t0 + T * at.number / self.steps

    def _system_over(self, at: Instant, stays: Array) -> AbstractSystem:
        """The system with the rows of contacts that are closed, of which some have been so before."""
        return (
            self.system if self.contacts is None else HeldSystem(self.system, self.contacts, at.closed, stays)
        )

    def onwards(self, at: Instant, t: Array, x: Array, u: Array, h: Array) -> Array:
        """The state after a step, and after the impacts of contacts that are closed from then on."""
        driven = DrivenSystem(self._system_over(at, at.closed), self.force, u)
        go = functools.partial(step, driven, t, x[: self.n_q], x[self.n_q :], h, solver=self.solver)
        if self.contacts is None or not self.contacts.places:
            return jnp.concatenate(go())
        q, v = go(stabilizer=NoStabilizer())
        return jnp.concatenate(project_once(self._system_over(at, at.after), t + h, q, v))

    def projected(self, t: Array, x: Array) -> Array:
        if not self.system.bilateral_constraints:
            return x
        return jnp.concatenate(Projection()(self.system, t, x[: self.n_q], x[self.n_q :]))

    # --- Costs: a number l, and residuals r that cost r.r / 2

    def running(self, t: Array, x: Array, u: Array) -> tuple[Array, Array]:
        """Per second."""
        return _as_cost("cost", self.cost, t, x[: self.n_q], x[self.n_q :], u)

    def at_end(self, t: Array, x: Array) -> tuple[Array, Array]:
        if self.end_cost is None:
            return jnp.zeros((), x.dtype), x[:0]
        return _as_cost("end_cost", self.end_cost, t, x[: self.n_q], x[self.n_q :])

    def missed(self, t: Array, x: Array) -> Array:
        """What is to vanish at the end (e,)."""
        if self.end is None:
            return x[:0]
        missed = call_user_function("end", self.end, t, x[: self.n_q], x[self.n_q :])
        return jnp.ravel(number_array("what end returns", missed)).astype(x.dtype)

    @property
    def is_bounded(self) -> bool:
        return bool(self.bounded) or self.contacts is not None

    def beyond(self, at: Instant, t: Array, x: Array, u: Array) -> Array:
        """How far a state and its contacts are beyond what bounds them (b,); negative within."""
        bounded = x[jnp.array(self.bounded, int)]
        off, pulled = [bounded - self.high, self.low - bounded], []
        if self.contacts is not None:
            gaps = kinematics(self.system, t, x[: self.n_q], x[self.n_q :]).gap
            off += [-at.is_open * gaps, at.lands * gaps[jnp.array(self.contacts.places, int)]]
            if self.contacts.places:
                acts = jnp.tile(at.closed, 2) * (1 - at.is_last)
                pulled = [acts * self.contacts.excess(self.contact_forces(at, t, x, u))]
        # The given state is as it is; bounds may be infinite.
        return jnp.concatenate([jnp.where(at.is_given > 0, 0.0, jnp.concatenate(off)), *pulled])

    def count_bounds(self) -> int:
        """How many entries `beyond` has."""
        gaps = 0 if self.contacts is None else len(self.contacts.names) + 3 * len(self.contacts.places)
        return 2 * len(self.bounded) + gaps

    def contact_forces(self, at: Instant, t: Array, x: Array, u: Array) -> Array:
        """The forces on rows of contacts, normal ones first (m,)."""
        assert self.contacts is not None
        driven = DrivenSystem(self._system_over(at, at.closed), self.force, u)
        found = multipliers(driven, t, x[: self.n_q], x[self.n_q :])
        return found[found.size - len(self.contacts.places) - len(self.contacts.tangents) :]

    def held(self, at: Instant, t: Array, x: Array, u: Array, multipliers: Array, weight: Array) -> Array:
        """The residuals of bounds in the augmented Lagrangian."""
        if not self.is_bounded:
            return x[:0]
        return jnp.sqrt(weight) * jnp.maximum(0.0, self.beyond(at, t, x, u) + multipliers / weight)

    # --- Frames

    def _rows(self, t: Array, x: Array) -> tuple[Array, Array, Array, Array]:
        """A_q, A_v, phi and psi."""
        return evaluate_by_code(_evaluate_rows, self.system, t, x[: self.n_q], x[self.n_q :])

    def frames(self, t: Array, xs: Array, first: tuple[Array, Array]) -> Frame:
        """The frames of states along a motion; each basis is the one before, turned into what rows now allow."""

        def terms(t: Array, x: Array) -> tuple[Array, ...]:
            Aq, Av, _, _ = self._rows(t, x)
            n, q, v = Av.shape[1], x[: self.n_q], x[self.n_q :]
            N = back = jnp.eye(n, dtype=x.dtype)
            if has_quasi_velocities(self.system):
                N = jax.jacfwd(self.system.kinematics, argnums=2)(t, q, v)
                back = pinv(N, GramSchmidt()).matrix
            return N, back, pinv(Aq, GramSchmidt()).matrix, pinv(Av, GramSchmidt()).matrix, Aq, Av

        N, back, of_q, of_v, Aq, Av = jax.vmap(scalarize(terms, fallback="xla"))(t, xs)

        def turned(Z: Array, rows: tuple[Array, Array]) -> tuple[Array, Array]:
            inverse, A = rows
            Z = Z - inverse @ (A @ Z)
            L = jnp.linalg.cholesky(Z.T @ Z)
            Z = jax.scipy.linalg.solve_triangular(L, Z.T, lower=True).T
            return Z, Z

        Zq, Zv = (jnp.broadcast_to(Z, (len(xs), *Z.shape)) for Z in first)
        if self.system.bilateral_constraints:
            Zq, Zv = (
                scalarize(functools.partial(jax.lax.scan, turned), fallback="xla")(Z, rows)[1]
                for Z, rows in zip(first, ((of_q, Aq), (of_v, Av)), strict=True)
            )
        return Frame(Zq, Zv, N, back, of_q, of_v)

    def state(self, frame: Frame, t: Array, x: Array, s: Array) -> Array:
        """x(s)."""
        k = frame.Zq.shape[1]
        q = x[: self.n_q] + frame.N @ (frame.Zq @ s[:k])
        return self.brought_back(frame, t, jnp.concatenate([q, x[self.n_q :] + frame.Zv @ s[k:]]), 1)

    def brought_back(self, frame: Frame, t: Array, x: Array, times: int) -> Array:
        """A state near that of a frame, by Newton steps onto the constraints."""
        q, v = x[: self.n_q], x[self.n_q :]
        constrained = bool(self.system.bilateral_constraints)
        for _ in range(times * constrained):
            q = q - frame.N @ (frame.inverse_q @ self._rows(t, jnp.concatenate([q, v]))[2])
        if (mechanism := mechanism_of(self.system)) is not None:
            q = with_unit_quaternions(mechanism, q)
        # Once would leave errors of second order, as psi has changed to first order.
        for _ in range((1 + times) * constrained):
            v = v - frame.inverse_v @ self._rows(t, jnp.concatenate([q, v]))[3]
        return jnp.concatenate([q, v])

    def numbers(self, frame: Frame, change: Array) -> Array:
        """s of a change of the state."""
        dq, dv = change[: self.n_q], change[self.n_q :]
        return jnp.concatenate([frame.Zq.T @ (frame.back @ dq), frame.Zv.T @ dv])


def _evaluate_rows(system: AbstractSystem, t: Array, q: Array, v: Array) -> tuple[Array, Array, Array, Array]:
    rows = constraint_rows(system, t, q, v)
    of_q, of_v = rows.of_positions, rows.of_velocities
    return rows.A[of_q], rows.A[of_v], rows.position_error[of_q], rows.velocity_error[of_v]


def _as_cost(name: str, fn: Cost, *given: Array) -> tuple[Array, Array]:
    value = number_array(f"what {name} returns", call_user_function(name, fn, *given))
    value = value.astype(given[1].dtype)
    if value.ndim > 1:
        raise InputError(
            f"{name} must return a number, or a vector of residuals r that costs r.r / 2, got shape {value.shape}."
        )
    return (jnp.zeros((), value.dtype), value) if value.ndim else (value, given[1][:0])
