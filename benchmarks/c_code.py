"""Accelerations in C by `uk.to_c`: code, stack and time of a call, beside the machine code that runs in ukjax and CasADi.

    python benchmarks/c_code.py [--models pendulum four_bar ...] [--rounds 7]

Each function is called in a loop in C, with one state after the other. `cc` compiles all C with -O2. The stack is what
GCC says that it takes, with what it calls; the code is that of the functions and their tables. Code for a Cortex-M7 is
Clang's, of `pip install ziglang`. CasADi is given the same equations in the same coordinates, numbers as arguments or as
constants, and its sparse L D L^T (`pip install casadi`). Panda and Go2 are those of `pip install example-robot-data`,
beside the C that CasADi generates of Pinocchio's ABA and RNEA (`pip install pin`, and g++); mechanisms with loops have no
such. What is missing is left out, and said.
"""

import argparse
import copy
import ctypes
import importlib
import importlib.util
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import _one_thread as _one_thread
import jax
import jax.numpy as jnp
import numpy as np
from _pinocchio_casadi import ROBOTS as URDFS
from _pinocchio_casadi import generate, robot_file
from _timing import machine, pinned, table

import ukjax as uk
import ukjax.mechanisms as um
from ukjax._motion._acceleration_code import compile_acceleration

OPTIONS = ["-std=c99", "-O2", "-Wall", "-Wextra", "-pedantic"]
ROBOTS = Path(__file__).parents[1] / "experiments" / "robots"
STATES = 64
CALLS = 1000  # in a loop
RELOADS = 4
LONG = 10_000  # operations of a function from which on Clang takes minutes


def four_bar(tree: bool = False) -> uk.Problem:
    """The linkage of docs/mechanisms.md, in absolute coordinates or as a tree with a loop."""
    A, B, C, D = (0.0, 0.0), (0.0, 1.0), (1.5, 1.5), (1.5, 0.0)
    rods = [um.rod("crank", A, B, 1.0), um.rod("coupler", B, C, 2.0), um.rod("rocker", D, C, 1.0)]
    ends = (
        ("ground", "crank", A),
        ("crank", "coupler", B),
        ("coupler", "rocker", C),
        ("ground", "rocker", D),
    )
    pins = [um.Revolute(f"pin {i}", *x) for i, x in enumerate(ends)]
    if tree:
        linkage = um.tree(rods, [pins[0], pins[1], pins[3]], [um.Gravity()], loops=[pins[2]], name="four-bar")
        return um.problem(linkage, rates={"pin 0": 3.0})
    return um.problem(um.assemble(rods, pins, [um.Gravity()], name="four-bar"), rates={"crank": 3.0})


MODELS: dict[str, Callable[[], uk.Problem]] = {
    "pendulum": uk.models.pendulum,
    "four_bar": four_bar,
    "four_bar_tree": lambda: four_bar(tree=True),
    "parallelogram": uk.models.parallelogram,
    "scara": uk.models.scara,
    "five_bar": uk.models.five_bar,
    "gripper": lambda: uk.load(ROBOTS / "robotiq_2f85.xml").problem,
    "arm_6r": uk.models.arm_6r,
    "cassie": lambda: uk.load(ROBOTS / "cassie.xml").problem,
    "panda": lambda: from_urdf("panda"),
    "go2": lambda: from_urdf("go2"),
}


def from_urdf(name: str) -> uk.Problem:
    """A robot of example-robot-data."""
    with tempfile.TemporaryDirectory() as folder:
        return uk.load(robot_file(name, Path(folder)), free_base=URDFS[name][1]).problem


# --- CasADi: M a = Q + A^T lambda, A a = b, by Schur's complement and L D L^T


