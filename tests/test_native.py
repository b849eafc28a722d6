"""Scalar code as foreign functions of XLA that LLVM compiles by itself: against NumPy, JAX and finite differences."""

import itertools
import subprocess
import sys

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
from ukjax._compiler._expressions import Program
from ukjax._compiler._scalars import Builder
from ukjax._compiler._structured._table import OPERATIONS, fold
from ukjax._motion._acceleration_code import compile_acceleration

pytest.importorskip("llvmlite")

ROUNDING = {"float64": 1e-13, "float32": 1e-5}
OF_WHOLE_NUMBERS = {"shift_left", "shift_right_logical", "shift_right_arithmetic", "quotient", "remainder"}
OF_TYPES = {"attached", "convert", "bitcast"}
OF_TWO = (
    "add",
    "sub",
    "mul",
    "div",
    "max",
    "min",
    "rem",
    "pow",
    "whole_pow",
    "lt",
    "le",
    "gt",
    "ge",
    "eq",
    "ne",
    "atan2",
)


def natively(build, outputs, operands):
    """Outputs by XLA's call, by Python's own, and by NumPy, of operands (count, members) or (count,)."""
    program = Program(build, outputs, tuple(map(len, operands)))
    axes = tuple(1 if x.ndim == 2 else None for x in operands)
    found = jax.jit(jax.vmap(program, axes, 1))(*map(jnp.asarray, operands))
    assert found.dtype == operands[0].dtype
    columns = [x if x.ndim == 2 else x[:, None] for x in operands]
    return found, program.by_machine_code(*columns), program.by_numpy(*columns)


def of_operation(build, op, a, b):
    """An operation on two inputs and with a constant; truth is a number there."""
    first, second = build.apply("gt", a, 0.0), build.apply("lt", b, a)
    if op == "select":
        outputs = [build.apply(op, second, a, b), build.apply(op, second, 1.5, a)]
        outputs += [build.apply(op, second, first, second)]
    elif op in ("and", "or"):
        outputs = [build.apply(op, first, second)]
    elif op == "not":
        outputs = [build.apply(op, first)]
    elif op in OF_TWO:
        outputs = [build.apply(op, a, b), build.apply(op, a, 0.7), build.apply(op, 0.7, b)]
    else:
        outputs = [build.apply(op, a), build.apply(op, b)]
    return outputs


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_each_operation(dtype):
    """All in one program, each on inputs of its own."""
    build, x = Builder(dtype), np.array([[0.3, 0.8, -0.6], [0.5, -0.7, -0.6]])
    where = {"acosh": x + 2, "log": abs(x), "sqrt": abs(x), "pow": abs(x), "whole_pow": abs(x)}
    operations = sorted(set(OPERATIONS) - OF_WHOLE_NUMBERS - OF_TYPES - {"xor"})
    outputs, inputs, owners = [], [], []
    for op in operations:
        a, b = build.input(), build.input()
        own = of_operation(build, op, a, b)
        outputs += [*own, a, 2.0]
        owners += [op] * (len(own) + 2)
        inputs.append(where.get(op, x))
    *found, expected = natively(build, outputs, [np.concatenate(inputs).astype(dtype)])
    size = {"rtol": ROUNDING[dtype], "atol": ROUNDING[dtype] / 10}
    for each in found:
        for op, one, other in zip(owners, np.asarray(each), expected, strict=True):
            np.testing.assert_allclose(one, other, **size, err_msg=op)


@pytest.mark.parametrize("op", ["max", "min", "sign", "sin", "cos", "is_finite", "eq", "ne", "gt"])
def test_what_is_not_a_number(op):
    """As JAX has it, for any place of a NaN, infinities, and zeros of either sign (but for the sine's own)."""
    build = Builder("float64")
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0])
    x = np.array(list(itertools.product(special, special))).T
    count = 1 + (op in OF_TWO)
    inputs = [build.input(), build.input()]
    outputs = [build.apply(op, *inputs[:count])]
    found = np.asarray(natively(build, outputs, [x])[0])[0]
    expected = np.asarray(getattr(jax.lax, op)(*map(jnp.asarray, x[:count])), float)
    np.testing.assert_allclose(found, expected, rtol=1e-15)
    known = ~np.isnan(expected) & (op != "sin")
    np.testing.assert_array_equal(np.signbit(found)[known], np.signbit(expected)[known])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("members", [1, 2, 3, 5, 8, 13, 16, 37])
