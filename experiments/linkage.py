"""The five-bar parallelogram of DPV 2008, run many times at once and judged against its one-dof motion.

What `pseudoinverse_dpv.py` and `rank_rule.py` share.
"""

import dataclasses
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp

import ukjax as uk

GRAVITY = 9.81
W2 = 3.5 / 3.05 * GRAVITY
END = 20.0
TIMES = np.linspace(0.0, END, 401)
RIGHT = 0.05
"""A link nearer than this [rad] to the closed form is where it should be."""
HELD = 1e-3
"""Constraints violated by less than this [m] are held: then a wrong angle is another branch, not drift."""
_LINKS = [2, 5, 8]


def closed_form(angle: float, rate: float, ts: np.ndarray = TIMES, w2: float = W2) -> np.ndarray:
    """theta(t) of theta'' = -w2 cos(theta) from ts[0] on: by default the parallelogram, in its one degree of freedom."""

    def rhs(t: float, y: np.ndarray) -> list[float]:
        return [y[1], -w2 * np.cos(y[0])]

    span = (float(ts[0]), float(ts[-1]))
    return solve_ivp(rhs, span, [angle, rate], method="DOP853", rtol=1e-13, atol=1e-13, t_eval=ts).y[0]


@dataclasses.dataclass(frozen=True)
class Case:
    """One run: links at `angle` [rad] turning at `rate` [rad/s], gains of psi' + alpha psi + beta phi."""

    angle: float
    rate: float
    tolerance: float
    alpha: float = 0.0
    beta: float = 0.0


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a run went.

    - `kind`: "right", "wrong branch" (constraints held, other motion), "drifted" (constraints lost), "gave up".
    - `until`: the time up to which it was right [s].
    - `error`: the largest error of a link's angle up to the end of the run [rad].
    - `violation`: sum of squares of the position violation at its end.
    """

    kind: str
    until: float
    error: float
    violation: float
    steps: int
    evaluations: int

    def __str__(self) -> str:
        if self.kind == "right":
            return "Correct"
        if self.kind == "gave up":
            return f"Gave up at {self.until:.2f} s"
        if self.kind == "wrong branch":
            return f"Wrong branch after {self.until:.2f} s"
        return f"Correct up to {self.until:.2f} s"


def judge(t: np.ndarray, q: np.ndarray, phi: np.ndarray, steps: int, evaluations: int, case: Case) -> Outcome:
    """Compares the states at TIMES (and, last, at the end of the run) with the closed form.

    **Arguments:**

    - `t`, `q`, `phi`: saved times, states and position errors; unreached times are not finite.
    """
    reached = np.isfinite(t) & np.all(np.isfinite(q), axis=1)
    last = int(np.flatnonzero(reached)[-1])
    n = int(np.sum(reached[:-1]))
    error = np.max(np.abs(q[:n, _LINKS] - closed_form(case.angle, case.rate)[:n, None]), axis=1)
    violation = float(np.sum(phi[last] ** 2))
    lost = np.flatnonzero(error > RIGHT)
    if not lost.size:
        kind, until = ("right", END) if n == len(TIMES) else ("gave up", float(t[last]))
    else:
        kind = "wrong branch" if np.max(np.abs(phi[: lost[0] + 1])) < HELD else "drifted"
        until = float(TIMES[max(lost[0] - 1, 0)])
    return Outcome(kind, until, float(np.max(error)), violation, steps, evaluations)


@eqx.filter_jit
def _run(system, formula, stabilizer, q, v, tolerance, max_steps):
    trajectory = uk.simulate(
        system,
        q,
        v,
        t0=0.0,
        t1=END,
        ts=jnp.asarray(TIMES),
        formula=formula,
        stabilizer=stabilizer,
        rtol=tolerance,
        atol=tolerance,
        max_steps=max_steps,
    )
    stats, end = trajectory.stats, trajectory.end
    with_end = lambda name: jnp.append(getattr(trajectory, name), getattr(end, name)[None], axis=0)
    return *map(with_end, ("t", "q", "position_error")), stats["num_steps"], stats["num_evaluations"]


_run_many = eqx.filter_jit(
    eqx.filter_vmap(_run, in_axes=(None, None, eqx.if_array(0), 0, 0, 0, None))
)  # one loop for all, until the last has ended


def _stabilizer(cases: Sequence[Case], pinv: uk.AbstractPseudoinverse, projection: bool):
    """Gains of zero are no stabilizer, to the last bit: so all gains share one compiled program."""
    if projection:
        return uk.Projection(pinv)
    alpha, beta = (jnp.asarray([getattr(c, name) for c in cases]) for name in ("alpha", "beta"))
    return uk.Baumgarte(alpha, beta) if len(cases) > 1 else uk.Baumgarte(alpha[0], beta[0])


def run(
    cases: Sequence[Case], pinv: uk.AbstractPseudoinverse, *, projection: bool, max_steps: int
) -> list[Outcome]:
    """Runs the cases with the Udwadia-Kalaba formula and Dopri8, all in one compiled loop.

    A single case runs as it would by itself; number of cases, method, `projection` and `max_steps` decide
    what is compiled.

    **Arguments:**

    - `cases`: starts, tolerances and gains.
    - `pinv`: the pseudoinverse method, of the formula and of the projection.
    - `projection`: project after every step, instead of Baumgarte with the cases' gains.
    - `max_steps`: the most steps of one run.
    """
    problems = [uk.models.parallelogram(angle=c.angle, rate=c.rate) for c in cases]
    system, formula = problems[0].system, uk.UdwadiaKalaba(pinv)
    stabilizer = _stabilizer(cases, pinv, projection)
    if len(cases) == 1:
        state = problems[0].q0, problems[0].v0, jnp.asarray(cases[0].tolerance)
        result = jax.tree.map(lambda x: x[None], _run(system, formula, stabilizer, *state, max_steps))
    else:
        q, v = (jnp.stack([getattr(p, name) for p in problems]) for name in ("q0", "v0"))
        tolerances = jnp.asarray([c.tolerance for c in cases])
        result = _run_many(system, formula, stabilizer, q, v, tolerances, max_steps)
    t, q, phi, steps, evaluations = jax.tree.map(np.asarray, result)
    return [
        judge(t[i], q[i], phi[i], int(steps[i]), int(evaluations[i]), case) for i, case in enumerate(cases)
    ]