def _pinned_rods(ca: Any, number: Any, rods: Any, pins: Any) -> Any:
    """(M, Q, phi) of planar rods (mass, length), whose pins join (rod or None, place along it or a point)."""
    q, g = ca.SX.sym("q", 3 * len(rods)), number(9.81)
    rods = [(number(m), number(m * L * L / 12)) for m, L in rods]
    pins = [[(rod, [number(x) for x in np.atleast_1d(s)]) for rod, s in pin] for pin in pins]
    M = ca.vertcat(*(x for m, inertia in rods for x in (m, m, inertia)))
    Q = ca.vertcat(*(x for m, _ in rods for x in (0, -g * m, 0)))

    def place(end: Any) -> Any:
        rod, s = end
        if rod is None:
            return ca.vertcat(*s)
        x, y, angle = q[3 * rod], q[3 * rod + 1], q[3 * rod + 2]
        return ca.vertcat(x + s[0] * ca.cos(angle), y + s[0] * ca.sin(angle))

    return q, M, Q, ca.vertcat(*(place(a) - place(b) for a, b in pins))


def _pendulum(ca: Any, number: Any) -> Any:
    q, m, length = ca.SX.sym("q", 2), number(1.0), number(1.0)
    return q, ca.vertcat(m, m), ca.vertcat(0, -number(9.81) * m), 0.5 * (q.T @ q / length - length)


def _five_bar(ca: Any, number: Any) -> Any:
    h = 0.4  # half a link
    rods = [(1.0, 2 * h)] * 4  # proximal and distal, left, then right
    pins = [
        ((None, (-0.5, 0)), (0, -h)),
        ((None, (0.5, 0)), (2, -h)),
        ((0, h), (1, -h)),
        ((2, h), (3, -h)),
        ((1, h), (3, h)),
    ]
    return _pinned_rods(ca, number, rods, pins)


def _four_bar(ca: Any, number: Any) -> Any:
    crank, coupler, rocker = 0.5, np.sqrt(2.5) / 2, 0.75  # halves of the rods
    rods = [(1.0, 2 * crank), (2.0, 2 * coupler), (1.0, 2 * rocker)]
    pins = [
        ((None, (0, 0)), (0, -crank)),
        ((0, crank), (1, -coupler)),
        ((1, coupler), (2, rocker)),
        ((None, (1.5, 0)), (2, -rocker)),
    ]
    return _pinned_rods(ca, number, rods, pins)


IN_CASADI: dict[str, Callable[[Any, Any], Any]] = {
    "pendulum": _pendulum,
    "four_bar": _four_bar,
    "five_bar": _five_bar,
}


def casadi_source(model: str, folder: Path, constants: bool = True) -> tuple[Path, list[float]]:
    """The acceleration of a model in C by CasADi, and the numbers that are its first argument, unless constants."""
    ca: Any = importlib.import_module("casadi")
    symbols, values = list[Any](), list[float]()

    def number(x: float) -> Any:
        if constants or not x:
            return x
        values.append(float(x))
        symbols.append(ca.SX.sym(f"p{len(values)}"))
        return symbols[-1]

    q, M, Q, phi = IN_CASADI[model](ca, number)
    v = ca.SX.sym("v", q.size1())
    A = ca.jacobian(phi, q)
    b = -ca.jtimes(ca.jtimes(phi, q, v), q, v)
    S = A @ ca.diag(1 / M) @ A.T
    multipliers = ca.ldl_solve(b - A @ (Q / M), *ca.ldl(S))
    f = ca.Function("by_casadi", [ca.vertcat(*symbols), q, v], [(Q + A.T @ multipliers) / M])
    f.generate("by_casadi.c", {"with_header": False})
    shutil.move("by_casadi.c", folder / "by_casadi.c")
    return folder / "by_casadi.c", values


# --- Loops in C

_LOOP = """#define _POSIX_C_SOURCE 199309L
#include <stdint.h>
#include <time.h>
{before}
double loop(long calls, long states, {real} *q, {real} *v, {real} *a, void **more);
double loop(long calls, long states, {real} *q, {real} *v, {real} *a, void **more)
{{
    struct timespec start, end;
    (void)more;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (long k = 0; k < calls; ++k) {{
        const long i = k % states;
        {call};
    }}
    clock_gettime(CLOCK_MONOTONIC, &end);
    return ((double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec)) / (double)calls;
}}
"""


