"""Many runs that differ in parameters: in chunks of bounded memory, kept as they come, resumed where they stopped."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import diffrax as dfx
import jax
import numpy as np
from jax.sharding import Mesh

from .._formula._acceleration import AbstractFormula
from .._misc._arguments import all_of, flag, require_between, require_own_process, whole_number
from .._misc._closures import require_untraced
from .._misc._errors import InputError, SweepError
from .._misc._types import Numbers, Time
from .._motion._project import Projection
from .._run._contact_common import Tier
from .._run._events import Events
from .._system._problem import Problem
from .._system._stabilize import AbstractStabilizer
from ._chunk import fit_chunk_shape, make_chunks, maker_for, merge_reductions
from ._chunks import Chunks, chunk_shape
from ._outputs import Outputs
from ._place import AbstractPlace, place_of
from ._prepare import SweepPlan, check_reductions, prepare
from ._progress import Update, bar
from ._samples import AbstractSamples, as_samples, count
from ._store import AbstractTarget, Memory, Store, check_installed, claim_store, require_same
from ._template import NOT_RUN

if TYPE_CHECKING:
    import xarray

    from ._cluster._sweep import Cluster

_ROUNDS = 3
"""How often what a store lost is made again, such as while its disk was away."""


def _check(chunk: int | None, memory: float | None, gradients: Any) -> tuple[str, ...]:
    require_own_process()
    if chunk is not None:
        whole_number("chunk", chunk)
    if memory is not None:
        require_between("memory", memory, 0, np.inf)
    return all_of("gradients", (gradients,) if isinstance(gradients, str) else gradients, str, "'q_end'")


def _devices(devices: Any) -> tuple[Any, ...]:
    """The devices to spread chunks over."""
    devices = jax.local_devices() if devices is None else devices
    devices = all_of("devices", devices, jax.Device, "jax.devices()[0]")
    if not devices:
        raise InputError("devices must name at least one, such as jax.devices().")
    return devices


def _without_mesh() -> contextlib.AbstractContextManager[Any]:
    """Chunks have a mesh of their own, whatever `jax.set_mesh` says."""
    try:
        return jax.set_mesh(Mesh(np.empty((), object), ()))
    except ValueError as error:
        raise InputError(
            "sweep cannot run inside vmap or grad: call it outside, or take jax.vmap of uk.simulate there."
        ) from error


class _Here(NamedTuple):
    """Chunks made in this process."""

    plan: SweepPlan
    devices: tuple[Any, ...]
    stored: bool

    def examine(
        self, sizes: tuple[int, ...], memory: float | None, fit: bool
    ) -> tuple[dict[str, Any], tuple[int, ...]]:
        """As a worker does."""
        attributes: dict[str, Any] = {"devices": f"{len(self.devices)} {self.devices[0].platform}"}
        if self.stored:
            attributes["program"] = self.plan.program.fingerprint()
        return attributes, fit_chunk_shape(self.plan, sizes, memory, self.devices) if fit else ()

    def fill(self, target: AbstractTarget, pending: list[int], before: int, update: Update) -> None:
        """Makes chunks, one after the other."""
        maker = maker_for(self.plan, target.chunks.shape, self.devices)
        update(before, 0)
        for made in make_chunks(maker, target, pending):
            update(*made)


def _target(plan: SweepPlan, place: AbstractPlace | None, chunks: Chunks, overwrite: bool) -> AbstractTarget:
    if place is None:
        return Memory(plan.template, chunks)
    lock = claim_store(place, plan.template, chunks, overwrite)
    try:
        return Store(place, plan.template.attributes, lock)
    except BaseException:
        lock.close()
        raise


def _fill(maker: "_Here | Cluster", target: AbstractTarget, update: Update) -> None:
    """Has all chunks made. What is done is what the target has: a store may have lost what was written to it."""
    for again in range(_ROUNDS):
        results = target.results()
        pending = target.chunks.unfinished(results, NOT_RUN)
        if not pending:
            return
        maker.fill(target, pending, 0 if again else int(np.sum(results != NOT_RUN)), update)
    if pending := target.chunks.unfinished(target.results(), NOT_RUN):
        reasons = dict.fromkeys(pending, "its results were written, and are gone")
        raise SweepError(f"{len(pending)} chunks were written, and the store lost them.", reasons)


def _run(
    plan: SweepPlan,
    place: AbstractPlace | None,
    maker: "_Here | Cluster",
    overwrite: bool,
    chunk: int | None,
    memory: float | None,
    update: Update,
) -> "xarray.Dataset":
    """Has the chunks made, and returns what there is then."""
    sizes, attributes = tuple(plan.samples.sizes.values()), plan.template.attributes
    old = None if place is None or overwrite else place.attributes()
    found, shape = maker.examine(sizes, memory, chunk is None and old is None)
    attributes |= found
    if chunk is not None:
        shape = chunk_shape(sizes, chunk)
    elif place is not None and old is not None:
        require_same(place, old, attributes)
        shape = tuple(old["chunk"])
    attributes["chunk"] = list(shape)
    target = _target(plan, place, Chunks(sizes, shape), overwrite)
    with contextlib.closing(target):
        _fill(maker, target, update)
        figures = merge_reductions(target, plan.reductions)
    return target.dataset().assign(figures)


def sweep(
    fn_or_problem: Problem | Callable[..., Any],
    params: AbstractSamples | Any,
    *,
    outputs: Outputs = None,
    gradients: str | Sequence[str] = (),
    t0: Time | float | None = None,
    t1: Time | float | None = None,
    dt0: Time | float | None = None,
    ts: Numbers | None = None,
    formula: AbstractFormula | None = None,
    stabilizer: AbstractStabilizer = Projection(),
    solver: dfx.AbstractSolver = dfx.Dopri8(),
    stepsize_controller: dfx.AbstractStepSizeController | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    event: Events | None = None,
    contact: Tier | None = None,
    max_steps: int = 100_000,
    on_violation: Literal["stop", "continue"] = "stop",
    store: str | Path | None = None,
    overwrite: bool = False,
    chunk: int | None = None,
    memory: float | None = None,
    devices: Sequence[Any] | None = None,
    executor: Any = None,
    reductions: Mapping[str, Any] = {},
    progress: bool = True,
) -> "xarray.Dataset":
    """Runs that differ in parameters, initial states or gains, as one table of results with names and units.

    Runs go through one compiled program in chunks. A run that fails has its reason in `result`, NaN (or -1) for its
    outputs, and does not affect others. With `store`, chunks are written as they finish. After an interruption the same
    call runs only what is missing, with the same results to the last bit.

    **Arguments:**

    - `fn_or_problem`: a `Problem`, whose arrays are varied; a function from parameters to one, such as a model; or any
      function from parameters to arrays that JAX can trace. Functions take parameters by keyword, or all in one dict.
    - `params`: the values, by name: a dict of arrays (k,) for a `Grid`, or `Grid`, `Table`, `LatinHypercube`, `Sobol`, or
      any other table. Names are arguments of the function; `q0`, `v0`; fields of the system such as `mass`; gains
      `alpha`, `beta` of `Baumgarte`; components such as `q0[2]`; and labels of coordinates, such as the name of a joint,
      for where it starts before its projection onto the constraints, `elbow'` for its initial velocity.
    - `outputs`: names and functions of a `Trajectory`, or a dict of them. The names: `q`, `v`, `a`, `constraint_force`,
      `multipliers`, `position_error`, `velocity_error`, `energy`, `rank`, `points` at the saved times; `t_end`, `q_end`,
      `v_end`, `points_end`; `max_position_error`, `max_velocity_error`, `energy_drift`, `rank_min`, `rank_max` over the
      saved times, and `steps`. By default those that are one state or number a run. Of functions that return arrays,
      the names of these.
    - `gradients`: names of outputs to differentiate by every parameter; the result is `d_<output>_d_<parameter>`.
    - `t0`, `t1`: start and end [s], the same for all runs; by default the problem's.
    - `ts`: times to save at [s], or their number; by default 201.
    - `dt0`, `formula`, `stabilizer`, `solver`, `stepsize_controller`, `rtol`, `atol`, `event`, `contact`, `max_steps`,
      `on_violation`: as for `simulate`.
    - `store`: a Zarr folder to write to, such as "runs.zarr", or a URL that fsspec knows, such as "s3://bucket/runs.zarr".
    - `overwrite`: replace the folder, if it is of an earlier sweep.
    - `chunk`: the most runs at once; by default by memory, and with an executor at most a hundredth of all.
    - `memory`: the most that one chunk may take on each device, or on a CPU in total, as estimated from the compiled
      program [bytes]; by default 1e9 on a CPU, and half of what is left on other devices.
    - `devices`: to spread each chunk over; by default all. A CPU counts as one device, unless you tell JAX to use its
      cores before it computes: `jax.config.update("jax_num_cpu_devices", os.cpu_count())`.
    - `executor`: workers that make the chunks, each with one device, and write them to `store` themselves: a number of
      processes of this machine; a Dask client; an address, "tcp://host:8786" of a Dask scheduler, "ray://host:10001" or
      "auto" of a Ray cluster; any `concurrent.futures.Executor`, or a function that makes one, which is called again when
      it breaks. By default this process makes them.
    - `reductions`: figures of outputs that are then not kept, such as `{"energy_drift": [uk.reductions.Mean()]}`. Without
      `outputs` these are all.
    - `progress`: show a bar with runs per second and the time left, where standard error is a terminal.

    **Returns:** an `xarray.Dataset`: outputs with the dimensions of the samples (of a grid its parameters, else `run`)
    and inner ones (`time`, `coordinate`, `velocity`, `row`, `axis`); parameters as coordinates; `result`, whose
    attributes explain its codes (0 for a run that reached its end, 11 for one that an event ended); and how it was made
    in the attributes. With `store` arrays are read when used.

    **Raises:** `InputError` before anything is run for invalid names, values and options, and for a store
    of another sweep, saying what differs; `MissingExtraError` without xarray (`ukjax[sweep]`); `SweepError` for chunks
    that workers could not make.
    """
    require_untraced("sweep", fn_or_problem, params)
    gradients = _check(chunk, memory, gradients)
    check_installed(store is not None)
    overwrite, progress = flag("overwrite", overwrite), flag("progress", progress)
    samples, place = as_samples(params), None if store is None else place_of(store)
    options = {"t0": t0, "t1": t1, "dt0": dt0, "ts": ts, "solver": solver, "max_steps": max_steps}
    options |= {"stepsize_controller": stepsize_controller, "rtol": rtol, "atol": atol, "event": event}
    options |= {"contact": contact, "on_violation": on_violation}
    reduced = check_reductions(reductions)
    definition = (outputs, gradients, stabilizer, formula, options, reduced)
    if executor is not None and (place is None or devices is not None):
        raise InputError(
            "with an executor give store=, a folder or URL that all workers reach, and no devices: "
            "each worker writes there, and has one device."
        )
    with contextlib.ExitStack() as stack:
        stack.enter_context(_without_mesh())
        link = ""
        if executor is None:
            devices = _devices(devices)
            plan = prepare(fn_or_problem, samples, *definition)
            maker = _Here(plan, devices, place is not None)
        else:
            from ._cluster._sweep import open_cluster

            plan = prepare(fn_or_problem, samples, *definition)
            maker = stack.enter_context(open_cluster(executor, fn_or_problem, samples, definition))
            link = maker.workers.dashboard
        name = plan.template.attributes["model"]
        update = stack.enter_context(bar(progress, name, count(samples), link))
        return _run(plan, place, maker, overwrite, chunk, memory, update)
