"""What float32 is worth past singular positions: linkages over starts, by the default settings.

It justifies the rank rule of float32, rcond = 0.03: with 1e-4, that of float64, nearly every run leaves its branch.

    python experiments/single_precision.py [--starts 64] [--quick]
"""

import argparse
import dataclasses

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
from fixed_steps import END, mechanisms, tips
from linkage import W2
from paper_tables import Table
from rich.progress import track

import ukjax as uk

LOST = 0.1
"""A run that ends further than this [m] from the closed form is lost: another branch is a metre away."""
WAYS = {
    "tolerance 1e-4": {"rtol": 1e-4, "atol": 1e-4},
    "tolerance 1e-5 (default)": {},
    "Tsit5, 0.01 s": {"solver": dfx.Tsit5(), "dt0": 0.01, "stepsize_controller": dfx.ConstantStepSize()},
    "Tsit5, 0.03 s": {"solver": dfx.Tsit5(), "dt0": 0.03, "stepsize_controller": dfx.ConstantStepSize()},
}
NARROW = "1e-5, with rcond = 1e-4"


def errors(problem: uk.Problem, w2: float, speeds: np.ndarray, way: str) -> np.ndarray:
    """How far from the closed form runs of all links' speeds (k,) end [m]; infinite where they stop before (k,)."""
    single = lambda x: jnp.asarray(x, jnp.float32)
    method = uk.GramSchmidt(rcond=1e-4)
    narrow = {"formula": uk.UdwadiaKalaba(method), "stabilizer": uk.Projection(method)}
    options = narrow if way == NARROW else WAYS[way]

    def tip(scale: jax.Array) -> jax.Array:
        run = uk.simulate(
            problem.system,
            single(problem.q0),
            scale * single(problem.v0),
            t1=END,
            ts=2,
            max_steps=2_000,
            **options,
        )
        return jnp.where(run.t_end > 0.999 * END, 2 * run.q_end[:2], jnp.inf)

    found = np.asarray(jax.jit(jax.vmap(tip))(single(speeds)))
    starts = [dataclasses.replace(problem, v0=np.asarray(problem.v0) * float(single(x))) for x in speeds]
    expected = np.concatenate([tips(start, w2, np.array([END])) for start in starts])
    apart = np.abs(found - expected).max(axis=1)
    return np.where(np.isfinite(apart), apart, np.inf)


def main(arguments: list[str] | None = None) -> dict[tuple[str, str], np.ndarray]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--starts", type=int, default=64, help="how many starts")
    parser.add_argument("--quick", action="store_true", help="one linkage, default tolerance, 16 starts")
    options = parser.parse_args(arguments)
    turning = mechanisms() | {"parallelogram": (uk.models.parallelogram(rate=1.0), W2)}
    names = ["four_bars(1)"] if options.quick else list(turning)
    ways = ["tolerance 1e-5 (default)"] if options.quick else [*WAYS, NARROW]
    speeds = np.linspace(0.5, 2.0, 16 if options.quick else options.starts)
    title = f"float32: runs of {END:g} s lost, of {speeds.size}; median and largest error of the others [m]"
    table = Table(title, f"float32, of {speeds.size} runs", *ways)
    found = {}
    with jax.enable_x64(False):
        for name, way in track([(name, way) for name in names for way in ways], "runs"):
            found[name, way] = errors(*turning[name], speeds, way)
    for name in names:
        cells = []
        for way in ways:
            x = found[name, way]
            kept = x[x <= LOST]
            cells.append(
                f"{np.sum(x > LOST)}" + (f"  {np.median(kept):.0e}  {kept.max():.0e}" if kept.size else "")
            )
        table.add_row(name, *cells)
    print(table)
    return found


if __name__ == "__main__":
    main()
