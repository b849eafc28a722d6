"""A Functional Mock-up Unit of another tool as a force or a drive of a system, by FMPy."""

import atexit
import shutil
import threading
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, final
from xml.etree import ElementTree

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array

from .._misc._errors import InputError, needing, require_known
from .._misc._files import as_path, require_there


class _Version(NamedTuple):
    """What FMI 2.0 and 3.0 call the same."""

    get: str
    set: str
    rates: str
    update: str


_VERSIONS = {
    "2": _Version("getReal", "setReal", "getDerivatives", "newDiscreteStates"),
    "3": _Version("getFloat64", "setFloat64", "getContinuousStateDerivatives", "updateDiscreteStates"),
}


_DIFFERENCE = 1e-5  # of times [s]: the error is near the square of it


@final
class LoadedFmu:
    """An FMU for model exchange: rates and outputs as functions of time, its states and its inputs.

    JAX calls back into Python and the FMU's binary for each evaluation, one after the other: some 0.3 ms each, where
    compiled forces take microseconds. Runs with it are compiled by XLA and run on the CPU; `vmap` is a loop, and neither
    `to_c` nor `export` take it.

    - `states`, `inputs`, `outputs`: their names.
    - `start`: the states at the start.
    """

    def __init__(
        self, instance: Any, described: Any, inputs: list[Any], outputs: list[Any], derivatives: bool
    ):
        self._it, self._of = instance, _VERSIONS[described.fmiVersion[0]]
        self._derivatives = derivatives
        self._has_time = described.fmiVersion.startswith("3")
        self._lock = threading.Lock()  # XLA may call from several threads
        states = [x.variable.derivative for x in described.derivatives]
        rates = [x.variable for x in described.derivatives]
        self.states, self.inputs, self.outputs = (tuple(x.name for x in y) for y in (states, inputs, outputs))
        time = [x for x in described.modelVariables if x.causality == "independent"]
        self._known = [x.valueReference for x in (*time[: self._has_time], *states, *inputs)]
        self._unknown = [x.valueReference for x in (*rates, *outputs)]
        self._input_places, self._output_places = ([x.valueReference for x in y] for y in (inputs, outputs))
        self.start = self._read("getContinuousStates")
        self._evaluate = jax.custom_jvp(self._call_back)
        self._evaluate.defjvp(self._differentiate, symbolic_zeros=True)

    # --- Of the instance

    def _read(self, of: str) -> np.ndarray:
        values = np.zeros(len(self.states))
        if values.size:
            getattr(self._it, of)(np.ctypeslib.as_ctypes(values), values.size)
        return values

    def _move(self, t: Any, x: Any, u: Any) -> None:
        self._it.setTime(float(t))
        if self.states:
            state = np.array(x, float)
            self._it.setContinuousStates(np.ctypeslib.as_ctypes(state), state.size)
        if self.inputs:
            getattr(self._it, self._of.set)(self._input_places, [float(y) for y in np.asarray(u)])

    def _values(self, t: Any, x: Any, u: Any) -> np.ndarray:
        with self._lock:
            self._move(t, x, u)
            outputs = getattr(self._it, self._of.get)(self._output_places) if self.outputs else []
            return np.concatenate([self._read(self._of.rates), outputs])

    def _jacobian(self, t: Any, x: Any, u: Any) -> np.ndarray:
        """Derivatives by time, states and inputs; those by time are differences where FMI has none."""
        with self._lock:
            self._move(t, x, u)
            of = lambda k: self._it.getDirectionalDerivative(self._unknown, [k], [1.0])
            found = np.transpose([of(k) for k in self._known]).reshape(len(self._unknown), len(self._known))
        if self._has_time:
            return found
        before, after = (self._values(t + h, x, u) for h in (-_DIFFERENCE, _DIFFERENCE))
        return np.column_stack([(after - before) / (2 * _DIFFERENCE), found])

    # --- For JAX

    def _shape(self, *more: int) -> Any:
        return jax.ShapeDtypeStruct((len(self._unknown), *more), jnp.result_type(float))

    def _call_back(self, t: Array, x: Array, u: Array) -> Array:
        cast = lambda *given: self._values(*given).astype(self._shape().dtype)
        return jax.pure_callback(cast, self._shape(), t, x, u, vmap_method="sequential")

    def _differentiate(self, primals: tuple, tangents: tuple) -> tuple[Array, Array]:
        if not self._derivatives:
            raise InputError("the FMU has no directional derivatives: ukjax cannot differentiate through it.")
        shape = self._shape(1 + len(self.states) + len(self.inputs))
        cast = lambda *given: self._jacobian(*given).astype(shape.dtype)
        jacobian = jax.pure_callback(cast, shape, *primals, vmap_method="sequential")
        along = [
            jnp.zeros(y.shape, y.dtype) if isinstance(dy, SymbolicZero) else dy
            for y, dy in zip(primals, tangents, strict=True)
        ]
        return self._evaluate(*primals), jacobian @ jnp.concatenate([along[0][None], *along[1:]])

    def _at(self, t: Any, x: Any, u: Any) -> Array:
        given = []
        for name, values, names in (("states", x, self.states), ("inputs", u, self.inputs)):
            values = jnp.zeros(0) if values is None else jnp.asarray(values, float)
            if values.shape != (len(names),):
                raise InputError(
                    f"the FMU has {len(names)} {name}, {', '.join(names)}; got shape {values.shape}."
                )
            given.append(values)
        return self._evaluate(jnp.asarray(t, float), *given)

    def rates(self, t: Any, x: Any = None, u: Any = None) -> Array:
        """The rates of its states.

        **Arguments:**

        - `t`: time [s].
        - `x`: its states, none where it has none.
        - `u`: its inputs, none where it has none.

        **Raises:** `InputError` for another number of states or inputs.
        """
        return self._at(t, x, u)[: len(self.states)]

    def __call__(self, t: Any, x: Any = None, u: Any = None) -> Array:
        """Its outputs; arguments as of `rates`."""
        return self._at(t, x, u)[len(self.states) :]


