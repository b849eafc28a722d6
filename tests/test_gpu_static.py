"""Kernels of GPUs without one, compiled for this machine.

Nothing here runs on a GPU: `test_gpu.py` does. A kernel is LLVM's text, the same for a GPU and for a host but for how a
thread is counted and for a reciprocal, which on the host is as inexact as that of a GPU.
"""

from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kernels import kernels_on_host, registers_of, run_kernel, run_threads

import ukjax as uk
from ukjax._compiler._expressions import Program
from ukjax._compiler._scalars import Builder
from ukjax._motion._model import Model, translate_model

# The whole run of a kernel, on this machine.

SMALL = "pendulum", "two_mass_spring", "rolling_disk", "light_cart_pole", "spinning_top"
PRECISIONS = {"float64": True, "float32": False}
FEW = [pytest.param(x, "float64", 100, id=f"{x}-float64-few") for x in SMALL]
MANY = [
    pytest.param(x, p, 1000, id=f"{x}-{p}", marks=pytest.mark.slow)
    for x in sorted(uk.models.MODELS)
    for p in PRECISIONS
]
WAYS: dict[str, dict[str, Any]] = {
    "adaptive": {},
    "fixed": {"solver": dfx.Bosh3(), "stepsize_controller": dfx.ConstantStepSize(), "dt0": 0.05},
}


Left = dict[str, np.ndarray]


