"""The steps of a run, compiled once by XLA, and how they are differentiated."""

import functools
from typing import Any, NamedTuple

import diffrax as dfx
import equinox as eqx
import jax
from jaxtyping import Array

from .._misc._by_platform import by_platform
from .._misc._keyed import Keyed
from .._misc._linear import Ways
from . import _options
from ._batch import Whole, can_be_pooled
from ._integrate import Span, State, integrate, integrate_whole
from ._observe import Solved
from ._reverse import changed

Static = Keyed[Any]
"""What XLA compiles a run for: pytrees without arrays."""


def parted(parts: Any) -> tuple[Static, Any]:
    """What XLA compiles a run for, and the arrays it is compiled of.

    **Arguments:**

    - `parts`: pytrees.
    """
    arrays, rest = eqx.partition(parts, eqx.is_array)
    leaves, tree = jax.tree.flatten(rest)
    return Keyed(rest, (tuple(leaves), tree)), arrays


def joined(static: Static, arrays: Any) -> Any:
    """The pytrees that were parted.

    **Arguments:**

    - `static`, `arrays`: as `parted` gives them.
    """
    return eqx.combine(arrays, static.value)


class _Run(NamedTuple):
    """A run of the arrays of a model and more, the state to start from, the span, and the times to save at.

    - `static`, `whole`, `reverse`: as `integrated` takes them.
    """

    static: Static
    whole: Whole | None
    reverse: bool

    def by_diffrax(
        self, arrays: Any, y0: State, span: Span, ts: Any, *, pooled: bool = False, ahead: bool = False
    ) -> Solved:
        """By Diffrax: of many runs in a pool, or to be differentiated, ahead in forward mode."""
        model, settings, solver, dense = joined(self.static, arrays)
        if ahead and isinstance(settings["adjoint"], _options.REVERSE_ONLY):
            settings = settings | {"adjoint": dfx.ForwardMode()}
        return integrate(model, y0, span, ts, settings, solver, dense, pooled=pooled)

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
        forward = functools.partial(self.by_diffrax, ahead=True)
        ways = Ways(forward, self.by_diffrax)
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
    - `reverse`: whether reverse mode may be machine code as well.
    """
    of = _Run(static, whole, reverse)
    in_pool = functools.partial(of.by_diffrax, pooled=True)

    @eqx.filter_custom_jvp
    def run(*given: Any) -> Solved:
        if whole is None:
            return in_pool(*given)
        return by_platform(of.native, in_pool, *given, on_gpu=whole.runs_on_gpu)

    @run.def_jvp
    def _(primals: Any, tangents: Any) -> Any:
        return changed(run, of.ways(tangents), primals, tangents)

    _, settings, _, dense = joined(static, arrays)
    if whole is None and not can_be_pooled(settings, ts, dense):
        return of.by_diffrax(arrays, y0, span, ts)
    return run(arrays, y0, span, ts)
