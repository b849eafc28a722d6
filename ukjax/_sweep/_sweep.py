"""Many runs that differ in parameters: in chunks of bounded memory, kept as they come, resumed where they stopped."""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import diffrax as dfx
import jax
import numpy as np

from .._formula._acceleration import AbstractFormula
from .._misc._arguments import all_of, flag, require_between, whole_number
from .._misc._errors import InputError
from .._misc._paths import as_path
from .._misc._process import require_own_process
from .._misc._types import Numbers, Time
from .._motion._project import Projection
from .._run._events import Events
from .._system._problem import Problem
from .._system._stabilize import AbstractStabilizer
from ._chunks import block_shape, blocks, padded, runs_at_once
from ._member import RESULT
from ._outputs import Outputs, succeeded
from ._prepare import Plan, prepare, values_of
from ._progress import Update, bar
from ._run import Batch, compiled
from ._samples import AbstractSamples, as_samples, count
from ._store import NOT_RUN, AbstractTarget, Folder, Memory, attributes_of, check_installed, require_same

if TYPE_CHECKING:
    import xarray


def _check(chunk: int | None, memory: float, gradients: Any) -> tuple[str, ...]:
    require_own_process()
    if chunk is not None:
        whole_number("chunk", chunk)
    require_between("memory", memory, 0, np.inf)
    return all_of("gradients", (gradients,) if isinstance(gradients, str) else gradients, str, "'q_end'")


