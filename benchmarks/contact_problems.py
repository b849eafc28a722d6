"""Contact problems with Coulomb friction beside Pinocchio's PGS and ADMM, in one process and thread.

The 21 problems are those of tests/contact_problems.json, or those below a folder, such as a copy of ContactBench:
`python benchmarks/contact_problems.py ContactBench`. Each is solved 64 times with free velocities that differ by a
thousandth, and times are those of one. Pinocchio's are told by its solvers, called one after the other, with a tolerance
of 1e-10 and at most 20,000 iterations; ukjax's are processor time of a batch of 64, and of one call within `jit`.

Pinocchio's contacts have two tangents: problems of the plane get a further row of its own mass that does not move, and
those without friction get two. Residuals are of u = G p + u' and p as they come, by NumPy: the largest |min(p_n, u_n)|,
|p_t| - mu p_n, and |p_t . u_t + mu p_n |u_t||.
"""

import json
import platform
import sys
import time
from pathlib import Path

import _one_thread  # noqa: F401
import jax
import jax.numpy as jnp
import numpy as np
import pinocchio as pin
from _contact_bench import problems

import ukjax as uk

TESTS = Path(__file__).parent.parent / "tests"
sys.path.insert(0, str(TESTS))
from contact_references import violation  # noqa: E402

jax.config.update("jax_enable_x64", True)
COPIES, TOLERANCE, ITERATIONS = 64, 1e-10, 20_000


def ours(G, us, mu, dim):
    """Impulses of all copies, microseconds of one in a batch, and alone."""
    one = lambda u: uk.solve_contacts(jnp.asarray(G), u, jnp.asarray(mu), tangents=dim - 1).impulses
    batch, alone = jax.jit(jax.vmap(one)), jax.jit(one)
    us = jnp.asarray(us)
    rows = list(us)
    found = jax.block_until_ready(batch(us))
    jax.block_until_ready(alone(rows[0]))
    uk.optimize_now()
    times = []
    for _ in range(5):
        began = time.process_time()
        for _ in range(5):
            jax.block_until_ready(batch(us))
        between = time.process_time()
        for u in rows:
            jax.block_until_ready(alone(u))
        times.append(((between - began) / 5, time.process_time() - between))
    in_batch, single = np.median(times, axis=0) / COPIES * 1e6
    return np.asarray(found), in_batch, single


def theirs(G, us, mu, dim, solver, settings, results):
    """Impulses, and microseconds of one, by one of Pinocchio's solvers."""
    n = len(mu)
    order = np.arange(3 * n).reshape(n, 3)  # theirs: two tangents, then the normal
    place = np.concatenate([np.stack([order[:, 2], *order[:, : dim - 1].T], axis=1).ravel()])
    whole = np.mean(np.diag(G)) * np.eye(3 * n)
    whole[np.ix_(place, place)] = G
    model = pin.Model()
    model.addJoint(0, pin.JointModelFreeFlyer(), pin.SE3.Identity(), "free")
    models, datas = pin.StdVec_ConstraintModel(), pin.StdVec_ConstraintData()
    for k in range(n):
        contact = pin.PointContactConstraintModel(model, 1)
        contact.setFriction(float(mu[k]))
        models.append(pin.ConstraintModel(contact))
        datas.append(models[k].createData())
    settings.absolute_feasibility_tol = settings.absolute_complementarity_tol = TOLERANCE
    settings.relative_feasibility_tol = settings.relative_complementarity_tol = 0.0
    settings.max_iterations, settings.measure_timings = ITERATIONS, True
    found, seconds, finished = [], 0.0, 0
    for u in us:
        free = np.zeros(3 * n)
        free[place] = u
        method, result = solver(3 * n), results()
        began = time.process_time()
        finished += method.solve(pin.DelassusOperatorDense(whole), free, models, datas, settings, result)
        seconds += time.process_time() - began
        found.append(np.asarray(result.retrieveConstraintImpulses())[place])
    return np.array(found), seconds / len(us) * 1e6, finished


def asked(folder):
    """(name, G, free velocities, mu, dimension) of each problem: those of `folder`, or of the tests."""
    if folder:
        return [(*problem, 3) for problem in problems(folder[0])]
    told = json.loads((TESTS / "contact_problems.json").read_text())
    return [(x["name"], *(np.array(x[k]) for k in ("G", "u_free", "mu")), x["dim"]) for x in told]


def main():
    """Prints the table."""
    rng = np.random.default_rng(0)
    print(f"{platform.machine()}, jax {jax.__version__}, pinocchio {pin.__version__}, float64, one thread\n")
    print(
        "| problem | rows | us, batch | us, alone | residual | PGS, us | residual | ADMM, us | residual |\n"
        "|---|---|---|---|---|---|---|---|---|"
    )
    faster = []
    for name, G, u0, mu, dim in asked(sys.argv[1:]):
        mu = mu if mu.size else np.zeros(len(u0) // dim)
        # J^T p of velocities that the bodies can have: a change within the range of G.
        changes = rng.normal(size=(COPIES, u0.size)) @ G
        us = u0 + 1e-3 * np.abs(u0).max() * changes / np.abs(changes).max()
        worst = lambda found, G=G, us=us, mu=mu, dim=dim: max(
            violation(G, u, mu, dim, p) for u, p in zip(us, found, strict=True)
        )
        found, batch, alone = ours(G, us, mu, dim)
        cells = [f"{batch:.1f}", f"{alone:.1f}", f"{worst(found):.0e}"]
        others = (
            (pin.PGSConstraintSolver, pin.PGSSolverSettings(), pin.PGSSolverResult),
            (pin.ADMMConstraintSolver, pin.ADMMSolverSettings(), pin.ADMMSolverResult),
        )
        least = []
        for solver, settings, results in others:
            impulses, us_each, finished = theirs(G, us, mu, dim, solver, settings, results)
            cells += [f"{us_each:.1f}", f"{worst(impulses):.0e}" + ("" if finished == COPIES else " *")]
            if worst(impulses) < 1e-8:
                least.append(us_each)
        if least:
            faster.append(min(least) / batch)
        print(f"| {name} | {len(u0)} | " + " | ".join(cells) + " |", flush=True)
    print("\n* not all 64 ended within the iterations.")
    print(
        f"Where one of Pinocchio's is below 1e-8, {len(faster)} problems, the faster one takes times as long as a"
    )
    print(f"member of our batch: {', '.join(f'{x:.1f}' for x in faster)}; median {np.median(faster):.1f}.")


if __name__ == "__main__":
    main()
