"""Whole runs as machine code: the steps that Diffrax would take, saved states included, in one call."""

import functools
from typing import Any, NamedTuple, final

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..._compiler import (
    Code,
    Integration,
    MotionPrograms,
    Program,
    ProjectionCode,
    TranslationError,
    program_of,
    remembered,
    stays_here,
)
from ..._compiler._structured import scalarize
from ..._motion._model import Model
from ._programs import NEAR_END, Setting, begun, control_of, method_of

_TERMS = dfx.ODETerm(lambda t, y, args: y)  # of which a solver asks what kind of equation they are
_MOST = 64  # spans remembered


class Ends(NamedTuple):
    """What runs left behind.

    - `t`: the times saved, infinite where a run did not get to, and the end (k + 1,).
    - `q`, `v`: the states there.
    - `result`: the number of Diffrax's code.
    - `steps`, `accepted`: how many.
    """

    t: Array
    q: Array
    v: Array
    result: Array
    steps: Array
    accepted: Array


@final
class Whole:
    """Runs of models of one structure by one solver.

    **Arguments:**

    - `model`: with all of it as scalar code.
    - `solver`: a Diffrax solver.
    - `setting`: of the controller.
    - `integration`: the runs.
    """

    def __init__(self, setting: Setting, integration: Integration):
        self._integration = integration
        self._first = _first_step(setting, integration.dtype)
        self._begun = functools.lru_cache(_MOST)(self._begun_at)

    def numbers(self, model: Model, controller: Any, *, at_once: bool) -> list[Any]:
        """The operands that are the same whatever state and times are.

        **Arguments:**

        - `model`: of the structure.
        - `controller`: with numbers of its own.
        - `at_once`: whether all have values, and NumPy arrays are wanted.
        """
        numbers = model.ready().numbers
        assert numbers is not None
        of_projection = [x for x in numbers[1:] if x is not None]
        given = [numbers[0]], of_projection, jax.tree.leaves(eqx.filter(controller, eqx.is_array))
        return [self._joined(x, np if at_once else jnp) for x in given]

    def __call__(self, numbers: list[Any], y0: Any, span: Any, ts: Any) -> Ends:
        """A run.

        **Arguments:**

        - `numbers`: as the method of this name gives them.
        - `y0`: the state (q, v) to start from.
        - `span`: start, end, and the first step if it is given [s].
        - `ts`: the times to save at [s].
        """
        operands, forward = self._operands(numbers, y0, span, ts)
        (saved,), (end,) = self._integration(*operands)
        return scalarize(functools.partial(_ends, n=y0[0].size), fallback="xla")(saved, end, ts, forward)

    def at_once(self, numbers: list[Any], y0: Any, span: Any, ts: Any) -> Ends:
        """The same run now, forward in time and of NumPy's arrays; without the times it did not get to.

        **Arguments:** as of a call.
        """
        begun = self._begun(numbers[2].tobytes(), *(x if x is None else float(x) for x in span))
        (saved,), (end,) = self._integration.on_host(*numbers, begun, ts[None], np.concatenate(y0)[None])
        kept = int(end[4])
        y: Any = np.concatenate([saved[:kept], end[None, 5:]])
        t: Any = np.append(ts[:kept], end[0])
        n = y0[0].size
        return Ends(t, y[:, :n], y[:, n:], *end[1:4].astype(np.int32))

    def _begun_at(self, numbers: bytes, t0: float, t1: float, dt0: float | None) -> np.ndarray:
        """The operand of how a run begins, which NumPy computes in as long as a short run takes."""
        dtype = self._integration.dtype
        given = np.array([t1, t0] if dt0 is None else [t1, t0, dt0], dtype)
        begun = self._first.by_numpy(np.concatenate([np.frombuffer(numbers, dtype), given])[:, None])
        end = given[0]
        return np.array([[1, end, end - NEAR_END * np.spacing(np.abs(end)), given[1], *begun[:, 0]]], dtype)

    def runs_on_gpu(self) -> bool:
        """Whether there is a GPU here that takes batches as a kernel."""
        return self._integration.kernel.runs_here()

    @property
    def can_be_pulled(self) -> bool:
        """Whether there is machine code for `pulled`."""
        return self._integration.pullback.exists

    def pulled(self, model: Model, controller: Any, y0: Any, span: Any, ts: Any, of: Any) -> tuple[Any, Any]:
        """Cotangents of the model's numbers and of the state to start from, by the steps taken.

        **Arguments:** as of a call, and:

        - `of`: the cotangents of `Ends.q` and `Ends.v`.
        """
        operands, _ = self._operands(self.numbers(model, controller, at_once=False), y0, span, ts)
        states = jnp.concatenate([x.astype(self._integration.dtype) for x in of], axis=1)
        given = states[:-1].reshape(1, -1), states[-1:]
        field, projection, state = (x[0] for x in self._integration.pullback(*operands, *given))
        return (field, projection), (state[: y0[0].size], state[y0[0].size :])

    @property
    def can_be_pushed(self) -> bool:
        """Whether there is machine code for `pushed`."""
        return self._integration.pushforward.has_machine_code

    def pushes_on_gpu(self) -> bool:
        """Whether there is a GPU here that takes `pushed` as a kernel."""
        return self._integration.pushforward.kernel.runs_here()

    def pushed(self, model: Model, controller: Any, y0: Any, span: Any, ts: Any, of: Any) -> tuple[Any, Any]:
        """The changes of `Ends.q` and `Ends.v`, the sizes of steps being constants.

        **Arguments:** as of a call, and:

        - `of`: the changes of the model's numbers and of the state to start from.
        """
        (field, projection), start = of
        numbers = self.numbers(model, controller, at_once=False)
        operands, _ = self._operands(numbers, y0, span, ts)
        for i, change in ((0, field), (1, projection), (-1, start)):
            operands[i] = jnp.concatenate([operands[i], self._joined(jax.tree.leaves(change))], axis=1)
        saved, ends = self._integration.pushforward(*operands)
        n = saved.shape[2]
        change = jnp.concatenate([saved[0], ends[:, -n:]])[:, n // 2 :]
        return change[:, : y0[0].size], change[:, y0[0].size :]

    def _joined(self, arrays: Any, library: Any = jnp) -> Any:
        """Arrays as the operand of one run, by NumPy or JAX."""
        dtype = self._integration.dtype
        flat = [library.ravel(x).astype(dtype) for x in map(library.asarray, arrays)]
        return library.concatenate([library.zeros(0, dtype), *flat])[None]

    def _operands(self, numbers: list[Any], y0: Any, span: Any, ts: Any) -> tuple[list[Any], Any]:
        """Those of the integration, and the direction of time."""
        dtype = self._integration.dtype

        def begun(of_controller: Array, span: Any, ts: Array) -> tuple[Array, Array, Array]:
            t0, t1, dt0 = span
            forward = jnp.where(t1 < t0, -1, 1).astype(dtype)
            t0, t1, dt0 = forward * t0, forward * t1, None if dt0 is None else forward * dt0
            near_end = t1 - NEAR_END * jnp.spacing(jnp.abs(t1))
            first = self._first.evaluate([*of_controller, *(x for x in (t1, t0, dt0) if x is not None)])
            return self._joined([forward, t1, near_end, t0, *first]), self._joined([forward * ts]), forward

        start, times, forward = scalarize(begun, fallback="xla")(numbers[2][0], span, ts)
        return [*numbers, start, times, self._joined(y0)], forward


def _ends(saved: Array, end: Array, ts: Array, forward: Array, *, n: int) -> Ends:
    """What machine code left behind, by names, with coordinates (n,)."""
    result, steps, accepted, count = (x.astype(np.int32) for x in end[1:5])
    y = jnp.concatenate([saved, end[None, 5:]])
    t = jnp.where(jnp.arange(len(saved), dtype=np.int32) < count, ts, jnp.inf)
    return Ends(jnp.append(t, forward * end[0]), y[:, :n], y[:, n:], result, steps, accepted)


def _first_step(setting: Setting, dtype: Any) -> Program:
    """What `begun` returns, of a controller's numbers, the end, the start, and the first step if it is given."""
    numbers, rest = eqx.partition(setting.controller, lambda x: isinstance(x, jax.ShapeDtypeStruct))
    times = [jax.ShapeDtypeStruct((), dtype)] * (3 if setting.given else 2)

    def first(numbers: Any, t1: Array, t0: Array, dt0: Array | None = None) -> Any:
        return begun(setting, eqx.combine(numbers, rest), t1, t0, dt0)

    return program_of(first, [numbers, *times], dtype)


def whole_run(
    model: Model,
    solver: dfx.AbstractSolver,
    controller: Any,
    state: tuple[Array, Array],
    given: bool,
    most: int,
    stop: int | None = None,
) -> Whole | None:
    """Runs as machine code; None where they cannot be.

    **Arguments:**

    - `model`: what is integrated.
    - `solver`: a Diffrax solver.
    - `controller`: a Diffrax controller.
    - `state`: of (q, v) only shapes and types matter.
    - `given`: whether the first step is given.
    - `most`: the most steps to take.
    - `stop`: as of a `Setting`.
    """
    projected = model.stabilizer.projection_method is not None
    if (
        model.code is None
        or not model.is_solved
        or model.code.apart
        or (projected and model.projection is None)
    ):
        return None
    if not stays_here():
        return None
    shape = lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype) if eqx.is_array(x) else x
    q, v = (jax.ShapeDtypeStruct(x.shape, x.dtype) for x in state)
    try:
        order = solver.error_order(_TERMS)
        setting = Setting(jax.tree.map(shape, controller), order, (q, v), projected, given, most, stop)
        return _made(model.code, model.projection, type(solver), setting)
    except TranslationError:
        return None


@remembered
def _made(code: Code, projection: ProjectionCode | None, solver: Any, setting: Setting) -> Whole:
    size, control = sum(x.size for x in setting.state), control_of(setting)
    estimates = control.reads_error(size)
    projects = projection and (projection.whole if estimates else projection.bare)
    motion = MotionPrograms(code.field, projects, projection.rows if projection else 0, size, estimates)
    method = method_of(solver, code.program.dtype, setting.projected)
    integration = Integration(motion, method, control)
    if not integration.has_machine_code:
        raise TranslationError("LLVM does not know all operations")
    return Whole(setting, integration)