class Loop:
    """Calls of a function in C, with one state after the other; called itself, it gives the time of one [s]."""

    def __init__(
        self,
        folder: Path,
        states: Any,
        before: str,
        call: str,
        sources: Any = (),
        more: Any = (),
        dtype: Any = float,
    ):
        self.states = [np.ascontiguousarray(x, dtype) for x in states]
        self.a = np.zeros_like(self.states[1])
        (count, nq), n = self.states[0].shape, self.a.shape[1]
        at = {"q": f"q + {nq} * i", "v": f"v + {n} * i", "a": f"a + {n} * i"}
        real = "float" if dtype == np.float32 else "double"
        (folder / "loop.c").write_text(_LOOP.format(real=real, before=before, call=call.format(**at)))
        library = folder / "loop.so"
        own = [folder / "loop.c", *sources]
        subprocess.run(["cc", "-std=c99", "-O2", "-shared", "-fPIC", *own, "-lm", "-o", library], check=True)
        self._library = library
        self._load(library)
        places = [x.ctypes.data_as(ctypes.c_void_p) for x in (*self.states, self.a)]
        self._more = (ctypes.c_void_p * (len(more) + 1))(*more)
        self._given = [ctypes.c_long(CALLS), ctypes.c_long(count), *places, self._more]

    def _load(self, library: Path) -> None:
        self._loop = ctypes.CDLL(str(library)).loop
        self._loop.restype = ctypes.c_double

    def reload(self, path: Path) -> "Loop":
        """The same from a copy of its code."""
        shutil.copy(self._library, path)
        found = copy.copy(self)
        found._load(path)
        return found

    def __call__(self) -> float:
        return self._loop(*self._given)


_ROOM = "static {real} none[100]; static double room[100000];"


def loop_of_export(
    problem: uk.Problem, folder: Path, states: Any, function: str = "acceleration", **how: Any
) -> tuple[Loop, Any]:
    """Calls of what `uk.to_c` writes, and what it says of it."""
    export = uk.to_c(problem, folder, [function], name="model", **how)
    real = np.dtype(how.get("dtype", "float64")).type
    c = "float" if real == np.float32 else "double"
    own = "&model_defaults, " if export.parameters else ""
    more = "none, " * (function == "inverse_dynamics" or "inputs" in how)
    call = f"model_{function}({own}0, {{q}}, {{v}}, {more}{{a}})"
    before = '#include "model.h"\n' + _ROOM.format(real=c)
    return Loop(folder, states, before, call, [folder / "model.c"], dtype=real), export


def loop_of_machine_code(problem: uk.Problem, folder: Path, states: Any) -> Loop:
    """Calls of the function that LLVM compiles here, of one member."""
    folder.mkdir()
    system, state = problem.system, (jnp.zeros(()), problem.q0, problem.v0)
    code = compile_acceleration(system, None, uk.NoStabilizer(), *state)
    program = code.program.scalars
    numbers, zero, near = np.array(code.numbers(system, uk.NoStabilizer())), np.zeros(1), np.full(1, np.inf)
    more = [
        ctypes.cast(program._of_one, ctypes.c_void_p).value,
        *(x.ctypes.data for x in (numbers, zero, near)),
    ]
    given = ["more[1]"] * bool(numbers.size) + ["more[2]", "{q}", "{v}", "more[3]"]
    kinds = ", ".join(["int64_t", "double *", *["const double *"] * len(given)])
    loop = Loop(folder, states, "", f"((void (*)({kinds}))more[0])(1, {{a}}, {', '.join(given)})", more=more)
    loop.kept = program, numbers, zero, near
    return loop