def _choose(kind: str, chosen: Sequence[str] | None, described: Any) -> list[Any]:
    """Variables by their names; by default all of a causality."""
    numbers = {x.name: x for x in described.modelVariables if x.type in ("Real", "Float64")}
    if chosen is None:
        return [x for x in numbers.values() if x.causality == kind and x.variability == "continuous"]
    require_known("variable of the FMU", numbers, *chosen)
    return [numbers[name] for name in chosen]


def _has_derivatives(path: Path) -> bool:
    """Whether it has directional derivatives, which FMPy reads of FMI 2.0 alone."""
    with zipfile.ZipFile(path) as archive:
        exchange = ElementTree.fromstring(archive.read("modelDescription.xml")).find("ModelExchange")
    said = {} if exchange is None else exchange.attrib
    return "true" in (said.get("providesDirectionalDerivatives"), said.get("providesDirectionalDerivative"))


def _start(fmpy: Any, path: Path, described: Any, parameters: Mapping[str, float], t0: float) -> Any:
    """An instance in continuous time."""
    folder = fmpy.extract(str(path))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)  # the binary is loaded until the process ends
    it = fmpy.simulation.instantiate_fmu(folder, described, "ModelExchange")
    of = _VERSIONS[described.fmiVersion[0]]
    places = [x.valueReference for x in _choose("parameter", list(parameters), described)]
    if places:
        getattr(it, of.set)(places, [float(x) for x in parameters.values()])
    if of.get == "getReal":
        it.setupExperiment(startTime=t0)
        it.enterInitializationMode()
    else:
        it.enterInitializationMode(startTime=t0)
    it.exitInitializationMode()
    again, by_time = True, False
    while again:
        again, terminate, _, _, by_time, _ = getattr(it, of.update)()
        if terminate:
            raise InputError(f"the FMU '{path}' ends at its start.")
    if by_time:
        raise InputError(f"the FMU '{path}' has events at times of its own: a force has none.")
    it.enterContinuousTimeMode()
    return it


def load_fmu(
    path: str | Path,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    *,
    parameters: Mapping[str, float] | None = None,
    t0: float = 0.0,
) -> LoadedFmu:
    """An FMU of another tool, to be called within forces, laws of control and rates of states.

        fmu = uk.load_fmu("damper.fmu", inputs=["length", "speed"], outputs=["force"])
        system = uk.System(M, lambda t, q, v: fmu(t, u=jnp.concatenate([q, v])))

    It must be one for model exchange without events: what it computes is then a function of time, its states and its
    inputs. Its states become states of the system: `uk.System(..., states=fmu.states, state_rate=fmu.rates...)`. First
    derivatives, forward and reverse, are those that it provides (`providesDirectionalDerivatives`); without them
    differentiating is an error.

    **Arguments:**

    - `path`: the FMU, of FMI 3.0 or 2.0.
    - `inputs`, `outputs`: names of variables; by default all continuous ones of that causality.
    - `parameters`: values by names, set before the start.
    - `t0`: when it starts [s].

    **Returns:** `LoadedFmu`.

    **Raises:** `InputError` for co-simulation alone, events, unknown names, and a platform that it has no binary for;
    `MissingExtraError` without FMPy.
    """
    with needing("load_fmu()", "fmu"):
        import fmpy
        import fmpy.simulation
    path = as_path("path", path)
    require_there(path)
    if not zipfile.is_zipfile(path):
        raise InputError(f"'{path}' is not an FMU: that is a zip archive.")
    described: Any = fmpy.read_model_description(str(path))
    if described.fmiVersion[0] not in _VERSIONS or described.modelExchange is None:
        raise InputError(
            f"'{path}' has no model exchange of FMI 2.0 or 3.0: a co-simulation keeps its states and its steps to "
            "itself. Take its steps between calls of `uk.step`."
        )
    if described.numberOfEventIndicators:
        raise InputError(f"the FMU '{path}' has events: a force of a system has none.")
    if fmpy.platform not in fmpy.supported_platforms(str(path)) and fmpy.platform_tuple not in (
        fmpy.supported_platforms(str(path))
    ):
        raise InputError(f"the FMU '{path}' has no binary for {fmpy.platform_tuple}: try `fmpy compile`.")
    chosen = _choose("input", inputs, described), _choose("output", outputs, described)
    instance = _start(fmpy, path, described, dict(parameters or {}), t0)
    return LoadedFmu(instance, described, *chosen, _has_derivatives(path))