def test_any_number_of_members(members, dtype):
    """Some inputs are the same for all, in two operands of four."""
    rng, build = np.random.default_rng(members), Builder(dtype)
    known = [build.input() for _ in range(12)]
    for k in range(60):
        for j in range(4):
            other = known[-7] if j else known[k * k % 11]
            known.append(
                build.apply("add", build.apply("mul", 0.5, known[-1]), build.apply("mul", 0.3, other))
            )
    outputs = [*known[-5:], known[30], 0.25, known[3], known[-1]]
    shapes = [(3,), (4, members), (2,), (3, members)]
    *found, expected = natively(build, outputs, [rng.normal(size=x).astype(dtype) for x in shapes])
    for each in found:
        np.testing.assert_allclose(each, expected, rtol=10 * ROUNDING[dtype], atol=ROUNDING[dtype])


@pytest.mark.parametrize("seed", range(4))
def test_random_programs(seed):
    rng, build = np.random.default_rng(seed), Builder("float64")
    known = [build.input() for _ in range(4)]
    for _ in range(1_500):
        op = rng.choice(["add", "sub", "mul", "mul", "max", "neg"])
        operands = [known[-rng.integers(1, min(len(known), 12))] for _ in range(1 + (op != "neg"))]
        known.append(build.apply("mul", 0.5, build.apply(str(op), *operands)))
    outputs = [known[i] for i in rng.integers(0, len(known), 20)]
    *found, expected = natively(build, outputs, [rng.normal(size=(4, 11))])
    for each in found:
        np.testing.assert_allclose(each, expected, rtol=1e-10, atol=1e-13)


def test_known_whole_numbers_are_those_of_numpy():
    sizes = (0, 1, -3, 7, 2**62, 2**63 - 1, -(2**63))
    for op in ("add", "sub", "mul", "eq", "ne", "lt", "le", "gt", "ge"):
        for x, y in itertools.product(sizes, sizes):
            with np.errstate(over="ignore"):
                wanted = OPERATIONS[op].numpy(np.int64(x), np.int64(y)).item()
            found = fold(op, "int64", (x, y))
            assert (found, type(found)) == (wanted, type(wanted))


def test_operations_without_code_have_no_program():
    """A force of such an operation is left to arrays."""
    system = uk.System(jnp.eye(2), lambda t, q, v: jnp.linalg.eigvals(q[:, None, None]).real[:, 0])
    q = np.array([0.1, 0.5])
    with pytest.raises(uk.TranslationError, match="'eig' has no scalar code"):
        uk.lanes(system).one(0.0, q, q)
    run = uk.simulate(system, q, 0 * q, t1=0.5, rtol=1e-9, atol=1e-9, ts=2)
    np.testing.assert_allclose(run.q_end, q * np.cosh(0.5), rtol=1e-8)  # as q'' = q


def test_derivatives_of_a_native_program():
    """Forward, backward and across, against central differences."""
    problem = uk.models.four_bars(n=5)
    q, v = np.asarray(problem.q0), np.asarray(problem.v0)
    along = np.random.default_rng(0).normal(size=(2, q.size))
    a = lambda q: uk.lanes(problem).one(0.0, q, v)
    assert "ukjax_" in jax.jit(a).lower(q).as_text()
    expected = (a(q + 1e-5 * along[0]) - a(q - 1e-5 * along[0])) / 2e-5
    _, forward = jax.jit(lambda q, x: jax.jvp(a, (q,), (x,)))(q, along[0])
    backward = jax.jit(lambda q, x: jax.vjp(a, q)[1](x)[0])(q, along[1])
    np.testing.assert_allclose(forward, expected, rtol=1e-5, atol=1e-6 * abs(expected).max())
    np.testing.assert_allclose(along[0] @ backward, along[1] @ expected, rtol=1e-5)
    every = jax.jit(jax.vmap(lambda s: jax.vjp(a, s * q)[1](along[1])[0]))(np.array([1.0, 1.01, 0.99]))
    np.testing.assert_allclose(every[0], backward, rtol=1e-9, atol=1e-9 * abs(backward).max())


