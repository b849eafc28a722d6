"""What every path of batches becomes for accelerators, without one: XLA lowers for a platform that is not there.

One lowering is for all three. What stands in its text, a device has to run: calls that only CPUs have, and callbacks of
this process, must not be there, and no numbers of another precision than the one asked for.
"""

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array
from kernels import as_with_gpu

import ukjax as uk
from ukjax._compiler import _foreign
from ukjax._sweep import _prepare, _run
from ukjax._sweep._samples import as_samples
from ukjax._tune import _objective
from ukjax._tune._prepare import prepare

FEW = 7
PLATFORMS = "cuda", "rocm", "tpu"
KERNEL = "__gpu$xla.gpu.ptx"
# Of XLA's own: LU of implicit solvers on each platform, and how arrays are spread over devices.
CALLS = re.compile(r"(cu|hip)(solver|blas)?_\w+|LuDecomposition|Sharding|SPMD\w+")


def end(x: Array, **options: Any) -> Array:
    return uk.simulate(uk.models.pendulum(angle=x), t1=0.1, ts=3, **options).q[-1]


def fixed(x: Array) -> Array:
    return end(x, solver=dfx.Tsit5(), stepsize_controller=dfx.ConstantStepSize(), dt0=0.01)


def step(x: Array) -> Array:
    problem = uk.models.pendulum(angle=x)
    return uk.step(problem.system, 0.0, problem.q0, problem.v0, 0.01)[0]


def acceleration(x: Array) -> Array:
    problem = uk.models.pendulum(angle=x)
    formula = uk.UdwadiaKalaba(uk.GramSchmidt())
    return formula.acceleration(problem.system, 0.0, problem.q0, problem.v0).a


def lanes(x: Array) -> Array:
    problem = uk.models.pendulum()
    return uk.lanes(problem).one(0.0, problem.q0 * x, problem.v0)


def compiled(x: Array) -> Array:
    problem = uk.models.pendulum()
    return uk.compiled(problem, t1=0.1, ts=3, outputs=lambda run: run.q[-1])(v0=problem.v0 * x)


def episode(x: Array) -> Array:
    """Steps that begin anew where an episode ends."""

    def height(t: Array, q: Array, v: Array, action: Array) -> Array:
        return q[1]

    problem = uk.models.pendulum()
    environment = uk.Environment(problem, jnp.eye(2), height, dt=0.05, horizon=2)
    state = environment.reset(jax.random.key(0))
    return environment.step(state, jnp.stack([x, x]), auto_reset=True)[1]


def forward(x: Array) -> Array:
    return jax.jvp(end, (x,), (jnp.ones_like(x),))[1]


def members(function: Callable[[Array], Any]) -> Callable[[Array], Any]:
    return jax.vmap(lambda one: function(one))


def chunk(*gradients: str) -> Callable[[Array], Any]:
    """What a sweep computes of a chunk."""
    samples = as_samples({"angle": np.linspace(0.3, 1.0, FEW)})
    options = {"t0": None, "t1": 0.1, "dt0": None, "ts": 3, "solver": dfx.Dopri8(), "max_steps": 1000}
    options |= {"stepsize_controller": None, "rtol": None, "atol": None, "event": None, "contact": None}
    outputs = "q_end", "energy_drift"
    given = uk.models.pendulum, samples, outputs, gradients, uk.Projection(), None, options, {}
    program = _prepare.prepare(*given).program
    return lambda x: _run.run_batch(program, {"angle": x})


def objective() -> _objective.Objective:
    """What tuning minimizes."""
    options = {"q0": None, "v0": None, "t0": None, "t1": 0.1, "dt0": 0.01, "ts": None, "formula": None}
    options |= {"stabilizer": uk.Projection(), "solver": dfx.Tsit5(), "stepsize_controller": None}
    options |= {"contact": None, "rtol": None, "atol": None, "max_steps": 1000, "aggregate": "mean"}
    gains, loss = uk.Baumgarte(10.0, 10.0), uk.ViolationLoss()
    return prepare(uk.models.pendulum(), gains, loss, "plain", False, options)[0]


def losses() -> Callable[[Array], Any]:
    of = objective()
    return lambda x: _objective.losses(of, jnp.stack([x, x], 1))


def loss_and_gradient() -> Callable[[Array], Any]:
    of = objective()
    return lambda x: _objective.loss_and_gradient(of, x[:2], True)[:2]


def observed(x: Array) -> Array:
    return uk.simulate(uk.models.pendulum(angle=x), t1=0.1, ts=3).constraint_force


def every_step(x: Array) -> Array:
    return uk.simulate(uk.models.pendulum(angle=x), t1=0.1, ts="steps", max_steps=64).q


