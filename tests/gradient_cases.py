"""The grid of derivatives of whole runs: which options are tested with which, and how a case is measured.

`CASES` has every pair of options that go together. gradient_table.py writes what comes of them into docs/measurements.md.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
from gradient_models import MODELS

import ukjax as uk

FORMULAS = {
    "UdwadiaKalaba": uk.UdwadiaKalaba,
    "Schur": uk.Schur,
    "RangeForm": uk.RangeForm,
    "StackedForm": uk.StackedForm,
    "NullSpace": uk.NullSpace,
    "Recursive": lambda pinv: uk.Recursive(pinv=pinv),
    "Recursive, R > 0": lambda pinv: uk.Recursive(clearance=1e-2, pinv=pinv),
}
METHODS = {
    "GramSchmidt": uk.GramSchmidt(),
    "HouseholderQR": uk.HouseholderQR(),
    "CompleteOrthogonal": uk.CompleteOrthogonal(),
    "SVD": uk.SVD(),
    "Greville": uk.Greville(),
    "Cholesky": uk.Cholesky(),
}
STABILIZERS: dict[str, Callable] = {
    "NoStabilizer": lambda gains, method: uk.NoStabilizer(),
    "Baumgarte": lambda gains, method: uk.Baumgarte(*gains),
    "Baumgarte.squared": lambda gains, method: uk.Baumgarte.squared(*gains),
    "Baumgarte, per row": lambda gains, method: uk.Baumgarte(*gains),
    "Projection": lambda gains, method: uk.Projection(method),
}
ADJOINTS = {
    "RecursiveCheckpointAdjoint": dfx.RecursiveCheckpointAdjoint(),
    "DirectAdjoint": dfx.DirectAdjoint(),
    "ForwardMode": dfx.ForwardMode(),
}
STEPS: dict[str, dict[str, Any]] = {
    "fixed": {"solver": dfx.Heun(), "dt0": 0.01, "t1": 0.03, "stepsize_controller": dfx.ConstantStepSize()}
    | {"max_steps": 4, "ts": 2},
    # Tolerances at which the steps a difference takes on its two sides do not show.
    "adaptive": {"solver": dfx.Dopri8(), "rtol": 1e-12, "atol": 1e-12, "t1": 0.1, "max_steps": 32, "ts": 2},
}


class Case(NamedTuple):
    model: str
    formula: str
    method: str
    stabilizer: str
    adjoint: str
    steps: str

    @property
    def name(self) -> str:
        return " ".join(self)


AXES: dict[str, Mapping[str, Any]] = {
    "model": MODELS,
    "formula": FORMULAS,
    "method": METHODS,
    "stabilizer": STABILIZERS,
    "adjoint": ADJOINTS,
    "steps": STEPS,
}


def applies(case: Case) -> bool:
    """Whether the options go together at all."""
    model = MODELS[case.model]
    definite = case.formula in ("UdwadiaKalaba", "Schur", "Recursive", "Recursive, R > 0")
    independent = not model.dependent and case.formula in ("UdwadiaKalaba", "Schur")
    yields = case.formula.endswith("R > 0")  # what R allows is taken back by projection
    projected = case.stabilizer == "Projection" and (yields or model.determined)
    return not ((model.singular and definite) or (case.method == "Cholesky" and not independent) or projected)


CASES = (
    Case("pendulum", "UdwadiaKalaba", "Cholesky", "Baumgarte", "RecursiveCheckpointAdjoint", "fixed"),
    Case("pendulum", "UdwadiaKalaba", "GramSchmidt", "Projection", "DirectAdjoint", "fixed"),
    Case("pendulum", "UdwadiaKalaba", "Cholesky", "Projection", "ForwardMode", "fixed"),
    Case("pendulum", "UdwadiaKalaba", "GramSchmidt", "NoStabilizer", "DirectAdjoint", "adaptive"),
    Case("pendulum", "Schur", "Cholesky", "NoStabilizer", "DirectAdjoint", "fixed"),
    Case("pendulum", "RangeForm", "HouseholderQR", "NoStabilizer", "ForwardMode", "adaptive"),
    Case("pendulum", "StackedForm", "GramSchmidt", "NoStabilizer", "ForwardMode", "fixed"),
    Case("pendulum", "NullSpace", "HouseholderQR", "NoStabilizer", "ForwardMode", "fixed"),
    Case("pendulum", "NullSpace", "Greville", "Projection", "RecursiveCheckpointAdjoint", "adaptive"),
    Case("pendulum", "Recursive", "CompleteOrthogonal", "Baumgarte.squared", "ForwardMode", "adaptive"),
    Case("pendulum", "Recursive, R > 0", "Greville", "Baumgarte, per row", "ForwardMode", "fixed"),
    Case("pendulum", "Recursive, R > 0", "SVD", "NoStabilizer", "RecursiveCheckpointAdjoint", "adaptive"),
    Case("parallelogram", "UdwadiaKalaba", "GramSchmidt", "Baumgarte, per row", "ForwardMode", "adaptive"),
    Case("parallelogram", "UdwadiaKalaba", "GramSchmidt", "Projection", "ForwardMode", "fixed"),
    Case("parallelogram", "Schur", "HouseholderQR", "NoStabilizer", "ForwardMode", "fixed"),
    Case("parallelogram", "RangeForm", "CompleteOrthogonal", "NoStabilizer", "ForwardMode", "fixed"),
    Case("parallelogram", "StackedForm", "GramSchmidt", "NoStabilizer", "ForwardMode", "fixed"),
    Case("parallelogram", "NullSpace", "SVD", "Baumgarte.squared", "RecursiveCheckpointAdjoint", "fixed"),
    Case("parallelogram", "Recursive", "Greville", "NoStabilizer", "DirectAdjoint", "fixed"),
    Case("parallelogram", "Recursive, R > 0", "GramSchmidt", "Baumgarte", "ForwardMode", "fixed"),
    Case("scara", "UdwadiaKalaba", "Cholesky", "Baumgarte.squared", "ForwardMode", "adaptive"),
    Case("scara", "UdwadiaKalaba", "Greville", "NoStabilizer", "ForwardMode", "fixed"),
    Case("scara", "Schur", "HouseholderQR", "Baumgarte", "DirectAdjoint", "fixed"),
    Case("scara", "RangeForm", "GramSchmidt", "NoStabilizer", "ForwardMode", "fixed"),
    Case("scara", "StackedForm", "CompleteOrthogonal", "Baumgarte, per row", "RecursiveCheckpointAdjoint", "fixed"),
    Case("scara", "NullSpace", "GramSchmidt", "Baumgarte, per row", "ForwardMode", "fixed"),
    Case("scara", "Recursive", "SVD", "Baumgarte", "ForwardMode", "fixed"),
    Case("scara", "Recursive, R > 0", "CompleteOrthogonal", "NoStabilizer", "ForwardMode", "fixed"),
    Case("spinning_top", "RangeForm", "GramSchmidt", "Projection", "ForwardMode", "fixed"),
    Case("spinning_top", "RangeForm", "HouseholderQR", "Baumgarte.squared", "RecursiveCheckpointAdjoint", "fixed"),
    Case("spinning_top", "RangeForm", "Greville", "Baumgarte, per row", "ForwardMode", "fixed"),
    Case("spinning_top", "StackedForm", "GramSchmidt", "Baumgarte", "ForwardMode", "adaptive"),
    Case("spinning_top", "StackedForm", "SVD", "Baumgarte", "ForwardMode", "adaptive"),
    Case("spinning_top", "NullSpace", "CompleteOrthogonal", "NoStabilizer", "DirectAdjoint", "fixed"),
    Case("slider_crank", "UdwadiaKalaba", "CompleteOrthogonal", "Baumgarte", "ForwardMode", "adaptive"),
    Case("slider_crank", "Schur", "GramSchmidt", "Baumgarte.squared", "ForwardMode", "fixed"),
    Case("slider_crank", "Schur", "SVD", "NoStabilizer", "ForwardMode", "fixed"),
    Case("slider_crank", "RangeForm", "GramSchmidt", "NoStabilizer", "ForwardMode", "fixed"),
    Case("slider_crank", "StackedForm", "GramSchmidt", "NoStabilizer", "ForwardMode", "fixed"),
    Case("slider_crank", "NullSpace", "Greville", "Projection", "RecursiveCheckpointAdjoint", "fixed"),
    Case("slider_crank", "Recursive", "GramSchmidt", "Projection", "ForwardMode", "fixed"),
    Case("slider_crank", "Recursive, R > 0", "HouseholderQR", "Baumgarte, per row", "DirectAdjoint", "fixed"),
    Case("rolling_disk", "UdwadiaKalaba", "Cholesky", "Baumgarte, per row", "ForwardMode", "fixed"),
    Case("rolling_disk", "Schur", "Greville", "Baumgarte, per row", "ForwardMode", "adaptive"),
    Case("rolling_disk", "RangeForm", "CompleteOrthogonal", "Baumgarte", "ForwardMode", "adaptive"),
    Case("rolling_disk", "RangeForm", "SVD", "Baumgarte, per row", "DirectAdjoint", "fixed"),
    Case("rolling_disk", "StackedForm", "HouseholderQR", "Projection", "ForwardMode", "fixed"),
    Case("rolling_disk", "NullSpace", "GramSchmidt", "NoStabilizer", "ForwardMode", "fixed"),
    Case("rolling_disk", "Recursive", "GramSchmidt", "NoStabilizer", "RecursiveCheckpointAdjoint", "adaptive"),
    Case("rolling_disk", "Recursive", "HouseholderQR", "Baumgarte.squared", "ForwardMode", "fixed"),
    Case("rolling_disk", "Recursive, R > 0", "HouseholderQR", "Baumgarte.squared", "ForwardMode", "fixed"),
    Case("doubled rods", "UdwadiaKalaba", "SVD", "Projection", "RecursiveCheckpointAdjoint", "fixed"),
    Case("doubled rods", "UdwadiaKalaba", "HouseholderQR", "NoStabilizer", "ForwardMode", "fixed"),
    Case("doubled rods", "Schur", "CompleteOrthogonal", "Projection", "RecursiveCheckpointAdjoint", "fixed"),
    Case("doubled rods", "RangeForm", "Greville", "Baumgarte", "ForwardMode", "fixed"),
    Case("doubled rods", "StackedForm", "Greville", "Baumgarte.squared", "DirectAdjoint", "fixed"),
    Case("doubled rods", "NullSpace", "GramSchmidt", "Baumgarte", "ForwardMode", "adaptive"),
    Case("doubled rods", "Recursive", "GramSchmidt", "Baumgarte, per row", "ForwardMode", "fixed"),
    Case("doubled rods", "Recursive, R > 0", "GramSchmidt", "NoStabilizer", "ForwardMode", "fixed"),
)  # fmt: skip


def inputs(case: Case) -> dict[str, Any]:
    """What the end of the run depends on: gains, parameters, start."""
    model = MODELS[case.model]
    gains = {
        "Baumgarte": (8.0, 30.0),
        "Baumgarte.squared": (5.0, 6.0),
        "Baumgarte, per row": (np.linspace(5, 8, model.rows), np.linspace(20, 30, model.rows)),
    }.get(case.stabilizer)
    groups = {"gains": gains, "parameters": model.parameters, "start": model.start}
    return jax.tree.map(jnp.asarray, {k: x for k, x in groups.items() if x is not None})


def end(case: Case, x: Mapping[str, Any], adjoint: dfx.AbstractAdjoint, **options: Any) -> jax.Array:
    """The state (q, v) at the end of the run."""
    method, gains = METHODS[case.method], x.get("gains")
    if gains is not None and gains[0].ndim:
        gains = [MODELS[case.model].alike(gain) for gain in gains]
    system, q0, v0 = MODELS[case.model].build(x["parameters"], x["start"])
    run = uk.simulate(
        *(system, q0, v0),
        formula=FORMULAS[case.formula](method),
        # Projection needs a method for dependent rows.
        stabilizer=STABILIZERS[case.stabilizer](
            gains, uk.GramSchmidt() if case.method == "Cholesky" else method
        ),
        adjoint=adjoint,
        **(STEPS[case.steps] | options),
    )
    return jnp.concatenate([run.q[-1], run.v[-1]])


def directions(case: Case) -> dict[str, Any]:
    """For each group of inputs a random change, about a third of what is there."""
    rng = np.random.default_rng(7)
    return jax.tree.map(
        lambda x: jnp.asarray(0.3 * rng.normal(size=x.shape) * (np.abs(x) + 0.01)), inputs(case)
    )


def along(x: Mapping[str, Any], d: Mapping[str, Any], s: jax.Array) -> dict[str, Any]:
    """The inputs after s[i] times the change of group i."""
    return {k: jax.tree.map(lambda x, d, i=i: x + s[i] * d, x[k], d[k]) for i, k in enumerate(x)}


def derivatives(fn: Callable, k: int, h: float = 1e-3) -> tuple[np.ndarray, np.ndarray]:
    """d fn / d s at s = 0, s of shape (k,), by jvp and by central differences of order four.

    One program for all: what differences need are values, which a jvp returns as well.
    """
    steps = np.array([0.0, 1.0, -1.0, 2.0, -2.0])
    points = jnp.asarray((h * steps[:, None, None] * np.eye(k)).reshape(-1, k))
    changes = jnp.tile(jnp.eye(k), (steps.size, 1))
    both = jax.jit(jax.vmap(lambda s, u: jax.jvp(fn, (s,), (u,))))(points, changes)
    values, tangents = (np.asarray(x).reshape(steps.size, k, -1) for x in both)
    return tangents[0], (8 * (values[1] - values[2]) - (values[3] - values[4])) / (12 * h)


class Errors(NamedTuple):
    """Relative errors, the largest over gains, parameters and start; NaN where a mode does not exist."""

    forward: float
    reverse: float
    disagreement: float


def measure(case: Case) -> Errors:
    """Directional derivatives of the end of a run, forward and in reverse, beside central differences."""
    x, d = inputs(case), directions(case)
    adjoint, k = ADJOINTS[case.adjoint], len(x)
    forward = dfx.ForwardMode() if case.adjoint == "RecursiveCheckpointAdjoint" else adjoint
    jvp, exact = derivatives(lambda s: end(case, along(x, d, s), forward), k)
    scale = np.linalg.norm(exact, axis=1)
    errors = np.linalg.norm(jvp - exact, axis=1) / scale
    if case.adjoint == "ForwardMode":
        return Errors(errors.max(), math.nan, math.nan)
    w = jnp.asarray(np.random.default_rng(3).normal(size=exact.shape[1]))
    pull = jax.jit(lambda x, w: jax.vjp(lambda x: end(case, x, adjoint), x)[1](w)[0])(x, w)
    dots = jax.tree.map(lambda g, d: jnp.sum(g * d), pull, d)
    vjp = np.array([sum(jax.tree.leaves(dots[group])) for group in x])
    scale = scale * np.linalg.norm(w)
    reverse, disagreement = (np.abs(vjp - other @ w) / scale for other in (exact, jvp))
    return Errors(errors.max(), reverse.max(), disagreement.max())