def test_what_is_exported_runs_elsewhere():
    """Machine code belongs to a process: an exported function has none."""
    problem = uk.models.scara()
    a = lambda q, v: uk.lanes(problem).one(0.0, q, v)
    q, v = np.asarray(problem.q0), np.asarray(problem.v0)
    assert "ukjax_" in jax.jit(a).lower(q, v).as_text()
    exported = jax.export.export(jax.jit(a))(q, v)
    assert "ukjax_" not in exported.mlir_module()
    np.testing.assert_allclose(exported.call(q, v), a(q, v), rtol=1e-9)


IN_A_NEW_PROCESS = """
import numpy as np
from ukjax._compiler._expressions import Program
from ukjax._compiler._scalars import Builder

b = Builder("float64")
found = Program(b, [b.apply("tanh", b.input())], (1,)).on_host(np.array([[0.3]]))
assert abs(found - np.tanh(0.3)) < 1e-15, "functions of C"

import diffrax as dfx, jax, jax.numpy as jnp, numpy as np, ukjax as uk
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_num_cpu_devices", 4)
problem, rng = uk.models.four_bars(n=2), np.random.default_rng(0)
q = np.asarray(problem.q0) + 1e-3 * rng.normal(size=(8, 6, problem.q0.size))
v = np.asarray(problem.v0) + 1e-3 * rng.normal(size=(6, problem.v0.size))
a = uk.lanes(problem).one
both = jax.vmap(jax.vmap(lambda q, v: a(0.0, q, v)), (0, None))
loss = jax.grad(lambda q, v: jnp.sum(both(q, v) ** 2), argnums=(0, 1))
run = jax.jit(lambda q, v: (both(q, v), *loss(q, v)))
expected = run(q, v)
mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("x", "y"))
for of_q, of_v in ((P("x", "y"), P("y")), (P(("x", "y")), P()), (P(None, "x"), P("x")), (P(), P())):
    given = jax.device_put((q, v), (NamedSharding(mesh, of_q), NamedSharding(mesh, of_v)))
    found = run(*given)
    assert found[0].sharding.spec == of_q, found[0].sharding
    for x, y in zip(found, expected):
        np.testing.assert_allclose(x, y, rtol=0, atol=1e-14 * abs(y).max())
compiled = run.lower(*given).compile().as_text()
assert "ukjax_" in compiled and "CustomSPMDPartitioning" not in compiled

end = lambda x: uk.simulate(uk.models.four_bars(1, angle=x), t1=0.2, ts=2, adjoint=dfx.ForwardMode()).q[-1]
ends, angles = jax.jit(jax.vmap(end)), jnp.linspace(0.5, 1.0, 8)
spread = ends(jax.device_put(angles, NamedSharding(mesh, P("x"))))
np.testing.assert_allclose(spread, ends(angles), rtol=0, atol=1e-13)

with jax.set_mesh(jax.make_mesh((4,), ("x",))):  # whose devices all compute what is not shared out
    np.testing.assert_allclose(jax.jit(end)(0.5), end(0.5), rtol=0, atol=1e-13)

shared = uk.scalarize(lambda x, y: (jnp.sin(x) * y, jnp.sum(x * y)))
several = jax.jit(jax.vmap(shared, (0, None)))
x, y = jnp.linspace(0.0, 1.0, 32).reshape(8, 4), jnp.arange(4.0)
given = jax.device_put(x, NamedSharding(mesh, P("x")))
for found, expected in zip(several(given, y), (jnp.sin(x) * y, jnp.sum(x * y, axis=1))):
    np.testing.assert_allclose(found, expected, atol=1e-14)
    assert found.sharding.spec == P("x"), found.sharding
assert "all-gather" not in several.lower(given, y).compile().as_text()

explicit = jax.make_mesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Explicit,))
given = jax.device_put(x, NamedSharding(explicit, P("x")))
try:
    several(given, y)
except uk.InputError as error:
    assert "AxisType.Auto" in str(error)
else:
    raise AssertionError("explicit axes")
mapped = jax.shard_map(jax.vmap(shared, (0, None)), mesh=explicit, in_specs=(P("x"), P()), out_specs=P("x"))
np.testing.assert_allclose(jax.jit(mapped)(given, y)[0], jnp.sin(x) * y, atol=1e-14)
"""


