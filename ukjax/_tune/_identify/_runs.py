"""The runs that stand beside the recordings, one row of a batch each, and their derivatives in forward mode.

A recording is one row, or with multiple shooting (Bock 1981) one for each piece of it, whose initial state is unknown.
Initial states are searched in the tangent space of the constraints at a known state: q = q_known + N V_q s_q and
v = v_known + V_v s_v, where the columns of V span the velocities that the rows of positions, or all rows, allow. The
run projects what that leaves.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..._compiler._structured._scalarize import scalarize
from ..._misc._arguments import call_user_function, number_array
from ..._misc._closures import Static, combine_static, partition_static
from ..._misc._errors import InputError, format_value, unknown_name
from ..._misc._types import module_for
from ..._motion._project import project
from ..._run._simulate import simulate
from ..._run._trajectory import Trajectory
from ..._sweep._names import Build, points_of
from ..._system._problem import Problem
from ..._system._system import innermost
from ...mechanisms import AbsoluteSystem, TreeSystem
from ...mechanisms._postures import with_unit_quaternions
from ._space import Space

# --- What is measured

_OF_RUN = ("t", "q", "v", "a", "multipliers", "constraint_force")
_OF_PROBLEM = ("points", "problem")
KNOWN = (*_OF_RUN, *_OF_PROBLEM)
"""What `measure` may ask for by name, besides parameters."""


def _positions(q: Array) -> Array:
    return q


@final
class Measure(eqx.Module):
    """The outputs of a state, as one vector."""

    fn: Callable[..., Any]  # of the user
    asked: tuple[str, ...] = eqx.field(static=True)  # the names of its arguments

    def __call__(self, known: dict[str, Any], values: dict[str, Any]) -> Any:
        given = {name: known[name] if name in known else values[name] for name in self.asked}
        return call_user_function("measure", self.fn, **given)


def make_measure(fn: Any, parameters: Sequence[str]) -> Measure:
    """What is measured; by default the coordinates."""
    if fn is None:
        return Measure(_positions, ("q",))
    if not callable(fn):
        raise InputError(
            f"measure must be a function such as lambda t, q, v, a: q[0], got {format_value(fn)}."
        )
    known, taken = [*KNOWN, *parameters], inspect.signature(fn).parameters
    unknown = [
        name for name, x in taken.items() if name not in known and x.default is inspect.Parameter.empty
    ]
    if unknown:
        raise unknown_name("argument of measure", unknown[0], known)
    return Measure(fn, tuple(name for name in taken if name in known))


def as_channels(outputs: Any) -> dict[str, Array]:
    """What `measure` returned, by name; "" for one array."""
    outputs = outputs if isinstance(outputs, dict) else {"": outputs}
    if not outputs:
        raise InputError("measure returned nothing: return an array, or a dict of arrays by name.")
    return {name: jnp.ravel(number_array("what measure returns", x)) for name, x in outputs.items()}


# --- Rows


class Rows(NamedTuple):
    """b runs, with k times each, of which the last are repeated where there are fewer.

    - `t0`, `t1`: start and end [s] (b,).
    - `ts`: times of samples [s] (b, k).
    - `y`: samples (b, k, d), 0 for those that are missing; `present`: which are there, 1 or 0.
    - `q`, `v`: known states (b, n_q), (b, n); `own`: 1 where q, where v counts, 0 where the problem's start does (b,
      2).
    - `along_q`, `along_v`: what an unknown initial state adds to them (b, n_q, f), (b, n, f).
    - `inputs`: of the model, by name (b, ...).
    """

    t0: Any
    t1: Any
    ts: Any
    y: Any
    present: Any
    q: Any
    v: Any
    own: Any
    along_q: Any
    along_v: Any
    inputs: dict[str, Any]


class Outcome(NamedTuple):
    """What a run gives: outputs (k, d), NaN where it did not get, and the states it started from and ended in."""

    y: Array
    start: tuple[Array, Array]
    end: tuple[Array, Array]


@final
class Runs(eqx.Module):
    """The runs of all rows as a function of parameters and initial states."""

    build: Build  # from values to a problem
    # `of_model`: the parameters that the model takes; `measure` takes the others.
    of_model: tuple[str, ...] = eqx.field(static=True)
    space: Space  # of the parameters
    measure: Measure  # what is measured
    # `offsets`: channels with an unknown offset, and its name.
    offsets: tuple[tuple[int, str], ...] = eqx.field(static=True)
    options: dict[str, Any]  # of `simulate`
    # `span`: start and end of all runs, as numbers, for time steps of contacts, whose number must be known.
    span: tuple[float, float] | None = eqx.field(static=True)

    def problem(self, values: dict[str, Any], inputs: dict[str, Any]) -> tuple[Problem, dict[str, Any]]:
        """The problem of some values, with their start, and the formula and the stabilizer of its runs."""
        made: Any = self.build({name: values[name] for name in self.of_model} | inputs)
        problem, spec = made
        points = points_of(problem, spec.system)
        problem = dataclasses.replace(problem, system=spec.system, q0=spec.q0, v0=spec.v0, points=points)
        return problem, {"formula": spec.formula, "stabilizer": spec.stabilizer}

    def outputs_at(
        self, known: dict[str, Array], problem: Problem, values: dict[str, Any]
    ) -> dict[str, Array]:
        """What is measured of a state, by name."""
        more: dict[str, Any] = {"problem": problem}
        if "points" in self.measure.asked:
            if problem.points is None:
                raise InputError("measure asks for points, and the problem has none.")
            more["points"] = problem.points(known["t"], known["q"])
        return as_channels(self.measure(known | more, values))

    def outputs(self, run: Trajectory, problem: Problem, values: dict[str, Any]) -> Array:
        """What is measured of a run at its saved times (k, d)."""
        at = lambda known: jnp.concatenate(list(self.outputs_at(known, problem, values).values()))
        y = jax.vmap(at)({name: getattr(run, name) for name in _OF_RUN})
        for i, name in self.offsets:
            y = y.at[:, i].add(values[name])
        return y

    def start(self, problem: Problem, s: Array, row: Rows) -> tuple[Array, Array]:
        """The initial state of a row, before it is projected."""
        given = row, s, problem.q0, problem.v0
        xp = module_for(*given)
        row, s, q0, v0 = jax.tree.map(xp.asarray, given)
        q0 = xp.where(row.own[0] > 0, row.q, q0) + row.along_q @ s
        v0 = xp.where(row.own[1] > 0, row.v, v0) + row.along_v @ s
        inner = innermost(problem.system)
        is_mechanism = isinstance(inner, AbsoluteSystem | TreeSystem)
        return with_unit_quaternions(inner, q0) if is_mechanism and s.size else q0, v0

    def one(self, theta: Array, s: Array, row: Rows) -> Outcome:
        """The run of one row, as one program: XLA would compile for seconds how the model is made and measured."""
        return _simulate_row(*partition_static(self), theta, s, row)

    def simulate_row(self, theta: Array, s: Array, row: Rows) -> Outcome:
        values = self.space.values(theta)
        problem, how = self.problem(values, row.inputs)
        t0, t1 = (row.t0, row.t1) if self.span is None else self.span
        # The first time tells the start on the constraints, the last one the end.
        ts = jnp.concatenate([row.t0[None], row.ts, row.t1[None]])
        run = simulate(
            problem.system, *self.start(problem, s, row), t0=t0, t1=t1, ts=ts, **how, **self.options
        )
        y = self.outputs(run, problem, values)
        return Outcome(y[1:-1], (run.q[0], run.v[0]), (run.q[-1], run.v[-1]))

    def first_state(self, theta: Array, s: Array, row: Rows) -> tuple[Array, Array]:
        """The initial state of a row, as the run projects it."""
        problem, how = self.problem(self.space.values(theta), row.inputs)
        q0, v0 = self.start(problem, s, row)
        method = how["stabilizer"].projection_method
        return (q0, v0) if method is None else project(problem.system, row.t0, q0, v0, pinv=method)

    @property
    def by_differences(self) -> bool:
        """Whether runs have no derivatives of their own."""
        return self.options["contact"] == "steps"

    def slopes(
        self, theta: Array, s: Array, rows: Rows, change: tuple[Array, Array]
    ) -> tuple[Outcome, Outcome]:
        """All runs, and along a last axis their derivatives by the numbers of each row and the parameters; by central
        differences over these changes (p,), (b, f) where runs have none."""
        if self.by_differences:
            return differences(self.one, theta, s, rows, change)
        return sensitivities(self.one, theta, s, rows)

    def __call__(self, theta: Array, s: Array, rows: Rows, change: tuple[Array, Array]) -> Outcome:
        """All runs; derivatives of each by the parameters and its own initial state are all taken in one batch."""
        return _all(self, theta, s, rows, change)


@functools.partial(scalarize, fallback="xla")
def _simulate_row(of: Static, arrays: Any, theta: Array, s: Array, row: Rows) -> Outcome:
    return combine_static(of, arrays).simulate_row(theta, s, row)


@eqx.filter_custom_jvp
def _all(runs: Runs, theta: Array, s: Array, rows: Rows, change: tuple[Array, Array]) -> Outcome:
    return jax.vmap(functools.partial(runs.one, theta))(s, rows)


def _known(J: Any) -> Any:
    """0 for samples that a run did not get to."""
    return jax.tree.map(lambda x: jnp.where(jnp.isfinite(x), x, 0.0), J)


def sensitivities(fn: Callable[..., Any], theta: Array, s: Array, rows: Rows) -> tuple[Any, Any]:
    """What `runs.one` or `runs.first_state` gives of all rows, and its derivatives as of `Runs.slopes`."""

    def along(s: Array, row: Rows) -> tuple[Any, Any]:
        x = jnp.concatenate([s, theta])
        one = lambda x: fn(x[s.size :], x[: s.size], row)
        slopes = jax.vmap(lambda e: jax.jvp(one, (x,), (e,)), out_axes=(None, -1))
        return slopes(jnp.eye(x.size, dtype=x.dtype))

    outcome, J = jax.vmap(along)(s, rows)
    return outcome, _known(J)


def differences(
    fn: Callable[..., Any], theta: Array, s: Array, rows: Rows, change: tuple[Array, Array]
) -> tuple[Any, Any]:
    """The same by central differences."""

    def along(s: Array, row: Rows, ds: Array) -> tuple[Any, Any]:
        x, h = jnp.concatenate([s, theta]), jnp.concatenate([ds, change[0]])
        off = jnp.concatenate([jnp.zeros((1, x.size)), jnp.diag(h), -jnp.diag(h)])
        found = jax.vmap(lambda off: fn((x + off)[s.size :], (x + off)[: s.size], row))(off)
        ahead, behind = (slice(1, 1 + x.size), slice(1 + x.size, None))
        slope = lambda y: (
            jnp.moveaxis(y[ahead] - y[behind], 0, -1) / jnp.broadcast_to(2 * h, (*y.shape[1:], h.size))
        )
        return jax.tree.map(lambda y: y[0], found), jax.tree.map(slope, found)

    outcome, J = jax.vmap(along)(s, rows, change[1])
    return outcome, _known(J)


@_all.def_jvp
def _all_jvp(primals: Any, tangents: Any) -> tuple[Outcome, Outcome]:
    """By derivatives that no tangent is part of: however many are asked for, the runs are differentiated once."""
    runs, theta, s, rows, change = primals
    zero = lambda tangent, x: jnp.zeros_like(x) if tangent is None else tangent
    dtheta, ds = zero(tangents[1], theta), zero(tangents[2], s)
    outcome, J = runs.slopes(theta, s, rows, change)
    along = jnp.concatenate([ds, jnp.broadcast_to(dtheta, (s.shape[0], theta.size))], axis=1)
    return outcome, jax.tree.map(lambda x: jnp.einsum("b...p,bp->b...", x, along), J)
