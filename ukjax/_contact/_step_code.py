"""A whole time step with contacts as one foreign function: no matrix of it ever leaves a block of members.

`_step_kernel` writes it. Where there is no machine code, the same parts are operations of JAX.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._compiler import (
    Looped,
    TranslationError,
    machine_code_is_wanted,
    remembered,
    system_function,
)
from .._formula._contact_newton import ContactSolution
from .._formula._contact_problem import rows_in
from .._motion._model import Model
from ._impulses import ImpulseRows, struck
from ._parts import OfModel
from ._penetration import Apart, Gaps, pushed_out
from ._rows import Coefficients, ContactLayout
from ._solve import tolerance_of
from ._step import Arrive, Arrived, Prepare, PreparedStep
from ._step_kernel import Stages, StepKernel


class Moved(NamedTuple):
    """What a step leaves: positions, velocities, impulses and modes, and 1 for contacts that were struck fast (n,)."""

    q: Array
    v: Array
    found: ContactSolution
    fast: Array


@final
class StepCode:
    """The steps of systems of one structure.

    **Arguments:**

    - `layout`: of the contacts.
    - `stages`: its scalar code.
    - `tolerance`: of contact problems.
    """

    def __init__(self, layout: ContactLayout, stages: Stages, tolerance: float):
        self.layout, self.stages, self.tolerance = layout, stages, tolerance
        text = functools.cache(
            lambda kind, shared: StepKernel(layout, stages, (tolerance, self.sizes), kind, shared).text()
        )
        self.looped = Looped(text, sum(self.sizes), lambda *x: _flat(self.separately(*x)), shares=True)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of q, v, p, residual, steps, which contacts are closed, which slide, and which were struck fast."""
        n, m, x = len(self.layout.contacts), rows_in(self.layout.contacts), self.stages.before.arrays
        return len(x.middle), len(x.free), m, 1, 1, n, n, n

    def __call__(self, *given: Array) -> Moved:
        """A step; its derivatives are those of its parts.

        **Arguments:**

        - `given`: the numbers of all stages, t, h, restitution, friction and limits, q, v, and a guess of p.
        """
        found = _stepped(self, *(jnp.reshape(x, -1) for x in given))
        q, v, p, residual, steps, *modes, fast = jnp.split(found, np.cumsum(self.sizes)[:-1])
        return Moved(q, v, ContactSolution(p, residual[0], steps[0], *modes), fast)

    def separately(self, *given: Array) -> Moved:
        """The same, part by part."""
        numbers, settle = given[:4], self.stages.settle
        t, h, *coefficients, q, v, guess = given[4:]
        x: PreparedStep = self.stages.before(numbers[0], q, v, t, h, *coefficients)

        def after(both: Array, v: Array, d: Array, pi: Array) -> tuple[Array, Array, Apart]:
            end: Arrived = self.stages.arrive(numbers[1], q, both, t, h, x.middle, d)
            at = (end.q, v) if settle is None else settle(numbers[2], end.t.reshape(()), end.q, v)[:2]
            return *at, self.stages.gaps(numbers[3], *at, end.t, pi)

        return moved(self.layout, Coefficients(*coefficients), h, x, (v, guess), after)


def moved(
    layout: ContactLayout,
    coefficients: Coefficients,
    h: Array,
    x: PreparedStep,
    last: tuple[Array, Array],
    after: Callable[[Array, Array, Array, Array], tuple[Array, Array, Apart]],
) -> Moved:
    """What a step leaves, once it is prepared.

    **Arguments:**

    - `layout`, `coefficients`: of the contacts.
    - `h`: its length.
    - `x`: what precedes the impulses.
    - `last`: v and p before.
    - `after`: where it arrives, q and v, and the contacts there, as a function of v + v+, v+, d and pi.
    """
    before, guess = last
    rows, laws = ImpulseRows(x.J, x.W), (coefficients.friction, coefficients.limit * h)
    found, change = struck(layout.contacts, rows, jnp.zeros_like(x.free), x.u, laws, x.active, guess)
    v, still = x.free + change, jnp.zeros_like(x.free)
    at = lambda d, pi: after(before + v, v, d, pi)
    d = pushed_out(lambda d, pi: at(d, pi)[2], layout, rows, v.size) if len(layout.normals) else still
    q, v, _ = at(d, jnp.zeros_like(guess))
    return Moved(q, v, found, x.fast)


def _flat(x: Moved) -> Array:
    parts = (x.q, x.v, *x.found, x.fast)
    return jnp.concatenate([jnp.atleast_1d(y).astype(x.q.dtype) for y in parts])


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _stepped(code: StepCode, *given: Array) -> Array:
    return code.looped(*given)


@_stepped.defjvp
def _(code: StepCode, primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    return _stepped(code, *primals), jax.jvp(lambda *x: _flat(code.separately(*x)), primals, tangents)[1]


@remembered
def _made(layout: ContactLayout, stages: Stages, tolerance: float) -> StepCode:
    programs = [x.program for x in (stages.before, stages.arrive, stages.gaps)]
    if not all(x.has_machine_code for x in programs + ([stages.settle.bare] if stages.settle else [])):
        raise TranslationError("there is no machine code here")
    return StepCode(layout, stages, tolerance)


def step_code(
    model: Model,
    layout: ContactLayout,
    coefficients: Coefficients,
    t: Array,
    h: Array,
    y: tuple[Array, Array, Array],
) -> Callable[[], Moved] | None:
    """A step from q, v and the p before it, if there is code of it.

    **Arguments:**

    - `model`: of a `Pushed` system.
    - `layout`, `coefficients`: of the contacts.
    - `t`, `h`: its time and length.
    - `y`: q, v and p.
    """
    projects = bool(model.system.constraints) and model.stabilizer.projection_method is not None
    if not (model.code and model.is_solved and machine_code_is_wanted()):
        return None
    if projects and model.projection is None:
        return None
    q, v, p = y
    acceleration, settle = model.code, model.projection if projects else None
    of = lambda part, *x: system_function(OfModel(part, acceleration), model.system, model.stabilizer, *x)
    try:
        before, arrive, gaps = (
            of(Prepare(layout), q, v, t, h, *coefficients),
            of(Arrive(), q, v, t, h, q, v),
            of(Gaps(layout), q, v, t, p),
        )
        stages = Stages(before.written, arrive.written, settle, gaps.written)
        code = _made(layout, stages, tolerance_of(q.dtype))
    except TranslationError:
        return None
    none = jnp.zeros(0, q.dtype)
    numbers = [
        x.numbers(model.system, model.stabilizer) if x else none for x in (before, arrive, settle, gaps)
    ]
    return lambda: code(*numbers, t, h, *coefficients, *y)