def test_in_a_new_process():
    """Functions of C are found before LLVM has compiled anything; then arrays that devices share.

    Each device computes its members, along one axis or two, with the shared ones of another: as on one device. Within
    `set_mesh` runs of one member are as without.
    """
    done = subprocess.run(
        [sys.executable, "-c", IN_A_NEW_PROCESS], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "controller",
    [
        pytest.param(dfx.ConstantStepSize(), id="fixed"),
        pytest.param(dfx.PIDController(1e-6, 1e-6), id="adaptive", marks=pytest.mark.slow),
    ],
)
def test_runs_of_one_method_and_another_control_are_one_call(controller):
    problem = uk.models.pendulum()
    run = lambda q: uk.simulate(
        problem.system, q, problem.v0, t1=0.1, dt0=0.01, ts=2, solver=dfx.Tsit5(), stepsize_controller=controller
    ).q  # fmt: skip
    assert "ukjax_scalars" in jax.jit(run).lower(problem.q0).as_text()


@pytest.mark.parametrize("name", ["pendulum", "slider_crank", "spinning_top", "five_bar", "arm_6r"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_numpy_gives_the_bits_of_machine_code(name, dtype):
    """So what is asked a few times need not be compiled, and what is told of a state is one number."""
    of_type = lambda x: x.astype(dtype) if eqx.is_inexact_array(x) else x
    problem, rng = jax.tree.map(of_type, uk.models.get(name)), np.random.default_rng(0)
    t, q, v = (jnp.asarray(x, dtype) for x in (0.0, problem.q0, problem.v0))
    code = compile_acceleration(problem.system, None, uk.Projection(), t, q, v)
    program, numbers = code.observed.program, np.asarray(code.numbers(problem.system, uk.Projection()))
    states = [np.asarray(x)[:, None] + 0.1 * rng.standard_normal((x.size, 7)) for x in (q, v)]
    states[0][:, 0] = 0.0  # where some rows depend on others
    operands = [numbers[:, None], np.zeros((1, 1)), *states, np.full((1, 1), np.inf)]
    operands = [x.astype(dtype) for x in operands]
    assert program._by_numpy.exact
    found = program.by_numpy(*operands)
    assert np.isfinite(found).any(axis=1).all()
    np.testing.assert_array_equal(found, program.by_machine_code(*operands))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_sines_of_numpy_are_those_of_machine_code(dtype):
    build, most = Builder(dtype), 1.6e9 if dtype == "float64" else 1e3
    x = np.concatenate([np.linspace(-1e3, 1e3, 5001), np.linspace(-most, most, 5001), [np.inf, np.nan, 1e19]])
    inputs = build.input()
    program = Program(build, [build.apply("sin", inputs), build.apply("cos", inputs)], [1])
    x = x.astype(dtype)[None]
    found = program.by_numpy(x)
    np.testing.assert_array_equal(found, program.by_machine_code(x))
    exact = np.array([np.sin(x[0, :-3].astype(np.longdouble)), np.cos(x[0, :-3].astype(np.longdouble))])
    np.testing.assert_allclose(found[:, :-3], exact.astype(float), atol=2 * np.finfo(dtype).eps)
