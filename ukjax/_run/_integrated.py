"""The steps of a run, compiled once, and how they are differentiated: one program of scalars.

Explicit Runge-Kutta methods have a loop of our own (`_explicit`), every other solver that of Diffrax. What has no scalar
code is Diffrax's loop by XLA.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, final

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._compiler import cached_or_untranslatable, compiler_is_here, looks_for_nans
from .._compiler._structured._scalarize import Scalarized, scalarize
from .._misc._errors import Untranslatable
from .._misc._keyed import Static, combine_static, partition_static
from .._misc._left_to_xla import LeftToXLA, because
from .._misc._linear import lazily_differentiated
from .._misc._reverse_only import once_through_events
from .._misc._types import as_jax
from .._motion._model import Model
from ._explicit import UnfitError, explicit_run, fits
from ._integrate import Span, State, integrate
from ._observe import Solved
from ._results import result_of

R = TypeVar("R")

Start = Callable[[Model, Array, State], tuple[State, Any]]

# Adjoints whose derivatives are those of the steps, which a program of scalars has in both modes by itself.
_OF_STEPS = (dfx.ForwardMode, dfx.DirectAdjoint)


def run_as_program(
    fn: Callable[..., R],
    adjoint: dfx.AbstractAdjoint | None,
    default: dfx.AbstractAdjoint,
    *arrays: Any,
    smooth: bool = True,
) -> tuple[R, LeftToXLA]:
    """What a function that integrates gives, as one program of scalars, which has derivatives by itself.

    What has no scalar code is left to XLA, and it is told why; so is a run with an adjoint that is told how to go back.
    """
    once = (lambda x: x) if smooth else once_through_events
    left = LeftToXLA()
    if adjoint is None or isinstance(adjoint, _OF_STEPS):
        try:
            return once(scalarize(functools.partial(fn, None))(*once(arrays))), left
        except Untranslatable as error:
            left = because(error)
    return fn(default if adjoint is None else adjoint, *arrays), left


def _steps(
    static: Static,
    settled: bool,
    adjoint: dfx.AbstractAdjoint | None,
    arrays: Any,
    y0: State,
    span: Span,
    ts: Array | None,
) -> Solved:
    """The steps of a run; within a program of scalars there is no adjoint, and saved states may be projected."""
    model, settings, solver, dense = combine_static(static, arrays)
    if adjoint is None and ts is not None and fits(solver, settings, dense):
        try:
            settled = settled and model.projection is not None
            return explicit_run(model, y0, span, ts, settings, solver, settled=settled)
        except UnfitError:  # Diffrax takes no times beyond the end
            ts = jnp.where(ts < jnp.inf, ts, span[1])
    settings = settings | {"adjoint": dfx.ForwardMode() if adjoint is None else adjoint}
    by_diffrax = integrate
    if isinstance(
        adjoint, dfx.BacksolveAdjoint
    ):  # Equinox has no rule for changes that are zero and said to be
        by_diffrax = lazily_differentiated(integrate)
    return by_diffrax(model, y0, span, ts, settings, solver, dense)


def integrate_from_start(
    start: Start | None,
    static: Static,
    reverse: bool,
    arrays: Any,
    state: State,
    span: Span,
    ts: Array | None,
) -> tuple[Solved, Any]:
    """The steps of a run, and what its start tells, as one program."""
    settings = combine_static(static, arrays)[1]
    adjoint, smooth = settings["adjoint"], settings["event"] is None

    def run(
        adjoint: dfx.AbstractAdjoint | None, arrays: Any, state: State, span: Span, ts: Any
    ) -> tuple[Solved, Any]:
        y0, told = start(combine_static(static, arrays)[0], span[0], state) if start else (state, None)
        return _steps(static, False, adjoint, arrays, y0, span, ts), told

    asked = None if reverse else adjoint
    (solved, told), left = run_as_program(run, asked, adjoint, arrays, state, span, ts, smooth=smooth)
    return solved._replace(left=left), told


@functools.partial(jax.jit, static_argnums=(0, 1))
def integrate_run(
    static: Static, reverse: bool, arrays: Any, y0: State, span: Span, ts: Array | None
) -> Solved:
    """The steps of a run from where it is to start."""
    return integrate_from_start(None, static, reverse, arrays, y0, span, ts)[0]


@cached_or_untranslatable
def _program_of(static: Static, tree: Any) -> Scalarized[..., Solved]:
    """The steps of a run, with saved states projected, from leaves of its arrays."""

    def run(leaves: list[Any], y0: State, span: Span, ts: Array | None) -> Solved:
        return _steps(static, True, None, jax.tree.unflatten(tree, leaves), y0, span, ts)

    return scalarize(run)


@final
class Integrated:
    """The steps of runs that have values: of one structure, with the same parameters.

    **Arguments:**

    - `static`, `reverse`, `arrays`: as of `integrate_run`.
    """

    def __init__(self, static: Static, reverse: bool, arrays: Any):
        self._given, self._of_program = (static, reverse, arrays), (static, arrays)
        model, settings, solver, dense = combine_static(static, arrays)
        self._fits = fits(solver, settings, dense)
        self._by_program = reverse or isinstance(settings["adjoint"], _OF_STEPS)
        if self._fits:  # one program, whatever `max_steps` is
            counted = settings | {"max_steps": jnp.int32(settings["max_steps"]), "adjoint": None}
            self._of_program = partition_static((model, counted, solver, dense))
        self._known: dict[Any, Callable[..., Solved]] = {}

    def __call__(self, y0: State, span: Span, ts: Any) -> Solved:
        """The steps of a run, by machine code that Python itself calls, or by JAX."""
        if self._by_program and compiler_is_here() and not looks_for_nans():
            try:
                return _as_jax_arrays(self._by_python(y0, span, ts))
            except Untranslatable:  # which JAX is told again, and tells
                self._by_program = False
        return integrate_run(*self._given, y0, span, pad_times(ts, span[1]))

    def _by_python(self, y0: State, span: Span, ts: Any) -> Solved:
        times = pad_times(ts, np.inf, _FEW) if self._fits else pad_times(ts, span[1])
        count = None if times is None else len(times)
        if count not in self._known:
            static, arrays = self._of_program
            leaves, tree = jax.tree.flatten(arrays)
            self._known[count] = _program_of(static, tree).on_host(leaves, y0, span, times)
        return self._known[count](y0, span, times)


_FEW = 256
"""Times to save at that no run of ours has less of: what is never reached takes no time."""


def pad_times(ts: Any, by: Any, least: int = 1) -> Any:
    """Times to save at, their number a power of two, so that runs that differ in it share what is compiled."""
    if ts is None:
        return None
    return np.append(ts, np.full(max(least, 2 ** (len(ts) - 1).bit_length()) - len(ts), by, ts.dtype))


def _as_jax_arrays(solved: Solved) -> Solved:
    """What is not numbers alone as arrays of JAX."""
    interpolation, mask = jax.tree.map(as_jax, (solved.interpolation, solved.event_mask))
    (result,) = jax.tree.leaves(solved.result)
    return solved._replace(
        result=result_of(result), settled=bool(solved.settled), interpolation=interpolation, event_mask=mask
    )
