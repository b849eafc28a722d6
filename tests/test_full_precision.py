"""No matrix product is left at a GPU's default, which would round float32 to ten bits: seen in the operations traced."""

from collections.abc import Callable, Iterator
from typing import Any

import diffrax as dfx
import jax
import jax.numpy as jnp
import pytest
from jax.extend.core import ClosedJaxpr, Jaxpr

import ukjax as uk
import ukjax.mechanisms as um

FULL = (jax.lax.Precision.HIGHEST, jax.lax.Precision.HIGHEST)
ARRAYS = uk.NullSpace()  # which has no scalar code


@pytest.fixture(autouse=True)
def _single() -> Iterator[None]:
    with jax.enable_x64(False):
        yield


def jaxprs(x: Any) -> Iterator[Jaxpr]:
    """Those in the parameters of an operation."""
    if isinstance(x, ClosedJaxpr | Jaxpr):
        yield getattr(x, "jaxpr", x)
    for inner in x if isinstance(x, tuple | list) else ():
        yield from jaxprs(inner)


def precisions(jaxpr: Jaxpr) -> Iterator[Any]:
    """Of all matrix products, those of inner functions and loops too."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            yield equation.params["precision"]
        for parameter in equation.params.values():
            for inner in jaxprs(parameter):
                yield from precisions(inner)


def require_full(function: Callable, *operands: Any) -> None:
    jaxpr = jax.make_jaxpr(function)(*operands).jaxpr
    found = list(precisions(jaxpr))
    assert found or "scalars" in str(jaxpr)  # a program of scalars has no products of matrices
    assert set(found) <= {FULL}


def own_system() -> uk.System:
    """Matrix products in every function that a user writes."""
    turn = lambda q: jnp.array([[1.0, 2.0], [3.0, 4.0]]) @ q
    return uk.System(
        lambda t, q: jnp.eye(2) @ jnp.diag(2 + turn(q) ** 2),
        lambda t, q, v: turn(v),
        [uk.Holonomic(lambda t, q: q @ turn(q) - 1.0, name="curve")],
        energy=lambda t, q, v: v @ turn(v),
        nonideal_force=lambda t, q, v: turn(v),
        kinematics=lambda t, q, v: turn(v),
    )


def problem_of(name: str) -> uk.Problem:
    if name != "own":
        return uk.models.get(name)
    return uk.Problem(own_system(), jnp.array([0.3, 0.4]), jnp.zeros(2), 0.0, 1.0)


@pytest.mark.parametrize(
    ("name", "stabilizer"),
    [
        pytest.param("own", uk.Baumgarte(1.0, 10.0), id="Baumgarte-own"),
        pytest.param("own", uk.Projection(), id="Projection-own"),
        pytest.param("arm_6r", uk.Baumgarte(1.0, 10.0), id="Baumgarte-arm_6r", marks=pytest.mark.slow),
        pytest.param("arm_6r", uk.Projection(), id="Projection-arm_6r", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("formula", [ARRAYS, None], ids=["arrays", "default"])
def test_step(name: str, stabilizer: uk.AbstractStabilizer, formula: uk.AbstractFormula | None) -> None:
    problem = problem_of(name)
    step = lambda q, v: uk.step(problem, problem.t0, q, v, 1e-2, formula=formula, stabilizer=stabilizer)
    if formula is not None:
        require_full(step, problem.q0, problem.v0)
    else:  # scalar code may have none at all
        assert set(precisions(jax.make_jaxpr(step)(problem.q0, problem.v0).jaxpr)) <= {FULL}


@pytest.mark.parametrize(
    "solver", [pytest.param(dfx.Tsit5(), marks=pytest.mark.slow), dfx.Kvaerno3()], ids=str
)
def test_simulate(solver: dfx.AbstractSolver) -> None:
    """With what a trajectory tells, and a user's event."""
    problem = problem_of("own")
    event = lambda t, q, v: q @ jnp.ones((2, 2)) @ v - 100.0
    run = lambda q, v: (
        uk.simulate(problem.system, q, v, t1=1.0, ts=3, formula=ARRAYS, solver=solver, event=event).energy
    )
    require_full(run, problem.q0, problem.v0)


@pytest.mark.slow
def test_derivatives_of_what_was_compiled() -> None:
    """The rules are traced after the function they are of."""
    problem = problem_of("own")

    @jax.jit
    def end(q: jax.Array) -> jax.Array:
        return uk.simulate(problem.system, q, problem.v0, t1=1.0, ts=3, formula=ARRAYS, max_steps=16).q[-1, 0]

    jax.eval_shape(end, problem.q0)
    require_full(jax.grad(end), problem.q0)


@pytest.mark.parametrize(
    "formula",
    [
        uk.UdwadiaKalaba(uk.SVD()),
        uk.Schur(),
        uk.RangeForm(),
        uk.StackedForm(),
        uk.NullSpace(),
        uk.Recursive(),
    ],
    ids=lambda x: type(x).__name__,
)
def test_formulas(formula: uk.AbstractFormula) -> None:
    problem = problem_of("own")
    require_full(lambda q, v: formula.acceleration(problem.system, 0.0, q, v), problem.q0, problem.v0)


def test_step_at_the_energy_of_the_start() -> None:
    problem, solver = problem_of("own"), uk.EnergyProjection(dfx.Tsit5())
    require_full(lambda q, v: uk.step(problem, 0.0, q, v, 1e-2, solver=solver), problem.q0, problem.v0)


def test_rows_and_projection() -> None:
    problem = problem_of("own")
    require_full(lambda q, v: uk.constraint_rows(problem.system, 0.0, q, v), problem.q0, problem.v0)
    require_full(lambda q, v: uk.project(problem.system, 0.0, q, v), problem.q0, problem.v0)


def test_servo_control() -> None:
    problem = problem_of("own")
    input_matrix, task = jnp.eye(2), [uk.Holonomic(lambda t, q: q[0] - t, name="task")]
    control = lambda q, v: uk.servo_control(problem.system, input_matrix, task, t=0.0, q=q, v=v).u
    require_full(control, problem.q0, problem.v0)


def test_reactions_and_velocities() -> None:
    problem = uk.models.arm_6r()
    require_full(lambda q, v: um.reactions(problem.system, 0.0, q, v), problem.q0, problem.v0)
    require_full(lambda q: um.velocity(problem.system, {}, 0.0, q), problem.q0)