def loop_of_casadi(model: str, folder: Path, states: Any, constants: bool = True) -> Loop:
    folder.mkdir()
    source, numbers = casadi_source(model, folder, constants)
    declared = f"""int by_casadi(const double **, double **, long long *, double *, int);
static double room[100000], numbers[] = {{{", ".join(map(repr, numbers)) or 0}}};"""
    call = "const double *in[3] = {{numbers, {q}, {v}}}; double *out[1] = {{{a}}}; by_casadi(in, out, 0, room, 0)"
    return Loop(folder, states, declared, call, [source])


def loop_of_pinocchio(function: str, source: Path, states: Any) -> Loop:
    """Calls of Pinocchio's ABA or RNEA by CasADi."""
    folder = source.parent / function
    folder.mkdir()
    declared = f"int {function}(const double **, double **, long long *, double *, int);\n{_ROOM.format(real='double')}"
    call = "const double *in[3] = {{{q}, {v}, none}}; double *out[1] = {{{a}}}; "
    call += f"{function}(in, out, 0, room, 0)"
    return Loop(folder, states, declared, call, [source])


# --- What code takes


def taken(folder: Path, compiler: list[str], source: str) -> tuple[float, float]:
    """Bytes of code and tables of a source, and of stack; NaN where the compiler does not say."""
    options = [*OPTIONS, "-fstack-usage", "-c", source, "-o", "size.o"]
    subprocess.run([*compiler, *options], cwd=folder, check=True, capture_output=True)
    listed = subprocess.run(["size", "size.o"], cwd=folder, check=True, capture_output=True, text=True).stdout
    usage = [x for x in (folder / "size.su", folder / source.replace(".c", ".su")) if x.exists()]
    lines = usage[0].read_text().splitlines() if usage else []
    stack = sum(int(line.split("\t")[1]) for line in lines) if lines else np.nan
    for x in usage:
        x.unlink()
    return float(listed.splitlines()[1].split()[0]), stack


def states_of(problem: uk.Problem) -> tuple[np.ndarray, np.ndarray]:
    """States beside the start, on the constraints."""
    random = np.random.default_rng(0)
    near = lambda x: np.asarray(x) + random.uniform(-0.05, 0.05, x.shape)
    found = [uk.project(problem, 0.0, near(problem.q0), near(problem.v0)) for _ in range(STATES)]
    return np.stack([x[0] for x in found]), np.stack([x[1] for x in found])


CASES = ["C", "CasADi", "constants", "CasADi, constants", "float", "ukjax"]
COLUMNS = [
    "operations", *(f"{x} [µs]" for x in CASES), "code [kB]", "CasADi's [kB]", "stack [B]", "stack, said [B]",
    "Cortex-M7, float [kB]",
]  # fmt: skip


def measure(model: str, rounds: int, folder: Path) -> list[float]:
    """One row of the table."""
    problem = MODELS[model]()
    states = states_of(problem)
    double, export = loop_of_export(problem, folder / "double", states)
    constants, _ = loop_of_export(problem, folder / "constants", states, constants=True)
    single, _ = loop_of_export(problem, folder / "single", states, dtype="float32")
    loops = {"C": double, "constants": constants, "float": single}
    loops["ukjax"] = loop_of_machine_code(problem, folder / "llvm", states)
    if model in IN_CASADI and importlib.util.find_spec("casadi"):
        loops["CasADi"] = loop_of_casadi(model, folder / "casadi", states, constants=False)
        loops["CasADi, constants"] = loop_of_casadi(model, folder / "casadi_constants", states)
    seconds: dict[str, list[float]] = {name: [] for name in loops}
    for _ in range(rounds):
        for name, loop in loops.items():
            seconds[name].append(loop())
    for name, loop in loops.items():
        off = np.max(np.abs(loop.a - double.a)) / max(1.0, np.max(np.abs(double.a)))
        print(f"{model}: {name} differs from C by {off:.1e}", flush=True)
    micro = [1e6 * float(np.median(seconds.get(x, np.nan))) for x in CASES]
    code, stack = taken(folder / "double", ["cc"], "model.c")
    theirs = taken(folder / "casadi", ["cc"], "by_casadi.c")[0] if "CasADi" in loops else np.nan
    small, (said,) = np.nan, export.functions.values()
    if said.operations < LONG and importlib.util.find_spec("ziglang"):
        zig = [sys.executable, "-m", "ziglang", "cc", "-target", "thumb-linux-musleabihf", "-mcpu=cortex_m7"]
        small, _ = taken(folder / "single", zig, "model.c")
    return [said.operations, *micro, code / 1e3, theirs / 1e3, stack, said.stack_bytes, small / 1e3]


