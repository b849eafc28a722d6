"""Mistakes of a first day, each as one makes it: what is raised says the cause and the remedy, as docs say it does."""

import math
import re
import subprocess
import sys
from pathlib import Path

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk
import ukjax.mechanisms as um

pytestmark = pytest.mark.wrong_shapes

ROD = uk.Holonomic(lambda t, q: jnp.dot(q, q) - 1.0, name="rod")
Q0, V0 = jnp.array([1.0, 0.0]), jnp.zeros(2)
S, E, T = (0.0, 0.0), (1.0, 0.0), (2.0, 0.0)
LINKS = [um.rod("upper", S, E, mass=1.0), um.rod("fore", E, T, mass=1.0)]
PINS = [um.Revolute("S", "ground", "upper", S), um.Revolute("E", "upper", "fore", E)]
ROBOT = '<mujoco><worldbody><body><joint axis="0 1 0"/><geom size="0.1"/></body></worldbody></mujoco>'


def _run(q0=Q0, v0=V0, t1=1.0, mass=None, force=None, constraints=(ROD,), **options):
    mass = jnp.eye(2) if mass is None else mass
    force = jnp.array([0.0, -9.81]) if force is None else force
    return uk.simulate(uk.System(mass, force, constraints), q0, v0, t1=t1, **options)


def _held(fn, **options):
    return _run(constraints=[uk.Holonomic(fn, name="rod")], **options)


def _assigned(t, q, v):
    f = jnp.zeros(2)
    f[1] = -9.81 * q[0]
    return f


def _chosen(t, q, v):
    return -q if q[0] > 0 else q


def _forgotten(t, q):
    jnp.dot(q, q) - 1.0


LENGTH = 1.0


def _by_global(length):
    global LENGTH
    LENGTH = length
    return _held(lambda t, q: jnp.dot(q, q) - LENGTH**2).q_end[0]


def _looked_at(q0):
    run = _run(q0)
    return run.q_end if run.ok else q0


NUMPY = "write jnp in place of np"
LIST = "make an array of it"

