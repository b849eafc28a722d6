"""Any Diffrax solver for a motion with contacts: smooth within a mode, and settled anew where a margin runs out.

The state is (q, v, mode). A step is tried in the mode it starts in. Where a margin of the mode becomes negative, the
first such time t* is found on the step's interpolation, then by Newton's method on steps that end there; what happens at
t* is settled, and a second step goes on to the end. So all times between are states of steps of the solver's own order,
and Diffrax sees an ordinary step. A step with a second event is refused, and tried again shorter.

t* is found without being differentiated, and corrected by one step of Newton's method that is: so it has the derivative
of the implicit function, and the state after it that of the saltation matrix (Aizerman and Gantmakher 1958).
"""

from typing import Any, NamedTuple, final

import diffrax as dfx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._misc._precision import in_full_precision
from .._motion._wrapped_solver import AbstractForwardingSolver
from ._log import Log, empty_log, logged
from ._touching import State, Touching
from ._watch import Curve, InnerSteps, Stepped, first_event, watched

_REFUSED = 1e8  # times the state: the error of a step that is to be refused


@final
class _Pieces(dfx.AbstractLocalInterpolation):
    """Two interpolations, the second from `until` on."""

    t0: Array
    t1: Array
    until: Array
    first: Any
    second: Any

    def evaluate(self, t0: Any, t1: Any = None, left: bool = True) -> Any:
        if t1 is not None:
            return jax.tree.map(jnp.subtract, self.evaluate(t1), self.evaluate(t0))
        pair = self.first.evaluate(t0), self.second.evaluate(t0)
        return jax.tree.map(lambda x, y: jnp.where(t0 <= self.until, x, y), *pair)


class _Pieced(NamedTuple):
    """Makes the interpolation of a step in two pieces, each by the solver's own.

    - `of_piece`: the solver's.
    """

    of_piece: Any

    def __call__(
        self, *, t0: Array, t1: Array, first: Any, second: Any, until: Array, since: Array
    ) -> _Pieces:
        # A piece without length is never asked, but must be finite.
        long = lambda start, end: jnp.where(end == start, start + 1, end)
        pieces = (
            self.of_piece(t0=t0, t1=long(t0, until), **first),
            self.of_piece(t0=since, t1=long(since, t1), **second),
        )
        return _Pieces(t0, t1, until, *pieces)


@final
class HybridSolver(AbstractForwardingSolver):
    """Wraps a Diffrax solver for the state (q, v, mode), with a `Touching` for arguments.

    **Arguments:**

    - `solver`: a solver that estimates its error.
    """

    solver: dfx.AbstractSolver

    @property
    def interpolation_cls(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _Pieced(self.solver.interpolation_cls)

    def init(self, terms: Any, t0: Any, t1: Any, y0: Any, args: Touching) -> Any:
        return self.solver.init(terms, t0, t1, y0, args), empty_log(y0)

    @in_full_precision
    def step(
        self, terms: Any, t0: Any, t1: Any, y0: Any, args: Touching, solver_state: Any, made_jump: Any
    ) -> Any:
        inner, log = solver_state

        def one(args: Touching, t0: Array, t1: Array, y0: State) -> Stepped:
            # The state is moved after each step: a stage kept from it (first same as last) is stale.
            y, error, dense, _, result = self.solver.step(terms, t0, t1, y0, args, inner, jnp.array(True))
            return Stepped((y[0], y[1], y0[2]), error, dense, result)

        def curve(dense: Any, t0: Array, t1: Array) -> Curve:
            of = self.solver.interpolation_cls(t0=t0, t1=jnp.where(t1 == t0, t0 + 1, t1), **dense)
            return lambda s: of.evaluate(t0 + s * (t1 - t0))

        whole = one(args, t0, t1, y0)
        found = watched(args, t0, t1, y0, curve(whole.dense, t0, t1), whole.y)

        def split() -> tuple[Stepped, Array, Any, Log]:
            t, fixed, before, speed, which = first_event(
                args, found, t0, t1, y0, InnerSteps(one, curve), whole
            )
            q, what, moved = args.settled(t, before.y, which)
            start = q, what.v, what.mode
            after = one(args, t, t1, start)
            again = watched(args, t, t1, start, curve(after.dense, t, t1), after.y).happens
            now = logged(log, t, what, speed, (args.reset_of(which), moved))
            return _joined(before, after, again), fixed, t, now

        def undivided() -> tuple[Stepped, Array, Any, Log]:
            return whole._replace(dense=(whole.dense, whole.dense)), t1, t0, log

        step, until, since, log = jax.lax.cond(found.happens | found.stale, split, undivided)
        first, second = step.dense
        dense = {"first": first, "second": second, "until": until, "since": since}
        return args.held(t1, step.y), step.error, dense, (inner, log), step.result


def _joined(before: Stepped, after: Stepped, refused: Array) -> Stepped:
    """Two steps as one, whose error is so large that the controller refuses it where it should."""
    error = jax.tree.map(lambda x, y: jnp.abs(x) + jnp.abs(y), before.error, after.error)
    error = jax.tree.map(lambda e, y: jnp.where(refused, _REFUSED * (1 + jnp.abs(y)), e), error, after.y)
    result = dfx.RESULTS.where(before.result == dfx.RESULTS.successful, after.result, before.result)
    return Stepped(after.y, error, (before.dense, after.dense), result)