def starts(problem: uk.Problem, runs: int) -> tuple[np.ndarray, np.ndarray]:
    """Velocities of other sizes, as constraints allow; one of them of a state that is no number."""
    scales, dtype = np.random.default_rng(0).uniform(0.3, 1.5, (runs, 1)), problem.q0.dtype
    at = lambda scale: np.concatenate(uk.project(problem.system, problem.t0, problem.q0, scale * problem.v0))
    slow, usual = at(0.0), at(1.0)  # what constraints allow of velocities is a line, or more
    y = (slow + scales * (usual - slow)).astype(dtype)
    y[runs // 2] = np.nan
    return y[:, : problem.q0.size], y[:, problem.q0.size :]


def nudged(y: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    """The same states moved by rounding: what that changes, no other way of computing can be held to."""
    rng = np.random.default_rng(1)
    return tuple(x * (1 + np.finfo(x.dtype).eps * rng.choice([-1, 1], x.shape).astype(x.dtype)) for x in y)


def left(run: uk.Trajectory) -> dict[str, Any]:
    """What steps leave behind."""
    counts = {name: run.stats[name] for name in ("num_steps", "num_accepted_steps")}
    return counts | {
        "q": run.q,
        "v": run.v,
        "q_end": run.q_end,
        "v_end": run.v_end,
        "result": run.result._value,
    }


def batch(one: Any, *given: Any) -> Left:
    """By machine code, or within `kernels_on_host` by kernels."""
    return jax.device_get(jax.jit(jax.vmap(one))(*given))


def alike(found: Left, want: Left) -> np.ndarray:
    """Which runs took as many steps, and had as many accepted: elsewhere rounding decided of one."""
    return np.all([found[x] == want[x] for x in ("num_steps", "num_accepted_steps")], axis=0)


def apart(found: Left, want: Left) -> float:
    """The largest difference of states, saved ones and ends, among runs that are alike."""
    same = alike(found, want)
    with np.errstate(invalid="ignore"):
        each = [np.abs(found[x][same] - want[x][same]) for x in ("q", "v", "q_end", "v_end")]
        return max(np.nanmax(x, initial=0.0) for x in each)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("name", "precision", "runs"), [*FEW, *MANY])
def test_kernels_give_what_simulate_gives(name: str, precision: str, runs: int, way: str) -> None:
    """Saved states, ends, steps and codes of runs; some end early, since they may take no more than some steps."""
    with jax.enable_x64(x64 := PRECISIONS[precision]):
        problem = uk.models.get(name)
        # Steps that grow by the largest factor end at times that no state changes. Where a run ends near such a time,
        # rounding decides of a step in all runs: in float32 those of an RLC network near 0.023 and of Bricard's linkage
        # near 0.025 of the time.
        span = 0.028 * (problem.t1 - problem.t0)
        options = {"t0": problem.t0, "t1": problem.t0 + span, "ts": 5, "max_steps": 25} | WAYS[way]
        if "dt0" in options:
            options["dt0"] *= span
        one = lambda q, v: left(uk.simulate(problem.system, q, v, **options))
        given = starts(problem, runs)
        want, moved = batch(one, *given), batch(one, *nudged(given))
        with kernels_on_host(threads=runs):
            found = batch(one, *given)
    same = alike(found, want)
    assert same.mean() > min(0.95, alike(moved, want).mean() - 0.1)
    np.testing.assert_array_equal(found["result"][same], want["result"][same])
    assert want["result"][runs // 2] != 0
    for x in ("q", "v"):
        np.testing.assert_array_equal(np.isfinite(found[x][same]), np.isfinite(want[x][same]))
    ends = np.concatenate([want["q_end"], want["v_end"]], 1)
    scale = np.nanmax(np.abs(ends), initial=1.0)  # of an unstable run all may be NaN
    assert apart(found, want) < (1e-8 if x64 else 1e-3) * scale + 10 * apart(moved, want)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["pendulum", "spinning_top"])
def test_kernels_of_changes_take_the_same_steps(name: str, way: str) -> None:
    """Of random changes of parameters and start, as on a CPU, where `test_whole_gradients` compares with differences."""
    problem = uk.models.get(name)
    span = 0.02 * (problem.t1 - problem.t0)
    options = {"t0": problem.t0, "t1": problem.t0 + span, "ts": 5} | WAYS[way]
    if "dt0" in options:
        options["dt0"] *= span
    moving, still = eqx.partition(problem.system, eqx.is_inexact_array)

    def one(moving: Any, q: Any, v: Any) -> Any:
        return left(uk.simulate(eqx.combine(moving, still), q, v, **options))

    rng = np.random.default_rng(0)
    some = lambda x: jnp.asarray(rng.normal(size=x.shape))
    q, v = (np.delete(x, 25, axis=0) for x in starts(problem, 50))
    along = jax.tree.map(some, moving), some(q), some(v)

    def changed(q: Any, v: Any, dq: Any, dv: Any) -> Any:
        value, change = jax.jvp(one, (moving, q, v), (along[0], dq, dv))
        return value | {f"{x}_change": change[x] for x in ("q", "v", "q_end", "v_end")}

    given = q, v, *along[1:]
    plain, want = batch(lambda q, v: one(moving, q, v), q, v), batch(changed, *given)
    with kernels_on_host():
        found = batch(changed, *given)
    assert alike(found, want).mean() > 0.9
    assert alike(want, plain).mean() > 0.9
    same = alike(found, want)
    for x in ("q", "v", "q_end", "v_end"):
        np.testing.assert_allclose(want[x], plain[x], rtol=0, atol=1e-9)
        a, b = (of[f"{x}_change"][same] for of in (found, want))
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-7 * np.abs(want[f"{x}_change"]).max())


def test_runs_that_take_too_many_steps_fail_by_code() -> None:
    problem = uk.models.pendulum()
    one = lambda v: left(uk.simulate(problem.system, problem.q0, v, t1=10.0, ts=3, max_steps=4))
    with kernels_on_host():
        found = batch(one, problem.v0[None])
    (code,) = jax.tree.leaves(dfx.RESULTS.max_steps_reached)
    assert found["result"][0] == code
    assert found["num_steps"][0] == 4
    assert not np.isfinite(found["q"][0, -1]).any()