# What one does, as the table in docs/troubleshooting.md calls it: how, what is raised, and words of cause and remedy.
MISTAKES = {
    "NumPy in a function": (
        lambda: _run(force=lambda t, q, v: np.array([0.0, -np.sin(q[0])])),
        uk.InputError,
        ("the force of System", "NumPy", NUMPY),
    ),
    "NumPy in a constraint, under `jit`": (
        lambda: jax.jit(lambda q: _held(lambda t, q: np.linalg.norm(q) - 1.0, q0=q).q_end)(Q0),
        uk.InputError,
        ("constraint 'rod'", "NumPy", NUMPY),
    ),
    "`math.sin(q[0])`": (
        lambda: _held(lambda t, q: q[1] - math.sin(q[0])),
        uk.InputError,
        ("constraint 'rod'", "only known in the run", "write jnp in place of math"),
    ),
    "`if q[0] > 0:`": (
        lambda: _run(force=_chosen),
        uk.InputError,
        ("the force of System", "only known in the run", "jnp.where(condition, x, y)"),
    ),
    "`f[1] = -9.81 * q[0]`": (
        lambda: _run(force=_assigned),
        uk.InputError,
        ("the force of System", "entry by entry", "jnp.stack([x, y])", "f.at[0].set(x)"),
    ),
    "`[0.0, -9.81] * q`": (
        lambda: _run(force=lambda t, q, v: [0.0, -9.81] * q),
        uk.InputError,
        ("the force of System", "computes with a list", LIST),
    ),
    "`q.x` or `q['x']`": (
        lambda: _held(lambda t, q: q["x"]),
        uk.InputError,
        ("constraint 'rod'", "asks an array for a name", "q[0]"),
    ),
    '`print(f"{q[0]:.3f}")`': (
        lambda: _run(force=lambda t, q, v: -q if f"{q[0]:.3f}" else q),
        uk.InputError,
        ("the force of System", "only known in the run", "jax.debug.print"),
    ),
    "An index too large": (
        lambda: _held(lambda t, q: q[2]),
        uk.InputError,
        ("reads entry 2 of an axis of 2", "must lie between -2 and 1"),
    ),
    "No `return`": (
        lambda: _held(_forgotten),
        uk.InputError,
        ("constraint 'rod'", "None", "`return`"),
    ),
    "A constraint written with `==`": (
        lambda: _held(lambda t, q: jnp.dot(q, q) == 1.0),
        uk.InputError,
        ("constraint 'rod' returned bool", "a - b for a == b"),
    ),
    "A constraint that returns `0`": (
        lambda: _held(lambda t, q: 0),
        uk.InputError,
        ("constraint 'rod' returned int", "0.0 for 0"),
    ),
    "A function of `q` alone": (
        lambda: uk.Holonomic(lambda q: q[0], name="rod"),
        uk.InputError,
        ("constraint 'rod'", "must be a function of (t, q)", "takes (q)"),
    ),
    "A function of `(q, t)`": (
        lambda: uk.Holonomic(lambda q, t: q[0], name="rod"),
        uk.InputError,
        ("constraint 'rod'", "called with (t, q), in this order", "takes (q, t)"),
    ),
    "A constraint without a list": (
        lambda: _run(constraints=ROD),
        uk.InputError,
        ("constraints must be a tuple", "got Holonomic", "put it into a list"),
    ),
    "A function in place of a constraint": (
        lambda: _run(constraints=[lambda t, q: q[0]]),
        uk.InputError,
        ("constraints must be a tuple of Holonomic(fn)", "got (function)"),
    ),
    "A norm or root at zero": (
        lambda: _held(lambda t, q: jnp.linalg.norm(q - Q0)),
        uk.InputError,
        ("rows rod are not finite", "norm", "no derivative", "|d|^2 - l^2"),
    ),
    "A division by zero": (
        lambda: _run(force=lambda t, q, v: q / v[0]),
        uk.InputError,
        ("the force is not finite", "division by zero"),
    ),
    "A state of shape (n, 1)": (
        lambda: _run(Q0[:, None], V0[:, None]),
        uk.InputError,
        ("q has shape (2, 1)", "one state is a vector", "q.ravel()"),
    ),
    "Many states at once": (
        lambda: _run(jnp.ones((5, 2)), jnp.zeros((5, 2))),
        uk.InputError,
        ("q has shape (5, 2)", "one state is a vector", "jax.vmap"),
    ),
    "A number for a mass matrix": (
        lambda: _run(mass=2.0),
        uk.InputError,
        ("the mass matrix has shape ()", "m * jnp.eye(2)"),
    ),
    "Masses and state of different lengths": (
        lambda: _run(jnp.ones(3), jnp.zeros(3)),
        uk.InputError,
        ("the mass matrix has shape (2, 2)", "must be (3, 3)", "the state has 3 entries"),
    ),
    "One triangle of the mass matrix": (
        lambda: _run(mass=jnp.array([[2.0, 0.5], [0.0, 1.0]])),
        uk.InputError,
        ("not symmetric", "M[0, 1] = 0.5", "Write both"),
    ),
    "A coordinate without mass": (
        lambda: _run(mass=jnp.diag(jnp.array([1.0, 0.0]))),
        uk.InputError,
        ("not positive definite", "give every coordinate a mass", "RangeForm()"),
    ),
    "A start off the constraints": (
        lambda: _run(jnp.array([90.0, 0.0])),
        uk.InputError,
        ("off the constraints (rod", "Are angles in radians", "Give a start nearer"),
    ),
    "Degrees": (
        lambda: um.problem(um.assemble(LINKS, PINS), at={"S": 30.0}),
        UserWarning,
        ("'S' in at", "angles are in radians", "30 degrees are 0.5236 rad"),
    ),
    "No end time": (
        lambda: _run(t1=None),
        uk.InputError,
        ("an end time t1 is needed", "give t1"),
    ),
    "A mechanism without a start": (
        lambda: uk.simulate(um.assemble(LINKS, PINS), t1=1.0),
        uk.InputError,
        ("an initial state is needed", "give q0 and v0", "mechanisms.problem"),
    ),
    "The end time by place": (
        lambda: uk.simulate(uk.System(jnp.eye(2), jnp.zeros(2)), Q0, V0, 1.0),
        uk.InputError,
        ("takes (system, q0, v0) by place", "name=value"),
    ),
    "`dt=`, `x0=`, `t_eval=`": (
        lambda: _run(dt=0.01),
        uk.InputError,
        ("simulate has no argument 'dt'", "write dt0="),
    ),
    "A misspelt argument": (
        lambda: _run(max_step=10),
        uk.InputError,
        ("unknown argument of simulate 'max_step'", "did you mean 'max_steps'"),
    ),
    "A negative step": (
        lambda: _run(dt0=-0.01),
        uk.InputError,
        ("dt0 must be a positive time", "-0.01"),
    ),
    "Saved times outside the run": (
        lambda: _run(ts=jnp.linspace(0.0, 2.0, 5)),
        uk.InputError,
        ("ts must increase within t0 = 0.0 and t1 = 1.0", "ts[3] is 1.5"),
    ),
    "A step for `ts`": (
        lambda: _run(ts=0.01),
        uk.InputError,
        ("ts has shape ()", "jnp.linspace(t0, t1, 101)"),
    ),
    "A class for a solver": (
        lambda: _run(solver=dfx.Tsit5),
        uk.InputError,
        ("solver must be something like diffrax.Tsit5()", "not the class"),
    ),
    "A model that is not called": (
        lambda: uk.simulate(uk.models.pendulum, t1=1.0),
        uk.InputError,
        ("expected a system or a Problem, got function", "call it"),
    ),
    "A robot for its problem": (
        lambda: uk.simulate(uk.load(ROBOT), t1=1.0),
        uk.InputError,
        ("expected a system or a Problem, got Robot", "give its `problem`"),
    ),
    "A condition for an event": (
        lambda: _run(event=lambda t, q, v: q[1] < 0),
        uk.InputError,
        ("the event returned a truth value", "return the number that crosses zero"),
    ),
    "A misspelt name": (
        lambda: um.assemble(LINKS, [um.Revolute("S", "Ground", "upper", S)]),
        uk.InputError,
        ("unknown body in joint 'S': 'Ground'", "did you mean 'ground'"),
    ),
    "`angles=` of a posture": (
        lambda: um.problem(um.assemble(LINKS, PINS), angles={"S": 0.5}),
        uk.InputError,
        ("problem has no argument 'angles'", "write at="),
    ),
    "A loop in a tree": (
        lambda: um.tree(LINKS, [*PINS, um.Revolute("D", "ground", "fore", T)]),
        uk.InputError,
        ("form a cycle", "put one of them, such as 'D', into `loops`"),
    ),
    "`if run.ok:` under `jit`": (
        lambda: jax.jit(_looked_at)(Q0),
        uk.InputError,
        ("this trajectory has no values yet", "look at it outside", "ukjax.RESULTS.successful"),
    ),
    "A parameter in a global variable": (
        lambda: jax.grad(_by_global)(1.0),
        uk.InputError,
        ("from a global variable", "make it a field of the system, or a local variable"),
    ),
    "`jax.jit(uk.simulate)(system, ...)`": (
        lambda: jax.jit(uk.simulate)(uk.System(jnp.eye(2), jnp.zeros(2), [ROD]), Q0, V0, t1=1.0),
        TypeError,  # by JAX, before ukjax is called
        ("Error interpreting argument to <function simulate", "system.constraints[0].fn"),
    ),
    "`jax.jit(system.mass_matrix)`, of any method": (
        lambda: jax.jit(uk.System(jnp.eye(2), jnp.zeros(2), [ROD]).mass_matrix)(0.0, Q0),
        TypeError,  # by Equinox, whose bound methods are pytrees
        ("unhashable type",),
    ),
}


