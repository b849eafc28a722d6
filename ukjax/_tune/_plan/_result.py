"""What a plan gives: states, inputs, feedback, and what it is worth."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..._misc._arguments import flag
from ..._misc._errors import InputError, needing
from ..._system._drive import DrivenSystem
from ..._system._problem import Problem
from ...analysis._inputs import MatrixForce
from ._search import CONVERGED, Given, Search
from ._stages import Penalty, Stages

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

RESULTS = ("searching", "converged", "iterations", "stuck", "violated")
_WORDS = {
    "iterations": "stopped at the most iterations",
    "stuck": "stopped where no step lowers the cost",
    "violated": "found no motion near the first guess that keeps `end` and the bounds",
}


@final
class HeldInputs(eqx.Module):
    """The force of planned inputs, each held over its step, with feedback where there are gains."""

    matrix: Any
    t: Any
    x: Any
    gains: Any

    def __call__(self, t: Any, q: Any, v: Any, u: Any) -> Any:
        k = jnp.clip(jnp.searchsorted(self.t, t, side="right") - 1, 0, len(u) - 1)
        u = u[k]
        if self.gains is not None:
            u = u + self.gains[k] @ (jnp.concatenate([q, v]) - self.x[k])
        return MatrixForce(self.matrix)(t, q, v, u)


@final
@dataclasses.dataclass(frozen=True, repr=False)
class PlanResult:
    """The inputs of least cost, and the motion they lead through. Of many starts all arrays have them first.

    - `t`: times of states [s] (steps + 1,).
    - `q`, `v`: coordinates (steps + 1, n_q) and velocities (steps + 1, n).
    - `u`: inputs, each held over a step (steps, p).
    - `gains`: feedback K (steps, p, n_q + n): u + K [q - q_k; v - v_k] is best near the plan; 0 where an input is at its
      bound.
    - `cost`: what was made small.
    - `iterations`: passes of the search.
    - `gap`: the largest by which a step misses the next state; 0 if states follow from each other.
    - `violation`: the largest by which bounds of states are broken, or `end` misses 0.
    - `stopped`: "converged", "iterations" (the most there may be), "stuck" (no step lowers the cost), or "violated" (what
      must hold cannot be reached from the first guess).
    - `inputs`, `coordinates`, `velocities`: names.
    - `kinks`: inputs in which the cost has a kink, as |u| has, where the search did not converge: it needs smooth costs.
    """

    t: np.ndarray
    q: np.ndarray
    v: np.ndarray
    u: np.ndarray
    gains: np.ndarray
    cost: Any
    iterations: Any
    gap: Any
    violation: Any
    stopped: Any
    inputs: tuple[str, ...]
    coordinates: tuple[str, ...]
    velocities: tuple[str, ...]
    kinks: tuple[str, ...]
    name: str
    _penalty: Penalty
    _problem: Problem
    _matrix: Any

    @property
    def many(self) -> bool:
        """Whether there are many starts."""
        return self.q.ndim == 3

    def __getitem__(self, i: int) -> "PlanResult":
        """The plan of one start."""
        if not self.many:
            raise InputError("this plan has one start only.")
        fields = ("t", "q", "v", "u", "gains", "cost", "iterations", "gap", "violation", "stopped")
        one = {name: getattr(self, name)[i] for name in fields}
        return dataclasses.replace(self, **one, _penalty=jax.tree.map(lambda x: x[i : i + 1], self._penalty))

    def problem(self, *, feedback: bool = False) -> Problem:
        """The mechanism under the planned inputs, for `simulate`: each is held over its step.

        **Arguments:**

        - `feedback`: add the gains times how far the state is off the plan; beyond the bounds of inputs, if need be.

        **Raises:** `InputError` for a plan of many starts: take one, `plan[0].problem()`.
        """
        if self.many:
            raise InputError("this plan has many starts: take one, plan[0].problem().")
        t, x, K, u = map(jnp.asarray, (self.t, np.concatenate([self.q, self.v], axis=1), self.gains, self.u))
        force = HeldInputs(self._matrix, t, x, K if flag("feedback", feedback) else None)
        return dataclasses.replace(
            self._problem, system=DrivenSystem(self._problem.system, force, u), q0=jnp.asarray(self.q[0]),
            v0=jnp.asarray(self.v[0]), t0=float(t[0]), t1=float(t[-1]),
        )  # fmt: skip

    def _guess_from(
        self, t0: float, steps: int, count: int, sizes: tuple[int, int], duration: tuple[float, float]
    ) -> Any:
        """Inputs, states, durations and penalties to start another plan from."""
        b, e = sizes
        plans = [self[i] for i in range(len(self.q))] if self.many else [self]
        if len(plans) not in (1, count):
            raise InputError(f"previous has {len(plans)} starts; there are {count} now.")
        us, xs, T, held = [], [], [], []
        kept = (
            self._penalty if self._penalty.bounds.shape[2] == b and self._penalty.end.shape[1] == e else None
        )
        for i, one in enumerate(plans * (count // len(plans))):
            T.append(np.clip(one.t[-1] - t0, *duration))
            t = t0 + T[-1] * np.arange(steps + 1) / steps
            at = np.clip(np.searchsorted(one.t, t[:-1] + 1e-9 * T[-1], side="right") - 1, 0, len(one.u) - 1)
            us.append(one.u[at])
            x = np.concatenate([one.q, one.v], axis=-1)
            xs.append(np.stack([np.interp(t, one.t, y) for y in x.T], axis=-1))
            if kept is not None:
                of = jax.tree.map(lambda x, i=i: x[i % len(plans)], kept)
                held.append(of._replace(bounds=of.bounds[np.append(at, -1)]))
        penalty = jax.tree.map(lambda *x: jnp.stack(x), *held) if held else None
        return np.stack(us), np.stack(xs), np.stack(T), penalty

    # --- What is shown

    def __repr__(self) -> str:
        if self.many:
            done = np.sum(np.asarray(self.stopped) == "converged")
            costs = np.asarray(self.cost)
            return (
                f"{self.name}: {len(costs)} plans of {self.u.shape[1]} steps; {done} converged; cost "
                f"{costs.min():.6g} to {costs.max():.6g}"
            )
        ended = _WORDS.get(self.stopped, self.stopped)
        lines = [
            f"{self.name}: {len(self.u)} steps, {self.t[0]:g} to {self.t[-1]:.6g} s; {ended} after "
            f"{self.iterations} iterations",
            f"cost {self.cost:.6g}, gap {self.gap:.1e}, violation {self.violation:.1e}",
        ]
        for name, x in zip(self.inputs, self.u.T, strict=True):
            lines.append(f"{name}: {x.min():.4g} to {x.max():.4g}")
        if self.kinks and self.stopped != "converged":
            lines.append(
                f"the cost has a kink in {', '.join(self.kinks)}: the search needs a smooth one, such as "
                "sqrt(u**2 + small**2) for |u|"
            )
        return "\n".join(lines)

    def to_xarray(self) -> "xarray.Dataset":
        """States, inputs and gains along (time, ...), of many starts along (start, time, ...).

        **Raises:** `MissingExtraError` without xarray (`ukjax[data]`).
        """
        with needing("to_xarray()", "data"):
            import xarray
        first = ("start",) if self.many else ()
        at = (*first, "time")
        data = {
            "t": (at, self.t, {"units": "s"}),
            "q": ((*at, "coordinate"), self.q),
            "v": ((*at, "velocity"), self.v),
            "u": ((*first, "step", "input"), self.u),
            "gains": ((*first, "step", "input", "state"), self.gains),
        } | {
            x: (first, np.asarray(getattr(self, x)))
            for x in ("cost", "iterations", "gap", "violation", "stopped")
        }
        names = {"coordinate": self.coordinates, "velocity": self.velocities, "input": self.inputs}
        coords = {k: list(x) for k, x in names.items()} | {"state": [*self.coordinates, *self.velocities]}
        return xarray.Dataset(data, coords=coords, attrs={"model": self.name})

    def plot(self, path: str | Path | None = None) -> "Figure":
        """Draws coordinates, velocities and inputs over time; of many starts those of the first ten.

        **Arguments:**

        - `path`: where to write the figure (.png, .pdf, .svg); by default it is only returned.

        **Returns:** the matplotlib figure.

        **Raises:** `MissingExtraError` without matplotlib (`ukjax[plot]`).
        """
        from ._figure import plot

        return plot(self, path)


_NEAR = 0.1  # of the largest input, within which kinks are looked for


def _find_kinks(stages: Stages, t: np.ndarray, found: Search, names: tuple[str, ...]) -> tuple[str, ...]:
    """Inputs in which the slope of the cost jumps: on the way to a tenth of the distance most of the change stays."""

    @jax.jit
    def changes(near: Any, t: Any, x: Any, u: Any) -> Any:
        def cost(u: Any) -> Any:
            value, residuals = stages.running(t, x, u)
            return value + 0.5 * residuals @ residuals

        across = lambda e: (jax.grad(cost)(u + e) - jax.grad(cost)(u - e)) @ jnp.sign(e)
        return jax.vmap(across)(jnp.diag(near))

    off = np.asarray(found.status) != CONVERGED
    us = np.asarray(found.us)[off].reshape(-1, len(names))
    if not us.size:
        return ()
    xs = np.asarray(found.xs)[off, :-1]
    given = jnp.asarray(t[off, :-1].reshape(-1), us.dtype), xs.reshape(len(us), -1), us
    near = _NEAR * np.max(np.abs(us), axis=0)
    far, close = (jax.vmap(changes, (None, 0, 0, 0))(jnp.asarray(near * x), *given) for x in (1.0, 0.1))
    jumps = np.abs(close) > 0.5 * np.abs(far)
    return tuple(np.asarray(names)[np.any(jumps & (far != 0), axis=0)].tolist())


def make_result(
    stages: Stages,
    given: Given,
    found: Search,
    many: bool,
    names: tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]],
    problem: Problem,
) -> PlanResult:
    """The result of a search."""
    n_q = stages.n_q
    t = np.asarray(given.t0)[:, None] + found.T[:, None] * np.arange(stages.steps + 1) / stages.steps
    fields = {
        "t": t, "q": found.xs[..., :n_q], "v": found.xs[..., n_q:], "u": found.us, "gains": found.K,
        "cost": found.cost, "iterations": found.iterations, "gap": found.gap, "violation": found.violation,
        "stopped": np.array(RESULTS)[found.status],
    }  # fmt: skip
    if not many:
        fields = {name: x[0] for name, x in fields.items()}
        fields |= {"cost": float(fields["cost"]), "iterations": int(fields["iterations"])}
        fields |= {name: float(fields[name]) for name in ("gap", "violation")} | {
            "stopped": str(fields["stopped"])
        }
    return PlanResult(
        **fields, kinks=_find_kinks(stages, t, found, names[0]),
        inputs=names[0], coordinates=names[1], velocities=names[2], name=problem.name,
        _penalty=found.penalty, _problem=problem, _matrix=stages.force.matrix,
    )  # fmt: skip