ROBOT_COLUMNS = [
    "operations", "C [µs]", "constants [µs]", "Pinocchio by CasADi [µs]", "code [kB]", "Pinocchio's [kB]",
]  # fmt: skip


def measure_robot(name: str, rounds: int, folder: Path) -> dict[str, list[float]]:
    """Forward and inverse dynamics of a robot, beside Pinocchio's: the least times."""
    problem, file = from_urdf(name), robot_file(name, folder)
    assert file is not None
    n = problem.v0.size
    random = np.random.default_rng(0)
    near = lambda x: np.asarray(x) + 0.3 * random.normal(size=(STATES, x.size))
    states = near(problem.q0), near(problem.v0)
    source, found = generate(name, file, folder), {}
    for function, theirs in (("acceleration", "aba"), ("inverse_dynamics", "rnea")):
        how = {"inputs": jnp.eye(n)}
        loop, export = loop_of_export(problem, folder / function, states, function, **how)
        constants, _ = loop_of_export(
            problem, folder / f"{function}_c", states, function, constants=True, **how
        )
        loops = [loop, constants, *([loop_of_pinocchio(theirs, source, states)] if source else [])]
        seconds = np.array([[x() for x in loops] for _ in range(rounds)])
        for k in range(RELOADS):  # code in other pages, which collide in caches less or more
            again = [x.reload(folder / f"{function}{k}{i}.so") for i, x in enumerate(loops)]
            seconds = np.vstack([seconds, [[x() for x in again] for _ in range(rounds)]])
        if source and not URDFS[name][1]:  # a free base has other coordinates there
            off = np.max(np.abs(loops[2].a - loop.a)) / np.max(np.abs(loop.a))
            print(f"{name}: {theirs} differs from {function} in C by {off:.1e}", flush=True)
        micro = [*(1e6 * np.min(seconds, axis=0)), *([] if source else [np.nan])]
        (said,), sizes = export.functions.values(), [taken(folder / function, ["cc"], "model.c")[0] / 1e3]
        if source:
            own = source.parent / f"of_{theirs}"
            own.mkdir()
            (own / "model.c").write_text(source.read_text())
            sizes.append(taken(own, ["cc"], "model.c")[0] / 1e3)  # of both functions
        found[f"{name}, {function.replace('_', ' ')}"] = [said.operations, *micro, *sizes, np.nan][:6]
    return found


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    for name in ("casadi", "ziglang"):
        if importlib.util.find_spec(name) is None:
            print(f"{name} is not installed: pip install {name}")
    compiler = subprocess.run(
        ["cc", "--version"], capture_output=True, text=True, check=True
    ).stdout.splitlines()[0]
    with pinned(1), tempfile.TemporaryDirectory() as folder:
        rows, robots = {}, {}
        for x in given.models:
            (own := Path(folder) / x).mkdir()
            if x not in URDFS:
                rows[x] = measure(x, given.rounds, own)
            elif robot_file(x, own) is None:
                print(f"{x} is left out: pip install example-robot-data")
            else:
                robots |= measure_robot(x, given.rounds, own)
    print(f"{machine()}; {compiler}")
    for columns, found in ((COLUMNS, rows), (ROBOT_COLUMNS, robots)):
        if found:
            print(f"\n{table(columns, found)}")


if __name__ == "__main__":
    main()