def _rows() -> dict[str, str]:
    """What the table of docs says one sees of each mistake."""
    page = (Path(__file__).parent.parent / "docs" / "troubleshooting.md").read_text()
    table = page.split("## Common mistakes")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")]
    return {mistake: seen for mistake, seen, _ in rows[1:]}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_with_its_remedy(mistake):
    make, error, words = MISTAKES[mistake]
    if issubclass(error, Warning):
        with pytest.warns(error) as told:
            make()
        message = str(told[0].message)
    else:
        with pytest.raises(error) as told:
            make()
        message = str(told.value)
    for word in words:
        assert word in message
    for seen in re.findall(r'"([^"]*)"', _rows()[mistake]):
        assert re.search(".*".join(map(re.escape, seen.split("..."))), message), seen


def test_docs_list_these_mistakes():
    assert [x for x in _rows() if x != "No `jax_enable_x64`"] == list(MISTAKES)


def test_what_a_run_in_single_precision_says():
    """Neither refused nor warned of: the line that is printed of a run tells it."""
    with jax.enable_x64(False):
        assert "in float32" in repr(_run(jnp.array([1.0, 0.0]), jnp.zeros(2), t1=0.1, ts=2))


WITHOUT_LLVMLITE = """
import sys
sys.modules["llvmlite"] = None
import ukjax as uk
uk.simulate(uk.models.pendulum(), t1=0.1)
"""


@pytest.mark.slow
def test_an_installation_without_llvmlite():
    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT_LLVMLITE], capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 1
    assert (
        ended.stderr.strip().splitlines()[-1].startswith("ImportError: ukjax makes machine code by llvmlite")
    )
    assert "pip install" in ended.stderr
