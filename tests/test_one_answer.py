"""One call, one number: alone and in batches, within and outside `jit`, by machine code and by the formula on arrays."""

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ukjax as uk

FIXED = {"solver": dfx.Tsit5(), "dt0": 1e-3, "stepsize_controller": dfx.ConstantStepSize(), "ts": 4}
OFF = 1.001  # of the start: Baumgarte's rows then contradict each other where they are redundant


def random_system(seed: int) -> uk.Problem:
    """Three masses on quadratic surfaces, one of which is given twice with another factor, and a skew slip."""
    rng = np.random.default_rng(seed)
    H, n = rng.normal(size=(2, 3, 3)), rng.normal(size=3)
    q0, damping = rng.normal(size=3), rng.uniform(0.1, 1.0, 3)
    level = [q0 @ (0.2 * h + np.eye(3)) @ q0 for h in H]
    surfaces = [
        uk.Holonomic(lambda t, q, h=h, c=c: q @ (0.2 * h + np.eye(3)) @ q - c, name=f"surface {i}")
        for i, (h, c) in enumerate(zip(H, level, strict=True))
    ]
    again = uk.Holonomic(lambda t, q: 3.0 * surfaces[0].fn(t, q), name="again")
    slip = uk.Nonholonomic(lambda t, q, v: jnp.asarray(n) @ v, name="slip")
    rows = [surfaces[0], again, slip] if seed % 2 else [*surfaces, again]
    system = uk.System(jnp.diag(jnp.asarray(1 + damping)), lambda t, q, v: -damping * v - q, rows)
    return uk.Problem(
        system, *uk.project(system, 0.0, jnp.asarray(q0), jnp.asarray(rng.normal(size=3))), 0.0, 0.05
    )


MODELS = ("parallelogram", "slider_crank", "spinning_top", "scara")
PROBLEMS = {
    **{name: lambda name=name: uk.models.get(name) for name in MODELS},
    **{f"random {seed}": lambda seed=seed: random_system(seed) for seed in range(4)},
}  # fmt: skip
STABILIZERS = {"projected": uk.Projection(), "damped": uk.Baumgarte(20.0, 200.0)}
LONG = "slider_crank", "scara", "random 1", "random 2", "random 3"  # of the kinds that the others are of
LONGEST = ("parallelogram", "projected"), ("spinning_top", "damped"), ("random 0", "damped")


@pytest.mark.parametrize(
    ("name", "stabilizer"),
    [
        pytest.param(
            name,
            stabilizer,
            id=f"{name}-{how}",
            marks=[pytest.mark.slow] if name in LONG or (name, how) in LONGEST else [],
        )
        for name in PROBLEMS
        for how, stabilizer in STABILIZERS.items()
    ],
)
def test_one_answer(name: str, stabilizer: uk.AbstractStabilizer, optimized: None) -> None:
    problem = PROBLEMS[name]()
    off = OFF if isinstance(stabilizer, uk.Baumgarte) and name != "spinning_top" else 1.0
    q0, v0 = off * problem.q0, problem.v0
    t1 = problem.t0 + 0.05

    def states(q0: jax.Array, formula: uk.AbstractFormula | None = None) -> jax.Array:
        run = uk.simulate(
            problem.system, q0, v0, t0=problem.t0, t1=t1, formula=formula, stabilizer=stabilizer, **FIXED
        )
        return jnp.concatenate([run.q[:4], run.v[:4]], axis=1)

    jax.config.update("jax_disable_most_optimizations", True)  # for the reference, on arrays
    try:
        expected = states(q0, uk.NullSpace(uk.SVD(1e-5)))
    finally:
        jax.config.update("jax_disable_most_optimizations", False)
    assert np.all(np.isfinite(expected))
    batch = jnp.stack([q0, q0, q0])
    answers = {
        "alone": states(q0),
        "in jit": jax.jit(states)(q0),
        "in a batch": jax.jit(jax.vmap(states))(batch)[1],
    }
    for way, found in answers.items():
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-10, err_msg=way)
    np.testing.assert_allclose(answers["in jit"], answers["alone"], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(answers["in a batch"], answers["in jit"], rtol=1e-10, atol=1e-12)