def test_expressions_as_kernels() -> None:
    """Operands of all members, and shared ones, of a program with each kind of operation."""
    build = Builder("float64")
    x, y = ([build.input() for _ in range(2)] for _ in range(2))
    of, less = build.apply, build.apply("gt", x[0], y[0])
    outputs = [
        of("select", less, of("max", x[1], y[1]), of("min", x[1], y[1])),
        of("div", of("sin", x[0]), y[1]),
        of("mul", of("sign", x[0]), of("floor", y[0])),
        of("pow", of("sqrt", y[1]), x[1]),
    ]
    program = Program(build, outputs, (2, 2)).scalars
    x, y = np.random.default_rng(0).normal(size=(2, 50)), np.array([0.3, 1.7])
    found = run_threads(program.kernel((False, True)), [x, y], 50)[0]
    one = np.where(x[0] > y[0], np.maximum(x[1], y[1]), np.minimum(x[1], y[1]))
    want = [one, np.sin(x[0]) / y[1], np.sign(x[0]) * np.floor(y[0]), np.sqrt(y[1]) ** x[1]]
    np.testing.assert_allclose(found, want, rtol=1e-14)


def test_projections_are_kernels_and_loops_of_machine_code() -> None:
    """States near and far, of few passes and many: each is on the circle through the same angle, its speed along it."""
    problem, rng = uk.models.pendulum(), np.random.default_rng(0)
    model = Model(problem.system, uk.UdwadiaKalaba(), uk.Projection())
    state = jnp.asarray(problem.t0), problem.q0, problem.v0
    model = translate_model(model, dfx.Tsit5(), *state, automatic=True)[0].ready()
    q, v = rng.normal(size=(2, 2, 60))
    q *= (1 + 10.0 ** rng.uniform(-12, -0.3, 60)) / np.linalg.norm(q, axis=0)
    along = q / np.linalg.norm(q, axis=0)
    want = np.concatenate([along, v - along * np.sum(along * v, axis=0)])
    numbers, t = np.asarray(model.numbers[1])[:, None], np.zeros((1, 60))
    program = model.projection.whole.scalars
    given = [x for x in (numbers, t, q, v, np.zeros((4, 1))) if len(x)]
    given = [np.ascontiguousarray(np.broadcast_to(x, (len(x), 60))) for x in given]
    kernel = run_threads(program.kernel((False,) * len(given)), given, 60)[0]
    code = jax.vmap(lambda t, q, v: model.project(t, (q, v)))(t[0], q.T, v.T)
    here = model.projection.on_host(numbers, t, q, v)
    for found in (kernel[:4].T, np.hstack(code), np.hstack(here)):
        np.testing.assert_allclose(found, want.T, rtol=0, atol=1e-14)


# Registers.

BUDGET = {  # registers, and bytes of spills written
    ("pendulum", "float64"): (168, 0),
    ("pendulum", "float32"): (96, 0),
    ("scara", "float32"): (255, 0),
    ("four_bars", "float32"): (255, 0),
    ("parallelogram", "float32"): (255, 128),
    ("parallelogram", "float64"): (255, 3_000),
}
# By ptxas of CUDA 13.0. Stages are written out one after the other, which keeps more numbers than a loop over them.
OVER = {
    ("pendulum", "float64"): "236 registers",
    ("pendulum", "float32"): "120 registers",
    ("four_bars", "float32"): "848 bytes",
    ("parallelogram", "float32"): "2,056 bytes",
    ("parallelogram", "float64"): "6,796 bytes",
}


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        pytest.param(
            *x,
            marks=[pytest.mark.slow] * (x[0] in ("scara", "parallelogram"))
            + [pytest.mark.xfail(strict=True, reason=OVER.get(x, ""))] * (x in OVER),
        )
        for x in BUDGET
    ],
)
def test_registers_and_spills(name: str, dtype: str) -> None:
    """By NVIDIA's assembler, where it is installed: `pip install nvidia-cuda-nvcc-cu12`."""
    with jax.enable_x64(dtype == "float64"):
        problem = uk.models.get(name)
        options = {"t0": problem.t0, "t1": problem.t0 + 0.01, "ts": 2}
        run = lambda q, v: left(uk.simulate(problem.system, q, v, **options))
        found = registers_of(run_kernel(run, *(jnp.stack([x, x]) for x in (problem.q0, problem.v0))).ptx)
    if found is None:
        pytest.skip("needs ptxas")
    assert found[0] <= BUDGET[name, dtype][0]
    assert found[1] <= BUDGET[name, dtype][1]