def _batch_size(shape: tuple[int, ...], devices: Sequence[Any]) -> int:
    return -(-int(np.prod(shape)) // len(devices)) * len(devices)


def _compile(plan: Plan, shape: tuple[int, ...], devices: Sequence[Any]) -> tuple[Batch, int]:
    return compiled(plan.program, values_of(plan.samples, 0), _batch_size(shape, devices), devices)


def _fitted(plan: Plan, memory: float, devices: Sequence[Any]) -> tuple[tuple[int, ...], Batch]:
    """The largest blocks that go into the memory by what the compiler says of them, and their program."""
    sizes = tuple(plan.samples.sizes.values())
    memory /= len(devices) if devices[0].platform == "cpu" else 1  # the cores of a CPU share one
    limit = runs_at_once(plan.program.traced, memory, devices[0].platform) * len(devices)
    while True:
        shape = block_shape(sizes, limit)
        run, used = _compile(plan, shape, devices)
        if used <= memory or limit <= len(devices):
            return shape, run
        limit = int(np.prod(shape)) // 2


def _of_store(
    plan: Plan, path: Path, shape: tuple[int, ...] | None, overwrite: bool
) -> tuple[int, ...] | None:
    """The shape of blocks, where it is given or there is such a store already."""
    plan.template.attributes["program"] = plan.program.fingerprint()
    old = attributes_of(path)
    if old is None or overwrite:
        return shape
    require_same(path, old, plan.template.attributes)
    return tuple(old["chunk"]) if shape is None else shape


def _fill(
    plan: Plan,
    target: AbstractTarget,
    shape: tuple[int, ...],
    run: Batch | None,
    devices: Sequence[Any],
    update: Update,
) -> None:
    """Runs the blocks that are not done, one after the other."""
    results = target.results()
    sizes = tuple(plan.samples.sizes.values())
    pending = [block for block in blocks(sizes, shape) if np.any(results[block.region] == NOT_RUN)]
    if not pending:
        return
    run = _compile(plan, shape, devices)[0] if run is None else run
    update(int(np.sum(results != NOT_RUN)), 0)
    for block in pending:
        outputs = run(plan.samples.at(padded(block.runs, _batch_size(shape, devices))))
        values = {name: x[: block.runs.size] for name, x in outputs.items()}
        room = tuple(s.stop - s.start for s in block.region)
        target.write(block.region, {name: x.reshape(*room, *x.shape[1:]) for name, x in values.items()})
        update(block.runs.size, int(np.sum(~succeeded(values[RESULT]))))


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
    max_steps: int = 100_000,
    store: str | Path | None = None,
    overwrite: bool = False,
    chunk: int | None = None,
    memory: float = 1e9,
    devices: Sequence[Any] | None = None,
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
      `alpha`, `beta` of `Baumgarte`; and components such as `q0[2]`.
    - `outputs`: names and functions of a `Trajectory`, or a dict of them. The names: `q`, `v`, `a`, `constraint_force`,
      `multipliers`, `position_error`, `velocity_error`, `energy`, `rank`, `points` at the saved times; `t_end`, `q_end`,
      `v_end`, `points_end`; `max_position_error`, `max_velocity_error`, `energy_drift`, `rank_min`, `rank_max` over the
      saved times, and `steps`. By default those that are one state or number a run. Of functions that return arrays,
      the names of these.
    - `gradients`: names of outputs to differentiate by every parameter; the result is `d_<output>_d_<parameter>`.
    - `t0`, `t1`: start and end [s], the same for all runs; by default the problem's.
    - `ts`: times to save at [s], or their number; by default 201.
    - `dt0`, `formula`, `stabilizer`, `solver`, `stepsize_controller`, `rtol`, `atol`, `event`, `max_steps`: as for
      `simulate`.
    - `store`: a Zarr folder to write to, such as "runs.zarr".
    - `overwrite`: replace the folder, if it is of an earlier sweep.
    - `chunk`: the most runs at once; by default by memory.
    - `memory`: the most that one chunk may take on each device, or on a CPU in total, as estimated from the compiled
      program [bytes].
    - `devices`: to spread each chunk over; by default all. A CPU counts as one device, unless you tell JAX to use its
      cores before it computes: `jax.config.update("jax_num_cpu_devices", os.cpu_count())`.
    - `progress`: show a bar with runs per second and the time left, where standard error is a terminal.

    **Returns:** an `xarray.Dataset`: outputs with the dimensions of the samples (of a grid its parameters, else `run`)
    and inner ones (`time`, `coordinate`, `velocity`, `row`, `axis`); parameters as coordinates; `result`, whose
    attributes explain its codes; and how it was made in the attributes. With `store` arrays are read when used.

    **Raises:** `InputError` before anything is run for invalid names, values and options, and for a store
    of another sweep, saying what differs; `MissingExtraError` without xarray (`ukjax[sweep]`).
    """
    gradients = _check(chunk, memory, gradients)
    check_installed(store is not None)
    overwrite, progress = flag("overwrite", overwrite), flag("progress", progress)
    samples, path = as_samples(params), None if store is None else as_path("store", store)
    devices = jax.local_devices() if devices is None else devices
    devices = all_of("devices", devices, jax.Device, "jax.devices()[0]")
    if not devices:
        raise InputError("devices must name at least one, such as jax.devices().")
    options = {"t0": t0, "t1": t1, "dt0": dt0, "ts": ts, "solver": solver, "max_steps": max_steps}
    options |= {"stepsize_controller": stepsize_controller, "rtol": rtol, "atol": atol, "event": event}
    plan = prepare(fn_or_problem, samples, outputs, gradients, stabilizer, formula, options)
    attributes, shape, run = plan.template.attributes, None, None
    attributes["devices"] = f"{len(devices)} {devices[0].platform}"
    if chunk is not None:
        shape = block_shape(tuple(samples.sizes.values()), chunk)
    if path is not None:
        shape = _of_store(plan, path, shape, overwrite)
    with bar(progress, attributes["model"], count(samples)) as update:
        if shape is None:
            shape, run = _fitted(plan, memory, devices)
        attributes["chunk"] = list(shape)
        target = Memory(plan.template) if path is None else Folder(path, plan.template, shape, overwrite)
        with contextlib.closing(target):
            _fill(plan, target, shape, run, devices, update)
    return target.dataset()
