"""The steps of a run, compiled once, and how they are differentiated.

The plain runs are machine code of the package's own (`_batch`). All others are Diffrax's loop as one program of scalars.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import diffrax as dfx
import equinox as eqx
import jax
from jaxtyping import Array

from .._compiler._structured import scalarize
from .._misc._by_platform import by_platform
from .._misc._errors import Untranslatable
from .._misc._keyed import Static, joined
from .._misc._left_to_xla import LeftToXLA, because
from .._misc._linear import Ways
from .._misc._reverse_only import once_through_events
from ._batch import Whole
from ._integrate import Span, State, integrate, integrate_whole
from ._observe import Solved
from ._reverse import changed

R = TypeVar("R")

# Adjoints whose derivatives are those of the steps, which a program of scalars has in both modes by itself.
_OF_STEPS = (dfx.ForwardMode, dfx.DirectAdjoint)


def by_one_program(
    fn: Callable[..., R],
    adjoint: dfx.AbstractAdjoint | None,
    default: dfx.AbstractAdjoint,
    *arrays: Any,
    smooth: bool = True,
) -> tuple[R, LeftToXLA]:
    """What a function that integrates gives, as one program of scalars, which has derivatives by itself.

    What has no scalar code is left to XLA, and it is told why; so is a run with an adjoint that is told how to go back.

    **Arguments:**

    - `fn`: of an adjoint and the arrays.
    - `adjoint`: that was asked for, if any was.
    - `default`: that of a run by XLA.
    - `arrays`: pytrees of arrays.
    - `smooth`: whether second derivatives are those of the motion, which they are not through events.
    """
    once = (lambda x: x) if smooth else once_through_events
    left = LeftToXLA()
    if adjoint is None or isinstance(adjoint, _OF_STEPS):
        try:
            return once(scalarize(functools.partial(fn, dfx.ForwardMode()))(*once(arrays))), left
        except Untranslatable as error:
            left = because(error)
    return fn(default if adjoint is None else adjoint, *arrays), left


class _Run(NamedTuple):
    """A run of the arrays of a model and more, the state to start from, the span, and the times to save at.

    - `static`, `whole`, `reverse`: as `integrated` takes them.
    """

    static: Static
    whole: Whole | None
    reverse: bool

    def by_diffrax(self, arrays: Any, y0: State, span: Span, ts: Any) -> Solved:
        """By Diffrax's loop."""

        def run(adjoint: dfx.AbstractAdjoint, arrays: Any, y0: State, span: Span, ts: Any) -> Solved:
            model, settings, solver, dense = joined(self.static, arrays)
            import os
            if os.environ.get("OWN"):
                from ._explicit import explicit_run
                from ._batch._programs import Setting
                from ._integrate import _stats
                from ._results import result_of
                from .._motion._projected_solver import Stop
                order = solver.error_order(dfx.ODETerm(lambda t,y,a: y))
                setting = Setting(settings["stepsize_controller"], order, y0, model.stabilizer.projection_method is not None, span[2] is not None, settings["max_steps"], settings["stop"])
                ends = explicit_run(model, solver, settings["stepsize_controller"], setting, y0, span, ts, False)
                return Solved(ends.t, ends.q, ends.v, _stats(model, solver, ends.steps, ends.accepted), result_of(ends.result), None, None)
            return integrate(model, y0, span, ts, settings | {"adjoint": adjoint}, solver, dense)

        settings = joined(self.static, arrays)[1]
        adjoint, smooth = settings["adjoint"], settings["event"] is None
        asked = None if self.reverse else adjoint
        solved, left = by_one_program(run, asked, adjoint, arrays, y0, span, ts, smooth=smooth)
        # Beside machine code of a run of its own this is for other platforms.
        return solved if self.whole else solved._replace(left=left)

    def native(self, arrays: Any, y0: State, span: Span, ts: Any) -> Solved:
        """By machine code."""
        model, settings, solver, _ = joined(self.static, arrays)
        assert self.whole is not None
        numbers = self.whole.numbers(model, settings["stepsize_controller"], at_once=False)
        return integrate_whole(self.whole, numbers, model, y0, span, ts, solver, at_once=False)

    def ways(self, tangents: Any) -> Ways:
        """How its change is computed: by machine code where model and start change, and nothing else."""
        (_, *options), _, *others = tangents
        whole = None if jax.tree.leaves((options, others)) else self.whole
        ways = Ways(self.by_diffrax, self.by_diffrax)
        if whole is not None and whole.can_be_pushed:
            ways = ways._replace(
                push=functools.partial(self._along, whole.pushed), on_gpu=whole.pushes_on_gpu
            )
        if whole is not None and self.reverse and whole.can_be_pulled:
            ways = ways._replace(pull=functools.partial(self._along, whole.pulled))
        return ways

    def _along(self, way: Any, arrays: Any, y0: State, span: Span, ts: Array, of: Any) -> Any:
        model, settings, _, _ = joined(self.static, arrays)
        return way(model, settings["stepsize_controller"], y0, span, ts, of)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def integrated(
    static: Static, whole: Whole | None, reverse: bool, arrays: Any, y0: State, span: Span, ts: Array | None
) -> Solved:
    """The steps of a run.

    **Arguments:** as `integrate`, and:

    - `static`, `arrays`: a model, settings, a solver, and whether the motion between saved times is kept.
    - `whole`: the run as machine code, if it can be.
    - `reverse`: whether reverse mode may be the program's own, as no adjoint is asked for.
    """
    of = _Run(static, whole, reverse)
    if whole is None:
        return of.by_diffrax(arrays, y0, span, ts)

    @eqx.filter_custom_jvp
    def run(*given: Any) -> Solved:
        return by_platform(of.native, of.by_diffrax, *given, on_gpu=whole.runs_on_gpu)

    @run.def_jvp
    def _(primals: Any, tangents: Any) -> Any:
        return changed(run, of.ways(tangents), primals, tangents)

    return run(arrays, y0, span, ts)