ONE: dict[str, Callable[[Array], Any]] = {
    "simulate": end,
    "fixed steps": fixed,
    "all observed": observed,
    "compiled": compiled,
    "step": step,
    "acceleration": acceleration,
    "lanes": lanes,
    "environment": episode,
    "every step": every_step,
    "implicit": lambda x: end(x, solver=dfx.Kvaerno3()),
    "forward mode": forward,
    "reverse mode": jax.grad(lambda x: end(x).sum()),
}
PATHS: dict[str, Callable[[], Callable[[Array], Any]]] = {
    **{name: functools.partial(members, function) for name, function in ONE.items()},
    "sweep": chunk,
    "tune": losses,
    "sweep of gradients": functools.partial(chunk, "q_end"),
    "gradient of tune": loss_and_gradient,
}
KERNELS = frozenset(PATHS) - {"acceleration"}  # of a formula on arrays
LONG = {"implicit", "reverse mode", "forward mode", "sweep of gradients", "gradient of tune"}
# The loop is that of "simulate", or with fixed steps that of "tune"; what is saved that of "sweep".
SAME = {"fixed steps", "compiled", "every step", "all observed"}
# Ordinary of them: `test_a_batch_is_few_kernels_and_waits_for_nothing`.
AS_KERNELS = {"sweep", "tune"}
# In float32 as the others.
ALIKE = {"simulate", "environment", "sweep", "tune"}
CASES = [
    pytest.param(
        x, x64, marks=[pytest.mark.slow] * (x in LONG | SAME | AS_KERNELS or (x in ALIKE and not x64))
    )
    for x in PATHS
    for x64 in (True, False)
]


def lowered(function: Callable[[Array], Any], platforms: Sequence[str]) -> str:
    traced = jax.jit(function).trace(jnp.linspace(0.3, 1.0, FEW))
    return traced.lower(lowering_platforms=tuple(platforms)).as_text()


def calls(text: str) -> set[str]:
    """The foreign functions that are called."""
    return set(re.findall(r"custom_call @([\w$.]+)", text))


def refused(text: str) -> set[str]:
    """Those that an accelerator need not have, and types of another precision."""
    other = "f32" if jax.config.jax_enable_x64 else "f64"
    wrong = {x for x in calls(text) if x != KERNEL and not CALLS.fullmatch(x)}
    return wrong | set(re.findall(rf"tensor<(?:\d+x)*({other})>", text))


@pytest.mark.parametrize(("path", "x64"), CASES)
def test_batches_are_lowered_for_accelerators(path: str, x64: bool) -> None:
    """By operations of XLA, and as kernels where there is a GPU that takes them."""
    with jax.enable_x64(x64):
        text = lowered(PATHS[path](), PLATFORMS)
        assert refused(text) == set()
        assert KERNEL not in calls(text)
        with as_with_gpu():
            text = lowered(PATHS[path](), ["cuda"])
        assert refused(text) == set()
        assert (KERNEL in calls(text)) == (path in KERNELS)


def test_calls_that_only_cpus_have_are_found() -> None:
    """On a CPU there are some; and of those put into a path none is overlooked."""

    def foreign(x: Array) -> Array:
        return step(x) * jax.ffi.ffi_call("ukjax_put_in", jax.ShapeDtypeStruct((), x.dtype))(x)

    def of_python(x: Array) -> Array:
        return step(x) * jax.pure_callback(
            np.sin, jax.ShapeDtypeStruct((), x.dtype), x, vmap_method="sequential"
        )

    assert refused(lowered(PATHS["step"](), ["cpu"]))
    with pytest.raises((ValueError, NotImplementedError)):  # not even lowered
        lowered(lambda x: of_python(x[0]), ["cuda"])
    assert "ukjax_put_in" in refused(lowered(lambda x: foreign(x[0]), ["cuda"]))


def test_numbers_of_another_precision_are_found() -> None:
    def mixed(x: Array) -> Array:
        return step(x[0]) * jax.lax.convert_element_type(jnp.sin(x[0].astype(jnp.float32)), x.dtype)

    assert refused(lowered(mixed, ["cuda"])) == {"f32"}


FEWEST = {"step": 2, "lanes": 1, "tune": 2, "simulate": 4, "sweep": 4}
"""Kernels: a run is one (and of a step, another whether it is on the constraints; of tuning, another of the errors along
it); where states are asked for, there are those of what is saved and observed."""


@pytest.mark.parametrize("path", FEWEST)
def test_a_batch_is_few_kernels_and_waits_for_nothing(path: str) -> None:
    """Of a loop outside of kernels XLA asks on the host, each time, whether to go on."""
    with as_with_gpu():
        text = lowered(PATHS[path](), ["cuda"])
    assert text.count(f"@{KERNEL}") == FEWEST[path]
    assert "stablehlo.while" not in text


@pytest.mark.parametrize("function", [step, pytest.param(end, marks=pytest.mark.slow)])
def test_what_is_exported_has_no_kernels(function: Callable[[Array], Array]) -> None:
    """It may run where the card, or its driver, is another."""
    shape = jax.ShapeDtypeStruct((FEW,), jnp.float64)
    with as_with_gpu():
        exported = jax.export.export(jax.jit(jax.vmap(function)), platforms=("cuda",))(shape)
    assert "__gpu$" not in exported.mlir_module()


def test_where_code_is_to_run_is_not_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process with an accelerator may compute on its CPU."""
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    assert not _foreign.machine_code_runs()
    with jax.default_device(jax.devices("cpu")[0]):
        assert _foreign.machine_code_runs()
    with jax.default_device("cpu"):
        assert _foreign.machine_code_runs()
